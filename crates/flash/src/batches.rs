//! Batches: from queued appends to completed writes, in order.
//!
//! Appends wait in one queue (`queue.rs`). A batch is formed from its front (`placement.rs`) when
//! there is enough for a full one, or when a caller waits and no batch is being written (classic
//! group commit: appends that arrive during a write share the next one). Forming a batch
//! (`forming.rs`) fixes its place and sequence. Then each payload is checksummed, the header
//! encoded, and the whole batch written with one write. At the end, the owners of its entries get
//! their events (`resolve.rs`).
//!
//! In the slots layout the payloads go to cells, with one write for each run of neighbouring cells
//! in addition to the header's, and notes (`cells.rs`) come first in every batch.
//!
//! **Prefix rule**: a batch counts as complete when its write and the writes of all batches before
//! it are complete.

mod forming;
mod queue;
mod resolve;

pub(crate) use queue::{Fill, Queue, Queued};
pub(crate) use resolve::Resolved;

use crate::cells::{Cells, Note};
use crate::commit::{Commit, SuperblockWriter};
use crate::format::batch::{BatchEntry, BatchHeader, EntryKind};
use crate::format::region::RegionHeader;
use crate::geometry::Geometry;
use crate::io::{BATCH_BUFFERS, Io};
use crate::key::BlockKey;
use crate::operation::LogOperation;
use crate::sequence::{AppendSerial, BatchSequence, RegionSequence, SuperblockGeneration};
use forebay_effect::{Frame, IoError, Outcome};
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchState {
    Free,
    /// Waiting for the payloads' checksums.
    Summing,
    Writing,
    /// One of its writes has failed; others are still in progress.
    Failing,
    Written,
    Failed,
}

/// A batch between forming and completion.
struct Batch {
    state: BatchState,
    sequence: BatchSequence,
    /// First page of the write on the device.
    page: u32,
    /// Pages, including the batch header but not the region header.
    pages: u32,
    /// Writes in progress; more than one only in the slots layout.
    writes: u32,
    /// Whether the region's header precedes the batch in the write.
    opens_region: bool,
    /// Whether its records were on flash before.
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

struct InBatch {
    ticket: Option<u64>,
    frame: Frame,
    entry: BatchEntry,
    /// Set if the entry is a note, which has no payload to write.
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
    free: Vec<usize>,
    /// Batches whose checksums and writes have not been requested, oldest first.
    unsummed: VecDeque<usize>,
    /// Sequence of the next batch.
    next_sequence: BatchSequence,
    /// The error that latched the log: no batch counts any more.
    broken: Option<IoError>,
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
            state: BatchState::Free,
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
            broken: None,
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

    /// Whether another batch can be formed.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Continues after a recovery that found batches up to `end`.
    pub fn continue_at(&mut self, end: BatchSequence) {
        self.next_sequence = end.next();
    }

    /// Sequence of the next batch.
    pub fn next_sequence(&self) -> BatchSequence {
        self.next_sequence
    }

    /// Sequence of the newest batch that was formed.
    pub fn last_sequence(&self) -> BatchSequence {
        self.next_sequence.previous()
    }

    /// The entries of a resolved batch; valid until another batch is formed.
    pub fn entries(&self, index: usize) -> impl ExactSizeIterator<Item = BatchEntry> {
        self.all[index].entries.iter().map(|e| e.entry)
    }

    /// Notes the checksum of a payload. Returns whether it was the last one missing, so that the
    /// batch must be written now.
    pub fn checksum_done(&mut self, index: usize, entry: usize, value: u32) -> bool {
        let batch = &mut self.all[index];
        assert!(batch.state == BatchState::Summing, "no checksum of this batch is missing");
        batch.entries[entry].entry.checksum = value;
        batch.sums_missing -= 1;
        batch.sums_missing == 0
    }

    /// Whether a batch waits to be written, in a log without bytes.
    pub fn has_unsummed(&self) -> bool {
        !self.unsummed.is_empty()
    }

    /// In a log without bytes: the next batch to be written. With bytes, a batch is written when
    /// its last checksum arrives.
    pub fn next_unsummed(&mut self) -> Option<usize> {
        self.unsummed.pop_front()
    }

    /// Issues the write. The headers are encoded when the driver requests their buffer.
    pub fn write(
        &mut self,
        index: usize,
        cells: &Cells,
        commit: &Commit,
        superblock: &SuperblockWriter,
        io: &mut Io,
    ) {
        let batch = &mut self.all[index];
        batch.state = BatchState::Writing;
        (batch.synced, batch.generation) = (commit.durable_batch(), superblock.known());
        let buffer = BATCH_BUFFERS + index;
        let headers = 1 + u32::from(batch.opens_region);
        let first = if batch.opens_region { 0 } else { io.geometry.page_size };
        let length = headers * io.geometry.page_size;
        io.add_meta(buffer, first, length);
        let payload = batch.pages > 1 && !io.without_bytes;
        for e in batch.entries.iter().filter(|e| payload && e.has_payload()) {
            io.add_payload(e.frame, e.entry.valid);
        }
        let (page, pages) = (batch.page, batch.pages + u32::from(batch.opens_region));
        io.stats.header_pages += u64::from(headers);
        io.stats.payload_pages += u64::from(batch.pages - 1);
        batch.writes = 1;
        io.write(LogOperation::Batch { batch: index as u8 }, page, pages);
        if io.geometry.has_slots() {
            batch.write_cells(index, cells, io);
        }
    }

    /// Gives up the batch unwritten, because the log has latched.
    pub fn abandon(&mut self, index: usize) {
        self.all[index].state = BatchState::Failed;
    }

    /// Ensures that a batch's buffer holds the headers of the current write.
    pub fn encode_headers(&mut self, index: usize, io: &mut Io) {
        let Some(batch) = self.all.get_mut(index) else { return };
        let wanted = matches!(batch.state, BatchState::Writing | BatchState::Failing);
        if !wanted || core::mem::replace(&mut batch.encoded, true) {
            return;
        }
        let (synced, generation) = (batch.synced, batch.generation);
        let (uuid, epoch) = (io.tier(), io.epoch);
        let page_size = io.geometry.page_size as usize;
        let buffer = &mut io.buffers[BATCH_BUFFERS + index];
        let (region_page, batch_page) = buffer.split_at_mut(page_size);
        if batch.opens_region {
            RegionHeader {
                uuid,
                page: batch.page,
                epoch,
                sequence: batch.region_sequence,
                first_batch: batch.sequence,
                synced,
                generation,
                directory_pages: io.geometry.directory_pages as u16,
            }
            .encode(region_page);
        }
        let header = BatchHeader {
            uuid,
            page: batch.header_page(),
            epoch,
            sequence: batch.sequence,
            region_sequence: batch.region_sequence,
            synced,
            generation,
            pages: batch.pages,
        };
        header.encode(batch.entries.iter().map(|e| e.entry), batch_page);
    }

    /// Called when a write of a batch has ended.
    pub fn written(&mut self, index: usize, result: Outcome) {
        let batch = &mut self.all[index];
        assert!(
            batch.writes > 0 && matches!(batch.state, BatchState::Writing | BatchState::Failing),
            "this batch is not being written"
        );
        batch.writes -= 1;
        if result.is_err() {
            batch.state = BatchState::Failing;
        }
        if batch.writes == 0 {
            // The frames of its records stay pinned until the last write has ended.
            let failed = batch.state == BatchState::Failing;
            batch.state = if failed { BatchState::Failed } else { BatchState::Written };
        }
    }

    /// No batch counts from now on; the batches in flight fail when they end.
    pub fn fail(&mut self, error: IoError) {
        self.broken = Some(error);
    }
}

impl Batch {
    /// The page of the batch's header.
    fn header_page(&self) -> u32 {
        self.page + u32::from(self.opens_region)
    }

    /// Issues the writes of its payloads to their cells.
    fn write_cells(&mut self, index: usize, cells: &Cells, io: &mut Io) {
        let cell_pages = io.geometry.block_pages();
        // The run being collected: its first page and its number of pages.
        let mut run = (0, 0);
        for n in 0..self.entries.len() {
            let e = &self.entries[n];
            if !e.has_payload() {
                continue;
            }
            let (from, valid) = (e.frame, e.entry.valid);
            let page = cells.position(e.entry.cell).0;
            let pages = io.geometry.payload_pages(valid);
            let full = run.1 + pages > io.geometry.batch_pages_max;
            if run.1 > 0 && (page != run.0 + run.1 || full) {
                self.write_run(index, n, run, io);
                run = (page, 0);
            }
            if run.1 == 0 {
                run.0 = page;
            }
            run.1 += pages;
            assert!(pages <= cell_pages);
            if !io.without_bytes {
                io.add_payload(from, valid);
            }
        }
        if run.1 > 0 {
            self.write_run(index, self.entries.len(), run, io);
        }
    }

    /// Issues the write of the entries before `n` that no earlier run includes.
    fn write_run(&mut self, index: usize, n: usize, (page, pages): (u32, u32), io: &mut Io) {
        self.writes += 1;
        io.stats.payload_pages += u64::from(pages);
        let cells = LogOperation::Cells { batch: index as u8, end: n as u16 };
        io.write(cells, page, pages);
    }
}
