//! Replays traces and generates load, against real targets.
//!
//! A run takes requests from a [`Feed`] in their order, fits them onto a [`Target`] (a file, a
//! block device, an NBD export, our own cache in this process) as a [`Placement`] says, sends
//! them at the workload's times or as fast as the queue has room, and measures. What it reports
//! is a [`RealRun`]: the fields of a simulation, and what only a real run has.
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
//! What must always hold: the queue never holds more requests than its depth, and none is
//! dropped; each is completed exactly once; nothing is written to a target before the whole
//! workload is known to fit onto it and writing was allowed; no clock but the run's is read.

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

/// A run that is ready to go.
pub struct Run<'a> {
    /// The clock that the targets know.
    pub clock: SystemClock,
    /// The requests.
    pub feed: Feed,
    /// Where they go.
    pub placement: Placement,
    /// How.
    pub options: RunOptions,
    /// What to listen to, and whom to tell.
    pub hooks: Hooks<'a>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub result: RealRun,
    /// What stopped it, if anything did before its end.
    pub error: Option<ReplayError>,
    /// What was written, if that was to be kept track of and there was one submitter.
    pub written: Option<Written>,
}

impl Run<'_> {
    /// Runs to the end: one submitter for each of `targets`, which share the requests. With one
    /// they are sent in their order.
    pub fn go(self, targets: &mut [&mut (dyn Target + Send)]) -> Finished {
        let Run { clock, feed, placement, options, hooks } = self;
        // The time until then would count as time that the target waited for the reader.
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
                // A feed of our own would keep the reader going after everybody has left.
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
