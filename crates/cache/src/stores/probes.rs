//! Probes: from time to time, stores that are known to fail are tried again.

use forebay_block::Nanos;

use crate::cleaner::{Cleaner, destage_oldest};
use crate::volume_set::VolumeSet;
use crate::world::World;

/// Time between probes of stores that are known to fail.
pub const PROBE_PERIOD: Nanos = Nanos(5_000_000_000);

/// The schedule of probes; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// When the next probe begins.
    due: Nanos,
    /// Volumes to try in the next cleaning that finds their records.
    volumes: VolumeSet,
}

impl Probes {
    /// Volumes to try although their stores are known to fail.
    pub fn volumes(&self) -> VolumeSet {
        self.volumes
    }

    /// When the next probe begins, if a store is known to fail.
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// Schedules the next probe for when the period has passed.
    pub fn put_off(&mut self, now: Nanos) {
        self.due = now.saturating_add(PROBE_PERIOD);
    }

    /// Notes that a cleaning has tried these volumes.
    pub fn note_tried(&mut self, volumes: VolumeSet) {
        self.volumes &= !volumes;
    }

    /// Makes the next cleaning try all stores that are known to fail; begins one if needed.
    /// `destage`: a destage of everything is in progress.
    pub fn begin(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        let failing = world.volumes.conditions.failing();
        if failing.is_empty() {
            return;
        }
        self.put_off(world.now);
        if destage {
            // The destage tries them all.
            return;
        }
        self.volumes = failing;
        world.stats.probes += 1;
        for volume in failing.iter() {
            destage_oldest(world, cleaner, !VolumeSet::only(volume));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;

    #[test]
    fn a_volume_is_probed_until_a_cleaning_has_tried_it() {
        let one = VolumeSet::only(Volume(1));
        let mut probes = Probes { due: Nanos(0), volumes: one | VolumeSet::only(Volume(2)) };
        probes.note_tried(VolumeSet::only(Volume(2)) | VolumeSet::only(Volume(3)));
        assert_eq!(probes.volumes(), one);
        probes.put_off(Nanos(7));
        assert_eq!((probes.due(), probes.volumes()), (Nanos(7 + PROBE_PERIOD.0), one));
    }
}
