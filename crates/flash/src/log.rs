//! The flash log: the public machine. The sibling modules make its decisions; each is an `impl Log`
//! for one part of the state.

mod phases;
mod syncs;

use crate::activity::Activity;
use crate::batches::{Batches, Queue, Queued};
use crate::binding::{Binding, Sealed};
use crate::cells::Cells;
use crate::commit::{Commit, SuperblockWriter};
use crate::directory::Directories;
use crate::geometry::Geometry;
use crate::io::Io;
use crate::key::{BlockKey, Position};
use crate::operation::Operation;
use crate::recovery::{HowToRecover, Recovery};
use crate::regions::Regions;
use crate::remains::Remains;
use crate::sabotage::{Bug, Sabotage};
use crate::sequence::{AppendSerial, SuperblockVersion};
use crate::types::{Append, Event, ExtentId, LogStats, Options, Recovering, RecoveryReport, Start};
use forebay_effect::{Effect, IoError, MetaBuffer, Outcome, Segment};

/// The flash log of one device.
///
/// **In**: the calls below, and the driver's [`handle_checksum`](Log::handle_checksum) and
/// [`handle_completion`](Log::handle_completion) for tokens with `Owner::Log`. **Out**:
/// [`poll_effect`](Log::poll_effect) and [`poll_event`](Log::poll_event), each until empty,
/// after every call. Call [`start`](Log::start) once, first; the other calls are for after
/// [`Event::Ready`].
///
/// **Order.** `Appended` events come in the order of the appends, and a record is durable only
/// with all before it: what survives a power cut is a prefix of what was appended, at least up
/// to the last `Synced`. Regions are reclaimed strictly in the order in which they were filled,
/// so an older record of a block never outlives a newer one.
///
/// **Failure.** After a failed write or sync the log latches: it takes nothing more, every
/// waiting or later call ends with the error, and records already on flash stay readable. What can
/// still be done is in `remains.rs`.
///
/// **Direct writes** (write-through, where every record is clean): before a block is written to
/// its backing store past the log, its extent must be marked
/// ([`mark_active`](Log::mark_active)); when the write has ended,
/// [`direct_done`](Log::direct_done). After an unclean stop, clean records in marked extents are
/// not trusted. Where records may be dirty, append a tombstone (or the newer record) and sync
/// instead.
///
/// A metadata buffer named by a write is to be asked for ([`meta`](Log::meta)) between the poll of
/// the write and its completion: headers are encoded when they are first asked for.
pub struct Log {
    pub(crate) options: Options,
    pub(crate) phase: Phase,
    /// `stop` was called before the log was ready.
    pub(crate) stop_wanted: bool,
    /// Why nothing is written any more.
    pub(crate) error: Option<IoError>,
    pub(crate) io: Io,
    pub(crate) queue: Queue,
    pub(crate) batches: Batches,
    pub(crate) regions: Regions,
    pub(crate) directories: Directories,
    pub(crate) cells: Cells,
    pub(crate) commit: Commit,
    pub(crate) superblock: SuperblockWriter,
    pub(crate) activity: Activity,
    pub(crate) recovery: Option<Box<Recovery>>,
    pub(crate) remains: Remains,
}

/// The state of the log.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Not started.
    New,
    /// Reading the device.
    Recovering,
    /// The superblock of this epoch (a version of it) is being made durable.
    Opening { version: SuperblockVersion, report: Box<RecoveryReport> },
    /// Taking appends.
    Running,
    /// Waiting for everything appended to complete.
    Draining,
    /// The last tombstones are being made durable.
    Flushing { serial: AppendSerial, remove: bool },
    /// The clean superblock is being made durable.
    Closing { version: SuperblockVersion },
    /// Stopped, failed to start, or checked.
    Closed,
    /// Stopped; the superblock with the seals is being made durable.
    Sealing { version: SuperblockVersion, ticket: u64 },
}

/// The metadata buffer from which the superblock is written (and into which its first copy is
/// read).
pub(crate) const SUPERBLOCK_BUFFER: usize = 0;
/// The buffer that the second copy is read into.
pub(crate) const SUPERBLOCK_OTHER: usize = 1;
/// The first of the batches' buffers.
pub(crate) const BATCH_BUFFERS: usize = 2;

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
            phase: Phase::New,
            stop_wanted: false,
            error: None,
            io: Io::new(geometry, sizes, queue_max),
            queue: Queue::new(queue_max),
            batches: Batches::new(&geometry),
            regions: Regions::new(&geometry, &options),
            directories: Directories::new(&geometry),
            cells: Cells::new(&geometry),
            commit: Commit::new(options.frames as usize),
            superblock: SuperblockWriter::default(),
            activity: Activity::new(&geometry, options.frames as usize),
            recovery: None,
            remains: Remains::default(),
        }
    }

    /// Formats, recovers or checks. `Recovered` and `RecoveredTombstone` events in log order,
    /// then `Ready` or `Failed` follow.
    ///
    /// # Panics
    /// If the log was started before, or a format binds more volumes than the superblock holds.
    pub fn start(&mut self, how: Start) {
        assert!(matches!(self.phase, Phase::New), "a log can be started only once");
        match how {
            Start::Format { uuid, bindings } => self.format(uuid, bindings),
            Start::Recover { changed, sealed, stores, sizes } => {
                self.begin_recovery(HowToRecover { check: false, changed, sealed, stores, sizes })
            }
            Start::Check => self.begin_recovery(HowToRecover::CHECK),
        }
        self.pump();
    }

    /// Appends a record. It waits while no region is free; [`Event::AppendFailed`] says that the log has
    /// failed, and [`Event::AppendRefused`] that the record was taken back.
    ///
    /// # Panics
    /// If a mask has granules that a block does not have, or in the slots layout lost ones ([`Append::dirty`]).
    pub fn append(&mut self, append: Append) {
        let Some(queued) = self.admit(&append, self.refusal()) else { return };
        let supersedes_stale = self.activity.record_appended(append.key);
        let serial = self.queue.push(Queued { supersedes_stale, ..queued });
        if append.urgent {
            self.queue.close_through = serial;
        }
        // Only a batch formed, or a region sealed for want of room, lets anything else go on.
        let head = self.regions.head;
        // (And for want of cells, those in limbo are freed.)
        if self.pump_batches() || self.regions.head != head || self.cells.is_short() {
            self.pump();
        }
    }

    pub(crate) fn admit(&mut self, append: &Append, refusal: Option<IoError>) -> Option<Queued> {
        let Append { ticket, key, valid, dirty, frame, .. } = *append;
        let lost = dirty & !valid;
        assert!(
            (valid | dirty) & !self.io.geometry.full_mask() == 0,
            "more granules than a block has"
        );
        assert!(
            lost == 0 || !self.io.geometry.has_slots(),
            "in the slots layout, a record cannot have lost granules"
        );
        if let Some(error) = refusal {
            self.io.tell(Event::AppendFailed { ticket, error });
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

    /// Writes the open batch as soon as no batch is being written.
    pub fn close_batch(&mut self) {
        self.queue.close_through = self.queue.last_serial;
        self.pump();
    }

    /// `Synced` follows once everything appended before this call is durable. Closes the open
    /// batch. The sync fails if a dirty record was withdrawn ([`Log::take_back`]) and that event
    /// has not been polled: for its owner the record is still appended.
    pub fn sync(&mut self, ticket: u64) {
        let taken_back = !self.queue.taken_back.is_empty();
        if let Some(error) = self.refusal().or(taken_back.then_some(IoError::Device)) {
            self.io.tell(Event::Synced { ticket, result: Err(error) });
            return;
        }
        self.queue.close_through = self.queue.last_serial;
        if self.io.sabotage.is(Bug::LogSyncSkipped) {
            self.io.tell(Event::Synced { ticket, result: Ok(()) });
            return self.pump();
        }
        self.commit.wait(self.queue.last_serial, ticket, &mut self.io);
        self.pump();
    }

    /// `Synced` follows once everything whose `Appended` event has been emitted is durable. Unlike
    /// [`Log::sync`] it does not wait for queued appends, which may wait for a region.
    pub fn sync_written(&mut self, ticket: u64) {
        let refusal = match self.phase {
            // What waits to be written may wait for what this sync is for.
            Phase::Draining => self.error,
            _ => self.refusal().filter(|_| !self.is_salvaged()),
        };
        if let Some(error) = refusal {
            self.io.tell(Event::Synced { ticket, result: Err(error) });
            return;
        }
        if self.is_salvaged() {
            // Nothing was written since.
            return self.io.tell(Event::Synced { ticket, result: Ok(()) });
        }
        self.commit.wait(self.commit.complete_serial(), ticket, &mut self.io);
        self.pump();
    }

    /// Requests that the oldest region be reclaimed, because the index is full. Nothing happens if
    /// one is being reclaimed already, or nothing is on flash. In the slots layout, where that
    /// would not help, unmappings are expedited.
    pub fn reclaim(&mut self) {
        if !self.io.geometry.has_slots() {
            self.regions.ask();
        } else {
            self.cells.hurry = true;
        }
        self.pump();
    }

    /// Nothing in the region is needed any more: every block in it is clean with its backing store
    /// durable, or dropped, or superseded by a record whose `Appended` event has been polled. (A
    /// newer version that is only in DRAM, or whose append is not complete, supersedes nothing.) No
    /// read of the region is in flight. The log makes the superseding records durable, then the
    /// advanced tail, then reuses the region.
    ///
    /// # Panics
    /// If the region is not being reclaimed.
    pub fn region_released(&mut self, region: u32) {
        self.regions.release(region, self.commit.complete_batch());
        self.pump();
    }

    /// The owner of the index has forgotten the region of an [`Event::RegionFreed`]: the log may
    /// write to it. Regions are forgotten in the order of those events.
    ///
    /// # Panics
    /// If it is not the oldest region that was freed and is not forgotten.
    pub fn region_forgotten(&mut self, region: u32) {
        self.regions.forget(region);
        self.pump();
    }

    /// Requests permission to write `key` directly to its backing store: `Active` follows once its
    /// extent is durably marked, which may be at once. From then on the block's record on flash
    /// counts as stale.
    ///
    /// When the table of extents is full, [`Event::Retire`] requests that some be released. If the extent
    /// gets no place because of [`Log::hold_extents`], `Unmarked` follows instead.
    pub fn mark_active(&mut self, key: BlockKey, ticket: u64) {
        if let Some(error) = self.refusal() {
            self.io.tell(Event::Active { ticket, result: Err(error) });
            return;
        }
        self.activity.mark(key, ticket, &self.superblock, &mut self.io);
        self.pump();
    }

    /// Whether such a mark waits only for flash, and not for a sync of another extent's store.
    pub fn has_mark(&self, key: BlockKey) -> bool {
        self.activity.has_place(key)
    }

    /// The direct write granted by `Active` has ended, successfully or not. The block's record on
    /// flash counts as stale, unless one is appended after this call.
    ///
    /// # Panics
    /// If no direct write to the block's extent was granted.
    pub fn direct_done(&mut self, key: BlockKey) {
        self.activity.direct_done(key);
        self.pump();
    }

    /// The record of this block on flash is stale. If the block's extent is active, that is
    /// remembered until the extent is retired; otherwise a tombstone is appended. Call it when a
    /// granted direct write is issued, if a record of the block was appended since the grant.
    pub fn poison(&mut self, key: BlockKey) {
        if self.refusal().is_none() && !self.activity.poison(key, &self.superblock) {
            self.queue.append_tombstone(key, &self.io);
        }
        self.pump();
    }

    /// The backing store is durable for the extent of an [`Event::Retire`]. Ignored when the
    /// extent was marked again or is held meanwhile.
    pub fn extent_released(&mut self, extent: ExtentId) {
        self.activity.released(extent);
        self.pump();
    }

    /// Declares every record appended before now clean: `CleanMarked` once durable. Every dirty
    /// block must be durable on its backing store.
    pub fn clean_before_now(&mut self, ticket: u64) {
        if let Some(error) = self.refusal() {
            self.io.tell(Event::CleanMarked { ticket, result: Err(error) });
            return;
        }
        self.request_clean_mark(ticket);
        self.pump();
    }

    /// Replaces the table of bound volumes: `Bound` follows once it is durable, or with
    /// [`IoError::NoSpace`] if the superblock cannot hold that many.
    pub fn bind(&mut self, bindings: Vec<Binding>, ticket: u64) {
        let fits =
            bindings.len() <= crate::format::superblock::bindings_max(&self.io.geometry) as usize;
        let refusal = self.refusal().or(if fits { None } else { Some(IoError::NoSpace) });
        if let Some(error) = refusal {
            self.io.tell(Event::Bound { ticket, result: Err(error) });
            return;
        }
        self.superblock.bind(bindings, ticket);
        self.pump();
    }

    /// Notes the fingerprints of the backing stores, which nobody writes until the next call of
    /// this or the next start, and which volumes' records so far no longer count: `Bound` follows
    /// once that is durable. May also be called after a successful stop. A start drops the seals.
    ///
    /// # Panics
    /// If records are to stop counting while some wait to be written.
    pub fn seal(&mut self, volumes: &[Sealed], ticket: u64) {
        let stopped = matches!(self.phase, Phase::Closed) && self.superblock.contents.clean;
        let refusal = if stopped { self.error } else { self.refusal() };
        if let Some(error) = refusal {
            self.io.tell(Event::Bound { ticket, result: Err(error) });
            return;
        }
        self.request_seal(volumes, stopped, ticket);
        self.pump();
    }

    /// The volumes bound.
    pub fn bindings(&self) -> &[Binding] {
        &self.superblock.contents.bindings
    }

    /// Clean stop: writes the queued appends, tombstones for stale records, and a superblock with
    /// the clean mark; `Stopped` follows. Make the backing stores durable and end direct writes
    /// first. (Extents with a granted direct write stay marked.)
    ///
    /// A start in progress is abandoned if nothing was written yet, else finished first.
    pub fn stop(&mut self) {
        match self.phase {
            Phase::New | Phase::Recovering => {
                self.recovery = None;
                self.phase = Phase::Closed;
                self.io.tell(Event::Stopped { result: Ok(()) });
            }
            Phase::Opening { .. } => self.stop_wanted = true,
            _ => match self.refusal() {
                Some(error) => {
                    self.phase = Phase::Closed;
                    self.io.tell(Event::Stopped { result: Err(error) });
                }
                None => self.begin_stop(),
            },
        }
        self.pump();
    }

    /// The answer to an `Effect::Checksum`.
    pub fn handle_checksum(&mut self, index: u32, value: u32) {
        let Operation::Checksum { batch, entry } = Operation::of(index) else {
            panic!("{:?} has no checksum", Operation::of(index));
        };
        if self.checksum_done(usize::from(batch), usize::from(entry), value) {
            self.pump();
        }
    }

    /// The end of a device effect. After a read, the bytes must be in the metadata buffer.
    ///
    /// # Panics
    /// If `index` is of no device effect of this log.
    pub fn handle_completion(&mut self, index: u32, result: Outcome) {
        match Operation::of(index) {
            Operation::Batch { batch } | Operation::Cells { batch, .. } => {
                self.batch_written(usize::from(batch), result);
            }
            Operation::Checksum { .. } => panic!("a checksum is not of a device"),
            Operation::Sync => self.sync_done(result),
            Operation::Superblock => self.superblock_written(result),
            Operation::Directory => self.directory_written(result),
            Operation::RecoveryRead { buffer } => self.recovery_read(usize::from(buffer), result),
            Operation::RecoverySync => self.recovery_synced(result),
            Operation::RemainsSuperblock | Operation::RemainsSync => self.remains_done(result),
        }
        self.pump();
    }

    /// For a driver without bytes: payloads have no checksums (they are 0), and writes have no
    /// memory operands.
    pub fn without_bytes(&mut self) {
        self.io.leave_out_bytes();
    }

    /// Whether there are effects.
    #[inline]
    pub fn has_effects(&self) -> bool {
        self.io.has_effects() || !self.batches.unsummed.is_empty()
    }

    /// The next effect; its memory operands replace what `segments` holds.
    #[inline]
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        if !self.io.has_effects() {
            self.write_unsummed();
        }
        self.io.next_effect(segments)
    }

    /// Whether there are events.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.io.has_events()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let mut event = self.io.next_event();
        if let (Some(event), true) = (&mut event, self.io.geometry.has_slots()) {
            self.hear(event);
        }
        if let Some(Event::AppendRefused { ticket }) = &event
            && self.queue.taken_back.front() == Some(ticket)
        {
            self.queue.taken_back.pop_front();
        }
        self.io.rewind_events();
        event
    }

    /// The event that [`Log::poll_event`] would return after `n` others.
    #[inline]
    pub fn upcoming_event(&self, n: usize) -> Option<&Event> {
        self.io.upcoming_event(n)
    }

    /// The bytes of a metadata buffer.
    pub fn meta(&mut self, buffer: MetaBuffer) -> &[u8] {
        self.meta_mut(buffer)
    }

    /// The bytes of a metadata buffer, for the driver to fill when a read completes.
    pub fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        let buffer = buffer.0 as usize;
        if buffer == self.directory_buffer() {
            self.encode_directory();
        } else if let Some(index) = buffer.checked_sub(BATCH_BUFFERS) {
            self.encode_headers(index);
        }
        &mut self.io.buffers[buffer]
    }

    /// The position's offset on the device, in bytes.
    pub fn byte_offset(&self, position: Position) -> u64 {
        u64::from(position.0) * u64::from(self.io.geometry.page_size)
    }

    /// The number of the position's region; in the slots layout, of the region with its mapping.
    pub fn region_of(&self, position: Position) -> u32 {
        if self.io.geometry.has_slots() {
            return self.cells.home(position);
        }
        (position.0 - self.io.geometry.first_region_page()) / self.io.geometry.region_pages
    }

    /// Bytes of a payload with these valid granules.
    pub fn payload_bytes(&self, valid: u16) -> u32 {
        self.io.geometry.payload_bytes(valid)
    }

    /// Pages of a payload with these valid granules.
    pub fn payload_pages(&self, valid: u16) -> u32 {
        self.io.geometry.payload_pages(valid)
    }

    /// The start value of a payload's checksum. It depends on the log's UUID, the epoch and
    /// sequence of the region, the block and the position, so that a stale, misdirected or foreign
    /// payload fails. Call it before the region is released.
    pub fn payload_seed(&self, key: BlockKey, position: Position) -> u32 {
        if self.io.geometry.has_slots() {
            return self.cells.payload_seed(key, position);
        }
        self.regions.payload_seed(self.region_of(position), key, position)
    }

    /// Gives this log a bug.
    #[doc(hidden)]
    pub fn sabotage(&mut self, sabotage: Sabotage) {
        self.io.sabotage = sabotage;
    }

    /// The geometry in force (after a recovery: as stored).
    pub fn geometry(&self) -> &Geometry {
        &self.io.geometry
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Why the log has latched, if it has.
    pub fn error(&self) -> Option<IoError> {
        self.error
    }

    /// Whether records wait to be written because there is no room.
    pub fn is_out_of_room(&self) -> bool {
        let Some(front) = self.queue.items.front() else { return false };
        if self.io.geometry.has_slots() {
            return self.cells.free.is_empty() || !self.regions.leaves_last();
        }
        !self.regions.has_room(1 + self.io.geometry.payload_pages(front.valid))
    }

    /// Whether the log is so full that a new record may wait until another leaves.
    pub fn is_short(&self) -> bool {
        if self.io.geometry.has_slots() {
            return self.cells.free.len() <= self.queue.items.len() || !self.regions.leaves_last();
        }
        !self.regions.has_room(self.io.geometry.batch_pages_max)
    }

    /// The numbers of the regions in use, oldest first.
    pub fn regions_in_use(&self) -> impl Iterator<Item = u32> + '_ {
        let uses = self.regions.tail.until(self.regions.end());
        uses.map(|sequence| self.regions.number(sequence))
    }

    /// Whether recovery has returned everything that it found, and the log is about to begin its
    /// epoch: nothing was written yet, or the superblock that says so is in flight.
    pub fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    /// The results of recovery, until they are reported.
    pub(crate) fn opening(&self) -> Option<&RecoveryReport> {
        match &self.phase {
            Phase::Opening { report, .. } => Some(report),
            _ => None,
        }
    }

    /// Progress of recovery, while it runs.
    pub fn recovering(&self) -> Option<Recovering> {
        self.recovery.as_ref().map(|r| r.progress())
    }

    /// Counters.
    pub fn stats(&self) -> &LogStats {
        &self.io.stats
    }
}

impl Log {
    /// Why the log takes no new records, if so.
    ///
    /// # Panics
    /// Before `Ready`.
    pub(crate) fn refusal(&self) -> Option<IoError> {
        match self.phase {
            Phase::New | Phase::Recovering | Phase::Opening { .. } => {
                panic!("the log is not ready yet")
            }
            Phase::Running => self.error,
            _ => Some(self.error.unwrap_or(IoError::Shutdown)),
        }
    }

    fn pump_activity(&mut self) -> bool {
        let marks = self.error.is_none() && matches!(self.phase, Phase::Running);
        let (queue, superblock) = (&mut self.queue, &mut self.superblock);
        marks && self.activity.pump(&self.commit, queue, superblock, &mut self.io)
    }

    /// Does all the work that is possible now.
    ///
    /// Each step does only what its own conditions allow, and the steps are repeated until none makes
    /// progress. So every order ends with nothing left to do, and is correct. The order decides only
    /// what goes out together, and which effect goes out first:
    ///
    /// | step | comes before | because |
    /// | --- | --- | --- |
    /// | activity | batches, superblock | its tombstones go into the batch that is formed now, and its extents into the update that begins now |
    /// | cells | batches | a record takes the cell that has just become free |
    /// | directory | batches | the directory of a full region is written before more is |
    /// | batches | regions | a batch may take the last free region, so that another is requested |
    /// | regions | superblock | the update that begins now has the new tail; in the other order each tail costs an update of its own |
    /// | superblock | sync | the update goes to the device before a sync that does not cover it |
    /// | remains | | it has something to do only when the other steps, for the error, do not |
    /// | phase | | a start or stop goes on when the other steps have nothing left |
    pub(crate) fn pump(&mut self) {
        loop {
            let progress = self.pump_activity()
                | self.pump_cells()
                | self.pump_directory()
                | self.pump_batches()
                | self.pump_regions()
                | self.pump_superblock()
                | self.pump_sync()
                | self.pump_remains()
                | self.pump_phase();
            if !progress {
                break;
            }
        }
        self.io.stats.regions_total = self.io.geometry.regions;
        self.io.stats.regions_free = self.regions.free();
        self.io.stats.cells_total = self.io.geometry.slots;
    }

    /// Latches: nothing is written from now on, and all waiting operations fail.
    pub(crate) fn latch(&mut self, error: IoError) {
        if self.error.is_some() {
            return;
        }
        self.error = Some(error);
        self.fail_queue(error);
        self.fail_notes(error);
        self.commit.fail(error, &mut self.io);
        self.superblock.fail(error, &mut self.io);
        self.activity.fail(error, &mut self.io);
        match core::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Opening { .. } => {
                self.io.tell(Event::Failed(crate::types::LogError::Io(error)));
                if self.stop_wanted {
                    self.io.tell(Event::Stopped { result: Err(error) });
                }
            }
            Phase::Draining | Phase::Flushing { .. } | Phase::Closing { .. } => {
                self.io.tell(Event::Stopped { result: Err(error) });
            }
            Phase::Sealing { ticket, .. } => {
                self.io.tell(Event::Bound { ticket, result: Err(error) });
            }
            other => self.phase = other,
        }
    }

    /// Which operations wait for what, to report a run that hangs.
    pub fn describe(&self) -> String {
        format!(
            "\nlog: {:?}, {} waiting to be written, durable to {} of {}, {}",
            self.phase,
            self.queue.items.len(),
            self.commit.durable_batch(),
            self.commit.complete_batch(),
            self.cells
        )
    }

    /// The caller cannot continue with this log (an unreadable dirty record would be lost with its
    /// region): the log latches as failed, as after a failed write.
    pub fn give_up(&mut self, error: IoError) {
        self.latch(error);
    }
}
