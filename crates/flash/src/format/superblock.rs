//! x
/// x
pub fn bindings_max(g: &crate::Geometry) -> u32 {
    (g.superblock_pages * g.page_size).saturating_sub(128 + 64 * 16 + g.active_extents_max * 8) / 32
}
