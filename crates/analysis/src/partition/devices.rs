//! Devices alone: the latencies of a volume's own requests on each of them, without any cache.
//!
//! The first plan uses these. Latencies are those of one request after another. Requests per second
//! are those with many requests in flight, whose order and sizes make a sequential reader of a disk
//! fast and a random one slow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_block::{Nanos, Op, Request};
use forebay_model::{Access, Model, Profile};
use forebay_plan::WritePolicy;
use forebay_plan::partition::{ByPlace, VolumeModel};
use forebay_simulate::Memory;

use super::Question;
use super::volumes::{Known, KnownVolume};
use crate::AnalysisError;

/// Number of requests in flight for measuring requests per second, as in Koller (2012), section
/// 5.5.1.
pub const QUEUE_DEPTH: u32 = 32;
/// Requests per second of a device without latency.
const IOPS_MAX: f64 = 1e9;

/// The devices, by their names in [`Profile::NAMES`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Devices {
    /// The memory; `None`: memory adds no latency.
    pub memory: Option<String>,
    /// The flash device, shared by all volumes.
    pub flash: String,
    /// The device of each volume's backing store.
    pub backing: String,
}

/// The performance of the devices.
#[derive(Debug)]
pub(super) struct Profiles {
    pub memory: Memory,
    pub flash: Profile,
    pub backing: Profile,
}

impl Devices {
    pub(super) fn profiles(&self) -> Result<Profiles, AnalysisError> {
        let named = |name: &String| {
            Profile::named(name).ok_or_else(|| AnalysisError::NoDevice(name.clone()))
        };
        let memory = self.memory.as_ref().map(named).transpose()?;
        Ok(Profiles {
            memory: memory.map_or_else(Memory::default, |profile| Memory::from(&profile)),
            flash: named(&self.flash)?,
            backing: named(&self.backing)?,
        })
    }
}

impl Profiles {
    /// Mean time to read or to write `length` bytes in memory, in nanoseconds.
    fn copy(&self, op: Op, length: u64) -> f64 {
        let of_4k = if op == Op::Read { self.memory.read } else { self.memory.write };
        of_4k.0 as f64 * length as f64 / 4096.0
    }
}

/// Every volume on every device, without a cache.
pub(super) struct Alone<'a> {
    profiles: &'a Profiles,
    known: &'a Known,
    write_back: bool,
    /// Whether the cache has memory. If so, hits are served from memory, and writes are
    /// acknowledged there.
    has_dram: bool,
    has_flash: bool,
    volumes: Vec<Load>,
}

struct Load {
    memory: Sums,
    flash: [Stream; 2],
    backing: [Stream; 2],
}

/// Nanoseconds and numbers of requests, each for reads and writes.
#[derive(Clone, Copy, Default)]
struct Sums {
    ns: [f64; 2],
    count: [f64; 2],
}

impl Sums {
    fn add(&mut self, op: Op, ns: f64) {
        let at = usize::from(op != Op::Read);
        self.ns[at] += ns;
        self.count[at] += 1.0;
    }

    /// Mean latency of reads and of writes, in microseconds; 0 without such requests.
    fn mean_us(&self) -> [f64; 2] {
        [0, 1].map(|at| if self.count[at] > 0.0 { self.ns[at] / self.count[at] / 1e3 } else { 0.0 })
    }
}

/// One device that serves a constant number of requests in flight.
struct Stream {
    model: Model,
    depth: usize,
    in_flight: BinaryHeap<Reverse<u64>>,
    now: u64,
    end: u64,
    sums: Sums,
}

impl Stream {
    fn new(profile: &Profile, capacity: u64, depth: u32, seed: u64) -> Self {
        Self {
            model: Model::new(profile, capacity, seed),
            depth: depth as usize,
            in_flight: BinaryHeap::new(),
            now: 0,
            end: 0,
            sums: Sums::default(),
        }
    }

    fn add(&mut self, request: &Request) {
        if self.in_flight.len() == self.depth
            && let Some(Reverse(ended)) = self.in_flight.pop()
        {
            self.now = self.now.max(ended);
        }
        let Request { op, offset, length, .. } = *request;
        let Nanos(at) = self.model.complete(Nanos(self.now), Access { op, offset, length });
        self.in_flight.push(Reverse(at));
        self.end = self.end.max(at);
        self.sums.add(op, (at - self.now) as f64);
    }

    fn iops(&self) -> f64 {
        let count = self.sums.count[0] + self.sums.count[1];
        if self.end == 0 { IOPS_MAX } else { (count * 1e9 / self.end as f64).min(IOPS_MAX) }
    }
}

impl<'a> Alone<'a> {
    pub fn new(question: &Question, profiles: &'a Profiles, known: &'a Known) -> Self {
        let (depth, seed) = (question.queue_depth.unwrap_or(QUEUE_DEPTH), question.seed);
        let load = |(at, volume): (usize, &KnownVolume)| {
            let streams = |profile: &Profile, capacity: u64| {
                [1, depth].map(|depth| Stream::new(profile, capacity, depth, seed ^ at as u64))
            };
            Load {
                memory: Sums::default(),
                flash: streams(&profiles.flash, question.sizes.flash_bytes.max(1)),
                backing: streams(&profiles.backing, volume.bytes),
            }
        };
        Self {
            profiles,
            known,
            write_back: question.policy == WritePolicy::WriteBack,
            has_dram: question.sizes.dram_bytes > 0,
            has_flash: question.sizes.flash_bytes > 0,
            volumes: known.volumes.iter().enumerate().map(load).collect(),
        }
    }

    /// Times one request on every device.
    pub fn add(&mut self, request: &Request) {
        let moves = matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes);
        let Some(volume) = self.known.index(request.volume).filter(|_| moves && request.length > 0)
        else {
            return;
        };
        let load = &mut self.volumes[volume];
        load.memory.add(request.op, self.profiles.copy(request.op, request.length));
        let streams = load.flash.iter_mut().chain(&mut load.backing);
        streams.for_each(|stream| stream.add(request));
    }

    /// The model of each volume.
    pub fn models(&self) -> Vec<VolumeModel> {
        self.volumes.iter().map(|load| self.model(load)).collect()
    }

    fn model(&self, load: &Load) -> VolumeModel {
        let [[memory_read, memory_write], [flash_read, flash_write], [read, write]] =
            [load.memory, load.flash[0].sums, load.backing[0].sums].map(|sums| sums.mean_us());
        let acknowledged = if self.has_dram { memory_write } else { flash_write };
        let memory_iops = {
            let ns = load.memory.ns[0] + load.memory.ns[1];
            let count = load.memory.count[0] + load.memory.count[1];
            if ns > 0.0 { (count * 1e9 / ns).min(IOPS_MAX) } else { IOPS_MAX }
        };
        VolumeModel {
            read: ByPlace { dram: memory_read, flash: flash_read, miss: read },
            write: ByPlace::all(if self.write_back { acknowledged } else { write }),
            write_uncached: write,
            iops_backing: load.backing[1].iops(),
            iops_cache: if self.has_flash { load.flash[1].iops() } else { memory_iops },
            writes_through: !self.write_back,
            measured: Vec::new(),
        }
    }
}
