//! How blocks leave memory: to the log, directly to the backing store, or dropped, for lack of room or
//! for a flush.

use forebay_block::Volume;
use forebay_effect::{Place, Segment};

use super::admit::takes_only_clean;
use super::{PieceStep, Tiers};
use crate::place::{Moment, OnFlash};
use crate::shard::ShardContext;
use crate::shard::entry::{EntryId, FLUSHING, MARKED, WANTS_APPEND};
use crate::shard::flush::FlushState;
use crate::shard::transfer::TransferKind;
use crate::slab::TransferIndex;

/// Takes the next step out of DRAM for a leaving block without a transfer.
pub(super) fn try_leave(tiers: &mut Tiers, context: &mut ShardContext<'_>, id: EntryId) {
    let e = &tiers.blocks[id];
    assert!(e.is_leaving() && e.transfer().is_none());
    if e.dirty() != 0 {
        if tiers.admitter().leaves_around(context, id) {
            context.stats.destaged_around += 1;
            destage(tiers, context, id);
        } else if tiers.persist(context, id, false).is_none() {
            tiers.readmit(id);
        }
        return;
    }
    let recorded = e.position().is_some() && !tiers.flash.is_unmapping(id);
    // Flash keeps the record of a block in transit.
    if recorded && (e.valid() & !e.flash_valid() == 0 || tiers.is_in_transit(id)) {
        context.stats.left_on_flash += u64::from(!tiers.is_in_transit(id));
        tiers.release_frame(id);
        return;
    }
    let frame = e.frame().expect("a block that leaves memory has a frame");
    let promoted = tiers.dram.is_promoted(tiers.blocks.local(frame));
    let at = context.place(if promoted { Moment::Promote } else { Moment::CleanLeaves });
    // A block in transit does not enter flash while its store owes a sync: its record would have to count
    // as dirty, or its extent would have to be marked. No block waits for a mark that a failing store delays.
    let owes = tiers.blocks.owes_sync(context, e.key());
    let waits = !e.has(MARKED)
        && !context.writes_back(e.key())
        && context.log.get().is_some_and(|log| !log.has_mark(e.key()))
        && !context.volumes.conditions.all_take_writes();
    let takes = at.flash != OnFlash::Never
        && !(owes && (waits || tiers.is_in_transit(id)))
        && context.flash.takes_records()
        && e.valid() != 0
        && !tiers.is_jammed(context)
        && tiers.admitter().admits(context, id);
    let e = &tiers.blocks[id];
    if takes {
        if !context.writes_back(e.key()) && owes {
            // The backing store may yet lose what this frame holds. In an extent marked as
            // active the record is not trusted after a power cut.
            if !e.has(MARKED) {
                activate(tiers, context, id, false);
                return;
            }
        }
        tiers.blocks[id].clear(MARKED);
        match promoted {
            true => context.stats.queue_promotions += 1,
            false => context.stats.demotions += 1,
        }
        if at.line && !tiers.is_in_transit(id) {
            tiers.lines.want(tiers.blocks[id].key());
        }
        if tiers.append(context, id, false).is_some() {
            return;
        }
    }
    if owes && tiers.is_in_transit(id) && takes_only_clean(context) {
        let volume = tiers.blocks[id].key().volume();
        let most = context.config.dram_blocks;
        context.volumes.note_kept_out(volume, most, context.effects);
    }
    context.stats.evictions += 1;
    tiers.release_frame(id);
    tiers.forget_if_empty(context, id);
}

/// Writes the frame's dirty granules to the backing store: there is no flash tier, or the block
/// bypasses it.
pub(in crate::shard) fn destage(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
) -> TransferIndex {
    if context.flash.exists() {
        // The record would be older than the store's data.
        tiers.flash.forget_record(&mut tiers.blocks, context, id);
    }
    let e = &tiers.blocks[id];
    let (key, dirty) = (e.key(), e.dirty());
    let frame = e.frame().expect("a frame to destage");
    // It stays in the dirty list until it is written, so that a flush knows to wait for it.
    tiers.blocks[id].clear(WANTS_APPEND);
    let range = tiers.blocks.granules().range_within(context, key);
    if dirty == tiers.blocks.granules().all() {
        let kind = TransferKind::Destage { rest: 0 };
        let place = Place::Frame { frame, offset: 0 };
        let segment = Some(Segment { place, length: (range.1 - range.0) as u32 });
        let t = tiers.transfers.run(context, key, range, kind, segment, |k| {
            matches!(k, TransferKind::Destage { rest: 0 })
        });
        tiers.blocks[id].set_transfer(Some(t));
        return t;
    }
    let kind = TransferKind::Destage { rest: dirty };
    let t = tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, range);
    tiers.transfers.destage_step(&tiers.blocks, context, t, frame);
    t
}

/// Has the extent of a block with a record durably marked before a direct write makes the record
/// stale.
pub(super) fn activate(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
    poison: bool,
) -> PieceStep {
    assert!(tiers.blocks[id].flash_dirty() == 0, "direct write over a dirty record");
    let Some(log) = context.log.get_mut().filter(|_| !context.flash.is_closed()) else {
        // The record cannot be disowned any more: the backing store must not move on.
        return PieceStep::Done(Err(forebay_effect::IoError::Device));
    };
    if poison && !tiers.transfers.may_be_loose() {
        return PieceStep::NoRoom;
    }
    let key = tiers.blocks[id].key();
    let kind = TransferKind::Activate { poison };
    let t = tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, (0, 0));
    let ticket = tiers.transfers.ticket(t);
    log.mark_active(key, ticket);
    PieceStep::Wait(t)
}

/// The pending step of a block without a transfer: to the log for a flush, out of DRAM, or out of
/// the index.
pub(in crate::shard) fn take_next_step(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    id: EntryId,
) {
    if tiers.blocks[id].transfer().is_some() {
        return;
    }
    if tiers.blocks[id].has(WANTS_APPEND) {
        tiers.blocks[id].clear(WANTS_APPEND);
        if tiers.blocks[id].dirty() == 0 {
            tiers.flushes.covered(&mut tiers.blocks, id, true);
        } else if context.flash.logs(tiers.blocks[id].key()) {
            if tiers.append(context, id, true).is_none() {
                tiers.not_logged(id);
            }
            return;
        } else {
            tiers.persist(context, id, true);
            return;
        }
    }
    if tiers.blocks[id].is_leaving() {
        try_leave(tiers, context, id);
    } else {
        tiers.forget_if_empty(context, id);
    }
}

/// Advances a flush by at most `budget` blocks. This shard's part is done when all its blocks have
/// been given to the log or, without a log, are on the backing store.
pub(crate) fn flush_step(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    volume: Volume,
    budget: u32,
) -> FlushState {
    if !tiers.flushes.is_active(volume) {
        return FlushState::Idle;
    }
    for _ in 0..budget {
        let Some(id) = tiers.blocks.oldest_marked(volume) else { break };
        if let Some(t) = tiers.blocks[id].transfer() {
            // It is destaged already, or is appended when the current transfer ends.
            let destaging = matches!(tiers.transfers[t].kind, TransferKind::Destage { .. });
            tiers.blocks.unlist_dirty(id);
            tiers.blocks[id].set(if destaging { FLUSHING } else { WANTS_APPEND | FLUSHING });
            tiers.flushes.wait_for_one(volume);
        } else if context.flash.logs(tiers.blocks[id].key()) {
            if tiers.append(context, id, true).is_none() {
                // Nor can others.
                tiers.flushes.fail(volume);
                tiers.blocks.unmark_dirty(volume);
            }
        } else {
            tiers.blocks[id].set(FLUSHING);
            tiers.flushes.wait_for_one(volume);
            tiers.blocks.unlist_dirty(id);
            destage(tiers, context, id);
        }
    }
    tiers.transfers.close_runs(context);
    if tiers.blocks.oldest_marked(volume).is_some() {
        return FlushState::More;
    }
    tiers.flushes.end(volume)
}
