//! Offers volumes as NBD exports.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_engine::Engine;
use forebay_nbd::{BlockSizes, ExportInfo, Exports, TransmissionFlags as F};
use socket2::Socket;

use super::counts::Counts;
use super::visitors::{Visit, Visitors};

/// The largest payload of one request, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Minimum block size of a request, in bytes.
const SECTOR_BYTES: u32 = 512;

/// The exports of an engine's volumes, in their order: the first is the default one.
///
/// `CAN_MULTI_CONN` is offered because a FLUSH or FUA on one connection covers every write that
/// was answered on any. Fast zeroing is offered where the store can zero ranges.
pub(crate) fn exports(engine: &Engine) -> Vec<ExportInfo> {
    let sizes = BlockSizes::new(SECTOR_BYTES, engine.block_bytes(), PAYLOAD_BYTES_MAX);
    engine
        .volumes()
        .iter()
        .map(|volume| {
            let mut export = ExportInfo::new(volume.volume, volume.name.clone(), volume.size_bytes);
            export.block_sizes = sizes.unwrap_or(BlockSizes::DEFAULT);
            export.description = "a Forebay cache".to_owned();
            export.features = F::SEND_FLUSH | F::SEND_FUA | F::SEND_CACHE | F::CAN_MULTI_CONN;
            export.features = if volume.read_only {
                export.features | F::READ_ONLY
            } else {
                export.features | F::SEND_TRIM | F::SEND_WRITE_ZEROES
            };
            if !volume.read_only && engine.zeroes_cheaply(volume.volume) {
                export.features = export.features | F::SEND_FAST_ZERO;
            }
            export.allocation = true;
            export
        })
        .collect()
}

/// The exports that are offered to one client.
pub(super) struct Offer<'a> {
    exports: &'a [ExportInfo],
    visitors: &'a Visitors,
    counts: &'a Counts,
    /// Maximum number of connections to one volume.
    connections_max: u32,
    /// The client's socket, and [`Surroundings::choked`](super::connection::Surroundings::choked).
    connection: (&'a Arc<Socket>, &'a Arc<AtomicBool>),
    stopping: &'a AtomicBool,
    /// The client's place, once it has chosen an export and was admitted.
    visit: Cell<Option<Visit<'a>>>,
    /// Whether a refusal of this client has been counted.
    refused: Cell<bool>,
}

impl<'a> Offer<'a> {
    pub fn new(
        exports: &'a [ExportInfo],
        visitors: &'a Visitors,
        counts: &'a Counts,
        connections_max: u32,
        connection: (&'a Arc<Socket>, &'a Arc<AtomicBool>),
        stopping: &'a AtomicBool,
    ) -> Offer<'a> {
        let (visit, refused) = (Cell::new(None), Cell::new(false));
        Offer { exports, visitors, counts, connections_max, connection, stopping, visit, refused }
    }

    /// The place of a client that was admitted.
    pub fn into_visit(self) -> Option<Visit<'a>> {
        self.visit.into_inner()
    }
}

impl Exports for Offer<'_> {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.exports.lookup(name)
    }

    fn list(&self, visit: &mut dyn FnMut(&ExportInfo)) {
        self.exports.list(visit);
    }

    fn admit(&self, export: &ExportInfo) -> bool {
        let max = self.connections_max;
        let visit = self.visitors.enter(export.volume, self.connection, max, self.stopping);
        let admitted = visit.is_some();
        if !admitted && !self.refused.replace(true) {
            self.counts.refuse_by_volume();
        }
        self.visit.set(visit);
        admitted
    }
}
