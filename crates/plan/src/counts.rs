//! The seam between measuring a workload and planning for it: hits by cache size.

use forebay_block::Op;
use forebay_locality::ReuseHistogram;

/// How often a workload hits in an LRU cache of any size. Everything the planner knows of a
/// workload is this; each call takes constant time, which makes exhaustive search interactive.
///
/// Hits never get fewer as the cache grows, and never exceed the accesses.
pub trait HitCounts {
    /// Block accesses that read.
    fn reads(&self) -> u64;
    /// Block accesses that write.
    fn writes(&self) -> u64;
    /// Reads that hit in a cache of `blocks` blocks.
    fn read_hits(&self, blocks: u64) -> u64;
    /// Writes that hit in a cache of `blocks` blocks.
    fn write_hits(&self, blocks: u64) -> u64;
    /// Writes that find their block in a cache of `blocks` blocks *and dirty there*; needed for
    /// write-back only. The other writes each start a time of being dirty that ends with a
    /// write to the backing store.
    ///
    /// Unless measured ([`crate::Profile`] does), every write hit is taken for one, which
    /// underestimates write-backs where blocks are read in and then written.
    fn rewrite_hits(&self, blocks: u64) -> u64 {
        self.write_hits(blocks)
    }
    /// Distinct blocks accessed.
    fn footprint_blocks(&self) -> u64;
    /// The smallest cache that has every hit there can be, in blocks; more is of no use.
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
