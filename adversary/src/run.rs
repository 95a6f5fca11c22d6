//! One run: random requests, completions in any order, power cuts, kills, stops and restarts,
//! with the oracle looking at every reply.

use std::collections::BTreeMap;
use std::hash::Hasher;

use forebay_block::{Flags, Op};
use forebay_cache::Open;
use forebay_device::choices::Choices;
use forebay_device::memory::{CutStyle, DeviceOptions, FaultRates};
use forebay_effect::{Device, Outcome, RequestId};

use crate::coverage::Coverage;
use crate::oracle::{FlushTicket, Oracle, ReadTicket};
use crate::scenario::Scenario;
use crate::tape::Source;
use crate::world::{Started, World, is_device_error, stamp, values_of};

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Lives of the cache; each ends with a cut, a kill or a stop.
    pub lives: u32,
    /// Steps (requests or completions) in a life, at most.
    pub steps: u64,
    /// Once in so many steps the run asks what a power cut at this instant would leave: on
    /// copies of the devices the cut is made, the cache starts, everything is read; then the
    /// run goes on as if nothing had been. 0 for never.
    pub fork_one_in: u32,
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
        fork_one_in: 12,
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
    /// A digest of all effects, answers and replies: the same seed must give the same.
    pub digest: u64,
}

#[derive(Clone, Debug)]
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
    choices: Source<'a>,
    open: BTreeMap<u64, Expect>,
    next_write: u32,
    /// Where the consequences of a cut are looked at while the run goes on.
    aside: Option<Box<World>>,
    seen: Seen,
}

/// Runs a scenario to its end.
///
/// # Errors
/// What went wrong, in words.
pub fn run(scenario: &Scenario, plan: Plan, choices: &mut dyn Choices) -> Result<Seen, String> {
    let device =
        |size| DeviceOptions { tear_bytes: scenario.tear_bytes, ..DeviceOptions::sized(size) };
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
        choices: Source::new(choices),
        open: BTreeMap::new(),
        next_write: 1,
        aside: None,
        seen: Seen::default(),
    };
    runner.lives()?;
    let changed = runner.world.executor.devices().hazards().sources_changed;
    if changed > 0 {
        return Err(format!("{changed} writes whose memory changed while they were in flight"));
    }
    runner.seen.digest = runner.world.digest.0;
    Ok(runner.seen)
}

/// A start is cut so often at most before it may end.
const CUTS_IN_RECOVERY_MAX: u32 = 5;

#[derive(Debug)]
enum End {
    Cut,
    Kill,
    Stop { destage: bool },
}

impl Runner<'_> {
    fn lives(&mut self) -> Result<(), String> {
        let format = Open::Format { uuid: [7; 16], bindings: Vec::new() };
        match self.world.start_whole(format, &mut self.choices) {
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
            self.live()?;
            let last = life + 1 == self.plan.lives;
            let before = self.choices.enter();
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
            self.choices.leave(before);
        }
        Ok(())
    }

    /// Steps until the life ends. Whether to go on is asked at each step, not once, so that a
    /// failing run can be made shorter by leaving steps out; 0 always means the end.
    fn live(&mut self) -> Result<(), String> {
        for _ in 0..self.plan.steps {
            if self.choices.one_in(64) {
                break;
            }
            self.step()?;
            let fork = self.plan.fork_one_in;
            if fork != 0 && self.choices.choose(fork.into()) == u64::from(fork) - 1 {
                let before = self.choices.enter();
                self.fork()?;
                self.choices.leave(before);
            }
        }
        Ok(())
    }

    /// Looks at what a power cut at this instant would leave, on copies.
    fn fork(&mut self) -> Result<(), String> {
        let scenario = &self.scenario;
        let mut aside = self.aside.take().unwrap_or_else(|| {
            let nothing = DeviceOptions::sized(0);
            let (config, volumes) = (scenario.config.clone(), scenario.volumes.clone());
            Box::new(World::new(config, volumes, None, |_| nothing, 0))
        });
        let (after, choices) = (aside.executor.devices_mut(), &mut self.choices);
        self.world.executor.devices().survivors_into(after, CutStyle::Any, choices);
        aside.reboot(self.scenario.config.clone());
        (aside.now, aside.trace) = (self.world.now, self.world.trace);
        std::mem::swap(&mut self.world, &mut *aside);
        let oracles = self.oracles.clone();
        let open = std::mem::take(&mut self.open);
        self.tell(|| "--- aside: what would a cut leave?".into());
        self.seen.cuts += 1;
        self.oracles.iter_mut().for_each(|o| o.power_cut(false));
        self.aftermath()?;
        self.tell(|| "--- back".into());
        self.oracles = oracles;
        self.open = open;
        std::mem::swap(&mut self.world, &mut *aside);
        self.world.digest.write_u64(aside.digest.0);
        self.aside = Some(aside);
        Ok(())
    }

    /// After a cut: everything is read, and now and then again after a further restart.
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
            self.world.complete_one(&mut self.choices);
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
            16 => (
                Op::WriteZeroes,
                if self.choices.choose(2) == 0 { Flags::NO_HOLE } else { Flags::FUA },
            ),
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
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (first * 512, count * 512) };
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
        let c = &mut self.choices;
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
                self.world.power_cut(CutStyle::Any, &mut self.choices);
                self.open.clear();
                self.oracles.iter_mut().for_each(|o| o.power_cut(false));
            }
            End::Kill => {
                self.cover();
                self.seen.kills += 1;
                self.world.kill(&mut self.choices);
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
                if result.is_err() && !self.plan.errors_allowed {
                    return Err(format!("the stop failed: {result:?}"));
                }
                if destage && result.is_ok() {
                    self.check_backing()?;
                }
                if !last {
                    // A clean stop is a kill that loses nothing; then the power may go as well.
                    if self.choices.choose(2) == 0 {
                        self.world.power_cut(CutStyle::Any, &mut self.choices);
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
        for attempt in 0.. {
            self.world.start(Open::Recover);
            let cut = attempt < CUTS_IN_RECOVERY_MAX && self.choices.choose(3) == 2;
            let cut_after = if cut { self.choices.choose(30) } else { u64::MAX };
            let mut done = 0;
            loop {
                match self.world.started() {
                    Started::Ready => {
                        self.seen.stats.add_start(&self.world.found);
                        return Ok(true);
                    }
                    Started::Refused(why) => {
                        self.seen.stats.add_start(&self.world.found);
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
                if !self.world.complete_one(&mut self.choices) {
                    return Err("recovery hangs".into());
                }
            }
            self.tell(|| format!("--- cut in recovery after {done}"));
            self.seen.cuts_in_recovery += 1;
            self.world.power_cut(CutStyle::Any, &mut self.choices);
            self.oracles.iter_mut().for_each(|o| o.power_cut(false));
        }
        unreachable!("the last attempt is not cut")
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
                    if !self.world.complete_one(&mut self.choices) {
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
        self.seen.stats.add_life(&self.world.cache);
    }
}
