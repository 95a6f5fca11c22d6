//! Places records: takes them from the queue into batches, and places these in regions and cells.

use crate::batches::{Batches, Fill, Queue};
use crate::cells::Cells;
use crate::commit::{Commit, SuperblockWriter};
use crate::directory::Directories;
use crate::geometry::Geometry;
use crate::io::Io;
use crate::key::{BlockKey, Position, RegionIndex};
use crate::regions::Regions;
use crate::types::Options;
use forebay_effect::IoError;

/// The parts that every step of placing records needs together: a batch takes records from the
/// queue, pages of a region, and cells, so all four parts decide whether one is formed. Each part
/// keeps its own state and rules. This type only combines them.
pub(crate) struct Placement {
    pub queue: Queue,
    pub batches: Batches,
    pub regions: Regions,
    pub cells: Cells,
}

impl Placement {
    /// An empty log, for up to `queue_max` waiting appends.
    pub fn new(geometry: &Geometry, options: &Options, queue_max: usize) -> Placement {
        Placement {
            queue: Queue::new(queue_max),
            batches: Batches::new(geometry),
            regions: Regions::new(geometry, options),
            cells: Cells::new(geometry),
        }
    }

    /// Forms batches while one is due and there is room. `stops`: these are the last ones.
    pub fn pump(
        &mut self,
        stops: bool,
        commit: &Commit,
        superblock: &mut SuperblockWriter,
        io: &mut Io,
    ) -> bool {
        let mut progress = false;
        while self.batches.has_free() {
            let next = match io.geometry.has_slots() {
                true => self.next_with_cells(io),
                false => self.next(stops, io),
            };
            match next {
                Next::Nothing => break,
                Next::Refused => {}
                Next::Batch { fill, carried } => self.form(fill, carried, commit, superblock, io),
            }
            progress = true;
        }
        progress
    }

    /// Log layout: what goes into the next batch.
    fn next(&mut self, stops: bool, io: &mut Io) -> Next {
        let carried = self.queue.front_carried();
        let Some(front) = carried.or(self.queue.front()) else { return Next::Nothing };
        let carried = carried.is_some();
        let needed = 1 + io.geometry.payload_pages(front.valid);
        if front.spare && !self.regions.has_room(needed) {
            self.queue.refuse_spare(io);
            return Next::Refused;
        }
        // (At the end of a stop no more records are carried.)
        let last_room = stops || carried && !front.spare;
        let last = self.batches.last_sequence();
        let Some(room) = self.regions.room(needed, last, last_room) else { return Next::Nothing };
        let (fill, due) = if carried {
            let fill = self.queue.measure_carried(room, &io.geometry);
            (fill, fill.full || self.queue.carried_is_closed())
        } else {
            let fill = self.queue.measure(room, 0, &io.geometry);
            let waited_for = self.queue.close_through >= front.serial;
            (fill, fill.full || waited_for && self.batches.is_idle())
        };
        if due { Next::Batch { fill, carried } } else { Next::Nothing }
    }

    /// Slots layout: what goes into the next batch: one page, and cells if it has records.
    fn next_with_cells(&mut self, io: &Io) -> Next {
        let idle = self.batches.is_idle();
        let (mut fill, mut due) = (None, false);
        let spare = self.cells.spare_a_page(&self.regions, io);
        if let Some(front) = self.queue.front()
            && self.regions.leaves_last()
            && (spare || self.cells.needs(1) == 0)
        {
            // Any room will do here: payloads take none in the region.
            let room = io.geometry.batch_pages_max;
            let f = self.queue.measure(room, self.cells.free(), &io.geometry);
            let waited_for = self.queue.close_through >= front.serial;
            due = f.count > 0 && (f.full || waited_for && idle);
            fill = due.then_some(f);
        }
        let most = io.geometry.batch_entries_max;
        let spare = spare && self.regions.leaves_last();
        let notes_due = self.cells.notes_due(idle, most, spare);
        // All waiting notes come before any record: one may unmap the former record of that
        // record's block.
        let fill = fill.filter(|f| f.count + self.cells.notes() <= most as usize);
        let notes_due = notes_due || due && fill.is_none();
        // (The last region is for moves: without them no other region could be emptied.)
        let may = self.cells.moves() > 0 || self.regions.leaves_last();
        if fill.is_none() && !(notes_due && may) {
            return Next::Nothing;
        }
        if self.regions.room(1, self.batches.last_sequence(), false).is_none() {
            return Next::Nothing;
        }
        Next::Batch { fill: fill.unwrap_or_default(), carried: false }
    }

    /// Takes the measured front of the queue, or of the carried records, into a batch and requests
    /// its checksums.
    fn form(
        &mut self,
        fill: Fill,
        carried: bool,
        commit: &Commit,
        superblock: &mut SuperblockWriter,
        io: &mut Io,
    ) {
        let mut forming = self.batches.begin(fill, carried, &mut self.regions, io);
        forming.take_notes(fill.count, &mut self.cells, io);
        for _ in 0..fill.count {
            forming.take_record(&mut self.queue, &self.regions, &mut self.cells, io);
        }
        if carried {
            self.queue.carried_taken();
        }
        self.queue.taken(forming.last_serial(), forming.sequence(), superblock);
        if let Some(index) = self.batches.formed(forming) {
            self.batches.write(index, &self.cells, commit, superblock, io);
        }
    }

    /// Answers the owners of batches that are complete together with all before them.
    pub fn resolve(&mut self, directories: &mut Directories, commit: &mut Commit, io: &mut Io) {
        while let Some(batch) = self.batches.resolve_next(&self.regions, &mut self.cells, io) {
            if batch.error.is_none() {
                commit.complete(batch.last_serial, batch.sequence);
                let entries = self.batches.entries(batch.index);
                directories.list(&batch, entries, &mut self.regions, commit, io);
            }
        }
    }

    /// Places nothing from now on; batches in flight fail when they end.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        self.batches.fail(error);
        self.queue.fail(error, io);
        self.cells.fail(error, io);
    }

    /// Whether the oldest append waits because there is no room.
    pub fn is_out_of_room(&self, geometry: &Geometry) -> bool {
        let Some(front) = self.queue.front() else { return false };
        if geometry.has_slots() {
            return self.cells.free() == 0 || !self.regions.leaves_last();
        }
        !self.regions.has_room(1 + geometry.payload_pages(front.valid))
    }

    /// Whether a new record may have to wait until another one leaves.
    pub fn is_short(&self, geometry: &Geometry) -> bool {
        if geometry.has_slots() {
            return self.cells.free() <= self.queue.len() || !self.regions.leaves_last();
        }
        !self.regions.has_room(geometry.batch_pages_max)
    }

    /// The number of the position's region; in the slots layout, of the region with its mapping.
    pub fn region_of(&self, position: Position, geometry: &Geometry) -> RegionIndex {
        if geometry.has_slots() {
            return self.cells.home(position);
        }
        RegionIndex((position.0 - geometry.first_region_page()) / geometry.region_pages)
    }

    /// The start value of a payload's checksum.
    pub fn payload_seed(&self, key: BlockKey, position: Position, geometry: &Geometry) -> u32 {
        if geometry.has_slots() {
            return self.cells.payload_seed(key, position);
        }
        self.regions.payload_seed(self.region_of(position, geometry), key, position)
    }
}

/// The next step that the waiting appends allow.
#[must_use]
enum Next {
    /// No batch can be formed now.
    Nothing,
    /// A batch can be formed.
    Batch { fill: Fill, carried: bool },
    /// No batch can be formed, but records that could not be placed were refused: try again.
    Refused,
}
