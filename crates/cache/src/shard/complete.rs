//! Transfers end: the block's state moves on, and whoever waited is evaluated anew.

use forebay_effect::{Effect, IoError, Outcome, Place};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

use super::blocks::FlashRecord;
use super::transfer::{Kind, Transfer};
use super::{Shard, ShardContext};
use crate::frames::Frame;
use crate::index::{EntryId, FLUSHING, LEAVING, MARKED, WANTS_APPEND};

impl Shard {
    /// A device effect of this shard ended.
    pub fn handle_completion(&mut self, context: &mut ShardContext<'_>, t: u32, result: Outcome) {
        let kind = self.transfers[t].kind;
        context.stats.transfer_errors += u64::from(result.is_err());
        if !matches!(
            kind,
            Kind::FlashRead { .. } | Kind::DestageRead { .. } | Kind::CarryRead { .. }
        ) {
            let volume = usize::from(self.transfers[t].key.volume());
            let volume = &mut context.front.volumes[volume];
            let reads = matches!(kind, Kind::Fetch | Kind::DirectRead { .. });
            volume.failing[usize::from(!reads)] = result.err();
            volume.last_failure = result.err().or(volume.last_failure);
            volume.stats.backing_errors += u64::from(result.is_err());
        }
        match kind {
            Kind::Fetch => self.fetched(context, t, result),
            Kind::FlashRead { position }
            | Kind::DestageRead { position }
            | Kind::CarryRead { position } => match result {
                Ok(()) => self.verify(context, t, position),
                Err(e) => self.flash_read_ended(context, t, Err(e)),
            },
            Kind::Destage { .. } => self.destaged(context, t, result),
            Kind::DestageRecord { from, .. } => self.record_destage_step(context, t, from, result),
            Kind::DirectWrite { request, pieces, keep } => {
                self.direct_written(context, t, (request, pieces, keep), result);
            }
            Kind::DirectZero { request } => {
                self.count_direct(context, t);
                self.finish(context, t, |_, _, _| {});
                context.front.pieces_done(request, 1, result);
            }
            Kind::Range { request, pieces, .. } => {
                self.count_direct(context, t);
                self.transfers.release_range(t);
                self.finish(context, t, |_, _, _| {});
                context.front.pieces_done(request, pieces, result);
            }
            Kind::DirectRead { request, pieces } => {
                self.finish(context, t, |_, _, _| {});
                context.front.pieces_done(request, pieces, result);
            }
            Kind::Append { .. } | Kind::Carry { .. } | Kind::Activate { .. } => {
                unreachable!("{kind:?} is answered by the log")
            }
        }
        self.transfers.close_runs(context);
    }

    /// Ends a transfer: frees its blocks (`each` moves their state on first), then evaluates
    /// its waiters, then lets the blocks take the step they owe.
    pub(super) fn finish(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        mut each: impl FnMut(&mut Self, &mut ShardContext<'_>, EntryId),
    ) {
        let Transfer { key, count, kind, .. } = self.transfers[t];
        // A range has no entries.
        let blocks = if matches!(kind, Kind::Range { .. }) { 0 } else { u64::from(count) };
        // The blocks stay busy until all have moved on: nothing may start on them meanwhile.
        for i in 0..blocks {
            if let Some(id) = self.blocks.find(BlockKey(key.0 + i))
                && self.blocks[id].transfer() == Some(t)
            {
                each(self, context, id);
            }
        }
        for i in 0..blocks {
            if let Some(id) = self.blocks.find(BlockKey(key.0 + i))
                && self.blocks[id].transfer() == Some(t)
            {
                self.blocks[id].set_transfer(None);
            }
        }
        let mut waiters = self.transfers.remove(t).waiters;
        self.room = true;
        // The transfer that a write was found to wait for.
        let mut next = None;
        while let Some(w) = self.waiting.pop_front(&mut waiters) {
            let writes = count == 1 && {
                let request = self.waiting.piece(w).request;
                context.front.requests[request].op.modifies()
            };
            if !writes {
                self.try_again(context, w);
                continue;
            }
            let under_way = |s: &Self| s.blocks.find(key).and_then(|id| s.blocks[id].transfer());
            if let Some(t) = next.filter(|&t| under_way(self) == Some(t)) {
                // Those behind it wait for the same: many may write to one block.
                context.stats.waits_block += 1;
                self.waiting.push_back(&mut self.transfers[t].waiters, w);
                continue;
            }
            self.try_again(context, w);
            next = under_way(self).filter(|&t| self.transfers[t].waiters.tail == w);
        }
        for i in 0..blocks {
            if let Some(id) = self.blocks.find(BlockKey(key.0 + i)) {
                self.settle(context, id);
            }
            self.flash.settle(&self.blocks, &self.transfers, context, BlockKey(key.0 + i));
        }
    }

    /// The step that a block without a transfer still owes: to the log for a flush, out of
    /// DRAM, out of the index.
    fn settle(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        if self.blocks[id].transfer().is_some() {
            return;
        }
        if self.blocks[id].has(WANTS_APPEND) {
            self.blocks[id].clear(WANTS_APPEND);
            if self.blocks[id].dirty == 0 {
                self.flush_covered(id, true);
            } else if self.flash.logs(self.blocks[id].key()) {
                if self.append(context, id, true).is_none() {
                    self.flush_covered(id, false);
                    self.blocks.relist_dirty(id);
                }
                return;
            } else {
                self.persist(context, id, true);
                return;
            }
        }
        if self.blocks[id].has(LEAVING) {
            self.try_leave(context, id);
        } else {
            self.forget_if_empty(id);
        }
    }

    /// Ends a failed transfer: who caused it hears of it; the others try for themselves.
    fn finish_failed(&mut self, context: &mut ShardContext<'_>, t: u32, error: IoError) {
        self.fail_first(context, t, error);
        let fetched = self.transfers[t].kind == Kind::Fetch;
        self.finish(context, t, |shard, _, id| {
            // A store that fails is not to take memory from others.
            if fetched && shard.blocks[id].valid == 0 && shard.blocks[id].frame().is_some() {
                shard.release_frame(id);
            }
        });
    }

    /// The request that was the first to wait for a transfer hears that it has failed.
    fn fail_first(&mut self, context: &mut ShardContext<'_>, t: u32, error: IoError) {
        let mut culprit = None;
        self.waiting.extract(
            &mut self.transfers[t].waiters,
            |w| *culprit.get_or_insert(w.piece.request) == w.piece.request,
            |piece| context.front.pieces_done(piece.request, 1, Err(error)),
        );
    }

    fn fetched(&mut self, context: &mut ShardContext<'_>, t: u32, result: Outcome) {
        if let Err(e) = result {
            // The waiters of a run belong to one request or wait for the same bytes.
            return self.finish_failed(context, t, e);
        }
        let bounce = self.transfers[t].bounce;
        let all = self.blocks.granules().all();
        self.finish(context, t, |shard, context, id| {
            // (What the backing store has of what is lost is an older version.)
            let had = all & !shard.blocks[id].lost();
            if let Some(from) = bounce {
                shard.merge(context, id, from, had);
            }
            shard.blocks[id].valid |= had;
        });
    }

    /// Copies into the frame those of `mask`'s granules that it lacks.
    fn merge(&mut self, context: &mut ShardContext<'_>, id: EntryId, from: Frame, mask: u16) {
        context.stats.merges += 1;
        let e = &self.blocks[id];
        let (frame, missing) = (e.frame().expect("a frame to merge into"), mask & !e.valid);
        for (offset, length) in self.blocks.granules().runs(missing) {
            let (from, to) =
                (Place::Slot { slot: from, offset }, Place::Slot { slot: frame, offset });
            context.effects.push(Effect::Copy { from, to, length });
        }
    }

    // ---- flash reads ----

    fn verify(&mut self, context: &mut ShardContext<'_>, t: u32, position: Position) {
        let key = self.transfers[t].key;
        let here = self.blocks.find_at(key, position);
        let Some(id) = here else {
            return self.flash_read_ended(context, t, Ok(false));
        };
        let e = &self.blocks[id];
        let log = context.log.as_deref().expect("a record needs a log");
        let seed = log.payload_seed(key, position);
        let frame = self.transfers[t].bounce.or(e.frame()).expect("a frame was read into");
        let segments = self.blocks.granules().payload(frame, e.flash_valid, None);
        let effect = Effect::Checksum { token: self.transfers.token(t), seed };
        context.effects.push_with(effect, segments);
    }

    /// The driver has computed the checksum of what was read from flash.
    pub fn handle_checksum(&mut self, context: &mut ShardContext<'_>, t: u32, value: u32) {
        let key = self.transfers[t].key;
        let id = self.blocks.entry_of(key);
        let believed = context.front.sabotage.is(Bug::ChecksumIgnoredOnRead);
        let good = self.blocks[id].checksum == value || believed;
        let end = if good { Ok(true) } else { Err(IoError::Corrupt) };
        self.flash_read_ended(context, t, end);
        self.transfers.close_runs(context);
    }

    /// A read from flash ended: `Ok(true)` good, `Ok(false)` overtaken by reclaim.
    fn flash_read_ended(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        end: Result<bool, IoError>,
    ) {
        let destage = matches!(self.transfers[t].kind, Kind::DestageRead { .. });
        if let Kind::CarryRead { position } = self.transfers[t].kind {
            context.stats.flash_corrupt += u64::from(end == Err(IoError::Corrupt));
            return self.carry_read(context, t, position, end);
        }
        match end {
            Ok(true) if destage => self.record_read(context, t),
            Ok(true) => {
                context.stats.promotions += 1;
                let bounce = self.transfers[t].bounce;
                self.finish(context, t, |shard, context, id| {
                    let mask = shard.blocks[id].flash_valid;
                    if let Some(from) = bounce {
                        shard.merge(context, id, from, mask);
                    }
                    shard.blocks[id].valid |= mask;
                });
            }
            Ok(false) if destage => {
                context.stats.flash_read_overtaken += 1;
                self.record_unread(context, t, true);
            }
            Ok(false) => {
                context.stats.flash_read_overtaken += 1;
                self.finish(context, t, |_, _, _| {});
            }
            Err(error) => {
                context.stats.flash_corrupt += u64::from(error == IoError::Corrupt);
                if destage {
                    return self.record_unread(context, t, false);
                }
                let key = self.transfers[t].key;
                let id = self.blocks.entry_of(key);
                if self.blocks[id].owed() == 0 {
                    // The backing store has it too. The entry stays, so that nobody writes past
                    // the record that is still on flash: until its region is free or, in the layout
                    // frames, until it is forgotten there.
                    self.blocks[id].flash_valid = 0;
                    self.finish(context, t, |shard, context, id| {
                        // (Its region may have been freed meanwhile.)
                        if shard.blocks[id].position().is_some() {
                            shard.flash.disown(&shard.blocks, context, id);
                            shard.flash.update_residence(&shard.blocks, id, false);
                        }
                    });
                } else {
                    self.finish_failed(context, t, error);
                }
            }
        }
    }

    // ---- to the log ----

    /// The log has written a record, and all before it. If it took over what an older record held
    /// dirty: the regions of both, the older one first.
    pub fn appended(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        position: Position,
        checksum: u32,
    ) -> Option<(u32, u32)> {
        let mut moved = None;
        let (valid, dirty) = match self.transfers[t].kind {
            Kind::Append { valid, dirty } => (valid, dirty),
            Kind::Carry { position: from, valid, dirty } => {
                let to = FlashRecord { position, checksum, valid, dirty };
                return self.carried(context, t, from, to);
            }
            other => unreachable!("{other:?} is not answered by the log"),
        };
        self.finish_applied(context, t, Ok(()));
        self.finish(context, t, |shard, context, id| {
            let was = shard.blocks[id].is_dirty();
            shard.blocks[id].dirty &= !dirty;
            shard.blocks.count_dirty(id, was, context.front);
            let e = &shard.blocks[id];
            if let (Some(old), true) = (e.position(), e.flash_dirty != 0) {
                let log = context.log.as_deref().expect("a record needs a log");
                moved = Some((log.region_of(old), log.region_of(position)));
            }
            let to = Some(FlashRecord { position, checksum, valid, dirty });
            shard.flash.set_record(&mut shard.blocks, context, id, to);
        });
        self.flash.evict(&self.blocks, &self.transfers, context);
        self.transfers.close_runs(context);
        moved
    }

    /// The log could not write a record. Nothing is lost: the frame keeps it.
    pub fn append_failed(&mut self, context: &mut ShardContext<'_>, t: u32, error: IoError) {
        context.stats.transfer_errors += 1;
        self.flash.fail_log();
        if self.flash.is_holding() {
            self.waiting.park_applied(&mut self.transfers[t].waiters);
        } else {
            self.finish_applied(context, t, Err(error));
        }
        self.finish(context, t, |shard, _, id| {
            shard.blocks[id].set(crate::index::DOUBTFUL);
            shard.flush_covered(id, false);
            shard.blocks.relist_dirty(id);
        });
        self.transfers.close_runs(context);
    }

    /// The log has no room for a record, and its store fails: it was not written, and stays dirty, or
    /// leaves memory if it was clean.
    pub fn append_refused(&mut self, context: &mut ShardContext<'_>, t: u32) {
        context.stats.appends_refused += 1;
        self.finish_applied(context, t, Err(IoError::Device));
        self.finish(context, t, |shard, _, id| {
            shard.flush_covered(id, false);
            shard.blocks.relist_dirty(id);
        });
        self.transfers.close_runs(context);
    }

    /// The pieces whose data is in what a transfer has moved are done.
    fn finish_applied(&mut self, context: &mut ShardContext<'_>, t: u32, result: Outcome) {
        self.waiting.extract(
            &mut self.transfers[t].waiters,
            |w| w.applied,
            |piece| context.front.pieces_done(piece.request, 1, result),
        );
    }

    /// The extent of a block is durably marked: its record may be outdated.
    pub fn activated(&mut self, context: &mut ShardContext<'_>, t: u32, result: Outcome) {
        if let Err(e) = result {
            context.stats.transfer_errors += 1;
            self.flash.fail_log();
            if self.flash.is_holding() {
                self.finish(context, t, |_, _, _| {});
            } else {
                self.finish_failed(context, t, e);
            }
            return self.transfers.close_runs(context);
        }
        let key = self.transfers[t].key;
        let poison = matches!(self.transfers[t].kind, Kind::Activate { poison: true });
        // The grant ends before its step is taken: a record that is appended from here on, by the
        // step or by whoever waited, must not count as stale. The mark stays until the backing
        // store is synced, and nothing of that can happen within this call.
        context.log.as_deref_mut().expect("a marked extent needs a log").direct_done(key);
        self.finish(context, t, |shard, context, id| {
            let key = shard.blocks[id].key();
            let log = context.log.as_deref_mut().expect("a marked extent needs a log");
            if !poison {
                shard.blocks[id].set(MARKED);
            } else if shard.blocks[id].position().is_some() {
                context.stats.poisoned += 1;
                log.poison(key);
                shard.flash.disown(&shard.blocks, context, id);
                shard.flash.set_record(&mut shard.blocks, context, id, None);
            }
        });
        // The mark is good for the step just taken; a block that was rescued asks anew.
        if let Some(id) = self.blocks.find(key) {
            self.blocks[id].clear(MARKED);
        }
        self.transfers.close_runs(context);
    }

    // ---- to the backing store ----

    fn destaged(&mut self, context: &mut ShardContext<'_>, t: u32, result: Outcome) {
        if result.is_ok() && matches!(self.transfers[t].kind, Kind::Destage { rest } if rest != 0) {
            let id = self.blocks.find(self.transfers[t].key).expect("a busy block has an entry");
            let frame = self.blocks[id].frame().expect("a frame is being destaged");
            self.transfers.destage_step(&self.blocks, context, t, frame);
            return;
        }
        self.destages_failed = if result.is_ok() { 0 } else { self.destages_failed + 1 };
        self.count_direct(context, t);
        self.finish_applied(context, t, result);
        if let (Err(error), true) = (result, self.flash.goes_past(self.transfers[t].key)) {
            // It would only have the same written again, and again.
            self.fail_first(context, t, error);
        }
        self.finish(context, t, |shard, context, id| {
            if result.is_ok() {
                let was = shard.blocks[id].is_dirty();
                shard.blocks.unlist_dirty(id);
                shard.blocks[id].dirty = 0;
                context.stats.destaged += 1;
                shard.blocks.count_dirty(id, was, context.front);
            } else {
                shard.blocks.relist_dirty(id);
                if shard.blocks[id].has(LEAVING) {
                    shard.readmit(id);
                }
            }
            if shard.blocks[id].has(FLUSHING) {
                shard.flush_covered(id, result.is_ok());
            }
        });
    }

    /// A transfer to the backing store that did not pass the log has ended, well or not.
    fn count_direct(&self, context: &mut ShardContext<'_>, t: u32) {
        let Transfer { key, start, end, .. } = self.transfers[t];
        context.front.direct_written(key.volume(), start, end);
    }

    fn direct_written(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        (request, pieces, keep): (u32, u32, bool),
        result: Outcome,
    ) {
        let (start, end) = (self.transfers[t].start, self.transfers[t].end);
        self.count_direct(context, t);
        let r = &context.front.requests[request];
        let (id_of_request, base) = (r.id, r.offset);
        self.finish(context, t, |shard, context, id| {
            let block_start =
                shard.blocks[id].key().block().0 << shard.blocks.granules().block_shift();
            let from = start.max(block_start);
            let to = end.min(block_start + u64::from(shard.blocks.granules().block_size()));
            let (offset, length) = ((from - block_start) as u32, (to - from) as u32);
            let (touched, covered) = shard.blocks.granules().masks(offset, length);
            if result.is_err() || !keep {
                // Who knows what the backing store holds now: it is asked anew.
                let e = &mut shard.blocks[id];
                e.valid &= !touched;
                if e.valid == 0 && e.frame().is_some() {
                    shard.release_frame(id);
                }
                return;
            }
            let frame = shard.blocks[id].frame().expect("a frame was ensured");
            let at = (from - base) as u32;
            let from = Place::Request { request: id_of_request, offset: at };
            context.effects.push(Effect::Copy {
                from,
                to: Place::Slot { slot: frame, offset },
                length,
            });
            shard.blocks[id].valid |= covered;
            shard.rescue(context, id, frame);
        });
        context.front.pieces_done(request, pieces, result);
    }
}
