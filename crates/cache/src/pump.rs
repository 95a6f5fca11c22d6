//! What the cache does of its own accord between calls: hears the log, ends requests, pushes
//! flushes and cleaning on; `start` and `destage` do the same for starts, destages and stops. Each turn is bounded.

use forebay_effect::{IoError, Outcome};
use forebay_flash::sabotage::Bug;
use forebay_flash::{Event, Layout, Log};

use crate::cache::{Cache, Notice, State, around};
use crate::cleaner::{Cleaning, Phase, Purpose};
use crate::front::{Stage, SyncWaiter};
use crate::pass_through::SALVAGE;
use crate::shard::{
    CarryState, FlushState, JobState, MoveState, Owed, Shard, Surroundings, Target,
};

/// The cleaner's name towards the log; requests are named by their small numbers.
const CLEANER: u64 = u64::MAX;
/// The start's.
pub(crate) const START: u64 = u64::MAX - 2;
/// Failed attempts at cleaning in a row after which a stop gives up.
pub(crate) const FAILURES_MAX: u32 = 3;
/// Most unreadable records of a region that are given up for lost, for want of room.
const LOST_MAX: u64 = 16;
/// Events of the log that are looked up ahead of the one at hand.
const EVENTS_AHEAD: usize = 8;
/// Blocks of a flush that a shard starts in one turn.
const FLUSH_BLOCKS: u32 = 64;

/// What a cleaning is about.
fn target(active: &Cleaning) -> Target {
    match active.purpose {
        Purpose::Evict => Target::Coldest,
        Purpose::Reclaim | Purpose::Destage => Target::Region(active.region),
    }
}

impl Cache {
    /// Whether a turn of [`Cache::pump`] would find anything to do.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        let front = &self.front;
        self.log.as_ref().is_some_and(Log::has_events)
            || self.has_lost_log()
            || self.owes_pass_through()
            || self.owes_settling()
            || !front.finished.is_empty()
            || self.may_resume()
            || self.flushing != 0
            || !front.synced.is_empty()
            || self.owes_cleaning()
            || self.owes_stores()
            || self.switch.is_some()
            || self.sealing.is_some()
            || self.may_stop()
            || self.shards.iter().any(Shard::may_serve)
    }

    /// Whether the log has failed, and the shards have not been told.
    #[inline]
    fn has_lost_log(&self) -> bool {
        !self.log_lost && self.log.as_ref().is_some_and(|log| log.error().is_some())
    }

    /// Whether something is being cleaned, or should be.
    #[inline]
    fn owes_cleaning(&self) -> bool {
        !self.cleaner.is_idle() || self.shards.iter().any(Shard::owes_cleaning)
    }

    /// Whether a destage or a stop is under way.
    #[inline]
    pub(crate) fn may_stop(&self) -> bool {
        !matches!(self.state, State::New | State::Starting | State::Ready)
            || self.destaging.is_some()
            || !self.front.internal_done.is_empty()
    }

    /// One turn of everything that is owed; true when something was done.
    pub(crate) fn pump(&mut self) -> bool {
        let mut any = self.has_lost_log();
        if any {
            // (Before what was on its way to the log hears of it: that may wait now.)
            self.lose_log();
        }
        any |= self.hear_log();
        while let Some(request) = Self::pop(&mut self.front, |f| &mut f.finished) {
            self.finish(request);
            any = true;
        }
        for n in 0..self.shards.len() {
            if self.shards[n].may_serve() {
                any |= self.shards[n].serve_starved(&mut around!(self));
            }
        }
        if self.may_resume() {
            any |= self.resume();
        }
        if self.flushing != 0 {
            any |= self.push_flushes();
        }
        if !self.front.synced.is_empty() {
            self.hear_syncs();
            any = true;
        }
        if self.owes_cleaning() {
            any |= self.push_cleaner();
        }
        if self.owes_stores() {
            any |= self.push_stores();
        }
        any |= self.push_switch();
        any |= self.push_pass_through();
        any |= self.push_seal();
        any |= self.push_stop();
        any
    }

    // ---- the log ----

    fn hear_log(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.log.as_mut().and_then(|l| l.poll_event()) {
            any = true;
            self.look_ahead();
            self.hear(event);
        }
        self.settle_recovered();
        self.front.issue_syncs(&mut self.effects);
        any
    }

    /// Starts loading what the events to come will look at. A batch brings many at once, of
    /// blocks that nobody has looked at for a while.
    fn look_ahead(&self) {
        let Some(log) = &self.log else { return };
        for (n, near) in [(EVENTS_AHEAD, false), (EVENTS_AHEAD / 2, true)] {
            match log.upcoming_event(n) {
                Some(&Event::Appended { ticket, .. }) => {
                    self.shards[(ticket >> 32) as usize].prefetch_transfer(ticket as u32, near);
                }
                Some(&Event::Moved { ticket, key, .. }) => {
                    let shard = &self.shards[ticket as usize];
                    if near { shard.prefetch_entry(key) } else { shard.prefetch(key) }
                }
                _ => {}
            }
        }
    }

    fn hear(&mut self, event: Event) {
        let shard_of = |ticket: u64| ((ticket >> 32) as usize, ticket as u32);
        match event {
            Event::Appended { ticket, position, checksum } => {
                let (n, t) = shard_of(ticket);
                let moved = self.shards[n].appended(&mut around!(self), t, position, checksum);
                if let Some((from, to)) = moved {
                    self.follow(from, to);
                }
            }
            Event::AppendFailed { ticket, error } => {
                let (n, t) = shard_of(ticket);
                self.shards[n].append_failed(&mut around!(self), t, error);
            }
            Event::AppendRefused { ticket } => {
                let (n, t) = shard_of(ticket);
                self.shards[n].append_refused(&mut around!(self), t);
            }
            Event::Active { ticket, result } => {
                let (n, t) = shard_of(ticket);
                self.shards[n].activated(&mut around!(self), t, result);
            }
            Event::Moved { ticket, key, position, from, region, result } => {
                self.cleaner.note_moved(from, region);
                self.shards[ticket as usize].moved(key, position, (from, region), result.is_ok());
            }
            Event::Unmapped { key, position } => {
                let n = self.shard_of(key.volume(), self.config.block_size.offset_of(key.block()));
                self.shards[n].unmapped(&mut around!(self), key, position);
            }
            Event::Synced { ticket: CLEANER, result } => self.begin_writing(result),
            Event::Synced { ticket: START, result } => self.disowned(result),
            Event::Synced { ticket: SALVAGE, result } => self.salvaged(result),
            Event::Voided { result, .. } => self.voided(result),
            Event::Synced { ticket, result } => {
                let request = ticket as u32;
                let again = result.is_err() && self.may_repeat(request);
                self.front.requests[request].again |= again;
                self.front.pieces_done(request, 1, if again { Ok(()) } else { result });
            }
            Event::Reclaim { region } => self.reclaim(region),
            Event::Passing { volume, result } => self.passing(volume, result),
            Event::RegionFreed { region } => {
                for n in 0..self.shards.len() {
                    self.shards[n].region_freed(&mut around!(self), region);
                }
            }
            Event::Retire { extent, first } => {
                self.front.sync_together(first.volume(), SyncWaiter::Retire(extent));
            }
            Event::Recovered(r) => self.recovered(&r),
            Event::RecoveredTombstone { key } => self.recovered_tombstone(key),
            Event::Ready(report) => {
                if self.state == State::Starting {
                    self.begin_serving(report);
                }
            }
            Event::Failed(error) => {
                self.state = State::Failed;
                self.notices.push(Notice::Failed(error));
            }
            Event::CleanMarked { ticket, result } => {
                if self.switch_marked(ticket, result) || self.seal_marked(ticket, result) {
                    return;
                }
                self.stop_result = self.stop_result.and(result);
                self.log.as_mut().expect("the log said so").stop();
            }
            Event::Bound { result, .. } => self.seal_noted(result),
            Event::Stopped { result } => {
                self.state = State::Stopped;
                self.notices.push(Notice::Stopped(self.stop_result.and(result)));
            }
            other => unreachable!("nobody asked the log for {other:?}"),
        }
    }

    // ---- flushes ----

    /// A flush request: it joins the next round of its volume.
    pub(crate) fn begin_flush(&mut self, request: u32) {
        let r = &mut self.front.requests[request];
        r.stage = Stage::Flushing;
        let volume = r.volume;
        if !self.config.write_policy.write_back {
            return self.make_durable(request);
        }
        let flushing = &mut self.front.volumes[usize::from(volume)].flushing;
        flushing.next.push(request);
        if flushing.active.is_empty() {
            self.begin_flush_round(volume);
        }
    }

    fn begin_flush_round(&mut self, volume: u16) {
        let v = usize::from(volume);
        let flushing = &mut self.front.volumes[v].flushing;
        core::mem::swap(&mut flushing.active, &mut flushing.next);
        (flushing.shards_left, flushing.failed) = (self.shards.len() as u32, false);
        for shard in &mut self.shards {
            shard.flush_begin(v);
        }
        self.flushing |= 1 << volume;
        self.push_flushes();
    }

    fn push_flushes(&mut self) -> bool {
        let mut any = false;
        let mut volumes = self.flushing;
        while volumes != 0 {
            let volume = volumes.trailing_zeros() as u16;
            volumes &= volumes - 1;
            let v = usize::from(volume);
            for n in 0..self.shards.len() {
                let state = self.shards[n].flush_step(&mut around!(self), v, FLUSH_BLOCKS);
                let flushing = &mut self.front.volumes[v].flushing;
                match state {
                    FlushState::Done { failed } => {
                        flushing.shards_left -= 1;
                        flushing.failed |= failed;
                        any = true;
                    }
                    FlushState::More => any = true,
                    FlushState::Idle | FlushState::Waiting => {}
                }
            }
            if self.front.volumes[v].flushing.shards_left == 0 {
                self.end_flush_round(volume);
                any = true;
            }
        }
        any
    }

    fn end_flush_round(&mut self, volume: u16) {
        let v = usize::from(volume);
        self.flushing &= !(1 << volume);
        let flushing = &mut self.front.volumes[v].flushing;
        let failed = flushing.failed;
        let mut active = core::mem::take(&mut flushing.active);
        for request in active.drain(..) {
            if failed {
                let r = &mut self.front.requests[request];
                r.error.get_or_insert(forebay_effect::IoError::Device);
                if self.may_repeat(request) {
                    self.front.requests[request].error = None;
                    self.repeat_last_stage(request);
                } else {
                    self.front.reply(request, &mut self.effects);
                }
            } else {
                self.make_durable(request);
            }
        }
        let flushing = &mut self.front.volumes[v].flushing;
        flushing.active = active;
        if !flushing.next.is_empty() {
            self.begin_flush_round(volume);
        }
    }

    // ---- cleaning ----

    fn hear_syncs(&mut self) {
        while let Some((_, waiter, result)) = self.front.synced.pop() {
            match waiter {
                SyncWaiter::Cleaner => {
                    if let Some(active) = &mut self.cleaner.active
                        && let Phase::Syncing { left } = &mut active.phase
                    {
                        *left -= 1;
                    }
                }
                SyncWaiter::Retire(extent) => {
                    let log = self.log.as_mut().expect("only a log retires extents");
                    match result {
                        // (A sync proves nothing once one before it has failed.)
                        Ok(()) if self.front.sync_failures == 0 => log.extent_released(extent),
                        // The mark must stay, and who waits for its place must not wait for ever.
                        _ => self.give_up(),
                    }
                }
                SyncWaiter::Start => {}
                SyncWaiter::Request(_) => unreachable!("requests hear of syncs at once"),
            }
        }
    }

    /// The records of the region to clean are durable (or will not be).
    fn begin_writing(&mut self, result: Outcome) {
        let Some(active) = &mut self.cleaner.active else { return };
        if result.is_err() {
            self.cleaner.end(result, self.now, false);
            self.abandon_chosen();
            return self.consider_giving_up();
        }
        active.phase = Phase::Stamping;
        self.push_stamps();
    }

    /// What was chosen will not be cleaned.
    pub(crate) fn abandon_chosen(&mut self) {
        for n in 0..self.shards.len() {
            self.shards[n].clean_abandon(&mut around!(self));
        }
    }

    /// What was chosen goes to the stores.
    pub(crate) fn write_chosen(&mut self) {
        let Some(active) = &mut self.cleaner.active else { return };
        active.phase = Phase::Writing;
        let skipped = active.skipped | active.failed;
        for shard in &mut self.shards {
            shard.clean_begin(skipped);
        }
    }

    fn push_cleaner(&mut self) -> bool {
        let mut any = false;
        let works = self.log.as_ref().is_some_and(|log| log.error().is_none());
        if works && self.shards.iter().any(Shard::is_exhausted) {
            self.give_up();
            return true;
        }
        let owes = works && self.shards.iter().any(|s| s.owes_cleaning());
        if owes && !self.cleaner.is_evicting() {
            self.cleaner.push(0, Purpose::Evict);
        }
        let wanted = self.somebody_waits();
        if self.cleaner.begin(self.front.sync_failures, wanted).is_some() {
            if !self.begin_moving() {
                let target = target(self.cleaner.active.as_ref().expect("it has just begun"));
                let dirty = self.dirty_blocks() > 0;
                let purpose = self.cleaner.active.as_ref().map_or(Purpose::Evict, |a| a.purpose);
                let skipped = self.stores_to_skip(purpose);
                if let Some(active) = &mut self.cleaner.active {
                    active.skipped = skipped;
                }
                for shard in &mut self.shards {
                    shard.clean_choose(target, dirty, skipped);
                }
                let log = self.log.as_mut().expect("only a log has regions");
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
            for n in 0..self.shards.len() {
                if active.written >> n & 1 == 1 {
                    continue;
                }
                let state = self.shards[n].clean_step(&mut around!(self));
                self.shards[n].close_runs(&mut around!(self));
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
            if active.written.count_ones() as usize != self.shards.len() {
                return any;
            }
            if self.front.sabotage.is(Bug::RegionFreedBeforeSync) {
                active.volumes = 0;
            }
            let left = active.volumes.count_ones();
            active.phase = Phase::Syncing { left };
            self.cleaner.active = Some(active);
            for volume in 0..self.front.volumes.len() as u16 {
                if active.volumes >> volume & 1 == 1 {
                    self.front.sync(volume, SyncWaiter::Cleaner, &mut self.effects);
                }
            }
            any = true;
        }
        match active.phase {
            Phase::Syncing { left: 0 } => {
                // Data written before a failed sync may be gone though a later one succeeded.
                let failed = self.front.failed_since(active.sync_failures);
                for n in 0..self.shards.len() {
                    self.shards[n].clean_end(&mut around!(self), failed);
                }
                self.stamps.taken_over |= active.volumes & !failed;
                self.end_cleaning(failed & active.volumes);
                true
            }
            Phase::Carrying => self.push_carry() | any,
            Phase::Stamping | Phase::Releasing => self.push_stamps() | any,
            _ => any,
        }
    }

    /// Carries on what is left of the region to reclaim; true when that is over.
    fn push_carry(&mut self) -> bool {
        let mut done = true;
        for n in 0..self.shards.len() {
            match self.shards[n].carry_step(&mut around!(self)) {
                CarryState::Done => {}
                CarryState::Busy => done = false,
                CarryState::Unreadable => {
                    // It is one of those that cannot be read: as after any attempt.
                    self.cleaner.end(Err(IoError::Corrupt), self.now, false);
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
            self.note_carried();
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
        let done = self.cleaner.end(Ok(()), self.now, false);
        self.consider_giving_up();
        if let Some(log) = &mut self.log {
            log.region_released(done.region);
        }
        self.consider_suspending();
    }

    /// Whether what cleaning has left of the region is to be carried on. What could not be read is
    /// given up for lost only if room is needed, several attempts have failed, and it is little: much
    /// is rather a device that may come back.
    fn may_carry(&self, region: u32, carried: u64) -> bool {
        let Some(log) = &self.log else { return false };
        let mut sum = Owed::default();
        for shard in &self.shards {
            match shard.carry_needs(region, carried, log.geometry()) {
                Some(owed) => {
                    sum.lost += owed.lost;
                    sum.pages += owed.pages;
                }
                None => return false,
            }
        }
        let hopeless = self.cleaner.unreadable + 1 >= FAILURES_MAX && self.somebody_waits();
        let few = sum.lost == 0 || hopeless && sum.lost <= LOST_MAX;
        few && log.may_carry(sum.pages)
    }

    fn holds_unreadable(&self, region: u32) -> bool {
        self.shards.iter().any(|shard| shard.region_is_unreadable(region))
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
        self.note_stores(active.volumes, failed, written.err().unwrap_or(IoError::Device));
        // Trying again would not help what cannot be read. But a region that holds it cannot be
        // used again, and that the log must hear of.
        let reclaims = active.purpose == Purpose::Reclaim;
        let region = active.region;
        let owes = active.purpose != Purpose::Evict
            && (active.unreadable || self.shards.iter().any(|shard| shard.region_is_dirty(region)));
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
        let known = failed & !self.front.stores.failing == 0;
        let carried = if self.may_carry_failing() { failed | active.skipped } else { 0 };
        if left && (written.is_ok() || known && carried != 0) && self.may_carry(region, carried) {
            if carried != 0 && !self.somebody_waits() {
                return self.cleaner.park();
            }
            let Some(active) = &mut self.cleaner.active else { return };
            active.phase = Phase::Carrying;
            self.front.stores.stuck = 0;
            self.shards.iter_mut().for_each(|shard| shard.carry_begin(region, carried));
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
            self.front.stores.stuck = 0;
            return self.begin_release();
        }
        let tentative = self.destaging.is_none() && failed != 0 && known;
        self.leave_region(result, tentative);
    }

    /// The region under way is not clean, or need not be given back.
    pub(crate) fn leave_region(&mut self, result: Outcome, tentative: bool) {
        self.stats.destage_retries += u64::from(result.is_err());
        let done = self.cleaner.end(result, self.now, tentative);
        if let Err(error) = result {
            self.front.stores.stuck += u32::from(done.purpose == Purpose::Reclaim);
            if let Some(destage) = &mut self.destaging
                && done.purpose == Purpose::Destage
                && self.cleaner.is_given_up(done.region)
            {
                destage.fail(error);
            }
        }
        self.consider_giving_up();
        self.consider_suspending();
    }

    /// Begins to move the mappings of the region to reclaim, if that is how it is done; else it
    /// is cleaned, and what it holds is dropped.
    fn begin_moving(&mut self) -> bool {
        let Some(active) = &mut self.cleaner.active else { return false };
        let log = self.log.as_mut().expect("only a log has regions");
        if log.layout() != Layout::Slots || active.purpose != Purpose::Reclaim {
            return false;
        }
        let region = active.region;
        let count = self.shards.iter().map(|s| s.region_entries(region)).sum();
        if !log.moves_fit(count) {
            self.stats.regions_dropped += 1;
            return false;
        }
        active.phase = Phase::Moving;
        for n in 0..self.shards.len() {
            self.shards[n].move_begin(&mut around!(self), region);
        }
        self.log.as_mut().expect("it has just been asked").close_notes();
        true
    }

    fn push_moves(&mut self) -> bool {
        let Some(mut active) = self.cleaner.active.filter(|a| a.phase == Phase::Moving) else {
            return false;
        };
        let (mut done, mut more) = (true, false);
        for n in 0..self.shards.len() {
            match self.shards[n].move_step(&mut around!(self)) {
                MoveState::Busy => done = false,
                MoveState::More => (done, more) = (false, true),
                MoveState::Done => {}
                MoveState::Failed => active.error = Some(IoError::Device),
            }
        }
        self.cleaner.active = Some(active);
        let log = self.log.as_mut().expect("only a log has regions");
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
            self.cleaner.end(Ok(()), self.now, false);
            log.region_released(active.region);
            self.front.stores.stuck = 0;
            self.consider_suspending();
            if self.cleaner.is_wanted_clean(active.region) {
                // What was wanted clean has moved meanwhile.
                self.clean_all();
            }
        }
        true
    }

    /// After several failures in a row, when somebody waits for room on flash: the log is latched
    /// if a dirty record that cannot be read pins its region for good, if a stop has to end, or
    /// when this has gone on for too long.
    pub(crate) fn consider_giving_up(&mut self) {
        let (failures, unreadable) = (self.cleaner.failures, self.cleaner.unreadable);
        if self.log_lost {
            return;
        }
        if failures.max(unreadable) < FAILURES_MAX || !self.somebody_waits() {
            return;
        }
        let stopping = self.hurry || self.state != State::Ready;
        // What can still be destaged first.
        let pinned = unreadable >= FAILURES_MAX && !self.cleaner.is_destaging();
        if pinned || (failures >= FAILURES_MAX && stopping) {
            self.give_up();
            self.cleaner.retry_at = None;
            self.cleaner.forget();
        }
    }

    /// Nothing goes to flash any more; whoever waits for that is told.
    pub(crate) fn give_up(&mut self) {
        let Some(log) = &mut self.log else { return };
        log.give_up(IoError::Device);
        if !self.log_lost {
            self.lose_log();
        }
    }
}
