//! The region that stores destage next: the oldest that holds dirty records of theirs.

use forebay_flash::RegionIndex;

use super::{Cleaner, Work};
use crate::shard::owed;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// Queues the oldest region with dirty records of volumes other than these for destaging, unless it is being
/// cleaned already; returns whether it did.
pub(crate) fn destage_oldest(world: &World, cleaner: &mut Cleaner, but: VolumeSet) -> bool {
    let dirty =
        |region: &RegionIndex| world.shards.iter().any(|s| s.region_is_dirty_but(*region, but));
    let region = in_use(world).find(dirty).filter(|&region| !is_under_way(cleaner, region));
    region.into_iter().for_each(|region| cleaner.push(Work::Destage(region)));
    region.is_some()
}

/// The oldest region with dirty records that late stores can take now: those of volumes other than these.
pub(crate) fn oldest_for_late(
    world: &World,
    cleaner: &Cleaner,
    but: VolumeSet,
) -> Option<RegionIndex> {
    // Busy records cause another call when they are free; without this test, a late store would be tried in vain all
    // the time.
    let ready = |region: &RegionIndex| {
        !is_under_way(cleaner, *region)
            && world.shards.iter().any(|s| owed::has_ready(s, *region, but))
    };
    in_use(world).find(ready)
}

/// The regions of a log that works, from the oldest on.
fn in_use(world: &World) -> impl Iterator<Item = RegionIndex> + '_ {
    let log = world.log.as_ref().filter(|log| log.error().is_none());
    log.into_iter().flat_map(|log| log.regions_in_use())
}

fn is_under_way(cleaner: &Cleaner, region: RegionIndex) -> bool {
    cleaner.is_cleaning(region) || cleaner.is_wanted_clean(region)
}
