//! A hierarchy of tiers and its latencies: exclusive tiers, accessed one after another.
//!
//! The formulas are those of Bhandari (2024), section 3.2.3, extended to any number of tiers;
//! `docs/planning-reference.md` derives those for write-back, which the paper does not give.

use serde::{Deserialize, Serialize};

use crate::catalogue::{Catalogue, Combination};
use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::device::{Device, DeviceKind};
use crate::error::PlanError;
use crate::wear::Wear;

/// When a write reaches the backing store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// Immediately: the backing store acknowledges every write.
    #[default]
    WriteThrough,
    /// When the block leaves the cache.
    WriteBack,
}

impl WritePolicy {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
        }
    }
}

/// Devices of the tiers, fastest first, in front of a backing store.
#[derive(Clone, PartialEq, Debug)]
pub struct Hierarchy {
    /// The tiers' devices, tier 1 first; at least one.
    pub tiers: Vec<Device>,
    /// The backing store; unlimited in size.
    pub backing: Device,
    /// When writes reach the backing store.
    pub policy: WritePolicy,
}

/// The performance of a hierarchy with given sizes for a workload, according to the formulas.
/// Counts are numbers of block accesses.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Evaluation {
    /// Mean latency of all accesses, in microseconds; write-backs are spread over all of them.
    pub mean_latency_us: f64,
    /// Mean latency of reads, in microseconds, without write-backs; 0 without reads.
    pub read_latency_us: f64,
    /// Mean latency of writes, in microseconds, without write-backs; 0 without writes.
    pub write_latency_us: f64,
    /// 99th percentile of the latency of all accesses, in microseconds, without write-backs; 0
    /// without accesses.
    pub p99_latency_us: f64,
    /// 99.9th percentile of the latency of all accesses, in microseconds, without write-backs; 0
    /// without accesses.
    pub p999_latency_us: f64,
    /// Read hits per tier.
    pub read_hits: Vec<u64>,
    /// Write hits per tier.
    pub write_hits: Vec<u64>,
    /// Blocks written per tier: fills, promotions, demotions and the writes themselves.
    pub blocks_written: Vec<u64>,
    /// Dirty blocks written to the backing store later; 0 with write-through.
    pub write_backs: u64,
}

impl Evaluation {
    /// Blocks written per tier by a cache that writes, below tier 1, only this `share` of what the
    /// formulas count.
    pub fn written_with(&self, share: f64) -> Vec<f64> {
        let below = |tier: usize| if tier == 0 { 1.0 } else { share };
        self.blocks_written.iter().enumerate().map(|(tier, &n)| n as f64 * below(tier)).collect()
    }
}

impl Hierarchy {
    /// The hierarchy that `combination` names.
    ///
    /// # Errors
    /// If the catalogue has no such device, or there is no tier.
    pub fn new(
        catalogue: &Catalogue,
        combination: &Combination,
        policy: WritePolicy,
    ) -> Result<Self, PlanError> {
        let tiers = combination.tiers.iter().map(|name| catalogue.device(name).cloned());
        let tiers: Vec<Device> = tiers.collect::<Result<_, _>>()?;
        if tiers.is_empty() {
            return Err(PlanError::NoCombination("a combination has no tiers".into()));
        }
        Ok(Self { tiers, backing: catalogue.device(&combination.backing)?.clone(), policy })
    }

    /// The mean latency per block access in microseconds, with tiers of `blocks` blocks (fastest
    /// first; a tier of size 0 does not exist). 0 without accesses.
    pub fn mean_latency_us<H: HitCounts + ?Sized>(&self, counts: &H, blocks: &[u64]) -> f64 {
        let accesses = counts.reads() + counts.writes();
        if accesses == 0 {
            return 0.0;
        }
        let mut total_us = 0.0;
        let walk = self.walk(counts, blocks, |part| {
            total_us += part.reads as f64 * part.read_us + part.writes as f64 * part.write_us;
        });
        total_us += walk.write_backs as f64 * walk.write_back_us;
        total_us / accesses as f64
    }

    /// All results of the formulas for tiers of `blocks` blocks, fastest first.
    pub fn evaluate<H: HitCounts + ?Sized>(&self, counts: &H, blocks: &[u64]) -> Evaluation {
        let (reads, writes) = (counts.reads(), counts.writes());
        let tiers = self.tiers.len();
        let mut e = Evaluation {
            read_hits: vec![0; tiers],
            write_hits: vec![0; tiers],
            blocks_written: vec![0; tiers],
            ..Evaluation::default()
        };
        let (mut read_us, mut write_us) = (0.0, 0.0);
        let mut times = Times::default();
        let walk = self.walk(counts, blocks, |part| {
            times.add(part.read_us, part.reads);
            times.add(part.write_us, part.writes);
            read_us += part.reads as f64 * part.read_us;
            write_us += part.writes as f64 * part.write_us;
            if let Some(tier) = part.tier {
                e.read_hits[tier] = part.reads;
                e.write_hits[tier] = part.writes;
            }
        });
        e.write_backs = walk.write_backs;
        e.blocks_written = blocks_written(&e, reads, writes, blocks);
        let mean = |us: f64, n: u64| if n == 0 { 0.0 } else { us / n as f64 };
        e.read_latency_us = mean(read_us, reads);
        e.write_latency_us = mean(write_us, writes);
        let write_back_us = walk.write_backs as f64 * walk.write_back_us;
        e.mean_latency_us = mean(read_us + write_us + write_back_us, reads + writes);
        times.0.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        e.p99_latency_us = times.at(0.99, reads + writes);
        e.p999_latency_us = times.at(0.999, reads + writes);
        e
    }

    /// Goes down the tiers and reports, for each tier and for the misses, how many accesses end
    /// there and how long one takes.
    ///
    /// An access that finds its block in tier k, or in no tier, brings it to tier 1. Tier 1 is
    /// full, so it demotes its oldest block to the next tier (a read here, a write there), and so
    /// on down to the tier that the accessed block has left or, after a miss, out of the last tier.
    fn walk<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        blocks: &[u64],
        mut part: impl FnMut(Part),
    ) -> WriteBacks {
        let through_us = match self.policy {
            WritePolicy::WriteThrough => self.backing.write_latency_us,
            WritePolicy::WriteBack => 0.0,
        };
        let (mut first, mut last): (Option<&Device>, Option<&Device>) = (None, None);
        let (mut held, mut read_hits, mut write_hits, mut demotion_us) = (0_u64, 0, 0, 0.0);
        for (tier, device) in self.tiers.iter().enumerate() {
            let size = blocks.get(tier).copied().unwrap_or(0);
            if size == 0 {
                continue;
            }
            held = held.saturating_add(size);
            let (r, w) = (counts.read_hits(held), counts.write_hits(held));
            let (read_us, write_us) = match (first, last) {
                (Some(first), Some(above)) => {
                    demotion_us += above.read_latency_us + device.write_latency_us;
                    let write_us = first.write_latency_us + demotion_us;
                    (device.read_latency_us + write_us, write_us)
                }
                _ => (device.read_latency_us, device.write_latency_us),
            };
            part(Part {
                tier: Some(tier),
                reads: r - read_hits,
                writes: w - write_hits,
                read_us,
                write_us: write_us + through_us,
            });
            (read_hits, write_hits) = (r, w);
            (first, last) = (first.or(Some(device)), Some(device));
        }
        let (Some(first), Some(last)) = (first, last) else {
            part(Part {
                tier: None,
                reads: counts.reads(),
                writes: counts.writes(),
                read_us: self.backing.read_latency_us,
                write_us: self.backing.write_latency_us,
            });
            return WriteBacks::default();
        };
        let fill_us = first.write_latency_us + demotion_us;
        part(Part {
            tier: None,
            reads: counts.reads() - read_hits,
            writes: counts.writes() - write_hits,
            read_us: self.backing.read_latency_us + fill_us,
            write_us: fill_us + through_us,
        });
        match self.policy {
            WritePolicy::WriteThrough => WriteBacks::default(),
            WritePolicy::WriteBack => WriteBacks {
                write_backs: counts.writes() - counts.rewrite_hits(held),
                write_back_us: last.read_latency_us + self.backing.write_latency_us,
            },
        }
    }

    /// How often the capacity of the most heavily written flash tier is written over the whole
    /// workload, with tiers of `sizes`; 0 without flash. `written` gives the blocks written to each
    /// tier.
    pub fn drive_writes(&self, written: &[f64], sizes: &[Units], cost: &CostModel) -> f64 {
        let tiers = self.tiers.iter().zip(sizes).zip(written);
        let flash = tiers.filter(|((d, size), _)| d.kind == DeviceKind::Flash && size.0 > 0);
        let writes = |((_, size), &blocks): ((_, &Units), &f64)| {
            blocks / (size.0 * cost.unit_blocks()) as f64
        };
        flash.map(writes).fold(0.0, f64::max)
    }

    /// Bytes written to flash, with the block size of `cost`. `written` gives the blocks written to
    /// each tier.
    pub fn flash_bytes_written(&self, written: &[f64], cost: &CostModel) -> u64 {
        let flash = |(device, _): &(&Device, &f64)| device.kind == DeviceKind::Flash;
        let blocks: f64 =
            self.tiers.iter().zip(written).filter(flash).map(|(_, blocks)| blocks).sum();
        (blocks * cost.block_size.bytes() as f64).round() as u64
    }

    /// The wear of tiers of `sizes` when `bytes_per_day` are written to each of them.
    pub(crate) fn wear(&self, sizes: &[Units], cost: &CostModel, bytes_per_day: &[f64]) -> Wear {
        let mut wear = Wear {
            flash_bytes_written_per_day: 0.0,
            drive_writes_per_day: 0.0,
            endurance_used: None,
        };
        let tiers = self.tiers.iter().zip(sizes).zip(bytes_per_day);
        for ((device, size), bytes) in
            tiers.filter(|((device, size), _)| device.kind == DeviceKind::Flash && size.0 > 0)
        {
            wear.flash_bytes_written_per_day += bytes;
            let writes = bytes / (size.0 * cost.unit_bytes) as f64;
            wear.drive_writes_per_day = wear.drive_writes_per_day.max(writes);
            let used = device.drive_writes_per_day.map(|rated| writes / rated);
            wear.endurance_used = match (wear.endurance_used, used) {
                (Some(most), Some(used)) => Some(most.max(used)),
                (most, used) => most.or(used),
            };
        }
        wear
    }

    /// The names of the devices, tiers first: `FastDRAM + FastSSD / SlowHDD`.
    pub fn label(&self) -> String {
        let tiers: Vec<&str> = self.tiers.iter().map(|d| d.name.as_str()).collect();
        format!("{} / {}", tiers.join(" + "), self.backing.name)
    }

    /// Sizes in words, for messages: `16 MiB of FastDRAM, 0 MiB of FastSSD`.
    pub(crate) fn describe(&self, sizes: &[Units], cost: &CostModel) -> String {
        let part = |(device, size): (&Device, &Units)| {
            format!("{} MiB of {}", (size.0 * cost.unit_bytes) >> 20, device.name)
        };
        self.tiers.iter().zip(sizes).map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Accesses that are served from the same place and take the same time.
struct Part {
    /// The tier that has the block; `None` for misses.
    tier: Option<usize>,
    reads: u64,
    writes: u64,
    read_us: f64,
    write_us: f64,
}

/// Pairs of a latency in microseconds and the number of accesses that take it.
#[derive(Default)]
struct Times(Vec<(f64, u64)>);

impl Times {
    fn add(&mut self, us: f64, accesses: u64) {
        if accesses > 0 {
            self.0.push((us, accesses));
        }
    }

    /// The latency within which this share of all accesses completes. The pairs must be sorted.
    fn at(&self, share: f64, accesses: u64) -> f64 {
        let wanted = (accesses as f64 * share).ceil() as u64;
        let mut ended = 0;
        let within = self.0.iter().find(|(_, n)| {
            ended += n;
            ended >= wanted
        });
        within.or(self.0.last()).map_or(0.0, |(us, _)| *us)
    }
}

#[derive(Default)]
struct WriteBacks {
    write_backs: u64,
    write_back_us: f64,
}

/// Blocks written to each tier. Every write goes to the first tier, as does every read that misses
/// it. A lower tier is written once per access that finds its block below the tier above it, or
/// nowhere.
fn blocks_written(e: &Evaluation, reads: u64, writes: u64, sizes: &[u64]) -> Vec<u64> {
    let (mut beyond, mut first) = (reads + writes, true);
    let mut written = vec![0; e.read_hits.len()];
    for (tier, out) in written.iter_mut().enumerate() {
        if sizes.get(tier).copied().unwrap_or(0) == 0 {
            continue;
        }
        let hits = e.read_hits[tier] + e.write_hits[tier];
        *out = if first { writes + (reads - e.read_hits[tier]) } else { beyond };
        beyond -= hits;
        first = false;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Steps, hierarchy};

    /// 100 reads and 50 writes; 40 and 20 hit up to 256 blocks, 70 and 30 up to 1024.
    fn counts() -> Steps {
        Steps { reads: 100, writes: 50, at: vec![(256, 40, 20), (1024, 70, 30)], footprint: 2000 }
    }

    #[test]
    fn write_through_takes_what_the_paper_says() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let (r1, w1, r2, w2) = (0.0619, 0.0619, 1.82, 2.0);
        let (rs, ws) = (1661.1, 1037.3);
        let two = 40.0 * r1
            + 30.0 * (r1 + w1 + r2 + w2)
            + 30.0 * (rs + w1 + r1 + w2)
            + 20.0 * (w1 + ws)
            + 30.0 * (ws + r1 + w1 + w2);
        assert!((h.mean_latency_us(&counts(), &[256, 768]) - two / 150.0).abs() < 1e-9);
        let one = 40.0 * r1 + 60.0 * (rs + w1) + 50.0 * (ws + w1);
        assert!((h.mean_latency_us(&counts(), &[256, 0]) - one / 150.0).abs() < 1e-9);
        let none = (100.0 * rs + 50.0 * ws) / 150.0;
        assert!((h.mean_latency_us(&counts(), &[0, 0]) - none).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_those_of_the_accesses_one_by_one() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        // 1000 reads, of which 15 miss and 2 hit tier 2; 200 writes, of which 1 misses.
        let at = vec![(256, 983, 199), (1024, 985, 199)];
        let counts = Steps { reads: 1000, writes: 200, at, footprint: 2000 };
        let e = h.evaluate(&counts, &[256, 768]);
        let (hit1, hit2) = (0.0619, 0.0619 + 1.82 + 0.0619 + 2.0);
        let miss = 1661.1 + 0.0619 + 0.0619 + 2.0;
        // 15 of 1,200 are more than 1 %.
        assert!((e.p99_latency_us - miss).abs() < 1e-9, "{e:?}");
        let few = Steps { reads: 10_000, ..counts };
        let few = Steps { at: vec![(256, 9983, 199), (1024, 9995, 199)], ..few };
        let e = h.evaluate(&few, &[256, 768]);
        assert_eq!(e.p99_latency_us, hit1);
        // Only the slowest 10 of 10,200 may be slower: 5 read misses and the write miss are; 12
        // hits in tier 2 follow.
        assert!((e.p999_latency_us - hit2).abs() < 1e-9, "{e:?}");
        let none = Steps { reads: 0, writes: 0, at: vec![], footprint: 0 };
        assert_eq!(h.evaluate(&none, &[256]).p99_latency_us, 0.0);
    }

    #[test]
    fn drive_writes_are_of_the_flash_tier_that_is_written_most() {
        let h = hierarchy(["FastDRAM", "FastSSD", "SlowSSD"], "SlowHDD", WritePolicy::WriteBack);
        let (cost, sizes) = (CostModel::default(), [1, 1, 2].map(Units));
        let e = h.evaluate(&counts(), &[256, 256, 512]);
        assert_eq!(e.blocks_written[1..], [90, 90]);
        let written = e.written_with(1.0);
        assert_eq!(h.drive_writes(&written, &sizes, &cost), 90.0 / 256.0);
        assert_eq!(h.flash_bytes_written(&written, &cost), 180 << 12);
        let halved = e.written_with(0.5);
        assert_eq!(halved, [written[0], 45.0, 45.0], "what tier 1 is written stays");
        assert_eq!(h.flash_bytes_written(&halved, &cost), 90 << 12);
        let dram = hierarchy(["FastDRAM", "SlowDRAM"], "SlowHDD", WritePolicy::WriteBack);
        let e = dram.evaluate(&counts(), &[256, 256]);
        assert_eq!(dram.drive_writes(&e.written_with(1.0), &sizes[..2], &cost), 0.0);
    }

    #[test]
    fn write_back_pays_the_backing_store_once_per_dirty_block() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        let (r1, w1, r2, w2) = (0.0619, 0.0619, 1.82, 2.0);
        let (rs, ws) = (1661.1, 1037.3);
        let two = 40.0 * r1
            + 30.0 * (r1 + w1 + r2 + w2)
            + 30.0 * (rs + w1 + r1 + w2)
            + 20.0 * w1
            + 30.0 * (w1 + r1 + w2)
            + 20.0 * (r2 + ws);
        assert!((h.mean_latency_us(&counts(), &[256, 768]) - two / 150.0).abs() < 1e-9);
        let one = 40.0 * r1 + 60.0 * (rs + w1) + 50.0 * w1 + 30.0 * (r1 + ws);
        assert!((h.mean_latency_us(&counts(), &[256, 0]) - one / 150.0).abs() < 1e-9);
    }

    #[test]
    fn a_tier_of_size_zero_is_not_there() {
        for policy in [WritePolicy::WriteThrough, WritePolicy::WriteBack] {
            let three = hierarchy(["FastDRAM", "SlowDRAM", "FastSSD"], "FastHDD", policy);
            let two = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", policy);
            let one = hierarchy(["SlowDRAM"], "FastHDD", policy);
            let c = counts();
            assert_eq!(
                three.mean_latency_us(&c, &[256, 0, 768]),
                two.mean_latency_us(&c, &[256, 768])
            );
            assert_eq!(three.mean_latency_us(&c, &[0, 300, 0]), one.mean_latency_us(&c, &[300]));
        }
    }

    #[test]
    fn every_access_is_counted_once_and_demotions_are_writes() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        let e = h.evaluate(&counts(), &[256, 768]);
        assert_eq!((e.read_hits, e.write_hits), (vec![40, 30], vec![20, 10]));
        // Tier 1: 50 writes and 60 fills; tier 2: every access but the 60 that hit tier 1.
        assert_eq!(e.blocks_written, [110, 90]);
        assert_eq!(e.write_backs, 20);
        let mean = (100.0 * e.read_latency_us + 50.0 * e.write_latency_us + 20.0 * (1.82 + 1037.3))
            / 150.0;
        assert!((e.mean_latency_us - mean).abs() < 1e-9);
        assert_eq!(e.mean_latency_us, h.mean_latency_us(&counts(), &[256, 768]));
    }
}
