//! Real devices through io_uring.
//!
//! Operations are queued by [`submit`](Devices::submit) and reach the kernel with one system call,
//! at [`flush`](Devices::flush) or through a [`Sender`]. That call may take long, since the kernel
//! starts the operations during it. A user that keeps the devices under a lock makes the call
//! through a sender, without the lock. Completions ring the doorbell through the ring's eventfd, if
//! the ring has room for them. The kernel keeps other completions until the next system call, and
//! may not ring for them. So there are never more operations with the kernel than the ring has room
//! for.
//!
//! Files are registered with the ring, memory on request ([`Options::register_memory`]): registered
//! memory is pinned, and its pages need not be looked up for each operation.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use forebay_effect::Device;
use io_uring::{IoUring, opcode, squeue, types};

use crate::devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Sender, Verb,
};
use crate::doorbell::Doorbell;
use crate::file::{Target, zeroing_mode};

/// Maximum number of registered files; further files work unregistered.
const FILES_MAX: u32 = 256;

/// The kernel accepts registered memory in pieces of at most 1 GiB.
const REGISTERED_PIECE_BYTES: usize = 1 << 30;

/// The parameters of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Number of operations that one system call can submit; more need several calls.
    pub entries: u32,
    /// Whether to register the frames' memory with the kernel. It is then pinned: all of it is
    /// allocated at once, and counts against the limit on locked memory, if there is one.
    pub register_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { entries: 256, register_memory: false }
    }
}

/// The submission queue entry of an operation. It is a macro because the two kinds of file have no
/// public trait in common.
macro_rules! queue_entry {
    ($file:expr, $io:expr, $at:expr, $pieces:expr, $fixed:expr) => {{
        let (file, io, at, pieces) = ($file, $io, $at, &$pieces[..]);
        let vectors = pieces.as_ptr().cast::<libc::iovec>();
        let count = pieces.len() as u32;
        match (io.verb, pieces, $fixed) {
            (Verb::Read, [one], Some(buffer)) => {
                opcode::ReadFixed::new(file, one.pointer, short(one.length), buffer)
                    .offset(at)
                    .build()
            }
            (Verb::Read, [one], None) => {
                opcode::Read::new(file, one.pointer, short(one.length)).offset(at).build()
            }
            (Verb::Read, ..) => opcode::Readv::new(file, vectors, count).offset(at).build(),
            (Verb::Write, [one], Some(buffer)) => {
                opcode::WriteFixed::new(file, one.pointer, short(one.length), buffer)
                    .offset(at)
                    .build()
            }
            (Verb::Write, [one], None) => {
                opcode::Write::new(file, one.pointer, short(one.length)).offset(at).build()
            }
            (Verb::Write, ..) => opcode::Writev::new(file, vectors, count).offset(at).build(),
            (Verb::WriteZeroes { punch }, ..) => {
                opcode::Fallocate::new(file, io.length).offset(at).mode(zeroing_mode(punch)).build()
            }
            (Verb::Sync, ..) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }};
}

struct Entry {
    device: Device,
    target: Target,
    registered: bool,
}

#[derive(Default)]
struct Slot {
    tag: Option<IoTag>,
    verb: Option<Verb>,
    length: u64,
    memory: Vec<MemorySlice>,
}

/// The ring, and the number of operations queued in it (or about to be) that the kernel has not
/// taken.
struct Ring {
    ring: IoUring,
    unsent: AtomicU32,
    /// Whether operations were queued since the last check.
    queued: AtomicBool,
    bell: Arc<Doorbell>,
}

impl Ring {
    /// Submits the queued operations; false if the kernel cannot accept them now. Any thread may
    /// call this while another one queues: the kernel takes the entries from the queue, and only
    /// one thread at a time does so.
    fn send(&self) -> bool {
        // (A thread that is preempted in this loop does not keep others from sending.)
        while self.unsent.load(Ordering::Acquire) > 0 {
            match self.ring.submit() {
                // Another thread has sent the operations, or is about to queue and then send them.
                Ok(0) => break,
                Ok(sent) => _ = self.unsent.fetch_sub(sent as u32, Ordering::AcqRel),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => {
                    // Busy (completions are waiting to be reaped) or short of memory: the
                    // thread that waits on the bell tries again.
                    self.queued.store(true, Ordering::Release);
                    self.bell.ring();
                    return false;
                }
            }
        }
        true
    }
}

impl Sender for Ring {
    fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) && self.queued.swap(false, Ordering::Acquire)
    }

    fn send(&self) {
        _ = Ring::send(self);
    }
}

/// A ring and the devices it works on.
pub struct UringDevices {
    ring: Arc<Ring>,
    /// Whether a [`Sender`], and not [`Devices::flush`], sends queued operations to the kernel.
    apart: bool,
    /// Indexed by the number of the registered file.
    files: Vec<Entry>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: usize,
    /// Entries held back because the ring has no room for their completions yet.
    waiting: VecDeque<squeue::Entry>,
    /// The number of completions that the ring has room for.
    room: usize,
    memory: Vec<MemorySlice>,
    refused: Vec<Completion>,
    options: Options,
}

// SAFETY: the ring's queues are used only through `&mut self`, except by the system call that
// submits; the memory of operations may be sent by the contract of `Devices::submit`.
unsafe impl Send for UringDevices {}

impl UringDevices {
    /// A ring that rings `bell` for completions.
    ///
    /// # Errors
    /// If the kernel has no io_uring, forbids it, or lacks a required operation.
    pub fn new(options: Options, bell: Arc<Doorbell>) -> io::Result<UringDevices> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_cqsize(options.entries.saturating_mul(4))
            .build(options.entries)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if needed.iter().any(|&code| !probe.is_supported(code))
            || !ring.params().is_feature_nodrop()
        {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        // Without registered files every operation looks its file up: slower, but correct.
        let can_register = ring.submitter().register_files_sparse(FILES_MAX).is_ok();
        let files = Vec::with_capacity(if can_register { FILES_MAX as usize } else { 0 });
        let room = ring.params().cq_entries() as usize;
        Ok(UringDevices {
            ring: Arc::new(Ring {
                ring,
                unsent: AtomicU32::new(0),
                queued: AtomicBool::new(false),
                bell,
            }),
            apart: false,
            waiting: VecDeque::new(),
            room,
            files,
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            memory: Vec::new(),
            refused: Vec::new(),
            options,
        })
    }

    /// Adds a device.
    ///
    /// # Panics
    /// If a device with that name exists.
    pub fn add(&mut self, device: Device, target: Target) {
        assert!(self.entry(device).is_none(), "{device:?} exists");
        let file = self.files.len();
        let registered = file < FILES_MAX as usize
            && (self.ring.ring.submitter())
                .register_files_update(file as u32, &[target.raw().0])
                .is_ok();
        self.files.push(Entry { device, target, registered });
    }

    fn entry(&self, device: Device) -> Option<(u32, &Entry)> {
        (0..).zip(&self.files).find(|(_, entry)| entry.device == device)
    }

    fn registered_memory(&self, slice: MemorySlice) -> Option<u16> {
        let at = self.memory.iter().position(|piece| {
            let start = piece.pointer as usize;
            let end = start + piece.length;
            slice.pointer as usize >= start && slice.pointer as usize + slice.length <= end
        })?;
        u16::try_from(at).ok()
    }

    /// Queues an operation for the next system call.
    fn queue(&mut self, sqe: &squeue::Entry) {
        // Count first, so that the counter is never less than what a sending thread subtracts.
        self.ring.unsent.fetch_add(1, Ordering::AcqRel);
        loop {
            // SAFETY: by the contract of `submit` the memory is valid; the list of pieces stays in
            // its slot, and the file is closed after its last operation. `&mut self` is the only user of this
            // end of the queue.
            if unsafe { self.ring.ring.submission_shared().push(sqe) }.is_ok() {
                self.ring.queued.store(true, Ordering::Release);
                return;
            }
            let sent = self.ring.send();
            // (Another thread may be about to send what fills the queue.)
            std::thread::yield_now();
            if !sent {
                // The kernel accepts no more until completions are taken; keep them in `refused`.
                let mut done = std::mem::take(&mut self.refused);
                self.collect(&mut done);
                self.refused = done;
                std::thread::yield_now();
            }
        }
    }

    fn collect(&mut self, done: &mut Vec<Completion>) {
        // SAFETY: `&mut self` is the only user of this end of the queue.
        for cqe in unsafe { self.ring.ring.completion_shared() } {
            let index = cqe.user_data() as u32;
            let slot = &mut self.slots[index as usize];
            let Some(tag) = slot.tag.take() else { continue };
            let result = match (cqe.result(), slot.verb) {
                (error, _) if error < 0 => Err(DeviceError::from_errno(-error)),
                (bytes, Some(Verb::Read | Verb::Write)) => Ok(bytes as u64),
                _ => Ok(slot.length),
            };
            done.push(Completion { tag, result });
            self.free.push(index);
            self.in_flight -= 1;
        }
    }
}

impl Devices for UringDevices {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.entry(device).map(|(_, entry)| entry.target.capabilities())
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        let Some((file, entry)) = self.entry(io.device) else {
            self.refused.push(Completion { tag: io.tag, result: Err(DeviceError::Gone) });
            self.ring.bell.ring();
            return;
        };
        let (fd, base) = entry.target.raw();
        let registered = entry.registered;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.tag = Some(io.tag);
        slot.verb = Some(io.verb);
        slot.length = io.length;
        // The list of pieces has to stay in place until the kernel has taken the operation.
        slot.memory.clear();
        slot.memory.extend_from_slice(io.memory);
        let fixed = match *io.memory {
            [slice] if !self.memory.is_empty() => self.registered_memory(slice),
            _ => None,
        };
        let pieces = &self.slots[index as usize].memory;
        let sqe = if registered {
            queue_entry!(types::Fixed(file), io, base + io.offset, pieces, fixed)
        } else {
            queue_entry!(types::Fd(fd), io, base + io.offset, pieces, fixed)
        };
        let sqe = sqe.user_data(index.into());
        let full = self.in_flight - self.waiting.len() == self.room;
        self.in_flight += 1;
        match full || !self.waiting.is_empty() {
            true => self.waiting.push_back(sqe),
            false => self.queue(&sqe),
        }
    }

    fn flush(&mut self) {
        if !self.apart {
            self.ring.send();
        }
    }

    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.apart = true;
        Some(self.ring.clone())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        self.collect(done);
        while self.in_flight - self.waiting.len() < self.room
            && let Some(sqe) = self.waiting.pop_front()
        {
            self.queue(&sqe);
        }
        self.flush();
    }

    fn abandon(&mut self) {
        let mut done = Vec::new();
        // Drop the entries that the kernel has not received.
        self.in_flight -= self.waiting.len();
        for sqe in self.waiting.drain(..) {
            let index = sqe.get_user_data() as u32;
            self.slots[index as usize].tag = None;
            self.free.push(index);
        }
        while self.in_flight > 0 {
            // Retry after errors (interrupted, busy): operations do end.
            if let Ok(sent) = self.ring.ring.submit_and_wait(1) {
                self.ring.unsent.fetch_sub(sent as u32, Ordering::AcqRel);
            }
            self.collect(&mut done);
        }
        self.refused.clear();
        if !self.memory.is_empty() {
            // Memory that is mapped at these addresses later is not the memory that the kernel has
            // pinned.
            let _ = self.ring.ring.submitter().unregister_buffers();
            self.memory.clear();
        }
    }

    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        Some(self.ring.bell.clone())
    }

    unsafe fn register(&mut self, memory: MemorySlice) {
        if !self.options.register_memory || !self.memory.is_empty() {
            return;
        }
        let mut pieces: Vec<MemorySlice> = Vec::new();
        let mut at = 0;
        while at < memory.length {
            let length = REGISTERED_PIECE_BYTES.min(memory.length - at);
            pieces.push(MemorySlice { pointer: memory.pointer.wrapping_add(at), length });
            at += length;
        }
        let vectors: Vec<libc::iovec> = (pieces.iter())
            .map(|piece| libc::iovec { iov_base: piece.pointer.cast(), iov_len: piece.length })
            .collect();
        // SAFETY: the memory is valid until `abandon`, by the contract of this function.
        if unsafe { self.ring.ring.submitter().register_buffers(&vectors) }.is_ok() {
            self.memory = pieces;
        }
    }
}

impl Drop for UringDevices {
    fn drop(&mut self) {
        self.abandon();
        // The kernel closes a ring at some later time; its files, and with them exclusive access to
        // block devices, must be free at once. (Without registered files this fails.)
        let _ = self.ring.ring.submitter().unregister_files();
    }
}

impl std::fmt::Debug for UringDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let targets: Vec<_> = self.files.iter().map(|e| (e.device, &e.target)).collect();
        f.debug_struct("UringDevices")
            .field("targets", &targets)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// Limits a length to what the kernel transfers at once, 2 GiB - 4 KiB; the executor continues from
/// there.
fn short(length: usize) -> u32 {
    length.min(0x7FFF_F000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::OpenOptions;

    #[test]
    #[allow(clippy::print_stderr)] // says what it skips
    fn what_was_sent_is_counted_also_if_the_end_of_the_devices_sent_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::existing(directory.path().join("image"));
        options.create = Some(8192);
        let target = Target::open(&options).unwrap().0;
        let bell = Arc::new(Doorbell::new().unwrap());
        let ring = Options { entries: 8, register_memory: false };
        let Ok(mut devices) = UringDevices::new(ring, bell) else {
            eprintln!("skipped: io_uring is not allowed here");
            return;
        };
        devices.add(Device::Flash, target);
        let sender = devices.send_apart().unwrap();
        let unsent = devices.ring.clone();
        let submit = |devices: &mut UringDevices, count: u64| {
            for tag in 0..count {
                let io = Io {
                    tag: IoTag(tag),
                    device: Device::Flash,
                    verb: Verb::Sync,
                    offset: 0,
                    length: 0,
                    memory: &[],
                };
                // SAFETY: a sync has no memory.
                unsafe { devices.submit(io) };
            }
        };
        submit(&mut devices, 5);
        assert_eq!(unsent.unsent.load(Ordering::Relaxed), 5);
        assert!(sender.has_queued() && !sender.has_queued());
        devices.abandon();
        assert_eq!(unsent.unsent.load(Ordering::Relaxed), 0);
        // Submit more than there are entries: some are sent to make room.
        submit(&mut devices, 20);
        sender.send();
        assert_eq!(unsent.unsent.load(Ordering::Relaxed), 0);
    }
}
