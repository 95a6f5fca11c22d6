//! Stores that take nothing for long. Clients of another store must be served, and none may wait for
//! ever.

use forebay_block::Volume;
use forebay_cache::Order;
use forebay_device::choices::Choices;
use forebay_device::memory::{Fault, FaultRates, Return};
use forebay_effect::{Device, Outcome};

use super::{Expect, FlashEnd, Runner};

/// Completions and timeouts that requests may take before they count as hanging.
const TURNS_MAX: u32 = 100_000;

impl Runner<'_> {
    /// A store begins to fail; or while one does: the others are waited for, or it is mended.
    pub(super) fn outage(&mut self) -> Result<(), String> {
        let Some(failing) = self.outage else {
            let volume = self.choices.choose(self.oracles.len() as u64) as usize;
            let fault = match self.choices.choose(2) {
                0 => Fault::NoSpace,
                _ => Fault::TransientError,
            };
            self.tell(|| format!("the store of volume {volume} takes nothing: {fault:?}"));
            self.set_store(volume, FaultRates::NONE.with(fault, 1));
            self.outage = Some(volume);
            self.seen.stats.add("stores: outages", 1);
            return Ok(());
        };
        match self.choices.choose(4) {
            0 => {
                self.tell(|| format!("the store of volume {failing} works again"));
                self.set_store(failing, FaultRates::NONE);
                self.outage = None;
                if self.choices.choose(2) == 0 {
                    self.world.order(Order::RetryStores);
                }
                // (If not, it is found by a probe.)
                self.wait_for(None)
            }
            1 => self.wait_for(None),
            _ => self.wait_for(Some(failing)),
        }
    }

    /// Syncs of a store fail from now on; or while they do: they go well again, or requests are waited for.
    /// In each life it is the same store.
    pub(super) fn fail_syncs(&mut self) -> Result<(), String> {
        if self.choices.choose(2) == 0 {
            // Whatever fails: nobody may wait for a sync of this store for ever.
            return self.wait_for(None);
        }
        let volumes = self.oracles.len() as u64;
        let volume = self.unsynced.unwrap_or_else(|| self.choices.choose(volumes) as usize);
        let fails = self.choices.choose(3) != 0;
        self.tell(|| format!("syncs of volume {volume} fail: {fails}"));
        let rates = FaultRates::NONE;
        self.set_store(volume, if fails { rates.with(Fault::SyncFailure, 1) } else { rates });
        if fails {
            self.unsynced = Some(volume);
            self.seen.stats.add("stores: syncs begin to fail", 1);
        }
        Ok(())
    }

    /// Whether the answer says what a failed sync has made durable.
    pub(super) fn needs_lost_sync(&self, expect: &Expect) -> bool {
        let durable = match expect {
            Expect::Read { .. } => false,
            Expect::Write { fua, .. } => fua.is_some(),
            Expect::Flush { .. } => true,
        };
        durable && self.unsynced == Some(expect.volume())
    }

    /// Waits until all are answered, or all of other volumes than one.
    fn wait_for(&mut self, but: Option<usize>) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.hear()?;
            if self.open.values().all(|expect| Some(expect.volume()) == but) {
                return Ok(());
            }
            if !self.world.complete_one(&mut self.choices) {
                break;
            }
        }
        Err(format!(
            "requests wait for the store of another volume: {:?}, {}",
            self.open,
            self.world.cache.describe()
        ))
    }

    /// Flash runs out of space, but for its superblocks, or is gone with what it has not made durable.
    pub(super) fn end_flash(&mut self, how: FlashEnd) {
        let Some(flash) = &self.scenario.config.flash else { return };
        let geometry = &flash.geometry;
        let from = u64::from(geometry.first_region_page() * geometry.page_size);
        self.tell(|| format!("flash is {how:?}"));
        let devices = self.world.executor.devices_mut();
        match how {
            FlashEnd::Full => devices.set_full_from(Device::Flash, from),
            FlashEnd::Gone => devices.vanish(Device::Flash, &mut self.choices),
        }
        self.ended = true;
    }

    /// It has room, or is there, again.
    pub(super) fn bring_flash_back(&mut self) {
        if std::mem::take(&mut self.ended) {
            let devices = self.world.executor.devices_mut();
            match self.plan.flash_end {
                Some(FlashEnd::Gone) => devices.restore(Device::Flash, Return::Same),
                _ => devices.set_full_from(Device::Flash, u64::MAX),
            }
        }
    }

    /// Whether flash is gone.
    pub(super) fn is_flash_gone(&self) -> bool {
        self.ended && self.plan.flash_end == Some(FlashEnd::Gone)
    }

    /// If flash has failed, waits until all volumes go on without it.
    pub(super) fn await_pass_through(&mut self) -> Result<(), String> {
        // (What is dirty on flash that is gone is nowhere else.)
        let stays = self.is_flash_gone() && self.plan.errors_allowed;
        if !self.ended || !self.world.cache.has_given_up() || stays {
            return Ok(());
        }
        for _ in 0..TURNS_MAX {
            self.hear()?;
            let volumes = self.oracles.len() as u32;
            if (0..volumes).all(|v| self.world.cache.passes_through(Volume(v))) {
                let name = match self.plan.flash_end {
                    Some(FlashEnd::Gone) => "flash that is gone: all volumes bypassed it",
                    _ => "full flash: all volumes bypassed it",
                };
                self.seen.stats.add(name, 1);
                return Ok(());
            }
            if !self.world.complete_one(&mut self.choices) {
                break;
            }
        }
        Err(format!("volumes do not bypass flash: {}", self.world.cache.describe()))
    }

    fn set_store(&mut self, volume: usize, rates: FaultRates) {
        let device = Device::Backing(Volume(volume as u32));
        self.world.executor.devices_mut().set_rates(device, rates);
    }

    /// A request was answered.
    pub(super) fn note_outage(&mut self, volume: usize, result: Outcome) {
        if self.outage.is_some_and(|failing| failing != volume) {
            let name = match result {
                Ok(()) => "stores: requests served during an outage of another",
                Err(_) => "stores: requests failed during an outage of another",
            };
            self.seen.stats.add(name, 1);
        }
    }
}
