//! The end of writes to the backing store that bypass flash: of frames, and of requests' bytes.

use forebay_effect::{Effect, Outcome, Place};

use crate::shard::entry::{FLUSHING, LEAVING, WANTS_APPEND};
use crate::shard::transfer::{Kind, Transfer};
use crate::shard::{Shard, ShardContext};
use crate::slab::{RequestIndex, TransferIndex};

/// A frame's dirty granules are on the backing store, or could not be written.
pub(super) fn destaged(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    result: Outcome,
) {
    if result.is_ok()
        && matches!(shard.tiers.transfers[t].kind, Kind::Destage { rest } if rest != 0)
    {
        let id = shard
            .tiers
            .blocks
            .find(shard.tiers.transfers[t].key)
            .expect("a busy block has an entry");
        let frame = shard.tiers.blocks[id].frame().expect("a frame is being destaged");
        shard.tiers.transfers.destage_step(&shard.tiers.blocks, context, t, frame);
        return;
    }
    let key = shard.tiers.transfers[t].key;
    let to_log = context.flash.logs(key) && !context.flash.is_closed();
    if !context.flash.logs(key) {
        // A failed destage of a block that flash can hold instead obstructs no request, so it is not counted.
        shard.tiers.note_destage(result.is_ok());
    }
    count_direct(shard, context, t);
    shard.waiting.end_applied(&mut shard.tiers.transfers[t].waiters, context, result);
    if let (Err(error), true) = (result, context.flash.is_without(shard.tiers.transfers[t].key)) {
        // Another attempt would only repeat the same write, again and again.
        shard.waiting.fail_first(&mut shard.tiers.transfers[t].waiters, context, error);
    }
    shard.finish(context, t, |tiers, context, id| {
        if result.is_ok() {
            let was = tiers.blocks[id].is_dirty();
            tiers.blocks.unlist_dirty(id);
            tiers.blocks[id].dirty = 0;
            context.stats.destaged += 1;
            tiers.blocks.count_dirty(id, was, context.volumes);
        } else {
            tiers.blocks.relist_dirty(id);
            if tiers.blocks[id].has(LEAVING) {
                tiers.readmit(id);
            }
        }
        if result.is_err() && to_log {
            // Flash takes it after all; at once if a flush waits for it.
            if tiers.blocks[id].has(FLUSHING) {
                tiers.blocks[id].set(WANTS_APPEND);
            }
        } else if tiers.blocks[id].has(FLUSHING) {
            tiers.flushes.covered(&mut tiers.blocks, id, result.is_ok());
        }
    });
}

/// A transfer to the backing store that bypassed the log has ended, successfully or not.
pub(super) fn count_direct(shard: &Shard, context: &mut ShardContext<'_>, t: TransferIndex) {
    let Transfer { key, start, end, .. } = shard.tiers.transfers[t];
    context.volumes.direct_written(key.volume(), start, end);
}

/// A request's bytes are on the backing store, or could not be written.
pub(super) fn direct_written(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    (request, pieces, keep): (RequestIndex, u32, bool),
    result: Outcome,
) {
    let (start, end) = (shard.tiers.transfers[t].start, shard.tiers.transfers[t].end);
    count_direct(shard, context, t);
    let r = &context.front.requests[request];
    let (id_of_request, base) = (r.id, r.offset);
    shard.finish(context, t, |tiers, context, id| {
        let block_start = tiers.blocks[id].key().block().0 << tiers.blocks.granules().block_shift();
        let from = start.max(block_start);
        let to = end.min(block_start + u64::from(tiers.blocks.granules().block_size()));
        let (offset, length) = ((from - block_start) as u32, (to - from) as u32);
        let (touched, covered) = tiers.blocks.granules().masks(offset, length);
        if result.is_err() || !keep {
            // It is unknown what the backing store holds now, so the next access reads it again.
            let e = &mut tiers.blocks[id];
            e.valid &= !touched;
            if e.valid == 0 && e.frame().is_some() {
                tiers.release_frame(id);
            }
            return;
        }
        let frame = tiers.blocks[id].frame().expect("a frame was ensured");
        let at = (from - base) as u32;
        let from = Place::Request { request: id_of_request, offset: at };
        context.effects.push(Effect::Copy { from, to: Place::Frame { frame, offset }, length });
        tiers.blocks[id].valid |= covered;
        tiers.rescue(context, id, frame);
    });
    context.pieces_done(request, pieces, result);
}
