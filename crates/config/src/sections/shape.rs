//! `[shape.NAME]`: what a device's latency and bandwidth are modelled as.

use crate::schema::{choice, section};
use crate::{Size, TimeSpan};

section! {
    /// Gives a real file the latency and bandwidth of a modelled device, so that you can try out a disk
    /// array or a SAN on a laptop. The simulator uses the same times. To use a modelled device unchanged, you
    /// need no section: `shape = "san"` is enough.
    pub struct Shape {
        /// The device to start from: unset keys below take its values. FastDRAM, SlowDRAM, FastSSD,
        /// MediumSSD, SlowSSD, FastHDD and SlowHDD are the planner's catalogue; hdd-7200, hdd-array,
        /// sata-ssd, nvme and san are typical devices with spread, seeks and limits.
        device: Option<String> = unset;
        /// Mean time of a read, without the transfer. Unset means the device's value, or none.
        read_latency: Option<TimeSpan> = unset;
        /// Mean time of a write, without the transfer. Unset means the device's value, or none.
        write_latency: Option<TimeSpan> = unset;
        /// Mean time of a flush, measured from the completion of the preceding writes. Unset means the device's value,
        /// or none.
        sync_latency: Option<TimeSpan> = unset;
        /// How latencies vary around their mean. Unset means as for the device, or not at all.
        distribution: Option<Distribution> = unset;
        /// Spread of the lognormal distribution: the standard deviation of the logarithm.
        sigma: f64 = 0.5;
        /// Points of the measured distribution of reads and writes, such as
        /// `[[50.0, "1ms"], [99.0, "20ms"]]`: percent of operations and the time within which
        /// they end, both ascending.
        percentiles: Vec<(f64, TimeSpan)> = [];
        /// Bytes transferred per second in each direction; 0 means that transfers take no time. Unset means
        /// the device's value, or 0.
        bandwidth: Option<Size> = unset;
        /// Operations started per second, all kinds together; 0 means no limit. Unset means the device's
        /// value, or 0.
        iops: Option<u64> = unset;
        /// Number of operations that run at the same time; further operations wait. For a device that seeks,
        /// set the number of its disks. Unset means the device's value, or 1.
        parallelism: Option<u32> = unset;
        /// Time of a seek over the whole disk. A shorter seek takes time in proportion to the square root of
        /// its distance. 0 means no seeks. Unset means the device's value, or 0.
        seek_max: Option<TimeSpan> = unset;
        /// Time of one rotation. An operation that is not sequential waits half a rotation on average. 0 means
        /// no rotation. Unset means the device's value, or 0.
        rotation: Option<TimeSpan> = unset;
        /// Seed for the random numbers of the distribution.
        seed: u64 = 0;
    }
}

choice! {
    /// How latencies vary around their mean.
    pub enum Distribution: "latency distribution" {
        /// Latencies do not vary.
        Fixed = "fixed",
        /// Lognormal: most latencies are near the mean, with a long tail.
        Lognormal = "lognormal",
        /// A measured distribution, given by `percentiles`.
        Percentiles = "percentiles",
    }
}
