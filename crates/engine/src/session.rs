//! A session: how a connection, or a load generator in this process, uses an engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use forebay_block::{Flags, Nanos, Volume};
use forebay_device::{AlignedBuffer, Doorbell, Published};
use forebay_results::LatencyRecorder;

use crate::allocation;
use crate::buffers::BufferPool;
use crate::core::{Life, OpenedSession};
use crate::hits::{self, Report, SessionHits};
use crate::queries::{Contents, Question};
use crate::shared::Shared;
use crate::table::{Done, Loans, Submission};

/// Unused buffers that a session keeps.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Asynchronous access to an engine. [`submit`](Session::submit) takes requests, several at a time
/// for speed. It returns answers, as does a later [`reap`](Session::reap), in any order. A session
/// belongs to one thread at a time.
///
/// Dropping it waits for its requests in flight.
pub struct Session {
    shared: Arc<Shared>,
    number: u32,
    bell: Arc<Doorbell>,
    buffers: BufferPool,
    latency: Arc<Mutex<Vec<LatencyRecorder>>>,
    in_flight: u32,
    contents: Vec<Contents>,
    /// The blocks that can be read without the lock, and the reads so far.
    published: Option<Arc<Published>>,
    hits: Arc<SessionHits>,
    found: Vec<Loans>,
    borrows: bool,
    /// Its own requests may be waiting for room, and come first.
    waits: bool,
}

impl Session {
    pub(crate) fn open(shared: Arc<Shared>) -> std::io::Result<Session> {
        let bell = Arc::new(Doorbell::new()?);
        let OpenedSession { number, hits, published, latency } =
            shared.lock().open_session(bell.clone());
        let buffers = BufferPool::new(HELD_BYTES_MAX);
        Ok(Session {
            shared,
            number,
            bell,
            buffers,
            latency,
            in_flight: 0,
            contents: Vec::new(),
            published,
            hits,
            found: Vec::new(),
            borrows: false,
            waits: false,
        })
    }

    /// A buffer of at least `bytes` bytes, for a request.
    pub fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        self.buffers.take(bytes)
    }

    /// Returns a buffer for later use.
    pub fn give_back(&mut self, buffer: AlignedBuffer) {
        self.buffers.give(buffer);
    }

    /// From now on reads may be answered with memory of the cache itself, which saves a copy:
    /// [`Done::lent`]. Drop it soon: until then, less memory can be lent to others.
    pub fn borrow(&mut self) {
        self.borrows = true;
        self.shared.lock().lend_to(self.number);
    }

    /// Submits all of `requests` in this order, and appends the answered requests to `done`: often
    /// the same ones. Returns the number still in flight.
    ///
    /// # Panics
    /// If a read or write has no buffer, or one that is too small.
    pub fn submit(&mut self, requests: &mut Vec<Submission>, done: &mut Vec<Done>) -> u32 {
        let before = done.len();
        let now = self.shared.clock.now();
        if self.answer_hits(now, requests, done) && requests.is_empty() {
            self.count(&done[before..]);
            return self.in_flight;
        }
        self.bell.heed();
        let mut core = self.shared.lock_for(self.number);
        core.submit(now, self.number, requests);
        self.in_flight = core.take_done(self.number, done, &mut self.contents);
        self.waits = core.has_waiting(self.number);
        drop(core);
        self.count(&done[before..]);
        self.in_flight
    }

    /// Answers the first of `requests` that need no lock; returns whether there were any.
    fn answer_hits(
        &mut self,
        now: Nanos,
        requests: &mut Vec<Submission>,
        done: &mut Vec<Done>,
    ) -> bool {
        // (What has been answered is taken at once, for which the lock is needed.)
        let Some(published) = &self.published else { return false };
        if self.waits || self.bell.seems_rung() || self.shared.is_broken() {
            return false;
        }
        let before = done.len();
        let mut found = 0;
        while let Some(request) = requests.get_mut(found)
            && let Some(lent) = hits::read(published, self.borrows, request)
        {
            self.found.push(lent);
            found += 1;
        }
        if found == 0 {
            return false;
        }
        for (request, lent) in requests.drain(..found).zip(self.found.drain(..)) {
            done.push(Done { request, result: Ok(()), arrived: now, lent });
        }
        let report = self.hits.note(now, done[before..].iter().map(|done| &done.request));
        let core = match report {
            Report::Later => None,
            Report::IfFree => self.shared.try_lock(),
            Report::Now => Some(self.shared.lock()),
        };
        if let Some(mut core) = core {
            core.report_hits(self.number);
        }
        true
    }

    /// Appends the requests answered since then to `done`. Returns the number still in flight.
    pub fn reap(&mut self, done: &mut Vec<Done>) -> u32 {
        let before = done.len();
        self.bell.clear();
        let mut core = self.shared.lock_for(self.number);
        core.report_hits(self.number);
        self.in_flight = core.take_done(self.number, done, &mut self.contents);
        self.waits = core.has_waiting(self.number);
        drop(core);
        self.count(&done[before..]);
        self.in_flight
    }

    /// Waits until a request has been answered, or until `until`; then does the same as
    /// [`reap`](Session::reap). Returns at once when nothing is in flight.
    pub fn wait(&mut self, until: Option<Instant>, done: &mut Vec<Done>) -> u32 {
        if self.in_flight > 0 {
            self.bell.wait(until);
        }
        self.reap(done)
    }

    /// Asks where `length` bytes of a volume have data, without reading them.
    /// [`contents`](Session::contents) returns the answer. It may cover only the start of the
    /// range, for example because it has at most `runs_max` runs. It includes every write that was
    /// answered before this call.
    pub fn ask_contents(
        &mut self,
        tag: u64,
        volume: Volume,
        offset: u64,
        length: u64,
        runs_max: usize,
    ) {
        let session = self.number;
        self.shared.lock().enter_question(session);
        self.in_flight += 1;
        allocation::ask(&self.shared, Question { session, tag, volume, offset, length, runs_max });
    }

    /// The answers to [`ask_contents`](Session::ask_contents) that have arrived since the last
    /// call.
    pub fn contents(&mut self) -> impl Iterator<Item = Contents> + '_ {
        self.contents.drain(..)
    }

    /// Rings when a request has been answered outside a call. Wait for it together with other file
    /// descriptors.
    pub fn bell(&self) -> &Arc<Doorbell> {
        &self.bell
    }

    /// Requests in flight as of the last call.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The client of this session is gone without waiting for its answers, and may send its requests again in
    /// another session. Requests that the cache has not got yet end with
    /// [`Shutdown`](forebay_effect::IoError::Shutdown). The others take effect; until they have, later requests
    /// of any session that overlap their changes wait. So none takes effect after the same request, sent again,
    /// has been answered, or after something newer. Nothing may be submitted after this.
    pub fn abandon(&mut self) {
        let mut core = self.shared.lock_anyway();
        // (A core in which a thread has panicked is in an unknown state, and left alone.)
        if !self.shared.is_broken() && core.life() != Life::Ended {
            core.abandon_session(self.number);
        }
    }

    /// The engine's time.
    pub fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// Waits until nothing is in flight, or the engine has ended. `each` gets the requests as they
    /// are answered.
    pub fn wait_for_all(&mut self, mut each: impl FnMut(&Session, &[Done])) {
        let mut done = Vec::new();
        let shared = self.shared.clone();
        let serves = || !shared.is_broken() && shared.lock_anyway().life() != Life::Ended;
        while self.in_flight > 0 && serves() {
            // (The bell rings for the answers; only a panic of another thread has to be looked for.)
            let soon = Instant::now() + std::time::Duration::from_millis(100);
            self.wait(Some(soon), &mut done);
            each(self, &done);
            done.clear();
        }
    }

    fn count(&self, done: &[Done]) {
        if done.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        for d in done {
            let volume = d.request.volume.0 as usize;
            if latency.len() <= volume {
                latency.resize_with(volume + 1, LatencyRecorder::coarse);
            }
            if d.request.flags.contains(Flags::PREFETCH) {
                continue;
            }
            latency[volume].record(d.request.op, now.saturating_sub(d.arrived));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.wait_for_all(|_, _| {});
        let mut core = self.shared.lock_anyway();
        if core.life() == Life::Ended {
            return;
        }
        if !self.shared.is_broken() {
            core.report_hits(self.number);
        }
        core.close_session(self.number);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Session { number, in_flight, .. } = self;
        f.debug_struct("Session").field("number", number).field("in_flight", in_flight).finish()
    }
}
