//! One device in memory: a medium that survives power cuts, and a volatile write cache that
//! may not.

use forebay_effect::Device;

use super::DeviceOptions;
use super::changes::{Changes, Moment};
use super::cut::{self, Candidate, CutStyle};
use super::faults::{FaultCounts, FaultRates};
use crate::choices::Choices;
use crate::devices::DeviceError;

/// Bytes of a sector, the unit of errors on the medium.
pub(super) const SECTOR: u64 = 512;

/// Maximum number of unsynced writes in a cache; beyond that, the older half goes to the medium.
const UNSYNCED_MAX: usize = 4096;

/// Contents of a write.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

impl Data {
    pub fn length(&self) -> u64 {
        match self {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::Zeroes(length) => *length,
        }
    }

    /// Copies bytes `from..from + length` of the write into `image` at `offset + from`.
    pub fn put(&self, image: &mut [u8], offset: u64, from: u64, length: u64) {
        let at = (offset + from) as usize;
        let target = &mut image[at..at + length as usize];
        match self {
            Data::Bytes(bytes) => {
                target.copy_from_slice(&bytes[from as usize..(from + length) as usize]);
            }
            Data::Zeroes(_) => target.fill(0),
        }
    }

    fn part(&self, from: u64, length: u64) -> Data {
        match self {
            Data::Bytes(bytes) => {
                Data::Bytes(bytes[from as usize..(from + length) as usize].into())
            }
            Data::Zeroes(_) => Data::Zeroes(length),
        }
    }
}

/// A write in the volatile cache.
#[derive(Clone, Debug)]
pub(super) struct Unsynced {
    pub offset: u64,
    pub data: Data,
    /// When it completed, by the clock of the devices, which counts events.
    pub completed: u64,
}

/// A device.
#[derive(Debug)]
pub(super) struct Medium {
    pub name: Device,
    pub options: DeviceOptions,
    pub rates: FaultRates,
    pub present: bool,
    /// Writes beyond this byte fail for lack of space, as with thin provisioning or a sparse file
    /// on a full file system.
    pub full_from: u64,
    /// The contents that are certain to survive a power cut.
    pub durable: Vec<u8>,
    /// The contents that reads see.
    pub current: Vec<u8>,
    pub unsynced: Vec<Unsynced>,
    bad: Vec<bool>,
    /// Changes of `durable`, `current` or both.
    changes: Changes,
    /// When `durable` and `current` were last known to be equal.
    same: Moment,
    /// If this is a copy after a cut: the moment of the device that it copies, and its own moment
    /// when the copy was made.
    copied: Option<(Moment, Moment)>,
}

impl Medium {
    pub fn new(name: Device, options: DeviceOptions, image: Vec<u8>) -> Medium {
        let bad = vec![false; image.len() / SECTOR as usize];
        let current = image.clone();
        let changes = Changes::new(image.len());
        Medium {
            name,
            options,
            rates: FaultRates::NONE,
            present: true,
            full_from: u64::MAX,
            durable: image,
            current,
            unsynced: Vec::new(),
            bad,
            same: changes.now(),
            changes,
            copied: None,
        }
    }

    /// The contents of a range as reads see them, even if some sectors are unreadable.
    pub fn seen(&self, offset: u64, length: u64) -> &[u8] {
        &self.current[offset as usize..(offset + length) as usize]
    }

    /// The bytes that a read sees.
    pub fn read(&self, offset: u64, length: u64) -> Result<&[u8], DeviceError> {
        let sectors = (offset / SECTOR) as usize..((offset + length).div_ceil(SECTOR)) as usize;
        if self.bad[sectors].contains(&true) {
            return Err(DeviceError::Io);
        }
        Ok(&self.current[offset as usize..(offset + length) as usize])
    }

    /// Applies a write to the cache, except for the sectors for which `keep`, called with the
    /// sector number within the write, returns false.
    pub fn land(&mut self, offset: u64, data: Data, now: u64, mut keep: impl FnMut(u64) -> bool) {
        let length = data.length();
        let sectors = length.div_ceil(SECTOR);
        let mut first = 0;
        while first < sectors {
            let run = (first..sectors).take_while(|&sector| keep(sector)).count() as u64;
            let from = first * SECTOR;
            // (`keep` refused the sector after the run.)
            first += run + 1;
            if run == 0 {
                continue;
            }
            let part_length = (run * SECTOR).min(length - from);
            data.put(&mut self.current, offset, from, part_length);
            self.changes.note(offset + from, part_length);
            let at = ((offset + from) / SECTOR) as usize;
            self.bad[at..at + run as usize].fill(false);
            if !self.options.volatile_cache {
                data.put(&mut self.durable, offset, from, part_length);
            } else if part_length == length {
                self.unsynced.push(Unsynced { offset, data, completed: now });
                break;
            } else {
                let data = data.part(from, part_length);
                self.unsynced.push(Unsynced { offset: offset + from, data, completed: now });
            }
        }
        if self.unsynced.len() > UNSYNCED_MAX {
            let cut = self.unsynced[UNSYNCED_MAX / 2].completed;
            self.sync(cut);
        }
    }

    /// Makes the writes that completed before `submitted` durable.
    pub fn sync(&mut self, submitted: u64) {
        let (durable, changes) = (&mut self.durable, &mut self.changes);
        self.unsynced.retain(|write| {
            let covered = write.completed < submitted;
            if covered {
                write.data.put(durable, write.offset, 0, write.data.length());
                changes.note(write.offset, write.data.length());
            }
            !covered
        });
    }

    /// Fails a sync: for each sector that the sync should have made durable, chance decides whether
    /// it becomes durable. The other sectors are no longer pending: the next sync succeeds without
    /// them.
    pub fn fail_sync(&mut self, submitted: u64, choices: &mut dyn Choices) {
        let reverts = if self.rates.sync_failure_reverts { 3 } else { 2 };
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.retain(|write| {
            let covered = write.completed < submitted;
            let length = write.data.length();
            self.changes.note(write.offset, length);
            for from in (0..length).step_by(SECTOR as usize).filter(|_| covered) {
                let part = SECTOR.min(length - from);
                let at = (write.offset + from) as usize..(write.offset + from + part) as usize;
                match choices.choose(reverts) {
                    0 => write.data.put(&mut self.durable, write.offset, from, part),
                    1 => {}
                    _ => self.current[at.clone()].copy_from_slice(&self.durable[at]),
                }
            }
            !covered
        });
        // Reverting must not hide later writes.
        for write in &unsynced {
            write.data.put(&mut self.current, write.offset, 0, write.data.length());
        }
        self.unsynced = unsynced;
    }

    /// Makes one sector of a range unreadable until it is written; returns the offset of its first
    /// byte.
    pub fn spoil(&mut self, offset: u64, length: u64, choices: &mut dyn Choices) -> u64 {
        let sectors = length.div_ceil(SECTOR).max(1);
        let sector = offset / SECTOR + choices.choose(sectors);
        self.bad[sector as usize] = true;
        sector * SECTOR
    }

    /// Flips bits of one byte of a range, in the cache and on the medium; returns the byte's
    /// offset.
    pub fn rot(&mut self, offset: u64, length: u64, choices: &mut dyn Choices) -> u64 {
        let at = offset + choices.choose(length.max(1));
        let mask = 1 + choices.choose(255) as u8;
        self.flip(at as usize, mask);
        at
    }

    pub fn flip(&mut self, at: usize, mask: u8) {
        self.changes.note(at as u64, 1);
        self.current[at] ^= mask;
        self.durable[at] ^= mask;
        for write in &mut self.unsynced {
            if let (Data::Bytes(bytes), Some(at)) =
                (&mut write.data, at.checked_sub(write.offset as usize))
                && let Some(byte) = bytes.get_mut(at)
            {
                *byte ^= mask;
            }
        }
    }

    /// Replaces everything, as if another device had been plugged in.
    pub fn replace(&mut self, image: Vec<u8>) {
        assert_eq!(image.len(), self.durable.len(), "the new image must have the same size");
        self.current.clone_from(&image);
        self.durable = image;
        self.unsynced.clear();
        self.bad.fill(false);
        self.changes.note(0, self.durable.len() as u64);
        self.same = self.changes.now();
    }

    /// Cuts the power and restores it. Decides on writes in flight after those in the cache;
    /// unreadable sectors stay unreadable.
    pub fn cut(
        &mut self,
        in_flight: &[(u64, Data)],
        style: CutStyle,
        choices: &mut dyn Choices,
        counts: &mut FaultCounts,
    ) {
        let unsynced = std::mem::take(&mut self.unsynced);
        decide(self, &unsynced, in_flight, style, choices, counts);
        self.show_durable();
        self.unsynced = unsynced;
        self.unsynced.clear();
    }

    /// Makes reads see the durable contents.
    fn show_durable(&mut self) {
        for range in self.changes.since(self.same) {
            self.current[range.clone()].copy_from_slice(&self.durable[range]);
        }
        self.same = self.changes.now();
    }

    /// Turns `copy` into a copy of this device after a power cut. If `copy` was such a copy before,
    /// copies only the parts that have changed in either since.
    pub fn cut_into(
        &self,
        copy: &mut Medium,
        in_flight: &[(u64, Data)],
        style: CutStyle,
        choices: &mut dyn Choices,
        counts: &mut FaultCounts,
    ) {
        (copy.name, copy.options, copy.rates) = (self.name, self.options, self.rates);
        (copy.present, copy.full_from) = (self.present, u64::MAX);
        copy.bad.clone_from(&self.bad);
        copy.unsynced.clear();
        copy.take_durable(self);
        decide(copy, &self.unsynced, in_flight, style, choices, counts);
        copy.show_durable();
    }

    fn take_durable(&mut self, from: &Medium) {
        let now = from.changes.now();
        match self.copied {
            Some((of, made)) if of.is_of(now) => {
                let changed = self.changes.since(made).chain(from.changes.since(of));
                for range in changed.collect::<Vec<_>>() {
                    self.durable[range.clone()].copy_from_slice(&from.durable[range.clone()]);
                    self.changes.note(range.start as u64, range.len() as u64);
                }
            }
            _ => {
                self.durable.clone_from(&from.durable);
                self.current.clone_from(&from.durable);
                self.changes = Changes::new(self.durable.len());
                self.same = self.changes.now();
            }
        }
        self.copied = Some((now, self.changes.now()));
    }

    /// The offset of another place of the same length, for misdirected operations.
    pub fn elsewhere(&self, offset: u64, length: u64, choices: &mut dyn Choices) -> u64 {
        let block = u64::from(self.options.logical_block);
        let places = (self.current.len() as u64 - length) / block + 1;
        let other = choices.choose(places.saturating_sub(1)) * block;
        if other >= offset && places > 1 { other + block } else { other }
    }
}

fn decide(
    medium: &mut Medium,
    unsynced: &[Unsynced],
    in_flight: &[(u64, Data)],
    style: CutStyle,
    choices: &mut dyn Choices,
    counts: &mut FaultCounts,
) {
    let candidates: Vec<Candidate<'_>> = (unsynced.iter())
        .map(|write| Candidate { offset: write.offset, data: &write.data })
        .chain(in_flight.iter().map(|(offset, data)| Candidate { offset: *offset, data }))
        .collect();
    // A logical block is written whole, whatever `tear_bytes` says.
    let atomic = medium.options.tear_bytes.max(medium.options.logical_block);
    let tearing = (atomic, medium.options.garbage);
    for candidate in &candidates {
        medium.changes.note(candidate.offset, candidate.data.length());
    }
    cut::decide(&mut medium.durable, tearing, &candidates, style, choices, counts);
}
