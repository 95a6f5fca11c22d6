//! Looks for the header of the layout `tail` at the former end of the store.
//!
//! A store that was enlarged has nothing at its end, like a store that Forebay never used. Treating
//! it as new would ignore its header, which may say, for example, that newer data are on a flash
//! tier. So a store counts as new only if it contains nothing but zeroes; otherwise the user has to
//! say so.
//!
//! The search begins at the end and skips ranges for which a file has no data, so the former header
//! of an enlarged file is found at once. It ends after [`READ_BYTES_MAX`], since a disk would take
//! hours; then the store does not count as new.

use forebay_config::BackingLayout;

use crate::backing_header::{BackingHeader, COPY_BYTES, COPY_OFFSETS, decode};
use crate::header_area::HeaderArea;

/// Most bytes that are read.
const READ_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Most chunks that are skipped: a file of 4 TiB without data.
const CHUNKS_MAX: u64 = 4 << 20;

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Search {
    /// Where the area of the former header is, and its contents.
    pub found: Option<(u64, BackingHeader)>,
    /// Everything was read, and there are only zeroes before the place of the header.
    pub blank: bool,
}

/// Searches a store of `total` bytes, of which `size_bytes` are to be exported and whose header
/// must be at `own`.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn search(
    area: &HeaderArea,
    total: u64,
    size_bytes: u64,
    own: u64,
) -> std::io::Result<Search> {
    let (mut read, mut blank) = (0, true);
    let chunks = total.div_ceil(CHUNK_BYTES);
    for chunk in (0..chunks).rev() {
        if read >= READ_BYTES_MAX || chunks - chunk > CHUNKS_MAX {
            return Ok(Search { found: None, blank: false });
        }
        let at = chunk * CHUNK_BYTES;
        let length = CHUNK_BYTES.min(total - at);
        if area.is_hole(at, length)? {
            continue;
        }
        let mut bytes = vec![0; length as usize];
        area.read_exact(at, &mut bytes)?;
        read += length;
        let before = own.saturating_sub(at).min(length) as usize;
        blank &= bytes[..before].iter().all(|&byte| byte == 0);
        for (n, copy) in bytes.chunks_exact(COPY_BYTES).enumerate().rev() {
            let Ok(header) = decode(copy) else { continue };
            let copy_at = at + (n * COPY_BYTES) as u64;
            let Some(area_at) = copy_at.checked_sub(header.offset_in_area()) else { continue };
            // A volume may hold copies of other stores: of those the place is not where their data end.
            let ends = [header.data_bytes, size_bytes];
            let ends =
                ends.iter().any(|end| end / COPY_BYTES as u64 * COPY_BYTES as u64 == area_at)
                    || header.data_bytes == size_bytes;
            if header.layout == BackingLayout::Tail && area_at != own && ends {
                return Ok(Search {
                    found: Some((area_at, newest(area, area_at, header)?)),
                    blank,
                });
            }
        }
    }
    Ok(Search { found: None, blank })
}

/// The newer one of a header and its other copy.
fn newest(area: &HeaderArea, at: u64, header: BackingHeader) -> std::io::Result<BackingHeader> {
    let other = COPY_OFFSETS.into_iter().find(|&offset| offset != header.offset_in_area());
    let mut copy = [0; COPY_BYTES];
    area.read_exact(at + other.unwrap_or_default(), &mut copy)?;
    let other = decode(&copy).ok().filter(|other| other.uuid == header.uuid);
    Ok(other.filter(|other| other.update > header.update).unwrap_or(header))
}
