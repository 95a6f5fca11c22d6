//! Destages apart from cleanings: the writes to late stores (`late.rs`), their syncs, and the stamps that follow, that
//! a cleaning has begun but does not wait for. When the writes have ended, the stores are synced, stamps cover the
//! destaged records, and then these are clean, as at the end of a cleaning. No cleaning writes to such a volume before
//! that.
//!
//! A write without a sync is not durable, and a record that no stamp covers may not leave the log. So it makes no
//! difference whether a cleaning leaves a store before its writes have ended, before its sync has, or before its stamp
//! is durable: the records stay dirty, and a reclaim carries them on.

mod overdue;
mod silent;

pub(super) use overdue::covers;
pub(super) use silent::unstamped_chosen;
use silent::{Silence, keeps};

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_effect::IoError;
use forebay_flash::sabotage::Bug;
use forebay_flash::{BatchSequence, RegionIndex};

use super::phase::Writing;
use super::{Destaging, Surroundings, Work};
use crate::cache::VOLUMES_MAX;
use crate::late::{Lateness, Round};
use crate::shard::Shard;
use crate::volume::SyncWaiter;
use crate::volume_set::VolumeSet;
use crate::world::{World, shard_context};

/// Time after a refusal until a cleaning asks again whether it may leave late stores out.
const ASK_AGAIN: Nanos = Nanos(100_000_000);

/// A cleaning's part of one volume.
#[derive(Clone, Copy, Default, Debug)]
struct Begun {
    /// When the cleaning began to write.
    since: Nanos,
    /// When its writes to the volume had ended, if they have.
    ended: Nanos,
    /// When the sync after them began, if it has.
    sync_since: Nanos,
    /// Its writes to the volume.
    writes: u32,
    /// Some of them were in flight when the cleaning continued without the volume. Otherwise the volume had waited for
    /// others, and its time says nothing about its store.
    slow: bool,
    /// The count of failed syncs when the cleaning began.
    sync_failures: u64,
}

/// The writes that end apart, by volume, and when a cleaning may leave more to them. See the module. `Late` knows
/// which stores are late; each shard has the records that its writes will clean (`shard/destager/apart.rs`).
///
/// A shard needs to know which volumes are apart whenever a write ends, so it keeps a copy of the set. A volume that one
/// of them did not have would be destaged by two cleanings at once, or its records would count as clean
/// before its store is synced. [`LateWrites::check_shards`] therefore compares the copies whenever a volume enters
/// or leaves the set, and before a cleaning chooses.
#[derive(Debug)]
pub(super) struct LateWrites {
    writing: VolumeSet,
    syncing: VolumeSet,
    synced: VolumeSet,
    /// Volumes whose sync has ended: stamps are to cover their records.
    covering: VolumeSet,
    /// Volumes whose writes and sync have ended: their records become clean, or stay dirty after a failure.
    settling: VolumeSet,
    /// Settling volumes with a failed write.
    failed: VolumeSet,
    /// Covering and settling volumes whose sync or stamp has failed.
    unsynced: VolumeSet,
    /// The error of the last failed write.
    error: IoError,
    /// By volume.
    begun: PerVolume<Begun>,
    /// No cleaning begins before these writes have ended.
    awaited: bool,
    /// When the cleaning in progress asks whether it may continue without the stores that it waits for.
    ask_at: Option<Nanos>,
    /// It was refused, and does not ask again before this time.
    refused_until: Option<Nanos>,
    silence: Silence,
}

impl LateWrites {
    pub fn new() -> LateWrites {
        LateWrites {
            writing: VolumeSet::EMPTY,
            syncing: VolumeSet::EMPTY,
            synced: VolumeSet::EMPTY,
            covering: VolumeSet::EMPTY,
            settling: VolumeSet::EMPTY,
            failed: VolumeSet::EMPTY,
            unsynced: VolumeSet::EMPTY,
            error: IoError::Device,
            begun: PerVolume::filled(Begun::default(), VOLUMES_MAX),
            awaited: false,
            ask_at: None,
            refused_until: None,
            silence: Silence::default(),
        }
    }

    /// The volumes that are apart.
    #[inline]
    pub fn volumes(&self) -> VolumeSet {
        self.writing | self.syncing | self.synced | self.covering | self.settling
    }

    /// Checks that all shards agree on which volumes are apart. While volumes settle, a shard that has marked their
    /// records clean does not have them any more.
    ///
    /// # Panics
    /// If one has another set.
    pub fn check_shards(&self, shards: &[Shard]) {
        for shard in shards {
            let apart = shard.destager.writes.apart.volumes();
            let differ = (apart ^ self.volumes()) & !self.settling | apart & !self.volumes();
            assert!(
                differ.is_empty(),
                "a shard differs in which of {differ:?} are apart: {self:?}"
            );
        }
    }

    /// Whether nothing is written apart.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.volumes().is_empty()
    }

    /// No cleaning begins before what is written apart has ended.
    pub fn wait_for_end(&mut self) {
        self.awaited = true;
    }

    /// Whether another cleaning may begin. One that leaves no volume out waits for what is written apart.
    pub fn let_begin(&mut self, s: &Surroundings<'_>) -> bool {
        self.awaited &= !self.is_empty();
        !self.awaited && (self.is_empty() || !keeps(s, self.volumes()))
    }

    /// When the cleaning in progress asks next.
    pub fn timeout(&self) -> Option<Nanos> {
        self.ask_at
    }

    /// The time may have come.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.ask_at = self.ask_at.filter(|&at| at > now);
    }

    /// The cleaning in progress has ended a phase in which it waited for stores.
    pub fn end_asking(&mut self) {
        (self.ask_at, self.refused_until) = (None, None);
    }

    /// Whether the cleaning in progress may ask now; if not, it will be time later.
    fn may_ask(&mut self, now: Nanos) -> bool {
        self.refused_until = self.refused_until.filter(|&until| until > now);
        self.ask_at = self.refused_until;
        self.ask_at.is_none()
    }

    /// The cleaning in progress may not continue without more stores for now.
    fn refuse(&mut self, now: Nanos) {
        self.refused_until = Some(now.saturating_add(ASK_AGAIN));
        self.ask_at = self.refused_until;
    }

    /// A cleaning continues without a volume.
    fn add(&mut self, volume: Volume, begun: Begun) {
        self.writing.insert(volume);
        self.begun[volume] = begun;
    }

    /// If the cleaning in progress waits only for late stores, it continues without them; returns
    /// whether it does. `may_settle`: whether it can end although some volumes have not taken their
    /// records of the region to reclaim: those that it waits for, and all that have not.
    pub fn part(
        &mut self,
        work: Work,
        active: &mut Destaging,
        s: &mut Surroundings<'_>,
        may_settle: impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool,
    ) -> bool {
        let Writing { since, shards, .. } = *active.writing();
        // If the steps of this call are spent, records may wait that no shard has looked at, not for their stores.
        if s.world.budget.is_short() {
            return false;
        }
        if s.world.flash.is_lost() || s.world.volumes.len() < 2 {
            self.ask_at = None;
            return false;
        }
        let mut awaited = VolumeSet::EMPTY;
        for (n, shard) in s.world.shards.iter().enumerate() {
            if shards >> n & 1 == 0 {
                let Some(volumes) = shard.destager.awaited() else { return false };
                awaited |= volumes;
            }
        }
        note_taken(active.writing(), s, awaited);
        let writing: VolumeSet = awaited.iter().filter(|&v| is_writing(s.world, v)).collect();
        if keeps(s, if writing.is_empty() { awaited } else { writing }) {
            self.ask_at = None;
            return false;
        }
        let due = |apart: &LateWrites| apart.all_late_at(s, awaited, since);
        if !self.may_leave(work, active, s.world, awaited, due, may_settle) {
            return false;
        }
        let mut in_flight = VolumeSet::EMPTY;
        for volume in awaited.iter() {
            let (slow, writes) = (is_writing(s.world, volume), begun(s.world, volume));
            in_flight.insert_if(volume, slow);
            let sync_failures = active.sync_failures;
            self.add(volume, Begun { since, writes, slow, sync_failures, ..Begun::default() });
        }
        active.writing().awaited = VolumeSet::EMPTY;
        self.leave(active, s, awaited);
        // The other awaited volumes had no place for a write, or their records were busy.
        s.stores.note_late(s.world, in_flight, Lateness::Writes);
        true
    }

    /// Whether the cleaning in progress continues without these volumes, all of whose stores are late from the time
    /// `due` on.
    fn may_leave(
        &mut self,
        work: Work,
        active: &Destaging,
        world: &World,
        volumes: VolumeSet,
        due: impl FnOnce(&LateWrites) -> Option<Nanos>,
        may_settle: impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool,
    ) -> bool {
        if !self.may_ask(world.now) {
            return false;
        }
        let Some(due) = due(self) else { return false };
        if due > world.now {
            self.ask_at = Some(due);
            return false;
        }
        let untaken = active.failed | active.skipped | volumes;
        if let Work::Reclaim(region) = work
            && !may_settle(world, region, volumes, untaken)
        {
            self.refuse(world.now);
            return false;
        }
        true
    }

    /// The cleaning in progress continues without these volumes, which were added.
    fn leave(&self, active: &mut Destaging, s: &mut Surroundings<'_>, volumes: VolumeSet) {
        for shard in &mut s.world.shards {
            shard.destager.part(&mut shard.tiers, volumes);
        }
        active.part(volumes);
        self.check_shards(&s.world.shards);
        s.world.stats.cleanings_parted += 1;
    }

    /// When the stores of all these volumes are late, given writes that began at `since`; `None` if nothing is awaited,
    /// or if no other store is left to compare with: if all are slow, none is late. A store can be slow only while a
    /// write to it is in flight, of this cleaning or apart. The other awaited volumes wait for these writes: for a place,
    /// or because busy records have their turn when no write is in flight.
    fn all_late_at(&self, s: &Surroundings<'_>, awaited: VolumeSet, since: Nanos) -> Option<Nanos> {
        if awaited.is_empty() || self.are_all_slow(s.world, awaited, VolumeSet::EMPTY) {
            return None;
        }
        let (late, waits) = (&s.world.volumes.conditions.late, s.world.somebody_waits());
        let due = |volume| late.due(volume, since, begun(s.world, volume), waits);
        Some((awaited & !late.volumes()).iter().map(due).fold(Nanos(0), Nanos::max))
    }

    /// Whether all stores have yet to end writes, of those that the cleaning in progress has `begun` or apart from it,
    /// or to end syncs or the writes of headers, of these `others` or apart.
    fn are_all_slow(&self, world: &World, begun: VolumeSet, others: VolumeSet) -> bool {
        let writing = |&volume: &Volume| is_writing(world, volume);
        let writing: VolumeSet = (begun | self.volumes()).iter().filter(writing).collect();
        let others = others | self.syncing | self.covering;
        (writing | others).len() as usize == world.volumes.len()
    }

    /// If the volume is being synced apart, notes that its sync has ended, or has failed; returns when it began.
    pub fn note_synced(&mut self, volume: Volume) -> Option<Nanos> {
        let syncs = self.syncing.contains(volume);
        self.syncing.remove(volume);
        self.synced.insert_if(volume, syncs);
        syncs.then_some(self.begun[volume].sync_since)
    }

    /// One turn; returns whether it did anything.
    pub fn step(&mut self, s: &mut Surroundings<'_>) -> bool {
        let mut any = false;
        for volume in self.writing.iter() {
            if is_writing(s.world, volume) {
                continue;
            }
            any = true;
            self.writing.remove(volume);
            (self.begun[volume].ended, self.begun[volume].sync_since) = (s.world.now, s.world.now);
            let careless = s.world.mode.sabotage.is(Bug::ApartUnsynced);
            if self.begun[volume].writes == 0 || careless {
                self.synced.insert(volume);
            } else {
                self.syncing.insert(volume);
                s.world.volumes.sync(volume, SyncWaiter::Cleaner, &mut s.world.effects);
            }
        }
        any |= self.step_covering(s);
        if !self.settling.is_empty() {
            any |= self.mark_clean(s);
        }
        any
    }

    /// Takes the results of the writes to the volumes that are about to settle.
    fn end_writing(&mut self, world: &World) {
        self.failed = VolumeSet::EMPTY;
        for shard in &world.shards {
            let (failed, error) = shard.destager.writes.apart.failed(self.settling);
            if !failed.is_empty() {
                (self.failed, self.error) = (self.failed | failed, error);
            }
        }
        if self.failed.is_empty() {
            self.error = IoError::Device;
        }
    }

    fn mark_clean(&mut self, s: &mut Surroundings<'_>) -> bool {
        let (volumes, synced) = (self.settling, !self.unsynced);
        for n in 0..s.world.shards.len() {
            let context = &mut shard_context!(s.world);
            let Shard { destager, tiers, .. } = &mut s.world.shards[n];
            if !destager.writes.apart.mark_clean(tiers, context, volumes, synced) {
                return false;
            }
        }
        self.settling = VolumeSet::EMPTY;
        self.check_shards(&s.world.shards);
        let begun = volumes.iter().filter(|&volume| self.begun[volume].writes > 0);
        let written: VolumeSet = begun.collect();
        for volume in written.iter() {
            let Begun { since, ended, writes, slow, .. } = self.begun[volume];
            if slow {
                s.stores.note_pace(s.world, volume, Round { since, ended, writes });
            }
        }
        let failed = (self.failed | self.unsynced) & written;
        self.unsynced &= !volumes;
        s.stores.note_cleaned(s.world, written, failed, self.error);
        // Those that were not needed before (slots layout). Otherwise a region that is given back later would wait for
        // the stamp of a slow store.
        let owed = s.stamps.owed() & volumes & !failed;
        s.stamps.order(s.world, owed, BatchSequence::NONE, false);
        true
    }
}

/// Whether writes of a cleaning to the volume are in flight.
fn is_writing(world: &World, volume: Volume) -> bool {
    world.shards.iter().any(|shard| shard.destager.writes.is_writing(volume))
}

/// Some volumes have not taken all of their part of the cleaning: notes the pace of the others.
pub(super) fn note_taken(writing: &mut Writing, s: &mut Surroundings<'_>, awaited: VolumeSet) {
    let taken = core::mem::replace(&mut writing.awaited, awaited) & !awaited;
    let (since, ended) = (writing.since, s.world.now);
    for volume in taken.iter() {
        match begun(s.world, volume) {
            0 => {}
            writes => s.stores.note_pace(s.world, volume, Round { since, ended, writes }),
        }
    }
}

/// Writes to the volume that the cleaning has begun.
fn begun(world: &World, volume: Volume) -> u32 {
    world.shards.iter().map(|shard| shard.destager.writes.begun(volume)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::config::CacheConfig;
    use crate::shard::Target;

    /// A cache whose only shard is writing.
    fn writing() -> Cache {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.choose(tiers, Target::Region(RegionIndex(0)), false, VolumeSet::EMPTY);
        assert!(destager.choose_step(tiers, &mut shard_context!(cache.world)));
        destager.begin(VolumeSet::EMPTY, true, VolumeSet::EMPTY);
        cache
    }

    /// The shard parts from these volumes, of which it writes nothing.
    fn part(cache: &mut Cache, volumes: VolumeSet) {
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.part(tiers, volumes);
    }

    #[test]
    fn shards_agree_on_what_is_apart_until_they_have_settled_it() {
        let (mut cache, mut late) = (writing(), LateWrites::new());
        let (one, both) = (VolumeSet::only(Volume(1)), [Volume(1), Volume(2)]);
        late.check_shards(&cache.world.shards);
        both.into_iter().for_each(|volume| late.add(volume, Begun::default()));
        part(&mut cache, both.into_iter().collect());
        late.check_shards(&cache.world.shards);
        late.writing.remove(Volume(1));
        late.settling = one;
        late.check_shards(&cache.world.shards);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let context = &mut shard_context!(cache.world);
        assert!(destager.writes.apart.mark_clean(tiers, context, one, one));
        late.check_shards(&cache.world.shards);
        late.settling = VolumeSet::EMPTY;
        late.check_shards(&cache.world.shards);
    }

    #[test]
    #[should_panic(expected = "a shard differs in which of")]
    fn a_shard_that_has_not_parted_from_a_late_store_is_found() {
        let (cache, mut late) = (writing(), LateWrites::new());
        late.add(Volume(1), Begun::default());
        late.check_shards(&cache.world.shards);
    }

    #[test]
    #[should_panic(expected = "a shard differs in which of")]
    fn a_shard_that_still_has_what_has_settled_is_found() {
        let (mut cache, late) = (writing(), LateWrites::new());
        part(&mut cache, VolumeSet::only(Volume(1)));
        late.check_shards(&cache.world.shards);
    }

    #[test]
    #[should_panic(expected = "a shard differs in which of")]
    fn a_shard_that_parts_from_more_than_settles_is_found() {
        let (mut cache, mut late) = (writing(), LateWrites::new());
        late.settling = VolumeSet::only(Volume(1));
        part(&mut cache, VolumeSet::only(Volume(2)));
        late.check_shards(&cache.world.shards);
    }
}
