//! The end of writes to the backing store that bypass flash: from frames, and from requests'
//! buffers.

use forebay_effect::{Effect, Outcome, Place};

use crate::shard::tiers::Tiers;
use crate::shard::transfer::{Transfer, TransferKind};
use crate::shard::{Shard, ShardContext};
use crate::slab::{RequestIndex, TransferIndex};

/// A step of a direct write has succeeded: continues a destage in parts if its frame has more dirty
/// granules. Otherwise returns false.
pub(super) fn goes_on(shard: &mut Shard, context: &mut ShardContext<'_>, t: TransferIndex) -> bool {
    let Tiers { transfers, blocks, .. } = &mut shard.tiers;
    let Transfer { kind, key, .. } = transfers[t];
    if !matches!(kind, TransferKind::Destage { rest } if !rest.is_empty()) {
        return false;
    }
    let frame = blocks[blocks.entry_of(key)].frame().expect("a frame is being destaged");
    transfers.destage_step(blocks, context, t, frame)
}

/// Called when a frame's dirty granules are on the backing store, or could not be written.
pub(super) fn destaged(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    result: Outcome,
) {
    let key = shard.tiers.transfers[t].key;
    let to_log = context.flash.logs(key) && !context.flash.is_closed();
    if !context.flash.logs(key) {
        // A failed destage of a block that flash can hold instead obstructs no request, so it is
        // not counted.
        shard.tiers.room.note_destage(result.is_ok());
    }
    shard.waiting.end_applied(&mut shard.tiers.transfers[t].waiters, context, result);
    if let (Err(error), true) = (result, context.flash.is_without(shard.tiers.transfers[t].key)) {
        // Another attempt would only repeat the same write, again and again.
        shard.waiting.fail_first(&mut shard.tiers.transfers[t].waiters, context, error);
    }
    shard.finish(context, t, |tiers, context, id| {
        if result.is_ok() {
            tiers.blocks.stored(context, id);
            context.stats.destaged += 1;
        } else {
            tiers.blocks.relist_dirty(id);
            if tiers.blocks[id].is_leaving() {
                tiers.readmit(id);
            }
        }
        if result.is_err() && to_log {
            // Flash takes the block instead, at once if a flush waits for it.
            if tiers.blocks[id].is_flushing() {
                tiers.blocks[id].want_append();
            }
        } else if tiers.blocks[id].is_flushing() {
            tiers.flushes.covered(&mut tiers.blocks, id, result.is_ok());
        }
    });
}

/// Called when a request's bytes are on the backing store, or could not be written.
pub(super) fn direct_written(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    (request, pieces, keep): (RequestIndex, u32, bool),
    result: Outcome,
) {
    let (start, end) = (shard.tiers.transfers[t].start, shard.tiers.transfers[t].end);
    let r = &context.front.requests[request];
    let (id_of_request, base) = (r.id, r.offset);
    shard.finish(context, t, |tiers, context, id| {
        let block_start =
            tiers.blocks[id].key().block().0 << tiers.blocks.granularity().block_shift();
        let from = start.max(block_start);
        let to = end.min(block_start + u64::from(tiers.blocks.granularity().block_size()));
        let (offset, length) = ((from - block_start) as u32, (to - from) as u32);
        let concerned = tiers.blocks.granularity().concerned(offset, length);
        if result.is_err() || !keep {
            // It is unknown what the backing store holds now, so the next access reads it again.
            return tiers.outdate(id, concerned.touched);
        }
        let frame = tiers.blocks[id].frame().expect("a frame was ensured");
        let at = (from - base) as u32;
        let from = Place::Request { request: id_of_request, offset: at };
        context.effects.push(Effect::Copy { from, to: Place::Frame { frame, offset }, length });
        tiers.blocks.arrived(id, concerned.covered);
        tiers.rescue(context, id, frame);
    });
    context.pieces_done(request, pieces, result);
}

#[cfg(test)]
mod tests {
    use forebay_block::{Nanos, Op, Request};
    use forebay_effect::{Effect, IoError, RequestId};

    use crate::{Cache, CacheConfig, Open, VolumeConfig, WritePolicy};

    /// A run of blocks, two parts of a block, more blocks than memory has, zeroes over blocks with
    /// and without an entry, and flushes.
    const REQUESTS: [(Op, u64, u64); 9] = [
        (Op::Write, 0, 8192),
        (Op::Write, 8192, 512),
        (Op::Write, 9216, 512),
        (Op::Flush, 0, 0),
        (Op::Write, 1 << 16, 6 * 4096),
        (Op::WriteZeroes, 8192, 1024),
        (Op::Trim, 1 << 18, 1 << 16),
        (Op::Flush, 0, 0),
        (Op::Flush, 0, 0),
    ];

    #[test]
    fn a_direct_write_begins_once_and_ends_once_though_some_of_its_steps_fail() {
        for policy in [WritePolicy::WRITE_BACK, WritePolicy::WRITE_THROUGH, WritePolicy::READ_ONLY]
        {
            let config = CacheConfig { write_policy: policy, ..CacheConfig::dram_only(4) };
            let mut cache = Cache::new(config);
            let volume = cache.attach(VolumeConfig::new(1 << 20));
            cache.start(Nanos(0), Open::RECOVER);
            let (mut segments, mut writes) = (Vec::new(), 0);
            for (id, (op, offset, length)) in (0..).zip(REQUESTS) {
                let request = Request::new(Nanos(1), volume, op, offset, length);
                cache.handle_request(RequestId(id), request);
                while let Some(effect) = cache.poll_effect(&mut segments) {
                    let Some(token) = effect.token() else { continue };
                    writes += u64::from(matches!(effect, Effect::Write { .. }));
                    let fails = writes % 3 == 2 && matches!(effect, Effect::Write { .. });
                    let result = if fails { Err(IoError::Device) } else { Ok(()) };
                    cache.handle_completion(Nanos(1), token, result);
                }
            }
            let settled = cache.world.volumes[volume].direct_settled();
            assert!(settled.is_some_and(|begun| begun > 3), "{policy:?}: {settled:?}");
        }
    }
}
