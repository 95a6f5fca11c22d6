//! The interface between the slots layout ([`SlotsLayout`]) and the rest of the shard. In the log
//! layout and without flash, blocks are not evicted from flash one by one: these methods do
//! nothing, and answer no.

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position, RegionIndex};

use super::replacement::FlashReplacement;
use super::slots_layout::{IfEvicted, SlotsLayout};
use super::{FlashTier, MoveState};
use crate::shard::RegionMove;
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::entry::EntryId;
use crate::shard::transfers::Transfers;
use crate::volume_set::VolumeSet;

impl FlashTier {
    // ---- what happens to a block ----

    /// Updates the block's accounting after a change of its state.
    #[inline]
    pub fn update_residence(&mut self, blocks: &Blocks, id: EntryId, evicted: IfEvicted) {
        if let Some(slots) = self.slots_mut() {
            slots.update_residence(blocks, id, evicted);
        }
    }

    /// Notes that the block is about to enter memory: it must not be evicted to make room for that.
    #[inline]
    pub fn set_aside(&mut self, blocks: &Blocks, id: EntryId) {
        if let Some(slots) = self.slots_mut() {
            slots.set_aside(blocks, id);
        }
    }

    /// Notes that a block enters memory that neither tier held.
    pub fn note_miss(&mut self, key: BlockKey) {
        if let Some(slots) = self.slots_mut() {
            slots.note_miss(key);
        }
    }

    /// Notes that a client's write replaces the record of a block that only flash holds.
    pub fn note_write(&mut self, blocks: &Blocks, id: EntryId) {
        if let Some(slots) = self.slots_mut() {
            slots.note_write(blocks, id);
        }
    }

    /// With queues: the next block that was to leave flash stays if it was used meanwhile, or if
    /// its store failed.
    pub fn review_leaving(&mut self, blocks: &Blocks) {
        let Some(key) = self.queues().and_then(|queues| queues.next_leaving()) else { return };
        let leaves = blocks.find(BlockKey(key)).is_some_and(|id| self.has_given_way(id));
        if !leaves && let Some(queues) = self.queues() {
            queues.enters_flash(key);
        }
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
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.transfer_ended(blocks, transfers, log, context.stats, key);
        }
    }

    /// The record at `position`, the block's newest, is no longer valid: its cell becomes free when
    /// that is durable.
    pub fn disown(
        &mut self,
        blocks: &Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        position: Position,
    ) {
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.disown(log, id, blocks[id].key(), position);
        }
    }

    // ---- which blocks count ----

    /// Number of blocks in memory whose dirty record is kept.
    pub fn dirty_copies(&self) -> u64 {
        self.replacement().map_or(0, |flash| u64::from(flash.dirty_copies()))
    }

    /// Whether the record is the next clean copy to be evicted.
    pub fn is_next_copy(&self, id: EntryId) -> bool {
        self.replacement().is_some_and(|flash| flash.is_next_copy(id))
    }

    /// The most steps that the policy has taken in one eviction.
    pub fn eviction_steps_most(&self) -> u64 {
        self.replacement().map_or(0, FlashReplacement::eviction_steps_most)
    }

    /// Whether dirty records of blocks in memory are evicted before blocks that only flash holds.
    pub fn gives_copies_up(&self) -> bool {
        self.replacement().is_some_and(FlashReplacement::gives_copies_up)
    }

    /// Whether the block's record is being forgotten on flash.
    #[inline]
    pub fn is_unmapping(&self, id: EntryId) -> bool {
        self.replacement().is_some_and(|flash| flash.is_unmapping(id))
    }

    /// Whether the block was evicted from flash, even if it is still there or in transit to it.
    pub fn has_given_way(&self, id: EntryId) -> bool {
        self.slots().is_some_and(|slots| slots.has_given_way(id))
    }

    /// Whether flash still holds the block although the accounting has evicted it.
    #[inline]
    pub fn is_held_after_eviction(&self, blocks: &Blocks, id: EntryId) -> bool {
        self.slots().is_some_and(|slots| slots.is_held_after_eviction(blocks, id))
    }

    /// Whether nothing on flash can be evicted: all of it is dirty and unreadable.
    pub fn is_exhausted(&self) -> bool {
        self.slots().is_some_and(SlotsLayout::is_exhausted)
    }

    /// Number of blocks that flash has room for, by the accounting; blocks being evicted still
    /// count.
    pub fn room(&self) -> u32 {
        self.replacement().map_or(0, FlashReplacement::room)
    }

    // ---- which blocks are evicted ----

    /// Evicts blocks until flash holds no more than its size.
    #[inline]
    pub fn evict(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
    ) {
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.evict(blocks, transfers, log, context.stats);
        }
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
        self.slots_with(&mut context.log)
            .is_some_and(|(slots, log)| slots.send_off(blocks, transfers, log, context.stats, id))
    }

    /// Lets all leaving blocks continue as far as they can.
    pub fn leave_all(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
    ) {
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.leave_all(blocks, transfers, log);
        }
    }

    /// Whether exactly these volumes are pinned: their dirty records are not evicted. True where no
    /// records are evicted at all.
    pub fn pins(&self, volumes: VolumeSet) -> bool {
        self.slots().is_none_or(|slots| slots.pins(volumes))
    }

    /// Keeps dirty records of these volumes from being evicted. `Stores` calls this whenever the
    /// set of volumes that are left out has changed, before anything else reads that set.
    pub fn pin(
        &mut self,
        blocks: &Blocks,
        transfers: &Transfers,
        context: &mut ShardContext<'_>,
        pinned: VolumeSet,
    ) {
        if let Some((slots, log)) = self.slots_with(&mut context.log)
            && slots.pin(blocks, context.volumes, pinned)
        {
            slots.evict(blocks, transfers, log, context.stats);
        }
    }

    // ---- a cleaning ----

    /// Whether the cleaner should destage the coldest blocks.
    pub fn wants_destage(&self) -> bool {
        self.replacement().is_some_and(|flash| flash.destage_wanted)
    }

    /// The blocks being evicted from flash, and the next ones to be evicted: a cleaning destages
    /// the dirty ones.
    pub fn take_coldest(&mut self) -> impl Iterator<Item = EntryId> {
        self.slots_mut().into_iter().flat_map(SlotsLayout::take_coldest)
    }

    /// Keeps superseded cells from now on, for a cleaning that begins.
    pub fn hold_cells(&mut self) {
        if let Some(slots) = self.slots_mut() {
            slots.cells().hold();
        }
    }

    /// Frees the cells kept for the cleaning, which has ended.
    pub fn release_cells(&mut self, context: &mut ShardContext<'_>) {
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.cells().release(log);
        }
    }

    // ---- moves of a region's mappings ----

    /// Begins to move a region's mappings.
    pub fn move_begin(
        &mut self,
        blocks: &mut Blocks,
        context: &ShardContext<'_>,
        region: RegionIndex,
    ) {
        let careless = context.mode.sabotage.is(Bug::MappingLeftBehind);
        if let Some(slots) = self.slots_mut() {
            slots.move_begin(blocks, region, careless);
        }
    }

    /// Advances the moves.
    pub fn move_step(&mut self, blocks: &mut Blocks, context: &mut ShardContext<'_>) -> MoveState {
        let careless = context.mode.sabotage.is(Bug::MappingLeftBehind);
        self.slots_with(&mut context.log).map_or(MoveState::Done, |(slots, log)| {
            slots.move_step(blocks, log, context.budget, careless)
        })
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
        if let Some(slots) = self.slots_mut() {
            slots.moved(blocks, key, position, regions, good);
        }
    }
}
