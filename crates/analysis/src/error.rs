//! Why a question has no answer.

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
    /// A thread that reads traces ended without saying why.
    #[error("the trace reader panicked")]
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
    /// There is no such cache to simulate; nothing was.
    #[error(transparent)]
    NotSimulated(SimulateError),
    /// Nothing says how much may be spent.
    #[error("no budget is given, so there is nothing to plan")]
    NoBudget,
    /// The question is about two tiers.
    #[error("no combination has two tiers")]
    NotTwoTiers,
    /// The tier that is there is smaller than the unit of sizes.
    #[error(
        "the existing tier is smaller than {unit_bytes} bytes, the smallest size that a plan can \
         use"
    )]
    HaveTooLittle {
        /// The unit.
        unit_bytes: u64,
    },
    /// A replay is on given devices, which are those of one combination.
    #[error("a replay runs on the configured devices, so it can evaluate only one combination")]
    SeveralCombinations,
    /// The cache has two tiers at most.
    #[error("a replay supports at most two tiers")]
    TooManyTiers,
    /// A replay has the memory of this machine for its first tier.
    #[error("tier 1 of a replay must be this machine's memory, but {0} is not a memory device")]
    NotMemory(String),
    /// The configuration of a replay lacks a flash tier.
    #[error("the configuration has no [flash] section for the second tier")]
    NoFlash,
    /// The volumes of the configuration of a replay are not usable.
    #[error(transparent)]
    Configuration(#[from] forebay_config::ConfigError),
    /// A replay would destroy what is on a device or in a file.
    #[error("{0} already exists, and a replay would destroy its data")]
    WouldDestroy(String),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was attempted: `open`, `read` or `write`.
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
    #[error("no volume has reads or writes, so there is nothing to divide")]
    NothingToDivide,
    /// A volume alone gets everything.
    #[error(
        "only one volume, `{0}`, has reads or writes, so it gets the whole cache: there is nothing \
         to divide"
    )]
    OneVolume(String),
    /// A target is for a volume that there is not.
    #[error("no volume `{name}` has reads or writes")]
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
    #[error("the traces have no reads or writes to measure")]
    NoAccesses,
    /// Blocks that a workload hits alone were not found in the shared cache: a mistake of ours.
    #[error("merging the workloads lost hits (a bug in forebay)")]
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
    /// A volume was counted in a group by its number, before a volume appeared that has this number as its
    /// name.
    #[error(
        "`{name}` is ambiguous: a volume of this name appears after requests of volume number {name}, \
         which is called {other}"
    )]
    LateName {
        /// The name and number.
        name: String,
        /// Name of the volume with this number.
        other: String,
    },
    /// One group has a volume by its name and another by its number.
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
    /// The content hashes are of units that do not fill a block.
    #[error("each content hash covers {unit_bytes} bytes")]
    HashUnits {
        /// The bytes of a unit.
        unit_bytes: u64,
    },
    /// No block that is accessed is in the sample.
    #[error("the sample contains no block of the trace")]
    EmptySample,
    /// No size of a cache has enough blocks in the sample.
    #[error(
        "the sample has only {blocks} block{}, too few to simulate a cache of any size",
        if *blocks == 1 { "" } else { "s" }
    )]
    SampleTooSmall {
        /// The blocks in it.
        blocks: u64,
    },
    /// Policies are run over less blocks than that.
    #[error("the trace has 2^31 blocks or more")]
    TooManyBlocks,
    /// A replacement policy is wrong.
    #[error("the policy {0} chose no block to evict from a full cache (a bug in forebay)")]
    NoVictim(Kind),
    /// A thread that measures a slice panicked.
    #[error("a measurement thread panicked")]
    MeasurerPanicked,
    /// A thread that measures a slice ended without saying why.
    #[error("a measurement thread ended too early")]
    MeasurerEnded,
    /// The configuration's block size is none that a cache can have.
    #[error("{0}")]
    BlockSize(String),
    /// Sizes are for a flash tier that the configuration has not.
    #[error("sizes are given for a flash tier, but the configuration has no flash tier")]
    NoFlashToSize,
    /// The configuration's flash tier has no size.
    #[error("the configuration does not set a size for the flash tier")]
    NoFlashSize,
    /// Every size of memory has too few blocks in the sample.
    #[error("all memory sizes are too small to simulate")]
    NoSizes {
        /// Whether less than all blocks are looked at.
        sampled: bool,
    },
    /// There is no cache of a size asked for.
    #[error("a cache of {memory_bytes} bytes of memory: {error}")]
    NoSuchCache {
        /// Bytes of memory.
        memory_bytes: u64,
        /// Bytes of flash, if it has any.
        flash_bytes: Option<u64>,
        /// Why.
        error: SimulateError,
    },
    /// There is nothing in the traces.
    #[error("there are no requests to sample")]
    NothingToSample,
    /// A trace is a sample of this seed: its hash would decide again about regions that it has chosen.
    #[error(
        "a trace is itself a sample taken with seed {seed}; sampling it with the same seed would \
         select the same regions"
    )]
    SampleOfSample {
        /// The seed of the trace.
        seed: u64,
    },
    /// No region that is accessed is in a sample; no file was made.
    #[error("{} no region of the trace", if *several { "the samples contain" } else { "the sample contains" })]
    NoRegion {
        /// Whether one was to be chosen of several.
        several: bool,
    },
}
