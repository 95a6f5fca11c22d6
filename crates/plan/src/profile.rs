//! Measures a workload for planning: hits by cache size, and how often dirty blocks are written
//! again.

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request};
use forebay_locality::{
    BlockKeys, BlockSample, Distance, Reuse, ReuseHistogram, ReuseStack, SampleCounts,
};
use rustc_hash::FxHashMap;

use crate::counts::HitCounts;
use crate::error::PlanError;

const BATCH: usize = 4096;
/// Every access brings its block to the front of an LRU list.
const DISTANCE: Distance = Distance::Trd;
/// A sample consists of this many smaller ones, whose spread shows how reliable it is.
const PARTS: usize = 8;

/// How to measure the workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfileOptions {
    /// Requests are split into blocks of this size.
    pub block_size: BlockSize,
    /// The share of blocks to sample; 1 measures exactly.
    pub sample_rate: f64,
    /// Whether to measure what write-back needs as well; takes about a third longer.
    pub write_back: bool,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self { block_size: BlockSize::KIB_4, sample_rate: 1.0, write_back: false }
    }
}

/// Collects requests into a [`Profile`].
pub struct ProfileBuilder {
    options: ProfileOptions,
    sample: BlockSample,
    keys: BlockKeys,
    whole: Measure,
    /// The parts of a sample; empty without sampling.
    parts: Vec<Measure>,
    requests: u64,
    reads: u64,
    writes: u64,
    span: Option<(Nanos, Nanos)>,
}

impl ProfileBuilder {
    /// An empty builder.
    ///
    /// # Errors
    /// If the sampling rate is not above 0 and at most 1.
    pub fn new(options: ProfileOptions) -> Result<Self, PlanError> {
        let rate = options.sample_rate;
        let sample = BlockSample::new(rate, PARTS).map_err(|_| PlanError::SampleRate(rate))?;
        let parts = if rate < 1.0 { PARTS } else { 0 };
        let part_rate = rate / PARTS as f64;
        Ok(Self {
            options,
            sample,
            keys: BlockKeys::new(),
            whole: Measure::new(options.write_back, rate),
            parts: (0..parts).map(|_| Measure::new(options.write_back, part_rate)).collect(),
            requests: 0,
            reads: 0,
            writes: 0,
            span: None,
        })
    }

    /// Measures one request. Writing zeroes is a write; trims and flushes access no block.
    ///
    /// # Errors
    /// If the workload touches more blocks than can be ordered.
    pub fn add(&mut self, request: &Request) -> Result<(), PlanError> {
        self.requests += 1;
        let (first, last) = self.span.unwrap_or((request.time, request.time));
        self.span = Some((first.min(request.time), last.max(request.time)));
        let (op, counter) = match request.op {
            Op::Read => (Op::Read, &mut self.reads),
            Op::Write | Op::WriteZeroes => (Op::Write, &mut self.writes),
            Op::Trim | Op::Flush => return Ok(()),
        };
        let (BlockIndex(first), blocks) = request.blocks(self.options.block_size);
        *counter += blocks;
        for block in first..first + blocks {
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(block) };
            let key = self.keys.key(addr)?;
            if self.parts.is_empty() {
                self.whole.access(key, op)?;
                continue;
            }
            if let Some(part) = self.sample.part_of(key) {
                self.whole.access(key, op)?;
                self.parts[part].access(key, op)?;
            }
        }
        Ok(())
    }

    /// The profile of all requests added.
    ///
    /// # Errors
    /// As [`ProfileBuilder::add`], and if there are accesses but none is in the sample.
    pub fn finish(self) -> Result<Profile, PlanError> {
        let (reads, writes) = (self.reads, self.writes);
        if reads + writes > 0 && self.whole.is_empty() {
            return Err(PlanError::EmptySample);
        }
        let parts = self.parts.into_iter().map(|part| part.finish(reads, writes));
        let (first, last) = self.span.unwrap_or_default();
        Ok(Profile {
            options: self.options,
            parts: parts.collect::<Result<_, _>>()?,
            whole: self.whole.finish(reads, writes)?,
            requests: self.requests,
            duration: last.saturating_sub(first),
        })
    }
}

/// The reuse distances of one set of blocks, and a batch of accesses still to be measured.
struct Measure {
    write_back: bool,
    stack: ReuseStack,
    histogram: SampleCounts,
    rewrites: SampleCounts,
    /// For each block written: the largest reuse distance of the reads since then, if there were
    /// any.
    since_write: FxHashMap<u64, Option<Reuse>>,
    keys: Vec<u64>,
    ops: Vec<Op>,
    reuses: Vec<Reuse>,
}

impl Measure {
    /// Measures a fraction `rate` of all blocks.
    fn new(write_back: bool, rate: f64) -> Self {
        Self {
            write_back,
            stack: ReuseStack::new(DISTANCE),
            histogram: SampleCounts::new(rate),
            rewrites: SampleCounts::new(rate),
            since_write: FxHashMap::default(),
            keys: Vec::with_capacity(BATCH),
            ops: Vec::with_capacity(BATCH),
            reuses: Vec::with_capacity(BATCH),
        }
    }

    fn access(&mut self, key: u64, op: Op) -> Result<(), PlanError> {
        self.keys.push(key);
        self.ops.push(op);
        if self.keys.len() == BATCH { self.measure() } else { Ok(()) }
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.stack.blocks_known() == 0
    }

    fn measure(&mut self) -> Result<(), PlanError> {
        self.reuses.clear();
        self.stack.access_batch(&self.keys, &self.ops, &mut self.reuses)?;
        for (&op, &reuse) in self.ops.iter().zip(&self.reuses) {
            self.histogram.add(op, reuse);
        }
        if self.write_back {
            self.measure_rewrites();
        }
        self.keys.clear();
        self.ops.clear();
        Ok(())
    }

    /// A write finds its block dirty in a cache of `c` blocks iff the block was written before and
    /// no access since then, including this one, had a distance of `c` or more: the block was then
    /// never evicted in between. So the largest distance since the last write is decisive for all
    /// cache sizes at once, just as the distance itself is for hits.
    fn measure_rewrites(&mut self) {
        for ((&key, &op), &reuse) in self.keys.iter().zip(&self.ops).zip(&self.reuses) {
            if op == Op::Write {
                let before = self.since_write.insert(key, None);
                self.rewrites.add(op, before.map_or(Reuse::COLD, |far| farther(far, reuse)));
            } else if let Some(far) = self.since_write.get_mut(&key) {
                *far = Some(farther(*far, reuse));
            }
        }
    }

    /// The counts, scaled to a workload of `reads` and `writes` in total.
    fn finish(mut self, reads: u64, writes: u64) -> Result<Counted, PlanError> {
        self.measure()?;
        let distinct = self.stack.blocks_known();
        let rewrites = self.rewrites;
        Ok(Counted {
            histogram: self.histogram.finish(DISTANCE, distinct, (reads, writes)),
            rewrites: self.write_back.then(|| rewrites.finish(DISTANCE, distinct, (0, writes))),
            reads,
            writes,
        })
    }
}

fn farther(far: Option<Reuse>, reuse: Reuse) -> Reuse {
    far.filter(|f| f.distance() > reuse.distance()).unwrap_or(reuse)
}

/// A workload as the planner sees it. Made by [`ProfileBuilder`].
#[derive(Clone, Debug)]
pub struct Profile {
    options: ProfileOptions,
    whole: Counted,
    parts: Vec<Counted>,
    requests: u64,
    duration: Nanos,
}

impl Profile {
    /// The options of the measurement.
    pub fn options(&self) -> &ProfileOptions {
        &self.options
    }
    /// Number of requests added, of every operation.
    pub fn requests(&self) -> u64 {
        self.requests
    }
    /// Whether there are reads (or writes, depending on `op`) but none is in the sample, so that
    /// all of them count as misses.
    pub fn is_unsampled(&self, op: Op) -> bool {
        self.whole.histogram.counts(op).is_some_and(|counts| counts.is_unsampled)
    }
    /// Time from the first request to the last; zero if the trace has no times.
    pub fn duration(&self) -> Nanos {
        self.duration
    }
}

impl HitCounts for Profile {
    fn reads(&self) -> u64 {
        self.whole.reads
    }
    fn writes(&self) -> u64 {
        self.whole.writes
    }
    fn read_hits(&self, blocks: u64) -> u64 {
        self.whole.read_hits(blocks)
    }
    fn write_hits(&self, blocks: u64) -> u64 {
        self.whole.write_hits(blocks)
    }
    fn rewrite_hits(&self, blocks: u64) -> u64 {
        self.whole.rewrite_hits(blocks)
    }
    fn footprint_blocks(&self) -> u64 {
        self.whole.footprint_blocks()
    }
    fn useful_blocks(&self) -> u64 {
        self.whole.useful_blocks()
    }
    fn parts(&self) -> Vec<&dyn HitCounts> {
        self.parts.iter().map(|part| part as &dyn HitCounts).collect()
    }
}

/// The hits of a set of blocks: all blocks, a sample or a part of one.
#[derive(Clone, Debug)]
struct Counted {
    histogram: ReuseHistogram,
    rewrites: Option<ReuseHistogram>,
    reads: u64,
    writes: u64,
}

impl HitCounts for Counted {
    fn reads(&self) -> u64 {
        self.reads
    }
    fn writes(&self) -> u64 {
        self.writes
    }
    // The weights of a sample add up to all accesses except for rounding.
    fn read_hits(&self, blocks: u64) -> u64 {
        self.histogram.hits(Op::Read, blocks).min(self.reads)
    }
    fn write_hits(&self, blocks: u64) -> u64 {
        self.histogram.hits(Op::Write, blocks).min(self.writes)
    }
    fn rewrite_hits(&self, blocks: u64) -> u64 {
        let measured = self.rewrites.as_ref().unwrap_or(&self.histogram);
        measured.hits(Op::Write, blocks).min(self.writes)
    }
    fn footprint_blocks(&self) -> u64 {
        self.histogram.distinct_blocks
    }
    fn useful_blocks(&self) -> u64 {
        self.histogram.useful_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::hierarchy;
    use forebay_block::{Flags, Volume};
    use proptest::prelude::*;

    fn request(op: Op, block: u64, blocks: u64) -> Request {
        Request {
            time: Nanos(block),
            volume: Volume(0),
            op,
            flags: Flags::NONE,
            offset: block * 4096,
            length: blocks * 4096,
        }
    }

    fn profile(accesses: &[(bool, u64)], options: ProfileOptions) -> Profile {
        let mut builder = ProfileBuilder::new(options).unwrap();
        for &(write, block) in accesses {
            let op = if write { Op::Write } else { Op::Read };
            builder.add(&request(op, block, 1)).unwrap();
        }
        builder.finish().unwrap()
    }

    /// Write-backs of an LRU cache that is simulated block by block and drained at the end.
    fn write_backs(accesses: &[(bool, u64)], capacity: usize) -> u64 {
        let (mut lru, mut written): (Vec<(u64, bool)>, u64) = (Vec::new(), 0);
        for &(write, block) in accesses {
            let held = lru.iter().position(|e| e.0 == block).map(|at| lru.remove(at).1);
            lru.insert(0, (block, write || held.unwrap_or(false)));
            if lru.len() > capacity {
                written += u64::from(lru.pop().unwrap().1);
            }
        }
        written + lru.iter().filter(|e| e.1).count() as u64
    }

    proptest! {
        #[test]
        fn write_backs_are_the_writes_that_find_no_dirty_block(
            accesses in prop::collection::vec((any::<bool>(), 0u64..12), 0..200)
        ) {
            let options = ProfileOptions { write_back: true, ..ProfileOptions::default() };
            let p = profile(&accesses, options);
            for capacity in 1..14 {
                let have = p.writes() - p.rewrite_hits(capacity);
                prop_assert_eq!(have, write_backs(&accesses, capacity as usize));
            }
        }
    }

    #[test]
    fn requests_are_split_and_those_without_data_do_not_count() {
        let mut builder = ProfileBuilder::new(ProfileOptions::default()).unwrap();
        for r in [
            request(Op::Read, 0, 3),
            request(Op::WriteZeroes, 1, 2),
            request(Op::Trim, 0, 3),
            request(Op::Flush, 0, 0),
            request(Op::Read, 0, 1),
        ] {
            builder.add(&r).unwrap();
        }
        let p = builder.finish().unwrap();
        assert_eq!((p.requests(), p.reads(), p.writes(), p.footprint_blocks()), (5, 4, 2, 3));
        assert_eq!((p.read_hits(3), p.write_hits(3), p.useful_blocks()), (1, 2, 3));
        assert_eq!(p.duration(), Nanos(1));
    }

    fn uniform() -> impl Iterator<Item = f64> {
        let mut state = 11u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    #[test]
    fn a_sample_estimates_the_hits_of_the_whole() {
        let accesses: Vec<(bool, u64)> =
            uniform().zip(0..400_000).map(|(u, i)| (i % 3 == 0, (u * 20_000.0) as u64)).collect();
        let exact = profile(&accesses, ProfileOptions::default());
        let options = ProfileOptions { sample_rate: 0.1, ..ProfileOptions::default() };
        let sampled = profile(&accesses, options);
        assert_eq!((sampled.reads(), sampled.writes()), (exact.reads(), exact.writes()));
        assert_eq!((sampled.parts().len(), exact.parts().len()), (8, 0));
        for blocks in [2_000, 5_000, 10_000, 15_000] {
            let error = sampled.read_hits(blocks) as f64 - exact.read_hits(blocks) as f64;
            assert!(error.abs() / (exact.reads() as f64) < 0.03, "{blocks}: {error}");
        }
    }

    #[test]
    fn a_hot_block_within_the_sample_or_outside_does_not_shift_latencies() {
        let rate = 0.02;
        let h = hierarchy(["FastDRAM", "SlowSSD"], "SlowHDD", WritePolicy::WriteBack);
        let sample = BlockSample::new(rate, PARTS).unwrap();
        // The keys of the first region are its block numbers.
        for sampled in [true, false] {
            let hot = (1 << 20..).find(|&key| sample.part_of(key).is_some() == sampled).unwrap();
            // Skewed accesses; a third of all reads and of all writes goes to one block.
            let accesses: Vec<(bool, u64)> = uniform()
                .zip(0..600_000)
                .map(|(u, i)| (i % 4 == 0, if i % 3 == 0 { hot } else { (u * u * 1e5) as u64 }))
                .collect();
            let [exact, sample] = [1.0, rate].map(|sample_rate| {
                let write_back = ProfileOptions { write_back: true, ..ProfileOptions::default() };
                profile(&accesses, ProfileOptions { sample_rate, ..write_back })
            });
            for sizes in [[0, 20_000], [2000, 30_000], [16_000, 0], [40_000, 40_000]] {
                let blocks: u64 = sizes.iter().sum();
                let parts = sample.parts();
                // 2,000 sampled blocks, 250 in each part; without correction the hot block would
                // count 50 times or not at all.
                let estimates = parts.iter().map(|&part| (part, 0.2));
                for (counts, most) in estimates.chain([(&sample as &dyn HitCounts, 0.04)]) {
                    for (of, estimated, hits, all) in [
                        ("reads", counts.read_hits(blocks), exact.read_hits(blocks), exact.reads()),
                        (
                            "writes",
                            counts.write_hits(blocks),
                            exact.write_hits(blocks),
                            exact.writes(),
                        ),
                        (
                            "rewrites",
                            counts.rewrite_hits(blocks),
                            exact.rewrite_hits(blocks),
                            exact.writes(),
                        ),
                    ] {
                        let off = (estimated as f64 - hits as f64).abs() / all as f64;
                        assert!(off < most, "{sampled}, {blocks}: {of} off by {off}");
                    }
                }
                let truth = h.mean_latency_us(&exact, &sizes);
                let bounds = h.mean_latency_us_bounds(&sample, &sizes).unwrap();
                let (middle, half) =
                    ((bounds.low + bounds.high) / 2.0, (bounds.high - bounds.low) / 2.0);
                let off = (middle - truth).abs();
                assert!(half < 0.2 * truth, "{bounds:?} for {truth}");
                // (The truth lies outside about one interval in twenty.)
                assert!(off < 2.0 * half, "{sampled}, {sizes:?}: {bounds:?} for {truth}");
            }
        }
    }

    #[test]
    fn a_sample_without_a_block_is_refused_and_says_nothing_of_the_workload() {
        let options = ProfileOptions { sample_rate: 1e-9, ..ProfileOptions::default() };
        let mut builder = ProfileBuilder::new(options).unwrap();
        (0..100).for_each(|block| builder.add(&request(Op::Read, block, 1)).unwrap());
        assert!(matches!(builder.finish(), Err(PlanError::EmptySample)));
        // A workload without accesses has none in any sample either.
        assert_eq!(ProfileBuilder::new(options).unwrap().finish().unwrap().reads(), 0);
    }

    #[test]
    fn writes_of_which_none_is_in_the_sample_are_no_hits() {
        let options = ProfileOptions { sample_rate: 0.01, write_back: true, ..Default::default() };
        let sample = BlockSample::new(0.01, PARTS).unwrap();
        let outside = (0..).filter(|&key| sample.part_of(key).is_none()).take(40);
        let inside = (0..).find(|&key| sample.part_of(key).is_some()).unwrap();
        let accesses: Vec<(bool, u64)> =
            outside.map(|key| (true, key)).chain([(false, inside)]).collect();
        let sampled = profile(&accesses, options);
        assert!(sampled.is_unsampled(Op::Write) && !sampled.is_unsampled(Op::Read));
        for counts in sampled.parts().into_iter().chain([&sampled as &dyn HitCounts]) {
            assert_eq!((counts.writes(), counts.write_hits(1 << 30)), (40, 0));
            assert_eq!(counts.rewrite_hits(1 << 30), 0);
        }
    }

    #[test]
    fn impossible_rates_are_refused() {
        for sample_rate in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(
                ProfileBuilder::new(ProfileOptions { sample_rate, ..ProfileOptions::default() })
                    .is_err()
            );
        }
    }
}
