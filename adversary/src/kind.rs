//! The kinds of random runs: what is drawn, and what happens in them.

use forebay_device::choices::{Choices, Seeded};

use crate::campaign::Tally;
use crate::catch::catch;
use crate::run::{Plan, Seen, run};
use crate::scenario::{Limits, Scenario, draw};

/// A kind of run. With a seed it is one run, always the same.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What it is called.
    pub name: &'static str,
    /// What its scenarios are drawn from.
    pub limits: Limits,
    /// What happens.
    pub plan: Plan,
}

const fn cuts(name: &'static str, flash: bool, write_back: Option<bool>) -> Kind {
    let limits = Limits { flash: Some(flash), write_back, small_blocks: false };
    Kind { name, limits, plan: Plan::CUTS }
}

/// Power cuts, kills and stops; no other faults.
pub const CUTS: [Kind; 3] =
    [cuts("dram", false, None), cuts("back", true, Some(true)), cuts("through", true, Some(false))];

impl Kind {
    /// The kind of that name.
    pub fn find(name: &str) -> Option<Kind> {
        CUTS.into_iter().find(|k| k.name == name)
    }

    /// The scenario that these choices begin with.
    pub fn scenario(&self, choices: &mut dyn Choices) -> Scenario {
        draw(choices, self.limits)
    }

    /// One run.
    ///
    /// # Errors
    /// What went wrong, in words; a panic, too.
    pub fn play(&self, choices: &mut dyn Choices) -> Result<Seen, String> {
        catch(|| {
            let scenario = self.scenario(choices);
            run(&scenario, self.plan, choices)
        })
    }

    /// One run, added to a tally.
    pub fn tally(&self, seed: u64, tally: &mut Tally) {
        tally.runs += 1;
        match self.play(&mut Seeded::new(seed)) {
            Ok(seen) => {
                tally.cuts += seen.cuts + seen.cuts_in_recovery;
                tally.replies += seen.replies;
                tally.digest = tally.digest.wrapping_add(seen.digest);
                tally.coverage.merge(&seen.stats);
                for (name, n) in [
                    ("kills", seen.kills),
                    ("clean stops", seen.stops),
                    ("cuts in recovery", seen.cuts_in_recovery),
                    ("starts refused", seen.refusals),
                    ("requests failed", seen.errors),
                ] {
                    tally.coverage.add(name, n);
                }
            }
            Err(e) => tally.failures.push((seed, e)),
        }
    }
}
