//! The one clock of an engine.

use std::time::{Duration, Instant};

use forebay_block::Nanos;

/// Nanoseconds since the engine was opened. The machine's time, and that of every latency.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that shows 0 now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time, never going back.
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The moment at which the clock shows `time`.
    pub fn instant(&self, time: Nanos) -> Instant {
        self.origin + Duration::from_nanos(time.0)
    }

    /// What the clock shows at `instant`; 0 for moments before its start.
    pub fn at(&self, instant: Instant) -> Nanos {
        Nanos(instant.saturating_duration_since(self.origin).as_nanos() as u64)
    }
}
