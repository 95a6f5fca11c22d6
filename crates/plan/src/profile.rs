//! Measuring a workload for planning: hits by cache size, and how often blocks are dirtied anew.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request};
use forebay_locality::{BlockKeys, Distance, HistogramBuilder, Reuse, ReuseHistogram, ReuseStack};

use crate::counts::HitCounts;
use crate::error::PlanError;

const BATCH: usize = 4096;
/// A sample consists of so many smaller ones, whose disagreement tells how good it is.
const PARTS: u64 = 8;

/// How to measure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfileOptions {
    /// Requests are split into blocks of this size.
    pub block_size: BlockSize,
    /// The share of blocks looked at: 1 measures exactly.
    pub sample_rate: f64,
    /// Also measure what write-back needs to know; takes about a third longer.
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
    /// A block is looked at iff the hash of its key is at most this.
    threshold: u64,
    keys: BlockKeys,
    whole: Measure,
    /// Of a sample: its parts, by the hash's last bits.
    parts: Vec<Measure>,
    requests: u64,
    reads: u64,
    writes: u64,
    span: Option<(Nanos, Nanos)>,
}

impl ProfileBuilder {
    /// Nothing measured yet.
    ///
    /// # Errors
    /// If the sampling rate is not above 0 and at most 1.
    pub fn new(options: ProfileOptions) -> Result<Self, PlanError> {
        let rate = options.sample_rate;
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(PlanError::SampleRate(rate));
        }
        let parts = if rate < 1.0 { PARTS } else { 0 };
        Ok(Self {
            options,
            threshold: (rate * u64::MAX as f64) as u64,
            keys: BlockKeys::new(),
            whole: Measure::new(options.write_back),
            parts: (0..parts).map(|_| Measure::new(options.write_back)).collect(),
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
            let hash = mix(key);
            if hash <= self.threshold {
                self.whole.access(key, op)?;
                self.parts[(hash % PARTS) as usize].access(key, op)?;
            }
        }
        Ok(())
    }

    /// The profile of all requests added.
    ///
    /// # Errors
    /// As [`ProfileBuilder::add`].
    pub fn finish(self) -> Result<Profile, PlanError> {
        let (reads, writes, rate) = (self.reads, self.writes, self.options.sample_rate);
        let part_rate = rate / PARTS as f64;
        let parts = self.parts.into_iter().map(|part| part.finish(reads, writes, part_rate));
        let (first, last) = self.span.unwrap_or_default();
        Ok(Profile {
            options: self.options,
            parts: parts.collect::<Result<_, _>>()?,
            whole: self.whole.finish(reads, writes, rate)?,
            requests: self.requests,
            duration: last.saturating_sub(first),
        })
    }
}

/// Distances of one set of blocks, with the accesses that come next.
struct Measure {
    write_back: bool,
    stack: ReuseStack,
    histogram: HistogramBuilder,
    rewrites: HistogramBuilder,
    /// Per block written: its farthest reuse since, if it was read since.
    since_write: HashMap<u64, Option<Reuse>, BuildHasherDefault<KeyHasher>>,
    keys: Vec<u64>,
    ops: Vec<Op>,
    reuses: Vec<Reuse>,
}

impl Measure {
    fn new(write_back: bool) -> Self {
        Self {
            write_back,
            stack: ReuseStack::new(Distance::Trd),
            histogram: HistogramBuilder::new(),
            rewrites: HistogramBuilder::new(),
            since_write: HashMap::default(),
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

    /// A write finds its block dirty in a cache of `c` blocks iff the block was written before
    /// and no access since, this one included, came at a distance of `c` or more: then it was
    /// never evicted in between. So the largest distance since the last write decides for every
    /// cache size at once, just as the distance itself does for hits.
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

    /// What was measured, for a workload of so many accesses of which a share was looked at.
    fn finish(mut self, reads: u64, writes: u64, rate: f64) -> Result<Counted, PlanError> {
        self.measure()?;
        let distinct = self.stack.blocks_known();
        let histogram = self.histogram.finish(distinct);
        let weight = |seen: u64, all: u64| if seen == 0 { 0.0 } else { all as f64 / seen as f64 };
        Ok(Counted {
            rate,
            read_weight: weight(histogram.read.accesses(), reads),
            write_weight: weight(histogram.write.accesses(), writes),
            rewrites: self.write_back.then(|| self.rewrites.finish(distinct)),
            histogram,
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
    /// How it was measured.
    pub fn options(&self) -> &ProfileOptions {
        &self.options
    }
    /// Requests added, of every operation.
    pub fn requests(&self) -> u64 {
        self.requests
    }
    /// From the first request to the last; zero where the trace knows no time.
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

/// Hits as some of the blocks show them.
#[derive(Clone, Debug)]
struct Counted {
    /// The share of blocks looked at.
    rate: f64,
    histogram: ReuseHistogram,
    rewrites: Option<ReuseHistogram>,
    /// All reads, and all writes, per one that was looked at.
    read_weight: f64,
    write_weight: f64,
    reads: u64,
    writes: u64,
}

impl Counted {
    fn hits(&self, of: &ReuseHistogram, op: Op, blocks: u64, weight: f64) -> u64 {
        if self.rate == 1.0 {
            return of.hits(op, blocks);
        }
        // A cache of so many blocks holds this many of those looked at.
        let share = (blocks as f64 * self.rate).round() as u64;
        (of.hits(op, share) as f64 * weight) as u64
    }

    fn scaled(&self, blocks: u64) -> u64 {
        (blocks as f64 / self.rate).ceil() as u64
    }
}

impl HitCounts for Counted {
    fn reads(&self) -> u64 {
        self.reads
    }
    fn writes(&self) -> u64 {
        self.writes
    }
    fn read_hits(&self, blocks: u64) -> u64 {
        self.hits(&self.histogram, Op::Read, blocks, self.read_weight)
    }
    fn write_hits(&self, blocks: u64) -> u64 {
        self.hits(&self.histogram, Op::Write, blocks, self.write_weight)
    }
    fn rewrite_hits(&self, blocks: u64) -> u64 {
        let measured = self.rewrites.as_ref().unwrap_or(&self.histogram);
        self.hits(measured, Op::Write, blocks, self.write_weight)
    }
    fn footprint_blocks(&self) -> u64 {
        self.scaled(self.histogram.distinct_blocks)
    }
    fn useful_blocks(&self) -> u64 {
        self.scaled(self.histogram.useful_blocks())
    }
}

/// Hashes keys that are small numbers; [`mix`] spreads them.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = mix(key);
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit depends on every bit.
fn mix(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// Write-backs of an LRU cache simulated block by block, drained at the end.
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

    #[test]
    fn a_sample_estimates_the_hits_of_the_whole() {
        let accesses: Vec<(bool, u64)> =
            (0..400_000u64).map(|i| (i % 3 == 0, mix(i) % 20_000)).collect();
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
    fn impossible_rates_are_refused() {
        for sample_rate in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(
                ProfileBuilder::new(ProfileOptions { sample_rate, ..ProfileOptions::default() })
                    .is_err()
            );
        }
    }
}
