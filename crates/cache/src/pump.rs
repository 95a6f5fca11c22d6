//! What the cache does of its own accord between calls: hears the log, ends requests, pushes
//! flushes and cleaning on; `start` and `destage` do the same for starts, destages and stops. Each turn is bounded.

use forebay_effect::IoError;
use forebay_flash::{Event, Log};

use crate::cache::Cache;
use crate::cleaner::Phase;
use crate::notice::Notice;
use crate::pass_through::SALVAGE;
use crate::shard::Shard;
use crate::volume::SyncWaiter;
use crate::world::{State, Turn, around};

/// The cleaner's name towards the log; requests are named by their small numbers.
pub(crate) const CLEANER: u64 = u64::MAX;
/// The start's.
pub(crate) const START: u64 = u64::MAX - 2;
/// Failed attempts at cleaning in a row after which a stop gives up.
pub(crate) const FAILURES_MAX: u32 = 3;
/// Events of the log that are looked up ahead of the one at hand.
const EVENTS_AHEAD: usize = 8;

impl Cache {
    /// Whether a turn of [`Cache::pump`] would find anything to do.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        let front = &self.world.front;
        self.world.log.as_ref().is_some_and(Log::has_events)
            || self.has_lost_log()
            || self.owes_pass_through()
            || self.owes_settling()
            || !front.finished.is_empty()
            || self.world.may_resume()
            || self.world.front.flushing != 0
            || !front.synced.is_empty()
            || self.owes_cleaning()
            || self.stores.owes(&self.world, self.may_stop())
            || self.switch.is_some()
            || self.sealing.is_some()
            || self.may_stop()
            || self.world.shards.iter().any(Shard::may_serve)
    }

    /// Whether the log has failed, and the shards have not been told.
    #[inline]
    fn has_lost_log(&self) -> bool {
        !self.world.log_lost && self.world.log.as_ref().is_some_and(|log| log.error().is_some())
    }

    /// Whether something is being cleaned, or should be.
    #[inline]
    fn owes_cleaning(&self) -> bool {
        !self.cleaner.is_idle() || self.world.shards.iter().any(Shard::owes_cleaning)
    }

    /// Whether a destage or a stop is under way.
    #[inline]
    pub(crate) fn may_stop(&self) -> bool {
        !matches!(self.world.state, State::New | State::Starting | State::Ready)
            || self.destaging.is_some()
            || !self.world.front.internal_done.is_empty()
    }

    /// One turn of everything that is owed; true when something was done.
    pub(crate) fn pump(&mut self) -> bool {
        let mut any = self.has_lost_log();
        if any {
            // (Before what was on its way to the log hears of it: that may wait now.)
            self.lose_log();
        }
        any |= self.hear_log();
        while let Some(request) = self.world.front.pop_finished() {
            self.world.finish(request);
            any = true;
        }
        for n in 0..self.world.shards.len() {
            if self.world.shards[n].may_serve() {
                any |= self.world.shards[n].serve_starved(&mut around!(self.world));
            }
        }
        if self.world.may_resume() {
            any |= self.world.resume(&mut self.stores);
        }
        if self.world.front.flushing != 0 {
            any |= self.world.push_flushes();
        }
        if !self.world.front.synced.is_empty() {
            self.hear_syncs();
            any = true;
        }
        if self.owes_cleaning() {
            any |= self.push_cleaner();
        }
        if self.stores.owes(&self.world, self.may_stop()) {
            any |= match self.stores.push(&mut self.world, &mut self.cleaner) {
                Turn::GiveUp => {
                    self.give_up();
                    true
                }
                turn => turn == Turn::Something,
            };
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
        while let Some(event) = self.world.log.as_mut().and_then(|l| l.poll_event()) {
            any = true;
            self.look_ahead();
            self.hear(event);
        }
        self.settle_recovered();
        self.world.front.issue_syncs(&mut self.world.effects);
        any
    }

    /// Starts loading what the events to come will look at. A batch brings many at once, of
    /// blocks that nobody has looked at for a while.
    fn look_ahead(&self) {
        let Some(log) = &self.world.log else { return };
        for (n, near) in [(EVENTS_AHEAD, false), (EVENTS_AHEAD / 2, true)] {
            match log.upcoming_event(n) {
                Some(&Event::Appended { ticket, .. }) => {
                    self.world.shards[(ticket >> 32) as usize]
                        .prefetch_transfer(ticket as u32, near);
                }
                Some(&Event::Moved { ticket, key, .. }) => {
                    let shard = &self.world.shards[ticket as usize];
                    match near {
                        true => _ = shard.prefetch_entry(key),
                        false => shard.prefetch(key),
                    }
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
                let moved =
                    self.world.shards[n].appended(&mut around!(self.world), t, position, checksum);
                if let Some((from, to)) = moved {
                    self.follow(from, to);
                }
            }
            Event::AppendFailed { ticket, error } => {
                let (n, t) = shard_of(ticket);
                self.world.shards[n].append_failed(&mut around!(self.world), t, error);
            }
            Event::AppendRefused { ticket } => {
                let (n, t) = shard_of(ticket);
                self.world.shards[n].append_refused(&mut around!(self.world), t);
            }
            Event::Active { ticket, result } => {
                let (n, t) = shard_of(ticket);
                self.world.shards[n].activated(&mut around!(self.world), t, result);
            }
            Event::Moved { ticket, key, position, from, region, result } => {
                self.cleaner.note_moved(from, region);
                self.world.shards[ticket as usize].moved(
                    key,
                    position,
                    (from, region),
                    result.is_ok(),
                );
            }
            Event::Unmapped { key, position } => {
                let n = self
                    .world
                    .shard_of(key.volume(), self.world.config.block_size.offset_of(key.block()));
                self.world.shards[n].unmapped(&mut around!(self.world), key, position);
            }
            Event::Synced { ticket: CLEANER, result } => self.begin_writing(result),
            Event::Synced { ticket: START, result } => self.disowned(result),
            Event::Synced { ticket: SALVAGE, result } => self.salvaged(result),
            Event::Voided { result, .. } => self.voided(result),
            Event::Synced { ticket, result } => {
                let request = ticket as u32;
                let again = result.is_err() && self.world.may_repeat(request);
                self.world.front.requests[request].again |= again;
                self.world.front.pieces_done(request, 1, if again { Ok(()) } else { result });
            }
            Event::Reclaim { region } => self.reclaim(region),
            Event::Passing { volume, result } => self.passing(volume, result),
            Event::RegionFreed { region } => {
                for n in 0..self.world.shards.len() {
                    self.world.shards[n].region_freed(&mut around!(self.world), region);
                }
            }
            Event::Retire { extent, first } => {
                self.world.front.sync_together(first.volume(), SyncWaiter::Retire(extent));
            }
            Event::Recovered(r) => self.recovered(&r),
            Event::RecoveredTombstone { key } => self.recovered_tombstone(key),
            Event::Ready(report) => {
                if self.world.state == State::Starting {
                    self.begin_serving(report);
                }
            }
            Event::Failed(error) => {
                self.world.state = State::Failed;
                self.world.notices.push(Notice::Failed(error));
            }
            Event::CleanMarked { ticket, result } => {
                if self.switch_marked(ticket, result) || self.seal_marked(ticket, result) {
                    return;
                }
                self.stop_result = self.stop_result.and(result);
                self.world.log.as_mut().expect("the log said so").stop();
            }
            Event::Bound { result, .. } => self.seal_noted(result),
            Event::Stopped { result } => {
                (self.world.state, self.stop_result) =
                    (State::Ending, self.stop_result.and(result));
            }
            other => unreachable!("nobody asked the log for {other:?}"),
        }
    }

    fn hear_syncs(&mut self) {
        while let Some((_, waiter, result)) = self.world.front.synced.pop() {
            match waiter {
                SyncWaiter::Cleaner => {
                    if let Some(active) = &mut self.cleaner.active
                        && let Phase::Syncing { left } = &mut active.phase
                    {
                        *left -= 1;
                    }
                }
                SyncWaiter::Retire(extent) => {
                    let log = self.world.log.as_mut().expect("only a log retires extents");
                    match result {
                        // (A sync proves nothing once one before it has failed.)
                        Ok(()) if self.world.front.sync_failures == 0 => {
                            log.extent_released(extent)
                        }
                        // The mark must stay, and who waits for its place must not wait for ever.
                        _ => self.give_up(),
                    }
                }
                SyncWaiter::Start => {}
                SyncWaiter::Request(_) => unreachable!("requests hear of syncs at once"),
            }
        }
    }

    /// After several failures in a row, when somebody waits for room on flash: the log is latched
    /// if a dirty record that cannot be read pins its region for good, if a stop has to end, or
    /// when this has gone on for too long.
    pub(crate) fn consider_giving_up(&mut self) {
        let (failures, unreadable) = (self.cleaner.failures, self.cleaner.unreadable);
        if self.world.log_lost {
            return;
        }
        if failures.max(unreadable) < FAILURES_MAX || !self.world.somebody_waits() {
            return;
        }
        let stopping = self.world.hurry || self.world.state != State::Ready;
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
        let Some(log) = &mut self.world.log else { return };
        log.give_up(IoError::Device);
        if !self.world.log_lost {
            self.lose_log();
        }
    }
}
