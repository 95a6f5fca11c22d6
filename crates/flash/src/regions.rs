//! Regions: a ring filled in order and reclaimed in the same order.
//!
//! Region sequence `s` lies in region number `s mod regions`. In order of sequence:
//!
//! ```text
//! tail ........... freed ...... released ...... reclaiming ...... head
//!   | being forgotten |  given back  |  cache is asked |    sealed    | open (or the next to open)
//! ```
//!
//! The tail is the oldest region that may not be written; the regions before it are free. A region
//! is freed when the superblock that says so is durable. This superblock is written only when every
//! record that supersedes something in the released regions is durable, too. The tail follows when
//! the cache has forgotten the region's records: until then the cache's index may lead readers
//! there.

use core::ops::{Range, RangeInclusive};

use crate::commit::{Commit, SuperblockWriter};
use crate::events::Event;
use crate::geometry::Geometry;
use crate::identity::TierId;
use crate::io::Io;
use crate::key::{BlockKey, Position, RegionIndex};
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::Options;

/// The state of a region in use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    pub sequence: RegionSequence,
    /// Sequence of its first batch.
    pub first_batch: BatchSequence,
    /// Sequence of its last batch, once sealed.
    pub last_batch: BatchSequence,
    /// The checksum from which the seeds of its payloads are continued.
    pub seed: u32,
    /// Whether the cache has released the region.
    pub released: bool,
}

/// The ring of regions.
pub(crate) struct Regions {
    all: Vec<Region>,
    region_pages: u32,
    /// Pages of a region before its directory.
    usable_pages: u32,
    first_page: u32,
    /// Number of regions that must be free or about to become free.
    reserve: u64,
    reclaims_max: u64,
    /// Oldest region that is not free.
    pub tail: RegionSequence,
    /// Oldest region that counts according to the durable superblock.
    freed: RegionSequence,
    /// The tail that the next superblock must have.
    pub tail_wanted: RegionSequence,
    released: RegionSequence,
    reclaiming: RegionSequence,
    pub head: RegionSequence,
    /// Whether `head` is being filled.
    open: bool,
    /// Next free page of the open region.
    next_page: u32,
    /// Whether the cache has requested that a region be reclaimed.
    asked: bool,
    /// Batches up to this one must be durable before the tail moves.
    release_batch: BatchSequence,
    /// The region whose directory is being written.
    pub directory_under_way: Option<RegionSequence>,
    /// Batches up to this one are worth a sync: their regions are full and their directories
    /// written (in the slots layout: there are enough of them).
    pub checkpoint: BatchSequence,
    /// Whether the last free region is kept for batches of moved mappings, as in the slots layout.
    keeps_last: bool,
    /// Log layout: free regions kept for records carried from a region being reclaimed.
    kept: u32,
    /// Pages left unwritten at the end of sealed regions.
    pages_skipped: u64,
}

/// The checksum from which the seeds of a region's payloads are continued.
pub(crate) fn region_seed(uuid: TierId, sequence: RegionSequence, epoch: u64) -> u32 {
    let crc = crc32c::crc32c(uuid.bytes());
    let crc = crc32c::crc32c_append(crc, &sequence.0.to_le_bytes());
    crc32c::crc32c_append(crc, &epoch.to_le_bytes())
}

impl Regions {
    pub fn new(geometry: &Geometry, options: &Options) -> Regions {
        Regions {
            all: vec![Region::default(); geometry.regions as usize],
            region_pages: geometry.region_pages,
            usable_pages: geometry.usable_pages(),
            first_page: geometry.first_region_page(),
            // A target above what can be free would keep mappings moving forever.
            reserve: match geometry.slots {
                0 => {
                    let wanted =
                        options.reserve_regions.max(1).saturating_add(geometry.regions_kept());
                    u64::from(wanted.min(geometry.regions - 1))
                }
                _ => 2,
            },
            reclaims_max: u64::from(options.reclaims_max.max(1)),
            tail: RegionSequence::FIRST,
            freed: RegionSequence::FIRST,
            tail_wanted: RegionSequence::FIRST,
            released: RegionSequence::FIRST,
            reclaiming: RegionSequence::FIRST,
            head: RegionSequence::FIRST,
            open: false,
            next_page: 0,
            asked: false,
            release_batch: BatchSequence::NONE,
            directory_under_way: None,
            checkpoint: BatchSequence::NONE,
            keeps_last: geometry.has_slots(),
            kept: geometry.regions_kept(),
            pages_skipped: 0,
        }
    }

    /// Continues after a recovery that found regions `tail` to `head` (exclusive) in use.
    fn continue_at(&mut self, tail: RegionSequence, head: RegionSequence) {
        (self.tail, self.freed, self.tail_wanted) = (tail, tail, tail);
        (self.released, self.reclaiming) = (tail, tail);
        self.head = head;
    }

    /// Fills in the regions in use that the walk of a recovery has not read. `batches` reaches from
    /// the first batch of the tail region to the last batch of the log.
    pub fn add_unread(
        &mut self,
        regions: Range<RegionSequence>,
        batches: RangeInclusive<BatchSequence>,
    ) {
        let Range { start: tail, end: head } = regions;
        let (tail_batch, end) = batches.into_inner();
        self.continue_at(tail, head);
        let mut first_batch = end.next();
        for sequence in tail.until(head).rev() {
            let region = self.place_mut(sequence);
            if region.sequence != sequence || region.first_batch == BatchSequence::NONE {
                *region = Region { sequence, first_batch, ..Region::default() };
            }
            region.last_batch = end;
            first_batch = region.first_batch;
        }
        if head > tail {
            self.place_mut(tail).first_batch = tail_batch;
        }
    }

    /// The newest batch, up to `complete`, that can be in the region. No record there (in the slots
    /// layout: no record whose mapping is there) belongs to a later batch.
    pub fn newest_batch(&self, region: RegionIndex, complete: BatchSequence) -> BatchSequence {
        let next = self.all[region.index()].sequence.next();
        match next < self.end() {
            // (The last batches of the region may have failed, and the log with them.)
            true => {
                let next = self.place(next);
                complete.min(next.first_batch.checked_previous().unwrap_or_default())
            }
            false => complete,
        }
    }

    /// The region number of a sequence.
    pub fn number(&self, sequence: RegionSequence) -> RegionIndex {
        sequence.region(self.all.len() as u32)
    }

    /// The state of the region that this sequence maps to; it may hold another sequence.
    pub fn place(&self, sequence: RegionSequence) -> &Region {
        &self.all[self.number(sequence).index()]
    }

    pub fn place_mut(&mut self, sequence: RegionSequence) -> &mut Region {
        let number = self.number(sequence);
        &mut self.all[number.index()]
    }

    /// The first region that is not in use.
    pub fn end(&self) -> RegionSequence {
        self.head + u64::from(self.open)
    }

    /// Regions in use, including the open one.
    fn used(&self) -> u64 {
        self.end() - self.tail
    }

    /// Regions free for use.
    pub fn free(&self) -> u32 {
        (self.all.len() as u64).saturating_sub(self.used()) as u32
    }

    /// Pages that batches without payload can still take before another region is released.
    pub fn pages_left(&self) -> u64 {
        let left = if self.open { self.usable_pages - self.next_page } else { 0 };
        u64::from(left) + u64::from(self.free()) * u64::from(self.usable_pages - 1)
    }

    /// Pages of released regions that are not free yet.
    pub fn pages_coming(&self) -> u64 {
        (self.released - self.tail) * u64::from(self.usable_pages - 1)
    }

    /// Pages that the next batch may have if it needs no more than `needed`: the rest of the open
    /// region, or a new one. Seals the open region if it has no room for `needed`. A `carried`
    /// batch may use the region that is reserved for it.
    pub fn room(&mut self, needed: u32, last_batch: BatchSequence, carried: bool) -> Option<u32> {
        let kept = if carried { 0 } else { self.kept };
        if self.open {
            let left = self.usable_pages - self.next_page;
            if left >= needed {
                return (self.free() >= kept).then_some(left);
            }
            self.seal(last_batch);
        }
        // (A region is not opened while the directory of the region two before it is in flight.)
        let waits = self.directory_under_way.is_some_and(|region| region + 2 <= self.head);
        if self.free() <= kept || waits { None } else { Some(self.usable_pages - 1) }
    }

    /// Whether there is room for a batch of `needed` pages that is not carried.
    pub fn has_room(&self, needed: u32) -> bool {
        let open = self.open && self.usable_pages - self.next_page >= needed;
        self.free() >= self.kept + u32::from(!open)
    }

    /// Pages left, without the region that is reserved for batches without payload.
    pub fn pages_to_spare(&self) -> u64 {
        let kept = if self.keeps_last { u64::from(self.usable_pages - 1) } else { 0 };
        self.pages_left().saturating_sub(kept)
    }

    /// Whether the last free region stays free if a batch of one more page is written.
    pub fn leaves_last(&self) -> bool {
        let opens = !self.open || self.next_page >= self.usable_pages;
        !self.keeps_last || self.free() > u32::from(opens)
    }

    /// Takes the pages of batch `sequence`, and opens a region if none is open. Returns the
    /// region's sequence, the first page of the write, and whether the write begins with the region
    /// header.
    pub fn take(
        &mut self,
        pages: u32,
        sequence: BatchSequence,
        uuid: TierId,
        epoch: u64,
    ) -> (RegionSequence, u32, bool) {
        let opens = !self.open;
        let number = self.number(self.head);
        if opens {
            assert!(self.free() > 0, "a region is opened only when one is free");
            *self.place_mut(self.head) = Region {
                sequence: self.head,
                first_batch: sequence,
                last_batch: BatchSequence::NONE,
                seed: region_seed(uuid, self.head, epoch),
                released: false,
            };
            self.open = true;
            self.next_page = 0;
        }
        let page = self.first_page + number.0 * self.region_pages + self.next_page;
        self.next_page += pages + u32::from(opens);
        (self.head, page, opens)
    }

    /// Ends the open region.
    fn seal(&mut self, last_batch: BatchSequence) {
        self.place_mut(self.head).last_batch = last_batch;
        self.pages_skipped += u64::from(self.usable_pages - self.next_page);
        self.open = false;
        self.head = self.head.next();
    }

    /// The cache requests that the oldest region be reclaimed.
    pub fn ask(&mut self) {
        self.asked |= self.reclaiming == self.released && self.used() > 0;
    }

    /// Releases a region for the cache. The records that supersede its records are in batches up to
    /// `complete`.
    pub fn release(&mut self, region: RegionIndex, complete: BatchSequence) {
        let sequence = self.all[region.index()].sequence;
        let asked_for = (self.released..self.reclaiming).contains(&sequence)
            && self.number(sequence) == region
            && !self.all[region.index()].released;
        assert!(asked_for, "region {region} is not being reclaimed");
        self.all[region.index()].released = true;
        self.release_batch = complete;
        while self.released < self.reclaiming && self.place(self.released).released {
            self.released = self.released.next();
        }
    }

    /// Notes that the cache has forgotten the region, which must be the oldest freed one.
    pub fn forget(&mut self, region: RegionIndex) {
        let oldest = self.tail < self.freed && self.number(self.tail) == region;
        assert!(oldest, "region {region} is not the oldest freed region");
        self.tail = self.tail.next();
    }

    /// Frees the regions before this tail, now that a superblock with this tail is durable.
    pub fn free_until(&mut self, tail: RegionSequence, io: &mut Io) {
        io.stats.regions_reclaimed += tail - self.freed;
        for sequence in self.freed.until(tail) {
            io.tell(Event::RegionFreed { region: self.number(sequence) });
        }
        self.freed = tail;
    }

    /// Whether a sync would let the tail advance, or a checkpoint is due.
    pub fn wants_sync(&self, commit: &Commit) -> bool {
        commit.would_cover_batch(self.release_batch) || commit.would_cover_batch(self.checkpoint)
    }

    /// Sequence of the first batch of the region that the next superblock calls the tail.
    pub fn tail_batch(&self, next_batch: BatchSequence) -> BatchSequence {
        if self.tail_wanted < self.end() {
            self.place(self.tail_wanted).first_batch
        } else {
            next_batch
        }
    }

    pub fn payload_seed(&self, region: RegionIndex, key: BlockKey, position: Position) -> u32 {
        let mut name = [0; 12];
        name[..8].copy_from_slice(&key.0.to_le_bytes());
        name[8..].copy_from_slice(&position.0.to_le_bytes());
        crc32c::crc32c_append(self.all[region.index()].seed, &name)
    }

    /// The next region to request from the cache, if one is needed and may be requested.
    fn next_reclaim(&mut self, complete: BatchSequence, wanted: bool) -> Option<RegionIndex> {
        let outstanding = self.reclaiming - self.released;
        let coming = u64::from(self.free()) + (self.reclaiming - self.tail);
        let short = wanted && coming < self.reserve;
        if outstanding >= self.reclaims_max || !(short || self.asked) {
            return None;
        }
        if self.reclaiming == self.head {
            let alone = self.asked && self.open && outstanding == 0;
            if !alone || self.place(self.head).first_batch > complete {
                return None;
            }
            self.seal(complete);
        }
        let number = self.number(self.reclaiming);
        if self.place(self.reclaiming).last_batch > complete {
            return None;
        }
        self.asked = false;
        self.reclaiming = self.reclaiming.next();
        Some(number)
    }

    /// Requests regions when few are free, and moves the tail past released regions. `wanted`:
    /// something will be written; `idle`: no batch is in flight.
    pub fn pump(
        &mut self,
        wanted: bool,
        idle: bool,
        commit: &Commit,
        superblock: &mut SuperblockWriter,
        io: &mut Io,
    ) -> bool {
        let mut progress = false;
        if idle || !self.only_open() {
            while let Some(region) = self.next_reclaim(commit.complete_batch(), wanted) {
                io.tell(Event::Reclaim { region });
                progress = true;
            }
        }
        let early = io.sabotage.is(Bug::RegionReusedEarly);
        let superseded = early || commit.durable_batch() >= self.release_batch;
        if self.released > self.tail_wanted && superseded {
            self.tail_wanted = self.released;
            superblock.touch();
            progress = true;
        }
        io.stats.pages_skipped = self.pages_skipped;
        progress
    }

    /// Whether the only remaining region to request is the open one.
    fn only_open(&self) -> bool {
        self.reclaiming == self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_free_region_is_kept_for_what_has_no_payload() {
        let geometry = Geometry {
            block_size: 4096,
            page_size: 4096,
            region_pages: 10,
            regions: 4,
            slots: 16,
            directory_pages: 0,
            superblock_pages: 1,
            extent_bytes: 4 * 4096,
            batch_pages_max: 5,
            batch_entries_max: 4,
            inflight_batches_max: 2,
            active_extents_max: 2,
        };
        let mut regions = Regions::new(&geometry, &Options::default());
        // Each batch leaves one page of its region unused.
        for sequence in (1..=3).map(BatchSequence) {
            assert!(regions.leaves_last(), "batch {sequence}");
            assert!(regions.room(8, sequence.previous(), false).is_some());
            regions.take(8, sequence, TierId::new([1; 16]), 1);
        }
        assert_eq!(regions.free(), 1);
        assert!(regions.leaves_last(), "the open region still has one page free");
        regions.take(1, BatchSequence(4), TierId::new([1; 16]), 1);
        assert!(!regions.leaves_last(), "the next page would open the last region");
    }
}
