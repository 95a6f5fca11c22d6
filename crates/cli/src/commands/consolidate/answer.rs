//! What `forebay consolidate` answers: measured and predicted.

use std::ops::Range;

use forebay_block::BlockSize;
use forebay_locality::{Phase, PhaseTree, SharedRecord};
use forebay_plan::{Consolidation, Demand};

use super::Args;
use super::workloads::Workloads;
use crate::context::Context;
use crate::error::CliError;
use crate::progress::Unit;

/// The answer.
pub struct Answer {
    pub block_size: BlockSize,
    pub size_blocks: u64,
    pub migration_period_s: Option<f64>,
    pub requests: u64,
    pub accesses: u64,
    pub workloads: Vec<Workload>,
    pub consolidation: Consolidation,
    /// Of the merged trace, by the definition of a workload's own ERSS.
    pub simulated_blocks: u64,
    /// The smallest shared cache in which each workload has, in its largest phase, the hits that
    /// its ERSS gives it alone.
    pub simulated_isolation_blocks: u64,
    pub files: String,
}

/// One workload.
pub struct Workload {
    pub name: String,
    pub accesses: u64,
    pub tree: PhaseTree,
    /// The phase that is provided for, by number.
    pub largest: usize,
    pub demand: Demand,
    /// Of all its accesses: for itself in a cache of its ERSS, for itself in a cache of the size
    /// asked about, and shared in that.
    pub miss_ratio_erss: f64,
    pub miss_ratio_alone: f64,
    pub miss_ratio_shared: f64,
    /// Whether it fits in the cache by itself.
    pub fits_alone: bool,
    /// When each phase begins and ends, in seconds.
    pub times_s: Vec<Range<f64>>,
}

impl Workload {
    pub fn phase(&self) -> &Phase {
        &self.tree.phases[self.largest]
    }
}

impl Answer {
    pub fn new(
        args: &Args,
        workloads: &Workloads,
        requests: u64,
        record: SharedRecord,
        ctx: &Context,
    ) -> Result<Self, CliError> {
        if record.accesses() == 0 {
            let what = "there is not one read or write to measure";
            return Err(CliError::failed(what).kept("nothing was written"));
        }
        let (options, size) = (args.phases(), args.size_blocks());
        let total = record.workloads.len() as u64 + u64::from(record.all().is_some());
        let progress = ctx.progress("looking for phases", Unit::Count, Some(total));
        let mut trees = Vec::new();
        for (own, done) in record.workloads.iter().zip(1..) {
            ctx.check()?;
            trees.push(PhaseTree::new(own, &options));
            progress.set(done);
        }
        // Where only one has accessed anything, it is all there is to merge.
        let needs = trees.iter().map(|tree| tree.largest().erss_blocks).max().unwrap_or(0);
        let merged = record.all().map_or(needs, |all| PhaseTree::erss_blocks(all, &options));
        progress.finish();
        let whole: Vec<_> = record.workloads.iter().map(|w| 0..w.accesses()).collect();
        let shared = record.shared(&whole);
        let spans: Vec<_> = trees.iter().map(|t| t.largest().span.clone()).collect();
        let in_phase = record.shared(&spans);
        let mut simulated_isolation_blocks = 0;
        let mut answered = Vec::new();
        for (number, tree) in trees.into_iter().enumerate() {
            let own = &record.workloads[number];
            let phase = tree.largest();
            let hits = record.alone(number, phase.span.clone()).hits(phase.erss_blocks);
            let isolated = in_phase[number].size_for_hits(hits);
            // A block that a workload alone has in its cache is in the shared one too, deeper.
            let isolated = isolated.ok_or_else(|| CliError::failed("hits were lost in merging"))?;
            simulated_isolation_blocks = simulated_isolation_blocks.max(isolated);
            let alone = record.alone(number, whole[number].clone());
            let misses = |hits: u64| match own.accesses() {
                0 => 0.0,
                accesses => (accesses - hits) as f64 / accesses as f64,
            };
            let largest = tree.phases.iter().position(|p| p == phase).unwrap_or(0);
            let seconds = |span: &Range<u64>| {
                let time = own.time(span.clone());
                time.start.as_secs_f64()..time.end.as_secs_f64()
            };
            answered.push(Workload {
                name: workloads.names()[number].clone(),
                accesses: own.accesses(),
                demand: demand(phase, args.marginal),
                miss_ratio_erss: misses(alone.hits(phase.erss_blocks)),
                miss_ratio_alone: misses(alone.hits(size)),
                miss_ratio_shared: misses(shared[number].hits(size)),
                fits_alone: phase.erss_blocks <= size,
                times_s: tree.phases.iter().map(|p| seconds(&p.span)).collect(),
                largest,
                tree,
            });
        }
        let files = args.traces.traces.iter().map(|path| path.display().to_string());
        Ok(Self {
            block_size: args.block_size,
            size_blocks: size,
            migration_period_s: args.migration_period.map(|p| p.nanos().as_secs_f64()),
            requests,
            accesses: record.accesses(),
            consolidation: Consolidation::new(answered.iter().map(|w| w.demand).collect()),
            workloads: answered,
            simulated_blocks: merged,
            simulated_isolation_blocks,
            files: files.collect::<Vec<_>>().join(", "),
        })
    }

    pub fn is_isolated(&self) -> bool {
        self.consolidation.is_isolated(self.size_blocks)
    }

    /// How far the prediction is above (below: negative) what was measured; `None` if that is 0.
    pub fn error(&self, measured: u64) -> Option<f64> {
        let needed = self.consolidation.needed_blocks();
        (measured > 0).then(|| needed as f64 / measured as f64 - 1.0)
    }

    /// Pairs of workloads of which the first wastes what the second needs, most first.
    pub fn pairs(&self) -> Vec<(usize, usize, u64)> {
        let all = 0..self.workloads.len();
        let pairs = all.clone().flat_map(|from| all.clone().map(move |on| (from, on)));
        let pairs = pairs.map(|(from, on)| (from, on, self.consolidation.pair(from, on)));
        let mut pairs: Vec<_> = pairs.filter(|pair| pair.2 > 0).collect();
        pairs.sort_by_key(|&(_, _, blocks)| std::cmp::Reverse(blocks));
        pairs
    }

    /// A number of blocks as people read sizes.
    pub fn size(&self, blocks: u64) -> String {
        let bytes = blocks * self.block_size.bytes();
        forebay_report::Unit::Bytes.show(bytes as f64)
    }

    /// What the user should know of the assumptions.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let [only] = &self.workloads[..] {
            notes.push(format!(
                "{} is one workload, which nothing shares the cache with: this is about its phases",
                only.name
            ));
        }
        let empty = self.workloads.iter().filter(|w| w.accesses == 0).map(|w| w.name.as_str());
        let empty: Vec<&str> = empty.collect();
        if !empty.is_empty() {
            notes.push(format!("not one read or write by {}", empty.join(", ")));
        }
        let untimed = self.workloads.iter().all(|w| w.times_s[0].end == 0.0);
        if self.workloads.len() > 1 && untimed {
            let each = "the traces tell no times: each begins when the one before has ended";
            notes.push(each.to_string());
        } else if let Some(lonely) = self.lonely() {
            notes.push(format!(
                "{} never runs while another does, so that they do nothing to one another: give \
                 --start-together if that is not what you ask about",
                lonely.name
            ));
        }
        notes
    }

    /// A workload that runs at no time at which another one does.
    fn lonely(&self) -> Option<&Workload> {
        let time = |w: &Workload| w.times_s[0].clone();
        let meet = |a: &Workload, b: &Workload| {
            time(a).start <= time(b).end && time(b).start <= time(a).end
        };
        let busy: Vec<&Workload> = self.workloads.iter().filter(|w| w.accesses > 0).collect();
        let alone = |w: &&&Workload| busy.iter().filter(|other| meet(w, other)).count() == 1;
        if busy.len() > 1 { busy.iter().find(alone).copied() } else { None }
    }

    /// Whether each workload hits as often as alone, in its largest phase, in this very cache.
    pub fn is_isolated_simulated(&self) -> bool {
        self.simulated_isolation_blocks <= self.size_blocks
    }
}

/// What a phase demands, as a whole or beyond the phases nested in it.
fn demand(phase: &Phase, marginal: bool) -> Demand {
    let (erss_blocks, reuses) = match marginal {
        false => (phase.erss_blocks, phase.reuses),
        true => (phase.marginal_erss_blocks, phase.marginal_reuses),
    };
    Demand { erss_blocks, reuses, floods: phase.floods, together: phase.together }
}
