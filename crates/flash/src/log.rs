//! The flash log: the public machine.
//!
//! `Log` owns the parts and decides nothing that one part can decide alone. This file has the calls
//! that change the log, and `queries.rs` those that do not. `pump.rs` has the driver's calls and
//! the order in which the parts take their turns, and `phases.rs` the steps of a start and of a
//! stop. Each part is a type with its own state in a sibling module; the parameters of the type's
//! methods show which other parts it needs.

mod phases;
mod pump;
mod queries;

use crate::activity::Activity;
use crate::batches::Queued;
use crate::binding::{Binding, NotedStamp, Sealed};
use crate::commit::{Commit, SuperblockWriter};
use crate::directory::Directories;
use crate::events::{AnswerKind, Event, MarkAnswer, RecordEvent};
use crate::geometry::Geometry;
use crate::io::{BATCH_BUFFERS, Io};
use crate::key::{BlockKey, Position, RegionIndex};
use crate::placement::Placement;
use crate::recovery::{HowToRecover, Recovery};
use crate::remains::Remains;
use crate::sabotage::{Bug, Sabotage};
use crate::sequence::BatchSequence;
use crate::types::{Append, ExtentId, Mapping, Options, Start};
use forebay_block::Volume;
use forebay_effect::IoError;
use phases::LogPhase;

/// The flash log of one device.
///
/// **In**: the calls below, and the driver's [`handle_checksum`](Log::handle_checksum) and
/// [`handle_completion`](Log::handle_completion) for tokens with `Owner::Log`. **Out**:
/// [`poll_effect`](Log::poll_effect) and [`poll_event`](Log::poll_event), each until empty,
/// after every call. Call [`start`](Log::start) once, first; the other calls are for after
/// [`StartEvent::Ready`](crate::StartEvent::Ready).
///
/// **Order.** `Appended` events come in the order of the appends, and a record is durable only
/// with all before it: what survives a power cut is a prefix of what was appended, at least up
/// to the last `Synced`. Regions are reclaimed strictly in the order in which they were filled,
/// so an older record of a block never outlives a newer one.
///
/// **Failure.** After a failed write or sync the log latches: it accepts no more appends, every
/// waiting or later call ends with the error, and records already on flash stay readable.
/// `remains.rs` has what can still be done.
///
/// **Direct writes** (write-through, where every record is clean): before a block is written to its
/// backing store past the log, its extent must be marked ([`mark_active`](Log::mark_active)). Until
/// the write has ended, no record of the block may be appended. After an unclean stop, clean
/// records in marked extents are not trusted. Where records may be dirty, append a tombstone (or
/// the newer record) and sync instead.
///
/// The driver must request each metadata buffer that a write names ([`meta`](Log::meta)) after it
/// has polled the write and before it completes it: the log encodes headers on the first request.
pub struct Log {
    options: Options,
    phase: LogPhase,
    /// Whether `stop` was called before the log was ready.
    stop_wanted: bool,
    /// The error with which the log latched.
    error: Option<IoError>,
    io: Io,
    placement: Placement,
    directories: Directories,
    commit: Commit,
    superblock: SuperblockWriter,
    activity: Activity,
    recovery: Option<Box<Recovery>>,
    remains: Remains,
}

impl Log {
    /// A log that has not been started.
    ///
    /// # Panics
    /// If the geometry is invalid ([`Geometry::validate`]).
    pub fn new(geometry: Geometry, options: Options) -> Log {
        if let Err(error) = geometry.validate() {
            panic!("{error}");
        }
        let superblock_bytes = (geometry.superblock_pages * geometry.page_size) as usize;
        let mut sizes = vec![superblock_bytes; BATCH_BUFFERS];
        sizes.extend((0..geometry.inflight_batches_max).map(|_| 2 * geometry.page_size as usize));
        sizes.push((geometry.directory_pages * geometry.page_size) as usize);
        crate::recovery::buffer_sizes(&geometry, &options, &mut sizes);
        let queue_max = (options.frames + geometry.batch_entries_max) as usize;
        Log {
            options,
            phase: LogPhase::New,
            stop_wanted: false,
            error: None,
            io: Io::new(geometry, sizes, queue_max),
            placement: Placement::new(&geometry, &options, queue_max),
            directories: Directories::new(&geometry),
            commit: Commit::new(options.frames as usize),
            superblock: SuperblockWriter::default(),
            activity: Activity::new(&geometry, options.frames as usize),
            recovery: None,
            remains: Remains::default(),
        }
    }

    /// Formats, recovers or checks the log. `Recovered` and `RecoveredTombstone` events in log
    /// order, then `Ready` or `Failed` follow.
    ///
    /// # Panics
    /// If the log was started before, or a format binds more volumes than the superblock holds.
    pub fn start(&mut self, how: Start) {
        assert!(matches!(self.phase, LogPhase::New), "a log can be started only once");
        match how {
            Start::Format { uuid, bindings } => self.format(uuid, bindings),
            Start::Recover { changed, drop_clean, stores, sizes } => {
                let check = false;
                self.begin_recovery(HowToRecover { check, changed, drop_clean, stores, sizes })
            }
            Start::Check => self.begin_recovery(HowToRecover::CHECK),
        }
        self.pump();
    }

    /// Appends a record. It waits while no region is free; [`RecordEvent::AppendFailed`] says that
    /// the log has failed, and [`RecordEvent::AppendRefused`] that the record was taken back.
    ///
    /// # Panics
    /// If the record has granules that a block does not have, or in the slots layout lost ones
    /// ([`Append::dirty`]).
    pub fn append(&mut self, append: Append) {
        let refusal = self.refusal();
        let Some(queued) = Queued::admit(&append, refusal, &mut self.io) else { return };
        let supersedes_stale = self.activity.record_appended(append.key);
        self.placement.queue.push(Queued { supersedes_stale, ..queued });
        if append.urgent {
            self.placement.queue.close();
        }
        // The other parts can make progress only if a batch was formed, or a region sealed for lack
        // of room.
        let head = self.placement.regions.head;
        // (If cells are short, the pump frees those in limbo.)
        if self.pump_batches()
            || self.placement.regions.head != head
            || self.placement.cells.is_short()
        {
            self.pump();
        }
    }

    /// Writes the open batch as soon as no batch is being written.
    pub fn close_batch(&mut self) {
        self.placement.queue.close();
        self.pump();
    }

    /// `Synced` follows once everything appended before this call is durable. Closes the open
    /// batch. The sync fails if a dirty record was withdrawn ([`Log::take_back`]) and its
    /// `AppendRefused` event has not been polled: the record's owner still considers it appended.
    pub fn sync(&mut self, ticket: u64) {
        let taken_back = self.placement.queue.owes_refusals();
        if let Some(error) = self.refusal().or(taken_back.then_some(IoError::Device)) {
            self.io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result: Err(error) });
            return;
        }
        self.placement.queue.close();
        if self.io.sabotage.is(Bug::LogSyncSkipped) {
            self.io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result: Ok(()) });
            return self.pump();
        }
        self.commit.wait(self.placement.queue.last_serial, ticket, &mut self.io);
        self.pump();
    }

    /// `Synced` follows once everything whose `Appended` event has been emitted is durable. Unlike
    /// [`Log::sync`] it does not wait for queued appends, which may wait for a region.
    pub fn sync_written(&mut self, ticket: u64) {
        let refusal = match self.phase {
            // While the log drains, its queued appends may depend on this sync.
            LogPhase::Draining => self.error,
            _ => self.refusal().filter(|_| !self.is_salvaged()),
        };
        if let Some(error) = refusal {
            self.io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result: Err(error) });
            return;
        }
        if self.is_salvaged() {
            // Nothing has been written since the salvage.
            return self.io.tell(Event::Answer {
                ticket,
                kind: AnswerKind::Synced,
                result: Ok(()),
            });
        }
        self.commit.wait(self.commit.complete_serial(), ticket, &mut self.io);
        self.pump();
    }

    /// Requests that the oldest region be reclaimed, because the index is full. Nothing happens if
    /// one is being reclaimed already, or nothing is on flash. In the slots layout, where that
    /// would not help, unmappings are expedited.
    pub fn reclaim(&mut self) {
        if !self.io.geometry.has_slots() {
            self.placement.regions.ask();
        } else {
            self.placement.cells.hurry();
        }
        self.pump();
    }

    /// Declares that nothing in the region is needed any more: every block in it is clean with its
    /// backing store durable, or dropped, or superseded by a record whose `Appended` event has been
    /// polled. (A newer version that is only in DRAM, or whose append is not complete, supersedes
    /// nothing.) No read of the region may be in flight. The log makes the superseding records
    /// durable, then the advanced tail, then reuses the region.
    ///
    /// # Panics
    /// If the region is not being reclaimed.
    pub fn region_released(&mut self, region: RegionIndex) {
        self.placement.regions.release(region, self.commit.complete_batch());
        self.pump();
    }

    /// Declares that the owner of the index has forgotten the region of an [`Event::RegionFreed`]:
    /// the log may write to it. Regions must be forgotten in the order of those events.
    ///
    /// # Panics
    /// If it is not the oldest freed region that has not been forgotten yet.
    pub fn region_forgotten(&mut self, region: RegionIndex) {
        self.placement.regions.forget(region);
        self.pump();
    }

    /// Appends a remaining record of a region that is being reclaimed, so that the region can be
    /// released. The record precedes all appends that are not in a batch yet. Those may wait for
    /// that region, so the record uses reserved room. Only in the log layout. (A record that is
    /// already in a batch would precede it in the log: see [`Log::is_waiting`].)
    ///
    /// # Panics
    /// As [`Log::append`].
    pub fn carry(&mut self, append: Append) {
        assert!(
            !self.io.geometry.has_slots(),
            "in the slots layout, cells are not reclaimed with a region"
        );
        // (While the log stops, its queued appends may wait for that region.)
        let draining = matches!(self.phase, LogPhase::Draining);
        let refusal = if draining { self.error } else { self.refusal() };
        let Some(queued) = Queued::admit(&append, refusal, &mut self.io) else { return };
        self.activity.record_appended(append.key);
        self.placement.queue.carry(queued);
        self.pump();
    }

    /// Appends a clean record again because it is worth keeping, although its region is being
    /// reclaimed. Works like [`Log::carry`], but only while there is room that nothing else may
    /// need; otherwise [`RecordEvent::AppendRefused`] follows. The region must not be released
    /// before the event for the record.
    ///
    /// # Panics
    /// As [`Log::carry`].
    pub fn reinsert(&mut self, append: Append) {
        assert!(
            !self.io.geometry.has_slots(),
            "in the slots layout, cells are not reclaimed with a region"
        );
        let ticket = append.ticket;
        // (If the record is stale, the block has been written past the log since.)
        let stale = self.activity.is_stale(append.key);
        if self.error.is_none() && (stale || !matches!(self.phase, LogPhase::Running)) {
            return self.io.tell(Event::Record(RecordEvent::AppendRefused { ticket }));
        }
        let refusal = self.refusal();
        let Some(queued) = Queued::admit(&append, refusal, &mut self.io) else { return };
        self.placement.queue.reinsert(queued);
        self.pump();
    }

    /// Writes the records given to [`Log::carry`] and [`Log::reinsert`] so far, in a batch that may
    /// not be full.
    pub fn close_carried(&mut self) {
        self.placement.queue.close_carried();
        self.pump();
    }

    /// Withdraws the appends that wait to be written: [`RecordEvent::AppendRefused`] follows for
    /// each, and syncs that cover a dirty one fail. A stale record that a withdrawn append would
    /// have superseded is stale again. For a caller that has waited too long for room.
    pub fn take_back(&mut self) {
        let p = &mut self.placement;
        p.queue.take_back(&p.batches, &mut self.commit, &mut self.activity, &mut self.io);
        self.pump();
    }

    /// Slots layout: the payload at `position` is no longer needed, because a record whose
    /// `Appended` event has been polled replaced it, or because the region with its mapping is
    /// free. The cell is reused once that is durable.
    pub fn release_cell(&mut self, position: Position) {
        self.placement.cells.release(position, &self.commit, &self.io);
        if self.placement.cells.is_short() {
            self.pump();
        }
    }

    /// Slots layout: forgets the record of `key`, which must be the newest, clean, and at
    /// `position`. `Unmapped` follows when that is durable, unless the log fails before; a newer
    /// record may be appended meanwhile. Returns false and does nothing while a newer record of the
    /// block is being written or its `Appended` event waits to be polled.
    pub fn unmap(&mut self, key: BlockKey, position: Position) -> bool {
        if self.takes_no_notes() {
            return true;
        }
        let p = &mut self.placement;
        let taken = p.cells.unmap(key, position, &p.batches, &mut self.io);
        if taken {
            self.pump();
        }
        taken
    }

    /// Slots layout: writes a mapping again, because its region is being reclaimed; `Moved`
    /// follows. Returns false and does nothing while a newer record of the block is being written,
    /// which makes the move unnecessary.
    ///
    /// # Panics
    /// If the mapping has no granule: such a record must be unmapped.
    pub fn remap(&mut self, mapping: Mapping) -> bool {
        assert!(!mapping.valid.is_empty(), "a mapping without a granule");
        if self.takes_no_notes() {
            self.io.tell(mapping.refused(self.error.unwrap_or(IoError::Shutdown)));
            return true;
        }
        let p = &mut self.placement;
        p.cells.remap(mapping, &p.batches, &mut self.io)
    }

    /// Slots layout: announces that the owner will submit `count` mappings to `remap`, without
    /// waiting for anything else first. Room is kept for them until [`Log::close_notes`]; until
    /// then, only full batches of the submitted ones are written. (There is one owner at a time: a
    /// cache with this layout has one shard.)
    pub fn expect_moves(&mut self, count: u32) {
        self.placement.cells.expect_moves(count);
        self.pump();
    }

    /// Slots layout: writes the mappings submitted to `remap`.
    pub fn close_notes(&mut self) {
        self.placement.cells.close_notes();
        self.pump();
    }

    /// Requests permission for a step of block `key`: to write it directly to its backing store, or
    /// to append a clean record whose data are in the backing store but may not be durable there.
    /// `Active` follows once its extent is durably marked, which may be at once; then the block's
    /// record on flash is stale. No record of the block may be appended before.
    ///
    /// The mark is valid only within the call in which the owner takes the event: the owner forgets
    /// the record (or calls [`Log::poison`]) and issues the write, or appends the new record. The
    /// extent may leave the table while that write is in flight; `activity.rs` says why this is
    /// safe.
    ///
    /// When the table of extents is full, [`Event::Retire`] requests that some be released. If the
    /// extent gets no place because of [`Log::hold_extents`], `Unmarked` follows instead.
    pub fn mark_active(&mut self, key: BlockKey, ticket: u64) {
        if let Some(error) = self.refusal() {
            self.io.tell(MarkAnswer::Active(Err(error)).to(ticket));
            return;
        }
        self.activity.mark(key, ticket, &self.superblock, &mut self.io);
        self.pump();
    }

    /// Declares the record of this block on flash stale. If the block's extent is active, the log
    /// remembers this until the extent is retired; otherwise it appends a tombstone.
    pub fn poison(&mut self, key: BlockKey) {
        if self.refusal().is_none() && !self.activity.poison(key, &self.superblock) {
            self.placement.queue.append_tombstone(key, &self.io);
        }
        self.pump();
    }

    /// Declares the backing store durable for the extent of an [`Event::Retire`]. Ignored if the
    /// extent has been marked again or held since.
    pub fn extent_released(&mut self, extent: ExtentId) {
        self.activity.released(extent);
        self.pump();
    }

    /// Keeps the volume's extents marked until the next start, and marks no others: a sync of the
    /// volume's backing store has failed, so nothing more can be made durable there.
    pub fn hold_extents(&mut self, volume: Volume) {
        self.activity.hold(volume);
        self.pump();
    }

    /// Voids the records of one block, after [`MarkAnswer::Unmarked`]: `RecordVoid` follows once
    /// that is durable. The owner of the index must have forgotten the record, which must be clean,
    /// and must not append another before the event.
    pub fn void_record(&mut self, key: BlockKey, ticket: u64) {
        if let Some(error) = self.refusal() {
            return self.io.tell(MarkAnswer::RecordVoid(Err(error)).to(ticket));
        }
        let queue = &mut self.placement.queue;
        queue.append_tombstone(key, &self.io);
        queue.close_through = queue.last_serial;
        self.activity.await_void(queue.last_serial, ticket);
        self.pump();
    }

    /// Declares every record appended before now clean: `CleanMarked` once durable. Every dirty
    /// block must be durable on its backing store.
    pub fn clean_before_now(&mut self, ticket: u64) {
        if let Some(error) = self.refusal() {
            self.io.tell(Event::Answer {
                ticket,
                kind: AnswerKind::CleanMarked,
                result: Err(error),
            });
            return;
        }
        let p = &mut self.placement;
        p.queue.mark_clean(p.batches.last_sequence(), ticket, &mut self.superblock);
        self.pump();
    }

    /// Replaces the table of bound volumes: `Bound` follows once it is durable, or with
    /// [`IoError::NoSpace`] if the superblock cannot hold that many.
    pub fn bind(&mut self, bindings: Vec<Binding>, ticket: u64) {
        let fits =
            bindings.len() <= crate::format::superblock::bindings_max(&self.io.geometry) as usize;
        let refusal = self.refusal().or(if fits { None } else { Some(IoError::NoSpace) });
        if let Some(error) = refusal {
            self.io.tell(Event::Answer { ticket, kind: AnswerKind::Bound, result: Err(error) });
            return;
        }
        self.superblock.bind(bindings, ticket);
        self.pump();
    }

    /// Notes the fingerprints of the backing stores, and the volumes whose clean records so far no
    /// longer count: `Bound` follows once this is durable. Nobody may write to the stores until the
    /// next call of `seal` or the next start. May also be called after a successful stop. A start
    /// drops the seals.
    ///
    /// # Panics
    /// If records are to stop counting while some wait to be written.
    pub fn seal(&mut self, volumes: &[Sealed], ticket: u64) {
        let stopped = matches!(self.phase, LogPhase::Closed) && self.superblock.is_clean();
        let refusal = if stopped { self.error } else { self.refusal() };
        if let Some(error) = refusal {
            self.io.tell(Event::Answer { ticket, kind: AnswerKind::Bound, result: Err(error) });
            return;
        }
        for volume in volumes.iter().filter(|v| v.distrust) {
            let waits = self.placement.queue.holds_record_of(volume.volume);
            assert!(!waits, "records of a distrusted volume are waiting to be written");
        }
        self.superblock.seal(volumes, self.placement.batches.last_sequence());
        if stopped {
            self.phase = LogPhase::Sealing { version: self.superblock.settle(), ticket };
        } else {
            self.superblock.promise_bound(ticket);
        }
        self.pump();
    }

    /// Returns whether a written batch is durable, so that a stamp may name it. If it is not, the
    /// log issues a sync, even if the batch holds nothing that a client waits for (only mappings
    /// that move or are withdrawn).
    pub fn make_durable(&mut self, sequence: BatchSequence) -> bool {
        self.commit.await_batch(sequence);
        self.pump();
        sequence <= self.commit.durable_batch()
    }

    /// Notes stamps that are durable on their backing stores. The note is durable with the next
    /// superblock.
    pub fn note_stamps(&mut self, stamps: &[NotedStamp]) {
        if self.error.is_some() || stamps.is_empty() {
            return;
        }
        self.superblock.note_stamps(stamps);
        // (A log that is closing writes its last superblock, or has written it.)
        if matches!(self.phase, LogPhase::Running | LogPhase::Draining) {
            self.superblock.touch();
            self.pump();
        }
    }

    /// Announces that data of the volume will bypass the log. No data may bypass it before
    /// [`Event::BypassNoted`].
    ///
    /// [`Event::BypassNoted`]: crate::Event::BypassNoted
    pub fn note_bypass(&mut self, volume: Volume) {
        if let Some(error) = self.refusal() {
            self.io.tell(Event::BypassNoted { volume, result: Err(error) });
            return;
        }
        self.superblock.note_bypass(volume);
        self.pump();
    }

    /// Clean stop: writes the queued appends, tombstones for stale records, and a superblock with
    /// the clean mark; `Stopped` follows. End direct writes and make the backing stores durable
    /// first.
    ///
    /// A start in progress is abandoned if nothing was written yet; otherwise it is finished first.
    pub fn stop(&mut self) {
        match self.phase {
            LogPhase::New | LogPhase::Recovering => {
                self.recovery = None;
                self.phase = LogPhase::Closed;
                self.io.tell(Event::Stopped { result: Ok(()) });
            }
            LogPhase::Opening { .. } => self.stop_wanted = true,
            _ => match self.refusal() {
                Some(error) => {
                    self.phase = LogPhase::Closed;
                    self.io.tell(Event::Stopped { result: Err(error) });
                }
                None => self.begin_stop(),
            },
        }
        self.pump();
    }

    /// For a log that has latched: `Synced` follows once everything whose `Appended` event was
    /// emitted is durable, if the device can still make it durable.
    ///
    /// # Panics
    /// Before the log has latched, or while another call of this or of [`Log::void`] is unanswered.
    pub fn salvage(&mut self, ticket: u64) {
        assert!(self.error.is_some(), "only a failed log can be salvaged");
        self.remains.salvage(ticket, &self.commit, &mut self.io);
        self.pump();
    }

    /// For a log that has latched: voids all records of these volumes. `Voided` follows once this
    /// is durable. The volumes' backing stores must be durable and hold the data that was dirty.
    ///
    /// # Panics
    /// Before a salvage has succeeded, or while another call is unanswered.
    pub fn void(&mut self, volumes: impl Iterator<Item = Volume>, ticket: u64) {
        let last = self.placement.batches.last_sequence();
        self.remains.void(volumes, last, ticket, &mut self.superblock);
        self.pump();
    }

    /// Latches the log as failed, as after a failed write, because the caller cannot continue with
    /// it (an unreadable dirty record would be lost with its region).
    pub fn give_up(&mut self, error: IoError) {
        self.latch(error);
    }

    /// For a driver without bytes: payloads have no checksums (they are 0), and writes have no
    /// memory operands.
    pub fn without_bytes(&mut self) {
        self.io.leave_out_bytes();
    }

    /// Gives this log a bug.
    #[doc(hidden)]
    pub fn sabotage(&mut self, sabotage: Sabotage) {
        self.io.sabotage = sabotage;
    }

    /// Returns why the log accepts no new records, or `None` if it accepts them.
    ///
    /// # Panics
    /// Before `Ready`.
    fn refusal(&self) -> Option<IoError> {
        match self.phase {
            LogPhase::New | LogPhase::Recovering | LogPhase::Opening { .. } => {
                panic!("the log is not ready yet")
            }
            LogPhase::Running => self.error,
            _ => Some(self.error.unwrap_or(IoError::Shutdown)),
        }
    }

    fn takes_no_notes(&self) -> bool {
        self.error.is_some() || !matches!(self.phase, LogPhase::Running | LogPhase::Draining)
    }
}
