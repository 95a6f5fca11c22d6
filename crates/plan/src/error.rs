//! What can go wrong in planning.

use std::io;
use std::path::PathBuf;

/// Whatever an evaluator reports.
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
        /// What the operating system said.
        source: io::Error,
    },
    /// The catalogue says something that cannot be.
    #[error("device catalogue{}: {what}", line.map(|l| format!(", line {l}")).unwrap_or_default())]
    Catalogue {
        /// The line, where it is known.
        line: Option<usize>,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// The budget is too small for any of the combinations.
    #[error(
        "a budget of ${budget_usd} buys no tier: the smallest tier, {unit_bytes} bytes of {device} \
         with its metadata, costs ${needed_usd:.6}"
    )]
    BuysNothing {
        /// What may be spent.
        budget_usd: f64,
        /// What the cheapest first tier costs.
        needed_usd: f64,
        /// The device of that tier.
        device: String,
        /// The allocation unit.
        unit_bytes: u64,
    },
    /// Everything that the budget buys, of all combinations, is flash that wears out too fast.
    #[error(
        "a budget of ${budget_usd} buys only flash, and the workload would use more than {used_max} \
         times the flash's rated endurance"
    )]
    WearsOut {
        /// What may be spent.
        budget_usd: f64,
        /// The largest share of the rated endurance that may be used.
        used_max: f64,
    },
    /// The budget is no amount of money.
    #[error("{0} is not a budget: a budget must be above zero")]
    NotABudget(f64),
    /// There is nothing to serve.
    #[error("the workload reads and writes no blocks, so there is nothing to plan")]
    NoAccesses,
    /// No backing store is named, and the catalogue combines none with tiers.
    #[error("no backing store is named, but a plan depends on the device that the cache speeds up")]
    NoBacking,
    /// No combination has the tiers and backing stores asked for.
    #[error("no combination of devices has these tiers and backing stores")]
    NoSuchCombination,
    /// There is nothing to choose from.
    #[error("there is no usable combination of devices: {0}")]
    NoCombination(String),
    /// Cydonia is defined for two tiers.
    #[error("Cydonia searches combinations of two tiers, but one combination has {0}")]
    CydoniaTiers(usize),
    /// Growing tier 1 is compared with adding a second tier.
    #[error(
        "the choice between growing tier 1 and adding tier 2 needs combinations of two tiers, but \
         one combination has {0}"
    )]
    GrowthTiers(usize),
    /// An evaluation failed.
    #[error("evaluating {what} failed: {source}")]
    Evaluation {
        /// The sizes tried.
        what: String,
        /// What the evaluator said.
        source: BoxError,
    },
    /// Measuring the workload failed.
    #[error(transparent)]
    Locality(#[from] forebay_locality::LocalityError),
    /// An exact search over so fine units would take too long.
    #[error(
        "an exact search would take {steps} steps or more, but the limit is {most}; use larger \
         units, or search by annealing"
    )]
    TooManySteps {
        /// Steps it would take.
        steps: u64,
        /// The most that are taken.
        most: u64,
    },
    /// An exact search over so fine units would take too much memory.
    #[error(
        "an exact search would keep {budgets} choices, but the limit is {most}; use larger units, \
         or search by annealing"
    )]
    TooManyBudgets {
        /// Volumes by divisions of the budget.
        budgets: u64,
        /// The most that are kept.
        most: u64,
    },
    /// The observer of a search ended it.
    #[error(transparent)]
    Stopped(BoxError),
    /// What every volume is to get at least is more than there is.
    #[error("the minimum sizes of all volumes add up to more than the cache size to be divided")]
    Floors,
    /// Nothing of the workload was looked at.
    #[error("the sample contains no blocks: raise the sampling rate")]
    EmptySample,
    /// The sampling rate is no rate.
    #[error("{0} is not a sampling rate: it must be at least 2^-33 and at most 1")]
    SampleRate(f64),
}
