//! The end of batches: events for their owners, in the order of the batches.

use forebay_effect::IoError;

use super::{InBatch, State};
use crate::cells::Note;
use crate::format::batch::Kind as EntryKind;
use crate::key::Position;
use crate::log::Log;
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::Event;

/// What the entries of a complete batch have in common.
#[derive(Clone, Copy)]
struct Resolved {
    sequence: BatchSequence,
    region_sequence: RegionSequence,
    region: u32,
    /// The page of the batch's header.
    header_page: u32,
    carried: bool,
    /// Why none of them counts.
    error: Option<IoError>,
}

impl Log {
    /// Emits the events of batches that are complete together with all before them.
    pub(super) fn resolve_batches(&mut self) {
        if self.io.sabotage.is(Bug::BatchesSwapped) {
            let all = &self.batches.all;
            let order = self.batches.order.make_contiguous();
            order.sort_by_key(|&index| all[index].state != State::Written);
        }
        while let Some(&index) = self.batches.order.front() {
            match self.batches.all[index].state {
                State::Written | State::Failed => {}
                State::Free | State::Summing | State::Writing | State::Failing => break,
            }
            self.resolve_batch(index);
            self.batches.order.pop_front();
            self.batches.free.push(index);
        }
    }

    fn resolve_batch(&mut self, index: usize) {
        let batch = &mut self.batches.all[index];
        batch.state = State::Free;
        let entries = core::mem::take(&mut batch.entries);
        let last_serial = batch.last_serial;
        let resolved = Resolved {
            sequence: batch.sequence,
            region_sequence: batch.region_sequence,
            region: self.regions.number(batch.region_sequence),
            header_page: batch.page + u32::from(batch.opens_region),
            carried: batch.carried,
            error: self.error.filter(|_| self.batches.broken),
        };
        for entry in &entries {
            if resolved.error.is_none() {
                self.count_entry(entry, resolved.carried);
            }
            match &entry.note {
                Some(note) => self.resolve_note(note, resolved),
                None => self.resolve_append(entry, resolved),
            }
        }
        if resolved.error.is_none() {
            self.commit.complete(last_serial, resolved.sequence);
            self.io.stats.batches += 1;
            let all = entries.iter().map(|e| e.entry);
            self.list_batch(resolved.region_sequence, resolved.sequence, all);
        }
        self.batches.all[index].entries = entries;
    }

    fn count_entry(&mut self, e: &InBatch, carried: bool) {
        self.io.stats.entries += 1;
        self.io.stats.tombstones += u64::from(e.entry.kind == EntryKind::Tombstone);
        if e.note.is_none() {
            let bytes = u64::from(self.io.geometry.payload_bytes(e.entry.valid));
            self.io.stats.payload_bytes += bytes;
            self.io.stats.carried_bytes += if carried { bytes } else { 0 };
        }
    }

    /// An entry without a payload: a mapping that has moved, or the end of one.
    fn resolve_note(&mut self, note: &Note, batch: Resolved) {
        match (note.moved, batch.error) {
            (Some(moved), error) => self.io.tell(Event::Moved {
                ticket: moved.ticket,
                key: moved.key,
                position: moved.position,
                from: 0,
                region: batch.region,
                result: error.map_or(Ok(()), Err),
            }),
            (None, None) => {
                self.cells.put_in_limbo(batch.sequence, note.cell, Some(note.key));
            }
            (None, Some(_)) => {}
        }
    }

    /// An append whose owner waits for it.
    fn resolve_append(&mut self, e: &InBatch, batch: Resolved) {
        let Some(ticket) = e.ticket else { return };
        let slots = self.io.geometry.has_slots();
        let position = match e.entry.kind {
            EntryKind::Data if slots => self.cells.position(e.entry.cell),
            EntryKind::Data => Position(batch.header_page + u32::from(e.entry.offset)),
            // Nothing is read there; it lies in the region that says so.
            EntryKind::Lost => Position(batch.header_page),
            EntryKind::Tombstone => Position::NONE,
        };
        if slots && batch.error.is_none() && position.is_some() {
            self.cells.unheard.push_back((batch.region, e.entry.key));
        }
        self.io.tell(match batch.error {
            Some(error) => Event::AppendFailed { ticket, error },
            None => Event::Appended { ticket, position, checksum: e.entry.checksum },
        });
    }
}
