//! The lock around the [`Core`], and what threads wait for.

use std::convert::Infallible;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_block::{ContentRun, Nanos, Volume};
use forebay_cache::Notice;
use forebay_device::{Devices, Doorbell, Sender};
use forebay_flash::Stamp;

use crate::clock::Clock;
use crate::core::{Core, Life};
use crate::lock::Waiters;
use crate::queries::{AllocationQueries, Contents, Question};

/// How often a thread that waits for a notice checks other things.
const WAIT_PERIOD: Duration = Duration::from_millis(100);

/// Work for the stamper.
pub(crate) enum Work {
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
    /// A notice has arrived.
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
        let sender = core.executor.devices_mut().send_apart();
        Shared {
            waiters: core.hold.waiters.clone(),
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
        self.lock_anyway().table.answer_contents(question.session, answer);
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

    /// Waits until stamps are to be written, until they are to be requested at `due`, or until the
    /// engine ends.
    pub fn wait_stamps(&self, due: Instant) -> Work {
        let mut core = self.lock_anyway();
        loop {
            if core.life == Life::Ended {
                return Work::Leave;
            }
            let at = core.notices.iter().position(|notice| matches!(notice, Notice::Stamp { .. }));
            if let Some(Notice::Stamp { stamps, release }) = at.map(|at| core.notices.remove(at)) {
                return Work::Write { stamps, release };
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Work::Ask;
            }
            core.wait(left);
        }
    }

    /// Wakes the threads that wait for a notice.
    pub fn wake_all(&self) {
        self.noticed.notify_all();
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
        mut look: impl FnMut(&Core) -> L,
        mut meanwhile: impl FnMut(L) -> ControlFlow<E>,
    ) -> Result<T, E> {
        let mut core = self.lock();
        loop {
            let found = core.notices.iter().enumerate().find_map(|(i, n)| Some((i, wanted(n)?)));
            if let Some((at, value)) = found {
                core.notices.remove(at);
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

    /// Unlocks until a notice arrives, or until the time is over.
    fn wait(&mut self, time: Duration) {
        let core = self.core.take().expect("the guard holds the lock");
        let waited = self.shared.noticed.wait_timeout(core, time);
        self.core = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
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
        let rings = core.wakes(self.session);
        let reaper = core.reaper_must_wake(self.shared.clock);
        let noticed = !core.notices.is_empty();
        let sender = self.shared.sender.as_ref().filter(|sender| sender.has_queued());
        core.hold.end();
        drop(core);
        for bell in rings {
            bell.ring();
        }
        if reaper {
            self.shared.bell.ring();
        }
        if noticed {
            self.shared.noticed.notify_all();
        }
        if let Some(sender) = sender {
            sender.send();
        }
    }
}
