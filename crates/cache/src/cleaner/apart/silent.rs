//! How long a destage of everything waits for stores that do not answer.
//!
//! Such a destage leaves out no store, however slow that is, and neither does a cleaning that makes room meanwhile. But
//! a store that hangs would then keep all volumes from getting room. So if none of the stores that owe the cleaner an
//! answer has answered anything for [`SILENT`], the destage [fails](Destages::fail_silent), and cleanings may leave out
//! these stores. If they cannot (all are silent, or there is no room to carry their records forward), the destage ends
//! after the same time again.

use forebay_block::Nanos;
use forebay_flash::BatchSequence;

use super::super::reclaim::unstamped_owed;
use super::super::{Cleaning, CleaningState, DestagePhase, Destaging, ReclaimPhase, Surroundings};
use super::{LateWrites, is_writing};
use crate::in_flight::RequestPlace;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// How long the stores may answer nothing; the second value applies while a request waits for room or for the destage.
const SILENT: Nanos = Nanos(30_000_000_000);
const SILENT_WAITED: Nanos = Nanos(10_000_000_000);

/// What the stores owe the cleaner. If it changes, a store has answered, or was asked something else.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct OwedAnswers {
    /// The stores that owe an answer.
    volumes: VolumeSet,
    /// Their writes: those that the last cleaning has begun, and those in flight.
    writes: [u32; 2],
    /// The sum of the times at which their stamps in progress were ordered.
    stamps: u64,
}

/// What the stores owe during a destage of everything, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Silence {
    owed: OwedAnswers,
    since: Nanos,
}

impl LateWrites {
    /// Comes last in each turn: the destage of everything in progress may fail now. Returns whether this turn has changed
    /// anything.
    pub fn watch(&mut self, active: Option<&Cleaning>, s: &mut Surroundings<'_>) -> bool {
        let before = self.silence;
        // (A stop waits for as long as its driver does. A single store keeps no other volume waiting.)
        let several = s.world.volumes.len() >= 2;
        let watches = s.world.lifecycle.is_ready() && s.destages.is_under_way() && several;
        let owed = if watches { self.owed(active, s) } else { OwedAnswers::default() };
        if owed.volumes.is_empty() {
            self.silence = Silence::default();
            return before != self.silence;
        }
        if owed != self.silence.owed {
            self.silence = Silence { owed, since: s.world.now };
        }
        if self.silence_due(s.world).is_some_and(|due| due <= s.world.now) {
            s.world.stats.destages_silent += u64::from(s.destages.fail_silent(owed.volumes));
            self.silence = Silence { owed, since: s.world.now };
        }
        before != self.silence
    }

    /// When the destage of everything in progress fails, if stores owe an answer until then.
    pub fn silence_due(&self, world: &World) -> Option<Nanos> {
        let Silence { owed, since } = self.silence;
        (!owed.volumes.is_empty()).then(|| since.saturating_add(patience(world)))
    }

    /// What stores owe this cleaning, or earlier ones.
    fn owed(&self, active: Option<&Cleaning>, s: &Surroundings<'_>) -> OwedAnswers {
        let writing = s.world.volumes.numbers().filter(|&volume| is_writing(s.world, volume));
        let (mut volumes, mut stamped): (VolumeSet, _) = (writing.collect(), self.covering);
        match active.map(Cleaning::state) {
            Some(CleaningState::Destaging(destaging)) => match destaging.phase() {
                DestagePhase::Syncing { left, .. } => volumes |= left,
                DestagePhase::Stamping { newest } => {
                    stamped |= unstamped_chosen(s, destaging, newest);
                }
                DestagePhase::Covering { failed } => {
                    stamped |= s.stamps.uncovered(destaging.volumes & !failed);
                }
                _ => {}
            },
            Some(CleaningState::Reclaiming(ReclaimPhase::Releasing)) => {
                stamped |= unstamped_owed(s.world, s.stamps);
            }
            _ => {}
        }
        // (Not those that other stores get from time to time.)
        let stamped = s.stamps.under_way() & stamped;
        volumes |= self.syncing | stamped;
        let shards = s.world.shards.iter().map(|shard| &shard.destager.writes);
        let counts = shards.flat_map(|writes| volumes.iter().map(|volume| writes.counts(volume)));
        OwedAnswers {
            volumes,
            writes: counts.fold([0; 2], |[a, b], [begun, in_flight]| [a + begun, b + in_flight]),
            stamps: stamped.iter().filter_map(|v| s.stamps.ordered_at(v)).map(|at| at.0).sum(),
        }
    }
}

/// The volumes of the chosen records, of batches up to `newest`, whose stamps have not seen the records.
pub(in crate::cleaner) fn unstamped_chosen(
    s: &Surroundings<'_>,
    destaging: &Destaging,
    newest: BatchSequence,
) -> VolumeSet {
    let shards = s.world.shards.iter();
    let chosen = shards.fold(VolumeSet::EMPTY, |all, s| all | s.destager.chosen_volumes());
    s.stamps.unseen(chosen & !(destaging.skipped | destaging.failed), newest)
}

/// Whether cleanings must not leave out these stores, because of a stop or a destage of everything.
pub(super) fn keeps(s: &Surroundings<'_>, volumes: VolumeSet) -> bool {
    !s.world.lifecycle.is_ready()
        || s.destages.is_under_way() && !(volumes & !s.destages.silent()).is_empty()
}

fn patience(world: &World) -> Nanos {
    let count = |place| world.front.requests.count(place) > 0;
    let waits = count(RequestPlace::OverShare) || count(RequestPlace::Held);
    if waits || world.somebody_waits() { SILENT_WAITED } else { SILENT }
}
