//! A shard: a part of the blocks, and the state of each of them.
//!
//! [`Tiers`] says where blocks are and moves them. What a piece of a request does is evaluated there, and
//! ends in `pieces.rs`; a transfer ends in `complete.rs`. [`Destager`] brings what is dirty on flash to
//! the backing stores. The parts of all these have private fields, and a file each.
//!
//! **One transfer a block.** At most one device operation is under way on a block at any time;
//! whatever else touches the block then waits, unless it can be answered from granules that
//! the transfer does not change. When a transfer ends, each waiting piece is *evaluated again*
//! from the block's state: it is done, or it starts the one next transfer that brings it
//! closer. There are no continuations, so there is no state in which a race could be forgotten:
//!
//! - two reads of a missing block share one fetch, because the second waits for the first's;
//! - a frame under an outgoing transfer is never written, because the write waits;
//! - a destage, an append and a direct write of one block cannot overtake each other.
//!
//! Consecutive blocks of one request that need the same kind of transfer share one (a *run*).

mod blocks;
mod complete;
mod destager;
mod dram;
mod flash_tier;
mod flush;
mod granules;
mod pieces;
mod recover;
mod regions;
mod tiers;
mod transfer;
mod transfers;
mod waiting;

use forebay_block::Nanos;
use forebay_effect::EffectQueue;
use forebay_flash::{BlockKey, Log, Position};

use crate::budget::Budget;
use crate::config::CacheConfig;
use crate::entry::{EntryId, UNREADABLE};
use crate::front::Front;
use crate::policy::{Acknowledge, WritePolicy};
use crate::stats::CacheStats;
use crate::volume_set::VolumeSet;
use blocks::FlashRecord;
use destager::Destager;
pub(crate) use destager::{CarryState, JobState, Target};
pub(crate) use destager::{apart, owed};
pub(crate) use flash_tier::{Forgotten, MoveState};
pub(crate) use flush::FlushState;
pub(crate) use pieces::Access;
use recover::Recovery;
use tiers::Tiers;
use transfer::Kind;
use waiting::Waiting;

/// What a shard needs of its surroundings during one call.
pub(crate) struct ShardContext<'a> {
    pub front: &'a mut Front,
    pub log: Option<&'a mut Log>,
    pub effects: &'a mut EffectQueue,
    pub stats: &'a mut CacheStats,
    pub budget: &'a mut Budget,
    pub now: Nanos,
}

/// The number of a block's volume.
fn volume_index(key: BlockKey) -> usize {
    usize::from(key.volume().min(63))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    number: u8,
    tiers: Tiers,
    waiting: Waiting,
    destager: Destager,
    recovery: Recovery,
}

/// Most blocks that are remembered as unreadable.
pub(crate) const UNREADABLE_MAX: usize = 64;

impl Shard {
    pub fn new(config: &CacheConfig, number: u8) -> Self {
        let tiers = Tiers::new(config, number);
        Shard {
            number,
            waiting: Waiting::new(config.waiters_max),
            destager: Destager::new(config, tiers.transfers.bounces()),
            recovery: Recovery::default(),
            tiers,
        }
    }

    pub fn add_volume(&mut self, priority: u8) {
        self.tiers.blocks.add_volume();
        self.tiers.dram.add_volume(priority);
        self.tiers.flushes.add_volume();
    }

    pub fn set_policy(&mut self, policy: WritePolicy, acknowledge: Acknowledge) {
        self.tiers.set_policy(policy, acknowledge);
    }

    /// Whether a record that is called dirty is on its way to the log.
    pub fn appends_dirty(&self) -> bool {
        let dirty = |t| matches!(t, Kind::Append { dirty, .. } if dirty != 0);
        self.tiers.transfers.iter().any(|t| dirty(t.kind))
    }

    /// Blocks with dirty data in DRAM.
    pub fn dirty_in_memory(&self) -> u64 {
        self.tiers.blocks.dirty_in_memory()
    }

    pub fn dram_blocks(&self) -> u32 {
        self.tiers.dram.capacity()
    }

    /// Takes its share of the blocks of DRAM.
    pub fn set_dram_blocks(&mut self, blocks: u32, shards: u32) {
        let own = blocks / shards + u32::from(u32::from(self.number) < blocks % shards);
        self.tiers.dram.set_capacity(own);
    }

    /// No more lines are fetched ahead, and queues choose no more blocks.
    pub fn stop_lines(&mut self) {
        self.tiers.lines.stop();
        self.tiers.flash.queues.iter_mut().for_each(|queues| queues.stop());
    }

    /// Whether lines are being fetched.
    pub fn is_fetching_lines(&self) -> bool {
        self.tiers.lines.is_fetching()
    }

    /// Blocks that memory holds by the accounting of its replacement policy.
    pub fn resident(&self) -> u32 {
        self.tiers.dram.len()
    }

    /// Accesses that the replacement policy of memory has been told of.
    pub fn told(&self) -> u64 {
        self.tiers.dram.told()
    }

    /// The most steps of one eviction, by the replacement policies of memory and of flash.
    pub fn eviction_steps_most(&self) -> [u64; 2] {
        [self.tiers.dram.eviction_steps_most(), self.tiers.flash.eviction_steps_most()]
    }

    pub fn memory_bytes(&self) -> u64 {
        self.tiers.blocks.memory_bytes()
            + self.tiers.dram.memory_bytes()
            + self.tiers.flash.memory_bytes()
            + self.tiers.transfers.memory_bytes()
            + self.waiting.memory_bytes()
            + self.destager.memory_bytes()
    }

    // ---- flash ----

    /// A record found by recovery.
    pub fn recovered(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        position: Position,
        checksum: u32,
        (valid, dirty): (u16, u16),
    ) {
        let record = FlashRecord { position, checksum, valid, dirty };
        self.recovery.record((&mut self.tiers.blocks, &mut self.tiers.flash), context, key, record);
    }

    /// What the newest record of a block so far, if there is one, says is dirty.
    pub fn recovered_dirty(&self, key: BlockKey) -> u16 {
        self.recovery.dirty(&self.tiers.blocks, key)
    }

    /// A tombstone found by recovery.
    pub fn recovered_tombstone(&mut self, context: &mut ShardContext<'_>, key: BlockKey) {
        let tiers = (&mut self.tiers.blocks, &mut self.tiers.flash);
        self.tiers.room |= self.recovery.tombstone(tiers, context, key);
    }

    /// Recovery has given all it found. Adds to `left` the blocks whose clean records find no place in
    /// the index; gives the number of dirty ones that do not.
    pub fn place_spilled(
        &mut self,
        context: &mut ShardContext<'_>,
        left: &mut Vec<BlockKey>,
    ) -> u64 {
        self.recovery.place_spilled((&mut self.tiers.blocks, &mut self.tiers.flash), context, left)
    }

    /// Recovery has given all records, and they have their places.
    pub fn flash_ready(&mut self, context: &mut ShardContext<'_>) {
        self.tiers.flash.evict(&self.tiers.blocks, &self.tiers.transfers, context);
    }

    /// Blocks in memory whose dirty record is kept; 0 in other layouts than slots.
    pub fn dirty_copies(&self) -> u64 {
        self.tiers.flash.dirty_copies()
    }

    /// Whether nothing on flash can give way: all of it is dirty and cannot be read.
    pub fn is_exhausted(&self) -> bool {
        self.tiers.flash.is_exhausted()
    }

    /// Whether the cleaner should bring the coldest blocks to their backing stores.
    pub fn wants_destage(&self) -> bool {
        self.tiers.flash.wants_destage()
    }

    /// The stores of these volumes fail, and what is dirty of those that are `pinned` does not give way on flash.
    pub fn set_failing(
        &mut self,
        context: &mut ShardContext<'_>,
        failing: VolumeSet,
        pinned: VolumeSet,
    ) {
        let Tiers { flash, blocks, transfers, .. } = &mut self.tiers;
        flash.set_failing(blocks, transfers, context, (failing, pinned));
    }

    /// A record is durably forgotten.
    pub fn unmapped(&mut self, context: &mut ShardContext<'_>, key: BlockKey, position: Position) {
        let Some(id) = self.tiers.blocks.find_at(key, position) else { return };
        if self.tiers.flash.is_unmapping(id) {
            self.tiers.flash.set_record(&mut self.tiers.blocks, context, id, None);
            self.tiers.forget_if_empty(id);
        }
    }

    /// Number of records, or mappings, in a region.
    pub fn region_entries(&self, region: u32) -> u64 {
        self.tiers.flash.region_entries(region).into()
    }

    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, context: &mut ShardContext<'_>, region: u32) {
        self.tiers.flash.move_begin(&self.tiers.blocks, context, region);
    }

    /// Pushes the moves on.
    pub fn move_step(&mut self, context: &mut ShardContext<'_>) -> MoveState {
        self.tiers.flash.move_step(&self.tiers.blocks, context)
    }

    /// A mapping stands in another region.
    pub fn moved(&mut self, key: BlockKey, position: Position, regions: (u32, u32), good: bool) {
        self.tiers.flash.moved(&mut self.tiers.blocks, key, position, regions, good);
    }

    /// Blocks whose newest data cannot be read from flash: at most [`UNREADABLE_MAX`] of those that
    /// cleaning has met, without those that were written again since.
    pub fn unreadable(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.tiers.flash.unreadable(&self.tiers.blocks)
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.tiers.transfers.in_use() == 0 && self.waiting.in_use() == 0
    }

    pub fn describe(&self) -> String {
        let transfers: Vec<_> = self
            .tiers
            .transfers
            .iter()
            .map(|t| format!("{:?} {}+{}", t.kind, t.key, t.count))
            .collect();
        let flash = self.tiers.flash.describe(&self.tiers.blocks);
        format!(
            "{flash}\nshard {}: {} blocks, {} frames and {} bounce frames free, {} of {} resident, {} pieces wait, \
             job {:?}, under way {transfers:#?}",
            self.number,
            self.tiers.blocks.len(),
            self.tiers.blocks.frames_free(),
            self.tiers.transfers.bounces_free(),
            self.tiers.dram.len(),
            self.tiers.dram.capacity(),
            self.waiting.in_use(),
            self.destager.job()
        )
    }

    /// Starts loading what the replacement policy will look at; `near` when that is imminent.
    pub fn prefetch_policy(&self, key: BlockKey, entry: Option<EntryId>, near: bool) {
        self.tiers.prefetch_policy(key, entry, near);
    }

    /// The next access is likely to be to this entry's block.
    pub fn expect(&self, entry: Option<EntryId>) {
        entry.into_iter().for_each(|id| self.tiers.blocks.expect(id));
    }

    // ---- intervals ----

    /// The first interval of hit ratios begins.
    pub fn start_intervals(&mut self, now: Nanos) {
        self.tiers.dram.start_intervals(now);
    }

    /// An interval of hit ratios may be over.
    pub fn end_interval(&mut self, now: Nanos) {
        self.tiers.dram.end_interval(now);
    }

    /// When the interval of hit ratios ends.
    pub fn interval_ends(&self) -> Nanos {
        self.tiers.dram.interval_ends()
    }

    // ---- cleaning ----

    /// Chooses what is cleaned; it is written once it is durable in the log. Not `dirty`: nothing
    /// is, anywhere. Nothing is chosen of the volumes to be `skipped`.
    pub fn clean_choose(&mut self, target: Target, dirty: bool, skipped: VolumeSet) {
        self.tiers.flash.hold_cells();
        self.destager.choose(&mut self.tiers, target, dirty, skipped);
    }

    /// Goes on choosing; whether all is chosen.
    pub fn clean_choose_step(&mut self, context: &mut ShardContext<'_>) -> bool {
        self.destager.choose_step(&mut self.tiers, context)
    }

    /// Begins to write what was chosen, but for the volumes to be skipped.
    pub fn clean_begin(&mut self, skipped: VolumeSet, several: bool, late: VolumeSet) {
        self.destager.begin(skipped, several, late);
    }

    /// The volumes of what was chosen.
    pub fn chosen_volumes(&self) -> VolumeSet {
        self.destager.chosen_volumes()
    }

    /// Pushes the job on.
    pub fn clean_step(&mut self, context: &mut ShardContext<'_>) -> JobState {
        self.destager.step(&mut self.tiers, context)
    }

    /// The volumes are synced (or not): what was destaged is clean (or to be done again).
    /// `failed`: the volumes whose sync did not end well. Goes as far as the budget of the call; whether
    /// that was all of it.
    pub fn clean_end(&mut self, context: &mut ShardContext<'_>, failed: VolumeSet) -> bool {
        self.destager.end(&mut self.tiers, context, failed)
    }

    /// Of what was chosen, what is not under way will not be cleaned.
    pub fn clean_cut(&mut self) {
        self.destager.cut();
    }

    /// What was chosen will not be cleaned.
    pub fn clean_abandon(&mut self, context: &mut ShardContext<'_>) {
        self.destager.abandon(&mut self.tiers, context);
    }

    /// Begins to carry on what cleaning has left of a region, of volumes whose store fails or
    /// because it cannot be read.
    pub fn carry_begin(&mut self, region: u32, failing: VolumeSet) {
        self.destager.carry_begin(&self.tiers, region, failing);
    }

    /// Continues carrying on what is left of the region.
    pub fn carry_step(&mut self, context: &mut ShardContext<'_>) -> CarryState {
        self.destager.carry_step(&mut self.tiers, context)
    }

    /// Begins to choose which clean records of a region to insert again, in at most `pages` pages.
    pub fn reinsert_choose(&mut self, region: u32, pages: u32) {
        self.destager.reinsert_choose(&mut self.tiers, region, pages);
    }

    /// Goes on choosing, as far as the budget of the call goes; the pages that they take, once all are chosen.
    pub fn reinsert_choose_step(&mut self, context: &mut ShardContext<'_>) -> Option<u32> {
        self.destager.reinsert_choose_step(&mut self.tiers, context)
    }

    /// Continues inserting the chosen records again.
    pub fn reinsert_step(&mut self, context: &mut ShardContext<'_>) -> CarryState {
        self.destager.reinsert_step(&mut self.tiers, context)
    }

    // ---- flushes ----

    /// A flush of the volume begins: what is dirty in DRAM until now must leave it.
    pub fn flush_begin(&mut self, volume: usize) {
        self.tiers.blocks.mark_dirty(volume);
        self.tiers.flushes.begin(volume);
    }

    /// Pushes a flush on by at most `budget` blocks. This shard's part is done when all it
    /// covers has been handed to the log, or, without one, is on the backing store.
    pub fn flush_step(
        &mut self,
        context: &mut ShardContext<'_>,
        volume: usize,
        budget: u32,
    ) -> FlushState {
        flush::step(&mut self.tiers, context, volume, budget)
    }

    // ---- regions ----

    /// The region is free: nothing may refer to it any more. Forgets what it held, as far as the budget of the
    /// call goes.
    pub fn forget_region(&mut self, context: &mut ShardContext<'_>, region: u32) -> Forgotten {
        let Tiers { flash, blocks, .. } = &mut self.tiers;
        let (forgotten, room) = flash.forget_region(blocks, context, region);
        self.tiers.room |= room;
        forgotten
    }

    /// Whether any record in the region is dirty, if only because something is lost: who destages hears
    /// of that, and of what takes its place meanwhile.
    pub fn region_is_dirty(&self, region: u32) -> bool {
        self.tiers.flash.region_is_dirty(region)
    }

    /// Whether a record in the region, of volumes other than these, is dirty and can be destaged.
    pub fn region_is_dirty_but(&self, region: u32, volumes: VolumeSet) -> bool {
        let other =
            |e: &crate::entry::Entry| e.owed() != 0 && !e.has(UNREADABLE) && !volumes.has(e.key());
        self.tiers.flash.region_has_dirty(&self.tiers.blocks, region, other)
    }

    // ---- all blocks, step by step ----

    /// Drops what is cached of these volumes, all of it clean and idle, looking at `count`
    /// entries from `from` on; where to go on, or `None` at the end.
    pub fn drop_clean(
        &mut self,
        context: &mut ShardContext<'_>,
        volumes: VolumeSet,
        from: EntryId,
        count: u32,
    ) -> Option<EntryId> {
        let end = self.tiers.blocks.capacity().min(from.saturating_add(count));
        for id in from..end {
            let e = &self.tiers.blocks[id];
            if e.is_vacant() || !volumes.has(e.key()) {
                continue;
            }
            assert!(!e.is_dirty() && e.transfer().is_none(), "a busy or dirty block is dropped");
            if e.frame().is_some() {
                self.tiers.release_frame(id);
            }
            if self.tiers.blocks[id].position().is_some() {
                self.tiers.flash.set_record(&mut self.tiers.blocks, context, id, None);
            }
            context.stats.dropped += 1;
            self.tiers.forget_if_empty(id);
        }
        (end < self.tiers.blocks.capacity()).then_some(end)
    }

    /// Forgets records of volumes that go past flash, looking at `count` entries from `from` on; where
    /// to go on, or `None` at the end. What is under way on a block keeps its record: it is forgotten when
    /// the block is written.
    pub fn drop_void(
        &mut self,
        context: &mut ShardContext<'_>,
        from: EntryId,
        count: u32,
    ) -> Option<EntryId> {
        let end = self.tiers.blocks.capacity().min(from.saturating_add(count));
        for id in from..end {
            let e = &self.tiers.blocks[id];
            if !e.is_vacant() && self.tiers.flash.goes_past(e.key()) && e.transfer().is_none() {
                self.tiers.flash.forget_record(&mut self.tiers.blocks, context, id);
                self.tiers.forget_if_empty(id);
            }
        }
        self.tiers.room = true;
        (end < self.tiers.blocks.capacity()).then_some(end)
    }

    /// Whether blocks are being written to the log. They are not in the dirty list meanwhile, so that a flush
    /// does not see them.
    pub fn is_logging(&self) -> bool {
        self.tiers.transfers.iter().any(|t| {
            matches!(t.kind, Kind::Append { .. } | Kind::Carry { .. } | Kind::Activate { .. })
        })
    }
}
