//! The errors of this crate: why a question has no answer.

use std::path::PathBuf;

use forebay_locality::LocalityError;
use forebay_plan::{BoxError, Budget, PlanError};
use forebay_replacement::Kind;
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
    /// The thread that reads the traces panicked.
    #[error("the trace reader panicked")]
    ReaderPanicked,
    /// A plan or a division could not be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no plan for a budget.
    #[error("{error}")]
    Refused {
        /// The reason.
        error: PlanError,
        /// The budget as it was given.
        budget: Budget,
    },
    /// Measuring a workload failed.
    #[error(transparent)]
    Locality(#[from] LocalityError),
    /// A simulation failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// No such cache can be simulated; nothing was simulated.
    #[error(transparent)]
    NotSimulated(SimulateError),
    /// No budget is given.
    #[error("no budget is given, so there is nothing to plan")]
    NoBudget,
    /// The question needs combinations of two tiers.
    #[error("no combination has two tiers")]
    NotTwoTiers,
    /// The existing tier is smaller than the unit of sizes.
    #[error(
        "the existing tier is smaller than {unit_bytes} bytes, the smallest size that a plan can \
         use"
    )]
    HaveTooLittle {
        /// The unit, in bytes.
        unit_bytes: u64,
    },
    /// A replay runs on given devices, so it supports only one combination.
    #[error("a replay runs on the configured devices, so it can evaluate only one combination")]
    SeveralCombinations,
    /// The cache has at most two tiers.
    #[error("a replay supports at most two tiers")]
    TooManyTiers,
    /// Tier 1 of a replay must be this machine's memory.
    #[error("tier 1 of a replay must be this machine's memory, but {0} is not a memory device")]
    NotMemory(String),
    /// The configuration of a replay lacks a flash tier.
    #[error("the configuration has no [flash] section for the second tier")]
    NoFlash,
    /// The volumes in the configuration of a replay are not usable.
    #[error(transparent)]
    Configuration(#[from] forebay_config::ConfigError),
    /// A replay would destroy the data of a device or a file.
    #[error("{0} already exists, and a replay would destroy its data")]
    WouldDestroy(String),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was attempted: `open`, `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        source: std::io::Error,
    },
    /// The file to resume a study from was not written by a study; it was not changed.
    #[error("{}, line {line}: {source}", path.display())]
    NotAStudy {
        /// The file.
        path: PathBuf,
        /// The first invalid line, counted from 1.
        line: usize,
        /// What is wrong with that line.
        source: serde_json::Error,
    },
    /// The results of a study could not be encoded.
    #[error(transparent)]
    Encode(serde_json::Error),
    /// A simulation or a replay that evaluates an answer failed.
    #[error("{0}")]
    Judging(BoxError),
    /// The question contradicts itself.
    #[error("{0}")]
    Impossible(&'static str),
    /// No device has this name.
    #[error("there is no device `{0}`")]
    NoDevice(String),
    /// No volume reads or writes.
    #[error("no volume has reads or writes, so there is nothing to divide")]
    NothingToDivide,
    /// Only one volume reads or writes, so it gets everything.
    #[error(
        "only one volume, `{0}`, has reads or writes, so it gets the whole cache: there is nothing \
         to divide"
    )]
    OneVolume(String),
    /// A target names a volume that does not read or write.
    #[error("no volume named `{name}` has reads or writes")]
    NoVolume {
        /// The given name.
        name: String,
        /// The volumes that read or write.
        known: Vec<String>,
    },
    /// A volume has two targets.
    #[error("`{0}` has two targets")]
    TwoTargets(String),
    /// There is nothing to measure.
    #[error("the traces have no reads or writes to measure")]
    NoAccesses,
    /// Blocks that a workload hits alone were not found in the shared cache: a bug.
    #[error("merging the workloads lost hits (a bug in forebay)")]
    HitsLost,
    /// Groups of volumes contradict each other.
    #[error("{0}")]
    Groups(String),
    /// A group names a volume that does not exist.
    #[error("there is no volume `{name}`")]
    NoGroupVolume {
        /// The given name or number.
        name: String,
        /// The volumes of the traces.
        known: Vec<String>,
    },
    /// A volume was counted in a group by its number before a volume appeared whose name is that
    /// number.
    #[error(
        "`{name}` is ambiguous: a volume of this name appears after requests of volume number {name}, \
         which is called {other}"
    )]
    LateName {
        /// The name, which is also a number.
        name: String,
        /// Name of the volume that has this number.
        other: String,
    },
    /// A volume belongs to one group by its name and to another by its number.
    #[error(
        "volume `{volume}`, number {number}, is in both `{}` and `{}`", groups[0], groups[1]
    )]
    InTwoGroups {
        /// The volume's name.
        volume: String,
        /// Its number.
        number: usize,
        /// The groups.
        groups: [String; 2],
    },
    /// The trace has no content hashes.
    #[error("the trace has no content hashes")]
    NoHashes,
    /// The content hashes cover units that do not fill a block.
    #[error("each content hash covers {unit_bytes} bytes")]
    HashUnits {
        /// Bytes per unit.
        unit_bytes: u64,
    },
    /// The sample contains no accessed block.
    #[error("the sample contains no blocks of the trace")]
    EmptySample,
    /// For no cache size does the sample contain enough blocks.
    #[error(
        "the sample has only {blocks} block{}, too few to simulate a cache of any size",
        if *blocks == 1 { "" } else { "s" }
    )]
    SampleTooSmall {
        /// Number of blocks in the sample.
        blocks: u64,
    },
    /// The trace has more blocks than policies can be run over.
    #[error("the trace has 2^31 blocks or more")]
    TooManyBlocks,
    /// A replacement policy has a bug.
    #[error("the policy {0} chose no block to evict from a full cache (a bug in forebay)")]
    NoVictim(Kind),
    /// A thread that measures slices panicked.
    #[error("a measurement thread panicked")]
    MeasurerPanicked,
    /// A thread that measures slices ended early without an error.
    #[error("a measurement thread exited unexpectedly")]
    MeasurerEnded,
    /// No cache can have the configured block size.
    #[error("{0}")]
    BlockSize(String),
    /// Sizes are given for a flash tier that is not configured.
    #[error("sizes are given for a flash tier, but the configuration has no flash tier")]
    NoFlashToSize,
    /// The configuration's flash tier has no size.
    #[error("the configuration does not set a size for the flash tier")]
    NoFlashSize,
    /// The sample contains too few blocks for every memory size.
    #[error("all memory sizes are too small to simulate")]
    NoSizes {
        /// Whether only some of the blocks were sampled.
        sampled: bool,
    },
    /// No cache of the requested size can be built.
    #[error("cannot simulate a cache with {memory_bytes} bytes of memory: {error}")]
    NoSuchCache {
        /// Bytes of memory.
        memory_bytes: u64,
        /// Bytes of flash, if it has any.
        flash_bytes: Option<u64>,
        /// The reason.
        error: SimulateError,
    },
    /// The traces contain no requests.
    #[error("there are no requests to sample")]
    NothingToSample,
    /// A trace is itself a sample with this seed, whose hash would select the same regions again.
    #[error(
        "a trace is itself a sample taken with seed {seed}; sampling it with the same seed would \
         select the same regions"
    )]
    SampleOfSample {
        /// The seed of that sample.
        seed: u64,
    },
    /// No accessed region is in the sample or the samples; no file was made.
    #[error("{} no regions of the trace", if *several { "the samples contain" } else { "the sample contains" })]
    NoRegion {
        /// Whether one of several samples was to be chosen.
        several: bool,
    },
}
