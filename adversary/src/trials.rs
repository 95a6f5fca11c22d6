//! All trials, each played by number: random runs of each kind, pairs of operations, management
//! operations, and requests against an array.

use crate::campaign::Tally;
use crate::kind::{Kind, all};
use crate::run::Plan;
use crate::{exhaustive, manage, model};

/// A test that can be played by number.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Random runs; the number is the seed.
    Random(Kind),
    /// Pairs of operations.
    Pairs,
    /// The operator's operations, with a failure or a cut at every device operation.
    Management,
    /// Requests without faults, against an array; the number is the seed.
    Array,
}

/// Distance between the numbers of consecutive cases, so that the first few cases differ in kind.
/// It has no factor in common with the number of cases.
const STRIDE: u64 = 1013;

impl Trial {
    /// All trials.
    pub fn all() -> Vec<Trial> {
        let others = [Trial::Pairs, Trial::Management, Trial::Array];
        all().map(Trial::Random).chain(others).collect()
    }

    /// The trials with these names, in this order.
    ///
    /// # Errors
    /// Names the first unknown name.
    pub fn named(names: &str) -> Result<Vec<Trial>, String> {
        let find = |name: &str| match name {
            "pairs" => Ok(Trial::Pairs),
            "management" => Ok(Trial::Management),
            "array" => Ok(Trial::Array),
            _ => Kind::find(name)
                .map(Trial::Random)
                .map_err(|e| format!("{e}, and pairs, management, array")),
        };
        names.split(',').map(|name| find(name.trim())).collect()
    }

    /// The name of the trial.
    pub fn name(&self) -> String {
        match self {
            Trial::Random(kind) => kind.full_name(),
            Trial::Pairs => "pairs".into(),
            Trial::Management => "management".into(),
            Trial::Array => "array".into(),
        }
    }

    /// Plays number `n`, and adds the result to a tally. After all cases, they start over.
    pub fn play(&self, n: u64, tally: &mut Tally) {
        match self {
            Trial::Random(kind) => kind.tally(n, tally),
            Trial::Pairs => {
                exhaustive::play(n * STRIDE % exhaustive::CASES, Plan::CUTS, tally);
            }
            Trial::Management => manage::play(n * STRIDE % manage::CASES, Plan::CUTS, tally),
            Trial::Array => model::tally(n, tally),
        }
    }

    /// Number of runs to play at a time; small, so that every trial gets its turn soon.
    pub fn slice(&self) -> u64 {
        match self {
            Trial::Random(_) => 8,
            Trial::Pairs => 8,
            Trial::Management => 3,
            Trial::Array => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_leads_through_all_cases() {
        for cases in [exhaustive::CASES, manage::CASES] {
            let mut seen: Vec<u64> = (0..cases).map(|n| n * STRIDE % cases).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..cases));
        }
    }

    #[test]
    fn every_trial_is_found_by_its_name() {
        let names: Vec<String> = Trial::all().iter().map(Trial::name).collect();
        let found = Trial::named(&names.join(",")).unwrap();
        assert_eq!(found.iter().map(Trial::name).collect::<Vec<_>>(), names);
        assert!(Trial::named("pairs,nothing").unwrap_err().contains("nothing"));
    }
}
