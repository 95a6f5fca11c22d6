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

use crate::format::batch::Entry;
use crate::format::directory::{Contents, DirectoryHeader, bytes};
use crate::geometry::Geometry;
use crate::log::Log;
use crate::operation::Operation;
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
    contents: Contents,
    /// There was no room for all entries.
    overflown: bool,
    /// The directory being written, and whether its buffer holds it already.
    writing: Option<Named>,
    written: Contents,
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
            Contents { batches: Vec::with_capacity(pages), entries: Vec::with_capacity(most) }
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
}

impl Log {
    /// Lists a batch that is complete together with all before it.
    pub(crate) fn list_batch(
        &mut self,
        region_sequence: RegionSequence,
        sequence: BatchSequence,
        entries: impl ExactSizeIterator<Item = Entry>,
    ) {
        if self.io.geometry.has_slots() {
            self.directories.since += entries.len();
            if self.directories.since >= CHECKPOINT_ENTRIES {
                self.directories.since = 0;
                self.regions.checkpoint = sequence;
            }
        }
        if self.directories.room == 0 {
            return;
        }
        if self.directories.open.is_none_or(|open| open.region_sequence != region_sequence) {
            self.write_directory();
            let epoch = self.io.epoch;
            let d = &mut self.directories;
            d.open = Some(Named { region_sequence, epoch, first_batch: sequence });
            d.contents.clear();
            d.overflown = false;
        }
        let d = &mut self.directories;
        let c = &mut d.contents;
        let size = bytes(c.batches.len() + 1, c.entries.len() + entries.len());
        d.overflown |= size > d.room;
        if !d.overflown {
            c.batches.push(entries.len() as u16);
            c.entries.extend(entries);
        }
    }

    /// Issues the write of a complete directory.
    pub(crate) fn pump_directory(&mut self) -> bool {
        self.directories.open.is_some() && self.error.is_none() && self.write_directory()
    }

    fn write_directory(&mut self) -> bool {
        let Some(open) = self.directories.open else { return false };
        let region = self.regions.place(open.region_sequence);
        let sealed =
            region.sequence == open.region_sequence && open.region_sequence < self.regions.head;
        let whole = sealed && region.last_batch <= self.commit.complete_batch();
        if !whole || self.directories.is_writing() {
            return false;
        }
        let last = region.last_batch;
        let d = &mut self.directories;
        d.open = None;
        if d.overflown {
            self.regions.checkpoint = last;
            return true;
        }
        core::mem::swap(&mut d.contents, &mut d.written);
        d.writing = Some(open);
        d.encoded = false;
        self.regions.directory_under_way = Some(open.region_sequence);
        let page_size = self.io.geometry.page_size;
        let used = bytes(d.written.batches.len(), d.written.entries.len()) as u32;
        let pages = used.div_ceil(page_size);
        let buffer = self.io.directory_buffer();
        self.io.add_meta(buffer, 0, pages * page_size);
        self.io.stats.directories += 1;
        self.io.stats.header_pages += u64::from(pages);
        let page = self.io.geometry.directory_start(self.regions.number(open.region_sequence));
        self.io.write(Operation::Directory, page, pages);
        true
    }

    /// Ensures that the buffer holds the directory being written.
    pub(crate) fn encode_directory(&mut self) {
        let buffer = self.io.directory_buffer();
        let d = &mut self.directories;
        let Some(named) = d.writing else { return };
        if core::mem::replace(&mut d.encoded, true) {
            return;
        }
        let number = self.regions.number(named.region_sequence);
        let header = DirectoryHeader {
            uuid: self.io.uuid,
            page: self.io.geometry.directory_start(number),
            epoch: named.epoch,
            region_sequence: named.region_sequence,
            first_batch: named.first_batch,
        };
        header.encode(&d.written, self.io.geometry.page_size, &mut self.io.buffers[buffer]);
    }

    /// The write of a directory has ended.
    pub(crate) fn directory_written(&mut self, result: Outcome) {
        let named = self.directories.writing.take().expect("a directory is being written");
        self.regions.directory_under_way = None;
        match result {
            Ok(()) => {
                let region = self.regions.place(named.region_sequence);
                self.regions.checkpoint = self.regions.checkpoint.max(region.last_batch);
            }
            Err(error) => self.latch(error),
        }
    }
}
