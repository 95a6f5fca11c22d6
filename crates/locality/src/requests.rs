//! Distances for a cache outside the data path: by whole request, and under periodic migration.
//!
//! This differs from the plain stack in two ways. Counted by request, a request of several blocks
//! hits only if all its blocks do, so it counts once, at its largest distance. Under periodic
//! migration a block enters the cache only at the next migration. There are then two stacks: one is
//! updated by every access; the other is a copy of it, made at each migration, in which distances
//! are measured. Blocks that the copy lacks are cold. Where writes invalidate, they also invalidate
//! in the copy. Such curves can be concave, so a search that follows convex minorants can be
//! misled.
//!
//! Source: Koller, *Improving Caches in Consolidated Environments* (2012), chapter 5.
//!
//! Each migration copies the table, which takes about 25 bytes and 10 ns per distinct block.

use forebay_block::Op;

use crate::histogram::HistogramBuilder;
use crate::table::{FIRST_TIME, Table, hash};
use crate::{Distance, LocalityError, Reuse, ReuseHistogram, ReuseStack};

/// Measures requests of one or more blocks, with or without migration.
///
/// ```
/// use forebay_block::Op::Read;
/// use forebay_locality::{Distance, RequestDistances};
/// let mut distances = RequestDistances::new(Distance::Trd);
/// // Blocks 1 and 2 together, 3 alone, and 1 and 2 again.
/// distances.request_batch(&[1, 2, 3, 1, 2], &[Read; 5], &[2, 1, 2]).unwrap();
/// let histogram = distances.into_histogram();
/// assert_eq!(histogram.accesses(), 3);
/// assert_eq!((histogram.hits(Read, 2), histogram.hits(Read, 3)), (0, 1));
/// ```
#[derive(Clone, Debug)]
pub struct RequestDistances {
    stack: ReuseStack,
    /// For each block, its depth in the stack at the last migration, plus [`FIRST_TIME`].
    migrated: Option<Table>,
    by_request: bool,
    counts: HistogramBuilder,
    reuses: Vec<Reuse>,
}

impl RequestDistances {
    /// Creates a measurement that counts requests; blocks do not migrate until the first call of
    /// [`RequestDistances::migrate`].
    pub fn new(distance: Distance) -> Self {
        Self {
            stack: ReuseStack::new(distance),
            migrated: None,
            by_request: true,
            counts: HistogramBuilder::new(),
            reuses: Vec::new(),
        }
    }

    /// Selects whether whole requests are counted, or their blocks (useful with migration only).
    pub fn set_request_level(&mut self, by_request: bool) {
        self.by_request = by_request;
    }

    /// Migrates blocks: until the next call, only blocks that are in the stack now can hit, at
    /// their present depth. If called before the first access, the cache starts empty.
    pub fn migrate(&mut self) {
        // The old copy is freed first, so that there are never three tables.
        self.migrated = None;
        self.migrated = Some(self.stack.depths());
    }

    /// Processes requests in order: request `i` accesses the next `lengths[i]` blocks of `keys`,
    /// all with the same operation. `ops` holds one operation for each block.
    ///
    /// # Errors
    /// As [`crate::ReuseDistances::access_batch`], and if the lengths do not add up to the number
    /// of keys.
    pub fn request_batch(
        &mut self,
        keys: &[u64],
        ops: &[Op],
        lengths: &[u64],
    ) -> Result<(), LocalityError> {
        let blocks: u64 = lengths.iter().sum();
        if blocks != keys.len() as u64 {
            return Err(LocalityError::UnequalBatch { keys: keys.len(), ops: blocks as usize });
        }
        self.reuses.clear();
        self.stack.access_batch(keys, ops, &mut self.reuses)?;
        if let Some(migrated) = &mut self.migrated {
            let invalidates = self.stack.distance().writes_invalidate();
            for ((reuse, &key), &op) in self.reuses.iter_mut().zip(keys).zip(ops) {
                if *reuse != Reuse::UNMEASURED {
                    *reuse = depth(migrated, key);
                }
                if invalidates && matches!(op, Op::Write | Op::WriteZeroes) {
                    migrated.drop_held(key, hash(key));
                }
            }
        }
        let mut at = 0;
        for &length in lengths {
            let reuses = &self.reuses[at..at + length as usize];
            match (self.by_request, ops.get(at)) {
                (true, Some(&op)) => {
                    // `COLD` and `UNMEASURED` compare greater than any distance.
                    let largest = reuses.iter().copied().max();
                    largest.into_iter().for_each(|reuse| self.counts.add(op, reuse));
                }
                _ => {
                    let ops = &ops[at..at + length as usize];
                    ops.iter().zip(reuses).for_each(|(&op, &reuse)| self.counts.add(op, reuse));
                }
            }
            at += length as usize;
        }
        Ok(())
    }

    /// Returns the histogram of all requests so far.
    pub fn into_histogram(self) -> ReuseHistogram {
        let blocks = self.stack.blocks_known();
        drop((self.stack, self.migrated));
        self.counts.finish(blocks)
    }
}

fn depth(migrated: &Table, key: u64) -> Reuse {
    match migrated.find(key, hash(key)) {
        Some(depth) if depth >= FIRST_TIME => Reuse::at(depth - FIRST_TIME),
        _ => Reuse::COLD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::Read;

    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) % below
    }

    /// Returns the miss ratio at half the size of the file, for requests of 64 blocks whose first
    /// block is a multiple of `align`.
    fn miss_ratio_at_half(align: u64) -> f64 {
        let (file_blocks, mut seed) = (1 << 19, 9);
        let mut distances = RequestDistances::new(Distance::Trd);
        for n in 0..90_000 {
            let first = random(&mut seed, (file_blocks - 64) / align + 1) * align;
            let keys: Vec<u64> = (first..first + 64).collect();
            // Counting starts once nearly every block has been accessed, to leave out the cold
            // start.
            if n == 60_000 {
                distances.counts = HistogramBuilder::new();
            }
            distances.request_batch(&keys, &[Read; 64], &[64]).unwrap();
        }
        let histogram = distances.into_histogram();
        1.0 - histogram.hits(Read, file_blocks / 2) as f64 / histogram.accesses() as f64
    }

    #[test]
    fn large_unaligned_requests_miss_far_more_than_half_at_half_the_size() {
        // Koller (2012, section 5.1) reads 0.8 off such a curve; two random blocks would miss half.
        let unaligned = miss_ratio_at_half(1);
        assert!((unaligned - 0.84).abs() < 0.02, "{unaligned}");
        let aligned = miss_ratio_at_half(64);
        assert!((aligned - 0.51).abs() < 0.02, "{aligned}");
    }

    #[test]
    fn a_request_with_one_new_block_is_cold() {
        let mut distances = RequestDistances::new(Distance::Trd);
        distances.request_batch(&[1, 2, 3, 2, 9], &[Read; 5], &[3, 2]).unwrap();
        let histogram = distances.into_histogram();
        assert_eq!((histogram.read.cold, histogram.accesses()), (2, 2));
    }

    #[test]
    fn migration_after_every_access_is_no_migration() {
        let mut plain = RequestDistances::new(Distance::Trd);
        let mut eager = RequestDistances::new(Distance::Trd);
        let mut seed = 1;
        for _ in 0..3000 {
            let key = [random(&mut seed, 100)];
            plain.request_batch(&key, &[Read], &[1]).unwrap();
            eager.migrate();
            eager.request_batch(&key, &[Read], &[1]).unwrap();
        }
        assert_eq!(plain.into_histogram(), eager.into_histogram());
    }

    #[test]
    fn distances_are_those_at_the_last_migration() {
        let mut distances = RequestDistances::new(Distance::Trd);
        distances.migrate();
        distances.request_batch(&[1, 2, 3, 1], &[Read; 4], &[1, 1, 1, 1]).unwrap();
        distances.migrate();
        // From here on the copied stack is 1 3 2, whatever is accessed.
        distances.request_batch(&[2, 2, 2, 7, 1], &[Read; 5], &[1, 1, 1, 1, 1]).unwrap();
        let histogram = distances.into_histogram();
        assert_eq!(histogram.read.cold, 4 + 1);
        assert_eq!([1, 2, 3].map(|size| histogram.hits(Read, size)), [1, 1, 4]);
    }

    #[test]
    fn what_a_write_invalidates_is_not_in_the_cache_until_the_migration_after_its_next_read() {
        for distance in [Distance::PodReadOnly, Distance::LruReadOnly] {
            let mut distances = RequestDistances::new(distance);
            let request = |distances: &mut RequestDistances, op: Op| {
                distances.request_batch(&[1], &[op], &[1]).unwrap();
                distances.clone().into_histogram().hits(Read, 1)
            };
            request(&mut distances, Read);
            distances.migrate();
            assert_eq!(request(&mut distances, Read), 1);
            request(&mut distances, Op::Write);
            assert_eq!(request(&mut distances, Read), 1, "{distance}: invalid");
            assert_eq!(request(&mut distances, Read), 1, "{distance}: not yet migrated");
            distances.migrate();
            assert_eq!(request(&mut distances, Read), 2, "{distance}");
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let mut distances = RequestDistances::new(Distance::Trd);
        let err = distances.request_batch(&[1, 2], &[Read; 2], &[1]).unwrap_err();
        assert_eq!(err, LocalityError::UnequalBatch { keys: 2, ops: 1 });
    }
}
