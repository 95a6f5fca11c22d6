//! Fair access to the engine's lock.
//!
//! Under the lock, a thread may need half a millisecond for the completions that have arrived. It
//! releases the lock between two completions if another thread has waited for a while.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long a thread that could release the lock lets others wait at most.
const LOCK_WAIT_MAX: Duration = Duration::from_micros(20);
/// How long a thread polls the lock before it sleeps until the lock is free.
const SPIN: Duration = Duration::from_micros(20);
/// How long a thread with more work lets others take the lock first at most.
const YIELD_MAX: Duration = Duration::from_micros(200);

/// Threads that wait for the lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters(AtomicU32);

impl Waiters {
    /// Locks.
    pub fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> LockResult<MutexGuard<'a, T>> {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let guard = spin(mutex).unwrap_or_else(|| mutex.lock());
        self.0.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Gives waiting threads the time to take the lock. (The mutex is not fair: a thread that
    /// unlocks it and locks it again at once mostly succeeds.)
    pub fn give_way(&self) {
        let until = Instant::now() + YIELD_MAX;
        while self.any() && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// None if another thread holds it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<LockResult<MutexGuard<'_, T>>> {
    match mutex.try_lock() {
        Ok(guard) => Some(Ok(guard)),
        Err(TryLockError::Poisoned(error)) => Some(Err(error)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks if the lock becomes free soon.
fn spin<T>(mutex: &Mutex<T>) -> Option<LockResult<MutexGuard<'_, T>>> {
    let until = Instant::now() + SPIN;
    while Instant::now() < until {
        let guard = try_lock(mutex);
        if guard.is_some() {
            return guard;
        }
        std::hint::spin_loop();
    }
    None
}

/// What the thread that holds the lock knows about waiting threads.
#[derive(Debug, Default)]
pub(crate) struct LockHold {
    pub waiters: Arc<Waiters>,
    /// Since when it has known of waiting threads.
    since: Option<Instant>,
}

impl LockHold {
    /// Whether others have waited long enough.
    pub fn should_end(&mut self) -> bool {
        if !self.waiters.any() {
            self.since = None;
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= LOCK_WAIT_MAX
    }

    /// The lock is released.
    pub fn end(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_should_end_only_while_others_wait_and_have_waited_for_a_while() {
        let mut hold = LockHold::default();
        std::thread::sleep(LOCK_WAIT_MAX);
        assert!(!hold.should_end(), "nobody waits");
        hold.waiters.0.store(1, Ordering::Relaxed);
        hold.should_end();
        std::thread::sleep(LOCK_WAIT_MAX);
        assert!(hold.should_end());
        hold.end();
        assert!(hold.since.is_none());
        hold.should_end();
        hold.waiters.0.store(0, Ordering::Relaxed);
        std::thread::sleep(LOCK_WAIT_MAX);
        assert!(!hold.should_end(), "those that waited have had it");
    }

    #[test]
    fn a_thread_that_waits_is_counted_until_it_has_the_lock() {
        let (mutex, waiters) = (Mutex::new(0), Waiters::default());
        std::thread::scope(|threads| {
            let guard = mutex.lock().unwrap();
            threads.spawn(|| *waiters.lock(&mutex).unwrap() += 1);
            while !waiters.any() {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert!(!waiters.any());
        assert_eq!(*waiters.lock(&mutex).unwrap(), 1);
    }

    #[test]
    fn a_panic_under_the_lock_is_an_error_for_all_that_wait_and_come() {
        let (mutex, waiters) = (Mutex::new(0), Waiters::default());
        std::thread::scope(|threads| {
            let guard = waiters.lock(&mutex).unwrap();
            let waiting = threads.spawn(|| waiters.lock(&mutex).is_err());
            while !waiters.any() {
                std::thread::yield_now();
            }
            let holder = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _held = guard;
                panic!("as expected");
            }));
            assert!(holder.is_err() && waiting.join().unwrap());
        });
        assert!(waiters.lock(&mutex).is_err());
    }
}
