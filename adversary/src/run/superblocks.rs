//! Starts at which one copy of the superblock is unreadable.

use forebay_device::choices::Choices;
use forebay_effect::Device;
use forebay_flash::format::superblock::Superblock;

use super::Runner;
use crate::world::Found;

const SECTOR: u64 = 512;

impl Runner<'_> {
    /// Sometimes makes a sector of one superblock copy unreadable; returns the copy's first page if
    /// the sector is in use. The other copy is the newest, so nothing is lost. (After a power cut,
    /// the copies may differ; losing the newer one would then be a second fault.)
    pub(super) fn spoil_superblock(&mut self) -> Option<u32> {
        let geometry = self.world.config.flash.as_ref()?.geometry;
        if !self.plan.superblock_errors || self.choices.choose(4) == 0 {
            return None;
        }
        let bytes = u64::from(geometry.superblock_pages) * u64::from(geometry.page_size);
        let copies = [0, 1].map(|copy| self.superblock_at(copy * bytes, bytes));
        let lost = match &copies {
            [Some(a), Some(b)] if a.uuid == b.uuid && a.generation == b.generation => {
                self.choices.choose(2)
            }
            [Some(a), Some(b)] if a.uuid == b.uuid && a.generation < b.generation => 0,
            [Some(_), _] => 1,
            [None, Some(_)] => 0,
            [None, None] => return None,
        };
        let sector = self.choices.choose(bytes / SECTOR) * SECTOR;
        let at = lost * bytes + sector;
        self.tell(|| format!("--- copy {lost} of the superblock cannot be read at {at}"));
        self.world.executor.devices_mut().spoil(Device::Flash, at);
        self.seen.stats.add("superblock copies made unreadable", 1);
        // This loses no data.
        self.lies = self.medium_faults();
        let used = copies[lost as usize].as_ref().map_or(bytes, |s| s.bytes(s.active.len()) as u64);
        (sector < used).then_some(lost as u32 * geometry.superblock_pages)
    }

    /// The copy of the superblock at this offset in bytes, if it is intact and the bytes in use can
    /// be read.
    fn superblock_at(&self, at: u64, bytes: u64) -> Option<Superblock> {
        let devices = self.world.executor.devices();
        let image = &devices.contents(Device::Flash)[at as usize..][..bytes as usize];
        let copy = Superblock::decode(image).ok()?;
        let used = copy.bytes(copy.active.len()) as u64;
        devices.is_readable(Device::Flash, at, used).then_some(copy)
    }

    /// Checks that the start reports the copy that it could not read.
    pub(super) fn check_repaired(&self, copy: Option<u32>) -> Result<(), String> {
        let (Some(page), Found::Log(report)) = (copy, &self.world.found) else { return Ok(()) };
        match report.damage.repaired.contains(&page) {
            true => Ok(()),
            false => Err(format!("an unreadable superblock copy is not reported: {report:?}")),
        }
    }
}
