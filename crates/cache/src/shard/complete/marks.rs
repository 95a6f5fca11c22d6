//! Marks of extents. If the log cannot mark an extent, because stores that cannot be synced hold places of
//! its table, a record in it is voided alone, before its block is written.

use forebay_effect::Outcome;
use forebay_flash::Event;

use crate::shard::entry::DOUBTFUL;
use crate::shard::transfer::Kind;
use crate::shard::{Shard, ShardContext};
use crate::slab::TransferIndex;

impl Shard {
    /// What the log has answered to a request for a mark, or for a record to be void.
    pub fn handle_mark(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, answer: Event) {
        match answer {
            Event::Active { result, .. } => self.activated(context, t, result),
            Event::Unmarked { .. } => self.unmarked(context, t),
            Event::RecordVoid { result, .. } => self.record_void(context, t, result),
            other => unreachable!("{other:?} does not answer a mark"),
        }
    }

    /// The extent of a block is not marked. A direct write waits until the block's record is void; a clean
    /// block that was to enter flash does without.
    fn unmarked(&mut self, context: &mut ShardContext<'_>, t: TransferIndex) {
        let (key, kind) = (self.tiers.transfers[t].key, self.tiers.transfers[t].kind);
        let id = self.tiers.blocks.entry_of(key);
        let recorded = self.tiers.blocks[id].position().is_some();
        if kind != (Kind::Activate { poison: true }) || !recorded {
            // (The record's region was freed meanwhile, or a block that leaves memory finds that it gets no mark.)
            self.finish(context, t, |_, _, _| {});
            return self.close_runs(context);
        }
        context.stats.voided_alone += 1;
        // Forgotten now: after the tombstone, the mapping must not move nor the record be inserted again.
        let tiers = &mut self.tiers;
        tiers.flash.disown(&tiers.blocks, context, id);
        tiers.flash.set_record(&mut tiers.blocks, context, id, None);
        tiers.blocks[id].set(DOUBTFUL);
        if tiers.blocks[id].frame().is_none() {
            tiers.dram.lose(key);
        }
        let ticket = tiers.transfers.ticket(t);
        context.log.as_deref_mut().expect("a record needs a log").void_record(key, ticket);
    }

    /// No start will find a record of the block, or this could not be made sure.
    fn record_void(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, result: Outcome) {
        match result {
            Ok(()) => self.finish(context, t, |tiers, _, id| tiers.blocks[id].clear(DOUBTFUL)),
            Err(error) => {
                context.stats.transfer_errors += 1;
                if context.flash.awaits_void {
                    self.finish(context, t, |_, _, _| {});
                } else {
                    self.finish_failed(context, t, error);
                }
            }
        }
        self.close_runs(context);
    }
}
