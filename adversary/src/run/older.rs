//! Replaces devices by older copies of themselves, one at a time; stamps exist to detect this.
//!
//! The runner handles headers as an engine does, and keeps copies of the durable contents of
//! devices at several moments of a life. After the life, such a copy replaces one device. Then a
//! start has several options. It may refuse, and must find everything once the newer device is
//! back. It may complete an older store from the log, so that the stores alone hold everything; if
//! this is cut short, a later start continues it. It may report which volume's store is older (and
//! serve the store as it is), or that it dropped the contents of the flash tier (and serve the
//! correct data). If it reports nothing, the copy must be newer than the last stamp. The test knows
//! this from the answers that it gave to the state machine, not from the contents of the copy.

use forebay_block::{PerVolume, Volume};
use forebay_cache::{Open, Order};
use forebay_device::choices::Choices;
use forebay_effect::Device;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{
    BatchSequence, HeaderChange, Older, OpenFlags, SEAL_BYTES, Sealed, Stamp, StampNumber,
    StoreHeader, SuperblockGeneration,
};

use super::others::TURNS_MAX;
use super::{Runner, Share};
use crate::oracle::{Oracle, Value};
use crate::sectors::values_of;
use crate::world::Found;

/// Maximum number of copies to keep of a life.
const COPIES_MAX: usize = 8;

/// The durable contents of a device.
#[derive(Clone, Debug)]
struct Copy {
    device: Device,
    image: Vec<u8>,
    /// The header of the store, if the device is a store.
    header: StoreHeader,
    /// The state of flash: the newest durable batch, if known, and the generation of the
    /// superblock.
    held: (Option<BatchSequence>, SuperblockGeneration),
}

/// How a run continues after a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accepted {
    GoesOn,
    /// The data that clients find now cannot be predicted, so the run ends.
    Over,
    /// Another start is necessary.
    Again,
}

/// The replacement of a device by an older copy.
#[derive(Clone, Debug)]
pub(super) struct Attack {
    pub device: Device,
    /// The newer contents of the device.
    newer: Vec<u8>,
    header: StoreHeader,
    /// Whether a start must notice the replacement.
    pub must: bool,
    /// Whether a start was cut short.
    cut: bool,
    /// Whether a start has begun to complete the store.
    completes: bool,
    /// Whether a start has accepted the store. It may have begun an epoch that the newer device
    /// does not know, so an engine does not take the newer device back.
    pub accepted: bool,
}

/// The copies that may replace devices, and the replacement in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    copies: Vec<Copy>,
    pub attack: Option<Attack>,
    /// For each volume, the newest stamp number that the log is known to have recorded durably.
    noted: PerVolume<StampNumber>,
    /// Whether a start was refused and the newer device is back.
    pub refused: bool,
    /// Whether the next start accepts an older store and drops clean blocks.
    pub drops: bool,
}

impl Runner<'_> {
    /// One step of a life: may request stamps and make copies.
    pub(super) fn step_older(&mut self) -> Result<(), String> {
        if self.choices.one_in(16) {
            self.tell(|| "stamp".into());
            self.world.order(Order::Stamp);
        }
        if self.choices.one_in(24) {
            self.begin_destage();
        }
        if self.choices.one_in(10) {
            self.copy_one();
        }
        let idle = self.world.executor.devices().pending() == 0 && !self.world.cache.has_given_up();
        if idle && !self.world.cache.is_stamping() {
            // Everything that was answered was recorded, and nothing is in flight.
            self.older.noted.clone_from(&self.world.answered);
        }
        if self.choices.one_in(60) { self.quiesce_older() } else { Ok(()) }
    }

    /// Keeps a copy of a device in its current state.
    fn copy_one(&mut self) {
        let count = self.oracles.len() as u64;
        let device = match self.choices.choose(1 + count.min(2)) {
            0 => Device::Flash,
            _ => Device::Backing(Volume(self.choices.choose(count) as u32)),
        };
        let image = self.world.executor.devices().durable(device).to_vec();
        let copy = match device {
            Device::Flash => {
                let watch = self.world.watch.as_ref();
                let held = (watch.and_then(|w| w.newest_durable()), self.generation(&image));
                Copy { device, image, header: StoreHeader::default(), held }
            }
            Device::Backing(v) => {
                let header = self.world.headers[v.0 as usize];
                Copy { device, image, header, held: (None, SuperblockGeneration::NONE) }
            }
        };
        self.tell(|| format!("--- copy of {device:?}: {:?} {:?}", copy.header, copy.held));
        if self.older.copies.len() == COPIES_MAX {
            let which = self.choices.choose(COPIES_MAX as u64) as usize;
            self.older.copies.swap_remove(which);
        }
        self.older.copies.push(copy);
    }

    fn generation(&self, image: &[u8]) -> SuperblockGeneration {
        self.superblock(image).map_or(SuperblockGeneration::NONE, |s| s.generation)
    }

    fn superblock(&self, image: &[u8]) -> Option<Superblock> {
        let g = self.world.config.flash.as_ref()?.geometry;
        let bytes = g.superblock_pages as usize * g.page_size as usize;
        let copies = [0, bytes].map(|at| Superblock::decode(&image[at..]));
        copies.into_iter().flatten().max_by_key(|s| s.generation)
    }

    /// Whether a copy is of a store that flash may be able to complete; such copies are rare.
    fn may_be_completed(&self, copy: &Copy) -> bool {
        let Copy { device: Device::Backing(v), header, .. } = copy else { return false };
        let flash = self.world.executor.devices().durable(Device::Flash);
        let Some(superblock) = self.superblock(flash) else { return false };
        let bound = superblock.bindings.iter().find(|b| b.volume == *v);
        header.dirty
            && bound.is_some_and(|b| header.stamp_number < b.stamp)
            && superblock.tail_batch <= header.stamp.complete.next()
    }

    /// After a life, may replace a device by a copy from that life.
    pub(super) fn attack(&mut self) {
        if self.older.copies.is_empty() || self.choices.choose(3) == 0 {
            return;
        }
        let all = 0..self.older.copies.len();
        let few = all.clone().filter(|&n| self.may_be_completed(&self.older.copies[n]));
        let few: Vec<usize> = few.collect();
        let from = if few.is_empty() || self.choices.choose(4) == 0 { all.collect() } else { few };
        let which = from[self.choices.choose(from.len() as u64) as usize];
        let Copy { device, image, header, held } = self.older.copies[which].clone();
        // After a kill, this is more than the durable contents.
        let newer = self.world.executor.devices().contents(device).to_vec();
        let (former, must) = match device {
            Device::Flash => {
                let seen = |h: &StoreHeader| {
                    held.0.is_some_and(|end| h.stamp.seen > end) || h.stamp.generation > held.1
                };
                (StoreHeader::default(), self.world.headers.iter().any(seen))
            }
            Device::Backing(v) => {
                let v = v.0 as usize;
                let noted = self.older.noted.get(Volume(v as u32)).copied().unwrap_or_default();
                let former = std::mem::replace(&mut self.world.headers[v], header);
                (former, header.stamp_number < noted)
            }
        };
        self.tell(|| {
            let headers = &self.world.headers;
            format!(
                "--- {device:?} is replaced by an older copy ({held:?}, {headers:?}), must be noticed: \
                 {must}"
            )
        });
        self.world.executor.devices_mut().replace(device, image);
        self.older.attack = Some(Attack {
            device,
            newer,
            header: former,
            must,
            cut: false,
            completes: false,
            accepted: false,
        });
        // The log is not responsible for the contents of the replaced device.
        self.world.reboot(self.world.config.clone());
    }

    /// Before a start: like an engine, marks as older the stores for which flash knows a later
    /// stamp, whether or not the start accepts them.
    pub(super) fn mark_older(&mut self) {
        if !self.plan.older {
            return;
        }
        let flash = self.world.executor.devices().contents(Device::Flash);
        let bindings = self.superblock(flash).map_or(Vec::new(), |superblock| superblock.bindings);
        let Open::Recover { stores, .. } = self.open() else { return };
        for store in stores {
            let header = &mut self.world.headers[store.volume.index()];
            header.take_for_older(store.is_older(&bindings));
        }
    }

    /// Discards the copies, which are useless in the next life: its epoch differs, and an engine
    /// checks the epoch first.
    pub(super) fn forget_copies(&mut self) {
        self.older = Copies::default();
    }

    /// Discards the attack of a side world, which does not concern the run.
    pub(super) fn forget_attack(&mut self) {
        (self.older.attack, self.older.refused, self.older.drops) = (None, false, false);
    }

    /// Notes that a start was cut short.
    pub(super) fn older_cut(&mut self) {
        let Some(attack) = &mut self.older.attack else { return };
        attack.cut = true;
        if attack.accepted {
            // The next start may not accept the store.
            self.older.drops = self.choices.choose(2) == 1;
        }
    }

    /// Handles a start that was refused because a device is older: checks that this is correct, and
    /// brings the newer device back or accepts the older store.
    pub(super) fn older_refused(&mut self, volume: Volume, which: Older) -> Result<(), String> {
        let attack = self.older.attack.take();
        let attack = attack
            .ok_or_else(|| format!("{which} of volume {volume} was refused, but is the newest"))?;
        let name = match (attack.device, which) {
            (Device::Flash, Older::Flash) => "older flash refused",
            (Device::Backing(v), Older::Store) if v == volume => "older store refused",
            other => return Err(format!("{which} of volume {volume} was refused: {other:?}")),
        };
        let smaller = !Share::from_config(&self.world.config).holds_all(self.share);
        if attack.completes && !self.plan.errors_allowed && !smaller {
            return Err(format!("volume {volume} was being completed, but is refused"));
        }
        let accepts = self.plan.accepts_older && matches!(attack.device, Device::Backing(_));
        if attack.accepted || accepts && self.choices.choose(4) != 0 {
            self.accept_older(attack);
        } else {
            self.bring_back(attack, name);
        }
        Ok(())
    }

    /// Brings the newer device back.
    fn bring_back(&mut self, attack: Attack, name: &'static str) {
        self.seen.stats.add(name, 1);
        self.tell(|| format!("--- {name}"));
        if let Device::Backing(v) = attack.device {
            self.world.headers[v.0 as usize] = attack.header;
        }
        self.world.executor.devices_mut().replace(attack.device, attack.newer);
        self.older.refused = true;
        self.world.reboot(self.world.config.clone());
    }

    /// Handles a successful start: returns how the run continues, and updates the headers.
    pub(super) fn older_accepted(&mut self) -> Result<Accepted, String> {
        let Found::Log(report) = &self.world.found else { return Ok(Accepted::GoesOn) };
        let report = report.clone();
        let attack = self.older.attack.take();
        let accepted = match attack {
            Some(attack) if self.older.drops => {
                if self.drop_clean(attack, &report)? == Accepted::Again {
                    return Ok(Accepted::Again);
                }
                Accepted::GoesOn
            }
            None if report.outdated.is_empty() && report.completing.is_empty() => Accepted::GoesOn,
            None => {
                return Err(format!(
                    "a start reports {:?} and {:?} as older, but neither was replaced",
                    report.outdated, report.completing
                ));
            }
            Some(attack) if !report.completing.is_empty() => {
                if self.complete(attack, &report.completing)? == Accepted::Again {
                    return Ok(Accepted::Again);
                }
                Accepted::GoesOn
            }
            Some(attack) => self.judge(&attack, &report.outdated)?,
        };
        let now = self.world.cache.stamp_now(false);
        let dirty = self.world.cache.config().write_policy.write_back
            || self.world.cache.dirty_blocks() > 0;
        for (v, header) in self.world.headers.iter_mut().enumerate() {
            let opened = OpenFlags { dirty, released: false };
            let volume = Volume(v as u32);
            if let Some(tier) = report.uuid {
                let epoch = report.epoch;
                let announced = HeaderChange::Announce { tier, epoch, keeps_fingerprint: false };
                *header = header.after(&announced);
            }
            *header = header.after(&HeaderChange::open(volume, Some(&report), now, opened));
        }
        if !report.completing.is_empty() {
            self.world.order(Order::EndCompletion);
        }
        Ok(accepted)
    }

    /// Waits until a store has been completed, or cuts the power before that.
    fn complete(&mut self, attack: Attack, completing: &[Volume]) -> Result<Accepted, String> {
        if !matches!(attack.device, Device::Backing(v) if completing == [v]) {
            return Err(format!("{completing:?} are completed, of {:?}", attack.device));
        }
        self.world.order(Order::Destage);
        if self.choices.choose(3) == 2 {
            for _ in 0..self.choices.choose(24) {
                self.world.complete_one(&mut self.choices);
            }
            self.check_watch()?;
            self.tell(|| "--- cut while a store is completed".into());
            self.seen.stats.add("older store's completion cut short", 1);
            self.older.attack = Some(Attack { completes: true, ..attack });
            return Ok(Accepted::Again);
        }
        let result = loop {
            if let Some(result) = self.world.destaged() {
                break result;
            }
            if !self.world.complete_one(&mut self.choices) {
                return Err(format!("a completion hangs: {}", self.world.cache.describe()));
            }
        };
        self.check_watch()?;
        match result {
            // The missing data cannot be read, or a header cannot be written.
            Err(_) if self.plan.errors_allowed => {
                self.bring_back(attack, "older store's completion failed");
                return Ok(Accepted::Again);
            }
            result => result.map_err(|e| format!("a completion failed: {e}"))?,
        }
        self.seen.stats.add("older store completed from the log", 1);
        self.tell(|| "--- a store is completed".into());
        self.check_backing().map_err(|why| format!("a store was completed; {why}"))?;
        Ok(Accepted::GoesOn)
    }

    fn judge(&mut self, attack: &Attack, outdated: &[(Volume, Older)]) -> Result<Accepted, String> {
        let told: Vec<Volume> = outdated.iter().map(|o| o.0).collect();
        match attack.device {
            Device::Flash if outdated.iter().any(|o| o.1 == Older::Flash) => {
                // The stores hold the correct data, and clients find it.
                self.seen.stats.add("older flash dropped", 1);
                Ok(Accepted::GoesOn)
            }
            Device::Backing(v) if told == [v] && outdated[0].1 == Older::Store => {
                let device = attack.device;
                let image = self.world.executor.devices().durable(device).to_vec();
                let sectors = self.oracles[v.0 as usize].sectors();
                self.oracles[v.0 as usize] = oracle_of(v.0, sectors, &image);
                self.seen.stats.add("older store dropped", 1);
                Ok(Accepted::GoesOn)
            }
            _ if !told.is_empty() => Err(format!(
                "a start reports {outdated:?} as older, but {:?} was replaced",
                attack.device
            )),
            // Before the power was cut, it became durable that the volume is not trusted;
            // superblocks have been written since.
            Device::Flash if attack.must && attack.cut => Ok(Accepted::GoesOn),
            device if attack.must => Err(format!(
                "the start does not notice that {device:?} is \
                                                  older"
            )),
            _ => {
                self.seen.stats.add("older copies from after the last stamp", 1);
                Ok(Accepted::Over)
            }
        }
    }

    /// After a successful stop: writes the state of the stores to their headers.
    pub(super) fn note_older(&mut self, errors: bool) -> Result<(), String> {
        while self.world.write_stamps(&mut self.choices) {}
        let whole = self.world.cache.dirty_blocks() == 0;
        let stamp = self.world.cache.stamp_now(whole);
        self.leave_headers(whole, stamp);
        if errors && self.choices.choose(4) == 3 {
            return Ok(());
        }
        let patience = self.choices_of_a_cut();
        self.seal_headers(patience).map(|_| ())
    }

    fn leave_headers(&mut self, whole: bool, stamp: Stamp) {
        self.world.write_headers(|header| HeaderChange::Leave {
            whole,
            released: header.released,
            fingerprint: None,
            data_bytes: header.data_bytes,
            stamp,
        });
    }

    fn seal_headers(&mut self, patience: u32) -> Result<bool, String> {
        let headers = self.world.headers.iter().enumerate();
        let seal = |(index, header): (usize, &StoreHeader)| {
            let (volume, stamp) = (Volume(index as u32), Some(header.stamp_number));
            Sealed { volume, seal: [0; SEAL_BYTES], distrust: false, stamp }
        };
        let sealed = headers.map(seal).collect();
        self.seal(sealed, patience)
    }

    /// Leaves the stores to a backup program for a while.
    fn quiesce_older(&mut self) -> Result<(), String> {
        if self.destage.is_some() || self.plan.errors_allowed {
            return Ok(());
        }
        self.settle("a quiesce")?;
        self.oracles.iter_mut().for_each(|o| {
            let all = o.flush_issued();
            o.flush_done(&all);
        });
        for _ in 0..TURNS_MAX {
            if self.world.cache.owes_stamps() && !self.world.cache.is_stamping() {
                self.world.order(Order::Stamp);
            }
            if !self.world.cache.is_stamping() {
                break;
            }
            self.world.complete_one(&mut self.choices);
        }
        let stamp = self.world.cache.stamp_now(true);
        let dirty = self.world.headers.iter().any(|h| h.dirty);
        self.leave_headers(true, stamp);
        if self.seal_headers(TURNS_MAX)? {
            self.copy_one();
        }
        self.world.write_headers(|_| HeaderChange::Withdraw { dirty });
        self.hear()
    }
}

/// An oracle for a volume with exactly these contents.
pub(super) fn oracle_of(volume: u32, sectors: u64, image: &[u8]) -> Oracle {
    let mut oracle = Oracle::new(volume, sectors);
    let values = values_of(&image[..sectors as usize * 512], volume, 0);
    for (sector, value) in values.into_iter().enumerate() {
        if let Value::Write(id) = value {
            oracle.write_issued(id, sector as u64, 1, false);
            oracle.write_ended(id, sector as u64, 1, true);
        }
    }
    let all = oracle.flush_issued();
    oracle.flush_done(&all);
    oracle
}
