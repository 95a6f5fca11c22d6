//! Hit ratios of chunks per interval, in fixed memory: the input of HR LRU.

use crate::hash::mix;

/// Number of chunks that share a set of the table.
const WAYS: usize = 8;
/// Marks a free entry.
const FREE: u64 = u64::MAX;

/// The entry of a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    chunk: u64,
    /// The interval in which `accesses` and `hits` were counted.
    interval: u32,
    accesses: u32,
    hits: u32,
    /// The hit ratio of the last interval before `interval` in which the chunk was accessed; 0 if
    /// there is none.
    percent: f32,
}

/// The hit ratio of each chunk in the last interval in which it was accessed.
///
/// The caller defines what a chunk is (20 MB of a volume, or a volume) and when an interval ends
/// (after an hour, or after a number of accesses). The table holds a fixed number of chunks, 24
/// bytes each. If there is no room for a chunk, it replaces one of eight: the one whose last
/// interval with accesses is the oldest, and among equals the one with the fewest accesses in it. A
/// chunk without a complete interval has a hit ratio of 0.
#[derive(Debug)]
pub struct ChunkHitRatios {
    chunks: Box<[[Chunk; WAYS]]>,
    interval: u32,
}

impl ChunkHitRatios {
    /// A table for `chunks` chunks, rounded up to eight times a power of two.
    pub fn new(chunks: u32) -> ChunkHitRatios {
        let free = Chunk { chunk: FREE, interval: 0, accesses: 0, hits: 0, percent: 0.0 };
        let sets = (chunks as usize).div_ceil(WAYS).next_power_of_two();
        ChunkHitRatios { chunks: vec![[free; WAYS]; sets].into(), interval: 1 }
    }

    /// Records an access to a block of the chunk. `hit`: whether it was a hit.
    ///
    /// # Panics
    /// If `chunk` is `u64::MAX`, which is not a valid chunk.
    pub fn access(&mut self, chunk: u64, hit: bool) {
        assert!(chunk != FREE, "a chunk has a smaller number");
        let interval = self.interval;
        let set = self.set(chunk);
        let ways = &mut self.chunks[set];
        let way = ways.iter().position(|c| c.chunk == chunk).unwrap_or_else(|| {
            let age = |c: &Chunk| (interval.wrapping_sub(c.interval), u32::MAX - c.accesses);
            let rank = |&way: &usize| (ways[way].chunk == FREE, age(&ways[way]));
            let way = (0..WAYS).max_by_key(rank).expect("eight ways");
            ways[way] = Chunk { chunk, interval, accesses: 0, hits: 0, percent: 0.0 };
            way
        });
        let entry = &mut ways[way];
        if entry.interval != interval {
            entry.percent = entry.ratio();
            (entry.interval, entry.accesses, entry.hits) = (interval, 0, 0);
        }
        entry.accesses = entry.accesses.saturating_add(1);
        entry.hits += u32::from(hit && entry.hits < entry.accesses);
    }

    /// The hit ratio of the chunk, in percent, in the last complete interval in which it was
    /// accessed; 0 if there is none.
    pub fn percent(&self, chunk: u64) -> f64 {
        let found = self.chunks[self.set(chunk)].iter().find(|c| c.chunk == chunk);
        let percent = |c: &Chunk| if c.interval == self.interval { c.percent } else { c.ratio() };
        found.map_or(0.0, |c| percent(c).into())
    }

    /// Ends the interval and begins another, at a constant cost.
    pub fn end_interval(&mut self) {
        self.interval = self.interval.wrapping_add(1);
    }

    /// The memory of the table in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.chunks)) as u64
    }

    fn set(&self, chunk: u64) -> usize {
        mix(chunk) as usize & (self.chunks.len() - 1)
    }
}

impl Chunk {
    fn ratio(&self) -> f32 {
        if self.accesses == 0 { 0.0 } else { 100.0 * self.hits as f32 / self.accesses as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_counts_once_its_interval_is_over_and_until_the_next_with_accesses() {
        let mut ratios = ChunkHitRatios::new(16);
        for hit in [true, true, true, false] {
            ratios.access(7, hit);
        }
        assert_eq!(ratios.percent(7), 0.0, "the first interval is not over");
        ratios.end_interval();
        assert_eq!((ratios.percent(7), ratios.percent(8)), (75.0, 0.0));
        ratios.end_interval();
        assert_eq!(ratios.percent(7), 75.0, "an interval without accesses changes nothing");
        ratios.access(7, false);
        assert_eq!(ratios.percent(7), 75.0);
        ratios.end_interval();
        assert_eq!(ratios.percent(7), 0.0);
    }

    #[test]
    fn memory_is_fixed_and_chunks_in_use_stay() {
        let mut ratios = ChunkHitRatios::new(64);
        let bytes = ratios.memory_bytes();
        for interval in 0..20_u64 {
            for chunk in 0..1000 {
                ratios.access(5, true);
                ratios.access(1_000_000 * interval + chunk + 6, true);
                assert_eq!(ratios.percent(5), if interval == 0 { 0.0 } else { 100.0 });
            }
            ratios.end_interval();
        }
        assert_eq!(ratios.memory_bytes(), bytes);
    }
}
