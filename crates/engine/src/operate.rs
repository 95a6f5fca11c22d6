//! The orders of operators: a destage, and another write policy. `quiesce.rs` has those that hold
//! clients back. What takes effect at once, such as another size of DRAM, needs no order.
//!
//! One order runs at a time: it holds [`Engine::orders`] until it ends. A stop that is announced
//! cuts short what an order waits for, and lets no other begin. Threads take the engine's locks in
//! this sequence: the orders, the stores by number, the core.

use forebay_block::Volume;
use std::ops::ControlFlow;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use forebay_cache::{Combination, DestageError, Notice, Order, PolicyError};
use forebay_config as words;
use forebay_flash::HeaderChange;
use forebay_setup::SetupError;

use crate::backing_stores::StoreFailure;
use crate::core::{Core, Life};
use crate::engine::Engine;
use crate::error::{DestageFailure, DirtyLeft, EngineError, FailingStore};
use crate::faults;
use crate::held_wait::HELD_WAIT_MAX;
use crate::options::VolumeDescription;
use crate::quiesce::patience;

/// What operators have ordered so far. The thread that holds its lock carries out an order, or
/// starts or stops the engine.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Outside of a quiesce, the headers of the stores say that they lack dirty data: a policy of
    /// this run writes back, or the previous run left dirty data.
    pub marks_dirty: bool,
    /// When writes are acknowledged under write-back, unless an order sets it.
    pub acknowledge: words::Acknowledge,
    /// When to try again to drop what is cached of volumes that are held, if an attempt has failed.
    pub retry_drop_at: Option<Instant>,
    /// An order has not waited for the end of its destage.
    pub left_destage: bool,
    /// Why a stop could not end a quiesce.
    pub unresumed: Option<EngineError>,
}

impl Orders {
    /// At the start.
    pub fn new(config: &words::Config) -> Orders {
        Orders {
            marks_dirty: config.cache.write_policy.keeps_dirty_data(),
            acknowledge: config.acknowledge_of_write_back(),
            retry_drop_at: None,
            left_destage: false,
            unresumed: None,
        }
    }
}

impl Engine {
    /// Waits until the current order has ended.
    pub(crate) fn orders(&self) -> MutexGuard<'_, Orders> {
        // Each field is valid at every point where a panic could be.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the current order has ended, and begins another.
    ///
    /// # Errors
    /// If a stop is announced.
    pub(crate) fn begin_order(&self) -> Result<MutexGuard<'_, Orders>, EngineError> {
        let orders = self.orders();
        match self.shared.lock().life() {
            Life::Serving => Ok(orders),
            _ => Err(EngineError::Stopping),
        }
    }

    /// Destages everything that is dirty now, while requests continue. `progress` is called about
    /// ten times a second with the number of dirty blocks.
    ///
    /// # Errors
    /// If some of it cannot be destaged; it is kept. If a stop is announced.
    pub fn destage(&self, mut progress: impl FnMut(u64)) -> Result<(), EngineError> {
        let mut orders = self.begin_order()?;
        self.destage_during(&mut orders, "the destage", |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        })
    }

    /// Destages as a part of an order called `what`, but does not wait for the end if `progress`
    /// returns an error.
    pub(crate) fn destage_during(
        &self,
        orders: &mut Orders,
        what: &'static str,
        mut progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        let ended = |notice: &Notice| match notice {
            Notice::Destaged(result) => Some(*result),
            _ => None,
        };
        let left = orders.left_destage;
        let begin = |core: &mut Core| {
            if core.life() != Life::Serving {
                return Some(Err(EngineError::Stopping));
            }
            // The notice of one that nobody waited for would be taken for that of this one.
            if left && core.cache().is_destaging() {
                return None;
            }
            while core.news().take_notice(ended).is_some() {}
            core.order(self.shared.clock.now(), Order::Destage);
            Some(Ok(()))
        };
        let dirty = |core: &Core| core.cache().dirty_blocks();
        self.shared.wait_until(begin, dirty, &mut progress)??;
        orders.left_destage = true;
        let result = self.shared.wait_notice(ended, dirty, &mut progress)?;
        orders.left_destage = false;
        result.map_err(|error| self.destage_error(what, error))
    }

    /// Whether this policy is in force.
    pub fn has_policy(&self, policy: words::WritePolicy, acknowledge: words::Acknowledge) -> bool {
        let Ok((machine, acknowledges)) = forebay_setup::policy(policy, acknowledge) else {
            return false;
        };
        let core = self.shared.lock();
        let config = core.cache().config();
        // Only under write-back there is a choice when to acknowledge.
        config.write_policy == machine
            && (!machine.write_back || config.acknowledge == acknowledges)
    }

    /// Changes the write policy, and when writes under write-back are acknowledged. All dirty data
    /// is destaged first; modifying requests wait for the last of it. `None` keeps the last
    /// acknowledgement under write-back, or the configured one.
    ///
    /// # Errors
    /// If this version has no such policy, the policy does not match the tiers or their relation, some dirty data
    /// cannot be destaged, a store answers nothing for 30 s (10 s while a request waits), or a header write takes
    /// 10 s; the policy is then unchanged, and requests continue. If a stop is announced.
    pub fn set_policy(
        &self,
        policy: words::WritePolicy,
        acknowledge: Option<words::Acknowledge>,
    ) -> Result<(), EngineError> {
        let mut orders = self.begin_order()?;
        let acknowledge = acknowledge.unwrap_or(orders.acknowledge);
        let (machine, acknowledges) = forebay_setup::policy(policy, acknowledge)?;
        if machine.write_back && acknowledge == words::Acknowledge::Flash && !self.has_flash {
            return Err(EngineError::NoFlashToAcknowledge);
        }
        let all = Combination::from_config(self.shared.lock().cache().config());
        let changed = Combination { policy: machine, acknowledge: acknowledges, ..all };
        forebay_setup::check_combination(&changed)?;
        if machine.write_back {
            self.mark_dirty(&mut orders)?;
        }

        self.shared.order(Order::SetPolicy(machine, acknowledges));
        match self.wait_policy_set()? {
            Ok(()) => {
                if machine.write_back {
                    orders.acknowledge = acknowledge;
                }
                Ok(())
            }
            // Whatever else was in its way: a stop ends what it waits for.
            Err(_) if self.shared.lock().life() != Life::Serving => Err(EngineError::Stopping),
            Err(PolicyError::Shutdown) => Err(EngineError::Stopping),
            // (The change of a start: one order runs at a time.)
            Err(PolicyError::Changing | PolicyError::CalledOff) => Err(EngineError::Switching),
            Err(PolicyError::FlashFailed) => Err(EngineError::FlashFailed),
            Err(PolicyError::Unfit(why)) => {
                Err(SetupError::Combination { relation: all.relation, why }.into())
            }
            Err(PolicyError::Failed(error)) => Err(self.destage_error("the policy change", error)),
        }
    }

    /// Waits for the end of a change of policy. Calls it off if a stop is announced, or if nothing is written to a
    /// store for [`HELD_WAIT_MAX`].
    ///
    /// # Errors
    /// If the change is called off.
    fn wait_policy_set(&self) -> Result<Result<(), PolicyError>, EngineError> {
        let set = |notice: &Notice| match notice {
            Notice::PolicySet(result) => Some(*result),
            _ => None,
        };
        let (mut progress, mut since) = (None, Instant::now());
        let waited = self.shared.wait_notice(
            set,
            |core| (core.life(), self.written(core)),
            |(life, written)| {
                if progress != Some(written) {
                    (progress, since) = (Some(written), Instant::now());
                }
                match life {
                    Life::Serving if since.elapsed() < HELD_WAIT_MAX => ControlFlow::Continue(()),
                    Life::Serving => ControlFlow::Break(self.policy_silence()),
                    _ => ControlFlow::Break(EngineError::Stopping),
                }
            },
        );
        let Err(error) = waited else { return waited };
        self.shared.order(Order::EndSwitch);
        // A change that waits only for the flash tier ends with the answer of that. A stop waits for neither.
        let ended = |core: &mut Core| {
            let result = core.news().take_notice(set);
            (result.is_some() || core.life() != Life::Serving).then_some(result)
        };
        let ended =
            self.shared.wait_until(ended, |_| (), |()| ControlFlow::<EngineError>::Continue(()));
        match ended? {
            Some(Err(PolicyError::CalledOff)) | None => Err(error),
            Some(result) => Ok(result),
        }
    }

    /// A value that changes as long as a change of policy makes progress. Modifying requests and flushes are held during the last destage,
    /// and reads do not count. Nor do writes to stores that fail, which are repeated without end.
    fn written(&self, core: &Core) -> (u64, u64) {
        let written = |v: &VolumeDescription| {
            let works = core.cache().last_backing_failure(v.volume).is_none();
            let stats = core.cache().volume_stats(v.volume).filter(|_| works)?;
            Some(stats.backing_write_bytes + stats.backing_zero_bytes + stats.backing_syncs)
        };
        (core.cache().dirty_blocks(), self.volumes().iter().filter_map(written).sum())
    }

    /// The error of a change of policy during which stores have answered nothing.
    fn policy_silence(&self) -> EngineError {
        let core = self.shared.lock();
        let dirty = |v: &&VolumeDescription| {
            core.cache().volume_stats(v.volume).is_some_and(|stats| stats.dirty_blocks > 0)
        };
        let mut volumes: Vec<_> =
            self.volumes().iter().filter(dirty).map(|v| v.name.clone()).collect();
        if volumes.is_empty() {
            let used = core.volumes_in_progress();
            let used = self.volumes().iter().filter(|v| used.contains(&v.volume));
            volumes = used.map(|v| v.name.clone()).collect();
        }
        EngineError::NoAnswer { volumes, seconds: HELD_WAIT_MAX.as_secs() }
    }

    /// Notes durably that the stores lack dirty data, before any write can be acknowledged that
    /// they lack. Volumes that pass through keep their headers: nothing becomes dirty there.
    fn mark_dirty(&self, orders: &mut Orders) -> Result<(), EngineError> {
        if self.shared.lock().cache().has_given_up() {
            return Err(EngineError::FlashFailed);
        }
        if self.shared.lock().holds().quiesced().is_some() {
            // Copies of the stores that are made meanwhile must say that they are complete.
            return Err(EngineError::Quiesced);
        }
        if orders.marks_dirty {
            return Ok(());
        }
        let (all, shared): (Vec<Volume>, _) =
            (self.stores.volumes().collect(), self.shared.clone());
        let goes_on = || self.shared.lock().life() == Life::Serving;
        let patience = patience(&goes_on);
        let marked = self.stores.ask(&all, &patience, move |volume, store| {
            // (A volume that begins to pass through after the answer releases its store later, under this lock.)
            let passes_through = shared.lock().cache().passes_through(volume);
            if !store.read_only && !passes_through {
                store.write_header(&HeaderChange::MarkDirty)?;
            }
            Ok::<(), EngineError>(())
        });
        let mut silent = Vec::new();
        // (If such a header is written after the order has given up, it marks a complete store as dirty. Until the next
        // note, the store is then refused without its flash tier, which loses nothing.)
        for (answer, of) in marked.into_iter().zip(self.volumes()) {
            match answer {
                Some(result) => result?,
                None => silent.push(of.name.clone()),
            }
        }
        if !goes_on() {
            return Err(EngineError::Stopping);
        }
        if !silent.is_empty() {
            let seconds = patience.silence.as_secs();
            return Err(EngineError::NoAnswer { volumes: silent, seconds });
        }
        orders.marks_dirty = true;
        Ok(())
    }

    /// Uses this much DRAM for blocks from now on, rounded down to blocks. A smaller size takes
    /// effect as other blocks enter.
    ///
    /// # Errors
    /// If that is more than at the start, or less than one block for each shard.
    pub fn set_dram_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        let mut core = self.shared.lock();
        let config = core.cache().config();
        let (block, least) = (config.block_size.bytes(), u32::from(config.shards));
        let most = config.dram_blocks;
        let blocks = u32::try_from(bytes / block).unwrap_or(u32::MAX);
        if !(least..=most).contains(&blocks) {
            let (least, most) = (u64::from(least) * block, u64::from(most) * block);
            return Err(EngineError::DramSize { bytes, least, most });
        }
        core.order(self.shared.clock.now(), Order::SetDramBlocks(blocks));
        Ok(())
    }

    /// Retries failing backing stores now, instead of at the next due time.
    pub fn retry_stores(&self) {
        self.shared.order(Order::RetryStores);
    }

    /// The names of the volumes whose backing stores did not answer during the last destage, and lack dirty data.
    fn silent_volumes(&self) -> Vec<String> {
        let core = self.shared.lock_anyway();
        let cache = core.cache();
        let lacks = |volume| cache.volume_stats(volume).is_some_and(|v| v.dirty_blocks > 0);
        let all = self.volumes().iter();
        let silent = all.filter(|v| cache.is_silent(v.volume) && lacks(v.volume));
        silent.map(|v| v.name.clone()).collect()
    }

    /// The error of an order, or of the stop, after which not all dirty data is on the backing stores.
    pub(crate) fn destage_error(&self, what: &'static str, error: DestageError) -> EngineError {
        let core = self.shared.lock_anyway();
        let (dirty, in_memory) = (core.cache().dirty_blocks(), core.cache().dirty_in_memory());
        let acknowledged = core.answers_from_memory();
        drop(core);
        // Nothing is unreadable any more if clients have overwritten it meanwhile.
        let why = match faults::unreadable(self) {
            Some(blocks) if error == DestageError::Unreadable => DestageFailure::Unreadable(blocks),
            _ if error == DestageError::Silent => DestageFailure::Silent(self.silent_volumes()),
            _ => DestageFailure::Other(error),
        };
        let core = self.shared.lock_anyway();
        let failing = |v: &VolumeDescription| {
            core.cache().volume_stats(v.volume).filter(|s| s.dirty_blocks > 0)?;
            let failure =
                match (self.stores.session_failure(v.volume), core.unstamped.failure(v.volume)) {
                    (Some(why), _) => StoreFailure::Session(why),
                    (None, Some(why)) => StoreFailure::Header(why.to_owned()),
                    (None, None) => StoreFailure::Io(core.cache().last_backing_failure(v.volume)?),
                };
            Some(FailingStore { volume: v.name.clone(), failure })
        };
        let stores = self.volumes().iter().filter_map(failing).collect();
        drop(core);
        let ended = self.reaper.is_none();
        let on_flash = dirty - in_memory.min(dirty);
        let left = match (self.has_flash, ended) {
            (true, true) if in_memory > 0 && acknowledged => {
                DirtyLeft::NewestLost { on_flash, lost: in_memory }
            }
            (true, true) if in_memory > 0 => {
                DirtyLeft::UnacknowledgedLost { on_flash, lost: in_memory }
            }
            (true, true) => DirtyLeft::OnFlash(dirty),
            (true, false) => DirtyLeft::OnFlashOrInMemory(dirty),
            (false, false) => DirtyLeft::InMemory(dirty),
            (false, true) => DirtyLeft::AllLost(dirty),
        };
        EngineError::Destage { what, why, stores, left }
    }
}
