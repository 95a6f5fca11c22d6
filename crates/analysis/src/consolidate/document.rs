//! The answer for programs.

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
    /// The cache asked about (`--size`), in blocks.
    pub size_blocks: u64,
    /// Seconds between two moves of blocks into the cache (`--migration-period`); left out without it:
    /// blocks enter as they are accessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_period_s: Option<f64>,
    /// Requests read.
    pub requests: u64,
    /// Block accesses.
    pub accesses: u64,
    /// In the order of files, or of volumes as they appear.
    pub workloads: Vec<WorkloadDocument>,
    /// Which workload wastes what another needs, most first.
    pub pairs: Vec<Pair>,
    /// Sum of what all workloads need.
    pub erss_blocks: u64,
    /// Sum of what they waste of each other's.
    pub wastage_blocks: u64,
    /// Both together: the prediction.
    pub needed_blocks: u64,
    /// Whether `needed_blocks` fit in `size_blocks`.
    pub isolated: bool,
    /// ERSS of the merged trace, by the definition of a workload's own ERSS.
    pub simulated_blocks: u64,
    /// Measured: the smallest shared cache in which the largest phase of each workload has as many hits as it
    /// has alone in a cache of its ERSS.
    pub simulated_isolation_blocks: u64,
    /// Whether `simulated_isolation_blocks` fit in `size_blocks`.
    pub simulated_isolated: bool,
    /// By which fraction `needed_blocks` are above `simulated_blocks`: 0.1 is a tenth too much. Null if
    /// those are 0.
    pub error: Option<f64>,
    /// By which fraction `needed_blocks` are above `simulated_isolation_blocks`; null if those are 0.
    pub isolation_error: Option<f64>,
}

/// What is said of a workload.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct WorkloadDocument {
    /// Its name.
    pub name: String,
    /// Its block accesses.
    pub accesses: u64,
    /// What it needs: ERSS of the phase that is provided for.
    pub erss_blocks: u64,
    /// In that phase, the share of accesses that are reuses.
    pub reuse_rate: f64,
    /// In that phase, the share of accesses that push blocks of others out.
    pub flood_rate: f64,
    /// What it wastes of all others.
    pub wastage_caused_blocks: u64,
    /// What all others waste of it.
    pub wastage_suffered_blocks: u64,
    /// Whether what it needs fits in the cache without the others.
    pub fits_alone: bool,
    /// Miss ratio of all its accesses, alone in a cache of `erss_blocks`.
    pub miss_ratio_erss: f64,
    /// Miss ratio of all its accesses, alone in the cache of `--size`.
    pub miss_ratio_alone: f64,
    /// Miss ratio of all its accesses in the cache of `--size`, shared with the others.
    pub miss_ratio_shared: f64,
    /// Accesses of a window.
    pub window: u64,
    /// Number of the phase in `phases` that is provided for.
    pub phase: usize,
    /// The tree of its phases, the whole workload first.
    pub phases: Vec<PhaseDocument>,
}

/// One workload wastes what another needs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Pair {
    /// The workload that floods the cache.
    pub from: String,
    /// The workload whose blocks are pushed out.
    pub on: String,
    /// How many blocks that is.
    pub wastage_blocks: u64,
}

/// A phase of a workload.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct PhaseDocument {
    /// Number of the phase in which it is nested; null for the whole.
    pub parent: Option<usize>,
    /// `in`: it fits in a cache of `found_blocks`; `out`: it does not; `whole`: the whole workload.
    pub state: String,
    /// Number of its first access, among those of the workload.
    pub start: u64,
    /// Block accesses.
    pub accesses: u64,
    /// When it begins, in seconds.
    pub start_s: f64,
    /// When it ends, in seconds.
    pub end_s: f64,
    /// The size of cache at which it shows.
    pub found_blocks: u64,
    /// The smallest size tried that has no more misses than a larger one (up to 1 % of the accesses more).
    pub size_blocks: u64,
    /// What it needs (ERSS).
    pub erss_blocks: u64,
    /// What it needs beyond the largest phase nested in it that is long enough.
    pub marginal_erss_blocks: u64,
    /// Different blocks.
    pub in_use_blocks: u64,
    /// Different blocks that are reused.
    pub reuse_set_blocks: u64,
    /// Share of its accesses that are reuses.
    pub reuse_rate: f64,
    /// Share of its accesses that are reuses beyond that nested phase.
    pub marginal_reuse_rate: f64,
    /// Share of its accesses that push blocks of others out.
    pub flood_rate: f64,
    /// Number of the earlier sibling that it repeats; its own number if none.
    pub repeats: usize,
}

/// A row of `--parquet`.
pub type Row<'a> = (PhaseOf<'a>, PhaseDocument);

/// What a row says in front of the phase.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct PhaseOf<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Number of the phase.
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
    /// For programs.
    pub fn document(&self) -> Document {
        let c = &self.consolidation;
        let workload = |(number, w): (usize, &'_ Workload)| WorkloadDocument {
            name: w.name.clone(),
            accesses: w.accesses,
            erss_blocks: w.demand.erss_blocks,
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
            erss_blocks: c.erss_blocks(),
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

    /// Every phase of every workload.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.workloads.iter().flat_map(|w| {
            let phases = 0..w.tree.phases.len();
            phases.map(|phase| -> Row<'_> {
                (PhaseOf { workload: &w.name, phase }, PhaseDocument::new(w, phase))
            })
        }))
    }
}
