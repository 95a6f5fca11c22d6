//! The space that the records of a region would take if they were carried on.

use forebay_flash::Geometry;

use super::carry::is_lost;
use crate::entry::{DESTAGED, Entry, UNREADABLE};
use crate::shard::Shard;
use crate::shard::tiers::Tiers;
use crate::shard::transfer::Kind;
use crate::volume_set::VolumeSet;

/// What carrying a region on comes to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owed {
    /// Blocks that would be lost, and are not yet.
    pub lost: u64,
    /// Pages of the log, at most.
    pub pages: u64,
}

/// At most 1/4 of the blocks that flash can hold may be lost ones.
const LOST_SHARE: u32 = 4;

/// Records of a batch of what is carried on, where there are as many frames: batches are not so small that
/// their headers fill what is kept free.
const CARRY_BATCH: usize = 16;

/// What it comes to if all that is dirty in the region is carried on; `None` if that must not be:
/// because a record is to be destaged, being of a volume that is none of `carried`, or
/// because too much is lost (that keeps its entry in the index, and others need some). If a cleaning `settles`, what
/// is destaged of others is about to be clean.
pub(crate) fn needs(
    shard: &Shard,
    region: u32,
    carried: VolumeSet,
    settles: bool,
    geometry: &Geometry,
) -> Option<Owed> {
    let tiers = &shard.tiers;
    let mut owed = Owed::default();
    let mut records: u64 = 0;
    let block = geometry.block_pages();
    for e in tiers.flash.blocks_of(&tiers.blocks, region).map(|id| &tiers.blocks[id]) {
        let carries = carried.has(e.key());
        if e.flash_dirty == 0 || settles && e.has(DESTAGED) && !carries {
            continue;
        }
        if is_lost(e) {
            // Each may come to stand in a batch of its own.
            owed.pages += 1;
            owed.lost += u64::from(e.owed() != 0 && e.lost_on_flash() == 0);
        } else if carries {
            owed.pages += u64::from(block);
            records += 1;
        } else {
            return None;
        }
    }
    // With the headers of batches, and what may be left at the end of a region.
    owed.pages += records.div_ceil(together(tiers, geometry) as u64) + 2;
    let most = tiers.flash.entries() / LOST_SHARE;
    (owed.lost == 0 || tiers.blocks.lost() + owed.lost as u32 <= most).then_some(owed)
}

/// Records that are carried on together at least, unless fewer are left.
pub(crate) fn batch(shard: &Shard, geometry: &Geometry) -> usize {
    together(&shard.tiers, geometry)
}

/// As [`batch`], of tiers.
pub(super) fn together(tiers: &Tiers, geometry: &Geometry) -> usize {
    let most =
        geometry.batch_entries_max.min((geometry.batch_pages_max - 1) / geometry.block_pages());
    (most.max(1) as usize).min(CARRY_BATCH).min(tiers.transfers.bounces())
}

/// Whether a dirty record of the region could not be read.
pub(crate) fn is_unreadable(shard: &Shard, region: u32) -> bool {
    let tiers = &shard.tiers;
    let dirty = |e: &Entry| e.flash_dirty != 0 && is_lost(e);
    tiers.flash.region_has_dirty(&tiers.blocks, region, dirty)
}

/// Whether the region holds something that can be destaged now, of volumes other than these.
pub(crate) fn has_ready(shard: &Shard, region: u32, but: VolumeSet) -> bool {
    let tiers = &shard.tiers;
    tiers.flash.region_has_dirty(&tiers.blocks, region, |e: &Entry| {
        // (Beside an append, too: that may itself wait for room.)
        let append = |t: u32| matches!(tiers.transfers[t].kind, Kind::Append { .. });
        let free = e.transfer().is_none_or(append) && !e.has(DESTAGED | UNREADABLE);
        e.owed() != 0 && free && !but.has(e.key())
    })
}
