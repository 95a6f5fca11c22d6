//! The answer as a JSON document.

use forebay_locality::{Phase, PhaseState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Workload};
use crate::Columns;

/// The JSON document.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Document {
    /// Size of a block, in bytes (`--block-size`).
    pub block_size: u64,
    /// Size of the shared cache (`--size`), in blocks.
    pub size_blocks: u64,
    /// Interval, in seconds, at which accessed blocks are moved into the cache
    /// (`--migration-period`). Omitted if the option is not given; blocks then enter the cache on
    /// each access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_period_s: Option<f64>,
    /// Requests in the traces.
    pub requests: u64,
    /// Block accesses.
    pub accesses: u64,
    /// The workloads, in the order of the files, or in the order in which their volumes appear.
    pub workloads: Vec<WorkloadDocument>,
    /// Pairs of workloads in which one wastes cache that the other needs, largest waste first.
    pub pairs: Vec<Pair>,
    /// Whether the prediction counts only what phases need in addition to their nested phases (`--marginal`).
    pub marginal: bool,
    /// Sum of `erss_blocks` over all workloads.
    pub erss_blocks: u64,
    /// Sum of `demand_blocks` over all workloads.
    pub demand_blocks: u64,
    /// Sum of `wastage_blocks` over all pairs.
    pub wastage_blocks: u64,
    /// The prediction: `demand_blocks` plus `wastage_blocks`.
    pub needed_blocks: u64,
    /// Whether `needed_blocks` fit in `size_blocks`.
    pub isolated: bool,
    /// ERSS of the merged trace, as if it were one workload. Includes nested phases, even with `--marginal`.
    pub simulated_blocks: u64,
    /// Measured: the smallest shared cache in which each workload's largest phase hits as often as it does
    /// alone in a cache of its ERSS. Includes nested phases, even with `--marginal`.
    pub simulated_isolation_blocks: u64,
    /// Whether `simulated_isolation_blocks` fit in `size_blocks`.
    pub simulated_isolated: bool,
    /// Relative error of `needed_blocks` against `simulated_blocks`: 0.1 means that the prediction is 10 %
    /// too high. Null if `simulated_blocks` is 0, or with `--marginal`.
    pub error: Option<f64>,
    /// Relative error of `needed_blocks` against `simulated_isolation_blocks`; null if
    /// `simulated_isolation_blocks` is 0, or with `--marginal`.
    pub isolation_error: Option<f64>,
}

/// The results for a workload.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct WorkloadDocument {
    /// Name of the workload.
    pub name: String,
    /// Block accesses of the workload.
    pub accesses: u64,
    /// Cache blocks that the workload needs: the ERSS of the phase for which the cache is sized.
    pub erss_blocks: u64,
    /// Cache blocks that the prediction counts for the workload: `erss_blocks`, or with `--marginal` the
    /// `marginal_erss_blocks` of that phase.
    pub demand_blocks: u64,
    /// Reuses in the phase for which the cache is sized, divided by the accesses of all workloads
    /// during that phase. With `--marginal`, excluding reuses that a cache for the nested phases would serve.
    pub reuse_rate: f64,
    /// Accesses to blocks that the workload accesses only once in the phase for which the cache is
    /// sized, divided by the accesses of all workloads during that phase.
    pub flood_rate: f64,
    /// Additional cache blocks that all other workloads need because of this workload.
    pub wastage_caused_blocks: u64,
    /// Additional cache blocks that this workload needs because of all other workloads.
    pub wastage_suffered_blocks: u64,
    /// Whether `demand_blocks` would fit in the cache if the workload ran alone.
    pub fits_alone: bool,
    /// Miss ratio of the whole workload, alone in a cache of `erss_blocks`.
    pub miss_ratio_erss: f64,
    /// Miss ratio of the whole workload, alone in the cache of `--size`.
    pub miss_ratio_alone: f64,
    /// Miss ratio of the whole workload in the cache of `--size`, shared with the other workloads.
    pub miss_ratio_shared: f64,
    /// Block accesses per window.
    pub window: u64,
    /// Index in `phases` of the phase for which the cache is sized.
    pub phase: usize,
    /// The phases of the workload, as a tree; the first entry is the whole workload.
    pub phases: Vec<PhaseDocument>,
}

/// A workload that wastes cache which another one needs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Pair {
    /// The workload that floods the cache.
    pub from: String,
    /// The workload whose blocks are evicted.
    pub on: String,
    /// Additional cache blocks that the second workload needs because of the first.
    pub wastage_blocks: u64,
}

/// A phase of a workload.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct PhaseDocument {
    /// Index of the phase that encloses this one; null for the whole workload.
    pub parent: Option<usize>,
    /// `in`: the phase fits in a cache of `found_blocks`; `out`: it does not fit; `whole`: the whole
    /// workload.
    pub state: String,
    /// Index of the phase's first access within the workload.
    pub start: u64,
    /// Block accesses.
    pub accesses: u64,
    /// When the phase begins, in seconds.
    pub start_s: f64,
    /// When the phase ends, in seconds.
    pub end_s: f64,
    /// Cache size, in blocks, at which the search found the phase.
    pub found_blocks: u64,
    /// The smallest cache size tried whose misses exceed those of a larger cache by at most 1 % of the
    /// accesses.
    pub size_blocks: u64,
    /// Blocks that the phase needs (ERSS).
    pub erss_blocks: u64,
    /// Blocks that the phase needs in addition to those of the largest nested phase that is long enough
    /// (`--duration-min`).
    pub marginal_erss_blocks: u64,
    /// Number of distinct blocks that the phase accesses.
    pub in_use_blocks: u64,
    /// Number of distinct blocks that the phase reuses.
    pub reuse_set_blocks: u64,
    /// Reuses in the phase, divided by the accesses of all workloads during the phase.
    pub reuse_rate: f64,
    /// `reuse_rate`, excluding reuses that a cache for the nested phases would serve.
    pub marginal_reuse_rate: f64,
    /// Accesses to blocks that the phase accesses only once, divided by the accesses of all workloads during
    /// the phase.
    pub flood_rate: f64,
    /// Index of the earlier sibling phase that this phase repeats; its own index if it repeats none.
    pub repeats: usize,
}

/// A row of `--parquet`.
pub type Row<'a> = (PhaseOf<'a>, PhaseDocument);

/// The columns of a row that come before the phase.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct PhaseOf<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Index of the phase.
    pub phase: usize,
}

impl PhaseDocument {
    fn new(workload: &Workload, number: usize) -> Self {
        let phase = &workload.tree.phases[number];
        let time = &workload.times_s[number];
        let rate = |n: u64| n as f64 / phase.together.max(1) as f64;
        Self {
            parent: phase.parent,
            state: state(phase).to_string(),
            start: phase.span.start,
            accesses: phase.accesses(),
            start_s: time.start,
            end_s: time.end,
            found_blocks: phase.found_blocks,
            size_blocks: phase.size_blocks,
            erss_blocks: phase.erss_blocks,
            marginal_erss_blocks: phase.marginal_erss_blocks,
            in_use_blocks: phase.in_use_blocks,
            reuse_set_blocks: phase.reuse_set_blocks,
            reuse_rate: rate(phase.reuses),
            marginal_reuse_rate: rate(phase.marginal_reuses),
            flood_rate: rate(phase.floods),
            repeats: phase.repeats,
        }
    }
}

fn state(phase: &Phase) -> &'static str {
    match phase.state {
        PhaseState::Whole => "whole",
        PhaseState::In => "in",
        PhaseState::Out => "out",
    }
}

impl Answer {
    /// The answer as a JSON document.
    pub fn document(&self) -> Document {
        let c = &self.consolidation;
        let workload = |(number, w): (usize, &'_ Workload)| WorkloadDocument {
            name: w.name.clone(),
            accesses: w.accesses,
            erss_blocks: w.erss_blocks,
            demand_blocks: w.demand.erss_blocks,
            reuse_rate: w.demand.reuse_rate(),
            flood_rate: w.demand.flood_rate(),
            wastage_caused_blocks: c.caused_by(number),
            wastage_suffered_blocks: c.suffered_by(number),
            fits_alone: w.fits_alone,
            miss_ratio_erss: w.miss_ratio_erss,
            miss_ratio_alone: w.miss_ratio_alone,
            miss_ratio_shared: w.miss_ratio_shared,
            window: w.tree.window,
            phase: w.largest,
            phases: (0..w.tree.phases.len()).map(|n| PhaseDocument::new(w, n)).collect(),
        };
        let pair = |(from, on, wastage_blocks): (usize, usize, u64)| Pair {
            from: self.workloads[from].name.clone(),
            on: self.workloads[on].name.clone(),
            wastage_blocks,
        };
        Document {
            block_size: self.block_size.bytes(),
            size_blocks: self.size_blocks,
            migration_period_s: self.migration_period_s,
            requests: self.requests,
            accesses: self.accesses,
            workloads: self.workloads.iter().enumerate().map(workload).collect(),
            pairs: self.pairs().into_iter().map(pair).collect(),
            marginal: self.marginal,
            erss_blocks: self.workloads.iter().map(|w| w.erss_blocks).sum(),
            demand_blocks: c.erss_blocks(),
            wastage_blocks: c.wastage_blocks(),
            needed_blocks: c.needed_blocks(),
            isolated: self.is_isolated(),
            simulated_blocks: self.simulated_blocks,
            simulated_isolation_blocks: self.simulated_isolation_blocks,
            simulated_isolated: self.is_isolated_simulated(),
            error: self.error(self.simulated_blocks),
            isolation_error: self.error(self.simulated_isolation_blocks),
        }
    }

    /// A row for every phase of every workload.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.workloads.iter().flat_map(|w| {
            let phases = 0..w.tree.phases.len();
            phases.map(|phase| -> Row<'_> {
                (PhaseOf { workload: &w.name, phase }, PhaseDocument::new(w, phase))
            })
        }))
    }
}
