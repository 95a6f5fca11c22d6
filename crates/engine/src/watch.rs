//! Observes, and fails, the operations of an engine on its devices: used by the tests of power
//! cuts.
//!
//! A [`Watch`] is notified of each write, zeroing and sync before it reaches a device, including
//! those of headers, and of its end. Replayed on `forebay_device::memory`, this gives the states
//! that a power cut at any instant may leave.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_device::{Completion, DeviceError, Devices, Io, IoTag, Layer, Verb};
use forebay_effect::Device;

/// Which bytes of a device an operation accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The machine's bytes; offsets are the machine's.
    Data,
    /// The whole backing store; offsets are the store's. Only headers are written this way.
    Header,
}

/// A write, zeroing or sync that is about to reach a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The device.
    pub device: Device,
    /// The meaning of `offset`.
    pub part: Part,
    /// The operation; never a read.
    pub verb: Verb,
    /// First byte; 0 for a sync.
    pub offset: u64,
    /// Bytes; 0 for a sync.
    pub length: u64,
    /// The bytes of a write.
    pub bytes: Vec<u8>,
}

/// Watches an engine's devices.
pub trait Watch: std::fmt::Debug + Send + Sync {
    /// An operation is about to begin. Returns a number for it.
    ///
    /// # Errors
    /// Makes the operation fail with this error; it does not reach the device.
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError>;

    /// The operation with that number has ended, successfully if `ok`.
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

impl<D: Devices> Layer for Watched<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        if io.verb == Verb::Read {
            return false;
        }
        let Io { device, verb, offset, length, .. } = *io;
        let mut bytes = Vec::with_capacity(length as usize);
        if verb == Verb::Write {
            for slice in io.memory {
                // SAFETY: valid until the completion, by the contract of `Devices::submit`.
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
                return true;
            }
        }
        false
    }

    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        for completion in &done[from..] {
            if let Some(number) = self.under_way.remove(&completion.tag) {
                self.watch.end(number, completion.result.is_ok());
            }
        }
        done.append(&mut self.refused);
    }

    fn abandoned(&mut self) {
        // The devices have waited for what was under way: whatever it does is done.
        for (_, number) in self.under_way.drain() {
            self.watch.end(number, true);
        }
        self.refused.clear();
    }
}
