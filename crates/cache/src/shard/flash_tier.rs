//! The state of a shard's flash: what becomes of the records of its blocks and, in the slots layout, which blocks
//! count for flash and which are evicted (`evict.rs`). The records themselves are part of [`Blocks`].

mod evict;
mod moves;
pub(super) mod replacement;
pub(super) mod returns;

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

pub(super) use self::evict::IfEvicted;
use self::replacement::FlashReplacement;
use super::blocks::{Blocks, FlashRecord};
use super::entry::{DESTAGED, DOUBTFUL, Entry, EntryId, UNREADABLE};
use super::{ShardContext, UNREADABLE_MAX};
use crate::config::{CacheConfig, FlashLayout, LogReplacement};
use crate::slab::Key;
use crate::volume_set::VolumeSet;
use forebay_replacement::{Offer, Popularity, Queues};
use moves::Moves;
pub(crate) use moves::{Forgotten, MoveState};

/// See the module.
#[derive(Debug)]
pub(crate) struct FlashTier {
    shard: u8,
    /// Index entries for blocks on flash.
    entries: u32,
    /// Volumes whose dirty records are not evicted. It equals `StoreConditions::left_out`, because
    /// [`FlashTier::pin`] follows each change of that set and moves the records between the lists of the replacement.
    pinned: VolumeSet,
    /// Bytes of the device.
    size: u64,
    /// The first blocks whose dirty record could not be read.
    unreadable: Vec<BlockKey>,
    /// Log layout: how often each block's record was read from flash, by entry; and which records
    /// are inserted again for that.
    uses: Box<[u8]>,
    /// The popularity of records, if that decides.
    popularity: Option<Popularity>,
    policy: LogReplacement,
    promote_after: u8,
    promote_dirty_after: u8,
    /// Slots layout: which blocks are evicted.
    replacement: Option<FlashReplacement>,
    /// Slots layout: which blocks leave and enter, if accesses alone do not decide that.
    pub queues: Option<Box<Queues>>,
    /// From the choice of the records to clean to the end of their cleaning.
    holding_cells: bool,
    /// Cells superseded during that: a read may still access them. A chosen record is known by its
    /// cell, which must not become that of another record of the same block meanwhile.
    held_cells: Vec<Position>,
    /// Mappings that are moving out of a region.
    moves: Option<Moves>,
    moves_scratch: Vec<(BlockKey, Position)>,
    leaving_scratch: Vec<EntryId>,
}

impl FlashTier {
    /// `entries`: index entries for blocks on flash; `all`: all index entries.
    pub fn new(
        shard: u8,
        config: &CacheConfig,
        (entries, all): (u32, u32),
        replacement: Option<FlashReplacement>,
    ) -> FlashTier {
        let dirty_waits = config.dirty_waits();
        let has_queues = config.relation.has_queues();
        let config = config.flash.as_ref();
        let queues = config.filter(|_| has_queues).map(|flash| {
            assert!(replacement.is_some(), "queues evict single blocks");
            Queues::new(flash.blocks(), flash.entries_max, flash.queues)
        });
        let in_log = config.is_some() && replacement.is_none();
        let policy = match config.map(|f| f.layout) {
            Some(FlashLayout::Log { replacement }) => replacement,
            _ => LogReplacement::Fifo,
        };
        let by_popularity = in_log && policy == LogReplacement::Popularity;
        FlashTier {
            shard,
            entries,
            pinned: VolumeSet::EMPTY,
            size: config.map_or(0, |f| f.geometry.device_bytes()),
            unreadable: Vec::with_capacity(UNREADABLE_MAX),
            uses: vec![0; if in_log { all as usize } else { 0 }].into_boxed_slice(),
            popularity: by_popularity.then(|| Popularity::new(all, entries)),
            policy,
            promote_after: config.map_or(1, |f| f.promote_after),
            promote_dirty_after: config
                .and_then(|f| f.slots().filter(|_| dirty_waits))
                .map_or(1, |slots| slots.promote_dirty_after),
            replacement,
            queues: queues.map(Box::new),
            holding_cells: false,
            held_cells: Vec::new(),
            moves: None,
            moves_scratch: Vec::new(),
            leaving_scratch: Vec::new(),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let replacement = self.replacement.as_ref().map_or(0, FlashReplacement::memory_bytes);
        let popularity = self.popularity.as_ref().map_or(0, Popularity::memory_bytes);
        let uses = size_of_val(&*self.uses) as u64;
        let queues = self.queues.as_ref().map_or(0, |queues| queues.memory_bytes());
        replacement + queues + uses + popularity
    }

    /// Index entries for blocks on flash.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The state of replacement on flash; empty in other layouts.
    pub fn describe(&self, blocks: &Blocks) -> String {
        self.replacement.as_ref().map_or_else(String::new, |flash| {
            let entry = |id: EntryId| {
                let e = &blocks[id];
                (e.key().to_string(), e.flash_dirty(), flash.is_unmapping(id))
            };
            let leaving: Vec<_> = flash.leaving().map(entry).collect();
            format!("\nflash: {flash}, leaving {leaving:?}")
        })
    }

    // ---- records ----

    /// The log has written a record of the block's frame.
    pub fn logged(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        record: FlashRecord,
    ) {
        self.outdate_record(blocks, context, id, Some(record), record.dirty);
    }

    /// The block has another newest record, or none, with other contents: the older one leaves a
    /// hole in its region.
    pub fn set_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
    ) {
        self.outdate_record(blocks, context, id, to, 0);
    }

    fn outdate_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
        taken: u16,
    ) {
        context.stats.records_outdated += u64::from(blocks[id].position().is_some());
        self.put_record(blocks, context, id, to, taken);
        if let Some(popularity) = &mut self.popularity {
            if to.is_some() {
                popularity.insert(id.number())
            } else {
                popularity.remove(id.number())
            }
        }
    }

    /// The block's record is elsewhere, or no longer exists; the log took the granules `taken` from the frame.
    fn put_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
        taken: u16,
    ) {
        let old = blocks[id].position();
        blocks.record_replaced(context, id, to, taken);
        let key = blocks[id].key();
        if let Some(old) = old {
            self.leave_cell(context, id, old);
        }
        if let Some(queues) = &mut self.queues {
            match (old, to) {
                (_, Some(_)) => queues.enters_flash(key.0),
                (Some(_), None) => queues.leaves_flash(key.0),
                (None, None) => {}
            }
        }
        if let Some(uses) = self.uses.get_mut(id.number() as usize) {
            *uses = 0;
        }
        if blocks[id].lost_on_flash() != 0 {
            self.name_unreadable(blocks, key);
        }
        // A block that was evicted on its way to flash stays evicted.
        let gone = blocks[id].is_leaving() && self.has_given_way(id);
        let stays = to.is_some() && !gone;
        let evicted = if stays { IfEvicted::Stays } else { IfEvicted::Leaves };
        self.update_residence(blocks, id, evicted);
    }

    /// Slots layout: the block's record is no longer in the cell `old`.
    fn leave_cell(&mut self, context: &mut ShardContext<'_>, id: EntryId, old: Position) {
        let Some(flash) = &mut self.replacement else { return };
        if flash.is_unmapping(id) {
            // The log already knows that a record that is being forgotten is void.
            return flash.set_unmapping(id, false);
        }
        let careless = context.mode.sabotage.is(Bug::ChosenCellsUsedAgain);
        if self.holding_cells && !careless {
            self.held_cells.push(old);
        } else {
            let log = context.log.of_mut(old);
            log.release_cell(old);
        }
    }

    /// The backing store durably has the block's record.
    pub fn settled(&mut self, blocks: &mut Blocks, context: &mut ShardContext<'_>, id: EntryId) {
        blocks.settled(context, id);
        self.update_residence(blocks, id, IfEvicted::Leaves);
    }

    /// The destage of the block's record ends; `synced`: its store durably has what was written.
    pub fn end_destage(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        synced: bool,
    ) {
        if blocks[id].has(DESTAGED) {
            blocks[id].clear(DESTAGED);
            if synced {
                self.settled(blocks, context, id);
            }
        }
    }

    // ---- admission ----

    /// The inputs of an admission policy, apart from the block.
    pub fn offer(&self, context: &ShardContext<'_>) -> Offer {
        let written = context.log.get().map_or(0, |log| log.stats().bytes_written());
        let (second, flash, stores) = context.loads.map_or((0, 0, 0), |loads| loads.last());
        Offer { now: context.now.0, written, size: self.size, second, flash, stores }
    }

    // ---- readings from flash ----

    /// A client's access reads the block's record from flash.
    #[inline]
    pub fn note_use(&mut self, id: EntryId) {
        if let Some(uses) = self.uses.get_mut(id.number() as usize) {
            *uses = uses.saturating_add(1);
            self.popularity.iter_mut().for_each(|popularity| popularity.access(id.number()));
        } else if let Some(flash) = &mut self.replacement {
            flash.on_reading(id);
        }
    }

    /// Whether the next read from flash moves the block into DRAM. An evicted block always moves.
    #[inline]
    pub fn promotes(&self, blocks: &Blocks, id: EntryId) -> bool {
        let readings = || match &self.replacement {
            Some(flash) => flash.readings(id),
            None => self.uses[id.number() as usize],
        };
        // A dirty record stays, and would take a place that others miss.
        let stays = blocks[id].flash_dirty() != 0
            && self.replacement.as_ref().is_some_and(FlashReplacement::copies_cost_hits);
        let after = self.promote_after.max(if stays { self.promote_dirty_after } else { 1 });
        after == 1
            || readings().saturating_add(1) >= after
            || self.is_held_after_eviction(blocks, id)
    }

    /// The reads or the popularity of the block's record, if that makes it worth inserting again.
    pub fn worth(&self, id: EntryId) -> Option<u8> {
        let uses = *self.uses.get(id.number() as usize)?;
        let worth = self.popularity.as_ref().map_or(uses, |popularity| popularity.sum(id.number()));
        self.policy.uses_min().filter(|&least| worth >= least).map(|_| worth)
    }

    /// Whether the records with the highest worth are taken first.
    pub fn takes_hottest(&self) -> bool {
        self.policy.takes_hottest()
    }

    /// The block's record is at the head of the log, unchanged.
    pub fn reinserted(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: FlashRecord,
    ) {
        let uses = self.uses[id.number() as usize];
        self.put_record(blocks, context, id, Some(to), 0);
        self.uses[id.number() as usize] = self.policy.aged(uses);
        self.popularity.iter_mut().for_each(|popularity| popularity.age(id.number()));
    }

    /// The block's record is void.
    pub fn forget_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) {
        blocks[id].clear(DOUBTFUL);
        if blocks[id].position().is_some() {
            assert!(blocks[id].flash_dirty() == 0, "a dirty record would be voided");
            self.set_record(blocks, context, id, None);
        }
    }

    /// Forgets an empty entry; returns whether it was empty.
    #[inline]
    pub fn forget_if_empty(
        &mut self,
        blocks: &mut Blocks,
        context: &ShardContext<'_>,
        id: EntryId,
    ) -> bool {
        let e = &blocks[id];
        let holds = e.frame().is_some() || e.position().is_some() || e.transfer().is_some();
        let forget = !holds && (!e.has(DOUBTFUL) || context.flash.is_without(e.key()));
        if forget {
            self.set_aside(blocks, id);
            self.replacement.iter_mut().for_each(|flash| flash.forget(id));
            blocks.remove(id);
        }
        forget
    }

    // ---- records that cannot be read ----

    /// Blocks whose newest data cannot be read from flash: at most [`UNREADABLE_MAX`] of those that
    /// cleaning has found, excluding those written again since.
    pub fn unreadable(&self, blocks: &Blocks) -> impl Iterator<Item = BlockKey> {
        self.unreadable.iter().copied().filter(|&key| is_unreadable(blocks, key))
    }

    /// The block's record could not be read.
    pub fn note_unreadable(&mut self, blocks: &mut Blocks, key: BlockKey) {
        if let Some(id) = blocks.find(key) {
            blocks[id].set(UNREADABLE);
            self.update_residence(blocks, id, IfEvicted::Leaves);
        }
        self.name_unreadable(blocks, key);
    }

    /// The block is one of those reported to operators.
    fn name_unreadable(&mut self, blocks: &Blocks, key: BlockKey) {
        if self.unreadable.contains(&key) {
            return;
        }
        if self.unreadable.len() == UNREADABLE_MAX {
            self.unreadable.retain(|&key| is_unreadable(blocks, key));
        }
        if self.unreadable.len() < UNREADABLE_MAX {
            self.unreadable.push(key);
        }
    }
}

fn is_unreadable(blocks: &Blocks, key: BlockKey) -> bool {
    let still = |e: &Entry| e.has(UNREADABLE) || e.lost_on_flash() != 0;
    blocks.find(key).is_some_and(|id| still(&blocks[id]))
}
