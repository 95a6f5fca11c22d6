//! Volumes as exports.

use std::sync::atomic::{AtomicU32, Ordering};

use forebay_engine::VolumeDescription;
use forebay_nbd::{BlockSizes, ExportInfo, Exports, TransmissionFlags as F};

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

/// The exports as they are offered now: full ones are marked.
pub(super) struct Offer<'a> {
    pub exports: &'a [ExportInfo],
    /// Connections to each volume.
    pub connections: &'a [AtomicU32],
    /// The most there may be.
    pub connections_max: u32,
}

/// A connection to a volume, counted until this is dropped.
pub(super) struct Visit<'a>(&'a AtomicU32);

impl<'a> Offer<'a> {
    /// Counts a connection to the volume of an export, if there may be one more.
    pub fn enter(&self, export: &ExportInfo) -> Option<Visit<'a>> {
        let count = &self.connections[export.volume.0 as usize];
        let before = count.fetch_add(1, Ordering::Relaxed);
        let visit = Visit(count);
        (before < self.connections_max).then_some(visit)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Exports for Offer<'_> {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        let mut export = self.exports.lookup(name)?;
        let count = &self.connections[export.volume.0 as usize];
        export.full = count.load(Ordering::Relaxed) >= self.connections_max;
        Some(export)
    }

    fn list(&self, visit: &mut dyn FnMut(&ExportInfo)) {
        self.exports.list(visit);
    }
}
