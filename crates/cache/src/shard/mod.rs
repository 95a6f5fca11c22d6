//! A shard: the index, the DRAM frames and the state of each block.
//!
//! **One transfer a block.** At most one device operation is under way on a block at any time;
//! whatever else touches the block then waits, unless it can be answered from granules that
//! the transfer does not change. When a transfer ends, each waiting piece is *evaluated anew*
//! from the block's state: it is done, or it starts the one next transfer that brings it
//! closer. There are no continuations, so there is no state in which a race could be forgotten:
//!
//! - two reads of a missing block share one fetch, because the second waits for the first's;
//! - a frame under an outgoing transfer is never written, because the write waits;
//! - a destage, an append and a direct write of one block cannot overtake each other.
//!
//! Consecutive blocks of one request that need the same kind of transfer share one (a *run*).

mod blocks;
mod carry;
mod clean;
mod complete;
mod destage;
mod dram;
mod evict;
mod flash_tier;
mod granules;
mod past;
mod read;
mod recover;
mod regions;
mod room;
mod transfer;
mod transfers;
mod waiting;
mod write;

use forebay_block::Op;
use forebay_effect::{Effect, EffectQueue, IoError, Place, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Log, Position};

use crate::allocation::Held;
use crate::config::CacheConfig;
use crate::flash_replacement::FlashReplacement;
use crate::frames::Frame;
use crate::frames::Frames;
use crate::front::Front;
use crate::index::EntryId;
use crate::policy::{Acknowledge, Partial, WritePolicy};
use crate::slab::Slab;
use crate::stats::CacheStats;
use crate::waiters::Piece;
use blocks::{Blocks, FlashRecord};
pub(crate) use carry::{CarryState, Owed};
pub(crate) use clean::{Job, JobState, Target};
use destage::Stretch;
use dram::Dram;
pub(crate) use evict::FlushState;
use flash_tier::FlashTier;
pub(crate) use flash_tier::MoveState;
use recover::Recovery;
use transfer::Kind;
use transfers::Transfers;
use waiting::Waiting;

/// What a shard needs of its surroundings during one call.
pub(crate) struct ShardContext<'a> {
    pub front: &'a mut Front,
    pub log: Option<&'a mut Log>,
    pub effects: &'a mut EffectQueue,
    pub stats: &'a mut CacheStats,
}

/// What became of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Done, well or badly.
    Done(Result<(), IoError>),
    /// It waits, or a transfer answers for it.
    Pending,
    /// Nothing has happened: no room for a waiter. Try again later.
    Full,
}

/// How an evaluation of a piece ended.
enum Step {
    Done(Result<(), IoError>),
    /// Evaluate again when the transfer ends.
    Wait(u32),
    /// Done when the transfer (an append) ends well.
    Applied(u32),
    /// The transfer answers for the piece.
    Joined,
    /// Evaluate again when there is a frame, an index entry, or a transfer to be had.
    NoRoom,
    /// Evaluate again when records are void.
    Parked,
}

/// A volume's bit among those of a set of volumes: one each for the first 63; all others share one.
fn volume_bit(key: BlockKey) -> u64 {
    1 << key.volume().min(63)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    number: u8,
    blocks: Blocks,
    dram: Dram,
    transfers: Transfers,
    waiting: Waiting,
    /// Something became free since those that wait for room were last tried.
    room: bool,
    flash: FlashTier,
    /// Entries that wait for a bounce frame to be destaged are simply retried by the job.
    job: Option<Job>,
    /// Blocks whose record is being carried on.
    carries: Vec<BlockKey>,
    /// One of them could not be read.
    carry_unread: bool,
    /// Those of them that are being read.
    carry_reads: u32,
    /// By volume: dirty blocks that the flush under way covers, and transfers it waits for.
    flushes: Vec<ShardFlush>,
    policy: WritePolicy,
    acknowledge: Acknowledge,
    partial: Partial,
    /// Failed destages in a row, without a flash tier.
    destages_failed: u32,
    destage_depth: u32,
    /// The records that the job under way is about, by address.
    scratch: Vec<(BlockKey, Position)>,
    recovery: Recovery,
    stretches: Slab<Stretch>,
    stretch_scratch: Vec<(EntryId, bool, Option<Frame>)>,
    segments_scratch: Vec<Segment>,
}

/// Most blocks that are remembered as unreadable.
pub(crate) const UNREADABLE_MAX: usize = 64;

/// Failed destages in a row after which a request that needs room is told so.
const DESTAGES_FAILED_MAX: u32 = 3;

/// A shard's part in the flush of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct ShardFlush {
    active: bool,
    /// What became dirty up to this number is covered.
    until: u64,
    /// Blocks to wait for.
    waiting: u32,
    failed: bool,
}

impl Shard {
    pub fn new(config: &CacheConfig, number: u8) -> Self {
        let n = u32::from(config.shards);
        let share = |total: u32| total / n + u32::from(u32::from(number) < total % n);
        let base = |total: u32| {
            (0..u32::from(number)).map(|i| total / n + u32::from(i < total % n)).sum::<u32>()
        };
        let working = config.dram_blocks + config.spare_slots;
        let (frames, bounce) = (share(working), share(config.bounce_slots));
        assert!(share(config.dram_blocks) > 0, "each shard needs at least one DRAM block");
        assert!(frames > share(config.dram_blocks), "each shard needs a spare frame");
        assert!(bounce > 0, "each shard needs a bounce frame");
        assert!(config.transfers_spare > 0, "blocks without a frame need a transfer");
        let in_slots = config.flash.as_ref().filter(|f| f.geometry.slots != 0);
        let entries = match in_slots {
            // Any shard may have all cells beyond the accounting.
            Some(f) => share(f.blocks) + (f.entries_max - f.blocks),
            None => share(config.flash.as_ref().map_or(0, |f| f.entries_max)),
        };
        let entries = entries + frames + 1;
        let flash_replacement = in_slots.map(|f| FlashReplacement::new(share(f.blocks), entries));
        let region_blocks = config.flash.as_ref().map_or(0, |f| f.geometry.region_pages);
        Shard {
            number,
            blocks: Blocks::new(config, entries, Frames::new(base(working), frames, 0)),
            dram: Dram::new(frames, share(config.dram_blocks), &config.replacement),
            transfers: Transfers::new(
                number,
                frames,
                Frames::new(working + base(config.bounce_slots), bounce, 0),
                config.transfers_spare,
            ),
            waiting: Waiting::new(config.waiters_max),
            room: false,
            flash: FlashTier::new(
                number,
                config.flash.as_ref(),
                entries - frames - 1,
                flash_replacement,
            ),
            job: None,
            carries: Vec::new(),
            carry_unread: false,
            carry_reads: 0,
            flushes: Vec::new(),
            policy: config.write_policy,
            acknowledge: config.acknowledge,
            partial: config.partial,
            destages_failed: 0,
            destage_depth: config.destage_depth.min(bounce),
            scratch: Vec::with_capacity(region_blocks as usize),
            recovery: Recovery::default(),
            stretches: Slab::new(config.destage_depth),
            stretch_scratch: Vec::with_capacity(64),
            segments_scratch: Vec::with_capacity(64),
        }
    }

    pub fn add_volume(&mut self) {
        self.blocks.add_volume();
        self.flushes.push(ShardFlush::default());
    }

    pub fn set_policy(&mut self, policy: WritePolicy, acknowledge: Acknowledge) {
        (self.policy, self.acknowledge) = (policy, acknowledge);
    }

    /// Whether a record that is called dirty is on its way to the log.
    pub fn appends_dirty(&self) -> bool {
        let dirty = |t| matches!(t, Kind::Append { dirty, .. } if dirty != 0);
        self.transfers.iter().any(|t| dirty(t.kind))
    }

    /// Nothing goes to the log any more: who waits for room hears of that.
    pub fn log_gave_up(&mut self) {
        self.flash.fail_log();
        self.room = true;
    }

    /// Blocks with dirty data in DRAM.
    pub fn dirty_in_memory(&self) -> u64 {
        self.blocks.dirty_in_memory()
    }

    pub fn dram_blocks(&self) -> u32 {
        self.dram.capacity()
    }

    /// Takes its share of the blocks of DRAM.
    pub fn set_dram_blocks(&mut self, blocks: u32, shards: u32) {
        let own = blocks / shards + u32::from(u32::from(self.number) < blocks % shards);
        self.dram.set_capacity(own);
    }

    /// Accesses that the replacement policy of memory has been told of.
    pub fn told(&self) -> u64 {
        self.dram.told()
    }

    pub fn memory_bytes(&self) -> u64 {
        self.blocks.memory_bytes() + self.dram.memory_bytes() + self.flash.memory_bytes()
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
        self.recovery.record((&mut self.blocks, &mut self.flash), context, key, record);
    }

    /// What the newest record of a block so far, if there is one, says is dirty.
    pub fn recovered_dirty(&self, key: BlockKey) -> u16 {
        self.recovery.dirty(&self.blocks, key)
    }

    /// A tombstone found by recovery.
    pub fn recovered_tombstone(&mut self, context: &mut ShardContext<'_>, key: BlockKey) {
        let tiers = (&mut self.blocks, &mut self.flash);
        self.room |= self.recovery.tombstone(tiers, context, key);
    }

    /// Recovery has given all it found. Adds to `left` the blocks whose clean records find no place in
    /// the index; gives the number of dirty ones that do not.
    pub fn place_spilled(
        &mut self,
        context: &mut ShardContext<'_>,
        left: &mut Vec<BlockKey>,
    ) -> u64 {
        self.recovery.place_spilled((&mut self.blocks, &mut self.flash), context, left)
    }

    /// Recovery has given all records, and they have their places.
    pub fn flash_ready(&mut self, context: &mut ShardContext<'_>) {
        self.flash.evict(&self.blocks, &self.transfers, context);
    }

    /// Blocks in memory whose dirty record is kept; 0 in other layouts than slots.
    pub fn dirty_copies(&self) -> u64 {
        self.flash.dirty_copies()
    }

    /// Whether nothing on flash can give way: all of it is dirty and cannot be read.
    pub fn is_exhausted(&self) -> bool {
        self.flash.is_exhausted()
    }

    /// Whether the cleaner should bring the coldest blocks to their backing stores.
    pub fn owes_cleaning(&self) -> bool {
        self.flash.wants_destage()
    }

    /// The stores of these volumes (bits) fail: what is dirty of them does not give way on flash.
    pub fn set_failing(&mut self, context: &mut ShardContext<'_>, volumes: u64) {
        self.flash.set_failing(&self.blocks, &self.transfers, context, volumes);
    }

    /// A record is durably forgotten.
    pub fn unmapped(&mut self, context: &mut ShardContext<'_>, key: BlockKey, position: Position) {
        let Some(id) = self.blocks.find_at(key, position) else { return };
        if self.flash.is_unmapping(id) {
            self.flash.set_record(&mut self.blocks, context, id, None);
            self.forget_if_empty(id);
        }
    }

    /// Number of mappings in a region.
    pub fn region_entries(&self, region: u32) -> u64 {
        self.flash.blocks_of(&self.blocks, region).count() as u64
    }

    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, context: &mut ShardContext<'_>, region: u32) {
        self.flash.move_begin(&self.blocks, context, region);
    }

    /// Pushes the moves on.
    pub fn move_step(&mut self, context: &mut ShardContext<'_>) -> MoveState {
        self.flash.move_step(&self.blocks, context)
    }

    /// A mapping stands in another region.
    pub fn moved(&mut self, key: BlockKey, position: Position, regions: (u32, u32), good: bool) {
        self.flash.moved(&mut self.blocks, key, position, regions, good);
    }

    /// Blocks whose newest data cannot be read from flash: at most [`UNREADABLE_MAX`] of those that
    /// cleaning has met, without those that were written anew since.
    pub fn unreadable(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.flash.unreadable(&self.blocks)
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.transfers.in_use() == 0 && self.waiting.in_use() == 0
    }

    pub fn describe(&self) -> String {
        let transfers: Vec<_> =
            self.transfers.iter().map(|t| format!("{:?} {}+{}", t.kind, t.key, t.count)).collect();
        let flash = self.flash.describe(&self.blocks);
        format!(
            "{flash}\nshard {}: {} blocks, {} frames and {} bounce frames free, {} of {} resident, {} pieces wait, \
             job {:?}, under way {transfers:#?}",
            self.number,
            self.blocks.len(),
            self.blocks.frames_free(),
            self.transfers.bounces_free(),
            self.dram.len(),
            self.dram.capacity(),
            self.waiting.in_use(),
            self.job
        )
    }

    /// Starts loading what an access to `key` will look at first.
    pub fn prefetch(&self, key: BlockKey) {
        self.blocks.prefetch(key);
    }

    /// Starts loading what an access to `key` will look at next.
    pub fn prefetch_entry(&self, key: BlockKey) {
        self.blocks.prefetch_entry(key);
    }

    /// Starts loading what the end of a transfer will look at, first or (`near`) next.
    pub fn prefetch_transfer(&self, t: u32, near: bool) {
        if let Some(transfer) = self.transfers.get(t) {
            if near { self.prefetch_entry(transfer.key) } else { self.prefetch(transfer.key) }
        }
    }

    /// Whether it is certain that nothing is held of all the blocks of the extent of `key`.
    pub fn has_nothing_near(&self, key: BlockKey) -> bool {
        self.blocks.is_extent_empty(key)
    }

    /// Where in a block the first of these granules is that lies wholly behind the end of the volume.
    pub fn beyond(&self, context: &ShardContext<'_>, key: BlockKey, granules: u16) -> Option<u64> {
        self.blocks.granules().beyond(context, key, granules)
    }

    /// What is held of a block.
    pub fn held(&self, key: BlockKey) -> Held {
        self.blocks.held(key)
    }

    /// Gives the runs being collected to the driver.
    pub fn close_runs(&mut self, context: &mut ShardContext<'_>) {
        self.transfers.close_runs(context);
    }

    /// Makes the open run, if it zeroes for `request` and ends where `key` begins, longer by as many
    /// of `blocks` whole blocks as are known to be neither cached nor in another range; says how many.
    pub fn zero_further(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        request: u32,
        blocks: u32,
    ) -> u32 {
        self.transfers.zero_further(&self.blocks, context, key, request, blocks)
    }

    /// Whether there is a place for another piece that has to wait.
    #[inline]
    pub fn has_place(&self) -> bool {
        !self.waiting.is_full()
    }

    /// A piece of a request arrives. The caller ends its calls with [`Shard::close_runs`].
    pub fn access(&mut self, context: &mut ShardContext<'_>, piece: Piece) -> Access {
        if self.waiting.is_full() {
            return Access::Full;
        }
        let mut piece = piece;
        let step = self.evaluate(context, &mut piece);
        self.settle_piece(context, piece, step, None)
    }

    /// Evaluates a waiter anew; false when it went back to the starved.
    pub(super) fn try_again(&mut self, context: &mut ShardContext<'_>, waiter: u32) -> bool {
        let mut piece = self.waiting.piece(waiter);
        let step = self.evaluate(context, &mut piece);
        let starved = matches!(step, Step::NoRoom);
        if let Access::Done(result) = self.settle_piece(context, piece, step, Some(waiter)) {
            context.front.pieces_done(piece.request, 1, result);
            return true;
        }
        !starved
    }

    fn settle_piece(
        &mut self,
        context: &mut ShardContext<'_>,
        piece: Piece,
        step: Step,
        waiter: Option<u32>,
    ) -> Access {
        let applied = matches!(step, Step::Applied(_));
        let list = match step {
            Step::Done(_) | Step::Joined => {
                if let Some(w) = waiter {
                    self.waiting.remove(w);
                }
                return match step {
                    Step::Done(result) => Access::Done(result),
                    _ => Access::Pending,
                };
            }
            Step::Wait(t) | Step::Applied(t) => {
                context.stats.waits_block += u64::from(!applied);
                let appending = matches!(self.transfers[t].kind, Kind::Append { .. });
                if let (true, false, Some(log)) = (appending, applied, context.log.as_deref_mut()) {
                    // Somebody waits for a block that stands in an open batch.
                    log.close_batch();
                }
                Some(t)
            }
            Step::Parked => {
                context.stats.waits_void += 1;
                let w = self.waiting.note(waiter, piece, false);
                self.waiting.park(w);
                return Access::Pending;
            }
            Step::NoRoom => {
                if self.is_stuck(context) && !self.flash.is_holding() {
                    // Nothing is on its way out and nothing can leave: say so, do not hang.
                    if let Some(w) = waiter {
                        self.waiting.remove(w);
                    }
                    // The next one tries again.
                    self.destages_failed = 0;
                    return Access::Done(Err(IoError::Device));
                }
                context.stats.waits_room += 1;
                if let Some(log) = context.log.as_deref_mut() {
                    log.close_batch();
                    if self.blocks.is_full() {
                        log.reclaim();
                    }
                }
                None
            }
        };
        let w = self.waiting.note(waiter, piece, applied);
        match list {
            Some(t) => self.waiting.push_back(&mut self.transfers[t].waiters, w),
            None => {
                // What was free before did not help it.
                self.room &= self.waiting.is_any_starved();
                self.waiting.starve(w);
            }
        }
        Access::Pending
    }

    fn evaluate(&mut self, context: &mut ShardContext<'_>, piece: &mut Piece) -> Step {
        let (op, volume) = {
            let r = &context.front.requests[piece.request];
            (r.op, r.volume)
        };
        let key = BlockKey::new(volume, piece.block);
        let step = match op {
            Op::Read => self.read(context, key, piece),
            Op::Write if self.writes_back(key) => self.write_back(context, key, piece, op),
            Op::Write => self.write_direct(context, key, piece, op),
            Op::Trim | Op::WriteZeroes => self.zero(context, key, piece, op),
            Op::Flush => unreachable!("a flush has no pieces"),
        };
        // A block that had given way on flash may count again: another gives way at once, since
        // what has just been started may wait for its cell.
        self.flash.evict(&self.blocks, &self.transfers, context);
        step
    }

    // ---- places ----

    fn request_place(&self, context: &ShardContext<'_>, piece: &Piece) -> Place {
        let r = &context.front.requests[piece.request];
        let at = (piece.block << self.blocks.granules().block_shift()) + u64::from(piece.start)
            - r.offset;
        Place::Request { request: r.id, offset: at as u32 }
    }

    // ---- entries, frames, regions ----

    /// Makes sure that the entry has a frame, for `piece`; false when there is none to be had.
    fn ensure_frame(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
    ) -> bool {
        if self.blocks[id].frame().is_some() {
            return true;
        }
        let taken = match self.blocks.take_frame(id) {
            Some(frame) => Some(frame),
            None => {
                // Nothing is on its way out, so nobody else would make room either.
                // (What is clean can leave though the log takes nothing.)
                if self.transfers.in_use() == 0 && self.destages_failed < DESTAGES_FAILED_MAX {
                    self.push_out(context);
                }
                self.blocks.take_frame(id)
            }
        };
        let Some(frame) = taken else { return false };
        self.flash.forget_residence(&self.blocks, id);
        let (key, size) = (self.blocks[id].key(), self.blocks.granules().block_size());
        self.make_room(context, Some(key));
        self.blocks[id].set_frame(Some(frame));
        self.dram.enter_for(self.blocks.local(frame), key, piece);
        self.flash.update_residence(&self.blocks, id, true);
        let bytes = self.blocks.granules().bytes_within(context, key);
        if bytes < size {
            // The part past the volume's end is zeroes, so that payloads are well defined.
            let to = Place::Slot { slot: frame, offset: bytes };
            context.effects.push(Effect::Zero { to, length: size - bytes });
        }
        true
    }

    /// A client's access found the block, perhaps on its way out.
    fn used(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: &mut Piece,
    ) {
        self.rescue(context, id, frame);
        let again = context.front.sabotage.is(Bug::PolicyToldTwice);
        self.dram.used(self.blocks.local(frame), piece, again);
    }

    /// A block that is leaving, and is wanted again, stays.
    fn rescue(&mut self, context: &mut ShardContext<'_>, id: EntryId, frame: Frame) {
        if self.blocks[id].has(crate::index::LEAVING) {
            self.blocks[id].clear(crate::index::LEAVING);
            context.stats.rescued += 1;
            self.flash.forget_residence(&self.blocks, id);
            self.make_room(context, None);
            self.dram.restore(self.blocks.local(frame));
            self.flash.update_residence(&self.blocks, id, true);
        }
    }

    fn release_frame(&mut self, id: EntryId) {
        let e = &mut self.blocks[id];
        let frame = e.frame().expect("a frame to release");
        assert!(e.dirty == 0, "a dirty frame released");
        let (leaving, listed) = (e.has(crate::index::LEAVING), e.has(crate::index::IN_DIRTY_LIST));
        debug_assert!(!listed);
        e.set_frame(None);
        e.valid = 0;
        e.clear(crate::index::LEAVING);
        if !leaving {
            self.dram.remove(self.blocks.local(frame));
        }
        self.blocks.free_frame(frame);
        self.flash.update_residence(&self.blocks, id, false);
        self.room = true;
    }

    /// Forgets an entry that holds nothing any more.
    fn forget_if_empty(&mut self, id: EntryId) {
        self.room |= self.flash.forget_if_empty(&mut self.blocks, id);
    }
}
