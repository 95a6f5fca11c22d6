//! How the log starts and stops: formatting, recovery, the first superblock of an epoch, the clean
//! stop.

use super::Log;
use crate::binding::Binding;
use crate::events::{AnswerKind, Event, StartEvent};
use crate::identity::TierId;
use crate::operation::LogOperation;
use crate::recovery::{End, HowToRecover, Recovery, Restored};
use crate::sequence::{AppendSerial, RegionSequence, SuperblockVersion};
use crate::stamp::judge;
use crate::types::{LogError, OnDamage, RecoveryReport};
use forebay_effect::{IoError, Outcome};

/// The state of the log.
#[derive(Debug)]
pub(super) enum LogPhase {
    /// Not started.
    New,
    /// Reading the device.
    Recovering,
    /// The superblock of this epoch, in this version, is being made durable.
    Opening { version: SuperblockVersion, report: Box<RecoveryReport> },
    /// Accepting appends.
    Running,
    /// Waiting until everything appended is complete.
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

impl Log {
    /// Sets up an empty log.
    pub(super) fn format(&mut self, uuid: TierId, bindings: Vec<Binding>) {
        self.io.uuid = Some(uuid);
        self.placement.cells.begin(uuid, 0..self.io.geometry.slots);
        self.superblock.format(uuid, bindings, &self.io);
        let bindings = self.superblock.bindings().to_vec();
        let report =
            RecoveryReport { uuid: Some(uuid), clean: true, bindings, ..RecoveryReport::default() };
        self.open(Box::new(report));
    }

    /// Makes the superblock of the new epoch durable in both copies; then the log is ready.
    pub(super) fn open(&mut self, mut report: Box<RecoveryReport>) {
        self.io.epoch = self.superblock.contents().epoch;
        report.epoch = self.io.epoch;
        let version = self.superblock.settle();
        self.phase = LogPhase::Opening { version, report };
    }

    /// The first step of a clean stop.
    pub(super) fn begin_stop(&mut self) {
        self.placement.queue.close();
        self.phase = LogPhase::Draining;
        self.activity.stop(&mut self.io);
    }

    pub(super) fn begin_recovery(&mut self, how: HowToRecover) {
        self.phase = LogPhase::Recovering;
        let check = how.check;
        let mut r = Box::new(Recovery::new(
            how,
            self.io.directory_buffer() + 1,
            &self.io.geometry,
            &self.options,
        ));
        let (_, mut log) = self.recovering_parts();
        if check {
            r.read_superblocks(&mut log);
        } else {
            log.io.sync(LogOperation::RecoverySync);
        }
        self.recovery = Some(r);
    }

    /// Continues when the sync before the first read has ended.
    pub(super) fn recovery_synced(&mut self, result: Outcome) {
        let (Some(recovery), mut log) = self.recovering_parts() else {
            return; // The start was abandoned.
        };
        match result {
            Ok(()) => recovery.read_superblocks(&mut log),
            Err(error) => recovery.refuse(LogError::Io(error)),
        }
        self.end_recovery();
    }

    /// Continues when a read of recovery has ended.
    pub(super) fn recovery_read(&mut self, buffer: usize, result: Outcome) {
        let (Some(recovery), mut log) = self.recovering_parts() else { return };
        recovery.read_done(buffer, result, &mut log);
        self.end_recovery();
    }

    /// The recovery in progress, and the parts of the log that it restores.
    fn recovering_parts(&mut self) -> (Option<&mut Recovery>, Restored<'_>) {
        let log = Restored {
            options: &self.options,
            io: &mut self.io,
            regions: &mut self.placement.regions,
            cells: &mut self.placement.cells,
            activity: &mut self.activity,
        };
        (self.recovery.as_deref_mut(), log)
    }

    /// Continues if recovery has ended.
    fn end_recovery(&mut self) {
        match self.recovery.as_mut().and_then(|r| r.end.take()) {
            None => {}
            Some(End::Refused(error)) => self.refuse(error),
            Some(End::Found) => {
                let mut r = self.recovery.take().expect("it has just ended");
                self.finish_recovery(&mut r);
            }
        }
    }

    /// Fails the start; nothing was written.
    fn refuse(&mut self, error: LogError) {
        self.recovery = None;
        self.phase = LogPhase::Closed;
        self.io.tell(Event::Start(StartEvent::Failed(error)));
    }

    /// Ends the log before batch `r.at.batch`, and makes this decision durable.
    fn finish_recovery(&mut self, r: &mut Recovery) {
        let end = r.at.batch.previous();
        let superblock = r.superblock.take().expect("a recovery begins with the superblock");
        let tail = superblock.tail_region;
        let head = r.last_region.map_or(tail, RegionSequence::next);
        r.report.epoch = superblock.epoch;
        r.report.bindings.clone_from(&superblock.bindings);
        r.report.regions_used = (head - tail) as u32;
        r.report.newest_batch = end;
        let mut report = core::mem::take(&mut r.report);
        self.io.uuid = Some(superblock.uuid);
        self.superblock.load(superblock);
        if r.how.check {
            self.phase = LogPhase::Closed;
            self.io.tell(Event::Start(StartEvent::Ready(report)));
            return;
        }
        if !report.damage.is_by_name() && self.options.on_damage == OnDamage::Refuse {
            return self.refuse(LogError::Damaged(report));
        }
        let contents = self.superblock.contents();
        let judged = judge(&r.how.stores, contents, r.how.drop_clean, end, &mut report);
        if let Err(error) = judged {
            return self.refuse(error);
        }
        r.how.changed.extend(report.outdated.iter().map(|o| o.0));
        let contents = self.superblock.contents_mut();
        self.placement.regions.add_unread(tail..head, contents.tail_batch..=end);
        self.placement.batches.continue_at(end);
        // What was read is durable: it was synced before. In the slots layout the commit must know
        // this, because superseded payloads may be overwritten from now on.
        let slots = self.io.geometry.has_slots();
        self.commit.continue_at(end, if slots { end } else { r.known.batch.min(end) });
        r.begin_epoch(contents, &report, end, &self.io.geometry);
        self.superblock.continue_after(r.copies.newest());
        self.open(report);
    }

    /// Continues a start or a stop once its next step is possible.
    pub(super) fn pump_phase(&mut self) -> bool {
        match &mut self.phase {
            LogPhase::Opening { version, report } if self.superblock.is_settled(*version) => {
                let report = core::mem::take(report);
                self.io.tell(Event::Start(StartEvent::Ready(report)));
                self.phase = LogPhase::Running;
                if self.stop_wanted {
                    self.begin_stop();
                }
                true
            }
            LogPhase::Draining
                if self.placement.queue.is_empty()
                    && self.placement.batches.is_idle()
                    && !self.directories.is_writing() =>
            {
                // Nothing waits for a cell any more. Without its unmapping, a record stays and is
                // still correct; without its move, a mapping stays where it is.
                let p = &mut self.placement;
                p.cells.fail(IoError::Shutdown, &mut self.io);
                let pages = p.regions.pages_to_spare();
                let remove = self.activity.append_last_tombstones(pages, &mut p.queue, &self.io);
                let serial = p.queue.last_serial;
                p.queue.close();
                self.phase = LogPhase::Flushing { serial, remove };
                true
            }
            &mut LogPhase::Flushing { serial, remove }
                if self.commit.durable_serial() >= serial =>
            {
                if remove {
                    self.activity.remove_idle();
                }
                self.superblock.contents_mut().clean = true;
                let version = self.superblock.settle();
                self.phase = LogPhase::Closing { version };
                true
            }
            LogPhase::Closing { version }
                if self.superblock.is_settled(*version) && !self.directories.is_writing() =>
            {
                self.phase = LogPhase::Closed;
                self.io.tell(Event::Stopped { result: Ok(()) });
                true
            }
            LogPhase::Sealing { version, ticket } if self.superblock.is_settled(*version) => {
                let ticket = *ticket;
                self.phase = LogPhase::Closed;
                self.io.tell(Event::Answer { ticket, kind: AnswerKind::Bound, result: Ok(()) });
                true
            }
            _ => false,
        }
    }
}
