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
