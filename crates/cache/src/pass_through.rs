//! Pass-through: the flash tier fails, and volumes go on without it.
//!
//! After a failed write or sync the log takes no records until the next start. Writes of blocks that
//! have no record go to the backing store at once. Other blocks must not be written there while a start
//! could still believe their records, so:
//!
//! 1. The records that the log has taken are made durable, if the device still can.
//! 2. All dirty records are destaged.
//! 3. The log durably declares void all records of the volumes that have no dirty ones left.
//! 4. Until the next start these volumes write through, and only memory caches them.
//!
//! Where the device cannot do 1 or 3, the headers of the stores declare void what it holds of volumes that
//! have no dirty records, once and for all: flash may be gone, and may return.
//!
//! Flushes, and writes of blocks with a record, wait for that, `give_up_after` at most; then they fail.
//! If it fails for some volumes (they have dirty records that nobody can read, their stores have no
//! headers, or fail), it is tried again later.

use forebay_block::{Nanos, Op};
use forebay_effect::{IoError, Outcome};

use crate::cache::Cache;
use crate::destage::Destage;
use crate::shard::Shard;
use crate::world::{State, around};

/// The name of the sync, and of the mark, towards the log.
pub(crate) const SALVAGE: u64 = u64::MAX - 4;

/// Time to the first attempt after one that has failed; it doubles up to the last.
const PAUSE_FIRST: Nanos = Nanos(5_000_000_000);
const PAUSE_LAST: Nanos = Nanos(320_000_000_000);

/// Entries of a shard's index that are looked at in a turn.
const ENTRIES: u32 = 4096;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// What was under way when the log failed comes to its end.
    Settling,
    /// What the log has taken is being made durable.
    Salvaging,
    Destaging,
    /// What it holds of these volumes (bits) is being declared void.
    Voiding(u64),
    /// Their stores' headers are to declare that; or are being written (bits).
    Releasing,
    Released(u64),
    /// The shard's entries from this one on are to forget their records.
    Dropping {
        shard: usize,
        entry: u32,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PassThrough {
    stage: Stage,
    /// When those that wait fail; when the next attempt is due.
    until: Option<Nanos>,
    retry_at: Option<Nanos>,
    failures: u32,
}

impl Cache {
    /// The log has failed: no record goes to flash until the next start.
    pub(crate) fn lose_log(&mut self) {
        self.world.log_lost = true;
        if let Some(destage) = &mut self.destaging {
            destage.fail(IoError::Device);
        }
        self.cleaner.forget();
        for shard in &mut self.world.shards {
            shard.log_gave_up();
            shard.set_jam(false, false);
        }
        self.abandon_switch();
        if self.world.state == State::Ready && !self.world.hurry {
            self.pass.stage = Stage::Settling;
            self.set_holding(true);
            let limit = self.world.config.give_up_after;
            self.pass.until = (limit != Nanos(0)).then(|| self.world.now.saturating_add(limit));
        }
    }

    fn set_holding(&mut self, holding: bool) {
        self.world.holds.void = holding;
        self.world.shards.iter_mut().for_each(|shard| shard.set_holding(holding));
    }

    /// Whether a turn of [`Cache::push_pass_through`] may find anything to do.
    #[inline]
    pub(crate) fn owes_pass_through(&self) -> bool {
        self.pass.stage != Stage::Idle
    }

    pub(crate) fn push_pass_through(&mut self) -> bool {
        let stage = self.pass.stage;
        if stage == Stage::Idle {
            return false;
        }
        if self.world.state != State::Ready || self.world.hurry {
            // A stop does not wait for it.
            (self.pass.stage, self.pass.retry_at) = (Stage::Idle, None);
            self.let_go();
            return true;
        }
        match stage {
            Stage::Settling => {
                let busy = self.destaging.is_some()
                    || self.sealing.is_some()
                    || self.cleaner.active.is_some()
                    || self.world.shards.iter().any(Shard::is_logging);
                let Some(log) = self.world.log.as_mut().filter(|_| !busy) else { return false };
                if log.is_salvaged() {
                    self.begin_last_destage();
                } else {
                    self.pass.stage = Stage::Salvaging;
                    log.salvage(SALVAGE);
                }
                true
            }
            Stage::Releasing => self.order_release(),
            Stage::Dropping { shard, entry } => self.drop_void(shard, entry),
            _ => false,
        }
    }

    /// The records that the log has taken are durable, or nobody can say.
    pub(crate) fn salvaged(&mut self, result: Outcome) {
        if self.pass.stage != Stage::Salvaging {
            return;
        }
        match result {
            // (Somebody may have asked for a destage meanwhile: that ends first.)
            Ok(()) => self.pass.stage = Stage::Settling,
            Err(_) => self.pass.stage = Stage::Releasing,
        }
    }

    fn begin_last_destage(&mut self) {
        self.cleaner.forget();
        self.cleaner.forgive();
        self.cleaner.retry_at = None;
        self.stores.forgive();
        self.pass.stage = Stage::Destaging;
        self.destaging = Some(Destage::of_flash());
    }

    /// All dirty records that could be destaged have been.
    pub(crate) fn pass_through_destaged(&mut self) {
        if self.pass.stage != Stage::Destaging {
            return;
        }
        let clean = self.without_dirty_records();
        let Some(log) = self.world.log.as_mut().filter(|_| clean != 0) else {
            return self.pass_through_failed();
        };
        self.pass.stage = Stage::Voiding(clean);
        log.void((0..64).filter(|v| clean >> v & 1 == 1), SALVAGE);
    }

    /// Their records are durably void, or could not be declared so.
    pub(crate) fn voided(&mut self, result: Outcome) {
        let Stage::Voiding(volumes) = self.pass.stage else { return };
        match result {
            Ok(()) => self.go_past(volumes),
            Err(_) => self.pass.stage = Stage::Releasing,
        }
    }

    /// Volumes (bits) that have no dirty records, and do not go past flash yet.
    fn without_dirty_records(&self) -> u64 {
        let mut clean = 0;
        for (v, volume) in self.world.front.volumes.iter().enumerate() {
            let whole = volume.owed == 0 && !self.world.front.has_failed(v);
            clean |= u64::from(whole && !self.world.goes_past(v)) << v;
        }
        clean
    }

    /// What the log cannot say, the headers of stores can.
    fn order_release(&mut self) -> bool {
        match self.release_stores(self.without_dirty_records()) {
            None => return false,
            Some(0) => self.pass_through_failed(),
            Some(volumes) => self.pass.stage = Stage::Released(volumes),
        }
        true
    }

    /// The headers of these stores (bits) say so, durably.
    pub(crate) fn released(&mut self, done: u64) {
        let Stage::Released(volumes) = self.pass.stage else { return };
        match volumes & done {
            0 => self.pass_through_failed(),
            released => self.go_past(released),
        }
    }

    /// What flash holds of these volumes (bits) will never count.
    fn go_past(&mut self, volumes: u64) {
        self.world.past |= volumes;
        self.world.stats.passed_through += u64::from(volumes.count_ones());
        let (past, all) = (self.world.past, self.world.all_go_past());
        self.world.shards.iter_mut().for_each(|shard| shard.set_past(past, all));
        self.pass.stage = Stage::Dropping { shard: 0, entry: 0 };
        self.let_go();
    }

    /// One turn of forgetting records.
    fn drop_void(&mut self, shard: usize, entry: u32) -> bool {
        if shard == self.world.shards.len() {
            self.pass.stage = Stage::Idle;
            if !self.world.all_go_past() {
                self.retry_later();
            } else if self.destaging.is_none() {
                // What was dirty in memory need not stay there.
                self.begin_destage();
            }
            return true;
        }
        let next = self.world.shards[shard].drop_void(&mut around!(self.world), entry, ENTRIES);
        self.pass.stage = match next {
            Some(entry) => Stage::Dropping { shard, entry },
            None => Stage::Dropping { shard: shard + 1, entry: 0 },
        };
        true
    }

    fn pass_through_failed(&mut self) {
        self.pass.stage = Stage::Idle;
        self.let_go();
        self.retry_later();
    }

    fn retry_later(&mut self) {
        let pause = PAUSE_FIRST.0 << self.pass.failures.min(6);
        self.pass.failures += 1;
        self.pass.retry_at = Some(self.world.now.saturating_add(Nanos(pause.min(PAUSE_LAST.0))));
    }

    /// Requests that waited go on, or fail if they still cannot.
    fn let_go(&mut self) {
        self.pass.until = None;
        if !self.world.holds.void {
            return;
        }
        self.set_holding(false);
        for n in 0..self.world.shards.len() {
            self.world.shards[n].release_parked(&mut around!(self.world));
        }
        if !self.world.is_held(Op::Write) {
            self.world.release_held();
        }
    }

    /// When the cache has to be called for this: a wait is over, or an attempt is due.
    pub(crate) fn pass_through_timeout(&self) -> Option<Nanos> {
        let due = [self.pass.until, self.pass.retry_at];
        due.into_iter().flatten().min()
    }

    /// When requests that wait fail.
    pub(crate) fn pass_through_limit(&self) -> Option<Nanos> {
        self.pass.until
    }

    /// The time has come, or may have.
    pub(crate) fn pass_through_timed(&mut self) {
        if self.pass.until.is_some_and(|at| at <= self.world.now) {
            self.let_go();
        }
        if self.pass.retry_at.is_some_and(|at| at <= self.world.now) {
            self.pass.retry_at = None;
            if self.world.state == State::Ready && self.pass.stage == Stage::Idle {
                self.pass.stage = Stage::Settling;
            }
        }
    }
}
