//! Directories: the list of a region's entries, written at its end when it is full, so that
//! recovery need not read the region batch by batch.
//!
//! Batches are listed as they become complete, in their order. When the last batch of a sealed
//! region is complete, the region's directory is written, and the log requests a sync. A directory
//! is accepted only if another structure says that its batches were durable, so the sync bounds how
//! much a recovery has to read.
//!
//! One directory is written at a time, while the batches of one other region are listed. So a
//! region is not opened while the directory of the region two before it is still in flight
//! (`Regions::room`).

use crate::batches::Resolved;
use crate::commit::Commit;
use crate::format::batch::BatchEntry;
use crate::format::directory::{DirectoryHeader, RegionContents, bytes};
use crate::geometry::Geometry;
use crate::io::Io;
use crate::operation::LogOperation;
use crate::regions::Regions;
use crate::sequence::{BatchSequence, RegionSequence};
use forebay_effect::Outcome;

/// The slots layout has no directories: a sync is due after this many entries, about as many as a
/// region of the log has. A recovery has to verify the entries written since the last sync.
const CHECKPOINT_ENTRIES: usize = 4096;

/// The directory being collected, and the one being written.
pub(crate) struct Directories {
    /// Entries since the last checkpoint, in the slots layout.
    since: usize,
    /// Bytes of the largest directory; 0 if there are none.
    room: usize,
    /// The region whose batches are becoming complete.
    open: Option<Named>,
    contents: RegionContents,
    /// Whether there was no room for all entries.
    overflown: bool,
    /// The directory being written, and whether its buffer holds it already.
    writing: Option<Named>,
    written: RegionContents,
    encoded: bool,
}

/// The region of a directory.
#[derive(Clone, Copy)]
struct Named {
    region_sequence: RegionSequence,
    epoch: u64,
    first_batch: BatchSequence,
}

impl Directories {
    pub fn new(g: &Geometry) -> Directories {
        let room = g.directory_pages as usize * g.page_size as usize;
        let contents = || {
            let pages = if room == 0 { 0 } else { g.region_pages as usize };
            let most = room / (bytes(0, 1) - bytes(0, 0));
            RegionContents { batches: Vec::with_capacity(pages), entries: Vec::with_capacity(most) }
        };
        Directories {
            since: 0,
            room,
            open: None,
            contents: contents(),
            overflown: false,
            writing: None,
            written: contents(),
            encoded: false,
        }
    }

    /// Whether a directory is in flight.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Lists a batch that is complete together with all before it.
    pub fn list(
        &mut self,
        batch: &Resolved,
        entries: impl ExactSizeIterator<Item = BatchEntry>,
        regions: &mut Regions,
        commit: &Commit,
        io: &mut Io,
    ) {
        let &Resolved { region_sequence, sequence, .. } = batch;
        if io.geometry.has_slots() {
            self.since += entries.len();
            if self.since >= CHECKPOINT_ENTRIES {
                self.since = 0;
                regions.checkpoint = sequence;
            }
        }
        if self.room == 0 {
            return;
        }
        if self.open.is_none_or(|open| open.region_sequence != region_sequence) {
            self.pump(regions, commit, io);
            let epoch = io.epoch;
            self.open = Some(Named { region_sequence, epoch, first_batch: sequence });
            self.contents.clear();
            self.overflown = false;
        }
        let c = &mut self.contents;
        let size = bytes(c.batches.len() + 1, c.entries.len() + entries.len());
        self.overflown |= size > self.room;
        if !self.overflown {
            c.batches.push(entries.len() as u16);
            c.entries.extend(entries);
        }
    }

    /// Issues the write of a complete directory.
    pub fn pump(&mut self, regions: &mut Regions, commit: &Commit, io: &mut Io) -> bool {
        let Some(open) = self.open else { return false };
        let region = regions.place(open.region_sequence);
        let sealed = region.sequence == open.region_sequence && open.region_sequence < regions.head;
        let whole = sealed && region.last_batch <= commit.complete_batch();
        if !whole || self.is_writing() {
            return false;
        }
        let last = region.last_batch;
        self.open = None;
        if self.overflown {
            regions.checkpoint = last;
            return true;
        }
        core::mem::swap(&mut self.contents, &mut self.written);
        self.writing = Some(open);
        self.encoded = false;
        regions.directory_under_way = Some(open.region_sequence);
        let page_size = io.geometry.page_size;
        let used = bytes(self.written.batches.len(), self.written.entries.len()) as u32;
        let pages = used.div_ceil(page_size);
        io.add_meta(io.directory_buffer(), 0, pages * page_size);
        io.stats.directories += 1;
        io.stats.header_pages += u64::from(pages);
        let page = io.geometry.directory_start(regions.number(open.region_sequence));
        io.write(LogOperation::Directory, page, pages);
        true
    }

    /// Ensures that the buffer holds the directory being written.
    pub fn encode(&mut self, regions: &Regions, io: &mut Io) {
        let Some(named) = self.writing else { return };
        if core::mem::replace(&mut self.encoded, true) {
            return;
        }
        let number = regions.number(named.region_sequence);
        let header = DirectoryHeader {
            uuid: io.tier(),
            page: io.geometry.directory_start(number),
            epoch: named.epoch,
            region_sequence: named.region_sequence,
            first_batch: named.first_batch,
        };
        let buffer = io.directory_buffer();
        header.encode(&self.written, io.geometry.page_size, &mut io.buffers[buffer]);
    }

    /// Called when the write of a directory has ended.
    pub fn written(&mut self, result: Outcome, regions: &mut Regions) {
        let named = self.writing.take().expect("a directory is being written");
        regions.directory_under_way = None;
        if result.is_ok() {
            let region = regions.place(named.region_sequence);
            regions.checkpoint = regions.checkpoint.max(region.last_batch);
        }
    }
}
