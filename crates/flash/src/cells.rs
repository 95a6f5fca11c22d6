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
//! **A cell is written again only when the reason why its old payload is worthless is durable**:
//! the newer record, the unmapping, or the advance of the journal's tail. Until then the cell is
//! *in limbo*. Otherwise a power cut could keep the overwritten payload and lose that reason. The
//! cell of an unmapped record is free only when [`Event::Unmapped`] is polled: until then the index
//! leads readers to it.
//!
//! Moves and unmappings are *notes*: they need no cell, wait separately from the records, and come
//! first in a batch. A record that waits for a cell must not hold back the unmapping that frees
//! one. The last free region is kept for batches that contain moves. So there is always room for
//! the moves that empty the oldest region, and everything that waits for room waits for that. After
//! several consecutive crashes there may be no such room ([`Log::room_for_moves`] says so); the
//! cache then empties the region as in the log layout.

use crate::commit::Commit;
use crate::format::batch::{Entry, Kind as EntryKind, MOVED};
use crate::geometry::Geometry;
use crate::key::{BlockKey, Position};
use crate::layout::Layout;
use crate::log::{Log, Phase};
use crate::sabotage::Bug;
use crate::sequence::BatchSequence;
use crate::types::{Event, Mapping};
use forebay_effect::IoError;
use std::collections::VecDeque;

/// Slots layout: whether the mappings of a region can move to other regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveRoom {
    /// There is room for them.
    Now,
    /// There is room when the released regions are free.
    Later,
    /// There is no room; then the region's records are destaged and dropped.
    Never,
}

/// A waiting entry without a payload.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub key: BlockKey,
    pub cell: u32,
    /// The mapping to be written again; none for an unmapping.
    pub moved: Option<Mapping>,
}

impl Note {
    /// Its entry in a batch.
    pub fn entry(&self) -> Entry {
        let tombstone = Entry {
            key: self.key,
            kind: EntryKind::Tombstone,
            valid: 0,
            dirty: 0,
            offset: 0,
            cell: 0,
            checksum: 0,
        };
        self.moved.map_or(tombstone, |m| Entry {
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
    /// The block, if a caller waits for its unmapping to become durable.
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

/// Counters for blocks that are being written: many more than such blocks, so that one lookup
/// mostly answers for a block that is not.
const WRITING: usize = 1 << 13;

fn hash(key: BlockKey) -> usize {
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - WRITING.ilog2())) as usize
}

/// The cells and the entries that wait for them. Empty in the log layout.
pub(crate) struct Cells {
    first_page: u32,
    cell_pages: u32,
    /// The start of payload seeds.
    seed: u32,
    /// By cell: the region with the newest entry that names it, as of the last event that its owner
    /// has polled. Until the owner polls an event, `region_of` must return the region that the
    /// owner knows.
    home: Vec<u32>,
    /// Region and block of each `Appended` event that has not been polled, in their order.
    pub unheard: VecDeque<(u32, BlockKey)>,
    /// By a hash of the block: records in batches, and those whose event has not been polled.
    writing: Box<[u16]>,
    pub free: VecDeque<u32>,
    limbo: VecDeque<Limbo>,
    pub notes: VecDeque<Note>,
    /// Notes are written without waiting for a full batch.
    pub close_notes: bool,
    /// Moves among the notes; they come first.
    moves: usize,
    /// Moves that are about to be submitted. Like submitted ones they need room in regions, which
    /// nothing else may take ([`Cells::needs`]).
    moves_to_come: u32,
    /// The index is full: records must be forgotten soon, even if cells are free.
    pub hurry: bool,
    /// If fewer cells are free, those in limbo are expedited.
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
            home: vec![0; cells],
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
    pub fn begin(&mut self, uuid: &[u8; 16], free: impl Iterator<Item = u32>) {
        self.seed = crc32c::crc32c(uuid);
        self.free.clear();
        self.free.extend(free);
    }

    pub fn position(&self, cell: u32) -> Position {
        Position(self.first_page + cell * self.cell_pages)
    }

    pub fn cell(&self, position: Position) -> u32 {
        (position.0 - self.first_page) / self.cell_pages
    }

    pub fn home(&self, position: Position) -> u32 {
        self.home[self.cell(position) as usize]
    }

    pub fn set_home(&mut self, cell: u32, region: u32) {
        self.home[cell as usize] = region;
    }

    /// The start value of a payload's checksum. It includes neither region nor sequence: the
    /// payload stays when its mapping moves. It need not include them, because the entry, not the
    /// payload, holds the checksum: an older payload in the same cell fails under a newer entry by
    /// its contents.
    pub fn payload_seed(&self, key: BlockKey, position: Position) -> u32 {
        let mut name = [0; 12];
        name[..8].copy_from_slice(&key.0.to_le_bytes());
        name[8..].copy_from_slice(&position.0.to_le_bytes());
        crc32c::crc32c_append(self.seed, &name)
    }

    /// Takes a free cell for a record of the block. The record is in a batch from now on, until its event is polled.
    pub fn take(&mut self, key: BlockKey) -> u32 {
        self.writing[hash(key)] += 1;
        self.free.pop_front().expect("measured")
    }

    /// Whether a record of the block may be in a batch or have an unpolled event. False is certain.
    pub fn may_be_written(&self, key: BlockKey) -> bool {
        self.writing[hash(key)] != 0
    }

    /// Whether a batch of only notes is due; `spare`: moves do not need its room.
    pub fn notes_due(&self, idle: bool, entries_max: u32, spare: bool) -> bool {
        // (Moves fill their batches: else they leave as many pages as they empty, and regions go round for ever.)
        if self.moves_to_come > 0 {
            let filling = if spare { self.notes.len() } else { self.moves };
            return filling >= entries_max as usize;
        }
        self.notes.len() >= entries_max as usize
            || self.close_notes && idle && !self.notes.is_empty()
    }

    /// Pages of batches that submitted and announced moves need.
    pub fn needs(&self, entries_max: u32) -> u64 {
        (self.moves as u64 + u64::from(self.moves_to_come)).div_ceil(entries_max.into())
    }

    /// Moves that wait to be written.
    pub fn moves(&self) -> usize {
        self.moves
    }

    /// The next note to be written.
    pub fn take_note(&mut self) -> Option<Note> {
        let note = self.notes.pop_front()?;
        self.moves = self.moves.saturating_sub(1);
        Some(note)
    }

    /// The cell leaves limbo when batch `sequence` is durable. If its record was unmapped, the cell
    /// is free when the owner of the index has polled that event.
    pub fn put_in_limbo(&mut self, sequence: BatchSequence, cell: u32, unmapped: Option<BlockKey>) {
        self.limbo.push_back(Limbo { sequence, cell, unmapped });
    }

    /// Free cells or index entries are running out, and some cells wait to become free.
    pub fn is_short(&self) -> bool {
        (self.hurry || self.free.len() < self.low)
            && !(self.limbo.is_empty() && self.notes.is_empty())
    }

    /// Whether a sync would free a cell that is needed.
    pub fn wants_sync(&self, commit: &Commit) -> bool {
        let next = self.limbo.front().map(|l| l.sequence);
        self.is_short() && next.is_some_and(|sequence| commit.would_cover_batch(sequence))
    }
}

impl Log {
    /// How records are placed.
    pub fn layout(&self) -> Layout {
        self.io.geometry.layout()
    }

    /// Slots layout: the payload at `position` is no longer needed, because a record whose
    /// `Appended` event has been polled replaced it, or because the region with its mapping is
    /// free. The cell is reused once that is durable.
    pub fn release_cell(&mut self, position: Position) {
        let cell = self.cells.cell(position);
        if self.io.sabotage.is(Bug::CellReusedEarly) {
            self.cells.free.push_back(cell);
        } else {
            self.cells.put_in_limbo(self.commit.complete_batch(), cell, None);
        }
        if self.cells.is_short() {
            self.pump();
        }
    }

    /// Slots layout: forgets the record of `key`, which must be the newest, clean, and at
    /// `position`. `Unmapped` follows when that is durable, unless the log fails before; a newer
    /// record may be appended meanwhile. Returns false and does nothing while a newer record of the
    /// block is being written or its `Appended` event waits to be polled.
    pub fn unmap(&mut self, key: BlockKey, position: Position) -> bool {
        if self.takes_no_notes() {
            return true;
        }
        if self.is_being_written(key) {
            return false;
        }
        let cell = self.cells.cell(position);
        if self.io.sabotage.is(Bug::UnmapForgotten) {
            self.io.tell(Event::Unmapped { key, position });
            return true;
        }
        self.io.stats.unmapped += 1;
        self.cells.notes.push_back(Note { key, cell, moved: None });
        self.pump();
        true
    }

    /// Slots layout: writes a mapping again, because its region is being reclaimed; `Moved`
    /// follows. Returns false and does nothing while a newer record of the block is being written,
    /// which makes the move unnecessary.
    ///
    /// # Panics
    /// If the mapping has no granule: such a record must be unmapped.
    pub fn remap(&mut self, mapping: Mapping) -> bool {
        let Mapping { ticket, key, position, valid, .. } = mapping;
        assert!(valid != 0, "a mapping without a granule");
        if self.takes_no_notes() {
            let result = Err(self.error.unwrap_or(IoError::Shutdown));
            let (from, region) = (0, 0);
            self.io.tell(Event::Moved { ticket, key, position, from, region, result });
            return true;
        }
        if self.is_being_written(key) {
            return false;
        }
        self.io.stats.mappings_moved += 1;
        let cell = self.cells.cell(position);
        // (Before what is being unmapped: more of that may have come since the moves were begun than there is
        // room for. A block of which both wait was moved first.)
        let at = self.cells.moves;
        self.cells.notes.insert(at, Note { key, cell, moved: Some(mapping) });
        self.cells.moves += 1;
        true
    }

    /// Slots layout: the owner is about to submit `count` mappings to `remap`, and waits for
    /// nothing before that. Room is kept for them until [`Log::close_notes`]; until then, only full
    /// batches of the submitted ones are written. (There is one owner at a time: a cache with this
    /// layout has one shard.)
    pub fn expect_moves(&mut self, count: u32) {
        self.cells.moves_to_come = count;
        self.pump();
    }

    /// Slots layout: writes the mappings submitted to `remap`.
    pub fn close_notes(&mut self) {
        self.cells.moves_to_come = 0;
        self.cells.close_notes = !self.cells.notes.is_empty();
        self.pump();
    }

    /// Slots layout: whether there is room for `count` mappings, whatever else is appended.
    /// Mappings that were submitted to `remap` before must have been written.
    pub fn room_for_moves(&self, count: u64) -> MoveRoom {
        let pages = count.div_ceil(self.io.geometry.batch_entries_max.into());
        let (left, coming) = (self.regions.pages_left(), self.regions.pages_coming());
        match () {
            // (A log that has failed refuses them at once.)
            () if pages <= left || self.error.is_some() => MoveRoom::Now,
            () if pages <= left + coming => MoveRoom::Later,
            () => MoveRoom::Never,
        }
    }

    /// Whether a record of the block is in an incomplete batch, or its event has not been polled.
    pub(crate) fn is_being_written(&self, key: BlockKey) -> bool {
        let may = self.cells.may_be_written(key);
        debug_assert!(may || !self.is_in_batches(key), "a block being written is not counted");
        may && self.is_in_batches(key)
    }

    fn is_in_batches(&self, key: BlockKey) -> bool {
        self.cells.unheard.iter().any(|u| u.1 == key) || self.batches.have_record(key)
    }

    /// Whether one more batch leaves the room that moves need.
    pub(crate) fn spares_a_page(&self) -> bool {
        self.regions.pages_left() > self.cells.needs(self.io.geometry.batch_entries_max)
    }

    /// An event is about to be polled: it changes the known position of its block's record.
    pub(crate) fn hear(&mut self, event: &mut Event) {
        let cells = &mut self.cells;
        match event {
            Event::Moved { position, from, region, result: Ok(()), .. } => {
                *from = cells.home(*position);
                cells.set_home(cells.cell(*position), *region);
            }
            Event::Appended { position, .. } if position.is_some() => {
                let (region, key) = cells.unheard.pop_front().expect("one entry for each append");
                cells.writing[hash(key)] -= 1;
                cells.set_home(cells.cell(*position), region);
            }
            Event::Unmapped { position, .. } => {
                cells.free.push_back(cells.cell(*position));
                if !self.queue.items.is_empty() {
                    self.pump();
                }
            }
            _ => {}
        }
    }

    fn takes_no_notes(&self) -> bool {
        self.error.is_some() || !matches!(self.phase, Phase::Running | Phase::Draining)
    }

    /// Slots layout: forms batches as long as there is a reason and room. A batch takes one page,
    /// and cells if it has records.
    pub(crate) fn pump_mapping(&mut self) -> bool {
        let mut progress = false;
        while self.error.is_none() && !self.batches.free.is_empty() {
            let idle = self.batches.is_idle();
            let (mut fill, mut due) = (None, false);
            let spare = self.spares_a_page();
            if let Some(front) = self.queue.items.front().copied()
                && self.regions.leaves_last()
                && (spare || self.cells.needs(1) == 0)
            {
                // Any number will do for the room: payloads do not take it from the region.
                let room = self.io.geometry.batch_pages_max;
                let f = self.queue.measure(room, self.cells.free.len(), &self.io.geometry);
                let waited_for = self.queue.close_through >= front.serial;
                due = f.count > 0 && (f.full || waited_for && idle);
                fill = due.then_some(f);
            }
            let most = self.io.geometry.batch_entries_max;
            let spare = spare && self.regions.leaves_last();
            let notes_due = self.cells.notes_due(idle, most, spare);
            // All notes that wait come before any record: one may forget what the record's block had before.
            let fill = fill.filter(|f| f.count + self.cells.notes.len() <= most as usize);
            let notes_due = notes_due || due && fill.is_none();
            // (The last region is for moves: without them nothing would empty another.)
            let may = self.cells.moves() > 0 || self.regions.leaves_last();
            if fill.is_none() && !(notes_due && may) {
                break;
            }
            if self.regions.room(1, self.batches.next_sequence.previous(), false).is_none() {
                break;
            }
            self.form_batch(fill.unwrap_or_default(), false);
            progress = true;
        }
        progress
    }

    /// Frees the cells that can leave limbo.
    pub(crate) fn pump_cells(&mut self) -> bool {
        if self.error.is_some() || !self.io.geometry.has_slots() {
            return false;
        }
        let mut progress = false;
        while let Some(limbo) = self.cells.limbo.front() {
            if limbo.sequence > self.commit.durable_batch() {
                break;
            }
            let Limbo { cell, unmapped, .. } =
                self.cells.limbo.pop_front().expect("the list is not empty");
            match unmapped {
                // It is free when its owner has heard of that: until then the index may lead readers there.
                Some(key) => {
                    let position = self.cells.position(cell);
                    self.io.tell(Event::Unmapped { key, position });
                    self.cells.hurry = false;
                }
                None => self.cells.free.push_back(cell),
            }
            progress = true;
        }
        if self.cells.is_short() && !self.cells.notes.is_empty() && !self.cells.close_notes {
            self.cells.close_notes = true;
            progress = true;
        }
        self.io.stats.cells_free = self.cells.free.len() as u32;
        progress
    }

    /// Nothing will be written any more: waiting moves fail.
    pub(crate) fn fail_notes(&mut self, error: IoError) {
        self.cells.moves = 0;
        for note in self.cells.notes.drain(..) {
            let Some(Mapping { ticket, key, position, .. }) = note.moved else { continue };
            let (from, region, result) = (0, 0, Err(error));
            self.io.tell(Event::Moved { ticket, key, position, from, region, result });
        }
    }
}
