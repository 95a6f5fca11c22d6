//! The hits of a cache that knows the future: no replacement policy has more hits.
//!
//! L. A. Belady, *A study of replacement algorithms for a virtual-storage computer*, IBM Systems
//! Journal 1966 (MIN): evict the block whose next use is furthest in the future. As in a demand
//! cache, every missed block is admitted, on a read or a write, even if it is never used again (no
//! bypass).
//!
//! A cached block is identified by the time of its next use, which no other block shares. The cache
//! is therefore a set of times: an access at time `t` is a hit iff `t` is in the set. Blocks that
//! are never used again are evicted first, then the block with the largest time. The set is a
//! bitmap with summary levels; each operation touches one word on each of at most six levels.

use forebay_block::Op;

use crate::LocalityError;
use crate::table::{FIRST_TIME, Table, hash};

/// Stands for the next use of a block that is never used again.
const NEVER: u32 = u32::MAX;
/// The maximum number of accesses: all have times below [`NEVER`].
const ACCESSES_MAX: u64 = (u32::MAX - FIRST_TIME) as u64;

/// Stores a stream of block accesses in memory, and counts the hits of the best possible cache of a
/// given size.
///
/// Storage takes 4 bytes and 1 bit per access, plus up to 22.5 bytes per distinct block. Counting
/// hits takes about another 1.02 bits per access.
///
/// ```
/// use forebay_block::Op::{Read, Write};
/// use forebay_locality::{Clairvoyant, ClairvoyantHits};
/// let mut clairvoyant = Clairvoyant::new();
/// // A loop over three blocks: LRU has no hit with two, the optimum keeps one of them each time.
/// clairvoyant.access_batch(&[1, 2, 3, 1, 2, 3, 1], &[Read, Write, Read, Read, Read, Read, Read]).unwrap();
/// assert_eq!(clairvoyant.hits(2), ClairvoyantHits { reads: 2, writes: 0 });
/// ```
#[derive(Clone, Debug)]
pub struct Clairvoyant {
    /// For each access, the number of the next access to the same block, or [`NEVER`].
    next: Vec<u32>,
    /// One bit per access: whether it is a write.
    writes: Vec<u64>,
    /// For each block, the number of its last access, plus [`FIRST_TIME`].
    last: Table,
}

/// Hits, by operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClairvoyantHits {
    /// Reads of blocks that the cache held.
    pub reads: u64,
    /// Writes to blocks that the cache held.
    pub writes: u64,
}

impl ClairvoyantHits {
    /// Hits of reads and writes together.
    pub fn all(&self) -> u64 {
        self.reads + self.writes
    }
}

impl Clairvoyant {
    /// Creates an empty stream.
    pub fn new() -> Self {
        Self { next: Vec::new(), writes: Vec::new(), last: Table::new() }
    }

    /// Adds accesses in order. Writes of zeroes count as writes; trims and flushes are ignored.
    ///
    /// # Errors
    /// If the slices differ in length (nothing is added), or if there are more than 2^32 - 3
    /// accesses (those up to the limit are added).
    pub fn access_batch(&mut self, keys: &[u64], ops: &[Op]) -> Result<(), LocalityError> {
        if keys.len() != ops.len() {
            return Err(LocalityError::UnequalBatch { keys: keys.len(), ops: ops.len() });
        }
        for (&key, &op) in keys.iter().zip(ops) {
            let writes = match op {
                Op::Read => false,
                Op::Write | Op::WriteZeroes => true,
                Op::Trim | Op::Flush => continue,
            };
            let now = self.accesses();
            if now == ACCESSES_MAX {
                return Err(LocalityError::TooManyAccesses { accesses: now });
            }
            let now = now as u32;
            let (place, _) = self.last.place(key, hash(key));
            if let Some(before) = self.last.time(place).checked_sub(FIRST_TIME) {
                self.next[before as usize] = now;
            }
            self.last.set_time(place, now + FIRST_TIME);
            self.next.push(NEVER);
            if now.is_multiple_of(64) {
                self.writes.push(0);
            }
            self.writes[now as usize / 64] |= u64::from(writes) << (now % 64);
        }
        Ok(())
    }

    /// Number of accesses so far.
    pub fn accesses(&self) -> u64 {
        self.next.len() as u64
    }

    /// Number of distinct blocks accessed so far.
    pub fn distinct_blocks(&self) -> u64 {
        self.last.len()
    }

    /// Returns the hits of the best possible cache of `size_blocks` blocks. Makes one pass over all
    /// accesses.
    pub fn hits(&self, size_blocks: u64) -> ClairvoyantHits {
        let mut hits = ClairvoyantHits::default();
        if size_blocks == 0 {
            return hits;
        }
        let mut uses = Times::new(self.next.len());
        // The number of cached blocks that are never used again.
        let mut useless = 0_u64;
        for (now, &next) in self.next.iter().enumerate() {
            if uses.remove(now as u32) {
                if self.writes[now / 64] >> (now % 64) & 1 == 1 {
                    hits.writes += 1;
                } else {
                    hits.reads += 1;
                }
            } else if uses.len + useless == size_blocks {
                if useless > 0 {
                    useless -= 1;
                } else {
                    uses.remove_last();
                }
            }
            if next == NEVER {
                useless += 1;
            } else {
                uses.insert(next);
            }
        }
        hits
    }
}

impl Default for Clairvoyant {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of times: a bitmap; above it, a bitmap with one bit for each non-zero word below; and so
/// on up to a single word.
#[derive(Debug)]
struct Times {
    levels: Vec<Vec<u64>>,
    len: u64,
}

impl Times {
    /// Creates an empty set for times below `end`.
    fn new(end: usize) -> Self {
        let mut levels = vec![vec![0; end.div_ceil(64).max(1)]];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let words = below.len().div_ceil(64);
            levels.push(vec![0; words]);
        }
        Self { levels, len: 0 }
    }

    /// Adds a time that is not in the set.
    fn insert(&mut self, time: u32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                break;
            }
            at /= 64;
        }
        self.len += 1;
    }

    /// Removes a time. Returns whether it was in the set.
    fn remove(&mut self, time: u32) -> bool {
        let mut at = time as usize;
        if self.levels[0][at / 64] >> (at % 64) & 1 == 0 {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        self.len -= 1;
        true
    }

    /// Removes the largest time. The set must not be empty.
    fn remove_last(&mut self) {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + 63 - level[at].leading_zeros() as usize;
        }
        self.remove(at as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_an_ordered_set(
            steps in prop::collection::vec((0..3_u8, 0..300_000_u32), 1..300)
        ) {
            let (mut times, mut model) = (Times::new(300_000), BTreeSet::new());
            for (step, time) in steps {
                match step {
                    0 if !model.contains(&time) => {
                        times.insert(time);
                        model.insert(time);
                    }
                    1 => prop_assert_eq!(times.remove(time), model.remove(&time)),
                    2 if !model.is_empty() => {
                        times.remove_last();
                        let last = model.pop_last().expect("not empty");
                        prop_assert!(!times.remove(last));
                    }
                    _ => {}
                }
                prop_assert_eq!(times.len, model.len() as u64);
            }
        }
    }

    #[test]
    fn a_batch_of_unequal_length_is_refused_and_trims_are_no_accesses() {
        let mut clairvoyant = Clairvoyant::new();
        let error = LocalityError::UnequalBatch { keys: 2, ops: 1 };
        assert_eq!(clairvoyant.access_batch(&[1, 2], &[Op::Read]), Err(error));
        clairvoyant.access_batch(&[1, 1, 1], &[Op::Write, Op::Trim, Op::Write]).unwrap();
        assert_eq!((clairvoyant.accesses(), clairvoyant.distinct_blocks()), (2, 1));
        assert_eq!(clairvoyant.hits(0), ClairvoyantHits::default());
        assert_eq!(clairvoyant.hits(1), ClairvoyantHits { reads: 0, writes: 1 });
    }

    #[test]
    fn writes_of_zeroes_count_as_writes() {
        let mut clairvoyant = Clairvoyant::new();
        let ops = [Op::WriteZeroes, Op::Read, Op::WriteZeroes, Op::Flush];
        clairvoyant.access_batch(&[1; 4], &ops).unwrap();
        assert_eq!(clairvoyant.accesses(), 3);
        assert_eq!(clairvoyant.hits(1), ClairvoyantHits { reads: 1, writes: 1 });
    }
}
