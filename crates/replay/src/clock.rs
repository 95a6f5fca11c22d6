//! The clock of a run.

use std::time::{Duration, Instant};

use forebay_block::Nanos;

/// Tells the time. A run reads no other clock, so tests can supply their own.
pub trait Clock {
    /// Nanoseconds since the clock was started; never decreases.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock, counted from [`start`](SystemClock::start).
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Starts a clock at 0. Copies of it show the same time.
    pub fn start() -> SystemClock {
        SystemClock { origin: Instant::now() }
    }

    /// The moment at which the clock shows `time`.
    pub fn instant(&self, time: Nanos) -> Instant {
        let since = Duration::from_nanos(time.0);
        self.origin.checked_add(since).unwrap_or_else(|| self.origin + Duration::from_secs(1 << 32))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
