//! The interface between measuring a workload and planning for it: hits by cache size.

use forebay_block::Op;
use forebay_locality::ReuseHistogram;

/// How often a workload hits in an LRU cache of any size. The planner knows nothing else about a
/// workload. Each call takes constant time, so exhaustive search is fast enough for interactive
/// use.
///
/// Hits never decrease as the cache grows, and never exceed the accesses.
pub trait HitCounts {
    /// Block accesses that read.
    fn reads(&self) -> u64;
    /// Block accesses that write.
    fn writes(&self) -> u64;
    /// Reads that hit in a cache of `blocks` blocks.
    fn read_hits(&self, blocks: u64) -> u64;
    /// Writes that hit in a cache of `blocks` blocks.
    fn write_hits(&self, blocks: u64) -> u64;
    /// Writes that find their block *dirty* in a cache of `blocks` blocks; needed only for
    /// write-back. Every other write makes a block dirty, which costs one write to the backing
    /// store later.
    ///
    /// Unless measured (as [`crate::Profile`] does), every write hit counts as one, which
    /// underestimates write-backs where blocks are read in and then written.
    fn rewrite_hits(&self, blocks: u64) -> u64 {
        self.write_hits(blocks)
    }
    /// Number of distinct blocks accessed.
    fn footprint_blocks(&self) -> u64;
    /// The smallest cache that has every possible hit, in blocks; a larger one gains nothing.
    fn useful_blocks(&self) -> u64 {
        self.footprint_blocks()
    }
    /// The parts of a sample: smaller samples that do not overlap, each an estimate of the whole workload.
    /// None if the counts are exact.
    fn parts(&self) -> Vec<&dyn HitCounts> {
        Vec::new()
    }
}

impl HitCounts for ReuseHistogram {
    fn reads(&self) -> u64 {
        self.read.accesses()
    }
    fn writes(&self) -> u64 {
        self.write.accesses()
    }
    fn read_hits(&self, blocks: u64) -> u64 {
        self.hits(Op::Read, blocks)
    }
    fn write_hits(&self, blocks: u64) -> u64 {
        self.hits(Op::Write, blocks)
    }
    fn footprint_blocks(&self) -> u64 {
        self.distinct_blocks
    }
    fn useful_blocks(&self) -> u64 {
        self.max_distance().map_or(0, |d| d + 1)
    }
}
