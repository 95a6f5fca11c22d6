//! A batch into which records are being taken.

use super::{Batch, BatchState, Batches, Fill, InBatch, Queue, Queued};
use crate::cells::Cells;
use crate::format::batch::{BatchEntry, EntryKind};
use crate::io::Io;
use crate::key::{Position, RegionIndex};
use crate::operation::LogOperation;
use crate::regions::Regions;
use crate::sequence::{AppendSerial, BatchSequence, SuperblockGeneration};
use forebay_effect::Frame;

/// A batch being formed.
pub(crate) struct Forming {
    /// Its place among the batches.
    index: usize,
    batch: Batch,
    /// The number of its region.
    region: RegionIndex,
    /// Pages from the header to the next payload.
    offset: u32,
    /// Whether a payload needs no checksum, because the log is without bytes.
    unsummed: bool,
}

impl Batches {
    /// Begins a batch for the measured front of the queue, or of the `carried` records: its place
    /// and its sequence are fixed from now on.
    pub fn begin(&mut self, fill: Fill, carried: bool, regions: &mut Regions, io: &Io) -> Forming {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.next();
        let pages = if io.geometry.has_slots() { 1 } else { 1 + fill.payload_pages };
        let (region_sequence, page, opens_region) =
            regions.take(pages, sequence, io.tier(), io.epoch);
        let index = self.free.pop().expect("a batch is free");
        self.order.push_back(index);
        let mut entries = core::mem::take(&mut self.all[index].entries);
        entries.clear();
        let batch = Batch {
            state: BatchState::Summing,
            sequence,
            page,
            pages,
            writes: 0,
            opens_region,
            carried,
            region_sequence,
            entries,
            sums_missing: 0,
            last_serial: AppendSerial::NONE,
            synced: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            encoded: false,
        };
        let region = regions.number(region_sequence);
        Forming { index, batch, region, offset: 1, unsummed: false }
    }

    /// Ends the forming of a batch. Returns its place if no checksum is missing, so that the batch
    /// must be written now.
    pub fn formed(&mut self, forming: Forming) -> Option<usize> {
        let Forming { index, batch, unsummed, .. } = forming;
        let summed = batch.sums_missing == 0;
        self.all[index] = batch;
        if summed && unsummed {
            self.unsummed.push_back(index);
        }
        (summed && !unsummed).then_some(index)
    }
}

impl Forming {
    pub fn sequence(&self) -> BatchSequence {
        self.batch.sequence
    }

    /// Serial of the newest append in the batch; `NONE` if it has none.
    pub fn last_serial(&self) -> AppendSerial {
        self.batch.last_serial
    }

    /// Takes as many notes as fit next to `records` records. The notes come first.
    pub fn take_notes(&mut self, records: usize, cells: &mut Cells, io: &Io) {
        let room = io.geometry.batch_entries_max as usize - records;
        for _ in 0..room {
            let Some(note) = cells.take_note() else { break };
            self.batch.entries.push(InBatch {
                ticket: note.moved.map(|m| m.ticket),
                frame: Frame::NONE,
                entry: note.entry(),
                note: Some(note),
            });
        }
        cells.notes_taken();
    }

    /// Takes the front of the queue and requests the checksum of its payload.
    pub fn take_record(
        &mut self,
        queue: &mut Queue,
        regions: &Regions,
        cells: &mut Cells,
        io: &mut Io,
    ) {
        let slots = io.geometry.has_slots();
        let item = queue.pop(self.batch.carried);
        self.batch.last_serial = item.serial;
        let data = !item.valid.is_empty();
        let cell = if data && slots { cells.take(item.key) } else { 0 };
        self.unsummed |= data && io.without_bytes;
        if data && !io.without_bytes {
            let seed = match slots {
                true => cells.payload_seed(item.key, cells.position(cell)),
                false => regions.payload_seed(self.region, item.key, self.next_position()),
            };
            self.ask_checksum(&item, seed, io);
        }
        self.batch.entries.push(InBatch {
            ticket: item.ticket,
            frame: item.frame,
            entry: BatchEntry {
                key: item.key,
                kind: match (data, item.dirty.is_empty()) {
                    (true, _) => EntryKind::Data,
                    (false, true) => EntryKind::Tombstone,
                    (false, false) => EntryKind::Lost,
                },
                valid: item.valid,
                dirty: item.dirty,
                offset: if data && !slots { self.offset as u16 } else { 0 },
                cell,
                checksum: 0,
            },
            note: None,
        });
        self.offset += io.geometry.payload_pages(item.valid);
    }

    /// The position of the next payload in the log layout.
    fn next_position(&self) -> Position {
        Position(self.batch.header_page() + self.offset)
    }

    /// Requests the checksum of the payload that is taken next.
    fn ask_checksum(&mut self, item: &Queued, seed: u32, io: &mut Io) {
        let (batch, entry) = (self.index as u8, self.batch.entries.len() as u16);
        io.checksum(LogOperation::Checksum { batch, entry }, seed, item.frame, item.valid);
        self.batch.sums_missing += 1;
    }
}
