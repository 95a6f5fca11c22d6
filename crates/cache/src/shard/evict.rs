//! Leaving DRAM: by the accounting of the replacement policy a block is gone as soon as the
//! policy names it; physically its frame stays until the data is where it must be.

use forebay_effect::{Place, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{Append, BlockKey};

use super::transfer::Kind;
use super::{Shard, ShardContext};
use crate::index::{EntryId, FLUSHING, LEAVING, MARKED, WANTS_APPEND};

/// How a shard's part of a flush stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushState {
    /// None is under way, or it was reported as done.
    Idle,
    /// There is more to start at once.
    More,
    /// Transfers must end first.
    Waiting,
    /// All is handed on, or some could not be.
    Done { failed: bool },
}

/// A dirty block that cannot leave is put back; so many are tried before giving up.
const VICTIMS_MAX: u32 = 8;

impl Shard {
    /// Makes blocks leave until DRAM has room for one more by its accounting: for `incoming`, if it is
    /// a new one.
    pub(super) fn make_room(&mut self, context: &mut ShardContext<'_>, incoming: Option<BlockKey>) {
        for _ in 0..VICTIMS_MAX {
            if self.dram.has_room() {
                return;
            }
            self.evict_one(context, incoming);
        }
    }

    /// Makes a block leave though the accounting has room: no frame is free.
    pub(super) fn push_out(&mut self, context: &mut ShardContext<'_>) {
        for _ in 0..VICTIMS_MAX {
            if self.blocks.frames_free() > 0 || self.transfers.in_use() > 0 {
                return;
            }
            if !self.dram.is_empty() {
                self.evict_one(context, None);
            }
        }
    }

    fn evict_one(&mut self, context: &mut ShardContext<'_>, incoming: Option<BlockKey>) {
        let local = self.dram.evict(incoming);
        let id = self.blocks.owner(local);
        if let Some(next) = self.dram.next_victim() {
            self.blocks.prefetch_owner(next);
        }
        self.blocks[id].set(LEAVING);
        if self.flash.is_good() {
            self.flash.update_residence(&self.blocks, id, true);
        }
        if self.blocks[id].transfer().is_none() {
            self.try_leave(context, id);
        }
        self.flash.evict(&self.blocks, &self.transfers, context);
    }

    /// Takes the next step out of DRAM for a leaving block without a transfer.
    pub(super) fn try_leave(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        let e = &self.blocks[id];
        debug_assert!(e.has(LEAVING) && e.transfer().is_none());
        if e.dirty != 0 {
            if self.persist(context, id, false).is_none() {
                self.readmit(id);
            }
            return;
        }
        let recorded = e.position().is_some() && !self.flash.is_unmapping(id);
        if recorded && e.valid & !e.flash_valid == 0 {
            context.stats.left_on_flash += 1;
            self.release_frame(id);
            return;
        }
        if self.flash.is_good() && e.valid != 0 && !self.flash.is_jammed(&self.blocks, context) {
            if !self.writes_back(e.key()) && self.owes_sync(context, e.key()) {
                // The backing store may yet lose what this frame holds. In an extent marked as
                // active the record is not trusted after a power cut.
                if !e.has(MARKED) {
                    self.activate(context, id, false);
                    return;
                }
            }
            self.blocks[id].clear(MARKED);
            context.stats.demotions += 1;
            if self.append(context, id, false).is_some() {
                return;
            }
        }
        context.stats.evictions += 1;
        self.release_frame(id);
        self.forget_if_empty(id);
    }

    /// Whether the backing store may yet lose what it holds of the block.
    fn owes_sync(&self, context: &ShardContext<'_>, key: BlockKey) -> bool {
        context.front.owes_sync_at(key.volume(), self.blocks.granules().start_of(key))
    }

    /// The block cannot leave: it counts as resident again.
    pub(super) fn readmit(&mut self, id: EntryId) {
        let frame = self.blocks[id].frame().expect("a leaving block has a frame");
        self.blocks[id].clear(LEAVING);
        self.dram.readmit(self.blocks.local(frame), self.blocks[id].key());
        self.flash.update_residence(&self.blocks, id, true);
    }

    /// Starts to bring a dirty frame to where it is durable after a sync: the log, or without
    /// one the backing store. `None` when that is impossible (the log has failed).
    pub(super) fn persist(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        urgent: bool,
    ) -> Option<u32> {
        if self.flash.logs(self.blocks[id].key()) {
            self.append(context, id, urgent)
        } else {
            Some(self.destage(context, id))
        }
    }

    /// Hands the frame to the log. The record carries all dirty granules, the older record's
    /// included.
    pub(super) fn append(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        urgent: bool,
    ) -> Option<u32> {
        if self.flash.log_failed() || self.flash.is_hopeless(&self.blocks, context) {
            return None;
        }
        let e = &self.blocks[id];
        let (key, valid, lost) = (e.key(), e.valid, e.lost());
        let mut dirty = e.dirty | e.flash_dirty;
        if self.policy.write_back && self.owes_sync(context, key) {
            // What the backing store holds may be undone by a power cut (a zeroed range that is
            // not durable yet). A record called clean would then disagree with it: call it dirty.
            // (There is nothing behind the end of the volume.)
            dirty = valid & self.blocks.granules().within(context, key) | lost;
        }
        if context.front.sabotage.is(Bug::PartialHidesOlder) {
            dirty &= valid;
        }
        let e = &self.blocks[id];
        assert!(dirty & !valid & !lost == 0, "a record would hide dirty granules of an older one");
        let frame = e.frame().expect("a frame to append");
        let t =
            self.transfers.start_on(&mut self.blocks, id, Kind::Append { valid, dirty }, (0, 0));
        self.blocks.unlist_dirty(id);
        self.blocks[id].clear(WANTS_APPEND);
        let ticket = self.transfers.ticket(t);
        let log = context.log.as_deref_mut().expect("a shard with flash has a log");
        log.append(Append { ticket, key, valid, dirty, slot: frame, urgent });
        // The sync that follows a flush covers what was handed to the log.
        self.flush_covered(id, true);
        Some(t)
    }

    /// Writes the frame's dirty granules to the backing store (no flash tier, or past it).
    pub(super) fn destage(&mut self, context: &mut ShardContext<'_>, id: EntryId) -> u32 {
        if self.flash.exists() {
            // (It would be older than the store.)
            self.flash.forget_record(&mut self.blocks, context, id);
        }
        let e = &self.blocks[id];
        let (key, dirty) = (e.key(), e.dirty);
        let frame = e.frame().expect("a frame to destage");
        // It stays in the dirty list until it is written, so that a flush knows to wait for it.
        self.blocks[id].clear(WANTS_APPEND);
        let range = self.blocks.granules().range_within(context, key);
        if dirty == self.blocks.granules().all() {
            let kind = Kind::Destage { rest: 0 };
            let place = Place::Slot { slot: frame, offset: 0 };
            let segment = Some(Segment { place, length: (range.1 - range.0) as u32 });
            let t = self.transfers.run(context, key, range, kind, segment, |k| {
                matches!(k, Kind::Destage { rest: 0 })
            });
            self.blocks[id].set_transfer(Some(t));
            return t;
        }
        let t = self.transfers.start_on(&mut self.blocks, id, Kind::Destage { rest: dirty }, range);
        self.transfers.destage_step(&self.blocks, context, t, frame);
        t
    }

    // ---- flush ----

    /// A flush of the volume begins: what is dirty in DRAM until now must leave it.
    pub fn flush_begin(&mut self, volume: usize) {
        let until = self.blocks.dirtyings();
        self.flushes[volume] = super::ShardFlush { active: true, until, waiting: 0, failed: false };
    }

    /// Pushes a flush on by at most `budget` blocks. This shard's part is done when all it
    /// covers has been handed to the log, or, without one, is on the backing store.
    pub fn flush_step(
        &mut self,
        context: &mut ShardContext<'_>,
        volume: usize,
        budget: u32,
    ) -> FlushState {
        if !self.flushes[volume].active {
            return FlushState::Idle;
        }
        for _ in 0..budget {
            let Some((id, since)) = self.blocks.oldest_dirty(volume) else { break };
            if since > self.flushes[volume].until {
                break;
            }
            if let Some(t) = self.blocks[id].transfer() {
                // Destaged already, or appended when the transfer under way ends.
                let destaging = matches!(self.transfers[t].kind, Kind::Destage { .. });
                self.blocks.unlist_dirty(id);
                self.blocks[id].set(if destaging { FLUSHING } else { WANTS_APPEND | FLUSHING });
                self.flushes[volume].waiting += 1;
            } else if self.flash.logs(self.blocks[id].key()) {
                if self.append(context, id, true).is_none() {
                    self.flushes[volume].failed = true;
                    self.flushes[volume].until = 0;
                }
            } else {
                self.blocks[id].set(FLUSHING);
                self.flushes[volume].waiting += 1;
                self.blocks.unlist_dirty(id);
                self.destage(context, id);
            }
        }
        self.transfers.close_runs(context);
        let left = self.blocks.oldest_dirty(volume).map_or(u64::MAX, |(_, since)| since);
        let flush = &mut self.flushes[volume];
        if left <= flush.until {
            return FlushState::More;
        }
        if flush.waiting > 0 {
            return FlushState::Waiting;
        }
        flush.active = false;
        FlushState::Done { failed: flush.failed }
    }

    /// A block that the flush waits for has been handed on, or could not be.
    pub(super) fn flush_covered(&mut self, id: EntryId, ok: bool) {
        if self.blocks[id].has(FLUSHING) {
            self.blocks[id].clear(FLUSHING);
            let volume = self.blocks[id].key().volume();
            let flush = &mut self.flushes[usize::from(volume)];
            flush.waiting -= 1;
            flush.failed |= !ok;
        }
    }
}
