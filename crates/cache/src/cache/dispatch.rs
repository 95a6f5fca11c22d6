//! The work of the cache between calls: it handles events of the log and of syncs, ends requests,
//! and gives each procedure a turn. Each turn is bounded. Procedures interact only here: the
//! outcome of one is passed to the others that need it.

use forebay_effect::{IoError, Outcome};
use forebay_flash::{AnswerKind, Event, Log, RecordEvent, RecoveryReport, StartEvent};

use crate::cache::Cache;
use crate::cache::procedures::{PROCEDURES, Procedure};
use crate::cleaner::{Cleaner, Surroundings, Work};
use crate::destage::{DestageEnd, Destaged};
use crate::flash_condition::Jam;
use crate::holds::HoldReason;
use crate::late::Lateness;
use crate::notice::Notice;
use crate::pass_through::Others;
use crate::shard::{Forgotten, RegionMove};
use crate::startup::Startup;
use crate::ticket::Ticket;
use crate::volume::SyncWaiter;
use crate::world::{Turn, shard_context};

/// Number of events of the log to prefetch beyond the current one.
const EVENTS_AHEAD: usize = 8;

impl Cache {
    /// Whether a turn of [`Cache::take_turn`] would find anything to do.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        PROCEDURES.iter().any(|procedure| (procedure.is_due)(self))
    }

    /// One turn of all pending work; true if it did anything, or if the log has answered what it did.
    pub(super) fn take_turn(&mut self) -> bool {
        let mut any = false;
        for Procedure { is_due, take_turn, .. } in PROCEDURES {
            any |= is_due(self) && take_turn(self);
        }
        // A procedure may give the log a reason to answer, and report that it did nothing itself.
        any || self.has_events() && !self.is_half_way()
    }

    /// Whether the log has failed and the other parts do not know it yet.
    #[inline]
    pub(super) fn has_lost_log(&self) -> bool {
        !self.world.flash.is_lost()
            && self.world.log.as_ref().is_some_and(|log| log.error().is_some())
    }

    /// Whether the log has events, or records are to be forgotten or placed.
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        self.world.log.as_ref().is_some_and(Log::has_events)
            || self.world.forgetting.is_some()
            || self.startup.must_place_records(&self.world)
    }

    /// Whether a region is being cleaned, or should be.
    #[inline]
    pub(super) fn has_cleaning(&self) -> bool {
        !self.cleaner.is_idle()
            || self.cleaner.silence_due(&self.world).is_some()
            || self.world.shards.iter().any(|s| s.tiers.flash.wants_destage())
    }

    /// Whether a stop or a destage is in progress.
    #[inline]
    pub(super) fn is_ending_or_destaging(&self) -> bool {
        self.world.lifecycle.is_past_service()
            || self.destages.is_under_way()
            || !self.world.front.internal_done.is_empty()
    }

    pub(super) fn finish_requests(&mut self) -> bool {
        let mut any = false;
        while let Some(request) = self.world.front.pop_finished() {
            self.world.finish(request);
            any = true;
        }
        any
    }

    pub(super) fn serve_starved(&mut self) -> bool {
        let mut any = false;
        for n in 0..self.world.shards.len() {
            if self.world.shards[n].may_serve() {
                any |= self.world.shards[n].serve_starved(&mut shard_context!(self.world));
            }
        }
        any
    }

    pub(super) fn tend_stores(&mut self) -> bool {
        let turn = self.stores.take_turn(&mut self.world, &mut self.cleaner, &mut self.stamps);
        self.act_on(turn)
    }

    pub(super) fn step_switch(&mut self) -> bool {
        // While older copies of stores are being completed, no change may call their data clean.
        let Cache { world, cleaner, destages, stamps, .. } = self;
        !stamps.is_completing() && self.switch.take_turn(world, cleaner, destages)
    }

    pub(super) fn step_pass_through(&mut self) -> bool {
        let Cache { world, cleaner, stamps, destages, .. } = self;
        let others = Others { cleaner, stamps, destages };
        self.pass_through.take_turn(world, others, self.sealer.is_under_way())
    }

    /// A turn of a destage, then one of a stop.
    pub(super) fn step_end(&mut self) -> bool {
        let any = self.step_destage();
        let Cache { world, cleaner, destages, .. } = self;
        any | self.stop.take_turn(world, cleaner, destages)
    }

    /// Lets the cleaner take a step; returns whether it did anything.
    pub(super) fn clean(
        &mut self,
        step: impl FnOnce(&mut Cleaner, &mut Surroundings<'_>) -> Turn,
    ) -> bool {
        let Cache { world, stores, stamps, destages, .. } = self;
        let turn = step(&mut self.cleaner, &mut Surroundings { world, stores, stamps, destages });
        self.act_on(turn)
    }

    /// Carries out the result of a turn; returns whether it did anything.
    fn act_on(&mut self, turn: Turn) -> bool {
        if turn == Turn::GiveUp {
            self.give_up();
        }
        turn != Turn::Nothing
    }

    /// One turn of a destage, and the consequences of its end.
    fn step_destage(&mut self) -> bool {
        let (any, ended) = self.destages.take_turn(&mut self.world, &mut self.cleaner);
        match ended {
            Some(DestageEnd::OfStop(result)) => {
                self.world.unhold(HoldReason::Destage);
                self.stop.destaged(result);
            }
            Some(DestageEnd::OfService(result)) => self.end_destage(result),
            None => {}
        }
        any
    }

    /// A destage outside a stop has ended.
    fn end_destage(&mut self, result: Destaged) {
        let world = &mut self.world;
        self.switch.destaged(world, result);
        self.pass_through.destaged(world);
        // A change of policy may have begun to hold, and a request must not slip through in between.
        world.unhold(HoldReason::Destage);
        if self.destages.take_wanted() {
            world.notices.push(Notice::Destaged(result));
        }
        self.destages.begin_again(world, &mut self.cleaner);
    }

    /// The cache accepts requests from now on.
    pub(super) fn serve(&mut self, report: Option<Box<RecoveryReport>>) {
        let world = &mut self.world;
        world.lifecycle.serve();
        world.take_log_bypasses();
        self.switch.begin_at_start(world);
        for shard in &mut world.shards {
            shard.tiers.evict_from_flash(&mut shard_context!(world));
        }
        world.notices.push(Notice::Ready(report));
        for volume in world.volumes.numbers() {
            world.volumes.sync(volume, SyncWaiter::Start, &mut world.effects);
        }
    }

    // ---- the log ----

    pub(super) fn handle_events(&mut self) -> bool {
        let mut any = false;
        while self.forget_region(&mut any)
            && self.world.log.as_ref().is_some_and(Log::has_events)
            && self.world.budget.take()
            && let Some(event) = self.world.log.as_mut().and_then(|l| l.poll_event())
        {
            any = true;
            self.look_ahead();
            self.handle_event(event);
        }
        self.startup.place_records(&mut self.world, &mut self.stamps);
        self.world.volumes.issue_syncs(&mut self.world.effects);
        any
    }

    /// Continues to forget the records of a freed region; returns whether all are forgotten. Sets
    /// `any` if some were.
    fn forget_region(&mut self, any: &mut bool) -> bool {
        let world = &mut self.world;
        let Some(region) = world.forgetting else { return true };
        for n in 0..world.shards.len() {
            match world.shards[n].forget_region(&mut shard_context!(world), region) {
                Forgotten::All => {}
                Forgotten::Some => {
                    *any = true;
                    return false;
                }
                Forgotten::Nothing => return false,
            }
        }
        *any = true;
        world.forgetting = None;
        for n in 0..world.shards.len() {
            world.shards[n].region_forgotten(&shard_context!(world));
        }
        if let Some(log) = &mut world.log {
            log.region_forgotten(region);
        }
        true
    }

    /// Prefetches the data that the next events will access. A batch brings many events at once,
    /// for blocks that have not been accessed for a while.
    fn look_ahead(&self) {
        let Some(log) = &self.world.log else { return };
        for (n, near) in [(EVENTS_AHEAD, false), (EVENTS_AHEAD / 2, true)] {
            match log.upcoming_event(n) {
                Some(&Event::Record(RecordEvent::Appended { ticket, .. })) => {
                    let (shard, transfer) = Ticket::transfer(ticket);
                    self.world.shards[shard].prefetch_transfer(transfer, near);
                }
                Some(&Event::Record(RecordEvent::Moved { ticket, key, .. })) => {
                    let blocks = &self.world.shards[Ticket::mapping(ticket)].tiers.blocks;
                    match near {
                        true => _ = blocks.prefetch_entry(key),
                        false => blocks.prefetch(key),
                    }
                }
                _ => {}
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Record(event) => self.handle_record(event),
            Event::Mark { ticket, answer } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].handle_mark(&mut shard_context!(self.world), t, answer);
            }
            Event::Start(event) => self.handle_start(event),
            Event::Answer { ticket, kind, result } => self.handle_answer(ticket, kind, result),
            Event::Reclaim { region } => {
                if self.stamps.may_reclaim(region) {
                    self.cleaner.push(Work::Reclaim(region));
                }
            }
            Event::BypassNoted { volume, result } => self.world.log_bypass_noted(volume, result),
            Event::RegionFreed { region } => self.world.forgetting = Some(region),
            Event::Retire { extent, first } => {
                self.world.volumes.sync_together(first.volume(), SyncWaiter::Retire(extent));
            }
            Event::Stopped { result } => self.stop.log_stopped(&mut self.world, result),
        }
    }

    /// What became of a record, or of a mapping: its shard learns of it.
    fn handle_record(&mut self, event: RecordEvent) {
        match event {
            RecordEvent::Appended { ticket, position, checksum } => {
                let (n, t) = Ticket::transfer(ticket);
                let moved = self.world.shards[n].appended(
                    &mut shard_context!(self.world),
                    t,
                    position,
                    checksum,
                );
                if let Some(regions) = moved {
                    self.destages.follow(&mut self.world, &mut self.cleaner, regions);
                }
            }
            RecordEvent::AppendFailed { ticket, error } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].append_failed(&mut shard_context!(self.world), t, error);
            }
            RecordEvent::AppendRefused { ticket } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].append_refused(&mut shard_context!(self.world), t);
            }
            RecordEvent::Moved { ticket, key, position, from, region, result } => {
                let regions = RegionMove { from, to: region };
                self.cleaner.note_moved(regions);
                let tiers = &mut self.world.shards[Ticket::mapping(ticket)].tiers;
                tiers.flash.moved(&mut tiers.blocks, key, position, regions, result.is_ok());
            }
            RecordEvent::Unmapped { key, position } => {
                let n = self.world.shard_of_key(key);
                self.world.shards[n].unmapped(&mut shard_context!(self.world), key, position);
            }
        }
    }

    /// What the start of the log gives, and how it ends.
    fn handle_start(&mut self, event: StartEvent) {
        match event {
            StartEvent::Recovered(r) => self.startup.recovered(&mut self.world, &r),
            StartEvent::RecoveredTombstone { key } => {
                self.startup.recovered_tombstone(&mut self.world, key)
            }
            StartEvent::Ready(report) => {
                if self.world.lifecycle.is_starting()
                    && let Some(report) = self.startup.opened(&mut self.world, report)
                {
                    self.serve(Some(report));
                }
            }
            StartEvent::Failed(error) => Startup::log_failed(&mut self.world, error),
        }
    }

    /// The log has done what a part asked for, or could not: that part learns of it.
    fn handle_answer(&mut self, ticket: u64, kind: AnswerKind, result: Outcome) {
        let world = &mut self.world;
        match (Ticket::decode(ticket), kind) {
            (Ticket::Cleaner, AnswerKind::Synced) => {
                self.clean(|cleaner, s| cleaner.logged(s, result));
            }
            (Ticket::Start, AnswerKind::Synced) => {
                if let Some(report) = self.startup.disowned(world, result) {
                    self.serve(Some(report));
                }
            }
            (Ticket::PassThrough, AnswerKind::Synced) => self.pass_through.salvaged(result),
            (Ticket::Request(request), AnswerKind::Synced) => {
                let again = result.is_err() && world.may_repeat(request);
                world.front.requests[request].again |= again;
                world.pieces_done(request, 1, if again { Ok(()) } else { result });
            }
            (Ticket::Switch, AnswerKind::CleanMarked) => self.switch.marked(world, result),
            (Ticket::Seal, AnswerKind::CleanMarked) => self.sealer.marked(world, result),
            (Ticket::Stop, AnswerKind::CleanMarked) => self.stop.marked(world, result),
            (Ticket::Seal, AnswerKind::Bound) => self.sealer.noted(world, result),
            (Ticket::PassThrough, AnswerKind::Voided) => self.pass_through.voided(world, result),
            (ticket, kind) => ticket.unexpected(format_args!("{kind:?}")),
        }
    }

    pub(super) fn handle_syncs(&mut self) -> bool {
        let mut any = false;
        while let Some((volume, waiter, result)) = self.world.volumes.synced.pop() {
            any = true;
            match waiter {
                SyncWaiter::Cleaner => {
                    let since = self.cleaner.synced(volume);
                    // (One that fails soon does not show that the store ends syncs in time.)
                    if result.is_ok() {
                        self.stores.note_answered(&mut self.world, volume, Lateness::Syncs, since);
                    }
                }
                SyncWaiter::Retire(extent) => {
                    let log = self.world.log.as_mut().expect("only a log retires extents");
                    // (After a failed sync, the log holds the extent whatever this one says.)
                    if result.is_ok() {
                        log.extent_released(extent);
                    }
                }
                SyncWaiter::Start | SyncWaiter::Flash => {}
                SyncWaiter::Request(_) => unreachable!("requests learn of syncs immediately"),
            }
        }
        any
    }

    /// Gives up on flash if cleaning cannot succeed.
    pub(super) fn consider_giving_up(&mut self) {
        let turn = self.cleaner.consider_giving_up(&self.world);
        self.act_on(turn);
    }

    /// Nothing is written to flash any more; operations that wait for it are notified.
    pub(super) fn give_up(&mut self) {
        let Some(log) = &mut self.world.log else { return };
        log.give_up(IoError::Device);
        if !self.world.flash.is_lost() {
            _ = self.lose_log();
        }
    }

    /// The log has failed: no record is written to flash until the next start. All parts are
    /// notified.
    pub(super) fn lose_log(&mut self) -> bool {
        let world = &mut self.world;
        world.flash.lose();
        world.set_jam(Jam::None);
        world.call_starved();
        self.destages.fail(IoError::Device);
        self.cleaner.forget();
        self.switch.abandon(world);
        self.pass_through.begin(world);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CacheConfig, VolumeConfig};
    use crate::in_flight::RequestPlace;
    use crate::policy::{Acknowledge, WritePolicy};
    use crate::{Open, Order};
    use forebay_block::{Nanos, Op, Request, Volume};
    use forebay_effect::RequestId;
    use forebay_flash::LogError;

    #[test]
    fn a_change_of_policy_waits_until_older_stores_are_complete() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        cache.stamps.begin_completing(Volume(0));
        let through = Order::SetPolicy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        cache.handle_order(Nanos(0), through);
        while cache.poll_effect(&mut Vec::new()).is_some() {}
        cache.check_turns();
        assert!(!cache.destages.is_under_way(), "the change has begun");
        cache.handle_order(Nanos(0), Order::EndCompletion);
        assert!(cache.destages.is_under_way());
    }

    #[test]
    fn the_end_of_a_destage_lets_no_request_go_that_a_change_of_policy_holds() {
        // A change holds what modifies from a stage on; the destage before that may have held some,
        // too.
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        let through = Order::SetPolicy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        cache.handle_order(Nanos(0), through);
        assert!(!cache.world.holds.has(HoldReason::Switch), "its destage waits for a sync");
        cache.world.holds.add(HoldReason::Destage);
        let write = Request::new(Nanos(1), Volume(0), Op::Write, 0, 4096);
        cache.handle_request(RequestId(1), write);
        assert_eq!(cache.world.front.requests.count(RequestPlace::Held), 1);
        cache.end_destage(Ok(()));
        assert_eq!(
            cache.world.front.requests.count(RequestPlace::Held),
            1,
            "the change lets it go"
        );
        cache.world.unhold(HoldReason::Switch);
        assert_eq!(
            cache.world.front.requests.count(RequestPlace::Held),
            0,
            "nothing holds it any more"
        );
    }

    #[test]
    fn a_start_that_fails_for_two_reasons_gives_the_first() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.world.lifecycle.start();
        let [first, second] = [IoError::Corrupt, IoError::Device].map(LogError::Io);
        cache.handle_start(StartEvent::Failed(first.clone()));
        cache.handle_start(StartEvent::Failed(second));
        assert_eq!(cache.poll_notice(), Some(Notice::Failed(first)));
        assert_eq!(cache.poll_notice(), None);
    }
}
