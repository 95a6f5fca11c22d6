//! Pass-through: the flash tier fails, and volumes continue without it.
//!
//! After a failed write or sync the log takes no records until the next start. Writes of blocks
//! that have no record go to the backing store at once. Other blocks must not be written there
//! while a start could still accept their records, so:
//!
//! 1. The records that the log has taken are made durable, if the device still can.
//! 2. All dirty records are destaged.
//! 3. The log durably declares void all records of the volumes that have no dirty records left.
//! 4. Until the next start these volumes write through, and only memory caches them.
//!
//! Where the device cannot do 1 or 3, the headers of the stores permanently declare the records of
//! volumes without dirty records void: flash may be gone, and may return.
//!
//! Flushes, and writes of blocks with a record, wait for this, at most for `give_up_after`; then
//! they fail. If a volume has unreadable dirty records, or its store has no header or fails, this
//! does not succeed for the volume, and is retried later.
//!
//! | stage | what moves it on | next stage |
//! | --- | --- | --- |
//! | `Idle` | the log has failed, or another attempt is due | `Settling` |
//! | `Settling` | all operations have ended, and the log's records may not be durable | `Salvaging` |
//! | `Settling` | all operations have ended, and the log's records are durable | `Destaging` |
//! | `Salvaging` | the log's records are durable | `Settling` |
//! | `Salvaging` | the log's records cannot be made durable | `Releasing` |
//! | `Destaging` | some volumes have no dirty records left | `Voiding` |
//! | `Destaging` | all volumes have some left | `Idle` |
//! | `Voiding` | the log has declared the records void | `Dropping` |
//! | `Voiding` | the log cannot do that | `Releasing` |
//! | `Releasing` | headers are ordered | `Released` |
//! | `Releasing` | there is no header to order | `Idle` |
//! | `Released` | all headers have been written, or are overdue, and some are durable | `Dropping` |
//! | `Released` | likewise, and none is | `Idle` |
//! | `Dropping` | a number of entries have forgotten their records | `Dropping` |
//! | `Dropping` | all have | `Idle` |
//! | `Settling`, `Salvaging`, `Destaging`, `Voiding`, `Releasing`, `Released`, `Dropping` | a stop | `Idle` |

use forebay_block::Nanos;
use forebay_effect::Outcome;

use crate::cleaner::Cleaner;
use crate::destage::Destages;
use crate::entry_walk::EntryWalk;
use crate::stages::{CurrentStage, Stage};
use crate::stamp::{Stamps, release_due};
use crate::ticket::Ticket;
use crate::volume_set::VolumeSet;
use crate::world::{World, shard_context, sooner};

/// Pause after a failed attempt; it doubles up to the last value.
const PAUSE_FIRST: Nanos = Nanos(5_000_000_000);
const PAUSE_LAST: Nanos = Nanos(320_000_000_000);

/// How far the attempt has come. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum PassThroughStage {
    /// No attempt is in progress.
    #[default]
    Idle,
    /// Operations that were in progress when the log failed are ending.
    Settling,
    /// The log's records are being made durable.
    Salvaging,
    Destaging,
    /// The records of these volumes are being declared void.
    Voiding(VolumeSet),
    /// The headers of stores must declare that.
    Releasing,
    /// The headers of these volumes' stores, which declare that, are being written.
    Released(VolumeSet),
    /// The entries that the walk has yet to visit must forget their records.
    Dropping(EntryWalk),
}

impl Stage for PassThroughStage {
    const OF: &'static str = "pass-through";

    fn leads_to(self, next: PassThroughStage) -> bool {
        use PassThroughStage::{
            Destaging, Dropping, Idle, Released, Releasing, Salvaging, Settling, Voiding,
        };
        match self {
            Idle => next == Settling,
            _ if next == Idle => true,
            Settling => matches!(next, Salvaging | Destaging),
            Salvaging => matches!(next, Settling | Releasing),
            Destaging => matches!(next, Voiding(_)),
            Voiding(_) => matches!(next, Dropping(_) | Releasing),
            Releasing => matches!(next, Released(_)),
            Released(_) | Dropping(_) => matches!(next, Dropping(_)),
        }
    }
}

/// The procedures that it controls.
pub(crate) struct Others<'a> {
    pub cleaner: &'a mut Cleaner,
    pub stamps: &'a mut Stamps,
    pub destages: &'a mut Destages,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PassThrough {
    stage: CurrentStage<PassThroughStage>,
    /// When the waiting requests fail, and when the next attempt is due.
    until: Option<Nanos>,
    retry_at: Option<Nanos>,
    /// When headers that are being written are overdue.
    overdue_at: Option<Nanos>,
    failures: u32,
}

impl PassThrough {
    /// The log has failed: no record is written to flash until the next start.
    pub fn begin(&mut self, world: &mut World) {
        if world.lifecycle.stays_in_service() {
            self.stage.enter(PassThroughStage::Settling);
            world.flash.awaits_void = true;
            let limit = world.config.give_up_after;
            self.until = (limit != Nanos(0)).then(|| world.now.saturating_add(limit));
        }
    }

    /// Whether [`PassThrough::take_turn`] may find anything to do.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.stage.get() != PassThroughStage::Idle
    }

    /// One turn; `seals`: a seal is in progress.
    pub fn take_turn(&mut self, world: &mut World, others: Others<'_>, seals: bool) -> bool {
        let stage = self.stage.get();
        if stage == PassThroughStage::Idle {
            return false;
        }
        if !world.lifecycle.stays_in_service() {
            // A stop does not wait for it.
            self.stage.enter(PassThroughStage::Idle);
            (self.retry_at, self.overdue_at) = (None, None);
            self.let_go(world);
            return true;
        }
        match stage {
            PassThroughStage::Settling => {
                let busy = others.destages.is_under_way()
                    || seals
                    || others.cleaner.is_active(VolumeSet::EMPTY)
                    || world.shards.iter().any(|shard| shard.tiers.transfers.is_logging());
                let Some(log) = world.log.as_mut().filter(|_| !busy) else { return false };
                if log.is_salvaged() {
                    self.begin_last_destage(world, others);
                } else {
                    self.stage.enter(PassThroughStage::Salvaging);
                    log.salvage(Ticket::PassThrough.encode());
                }
                true
            }
            PassThroughStage::Releasing => self.order_release(world, others.stamps),
            PassThroughStage::Released(_) => self.end_release(world, others.stamps),
            PassThroughStage::Dropping(walk) => self.drop_void(world, others, walk),
            _ => false,
        }
    }

    /// The log's records are durable, or this cannot be known.
    pub fn salvaged(&mut self, result: Outcome) {
        if self.stage.get() != PassThroughStage::Salvaging {
            return;
        }
        match result {
            // A destage may have been requested meanwhile; it ends first.
            Ok(()) => self.stage.enter(PassThroughStage::Settling),
            Err(_) => self.stage.enter(PassThroughStage::Releasing),
        }
    }

    fn begin_last_destage(&mut self, world: &mut World, others: Others<'_>) {
        others.cleaner.forget();
        others.cleaner.retry_now();
        self.stage.enter(PassThroughStage::Destaging);
        others.destages.begin_of_flash(world, others.cleaner);
    }

    /// All dirty records that could be destaged have been.
    pub fn destaged(&mut self, world: &mut World) {
        if self.stage.get() != PassThroughStage::Destaging {
            return;
        }
        let clean = without_dirty_records(world);
        let Some(log) = world.log.as_mut().filter(|_| !clean.is_empty()) else {
            return self.fail(world);
        };
        self.stage.enter(PassThroughStage::Voiding(clean));
        log.void(clean.iter(), Ticket::PassThrough.encode());
    }

    /// The volumes' records are durably void, or could not be declared void.
    pub fn voided(&mut self, world: &mut World, result: Outcome) {
        let PassThroughStage::Voiding(volumes) = self.stage.get() else { return };
        match result {
            Ok(()) => self.continue_without_flash(world, volumes),
            Err(_) => self.stage.enter(PassThroughStage::Releasing),
        }
    }

    /// Declares in the headers of stores what the log cannot record.
    fn order_release(&mut self, world: &mut World, stamps: &mut Stamps) -> bool {
        match stamps.release(world, without_dirty_records(world)) {
            None => return false,
            Some(VolumeSet::EMPTY) => self.fail(world),
            Some(volumes) => {
                self.overdue_at = Some(release_due(world.now));
                self.stage.enter(PassThroughStage::Released(volumes));
            }
        }
        true
    }

    /// If only headers that are overdue are still being written, waits for them no longer. Their volumes are tried
    /// again later; their headers may say by then that the records are void.
    fn end_release(&mut self, world: &mut World, stamps: &mut Stamps) -> bool {
        if self.overdue_at.is_none_or(|at| at > world.now) {
            return false;
        }
        self.overdue_at = None;
        let released = stamps.take_released(world.now).expect("no header is expected in time");
        self.released(world, released);
        true
    }

    /// The headers of these stores durably say so.
    pub fn released(&mut self, world: &mut World, done: VolumeSet) {
        let PassThroughStage::Released(volumes) = self.stage.get() else { return };
        self.overdue_at = None;
        match volumes & done {
            VolumeSet::EMPTY => self.fail(world),
            released => self.continue_without_flash(world, released),
        }
    }

    /// The records of these volumes on flash will never count again.
    fn continue_without_flash(&mut self, world: &mut World, volumes: VolumeSet) {
        world.flash.do_without(volumes, world.volumes.len());
        world.stats.passed_through += u64::from(volumes.len());
        world.call_starved();
        self.stage.enter(PassThroughStage::Dropping(EntryWalk::START));
        self.let_go(world);
    }

    /// One turn of forgetting records.
    fn drop_void(&mut self, world: &mut World, others: Others<'_>, walk: EntryWalk) -> bool {
        let context = &mut shard_context!(world);
        match walk.step(&mut world.shards, |shard, from, n| shard.drop_void(context, from, n)) {
            Some(rest) => self.stage.enter(PassThroughStage::Dropping(rest)),
            None => {
                self.stage.enter(PassThroughStage::Idle);
                if !world.flash.all_without() {
                    self.retry_later(world);
                } else if !others.destages.is_under_way() {
                    // What was dirty in memory need not stay there.
                    others.destages.begin(world, others.cleaner);
                }
            }
        }
        true
    }

    fn fail(&mut self, world: &mut World) {
        self.stage.enter(PassThroughStage::Idle);
        self.let_go(world);
        self.retry_later(world);
    }

    fn retry_later(&mut self, world: &World) {
        let pause = PAUSE_FIRST.0 << self.failures.min(6);
        self.failures += 1;
        self.retry_at = Some(world.now.saturating_add(Nanos(pause.min(PAUSE_LAST.0))));
    }

    /// Requests that waited continue, or fail if they still cannot.
    fn let_go(&mut self, world: &mut World) {
        self.until = None;
        if !core::mem::take(&mut world.flash.awaits_void) {
            return;
        }
        world.call_starved();
        for n in 0..world.shards.len() {
            world.shards[n].release_parked(&mut shard_context!(world));
        }
        world.release_held();
    }

    /// When the cache has to be called for pass-through: a wait has ended, or an attempt is due.
    #[inline]
    pub fn timeout(&self) -> Option<Nanos> {
        sooner(sooner(self.until, self.retry_at), self.overdue_at)
    }

    /// When waiting requests fail.
    pub fn limit(&self) -> Option<Nanos> {
        self.until
    }

    /// The time may have come.
    pub fn handle_timeout(&mut self, world: &mut World) {
        if self.until.is_some_and(|at| at <= world.now) {
            self.let_go(world);
        }
        if self.retry_at.is_some_and(|at| at <= world.now) {
            self.retry_at = None;
            if world.lifecycle.is_ready() && self.stage.get() == PassThroughStage::Idle {
                self.stage.enter(PassThroughStage::Settling);
            }
        }
    }
}

/// Volumes that have no dirty records and still use flash.
fn without_dirty_records(world: &World) -> VolumeSet {
    let mut clean = VolumeSet::EMPTY;
    for (volume, v) in world.volumes.iter() {
        let whole = v.owed == 0 && world.volumes.conditions[volume].makes_durable();
        clean.insert_if(volume, whole && !world.flash.without().contains(volume));
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::check_table;

    #[test]
    fn stages_follow_each_other_as_the_table_says() {
        let stages = [
            PassThroughStage::Idle,
            PassThroughStage::Settling,
            PassThroughStage::Salvaging,
            PassThroughStage::Destaging,
            PassThroughStage::Voiding(VolumeSet::EMPTY),
            PassThroughStage::Releasing,
            PassThroughStage::Released(VolumeSet::EMPTY),
            PassThroughStage::Dropping(EntryWalk::START),
        ];
        check_table(include_str!("pass_through.rs"), &stages);
    }
}
