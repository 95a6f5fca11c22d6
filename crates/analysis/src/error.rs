//! Why a question has no answer.

use std::path::PathBuf;

use forebay_locality::LocalityError;
use forebay_plan::{BoxError, Budget, PlanError};
use forebay_simulate::SimulateError;
use forebay_trace::TraceError;

use crate::Interrupted;

/// A question could not be answered. Nothing was written, unless a variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The observer stopped the work.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A thread that reads traces ended without saying why.
    #[error("the reader of traces panicked")]
    ReaderPanicked,
    /// A plan or a division could not be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no plan for a budget.
    #[error("{error}")]
    Refused {
        /// Why.
        error: PlanError,
        /// The budget as it was asked for.
        budget: Budget,
    },
    /// Measuring a workload failed.
    #[error(transparent)]
    Locality(#[from] LocalityError),
    /// A simulation failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// No backing store is named, and the catalogue combines none with tiers.
    #[error(
        "no backing store was asked for: which device is there already, for a cache to stand in \
         front of?"
    )]
    NoBacking,
    /// No combination has the tiers and backing stores asked for.
    #[error("no combination of devices has these tiers and backing stores")]
    NoCombination,
    /// The question is about two tiers.
    #[error("no combination has two tiers")]
    NotTwoTiers,
    /// The tier that is there is smaller than the unit of sizes.
    #[error("the tier that is there is below {unit_bytes} bytes, the unit of sizes")]
    HaveTooLittle {
        /// The unit.
        unit_bytes: u64,
    },
    /// A replay is to judge a plan, and nothing says on which devices.
    #[error("a plan is to be judged by replays, and no configuration names the devices")]
    NoConfiguration,
    /// A replay is on given devices, which are those of one combination.
    #[error("a replay is on given devices, so it can judge one combination only")]
    SeveralCombinations,
    /// The cache has two tiers at most.
    #[error("the cache that is replayed against has two tiers at most")]
    TooManyTiers,
    /// A replay has the memory of this machine for its first tier.
    #[error("tier 1 of a replay is this machine's memory, which {0} is not")]
    NotMemory(String),
    /// The configuration of a replay lacks a flash tier.
    #[error("the configuration has no [flash] for the second tier")]
    NoFlash,
    /// The volumes of the configuration of a replay are not usable.
    #[error(transparent)]
    Configuration(#[from] forebay_config::ConfigError),
    /// A replay would destroy what is on a device or in a file.
    #[error("{0} is there already, and a replay destroys what is on it")]
    WouldDestroy(String),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was attempted: `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file from which a study is to go on was not written by a study; it is as it was.
    #[error("{}, line {line}: {source}", path.display())]
    NotAStudy {
        /// The file.
        path: PathBuf,
        /// The first line that is wrong, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The results of a study could not be encoded.
    #[error(transparent)]
    Encode(serde_json::Error),
    /// A simulation or a replay that judges an answer failed.
    #[error("{0}")]
    Judging(BoxError),
    /// The question contradicts itself.
    #[error("{0}")]
    Impossible(&'static str),
    /// No device has the name.
    #[error("there is no device `{0}`")]
    NoDevice(String),
    /// No volume reads or writes.
    #[error("there is not one read or write to divide a cache for")]
    NothingToDivide,
    /// A volume alone gets everything.
    #[error(
        "only one volume reads or writes, `{0}`, and it gets everything: there is nothing to divide"
    )]
    OneVolume(String),
    /// A target is for a volume that there is not.
    #[error("no volume `{name}` reads or writes")]
    NoVolume {
        /// The name that was given.
        name: String,
        /// The volumes that read or write.
        known: Vec<String>,
    },
    /// A volume has two targets.
    #[error("`{0}` has two targets")]
    TwoTargets(String),
    /// There is nothing to measure.
    #[error("there is not one read or write to measure")]
    NoAccesses,
    /// Blocks that a workload hits alone were not found in the shared cache: a mistake of ours.
    #[error("hits were lost in merging")]
    HitsLost,
    /// Groups of volumes contradict each other.
    #[error("{0}")]
    Groups(String),
    /// A group is of a volume that there is not.
    #[error("there is no volume `{name}`")]
    NoGroupVolume {
        /// The name or number that was given.
        name: String,
        /// The volumes of the traces.
        known: Vec<String>,
    },
    /// One group has a volume by its name and another by its number.
    #[error(
        "volume `{volume}`, which is number {number}, is in both `{}` and `{}`", groups[0], groups[1]
    )]
    InTwoGroups {
        /// The volume's name.
        volume: String,
        /// Its number.
        number: usize,
        /// The groups.
        groups: [String; 2],
    },
}
