//! The driver's calls, and the pump: the order in which the parts of the log take their turns, and
//! which of them learn that an operation has ended.

use super::{Log, LogPhase};
use crate::commit::Described;
use crate::events::{AnswerKind, Event, MarkAnswer, RecordEvent, StartEvent};
use crate::io::BATCH_BUFFERS;
use crate::operation::LogOperation;
use crate::types::LogError;
use forebay_effect::{Effect, IoError, MetaBuffer, Outcome, Segment};

/// The driver's calls.
impl Log {
    /// Takes the answer to an `Effect::Checksum`.
    pub fn handle_checksum(&mut self, index: u32, value: u32) {
        let LogOperation::Checksum { batch, entry } = LogOperation::of(index) else {
            panic!("{:?} has no checksum", LogOperation::of(index));
        };
        let (batch, entry) = (usize::from(batch), usize::from(entry));
        if self.placement.batches.checksum_done(batch, entry, value) {
            self.write_batch(batch);
            self.pump();
        }
    }

    /// Takes the end of a device effect. After a read, the bytes must be in the metadata buffer.
    ///
    /// # Panics
    /// If `index` belongs to no device effect of this log.
    pub fn handle_completion(&mut self, index: u32, result: Outcome) {
        match LogOperation::of(index) {
            LogOperation::Batch { batch } | LogOperation::Cells { batch, .. } => {
                self.batch_written(usize::from(batch), result);
            }
            LogOperation::Checksum { .. } => panic!("a checksum is not a device operation"),
            LogOperation::Sync => self.sync_done(result),
            LogOperation::Superblock => self.superblock_written(result),
            LogOperation::Directory => self.directory_written(result),
            LogOperation::RecoveryRead { buffer } => {
                self.recovery_read(usize::from(buffer), result)
            }
            LogOperation::RecoverySync => self.recovery_synced(result),
            LogOperation::RemainsSuperblock | LogOperation::RemainsSync => {
                let (commit, superblock) = (&mut self.commit, &mut self.superblock);
                self.remains.done(result, commit, superblock, &mut self.io);
            }
        }
        self.pump();
    }

    /// Whether there are effects.
    #[inline]
    pub fn has_effects(&self) -> bool {
        self.io.has_effects() || self.placement.batches.has_unsummed()
    }

    /// The next effect; its memory operands replace what `segments` holds.
    #[inline]
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        if !self.io.has_effects()
            && let Some(batch) = self.placement.batches.next_unsummed()
        {
            self.write_batch(batch);
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
            let freed = self.placement.cells.hear(event);
            if freed && !self.placement.queue.is_empty() {
                self.pump();
            }
        }
        if let Some(Event::Record(RecordEvent::AppendRefused { ticket })) = event {
            self.placement.queue.refusal_heard(ticket);
        }
        if let Some(Event::Mark { answer: MarkAnswer::Active(Ok(())), .. }) = event {
            self.activity.grant_taken();
            self.pump();
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
        if buffer == self.io.directory_buffer() {
            self.directories.encode(&self.placement.regions, &mut self.io);
        } else if let Some(index) = buffer.checked_sub(BATCH_BUFFERS) {
            self.placement.batches.encode_headers(index, &mut self.io);
        }
        &mut self.io.buffers[buffer]
    }
}

/// The turns of the parts.
impl Log {
    /// Does all the work that is possible now.
    ///
    /// Each step does only what its own conditions allow, and the steps are repeated until none
    /// makes progress. So any order ends with nothing left to do, and is correct. The order only
    /// decides what is written together, and which effect is issued first:
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
    /// | phase | | a start or stop continues when the other steps have nothing left |
    pub(super) fn pump(&mut self) {
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
        self.io.stats.regions_free = self.placement.regions.free();
        self.io.stats.cells_total = self.io.geometry.slots;
    }

    fn pump_activity(&mut self) -> bool {
        let marks = self.error.is_none() && matches!(self.phase, LogPhase::Running);
        let (queue, superblock) = (&mut self.placement.queue, &mut self.superblock);
        marks && self.activity.pump(&self.commit, queue, superblock, &mut self.io)
    }

    fn pump_cells(&mut self) -> bool {
        let wanted = self.error.is_none() && self.io.geometry.has_slots();
        wanted && self.placement.cells.pump(&self.commit, &mut self.io)
    }

    fn pump_directory(&mut self) -> bool {
        let regions = &mut self.placement.regions;
        self.error.is_none() && self.directories.pump(regions, &self.commit, &mut self.io)
    }

    pub(super) fn pump_batches(&mut self) -> bool {
        let stops = matches!(self.phase, LogPhase::Flushing { .. });
        let (commit, superblock) = (&self.commit, &mut self.superblock);
        self.error.is_none() && self.placement.pump(stops, commit, superblock, &mut self.io)
    }

    fn pump_regions(&mut self) -> bool {
        let running = matches!(self.phase, LogPhase::Running);
        let draining = matches!(self.phase, LogPhase::Draining);
        if self.error.is_some() || !(running || draining) {
            return false;
        }
        let wanted = running || !self.placement.queue.is_empty();
        let idle = self.placement.batches.is_idle();
        let (commit, superblock) = (&self.commit, &mut self.superblock);
        self.placement.regions.pump(wanted, idle, commit, superblock, &mut self.io)
    }

    fn pump_superblock(&mut self) -> bool {
        let (placement, commit, activity) = (&self.placement, &self.commit, &self.activity);
        let described = Described { placement, commit, activity };
        self.error.is_none() && self.superblock.pump(&described, &mut self.io)
    }

    /// Issues a sync if one would help a waiter and none is in flight.
    fn pump_sync(&mut self) -> bool {
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
            || self.placement.regions.wants_sync(c)
            || self.placement.cells.wants_sync(c)
            || self.activity.wants_sync(c)
            || matches!(self.phase, LogPhase::Flushing { serial, .. } if c.would_cover(serial))
    }

    fn pump_remains(&mut self) -> bool {
        let (placement, commit, activity) = (&self.placement, &self.commit, &self.activity);
        let described = Described { placement, commit, activity };
        self.remains.pump(&mut self.superblock, &described, &mut self.io)
    }

    /// Issues the write of a batch whose checksums are known.
    fn write_batch(&mut self, batch: usize) {
        let p = &mut self.placement;
        if self.error.is_some() {
            p.batches.abandon(batch);
            return p.resolve(&mut self.directories, &mut self.commit, &mut self.io);
        }
        p.batches.write(batch, &p.cells, &self.commit, &self.superblock, &mut self.io);
    }

    /// Called when a write of a batch has ended.
    fn batch_written(&mut self, batch: usize, result: Outcome) {
        self.placement.batches.written(batch, result);
        if let Err(error) = result {
            self.latch(error);
        }
        self.placement.resolve(&mut self.directories, &mut self.commit, &mut self.io);
    }

    /// Called when the write of a directory has ended.
    fn directory_written(&mut self, result: Outcome) {
        self.directories.written(result, &mut self.placement.regions);
        if let Err(error) = result {
            self.latch(error);
        }
    }

    /// Called when a copy of the superblock was written, or a former one erased.
    fn superblock_written(&mut self, result: Outcome) {
        self.superblock.write_ended();
        match result {
            Ok(()) => self.superblock.written(&mut self.io),
            Err(error) => self.latch(error),
        }
    }

    /// Called when a sync has ended.
    fn sync_done(&mut self, result: Outcome) {
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

    /// Called when the update is durable in its first copy: does what depends on this, and writes
    /// the second copy.
    fn superblock_durable(&mut self) {
        let (version, tail) = self.superblock.first_copy_durable(&mut self.io);
        self.placement.regions.free_until(tail, &mut self.io);
        self.superblock.answer(&mut self.io);
        self.activity.superblock_durable(version, &mut self.io);
        self.superblock.write_second(&mut self.io);
    }

    /// Latches: nothing is written from now on, and all waiting operations fail.
    pub(super) fn latch(&mut self, error: IoError) {
        if self.error.is_some() {
            return;
        }
        self.error = Some(error);
        self.placement.fail(error, &mut self.io);
        self.commit.fail(error, &mut self.io);
        self.superblock.fail(error, &mut self.io);
        self.activity.fail(error, &mut self.io);
        match core::mem::replace(&mut self.phase, LogPhase::Closed) {
            LogPhase::Opening { .. } => {
                self.io.tell(Event::Start(StartEvent::Failed(LogError::Io(error))));
                if self.stop_wanted {
                    self.io.tell(Event::Stopped { result: Err(error) });
                }
            }
            LogPhase::Draining | LogPhase::Flushing { .. } | LogPhase::Closing { .. } => {
                self.io.tell(Event::Stopped { result: Err(error) });
            }
            LogPhase::Sealing { ticket, .. } => {
                self.io.tell(Event::Answer { ticket, kind: AnswerKind::Bound, result: Err(error) });
            }
            other => self.phase = other,
        }
    }
}
