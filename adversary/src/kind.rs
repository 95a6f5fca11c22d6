//! The kinds of random runs: the limits of their scenarios, and their plans.

use forebay_cache::{Acknowledge, Relation};
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::{Fault, FaultRates};
use forebay_flash::sabotage::{Bug, Sabotage};

use crate::campaign::Tally;
use crate::catch::catch;
use crate::run::{FlashEnd, Plan, Seen, run};
use crate::scenario::{Limits, Scenario, draw};

/// A kind of run. Kind and seed determine the run.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Name of the kind.
    pub name: &'static str,
    /// The limits within which its scenarios are drawn.
    pub limits: Limits,
    /// What happens during a run.
    pub plan: Plan,
}

const fn kind(name: &'static str, flash: bool, write_back: Option<bool>, plan: Plan) -> Kind {
    let limits = Limits {
        flash: Some(flash),
        write_back,
        small_blocks: false,
        switches: false,
        relation: None,
        slots: false,
        gives_up: false,
    };
    Kind { name, limits, plan }
}

/// A kind with flash in the slots layout.
const fn slots(name: &'static str, write_back: bool, plan: Plan) -> Kind {
    let limits = Limits {
        flash: Some(true),
        write_back: Some(write_back),
        small_blocks: false,
        switches: false,
        relation: None,
        slots: true,
        gives_up: false,
    };
    Kind { name, limits, plan }
}

/// Power cuts, kills and stops; no other faults.
pub const CUTS: [Kind; 5] = [
    kind("dram", false, None, Plan::CUTS),
    kind("back", true, Some(true), Plan::CUTS),
    kind("through", true, Some(false), Plan::CUTS),
    slots("back-slots", true, Plan::CUTS),
    slots("through-slots", false, Plan::CUTS),
];

/// Power cuts, kills and stops, with policies that change while the cache serves and between lives.
pub fn switches() -> [Kind; 3] {
    let limits = |flash| Limits { flash: Some(flash), switches: true, ..Limits::default() };
    [
        Kind { name: "dram-switch", limits: limits(false), plan: Plan::CUTS },
        Kind { name: "switch", limits: limits(true), plan: Plan::CUTS },
        Kind {
            name: "switch-slots",
            limits: Limits { slots: true, ..limits(true) },
            plan: Plan::CUTS,
        },
    ]
}

/// Power cuts, kills and stops, and devices that report errors, run out of space, or fail to sync.
pub fn errors() -> [Kind; 6] {
    let io = FaultRates::NONE
        .with(Fault::TransientError, 30)
        .with(Fault::NoSpace, 60)
        .with(Fault::SyncFailure, 40)
        .with(Fault::Again, 30)
        .with(Fault::Short, 30)
        .with(Fault::Slow, 30);
    let plan = Plan { flash_faults: io, backing_faults: io, errors_allowed: true, ..Plan::CUTS };
    let switch = Limits { flash: Some(true), switches: true, ..Limits::default() };
    [
        Kind { name: "switch-errors", limits: switch, plan },
        kind("dram-errors", false, None, plan),
        kind("back-errors", true, Some(true), plan),
        kind("through-errors", true, Some(false), plan),
        slots("back-slots-errors", true, plan),
        slots("through-slots-errors", false, plan),
    ]
}

/// Cuts, and a flash device that corrupts data silently: writes are lost or misdirected; reads
/// return decayed data, data from another place, or nothing.
pub fn media() -> [Kind; 4] {
    let lies = FaultRates::NONE
        .with(Fault::LostWrite, 40)
        .with(Fault::MisdirectedWrite, 40)
        .with(Fault::MisdirectedRead, 10)
        .with(Fault::ByteRot, 8)
        .with(Fault::LatentError, 12);
    let plan = Plan { flash_faults: lies, errors_allowed: true, ..Plan::CUTS };
    [
        kind("back-media", true, Some(true), plan),
        kind("through-media", true, Some(false), plan),
        slots("back-slots-media", true, plan),
        slots("through-slots-media", false, plan),
    ]
}

/// Cuts, and devices on which one in three reads fails and keeps failing until the data is
/// rewritten.
pub fn unreadable() -> [Kind; 4] {
    let faults = FaultRates::NONE.with(Fault::LatentError, 3);
    let plan =
        Plan { flash_faults: faults, backing_faults: faults, errors_allowed: true, ..Plan::CUTS };
    [
        kind("dram-unreadable", false, None, plan),
        kind("back-unreadable", true, Some(true), plan),
        kind("through-unreadable", true, Some(false), plan),
        slots("back-slots-unreadable", true, plan),
    ]
    .map(|kind| Kind { limits: Limits { gives_up: true, ..kind.limits }, ..kind })
}

/// Cuts, kills and stops, and starts at which one copy of the superblock is unreadable.
pub fn superblock() -> [Kind; 3] {
    let plan = Plan { superblock_errors: true, ..Plan::CUTS };
    [
        kind("back-superblock", true, Some(true), plan),
        kind("through-superblock", true, Some(false), plan),
        slots("back-slots-superblock", true, plan),
    ]
}

/// Cuts that also lose the contents of flash, or a part of them. Flash is not required to hold
/// anything then.
pub fn lost() -> [Kind; 2] {
    let plan = Plan { flash_lost: true, ..Plan::CUTS };
    [kind("through-lost", true, Some(false), plan), slots("through-slots-lost", false, plan)]
}

/// Cuts, kills and stops, and other programs that write to the stores between lives and during a
/// quiesce.
pub fn others() -> [Kind; 5] {
    let plan = Plan { others: true, ..Plan::CUTS };
    let limits = Limits { flash: Some(true), switches: true, ..Limits::default() };
    [
        kind("back-others", true, Some(true), plan),
        kind("through-others", true, Some(false), plan),
        slots("back-slots-others", true, plan),
        slots("through-slots-others", false, plan),
        Kind { name: "switch-others", limits, plan },
    ]
}

/// Cuts, kills and stops, and stores that reject all operations for a long time.
pub fn outages() -> [Kind; 3] {
    let plan = Plan { outages: true, errors_allowed: true, steps: 200, ..Plan::CUTS };
    let switch = Limits { flash: Some(true), switches: true, ..Limits::default() };
    [
        kind("back-outages", true, Some(true), plan),
        slots("back-slots-outages", true, plan),
        Kind { name: "switch-outages", limits: switch, plan },
    ]
    .map(|kind| Kind { limits: Limits { gives_up: true, ..kind.limits }, ..kind })
}

/// Cuts, kills and stops, and a store whose syncs fail.
pub fn syncs() -> [Kind; 2] {
    let plan = Plan { syncs: true, steps: 200, ..Plan::CUTS };
    [kind("through-syncs", true, Some(false), plan), slots("through-slots-syncs", false, plan)]
}

/// Cuts, kills and stops, stores whose syncs fail occasionally, and other programs that use the
/// stores after a stop that reports them complete.
pub fn syncs_others() -> [Kind; 2] {
    let faults = FaultRates::NONE.with(Fault::SyncFailure, 6);
    let plan = Plan { backing_faults: faults, errors_allowed: true, others: true, ..Plan::CUTS };
    [
        kind("back-syncs-others", true, Some(true), plan),
        slots("back-slots-syncs-others", true, plan),
    ]
}

/// Cuts, kills and stops, and slow stores: other devices complete many operations for each of
/// theirs.
pub fn late() -> [Kind; 3] {
    let plan = Plan { late: true, steps: 300, ..Plan::CUTS };
    let errors = errors().iter().find(|k| k.name == "back-slots-errors").map(|k| k.plan);
    let errors = Plan { late: true, steps: 300, ..errors.expect("that kind") };
    [
        kind("back-late", true, Some(true), plan),
        slots("back-slots-late", true, plan),
        slots("back-slots-late-errors", true, errors),
    ]
}

/// Cuts, kills and stops, and stores that do not answer writes or syncs for a long time.
pub fn hung() -> [Kind; 4] {
    let plan = Plan { hung_max: 1, steps: 300, ..Plan::CUTS };
    let two = Plan { hung_max: 2, ..plan };
    [
        kind("back-hung", true, Some(true), plan),
        slots("back-slots-hung", true, plan),
        kind("back-hung-two", true, Some(true), two),
        slots("back-slots-hung-two", true, two),
    ]
}

/// Cuts, and flash that disappears during a life and returns at the next start.
pub fn flash_gone() -> [Kind; 3] {
    let plan = Plan { flash_end: Some(FlashEnd::Gone), ..Plan::CUTS };
    let back = Plan { errors_allowed: true, header_faults: true, ..plan };
    [
        kind("through-gone", true, Some(false), plan),
        slots("through-slots-gone", false, plan),
        kind("back-gone", true, Some(true), back),
    ]
}

/// Cuts, kills and stops, and flash that runs out of space except for the superblocks. In two of
/// these kinds, stores keep stamps, and devices may be replaced by older copies of themselves.
pub fn full_flash() -> [Kind; 6] {
    let plan = Plan { flash_end: Some(FlashEnd::Full), ..Plan::CUTS };
    let older = Plan { older: true, ..plan };
    [
        kind("back-full-older", true, Some(true), older),
        slots("back-slots-full-older", true, older),
        kind("back-full", true, Some(true), plan),
        kind("through-full", true, Some(false), plan),
        slots("back-slots-full", true, plan),
        slots("through-slots-full", false, plan),
    ]
}

/// Cuts, kills and stops, after which a device may be replaced by an older copy of itself.
pub fn older() -> [Kind; 8] {
    let plan = Plan { older: true, ..Plan::CUTS };
    let limits = Limits { flash: Some(true), switches: true, ..Limits::default() };
    let faults = Plan { header_faults: true, errors_allowed: true, ..plan };
    let accepting = Plan { accepts_older: true, ..plan };
    [
        kind("back-older", true, Some(true), plan),
        kind("through-older", true, Some(false), plan),
        slots("back-slots-older", true, plan),
        slots("through-slots-older", false, plan),
        Kind { name: "switch-older", limits, plan },
        kind("back-older-errors", true, Some(true), faults),
        kind("back-older-accepted", true, Some(true), accepting),
        slots("back-slots-older-accepted", true, accepting),
    ]
}

/// Relations of the tiers that are seldom drawn: ETICA with its queues, with cuts, errors, silent
/// corruption and other programs.
pub fn relations() -> [Kind; 4] {
    let of = |name, plan| {
        let kind = slots(name, true, plan);
        let relation = Some(Relation::Etica);
        Kind { limits: Limits { relation, ..kind.limits }, ..kind }
    };
    let plan = |kinds: &[Kind], name| kinds.iter().find(|k| k.name == name).map(|k| k.plan);
    let of_same = |name, kinds: &[Kind], same| of(name, plan(kinds, same).expect("that kind"));
    [
        of("etica", Plan::CUTS),
        of_same("etica-errors", &errors(), "back-slots-errors"),
        of_same("etica-media", &media(), "back-slots-media"),
        of_same("etica-others", &others(), "back-slots-others"),
    ]
}

/// Every kind.
pub fn all() -> impl Iterator<Item = Kind> {
    let cuts = CUTS.into_iter().chain(switches()).chain(lost()).chain(others()).chain(older());
    cuts.chain(errors())
        .chain(unreadable())
        .chain(media())
        .chain(outages())
        .chain(syncs())
        .chain(syncs_others())
        .chain(late())
        .chain(hung())
        .chain(full_flash())
        .chain(flash_gone())
        .chain(relations())
        .chain(superblock())
}

impl Kind {
    /// The kind with this name; the name of a bug to plant may follow after a `+`.
    ///
    /// # Errors
    /// Says which name is unknown.
    pub fn find(name: &str) -> Result<Kind, String> {
        let (name, bug) = name.split_once('+').map_or((name, None), |(n, b)| (n, Some(b)));
        let names = || all().map(|k| k.name).collect::<Vec<_>>().join(", ");
        let kind = all().find(|k| k.name == name);
        let kind =
            kind.ok_or_else(|| format!("there is no kind `{name}`; choose from {}", names()))?;
        bug.map_or(Ok(kind), |bug| kind.with_bug(bug))
    }

    fn with_bug(mut self, bug: &str) -> Result<Kind, String> {
        if !Sabotage::POSSIBLE {
            return Err(format!(
                "a release build cannot have the bug `{bug}`: build without `--release`"
            ));
        }
        let found = Bug::ALL.into_iter().find(|b| format!("{b:?}") == bug);
        self.plan.sabotage = Sabotage::with(found.ok_or(format!("there is no bug `{bug}`"))?);
        Ok(self)
    }

    /// The name of the kind, including its bug.
    pub fn full_name(&self) -> String {
        if let Some(bug) = self.plan.sabotage.bug() {
            return format!("{}+{bug:?}", self.name);
        }
        self.name.into()
    }

    /// Draws the scenario from the first choices.
    pub fn scenario(&self, choices: &mut dyn Choices) -> Scenario {
        let mut scenario = draw(choices, self.limits);
        if self.plan.hung_max > 0 {
            // One volume does not use these up, and writes reach stores only in cleanings.
            let config = &mut scenario.config;
            config.dram_blocks = config.dram_blocks.max(64);
            config.bounce_frames = config.bounce_frames.max(8);
            config.requests_max = 16;
            config.transfers_spare = 64;
            config.waiters_max = 1024;
            config.destage_depth = 4;
            // Memory would hold more dirty data of a volume than its share of flash.
            config.acknowledge = Acknowledge::Flash;
            config.relation = Relation::Exclusive;
            config.bypass = forebay_cache::Bypass::default();
            config.shards = 1;
            if let Some(flash) = &mut config.flash {
                flash.admission = forebay_cache::AdmissionParameters::default();
                flash.written = forebay_cache::Written::Ask;
                let geometry = &mut flash.geometry;
                if !geometry.has_slots() {
                    // A log of fewer regions may have no room to carry a region on.
                    geometry.regions = geometry.regions.max(8);
                    flash.entries_max =
                        flash.entries_max.max(geometry.regions * geometry.region_pages);
                }
                scenario.flash_bytes = Some(geometry.device_bytes());
            }
        }
        if self.plan.flash_end.is_some() {
            // No request may fail, so requests wait without a time limit until volumes bypass
            // flash.
            scenario.config.give_up_after = forebay_block::Nanos(0);
        }
        scenario
    }

    /// Plays one run.
    ///
    /// # Errors
    /// Describes the failure, which may be a panic.
    pub fn play(&self, choices: &mut dyn Choices) -> Result<Seen, String> {
        catch(|| {
            let scenario = self.scenario(choices);
            run(&scenario, self.plan, choices)
        })
    }

    /// Plays one run, and adds it to a tally.
    pub fn tally(&self, seed: u64, tally: &mut Tally) {
        tally.runs += 1;
        match self.play(&mut Seeded::new(seed)) {
            Ok(seen) => {
                tally.add_seen(&seen);
                for (name, n) in [
                    ("kills", seen.kills),
                    ("clean stops", seen.stops),
                    ("cuts in recovery", seen.cuts_in_recovery),
                    ("starts refused", seen.refusals),
                    ("requests failed", seen.errors),
                ] {
                    tally.coverage.add(name, n);
                }
                for fault in Fault::OF_OPERATIONS {
                    tally.coverage.add(injected(fault), seen.faults.get(fault));
                }
            }
            Err(e) => tally.failures.push((seed, e)),
        }
    }
}

/// The name of a fault's counter.
pub fn injected(fault: Fault) -> &'static str {
    match fault {
        Fault::LostWrite => "injected: lost write",
        Fault::MisdirectedWrite => "injected: misdirected write",
        Fault::MisdirectedRead => "injected: misdirected read",
        Fault::LatentError => "injected: latent error",
        Fault::ByteRot => "injected: byte rot",
        Fault::TransientError => "injected: transient error",
        Fault::SyncFailure => "injected: failed sync",
        Fault::NoSpace => "injected: no space",
        Fault::Again => "injected: busy",
        Fault::Short => "injected: short transfer",
        Fault::Slow => "injected: slow operation",
        _ => "injected: other",
    }
}
