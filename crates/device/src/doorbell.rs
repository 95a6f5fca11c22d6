//! An eventfd that wakes the thread waiting for completions.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// How long before its deadline a wait stops sleeping and polls: about as late as a timer fires.
const SPIN: Duration = Duration::from_micros(15);

/// Asks the kernel to end this thread's sleeps on time, instead of up to 50 µs late to save
/// wake-ups (`PR_SET_TIMERSLACK`).
pub fn precise_timers() {
    // SAFETY: a system call without pointers; if refused, sleeps end as late as before.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Rings when an operation completes; the thread that reaps waits for it. Rings are not counted:
/// any number of them before a wait wake it once.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    /// Whether the bell has probably rung and was not cleared.
    rung: AtomicBool,
}

impl Doorbell {
    /// A new bell.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { fd, rung: AtomicBool::new(false) })
    }

    /// Wakes the waiter, or lets its next wait return at once.
    pub fn ring(&self) {
        self.rung.store(true, Ordering::Relaxed);
        // A full counter (EAGAIN) means that the bell has rung already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Waits until the bell rings or `until` has passed (`None`: without limit), and clears it.
    /// Returns whether it rang. May return early without a ring.
    ///
    /// The last 15 µs before `until` are spent polling, because a sleep ends late. A thread that
    /// waits for shaped devices should call [`precise_timers`] first.
    pub fn wait(&self, until: Option<Instant>) -> bool {
        let sleep_until = until.map(|until| until.checked_sub(SPIN).unwrap_or(until));
        if self.sleep(sleep_until) {
            return true;
        }
        while until.is_some_and(|until| Instant::now() < until) {
            if self.clear() {
                return true;
            }
            std::hint::spin_loop();
        }
        self.clear()
    }

    fn sleep(&self, until: Option<Instant>) -> bool {
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs().min(1 << 30) as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let ready = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.as_ref());
        ready.is_ok_and(|ready| ready > 0) && self.clear()
    }

    /// Whether the bell has rung and was not cleared, as far as is known without a system call. May
    /// return false although the bell has rung.
    pub fn seems_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Acknowledges the rings so far: [`seems_rung`](Self::seems_rung) returns false until the bell
    /// rings again. Does not clear the bell: other threads may wait for it.
    pub fn heed(&self) {
        if self.seems_rung() {
            self.rung.store(false, Ordering::Relaxed);
        }
    }

    /// Clears the bell without waiting. Returns whether it had rung.
    pub fn clear(&self) -> bool {
        self.rung.store(false, Ordering::Relaxed);
        rustix::io::read(&self.fd, &mut [0; 8]) == Ok(8)
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_before_a_wait_are_not_lost_and_wake_it_once() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        bell.ring();
        assert!(bell.wait(None));
        assert!(!bell.wait(Some(Instant::now())));
    }

    #[test]
    fn a_ring_from_another_thread_ends_an_endless_wait() {
        let bell = std::sync::Arc::new(Doorbell::new().unwrap());
        let other = bell.clone();
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            other.ring();
        });
        assert!(bell.wait(None));
        ringer.join().unwrap();
    }
}
