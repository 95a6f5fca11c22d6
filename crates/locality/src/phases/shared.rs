//! Records workloads that share a cache: each alone, and all together.

use core::ops::Range;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request};

use super::packed::Packed;
use super::record::{AccessRecord, Recorder};
use super::reuse::{PhaseReuse, Tally};
use crate::{BlockKeys, LocalityError};

/// Records the accesses of one or more workloads, in order of time.
///
/// Reads, writes and write-zeroes requests are accesses alike, as in an LRU cache that keeps blocks
/// that are read or written.
#[derive(Clone, Debug)]
pub struct SharedRecorder {
    block_size: BlockSize,
    migration_period: Option<Nanos>,
    /// The time of the next migration.
    migration: Option<Nanos>,
    keys: BlockKeys,
    workloads: Vec<Recorder>,
    all: Together,
    owners: Packed,
}

/// The recorder of all workloads in one cache.
#[derive(Clone, Debug)]
enum Together {
    /// None yet: only this workload has accessed anything so far, so its own recorder serves both.
    One(usize),
    Several(Box<Recorder>),
}

/// The records of workloads, each alone and all together.
#[derive(Clone, Debug, Default)]
pub struct SharedRecord {
    /// The record of each workload, with a cache of its own.
    pub workloads: Vec<AccessRecord>,
    /// The record of all workloads in one cache; `None` if at most one has accessed anything.
    all: Option<AccessRecord>,
    /// The number of the workload that made each access.
    owners: Packed,
}

impl SharedRecorder {
    /// Creates a recorder of `workloads` workloads, whose requests are split into blocks of
    /// `block_size`. With a migration period, blocks enter the cache only at multiples of the
    /// period, counted from time 0, and not when they are accessed ([`crate::RequestDistances`]).
    ///
    /// # Errors
    /// If there are more than 65,536 workloads, or the period is 0.
    pub fn new(
        workloads: usize,
        block_size: BlockSize,
        migration_period: Option<Nanos>,
    ) -> Result<Self, LocalityError> {
        if migration_period == Some(Nanos(0)) {
            return Err(LocalityError::NoMigrationPeriod);
        }
        let mut recorder = Self {
            block_size,
            migration_period,
            migration: migration_period,
            keys: BlockKeys::new(),
            workloads: Vec::new(),
            all: Together::One(0),
            owners: Packed::default(),
        };
        (0..workloads).try_for_each(|_| recorder.add_workload().map(drop))?;
        Ok(recorder)
    }

    /// Adds a workload and returns its number.
    ///
    /// # Errors
    /// If there are 65,536 workloads already.
    pub fn add_workload(&mut self) -> Result<usize, LocalityError> {
        let number = self.workloads.len();
        if number > usize::from(u16::MAX) {
            return Err(LocalityError::TooManyWorkloads);
        }
        self.workloads.push(Recorder::new(self.migration_period.is_some()));
        Ok(number)
    }

    /// Number of workloads.
    pub fn workloads(&self) -> usize {
        self.workloads.len()
    }

    /// Adds a request of workload number `workload`: an access to each block that it touches. Trims
    /// and flushes do not count as accesses and change nothing.
    ///
    /// # Errors
    /// If there are more blocks or accesses than can be numbered; what was recorded is kept.
    ///
    /// # Panics
    /// If there is no such workload.
    pub fn add(&mut self, workload: usize, request: &Request) -> Result<(), LocalityError> {
        if !matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes) || request.length == 0 {
            return Ok(());
        }
        if self.migration.is_some_and(|at| request.time >= at) {
            self.migrate(request.time)?;
        }
        self.meets(workload);
        let first = self.block_size.index_of(request.offset).0;
        let end = request.offset.saturating_add(request.length - 1);
        for block in first..=self.block_size.index_of(end).0 {
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(block) };
            let key = self.keys.key(addr)?;
            let together = self.owners.len();
            if let Together::Several(all) = &mut self.all {
                all.access(key, together, request.time)?;
            }
            self.workloads[workload].access(key, together, request.time)?;
            self.owners.push(workload as u32);
        }
        Ok(())
    }

    /// Starts the record of all workloads together when a second one accesses its first block. The
    /// first has had the cache to itself so far, so its recorder is copied.
    fn meets(&mut self, workload: usize) {
        let Together::One(only) = self.all else { return };
        if self.owners.len() == 0 {
            self.all = Together::One(workload);
        } else if only != workload {
            self.all = Together::Several(Box::new(self.workloads[only].clone()));
        }
    }

    /// Migrates blocks, for the last multiple of the period up to `now`, and sets the next
    /// migration.
    #[cold]
    fn migrate(&mut self, now: Nanos) -> Result<(), LocalityError> {
        if let Together::Several(all) = &mut self.all {
            all.migrate()?;
        }
        self.workloads.iter_mut().try_for_each(Recorder::migrate)?;
        let next = |period: Nanos| Nanos((now.0 / period.0 + 1).saturating_mul(period.0));
        self.migration = self.migration_period.map(next);
        Ok(())
    }

    /// Returns the records.
    ///
    /// # Errors
    /// As [`SharedRecorder::add`].
    pub fn finish(self) -> Result<SharedRecord, LocalityError> {
        let all = self.owners.len();
        let workloads = self.workloads.into_iter().map(|w| w.finish(all));
        Ok(SharedRecord {
            workloads: workloads.collect::<Result<_, _>>()?,
            all: match self.all {
                Together::One(_) => None,
                Together::Several(together) => Some(together.finish(all)?),
            },
            owners: self.owners,
        })
    }
}

impl SharedRecord {
    /// Number of accesses.
    pub fn accesses(&self) -> u64 {
        self.owners.len()
    }

    /// Returns the record of all workloads in one cache; `None` if at most one has accessed
    /// anything and so has the cache to itself.
    pub fn all(&self) -> Option<&AccessRecord> {
        self.all.as_ref()
    }

    /// Returns, for each workload, the hits of a span of its accesses in a cache that all workloads
    /// have shared since the start of the record. The result counts the workload's own accesses and
    /// hits only.
    ///
    /// # Panics
    /// Unless there are as many spans as workloads.
    pub fn shared(&self, spans: &[Range<u64>]) -> Vec<PhaseReuse> {
        assert_eq!(spans.len(), self.workloads.len(), "a span for each workload");
        let mut positions = vec![0; spans.len()];
        let mut tallies: Vec<Tally> = spans.iter().map(|_| Tally::default()).collect();
        let only = || self.workloads.iter().max_by_key(|workload| workload.accesses());
        let Some(all) = self.all.as_ref().or_else(only) else { return Vec::new() };
        let each = 0..self.accesses();
        for (reuse, owner) in all.judged(each.clone()).zip(self.owners.iter(each)) {
            let owner = owner as usize;
            if spans[owner].contains(&positions[owner]) {
                tallies[owner].add(reuse);
            }
            positions[owner] += 1;
        }
        let accesses = spans.iter().map(|span| span.end - span.start);
        accesses.zip(tallies).map(|(n, tally)| PhaseReuse::of_hits(n, tally)).collect()
    }

    /// Returns the hits of a span of a workload's accesses in a cache that it has had to itself
    /// since the start of the record.
    pub fn alone(&self, workload: usize, span: Range<u64>) -> PhaseReuse {
        let mut tally = Tally::default();
        self.workloads[workload].judged(span.clone()).for_each(|reuse| tally.add(reuse));
        PhaseReuse::of_hits(span.end - span.start, tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Volume};

    fn request(time: u64, volume: u32, block: u64, blocks: u64) -> Request {
        Request {
            time: Nanos(time),
            volume: Volume(volume),
            op: if block.is_multiple_of(3) { Op::Write } else { Op::Read },
            flags: Flags::NONE,
            offset: block * 4096,
            length: blocks * 4096,
        }
    }

    /// An LRU cache: its blocks, most recent first.
    #[derive(Default)]
    struct Lru(Vec<(u32, u64)>);

    impl Lru {
        fn hits(&mut self, key: (u32, u64), size: usize) -> u64 {
            let at = self.0.iter().position(|&k| k == key);
            at.map(|at| self.0.remove(at));
            self.0.insert(0, key);
            self.0.truncate(size);
            u64::from(at.is_some())
        }
    }

    #[test]
    fn hits_alone_and_shared_equal_those_of_lru_caches() {
        let requests: Vec<Request> = (0..4000u64)
            .map(|n| request(n, (n % 3 / 2) as u32, n * n % 97 * (1 + n % 5), 1 + n % 3))
            .collect();
        let mut recorder = SharedRecorder::new(2, BlockSize::KIB_4, None).unwrap();
        requests.iter().for_each(|r| recorder.add(r.volume.0 as usize, r).unwrap());
        let record = recorder.finish().unwrap();
        let all = record.accesses();
        assert_eq!(record.workloads.iter().map(AccessRecord::accesses).sum::<u64>(), all);
        for size in [1, 5, 40, 200] {
            let (mut shared, mut alone) = (Lru::default(), [Lru::default(), Lru::default()]);
            let mut hits = [[0; 2]; 2];
            for r in &requests {
                let volume = r.volume.0 as usize;
                for block in r.offset / 4096..(r.offset + r.length) / 4096 {
                    hits[volume][0] += shared.hits((r.volume.0, block), size);
                    hits[volume][1] += alone[volume].hits((r.volume.0, block), size);
                }
            }
            let spans: Vec<_> = record.workloads.iter().map(|w| 0..w.accesses()).collect();
            for (volume, shared) in record.shared(&spans).iter().enumerate() {
                let (size, own) = (size as u64, record.alone(volume, spans[volume].clone()));
                assert_eq!([shared.hits(size), own.hits(size)], hits[volume]);
            }
        }
        assert_eq!(record.workloads[1].together(0..record.workloads[1].accesses()), all);
    }

    #[test]
    fn a_span_of_a_workload_is_found_among_all() {
        let mut recorder = SharedRecorder::new(2, BlockSize::KIB_4, None).unwrap();
        for n in 0..100 {
            recorder.add(0, &request(n, 0, n % 5, 1)).unwrap();
            recorder.add(1, &request(n, 1, n, 1)).unwrap();
        }
        let record = recorder.finish().unwrap();
        assert_eq!(record.workloads[0].together(0..64), 128);
        assert_eq!(record.workloads[0].together(0..100), 200);
        // Each block of the loop is reused after four other blocks of the loop and five of the
        // scan.
        let shared = &record.shared(&[50..100, 0..0])[0];
        assert_eq!((shared.accesses, shared.hits(9), shared.hits(10)), (50, 0, 50));
        assert_eq!(record.alone(0, 50..100).hits(5), 50);
    }

    #[test]
    fn blocks_move_in_at_whole_periods_only() {
        let mut recorder = SharedRecorder::new(1, BlockSize::KIB_4, Some(Nanos(100))).unwrap();
        for (time, block) in [(0, 1), (99, 1), (100, 1), (150, 2), (199, 2), (730, 2), (731, 1)] {
            recorder.add(0, &request(time, 0, block, 1)).unwrap();
        }
        let record = recorder.finish().unwrap();
        let all = 0..7;
        let shared = record.shared(std::slice::from_ref(&all));
        for hits in [&record.alone(0, all), &shared[0]] {
            assert_eq!((hits.hits(1), hits.hits(2)), (2, 3));
        }
        let none = SharedRecorder::new(1, BlockSize::KIB_4, Some(Nanos(0)));
        assert!(matches!(none, Err(LocalityError::NoMigrationPeriod)));
    }

    #[test]
    fn a_workload_that_comes_late_finds_in_the_cache_what_others_left() {
        // Without migration, and with a migration period of 1000 ns.
        for period in [None, Some(Nanos(1000))] {
            let requests: Vec<Request> = (0..9000u64)
                .map(|n| request(n, u32::from(n > 5000 && n % 3 == 0), n * n % 97, 1 + n % 3))
                .collect();
            let mut late = SharedRecorder::new(2, BlockSize::KIB_4, period).unwrap();
            // Records all requests as those of a single workload.
            let mut one = SharedRecorder::new(1, BlockSize::KIB_4, period).unwrap();
            for r in &requests {
                late.add(r.volume.0 as usize, r).unwrap();
                one.add(0, r).unwrap();
            }
            let (late, one) = (late.finish().unwrap(), one.finish().unwrap());
            let (all, alone) = (late.all().unwrap(), &one.workloads[0]);
            assert!(one.all().is_none());
            let each = 0..one.accesses();
            assert!(all.each(each.clone()).eq(alone.each(each.clone())));
            assert_eq!(one.shared(std::slice::from_ref(&each)), [one.alone(0, each)]);
        }
    }

    #[test]
    fn operations_without_data_are_no_accesses() {
        let mut recorder = SharedRecorder::new(1, BlockSize::KIB_4, None).unwrap();
        for op in [Op::Trim, Op::Flush] {
            recorder.add(0, &Request { op, ..request(0, 0, 0, 1) }).unwrap();
        }
        recorder.add(0, &Request { length: 0, ..request(0, 0, 0, 1) }).unwrap();
        assert_eq!(recorder.finish().unwrap().accesses(), 0);
    }
}
