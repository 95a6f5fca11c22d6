//! How a scenario is run.

use forebay_block::Nanos;

use crate::error::SimulateError;
use crate::outage::Outage;

/// How requests are paced, what is added to them, and what is kept of the run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// When requests arrive.
    pub pacing: Pacing,
    /// Flushes added to the trace.
    pub assume_flush: AssumeFlush,
    /// How the run is cut into rows.
    pub interval: Interval,
    /// Seed of the devices' random numbers.
    pub seed: u64,
    /// Backing stores that fail or are slow. Of two of a store at the same time, the first counts.
    pub outages: Vec<Outage>,
}

/// When requests arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pacing {
    /// When the trace says, `rate` times as fast. A request that the cache has no room for waits,
    /// and its latency counts from its arrival.
    OpenLoop {
        /// How many times faster than the trace; 1 is the trace's own speed.
        rate: f64,
    },
    /// As soon as fewer than `queue_depth` are in flight; the trace's times do not matter.
    ClosedLoop {
        /// Requests in flight.
        queue_depth: u32,
    },
    /// One request at a time, and the next one only when all work in the background has ended
    /// too; operations of devices end in the order in which they were begun. Any other driver
    /// that does the same makes the cache decide alike.
    Quiesced,
    /// Every operation of a device ends at once, in the order in which it was asked for. There
    /// are no latencies; hits and traffic are those of [`Pacing::Quiesced`].
    Untimed,
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing::OpenLoop { rate: 1.0 }
    }
}

impl Pacing {
    /// Its name in results.
    pub const fn name(&self) -> &'static str {
        match self {
            Pacing::OpenLoop { .. } => "open-loop",
            Pacing::ClosedLoop { .. } => "closed-loop",
            Pacing::Quiesced => "quiesced",
            Pacing::Untimed => "untimed",
        }
    }
}

/// Flushes that are added, because traces seldom carry them. They are not counted among the
/// workload's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AssumeFlush {
    /// None: only those in the trace.
    #[default]
    None,
    /// One each time that this many writes, trims and zeroings of a volume have passed.
    EveryWrites(u64),
    /// One when so much of the trace's time has passed since a volume's first write after its
    /// last flush.
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

/// How the run is cut into rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interval {
    /// By numbers of requests such that there are some hundred rows.
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
