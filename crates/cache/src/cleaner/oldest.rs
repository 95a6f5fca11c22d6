//! The region that stores destage next: the oldest that holds dirty records of theirs.

use super::{Cleaner, Purpose};
use crate::shard::owed;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// Queues the oldest region with dirty records of volumes other than these for destaging.
pub(crate) fn clean_oldest(
    world: &World,
    cleaner: &mut Cleaner,
    but: VolumeSet,
    purpose: Purpose,
) -> bool {
    let found = oldest(world, cleaner, but, purpose);
    found.into_iter().for_each(|region| cleaner.push(region, purpose));
    found.is_some()
}

/// The oldest region with something dirty, of volumes other than these, if it is not being destaged already.
pub(crate) fn oldest(
    world: &World,
    cleaner: &Cleaner,
    but: VolumeSet,
    purpose: Purpose,
) -> Option<u32> {
    let log = world.log.as_ref().filter(|log| log.error().is_none())?;
    let dirty = |region: &u32| world.shards.iter().any(|s| s.region_is_dirty_but(*region, but));
    let under_way = |region| cleaner.is_cleaning(region) || cleaner.is_wanted_clean(region);
    // Busy records cause another call when they are free; without this test, a late store would be tried in vain all
    // the time.
    let ready = |region: &u32| {
        !under_way(*region) && world.shards.iter().any(|s| owed::has_ready(s, *region, but))
    };
    match purpose {
        Purpose::Late => log.regions_in_use().find(ready),
        _ => log.regions_in_use().find(dirty).filter(|&region| !under_way(region)),
    }
}
