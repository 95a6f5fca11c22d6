//! Exact reuse distances, from the table of last accesses and the timeline, in batches.

use forebay_block::Op;

use crate::LocalityError;
use crate::cpu::Cpu;
use crate::distance::{All, Distance, Keep, LruReadOnly, ReadOnly, Rule, Useful, WriteOnly};
use crate::holes::Holes;
use crate::table::{FIRST_TIME, NOT_HELD, Place, Table, hash};
use crate::timeline::{TIMES_MAX, Timeline};
use crate::write_only::WriteOnlyStack;

/// Number of accesses processed together: their table slots and bitmap lines are prefetched before
/// use.
const CHUNK: usize = 64;

/// The reuse distance of one access.
///
/// Ordered by the cache size needed for a hit: cold accesses are last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reuse(u32);

impl Reuse {
    /// No cache held the block, whatever its size: the block is new, or was invalidated.
    pub const COLD: Reuse = Reuse(u32::MAX);
    /// The distance does not measure this kind of access.
    pub const UNMEASURED: Reuse = Reuse(u32::MAX - 1);

    /// A reuse at `distance` blocks.
    #[inline(always)]
    pub(crate) const fn at(distance: u32) -> Reuse {
        Reuse(distance)
    }

    /// Returns the number of other blocks kept more recently, if this is a measured reuse. A cache
    /// of more blocks than that holds the block.
    #[inline(always)]
    pub const fn distance(self) -> Option<u32> {
        if self.0 < Self::UNMEASURED.0 { Some(self.0) } else { None }
    }
}

/// The LRU stack of a workload: returns the reuse distance of each access.
///
/// Distances are exact for up to about 3.7 billion blocks. Takes 20 to 40 bytes of memory per
/// distinct block. Keys are any 64-bit names of blocks ([`crate::BlockKeys`]).
///
/// ```
/// use forebay_block::Op::Read;
/// use forebay_locality::{Distance, Reuse, ReuseStack};
/// let mut stack = ReuseStack::new(Distance::Trd);
/// let mut reuses = Vec::new();
/// stack.access_batch(&[1, 2, 3, 2, 1], &[Read; 5], &mut reuses).unwrap();
/// assert_eq!(reuses[..3], [Reuse::COLD; 3]);
/// assert_eq!(reuses[3].distance(), Some(1));
/// assert_eq!(reuses[4].distance(), Some(2));
/// ```
#[derive(Clone, Debug)]
pub struct ReuseStack {
    distance: Distance,
    table: Table,
    order: Order,
    cpu: Cpu,
}

/// The order of the blocks in the stack.
#[derive(Clone, Debug)]
enum Order {
    /// By time of last access.
    Recency(Recency),
    /// The order for [`Distance::LruWriteOnly`] only.
    WriteOnly(WriteOnlyStack),
}

/// Blocks and holes, ordered by time.
#[derive(Clone, Debug)]
struct Recency {
    timeline: Timeline,
    /// Holes, for [`Distance::LruReadOnly`] only.
    holes: Holes,
}

impl ReuseStack {
    /// Creates an empty stack for one kind of distance.
    pub fn new(distance: Distance) -> Self {
        Self::with_times_max(distance, TIMES_MAX)
    }

    fn with_times_max(distance: Distance, times_max: u32) -> Self {
        let order = match distance {
            Distance::LruWriteOnly => Order::WriteOnly(WriteOnlyStack::new(times_max)),
            _ => {
                let (timeline, holes) = (Timeline::new(times_max), Holes::default());
                Order::Recency(Recency { timeline, holes })
            }
        };
        Self { distance, table: Table::new(), order, cpu: Cpu::detect() }
    }

    /// Creates an empty stack for a sample that shrinks: [`ReuseStack::retain`] can be called on
    /// it.
    pub(crate) fn of_shrinking_sample(distance: Distance) -> Self {
        let mut stack = Self::new(distance);
        if let Order::Recency(recency) = &mut stack.order {
            recency.holes = Holes::of_forgettable();
        }
        stack
    }

    /// Returns the kind of distance.
    pub fn distance(&self) -> Distance {
        self.distance
    }

    /// Processes accesses in order, and appends one reuse for each to `reuses`.
    ///
    /// Batches of several hundred accesses are fastest: memory is prefetched within a batch.
    ///
    /// # Errors
    /// If the slices differ in length (nothing is processed), or if more blocks are held than
    /// 32-bit times can order (the length of `reuses` then tells how many accesses were processed).
    pub fn access_batch(
        &mut self,
        keys: &[u64],
        ops: &[Op],
        reuses: &mut Vec<Reuse>,
    ) -> Result<(), LocalityError> {
        self.for_each_chunk(keys, ops, |_, chunk| reuses.extend_from_slice(chunk))
    }

    /// Processes accesses in order, and passes them and their reuses to `sink` in chunks.
    #[inline]
    pub(crate) fn for_each_chunk(
        &mut self,
        keys: &[u64],
        ops: &[Op],
        mut sink: impl FnMut(&[Op], &[Reuse]),
    ) -> Result<(), LocalityError> {
        if keys.len() != ops.len() {
            return Err(LocalityError::UnequalBatch { keys: keys.len(), ops: ops.len() });
        }
        let mut out = [Reuse::COLD; CHUNK];
        for (keys, ops) in keys.chunks(CHUNK).zip(ops.chunks(CHUNK)) {
            if (self.remaining() as usize) < keys.len() {
                self.renumber()?;
            }
            let out = &mut out[..keys.len()];
            self.chunk(keys, ops, out);
            sink(ops, out);
        }
        Ok(())
    }

    /// Number of distinct blocks in the table, held or not.
    pub fn blocks_known(&self) -> u64 {
        self.table.len()
    }

    /// Number of accesses possible before the times must be renumbered.
    #[inline(always)]
    fn remaining(&self) -> u32 {
        match &self.order {
            Order::Recency(recency) => recency.timeline.remaining(),
            Order::WriteOnly(stack) => stack.remaining(),
        }
    }

    /// Returns a copy of the table with [`FIRST_TIME`] plus the depth of each held block in the
    /// stack in place of its time.
    pub(crate) fn depths(&self) -> Table {
        let mut table = self.table.clone();
        match &self.order {
            Order::Recency(recency) => {
                table.retime(|time| FIRST_TIME + recency.timeline.later(time));
            }
            Order::WriteOnly(stack) => table.retime(|time| FIRST_TIME + stack.position(time)),
        }
        table
    }

    /// Visits the keys of all blocks in the table, in no particular order.
    pub(crate) fn for_each_key(&self, visit: impl FnMut(u64)) {
        self.table.for_each_key(visit);
    }

    /// Forgets every block whose key `keep` rejects, as if it had never been accessed.
    ///
    /// For [`Distance::LruReadOnly`] and [`Distance::LruWriteOnly`] this is only approximate: the
    /// forgotten blocks have moved other blocks, which stay where they are.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        match &mut self.order {
            Order::Recency(Recency { timeline, holes }) => {
                self.table.retain(|key, time| {
                    let keeps = keep(key);
                    if !keeps && time >= FIRST_TIME {
                        timeline.take(time);
                    }
                    keeps
                });
                holes.retain(keep, |time| {
                    timeline.take(time);
                });
            }
            Order::WriteOnly(stack) => stack.retain(&mut self.table, keep),
        }
    }

    /// Renumbers all times without gaps, after they are used up.
    #[cold]
    fn renumber(&mut self) -> Result<(), LocalityError> {
        match &mut self.order {
            Order::Recency(Recency { timeline, holes }) => {
                if timeline.is_crowded() {
                    let distinct_blocks = u64::from(timeline.kept());
                    return Err(LocalityError::TooManyBlocks { distinct_blocks });
                }
                self.table.retime(|time| FIRST_TIME + timeline.rank(time));
                holes.retime(|time| FIRST_TIME + timeline.rank(time));
                timeline.restart();
                Ok(())
            }
            Order::WriteOnly(stack) => stack.renumber(&mut self.table),
        }
    }

    fn chunk(&mut self, keys: &[u64], ops: &[Op], out: &mut [Reuse]) {
        match self.distance {
            Distance::Trd => self.chunk_by::<All>(keys, ops, out),
            Distance::Urd | Distance::PodWriteBack | Distance::PodWriteThrough => {
                self.chunk_by::<Useful>(keys, ops, out);
            }
            Distance::PodReadOnly => self.chunk_by::<ReadOnly>(keys, ops, out),
            Distance::PodWriteOnly => self.chunk_by::<WriteOnly>(keys, ops, out),
            Distance::LruReadOnly => self.chunk_by::<LruReadOnly>(keys, ops, out),
            Distance::LruWriteOnly => self.write_only_chunk(keys, ops, out),
        }
    }

    fn write_only_chunk(&mut self, keys: &[u64], ops: &[Op], out: &mut [Reuse]) {
        let Order::WriteOnly(stack) = &mut self.order else { return };
        for ((out, &key), &op) in out.iter_mut().zip(keys).zip(ops) {
            let writes = match op {
                Op::Read => false,
                Op::Write | Op::WriteZeroes => true,
                Op::Trim | Op::Flush => {
                    *out = Reuse::UNMEASURED;
                    continue;
                }
            };
            let (place, _) = self.table.place(key, hash(key));
            let time;
            (*out, time) = stack.access(self.table.time(place), writes);
            self.table.set_time(place, time);
        }
    }

    fn chunk_by<R: Rule>(&mut self, keys: &[u64], ops: &[Op], out: &mut [Reuse]) {
        let Order::Recency(recency) = &mut self.order else { return };
        match self.cpu {
            Cpu::Baseline => run::<R>(&mut self.table, recency, keys, ops, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is chosen by `Cpu::detect` alone, which found these features.
            Cpu::Avx2 => unsafe {
                run_avx2::<R>(&mut self.table, recency, keys, ops, out);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<R: Rule>(
    table: &mut Table,
    recency: &mut Recency,
    keys: &[u64],
    ops: &[Op],
    out: &mut [Reuse],
) {
    run::<R>(table, recency, keys, ops, out);
}

/// Processes at most [`CHUNK`] accesses, for which the timeline has room, in three passes: prefetch
/// table slots, find them and prefetch bitmap lines, count.
#[inline(always)]
fn run<R: Rule>(
    table: &mut Table,
    recency: &mut Recency,
    keys: &[u64],
    ops: &[Op],
    out: &mut [Reuse],
) {
    let Recency { timeline, holes } = recency;
    let mut hashes = [0; CHUNK];
    for (hash_of, &key) in hashes.iter_mut().zip(keys) {
        *hash_of = hash(key);
        table.prefetch(*hash_of);
    }
    let mut places = [Place::default(); CHUNK];
    find_places(table, timeline, keys, &hashes, &mut places);
    for (((out, &op), &place), &key) in out.iter_mut().zip(ops).zip(&places).zip(keys) {
        let effect = R::effect(op);
        let time = table.time(place);
        let held = time != NOT_HELD;
        let leaves = match effect.keep {
            Keep::Allocate | Keep::Drop | Keep::TouchIfHeld => held,
            Keep::Nothing => false,
        };
        let later = match (R::HOLES, leaves) {
            (false, true) => timeline.take(time),
            (true, true) => {
                let later = timeline.later(time);
                // A dropped block leaves a hole; so does a block that fills a hole further up.
                match effect.keep {
                    Keep::Drop => holes.push(time, key),
                    _ => match holes.pop_above(time) {
                        Some(hole) => {
                            timeline.take(hole);
                            holes.push(time, key);
                        }
                        None => {
                            timeline.take(time);
                        }
                    },
                }
                later
            }
            (true, false) if matches!(effect.keep, Keep::Allocate) => {
                if let Some(hole) = holes.pop_above(NOT_HELD) {
                    timeline.take(hole);
                }
                0
            }
            (_, false) => 0,
        };
        *out = match (effect.measured, held) {
            (false, _) => Reuse::UNMEASURED,
            (true, true) => Reuse::at(later),
            (true, false) => Reuse::COLD,
        };
        match effect.keep {
            Keep::Allocate => table.set_time(place, timeline.record()),
            Keep::TouchIfHeld if held => table.set_time(place, timeline.record()),
            Keep::Drop => table.set_time(place, NOT_HELD),
            Keep::TouchIfHeld | Keep::Nothing => {}
        }
    }
}

/// Finds the places of all keys. If finding one has moved the table, finds all again from the
/// start; the second time no key is new.
#[inline(always)]
fn find_places(
    table: &mut Table,
    timeline: &Timeline,
    keys: &[u64],
    hashes: &[u64; CHUNK],
    places: &mut [Place; CHUNK],
) {
    loop {
        let mut any_moved = false;
        for ((place, &key), &hash) in places.iter_mut().zip(keys).zip(hashes) {
            let moved;
            (*place, moved) = table.place(key, hash);
            any_moved |= moved;
            timeline.prefetch(table.time(*place));
        }
        if !any_moved {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};
    use proptest::prelude::*;

    /// The definition of the distances, in quadratic time: blocks held, most recent first.
    #[derive(Default)]
    struct Naive(Vec<u64>);

    impl Naive {
        fn access<R: Rule>(&mut self, key: u64, op: Op) -> Reuse {
            let effect = R::effect(op);
            let depth = self.0.iter().position(|&k| k == key);
            match (effect.keep, depth) {
                (Keep::Allocate, at) => {
                    at.map(|at| self.0.remove(at));
                    self.0.insert(0, key);
                }
                (Keep::TouchIfHeld, Some(at)) => {
                    self.0.remove(at);
                    self.0.insert(0, key);
                }
                (Keep::Drop, Some(at)) => drop(self.0.remove(at)),
                _ => {}
            }
            match (effect.measured, depth) {
                (false, _) => Reuse::UNMEASURED,
                (true, Some(depth)) => Reuse::at(depth as u32),
                (true, None) => Reuse::COLD,
            }
        }
    }

    /// An LRU cache of at most this many blocks, most recent first.
    struct Lru(usize, Vec<u64>);

    impl Lru {
        fn access(&mut self, distance: Distance, key: u64, op: Op) -> bool {
            let writes = match op {
                Read => false,
                Write | Op::WriteZeroes => true,
                Op::Trim | Op::Flush => return false,
            };
            let at = self.1.iter().position(|&k| k == key);
            let hit = at.map(|at| self.1.remove(at)).is_some();
            let keeps = match distance {
                Distance::LruReadOnly => !writes,
                Distance::LruWriteOnly => writes || hit,
                other => unreachable!("{other}"),
            };
            if keeps {
                self.1.insert(0, key);
                self.1.truncate(self.0);
            }
            hit
        }
    }

    /// Measures by the definition: simulates caches of all sizes and returns the size of the
    /// largest one that misses.
    fn by_caches(distance: Distance, accesses: &[(u64, Op)]) -> Vec<Reuse> {
        let blocks: std::collections::BTreeSet<u64> = accesses.iter().map(|&(k, _)| k).collect();
        let mut caches: Vec<Lru> = (1..=blocks.len()).map(|n| Lru(n, Vec::new())).collect();
        let reuse = |&(key, op): &(u64, Op)| {
            let hits: Vec<bool> =
                caches.iter_mut().map(|cache| cache.access(distance, key, op)).collect();
            assert!(hits.is_sorted(), "a larger cache misses what a smaller one holds");
            let read_only_write = distance == Distance::LruReadOnly && op != Read;
            match hits.iter().position(|&hit| hit) {
                _ if read_only_write || matches!(op, Op::Trim | Op::Flush) => Reuse::UNMEASURED,
                Some(misses) => Reuse::at(misses as u32),
                None => Reuse::COLD,
            }
        };
        accesses.iter().map(reuse).collect()
    }

    /// Returns as many of the accesses as the slow definition can measure in reasonable time.
    fn bearable(distance: Distance, accesses: &[(u64, Op)]) -> &[(u64, Op)] {
        let by_caches = matches!(distance, Distance::LruReadOnly | Distance::LruWriteOnly);
        let blocks_of_many = accesses.iter().any(|&(key, _)| key >= 300);
        let most = if blocks_of_many { 900 } else { 6000 };
        if by_caches && accesses.len() > most { &accesses[..most] } else { accesses }
    }

    fn naive(distance: Distance, accesses: &[(u64, Op)]) -> Vec<Reuse> {
        if matches!(distance, Distance::LruReadOnly | Distance::LruWriteOnly) {
            return by_caches(distance, accesses);
        }
        let mut stack = Naive::default();
        let step: fn(&mut Naive, u64, Op) -> Reuse = match distance {
            Distance::Trd => Naive::access::<All>,
            Distance::PodReadOnly => Naive::access::<ReadOnly>,
            Distance::PodWriteOnly => Naive::access::<WriteOnly>,
            _ => Naive::access::<Useful>,
        };
        accesses.iter().map(|&(key, op)| step(&mut stack, key, op)).collect()
    }

    fn measure(mut stack: ReuseStack, accesses: &[(u64, Op)], batch: usize) -> Vec<Reuse> {
        let mut reuses = Vec::new();
        for batch in accesses.chunks(batch) {
            let (keys, ops): (Vec<u64>, Vec<Op>) = batch.iter().copied().unzip();
            stack.access_batch(&keys, &ops, &mut reuses).unwrap();
        }
        reuses
    }

    fn accesses() -> impl Strategy<Value = Vec<(u64, Op)>> {
        let op = prop_oneof![
            4 => Just(Read), 3 => Just(Write), 1 => Just(Op::WriteZeroes),
            1 => Just(Op::Trim), 1 => Just(Op::Flush)
        ];
        let key = prop_oneof![0..8u64, 0..300u64, any::<u64>()];
        proptest::collection::vec((key, op), 0..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_distance_equals_its_definition(
            accesses in accesses(), batch in 1..200usize, times_max in 4096..20_000u32,
        ) {
            for distance in Distance::ALL {
                let stack = ReuseStack::with_times_max(distance, times_max);
                let accesses = bearable(distance, &accesses);
                prop_assert_eq!(measure(stack, accesses, batch), naive(distance, accesses));
            }
        }

        #[test]
        fn the_baseline_loop_says_what_the_vector_loop_says(accesses in accesses()) {
            for distance in Distance::ALL {
                let mut baseline = ReuseStack::new(distance);
                baseline.cpu = Cpu::Baseline;
                let best = ReuseStack::new(distance);
                prop_assert_eq!(measure(baseline, &accesses, 64), measure(best, &accesses, 64));
            }
        }
    }

    #[test]
    fn distances_are_right_when_time_wraps_many_times() {
        // With 512 times and up to 300 blocks, times are renumbered every few hundred accesses.
        let mut seed = 7u32;
        let accesses: Vec<(u64, Op)> = (0..50_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (u64::from(seed >> 8) % 300, if seed >> 31 == 0 { Read } else { Write })
            })
            .collect();
        for distance in Distance::ALL {
            let stack = ReuseStack::with_times_max(distance, 512);
            let accesses = bearable(distance, &accesses);
            assert_eq!(measure(stack, accesses, 1000), naive(distance, accesses), "{distance}");
        }
    }

    #[test]
    fn more_blocks_than_times_is_an_error_and_no_wrong_distance() {
        let mut stack = ReuseStack::with_times_max(Distance::Trd, 1024);
        let keys: Vec<u64> = (0..2000).collect();
        let mut reuses = Vec::new();
        let err = stack.access_batch(&keys, &[Read; 2000], &mut reuses).unwrap_err();
        assert!(matches!(err, LocalityError::TooManyBlocks { distinct_blocks: 896..=1024 }));
        assert!(reuses.len() < 1024 && reuses.iter().all(|&r| r == Reuse::COLD));
        let err = stack.access_batch(&[1], &[], &mut reuses).unwrap_err();
        assert_eq!(err, LocalityError::UnequalBatch { keys: 1, ops: 0 });
    }

    #[test]
    fn forgotten_blocks_no_longer_count() {
        let mut stack = ReuseStack::new(Distance::Trd);
        let mut reuses = Vec::new();
        let keys: Vec<u64> = (0..1000).collect();
        stack.access_batch(&keys, &[Read; 1000], &mut reuses).unwrap();
        stack.retain(|key| key % 10 == 0);
        assert_eq!(stack.blocks_known(), 100);
        reuses.clear();
        stack.access_batch(&[0, 990, 15], &[Read; 3], &mut reuses).unwrap();
        assert_eq!(reuses[0].distance(), Some(99));
        assert_eq!(reuses[1].distance(), Some(1));
        assert_eq!(reuses[2], Reuse::COLD);
    }

    /// ETICA, figure 8.
    const FIGURE_8: [(u64, Op); 7] =
        [(1, Read), (2, Read), (3, Read), (4, Write), (5, Write), (1, Read), (4, Read)];
    /// ETICA, figure 9.
    const FIGURE_9: [(u64, Op); 7] =
        [(1, Write), (2, Read), (3, Read), (4, Write), (5, Write), (3, Read), (1, Read)];

    fn max(distance: Distance, accesses: &[(u64, Op)]) -> Option<u32> {
        measure(ReuseStack::new(distance), accesses, 7)
            .into_iter()
            .filter_map(Reuse::distance)
            .max()
    }

    #[test]
    fn the_write_only_example_of_the_etica_paper_needs_two_blocks_where_urd_asks_for_five() {
        assert_eq!(max(Distance::Urd, &FIGURE_8), Some(4));
        assert_eq!(max(Distance::PodWriteOnly, &FIGURE_8), Some(1));
        assert_eq!(max(Distance::PodWriteBack, &FIGURE_8), Some(4));
    }

    #[test]
    fn the_read_only_example_of_the_etica_paper_needs_one_block_where_urd_asks_for_five() {
        assert_eq!(max(Distance::Urd, &FIGURE_9), Some(4));
        assert_eq!(max(Distance::PodReadOnly, &FIGURE_9), Some(0));
        assert_eq!(max(Distance::PodWriteThrough, &FIGURE_9), Some(4));
    }
}
