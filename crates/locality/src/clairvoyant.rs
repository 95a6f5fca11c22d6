//! The hits of a cache that knows the future: no replacement policy has more.
//!
//! L. A. Belady, *A study of replacement algorithms for a virtual-storage computer*, IBM Systems Journal
//! 1966 (MIN): the block that is used again last gives way. As in a cache on demand, each missed
//! block comes in, read or written, even if it is never used again (no bypass).
//!
//! A block in the cache is known by the time of its next use, which no other block shares. The cache is
//! therefore a set of times: an access at time `t` is a hit iff `t` is in the set, and who gives way is the
//! largest time, after blocks that are never used again. The set is a bitmap with summaries, in which each
//! step costs a word on each of at most six levels.

use forebay_block::Op;

use crate::LocalityError;
use crate::table::{FIRST_TIME, Table, hash};

/// In the place of a next use: there is none.
const NEVER: u32 = u32::MAX;
/// So many accesses have times below [`NEVER`].
const ACCESSES_MAX: u64 = (u32::MAX - FIRST_TIME) as u64;

/// A stream of block accesses, in memory, and the hits that the best possible cache of a size has.
///
/// It takes 4 bytes and a bit for each access, up to 22.5 bytes for each block while accesses come in, and
/// a bit and a sixtieth for each access while hits are counted.
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
    /// For each access, the number of the next one of its block.
    next: Vec<u32>,
    /// For each access, whether it is a write; 64 in a word.
    writes: Vec<u64>,
    /// The last access of each block, plus [`FIRST_TIME`].
    last: Table,
}

/// Hits by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClairvoyantHits {
    /// Reads of blocks that the cache held.
    pub reads: u64,
    /// Writes to blocks that the cache held.
    pub writes: u64,
}

impl ClairvoyantHits {
    /// Reads and writes.
    pub fn all(&self) -> u64 {
        self.reads + self.writes
    }
}

impl Clairvoyant {
    /// No accesses yet.
    pub fn new() -> Self {
        Self { next: Vec::new(), writes: Vec::new(), last: Table::new() }
    }

    /// Adds accesses in order; trims and flushes are no accesses and change nothing.
    ///
    /// # Errors
    /// If the slices differ in length (then nothing was added), or with more than 2^32 - 3 accesses
    /// (then those up to there were).
    pub fn access_batch(&mut self, keys: &[u64], ops: &[Op]) -> Result<(), LocalityError> {
        if keys.len() != ops.len() {
            return Err(LocalityError::UnequalBatch { keys: keys.len(), ops: ops.len() });
        }
        for (&key, &op) in keys.iter().zip(ops) {
            if !matches!(op, Op::Read | Op::Write) {
                continue;
            }
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
            self.writes[now as usize / 64] |= u64::from(op == Op::Write) << (now % 64);
        }
        Ok(())
    }

    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        self.next.len() as u64
    }

    /// Blocks that were accessed.
    pub fn distinct_blocks(&self) -> u64 {
        self.last.len()
    }

    /// The hits of the best possible cache of `size_blocks` blocks. One pass over all accesses.
    pub fn hits(&self, size_blocks: u64) -> ClairvoyantHits {
        let mut hits = ClairvoyantHits::default();
        if size_blocks == 0 {
            return hits;
        }
        let mut uses = Times::new(self.next.len());
        // Blocks in the cache that are never used again.
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

/// A set of times: a bitmap; above it one with a bit for each word that is not zero; and so on up to a
/// single word.
#[derive(Debug)]
struct Times {
    levels: Vec<Vec<u64>>,
    len: u64,
}

impl Times {
    /// A set of times below `end`.
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

    /// Takes a time out; whether it was there.
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

    /// Takes the largest time out. The set is not empty.
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
}
