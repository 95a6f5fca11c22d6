//! The lock around the [`Core`], and what threads wait for.

use std::convert::Infallible;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_block::{ContentRun, Nanos, Volume};
use forebay_cache::{Notice, Order};
use forebay_device::{Doorbell, Sender};
use forebay_flash::Stamp;

use crate::clock::Clock;
use crate::core::{Core, Life};
use crate::lock::Waiters;
use crate::news::Rest;
use crate::queries::{AllocationQueries, Contents, Question};

/// How often a thread that waits for news looks without any: whether another has panicked, and how far the work is that
/// it reports. No news is missed in between.
const WAIT_PERIOD: Duration = Duration::from_millis(100);

/// Work for the stamper.
pub(crate) enum StamperWork {
    /// Write these stamps.
    Write {
        /// By volume.
        stamps: Vec<(Volume, Stamp)>,
        /// Also declare the records of the volumes void.
        release: bool,
    },
    /// Request stamps: they are due.
    Ask,
    /// End: the engine ends.
    Leave,
}

/// The lock, and the state around it.
pub(crate) struct Shared {
    core: Mutex<Core>,
    waiters: Arc<Waiters>,
    /// There is [news](crate::news).
    noticed: Condvar,
    pub clock: Clock,
    /// Wakes the reaper.
    pub bell: Arc<Doorbell>,
    /// The questions about where volumes have data.
    pub queries: AllocationQueries,
    /// Sends queued operations to the kernel, without the lock.
    sender: Option<Arc<dyn Sender>>,
}

impl Shared {
    pub fn new(
        mut core: Core,
        clock: Clock,
        bell: Arc<Doorbell>,
        queries: AllocationQueries,
    ) -> Shared {
        let sender = core.send_apart();
        Shared {
            waiters: core.lock_waiters(),
            core: Mutex::new(core),
            noticed: Condvar::new(),
            clock,
            bell,
            queries,
            sender,
        }
    }

    /// Answers a question of a session.
    pub fn tell(&self, question: &Question, runs: Vec<ContentRun>) {
        let answer = Contents { tag: question.tag, runs };
        self.lock_anyway().answer_contents(question.session, answer);
    }

    /// Locks. A panic under the lock means that the machine's contract was broken. The next thread
    /// panics too, rather than serve from a machine in an unknown state.
    pub fn lock(&self) -> CoreGuard<'_> {
        let core = self.waiters.lock(&self.core);
        let core = core.expect("another thread panicked while it held the engine's lock");
        CoreGuard::new(self, core)
    }

    /// Locks for a session, whose own bell then need not ring.
    pub fn lock_for(&self, session: u32) -> CoreGuard<'_> {
        let mut core = self.lock();
        core.session = Some(session);
        core
    }

    /// Whether a thread has panicked under the lock; the next one that locks panics too.
    pub fn is_broken(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Locks, if the lock is free.
    pub fn try_lock(&self) -> Option<CoreGuard<'_>> {
        self.core.try_lock().ok().map(|core| CoreGuard::new(self, core))
    }

    /// Gives threads that wait for the lock the time to take it.
    pub fn let_others_lock(&self) {
        self.waiters.give_way();
    }

    /// Like [`Shared::lock`], for work that must end even after a panic.
    pub fn lock_anyway(&self) -> CoreGuard<'_> {
        CoreGuard::new(self, self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks, calls `act` with the time, and unlocks.
    pub fn with_core<T>(&self, act: impl FnOnce(&mut Core, Nanos) -> T) -> T {
        let mut core = self.lock();
        act(&mut core, self.clock.now())
    }

    /// Gives the machine an order.
    pub fn order(&self, order: Order) {
        self.with_core(|core, now| core.order(now, order));
    }

    /// Waits until stamps are to be written, until they are to be requested at `due`, or until the
    /// engine ends.
    pub fn wait_stamps(&self, due: Instant) -> StamperWork {
        let mut core = self.lock_anyway();
        loop {
            if core.life() == Life::Ended {
                return StamperWork::Leave;
            }
            let stamps = core.news().take_notice(|notice| match notice {
                Notice::Stamp { stamps, release } => Some((stamps.clone(), *release)),
                _ => None,
            });
            if let Some((stamps, release)) = stamps {
                return StamperWork::Write { stamps, release };
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return StamperWork::Ask;
            }
            core.wait(left);
        }
    }

    /// Waits for rest, as long as `goes_on` says so, and returns the locked core; `None` if it does not. `goes_on` is
    /// asked at each notice, at each change of the engine's life, and ten times a second.
    pub fn wait_for_rest(
        &self,
        rest: Rest,
        mut goes_on: impl FnMut(&Core) -> bool,
    ) -> Option<CoreGuard<'_>> {
        let mut core = self.lock();
        while !core.is_at(rest) {
            if !goes_on(&core) {
                return None;
            }
            core.news().add_awaited(rest);
            core.wait(WAIT_PERIOD);
            core.news().remove_awaited(rest);
            // Locks again, so that this thread notices if another has panicked.
            drop(core);
            core = self.lock();
        }
        Some(core)
    }

    /// Waits for a notice that `wanted` accepts, however long it takes.
    pub fn wait_for<T>(&self, wanted: impl FnMut(&Notice) -> Option<T>) -> T {
        let Ok(found) =
            self.wait_notice(wanted, |_| (), |()| ControlFlow::<Infallible>::Continue(()));
        found
    }

    /// Waits for a notice that `wanted` accepts. Ten times a second, `look` sees the core, and
    /// `meanwhile` gets what it returns, without the lock; that may end the wait with an error.
    pub fn wait_notice<T, L, E>(
        &self,
        mut wanted: impl FnMut(&Notice) -> Option<T>,
        look: impl FnMut(&Core) -> L,
        meanwhile: impl FnMut(L) -> ControlFlow<E>,
    ) -> Result<T, E> {
        self.wait_until(|core| core.news().take_notice(&mut wanted), look, meanwhile)
    }

    /// Waits until `found` returns something. It sees the core at each notice, at each change of the engine's life, and
    /// ten times a second. In between, `look` and `meanwhile` are called as by [`Shared::wait_notice`].
    pub fn wait_until<T, L, E>(
        &self,
        mut found: impl FnMut(&mut Core) -> Option<T>,
        mut look: impl FnMut(&Core) -> L,
        mut meanwhile: impl FnMut(L) -> ControlFlow<E>,
    ) -> Result<T, E> {
        let mut core = self.lock();
        loop {
            if let Some(value) = found(&mut core) {
                return Ok(value);
            }
            core.wait(WAIT_PERIOD);
            let seen = look(&core);
            drop(core);
            if let ControlFlow::Break(error) = meanwhile(seen) {
                return Err(error);
            }
            core = self.lock();
        }
    }
}

/// The locked core. When the guard is dropped, it unlocks the core, wakes the threads that have
/// news, and sends queued operations to the kernel.
pub(crate) struct CoreGuard<'a> {
    shared: &'a Shared,
    /// `None` only within [`CoreGuard::wait`] and the drop.
    core: Option<MutexGuard<'a, Core>>,
    /// The session that holds the lock.
    session: Option<u32>,
    /// The thread panicked before it locked, and cleans up.
    unwinds: bool,
}

impl<'a> CoreGuard<'a> {
    fn new(shared: &'a Shared, core: MutexGuard<'a, Core>) -> CoreGuard<'a> {
        let unwinds = std::thread::panicking();
        CoreGuard { shared, core: Some(core), session: None, unwinds }
    }

    /// Unlocks until there is news, or until the time is over, and wakes others as any unlocking does. Then the caller
    /// looks again what it waits for.
    fn wait(&mut self, time: Duration) {
        let mut core = self.core.take().expect("the guard holds the lock");
        let owed = OwedWakeups::take(&mut core, self.shared, self.session);
        let core = if owed.sender.is_some() {
            // It may take long, and then there may be news already.
            drop(core);
            owed.settle(self.shared);
            self.shared.core.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            // (Still under the lock, so that none of the news that follows is missed.)
            owed.settle(self.shared);
            let waited = self.shared.noticed.wait_timeout(core, time);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        self.core = Some(core);
    }
}

impl Deref for CoreGuard<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("the guard holds the lock")
    }
}

impl DerefMut for CoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("the guard holds the lock")
    }
}

impl Drop for CoreGuard<'_> {
    fn drop(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        if std::thread::panicking() && !self.unwinds {
            // The core is in an unknown state: it is only unlocked.
            return;
        }
        let owed = OwedWakeups::take(&mut core, self.shared, self.session);
        drop(core);
        owed.settle(self.shared);
    }
}

/// What a thread owes others once it has unlocked the core.
#[must_use]
struct OwedWakeups<'a> {
    /// Bells of sessions with news.
    rings: Vec<Arc<Doorbell>>,
    /// The reaper has to wake sooner than it would.
    reaper: bool,
    /// Threads that wait have to look again.
    news: bool,
    /// Has operations that the kernel has not got yet.
    sender: Option<&'a Arc<dyn Sender>>,
}

impl<'a> OwedWakeups<'a> {
    /// What the thread owes that is about to unlock the core, for a session if it has one.
    #[inline]
    fn take(core: &mut Core, shared: &'a Shared, session: Option<u32>) -> OwedWakeups<'a> {
        core.end_lock_hold();
        OwedWakeups {
            rings: core.wakes(session),
            reaper: core.reaper_must_wake(shared.clock),
            news: core.take_news(),
            sender: shared.sender.as_ref().filter(|sender| sender.has_queued()),
        }
    }

    /// Wakes them all. The core is unlocked, if there is anything to send.
    #[inline]
    fn settle(self, shared: &Shared) {
        for bell in self.rings {
            bell.ring();
        }
        if self.reaper {
            shared.bell.ring();
        }
        if self.news {
            shared.noticed.notify_all();
        }
        if let Some(sender) = self.sender {
            sender.send();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_holds::ClientHolds;
    use crate::core::tests::{lending, started, write};
    use crate::session::Session;
    use crate::table::Submission;
    use forebay_block::Op;
    use forebay_cache::{CacheConfig, StopTarget};
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;

    /// Longer than any test that passes.
    const LONG: Duration = Duration::from_secs(60);

    fn shared(core: Core) -> Arc<Shared> {
        let bell = Arc::new(Doorbell::new().unwrap());
        Arc::new(Shared::new(core, Clock::start(), bell, AllocationQueries::new([None])))
    }

    /// Has a thread begin to wait, calls `act`, and returns how long the thread has waited.
    fn waited(
        shared: &Shared,
        begin: impl FnOnce(&mut Core) + Send,
        act: impl FnOnce(),
    ) -> Duration {
        std::thread::scope(|scope| {
            let (waits, begun) = channel();
            let thread = scope.spawn(move || {
                let mut core = shared.lock();
                begin(&mut core);
                waits.send(()).unwrap();
                let since = Instant::now();
                core.wait(LONG);
                since.elapsed()
            });
            begun.recv().unwrap();
            // (The lock is free only once the thread waits.)
            drop(shared.lock());
            act();
            thread.join().unwrap()
        })
    }

    #[test]
    fn a_thread_that_waits_for_rest_is_woken_by_what_ends_the_work() {
        let (core, stuck) = lending(CacheConfig::dram_only(4));
        let shared = shared(core);
        let mut session = Session::open(shared.clone()).unwrap();
        stuck.store(true, Ordering::Relaxed);
        session.submit(&mut vec![Submission { op: Op::Read, ..write(1) }], &mut Vec::new());
        let waits = |core: &mut Core| {
            assert!(!core.is_at(Rest::Unused), "it has ended at once");
            core.news().add_awaited(Rest::Unused);
        };
        let took = waited(&shared, waits, || {
            stuck.store(false, Ordering::Relaxed);
            shared.with_core(Core::pass_timeout);
        });
        assert!(took < LONG);
        assert!(shared.wait_for_rest(Rest::Unused, |_| false).is_some());
        session.reap(&mut Vec::new());
    }

    #[test]
    fn a_thread_that_waits_learns_that_a_stop_is_announced_and_that_the_engine_ends() {
        let shared = shared(started());
        let took = waited(&shared, |_| (), || shared.order(Order::PrepareStop));
        assert!(took < LONG);
        let took = waited(&shared, |_| (), || _ = shared.lock().end());
        assert!(took < LONG);
    }

    #[test]
    fn requests_wake_no_thread_that_waits_for_something_else() {
        let shared = shared(started());
        let mut session = Session::open(shared.clone()).unwrap();
        let mut answer = || {
            session.submit(&mut vec![write(1)], &mut Vec::new());
            assert_eq!(session.in_flight(), 0);
            shared.lock().take_news()
        };
        assert!(!answer());
        shared.lock().news().add_awaited(Rest::Idle);
        assert!(answer(), "now one waits for the end of the work");
        let ready = |notice: &Notice| matches!(notice, Notice::Ready(_)).then_some(());
        assert!(
            shared.lock().news().take_notice(ready).is_some(),
            "there was a notice all the time"
        );
    }

    #[test]
    fn a_thread_that_waits_wakes_others_first_as_if_it_had_unlocked() {
        let (core, stuck) = lending(CacheConfig::dram_only(4));
        let shared = shared(core);
        let mut session = Session::open(shared.clone()).unwrap();
        stuck.store(true, Ordering::Relaxed);
        session.submit(&mut vec![Submission { op: Op::Read, ..write(1) }], &mut Vec::new());
        stuck.store(false, Ordering::Relaxed);
        let mut core = shared.lock();
        core.pass_timeout(Nanos(9));
        assert!(!session.bell().seems_rung());
        core.wait(Duration::ZERO);
        assert!(
            session.bell().seems_rung(),
            "its request is answered, and it does not learn of it"
        );
        drop(core);
        session.reap(&mut Vec::new());
    }

    #[test]
    fn a_machine_that_stops_refuses_what_is_held_back() {
        let shared = shared(started());
        let mut session = Session::open(shared.clone()).unwrap();
        let mut done = Vec::new();
        shared.with_core(|core, now| core.change_holds(now, ClientHolds::begin_quiesce));
        session.submit(&mut vec![write(1)], &mut done);
        assert!(done.is_empty(), "it is held back");
        shared.order(Order::Stop(StopTarget::Stores));
        session.reap(&mut done);
        assert!(done.len() == 1 && done[0].result.is_err());
        assert!(shared.lock().holds().quiesced().is_some(), "its headers still say complete");
    }
}
