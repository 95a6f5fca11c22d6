//! From requests to histograms: splitting into blocks, all volumes together and each by itself.

use std::collections::BTreeMap;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Op, Request, Volume};

use crate::{BlockKeys, Distance, LocalityError, ReuseDistances, ReuseHistogram, Sampling};

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
}

impl WorkloadLocality {
    /// Nothing measured yet.
    ///
    /// # Errors
    /// If the sampling rate or bound is out of range.
    pub fn new(options: LocalityOptions) -> Result<Self, LocalityError> {
        let all = Batched::new(&options)?;
        let all = (options.scope != Scope::PerVolume).then_some(all);
        Ok(Self { options, keys: BlockKeys::new(), all, volumes: BTreeMap::new() })
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
        let size = self.options.block_size;
        let first = size.index_of(request.offset).0;
        let last = size.index_of(request.offset.saturating_add(request.length - 1)).0;
        let (keys, volume, op) = (&mut self.keys, request.volume, request.op);
        let mut split = |batched: &mut Batched| -> Result<(), LocalityError> {
            for block in first..=last {
                let addr = BlockAddr { volume, block: BlockIndex(block) };
                batched.access(keys.key(addr)?, op)?;
            }
            Ok(())
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
    distances: ReuseDistances,
    keys: Vec<u64>,
    ops: Vec<Op>,
}

impl Batched {
    fn new(options: &LocalityOptions) -> Result<Self, LocalityError> {
        let distances = ReuseDistances::sampled(options.distance, options.sampling)?;
        Ok(Self { distances, keys: Vec::new(), ops: Vec::new() })
    }

    #[inline]
    fn access(&mut self, key: u64, op: Op) -> Result<(), LocalityError> {
        self.keys.push(key);
        self.ops.push(op);
        if self.keys.len() == BATCH { self.measure() } else { Ok(()) }
    }

    fn measure(&mut self) -> Result<(), LocalityError> {
        let done = self.distances.access_batch(&self.keys, &self.ops);
        self.keys.clear();
        self.ops.clear();
        done
    }

    fn memory_bytes(&self) -> u64 {
        let batch = self.keys.capacity() * size_of::<u64>() + self.ops.capacity();
        self.distances.memory_bytes() + batch as u64
    }

    fn finish(mut self) -> Result<ReuseHistogram, LocalityError> {
        self.measure()?;
        Ok(self.distances.into_histogram())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Nanos};

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
    fn a_request_at_the_end_of_the_address_space_is_measured() {
        let last = request(u32::MAX, Op::Read, u64::MAX - 100, 4096);
        let histogram = measure(Scope::Both, &[last, last]).all.unwrap();
        assert_eq!((histogram.accesses(), histogram.max_distance()), (2, Some(0)));
    }
}
