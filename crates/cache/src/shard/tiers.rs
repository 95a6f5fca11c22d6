//! The tiers of a shard, and how blocks move between them: into DRAM, and from DRAM to flash or to
//! the backing store. `read.rs` and `write.rs` have the accesses.
//!
//! Leaving DRAM: in the accounting of the replacement policy a block is gone as soon as the policy
//! names it. Physically its frame stays until the data is where it must be.

mod admit;
mod entrance;
mod leave;
mod lines;
mod queues;
mod read;
mod room;
mod write;

use forebay_block::Op;
use forebay_effect::IoError;
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Granules, Log};

use self::admit::Admitter;
use self::entrance::Entrance;
use self::lines::Lines;
use self::room::Room;
use super::Piece;
use super::ShardContext;
use super::blocks::Blocks;
use super::dram::Dram;
use super::entry::EntryId;
use super::flash_tier::{FlashTier, IfEvicted};
use super::flush::Flushes;
use super::frames::{Frame, Frames};
use super::transfer::{Transfer, TransferKind};
use super::transfers::Transfers;
use crate::config::CacheConfig;
use crate::flash_condition::Jam;
use crate::place::{InMemory, Moment};
use crate::slab::TransferIndex;

/// Dirty blocks that cannot leave are put back; this many are tried before giving up.
const VICTIMS_MAX: u32 = 8;

/// The result of an evaluation of a piece.
#[must_use]
pub(crate) enum PieceStep {
    Done(Result<(), IoError>),
    /// Evaluate again when the transfer ends.
    Wait(TransferIndex),
    /// Done when the transfer, an append, ends successfully.
    Applied(TransferIndex),
    /// The transfer will answer the piece.
    Joined,
    /// Evaluate again: a transfer that it would have waited for has begun and ended.
    Again,
    /// Evaluate again when a frame, an index entry or a transfer is available.
    NoRoom,
    /// Evaluate again when records are void.
    Parked,
}

/// The sizes of a shard, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSizes {
    /// Frames: for the blocks that memory holds, and the spare ones.
    pub frames: u32,
    /// Blocks that memory holds.
    pub dram_blocks: u32,
    /// Index entries for blocks on flash.
    pub flash_entries: u32,
    /// All index entries.
    pub entries: u32,
}

/// See the module. The parts keep their own invariants; invariants over several parts hold between
/// calls.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub blocks: Blocks,
    pub dram: Dram,
    pub flash: FlashTier,
    pub transfers: Transfers,
    pub flushes: Flushes,
    pub lines: Lines,
    pub room: Room,
    /// The block whose extent has just been marked durably, while its transfer ends: the mark is good for the step
    /// that the block then takes, in the same call.
    pub marked: Option<BlockKey>,
}

impl Tiers {
    /// Empty tiers of a shard, for a configuration that was checked.
    pub fn new(config: &CacheConfig, shard: u8) -> Tiers {
        let share = |total: u32| config.share(shard, total);
        let base = |total: u32| (0..shard).map(|before| config.share(before, total)).sum::<u32>();
        let working = config.dram_blocks + config.spare_frames;
        let (frames, bounce) = (share(working), share(config.bounce_frames));
        let all = config.flash.as_ref().map_or(0, |f| f.entries_max);
        let in_slots = config.flash.as_ref().and_then(|f| f.slots());
        let on_flash = match in_slots {
            // Any shard may have all cells beyond the accounting.
            Some(slots) => share(slots.blocks) + (all - slots.blocks),
            None => share(all),
        };
        let entries = on_flash + frames + 1;
        let dram_blocks = share(config.dram_blocks);
        let sizes = ShardSizes { frames, dram_blocks, flash_entries: on_flash, entries };
        let bounce = Frames::new(working + base(config.bounce_frames), bounce, 0);
        Tiers {
            blocks: Blocks::new(config, entries, Frames::new(base(working), frames, 0)),
            dram: Dram::new(config, sizes),
            flash: FlashTier::new(shard, config, sizes),
            transfers: Transfers::new(shard, frames, bounce, config.transfers_spare),
            flushes: Flushes::default(),
            lines: Lines::new(config),
            room: Room::default(),
            marked: None,
        }
    }

    /// The parts that decide which blocks enter flash.
    fn admitter(&mut self) -> Admitter<'_> {
        let Tiers { blocks, dram, flash, marked, .. } = self;
        Admitter { blocks, dram, flash, marked: *marked }
    }

    /// Fetches the lines that are wanted.
    pub fn fetch_lines(&mut self, context: &mut ShardContext<'_>) {
        let Tiers { lines, blocks, dram, flash, transfers, .. } = self;
        lines.fetch_wanted(&mut Entrance { blocks, dram, flash, transfers }, context);
    }

    /// The parts through which blocks enter memory in transit.
    fn entrance(&mut self) -> Entrance<'_> {
        let Tiers { blocks, dram, flash, transfers, .. } = self;
        Entrance { blocks, dram, flash, transfers }
    }

    /// The result of an access to one block, or what it waits for.
    pub fn evaluate(&mut self, context: &mut ShardContext<'_>, piece: &mut Piece) -> PieceStep {
        let (op, volume) = {
            let r = &context.front.requests[piece.request];
            (r.op, r.volume)
        };
        let key = BlockKey::new(volume, piece.block);
        let step = match op {
            Op::Read => loop {
                match self.read(context, key, piece) {
                    PieceStep::Again => {}
                    step => break step,
                }
            },
            Op::Write if context.writes_back(key) => self.write_back(context, key, piece, op),
            Op::Write => self.write_direct(context, key, piece, op),
            Op::Trim | Op::WriteZeroes => self.zero(context, key, piece, op),
            Op::Flush => unreachable!("a flush has no pieces"),
        };
        // A block that had given way on flash may count again: another gives way at once, since
        // what has just been started may wait for its cell.
        self.evict_from_flash(context);
        step
    }

    /// Evicts blocks from flash until it holds no more than its size.
    pub fn evict_from_flash(&mut self, context: &mut ShardContext<'_>) {
        self.flash.evict(&self.blocks, &self.transfers, context);
    }

    /// No transfer in progress could make room, and flash accepts no more.
    pub fn is_stuck(&self, context: &ShardContext<'_>) -> bool {
        let cannot_leave = context.flash.is_closed() && !context.flash.all_without()
            || self.room.is_hopeless()
            || self.is_hopeless(context);
        cannot_leave && self.transfers.in_use() == 0
    }

    /// Whether the log or the index has no room, and only failing stores can make any.
    pub fn is_jammed(&self, context: &ShardContext<'_>) -> bool {
        context.flash.jam() != Jam::None && self.is_short(context)
    }

    /// Whether that has lasted too long.
    pub fn is_hopeless(&self, context: &ShardContext<'_>) -> bool {
        context.flash.jam() == Jam::Hopeless && self.is_short(context)
    }

    fn is_short(&self, context: &ShardContext<'_>) -> bool {
        self.blocks.is_full() || context.log.get().is_some_and(Log::is_short)
    }

    // ---- into DRAM ----

    /// Ensures that the entry has a frame, for `piece`, as its relation says; false if none is
    /// available.
    fn ensure_frame(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        moment: Moment,
    ) -> bool {
        // A bypassed read needs the frame only until it has been answered.
        let bypassed = moment != Moment::Write && context.front.requests[piece.request].bypass;
        let transit = bypassed || context.place(moment).memory == InMemory::Transit;
        if let Some(frame) = self.blocks[id].frame() {
            if !transit {
                self.keep_if_in_transit(context, id, frame, piece);
            }
            return true;
        }
        let taken = match self.blocks.take_frame(id) {
            Some(frame) => Some(frame),
            None => {
                // No transfer is in progress that could make room later. Clean blocks can leave although the log
                // accepts nothing.
                if self.transfers.in_use() == 0 && !self.room.is_hopeless() {
                    self.push_out(context);
                }
                self.blocks.take_frame(id)
            }
        };
        let Some(frame) = taken else { return false };
        if transit {
            self.entrance().enter_in_transit(context, id, frame, Some(piece));
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
        self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
        self.blocks.zero_beyond(context, id, frame);
        true
    }

    /// For [`Bug::TransitFrameReusedEarly`]: the frame is free although the log has not taken its
    /// data yet.
    #[cold]
    fn give_frame_away(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        if self.blocks[id].transfer().is_some() && self.is_in_transit(id) {
            self.blocks.stored(context, id);
            self.release_frame(id);
        }
    }

    /// A block in memory leaves as soon as the current append has ended.
    fn leave_after_append(&mut self, id: EntryId) {
        let frame = self.blocks[id].frame().expect("a block that leaves memory has a frame");
        if !self.blocks[id].is_leaving() {
            let local = self.blocks.local(frame);
            self.dram.remove(local);
            self.dram.set_in_transit(local, true);
            self.blocks.leaves(id);
            self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
        }
    }

    /// A block that only passes through memory stays there after all, for `piece`.
    fn keep_if_in_transit(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: &mut Piece,
    ) {
        let local = self.blocks.local(frame);
        if self.dram.is_in_transit(local) {
            self.dram.set_in_transit(local, false);
            self.blocks.stays(id);
            self.flash.set_aside(&self.blocks, id);
            let key = self.blocks[id].key();
            self.make_room(context, Some(key));
            let known = self.blocks[id].position().is_some();
            self.dram.enter_for(local, key, piece, known);
            self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
        }
    }

    /// Whether the extent of the block has just been marked: see [`Tiers::marked`].
    fn is_marked(&self, key: BlockKey) -> bool {
        self.marked == Some(key)
    }

    /// Whether the block is in memory only in transit to a client or to flash.
    pub fn is_in_transit(&self, id: EntryId) -> bool {
        let frame = self.blocks[id].frame();
        frame.is_some_and(|frame| self.dram.is_in_transit(self.blocks.local(frame)))
    }

    /// A client's access hit the block, possibly while it was leaving.
    fn used(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: &mut Piece,
    ) {
        self.keep_if_in_transit(context, id, frame, piece);
        self.rescue(context, id, frame);
        let again = context.mode.sabotage.is(Bug::PolicyToldTwice);
        self.dram.used(self.blocks.local(frame), self.blocks[id].key(), piece, again);
    }

    /// A leaving block that is used again stays.
    pub fn rescue(&mut self, context: &mut ShardContext<'_>, id: EntryId, frame: Frame) {
        if self.blocks[id].is_leaving() {
            self.blocks.stays(id);
            self.dram.take_refusal(self.blocks.local(frame));
            context.stats.rescued += 1;
            context.stats.flash_rescued += u64::from(self.flash.has_given_way(id));
            self.flash.set_aside(&self.blocks, id);
            self.make_room(context, None);
            self.dram.restore(self.blocks.local(frame));
            self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
        }
    }

    /// A direct write makes what the frame holds of these granules old or unknown: a frame that then holds nothing
    /// is released.
    pub fn outdate(&mut self, id: EntryId, granules: Granules) {
        self.blocks.outdated(id, granules);
        if self.blocks[id].valid().is_empty() && self.blocks[id].frame().is_some() {
            self.release_frame(id);
        }
    }

    /// The block leaves its frame, which holds nothing dirty.
    pub fn release_frame(&mut self, id: EntryId) {
        let leaving = self.blocks[id].is_leaving();
        let frame = self.blocks.left(id);
        let e = &self.blocks[id];
        let (key, recorded) = (e.key(), e.position().is_some());
        let local = self.blocks.local(frame);
        self.dram.take_refusal(local);
        if !recorded {
            self.dram.forget(local, key);
        }
        if leaving {
            self.dram.set_in_transit(local, false);
        } else {
            self.dram.remove(local);
        }
        self.flash.update_residence(&self.blocks, id, IfEvicted::Leaves);
        self.room.note();
    }

    /// The log has not taken the dirty granules of the block, which stays dirty: a flush that waited for it fails.
    pub fn not_logged(&mut self, id: EntryId) {
        self.flushes.covered(&mut self.blocks, id, false);
        self.blocks.relist_dirty(id);
    }

    /// Forgets an empty entry.
    pub fn forget_if_empty(&mut self, context: &ShardContext<'_>, id: EntryId) {
        if self.flash.forget_if_empty(&mut self.blocks, context, id) {
            self.room.note();
        }
    }

    // ---- out of DRAM ----

    /// Makes blocks leave until DRAM has room for one more by its accounting: for `incoming`, if it
    /// is a new block.
    fn make_room(&mut self, context: &mut ShardContext<'_>, incoming: Option<BlockKey>) {
        for _ in 0..VICTIMS_MAX {
            if self.dram.has_room() {
                return;
            }
            self.evict_one(context, incoming);
        }
    }

    /// Makes a block leave although the accounting has room, because no frame is free.
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
        let endless = context.mode.sabotage.is(Bug::HandDoesNotEnd);
        let local = self.dram.evict(incoming, endless);
        let id = self.blocks.owner(local);
        self.prefetch_victims();
        self.blocks.leaves(id);
        if context.flash.takes_records() {
            self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
        }
        match self.blocks[id].transfer() {
            None => self.try_leave(context, id),
            // It would keep a spare frame until the store answers; when none is left, all volumes wait.
            Some(t) if self.is_late(context, t) => self.readmit(id),
            Some(_) => {}
        }
        self.evict_from_flash(context);
    }

    /// Whether the transfer reads a block from a late store, or writes it to one.
    fn is_late(&self, context: &ShardContext<'_>, t: TransferIndex) -> bool {
        let Transfer { kind, key, .. } = &self.transfers[t];
        let waits_for_store = match kind {
            TransferKind::Fetch
            | TransferKind::FetchLine
            | TransferKind::Destage { .. }
            | TransferKind::DestageRecord { .. }
            | TransferKind::DestageRead { .. }
            | TransferKind::DirectWrite { .. }
            | TransferKind::DirectZero { .. } => true,
            TransferKind::FlashRead { .. }
            | TransferKind::Append { .. }
            | TransferKind::CarryRead { .. }
            | TransferKind::Carry { .. }
            | TransferKind::Range { .. }
            | TransferKind::DirectRead { .. }
            | TransferKind::Activate { .. } => false,
        };
        waits_for_store && context.volumes.conditions.late.volumes().has(*key)
    }

    /// Prefetches the data needed when the next victims leave, one step further each time.
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

    /// Prefetches the data that the replacement policy will access; `near` if that is imminent.
    pub fn prefetch_policy(&self, key: BlockKey, entry: Option<EntryId>, near: bool) {
        let Some(id) = entry else {
            return self.dram.prefetch_absent(key, near);
        };
        if let Some(frame) = self.blocks[id].frame() {
            self.dram.prefetch(self.blocks.local(frame), near);
        }
    }

    /// The block cannot leave: it counts as resident again.
    pub fn readmit(&mut self, id: EntryId) {
        let frame = self.blocks[id].frame().expect("a leaving block has a frame");
        self.blocks.stays(id);
        self.dram.take_refusal(self.blocks.local(frame));
        self.dram.readmit(self.blocks.local(frame), self.blocks[id].key());
        self.flash.update_residence(&self.blocks, id, IfEvicted::Stays);
    }
}
