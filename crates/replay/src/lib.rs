//! Replays traces and generates load on real targets.
//!
//! A run takes requests in order from a [`Feed`], maps them to a [`Target`] (a file, a block
//! device, an NBD export, or Forebay's own cache in this process) with a [`Placement`], sends them
//! at the workload's times or as soon as the queue has room, and measures. It reports a
//! [`RealRun`]: the fields of a simulation, and fields that only a real run has.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use forebay_replay::*;
//! use forebay_trace::{Spec, Synth};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("disk.img");
//!
//! let clock = SystemClock::start();
//! let options = BlockOptions { paths: vec![path], create_bytes: Some(1 << 20), ..Default::default() };
//! let mut target = BlockTarget::open(&options, clock)?;
//! let spec = Spec::parse("uniform:blocks=256,requests=1000,write=0.5")?;
//! let mut survey = Survey::default();
//! Synth::new(&spec)?.for_each(|request| survey.add(&request));
//! let allowed = PlacementOptions { writes: Writes::Allowed, ..Default::default() };
//! let placement = Placement::new(&survey.volumes, target.volumes(), target.limits(), allowed)?;
//! let run = Run {
//!     clock,
//!     feed: Feed::start(Synth::new(&spec)?),
//!     placement,
//!     options: RunOptions { pace: Pace::AsFastAsPossible, ..Default::default() },
//!     hooks: Hooks { stop: &AtomicBool::new(false), progress: &|_| {} },
//! };
//! let finished = run.go(&mut [&mut target]);
//! assert_eq!(finished.result.run.requests, 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: the queue never holds more requests than its depth, and no request is dropped; each
//! request completes exactly once; a run writes nothing to a target before it knows that the whole
//! workload fits and that writing is allowed; it reads no clock other than its own.

mod at_stake;
mod clock;
mod content;
mod error;
mod ledger;
mod placement;
mod record;
mod result;
mod run;
mod source;
mod survey;
mod target;
mod usage;
mod verify;
mod watch;
mod workload;

pub use at_stake::{at_stake, local_paths};
pub use clock::{Clock, SystemClock};
pub use content::{Content, SECTOR_BYTES};
pub use error::ReplayError;
pub use placement::{Adjusted, Placed, Placement, PlacementOptions, Writes, targets_of};
pub use record::{Interval, Intervals, QueueResult};
pub use result::{Operations, RealRun, Throughput};
pub use run::{End, Hooks, Pace, RunOptions};
pub use source::{Feed, Next, Source};
pub use survey::{Survey, VolumeSurvey};
pub use target::block::{BlockOptions, BlockTarget};
pub use target::engine::{EngineHost, EngineTarget};
pub use target::nbd::{NbdOptions, NbdTarget};
pub use target::{Abilities, Done, Io, Limits, Target, TargetInfo, TargetVolume};
pub use usage::{Machine, Usage};
pub use verify::{Difference, Verified, VerifyResult, Written};
pub use workload::{Length, Workload, at_rate};

/// A run that is ready to start.
pub struct Run<'a> {
    /// The clock of the run, the same one that the targets use.
    pub clock: SystemClock,
    /// The requests.
    pub feed: Feed,
    /// Where the requests go on the target.
    pub placement: Placement,
    /// How the requests are sent.
    pub options: RunOptions,
    /// How the caller stops the run and learns of its progress.
    pub hooks: Hooks<'a>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Finished {
    /// The measurements.
    pub result: RealRun,
    /// The error that ended the run early, if any.
    pub error: Option<ReplayError>,
    /// What was written, if [`RunOptions::track`] was set and there was only one submitter.
    pub written: Option<Written>,
}

impl Run<'_> {
    /// Runs to the end, with one submitter for each of `targets`. The submitters share the
    /// requests; a single submitter sends them in order.
    pub fn go(self, targets: &mut [&mut (dyn Target + Send)]) -> Finished {
        let Run { clock, feed, placement, options, hooks } = self;
        // Otherwise the time until the first request is read would count as time that the target
        // waited for the reader.
        feed.wait_for_first(hooks.stop);
        let before = Usage::now();
        let mut panicked = false;
        let mut outcomes = match targets {
            [only] => {
                let mut feed = feed;
                vec![run::run_job(&mut **only, &clock, &mut feed, placement, &options, hooks)]
            }
            targets => std::thread::scope(|scope| {
                let (clock, options) = (&clock, &options);
                let threads: Vec<_> = targets
                    .iter_mut()
                    .map(|target| {
                        let (mut feed, placement) = (feed.share(), placement.clone());
                        scope.spawn(move || {
                            run::run_job(&mut **target, clock, &mut feed, placement, options, hooks)
                        })
                    })
                    .collect();
                // A feed kept here would keep the reader running after all submitters have ended.
                drop(feed);
                let joined = threads.into_iter().map(|thread| thread.join());
                joined.filter_map(|o| o.inspect_err(|_| panicked = true).ok()).collect()
            }),
        };
        let result = result::assemble(&mut outcomes, &options, before);
        let written = match &mut outcomes[..] {
            [only] => only.ledger.take().map(|ledger| Written {
                ledger,
                content: Content::new(options.seed),
                reads: std::mem::take(&mut only.reads),
            }),
            _ => None,
        };
        let mut error = panicked.then_some(ReplayError::Panicked);
        for outcome in outcomes {
            if let End::Failed(e) = outcome.end {
                error.get_or_insert(e);
            }
        }
        Finished { result, error, written }
    }
}
