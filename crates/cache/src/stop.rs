//! A stop: requests in flight end; dirty blocks in DRAM go to flash and, if requested, from there
//! to the backing stores. Then the log writes its clean mark, and nothing is cleaned any more.

use forebay_effect::{IoError, Outcome};

use crate::cleaner::Cleaner;
use crate::destage::{DestageError, Destaged, Destages};
use crate::notice::Notice;
use crate::shard::Shard;
use crate::ticket::Ticket;
use crate::world::{CacheState, World};

/// Where dirty data is after a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopTarget {
    /// On flash, durable: the next start takes it over. Without a flash tier this is the same as
    /// [`StopTarget::Stores`].
    Flash,
    /// On the backing stores, which are complete then.
    Stores,
}

/// How a stop without an error leaves the backing stores. It decides what their headers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoresLeft {
    /// They have all data, and no later start takes a record for newer: others may use them.
    Whole,
    /// Dirty data is on flash, or records that the next start takes for dirty.
    Behind,
}

/// See the module. [`CacheState`] has the progress.
#[derive(Debug)]
pub(crate) struct Stop {
    target: StopTarget,
    result: Destaged,
    left: StoresLeft,
    /// What became of the blocks that were dirty in memory, once that is decided.
    flushed: Option<Destaged>,
}

impl Stop {
    pub fn new() -> Stop {
        Stop { target: StopTarget::Flash, result: Ok(()), left: StoresLeft::Whole, flushed: None }
    }

    /// Begins a stop of a cache that serves, or was never started; returns whether it began.
    pub fn begin(&mut self, world: &mut World, target: StopTarget) -> bool {
        match world.state {
            CacheState::Ready => {
                world.state = CacheState::Draining;
                world.shards.iter_mut().for_each(Shard::stop_lines);
            }
            // Nothing is dirty, and the devices are not open: none is accessed.
            CacheState::New => self.close_log(world),
            _ => return false,
        }
        (self.target, world.hurry) = (target, true);
        true
    }

    /// The log stops, if there is one.
    fn close_log(&self, world: &mut World) {
        world.flash.close();
        match &mut world.log {
            Some(log) => {
                world.state = CacheState::Closing;
                log.stop();
            }
            None => world.state = CacheState::Ending,
        }
    }

    /// Whether blocks that were dirty in memory are on flash or on the backing stores; `None` until as many
    /// are there as can be.
    pub fn flushed(&self) -> Option<Destaged> {
        self.flushed
    }

    /// Whether the cache has stopped without an error, so that the log may take a note.
    pub fn is_in_order(&self, world: &World) -> bool {
        world.state == CacheState::Stopped && self.result.is_ok()
    }

    /// Its destage has ended.
    pub fn destaged(&mut self, result: Destaged) {
        self.result = result;
    }

    /// The log has written its clean mark, and stops.
    pub fn marked(&mut self, world: &mut World, result: Outcome) {
        self.result = self.result.and(result.map_err(DestageError::Failed));
        world.log.as_mut().expect("the log reported its clean mark").stop();
    }

    /// The log has stopped.
    pub fn log_stopped(&mut self, world: &mut World, result: Outcome) {
        world.state = CacheState::Ending;
        self.result = self.result.and(result.map_err(DestageError::Failed));
    }

    /// One turn.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        destages: &mut Destages,
    ) -> bool {
        match world.state {
            CacheState::Draining
                if world.front.requests.in_use() == 0
                    && !destages.is_under_way()
                    && !world.shards.iter().any(|shard| shard.tiers.lines.is_fetching()) =>
            {
                world.state = CacheState::Flushing;
                destages.begin(world, cleaner);
                true
            }
            CacheState::Flushing => {
                let Some(result) = destages.flushed() else { return false };
                (self.result, self.flushed) = (result, Some(result));
                world.state = CacheState::Destaging;
                if self.target == StopTarget::Flash {
                    destages.forget(world);
                }
                true
            }
            CacheState::Destaging if !destages.is_under_way() => {
                self.close(world);
                true
            }
            CacheState::Ending => {
                // Nothing is written to a store after the stop: it is noted then how they are left.
                if !cleaner.cut(world) {
                    return false;
                }
                world.state = CacheState::Stopped;
                world.notices.push(Notice::Stopped(self.result.map(|()| self.left)));
                true
            }
            _ => false,
        }
    }

    /// The destage has ended as far as possible: the log stops.
    fn close(&mut self, world: &mut World) {
        let may_mark = world.volumes.may_be_declared_clean();
        if !may_mark {
            // The log is left as after a crash, and no header may say otherwise.
            self.result = self.result.and(Err(IoError::Device.into()));
        }
        // If all volumes are without flash, the records of the failed log are void already.
        let without_flash = world.flash.all_without();
        // A cleaning may still end while the log stops, but the log would not know.
        let clean = world.volumes.dirty_blocks == 0;
        self.left = if clean { StoresLeft::Whole } else { StoresLeft::Behind };
        world.flash.close();
        match &mut world.log {
            Some(log) if may_mark && !without_flash => {
                world.state = CacheState::Closing;
                if self.result.is_ok() && clean {
                    // The stores are the whole truth: no record may be destaged again
                    // at the next start. The stop continues when that is durable.
                    log.clean_before_now(Ticket::Stop.encode());
                } else {
                    log.stop();
                }
            }
            _ => world.state = CacheState::Ending,
        }
    }
}
