//! The value of a share to a volume, by goal.

use forebay_block::{BlockSize, Op};
use forebay_locality::ReuseHistogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::cost::{Cost, Costs, Rests, Share};
use super::curves::VolumeCurve;
use super::cut::Cut;
use super::model::{ByPlace, LoadPoint, VolumeModel};

/// Resolution of missed targets: a power of two, so that sums have no rounding.
const MISSED_STEP: f64 = 1.0 / (1u64 << 30) as f64;
/// Additional weight of a hit in memory over a hit on flash, for [`Goal::Hits`]. It is less than
/// one request in a billion, so that it decides only between divisions with equally many hits.
const MEMORY_HIT: f64 = 1e-10;
/// Bytes by which [`Goal::Ppc`] divides.
const GIB: f64 = (1u64 << 30) as f64;

/// The goal of a division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// The lowest mean latencies: their sum over volumes (Koller 2012, section 5.3.1) or their
    /// mean over requests.
    Latency,
    /// The most requests per second ([`VolumeModel::iops`]).
    Iops(IopsGoal),
    /// The most performance per cost: the sum over volumes of hit ratio divided by size, with a
    /// term for each tier (ETICA, equation 3). If a tier has room for everything that is useful to
    /// all volumes, each volume gets it. The goal as published favours tiny sizes; a floor prevents
    /// them.
    Ppc,
    /// The most hits; among divisions with equally many hits, the most hits in memory.
    Hits,
}

impl Goal {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Iops(_) => "iops",
            Self::Ppc => "ppc",
            Self::Hits => "hits",
        }
    }
}

/// What "most requests per second" means for several volumes. Koller (2012), section 5.3.2, treats
/// the two as the same, but they differ: a sum grows most where a volume can be made fast, a sum of
/// inverses falls most where a volume is slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IopsGoal {
    /// The largest sum.
    #[default]
    Sum,
    /// The smallest sum of inverses, as the paper's implementation does.
    Inverse,
}

/// The unit that gets equal weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weigh {
    /// Every volume.
    Volumes,
    /// Every request.
    Requests,
}

impl Weigh {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Requests => "requests",
        }
    }
}

/// What to divide, and for which goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProblemOptions {
    /// The goal of the division.
    pub goal: Goal,
    /// The unit that gets equal weight. Has no effect on [`Goal::Iops`].
    pub weigh: Weigh,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Memory and flash to divide, in bytes.
    pub sizes: Sizes,
    /// The unit of each tier, in bytes: a whole number of blocks.
    pub units: Sizes,
    /// Minimum share of every volume, in bytes; a volume to which less is useful gets less. It need
    /// not be whole units: a share is its floor plus whole units.
    pub floor: Sizes,
    /// Blocks of a volume that are in memory regardless of its share because they are in flight; 0
    /// in the formulas.
    pub transit_blocks: u64,
}

/// Bytes of each tier.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, JsonSchema,
)]
pub struct Sizes {
    /// Memory, in bytes.
    pub dram_bytes: u64,
    /// Flash, in bytes.
    pub flash_bytes: u64,
}

/// The outcome of one volume's requests with a share: predicted or measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Read requests by the place where they find their blocks.
    pub reads: ByPlace,
    /// Write requests by the place where they find their blocks.
    pub writes: ByPlace,
    /// Mean latency of a request in microseconds.
    pub latency_us: f64,
    /// Requests per second.
    pub iops: f64,
}

impl Outcome {
    /// Number of requests: reads and writes.
    pub fn requests(&self) -> f64 {
        self.reads.sum() + self.writes.sum()
    }

    /// The share of requests found in memory.
    pub fn dram_hit_ratio(&self) -> f64 {
        ratio(self.reads.dram + self.writes.dram, self.requests())
    }

    /// The share of requests found on flash.
    pub fn flash_hit_ratio(&self) -> f64 {
        ratio(self.reads.flash + self.writes.flash, self.requests())
    }

    /// The share of requests whose blocks are all cached.
    pub fn hit_ratio(&self) -> f64 {
        self.dram_hit_ratio() + self.flash_hit_ratio()
    }
}

/// The share of a volume's requests that reach the backing store.
fn backing_ratio(model: &VolumeModel, reads: &ByPlace, writes: &ByPlace) -> f64 {
    let written = if model.writes_through { writes.sum() } else { writes.miss };
    ratio(reads.miss + written, reads.sum() + writes.sum())
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Volumes among which a cache is divided.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    options: ProblemOptions,
    curves: Vec<&'a VolumeCurve>,
    models: Vec<VolumeModel>,
    targets_us: Vec<Option<f64>>,
    requests: f64,
    /// The fastest tier in which everything useful fits.
    fits: Fits,
    dram: Cut,
    flash: Cut,
}

impl<'a> Problem<'a> {
    /// A problem with these curves and models of the volumes, without targets.
    ///
    /// # Panics
    /// If there is not one model for each curve, or a unit is not a whole number of blocks.
    pub fn new(
        options: ProblemOptions,
        curves: Vec<&'a VolumeCurve>,
        models: Vec<VolumeModel>,
    ) -> Self {
        assert_eq!(curves.len(), models.len(), "each volume needs one model");
        let block = options.block_size.bytes();
        for unit in [options.units.dram_bytes, options.units.flash_bytes] {
            assert!(
                unit > 0 && unit.is_multiple_of(block),
                "a unit must be a whole number of blocks"
            );
        }
        let requests = curves.iter().map(|c| c.requests() as f64).sum();
        let targets_us = vec![None; curves.len()];
        let (fits, dram, flash) = (Fits::None, Cut::default(), Cut::default());
        let mut problem = Self { options, curves, models, targets_us, requests, fits, dram, flash };
        let useful = (0..problem.volumes()).map(|v| problem.useful_bytes(v));
        let useful = useful.fold(0, u64::saturating_add);
        let Sizes { dram_bytes, flash_bytes } = options.sizes;
        problem.fits = match (useful <= dram_bytes, useful <= flash_bytes) {
            (true, _) => Fits::Dram,
            (false, true) => Fits::Flash,
            (false, false) => Fits::None,
        };
        problem.cut();
        problem
    }

    /// Cuts both tiers into units; repeated whenever what is useful changes.
    fn cut(&mut self) {
        let ProblemOptions { sizes, units, floor, .. } = self.options;
        let cut =
            |of: fn(&Sizes) -> u64, fits| self.cut_of(of(&sizes), of(&units), of(&floor), fits);
        let dram = cut(|s| s.dram_bytes, Fits::Dram);
        let flash = cut(|s| s.flash_bytes, Fits::Flash);
        (self.dram, self.flash) = (dram, flash);
    }

    fn cut_of(&self, size: u64, unit: u64, floor: u64, fits: Fits) -> Cut {
        let useful: Vec<u64> = (0..self.volumes()).map(|v| self.useful_bytes(v)).collect();
        let floors: Vec<u64> = useful.iter().map(|&useful| floor.min(useful)).collect();
        let cut = Cut::new(size, unit, self.options.block_size, &floors);
        let each = useful.iter().enumerate().map(|(v, &bytes)| cut.holding(v, bytes, unit));
        let in_units = each.fold(0, u64::saturating_add) <= cut.units;
        let in_bytes = useful.iter().copied().fold(0, u64::saturating_add) <= size;
        if self.options.goal == Goal::Ppc && self.fits == fits && in_bytes && !in_units {
            // Everything useful fits, but not rounded up to units: each volume gets it to the byte.
            return Cut::new(size, unit, self.options.block_size, &useful);
        }
        cut
    }

    /// Sets the maximum mean latency of a volume, in microseconds. Shares that meet more of the
    /// targets, or miss them by less, are preferred regardless of the goal.
    pub fn set_target(&mut self, volume: usize, latency_us: f64) {
        self.targets_us[volume] = Some(latency_us);
    }

    /// The target of a volume, in microseconds.
    pub fn target_us(&self, volume: usize) -> Option<f64> {
        self.targets_us[volume]
    }

    /// The options of the problem.
    pub fn options(&self) -> &ProblemOptions {
        &self.options
    }

    /// The curve of a volume.
    pub fn curve(&self, volume: usize) -> &'a VolumeCurve {
        self.curves[volume]
    }

    /// The models of all volumes.
    pub fn models(&self) -> &[VolumeModel] {
        &self.models
    }

    /// Changes the models of all volumes.
    pub fn update_models(&mut self, update: impl FnOnce(&mut [VolumeModel])) {
        update(&mut self.models);
        self.cut();
    }

    /// The latencies of a volume's requests if `outcome` is their outcome with a share of `sizes`.
    pub fn latencies(&self, volume: usize, sizes: Sizes, outcome: &Outcome) -> LoadPoint {
        let model = &self.models[volume];
        let ratio = backing_ratio(model, &outcome.reads, &outcome.writes);
        model.under(ratio, self.blocks(sizes))
    }

    /// Number of blocks in both tiers together.
    pub(super) fn blocks(&self, sizes: Sizes) -> u64 {
        (sizes.dram_bytes >> self.options.block_size.shift())
            + (sizes.flash_bytes >> self.options.block_size.shift())
    }

    /// The size of a volume's share, in bytes.
    pub fn sizes(&self, volume: usize, share: Share) -> Sizes {
        let bytes = |cut: &Cut, units: u64, unit: u64, has_rest: bool| {
            cut.offsets[volume] + units * unit + if has_rest { cut.rest } else { 0 }
        };
        let (units, rests) = (self.options.units, share.rests);
        Sizes {
            dram_bytes: bytes(&self.dram, share.dram, units.dram_bytes, rests.dram),
            flash_bytes: bytes(&self.flash, share.flash, units.flash_bytes, rests.flash),
        }
    }

    /// The largest share that is useful to a volume, in bytes, in either tier.
    fn useful_bytes(&self, volume: usize) -> u64 {
        let model = &self.models[volume];
        // Under write-back, room beyond that for every hit can absorb bursts of writes. How much of
        // it does is known only up to the largest measured share.
        let tried = model.measured.iter().map(|p| p.blocks).max().unwrap_or(0);
        let tried = if model.writes_through { 0 } else { tried };
        self.useful_blocks(volume).max(tried) << self.options.block_size.shift()
    }

    /// The smallest cache with which a volume without load has every possible gain, in blocks.
    pub fn useful_blocks(&self, volume: usize) -> u64 {
        let (model, curve) = (&self.models[volume], self.curves[volume]);
        // A single block is enough to give writes the latency of the cache, even if no block is
        // ever used again.
        let writes = !model.writes_through && curve.own.write.accesses() > 0;
        let least = u64::from(writes && model.write.least() < model.write_uncached);
        curve.useful_blocks().max(least)
    }

    /// The predicted outcome of a volume with a share.
    pub fn predict(&self, volume: usize, sizes: Sizes) -> Outcome {
        self.outcome(volume, &self.curves[volume].own, sizes)
    }

    /// The predicted outcome of a volume if all volumes share one LRU cache of the whole size;
    /// `None` if that was not measured.
    pub fn predict_shared(&self, volume: usize) -> Option<Outcome> {
        let shared = self.curves[volume].shared.as_ref()?;
        Some(self.outcome(volume, shared, self.options.sizes))
    }

    fn outcome(&self, volume: usize, hits: &ReuseHistogram, sizes: Sizes) -> Outcome {
        let model = &self.models[volume];
        let all = self.blocks(sizes);
        let dram = sizes.dram_bytes >> self.options.block_size.shift();
        let dram = dram.max(self.options.transit_blocks).min(all);
        let by_place = |op: Op, requests: u64| {
            let (near, held) = (hits.hits(op, dram), hits.hits(op, all));
            let [near, held, requests] = [near, held, requests].map(|n| n as f64);
            ByPlace { dram: near, flash: held - near, miss: requests - held }
        };
        let reads = by_place(Op::Read, hits.read.accesses());
        let writes = by_place(Op::Write, hits.write.accesses());
        let backing_ratio = backing_ratio(model, &reads, &writes);
        let load = model.under(backing_ratio, all);
        let write = if all > 0 { load.write } else { ByPlace::all(model.write_uncached) };
        Outcome {
            reads,
            writes,
            latency_us: ratio(reads.dot(&load.read) + writes.dot(&write), hits.accesses() as f64),
            iops: model.iops(backing_ratio) * load.iops_factor,
        }
    }

    /// The value of a division in the goal's own unit, from the outcome and the size of each
    /// volume: microseconds, requests per second, hit ratio per GiB, or hit ratio. If volumes have
    /// equal weight, and for requests per second, the values are sums over volumes; if requests
    /// have equal weight, they are means over requests.
    pub fn objective(&self, outcomes: &[Outcome], sizes: &[Sizes]) -> f64 {
        let value = |(outcome, &sizes)| self.value(outcome, sizes);
        let sum: f64 = outcomes.iter().zip(sizes).map(value).sum();
        match self.options.goal {
            Goal::Latency | Goal::Iops(IopsGoal::Inverse) => sum,
            Goal::Iops(IopsGoal::Sum) | Goal::Ppc => -sum,
            Goal::Hits if self.options.weigh == Weigh::Requests => 1.0 - sum,
            Goal::Hits => outcomes.len() as f64 - sum,
        }
    }

    /// The objective in words, with its unit.
    pub fn objective_name(&self) -> &'static str {
        match (self.options.goal, self.options.weigh) {
            (Goal::Latency, Weigh::Volumes) => "sum of mean latencies, µs",
            (Goal::Latency, Weigh::Requests) => "mean latency of requests, µs",
            (Goal::Iops(IopsGoal::Sum), _) => "sum of requests per second",
            (Goal::Iops(IopsGoal::Inverse), _) => "sum of µs per request",
            (Goal::Ppc, Weigh::Volumes) => "sum of hit ratios per GiB",
            (Goal::Ppc, Weigh::Requests) => "hits as a share of all requests, per GiB",
            (Goal::Hits, Weigh::Volumes) => "sum of hit ratios",
            (Goal::Hits, Weigh::Requests) => "hit ratio",
        }
    }

    /// Whether a larger objective is better.
    pub fn is_maximised(&self) -> bool {
        matches!(self.options.goal, Goal::Iops(IopsGoal::Sum) | Goal::Ppc | Goal::Hits)
    }

    /// By how much a mean latency misses the volume's target, as a fraction of the target: rounded
    /// to steps of about a billionth, so that the order of a sum does not matter and rounding
    /// errors miss no target.
    pub fn missed(&self, volume: usize, latency_us: f64) -> f64 {
        let Some(target) = self.targets_us[volume] else { return 0.0 };
        let steps = (latency_us - target) / target / MISSED_STEP;
        steps.max(0.0).round() * MISSED_STEP
    }

    /// One volume's contribution to the value that the goal minimises.
    fn value(&self, outcome: &Outcome, sizes: Sizes) -> f64 {
        let weight = self.weight(outcome);
        match self.options.goal {
            Goal::Latency => weight * outcome.latency_us,
            Goal::Iops(IopsGoal::Sum) => -outcome.iops,
            Goal::Iops(IopsGoal::Inverse) => 1e6 / outcome.iops,
            Goal::Hits => weight * (1.0 - outcome.hit_ratio()),
            Goal::Ppc => {
                let dram = per_gib(outcome.dram_hit_ratio(), sizes.dram_bytes);
                -weight * (dram + per_gib(outcome.flash_hit_ratio(), sizes.flash_bytes))
            }
        }
    }

    fn weight(&self, outcome: &Outcome) -> f64 {
        match self.options.weigh {
            Weigh::Volumes => 1.0,
            Weigh::Requests => ratio(outcome.requests(), self.requests),
        }
    }

    /// Whether one tier has room for everything that is useful to all volumes. If so, every volume
    /// has every hit, and performance per cost does not decide the sizes of that tier.
    pub fn everything_fits(&self) -> bool {
        self.fits != Fits::None
    }
}

/// The fastest tier with room for everything that is useful to all volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fits {
    Dram,
    Flash,
    None,
}

fn per_gib(hits: f64, bytes: u64) -> f64 {
    ratio(hits, bytes as f64 / GIB)
}

impl Costs for Problem<'_> {
    fn volumes(&self) -> usize {
        self.curves.len()
    }

    fn budget(&self) -> Share {
        let rests = Rests { dram: self.dram.rest > 0, flash: self.flash.rest > 0 };
        Share { rests, ..Share::new(self.dram.units, self.flash.units) }
    }

    fn floor(&self, volume: usize) -> Share {
        Share::new(self.dram.floors[volume], self.flash.floors[volume])
    }

    fn useful(&self, volume: usize) -> Share {
        let (bytes, units) = (self.useful_bytes(volume), self.options.units);
        Share::new(
            self.dram.holding(volume, bytes, units.dram_bytes),
            self.flash.holding(volume, bytes, units.flash_bytes),
        )
    }

    fn cost(&self, volume: usize, share: Share) -> Cost {
        let sizes = self.sizes(volume, share);
        let outcome = self.predict(volume, sizes);
        let value = match self.options.goal {
            Goal::Ppc => match self.fits {
                Fits::Dram => -outcome.dram_hit_ratio(),
                // Memory by its performance per cost, and flash for every possible hit.
                Fits::Flash => {
                    let memory = per_gib(outcome.dram_hit_ratio(), sizes.dram_bytes);
                    -self.weight(&outcome) * memory - outcome.hit_ratio()
                }
                Fits::None => self.value(&outcome, sizes),
            },
            Goal::Hits => {
                let in_memory = self.weight(&outcome) * outcome.dram_hit_ratio();
                self.value(&outcome, sizes) - MEMORY_HIT * in_memory
            }
            _ => self.value(&outcome, sizes),
        };
        Cost { missed: self.missed(volume, outcome.latency_us), value }
    }

    fn is_monotone(&self) -> bool {
        let ordered = |p: &ByPlace| p.dram <= p.flash && p.flash <= p.miss;
        let latencies = self.models.iter().all(|m| {
            let at_rest = m.measured.is_empty() && m.write.miss <= m.write_uncached;
            at_rest && ordered(&m.read) && ordered(&m.write)
        });
        match self.options.goal {
            Goal::Ppc => false,
            Goal::Hits => latencies || !self.has_targets(),
            Goal::Latency | Goal::Iops(_) => latencies,
        }
    }

    fn has_targets(&self) -> bool {
        self.targets_us.iter().any(Option::is_some)
    }
}
