//! Presents exports as devices.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_block::{Flags, Op};
use forebay_effect::Device;

use super::connection::{Ended, Job};
use super::export::{Export, device_error};
use crate::buffer::StagingPool;
use crate::devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Verb,
};
use crate::doorbell::Doorbell;
use crate::layer::Layer;

/// A set of devices, with NBD exports added to it. Data is copied on its way to a session's thread,
/// so that the thread does not access the caller's memory.
#[derive(Debug)]
pub struct NbdDevices<D> {
    inner: D,
    bell: Arc<Doorbell>,
    exports: Vec<Window>,
    /// The operations in progress, with the memory of reads.
    under_way: HashMap<u64, Vec<MemorySlice>>,
    pool: StagingPool,
    ended: Vec<Ended>,
    refused: Vec<Completion>,
}

/// A part of an export as a device.
#[derive(Debug)]
struct Window {
    device: Device,
    export: Arc<Export>,
    offset: u64,
    size: u64,
}

impl<D: Devices> NbdDevices<D> {
    /// Wraps `inner`, without exports yet. `bell` must be the bell of `inner`.
    pub fn new(inner: D, bell: Arc<Doorbell>) -> NbdDevices<D> {
        NbdDevices {
            inner,
            bell,
            exports: Vec::new(),
            under_way: HashMap::new(),
            pool: StagingPool::default(),
            ended: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Adds a device that consists of the `size` bytes of an export from `offset` on.
    ///
    /// # Panics
    /// If a device with that name exists, or the window is not whole blocks within the export.
    pub fn add(&mut self, device: Device, export: Arc<Export>, offset: u64, size: u64) {
        assert!(self.capabilities(device).is_none(), "{device:?} exists");
        let whole = (offset | size).is_multiple_of(u64::from(export.logical_block()));
        assert!(whole && offset + size <= export.size(), "a window outside of {export:?}");
        export.ring(self.bell.clone());
        self.exports.push(Window { device, export, offset, size });
    }

    fn begin(&mut self, at: usize, io: &Io<'_>) {
        let window = &self.exports[at];
        let longest = window.export.transfer_bytes_max();
        let (op, flags, length) = match io.verb {
            Verb::Read => (Op::Read, Flags::NONE, io.length.min(longest)),
            Verb::Write => (Op::Write, Flags::NONE, io.length.min(longest)),
            Verb::WriteZeroes { punch: true } => (Op::WriteZeroes, Flags::NONE, io.length),
            Verb::WriteZeroes { punch: false } => (Op::WriteZeroes, Flags::NO_HOLE, io.length),
            Verb::Sync => (Op::Flush, Flags::NONE, 0),
        };
        let buffer = matches!(op, Op::Read | Op::Write).then(|| {
            let mut buffer = self.pool.take(length as usize);
            if op == Op::Write {
                gather(io.memory, &mut buffer[..length as usize]);
            }
            buffer
        });
        let memory = if op == Op::Read { io.memory.to_vec() } else { Vec::new() };
        self.under_way.insert(io.tag.0, memory);
        let offset = if op == Op::Flush { 0 } else { window.offset + io.offset };
        window.export.begin(Job { tag: io.tag.0, op, flags, offset, length, buffer, status: None });
    }

    fn end(&mut self, ended: Ended, done: &mut Vec<Completion>) {
        let Ended { job, result } = ended;
        // The operation was abandoned: drop its result.
        let Some(memory) = self.under_way.remove(&job.tag) else { return };
        if let Some(buffer) = job.buffer {
            if job.op == Op::Read && result.is_ok() {
                scatter(&buffer[..job.length as usize], &memory);
            }
            self.pool.give(buffer);
        }
        let result = result.map(|()| job.length).map_err(device_error);
        done.push(Completion { tag: IoTag(job.tag), result });
    }
}

impl<D: Devices> Layer for NbdDevices<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn own_capabilities(&self, device: Device) -> Option<Capabilities> {
        let window = self.exports.iter().find(|window| window.device == device)?;
        Some(Capabilities {
            size: window.size,
            logical_block: window.export.logical_block(),
            memory_alignment: 1,
            zeroes: window.export.can_zero(),
            punches: window.export.can_zero(),
        })
    }

    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        let Some(at) = self.exports.iter().position(|window| window.device == io.device) else {
            return false;
        };
        if io.offset.checked_add(io.length).is_none_or(|end| end > self.exports[at].size) {
            self.refused.push(Completion { tag: io.tag, result: Err(DeviceError::Invalid) });
            self.bell.ring();
        } else {
            self.begin(at, io);
        }
        true
    }

    fn reaped(&mut self, done: &mut Vec<Completion>, _: usize) {
        done.append(&mut self.refused);
        let mut ended = std::mem::take(&mut self.ended);
        for window in &self.exports {
            window.export.take_ended(&mut ended);
        }
        for ended in ended.drain(..) {
            self.end(ended, done);
        }
        self.ended = ended;
    }

    fn abandoned(&mut self) {
        self.under_way.clear();
        self.refused.clear();
    }

    fn own_doorbell(&self) -> Option<Arc<Doorbell>> {
        Some(self.bell.clone())
    }
}

/// Fills `into` from the start of `memory`.
fn gather(memory: &[MemorySlice], into: &mut [u8]) {
    let mut left = into;
    for slice in memory {
        let (piece, rest) = left.split_at_mut(slice.length.min(left.len()));
        // SAFETY: by the contract of `Devices::submit` the memory is valid now, and nothing changes
        // it.
        let from = unsafe { std::slice::from_raw_parts(slice.pointer, piece.len()) };
        piece.copy_from_slice(from);
        left = rest;
    }
}

/// Copies `from` to the start of `memory`.
fn scatter(from: &[u8], memory: &[MemorySlice]) {
    let mut left = from;
    for slice in memory {
        let (piece, rest) = left.split_at(slice.length.min(left.len()));
        // SAFETY: by the contract of `Devices::submit` the memory is valid until this read is
        // reaped, which happens now, and nothing else accesses it.
        let into = unsafe { std::slice::from_raw_parts_mut(slice.pointer, piece.len()) };
        into.copy_from_slice(piece);
        left = rest;
    }
}
