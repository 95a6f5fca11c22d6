//! Destages of everything, and stops: what is dirty in DRAM goes to flash, then the dirty records of
//! all regions to the backing stores.

use forebay_block::{Flags, Op, Volume};
use forebay_effect::{IoError, Outcome};
use forebay_flash::Log;
use forebay_flash::sabotage::Bug;

use crate::cache::Cache;
use crate::cleaner::Purpose;
use crate::front::INTERNAL;
use crate::notice::Notice;
use crate::pump::FAILURES_MAX;
use crate::shard::Shard;
use crate::world::State;

/// A destage of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destage {
    /// Flushes of the cache's own, one a volume, that have not ended.
    flushes_left: u32,
    /// They have: the regions are being cleaned.
    cleaning: bool,
    result: Outcome,
    /// Regions that were added because what was dirty had moved there.
    followed: u32,
}

impl Destage {
    fn new(volumes: usize) -> Destage {
        let flushes_left = volumes as u32;
        Destage { flushes_left, cleaning: false, result: Ok(()), followed: 0 }
    }

    /// Of what is dirty on flash only.
    pub fn of_flash() -> Destage {
        Destage::new(0)
    }

    /// Whether what was in memory is on flash, so that the regions are being cleaned.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning
    }

    /// Some of it is left behind.
    pub fn fail(&mut self, error: IoError) {
        self.result = self.result.and(Err(error));
    }
}

impl Cache {
    /// Brings what is dirty now to the backing stores: [`Notice::Destaged`] follows, one for all
    /// calls before the destage that serves them began. Requests go on meanwhile; what they dirty is
    /// not waited for. Only if clients write faster than the stores take it, so that the destage
    /// cannot catch up, do requests that modify wait for the rest of it. Refused (with
    /// [`IoError::Shutdown`]) where requests are.
    pub fn destage(&mut self) {
        if self.world.state != State::Ready {
            self.world.notices.push(Notice::Destaged(Err(IoError::Shutdown)));
            return;
        }
        match self.destaging {
            // What was dirtied since it began is not part of the one under way.
            Some(_) => self.destage_again = true,
            None => {
                self.destage_wanted = true;
                self.begin_destage();
            }
        }
        self.pump();
    }

    /// Begins to destage everything; none must be under way.
    pub(crate) fn begin_destage(&mut self) {
        self.cleaner.forgive();
        self.stores.forgive();
        self.flush_all();
        self.destaging = Some(Destage::new(self.world.front.volumes.len()));
    }

    /// A dirty record was superseded by one in another region, which holds its dirty granules, too. A
    /// destage that owes the older one follows it: the granules were dirty when it began.
    pub(crate) fn follow(&mut self, from: u32, to: u32) {
        let Some(destage) = &mut self.destaging else { return };
        if !self.cleaner.is_owed(from)
            || self.cleaner.is_wanted_clean(to)
            || self.world.front.sabotage.is(Bug::DestageLosesSight)
        {
            return;
        }
        self.cleaner.push(to, Purpose::Destage);
        self.world.stats.destages_followed += 1;
        destage.followed += 1;
        // It has been through all regions as they were when it began, and through as many as there
        // are: who goes on writing would have it go round for ever.
        let regions = self.world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        if destage.followed > regions && !self.world.holds.destage {
            self.world.holds.destage = true;
            self.world.stats.destages_held += 1;
        }
    }

    /// A stop is near: from now on what cannot be destaged is not waited for, and destages that were
    /// asked for end early, with an error: the stop does what is left of them, or leaves it on flash.
    pub fn prepare_stop(&mut self) {
        self.world.hurry = true;
        self.cut_destage();
        self.consider_giving_up();
        self.stores.consider_suspending(&mut self.world);
        self.pump();
    }

    /// No further region is cleaned for a destage that is no part of a stop.
    fn cut_destage(&mut self) {
        if let Some(destage) = self.destaging.as_mut().filter(|destage| destage.cleaning) {
            destage.fail(IoError::Shutdown);
            self.cleaner.forget_destages();
        }
    }

    /// Stops: requests in flight are finished, later ones refused; what is dirty in DRAM goes to
    /// flash (or, without flash, to the backing stores), and with `destage` everything to the
    /// backing stores. [`Notice::Stopped`] follows.
    pub fn stop(&mut self, destage: bool) {
        if matches!(self.world.state, State::Ready | State::New) {
            self.world.state = State::Draining;
            self.world.shards.iter_mut().for_each(Shard::stop_lines);
            (self.stop_destages, self.world.hurry) = (destage, true);
            self.cut_destage();
            self.consider_giving_up();
        }
        self.pump();
    }

    /// Dirty blocks of all volumes.
    pub fn dirty_blocks(&self) -> u64 {
        self.world.front.dirty_blocks
    }

    /// Whether what a log that has failed holds can still be destaged.
    fn is_salvaged(&self) -> bool {
        self.world.log.as_ref().is_some_and(Log::is_salvaged)
    }

    fn flush_all(&mut self) {
        for volume in 0..self.world.front.volumes.len() {
            let v = Volume(volume as u32);
            let flush = self.world.front.admit(INTERNAL, v, Op::Flush, Flags::NONE, 0, 0);
            self.world.begin_flush(flush.expect("a flush of an attached volume"));
        }
    }

    pub(crate) fn clean_all(&mut self) {
        let regions = self.world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        for region in 0..regions {
            let dirty = self.world.shards.iter().any(|s| s.region_is_dirty(region));
            if dirty && !self.cleaner.is_wanted_clean(region) {
                self.cleaner.push(region, Purpose::Destage);
            }
        }
    }

    pub(crate) fn push_stop(&mut self) -> bool {
        if !self.may_stop() {
            return false;
        }
        let flushed: Vec<Outcome> = if self.world.front.internal_done.is_empty() {
            Vec::new()
        } else {
            self.world.front.internal_done.drain(..).collect()
        };
        let mut any = !flushed.is_empty();
        if let Some(destage) = &mut self.destaging {
            for outcome in flushed {
                destage.flushes_left -= 1;
                destage.result = destage.result.and(outcome);
            }
        }
        match self.destaging {
            Some(Destage { flushes_left: 0, cleaning: false, .. })
                if self.world.state != State::Flushing =>
            {
                // All flushed: now the regions.
                let owed = self.world.front.volumes.iter().any(|v| v.owed > 0);
                let lost = self.world.log_lost && !self.is_salvaged() && owed;
                let cut = self.world.hurry && self.world.state != State::Destaging;
                if !lost && !cut {
                    self.clean_all();
                }
                if let Some(destage) = &mut self.destaging {
                    destage.cleaning = true;
                    if lost {
                        destage.fail(IoError::Device);
                    }
                    if cut {
                        destage.fail(IoError::Shutdown);
                    }
                }
                any = true;
            }
            Some(Destage { cleaning: true, result, .. }) => {
                // (Without its log nothing can be destaged, however often it is tried.)
                let given_up = self.cleaner.failures >= FAILURES_MAX
                    && self.world.log_lost
                    && !self.is_salvaged();
                // (A region that is to be used again and cannot be is no part of it.)
                if !self.cleaner.is_destaging() && self.cleaner.active.is_none() || given_up {
                    self.cleaner.forget_destages();
                    self.destaging = None;
                    let held = core::mem::take(&mut self.world.holds.destage);
                    let unreadable = self.unreadable().next().is_some();
                    let result = match result {
                        Ok(()) if given_up => Err(self.cleaner.error),
                        Ok(()) if unreadable => Err(IoError::Corrupt),
                        result => result,
                    };
                    if self.world.state == State::Destaging {
                        self.stop_result = result;
                    } else {
                        self.end_destage(result, held);
                    }
                    any = true;
                }
            }
            _ => {}
        }
        any | self.push_stop_state()
    }

    /// A destage that is no part of a stop is over.
    fn end_destage(&mut self, result: Outcome, held: bool) {
        self.switch_destaged(result);
        self.pass_through_destaged();
        if held && !self.world.is_held(Op::Write) {
            self.world.release_held();
        }
        if core::mem::take(&mut self.destage_wanted) {
            self.world.notices.push(Notice::Destaged(result));
        }
        if core::mem::take(&mut self.destage_again) {
            self.destage_wanted = true;
            if self.destaging.is_none() {
                self.begin_destage();
            }
        }
    }

    fn push_stop_state(&mut self) -> bool {
        match self.world.state {
            State::Draining
                if self.world.front.requests.in_use() == 0
                    && self.destaging.is_none()
                    && !self.world.shards.iter().any(Shard::is_fetching_lines) =>
            {
                self.world.state = State::Flushing;
                self.cleaner.forgive();
                self.stores.forgive();
                self.destaging = Some(Destage::new(self.world.front.volumes.len()));
                self.flush_all();
                true
            }
            State::Flushing => {
                let Some(Destage { flushes_left: 0, result, .. }) = self.destaging else {
                    return false;
                };
                self.stop_result = result;
                self.world.state = State::Destaging;
                if !self.stop_destages {
                    self.destaging = None;
                    self.world.holds.destage = false;
                }
                true
            }
            State::Destaging if self.destaging.is_none() => {
                // A store that may have lost writes: records that agree with what it lost must
                // not be trusted at the next start, so the log is left as after a crash.
                let lost = self.world.front.sync_failures > 0;
                // (What a log that has failed holds is void already.)
                let past = self.world.all_go_past();
                match &mut self.world.log {
                    Some(log) if !lost && !past => {
                        self.world.state = State::Closing;
                        let clean =
                            self.world.front.volumes.iter().all(|v| v.stats.dirty_blocks == 0);
                        if self.stop_destages && self.stop_result.is_ok() && clean {
                            // The stores are the whole truth: no record may be destaged again
                            // at the next start. The stop goes on when that is durable.
                            log.clean_before_now(0);
                        } else {
                            log.stop();
                        }
                    }
                    _ => self.world.state = State::Ending,
                }
                true
            }
            State::Ending => {
                // Nothing is written to a store after the stop: it is noted then how they are left.
                if !self.cut_cleaning() {
                    return false;
                }
                self.world.state = State::Stopped;
                self.world.notices.push(Notice::Stopped(self.stop_result));
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CacheConfig, VolumeConfig};
    use crate::control::Stage;
    use crate::policy::{Acknowledge, WritePolicy};
    use crate::{Open, cache};
    use forebay_block::Nanos;
    use forebay_effect::RequestId;

    #[test]
    fn the_end_of_a_destage_lets_no_request_go_that_a_change_of_policy_holds() {
        // A change holds what modifies from a stage on; the destage before that may have held some,
        // too.
        let mut cache = cache::Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        cache.set_policy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        let switch = cache.switch.as_mut().expect("its destage waits for a sync");
        switch.stage = Stage::Holding;
        cache.world.holds.switch = true;
        let (id, flags) = (RequestId(1), Flags::NONE);
        cache.handle_request(Nanos(1), id, Volume(0), Op::Write, flags, 0, 4096);
        assert_eq!(cache.world.front.held_count, 1);
        cache.end_destage(Ok(()), true);
        assert_eq!(cache.world.front.held_count, 1, "the change lets it go");
        cache.switch = None;
        cache.world.holds.switch = false;
        cache.end_destage(Ok(()), true);
        assert_eq!(cache.world.front.held_count, 0, "nothing holds it any more");
    }
}
