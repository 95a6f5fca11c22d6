//! When the device is synced and the superblock is written, and what follows when that has ended; and what
//! becomes durable although stores cannot be synced.

use super::{Log, Phase};
use crate::binding::Sealed;
use crate::key::BlockKey;
use crate::types::Event;
use forebay_block::Volume;
use forebay_effect::Outcome;

impl Log {
    pub(super) fn request_clean_mark(&mut self, ticket: u64) {
        if self.queue.items.is_empty() {
            self.superblock.mark_clean(self.batches.next_sequence.previous(), ticket);
        } else {
            self.queue.push_barrier(ticket);
            self.queue.close_through = self.queue.last_serial;
        }
    }

    pub(super) fn request_seal(&mut self, volumes: &[Sealed], stopped: bool, ticket: u64) {
        for volume in volumes.iter().filter(|v| v.distrust) {
            let mut items = self.queue.items.iter();
            let waits = items.any(|q| q.valid != 0 && q.key.volume() == volume.volume);
            assert!(!waits, "records of a distrusted volume are waiting to be written");
        }
        self.superblock.seal(volumes, self.batches.next_sequence.previous());
        if stopped {
            self.phase = Phase::Sealing { version: self.superblock.settle(), ticket };
        } else {
            self.superblock.promise_bound(ticket);
        }
    }

    /// Starts an update of the superblock if one is needed and none is in progress.
    pub(super) fn pump_superblock(&mut self) -> bool {
        if self.error.is_some() || !self.superblock.is_due() {
            return false;
        }
        self.encode_superblock();
        self.superblock.begin_update(&mut self.io);
        true
    }

    /// Encodes the current contents of the superblock.
    pub(crate) fn encode_superblock(&mut self) {
        let (next, durable) = (self.batches.next_sequence, self.commit.durable_batch());
        self.superblock.encode(&self.regions, next, durable, &self.activity, &mut self.io);
    }

    /// A copy of the superblock was written, or a former one erased.
    pub(super) fn superblock_written(&mut self, result: Outcome) {
        self.superblock.write_ended();
        match result {
            Ok(()) => self.superblock.written(&mut self.io),
            Err(error) => self.latch(error),
        }
    }

    /// Issues a sync if one would help a waiter and none is in flight.
    pub(super) fn pump_sync(&mut self) -> bool {
        if self.error.is_some() || self.commit.is_syncing() || !self.wants_sync() {
            return false;
        }
        self.commit.begin_sync(&self.superblock, &mut self.io);
        true
    }

    fn wants_sync(&self) -> bool {
        let c = &self.commit;
        c.wants_sync()
            || self.superblock.wants_sync()
            || self.regions.wants_sync(c)
            || self.cells.wants_sync(c)
            || self.activity.wants_sync(c)
            || matches!(self.phase, Phase::Flushing { serial, .. } if c.would_cover(serial))
    }

    /// A sync has ended.
    pub(super) fn sync_done(&mut self, result: Outcome) {
        self.commit.end_sync(result);
        if let Err(error) = result {
            return self.latch(error);
        }
        if self.error.is_some() {
            return;
        }
        self.io.stats.syncs += 1;
        if self.commit.take_durable(&mut self.superblock, &mut self.io) {
            self.superblock_durable();
        }
    }

    /// The update is durable in its first copy: what depends on it happens, and the second copy follows.
    fn superblock_durable(&mut self) {
        let (version, tail) = self.superblock.first_copy_durable(&mut self.io);
        self.regions.free_until(tail, &mut self.io);
        self.superblock.answer(&mut self.io);
        self.activity.superblock_durable(version, &mut self.io);
        self.superblock.write_second(&mut self.io);
    }

    /// The volume's store can make nothing durable any more, because a sync of it has failed: its
    /// extents stay marked until the next start, and it gets no others.
    pub fn hold_extents(&mut self, volume: Volume) {
        self.activity.hold(volume);
        self.pump();
    }

    /// Voids the records of one block, after [`Event::Unmarked`]: `RecordVoid` follows once that is
    /// durable. The owner of the index must have forgotten the record, which must be clean, and must
    /// not append another before the event.
    pub fn void_record(&mut self, key: BlockKey, ticket: u64) {
        if let Some(error) = self.refusal() {
            return self.io.tell(Event::RecordVoid { ticket, result: Err(error) });
        }
        self.queue.append_tombstone(key, &self.io);
        self.queue.close_through = self.queue.last_serial;
        self.activity.await_void(self.queue.last_serial, ticket);
        self.pump();
    }
}
