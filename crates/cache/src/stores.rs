//! Failing and late backing stores, and their effect on the other volumes.
//!
//! All volumes share the flash tier, and its log reclaims regions in the order in which they were
//! filled. These rules keep one store that accepts no writes, or takes long, from stopping the log:
//!
//! - With several volumes, each may have dirty blocks on at most half of flash, and all together on
//!   three quarters (`shares.rs`). Beyond that, writes wait until some are destaged; destaging begins
//!   before.
//! - A store that has failed [`FAILURES_MAX`](crate::cleaner::FAILURES_MAX) times in a row is
//!   *known to fail*: reclaiming a region does not try it, but carries its records on to the head
//!   of the log (`shard/destager/carry.rs`). From time to time a *probe* tries it again
//!   (`probes.rs`).
//! - How long requests wait for such stores is limited (`wait_limit.rs`).
//! - Cleanings do not wait for late stores, which get cleanings of their own (`late_destages.rs`).

mod late_destages;
mod probes;
mod wait_limit;

use forebay_block::{Nanos, Volume};
use forebay_effect::IoError;

pub use self::probes::PROBE_PERIOD;

use self::late_destages::LateDestages;
use self::probes::Probes;
use self::wait_limit::{WaitLimit, applies, stops_in_vain};
use crate::cleaner::{Cleaner, destage_oldest};
use crate::in_flight::RequestPlace;
use crate::late::{Lateness, Round};
use crate::shard::Tiers;
use crate::stamp::Stamps;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;
use crate::world::{Turn, World, shard_context, sooner};

/// What the cache does about stores that fail or are late. `StoreConditions` knows which ones these
/// are.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    probes: Probes,
    limit: WaitLimit,
    late: LateDestages,
}

impl Stores {
    // ---- what others have found out ----

    /// Notes how a volume's store has completed the writes of a cleaning.
    pub fn note_pace(&mut self, world: &mut World, volume: Volume, writes: Round) {
        if world.volumes.conditions.late.note(volume, writes) {
            Stores::pin(world);
        }
    }

    /// Notes that a volume's store has ended a sync that a cleaning asked for at `since`.
    pub fn note_synced(&mut self, world: &mut World, volume: Volume, since: Nanos) {
        if world.volumes.conditions.late.note_synced(volume, since, world.now) {
            Stores::pin(world);
        }
    }

    /// Notes in what these volumes' stores are late.
    pub fn note_late(&mut self, world: &mut World, volumes: VolumeSet, what: Lateness) {
        if world.volumes.conditions.late.add(volumes, what) {
            self.late.note_late(world.now);
            Stores::pin(world);
        }
    }

    /// The stamps of these volumes could not be written. For a late store this counts as a failed
    /// write; for others the cleaning that waits for the stamp reports it.
    pub fn note_unstamped(&mut self, world: &mut World, failed: VolumeSet) {
        let late = failed & world.volumes.conditions.late.volumes();
        if !late.is_empty() {
            self.note_cleaned(world, VolumeSet::EMPTY, late, IoError::Device);
        }
    }

    /// Notes to which volumes a cleaning has written, and to which it has failed to write.
    pub fn note_cleaned(
        &mut self,
        world: &mut World,
        written: VolumeSet,
        failed: VolumeSet,
        error: IoError,
    ) {
        self.probes.note_tried(written | failed);
        let conditions = &mut world.volumes.conditions;
        if !(failed & conditions.late.volumes()).is_empty() {
            self.late.pause(world.now);
        }
        for volume in (written | failed).iter() {
            if failed.contains(volume) {
                let first = conditions.failing().is_empty();
                conditions.cleaning_failed(volume, error, world.now);
                if first && !conditions.failing().is_empty() {
                    self.probes.put_off(world.now);
                }
            } else {
                world.stats.stores_recovered += u64::from(conditions.cleaning_succeeded(volume));
            }
        }
        Stores::pin(world);
        if world.volumes.conditions.failing().is_empty() {
            self.limit.end_jam(world);
        }
    }

    /// Tells the shards which volumes are left out. Called whenever that may have changed.
    fn pin(world: &mut World) {
        let left_out = world.volumes.conditions.left_out();
        for shard in &mut world.shards {
            let Tiers { flash, blocks, transfers, .. } = &mut shard.tiers;
            flash.pin(blocks, transfers, &mut shard_context!(world), left_out);
        }
    }

    // ---- turns ----

    /// Whether [`Stores::take_turn`] may find work.
    #[inline]
    pub fn has_work(&self, world: &World) -> bool {
        let Volumes { shares, conditions, .. } = &world.volumes;
        debug_assert!(
            world.shards.iter().all(|shard| shard.tiers.flash.pins(conditions.left_out())),
            "a shard does not know which volumes are left out"
        );
        world.front.requests.count(RequestPlace::OverShare) > 0
            || !(shares.crowded() & !conditions.left_out()).is_empty()
            || !conditions.failing().is_empty() && !world.lifecycle.stays_in_service()
            || !conditions.late.volumes().is_empty()
    }

    /// Takes one turn: lets requests that wait for a share continue, and destages volumes near
    /// their shares.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        stamps: &mut Stamps,
    ) -> Turn {
        let mut any = world.release_under_share();
        let waits = world.front.requests.count(RequestPlace::OverShare) > 0;
        let Volumes { shares, conditions, .. } = &world.volumes;
        if waits && !(conditions.failing() & shares.crowded()).is_empty() {
            self.limit.review(world, cleaner);
        }
        if !world.volumes.conditions.late.volumes().is_empty() {
            any |= self.late.take_turn(world, cleaner, stamps);
        }
        any |= self.destage_crowded(world, cleaner);
        match stops_in_vain(world, cleaner) {
            true => Turn::GiveUp,
            false => Turn::from(any),
        }
    }

    /// Begins to destage volumes that are near their shares; returns whether it began.
    fn destage_crowded(&self, world: &World, cleaner: &mut Cleaner) -> bool {
        let left_out = world.volumes.conditions.left_out();
        let crowded = !(world.volumes.shares.crowded() & !left_out).is_empty();
        // The destages of probes are not counted.
        let probes = self.probes.volumes().len() as usize;
        crowded
            && cleaner.destages() <= probes
            && world.lifecycle.is_ready()
            && destage_oldest(world, cleaner, left_out)
    }

    /// Volumes to try although their stores are known to fail.
    pub fn probed(&self) -> VolumeSet {
        self.probes.volumes()
    }

    /// Checks how long requests have waited for stores that are known to fail: fails those that
    /// have waited too long, and may suspend volumes. Called when a request begins to wait, when a
    /// cleaning ends, when time has passed, when a stop is near, and when an operator requests a
    /// retry.
    pub fn review_failing(&mut self, world: &mut World, cleaner: &Cleaner) {
        self.limit.review(world, cleaner);
    }

    // ---- time ----

    /// When the cache has to be called for stores that fail or are late.
    #[inline]
    pub fn timeout(&self, world: &World) -> Option<Nanos> {
        if world.volumes.conditions.left_out().is_empty() {
            return None;
        }
        let probe = applies(world).then(|| self.probes.due());
        let failing = sooner(probe, self.limit.timeout(world));
        sooner(failing, self.late.timeout(world))
    }

    /// Does what is due by now. `destage`: a destage of everything is in progress.
    pub fn handle_timeout(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        if !world.volumes.conditions.failing().is_empty() && world.lifecycle.is_ready() {
            self.limit.review(world, cleaner);
            if self.probes.due() <= world.now {
                self.probes.begin(world, cleaner, destage);
            }
        }
    }

    /// Retries failing stores now, instead of at the next due time. Until the result is known,
    /// writes wait as they did when the store began to fail: an operator says that it works again.
    pub fn retry(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        cleaner.retry_now();
        self.limit.begin_again();
        world.volumes.conditions.retry(world.now);
        self.limit.review(world, cleaner);
        self.probes.begin(world, cleaner, destage);
    }
}
