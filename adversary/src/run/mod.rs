//! One run: random requests, completions in any order, power cuts, kills, stops and restarts, with
//! an oracle that checks every reply.

pub(crate) mod after;
mod contents;
pub(crate) mod left;
mod live;
mod older;
mod older_accepted;
mod others;
mod outages;
mod superblocks;

use forebay_block::{Nanos, Volume};
use std::collections::BTreeMap;

use forebay_cache::{CacheConfig, Open};
use forebay_device::choices::Choices;
use forebay_device::memory::{DeviceOptions, FaultCounts, FaultRates};
use forebay_flash::sabotage::Sabotage;
use forebay_flash::{Binding, StoreId, TierId};

use crate::coverage::Coverage;
use crate::oracle::{FlushTicket, Oracle, ReadTicket};
use crate::scenario::Scenario;
use crate::tape::Source;
use crate::world::{Started, World};
use left::LookedAt;
use older::Copies;
use others::Others;

/// What happens during a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of lives of the cache; each ends with a cut, a kill or a stop.
    pub lives: u32,
    /// Maximum number of steps (requests or completions) in a life.
    pub steps: u64,
    /// Once per this number of steps, on average, the run checks what a power cut at this instant
    /// would leave: it makes the cut on copies of the devices, starts the cache and reads
    /// everything; then the run continues unchanged. 0 means never.
    pub fork_one_in: u32,
    /// Faults of the flash device's operations.
    pub flash_faults: FaultRates,
    /// Faults of the backing stores' operations.
    pub backing_faults: FaultRates,
    /// Whether requests may fail (because faults are injected).
    pub errors_allowed: bool,
    /// Whether cuts may also lose the contents of flash, or parts of them.
    pub flash_lost: bool,
    /// Whether other programs use the backing stores between lives and during a quiesce.
    pub others: bool,
    /// Whether stores fail for a long time, one at a time, while other stores are used.
    pub outages: bool,
    /// Whether the syncs of one store fail during a life, for a while or to its end. Nothing else
    /// fails: flash stays in use, and only requests that need such a sync may fail.
    pub syncs: bool,
    /// Whether stores are slow for a long time, one at a time, while other stores are used.
    pub late: bool,
    /// How many stores may hang at once, for a long time, while others are used.
    pub hung_max: usize,
    /// How flash fails, if it does. With write-through, this must not make a request fail; nor with
    /// write-back, if flash is only full.
    pub flash_end: Option<FlashEnd>,
    /// Whether stores keep stamps in headers, whatever else happens.
    pub headers: bool,
    /// Whether devices are replaced by older copies of themselves after a life; stores then keep
    /// stamps.
    pub older: bool,
    /// Whether starts accept older stores after they were refused, and drop clean blocks.
    pub accepts_older: bool,
    /// Whether writes of store headers fail occasionally.
    pub header_faults: bool,
    /// Whether starts occasionally find one copy of the superblock unreadable.
    pub superblock_errors: bool,
    /// Receives a line for each event; for investigating a failing seed.
    pub trace: Option<fn(&str)>,
    /// A bug to plant in the cache, which the run should find.
    pub sabotage: Sabotage,
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
        flash_lost: false,
        others: false,
        outages: false,
        syncs: false,
        late: false,
        hung_max: 0,
        flash_end: None,
        headers: false,
        older: false,
        accepts_older: false,
        header_faults: false,
        superblock_errors: false,
        trace: None,
        sabotage: Sabotage::NONE,
    };

    /// Whether stores have headers.
    pub fn has_headers(&self) -> bool {
        self.headers || self.older || self.flash_end == Some(FlashEnd::Gone)
    }
}

/// How flash fails in the middle of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashEnd {
    /// Flash has space only for its superblocks.
    Full,
    /// Flash accepts no operations until the next start.
    Gone,
}

/// What happened during a run.
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
    /// Requests answered with an error.
    pub errors: u64,
    /// Starts that were refused.
    pub refusals: u64,
    /// Counters of all lives together.
    pub stats: Coverage,
    /// Injected faults, including those of cuts.
    pub faults: FaultCounts,
    /// A digest of all effects, answers and replies: equal seeds must have equal digests.
    pub digest: u64,
}

/// The expected reply to a request.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    Read { volume: usize, ticket: ReadTicket, first: u64 },
    Write { volume: usize, id: u32, first: u64, count: u64, fua: Option<FlushTicket> },
    Flush { volume: usize, ticket: FlushTicket },
}

impl Expect {
    fn volume(&self) -> usize {
        match *self {
            Expect::Read { volume, .. }
            | Expect::Write { volume, .. }
            | Expect::Flush { volume, .. } => volume,
        }
    }
}

/// A destage that the run has requested: for each volume, the state when it began.
pub(crate) struct Destage {
    /// When it began.
    since: Nanos,
    tickets: Vec<ReadTicket>,
}

/// The parameters that determine which records have a place in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    shards: u8,
    entries: u32,
}

impl Share {
    fn from_config(config: &CacheConfig) -> Share {
        let entries = config.flash.as_ref().map_or(0, |f| f.entries_max);
        Share { shards: config.shards, entries }
    }

    /// Whether all records that had a place under `former` have one.
    fn holds_all(self, former: Share) -> bool {
        self.shards == former.shards && self.entries >= former.entries
    }
}

/// A run in progress.
pub struct Runner<'a> {
    /// The world.
    pub world: World,
    pub(crate) oracles: Vec<Oracle>,
    scenario: Scenario,
    pub(crate) plan: Plan,
    pub(crate) choices: Source<'a>,
    pub(crate) open: BTreeMap<u64, Expect>,
    destage: Option<Destage>,
    /// The question of a client about contents.
    asked: Option<contents::Asked>,
    steps: u64,
    /// A second world, in which the consequences of a cut are checked.
    aside: Option<Box<World>>,
    /// States after cuts whose survivors the caller chose.
    pub(crate) looked_at: LookedAt,
    /// Number of failed syncs whose consequences a loss of power has since removed.
    syncs_failed: u64,
    /// Number of faults that had changed the flash medium when this life began.
    lies: u64,
    /// Whether such faults may affect the newest batches and no clean stop has been possible.
    unsettled: bool,
    /// The share of the last successful start.
    share: Share,
    /// Whether the next start may have another number of shards, or fewer entries.
    reshares: bool,
    /// Number of times that flash was formatted.
    formats: u8,
    /// Whether the contents of flash, or a part of them, have been destroyed.
    wiped: bool,
    /// What other programs have done to the stores.
    others: Others,
    /// Whether flash has failed ([`Plan::flash_end`]).
    ended: bool,
    /// The volume whose store fails.
    outage: Option<usize>,
    /// The volume whose store failed to sync in this life.
    unsynced: Option<usize>,
    /// Older copies of devices.
    older: Copies,
    pub(crate) seen: Seen,
}

/// Plays a scenario to its end.
///
/// # Errors
/// Describes the failure.
pub fn run(scenario: &Scenario, plan: Plan, choices: &mut dyn Choices) -> Result<Seen, String> {
    let mut runner = Runner::new(scenario, plan, choices);
    for feature in scenario.features() {
        runner.seen.stats.add(feature, 1);
    }
    runner.format()?;
    runner.lives()?;
    runner.finish()
}

impl<'a> Runner<'a> {
    /// Prepares a run.
    pub fn new(scenario: &Scenario, plan: Plan, choices: &'a mut dyn Choices) -> Runner<'a> {
        let [flash, backing] = scenario.logical;
        let device = |size: u64, logical_block: u32| DeviceOptions {
            tear_bytes: scenario.tear_bytes.max(logical_block),
            logical_block,
            ..DeviceOptions::sized(size.next_multiple_of(logical_block.into()))
        };
        // A sector torn to garbage on a backing store is the client's own loss, as on any disk,
        // because the store contains no metadata of Forebay. On flash, it must not have an effect.
        let backing = |size| DeviceOptions { garbage: false, ..device(size, backing) };
        let mut world = World::new(
            scenario.config.clone(),
            scenario.volumes.clone(),
            scenario.flash_bytes.map(|size| device(size, flash)),
            backing,
            choices.choose(u64::MAX),
        );
        world.trace = plan.trace;
        world.give_bug(plan.sabotage);
        if plan.has_headers() {
            world.keep_stamps();
            world.header_faults = plan.header_faults;
        }
        world.keep_watch();
        let oracles = (scenario.volumes.iter().enumerate())
            .map(|(i, v)| Oracle::new(i as u32, v.size_bytes / 512))
            .collect();
        Runner {
            world,
            oracles,
            scenario: scenario.clone(),
            plan,
            choices: Source::new(choices),
            open: BTreeMap::new(),
            destage: None,
            asked: None,
            steps: 0,
            aside: None,
            looked_at: LookedAt::default(),
            syncs_failed: 0,
            lies: 0,
            unsettled: false,
            share: Share::from_config(&scenario.config),
            reshares: true,
            formats: 0,
            wiped: false,
            others: Others::default(),
            outage: None,
            unsynced: None,
            ended: false,
            older: Copies::default(),
            seen: Seen::default(),
        }
    }

    pub(crate) fn has_flash(&self) -> bool {
        self.scenario.flash_bytes.is_some()
    }

    /// Starts the cache with empty devices.
    pub(crate) fn format(&mut self) -> Result<(), String> {
        let bindings = bindings(self.scenario.bindings);
        // The log gets a new UUID each time.
        self.formats += 1;
        let format = Open::Format { uuid: TierId::new([self.formats; 16]), bindings };
        match self.world.start_whole(format, &mut self.choices) {
            Started::Ready => self.older_accepted().map(|_| ()),
            other => Err(format!("formatting ended with {other:?}")),
        }
    }

    /// Returns what happened during the run, if no memory was changed while it was in use.
    pub(crate) fn finish(mut self) -> Result<Seen, String> {
        let changed = self.world.executor.devices().hazards().sources_changed;
        if changed > 0 {
            return Err(format!("{changed} writes whose memory changed while they were in flight"));
        }
        let overlapping = self.world.executor.devices().hazards().overlapping_writes;
        if overlapping > 0 {
            return Err(format!("{overlapping} writes over others that were in flight"));
        }
        self.check_watch()?;
        self.seen.digest = self.world.digest.0;
        self.seen.faults.merge(self.world.executor.devices().faults());
        Ok(self.seen)
    }

    /// Returns an error if the watch over the devices has found a violation.
    pub(crate) fn check_watch(&self) -> Result<(), String> {
        let plan = &self.plan;
        let flash_lies = plan.errors_allowed || plan.flash_lost || plan.older || plan.others;
        if !flash_lies && plan.flash_end.is_none() && self.world.cache.stats().flash_corrupt > 0 {
            return Err(
                "a read of flash failed its checksum, and nothing is wrong with flash".into()
            );
        }
        self.world.breach().map_or(Ok(()), |breach| Err(breach.into()))
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = self.plan.trace {
            trace(&what());
        }
    }
}

/// The volumes that a superblock must name.
fn bindings(count: u16) -> Vec<Binding> {
    let binding = |n: u16| Binding::new(Volume(n.into()), StoreId::new([n as u8; 16]), n.into());
    (0..count).map(binding).collect()
}
