//! Volumes as exports.

use forebay_engine::VolumeDescription;
use forebay_nbd::{BlockSizes, ExportInfo, TransmissionFlags as F};

/// The largest payload of one request.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// What the cache is asked in multiples of.
const SECTOR_BYTES: u32 = 512;

/// The exports of an engine's volumes, in their order: the first is the default one.
///
/// `CAN_MULTI_CONN` is offered because a FLUSH or FUA on one connection covers every write that
/// was answered on any.
pub(crate) fn exports(volumes: &[VolumeDescription], block_bytes: u32) -> Vec<ExportInfo> {
    let sizes = BlockSizes::new(SECTOR_BYTES, block_bytes, PAYLOAD_BYTES_MAX);
    volumes
        .iter()
        .map(|volume| {
            let mut export = ExportInfo::new(volume.volume, volume.name.clone(), volume.size_bytes);
            export.block_sizes = sizes.unwrap_or(BlockSizes::DEFAULT);
            export.description = "a forebay cache".to_owned();
            export.features = F::SEND_FLUSH | F::SEND_FUA | F::SEND_CACHE | F::CAN_MULTI_CONN;
            export.features = if volume.read_only {
                export.features | F::READ_ONLY
            } else {
                export.features | F::SEND_TRIM | F::SEND_WRITE_ZEROES | F::SEND_FAST_ZERO
            };
            export.allocation = true;
            export
        })
        .collect()
}
