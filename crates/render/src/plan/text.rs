//! A plan as text and tables.

use std::collections::BTreeSet;
use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::plan::{Answer, Basis, Front};
use forebay_plan::{
    Choice, HitCounts, JudgedBy, Metadata, Method, Plan, Purchase, WritePolicy, fastest,
};
use forebay_report::{Report, Table, Unit};
use serde::Serialize;

use crate::format::{count, counted, percent};
use crate::{Part, Shown, write_facts, write_parts};

/// Maximum number of plans of a front in the text.
const PARETO_ROWS: usize = 60;
/// The column heading of the plan with which a choice is compared.
pub const SINGLE: &str = "tier 1 alone, at most this cost";
/// Explains which cache the hits refer to.
const HITS: &str = "those of one ideal LRU list. The slots layout (the default) gets nearly as \
                    many, the log layout fewer. To count the hits of Forebay's own cache, use \
                    --evaluate simulate";

/// A plan, and the parts of it to show.
pub struct Choices<'a> {
    /// The plan.
    pub answer: &'a Answer,
    /// The names of the traces.
    pub files: String,
    /// Whether the text contains the sweep; charts and rows contain it anyway.
    pub with_sweep: bool,
    /// Whether the text and the JSON document contain the fronts; charts and rows contain them
    /// anyway.
    pub with_pareto: bool,
}

impl Shown for Choices<'_> {
    fn document(&self) -> impl Serialize {
        self.answer.document(self.with_pareto)
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        self.report()
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let backings = self.answer.basis.backings();
        let mut parts = Vec::new();
        for plan in &self.answer.plans {
            parts.push(Part::Line(format!("\n{}", self.budget_line(plan))));
            backings.iter().for_each(|backing| parts.extend(self.plan_parts(plan, backing)));
        }
        for backing in backings {
            if self.with_sweep {
                parts.push(Part::Line(format!("\nBy budget, in front of {backing}:")));
                parts.push(Part::Table(self.sweep_table(backing)));
            }
            let fronts = self.answer.pareto.iter().filter(|_| self.with_pareto);
            if let Some(front) = fronts.into_iter().find(|front| front.backing == backing) {
                parts.extend(self.front_parts(front));
            }
        }
        write_facts(&facts(&self.answer.basis), out)?;
        write_parts(&parts, out)
    }
}

impl Choices<'_> {
    /// The choices of one plan in front of one backing store, and remarks on them.
    fn plan_parts(&self, plan: &Plan, backing: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(table) = self.choices_table(plan, backing) {
            parts.push(Part::Line(format!("\nIn front of {backing}:")));
            parts.push(Part::Table(table));
        }
        let best = best_of(plan, backing);
        let remarks = [
            self.mean_above_p99(plan, backing).map(str::to_owned),
            best.and_then(advice),
            best.and_then(|best| single_tier(plan, best)),
            self.worn_out(plan, backing),
        ];
        let worn_out = self.judged_worn_out(plan, backing);
        parts.extend(remarks.into_iter().flatten().chain(worn_out).map(Part::Line));
        parts
    }

    /// The fastest plans of a front, under a line that says what they are.
    fn front_parts(&self, front: &Front) -> [Part; 2] {
        let (table, shown, fastest) = self.pareto_table(front);
        let thinned = match shown < fastest {
            true => format!(" ({shown} of {fastest})"),
            false => String::new(),
        };
        let grid = match front.is_exact {
            true => "",
            false => {
                " (computed on a grid of sizes, because there are too many to evaluate them all)"
            }
        };
        let line = format!(
            "\nThe fastest plan for every budget, in front of {}{thinned}; the JSON document lists \
             all {} plans that no other plan beats in cost, mean latency, 99th percentile and \
             drive writes at the same time{grid}:",
            front.backing,
            count(front.points.len() as u64),
        );
        [Part::Line(line), Part::Table(table)]
    }

    /// The best choice for each budget of the sweep.
    fn sweep_table(&self, backing: &str) -> Table {
        let best = |plan| Some((plan, best_of(plan, backing)?));
        Table::from_items(self.answer.sweep.iter().filter_map(best))
            .number("budget", |(plan, _)| Unit::Dollars.show(plan.budget_usd))
            .column("buy", |(_, best)| tiers(&best.purchase))
            .number("cost", |(_, best)| Unit::Dollars.show(best.purchase.cost_usd))
            .number("mean latency", |(_, best)| latency(&best.purchase))
            .number(SINGLE, |(_, best)| mean(&best.baseline))
            .number("gained", |(_, best)| percent(best.latency_reduction))
            .table()
    }

    /// The fastest plans by cost, thinned out evenly. Also returns how many are shown, and how many
    /// there are.
    fn pareto_table(&self, front: &Front) -> (Table, usize, usize) {
        let mut there = 0;
        let rows = self.answer.rows_of(front, |points| {
            let fastest: Vec<_> = fastest(points).collect();
            there = fastest.len();
            thinned(fastest, PARETO_ROWS)
        });
        let shown = rows.len();
        let table = Table::from_items(rows)
            .number("cost", |row| Unit::Dollars.show(row.cost_usd))
            .column("buy", |row| tier_names(row.tiers.iter().map(|t| (t.device, t.bytes))))
            .number("mean latency", |row| Unit::Micros.show(row.mean_latency_us))
            .number("p99", |row| Unit::Micros.show(row.p99_latency_us))
            .number("drive writes/day", |row| known(row.drive_writes_per_day, two_digits))
            .number("flash writes/day", |row| known(row.flash_bytes_written_per_day, bytes))
            .table();
        (table, shown, there)
    }

    /// The fastest plan that wears out too fast, if it is faster than every choice in front of
    /// `backing`.
    pub(super) fn worn_out(&self, plan: &Plan, backing: &str) -> Option<String> {
        let of = || plan.choices.iter().filter(|c| c.purchase.backing == backing);
        let fastest =
            |a: &&Purchase, b: &&Purchase| a.analytic_latency_us.total_cmp(&b.analytic_latency_us);
        let worn = of().filter_map(|c| c.wears_out.as_ref()).min_by(fastest)?;
        let bought = of().map(|c| c.purchase.analytic_latency_us).fold(f64::INFINITY, f64::min);
        if worn.analytic_latency_us >= bought {
            return None;
        }
        let limit = self.answer.basis.options.wear_max.unwrap_or(f64::INFINITY);
        Some(format!(
            "Rejected: {}, {} for {}. It would wear out: the load would use {} times its rated \
             endurance, and the limit is {limit} (--wear-max).",
            tiers(worn),
            Unit::Micros.show(worn.analytic_latency_us),
            Unit::Dollars.show(worn.cost_usd),
            times(worn.endurance_used.unwrap_or(0.0))
        ))
    }

    /// Choices that the formulas accept but that wear out too fast in the simulation or replay.
    fn judged_worn_out(&self, plan: &Plan, backing: &str) -> Vec<String> {
        let Some(limit) = self.answer.basis.options.wear_max else { return Vec::new() };
        let judged = plan.choices.iter().map(|c| &c.purchase).filter(|p| {
            let used = p.endurance_used.unwrap_or(0.0);
            p.backing == backing && p.judged_by != JudgedBy::Analytic && used > limit
        });
        let says = |p: &Purchase| {
            format!(
                "Wears out: {}. When {}, it uses {} times its rated endurance (the wear limit is \
                 {limit}).",
                tiers(p),
                self.how_judged(),
                times(p.endurance_used.unwrap_or(0.0))
            )
        };
        judged.map(says).collect()
    }

    /// Explains why means are above 99th percentiles, if some are by formula.
    pub(super) fn mean_above_p99(&self, plan: &Plan, backing: &str) -> Option<&'static str> {
        let above = plan.choices.iter().map(|c| &c.purchase).any(|p| {
            p.backing == backing
                && p.judged_by == JudgedBy::Analytic
                && p.mean_latency_us > p.p99_latency_us
        });
        above.then_some(match self.answer.basis.options.policy {
            WritePolicy::WriteBack => {
                "A mean can exceed the p99, because it includes the write-backs of evicted blocks; \
                 the p99 excludes them, because no client waits for them."
            }
            WritePolicy::WriteThrough => {
                "A mean can exceed the p99, because fewer than 1 % of the accesses account for most of \
                 the total time."
            }
        })
    }

    fn how_judged(&self) -> &'static str {
        match self.answer.judged_by {
            JudgedBy::Analytic => "evaluated by formula",
            JudgedBy::Simulate => "simulated",
            JudgedBy::Replay => "replayed",
        }
    }

    pub(super) fn budget_line(&self, plan: &Plan) -> String {
        let share = plan.budget_usd / self.answer.basis.full_usd;
        format!(
            "Budget {}, {} of the cost of all data in DRAM; {} {}{}",
            Unit::Dollars.show(plan.budget_usd),
            percent(share),
            counted(plan.evaluations, "size"),
            match self.answer.basis.options.method {
                Method::Cydonia(_) if self.answer.judged_by != JudgedBy::Analytic => {
                    self.how_judged()
                }
                _ => "evaluated by formula",
            },
            match judged(plan) {
                0 => String::new(),
                n => format!(
                    "; the first {} {}, marked *, as are their single tiers (a p99 marked * is \
                     that of requests; every other p99 is that of block accesses)",
                    if n == 1 { "choice".to_owned() } else { format!("{n} choices") },
                    self.how_judged()
                ),
            }
        )
    }

    /// The choices in front of one backing store; `None` if there are none.
    pub(super) fn choices_table(&self, plan: &Plan, backing: &str) -> Option<Table> {
        // Combinations that differ only in a second tier that is not bought are the same purchase.
        let mut choices: Vec<&Choice> = Vec::new();
        for choice in plan.choices.iter().filter(|c| c.purchase.backing == backing) {
            if !choices.iter().any(|c| tiers(&c.purchase) == tiers(&choice.purchase)) {
                choices.push(choice);
            }
        }
        if choices.is_empty() {
            return None;
        }
        Some(
            Table::from_items(choices)
                .column("buy", |c| tiers(&c.purchase))
                .column("class", |c| c.purchase.class.name().into())
                .number("cost", |c| Unit::Dollars.show(c.purchase.cost_usd))
                .number("mean latency", |c| latency(&c.purchase))
                .number("p99", |c| Unit::Micros.show(c.purchase.p99_latency_us) + mark(&c.purchase))
                .number(SINGLE, |c| mean(&c.baseline))
                .number("gained", |c| percent(c.latency_reduction))
                .number("wear", |c| known(c.purchase.endurance_used, times))
                .number("hits by tier", |c| hits_by_tier(&c.purchase))
                .number("flash writes/day", |c| {
                    known(c.purchase.flash_bytes_written_per_day, bytes)
                })
                .number("drive writes/day", |c| known(c.purchase.drive_writes_per_day, two_digits))
                .table(),
        )
    }
}

/// Facts about the workload and the planning options.
pub fn facts(basis: &Basis) -> Vec<(String, String)> {
    let (p, options) = (&basis.profile, &basis.options);
    let accesses = p.reads() + p.writes();
    let block = options.cost.block_size;
    let dram = basis.catalogue.reference_device().map_or("memory", |d| d.name.as_str());
    let shown = |blocks: u64| Unit::Bytes.show((blocks * block.bytes()) as f64);
    let mut facts = vec![
        ("requests".to_string(), count(p.requests())),
        ("block accesses".into(), count(accesses)),
        ("share of writes".into(), percent(p.writes() as f64 / accesses.max(1) as f64)),
        ("distinct data".into(), shown(p.footprint_blocks())),
        ("all reuses fit in".into(), shown(p.useful_blocks())),
        (format!("all in {dram}"), Unit::Dollars.show(basis.full_usd)),
        ("write policy".into(), options.policy.name().into()),
        ("search".into(), options.method.name().into()),
        ("hits assumed".into(), HITS.into()),
    ];
    if let Some(limit) = options.wear_max {
        let known = p.duration() > forebay_block::Nanos(0);
        let text = match known {
            true => {
                let times = if limit == 1.0 { String::new() } else { format!("{limit} times ") };
                format!("{times}the rated endurance of the flash that you buy (--wear-max {limit})")
            }
            false => "not known: the trace has no timestamps".to_owned(),
        };
        facts.push(("flash wear limit".into(), text));
    }
    if (options.flash_writes - 1.0).abs() > 1e-9 {
        let text =
            format!("{} of the amount that the formulas predict", percent(options.flash_writes));
        facts.push(("flash writes".into(), text));
    }
    if options.cost.metadata != Metadata::default() {
        let bytes: Vec<String> = basis.metadata_bytes().iter().map(u64::to_string).collect();
        facts.push(("metadata by tier".into(), format!("{} B a block", bytes.join(", "))));
    }
    let rate = p.options().sample_rate;
    if rate < 1.0 {
        facts.push(("sampled".into(), percent(rate)));
    }
    facts
}

fn best_of<'a>(plan: &'a Plan, backing: &str) -> Option<&'a Choice> {
    plan.choices.iter().find(|c| c.purchase.backing == backing)
}

fn hits_by_tier(p: &Purchase) -> String {
    let bought = p.hit_ratio.iter().zip(&p.tiers).filter(|(_, tier)| tier.bytes > 0);
    bought.map(|(&h, _)| percent(h)).collect::<Vec<_>>().join(", ")
}

/// Formats a number, or returns `-` if it is unknown.
pub fn known(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

pub fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn bytes(value: f64) -> String {
    Unit::Bytes.show(value)
}

/// Formats a multiple of the rated endurance: `0.35`, `3,400`.
pub fn times(used: f64) -> String {
    if used < 10.0 { format!("{used:.2}") } else { count(used.round() as u64) }
}

/// At most `most` of the `points`, evenly spaced by index, including the first and the last.
fn thinned<T: Copy>(points: Vec<T>, most: usize) -> Vec<T> {
    let last = points.len().saturating_sub(1);
    if last < most {
        return points;
    }
    (0..most).map(|at| points[at * last / (most - 1)]).collect()
}

/// The mark after latencies that were not evaluated by formula.
fn mark(purchase: &Purchase) -> &'static str {
    if purchase.judged_by == JudgedBy::Analytic { "" } else { " *" }
}

/// The number of distinct purchases that were not evaluated by formula.
fn judged(plan: &Plan) -> usize {
    let judged =
        plan.choices.iter().map(|c| &c.purchase).filter(|p| p.judged_by != JudgedBy::Analytic);
    judged.map(|p| (&p.backing, tiers(p))).collect::<BTreeSet<_>>().len()
}

/// `704 µs`, or `704 µs *` if it was not evaluated by formula.
fn mean(purchase: &Purchase) -> String {
    Unit::Micros.show(purchase.mean_latency_us) + mark(purchase)
}

/// `704 µs`, or `704 µs ± 1.5 %` if it was estimated from a sample.
fn latency(purchase: &Purchase) -> String {
    let text = mean(purchase);
    match purchase.mean_latency_us_bounds {
        None => text,
        Some(b) => {
            let off = (b.high - b.low) / 2.0 / purchase.mean_latency_us;
            format!("{text} ± {}", percent(off))
        }
    }
}

/// `12 MiB FastDRAM + 3 GiB FastSSD`; empty second tiers are left out.
pub fn tiers(purchase: &Purchase) -> String {
    tier_names(purchase.tiers.iter().map(|t| (t.device.as_str(), t.bytes)))
}

/// Lists tiers given as device and bytes.
pub fn tier_names<'a>(tiers: impl Iterator<Item = (&'a str, u64)>) -> String {
    let part = |(at, (device, bytes)): (usize, (&str, u64))| match bytes {
        0 if at > 0 => None,
        0 => Some(format!("no {device}")),
        bytes => Some(format!("{} {device}", Unit::Bytes.show(bytes as f64))),
    };
    tiers.enumerate().filter_map(part).collect::<Vec<_>>().join(" + ")
}

/// Describes the fastest single tier on any device within the budget, compared with the best two
/// tiers.
fn single_tier(plan: &Plan, best: &Choice) -> Option<String> {
    let held = |p: &Purchase| p.tiers.iter().filter(|t| t.bytes > 0).count();
    if held(&best.purchase) < 2 {
        return None;
    }
    let singles = plan.choices.iter().filter(|c| c.purchase.backing == best.purchase.backing);
    let single = singles
        .filter(|c| held(&c.purchase) < 2)
        .min_by(|a, b| a.purchase.mean_latency_us.total_cmp(&b.purchase.mean_latency_us))?;
    let p = &single.purchase;
    let slower = p.mean_latency_us / best.purchase.mean_latency_us - 1.0;
    Some(format!(
        "The best choice with a single tier, on any device, is {}, {}. It costs {} and is {} slower \
         than the first choice.",
        tiers(p),
        latency(p),
        Unit::Dollars.show(p.cost_usd),
        percent(slower)
    ))
}

/// Advice about the best choice, if any.
pub fn advice(choice: &Choice) -> Option<String> {
    let p = &choice.purchase;
    let mut text = match &choice.break_even {
        Some(b) => {
            let first = &p.tiers.first()?.device;
            let below: Vec<&str> =
                p.tiers[1..].iter().filter(|t| t.bytes > 0).map(|t| t.device.as_str()).collect();
            let (what, is, one) = match below.as_slice() {
                [second] => ("second tier", "is", (*second).to_owned()),
                _ => ("lower tiers", "are", format!("{} on average", below.join(" and "))),
            };
            let verdict = if b.second_tier_is_cheaper { "cheaper" } else { "more expensive" };
            format!(
                "{first} alone would need {} to be as fast as the first choice. The {what} {is} \
                 {verdict}: a byte of {first} costs {:.2} times as much as a byte of {one}; at \
                 {:.2} times as much, the two solutions would cost the same.",
                Unit::Bytes.show(b.single_tier_bytes as f64),
                b.price_ratio,
                b.price_ratio_needed
            )
        }
        None => String::new(),
    };
    if let Some(used) = p.endurance_used.filter(|&used| used > 1.0) {
        text += &format!(
            " The flash of the first choice would receive {used:.1} times its rated writes, and \
             would wear out early."
        );
    }
    (!text.is_empty()).then(|| text.trim_start().to_string())
}
