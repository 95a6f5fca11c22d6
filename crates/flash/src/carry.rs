//! Records of a reclaimed region that are carried on or inserted again, and queued records that are
//! withdrawn for lack of room.

use crate::batches::{Fill, Queue, Queued};
use crate::geometry::Geometry;
use crate::key::BlockKey;
use crate::log::{Log, Phase};
use crate::sequence::AppendSerial;
use crate::types::{Append, Event};

impl Queue {
    /// Queues a record that is carried on. It has no place in the order of arrival: only the caller
    /// waits for it.
    fn carry(&mut self, item: Queued) {
        self.carried.push_back(item);
    }

    pub(crate) fn carried_is_empty(&self) -> bool {
        self.carried.is_empty()
    }

    /// Withdraws the waiting appends, and calls `refused` with the ticket of each. Returns the
    /// serial of the first dirty one; `taken` is the serial of the last append that is in a batch.
    fn take_back(
        &mut self,
        taken: AppendSerial,
        mut refused: impl FnMut(u64, &Queued),
    ) -> AppendSerial {
        let mut first = AppendSerial::MAX;
        let barrier = self.barriers.back().map_or(AppendSerial::NONE, |b| b.0);
        self.items.retain(|item| {
            match item.ticket {
                // (What a mark waits for goes its way.)
                Some(ticket) if item.serial > barrier => {
                    refused(ticket, item);
                    if item.dirty != 0 {
                        first = first.min(item.serial);
                        self.taken_back.push_back(ticket);
                    }
                    false
                }
                _ => true,
            }
        });
        self.fill = Fill::default();
        self.last_serial = self.items.back().map_or(taken.max(barrier), |item| item.serial);
        self.close_through = self.close_through.min(self.last_serial);
        first
    }

    /// How many of the carried records fit into a batch of `room` pages.
    pub(crate) fn measure_carried(&self, room: u32, geometry: &Geometry) -> Fill {
        let limit = room.min(geometry.batch_pages_max) - 1;
        let mut fill = Fill::default();
        for item in self.carried.iter().take(geometry.batch_entries_max as usize) {
            let pages = geometry.payload_pages(item.valid);
            if fill.payload_pages + pages > limit {
                break;
            }
            fill.payload_pages += pages;
            fill.count += 1;
        }
        fill.full = fill.count < self.carried.len()
            || fill.count == geometry.batch_entries_max as usize
            || fill.payload_pages == limit;
        fill
    }
}

impl Log {
    /// Appends a remaining record of a region that is being reclaimed, so that the region can be
    /// released. It goes before all appends that are not in a batch yet and, since they may wait
    /// for that region, has reserved room. Only in the log layout. (A record that is already in a
    /// batch would precede it in the log: see [`Log::is_waiting`].)
    ///
    /// # Panics
    /// As [`Log::append`].
    pub fn carry(&mut self, append: Append) {
        assert!(
            !self.io.geometry.has_slots(),
            "in the slots layout, cells are not reclaimed with a region"
        );
        // (What waits to be written when the log is stopped may wait for that region.)
        let draining = matches!(self.phase, Phase::Draining);
        let refusal = if draining { self.error } else { self.refusal() };
        let Some(queued) = self.admit(&append, refusal) else { return };
        self.activity.record_appended(append.key);
        // The record that is carried on counts, so none of the block is stale any more.
        let waiting = self.queue.items.iter_mut().filter(|item| item.key == append.key);
        waiting.for_each(|item| item.supersedes_stale = false);
        self.queue.carry(queued);
        self.pump();
    }

    /// Appends a clean record of a region that is being reclaimed again, because it is worth
    /// keeping. Works like [`Log::carry`], but only while there is room that nothing else may need;
    /// otherwise [`Event::AppendRefused`] follows. The region must not be released before one of
    /// the events.
    ///
    /// # Panics
    /// As [`Log::carry`].
    pub fn reinsert(&mut self, append: Append) {
        assert!(
            !self.io.geometry.has_slots(),
            "in the slots layout, cells are not reclaimed with a region"
        );
        let ticket = append.ticket;
        // (What was written past the log is newer than any record that stands there.)
        let stale = self.activity.is_stale(append.key);
        if self.error.is_none() && (stale || !matches!(self.phase, Phase::Running)) {
            return self.io.tell(Event::AppendRefused { ticket });
        }
        let Some(queued) = self.admit(&append, self.refusal()) else { return };
        self.queue.carry(Queued { spare: true, ..queued });
        self.pump();
    }

    /// There is no room for records that are inserted again.
    pub(crate) fn refuse_spare(&mut self) {
        let io = &mut self.io;
        self.queue.carried.retain(|item| {
            if let (true, Some(ticket)) = (item.spare, item.ticket) {
                io.tell(Event::AppendRefused { ticket });
            }
            !item.spare
        });
        self.queue.close_carried &= !self.queue.carried_is_empty();
    }

    /// Whether an append of the block waits and is not in a batch yet.
    pub fn is_waiting(&self, key: BlockKey) -> bool {
        self.queue.items.iter().any(|queued| queued.key == key)
    }

    /// Writes the records given to [`Log::carry`] and [`Log::reinsert`] so far, in a batch that may
    /// not be full.
    pub fn close_carried(&mut self) {
        self.queue.close_carried = !self.queue.carried_is_empty();
        self.pump();
    }

    /// Withdraws the appends that wait to be written: [`Event::AppendRefused`] follows for each,
    /// and syncs that cover a dirty one fail. A record that a withdrawn append would have superseded
    /// is stale again. For a caller that has waited too long for room.
    pub fn take_back(&mut self) {
        let (io, activity) = (&mut self.io, &mut self.activity);
        let complete = self.commit.complete_serial().max(self.batches.last_serial());
        let first = self.queue.take_back(complete, |ticket, item| {
            io.tell(Event::AppendRefused { ticket });
            if item.supersedes_stale {
                // The extent has not left the table: it would have waited for this append.
                activity.distrust(item.key);
            }
        });
        let last = self.queue.last_serial;
        self.activity.limit_settling(last);
        self.commit.withdraw(first, last, &mut self.io);
        self.pump();
    }

    /// Whether there is room to carry on `pages` pages. After a crash during carrying there may be
    /// none.
    pub fn may_carry(&self, pages: u64) -> bool {
        !self.io.geometry.has_slots() && self.regions.pages_left() >= pages
    }
}
