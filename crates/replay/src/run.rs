//! A run: a submitter sends its requests in order, never has more of them in flight than the queue
//! depth, and drops none.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_block::{Flags, Nanos, Op};
use forebay_effect::IoError;
use forebay_engine::BufferPool;

use crate::clock::Clock;
use crate::content::Content;
use crate::error::ReplayError;
use crate::ledger::{Ledger, VERSION_MAX};
use crate::placement::{Adjusted, Placed, Placement};
use crate::record::{Intervals, Recorder};
use crate::source::{Next, Source};
use crate::target::{Done, Io, Limits, Target};
use crate::watch::{ReadCheck, Watch};

/// The longest sleep; a request to stop is noticed within this time.
const SLICE_NS: u64 = 50_000_000;
/// How long to wait before trying again when the reader has no request ready.
const READER_NS: u64 = 200_000;
/// Maximum total size of the buffers that are kept for reuse.
const POOL_BYTES_MAX: usize = 64 << 20;
/// Completions between progress reports in a closed loop.
const PROGRESS_STEP: u64 = 512;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// At the workload's own times, divided by `rate`.
    Timed {
        /// Speed relative to the workload; 2 is twice as fast.
        rate: f64,
    },
    /// As soon as the queue has room: a closed loop.
    AsFastAsPossible,
}

/// How requests are sent in a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunOptions {
    /// When requests are sent.
    pub pace: Pace,
    /// Maximum number of requests in flight; at least 1.
    pub queue_depth: u32,
    /// Skip idle times longer than this, in which no request is in flight and none is due.
    pub skip_idle: Option<Nanos>,
    /// Stop after this time; `None` means to run to the end of the workload.
    pub duration: Option<Nanos>,
    /// Seed of the data to write.
    pub seed: u64,
    /// Record what was written where, so that it can be verified.
    pub track: bool,
    /// How the run is divided into intervals for tables and charts.
    pub intervals: Intervals,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            pace: Pace::Timed { rate: 1.0 },
            queue_depth: 64,
            skip_idle: None,
            duration: None,
            seed: 1,
            track: false,
            intervals: Intervals::Auto,
        }
    }
}

/// How a run communicates with its caller.
#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// The caller sets this flag to stop the run. The run then sends no more requests and waits for
    /// those in flight.
    pub stop: &'a AtomicBool,
    /// Called from time to time with the number of requests completed since the last call.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// Why a run ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// There were no more requests.
    Complete,
    /// The [`RunOptions::duration`] had passed.
    TimeUp,
    /// The caller set [`Hooks::stop`].
    Stopped,
    /// Requests could not be read, or the target became unusable.
    Failed(ReplayError),
}

/// The outcome of one submitter.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub recorder: Recorder,
    pub end: End,
    pub adjusted: Adjusted,
    pub ledger: Option<Ledger>,
    /// The check of the data that reads returned, as far as the expected data is known.
    pub reads: ReadCheck,
    /// Idle time that was skipped.
    pub skipped: Nanos,
    /// How often the reader had no request ready.
    pub starved: u64,
    /// Requests whose outcome is unknown because the target was lost.
    pub lost: u32,
    /// When the submitter began and ended, by the run's clock.
    pub span: (Nanos, Nanos),
}

/// Runs one submitter to its end.
pub(crate) fn run_job<T, C, S>(
    target: &mut T,
    clock: &C,
    source: &mut S,
    placement: Placement,
    options: &RunOptions,
    hooks: Hooks<'_>,
) -> JobOutcome
where
    T: Target + ?Sized,
    C: Clock,
    S: Source + ?Sized,
{
    let start = clock.now();
    let limits = target.limits();
    let mut job = Job {
        limits,
        target,
        clock,
        placement,
        options,
        hooks,
        depth: options.queue_depth.clamp(1, limits.depth_max.max(1)),
        start,
        now: start,
        skipped: 0,
        base: None,
        pending: 0,
        slots: Vec::new(),
        unsent: Vec::new(),
        free: Vec::new(),
        done: Vec::new(),
        pool: BufferPool::new(POOL_BYTES_MAX),
        content: Content::new(options.seed),
        version: 0,
        ledger: options.track.then(Ledger::default),
        watches: Vec::new(),
        reads: ReadCheck::default(),
        recorder: Recorder::new(options.intervals),
        told: 0,
        starved: 0,
    };
    let end = match job.send_all(source).and_then(|end| job.drain().map(|()| end)) {
        Ok(end) => end,
        Err(error) => End::Failed(error),
    };
    job.tell_progress(1);
    JobOutcome {
        end,
        adjusted: job.placement.adjusted,
        ledger: job.ledger,
        reads: job.reads,
        skipped: Nanos(job.skipped),
        starved: job.starved,
        lost: job.pending,
        span: (start, clock.now()),
        recorder: job.recorder,
    }
}

struct Job<'a, T: ?Sized, C> {
    target: &'a mut T,
    clock: &'a C,
    limits: Limits,
    placement: Placement,
    options: &'a RunOptions,
    hooks: Hooks<'a>,
    depth: u32,
    start: Nanos,
    /// The last reading of the clock.
    now: Nanos,
    /// Nanoseconds of idle time skipped so far; requests are due earlier by this time.
    skipped: u64,
    /// Time of the first request in the workload.
    base: Option<Nanos>,
    pending: u32,
    slots: Vec<Slot>,
    /// Slots of the requests that were handed to the target but may still be held back there.
    unsent: Vec<u32>,
    free: Vec<u32>,
    done: Vec<Done>,
    pool: BufferPool,
    content: Content,
    /// Version (number) of the last write; after `VERSION_MAX`, numbers start again at 1.
    version: u32,
    ledger: Option<Ledger>,
    /// What reads may return, by slot; empty without a ledger.
    watches: Vec<Watch>,
    reads: ReadCheck,
    recorder: Recorder,
    /// Completions reported to `hooks.progress` so far.
    told: u64,
    starved: u64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    op: Op,
    bytes: u64,
    due: Nanos,
    sent: Nanos,
    /// Pieces that have not completed yet.
    parts: u32,
    result: Result<(), IoError>,
}

/// Whether the run continues.
enum Step {
    Go,
    End(End),
}

impl<T: Target + ?Sized, C: Clock> Job<'_, T, C> {
    fn send_all<S: Source + ?Sized>(&mut self, source: &mut S) -> Result<End, ReplayError> {
        loop {
            let request = match source.next() {
                Next::Request(request) => request,
                Next::End => return Ok(End::Complete),
                Next::Failed(error) => return Ok(End::Failed(error.into())),
                Next::NotYet => {
                    self.starved += 1;
                    self.wait(Nanos(self.now.0 + READER_NS))?;
                    if let Step::End(end) = self.go_on() {
                        return Ok(end);
                    }
                    continue;
                }
            };
            let Some(placed) = self.placement.place(&request) else {
                match self.go_on() {
                    Step::Go => continue,
                    Step::End(end) => return Ok(end),
                }
            };
            if let Step::End(end) = self.wait_until_due(request.time)? {
                return Ok(end);
            }
            if self.pending >= self.depth {
                self.recorder.found_full += 1;
                while self.pending >= self.depth {
                    self.wait(Nanos(u64::MAX))?;
                    if let Step::End(end) = self.go_on() {
                        return Ok(end);
                    }
                }
            }
            self.send(placed, request.time)?;
        }
    }

    /// Waits until a request with the time `time` in the workload is due. Collects completions
    /// meanwhile.
    fn wait_until_due(&mut self, time: Nanos) -> Result<Step, ReplayError> {
        let Pace::Timed { .. } = self.options.pace else {
            return Ok(if self.pending >= self.depth { Step::Go } else { self.go_on() });
        };
        loop {
            let (due, now) = (self.due(time), self.tick());
            if let Step::End(end) = self.go_on() {
                return Ok(Step::End(end));
            }
            if now >= due {
                return Ok(Step::Go);
            }
            let gap = due.0 - now.0;
            if self.pending == 0 && self.options.skip_idle.is_some_and(|idle| gap > idle.0) {
                self.skipped += gap;
                return Ok(Step::Go);
            }
            self.wait(due)?;
        }
    }

    /// When a request with the time `time` in the workload is due, by the run's clock.
    fn due(&mut self, time: Nanos) -> Nanos {
        let Pace::Timed { rate } = self.options.pace else { return self.now };
        let base = *self.base.get_or_insert(time);
        let since = time.0.saturating_sub(base.0);
        let scaled = if rate == 1.0 { since } else { (since as f64 / rate) as u64 };
        Nanos((self.start.0 + scaled).saturating_sub(self.skipped))
    }

    /// Reads the clock into `now`.
    fn tick(&mut self) -> Nanos {
        self.now = self.clock.now();
        self.now
    }

    #[inline]
    fn go_on(&self) -> Step {
        if self.hooks.stop.load(Ordering::Relaxed) {
            return Step::End(End::Stopped);
        }
        let over = |duration: Nanos| self.now.saturating_sub(self.start) >= duration;
        if self.options.duration.is_some_and(over) { Step::End(End::TimeUp) } else { Step::Go }
    }

    fn send(&mut self, placed: Placed, time: Nanos) -> Result<(), ReplayError> {
        let Placed { volume, op, flags, offset, length, zeroes } = placed;
        let tag = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                op,
                bytes: 0,
                due: Nanos(0),
                sent: Nanos(0),
                parts: 0,
                result: Ok(()),
            });
            self.slots.len() as u32 - 1
        });
        let modifies = op.modifies();
        if op == Op::Write && !zeroes {
            // After four billion writes the numbers start again, because the ledger has no more.
            self.version = if self.version >= VERSION_MAX { 1 } else { self.version + 1 };
        }
        if let Some(ledger) = &mut self.ledger {
            self.watches.resize_with(self.slots.len(), Watch::default);
            if modifies {
                let as_op = if zeroes { Op::WriteZeroes } else { op };
                ledger.begin(tag.into(), as_op, self.version, volume, (offset, length));
            } else if op == Op::Read {
                self.watches[tag as usize].begin(ledger, volume, offset, length);
            }
        }
        let piece = match op {
            Op::Read | Op::Write => self.limits.transfer_bytes_max,
            Op::Trim | Op::WriteZeroes => self.limits.zero_bytes_max,
            Op::Flush => u64::MAX,
        };
        let parts = length.div_ceil(piece).max(1) as u32;
        let first = self.prepare(tag, volume, op, flags, (offset, length.min(piece)), zeroes);
        let (due, sent) = (self.due(time), self.now);
        self.slots[tag as usize] = Slot { op, bytes: length, due, sent, parts, result: Ok(()) };
        self.unsent.push(tag);
        self.pending += 1;
        self.recorder.sent += 1;
        self.recorder.pending_max = self.recorder.pending_max.max(self.pending);
        self.target.submit(first, &mut self.done)?;
        for part in 1..u64::from(parts) {
            let at = part * piece;
            let range = (offset + at, (length - at).min(piece));
            let io = self.prepare(tag, volume, op, flags, range, zeroes);
            self.target.submit(io, &mut self.done)?;
        }
        if !self.done.is_empty() {
            self.tick();
            self.stamp();
            self.collect();
        }
        Ok(())
    }

    /// Records the send time and the lateness of all unsent requests, just before the target sends
    /// them. One clock reading serves for all, because targets hold requests back until they are
    /// asked to wait.
    fn stamp(&mut self) {
        let timed = self.options.pace != Pace::AsFastAsPossible;
        for tag in self.unsent.drain(..) {
            let slot = &mut self.slots[tag as usize];
            slot.sent = self.now;
            if timed {
                self.recorder.lateness.record(self.now.saturating_sub(slot.due));
            }
        }
    }

    /// Builds a piece of a request: with a buffer for a read or write, and with the data for a
    /// write.
    fn prepare(
        &mut self,
        tag: u32,
        volume: u32,
        op: Op,
        flags: Flags,
        (offset, length): (u64, u64),
        zeroes: bool,
    ) -> Io {
        let buffer = matches!(op, Op::Read | Op::Write).then(|| {
            let mut buffer = self.pool.take(length as usize);
            if op == Op::Write {
                let data = &mut buffer[..length as usize];
                match zeroes {
                    true => data.fill(0),
                    false => self.content.fill(volume, offset, self.version, data),
                }
            }
            buffer
        });
        Io { tag: tag.into(), volume, op, flags, offset, length, buffer }
    }

    /// Sends held-back requests and waits for a completion, at most until `until` and at most
    /// `SLICE_NS`.
    fn wait(&mut self, until: Nanos) -> Result<(), ReplayError> {
        let slice = Nanos(self.tick().0 + SLICE_NS);
        self.stamp();
        let until = until.min(slice);
        let result = self.target.wait(until, &mut self.done);
        self.collect();
        // At the workload's own times, `PROGRESS_STEP` requests may take a long time.
        let timed = self.options.pace != Pace::AsFastAsPossible;
        self.tell_progress(if timed { 1 } else { PROGRESS_STEP });
        result
    }

    /// Waits for all requests in flight.
    fn drain(&mut self) -> Result<(), ReplayError> {
        while self.pending > 0 {
            self.wait(Nanos(u64::MAX))?;
        }
        Ok(())
    }

    fn collect(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let now = self.tick();
        let timed = self.options.pace != Pace::AsFastAsPossible;
        for Done { io, result } in self.done.drain(..) {
            if let Some(buffer) = io.buffer {
                if let Some(ledger) = self.ledger.as_ref().filter(|_| io.op == Op::Read)
                    && result.is_ok()
                {
                    let bytes = &buffer[..io.length as usize];
                    let watch = &self.watches[io.tag as usize];
                    watch.end(ledger, &self.content, io.offset, bytes, &mut self.reads);
                }
                self.pool.give(buffer);
            }
            let slot = &mut self.slots[io.tag as usize];
            slot.parts -= 1;
            if slot.result.is_ok() {
                slot.result = result;
            }
            if slot.parts > 0 {
                continue;
            }
            let Slot { op, bytes, due, sent, result, .. } = *slot;
            let at = now.saturating_sub(self.start);
            self.recorder.complete(at, op, bytes, now.saturating_sub(sent), result);
            if timed {
                self.recorder.response.record(now.saturating_sub(due));
            }
            if let Some(ledger) = self.ledger.as_mut().filter(|_| op.modifies()) {
                ledger.end(io.tag, result.is_ok());
            }
            self.pending -= 1;
            self.free.push(io.tag as u32);
        }
    }

    fn tell_progress(&mut self, step: u64) {
        let completed = self.recorder.completed();
        if completed - self.told >= step {
            (self.hooks.progress)(completed - self.told);
            self.told = completed;
        }
    }
}

#[cfg(test)]
mod tests;
