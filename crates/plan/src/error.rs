//! The errors of planning.

use std::io;
use std::path::PathBuf;

/// Any error that an evaluator reports.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A plan could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The catalogue could not be read.
    #[error("cannot read the device catalogue {}: {source}", path.display())]
    ReadCatalogue {
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        source: io::Error,
    },
    /// The catalogue is invalid.
    #[error("device catalogue{}: {what}", line.map(|l| format!(", line {l}")).unwrap_or_default())]
    Catalogue {
        /// The line, if it is known.
        line: Option<usize>,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// The budget is too small for any of the combinations.
    #[error(
        "a budget of ${budget_usd} buys no tier: the smallest tier, {} of {device} with its \
         metadata, costs ${needed_usd:.6}", unit(*unit_bytes)
    )]
    BuysNothing {
        /// The budget, in US dollars.
        budget_usd: f64,
        /// The cost of one unit of the cheapest first tier, in US dollars.
        needed_usd: f64,
        /// The device of that tier.
        device: String,
        /// Bytes of one allocation unit.
        unit_bytes: u64,
    },
    /// Everything that the budget buys, in all combinations, is flash that wears out too fast.
    #[error(
        "a budget of ${budget_usd} buys only flash, and the workload would use more than {used_max} \
         times the flash's rated endurance"
    )]
    WearsOut {
        /// The budget, in US dollars.
        budget_usd: f64,
        /// The largest share of the rated endurance that may be used.
        used_max: f64,
    },
    /// The budget is not a positive amount of money.
    #[error("{0} is not a budget: a budget must be above zero")]
    NotABudget(f64),
    /// The workload has no accesses.
    #[error("the workload reads and writes no blocks, so there is nothing to plan")]
    NoAccesses,
    /// No backing store is named where one is required.
    #[error("no backing store is named, but a plan depends on the device that the cache speeds up")]
    NoBacking,
    /// No combination has the tiers and backing stores asked for.
    #[error("no combination of devices has these tiers and backing stores")]
    NoSuchCombination,
    /// There is no combination to choose from.
    #[error("there is no usable combination of devices: {0}")]
    NoCombination(String),
    /// Cydonia works for at most two tiers.
    #[error("Cydonia searches combinations of two tiers, but one combination has {0}")]
    CydoniaTiers(usize),
    /// Growing tier 1 can be compared only with adding a second tier.
    #[error(
        "the choice between growing tier 1 and adding tier 2 needs combinations of two tiers, but \
         one combination has {0}"
    )]
    GrowthTiers(usize),
    /// An evaluation failed.
    #[error("evaluating {what} failed: {source}")]
    Evaluation {
        /// What was evaluated, such as the sizes of tiers.
        what: String,
        /// The evaluator's error.
        source: BoxError,
    },
    /// Measuring the workload failed.
    #[error(transparent)]
    Locality(#[from] forebay_locality::LocalityError),
    /// An exact search with such small units would take too long.
    #[error(
        "an exact search would take {steps} steps or more, but the limit is {most}; use larger \
         units, or search by annealing"
    )]
    TooManySteps {
        /// Number of steps needed.
        steps: u64,
        /// The largest allowed number of steps.
        most: u64,
    },
    /// An exact search with such small units would take too much memory.
    #[error(
        "an exact search would keep {budgets} choices, but the limit is {most}; use larger units, \
         or search by annealing"
    )]
    TooManyBudgets {
        /// Number of choices and of other values that the search would keep.
        budgets: u64,
        /// The largest allowed number.
        most: u64,
    },
    /// The observer stopped the search.
    #[error(transparent)]
    Stopped(BoxError),
    /// The minimum sizes of all volumes exceed the size to divide.
    #[error("the minimum sizes of all volumes add up to more than the cache size to be divided")]
    Floors,
    /// The sample contains no blocks.
    #[error("the sample contains no blocks: raise the sampling rate")]
    EmptySample,
    /// The sampling rate is out of range.
    #[error("{0} is not a sampling rate: it must be at least 2^-33 and at most 1")]
    SampleRate(f64),
}

/// Formats the unit of a plan, usually a whole number of MiB.
fn unit(bytes: u64) -> String {
    let whole = |shift: u32| bytes > 0 && bytes.trailing_zeros() >= shift;
    match () {
        () if whole(20) => format!("{} MiB", bytes >> 20),
        () if whole(10) => format!("{} KiB", bytes >> 10),
        () => format!("{bytes} bytes"),
    }
}
