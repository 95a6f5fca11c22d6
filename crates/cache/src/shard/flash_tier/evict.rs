//! Slots layout: the blocks that count for flash, and the steps of an eviction. An evicted block is
//! destaged if it is dirty, then forgotten on flash; when that is durable, its cell is free. Only
//! the next block that needs the cell waits for that.

use super::FlashTier;
use super::replacement::{FlashReplacement, Residence};
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::entry::{EntryId, UNREADABLE};
use crate::shard::transfer::TransferKind;
use crate::shard::transfers::Transfers;
use crate::slab::{Key, TransferIndex};
use crate::volume_set::VolumeSet;
use forebay_flash::BlockKey;

/// What becomes of a block that was evicted from flash, when its state changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IfEvicted {
    /// It still leaves flash.
    Leaves,
    /// It stays on flash, and counts again.
    Stays,
}

impl FlashTier {
    // ---- which blocks count, and which are evicted ----

    /// The block's state has changed: updates its accounting.
    #[inline]
    pub fn update_residence(&mut self, blocks: &Blocks, id: EntryId, evicted: IfEvicted) {
        let Some(flash) = &mut self.replacement else { return };
        let e = &blocks[id];
        // With queues, a block counts as being on flash only once its record is there.
        let on_its_way = e.frame().is_some() && e.is_leaving() && self.queues.is_none();
        let resident = e.frame().is_some() && !e.is_leaving();
        let record = e.position().is_some() && !flash.is_unmapping(id);
        let pinned = e.flash_dirty() != 0 && self.pinned.has(e.key());
        let to = if !record && !on_its_way {
            Residence::Uncounted
        } else if e.has(UNREADABLE) || pinned {
            Residence::Pinned
        } else if flash.residence(id) == Residence::Leaving && evicted == IfEvicted::Leaves {
            Residence::Leaving
        } else if !resident {
            Residence::FlashOnly
        } else if e.flash_dirty() == 0 {
            Residence::CleanCopy
        } else {
            Residence::DirtyCopy
        };
        flash.put(id, e.key(), to);
    }

    /// The block is about to enter memory: it must not be evicted to make room for that.
    #[inline]
    pub fn set_aside(&mut self, blocks: &Blocks, id: EntryId) {
        if let Some(flash) = &mut self.replacement {
            flash.put(id, blocks[id].key(), Residence::Uncounted);
        }
    }

    /// A block enters memory that neither tier held.
    pub fn note_miss(&mut self, key: BlockKey) {
        if let Some(flash) = &mut self.replacement {
            flash.note_miss(key);
        }
    }

    /// A client's write replaces the record of a block that only flash holds.
    pub fn note_write(&mut self, blocks: &Blocks, id: EntryId) {
        let alone = blocks[id].position().is_some() && blocks[id].is_leaving();
        if alone && self.has_given_way(id) {
            self.update_residence(blocks, id, IfEvicted::Stays);
        } else if alone && let Some(flash) = &mut self.replacement {
            flash.on_access(id);
        }
    }

    /// Blocks in memory whose dirty record is kept; 0 in other layouts.
    pub fn dirty_copies(&self) -> u64 {
        self.replacement.as_ref().map_or(0, |flash| u64::from(flash.dirty_copies()))
    }

    /// Whether the record is the next clean copy to be evicted.
    pub fn is_next_copy(&self, id: EntryId) -> bool {
        self.replacement.as_ref().is_some_and(|flash| flash.is_next_copy(id))
    }

    /// The most steps that the policy has taken in one eviction; 0 in other layouts.
    pub fn eviction_steps_most(&self) -> u64 {
        self.replacement.as_ref().map_or(0, FlashReplacement::eviction_steps_most)
    }

    /// Whether dirty records of blocks in memory are evicted before blocks that only flash holds.
    pub fn gives_copies_up(&self) -> bool {
        self.replacement.as_ref().is_some_and(FlashReplacement::gives_copies_up)
    }

    /// Whether the block's record is being forgotten on flash.
    #[inline]
    pub fn is_unmapping(&self, id: EntryId) -> bool {
        self.replacement.as_ref().is_some_and(|s| s.is_unmapping(id))
    }

    /// Whether the block was evicted from flash, even if it is still there or in transit to it.
    pub fn has_given_way(&self, id: EntryId) -> bool {
        self.replacement.as_ref().is_some_and(|s| s.residence(id) == Residence::Leaving)
    }

    /// Whether flash still holds a block that is gone in the accounting.
    #[inline]
    pub fn is_held_after_eviction(&self, blocks: &Blocks, id: EntryId) -> bool {
        let gone = |residence| matches!(residence, Residence::Uncounted | Residence::Leaving);
        blocks[id].frame().is_none()
            && self.replacement.as_ref().is_some_and(|s| gone(s.residence(id)))
    }

    /// Whether nothing on flash can be evicted: all of it is dirty and unreadable.
    pub fn is_exhausted(&self) -> bool {
        self.pinned.is_empty()
            && self.replacement.as_ref().is_some_and(FlashReplacement::is_exhausted)
    }

    /// Whether the cleaner should destage the coldest blocks.
    pub fn wants_destage(&self) -> bool {
        self.replacement.as_ref().is_some_and(|s| s.destage_wanted)
    }

    /// The blocks being evicted from flash, and the next ones to be evicted: a cleaning destages
    /// the dirty ones.
    pub fn take_coldest(&mut self) -> impl Iterator<Item = EntryId> {
        if let Some(flash) = &mut self.replacement {
            flash.destage_wanted = false;
        }
        let flash = self.replacement.as_ref();
        flash.into_iter().flat_map(|flash| flash.leaving().chain(flash.coldest()))
    }

    /// Evicts blocks until flash holds no more than its size.
    #[inline]
    pub fn evict(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
    ) {
        while let Some(flash) = &mut self.replacement
            && flash.excess() > 0
            && let Some((id, from)) = flash.evict(|id| blocks[id].transfer().is_none())
        {
            context.stats.flash_evictions += 1;
            match from {
                Residence::FlashOnly => flash.note_victim(blocks[id].key()),
                Residence::DirtyCopy => context.stats.copies_given_up += 1,
                _ => {}
            }
            self.leave(blocks, transfers, context, id);
        }
    }

    /// Blocks that flash has room for, by the accounting; blocks being evicted still count.
    pub fn room(&self) -> u32 {
        self.replacement.as_ref().map_or(0, FlashReplacement::room)
    }

    /// Evicts this block, whatever the replacement policy would choose; false if that is not
    /// possible now.
    pub fn send_off(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) -> bool {
        let free = blocks[id].transfer().is_none();
        let Some(flash) = self.replacement.as_mut().filter(|_| free) else { return false };
        if !flash.send_off(id) {
            return false;
        }
        context.stats.flash_evictions += 1;
        self.leave(blocks, transfers, context, id);
        true
    }

    /// With queues: the next block that was to leave flash stays if it was used meanwhile, or if its store failed.
    pub fn review_leaving(&mut self, blocks: &Blocks) {
        let Some(queues) = &mut self.queues else { return };
        let Some(key) = queues.next_leaving() else { return };
        let leaves = blocks.find(BlockKey(key)).is_some_and(|id| self.has_given_way(id));
        if !leaves && let Some(queues) = &mut self.queues {
            queues.enters_flash(key);
        }
    }

    /// Takes the next step of the eviction of a block from flash.
    fn leave(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) {
        let Some(flash) = &mut self.replacement else { return };
        let e = &blocks[id];
        let Some(position) = e.position() else { return };
        if flash.residence(id) != Residence::Leaving || flash.is_unmapping(id) {
            return;
        }
        // A log that is being stopped accepts no records, but records that it has accepted may wait for this cell.
        if context.log.as_deref().is_some_and(|log| log.error().is_some()) {
            return;
        }
        if e.flash_dirty() != 0 {
            flash.destage_wanted = true;
            return;
        }
        let reading =
            |t: TransferIndex| matches!(transfers[t].kind, TransferKind::FlashRead { .. });
        if e.transfer().is_some_and(reading) {
            // It continues when that transfer ends.
            return;
        }
        let log = context.log.as_deref_mut().expect("a record needs a log");
        if log.unmap(e.key(), position) {
            flash.set_unmapping(id, true);
            self.update_residence(blocks, id, IfEvicted::Leaves);
        }
    }

    /// All leaving blocks continue as far as they can.
    pub fn leave_all(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
    ) {
        let Some(flash) = &self.replacement else { return };
        let mut leaving = core::mem::take(&mut self.leaving_scratch);
        leaving.clear();
        leaving.extend(flash.leaving());
        for &id in &leaving {
            self.leave(blocks, transfers, context, id);
        }
        self.leaving_scratch = leaving;
    }

    /// A transfer of the block has ended: updates its accounting on flash, and the room that it may
    /// have taken there.
    #[inline]
    pub fn transfer_ended(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
        key: BlockKey,
    ) {
        if self.replacement.is_none() {
            return;
        }
        if let Some(id) = blocks.find(key) {
            self.leave(blocks, transfers, context, id);
        }
        self.evict(blocks, transfers, context);
    }

    /// Whether the dirty records of exactly these volumes are not evicted.
    pub fn pins(&self, volumes: VolumeSet) -> bool {
        self.pinned == volumes
    }

    /// Dirty records of these volumes are not evicted. `Stores` says so whenever the volumes that are left out
    /// have changed, before anything else looks at them.
    pub fn pin(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
        pinned: VolumeSet,
    ) {
        let changed = core::mem::replace(&mut self.pinned, pinned) ^ pinned;
        if changed.is_empty() || self.replacement.is_none() {
            return;
        }
        let any = changed.iter().any(|volume| context.volumes[volume].owed > 0);
        let entries = if any { blocks.capacity() } else { 0 };
        for id in (0..entries).map(EntryId::new) {
            let e = &blocks[id];
            if !e.is_vacant() && e.flash_dirty() != 0 && changed.has(e.key()) {
                self.update_residence(blocks, id, IfEvicted::Stays);
            }
        }
        self.evict(blocks, transfers, context);
    }

    // ---- cells ----

    /// The record is no longer valid: its cell becomes free when that is durable.
    pub fn disown(&mut self, blocks: &Blocks, context: &mut ShardContext<'_>, id: EntryId) {
        let Some(flash) = &mut self.replacement else { return };
        if !flash.is_unmapping(id) {
            let e = &blocks[id];
            let position = e.position().expect("a record to disown");
            let log = context.log.as_deref_mut().expect("a record needs a log");
            let taken = log.unmap(e.key(), position);
            assert!(taken, "a block being appended has another transfer");
            flash.set_unmapping(id, true);
        }
    }

    /// A cleaning begins: superseded cells are kept for it.
    pub fn hold_cells(&mut self) {
        self.holding_cells = true;
    }

    /// The cleaning has ended: cells kept for it are free.
    pub fn release_cells(&mut self, context: &mut ShardContext<'_>) {
        self.holding_cells = false;
        for position in self.held_cells.drain(..) {
            context.log.as_deref_mut().expect("a record needs a log").release_cell(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;

    use crate::cache::Cache;
    use crate::config::{CacheConfig, FlashConfig, FlashLayout, SlotsConfig, VolumeConfig};
    use crate::shard::FlashRecord;
    use crate::shard::tiers::Tiers;
    use crate::world::shard_context;
    use forebay_flash::Geometry;
    use forebay_flash::{BlockKey, Position};
    use forebay_replacement::{Kind, Parameters};

    /// A cache whose flash is in the slots layout.
    fn in_slots(cells: Parameters) -> (Cache, Position) {
        let bytes = 64 << 20;
        let geometry = Geometry::for_device(bytes, 4096).and_then(|g| g.in_slots(bytes, None));
        let geometry = geometry.expect("a device of that size");
        let slots = SlotsConfig { blocks: 4, cells, promote_dirty_after: 1, give_up_copies: true };
        let flash = FlashConfig {
            geometry,
            layout: FlashLayout::Slots(slots),
            entries_max: 8,
            regions_reserved: 1,
            recovery_chunk_pages: 1,
            admission: crate::AdmissionParameters::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: Default::default(),
            written: Default::default(),
        };
        let config = CacheConfig { flash: Some(flash), ..CacheConfig::dram_only(2) };
        let mut cache = Cache::new(config);
        cache.attach(VolumeConfig::new(1 << 20));
        (cache, Position(geometry.first_cell_page() as u32))
    }

    #[test]
    fn an_entry_that_is_gone_leaves_nothing_in_the_order_of_the_cells() {
        let (mut cache, first) = in_slots(Parameters::new(Kind::Arc));
        let key = BlockKey::new(Volume(0), 3);
        let shard = &mut cache.world.shards[0];
        let tiers = &mut shard.tiers;
        let record = FlashRecord { position: first, checksum: 0, valid: 1, dirty: 0 };
        shard.recovery.record(tiers, &mut shard_context!(cache.world), key, record);
        let id = tiers.blocks.find(key).expect("it has just been found");
        let ordered = |tiers: &Tiers| tiers.flash.replacement.as_ref().expect("slots").ordered();
        assert_eq!(ordered(tiers), 1);
        // It comes to memory, which it leaves without a record.
        tiers.flash.set_aside(&tiers.blocks, id);
        tiers.flash.set_record(&mut tiers.blocks, &mut shard_context!(cache.world), id, None);
        assert_eq!(ordered(tiers), 1, "it may come back");
        tiers.forget_if_empty(&shard_context!(cache.world), id);
        assert_eq!((tiers.blocks.find(key), ordered(tiers)), (None, 0));
    }

    #[test]
    fn only_the_answer_to_its_own_unmapping_forgets_a_record() {
        // Method: a record is being forgotten that took the place of another. The answer for that
        // one comes late, and must not count for this: it is not durable yet that this is gone.
        let (mut cache, older) = in_slots(Parameters::default());
        let (key, newer) = (BlockKey::new(Volume(0), 3), Position(older.0 + 1));
        let shard = &mut cache.world.shards[0];
        let record = FlashRecord { position: newer, checksum: 0, valid: 1, dirty: 0 };
        shard.recovery.record(&mut shard.tiers, &mut shard_context!(cache.world), key, record);
        let id = shard.tiers.blocks.find(key).expect("it has just been found");
        shard.tiers.flash.replacement.as_mut().expect("the slots layout").set_unmapping(id, true);
        shard.unmapped(&mut shard_context!(cache.world), key, older);
        assert_eq!(shard.tiers.blocks[id].position(), Some(newer));
        shard.unmapped(&mut shard_context!(cache.world), key, newer);
        assert_eq!(shard.tiers.blocks.find(key), None);
    }
}
