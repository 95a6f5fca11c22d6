//! The state that one lock protects: the machine, the executor, and the requests in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use forebay_block::{Nanos, Op, Volume};
use forebay_cache::{
    Acknowledge, Cache, Call, Notice, Open, StopTarget, VolumeConfig, WritePolicy,
};
use forebay_device::{Devices, Doorbell, Executor, Published};
use forebay_effect::{IoError, RequestId};
use forebay_flash::Sealed;
use forebay_results::LatencyRecorder;
use smallvec::smallvec;

use crate::clock::Clock;
use crate::devices::AnyDevices;
use crate::hits::Hits;
use crate::lock::Hold;
use crate::machine::Driven;
use crate::queries::Contents;
use crate::table::{Done, Loans, Submission, Table};
use crate::tape::{Recorder, TapedCache};
use crate::waiting::Waiting;

/// Parts in which latencies are recorded. A recorder takes 200 KiB: too much for each of many sessions.
pub(crate) const LATENCIES: usize = 8;

/// All state behind the lock.
pub(crate) struct Core {
    // First, so that no transfer is under way when the buffers of the table go.
    pub executor: Executor<AnyDevices>,
    pub cache: TapedCache,
    pub table: Table,
    pub bells: Vec<Option<Arc<Doorbell>>>,
    /// The reads that sessions have answered without the lock.
    pub hits: Vec<Arc<Hits>>,
    /// The frames that sessions may read without the lock; `None` if nothing can be lent.
    pub published: Option<Arc<Published>>,
    /// Latencies by volume, in a few parts, so that sessions seldom wait for each other.
    pub latencies: [Arc<Mutex<Vec<LatencyRecorder>>>; LATENCIES],
    /// Notices not yet taken by the threads that wait for them.
    pub notices: Vec<Notice>,
    pub life: Life,
    /// Requests that wait for room in the machine.
    waiting: Waiting,
    /// Whether all new requests have to wait.
    pub held: bool,
    /// A quiesce is in progress, and may hold nobody back yet.
    pub quiescing: bool,
    /// The quiesce that holds them. Only the order in progress changes it.
    pub quiesced: Option<Quiesced>,
    /// The stores' headers note how the stores were left: no stamps are requested.
    pub noted: bool,
    /// Why the last stamp of a store could not be written, since operators were told last.
    pub unstamped: BTreeMap<Volume, String>,
    /// Whether a request waits until all work for earlier ones has ended.
    pub one_at_a_time: bool,
    /// When the reaper wakes at the latest.
    pub reaper_wakes_at: Option<Nanos>,
    /// There may be more work to do at once.
    again: bool,
    /// How long the current thread has held the lock.
    pub hold: Hold,
}

/// A quiesce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiesced {
    /// When it began to hold requests back.
    pub since: Instant,
    /// When clients continue in any case.
    pub until: Option<Instant>,
}

/// How near the engine is to its end. It only comes nearer.
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
            published: executor.published(),
            executor,
            cache: TapedCache::new(cache, tape),
            table: Table::default(),
            bells: Vec::new(),
            hits: Vec::new(),
            latencies: Default::default(),
            notices: Vec::new(),
            life: Life::Serving,
            waiting: Waiting::default(),
            held: false,
            quiescing: false,
            quiesced: None,
            noted: false,
            unstamped: BTreeMap::new(),
            one_at_a_time: false,
            reaper_wakes_at: None,
            again: false,
            hold: Hold::default(),
        }
    }

    /// Attaches a volume, before the start.
    pub fn attach(&mut self, volume: VolumeConfig) {
        self.cache.call(Call::Attach(volume));
    }

    /// The store of this volume keeps stamps.
    pub fn keep_stamps(&mut self, volume: Volume) {
        self.cache.call(Call::KeepStamps(volume));
    }

    /// Starts the machine.
    pub fn start(&mut self, now: Nanos, open: Open) {
        self.cache.call(Call::Start(now, open));
        self.drive(now);
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
            let at_once = !self.waiting.has(session) && self.may_take(request.volume);
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

    /// Answers a read of one block in memory without entering it into the table. Returns `None` and
    /// does nothing for any other request. The tape is the same either way.
    fn read_hit(&mut self, now: Nanos, session: u32, r: &mut Submission) -> Option<Loans> {
        let request = r.at(now);
        let buffer =
            r.buffer.as_mut().filter(|b| r.op == Op::Read && b.len() as u64 >= r.length)?;
        let (frame, at) = self.cache.handle_hit(request, || self.table.next_id())?;
        let bytes = r.length as u32;
        self.publish(r.volume, r.offset, frame);
        let borrows = self.table.session(session).borrows;
        match borrows.then(|| self.executor.lend(frame, at, bytes)).flatten() {
            Some(loan) => Some(smallvec![loan]),
            None => {
                self.executor.copy_out(frame, at, bytes, buffer);
                Some(Loans::new())
            }
        }
    }

    /// Holds requests back, or lets them continue.
    pub fn hold(&mut self, held: bool, now: Nanos) {
        self.held = held;
        self.update_published();
        self.drive(now);
    }

    /// Whether the machine has requests in flight.
    pub fn is_busy(&self) -> bool {
        self.table.len() > self.waiting.len()
    }

    /// Requests a destage of everything.
    pub fn destage(&mut self, now: Nanos) {
        self.cache.call(Call::Destage);
        self.drive(now);
    }

    /// Retries failing stores now.
    pub fn retry_stores(&mut self, now: Nanos) {
        self.cache.call(Call::RetryStores);
        self.drive(now);
    }

    /// Requests another write policy.
    pub fn set_policy(&mut self, now: Nanos, policy: WritePolicy, acknowledge: Acknowledge) {
        self.cache.call(Call::SetPolicy(policy, acknowledge));
        self.drive(now);
    }

    /// Uses `blocks` blocks of DRAM from now on.
    pub fn set_dram_blocks(&mut self, now: Nanos, blocks: u32) {
        self.cache.call(Call::SetDramBlocks(blocks));
        self.drive(now);
    }

    /// Requests a seal.
    pub fn seal(&mut self, now: Nanos, volumes: Vec<Sealed>) {
        self.cache.call(Call::Seal(volumes));
        self.drive(now);
    }

    /// Requests stamps, if the stores may have them.
    pub fn stamp(&mut self, now: Nanos) {
        if !self.noted {
            self.order_stamps(now);
        }
    }

    /// Requests stamps.
    pub fn order_stamps(&mut self, now: Nanos) {
        self.cache.call(Call::Stamp);
        self.drive(now);
    }

    /// These stamps are on their stores; the others that were ordered with them are not.
    pub fn stamped(&mut self, now: Nanos, numbers: Vec<(Volume, u64)>) {
        self.cache.call(Call::Stamped(numbers));
        self.drive(now);
    }

    /// Older stores are complete.
    pub fn completed(&mut self, now: Nanos) {
        self.cache.call(Call::Completed);
        self.drive(now);
    }

    /// Announces a stop.
    pub fn prepare_stop(&mut self, now: Nanos) {
        self.life = self.life.max(Life::StopAnnounced);
        self.cache.call(Call::PrepareStop);
        self.drive(now);
    }

    /// Asks the machine to stop.
    pub fn stop(&mut self, now: Nanos, destage: bool) {
        self.life = self.life.max(Life::Stopping);
        let target = if destage { StopTarget::Stores } else { StopTarget::Flash };
        self.cache.call(Call::Stop(target));
        self.drive(now);
    }

    /// Performs the possible effects, reports completions, and accepts requests that waited for
    /// room.
    pub fn drive(&mut self, now: Nanos) {
        self.again = self.run(now);
        while self.may_take_any() {
            let (cache, table) = (&self.cache, &self.table);
            let fits = |id: RequestId| cache.has_room_for(table.request(id).volume);
            let Some(id) = self.waiting.pop(fits) else { break };
            self.hand_in(now, id);
            if self.hold.should_end() {
                self.again = true;
                break;
            }
        }
        self.cache.pause();
        while let Some(notice) = self.cache.poll_notice() {
            self.notices.push(notice);
        }
        self.update_published();
    }

    /// The engine has ended: answers all requests, so that no session waits for them.
    pub fn refuse_all(&mut self) {
        self.waiting = Waiting::default();
        self.table.refuse_all(IoError::Shutdown);
    }

    /// Whether there is more work to do at once.
    pub fn has_more(&self) -> bool {
        self.again || self.cache.is_half_way()
    }

    /// Whether there is no work left but new requests.
    pub fn is_idle(&self) -> bool {
        !self.again && self.executor.in_flight() == 0 && self.cache.next_step().is_none()
    }

    /// Whether a request may be given to the machine.
    fn may_take_any(&self) -> bool {
        !self.held && self.cache.has_room() && (!self.one_at_a_time || self.is_idle())
    }

    /// Whether a request of this volume may.
    fn may_take(&self, volume: Volume) -> bool {
        self.may_take_any() && self.cache.has_room_for(volume)
    }

    /// Reports a timeout that has passed.
    pub fn pass_timeout(&mut self, now: Nanos) {
        if self.cache.poll_timeout().is_some_and(|at| at <= now) {
            self.cache.call(Call::Timeout(now));
        }
        self.drive(now);
    }

    /// When there is work although no bell rings.
    pub fn next_due(&self, clock: Clock) -> Option<Nanos> {
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
        let request = self.table.request(id).at(now);
        self.cache.call(Call::Request(id, request));
        self.again |= self.run(now);
    }

    /// One run of the executor; true if another may find more work.
    fn run(&mut self, now: Nanos) -> bool {
        let (in_order, hold) = (self.one_at_a_time, &mut self.hold);
        let published = self.published.as_deref();
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

    /// Whether a stop can keep on flash all that clients were told is written, though the stores fail: in
    /// memory there is nothing that may have to go to a store.
    pub fn may_give_up_stores(&self) -> bool {
        let in_memory = self.answers_from_memory() && self.cache.dirty_in_memory() > 0;
        self.cache.log_stats().is_some() && (self.cache.flushed().is_some() || !in_memory)
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

fn add_latency(sum: &mut Vec<LatencyRecorder>, more: &[LatencyRecorder]) {
    if sum.len() < more.len() {
        sum.resize_with(more.len(), LatencyRecorder::coarse);
    }
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.add(more);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use forebay_block::Flags;
    use forebay_cache::CacheConfig;
    use forebay_device::{AlignedBuffer, Arena, Capabilities, Completion, HugePages, Io};
    use forebay_effect::Device;

    /// A device that ends everything at once and rings no bell.
    #[derive(Default)]
    struct Silent {
        ended: Vec<Completion>,
        /// How often somebody has asked what has ended.
        asked: Arc<AtomicU32>,
        /// Whether nothing ends.
        stuck: Arc<AtomicBool>,
    }

    impl Devices for Silent {
        fn capabilities(&self, _: Device) -> Option<Capabilities> {
            let (logical_block, memory_alignment) = (512, 512);
            let (zeroes, punches) = (false, false);
            Some(Capabilities { size: SIZE, logical_block, memory_alignment, zeroes, punches })
        }

        unsafe fn submit(&mut self, io: Io<'_>) {
            self.ended.push(Completion { tag: io.tag, result: Ok(io.length) });
        }

        fn reap(&mut self, done: &mut Vec<Completion>) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if !self.stuck.load(Ordering::Relaxed) {
                done.append(&mut self.ended);
            }
        }

        fn abandon(&mut self) {
            self.ended.clear();
        }
    }

    pub const SIZE: u64 = 4 << 20;

    /// One that has started, over such a device.
    pub fn started() -> Core {
        started_over(Silent::default(), CacheConfig::dram_only(4))
    }

    /// One with memory to lend, whose devices may be stuck.
    pub fn lending(config: CacheConfig) -> (Core, Arc<AtomicBool>) {
        let device = Silent::default();
        let stuck = device.stuck.clone();
        (started_over(device, config), stuck)
    }

    fn started_over(device: Silent, config: CacheConfig) -> Core {
        let arena = Arena::lending(config.frames(), 4096, HugePages::Never, 4).unwrap();
        let executor = Executor::new(AnyDevices::new(device), arena);
        let mut core = Core::new(executor, Cache::new(config), None);
        core.attach(VolumeConfig::new(SIZE));
        core.start(Nanos(0), Open::RECOVER);
        core
    }

    /// A write of the block with this number.
    pub fn write(tag: u64) -> Submission {
        let buffer = Some(AlignedBuffer::new(4096));
        let (volume, op, flags, offset) = (Volume(0), Op::Write, Flags::NONE, 4096 * tag);
        Submission { tag, volume, op, flags, offset, length: 4096, buffer }
    }

    #[test]
    fn all_that_was_held_back_goes_on_when_the_hold_ends() {
        let mut core = started();
        let clock = Clock::start();
        let session = core.table.open_session();
        core.hold(true, Nanos(1));
        core.submit(Nanos(1), session, &mut (0..3).map(write).collect());
        assert_eq!(core.table.session(session).in_flight, 3);
        core.hold(false, Nanos(2));
        while core.reaper_must_wake(clock) {
            core.pass_timeout(Nanos(2));
        }
        let mailbox = core.table.session(session);
        assert_eq!(
            (mailbox.in_flight, mailbox.done.len()),
            (0, 3),
            "some wait for another request"
        );
    }

    #[test]
    fn a_session_that_has_only_hits_does_not_work_for_others() {
        let device = Silent::default();
        let asked = device.asked.clone();
        let mut core = started_over(device, CacheConfig::dram_only(4));
        let session = core.table.open_session();
        core.submit(Nanos(1), session, &mut vec![write(0), write(1)]);
        let read = |block| Submission { op: Op::Read, ..write(block) };
        let before = asked.load(Ordering::Relaxed);
        core.submit(Nanos(2), session, &mut vec![read(0), read(1)]);
        assert_eq!(core.table.session(session).done.len(), 4);
        assert_eq!(asked.load(Ordering::Relaxed), before);
        core.submit(Nanos(3), session, &mut vec![read(0), read(9)]);
        assert_eq!(core.table.session(session).done.len(), 6);
        assert!(asked.load(Ordering::Relaxed) > before);
    }

    #[test]
    fn work_that_a_run_leaves_wakes_the_reaper() {
        let mut core = started();
        let clock = Clock::start();
        let session = core.table.open_session();
        // It goes through four blocks of memory, and each of them has to leave first.
        let length = 1 << 20;
        let buffer = Some(AlignedBuffer::new(length as usize));
        let (volume, op, flags) = (Volume(0), Op::Write, Flags::NONE);
        let write = Submission { tag: 1, volume, op, flags, offset: 0, length, buffer };
        core.submit(Nanos(1), session, &mut vec![write]);
        assert_eq!(core.table.session(session).in_flight, 1, "one run is not enough for it");
        while core.reaper_must_wake(clock) {
            core.pass_timeout(Nanos(2));
        }
        let mailbox = core.table.session(session);
        assert_eq!((mailbox.in_flight, mailbox.done.len()), (0, 1), "nobody goes on with it");
        assert_eq!(mailbox.done[0].result, Ok(()));
    }
}
