//! Shaping: slows a file down to the speed of another device.
//!
//! The real operation is executed at once; its completion is held back until the time that the
//! device's [`Model`] gives. So an HDD array or a SAN can be tried out on a laptop, and the
//! simulator uses the same latencies. A device that is slower than its model stays slower.
//!
//! A thread that waits for completions must wait for [`Devices::next_due`] as well as for the bell;
//! [`Doorbell::wait`](crate::Doorbell::wait) does both.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use forebay_block::{Nanos, Op};
use forebay_effect::Device;
use forebay_model::{Access, Model};

use crate::devices::{Completion, Devices, Io, Verb};
use crate::layer::Layer;

/// A source of time.
pub trait Clock {
    /// The time now; never goes back.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Devices, some of which are slowed down.
#[derive(Debug)]
pub struct Shaped<D, C = SystemClock> {
    inner: D,
    clock: C,
    epoch: Instant,
    models: Vec<(Device, Model)>,
    /// When the operations in flight on shaped devices are due.
    due: HashMap<u64, Nanos>,
    held: BinaryHeap<Reverse<(Nanos, u64, Held)>>,
    sequence: u64,
    arrived: Vec<Completion>,
}

/// A completion held back. All are equal, so that only the time and the sequence order the heap.
#[derive(Clone, Copy, Debug)]
struct Held(Completion);

impl<D: Devices> Shaped<D> {
    /// Wraps `inner`, and changes nothing until a model is set.
    pub fn new(inner: D) -> Shaped<D> {
        Shaped::with_clock(inner, SystemClock)
    }
}

impl<D: Devices, C: Clock> Shaped<D, C> {
    /// Like [`new`](Shaped::new), with another clock.
    pub fn with_clock(inner: D, clock: C) -> Shaped<D, C> {
        let epoch = clock.now();
        Shaped {
            inner,
            clock,
            epoch,
            models: Vec::new(),
            due: HashMap::new(),
            held: BinaryHeap::new(),
            sequence: 0,
            arrived: Vec::new(),
        }
    }

    /// Slows `device` down to the speed of `model`, from the next operation on; `None` for its own
    /// speed.
    pub fn set_model(&mut self, device: Device, model: Option<Model>) {
        self.models.retain(|(name, _)| *name != device);
        self.models.extend(model.map(|model| (device, model)));
    }

    fn now(&self) -> Nanos {
        let since = self.clock.now().saturating_duration_since(self.epoch);
        Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn instant(&self, at: Nanos) -> Instant {
        self.epoch.checked_add(Duration::from_nanos(at.0)).unwrap_or(self.epoch)
    }
}

impl<D: Devices, C: Clock> Layer for Shaped<D, C> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        let model = self.models.iter().position(|(device, _)| *device == io.device);
        if let Some(at) = model {
            let now = self.now();
            let op = match io.verb {
                Verb::Read => Op::Read,
                Verb::Write => Op::Write,
                Verb::WriteZeroes { .. } => Op::WriteZeroes,
                Verb::Sync => Op::Flush,
            };
            let access = Access { op, offset: io.offset, length: io.length };
            let due = self.models[at].1.complete(now, access);
            self.due.insert(io.tag.0, due);
        }
        false
    }

    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.extend(done.drain(from..));
        for completion in arrived.drain(..) {
            match self.due.remove(&completion.tag.0) {
                Some(due) => {
                    self.held.push(Reverse((due, self.sequence, Held(completion))));
                    self.sequence += 1;
                }
                None => done.push(completion),
            }
        }
        self.arrived = arrived;
        if self.held.is_empty() {
            return;
        }
        let now = self.now();
        while let Some(&Reverse((due, _, Held(completion)))) = self.held.peek()
            && due <= now
        {
            self.held.pop();
            done.push(completion);
        }
    }

    fn abandoned(&mut self) {
        self.due.clear();
        self.held.clear();
    }

    fn own_due(&self) -> Option<Instant> {
        self.held.peek().map(|&Reverse((due, ..))| self.instant(due))
    }
}

impl PartialEq for Held {
    fn eq(&self, _: &Held) -> bool {
        true
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, _: &Held) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use forebay_block::Volume;
    use forebay_model::{Latency, Profile};

    use super::*;
    use crate::buffer::AlignedBuffer;
    use crate::devices::{IoTag, MemorySlice};
    use crate::memory::{DeviceOptions, MemoryDevices};

    const FLASH: Device = Device::Flash;
    const BACKING: Device = Device::Backing(Volume(0));

    struct Watch(Instant, Rc<Cell<u64>>);

    impl Clock for Watch {
        fn now(&self) -> Instant {
            self.0 + Duration::from_micros(self.1.get())
        }
    }

    /// Flash without a model, and a backing store with reads of 100 µs and writes of 300 µs, two at
    /// a time.
    fn shaped() -> (Shaped<MemoryDevices, Watch>, Rc<Cell<u64>>) {
        let mut devices = MemoryDevices::new(1);
        devices.add(FLASH, DeviceOptions::sized(64 << 10));
        devices.add(BACKING, DeviceOptions::sized(64 << 10));
        let time = Rc::new(Cell::new(0));
        let mut shaped = Shaped::with_clock(devices, Watch(Instant::now(), time.clone()));
        let profile = Profile::fixed(Nanos(100_000), Nanos(300_000), 2);
        shaped.set_model(BACKING, Some(Model::new(&profile, 64 << 10, 1)));
        (shaped, time)
    }

    fn submit(shaped: &mut Shaped<MemoryDevices, Watch>, tag: u64, device: Device, verb: Verb) {
        let buffer = AlignedBuffer::new(512);
        let memory = [MemorySlice { pointer: buffer.pointer(), length: 512 }];
        let (offset, length, memory) = match verb {
            Verb::Sync => (0, 0, &memory[..0]),
            _ => (512 * tag, 512, &memory[..]),
        };
        let io = Io { tag: IoTag(tag), device, verb, offset, length, memory };
        // SAFETY: the operation is completed before the buffer is dropped.
        unsafe { shaped.submit(io) };
        shaped.inner_mut().complete_all();
    }

    fn reaped(shaped: &mut Shaped<MemoryDevices, Watch>) -> Vec<u64> {
        let mut done = Vec::new();
        shaped.reap(&mut done);
        done.iter().map(|completion| completion.tag.0).collect()
    }

    #[test]
    fn completions_are_held_back_until_the_models_time() {
        let (mut shaped, time) = shaped();
        submit(&mut shaped, 1, BACKING, Verb::Write);
        submit(&mut shaped, 2, BACKING, Verb::Read);
        submit(&mut shaped, 3, BACKING, Verb::Read);
        submit(&mut shaped, 4, FLASH, Verb::Read);
        assert_eq!(reaped(&mut shaped), [4]);
        assert_eq!(shaped.next_due(), Some(shaped.instant(Nanos(100_000))));
        time.set(99);
        assert!(reaped(&mut shaped).is_empty());
        time.set(100);
        assert_eq!(reaped(&mut shaped), [2]);
        time.set(300);
        assert_eq!(reaped(&mut shaped), [3, 1]);
        assert_eq!(shaped.next_due(), None);
    }

    #[test]
    fn a_sync_takes_its_own_time_after_the_writes_before_it_have_ended() {
        let (mut shaped, time) = shaped();
        let profile = Profile {
            sync: Latency::Fixed(Nanos(50_000)),
            ..Profile::fixed(Nanos(100_000), Nanos(300_000), 2)
        };
        shaped.set_model(BACKING, Some(Model::new(&profile, 64 << 10, 1)));
        submit(&mut shaped, 1, BACKING, Verb::Write);
        submit(&mut shaped, 2, BACKING, Verb::Sync);
        time.set(349);
        assert_eq!(reaped(&mut shaped), [1]);
        time.set(350);
        assert_eq!(reaped(&mut shaped), [2]);
        submit(&mut shaped, 3, BACKING, Verb::Sync);
        time.set(399);
        assert!(reaped(&mut shaped).is_empty());
        time.set(400);
        assert_eq!(reaped(&mut shaped), [3]);
    }

    #[test]
    fn operations_start_no_faster_than_their_limit() {
        let (mut shaped, time) = shaped();
        let profile = Profile {
            operations_per_s: 1_000,
            ..Profile::fixed(Nanos(100_000), Nanos(300_000), 0)
        };
        shaped.set_model(BACKING, Some(Model::new(&profile, 64 << 10, 1)));
        for tag in 1..=3 {
            submit(&mut shaped, tag, BACKING, Verb::Read);
        }
        for (tag, due) in [(1, 100), (2, 1_100), (3, 2_100)] {
            time.set(due - 1);
            assert!(reaped(&mut shaped).is_empty());
            time.set(due);
            assert_eq!(reaped(&mut shaped), [tag]);
        }
    }

    #[test]
    fn a_device_really_slower_than_its_model_is_not_made_slower_still() {
        let (mut shaped, time) = shaped();
        let buffer = AlignedBuffer::new(512);
        let memory = [MemorySlice { pointer: buffer.pointer(), length: 512 }];
        let (device, verb) = (BACKING, Verb::Read);
        let io = Io { tag: IoTag(1), device, verb, offset: 0, length: 512, memory: &memory };
        // SAFETY: the buffer outlives the operation.
        unsafe { shaped.submit(io) };
        time.set(5_000);
        assert!(reaped(&mut shaped).is_empty());
        shaped.inner_mut().complete_all();
        assert_eq!(reaped(&mut shaped), [1]);
    }

    #[test]
    fn what_is_abandoned_is_not_reported() {
        let (mut shaped, time) = shaped();
        submit(&mut shaped, 1, BACKING, Verb::Read);
        assert!(reaped(&mut shaped).is_empty());
        shaped.abandon();
        time.set(10_000);
        assert!(reaped(&mut shaped).is_empty());
        assert_eq!(shaped.next_due(), None);
    }
}
