//! An engine: a cache on real devices, in this process.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_cache::{Acknowledge, CacheStats, Combination, Notice as MachineNotice, VolumeStats};
use forebay_config::{self as words, Config};
use forebay_effect::{IoError, Outcome};
use forebay_flash::{LogError, LogStats, Older, RecoveryReport};

use crate::clock::Clock;
use crate::core::{Core, Shared};
use crate::error::EngineError;
use crate::notice::EngineNotice;
use crate::opening;
use crate::options::{EngineOptions, StopMode, VolumeDescription};
use crate::reaper;
use crate::session::Session;
use crate::status::{self, Recovering, Status};
use crate::store::Store;
use crate::stores::Stores;
use crate::table::Submission;
use crate::tape::Recorder;

/// How long a stop waits at most for background work.
const STOP_IDLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The machine's own counters.
#[derive(Clone, PartialEq, Debug)]
pub struct Counters {
    /// Counters of the cache.
    pub cache: CacheStats,
    /// Counters of the flash log, if there is one.
    pub log: Option<LogStats>,
    /// Counters of each volume, in the order of the configuration.
    pub volumes: Vec<VolumeStats>,
}

/// A running cache.
///
/// Dropping an engine without [`stop`](Engine::stop) is like the end of the process: data that was
/// acknowledged as durable stays durable, and the next start recovers it.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
    pub(crate) stamper: Option<JoinHandle<()>>,
    pub(crate) stores: Arc<Stores>,
    volumes: Vec<VolumeDescription>,
    pub(crate) notices: Vec<EngineNotice>,
    recovery: Option<Box<RecoveryReport>>,
    pub(crate) has_flash: bool,
    /// The stores are marked as dirty: a policy of this run writes back, or the previous run left
    /// dirty data.
    pub(crate) keeps_dirty: AtomicBool,
    /// When writes are acknowledged under write-back, unless an order sets it.
    acknowledge: Mutex<words::Acknowledge>,
    pub(crate) quiesced: Mutex<Option<Quiesced>>,
    /// Destages run one after another, because each waits for its own end.
    destaging: Mutex<()>,
}

/// Clients are held back, and the headers note that the stores are complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiesced {
    /// Since when.
    pub since: Instant,
    /// When clients continue in any case.
    pub until: Option<Instant>,
}

/// The state in which the stores are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreState {
    /// Each is complete.
    Whole,
    /// Each is complete, and its cached data no longer count.
    Released,
    /// Newer data for some are on the flash tier.
    Dirty,
}

impl Engine {
    /// Opens everything and waits until the cache accepts requests.
    ///
    /// # Errors
    /// If a file or device is missing, in use, too small, or not as configured, or if dirty data
    /// would be lost. Data is then unchanged. Files that this call created are removed, unless
    /// recovery had begun.
    pub fn open(config: &Config, options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::open_watched(config, options, &mut |_| ControlFlow::Continue(()))
    }

    /// Like [`Engine::open`], and reports the progress of recovery ten times a second, until told
    /// to abandon the start.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_watched(
        config: &Config,
        options: EngineOptions,
        progress: &mut dyn FnMut(&Recovering) -> ControlFlow<()>,
    ) -> Result<Engine, EngineError> {
        let began = Instant::now();
        let opened = opening::open(config, &options)?;
        let shared = Arc::new(opened.shared);
        let thread =
            reaper::start(shared.clone()).map_err(|e| EngineError::System("start a thread", e))?;
        let mut engine = Engine {
            shared,
            reaper: Some(thread),
            stamper: None,
            stores: Arc::new(Stores::new(opened.stores)),
            volumes: opened.volumes,
            notices: opened.notices,
            recovery: None,
            has_flash: opened.flash_path.is_some(),
            keeps_dirty: AtomicBool::new(config.cache.write_policy.keeps_dirty_data()),
            acknowledge: Mutex::new(config.acknowledge_of_write_back()),
            quiesced: Mutex::new(None),
            destaging: Mutex::new(()),
        };
        engine.keep_stamps(config, options.one_at_a_time)?;
        let mut core = engine.shared.lock();
        if options.one_at_a_time {
            core.one_at_a_time = true;
            core.executor.end_in_order();
        }
        core.start(engine.shared.clock.now(), opened.start);
        engine.shared.unlock(core, None);
        let started = engine.shared.wait_notice(
            |notice| match notice {
                MachineNotice::Ready(report) => Some(Ok(report.clone())),
                MachineNotice::Failed(error) => Some(Err(error.clone())),
                _ => None,
            },
            |core| {
                let of_log = core.cache.recovering().unwrap_or_default();
                let seconds = began.elapsed().as_secs_f64();
                progress(&Recovering::new(&of_log, seconds))
            },
        );
        match started {
            Some(Ok(report)) => engine.take_report(report),
            None => return Err(EngineError::StartEnded),
            Some(Err(error)) => {
                let path = opened.flash_path.unwrap_or_default();
                if let LogError::BeyondVolume { volume, offset, size } = error {
                    let mut names = engine.volumes.iter();
                    let name = names.find(|v| v.volume.0 == u32::from(volume)).map(|v| &v.name);
                    let volume = name.cloned().unwrap_or_default();
                    return Err(EngineError::Shrunk { volume, size, offset, path });
                }
                if let LogError::Changed { volume, blocks } = error {
                    return Err(engine.changed(volume, blocks, path));
                }
                if let LogError::Older { volume, which } = error {
                    return Err(engine.older(volume, which, path));
                }
                return Err(EngineError::Flash { path, error });
            }
        }
        if engine.shared.lock().cache.dirty_blocks() > 0 {
            *engine.keeps_dirty.get_mut() = true;
        }
        if options.drop_clean {
            // Until that is done, all notes of how the stores were left stay: if it is cut short, the
            // next start must not trust them either.
            let all: Vec<Volume> = engine.volumes.iter().map(|v| v.volume).collect();
            engine.invalidate(&all)?;
        }
        engine.complete(|completing| {
            let seconds = began.elapsed().as_secs_f64();
            progress(&Recovering { completing, seconds, ..Recovering::default() })
        })?;
        engine.mark_open()?;
        engine.completed();
        // What opening cost is no part of any run.
        if let Some(latencies) = engine.shared.lock().executor.latencies_mut() {
            latencies.clear();
        }
        Ok(engine)
    }

    /// The volumes, in the order of the configuration.
    pub fn volumes(&self) -> &[VolumeDescription] {
        &self.volumes
    }

    /// Bytes of a cached block.
    pub fn block_bytes(&self) -> u32 {
        self.shared.lock().cache.config().block_size.bytes() as u32
    }

    /// The clock of all its times.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// When the oldest request in flight arrived.
    pub fn oldest_in_flight(&self) -> Option<Nanos> {
        self.shared.lock().table.oldest()
    }

    /// Notices for the user.
    pub fn notices(&self) -> &[EngineNotice] {
        &self.notices
    }

    /// The report of recovery, if there is a flash tier that was not just formatted.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_deref()
    }

    /// A new session.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn session(&self) -> Result<Session, EngineError> {
        Session::open(self.shared.clone()).map_err(|e| EngineError::System("make a doorbell", e))
    }

    /// The complete status of the cache now.
    pub fn status(&self) -> Status {
        let mut status = status::snapshot(&self.shared, &self.volumes);
        // (Somebody who is about to change it holds the lock for long.)
        let quiesced = self.quiesced.try_lock().ok().and_then(|state| *state);
        status.quiesced = quiesced.map(|quiesced| status::Quiesced {
            since_s: quiesced.since.elapsed().as_secs_f64(),
            left_s: (quiesced.until)
                .map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64()),
        });
        let stores = self.stores.lock_all();
        for (status, volume) in status.volumes.iter_mut().zip(&self.volumes) {
            let export = stores[volume.volume.0 as usize].export.as_ref();
            // What the session ended of says more than what the operations did.
            let failure = export.and_then(|export| export.failure());
            status.backing_failure = failure.or(status.backing_failure.take());
        }
        status
    }

    /// A stop is near: requests that wait for data that cannot be destaged fail soon.
    pub fn prepare_stop(&self) {
        // No quiesce begins any more, and one that still destages ends early: it holds the lock meanwhile.
        self.announce_stop();
        if self.quiesced.lock().is_ok_and(|state| state.is_some()) {
            // Clients that are held back are waited for. (If this fails, the stop says so.)
            let _ = self.resume();
            self.announce_stop();
        }
    }

    fn announce_stop(&self) {
        let mut core = self.shared.lock();
        core.prepare_stop(self.shared.clock.now());
        self.shared.unlock(core, None);
    }

    /// Whether the headers of the stores say that they lack dirty data. A thread that holds the locks of all
    /// stores sees what the headers say.
    pub(crate) fn keeps_dirty(&self, _stores: &[MutexGuard<'_, Store>]) -> bool {
        self.keeps_dirty.load(Ordering::Relaxed)
    }

    /// Waits until all work for the requests so far has ended, including background work. Dirty
    /// data stays dirty.
    pub fn settle(&self) {
        while !self.shared.lock().is_idle() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// All counters of the machine. [`Engine::status`] is for people.
    pub fn counters(&self) -> Counters {
        let mut core = self.shared.lock();
        core.report_all_hits();
        let of = |v: &VolumeDescription| core.cache.volume_stats(v.volume).copied();
        Counters {
            cache: *core.cache.stats(),
            log: core.cache.log_stats().copied(),
            volumes: self.volumes.iter().map(|v| of(v).unwrap_or_default()).collect(),
        }
    }

    /// Retries failing backing stores now, instead of at the next due time.
    pub fn retry_stores(&self) {
        let mut core = self.shared.lock();
        core.retry_stores(self.shared.clock.now());
        self.shared.unlock(core, None);
    }

    /// Destages everything that is dirty now, while requests continue. `progress` is called about
    /// ten times a second with the number of dirty blocks.
    ///
    /// # Errors
    /// If some of it cannot be destaged; it is kept.
    pub fn destage(&self, mut progress: impl FnMut(u64)) -> Result<(), EngineError> {
        self.destage_unless("the destage", |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        })
    }

    /// Destages, but does not wait for the end if `progress` says so.
    pub(crate) fn destage_unless(
        &self,
        what: &'static str,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let _one = self.destaging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut core = self.shared.lock();
        if core.stop_announced {
            return Err(EngineError::Stopping);
        }
        core.destage(self.shared.clock.now());
        self.shared.unlock(core, None);
        let result = self.shared.wait_notice(
            |notice| match notice {
                MachineNotice::Destaged(result) => Some(*result),
                _ => None,
            },
            |core| progress(core.cache.dirty_blocks()),
        );
        let result = result.ok_or(EngineError::StartEnded)?;
        result.map_err(|error| self.destage_error(what, error))
    }

    /// Whether this policy is in force.
    pub fn has_policy(&self, policy: words::WritePolicy, acknowledge: words::Acknowledge) -> bool {
        let Ok((machine, acknowledges)) = forebay_setup::policy(policy, acknowledge) else {
            return false;
        };
        let core = self.shared.lock();
        let config = core.cache.config();
        // Only under write-back there is a choice when to acknowledge.
        config.write_policy == machine
            && (!machine.write_back || config.acknowledge == acknowledges)
    }

    /// Changes the write policy, and when writes under write-back are acknowledged. All dirty data
    /// is destaged first; modifying requests wait for the last of it. `None` keeps the last
    /// acknowledgement under write-back, or the configured one.
    ///
    /// # Errors
    /// If this version has no such policy, the policy does not match the tiers or their relation,
    /// or some dirty data cannot be destaged; the policy is then unchanged.
    pub fn set_policy(
        &self,
        policy: words::WritePolicy,
        acknowledge: Option<words::Acknowledge>,
    ) -> Result<(), EngineError> {
        let usual = *self.acknowledge.lock().unwrap_or_else(PoisonError::into_inner);
        let acknowledge = acknowledge.unwrap_or(usual);
        let (machine, acknowledges) = forebay_setup::policy(policy, acknowledge)?;
        if machine.write_back && acknowledge == words::Acknowledge::Flash && !self.has_flash {
            let message = "acknowledge = \"flash\" is not possible, because this server has no \
                           flash tier; the write policy is unchanged. Use acknowledge = \"dram\"";
            return Err(EngineError::Unsupported(message.to_owned()));
        }
        let all = Combination::from_config(self.shared.lock().cache.config());
        let changed = Combination { policy: machine, acknowledge: acknowledges, ..all };
        forebay_setup::check_combination(&changed)?;
        if machine.write_back {
            if self.shared.lock().cache.has_given_up() {
                return Err(EngineError::FlashFailed);
            }
            self.mark_dirty()?;
        }
        let _one = self.destaging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut core = self.shared.lock();
        core.set_policy(self.shared.clock.now(), machine, acknowledges);
        self.shared.unlock(core, None);
        let result = self.shared.wait_notice(
            |notice| match notice {
                MachineNotice::PolicySet(result) => Some(*result),
                _ => None,
            },
            |_| ControlFlow::Continue(()),
        );
        match result.unwrap_or(Ok(())) {
            Ok(()) => {
                if machine.write_back {
                    *self.acknowledge.lock().unwrap_or_else(PoisonError::into_inner) = acknowledge;
                }
                Ok(())
            }
            Err(IoError::Invalid) if self.status().flash_failure.is_some() => {
                Err(EngineError::FlashFailed)
            }
            Err(IoError::Invalid) => Err(EngineError::Switching),
            Err(error) => Err(self.destage_error("the change of policy", error)),
        }
    }

    /// Notes durably that the stores lack dirty data, before anything can be acknowledged that they lack.
    fn mark_dirty(&self) -> Result<(), EngineError> {
        let quiesced = self.quiesced.lock().unwrap_or_else(PoisonError::into_inner);
        if quiesced.is_some() {
            // Copies of the stores that are made meanwhile must say that they are complete.
            let message = "the write policy cannot change to one with dirty data while clients are held \
                           back by a quiesce; end it first with `forebay ctl quiesce --resume`";
            return Err(EngineError::Unsupported(message.to_owned()));
        }
        let mut stores = self.stores.lock_all();
        if !self.keeps_dirty(&stores) {
            for store in stores.iter_mut().filter(|store| !store.read_only) {
                store.write_header(|header| header.dirty = true)?;
            }
            self.keeps_dirty.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Uses this much DRAM for blocks from now on, rounded down to blocks. A smaller size takes
    /// effect as other blocks enter.
    ///
    /// # Errors
    /// If that is more than at the start, or less than one block for each shard.
    pub fn set_dram_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        let mut core = self.shared.lock();
        let config = core.cache.config();
        let (block, least) = (config.block_size.bytes(), u32::from(config.shards));
        let most = config.dram_blocks;
        let blocks = u32::try_from(bytes / block).unwrap_or(u32::MAX);
        if !(least..=most).contains(&blocks) {
            let (least, most) = (u64::from(least) * block, u64::from(most) * block);
            self.shared.unlock(core, None);
            return Err(EngineError::DramSize { bytes, least, most });
        }
        core.set_dram_blocks(self.shared.clock.now(), blocks);
        self.shared.unlock(core, None);
        Ok(())
    }

    /// Finishes the requests in flight, leaves dirty data as `mode` says, and ends. `progress` is
    /// called about ten times a second with the number of dirty blocks.
    ///
    /// # Errors
    /// If dirty data could not be written there, or the clean mark could not be written. No
    /// acknowledged data is lost by that.
    pub fn stop(self, mode: StopMode, mut progress: impl FnMut(u64)) -> Result<(), EngineError> {
        let stopped = self.stop_unless(mode, |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        });
        stopped.map(|_| ())
    }

    /// Like [`stop`](Engine::stop), but `progress` may say that it takes too long: once what was answered
    /// from memory is on flash, the rest then stays there. Without a flash tier there is no such choice.
    /// Returns the number of dirty blocks left on flash.
    ///
    /// # Errors
    /// As [`stop`](Engine::stop).
    pub fn stop_unless(
        mut self,
        mode: StopMode,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, EngineError> {
        let destage = mode != StopMode::Keep || !self.has_flash;
        let quiesced = self.quiesced.lock().is_ok_and(|state| state.is_some());
        if quiesced {
            self.resume()?;
        }
        self.prepare_stop();
        if destage && self.has_flash && *self.keeps_dirty.get_mut() {
            // Only to have less left for the stop itself, which flushes again, waits for it, and
            // says what it could not bring home.
            let _ = self.flush_all();
        }
        let mut core = self.shared.lock();
        core.closing = true;
        core.hold(false, self.shared.clock.now());
        core.stop(self.shared.clock.now(), destage);
        self.shared.unlock(core, None);
        let may_give_up = self.has_flash;
        let result: Option<Outcome> = self.shared.wait_notice(
            |notice| match notice {
                MachineNotice::Stopped(result) => Some(*result),
                _ => None,
            },
            |core| match progress(core.cache.dirty_blocks()) {
                // What was answered from memory would be lost.
                ControlFlow::Break(())
                    if may_give_up
                        && (core.cache.flushed().is_some() || !answers_from_memory(core)) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            },
        );
        let core = self.shared.lock();
        let dirty = core.cache.dirty_blocks();
        // Of a stop that is cut short, the flush to flash decides whether it failed.
        let flushed = core.cache.flushed().unwrap_or(Ok(()));
        drop(core);
        let noted = match result {
            Some(Ok(())) => {
                let left = match mode {
                    _ if dirty > 0 => StoreState::Dirty,
                    StopMode::Release => StoreState::Released,
                    _ => StoreState::Whole,
                };
                match self.comes_to_rest() {
                    true => self.note_stores("the stop", left),
                    // The stores are still being written. Without a note they are believed, as after a kill.
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        };
        let tape = self.end();
        let taped = tape.map_or(Ok(()), |tape| tape.finish());
        // What became of data comes first.
        noted?;
        let result = result.unwrap_or(flushed);
        result.map_err(|error| self.destage_error("the stop", error))?;
        taped.map_err(|e| EngineError::System("write the tape", e))?;
        Ok(dirty)
    }

    /// After the machine has stopped, waits for device operations in flight. A write to a store
    /// after its fingerprint was noted would look as if others had written to it. Returns whether
    /// all have ended.
    fn comes_to_rest(&self) -> bool {
        let until = Instant::now() + STOP_IDLE_WAIT_MAX;
        // (The machine begins no write to a store after its stop.)
        while !self.shared.lock().is_idle() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Ends at once, as if the process had been killed: for tests.
    pub fn kill(mut self) {
        self.end();
    }

    /// Makes all acknowledged data durable on flash.
    fn flush_all(&self) -> Result<(), EngineError> {
        let mut session = self.session()?;
        let flush = |v: &VolumeDescription| Submission {
            tag: 0,
            volume: v.volume,
            op: Op::Flush,
            flags: Flags::NONE,
            offset: 0,
            length: 0,
            buffer: None,
        };
        let mut requests: Vec<Submission> = self.volumes.iter().map(flush).collect();
        let mut done = Vec::new();
        self.shared.hold(false);
        session.submit(&mut requests, &mut done);
        while session.in_flight() > 0 {
            session.wait(None, &mut done);
        }
        let flushed = done.iter().try_for_each(|d| d.result);
        flushed.map_err(|error| self.destage_error("the flush before the stop", error))
    }

    /// The volumes' stores are open and the flash tier is in its new epoch: notes this in the
    /// headers.
    fn mark_open(&mut self) -> Result<(), EngineError> {
        let flash = self.recovery.as_ref().map(|r| (r.uuid, r.epoch));
        let now = self.shared.lock().cache.stamp_now(false);
        let report = self.recovery.as_ref();
        let bindings = report.map_or(&[][..], |r| &r.bindings);
        let outdated = report.map_or(&[][..], |r| &r.outdated);
        let keeps_dirty = *self.keeps_dirty.get_mut();
        let mut stores = self.stores.lock_all();
        for (number, store) in stores.iter_mut().enumerate() {
            let dirty = keeps_dirty && !store.read_only;
            let bound = bindings.iter().find(|b| usize::from(b.index) == number);
            store.older = false;
            store.write_header(|header| {
                header.outdo(bound.map_or(0, |b| b.stamp));
                if outdated.contains(&(number as u16, Older::Flash)) {
                    // What it has seen is gone, and owed to nobody.
                    header.stamp = now;
                }
                let (uuid, epoch) = flash.unwrap_or_default();
                header.bind(uuid);
                header.flash_epoch = epoch;
                header.generation += 1;
                header.dirty = dirty;
                (header.opening, header.released) = (false, false);
                header.fingerprint = [0; 16];
            })?;
        }
        Ok(())
    }

    /// Takes the report of recovery.
    fn take_report(&mut self, report: Option<Box<RecoveryReport>>) {
        let stores = self.stores.lock_all();
        for &(volume, which) in report.iter().flat_map(|r| &r.outdated) {
            let store = &stores[usize::from(volume)];
            let (volume, path) = (store.name.clone(), store.path.clone());
            self.notices.push(EngineNotice::Older { volume, path, which });
        }
        drop(stores);
        self.recovery = report;
    }

    /// Why a start with a store that others have used is refused.
    fn changed(&self, number: u16, blocks: u64, flash: PathBuf) -> EngineError {
        let stores = self.stores.lock_all();
        let store = &stores[usize::from(number)];
        let (volume, path) = (store.name.clone(), store.path.clone());
        EngineError::Changed { volume, path, flash, blocks }
    }

    fn destage_error(&self, what: &'static str, error: IoError) -> EngineError {
        let core = self.shared.lock_anyway();
        let (dirty, in_memory) = (core.cache.dirty_blocks(), core.cache.dirty_in_memory());
        drop(core);
        let why = match self.unreadable() {
            Some(unreadable) if error == IoError::Corrupt => unreadable,
            _ => error.to_string(),
        };
        let core = self.shared.lock_anyway();
        let failure = |v: &VolumeDescription| {
            core.cache.volume_stats(v.volume).filter(|s| s.dirty_blocks > 0)?;
            core.cache.last_backing_failure(v.volume)
        };
        let failures = self.volumes.iter().filter_map(|v| Some((&v.name, failure(v)?)));
        let on: String =
            failures.map(|(name, error)| format!("; volume {name}: {error}")).collect();
        drop(core);
        let ended = self.reaper.is_none();
        let left = match (self.has_flash, ended) {
            (true, true) if in_memory > 0 => {
                let on_flash = dirty - in_memory.min(dirty);
                format!(
                    "{on_flash} dirty blocks stay on the flash tier; the newest data of \
                     {in_memory} blocks was only in memory and is lost"
                )
            }
            (true, true) => format!("{dirty} dirty blocks stay on the flash tier"),
            (true, false) => {
                format!("{dirty} dirty blocks stay on the flash tier or in memory")
            }
            (false, false) => format!("{dirty} dirty blocks stay in memory"),
            (false, true) => {
                format!("{dirty} dirty blocks were only in memory and are lost")
            }
        };
        EngineError::Destage { what, why: why + &on, left }
    }

    /// Ends the reaper. The machine is not called afterwards.
    fn end(&mut self) -> Option<Recorder> {
        let thread = self.reaper.take()?;
        let mut core = self.shared.lock_anyway();
        core.quit = true;
        core.closing = true;
        let tape = core.tape.take();
        core.update_published();
        drop(core);
        self.shared.queries.close();
        self.shared.bell.ring();
        self.shared.wake_all();
        // A thread that panicked has said so; there is nothing left to save.
        let _ = thread.join();
        let _ = self.stamper.take().map(JoinHandle::join);
        // Ends every device operation, so that no memory is touched any more.
        self.shared.lock_anyway().executor.reset();
        tape
    }
}

/// Whether a write may have been answered that memory alone holds.
fn answers_from_memory(core: &Core) -> bool {
    let config = core.cache.config();
    config.write_policy.write_back && config.acknowledge == Acknowledge::Dram
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("volumes", &self.volumes).finish_non_exhaustive()
    }
}
