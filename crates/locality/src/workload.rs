//! From requests to histograms: splitting into blocks, all volumes together and each by itself.

use std::collections::BTreeMap;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request, Volume};

use crate::{
    BlockKeys, Distance, LocalityError, RequestDistances, ReuseDistances, ReuseHistogram, Sampling,
};

/// Block accesses collected before they are measured together.
const BATCH: usize = 1024;

/// What shares a cache, and so a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// All volumes share one cache.
    #[default]
    Together,
    /// Every volume has a cache of its own.
    PerVolume,
    /// Both are measured, at twice the time and memory.
    Both,
}

/// How to measure a workload.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LocalityOptions {
    /// Requests are split into blocks of this size.
    pub block_size: BlockSize,
    /// The kind of reuse distance.
    pub distance: Distance,
    /// Which blocks are looked at; with [`Scope::PerVolume`], a bound is one per volume.
    pub sampling: Sampling,
    /// What shares a histogram.
    pub scope: Scope,
    /// Count requests, not blocks: one hits if all its blocks do ([`RequestDistances`]).
    pub request_level: bool,
    /// Blocks move into the cache only every so often, counted from time 0, and not when they are
    /// accessed ([`RequestDistances`]).
    pub migration_period: Option<Nanos>,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorkloadHistograms {
    /// All volumes together; `None` with [`Scope::PerVolume`].
    pub all: Option<ReuseHistogram>,
    /// Each volume by itself; empty with [`Scope::Together`].
    pub volumes: BTreeMap<Volume, ReuseHistogram>,
}

/// Measures the locality of a stream of requests.
///
/// ```
/// use forebay_block::{Flags, Nanos, Op, Request, Volume};
/// use forebay_locality::{LocalityOptions, WorkloadLocality};
/// let mut workload = WorkloadLocality::new(LocalityOptions::default()).unwrap();
/// let read = Request { time: Nanos(0), volume: Volume(0), op: Op::Read, flags: Flags::NONE,
///                      offset: 0, length: 16384 };
/// workload.add(&read).unwrap();
/// workload.add(&read).unwrap();
/// let histogram = workload.finish().unwrap().all.unwrap();
/// assert_eq!(histogram.accesses(), 8);
/// assert_eq!((histogram.hits(Op::Read, 3), histogram.hits(Op::Read, 4)), (0, 4));
/// ```
#[derive(Clone, Debug)]
pub struct WorkloadLocality {
    options: LocalityOptions,
    keys: BlockKeys,
    all: Option<Batched>,
    volumes: BTreeMap<Volume, Batched>,
    /// When blocks move next.
    migration: Option<Nanos>,
}

impl WorkloadLocality {
    /// Nothing measured yet.
    ///
    /// # Errors
    /// If the sampling rate or bound is out of range, or the options exclude each other.
    pub fn new(options: LocalityOptions) -> Result<Self, LocalityError> {
        let all = Batched::new(&options)?;
        let all = (options.scope != Scope::PerVolume).then_some(all);
        let (keys, volumes, migration) =
            (BlockKeys::new(), BTreeMap::new(), options.migration_period);
        if migration == Some(Nanos(0)) {
            return Err(LocalityError::NoMigrationPeriod);
        }
        Ok(Self { options, keys, all, volumes, migration })
    }

    /// Measures one request: an access of its operation to each block that it touches. Trims and
    /// flushes are no accesses and change nothing.
    ///
    /// # Errors
    /// If the workload touches more blocks than can be ordered; what was measured before stays.
    pub fn add(&mut self, request: &Request) -> Result<(), LocalityError> {
        if !matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes) || request.length == 0 {
            return Ok(());
        }
        if self.migration.is_some_and(|at| request.time >= at) {
            self.migrate(request.time)?;
        }
        let size = self.options.block_size;
        let first = size.index_of(request.offset).0;
        let last = size.index_of(request.offset.saturating_add(request.length - 1)).0;
        let (keys, volume, op) = (&mut self.keys, request.volume, request.op);
        let mut split = |batched: &mut Batched| -> Result<(), LocalityError> {
            for block in first..=last {
                let addr = BlockAddr { volume, block: BlockIndex(block) };
                batched.access(keys.key(addr)?, op)?;
            }
            batched.end_request(last - first + 1)
        };
        if let Some(all) = &mut self.all {
            split(all)?;
        }
        if self.options.scope != Scope::Together {
            if !self.volumes.contains_key(&volume) {
                self.volumes.insert(volume, Batched::new(&self.options)?);
            }
            if let Some(own) = self.volumes.get_mut(&volume) {
                split(own)?;
            }
        }
        Ok(())
    }

    /// Moves blocks at the last multiple of the period up to `now`.
    #[cold]
    fn migrate(&mut self, now: Nanos) -> Result<(), LocalityError> {
        for batched in self.all.iter_mut().chain(self.volumes.values_mut()) {
            batched.migrate()?;
        }
        let next = |period: Nanos| Nanos((now.0 / period.0 + 1).saturating_mul(period.0));
        self.migration = self.options.migration_period.map(next);
        Ok(())
    }

    /// Bytes allocated, but for some hundred per volume.
    pub fn memory_bytes(&self) -> u64 {
        self.all.iter().chain(self.volumes.values()).map(Batched::memory_bytes).sum()
    }

    /// The histograms of all requests added.
    ///
    /// # Errors
    /// As [`WorkloadLocality::add`].
    pub fn finish(self) -> Result<WorkloadHistograms, LocalityError> {
        let all = self.all.map(Batched::finish).transpose()?;
        let volumes = self.volumes.into_iter();
        let volumes = volumes.map(|(volume, own)| Ok((volume, own.finish()?)));
        Ok(WorkloadHistograms { all, volumes: volumes.collect::<Result<_, _>>()? })
    }
}

/// Distances with the batch that comes next.
#[derive(Clone, Debug)]
struct Batched {
    distances: Distances,
    keys: Vec<u64>,
    ops: Vec<Op>,
}

#[derive(Clone, Debug)]
enum Distances {
    Blocks(ReuseDistances),
    /// With the number of blocks of each request in the batch.
    Requests(RequestDistances, Vec<u64>),
}

impl Batched {
    fn new(options: &LocalityOptions) -> Result<Self, LocalityError> {
        let by_request = options.request_level || options.migration_period.is_some();
        let distances = match options.sampling {
            sampling if !by_request => {
                Distances::Blocks(ReuseDistances::sampled(options.distance, sampling)?)
            }
            Sampling::All => {
                let mut distances = RequestDistances::new(options.distance);
                distances.set_request_level(options.request_level);
                if options.migration_period.is_some() {
                    distances.migrate();
                }
                Distances::Requests(distances, Vec::new())
            }
            _ => return Err(LocalityError::SampledRequests),
        };
        Ok(Self { distances, keys: Vec::new(), ops: Vec::new() })
    }

    #[inline]
    fn access(&mut self, key: u64, op: Op) -> Result<(), LocalityError> {
        self.keys.push(key);
        self.ops.push(op);
        match self.distances {
            Distances::Blocks(_) if self.keys.len() == BATCH => self.measure(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn end_request(&mut self, blocks: u64) -> Result<(), LocalityError> {
        let Distances::Requests(_, lengths) = &mut self.distances else { return Ok(()) };
        lengths.push(blocks);
        if self.keys.len() >= BATCH { self.measure() } else { Ok(()) }
    }

    fn measure(&mut self) -> Result<(), LocalityError> {
        let done = match &mut self.distances {
            Distances::Blocks(distances) => distances.access_batch(&self.keys, &self.ops),
            Distances::Requests(distances, lengths) => {
                let done = distances.request_batch(&self.keys, &self.ops, lengths);
                lengths.clear();
                done
            }
        };
        self.keys.clear();
        self.ops.clear();
        done
    }

    fn migrate(&mut self) -> Result<(), LocalityError> {
        self.measure()?;
        if let Distances::Requests(distances, _) = &mut self.distances {
            distances.migrate();
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let batch = self.keys.capacity() * size_of::<u64>() + self.ops.capacity();
        let distances = match &self.distances {
            Distances::Blocks(distances) => distances.memory_bytes(),
            Distances::Requests(distances, _) => distances.memory_bytes(),
        };
        distances + batch as u64
    }

    fn finish(mut self) -> Result<ReuseHistogram, LocalityError> {
        self.measure()?;
        Ok(match self.distances {
            Distances::Blocks(distances) => distances.into_histogram(),
            Distances::Requests(distances, _) => distances.into_histogram(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Flags;

    fn request(volume: u32, op: Op, offset: u64, length: u64) -> Request {
        let (time, flags) = (Nanos(0), Flags::NONE);
        Request { time, volume: Volume(volume), op, flags, offset, length }
    }

    fn measure(scope: Scope, requests: &[Request]) -> WorkloadHistograms {
        let options = LocalityOptions { scope, ..Default::default() };
        let mut workload = WorkloadLocality::new(options).unwrap();
        requests.iter().for_each(|r| workload.add(r).unwrap());
        workload.finish().unwrap()
    }

    /// Requests of three volumes to overlapping addresses, some unaligned.
    fn workload() -> Vec<Request> {
        let mut seed = 3u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let op = |n| if n == 0 { Op::Write } else { Op::Read };
        (0..5000)
            .map(|_| request(next(3) as u32, op(next(3)), next(900) * 1024, next(40) * 512))
            .collect()
    }

    #[test]
    fn a_volume_measured_beside_others_equals_the_volume_measured_alone() {
        let requests = workload();
        let together = measure(Scope::Both, &requests);
        assert_eq!(together.volumes.len(), 3);
        for (&volume, histogram) in &together.volumes {
            let own: Vec<Request> =
                requests.iter().copied().filter(|r| r.volume == volume).collect();
            assert_eq!(Some(histogram), measure(Scope::Together, &own).all.as_ref());
        }
        assert_eq!(together.all, measure(Scope::Together, &requests).all);
        assert_eq!(measure(Scope::PerVolume, &requests).all, None);
        let accesses: u64 = together.volumes.values().map(ReuseHistogram::accesses).sum();
        assert_eq!(accesses, together.all.unwrap().accesses());
    }

    #[test]
    fn the_same_block_number_of_two_volumes_is_two_blocks() {
        let read = |volume| request(volume, Op::Read, 0, 4096);
        let histogram = measure(Scope::Together, &[read(0), read(1), read(0)]).all.unwrap();
        assert_eq!((histogram.distinct_blocks, histogram.max_distance()), (2, Some(1)));
    }

    #[test]
    fn trims_flushes_and_empty_requests_are_no_accesses() {
        let histogram = measure(
            Scope::Both,
            &[
                request(0, Op::Write, 0, 4096),
                request(0, Op::Trim, 0, u64::MAX),
                request(0, Op::Flush, 0, 0),
                request(0, Op::Read, 0, 0),
                request(0, Op::Read, 0, 1),
            ],
        );
        let histogram = histogram.all.unwrap();
        assert_eq!((histogram.accesses(), histogram.hits(Op::Read, 1)), (2, 1));
    }

    #[test]
    fn blocks_move_at_whole_periods_and_only_those_accessed_before() {
        let options =
            LocalityOptions { migration_period: Some(Nanos(100)), ..LocalityOptions::default() };
        let mut workload = WorkloadLocality::new(options).unwrap();
        let mut hits = Vec::new();
        for (time, block) in [(0, 1), (99, 1), (100, 1), (150, 2), (199, 2), (730, 2), (731, 1)] {
            let read = request(0, Op::Read, block << 12, 4096);
            workload.add(&Request { time: Nanos(time), ..read }).unwrap();
            let histogram = workload.clone().finish().unwrap().all.unwrap();
            hits.push((histogram.hits(Op::Read, 1), histogram.hits(Op::Read, 2)));
        }
        assert_eq!(hits, [(0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        let sampled = LocalityOptions { sampling: Sampling::Rate(0.5), ..Default::default() };
        let by_request = LocalityOptions { request_level: true, ..sampled };
        let err = WorkloadLocality::new(by_request).unwrap_err();
        assert_eq!(err, LocalityError::SampledRequests);
        let migration = LocalityOptions { migration_period: Some(Nanos(0)), ..Default::default() };
        let err = WorkloadLocality::new(migration).unwrap_err();
        assert_eq!(err, LocalityError::NoMigrationPeriod);
    }

    #[test]
    fn a_request_at_the_end_of_the_address_space_is_measured() {
        let last = request(u32::MAX, Op::Read, u64::MAX - 100, 4096);
        let histogram = measure(Scope::Both, &[last, last]).all.unwrap();
        assert_eq!((histogram.accesses(), histogram.max_distance()), (2, Some(0)));
    }
}
