//! Writes past a flash tier that has failed, or is full: which go on at once, which wait, and how the
//! index forgets records that were declared void (`pass_through.rs` has the order of steps).

use forebay_block::Op;
use forebay_effect::IoError;
use forebay_flash::BlockKey;

use super::transfer::Kind;
use super::{Shard, ShardContext, Step};
use crate::index::EntryId;
use crate::waiters::Piece;

impl Shard {
    /// From now on writes of blocks with a record wait; if not `holding`, they fail.
    pub fn set_holding(&mut self, holding: bool) {
        self.flash.set_holding(holding);
        self.room |= !holding;
    }

    /// These volumes (bits) go past flash; `all`: there are no others.
    pub fn set_past(&mut self, past: u64, all: bool) {
        self.flash.set_past(past, all);
        self.room = true;
    }

    /// Whether writes to the volume end in the cache.
    pub(super) fn writes_back(&self, key: BlockKey) -> bool {
        self.policy.write_back && !self.flash.goes_past(key)
    }

    /// Whether blocks are being written to the log. They are not in the dirty list meanwhile, so that a flush
    /// does not see them.
    pub fn is_logging(&self) -> bool {
        self.transfers.iter().any(|t| {
            matches!(t.kind, Kind::Append { .. } | Kind::Carry { .. } | Kind::Activate { .. })
        })
    }

    /// Whether a write to the block waits for records to be void.
    pub fn awaits_void(&self, key: BlockKey) -> bool {
        let appends = |t: u32| matches!(self.transfers[t].kind, Kind::Append { .. });
        self.blocks.find(key).is_some_and(|id| {
            self.blocks[id].is_bound() || self.blocks[id].transfer().is_some_and(appends)
        })
    }

    /// A write that the log cannot take goes to the backing store if the block has no record.
    pub(super) fn write_past(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
        op: Op,
    ) -> Step {
        let Some(id) = self.blocks.find(key) else {
            if let Some(step) = self.write_absent(context, key, piece) {
                return step;
            }
            context.stats.written_past += 1;
            return self.range(context, key, piece, op != Op::Write);
        };
        match self.blocks[id].transfer() {
            Some(t) => Step::Wait(t),
            None if self.blocks[id].is_bound() => self.await_void(),
            None => {
                context.stats.written_past += 1;
                self.write_direct(context, key, piece, op)
            }
        }
    }

    /// The write waits until records are void; if they cannot be declared so, it fails.
    pub(super) fn await_void(&self) -> Step {
        match self.flash.is_holding() {
            true => Step::Parked,
            false => Step::Done(Err(IoError::Device)),
        }
    }

    /// What has to happen before a direct write of the block, if anything.
    pub(super) fn before_direct(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) -> Option<Step> {
        let e = &self.blocks[id];
        if self.flash.goes_past(e.key()) {
            self.flash.forget_record(&mut self.blocks, context, id);
            let dirty = self.blocks[id].dirty != 0;
            return dirty.then(|| Step::Wait(self.destage(context, id)));
        }
        if self.flash.log_failed() && self.blocks[id].is_bound() {
            return Some(self.await_void());
        }
        e.position().is_some().then(|| self.activate(context, id, true))
    }

    /// Forgets records of volumes that go past flash, looking at `count` entries from `from` on; where
    /// to go on, or `None` at the end. What is under way on a block keeps its record: it is forgotten when
    /// the block is written.
    pub fn drop_void(
        &mut self,
        context: &mut ShardContext<'_>,
        from: EntryId,
        count: u32,
    ) -> Option<EntryId> {
        let end = self.blocks.capacity().min(from.saturating_add(count));
        for id in from..end {
            let e = &self.blocks[id];
            if !e.is_vacant() && self.flash.goes_past(e.key()) && e.transfer().is_none() {
                self.flash.forget_record(&mut self.blocks, context, id);
                self.forget_if_empty(id);
            }
        }
        self.room = true;
        (end < self.blocks.capacity()).then_some(end)
    }

    /// Evaluates the writes that waited for records to be void.
    pub fn release_parked(&mut self, context: &mut ShardContext<'_>) {
        let mut parked = self.waiting.take_parked();
        while let Some(w) = self.waiting.pop_front(&mut parked) {
            self.try_again(context, w);
        }
        self.transfers.close_runs(context);
    }
}
