//! How a scenario is run.

use forebay_block::Nanos;

use crate::error::SimulateError;
use crate::outage::Outage;

/// How requests are paced, which flushes are added, and how the run is reported.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// When requests arrive.
    pub pacing: Pacing,
    /// Flushes added to the trace.
    pub assume_flush: AssumeFlush,
    /// How the run is divided into rows.
    pub interval: Interval,
    /// Seed of the devices' random numbers.
    pub seed: u64,
    /// Backing stores that fail or are slow. If two outages of a store overlap, the first in this
    /// list applies.
    pub outages: Vec<Outage>,
}

/// When requests arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pacing {
    /// At the trace's times, `rate` times as fast. A request that the cache has no room for waits,
    /// and its latency counts from its arrival.
    OpenLoop {
        /// Speed relative to the trace; 1 is the trace's own speed.
        rate: f64,
    },
    /// As soon as fewer than `queue_depth` requests are in flight; the trace's times do not matter.
    ClosedLoop {
        /// Maximum number of requests in flight.
        queue_depth: u32,
    },
    /// One request at a time, and the next one only when all background work has ended too;
    /// device operations end in the order in which they began. Any other driver that does the same
    /// gets the same decisions from the cache.
    Quiesced,
    /// One request at a time; every device operation ends immediately, in the order in which the
    /// cache requested it. There are no latencies; hits and traffic are those of
    /// [`Pacing::Quiesced`].
    Untimed,
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing::OpenLoop { rate: 1.0 }
    }
}

impl Pacing {
    /// The name of the pacing in results.
    pub const fn name(&self) -> &'static str {
        match self {
            Pacing::OpenLoop { .. } => "open-loop",
            Pacing::ClosedLoop { .. } => "closed-loop",
            Pacing::Quiesced => "quiesced",
            Pacing::Untimed => "untimed",
        }
    }
}

/// Flushes to add, because traces seldom contain them. Added flushes do not count as requests of
/// the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AssumeFlush {
    /// Adds none: only the trace's own flushes.
    #[default]
    None,
    /// Adds a flush after every this many writes, trims and zeroings of a volume.
    EveryWrites(u64),
    /// Adds a flush when this much of the trace's time has passed since a volume's first write
    /// after its last flush.
    Every(Nanos),
}

impl std::fmt::Display for AssumeFlush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AssumeFlush::None => f.write_str("none"),
            AssumeFlush::EveryWrites(n) => write!(f, "every {n} writes"),
            AssumeFlush::Every(time) => write!(f, "{} s after a write", time.as_secs_f64()),
        }
    }
}

/// How the run is divided into rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interval {
    /// By number of requests, chosen such that there are a few hundred rows.
    #[default]
    Adaptive,
    /// By time.
    Time(Nanos),
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), SimulateError> {
        let bad = |what| Err(SimulateError::Options(what));
        match self.pacing {
            Pacing::OpenLoop { rate } if !(rate.is_finite() && rate > 0.0) => {
                return bad("the rate of a replay must be above 0");
            }
            Pacing::ClosedLoop { queue_depth: 0 } => {
                return bad("the queue depth must be at least 1");
            }
            Pacing::Quiesced | Pacing::Untimed if !self.outages.is_empty() => {
                return bad("outages need the trace's timestamps or a queue depth");
            }
            _ => {}
        }
        match (self.assume_flush, self.interval) {
            (AssumeFlush::EveryWrites(0), _) => {
                bad("the number of writes between flushes must be \
                                                     at least 1")
            }
            (AssumeFlush::Every(Nanos(0)), _) => bad("the time between flushes must be above 0 \
                                                      seconds"),
            (_, Interval::Time(Nanos(0))) => {
                bad("the time per row (interval) must be longer than 0 seconds")
            }
            _ => Ok(()),
        }
    }
}
