//! The end of batches: emits the events of their entries, in the order of the batches.

use super::{BatchState, Batches, InBatch};
use crate::cells::{Cells, Note};
use crate::events::{Event, RecordEvent};
use crate::format::batch::EntryKind;
use crate::io::Io;
use crate::key::{Position, RegionIndex};
use crate::regions::Regions;
use crate::sabotage::Bug;
use crate::sequence::{AppendSerial, BatchSequence, RegionSequence};

use forebay_effect::IoError;

/// A batch whose events have been emitted.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Resolved {
    /// Its place among the batches.
    pub index: usize,
    pub sequence: BatchSequence,
    pub region_sequence: RegionSequence,
    /// The newest append in it.
    pub last_serial: AppendSerial,
    region: RegionIndex,
    /// The page of the batch's header.
    header_page: u32,
    carried: bool,
    /// The error because of which none of its entries counts.
    pub error: Option<IoError>,
}

impl Batches {
    /// Emits the events of the oldest batch, if it has ended.
    #[must_use]
    pub fn resolve_next(
        &mut self,
        regions: &Regions,
        cells: &mut Cells,
        io: &mut Io,
    ) -> Option<Resolved> {
        if io.sabotage.is(Bug::BatchesSwapped) {
            let all = &self.all;
            let order = self.order.make_contiguous();
            order.sort_by_key(|&index| all[index].state != BatchState::Written);
        }
        let &index = self.order.front()?;
        let batch = &mut self.all[index];
        match batch.state {
            BatchState::Written | BatchState::Failed => {}
            BatchState::Free | BatchState::Summing | BatchState::Writing | BatchState::Failing => {
                return None;
            }
        }
        batch.state = BatchState::Free;
        let resolved = Resolved {
            index,
            sequence: batch.sequence,
            region_sequence: batch.region_sequence,
            last_serial: batch.last_serial,
            region: regions.number(batch.region_sequence),
            header_page: batch.header_page(),
            carried: batch.carried,
            error: self.broken,
        };
        for entry in &batch.entries {
            resolved.resolve(entry, cells, io);
        }
        io.stats.batches += u64::from(resolved.error.is_none());
        self.order.pop_front();
        self.free.push(index);
        Some(resolved)
    }
}

impl Resolved {
    fn resolve(&self, e: &InBatch, cells: &mut Cells, io: &mut Io) {
        if self.error.is_none() {
            self.count(e, io);
        }
        match &e.note {
            Some(note) => self.resolve_note(note, cells, io),
            None => self.resolve_append(e, cells, io),
        }
    }

    fn count(&self, e: &InBatch, io: &mut Io) {
        io.stats.entries += 1;
        io.stats.tombstones += u64::from(e.entry.kind == EntryKind::Tombstone);
        if e.note.is_none() {
            let bytes = u64::from(io.geometry.payload_bytes(e.entry.valid));
            io.stats.payload_bytes += bytes;
            io.stats.carried_bytes += if self.carried { bytes } else { 0 };
        }
    }

    /// Resolves an entry without a payload: a moved mapping, or an unmapping.
    fn resolve_note(&self, note: &Note, cells: &mut Cells, io: &mut Io) {
        match (note.moved, self.error) {
            (Some(moved), error) => io.tell(Event::Record(RecordEvent::Moved {
                ticket: moved.ticket,
                key: moved.key,
                position: moved.position,
                from: RegionIndex(0),
                region: self.region,
                result: error.map_or(Ok(()), Err),
            })),
            (None, None) => {
                cells.put_in_limbo(self.sequence, note.cell, Some(note.key));
            }
            (None, Some(_)) => {}
        }
    }

    /// Resolves an append whose owner waits for it.
    fn resolve_append(&self, e: &InBatch, cells: &mut Cells, io: &mut Io) {
        let Some(ticket) = e.ticket else { return };
        let slots = io.geometry.has_slots();
        let position = match e.entry.kind {
            EntryKind::Data if slots => cells.position(e.entry.cell),
            EntryKind::Data => Position(self.header_page + u32::from(e.entry.offset)),
            // A lost entry has no payload to read. Its position is the header, so that it belongs
            // to the region.
            EntryKind::Lost => Position(self.header_page),
            EntryKind::Tombstone => Position::NONE,
        };
        if slots && self.error.is_none() && position.is_some() {
            cells.record_resolved(self.region, e.entry.key);
        }
        io.tell(match self.error {
            Some(error) => Event::Record(RecordEvent::AppendFailed { ticket, error }),
            None => Event::Record(RecordEvent::Appended {
                ticket,
                position,
                checksum: e.entry.checksum,
            }),
        });
    }
}
