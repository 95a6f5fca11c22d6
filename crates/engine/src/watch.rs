//! Seeing, and failing, what an engine asks of its devices: the seam for tests of its power cuts.
//!
//! A [`Watch`] learns of each write, zeroing and sync before it reaches a device, those of the
//! headers included, and of its end. Replayed onto `forebay_device::memory`, this is what a
//! power cut at any instant may leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use forebay_device::{
    Capabilities, Completion, DeviceError, Devices, Doorbell, Io, IoTag, MemorySlice, Sender, Verb,
};
use forebay_effect::Device;

/// Which bytes of a device an operation concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Bytes that the machine addresses; offsets are the machine's.
    Data,
    /// The whole backing store; offsets are its own. Only headers are written this way.
    Header,
}

/// A write, zeroing or sync that is about to be handed to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The device.
    pub device: Device,
    /// How `offset` counts.
    pub part: Part,
    /// What to do; never a read.
    pub verb: Verb,
    /// First byte; 0 for a sync.
    pub offset: u64,
    /// Bytes; 0 for a sync.
    pub length: u64,
    /// What a write writes.
    pub bytes: Vec<u8>,
}

/// Watches an engine's devices.
pub trait Watch: std::fmt::Debug + Send + Sync {
    /// An operation is about to begin. Returns a number for it.
    ///
    /// # Errors
    /// To have it fail in this way; the device does not see it then.
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError>;

    /// The operation of that number has ended, and done what it should if `ok`.
    fn end(&self, number: u64, ok: bool);
}

/// Devices that are watched.
pub(crate) struct Watched<D> {
    inner: D,
    watch: Arc<dyn Watch>,
    under_way: HashMap<IoTag, u64>,
    refused: Vec<Completion>,
}

impl<D: Devices> Watched<D> {
    /// `inner`, watched by `watch`.
    pub fn new(inner: D, watch: Arc<dyn Watch>) -> Watched<D> {
        Watched { inner, watch, under_way: HashMap::new(), refused: Vec::new() }
    }
}

impl<D: Devices> Devices for Watched<D> {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.inner.capabilities(device)
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        if io.verb != Verb::Read {
            let Io { device, verb, offset, length, .. } = io;
            let mut bytes = Vec::with_capacity(length as usize);
            if verb == Verb::Write {
                for slice in io.memory {
                    // SAFETY: valid until the completion, by the contract of this function.
                    bytes.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(slice.pointer, slice.length)
                    });
                }
            }
            let operation = Operation { device, part: Part::Data, verb, offset, length, bytes };
            match self.watch.begin(operation) {
                Ok(number) => drop(self.under_way.insert(io.tag, number)),
                Err(error) => {
                    self.refused.push(Completion { tag: io.tag, result: Err(error) });
                    if let Some(bell) = self.inner.doorbell() {
                        bell.ring();
                    }
                    return;
                }
            }
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.submit(io) };
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.inner.send_apart()
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        let before = done.len();
        self.inner.reap(done);
        for completion in &done[before..] {
            if let Some(number) = self.under_way.remove(&completion.tag) {
                self.watch.end(number, completion.result.is_ok());
            }
        }
        done.append(&mut self.refused);
    }

    fn abandon(&mut self) {
        // Waits for what is under way: whatever it does is done afterwards.
        self.inner.abandon();
        for (_, number) in self.under_way.drain() {
            self.watch.end(number, true);
        }
        self.refused.clear();
    }

    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        self.inner.doorbell()
    }

    fn next_due(&self) -> Option<Instant> {
        self.inner.next_due()
    }

    unsafe fn register(&mut self, memory: MemorySlice) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.register(memory) };
    }
}
