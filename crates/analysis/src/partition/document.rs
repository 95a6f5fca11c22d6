//! A division as a JSON document, and its rows.

use forebay_locality::MissRatioCurve;
use forebay_plan::partition::{LoadPoint, Outcome, Round, Sizes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Division, Evaluate};
use crate::Columns;

/// Number of points of a curve.
const POINTS: usize = 300;

impl Answer<'_> {
    /// The assumptions, one sentence each.
    pub fn assumed(&self) -> Vec<String> {
        let mut said = vec![
            format!(
                "the flash device, which all volumes share, is modelled as {}",
                self.question.devices.flash
            ),
            format!(
                "every volume has its own backing store, modelled as {}",
                self.question.devices.backing
            ),
            match &self.question.devices.memory {
                None => "memory adds no latency".to_string(),
                Some(name) => format!("memory is modelled as {name}"),
            },
        ];
        said.push(match (self.question.evaluate, self.question.queue_depth) {
            (Evaluate::Analytic, None) => "requests never wait for each other".into(),
            (Evaluate::Analytic, Some(depth)) => {
                format!(
                    "latencies exclude waiting; requests per second assume that {depth} requests \
                     are in flight"
                )
            }
            (Evaluate::Simulate { .. }, Some(depth)) => {
                format!(
                    "each volume is simulated alone, in a cache as large as its share, with \
                     {depth} requests in flight"
                )
            }
            (Evaluate::Simulate { rate, .. }, None) => {
                let pace = match rate == 1.0 {
                    true => "the trace's recorded speed".to_owned(),
                    false => format!("{rate} times the recorded speed"),
                };
                format!(
                    "each volume is simulated in its own cache, as large as its share; all volumes \
                     run together, at {pace}"
                )
            }
        });
        said
    }

    /// The answer as a JSON document.
    pub fn document(&self) -> Document {
        let (sizes, predicted, simulated) = self.found();
        let options = *self.problem.options();
        let objectives = self.divisions[0].objectives(&self.problem);
        let volumes = (0..sizes.len()).zip(self.curves()).map(|(v, curves)| {
            let simulated = simulated.map(|s| &s[v]);
            let curve = self.problem.curve(v);
            VolumeRow {
                volume: self.workload.known.volumes[v].name.clone(),
                dram_bytes: sizes[v].dram_bytes,
                flash_bytes: sizes[v].flash_bytes,
                predicted_latency_us: predicted[v].latency_us,
                hit_ratio: predicted[v].hit_ratio(),
                dram_hit_ratio: predicted[v].dram_hit_ratio(),
                flash_hit_ratio: predicted[v].flash_hit_ratio(),
                predicted_iops: predicted[v].iops,
                simulated_latency_us: simulated.map(|o| o.latency_us),
                simulated_hit_ratio: simulated.map(Outcome::hit_ratio),
                simulated_iops: simulated.map(|o| o.iops),
                target_us: self.problem.target_us(v),
                target_met: self.target_met(v),
                requests: curve.requests(),
                reads: curve.own.read.accesses(),
                writes: curve.own.write.accesses(),
                distinct_bytes: curve.own.distinct_blocks << options.block_size.shift(),
                useful_bytes: self.problem.useful_blocks(v) << options.block_size.shift(),
                model: self.problem.latencies(v, sizes[v], &predicted[v]),
                miss_ratios: curves.miss_ratios,
                latencies: curves.latencies,
            }
        });
        Document {
            goal: self.question.goal.name(),
            objective: objectives[0],
            objective_name: self.problem.objective_name(),
            objective_bound: self.bound(),
            simulated_objective: objectives[1],
            search: self.question.search.name(),
            evaluations: self.solution.evaluations,
            weigh: self.question.weigh.name(),
            policy: self.question.policy.name(),
            evaluate: self.question.evaluate.judged_by().name(),
            converged: self.iterated.as_ref().map(|i| i.converged),
            rounds: self.iterated.iter().flat_map(|i| &i.rounds).map(RoundRow::new).collect(),
            targets_met: (0..sizes.len()).filter_map(|v| self.target_met(v)).reduce(|a, b| a && b),
            dram_bytes: options.sizes.dram_bytes,
            flash_bytes: options.sizes.flash_bytes,
            units: options.units,
            unallocated: self.left(),
            block_size: options.block_size.bytes(),
            requests: self.workload.profile.requests,
            duration_s: self.workload.profile.duration.as_secs_f64(),
            volumes: volumes.collect(),
            baselines: self.divisions[1..].iter().map(|d| self.baseline(d)).collect(),
            assumed: self.assumed(),
        }
    }

    fn baseline(&self, division: &Division) -> Baseline {
        let [objective, simulated_objective] = division.objectives(&self.problem);
        let at = |o: &Option<Vec<Outcome>>, v: usize| o.as_ref().map(|o| o[v]);
        let volumes = self.workload.known.volumes.iter().enumerate().map(|(v, known)| {
            let (predicted, simulated) = (at(&division.predicted, v), at(&division.simulated, v));
            let sizes = division.sizes.as_ref().map(|s| s[v]);
            BaselineRow {
                volume: known.name.clone(),
                dram_bytes: sizes.map(|s| s.dram_bytes),
                flash_bytes: sizes.map(|s| s.flash_bytes),
                predicted_latency_us: predicted.map(|o| o.latency_us),
                hit_ratio: predicted.as_ref().map(Outcome::hit_ratio),
                predicted_iops: predicted.map(|o| o.iops),
                simulated_latency_us: simulated.map(|o| o.latency_us),
                simulated_hit_ratio: simulated.as_ref().map(Outcome::hit_ratio),
                simulated_iops: simulated.map(|o| o.iops),
            }
        });
        Baseline { name: division.name, objective, simulated_objective, volumes: volumes.collect() }
    }

    /// One row for each division and volume.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.divisions.iter().flat_map(|division| {
            let volumes = self.baseline(division).volumes.into_iter().enumerate();
            volumes.map(|(v, volume)| {
                let requests = self.problem.curve(v).requests();
                let target_us = self.problem.target_us(v);
                let row: Row<'_> =
                    (Divided { division: division.name, requests, target_us }, volume);
                row
            })
        }))
    }

    /// The curves of each volume, with its share.
    pub fn curves(&self) -> Vec<VolumeCurves> {
        let options = self.problem.options();
        let (sizes, predicted, _) = self.found();
        let by_flash = options.sizes.flash_bytes > 0;
        let tier = |sizes: &Sizes| if by_flash { sizes.flash_bytes } else { sizes.dram_bytes };
        let of = |v: usize| {
            let curve = MissRatioCurve::new(&self.problem.curve(v).own, POINTS).points;
            let sizes_of = curve.iter().map(|p| p.size_blocks * options.block_size.bytes());
            let miss_ratios = sizes_of.zip(curve.iter().map(|p| p.miss_ratio));
            let all = u128::from(tier(&options.sizes));
            let steps = (0..=POINTS as u128).map(|i| (all * i / POINTS as u128) as u64);
            let latencies = steps.map(|bytes| {
                let mut sizes = sizes[v];
                *(if by_flash { &mut sizes.flash_bytes } else { &mut sizes.dram_bytes }) = bytes;
                (bytes, self.problem.predict(v, sizes).latency_us)
            });
            VolumeCurves {
                miss_ratios: std::iter::once((0, 1.0)).chain(miss_ratios).collect(),
                latencies: latencies.collect(),
                share_bytes: sizes[v].dram_bytes + sizes[v].flash_bytes,
                tier_bytes: tier(&sizes[v]),
                miss_ratio: 1.0 - predicted[v].hit_ratio(),
                latency_us: predicted[v].latency_us,
                name: self.workload.known.volumes[v].name.clone(),
            }
        };
        (0..self.workload.known.volumes.len()).map(of).collect()
    }
}

/// The JSON document. Latencies are in microseconds.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct Document {
    /// The goal (`--goal`).
    pub goal: &'static str,
    /// Predicted value of the goal.
    pub objective: Option<f64>,
    /// Name and unit of `objective`.
    pub objective_name: &'static str,
    /// Value of the goal that no division in finer units can beat; null if unknown (with `--evaluate
    /// simulate`, for `ppc`, or if finer units might miss the targets by less).
    pub objective_bound: Option<f64>,
    /// Simulated value of the goal; null without `--evaluate simulate`.
    pub simulated_objective: Option<f64>,
    /// The search method (`--search`).
    pub search: &'static str,
    /// Number of shares that the search evaluated.
    pub evaluations: u64,
    /// What the goal gives equal weight: `volumes` or `requests` (`--weigh`).
    pub weigh: &'static str,
    /// The write policy.
    pub policy: &'static str,
    /// How divisions were evaluated (`--evaluate`): `analytic` or `simulate`.
    pub evaluate: &'static str,
    /// Whether prediction and simulation agree; null without `--evaluate simulate`.
    pub converged: Option<bool>,
    /// With `--evaluate simulate`, every simulated plan; otherwise empty.
    pub rounds: Vec<RoundRow>,
    /// Whether all targets are met; null if there are none.
    pub targets_met: Option<bool>,
    /// Memory to divide (`--dram`), in bytes.
    pub dram_bytes: u64,
    /// Flash to divide (`--flash`), in bytes.
    pub flash_bytes: u64,
    /// Units of allocation: a share is the volume's minimum share plus a multiple of these sizes.
    /// In addition, one volume can get the remainder.
    pub units: Sizes,
    /// Memory and flash that stay unallocated because no volume would gain from more.
    pub unallocated: Sizes,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Requests in all traces.
    pub requests: u64,
    /// Seconds from the first request to the last.
    pub duration_s: f64,
    /// Each volume, with its share.
    pub volumes: Vec<VolumeRow>,
    /// Other divisions, for comparison.
    pub baselines: Vec<Baseline>,
    /// Assumptions, one sentence each.
    pub assumed: Vec<String>,
}

/// The results for a volume.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct VolumeRow {
    /// Name of the volume.
    pub volume: String,
    /// The volume's share of memory, in bytes.
    pub dram_bytes: u64,
    /// The volume's share of flash, in bytes.
    pub flash_bytes: u64,
    /// Mean latency of a request, predicted from the curves.
    pub predicted_latency_us: f64,
    /// Predicted share of requests that hit.
    pub hit_ratio: f64,
    /// Predicted share of requests that hit in memory.
    pub dram_hit_ratio: f64,
    /// Predicted share of requests that hit on flash.
    pub flash_hit_ratio: f64,
    /// Predicted requests per second.
    pub predicted_iops: f64,
    /// Simulated mean latency of a request; null without `--evaluate simulate`.
    pub simulated_latency_us: Option<f64>,
    /// Simulated share of requests that hit; null without `--evaluate simulate`.
    pub simulated_hit_ratio: Option<f64>,
    /// Simulated requests per second; null without `--evaluate simulate`.
    pub simulated_iops: Option<f64>,
    /// Target for the mean latency of a request; null if the volume has none.
    pub target_us: Option<f64>,
    /// Whether the volume meets its target; null if it has none.
    pub target_met: Option<bool>,
    /// Requests of this volume.
    pub requests: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of distinct blocks that the volume accesses.
    pub distinct_bytes: u64,
    /// Cache size in bytes beyond which the volume gains nothing.
    pub useful_bytes: u64,
    /// Mean latencies from which the volume's latency is predicted.
    pub model: LoadPoint,
    /// Curve: pairs of cache size in bytes (memory plus flash) and miss ratio of requests.
    pub miss_ratios: Vec<(u64, f64)>,
    /// Curve: pairs of flash size in bytes and mean latency in microseconds, with memory fixed at the volume's
    /// share. Without flash, pairs of memory size and mean latency.
    pub latencies: Vec<(u64, f64)>,
}

/// One plan and its simulation.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct RoundRow {
    /// Predicted objective.
    pub predicted_objective: f64,
    /// Simulated objective.
    pub simulated_objective: f64,
    /// How far prediction and simulation differ, as a fraction. It is the largest of three
    /// differences: in the objective; in the latency of any volume with a target; and in the mean
    /// over all requests, to which each volume contributes its difference in latency (with `--goal
    /// iops`, in requests per second) or in hit ratio, whichever is larger.
    pub deviation: f64,
    /// The share of each volume.
    pub sizes: Vec<Sizes>,
}

impl RoundRow {
    fn new(round: &Round) -> Self {
        let [predicted_objective, simulated_objective] = round.objective;
        let (deviation, sizes) = (round.deviation, round.sizes.clone());
        Self { predicted_objective, simulated_objective, deviation, sizes }
    }
}

/// A division that needs no search.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct Baseline {
    /// `equal` (equal shares) or `shared` (one cache for all).
    pub name: &'static str,
    /// Predicted objective; null if it is undefined (`ppc` of a shared cache).
    pub objective: Option<f64>,
    /// Simulated objective; null if it was not simulated.
    pub simulated_objective: Option<f64>,
    /// Each volume.
    pub volumes: Vec<BaselineRow>,
}

/// The results for a volume in another division.
#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub struct BaselineRow {
    /// Name of the volume.
    pub volume: String,
    /// The volume's share of memory, in bytes; null if the cache is shared.
    pub dram_bytes: Option<u64>,
    /// The volume's share of flash, in bytes; null if the cache is shared.
    pub flash_bytes: Option<u64>,
    /// Mean latency of a request, predicted from the curves; null if it cannot be predicted.
    pub predicted_latency_us: Option<f64>,
    /// Predicted share of requests that hit; null if it cannot be predicted.
    pub hit_ratio: Option<f64>,
    /// Predicted requests per second; null if they cannot be predicted.
    pub predicted_iops: Option<f64>,
    /// Simulated mean latency of a request; null if it was not simulated.
    pub simulated_latency_us: Option<f64>,
    /// Simulated share of requests that hit; null if it was not simulated.
    pub simulated_hit_ratio: Option<f64>,
    /// Simulated requests per second; null if they were not simulated.
    pub simulated_iops: Option<f64>,
}

/// A row of `--parquet`.
pub type Row<'a> = (Divided<'a>, BaselineRow);

/// The columns of a row that come before the volume.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Divided<'a> {
    /// The division: `found`, `equal` (equal shares) or `shared` (one cache for all).
    pub division: &'a str,
    /// Requests of the volume.
    pub requests: u64,
    /// Target for the mean latency of a request; null if the volume has none.
    pub target_us: Option<f64>,
}

/// The curves of a volume for shares of other sizes, and the values for its own share.
#[derive(Clone, Debug)]
pub struct VolumeCurves {
    /// The volume.
    pub name: String,
    /// Miss ratio of requests, by bytes of memory and flash together.
    pub miss_ratios: Vec<(u64, f64)>,
    /// Mean latency in microseconds, by bytes of the slowest tier, with the volume's share of the
    /// other tier.
    pub latencies: Vec<(u64, f64)>,
    /// The volume's share of memory and flash together, in bytes.
    pub share_bytes: u64,
    /// The volume's share of the slowest tier, in bytes.
    pub tier_bytes: u64,
    /// Miss ratio of requests with this share.
    pub miss_ratio: f64,
    /// Mean latency with this share, in microseconds.
    pub latency_us: f64,
}
