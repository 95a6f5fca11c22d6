//! Batches: from queued appends to completed writes, in order.
//!
//! Appends wait in one queue. A batch is formed from its front when there is enough for a full one,
//! or when a caller waits and no batch is being written (classic group commit: appends that arrive
//! during a write share the next one). Forming a batch fixes its place and sequence. Then each
//! payload is checksummed, the header encoded, and the whole batch written with one write.
//!
//! In the slots layout the payloads go to cells, with one write for each run of neighbouring cells
//! in addition to the header's, and notes (`cells.rs`) come first in every batch.
//!
//! **Prefix rule**: a batch counts as complete when its write and the writes of all batches before
//! it are complete.

mod resolve;

use crate::cells::Note;
use crate::format::batch::{BatchHeader, Entry, Kind as EntryKind};
use crate::format::region::RegionHeader;
use crate::geometry::Geometry;
use crate::io::{BATCH_BUFFERS, Io};
use crate::key::{BlockKey, Position};
use crate::log::{Log, Phase};
use crate::operation::Operation;
use crate::sabotage::Bug;
use crate::sequence::{AppendSerial, BatchSequence, RegionSequence, SuperblockGeneration};
use crate::types::Event;
use forebay_effect::{Frame, IoError, Outcome};
use std::collections::VecDeque;

/// An append that waits.
#[derive(Clone, Copy)]
pub(crate) struct Queued {
    /// Order of arrival, from 1.
    pub serial: AppendSerial,
    /// The caller's name for it; none for tombstones of the activity log.
    pub ticket: Option<u64>,
    pub key: BlockKey,
    pub valid: u16,
    pub dirty: u16,
    pub frame: Frame,
    /// It is inserted again only if there is room to spare.
    pub spare: bool,
    /// A stale record of the block does not need a tombstone if this one is written.
    pub supersedes_stale: bool,
}

/// Appends that are not in a batch yet.
pub(crate) struct Queue {
    pub items: VecDeque<Queued>,
    /// Records carried on, or inserted again, from a region being reclaimed. They go before
    /// `items`, which may wait for them.
    pub(crate) carried: VecDeque<Queued>,
    /// No more records are added to `carried` for now.
    pub close_carried: bool,
    /// Serial of the newest append.
    pub last_serial: AppendSerial,
    /// A caller waits for appends up to this serial.
    pub close_through: AppendSerial,
    /// Tombstones of the activity log among the items.
    pub internal: u32,
    /// Batches end at these serials: the clean mark does not cover later appends (serial, ticket).
    pub barriers: VecDeque<(AppendSerial, u64)>,
    /// Tickets of dirty records that were withdrawn and whose owner has not been notified.
    pub taken_back: VecDeque<u64>,
    /// How much of the front fits into the next batch, as far as measured.
    pub(crate) fill: Fill,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Fill {
    /// Pages that the batch may have, including its header; the values below were measured against
    /// it.
    room: u32,
    pub count: usize,
    pub payload_pages: u32,
    /// Cells needed; none in the log layout.
    cells: usize,
    /// Nothing more fits.
    pub full: bool,
}

impl Queue {
    pub fn new(capacity: usize) -> Queue {
        Queue {
            items: VecDeque::with_capacity(capacity),
            carried: VecDeque::new(),
            close_carried: false,
            last_serial: AppendSerial::NONE,
            close_through: AppendSerial::NONE,
            internal: 0,
            barriers: VecDeque::new(),
            taken_back: VecDeque::new(),
            fill: Fill::default(),
        }
    }

    /// Queues an append and returns its serial.
    pub fn push(&mut self, item: Queued) -> AppendSerial {
        self.last_serial = self.last_serial.next();
        self.internal += u32::from(item.ticket.is_none());
        self.items.push_back(Queued { serial: self.last_serial, ..item });
        self.last_serial
    }

    /// Appends a tombstone of the activity log.
    pub fn append_tombstone(&mut self, key: BlockKey, io: &Io) {
        if io.sabotage.is(Bug::TombstoneForgotten) {
            return;
        }
        self.push(Queued {
            serial: AppendSerial::NONE,
            ticket: None,
            key,
            valid: 0,
            dirty: 0,
            frame: Frame::NONE,
            spare: false,
            supersedes_stale: false,
        });
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.carried.is_empty()
    }

    /// Ends a batch right after the newest append.
    pub fn push_barrier(&mut self, ticket: u64) {
        self.barriers.push_back((self.last_serial, ticket));
        self.fill = Fill::default();
    }

    /// Measures how much of the front fits a batch of `room` pages, with `cells` free cells.
    pub(crate) fn measure(&mut self, room: u32, cells: usize, geometry: &Geometry) -> Fill {
        let slots = geometry.has_slots();
        let limit = room.min(geometry.batch_pages_max) - 1;
        let mut fill = self.fill;
        if fill.room != room {
            fill = Fill { room, ..Fill::default() };
        }
        let barrier = self.barriers.front().map_or(AppendSerial::MAX, |b| b.0);
        while !fill.full && fill.count < self.items.len() {
            let item = &self.items[fill.count];
            let pages = geometry.payload_pages(item.valid);
            if fill.payload_pages + pages > limit {
                fill.full = true;
                break;
            }
            if slots && pages > 0 {
                if fill.cells == cells {
                    break;
                }
                fill.cells += 1;
            }
            fill.count += 1;
            fill.payload_pages += pages;
            fill.full = fill.count == geometry.batch_entries_max as usize
                || limit > 0 && fill.payload_pages == limit
                || item.serial >= barrier;
        }
        self.fill = fill;
        fill
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Waiting for the payloads' checksums.
    Summing,
    Writing,
    /// A write of it has failed; others are still in progress.
    Failing,
    Written,
    Failed,
}

/// A batch between forming and completion.
struct Batch {
    state: State,
    sequence: BatchSequence,
    /// First page of the write on the device.
    page: u32,
    /// Pages, including the batch header but not the region header.
    pages: u32,
    /// Writes in progress; more than one only in the slots layout.
    writes: u32,
    /// Whether the region's header comes first.
    opens_region: bool,
    /// Its records were on flash before.
    carried: bool,
    region_sequence: RegionSequence,
    entries: Vec<InBatch>,
    sums_missing: usize,
    last_serial: AppendSerial,
    /// The newest batch that was known to be durable when the write was issued.
    synced: BatchSequence,
    generation: SuperblockGeneration,
    /// Whether the headers are in the batch's buffer.
    encoded: bool,
}

/// A batch into which records are being taken.
#[derive(Default)]
struct Forming {
    /// Its place among the batches.
    index: usize,
    /// From what is carried, not from the queue.
    carried: bool,
    region: u32,
    header_page: u32,
    /// Pages from the header to the next payload.
    offset: u32,
    entries: Vec<InBatch>,
    sums_missing: usize,
    /// A payload has no checksum to wait for.
    unsummed: bool,
    last_serial: AppendSerial,
}

struct InBatch {
    ticket: Option<u64>,
    frame: Frame,
    entry: Entry,
    /// An entry without a payload that is to be written.
    note: Option<Note>,
}

impl InBatch {
    fn has_payload(&self) -> bool {
        self.entry.kind == EntryKind::Data && self.note.is_none()
    }
}

/// The batches in flight.
pub(crate) struct Batches {
    all: Vec<Batch>,
    /// In flight, oldest first.
    order: VecDeque<usize>,
    pub(crate) free: Vec<usize>,
    /// Batches whose checksums and writes have not been requested, oldest first.
    pub unsummed: VecDeque<usize>,
    /// Sequence of the next batch.
    pub next_sequence: BatchSequence,
    /// The log has latched: no batch counts any more.
    broken: bool,
}

impl Batches {
    /// Whether a record of the block is in a batch that is not complete.
    pub fn have_record(&self, key: BlockKey) -> bool {
        let mut entries = self.order.iter().flat_map(|&n| &self.all[n].entries);
        entries.any(|e| e.entry.key == key && e.has_payload())
    }

    pub fn new(geometry: &Geometry) -> Batches {
        let count = geometry.inflight_batches_max as usize;
        let batch = || Batch {
            state: State::Free,
            sequence: BatchSequence::NONE,
            page: 0,
            pages: 0,
            writes: 0,
            opens_region: false,
            carried: false,
            region_sequence: RegionSequence::FIRST,
            entries: Vec::with_capacity(geometry.batch_entries_max as usize),
            sums_missing: 0,
            last_serial: AppendSerial::NONE,
            synced: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            encoded: false,
        };
        Batches {
            all: (0..count).map(|_| batch()).collect(),
            order: VecDeque::with_capacity(count),
            free: (0..count).rev().collect(),
            unsummed: VecDeque::with_capacity(count),
            next_sequence: BatchSequence::FIRST,
            broken: false,
        }
    }

    /// Serial of the last append in a batch in flight; `NONE` if no batch is in flight.
    pub fn last_serial(&self) -> AppendSerial {
        self.order.iter().map(|&n| self.all[n].last_serial).max().unwrap_or(AppendSerial::NONE)
    }

    /// Whether no batch is in flight.
    pub fn is_idle(&self) -> bool {
        self.order.is_empty()
    }
}

impl Log {
    /// Without bytes: issues the write of a batch at the point where, with bytes, its last checksum
    /// arrives.
    pub(crate) fn write_unsummed(&mut self) {
        if let Some(index) = self.batches.unsummed.pop_front() {
            self.write_batch(index);
        }
    }

    /// Forms batches as long as there is a reason and room.
    pub(crate) fn pump_batches(&mut self) -> bool {
        if self.io.geometry.has_slots() {
            return self.pump_mapping();
        }
        let mut progress = false;
        while self.error.is_none() && !self.batches.free.is_empty() {
            let carried = self.queue.carried.front().copied();
            let Some(front) = carried.or(self.queue.items.front().copied()) else { break };
            let carried = carried.is_some();
            let needed = 1 + self.io.geometry.payload_pages(front.valid);
            if front.spare && !self.regions.has_room(needed) {
                self.refuse_spare();
                progress = true;
                continue;
            }
            // (At the end of a stop nothing is carried any more.)
            let stops = matches!(self.phase, Phase::Flushing { .. });
            let last_room = stops || carried && !front.spare;
            let last = self.batches.next_sequence.previous();
            let Some(room) = self.regions.room(needed, last, last_room) else { break };
            if carried {
                let fill = self.queue.measure_carried(room, &self.io.geometry);
                if !fill.full && !self.queue.close_carried {
                    break;
                }
                self.form_batch(fill, true);
                self.queue.close_carried &= !self.queue.carried_is_empty();
                progress = true;
                continue;
            }
            let fill = self.queue.measure(room, 0, &self.io.geometry);
            let waited_for = self.queue.close_through >= front.serial;
            let due = fill.full || waited_for && self.batches.is_idle();
            if !due {
                break;
            }
            self.form_batch(fill, false);
            progress = true;
        }
        progress
    }

    /// Moves notes into the batch, before its records.
    fn take_notes(&mut self, records: usize, batch: &mut Vec<InBatch>) {
        let room = self.io.geometry.batch_entries_max as usize - records;
        for _ in 0..room {
            let Some(note) = self.cells.take_note() else { break };
            batch.push(InBatch {
                ticket: note.moved.map(|m| m.ticket),
                frame: Frame::NONE,
                entry: note.entry(),
                note: Some(note),
            });
        }
        self.cells.close_notes &= !self.cells.notes.is_empty();
    }

    /// Takes the measured front of the queue, or of the carried records, into a batch and requests
    /// its checksums.
    pub(crate) fn form_batch(&mut self, fill: Fill, carried: bool) {
        let sequence = self.batches.next_sequence;
        self.batches.next_sequence = sequence.next();
        let pages = if self.io.geometry.has_slots() { 1 } else { 1 + fill.payload_pages };
        let (region_sequence, page, opens_region) =
            self.regions.take(pages, sequence, &self.io.uuid, self.io.epoch);
        let index = self.batches.free.pop().expect("a batch is free");
        self.batches.order.push_back(index);
        let mut entries = core::mem::take(&mut self.batches.all[index].entries);
        entries.clear();
        self.take_notes(fill.count, &mut entries);
        let mut forming = Forming {
            index,
            carried,
            region: self.regions.number(region_sequence),
            header_page: page + u32::from(opens_region),
            offset: 1,
            entries,
            ..Forming::default()
        };
        for _ in 0..fill.count {
            self.take_record(&mut forming);
        }
        let Forming { entries, sums_missing, unsummed, last_serial, .. } = forming;
        self.batches.all[index] = Batch {
            state: State::Summing,
            sequence,
            page,
            pages,
            writes: 0,
            opens_region,
            carried,
            region_sequence,
            entries,
            sums_missing,
            last_serial,
            synced: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            encoded: false,
        };
        self.queue.fill = Fill::default();
        while self.queue.barriers.front().is_some_and(|b| b.0 <= last_serial) {
            let (_, ticket) = self.queue.barriers.pop_front().expect("the queue is not empty");
            self.superblock.mark_clean(sequence, ticket);
        }
        match sums_missing {
            0 if unsummed => self.batches.unsummed.push_back(index),
            0 => self.write_batch(index),
            _ => {}
        }
    }

    /// Takes the front of the queue into a batch.
    fn take_record(&mut self, batch: &mut Forming) {
        let slots = self.io.geometry.has_slots();
        let queue = if batch.carried { &mut self.queue.carried } else { &mut self.queue.items };
        let item = queue.pop_front().expect("measured");
        batch.last_serial = item.serial;
        self.queue.internal -= u32::from(item.ticket.is_none());
        let data = item.valid != 0;
        let cell = if data && slots { self.cells.take(item.key) } else { 0 };
        batch.unsummed |= data && self.io.without_bytes;
        if data && !self.io.without_bytes {
            self.ask_checksum(batch, &item, cell);
            batch.sums_missing += 1;
        }
        batch.entries.push(InBatch {
            ticket: item.ticket,
            frame: item.frame,
            entry: Entry {
                key: item.key,
                kind: match (data, item.dirty) {
                    (true, _) => EntryKind::Data,
                    (false, 0) => EntryKind::Tombstone,
                    (false, _) => EntryKind::Lost,
                },
                valid: item.valid,
                dirty: item.dirty,
                offset: if data && !slots { batch.offset as u16 } else { 0 },
                cell,
                checksum: 0,
            },
            note: None,
        });
        batch.offset += self.io.geometry.payload_pages(item.valid);
    }

    /// Asks for the checksum of a payload that goes to the next place of the batch, or to a cell.
    fn ask_checksum(&mut self, batch: &Forming, item: &Queued, cell: u32) {
        let seed = match self.io.geometry.slots {
            0 => {
                let position = Position(batch.header_page + batch.offset);
                self.regions.payload_seed(batch.region, item.key, position)
            }
            _ => self.cells.payload_seed(item.key, self.cells.position(cell)),
        };
        let (batch, entry) = (batch.index as u8, batch.entries.len() as u16);
        self.io.checksum(Operation::Checksum { batch, entry }, seed, item.frame, item.valid);
    }

    /// A payload's checksum is known; returns whether it was the last one missing.
    pub(crate) fn checksum_done(&mut self, index: usize, entry: usize, value: u32) -> bool {
        let batch = &mut self.batches.all[index];
        assert!(batch.state == State::Summing, "no checksum of this batch is missing");
        batch.entries[entry].entry.checksum = value;
        batch.sums_missing -= 1;
        let last = batch.sums_missing == 0;
        if last {
            self.write_batch(index);
        }
        last
    }

    /// Issues the write. The headers are encoded when the driver asks for them.
    pub(crate) fn write_batch(&mut self, index: usize) {
        if self.error.is_some() {
            self.batches.all[index].state = State::Failed;
            return self.resolve_batches();
        }
        let batch = &mut self.batches.all[index];
        batch.state = State::Writing;
        (batch.synced, batch.generation) = (self.commit.durable_batch(), self.superblock.known());
        let buffer = BATCH_BUFFERS + index;
        let headers = 1 + u32::from(batch.opens_region);
        let first = if batch.opens_region { 0 } else { self.io.geometry.page_size };
        let length = headers * self.io.geometry.page_size;
        self.io.add_meta(buffer, first, length);
        let payload = batch.pages > 1 && !self.io.without_bytes;
        for e in batch.entries.iter().filter(|e| payload && e.has_payload()) {
            self.io.add_payload(e.frame, e.entry.valid);
        }
        let (page, pages) = (batch.page, batch.pages + u32::from(batch.opens_region));
        self.io.stats.header_pages += u64::from(headers);
        self.io.stats.payload_pages += u64::from(batch.pages - 1);
        self.batches.all[index].writes = 1;
        self.io.write(Operation::Batch { batch: index as u8 }, page, pages);
        if self.io.geometry.has_slots() {
            self.write_cells(index);
        }
    }

    /// Issues the writes of a batch's payloads to their cells.
    fn write_cells(&mut self, index: usize) {
        let cell_pages = self.io.geometry.block_pages();
        // The run being collected: its first page and its pages.
        let mut run = (0, 0);
        for n in 0..self.batches.all[index].entries.len() {
            let e = &self.batches.all[index].entries[n];
            if !e.has_payload() {
                continue;
            }
            let (from, valid) = (e.frame, e.entry.valid);
            let page = self.cells.position(e.entry.cell).0;
            let pages = self.io.geometry.payload_pages(valid);
            let full = run.1 + pages > self.io.geometry.batch_pages_max;
            if run.1 > 0 && (page != run.0 + run.1 || full) {
                self.write_run(index, n, run);
                run = (page, 0);
            }
            if run.1 == 0 {
                run.0 = page;
            }
            run.1 += pages;
            debug_assert!(pages <= cell_pages);
            if !self.io.without_bytes {
                self.io.add_payload(from, valid);
            }
        }
        if run.1 > 0 {
            let n = self.batches.all[index].entries.len();
            self.write_run(index, n, run);
        }
    }

    /// Issues the write of the entries before `n` that no earlier run has.
    fn write_run(&mut self, index: usize, n: usize, (page, pages): (u32, u32)) {
        self.batches.all[index].writes += 1;
        self.io.stats.payload_pages += u64::from(pages);
        let cells = Operation::Cells { batch: index as u8, end: n as u16 };
        self.io.write(cells, page, pages);
    }

    /// Ensures that a batch's buffer holds the headers of the current write.
    pub(crate) fn encode_headers(&mut self, index: usize) {
        let Some(batch) = self.batches.all.get_mut(index) else { return };
        let wanted = matches!(batch.state, State::Writing | State::Failing);
        if !wanted || core::mem::replace(&mut batch.encoded, true) {
            return;
        }
        let (synced, generation) = (batch.synced, batch.generation);
        let epoch = self.io.epoch;
        let page_size = self.io.geometry.page_size as usize;
        let buffer = &mut self.io.buffers[BATCH_BUFFERS + index];
        let (region_page, batch_page) = buffer.split_at_mut(page_size);
        if batch.opens_region {
            RegionHeader {
                uuid: self.io.uuid,
                page: batch.page,
                epoch,
                sequence: batch.region_sequence,
                first_batch: batch.sequence,
                synced,
                generation,
                directory_pages: self.io.geometry.directory_pages as u16,
            }
            .encode(region_page);
        }
        let header = BatchHeader {
            uuid: self.io.uuid,
            page: batch.page + u32::from(batch.opens_region),
            epoch,
            sequence: batch.sequence,
            region_sequence: batch.region_sequence,
            synced,
            generation,
            pages: batch.pages,
        };
        header.encode(batch.entries.iter().map(|e| e.entry), batch_page);
    }

    /// A batch's write has ended.
    pub(crate) fn batch_written(&mut self, index: usize, result: Outcome) {
        let batch = &mut self.batches.all[index];
        assert!(
            batch.writes > 0 && matches!(batch.state, State::Writing | State::Failing),
            "this batch is not being written"
        );
        batch.writes -= 1;
        if result.is_err() {
            batch.state = State::Failing;
        }
        if batch.writes == 0 {
            // Its frames are pinned until the last of its writes has ended.
            let failed = batch.state == State::Failing;
            batch.state = if failed { State::Failed } else { State::Written };
        }
        if let Err(error) = result {
            self.latch(error);
        }
        self.resolve_batches();
    }

    /// Fails every append that is not in a batch yet; those in flight follow when they end.
    pub(crate) fn fail_queue(&mut self, error: IoError) {
        self.batches.broken = true;
        for item in self.queue.items.drain(..).chain(self.queue.carried.drain(..)) {
            if let Some(ticket) = item.ticket {
                self.io.tell(Event::AppendFailed { ticket, error });
            }
        }
        self.queue.internal = 0;
        self.queue.fill = Fill::default();
        for (_, ticket) in self.queue.barriers.drain(..) {
            self.io.tell(Event::CleanMarked { ticket, result: Err(error) });
        }
    }
}
