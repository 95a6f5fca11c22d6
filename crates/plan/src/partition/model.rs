//! The latency of a volume's requests, by the place where they find their blocks.

use schemars::JsonSchema;
use serde::Serialize;

/// Limit of extrapolation beyond the highest measured load, in steps between the two highest loads,
/// counted from the lower of the two.
const PARTS_MAX: f64 = 4.0;

/// The place where a request finds its blocks: the slowest place of any of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// All in memory.
    Dram = 0,
    /// All cached, at least one on flash.
    Flash = 1,
    /// At least one not cached.
    Miss = 2,
}

/// A number for each place.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct ByPlace {
    /// Latency of requests that hit in memory.
    pub dram: f64,
    /// Latency of requests that hit on flash.
    pub flash: f64,
    /// Latency of requests that missed.
    pub miss: f64,
}

impl ByPlace {
    /// One number for all places.
    pub const fn all(value: f64) -> Self {
        Self { dram: value, flash: value, miss: value }
    }

    /// The number for one place.
    pub fn at(&self, place: Place) -> f64 {
        match place {
            Place::Dram => self.dram,
            Place::Flash => self.flash,
            Place::Miss => self.miss,
        }
    }

    /// A mutable reference to the number for one place.
    pub fn at_mut(&mut self, place: Place) -> &mut f64 {
        match place {
            Place::Dram => &mut self.dram,
            Place::Flash => &mut self.flash,
            Place::Miss => &mut self.miss,
        }
    }

    /// All places.
    pub const PLACES: [Place; 3] = [Place::Dram, Place::Flash, Place::Miss];

    /// The sum of products, place by place.
    pub fn dot(&self, other: &Self) -> f64 {
        self.dram * other.dram + self.flash * other.flash + self.miss * other.miss
    }

    /// The smallest number of all places.
    pub fn least(&self) -> f64 {
        self.dram.min(self.flash).min(self.miss)
    }

    /// The sum over places.
    pub fn sum(&self) -> f64 {
        self.dram + self.flash + self.miss
    }
}

/// How fast one volume's requests are served: without load, from the latencies of its devices
/// alone, and under the loads that were measured.
///
/// With reads only and without memory, [`VolumeModel::read`] is the two latencies of Koller
/// (2012), equation 5.1, which is printed with them swapped: a mean latency is
/// `(1 - MR) * flash + MR * miss`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VolumeModel {
    /// Mean latency of reads without any queueing, in microseconds.
    pub read: ByPlace,
    /// Mean latency of writes without any queueing, in microseconds.
    pub write: ByPlace,
    /// Mean latency of writes without a share, in microseconds: that of the backing store.
    pub write_uncached: f64,
    /// Requests per second that the backing store would serve if all requests reached it.
    pub iops_backing: f64,
    /// Upper limit of requests per second, regardless of hits: what the cache's device serves.
    pub iops_cache: f64,
    /// Whether every write goes to the backing store, hit or not.
    pub writes_through: bool,
    /// The measurements, by ascending load.
    pub measured: Vec<LoadPoint>,
}

/// Measured latencies of requests under one load.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct LoadPoint {
    /// The load under which these latencies were measured: the share of the volume's requests that reached
    /// the backing store.
    pub backing_ratio: f64,
    /// Blocks in the volume's share. With more blocks, requests wait less under the same load, because under
    /// write-back the blocks absorb bursts.
    pub blocks: u64,
    /// Mean latency of reads, in microseconds.
    pub read: ByPlace,
    /// Mean latency of writes, in microseconds.
    pub write: ByPlace,
    /// Measured requests per second, divided by the value that the formula gives.
    pub iops_factor: f64,
}

impl VolumeModel {
    /// Requests per second according to the formula, where a fraction `backing_ratio` of them needs
    /// the backing store: equation 5.2 of Koller (2012), limited to what the cache's device serves.
    ///
    /// ```
    /// use forebay_plan::partition::VolumeModel;
    /// let m = VolumeModel { iops_backing: 200.0, iops_cache: 10_000.0, ..Default::default() };
    /// assert_eq!(m.iops(0.5), 400.0);
    /// assert_eq!((m.iops(1e-9), m.iops(0.0)), (10_000.0, 10_000.0));
    /// ```
    pub fn iops(&self, backing_ratio: f64) -> f64 {
        let iops = self.iops_backing / backing_ratio;
        if iops.is_nan() { self.iops_cache } else { iops.min(self.iops_cache) }
    }

    /// The latencies of requests under a load, with a share of `blocks` blocks: as measured under
    /// this load, or interpolated between the nearest loads (without measurements or below the
    /// first, from the latencies without load). If one load was measured with several shares,
    /// interpolates between these. Beyond the highest measured load, latencies keep growing by the
    /// same factor per step.
    pub fn under(&self, backing_ratio: f64, blocks: u64) -> LoadPoint {
        let at = self.position(backing_ratio, blocks);
        let rest = LoadPoint {
            backing_ratio: 0.0,
            blocks: u64::MAX,
            read: self.read,
            write: self.write,
            iops_factor: 1.0,
        };
        let below = if at > 0 { self.measured[at - 1] } else { rest };
        let same = |a: f64, b: f64| a == b;
        let found = match self.measured.get(at) {
            None if at == 0 => rest,
            None if same(below.backing_ratio, backing_ratio) => below,
            None => {
                let before = if at > 1 { self.measured[at - 2] } else { rest };
                let span = below.backing_ratio - before.backing_ratio;
                let part = (backing_ratio - before.backing_ratio) / span;
                before.beyond(&below, if span > 0.0 { part } else { 1.0 })
            }
            Some(above) if same(below.backing_ratio, above.backing_ratio) => {
                let size = |blocks: u64| (blocks.max(1) as f64).ln();
                let span = size(below.blocks) - size(above.blocks);
                let part = (size(below.blocks) - size(blocks)) / span;
                below.towards(above, if span > 0.0 { part } else { 1.0 })
            }
            Some(above) => {
                let span = above.backing_ratio - below.backing_ratio;
                let part = (backing_ratio - below.backing_ratio) / span;
                below.towards(above, if span > 0.0 { part } else { 1.0 })
            }
        };
        LoadPoint { backing_ratio, blocks, ..found }
    }

    /// Adds a measurement; replaces an earlier one of the same load and share.
    pub fn learn(&mut self, point: LoadPoint) {
        let at = self.position(point.backing_ratio, point.blocks);
        let is_same =
            |p: &&mut LoadPoint| p.backing_ratio == point.backing_ratio && p.blocks == point.blocks;
        match self.measured.get_mut(at).filter(is_same) {
            Some(known) => *known = point,
            None => self.measured.insert(at, point),
        }
    }

    /// The index at which a load belongs: by ascending load, then by descending share.
    fn position(&self, backing_ratio: f64, blocks: u64) -> usize {
        self.measured.partition_point(|p| {
            p.backing_ratio < backing_ratio
                || (p.backing_ratio == backing_ratio && p.blocks > blocks)
        })
    }
}

impl LoadPoint {
    /// The values at `part` > 1 of the way from this point through `other`; no latency falls.
    fn beyond(&self, other: &Self, part: f64) -> Self {
        let far = self.towards(other, part.min(PARTS_MAX));
        let places = |near: ByPlace, far: ByPlace| ByPlace {
            dram: near.dram.max(far.dram),
            flash: near.flash.max(far.flash),
            miss: near.miss.max(far.miss),
        };
        Self {
            read: places(other.read, far.read),
            write: places(other.write, far.write),
            iops_factor: other.iops_factor,
            ..far
        }
    }

    /// The values at `part` of the way to `other`, on a logarithmic scale, because queues make
    /// latencies differ by magnitudes.
    fn towards(&self, other: &Self, part: f64) -> Self {
        let between = |a: f64, b: f64| match a > 0.0 && b > 0.0 {
            true => a.powf(1.0 - part) * b.powf(part),
            false => a + part * (b - a),
        };
        let places = |a: ByPlace, b: ByPlace| ByPlace {
            dram: between(a.dram, b.dram),
            flash: between(a.flash, b.flash),
            miss: between(a.miss, b.miss),
        };
        // At a measured point, return exactly the measured values.
        if part == 1.0 {
            return *other;
        }
        Self {
            read: places(self.read, other.read),
            write: places(self.write, other.write),
            iops_factor: between(self.iops_factor, other.iops_factor),
            ..*other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_go_from_rest_through_what_was_measured_and_on() {
        let all = |us| LoadPoint { read: ByPlace::all(us), iops_factor: 1.0, ..Default::default() };
        let at = |ratio, us| LoadPoint { backing_ratio: ratio, ..all(us) };
        let mut model = VolumeModel { read: ByPlace::all(100.0), ..Default::default() };
        let us = |model: &VolumeModel, ratio| model.under(ratio, 0).read.miss;
        assert_eq!(us(&model, 0.7), 100.0);
        model.learn(at(0.8, 10_000.0));
        model.learn(at(0.4, 100.0));
        assert!((us(&model, 0.6) - 1_000.0).abs() < 1e-9);
        let measured = [0.0, 0.2, 0.4, 0.8, 0.9].map(|ratio| us(&model, ratio).round());
        assert_eq!(measured, [100.0, 100.0, 100.0, 10_000.0, 31_623.0]);
        model.learn(at(0.8, 50.0));
        assert_eq!((us(&model, 0.8), us(&model, 0.9), model.measured.len()), (50.0, 50.0, 2));
    }

    #[test]
    fn of_one_load_measured_with_two_shares_the_larger_bears_it_more_easily() {
        let at = |blocks, us| LoadPoint {
            backing_ratio: 0.5,
            blocks,
            read: ByPlace::all(us),
            iops_factor: 1.0,
            ..Default::default()
        };
        let mut model = VolumeModel { read: ByPlace::all(100.0), ..Default::default() };
        model.learn(at(100, 10_000.0));
        model.learn(at(10_000, 100.0));
        let us = |ratio, blocks| model.under(ratio, blocks).read.miss.round();
        let sizes = [10, 100, 1_000, 10_000, 20_000].map(|blocks| us(0.5, blocks));
        assert_eq!(sizes, [10_000.0, 10_000.0, 1_000.0, 100.0, 100.0]);
        assert_eq!(us(0.25, 50), 100.0);
        assert!(us(0.6, 50) > 9_999.0);
    }
}
