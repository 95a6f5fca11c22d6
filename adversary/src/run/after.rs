//! The end of a life and what follows: cuts, kills, stops, restarts, and a check of all data.

use std::hash::Hasher;
use std::ops::Range;

use forebay_block::{Flags, Op, Volume};
use forebay_cache::{CacheConfig, Order, StopTarget, StoresLeft};
use forebay_device::choices::Choices;
use forebay_device::memory::{CutStyle, DeviceOptions, Fault};
use forebay_effect::Device;
use forebay_flash::{Binding, LogError, RegionIndex};

use super::older::Accepted;
use super::{Runner, Share};
use crate::sectors::{spoil, values_of};
use crate::world::{Found, Silence, Started, World};

/// Maximum number of times that a start is cut short.
const CUTS_IN_RECOVERY_MAX: u32 = 5;

/// Maximum number of entries per shard in a start that has few.
const ENTRIES_FEW: u64 = 8;

/// How a life ends.
#[derive(Debug)]
pub(crate) enum End {
    Cut,
    Kill,
    Stop { destage: bool },
}

/// Number of completions and timeouts after which an unanswered read, with no other request in
/// flight, counts as hanging.
const PATIENCE: u32 = 20_000;

/// Number of completions and timeouts after a stop during which nothing may be written to the
/// backing stores.
const REST: u32 = 200;

impl Runner<'_> {
    /// Number of faults that changed the contents of the flash device. The loss of the newest
    /// batches cannot be distinguished from a log that ended before them: only later batches or a
    /// clean stop, which record them, reveal the damage.
    pub(super) fn medium_faults(&self) -> u64 {
        let faults = self.world.executor.devices().faults();
        [Fault::LostWrite, Fault::MisdirectedWrite, Fault::ByteRot, Fault::LatentError]
            .map(|f| faults.get(f))
            .iter()
            .sum()
    }

    /// Checks, on copies of the devices, what a power cut at this instant would leave.
    pub(super) fn fork(&mut self) -> Result<(), String> {
        let mut aside = self.take_aside();
        let after = aside.executor.devices_mut();
        let devices = self.world.executor.devices();
        devices.survivors_into(after, CutStyle::Any, &mut self.choices);
        let wiped = match self.plan.flash_lost && self.choices.choose(2) == 1 {
            true => self.wipe(&mut aside),
            false => 0..0,
        };
        if let Some(watch) = self.world.watch.as_ref()
            && (watch.is_harmed() || !wiped.is_empty())
        {
            // Does any surviving data show that something is missing?
            let image = aside.executor.devices().durable(Device::Flash);
            let untold = watch.is_untold(image, wiped);
            let name = if untold { "damage that a cut hides" } else { "damage, then a cut" };
            self.seen.stats.add(name, 1);
            if untold {
                self.wiped = false;
                self.aside = Some(aside);
                return Ok(());
            }
        }
        aside.copy_headers(&self.world, &mut self.choices);
        self.look_aside(aside, |run| {
            if run.plan.has_headers() {
                run.attack();
            }
            run.aftermath()
        })
    }

    /// Checks what a cut at this instant would leave, where `cut` decides what survives: starts the
    /// cache and reads everything; if `again`, kills the cache, starts it and reads everything
    /// again. Does nothing if an earlier cut left the same state.
    pub(crate) fn fork_at(
        &mut self,
        style: CutStyle,
        cut: &mut dyn Choices,
        again: bool,
    ) -> Result<(), String> {
        let mut aside = self.take_aside();
        self.world.executor.devices().survivors_into(aside.executor.devices_mut(), style, cut);
        let (devices, has_flash) = (aside.executor.devices(), self.has_flash());
        if !self.looked_at.is_new(devices, has_flash, &self.oracles, self.world.now, again) {
            self.seen.stats.add("exhaustive: cuts that left nothing new", 1);
            self.aside = Some(aside);
            return Ok(());
        }
        let before = self.choices.enter_first();
        let result = self.look_aside(aside, |run| {
            run.restart()?;
            run.verify("after a cut")?;
            if again {
                run.end(End::Kill, false)?;
                run.restart()?;
                run.verify("after a kill that followed the cut")?;
            }
            Ok(())
        });
        self.choices.leave(before);
        result
    }

    /// Destroys the contents of a world's flash, or a part of them. Returns the bytes of the part;
    /// an empty range if all contents are gone.
    fn wipe(&mut self, world: &mut World) -> Range<usize> {
        let Some(g) = world.config.flash.as_ref().map(|f| f.geometry) else { return 0..0 };
        let devices = world.executor.devices_mut();
        let mut image = devices.durable(Device::Flash).to_vec();
        let page = g.page_size as usize;
        let superblock = g.superblock_pages as usize * page;
        let c = &mut self.choices;
        let (name, part) = match c.choose(6) {
            0 => ("flash wiped", 0..image.len()),
            1 => ("flash overwritten", 0..image.len()),
            2 => ("flash without its superblocks", 0..2 * superblock),
            3 => {
                let copy = c.choose(2) as usize * superblock;
                ("flash without a superblock", copy..copy + superblock)
            }
            4 => {
                let region = RegionIndex(c.choose(g.regions.into()) as u32);
                let start = g.region_start(region) as usize;
                let end = start + g.region_pages as usize;
                ("flash without a region", start * page..end * page)
            }
            _ => {
                let pages = image.len() / page;
                let first = c.choose(pages as u64) as usize;
                let end = (first + 1 + c.choose(8) as usize).min(pages);
                ("flash without some pages", first * page..end * page)
            }
        };
        match name {
            "flash overwritten" => c.garbage(&mut image),
            _ => image[part.clone()].fill(0),
        }
        let whole = part.start == 0 && part.end >= 2 * superblock;
        devices.replace(Device::Flash, image);
        self.wiped = true;
        self.seen.stats.add(name, 1);
        self.tell(|| format!("--- {name}"));
        if whole { 0..0 } else { part }
    }

    fn take_aside(&mut self) -> Box<World> {
        self.aside.take().unwrap_or_else(|| {
            let nothing = DeviceOptions::sized(0);
            let (config, volumes) = (self.scenario.config.clone(), self.scenario.volumes.clone());
            Box::new(World::new(config, volumes, None, |_| nothing, 0))
        })
    }

    /// Calls `what` in a world whose devices have been through a power cut, and then restores the
    /// state of the run.
    fn look_aside(
        &mut self,
        mut aside: Box<World>,
        what: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        aside.reboot(self.scenario.config.clone());
        (aside.now, aside.trace) = (self.world.now, self.world.trace);
        aside.give_bug(self.plan.sabotage);
        let before = (std::mem::take(&mut self.syncs_failed), std::mem::take(&mut self.lies));
        std::mem::swap(&mut self.world, &mut *aside);
        let oracles = self.oracles.clone();
        let open = (std::mem::take(&mut self.open), self.destage.take(), self.share);
        let asked = self.asked.take();
        let others = self.others.clone();
        let failing = (self.outage.take(), std::mem::take(&mut self.ended));
        let unsynced = self.unsynced.take();
        self.tell(|| "--- aside: what would a cut leave?".into());
        self.ended = failing.1;
        self.bring_flash_back();
        self.seen.cuts += 1;
        self.oracles.iter_mut().for_each(|o| o.power_cut(false));
        what(self)?;
        self.tell(|| "--- back".into());
        self.seen.faults.merge(self.world.executor.devices().faults());
        self.oracles = oracles;
        (self.open, self.destage, self.share) = open;
        self.asked = asked;
        self.others = others;
        (self.outage, self.ended) = failing;
        self.unsynced = unsynced;
        self.forget_attack();
        self.wiped = false;
        (self.syncs_failed, self.lies) = before;
        std::mem::swap(&mut self.world, &mut *aside);
        self.world.digest.write_u64(aside.digest.0);
        self.aside = Some(aside);
        Ok(())
    }

    /// After a cut: reads everything, and occasionally again after another restart.
    fn aftermath(&mut self) -> Result<(), String> {
        if !self.restart()? {
            return Ok(());
        }
        self.verify("after a cut")?;
        if self.choices.one_in(4) {
            let end = match self.choices.choose(3) {
                0 => End::Cut,
                1 => End::Kill,
                _ => End::Stop { destage: self.choices.choose(2) == 1 },
            };
            self.end(end, false)?;
            if self.restart()? {
                self.verify("after a second restart")?;
            }
        }
        Ok(())
    }

    /// Ends a life.
    pub(crate) fn end(&mut self, end: End, last: bool) -> Result<(), String> {
        self.forget_question();
        self.world.hung.clear();
        // A failed sync may have lost data from the device's cache, and a restarted process cannot
        // know that. The device must lose power before its contents are trusted again.
        let failed = self.world.executor.devices().faults().get(Fault::SyncFailure);
        let tainted = std::mem::replace(&mut self.syncs_failed, failed) != failed;
        let end = if tainted && matches!(end, End::Kill) { End::Cut } else { end };
        let lied = self.medium_faults() != self.lies;
        let end = if lied && !matches!(end, End::Stop { .. }) {
            End::Stop { destage: false }
        } else {
            end
        };
        self.tell(|| format!("--- {end:?}"));
        self.check_watch()?;
        match end {
            End::Cut => {
                self.cover();
                self.seen.cuts += 1;
                self.world.power_cut(CutStyle::Any, &mut self.choices);
                self.forget_requests();
                self.oracles.iter_mut().for_each(|o| o.power_cut(false));
            }
            End::Kill => {
                self.cover();
                self.seen.kills += 1;
                self.world.kill(&mut self.choices);
                self.forget_requests();
                let lossless = self.scenario.kill_is_lossless;
                self.oracles.iter_mut().for_each(|o| o.kill(lossless));
            }
            End::Stop { destage } => self.stop(destage, last, lied, tainted)?,
        }
        Ok(())
    }

    /// Stops the cache cleanly; unless it is the last stop, the power may then be cut.
    pub(super) fn stop(
        &mut self,
        destage: bool,
        last: bool,
        lied: bool,
        tainted: bool,
    ) -> Result<(), String> {
        self.seen.stops += 1;
        self.set_faults(false);
        let target = if destage { StopTarget::Stores } else { StopTarget::Flash };
        self.world.order(Order::Stop(target));
        let mut turns = 0;
        let result = loop {
            self.hear()?;
            if let Some(result) = self.world.stopped() {
                break result;
            }
            turns += 1;
            if !self.world.complete_one(&mut self.choices) || turns > 100_000 {
                let open = self.open.len();
                return Err(format!(
                    "the stop hangs with {open} requests open: {}",
                    self.world.cache.describe()
                ));
            }
        };
        self.hear()?;
        if !self.open.is_empty() {
            return Err(format!("{} requests were never answered", self.open.len()));
        }
        self.cover();
        self.check_rest()?;
        self.unsettled = lied && result.is_err();
        // The stop must report that flash cannot record the state of the stores.
        let allowed = self.plan.errors_allowed || self.is_flash_gone() || tainted;
        if result.is_err() && !allowed {
            return Err(format!("the stop failed: {result:?}"));
        }
        if destage && result.is_ok() {
            self.check_backing()?;
        }
        if self.plan.has_headers() && !last && result.is_ok() {
            self.note_older(self.plan.errors_allowed)?;
        }
        if self.plan.others && !last && result.is_ok() {
            self.leave_to_others(destage, result == Ok(StoresLeft::Whole), tainted)?;
        } else if !last {
            // A clean stop is a kill that loses nothing; the power may be cut too.
            let cut = self.choices.choose(2) == 0 || tainted;
            if cut {
                self.world.power_cut(CutStyle::Any, &mut self.choices);
            } else {
                self.world.reboot(self.scenario.config.clone());
            }
            for oracle in &mut self.oracles {
                match result {
                    Ok(_) => oracle.power_cut(true),
                    Err(_) if cut => oracle.power_cut(false),
                    // A later power cut may still undo what a failed stop did not sync.
                    Err(_) => oracle.kill(false),
                }
            }
        }
        Ok(())
    }

    /// After a stop, nothing may be written to a backing store, because the state of the stores has
    /// been recorded.
    fn check_rest(&mut self) -> Result<(), String> {
        for _ in 0..REST {
            if let Some(io) = self.world.store_write_in_flight() {
                return Err(format!("a store is written after the stop: {io:?}"));
            }
            if !self.world.complete_one(&mut self.choices) {
                break;
            }
        }
        Ok(())
    }

    /// Draws another policy for the next start and, occasionally, another number of shards or fewer
    /// entries.
    fn draw_config(&mut self) -> CacheConfig {
        let mut config = self.scenario.config.clone();
        (config.write_policy, config.acknowledge) = self.draw_policy();
        let slots = config.flash.as_ref().is_some_and(|f| f.geometry.has_slots());
        let most = config.dram_blocks.min(config.spare_frames).min(config.bounce_frames).min(8);
        config.shards = self.share.shards;
        if !slots && self.reshares {
            match (self.choices.choose(4), &mut config.flash) {
                (3, _) => config.shards = 1 + self.choices.choose(most.into()) as u8,
                (2, Some(flash)) => {
                    let entries = 1 + self.choices.choose(ENTRIES_FEW) as u32;
                    let entries = entries * u32::from(config.shards);
                    flash.entries_max = flash.entries_max.min(entries);
                }
                _ => {}
            }
        }
        let share = Share::from_config(&config);
        let (other, fewer) =
            (share.shards != self.share.shards, share.entries < self.share.entries);
        self.seen.stats.add("starts with other shards", u64::from(other));
        self.seen.stats.add("starts with fewer entries", u64::from(fewer));
        config
    }

    /// Discards the requests in flight, which will not be answered.
    pub(crate) fn forget_requests(&mut self) {
        self.open.clear();
        self.destage = None;
    }

    /// Checks that recovery found the volumes that the superblock must name.
    fn check_bindings(&self) -> Result<(), String> {
        let Found::Log(report) = &self.world.found else { return Ok(()) };
        let named = report.bindings.iter().map(|b| Binding::new(b.volume, b.uuid, b.generation));
        match named.eq(super::bindings(self.scenario.bindings)) {
            true => self.check_seals(&report.bindings),
            false => Err(format!("the superblock names other volumes: {:?}", report.bindings)),
        }
    }

    /// Starts again; may cut the power during the start, even several times. Returns whether the
    /// run continues.
    pub(crate) fn restart(&mut self) -> Result<bool, String> {
        self.set_faults(false);
        self.unsynced = None;
        self.reshares = true;
        for attempt in 0.. {
            if !self.scenario.policies.is_empty() {
                let config = self.draw_config();
                self.tell(|| format!("--- as {:?}, {} shards", config.write_policy, config.shards));
                self.world.reboot(config);
            }
            let unreadable = self.spoil_superblock();
            self.mark_older();
            self.world.start(self.open());
            let cut = attempt < CUTS_IN_RECOVERY_MAX && self.choices.choose(3) == 2;
            let cut_after = if cut { self.choices.choose(30) } else { u64::MAX };
            let (mut done, mut no_place) = (0, false);
            loop {
                match self.world.started() {
                    Started::Ready => {
                        self.seen.stats.add_start(&self.world.found);
                        self.check_bindings()?;
                        self.check_repaired(unreadable)?;
                        self.accepted()?;
                        let accepted = self.older_accepted()?;
                        if accepted == Accepted::Again {
                            break;
                        }
                        self.share = Share::from_config(&self.world.config);
                        self.tell(|| format!("--- found {:?}", self.world.found));
                        self.wiped = false;
                        return Ok(accepted == Accepted::GoesOn);
                    }
                    Started::Refused(why) => {
                        self.seen.stats.add_start(&self.world.found);
                        self.seen.refusals += 1;
                        if let Some(io) = self.world.write_in_flight() {
                            return Err(format!("a refused start ({why}) writes: {io:?}"));
                        }
                        if let Found::Refused(LogError::NoPlace { .. }) = self.world.found
                            && !Share::from_config(&self.world.config).holds_all(self.share)
                        {
                            // Dirty records have no place in the index; under the former
                            // configuration, they have.
                            self.seen.stats.add("starts without a place refused", 1);
                            (self.reshares, no_place) = (false, true);
                            break;
                        }
                        if let Found::Refused(LogError::Changed { volume, .. }) = self.world.found {
                            self.refused_to_start(volume)?;
                            break;
                        }
                        if let Found::Refused(LogError::Older { volume, which }) = self.world.found
                        {
                            self.older_refused(volume, which)?;
                            break;
                        }
                        if std::mem::take(&mut self.wiped) {
                            // Nothing is lost with this flash tier, so the operator formats a new
                            // one.
                            self.world.reboot(self.world.config.clone());
                            self.seen.stats.add("flash formatted again", 1);
                            return self.format().map(|()| true);
                        }
                        if self.plan.errors_allowed {
                            return Ok(false);
                        }
                        return Err(format!("recovery refused: {why}"));
                    }
                    Started::NotYet => {}
                }
                if done == cut_after {
                    break;
                }
                done += 1;
                if !self.world.complete_one(&mut self.choices) {
                    return Err(format!("recovery hangs: {}", self.world.cache.describe()));
                }
            }
            let refused =
                std::mem::take(&mut self.others.refused) | std::mem::take(&mut self.older.refused);
            if refused || no_place {
                continue;
            }
            self.others.seals = None;
            self.tell(|| format!("--- cut in recovery after {done}"));
            self.seen.cuts_in_recovery += 1;
            self.older_cut();
            self.world.power_cut(CutStyle::Any, &mut self.choices);
            self.oracles.iter_mut().for_each(|o| o.power_cut(false));
        }
        unreachable!("the last attempt is not cut")
    }

    /// Reads and checks all data while nothing else happens.
    pub(crate) fn verify(&mut self, when: &'static str) -> Result<(), String> {
        for volume in 0..self.oracles.len() {
            let sectors = self.oracles[volume].sectors();
            let step = self.scenario.config.block_size.bytes() / 512;
            let mut first = 0;
            while first < sectors {
                let count = step.min(sectors - first);
                // Most of a large volume was never written; check only a sample of those blocks.
                let large = sectors / step > 64 && !(first / step).is_multiple_of(8);
                if large && self.oracles[volume].is_pristine(first, count) {
                    first += count;
                    continue;
                }
                self.check_contents((volume, first, count), when)?;
                let ticket = self.oracles[volume].read_issued(first, count);
                let (offset, length) = (first * 512, count * 512);
                let v = volume as u32;
                while !self.world.cache.has_room() {
                    // A change of the policy may be in progress.
                    if !self.world.complete_one(&mut self.choices) {
                        return Err(format!("{when}: no room: {}", self.world.cache.describe()));
                    }
                }
                self.world.submit(v, Op::Read, Flags::NONE, offset, length, spoil);
                let mut patience = PATIENCE;
                let (result, data) = loop {
                    if let Some((_, result, data)) = self.world.replies().pop() {
                        break (result, data);
                    }
                    patience -= 1;
                    if patience == 0 || !self.world.complete_one(&mut self.choices) {
                        return Err(format!(
                            "{when}: a read hangs: {}",
                            self.world.cache.describe()
                        ));
                    }
                };
                if let Err(e) = result {
                    if !self.plan.errors_allowed {
                        return Err(format!("{when}: a read failed: {e}"));
                    }
                } else {
                    let values = values_of(&data, v, first);
                    let checked = self.oracles[volume].read_done(&ticket, &values, when);
                    checked.map_err(|x| x.to_string())?;
                }
                self.world.requests.put_back(data);
                first += count;
            }
        }
        Ok(())
    }

    /// After a stop with destage: checks that the backing stores alone hold all data.
    pub(crate) fn check_backing(&mut self) -> Result<(), String> {
        for (volume, oracle) in self.oracles.iter().enumerate() {
            let device = Device::Backing(Volume(volume as u32));
            let bytes = self.world.executor.devices().durable(device);
            let values = values_of(&bytes[..oracle.sectors() as usize * 512], volume as u32, 0);
            for (sector, value) in values.into_iter().enumerate() {
                if !oracle.admits(sector as u64, value) {
                    return Err(format!(
                        "after a stop with destage: sector {sector} of volume {volume} on the \
                         backing store holds {value:?}; expected one of {:?}",
                        oracle.admissible(sector as u64)
                    ));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn cover(&mut self) {
        self.seen.stats.add_life(&self.world.cache);
        let left = std::mem::take(&mut self.world.left_hung);
        for (silence, n) in Silence::ALL.into_iter().zip(left) {
            self.seen.stats.add(silence.left(), n);
        }
    }
}
