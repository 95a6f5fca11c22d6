//! Everything that can be played, each thing by number: random runs of each kind, pairs of operations,
//! management operations, requests against an array.

use crate::campaign::Tally;
use crate::kind::{Kind, all};
use crate::run::Plan;
use crate::{exhaustive, manage, model};

/// Something that can be played by number.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Random runs; the number is the seed.
    Random(Kind),
    /// Pairs of operations.
    Pairs,
    /// The operator's operations, failed and cut at every device operation.
    Management,
    /// Requests without faults, against an array; the number is the seed.
    Array,
}

/// Cases that are played one after another lie so far apart, so that the first few differ in kind.
/// It has no factor in common with the number of cases.
const STRIDE: u64 = 1013;

impl Trial {
    /// All of them.
    pub fn all() -> Vec<Trial> {
        let others = [Trial::Pairs, Trial::Management, Trial::Array];
        all().map(Trial::Random).chain(others).collect()
    }

    /// The trials with these names, in this order.
    ///
    /// # Errors
    /// The first name that there is not.
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

    /// How it is called.
    pub fn name(&self) -> String {
        match self {
            Trial::Random(kind) => kind.full_name(),
            Trial::Pairs => "pairs".into(),
            Trial::Management => "management".into(),
            Trial::Array => "array".into(),
        }
    }

    /// Plays number `n`, adding to a tally. Cases begin again when all were played.
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

    /// How many are played at a time, so that all have their turn soon.
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
