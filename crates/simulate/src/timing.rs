//! The timing half of the executor: which operations are in flight on devices, and when they end.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_block::{Nanos, Op};
use forebay_effect::{Device, Effect, Outcome, Token};
use forebay_model::{Access, Model, Profile};
use forebay_results::{ComponentRecorder, Operation};

use crate::options::{Options, Pacing};
use crate::outage::{Outage, Trouble};
use crate::scenario::Scenario;

/// Devices and the operations in flight on them.
#[derive(Debug)]
pub(crate) enum Timing {
    /// Every operation ends immediately, in the order in which the operations began.
    Untimed(VecDeque<Token>),
    /// Every operation ends when the device's model says.
    Timed(Box<Timed>),
}

/// A flash device that several simulations may share: each has its own part of the device, and they
/// wait for each other's operations. Clones refer to the same device.
///
/// The device serves operations in the order of the calls, so simulations that share a device must
/// advance together ([`Simulation::advance_to`](crate::Simulation::advance_to)).
#[derive(Clone, Debug)]
pub struct FlashDevice(Arc<Mutex<Model>>);

impl FlashDevice {
    /// Creates a device like `profile` with `capacity` bytes, with random numbers from `seed`.
    pub fn new(profile: &Profile, capacity: u64, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Model::new(profile, capacity, seed))))
    }

    fn complete(&self, now: Nanos, access: Access) -> Nanos {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).complete(now, access)
    }
}

/// Devices that take time.
#[derive(Debug)]
pub(crate) struct Timed {
    /// Operations in flight, by end time; those that end at the same time end in the order in which
    /// they began.
    queue: BinaryHeap<Reverse<Ending>>,
    sequence: u64,
    /// Whether operations end in the order in which they began.
    in_order: bool,
    latest: Nanos,
    flash: FlashDevice,
    backing: Vec<Store>,
    latency: ComponentRecorder,
    /// How long the devices were busy: the backing stores by volume, then flash.
    busy: Vec<Busy>,
}

/// A simulated backing store.
#[derive(Debug)]
struct Store {
    model: Model,
    /// Each outage has its own model, because a slow store runs on a slower clock.
    outages: Vec<(Outage, Model)>,
    /// When the run began; `None` while the cache is being set up. Outages are timed from then, and
    /// there are none during the setup.
    epoch: Option<Nanos>,
}

impl Store {
    /// When and how an operation ends that begins at `now`. A zeroing that `punches` a hole needs
    /// no space.
    fn complete(&mut self, now: Nanos, access: Access, punches: bool) -> (Nanos, Outcome) {
        let epoch = self.epoch.unwrap_or_default();
        let running = now.saturating_sub(epoch);
        let begun = self.epoch.is_some();
        let covers = |outage: &Outage| begun && outage.covers(running);
        let Some((outage, model)) = self.outages.iter_mut().find(|(o, _)| covers(o)) else {
            return (self.model.complete(now, access), Ok(()));
        };
        let end = match outage.trouble {
            Trouble::Slow(times) => {
                let from = epoch.saturating_add(outage.from);
                let since = now.saturating_sub(from).0 as f64 / times;
                let end = model.complete(Nanos(since as u64), access);
                from.saturating_add(Nanos((end.0 as f64 * times) as u64)).max(now)
            }
            Trouble::Dead | Trouble::Full => self.model.complete(now, access),
        };
        (end, outage.trouble.outcome(if punches { Op::Trim } else { access.op }))
    }
}

/// How long a device was busy.
#[derive(Clone, Copy, Default, Debug)]
struct Busy {
    total: Nanos,
    until: Nanos,
}

impl Busy {
    /// Adds an operation that begins at `now` and ends at `end`. Call in order of time.
    fn add(&mut self, now: Nanos, end: Nanos) {
        let since = now.max(self.until);
        self.total = self.total.saturating_add(end.saturating_sub(since));
        self.until = self.until.max(end);
    }
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    at: Nanos,
    sequence: u64,
    token: Token,
    result: Outcome,
}

impl Ending {
    fn order(&self) -> (Nanos, u64) {
        (self.at, self.sequence)
    }
}

impl PartialEq for Ending {
    fn eq(&self, other: &Ending) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Ending {}

impl PartialOrd for Ending {
    fn partial_cmp(&self, other: &Ending) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ending {
    fn cmp(&self, other: &Ending) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Timing {
    /// Creates idle devices; `flash` may be a flash device that other simulations use too.
    pub fn new(scenario: &Scenario, options: &Options, flash: Option<&FlashDevice>) -> Timing {
        let Options { seed, pacing, ref outages, .. } = *options;
        if pacing == Pacing::Untimed {
            return Timing::Untimed(VecDeque::with_capacity(1024));
        }
        let flash_bytes = scenario.cache.flash.as_ref().map_or(0, |f| f.geometry.device_bytes());
        let backing = scenario.volumes.iter().zip(1..);
        Timing::Timed(Box::new(Timed {
            queue: BinaryHeap::with_capacity(1024),
            sequence: 0,
            in_order: pacing == Pacing::Quiesced,
            latest: Nanos(0),
            flash: flash
                .cloned()
                .unwrap_or_else(|| FlashDevice::new(&scenario.flash, flash_bytes, seed)),
            backing: backing
                .map(|(v, n)| {
                    let model = Model::new(&v.backing, v.size_bytes, seed ^ n << 32);
                    let own = outages.iter().filter(|o| o.volume == v.name);
                    let outages = own.map(|o| (o.clone(), model.clone())).collect();
                    Store { model, outages, epoch: None }
                })
                .collect(),
            latency: Default::default(),
            busy: vec![Busy::default(); scenario.volumes.len() + 1],
        }))
    }

    /// Begins a device effect.
    #[inline]
    pub fn begin(&mut self, now: Nanos, effect: &Effect) {
        match self {
            Timing::Untimed(queue) => queue.extend(effect.token()),
            Timing::Timed(timed) => timed.begin(now, effect),
        }
    }

    /// When the next effect ends; `None` when no effect is in flight.
    #[inline]
    pub fn next_at(&self, now: Nanos) -> Option<Nanos> {
        match self {
            Timing::Untimed(queue) => (!queue.is_empty()).then_some(now),
            Timing::Timed(timed) => timed.queue.peek().map(|e| e.0.at),
        }
    }

    /// Removes the next effect that ends and returns its token and outcome.
    #[inline]
    pub fn pop(&mut self) -> Option<(Token, Outcome)> {
        match self {
            Timing::Untimed(queue) => queue.pop_front().map(|token| (token, Ok(()))),
            Timing::Timed(timed) => timed.queue.pop().map(|e| (e.0.token, e.0.result)),
        }
    }

    /// The recorded latencies of device operations.
    pub fn components(&self) -> ComponentRecorder {
        match self {
            Timing::Untimed(_) => ComponentRecorder::default(),
            Timing::Timed(timed) => timed.latency.clone(),
        }
    }

    /// How long each device was busy: the backing stores by volume, then flash. Empty when untimed.
    pub fn busy(&self) -> Vec<Nanos> {
        match self {
            Timing::Untimed(_) => Vec::new(),
            Timing::Timed(timed) => timed.busy.iter().map(|b| b.total).collect(),
        }
    }

    /// Begins the run: times outages from `now`, and discards the latencies and busy times so far.
    pub fn begin_run(&mut self, now: Nanos) {
        if let Timing::Timed(timed) = self {
            timed.latency.clear();
            timed.busy.fill(Busy::default());
            timed.backing.iter_mut().for_each(|store| store.epoch = Some(now));
        }
    }
}

impl Timed {
    fn begin(&mut self, now: Nanos, effect: &Effect) {
        let (token, device, kind, access) = match *effect {
            Effect::Read { token, device, offset, length } => {
                (token, device, Operation::Read, access(Op::Read, offset, length.into()))
            }
            Effect::Write { token, device, offset, length } => {
                (token, device, Operation::Write, access(Op::Write, offset, length.into()))
            }
            Effect::WriteZeroes { token, device, offset, length, .. } => {
                (token, device, Operation::Write, access(Op::WriteZeroes, offset, length))
            }
            Effect::Sync { token, device } => {
                (token, device, Operation::Sync, access(Op::Flush, 0, 0))
            }
            Effect::Copy { .. }
            | Effect::Zero { .. }
            | Effect::Checksum { .. }
            | Effect::Reply { .. } => unreachable!("an immediate effect has no end to wait for"),
        };
        let (mut at, result) = match device {
            Device::Flash => (self.flash.complete(now, access), Ok(())),
            Device::Backing(volume) => {
                let punches = matches!(effect, Effect::WriteZeroes { punch: true, .. });
                self.backing[volume.0 as usize].complete(now, access, punches)
            }
        };
        self.latency.record(device, kind, at.saturating_sub(now));
        let busy = match device {
            Device::Flash => self.busy.last_mut(),
            Device::Backing(volume) => self.busy.get_mut(volume.0 as usize),
        };
        busy.into_iter().for_each(|busy| busy.add(now, at));
        if self.in_order {
            at = at.max(self.latest);
            self.latest = at;
        }
        self.sequence += 1;
        self.queue.push(Reverse(Ending { at, sequence: self.sequence, token, result }));
    }
}

fn access(op: Op, offset: u64, length: u64) -> Access {
    Access { op, offset, length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Defaults, TracedVolume};
    use forebay_block::Volume;
    use forebay_config::Config;
    use forebay_effect::Owner;
    use forebay_model::Profile;
    use forebay_results::Components;

    fn timing() -> Timing {
        let traced = [TracedVolume { name: "a".into(), bytes: 1 << 20 }];
        let mut scenario =
            Scenario::new(&Config::default(), &traced, &Defaults::default()).unwrap();
        scenario.volumes[0].backing = Profile::fixed(Nanos(100), Nanos(300), 2);
        Timing::new(&scenario, &Options::default(), None)
    }

    fn read(index: u32) -> Effect {
        let token = Token { owner: Owner::Front, index };
        let device = Device::Backing(forebay_block::Volume(0));
        Effect::Read { token, device, offset: 0, length: 4096 }
    }

    #[test]
    fn the_time_that_a_device_is_at_work_is_counted_once() {
        let mut busy = Busy::default();
        for (now, end, total) in [(0, 10, 10), (5, 8, 10), (8, 12, 12), (20, 21, 13)] {
            busy.add(Nanos(now), Nanos(end));
            assert_eq!(busy.total, Nanos(total));
        }
    }

    #[test]
    fn what_ends_at_the_same_time_ends_in_the_order_in_which_it_began() {
        let mut timing = timing();
        for index in [7, 3, 5, 1] {
            timing.begin(Nanos(0), &read(index));
        }
        let mut ends = Vec::new();
        while let Some(at) = timing.next_at(Nanos(0)) {
            ends.push((at.0, timing.pop().unwrap().0.index));
        }
        assert_eq!(ends, [(100, 7), (100, 3), (200, 5), (200, 1)]);
    }

    #[test]
    fn simulations_that_share_a_flash_device_wait_for_each_other() {
        let traced = [TracedVolume { name: "a".into(), bytes: 1 << 20 }];
        let scenario = Scenario::new(&Config::default(), &traced, &Defaults::default()).unwrap();
        let device = FlashDevice::new(&Profile::fixed(Nanos(100), Nanos(300), 1), 1 << 20, 1);
        let timing = || Timing::new(&scenario, &Options::default(), Some(&device));
        let (mut one, mut other) = (timing(), timing());
        let read = |index| {
            let token = Token { owner: Owner::Front, index };
            Effect::Read { token, device: Device::Flash, offset: 0, length: 4096 }
        };
        one.begin(Nanos(0), &read(1));
        other.begin(Nanos(50), &read(2));
        assert_eq!(one.next_at(Nanos(50)), Some(Nanos(100)));
        assert_eq!(other.next_at(Nanos(50)), Some(Nanos(200)));
    }

    #[test]
    fn a_slow_store_has_a_slow_clock_and_one_that_fails_says_so() {
        let traced = [TracedVolume { name: "a".into(), bytes: 1 << 20 }];
        let mut scenario =
            Scenario::new(&Config::default(), &traced, &Defaults::default()).unwrap();
        scenario.volumes[0].backing = Profile::fixed(Nanos(100), Nanos(300), 1);
        let outages = ["a=slow:10@1us..2us", "a=dead@2us..3us"].map(|o| o.parse().unwrap());
        let options = Options { outages: outages.to_vec(), ..Options::default() };
        let mut timing = Timing::new(&scenario, &options, None);
        // During the setup of the cache, outages do not apply. The run begins at 10 us.
        timing.begin(Nanos(1500), &read(9));
        assert_eq!(timing.next_at(Nanos(0)), Some(Nanos(1600)));
        assert!(timing.pop().unwrap().1.is_ok());
        timing.begin_run(Nanos(10_000));
        // Before the outages, while the store is slow (the second read waits for the first), while
        // it fails, and afterwards.
        for (begun, index) in [(0, 0), (1000, 1), (1100, 2), (2500, 3), (9000, 4)] {
            timing.begin(Nanos(10_000 + begun), &read(index));
        }
        let mut ends = Vec::new();
        while let Some(at) = timing.next_at(Nanos(0)) {
            let (token, result) = timing.pop().unwrap();
            ends.push((token.index, at.0 - 10_000, result.is_ok()));
        }
        let expected =
            [(0, 100, true), (1, 2000, true), (3, 2600, false), (2, 3000, true), (4, 9100, true)];
        assert_eq!(ends, expected);
    }

    #[test]
    fn latencies_are_counted_by_device_and_kind_with_the_waiting() {
        let mut timing = timing();
        (0..3).for_each(|index| timing.begin(Nanos(0), &read(index)));
        let summary = |timing: &Timing| timing.components().summary([(Volume(0), "a")]);
        let components = summary(&timing);
        assert_eq!(components.backing_read.count, 3);
        assert_eq!(components.backing_read.latency.max, 0.2);
        assert_eq!(components.backing_write.count + components.tier2_read.count, 0);
        timing.begin_run(Nanos(0));
        assert_eq!(summary(&timing), Components::default());
    }
}
