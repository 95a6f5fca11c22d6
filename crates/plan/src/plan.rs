//! Plans: the best purchase for a budget, over every combination of a catalogue.

use forebay_block::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use crate::budget::cheaper;
use crate::catalogue::{Catalogue, Combination};
use crate::choice::{Choice, choose};
use crate::cost::CostModel;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::{Analytic, Evaluator};
use crate::hierarchy::{Hierarchy, WritePolicy};
use crate::purchase::Purchase;
use crate::search::CydoniaOptions;
use crate::space::Space;
use crate::wear::WearLimit;

/// How to search for sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Every size; with more than two tiers, a subset of about `points_max` points.
    Exhaustive {
        /// Number of points per combination; two tiers are always searched in full.
        points_max: u64,
    },
    /// A few evaluations guided by hit-miss ratios; for at most two tiers.
    Cydonia(CydoniaOptions),
}

impl Method {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhaustive { .. } => "exhaustive",
            Self::Cydonia(_) => "cydonia",
        }
    }
}

/// The options of a plan: everything but the workload.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanOptions {
    /// The write policy.
    pub policy: WritePolicy,
    /// How to search for sizes.
    pub method: Method,
    /// How sizes translate to dollars.
    pub cost: CostModel,
    /// Duration of the workload, from which bytes per day are computed; zero if unknown.
    pub duration: Nanos,
    /// Flash that would use more than this share of its rated endurance is not bought; at 1, flash
    /// lasts as long as its rating says. `None`: no limit. Without a duration, the limit has no
    /// effect.
    pub wear_max: Option<f64>,
    /// Blocks that the cache writes to flash below tier 1, as a fraction of those that the formulas
    /// count: 1 if every block is admitted, without headers and rewriting. It affects wear only,
    /// not latency.
    pub flash_writes: f64,
}

impl PlanOptions {
    /// The limit on the wear of flash; `None` if there is no limit or the duration is unknown.
    pub fn wear_limit(&self) -> Option<WearLimit> {
        let PlanOptions { duration, flash_writes, .. } = *self;
        let limit = |used_max| WearLimit { used_max, duration, flash_writes };
        self.wear_max.filter(|_| self.duration > Nanos(0)).map(limit)
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            policy: WritePolicy::default(),
            method: Method::Exhaustive { points_max: 1 << 20 },
            cost: CostModel::default(),
            duration: Nanos(0),
            wear_max: None,
            flash_writes: 1.0,
        }
    }
}

/// The best purchases for one budget.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Plan {
    /// The budget, in US dollars.
    pub budget_usd: f64,
    /// The best sizes of each combination of devices, fastest first; `choices[0]` is the fastest of all,
    /// regardless of the backing store.
    pub choices: Vec<Choice>,
    /// The single tier of the same cost with which the first choice is compared.
    pub baseline: Purchase,
    /// Number of evaluated sizes, not counting single tiers.
    pub evaluations: u64,
    /// Names of the combinations for which the budget does not buy one unit of tier 1.
    pub unaffordable: Vec<String>,
    /// Names of the combinations for which everything that the budget can buy exceeds the wear limit
    /// (`wear_max`).
    pub wears_out: Vec<String>,
}

/// Plans for each of `combinations` and puts the fastest first, judging sizes by the formulas.
///
/// # Errors
/// If the workload has no accesses, the budget buys nothing in any combination, or a combination
/// names a device that the catalogue does not have.
pub fn plan<H: HitCounts + ?Sized>(
    counts: &H,
    catalogue: &Catalogue,
    combinations: &[Combination],
    budget_usd: f64,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let mut analytic = Analytic::new(counts, &options.cost);
    plan_with(counts, catalogue, combinations, budget_usd, options, &mut analytic)
}

/// Plans as [`plan`] does, but with the caller's evaluator.
///
/// # Errors
/// As [`plan`], and as soon as an evaluation fails.
pub fn plan_with<H: HitCounts + ?Sized>(
    counts: &H,
    catalogue: &Catalogue,
    combinations: &[Combination],
    budget_usd: f64,
    options: &PlanOptions,
    evaluator: &mut dyn Evaluator,
) -> Result<Plan, PlanError> {
    if counts.reads() + counts.writes() == 0 {
        return Err(PlanError::NoAccesses);
    }
    let (mut choices, mut unaffordable, mut refused) = (Vec::new(), Vec::new(), None);
    let mut wears_out = Vec::new();
    for combination in combinations {
        let hierarchy = Hierarchy::new(catalogue, combination, options.policy)?;
        match Space::new(counts, &hierarchy, &options.cost, budget_usd) {
            Ok(space) => match choose(counts, &space, options, evaluator)? {
                Some(choice) => choices.push(choice),
                None => wears_out.push(hierarchy.label()),
            },
            Err(error @ PlanError::BuysNothing { .. }) => {
                unaffordable.push(hierarchy.label());
                refused = Some(cheaper(refused, error));
            }
            Err(error) => return Err(error),
        }
    }
    choices.sort_by(|a, b| {
        let us = a.purchase.mean_latency_us.total_cmp(&b.purchase.mean_latency_us);
        us.then(a.purchase.cost_usd.total_cmp(&b.purchase.cost_usd))
    });
    let Some(first) = choices.first() else {
        if !wears_out.is_empty() {
            let used_max = options.wear_max.unwrap_or(f64::INFINITY);
            return Err(PlanError::WearsOut { budget_usd, used_max });
        }
        let none = || PlanError::NoCombination("none was given".into());
        return Err(refused.unwrap_or_else(none));
    };
    Ok(Plan {
        budget_usd,
        baseline: first.baseline.clone(),
        evaluations: choices.iter().map(|c| c.evaluations).sum(),
        choices,
        unaffordable,
        wears_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::check_budget;
    use crate::purchase::{Class, Tier};
    use crate::testing::Steps;

    fn counts() -> Steps {
        let at = vec![(10 * 256, 3000, 500), (100 * 256, 6000, 1200), (400 * 256, 9000, 1900)];
        Steps { reads: 10_000, writes: 2_000, at, footprint: 500 * 256 }
    }

    fn options() -> PlanOptions {
        PlanOptions { duration: Nanos(3_600_000_000_000), ..PlanOptions::default() }
    }

    #[test]
    fn all_seventeen_combinations_are_answered_fastest_first() {
        let c = Catalogue::default();
        let plan = plan(&counts(), &c, c.combinations(), 1.0, &options()).unwrap();
        assert_eq!(plan.choices.len(), 17);
        let us: Vec<f64> = plan.choices.iter().map(|c| c.purchase.mean_latency_us).collect();
        assert!(us.is_sorted());
        for choice in &plan.choices {
            assert!(choice.purchase.cost_usd <= 1.0 && choice.baseline.cost_usd <= 1.0);
            assert!(choice.latency_reduction >= 0.0);
            assert_eq!(choice.purchase.class == Class::Single, choice.purchase.tiers[1].bytes == 0);
            assert_eq!(choice.baseline.tiers.len(), 1);
        }
        assert_eq!(plan.baseline, plan.choices[0].baseline);
    }

    #[test]
    fn the_baseline_costs_no_more_than_the_choice_and_one_unit_more_would() {
        let (c, cost) = (Catalogue::default(), CostModel::default());
        // A loop of 10 MiB: two tiers that hold it cost a seventh of the budget.
        let counts =
            Steps { reads: 3000, writes: 0, at: vec![(10 * 256, 2000, 0)], footprint: 10 * 256 };
        let tiers = ["FastDRAM", "SlowSSD"].map(String::from).to_vec();
        let of = [Combination { tiers, backing: "SlowHDD".into() }];
        for budget_usd in [0.02, 0.07] {
            let choice = &plan(&counts, &c, &of, budget_usd, &options()).unwrap().choices[0];
            let unit_usd =
                cost.unit_usd(0, c.device("FastDRAM").unwrap(), c.device("FastDRAM").unwrap());
            let [bought, single] = [&choice.purchase, &choice.baseline].map(|p| p.cost_usd);
            assert!(single <= bought && bought < single + unit_usd, "{bought} {single}");
            let whole = choice.whole_budget.cost_usd;
            assert!(whole <= budget_usd && budget_usd < whole + 2.0 * unit_usd);
            let reduction = 1.0 - choice.purchase.mean_latency_us / choice.baseline.mean_latency_us;
            assert!((choice.latency_reduction - reduction).abs() < 1e-9 && reduction > 0.0);
        }
    }

    #[test]
    fn flash_writes_and_wear_are_per_day() {
        let c = Catalogue::default();
        let of = |tiers: [&str; 2]| Combination {
            tiers: tiers.map(String::from).to_vec(),
            backing: "SlowHDD".into(),
        };
        let flash = plan(&counts(), &c, &[of(["FastDRAM", "SlowSSD"])], 0.5, &options()).unwrap();
        let bought = &flash.choices[0].purchase;
        let missed_tier1 = 12_000.0 * (1.0 - bought.hit_ratio[0]);
        let daily = bought.flash_bytes_written_per_day.unwrap();
        assert!((daily - missed_tier1 * 4096.0 * 24.0).abs() < 1e-3, "{daily}");
        let rated = bought.tiers[1].bytes as f64;
        assert!((bought.endurance_used.unwrap() - daily / rated).abs() < 1e-9);
        // Its rating is one drive write per day.
        assert_eq!(bought.drive_writes_per_day, bought.endurance_used);
        let dram = plan(&counts(), &c, &[of(["FastDRAM", "SlowDRAM"])], 0.5, &options()).unwrap();
        assert_eq!(dram.choices[0].purchase.flash_bytes_written_per_day, Some(0.0));
        assert_eq!(dram.choices[0].purchase.endurance_used, None);
    }

    #[test]
    fn flash_that_wears_out_early_is_not_bought_and_what_it_would_do_is_said() {
        let c = Catalogue::default();
        let all = c.combinations();
        // The trace takes an hour, so everything is written to such a small tier many times a day.
        let free = plan(&counts(), &c, all, 0.5, &options()).unwrap();
        let used = |p: &Purchase| p.endurance_used.unwrap_or(0.0);
        assert!(free.choices.iter().any(|c| used(&c.purchase) > 1.0));
        for used_max in [0.25, 1.0, 5.0] {
            let limited = PlanOptions { wear_max: Some(used_max), ..options() };
            let plan = plan(&counts(), &c, all, 0.5, &limited).unwrap();
            assert_eq!(plan.choices.len() + plan.wears_out.len(), 17);
            for choice in &plan.choices {
                assert!(used(&choice.purchase) <= used_max * 1.000_001, "{choice:?}");
                if let Some(worn) = &choice.wears_out {
                    assert!(used(worn) > used_max);
                    assert!(worn.mean_latency_us <= choice.purchase.mean_latency_us);
                }
            }
            assert_eq!(used_max <= 1.0, plan.choices.iter().any(|c| c.wears_out.is_some()));
        }
        // Without a duration, the lifetime of flash is unknown.
        let unknown =
            PlanOptions { wear_max: Some(1.0), duration: Nanos(0), ..PlanOptions::default() };
        let unknown = plan(&counts(), &c, all, 0.5, &unknown).unwrap();
        assert_eq!(unknown.choices.len(), 17);
    }

    #[test]
    fn a_cache_that_writes_half_as_much_wears_half_as_fast() {
        let c = Catalogue::default();
        let all = c.combinations();
        let of = |flash_writes, wear_max: Option<f64>| {
            let options = PlanOptions { flash_writes, wear_max, ..options() };
            plan(&counts(), &c, all, 0.5, &options).unwrap().choices
        };
        let in_memory = |choice: &Choice| {
            let first = c.device(&choice.purchase.tiers[0].device).unwrap();
            first.kind == crate::DeviceKind::Dram
        };
        let (whole, half) = (of(1.0, None), of(0.5, None));
        let mut compared = 0;
        for (a, b) in whole.iter().zip(&half) {
            assert_eq!(a.purchase.tiers, b.purchase.tiers, "wear changes no latency");
            let used = a.purchase.endurance_used.zip(b.purchase.endurance_used);
            // (The writes to a first tier of flash do not change.)
            if let Some((a, b)) = used.filter(|_| in_memory(a)) {
                assert!((b - a / 2.0).abs() < 1e-9, "{a} {b}");
                compared += usize::from(a > 0.0);
            }
        }
        assert!(compared > 3, "{compared}");
        // Half of the writes and half of the limit lead to the same purchase.
        let bought = |choices: Vec<Choice>| -> Vec<Vec<Tier>> {
            choices.into_iter().filter(in_memory).map(|c| c.purchase.tiers).collect()
        };
        assert_eq!(bought(of(1.0, Some(1.0))), bought(of(0.5, Some(0.5))));
        assert_ne!(bought(of(1.0, Some(1.0))), bought(of(0.5, Some(1.0))));
    }

    #[test]
    fn flash_is_bought_larger_than_of_use_where_that_makes_it_endure() {
        let c = Catalogue::default();
        let of = Combination {
            tiers: ["FastDRAM", "SlowSSD"].map(String::from).to_vec(),
            backing: "SlowHDD".into(),
        };
        let at = vec![(256, 10, 0), (30 * 256, 9000, 0)];
        let counts = Steps { reads: 10_000, writes: 0, at, footprint: 30 * 256 };
        // Ten thousand blocks in five hours are 187 MiB a day; the flash is rated for one drive
        // write a day.
        let options = PlanOptions {
            wear_max: Some(1.0),
            duration: Nanos(18_000_000_000_000),
            ..PlanOptions::default()
        };
        let plan = plan(&counts, &c, &[of], 0.1, &options).unwrap();
        let bought = &plan.choices[0].purchase;
        assert_eq!(bought.tiers[0].bytes, 1 << 20);
        let mib = bought.tiers[1].bytes >> 20;
        assert!((187..=188).contains(&mib), "{mib} MiB of which 29 are useful");
        assert!(bought.endurance_used.is_some_and(|used| used > 0.99 && used <= 1.0));
    }

    #[test]
    fn three_tiers_are_never_worse_than_two_of_them() {
        let c = Catalogue::default();
        let of = |tiers: &[&str]| Combination {
            tiers: tiers.iter().map(|t| t.to_string()).collect(),
            backing: "SlowHDD".into(),
        };
        let best = |combination| {
            plan(&counts(), &c, &[combination], 1.5, &options()).unwrap().choices[0].clone()
        };
        let three = best(of(&["FastDRAM", "SlowDRAM", "SlowSSD"]));
        for two in [&["FastDRAM", "SlowDRAM"], &["FastDRAM", "SlowSSD"]] {
            let two = best(of(two));
            assert!(three.purchase.mean_latency_us <= two.purchase.mean_latency_us * (1.0 + 1e-9));
        }
    }

    #[test]
    fn a_plan_reads_as_documented() {
        let c = Catalogue::default();
        let method = Method::Cydonia(CydoniaOptions::default());
        let options = PlanOptions { method, ..PlanOptions::default() };
        let plan = plan(&counts(), &c, c.combinations(), 0.5, &options).unwrap();
        assert!(plan.evaluations <= 170);
        let json = serde_json::to_value(&plan).unwrap();
        let choice = &json["choices"][0];
        for key in ["tiers", "cost_usd", "mean_latency_us", "class", "hit_ratio"] {
            assert!(!choice[key].is_null() && !json["baseline"][key].is_null(), "{key}");
        }
        assert!(choice["tiers"][0]["device"].is_string() && choice["tiers"][0]["bytes"].is_u64());
        // Without a duration there is no "per day".
        assert!(choice["flash_bytes_written_per_day"].is_null());
        assert!(choice.as_object().unwrap().contains_key("flash_bytes_written_per_day"));
    }

    #[test]
    fn impossible_requests_are_refused() {
        let c = Catalogue::default();
        let none = Steps { reads: 0, writes: 0, at: vec![], footprint: 0 };
        let message = |counts: &Steps, combinations: &[Combination], usd| {
            plan(counts, &c, combinations, usd, &options()).unwrap_err().to_string()
        };
        assert!(message(&none, c.combinations(), 1.0).contains("no block"));
        assert!(message(&counts(), &[], 1.0).contains("none was given"));
        let early = check_budget(&c, c.combinations(), 0.001, &CostModel::default());
        assert!(early.unwrap_err().to_string().contains("SlowDRAM"));
        assert!(check_budget(&c, c.combinations(), 0.0045, &CostModel::default()).is_ok());
        // The error names the cheapest tier that can be bought.
        let error = message(&counts(), c.combinations(), 0.001);
        assert!(error.contains("SlowDRAM") && error.contains("0.00449"), "{error}");
    }
}
