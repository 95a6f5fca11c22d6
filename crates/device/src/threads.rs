//! Real devices through a pool of threads and blocking calls, for systems where io_uring is
//! forbidden.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use forebay_effect::Device;

use crate::devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Verb,
};
use crate::doorbell::Doorbell;
use crate::file::Target;

/// Number of threads of a pool, which limits the operations in flight at the devices.
pub const THREADS_DEFAULT: usize = 16;

struct Job {
    tag: IoTag,
    target: Arc<Target>,
    verb: Verb,
    offset: u64,
    length: u64,
    memory: Vec<MemorySlice>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    done: Vec<Completion>,
    /// Lists of memory pieces, for reuse.
    spare: Vec<Vec<MemorySlice>>,
    /// Number of jobs that wait or are being executed.
    active: usize,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
    bell: Arc<Doorbell>,
}

/// A pool of threads and the devices they work on.
pub struct ThreadDevices {
    targets: Vec<(Device, Arc<Target>)>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    refused: Vec<Completion>,
}

impl ThreadDevices {
    /// A pool of `threads` threads, at least one, that rings `bell` for completions.
    ///
    /// # Errors
    /// If not even one thread can be started.
    pub fn new(threads: usize, bell: Arc<Doorbell>) -> std::io::Result<ThreadDevices> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            idle: Condvar::new(),
            bell,
        });
        let mut pool =
            ThreadDevices { targets: Vec::new(), shared, threads: Vec::new(), refused: Vec::new() };
        for number in 0..threads.max(1) {
            let shared = pool.shared.clone();
            let name = format!("forebay-io-{number}");
            match std::thread::Builder::new().name(name).spawn(move || shared.work()) {
                Ok(thread) => pool.threads.push(thread),
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(pool)
    }

    /// Adds a device.
    ///
    /// # Panics
    /// If a device with that name exists.
    pub fn add(&mut self, device: Device, target: Target) {
        assert!(self.target(device).is_none(), "{device:?} exists");
        self.targets.push((device, Arc::new(target)));
    }

    fn target(&self, device: Device) -> Option<&Arc<Target>> {
        self.targets.iter().find(|(name, _)| *name == device).map(|(_, target)| target)
    }
}

impl Devices for ThreadDevices {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.target(device).map(|target| target.capabilities())
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        let Some(target) = self.target(io.device).cloned() else {
            self.refused.push(Completion { tag: io.tag, result: Err(DeviceError::Gone) });
            self.shared.bell.ring();
            return;
        };
        let mut state = self.shared.lock();
        let mut memory = state.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(io.memory);
        let Io { tag, verb, offset, length, .. } = io;
        state.jobs.push_back(Job { tag, target, verb, offset, length, memory });
        state.active += 1;
        drop(state);
        self.shared.work.notify_one();
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        done.append(&mut self.shared.lock().done);
    }

    fn abandon(&mut self) {
        let mut state = self.shared.lock();
        while state.active > 0 {
            state = self.shared.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.done.clear();
        self.refused.clear();
    }

    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        Some(self.shared.bell.clone())
    }
}

impl Drop for ThreadDevices {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left in flight.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's loop, which runs until the pool stops and no work is left.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            let Some(job) = state.jobs.pop_front() else {
                if state.stopping {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let Job { tag, target, verb, offset, length, memory } = job;
            // SAFETY: the memory is valid until the completion is reaped (`Devices::submit`).
            let result = unsafe { target.perform(verb, offset, length, &memory) };
            drop(target);
            state = self.lock();
            state.done.push(Completion { tag, result });
            state.spare.push(memory);
            state.active -= 1;
            if state.active == 0 {
                self.idle.notify_all();
            }
            self.bell.ring();
        }
    }
}

impl std::fmt::Debug for ThreadDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadDevices")
            .field("targets", &self.targets)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn abandoning_waits_for_a_job_that_is_being_carried_out() {
        let mut pool = ThreadDevices::new(1, Arc::new(Doorbell::new().unwrap())).unwrap();
        let shared = pool.shared.clone();
        // The state as a thread leaves it while it carries out the only job.
        shared.lock().active = 1;
        let (tell, told) = std::sync::mpsc::channel();
        let abandons = std::thread::spawn(move || {
            pool.abandon();
            tell.send(()).unwrap();
        });
        let early = told.recv_timeout(Duration::from_millis(100));
        shared.lock().active = 0;
        shared.idle.notify_all();
        abandons.join().unwrap();
        assert!(early.is_err(), "the job still uses its memory");
    }
}
