//! The record of each access, from which phases are found and measured afterwards.

use core::ops::Range;

use forebay_block::{Nanos, Op};

use super::packed::Packed;
use crate::table::{FIRST_TIME, Table, hash};
use crate::{Distance, LocalityError, Reuse, ReuseStack};

/// Accesses between two marks: what phases begin and end at.
pub const MARK: u64 = 64;
/// Accesses collected before they are measured together.
const BATCH: usize = 1024;
/// The most accesses that positions of 32 bits tell apart.
const ACCESSES_MAX: u64 = (u32::MAX - FIRST_TIME) as u64;

/// The accesses of a workload, in order: of each the distance, in some two bytes.
///
/// Positions count the workload's own accesses from 0. Whose blocks they are is not kept, and need
/// not be: a block was accessed before in a phase exactly if fewer other blocks have been accessed
/// since than in the phase.
#[derive(Clone, Debug, Default)]
pub struct AccessRecord {
    /// What an LRU stack says, as [`pack`] has it.
    recency: Packed,
    /// What hits are judged by where blocks move in only every so often.
    judged: Option<Packed>,
    /// The largest distance that hits are judged by.
    max_distance: Option<u64>,
    /// One for every [`MARK`] accesses, the first at 0.
    marks: Vec<Mark>,
    /// Behind the last access.
    end: Mark,
    /// Accesses of all workloads there are.
    all: u64,
}

/// Where an access stands among those of other workloads.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Accesses of all workloads before it.
    together: u64,
    time: Nanos,
}

/// An access: how deep its block was in the stack, and what says whether it hits.
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

    /// The largest reuse distance; a cache of one block more has every hit there is.
    pub fn max_distance(&self) -> Option<u64> {
        self.max_distance
    }

    /// How many of a span of accesses miss in an LRU cache of `size_blocks` that was there from
    /// the beginning.
    pub fn misses(&self, span: Range<u64>, size_blocks: u64) -> u64 {
        let misses = |r: &Reuse| r.distance().is_none_or(|d| u64::from(d) >= size_blocks);
        self.judged(span).filter(misses).count() as u64
    }

    /// The accesses of all workloads while this one went through a span, which begins at a
    /// multiple of [`MARK`] and ends at one or with the record; while it went through all of its
    /// accesses, those before its first and after its last as well.
    pub fn together(&self, span: Range<u64>) -> u64 {
        if span == (0..self.accesses()) {
            return self.all;
        }
        self.mark(span.end).together - self.mark(span.start).together
    }

    /// When a span begins, and when the access behind it comes, or the last one of the record.
    pub fn time(&self, span: Range<u64>) -> Range<Nanos> {
        self.mark(span.start).time..self.mark(span.end).time
    }

    /// The accesses of a span.
    pub(crate) fn each(&self, span: Range<u64>) -> impl Iterator<Item = Access> {
        let recency = self.recency(span.clone());
        recency.zip(self.judged(span)).map(|(recency, judged)| Access { recency, judged })
    }

    /// What an LRU stack says of the accesses of a span.
    pub(crate) fn recency(&self, span: Range<u64>) -> impl Iterator<Item = Reuse> {
        self.recency.iter(span).map(unpack)
    }

    /// By what the accesses of a span hit.
    pub(crate) fn judged(&self, span: Range<u64>) -> impl Iterator<Item = Reuse> {
        self.judged.as_ref().unwrap_or(&self.recency).iter(span).map(unpack)
    }

    fn mark(&self, at: u64) -> Mark {
        if at >= self.accesses() { self.end } else { self.marks[(at / MARK) as usize] }
    }
}

/// Reuses as small numbers; blocks that are new are 0, and there is nothing that is not measured.
fn pack(reuse: Reuse) -> u32 {
    reuse.distance().map_or(0, |distance| distance + 1)
}

#[inline(always)]
fn unpack(number: u32) -> Reuse {
    number.checked_sub(1).map_or(Reuse::COLD, Reuse::at)
}

/// Makes a record of accesses as they come.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    stack: ReuseStack,
    /// The depth of each block plus [`FIRST_TIME`] at the last migration.
    migrated: Option<Table>,
    keys: Vec<u64>,
    /// What the stack says of them, while that is noted.
    reuses: Vec<Reuse>,
    record: AccessRecord,
}

impl Recorder {
    /// A recorder for a cache that blocks move into when they are accessed, or else at migrations.
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

    /// One access, at `time`, after `together` accesses of all workloads.
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

    /// Accesses so far.
    pub(crate) fn accesses(&self) -> u64 {
        self.record.accesses() + self.keys.len() as u64
    }

    /// From here on hits are judged by what is in the stack now.
    pub(crate) fn migrate(&mut self) -> Result<(), LocalityError> {
        self.measure()?;
        self.migrated = None;
        self.migrated = Some(self.stack.depths());
        Ok(())
    }

    fn measure(&mut self) -> Result<(), LocalityError> {
        let record = &mut self.record;
        // All that is measured is whether a block was accessed, by whatever operation.
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

    /// The record, among `all` accesses of all workloads.
    pub(crate) fn finish(mut self, all: u64) -> Result<AccessRecord, LocalityError> {
        self.measure()?;
        self.record.all = all;
        Ok(self.record)
    }
}

/// A record of the keys given, each a workload's access with no other access between.
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
        // Twice over three blocks: the second time they hit if all three fit.
        let record = record(&[1, 2, 3, 1, 2, 3]);
        assert_eq!([2, 3].map(|size| record.misses(0..6, size)), [6, 3]);
        assert_eq!(record.misses(3..6, 3), 0);
        assert_eq!(record.max_distance(), Some(2));
    }
}
