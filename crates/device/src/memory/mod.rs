//! Faulty devices in memory, driven step by step: the world of the adversary.
//!
//! Nothing completes by itself. A scheduler looks at what is [`pending`](MemoryDevices::pending)
//! and says which operation completes next; it cuts the power when it likes. Every device has a
//! volatile write cache: a write that completed is seen by reads at once and survives a power
//! cut for certain only after a sync that was *submitted* after the write completed. Operations
//! in flight at a cut may land too. Memory is read when a write completes, as a device may, and
//! a read's memory is spoiled while it is in flight: who changes or uses pinned memory is found
//! out ([`Hazards`]).
//!
//! Faults are drawn from a seed ([`FaultRates`]), planned for the n-th operation
//! ([`MemoryDevices::fail_at`]) or done to a device by hand, and each is counted. The same seed
//! and the same calls give the same run. `docs/fault-model.md` has the whole model.
//!
//! ```
//! use forebay_block::Volume;
//! use forebay_device::choices::Seeded;
//! use forebay_device::memory::{CutStyle, DeviceOptions, MemoryDevices};
//! use forebay_effect::Device;
//!
//! let mut devices = MemoryDevices::new(1);
//! devices.add(Device::Backing(Volume(0)), DeviceOptions::sized(64 << 10));
//! devices.power_cut(CutStyle::Any, &mut Seeded::new(2));
//! assert_eq!(devices.pending(), 0);
//! ```

mod cut;
mod faults;
mod medium;

use forebay_effect::Device;

use crate::choices::{Choices, Seeded};
use crate::devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Verb,
};
use cut::Candidate;
pub use cut::CutStyle;
pub use faults::{Fault, FaultCounts, FaultRates};
use medium::{Data, Medium, SECTOR};

/// What a device in memory is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Bytes; a multiple of 512 and of `logical_block`.
    pub size: u64,
    /// Offsets and lengths are multiples of this; 512 or a power-of-two multiple of it.
    pub logical_block: u32,
    /// Memory is aligned to this power of two; 1 for any.
    pub memory_alignment: u32,
    /// What a power cut leaves whole: 512 or 4096.
    pub tear_bytes: u32,
    /// Whether writes stay in a cache until a sync. Otherwise completion means durable.
    pub volatile_cache: bool,
    /// Whether zeroing is supported.
    pub zeroes: bool,
}

impl DeviceOptions {
    /// A device of `size` bytes with 512 B blocks, torn at 512 B, with a volatile cache, able to
    /// zero, any memory alignment.
    pub const fn sized(size: u64) -> DeviceOptions {
        DeviceOptions {
            size,
            logical_block: 512,
            memory_alignment: 1,
            tear_bytes: 512,
            volatile_cache: true,
            zeroes: true,
        }
    }
}

/// Breaches of the contract between a machine and its driver that devices can see. They should
/// stay at zero, except `overlapping_writes`, whose order is then open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hazards {
    /// A write's memory changed while the write was in flight.
    pub sources_changed: u64,
    /// A write was submitted over another in flight: either may win.
    pub overlapping_writes: u64,
    /// A read and a write of the same bytes were in flight together.
    pub overlapping_reads: u64,
}

/// An operation in flight, as a scheduler sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingIo {
    /// The device.
    pub device: Device,
    /// What it does.
    pub verb: Verb,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Its number among all operations submitted, from 0.
    pub number: u64,
}

/// As what a device that vanished comes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Return {
    /// As it was, after losing what its volatile cache did not keep.
    Same,
    /// With contents that it had earlier.
    Older(Vec<u8>),
    /// As a device that has nothing to do with the one that vanished.
    Other(Vec<u8>),
}

struct Pending {
    io: PendingIo,
    tag: IoTag,
    memory: Vec<MemorySlice>,
    submitted: u64,
    fault: Option<Fault>,
    /// Other completions that a slow operation waits for.
    delay: u64,
    /// CRC-32C of a write's memory at submission.
    checksum: u32,
    contended: bool,
}

/// A write that completed while another over the same bytes was in flight.
struct Contender {
    device: Device,
    offset: u64,
    end: u64,
    completed: u64,
}

/// A set of faulty devices in memory.
pub struct MemoryDevices {
    media: Vec<Medium>,
    pending: Vec<Pending>,
    done: Vec<Completion>,
    spare: Vec<Vec<MemorySlice>>,
    contenders: Vec<Contender>,
    plans: Vec<(u64, Fault)>,
    random: Seeded,
    counts: FaultCounts,
    hazards: Hazards,
    clock: u64,
    operations: u64,
}

impl std::fmt::Debug for MemoryDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDevices")
            .field("devices", &self.media.iter().map(|medium| medium.name).collect::<Vec<_>>())
            .field("pending", &self.pending.len())
            .field("operations", &self.operations)
            .field("faults", &format_args!("{}", self.counts))
            .finish_non_exhaustive()
    }
}

impl MemoryDevices {
    /// No devices yet; random faults will be drawn from `seed`.
    pub fn new(seed: u64) -> MemoryDevices {
        MemoryDevices {
            media: Vec::new(),
            pending: Vec::new(),
            done: Vec::new(),
            spare: Vec::new(),
            contenders: Vec::new(),
            plans: Vec::new(),
            random: Seeded::new(seed),
            counts: FaultCounts::default(),
            hazards: Hazards::default(),
            clock: 0,
            operations: 0,
        }
    }

    /// Adds a device full of zeroes.
    ///
    /// # Panics
    /// If there is one of that name, or its options contradict each other.
    pub fn add(&mut self, device: Device, options: DeviceOptions) {
        self.add_image(device, options, vec![0; options.size as usize]);
    }

    /// Adds a device that holds `image`.
    ///
    /// # Panics
    /// As [`add`](MemoryDevices::add), and if the image has another size.
    pub fn add_image(&mut self, device: Device, options: DeviceOptions, image: Vec<u8>) {
        assert!(self.media.iter().all(|medium| medium.name != device), "{device:?} exists");
        let block = u64::from(options.logical_block);
        assert!(block.is_power_of_two() && block >= SECTOR && options.size.is_multiple_of(block));
        assert!(options.tear_bytes.is_power_of_two() && u64::from(options.tear_bytes) >= SECTOR);
        assert_eq!(image.len() as u64, options.size);
        self.media.push(Medium::new(device, options, image));
    }

    /// Sets how often a device's operations have faults from now on.
    pub fn set_rates(&mut self, device: Device, rates: FaultRates) {
        self.medium_mut(device).rates = rates;
    }

    /// Starts the random faults anew from `seed`.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Seeded::new(seed);
    }

    /// Plans `fault` for the operation with number `number` (of all devices, from 0), whatever
    /// the rates say. Plans for an operation that cannot have the fault come to nothing.
    pub fn fail_at(&mut self, number: u64, fault: Fault) {
        self.plans.push((number, fault));
    }

    /// Operations submitted so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Faults so far.
    pub fn faults(&self) -> &FaultCounts {
        &self.counts
    }

    /// Breaches of contract so far.
    pub fn hazards(&self) -> Hazards {
        self.hazards
    }

    /// Operations in flight.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The operation in flight at `index`, in order of submission.
    pub fn pending_io(&self, index: usize) -> Option<PendingIo> {
        self.pending.get(index).map(|pending| pending.io)
    }

    /// Completes the operation in flight at `index`; those behind it move up.
    ///
    /// # Panics
    /// If there is none.
    pub fn complete(&mut self, index: usize) {
        let pending = self.pending.remove(index);
        self.clock += 1;
        for other in &mut self.pending {
            other.delay = other.delay.saturating_sub(1);
        }
        let result = self.carry_out(&pending);
        self.done.push(Completion { tag: pending.tag, result });
        self.spare.push(pending.memory);
    }

    /// Completes some operation in flight, slow ones last. Returns whether there was one.
    pub fn complete_any(&mut self, choices: &mut dyn Choices) -> bool {
        let ready = self.pending.iter().filter(|pending| pending.delay == 0).count();
        let slow_too = ready == 0;
        let among = if slow_too { self.pending.len() } else { ready };
        let chosen = choices.choose(among as u64) as usize;
        let index = (self.pending.iter().enumerate())
            .filter(|(_, pending)| slow_too || pending.delay == 0)
            .nth(chosen)
            .map(|(index, _)| index);
        if let Some(index) = index {
            self.complete(index);
        }
        index.is_some()
    }

    /// Completes everything in flight, in order of submission.
    pub fn complete_all(&mut self) {
        while !self.pending.is_empty() {
            self.complete(0);
        }
    }

    /// Writes whose survival a power cut would decide, on all devices, in flight ones included.
    pub fn unsynced(&self) -> usize {
        self.media.iter().map(|medium| medium.unsynced.len()).sum::<usize>()
            + self.pending.iter().filter(|pending| modifies(pending.io.verb)).count()
    }

    /// Cuts the power of all devices: what survives is chosen, what was in flight never
    /// completes.
    pub fn power_cut(&mut self, style: CutStyle, choices: &mut dyn Choices) {
        let mut counts = self.counts;
        counts.note(Fault::PowerCut);
        for index in 0..self.media.len() {
            let image = self.image_after_cut(index, style, choices, &mut counts);
            self.media[index].restart(image);
        }
        self.counts = counts;
        self.forget_pending();
    }

    /// The devices as a power cut at this instant could leave them. These go on undisturbed.
    pub fn survivors(&self, style: CutStyle, choices: &mut dyn Choices) -> MemoryDevices {
        let mut after = MemoryDevices::new(0);
        after.random = self.random.clone();
        after.counts.note(Fault::PowerCut);
        for (index, medium) in self.media.iter().enumerate() {
            let image = self.image_after_cut(index, style, choices, &mut after.counts);
            let mut medium = medium.clone();
            medium.restart(image);
            after.media.push(medium);
        }
        after
    }

    /// Takes a device away: what is in flight fails when it completes, and what its volatile
    /// cache holds survives or not, as at a power cut.
    pub fn vanish(&mut self, device: Device, choices: &mut dyn Choices) {
        self.counts.note(Fault::Vanished);
        let index = self.index_of(device);
        let mut counts = self.counts;
        let image = self.image_after_cut(index, CutStyle::Any, choices, &mut counts);
        self.counts = counts;
        self.media[index].restart(image);
        self.media[index].present = false;
        for pending in &mut self.pending {
            if pending.io.device == device {
                pending.fault = Some(Fault::Vanished);
            }
        }
    }

    /// Brings a device back.
    ///
    /// # Panics
    /// If the contents have another size than the device.
    pub fn restore(&mut self, device: Device, how: Return) {
        let index = self.index_of(device);
        let (fault, image) = match how {
            Return::Same => (None, None),
            Return::Older(image) => (Some(Fault::ReturnedOlder), Some(image)),
            Return::Other(image) => (Some(Fault::ReturnedOther), Some(image)),
        };
        if let Some(image) = image {
            self.media[index].replace(image);
        }
        if let Some(fault) = fault {
            self.counts.note(fault);
        }
        self.media[index].present = true;
    }

    /// What reads of a device see.
    pub fn contents(&self, device: Device) -> &[u8] {
        &self.media[self.index_of(device)].current
    }

    /// What a device keeps without power, whatever happens.
    pub fn durable(&self, device: Device) -> &[u8] {
        &self.media[self.index_of(device)].durable
    }

    /// Replaces a device's contents, without a trace.
    ///
    /// # Panics
    /// If the contents have another size than the device.
    pub fn replace(&mut self, device: Device, image: Vec<u8>) {
        self.medium_mut(device).replace(image);
    }

    /// Flips the bits of `mask` in the byte at `offset`, wherever it is kept.
    ///
    /// # Panics
    /// If the offset lies outside the device.
    pub fn flip(&mut self, device: Device, offset: u64, mask: u8) {
        self.counts.note(Fault::ByteRot);
        self.medium_mut(device).flip(offset as usize, mask);
    }

    /// Makes the sector at `offset` unreadable until it is written.
    ///
    /// # Panics
    /// If the offset lies outside the device.
    pub fn spoil(&mut self, device: Device, offset: u64) {
        self.counts.note(Fault::LatentError);
        self.medium_mut(device).spoil(offset, SECTOR, &mut Seeded::new(0));
    }

    fn index_of(&self, device: Device) -> usize {
        let found = self.media.iter().position(|medium| medium.name == device);
        found.unwrap_or_else(|| panic!("there is no {device:?}"))
    }

    fn medium_mut(&mut self, device: Device) -> &mut Medium {
        let index = self.index_of(device);
        &mut self.media[index]
    }

    fn image_after_cut(
        &self,
        index: usize,
        style: CutStyle,
        choices: &mut dyn Choices,
        counts: &mut FaultCounts,
    ) -> Vec<u8> {
        let medium = &self.media[index];
        let in_flight: Vec<(u64, Data)> = (self.pending.iter())
            .filter(|pending| pending.io.device == medium.name && modifies(pending.io.verb))
            .filter(|pending| medium.present && pending.fault != Some(Fault::LostWrite))
            .map(|pending| (pending.io.offset, pending.data()))
            .collect();
        let candidates: Vec<Candidate<'_>> = (medium.unsynced.iter())
            .map(|write| Candidate { offset: write.offset, data: &write.data })
            .chain(in_flight.iter().map(|(offset, data)| Candidate { offset: *offset, data }))
            .collect();
        cut::survivors(medium, &candidates, style, choices, counts)
    }

    fn forget_pending(&mut self) {
        for pending in self.pending.drain(..) {
            self.spare.push(pending.memory);
        }
        self.done.clear();
        self.contenders.clear();
    }

    /// What the operation does, now that it completes.
    fn carry_out(&mut self, pending: &Pending) -> Result<u64, DeviceError> {
        let PendingIo { device, verb, offset, length, .. } = pending.io;
        let index = self.index_of(device);
        if verb == Verb::Write && pending.checksum != pending.crc() {
            self.hazards.sources_changed += 1;
        }
        if !self.media[index].present || pending.fault == Some(Fault::Vanished) {
            return Err(DeviceError::Gone);
        }
        match pending.fault {
            Some(Fault::Again) => return Err(DeviceError::Again),
            Some(Fault::Slow) | None => {}
            Some(fault) => return self.carry_out_badly(index, pending, fault),
        }
        match verb {
            Verb::Read => {
                let bytes = self.media[index].read(offset, length)?;
                pending.fill(bytes);
            }
            Verb::Write => self.land(index, offset, &pending.data(), pending),
            Verb::WriteZeroes { .. } if !self.media[index].options.zeroes => {
                return Err(DeviceError::Unsupported);
            }
            Verb::WriteZeroes { .. } => self.land(index, offset, &pending.data(), pending),
            Verb::Sync => self.media[index].sync(pending.submitted),
        }
        Ok(length)
    }

    fn carry_out_badly(
        &mut self,
        index: usize,
        pending: &Pending,
        fault: Fault,
    ) -> Result<u64, DeviceError> {
        let PendingIo { offset, length, verb, .. } = pending.io;
        let medium = &mut self.media[index];
        let random = &mut self.random;
        match fault {
            Fault::LostWrite => Ok(length),
            Fault::MisdirectedWrite => {
                let elsewhere = medium.elsewhere(offset, length, random);
                medium.land(elsewhere, &pending.data(), self.clock, |_| true);
                Ok(length)
            }
            Fault::MisdirectedRead => {
                let elsewhere = medium.elsewhere(offset, length, random);
                pending.fill(medium.read(elsewhere, length)?);
                Ok(length)
            }
            Fault::LatentError => {
                medium.spoil(offset, length, random);
                Err(DeviceError::Io)
            }
            Fault::ByteRot => {
                medium.rot(offset, length, random);
                pending.fill(medium.read(offset, length)?);
                Ok(length)
            }
            Fault::Short => {
                let block = u64::from(medium.options.logical_block);
                let some = random.choose(length.div_ceil(block)) * block;
                if verb == Verb::Read {
                    pending.fill(medium.read(offset, some)?);
                } else {
                    let kept = some / SECTOR;
                    medium.land(offset, &pending.data(), self.clock, |sector| sector < kept);
                }
                Ok(some)
            }
            Fault::SyncFailure => {
                medium.fail_sync(pending.submitted, random);
                Err(DeviceError::Io)
            }
            Fault::TransientError | Fault::NoSpace => {
                if modifies(verb) {
                    let way = random.choose(3);
                    medium.land(offset, &pending.data(), self.clock, |_| match way {
                        0 => false,
                        1 => true,
                        _ => random.choose(2) == 0,
                    });
                }
                let no_space = fault == Fault::NoSpace;
                Err(if no_space { DeviceError::NoSpace } else { DeviceError::Io })
            }
            _ => Err(DeviceError::Gone),
        }
    }

    /// A write lands. Where another write over the same bytes completed while this one was in
    /// flight, either may have been the last.
    fn land(&mut self, index: usize, offset: u64, data: &Data, pending: &Pending) {
        let now = self.clock;
        if !pending.contended {
            return self.media[index].land(offset, data, now, |_| true);
        }
        let device = pending.io.device;
        let rivals: Vec<(u64, u64)> = (self.contenders.iter())
            .filter(|rival| rival.device == device && rival.completed > pending.submitted)
            .map(|rival| (rival.offset, rival.end))
            .filter(|_| self.random.choose(2) == 0)
            .collect();
        self.media[index].land(offset, data, now, |sector| {
            let at = offset + sector * SECTOR;
            !rivals.iter().any(|&(start, end)| at < end && at + SECTOR > start)
        });
        let end = offset + data.length();
        self.contenders.push(Contender { device, offset, end, completed: now });
        if !self.pending.iter().any(|pending| pending.contended) {
            self.contenders.clear();
        }
    }

    fn note_overlaps(&mut self, new: &mut Pending) {
        for old in &mut self.pending {
            let overlap = old.io.device == new.io.device
                && old.io.offset < new.io.offset + new.io.length
                && new.io.offset < old.io.offset + old.io.length;
            match (overlap, modifies(old.io.verb), modifies(new.io.verb)) {
                (true, true, true) => {
                    self.hazards.overlapping_writes += 1;
                    (old.contended, new.contended) = (true, true);
                }
                (true, true, false) | (true, false, true) => self.hazards.overlapping_reads += 1,
                _ => {}
            }
        }
    }
}

impl Devices for MemoryDevices {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        let medium = self.media.iter().find(|medium| medium.name == device)?;
        let options = medium.options;
        Some(Capabilities {
            size: options.size,
            logical_block: options.logical_block,
            memory_alignment: options.memory_alignment,
            // Claimed in any case, so that the way back from a refusal is walked.
            zeroes: true,
            punches: options.zeroes,
        })
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        let number = self.operations;
        self.operations += 1;
        self.clock += 1;
        let medium = &self.media[self.index_of(io.device)];
        check(&io, &medium.options);
        let planned = self.plans.iter().position(|&(at, _)| at == number);
        let planned = planned.map(|at| self.plans.swap_remove(at).1);
        let fault = match planned {
            Some(fault) => Some(fault).filter(|fault| fault.befalls(io.verb)),
            None => medium.rates.draw(io.verb, &mut self.random),
        };
        let delay = if fault == Some(Fault::Slow) { 1 + self.random.choose(16) } else { 0 };
        if let Some(fault) = fault {
            self.counts.note(fault);
        }
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(io.memory);
        let Io { device, verb, offset, length, .. } = io;
        let mut pending = Pending {
            io: PendingIo { device, verb, offset, length, number },
            tag: io.tag,
            memory,
            submitted: self.clock,
            fault,
            delay,
            checksum: 0,
            contended: false,
        };
        match verb {
            Verb::Write => pending.checksum = pending.crc(),
            Verb::Read => pending.spoil(),
            Verb::WriteZeroes { .. } | Verb::Sync => {}
        }
        self.note_overlaps(&mut pending);
        self.pending.push(pending);
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn abandon(&mut self) {
        self.forget_pending();
    }
}

/// A backend may rely on alignment and bounds; this one makes sure that it could.
fn check(io: &Io<'_>, options: &DeviceOptions) {
    let block = u64::from(options.logical_block);
    let memory = io.memory.iter().map(|slice| slice.length as u64).sum::<u64>();
    let has_memory = matches!(io.verb, Verb::Read | Verb::Write);
    assert!(
        io.offset.is_multiple_of(block)
            && io.length.is_multiple_of(block)
            && io.offset + io.length <= options.size
            && memory == if has_memory { io.length } else { 0 }
            && io.memory.iter().all(|slice| {
                (slice.pointer as usize).is_multiple_of(options.memory_alignment as usize)
                    && (options.memory_alignment == 1
                        || (slice.length as u64).is_multiple_of(block))
            }),
        "{io:?} does not suit {options:?}"
    );
}

fn modifies(verb: Verb) -> bool {
    matches!(verb, Verb::Write | Verb::WriteZeroes { .. })
}

impl Pending {
    fn crc(&self) -> u32 {
        // SAFETY: valid until the completion, by the contract of `submit`.
        let bytes = |slice: &MemorySlice| unsafe {
            std::slice::from_raw_parts(slice.pointer, slice.length)
        };
        self.memory.iter().fold(0, |crc, slice| crc32c::crc32c_append(crc, bytes(slice)))
    }

    /// What a write is about to write: its memory, as it is now.
    fn data(&self) -> Data {
        if self.io.verb != Verb::Write {
            return Data::Zeroes(self.io.length);
        }
        let mut bytes = Vec::with_capacity(self.io.length as usize);
        for slice in &self.memory {
            // SAFETY: valid until the completion, by the contract of `submit`.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(slice.pointer, slice.length)
            });
        }
        Data::Bytes(bytes)
    }

    /// Puts `bytes` at the start of a read's memory.
    fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for slice in &self.memory {
            let (piece, after) = rest.split_at(slice.length.min(rest.len()));
            // SAFETY: valid, and the backend's alone, by the contract of `submit`.
            unsafe { slice.pointer.copy_from(piece.as_ptr(), piece.len()) };
            rest = after;
        }
    }

    /// Spoils a read's memory, so that nobody can use what was there.
    fn spoil(&self) {
        for slice in &self.memory {
            // SAFETY: as in `fill`.
            unsafe { slice.pointer.write_bytes(0xE5, slice.length) };
        }
    }
}

#[cfg(test)]
mod tests;
