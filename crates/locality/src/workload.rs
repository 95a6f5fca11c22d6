//! From requests to histograms: splits requests into blocks, and measures all volumes together,
//! each volume alone, or both.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request, RequestColumns, Volume};

use crate::{
    BlockKeys, Distance, LocalityError, RequestDistances, ReuseDistances, ReuseHistogram, Sampling,
    keys::REGION_BITS,
};

/// Number of block accesses collected before they are measured together.
const BATCH: usize = 1024;
/// Number of requests that are processed together.
const GROUP: usize = 64;

/// Which volumes share a cache, and so a histogram.
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

/// Options of the measurement of a workload.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LocalityOptions {
    /// Requests are split into blocks of this size.
    pub block_size: BlockSize,
    /// The kind of reuse distance.
    pub distance: Distance,
    /// Which blocks are measured; with [`Scope::PerVolume`], a maximum number of blocks applies to
    /// each volume.
    pub sampling: Sampling,
    /// Which volumes share a histogram.
    pub scope: Scope,
    /// Count requests, not blocks: a request hits if all its blocks do ([`RequestDistances`]).
    pub request_level: bool,
    /// Blocks enter the cache only at multiples of this period, counted from time 0, and not when
    /// they are accessed ([`RequestDistances`]).
    pub migration_period: Option<Nanos>,
}

/// The histograms of a workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorkloadHistograms {
    /// The histogram of all volumes together; `None` with [`Scope::PerVolume`].
    pub all: Option<ReuseHistogram>,
    /// The histogram of each volume alone; empty with [`Scope::Together`].
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
    /// The time of the next migration.
    migration: Option<Nanos>,
}

impl WorkloadLocality {
    /// Creates an empty measurement.
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

    /// Measures one request: an access to each block that it touches, with the operation of the
    /// request. Trims and flushes do not count as accesses and change nothing.
    ///
    /// # Errors
    /// If the workload touches more blocks than can be ordered; the measurements so far are kept.
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

    /// Measures many requests, like [`WorkloadLocality::add`] for each in turn, but faster where
    /// requests access one block each.
    ///
    /// # Errors
    /// As [`WorkloadLocality::add`].
    ///
    /// # Panics
    /// If the columns differ in length.
    pub fn add_columns(&mut self, requests: &RequestColumns<'_>) -> Result<(), LocalityError> {
        let count = requests.offset.len();
        for start in (0..count).step_by(GROUP) {
            let group = start..count.min(start + GROUP);
            if !self.add_group(requests, group.clone())? {
                group.into_iter().try_for_each(|i| self.add(&requests.request(i)))?;
            }
        }
        Ok(())
    }

    /// Measures a group of requests if each accesses one block and all are in one region. Returns
    /// whether it did; if not, nothing was measured.
    fn add_group(
        &mut self,
        requests: &RequestColumns<'_>,
        group: Range<usize>,
    ) -> Result<bool, LocalityError> {
        let by_block = self.options.scope == Scope::Together
            && matches!(&self.all, Some(all) if matches!(all.distances, Distances::Blocks(_)));
        let Some(all) = self.all.as_mut().filter(|_| by_block) else { return Ok(false) };
        let (volumes, ops) = (&requests.volume[group.clone()], &requests.op[group.clone()]);
        let (offsets, lengths) = (&requests.offset[group.clone()], &requests.length[group]);
        let (size, volume) = (self.options.block_size, volumes[0]);
        let block = size.index_of(offsets[0]);
        // No bit is set if all are alike. The loop has no branches, so that many are checked at a
        // time.
        let mut unlike = 0;
        for (&offset, &length) in offsets.iter().zip(lengths) {
            let last = length.wrapping_sub(1);
            let one_block = size.index_of(size.within(offset).wrapping_add(last) | last).0;
            unlike |= one_block | (size.index_of(offset).0 ^ block.0) >> REGION_BITS;
        }
        let elsewhere = volumes.iter().fold(0, |bits, &v| bits | (v ^ volume));
        let none = ops.iter().fold(false, |any, &op| any | matches!(op, Op::Trim | Op::Flush));
        if unlike != 0 || elsewhere != 0 || none {
            return Ok(false);
        }
        let key = self.keys.key(BlockAddr { volume: Volume(volume), block })?;
        // Keys and block numbers differ by the same amount throughout a region.
        let apart = key.wrapping_sub(block.0);
        let room = offsets.len().min(BATCH - all.keys.len());
        for part in [0..room, room..offsets.len()] {
            let offsets = offsets[part.clone()].iter();
            all.keys.extend(offsets.map(|&offset| size.index_of(offset).0.wrapping_add(apart)));
            all.ops.extend_from_slice(&ops[part]);
            if all.keys.len() == BATCH {
                all.measure()?;
            }
        }
        Ok(true)
    }

    /// Migrates blocks, for the last multiple of the period up to `now`, and sets the next
    /// migration.
    #[cold]
    fn migrate(&mut self, now: Nanos) -> Result<(), LocalityError> {
        for batched in self.all.iter_mut().chain(self.volumes.values_mut()) {
            batched.migrate()?;
        }
        let next = |period: Nanos| Nanos((now.0 / period.0 + 1).saturating_mul(period.0));
        self.migration = self.options.migration_period.map(next);
        Ok(())
    }

    /// Returns the histograms of all requests added.
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

/// A measurement of distances, and the batch to be measured next.
#[derive(Clone, Debug)]
struct Batched {
    distances: Distances,
    keys: Vec<u64>,
    ops: Vec<Op>,
}

#[derive(Clone, Debug)]
enum Distances {
    Blocks(ReuseDistances),
    /// Distances by request, and the number of blocks of each request in the batch.
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
    use proptest::prelude::*;

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

    /// Requests, most of which access one block each; a few access none, several, or one far away.
    fn columns() -> impl Strategy<Value = Vec<Request>> {
        let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::WriteZeroes)];
        let any_op = prop_oneof![op.clone(), Just(Op::Trim), Just(Op::Flush)];
        let (block, within) =
            (0..3000u64, prop_oneof![Just((0u64, 4096u64)), (0..2048u64, 1..2048u64)]);
        let plain = (op, block, within)
            .prop_map(|(op, block, (start, length))| request(0, op, (block << 12) + start, length));
        let offset = prop_oneof![
            0..1u64 << 24,
            (0..9u64).prop_map(|block| block << 44),
            Just(u64::MAX - 4095),
            Just(u64::MAX)
        ];
        let odd = (0..4u32, any_op, offset, prop_oneof![Just(0u64), Just(4096), 0..40_000u64])
            .prop_map(|(volume, op, offset, length)| request(volume, op, offset, length));
        let some = prop::collection::vec(prop_oneof![150 => plain, 1 => odd], 1..4000);
        (some, 1..3usize).prop_map(|(requests, times)| requests.repeat(times))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn requests_in_columns_measure_as_they_do_one_by_one(
            requests in columns(), parts in 1..300usize, scope in 0..6usize, request_level: bool,
            distance in 0..Distance::ALL.len(), sampling in 0..6usize,
        ) {
            let sampling = [
                Sampling::All, Sampling::Rate(0.1), Sampling::Rate(1.0), Sampling::MaxBlocks(256),
                Sampling::MaxBlocks(300), Sampling::MaxBlocks(900),
            ][sampling];
            let options = LocalityOptions {
                scope: [Scope::PerVolume, Scope::Both].get(scope).copied().unwrap_or_default(),
                request_level: request_level && sampling == Sampling::All,
                distance: Distance::ALL[distance],
                sampling,
                ..LocalityOptions::default()
            };
            let mut one_by_one = WorkloadLocality::new(options).unwrap();
            requests.iter().for_each(|r| one_by_one.add(r).unwrap());
            let mut in_columns = WorkloadLocality::new(options).unwrap();
            for part in requests.chunks(parts) {
                in_columns.add_columns(&RequestColumns {
                    time_ns: &vec![0; part.len()],
                    volume: &part.iter().map(|r| r.volume.0).collect::<Vec<_>>(),
                    op: &part.iter().map(|r| r.op).collect::<Vec<_>>(),
                    flags: &vec![Flags::NONE; part.len()],
                    offset: &part.iter().map(|r| r.offset).collect::<Vec<_>>(),
                    length: &part.iter().map(|r| r.length).collect::<Vec<_>>(),
                }).unwrap();
            }
            prop_assert_eq!(in_columns.finish().unwrap(), one_by_one.finish().unwrap());
        }
    }

    #[test]
    fn a_request_at_the_end_of_the_address_space_is_measured() {
        let last = request(u32::MAX, Op::Read, u64::MAX - 100, 4096);
        let histogram = measure(Scope::Both, &[last, last]).all.unwrap();
        assert_eq!((histogram.accesses(), histogram.max_distance()), (2, Some(0)));
    }
}
