//! A change of the write policy while the cache serves.
//!
//! The policy changes when nothing is dirty and no modifying request is in flight, so that no path
//! of one policy ever meets a state that only another can produce:
//!
//! 1. Dirty blocks are destaged while requests continue.
//! 2. Modifying requests and flushes are held; those in flight end; reads continue.
//! 3. The rest is destaged; this also syncs direct writes.
//! 4. The log durably declares all records clean: a restart must not destage one of them over data
//!    that the new policy writes directly.
//! 5. The new policy takes effect, and the held requests continue under it.
//!
//! A start under a policy that does not write back, on a log that holds dirty records, begins with
//! step 2 under write-back. When a step fails, the old policy stays, and the held requests
//! continue. After a start no caller waits for this result, so it is kept: [`Switch::unsettled`].
//!
//! A destage does not end while a store hangs, so a change must not hold requests until it ends. The driver calls off a
//! change that it has ordered ([`Order::EndSwitch`](crate::Order::EndSwitch)); the destage continues. The change of a start goes on, but lets requests
//! continue once nothing has become clean for [`HOLD_MAX`]. When its destage ends after all, it holds them again.
//!
//! | stage | what moves it on | next stage |
//! | --- | --- | --- |
//! | `First` | no other destage is in progress | `Destaging` |
//! | `Destaging` | the first destage has ended, even if some data could not be destaged | `Holding` |
//! | `Holding` | no modifying request is in flight, and no other destage is in progress | `Last` |
//! | `Holding` | at a start: requests have been held for too long | `First` |
//! | `Last` | at a start: requests have been held for too long | `Destaging` |
//! | `Last` | the last destage has ended, and nothing is dirty | `Marking` |
//!
//! A change may fail in any stage. It succeeds when the log has written its clean mark (`Marking`) or, without a log,
//! after the last destage (`Last`).

use std::fmt;

use forebay_block::Nanos;
use forebay_effect::{IoError, Outcome};

use crate::cleaner::Cleaner;
use crate::combination::Combination;
use crate::destage::{DestageError, Destaged, Destages};
use crate::holds::HoldReason;
use crate::notice::Notice;
use crate::policy::{Acknowledge, WritePolicy};
use crate::stages::{CurrentStage, Stage};
use crate::ticket::Ticket;
use crate::world::World;

/// While nothing becomes clean for so long, the change of a start lets requests continue.
const HOLD_MAX: Nanos = Nanos(30_000_000_000);

/// Why a change of policy was refused, or has failed. The old policy is still in force.
///
/// A driver tells each reason in its own words, so they are matched one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// The cache takes no requests: it stops, or has not started.
    Shutdown,
    /// Another change is in progress.
    Changing,
    /// The flash tier had failed before: nothing is written to it until the next start.
    FlashFailed,
    /// The policy does not fit the parameters that do not change, for this reason.
    Unfit(&'static str),
    /// The driver has called it off ([`Order::EndSwitch`](crate::Order::EndSwitch)).
    CalledOff,
    /// Dirty data could not be destaged, or the log could not declare its records clean.
    Failed(DestageError),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Shutdown => IoError::Shutdown.fmt(f),
            PolicyError::Changing => f.write_str("another policy change is in progress"),
            PolicyError::FlashFailed => f.write_str("the flash tier has failed"),
            PolicyError::Unfit(why) => f.write_str(why),
            PolicyError::CalledOff => f.write_str("the policy change was cancelled"),
            PolicyError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PolicyError {}

/// A change of policy.
#[derive(Clone, Copy, Debug)]
struct Change {
    to: (WritePolicy, Acknowledge),
    stage: CurrentStage<SwitchStage>,
    /// A change at the start, because recovery found dirty records; no one has asked for it.
    at_start: bool,
}

/// How far a change has come. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SwitchStage {
    /// Must destage, while requests continue.
    First,
    /// The first destage is in progress.
    Destaging,
    /// Modifying requests are held; those in flight end.
    Holding,
    /// The last destage is in progress.
    Last,
    /// The log writes its clean mark.
    Marking,
}

impl Stage for SwitchStage {
    const OF: &'static str = "a policy change";

    fn leads_to(self, next: SwitchStage) -> bool {
        use SwitchStage::{Destaging, First, Holding, Last, Marking};
        match self {
            First => next == Destaging,
            Destaging => next == Holding,
            Holding => matches!(next, Last | First),
            Last => matches!(next, Marking | Destaging),
            Marking => false,
        }
    }
}

/// The change in progress, if any.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    change: Option<Change>,
    /// How much was dirty when that was last looked at while a change held requests, and when to look again.
    dirty_blocks: u64,
    looks_at: Nanos,
    /// Why the policy of the start is not in force.
    unsettled: Option<PolicyError>,
}

impl Switch {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.change.is_some()
    }

    /// Why the policy of the start is not in force: dirty records could not be destaged.
    pub fn unsettled(&self) -> Option<PolicyError> {
        self.unsettled
    }

    /// A change is requested: it begins, or is refused.
    pub fn ask(&mut self, world: &mut World, to: (WritePolicy, Acknowledge)) {
        if let Err(error) = self.may_begin(world, to) {
            return world.notices.push(Notice::PolicySet(Err(error)));
        }
        let stage = CurrentStage::first(SwitchStage::First);
        self.change = Some(Change { to, stage, at_start: false });
    }

    /// Whether a change to this policy may begin.
    fn may_begin(&self, world: &World, to: (WritePolicy, Acknowledge)) -> Result<(), PolicyError> {
        if !world.lifecycle.is_ready() {
            return Err(PolicyError::Shutdown);
        }
        if self.is_under_way() {
            return Err(PolicyError::Changing);
        }
        if world.flash.is_lost() {
            return Err(PolicyError::FlashFailed);
        }
        goes_with(world, to.0, to.1).map_err(PolicyError::Unfit)
    }

    /// At the start: whether the wanted policy can take effect at once. It may not if recovery
    /// found dirty records.
    pub fn begin_at_start(&mut self, world: &mut World) {
        let to = (world.config.write_policy, world.config.acknowledge);
        let dirty = world.volumes.dirty_blocks > 0;
        if to.0.write_back || !dirty {
            return;
        }
        // Clients may write under this policy if something cannot be destaged, so it must fit the relation of the
        // tiers. Where that allows it, a write that is answered survives a kill, as under the wanted policy.
        let fits = goes_with(world, WritePolicy::WRITE_BACK, Acknowledge::Flash).is_ok();
        let acknowledge = if fits { Acknowledge::Flash } else { to.1 };
        adopt(world, WritePolicy::WRITE_BACK, acknowledge);
        let stage = CurrentStage::first(SwitchStage::Holding);
        self.change = Some(Change { to, stage, at_start: true });
        self.hold(world);
    }

    /// Modifying requests are held from now on.
    fn hold(&mut self, world: &mut World) {
        world.holds.add(HoldReason::Switch);
        self.look_again(world);
    }

    /// Looks later whether anything has become clean since now.
    fn look_again(&mut self, world: &World) {
        self.dirty_blocks = world.volumes.dirty_blocks;
        self.looks_at = Nanos(world.now.0.saturating_add(HOLD_MAX.0));
    }

    /// Whether the change of a start holds requests and waits for stores.
    fn may_let_go(&self) -> bool {
        let waits = |stage| matches!(stage, SwitchStage::Holding | SwitchStage::Last);
        self.change.as_ref().is_some_and(|change| change.at_start && waits(change.stage.get()))
    }

    /// When [`Switch::handle_timeout`] has to look whether the change makes progress.
    pub fn timeout(&self) -> Option<Nanos> {
        self.may_let_go().then_some(self.looks_at)
    }

    /// Lets requests continue if the change of a start waits for a store that does not answer.
    pub fn handle_timeout(&mut self, world: &mut World) {
        if !self.may_let_go() || world.now < self.looks_at {
            return;
        }
        if world.volumes.dirty_blocks < self.dirty_blocks {
            self.look_again(world);
        } else {
            self.let_go(world);
        }
    }

    /// Lets requests continue under the old policy; the change holds them again after the next destage that ends.
    fn let_go(&mut self, world: &mut World) {
        let change = self.change.as_mut().expect("a change holds requests");
        change.stage.enter(match change.stage.get() {
            SwitchStage::Holding => SwitchStage::First,
            _ => SwitchStage::Destaging,
        });
        world.unhold(HoldReason::Switch);
    }

    /// The driver waits no longer. The change that it has ordered ends without effect; the one of a start only lets
    /// requests continue. (A change that waits for no store any more ends as soon as the log has written.)
    pub fn call_off(&mut self, world: &mut World) {
        let Some(change) = &self.change else { return };
        if self.may_let_go() {
            self.let_go(world);
        } else if !change.at_start && change.stage.get() != SwitchStage::Marking {
            self.end(world, Err(PolicyError::CalledOff));
        }
    }

    /// One turn.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        destages: &mut Destages,
    ) -> bool {
        let Some(change) = &mut self.change else { return false };
        if !world.lifecycle.is_ready() {
            // A stop: what is held ends under the old policy.
            self.end(world, Err(PolicyError::Shutdown));
            return true;
        }
        let next = match change.stage.get() {
            SwitchStage::First | SwitchStage::Holding if destages.is_under_way() => return false,
            SwitchStage::First => SwitchStage::Destaging,
            SwitchStage::Holding if world.is_modified() => return false,
            SwitchStage::Holding => SwitchStage::Last,
            SwitchStage::Destaging | SwitchStage::Last | SwitchStage::Marking => return false,
        };
        change.stage.enter(next);
        destages.begin(world, cleaner);
        true
    }

    /// A destage has ended, possibly one of a change.
    pub fn destaged(&mut self, world: &mut World, result: Destaged) {
        let Some(change) = &mut self.change else { return };
        match change.stage.get() {
            SwitchStage::Destaging => {
                // Whether it went well will be seen by the last one.
                change.stage.enter(SwitchStage::Holding);
                self.hold(world);
            }
            SwitchStage::Last => {
                let dirty = world.volumes.dirty_blocks > 0 || world.appends_dirty();
                match (result, &mut world.log) {
                    (Err(e), _) => self.end(world, Err(PolicyError::Failed(e))),
                    _ if dirty || !world.volumes.may_be_declared_clean() => {
                        self.end(world, Err(PolicyError::Failed(IoError::Device.into())));
                    }
                    (Ok(()), None) => self.end(world, Ok(())),
                    (Ok(()), Some(log)) => {
                        log.clean_before_now(Ticket::Switch.encode());
                        change.stage.enter(SwitchStage::Marking);
                    }
                }
            }
            SwitchStage::First | SwitchStage::Holding | SwitchStage::Marking => {}
        }
    }

    /// The log has written its clean mark, or could not. The change may have been abandoned before.
    pub fn marked(&mut self, world: &mut World, result: Outcome) {
        let Some(change) = &self.change else { return };
        // After a change that was abandoned while the log wrote its mark, none begins.
        assert_eq!(change.stage.get(), SwitchStage::Marking, "the mark is for another change");
        self.end(world, result.map_err(|error| PolicyError::Failed(error.into())));
    }

    /// The log has failed: no change can be made.
    pub fn abandon(&mut self, world: &mut World) {
        if self.is_under_way() {
            self.end(world, Err(PolicyError::Failed(IoError::Device.into())));
        }
    }

    /// The change has ended, successfully or not.
    fn end(&mut self, world: &mut World, result: Result<(), PolicyError>) {
        let change = self.change.take().expect("a change is in progress");
        match result {
            Ok(()) => {
                let stage = change.stage.get();
                let may = matches!(stage, SwitchStage::Last | SwitchStage::Marking);
                assert!(may, "a policy change succeeds in {stage:?}");
                adopt(world, change.to.0, change.to.1);
                self.unsettled = None;
            }
            Err(error) if change.at_start => self.unsettled = Some(error),
            Err(_) => {}
        }
        if !change.at_start {
            world.notices.push(Notice::PolicySet(result));
        }
        world.unhold(HoldReason::Switch);
    }
}

/// Whether these match the parameters that do not change.
fn goes_with(
    world: &World,
    policy: WritePolicy,
    acknowledge: Acknowledge,
) -> Result<(), &'static str> {
    Combination { policy, acknowledge, ..Combination::from_config(&world.config) }.check()
}

fn adopt(world: &mut World, policy: WritePolicy, acknowledge: Acknowledge) {
    let fits = goes_with(world, policy, acknowledge);
    assert!(fits.is_ok(), "{}: {fits:?}", world.config.relation);
    (world.config.write_policy, world.config.acknowledge) = (policy, acknowledge);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::config::{CacheConfig, VolumeConfig};
    use crate::in_flight::RequestPlace;
    use crate::place::Relation;
    use crate::stages::check_table;
    use crate::{Open, Order, StopTarget};
    use forebay_block::{Nanos, Op, Request, Volume};
    use forebay_effect::RequestId;

    fn complete_all(cache: &mut Cache) {
        let mut segments = Vec::new();
        while let Some(effect) = cache.poll_effect(&mut segments) {
            if let Some(token) = effect.token() {
                cache.handle_completion(Nanos(1), token, Ok(()));
            }
            cache.check_requests();
        }
    }

    #[test]
    fn stages_follow_each_other_as_the_table_says() {
        let stages = [
            SwitchStage::First,
            SwitchStage::Destaging,
            SwitchStage::Holding,
            SwitchStage::Last,
            SwitchStage::Marking,
        ];
        check_table(include_str!("switch.rs"), &stages);
    }

    #[test]
    fn a_change_of_policy_does_not_wait_for_a_trim_behind_one_that_is_held() {
        let mut cache = Cache::new(CacheConfig { step_blocks: 2, ..CacheConfig::dram_only(4) });
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        assert!(matches!(cache.poll_notice(), Some(Notice::Ready(_))));
        for id in [RequestId(1), RequestId(2)] {
            cache.handle_request(id, Request::new(Nanos(1), Volume(0), Op::Trim, 0, 1 << 16));
        }
        // The first is stopped half-way, by its volume's share; the second has the same blocks.
        cache.world.volumes.shares.share = 0;
        complete_all(&mut cache);
        let count = |cache: &Cache, place| cache.world.front.requests.count(place);
        let places = [RequestPlace::OverShare, RequestPlace::Overlapping];
        assert_eq!(places.map(|place| count(&cache, place)), [1, 1]);
        let through = Order::SetPolicy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        cache.handle_order(Nanos(1), through);
        complete_all(&mut cache);
        assert_eq!(cache.poll_notice(), Some(Notice::PolicySet(Ok(()))));
        complete_all(&mut cache);
        assert!(cache.is_idle());
        assert_eq!(count(&cache, RequestPlace::Overlapping), 0);
    }

    #[test]
    fn a_request_that_waited_for_its_share_is_held_like_any_other() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        complete_all(&mut cache);
        cache.world.volumes.shares.share = 0;
        cache.handle_request(RequestId(1), Request::new(Nanos(1), Volume(0), Op::Write, 0, 4096));
        cache.world.holds.add(HoldReason::Switch);
        let places = [RequestPlace::OverShare, RequestPlace::Held];
        let counts = |cache: &Cache| places.map(|place| cache.world.front.requests.count(place));
        assert_eq!(counts(&cache), [1, 0]);
        cache.world.volumes.shares.share = u64::MAX;
        complete_all(&mut cache);
        assert_eq!(counts(&cache), [0, 1], "it modifies blocks while a change of policy ends");
        cache.world.unhold(HoldReason::Switch);
        complete_all(&mut cache);
        assert!(cache.is_idle());
    }

    #[test]
    fn a_refusal_says_why() {
        let back = (WritePolicy::WRITE_BACK, Acknowledge::Dram);
        let through = (WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        let refusal = |cache: &mut Cache, (policy, acknowledge)| {
            while cache.poll_notice().is_some() {}
            cache.handle_order(Nanos(0), Order::SetPolicy(policy, acknowledge));
            cache.poll_notice()
        };
        let refused = |error| Some(Notice::PolicySet(Err(error)));
        assert_eq!(refusal(&mut cache, through), refused(PolicyError::Shutdown));
        cache.start(Nanos(0), Open::RECOVER);
        assert_eq!(refusal(&mut cache, through), None, "its destage waits for a sync");
        assert_eq!(refusal(&mut cache, through), refused(PolicyError::Changing));
        complete_all(&mut cache);
        let relation = core::mem::replace(&mut cache.world.config.relation, Relation::Inclusive);
        let why = "needs flash, but there is no [flash] section";
        assert_eq!(refusal(&mut cache, back), refused(PolicyError::Unfit(why)));
        cache.world.config.relation = relation;
        cache.world.flash.lose();
        assert_eq!(refusal(&mut cache, back), refused(PolicyError::FlashFailed));
        cache.handle_order(Nanos(0), Order::Stop(StopTarget::Stores));
        assert_eq!(refusal(&mut cache, back), refused(PolicyError::Shutdown));
    }

    #[test]
    #[should_panic(expected = "the mark is for another change")]
    fn a_change_does_not_end_with_the_clean_mark_of_another() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        let mut switch = Switch::default();
        switch.marked(&mut cache.world, Ok(()));
        switch.ask(&mut cache.world, (WritePolicy::WRITE_THROUGH, Acknowledge::Flash));
        switch.marked(&mut cache.world, Ok(()));
    }

    #[test]
    fn the_end_of_a_change_of_policy_lets_no_request_go_that_a_destage_holds() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        for holds in [false, true] {
            let mut switch = Switch::default();
            switch.ask(&mut cache.world, (WritePolicy::WRITE_THROUGH, Acknowledge::Flash));
            assert!(switch.is_under_way());
            let world = &mut cache.world;
            world.holds.add(HoldReason::Destage);
            if holds {
                world.holds.add(HoldReason::Switch);
            }
            for (id, op) in [(1, Op::Write), (2, Op::Flush)] {
                let request = Request::new(Nanos(1), Volume(0), op, 0, 4096);
                cache.handle_request(RequestId(id), request);
            }
            switch.abandon(&mut cache.world);
            assert_eq!(
                cache.world.front.requests.count(RequestPlace::Held),
                2,
                "the destage lets them go"
            );
            cache.world.unhold(HoldReason::Destage);
            assert_eq!(
                cache.world.front.requests.count(RequestPlace::Held),
                0,
                "nothing holds them any more"
            );
            complete_all(&mut cache);
            while cache.poll_notice().is_some() {}
        }
    }
}
