//! The lock around the [`Core`], and what threads wait for.

use std::ops::ControlFlow;
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
        let mut core = self.lock_anyway();
        let answer = Contents { tag: question.tag, runs };
        core.table.answer_contents(question.session, answer);
        self.unlock(core, None);
    }

    /// Locks. A panic under the lock means that the machine's contract was broken. The next thread
    /// panics too, rather than serve from a machine in an unknown state.
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        self.waiters
            .lock(&self.core)
            .expect("another thread panicked while it held the engine's lock")
    }

    /// Whether a thread has panicked under the lock; the next one that locks panics too.
    pub fn is_broken(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Locks, if the lock is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock().ok()
    }

    /// Gives threads that wait for the lock the time to take it.
    pub fn let_others_lock(&self) {
        self.waiters.give_way();
    }

    /// Like [`Shared::lock`], for work that must end even after a panic.
    pub fn lock_anyway(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks, then wakes the threads that have news, and sends queued operations to the kernel.
    pub fn unlock(&self, mut core: MutexGuard<'_, Core>, own: Option<u32>) {
        let rings = core.wakes(own);
        let reaper = core.reaper_must_wake(self.clock);
        let noticed = !core.notices.is_empty();
        let sender = self.sender.as_ref().filter(|sender| sender.has_queued());
        core.hold.end();
        drop(core);
        for bell in rings {
            bell.ring();
        }
        if reaper {
            self.bell.ring();
        }
        if noticed {
            self.noticed.notify_all();
        }
        if let Some(sender) = sender {
            sender.send();
        }
    }

    /// Locks, calls `act` with the time, and unlocks.
    pub fn with_core<T>(&self, act: impl FnOnce(&mut Core, Nanos) -> T) -> T {
        let mut core = self.lock();
        let result = act(&mut core, self.clock.now());
        self.unlock(core, None);
        result
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
            let waited = self.noticed.wait_timeout(core, left);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the threads that wait for a notice.
    pub fn wake_all(&self) {
        self.noticed.notify_all();
    }

    /// Waits for a notice that `wanted` accepts, and calls `meanwhile` ten times a second; `None`
    /// when that ends the wait.
    pub fn wait_notice<T>(
        &self,
        mut wanted: impl FnMut(&Notice) -> Option<T>,
        mut meanwhile: impl FnMut(&Core) -> ControlFlow<()>,
    ) -> Option<T> {
        let mut core = self.lock();
        loop {
            let found = core.notices.iter().enumerate().find_map(|(i, n)| Some((i, wanted(n)?)));
            if let Some((at, value)) = found {
                core.notices.remove(at);
                return Some(value);
            }
            let waited = self.noticed.wait_timeout(core, WAIT_PERIOD);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
            if meanwhile(&core).is_break() {
                return None;
            }
        }
    }
}
