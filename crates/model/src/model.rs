//! The model of a device: which operations wait for which, and for how long.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_block::{Nanos, Op};

use crate::distribution::Latency;
use crate::profile::{Disk, Profile};

/// The properties of an operation that determine its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The operation.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub length: u64,
}

/// A simulated device and its state.
///
/// Operations are served in the order in which they start (no elevator), each by the server that
/// becomes free first, or by the disk that holds the data. Then the data passes through a channel
/// of limited bandwidth, in which data that is ready earlier goes first. A sync ends after every
/// write that started before it.
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
    /// Position of the disk's head in bytes: the end of the last operation.
    head: u64,
}

impl Model {
    /// A device with this `profile` and a `capacity` in bytes, over which the seeks of disks are
    /// spread. The random numbers come from `seed`.
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

    /// Returns when an operation that starts at `now` ends, which is never before `now`. Calls
    /// should come in order of time: a call with an earlier `now` finds the state that later
    /// operations left.
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

    /// Delays an operation as the limit on operations per second requires.
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
                let end = self.transfer(now, start.saturating_add(latency), access, kind);
                if let Some(at) = server {
                    self.servers[at].free = end;
                }
                end
            }
        }
    }

    /// Serves each stripe of the operation from its disk; the operation ends with the last of them.
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

    /// Seek time and rotation before a disk can serve `position`; 0 for a sequential operation.
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

    fn transfer(&mut self, now: Nanos, ready: Nanos, access: Access, kind: Kind) -> Nanos {
        if !moves_data(access.op) {
            return ready;
        }
        let channel = match kind {
            Kind::Read => &mut self.read_channel,
            _ => &mut self.write_channel,
        };
        channel.forget_before(now);
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

/// A channel of limited bandwidth with a write cache that absorbs a burst.
///
/// The channel keeps a timetable, because operations do not become ready in the order in which
/// they start. A slow operation must not delay those that are ready before it, so these use the
/// gaps that are left.
#[derive(Clone, Debug)]
struct Channel {
    bytes_per_s: u64,
    burst: Nanos,
    /// Periods in which the channel is in use, in order of time; they do not overlap.
    busy: VecDeque<Slot>,
}

/// A period in which a channel is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    start: Nanos,
    end: Nanos,
}

impl Channel {
    fn new(bytes_per_s: u64, burst_bytes: u64) -> Channel {
        let burst = transfer_time(burst_bytes, bytes_per_s);
        Channel { bytes_per_s, burst, busy: VecDeque::new() }
    }

    /// Drops the slots that end before `now`: no data passed from now on is ready earlier.
    fn forget_before(&mut self, now: Nanos) {
        while self.busy.front().is_some_and(|slot| slot.end < now) {
            self.busy.pop_front();
        }
    }

    /// Schedules `bytes` that are ready at `ready`; returns when they have passed.
    fn pass(&mut self, ready: Nanos, bytes: u64) -> Nanos {
        let mut left = transfer_time(bytes, self.bytes_per_s);
        if left == Nanos(0) {
            return ready;
        }
        let first = self.busy.partition_point(|slot| slot.end < ready);
        let mut taken = Slot { start: ready, end: ready };
        let mut last = first;
        while let Some(&slot) = self.busy.get(last) {
            let gap = slot.start.saturating_sub(taken.end);
            if left < gap {
                break;
            }
            left = left.saturating_sub(gap);
            taken = Slot { start: taken.start.min(slot.start), end: slot.end };
            last += 1;
            if left == Nanos(0) {
                // The gap before this slot is exactly filled.
                return self.take(first..last, taken, slot.start, ready);
            }
        }
        taken.end = taken.end.saturating_add(left);
        self.take(first..last, taken, taken.end, ready)
    }

    /// Replaces `slots` with `taken`, which contains them. Returns when data that is ready at
    /// `ready` and has passed at `passed` counts as passed.
    fn take(&mut self, slots: Range<usize>, taken: Slot, passed: Nanos, ready: Nanos) -> Nanos {
        match slots.len() {
            0 => self.busy.insert(slots.start, taken),
            _ => {
                self.busy[slots.start] = taken;
                self.busy.drain(slots.start + 1..slots.end);
            }
        }
        // Up to the burst, the write cache accepts bytes that have not passed yet.
        ready.max(passed.saturating_sub(self.burst))
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

    /// Mean time, in microseconds, of operations at random offsets within 1 TiB, one after another.
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

    /// Issues `count` reads of 4 KiB, `depth` in flight at a time. Returns the start and the end of
    /// each read that another one waited for.
    fn keep_in_flight(profile: &Profile, depth: usize, count: usize) -> Vec<(u64, u64)> {
        let mut model = Model::new(profile, 1 << 40, 9);
        let mut in_flight = std::collections::BinaryHeap::new();
        let mut ended = Vec::new();
        for n in 0..count {
            let now = match in_flight.len() == depth {
                true => {
                    let std::cmp::Reverse((end, start)) = in_flight.pop().unwrap();
                    ended.push((start, end));
                    end
                }
                false => 0,
            };
            let end = model.complete(Nanos(now), access(Op::Read, (n as u64) << 20, 4096)).0;
            in_flight.push(std::cmp::Reverse((end, now)));
        }
        ended
    }

    #[test]
    fn a_slow_operation_does_not_delay_others_that_have_servers_of_their_own() {
        let mean = Nanos(900_000);
        let read = Latency::Lognormal { mean, sigma: 0.8 };
        for read_bytes_per_s in [0, 100_000_000_000] {
            let profile = Profile {
                read: read.clone(),
                parallelism: 32,
                read_bytes_per_s,
                ..Profile::INSTANT
            };
            let [alone, together] = [1, 32].map(|depth| {
                let mut times: Vec<u64> = keep_in_flight(&profile, depth, 200_000)
                    .iter()
                    .map(|(start, end)| end - start)
                    .collect();
                times.sort_unstable();
                let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
                (mean, times[times.len() * 99 / 100] as f64)
            });
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
            assert!(near(alone.0, mean.0 as f64), "{alone:?}");
            assert!(near(together.0, mean.0 as f64), "{together:?}");
            assert!(near(together.1, alone.1), "{together:?} {alone:?}");
        }
    }

    #[test]
    fn the_bandwidth_is_used_up_whatever_the_latencies() {
        // 4 KiB take 100 us to pass, and 32 servers could serve an operation every 28 us.
        let read = Latency::Lognormal { mean: Nanos(900_000), sigma: 0.8 };
        let profile =
            Profile { read, parallelism: 32, read_bytes_per_s: 40_960_000, ..Profile::INSTANT };
        let ended = keep_in_flight(&profile, 64, 50_000);
        let seconds = ended.last().unwrap().1 as f64 / 1e9;
        let rate = ended.len() as f64 / seconds;
        assert!((9_900.0..=10_001.0).contains(&rate), "{rate}");
    }

    #[test]
    fn data_pass_in_the_time_that_is_left_before_those_that_are_ready_later() {
        let mut channel = Channel::new(1_000_000_000, 0);
        let mut pass = |ready, bytes| channel.pass(Nanos(ready), bytes).0;
        assert_eq!(pass(1_000, 100), 1_100);
        assert_eq!(pass(10, 100), 110, "the channel is idle");
        assert_eq!(pass(950, 50), 1_000, "exactly the time that is left");
        assert_eq!(pass(940, 50), 1_140, "10 before the others, 40 after them");
        assert_eq!(pass(50, 830), 940, "all the time that is left");
        assert_eq!(channel.busy, [Slot { start: Nanos(10), end: Nanos(1_140) }]);
        assert_eq!(channel.pass(Nanos(0), 0), Nanos(0), "nothing to pass");
        channel.forget_before(Nanos(1_141));
        assert!(channel.busy.is_empty());
    }

    /// Compares a channel with a table that has an entry for each nanosecond.
    #[test]
    fn a_channel_agrees_with_a_table_of_its_nanoseconds() {
        let mut state = 5;
        let mut number = |n: u64| (unit(&mut state) * n as f64) as u64;
        for _ in 0..200 {
            let burst = number(2) * number(60);
            let mut channel = Channel::new(1_000_000_000, burst);
            let mut table = vec![false; 4_000];
            let mut now = 0;
            for _ in 0..40 {
                now += number(30);
                channel.forget_before(Nanos(now));
                let (ready, bytes) = (now + number(200), number(40));
                let mut at = ready;
                for _ in 0..bytes {
                    while table[at as usize] {
                        at += 1;
                    }
                    table[at as usize] = true;
                    at += 1;
                }
                let end = ready.max(at.saturating_sub(burst));
                assert_eq!(channel.pass(Nanos(ready), bytes), Nanos(end));
                assert!(
                    channel
                        .busy
                        .iter()
                        .zip(channel.busy.iter().skip(1))
                        .all(|(a, b)| a.end <= b.start)
                );
            }
        }
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
