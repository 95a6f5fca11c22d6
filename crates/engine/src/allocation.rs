//! Answers clients that ask where a volume has data.
//!
//! The cache answers in microseconds under the engine's lock. A store may take long (a file system
//! may read metadata, a server may be far away). So each volume that is asked about has a thread,
//! started by the first question; it delays only other questions about the same volume.
//! [`forebay_cache::Holdings`] explains what counts as zeroes, and why the cache is asked before
//! the store.

use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_block::{Content, ContentRun};
use forebay_device::Holes;

use crate::core::Core;
use crate::queries::{Question, VolumeQueries};
use crate::shared::Shared;

/// Most calls of the cache for one answer; the client asks again for the rest.
const ROUNDS_MAX: u32 = 64;
/// How long a question waits before it is looked at again if it overlaps a change whose client is gone.
const ABANDONED_WAIT: Duration = Duration::from_millis(10);
/// After holding the engine's lock, the thread does not take it for this many times as long.
/// Otherwise a client that queries without pause would delay all reads and writes.
const PAUSES: u32 = 3;

/// Accepts a question, which has been counted as in flight.
pub(crate) fn ask(shared: &Arc<Shared>, question: Question) {
    let Some(queries) = shared.queries.0.get(question.volume.0 as usize) else {
        return shared.tell(&question, nothing_known(&question));
    };
    let mut state = queries.lock();
    if !state.open && !state.closed {
        let (queries, shared) = (queries.clone(), Arc::downgrade(shared));
        let thread = std::thread::Builder::new().name("forebay-contents".into());
        // Without a thread nothing is known.
        state.open = thread.spawn(move || work(&queries, &shared)).is_ok();
    }
    if !state.open || state.closed {
        drop(state);
        return shared.tell(&question, nothing_known(&question));
    }
    state.questions.push_back(question);
    drop(state);
    queries.wake.notify_one();
}

/// The thread's loop: it ends when the queries are closed and nothing is left to answer. It holds
/// the engine only briefly, so that it keeps none of the engine's devices open.
fn work(queries: &VolumeQueries, shared: &Weak<Shared>) {
    let mut state = queries.lock();
    let mut throttle = LockThrottle { until: Instant::now() };
    loop {
        let Some(question) = state.questions.pop_front() else {
            if state.closed {
                return;
            }
            state = queries.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let (holes, closed) = (state.holes.clone(), state.closed);
        drop(state);
        if !closed && awaits_abandoned(shared, &question, &mut throttle) {
            // Other questions about the volume come first.
            state = queries.lock();
            state.questions.push_back(question);
            let waited = queries.wake.wait_timeout(state, ABANDONED_WAIT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let runs = answer(shared, &question, holes.as_deref(), &mut throttle);
        if let Some(shared) = shared.upgrade() {
            shared.tell(&question, runs);
        }
        state = queries.lock();
    }
}

/// Pauses after each use of the engine's lock, as [`PAUSES`] says.
struct LockThrottle {
    /// When the lock may be taken again.
    until: Instant,
}

impl LockThrottle {
    /// Calls `what` with the engine locked.
    fn with_lock<T>(&mut self, engine: &Shared, what: impl FnOnce(&Core) -> T) -> T {
        let wait = self.until.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        let core = engine.lock_anyway();
        let began = Instant::now();
        let result = what(&core);
        drop(core);
        let ended = Instant::now();
        self.until = ended + PAUSES * (ended - began);
        result
    }
}

/// Whether the answer must wait, as a read of the range would, because a change that overlaps it is
/// in flight and its client is gone.
fn awaits_abandoned(
    shared: &Weak<Shared>,
    question: &Question,
    throttle: &mut LockThrottle,
) -> bool {
    let Question { volume, offset, length, .. } = *question;
    shared.upgrade().is_some_and(|engine| {
        throttle.with_lock(&engine, |core| core.awaits_abandoned(volume, offset, length))
    })
}

fn answer(
    shared: &Weak<Shared>,
    question: &Question,
    holes: Option<&dyn Holes>,
    throttle: &mut LockThrottle,
) -> Vec<ContentRun> {
    let mut runs = Vec::new();
    let (mut at, end) = (question.offset, question.offset + question.length);
    let mut store = |offset, length, found: &mut Vec<ContentRun>| {
        if let Some(holes) = holes {
            holes.find(offset, length, found);
        }
    };
    for _ in 0..ROUNDS_MAX {
        let Some(engine) = shared.upgrade() else { break };
        // The cache first; then the store, with the lock let go.
        let held = |core: &Core| core.cache().holdings(question.volume, at, end - at);
        let holdings = throttle.with_lock(&engine, held);
        drop(engine);
        at = holdings.resolve(question.runs_max, &mut store, &mut runs);
        if at == end || at < holdings.end() {
            break;
        }
    }
    runs
}

fn nothing_known(question: &Question) -> Vec<ContentRun> {
    vec![ContentRun { content: Content::Data, length: question.length }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::core::tests::{SIZE, lending, started, write};
    use crate::queries::{AllocationQueries, Contents};
    use crate::session::Session;
    use forebay_block::{Flags, Nanos, Volume};
    use forebay_cache::{CacheConfig, Held};
    use forebay_device::Doorbell;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    const BLOCK: u64 = 4096;

    /// A store that says how it was before all that happens while it is asked: empty.
    #[derive(Debug, Default)]
    struct Slow {
        engine: Mutex<Weak<Shared>>,
        asked: Mutex<Vec<(u64, u64)>>,
    }

    impl Holes for Slow {
        fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>) {
            self.asked.lock().unwrap().push((offset, length));
            // All that the cache holds leaves it: destaged, and evicted by others.
            let engine = self.engine.lock().unwrap().upgrade();
            if let Some(shared) = engine {
                let mut others = Session::open(shared.clone()).unwrap();
                let mut done = Vec::new();
                others.submit(&mut (512..520).map(write).collect(), &mut done);
                loop {
                    let mut core = shared.lock();
                    core.pass_timeout(Nanos(2));
                    let holdings = core.cache().holdings(Volume(0), BLOCK, BLOCK);
                    drop(core);
                    let left = holdings.runs().all(|run| run.0 == Held::Nothing);
                    if others.reap(&mut done) == 0 && left {
                        break;
                    }
                }
            }
            found.push(ContentRun { content: Content::Hole, length });
        }
    }

    fn opened(holes: Option<Arc<dyn Holes>>) -> Arc<Shared> {
        let bell = Arc::new(Doorbell::new().unwrap());
        Arc::new(Shared::new(started(), Clock::start(), bell, AllocationQueries::new([holes])))
    }

    fn ask(
        session: &mut Session,
        range: (Volume, u64, u64),
        runs_max: usize,
    ) -> Vec<(Content, u64)> {
        let (volume, offset, length) = range;
        session.ask_contents(7, volume, offset, length, runs_max);
        let mut done = Vec::new();
        while session.wait(None, &mut done) > 0 {}
        let contents: Vec<Contents> = session.contents().collect();
        assert_eq!((contents.len(), contents[0].tag, done.len()), (1, 7, 0));
        contents[0].runs.iter().map(|run| (run.content, run.length)).collect()
    }

    #[test]
    fn a_block_that_leaves_the_cache_while_the_store_is_asked_is_data() {
        let slow = Arc::new(Slow::default());
        let shared = opened(Some(slow.clone()));
        *slow.engine.lock().unwrap() = Arc::downgrade(&shared);
        let mut session = Session::open(shared.clone()).unwrap();
        session.submit(&mut vec![write(1)], &mut Vec::new());
        let told = ask(&mut session, (Volume(0), 0, 4 * BLOCK), 9);
        let right = [(Content::Hole, BLOCK), (Content::Data, BLOCK), (Content::Hole, 2 * BLOCK)];
        assert_eq!(told, right);
        let asked = slow.asked.lock().unwrap().clone();
        assert_eq!(
            asked,
            [(0, BLOCK), (2 * BLOCK, 2 * BLOCK)],
            "what is held is no matter of the store"
        );
        // Once it is there, the store is believed.
        *slow.engine.lock().unwrap() = Weak::new();
        assert_eq!(ask(&mut session, (Volume(0), BLOCK, BLOCK), 9), [(Content::Hole, BLOCK)]);
    }

    #[test]
    fn an_answer_comes_after_a_change_that_a_lost_client_left_behind() {
        let (core, stuck) = lending(CacheConfig::dram_only(4));
        let bell = Arc::new(Doorbell::new().unwrap());
        let slow: Arc<dyn Holes> = Arc::new(Slow::default());
        let queries = AllocationQueries::new([Some(slow)]);
        let shared = Arc::new(Shared::new(core, Clock::start(), bell, queries));
        let mut gone = Session::open(shared.clone()).unwrap();
        let mut session = Session::open(shared.clone()).unwrap();
        stuck.store(true, Ordering::Relaxed);
        let durable = write(0).with_flags(Flags::FUA);
        assert_eq!(gone.submit(&mut vec![durable], &mut Vec::new()), 1);
        gone.abandon();
        session.ask_contents(7, Volume(0), 0, 2 * BLOCK, 9);
        session.ask_contents(8, Volume(0), 2 * BLOCK, BLOCK, 9);
        let mut done = Vec::new();
        assert_eq!(session.wait(None, &mut done), 1, "only one overlaps the change");
        assert_eq!(session.contents().map(|c| c.tag).collect::<Vec<_>>(), [8]);
        stuck.store(false, Ordering::Relaxed);
        while gone.reap(&mut done) > 0 {
            shared.lock().pass_timeout(Nanos(3));
        }
        done.clear();
        while session.wait(None, &mut done) > 0 {}
        assert_eq!(session.contents().map(|c| c.tag).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn an_answer_has_no_more_runs_than_are_wanted() {
        let shared = opened(Some(Arc::new(Slow::default())));
        let mut session = Session::open(shared.clone()).unwrap();
        session.submit(&mut vec![write(1)], &mut Vec::new());
        let all = (Volume(0), 0, SIZE);
        assert_eq!(ask(&mut session, all, 1), [(Content::Hole, BLOCK)]);
        let two = [(Content::Hole, BLOCK), (Content::Data, BLOCK)];
        assert_eq!(ask(&mut session, all, 2), two);
        let told: u64 = ask(&mut session, all, 3).iter().map(|run| run.1).sum();
        assert_eq!(told, SIZE);
    }

    #[test]
    fn who_cannot_know_says_data() {
        for known in [None, Some(Arc::new(Slow::default()) as Arc<dyn Holes>)] {
            let shared = opened(known.clone());
            let mut session = Session::open(shared.clone()).unwrap();
            let all = [(Content::Data, SIZE)];
            if known.is_none() {
                assert_eq!(ask(&mut session, (Volume(0), 0, SIZE), 9), all);
            }
            assert_eq!(ask(&mut session, (Volume(5), 0, SIZE), 9), all, "no such volume");
            shared.queries.close();
            assert_eq!(ask(&mut session, (Volume(0), 0, SIZE), 9), all, "closed");
        }
    }
}
