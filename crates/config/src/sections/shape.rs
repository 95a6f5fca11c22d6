//! `[shape.NAME]`: what a device's latency and bandwidth are modelled as.

use crate::schema::{choice, section};
use crate::{Size, TimeSpan};

section! {
    /// Adds a modelled device's latency and bandwidth to a real file, so that a disk array or a
    /// SAN can be tried out on a laptop. The simulator charges the same times.
    pub struct Shape {
        /// The device of the catalogue to start from; its latencies hold where the keys below
        /// are unset.
        device: Option<String> = unset;
        /// Mean time of a read, without the transfer. Unset means the device's, or none.
        read_latency: Option<TimeSpan> = unset;
        /// Mean time of a write, without the transfer. Unset means the device's, or none.
        write_latency: Option<TimeSpan> = unset;
        /// How latencies scatter about their mean.
        distribution: Distribution = "fixed";
        /// Spread of the lognormal distribution: the standard deviation of the logarithm.
        sigma: f64 = 0.5;
        /// Points of the measured distribution, such as `[[50.0, "1ms"], [99.0, "20ms"]]`:
        /// percent of operations and the time within which they end, both rising.
        percentiles: Vec<(f64, TimeSpan)> = [];
        /// Bytes moved in a second; 0 means that transfers take no time.
        bandwidth: Size = 0;
        /// Operations that run at the same time; further ones wait.
        parallelism: u32 = 1;
        /// Time of a seek over the whole disk; shorter ones take in proportion to the square
        /// root of their distance. 0 means no seeks.
        seek_max: TimeSpan = "0s";
        /// Time of one rotation; an operation that is not sequential waits half of it on
        /// average. 0 means none.
        rotation: TimeSpan = "0s";
        /// Seed of the distribution's random numbers.
        seed: u64 = 0;
    }
}

choice! {
    /// How latencies scatter about their mean.
    pub enum Distribution: "latency distribution" {
        /// They do not.
        Fixed = "fixed",
        /// Lognormal: many near the mean, a long tail.
        Lognormal = "lognormal",
        /// As measured, by percentiles.
        Percentiles = "percentiles",
    }
}

/// A device whose latencies are known: Bhandari 2024, Table 3.1 (January 2022).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CatalogueDevice {
    /// Its name, in a configuration file.
    pub name: &'static str,
    /// Mean time of a 4 KiB read, nanoseconds.
    pub read_latency_ns: f64,
    /// Mean time of a 4 KiB write, nanoseconds.
    pub write_latency_ns: f64,
    /// Operations that devices of this kind run at the same time. The table does not say; one
    /// actuator for disks, and a modest depth for flash.
    pub parallelism: u32,
}

/// The devices of the catalogue. [`Shape`]s may start from one, and `shape = "FastHDD"` needs
/// no `[shape.NAME]` at all.
pub const CATALOGUE: [CatalogueDevice; 7] = [
    device("FastDRAM", 61.9, 61.9, 32),
    device("SlowDRAM", 77.4, 77.4, 32),
    device("FastSSD", 1_820.0, 2_000.0, 16),
    device("MediumSSD", 13_330.0, 27_770.0, 16),
    device("SlowSSD", 18_180.0, 33_330.0, 16),
    device("FastHDD", 120_800.0, 974_600.0, 1),
    device("SlowHDD", 1_661_100.0, 1_037_300.0, 1),
];

const fn device(name: &'static str, read: f64, write: f64, parallelism: u32) -> CatalogueDevice {
    CatalogueDevice { name, read_latency_ns: read, write_latency_ns: write, parallelism }
}

impl CatalogueDevice {
    /// The device called `name`.
    pub fn find(name: &str) -> Option<&'static CatalogueDevice> {
        CATALOGUE.iter().find(|d| d.name == name)
    }
}

/// A shape with everything filled in: what a device model is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct ShapeModel {
    /// Mean time of a read without its transfer, nanoseconds.
    pub read_latency_ns: f64,
    /// Mean time of a write without its transfer, nanoseconds.
    pub write_latency_ns: f64,
    /// How latencies scatter.
    pub distribution: Distribution,
    /// Standard deviation of the logarithm, for the lognormal distribution.
    pub sigma: f64,
    /// Percent and time, nanoseconds, for the measured distribution.
    pub percentiles: Vec<(f64, f64)>,
    /// Bytes per second; 0 means unlimited.
    pub bandwidth_bytes_per_s: u64,
    /// Operations that run at the same time; at least 1.
    pub parallelism: u32,
    /// Seek over the whole device, nanoseconds; 0 means none.
    pub seek_max_ns: f64,
    /// One rotation, nanoseconds; 0 means none.
    pub rotation_ns: f64,
    /// Seed of the distribution's random numbers.
    pub seed: u64,
}

impl Shape {
    /// The shape with the catalogue's values filled in where it gives none.
    pub fn model(&self) -> ShapeModel {
        let device = self.device.as_deref().and_then(CatalogueDevice::find);
        let pick = |own: Option<TimeSpan>, theirs: fn(&CatalogueDevice) -> f64| match own {
            Some(time) => time.nanos().0 as f64,
            None => device.map_or(0.0, theirs),
        };
        let percentiles = self.percentiles.iter().map(|&(p, t)| (p, t.nanos().0 as f64));
        ShapeModel {
            read_latency_ns: pick(self.read_latency, |d| d.read_latency_ns),
            write_latency_ns: pick(self.write_latency, |d| d.write_latency_ns),
            distribution: self.distribution,
            sigma: self.sigma,
            percentiles: percentiles.collect(),
            bandwidth_bytes_per_s: self.bandwidth.bytes(),
            parallelism: self.parallelism.max(1),
            seek_max_ns: self.seek_max.nanos().0 as f64,
            rotation_ns: self.rotation.nanos().0 as f64,
            seed: self.seed,
        }
    }
}

impl From<&CatalogueDevice> for Shape {
    fn from(device: &CatalogueDevice) -> Self {
        let name = Some(device.name.to_string());
        Shape { device: name, parallelism: device.parallelism, ..Shape::default() }
    }
}
