//! How long a destage of everything waits for stores that do not answer.
//!
//! Such a destage leaves out no store, however slow that is, and neither does a cleaning that makes room meanwhile. But
//! a store that hangs would then keep all volumes from getting room. So if none of the stores that the cleaner waits
//! for has answered anything for [`SILENT`], the destage [fails](Destages::fail_silent), and from then on cleanings
//! leave out late stores as usual.

use forebay_block::Nanos;

use super::super::Surroundings;
use super::LateWrites;
use crate::in_flight::RequestPlace;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// How long the stores may answer nothing; the second value applies while a request waits for room or for the destage.
const SILENT: Nanos = Nanos(30_000_000_000);
const SILENT_WAITED: Nanos = Nanos(10_000_000_000);

/// The last sign that a store for which the cleaner waits has answered.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Heard {
    at: Nanos,
    /// Its writes then: how many the cleaning in progress had begun, and how many were in flight.
    writes: [u32; 2],
}

impl LateWrites {
    /// The cleaning in progress has begun, has entered a phase, or a store has answered.
    pub(super) fn hear(&mut self, at: Nanos) {
        self.heard.at = self.heard.at.max(at);
    }

    /// The cleaner waits for writes to these volumes: takes notice if some have ended.
    pub(super) fn hear_writes(&mut self, world: &World, volumes: VolumeSet) {
        let mut writes = [0; 2];
        for (shard, volume) in world.shards.iter().flat_map(|s| volumes.iter().map(move |v| (s, v)))
        {
            let [begun, in_flight] = shard.destager.writes.counts(volume);
            writes = [writes[0] + begun, writes[1] + in_flight];
        }
        if self.heard.writes != writes {
            self.heard = Heard { at: world.now, writes };
        }
    }

    /// Whether cleanings leave out no store now: a stop is in progress, or a destage of everything. If the stores have
    /// been silent for too long, the destage fails instead.
    pub(in crate::cleaner) fn keeps_whole(&mut self, s: &mut Surroundings<'_>) -> bool {
        if !s.world.lifecycle.is_ready() {
            self.ask_at = None;
            return true;
        }
        if !s.destages.is_whole() {
            return false;
        }
        let due = self.heard.at.saturating_add(patience(s.world));
        if due > s.world.now {
            self.ask_at = Some(due);
            return true;
        }
        s.destages.fail_silent();
        s.world.stats.destages_silent += 1;
        false
    }
}

fn patience(world: &World) -> Nanos {
    let over_share = world.front.requests.count(RequestPlace::OverShare) > 0;
    let waits = world.somebody_waits() || over_share || world.holds.any();
    if waits { SILENT_WAITED } else { SILENT }
}
