//! Layout slots: replacement on flash. A block that gives way is destaged if it is dirty, then
//! forgotten on flash; when that is durable its cell is free. What forgets it need not be waited
//! for by anybody but the next block that wants the cell.

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Mapping, Position};

use super::clean::volume_bit;
use super::transfer::Kind;
use super::{Shard, ShardContext};
use crate::flash_replacement::{FlashReplacement, Residence};
use crate::index::{EntryId, LEAVING, NONE, UNREADABLE};

/// Mappings of a region that is reclaimed, on their way.
#[derive(Debug)]
pub(crate) struct Moves {
    region: u32,
    in_flight: u32,
    failed: bool,
}

/// How they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveState {
    Busy,
    /// Some were handed to the log just now.
    More,
    Done,
    /// The log takes no more.
    Failed,
}

impl Shard {
    /// The block's state has changed: it stands where that puts it. `anew` if it is to stay even
    /// though it had given way.
    pub(super) fn update_residence(&mut self, id: EntryId, anew: bool) {
        let Some(flash) = &mut self.flash_replacement else { return };
        let e = &self.blocks[id];
        let key = e.key();
        let on_its_way = e.frame().is_some() && e.has(LEAVING);
        let resident = e.frame().is_some() && !e.has(LEAVING);
        let record = e.position().is_some() && !flash.is_unmapping(id);
        let fails = e.flash_dirty != 0 && self.failing & volume_bit(e.key()) != 0;
        let to = if !record && !on_its_way {
            Residence::Uncounted
        } else if e.has(UNREADABLE) || fails {
            Residence::Pinned
        } else if flash.residence(id) == Residence::Leaving && !anew {
            Residence::Leaving
        } else if !resident {
            Residence::FlashOnly
        } else if e.flash_dirty == 0 {
            Residence::CleanCopy
        } else {
            Residence::DirtyCopy
        };
        flash.put(id, key, to);
    }

    /// The block is about to be in memory: it must not be what gives way to that.
    pub(super) fn forget_residence(&mut self, id: EntryId) {
        if let Some(flash) = &mut self.flash_replacement {
            flash.put(id, self.blocks[id].key(), Residence::Uncounted);
        }
    }

    /// Blocks in memory whose dirty record is kept; 0 in other layouts.
    pub fn dirty_copies(&self) -> u64 {
        self.flash_replacement.as_ref().map_or(0, |flash| u64::from(flash.dirty_copies()))
    }

    pub(super) fn is_unmapping(&self, id: EntryId) -> bool {
        self.flash_replacement.as_ref().is_some_and(|s| s.is_unmapping(id))
    }

    /// Whether flash still has the block though by the accounting it is gone.
    pub(super) fn is_past_its_time(&self, id: EntryId) -> bool {
        let gone = |residence| matches!(residence, Residence::Uncounted | Residence::Leaving);
        let e = &self.blocks[id];
        e.frame().is_none()
            && self.flash_replacement.as_ref().is_some_and(|s| gone(s.residence(id)))
    }

    /// Lets blocks give way until flash holds no more than its size.
    pub(super) fn evict_from_flash(&mut self, context: &mut ShardContext<'_>) {
        while let Some(flash) = &mut self.flash_replacement
            && flash.excess() > 0
            && let Some(id) = flash.evict()
        {
            context.stats.flash_evictions += 1;
            self.leave_flash(context, id);
        }
    }

    /// Takes the next step off flash for a block that gives way.
    pub(super) fn leave_flash(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        let Some(flash) = &mut self.flash_replacement else { return };
        let e = &self.blocks[id];
        let Some(position) = e.position() else { return };
        if flash.residence(id) != Residence::Leaving || flash.is_unmapping(id) {
            return;
        }
        // (A log that is being stopped takes no records any more, but those it has taken may
        // wait for this cell.)
        if context.log.as_deref().is_some_and(|log| log.error().is_some()) {
            return;
        }
        if e.flash_dirty != 0 {
            flash.destage_wanted = true;
            return;
        }
        let reading = |t: u32| matches!(self.transfers[t].kind, Kind::FlashRead { .. });
        if e.transfer().is_some_and(reading) {
            // It goes on when that ends.
            return;
        }
        let log = context.log.as_deref_mut().expect("a record needs a log");
        if log.unmap(e.key(), position) {
            flash.set_unmapping(id, true);
            self.update_residence(id, false);
        }
    }

    /// All who leave go on as far as they can.
    pub(super) fn leave_flash_all(&mut self, context: &mut ShardContext<'_>) {
        let Some(flash) = &self.flash_replacement else { return };
        let mut leaving = core::mem::take(&mut self.leaving_scratch);
        leaving.clear();
        leaving.extend(flash.leaving());
        for &id in &leaving {
            self.leave_flash(context, id);
        }
        self.leaving_scratch = leaving;
    }

    /// Recovery has given all records.
    pub fn flash_ready(&mut self, context: &mut ShardContext<'_>) {
        self.evict_from_flash(context);
    }

    /// Whether nothing on flash can give way: all of it is dirty and cannot be read.
    pub fn is_exhausted(&self) -> bool {
        self.failing == 0
            && self.flash_replacement.as_ref().is_some_and(FlashReplacement::is_exhausted)
    }

    /// The stores of these volumes (bits) fail: what is dirty of them does not give way.
    pub fn set_failing(&mut self, context: &mut ShardContext<'_>, volumes: u64) {
        let changed = self.failing ^ volumes;
        self.failing = volumes;
        if changed == 0 || self.flash_replacement.is_none() {
            return;
        }
        for id in 0..self.blocks.capacity() {
            let e = &self.blocks[id];
            let named = |e: &crate::index::Entry| changed & volume_bit(e.key()) != 0;
            if !e.is_vacant() && e.flash_dirty != 0 && named(e) {
                self.update_residence(id, true);
            }
        }
        self.evict_from_flash(context);
    }

    /// Whether the cleaner should bring the coldest blocks to their backing stores.
    pub fn owes_cleaning(&self) -> bool {
        self.flash_replacement.as_ref().is_some_and(|s| s.destage_wanted)
    }

    /// A record is durably forgotten.
    pub fn unmapped(&mut self, context: &mut ShardContext<'_>, key: BlockKey, position: Position) {
        let Some(id) = self.blocks.find(key) else { return };
        if self.blocks[id].position() == Some(position) && self.is_unmapping(id) {
            self.set_record(context, id, None);
            self.forget_if_empty(id);
        }
    }

    /// The record is no good any more, from now on: its cell is to be free when that is durable.
    pub(super) fn disown(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        let Some(flash) = &mut self.flash_replacement else { return };
        if !flash.is_unmapping(id) {
            let e = &self.blocks[id];
            let position = e.position().expect("a record to disown");
            let log = context.log.as_deref_mut().expect("a record needs a log");
            let taken = log.unmap(e.key(), position);
            assert!(taken, "a block being appended has another transfer");
            flash.set_unmapping(id, true);
        }
    }

    /// The cleaning is over: cells that were kept for it are free.
    pub(super) fn release_held(&mut self, context: &mut ShardContext<'_>) {
        self.cleaning = false;
        for position in self.held.drain(..) {
            context.log.as_deref_mut().expect("a record needs a log").release_cell(position);
        }
    }

    // ---- moves ----

    /// Number of mappings in a region.
    pub fn region_entries(&self, region: u32) -> u64 {
        self.region_entries_of(region).count() as u64
    }

    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, context: &mut ShardContext<'_>, region: u32) {
        self.moves = Some(Moves { region, in_flight: 0, failed: false });
        self.move_some(context);
    }

    /// Hands to the log what it takes; false if some must wait for a newer record.
    fn move_some(&mut self, context: &mut ShardContext<'_>) -> bool {
        let Some(mut moves) = self.moves.take() else { return true };
        let log = context.log.as_deref_mut().expect("a region needs a log");
        let mut all = true;
        let mut id = self.regions[moves.region as usize];
        if context.front.sabotage.is(Bug::MappingLeftBehind) && id != NONE {
            id = self.blocks[id].next;
        }
        while id != NONE {
            let e = &self.blocks[id];
            let next = e.next;
            if !self.flash_replacement.as_ref().is_some_and(|s| s.is_unmapping(id)) {
                let mapping = Mapping {
                    ticket: u64::from(self.number),
                    key: e.key(),
                    position: e.position().expect("an entry of a region has a record"),
                    valid: e.flash_valid,
                    dirty: e.flash_dirty,
                    checksum: e.checksum,
                };
                let taken = log.remap(mapping);
                all &= taken;
                moves.in_flight += u32::from(taken);
            }
            id = next;
        }
        self.moves = Some(moves);
        all
    }

    /// Pushes the moves on.
    pub fn move_step(&mut self, context: &mut ShardContext<'_>) -> MoveState {
        let Some(moves) = &self.moves else { return MoveState::Done };
        if moves.in_flight > 0 {
            return MoveState::Busy;
        }
        if moves.failed {
            self.moves = None;
            return MoveState::Failed;
        }
        let left = |s: &Self, region: u32| {
            let mut id = s.regions[region as usize];
            while id != NONE && s.is_unmapping(id) {
                id = s.blocks[id].next;
            }
            id != NONE
        };
        let careless = context.front.sabotage.is(Bug::MappingLeftBehind);
        if careless || !left(self, moves.region) {
            self.moves = None;
            return MoveState::Done;
        }
        // A newer record was being written when the others moved.
        self.move_some(context);
        let moves = self.moves.as_ref().expect("put back");
        if moves.in_flight > 0 { MoveState::More } else { MoveState::Busy }
    }

    /// A mapping stands in another region.
    pub fn moved(&mut self, key: BlockKey, position: Position, (from, to): (u32, u32), good: bool) {
        if let Some(moves) = &mut self.moves {
            moves.in_flight -= 1;
            moves.failed |= !good;
        }
        let here = self.blocks.find_at(key, position);
        if let (true, Some(id)) = (good, here) {
            self.unlist(id, from);
            self.list(id, to);
            let dirty = u32::from(self.blocks[id].flash_dirty != 0);
            self.regions_dirty[from as usize] -= dirty;
            self.regions_dirty[to as usize] += dirty;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, around};
    use crate::config::{CacheConfig, FlashConfig, VolumeConfig};
    use forebay_flash::Geometry;

    #[test]
    fn only_the_answer_to_its_own_unmapping_forgets_a_record() {
        // Method: a record is being forgotten that took the place of another. The answer for that
        // one comes late, and must not count for this: it is not durable yet that this is gone.
        let bytes = 64 << 20;
        let geometry = Geometry::for_device(bytes, 4096).and_then(|g| g.in_slots(bytes, None));
        let geometry = geometry.expect("a device of that size");
        let flash = FlashConfig {
            geometry,
            entries_max: 8,
            blocks: 4,
            regions_reserved: 1,
            recovery_chunk_pages: 1,
        };
        let config = CacheConfig { flash: Some(flash), ..CacheConfig::dram_only(2) };
        let mut cache = Cache::new(config);
        cache.attach(VolumeConfig { size_bytes: 1 << 20, read_only: false });
        let first = geometry.first_cell_page() as u32;
        let (key, older, newer) = (BlockKey::new(0, 3), Position(first), Position(first + 1));
        let shard = &mut cache.shards[0];
        shard.recovered(&mut around!(cache), key, newer, 0, (1, 0));
        let id = shard.blocks.find(key).expect("it has just been found");
        shard.flash_replacement.as_mut().expect("the layout slots").set_unmapping(id, true);
        shard.unmapped(&mut around!(cache), key, older);
        assert_eq!(shard.blocks[id].position(), Some(newer));
        shard.unmapped(&mut around!(cache), key, newer);
        assert_eq!(shard.blocks.find(key), None);
    }
}
