//! Plays every sequence of two operations, with every order of completion, a cut after every
//! completion, and, for each cut, every subset of the writes that were not yet durable. If a cut
//! leaves the same state as an earlier cut of the sequence, it is skipped.
//!
//! The world is as small as possible: three blocks of 4 KiB, one of them in DRAM, and four regions
//! of flash. If there are more orders or subsets than the limits allow, a random sample is played,
//! and the coverage counters show it.

mod case;
mod walk;

use forebay_cache::Combination;
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::CutStyle;

pub use case::{Action, CASES, CASES_USUAL, Case};
pub(crate) use case::{CacheKind, perform_whole};
use walk::Walk;

use crate::campaign::Tally;
use crate::catch::catch;
use crate::manage::other_policy;
use crate::run::after::End;
use crate::run::left::LookedAt;
use crate::run::{Plan, Runner};

/// Maximum number of orders of completion to enumerate for a case; if there are more, some are
/// drawn at random.
const ORDERS_MAX: u32 = 48;
/// Number of orders to draw if there are more.
const ORDERS_DRAWN: u64 = 16;
/// Maximum number of writes for which every subset is tried; if there are more, some subsets are
/// drawn at random.
const SUBSETS_OF_MAX: usize = 12;
/// Number of survivals to draw: for larger sets of writes, and for torn writes in all cases.
const SURVIVALS_DRAWN: u64 = 4;

/// Makes binary choices from the bits of a number.
pub(crate) struct Bits(u64);

impl Choices for Bits {
    fn choose(&mut self, n: u64) -> u64 {
        let bit = self.0 & 1;
        self.0 >>= 1;
        bit % n.max(1)
    }
}

/// Plays a case in every way, and adds the results to a tally. The plan contains the trace function
/// and the planted bug.
pub fn play(case: u64, plan: Plan, tally: &mut Tally) {
    tally.runs += 1;
    let name = Case::number(case);
    if let Err(how) = catch(|| all_orders(&name, plan, tally)) {
        tally.failures.push((case, format!("{name:?}: {how}")));
    }
}

fn all_orders(case: &Case, plan: Plan, tally: &mut Tally) -> Result<(), String> {
    let walk = Walk::default();
    let mut looked_at = LookedAt::default();
    for _ in 0..ORDERS_MAX {
        let mut choices = walk.clone();
        let new = walk.clone();
        one_order(case, &mut choices, plan, (tally, &mut looked_at), &|| new.is_new())
            .map_err(|how| format!("order {:?}: {how}", walk.path()))?;
        tally.coverage.add("exhaustive: orders of completion", 1);
        if !walk.advance() {
            tally.coverage.add("exhaustive: cases with every order", 1);
            return Ok(());
        }
    }
    for seed in 0..ORDERS_DRAWN {
        one_order(case, &mut Seeded::new(seed), plan, (tally, &mut looked_at), &|| true)
            .map_err(|how| format!("order drawn from {seed}: {how}"))?;
        tally.coverage.add("exhaustive: orders of completion", 1);
    }
    Ok(())
}

fn one_order(
    case: &Case,
    choices: &mut dyn Choices,
    plan: Plan,
    (tally, looked_at): (&mut Tally, &mut LookedAt),
    is_new: &dyn Fn() -> bool,
) -> Result<(), String> {
    let mut fixed = First(choices);
    let mut run = Runner::new(&case.scenario(), plan, &mut fixed);
    run.looked_at = std::mem::take(looked_at);
    let before = run.choices.enter_first();
    run.format()?;
    case.prelude(&mut run)?;
    run.choices.leave(before);
    for (i, &action) in case.actions.iter().enumerate() {
        perform(&mut run, action, tally, is_new)?;
        let last = i + 1 == case.actions.len();
        while (last || !case.overlap) && !run.open.is_empty() {
            complete(&mut run, tally, is_new)?;
        }
    }
    while run.world.executor.devices().pending() > 0 {
        complete(&mut run, tally, is_new)?;
    }
    let before = run.choices.enter_first();
    run.verify("in the end")?;
    run.choices.leave(before);
    run.cover();
    *looked_at = std::mem::take(&mut run.looked_at);
    tally.add_seen(&run.finish()?);
    Ok(())
}

/// Chooses 0 for the seed of the devices, which does not matter and is not part of the walk.
struct First<'a>(&'a mut dyn Choices);

impl Choices for First<'_> {
    fn choose(&mut self, n: u64) -> u64 {
        if n == u64::MAX { 0 } else { self.0.choose(n) }
    }
}

fn perform(
    run: &mut Runner<'_>,
    action: Action,
    tally: &mut Tally,
    is_new: &dyn Fn() -> bool,
) -> Result<(), String> {
    match action {
        Action::Stop | Action::Kill => {
            if action == Action::Kill {
                // The kill may happen at any instant.
                while !run.open.is_empty() && run.choices.choose(2) == 1 {
                    complete(run, tally, is_new)?;
                }
            }
            let before = run.choices.enter_first();
            let end = if action == Action::Kill { End::Kill } else { End::Stop { destage: false } };
            run.end(end, false)?;
            run.restart()?;
            run.choices.leave(before);
        }
        Action::Switch => {
            let config = run.world.cache.config();
            let (other, when) = (other_policy(config.write_policy), config.acknowledge);
            let changed = Combination { policy: other, ..Combination::from_config(config) };
            // If the combination is invalid, the switch is refused at once, which another test
            // covers.
            if changed.check().is_ok() {
                run.world.set_policy(other, when);
            }
        }
        _ => {
            for (op, flags, range) in action.requests() {
                run.issue(0, op, flags, range);
                run.hear()?;
            }
        }
    }
    cut(run, tally, is_new)
}

/// Completes one operation, and then tries the cuts at this instant.
fn complete(
    run: &mut Runner<'_>,
    tally: &mut Tally,
    is_new: &dyn Fn() -> bool,
) -> Result<(), String> {
    if !run.world.complete_one(&mut run.choices) {
        return Err(format!("it hangs: {}", run.world.cache.describe()));
    }
    run.hear()?;
    cut(run, tally, is_new)
}

/// Tries everything that a cut at this instant may leave, if the instant is new.
fn cut(run: &mut Runner<'_>, tally: &mut Tally, is_new: &dyn Fn() -> bool) -> Result<(), String> {
    if is_new() { every_cut(run, tally) } else { Ok(()) }
}

/// Tries everything that a cut at this instant may leave.
pub(crate) fn every_cut(run: &mut Runner<'_>, tally: &mut Tally) -> Result<(), String> {
    tally.coverage.add("exhaustive: instants", 1);
    let unsynced = run.world.executor.devices().unsynced();
    if unsynced <= SUBSETS_OF_MAX {
        tally.coverage.add("exhaustive: instants with every subset", 1);
        for subset in 0..1_u64 << unsynced {
            run.fork_at(CutStyle::Subsets, &mut Bits(subset), subset % 4 == 1)
                .map_err(|how| format!("survivors {subset:#b}: {how}"))?;
        }
    }
    if unsynced > 0 {
        for seed in 0..SURVIVALS_DRAWN {
            run.fork_at(CutStyle::Any, &mut Seeded::new(seed), false)
                .map_err(|how| format!("survivors drawn from {seed}: {how}"))?;
        }
    }
    Ok(())
}
