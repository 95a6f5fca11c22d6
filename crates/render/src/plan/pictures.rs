//! A plan as charts.

use forebay_analysis::plan::Front;
use forebay_plan::{Choice, ParetoPoint, Plan, Tradeoff, hit_miss_curve};
use forebay_report::{
    Axis, BudgetChart, BudgetPoint, Figure, HeatMap, Lines, Report, Section, Shape, Unit,
};

use super::text::{Choices, advice, facts};

/// Number of points of a curve over the size of tier 1.
const CURVE_POINTS: usize = 1000;
/// Maximum number of budgets for which curves are drawn; tables cover all budgets.
const CURVES_MAX: usize = 4;

impl Choices<'_> {
    pub(super) fn report(&self) -> Report {
        let overview = Section::new("The workload").facts(facts(&self.answer.basis));
        let mut report = Report::new("Which tiers to buy").subtitle(&self.files).section(overview);
        for (index, plan) in self.answer.plans.iter().enumerate() {
            report = report.section(self.budget_section(plan, index < CURVES_MAX));
        }
        for backing in self.answer.basis.backings() {
            report = report.section(self.sweep_section(backing));
        }
        report
    }

    fn budget_section(&self, plan: &Plan, with_curves: bool) -> Section {
        let heading = format!("For {}", Unit::Dollars.show(plan.budget_usd));
        let mut section = Section::new(heading).text(format!("{}.", self.budget_line(plan)));
        for backing in self.answer.basis.backings() {
            if let Some(table) = self.choices_table(plan, backing) {
                section = section.table(table.caption(format!("In front of {backing}")));
            }
            if let Some(reason) = self.mean_above_p99(plan, backing) {
                section = section.text(format!("In front of {backing}: {reason}"));
            }
        }
        for backing in self.answer.basis.backings() {
            let best = plan.choices.iter().find(|c| c.purchase.backing == backing);
            let Some(best) = best else { continue };
            if let Some(advice) = advice(best) {
                section = section.text(format!("In front of {backing}: {advice}"));
            }
            if let Some(left_out) = self.worn_out(plan, backing) {
                section = section.text(format!("In front of {backing}: {left_out}"));
            }
            if !with_curves {
                continue;
            }
            section = self.curves(plan, best).into_iter().fold(section, Section::figure);
        }
        section
    }

    /// Latency and hit-miss ratio by size of tier 1, for one combination.
    fn curves(&self, plan: &Plan, choice: &Choice) -> Vec<Figure> {
        let p = &choice.purchase;
        if p.tiers.len() != 2 {
            return Vec::new();
        }
        let drawn = self.answer.basis.with_space(choice, plan.budget_usd, |space| {
            let mut curve = hit_miss_curve(&*self.answer.basis.profile, space);
            let step = curve.len().div_ceil(CURVE_POINTS).max(1);
            curve = curve.into_iter().step_by(step).collect();
            let unit = self.answer.basis.options.cost.unit_bytes;
            let blocks = self.answer.basis.options.cost.unit_blocks();
            let size = |c: &forebay_plan::HitMiss| (c.tier1.0 * unit) as f64;
            let us = |c: &forebay_plan::HitMiss| {
                let sizes = [c.tier1.0 * blocks, c.tier2.0 * blocks];
                space.hierarchy().mean_latency_us(&*self.answer.basis.profile, &sizes)
            };
            let names = format!("{} + {}", p.tiers[0].device, p.tiers[1].device);
            let axis = || {
                Axis::new(
                    format!("{} (the rest buys {})", p.tiers[0].device, p.tiers[1].device),
                    Unit::Bytes,
                )
            };
            let baseline = choice.baseline.mean_latency_us;
            let ends = || [curve.first(), curve.last()].into_iter().flatten();
            let latency =
                Lines::new(format!("Mean latency by split: {names} in front of {}", p.backing))
                    .x(axis())
                    .y(Axis::new("mean latency", Unit::Micros).log())
                    .line("two tiers", curve.iter().map(size), curve.iter().map(us))
                    .shaped(
                        super::text::SINGLE,
                        Shape::Dashed,
                        ends().map(size),
                        ends().map(|_| baseline),
                    )
                    .mark(p.tiers[0].bytes as f64, "chosen")
                    .figure()
                    .caption("Every way to split the budget between the two tiers.");
            let ogr = Tradeoff::from_hierarchy(space.hierarchy())
                .map_or(f64::NAN, |t| t.overhead_gain_ratio());
            let ratio = Lines::new(format!("Hit-miss ratio by split: {names}"))
                .x(axis())
                .y(Axis::new("hit-miss ratio", Unit::Plain).log())
                .line("hit-miss ratio", curve.iter().map(size), curve.iter().map(|c| c.ratio()))
                .shaped("overhead-gain ratio", Shape::Dashed, ends().map(size), ends().map(|_| ogr))
                .figure()
                .caption(
                    "Where the workload's hit-miss ratio is above the devices' overhead-gain \
                     ratio, adding a second tier to a first tier of that size makes the cache \
                     faster.",
                );
            if curve.is_empty() { Vec::new() } else { vec![latency, ratio] }
        });
        drawn.unwrap_or_default()
    }

    fn sweep_section(&self, backing: &str) -> Section {
        let mut section = Section::new(format!("In front of {backing}, by budget"));
        let labels: Vec<String> = self
            .answer
            .basis
            .combinations
            .iter()
            .filter(|c| c.backing == backing)
            .map(|c| c.tiers.join(" + "))
            .collect();
        if let Some(best) = self.most_useful(backing) {
            section = section.figure(self.budget_chart(backing, &best));
        }
        section = section
            .figure(self.latency_by_budget(backing, &labels))
            .figure(self.reduction_map(backing, &labels));
        if let Some(front) = self.answer.pareto.iter().find(|f| f.backing == backing) {
            section = self.front_figures(front).into_iter().fold(section, Section::figure);
        }
        section
    }

    /// The combination that is the fastest for the most budgets.
    fn most_useful(&self, backing: &str) -> Option<String> {
        let winners: Vec<String> = self
            .answer
            .sweep
            .iter()
            .filter_map(|plan| plan.choices.iter().find(|c| c.purchase.backing == backing))
            .map(label)
            .collect();
        winners.iter().max_by_key(|w| winners.iter().filter(|x| x == w).count()).cloned()
    }

    fn choice_of<'b>(plan: &'b Plan, backing: &str, name: &str) -> Option<&'b Choice> {
        plan.choices.iter().find(|c| c.purchase.backing == backing && label(c) == name)
    }

    fn budget_chart(&self, backing: &str, name: &str) -> Figure {
        let chosen = self.answer.sweep.iter().filter_map(|plan| {
            Self::choice_of(plan, backing, name).map(|choice| (plan.budget_usd, choice))
        });
        let mut chart = BudgetChart::new(format!("Plan against budget: {name}"), name.split(" + "));
        for (budget_usd, choice) in chosen {
            let p = &choice.purchase;
            chart = chart.point(BudgetPoint {
                budget_usd,
                latency_us: p.mean_latency_us,
                baseline_us: choice.baseline.mean_latency_us,
                tier_bytes: p.tiers.iter().map(|t| t.bytes as f64).collect(),
                class: p.class.name().into(),
            });
        }
        chart.figure().caption(format!(
            "The best sizes for the combination that is fastest for the most budgets. Budgets go \
             up to the price of holding all data in DRAM ({}).",
            Unit::Dollars.show(self.answer.basis.full_usd)
        ))
    }

    fn latency_by_budget(&self, backing: &str, labels: &[String]) -> Figure {
        let mut lines = Lines::new("Mean latency of every combination")
            .x(Axis::new("budget", Unit::Dollars).log())
            .y(Axis::new("mean latency", Unit::Micros).log());
        for name in labels {
            let points: Vec<(f64, f64)> = self
                .answer
                .sweep
                .iter()
                .filter_map(|plan| {
                    let choice = Self::choice_of(plan, backing, name)?;
                    Some((plan.budget_usd, choice.purchase.mean_latency_us))
                })
                .collect();
            lines = lines.line(name, points.iter().map(|p| p.0), points.iter().map(|p| p.1));
        }
        lines.figure()
    }

    /// The latency reduction of a second tier, by combination and budget.
    fn reduction_map(&self, backing: &str, labels: &[String]) -> Figure {
        let budgets = self.answer.sweep.iter().map(|plan| Unit::Dollars.show(plan.budget_usd));
        let map = HeatMap::new(
            "Latency reduction compared with a single tier of the same cost",
            Unit::Fraction,
        )
        .columns("budget", budgets)
        .rows("", labels);
        let row = |name: &String| -> Vec<f64> {
            let of = |plan| Self::choice_of(plan, backing, name);
            self.answer
                .sweep
                .iter()
                .map(|plan| of(plan).map_or(f64::NAN, |c| c.latency_reduction))
                .collect()
        };
        labels.iter().fold(map, |map, name| map.row(row(name))).figure()
    }

    /// The lowest mean latency for each cost, with limits on drive writes, and the lowest 99th
    /// percentile.
    fn front_figures(&self, front: &Front) -> [Figure; 2] {
        let most = front.points.iter().map(|p| p.drive_writes).fold(0.0, f64::max);
        let axis = |what: &str| Axis::new(what, Unit::Micros).log();
        let cost = || Axis::new("cost", Unit::Dollars).log();
        let mut mean = Lines::new("Lowest mean latency by cost, with limits on flash writes")
            .x(cost())
            .y(axis("mean latency"));
        for (name, allowed) in self.limits(most) {
            let (x, y) =
                lowest(front, |p| (p.drive_writes <= allowed).then_some(p.mean_latency_us));
            mean = mean.shaped(name, Shape::Steps, x, y);
        }
        let daily = self.answer.basis.per_day(most).map_or(String::new(), |n| {
            format!(" In every plan shown, flash receives at most {n:.2} drive writes per day.")
        });
        let mean = mean.figure().caption(format!(
            "These are the {} plans that no other plan beats in cost, mean latency, 99th \
             percentile and flash writes at the same time, among all combinations in front of \
             {}{}.{daily}",
            front.points.len(),
            front.backing,
            if front.is_exact { "" } else { ", on a grid of sizes" }
        ));
        let (x, y) = lowest(front, |p| Some(p.p99_latency_us));
        let tail = Lines::new("Lowest 99th percentile by cost")
            .x(cost())
            .y(axis("99th percentile"))
            .shaped("lowest 99th percentile", Shape::Steps, x, y)
            .figure()
            .caption(
                "In the formulas, the latency of an access has only a few possible values, so the \
                 percentile falls in steps: it equals the time of a miss until fewer than 1 % of \
                 the accesses miss.",
            );
        [mean, tail]
    }

    /// Limits on drive writes over the whole workload, by name.
    fn limits(&self, most: f64) -> Vec<(&'static str, f64)> {
        let mut limits = vec![("no limit", f64::INFINITY)];
        match self.answer.basis.per_day(1.0) {
            Some(per_day) => limits.extend([
                ("10 drive writes a day", 10.0 / per_day),
                ("1 drive write a day", 1.0 / per_day),
            ]),
            None => limits.extend([("half of the maximum", most / 2.0), ("a tenth", most / 10.0)]),
        }
        limits.retain(|(_, allowed)| most > 0.0 || allowed.is_infinite());
        if most > 0.0 {
            limits.push(("none", 0.0));
        }
        limits
    }
}

/// The lowest latency for each cost, as steps.
fn lowest(front: &Front, of: impl Fn(&ParetoPoint) -> Option<f64>) -> (Vec<f64>, Vec<f64>) {
    let mut lowest_us = f64::INFINITY;
    let mut points = Vec::new();
    for p in &front.points {
        if let Some(us) = of(p).filter(|&us| us < lowest_us) {
            lowest_us = us;
            points.push((p.cost_usd, lowest_us));
        }
    }
    // The last step extends to the end of the chart.
    points.extend(front.points.last().map(|p| (p.cost_usd, lowest_us)));
    points.into_iter().unzip()
}

fn label(choice: &Choice) -> String {
    let names = choice.purchase.tiers.iter().map(|t| t.device.as_str());
    names.collect::<Vec<_>>().join(" + ")
}
