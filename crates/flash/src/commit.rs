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

use crate::activity::Activity;
use crate::binding::{Binding, NotedStamp, SEAL_BYTES, Sealed};
use crate::events::{AnswerKind, Event};
use crate::format::superblock::{SECOND_COPIES_AT, Superblock};
use crate::identity::TierId;
use crate::io::{Io, SUPERBLOCK_BUFFER};
use crate::operation::LogOperation;
use crate::placement::Placement;
use crate::sabotage::Bug;
use crate::sequence::{
    AppendSerial, BatchSequence, RegionSequence, StampNumber, SuperblockGeneration,
    SuperblockVersion,
};

use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};
use std::collections::VecDeque;

/// Which appends are complete, which are durable, and which callers wait.
pub(crate) struct Commit {
    complete_serial: AppendSerial,
    complete_batch: BatchSequence,
    durable_serial: AppendSerial,
    durable_batch: BatchSequence,
    /// A batch that a caller needs to be durable (see
    /// [`Log::make_durable`](crate::Log::make_durable)).
    awaited: BatchSequence,
    /// Waiting calls of `sync`: (serial, ticket).
    tickets: VecDeque<(AppendSerial, u64)>,
    in_flight: bool,
    /// Whether a sync has failed.
    failed: bool,
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
            failed: false,
            covers: Covers::default(),
        }
    }

    /// Lets a caller wait until the append `serial` is durable.
    pub fn wait(&mut self, serial: AppendSerial, ticket: u64, io: &mut Io) {
        let at = self.tickets.iter().rposition(|t| t.0 <= serial).map_or(0, |before| before + 1);
        self.tickets.insert(at, (serial, ticket));
        self.grant(io);
    }

    /// Answers the callers whose appends are durable.
    fn grant(&mut self, io: &mut Io) {
        while let Some(&(serial, ticket)) = self.tickets.front()
            && serial <= self.durable_serial
        {
            self.tickets.pop_front();
            io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result: Ok(()) });
        }
    }

    /// The appends from `first` on were withdrawn, and `last` is the newest that is left. Fails the
    /// callers that wait for a withdrawn one.
    pub fn withdraw(&mut self, first: AppendSerial, last: AppendSerial, io: &mut Io) {
        self.tickets.retain_mut(|(serial, ticket)| {
            if *serial >= first {
                io.tell(Event::Answer {
                    ticket: *ticket,
                    kind: AnswerKind::Synced,
                    result: Err(IoError::Device),
                });
                return false;
            }
            *serial = last.min(*serial);
            true
        });
    }

    /// Fails all callers.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        for (_, ticket) in self.tickets.drain(..) {
            io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result: Err(error) });
        }
    }

    /// Notes that a batch is complete together with all before it.
    pub fn complete(&mut self, serial: AppendSerial, batch: BatchSequence) {
        // The maximum matters only under sabotage, which changes the order.
        self.complete_serial = self.complete_serial.max(serial);
        self.complete_batch = self.complete_batch.max(batch);
    }

    /// Continues after a recovery that found batches up to `end`, those up to `durable` durable.
    pub fn continue_at(&mut self, end: BatchSequence, durable: BatchSequence) {
        (self.complete_batch, self.durable_batch) = (end, durable);
    }

    /// Notes that a caller needs the batch to be durable.
    pub fn await_batch(&mut self, sequence: BatchSequence) {
        self.awaited = self.awaited.max(sequence);
    }

    /// Whether a sync would help a caller.
    pub fn wants_sync(&self) -> bool {
        self.tickets.front().is_some_and(|t| self.would_cover(t.0))
            || self.would_cover_batch(self.awaited)
    }

    /// Whether a sync is in flight.
    pub fn is_syncing(&self) -> bool {
        self.in_flight
    }

    /// Whether a sync has failed. A later sync says nothing about the writes before the failed one.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Issues a sync.
    pub fn begin_sync(&mut self, superblock: &SuperblockWriter, io: &mut Io) {
        self.covers = Covers {
            serial: self.complete_serial,
            batch: self.complete_batch,
            superblock: superblock.step == SuperblockStep::Written,
            mirrored: superblock.mirrored,
        };
        self.in_flight = true;
        io.sync(LogOperation::Sync);
    }

    /// Called when the sync has ended. If it failed, nothing more will be durable.
    pub fn end_sync(&mut self, result: Outcome) {
        assert!(self.in_flight, "no sync is in flight");
        self.in_flight = false;
        self.failed |= result.is_err();
    }

    /// Answers the callers whose appends the sync has made durable. Returns whether the sync
    /// covered a copy of the superblock.
    pub fn take_durable(&mut self, superblock: &mut SuperblockWriter, io: &mut Io) -> bool {
        let mut covers = self.covers;
        if io.sabotage.is(Bug::SyncCoversTooMuch) {
            covers.serial = self.complete_serial;
        }
        self.durable_serial = covers.serial;
        self.durable_batch = covers.batch;
        superblock.settled = covers.mirrored;
        self.grant(io);
        covers.superblock
    }

    /// Called when a sync of a latched log has ended.
    pub fn salvage(&mut self, result: Outcome) {
        match result {
            Ok(()) => {
                self.durable_serial = self.complete_serial;
                self.durable_batch = self.complete_batch;
            }
            Err(_) => self.failed = true,
        }
    }

    /// Newest append that is complete with all before it.
    #[inline]
    pub fn complete_serial(&self) -> AppendSerial {
        self.complete_serial
    }

    /// Newest batch that is complete with all before it.
    #[inline]
    pub fn complete_batch(&self) -> BatchSequence {
        self.complete_batch
    }

    /// Newest append that is durable with all before it.
    #[inline]
    pub fn durable_serial(&self) -> AppendSerial {
        self.durable_serial
    }

    /// Newest batch that is durable with all before it.
    #[inline]
    pub fn durable_batch(&self) -> BatchSequence {
        self.durable_batch
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
enum SuperblockStep {
    #[default]
    Idle,
    /// The first copy is being written.
    Writing,
    /// The first copy is written and needs a sync.
    Written,
    /// The second copy is being written.
    Mirroring,
}

/// A caller that waits for a version of the superblock.
enum SuperblockWaiter {
    Clean(u64),
    Bound(u64),
    /// A note that data of this volume bypass the log.
    Bypass(Volume),
}

impl SuperblockWaiter {
    fn answer(self, result: Outcome) -> Event {
        match self {
            SuperblockWaiter::Clean(ticket) => {
                Event::Answer { ticket, kind: AnswerKind::CleanMarked, result }
            }
            SuperblockWaiter::Bound(ticket) => {
                Event::Answer { ticket, kind: AnswerKind::Bound, result }
            }
            SuperblockWaiter::Bypass(volume) => Event::BypassNoted { volume, result },
        }
    }
}

/// The parts that a superblock describes: where the log begins and ends, how much of it is durable,
/// and which extents are marked. Each update needs all of them, and changes none.
pub(crate) struct Described<'a> {
    pub placement: &'a Placement,
    pub commit: &'a Commit,
    pub activity: &'a Activity,
}

/// The contents of the superblock, and how much of it is on flash. Versions count the states of the
/// contents since the start.
#[derive(Default)]
pub(crate) struct SuperblockWriter {
    /// Known once the log was formatted or recovered.
    contents: Option<Superblock>,
    /// Version that includes every change so far.
    wanted: SuperblockVersion,
    /// Version encoded last.
    encoded: SuperblockVersion,
    /// Version that is durable in at least one copy.
    durable: SuperblockVersion,
    /// Version written to both copies, and made durable in both.
    mirrored: SuperblockVersion,
    settled: SuperblockVersion,
    /// Version that a caller needs durable in both copies.
    settle: SuperblockVersion,
    /// Generation known to be durable.
    durable_generation: SuperblockGeneration,
    step: SuperblockStep,
    /// Whether a copy is being written, or one of a former tier is being erased.
    in_flight: bool,
    /// The copy that the next (or current) update writes first.
    copy: u32,
    pages: u32,
    /// Only for a new log: byte offsets at which a former tier's second copy may lie. They are
    /// erased once both new copies are written.
    to_erase: &'static [u64],
    /// Tail in the last encoded version.
    tail: RegionSequence,
    marks: VecDeque<(SuperblockVersion, SuperblockWaiter)>,
}

impl SuperblockWriter {
    /// The contents.
    ///
    /// # Panics
    /// If the log has none yet: nothing else happens to it before.
    pub fn contents(&self) -> &Superblock {
        self.contents.as_ref().expect("the log was formatted or recovered")
    }

    /// The contents, to be changed.
    ///
    /// # Panics
    /// As [`contents`](SuperblockWriter::contents).
    pub fn contents_mut(&mut self) -> &mut Superblock {
        self.contents.as_mut().expect("the log was formatted or recovered")
    }

    /// Takes over the contents that were found.
    pub fn load(&mut self, found: Superblock) {
        self.contents = Some(found);
    }

    /// Whether the contents say that the log was stopped cleanly.
    pub fn is_clean(&self) -> bool {
        self.contents.as_ref().is_some_and(|contents| contents.clean)
    }

    /// The volumes bound, to be changed; none before there are contents.
    fn bindings_mut(&mut self) -> &mut [Binding] {
        self.contents.as_mut().map_or(&mut [], |contents| &mut contents.bindings)
    }

    /// The volumes bound; none before there are contents.
    pub fn bindings(&self) -> &[Binding] {
        self.contents.as_ref().map_or(&[], |contents| &contents.bindings)
    }

    /// The contents of a new log with these volumes.
    pub fn format(&mut self, uuid: TierId, bindings: Vec<Binding>, io: &Io) {
        self.contents = Some(Superblock::of_new_log(uuid, bindings, &io.geometry));
        if !io.without_bytes {
            self.erase_former_copies();
        }
    }

    /// Notes that the contents have changed; returns the version that will include the change.
    pub fn touch(&mut self) -> SuperblockVersion {
        self.wanted = self.encoded.next();
        self.wanted
    }

    /// For a new log: once both of its copies are written, erases the second copies of former
    /// tiers.
    fn erase_former_copies(&mut self) {
        self.to_erase = &SECOND_COPIES_AT;
    }

    /// Whether `version` has been encoded, so that it cannot change any more.
    pub fn is_encoded(&self, version: SuperblockVersion) -> bool {
        version <= self.encoded
    }

    /// Notes that the last encoded version has become durable in one copy.
    pub fn note_durable(&mut self) {
        self.durable_generation = self.contents().generation;
        self.copy ^= 1;
    }

    /// The generation known to be durable.
    pub fn known(&self) -> SuperblockGeneration {
        self.durable_generation
    }

    /// Notes that the contents have changed, and that a caller waits until they are durable in both
    /// copies.
    pub fn settle(&mut self) -> SuperblockVersion {
        self.settle = self.touch();
        self.settle
    }

    /// Whether the version is durable in both copies.
    pub fn is_settled(&self, version: SuperblockVersion) -> bool {
        self.settled >= version
    }

    /// Continues after a recovery for which `copy` was the newest copy.
    pub fn continue_after(&mut self, copy: u32) {
        self.copy = 1 - copy;
    }

    /// Declares the records of batches up to `sequence` clean.
    pub fn mark_clean(&mut self, sequence: BatchSequence, ticket: u64) {
        self.contents_mut().clean_before = sequence;
        self.promise(SuperblockWaiter::Clean(ticket));
    }

    /// Replaces the table of bound volumes.
    pub fn bind(&mut self, bindings: Vec<Binding>, ticket: u64) {
        self.contents_mut().bindings = bindings;
        self.promise(SuperblockWaiter::Bound(ticket));
    }

    /// Notes stamps that are durable on their backing stores.
    pub fn note_stamps(&mut self, stamps: &[NotedStamp]) {
        for &NotedStamp { volume, number, logged } in stamps {
            let mut bindings = self.bindings_mut().iter_mut();
            let Some(binding) = bindings.find(|b| b.volume == volume) else { continue };
            binding.stamp = binding.stamp.max(number);
            // (A copy of the store with an older stamp lacks more than the log holds, whatever
            // happens from now on.)
            if logged && binding.logged == StampNumber::NONE && number == binding.stamp {
                binding.logged = number;
            }
        }
    }

    /// Notes that data of the volume are about to bypass the log; `BypassNoted` follows once this
    /// is durable.
    pub fn note_bypass(&mut self, volume: Volume) {
        let binding = self.bindings_mut().iter_mut().find(|b| b.volume == volume);
        binding.into_iter().for_each(|b| b.logged = StampNumber::NONE);
        self.promise(SuperblockWaiter::Bypass(volume));
    }

    /// Seals volumes. Clean records of distrusted ones up to batch `last` do not count.
    pub fn seal(&mut self, volumes: &[Sealed], last: BatchSequence) {
        for volume in volumes {
            let mut bindings = self.bindings_mut().iter_mut();
            let Some(binding) = bindings.find(|b| b.volume == volume.volume) else { continue };
            binding.seal = volume.seal;
            binding.stamp = binding.stamp.max(volume.stamp.unwrap_or_default());
            // Others may write to the store now.
            binding.logged = StampNumber::NONE;
            if volume.distrust {
                binding.distrusted = last;
            }
        }
    }

    /// Voids all records of these volumes up to batch `last`.
    pub fn void(&mut self, volumes: impl Iterator<Item = Volume>, last: BatchSequence) {
        let bindings = self.bindings_mut();
        for volume in volumes {
            for binding in bindings.iter_mut().filter(|b| b.volume == volume) {
                (binding.distrusted, binding.voided) = (last, last);
                (binding.seal, binding.logged) = ([0; SEAL_BYTES], StampNumber::NONE);
            }
        }
    }

    /// Emits `Bound` once the latest change is durable.
    pub fn promise_bound(&mut self, ticket: u64) {
        self.promise(SuperblockWaiter::Bound(ticket));
    }

    fn promise(&mut self, mark: SuperblockWaiter) {
        let version = self.touch();
        self.marks.push_back((version, mark));
    }

    /// Whether an update is needed and none is in progress.
    fn is_due(&self) -> bool {
        self.step == SuperblockStep::Idle && self.wanted > self.encoded
    }

    /// Whether a sync would help an update.
    pub fn wants_sync(&self) -> bool {
        self.step == SuperblockStep::Written
            || self.settle > self.settled && self.mirrored >= self.settle
    }

    /// Whether a copy is being written.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Begins an update if one is needed and none is in progress.
    pub fn pump(&mut self, described: &Described<'_>, io: &mut Io) -> bool {
        if !self.is_due() {
            return false;
        }
        self.encode(described, io);
        self.encoded = self.wanted;
        self.step = SuperblockStep::Writing;
        self.in_flight = true;
        self.write(LogOperation::Superblock, io);
        true
    }

    /// Encodes the contents, together with the state of the other parts.
    pub fn encode(&mut self, described: &Described<'_>, io: &mut Io) {
        let &Described { placement: Placement { regions, batches, .. }, commit, activity } =
            described;
        let (next, durable) = (batches.next_sequence(), commit.durable_batch());
        self.tail = regions.tail_wanted;
        let c = self.contents.as_mut().expect("the log was formatted or recovered");
        c.generation = c.generation.next();
        c.tail_region = regions.tail_wanted;
        c.tail_batch = regions.tail_batch(next);
        c.synced = durable;
        if io.without_bytes {
            self.pages = c.bytes(activity.listed()) as u32 / io.geometry.page_size;
            return;
        }
        activity.list(&mut c.active);
        if io.sabotage.is(Bug::ActivityMarkSkipped) {
            c.active.clear();
        }
        let bytes = c.encode(&mut io.buffers[SUPERBLOCK_BUFFER]);
        self.pages = bytes as u32 / io.geometry.page_size;
    }

    /// Erases the next place where a former tier, perhaps with another page size, may have its
    /// second copy. This log may never write to that place, and if its first copy is damaged one
    /// day, the former tier's copy must not be taken for its own. The log's first copy is durable
    /// by now, so a power cut during the erasure leaves this log; an earlier cut leaves the former
    /// tier unchanged.
    fn erase_former(&mut self, io: &mut Io) -> bool {
        let (page_size, copy_pages) = (io.geometry.page_size, io.geometry.superblock_pages);
        let used = self.pages;
        let own = |page: u32| page % copy_pages < used && page / copy_pages < 2;
        while let Some((&at, rest)) = self.to_erase.split_first() {
            self.to_erase = rest;
            let page = (at / u64::from(page_size)) as u32;
            if at < io.geometry.device_bytes() && !own(page) {
                self.in_flight = true;
                io.add_void(page_size);
                io.write(LogOperation::Superblock, page, 1);
                return true;
            }
        }
        false
    }

    /// Writes the copy whose turn it is.
    pub fn write(&mut self, operation: LogOperation, io: &mut Io) {
        let (copy, pages) = (self.copy, self.pages);
        let length = pages * io.geometry.page_size;
        io.add_meta(SUPERBLOCK_BUFFER, 0, length);
        io.stats.superblock_pages += u64::from(pages);
        let page = copy * io.geometry.superblock_pages;
        io.write(operation, page, pages);
    }

    /// Writes the second copy.
    pub fn write_second(&mut self, io: &mut Io) {
        self.in_flight = true;
        self.write(LogOperation::Superblock, io);
    }

    /// Called when the write of a copy, or the erasure of a former one, has ended.
    pub fn write_ended(&mut self) {
        self.in_flight = false;
    }

    /// The write or erasure has succeeded: erases the next former copy, or advances the update.
    pub fn written(&mut self, io: &mut Io) {
        if self.step == SuperblockStep::Mirroring && self.erase_former(io) {
            return;
        }
        match self.step {
            SuperblockStep::Writing => self.step = SuperblockStep::Written,
            SuperblockStep::Mirroring => {
                self.step = SuperblockStep::Idle;
                self.mirrored = self.encoded;
            }
            SuperblockStep::Idle | SuperblockStep::Written => {
                panic!("no superblock is being written")
            }
        }
    }

    /// Called when the update is durable in its first copy. Returns its version, and the tail that
    /// it names.
    pub fn first_copy_durable(&mut self, io: &mut Io) -> (SuperblockVersion, RegionSequence) {
        self.durable = self.encoded;
        self.note_durable();
        self.step = SuperblockStep::Mirroring;
        io.stats.superblock_updates += 1;
        (self.durable, self.tail)
    }

    /// Answers the callers whose changes are durable.
    pub fn answer(&mut self, io: &mut Io) {
        while self.marks.front().is_some_and(|m| m.0 <= self.durable) {
            let (_, mark) = self.marks.pop_front().expect("the list is not empty");
            io.tell(mark.answer(Ok(())));
        }
    }

    /// Fails all callers.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        for (_, mark) in self.marks.drain(..) {
            io.tell(mark.answer(Err(error)));
        }
    }
}
