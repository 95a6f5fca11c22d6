//! Measurements and predictions of workloads that share a cache.

use std::ops::Range;

use forebay_block::{BlockSize, Nanos};
use forebay_locality::{AccessRecord, Phase, PhaseReuse, PhaseTree, SharedRecord};
use forebay_plan::{Consolidation, Demand};

use super::Question;
use super::workloads::Workloads;
use crate::{AnalysisError, Observer, Unit};

/// The measured and the predicted needs of the workloads.
#[derive(Debug)]
pub struct Answer {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Size of the shared cache in question.
    pub size_blocks: u64,
    /// Interval at which blocks move into the cache, in seconds; `None` if they move on each
    /// access.
    pub migration_period_s: Option<f64>,
    /// Number of requests read.
    pub requests: u64,
    /// Number of block accesses.
    pub accesses: u64,
    /// The workloads, in order of appearance.
    pub workloads: Vec<Workload>,
    /// The joint demand of the workloads, and how much space each wastes that another needs.
    pub consolidation: Consolidation,
    /// Whether a phase demands only what it needs beyond the phases nested in it. Measurements
    /// always cover whole phases.
    pub marginal: bool,
    /// Blocks that the merged trace needs: its ERSS, as if it were one workload.
    pub simulated_blocks: u64,
    /// The smallest shared cache in which the largest phase of each workload hits as often as it
    /// does alone in a cache of its ERSS.
    pub simulated_isolation_blocks: u64,
}

/// The measurements of one workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Number of block accesses.
    pub accesses: u64,
    /// Its phases.
    pub tree: PhaseTree,
    /// Index of the phase for which the cache is sized.
    pub largest: usize,
    /// The size of the whole effective reuse set of that phase.
    pub erss_blocks: u64,
    /// The demand of that phase on the cache: everything it needs, or only what it needs beyond
    /// nested phases.
    pub demand: Demand,
    /// Miss ratio of all accesses, alone in a cache of the ERSS.
    pub miss_ratio_erss: f64,
    /// Miss ratio of all accesses, alone in a cache of the size in question.
    pub miss_ratio_alone: f64,
    /// Miss ratio of all accesses in that cache, shared with the other workloads.
    pub miss_ratio_shared: f64,
    /// Whether the demand fits in the cache without the other workloads.
    pub fits_alone: bool,
    /// When each phase begins and ends, in seconds.
    pub times_s: Vec<Range<f64>>,
}

impl Workload {
    /// `alone` and `shared` are the reuses among all accesses of the workload, in a cache of its
    /// own and in the shared one.
    fn new(
        question: &Question,
        name: String,
        own: &AccessRecord,
        tree: PhaseTree,
        [alone, shared]: [&PhaseReuse; 2],
    ) -> Self {
        let (phase, size) = (tree.largest(), question.size_blocks);
        let misses = |hits: u64| match own.accesses() {
            0 => 0.0,
            accesses => (accesses - hits) as f64 / accesses as f64,
        };
        let seconds = |span: &Range<u64>| {
            let time = own.time(span.clone());
            time.start.as_secs_f64()..time.end.as_secs_f64()
        };
        let demand = demand(phase, question.marginal);
        Self {
            name,
            accesses: own.accesses(),
            erss_blocks: phase.erss_blocks,
            demand,
            miss_ratio_erss: misses(alone.hits(phase.erss_blocks)),
            miss_ratio_alone: misses(alone.hits(size)),
            miss_ratio_shared: misses(shared.hits(size)),
            fits_alone: demand.erss_blocks <= size,
            times_s: tree.phases.iter().map(|p| seconds(&p.span)).collect(),
            largest: tree.phases.iter().position(|p| p == phase).unwrap_or(0),
            tree,
        }
    }

    /// The phase for which the cache is sized.
    pub fn phase(&self) -> &Phase {
        &self.tree.phases[self.largest]
    }
}

impl Answer {
    pub(super) fn new(
        question: &Question,
        workloads: &Workloads<'_>,
        requests: u64,
        record: SharedRecord,
        observer: &dyn Observer,
    ) -> Result<Self, AnalysisError> {
        if record.accesses() == 0 {
            return Err(AnalysisError::NoAccesses);
        }
        let (options, size) = (question.phases, question.size_blocks);
        let total = record.workloads.len() as u64 + u64::from(record.all().is_some());
        let meter = observer.begin("looking for phases", Unit::Count, Some(total));
        let mut trees = Vec::new();
        for (own, done) in record.workloads.iter().zip(1..) {
            observer.check()?;
            trees.push(PhaseTree::new(own, &options));
            meter.set(done);
        }
        // If only one workload has accesses, the merged trace is that workload.
        let needs = trees.iter().map(|tree| tree.largest().erss_blocks).max().unwrap_or(0);
        let merged = record.all().map_or(needs, |all| PhaseTree::erss_blocks(all, &options));
        drop(meter);
        let whole: Vec<_> = record.workloads.iter().map(|w| 0..w.accesses()).collect();
        let shared = record.shared(&whole);
        let spans: Vec<_> = trees.iter().map(|t| t.largest().span.clone()).collect();
        let in_phase = record.shared(&spans);
        let mut simulated_isolation_blocks = 0;
        let mut answered = Vec::new();
        for (number, tree) in trees.into_iter().enumerate() {
            let phase = tree.largest();
            let hits = record.alone(number, phase.span.clone()).hits(phase.erss_blocks);
            let isolated = in_phase[number].size_for_hits(hits);
            // A block that a workload alone has in its cache is in the shared cache as well, deeper
            // in the stack.
            let isolated = isolated.ok_or(AnalysisError::HitsLost)?;
            simulated_isolation_blocks = simulated_isolation_blocks.max(isolated);
            let (own, name) = (&record.workloads[number], workloads.names()[number].clone());
            let alone = record.alone(number, whole[number].clone());
            answered.push(Workload::new(question, name, own, tree, [&alone, &shared[number]]));
        }
        Ok(Self {
            block_size: question.block_size,
            size_blocks: size,
            migration_period_s: question.migration_period.map(Nanos::as_secs_f64),
            requests,
            accesses: record.accesses(),
            consolidation: Consolidation::new(answered.iter().map(|w| w.demand).collect()),
            workloads: answered,
            marginal: question.marginal,
            simulated_blocks: merged,
            simulated_isolation_blocks,
        })
    }

    /// Whether the workloads fit, according to the prediction.
    pub fn is_isolated(&self) -> bool {
        self.consolidation.is_isolated(self.size_blocks)
    }

    /// Relative error of the prediction against a measurement, negative if the prediction is too
    /// low. `None` if the measurement is 0, or if the prediction leaves out nested phases, which
    /// the measurement cannot.
    pub fn error(&self, measured: u64) -> Option<f64> {
        let needed = self.consolidation.needed_blocks();
        (measured > 0 && !self.marginal).then(|| needed as f64 / measured as f64 - 1.0)
    }

    /// Pairs of workloads in which the first wastes cache that the second needs, largest waste
    /// first.
    pub fn pairs(&self) -> Vec<(usize, usize, u64)> {
        let all = 0..self.workloads.len();
        let pairs = all.clone().flat_map(|from| all.clone().map(move |on| (from, on)));
        let pairs = pairs.map(|(from, on)| (from, on, self.consolidation.pair(from, on)));
        let mut pairs: Vec<_> = pairs.filter(|pair| pair.2 > 0).collect();
        pairs.sort_by_key(|&(_, _, blocks)| std::cmp::Reverse(blocks));
        pairs
    }

    /// Whether there are several workloads and none of their traces has times. They then count as
    /// running one after another.
    pub fn is_untimed(&self) -> bool {
        self.workloads.len() > 1 && self.workloads.iter().all(|w| w.times_s[0].end == 0.0)
    }

    /// A workload that runs at a different time from all others.
    pub fn lonely(&self) -> Option<&Workload> {
        let time = |w: &Workload| w.times_s[0].clone();
        let meet = |a: &Workload, b: &Workload| {
            time(a).start <= time(b).end && time(b).start <= time(a).end
        };
        let busy: Vec<&Workload> = self.workloads.iter().filter(|w| w.accesses > 0).collect();
        let alone = |w: &&&Workload| busy.iter().filter(|other| meet(w, other)).count() == 1;
        if busy.len() > 1 { busy.iter().find(alone).copied() } else { None }
    }

    /// Whether, in a shared cache of this size, the largest phase of each workload hits as often as
    /// alone.
    pub fn is_isolated_simulated(&self) -> bool {
        self.simulated_isolation_blocks <= self.size_blocks
    }
}

/// The demand of a phase, as a whole or beyond the phases nested in it.
fn demand(phase: &Phase, marginal: bool) -> Demand {
    let (erss_blocks, reuses) = match marginal {
        false => (phase.erss_blocks, phase.reuses),
        true => (phase.marginal_erss_blocks, phase.marginal_reuses),
    };
    Demand { erss_blocks, reuses, floods: phase.floods, together: phase.together }
}
