//! A shard: a part of the blocks, and the state of each of them.
//!
//! [`Tiers`] knows where blocks are, and moves them. It evaluates the pieces of requests, which end
//! in `pieces.rs`; transfers end in `complete.rs`. [`Destager`] writes dirty records from flash to
//! the backing stores. Each of their parts has private fields and its own file.
//!
//! [`Shard`] has methods only for pieces that wait, and for operations that need several parts. For
//! the rest, its callers address the part: `shard.destager` cleans, `shard.tiers.dram` knows which
//! blocks memory holds.
//!
//! **One transfer a block.** At most one transfer *holds* a block at any time. Any other access to
//! the block then waits, unless it can be answered from granules that the transfer does not change.
//! There is one exception: while a newer record of the block is appended, the older one can be
//! destaged (`stretch.rs`) or carried on (`carry.rs`). Such a transfer names the record by its
//! position, and ends without effect if the position has changed. When a transfer ends, each
//! waiting piece is *evaluated again* from the block's state: it is done, or it starts the one next
//! transfer that brings it closer. There are no continuations, so there is no state in which a race
//! could be forgotten:
//!
//! - two reads of a missing block share one fetch, because the second waits for the first's;
//! - a frame under an outgoing transfer is never written, because the write waits;
//! - a destage, an append and a direct write of one block cannot overtake each other.
//!
//! Consecutive blocks of one request that need the same kind of transfer share one, a *run*.

mod blocks;
mod check;
mod complete;
mod destager;
mod dram;
mod flash_tier;
pub(crate) mod flush;
mod frames;
mod granularity;
pub(crate) mod index;
mod log_access;
mod piece;
mod pieces;
mod recover;
mod tiers;
mod transfer;
mod transfers;
mod waiting_pieces;

use forebay_block::Nanos;
use forebay_effect::{EffectQueue, Outcome};
use forebay_flash::{BlockKey, Position, RegionIndex};

use crate::budget::CallBudget;
use crate::config::CacheConfig;
use crate::flash_condition::FlashCondition;
use crate::front::Front;
use crate::load::{Loads, Source};
use crate::place::{BlockPlaces, Moment, place, place_bypassed};
use crate::slab::{Key, RequestIndex};
use crate::stats::CacheStats;
use crate::volume::LogBypass;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;
use crate::world::Mode;
pub(crate) use blocks::{FlashRecord, RegionMove, entry};
pub(crate) use check::check_blocks;
use destager::Destager;
pub(crate) use destager::owed;
pub(crate) use destager::{CarryState, JobState, Target};
pub(crate) use entry::EntryId;
pub(crate) use flash_tier::{Forgotten, MoveState};
pub(crate) use log_access::LogAccess;
pub(crate) use piece::{Once, Piece};
pub(crate) use pieces::Evaluated;
use recover::ShardRecovery;
use tiers::PieceStep;
pub(crate) use tiers::Tiers;
use waiting_pieces::WaitingPieces;

/// The parts of the world that a shard needs during one call.
pub(crate) struct ShardContext<'a> {
    pub config: &'a CacheConfig,
    pub flash: &'a FlashCondition,
    pub mode: &'a Mode,
    pub front: &'a mut Front,
    pub volumes: &'a mut Volumes,
    pub loads: &'a mut Option<Loads>,
    pub log: LogAccess<'a>,
    pub effects: &'a mut EffectQueue,
    pub stats: &'a mut CacheStats,
    pub budget: &'a mut CallBudget,
    pub now: Nanos,
}

impl ShardContext<'_> {
    /// Data may bypass the log only once the log has noted this. If it has not, requests the note,
    /// and returns what the piece must do.
    #[must_use]
    pub fn wait_for_log_bypass(&mut self, key: BlockKey) -> Option<PieceStep> {
        let volume = key.volume();
        let log_bypass = &mut self.volumes[volume].log_bypass;
        match (*log_bypass, self.log.get_mut()) {
            (LogBypass::Allowed, _) | (_, None) => None,
            // A failed log can note nothing. Under these policies it need not: the store has all
            // data.
            _ if self.flash.is_closed() && !self.config.write_policy.write_back => None,
            _ if self.flash.is_without(key) => None,
            // The superblock that voids the records also notes the bypass.
            _ if self.flash.is_closed() && self.flash.awaits_void => Some(PieceStep::Parked),
            // The log has failed or was given up, and cannot note anything. Clients continue; if
            // the store is also rolled back afterwards, that is a second fault.
            _ if self.flash.is_closed() => None,
            (LogBypass::Requested, _) => Some(PieceStep::NoRoom),
            (LogBypass::Forbidden, Some(log)) => {
                *log_bypass = LogBypass::Requested;
                log.note_bypass(volume);
                self.stats.log_bypasses += 1;
                Some(PieceStep::NoRoom)
            }
        }
    }

    /// The places of a block, by the policies in force.
    pub fn place(&self, moment: Moment) -> BlockPlaces {
        let CacheConfig { relation, write_policy, acknowledge, .. } = *self.config;
        place(moment, relation, write_policy, acknowledge)
    }

    /// The places of the block of a piece.
    pub fn place_for(&self, piece: &Piece, moment: Moment) -> BlockPlaces {
        match self.front.requests[piece.request].bypass {
            true => place_bypassed(moment),
            false => self.place(moment),
        }
    }

    /// Notes that `count` pieces of a request have ended.
    pub fn pieces_done(&mut self, request: RequestIndex, count: u32, result: Outcome) {
        self.front.pieces_done(self.volumes, request, count, result);
    }

    /// Notes that a read begins.
    pub fn read_begins(&mut self, source: Source) {
        if let Some(loads) = self.loads {
            loads.begin(source, self.now);
        }
    }

    /// Notes that a read ends.
    pub fn read_ends(&mut self, source: Source) {
        if let Some(loads) = self.loads {
            loads.end(source, self.now);
        }
    }

    /// Whether writes of the block end in the cache.
    pub fn writes_back(&self, key: BlockKey) -> bool {
        self.config.write_policy.write_back && !self.flash.is_without(key)
    }
}

/// A shard; see the module documentation.
#[derive(Debug)]
pub(crate) struct Shard {
    number: u8,
    pub tiers: Tiers,
    waiting: WaitingPieces,
    pub destager: Destager,
    pub recovery: ShardRecovery,
}

/// Most blocks that are remembered as unreadable.
pub(crate) const UNREADABLE_MAX: usize = 64;

impl Shard {
    pub fn new(config: &CacheConfig, number: u8) -> Self {
        let tiers = Tiers::new(config, number);
        Shard {
            number,
            waiting: WaitingPieces::new(config.waiters_max),
            destager: Destager::new(config, tiers.transfers.bounces()),
            recovery: ShardRecovery::default(),
            tiers,
        }
    }

    pub fn add_volume(&mut self, priority: u8) {
        self.tiers.blocks.add_volume();
        self.tiers.dram.add_volume(priority);
        self.tiers.flushes.add_volume();
    }

    /// Sets the shard's share of the blocks of DRAM.
    pub fn set_dram_blocks(&mut self, blocks: u32, shards: u32) {
        let own = blocks / shards + u32::from(u32::from(self.number) < blocks % shards);
        self.tiers.dram.set_capacity(own);
    }

    /// Stops fetching lines ahead, and stops queues from choosing blocks.
    pub fn stop_lines(&mut self) {
        self.tiers.lines.stop();
        if let Some(queues) = self.tiers.flash.queues() {
            queues.stop();
        }
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

    /// Whether no transfer is in progress and no piece waits.
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
            "{flash}\nshard {}: {} blocks, {} frames and {} bounce frames free, {} of {} resident, \
             {} pieces waiting, destager {:?}, in flight {transfers:#?}",
            self.number,
            self.tiers.blocks.len(),
            self.tiers.blocks.frames_free(),
            self.tiers.transfers.bounces_free(),
            self.tiers.dram.len(),
            self.tiers.dram.capacity(),
            self.waiting.in_use(),
            self.destager.describe()
        )
    }

    // ---- flash ----

    /// Called when a record is durably forgotten.
    pub fn unmapped(&mut self, context: &mut ShardContext<'_>, key: BlockKey, position: Position) {
        let Some(id) = self.tiers.blocks.find_at(key, position) else { return };
        if self.tiers.flash.is_unmapping(id) {
            self.tiers.flash.set_record(&mut self.tiers.blocks, context, id, None);
            self.tiers.forget_if_empty(context, id);
        }
    }

    /// The region is free: nothing may refer to it any more. Forgets its records within the budget
    /// of the call.
    pub fn forget_region(
        &mut self,
        context: &mut ShardContext<'_>,
        region: RegionIndex,
    ) -> Forgotten {
        let Tiers { flash, blocks, .. } = &mut self.tiers;
        let (forgotten, room) = flash.forget_region(blocks, context, region);
        if room {
            self.tiers.room.note();
        }
        forgotten
    }

    /// Whether a record in the region, of volumes other than these, is dirty and can be destaged.
    pub fn region_is_dirty_but(&self, region: RegionIndex, volumes: VolumeSet) -> bool {
        let other =
            |e: &entry::Entry| !e.owed().is_empty() && !e.is_unreadable() && !volumes.has(e.key());
        self.tiers.blocks.region_has_dirty(region, other)
    }

    // ---- all blocks, step by step ----

    /// Drops what is cached of these volumes, all of it clean and idle, looking at `count`
    /// entries from `from` on. Returns where to continue, or `None` at the end.
    pub fn drop_clean(
        &mut self,
        context: &mut ShardContext<'_>,
        volumes: VolumeSet,
        from: EntryId,
        count: u32,
    ) -> Option<EntryId> {
        let end = self.tiers.blocks.capacity().min(from.number().saturating_add(count));
        for id in (from.number()..end).map(EntryId::new) {
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
            self.tiers.forget_if_empty(context, id);
        }
        (end < self.tiers.blocks.capacity()).then_some(EntryId::new(end))
    }

    /// Forgets records of volumes without flash, looking at `count` entries from `from` on. Returns
    /// where to continue, or `None` at the end. A block with a transfer keeps its record, which is
    /// forgotten when the block is written.
    pub fn drop_void(
        &mut self,
        context: &mut ShardContext<'_>,
        from: EntryId,
        count: u32,
    ) -> Option<EntryId> {
        let end = self.tiers.blocks.capacity().min(from.number().saturating_add(count));
        for id in (from.number()..end).map(EntryId::new) {
            let e = &self.tiers.blocks[id];
            if !e.is_vacant() && context.flash.is_without(e.key()) && e.transfer().is_none() {
                self.tiers.flash.forget_record(&mut self.tiers.blocks, context, id);
                self.tiers.forget_if_empty(context, id);
            }
        }
        self.tiers.room.note();
        (end < self.tiers.blocks.capacity()).then_some(EntryId::new(end))
    }
}
