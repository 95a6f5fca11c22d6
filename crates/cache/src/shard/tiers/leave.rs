//! How blocks leave memory: to the log, directly to the backing store, or dropped, for lack of room or
//! for a flush. Also how they enter flash while they stay in memory.

use forebay_block::Volume;
use forebay_flash::sabotage::Bug;
use forebay_flash::{Append, BlockKey};

use super::Tiers;
use super::admit::takes_only_clean;
use crate::byte_range::ByteRange;
use crate::place::{InMemory, Moment, OnFlash};
use crate::shard::ShardContext;
use crate::shard::entry::EntryId;
use crate::shard::flush::FlushState;
use crate::shard::transfer::TransferKind;
use crate::slab::TransferIndex;

impl Tiers {
    /// Takes the next step out of DRAM for a leaving block without a transfer.
    pub(super) fn try_leave(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        let e = &self.blocks[id];
        assert!(e.is_leaving() && e.transfer().is_none());
        if !e.dirty().is_empty() {
            if self.admitter().leaves_around(context, id) {
                context.stats.destaged_around += 1;
                self.destage(context, id);
            } else if self.persist(context, id, false).is_none() {
                self.readmit(id);
            }
            return;
        }
        let recorded = e.position().is_some() && !self.flash.is_unmapping(id);
        // Flash keeps the record of a block in transit.
        if recorded && ((e.valid() & !e.flash_valid()).is_empty() || self.is_in_transit(id)) {
            context.stats.left_on_flash += u64::from(!self.is_in_transit(id));
            self.release_frame(id);
            return;
        }
        let frame = e.frame().expect("a block that leaves memory has a frame");
        let promoted = self.dram.is_promoted(self.blocks.local(frame));
        let at = context.place(if promoted { Moment::Promote } else { Moment::CleanLeaves });
        // A block in transit does not enter flash while its store owes a sync: its record would have to count
        // as dirty, or its extent would have to be marked. No block waits for a mark that a failing store delays.
        let owes = self.blocks.owes_sync(context, e.key());
        let waits = !self.is_marked(e.key())
            && !context.writes_back(e.key())
            && context.log.get().is_some_and(|log| !log.has_mark(e.key()))
            && !context.volumes.conditions.all_take_writes();
        let takes = at.flash != OnFlash::Never
            && !(owes && (waits || self.is_in_transit(id)))
            && context.flash.takes_records()
            && !e.valid().is_empty()
            && !self.is_jammed(context)
            && self.admitter().admits(context, id);
        let e = &self.blocks[id];
        if takes {
            if !context.writes_back(e.key()) && owes {
                // The backing store may yet lose what this frame holds. In an extent marked as
                // active the record is not trusted after a power cut.
                if !self.is_marked(e.key()) {
                    self.transfers.mark(&mut self.blocks, context, id, false);
                    return;
                }
            }
            let key = self.blocks[id].key();
            self.marked.take_if(|marked| *marked == key);
            match promoted {
                true => context.stats.queue_promotions += 1,
                false => context.stats.demotions += 1,
            }
            if at.line && !self.is_in_transit(id) {
                self.lines.want(self.blocks[id].key());
            }
            if self.append(context, id, false).is_some() {
                return;
            }
        }
        if owes && self.is_in_transit(id) && takes_only_clean(context) {
            let volume = self.blocks[id].key().volume();
            let most = context.config.dram_blocks;
            context.volumes.note_kept_out(volume, most, context.effects);
        }
        context.stats.evictions += 1;
        self.release_frame(id);
        self.forget_if_empty(context, id);
    }

    /// Writes the frame's dirty granules to the backing store: there is no flash tier, or the block
    /// bypasses it.
    pub(super) fn destage(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> TransferIndex {
        if context.flash.exists() {
            // The record would be older than the store's data.
            self.flash.forget_record(&mut self.blocks, context, id);
        }
        // It stays in the dirty list until it is written, so that a flush knows to wait for it.
        self.blocks[id].take_append();
        self.transfers.destage(&mut self.blocks, context, id)
    }

    /// The pending step of a block without a transfer: to the log for a flush, out of DRAM, or out of
    /// the index.
    pub fn take_next_step(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        if self.blocks[id].transfer().is_some() {
            return;
        }
        if self.blocks[id].is_append_due() {
            self.blocks[id].take_append();
            if self.blocks[id].dirty().is_empty() {
                self.flushes.covered(&mut self.blocks, id, true);
            } else if self.persist(context, id, true).is_some() {
                return;
            } else {
                self.not_logged(id);
            }
        }
        if self.blocks[id].is_leaving() {
            self.try_leave(context, id);
        } else {
            self.forget_if_empty(context, id);
        }
    }

    /// Advances a flush by at most `budget` blocks. This shard's part is done when all its blocks have
    /// been given to the log or, without a log, are on the backing store.
    pub fn flush_step(
        &mut self,
        context: &mut ShardContext<'_>,
        volume: Volume,
        budget: u32,
    ) -> FlushState {
        if !self.flushes.is_active(volume) {
            return FlushState::Idle;
        }
        for _ in 0..budget {
            let Some(id) = self.blocks.oldest_marked(volume) else { break };
            if let Some(t) = self.blocks[id].transfer() {
                // It is destaged already, or is appended when the current transfer ends.
                let destaging = matches!(self.transfers[t].kind, TransferKind::Destage { .. });
                self.blocks.unlist_dirty(id);
                if !destaging {
                    self.blocks[id].want_append();
                }
                self.blocks[id].begin_flush();
                self.flushes.wait_for_one(volume);
            } else if context.flash.logs(self.blocks[id].key()) {
                if self.append(context, id, true).is_none() {
                    // Nor can others.
                    self.flushes.fail(volume);
                    self.blocks.unmark_dirty(volume);
                }
            } else {
                self.blocks[id].begin_flush();
                self.flushes.wait_for_one(volume);
                self.blocks.unlist_dirty(id);
                self.destage(context, id);
            }
        }
        self.transfers.close_runs(context);
        if self.blocks.oldest_marked(volume).is_some() {
            return FlushState::More;
        }
        self.flushes.end(volume)
    }

    // ---- to the log, or to where a sync makes it durable ----

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
            Some(self.destage(context, id))
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
            dirty = valid & self.blocks.granularity().within(context, key) | lost;
        }
        if context.mode.sabotage.is(Bug::PartialHidesOlder) {
            dirty &= valid;
        }
        let e = &self.blocks[id];
        assert!(
            (dirty & !valid & !lost).is_empty(),
            "a record would hide dirty granules of an older one"
        );
        let frame = e.frame().expect("a frame to append");
        let log = context.log.get_mut()?;
        let kind = TransferKind::Append { valid, dirty };
        let t =
            self.transfers.start_on(&mut self.blocks, context.volumes, id, kind, ByteRange::EMPTY);
        self.blocks.unlist_dirty(id);
        self.blocks[id].take_append();
        let ticket = self.transfers.ticket(t);
        log.append(Append { ticket, key, valid, dirty, frame, urgent });
        // The sync that follows a flush covers what was handed to the log.
        self.flushes.covered(&mut self.blocks, id, true);
        Some(t)
    }

    // ---- into flash, while it stays in memory ----

    /// Blocks have arrived from the backing store: they enter flash if they do so at once.
    pub fn came_in(&mut self, context: &mut ShardContext<'_>, first: BlockKey, count: u32) {
        let at = context.place(Moment::ReadMiss);
        if at.flash != OnFlash::Now || at.memory == InMemory::Transit {
            // Blocks in transit enter flash when they leave memory, which they do at once.
            return;
        }
        for key in (first.0..first.0 + u64::from(count)).map(BlockKey) {
            if let Some(id) = self.blocks.find(key) {
                self.enter_flash(context, id);
            }
        }
    }

    /// A clean block that stays in memory enters flash. If it cannot now, or is not admitted, it is
    /// tried again when it leaves memory.
    fn enter_flash(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        let e = &self.blocks[id];
        if e.rests()
            && context.flash.takes_records()
            && context.flash.logs(e.key())
            && !self.is_jammed(context)
            && !self.blocks.owes_sync(context, self.blocks[id].key())
            && self.admitter().admits(context, id)
        {
            context.stats.entered_when_read += u64::from(self.append(context, id, false).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_flash::Granules;

    use super::*;
    use crate::shard::Shard;
    use crate::shard::destager::tests::holding;
    use crate::world::shard_context;

    /// Goal: a flush that finds a block busy has it appended afterwards, unless its transfer writes the frame to the
    /// store. Method: a dirty block in a transfer of either kind.
    #[test]
    fn a_flush_wants_an_append_of_a_busy_block_unless_it_is_being_destaged() {
        let (volume, range) = (Volume(0), ByteRange::EMPTY);
        let key = BlockKey::new(volume, 3);
        for destages in [false, true] {
            let mut cache = holding(&[]);
            let context = &mut shard_context!(cache.world);
            let Shard { tiers, .. } = &mut cache.world.shards[0];
            let id = tiers.blocks.insert(key).expect("the index has room");
            let frame = tiers.blocks.take_frame(id);
            tiers.blocks[id].set_frame(frame);
            tiers.blocks.dirtied(context, id, Granules(1));
            let kind = match destages {
                true => TransferKind::Destage { rest: Granules::EMPTY },
                false => TransferKind::Fetch,
            };
            tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, range);
            tiers.flushes.begin(&mut tiers.blocks, volume);
            assert_eq!(tiers.flush_step(context, volume, 1), FlushState::Waiting);
            assert!(tiers.blocks[id].is_flushing());
            assert_eq!(tiers.blocks[id].is_append_due(), !destages);
            assert_eq!(tiers.blocks[id].fault(destages), None);
            tiers.flushes.covered(&mut tiers.blocks, id, true);
            assert_eq!(tiers.flush_step(context, volume, 1), FlushState::Done { failed: false });
        }
    }

    /// Goal: a block that is to be appended for a flush, and to leave, becomes resident again if the log takes nothing.
    /// Otherwise no part of the shard knows its frame. Method: the log closes during the block's transfer.
    #[test]
    fn a_leaving_block_stays_if_the_log_does_not_take_it_for_a_flush() {
        let (volume, range) = (Volume(0), ByteRange::EMPTY);
        let key = BlockKey::new(volume, 3);
        let mut cache = holding(&[]);
        cache.world.flash.close();
        let context = &mut shard_context!(cache.world);
        let Shard { tiers, .. } = &mut cache.world.shards[0];
        let id = tiers.blocks.insert(key).expect("the index has room");
        let frame = tiers.blocks.take_frame(id);
        tiers.blocks[id].set_frame(frame);
        let local = tiers.blocks.local(frame.expect("a frame is free"));
        tiers.dram.enter_in_transit(local, key, None, false);
        tiers.blocks.dirtied(context, id, Granules(1));
        tiers.blocks.leaves(id);
        let kind = TransferKind::Fetch;
        let t = tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, range);
        tiers.flushes.begin(&mut tiers.blocks, volume);
        assert_eq!(tiers.flush_step(context, volume, 1), FlushState::Waiting);
        assert!(tiers.blocks[id].is_append_due());

        tiers.blocks[id].set_transfer(None);
        tiers.transfers.remove(t);
        tiers.take_next_step(context, id);
        assert!(!tiers.blocks[id].is_leaving());
        assert_eq!((tiers.blocks[id].fault(false), tiers.dram.len()), (None, 1));
        assert_eq!(tiers.flush_step(context, volume, 1), FlushState::Done { failed: true });
    }
}
