//! Cleanings that wait for an answer that a store owes: to a sync, or to the write of its header. If the answer is
//! overdue, the cleaning continues without the store, as it does without one whose writes are late.
//!
//! | phase | what becomes of the volume |
//! | --- | --- |
//! | `Stamping` | nothing was written to its store; its records stay dirty |
//! | `Syncing` | the sync ends apart; then a stamp covers the records, and they are clean |
//! | `Covering` | the stamp becomes durable apart; then the records are clean |
//! | `Releasing` (slots layout) | the region is freed without the stamp, as are cells of clean records |

use forebay_block::Nanos;
use forebay_flash::{BatchSequence, Layout, RegionIndex};

use super::super::{DestagePhase, Destaging, Surroundings, Work};
use super::{Begun, LateWrites, begun, keeps};
use crate::late::{Late, Lateness};
use crate::volume_set::VolumeSet;
use crate::world::World;

impl LateWrites {
    /// If the cleaning in progress waits only for the syncs of late stores, it continues without them; returns
    /// whether it does. `may_settle`: as for [`LateWrites::part`].
    pub fn part_syncing(
        &mut self,
        work: Work,
        active: &mut Destaging,
        s: &mut Surroundings<'_>,
        may_settle: impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool,
    ) -> bool {
        let DestagePhase::Syncing { since, left } = active.phase() else { return false };
        if !self.may_part(s, left) {
            return false;
        }
        let due = |apart: &LateWrites| apart.all_overdue_at(s, left, since);
        if !self.may_leave(work, active, s.world, left, due, may_settle) {
            return false;
        }
        for volume in left.iter() {
            let (writes, sync_failures) = (begun(s.world, volume), active.sync_failures);
            // The time of the writes was noted when they ended.
            let begun = Begun { sync_since: since, writes, sync_failures, ..Begun::default() };
            self.syncing.insert(volume);
            self.begun[volume] = begun;
        }
        self.leave(active, s, left);
        // (A store that is late in something else has perhaps just begun the sync.)
        if Late::answer_due(since, s.world.somebody_waits()) <= s.world.now {
            s.stores.note_late(s.world, left, Lateness::Syncs);
        }
        true
    }

    /// If the stamps are overdue that are to cover the destaged records of the volumes `left`, the cleaning in progress
    /// continues without these volumes; returns whether it does. `may_settle`: as for [`LateWrites::part`].
    pub fn part_covering(
        &mut self,
        work: Work,
        active: &mut Destaging,
        s: &mut Surroundings<'_>,
        left: VolumeSet,
        may_settle: impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool,
    ) -> bool {
        if !self.may_part(s, left) {
            return false;
        }
        let due = |apart: &LateWrites| apart.all_overdue_at(s, left, last_ordered(s, left));
        if !self.may_leave(work, active, s.world, left, due, may_settle) {
            return false;
        }
        for volume in left.iter() {
            let (writes, sync_failures) = (begun(s.world, volume), active.sync_failures);
            self.covering.insert(volume);
            self.begun[volume] = Begun { writes, sync_failures, ..Begun::default() };
        }
        self.leave(active, s, left);
        // (Likewise with its header.)
        let waits = s.world.somebody_waits();
        let due = |since| Late::answer_due(since, waits) <= s.world.now;
        let overdue = left.iter().filter(|&v| s.stamps.ordered_at(v).is_some_and(due)).collect();
        s.stores.note_late(s.world, overdue, Lateness::Headers);
        true
    }

    /// If the stamps of the volumes `left` are overdue that are to see the chosen records, the cleaning in progress
    /// continues and writes nothing to these volumes; returns whether it does. `may_settle`: as for
    /// [`LateWrites::part`].
    pub fn part_stamping(
        &mut self,
        work: Work,
        active: &mut Destaging,
        s: &mut Surroundings<'_>,
        left: VolumeSet,
        may_settle: impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool,
    ) -> bool {
        if !self.may_part(s, left) {
            return false;
        }
        let due = |apart: &LateWrites| apart.headers_overdue_at(s, left);
        if !self.may_leave(work, active, s.world, left, due, may_settle) {
            return false;
        }
        active.part(left);
        s.world.stats.cleanings_parted += 1;
        s.stores.note_late(s.world, left, Lateness::Headers);
        true
    }

    /// Whether a region is given back although stamps of the volumes `left` do not cover its records, because these
    /// stamps are overdue.
    pub fn part_releasing(&mut self, s: &mut Surroundings<'_>, left: VolumeSet) -> bool {
        if !self.may_part(s, left) || !self.may_ask(s.world.now) {
            return false;
        }
        let Some(due) = self.headers_overdue_at(s, left) else { return false };
        if due > s.world.now {
            self.ask_at = Some(due);
            return false;
        }
        s.world.stats.cleanings_parted += 1;
        s.stores.note_late(s.world, left, Lateness::Headers);
        true
    }

    /// Whether a cleaning may continue without these stores.
    fn may_part(&mut self, s: &Surroundings<'_>, left: VolumeSet) -> bool {
        let may = !s.world.flash.is_lost() && s.world.volumes.len() >= 2 && !keeps(s, left);
        self.ask_at = self.ask_at.filter(|_| may);
        may
    }

    /// When the stores of all these volumes are late, given that the last of them was asked at `since`; otherwise like
    /// [`LateWrites::all_late_at`].
    fn all_overdue_at(&self, s: &Surroundings<'_>, left: VolumeSet, since: Nanos) -> Option<Nanos> {
        if left.is_empty() || self.are_all_slow(s.world, VolumeSet::EMPTY, left) {
            return None;
        }
        let known = (left & !s.world.volumes.conditions.late.volumes()).is_empty();
        Some(if known { Nanos(0) } else { Late::answer_due(since, s.world.somebody_waits()) })
    }

    /// When the stamps in progress of all these volumes are overdue, whether or not the stores are late in something
    /// else: only then can nothing be written to them. `None`: as for [`LateWrites::all_late_at`].
    fn headers_overdue_at(&self, s: &Surroundings<'_>, left: VolumeSet) -> Option<Nanos> {
        if left.is_empty() || self.are_all_slow(s.world, VolumeSet::EMPTY, left) {
            return None;
        }
        Some(Late::answer_due(last_ordered(s, left), s.world.somebody_waits()))
    }

    /// Volumes apart whose syncs have ended get stamps, and settle when these cover their records. Returns whether it
    /// did anything.
    pub(super) fn step_covering(&mut self, s: &mut Surroundings<'_>) -> bool {
        let synced = core::mem::take(&mut self.synced);
        for volume in synced.iter() {
            // Data written before a failed sync may be lost although a later sync succeeded.
            let failures = self.begun[volume].sync_failures;
            let unsynced = s.world.volumes.conditions.unsynced_since(failures);
            self.unsynced |= unsynced & VolumeSet::only(volume);
        }
        s.stamps.note_taken_over(synced & !self.unsynced);
        self.covering |= synced;
        let mut any = !synced.is_empty();
        let uncovered = match covers(s.world) {
            true => s.stamps.uncovered(self.covering & !self.unsynced),
            false => VolumeSet::EMPTY,
        };
        any |= s.stamps.order(s.world, uncovered, BatchSequence::NONE, false);
        let covered = self.covering & !uncovered;
        if self.settling.is_empty() && !covered.is_empty() {
            any = true;
            self.covering &= !covered;
            self.settling = covered;
            self.end_writing(s.world);
        }
        any
    }

    /// The stamps of these volumes could not be written: returns those whose records apart they were to cover, and
    /// which therefore stay dirty.
    pub fn note_uncovered(&mut self, failed: VolumeSet) -> VolumeSet {
        let uncovered = failed & self.covering;
        self.unsynced |= uncovered;
        uncovered
    }
}

/// Whether records become clean only when stamps cover them: not in the slots layout, where the cells of clean records
/// are used again without stamps, nor when no region will be reused, because the log has failed or stopped.
pub(in crate::cleaner) fn covers(world: &World) -> bool {
    world.log.as_ref().is_some_and(|log| log.layout() == Layout::Log)
        && !world.flash.is_lost()
        && world.lifecycle.may_clean()
        && world.lifecycle.may_stamp()
}

/// When the last of the stamps in progress of these volumes was ordered; now, if one has none.
fn last_ordered(s: &Surroundings<'_>, volumes: VolumeSet) -> Nanos {
    let ordered = |volume| s.stamps.ordered_at(volume).unwrap_or(s.world.now);
    volumes.iter().map(ordered).fold(Nanos(0), Nanos::max)
}
