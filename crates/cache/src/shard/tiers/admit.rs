//! Which blocks enter flash and which bypass it: for which blocks the admission policy is asked.

use forebay_flash::BlockKey;

use crate::config::Written;
use crate::place::{InMemory, Moment, OnFlash};
use crate::policy::Acknowledge;
use crate::shard::Piece;
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::dram::Dram;
use crate::shard::entry::EntryId;
use crate::shard::flash_tier::FlashTier;

/// The parts that decide on admission, always together: what is known of the block, how often it was
/// used, and how much flash has taken.
pub(super) struct Admitter<'a> {
    pub blocks: &'a Blocks,
    pub dram: &'a mut Dram,
    pub flash: &'a FlashTier,
    /// See [`Tiers::marked`](super::Tiers::marked).
    pub marked: Option<BlockKey>,
}

impl Admitter<'_> {
    /// Whether a clean block that leaves memory enters flash. A block of which flash holds a part
    /// always does.
    pub fn admits(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> bool {
        let e = &self.blocks[id];
        let (key, frame) = (e.key(), e.frame().expect("a block that leaves memory has a frame"));
        let frame = self.blocks.local(frame);
        if self.dram.take_refusal(frame) {
            // The block was refused while it was dirty; it has been destaged since.
            return false;
        }
        if takes_only_clean(context) && self.blocks.owes_sync(context, key) {
            // Until the store is synced, the block would have to enter as dirty.
            let has = e.position().is_some();
            context.stats.not_admitted += u64::from(!has);
            if !has {
                let most = context.config.dram_blocks;
                context.volumes.note_kept_out(key.volume(), most, context.effects);
            }
            return has;
        }
        // A marked block was admitted before its extent was marked.
        if !self.dram.has_admission() || e.position().is_some() || self.marked == Some(key) {
            return true;
        }
        let offer = self.flash.offer(context);
        let admitted = self.dram.admits(frame, key, offer);
        count_admission(context, admitted);
        admitted
    }

    /// Whether some dirty blocks may not enter flash.
    fn filters_written(&self, context: &ShardContext<'_>) -> bool {
        match context.config.written() {
            Written::Ask => self.dram.has_admission(),
            Written::Enter => false,
            Written::Avoid => true,
        }
    }

    /// Whether a dirty block that leaves memory goes to the backing store instead of flash: the
    /// admission policy does not admit it, flash holds nothing of it, the store did not fail recently,
    /// and the log has noted that data bypass it.
    pub fn leaves_around(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> bool {
        let e = &self.blocks[id];
        let (key, frame) = (e.key(), e.frame().expect("a block that leaves memory has a frame"));
        let frame = self.blocks.local(frame);
        let transit = self.dram.is_in_transit(frame);
        let free = e.position().is_none() && !e.is_doubtful() && !transit;
        if !self.filters_written(context)
            || !free
            || !context.flash.logs(key)
            || context.flash.is_closed()
        {
            return false;
        }
        if !context.volumes.conditions[key.volume()].takes_writes() {
            return false;
        }
        let offer = self.flash.offer(context);
        let admitted =
            context.config.written() != Written::Avoid && self.dram.admits(frame, key, offer);
        if !admitted && context.wait_for_log_bypass(key).is_some() {
            // A block that leaves memory does not wait for the log's note: it enters flash although it was not admitted.
            return false;
        }
        count_admission(context, admitted);
        if !admitted {
            self.dram.refuse(frame);
        }
        !admitted
    }

    /// Whether a write bypasses flash and goes to the backing store. Reasons are that it is part of a
    /// stream that bypasses the cache, that too many blocks of its volume are dirty, that it would go
    /// to flash at once and the admission policy does not admit it, or that only queues admit blocks.
    /// Flash must hold nothing of the block that would have to be replaced, and the store must not have
    /// failed recently.
    pub fn goes_around(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
    ) -> bool {
        let asked =
            self.filters_written(context) && context.config.acknowledge == Acknowledge::Flash;
        let volume = &context.volumes[key.volume()];
        let most = context.config.bypass.dirty_blocks;
        let full = most != 0 && volume.may_bypass() && volume.stats.dirty_blocks >= most;
        let bypasses = full || context.front.requests[piece.request].bypass;
        let pulled = context.config.write_policy.write_back
            && context.place(Moment::WriteMiss).flash == OnFlash::Never;
        if !asked && !bypasses && !pulled {
            return false;
        }
        let entry = self.blocks.find(key);
        let dirty = entry.is_some_and(|id| !self.blocks[id].dirty().is_empty());
        if dirty || !self.blocks.may_bypass_log(context, key) {
            return false;
        }
        if !context.volumes.conditions[key.volume()].takes_writes() {
            // Flash takes what a store that fails does not.
            return false;
        }
        if let Some(around) = piece.around {
            return around;
        }
        if bypasses || pulled {
            context.stats.bypassed_writes += u64::from(bypasses);
            context.stats.written_around += u64::from(!bypasses);
            piece.around = Some(true);
            return true;
        }
        let frame = entry.and_then(|id| self.blocks[id].frame());
        let frame = frame.map(|frame| self.blocks.local(frame));
        let offer = self.flash.offer(context);
        let admitted =
            context.config.written() != Written::Avoid && self.dram.admits_write(frame, key, offer);
        count_admission(context, admitted);
        context.stats.written_around += u64::from(!admitted);
        if !admitted && context.place(Moment::Write).memory != InMemory::Keep {
            self.dram.write_around(frame, key);
        }
        piece.around = Some(!admitted);
        !admitted
    }
}

/// Whether no block enters flash as dirty that can do without, under write-back.
pub(super) fn takes_only_clean(context: &ShardContext<'_>) -> bool {
    context.config.written() == Written::Avoid && context.config.write_policy.write_back
}

fn count_admission(context: &mut ShardContext<'_>, admitted: bool) {
    context.stats.admitted += u64::from(admitted);
    context.stats.not_admitted += u64::from(!admitted);
}
