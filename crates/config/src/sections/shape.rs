//! `[shape.NAME]`: what a device's latency and bandwidth are modelled as.

use crate::schema::{choice, section};
use crate::{Size, TimeSpan};

section! {
    /// Adds a modelled device's latency and bandwidth to a real file, so that a disk array or a
    /// SAN can be tried out on a laptop. The simulator charges the same times. A device needs no
    /// section: `shape = "san"` will do.
    pub struct Shape {
        /// The device to start from: what the keys below leave unset is as it is there. FastDRAM,
        /// SlowDRAM, FastSSD, MediumSSD, SlowSSD, FastHDD and SlowHDD are the planner's
        /// catalogue; hdd-7200, hdd-array, sata-ssd, nvme and san are typical devices with
        /// spread, seeks and limits.
        device: Option<String> = unset;
        /// Mean time of a read, without the transfer. Unset means the device's, or none.
        read_latency: Option<TimeSpan> = unset;
        /// Mean time of a write, without the transfer. Unset means the device's, or none.
        write_latency: Option<TimeSpan> = unset;
        /// Mean time of a flush, after the writes before it have ended. Unset means the
        /// device's, or none.
        sync_latency: Option<TimeSpan> = unset;
        /// How latencies scatter about their mean. Unset means as the device's do, or not at
        /// all.
        distribution: Option<Distribution> = unset;
        /// Spread of the lognormal distribution: the standard deviation of the logarithm.
        sigma: f64 = 0.5;
        /// Points of the measured distribution of reads and writes, such as
        /// `[[50.0, "1ms"], [99.0, "20ms"]]`: percent of operations and the time within which
        /// they end, both rising.
        percentiles: Vec<(f64, TimeSpan)> = [];
        /// Bytes moved in a second, each way; 0 means that transfers take no time. Unset means
        /// the device's, or 0.
        bandwidth: Option<Size> = unset;
        /// Operations started in a second, all kinds together; 0 means no limit. Unset means
        /// the device's, or 0.
        iops: Option<u64> = unset;
        /// Operations that run at the same time; further ones wait. Of a device that seeks, its
        /// disks. Unset means the device's, or 1.
        parallelism: Option<u32> = unset;
        /// Time of a seek over the whole disk; a shorter seek takes time in proportion to the square
        /// root of its distance. 0 means no seeks. Unset means the device's, or 0.
        seek_max: Option<TimeSpan> = unset;
        /// Time of one rotation; an operation that is not sequential waits half of it on
        /// average. 0 means none. Unset means the device's, or 0.
        rotation: Option<TimeSpan> = unset;
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
