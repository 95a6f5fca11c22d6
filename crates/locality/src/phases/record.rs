//! What is kept of each access, so that phases can be found and measured afterwards.

use core::ops::Range;

use forebay_block::{Nanos, Op};

use crate::table::{FIRST_TIME, Table, hash};
use crate::{Distance, LocalityError, Reuse, ReuseStack};

/// Accesses between two marks: what phases begin and end at.
pub const MARK: u64 = 64;
/// Accesses collected before they are measured together.
const BATCH: usize = 1024;
/// How many accesses ahead the memory of the table is asked for.
const AHEAD: usize = 32;
/// The most accesses that positions of 32 bits tell apart.
const ACCESSES_MAX: u64 = (u32::MAX - FIRST_TIME) as u64;

/// The accesses of a workload, in order: 8 bytes each.
///
/// Positions count the workload's own accesses from 0.
#[derive(Clone, Debug, Default)]
pub struct AccessRecord {
    /// The position of the access before to the same block plus [`FIRST_TIME`], or 0.
    previous: Vec<u32>,
    reuses: Vec<Reuse>,
    /// One for every [`MARK`] accesses, the first at 0.
    marks: Vec<Mark>,
    /// Behind the last access.
    end: Mark,
    /// Accesses of all workloads there are.
    all: u64,
}

/// Where an access stands beside those of other workloads.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Accesses of all workloads before it.
    together: u64,
    time: Nanos,
}

impl AccessRecord {
    /// Number of accesses.
    pub fn accesses(&self) -> u64 {
        self.reuses.len() as u64
    }

    /// The largest reuse distance; a cache of one block more has every hit there is.
    pub fn max_distance(&self) -> Option<u64> {
        self.reuses.iter().filter_map(|r| r.distance()).max().map(u64::from)
    }

    /// How many of a span of accesses miss in an LRU cache of `size_blocks` that was there from
    /// the beginning.
    pub fn misses(&self, span: Range<u64>, size_blocks: u64) -> u64 {
        let misses = |r: &&Reuse| r.distance().is_none_or(|d| u64::from(d) >= size_blocks);
        self.reuses[indices(span)].iter().filter(misses).count() as u64
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

    /// The reuses of a span, each with the position of the access before to the same block.
    pub(crate) fn each(&self, span: Range<u64>) -> impl Iterator<Item = (Option<u64>, Reuse)> {
        let span = indices(span);
        let previous = self.previous[span.clone()].iter().map(|&p| position(p));
        previous.zip(self.reuses[span].iter().copied())
    }

    /// The position of the access before to the same block.
    pub(crate) fn previous(&self, at: u64) -> Option<u64> {
        position(self.previous[at as usize])
    }

    fn mark(&self, at: u64) -> Mark {
        if at >= self.accesses() { self.end } else { self.marks[(at / MARK) as usize] }
    }
}

fn position(previous: u32) -> Option<u64> {
    (previous >= FIRST_TIME).then(|| u64::from(previous - FIRST_TIME))
}

fn indices(span: Range<u64>) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Makes a record of accesses as they come.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    stack: ReuseStack,
    /// The position of each block's last access plus [`FIRST_TIME`].
    last: Table,
    /// The depth of each block plus [`FIRST_TIME`] at the last migration.
    migrated: Option<Table>,
    keys: Vec<u64>,
    record: AccessRecord,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            stack: ReuseStack::new(Distance::Trd),
            last: Table::new(),
            migrated: None,
            keys: Vec::new(),
            record: AccessRecord::default(),
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
        let first = record.reuses.len();
        // All that is measured is whether a block was accessed, by whatever operation.
        self.stack.access_batch(
            &self.keys,
            &vec![Op::Read; self.keys.len()],
            &mut record.reuses,
        )?;
        for (n, &key) in self.keys.iter().enumerate() {
            if let Some(&ahead) = self.keys.get(n + AHEAD) {
                self.last.prefetch(hash(ahead));
            }
            let (place, _) = self.last.place(key, hash(key));
            record.previous.push(self.last.time(place));
            self.last.set_time(place, (first + n) as u32 + FIRST_TIME);
            if let Some(migrated) = &self.migrated {
                record.reuses[first + n] = match migrated.find(key, hash(key)) {
                    Some(depth) if depth >= FIRST_TIME => Reuse::at(depth - FIRST_TIME),
                    _ => Reuse::COLD,
                };
            }
        }
        self.keys.clear();
        Ok(())
    }

    /// The record, beside `all` accesses of all workloads.
    pub(crate) fn finish(mut self, all: u64) -> Result<AccessRecord, LocalityError> {
        self.measure()?;
        self.record.all = all;
        Ok(self.record)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let migrated = self.migrated.as_ref().map_or(0, Table::memory_bytes);
        let r = &self.record;
        let words = 4 * (r.previous.capacity() + r.reuses.capacity());
        let marks = r.marks.capacity() * size_of::<Mark>();
        self.stack.memory_bytes() + self.last.memory_bytes() + migrated + (words + marks) as u64
    }
}

/// A record of the keys given, each a workload's access with no other beside it.
#[cfg(test)]
pub(crate) fn record(keys: &[u64]) -> AccessRecord {
    let mut recorder = Recorder::new();
    for (n, &key) in keys.iter().enumerate() {
        recorder.access(key, n as u64, Nanos(n as u64)).unwrap();
    }
    recorder.finish(keys.len() as u64).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_knows_the_one_before_to_its_block() {
        let keys: Vec<u64> = (0..5000).map(|n| n * n % 71).collect();
        let record = record(&keys);
        for at in 0..keys.len() {
            let before = keys[..at].iter().rposition(|&k| k == keys[at]);
            assert_eq!(record.previous(at as u64), before.map(|p| p as u64), "access {at}");
        }
        assert_eq!(record.together(64..640), 576);
        assert_eq!(record.time(64..128), Nanos(64)..Nanos(128));
        assert_eq!(record.time(0..5000), Nanos(0)..Nanos(4999));
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
