//! The parameters of a device, and a catalogue of devices by name.

use forebay_block::Nanos;

use crate::distribution::{Latency, LatencyError};

/// The performance parameters of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Latency of a read, excluding waiting, seek and transfer.
    pub read: Latency,
    /// Latency of a write, a zeroing or a trim, with the same exclusions.
    pub write: Latency,
    /// Latency of a sync, from the time at which the writes before it have ended.
    pub sync: Latency,
    /// Bytes per second read; 0 means that transfers take no time.
    pub read_bytes_per_s: u64,
    /// Bytes per second written, in the long run; 0 means that transfers take no time.
    pub write_bytes_per_s: u64,
    /// Number of bytes that a write cache absorbs before `write_bytes_per_s` applies.
    pub write_burst_bytes: u64,
    /// Operations per second, all kinds together; 0 means no limit.
    pub operations_per_s: u64,
    /// Number of operations served at the same time, others wait; 0 means no limit. For a device
    /// with a [`disk`](Profile::disk), the number of spindles applies instead.
    pub parallelism: u32,
    /// The rotating disks, if the device consists of disks.
    pub disk: Option<Disk>,
}

/// One or more identical rotating disks, striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Time of a seek to a neighbouring track.
    pub seek_min: Nanos,
    /// Time of a seek across the whole disk. In between, the time grows with the square root of the
    /// distance (Ruemmler and Wilkes, "An introduction to disk drive modeling", 1994, for the part
    /// of a seek that accelerates).
    pub seek_max: Nanos,
    /// Time of one rotation; an operation that is not sequential waits for a random part of it.
    pub rotation: Nanos,
    /// Number of disks.
    pub spindles: u32,
    /// Number of consecutive bytes on one disk before the next disk follows.
    pub stripe_bytes: u64,
}

const fn micros(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

const MB: u64 = 1_000_000;

impl Profile {
    /// A device that takes no time.
    pub const INSTANT: Profile = Profile {
        read: Latency::NONE,
        write: Latency::NONE,
        sync: Latency::NONE,
        read_bytes_per_s: 0,
        write_bytes_per_s: 0,
        write_burst_bytes: 0,
        operations_per_s: 0,
        parallelism: 0,
        disk: None,
    };

    /// The names of all devices that [`named`](Profile::named) returns.
    pub const NAMES: [&str; 12] = [
        "FastDRAM",
        "SlowDRAM",
        "FastSSD",
        "MediumSSD",
        "SlowSSD",
        "FastHDD",
        "SlowHDD",
        "hdd-7200",
        "hdd-array",
        "sata-ssd",
        "nvme",
        "san",
    ];

    /// Returns the device with this name.
    ///
    /// `FastDRAM` to `SlowHDD` are the catalogue of Bhandari 2024, table 3.1: the measured mean
    /// latencies of a 4 KiB page in whole nanoseconds, transfer included. The latencies are fixed,
    /// because their spread is not known. Nor is the time of a sync: it is that of a write, except
    /// for DRAM, where it is 0. The other devices are typical ones with spread, seeks and limits,
    /// for experiments; their parameters are not measurements.
    pub fn named(name: &str) -> Option<Profile> {
        Some(match name {
            "FastDRAM" => Profile::fixed(Nanos(62), Nanos(62), 0),
            "SlowDRAM" => Profile::fixed(Nanos(77), Nanos(77), 0),
            "FastSSD" => Profile::planned(Nanos(1_820), Nanos(2_000), 16),
            "MediumSSD" => Profile::planned(Nanos(13_330), Nanos(27_770), 16),
            "SlowSSD" => Profile::planned(Nanos(18_180), Nanos(33_330), 16),
            "FastHDD" => Profile::planned(Nanos(120_800), Nanos(974_600), 1),
            "SlowHDD" => Profile::planned(Nanos(1_661_100), Nanos(1_037_300), 1),
            "hdd-7200" => Profile::disks(1),
            "hdd-array" => Profile::disks(8),
            "sata-ssd" => Profile {
                read: Latency::Lognormal { mean: micros(95), sigma: 0.3 },
                write: Latency::Lognormal { mean: micros(60), sigma: 0.5 },
                sync: Latency::Lognormal { mean: micros(900), sigma: 0.5 },
                read_bytes_per_s: 540 * MB,
                write_bytes_per_s: 450 * MB,
                parallelism: 8,
                ..Profile::INSTANT
            },
            "nvme" => Profile {
                read: Latency::Lognormal { mean: micros(80), sigma: 0.2 },
                write: Latency::Lognormal { mean: micros(20), sigma: 0.4 },
                sync: Latency::Lognormal { mean: micros(30), sigma: 0.5 },
                read_bytes_per_s: 3_200 * MB,
                write_bytes_per_s: 1_800 * MB,
                parallelism: 64,
                ..Profile::INSTANT
            },
            "san" => Profile {
                read: Latency::Lognormal { mean: micros(900), sigma: 0.8 },
                write: Latency::Lognormal { mean: micros(600), sigma: 0.4 },
                sync: Latency::Lognormal { mean: micros(300), sigma: 0.3 },
                read_bytes_per_s: 1_100 * MB,
                write_bytes_per_s: 400 * MB,
                write_burst_bytes: 512 << 20,
                operations_per_s: 50_000,
                parallelism: 32,
                disk: None,
            },
            _ => return None,
        })
    }

    /// A device with fixed latencies, on which transfers and syncs take no time.
    pub fn fixed(read: Nanos, write: Nanos, parallelism: u32) -> Profile {
        Profile {
            read: Latency::Fixed(read),
            write: Latency::Fixed(write),
            parallelism,
            ..Profile::INSTANT
        }
    }

    /// A block device whose read and write latencies are known; a sync takes as long as a write.
    fn planned(read: Nanos, write: Nanos, parallelism: u32) -> Profile {
        Profile { sync: Latency::Fixed(write), ..Profile::fixed(read, write, parallelism) }
    }

    /// Checks that the parameters are valid.
    ///
    /// # Errors
    /// If a latency is invalid.
    pub fn check(&self) -> Result<(), LatencyError> {
        [&self.read, &self.write, &self.sync].into_iter().try_for_each(Latency::check)
    }

    /// Disks with 7,200 rotations per minute and no write cache.
    fn disks(spindles: u32) -> Profile {
        Profile {
            read: Latency::Fixed(micros(100)),
            write: Latency::Fixed(micros(100)),
            sync: Latency::Fixed(micros(100)),
            read_bytes_per_s: 200 * MB,
            write_bytes_per_s: 200 * MB,
            disk: Some(Disk {
                seek_min: micros(500),
                seek_max: micros(16_000),
                rotation: micros(8_333),
                spindles,
                stripe_bytes: 256 << 10,
            }),
            ..Profile::INSTANT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_profile_that_makes_sense() {
        for name in Profile::NAMES {
            assert_eq!(Profile::named(name).expect(name).check(), Ok(()), "{name}");
        }
        assert_eq!(Profile::named("floppy"), None);
    }
}
