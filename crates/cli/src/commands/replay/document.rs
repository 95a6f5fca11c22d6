//! A run for programs: the JSON document.

use forebay_replay::{Machine, RealRun, TargetInfo, VerifyResult};
use forebay_results::TraceIdentity;
use serde::Serialize;

use super::target::TargetArgs;

/// A run as it is reported.
#[derive(Serialize)]
pub struct Document {
    #[serde(flatten)]
    pub result: RealRun,
    /// What reading back has found, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
    /// Which requests these were.
    pub trace: TraceIdentity,
    pub target: TargetInfo,
    pub options: Echo,
    pub machine: Machine,
    /// Forebay's version.
    pub version: &'static str,
}

/// How the run was asked for.
#[derive(Clone, Serialize, Default)]
pub struct Echo {
    pub command: &'static str,
    /// How many times as fast as the workload; absent in a closed loop.
    pub rate: Option<f64>,
    pub as_fast_as_possible: bool,
    /// Whether each request waited for all background work of the one before.
    pub quiesce: bool,
    pub queue_depth: u32,
    pub jobs: u32,
    pub reads_only: bool,
    pub wrap: bool,
    pub concatenate: bool,
    pub data_seed: u64,
    /// The configuration file's text.
    pub config: Option<String>,
}

impl Echo {
    /// What the arguments about the target say.
    pub fn of(args: &TargetArgs) -> Echo {
        Echo {
            quiesce: args.quiesce,
            reads_only: args.reads_only,
            wrap: args.wrap,
            concatenate: args.concatenate,
            data_seed: args.data_seed,
            ..Echo::default()
        }
    }
}
