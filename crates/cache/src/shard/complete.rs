//! The end of transfers: the block's state advances, and waiting pieces are tried again.

mod direct;
mod records;

use forebay_effect::{Effect, IoError, Outcome};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, MarkAnswer, Position};

use super::blocks::FlashRecord;
use super::entry::EntryId;
use super::flash_tier::IfEvicted;
use super::tiers::Tiers;
use super::transfer::{Transfer, TransferKind};
use super::{Shard, ShardContext};
use crate::byte_range::ByteRange;
use crate::load::Source;
use crate::shard::RegionMove;
use crate::slab::TransferIndex;

impl Shard {
    /// Called when a device effect of this shard has ended.
    pub fn handle_completion(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        result: Outcome,
    ) {
        let kind = self.tiers.transfers[t].kind;
        context.stats.transfer_errors += u64::from(result.is_err());
        // (The log writes to flash, and ends these transfers elsewhere.)
        if kind.source() != Some(Source::Flash) {
            let volume = self.tiers.transfers[t].key.volume();
            match kind.source() {
                Some(_) => context.volumes.conditions.read_ended(volume, result),
                None => context.volumes.conditions.write_ended(volume, result),
            }
            context.volumes[volume].stats.backing_errors += u64::from(result.is_err());
        }
        if let Some(source) = kind.source() {
            context.read_ends(source);
        }
        if kind.is_direct() {
            if result.is_ok() && direct::goes_on(self, context, t) {
                return self.end_turn(context);
            }
            // This is counted before a request learns of the end, so that a sync begun by it covers
            // the write.
            let Transfer { key, start, end, .. } = self.tiers.transfers[t];
            context.volumes.direct_written(key.volume(), ByteRange { start, end });
        }
        match kind {
            TransferKind::Fetch => self.fetched(context, t, result),
            TransferKind::FetchLine => {
                self.tiers.lines.ended();
                self.fetched(context, t, result);
            }
            TransferKind::FlashRead { position }
            | TransferKind::DestageRead { position }
            | TransferKind::CarryRead { position } => match result {
                Ok(()) => self.verify(context, t, position),
                Err(e) => self.flash_read_ended(context, t, Err(e)),
            },
            TransferKind::Destage { .. } => direct::destaged(self, context, t, result),
            TransferKind::DestageRecord { from, .. } => {
                records::record_written(self, context, t, from, result)
            }
            TransferKind::DirectWrite { request, pieces, keep } => {
                direct::direct_written(self, context, t, (request, pieces, keep), result);
            }
            TransferKind::DirectZero { request } => {
                self.finish(context, t, |_, _, _| {});
                context.pieces_done(request, 1, result);
            }
            TransferKind::Range { request, pieces, .. } => {
                self.tiers.transfers.release_range(t);
                self.finish(context, t, |_, _, _| {});
                context.pieces_done(request, pieces, result);
            }
            TransferKind::DirectRead { request, pieces } => {
                self.finish(context, t, |_, _, _| {});
                context.pieces_done(request, pieces, result);
            }
            TransferKind::Append { .. }
            | TransferKind::Carry { .. }
            | TransferKind::Activate { .. } => {
                unreachable!("the log reports the end of {kind:?}")
            }
        }
        self.end_turn(context);
    }

    /// Ends a transfer: frees its blocks (`each` first advances their state), then evaluates its
    /// waiters, then lets the blocks take their pending step.
    pub(super) fn finish(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        mut each: impl FnMut(&mut Tiers, &mut ShardContext<'_>, EntryId),
    ) {
        let Transfer { key, count, kind, .. } = self.tiers.transfers[t];
        // A range has no entries.
        let blocks = if matches!(kind, TransferKind::Range { .. }) { 0 } else { u64::from(count) };
        // The blocks stay busy until all have moved on: nothing may start on them meanwhile.
        for i in 0..blocks {
            if let Some(id) = self.tiers.blocks.find(BlockKey(key.0 + i))
                && self.tiers.blocks[id].transfer() == Some(t)
            {
                each(&mut self.tiers, context, id);
            }
        }
        for i in 0..blocks {
            if let Some(id) = self.tiers.blocks.find(BlockKey(key.0 + i))
                && self.tiers.blocks[id].transfer() == Some(t)
            {
                self.tiers.blocks[id].set_transfer(None);
            }
        }
        let mut waiters = self.tiers.transfers.remove(t).waiters;
        self.tiers.room.note();
        // The transfer for which the last retried write waits.
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
            let under_way =
                |s: &Self| s.tiers.blocks.find(key).and_then(|id| s.tiers.blocks[id].transfer());
            if let Some(t) = next.filter(|&t| under_way(self) == Some(t)) {
                // The waiters behind it wait for the same transfer: many may write to one block.
                context.stats.waits_block += 1;
                self.waiting.push_back(&mut self.tiers.transfers[t].waiters, w);
                continue;
            }
            self.try_again(context, w);
            next = under_way(self).filter(|&t| self.tiers.transfers[t].waiters.last() == Some(w));
        }
        for i in 0..blocks {
            if let Some(id) = self.tiers.blocks.find(BlockKey(key.0 + i)) {
                self.tiers.take_next_step(context, id);
            }
            let Tiers { flash, blocks, transfers, .. } = &mut self.tiers;
            flash.transfer_ended(blocks, transfers, context, BlockKey(key.0 + i));
        }
    }

    /// Ends a failed transfer: its requester is notified; the other waiters try again.
    fn finish_failed(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, error: IoError) {
        let kind = self.tiers.transfers[t].kind;
        if kind != TransferKind::FetchLine {
            self.waiting.fail_first(&mut self.tiers.transfers[t].waiters, context, error);
        }
        let fetched = matches!(kind, TransferKind::Fetch | TransferKind::FetchLine);
        self.finish(context, t, |tiers, _, id| {
            // A failing store must not take memory from others.
            if fetched && tiers.blocks[id].valid().is_empty() && tiers.blocks[id].frame().is_some()
            {
                tiers.release_frame(id);
            }
        });
    }

    fn fetched(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, result: Outcome) {
        if let Err(e) = result {
            // The waiters of a run belong to one request or wait for the same bytes.
            return self.finish_failed(context, t, e);
        }
        let Transfer { bounce, key, count, .. } = self.tiers.transfers[t];
        let all = self.tiers.blocks.granularity().all();
        self.finish(context, t, |tiers, context, id| {
            // The backing store has only an older version of lost granules.
            let had = all & !tiers.blocks[id].lost();
            if let Some(from) = bounce {
                tiers.blocks.merge(context, id, from, had);
            }
            tiers.blocks.arrived(id, had);
        });
        self.tiers.came_in(context, key, count);
    }

    // ---- flash reads ----

    fn verify(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, position: Position) {
        let key = self.tiers.transfers[t].key;
        let here = self.tiers.blocks.find_at(key, position);
        let Some(id) = here else {
            return self.flash_read_ended(context, t, Ok(false));
        };
        if context.mode.without_bytes {
            return self.flash_read_ended(context, t, Ok(true));
        }
        let e = &self.tiers.blocks[id];
        let seed = context.log.of(position).payload_seed(key, position);
        let frame = self.tiers.transfers[t].bounce.or(e.frame()).expect("a frame was read into");
        let segments = self.tiers.blocks.granularity().payload(frame, e.flash_valid(), None);
        let effect = Effect::Checksum { token: self.tiers.transfers.token(t), seed };
        context.effects.push_with(effect, segments);
    }

    /// Called when the driver has computed the checksum of data read from flash.
    pub fn handle_checksum(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        value: u32,
    ) {
        let Transfer { kind, key, .. } = self.tiers.transfers[t];
        let (TransferKind::FlashRead { position }
        | TransferKind::DestageRead { position }
        | TransferKind::CarryRead { position }) = kind
        else {
            unreachable!("{kind:?} needs no checksum")
        };
        let believed = context.mode.sabotage.is(Bug::ChecksumIgnoredOnRead);
        // Events of the log may have been handled since the checksum was requested.
        let end = match self.tiers.blocks.find_at(key, position) {
            None => Ok(false),
            Some(id) if self.tiers.blocks.record(id).checksum == value || believed => Ok(true),
            Some(_) => Err(IoError::Corrupt),
        };
        self.flash_read_ended(context, t, end);
        self.close_runs(context);
    }

    /// Called when a read from flash has ended. `Ok(true)`: the data is good; `Ok(false)`:
    /// reclaiming has overtaken the read.
    fn flash_read_ended(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        end: Result<bool, IoError>,
    ) {
        let destage = matches!(self.tiers.transfers[t].kind, TransferKind::DestageRead { .. });
        if let TransferKind::CarryRead { position } = self.tiers.transfers[t].kind {
            context.stats.flash_corrupt += u64::from(end == Err(IoError::Corrupt));
            if self.destager.carry_read(&mut self.tiers, context, t, position, end) {
                self.finish(context, t, |_, _, _| {});
            }
            return;
        }
        match end {
            Ok(true) if destage => self.destager.writes.record_read(&mut self.tiers, context, t),
            Ok(true) => {
                let bounce = self.tiers.transfers[t].bounce;
                let id = self.tiers.blocks.entry_of(self.tiers.transfers[t].key);
                match self.tiers.is_in_transit(id) {
                    true => context.stats.read_through += 1,
                    false => context.stats.promotions += 1,
                }
                self.finish(context, t, |tiers, context, id| {
                    let record = tiers.blocks[id].flash_valid();
                    if let Some(from) = bounce {
                        tiers.blocks.merge(context, id, from, record);
                    }
                    tiers.blocks.arrived(id, record);
                });
            }
            Ok(false) if destage => {
                context.stats.flash_read_overtaken += 1;
                records::record_unread(self, context, t, true);
            }
            Ok(false) => {
                context.stats.flash_read_overtaken += 1;
                self.finish(context, t, |_, _, _| {});
            }
            Err(error) => {
                context.stats.flash_corrupt += u64::from(error == IoError::Corrupt);
                if destage {
                    return records::record_unread(self, context, t, false);
                }
                let key = self.tiers.transfers[t].key;
                let id = self.tiers.blocks.entry_of(key);
                if self.tiers.blocks[id].owed().is_empty() {
                    // The backing store has the data, too. The entry stays, so that no write
                    // bypasses the record that is still on flash.
                    self.tiers.blocks.record_unusable(context, id);
                    self.finish(context, t, |tiers, context, id| {
                        // The record's region may have been freed meanwhile.
                        if let Some(position) = tiers.blocks[id].position() {
                            tiers.flash.disown(&tiers.blocks, context, id, position);
                            tiers.flash.update_residence(&tiers.blocks, id, IfEvicted::Leaves);
                        }
                    });
                } else {
                    self.finish_failed(context, t, error);
                }
            }
        }
    }

    // ---- to the log ----

    /// Called when the log has written a record, and all before it. If the record has replaced a
    /// dirty one, returns the regions of both.
    #[must_use]
    pub fn appended(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        position: Position,
        checksum: u32,
    ) -> Option<RegionMove> {
        let mut moved = None;
        let (valid, dirty) = match self.tiers.transfers[t].kind {
            TransferKind::Append { valid, dirty } => (valid, dirty),
            TransferKind::Carry { position: from, valid, dirty } => {
                let to = FlashRecord { position, checksum, valid, dirty };
                let moved = self.destager.carried(&mut self.tiers, context, t, from, to);
                self.finish(context, t, |_, _, _| {});
                self.close_runs(context);
                return moved;
            }
            other => unreachable!("the log does not report the end of {other:?}"),
        };
        self.waiting.end_applied(&mut self.tiers.transfers[t].waiters, context, Ok(()));
        self.finish(context, t, |tiers, context, id| {
            let e = &tiers.blocks[id];
            if let (Some(old), true) = (e.position(), !e.flash_dirty().is_empty()) {
                let log = context.log.of(position);
                moved = Some(RegionMove { from: log.region_of(old), to: log.region_of(position) });
            }
            let mut to = FlashRecord { position, checksum, valid, dirty };
            if context.mode.sabotage.is(Bug::StaleReferenceRead)
                && let Some(old) = tiers.blocks[id].position()
            {
                (to.position, to.checksum) = (old, tiers.blocks.record(id).checksum);
            }
            tiers.flash.logged(&mut tiers.blocks, context, id, to);
        });
        self.tiers.evict_from_flash(context);
        self.close_runs(context);
        moved
    }

    /// Called when the log could not write a record. Nothing is lost: the frame keeps the data.
    pub fn append_failed(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        error: IoError,
    ) {
        context.stats.transfer_errors += 1;
        assert!(context.flash.is_closed(), "a log that takes records has refused one");
        if matches!(self.tiers.transfers[t].kind, TransferKind::Carry { .. }) {
            self.destager.carry_refused(&self.tiers, t);
        }
        if context.flash.awaits_void {
            self.waiting.park_applied(&mut self.tiers.transfers[t].waiters);
        } else {
            self.waiting.end_applied(&mut self.tiers.transfers[t].waiters, context, Err(error));
        }
        self.finish(context, t, |tiers, _, id| {
            tiers.blocks[id].doubt();
            tiers.not_logged(id);
        });
        self.close_runs(context);
    }

    /// The log has refused a record. Either the log has no room and the record's store fails: the
    /// block stays dirty, or leaves memory if it was clean. Or the record was to be reinserted, and
    /// the log has no room to spare.
    pub fn append_refused(&mut self, context: &mut ShardContext<'_>, t: TransferIndex) {
        if matches!(self.tiers.transfers[t].kind, TransferKind::Carry { .. }) {
            self.destager.reinsertion_refused(&self.tiers, context, t);
            self.finish(context, t, |_, _, _| {});
            return self.close_runs(context);
        }
        context.stats.appends_refused += 1;
        self.waiting.end_applied(
            &mut self.tiers.transfers[t].waiters,
            context,
            Err(IoError::Device),
        );
        self.finish(context, t, |tiers, _, id| {
            tiers.not_logged(id);
        });
        self.close_runs(context);
    }

    /// Handles the log's answer to a request to mark an extent or to void a record.
    pub fn handle_mark(
        &mut self,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        answer: MarkAnswer,
    ) {
        match answer {
            MarkAnswer::Active(result) => self.activated(context, t, result),
            MarkAnswer::Unmarked => self.unmarked(context, t),
            MarkAnswer::RecordVoid(result) => self.record_void(context, t, result),
        }
    }

    /// Called when the extent of a block is durably marked, so that its record may become stale, or
    /// when the log has failed.
    fn activated(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, result: Outcome) {
        if let Err(e) = result {
            context.stats.transfer_errors += 1;
            assert!(context.flash.is_closed(), "a log that takes records has marked nothing");
            if context.flash.awaits_void {
                self.finish(context, t, |_, _, _| {});
            } else {
                self.finish_failed(context, t, e);
            }
            return self.close_runs(context);
        }
        let key = self.tiers.transfers[t].key;
        let poison =
            matches!(self.tiers.transfers[t].kind, TransferKind::Activate { poison: true });
        // The step is taken in this call: the block's record is stale, and the mark stays until a
        // sync of the backing store that begins later.
        self.finish(context, t, |tiers, context, id| {
            if !poison {
                tiers.marked = Some(key);
            } else if let Some(position) = tiers.blocks[id].position() {
                context.stats.poisoned += 1;
                context.log.of_mut(position).poison(key);
                tiers.flash.disown(&tiers.blocks, context, id, position);
                tiers.flash.set_record(&mut tiers.blocks, context, id, None);
                if tiers.blocks[id].frame().is_none() {
                    tiers.dram.lose(key);
                }
            }
        });
        // The mark is valid only for the step just taken; a rescued block requests another.
        self.tiers.marked = None;
        self.close_runs(context);
    }

    /// The extent of a block is not marked. A direct write waits until the block's record is void;
    /// a clean block that was to enter flash does not enter it.
    fn unmarked(&mut self, context: &mut ShardContext<'_>, t: TransferIndex) {
        let (key, kind) = (self.tiers.transfers[t].key, self.tiers.transfers[t].kind);
        let id = self.tiers.blocks.entry_of(key);
        let direct = kind == TransferKind::Activate { poison: true };
        let Some(position) = self.tiers.blocks[id].position().filter(|_| direct) else {
            // (The record's region was freed meanwhile, or a block that leaves memory finds that it
            // gets no mark.)
            self.finish(context, t, |_, _, _| {});
            return self.close_runs(context);
        };
        context.stats.voided_alone += 1;
        // The record is forgotten now: after the tombstone, its mapping must not move, and it must
        // not be reinserted.
        let tiers = &mut self.tiers;
        tiers.flash.disown(&tiers.blocks, context, id, position);
        tiers.flash.set_record(&mut tiers.blocks, context, id, None);
        if tiers.blocks[id].frame().is_none() {
            tiers.dram.lose(key);
        }
        let ticket = tiers.transfers.ticket(t);
        context.log.of_mut(position).void_record(key, ticket);
    }

    /// The log has voided the block's records, so that no start will find any, or has failed to do
    /// so.
    fn record_void(&mut self, context: &mut ShardContext<'_>, t: TransferIndex, result: Outcome) {
        match result {
            Ok(()) => self.finish(context, t, |_, _, _| {}),
            Err(error) => {
                context.stats.transfer_errors += 1;
                let id = self.tiers.blocks.entry_of(self.tiers.transfers[t].key);
                self.tiers.blocks[id].doubt();
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
