//! Evaluates the best choices of a plan again, with a slower method than formulas.

use crate::catalogue::{Catalogue, Combination};
use crate::choice::Choice;
use crate::cost::{CostModel, Units};
use crate::error::{BoxError, PlanError};
use crate::hierarchy::Hierarchy;
use crate::judged_by::JudgedBy;
use crate::plan::{Plan, PlanOptions};
use crate::purchase::{Class, Purchase};
use crate::wear::Wear;

/// A judge's result for a hierarchy whose tiers have given sizes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judged {
    /// Mean latency per block access, in microseconds.
    pub mean_latency_us: f64,
    /// 99th percentile of the latency of requests, in microseconds.
    pub p99_latency_us: f64,
    /// 99.9th percentile of the latency of requests, in microseconds.
    pub p999_latency_us: f64,
    /// Share of all block accesses that hit in each tier.
    pub hit_ratio: Vec<f64>,
    /// Bytes written to each tier per day, flash or not; `None` if the duration is unknown.
    pub bytes_written_per_day: Option<Vec<f64>>,
}

/// Evaluates a hierarchy whose tiers have these sizes; returns `None` if it cannot.
type Judge<'a> = dyn FnMut(&Hierarchy, &[Units]) -> Result<Option<Judged>, BoxError> + 'a;

/// A judge, and its results: it evaluates each cache once.
pub struct Judgements<'a> {
    judge: Box<Judge<'a>>,
    known: Vec<(Hierarchy, Vec<Units>, Option<Judged>)>,
}

impl<'a> Judgements<'a> {
    /// No judgements yet. `judge` evaluates a hierarchy whose tiers have given sizes, and returns
    /// `None` if it cannot.
    pub fn new(
        judge: impl FnMut(&Hierarchy, &[Units]) -> Result<Option<Judged>, BoxError> + 'a,
    ) -> Self {
        Self { judge: Box::new(judge), known: Vec::new() }
    }

    /// The result for a hierarchy whose tiers have these sizes; `None` if the judge cannot evaluate
    /// it.
    ///
    /// # Errors
    /// If the judge fails.
    pub fn get(
        &mut self,
        hierarchy: &Hierarchy,
        sizes: &[Units],
    ) -> Result<Option<Judged>, BoxError> {
        let seen = self.known.iter().find(|(h, s, _)| h == hierarchy && s == sizes);
        if let Some((.., judged)) = seen {
            return Ok(judged.clone());
        }
        let judged = (self.judge)(hierarchy, sizes)?;
        self.known.push((hierarchy.clone(), sizes.to_vec(), judged.clone()));
        Ok(judged)
    }

    /// Number of caches that the judge has evaluated.
    pub fn count(&self) -> u64 {
        self.known.iter().filter(|(.., judged)| judged.is_some()).count() as u64
    }
}

/// Lets a judge evaluate the first `shortlist` caches among the choices of `plan`, and their single
/// tiers, and sorts these choices to the front, best first. Choices that differ only in tiers that
/// are not bought are one cache and count once. A single tier that turns out to be faster, whether
/// of the same cost or of the whole budget, replaces the choice. Choices that, according to the
/// judge, wear out faster than [`PlanOptions::wear_max`] come after those that last. Choices that
/// could not be judged or are not on the shortlist follow in their previous order, by the formulas.
///
/// # Errors
/// If the catalogue does not have the devices of the plan, or the judge fails.
pub fn judge_shortlist(
    plan: &mut Plan,
    catalogue: &Catalogue,
    options: &PlanOptions,
    (shortlist, judged_by): (usize, JudgedBy),
    judgements: &mut Judgements<'_>,
) -> Result<(), PlanError> {
    let mut shortlisted: Vec<(Hierarchy, Vec<Units>)> = Vec::new();
    let (mut best, mut rest) = (Vec::new(), Vec::new());
    for mut choice in std::mem::take(&mut plan.choices) {
        let mut found = Vec::new();
        let bought = choice.purchase.bought(catalogue, options)?;
        let is_shortlisted = shortlisted.contains(&bought);
        let is_judged = is_shortlisted || shortlisted.len() < shortlist;
        let purchases = [
            bought.clone(),
            choice.baseline.bought(catalogue, options)?,
            choice.whole_budget.bought(catalogue, options)?,
        ];
        for (hierarchy, sizes) in purchases.into_iter().filter(|_| is_judged) {
            let failed = |source| PlanError::Evaluation { what: hierarchy.label(), source };
            let judged = judgements.get(&hierarchy, &sizes).map_err(failed)?;
            let Some(judged) = judged else { break };
            let wear = judged.bytes_written_per_day.as_ref();
            let wear = wear.map(|bytes| hierarchy.wear(&sizes, &options.cost, bytes));
            found.push((judged, wear));
        }
        let Ok(judged) = <[_; 3]>::try_from(found) else {
            // An incomplete judgement allows no comparison.
            rest.push(choice);
            continue;
        };
        if !is_shortlisted {
            shortlisted.push(bought);
        }
        let purchases = [&mut choice.purchase, &mut choice.baseline, &mut choice.whole_budget];
        for (purchase, (judged, wear)) in purchases.into_iter().zip(judged) {
            purchase.enter(judged, wear, judged_by);
        }
        let [bought, same_cost, whole] = [&choice.purchase, &choice.baseline, &choice.whole_budget]
            .map(|purchase| purchase.mean_latency_us);
        if whole < bought && whole < same_cost {
            choice.baseline = choice.whole_budget.clone();
        }
        let single = choice.baseline.mean_latency_us;
        if single < bought {
            buy_single(&mut choice);
        }
        let reduction = 1.0 - choice.purchase.mean_latency_us / single;
        choice.latency_reduction = if reduction.is_finite() { reduction } else { 0.0 };
        best.push(choice);
    }
    sort(&mut best, options);
    plan.choices = best;
    plan.choices.append(&mut rest);
    if let Some(first) = plan.choices.first() {
        plan.baseline = first.baseline.clone();
    }
    Ok(())
}

/// Replaces the purchase with the baseline; its lower tiers then have size 0.
fn buy_single(choice: &mut Choice) {
    let none = choice.purchase.tiers.drain(1..).map(|tier| crate::Tier { bytes: 0, ..tier });
    let tiers: Vec<_> = none.collect();
    choice.purchase = choice.baseline.clone();
    choice.purchase.hit_ratio.resize(1 + tiers.len(), 0.0);
    choice.purchase.read_hit_ratio.resize(1 + tiers.len(), 0.0);
    choice.purchase.write_hit_ratio.resize(1 + tiers.len(), 0.0);
    choice.purchase.tiers.extend(tiers);
    choice.purchase.class = Class::Single;
    (choice.hit_miss_ratio, choice.break_even) = (None, None);
}

/// Sorts choices that last before those that wear out too fast, then by latency and by cost.
fn sort(judged: &mut [Choice], options: &PlanOptions) {
    let limit = options.wear_limit();
    let wears_out = |c: &Choice| {
        let used = c.purchase.endurance_used;
        limit.zip(used).is_some_and(|(limit, used)| !limit.allows_used(used))
    };
    judged.sort_by(|a, b| {
        let lasts = wears_out(a).cmp(&wears_out(b));
        let us = a.purchase.mean_latency_us.total_cmp(&b.purchase.mean_latency_us);
        lasts.then(us).then(a.purchase.cost_usd.total_cmp(&b.purchase.cost_usd))
    });
}

impl Purchase {
    /// Replaces the figures of the formulas with those of a judge.
    fn enter(&mut self, judged: Judged, wear: Option<Wear>, judged_by: JudgedBy) {
        self.judged_by = judged_by;
        self.mean_latency_us = judged.mean_latency_us;
        self.mean_latency_us_bounds = None;
        self.p99_latency_us = judged.p99_latency_us;
        self.p999_latency_us = judged.p999_latency_us;
        self.hit_ratio = judged.hit_ratio;
        self.hit_ratio.resize(self.tiers.len(), 0.0);
        self.flash_bytes_written_per_day = wear.map(|w| w.flash_bytes_written_per_day);
        self.drive_writes_per_day = wear.map(|w| w.drive_writes_per_day);
        self.endurance_used = wear.and_then(|w| w.endurance_used);
    }

    /// The devices of the purchase and their sizes, without tiers of size 0.
    ///
    /// # Errors
    /// If the catalogue does not have the devices.
    pub fn bought(
        &self,
        catalogue: &Catalogue,
        options: &PlanOptions,
    ) -> Result<(Hierarchy, Vec<Units>), PlanError> {
        let there = || self.tiers.iter().filter(|tier| tier.bytes > 0);
        let combination = Combination {
            tiers: there().map(|tier| tier.device.clone()).collect(),
            backing: self.backing.clone(),
        };
        let CostModel { unit_bytes, .. } = options.cost;
        let sizes = there().map(|tier| Units(tier.bytes / unit_bytes)).collect();
        Ok((Hierarchy::new(catalogue, &combination, options.policy)?, sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::testing::Steps;

    fn counts() -> Steps {
        let at = vec![(10 * 256, 3000, 500), (100 * 256, 6000, 1200), (400 * 256, 9000, 1900)];
        Steps { reads: 10_000, writes: 2_000, at, footprint: 500 * 256 }
    }

    fn judged(us: f64) -> Option<Judged> {
        Some(Judged { mean_latency_us: us, hit_ratio: vec![0.5], ..Judged::default() })
    }

    /// Judges the first choices of a plan; returns the number of judgements.
    fn judge(
        plan: &mut Plan,
        (catalogue, options, shortlist): (&Catalogue, &PlanOptions, usize),
        simulated: impl FnMut(&Hierarchy, &[Units]) -> Result<Option<Judged>, BoxError>,
    ) -> u64 {
        let (mut judgements, by) = (Judgements::new(simulated), (shortlist, JudgedBy::Simulate));
        judge_shortlist(plan, catalogue, options, by, &mut judgements).unwrap();
        judgements.count()
    }

    #[test]
    fn a_shortlist_is_ranked_by_their_judge_and_others_stay_behind() {
        let (c, options) = (Catalogue::default(), PlanOptions::default());
        let before = plan(&counts(), &c, c.combinations(), 0.5, &options).unwrap();
        let mut after = before.clone();
        // Each call returns a lower latency than the one before; single tiers are the slowest.
        let mut next = 1000.0;
        let simulated = |_: &Hierarchy, sizes: &[Units]| {
            next -= 1.0;
            Ok(judged(if sizes.len() > 1 { next } else { 5000.0 }))
        };
        let count = judge(&mut after, (&c, &options, 3), simulated);
        assert!((4..=9).contains(&count), "a single tier is judged once: {count}");
        let names = |p: &Plan| -> Vec<Vec<crate::Tier>> {
            p.choices.iter().map(|c| c.purchase.tiers.clone()).collect()
        };
        let (before_names, after_names) = (names(&before), names(&after));
        assert_eq!(after_names[0], before_names[2]);
        assert_eq!(after_names[3..], before_names[3..]);
        let by: Vec<JudgedBy> = after.choices.iter().map(|c| c.purchase.judged_by).collect();
        assert_eq!((&by[..3], by[3]), (&[JudgedBy::Simulate; 3][..], JudgedBy::Analytic));
        let first = &after.choices[0];
        assert_eq!(
            first.purchase.analytic_latency_us,
            before.choices[2].purchase.analytic_latency_us
        );
        assert!(
            (first.latency_reduction - (1.0 - first.purchase.mean_latency_us / 5000.0)).abs()
                < 1e-9
        );
        assert_eq!(after.baseline, first.baseline);
    }

    #[test]
    fn a_shortlist_holds_different_caches() {
        // All reuses hit in 10 MiB, so no second tier is bought, whatever its device.
        let counts = Steps {
            reads: 10_000,
            writes: 2_000,
            at: vec![(10 * 256, 9000, 1900)],
            footprint: 500 * 256,
        };
        let (c, options) = (Catalogue::default(), PlanOptions::default());
        let of_disk = c.combinations().iter().filter(|c| c.backing == "SlowHDD");
        let combinations: Vec<Combination> = of_disk.cloned().collect();
        let mut plan = plan(&counts, &c, &combinations, 0.2, &options).unwrap();
        let first_tiers = |plan: &Plan, n: usize| -> Vec<String> {
            plan.choices[..n].iter().map(|c| c.purchase.tiers[0].device.clone()).collect()
        };
        assert!(plan.choices.iter().all(|c| c.purchase.class == Class::Single));
        assert_eq!(first_tiers(&plan, 3), ["FastDRAM"; 3], "three choices that are one cache");
        let mut asked = Vec::new();
        let simulated = |h: &Hierarchy, sizes: &[Units]| {
            asked.push((h.tiers[0].name.clone(), sizes.to_vec()));
            Ok(judged(if h.tiers[0].name == "SlowDRAM" { 10.0 } else { 20.0 }))
        };
        let count = judge(&mut plan, (&c, &options, 2), simulated);
        assert_eq!(count, asked.len() as u64);
        assert!(["FastDRAM", "SlowDRAM"].iter().all(|name| asked.iter().any(|a| a.0 == *name)));
        assert_eq!(first_tiers(&plan, 1), ["SlowDRAM"], "the judge's best comes first");
        assert!(plan.choices.iter().all(|c| c.purchase.judged_by == JudgedBy::Simulate));
    }

    #[test]
    fn a_single_tier_of_the_whole_budget_that_is_faster_is_bought_instead() {
        // A loop of 10 MiB, which two tiers hold for a fraction of the budget.
        let at = vec![(10 * 256, 2000, 0)];
        let counts = Steps { reads: 3000, writes: 0, at, footprint: 10 * 256 };
        let (c, options) = (Catalogue::default(), PlanOptions::default());
        let tiers = ["FastDRAM", "SlowSSD"].map(String::from).to_vec();
        let combinations = [Combination { tiers, backing: "SlowHDD".into() }];
        let before = plan(&counts, &c, &combinations, 0.07, &options).unwrap();
        let [choice] = &before.choices[..] else { panic!("one combination") };
        assert!(choice.baseline.cost_usd < choice.whole_budget.cost_usd);
        let larger = Units(choice.whole_budget.tiers[0].bytes >> 20);
        for (whole_us, bought) in [(50.0, &choice.whole_budget), (200.0, &choice.purchase)] {
            let simulated = |_: &Hierarchy, sizes: &[Units]| {
                let us = if sizes.len() > 1 { 100.0 } else { 900.0 };
                Ok(judged(if sizes == [larger] { whole_us } else { us }))
            };
            let mut after = before.clone();
            judge(&mut after, (&c, &options, 1), simulated);
            let first = &after.choices[0];
            assert_eq!(first.purchase.cost_usd, bought.cost_usd);
            assert_eq!(first.purchase.mean_latency_us, f64::min(whole_us, 100.0));
            assert!(first.baseline.cost_usd <= first.purchase.cost_usd);
            let single_us = first.baseline.mean_latency_us;
            let reduction = 1.0 - first.purchase.mean_latency_us / single_us;
            assert!((first.latency_reduction - reduction).abs() < 1e-9);
        }
    }

    #[test]
    fn wear_is_of_each_flash_tier_by_what_was_written_to_it() {
        let c = Catalogue::default();
        let tiers = ["FastSSD", "SlowSSD"].map(String::from).to_vec();
        let combinations = [Combination { tiers, backing: "SlowHDD".into() }];
        let options = PlanOptions::default();
        let mut plan = plan(&counts(), &c, &combinations, 0.2, &options).unwrap();
        // Each day the first tier is written five times over and the second twice.
        let simulated = |_: &Hierarchy, sizes: &[Units]| {
            let bytes = sizes.iter().zip([5.0, 2.0]).map(|(s, times)| (s.0 << 20) as f64 * times);
            let us = 100.0 / sizes.len() as f64;
            Ok(Some(Judged {
                bytes_written_per_day: Some(bytes.collect()),
                ..judged(us).unwrap_or_default()
            }))
        };
        judge(&mut plan, (&c, &options, 1), simulated);
        let bought = &plan.choices[0].purchase;
        let [one, two] = [0, 1].map(|tier| bought.tiers[tier].bytes as f64);
        assert!(one > 0.0 && two > 0.0);
        assert_eq!(bought.flash_bytes_written_per_day, Some(5.0 * one + 2.0 * two));
        assert_eq!(bought.drive_writes_per_day, Some(5.0));
        let rated = |name| c.device(name).unwrap().drive_writes_per_day.unwrap();
        let used = (5.0 / rated("FastSSD")).max(2.0 / rated("SlowSSD"));
        assert_eq!(bought.endurance_used, Some(used));
        let single = &plan.choices[0].baseline;
        assert_eq!(single.drive_writes_per_day, Some(5.0));
        assert_eq!(single.flash_bytes_written_per_day, Some(5.0 * single.tiers[0].bytes as f64));
    }

    #[test]
    fn what_wears_out_by_its_judge_stands_behind_what_lasts() {
        let c = Catalogue::default();
        let hour = forebay_block::Nanos(3_600_000_000_000);
        let options = PlanOptions { wear_max: Some(1.0), duration: hour, ..PlanOptions::default() };
        let before = plan(&counts(), &c, c.combinations(), 1.0, &options).unwrap();
        let tier2 = |p: &Purchase| p.tiers.get(1).filter(|t| t.bytes > 0).cloned();
        // The fastest choice with flash is written a hundred times over per day.
        let flash = |name: &str| c.device(name).unwrap().drive_writes_per_day.is_some();
        let worn =
            before.choices.iter().filter_map(|c| tier2(&c.purchase)).find(|t| flash(&t.device));
        let worn = worn.expect("a second tier of flash");
        let simulated = |h: &Hierarchy, sizes: &[Units]| {
            let is_worn = h.tiers.get(1).is_some_and(|t| t.name == worn.device);
            let times = if is_worn { 100.0 } else { 0.0 };
            let bytes = sizes.iter().map(|s| (s.0 << 20) as f64 * times).collect();
            let us = if is_worn { 1.0 } else { 50.0 };
            Ok(Some(Judged { bytes_written_per_day: Some(bytes), ..judged(us).unwrap() }))
        };
        let mut after = before.clone();
        let all = before.choices.len();
        judge(&mut after, (&c, &options, all), simulated);
        let is_worn = |c: &Choice| c.purchase.endurance_used.is_some_and(|used| used > 1.0);
        let first = after.choices.iter().position(is_worn).expect("it is still there");
        assert!(first > 0 && after.choices[first..].iter().all(is_worn));
        let free = PlanOptions { wear_max: None, ..options.clone() };
        let mut after = before.clone();
        judge(&mut after, (&c, &free, all), simulated);
        assert!(is_worn(&after.choices[0]), "without a limit the fastest comes first");
    }

    #[test]
    fn a_single_tier_that_is_judged_better_is_what_is_bought() {
        let (c, options) = (Catalogue::default(), PlanOptions::default());
        let mut plan = plan(&counts(), &c, c.combinations(), 1.0, &options).unwrap();
        let simulated =
            |_: &Hierarchy, sizes: &[Units]| Ok(judged(if sizes.len() > 1 { 90.0 } else { 10.0 }));
        judge(&mut plan, (&c, &options, 2), simulated);
        for choice in &plan.choices[..2] {
            assert_eq!((choice.purchase.class, choice.latency_reduction), (Class::Single, 0.0));
            assert_eq!(choice.purchase.tiers[1].bytes, 0);
            assert_eq!(choice.purchase.hit_ratio.len(), choice.purchase.tiers.len());
        }
    }

    #[test]
    fn what_cannot_be_judged_leaves_its_place_to_the_next() {
        let (catalogue, options) = (Catalogue::default(), PlanOptions::default());
        let mut plan =
            plan(&counts(), &catalogue, catalogue.combinations(), 1.0, &options).unwrap();
        let bought = |c: &crate::Choice| c.purchase.tiers.get(1).filter(|t| t.bytes > 0).cloned();
        let refused = plan.choices.iter().find_map(bought).unwrap().device;
        let is_refused = |c: &crate::Choice| bought(c).is_some_and(|t| t.device == refused);
        let simulated = |h: &Hierarchy, _: &[Units]| {
            let has = h.tiers.get(1).is_some_and(|tier| tier.name == refused);
            Ok(if has { None } else { judged(50.0) })
        };
        judge(&mut plan, (&catalogue, &options, 2), simulated);
        let by = |c: &&Choice| c.purchase.judged_by == JudgedBy::Simulate;
        let first: Vec<&Choice> = plan.choices.iter().take_while(by).collect();
        assert_eq!(plan.choices.iter().filter(by).count(), first.len());
        let mut caches: Vec<_> =
            first.iter().map(|c| c.purchase.bought(&catalogue, &options).unwrap()).collect();
        caches.dedup();
        assert_eq!(caches.len(), 2);
        assert!(!first.iter().any(|c| is_refused(c)) && plan.choices.iter().any(is_refused));
    }
}
