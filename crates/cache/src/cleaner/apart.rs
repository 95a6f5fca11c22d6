//! Destages apart from cleanings: the writes to late stores (`late.rs`) that a cleaning has begun
//! but does not wait for. When they have ended, the stores are synced, and then the destaged
//! records are clean, as at the end of a cleaning. No cleaning writes to such a volume before that.

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_effect::IoError;
use forebay_flash::BatchSequence;
use forebay_flash::sabotage::Bug;

use super::{Cleaner, Phase, Surroundings, Work, Writing};
use crate::cache::VOLUMES_MAX;
use crate::shard::apart;
use crate::volume::SyncWaiter;
use crate::volume_set::VolumeSet;
use crate::world::{CacheState, World, shard_context};

/// Time after a refusal until a cleaning asks again whether it may leave late stores out.
const ASK_AGAIN: Nanos = Nanos(100_000_000);

/// A cleaning's part of one volume.
#[derive(Clone, Copy, Default, Debug)]
struct Begun {
    /// When the cleaning began to write.
    since: Nanos,
    /// Its writes to the volume.
    writes: u32,
    /// The count of failed syncs when the cleaning began.
    sync_failures: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ApartVolumes {
    writing: VolumeSet,
    syncing: VolumeSet,
    synced: VolumeSet,
    /// Volumes whose writes and sync have ended: their records become clean, or stay dirty after a failure.
    settling: VolumeSet,
    /// Settling volumes with a failed write.
    failed: VolumeSet,
    /// Settling volumes whose sync has failed.
    unsynced: VolumeSet,
    /// The error of the last failed write.
    error: IoError,
    /// By volume.
    begun: PerVolume<Begun>,
}

impl ApartVolumes {
    pub fn new() -> ApartVolumes {
        ApartVolumes {
            writing: VolumeSet::EMPTY,
            syncing: VolumeSet::EMPTY,
            synced: VolumeSet::EMPTY,
            settling: VolumeSet::EMPTY,
            failed: VolumeSet::EMPTY,
            unsynced: VolumeSet::EMPTY,
            error: IoError::Device,
            begun: PerVolume::filled(Begun::default(), VOLUMES_MAX),
        }
    }

    /// The volumes that are apart.
    #[inline]
    pub fn volumes(&self) -> VolumeSet {
        self.writing | self.syncing | self.synced | self.settling
    }

    /// A cleaning continues without a volume.
    fn add(&mut self, volume: Volume, begun: Begun) {
        self.writing.insert(volume);
        self.begun[volume] = begun;
    }

    /// A volume is synced, or its sync has failed.
    pub fn note_synced(&mut self, volume: Volume) {
        self.syncing.remove(volume);
        self.synced.insert(volume);
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
            let careless = s.world.mode.sabotage.is(Bug::ApartUnsynced);
            if self.begun[volume].writes == 0 || careless {
                self.synced.insert(volume);
            } else {
                self.syncing.insert(volume);
                s.world.volumes.sync(volume, SyncWaiter::Apart, &mut s.world.effects);
            }
        }
        if self.settling.is_empty() && !self.synced.is_empty() {
            any = true;
            self.settling = core::mem::take(&mut self.synced);
            self.end_writing(s.world);
            // This precedes the settling: as soon as a record counts as clean, its region may be given back.
            s.stamps.note_taken_over(self.settling & !self.unsynced);
        }
        if !self.settling.is_empty() {
            any |= self.mark_clean(s);
        }
        any
    }

    /// Takes the results of the writes and syncs of the volumes that are about to settle.
    fn end_writing(&mut self, world: &World) {
        self.failed = VolumeSet::EMPTY;
        for shard in &world.shards {
            let (failed, error) = apart::failed(shard, self.settling);
            if !failed.is_empty() {
                (self.failed, self.error) = (self.failed | failed, error);
            }
        }
        self.unsynced = VolumeSet::EMPTY;
        for volume in self.settling.iter() {
            // Data written before a failed sync may be lost although a later sync succeeded.
            let failures = self.begun[volume].sync_failures;
            self.unsynced |= world.volumes.failed_since(failures) & VolumeSet::only(volume);
        }
        if self.failed.is_empty() {
            self.error = IoError::Device;
        }
    }

    fn mark_clean(&mut self, s: &mut Surroundings<'_>) -> bool {
        let (volumes, synced) = (self.settling, !self.unsynced);
        for n in 0..s.world.shards.len() {
            let context = &mut shard_context!(s.world);
            if !apart::mark_clean(&mut s.world.shards[n], context, volumes, synced) {
                return false;
            }
        }
        self.settling = VolumeSet::EMPTY;
        let begun = volumes.iter().filter(|&volume| self.begun[volume].writes > 0);
        let written: VolumeSet = begun.collect();
        for volume in written.iter() {
            let Begun { since, writes, .. } = self.begun[volume];
            s.stores.note_pace(s.world, volume, since, writes);
        }
        let failed = (self.failed | self.unsynced) & written;
        s.stores.note_cleaned(s.world, written, failed, self.error);
        // The stamps are ordered now. Otherwise a region that is given back later would wait for the stamp of a slow
        // store.
        let owed = s.stamps.owed() & volumes;
        s.stamps.order(s.world, owed, BatchSequence::NONE, false);
        true
    }
}

/// Whether writes of a cleaning to the volume are in flight.
fn is_writing(world: &World, volume: Volume) -> bool {
    world.shards.iter().any(|shard| apart::is_writing(shard, volume))
}

/// Whether nothing may be left out: a destage of everything or a stop is in progress.
pub(super) fn is_whole(s: &Surroundings<'_>) -> bool {
    s.destages.is_under_way() || s.world.state != CacheState::Ready
}

/// Some volumes have not taken all of their part: notes the pace of the others.
pub(super) fn note_taken(cleaner: &mut Cleaner, s: &mut Surroundings<'_>, awaited: VolumeSet) {
    let Some(active) = &mut cleaner.active else { return };
    let Phase::Writing(writing) = &mut active.phase else { return };
    let taken = core::mem::replace(&mut writing.awaited, awaited) & !awaited;
    let since = writing.since;
    for volume in taken.iter() {
        match begun(s.world, volume) {
            0 => {}
            writes => s.stores.note_pace(s.world, volume, since, writes),
        }
    }
}

/// If the cleaning waits only for late stores, it continues without them; returns whether it does.
pub(super) fn part_late(cleaner: &mut Cleaner, s: &mut Surroundings<'_>) -> bool {
    let Some(active) = &cleaner.active else { return false };
    let Phase::Writing(Writing { since, shards, .. }) = active.phase else { return false };
    let (work, sync_failures) = (active.work, active.sync_failures);
    let untaken = active.failed | active.skipped;
    if is_whole(s) || s.world.flash.is_lost() || s.world.volumes.len() < 2 {
        cleaner.late_at = None;
        return false;
    }
    let mut awaited = VolumeSet::EMPTY;
    for (n, shard) in s.world.shards.iter().enumerate() {
        if shards >> n & 1 == 0 {
            let Some(volumes) = apart::awaited(shard) else { return false };
            awaited |= volumes;
        }
    }
    note_taken(cleaner, s, awaited);
    cleaner.late_at = cleaner.refused_until.filter(|&until| until > s.world.now);
    if cleaner.late_at.is_some() {
        return false;
    }
    cleaner.refused_until = None;
    let (mut due, mut known) = (None, !awaited.is_empty());
    for volume in (awaited & !s.stores.late()).iter() {
        match s.stores.late_at(s.world, volume, since, begun(s.world, volume)) {
            Some(at) => due = due.max(Some(at)),
            None => known = false,
        }
    }
    // Stores are late only in comparison with others: if all are slow, none is.
    let late = (s.stores.late() | awaited).len() as usize;
    if !known || late == s.world.volumes.len() {
        return false;
    }
    if due.is_some_and(|due| due > s.world.now) {
        cleaner.late_at = due;
        return false;
    }
    if let Work::Reclaim(region) = work
        && !(s.stores.may_carry(s.world, awaited)
            && cleaner.may_carry(s.world, region, untaken | awaited, true))
    {
        cleaner.refused_until = Some(s.world.now.saturating_add(ASK_AGAIN));
        cleaner.late_at = cleaner.refused_until;
        return false;
    }
    let mut writing = VolumeSet::EMPTY;
    for volume in awaited.iter() {
        writing.insert_if(volume, is_writing(s.world, volume));
        let writes = begun(s.world, volume);
        cleaner.apart.add(volume, Begun { since, writes, sync_failures });
    }
    s.world.shards.iter_mut().for_each(|shard| apart::part(shard, awaited));
    if let Some(active) = &mut cleaner.active {
        active.skipped |= awaited;
        active.volumes &= !awaited;
        if let Phase::Writing(writing) = &mut active.phase {
            writing.awaited = VolumeSet::EMPTY;
        }
    }
    s.world.stats.cleanings_parted += 1;
    // The other awaited volumes had no place for a write, or their records were busy.
    s.stores.note_late(s.world, writing);
    true
}

/// Writes to the volume that the cleaning has begun.
fn begun(world: &World, volume: Volume) -> u32 {
    world.shards.iter().map(|shard| apart::begun(shard, volume)).sum()
}
