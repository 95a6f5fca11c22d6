//! Writes and zeroings: into the cache under write-back, to the backing store under write-through and
//! similar policies.
//!
//! These rules keep the flash log consistent. Under write-back every version of a block reaches the
//! log before it reaches the backing store, unless flash has no record of the block and does not
//! admit it, or the block is bypassed. A block without an entry has no record that recovery would
//! accept. A direct write over a block that has a record waits until the extent is durably marked
//! as active, so that the record is not trusted after a crash.

use forebay_block::Op;
use forebay_effect::{Effect, IoError, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{Append, BlockKey};

use super::read::HitPlace;
use super::write_entry::{count_met, write_entry};
use super::{PieceStep, Tiers, leave};
use crate::place::{InMemory, Moment};
use crate::shard::Piece;
use crate::shard::ShardContext;
use crate::shard::entry::{Entry, EntryId, WANTS_APPEND};
use crate::shard::transfer::{TransferKind, Way};
use crate::shard::transfers::backing;
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
        let masks = self.blocks.granules().masks(piece.start, piece.length);
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
        let step = write_entry(self, context, id, piece, op, masks);
        self.forget_if_empty(context, id);
        step
    }

    pub(super) fn count_write(
        &mut self,
        context: &mut ShardContext<'_>,
        piece: &mut Piece,
        id: EntryId,
    ) {
        let e = &self.blocks[id];
        let on_flash = e.transfer().is_none() && e.flash_valid() != 0;
        let late =
            on_flash && !piece.counted && self.flash.is_held_after_eviction(&self.blocks, id);
        context.stats.flash_rescued += u64::from(late);
        let pulled =
            context.config.relation.has_queues() && e.position().is_none() && e.dirty() == 0;
        let found = match e.transfer().map(|t| self.transfers[t].kind) {
            // It is dropped, wherever it is.
            _ if !context.config.write_policy.allocate_on_write || pulled => HitPlace::Nowhere,
            Some(TransferKind::Fetch | TransferKind::FetchLine) => HitPlace::Delayed,
            Some(TransferKind::FlashRead { .. }) => HitPlace::Tier2,
            _ if e.frame().is_some() => HitPlace::Tier1,
            _ if e.flash_valid() != 0 => HitPlace::Tier2,
            _ => HitPlace::Nowhere,
        };
        self.count(context, piece, found, true);
    }

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
                if !self.keeps_direct(context, None, piece) {
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
                count_met(self, context, t);
                PieceStep::Wait(t)
            }
            None => self.direct(context, id, piece, op),
        };
        self.forget_if_empty(context, id);
        step
    }

    /// Whether memory keeps what a direct write writes. Under write-back, `goes_around` has decided which writes
    /// bypass the cache; otherwise one that is to bypass it updates a block that the cache holds all the same.
    fn keeps_direct(
        &self,
        context: &ShardContext<'_>,
        id: Option<EntryId>,
        piece: &mut Piece,
    ) -> bool {
        let holds = |e: &Entry| e.frame().is_some() || e.position().is_some();
        if through_past(context, piece) && id.is_some_and(|id| holds(&self.blocks[id])) {
            // The record becomes void before the write continues.
            piece.around = Some(false);
        }
        let at = match piece.around {
            Some(false) => context.place(Moment::WriteMiss),
            _ => context.place_for(piece, Moment::WriteMiss),
        };
        at.memory == InMemory::Keep
    }

    /// A direct write or zeroing over an entry without a transfer.
    fn direct(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        op: Op,
    ) -> PieceStep {
        let keep = self.keeps_direct(context, Some(id), piece);
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
        let (touched, _) = self.blocks.granules().masks(piece.start, piece.length);
        if !keep || op != Op::Write {
            // What the cache holds of the range is outdated from now on, whatever happens.
            self.outdate(id, touched);
        }
        let start = self.blocks.granules().start_of(key) + u64::from(piece.start);
        let range = (start, start + u64::from(piece.length));
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
        let segment = Segment { place: self.request_place(context, piece), length: piece.length };
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
        let start = self.blocks.granules().start_of(key) + u64::from(piece.start);
        let range = (start, start + u64::from(piece.length));
        let request = piece.request;
        let place = self.request_place(context, piece);
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
            context.stats.bypassed_log += 1;
            return self.range(context, key, piece, op != Op::Write);
        };
        match self.blocks[id].transfer() {
            Some(t) => PieceStep::Wait(t),
            None if self.blocks[id].is_bound() => Tiers::await_void(context),
            None => {
                context.stats.bypassed_log += 1;
                self.write_direct(context, key, piece, op)
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
    fn before_direct(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> Option<PieceStep> {
        let e = &self.blocks[id];
        if context.flash.is_without(e.key()) {
            self.flash.forget_record(&mut self.blocks, context, id);
            let dirty = self.blocks[id].dirty() != 0;
            return dirty.then(|| PieceStep::Wait(leave::destage(self, context, id)));
        }
        if context.flash.is_closed() && self.blocks[id].is_bound() {
            return Some(Tiers::await_void(context));
        }
        e.position().is_some().then(|| leave::activate(self, context, id, true))
    }

    /// Starts to write a dirty frame to where a sync makes it durable: the log or, without one, the
    /// backing store. `None` if that is impossible because the log has failed.
    pub(super) fn persist(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        urgent: bool,
    ) -> Option<TransferIndex> {
        if context.flash.logs(self.blocks[id].key()) {
            self.append(context, id, urgent)
        } else {
            Some(leave::destage(self, context, id))
        }
    }

    /// Gives the frame to the log. The record includes all dirty granules, also those of the older
    /// record. `None` if there is no log that takes it.
    pub fn append(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        urgent: bool,
    ) -> Option<TransferIndex> {
        if context.flash.is_closed() || self.is_hopeless(context) {
            return None;
        }
        let e = &self.blocks[id];
        let (key, valid, lost) = (e.key(), e.valid(), e.lost());
        let mut dirty = e.dirty() | e.flash_dirty();
        if context.config.write_policy.write_back && self.blocks.owes_sync(context, key) {
            // A power cut may undo what the backing store holds, for example a zeroed range that is not durable yet. A
            // clean record would then disagree with the store, so the record is dirty.
            // Granules beyond the end of the volume do not exist on the store, and stay clean.
            dirty = valid & self.blocks.granules().within(context, key) | lost;
        }
        if context.mode.sabotage.is(Bug::PartialHidesOlder) {
            dirty &= valid;
        }
        let e = &self.blocks[id];
        assert!(dirty & !valid & !lost == 0, "a record would hide dirty granules of an older one");
        let frame = e.frame().expect("a frame to append");
        let log = context.log.get_mut()?;
        let kind = TransferKind::Append { valid, dirty };
        let t = self.transfers.start_on(&mut self.blocks, context.volumes, id, kind, (0, 0));
        self.blocks.unlist_dirty(id);
        self.blocks[id].clear(WANTS_APPEND);
        let ticket = self.transfers.ticket(t);
        log.append(Append { ticket, key, valid, dirty, frame, urgent });
        // The sync that follows a flush covers what was handed to the log.
        self.flushes.covered(&mut self.blocks, id, true);
        Some(t)
    }
}

/// Whether a write that does not end in the cache bypasses it, as part of a stream.
fn through_past(context: &ShardContext<'_>, piece: &Piece) -> bool {
    context.front.requests[piece.request].bypass
        && !context.config.write_policy.write_back
        && piece.around != Some(false)
}
