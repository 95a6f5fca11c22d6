//! Destages of everything: dirty blocks in DRAM go to flash, then the dirty records of all regions
//! go to the backing stores. An operator requests one, or a change of policy, a stop or
//! pass-through needs one.
//!
//! A record can be marked dirty although its data are on the store: the append began before its
//! cleaning ended. So at its end, a destage during which nothing modifies blocks waits for such
//! appends, and if anything is dirty then, everything is destaged again.

mod stage;

use core::fmt;

use forebay_effect::IoError;
use forebay_flash::Log;
use forebay_flash::sabotage::Bug;

use self::stage::{Destage, DestagePurpose, DestageStage};
use crate::cleaner::{Cleaner, Work};
use crate::holds::HoldReason;
use crate::shard::RegionMove;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// How often a destage is repeated because records are marked dirty at its end.
const AGAIN_MAX: u32 = 4;

/// How a destage of everything ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum DestageEnd {
    /// It was part of a stop.
    OfStop(Destaged),
    /// It was for an operator, a change of policy or pass-through.
    OfService(Destaged),
}

/// Why some dirty data is not on the backing stores after a destage, a stop or a change of policy,
/// or why one of these has failed for another reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DestageError {
    /// Dirty records cannot be read from flash ([`Cache::unreadable`](crate::Cache::unreadable)).
    /// Everything else is on the stores.
    Unreadable,
    /// A store has not answered for so long that the destage did not wait for it any longer.
    Silent,
    /// A store or the flash tier has failed, or the cache stops.
    Failed(IoError),
}

impl From<IoError> for DestageError {
    fn from(error: IoError) -> DestageError {
        DestageError::Failed(error)
    }
}

impl fmt::Display for DestageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestageError::Unreadable => f.write_str("dirty records on flash cannot be read"),
            DestageError::Silent => f.write_str("a backing store does not answer"),
            DestageError::Failed(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DestageError {}

/// How a destage has ended.
pub(crate) type Destaged = Result<(), DestageError>;

/// The destage in progress, if any; there is at most one.
#[derive(Debug, Default)]
pub(crate) struct Destages {
    under_way: Option<Destage>,
    /// Whether a caller has requested it, and whether another one follows.
    wanted: bool,
    again: bool,
    /// The volumes whose stores did not answer during the last destage.
    last_silent: VolumeSet,
}

impl Destages {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The volumes whose stores did not answer, and that the destage in progress, or else the last one, has left out.
    pub fn silent(&self) -> VolumeSet {
        self.under_way.map_or(self.last_silent, |destage| destage.silent())
    }

    /// Whether the blocks in memory are on flash, so that regions are being cleaned for a destage.
    pub fn is_cleaning(&self) -> bool {
        self.under_way.is_some_and(|destage| destage.is_cleaning())
    }

    /// Begins a destage for a caller, or notes that one must follow the destage in progress.
    pub fn ask(&mut self, world: &mut World, cleaner: &mut Cleaner) {
        match self.under_way {
            // The destage in progress does not include data that became dirty since it began.
            Some(_) => self.again = true,
            None => {
                self.wanted = true;
                self.begin(world, cleaner);
            }
        }
    }

    /// Begins to destage everything; no destage may be in progress.
    pub fn begin(&mut self, world: &mut World, cleaner: &mut Cleaner) {
        self.begin_for(DestagePurpose::Service, world, cleaner);
    }

    /// Begins the destage of a stop. After the flushes, it waits for [`Destages::clean_for_stop`]
    /// or [`Destages::forget`].
    pub fn begin_for_stop(&mut self, world: &mut World, cleaner: &mut Cleaner) {
        self.begin_for(DestagePurpose::Stop, world, cleaner);
    }

    fn begin_for(&mut self, purpose: DestagePurpose, world: &mut World, cleaner: &mut Cleaner) {
        self.enter(Destage::new(purpose, world.volumes.len() as u32), world, cleaner);
        world.flush_all();
    }

    /// Begins to destage the dirty records on flash.
    pub fn begin_of_flash(&mut self, world: &mut World, cleaner: &mut Cleaner) {
        self.enter(Destage::new(DestagePurpose::Service, 0), world, cleaner);
    }

    /// Begins a destage. Failures before it do not count for it.
    fn enter(&mut self, destage: Destage, world: &mut World, cleaner: &mut Cleaner) {
        cleaner.forgive();
        world.volumes.conditions.forgive();
        let other = self.under_way.replace(destage);
        assert!(other.is_none(), "a destage begins during another: {other:?}");
    }

    /// Notes that the destage in progress leaves some records dirty.
    pub fn fail(&mut self, error: IoError) {
        if let Some(destage) = &mut self.under_way {
            destage.fail(error);
        }
    }

    /// The destage in progress has waited too long for the stores of these volumes. It goes on without them, and fails;
    /// if it does so already, it ends. Returns whether it has failed for the first time.
    pub fn fail_silent(&mut self, volumes: VolumeSet) -> bool {
        let Some(destage) = &mut self.under_way else { return false };
        let first = destage.silent().is_empty();
        destage.fail_silent(volumes);
        first
    }

    /// Called when a record in another region has superseded a dirty one, and also holds its dirty
    /// granules. A destage that covers the older record follows it: the granules were dirty when it
    /// began.
    pub fn follow(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        RegionMove { from, to }: RegionMove,
    ) {
        let Some(destage) = &mut self.under_way else { return };
        // It fails anyway, and the records of a store that hangs move on and on.
        if !destage.silent().is_empty()
            || !cleaner.is_owed(from)
            || cleaner.is_wanted_clean(to)
            || world.mode.sabotage.is(Bug::DestageLosesSight)
        {
            return;
        }
        cleaner.push(Work::Destage(to));
        world.stats.destages_followed += 1;
        destage.followed += 1;
        // The destage has followed records more often than there are regions. A client that keeps
        // writing would keep it going forever, so writes wait from here on.
        let regions = world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        if destage.followed > regions && !world.holds.has(HoldReason::Destage) {
            world.holds.add(HoldReason::Destage);
            world.stats.destages_held += 1;
        }
    }

    /// Cleans no more regions for a destage outside a stop.
    pub fn cut(&mut self, cleaner: &mut Cleaner) {
        let Some(destage) = &mut self.under_way else { return };
        if destage.is_cleaning() && destage.purpose() == DestagePurpose::Service {
            destage.fail(IoError::Shutdown);
            cleaner.forget_destages();
        }
    }

    /// Takes one turn. Returns whether it did anything, and how the destage ended, if it did. The
    /// caller then removes the reason for which the destage may hold requests.
    #[must_use]
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
    ) -> (bool, Option<DestageEnd>) {
        let any = !world.front.internal_done.is_empty();
        for outcome in world.front.internal_done.drain(..) {
            if let Some(destage) = &mut self.under_way {
                destage.flush_ended(outcome);
            }
        }
        let Some(destage) = &mut self.under_way else { return (any, None) };
        match destage.stage() {
            DestageStage::Flushing { .. } | DestageStage::Undecided => (any, None),
            DestageStage::Due => {
                clean(world, cleaner, destage);
                (true, None)
            }
            DestageStage::Cleaning => self.end_cleaning(world, cleaner, any),
            DestageStage::Settling => match self.settle(world) {
                Settled::No => (any, None),
                Settled::Again => (true, None),
                Settled::Yes => (true, Some(self.end(Ok(())))),
            },
        }
    }

    /// Continues when the regions are as clean as they can be. `any`: this turn has done something.
    #[must_use]
    fn end_cleaning(
        &mut self,
        world: &World,
        cleaner: &mut Cleaner,
        any: bool,
    ) -> (bool, Option<DestageEnd>) {
        let Some(destage) = &mut self.under_way else { return (any, None) };
        // Without the log nothing can be destaged, however often it is tried.
        let given_up = cleaner.fails() && world.flash.is_lost() && !is_salvaged(world);
        // A region that the log cannot reclaim is no part of the destage.
        // (What silent stores owe may never end.)
        let cleaning = cleaner.is_destaging() || cleaner.is_active(destage.silent());
        let cleaned = !cleaning || destage.gives_up();
        if !cleaned && !given_up {
            return (any, None);
        }
        cleaner.forget_destages();
        let unreadable = world.unreadable().next().is_some();
        let result = match destage.result() {
            Ok(()) if given_up => Err(cleaner.error().into()),
            Ok(()) if unreadable => Err(DestageError::Unreadable),
            result => result,
        };
        if result.is_ok() && may_settle(world) && destage.repeated() < AGAIN_MAX {
            destage.settle();
            return (true, None);
        }
        (true, Some(self.end(result)))
    }

    /// Takes one turn at the end of a destage.
    fn settle(&mut self, world: &mut World) -> Settled {
        let Some(destage) = self.under_way.as_mut().filter(|_| may_settle(world)) else {
            return Settled::Yes;
        };
        if world.appends_dirty() {
            // Nothing else would close the batch that they wait for.
            world.log.iter_mut().for_each(Log::close_batch);
            return Settled::No;
        }
        if world.volumes.dirty_blocks == 0 {
            return Settled::Yes;
        }
        world.flush_all();
        destage.repeat(world.volumes.len() as u32);
        world.stats.destages_repeated += 1;
        Settled::Again
    }

    fn end(&mut self, result: Destaged) -> DestageEnd {
        match self.take() {
            DestagePurpose::Service => DestageEnd::OfService(result),
            DestagePurpose::Stop => DestageEnd::OfStop(result),
        }
    }

    /// Ends the destage in progress; returns its purpose.
    fn take(&mut self) -> DestagePurpose {
        let destage = self.under_way.take().expect("a destage is in progress");
        self.last_silent = destage.silent();
        destage.end()
    }

    /// The result of the flushes of a stop, if all have ended. The stop then decides whether
    /// regions are cleaned.
    pub fn flushed(&self) -> Option<Destaged> {
        let undecided = |destage: &Destage| destage.stage() == DestageStage::Undecided;
        self.under_way.filter(undecided).map(|destage| destage.result())
    }

    /// Begins to clean the regions for a stop, whose flushes have ended.
    pub fn clean_for_stop(&mut self) {
        let destage = self.under_way.as_mut().expect("the destage of the stop is in progress");
        destage.decide();
    }

    /// Ends the destage in progress, which needed only its flushes.
    pub fn forget(&mut self, world: &mut World) {
        self.take();
        world.unhold(HoldReason::Destage);
    }

    /// Called when a destage has ended: returns whether a caller had requested it.
    pub fn take_wanted(&mut self) -> bool {
        core::mem::take(&mut self.wanted)
    }

    /// Begins another destage, if a caller has requested one while the last was in progress.
    pub fn begin_again(&mut self, world: &mut World, cleaner: &mut Cleaner) {
        if core::mem::take(&mut self.again) {
            self.wanted = true;
            if self.under_way.is_none() {
                self.begin(world, cleaner);
            }
        }
    }
}

/// The flushes of a destage have ended: cleans its regions, unless they cannot be cleaned or a stop
/// is near.
fn clean(world: &World, cleaner: &mut Cleaner, destage: &mut Destage) {
    let owed = world.volumes.iter().any(|(_, v)| v.owed > 0);
    let lost = world.flash.is_lost() && !is_salvaged(world) && owed;
    // A stop that is near ends a destage, unless the destage is its own.
    let cut = destage.purpose() == DestagePurpose::Service && world.lifecycle.is_stop_near();
    if !lost && !cut {
        cleaner.push_all_dirty(world);
    }
    destage.clean();
    if lost {
        destage.fail(IoError::Device);
    }
    if cut {
        destage.fail(IoError::Shutdown);
    }
}

/// Whether only data that a destage has covered can be marked dirty.
fn may_settle(world: &World) -> bool {
    world.lifecycle.stays_in_service() && !world.is_modified() && !world.flash.is_lost()
}

/// The result of a turn at the end of a destage.
#[must_use]
enum Settled {
    /// Appends are in progress.
    No,
    /// Something is dirty, and everything is destaged again.
    Again,
    Yes,
}

/// Whether the records of a failed log can still be destaged.
fn is_salvaged(world: &World) -> bool {
    world.log.as_ref().is_some_and(Log::is_salvaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::config::{CacheConfig, VolumeConfig};
    use crate::{Open, Order};
    use forebay_block::{Nanos, Op, Request, Volume};
    use forebay_effect::RequestId;

    #[test]
    fn a_destage_does_not_settle_when_a_stop_is_announced_or_something_is_modified() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        assert!(!may_settle(&cache.world), "not started");
        cache.start(Nanos(0), Open::RECOVER);
        assert!(may_settle(&cache.world));
        cache.world.volumes.shares.share = 0;
        cache.handle_request(RequestId(1), Request::new(Nanos(1), Volume(0), Op::Write, 0, 4096));
        assert!(may_settle(&cache.world), "a write that waits for its share modifies nothing");
        cache.world.volumes[Volume(0)].pieces += 1;
        assert!(!may_settle(&cache.world), "a piece is in progress");
        cache.world.volumes[Volume(0)].pieces -= 1;
        cache.handle_order(Nanos(1), Order::PrepareStop);
        assert!(!cache.world.is_modified());
        assert!(!may_settle(&cache.world), "its caller waits for the end");
    }
}
