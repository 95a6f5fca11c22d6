//! An engine: a cache on real devices, in this process.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_cache::{CacheStats, Notice, Open, Order, VolumeStats};
use forebay_config::Config;
use forebay_flash::{
    HeaderChange, LogError, LogStats, Older, OpenFlags, RecoveryProgress, RecoveryReport,
};

use crate::backing_stores::BackingStores;
use crate::clock::Clock;
use crate::error::EngineError;
use crate::faults::{Fault, OrderNews, Reported};
use crate::news::Rest;
use crate::notice::EngineNotice;
use crate::opening;
use crate::operate::Orders;
use crate::options::{EngineOptions, StopMode, VolumeDescription};
use crate::reaper;
use crate::session::Session;
use crate::shared::Shared;
use crate::stamper::Stamper;
use crate::status::{self, Recovering, Status};

/// Time for an abandoned start to note how it leaves the stores. A device that hangs is not waited
/// for.
const ABANDON_PATIENCE: Duration = Duration::from_secs(10);

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
    pub(crate) reaper: Option<JoinHandle<()>>,
    pub(crate) stamper: Option<Stamper>,
    pub(crate) stores: Arc<BackingStores>,
    volumes: Vec<VolumeDescription>,
    notices: Vec<EngineNotice>,
    recovery: Option<Box<RecoveryReport>>,
    pub(crate) has_flash: bool,
    pub(crate) orders: Mutex<Orders>,
    /// What operators should learn without asking, once.
    news: Mutex<Vec<OrderNews>>,
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
    /// would be lost. Data is then unchanged. Files that this call created are removed, unless it
    /// had begun to write headers.
    pub fn open(config: &Config, options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::open_watched(config, options, &mut |_| ControlFlow::Continue(()))
    }

    /// Like [`Engine::open`], and reports the progress ten times a second while it waits for an NBD server or
    /// recovers, until told to abandon the start.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_watched(
        config: &Config,
        options: EngineOptions,
        progress: &mut dyn FnMut(&Recovering) -> ControlFlow<()>,
    ) -> Result<Engine, EngineError> {
        let mut progress =
            |seen: &Recovering| progress(seen).map_break(|()| EngineError::StartEnded);
        let began = Instant::now();
        let opened = opening::open(config, &options, &mut || {
            let seconds = began.elapsed().as_secs_f64();
            progress(&Recovering { seconds, ..Recovering::default() })
        })?;
        let mut engine = Engine {
            shared: Arc::new(opened.shared),
            reaper: None,
            stamper: None,
            stores: opened.announcement.stores(),
            volumes: opened.volumes,
            notices: opened.notices,
            recovery: None,
            has_flash: opened.flash_path.is_some(),
            orders: Mutex::new(Orders::new(config)),
            news: Mutex::default(),
        };
        engine.start_threads(config, options.one_at_a_time)?;
        opened.announcement.begin();
        let formatted = matches!(opened.start, Open::Format { .. });
        let begun = |error| match error {
            EngineError::StartEnded => EngineError::StartCut { formatted },
            error => error,
        };
        engine.start(options.one_at_a_time, opened.start);
        let started = engine.wait_started(|of_log| {
            let seconds = began.elapsed().as_secs_f64();
            progress(&Recovering::new(of_log, seconds))
        });
        let flash = opened.flash_path.unwrap_or_default();
        match started {
            Ok(started) => engine.take_start(started, flash)?,
            Err(why) => return Err(engine.abandon(why, begun, options.drop_clean, flash)),
        }
        if options.drop_clean {
            // Until that is done, all notes of how the stores were left stay: if it is cut short, the
            // next start must not trust them either.
            let all: Vec<Volume> = engine.volumes.iter().map(|v| v.volume).collect();
            engine
                .invalidate_watched(&all, |destaging| {
                    let seconds = began.elapsed().as_secs_f64();
                    progress(&Recovering { destaging, seconds, ..Recovering::default() })
                })
                .map_err(begun)?;
        }
        let completed = engine.complete(|completing| {
            let seconds = began.elapsed().as_secs_f64();
            progress(&Recovering { completing, seconds, ..Recovering::default() })
        });
        completed.map_err(begun)?;
        engine.mark_open()?;
        engine.completed();
        // What opening cost is no part of any run.
        engine.shared.lock().clear_device_latencies();
        Ok(engine)
    }

    fn start_threads(&mut self, config: &Config, one_at_a_time: bool) -> Result<(), EngineError> {
        let reaper = reaper::start(self.shared.clone());
        self.reaper = Some(reaper.map_err(|e| EngineError::System("start a thread", e))?);
        if self.has_flash && !one_at_a_time {
            let every = Duration::from_nanos(config.flush.stamp_every.nanos().0);
            let stamper = Stamper::start(self.shared.clone(), self.stores.clone(), every);
            self.stamper = stamper.map_err(|e| EngineError::System("start a thread", e))?;
        }
        Ok(())
    }

    /// Starts the machine.
    fn start(&self, one_at_a_time: bool, open: Open) {
        self.shared.with_core(|core, now| {
            if one_at_a_time {
                core.take_one_at_a_time();
            }
            core.start(now, open);
        });
    }

    /// Waits until the machine accepts requests, or says why it does not; an outer error if `progress` has
    /// abandoned the start.
    fn wait_started(
        &self,
        mut progress: impl FnMut(&RecoveryProgress) -> ControlFlow<EngineError>,
    ) -> Result<Result<Option<Box<RecoveryReport>>, LogError>, EngineError> {
        self.shared.wait_notice(
            |notice| match notice {
                Notice::Ready(report) => Some(Ok(report.clone())),
                Notice::Failed(error) => Some(Err(error.clone())),
                _ => None,
            },
            |core| core.cache().recovering().unwrap_or_default(),
            |of_log| progress(&of_log),
        )
    }

    /// Takes the outcome of a start with the flash tier `path`.
    fn take_start(
        &mut self,
        started: Result<Option<Box<RecoveryReport>>, LogError>,
        path: PathBuf,
    ) -> Result<(), EngineError> {
        let report = started.map_err(|error| self.refused(error, path))?;
        self.take_report(report);
        let core = self.shared.lock();
        // (If dirty data of an earlier run cannot be destaged, the cache keeps writing back.)
        let writes_back = core.cache().config().write_policy.write_back;
        let marks_dirty = writes_back || core.cache().dirty_blocks() > 0;
        drop(core);
        self.orders().marks_dirty |= marks_dirty;
        Ok(())
    }

    /// Ends a start that was abandoned before the machine had accepted requests.
    /// `begun` makes the error say that flash may have changed.
    fn abandon(
        mut self,
        why: EngineError,
        begun: impl Fn(EngineError) -> EngineError,
        drop_clean: bool,
        path: PathBuf,
    ) -> EngineError {
        let mut core = self.shared.lock();
        if core.cache().recovering().is_some() {
            // It has only read, and does nothing more.
            let tape = core.end();
            drop((core, tape));
            self.retract();
            return why;
        }
        drop(core);
        let why = begun(why);
        // The new epoch is about to take the notes of how the stores were left, or has. It ends
        // like any run, which notes them again.
        let until = Instant::now() + ABANDON_PATIENCE;
        let started = self.wait_started(|_| match Instant::now() < until {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(EngineError::StartEnded),
        });
        let Ok(started) = started else { return why };
        self.stores.give_up_at(until);
        if let Err(error) = self.take_start(started, path) {
            return error;
        }
        // What is not complete, or not to be trusted, stays noted as that.
        let completes = self.recovery.as_ref().is_some_and(|report| !report.completing.is_empty());
        if drop_clean || completes {
            return why;
        }
        if let Err(error) = self.mark_open() {
            return error;
        }
        let stopped = self.stop_unless(StopMode::Keep, |_| match Instant::now() < until {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        stopped.err().unwrap_or(why)
    }

    /// The start has written nothing but headers. It ends, and they say again how the stores were
    /// left.
    fn retract(&mut self) {
        // Nothing must write the header at the same time, and no store is waited for any more.
        self.end();
        self.stores.retract();
    }

    /// Why the flash tier `path` cannot be used with these stores.
    fn refused(&mut self, error: LogError, path: PathBuf) -> EngineError {
        if !matches!(error, LogError::Io(_)) {
            // It was found while the log was read.
            self.retract();
        }
        match error {
            LogError::BeyondVolume { volume, offset, size } => {
                let volume = self.stores.lock(volume).name.clone();
                EngineError::Shrunk { volume, size, offset, path }
            }
            LogError::Enlarged { volume, former } => {
                let volume = self.stores.lock(volume).name.clone();
                EngineError::Enlarged { volume, former, path }
            }
            LogError::Changed { volume, blocks } => self.changed(volume, blocks, path),
            LogError::Older { volume, which } => self.older(volume, which, path),
            error => EngineError::Flash { path, error },
        }
    }

    /// The volumes, in the order of the configuration.
    pub fn volumes(&self) -> &[VolumeDescription] {
        &self.volumes
    }

    /// Whether a volume's store can zero a range, as far as is known, by less than writing zeroes to it.
    pub fn zeroes_cheaply(&self, volume: Volume) -> bool {
        self.shared.lock().zeroes_cheaply(volume, false)
    }

    /// Bytes of a cached block.
    pub fn block_bytes(&self) -> u32 {
        self.shared.lock().cache().config().block_size.bytes() as u32
    }

    /// The clock of all its times.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// When the oldest request in flight arrived.
    pub fn oldest_in_flight(&self) -> Option<Nanos> {
        self.shared.lock().oldest_in_flight()
    }

    /// Notices for the user.
    pub fn notices(&self) -> &[EngineNotice] {
        &self.notices
    }

    /// The report of recovery, if there is a flash tier that was not just formatted.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_deref()
    }

    /// What an operator should be told once, and has not been told by [`faults`](Engine::faults).
    pub fn take_news(&self) -> Vec<OrderNews> {
        std::mem::take(&mut *self.news())
    }

    pub(crate) fn news(&self) -> MutexGuard<'_, Vec<OrderNews>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages for an operator who has not asked: present failures, and those since the last call
    /// with `reported`, which is updated.
    pub fn faults(&self, reported: &mut Reported) -> Vec<Fault> {
        reported.report(self)
    }

    /// A new session.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn session(&self) -> Result<Session, EngineError> {
        Session::open(self.shared.clone()).map_err(|e| EngineError::System("create an eventfd", e))
    }

    /// The complete status of the cache now.
    pub fn status(&self) -> Status {
        let mut status = status::snapshot(&self.shared, &self.volumes);
        let quiesced = self.shared.lock().holds().quiesced();
        status.quiesced = quiesced.map(|quiesced| status::Quiesced {
            since_s: quiesced.since.elapsed().as_secs_f64(),
            left_s: (quiesced.until)
                .map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64()),
        });
        for (status, volume) in status.volumes.iter_mut().zip(&self.volumes) {
            // The reason why a session ended says more than the errors of operations.
            let failure = self.stores.session_failure(volume.volume);
            status.backing_failure = failure.or(status.backing_failure.take());
        }
        status
    }

    /// Waits until all work for the requests so far has ended, including background work. Dirty
    /// data stays dirty.
    pub fn wait_until_idle(&self) {
        self.shared.wait_for_rest(Rest::Idle, |_| true);
    }

    /// All counters of the machine. [`Engine::status`] is for people.
    pub fn counters(&self) -> Counters {
        let mut core = self.shared.lock();
        core.report_all_hits();
        let of = |v: &VolumeDescription| core.cache().volume_stats(v.volume).copied();
        Counters {
            cache: *core.cache().stats(),
            log: core.cache().log_stats().copied(),
            volumes: self.volumes.iter().map(|v| of(v).unwrap_or_default()).collect(),
        }
    }

    /// The volumes' stores are open and the flash tier is in its new epoch: notes this in the
    /// headers.
    fn mark_open(&mut self) -> Result<(), EngineError> {
        let core = self.shared.lock();
        let now = core.cache().stamp_now(false);
        let mut owed = PerVolume::filled(false, self.volumes.len());
        for (volume, owed) in owed.iter_mut() {
            *owed = core.cache().volume_stats(volume).is_some_and(|v| v.dirty_blocks > 0);
        }
        drop(core);
        let recovered = self.recovery.as_deref();
        let marks_dirty = self.orders().marks_dirty;
        let mut stores = self.stores.lock_all();
        let passes_through = self.pass_through(&stores);
        for (volume, store) in stores.iter_mut() {
            let released = passes_through[volume];
            // (What clients may no longer write can still be dirty.)
            let dirty = (marks_dirty && !store.read_only || owed[volume]) && !released;
            let opened = OpenFlags { dirty, released };
            store.write_header(&HeaderChange::open(volume, recovered, now, opened))?;
        }
        Ok(())
    }

    /// Takes the report of recovery.
    fn take_report(&mut self, report: Option<Box<RecoveryReport>>) {
        let stores = self.stores.lock_all();
        for &(volume, which) in report.iter().flat_map(|r| &r.outdated) {
            let store = &stores[volume];
            let (volume, path) = (store.name.clone(), store.path.clone());
            self.notices.push(EngineNotice::Older { volume, path, which });
        }
        for &(volume, former) in report.iter().flat_map(|r| &r.resized) {
            let store = &stores[volume];
            let (volume, size) = (store.name.clone(), store.size_bytes);
            self.notices.push(EngineNotice::Resized { volume, former, size });
        }
        drop(stores);
        self.recovery = report;
    }

    /// Writes the missing data to older stores before requests are served; `meanwhile` may abandon
    /// that with an error. Until [`completed`](Engine::completed), every start finds them to be older.
    fn complete(
        &mut self,
        meanwhile: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        let completing = self.recovery().map_or_else(Vec::new, |report| report.completing.clone());
        if completing.is_empty() {
            return Ok(());
        }
        let core = self.shared.lock();
        let dirty = |&volume: &Volume| core.cache().volume_stats(volume).map(|s| s.dirty_blocks);
        let blocks: Vec<u64> = completing.iter().map(|volume| dirty(volume).unwrap_or(0)).collect();
        drop(core);
        let mut orders = self.orders();
        self.destage_during(
            &mut orders,
            "bringing an older copy of a store up to date",
            meanwhile,
        )?;
        drop(orders);
        let stores = self.stores.lock_all();
        for (volume, blocks) in completing.into_iter().zip(blocks) {
            let store = &stores[volume];
            let (volume, path) = (store.name.clone(), store.path.clone());
            self.notices.push(EngineNotice::Completed { volume, path, blocks });
        }
        Ok(())
    }

    /// The stores are complete, and their headers say so.
    fn completed(&self) {
        if self.recovery().is_some_and(|report| !report.completing.is_empty()) {
            self.shared.order(Order::EndCompletion);
        }
    }

    /// Why a start with a store that others have used is refused.
    fn changed(&self, volume: Volume, blocks: u64, flash: PathBuf) -> EngineError {
        let stores = self.stores.lock_all();
        let store = &stores[volume];
        let (volume, path) = (store.name.clone(), store.path.clone());
        EngineError::Changed { volume, path, flash, blocks }
    }

    /// Why a start with an older copy is refused.
    fn older(&self, volume: Volume, which: Older, flash: PathBuf) -> EngineError {
        let stores = self.stores.lock_all();
        let store = &stores[volume];
        let (volume, path) = (store.name.clone(), store.path.clone());
        match which {
            Older::Store => EngineError::OlderStore { volume, path, flash },
            Older::Flash => EngineError::OlderFlash { volume, path, flash },
        }
    }
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
