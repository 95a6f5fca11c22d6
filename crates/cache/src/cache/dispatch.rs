//! The work of the cache between calls: it handles events of the log and of syncs, ends requests,
//! and gives each procedure a turn. Each turn is bounded. Procedures interact only here: the
//! outcome of one is passed to the others that need it.

use forebay_block::Op;
use forebay_effect::{IoError, Outcome};
use forebay_flash::{Event, Log, RecoveryReport};

use crate::cache::Cache;
use crate::cleaner::{Cleaner, Surroundings, Work};
use crate::destage::Destaged;
use crate::flash_condition::Jam;
use crate::notice::Notice;
use crate::pass_through::Others;
use crate::shard::{Forgotten, Shard};
use crate::ticket::Ticket;
use crate::volume::SyncWaiter;
use crate::world::{CacheState, Turn, World, shard_context};

/// Number of events of the log to prefetch beyond the current one.
const EVENTS_AHEAD: usize = 8;

impl Cache {
    /// Whether a turn of [`Cache::take_turn`] would find anything to do.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let World { front, volumes, .. } = &self.world;
        self.world.log.as_ref().is_some_and(Log::has_events)
            || self.world.forgetting.is_some()
            || self.has_lost_log()
            || self.pass_through.has_work()
            || self.startup.must_place_records(&self.world)
            || !front.finished.is_empty()
            || self.world.may_resume()
            || !volumes.flushing.is_empty()
            || !volumes.synced.is_empty()
            || self.has_cleaning()
            || self.stores.has_work(&self.world, || self.may_stop())
            || self.switch.is_under_way()
            || self.sealer.is_under_way()
            || self.may_stop()
            || self.world.shards.iter().any(Shard::may_serve)
    }

    /// Whether the log has failed and the other parts do not know it yet.
    #[inline]
    fn has_lost_log(&self) -> bool {
        !self.world.flash.is_lost()
            && self.world.log.as_ref().is_some_and(|log| log.error().is_some())
    }

    /// Whether a region is being cleaned, or should be.
    #[inline]
    fn has_cleaning(&self) -> bool {
        !self.cleaner.is_idle() || self.world.shards.iter().any(|s| s.tiers.flash.wants_destage())
    }

    /// Whether a destage or a stop is in progress.
    #[inline]
    pub(super) fn may_stop(&self) -> bool {
        self.world.state.is_past_service()
            || self.destages.is_under_way()
            || !self.world.front.internal_done.is_empty()
    }

    /// One turn of all pending work; true if it did anything.
    pub(super) fn take_turn(&mut self) -> bool {
        let due = self.has_work();
        let any = self.take_all_turns();
        debug_assert!(due || !any, "`has_work` does not see this work");
        any
    }

    fn take_all_turns(&mut self) -> bool {
        let mut any = self.has_lost_log();
        if any {
            // This precedes the events of failed appends: the pieces concerned may wait now instead of failing.
            self.lose_log();
        }
        any |= self.handle_events();
        while let Some(request) = self.world.front.pop_finished() {
            self.world.finish(request);
            any = true;
        }
        for n in 0..self.world.shards.len() {
            if self.world.shards[n].may_serve() {
                any |= self.world.shards[n].serve_starved(&mut shard_context!(self.world));
            }
        }
        if self.world.may_resume() {
            any |= self.world.resume(&mut self.stores);
        }
        if !self.world.volumes.flushing.is_empty() {
            any |= self.world.step_flushes();
        }
        if !self.world.volumes.synced.is_empty() {
            self.handle_syncs();
            any = true;
        }
        if self.has_cleaning() {
            any |= self.clean(Cleaner::take_turn);
        }
        if self.stores.has_work(&self.world, || self.may_stop()) {
            let turn = self.stores.take_turn(&mut self.world, &mut self.cleaner, &mut self.stamps);
            any |= self.act_on(turn);
        }
        // While older copies of stores are being completed, no change of policy may call their data clean.
        if !self.stamps.is_completing() {
            let Cache { world, cleaner, stores, destages, .. } = self;
            any |= self.switch.take_turn(world, cleaner, stores, destages);
        }
        if self.pass_through.has_work() {
            let Cache { world, cleaner, stores, stamps, destages, .. } = self;
            let others = Others { cleaner, stores, stamps, destages };
            any |= self.pass_through.take_turn(world, others, self.sealer.is_under_way());
        }
        any |= self.sealer.take_turn(&mut self.world, &self.cleaner);
        if self.may_stop() {
            any |= self.step_destage();
            let Cache { world, cleaner, stores, destages, .. } = self;
            any |= self.stop.take_turn(world, cleaner, stores, destages);
        }
        any
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
            Some(destaged) if self.world.state == CacheState::Destaging => {
                self.stop.destaged(destaged.result);
            }
            Some(destaged) => self.end_destage(destaged),
            None => {}
        }
        any
    }

    /// A destage outside a stop has ended.
    fn end_destage(&mut self, Destaged { result, held }: Destaged) {
        let world = &mut self.world;
        self.switch.destaged(world, result);
        self.pass_through.destaged(world);
        if held && !world.is_held(Op::Write) {
            world.release_held();
        }
        if self.destages.take_wanted() {
            world.notices.push(Notice::Destaged(result));
        }
        self.destages.begin_again(world, &mut self.cleaner, &mut self.stores);
    }

    /// The cache accepts requests from now on.
    pub(super) fn serve(&mut self, report: Option<Box<RecoveryReport>>) {
        let world = &mut self.world;
        world.state = CacheState::Ready;
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

    fn handle_events(&mut self) -> bool {
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
                Some(&Event::Appended { ticket, .. }) => {
                    let (shard, transfer) = Ticket::transfer(ticket);
                    self.world.shards[shard].prefetch_transfer(transfer, near);
                }
                Some(&Event::Moved { ticket, key, .. }) => {
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
            Event::Appended { .. }
            | Event::AppendFailed { .. }
            | Event::AppendRefused { .. }
            | Event::Active { .. }
            | Event::Moved { .. }
            | Event::Unmapped { .. } => self.handle_record(event),
            Event::Recovered(_)
            | Event::RecoveredTombstone { .. }
            | Event::Ready(_)
            | Event::Failed(_) => self.handle_start(event),
            Event::Synced { ticket, result } => self.handle_log_sync(ticket, result),
            Event::Voided { ticket, result } => self.handle_voided(ticket, result),
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
            Event::CleanMarked { ticket, result } => self.handle_clean_mark(ticket, result),
            Event::Bound { ticket, result } => self.handle_note(ticket, result),
            Event::Stopped { result } => self.stop.log_stopped(&mut self.world, result),
            other => unreachable!("unexpected event from the log: {other:?}"),
        }
    }

    /// What became of a record, or of a mapping: its shard learns of it.
    fn handle_record(&mut self, event: Event) {
        match event {
            Event::Appended { ticket, position, checksum } => {
                let (n, t) = Ticket::transfer(ticket);
                let moved = self.world.shards[n].appended(
                    &mut shard_context!(self.world),
                    t,
                    position,
                    checksum,
                );
                if let Some((from, to)) = moved {
                    self.destages.follow(&mut self.world, &mut self.cleaner, (from, to));
                }
            }
            Event::AppendFailed { ticket, error } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].append_failed(&mut shard_context!(self.world), t, error);
            }
            Event::AppendRefused { ticket } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].append_refused(&mut shard_context!(self.world), t);
            }
            Event::Active { ticket, result } => {
                let (n, t) = Ticket::transfer(ticket);
                self.world.shards[n].activated(&mut shard_context!(self.world), t, result);
            }
            Event::Moved { ticket, key, position, from, region, result } => {
                self.cleaner.note_moved(from, region);
                let tiers = &mut self.world.shards[Ticket::mapping(ticket)].tiers;
                let (regions, good) = ((from, region), result.is_ok());
                tiers.flash.moved(&mut tiers.blocks, key, position, regions, good);
            }
            Event::Unmapped { key, position } => {
                let n = self.world.shard_of_key(key);
                self.world.shards[n].unmapped(&mut shard_context!(self.world), key, position);
            }
            other => unreachable!("{other:?} does not refer to a record"),
        }
    }

    /// What the start of the log gives, and how it ends.
    fn handle_start(&mut self, event: Event) {
        match event {
            Event::Recovered(r) => self.startup.recovered(&mut self.world, &r),
            Event::RecoveredTombstone { key } => {
                self.startup.recovered_tombstone(&mut self.world, key)
            }
            Event::Ready(report) => {
                if self.world.state == CacheState::Starting
                    && let Some(report) = self.startup.opened(&mut self.world, report)
                {
                    self.serve(Some(report));
                }
            }
            Event::Failed(error) => {
                self.world.state = CacheState::Failed;
                self.world.notices.push(Notice::Failed(error));
            }
            other => unreachable!("{other:?} cannot occur during a start"),
        }
    }

    /// A sync of the log has ended: its requester learns of it.
    fn handle_log_sync(&mut self, ticket: u64, result: Outcome) {
        match Ticket::decode(ticket) {
            Ticket::Cleaner => _ = self.clean(|cleaner, s| cleaner.logged(s, result)),
            Ticket::Start => {
                if let Some(report) = self.startup.disowned(&mut self.world, result) {
                    self.serve(Some(report));
                }
            }
            Ticket::PassThrough => self.pass_through.salvaged(result),
            Ticket::Request(request) => {
                let again = result.is_err() && self.world.may_repeat(request);
                self.world.front.requests[request].again |= again;
                self.world.pieces_done(request, 1, if again { Ok(()) } else { result });
            }
            other @ (Ticket::Transfer { .. }
            | Ticket::Mapping { .. }
            | Ticket::Switch
            | Ticket::Seal
            | Ticket::Stop) => other.unexpected("a sync"),
        }
    }

    /// The log has written its clean mark, or could not.
    fn handle_clean_mark(&mut self, ticket: u64, result: Outcome) {
        match Ticket::decode(ticket) {
            Ticket::Switch => self.switch.marked(&mut self.world, result),
            Ticket::Seal => self.sealer.marked(&mut self.world, result),
            Ticket::Stop => self.stop.marked(&mut self.world, result),
            other @ (Ticket::Request(_)
            | Ticket::Transfer { .. }
            | Ticket::Mapping { .. }
            | Ticket::Cleaner
            | Ticket::Start
            | Ticket::PassThrough) => other.unexpected("a clean mark"),
        }
    }

    /// The log has taken the note of a seal, or could not.
    fn handle_note(&mut self, ticket: u64, result: Outcome) {
        match Ticket::decode(ticket) {
            Ticket::Seal => self.sealer.noted(&mut self.world, result),
            other @ (Ticket::Request(_)
            | Ticket::Transfer { .. }
            | Ticket::Mapping { .. }
            | Ticket::Cleaner
            | Ticket::Start
            | Ticket::Switch
            | Ticket::Stop
            | Ticket::PassThrough) => other.unexpected("a note"),
        }
    }

    /// The log has declared records void, or could not.
    fn handle_voided(&mut self, ticket: u64, result: Outcome) {
        match Ticket::decode(ticket) {
            Ticket::PassThrough => self.pass_through.voided(&mut self.world, result),
            other @ (Ticket::Request(_)
            | Ticket::Transfer { .. }
            | Ticket::Mapping { .. }
            | Ticket::Cleaner
            | Ticket::Start
            | Ticket::Switch
            | Ticket::Seal
            | Ticket::Stop) => other.unexpected("a declaration that records are void"),
        }
    }

    fn handle_syncs(&mut self) {
        while let Some((volume, waiter, result)) = self.world.volumes.synced.pop() {
            match waiter {
                SyncWaiter::Cleaner => self.cleaner.synced(),
                SyncWaiter::Apart => self.cleaner.synced_apart(volume),
                SyncWaiter::Retire(extent) => {
                    let log = self.world.log.as_mut().expect("only a log retires extents");
                    match result {
                        // A sync proves nothing once an earlier one has failed.
                        Ok(()) if !self.world.volumes[volume].sync_failed() => {
                            log.extent_released(extent)
                        }
                        // The mark must stay, and requests that wait for its place must not wait for ever.
                        _ => self.give_up(),
                    }
                }
                SyncWaiter::Start | SyncWaiter::Queues => {}
                SyncWaiter::Request(_) => unreachable!("requests learn of syncs immediately"),
            }
        }
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
            self.lose_log();
        }
    }

    /// The log has failed: no record is written to flash until the next start. All parts are
    /// notified.
    fn lose_log(&mut self) {
        let world = &mut self.world;
        world.flash.lose();
        world.set_jam(Jam::None);
        world.call_starved();
        self.destages.fail(IoError::Device);
        self.cleaner.forget();
        self.switch.abandon(world);
        self.pass_through.begin(world);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Open;
    use crate::config::{CacheConfig, VolumeConfig};
    use crate::policy::{Acknowledge, WritePolicy};
    use forebay_block::{Nanos, Request, Volume};
    use forebay_effect::RequestId;

    #[test]
    fn the_end_of_a_destage_lets_no_request_go_that_a_change_of_policy_holds() {
        // A change holds what modifies from a stage on; the destage before that may have held some,
        // too.
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        cache.set_policy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        assert!(!cache.world.holds.switch, "its destage waits for a sync");
        cache.world.holds.destage = true;
        let write = Request::new(Nanos(1), Volume(0), Op::Write, 0, 4096);
        cache.handle_request(RequestId(1), write);
        assert_eq!(cache.world.front.held_count, 1);
        cache.world.holds.destage = false;
        cache.end_destage(Destaged { result: Ok(()), held: true });
        assert_eq!(cache.world.front.held_count, 1, "the change lets it go");
        cache.world.holds.switch = false;
        cache.end_destage(Destaged { result: Ok(()), held: true });
        assert_eq!(cache.world.front.held_count, 0, "nothing holds it any more");
    }
}
