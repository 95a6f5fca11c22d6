//! The relation `etica`: flash changes only at the end of an interval of requests, by the choice of
//! [queues](forebay_replacement::Queues). The least popular blocks are evicted. Then the most
//! popular blocks that flash lacks are admitted, from their frames or through a frame, as far as
//! there is room.
//!
//! What the queues know is in `FlashTier`, because each record that comes or goes counts for them. A round is a step
//! of `Tiers`: a block that enters flash takes an entry, a frame and a place among the fetches, or is handed to the
//! log as when it leaves memory.

use forebay_flash::BlockKey;

use super::Tiers;
use super::entrance::Entrance;
use crate::shard::ShardContext;

/// Blocks that one call looks at.
const STEPS: u32 = 32;

/// The result for a block that was chosen for flash.
#[must_use]
enum Promotion {
    Begun,
    /// It is in use, or unavailable.
    Skipped,
    /// No frame is free for it, or its store is being synced.
    NotYet,
}

impl Tiers {
    /// The next steps of a round, if one is in progress.
    #[inline]
    pub fn step_queues(&mut self, context: &mut ShardContext<'_>) {
        if self.flash.queues().is_some_and(|queues| queues.is_busy()) {
            self.step_round(context);
        }
    }

    fn step_round(&mut self, context: &mut ShardContext<'_>) {
        for _ in 0..STEPS {
            self.flash.review_leaving(&self.blocks);
            let Some(queues) = self.flash.queues() else { return };
            if let Some(key) = queues.next_eviction() {
                self.evict_chosen(context, BlockKey(key));
                continue;
            }
            if !queues.is_promoting() {
                break;
            }
            if queues.begins_promoting() {
                sync_stores(context);
            }
            let room = self.flash.room();
            let Some(queues) = self.flash.queues() else { return };
            let Some(key) = queues.next_promotion(room) else { break };
            let entry = self.promote_chosen(context, BlockKey(key));
            let Some(queues) = self.flash.queues() else { return };
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
        self.transfers.close_runs(context);
        self.end_round(context);
    }

    fn evict_chosen(&mut self, context: &mut ShardContext<'_>, key: BlockKey) {
        let Some(id) = self.blocks.find(key) else { return };
        let gone = self.flash.send_off(&self.blocks, &self.transfers, context, id);
        context.stats.queue_evictions += u64::from(gone);
    }

    fn promote_chosen(&mut self, context: &mut ShardContext<'_>, key: BlockKey) -> Promotion {
        let reads = context.volumes.conditions[key.volume()].gives_reads();
        let takes = context.flash.takes_records() && context.flash.logs(key);
        if !reads || !takes || self.is_jammed(context) {
            return Promotion::Skipped;
        }
        let range = self.blocks.granularity().range_within(context, key);
        if range.is_empty() || self.transfers.waiting_range(key).is_some() {
            return Promotion::Skipped;
        }
        if self.blocks.owes_sync(context, key) {
            // A power cut could undo what the store holds, and a clean record would then disagree with it.
            let volume = &context.volumes[key.volume()];
            return if volume.is_syncing() { Promotion::NotYet } else { Promotion::Skipped };
        }
        if let Some(id) = self.blocks.find(key) {
            let entered = self.blocks[id].rests() && self.append(context, id, false).is_some();
            context.stats.queue_promotions += u64::from(entered);
            return if entered { Promotion::Begun } else { Promotion::Skipped };
        }
        if self.blocks.frames_free() <= self.lines.spare() {
            return Promotion::NotYet;
        }
        let Tiers { lines, blocks, dram, flash, transfers, .. } = self;
        let mut entrance = Entrance { blocks, dram, flash, transfers };
        let fetched = lines.fetch(&mut entrance, context, key, range);
        let Some(frame) = fetched else { return Promotion::Skipped };
        self.dram.set_promoted(self.blocks.local(frame));
        Promotion::Begun
    }

    /// Blocks that were to enter flash, and are neither there nor in flight any more, become candidates
    /// again. The round ends when nothing is in transit.
    fn end_round(&mut self, context: &mut ShardContext<'_>) {
        for _ in 0..STEPS {
            let Some(queues) = self.flash.queues() else { return };
            let Some(key) = queues.oldest_entering() else {
                context.stats.queue_rounds += u64::from(queues.end());
                return;
            };
            let under_way = self.blocks.find(BlockKey(key)).is_some_and(|id| {
                let e = &self.blocks[id];
                e.transfer().is_some() || e.position().is_some() || self.is_in_transit(id)
            });
            if under_way {
                // When all of them have been read, they enter though the batch is not full.
                if let Some(log) = context.log.get_mut()
                    && !self.lines.is_fetching()
                {
                    log.close_batch();
                }
                return;
            }
            if let Some(queues) = self.flash.queues() {
                queues.leaves_flash(key);
            }
        }
    }
}

/// Stores with unsynced writes are synced, so that popular blocks that were written recently may
/// enter flash.
fn sync_stores(context: &mut ShardContext<'_>) {
    for volume in context.volumes.numbers() {
        context.volumes.sync_for_flash(volume, context.effects);
    }
}
