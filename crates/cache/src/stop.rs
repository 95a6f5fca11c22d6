//! A stop: requests in flight end; dirty blocks in DRAM go to flash and, if requested, from there
//! to the backing stores. Then the log writes its clean mark, and nothing is cleaned any more.
//!
//! | stage | what moves it on | next stage |
//! | --- | --- | --- |
//! | `NotBegun` | a stop of a cache that serves | `Draining` |
//! | `NotBegun` | a stop of a cache that was never started | `Closing` |
//! | `Draining` | requests, fetches and other destages have ended | `Flushing` |
//! | `Flushing` | the blocks that were dirty in DRAM are on flash or the stores, or cannot be | `Destaging` |
//! | `Destaging` | the destage has ended, or none was requested | `Closing` |
//!
//! [`Lifecycle`](crate::lifecycle::Lifecycle) has the steps that follow.

use forebay_effect::{IoError, Outcome};

use crate::cleaner::Cleaner;
use crate::destage::{DestageError, Destaged, Destages};
use crate::notice::Notice;
use crate::shard::Shard;
use crate::stages::{CurrentStage, Stage};
use crate::ticket::Ticket;
use crate::world::World;

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

/// How far a stop has come. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopStage {
    /// No stop has begun.
    NotBegun,
    /// Requests in flight are ending.
    Draining,
    /// The blocks that are dirty in DRAM are being flushed.
    Flushing,
    /// The dirty records on flash are being destaged, if requested.
    Destaging,
    /// The log closes or has closed, if there is one.
    Closing,
}

impl Stage for StopStage {
    const OF: &'static str = "a stop";

    fn leads_to(self, next: StopStage) -> bool {
        use StopStage::{Closing, Destaging, Draining, Flushing, NotBegun};
        match self {
            NotBegun => matches!(next, Draining | Closing),
            Draining => next == Flushing,
            Flushing => next == Destaging,
            Destaging => next == Closing,
            Closing => false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stop {
    target: StopTarget,
    stage: CurrentStage<StopStage>,
    result: Destaged,
    left: StoresLeft,
    /// What became of the blocks that were dirty in memory, once that is decided.
    flushed: Option<Destaged>,
}

impl Stop {
    pub fn new() -> Stop {
        Stop {
            target: StopTarget::Flash,
            stage: CurrentStage::first(StopStage::NotBegun),
            result: Ok(()),
            left: StoresLeft::Whole,
            flushed: None,
        }
    }

    /// Begins a stop of a cache that serves, or was never started; returns whether it began.
    pub fn begin(&mut self, world: &mut World, target: StopTarget) -> bool {
        if world.lifecycle.is_ready() {
            self.stage.enter(StopStage::Draining);
            world.lifecycle.begin_stop();
            world.shards.iter_mut().for_each(Shard::stop_lines);
        } else if world.lifecycle.is_new() {
            // Nothing is dirty, and the devices are not open: none is accessed.
            self.stage.enter(StopStage::Closing);
            world.flash.close();
            match &mut world.log {
                Some(log) => {
                    world.lifecycle.close_log();
                    log.stop();
                }
                None => world.lifecycle.end_cleaning(),
            }
        } else {
            return false;
        }
        self.target = target;
        true
    }

    /// Whether blocks that were dirty in memory are on flash or on the backing stores; `None` until as many
    /// are there as can be.
    pub fn flushed(&self) -> Option<Destaged> {
        self.flushed
    }

    /// Whether the cache has stopped without an error, so that the log may take a note.
    pub fn is_in_order(&self, world: &World) -> bool {
        world.lifecycle.is_stopped() && self.result.is_ok()
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
        world.lifecycle.end_cleaning();
        self.result = self.result.and(result.map_err(DestageError::Failed));
    }

    /// One turn.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        destages: &mut Destages,
    ) -> bool {
        match self.stage.get() {
            StopStage::Draining
                if world.front.requests.in_use() == 0
                    && !destages.is_under_way()
                    && !world.shards.iter().any(|shard| shard.tiers.lines.is_fetching()) =>
            {
                self.stage.enter(StopStage::Flushing);
                destages.begin_for_stop(world, cleaner);
                true
            }
            StopStage::Flushing => {
                let Some(result) = destages.flushed() else { return false };
                (self.result, self.flushed) = (result, Some(result));
                self.stage.enter(StopStage::Destaging);
                match self.target {
                    StopTarget::Flash => destages.forget(world),
                    StopTarget::Stores => destages.clean_for_stop(),
                }
                true
            }
            StopStage::Destaging if !destages.is_under_way() => {
                self.close(world);
                true
            }
            StopStage::Closing => world.lifecycle.is_ending() && self.end(world, cleaner),
            StopStage::NotBegun | StopStage::Draining | StopStage::Destaging => false,
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
        self.stage.enter(StopStage::Closing);
        world.flash.close();
        match &mut world.log {
            Some(log) if may_mark && !without_flash => {
                world.lifecycle.close_log();
                if self.result.is_ok() && clean {
                    // The stores are the whole truth: no record may be destaged again
                    // at the next start. The stop continues when that is durable.
                    log.clean_before_now(Ticket::Stop.encode());
                } else {
                    log.stop();
                }
            }
            _ => world.lifecycle.end_cleaning(),
        }
    }

    /// The log has stopped: the stop ends once no write to a store is in flight. Nothing is written to one
    /// afterwards, when it is noted how they are left.
    fn end(&self, world: &mut World, cleaner: &mut Cleaner) -> bool {
        let ends = cleaner.cut(world);
        if ends {
            world.lifecycle.end_stop();
            world.notices.push(Notice::Stopped(self.result.map(|()| self.left)));
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::check_table;

    #[test]
    fn stages_follow_each_other_as_the_table_says() {
        let stages = [
            StopStage::NotBegun,
            StopStage::Draining,
            StopStage::Flushing,
            StopStage::Destaging,
            StopStage::Closing,
        ];
        check_table(include_str!("stop.rs"), &stages);
    }
}
