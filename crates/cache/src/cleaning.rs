//! A cleaning, from the choice of a region (`cleaner.rs`) to its end: its dirty records are made durable,
//! destaged and synced; or its mappings are moved, or what is left of it is carried on.

use forebay_effect::{IoError, Outcome};
use forebay_flash::sabotage::Bug;
use forebay_flash::{Geometry, Layout, LogStats};

use crate::cache::Cache;
use crate::cleaner::{Cleaning, Phase, Purpose};
use crate::pump::{CLEANER, FAILURES_MAX};
use crate::shard::{CarryState, JobState, MoveState, Owed, Shard, Target};
use crate::volume::SyncWaiter;
use crate::world::{State, around};

/// Most unreadable records of a region that are given up for lost, for want of room.
const LOST_MAX: u64 = 16;

/// Most bytes that are inserted again for each hundred that come to flash for the first time.
const REINSERTED_PERCENT: u64 = 40;

/// Pages of a region that may be inserted again: half of it, so that each region that is reclaimed makes room,
/// and no more than keeps flash from being worn out by what it has already.
fn may_reinsert(log: &LogStats, geometry: &Geometry) -> u32 {
    let first = log.payload_bytes - log.carried_bytes;
    let left = (first / 100 * REINSERTED_PERCENT).saturating_sub(log.carried_bytes);
    let pages = left / u64::from(geometry.page_size);
    u64::from((geometry.usable_pages() - 1) / 2).min(pages) as u32
}

/// What a cleaning is about.
fn target(active: &Cleaning) -> Target {
    match active.purpose {
        Purpose::Evict => Target::Coldest,
        Purpose::Reclaim | Purpose::Destage => Target::Region(active.region),
    }
}

impl Cache {
    /// The records of the region to clean are durable (or will not be).
    pub(crate) fn begin_writing(&mut self, result: Outcome) {
        let Some(active) = &mut self.cleaner.active else { return };
        if result.is_err() {
            self.cleaner.end(result, self.world.now, false);
            self.abandon_chosen();
            return self.consider_giving_up();
        }
        active.phase = Phase::Stamping;
        self.push_stamps();
    }

    /// What was chosen will not be cleaned.
    pub(crate) fn abandon_chosen(&mut self) {
        for n in 0..self.world.shards.len() {
            self.world.shards[n].clean_abandon(&mut around!(self.world));
        }
    }

    /// What was chosen goes to the stores.
    pub(crate) fn write_chosen(&mut self) {
        let Some(active) = &mut self.cleaner.active else { return };
        active.phase = Phase::Writing;
        let skipped = active.skipped | active.failed;
        for shard in &mut self.world.shards {
            shard.clean_begin(skipped);
        }
    }

    /// Whether a further region may be cleaned: not once the log has stopped.
    fn may_clean(&self) -> bool {
        !matches!(self.world.state, State::Ending | State::Stopped | State::Failed)
            || self.world.front.sabotage.is(Bug::CleansAfterStop)
    }

    /// The log has stopped: nothing more is cleaned, and what is under way ends early. Whether nothing of it
    /// can write to a store any more.
    pub(crate) fn cut_cleaning(&mut self) -> bool {
        if self.world.front.sabotage.is(Bug::CleansAfterStop) {
            return true;
        }
        self.cleaner.forget();
        self.cleaner.retry_at = None;
        let Some(active) = self.cleaner.active else { return true };
        match active.phase {
            Phase::Logging | Phase::Stamping => {
                self.cleaner.active = None;
                self.abandon_chosen();
            }
            Phase::Releasing => self.cleaner.active = None,
            Phase::Writing => {
                self.world.shards.iter_mut().for_each(Shard::clean_cut);
                return false;
            }
            Phase::Syncing { .. } => return false,
            // They only ask the log, which refuses.
            Phase::Moving | Phase::Carrying | Phase::Reinserting => {}
        }
        true
    }

    pub(crate) fn push_cleaner(&mut self) -> bool {
        let mut any = false;
        let works = self.world.log.as_ref().is_some_and(|log| log.error().is_none());
        if works && self.world.shards.iter().any(Shard::is_exhausted) {
            self.give_up();
            return true;
        }
        let may = self.may_clean();
        let owes = may && works && self.world.shards.iter().any(|s| s.owes_cleaning());
        if owes && !self.cleaner.is_evicting() {
            self.cleaner.push(0, Purpose::Evict);
        }
        let wanted = self.world.somebody_waits();
        if may && self.cleaner.begin(self.world.front.sync_failures, wanted).is_some() {
            if !self.begin_moving() {
                let target = target(self.cleaner.active.as_ref().expect("it has just begun"));
                let dirty = self.dirty_blocks() > 0;
                let purpose = self.cleaner.active.as_ref().map_or(Purpose::Evict, |a| a.purpose);
                let skipped = self.stores.to_skip(
                    &self.world,
                    purpose,
                    self.destaging.is_some_and(|d| d.is_cleaning()),
                );
                if let Some(active) = &mut self.cleaner.active {
                    active.skipped = skipped;
                }
                for shard in &mut self.world.shards {
                    shard.clean_choose(target, dirty, skipped);
                }
                let log = self.world.log.as_mut().expect("only a log has regions");
                if let Some(active) = &mut self.cleaner.active {
                    active.newest = log.newest_batch(active.region);
                }
                log.sync_written(CLEANER);
            }
            any = true;
        }
        any |= self.push_moves();
        let Some(mut active) = self.cleaner.active else { return any };
        if active.phase == Phase::Writing {
            for n in 0..self.world.shards.len() {
                if active.written >> n & 1 == 1 {
                    continue;
                }
                let state = self.world.shards[n].clean_step(&mut around!(self.world));
                self.world.shards[n].close_runs(&mut around!(self.world));
                let JobState::Written { volumes, error, unreadable, failed } = state else {
                    continue;
                };
                active.volumes |= volumes;
                active.failed |= failed & !active.skipped;
                active.error = active.error.or(error);
                active.unreadable |= unreadable;
                active.written |= 1 << n;
            }
            self.cleaner.active = Some(active);
            if active.written.count_ones() as usize != self.world.shards.len() {
                return any;
            }
            if self.world.front.sabotage.is(Bug::RegionFreedBeforeSync) {
                active.volumes = 0;
            }
            let left = active.volumes.count_ones();
            active.phase = Phase::Syncing { left };
            self.cleaner.active = Some(active);
            for volume in 0..self.world.front.volumes.len() as u16 {
                if active.volumes >> volume & 1 == 1 {
                    self.world.front.sync(volume, SyncWaiter::Cleaner, &mut self.world.effects);
                }
            }
            any = true;
        }
        match active.phase {
            Phase::Syncing { left: 0 } => {
                // Data written before a failed sync may be gone though a later one succeeded.
                let failed = self.world.front.failed_since(active.sync_failures);
                for n in 0..self.world.shards.len() {
                    self.world.shards[n].clean_end(&mut around!(self.world), failed);
                }
                self.stamps.taken_over |= active.volumes & !failed;
                self.end_cleaning(failed & active.volumes);
                true
            }
            Phase::Carrying => self.push_carry() | any,
            Phase::Reinserting => self.push_reinsertions() | any,
            Phase::Stamping | Phase::Releasing => self.push_stamps() | any,
            _ => any,
        }
    }

    /// Carries on what is left of the region to reclaim; true when that is over.
    fn push_carry(&mut self) -> bool {
        let mut done = true;
        for n in 0..self.world.shards.len() {
            match self.world.shards[n].carry_step(&mut around!(self.world)) {
                CarryState::Done => {}
                CarryState::Busy => done = false,
                CarryState::Unreadable => {
                    // It is one of those that cannot be read: as after any attempt.
                    self.cleaner.end(Err(IoError::Corrupt), self.world.now, false);
                    self.consider_giving_up();
                    return true;
                }
                CarryState::Failed => {
                    self.cleaner.active = None;
                    return true;
                }
            }
        }
        if done {
            self.stores.note_carried(&self.world);
            self.begin_release();
        }
        done
    }

    /// Nothing is owed of the region any more. What is worth it is inserted again, in half a region at most.
    fn begin_reinserting(&mut self, region: u32) {
        let log = self.world.log.as_ref().expect("only a log has regions");
        // (Who waits for an entry of the index waits for what the region holds.)
        let short = self.world.shards.iter().any(Shard::waits_for_an_entry);
        if log.layout() != Layout::Log
            || self.world.hurry
            || self.world.state != State::Ready
            || short
        {
            return self.begin_release();
        }
        let geometry = *log.geometry();
        let most = may_reinsert(log.stats(), &geometry);
        let (mut left, mut shards) = (most, self.world.shards.len() as u32);
        for shard in &mut self.world.shards {
            let share = (region, left / shards);
            left -= shard.reinsert_begin(&geometry, share, self.world.front.sabotage);
            shards -= 1;
        }
        if left == most {
            return self.begin_release();
        }
        if let Some(active) = &mut self.cleaner.active {
            active.phase = Phase::Reinserting;
        }
    }

    /// Pushes that on; true when it is over.
    fn push_reinsertions(&mut self) -> bool {
        let mut done = true;
        for n in 0..self.world.shards.len() {
            match self.world.shards[n].reinsert_step(&mut around!(self.world)) {
                CarryState::Failed => {
                    self.cleaner.active = None;
                    return true;
                }
                state => done &= state == CarryState::Done,
            }
        }
        if done {
            self.begin_release();
        }
        done
    }

    /// Nothing is owed of the region any more. It is given back when the stores' stamps say so, too.
    fn begin_release(&mut self) {
        if let Some(active) = &mut self.cleaner.active {
            active.phase = Phase::Releasing;
        }
        self.push_stamps();
    }

    /// The stamps say so.
    pub(crate) fn release_region(&mut self) {
        let done = self.cleaner.end(Ok(()), self.world.now, false);
        self.consider_giving_up();
        if let Some(log) = &mut self.world.log {
            log.region_released(done.region);
        }
        self.stores.consider_suspending(&mut self.world);
    }

    /// Whether what cleaning has left of the region is to be carried on. What could not be read is
    /// given up for lost only if room is needed, several attempts have failed, and it is little: much
    /// is rather a device that may come back.
    fn may_carry(&self, region: u32, carried: u64) -> bool {
        let Some(log) = &self.world.log else { return false };
        let mut sum = Owed::default();
        for shard in &self.world.shards {
            match shard.carry_needs(region, carried, log.geometry()) {
                Some(owed) => {
                    sum.lost += owed.lost;
                    sum.pages += owed.pages;
                }
                None => return false,
            }
        }
        let hopeless = self.cleaner.unreadable + 1 >= FAILURES_MAX && self.world.somebody_waits();
        let few = sum.lost == 0 || hopeless && sum.lost <= LOST_MAX;
        few && log.may_carry(sum.pages)
    }

    fn holds_unreadable(&self, region: u32) -> bool {
        self.world.shards.iter().any(|shard| shard.region_is_unreadable(region))
    }

    /// What could be destaged is clean now, but for the volumes (bits) whose sync failed.
    fn end_cleaning(&mut self, unsynced: u64) {
        let active = self.cleaner.active.expect("a cleaning is ending");
        let written = match active.error {
            Some(error) => Err(error),
            None if unsynced != 0 => Err(IoError::Device),
            None => Ok(()),
        };
        let failed = active.failed | unsynced;
        self.stores.note_cleaned(
            &mut self.world,
            active.volumes,
            failed,
            written.err().unwrap_or(IoError::Device),
        );
        if !self.may_clean() {
            // It was cut short, and the stop did not need it.
            self.cleaner.active = None;
            return;
        }
        // Trying again would not help what cannot be read. But a region that holds it cannot be
        // used again, and that the log must hear of.
        let reclaims = active.purpose == Purpose::Reclaim;
        let region = active.region;
        let owes = active.purpose != Purpose::Evict
            && (active.unreadable
                || self.world.shards.iter().any(|shard| shard.region_is_dirty(region)));
        if owes && active.purpose == Purpose::Destage {
            self.cleaner.note_unread(region);
        }
        let left = owes && reclaims;
        if owes
            && active.skipped != 0
            && active.purpose == Purpose::Destage
            && let Some(destage) = self.destaging.as_mut().filter(|d| d.is_cleaning())
        {
            destage.fail(self.cleaner.error);
        }
        // Who is known to fail now holds nobody up.
        let known = failed & !self.stores.failing() == 0;
        let carried =
            if self.stores.may_carry_failing(&self.world) { failed | active.skipped } else { 0 };
        if left && (written.is_ok() || known && carried != 0) && self.may_carry(region, carried) {
            if carried != 0 && !self.world.somebody_waits() {
                return self.cleaner.park();
            }
            let Some(active) = &mut self.cleaner.active else { return };
            active.phase = Phase::Carrying;
            self.stores.note_reclaimed(true);
            self.world.shards.iter_mut().for_each(|shard| shard.carry_begin(region, carried));
            return;
        }
        // What was not tried can have no better end than what was.
        let untried = left && active.skipped != 0 && !self.holds_unreadable(region);
        let result = match (left, untried) {
            (true, true) => written.and(Err(self.cleaner.error)),
            (true, false) => written.and(Err(IoError::Corrupt)),
            (false, _) => written,
        };
        if reclaims && result.is_ok() {
            self.stores.note_reclaimed(true);
            return self.begin_reinserting(region);
        }
        let tentative = self.destaging.is_none() && failed != 0 && known;
        self.leave_region(result, tentative);
    }

    /// The region under way is not clean, or need not be given back.
    pub(crate) fn leave_region(&mut self, result: Outcome, tentative: bool) {
        self.world.stats.destage_retries += u64::from(result.is_err());
        let done = self.cleaner.end(result, self.world.now, tentative);
        if let Err(error) = result {
            if done.purpose == Purpose::Reclaim {
                self.stores.note_reclaimed(false);
            }
            if let Some(destage) = &mut self.destaging
                && done.purpose == Purpose::Destage
                && self.cleaner.is_given_up(done.region)
            {
                destage.fail(error);
            }
        }
        self.consider_giving_up();
        self.stores.consider_suspending(&mut self.world);
    }

    /// Begins to move the mappings of the region to reclaim, if that is how it is done; else it
    /// is cleaned, and what it holds is dropped.
    fn begin_moving(&mut self) -> bool {
        let Some(active) = &mut self.cleaner.active else { return false };
        let log = self.world.log.as_mut().expect("only a log has regions");
        if log.layout() != Layout::Slots || active.purpose != Purpose::Reclaim {
            return false;
        }
        let region = active.region;
        let count = self.world.shards.iter().map(|s| s.region_entries(region)).sum();
        if !log.moves_fit(count) {
            self.world.stats.regions_dropped += 1;
            return false;
        }
        active.phase = Phase::Moving;
        for n in 0..self.world.shards.len() {
            self.world.shards[n].move_begin(&mut around!(self.world), region);
        }
        self.world.log.as_mut().expect("it has just been asked").close_notes();
        true
    }

    fn push_moves(&mut self) -> bool {
        let Some(mut active) = self.cleaner.active.filter(|a| a.phase == Phase::Moving) else {
            return false;
        };
        let (mut done, mut more) = (true, false);
        for n in 0..self.world.shards.len() {
            match self.world.shards[n].move_step(&mut around!(self.world)) {
                MoveState::Busy => done = false,
                MoveState::More => (done, more) = (false, true),
                MoveState::Done => {}
                MoveState::Failed => active.error = Some(IoError::Device),
            }
        }
        self.cleaner.active = Some(active);
        let log = self.world.log.as_mut().expect("only a log has regions");
        if more {
            log.close_notes();
        }
        if !done {
            return more;
        }
        if active.error.is_some() {
            // The log takes no more: it has failed, or it is being stopped.
            self.cleaner.active = None;
        } else {
            self.cleaner.end(Ok(()), self.world.now, false);
            log.region_released(active.region);
            self.stores.note_reclaimed(true);
            self.stores.consider_suspending(&mut self.world);
            if self.cleaner.is_wanted_clean(active.region) {
                // What was wanted clean has moved meanwhile.
                self.clean_all();
            }
        }
        true
    }
}
