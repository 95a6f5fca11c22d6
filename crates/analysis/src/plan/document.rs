//! A plan as a JSON document.

use forebay_plan::{HitCounts, JudgedBy, ParetoPoint, Plan};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Answer, Front};

/// The plan for the first budget is at the top level; with several budgets, all of them are in
/// `plans`. Latencies are in microseconds.
#[derive(Serialize, Debug, JsonSchema)]
pub struct Document<'a> {
    /// The write policy (`--policy`).
    pub policy: &'static str,
    /// The search method (`--method`).
    pub method: &'static str,
    /// How choices were evaluated (`--evaluate`).
    pub evaluate: JudgedBy,
    /// Number of simulated sets of tiers, including single tiers.
    pub simulations: u64,
    /// Number of replayed sets of tiers, including single tiers.
    pub replays: u64,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Bytes of metadata per block, for each tier.
    pub metadata_bytes_per_block: Vec<u64>,
    /// Requests in the trace.
    pub requests: u64,
    /// Block accesses in the trace.
    pub accesses: u64,
    /// Accesses that are writes.
    pub writes: u64,
    /// Bytes of distinct blocks.
    pub footprint_bytes: u64,
    /// Seconds from the first request to the last.
    pub duration_s: f64,
    /// Share of blocks sampled.
    pub sampled_rate: f64,
    /// Cost of DRAM for all data. A budget in percent is a percentage of this cost.
    pub full_cost_usd: f64,
    /// The plan for the (first) budget.
    #[serde(flatten)]
    pub plan: &'a Plan,
    /// With several budgets, the plan for each; omitted otherwise.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub plans: &'a [Plan],
    /// With `--sweep`, the plan for each budget of the sweep; omitted otherwise.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub sweep: &'a [Plan],
    /// The wear limit (`--wear-max`); null if there is none.
    pub wear_max: Option<f64>,
    /// Bytes that the configured cache writes to flash below tier 1, divided by the bytes that the formulas
    /// predict; 1 without `--config`.
    pub flash_writes: f64,
    /// With `--pareto`, whether every size was evaluated; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pareto_is_exact: Option<bool>,
    /// With `--pareto`, the plans that no other plan beats in cost, mean latency, 99th percentile and
    /// drive writes at the same time, sorted by backing store and cost; omitted otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pareto: Vec<ParetoRow<'a>>,
}

/// A plan that no other plan dominates.
#[derive(Serialize, Debug, JsonSchema)]
pub struct ParetoRow<'a> {
    /// The tiers to buy.
    pub tiers: Vec<ParetoTier<'a>>,
    /// The device of the backing store.
    pub backing: &'a str,
    /// Cost of the tiers, including metadata.
    pub cost_usd: f64,
    /// Mean latency of a block access.
    pub mean_latency_us: f64,
    /// Latency that 99 % of block accesses do not exceed.
    pub p99_latency_us: f64,
    /// Drive writes per day of the most heavily written flash tier; null if the traces have no
    /// timestamps.
    pub drive_writes_per_day: Option<f64>,
    /// Bytes written to flash per day; null if the traces have no timestamps.
    pub flash_bytes_written_per_day: Option<f64>,
}

/// A tier of such a plan.
#[derive(Serialize, Clone, Copy, Debug, JsonSchema)]
pub struct ParetoTier<'a> {
    /// The name of the device.
    pub device: &'a str,
    /// Size of the tier in bytes.
    pub bytes: u64,
}

impl Answer {
    /// The answer as a JSON document. The fronts are included only `with_pareto`, and if there are
    /// any.
    ///
    /// # Panics
    /// If the answer has no plan; [`Question::plan`](super::Question::plan) makes at least one.
    pub fn document(&self, with_pareto: bool) -> Document<'_> {
        let basis = &self.basis;
        let profile = &basis.profile;
        let block = basis.options.cost.block_size.bytes();
        let judged_by = |by: JudgedBy| if self.judged_by == by { self.judgements } else { 0 };
        Document {
            policy: basis.options.policy.name(),
            method: basis.options.method.name(),
            evaluate: self.judged_by,
            simulations: judged_by(JudgedBy::Simulate),
            replays: judged_by(JudgedBy::Replay),
            block_size: block,
            metadata_bytes_per_block: basis.metadata_bytes(),
            requests: profile.requests(),
            accesses: profile.reads() + profile.writes(),
            writes: profile.writes(),
            footprint_bytes: profile.footprint_blocks() * block,
            duration_s: profile.duration().as_secs_f64(),
            sampled_rate: profile.options().sample_rate,
            full_cost_usd: basis.full_usd,
            plan: &self.plans[0],
            plans: if self.plans.len() > 1 { &self.plans } else { &[] },
            sweep: &self.sweep,
            wear_max: basis.options.wear_max,
            flash_writes: basis.options.flash_writes,
            pareto_is_exact: with_pareto.then(|| self.pareto.iter().all(|f| f.is_exact)),
            pareto: if with_pareto { self.pareto_rows() } else { Vec::new() },
        }
    }

    fn pareto_rows(&self) -> Vec<ParetoRow<'_>> {
        let rows = |front| self.rows_of(front, |points| points.iter().collect());
        self.pareto.iter().flat_map(rows).collect()
    }

    /// Rows for the chosen points of one front.
    pub fn rows_of<'b>(
        &self,
        front: &'b Front,
        chosen: impl FnOnce(&'b [ParetoPoint]) -> Vec<&'b ParetoPoint>,
    ) -> Vec<ParetoRow<'b>> {
        let row = |p: &'b ParetoPoint| {
            let tiers = &front.hierarchies[p.hierarchy].tiers;
            let tiers = tiers.iter().zip(&p.tier_bytes);
            ParetoRow {
                backing: &front.backing,
                tiers: tiers.map(|(d, &bytes)| ParetoTier { device: &d.name, bytes }).collect(),
                cost_usd: p.cost_usd,
                mean_latency_us: p.mean_latency_us,
                p99_latency_us: p.p99_latency_us,
                drive_writes_per_day: self.basis.per_day(p.drive_writes),
                flash_bytes_written_per_day: self.basis.per_day(p.flash_bytes_written as f64),
            }
        };
        chosen(&front.points).into_iter().map(row).collect()
    }
}
