//! Where the header and the data of a store are.

use std::path::PathBuf;

use forebay_config::{BackingLayout, Volume};

use crate::backing_header::AREA_BYTES;
use crate::error::EngineError;

/// The layout of a store's bytes.
pub(crate) struct Plan {
    /// Exported bytes.
    pub size_bytes: u64,
    /// Where the area of the header is.
    pub area_at: Option<u64>,
    /// Where the data begin.
    pub data_at: u64,
    /// Bytes of data in whole logical blocks; the machine enforces a smaller export.
    pub window: u64,
}

impl Plan {
    /// For a store of `total` bytes.
    ///
    /// # Errors
    /// If the volume does not fit.
    pub fn new(volume: &Volume, total: u64, block: u64) -> Result<Plan, EngineError> {
        let overhead = if volume.layout == BackingLayout::None { 0 } else { AREA_BYTES };
        let room = total.saturating_sub(overhead) / 4096 * 4096;
        let room = if overhead == 0 { total / 512 * 512 } else { room };
        let size_bytes = volume.size.map_or(room, |size| size.bytes());
        if size_bytes == 0 || size_bytes > room {
            let needed = size_bytes.max(4096) + overhead;
            let (volume, path) = (volume.name.clone(), PathBuf::from(&volume.backing));
            return Err(EngineError::TooSmall { volume, path, size: total, needed });
        }
        let (area_at, data_at) = match volume.layout {
            BackingLayout::None => (None, 0),
            BackingLayout::Offset => (Some(0), AREA_BYTES),
            BackingLayout::Tail => (Some(area_offsets(total)[1]), 0),
        };
        let window = size_bytes.next_multiple_of(block).min(total - overhead);
        Ok(Plan { size_bytes, area_at, data_at, window })
    }
}

/// Where the areas of headers are in the layouts `offset` and `tail`.
pub(crate) fn area_offsets(total: u64) -> [u64; 2] {
    [0, (total / 4096 * 4096).saturating_sub(AREA_BYTES)]
}
