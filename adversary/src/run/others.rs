//! Other programs that use the backing stores after a stop and during a quiesce. Clients must then
//! find what these programs wrote, and no start may use cached blocks that they have changed.
//!
//! The runner handles headers and fingerprints as an engine does: it knows which stores were
//! changed, and reports them at each start until one has succeeded.

use forebay_block::Volume;
use forebay_cache::{Open, Order};
use forebay_device::choices::Choices;
use forebay_device::memory::CutStyle;
use forebay_effect::Device;
use forebay_flash::{Binding, SEAL_BYTES, Seal, Sealed};

use super::Runner;
use crate::oracle::Oracle;
use crate::sectors::stamp;

/// Maximum number of completions of an operation; more count as hanging.
pub(super) const TURNS_MAX: u32 = 100_000;

/// What other programs have done, and what the cache knows of it.
#[derive(Clone, Debug)]
pub(super) struct Others {
    /// Volumes whose stores the next start must treat as changed.
    changed: Vec<Volume>,
    /// Whether some of these volumes certainly have dirty data.
    dirty: bool,
    /// Whether all of these volumes certainly have no dirty data.
    clean: bool,
    /// The seals that the next start must find, if they are known.
    pub seals: Option<Vec<(Volume, Seal)>>,
    /// Whether a start was refused because of the changes.
    pub refused: bool,
    /// The contents of the stores and the oracles before the changes, for an operator who restores
    /// the stores.
    before: Option<(Vec<Vec<u8>>, Vec<Oracle>)>,
    /// Whether the operator has all clean blocks dropped after the next successful start.
    drops: bool,
}

impl Default for Others {
    fn default() -> Others {
        Others {
            changed: Vec::new(),
            dirty: false,
            clean: true,
            seals: Some(Vec::new()),
            refused: false,
            before: None,
            drops: false,
        }
    }
}

impl Runner<'_> {
    /// After a successful stop: seals the stores, and may let other programs use them. `whole`: the
    /// stores hold all data, and the log knows it. `tainted`: a sync failed, so devices lose power
    /// first.
    pub(super) fn leave_to_others(
        &mut self,
        destaged: bool,
        whole: bool,
        tainted: bool,
    ) -> Result<(), String> {
        let volumes = self.oracles.len();
        let writes_back = self.world.cache.config().write_policy.write_back;
        let dirty: Vec<bool> = (0..volumes as u32)
            .map(|v| self.world.cache.volume_stats(Volume(v)).is_some_and(|s| s.dirty_blocks > 0))
            .collect();
        let released: Vec<bool> =
            dirty.iter().map(|dirty| !dirty && destaged && self.choices.choose(4) == 3).collect();
        let patience = self.choices_of_a_cut();
        let noted = self.note(&released, patience)?;
        match self.choices.choose(2) * u64::from(!tainted) {
            0 => self.world.power_cut(CutStyle::Any, &mut self.choices),
            _ => self.world.reboot(self.scenario.config.clone()),
        }
        self.oracles.iter_mut().for_each(|o| o.power_cut(true));
        if !noted || self.choices.choose(3) == 0 {
            return Ok(());
        }
        self.seen.stats.add("stores used by others between runs", 1);
        let mended = u64::from(tainted && destaged);
        self.seen.stats.add("stores used by others after a failed sync that was mended", mended);
        let before = (self.stores(), self.oracles.clone());
        // Data that was destaged in a life that left dirty data may count as dirty again.
        let certain = whole || !writes_back;
        for v in 0..volumes {
            if self.choices.choose(2) == 0 {
                continue;
            }
            // If dirty data may be newer than what other programs write, either may be found in the
            // end.
            self.write_past(v, certain);
            if !released[v] {
                self.others.changed.push(Volume(v as u32));
                self.others.dirty |= dirty[v];
                self.others.clean &= certain;
            }
        }
        self.others.before = Some(before);
        // The log is not responsible for what other programs wrote.
        self.world.reboot(self.scenario.config.clone());
        Ok(())
    }

    /// Draws after how many completions a cut comes, which may be before a seal is durable.
    pub(super) fn choices_of_a_cut(&mut self) -> u32 {
        match self.choices.choose(4) {
            3 => self.choices.choose(8) as u32,
            _ => TURNS_MAX,
        }
    }

    /// Seals the stores; returns false if a cut came first.
    fn note(&mut self, released: &[bool], patience: u32) -> Result<bool, String> {
        let mut volumes = Vec::new();
        for (v, &distrust) in released.iter().enumerate() {
            let seal = [1 + self.choices.choose(250) as u8; SEAL_BYTES];
            volumes.push(Sealed { volume: Volume(v as u32), seal, distrust, stamp: None });
        }
        self.tell(|| {
            format!("--- seal {:?}", volumes.iter().map(|v| v.distrust).collect::<Vec<_>>())
        });
        self.seal(volumes, patience)
    }

    pub(super) fn seal(&mut self, volumes: Vec<Sealed>, patience: u32) -> Result<bool, String> {
        let seals = volumes.iter().map(|v| (v.volume, v.seal)).collect();
        self.others.seals = None;
        self.world.order(Order::Seal(volumes));
        for _ in 0..patience {
            if let Some(result) = self.world.sealed() {
                if let Err(e) = result {
                    // This may happen if flash is full.
                    return if self.ended { Ok(false) } else { Err(format!("a seal failed: {e}")) };
                }
                self.others.seals = Some(seals);
                self.seen.stats.add("seals", 1);
                return Ok(true);
            }
            self.check_watch()?;
            if !self.world.complete_one(&mut self.choices) {
                return Err(format!("a seal hangs: {}", self.world.cache.describe()));
            }
        }
        self.seen.stats.add("seals cut short", 1);
        Ok(false)
    }

    /// The contents of the backing stores.
    fn stores(&self) -> Vec<Vec<u8>> {
        let devices = self.world.executor.devices();
        let held = |v| devices.durable(Device::Backing(Volume(v))).to_vec();
        (0..self.oracles.len() as u32).map(held).collect()
    }

    /// Lets another program write to a store. `certain`: the cache has no newer data.
    fn write_past(&mut self, volume: usize, certain: bool) {
        let device = Device::Backing(Volume(volume as u32));
        let mut bytes = self.world.executor.devices().durable(device).to_vec();
        for _ in 0..1 + self.choices.choose(3) {
            let sectors = self.oracles[volume].sectors();
            let block = self.scenario.config.block_size.bytes() / 512;
            let (first, count) = self.range(volume, sectors, block);
            let id = self.world.next_version;
            self.world.next_version += 1;
            self.tell(|| format!("--- others write v{volume} {first}+{count} (write {id})"));
            let oracle = &mut self.oracles[volume];
            let durable = oracle.durable_issued(first, count);
            oracle.write_issued(id, first, count, false);
            oracle.write_ended(id, first, count, certain);
            if certain {
                oracle.durable_done(&durable);
            }
            stamp(
                &mut bytes[first as usize * 512..][..count as usize * 512],
                volume as u32,
                first,
                id,
            );
        }
        self.world.executor.devices_mut().replace(device, bytes);
    }

    /// The parameters of the next start.
    pub(super) fn open(&self) -> Open {
        let drop_clean = self.others.drops || self.older.drops;
        let changed = if drop_clean { Vec::new() } else { self.others.changed.clone() };
        Open::Recover { changed, drop_clean, stores: self.world.store_stamps() }
    }

    /// Checks that recovery found the seals that it must find.
    pub(super) fn check_seals(&self, bindings: &[Binding]) -> Result<(), String> {
        let Some(seals) = &self.others.seals else { return Ok(()) };
        for binding in bindings {
            let expected = seals.iter().find(|s| s.0 == binding.volume).map(|s| s.1);
            if binding.seal != expected.unwrap_or([0; SEAL_BYTES]) {
                return Err(format!(
                    "volume {} was sealed with {expected:?}, but is found with {:?}",
                    binding.volume, binding.seal
                ));
            }
        }
        Ok(())
    }

    /// Handles a successful start.
    pub(super) fn accepted(&mut self) -> Result<(), String> {
        if self.others.drops {
            self.settle("dropping clean contents")?;
            let all = (0..self.oracles.len() as u32).map(|n| Sealed {
                volume: Volume(n),
                seal: [0; SEAL_BYTES],
                distrust: true,
                stamp: None,
            });
            self.seal(all.collect(), TURNS_MAX)?;
            self.seen.stats.add("clean contents dropped past dirty data", 1);
        } else if !self.others.changed.is_empty() {
            if self.others.dirty {
                return Err(
                    "a start accepted a changed store for which there was dirty data".into()
                );
            }
            self.seen.stats.add("starts with changed stores", 1);
        }
        self.others = Others::default();
        Ok(())
    }

    /// Handles a start that was refused because other programs changed a store: the operator
    /// restores the stores, or has dirty blocks written over them.
    pub(super) fn refused_to_start(&mut self, volume: Volume) -> Result<(), String> {
        if !self.others.changed.contains(&volume) {
            return Err(format!("volume {volume} was refused as changed, but was not changed"));
        }
        if self.others.clean {
            return Err(format!("volume {volume} was refused, but nothing is dirty"));
        }
        self.seen.stats.add("refused: a changed store and dirty data", 1);
        self.others.refused = true;
        match self.others.before.take() {
            Some((stores, oracles)) if self.choices.choose(2) == 0 => {
                for (v, bytes) in stores.into_iter().enumerate() {
                    let device = Device::Backing(Volume(v as u32));
                    self.world.executor.devices_mut().replace(device, bytes);
                }
                self.oracles = oracles;
                (self.others.changed, self.others.dirty) = (Vec::new(), false);
            }
            _ => self.others.drops = true,
        }
        self.world.reboot(self.world.config.clone());
        Ok(())
    }

    /// Waits until nothing is dirty or in flight. The cache accepts requests, but no client sends
    /// any.
    pub(super) fn settle(&mut self, what: &str) -> Result<(), String> {
        let (mut asked, mut over) = (false, false);
        for _ in 0..TURNS_MAX {
            self.hear()?;
            if asked && let Some(result) = self.world.destaged() {
                match result {
                    // Flash has failed meanwhile; request another destage after the next
                    // completion.
                    Err(_) if self.ended => _ = self.world.complete_one(&mut self.choices),
                    result => result.map_err(|e| format!("the destage of {what} failed: {e}"))?,
                }
                (asked, over) = (false, self.world.cache.dirty_blocks() == 0);
            }
            let idle = self.open.is_empty() && !asked;
            if idle && over && self.world.cache.is_quiet() {
                return Ok(());
            }
            if idle && !over {
                asked = true;
                self.world.order(Order::Destage);
            } else if !self.world.complete_one(&mut self.choices) {
                return Err(format!("{what} hangs: {}", self.world.cache.describe()));
            }
        }
        Err(format!("{what} does not end: {}", self.world.cache.describe()))
    }

    /// The operator quiesces the cache, uses a store, and lets the cache continue; or the power is
    /// cut.
    pub(super) fn quiet(&mut self) -> Result<(), String> {
        if self.destage.is_some() {
            return Ok(());
        }
        self.settle("a quiesce")?;
        // As in an engine, no client reads until the cache continues.
        self.judge_seen(u64::MAX)?;
        self.world.let_read(false);
        let done = self.quiesce();
        self.world.let_read(true);
        done?;
        self.hear()
    }

    fn quiesce(&mut self) -> Result<(), String> {
        self.oracles.iter_mut().for_each(|o| {
            let all = o.flush_issued();
            o.flush_done(&all);
        });
        self.fork_now()?;
        let none = vec![false; self.oracles.len()];
        if !self.note(&none, TURNS_MAX)? {
            return Ok(());
        }
        self.fork_now()?;
        if self.choices.choose(2) == 1 {
            let v = self.choices.choose(self.oracles.len() as u64) as usize;
            self.write_past(v, true);
            self.others.changed.push(Volume(v as u32));
            self.fork_now()?;
            let (volume, seal) = (Volume(v as u32), [0; SEAL_BYTES]);
            let distrust = vec![Sealed { volume, seal, distrust: true, stamp: None }];
            let seals = self.others.seals.take();
            self.seal(distrust, TURNS_MAX)?;
            let changed = |seal: (Volume, Seal)| match seal.0 == volume {
                true => (seal.0, [0; SEAL_BYTES]),
                false => seal,
            };
            self.others.seals = seals.map(|seals| seals.into_iter().map(changed).collect());
            self.others.changed.clear();
            self.seen.stats.add("stores taken over live", 1);
            self.fork_now()?;
        }
        let zeroes =
            |volume| Sealed { volume, seal: [0; SEAL_BYTES], distrust: false, stamp: None };
        let volumes = (0..self.oracles.len() as u32).map(Volume);
        self.seal(volumes.map(zeroes).collect(), TURNS_MAX)?;
        Ok(())
    }

    /// Sometimes checks what a cut at this instant would leave.
    fn fork_now(&mut self) -> Result<(), String> {
        match self.choices.choose(3) {
            2 => self.fork(),
            _ => Ok(()),
        }
    }
}
