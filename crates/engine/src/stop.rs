//! The end of an engine: a stop, or an abrupt end as if the process had been killed.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use forebay_cache::{DestageError, Notice, Order, StopTarget, StoresLeft};

use crate::backing_stores::BackingStores;
use crate::engine::{Engine, StoreState};
use crate::error::{EngineError, UnsealedReason};
use crate::held_wait::HeldWait;
use crate::news::Rest;
use crate::options::StopMode;
use crate::quiesce::{SILENCE_MAX, patience};
use crate::shared::Shared;
use crate::stamper::Stamper;
use crate::store_notes;
use crate::table::Submission;
use crate::tape::Recorder;

/// How long a stop waits at most for background work.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long an NBD server that keeps backing stores may take to answer once a stop is cut short, and when the
/// engine ends.
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Lets a stop end that waits for an NBD server which hangs. It keeps no device open.
#[derive(Debug)]
pub struct HungStores {
    shared: Weak<Shared>,
    stores: Weak<BackingStores>,
}

impl HungStores {
    /// Operations on stores behind NBD that do not end within five seconds fail, as do all later ones, and a
    /// stop then leaves dirty data on flash. Has no effect before data that was acknowledged from memory is on
    /// flash, so call it again until the stop has ended. Without a flash tier, it has no effect while anything is
    /// dirty.
    pub fn give_up(&self) {
        let (Some(shared), Some(stores)) = (self.shared.upgrade(), self.stores.upgrade()) else {
            return;
        };
        if !stores.are_given_up() && shared.lock_anyway().may_give_up_stores() {
            stores.give_up_at(Instant::now() + STORE_WAIT_MAX);
        }
    }
}

impl Engine {
    /// For another thread, to end a stop that takes too long because an NBD server hangs.
    pub fn hung_stores(&self) -> HungStores {
        let (shared, stores) = (&self.shared, &self.stores);
        HungStores { shared: Arc::downgrade(shared), stores: Arc::downgrade(stores) }
    }

    /// Announces a stop. The order in progress ends early, a quiesce ends, and requests that wait
    /// for data that cannot be destaged fail soon. If the quiesce cannot end, the requests that it
    /// held back fail, as do all later ones. If it cannot end for some volumes, this is so for these volumes.
    pub fn prepare_stop(&self) {
        self.announce_stop();
        let mut orders = self.orders();
        if self.shared.lock().holds().quiesced().is_none() || orders.unresumed.is_some() {
            return;
        }
        match self.resume_during(&mut orders, &|| true) {
            // What was held back may wait for data that cannot be destaged, too.
            Ok(()) => self.announce_stop(),
            Err(error) => {
                orders.unresumed = Some(error);
                // Headers or flash still note how the stores are, so the machine has to refuse what
                // it gets from now on, including what is held back. Nothing is dirty: the stop only marks the
                // log clean.
                self.shared.order(Order::Stop(StopTarget::Stores));
            }
        }
    }

    fn announce_stop(&self) {
        self.shared.order(Order::PrepareStop);
    }

    /// Finishes the requests in flight, leaves dirty data as `mode` says, and ends. `progress` is
    /// called about ten times a second with the number of dirty blocks.
    ///
    /// # Errors
    /// If dirty data, the clean mark or the notes of how the stores are left could not be written,
    /// or if a quiesce could not end first, so that requests failed. The message says what is lost,
    /// if anything: only data that was acknowledged from memory can be.
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
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, EngineError> {
        self.prepare_stop();
        let keeps = mode == StopMode::Keep || self.stores.are_given_up();
        let destages = !keeps || !self.has_flash;
        let unresumed = self.orders().unresumed.take();
        if unresumed.is_none() {
            self.begin_stop(destages);
        }
        let stopped = self.wait_stopped(progress);
        // What fails once stores are given up only cuts the stop short, unless memory alone has data.
        let keeps_all = self.has_flash || self.shared.lock().cache().dirty_blocks() == 0;
        let is_cut_short = self.stores.are_given_up() && keeps_all;
        let stopped = stopped.filter(|result| result.is_ok() || !is_cut_short);
        let still_held = self.still_held();
        let mut noted = match stopped {
            // The notes of the quiesce still stand. New ones would cover up what others have written.
            Some(Ok(_)) if unresumed.is_some() && mode != StopMode::Release => Ok(()),
            Some(Ok(left)) => self.note_stop(mode, left),
            None if mode == StopMode::Release => {
                Err(EngineError::Unsealed(UnsealedReason::CutShort))
            }
            _ => Ok(()),
        };
        if self.stores.are_given_up() && mode != StopMode::Release {
            // Without a note the stores are believed, as after a kill.
            noted = Ok(());
        }

        let core = self.shared.lock();
        let dirty = core.cache().dirty_blocks();
        // Of a stop that is cut short, the flush to flash decides whether it failed.
        let stopped = stopped.map(|stopped| stopped.map(drop));
        let result = stopped.or(core.cache().flushed()).unwrap_or(Ok(()));
        drop(core);
        let taped = self.end().map_or(Ok(()), Recorder::finish);
        if mode == StopMode::Release {
            // Others will use the stores, so this comes first.
            noted?;
            noted = Ok(());
        }
        if let Some(why) = unresumed {
            return Err(EngineError::HeldRefused(Box::new(why)));
        }
        // What became of data comes first.
        noted?;
        result.map_err(|error| self.destage_error("the stop", error))?;
        taped.map_err(|e| EngineError::System("write the tape", e))?;
        if let Some(why) = still_held {
            return Err(EngineError::HeldRefused(Box::new(why)));
        }
        Ok(dirty)
    }

    /// Asks the machine to stop.
    fn begin_stop(&self, destages: bool) {
        if destages && self.has_flash && self.orders().marks_dirty {
            // This only leaves less for the stop itself, which flushes again, waits for that, and
            // reports what it could not write.
            let _ = self.flush_all();
        }
        let target = if destages { StopTarget::Stores } else { StopTarget::Flash };
        self.shared.order(Order::Stop(target));
    }

    /// Waits until the machine has stopped; `None` if `progress` has cut this short.
    fn wait_stopped(
        &self,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Option<Result<StoresLeft, DestageError>> {
        let stopped = self.shared.wait_notice(
            |notice| match notice {
                Notice::Stopped(result) => Some(*result),
                _ => None,
            },
            |core| (core.cache().dirty_blocks(), core.is_safe_on_flash()),
            |(dirty, is_safe)| match progress(dirty) {
                ControlFlow::Break(()) if is_safe => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            },
        );
        stopped.ok()
    }

    /// Notes how the stores are left, once nothing writes to them any more. A write after its
    /// fingerprint was taken would look as if others had written to the store.
    fn note_stop(&self, mode: StopMode, left: StoresLeft) -> Result<(), EngineError> {
        let until = Instant::now() + IDLE_WAIT_MAX;
        // The machine begins no write to a store after its stop.
        if self.shared.wait_for_rest(Rest::Idle, |_| Instant::now() < until).is_none() {
            // Without a note the stores are believed, as after a kill.
            return match mode {
                StopMode::Release => Err(EngineError::Unsealed(UnsealedReason::InProgress)),
                StopMode::Keep | StopMode::Destage => Ok(()),
            };
        }
        let left = match (left, mode) {
            (StoresLeft::Behind, _) => StoreState::Dirty,
            (StoresLeft::Whole, StopMode::Release) => StoreState::Released,
            (StoresLeft::Whole, StopMode::Keep | StopMode::Destage) => StoreState::Whole,
        };
        let unsealed = |error| EngineError::Unsealed(UnsealedReason::Failed(Box::new(error)));
        // A store that does not answer gets no note: the next start treats it as after a kill. If a stamp does not end,
        // no store gets one.
        let wait = HeldWait::endless(self.shared.lock().life()).limited(SILENCE_MAX);
        let goes_on = || !self.stores.are_given_up();
        let noted = store_notes::end_stamping(self, wait);
        noted
            .and_then(|()| store_notes::note_stores(self, left, &patience(&goes_on)).result())
            .map_err(unsealed)
    }

    /// Ends at once, as if the process had been killed: for tests.
    pub fn kill(mut self) {
        self.end();
    }

    /// Makes all acknowledged data durable on flash.
    fn flush_all(&self) -> Result<(), EngineError> {
        let mut session = self.session()?;
        let flush = |(tag, volume)| Submission::flush(tag, volume);
        let volumes = self.volumes().iter().map(|v| v.volume);
        let mut requests: Vec<Submission> = (0..).zip(volumes).map(flush).collect();
        let mut done = Vec::new();
        session.submit(&mut requests, &mut done);
        while session.in_flight() > 0 {
            session.wait(None, &mut done);
        }
        let flushed = done.iter().try_for_each(|d| d.result);
        flushed.map_err(|error| self.destage_error("the flush before the stop", error.into()))
    }

    /// Ends the threads and answers all requests. The machine gets no further ones.
    pub(crate) fn end(&mut self) -> Option<Recorder> {
        let thread = self.reaper.take()?;
        let mut core = self.shared.lock_anyway();
        let tape = core.end();
        drop(core);
        self.shared.queries.close();
        self.shared.bell.ring();
        self.stores.give_up_at(Instant::now() + STORE_WAIT_MAX);
        // A thread that panicked has said so; there is nothing left to save.
        let _ = thread.join();
        self.stores.end_waits();
        let _ = self.stamper.take().map(Stamper::join);
        self.shared.lock_anyway().refuse_all();
        tape
    }
}
