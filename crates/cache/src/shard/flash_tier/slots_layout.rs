//! The slots layout: which blocks count for flash, the steps of an eviction, and the cells. An
//! evicted block is destaged if it is dirty, then forgotten on flash; when that is durable, its
//! cell is free. Only the next block that needs the cell waits for that.

use forebay_flash::{BlockKey, Log, Position, RegionIndex};
use forebay_replacement::Queues;

use super::held_cells::HeldCells;
use super::moves::{MoveState, Moves};
use super::replacement::{FlashReplacement, Residence};
use super::returns::Returns;
use crate::budget::CallBudget;
use crate::config::{CacheConfig, FlashConfig, SlotsConfig};
use crate::shard::RegionMove;
use crate::shard::blocks::Blocks;
use crate::shard::entry::EntryId;
use crate::shard::tiers::ShardSizes;
use crate::shard::transfer::TransferKind;
use crate::shard::transfers::Transfers;
use crate::slab::{Key, TransferIndex};
use crate::stats::CacheStats;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;

/// What happens to a block that was evicted from flash when its state changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IfEvicted {
    /// It still leaves flash.
    Leaves,
    /// It stays on flash, and counts again.
    Stays,
}

/// The state of the slots layout; see the module documentation.
#[derive(Debug)]
pub(super) struct SlotsLayout {
    replacement: FlashReplacement,
    /// The queues that decide which blocks enter and leave, if accesses alone do not.
    queues: Option<Box<Queues>>,
    /// As `FlashTier::promote_after`, for dirty records while dirty copies cost hits.
    promote_dirty_after: u8,
    /// Volumes whose dirty records are not evicted: a copy of `StoreConditions::left_out`, with
    /// which [`SlotsLayout::pin`] keeps the lists of the replacement in step.
    pinned: VolumeSet,
    cells: HeldCells,
    moves: Moves,
    leaving_scratch: Vec<EntryId>,
}

impl SlotsLayout {
    /// For an index with `entries` entries and a memory of `frames` frames.
    pub fn new(
        shard: u8,
        config: &CacheConfig,
        flash: &FlashConfig,
        slots: &SlotsConfig,
        sizes: ShardSizes,
    ) -> SlotsLayout {
        let waits = config.dirty_waits();
        let returns = (slots.give_up_copies || waits).then(|| Returns::new(sizes.frames));
        let blocks = config.share(shard, slots.blocks);
        let mut replacement = FlashReplacement::new(blocks, sizes.entries, returns, &slots.cells);
        replacement.gives_up = slots.give_up_copies;
        let queues = || Queues::new(flash.blocks(), flash.entries_max, flash.queues);
        SlotsLayout {
            replacement,
            queues: config.relation.has_queues().then(|| Box::new(queues())),
            promote_dirty_after: if waits { slots.promote_dirty_after } else { 1 },
            pinned: VolumeSet::EMPTY,
            cells: HeldCells::default(),
            moves: Moves::new(shard),
            leaving_scratch: Vec::new(),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let queues = self.queues.as_ref().map_or(0, |queues| queues.memory_bytes());
        self.replacement.memory_bytes() + queues
    }

    /// The state of replacement on flash.
    pub fn describe(&self, blocks: &Blocks) -> String {
        let flash = &self.replacement;
        let entry = |id: EntryId| {
            let e = &blocks[id];
            (e.key().to_string(), e.flash_dirty(), flash.is_unmapping(id))
        };
        let leaving: Vec<_> = flash.leaving().map(entry).collect();
        format!("\nflash: {flash}, leaving {leaving:?}")
    }

    /// Which blocks count, and which of them is evicted next.
    #[inline]
    pub fn replacement(&self) -> &FlashReplacement {
        &self.replacement
    }

    /// The queues that decide which blocks enter and leave, if there are any.
    #[inline]
    pub fn queues(&mut self) -> Option<&mut Queues> {
        self.queues.as_deref_mut()
    }

    // ---- records ----

    /// The block's record, which was in the cell `old`, is elsewhere or (unless one `exists`) gone.
    /// A `careless` tier holds no cells
    /// ([`Bug::ChosenCellsUsedAgain`](forebay_flash::sabotage::Bug::ChosenCellsUsedAgain)).
    pub fn record_replaced(
        &mut self,
        blocks: &Blocks,
        log: &mut Log,
        id: EntryId,
        (old, exists): (Option<Position>, bool),
        careless: bool,
    ) {
        match old {
            // The log already knows that a record that is being forgotten is void.
            Some(_) if self.replacement.is_unmapping(id) => {
                self.replacement.set_unmapping(id, false)
            }
            Some(old) => self.cells.superseded(log, old, careless),
            None => {}
        }
        if let Some(queues) = &mut self.queues {
            let key = blocks[id].key();
            match (old, exists) {
                (_, true) => queues.enters_flash(key.0),
                (Some(_), false) => queues.leaves_flash(key.0),
                (None, false) => {}
            }
        }
        // A block that was evicted on its way to flash stays evicted.
        let gone = blocks[id].is_leaving() && self.has_given_way(id);
        let stays = exists && !gone;
        let evicted = if stays { IfEvicted::Stays } else { IfEvicted::Leaves };
        self.update_residence(blocks, id, evicted);
    }

    /// The entry of a block that neither tier holds is about to be vacant.
    pub fn forget(&mut self, blocks: &Blocks, id: EntryId) {
        self.set_aside(blocks, id);
        self.replacement.forget(id);
    }

    /// Notes that a client's access reads the block's record from flash.
    #[inline]
    pub fn note_use(&mut self, id: EntryId) {
        self.replacement.on_reading(id);
    }

    /// After how many reads from flash the block moves into DRAM: more than one while its dirty
    /// record, which would stay on flash, would take a place that other blocks need.
    #[inline]
    pub fn promotes_after(&self, blocks: &Blocks, id: EntryId) -> u8 {
        let costs = !blocks[id].flash_dirty().is_empty() && self.replacement.copies_cost_hits();
        if costs { self.promote_dirty_after } else { 1 }
    }

    // ---- which blocks count, and which are evicted ----

    /// Updates the block's accounting after a change of its state.
    #[inline]
    pub fn update_residence(&mut self, blocks: &Blocks, id: EntryId, evicted: IfEvicted) {
        let flash = &mut self.replacement;
        let e = &blocks[id];
        // With queues, a block counts as being on flash only once its record is there.
        let on_its_way = e.frame().is_some() && e.is_leaving() && self.queues.is_none();
        let resident = e.frame().is_some() && !e.is_leaving();
        let record = e.position().is_some() && !flash.is_unmapping(id);
        let pinned = !e.flash_dirty().is_empty() && self.pinned.has(e.key());
        let to = if !record && !on_its_way {
            Residence::Uncounted
        } else if e.is_unreadable() || pinned {
            Residence::Pinned
        } else if flash.residence(id) == Residence::Leaving && evicted == IfEvicted::Leaves {
            Residence::Leaving
        } else if !resident {
            Residence::FlashOnly
        } else if e.flash_dirty().is_empty() {
            Residence::CleanCopy
        } else {
            Residence::DirtyCopy
        };
        flash.put(id, e.key(), to);
    }

    /// Notes that the block is about to enter memory: it must not be evicted to make room for that.
    #[inline]
    pub fn set_aside(&mut self, blocks: &Blocks, id: EntryId) {
        self.replacement.put(id, blocks[id].key(), Residence::Uncounted);
    }

    /// Notes that a block enters memory that neither tier held.
    pub fn note_miss(&mut self, key: BlockKey) {
        self.replacement.note_miss(key);
    }

    /// Notes that a client's write replaces the record of a block that only flash holds.
    pub fn note_write(&mut self, blocks: &Blocks, id: EntryId) {
        let alone = blocks[id].position().is_some() && blocks[id].is_leaving();
        if alone && self.has_given_way(id) {
            self.update_residence(blocks, id, IfEvicted::Stays);
        } else if alone {
            self.replacement.on_access(id);
        }
    }

    /// Whether the block was evicted from flash, even if it is still there or in transit to it.
    pub fn has_given_way(&self, id: EntryId) -> bool {
        self.replacement.residence(id) == Residence::Leaving
    }

    /// Whether flash still holds the block although the accounting has evicted it.
    #[inline]
    pub fn is_held_after_eviction(&self, blocks: &Blocks, id: EntryId) -> bool {
        let gone = |residence| matches!(residence, Residence::Uncounted | Residence::Leaving);
        blocks[id].frame().is_none() && gone(self.replacement.residence(id))
    }

    /// Whether nothing on flash can be evicted: all of it is dirty and unreadable.
    pub fn is_exhausted(&self) -> bool {
        self.pinned.is_empty() && self.replacement.is_exhausted()
    }

    /// The blocks being evicted from flash, and the next ones to be evicted: a cleaning destages
    /// the dirty ones.
    pub fn take_coldest(&mut self) -> impl Iterator<Item = EntryId> {
        self.replacement.destage_wanted = false;
        self.replacement.leaving().chain(self.replacement.coldest())
    }

    /// Evicts blocks until flash holds no more than its size.
    #[inline]
    pub fn evict(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        log: &mut Log,
        stats: &mut CacheStats,
    ) {
        while self.replacement.excess() > 0
            && let Some((id, from)) = self.replacement.evict(|id| blocks[id].transfer().is_none())
        {
            stats.flash_evictions += 1;
            match from {
                Residence::FlashOnly => self.replacement.note_victim(blocks[id].key()),
                Residence::DirtyCopy => stats.copies_given_up += 1,
                _ => {}
            }
            self.leave(blocks, transfers, log, id);
        }
    }

    /// Evicts this block, whatever the replacement policy would choose; false if that is not
    /// possible now.
    pub fn send_off(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        log: &mut Log,
        stats: &mut CacheStats,
        id: EntryId,
    ) -> bool {
        if blocks[id].transfer().is_some() || !self.replacement.send_off(id) {
            return false;
        }
        stats.flash_evictions += 1;
        self.leave(blocks, transfers, log, id);
        true
    }

    /// Takes the next step of the eviction of a block from flash.
    fn leave(&mut self, blocks: &Blocks, transfers: &Transfers, log: &mut Log, id: EntryId) {
        let flash = &mut self.replacement;
        let e = &blocks[id];
        let Some(position) = e.position() else { return };
        if flash.residence(id) != Residence::Leaving || flash.is_unmapping(id) {
            return;
        }
        // (A log that is stopping may have accepted records that wait for this cell.)
        if log.error().is_some() {
            return;
        }
        if !e.flash_dirty().is_empty() {
            flash.destage_wanted = true;
            return;
        }
        let reading =
            |t: TransferIndex| matches!(transfers[t].kind, TransferKind::FlashRead { .. });
        if e.transfer().is_some_and(reading) {
            // It continues when that transfer ends.
            return;
        }
        if log.unmap(e.key(), position) {
            flash.set_unmapping(id, true);
            self.update_residence(blocks, id, IfEvicted::Leaves);
        }
    }

    /// Lets all leaving blocks continue as far as they can.
    pub fn leave_all(&mut self, blocks: &Blocks, transfers: &Transfers, log: &mut Log) {
        let mut leaving = core::mem::take(&mut self.leaving_scratch);
        leaving.clear();
        leaving.extend(self.replacement.leaving());
        for &id in &leaving {
            self.leave(blocks, transfers, log, id);
        }
        self.leaving_scratch = leaving;
    }

    /// A transfer of the block has ended: continues its eviction, and evicts others if needed.
    #[inline]
    pub fn transfer_ended(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        log: &mut Log,
        stats: &mut CacheStats,
        key: BlockKey,
    ) {
        if let Some(id) = blocks.find(key) {
            self.leave(blocks, transfers, log, id);
        }
        self.evict(blocks, transfers, log, stats);
    }

    /// Whether the dirty records of exactly these volumes are not evicted.
    pub fn pins(&self, volumes: VolumeSet) -> bool {
        self.pinned == volumes
    }

    /// Keeps dirty records of these volumes, and of no others, from being evicted. Returns whether
    /// the set has changed.
    pub fn pin(&mut self, blocks: &Blocks, volumes: &Volumes, pinned: VolumeSet) -> bool {
        let changed = core::mem::replace(&mut self.pinned, pinned) ^ pinned;
        if changed.is_empty() {
            return false;
        }
        let any = changed.iter().any(|volume| volumes[volume].owed > 0);
        let entries = if any { blocks.capacity() } else { 0 };
        for id in (0..entries).map(EntryId::new) {
            let e = &blocks[id];
            if !e.is_vacant() && !e.flash_dirty().is_empty() && changed.has(e.key()) {
                self.update_residence(blocks, id, IfEvicted::Stays);
            }
        }
        true
    }

    // ---- cells ----

    /// Unmaps the block's newest record, at `position`: its cell is free once that is durable.
    pub fn disown(&mut self, log: &mut Log, id: EntryId, key: BlockKey, position: Position) {
        if !self.replacement.is_unmapping(id) {
            let taken = log.unmap(key, position);
            assert!(taken, "a block being appended has another transfer");
            self.replacement.set_unmapping(id, true);
        }
    }

    /// The cells of superseded records.
    pub fn cells(&mut self) -> &mut HeldCells {
        &mut self.cells
    }

    // ---- moves of mappings ----

    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, blocks: &mut Blocks, region: RegionIndex, careless: bool) {
        self.moves.begin(blocks, region, careless);
    }

    /// Advances the moves.
    pub fn move_step(
        &mut self,
        blocks: &mut Blocks,
        log: &mut Log,
        budget: &mut CallBudget,
        careless: bool,
    ) -> MoveState {
        self.moves.step(blocks, &self.replacement, log, budget, careless)
    }

    /// A move of a mapping has ended. `good`: the mapping is in another region.
    pub fn moved(
        &mut self,
        blocks: &mut Blocks,
        key: BlockKey,
        position: Position,
        regions: RegionMove,
        good: bool,
    ) {
        self.moves.ended(good);
        if good {
            blocks.mapping_moved(key, position, regions);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;
    use forebay_flash::Granules;

    use super::{Residence, SlotsLayout};
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
        let flash = FlashConfig::plain(geometry, FlashLayout::Slots(slots), 8);
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
        let record = FlashRecord {
            position: first,
            checksum: 0,
            valid: Granules(1),
            dirty: Granules::EMPTY,
        };
        shard.recovery.record(tiers, &mut shard_context!(cache.world), key, record);
        let id = tiers.blocks.find(key).expect("it has just been found");
        let ordered = |tiers: &Tiers| tiers.flash.replacement().expect("slots").ordered();
        assert_eq!(ordered(tiers), 1);
        // The block enters memory, and leaves it without a record.
        tiers.flash.set_aside(&tiers.blocks, id);
        tiers.flash.set_record(&mut tiers.blocks, &mut shard_context!(cache.world), id, None);
        assert_eq!(ordered(tiers), 1, "it may come back");
        tiers.forget_if_empty(&shard_context!(cache.world), id);
        assert_eq!((tiers.blocks.find(key), ordered(tiers)), (None, 0));
    }

    #[test]
    fn only_the_answer_to_its_own_unmapping_forgets_a_record() {
        // Method: a record that has replaced another is being forgotten. The answer for the older
        // one comes late, and must not count for the newer one, whose unmapping is not durable yet.
        let (mut cache, older) = in_slots(Parameters::default());
        let (key, newer) = (BlockKey::new(Volume(0), 3), Position(older.0 + 1));
        let shard = &mut cache.world.shards[0];
        let record = FlashRecord {
            position: newer,
            checksum: 0,
            valid: Granules(1),
            dirty: Granules::EMPTY,
        };
        shard.recovery.record(&mut shard.tiers, &mut shard_context!(cache.world), key, record);
        let id = shard.tiers.blocks.find(key).expect("it has just been found");
        let slots = shard.tiers.flash.slots_mut().expect("the slots layout");
        slots.replacement.set_unmapping(id, true);
        shard.unmapped(&mut shard_context!(cache.world), key, older);
        assert_eq!(shard.tiers.blocks[id].position(), Some(newer));
        shard.unmapped(&mut shard_context!(cache.world), key, newer);
        assert_eq!(shard.tiers.blocks.find(key), None);
    }

    #[test]
    fn only_dirty_records_wait_for_more_reads_while_copies_cost_hits() {
        let (mut cache, first) = in_slots(Parameters::default());
        let key = |block: u64| BlockKey::new(Volume(0), block);
        let shard = &mut cache.world.shards[0];
        for (n, dirty) in [(0, Granules::EMPTY), (1, Granules(1))] {
            let position = Position(first.0 + n);
            let record = FlashRecord { position, checksum: 0, valid: Granules(1), dirty };
            let context = &mut shard_context!(cache.world);
            shard.recovery.record(&mut shard.tiers, context, key(n.into()), record);
        }
        let Tiers { blocks, flash, .. } = &mut shard.tiers;
        let [clean, dirty] = [0, 1].map(|n| blocks.entry_of(key(n)));
        let slots = flash.slots_mut().expect("the slots layout");
        slots.promote_dirty_after = 3;
        let after = |slots: &SlotsLayout| [clean, dirty].map(|id| slots.promotes_after(blocks, id));
        assert_eq!(after(slots), [1, 1]);
        slots.replacement.put(dirty, key(1), Residence::DirtyCopy);
        for block in 10..1000 {
            slots.replacement.note_victim(key(block));
            slots.replacement.note_miss(key(block));
        }
        assert_eq!(after(slots), [1, 3]);
    }
}
