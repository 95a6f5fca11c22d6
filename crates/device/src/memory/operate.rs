//! Devices in memory as the executor sees them: they accept operations and execute them, correctly
//! or with faults.

use forebay_effect::Device;

use super::faults::Fault;
use super::journal::Happening;
use super::medium::{Data, SECTOR};
use super::pending::Pending;
use super::{Contender, DeviceOptions, MemoryDevices, PendingIo, modifies};
use crate::choices::Choices;
use crate::devices::{Capabilities, Completion, DeviceError, Devices, Io, Verb};

impl Devices for MemoryDevices {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        let medium = self.media.iter().find(|medium| medium.name == device)?;
        let options = medium.options;
        Some(Capabilities {
            size: options.size,
            logical_block: options.logical_block,
            memory_alignment: options.memory_alignment,
            // Always claimed, to exercise the executor's fallback after a refusal.
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
            if fault == Fault::Again && io.verb == Verb::Sync {
                self.counts.note(Fault::SyncFailure);
            }
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
            contended: false,
            before: self.spare_bytes.pop().unwrap_or_default(),
        };
        pending.before.clear();
        match verb {
            Verb::Write => pending.note_source(),
            Verb::Read => pending.spoil(),
            Verb::WriteZeroes { .. } | Verb::Sync => {}
        }
        self.note_overlaps(&mut pending);
        self.note_happening(|| Happening::Submitted {
            io: pending.io,
            data: if verb == Verb::Write { pending.before.clone() } else { Vec::new() },
        });
        self.pending.push(pending);
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn abandon(&mut self) {
        self.forget_pending();
    }
}

impl MemoryDevices {
    /// Carries out an operation at its completion.
    pub(super) fn carry_out(&mut self, pending: &mut Pending) -> Result<u64, DeviceError> {
        let PendingIo { device, verb, offset, length, .. } = pending.io;
        let index = self.index_of(device);
        if verb == Verb::Write && pending.is_source_changed() {
            self.hazards.sources_changed += 1;
            pending.note_source();
        }
        if pending.fault.is_some_and(|fault| fault != Fault::Slow) {
            self.keep_for_reads(index, 0..u64::MAX);
        } else if modifies(verb) {
            self.keep_for_reads(index, offset..offset + length);
        }
        if !self.media[index].present || pending.fault == Some(Fault::Vanished) {
            return Err(DeviceError::Gone);
        }
        match pending.fault {
            Some(Fault::Again) => {
                // Linux also reports a failed write of its page cache in this way (`ENOMEM`,
                // `EBUSY`), once.
                if verb == Verb::Sync {
                    self.media[index].fail_sync(pending.submitted, &mut self.random);
                }
                return Err(DeviceError::Again);
            }
            Some(Fault::Slow) | None => {}
            Some(fault) => return self.carry_out_badly(index, pending, fault),
        }
        if modifies(verb) && offset + length > self.media[index].full_from {
            self.counts.note(Fault::NoSpace);
            return self.carry_out_badly(index, pending, Fault::NoSpace);
        }
        match verb {
            Verb::Read => {
                let bytes = self.media[index].read(offset, length)?;
                if pending.before.is_empty() || bytes == pending.before {
                    pending.fill(bytes);
                } else {
                    // Written meanwhile: return each sector as it was or as it is.
                    let mut mixed = pending.before.clone();
                    let sector = SECTOR as usize;
                    for (to, from) in mixed.chunks_mut(sector).zip(bytes.chunks(sector)) {
                        if self.random.choose(2) == 0 {
                            to.copy_from_slice(from);
                        }
                    }
                    pending.fill(&mixed);
                }
            }
            Verb::WriteZeroes { .. } if !self.media[index].options.zeroes => {
                return Err(DeviceError::Unsupported);
            }
            Verb::Write | Verb::WriteZeroes { .. } => {
                let data = pending.take_data();
                self.land(index, offset, data, pending);
            }
            Verb::Sync => self.media[index].sync(pending.submitted),
        }
        Ok(length)
    }

    fn carry_out_badly(
        &mut self,
        index: usize,
        pending: &mut Pending,
        fault: Fault,
    ) -> Result<u64, DeviceError> {
        let PendingIo { offset, length, verb, .. } = pending.io;
        let device = pending.io.device;
        let medium = &mut self.media[index];
        let random = &mut self.random;
        let harmed = |offset, length| Happening::Harmed { device, offset, length };
        match fault {
            Fault::LostWrite => {
                self.note_happening(|| harmed(offset, length));
                Ok(length)
            }
            Fault::MisdirectedWrite => {
                let elsewhere = medium.elsewhere(offset, length, random);
                medium.land(elsewhere, pending.take_data(), self.clock, |_| true);
                self.note_happening(|| harmed(offset, length));
                self.note_happening(|| harmed(elsewhere, length));
                Ok(length)
            }
            Fault::MisdirectedRead => {
                let elsewhere = medium.elsewhere(offset, length, random);
                pending.fill(medium.read(elsewhere, length)?);
                Ok(length)
            }
            Fault::LatentError => {
                let at = medium.spoil(offset, length, random);
                self.note_happening(|| harmed(at, SECTOR));
                Err(DeviceError::Io)
            }
            Fault::ByteRot => {
                let at = medium.rot(offset, length, random);
                let read = medium.read(offset, length).map(|bytes| pending.fill(bytes));
                self.note_happening(|| harmed(at, 1));
                read.map(|()| length)
            }
            Fault::Short => {
                let block = u64::from(medium.options.logical_block);
                let some = random.choose(length.div_ceil(block)) * block;
                if verb == Verb::Read {
                    pending.fill(medium.read(offset, some)?);
                } else {
                    let kept = some / SECTOR;
                    medium.land(offset, pending.take_data(), self.clock, |sector| sector < kept);
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
                    medium.land(offset, pending.take_data(), self.clock, |_| match way {
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

    /// Applies a write. If another write of the same bytes completed while this one was in flight,
    /// either may take effect last.
    fn land(&mut self, index: usize, offset: u64, data: Data, pending: &Pending) {
        let (now, end) = (self.clock, offset + data.length());
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

/// A backend may rely on alignment and bounds; this one checks them.
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
        "{io:?} is misaligned or out of bounds: {options:?}"
    );
}
