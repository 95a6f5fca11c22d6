//! The model of a device at work: who waits for whom, and how long.

use forebay_block::{Nanos, Op};

use crate::distribution::Latency;
use crate::profile::{Disk, Profile};

/// An operation, as far as its time depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
}

/// A device at work.
///
/// Operations are served in the order in which they start (no elevator), each by the server that
/// is free first, or by the disk that holds the data. Then the data pass a channel of limited
/// bandwidth. A sync ends after every write that started before it.
#[derive(Clone, Debug)]
pub struct Model {
    read: Latency,
    write: Latency,
    sync: Latency,
    servers: Vec<Server>,
    disk: Option<Disk>,
    disk_bytes: u64,
    read_channel: Channel,
    write_channel: Channel,
    gap: Nanos,
    admitted: Nanos,
    writes_end: Nanos,
    random: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    free: Nanos,
    /// Where the disk's head is: the end of the last operation.
    head: u64,
}

impl Model {
    /// A device like `profile` with `capacity` bytes (over which the disks' seeks are spread),
    /// whose random numbers come from `seed`.
    pub fn new(profile: &Profile, capacity: u64, seed: u64) -> Model {
        let servers = profile.disk.map_or(profile.parallelism, |disk| disk.spindles.max(1));
        let spindles = profile.disk.map_or(1, |disk| u64::from(disk.spindles.max(1)));
        Model {
            read: profile.read.clone(),
            write: profile.write.clone(),
            sync: profile.sync.clone(),
            servers: vec![Server::default(); servers as usize],
            disk: profile.disk,
            disk_bytes: (capacity / spindles).max(1),
            read_channel: Channel::new(profile.read_bytes_per_s, 0),
            write_channel: Channel::new(profile.write_bytes_per_s, profile.write_burst_bytes),
            gap: Nanos(1_000_000_000u64.checked_div(profile.operations_per_s).unwrap_or(0)),
            admitted: Nanos(0),
            writes_end: Nanos(0),
            random: seed,
        }
    }

    /// When an operation that starts at `now` ends. Never before `now`. Calls come in order of
    /// time; one that does not is taken as starting when the last one did, where that matters.
    pub fn complete(&mut self, now: Nanos, access: Access) -> Nanos {
        let now = self.admit(now);
        let end = match access.op {
            Op::Flush => {
                let sync = self.sample(Kind::Sync);
                return now.max(self.writes_end).saturating_add(sync);
            }
            Op::Read => self.serve(now, access, Kind::Read),
            Op::Write | Op::Trim | Op::WriteZeroes => self.serve(now, access, Kind::Write),
        };
        if access.op != Op::Read {
            self.writes_end = self.writes_end.max(end);
        }
        end
    }

    /// Spaces operations out to the limit on their rate.
    fn admit(&mut self, now: Nanos) -> Nanos {
        if self.gap.0 == 0 {
            return now;
        }
        let now = now.max(self.admitted);
        self.admitted = now.saturating_add(self.gap);
        now
    }

    fn serve(&mut self, now: Nanos, access: Access, kind: Kind) -> Nanos {
        match self.disk {
            Some(disk) => self.serve_from_disks(now, access, kind, disk),
            None => {
                let latency = self.sample(kind);
                let server = (0..self.servers.len()).min_by_key(|&at| self.servers[at].free);
                let start = server.map_or(now, |at| now.max(self.servers[at].free));
                let end = self.transfer(start.saturating_add(latency), access, kind);
                if let Some(at) = server {
                    self.servers[at].free = end;
                }
                end
            }
        }
    }

    /// Each stripe of the operation is served by its disk; the last one to end counts.
    fn serve_from_disks(&mut self, now: Nanos, access: Access, kind: Kind, disk: Disk) -> Nanos {
        let stripe = disk.stripe_bytes.max(1);
        let spindles = self.servers.len() as u64;
        let (mut offset, last) = (access.offset, access.offset + access.length);
        let mut end = now;
        loop {
            let length = (stripe - offset % stripe).min(last - offset);
            let number = offset / stripe;
            let at = (number % spindles) as usize;
            let position = number / spindles * stripe + offset % stripe;
            let latency = self.sample(kind);
            let movement = self.movement(at, position, disk);
            let start = now.max(self.servers[at].free);
            let ready = start.saturating_add(latency).saturating_add(movement);
            // Each disk has a channel of its own: the stripe's bytes pass at full bandwidth.
            let bytes_per_s = match kind {
                Kind::Read => self.read_channel.bytes_per_s,
                _ => self.write_channel.bytes_per_s,
            };
            let moved = if moves_data(access.op) { length } else { 0 };
            let piece_end = ready.saturating_add(transfer_time(moved, bytes_per_s));
            self.servers[at] = Server { free: piece_end, head: position + length };
            end = end.max(piece_end);
            offset += length;
            if offset >= last {
                return end;
            }
        }
    }

    /// Seek and rotation before a disk can serve `position`; none for a sequential operation.
    fn movement(&mut self, server: usize, position: u64, disk: Disk) -> Nanos {
        let head = self.servers[server].head;
        if position == head {
            return Nanos(0);
        }
        let distance = position.abs_diff(head).min(self.disk_bytes);
        let share = (distance as f64 / self.disk_bytes as f64).sqrt();
        let range = disk.seek_max.saturating_sub(disk.seek_min);
        let seek = disk.seek_min.0 + (share * range.0 as f64) as u64;
        let rotation = (self.uniform() * disk.rotation.0 as f64) as u64;
        Nanos(seek + rotation)
    }

    fn transfer(&mut self, ready: Nanos, access: Access, kind: Kind) -> Nanos {
        if !moves_data(access.op) {
            return ready;
        }
        let channel = match kind {
            Kind::Read => &mut self.read_channel,
            _ => &mut self.write_channel,
        };
        channel.pass(ready, access.length)
    }

    fn sample(&mut self, kind: Kind) -> Nanos {
        let latency = match kind {
            Kind::Read => &self.read,
            Kind::Write => &self.write,
            Kind::Sync => &self.sync,
        };
        if let Latency::Fixed(time) = *latency {
            return time;
        }
        let u = unit(&mut self.random);
        latency.quantile(u)
    }

    fn uniform(&mut self) -> f64 {
        unit(&mut self.random)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    Sync,
}

/// A channel of limited bandwidth that can run ahead by a burst.
#[derive(Clone, Copy, Debug)]
struct Channel {
    bytes_per_s: u64,
    burst: Nanos,
    free: Nanos,
}

impl Channel {
    fn new(bytes_per_s: u64, burst_bytes: u64) -> Channel {
        let burst = transfer_time(burst_bytes, bytes_per_s);
        Channel { bytes_per_s, burst, free: Nanos(0) }
    }

    /// When `bytes` that are ready at `ready` have passed.
    fn pass(&mut self, ready: Nanos, bytes: u64) -> Nanos {
        let time = transfer_time(bytes, self.bytes_per_s);
        self.free = self.free.max(ready).saturating_add(time);
        // Within the burst the cache has taken the bytes in although they have not passed yet.
        ready.max(self.free.saturating_sub(self.burst))
    }
}

fn moves_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}

fn transfer_time(bytes: u64, bytes_per_s: u64) -> Nanos {
    let time = u128::from(bytes) * 1_000_000_000;
    let time = time.checked_div(bytes_per_s.into()).unwrap_or(0);
    Nanos(u64::try_from(time).unwrap_or(u64::MAX))
}

/// The next number from 0 to below 1 (SplitMix64).
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(op: Op, offset: u64, length: u64) -> Access {
        Access { op, offset, length }
    }

    /// Mean time of operations one after another at random places of 1 TiB, microseconds.
    fn mean_us(name: &str, op: Op) -> f64 {
        let mut model = Model::new(&Profile::named(name).unwrap(), 1 << 40, 7);
        let mut place = 1u64;
        let (mut now, n) = (Nanos(0), 20_000);
        for _ in 0..n {
            let offset = (unit(&mut place) * (1u64 << 28) as f64) as u64 * 4096;
            now = model.complete(now, access(op, offset, 4096));
        }
        now.0 as f64 / 1e3 / f64::from(n)
    }

    #[test]
    fn the_catalogues_devices_have_the_catalogues_latencies() {
        assert_eq!(mean_us("FastSSD", Op::Read), 1.82);
        assert_eq!(mean_us("FastHDD", Op::Write), 974.6);
        assert_eq!(mean_us("SlowHDD", Op::Read), 1661.1);
        for name in ["FastSSD", "MediumSSD", "SlowSSD", "FastHDD", "SlowHDD"] {
            assert_eq!(mean_us(name, Op::Flush), mean_us(name, Op::Write), "{name}");
        }
    }

    #[test]
    fn a_disk_makes_about_eighty_random_operations_per_second() {
        let us = mean_us("hdd-7200", Op::Read);
        assert!((11_000.0..14_000.0).contains(&us), "{us}");
    }

    #[test]
    fn sequential_reads_of_a_disk_run_at_its_bandwidth() {
        let mut model = Model::new(&Profile::named("hdd-7200").unwrap(), 1 << 40, 1);
        let start = model.complete(Nanos(0), access(Op::Read, 0, 1 << 20));
        let mut now = start;
        for i in 1..200 {
            now = model.complete(now, access(Op::Read, i << 20, 1 << 20));
        }
        let bytes_per_s = (199u64 << 20) as f64 / (now.0 - start.0) as f64 * 1e9;
        assert!((180e6..200e6).contains(&bytes_per_s), "{bytes_per_s}");
    }

    #[test]
    fn longer_seeks_take_longer_but_less_than_in_proportion() {
        let disk = Disk {
            seek_min: Nanos(100),
            seek_max: Nanos(10_100),
            rotation: Nanos(0),
            spindles: 1,
            stripe_bytes: 1 << 20,
        };
        let profile = Profile { disk: Some(disk), ..Profile::INSTANT };
        let time = |distance| {
            Model::new(&profile, 10_000 << 20, 1)
                .complete(Nanos(0), access(Op::Read, distance, 512))
        };
        assert_eq!(time(0), Nanos(0));
        assert_eq!(time(100 << 20), Nanos(1_100));
        assert_eq!(time(2_500 << 20), Nanos(5_100));
        assert_eq!(time(9_999 << 20).0 / 100, 100);
    }

    #[test]
    fn an_arrays_disks_work_side_by_side() {
        let run = |name: &str| {
            let mut model = Model::new(&Profile::named(name).unwrap(), 1 << 40, 3);
            let ends = (0..800u64).map(|i| {
                let offset = (i * 2_654_435_761) % (1 << 28) * 4096;
                model.complete(Nanos(0), access(Op::Read, offset, 4096))
            });
            ends.max().unwrap().0
        };
        let gain = run("hdd-7200") as f64 / run("hdd-array") as f64;
        assert!((5.0..8.5).contains(&gain), "{gain}");
    }

    #[test]
    fn operations_beyond_the_parallelism_wait() {
        let profile = Profile::fixed(Nanos(100), Nanos(300), 2);
        let mut model = Model::new(&profile, 1 << 30, 1);
        let ends: Vec<u64> =
            (0..5).map(|_| model.complete(Nanos(10), access(Op::Read, 0, 512)).0).collect();
        assert_eq!(ends, [110, 110, 210, 210, 310]);
        let mut unlimited = Model::new(&Profile { parallelism: 0, ..profile }, 1 << 30, 1);
        for _ in 0..5 {
            assert_eq!(unlimited.complete(Nanos(10), access(Op::Write, 0, 512)), Nanos(310));
        }
    }

    #[test]
    fn bandwidth_is_shared_and_a_write_cache_takes_a_burst() {
        let profile = Profile {
            read_bytes_per_s: 1_000_000,
            write_bytes_per_s: 1_000_000,
            write_burst_bytes: 3_000,
            ..Profile::INSTANT
        };
        let mut model = Model::new(&profile, 1 << 30, 1);
        let mut end = |op| model.complete(Nanos(0), access(op, 0, 1000)).0;
        assert_eq!([end(Op::Read), end(Op::Read)], [1_000_000, 2_000_000]);
        let writes = [end(Op::Write), end(Op::Write), end(Op::Write), end(Op::Write)];
        assert_eq!(writes, [0, 0, 0, 1_000_000]);
    }

    #[test]
    fn a_limit_on_operations_spaces_them_out() {
        let profile = Profile { operations_per_s: 1_000, ..Profile::INSTANT };
        let mut model = Model::new(&profile, 1 << 30, 1);
        let ends: Vec<u64> =
            (0..3).map(|_| model.complete(Nanos(0), access(Op::Read, 0, 512)).0).collect();
        assert_eq!(ends, [0, 1_000_000, 2_000_000]);
        assert_eq!(model.complete(Nanos(9_000_000), access(Op::Read, 0, 512)), Nanos(9_000_000));
    }

    #[test]
    fn a_sync_ends_after_every_write_before_it() {
        let sync = Latency::Fixed(Nanos(50));
        let profile = Profile { sync, ..Profile::fixed(Nanos(100), Nanos(1_000), 1) };
        let mut model = Model::new(&profile, 1 << 30, 1);
        model.complete(Nanos(0), access(Op::Write, 0, 512));
        let write = model.complete(Nanos(0), access(Op::WriteZeroes, 0, 512));
        assert_eq!(write, Nanos(2_000));
        assert_eq!(model.complete(Nanos(10), access(Op::Flush, 0, 0)), Nanos(2_050));
        assert_eq!(model.complete(Nanos(5_000), access(Op::Flush, 0, 0)), Nanos(5_050));
    }

    #[test]
    fn the_same_seed_gives_the_same_times_and_none_precedes_its_start() {
        for name in Profile::NAMES {
            let run = |seed| {
                let mut model = Model::new(&Profile::named(name).unwrap(), 1 << 36, seed);
                (0..500u64)
                    .map(|i| {
                        let op = [Op::Read, Op::Write, Op::Flush][(i % 3) as usize];
                        let now = Nanos(i * 50_000);
                        let end = model.complete(now, access(op, (i * 7919) << 12, 4096));
                        assert!(end >= now, "{name}");
                        end
                    })
                    .collect::<Vec<_>>()
            };
            assert_eq!(run(5), run(5));
        }
    }
}
