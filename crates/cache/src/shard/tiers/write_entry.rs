//! A write, or a zeroing, that ends in the cache, of a block that has an entry: what it waits for, what it
//! takes in, its bytes, and how they become durable.

use forebay_block::{Flags, Op};
use forebay_effect::{Effect, IoError, Place};
use forebay_flash::sabotage::Bug;

use super::{PieceStep, Tiers};
use crate::place::{InMemory, Moment, OnFlash};
use crate::policy::{Acknowledge, Partial};
use crate::shard::ShardContext;
use crate::shard::entry::EntryId;
use crate::shard::frames::Frame;
use crate::shard::{Once, Piece};

use crate::shard::transfer::TransferKind;
use crate::slab::TransferIndex;

/// A write or zeroing of a block that has an entry: of these granules, touched and covered.
pub(super) fn write_entry(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
    piece: &mut Piece,
    op: Op,
    (touched, covered): (u16, u16),
) -> PieceStep {
    tiers.count_write(context, piece, id);
    let fua = context.front.requests[piece.request].flags.contains(Flags::FUA);
    if let Some(t) = in_the_way(tiers, context, id, fua) {
        count_met(tiers, context, t);
        return PieceStep::Wait(t);
    }
    if let Some(step) = take_in_rest(tiers, context, id, piece, (touched, covered)) {
        return step;
    }
    let at = context.place(Moment::Write);
    let transit = at.memory == InMemory::Transit;
    if !tiers.ensure_frame(context, id, piece, Moment::Write) {
        return PieceStep::NoRoom;
    }
    let frame = tiers.blocks[id].frame().expect("just ensured");
    fill_frame(tiers, context, (id, frame), piece, op, covered);
    tiers.blocks.dirtied(context, id, touched);
    if !transit {
        tiers.used(context, id, frame, piece);
    }
    match fua || (context.flash.exists() && at.flash == OnFlash::Now) {
        true => persist_write(tiers, context, id, transit),
        false => PieceStep::Done(Ok(())),
    }
}

/// The transfer that a write of the block waits for.
fn in_the_way(
    tiers: &Tiers,
    context: &ShardContext<'_>,
    id: EntryId,
    fua: bool,
) -> Option<TransferIndex> {
    let careless = context.mode.sabotage.is(Bug::SlotWrittenUnderSpill)
        && context.config.acknowledge == Acknowledge::Dram
        && !fua;
    let spilling =
        |t: TransferIndex| matches!(tiers.transfers[t].kind, TransferKind::Append { .. });
    tiers.blocks[id].transfer().filter(|&t| !(careless && spilling(t)))
}

/// A write waits for this transfer.
pub(super) fn count_met(tiers: &Tiers, context: &mut ShardContext<'_>, t: TransferIndex) {
    match tiers.transfers[t].kind {
        TransferKind::Fetch | TransferKind::FetchLine | TransferKind::FlashRead { .. } => {
            context.stats.write_met_fetch += 1
        }
        _ => context.stats.write_met_outgoing += 1,
    }
}

/// Reads what a write needs of the block besides its own bytes: the rest of granules, or of the block.
/// Returns how the write continues; `None` if it lacks nothing.
fn take_in_rest(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
    piece: &mut Piece,
    (touched, covered): (u16, u16),
) -> Option<PieceStep> {
    let e = &tiers.blocks[id];
    let lost = e.lost();
    if touched & !covered & lost != 0 {
        // The rest of the granule cannot be had.
        return Some(PieceStep::Done(Err(IoError::Corrupt)));
    }
    let missing = !e.valid() & !covered & !lost;
    let hides = context.mode.sabotage.is(Bug::PartialHidesOlder);
    if e.flash_valid() & missing != 0 && !hides {
        // A newer record replaces the older as a whole: take in what only that one holds.
        return Some(tiers.read_flash(context, id, piece, Moment::Write));
    }
    let partial_edges = touched & missing != 0;
    if partial_edges
        || (context.config.partial == Partial::Fill && tiers.blocks.granules().all() & missing != 0)
    {
        if partial_edges {
            context.stats.read_modify_writes += piece.once.count(Once::NEEDED_REST);
        }
        return Some(tiers.fetch(context, id, piece, Moment::Write));
    }
    None
}

/// Copies what is written to the block's frame, or zeroes it there.
fn fill_frame(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    (id, frame): (EntryId, Frame),
    piece: &Piece,
    op: Op,
    covered: u16,
) {
    let to = Place::Frame { frame, offset: piece.start };
    if op == Op::Write {
        let from = tiers.request_place(context, piece);
        context.effects.push(Effect::Copy { from, to, length: piece.length });
    } else if !context.mode.sabotage.is(Bug::TrimLeavesOldData) {
        context.effects.push(Effect::Zero { to, length: piece.length });
    }
    let whole = covered == tiers.blocks.granules().all();
    match op {
        Op::Write => tiers.blocks.set_zeroed(id, false),
        _ if whole => tiers.blocks.set_zeroed(id, true),
        // What was zeroes stays so.
        _ => {}
    }
}

/// The log is to have what was written before it is answered. In `transit`, the block leaves memory with that.
fn persist_write(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
    transit: bool,
) -> PieceStep {
    let under_way = tiers.persist(context, id, true);
    if transit {
        match under_way {
            Some(_) => {
                tiers.flash.note_write(&tiers.blocks, id);
                tiers.leave_after_append(id);
            }
            // It stays dirty.
            None if tiers.blocks[id].is_leaving() => tiers.readmit(id),
            None => {}
        }
        context.stats.written_in_transit += u64::from(under_way.is_some());
    }
    if transit && context.mode.sabotage.is(Bug::TransitFrameReusedEarly) {
        tiers.give_frame_away(context, id);
    }
    if transit && context.mode.sabotage.is(Bug::TransitAnsweredEarly) {
        return PieceStep::Done(Ok(()));
    }
    under_way.map_or(PieceStep::Done(Err(IoError::Device)), PieceStep::Applied)
}
