//! Tiers of given sizes, with their cost and performance.

use forebay_locality::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::Units;
use crate::counts::HitCounts;
use crate::hierarchy::Hierarchy;
use crate::judged_by::JudgedBy;
use crate::plan::PlanOptions;
use crate::wear::SECONDS_PER_DAY;

/// Tiers of given sizes, with their cost and performance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Purchase {
    /// The tiers, tier 1 first; a tier of 0 bytes is not bought.
    pub tiers: Vec<Tier>,
    /// The device of the backing store.
    pub backing: String,
    /// Cost of the tiers, including metadata, in US dollars.
    pub cost_usd: f64,
    /// Mean latency of a block access, by the method that `judged_by` names.
    pub mean_latency_us: f64,
    /// Mean latency according to the formulas, regardless of `judged_by`.
    pub analytic_latency_us: f64,
    /// How the purchase was last evaluated.
    pub judged_by: JudgedBy,
    /// With `--sample`, a confidence interval of about 95 % for the mean latency according to the formulas;
    /// otherwise null.
    pub mean_latency_us_bounds: Option<Interval>,
    /// 99th percentile of the latency ([Tail](docs/planning-reference.md#tail)): of block accesses in the
    /// formulas, of requests in a simulation or replay.
    pub p99_latency_us: f64,
    /// 99.9th percentile of the latency of the same accesses or requests.
    pub p999_latency_us: f64,
    /// Mean latency of reads according to the formulas, excluding write-backs.
    pub read_latency_us: f64,
    /// Mean latency of writes according to the formulas, excluding write-backs.
    pub write_latency_us: f64,
    /// The shape of the hierarchy.
    pub class: Class,
    /// For each tier, the share of all block accesses that hit there.
    pub hit_ratio: Vec<f64>,
    /// For each tier, the share of reads that hit there.
    pub read_hit_ratio: Vec<f64>,
    /// For each tier, the share of writes that hit there.
    pub write_hit_ratio: Vec<f64>,
    /// Bytes written to flash tiers per day ([Wear](docs/planning-reference.md#wear)); null if the duration
    /// is unknown.
    pub flash_bytes_written_per_day: Option<f64>,
    /// Drive writes per day of the most heavily written flash tier; 0 if there is no flash tier, null if the
    /// duration is unknown.
    pub drive_writes_per_day: Option<f64>,
    /// Write rate of the flash tier that wears fastest, as a fraction of its rated write rate; above 1, the
    /// tier wears out before its rated lifetime ends. Null if the duration or the rating is unknown.
    pub endurance_used: Option<f64>,
}

/// One tier of a purchase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tier {
    /// The device's name in the catalogue.
    pub device: String,
    /// The tier's size in bytes.
    pub bytes: u64,
}

/// The shape of a hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// One tier only.
    Single,
    /// Each lower tier is larger than the one above it.
    Pyramidal,
    /// Some lower tier is not larger than the one above it.
    NonPyramidal,
}

impl Class {
    /// The class of tiers of these sizes, in any unit; tiers of size 0 do not count.
    ///
    /// ```
    /// use forebay_plan::Class;
    /// assert_eq!(Class::from_sizes(&[5, 0]), Class::Single);
    /// assert_eq!(Class::from_sizes(&[5, 6]), Class::Pyramidal);
    /// assert_eq!(Class::from_sizes(&[5, 5]), Class::NonPyramidal);
    /// ```
    pub fn from_sizes(sizes: &[u64]) -> Self {
        let there: Vec<u64> = sizes.iter().copied().filter(|&s| s > 0).collect();
        match there.len() {
            0 | 1 => Self::Single,
            _ if there.windows(2).all(|w| w[1] > w[0]) => Self::Pyramidal,
            _ => Self::NonPyramidal,
        }
    }

    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Pyramidal => "pyramidal",
            Self::NonPyramidal => "non-pyramidal",
        }
    }
}

/// The purchase of tiers of `sizes`, whose evaluated latency is `mean_latency_us`.
pub(crate) fn purchase<H: HitCounts + ?Sized>(
    counts: &H,
    hierarchy: &Hierarchy,
    options: &PlanOptions,
    sizes: &[Units],
    mean_latency_us: f64,
) -> Purchase {
    let cost = &options.cost;
    let units: Vec<u64> = sizes.iter().map(|s| s.0).collect();
    let blocks: Vec<u64> = units.iter().map(|u| u * cost.unit_blocks()).collect();
    let evaluation = hierarchy.evaluate(counts, &blocks);
    let (reads, writes) = (counts.reads(), counts.writes());
    let ratio = |hits: u64, of: u64| if of == 0 { 0.0 } else { hits as f64 / of as f64 };
    let (r, w) = (&evaluation.read_hits[..units.len()], &evaluation.write_hits[..units.len()]);
    let tiers = hierarchy.tiers.iter().zip(&units);
    let days = options.duration.as_secs_f64() / SECONDS_PER_DAY;
    let per_day = |bytes: f64| (days > 0.0).then(|| bytes / days);
    let bytes = |blocks: f64| blocks * cost.block_size.bytes() as f64;
    let written = evaluation.written_with(options.flash_writes);
    let written: Option<Vec<f64>> =
        written.into_iter().map(|blocks| per_day(bytes(blocks))).collect();
    let wear = written.map(|bytes| hierarchy.wear(sizes, cost, &bytes));
    Purchase {
        tiers: tiers
            .clone()
            .map(|(d, u)| Tier { device: d.name.clone(), bytes: u * cost.unit_bytes })
            .collect(),
        backing: hierarchy.backing.name.clone(),
        cost_usd: cost.usd(&hierarchy.tiers, sizes),
        mean_latency_us,
        analytic_latency_us: evaluation.mean_latency_us,
        judged_by: JudgedBy::Analytic,
        mean_latency_us_bounds: hierarchy.mean_latency_us_bounds(counts, &blocks),
        p99_latency_us: evaluation.p99_latency_us,
        p999_latency_us: evaluation.p999_latency_us,
        read_latency_us: evaluation.read_latency_us,
        write_latency_us: evaluation.write_latency_us,
        class: Class::from_sizes(&units),
        hit_ratio: r.iter().zip(w).map(|(r, w)| ratio(r + w, reads + writes)).collect(),
        read_hit_ratio: r.iter().map(|&r| ratio(r, reads)).collect(),
        write_hit_ratio: w.iter().map(|&w| ratio(w, writes)).collect(),
        flash_bytes_written_per_day: wear.map(|w| w.flash_bytes_written_per_day),
        drive_writes_per_day: wear.map(|w| w.drive_writes_per_day),
        endurance_used: wear.and_then(|w| w.endurance_used),
    }
}
