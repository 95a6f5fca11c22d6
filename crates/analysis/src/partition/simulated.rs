//! Simulates divisions: a cache for each volume, with its share.
//!
//! The cache has no partitions yet. So each volume gets its own cache, with as many blocks as its
//! as its share holds. With the times of the traces, all caches run side by side on one flash
//! device, where they wait for each other; with a fixed number of requests in flight, each runs
//! alone, because their times are then unrelated. Every volume has its own backing store. The flash
//! tiers use the *slots* layout, whose two tiers hit like one LRU list. Sizes are room for data;
//! what a log needs in addition (its journal, blocks in flight) comes on top.

use std::fmt::Write;
use std::sync::Arc;

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_plan::partition::{ByPlace, Measured, Outcome, Place, Sizes, VolumeModel};
use forebay_plan::{BoxError, WritePolicy};
use forebay_simulate::{
    Defaults, FlashDevice, Options, Pacing, Scenario, Simulation, TracedVolume,
};

use super::Question;
use super::devices::Profiles;
use super::volumes::Known;
use crate::Observer;
use crate::kept::Kept;

/// Blocks that a volume with little or no memory has in memory because they are in flight.
pub const TRANSIT_BLOCKS: u64 = 16;
/// Largest number of blocks of both tiers together; with what comes on top, they must fit in an
/// index.
pub const BLOCKS_MAX: u64 = 1 << 30;
/// A simulated tier has room for at most this multiple of the blocks of its volumes. No block
/// leaves such a tier, and it never fills with dirty blocks, so more room would only cost memory.
const ROOM_TIMES: u64 = 4;
/// Smallest number of batches of the log in a share.
const BATCHES_MIN: u64 = 64;
/// Cells for blocks that are leaving flash, per block of a batch. A block there is still found when
/// it is accessed again, so there are only a few.
const SPARE_CELLS_PER_BLOCK: u64 = 4;
/// Smallest number of such cells, so that a burst of writes to a small share does not wait for
/// them.
const SPARE_CELLS_MIN: u64 = 192;
/// Frames for blocks that move from memory to flash, per block of a batch.
const SPARE_FRAMES_PER_BLOCK: u64 = 8;

/// Simulates divisions, reading the traces again each time.
pub(super) struct Simulator<'a> {
    pub question: &'a Question,
    /// Without a queue depth: the speed of the simulation, as a multiple of the speed of the
    /// traces.
    pub rate: f64,
    pub observer: &'a dyn Observer,
    pub kept: &'a Kept,
    pub known: &'a Known,
    pub profiles: &'a Profiles,
    /// Models of the devices alone, for requests per second that cannot be measured.
    pub models: Vec<VolumeModel>,
}

impl Simulator<'_> {
    /// Simulates every volume with its own cache of these sizes.
    pub fn apart(&self, label: &str, sizes: &[Sizes]) -> Result<Vec<Measured>, BoxError> {
        let caches = sizes.iter().enumerate().map(|(volume, &size)| (vec![volume], size));
        self.run(label, caches.collect())
    }

    /// Simulates one cache for all volumes.
    pub fn shared(&self, label: &str) -> Result<Vec<Measured>, BoxError> {
        self.run(label, vec![((0..self.known.volumes.len()).collect(), self.question.sizes)])
    }

    fn pacing(&self) -> Pacing {
        match self.question.queue_depth {
            Some(queue_depth) => Pacing::ClosedLoop { queue_depth },
            None => Pacing::OpenLoop { rate: self.rate },
        }
    }

    fn run(
        &self,
        label: &str,
        caches: Vec<(Vec<usize>, Sizes)>,
    ) -> Result<Vec<Measured>, BoxError> {
        let pacing = self.pacing();
        let seed = self.question.seed;
        let flash = match pacing {
            Pacing::OpenLoop { .. } => Some(FlashDevice::new(
                &self.profiles.flash,
                self.question.sizes.flash_bytes.max(1),
                seed,
            )),
            _ => None,
        };
        let volumes = self.known.volumes.len();
        let mut tallies = vec![Tally::default(); volumes];
        let mut place = vec![(0, Volume(0)); volumes];
        let mut running = Vec::new();
        for (members, sizes) in caches {
            for (local, &volume) in members.iter().enumerate() {
                place[volume] = (running.len(), Volume(local as u32));
            }
            let scenario = self.scenario(&members, sizes)?;
            let pacing = match pacing {
                // Each volume contributes as many requests in flight as if it were alone.
                Pacing::ClosedLoop { queue_depth } => {
                    Pacing::ClosedLoop { queue_depth: queue_depth * members.len() as u32 }
                }
                other => other,
            };
            running.push(Running::new(
                &scenario,
                Options { pacing, seed, ..Options::default() },
                flash.as_ref(),
                self.observer,
            )?);
        }
        self.kept.each(self.observer, label, |request| {
            let Some(volume) = self.known.index(request.volume) else { return Ok(()) };
            running.iter_mut().for_each(|cache| cache.advance_to(request.time));
            let (cache, local) = place[volume];
            let request = Request { volume: local, ..*request };
            running[cache].add(volume, &request, &mut tallies)
        })?;
        let mut durations = Vec::new();
        for cache in &mut running {
            durations.push(cache.finish(&mut tallies)?);
        }
        let measured = tallies.iter().enumerate().map(|(volume, tally)| {
            let duration_s = durations[place[volume].0];
            let closed = matches!(pacing, Pacing::ClosedLoop { .. });
            tally.measured(&self.models[volume], closed.then_some(duration_s))
        });
        Ok(measured.collect())
    }

    /// A cache with room for as many blocks as fit in `sizes`.
    fn scenario(&self, members: &[usize], sizes: Sizes) -> Result<Scenario, BoxError> {
        let block = self.question.block_size.bytes();
        let known = members.iter().map(|&volume| &self.known.volumes[volume]);
        let blocks = known.map(|v| v.bytes / block).sum::<u64>();
        let most = blocks.saturating_mul(ROOM_TIMES).max(TRANSIT_BLOCKS);
        // No block is in two tiers, so each tier has room for whole blocks.
        let all = sizes.dram_bytes / block + sizes.flash_bytes / block;
        let dram = (sizes.dram_bytes / block).max(TRANSIT_BLOCKS).min(all).max(1);
        let flash = all.saturating_sub(dram).min(most);
        let dram = dram.min(most);
        // Blocks in a batch that is not yet full are cached as well, so a batch must be small
        // compared with the share.
        let batch = (flash / BATCHES_MIN).clamp(16, 128);
        let mut text = format!("[cache]\nblock_size = {block}\n");
        // Without any cache there is nothing to write back from.
        if self.question.policy == WritePolicy::WriteBack && all > 0 {
            let by_memory = self.question.sizes.dram_bytes > 0 || flash == 0;
            let by = if by_memory { "dram" } else { "flash" };
            write!(text, "write_policy = 'write-back'\nacknowledge = '{by}'\n")?;
        } else {
            text += "write_policy = 'write-through'\n";
        }
        if flash > 0 {
            // Blocks in flight and the journal come on top.
            let bytes = (flash + flash / 8 + 4096) * block + (8 << 20);
            write!(
                text,
                "[flash]\npath = 'simulated'\nlayout = 'slots'\npage_size = '4KiB'\nsize = {bytes}\n"
            )?;
            writeln!(text, "batch_size = {}", batch * block)?;
        }
        let volumes: Vec<TracedVolume> = members
            .iter()
            .map(|&volume| &self.known.volumes[volume])
            .map(|v| TracedVolume { name: v.name.clone(), bytes: v.bytes })
            .collect();
        let config = Config::from_toml(&text)?;
        let mut scenario = Scenario::new(&config, &volumes, &Defaults::default())?;
        scenario.memory = self.profiles.memory;
        scenario.flash = self.profiles.flash.clone();
        scenario.volumes.iter_mut().for_each(|v| v.backing = self.profiles.backing.clone());
        scenario.cache.dram_blocks = u32::try_from(dram)?;
        scenario.cache.spare_frames = u32::try_from(SPARE_FRAMES_PER_BLOCK * batch)?;
        if let Some(tier) = &mut scenario.cache.flash {
            let flash = u32::try_from(flash)?;
            assert!(tier.blocks() >= flash, "the flash tier holds fewer blocks than its share");
            let spare = (SPARE_CELLS_PER_BLOCK * batch).max(SPARE_CELLS_MIN);
            let cells = flash + u32::try_from(spare)?;
            let cells = cells.min(tier.geometry.slots);
            (tier.geometry.slots, tier.entries_max) = (cells, cells);
            tier.slots_mut().expect("the slots layout").blocks = flash;
        }
        Ok(scenario)
    }
}

/// One cache, simulated twice: untimed, to find the place of each request's blocks, and timed, to
/// find its latency.
struct Running {
    untimed: Simulation,
    timed: Simulation,
    /// The volume, operation and place of each request, in the order in which the requests were
    /// added.
    kinds: Vec<u32>,
}

/// The kind of a request that moves no data.
const NO_KIND: u32 = u32::MAX;

impl Running {
    fn new(
        scenario: &Scenario,
        options: Options,
        flash: Option<&FlashDevice>,
        observer: &dyn Observer,
    ) -> Result<Self, BoxError> {
        let without_time = Options { pacing: Pacing::Untimed, ..options.clone() };
        let mut timed = Simulation::with_flash(scenario, &options, flash)?;
        timed.keep_answers();
        timed.stop_when(Arc::clone(observer.stop_flag()));
        let mut untimed = Simulation::new(scenario, &without_time)?;
        untimed.stop_when(Arc::clone(observer.stop_flag()));
        Ok(Self { untimed, timed, kinds: Vec::new() })
    }

    /// Advances both simulations to this time, so that all caches run at the same time.
    fn advance_to(&mut self, time: Nanos) {
        self.untimed.advance_to(time);
        self.timed.advance_to(time);
    }

    fn add(
        &mut self,
        volume: usize,
        request: &Request,
        tallies: &mut [Tally],
    ) -> Result<(), BoxError> {
        let found = |simulation: &Simulation| {
            let stats = simulation.cache().volume_stats(request.volume);
            let [r, w] = stats.map(|s| [s.read_hits, s.write_hits]).unwrap_or_default();
            [r.tier2 + w.tier2, r.miss + w.miss]
        };
        let before = found(&self.untimed);
        self.untimed.add(request)?;
        let after = found(&self.untimed);
        let place = match (after[0] > before[0], after[1] > before[1]) {
            (_, true) => Place::Miss,
            (true, false) => Place::Flash,
            (false, false) => Place::Dram,
        };
        let moves = matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes);
        let kind = match moves && request.length > 0 {
            true => {
                let write = usize::from(request.op != Op::Read);
                tallies[volume].count[write][place as usize] += 1.0;
                (volume as u32) << 3 | (write as u32) << 2 | place as u32
            }
            false => NO_KIND,
        };
        self.kinds.push(kind);
        self.timed.add(request)?;
        self.take(tallies);
        Ok(())
    }

    fn take(&mut self, tallies: &mut [Tally]) {
        for answer in self.timed.take_answers() {
            let kind = self.kinds[answer.request as usize];
            if kind != NO_KIND {
                let (volume, write, place) = (kind >> 3, kind >> 2 & 1, kind & 3);
                tallies[volume as usize].ns[write as usize][place as usize] +=
                    answer.latency.0 as f64;
            }
        }
    }

    /// Waits for the end of the simulation. Returns its duration, in seconds.
    fn finish(&mut self, tallies: &mut [Tally]) -> Result<f64, BoxError> {
        self.timed.run_until_idle()?;
        self.take(tallies);
        Ok(self.timed.answered_at().as_secs_f64())
    }
}

/// Number and total latency of the requests of one volume, by operation and place.
#[derive(Clone, Copy, Default)]
struct Tally {
    count: [[f64; 3]; 2],
    ns: [[f64; 3]; 2],
}

impl Tally {
    fn measured(&self, alone: &VolumeModel, closed_s: Option<f64>) -> Measured {
        let by = |of: [f64; 3]| ByPlace { dram: of[0], flash: of[1], miss: of[2] };
        let mean =
            |op: usize| by([0, 1, 2].map(|p| self.ns[op][p] / self.count[op][p].max(1.0) / 1e3));
        let [reads, writes] = self.count.map(by);
        let requests = reads.sum() + writes.sum();
        let to_backing = if alone.writes_through { writes.sum() } else { writes.miss };
        let total_us = self.ns.iter().flatten().sum::<f64>() / 1e3;
        let ratio = (reads.miss + to_backing) / requests.max(1.0);
        Measured {
            outcome: Outcome {
                reads,
                writes,
                latency_us: total_us / requests.max(1.0),
                iops: match closed_s {
                    Some(seconds) if seconds > 0.0 => requests / seconds,
                    _ => alone.iops(ratio),
                },
            },
            read: mean(0),
            write: mean(1),
        }
    }
}
