//! How writes become durable: syncs of the device, and updates of the superblock.
//!
//! One sync is in flight at a time. It covers the writes that were complete when it was issued;
//! later ones wait for the next sync. One update of the superblock is in progress at a time, and
//! changes that arrive meanwhile share the next one:
//!
//! ```text
//! write one copy -> sync: durable, what depends on it happens -> write the other copy -> idle
//! ```
//!
//! The next update starts with the copy that was written second. So at every instant one copy is
//! durable and untouched, and between updates both hold the newest version, so that losing either
//! loses nothing.

use crate::format::superblock::{SECOND_COPIES_AT, Superblock};
use crate::log::{Log, Phase, SUPERBLOCK_BUFFER};
use crate::operation::Operation;
use crate::sabotage::Bug;
use crate::sequence::{
    AppendSerial, BatchSequence, RegionSequence, SuperblockGeneration, SuperblockVersion,
};
use crate::types::{Binding, Event, Sealed};
use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};
use std::collections::VecDeque;

/// Which appends are complete, which are durable, and who waits.
pub(crate) struct Commit {
    /// Newest append that is complete with all before it.
    pub complete_serial: AppendSerial,
    /// Newest batch that is complete with all before it.
    pub complete_batch: BatchSequence,
    pub durable_serial: AppendSerial,
    pub durable_batch: BatchSequence,
    /// A batch that a caller needs to be durable (see [`Log::make_durable`]).
    pub awaited: BatchSequence,
    /// Calls of `sync` (serial, ticket).
    pub tickets: VecDeque<(AppendSerial, u64)>,
    in_flight: bool,
    covers: Covers,
}

/// The appends that the sync in flight makes durable.
#[derive(Clone, Copy, Default)]
struct Covers {
    serial: AppendSerial,
    batch: BatchSequence,
    superblock: bool,
    mirrored: SuperblockVersion,
}

impl Commit {
    pub fn new(capacity: usize) -> Commit {
        Commit {
            complete_serial: AppendSerial::NONE,
            complete_batch: BatchSequence::NONE,
            durable_serial: AppendSerial::NONE,
            durable_batch: BatchSequence::NONE,
            awaited: BatchSequence::NONE,
            tickets: VecDeque::with_capacity(capacity),
            in_flight: false,
            covers: Covers::default(),
        }
    }

    /// Whether a sync now would make `serial` durable, if it is not yet.
    pub fn would_cover(&self, serial: AppendSerial) -> bool {
        self.durable_serial < serial && serial <= self.complete_serial
    }

    /// Whether a sync now would make the batch durable, if it is not yet.
    pub fn would_cover_batch(&self, sequence: BatchSequence) -> bool {
        self.durable_batch < sequence && sequence <= self.complete_batch
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Idle,
    /// The first copy is being written.
    Writing,
    /// It is written and needs a sync.
    Written,
    /// The second copy is being written.
    Mirroring,
}

/// A caller that waits for a version of the superblock.
enum Mark {
    Clean(u64),
    Bound(u64),
    /// A note that data of this volume bypass the log.
    Bypass(Volume),
}

/// The contents of the superblock, and how much of it is on flash. Versions count the states of the
/// contents since the start.
#[derive(Default)]
pub(crate) struct SuperblockWriter {
    pub contents: Superblock,
    /// Version that includes every change so far.
    wanted: SuperblockVersion,
    /// Version encoded last.
    encoded: SuperblockVersion,
    /// Version that is durable in at least one copy.
    pub durable: SuperblockVersion,
    /// Version written to both copies, and made durable in both.
    mirrored: SuperblockVersion,
    pub settled: SuperblockVersion,
    /// Version that a caller needs durable in both copies.
    pub settle: SuperblockVersion,
    /// Generation known to be durable.
    durable_generation: SuperblockGeneration,
    step: Step,
    /// The copy that the next (or current) update writes first.
    pub copy: u32,
    pages: u32,
    /// The log is new: places where the second copy of a former tier may be, which are erased once
    /// both new copies are written.
    to_erase: &'static [u64],
    /// Tail in the last encoded version.
    tail: RegionSequence,
    marks: VecDeque<(SuperblockVersion, Mark)>,
}

impl SuperblockWriter {
    /// The contents have changed; returns the version that will include the change.
    pub fn touch(&mut self) -> SuperblockVersion {
        self.wanted = self.encoded.next();
        self.wanted
    }

    /// The log is new: erases the second copies of a former tier when both of its own are written.
    pub fn erase_former_copies(&mut self) {
        self.to_erase = &SECOND_COPIES_AT;
    }

    /// Whether `version` has been encoded, so that it cannot change any more.
    pub fn is_encoded(&self, version: SuperblockVersion) -> bool {
        version <= self.encoded
    }

    /// The last encoded version has become durable in one copy.
    pub fn note_durable(&mut self) {
        self.durable_generation = self.contents.generation;
        self.copy ^= 1;
    }

    /// The generation known to be durable.
    pub fn known(&self) -> SuperblockGeneration {
        self.durable_generation
    }
}

impl Log {
    pub(crate) fn request_clean_mark(&mut self, ticket: u64) {
        if self.queue.items.is_empty() {
            self.mark_clean(self.batches.next_sequence.previous(), ticket);
        } else {
            self.queue.push_barrier(ticket);
            self.queue.close_through = self.queue.last_serial;
        }
    }

    /// Records of batches up to `sequence` are clean.
    pub(crate) fn mark_clean(&mut self, sequence: BatchSequence, ticket: u64) {
        self.superblock.contents.clean_before = sequence;
        let version = self.superblock.touch();
        self.superblock.marks.push_back((version, Mark::Clean(ticket)));
    }

    pub(crate) fn request_binding(&mut self, bindings: Vec<Binding>, ticket: u64) {
        self.superblock.contents.bindings = bindings;
        let version = self.superblock.touch();
        self.superblock.marks.push_back((version, Mark::Bound(ticket)));
    }

    pub(crate) fn request_seal(&mut self, volumes: &[Sealed], stopped: bool, ticket: u64) {
        let last = self.batches.next_sequence.previous();
        for volume in volumes {
            let mut bindings = self.superblock.contents.bindings.iter_mut();
            let Some(binding) = bindings.find(|b| b.volume == volume.volume) else { continue };
            binding.seal = volume.seal;
            binding.stamp = binding.stamp.max(volume.stamp);
            // Others may write to the store now.
            binding.logged = 0;
            if volume.distrust {
                let waits = self
                    .queue
                    .items
                    .iter()
                    .any(|q| q.valid != 0 && q.key.volume() == volume.volume);
                assert!(!waits, "records of a distrusted volume are waiting to be written");
                binding.distrusted = last;
            }
        }
        let version = self.superblock.touch();
        if stopped {
            self.superblock.settle = version;
            self.phase = Phase::Sealing { version, ticket };
        } else {
            self.superblock.marks.push_back((version, Mark::Bound(ticket)));
        }
    }

    pub(crate) fn request_bypass_note(&mut self, volume: Volume) {
        let mut bindings = self.superblock.contents.bindings.iter_mut();
        bindings.find(|b| b.volume == volume).into_iter().for_each(|b| b.logged = 0);
        let version = self.superblock.touch();
        self.superblock.marks.push_back((version, Mark::Bypass(volume)));
    }

    /// Starts an update if one is needed and none is in progress.
    pub(crate) fn pump_superblock(&mut self) -> bool {
        let s = &mut self.superblock;
        if self.error.is_some() || s.step != Step::Idle || s.wanted <= s.encoded {
            return false;
        }
        s.encoded = s.wanted;
        self.encode_superblock();
        self.superblock.step = Step::Writing;
        self.write_superblock();
        true
    }

    /// Encodes the current contents of the superblock.
    pub(crate) fn encode_superblock(&mut self) {
        let s = &mut self.superblock;
        s.tail = self.regions.tail_wanted;
        let c = &mut s.contents;
        c.generation = c.generation.next();
        c.tail_region = self.regions.tail_wanted;
        c.tail_batch = self.regions.tail_batch(self.batches.next_sequence);
        c.synced = self.commit.durable_batch;
        if self.io.without_bytes {
            s.pages = c.bytes(self.activity.listed()) as u32 / self.io.geometry.page_size;
            return;
        }
        self.activity.list(&mut c.active);
        if self.io.sabotage.is(Bug::ActivityMarkSkipped) {
            c.active.clear();
        }
        let bytes = c.encode(&mut self.io.buffers[SUPERBLOCK_BUFFER]);
        s.pages = bytes as u32 / self.io.geometry.page_size;
    }

    fn write_superblock(&mut self) {
        self.remains.superblock_in_flight = true;
        self.write_superblock_as(Operation::Superblock);
    }

    /// Erases the next second copy of a former tier, whose pages may have had another size. Nothing
    /// else of this log may ever be written there, and if the first copy is damaged one day, the
    /// former tier's copy must not be taken for it. That first copy is durable by now, so a cut in
    /// the middle leaves this log; an earlier cut leaves the former tier unchanged.
    fn erase_former(&mut self) -> bool {
        let (page_size, copy_pages) =
            (self.io.geometry.page_size, self.io.geometry.superblock_pages);
        let used = self.superblock.pages;
        let own = |page: u32| page % copy_pages < used && page / copy_pages < 2;
        while let Some((&at, rest)) = self.superblock.to_erase.split_first() {
            self.superblock.to_erase = rest;
            let page = (at / u64::from(page_size)) as u32;
            if at < self.io.geometry.device_bytes() && !own(page) {
                self.remains.superblock_in_flight = true;
                self.io.add_void(page_size);
                self.io.write(Operation::Superblock, page, 1);
                return true;
            }
        }
        false
    }

    pub(crate) fn write_superblock_as(&mut self, operation: Operation) {
        let (copy, pages) = (self.superblock.copy, self.superblock.pages);
        let length = pages * self.io.geometry.page_size;
        self.io.add_meta(SUPERBLOCK_BUFFER, 0, length);
        self.io.stats.superblock_pages += u64::from(pages);
        let page = copy * self.io.geometry.superblock_pages;
        self.io.write(operation, page, pages);
    }

    /// A copy of the superblock was written, or a former one erased.
    pub(crate) fn superblock_written(&mut self, result: Outcome) {
        self.remains.superblock_in_flight = false;
        if let Err(error) = result {
            return self.latch(error);
        }
        if self.superblock.step == Step::Mirroring && self.erase_former() {
            return;
        }
        let s = &mut self.superblock;
        match s.step {
            Step::Writing => s.step = Step::Written,
            Step::Mirroring => {
                s.step = Step::Idle;
                s.mirrored = s.encoded;
            }
            Step::Idle | Step::Written => panic!("no superblock is being written"),
        }
    }

    /// Issues a sync if one would help a waiter and none is in flight.
    pub(crate) fn pump_sync(&mut self) -> bool {
        let (c, s) = (&self.commit, &self.superblock);
        if self.error.is_some() || c.in_flight {
            return false;
        }
        let flushing = match self.phase {
            Phase::Flushing { serial, .. } => c.would_cover(serial),
            _ => false,
        };
        let wanted = s.step == Step::Written
            || s.settle > s.settled && s.mirrored >= s.settle
            || c.tickets.front().is_some_and(|t| c.would_cover(t.0))
            || c.would_cover_batch(c.awaited)
            || c.would_cover_batch(self.regions.release_batch)
            || c.would_cover_batch(self.regions.checkpoint)
            || self.cells.is_short()
                && self.cells.next_limbo().is_some_and(|s| c.would_cover_batch(s))
            || self.activity.wants_sync(c)
            || flushing;
        if !wanted {
            return false;
        }
        self.commit.covers = Covers {
            serial: c.complete_serial,
            batch: c.complete_batch,
            superblock: s.step == Step::Written,
            mirrored: s.mirrored,
        };
        self.commit.in_flight = true;
        self.io.sync(Operation::Sync);
        true
    }

    /// Whether a sync is in flight.
    pub(crate) fn is_syncing(&self) -> bool {
        self.commit.in_flight
    }

    /// A sync has ended.
    pub(crate) fn sync_done(&mut self, result: Outcome) {
        assert!(self.commit.in_flight, "no sync is in flight");
        self.commit.in_flight = false;
        if let Err(error) = result {
            self.remains.sync_failed = true;
            return self.latch(error);
        }
        if self.error.is_some() {
            return;
        }
        let mut covers = self.commit.covers;
        if self.io.sabotage.is(Bug::SyncCoversTooMuch) {
            covers.serial = self.commit.complete_serial;
        }
        self.io.stats.syncs += 1;
        self.commit.durable_serial = covers.serial;
        self.commit.durable_batch = covers.batch;
        self.superblock.settled = covers.mirrored;
        self.grant_syncs();
        if covers.superblock {
            self.superblock_durable();
        }
    }

    /// Answers the calls of `sync` whose records are durable.
    pub(crate) fn grant_syncs(&mut self) {
        while let Some(&(serial, ticket)) = self.commit.tickets.front() {
            if serial > self.commit.durable_serial {
                break;
            }
            self.commit.tickets.pop_front();
            self.io.tell(Event::Synced { ticket, result: Ok(()) });
        }
    }

    /// The update is durable in its first copy: actions that depend on it happen, and the second
    /// copy follows.
    fn superblock_durable(&mut self) {
        let s = &mut self.superblock;
        s.durable = s.encoded;
        s.note_durable();
        s.step = Step::Mirroring;
        self.io.stats.superblock_updates += 1;
        self.io.stats.regions_reclaimed += s.tail - self.regions.freed;
        for sequence in self.regions.freed.until(s.tail) {
            let region = self.regions.number(sequence);
            self.io.tell(Event::RegionFreed { region });
        }
        self.regions.freed = s.tail;
        while s.marks.front().is_some_and(|m| m.0 <= s.durable) {
            let (_, mark) = s.marks.pop_front().expect("the list is not empty");
            self.io.tell(match mark {
                Mark::Clean(ticket) => Event::CleanMarked { ticket, result: Ok(()) },
                Mark::Bound(ticket) => Event::Bound { ticket, result: Ok(()) },
                Mark::Bypass(volume) => Event::BypassNoted { volume, result: Ok(()) },
            });
        }
        self.activity.superblock_durable(self.superblock.durable, &mut self.io);
        self.write_superblock();
    }

    /// Fails all callers that wait for durability.
    pub(crate) fn fail_commits(&mut self, error: IoError) {
        for (_, ticket) in self.commit.tickets.drain(..) {
            self.io.tell(Event::Synced { ticket, result: Err(error) });
        }
        for (_, mark) in self.superblock.marks.drain(..) {
            self.io.tell(match mark {
                Mark::Clean(ticket) => Event::CleanMarked { ticket, result: Err(error) },
                Mark::Bound(ticket) => Event::Bound { ticket, result: Err(error) },
                Mark::Bypass(volume) => Event::BypassNoted { volume, result: Err(error) },
            });
        }
    }
}
