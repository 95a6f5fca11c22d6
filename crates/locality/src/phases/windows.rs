//! The misses in every window, for each cache size tried, from one pass over a record.

use core::ops::Range;

use super::AccessRecord;

/// Misses by half window and cache size; sizes are powers of two.
pub(crate) struct WindowMisses {
    /// Number of accesses in half a window.
    half: u64,
    /// log2 of the smallest size.
    shift: u32,
    sizes: usize,
    /// Misses of each half window, one number for each size, smallest size first.
    misses: Vec<u32>,
}

impl WindowMisses {
    /// Counts misses in windows of `window` accesses (an even number) from the start of the record,
    /// for sizes from `smallest` to `largest` blocks (powers of two).
    pub(crate) fn new(record: &AccessRecord, window: u64, smallest: u64, largest: u64) -> Self {
        let (half, shift) = (window / 2, smallest.ilog2());
        let sizes = (largest.ilog2() - shift) as usize + 1;
        let halves = record.accesses().div_ceil(half) as usize;
        let mut misses = vec![0; halves * sizes];
        let mut reuses = record.judged(0..record.accesses());
        for misses in misses.chunks_exact_mut(sizes) {
            for reuse in reuses.by_ref().take(half as usize) {
                // The number of sizes that miss: those that are at most the distance.
                let missed = match reuse.distance() {
                    Some(distance) => (u32::BITS - distance.leading_zeros()).saturating_sub(shift),
                    None => u32::MAX,
                };
                if missed > 0 {
                    misses[(missed as usize).min(sizes) - 1] += 1;
                }
            }
            // An access that misses in one size misses in all smaller sizes.
            for size in (1..sizes).rev() {
                misses[size - 1] += misses[size];
            }
        }
        Self { half, shift, sizes, misses }
    }

    /// Returns how many accesses of a span miss in a cache of `size` blocks. A span begins at a
    /// multiple of half a window, and ends at one or at the end of the record.
    pub(crate) fn misses(&self, span: Range<u64>, size: u64) -> u64 {
        debug_assert!(span.start.is_multiple_of(self.half) && size.is_power_of_two());
        let halves = (span.start / self.half) as usize..span.end.div_ceil(self.half) as usize;
        let size = (size.ilog2() - self.shift) as usize;
        halves.map(|half| u64::from(self.misses[half * self.sizes + size])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::record;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn misses_are_those_of_the_record(
            keys in proptest::collection::vec(prop_oneof![0..6u64, 0..80u64, 0..2000u64], 1..900),
            half in 1..100u64, from in 0..900u64, to in 0..900u64,
        ) {
            let record = record(&keys);
            let accesses = record.accesses();
            let sizes = record.max_distance().map_or(16, |max| (max + 1).next_power_of_two().max(16));
            let windows = WindowMisses::new(&record, 2 * half, 16, sizes);
            let grid = |at: u64| (at / half * half).min(accesses);
            let from = grid(from.min(to).min(accesses - 1));
            let to = if to >= accesses { accesses } else { grid(to).max(from) };
            for size in (4..=sizes.ilog2()).map(|shift| 1 << shift) {
                prop_assert_eq!(windows.misses(from..to, size), record.misses(from..to, size));
            }
        }
    }
}
