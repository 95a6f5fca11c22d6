//! Stores that reject all operations for a long time. Clients of other stores must be served, and
//! no request may wait forever.

use forebay_block::Volume;
use forebay_cache::Order;
use forebay_device::choices::Choices;
use forebay_device::memory::{Fault, FaultRates, Return};
use forebay_effect::{Device, Outcome};

use super::{Expect, FlashEnd, Runner};
use crate::world::Silence;

/// Maximum number of completions and timeouts before requests count as hanging.
const TURNS_MAX: u32 = 100_000;

impl Runner<'_> {
    /// Makes a store fail; or, if one already fails, waits for requests or repairs the store.
    pub(super) fn outage(&mut self) -> Result<(), String> {
        let Some(failing) = self.outage else {
            let volume = self.choices.choose(self.oracles.len() as u64) as usize;
            let fault = match self.choices.choose(2) {
                0 => Fault::NoSpace,
                _ => Fault::TransientError,
            };
            self.tell(|| format!("the store of volume {volume} accepts nothing: {fault:?}"));
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
                // Otherwise, the cache finds out by a probe.
                self.wait_for(&[])
            }
            1 => self.wait_for(&[]),
            _ => self.wait_for(&[Volume(failing as u32)]),
        }
    }

    /// Makes a store hang. Or, if as many hang as may, waits for requests or lets a store answer.
    /// No request to another volume waits for ever, except while everything is destaged.
    pub(super) fn hang(&mut self) -> Result<(), String> {
        let volumes = self.oracles.len();
        let more = match self.world.hung.len() {
            0 => true,
            // One store always works, and flash has a few blocks for each volume.
            n => {
                let share = self.world.cache.dirty_share().unwrap_or(0);
                let may = n < self.plan.hung_max && n + 1 < volumes && share >= 2 * volumes as u64;
                may && self.choices.choose(2) == 0
            }
        };
        if more {
            if self.owes_too_much() {
                return Ok(());
            }
            let volume = Volume(self.choices.choose(volumes as u64) as u32);
            let silence = Silence::ALL[self.choices.choose(Silence::ALL.len() as u64) as usize];
            if !self.world.hangs(volume) {
                self.tell(|| format!("the store of volume {volume:?} hangs: {silence:?}"));
                self.world.hung.push((volume, silence));
                self.seen.stats.add("stores: hangs", 1);
                if self.world.hung.len() > 1 {
                    self.seen.stats.add("stores: one hangs while another does", 1);
                }
            }
            return Ok(());
        }
        match self.choices.choose(4) {
            0 => {
                let (volume, _) = self.world.hung.remove(0);
                self.tell(|| format!("the store of volume {volume:?} answers"));
                if self.world.hung.is_empty() || self.destage.is_none() {
                    return self.wait_for_all_but_hung();
                }
                Ok(())
            }
            1 => Ok(()),
            _ if self.destage.is_some() => Ok(()),
            _ => {
                self.seen.stats.add("stores: waits for others while one hangs", 1);
                self.wait_for_all_but_hung()
            }
        }
    }

    /// Whether more is dirty than clients may write: after a cut, what had been destaged may count as dirty again. Of
    /// that, a store that hangs may owe more than the log can carry on.
    fn owes_too_much(&self) -> bool {
        let cache = &self.world.cache;
        let volumes = (0..self.oracles.len() as u32).map(Volume);
        let dirty = volumes.filter_map(|volume| cache.volume_stats(volume));
        let dirty: u64 = dirty.map(|stats| stats.dirty_blocks).sum();
        // All volumes together may have half as much again as the share of one.
        cache.dirty_share().is_some_and(|share| dirty * 2 > share * 3)
    }

    fn wait_for_all_but_hung(&mut self) -> Result<(), String> {
        let hung: Vec<Volume> = self.world.hung.iter().map(|&(volume, _)| volume).collect();
        self.wait_for(&hung)
    }

    /// Makes the syncs of a store fail; or, if they already fail, makes them succeed or waits for
    /// requests. The store is the same throughout a life.
    pub(super) fn fail_syncs(&mut self) -> Result<(), String> {
        if self.choices.choose(2) == 0 {
            // Even if syncs of this store fail, no request may wait forever for one.
            return self.wait_for(&[]);
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

    /// Whether the reply would claim that data is durable for which a sync failed.
    pub(super) fn needs_lost_sync(&self, expect: &Expect) -> bool {
        let durable = match expect {
            Expect::Read { .. } => false,
            Expect::Write { fua, .. } => fua.is_some(),
            Expect::Flush { .. } => true,
        };
        durable && self.unsynced == Some(expect.volume())
    }

    /// Waits until all requests to volumes other than `but` are answered.
    fn wait_for(&mut self, but: &[Volume]) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.hear()?;
            if self.open.values().all(|expect| but.iter().any(|v| v.index() == expect.volume())) {
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

    /// Makes flash run out of space except for its superblocks, or disappear together with the data
    /// that is not durable.
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

    /// Makes flash have space again, or brings it back.
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

    /// If flash has failed, waits until all volumes bypass it.
    pub(super) fn await_pass_through(&mut self) -> Result<(), String> {
        // Dirty data on flash that has disappeared exists nowhere else.
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

    /// Counts a reply during an outage of another store.
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
