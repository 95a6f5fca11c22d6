//! The one clock of an engine.

use std::time::{Duration, Instant};

use forebay_block::Nanos;

/// Nanoseconds since the engine was opened: the time of the machine and of all latencies.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at 0 now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The current time, which never goes back.
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The moment at which the clock is at `time`.
    pub fn instant(&self, time: Nanos) -> Instant {
        self.origin + Duration::from_nanos(time.0)
    }

    /// The clock's time at `instant`; 0 for moments before its start.
    pub fn at(&self, instant: Instant) -> Nanos {
        Nanos(instant.saturating_duration_since(self.origin).as_nanos() as u64)
    }
}
