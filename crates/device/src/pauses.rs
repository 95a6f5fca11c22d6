//! Pauses before operations that a device could not accept are retried.
//!
//! The executor submits such an operation again as soon as it learns of
//! [`DeviceError::Again`](crate::DeviceError::Again), a limited number of times. When the kernel is
//! short of memory for a moment, all of these attempts would be used up within microseconds. So
//! this layer holds their completions back, each time twice as long.

use std::time::{Duration, Instant};

use crate::devices::{Completion, DeviceError, Devices, IoTag};
use crate::layer::Layer;

/// The first pause.
const PAUSE_FIRST: Duration = Duration::from_micros(20);
/// Pauses double this many times, to 82 ms. 64 pauses take 4 s.
const DOUBLINGS_MAX: u32 = 12;
/// An operation that does not end within this time after a pause is considered abandoned.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Devices that pause before an operation is retried. A thread that waits for completions must also
/// wake up at [`Devices::next_due`].
#[derive(Debug)]
pub struct Pauses<D> {
    inner: D,
    /// The operations that the device did not accept.
    paused: Vec<Paused>,
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    tag: IoTag,
    /// Number of pauses so far.
    count: u32,
    until: Instant,
    /// Whether the completion is held back.
    held: bool,
}

impl<D: Devices> Pauses<D> {
    /// Adds pauses to `inner`.
    pub fn new(inner: D) -> Pauses<D> {
        Pauses { inner, paused: Vec::new() }
    }

    /// Records a completion. Returns whether it is held back.
    fn hold(&mut self, completion: Completion, now: Instant) -> bool {
        let Completion { tag, result } = completion;
        let at = self.paused.iter().position(|paused| paused.tag == tag);
        if result != Err(DeviceError::Again) {
            at.map(|at| self.paused.swap_remove(at));
            return false;
        }
        let count = at.map_or(0, |at| self.paused.swap_remove(at).count);
        self.paused.retain(|paused| paused.held || now < paused.until + FORGET_AFTER);
        let until = now + PAUSE_FIRST * (1 << count.min(DOUBLINGS_MAX));
        self.paused.push(Paused { tag, count: count + 1, until, held: true });
        true
    }
}

impl<D: Devices> Layer for Pauses<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        let again = |completion: &Completion| completion.result == Err(DeviceError::Again);
        if self.paused.is_empty() && !done[from..].iter().any(again) {
            return;
        }
        let (now, mut at) = (Instant::now(), from);
        while at < done.len() {
            match self.hold(done[at], now) {
                true => drop(done.remove(at)),
                false => at += 1,
            }
        }
        for paused in self.paused.iter_mut().filter(|paused| paused.held && paused.until <= now) {
            paused.held = false;
            done.push(Completion { tag: paused.tag, result: Err(DeviceError::Again) });
        }
    }

    fn abandoned(&mut self) {
        self.paused.clear();
    }

    fn own_due(&self) -> Option<Instant> {
        self.paused.iter().filter(|paused| paused.held).map(|paused| paused.until).min()
    }
}

#[cfg(test)]
mod tests {
    use forebay_effect::Device;

    use super::*;
    use crate::devices::{Io, Verb};
    use crate::memory::{DeviceOptions, Fault, MemoryDevices};

    #[test]
    fn a_device_that_is_busy_is_asked_again_after_ever_longer_pauses() {
        const TIMES: u64 = 10;
        let mut memory = MemoryDevices::new(1);
        memory.add(Device::Flash, DeviceOptions::sized(4096));
        (0..TIMES).for_each(|number| memory.fail_at(number, Fault::Again));
        let (mut devices, began) = (Pauses::new(memory), Instant::now());
        for attempt in 0..=TIMES {
            let tag = IoTag(7);
            let io = Io {
                tag,
                device: Device::Flash,
                verb: Verb::WriteZeroes { punch: false },
                offset: 0,
                length: 512,
                memory: &[],
            };
            // SAFETY: the operation has no memory.
            unsafe { devices.submit(io) };
            devices.inner.complete(0);
            let mut done = Vec::new();
            devices.reap(&mut done);
            while let Some(due) = devices.next_due() {
                assert!(done.is_empty(), "told at once");
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                devices.reap(&mut done);
            }
            let result = if attempt < TIMES { Err(DeviceError::Again) } else { Ok(512) };
            assert_eq!(done, [Completion { tag, result }]);
        }
        assert!(began.elapsed() >= PAUSE_FIRST * ((1 << TIMES) - 1), "{:?}", began.elapsed());
        assert!(devices.paused.is_empty());
    }
}
