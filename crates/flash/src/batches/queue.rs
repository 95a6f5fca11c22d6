//! Appends that wait to be written, and records of a region being reclaimed that are carried or
//! reinserted.

use crate::activity::Activity;
use crate::batches::Batches;
use crate::commit::{Commit, SuperblockWriter};
use crate::events::{AnswerKind, Event, RecordEvent};
use crate::geometry::Geometry;
use crate::granules::Granules;
use crate::io::Io;
use crate::key::BlockKey;
use crate::sabotage::Bug;
use crate::sequence::{AppendSerial, BatchSequence};
use crate::types::Append;
use forebay_block::Volume;
use forebay_effect::{Frame, IoError};
use std::collections::VecDeque;

/// A waiting append.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Queued {
    /// Order of arrival, from 1.
    pub serial: AppendSerial,
    /// Chosen by the caller; none for tombstones of the activity log.
    pub ticket: Option<u64>,
    pub key: BlockKey,
    pub valid: Granules,
    pub dirty: Granules,
    pub frame: Frame,
    /// Whether this is a reinserted record, which is written only if there is room to spare.
    pub spare: bool,
    /// Whether a stale record of the block needs no tombstone if this one is written.
    pub supersedes_stale: bool,
}

impl Queued {
    /// The queue entry for an append, unless the append is refused.
    ///
    /// # Panics
    /// As [`Log::append`](crate::Log::append).
    #[must_use]
    pub fn admit(append: &Append, refusal: Option<IoError>, io: &mut Io) -> Option<Queued> {
        let Append { ticket, key, valid, dirty, frame, .. } = *append;
        let lost = dirty & !valid;
        let beyond = (valid | dirty) & !io.geometry.all_granules();
        assert!(beyond.is_empty(), "more granules than a block has");
        assert!(
            lost.is_empty() || !io.geometry.has_slots(),
            "in the slots layout, a record cannot have lost granules"
        );
        if let Some(error) = refusal {
            io.tell(Event::Record(RecordEvent::AppendFailed { ticket, error }));
            return None;
        }
        Some(Queued {
            serial: AppendSerial::NONE,
            ticket: Some(ticket),
            key,
            valid,
            dirty,
            frame,
            spare: false,
            supersedes_stale: false,
        })
    }
}

/// Appends that are not in a batch yet.
pub(crate) struct Queue {
    items: VecDeque<Queued>,
    /// Carried or reinserted records of a region being reclaimed. They are written before `items`,
    /// which may wait for that region.
    carried: VecDeque<Queued>,
    /// Whether no more records are added to `carried` for now, so that its batch need not be full.
    close_carried: bool,
    /// Serial of the newest append.
    pub last_serial: AppendSerial,
    /// A caller waits for appends up to this serial.
    pub close_through: AppendSerial,
    /// Tombstones of the activity log among the items.
    pub internal: u32,
    /// Batches end at these serials: the clean mark does not cover later appends (serial, ticket).
    barriers: VecDeque<(AppendSerial, u64)>,
    /// Tickets of dirty records that were withdrawn and whose owner has not been notified.
    taken_back: VecDeque<u64>,
    /// How much of the front fits into the next batch, as far as measured.
    fill: Fill,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Fill {
    /// Pages that the batch may have, including its header; the values below were measured against
    /// it.
    room: u32,
    pub count: usize,
    pub payload_pages: u32,
    /// Cells needed; none in the log layout.
    cells: usize,
    /// Whether no other append fits.
    pub full: bool,
}

impl Queue {
    pub fn new(capacity: usize) -> Queue {
        Queue {
            items: VecDeque::with_capacity(capacity),
            carried: VecDeque::new(),
            close_carried: false,
            last_serial: AppendSerial::NONE,
            close_through: AppendSerial::NONE,
            internal: 0,
            barriers: VecDeque::new(),
            taken_back: VecDeque::new(),
            fill: Fill::default(),
        }
    }

    /// Queues an append and returns its serial.
    pub fn push(&mut self, item: Queued) -> AppendSerial {
        self.last_serial = self.last_serial.next();
        self.internal += u32::from(item.ticket.is_none());
        self.items.push_back(Queued { serial: self.last_serial, ..item });
        self.last_serial
    }

    /// Appends a tombstone of the activity log.
    pub fn append_tombstone(&mut self, key: BlockKey, io: &Io) {
        if io.sabotage.is(Bug::TombstoneForgotten) {
            return;
        }
        self.push(Queued {
            serial: AppendSerial::NONE,
            ticket: None,
            key,
            valid: Granules::EMPTY,
            dirty: Granules::EMPTY,
            frame: Frame::NONE,
            spare: false,
            supersedes_stale: false,
        });
    }

    /// Closes the open batch: a caller waits for everything appended so far.
    pub fn close(&mut self) {
        self.close_through = self.last_serial;
    }

    /// Whether no append waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.carried.is_empty()
    }

    /// Number of waiting appends, not counting carried ones.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The oldest waiting append, not counting carried ones.
    #[inline]
    pub fn front(&self) -> Option<Queued> {
        self.items.front().copied()
    }

    /// The carried record that is written next.
    #[inline]
    pub fn front_carried(&self) -> Option<Queued> {
        self.carried.front().copied()
    }

    /// Whether an append of the block waits.
    pub fn holds(&self, key: BlockKey) -> bool {
        self.items.iter().any(|queued| queued.key == key)
    }

    /// Whether a record of the volume waits.
    pub fn holds_record_of(&self, volume: Volume) -> bool {
        self.items.iter().any(|q| !q.valid.is_empty() && q.key.volume() == volume)
    }

    /// Declares everything appended so far clean. `last` is the newest batch that was formed.
    pub fn mark_clean(
        &mut self,
        last: BatchSequence,
        ticket: u64,
        superblock: &mut SuperblockWriter,
    ) {
        if self.items.is_empty() {
            superblock.mark_clean(last, ticket);
        } else {
            // (A batch ends right after the newest append.)
            self.barriers.push_back((self.last_serial, ticket));
            self.fill = Fill::default();
            self.close();
        }
    }

    /// Takes the front of the carried records, or of the appends.
    pub fn pop(&mut self, carried: bool) -> Queued {
        let queue = if carried { &mut self.carried } else { &mut self.items };
        let item = queue.pop_front().expect("measured");
        self.internal -= u32::from(item.ticket.is_none());
        item
    }

    /// Notes that batch `sequence` has taken the front of the queue, up to the append `last`. If a
    /// barrier lies there, the clean mark covers the batch.
    pub fn taken(
        &mut self,
        last: AppendSerial,
        sequence: BatchSequence,
        superblock: &mut SuperblockWriter,
    ) {
        self.fill = Fill::default();
        while let Some(&(serial, ticket)) = self.barriers.front()
            && serial <= last
        {
            self.barriers.pop_front();
            superblock.mark_clean(sequence, ticket);
        }
    }

    /// Measures how much of the front fits a batch of `room` pages, with `cells` free cells.
    pub fn measure(&mut self, room: u32, cells: usize, geometry: &Geometry) -> Fill {
        let slots = geometry.has_slots();
        let limit = room.min(geometry.batch_pages_max) - 1;
        let mut fill = self.fill;
        if fill.room != room {
            fill = Fill { room, ..Fill::default() };
        }
        let barrier = self.barriers.front().map_or(AppendSerial::MAX, |b| b.0);
        while !fill.full && fill.count < self.items.len() {
            let item = &self.items[fill.count];
            let pages = geometry.payload_pages(item.valid);
            if fill.payload_pages + pages > limit {
                fill.full = true;
                break;
            }
            if slots && pages > 0 {
                if fill.cells == cells {
                    break;
                }
                fill.cells += 1;
            }
            fill.count += 1;
            fill.payload_pages += pages;
            fill.full = fill.count == geometry.batch_entries_max as usize
                || limit > 0 && fill.payload_pages == limit
                || item.serial >= barrier;
        }
        self.fill = fill;
        fill
    }

    /// Queues a carried record. It gets no serial: only its own caller waits for it.
    pub fn carry(&mut self, item: Queued) {
        // The carried record counts, so no record of the block is stale any more.
        let waiting = self.items.iter_mut().filter(|waiting| waiting.key == item.key);
        waiting.for_each(|waiting| waiting.supersedes_stale = false);
        self.carried.push_back(item);
    }

    /// Queues a reinserted record, which is written only while there is room to spare.
    pub fn reinsert(&mut self, item: Queued) {
        self.carried.push_back(Queued { spare: true, ..item });
    }

    /// Notes that nothing more is carried for now.
    pub fn close_carried(&mut self) {
        self.close_carried = !self.carried.is_empty();
    }

    /// Whether the carried records are closed in this way.
    pub fn carried_is_closed(&self) -> bool {
        self.close_carried
    }

    /// Notes that a batch has taken carried records.
    pub fn carried_taken(&mut self) {
        self.close_carried &= !self.carried.is_empty();
    }

    /// How many of the carried records fit into a batch of `room` pages.
    pub fn measure_carried(&self, room: u32, geometry: &Geometry) -> Fill {
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

    /// Refuses the reinserted records: there is no room to spare.
    pub fn refuse_spare(&mut self, io: &mut Io) {
        self.carried.retain(|item| {
            if let (true, Some(ticket)) = (item.spare, item.ticket) {
                io.tell(Event::Record(RecordEvent::AppendRefused { ticket }));
            }
            !item.spare
        });
        self.carried_taken();
    }

    /// Withdraws the waiting appends and fails the callers that wait for them. A stale record that
    /// one of them would have superseded is stale again.
    pub fn take_back(
        &mut self,
        batches: &Batches,
        commit: &mut Commit,
        activity: &mut Activity,
        io: &mut Io,
    ) {
        let taken = commit.complete_serial().max(batches.last_serial());
        let first = self.withdraw(taken, |ticket, item| {
            io.tell(Event::Record(RecordEvent::AppendRefused { ticket }));
            if item.supersedes_stale {
                // The extent has not left the table: it would have waited for this append.
                activity.distrust(item.key);
            }
        });
        let last = self.last_serial;
        activity.limit_settling(last);
        commit.withdraw(first, last, io);
    }

    /// Withdraws the waiting appends, and calls `refused` with the ticket of each. Returns the
    /// serial of the first dirty one; `taken` is the serial of the last append that is in a batch.
    fn withdraw(
        &mut self,
        taken: AppendSerial,
        mut refused: impl FnMut(u64, &Queued),
    ) -> AppendSerial {
        let mut first = AppendSerial::MAX;
        let barrier = self.barriers.back().map_or(AppendSerial::NONE, |b| b.0);
        self.items.retain(|item| {
            match item.ticket {
                // (An append that a clean mark waits for stays.)
                Some(ticket) if item.serial > barrier => {
                    refused(ticket, item);
                    if !item.dirty.is_empty() {
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

    /// Whether a dirty record was withdrawn and its owner has not been notified.
    pub fn owes_refusals(&self) -> bool {
        !self.taken_back.is_empty()
    }

    /// Notes that the owner of a withdrawn append has been notified.
    pub fn refusal_heard(&mut self, ticket: u64) {
        if self.taken_back.front() == Some(&ticket) {
            self.taken_back.pop_front();
        }
    }

    /// Fails all waiting appends, and the callers that wait for them.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        for item in self.items.drain(..).chain(self.carried.drain(..)) {
            if let Some(ticket) = item.ticket {
                io.tell(Event::Record(RecordEvent::AppendFailed { ticket, error }));
            }
        }
        self.internal = 0;
        self.fill = Fill::default();
        for (_, ticket) in self.barriers.drain(..) {
            io.tell(Event::Answer { ticket, kind: AnswerKind::CleanMarked, result: Err(error) });
        }
    }
}
