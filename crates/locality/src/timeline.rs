//! The set of access times that are the last of their block, with the number of them before any
//! time.
//!
//! A bitmap over time holds one bit per block kept, at the block's last access. The distance of a
//! reuse is the number of bits after the old bit of the block. A Fenwick tree can count these bits;
//! here it is a wide one. Every node is one 64-byte line of running counts (`node[i]` counts the
//! bits under children 0 to i-1), so that a query adds one number per level, and an update adds to
//! the tail of one line per level, without branches, as vector code. Leaves are 512 bits, nodes
//! above them have 32 children (16-bit counts), and nodes further up 16 children (32-bit counts).
//!
//! The leaf that contains the next time is not in the tree yet; it is added when it is full. Time
//! is 32 bits wide: when it reaches the end, the times are renumbered without gaps
//! ([`Timeline::rank`] returns the new ones, counted from 0), and the timeline starts over.

use crate::table::FIRST_TIME;

const LEAF_BITS: u32 = 512;
const LEAF_SHIFT: u32 = LEAF_BITS.trailing_zeros();
const LEAF_WORDS: usize = (LEAF_BITS / 64) as usize;
/// The length of the longest timeline: times fit in 32 bits, and so does the end.
pub(crate) const TIMES_MAX: u32 = u32::MAX - (LEAF_BITS - 1);
/// The length of the shortest timeline, unless its maximum is lower.
const TIMES_MIN: u32 = 1 << 14;
/// A fresh timeline has at least this many times per block kept, so that the cost of renumbering a
/// block is spread over at least three accesses.
const TIMES_PER_BLOCK: u64 = 4;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Leaf([u64; LEAF_WORDS]);

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Lower([u16; 32]);

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Upper([u32; 16]);

#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    leaves: Vec<Leaf>,
    lower: Vec<Lower>,
    upper: Vec<Vec<Upper>>,
    /// The next time.
    now: u32,
    /// The time at which the timeline is used up.
    end: u32,
    /// Number of bits set: blocks kept.
    kept: u32,
    /// The maximum of `end`.
    end_max: u32,
}

impl Timeline {
    /// Creates a timeline that never has more than `end_max` times (rounded down to whole leaves).
    pub(crate) fn new(end_max: u32) -> Self {
        let end_max = (end_max & !(LEAF_BITS - 1)).max(LEAF_BITS);
        let mut timeline = Self {
            leaves: Vec::new(),
            lower: Vec::new(),
            upper: Vec::new(),
            now: 0,
            end: 0,
            kept: 0,
            end_max,
        };
        timeline.restart();
        timeline
    }

    /// Number of blocks kept.
    #[inline(always)]
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Number of accesses possible before the times must be renumbered.
    #[inline(always)]
    pub(crate) fn remaining(&self) -> u32 {
        self.end - self.now
    }

    /// Returns whether too many blocks are kept: renumbering them would cost more than the few times
    /// that it would free are worth.
    pub(crate) fn is_crowded(&self) -> bool {
        self.kept > self.end_max / 8 * 7
    }

    /// Returns the number of blocks kept whose last access is before `time`.
    #[inline(always)]
    pub(crate) fn rank(&self, time: u32) -> u32 {
        let leaf = (time >> LEAF_SHIFT) as usize;
        let mut rank = bits_below(&self.leaves[leaf].0, time % LEAF_BITS);
        rank += u32::from(self.lower[leaf / 32].0[leaf % 32]);
        let mut child = leaf / 32;
        for level in &self.upper {
            rank += level[child / 16].0[child % 16];
            child /= 16;
        }
        rank
    }

    /// Returns the time of the kept block that has `rank` kept blocks before it. More than `rank`
    /// blocks must be kept.
    #[inline(always)]
    pub(crate) fn select(&self, rank: u32) -> u32 {
        let current = (self.now >> LEAF_SHIFT) as usize;
        let (mut child, mut rank) = (0, rank);
        // The leaf that contains the next time is not in the tree.
        let in_tree = match self.leaves.get(current) {
            Some(leaf) => self.kept - leaf.0.iter().map(|w| w.count_ones()).sum::<u32>(),
            None => self.kept,
        };
        if rank >= in_tree {
            return ((current as u32) << LEAF_SHIFT)
                + select_bit(&self.leaves[current].0, rank - in_tree);
        }
        for level in self.upper.iter().rev() {
            let node = &level[child].0;
            let at = node.iter().map(|&count| usize::from(count <= rank)).sum::<usize>() - 1;
            rank -= node[at];
            child = 16 * child + at;
        }
        let node = &self.lower[child].0;
        let at = node.iter().map(|&count| u16::from(u32::from(count) <= rank)).sum::<u16>() - 1;
        rank -= u32::from(node[usize::from(at)]);
        let leaf = 32 * child + usize::from(at);
        ((leaf as u32) << LEAF_SHIFT) + select_bit(&self.leaves[leaf].0, rank)
    }

    /// The next time.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// Removes the block last accessed at `time`, and returns how many kept blocks have later
    /// times.
    #[inline(always)]
    pub(crate) fn take(&mut self, time: u32) -> u32 {
        let later = self.later(time);
        let leaf = (time >> LEAF_SHIFT) as usize;
        self.leaves[leaf].0[(time % LEAF_BITS / 64) as usize] &= !(1 << (time % 64));
        self.kept -= 1;
        if leaf != (self.now >> LEAF_SHIFT) as usize {
            self.add(leaf, -1);
        }
        later
    }

    /// Returns the number of blocks kept whose last access is after `time`, which must be the last
    /// access of a kept block.
    #[inline(always)]
    pub(crate) fn later(&self, time: u32) -> u32 {
        self.kept - self.rank(time) - 1
    }

    /// Records an access that keeps its block, and returns its time.
    #[inline(always)]
    pub(crate) fn record(&mut self) -> u32 {
        let time = self.now;
        let leaf = (time >> LEAF_SHIFT) as usize;
        self.leaves[leaf].0[(time % LEAF_BITS / 64) as usize] |= 1 << (time % 64);
        self.kept += 1;
        self.now += 1;
        if self.now.is_multiple_of(LEAF_BITS) {
            self.leave(leaf);
        }
        time
    }

    /// Prefetches the memory that [`Timeline::take`] of `time` needs first.
    #[inline(always)]
    pub(crate) fn prefetch(&self, time: u32) {
        if let Some(leaf) = self.leaves.get((time >> LEAF_SHIFT) as usize) {
            crate::cpu::prefetch(leaf);
        }
    }

    /// Starts over with the same number of kept blocks, now at the first times without gaps.
    pub(crate) fn restart(&mut self) {
        let wanted = (u64::from(self.kept) * TIMES_PER_BLOCK).max(u64::from(TIMES_MIN));
        let end = wanted.next_multiple_of(u64::from(LEAF_BITS)).min(u64::from(self.end_max)) as u32;
        self.end = end.max(self.end);
        let leaves = (self.end >> LEAF_SHIFT) as usize;
        // The old vectors are freed before the new ones are allocated, so that both never exist at
        // once.
        (self.leaves, self.lower, self.upper) = (Vec::new(), Vec::new(), Vec::new());
        self.leaves = vec![Leaf([0; LEAF_WORDS]); leaves];
        self.lower = vec![Lower([0; 32]); leaves.div_ceil(32)];
        let mut nodes = self.lower.len();
        while nodes > 1 {
            nodes = nodes.div_ceil(16);
            self.upper.push(vec![Upper([0; 16]); nodes]);
        }
        let kept = self.kept;
        (self.now, self.kept) = (FIRST_TIME, 0);
        for _ in 0..kept {
            self.record();
        }
    }

    /// Adds a full leaf to the tree.
    #[cold]
    #[inline(never)]
    fn leave(&mut self, leaf: usize) {
        let bits: u32 = self.leaves[leaf].0.iter().map(|w| w.count_ones()).sum();
        self.add(leaf, bits as i32);
    }

    #[inline(always)]
    fn add(&mut self, leaf: usize, delta: i32) {
        let node = &mut self.lower[leaf / 32].0;
        for (i, count) in node.iter_mut().enumerate() {
            *count =
                count.wrapping_add(if i as u16 > (leaf % 32) as u16 { delta as u16 } else { 0 });
        }
        let mut child = leaf / 32;
        for level in &mut self.upper {
            let node = &mut level[child / 16].0;
            for (i, count) in node.iter_mut().enumerate() {
                let delta = if i as u32 > (child % 16) as u32 { delta as u32 } else { 0 };
                *count = count.wrapping_add(delta);
            }
            child /= 16;
        }
    }
}

/// Returns the number of bits set below bit `end` of a leaf.
#[inline(always)]
fn bits_below(words: &[u64; LEAF_WORDS], end: u32) -> u32 {
    let mut bits = 0;
    for (i, word) in words.iter().enumerate() {
        let take = end.saturating_sub(64 * i as u32).min(64);
        // The shift has two steps, because a shift by 64 in one step is not allowed.
        let mask = !(u64::MAX << (take / 2) << (take - take / 2));
        bits += (word & mask).count_ones();
    }
    bits
}

/// Returns the position of the set bit that has `rank` set bits below it. More than `rank` bits of
/// the leaf must be set.
#[inline(always)]
fn select_bit(words: &[u64; LEAF_WORDS], mut rank: u32) -> u32 {
    for (i, &word) in words.iter().enumerate() {
        let bits = word.count_ones();
        if rank < bits {
            // Clear the lowest set bits, one by one.
            let rest = (0..rank).fold(word, |word, _| word & word.wrapping_sub(1));
            return 64 * i as u32 + rest.trailing_zeros();
        }
        rank -= bits;
    }
    LEAF_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a timeline with a plain vector of bits.
    fn check(end_max: u32, accesses: u32, kept_max: u32) {
        let mut timeline = Timeline::new(end_max);
        let mut bits = vec![false; FIRST_TIME as usize];
        let mut seed = 1u32;
        for n in 0..accesses {
            if timeline.remaining() == 0 {
                timeline.restart();
                bits.retain(|&b| b);
                bits.splice(0..0, (0..FIRST_TIME).map(|_| false));
                assert!(timeline.remaining() > 0);
            }
            assert_eq!(timeline.record() as usize, bits.len());
            bits.push(true);
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let time = (seed >> 8) as usize % bits.len();
            // Remove the oldest if there are too many, and otherwise a random one now and then.
            let oldest = bits.iter().position(|&b| b).unwrap_or(time);
            let time = if timeline.kept() > kept_max { oldest } else { time };
            if bits[time] {
                let later = bits[time + 1..].iter().filter(|&&b| b).count();
                assert_eq!(timeline.take(time as u32) as usize, later, "time {time} of {n}");
                bits[time] = false;
            }
            if n % 61 == 0 {
                let before = bits[..time].iter().filter(|&&b| b).count();
                assert_eq!(timeline.rank(time as u32) as usize, before);
                let kept = bits.iter().enumerate().filter(|&(_, &bit)| bit);
                for (rank, (time, _)) in kept.enumerate() {
                    assert_eq!(timeline.select(rank as u32) as usize, time, "{rank} of {n}");
                }
            }
        }
        assert_eq!(timeline.kept() as usize, bits.iter().filter(|&&b| b).count());
    }

    #[test]
    fn ranks_equal_a_count_of_bits_across_restarts() {
        check(TIMES_MAX, 60_000, 5000);
    }

    #[test]
    fn the_shortest_timeline_survives_many_restarts() {
        check(512, 30_000, 300);
        check(1024, 30_000, 40);
    }

    #[test]
    fn a_timeline_of_whole_words_counts_its_edges() {
        let words = [u64::MAX; LEAF_WORDS];
        for end in 0..=LEAF_BITS {
            assert_eq!(bits_below(&words, end), end);
        }
    }
}
