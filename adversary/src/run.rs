//! One run: random requests, completions in any order, power cuts, kills, stops and restarts,
//! with the oracle looking at every reply.

use std::collections::BTreeMap;

use forebay_block::{Flags, Op};
use forebay_cache::{CacheStats, Open};
use forebay_device::choices::Choices;
use forebay_device::memory::{CutStyle, DeviceOptions, FaultRates};
use forebay_effect::{Device, Outcome, RequestId};

use crate::oracle::{FlushTicket, Oracle, ReadTicket};
use crate::scenario::Scenario;
use crate::world::{Started, World, is_device_error, stamp, values_of};

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Lives of the cache; each ends with a cut, a kill or a stop.
    pub lives: u32,
    /// Steps (requests or completions) in a life, at most.
    pub steps: u64,
    /// Faults of the flash device's operations.
    pub flash_faults: FaultRates,
    /// Faults of the backing stores' operations.
    pub backing_faults: FaultRates,
    /// Whether requests may fail (because faults are injected).
    pub errors_allowed: bool,
    /// Hears what happens, a line each; for looking into a failing seed.
    pub trace: Option<fn(&str)>,
}

impl Plan {
    /// Power cuts and kills only; no other faults.
    pub const CUTS: Plan = Plan {
        lives: 4,
        steps: 120,
        flash_faults: FaultRates::NONE,
        backing_faults: FaultRates::NONE,
        errors_allowed: false,
        trace: None,
    };
}

/// What a run saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Power cuts.
    pub cuts: u64,
    /// Cuts in the middle of a recovery.
    pub cuts_in_recovery: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Clean stops.
    pub stops: u64,
    /// Requests answered.
    pub replies: u64,
    /// Of those, with an error.
    pub errors: u64,
    /// Starts that were refused.
    pub refusals: u64,
    /// Counters of all lives together.
    pub stats: Coverage,
    /// A digest of all replies: the same seed must give the same.
    pub digest: u64,
}

/// Coverage counters by name.
pub type Coverage = BTreeMap<&'static str, u64>;

#[derive(Debug)]
enum Expect {
    Read { volume: usize, ticket: ReadTicket, first: u64 },
    Write { volume: usize, id: u32, first: u64, count: u64, fua: Option<FlushTicket> },
    Flush { volume: usize, ticket: FlushTicket },
}

/// A run in progress.
pub struct Runner<'a> {
    /// The world.
    pub world: World,
    oracles: Vec<Oracle>,
    scenario: Scenario,
    plan: Plan,
    choices: &'a mut dyn Choices,
    open: BTreeMap<u64, Expect>,
    next_write: u32,
    seen: Seen,
}

/// Runs a scenario to its end.
///
/// # Errors
/// What went wrong, in words.
pub fn run(scenario: &Scenario, plan: Plan, choices: &mut dyn Choices) -> Result<Seen, String> {
    let device = |size| DeviceOptions {
        tear_bytes: scenario.tear_bytes,
        ..DeviceOptions::sized(size)
    };
    // A sector torn to garbage on the backing store is the client's own loss, as on any disk:
    // the store has no metadata of ours. On flash it must not show.
    let backing = |size| DeviceOptions { garbage: false, ..device(size) };
    let mut world = World::new(
        scenario.config.clone(),
        scenario.volumes.clone(),
        scenario.flash_bytes.map(device),
        backing,
        choices.choose(u64::MAX),
    );
    world.trace = plan.trace;
    let oracles = (scenario.volumes.iter().enumerate())
        .map(|(i, v)| Oracle::new(i as u32, v.size_bytes / 512))
        .collect();
    let mut runner = Runner {
        world,
        oracles,
        scenario: scenario.clone(),
        plan,
        choices,
        open: BTreeMap::new(),
        next_write: 1,
        seen: Seen::default(),
    };
    runner.lives()?;
    Ok(runner.seen)
}

#[derive(Debug)]
enum End {
    Cut,
    Kill,
    Stop { destage: bool },
}

impl Runner<'_> {
    fn lives(&mut self) -> Result<(), String> {
        let format = Open::Format { uuid: [7; 16], bindings: Vec::new() };
        match self.world.start_whole(format, self.choices) {
            Started::Ready => {}
            other => return Err(format!("formatting ended with {other:?}")),
        }
        for life in 0..self.plan.lives {
            self.set_faults(true);
            let end = match self.choices.choose(6) {
                0 => End::Stop { destage: false },
                1 => End::Stop { destage: true },
                2 => End::Kill,
                _ => End::Cut,
            };
            let steps = 1 + self.choices.choose(self.plan.steps);
            for _ in 0..steps {
                self.step()?;
            }
            let last = life + 1 == self.plan.lives;
            self.end(if last { End::Stop { destage: true } } else { end }, last)?;
            if last {
                break;
            }
            if !self.restart()? {
                return Ok(());
            }
            if self.choices.choose(2) == 0 {
                self.verify("after a restart")?;
            }
        }
        Ok(())
    }

    fn set_faults(&mut self, on: bool) {
        let devices = self.world.executor.devices_mut();
        let rates = |r| if on { r } else { FaultRates::NONE };
        if self.scenario.flash_bytes.is_some() {
            devices.set_rates(Device::Flash, rates(self.plan.flash_faults));
        }
        for v in 0..self.scenario.volumes.len() {
            let device = Device::Backing(forebay_block::Volume(v as u32));
            devices.set_rates(device, rates(self.plan.backing_faults));
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let room = self.open.len() < self.scenario.depth && self.world.cache.has_room();
        if room && (self.choices.choose(2) == 0 || self.open.is_empty()) {
            self.request();
        } else {
            self.world.complete_one(self.choices);
        }
        self.hear()
    }

    fn request(&mut self) {
        let volume = self.choices.choose(self.oracles.len() as u64) as usize;
        let sectors = self.oracles[volume].sectors();
        let block = self.scenario.config.block_size.bytes() / 512;
        let (first, count) = self.range(sectors, block);
        let kind = self.choices.choose(20);
        let (op, flags) = match kind {
            0..=6 => (Op::Read, Flags::NONE),
            7..=13 => (Op::Write, Flags::NONE),
            14 => (Op::Write, Flags::FUA),
            15 => (Op::Trim, Flags::NONE),
            16 => (Op::WriteZeroes, if self.choices.choose(2) == 0 { Flags::NO_HOLE } else { Flags::FUA }),
            _ => (Op::Flush, Flags::NONE),
        };
        let oracle = &mut self.oracles[volume];
        let id = self.next_write;
        let expect = match op {
            Op::Read => Expect::Read { volume, ticket: oracle.read_issued(first, count), first },
            Op::Flush => Expect::Flush { volume, ticket: oracle.flush_issued() },
            _ => {
                self.next_write += 1;
                let fua = flags.contains(Flags::FUA).then(|| oracle.durable_issued(first, count));
                oracle.write_issued(id, first, count, op != Op::Write);
                Expect::Write { volume, id, first, count, fua }
            }
        };
        let (offset, length) =
            if op == Op::Flush { (0, 0) } else { (first * 512, count * 512) };
        self.tell(|| format!("{op:?} {flags:?} v{volume} {first}+{count} (write {id})"));
        let request = self.world.submit(volume as u32, op, flags, offset, length, |data| {
            if op == Op::Write {
                stamp(data, volume as u32, first, id);
            } else {
                data.fill(0xEE);
            }
        });
        self.open.insert(request.0, expect);
    }

    /// Sectors to address: whole blocks, parts of blocks, several blocks.
    fn range(&mut self, sectors: u64, block: u64) -> (u64, u64) {
        let c = &mut *self.choices;
        // A few blocks are hot, so that things meet.
        let blocks = sectors.div_ceil(block);
        let b = if c.choose(2) == 0 { c.choose(blocks.min(4)) } else { c.choose(blocks) };
        let (first, count) = match c.choose(4) {
            0 | 1 => (b * block, block),
            2 => (b * block + c.choose(block), 1 + c.choose(block)),
            _ => (b * block + c.choose(2) * c.choose(block), block * (1 + c.choose(3))),
        };
        let first = first.min(sectors - 1);
        (first, count.min(sectors - first))
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = self.plan.trace {
            trace(&what());
        }
    }

    fn hear(&mut self) -> Result<(), String> {
        for (id, result, data) in self.world.replies() {
            self.reply(id, result, &data)?;
        }
        Ok(())
    }

    fn reply(&mut self, id: RequestId, result: Outcome, data: &[u8]) -> Result<(), String> {
        self.seen.replies += 1;
        self.tell(|| format!("reply {} {result:?} {:?}", id.0, self.open.get(&id.0)));
        let digest = self.seen.digest.rotate_left(5) ^ id.0 ^ u64::from(result.is_ok()) << 63;
        self.seen.digest = digest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Err(e) = result {
            self.seen.errors += 1;
            if !self.plan.errors_allowed || !is_device_error(e) {
                return Err(format!("request {} failed: {e}", id.0));
            }
        }
        match self.open.remove(&id.0).ok_or("a reply to no request")? {
            Expect::Read { volume, ticket, first } => {
                if result.is_ok() {
                    let values = values_of(data, volume as u32, first);
                    let checked = self.oracles[volume].read_done(&ticket, &values, "a read");
                    checked.map_err(|v| v.to_string())?;
                } else {
                    self.oracles[volume].read_failed(&ticket);
                }
            }
            Expect::Write { volume, id, first, count, fua } => {
                self.oracles[volume].write_ended(id, first, count, result.is_ok());
                if let (Ok(()), Some(ticket)) = (result, fua) {
                    self.oracles[volume].durable_done(&ticket);
                }
            }
            Expect::Flush { volume, ticket } => {
                if result.is_ok() {
                    self.oracles[volume].flush_done(&ticket);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, end: End, last: bool) -> Result<(), String> {
        self.tell(|| format!("--- {end:?}"));
        match end {
            End::Cut => {
                self.cover();
                self.seen.cuts += 1;
                self.world.power_cut(CutStyle::Any, self.choices);
                self.open.clear();
                self.oracles.iter_mut().for_each(|o| o.power_cut(false));
            }
            End::Kill => {
                self.cover();
                self.seen.kills += 1;
                self.world.kill(self.choices);
                self.open.clear();
                let lossless = self.scenario.kill_is_lossless;
                self.oracles.iter_mut().for_each(|o| o.kill(lossless));
            }
            End::Stop { destage } => {
                self.seen.stops += 1;
                self.set_faults(false);
                self.world.cache.stop(destage);
                self.world.run();
                let mut turns = 0;
                let result = loop {
                    self.hear()?;
                    if let Some(result) = self.world.ended() {
                        break result;
                    }
                    turns += 1;
                    if !self.world.complete_one(self.choices) || turns > 100_000 {
                        let open = self.open.len();
                        return Err(format!("the stop hangs with {open} requests open: {}", self.world.cache.describe()));
                    }
                };
                self.hear()?;
                if !self.open.is_empty() {
                    return Err(format!("{} requests were never answered", self.open.len()));
                }
                self.cover();
                if result.is_err() && !self.plan.errors_allowed {
                    return Err(format!("the stop failed: {result:?}"));
                }
                if destage && result.is_ok() {
                    self.check_backing()?;
                }
                if !last {
                    // A clean stop is a kill that loses nothing; then the power may go as well.
                    if self.choices.choose(2) == 0 {
                        self.world.power_cut(CutStyle::Any, self.choices);
                    } else {
                        self.world.reboot(self.scenario.config.clone());
                    }
                    self.oracles.iter_mut().for_each(|o| o.power_cut(result.is_ok()));
                }
            }
        }
        Ok(())
    }

    /// Starts again, perhaps cutting the power in the middle of it, perhaps several times.
    fn restart(&mut self) -> Result<bool, String> {
        self.set_faults(false);
        loop {
            self.world.start(Open::Recover);
            let cut_after = match self.choices.choose(3) {
                0 => self.choices.choose(30),
                _ => u64::MAX,
            };
            let mut done = 0;
            loop {
                match self.world.started() {
                    Started::Ready => return Ok(true),
                    Started::Refused(why) => {
                        self.seen.refusals += 1;
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
                if !self.world.complete_one(self.choices) {
                    return Err("recovery hangs".into());
                }
            }
            self.tell(|| format!("--- cut in recovery after {done}"));
            self.seen.cuts_in_recovery += 1;
            self.world.power_cut(CutStyle::Any, self.choices);
            self.oracles.iter_mut().for_each(|o| o.power_cut(false));
        }
    }

    /// Reads everything, with nothing else going on.
    fn verify(&mut self, when: &'static str) -> Result<(), String> {
        for volume in 0..self.oracles.len() {
            let sectors = self.oracles[volume].sectors();
            let step = self.scenario.config.block_size.bytes() / 512;
            let mut first = 0;
            while first < sectors {
                let count = step.min(sectors - first);
                let ticket = self.oracles[volume].read_issued(first, count);
                let (offset, length) = (first * 512, count * 512);
                let v = volume as u32;
                self.world.submit(v, Op::Read, Flags::NONE, offset, length, |d| d.fill(0xEE));
                let (result, data) = loop {
                    if let Some((_, result, data)) = self.world.replies().pop() {
                        break (result, data);
                    }
                    if !self.world.complete_one(self.choices) {
                        return Err(format!("{when}: a read hangs: {}", self.world.cache.describe()));
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
                first += count;
            }
        }
        Ok(())
    }

    /// After a stop that destaged: the backing stores alone hold everything.
    fn check_backing(&mut self) -> Result<(), String> {
        for (volume, oracle) in self.oracles.iter().enumerate() {
            let device = Device::Backing(forebay_block::Volume(volume as u32));
            let bytes = self.world.executor.devices().durable(device);
            let values = values_of(&bytes[..oracle.sectors() as usize * 512], volume as u32, 0);
            for (sector, value) in values.into_iter().enumerate() {
                if !oracle.admits(sector as u64, value) {
                    return Err(format!(
                        "after a stop with destage: sector {sector} of volume {volume} on the \
                         backing store holds {value:?}; right would be one of {:?}",
                        oracle.admissible(sector as u64)
                    ));
                }
            }
        }
        Ok(())
    }

    fn cover(&mut self) {
        add(&mut self.seen.stats, self.world.cache.stats());
        if let Some(log) = self.world.cache.log_stats() {
            for (name, n) in [
                ("log batches", log.batches),
                ("log tombstones", log.tombstones),
                ("log regions reclaimed", log.regions_reclaimed),
                ("log superblock updates", log.superblock_updates),
            ] {
                *self.seen.stats.entry(name).or_default() += n;
            }
        }
    }
}

fn add(coverage: &mut Coverage, s: &CacheStats) {
    for (name, n) in [
        ("demotions", s.demotions),
        ("demotions without a flash write", s.demotions_free),
        ("promotions", s.promotions),
        ("evictions", s.evictions),
        ("dropped with their region", s.reclaim_dropped),
        ("destaged", s.destaged),
        ("waits for a block", s.waits_block),
        ("waits for room", s.waits_room),
        ("write met an outgoing transfer", s.write_met_outgoing),
        ("write met a fetch", s.write_met_fetch),
        ("rescued while leaving", s.rescued),
        ("flash read overtaken by reclaim", s.flash_read_overtaken),
        ("merges", s.merges),
        ("read-modify-writes", s.read_modify_writes),
        ("ranges zeroed", s.range_zeroes),
        ("waits for a range", s.waits_range),
        ("records poisoned", s.poisoned),
        ("destaged under a newer version", s.destaged_under_newer),
        ("transfer errors", s.transfer_errors),
        ("corrupt flash reads", s.flash_corrupt),
        ("destage retries", s.destage_retries),
    ] {
        *coverage.entry(name).or_default() += n;
    }
}
