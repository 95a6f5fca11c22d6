//! The run: hands requests to the cache, executes the cache's effects, and advances the clock.

mod checks;
mod late;
mod outcome;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{AdmissionKind, Cache, Notice, Open, VolumeConfig};
use forebay_effect::{Effect, Outcome, Place, RequestId, Segment};
use forebay_flash::{Binding, StoreId, TierId};
use forebay_results::LatencyRecorder;

use crate::calls::timed;
use crate::error::SimulateError;
use crate::flush::FlushInserter;
use crate::options::{AssumeFlush, Options, Pacing};
use crate::outage::{self, Outage};
use crate::result::{AddedFlushes, Capacity, SimulationResult};
use crate::scenario::{Scenario, SimulatedVolume, volume_bytes_limit};
use crate::series::Series;
use crate::timing::{FlashDevice, Timing};
use late::{LATE, Late};

/// How many requests the simulation looks up ahead of the current one.
const LOOK_AHEAD: usize = 16;
/// Maximum length in bytes of the description of a cache that has stopped answering.
const STATE_BYTES_MAX: usize = 2000;

/// Simulates `scenario` under `requests`.
///
/// # Errors
/// If the options make no sense, a request is for a volume or an offset that does not exist, or
/// the cache stops answering (which would be a bug in the cache).
pub fn simulate(
    scenario: &Scenario,
    requests: impl IntoIterator<Item = Request>,
    options: &Options,
) -> Result<SimulationResult, SimulateError> {
    let mut simulation = Simulation::new(scenario, options)?;
    simulation.add_all(requests)?;
    simulation.finish()
}

/// A simulation that is fed request by request, in order of time.
pub struct Simulation {
    cache: Cache,
    timing: Timing,
    /// The simulated time at which the processor finishes the work it has been given so far.
    now: Nanos,
    /// When the run began, after the tiers were set up.
    epoch: Nanos,
    /// Time in the trace at which the run begins: the time of the first request.
    trace_start: Option<Nanos>,
    memory: crate::scenario::Memory,
    pacing: Pacing,
    flushes: FlushInserter,
    assume_flush: AssumeFlush,
    /// Requests in flight, by slot number; `free` lists the slots not in use.
    in_flight: Vec<InFlight>,
    free: Vec<u32>,
    requests_taken: u64,
    requests_answered: u64,
    last_answer: Nanos,
    volumes: Vec<VolumeTally>,
    /// Exclusive upper bound for the size of a volume of this cache.
    volume_bytes_limit: u64,
    series: Series,
    keeps_dirty_data: bool,
    dirty_blocks_max: u64,
    segments: Vec<Segment>,
    assumptions: Vec<String>,
    assumed_page_bytes: Option<u32>,
    capacity: Capacity,
    /// By volume: requests that have arrived but that the cache has no room for yet. A volume with
    /// a slow store does not delay other volumes.
    waiting: Vec<VecDeque<(Request, InFlight)>>,
    waiting_count: usize,
    /// Answers that the caller has not taken yet; `None` if answers are not kept.
    answers: Option<Vec<Answer>>,
    /// Late requests to all volumes whose stores do not fail during the run.
    late: Late,
    /// Duration of each call to the cache in nanoseconds; `None` if calls are not measured.
    calls: Option<Vec<u32>>,
    outages: Vec<Outage>,
    /// The caller sets this flag to end the run.
    stop: Option<Arc<AtomicBool>>,
}

/// The answer to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Number of the request; the first one added is 0.
    pub request: u64,
    /// Time from the request's arrival to its answer.
    pub latency: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    arrived: Nanos,
    volume: u32,
    op: Op,
    added: bool,
    /// Number of the request, as in [`Answer::request`].
    number: u64,
}

#[derive(Debug)]
struct VolumeTally {
    name: String,
    size_bytes: u64,
    latency: LatencyRecorder,
    late: Late,
    /// Whether an outage makes the store fail operations during the run. Requests then wait for the
    /// store to recover.
    store_fails: bool,
    added: AddedFlushes,
}

impl Simulation {
    /// Creates a simulation of a cache with empty tiers, ready for requests.
    ///
    /// # Errors
    /// If the options make no sense or the flash tier cannot be set up.
    pub fn new(scenario: &Scenario, options: &Options) -> Result<Simulation, SimulateError> {
        Self::with_flash(scenario, options, None)
    }

    /// Creates a simulation on a flash device that it shares with other simulations. With `None` it
    /// has a flash device of its own.
    ///
    /// # Errors
    /// As for [`Simulation::new`].
    pub fn with_flash(
        scenario: &Scenario,
        options: &Options,
        flash: Option<&FlashDevice>,
    ) -> Result<Simulation, SimulateError> {
        options.check()?;
        outage::check(scenario, &options.outages)?;
        forebay_setup::check_bookkeeping(&scenario.cache)?;
        let mut cache = Cache::new(scenario.cache.clone());
        for volume in &scenario.volumes {
            let SimulatedVolume { size_bytes, read_only, priority, bypass, .. } = *volume;
            cache.attach(VolumeConfig { size_bytes, read_only, priority, bypass });
        }
        let untimed = options.pacing == Pacing::Untimed;
        let admission = scenario.cache.flash.as_ref().map(|f| f.admission.kind());
        if untimed && admission.is_some_and(AdmissionKind::needs_time) {
            let why =
                "the admission policy depends on time, which an untimed run does not simulate";
            return Err(SimulateError::Options(why));
        }
        if untimed {
            cache.without_time();
        }
        if options.pacing != Pacing::Quiesced {
            // (Quiesced runs do everything as on real devices.)
            cache.without_bytes();
        }
        let fails = |outage: &Outage| outage.trouble.fails();
        let tally = |v: &SimulatedVolume| VolumeTally {
            name: v.name.clone(),
            size_bytes: v.size_bytes,
            latency: LatencyRecorder::default(),
            late: Late::default(),
            store_fails: options.outages.iter().any(|o| o.volume == v.name && fails(o)),
            added: AddedFlushes::default(),
        };
        let mut simulation = Simulation {
            timing: Timing::new(scenario, options, flash),
            now: Nanos(0),
            epoch: Nanos(0),
            trace_start: None,
            memory: if untimed { Default::default() } else { scenario.memory },
            pacing: options.pacing,
            flushes: FlushInserter::new(options.assume_flush, scenario.volumes.len()),
            assume_flush: options.assume_flush,
            in_flight: Vec::new(),
            free: Vec::new(),
            requests_taken: 0,
            requests_answered: 0,
            last_answer: Nanos(0),
            volumes: scenario.volumes.iter().map(tally).collect(),
            volume_bytes_limit: volume_bytes_limit(scenario.cache.block_size),
            series: Series::new(options.interval),
            keeps_dirty_data: scenario.cache.write_policy.write_back,
            dirty_blocks_max: 0,
            segments: Vec::new(),
            assumptions: scenario.assumptions.clone(),
            assumed_page_bytes: scenario.assumed_page_bytes,
            capacity: Capacity {
                tier1: scenario.cache.dram_blocks,
                tier2: scenario.cache.flash.as_ref().map_or(0, |flash| flash.blocks()),
            },
            waiting: scenario.volumes.iter().map(|_| VecDeque::new()).collect(),
            waiting_count: 0,
            answers: None,
            late: Late::default(),
            calls: None,
            outages: options.outages.clone(),
            stop: None,
            cache,
        };
        simulation.start(scenario.volumes.len())?;
        Ok(simulation)
    }

    /// Takes the next request: advances the clock to its arrival, or until it may begin.
    ///
    /// A request that does not cover whole sectors of 512 bytes is rounded out to them, as it would
    /// be for a block device.
    ///
    /// # Errors
    /// If the request is for a volume or an offset that does not exist, or the cache stops
    /// answering.
    #[inline]
    pub fn add(&mut self, request: &Request) -> Result<(), SimulateError> {
        self.requests_taken += 1;
        if self.assume_flush == AssumeFlush::None && self.is_plain(request) {
            return self.pass(request, false);
        }
        self.add_with_flushes(request)
    }

    fn add_with_flushes(&mut self, request: &Request) -> Result<(), SimulateError> {
        let request = self.checked(request)?;
        if self.assume_flush == AssumeFlush::None {
            return self.pass(&request, false);
        }
        while let Some(flush) = self.flushes.before(request.time) {
            self.pass(&flush, true)?;
        }
        self.pass(&request, false)?;
        match self.flushes.after(&request) {
            Some(flush) => self.pass(&flush, true),
            None => Ok(()),
        }
    }

    /// Takes requests one after another, as [`Simulation::add`] does, but faster: it looks up
    /// upcoming requests while it processes the current one.
    ///
    /// # Errors
    /// As for [`Simulation::add`].
    pub fn add_all(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), SimulateError> {
        let mut requests = requests.into_iter();
        let Some(first) = requests.next() else { return Ok(()) };
        let nowhere = self.cache.prefetch_entry(first.volume, first.offset);
        let (mut ahead, mut sought) = ([first; LOOK_AHEAD], [nowhere; LOOK_AHEAD]);
        let (mut taken, mut read) = (0, 1);
        let mut ended = false;
        while taken < read {
            while !ended && read < taken + LOOK_AHEAD {
                let Some(request) = requests.next() else {
                    ended = true;
                    break;
                };
                self.cache.prefetch(request.volume, request.offset);
                ahead[read % LOOK_AHEAD] = request;
                read += 1;
            }
            let near = |n: usize| (taken + LOOK_AHEAD / n) % LOOK_AHEAD;
            let request = &ahead[near(2)];
            sought[near(2)] = self.cache.prefetch_entry(request.volume, request.offset);
            self.cache.prefetch_policy(sought[near(4)], false);
            self.cache.prefetch_policy(sought[near(8)], true);
            self.cache.expect(sought[taken % LOOK_AHEAD]);
            self.add(&ahead[taken % LOOK_AHEAD])?;
            taken += 1;
        }
        Ok(())
    }

    /// Makes the run end with [`SimulateError::Interrupted`] soon after `stop` is set, even in the
    /// middle of a long request such as a trim of a whole volume.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    /// Keeps every answer from now on until the caller takes it. An untimed run
    /// ([`Pacing::Untimed`]) keeps no answers.
    pub fn keep_answers(&mut self) {
        self.answers.get_or_insert_default();
    }

    /// Measures from now on how long each call to the cache takes, except for hits. Runs of the
    /// same requests make the same calls, so the shortest time of each call over several runs is
    /// the best estimate of the time that the cache itself takes.
    pub fn time_calls(&mut self) {
        self.calls.get_or_insert_default();
    }

    /// Returns the duration of each call in nanoseconds since [`Simulation::time_calls`], in the
    /// order of the calls, and stops measuring.
    pub fn take_calls(&mut self) -> Vec<u32> {
        self.calls.take().unwrap_or_default()
    }

    /// Returns the answers since the last call, in the order in which they were given.
    pub fn take_answers(&mut self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.iter_mut().flat_map(|answers| answers.drain(..))
    }

    /// Processes all events up to the arrival of a request with this `time` in the trace. Does
    /// nothing unless requests arrive at the trace's times ([`Pacing::OpenLoop`]).
    ///
    /// The run begins at the first time that the simulation receives, here or from a request.
    pub fn advance_to(&mut self, time: Nanos) {
        let since = self.since_first(time);
        if let Pacing::OpenLoop { rate } = self.pacing {
            self.advance(self.arrival(since, rate));
        }
    }

    /// Waits until all work in flight is done, without ending the simulation: answers can still be
    /// taken.
    ///
    /// # Errors
    /// If the cache stops answering.
    pub fn run_until_idle(&mut self) -> Result<(), SimulateError> {
        self.run_all();
        if !self.is_busy() && !self.is_stopped() { Ok(()) } else { Err(self.stuck()) }
    }

    /// Requests answered so far, including assumed flushes.
    pub fn answered(&self) -> u64 {
        self.requests_answered
    }

    /// The cache itself, for its counters.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Simulated time since the first request could have begun.
    pub fn now(&self) -> Nanos {
        self.now.saturating_sub(self.epoch)
    }

    /// Simulated time at the latest answer since the first request could have begun.
    pub fn answered_at(&self) -> Nanos {
        self.last_answer.saturating_sub(self.epoch)
    }

    /// Waits until all work in flight is done and returns the result. Dirty blocks stay dirty in
    /// the result; they are destaged afterwards only if there were outages.
    ///
    /// # Errors
    /// If the cache stops answering.
    pub fn finish(mut self) -> Result<SimulationResult, SimulateError> {
        self.run_until_idle()?;
        let mut result = self.result();
        result.after_outages = self.destage()?;
        Ok(result)
    }

    // ---- time ----

    fn start(&mut self, volumes: usize) -> Result<(), SimulateError> {
        let binding = |n: usize| Binding::new(Volume(n as u32), StoreId::new([n as u8 + 1; 16]), 1);
        let bindings = (0..volumes).map(binding).collect();
        self.cache.start(self.now, Open::Format { uuid: TierId::new([0xfb; 16]), bindings });
        self.execute();
        self.run_all();
        while let Some(notice) = self.cache.poll_notice() {
            if let Notice::Failed(error) = notice {
                return Err(SimulateError::Flash(error));
            }
        }
        if !self.cache.is_ready() {
            return Err(self.stuck());
        }
        self.timing.begin_run(self.now);
        (self.epoch, self.last_answer) = (self.now, self.now);
        Ok(())
    }

    /// The trace's `time`, relative to the first request. A sample or a part of a trace seldom
    /// begins at 0.
    #[inline]
    fn since_first(&mut self, time: Nanos) -> Nanos {
        time.saturating_sub(*self.trace_start.get_or_insert(time))
    }

    /// Simulated arrival time of a request that comes `since` after the first one in the trace.
    fn arrival(&self, since: Nanos, rate: f64) -> Nanos {
        let at = if rate == 1.0 { since.0 } else { (since.0 as f64 / rate) as u64 };
        self.epoch.saturating_add(Nanos(at))
    }

    /// Waits as the pacing demands, then submits the request or queues it until the cache has room.
    fn pass(&mut self, request: &Request, added: bool) -> Result<(), SimulateError> {
        if self.is_stopped() {
            return Err(SimulateError::Interrupted);
        }
        let since = self.since_first(request.time);
        let arrived = match self.pacing {
            Pacing::OpenLoop { rate } => {
                let arrival = self.arrival(since, rate);
                self.advance(arrival);
                if self.is_stopped() {
                    return Err(SimulateError::Interrupted);
                }
                arrival
            }
            Pacing::ClosedLoop { queue_depth } => {
                // Hits advance the clock without a step.
                while self.next_at().is_some_and(|at| at <= self.now) && self.step() {}
                while self.in_flight.len() - self.free.len() >= queue_depth as usize {
                    self.step_or_stuck()?;
                }
                self.now
            }
            Pacing::Quiesced => self.now,
            Pacing::Untimed => {
                self.now = self.now.max(self.epoch.saturating_add(since));
                self.now
            }
        };
        let state = self.state_of(request, arrived, added);
        if matches!(self.pacing, Pacing::OpenLoop { .. }) {
            let volume = request.volume.0 as usize;
            let queue = &mut self.waiting[volume];
            if !queue.is_empty() || !self.cache.has_room_for(request.volume) {
                queue.push_back((*request, state));
                self.waiting_count += 1;
                return Ok(());
            }
        }
        while !self.cache.has_room() {
            self.step_or_stuck()?;
        }
        self.hand_in(request, state);
        if matches!(self.pacing, Pacing::Quiesced | Pacing::Untimed) {
            self.run_all();
            if self.in_flight.len() != self.free.len() {
                return Err(self.stuck());
            }
        }
        Ok(())
    }

    /// Submits the request to the cache, after closing the current row if it is due.
    #[inline]
    fn hand_in(&mut self, request: &Request, state: InFlight) {
        let since = self.now.saturating_sub(self.epoch);
        if self.series.is_due(since) {
            let totals = self.totals();
            self.series.close(since, totals);
        }
        if !self.hit(request, state) {
            self.submit(request, state);
        }
    }

    /// Submits requests that have waited for room; those of one volume keep their order.
    fn hand_in_waiting(&mut self) {
        for volume in 0..self.waiting.len() {
            while self.cache.has_room_for(Volume(volume as u32))
                && let Some((request, state)) = self.waiting[volume].pop_front()
            {
                self.waiting_count -= 1;
                self.hand_in(&request, state);
            }
        }
    }

    /// Answers a read through [`Cache::handle_hit`], the fast path that servers use, if the read is
    /// a hit. A hit starts no operation and has no further effects.
    fn hit(&mut self, request: &Request, state: InFlight) -> bool {
        let Request { volume, op, offset, length, .. } = *request;
        if op != Op::Read || self.cache.handle_hit(self.now, volume, offset, length).is_none() {
            return false;
        }
        self.pass_time(in_proportion(self.memory.read, length as u32));
        self.count_answer(state);
        true
    }

    fn state_of(&self, request: &Request, arrived: Nanos, added: bool) -> InFlight {
        let (volume, op, number) = (request.volume.0, request.op, self.requests_taken - 1);
        InFlight { arrived, volume, op, added, number }
    }

    fn submit(&mut self, request: &Request, state: InFlight) {
        let number = match self.free.pop() {
            Some(number) => {
                self.in_flight[number as usize] = state;
                number
            }
            None => {
                self.in_flight.push(state);
                self.in_flight.len() as u32 - 1
            }
        };
        let id = RequestId(number.into());
        let request = Request { time: self.now, ..*request };
        timed(&mut self.calls, || self.cache.handle_request(id, request));
        self.execute();
    }

    /// Advances the clock by `ns` nanoseconds, saturating at the largest time.
    fn pass_time(&mut self, ns: u64) {
        self.now = self.now.saturating_add(Nanos(ns));
    }

    /// Processes all events up to and including `time`, then sets the clock to `time`. If copies
    /// have already taken the clock past `time`, events up to the clock come first, too: the
    /// devices did not wait for the processor.
    fn advance(&mut self, time: Nanos) {
        while self.next_at().is_some_and(|at| at <= time.max(self.now)) && self.step() {}
        self.now = self.now.max(time);
    }

    /// Processes events until none is left. With outages, only until all requests are answered,
    /// because the cache keeps retrying a store that fails.
    fn run_all(&mut self) {
        let all = self.outages.is_empty();
        let goes_on = |s: &Self| all || !s.cache.is_ready() || s.is_busy();
        while goes_on(self) && self.step() {}
    }

    /// Whether some requests are not answered yet.
    fn is_busy(&self) -> bool {
        self.in_flight.len() > self.free.len() || self.waiting_count > 0
    }

    fn next_at(&self) -> Option<Nanos> {
        let device = self.timing.next_at(self.now);
        match self.cache.poll_timeout() {
            None => device,
            Some(timeout) => Some(device.map_or(timeout, |at| at.min(timeout))),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Processes the next event; work that the cache left unfinished comes first. Returns false if
    /// there is no event or the run has been stopped.
    fn step(&mut self) -> bool {
        if self.is_stopped() || !self.call_next() {
            return false;
        }
        self.execute();
        if self.waiting_count > 0 && !self.cache.is_half_way() {
            self.hand_in_waiting();
        }
        true
    }

    /// Passes the next event to the cache; returns false if there is none.
    fn call_next(&mut self) -> bool {
        if self.cache.is_half_way() {
            timed(&mut self.calls, || self.cache.handle_timeout(self.now));
            return true;
        }
        let device = self.timing.next_at(self.now);
        let timeout = self.cache.poll_timeout();
        match (device, timeout) {
            (None, None) => return false,
            (Some(at), timeout) if timeout.is_none_or(|t| at <= t) => {
                self.now = self.now.max(at);
                let (token, result) = self.timing.pop().expect("something ends at that time");
                timed(&mut self.calls, || {
                    self.cache.handle_completion(self.now, token, result);
                });
            }
            (_, timeout) => {
                self.now = self.now.max(timeout.unwrap_or_default());
                timed(&mut self.calls, || self.cache.handle_timeout(self.now));
            }
        }
        true
    }

    fn step_or_stuck(&mut self) -> Result<(), SimulateError> {
        if self.step() { Ok(()) } else { Err(self.stuck()) }
    }

    /// Executes what the cache asks for.
    fn execute(&mut self) {
        while let Some(effect) =
            timed(&mut self.calls, || self.cache.poll_effect(&mut self.segments))
        {
            match effect {
                Effect::Copy { from, length, .. } => {
                    let latency = match from {
                        Place::Frame { .. } => self.memory.read,
                        _ => self.memory.write,
                    };
                    self.pass_time(in_proportion(latency, length));
                }
                Effect::Zero { length, .. } => {
                    self.pass_time(in_proportion(self.memory.write, length));
                }
                // No bytes are stored, so every checksum is 0, when a record is written as well as
                // when it is verified.
                Effect::Checksum { token, .. } => self.cache.handle_checksum(token, 0),
                Effect::Reply { request, result } => self.answer(request, result),
                device => self.timing.begin(self.now, &device),
            }
        }
        if self.keeps_dirty_data {
            self.dirty_blocks_max = self.dirty_blocks_max.max(self.cache.dirty_blocks());
        }
    }

    fn answer(&mut self, request: RequestId, result: Outcome) {
        let number = request.0 as u32;
        let state = self.in_flight[number as usize];
        if state.added && result.is_err() {
            self.volumes[state.volume as usize].added.failed += 1;
        }
        self.free.push(number);
        self.count_answer(state);
    }

    #[inline]
    fn count_answer(&mut self, state: InFlight) {
        self.requests_answered += 1;
        self.last_answer = self.now;
        let volume = &mut self.volumes[state.volume as usize];
        volume.added.count += u64::from(state.added);
        if self.pacing == Pacing::Untimed {
            return self.series.count(None);
        }
        self.count_latency(state);
    }

    fn count_latency(&mut self, state: InFlight) {
        let volume = &mut self.volumes[state.volume as usize];
        let latency = self.now.saturating_sub(state.arrived);
        if state.added {
            return self.series.count(None);
        }
        volume.latency.record(state.op, latency);
        if latency > LATE && !volume.store_fails {
            volume.late.add(state.arrived, self.now);
            self.late.add(state.arrived, self.now);
        }
        if let Some(answers) = &mut self.answers {
            answers.push(Answer { request: state.number, latency });
        }
        self.series.count(Some(latency));
    }

    /// The error that says why the run cannot continue.
    fn stuck(&self) -> SimulateError {
        if self.is_stopped() {
            return SimulateError::Interrupted;
        }
        let mut state = self.cache.describe();
        state.truncate((0..=STATE_BYTES_MAX).rfind(|&at| state.is_char_boundary(at)).unwrap_or(0));
        SimulateError::Stuck { requests: self.requests_answered, state }
    }
}

/// Nanoseconds for `length` bytes when 4 KiB take `latency`.
fn in_proportion(latency: Nanos, length: u32) -> u64 {
    (latency.0 * u64::from(length)) >> 12
}
