//! A cleaning, from the choice of a region (`cleaner.rs`) to its end. Either its dirty records are
//! made durable, destaged and synced, or its mappings are moved, or its remaining records are
//! carried on.

use forebay_block::{Nanos, Volume};
use forebay_effect::{IoError, Outcome};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BatchSequence, RegionIndex};

use super::apart::{covers, note_taken, unstamped_chosen};
use super::phase::Writing;
use super::reclaim::{Left, Reclaimed, begin_moving, completed, may_settle, unstamped_owed};
use super::{
    Cleaner, Cleaning, CleaningState, DestagePhase, Destaging, Ending, ReclaimPhase, Told, Work,
};
use crate::destage::Destages;
use crate::shard::owed::Settling;
use crate::shard::{JobState, Target};
use crate::stamp::Stamps;
use crate::stores::Stores;
use crate::ticket::Ticket;
use crate::volume::SyncWaiter;
use crate::volume_set::VolumeSet;
use crate::world::{Turn, World, shard_context};

/// The objects that a cleaning needs during one call.
pub(crate) struct Surroundings<'a> {
    pub world: &'a mut World,
    pub stores: &'a mut Stores,
    pub stamps: &'a mut Stamps,
    pub destages: &'a mut Destages,
}

impl Cleaner {
    /// The records of the region to clean are durable, or could not be made durable.
    pub fn logged(&mut self, s: &mut Surroundings<'_>, result: Outcome) -> Turn {
        // A stop has cut the cleaning.
        if self.active.is_none() {
            return Turn::Nothing;
        }
        let newest = self.cleaning().destaging().newest_logging();
        if let Err(error) = result {
            return self.abandon(s.world, error);
        }
        self.cleaning().destaging().enter(DestagePhase::Stamping { newest });
        self.step_stamping(s, newest)
    }

    /// The chosen records will not be durable, or no stamp will cover them.
    fn abandon(&mut self, world: &mut World, error: IoError) -> Turn {
        // The log has failed, and everyone learns of that.
        let _ = self.end(Ending::Failed(error), world.now);
        abandon_chosen(world);
        self.consider_giving_up(world)
    }

    /// Called after several consecutive failures, when a request waits for room on flash. The log
    /// is given up if an unreadable dirty record permanently pins its region, or if a stop has to end.
    pub fn consider_giving_up(&mut self, world: &World) -> Turn {
        if world.flash.is_lost() || !world.somebody_waits_in_vain() {
            return Turn::Nothing;
        }
        // What can still be destaged first.
        let pinned = self.retries.reads_in_vain() && !self.is_destaging();
        if pinned || self.retries.fails() && !world.lifecycle.stays_in_service() {
            self.retries.retry_now();
            return Turn::GiveUp;
        }
        Turn::Nothing
    }

    /// The chosen records are written to the stores.
    fn write_chosen(&mut self, s: &mut Surroundings<'_>) {
        let active = self.cleaning().destaging();
        let mut awaited = VolumeSet::EMPTY;
        let late = s.world.volumes.conditions.late.volumes();
        let skipped = active.skipped | active.failed;
        let several = s.world.volumes.len() > 1;
        for shard in &mut s.world.shards {
            awaited |= shard.destager.chosen_volumes() & !skipped;
            shard.destager.begin(skipped, several, late);
        }
        active.enter(DestagePhase::Writing(Writing { since: s.world.now, awaited, shards: 0 }));
    }

    /// The log has stopped: nothing more is cleaned, and the current cleaning ends early. Returns
    /// whether none of its writes can reach a store any more.
    pub fn cut(&mut self, world: &mut World) -> bool {
        if world.mode.sabotage.is(Bug::CleansAfterStop) {
            return true;
        }
        self.forget();
        self.retries.retry_now();
        let apart = !self.apart.is_empty();
        let Some(active) = &self.active else { return !apart };
        match active.state() {
            CleaningState::Destaging(destaging) => match destaging.phase() {
                DestagePhase::Choosing
                | DestagePhase::Logging { .. }
                | DestagePhase::Stamping { .. } => {
                    self.end_untold(Ending::Dropped, world.now);
                    abandon_chosen(world);
                }
                DestagePhase::Writing(_) => {
                    world.shards.iter_mut().for_each(|shard| shard.destager.cut());
                    return false;
                }
                // (These phases end without stamps: a cut has made stamps unnecessary.)
                DestagePhase::Syncing { .. }
                | DestagePhase::Covering { .. }
                | DestagePhase::Settling { .. } => return false,
            },
            CleaningState::Reclaiming(ReclaimPhase::Releasing) => {
                self.end_untold(Ending::Dropped, world.now);
            }
            // They only ask the log, which refuses.
            CleaningState::Reclaiming(
                ReclaimPhase::Moving { .. }
                | ReclaimPhase::Carrying
                | ReclaimPhase::Picking { .. }
                | ReclaimPhase::Reinserting,
            ) => {}
        }
        !apart
    }

    /// One turn.
    pub fn take_turn(&mut self, s: &mut Surroundings<'_>) -> Turn {
        let works = s.world.log.as_ref().is_some_and(|log| log.error().is_none());
        if works && s.world.shards.iter().any(|s| s.tiers.flash.is_exhausted()) {
            return Turn::GiveUp;
        }

        let may = may_clean(s.world);
        let owes = may && works && s.world.shards.iter().any(|s| s.tiers.flash.wants_destage());
        if owes && !self.is_evicting() {
            self.push(Work::Evict);
        }

        let mut any = !self.apart.is_empty() && self.apart.step(s);
        any |= self.begin_next(s, may);
        let turn = self.step_phase(s);
        turn.or(any | self.apart.watch(self.active.as_ref(), s))
    }

    /// When the destage of everything in progress fails, if stores owe an answer until then.
    pub fn silence_due(&self, world: &World) -> Option<Nanos> {
        self.apart.silence_due(world)
    }

    /// Begins the next cleaning, if one may begin now; returns whether it began.
    fn begin_next(&mut self, s: &mut Surroundings<'_>, may: bool) -> bool {
        let idle = self.active.is_none() && self.apart.let_begin(s);
        let may = idle && may && !s.world.holds.cleanings;

        let (wanted, room) = (self.needs_region(s.world), self.room_to_reclaim(s.world));
        let next = may.then(|| self.take_next(wanted, room)).flatten();
        let Some((work, paused)) = next else { return false };
        self.active = Some(match work {
            Work::Reclaim(region) if begin_moving(s, region) => Cleaning::moves(region, paused),
            _ => Cleaning::destage(work, paused, self.begin_choosing(s, work)),
        });
        true
    }

    /// The cleaning in progress takes the next step of its phase.
    fn step_phase(&mut self, s: &mut Surroundings<'_>) -> Turn {
        let Some(active) = &self.active else { return Turn::Nothing };
        match active.state() {
            CleaningState::Destaging(destaging) => match destaging.phase() {
                DestagePhase::Choosing => Turn::from(self.step_choice(s.world)),
                DestagePhase::Stamping { newest } => self.step_stamping(s, newest),
                DestagePhase::Writing(_) => self.step_writing(s),
                DestagePhase::Syncing { left, .. } => self.step_syncing(s, left),
                DestagePhase::Covering { failed } => self.step_covering(s, failed),
                DestagePhase::Settling { failed } => self.step_settling(s, failed),
                DestagePhase::Logging { .. } => Turn::Nothing,
            },
            CleaningState::Reclaiming(phase) => {
                self.step_reclaim(s, active.work.reclaimed(), *phase)
            }
        }
    }

    /// Continues to write the chosen records; when all are written, syncs their stores.
    fn step_writing(&mut self, s: &mut Surroundings<'_>) -> Turn {
        let work = self.cleaning().work;
        let active = self.active.as_mut().expect("a cleaning is writing").destaging();
        for n in 0..s.world.shards.len() {
            if active.writing().shards >> n & 1 == 1 {
                continue;
            }
            let shard = &mut s.world.shards[n];
            let state = shard.destager.step(&mut shard.tiers, &mut shard_context!(s.world));
            shard.end_turn(&mut shard_context!(s.world));
            let JobState::Written { volumes, error, unreadable, failed } = state else {
                continue;
            };
            active.volumes |= volumes;
            active.failed |= failed & !active.skipped;
            active.error = active.error.or(error);
            active.unreadable |= unreadable;
            active.writing().shards |= 1 << n;
        }
        if active.writing().shards.count_ones() as usize != s.world.shards.len() {
            let may_settle = may_settle(&self.progress, &self.retries, Settling::Destaged);
            return Turn::from(self.apart.part(work, active, s, may_settle));
        }

        note_taken(active.writing(), s, VolumeSet::EMPTY);
        self.apart.end_asking();
        self.begin_syncing(s)
    }

    /// Syncs the stores that were written to; without any, the cleaning continues at once.
    fn begin_syncing(&mut self, s: &mut Surroundings<'_>) -> Turn {
        let active = self.cleaning().destaging();
        if s.world.mode.sabotage.is(Bug::RegionFreedBeforeSync) {
            active.volumes = VolumeSet::EMPTY;
        }
        let volumes = active.volumes;
        active.enter(DestagePhase::Syncing { since: s.world.now, left: volumes });
        for volume in volumes.iter() {
            s.world.volumes.sync(volume, SyncWaiter::Cleaner, &mut s.world.effects);
        }
        if volumes.is_empty() { self.begin_covering(s) } else { Turn::Something }
    }

    /// Stores are being synced; when all syncs have ended for which the cleaning waits, stamps follow.
    fn step_syncing(&mut self, s: &mut Surroundings<'_>, left: VolumeSet) -> Turn {
        if left.is_empty() {
            self.apart.end_asking();
            return self.begin_covering(s);
        }
        let Cleaning { work, .. } = *self.cleaning();
        let active = self.active.as_mut().expect("a cleaning is syncing").destaging();
        let may_settle = may_settle(&self.progress, &self.retries, Settling::Destaged);
        Turn::from(self.apart.part_syncing(work, active, s, may_settle))
    }

    /// The stores are synced, or could not be: stamps are to cover their records.
    fn begin_covering(&mut self, s: &mut Surroundings<'_>) -> Turn {
        let active = self.cleaning().destaging();
        // Data written before a failed sync may be gone though a later one succeeded.
        let failed = s.world.volumes.conditions.unsynced_since(active.sync_failures);
        s.stamps.note_taken_over(active.volumes & !failed);
        active.enter(DestagePhase::Covering { failed });
        self.step_covering(s, failed).or(true)
    }

    /// When stamps cover all records for which the cleaning waits, these begin to count as clean.
    fn step_covering(&mut self, s: &mut Surroundings<'_>, failed: VolumeSet) -> Turn {
        let Cleaning { work, .. } = *self.cleaning();
        let active = self.active.as_mut().expect("a cleaning is covering").destaging();
        let volumes = active.volumes & !failed;
        let left = if covers(s.world) { s.stamps.uncovered(volumes) } else { VolumeSet::EMPTY };
        if left.is_empty() {
            self.apart.end_asking();
            active.enter(DestagePhase::Settling { failed });
            return self.step_settling(s, failed).or(true);
        }
        let may_settle = may_settle(&self.progress, &self.retries, Settling::Destaged);
        if self.apart.part_covering(work, active, s, left, may_settle) {
            return Turn::Something;
        }
        // The stores that have all of the region say so: then their copies can be completed without it.
        let (whole, complete) = completed(s.world, work);
        let any = s.stamps.order(s.world, left & whole, complete, false);
        Turn::from(s.stamps.order(s.world, left & !whole, BatchSequence::NONE, false) || any)
    }

    /// Begins to choose the records to destage.
    fn begin_choosing(&mut self, s: &mut Surroundings<'_>, work: Work) -> Destaging {
        let dirty = s.world.volumes.dirty_blocks > 0;
        let whole = s.destages.is_cleaning();
        let mut skipped = self.progress.to_skip(s, work, whole);
        // An older version must not reach a store after a newer one.
        self.apart.check_shards(&s.world.shards);
        if !s.world.mode.sabotage.is(Bug::ApartOvertaken) {
            skipped |= self.apart.volumes();
        }
        for shard in &mut s.world.shards {
            shard.destager.choose(&mut shard.tiers, work.target(), dirty, skipped);
        }
        Destaging::new(skipped, whole, s.world.volumes.conditions.sync_failures())
    }

    /// Continues choosing; when all are chosen, makes them durable in the log. Returns whether it
    /// did that.
    fn step_choice(&mut self, world: &mut World) -> bool {
        for shard in &mut world.shards {
            if !shard.destager.choose_step(&mut shard.tiers, &mut shard_context!(world)) {
                return false;
            }
        }
        let log = world.log.as_mut().expect("only a log has regions");
        let active = self.cleaning();
        let newest = match active.work.target() {
            Target::Region(region) => log.newest_batch(region),
            Target::Coldest => log.complete_batch(),
        };
        active.destaging().enter(DestagePhase::Logging { newest });
        log.sync_written(Ticket::Cleaner.encode());
        true
    }

    /// The stores have durably taken their records, except for some volumes: those destaged to the others are clean.
    fn step_settling(&mut self, s: &mut Surroundings<'_>, failed: VolumeSet) -> Turn {
        for shard in &mut s.world.shards {
            if !shard.destager.end(&mut shard.tiers, &mut shard_context!(s.world), failed) {
                return Turn::Nothing;
            }
        }
        let volumes = self.cleaning().destaging().volumes;
        self.end_writing(s, failed & volumes).or(true)
    }

    /// Stamps are written, except for those of `failed`: a cleaning that waits for stamps takes its next step. Also
    /// returns the volumes of `failed` that nobody waits for.
    pub fn stamped(&mut self, s: &mut Surroundings<'_>, failed: VolumeSet) -> (Turn, VolumeSet) {
        let failed = failed & !self.apart.note_uncovered(failed);
        let Some(active) = &self.active else { return (Turn::Nothing, failed) };
        match active.state() {
            CleaningState::Destaging(destaging) => match destaging.phase() {
                DestagePhase::Covering { failed: before } => {
                    let uncovered = failed & destaging.volumes & !before;
                    self.cleaning().destaging().note_uncovered(uncovered);
                    (self.step_covering(s, before | uncovered), failed & !uncovered)
                }
                DestagePhase::Stamping { newest } => {
                    let unstamped = failed & unstamped_chosen(s, destaging, newest);
                    let active = self.cleaning().destaging();
                    if !unstamped.is_empty() {
                        // They count as if writes to them had failed; the cleaning continues with the others.
                        active.failed |= unstamped;
                        active.error = Some(IoError::Device);
                    }
                    (self.step_stamping(s, newest), failed & !unstamped)
                }
                _ => (Turn::Nothing, failed),
            },
            CleaningState::Reclaiming(ReclaimPhase::Releasing) => {
                let unstamped = failed & unstamped_owed(s.world, s.stamps);
                if unstamped.is_empty() {
                    return (self.step_releasing(s, active.work.reclaimed()), failed);
                }
                s.stores.note_cleaned(s.world, VolumeSet::EMPTY, unstamped, IoError::Device);
                (self.conclude(s, Ending::Failed(IoError::Device)), failed & !unstamped)
            }
            CleaningState::Reclaiming(_) => (Turn::Nothing, failed),
        }
    }

    /// The chosen records, of batches up to `newest`, are written when the stamps of their stores have seen them.
    fn step_stamping(&mut self, s: &mut Surroundings<'_>, newest: BatchSequence) -> Turn {
        let wanted = unstamped_chosen(s, self.cleaning().destaging(), newest);
        if wanted.is_empty() {
            self.apart.end_asking();
            self.write_chosen(s);
            return Turn::Something;
        }
        let Cleaning { work, .. } = *self.cleaning();
        let active = self.active.as_mut().expect("a cleaning is stamping").destaging();
        let may_settle = may_settle(&self.progress, &self.retries, Settling::All);
        if self.apart.part_stamping(work, active, s, wanted, may_settle) {
            return Turn::Something;
        }
        if let Some(log) = &mut s.world.log
            && !log.make_durable(newest)
        {
            return match log.error() {
                Some(error) => self.abandon(s.world, error),
                None => Turn::Nothing,
            };
        }
        Turn::from(s.stamps.order(s.world, wanted, BatchSequence::NONE, false))
    }

    /// The destaged records are clean now, except for the volumes whose sync failed.
    fn end_writing(&mut self, s: &mut Surroundings<'_>, unsynced: VolumeSet) -> Turn {
        let work = self.cleaning().work;
        let active = self.cleaning().destaging();
        let written = match active.error {
            Some(error) => Err(error),
            None if !unsynced.is_empty() => Err(IoError::Device),
            None => Ok(()),
        };
        let (failed, skipped) = (active.failed | unsynced, active.skipped);
        s.stores.note_cleaned(
            s.world,
            active.volumes,
            failed,
            written.err().unwrap_or(IoError::Device),
        );
        if !may_clean(s.world) {
            // It was cut short, and the stop did not need it.
            self.end_untold(Ending::Dropped, s.world.now);
            return Turn::Something;
        }

        let owes = self.note_owed(s);
        // A store that is known to fail must not delay the others.
        let known = (failed & !s.world.volumes.conditions.failing()).is_empty();
        if let Work::Reclaim(region) = work {
            let left = Left { skipped, failed, known };
            return match self.judge(s, region, owes, left, written) {
                Reclaimed::Clean => {
                    self.progress.note_reclaimed();
                    self.begin_reinserting(s, region)
                }
                Reclaimed::CarriedOn(carried) => self.begin_carrying(s, region, carried),
                Reclaimed::Stays(ending) => self.conclude(s, ending),
            };
        }
        let probed = !s.destages.is_under_way() && !failed.is_empty() && known;
        let ending = match written {
            Ok(()) => Ending::Done,
            Err(error) if work.destages() && probed => Ending::StillFailing(error),
            Err(error) => Ending::Failed(error),
        };
        self.conclude(s, ending)
    }

    /// Whether the region still holds dirty records after this cleaning. A destage learns of what it could not
    /// write.
    fn note_owed(&mut self, s: &mut Surroundings<'_>) -> bool {
        let work = self.cleaning().work;
        let Some(region) = work.region() else { return false };
        let active = self.cleaning().destaging();
        // Another attempt would not help unreadable records. But their region cannot be reused, and the log must
        // learn of that.
        let owes = active.unreadable
            || s.world.shards.iter().any(|shard| shard.tiers.blocks.region_is_dirty(region));
        let leaves_out = active.whole && !active.skipped.is_empty();
        if owes && work.destages() {
            self.account.note_unread(region);
            if leaves_out {
                s.destages.fail(self.retries.error());
            }
        }
        owes
    }

    /// The current cleaning has ended in a way that concerns nobody else.
    pub(super) fn end_untold(&mut self, ending: Ending, now: Nanos) {
        let told = self.end(ending, now);
        assert_eq!(told, Told::Nobody, "{ending:?} concerns others");
    }

    /// The current cleaning ends, and a region to reclaim is not free: those whom it concerns learn
    /// of it.
    fn conclude(&mut self, s: &mut Surroundings<'_>, ending: Ending) -> Turn {
        s.world.stats.destage_retries += u64::from(ending.is_failure());
        match self.end(ending, s.world.now) {
            Told::Nobody => {}
            Told::Progress => self.progress.note_stuck(),
            Told::Destage(error) => s.destages.fail(error),
        }
        if matches!(ending, Ending::Crowded | Ending::Postponed | Ending::Parked) {
            return Turn::Something;
        }
        if self.consider_giving_up(s.world) == Turn::GiveUp {
            return Turn::GiveUp;
        }
        s.stores.review_failing(s.world, self);
        Turn::Something
    }

    /// Queues all regions with dirty records for cleaning.
    pub fn push_all_dirty(&mut self, world: &World) {
        let regions = world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        for region in RegionIndex::all(regions) {
            let dirty = world.shards.iter().any(|s| s.tiers.blocks.region_is_dirty(region));
            if dirty && !self.is_wanted_clean(region) {
                self.push(Work::Destage(region));
            }
        }
    }

    /// A store that was written is synced, or its sync has failed. Returns when the sync began.
    pub fn synced(&mut self, volume: Volume) -> Nanos {
        let apart = self.apart.note_synced(volume);
        apart.unwrap_or_else(|| self.cleaning().destaging().note_synced(volume))
    }
}

/// The chosen records will not be cleaned.
fn abandon_chosen(world: &mut World) {
    for shard in &mut world.shards {
        shard.destager.abandon(&mut shard.tiers, &mut shard_context!(world));
    }
}

/// Whether another region may be cleaned: not after the log has stopped.
fn may_clean(world: &World) -> bool {
    world.lifecycle.may_clean() || world.mode.sabotage.is(Bug::CleansAfterStop)
}
