//! The tiers of a shard, and how blocks move between them: into DRAM, out of it to flash or to the
//! backing store. How an access ends is in `read.rs`, `write.rs` and `write_entry.rs`.
//!
//! Leaving DRAM: by the accounting of the replacement policy a block is gone as soon as the
//! policy names it; physically its frame stays until the data is where it must be.

mod admit;
pub(super) mod leave;
pub(super) mod lines;
pub(super) mod queues;
mod read;
mod write;
mod write_entry;

use forebay_block::Op;
use forebay_effect::{Effect, IoError, Place};
use forebay_flash::BlockKey;
use forebay_flash::sabotage::Bug;

use self::lines::Lines;
use super::ShardContext;
use super::blocks::Blocks;
use super::dram::Dram;
use super::flash_tier::FlashTier;
use super::flush::Flushes;
use super::transfers::Transfers;
use crate::config::{CacheConfig, Written};
use crate::entry::{EntryId, IN_DIRTY_LIST, LEAVING};
use crate::flash_replacement::FlashReplacement;
use crate::frames::{Frame, Frames};
use crate::place::{InMemory, Moment, Placement, Relation, place, place_bypassed};
use crate::policy::{Acknowledge, Partial, WritePolicy};
use crate::returns::Returns;
use crate::waiters::Piece;

/// Failed destages in a row after which a request that needs room fails.
const DESTAGES_FAILED_MAX: u32 = 3;

/// Dirty blocks that cannot leave are put back; this many are tried before giving up.
const VICTIMS_MAX: u32 = 8;

/// How an evaluation of a piece ended.
pub(crate) enum Step {
    Done(Result<(), IoError>),
    /// Evaluate again when the transfer ends.
    Wait(u32),
    /// Done when the transfer (an append) ends well.
    Applied(u32),
    /// The transfer answers for the piece.
    Joined,
    /// Evaluate again: a transfer that would have been waited for has begun and ended.
    Again,
    /// Evaluate again when there is a frame, an index entry, or a transfer to be had.
    NoRoom,
    /// Evaluate again when records are void.
    Parked,
}

/// See the module. The parts keep their own invariants; what is said of several of them holds between
/// calls.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub blocks: Blocks,
    pub dram: Dram,
    pub flash: FlashTier,
    pub transfers: Transfers,
    pub flushes: Flushes,
    policy: WritePolicy,
    acknowledge: Acknowledge,
    partial: Partial,
    relation: Relation,
    written: Written,
    pub lines: Lines,
    /// Something became free since those that wait for room were last tried.
    pub room: bool,
    /// Failed destages in a row, without a flash tier.
    destages_failed: u32,
}

impl Tiers {
    /// Empty tiers.
    ///
    /// # Panics
    /// If the configuration leaves this shard without a DRAM block, a spare or a bounce frame.
    pub fn new(config: &CacheConfig, shard: u8) -> Tiers {
        let n = u32::from(config.shards);
        let share = |total: u32| total / n + u32::from(u32::from(shard) < total % n);
        let base = |total: u32| {
            (0..u32::from(shard)).map(|i| total / n + u32::from(i < total % n)).sum::<u32>()
        };
        let working = config.dram_blocks + config.spare_frames;
        let (frames, bounce) = (share(working), share(config.bounce_frames));
        assert!(share(config.dram_blocks) > 0, "each shard needs at least one DRAM block");
        assert!(frames > share(config.dram_blocks), "each shard needs a spare frame");
        assert!(bounce > 0, "each shard needs a bounce frame");
        assert!(config.transfers_spare > 0, "blocks without a frame need a transfer");
        let in_slots = config.flash.as_ref().filter(|f| f.geometry.slots != 0);
        let on_flash = match in_slots {
            // Any shard may have all cells beyond the accounting.
            Some(f) => share(f.blocks) + (f.entries_max - f.blocks),
            None => share(config.flash.as_ref().map_or(0, |f| f.entries_max)),
        };
        let entries = on_flash + frames + 1;
        let replacement = in_slots.map(|f| {
            let counts = f.give_up_copies || config.dirty_waits();
            let returns = counts.then(|| Returns::new(frames));
            let mut flash = FlashReplacement::new(share(f.blocks), entries, returns, &f.cells);
            flash.gives_up = f.give_up_copies;
            flash
        });
        let bounce = Frames::new(working + base(config.bounce_frames), bounce, 0);
        Tiers {
            blocks: Blocks::new(config, entries, Frames::new(base(working), frames, 0)),
            dram: Dram::new(config, frames, share(config.dram_blocks), on_flash),
            flash: FlashTier::new(shard, config, (on_flash, entries), replacement),
            transfers: Transfers::new(shard, frames, bounce, config.transfers_spare),
            flushes: Flushes::default(),
            policy: config.write_policy,
            acknowledge: config.acknowledge,
            partial: config.partial,
            relation: config.relation,
            written: config.flash.as_ref().map_or(Written::Ask, |flash| flash.written),
            lines: Lines::new(config),
            room: false,
            destages_failed: 0,
        }
    }

    pub fn set_policy(&mut self, policy: WritePolicy, acknowledge: Acknowledge) {
        (self.policy, self.acknowledge) = (policy, acknowledge);
    }

    /// A destage from DRAM has ended, well or not.
    pub fn note_destage(&mut self, good: bool) {
        self.destages_failed = if good { 0 } else { self.destages_failed + 1 };
    }

    /// Who waited for room was told that destages fail: the next one tries again.
    pub fn forget_failed_destages(&mut self) {
        self.destages_failed = 0;
    }

    /// How an access to one block ends, or what it waits for.
    pub fn evaluate(&mut self, context: &mut ShardContext<'_>, piece: &mut Piece) -> Step {
        let (op, volume) = {
            let r = &context.front.requests[piece.request];
            (r.op, r.volume)
        };
        let key = BlockKey::new(volume, piece.block);
        let step = match op {
            Op::Read => loop {
                match self.read(context, key, piece) {
                    Step::Again => {}
                    step => break step,
                }
            },
            Op::Write if self.writes_back(key) => self.write_back(context, key, piece, op),
            Op::Write => self.write_direct(context, key, piece, op),
            Op::Trim | Op::WriteZeroes => self.zero(context, key, piece, op),
            Op::Flush => unreachable!("a flush has no pieces"),
        };
        // A block that had given way on flash may count again: another gives way at once, since
        // what has just been started may wait for its cell.
        self.evict_from_flash(context);
        step
    }

    /// Lets blocks give way until flash holds no more than its size.
    pub fn evict_from_flash(&mut self, context: &mut ShardContext<'_>) {
        self.flash.evict(&self.blocks, &self.transfers, context);
    }

    /// Where a block goes.
    fn place(&self, moment: Moment) -> Placement {
        place(moment, self.relation, self.policy, self.acknowledge)
    }

    /// Where the block of a piece goes.
    fn place_for(&self, context: &ShardContext<'_>, piece: &Piece, moment: Moment) -> Placement {
        match context.front.requests[piece.request].bypass {
            true => place_bypassed(moment),
            false => self.place(moment),
        }
    }

    /// Whether writes to the volume end in the cache.
    fn writes_back(&self, key: BlockKey) -> bool {
        self.policy.write_back && !self.flash.goes_past(key)
    }

    /// No transfer is under way that could make room, and flash takes no more.
    pub fn is_stuck(&self, context: &ShardContext<'_>) -> bool {
        let cannot_leave = self.flash.log_failed() && !self.flash.is_all_past()
            || self.destages_failed >= DESTAGES_FAILED_MAX
            || self.flash.is_hopeless(&self.blocks, context);
        cannot_leave && self.transfers.in_use() == 0
    }

    fn request_place(&self, context: &ShardContext<'_>, piece: &Piece) -> Place {
        let r = &context.front.requests[piece.request];
        let at = (piece.block << self.blocks.granules().block_shift()) + u64::from(piece.start)
            - r.offset;
        Place::Request { request: r.id, offset: at as u32 }
    }

    // ---- into DRAM ----

    /// Makes sure that the entry has a frame, for `piece`, as its relation says; false when there is none
    /// to be had.
    fn ensure_frame(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        moment: Moment,
    ) -> bool {
        // (What a bypassed read needs a frame for, it needs it for that only.)
        let bypassed = moment != Moment::Write && context.front.requests[piece.request].bypass;
        let transit = bypassed || self.place(moment).memory == InMemory::Transit;
        if let Some(frame) = self.blocks[id].frame() {
            if !transit {
                self.keep_passing(context, id, frame, piece);
            }
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
        if transit {
            self.pass(context, id, frame, Some(piece));
            return true;
        }
        self.flash.set_aside(&self.blocks, id);
        let key = self.blocks[id].key();
        if self.blocks[id].position().is_none() {
            self.flash.note_miss(key);
        }
        self.make_room(context, Some(key));
        self.blocks[id].set_frame(Some(frame));
        let known = self.blocks[id].position().is_some();
        self.dram.enter_for(self.blocks.local(frame), key, piece, known);
        self.flash.update_residence(&self.blocks, id, true);
        self.zero_beyond(context, id, frame);
        true
    }

    /// The block has a frame until what it came for has been done.
    fn pass(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: Option<&mut Piece>,
    ) {
        self.blocks[id].set_frame(Some(frame));
        self.blocks[id].set(LEAVING);
        let known = self.blocks[id].position().is_some();
        self.dram.pass(self.blocks.local(frame), self.blocks[id].key(), piece, known);
        self.flash.update_residence(&self.blocks, id, false);
        self.zero_beyond(context, id, frame);
    }

    /// The part of a block past the volume's end is zeroes, so that payloads are well defined.
    fn zero_beyond(&self, context: &mut ShardContext<'_>, id: EntryId, frame: Frame) {
        let size = self.blocks.granules().block_size();
        let bytes = self.blocks.granules().bytes_within(context, self.blocks[id].key());
        if bytes < size {
            let to = Place::Frame { frame, offset: bytes };
            context.effects.push(Effect::Zero { to, length: size - bytes });
        }
    }

    /// For [`Bug::TransitFrameReusedEarly`]: the frame is free though the log has still to take what is in it.
    #[cold]
    fn give_frame_away(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        if self.blocks[id].transfer().is_some() && self.is_passing(id) {
            let was_dirty = self.blocks[id].is_dirty();
            self.blocks[id].dirty = 0;
            self.blocks.count_dirty(id, was_dirty, context.front);
            self.release_frame(id);
        }
    }

    /// A block in memory goes as soon as the append under way has ended.
    fn pass_out(&mut self, id: EntryId) {
        let frame = self.blocks[id].frame().expect("a block that leaves memory has a frame");
        if !self.blocks[id].has(LEAVING) {
            let local = self.blocks.local(frame);
            self.dram.remove(local);
            self.dram.set_passing(local, true);
            self.blocks[id].set(LEAVING);
            self.flash.update_residence(&self.blocks, id, true);
        }
    }

    /// A block that only passes through memory stays there after all, for `piece`.
    fn keep_passing(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: &mut Piece,
    ) {
        let local = self.blocks.local(frame);
        if self.dram.is_passing(local) {
            self.dram.set_passing(local, false);
            self.blocks[id].clear(LEAVING);
            self.flash.set_aside(&self.blocks, id);
            let key = self.blocks[id].key();
            self.make_room(context, Some(key));
            let known = self.blocks[id].position().is_some();
            self.dram.enter_for(local, key, piece, known);
            self.flash.update_residence(&self.blocks, id, true);
        }
    }

    /// Whether the block is in memory only on its way to a client, or to flash.
    pub fn is_passing(&self, id: EntryId) -> bool {
        let frame = self.blocks[id].frame();
        frame.is_some_and(|frame| self.dram.is_passing(self.blocks.local(frame)))
    }

    /// A client's access found the block, perhaps on its way out.
    fn used(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: &mut Piece,
    ) {
        self.keep_passing(context, id, frame, piece);
        self.rescue(context, id, frame);
        let again = context.front.sabotage.is(Bug::PolicyToldTwice);
        self.dram.used(self.blocks.local(frame), self.blocks[id].key(), piece, again);
    }

    /// A block that is leaving, and is wanted again, stays.
    pub fn rescue(&mut self, context: &mut ShardContext<'_>, id: EntryId, frame: Frame) {
        if self.blocks[id].has(LEAVING) {
            self.blocks[id].clear(LEAVING);
            self.dram.take_refusal(self.blocks.local(frame));
            context.stats.rescued += 1;
            context.stats.flash_rescued += u64::from(self.flash.has_given_way(id));
            self.flash.set_aside(&self.blocks, id);
            self.make_room(context, None);
            self.dram.restore(self.blocks.local(frame));
            self.flash.update_residence(&self.blocks, id, true);
        }
    }

    pub fn release_frame(&mut self, id: EntryId) {
        let e = &mut self.blocks[id];
        let frame = e.frame().expect("a frame to release");
        assert!(e.dirty == 0, "a dirty frame released");
        let (leaving, listed) = (e.has(LEAVING), e.has(IN_DIRTY_LIST));
        debug_assert!(!listed);
        e.set_frame(None);
        e.valid = 0;
        e.clear(LEAVING);
        let (key, recorded) = (e.key(), e.position().is_some());
        let local = self.blocks.local(frame);
        self.dram.take_refusal(local);
        if !recorded {
            self.dram.forget(local, key);
        }
        if leaving {
            self.dram.set_passing(local, false);
        } else {
            self.dram.remove(local);
        }
        self.blocks.free_frame(frame);
        self.flash.update_residence(&self.blocks, id, false);
        self.room = true;
    }

    /// Forgets an entry that holds nothing any more.
    pub fn forget_if_empty(&mut self, id: EntryId) {
        self.room |= self.flash.forget_if_empty(&mut self.blocks, id);
    }

    // ---- out of DRAM ----

    /// Makes blocks leave until DRAM has room for one more by its accounting: for `incoming`, if it is
    /// a new one.
    fn make_room(&mut self, context: &mut ShardContext<'_>, incoming: Option<BlockKey>) {
        for _ in 0..VICTIMS_MAX {
            if self.dram.has_room() {
                return;
            }
            self.evict_one(context, incoming);
        }
    }

    /// Makes a block leave though the accounting has room: no frame is free.
    fn push_out(&mut self, context: &mut ShardContext<'_>) {
        for _ in 0..VICTIMS_MAX {
            if self.blocks.frames_free() > 0 || self.transfers.in_use() > 0 {
                return;
            }
            if !self.dram.is_empty() {
                self.evict_one(context, None);
            }
        }
    }

    fn evict_one(&mut self, context: &mut ShardContext<'_>, incoming: Option<BlockKey>) {
        let endless = context.front.sabotage.is(Bug::HandDoesNotEnd);
        let local = self.dram.evict(incoming, endless);
        let id = self.blocks.owner(local);
        self.prefetch_victims();
        self.blocks[id].set(LEAVING);
        if self.flash.is_good() {
            self.flash.update_residence(&self.blocks, id, true);
        }
        if self.blocks[id].transfer().is_none() {
            leave::try_leave(self, context, id);
        }
        self.evict_from_flash(context);
    }

    /// Starts loading what the next victims' leaving will look at, each time a step further.
    fn prefetch_victims(&self) {
        let mut next = self.dram.next_victim(None);
        for steps in 0..2 {
            let Some(frame) = next else { return };
            self.blocks.prefetch_leaving(frame, steps);
            next = self.dram.next_victim(Some(frame));
        }
        let Some(last) = next.and_then(|frame| self.dram.next_victim(Some(frame))) else { return };
        self.blocks.prefetch_leaving(last, 2);
        self.dram.prefetch(last, false);
    }

    /// Starts loading what the replacement policy will look at; `near` when that is imminent.
    pub fn prefetch_policy(&self, key: BlockKey, entry: Option<EntryId>, near: bool) {
        let Some(id) = entry else {
            return self.dram.prefetch_absent(key, near);
        };
        if let Some(frame) = self.blocks[id].frame() {
            self.dram.prefetch(self.blocks.local(frame), near);
        }
    }

    /// Whether the backing store may yet lose what it holds of the block.
    fn owes_sync(&self, context: &ShardContext<'_>, key: BlockKey) -> bool {
        context.front.owes_sync_at(key.volume(), self.blocks.granules().start_of(key))
    }

    /// The block cannot leave: it counts as resident again.
    pub fn readmit(&mut self, id: EntryId) {
        let frame = self.blocks[id].frame().expect("a leaving block has a frame");
        self.blocks[id].clear(LEAVING);
        self.dram.take_refusal(self.blocks.local(frame));
        self.dram.readmit(self.blocks.local(frame), self.blocks[id].key());
        self.flash.update_residence(&self.blocks, id, true);
    }
}
