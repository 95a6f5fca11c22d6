//! x
/// x
pub fn entries_max(page_size: u32) -> u32 {
    (page_size - 96) / 24
}
