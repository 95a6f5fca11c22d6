//! Faulty devices in memory, which the adversary drives step by step.
//!
//! Nothing completes on its own. A scheduler sees which operations are
//! [`pending`](MemoryDevices::pending), chooses the one that completes next, and can cut the power
//! at any time. Every device has a volatile write cache: reads see a completed write at once, but
//! it is certain to survive a power cut only after a sync that was *submitted* after the write
//! completed. Operations in flight at a cut may also reach the medium. The memory of a write is
//! read when the write completes, as a device may do. A read sees each sector as it was at its
//! submission or as it is at its completion, and its memory holds garbage meanwhile. So code that
//! changes or uses pinned memory is detected (see [`Hazards`]).
//!
//! Faults are drawn from a seed ([`FaultRates`]), planned for the n-th operation
//! ([`MemoryDevices::fail_at`]) or applied to a device by a call, and each is counted. The same
//! seed and the same calls give the same run. `docs/fault-model.md` has the whole model.
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

mod changes;
mod cut;
mod faults;
mod journal;
mod medium;
mod operate;
mod pending;

use std::ops::Range;

use forebay_effect::Device;

use crate::choices::{Choices, Seeded};
use crate::devices::{Completion, MemorySlice, Verb};
pub use cut::CutStyle;
pub use faults::{Fault, FaultCounts, FaultRates};
pub use journal::Happening;
use medium::{Data, Medium, SECTOR};
use pending::Pending;

/// The properties of a device in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Size in bytes; a multiple of 512 and of `logical_block`.
    pub size: u64,
    /// Offsets and lengths must be multiples of this; 512 or a power-of-two multiple of it.
    pub logical_block: u32,
    /// Memory addresses must be multiples of this power of two; 1 for any.
    pub memory_alignment: u32,
    /// The unit that a power cut does not tear: 512 or 4096 bytes, but at least a logical block.
    pub tear_bytes: u32,
    /// Whether a unit that a power cut tears may hold garbage. Otherwise it is old or new.
    pub garbage: bool,
    /// Whether writes stay in a cache until a sync. Otherwise completion means durable.
    pub volatile_cache: bool,
    /// Whether zeroing is supported.
    pub zeroes: bool,
}

impl DeviceOptions {
    /// A device of `size` bytes with 512 B blocks, torn at 512 B, with a volatile cache, zeroing,
    /// and any memory alignment.
    pub const fn sized(size: u64) -> DeviceOptions {
        DeviceOptions {
            size,
            logical_block: 512,
            memory_alignment: 1,
            tear_bytes: 512,
            garbage: true,
            volatile_cache: true,
            zeroes: true,
        }
    }
}

/// Violations of the contract between a machine and its driver that devices can detect. The counts
/// should stay at zero, except `overlapping_writes`: the order of such writes is undefined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hazards {
    /// Number of writes whose memory changed while they were in flight.
    pub sources_changed: u64,
    /// Number of times that a write was submitted while another write of the same bytes was in
    /// flight: either may take effect last.
    pub overlapping_writes: u64,
    /// Number of times that a read and a write of the same bytes were in flight together.
    pub overlapping_reads: u64,
}

/// An operation in flight, as a scheduler sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingIo {
    /// The device.
    pub device: Device,
    /// The operation.
    pub verb: Verb,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Its number among all operations submitted, from 0.
    pub number: u64,
}

/// The state in which a vanished device returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Return {
    /// As before, without the data that its volatile cache lost.
    Same,
    /// With earlier contents.
    Older(Vec<u8>),
    /// As a different device.
    Other(Vec<u8>),
}

/// A write that completed while another write of the same bytes was in flight.
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
    spare_bytes: Vec<Vec<u8>>,
    contenders: Vec<Contender>,
    plans: Vec<(u64, Fault)>,
    random: Seeded,
    counts: FaultCounts,
    hazards: Hazards,
    clock: u64,
    operations: u64,
    journal: Option<Vec<Happening>>,
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
    /// A set without devices; `seed` determines the random faults.
    pub fn new(seed: u64) -> MemoryDevices {
        MemoryDevices {
            media: Vec::new(),
            pending: Vec::new(),
            done: Vec::new(),
            spare: Vec::new(),
            spare_bytes: Vec::new(),
            contenders: Vec::new(),
            plans: Vec::new(),
            random: Seeded::new(seed),
            counts: FaultCounts::default(),
            hazards: Hazards::default(),
            clock: 0,
            operations: 0,
            journal: None,
        }
    }

    /// Starts recording events for [`take_happenings`](MemoryDevices::take_happenings).
    pub fn observe(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// Replaces the contents of `out` with the events since the last call. There are none unless
    /// [`observe`](MemoryDevices::observe) was called.
    pub fn take_happenings(&mut self, out: &mut Vec<Happening>) {
        out.clear();
        if let Some(journal) = &mut self.journal {
            std::mem::swap(journal, out);
        }
    }

    fn note_happening(&mut self, what: impl FnOnce() -> Happening) {
        if let Some(journal) = &mut self.journal {
            journal.push(what());
        }
    }

    /// Adds a device full of zeroes.
    ///
    /// # Panics
    /// If a device with that name exists, or the options contradict each other.
    pub fn add(&mut self, device: Device, options: DeviceOptions) {
        self.add_image(device, options, vec![0; options.size as usize]);
    }

    /// Adds a device that holds `image`.
    ///
    /// # Panics
    /// As [`add`](MemoryDevices::add), and if the size of the image is not `options.size`.
    pub fn add_image(&mut self, device: Device, options: DeviceOptions, image: Vec<u8>) {
        assert!(self.media.iter().all(|medium| medium.name != device), "{device:?} exists");
        let block = u64::from(options.logical_block);
        assert!(block.is_power_of_two() && block >= SECTOR && options.size.is_multiple_of(block));
        assert!(options.tear_bytes.is_power_of_two() && u64::from(options.tear_bytes) >= SECTOR);
        assert_eq!(image.len() as u64, options.size);
        self.media.push(Medium::new(device, options, image));
    }

    /// Sets the fault rates of a device's later operations.
    pub fn set_rates(&mut self, device: Device, rates: FaultRates) {
        self.medium_mut(device).rates = rates;
    }

    /// Makes the device full from this byte on: writes there fail for lack of space.
    pub fn set_full_from(&mut self, device: Device, offset: u64) {
        self.medium_mut(device).full_from = offset;
    }

    /// Restarts the random faults from `seed`.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Seeded::new(seed);
    }

    /// Plans `fault` for the operation with number `number` (of all devices, from 0), whatever the
    /// rates. Plans for an operation that cannot have the fault have no effect.
    pub fn fail_at(&mut self, number: u64, fault: Fault) {
        self.plans.push((number, fault));
    }

    /// Drops the plans for future operations.
    pub fn forget_plans(&mut self) {
        self.plans.clear();
    }

    /// Number of operations submitted so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Faults so far.
    pub fn faults(&self) -> &FaultCounts {
        &self.counts
    }

    /// Violations of the contract so far.
    pub fn hazards(&self) -> Hazards {
        self.hazards
    }

    /// Number of operations in flight.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The operation in flight at `index`, in order of submission.
    pub fn pending_io(&self, index: usize) -> Option<PendingIo> {
        self.pending.get(index).map(|pending| pending.io)
    }

    /// Completes the operation in flight at `index`; later ones move up.
    ///
    /// # Panics
    /// If there is no such operation.
    pub fn complete(&mut self, index: usize) {
        let mut pending = self.pending.remove(index);
        self.clock += 1;
        for other in &mut self.pending {
            other.delay = other.delay.saturating_sub(1);
        }
        let result = self.carry_out(&mut pending);
        self.note_happening(|| Happening::Completed { io: pending.io, done: result.ok() });
        self.done.push(Completion { tag: pending.tag, result });
        self.put_back(pending);
    }

    /// Completes one operation in flight, slow ones last. Returns whether there was one.
    pub fn complete_any(&mut self, choices: &mut dyn Choices) -> bool {
        self.complete_any_of(choices, |_| true)
    }

    /// Completes one operation in flight on a device that `which` accepts, slow ones last. Returns
    /// whether there was one.
    pub fn complete_any_of(
        &mut self,
        choices: &mut dyn Choices,
        which: impl Fn(Device) -> bool,
    ) -> bool {
        self.complete_any_io(choices, |io| which(io.device))
    }

    /// Completes one operation in flight that `which` accepts, slow ones last. Returns whether there
    /// was one.
    pub fn complete_any_io(
        &mut self,
        choices: &mut dyn Choices,
        which: impl Fn(&PendingIo) -> bool,
    ) -> bool {
        let which = &which;
        let among = |slow_too: bool| {
            let pending = self.pending.iter().enumerate();
            pending.filter(move |(_, p)| which(&p.io) && (slow_too || p.delay == 0))
        };
        let ready = among(false).count();
        let slow_too = ready == 0;
        let count = if slow_too { among(true).count() } else { ready };
        if count == 0 {
            return false;
        }
        let chosen = choices.choose(count as u64) as usize;
        let index = among(slow_too).nth(chosen).map(|(index, _)| index);
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

    /// Number of writes, on all devices, whose survival a power cut would decide, including those
    /// in flight.
    pub fn unsynced(&self) -> usize {
        self.media.iter().map(|medium| medium.unsynced.len()).sum::<usize>()
            + self.pending.iter().filter(|pending| modifies(pending.io.verb)).count()
    }

    /// Cuts the power of all devices: `choices` decides which writes survive, and operations in
    /// flight never complete.
    pub fn power_cut(&mut self, style: CutStyle, choices: &mut dyn Choices) {
        self.counts.note(Fault::PowerCut);
        for index in 0..self.media.len() {
            let in_flight = self.in_flight(index);
            self.media[index].cut(&in_flight, style, choices, &mut self.counts);
        }
        self.forget_pending();
    }

    /// The devices as a power cut at this instant could leave them, with separate fault counts.
    /// These devices are not affected.
    pub fn survivors(&self, style: CutStyle, choices: &mut dyn Choices) -> MemoryDevices {
        let mut after = MemoryDevices::new(0);
        self.survivors_into(&mut after, style, choices);
        after
    }

    /// Like [`survivors`](MemoryDevices::survivors), but reuses the memory of `after`, which is
    /// much faster when done repeatedly.
    pub fn survivors_into(
        &self,
        after: &mut MemoryDevices,
        style: CutStyle,
        choices: &mut dyn Choices,
    ) {
        after.forget_pending();
        after.plans.clear();
        after.random = self.random.clone();
        after.hazards = Hazards::default();
        after.counts = FaultCounts::default();
        after.counts.note(Fault::PowerCut);
        (after.clock, after.operations) = (0, 0);
        after.media.truncate(self.media.len());
        for (index, medium) in self.media.iter().enumerate() {
            if index == after.media.len() {
                after.media.push(Medium::new(medium.name, medium.options, Vec::new()));
            }
            let in_flight = self.in_flight(index);
            let copy = &mut after.media[index];
            medium.cut_into(copy, &in_flight, style, choices, &mut after.counts);
        }
    }

    /// Removes a device: operations in flight fail when they complete, and the data in its volatile
    /// cache survive or not, as at a power cut.
    pub fn vanish(&mut self, device: Device, choices: &mut dyn Choices) {
        self.counts.note(Fault::Vanished);
        let index = self.index_of(device);
        let in_flight = self.in_flight(index);
        self.keep_for_reads(index, 0..u64::MAX);
        self.media[index].cut(&in_flight, CutStyle::Any, choices, &mut self.counts);
        self.media[index].present = false;
        for pending in &mut self.pending {
            if pending.io.device == device {
                pending.fault = Some(Fault::Vanished);
            }
        }
    }

    /// Brings a vanished device back.
    ///
    /// # Panics
    /// If the size of the contents is not that of the device.
    pub fn restore(&mut self, device: Device, how: Return) {
        let index = self.index_of(device);
        let (fault, image) = match how {
            Return::Same => (None, None),
            Return::Older(image) => (Some(Fault::ReturnedOlder), Some(image)),
            Return::Other(image) => (Some(Fault::ReturnedOther), Some(image)),
        };
        if let Some(image) = image {
            self.replace(device, image);
        }
        if let Some(fault) = fault {
            self.counts.note(fault);
        }
        self.media[index].present = true;
    }

    /// Simulates the failure of a sync that bypasses these devices, such as that of a header on the
    /// device: writes that a sync submitted now would have made durable may be lost, and the next
    /// sync succeeds.
    pub fn fail_sync(&mut self, device: Device) {
        self.counts.note(Fault::SyncFailure);
        let index = self.index_of(device);
        self.keep_for_reads(index, 0..u64::MAX);
        self.clock += 1;
        self.media[index].fail_sync(self.clock, &mut self.random);
    }

    /// The contents that reads of a device see.
    pub fn contents(&self, device: Device) -> &[u8] {
        &self.media[self.index_of(device)].current
    }

    /// The contents of a device that are certain to survive a power cut.
    pub fn durable(&self, device: Device) -> &[u8] {
        &self.media[self.index_of(device)].durable
    }

    /// Replaces a device's contents, without recording an event.
    ///
    /// # Panics
    /// If the size of the contents is not that of the device.
    pub fn replace(&mut self, device: Device, image: Vec<u8>) {
        let index = self.index_of(device);
        self.keep_for_reads(index, 0..u64::MAX);
        self.media[index].replace(image);
    }

    /// Flips the bits of `mask` in the byte at `offset`, in cache and medium.
    ///
    /// # Panics
    /// If the offset is outside the device.
    pub fn flip(&mut self, device: Device, offset: u64, mask: u8) {
        self.counts.note(Fault::ByteRot);
        let index = self.index_of(device);
        self.keep_for_reads(index, offset..offset + 1);
        self.media[index].flip(offset as usize, mask);
    }

    /// Makes the sector at `offset` unreadable until it is written.
    ///
    /// # Panics
    /// If the offset is outside the device.
    pub fn spoil(&mut self, device: Device, offset: u64) {
        self.counts.note(Fault::LatentError);
        self.medium_mut(device).spoil(offset, SECTOR, &mut Seeded::new(0));
    }

    /// Whether a range of a device can be read.
    ///
    /// # Panics
    /// If the range is outside the device.
    pub fn is_readable(&self, device: Device, offset: u64, length: u64) -> bool {
        self.media[self.index_of(device)].read(offset, length).is_ok()
    }

    fn index_of(&self, device: Device) -> usize {
        let found = self.media.iter().position(|medium| medium.name == device);
        found.unwrap_or_else(|| panic!("there is no {device:?}"))
    }

    fn medium_mut(&mut self, device: Device) -> &mut Medium {
        let index = self.index_of(device);
        &mut self.media[index]
    }

    /// Prepares for a change of `bytes` of a device: reads of them in flight save the current
    /// contents, unless they have saved earlier ones.
    fn keep_for_reads(&mut self, index: usize, bytes: Range<u64>) {
        let medium = &self.media[index];
        for pending in &mut self.pending {
            let PendingIo { device, verb, offset, length, .. } = pending.io;
            let meets = offset < bytes.end && bytes.start < offset + length;
            if device == medium.name && verb == Verb::Read && meets && pending.before.is_empty() {
                pending.before.extend_from_slice(medium.seen(offset, length));
            }
        }
    }

    /// The data of the writes in flight on a device.
    fn in_flight(&self, index: usize) -> Vec<(u64, Data)> {
        let medium = &self.media[index];
        (self.pending.iter())
            .filter(|pending| pending.io.device == medium.name && modifies(pending.io.verb))
            .filter(|pending| medium.present && pending.fault != Some(Fault::LostWrite))
            .map(|pending| (pending.io.offset, pending.data()))
            .collect()
    }

    /// Keeps the allocations of an ended operation for reuse.
    fn put_back(&mut self, pending: Pending) {
        self.spare.push(pending.memory);
        if pending.before.capacity() > 0 {
            self.spare_bytes.push(pending.before);
        }
    }

    fn forget_pending(&mut self) {
        while let Some(pending) = self.pending.pop() {
            self.put_back(pending);
        }
        self.done.clear();
        self.contenders.clear();
    }
}

fn modifies(verb: Verb) -> bool {
    matches!(verb, Verb::Write | Verb::WriteZeroes { .. })
}

#[cfg(test)]
mod tests;
