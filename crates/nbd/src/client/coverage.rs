//! Tracks which bytes of a read have arrived. Chunks may arrive in any order but must not overlap.
//! A read is complete only when every byte has arrived: otherwise stale bytes in the buffer would
//! be mistaken for data.

/// A set of byte ranges relative to the start of a read. Bounded; keeps its memory for reuse.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    /// `(start, end)` pairs: sorted, disjoint, never adjacent.
    ranges: Vec<(u64, u64)>,
}

/// Maximum number of separate ranges. A well-behaved server leaves far fewer gaps.
const RANGES_MAX: usize = 4096;

impl Default for Coverage {
    /// Reserves room for the ranges that a well-behaved server produces, so that `add` need not
    /// allocate.
    fn default() -> Self {
        Coverage { ranges: Vec::with_capacity(4) }
    }
}

impl Coverage {
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Adds `start..end`. Returns false if part of it is already in the set, or if there are too
    /// many gaps.
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|&(_, e)| e < start);
        // `at` is the index of the first range that ends at or after `start`.
        match self.ranges.get(at).copied() {
            Some((s, e)) if e == start => {
                let next = self.ranges.get(at + 1).copied();
                match next {
                    Some((next_start, _)) if next_start < end => return false,
                    Some((next_start, next_end)) if next_start == end => {
                        self.ranges[at] = (s, next_end);
                        self.ranges.remove(at + 1);
                    }
                    _ => self.ranges[at].1 = end,
                }
            }
            Some((s, _)) if s < end => return false,
            Some((s, _)) if s == end => self.ranges[at].0 = start,
            _ => {
                if self.ranges.len() >= RANGES_MAX {
                    return false;
                }
                self.ranges.insert(at, (start, end));
            }
        }
        true
    }

    /// Whether the set is exactly `0..length`.
    pub fn is_whole(&self, length: u64) -> bool {
        self.ranges == [(0, length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlaps_are_refused_and_gaps_noticed() {
        let mut coverage = Coverage::default();
        assert!(coverage.add(100, 200) && coverage.add(0, 50));
        assert!(!coverage.is_whole(200));
        for (start, end) in [(0, 1), (49, 51), (40, 60), (90, 101), (150, 160), (40, 300)] {
            assert!(!coverage.clone().add(start, end), "{start}..{end}");
        }
        assert!(coverage.add(50, 100));
        assert!(coverage.is_whole(200) && !coverage.is_whole(201));
    }

    proptest! {
        /// Compares `Coverage` with a plain array of bytes: both accept the same ranges and agree
        /// on which sets are whole.
        #[test]
        fn a_coverage_is_the_set_of_bytes_it_was_told(
            ranges in prop::collection::vec((0u64..30, 1u64..8), 0..20)
        ) {
            let mut coverage = Coverage::default();
            let mut bytes = [false; 40];
            for (start, length) in ranges {
                let range = start as usize..(start + length) as usize;
                let free = bytes[range.clone()].iter().all(|b| !b);
                prop_assert_eq!(coverage.add(start, start + length), free);
                if free {
                    bytes[range].fill(true);
                }
                let whole = bytes.iter().take_while(|&&b| b).count();
                let only = bytes[whole..].iter().all(|b| !b);
                prop_assert_eq!(coverage.is_whole(whole as u64), whole > 0 && only);
            }
        }
    }
}
