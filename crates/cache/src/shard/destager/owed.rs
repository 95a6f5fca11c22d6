//! The space that the records of a region would take if they were carried on.

use forebay_flash::{Geometry, RegionIndex};

use super::carry::is_lost;
use crate::shard::Shard;
use crate::shard::entry::Entry;
use crate::shard::transfer::TransferKind;
use crate::slab::TransferIndex;
use crate::volume_set::VolumeSet;

/// The cost of carrying on the records of a region.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owed {
    /// Number of blocks that would become lost.
    pub lost: u64,
    /// Number of pages of the log, at most.
    pub pages: u64,
}

/// At most 1/4 of the blocks that flash can hold may be lost ones.
const LOST_SHARE: u32 = 4;

/// Number of records in a carried batch, if there are as many bounce frames: large enough that the
/// headers of batches do not fill the reserved regions.
const CARRY_BATCH: usize = 16;

/// Which dirty records of a region are about to become clean, except of the volumes to be carried on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settling {
    /// None.
    Nothing,
    /// All that have been destaged.
    Destaged,
    /// All.
    All,
}

/// The cost of carrying on all dirty records in the region that do not become clean before. `None` if that is not
/// allowed: a record has to be destaged, because its volume is not in `carried`, or too many blocks would be lost. (A
/// lost block keeps its index entry, and other blocks need entries, too.)
pub(crate) fn needs(
    shard: &Shard,
    region: RegionIndex,
    carried: VolumeSet,
    settling: Settling,
    geometry: &Geometry,
) -> Option<Owed> {
    let tiers = &shard.tiers;
    let mut owed = Owed::default();
    let mut records: u64 = 0;
    let block = geometry.block_pages();
    for e in tiers.blocks.blocks_of(region).map(|id| &tiers.blocks[id]) {
        let carries = carried.has(e.key());
        let settles = match settling {
            Settling::Nothing => false,
            Settling::Destaged => e.is_destaged(),
            Settling::All => !is_lost(e),
        };
        if e.flash_dirty().is_empty() || settles && !carries {
            continue;
        }
        if is_lost(e) {
            // Each may end up in a batch of its own.
            owed.pages += 1;
            owed.lost += u64::from(!e.owed().is_empty() && e.lost_on_flash().is_empty());
        } else if carries {
            owed.pages += u64::from(block);
            records += 1;
        } else {
            return None;
        }
    }
    // Adds the headers of batches, and the pages that may stay unused at the end of a region.
    let frames = shard.destager.writes.frames(tiers);
    owed.pages += records.div_ceil(together(frames, geometry) as u64) + 2;
    let most = tiers.flash.entries() / LOST_SHARE;
    (owed.lost == 0 || tiers.blocks.lost() + owed.lost as u32 <= most).then_some(owed)
}

/// The least number of records that are carried on together, unless fewer are left or a late store keeps bounce frames.
pub(crate) fn batch(shard: &Shard, geometry: &Geometry) -> usize {
    together(shard.tiers.transfers.bounces() as u32, geometry)
}

/// Like [`batch`], if no more than `frames` bounce frames can become free.
pub(super) fn together(frames: u32, geometry: &Geometry) -> usize {
    let most =
        geometry.batch_entries_max.min((geometry.batch_pages_max - 1) / geometry.block_pages());
    (most.min(frames).max(1) as usize).min(CARRY_BATCH)
}

/// Whether a dirty record of the region could not be read.
pub(crate) fn is_unreadable(shard: &Shard, region: RegionIndex) -> bool {
    let tiers = &shard.tiers;
    let dirty = |e: &Entry| !e.flash_dirty().is_empty() && is_lost(e);
    tiers.blocks.region_has_dirty(region, dirty)
}

/// Whether the region holds records that can be destaged now, of volumes other than these.
pub(crate) fn has_ready(shard: &Shard, region: RegionIndex, but: VolumeSet) -> bool {
    let tiers = &shard.tiers;
    tiers.blocks.region_has_dirty(region, |e: &Entry| {
        // A record can also be destaged during an append of its block, since the append may itself
        // wait for room.
        let append =
            |t: TransferIndex| matches!(tiers.transfers[t].kind, TransferKind::Append { .. });
        let free = e.transfer().is_none_or(append) && !e.is_tried();
        !e.owed().is_empty() && free && !but.has(e.key())
    })
}
