//! The relation `etica`: flash changes only at the end of an interval of requests, by the choice of
//! [queues](forebay_replacement::Queues). The least popular blocks are evicted. Then the most
//! popular blocks that flash lacks are admitted, from their frames or through a frame, as far as
//! there is room.

use forebay_block::Op;
use forebay_effect::{Place, Segment};
use forebay_flash::BlockKey;

use super::Tiers;
use super::read::HitPlace;
use crate::shard::Piece;
use crate::shard::ShardContext;
use crate::shard::entry::{DOUBTFUL, EntryId, WANTS_APPEND};
use crate::shard::transfer::{TransferKind, Way};

/// Blocks that one call looks at.
const STEPS: u32 = 32;

/// The result for a block that was chosen for flash.
enum Promotion {
    Begun,
    /// It is in use, or unavailable.
    Skipped,
    /// No frame is free for it, or its store is being synced.
    NotYet,
}

/// Counts a client's access: the queues are notified of it if flash would answer it.
pub(super) fn note_access(
    tiers: &mut Tiers,
    context: &ShardContext<'_>,
    piece: &Piece,
    found: HitPlace,
) {
    let Some(queues) = tiers.flash.queues() else { return };
    let request = &context.front.requests[piece.request];
    let reaches = match request.op {
        Op::Read => !matches!(found, HitPlace::Tier1),
        Op::Write => true,
        Op::Trim | Op::WriteZeroes | Op::Flush => false,
    };
    if reaches && !request.bypass {
        queues.access(BlockKey::new(request.volume, piece.block).0);
    }
}

/// The next steps of a round, if one is in progress.
#[inline]
pub(in crate::shard) fn step(tiers: &mut Tiers, context: &mut ShardContext<'_>) {
    if tiers.flash.queues().is_some_and(|queues| queues.is_busy()) {
        take_steps(tiers, context);
    }
}

fn take_steps(tiers: &mut Tiers, context: &mut ShardContext<'_>) {
    for _ in 0..STEPS {
        look_after_leaving(tiers);
        let Some(queues) = tiers.flash.queues() else { return };
        if let Some(key) = queues.next_eviction() {
            evict(tiers, context, BlockKey(key));
            continue;
        }
        if !queues.is_promoting() {
            break;
        }
        if queues.begins_promoting() {
            sync_stores(context);
        }
        let room = tiers.flash.room();
        let Some(queues) = tiers.flash.queues() else { return };
        let Some(key) = queues.next_promotion(room) else { break };
        let entry = promote(tiers, context, BlockKey(key));
        let Some(queues) = tiers.flash.queues() else { return };
        match entry {
            Promotion::Begun => {}
            // A skipped block is a candidate again when the round ends.
            Promotion::Skipped => context.stats.queue_skips += 1,
            Promotion::NotYet => {
                queues.put_back(key);
                break;
            }
        }
    }
    tiers.transfers.close_runs(context);
    end_round(tiers, context);
}

/// A block that was to leave flash stays if it was used meanwhile, or if its store failed.
fn look_after_leaving(tiers: &mut Tiers) {
    let Some(queues) = tiers.flash.queues() else { return };
    let Some(key) = queues.next_leaving() else { return };
    let leaves = tiers.blocks.find(BlockKey(key)).is_some_and(|id| tiers.flash.has_given_way(id));
    if !leaves && let Some(queues) = tiers.flash.queues() {
        queues.enters_flash(key);
    }
}

/// Stores with unsynced writes are synced, so that popular blocks that were written recently may
/// enter flash.
fn sync_stores(context: &mut ShardContext<'_>) {
    for volume in context.volumes.numbers() {
        context.volumes.sync_for_flash(volume, context.effects);
    }
}

fn evict(tiers: &mut Tiers, context: &mut ShardContext<'_>, key: BlockKey) {
    let Some(id) = tiers.blocks.find(key) else { return };
    let gone = tiers.flash.send_off(&tiers.blocks, &tiers.transfers, context, id);
    context.stats.queue_evictions += u64::from(gone);
}

fn promote(tiers: &mut Tiers, context: &mut ShardContext<'_>, key: BlockKey) -> Promotion {
    let reads = context.volumes.conditions[key.volume()].gives_reads();
    let takes = context.flash.takes_records() && context.flash.logs(key);
    if !reads || !takes || tiers.is_jammed(context) {
        return Promotion::Skipped;
    }
    let (start, end) = tiers.blocks.granules().range_within(context, key);
    if end <= start || tiers.transfers.waiting_range(key).is_some() {
        return Promotion::Skipped;
    }
    if tiers.blocks.owes_sync(context, key) {
        // A power cut could undo what the store holds, and a clean record would then disagree with it.
        let volume = &context.volumes[key.volume()];
        return if volume.is_syncing() { Promotion::NotYet } else { Promotion::Skipped };
    }
    if let Some(id) = tiers.blocks.find(key) {
        let entered = rests(tiers, id) && tiers.append(context, id, false).is_some();
        context.stats.queue_promotions += u64::from(entered);
        return if entered { Promotion::Begun } else { Promotion::Skipped };
    }
    if tiers.blocks.frames_free() <= tiers.lines.spare() {
        return Promotion::NotYet;
    }
    let Some(id) = tiers.blocks.insert(key) else { return Promotion::Skipped };
    let frame = tiers.blocks.take_frame(id).expect("a free frame is available");
    tiers.enter_in_transit(context, id, frame, None);
    tiers.dram.set_promoted(tiers.blocks.local(frame));
    let place = Place::Frame { frame, offset: 0 };
    let segment = Some(Segment { place, length: (end - start) as u32 });
    let alike = |kind: &mut TransferKind| *kind == TransferKind::FetchLine;
    let before = tiers.transfers.open_run(Way::In);
    let range = (start, end);
    let run = tiers.transfers.run(context, key, range, TransferKind::FetchLine, segment, alike);
    tiers.lines.began(before != Some(run));
    tiers.blocks[id].set_transfer(Some(run));
    Promotion::Begun
}

/// Whether the block is in memory, clean, and without a transfer.
fn rests(tiers: &Tiers, id: EntryId) -> bool {
    let e = &tiers.blocks[id];
    let busy = e.is_leaving() || e.has(WANTS_APPEND) || e.has(DOUBTFUL);
    let idle = e.transfer().is_none() && e.position().is_none() && !busy;
    idle && e.frame().is_some() && e.valid() != 0 && e.dirty() == 0
}

/// Blocks that were to enter flash, and are neither there nor in flight any more, become candidates
/// again. The round ends when nothing is in transit.
fn end_round(tiers: &mut Tiers, context: &mut ShardContext<'_>) {
    for _ in 0..STEPS {
        let Some(queues) = tiers.flash.queues() else { return };
        let Some(key) = queues.oldest_entering() else {
            context.stats.queue_rounds += u64::from(queues.end());
            return;
        };
        let under_way = tiers.blocks.find(BlockKey(key)).is_some_and(|id| {
            let e = &tiers.blocks[id];
            e.transfer().is_some() || e.position().is_some() || tiers.is_in_transit(id)
        });
        if under_way {
            // When all of them have been read, they enter though the batch is not full.
            if let Some(log) = context.log.get_mut()
                && !tiers.lines.is_fetching()
            {
                log.close_batch();
            }
            return;
        }
        if let Some(queues) = tiers.flash.queues() {
            queues.leaves_flash(key);
        }
    }
}
