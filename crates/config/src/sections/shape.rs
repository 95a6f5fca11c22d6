//! `[shape.NAME]`: the modelled latency and bandwidth of a device.

use crate::schema::{choice, section};
use crate::{Size, TimeSpan};

section! {
    /// Gives a real file the latency and bandwidth of a modelled device, so that you can try out a disk array
    /// or a SAN on a laptop. The simulator models the device in the same way. To use a modelled device
    /// unchanged, you do not need this section: write `shape = "san"`, for example.
    pub struct Shape {
        /// The modelled device to start from: unset keys below take its values. FastDRAM, SlowDRAM, FastSSD,
        /// MediumSSD, SlowSSD, FastHDD and SlowHDD are the devices in the planner's catalogue; hdd-7200,
        /// hdd-array, sata-ssd, nvme and san model typical devices with varying latencies and, depending on
        /// the device, seeks and limits.
        device: Option<String> = unset;
        /// Mean time of a read, excluding the transfer. Unset means the device's value, or 0 if `device` is
        /// unset.
        read_latency: Option<TimeSpan> = unset;
        /// Mean time of a write, excluding the transfer. Unset means the device's value, or 0 if `device` is
        /// unset.
        write_latency: Option<TimeSpan> = unset;
        /// Mean time of a flush, measured from the completion of the preceding writes. Unset means the
        /// device's value, or 0 if `device` is unset.
        sync_latency: Option<TimeSpan> = unset;
        /// How latencies vary around their mean. Unset means the device's distribution, or `fixed` if
        /// `device` is unset.
        distribution: Option<Distribution> = unset;
        /// Spread of the lognormal distribution: the standard deviation of the logarithm.
        sigma: f64 = 0.5;
        /// Points of the measured distribution of reads and writes, such as
        /// `[[50.0, "1ms"], [99.0, "20ms"]]`. A point is a percentage of the operations and the time within
        /// which they end; from point to point, percentages must increase and times must not decrease.
        percentiles: Vec<(f64, TimeSpan)> = [];
        /// Bytes transferred per second in each direction; 0 means that transfers take no time. Unset means
        /// the device's value, or 0 if `device` is unset.
        bandwidth: Option<Size> = unset;
        /// Maximum number of operations of all kinds started per second; 0 means no limit. Unset means the
        /// device's value, or 0 if `device` is unset.
        iops: Option<u64> = unset;
        /// Number of operations that run at the same time, 1 to 65536; further operations wait. For a device
        /// that seeks, set the number of its disks. Unset means the device's value, or 1 if `device` is
        /// unset.
        parallelism: Option<u32> = unset;
        /// Duration of a seek over the whole disk. A shorter seek takes time in proportion to the square root
        /// of its distance. 0 means no seeks. Unset means the device's value, or 0 if `device` is unset.
        seek_max: Option<TimeSpan> = unset;
        /// Duration of one rotation. An operation that is not sequential waits half a rotation on average. 0
        /// means no rotation. Unset means the device's value, or 0 if `device` is unset.
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
        /// Lognormal: most latencies are near the mean, but a few are much longer.
        Lognormal = "lognormal",
        /// A measured distribution, given by `percentiles`.
        Percentiles = "percentiles",
    }
}
