//! The state that one lock protects: the machine, the executor, and the requests in flight.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_cache::{Acknowledge, Cache, Call, Open, Order, StampReport, VolumeConfig};
use forebay_device::{Devices, Doorbell, Executor, ExecutorStats, Published, Requests, Sender};
use forebay_effect::{Device, IoError, RequestId};
use forebay_results::{ComponentRecorder, LatencyRecorder};
use smallvec::smallvec;

use crate::client_holds::ClientHolds;
use crate::clock::Clock;
use crate::devices::AnyDevices;
use crate::held_wait::StoreProgress;
use crate::hits::{Readers, SessionHits};
use crate::lock::{LockHold, Waiters};
use crate::machine::Driven;
use crate::news::{News, Rest};
use crate::queries::Contents;
use crate::session_queues::SessionQueues;
use crate::table::{Done, Loans, Submission, Table};
use crate::tape::{Recorder, TapedCache};
use crate::unstamped::UnstampedStores;

/// Parts in which latencies are recorded. A recorder takes 200 KiB: too much for each of many sessions.
const LATENCIES: usize = 8;

/// All state behind the lock.
pub(crate) struct Core {
    // First, so that no transfer is under way when the buffers of the table go.
    executor: Executor<AnyDevices>,
    cache: TapedCache,
    table: Table,
    bells: Vec<Option<Arc<Doorbell>>>,
    readers: Readers,
    /// Latencies by volume, in a few parts, so that sessions seldom wait for each other.
    latencies: [Arc<Mutex<Vec<LatencyRecorder>>>; LATENCIES],
    news: News,
    life: Life,
    /// Requests that wait for room in the machine.
    waiting: SessionQueues,
    holds: ClientHolds,
    /// The stores' headers note how the stores were left: no stamps are requested.
    stamps_ended: bool,
    /// The stores whose last stamps could not be written.
    pub unstamped: UnstampedStores,
    /// Whether a request waits until all work for earlier ones has ended.
    one_at_a_time: bool,
    /// When the reaper wakes at the latest.
    reaper_wakes_at: Option<Nanos>,
    /// There may be more work to do at once.
    again: bool,
    /// How long the current thread has held the lock.
    lock_hold: LockHold,
}

/// What a session has of the core.
#[must_use]
pub(crate) struct OpenedSession {
    pub number: u32,
    pub hits: Arc<SessionHits>,
    pub published: Option<Arc<Published>>,
    pub latency: Arc<Mutex<Vec<LatencyRecorder>>>,
}

/// What the reaper does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ReaperTurn {
    /// There is more work to do at once.
    Again,
    /// It waits for its bell, or for that time.
    Wait(Option<Nanos>),
    /// The engine has ended.
    Leave,
}

/// How near the engine is to its end. It only comes nearer ([`Core::advance_life`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Life {
    /// Operators may order anything.
    Serving,
    /// A stop is announced: nothing that may take long begins.
    StopAnnounced,
    /// The machine has been asked to stop, and refuses requests.
    Stopping,
    /// The threads end.
    Ended,
}

impl Core {
    pub fn new(executor: Executor<AnyDevices>, cache: Cache, tape: Option<Recorder>) -> Core {
        Core {
            readers: Readers::new(executor.published()),
            executor,
            cache: TapedCache::new(cache, tape),
            table: Table::default(),
            bells: Vec::new(),
            latencies: Default::default(),
            news: News::default(),
            life: Life::Serving,
            waiting: SessionQueues::default(),
            holds: ClientHolds::default(),
            stamps_ended: false,
            unstamped: UnstampedStores::default(),
            one_at_a_time: false,
            reaper_wakes_at: None,
            again: false,
            lock_hold: LockHold::default(),
        }
    }

    /// The cache, to be read. Each change is a method here, which does the work that follows.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The cache, for tests that ask it what it does not say of itself.
    #[cfg(test)]
    pub fn cache_mut(&mut self) -> &mut TapedCache {
        &mut self.cache
    }

    /// Attaches a volume, before the start.
    pub fn attach(&mut self, volume: VolumeConfig) {
        self.cache.call(Call::Attach(volume));
    }

    /// The store of this volume keeps stamps.
    pub fn keep_stamps(&mut self, volume: Volume) {
        self.cache.call(Call::KeepStamps(volume));
    }

    /// From now on a request waits until all work for earlier ones has ended, as in a simulation.
    pub fn take_one_at_a_time(&mut self) {
        self.one_at_a_time = true;
        self.executor.end_in_order();
    }

    /// The part of the devices that sends queued operations to the kernel without the lock.
    pub fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.executor.devices_mut().send_apart()
    }

    /// The threads that wait for the lock.
    pub fn lock_waiters(&self) -> Arc<Waiters> {
        self.lock_hold.waiters.clone()
    }

    /// Starts the machine.
    pub fn start(&mut self, now: Nanos, open: Open) {
        self.cache.call(Call::Start(now, open));
        self.drive(now);
    }

    // ---- sessions ----

    /// Opens a session; its bell rings when it has news.
    pub fn open_session(&mut self, bell: Arc<Doorbell>) -> OpenedSession {
        let number = self.table.open_session();
        let at = number as usize;
        if self.bells.len() <= at {
            self.bells.resize_with(at + 1, || None);
        }
        self.bells[at] = Some(bell);
        let (hits, published) = self.readers.open(number);
        OpenedSession { number, hits, published, latency: self.latencies[at % LATENCIES].clone() }
    }

    /// Closes a session that has nothing in flight.
    pub fn close_session(&mut self, session: u32) {
        self.table.close_session(session);
        self.bells[session as usize] = None;
    }

    /// The client of a session is gone. Its requests that the machine has not got end, so that none takes
    /// effect after the client has sent it again; what overlaps the others waits until they have ended.
    pub fn abandon_session(&mut self, session: u32) {
        for id in self.waiting.take(session) {
            self.table.reply(id, Err(IoError::Shutdown));
        }
        self.table.abandon(session);
        self.update_published();
    }

    /// Whether a change of these bytes is in flight whose client is gone.
    pub fn awaits_abandoned(&self, volume: Volume, offset: u64, length: u64) -> bool {
        let read = Submission::new(0, volume, Op::Read, offset, length, None);
        self.table.has_abandoned() && self.table.awaits_abandoned(&read)
    }

    /// From now on, reads of the session may be answered with lent memory.
    pub fn lend_to(&mut self, session: u32) {
        self.table.session(session).borrows = true;
    }

    /// A question about contents is in flight from now on.
    pub fn enter_question(&mut self, session: u32) {
        self.table.enter_question(session);
    }

    /// It has been answered.
    pub fn answer_contents(&mut self, session: u32, contents: Contents) {
        self.table.answer_contents(session, contents);
    }

    /// Requests in flight, including those that wait.
    pub fn in_flight(&self) -> usize {
        self.table.len()
    }

    /// What changes whenever a request is answered, an operation of a device ends, or a stamp is written.
    pub fn progress(&self) -> StoreProgress {
        let ExecutorStats { reads, writes, zeroes, syncs, errors, .. } = self.executor.stats();
        StoreProgress {
            requests: self.table.len() - self.waiting.len(),
            // A store that fails is tried again and again.
            operations: reads + writes + zeroes + syncs - errors,
            stamping: self.cache.stamping(),
        }
    }

    /// The volumes whose stores an order waits for: with requests that the machine has not answered, or with stamps
    /// being written. If there are none, those with dirty blocks.
    pub fn volumes_in_progress(&self) -> Vec<Volume> {
        let volumes = || (0..).map(Volume).take_while(|&v| self.cache.volume_stats(v).is_some());
        let waiting: HashSet<RequestId> = self.waiting.requests().collect();
        let requests = self.table.requests().filter(|(id, _)| !waiting.contains(id));
        let used: HashSet<Volume> = requests.map(|(_, request)| request.volume).collect();
        let is_awaited = |v: &Volume| used.contains(v) || self.cache.stamping() >> v.0 & 1 == 1;
        let is_dirty =
            |v: &Volume| self.cache.volume_stats(*v).is_some_and(|stats| stats.dirty_blocks > 0);
        let awaited: Vec<Volume> = volumes().filter(is_awaited).collect();
        if awaited.is_empty() { volumes().filter(is_dirty).collect() } else { awaited }
    }

    /// When the oldest request in flight arrived.
    pub fn oldest_in_flight(&self) -> Option<Nanos> {
        self.table.oldest()
    }

    /// Reports to the cache the reads that a session has answered without the lock.
    pub fn report_hits(&mut self, session: u32) {
        self.readers.report(session, &mut self.cache);
    }

    /// Reports to the cache the reads that all sessions have answered without the lock.
    pub fn report_all_hits(&mut self) {
        self.readers.report_all(&mut self.cache);
    }

    /// Whether requests of this session wait for room.
    pub fn has_waiting(&self, session: u32) -> bool {
        self.waiting.has(session)
    }

    /// Accepts requests in order, and does everything that can be done at once.
    pub fn submit(&mut self, now: Nanos, session: u32, requests: &mut Vec<Submission>) {
        self.report_hits(session);
        if self.life == Life::Ended {
            let refused = requests.drain(..).map(|request| Done {
                request,
                result: Err(IoError::Shutdown),
                arrived: now,
                lent: Loans::new(),
            });
            return self.table.session(session).done.extend(refused);
        }
        if requests.len() > 1 {
            requests.iter().for_each(|r| self.cache.prefetch(r.volume, r.offset));
            requests.iter().for_each(|r| {
                self.cache.prefetch_entry(r.volume, r.offset);
            });
        }
        let mut only_hits = !requests.is_empty();
        for mut request in requests.drain(..) {
            if self.would_zero_slowly(&request) {
                let (result, lent) = (Err(IoError::Unsupported), Loans::new());
                let mailbox = self.table.session(session);
                mailbox.done.push(Done { request, result, arrived: now, lent });
                continue;
            }
            let at_once = !self.waiting.has(session) && self.may_take(&request);
            if at_once && let Some(lent) = self.read_hit(now, session, &mut request) {
                // Behind the answers so far: a client may have asked for this after those.
                let mailbox = self.table.session(session);
                mailbox.done.push(Done { request, result: Ok(()), arrived: now, lent });
                continue;
            }
            only_hits = false;
            let id = self.table.enter(session, request, now);
            if at_once {
                self.hand_in(now, id);
            } else {
                self.waiting.push(session, id);
            }
        }
        // A session with only hits does not work on requests of others: the reaper does.
        if !only_hits {
            self.drive(now);
        } else {
            self.cache.pause();
        }
    }

    /// Whether a store can zero a range, as far as is known, by less than writing zeroes to it. `punch`: space may
    /// be released.
    pub fn zeroes_cheaply(&self, volume: Volume, punch: bool) -> bool {
        self.executor.zeroes_cheaply(Device::Backing(volume), punch)
    }

    /// Whether a request must fail because it wants to be fast and cannot be.
    fn would_zero_slowly(&self, r: &Submission) -> bool {
        r.op == Op::WriteZeroes
            && r.flags.contains(Flags::FAST_ZERO)
            && !self.zeroes_cheaply(r.volume, !r.flags.contains(Flags::NO_HOLE))
    }

    /// Answers a read of one block in memory without entering it into the table. Returns `None` and
    /// does nothing for any other request. The tape is the same either way.
    fn read_hit(&mut self, now: Nanos, session: u32, r: &mut Submission) -> Option<Loans> {
        let request = r.at(now);
        let reads = r.op == Op::Read && !request.is_prefetch();
        let buffer = r.buffer.as_mut().filter(|b| reads && b.len() as u64 >= r.length)?;
        let (frame, at) = self.cache.handle_hit(request, || self.table.next_id())?;
        let bytes = r.length as u32;
        if self.readers.lacks(frame) && self.may_publish() {
            Readers::publish(&mut self.cache, &mut self.executor, r.volume, r.offset);
        }
        let borrows = self.table.session(session).borrows;
        match borrows.then(|| self.executor.lend(frame, at, bytes)).flatten() {
            Some(loan) => Some(smallvec![loan]),
            None => {
                self.executor.copy_out(frame, at, bytes, buffer);
                Some(Loans::new())
            }
        }
    }

    // ---- orders ----

    /// Why requests are held back.
    pub fn holds(&self) -> &ClientHolds {
        &self.holds
    }

    /// Changes why requests are held back. Those that nothing holds any more continue.
    pub fn change_holds(&mut self, now: Nanos, change: impl FnOnce(&mut ClientHolds)) {
        let before = (self.is_held(), self.holds.held().len());
        change(&mut self.holds);
        if (self.is_held(), self.holds.held().len()) != before {
            self.update_published();
            self.drive(now);
        }
    }

    /// An operator orders to let clients continue: a quiesce on its way ends. Returns the number of resumes,
    /// including this one.
    pub fn order_resume(&mut self) -> u64 {
        let this = self.holds.order_resume();
        self.news.tell();
        this
    }

    /// A quiesce has ended: requests continue, unless something else holds them, and so do stamps. Requests to the
    /// volumes in `held` are still held back, for these reasons.
    pub fn end_quiesce(&mut self, now: Nanos, held: BTreeMap<Volume, String>) {
        self.stamps_ended = false;
        self.change_holds(now, |holds| holds.end_quiesce(held));
    }

    /// The stores' headers are about to note how the stores are left: no stamps are requested from now on.
    pub fn end_stamps(&mut self) {
        self.stamps_ended = true;
    }

    /// Gives the machine an order. An order to stop brings the engine nearer to its end.
    pub fn order(&mut self, now: Nanos, order: Order) {
        match order {
            Order::PrepareStop => self.advance_life(Life::StopAnnounced),
            Order::Stop(_) => self.advance_life(Life::Stopping),
            _ => {}
        }
        self.cache.call(Call::Order(now, order));
        self.drive(now);
    }

    /// Requests stamps, if the stores may have them.
    pub fn stamp(&mut self, now: Nanos) {
        if !self.stamps_ended {
            self.order(now, Order::Stamp);
        }
    }

    /// A stamp that was ordered is on its store, or could not be written.
    pub fn stamped(&mut self, now: Nanos, report: StampReport) {
        if report.result.is_ok() {
            self.unstamped.note_written(report.volume);
        }
        self.cache.call(Call::Stamped(now, vec![report]));
        self.drive(now);
    }

    /// Performs the possible effects, reports completions, and accepts requests that waited for
    /// room.
    pub fn drive(&mut self, now: Nanos) {
        self.again = self.run(now);
        while self.may_take_any() {
            let (cache, table, stop) = (&self.cache, &self.table, self.life > Life::Serving);
            let holds = &self.holds;
            let fits = |id: RequestId| fits(cache, table, holds, stop, table.request(id));
            let Some(id) = self.waiting.pop(fits) else { break };
            self.hand_in(now, id);
            if self.lock_hold.should_end() {
                self.again = true;
                break;
            }
        }
        self.cache.pause();
        while let Some(notice) = self.cache.poll_notice() {
            self.news.push(notice);
        }
        self.update_published();
    }

    /// The engine's life comes nearer to its end, if it is not that near yet.
    fn advance_life(&mut self, life: Life) {
        if self.life < life {
            self.life = life;
            self.news.tell();
        }
    }

    /// How near the end is.
    pub fn life(&self) -> Life {
        self.life
    }

    /// The engine ends: its threads leave, and sessions get no more answers. Returns the tape.
    pub fn end(&mut self) -> Option<Recorder> {
        self.advance_life(Life::Ended);
        let tape = self.cache.take_tape();
        self.update_published();
        tape
    }

    /// The engine has ended: ends every device operation, so that no memory is touched any more, and answers all
    /// requests, so that no session waits for them.
    pub fn refuse_all(&mut self) {
        self.executor.reset();
        self.waiting = SessionQueues::default();
        self.table.refuse_all(IoError::Shutdown);
    }

    /// A turn of the reaper.
    pub fn take_reaper_turn(&mut self, clock: Clock) -> ReaperTurn {
        self.reaper_wakes_at = None;
        if self.life == Life::Ended {
            return ReaperTurn::Leave;
        }
        self.pass_timeout(clock.now());
        self.reaper_wakes_at = self.next_due(clock);
        match self.again || self.cache.is_half_way() {
            true => ReaperTurn::Again,
            false => ReaperTurn::Wait(self.reaper_wakes_at),
        }
    }

    /// What threads wait for.
    pub fn news(&mut self) -> &mut News {
        &mut self.news
    }

    /// Whether the threads that wait have to look again.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        self.news.take() || self.news.awaited().iter().any(|&rest| self.is_at(rest))
    }

    /// Whether the core is at rest in this way.
    pub fn is_at(&self, rest: Rest) -> bool {
        match rest {
            Rest::Unused => self.table.len() == self.waiting.len(),
            Rest::Quiet => self.cache.is_quiet(),
            Rest::Unstamped => !self.cache.is_stamping(),
            Rest::Idle => self.is_idle(),
        }
    }

    /// Whether there is no work left but new requests.
    fn is_idle(&self) -> bool {
        !self.again && self.executor.in_flight() == 0 && self.cache.next_step().is_none()
    }

    /// Whether new requests wait. A machine that stops refuses them, so none waits for the end of a hold.
    #[inline]
    fn is_held(&self) -> bool {
        self.holds.any() && self.life < Life::Stopping
    }

    /// Whether sessions may read without the lock.
    fn may_publish(&self) -> bool {
        let as_simulated = self.one_at_a_time || self.cache.is_taped();
        // (A read without the lock does not look whether its volume is held.)
        let holds = self.is_held() || !self.holds.held().is_empty();
        let serves = !holds && self.life < Life::Stopping && self.cache.is_ready();
        // (A read without the lock waits for nobody.)
        !as_simulated && serves && !self.table.has_abandoned()
    }

    /// Allows or forbids sessions to read without the lock.
    fn update_published(&mut self) {
        let may = self.may_publish();
        self.readers.update(&mut self.cache, may);
    }

    /// Whether a request may be given to the machine.
    fn may_take_any(&self) -> bool {
        !self.is_held() && self.cache.has_room() && (!self.one_at_a_time || self.is_idle())
    }

    /// Whether this request may.
    fn may_take(&self, request: &Submission) -> bool {
        // (What is to be refused is entered into the table first.)
        self.may_take_any() && fits(&self.cache, &self.table, &self.holds, false, request)
    }

    /// Reports a timeout that has passed.
    pub fn pass_timeout(&mut self, now: Nanos) {
        if self.cache.poll_timeout().is_some_and(|at| at <= now) {
            self.cache.call(Call::Timeout(now));
        }
        self.drive(now);
    }

    /// When there is work although no bell rings.
    fn next_due(&self, clock: Clock) -> Option<Nanos> {
        let device = self.executor.devices().next_due().map(|at| clock.at(at));
        let machine = self.cache.poll_timeout();
        [device, machine].into_iter().flatten().min()
    }

    /// The answered requests of a session.
    pub fn take_done(
        &mut self,
        session: u32,
        done: &mut Vec<Done>,
        contents: &mut Vec<Contents>,
    ) -> u32 {
        let mailbox = self.table.session(session);
        match done.is_empty() {
            true => std::mem::swap(done, &mut mailbox.done),
            false => done.append(&mut mailbox.done),
        }
        contents.append(&mut mailbox.contents);
        mailbox.news = false;
        mailbox.in_flight
    }

    fn hand_in(&mut self, now: Nanos, id: RequestId) {
        if self.holds.holds_volume(self.table.request(id).volume) {
            return self.table.reply(id, Err(IoError::Shutdown));
        }
        let request = self.table.request(id).at(now);
        self.cache.call(Call::Request(id, request));
        self.again |= self.run(now);
    }

    /// One run of the executor; true if another may find more work.
    fn run(&mut self, now: Nanos) -> bool {
        let (in_order, hold) = (self.one_at_a_time, &mut self.lock_hold);
        let published = self.readers.published();
        let mut machine = Driven { cache: &mut self.cache, now, in_order, hold, published };
        self.executor.run(&mut machine, &mut self.table).more
    }

    /// Whether a write may have been acknowledged that memory alone holds.
    pub fn answers_from_memory(&self) -> bool {
        let config = self.cache.config();
        config.write_policy.write_back && config.acknowledge == Acknowledge::Dram
    }

    /// Whether flash has all that a stop must keep, so that it may end. Without a flash tier it never does;
    /// before the flush of a stop, what was answered from memory would be lost.
    pub fn is_safe_on_flash(&self) -> bool {
        let flushed = self.cache.flushed().is_some() || !self.answers_from_memory();
        flushed && self.cache.log_stats().is_some()
    }

    /// Whether a stop can keep all that clients were told is written, though the stores fail: flash keeps it, and
    /// in memory there is nothing that may have to go to a store.
    pub fn may_give_up_stores(&self) -> bool {
        let in_memory = self.answers_from_memory() && self.cache.dirty_in_memory() > 0;
        match self.cache.log_stats() {
            Some(_) => self.cache.flushed().is_some() || !in_memory,
            None => self.cache.dirty_blocks() == 0,
        }
    }

    /// What the devices have done.
    pub fn device_stats(&self) -> ExecutorStats {
        self.executor.stats()
    }

    /// Latencies of the devices' operations.
    pub fn device_latencies(&self) -> ComponentRecorder {
        self.executor.latencies().cloned().unwrap_or_default()
    }

    /// Forgets the latencies so far of the devices' operations.
    pub fn clear_device_latencies(&mut self) {
        if let Some(latencies) = self.executor.latencies_mut() {
            latencies.clear();
        }
    }

    /// Bytes of memory for what is read without the lock.
    pub fn published_bytes(&self) -> u64 {
        self.readers.published().map_or(0, Published::memory_bytes)
    }

    /// Latencies of all sessions, by volume.
    pub fn latency(&self) -> Vec<LatencyRecorder> {
        let mut sum = Vec::new();
        for latency in &self.latencies {
            add_latency(&mut sum, &latency.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }

    /// The bells of sessions with news, except the caller's own.
    pub fn wakes(&mut self, own: Option<u32>) -> Vec<Arc<Doorbell>> {
        let mut rings = Vec::new();
        for session in self.table.to_wake.drain(..) {
            if Some(session) != own {
                rings.extend(self.bells[session as usize].clone());
            }
        }
        rings
    }

    /// The lock is released.
    #[inline]
    pub fn end_lock_hold(&mut self) {
        self.lock_hold.end();
    }

    /// Whether the reaper has to wake sooner than it would.
    pub fn reaper_must_wake(&self, clock: Clock) -> bool {
        let sooner = match (self.next_due(clock), self.reaper_wakes_at) {
            (Some(due), Some(wakes)) => due < wakes,
            (Some(_), None) => true,
            (None, _) => false,
        };
        sooner || self.again
    }
}

/// Whether the machine has room for a request, nothing of it has to wait for a client that is gone, and its volume is
/// not held. A `stop` refuses requests to a held volume, and does not wait for room to do so.
fn fits(
    cache: &Cache,
    table: &Table,
    holds: &ClientHolds,
    stop: bool,
    request: &Submission,
) -> bool {
    match holds.holds_volume(request.volume) {
        true => stop,
        false => cache.has_room_for(request.volume) && !table.awaits_abandoned(request),
    }
}

fn add_latency(sum: &mut Vec<LatencyRecorder>, more: &[LatencyRecorder]) {
    if sum.len() < more.len() {
        sum.resize_with(more.len(), LatencyRecorder::coarse);
    }
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.add(more);
    }
}

#[cfg(test)]
pub(crate) mod tests;
