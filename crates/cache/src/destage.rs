//! Destages of everything, and stops: what is dirty in DRAM goes to flash, then the dirty records of
//! all regions to the backing stores.

use forebay_block::{Flags, Op, Volume};
use forebay_effect::{IoError, Outcome};

use crate::cache::{Cache, Notice, State};
use crate::cleaner::Purpose;
use crate::front::INTERNAL;
use crate::pump::FAILURES_MAX;

impl Cache {
    /// Brings everything dirty to the backing stores: [`Notice::Destaged`] follows. Requests go
    /// on meanwhile; what they dirty is not waited for.
    pub fn destage(&mut self) {
        self.destage_wanted = true;
        if self.destaging.is_none() {
            self.begin_destage();
        }
        self.pump();
    }

    /// Begins to destage everything; none must be under way.
    pub(crate) fn begin_destage(&mut self) {
        self.cleaner.forgive();
        self.flush_all();
        self.destaging = Some((self.front.volumes.len() as u32, Ok(())));
    }

    /// A stop is near: from now on what cannot be destaged is not waited for.
    pub fn prepare_stop(&mut self) {
        self.hurry = true;
        self.consider_giving_up();
        self.pump();
    }

    /// Stops: requests in flight are finished, later ones refused; what is dirty in DRAM goes to
    /// flash (or, without flash, to the backing stores), and with `destage` everything to the
    /// backing stores. [`Notice::Stopped`] follows.
    pub fn stop(&mut self, destage: bool) {
        if matches!(self.state, State::Ready | State::New) {
            self.state = State::Draining;
            (self.stop_destages, self.hurry) = (destage, true);
            self.consider_giving_up();
        }
        self.pump();
    }

    /// Dirty blocks of all volumes.
    pub fn dirty_blocks(&self) -> u64 {
        self.front.volumes.iter().map(|v| v.stats.dirty_blocks).sum()
    }

    fn flush_all(&mut self) {
        for volume in 0..self.front.volumes.len() {
            let v = Volume(volume as u32);
            let flush = self.front.admit(INTERNAL, v, Op::Flush, Flags::NONE, 0, 0);
            self.begin_flush(flush.expect("a flush of an attached volume"));
        }
    }

    pub(crate) fn clean_all(&mut self) {
        let regions = self.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        for region in 0..regions {
            let dirty = self.shards.iter().any(|s| s.region_is_dirty(region));
            if dirty && !self.cleaner.is_wanted_clean(region) {
                self.cleaner.push(region, Purpose::Destage);
            }
        }
    }

    pub(crate) fn push_stop(&mut self) -> bool {
        if !self.may_stop() {
            return false;
        }
        let flushed: Vec<Outcome> = if self.front.internal_done.is_empty() {
            Vec::new()
        } else {
            self.front.internal_done.drain(..).collect()
        };
        let mut any = !flushed.is_empty();
        if let Some((left, result)) = &mut self.destaging {
            for outcome in flushed {
                *left -= 1;
                *result = result.and(outcome);
            }
        }
        match self.destaging {
            Some((0, result)) if self.state != State::Flushing => {
                // All flushed: now the regions. The marker u32::MAX says so.
                self.clean_all();
                self.destaging = Some((u32::MAX, result));
                any = true;
            }
            Some((u32::MAX, result)) => {
                let given_up = self.cleaner.failures >= FAILURES_MAX;
                // (A region that is to be used again and cannot be is no part of it.)
                if !self.cleaner.is_destaging() && self.cleaner.active.is_none() || given_up {
                    self.cleaner.forget_destages();
                    self.destaging = None;
                    let unreadable = self.unreadable().next().is_some();
                    let result = match result {
                        Ok(()) if given_up => Err(self.cleaner.error),
                        Ok(()) if unreadable => Err(IoError::Corrupt),
                        result => result,
                    };
                    if self.state == State::Destaging {
                        self.stop_result = result;
                    } else {
                        self.switch_destaged(result);
                        if core::mem::take(&mut self.destage_wanted) {
                            self.notices.push(Notice::Destaged(result));
                        }
                    }
                    any = true;
                }
            }
            _ => {}
        }
        any | self.push_stop_state()
    }

    fn push_stop_state(&mut self) -> bool {
        match self.state {
            State::Draining if self.front.requests.in_use() == 0 && self.destaging.is_none() => {
                self.state = State::Flushing;
                self.cleaner.forgive();
                self.destaging = Some((self.front.volumes.len() as u32, Ok(())));
                self.flush_all();
                true
            }
            State::Flushing => {
                let Some((0, result)) = self.destaging else { return false };
                self.stop_result = result;
                self.state = State::Destaging;
                if !self.stop_destages {
                    self.destaging = None;
                }
                true
            }
            State::Destaging if self.destaging.is_none() => {
                // A store that may have lost writes: records that agree with what it lost must
                // not be trusted at the next start, so the log is left as after a crash.
                let lost = self.front.sync_failures > 0;
                match &mut self.log {
                    Some(log) if !lost => {
                        self.state = State::Closing;
                        let clean = self.front.volumes.iter().all(|v| v.stats.dirty_blocks == 0);
                        if self.stop_destages && self.stop_result.is_ok() && clean {
                            // The stores are the whole truth: no record may be destaged again
                            // at the next start. The stop goes on when that is durable.
                            log.clean_before_now(0);
                        } else {
                            log.stop();
                        }
                    }
                    _ => {
                        self.state = State::Stopped;
                        self.notices.push(Notice::Stopped(self.stop_result));
                    }
                }
                true
            }
            _ => false,
        }
    }
}
