//! A record of all accesses, from which phases are found and measured afterwards.

use core::ops::Range;

use forebay_block::{Nanos, Op};

use super::packed::Packed;
use crate::table::{FIRST_TIME, Table, hash};
use crate::{Distance, LocalityError, Reuse, ReuseStack};

/// Number of accesses between two marks. Phases begin and end at marks.
pub const MARK: u64 = 64;
/// Number of accesses collected before they are measured together.
const BATCH: usize = 1024;
/// The most accesses that 32-bit positions can number.
const ACCESSES_MAX: u64 = (u32::MAX - FIRST_TIME) as u64;

/// The accesses of a workload, in order: the reuse distance of each, in about two bytes.
///
/// Positions count the workload's own accesses from 0. The record does not store which block each
/// access is to, and need not: a phase has accessed a block before if and only if fewer other
/// blocks have been accessed since the last access to it than in the phase so far.
#[derive(Clone, Debug, Default)]
pub struct AccessRecord {
    /// The reuse distances in an LRU stack, encoded by [`pack`].
    recency: Packed,
    /// The distances that decide hits under periodic migration; `None` without it, where `recency`
    /// decides.
    judged: Option<Packed>,
    /// The largest distance among those that decide hits.
    max_distance: Option<u64>,
    /// One mark for every [`MARK`] accesses, the first at position 0.
    marks: Vec<Mark>,
    /// The mark after the last access.
    end: Mark,
    /// Number of accesses of all workloads together.
    all: u64,
}

/// The place of an access among those of all workloads.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Number of earlier accesses of all workloads.
    together: u64,
    time: Nanos,
}

/// An access: the depth of its block in the LRU stack, and the distance that decides whether it
/// hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) recency: Reuse,
    pub(crate) judged: Reuse,
}

impl AccessRecord {
    /// Number of accesses.
    pub fn accesses(&self) -> u64 {
        self.recency.len()
    }

    /// Returns the largest reuse distance. A cache of one block more has all possible hits.
    pub fn max_distance(&self) -> Option<u64> {
        self.max_distance
    }

    /// Returns how many accesses of a span miss in an LRU cache of `size_blocks` blocks that has
    /// been in use since the start of the record.
    pub fn misses(&self, span: Range<u64>, size_blocks: u64) -> u64 {
        let misses = |r: &Reuse| r.distance().is_none_or(|d| u64::from(d) >= size_blocks);
        self.judged(span).filter(misses).count() as u64
    }

    /// Returns the number of accesses of all workloads during a span of this one. A span begins at
    /// a multiple of [`MARK`], and ends at one or at the end of the record. If it is the whole
    /// record, accesses of others before its first and after its last access count too.
    pub fn together(&self, span: Range<u64>) -> u64 {
        if span == (0..self.accesses()) {
            return self.all;
        }
        self.mark(span.end).together - self.mark(span.start).together
    }

    /// Returns the time of the first access of a span, and of the first access after it or else the
    /// last of the record.
    pub fn time(&self, span: Range<u64>) -> Range<Nanos> {
        self.mark(span.start).time..self.mark(span.end).time
    }

    /// Returns the accesses of a span.
    pub(crate) fn each(&self, span: Range<u64>) -> impl Iterator<Item = Access> {
        let recency = self.recency(span.clone());
        recency.zip(self.judged(span)).map(|(recency, judged)| Access { recency, judged })
    }

    /// Returns the LRU stack distances of the accesses of a span.
    pub(crate) fn recency(&self, span: Range<u64>) -> impl Iterator<Item = Reuse> {
        self.recency.iter(span).map(unpack)
    }

    /// Returns the distances that decide whether the accesses of a span hit.
    pub(crate) fn judged(&self, span: Range<u64>) -> impl Iterator<Item = Reuse> {
        self.judged.as_ref().unwrap_or(&self.recency).iter(span).map(unpack)
    }

    fn mark(&self, at: u64) -> Mark {
        if at >= self.accesses() { self.end } else { self.marks[(at / MARK) as usize] }
    }
}

/// Encodes a reuse as a small number: 0 if the block is new, else the distance plus 1. Every access
/// of a record is measured.
fn pack(reuse: Reuse) -> u32 {
    reuse.distance().map_or(0, |distance| distance + 1)
}

#[inline(always)]
fn unpack(number: u32) -> Reuse {
    number.checked_sub(1).map_or(Reuse::COLD, Reuse::at)
}

/// Records accesses one by one.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    stack: ReuseStack,
    /// For each block, its depth in the stack at the last migration, plus [`FIRST_TIME`].
    migrated: Option<Table>,
    keys: Vec<u64>,
    /// The distances of `keys`, while they are being recorded.
    reuses: Vec<Reuse>,
    record: AccessRecord,
}

impl Recorder {
    /// Creates a recorder for a cache that blocks enter at migrations if `migrates`, and else when
    /// they are accessed.
    pub(crate) fn new(migrates: bool) -> Self {
        let judged = migrates.then(Packed::default);
        Self {
            stack: ReuseStack::new(Distance::Trd),
            migrated: migrates.then(Table::new),
            keys: Vec::new(),
            reuses: Vec::new(),
            record: AccessRecord { judged, ..AccessRecord::default() },
        }
    }

    /// Records one access at `time`, which `together` accesses of all workloads precede.
    pub(crate) fn access(
        &mut self,
        key: u64,
        together: u64,
        time: Nanos,
    ) -> Result<(), LocalityError> {
        let position = self.accesses();
        if position >= ACCESSES_MAX {
            return Err(LocalityError::TooManyAccesses { accesses: position });
        }
        let mark = Mark { together, time };
        if position.is_multiple_of(MARK) {
            self.record.marks.push(mark);
        }
        self.record.end = Mark { together: together + 1, time };
        self.keys.push(key);
        if self.keys.len() == BATCH { self.measure() } else { Ok(()) }
    }

    /// Number of accesses so far.
    pub(crate) fn accesses(&self) -> u64 {
        self.record.accesses() + self.keys.len() as u64
    }

    /// Migrates blocks: from now on, hits are decided by what is in the stack now.
    pub(crate) fn migrate(&mut self) -> Result<(), LocalityError> {
        self.measure()?;
        self.migrated = None;
        self.migrated = Some(self.stack.depths());
        Ok(())
    }

    fn measure(&mut self) -> Result<(), LocalityError> {
        let record = &mut self.record;
        // Every access counts as a read: the stack keeps and measures all operations alike.
        let ops = &[Op::Read; BATCH][..self.keys.len()];
        self.reuses.clear();
        self.stack.access_batch(&self.keys, ops, &mut self.reuses)?;
        self.reuses.iter().for_each(|&reuse| record.recency.push(pack(reuse)));
        if let (Some(migrated), Some(judged)) = (&self.migrated, &mut record.judged) {
            for (&key, reuse) in self.keys.iter().zip(&mut self.reuses) {
                *reuse = match migrated.find(key, hash(key)) {
                    Some(depth) if depth >= FIRST_TIME => Reuse::at(depth - FIRST_TIME),
                    _ => Reuse::COLD,
                };
                judged.push(pack(*reuse));
            }
        }
        let largest = self.reuses.iter().filter_map(|reuse| reuse.distance()).max();
        record.max_distance = record.max_distance.max(largest.map(u64::from));
        self.keys.clear();
        Ok(())
    }

    /// Returns the record. `all` is the number of accesses of all workloads.
    pub(crate) fn finish(mut self, all: u64) -> Result<AccessRecord, LocalityError> {
        self.measure()?;
        self.record.all = all;
        Ok(self.record)
    }
}

/// Records the given keys as the accesses of a single workload.
#[cfg(test)]
pub(crate) fn record(keys: &[u64]) -> AccessRecord {
    let mut recorder = Recorder::new(false);
    for (n, &key) in keys.iter().enumerate() {
        recorder.access(key, n as u64, Nanos(n as u64)).unwrap();
    }
    recorder.finish(keys.len() as u64).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_the_stack_said() {
        let keys: Vec<u64> = (0..150_000u64).map(|n| (n * n % 7919) >> (n % 13)).collect();
        let record = record(&keys);
        let mut reuses = Vec::new();
        let mut stack = ReuseStack::new(Distance::Trd);
        stack.access_batch(&keys, &vec![Op::Read; keys.len()], &mut reuses).unwrap();
        assert!(record.recency(0..150_000).eq(reuses.iter().copied()));
        assert!(record.judged(77..99_999).eq(reuses[77..99_999].iter().copied()));
        let largest = reuses.iter().filter_map(|r| r.distance()).max();
        assert_eq!(record.max_distance(), largest.map(u64::from));
        assert_eq!(record.together(64..640), 576);
        assert_eq!(record.time(64..128), Nanos(64)..Nanos(128));
        assert_eq!(record.time(0..150_000), Nanos(0)..Nanos(149_999));
    }

    #[test]
    fn misses_are_those_of_a_cache_that_was_there_from_the_beginning() {
        // Two passes over three blocks: the second pass hits if all three fit.
        let record = record(&[1, 2, 3, 1, 2, 3]);
        assert_eq!([2, 3].map(|size| record.misses(0..6, size)), [6, 3]);
        assert_eq!(record.misses(3..6, 3), 0);
        assert_eq!(record.max_distance(), Some(2));
    }
}
