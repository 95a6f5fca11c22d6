//! Writes and zeroings: into the cache under write-back, to the backing store under write-through and
//! similar policies.
//!
//! These rules keep the flash log consistent. Under write-back every version of a block reaches the
//! log before it reaches the backing store, unless flash has no record of the block and does not
//! admit it, or the block is bypassed. A block without an entry has no record that recovery would
//! accept. A direct write over a block that has a record waits until the extent is durably marked
//! as active, so that the record is not trusted after a crash.

use forebay_block::{Flags, Op};
use forebay_effect::{Effect, IoError, Place, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Granules};

use super::read::HitPlace;
use super::{PieceStep, Tiers};
use crate::byte_range::ByteRange;
use crate::place::{InMemory, Moment, OnFlash};
use crate::policy::{Acknowledge, Partial};
use crate::shard::ShardContext;
use crate::shard::entry::EntryId;
use crate::shard::frames::Frame;
use crate::shard::granularity::ConcernedGranules;
use crate::shard::transfer::{TransferKind, Way};
use crate::shard::transfers::backing;
use crate::shard::{Once, Piece};
use crate::slab::TransferIndex;

impl Tiers {
    /// A write, or a zeroing of a cached block, that ends in the cache.
    pub fn write_back(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        if context.flash.is_closed()
            || self.is_jammed(context) && self.blocks.may_bypass_log(context, key)
        {
            return self.write_bypassing_log(context, key, piece, op);
        }
        let may = op == Op::Write || context.config.relation.has_queues();
        if may && self.admitter().goes_around(context, key, piece) {
            return self.write_direct(context, key, piece, op);
        }
        let concerned = self.blocks.granularity().concerned(piece.start, piece.length);
        let id = match self.blocks.find(key) {
            Some(id) => id,
            None => {
                if let Some(step) = self.write_absent(context, key, piece) {
                    return step;
                }
                let Some(id) = self.blocks.insert(key) else { return PieceStep::NoRoom };
                id
            }
        };
        let step = self.write_entry(context, id, piece, op, concerned);
        self.forget_if_empty(context, id);
        step
    }

    // ---- into an entry ----

    /// A write or zeroing of a block that has an entry.
    fn write_entry(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        op: Op,
        concerned: ConcernedGranules,
    ) -> PieceStep {
        self.count_write(context, piece, id);
        let fua = context.front.requests[piece.request].flags.contains(Flags::FUA);
        if let Some(t) = self.in_the_way(context, id, fua) {
            self.count_met(context, t);
            return PieceStep::Wait(t);
        }
        if let Some(step) = self.take_in_rest(context, id, piece, concerned) {
            return step;
        }
        let at = context.place(Moment::Write);
        let transit = at.memory == InMemory::Transit;
        if !self.ensure_frame(context, id, piece, Moment::Write) {
            return PieceStep::NoRoom;
        }
        let frame = self.blocks[id].frame().expect("just ensured");
        self.fill_frame(context, (id, frame), piece, op, concerned.covered);
        self.blocks.dirtied(context, id, concerned.touched);
        if !transit {
            self.used(context, id, frame, piece);
        }
        match fua || (context.flash.exists() && at.flash == OnFlash::Now) {
            true => self.persist_write(context, id, transit),
            false => PieceStep::Done(Ok(())),
        }
    }

    /// The transfer that a write of the block waits for.
    fn in_the_way(
        &self,
        context: &ShardContext<'_>,
        id: EntryId,
        fua: bool,
    ) -> Option<TransferIndex> {
        let careless = context.mode.sabotage.is(Bug::SlotWrittenUnderSpill)
            && context.config.acknowledge == Acknowledge::Dram
            && !fua;
        let spilling =
            |t: TransferIndex| matches!(self.transfers[t].kind, TransferKind::Append { .. });
        self.blocks[id].transfer().filter(|&t| !(careless && spilling(t)))
    }

    /// Reads what a write needs of the block besides its own bytes: the rest of granules, or of the block.
    /// Returns how the write continues; `None` if it lacks nothing.
    fn take_in_rest(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        ConcernedGranules { touched, covered }: ConcernedGranules,
    ) -> Option<PieceStep> {
        let e = &self.blocks[id];
        let lost = e.lost();
        if !(touched & !covered & lost).is_empty() {
            // The rest of the granule cannot be had.
            return Some(PieceStep::Done(Err(IoError::Corrupt)));
        }
        let missing = !e.valid() & !covered & !lost;
        let hides = context.mode.sabotage.is(Bug::PartialHidesOlder);
        if !(e.flash_valid() & missing).is_empty() && !hides {
            // A newer record replaces the older as a whole: take in what only that one holds.
            return Some(self.read_flash(context, id, piece, Moment::Write));
        }
        let partial_edges = !(touched & missing).is_empty();
        if partial_edges
            || (context.config.partial == Partial::Fill
                && !(self.blocks.granularity().all() & missing).is_empty())
        {
            if partial_edges {
                context.stats.read_modify_writes += piece.once.count(Once::NEEDED_REST);
            }
            return Some(self.fetch(context, id, piece, Moment::Write));
        }
        None
    }

    /// Copies what is written to the block's frame, or zeroes it there.
    fn fill_frame(
        &mut self,
        context: &mut ShardContext<'_>,
        (id, frame): (EntryId, Frame),
        piece: &Piece,
        op: Op,
        covered: Granules,
    ) {
        let to = Place::Frame { frame, offset: piece.start };
        if op == Op::Write {
            let from = piece.place(context);
            context.effects.push(Effect::Copy { from, to, length: piece.length });
        } else if !context.mode.sabotage.is(Bug::TrimLeavesOldData) {
            context.effects.push(Effect::Zero { to, length: piece.length });
        }
        let whole = covered == self.blocks.granularity().all();
        match op {
            Op::Write => self.blocks.set_zeroed(id, false),
            _ if whole => self.blocks.set_zeroed(id, true),
            // What was zeroes stays so.
            _ => {}
        }
    }

    /// The log is to have what was written before it is answered. In `transit`, the block leaves memory with that.
    fn persist_write(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        transit: bool,
    ) -> PieceStep {
        let under_way = self.persist(context, id, true);
        if transit {
            match under_way {
                Some(_) => {
                    self.flash.note_write(&self.blocks, id);
                    self.leave_after_append(id);
                }
                // It stays dirty.
                None if self.blocks[id].is_leaving() => self.readmit(id),
                None => {}
            }
            context.stats.written_in_transit += u64::from(under_way.is_some());
        }
        if transit && context.mode.sabotage.is(Bug::TransitFrameReusedEarly) {
            self.give_frame_away(context, id);
        }
        if transit && context.mode.sabotage.is(Bug::TransitAnsweredEarly) {
            return PieceStep::Done(Ok(()));
        }
        under_way.map_or(PieceStep::Done(Err(IoError::Device)), PieceStep::Applied)
    }

    fn count_write(&mut self, context: &mut ShardContext<'_>, piece: &mut Piece, id: EntryId) {
        let e = &self.blocks[id];
        let on_flash = e.transfer().is_none() && !e.flash_valid().is_empty();
        let late =
            on_flash && !piece.counted && self.flash.is_held_after_eviction(&self.blocks, id);
        context.stats.flash_rescued += u64::from(late);
        let pulled =
            context.config.relation.has_queues() && e.position().is_none() && e.dirty().is_empty();
        let found = match e.transfer().map(|t| self.transfers[t].kind) {
            // It is dropped, wherever it is.
            _ if !context.config.write_policy.allocate_on_write || pulled => HitPlace::Nowhere,
            Some(TransferKind::Fetch | TransferKind::FetchLine) => HitPlace::Delayed,
            Some(TransferKind::FlashRead { .. }) => HitPlace::Tier2,
            _ if e.frame().is_some() => HitPlace::Tier1,
            _ if !e.flash_valid().is_empty() => HitPlace::Tier2,
            _ => HitPlace::Nowhere,
        };
        self.count(context, piece, found, true);
    }

    /// A write waits for this transfer.
    fn count_met(&self, context: &mut ShardContext<'_>, t: TransferIndex) {
        match self.transfers[t].kind {
            TransferKind::Fetch | TransferKind::FetchLine | TransferKind::FlashRead { .. } => {
                context.stats.write_met_fetch += 1
            }
            _ => context.stats.write_met_outgoing += 1,
        }
    }

    // ---- to the backing store ----

    /// A write that has ended when the backing store has it.
    pub fn write_direct(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        let id = match self.blocks.find(key) {
            Some(id) => id,
            None => {
                if let Some(step) = self.write_absent(context, key, piece) {
                    return step;
                }
                if !keeps_direct(context, piece) {
                    let step = self.range(context, key, piece, op != Op::Write);
                    let bypasses =
                        matches!(step, PieceStep::Joined) && through_past(context, piece);
                    context.stats.bypassed_writes += u64::from(bypasses);
                    return step;
                }
                let Some(id) = self.blocks.insert(key) else { return PieceStep::NoRoom };
                id
            }
        };
        self.count_write(context, piece, id);
        let step = match self.blocks[id].transfer() {
            Some(t) => {
                self.count_met(context, t);
                PieceStep::Wait(t)
            }
            None => self.direct(context, id, piece, op),
        };
        self.forget_if_empty(context, id);
        step
    }

    /// A direct write or zeroing over an entry without a transfer.
    fn direct(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        let e = &self.blocks[id];
        if through_past(context, piece) && (e.frame().is_some() || e.position().is_some()) {
            // The cache holds the block, so the write updates it instead of bypassing it. Noted now, because the
            // record becomes void before the write continues.
            piece.around = Some(false);
        }
        let keep = keeps_direct(context, piece);
        let key = self.blocks[id].key();
        if let Some(step) = context.wait_for_log_bypass(key) {
            return step;
        }
        if let Some(step) = self.before_direct(context, id) {
            return step;
        }
        if !(keep && op == Op::Write || self.transfers.may_be_loose()) {
            return PieceStep::NoRoom;
        }
        context.stats.bypassed_writes += u64::from(through_past(context, piece));
        if keep && op == Op::Write {
            if !self.ensure_frame(context, id, piece, Moment::Write) {
                return PieceStep::NoRoom;
            }
            let frame = self.blocks[id].frame().expect("just ensured");
            self.used(context, id, frame, piece);
        }
        self.blocks.set_zeroed(id, false);
        let touched = self.blocks.granularity().concerned(piece.start, piece.length).touched;
        if !keep || op != Op::Write {
            // What the cache holds of the range is outdated from now on, whatever happens.
            self.outdate(id, touched);
        }
        let start = self.blocks.granularity().start_of(key) + u64::from(piece.start);
        let range = ByteRange::with_length(start, piece.length);
        let request = piece.request;
        if op != Op::Write {
            let kind = TransferKind::DirectZero { request };
            let t = self.transfers.start_on(&mut self.blocks, context.volumes, id, kind, range);
            let stats = &mut context.volumes[key.volume()].stats;
            stats.backing_zero_bytes += u64::from(piece.length);
            let punch = context.front.may_punch(request);
            let (token, device) = (self.transfers.token(t), backing(key.volume()));
            let (offset, length) = (start, u64::from(piece.length));
            context.effects.push(Effect::WriteZeroes { token, device, offset, length, punch });
            return PieceStep::Joined;
        }
        let segment = Segment { place: piece.place(context), length: piece.length };
        let kind = TransferKind::DirectWrite { request, pieces: 1, keep };
        let t = self.transfers.run(context, key, range, kind, Some(segment), |k| match k {
            TransferKind::DirectWrite { request: r, pieces, keep: k }
                if *r == request && *k == keep =>
            {
                *pieces += 1;
                true
            }
            _ => false,
        });
        self.blocks[id].set_transfer(Some(t));
        PieceStep::Joined
    }

    /// Trim and write-zeroes. Cached blocks take zeroes as a new version (write-back) or are
    /// zeroed behind the cache; runs of blocks without an entry are zeroed as ranges.
    pub fn zero(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        let careless = context.mode.sabotage.is(Bug::DestageOverDirectWrite);
        let overlooked = |id| careless && self.blocks[id].frame().is_none();
        if self.blocks.find(key).is_some_and(|id| !overlooked(id)) {
            if context.writes_back(key) {
                return self.write_back(context, key, piece, op);
            }
            return self.write_direct(context, key, piece, op);
        }
        if let Some(step) = self.write_absent(context, key, piece) {
            return step;
        }
        self.range(context, key, piece, true)
    }

    /// A write or zeroing finds no entry: counts that, and waits for a range that contains the
    /// block.
    #[must_use]
    pub fn write_absent(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
    ) -> Option<PieceStep> {
        self.count(context, piece, HitPlace::Nowhere, true);
        let t = self.transfers.waiting_range(key)?;
        context.stats.waits_range += 1;
        Some(PieceStep::Wait(t))
    }

    /// A direct write or zeroing of a block without an entry, joined to its neighbours'. Until it
    /// ends, other pieces for the block wait for it.
    pub fn range(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &Piece,
        zero: bool,
    ) -> PieceStep {
        if let Some(step) = context.wait_for_log_bypass(key) {
            return step;
        }
        if !self.transfers.may_be_loose() {
            return PieceStep::NoRoom;
        }
        let start = self.blocks.granularity().start_of(key) + u64::from(piece.start);
        let range = ByteRange::with_length(start, piece.length);
        let request = piece.request;
        let place = piece.place(context);
        let segment = (!zero).then_some(Segment { place, length: piece.length });
        let before = self.transfers.open_run(Way::Direct);
        let kind = TransferKind::Range { request, pieces: 1, zero };
        let t = self.transfers.run(context, key, range, kind, segment, |k| match k {
            TransferKind::Range { request: r, pieces, zero: z } if *r == request && *z == zero => {
                *pieces += 1;
                true
            }
            _ => false,
        });
        if before != Some(t) {
            self.transfers.hold_range(t);
            context.stats.range_zeroes += u64::from(zero);
        }
        PieceStep::Joined
    }

    // ---- bypassing the log ----

    /// A write that the log cannot take goes to the backing store if the block has no record.
    fn write_bypassing_log(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        let Some(id) = self.blocks.find(key) else {
            if let Some(step) = self.write_absent(context, key, piece) {
                return step;
            }
            let step = self.range(context, key, piece, op != Op::Write);
            return count_bypass(step, context);
        };
        match self.blocks[id].transfer() {
            Some(t) => PieceStep::Wait(t),
            None if self.blocks[id].is_bound() => Tiers::await_void(context),
            None => {
                let step = self.write_direct(context, key, piece, op);
                count_bypass(step, context)
            }
        }
    }

    /// The write waits until records are void; if they cannot be declared void, it fails.
    fn await_void(context: &ShardContext<'_>) -> PieceStep {
        match context.flash.awaits_void {
            true => PieceStep::Parked,
            false => PieceStep::Done(Err(IoError::Device)),
        }
    }

    /// What must happen before a direct write of the block, if anything.
    #[must_use]
    fn before_direct(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> Option<PieceStep> {
        let e = &self.blocks[id];
        if context.flash.is_without(e.key()) {
            self.flash.forget_record(&mut self.blocks, context, id);
            let dirty = !self.blocks[id].dirty().is_empty();
            return dirty.then(|| PieceStep::Wait(self.destage(context, id)));
        }
        if context.flash.is_closed() && self.blocks[id].is_bound() {
            return Some(Tiers::await_void(context));
        }
        e.position()?;
        if !self.transfers.may_be_loose() {
            return Some(PieceStep::NoRoom);
        }
        Some(PieceStep::Wait(self.transfers.mark(&mut self.blocks, context, id, true)))
    }
}

/// Counts a write that bypasses the log, once it has begun. Until then, each attempt comes here.
fn count_bypass(step: PieceStep, context: &mut ShardContext<'_>) -> PieceStep {
    context.stats.bypassed_log += u64::from(matches!(step, PieceStep::Joined));
    step
}

/// Whether a write that does not end in the cache bypasses it, as part of a stream.
fn through_past(context: &ShardContext<'_>, piece: &Piece) -> bool {
    context.front.requests[piece.request].bypass
        && !context.config.write_policy.write_back
        && piece.around != Some(false)
}

/// Whether memory keeps what a direct write writes. (Under write-back, `goes_around` has decided which writes bypass
/// the cache.)
fn keeps_direct(context: &ShardContext<'_>, piece: &Piece) -> bool {
    let at = match piece.around {
        Some(false) => context.place(Moment::WriteMiss),
        _ => context.place_for(piece, Moment::WriteMiss),
    };
    at.memory == InMemory::Keep
}
