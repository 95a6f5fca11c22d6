//! Measures volumes for partitioning: hits by cache size, counted per request.

use std::collections::BTreeMap;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request, Volume};
use forebay_locality::{
    BlockKeys, Distance, HistogramBuilder, LocalityOptions, Reuse, ReuseHistogram, ReuseStack,
    Scope, WorkloadLocality,
};

use crate::error::PlanError;

/// Number of blocks collected before they are measured together.
const BATCH: usize = 1024;

/// How to measure the volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartitionProfileOptions {
    /// Requests are split into blocks of this size.
    pub block_size: BlockSize,
    /// Blocks move into the cache only once per such period (Koller 2012, section 5.3.1). The hits
    /// of a cache that all volumes share are then not measured.
    pub migration_period: Option<Nanos>,
}

/// The hits of one volume by cache size. A request counts once, at its largest distance: it hits
/// only if all its blocks do (Koller 2012, section 5.3.1).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VolumeCurve {
    /// Hits with a cache of the volume's own.
    pub own: ReuseHistogram,
    /// Hits with one LRU cache for all volumes, by the size of that cache; `None` if not measured.
    pub shared: Option<ReuseHistogram>,
}

impl VolumeCurve {
    /// Number of requests: reads and writes.
    pub fn requests(&self) -> u64 {
        self.own.accesses()
    }

    /// The requests, reads and writes, that hit in a cache of the volume's own of `blocks` blocks.
    pub fn hits(&self, blocks: u64) -> u64 {
        hits(&self.own, blocks)
    }

    /// The requests that hit in a cache of `blocks` blocks shared by all volumes; `None` if not
    /// measured.
    pub fn shared_hits(&self, blocks: u64) -> Option<u64> {
        self.shared.as_ref().map(|h| hits(h, blocks))
    }

    /// The smallest cache of the volume's own that has every possible hit, in blocks.
    pub fn useful_blocks(&self) -> u64 {
        self.own.max_distance().map_or(0, |d| d + 1)
    }
}

fn hits(histogram: &ReuseHistogram, blocks: u64) -> u64 {
    histogram.hits(Op::Read, blocks) + histogram.hits(Op::Write, blocks)
}

/// The measurements of all volumes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PartitionProfile {
    /// How it was measured.
    pub options: PartitionProfileOptions,
    /// Volumes that read or write, by number.
    pub volumes: BTreeMap<Volume, VolumeCurve>,
    /// Number of requests of all kinds.
    pub requests: u64,
    /// Time from the first request to the last.
    pub duration: Nanos,
}

/// Collects requests into a [`PartitionProfile`].
///
/// ```
/// use forebay_block::{Flags, Nanos, Op, Request, Volume};
/// use forebay_plan::partition::{PartitionProfileBuilder, PartitionProfileOptions};
/// let mut builder = PartitionProfileBuilder::new(PartitionProfileOptions::default()).unwrap();
/// for volume in [0, 1, 0, 1] {
///     builder.add(&Request { time: Nanos(0), volume: Volume(volume), op: Op::Read,
///                            flags: Flags::NONE, offset: 0, length: 8192 }).unwrap();
/// }
/// let profile = builder.finish().unwrap();
/// let curve = &profile.volumes[&Volume(1)];
/// // One request of two blocks hits once both have room, and room for four if it is shared.
/// assert_eq!((curve.requests(), curve.hits(1), curve.hits(2)), (2, 0, 1));
/// assert_eq!((curve.shared_hits(3), curve.shared_hits(4)), (Some(0), Some(1)));
/// ```
pub struct PartitionProfileBuilder {
    options: PartitionProfileOptions,
    own: WorkloadLocality,
    shared: Option<Shared>,
    requests: u64,
    span: Option<(Nanos, Nanos)>,
}

impl PartitionProfileBuilder {
    /// An empty builder.
    ///
    /// # Errors
    /// If the migration period is 0.
    pub fn new(options: PartitionProfileOptions) -> Result<Self, PlanError> {
        let own = WorkloadLocality::new(LocalityOptions {
            block_size: options.block_size,
            scope: Scope::PerVolume,
            request_level: true,
            migration_period: options.migration_period,
            ..LocalityOptions::default()
        })?;
        let shared = options.migration_period.is_none().then(Shared::new);
        Ok(Self { options, own, shared, requests: 0, span: None })
    }

    /// Measures one request. Writing zeroes is a write; trims, flushes and empty requests access
    /// no block.
    ///
    /// # Errors
    /// If the workload touches more blocks than can be ordered.
    pub fn add(&mut self, request: &Request) -> Result<(), PlanError> {
        self.requests += 1;
        let (first, last) = self.span.unwrap_or((request.time, request.time));
        self.span = Some((first.min(request.time), last.max(request.time)));
        self.own.add(request)?;
        match &mut self.shared {
            Some(shared) => shared.add(request, self.options.block_size),
            None => Ok(()),
        }
    }

    /// The profile of all requests added.
    ///
    /// # Errors
    /// As [`PartitionProfileBuilder::add`].
    pub fn finish(self) -> Result<PartitionProfile, PlanError> {
        let mut shared = self.shared.map(Shared::finish).transpose()?;
        let volumes = self.own.finish()?.volumes.into_iter().map(|(volume, own)| {
            let shared = shared.as_mut().and_then(|s| s.remove(&volume));
            (volume, VolumeCurve { own, shared })
        });
        let (first, last) = self.span.unwrap_or_default();
        Ok(PartitionProfile {
            options: self.options,
            volumes: volumes.collect(),
            requests: self.requests,
            duration: last.saturating_sub(first),
        })
    }
}

/// The LRU stack that all volumes share, with a histogram for each volume.
struct Shared {
    names: BlockKeys,
    stack: ReuseStack,
    volumes: BTreeMap<Volume, HistogramBuilder>,
    keys: Vec<u64>,
    ops: Vec<Op>,
    /// Volume and number of blocks of each request of the batch.
    requests: Vec<(Volume, usize)>,
    reuses: Vec<Reuse>,
}

impl Shared {
    fn new() -> Self {
        Self {
            names: BlockKeys::new(),
            stack: ReuseStack::new(Distance::Trd),
            volumes: BTreeMap::new(),
            keys: Vec::new(),
            ops: Vec::new(),
            requests: Vec::new(),
            reuses: Vec::new(),
        }
    }

    fn add(&mut self, request: &Request, size: BlockSize) -> Result<(), PlanError> {
        let is_access = matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes);
        let (BlockIndex(first), blocks) = request.blocks(size);
        if !is_access || request.length == 0 {
            return Ok(());
        }
        for block in first..first + blocks {
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(block) };
            self.keys.push(self.names.key(addr)?);
            self.ops.push(request.op);
        }
        self.requests.push((request.volume, blocks as usize));
        if self.keys.len() >= BATCH { self.measure() } else { Ok(()) }
    }

    fn measure(&mut self) -> Result<(), PlanError> {
        self.reuses.clear();
        self.stack.access_batch(&self.keys, &self.ops, &mut self.reuses)?;
        let mut at = 0;
        for (volume, blocks) in self.requests.drain(..) {
            // Cold is larger than any distance.
            if let Some(&largest) = self.reuses[at..at + blocks].iter().max() {
                self.volumes.entry(volume).or_default().add(self.ops[at], largest);
            }
            at += blocks;
        }
        self.keys.clear();
        self.ops.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<BTreeMap<Volume, ReuseHistogram>, PlanError> {
        self.measure()?;
        let blocks = self.stack.blocks_known();
        Ok(self.volumes.into_iter().map(|(v, counts)| (v, counts.finish(blocks))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Flags;

    fn request(volume: u32, op: Op, block: u64, blocks: u64) -> Request {
        let (time, flags) = (Nanos(0), Flags::NONE);
        let (offset, length) = (block << 12, blocks << 12);
        Request { time, volume: Volume(volume), op, flags, offset, length }
    }

    fn profile(requests: &[Request]) -> PartitionProfile {
        let mut builder = PartitionProfileBuilder::new(Default::default()).unwrap();
        requests.iter().for_each(|r| builder.add(r).unwrap());
        builder.finish().unwrap()
    }

    /// Requests of three volumes, of one to nine blocks.
    fn workload() -> Vec<Request> {
        let mut seed = 5u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let op = |n| if n == 0 { Op::Write } else { Op::Read };
        (0..4000).map(|_| request(next(3) as u32, op(next(3)), next(200), 1 + next(9))).collect()
    }

    /// A textbook LRU cache for all volumes together; returns hits per request.
    fn lru(requests: &[Request], blocks: usize) -> BTreeMap<u32, u64> {
        let mut list: Vec<(u32, u64)> = Vec::new();
        let mut hits = BTreeMap::new();
        for r in requests {
            let (BlockIndex(first), n) = r.blocks(BlockSize::KIB_4);
            let mut all = true;
            // The blocks of a request are accessed one after another.
            for block in first..first + n {
                let key = (r.volume.0, block);
                match list.iter().position(|&k| k == key) {
                    Some(at) => {
                        all &= at < blocks;
                        list.remove(at);
                    }
                    None => all = false,
                }
                list.insert(0, key);
            }
            *hits.entry(r.volume.0).or_default() += u64::from(all);
        }
        hits
    }

    #[test]
    fn hits_are_those_of_lru_caches_alone_and_shared_by_request() {
        let requests = workload();
        let profile = profile(&requests);
        assert_eq!(profile.volumes.len(), 3);
        for blocks in [1, 8, 64, 300, 700] {
            let shared = lru(&requests, blocks);
            for (volume, curve) in &profile.volumes {
                let own: Vec<Request> =
                    requests.iter().copied().filter(|r| r.volume == *volume).collect();
                assert_eq!(curve.requests(), own.len() as u64);
                assert_eq!(curve.hits(blocks as u64), lru(&own, blocks)[&volume.0]);
                assert_eq!(curve.shared_hits(blocks as u64), Some(shared[&volume.0]));
            }
        }
    }

    #[test]
    fn what_accesses_nothing_is_no_request_of_a_curve() {
        let read = request(0, Op::Read, 1, 1);
        let profile = profile(&[
            read,
            request(0, Op::Trim, 1, 1),
            request(0, Op::Flush, 0, 0),
            request(0, Op::Read, 7, 0),
            request(1, Op::Flush, 0, 0),
            read,
        ]);
        let curve = &profile.volumes[&Volume(0)];
        assert_eq!((profile.requests, profile.volumes.len()), (6, 1));
        assert_eq!((curve.requests(), curve.hits(1), curve.useful_blocks()), (2, 1, 1));
    }

    #[test]
    fn under_migration_only_what_moved_hits_and_sharing_is_not_measured() {
        let options = PartitionProfileOptions {
            migration_period: Some(Nanos(100)),
            ..PartitionProfileOptions::default()
        };
        let mut builder = PartitionProfileBuilder::new(options).unwrap();
        for time in [0, 50, 150] {
            let read = Request { time: Nanos(time), ..request(0, Op::Read, 1, 1) };
            builder.add(&read).unwrap();
        }
        let profile = builder.finish().unwrap();
        let curve = &profile.volumes[&Volume(0)];
        assert_eq!((curve.hits(1), curve.shared_hits(1)), (1, None));
        let none = PartitionProfileOptions { migration_period: Some(Nanos(0)), ..options };
        assert!(PartitionProfileBuilder::new(none).is_err());
    }
}
