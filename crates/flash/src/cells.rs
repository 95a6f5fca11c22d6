//! The *slots* layout: payloads in fixed places, and the log as a journal of the place of each
//! block.
//!
//! A place is a *cell*: room for one block, after the regions. Batches carry only entries. The
//! payloads of a batch are written to cells at the same time as its header, and the batch counts as
//! complete when all of these writes are. There are four kinds of entries:
//!
//! - a *record* names the cell to which its payload was just written;
//! - a *move* names the cell of a payload that stays in place, because the region with its old
//!   mapping is reclaimed;
//! - an *unmapping* is a tombstone for a record that replacement drops;
//! - a tombstone of the activity log (see `activity.rs`).
//!
//! **A cell is written again only when whatever made its old payload obsolete is durable**: the
//! newer record, the unmapping, or the advance of the journal's tail. Until then the cell is *in
//! limbo*. Otherwise a power cut could keep the overwritten payload and lose the newer entry. The
//! cell of an unmapped record is free only when [`RecordEvent::Unmapped`] is polled: until then the
//! index leads readers to it.
//!
//! Moves and unmappings are *notes*: they need no cell, wait separately from the records, and come
//! first in a batch. A record that waits for a cell must not hold back the unmapping that frees
//! one. The last free region is kept for batches that contain moves. So there is always room for
//! the moves that empty the oldest region, and everything that waits for room waits for these
//! moves. After several consecutive crashes there may be no such room
//! ([`Log::room_for_moves`](crate::Log::room_for_moves) says so); the cache then empties the region
//! as in the log layout.

use crate::batches::Batches;
use crate::commit::Commit;
use crate::events::{Event, RecordEvent};
use crate::format::batch::{BatchEntry, EntryKind, MOVED};
use crate::geometry::Geometry;
use crate::granules::Granules;
use crate::identity::TierId;
use crate::io::Io;
use crate::key::{BlockKey, Position, RegionIndex};
use crate::regions::Regions;
use crate::sabotage::Bug;
use crate::sequence::BatchSequence;
use crate::types::Mapping;
use forebay_effect::IoError;
use std::collections::VecDeque;

/// Whether the log has room for what survives of a region to be reclaimed: moved mappings (slots
/// layout) or carried records (log layout).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveRoom {
    /// There is room for them.
    Now,
    /// There will be room when the released regions are free.
    Later,
    /// There is no room. In the slots layout, the region's records are then destaged and dropped.
    Never,
}

impl MoveRoom {
    /// Whether there is room for `pages` pages, whatever else is appended.
    pub(crate) fn new(pages: u64, regions: &Regions) -> MoveRoom {
        let (left, coming) = (regions.pages_left(), regions.pages_coming());
        match () {
            () if pages <= left => MoveRoom::Now,
            () if pages <= left + coming => MoveRoom::Later,
            () => MoveRoom::Never,
        }
    }
}

/// A waiting entry that has no payload to write.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Note {
    pub key: BlockKey,
    pub cell: u32,
    /// The mapping to be written again; none for an unmapping.
    pub moved: Option<Mapping>,
}

impl Note {
    /// The note's entry in a batch.
    pub fn entry(&self) -> BatchEntry {
        let tombstone = BatchEntry {
            key: self.key,
            kind: EntryKind::Tombstone,
            valid: Granules::EMPTY,
            dirty: Granules::EMPTY,
            offset: 0,
            cell: 0,
            checksum: 0,
        };
        self.moved.map_or(tombstone, |m| BatchEntry {
            kind: EntryKind::Data,
            valid: m.valid,
            dirty: m.dirty,
            offset: MOVED,
            cell: self.cell,
            checksum: m.checksum,
            ..tombstone
        })
    }
}

/// A cell in limbo.
struct Limbo {
    /// The batch that must be durable before the cell leaves limbo.
    sequence: BatchSequence,
    cell: u32,
    /// The block, if an `Unmapped` event must follow when the unmapping is durable.
    unmapped: Option<BlockKey>,
}

impl core::fmt::Display for Cells {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} of {} cells free, in limbo until {:?}, {} notes (close {}), hurry {}",
            self.free.len(),
            self.home.len(),
            self.limbo.iter().map(|l| l.sequence).collect::<Vec<_>>(),
            self.notes.len(),
            self.close_notes,
            self.hurry
        )
    }
}

/// Number of counters for blocks that are being written: many more than there are such blocks, so
/// that for most other blocks the counter is 0, and no search is needed.
const WRITING: usize = 1 << 13;

fn hash(key: BlockKey) -> usize {
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - WRITING.ilog2())) as usize
}

/// The cells, and the notes that wait. Empty in the log layout.
pub(crate) struct Cells {
    first_page: u32,
    cell_pages: u32,
    /// The checksum from which payload seeds are continued.
    seed: u32,
    /// For each cell: the region with the newest entry that names it, as of the last event that the
    /// record's owner has polled. Until the owner polls an event, `region_of` must return the
    /// region that the owner knows.
    home: Vec<RegionIndex>,
    /// Region and block of each `Appended` event that has not been polled, in the order of the
    /// events.
    unheard: VecDeque<(RegionIndex, BlockKey)>,
    /// By a hash of the block: the number of its records that are in batches, or whose event has
    /// not been polled.
    writing: Box<[u16]>,
    free: VecDeque<u32>,
    limbo: VecDeque<Limbo>,
    notes: VecDeque<Note>,
    /// Whether the waiting notes are to be written without waiting for a full batch.
    close_notes: bool,
    /// Number of moves among the notes; they come first.
    moves: usize,
    /// Number of moves that are about to be submitted. Like submitted ones they need room in
    /// regions, which nothing else may take ([`Cells::needs`]).
    moves_to_come: u32,
    /// Whether the index is full, so that records must be forgotten soon even if cells are free.
    hurry: bool,
    /// If fewer cells than this are free, the log hurries to free those in limbo.
    low: usize,
}

impl Cells {
    pub fn new(geometry: &Geometry) -> Cells {
        let cells = geometry.slots as usize;
        let entries = geometry.batch_entries_max as usize;
        Cells {
            first_page: geometry.first_cell_page() as u32,
            cell_pages: geometry.block_pages(),
            seed: 0,
            home: vec![RegionIndex(0); cells],
            unheard: VecDeque::new(),
            writing: vec![0; if cells == 0 { 0 } else { WRITING }].into_boxed_slice(),
            free: (0..geometry.slots).collect(),
            limbo: VecDeque::new(),
            notes: VecDeque::new(),
            close_notes: false,
            moves: 0,
            moves_to_come: 0,
            hurry: false,
            low: entries.min(cells / 64).max(1),
        }
    }

    /// Starts with only these cells free.
    pub fn begin(&mut self, uuid: TierId, free: impl Iterator<Item = u32>) {
        self.seed = crc32c::crc32c(uuid.bytes());
        self.free.clear();
        self.free.extend(free);
    }

    pub fn position(&self, cell: u32) -> Position {
        Position(self.first_page + cell * self.cell_pages)
    }

    pub fn cell(&self, position: Position) -> u32 {
        (position.0 - self.first_page) / self.cell_pages
    }

    pub fn home(&self, position: Position) -> RegionIndex {
        self.home[self.cell(position) as usize]
    }

    pub fn set_home(&mut self, cell: u32, region: RegionIndex) {
        self.home[cell as usize] = region;
    }

    /// The start value of a payload's checksum. It includes neither region nor sequence, because
    /// the payload stays when its mapping moves. It need not include them: the checksum is stored
    /// in the entry, not with the payload, so an older payload in the same cell does not match a
    /// newer entry.
    pub fn payload_seed(&self, key: BlockKey, position: Position) -> u32 {
        let mut name = [0; 12];
        name[..8].copy_from_slice(&key.0.to_le_bytes());
        name[8..].copy_from_slice(&position.0.to_le_bytes());
        crc32c::crc32c_append(self.seed, &name)
    }

    /// Takes a free cell for a record of the block. From now on until its event is polled, the
    /// record counts as being written.
    pub fn take(&mut self, key: BlockKey) -> u32 {
        self.writing[hash(key)] += 1;
        self.free.pop_front().expect("measured")
    }

    /// Whether a batch of only notes is due. `spare`: moves do not need its room.
    pub fn notes_due(&self, idle: bool, entries_max: u32, spare: bool) -> bool {
        // (While moves are being submitted, only full batches are written: otherwise moves would
        // fill as many pages as they empty, and regions would be reclaimed forever.)
        if self.moves_to_come > 0 {
            let filling = if spare { self.notes.len() } else { self.moves };
            return filling >= entries_max as usize;
        }
        self.notes.len() >= entries_max as usize
            || self.close_notes && idle && !self.notes.is_empty()
    }

    /// Number of pages that the batches of submitted and announced moves need.
    pub fn needs(&self, entries_max: u32) -> u64 {
        (self.moves as u64 + u64::from(self.moves_to_come)).div_ceil(entries_max.into())
    }

    /// Number of free cells.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of notes that wait to be written.
    pub fn notes(&self) -> usize {
        self.notes.len()
    }

    /// Number of moves that wait to be written.
    pub fn moves(&self) -> usize {
        self.moves
    }

    /// Takes the next note to be written.
    #[must_use]
    pub fn take_note(&mut self) -> Option<Note> {
        let note = self.notes.pop_front()?;
        self.moves = self.moves.saturating_sub(1);
        Some(note)
    }

    /// Puts a cell in limbo until batch `sequence` is durable. If its record was unmapped, the cell
    /// is free only when the owner of the index has polled the `Unmapped` event.
    pub fn put_in_limbo(&mut self, sequence: BatchSequence, cell: u32, unmapped: Option<BlockKey>) {
        self.limbo.push_back(Limbo { sequence, cell, unmapped });
    }

    /// Whether free cells or index entries are running out, and some cells wait to become free.
    pub fn is_short(&self) -> bool {
        (self.hurry || self.free.len() < self.low)
            && !(self.limbo.is_empty() && self.notes.is_empty())
    }

    /// Whether a sync would free a cell that is needed.
    pub fn wants_sync(&self, commit: &Commit) -> bool {
        let next = self.limbo.front().map(|l| l.sequence);
        self.is_short() && next.is_some_and(|sequence| commit.would_cover_batch(sequence))
    }

    /// Notes that a record of the block, which names a cell, is in a complete batch, that its event
    /// has been emitted, and that its mapping is in the region.
    pub fn record_resolved(&mut self, region: RegionIndex, key: BlockKey) {
        self.unheard.push_back((region, key));
    }

    /// Whether a record of the block is in an incomplete batch, or its event has not been polled.
    fn is_being_written(&self, key: BlockKey, batches: &Batches) -> bool {
        let is = || self.unheard.iter().any(|u| u.1 == key) || batches.have_record(key);
        let may = self.writing[hash(key)] != 0;
        debug_assert!(may || !is(), "a block being written is not counted");
        may && is()
    }

    /// Frees a cell, whose payload is no longer needed, once the batches so far are durable.
    pub fn release(&mut self, position: Position, commit: &Commit, io: &Io) {
        let cell = self.cell(position);
        if io.sabotage.is(Bug::CellReusedEarly) {
            self.free.push_back(cell);
        } else {
            self.put_in_limbo(commit.complete_batch(), cell, None);
        }
    }

    /// Queues an unmapping of a block's record. Returns false if a newer record is being written.
    pub fn unmap(
        &mut self,
        key: BlockKey,
        position: Position,
        batches: &Batches,
        io: &mut Io,
    ) -> bool {
        if self.is_being_written(key, batches) {
            return false;
        }
        let cell = self.cell(position);
        if io.sabotage.is(Bug::UnmapForgotten) {
            io.tell(Event::Record(RecordEvent::Unmapped { key, position }));
            return true;
        }
        io.stats.unmapped += 1;
        self.notes.push_back(Note { key, cell, moved: None });
        true
    }

    /// Queues a move of a mapping. Returns false if a newer record is being written.
    pub fn remap(&mut self, mapping: Mapping, batches: &Batches, io: &mut Io) -> bool {
        let Mapping { key, position, .. } = mapping;
        if self.is_being_written(key, batches) {
            return false;
        }
        io.stats.mappings_moved += 1;
        let cell = self.cell(position);
        // (Before the unmappings: since the moves were announced, more of those may have come than
        // there is room for. If a block has both, it was moved first.)
        self.notes.insert(self.moves, Note { key, cell, moved: Some(mapping) });
        self.moves += 1;
        true
    }

    /// Notes the number of moves that are about to be submitted.
    pub fn expect_moves(&mut self, count: u32) {
        self.moves_to_come = count;
    }

    /// All moves are submitted: writes the notes that wait.
    pub fn close_notes(&mut self) {
        self.moves_to_come = 0;
        self.close_notes = !self.notes.is_empty();
    }

    /// Notes that a batch has taken notes.
    pub fn notes_taken(&mut self) {
        self.close_notes &= !self.notes.is_empty();
    }

    /// Notes that the index is full: records must be forgotten soon, even if cells are free.
    pub fn hurry(&mut self) {
        self.hurry = true;
    }

    /// Whether one more batch leaves the room that moves need.
    pub fn spare_a_page(&self, regions: &Regions, io: &Io) -> bool {
        regions.pages_left() > self.needs(io.geometry.batch_entries_max)
    }

    /// Called when an event is about to be polled, which changes the position that its owner knows.
    /// Returns whether this has freed a cell.
    pub fn hear(&mut self, event: &mut Event) -> bool {
        match event {
            Event::Record(RecordEvent::Moved {
                position, from, region, result: Ok(()), ..
            }) => {
                *from = self.home(*position);
                self.set_home(self.cell(*position), *region);
            }
            Event::Record(RecordEvent::Appended { position, .. }) if position.is_some() => {
                let (region, key) = self.unheard.pop_front().expect("one entry for each append");
                self.writing[hash(key)] -= 1;
                self.set_home(self.cell(*position), region);
            }
            Event::Record(RecordEvent::Unmapped { position, .. }) => {
                self.free.push_back(self.cell(*position));
                return true;
            }
            _ => {}
        }
        false
    }

    /// Frees the cells that can leave limbo.
    pub fn pump(&mut self, commit: &Commit, io: &mut Io) -> bool {
        let mut progress = false;
        while let Some(limbo) = self.limbo.front() {
            if limbo.sequence > commit.durable_batch() {
                break;
            }
            let Limbo { cell, unmapped, .. } =
                self.limbo.pop_front().expect("the list is not empty");
            match unmapped {
                // The cell is free when the owner of the index polls this event: until then the
                // index may lead readers there.
                Some(key) => {
                    let position = self.position(cell);
                    io.tell(Event::Record(RecordEvent::Unmapped { key, position }));
                    self.hurry = false;
                }
                None => self.free.push_back(cell),
            }
            progress = true;
        }
        if self.is_short() && !self.notes.is_empty() && !self.close_notes {
            self.close_notes = true;
            progress = true;
        }
        io.stats.cells_free = self.free.len() as u32;
        progress
    }

    /// Fails the waiting moves: nothing will be written any more.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        self.moves = 0;
        for note in self.notes.drain(..) {
            if let Some(mapping) = note.moved {
                io.tell(mapping.refused(error));
            }
        }
    }
}

impl Mapping {
    /// The event of a move that fails.
    pub(crate) fn refused(&self, error: IoError) -> Event {
        let Mapping { ticket, key, position, .. } = *self;
        Event::Record(RecordEvent::Moved {
            ticket,
            key,
            position,
            from: RegionIndex(0),
            region: RegionIndex(0),
            result: Err(error),
        })
    }
}
