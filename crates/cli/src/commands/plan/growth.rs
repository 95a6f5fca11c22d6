//! `forebay plan --have`: grow tier 1, or add a tier 2?

use std::io::Write;

use forebay_plan::{Growth, Hierarchy, PlanError, Purchase, Units, Way};
use forebay_report::{Axis, Figure, Lines, Report, Section, Table, Unit};
use serde::{Deserialize, Serialize};

use super::answer::{Answer, refused};
use super::text::{tiers, times};
use crate::error::CliError;
use crate::format::percent;
use crate::rows::Rows;

/// Amounts of money that a picture has.
const AMOUNTS: usize = 48;

/// What the budgets do for the tier 1 that is there.
pub struct Growths<'a> {
    answer: &'a Answer<'a>,
    have: Units,
    document: Document,
}

/// The JSON document.
#[derive(Serialize, Deserialize)]
pub struct Document {
    policy: String,
    block_size: u64,
    metadata_bytes_per_block: Vec<u64>,
    have_bytes: u64,
    full_cost_usd: f64,
    /// One for each budget and combination of two tiers.
    growth: Vec<Growth>,
    /// Combinations of which a budget buys nothing.
    unaffordable: Vec<String>,
    /// One for each combination of two tiers.
    curves: Vec<Curve>,
}

/// What a combination does with more and more money.
#[derive(Serialize, Deserialize)]
struct Curve {
    tiers: [String; 2],
    backing: String,
    points: Vec<Point>,
}

#[derive(Serialize, Deserialize)]
struct Point {
    /// On top of what is there.
    budget_usd: f64,
    grow_latency_us: f64,
    add_latency_us: f64,
    divide_latency_us: f64,
}

impl<'a> Growths<'a> {
    /// Compares for every budget asked for and every combination of two tiers.
    pub fn new(answer: &'a Answer<'a>, have_bytes: u64) -> Result<Self, CliError> {
        let unit = answer.options.cost.unit_bytes;
        let have = Units(have_bytes / unit);
        if have.0 == 0 {
            let least = Unit::Bytes.show(unit as f64);
            return Err(CliError::usage(format_args!(
                "--have is below {least}, the unit of sizes"
            ))
            .next("without a tier 1, plan both tiers: leave out --have"));
        }
        let mut growths = Self { answer, have, document: Document::new(answer, have) };
        let hierarchies = growths.hierarchies()?;
        for budget in &answer.args.budget {
            let usd = budget.usd(answer.profile, &answer.catalogue, &answer.options.cost);
            let mut refusal = None;
            let before = growths.document.growth.len();
            for hierarchy in &hierarchies {
                match growths.compare(hierarchy, usd) {
                    Ok(growth) => growths.document.growth.push(growth),
                    Err(error @ PlanError::BuysNothing { .. }) => {
                        growths.document.unaffordable.push(hierarchy.label());
                        refusal = Some(error);
                    }
                    Err(error) => return Err(refused(error, *budget)),
                }
            }
            if let Some(error) = refusal.filter(|_| growths.document.growth.len() == before) {
                return Err(refused(error, *budget));
            }
        }
        for hierarchy in &hierarchies {
            let curve = growths.curve(hierarchy)?;
            growths.document.curves.push(curve);
        }
        Ok(growths)
    }

    fn hierarchies(&self) -> Result<Vec<Hierarchy>, CliError> {
        let two = self.answer.combinations.iter().filter(|c| c.tiers.len() == 2);
        let all: Vec<Hierarchy> = two
            .map(|c| Hierarchy::new(&self.answer.catalogue, c, self.answer.options.policy))
            .collect::<Result<_, _>>()?;
        if all.is_empty() {
            let what = "--have compares growing tier 1 with adding a second tier, and no \
                        combination has two tiers";
            return Err(CliError::usage(what).next("name two devices with --tiers"));
        }
        Ok(all)
    }

    fn compare(&self, hierarchy: &Hierarchy, usd: f64) -> Result<Growth, PlanError> {
        Growth::of(self.answer.profile, hierarchy, self.have, usd, &self.answer.options)
    }

    /// Latency over the money, for each way of spending it.
    fn curve(&self, hierarchy: &Hierarchy) -> Result<Curve, PlanError> {
        let cost = &self.answer.options.cost;
        let (first, second) = (&hierarchy.tiers[0], &hierarchy.tiers[1]);
        let lowest = cost.unit_usd(0, first, first).max(cost.unit_usd(1, second, first));
        let most = self.document.growth.iter().map(|g| g.budget_usd).fold(lowest, f64::max);
        let mut points = Vec::new();
        for usd in forebay_plan::budget_range(lowest * (1.0 + 1e-9), 2.0 * most, AMOUNTS) {
            let growth = self.compare(hierarchy, usd)?;
            points.push(Point {
                budget_usd: growth.budget_usd,
                grow_latency_us: growth.grow.mean_latency_us,
                add_latency_us: growth.add.mean_latency_us,
                divide_latency_us: growth.divide.mean_latency_us,
            });
        }
        let tiers = [first.name.clone(), second.name.clone()];
        Ok(Curve { tiers, backing: hierarchy.backing.name.clone(), points })
    }

    pub fn document(&self) -> &Document {
        &self.document
    }

    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.facts() {
            writeln!(out, "{name:<20} {value}")?;
        }
        for (heading, table, verdicts) in self.document.tables() {
            writeln!(out, "\n{heading}\n{}", table.to_text().trim_end())?;
            for verdict in verdicts {
                writeln!(out, "{verdict}")?;
            }
        }
        Ok(())
    }

    /// The workload; nothing is searched here.
    fn facts(&self) -> impl Iterator<Item = (String, String)> {
        self.answer.facts().into_iter().filter(|(name, _)| name != "search")
    }

    pub fn rows(&self) -> Rows {
        let growth = &self.document.growth;
        let real = |f: fn(&Growth) -> f64| growth.iter().map(f);
        let bytes = |f: fn(&Growth) -> u64| growth.iter().map(f);
        Rows::default()
            .reals("budget_usd", real(|g| g.budget_usd))
            .texts("tier1", growth.iter().map(|g| g.add.tiers[0].device.as_str()))
            .texts("tier2", growth.iter().map(|g| g.add.tiers[1].device.as_str()))
            .texts("backing", growth.iter().map(|g| g.now.backing.as_str()))
            .integers("have_bytes", bytes(|g| g.now.tiers[0].bytes))
            .reals("now_latency_us", real(|g| g.now.mean_latency_us))
            .integers("grow_tier1_bytes", bytes(|g| g.grow.tiers[0].bytes))
            .reals("grow_latency_us", real(|g| g.grow.mean_latency_us))
            .integers("add_tier2_bytes", bytes(|g| g.add.tiers[1].bytes))
            .reals("add_latency_us", real(|g| g.add.mean_latency_us))
            .integers("divide_tier1_bytes", bytes(|g| g.divide.tiers[0].bytes))
            .integers("divide_tier2_bytes", bytes(|g| g.divide.tiers[1].bytes))
            .reals("divide_latency_us", real(|g| g.divide.mean_latency_us))
            .texts("better", growth.iter().map(|g| way(g.better)))
            .reals("price_ratio", real(|g| g.price_ratio))
            .optional_reals("price_ratio_needed", growth.iter().map(|g| g.price_ratio_needed))
    }

    pub fn report(&self) -> Report {
        let args = self.answer.args;
        let files: Vec<String> =
            args.traces.traces.iter().map(|path| path.display().to_string()).collect();
        let overview = Section::new("The workload").facts(self.facts());
        let report =
            Report::new("Grow tier 1 or add tier 2?").subtitle(files.join(", ")).section(overview);
        self.document.sections().into_iter().fold(report, Report::section)
    }
}

impl Document {
    fn new(answer: &Answer<'_>, have: Units) -> Self {
        Self {
            policy: super::answer::policy_name(answer.args.policy).to_owned(),
            block_size: answer.options.cost.block_size.bytes(),
            metadata_bytes_per_block: answer.metadata_bytes(),
            have_bytes: have.0 * answer.options.cost.unit_bytes,
            full_cost_usd: answer.full_usd,
            growth: Vec::new(),
            unaffordable: Vec::new(),
            curves: Vec::new(),
        }
    }

    /// Backing stores in the order in which combinations name them.
    fn backings(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for curve in &self.curves {
            if !names.contains(&curve.backing.as_str()) {
                names.push(&curve.backing);
            }
        }
        names
    }

    /// By budget and backing store: a heading, the table, and a sentence for each tier 1.
    fn tables(&self) -> Vec<(String, Table, Vec<String>)> {
        let mut budgets: Vec<f64> = self.growth.iter().map(|g| g.budget_usd).collect();
        budgets.dedup();
        let mut tables = Vec::new();
        for usd in budgets {
            for backing in self.backings() {
                let of = |g: &&Growth| g.budget_usd == usd && g.now.backing == backing;
                let found: Vec<&Growth> = self.growth.iter().filter(of).collect();
                let mut verdicts: Vec<String> = Vec::new();
                let mut seen: Vec<&str> = Vec::new();
                for growth in &found {
                    let first = growth.now.tiers[0].device.as_str();
                    if !seen.contains(&first) {
                        seen.push(first);
                        let same = found.iter().filter(|g| g.now.tiers[0].device == first);
                        verdicts.extend(same.min_by(|a, b| by_latency(a, b)).map(|g| verdict(g)));
                    }
                }
                if !found.is_empty() {
                    let heading =
                        format!("{} more, in front of {backing}:", Unit::Dollars.show(usd));
                    tables.push((heading, table(&found), verdicts));
                }
            }
        }
        tables
    }

    /// The sections of a page, but for the workload.
    pub fn sections(&self) -> Vec<Section> {
        let tables = self.tables().into_iter().map(|(heading, table, verdicts)| {
            let section = Section::new(heading.trim_end_matches(':')).table(table);
            verdicts.into_iter().fold(section, Section::text)
        });
        let pictures = self.backings().into_iter().map(|backing| {
            let section = Section::new(format!("In front of {backing}, by the money spent"));
            let curves = self.curves.iter().filter(|c| c.backing == backing);
            curves.fold(section, |section, curve| section.figure(curve.figure()))
        });
        tables.chain(pictures).collect()
    }
}

impl Curve {
    fn figure(&self) -> Figure {
        let x = || self.points.iter().map(|p| p.budget_usd);
        let y = |of: fn(&Point) -> f64| self.points.iter().map(of);
        let [first, second] = &self.tiers;
        Lines::new(format!("{first} + {second} in front of {}", self.backing))
            .x(Axis::new("money spent on top of what is there", Unit::Dollars).log())
            .y(Axis::new("mean latency", Unit::Micros).log())
            .line(format!("more {first}"), x(), y(|p| p.grow_latency_us))
            .line(format!("{second} as tier 2"), x(), y(|p| p.add_latency_us))
            .line("the best division", x(), y(|p| p.divide_latency_us))
            .figure()
    }
}

fn by_latency(a: &Growth, b: &Growth) -> std::cmp::Ordering {
    a.divide.mean_latency_us.total_cmp(&b.divide.mean_latency_us)
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Grow => "grow",
        Way::Add => "add",
        Way::Neither => "neither",
    }
}

fn table(found: &[&Growth]) -> Table {
    let head = Table::new()
        .column("have")
        .number("now")
        .column("grow to")
        .number("latency")
        .column("or add")
        .number("latency")
        .column("better")
        .number("by")
        .number("price ratio")
        .number("needed")
        .column("best division")
        .number("latency");
    found.iter().fold(head, |table, g| {
        let us = |p: &Purchase| Unit::Micros.show(p.mean_latency_us);
        let second = g.add.tiers.get(1..).unwrap_or_default();
        let added = second.iter().map(|t| (t.device.as_str(), t.bytes));
        let bytes = second.first().map_or(0, |t| t.bytes);
        let added = match bytes {
            0 => "nothing".to_owned(),
            _ => super::text::tier_names(added),
        };
        table.row([
            tiers(&g.now),
            us(&g.now),
            Unit::Bytes.show(g.grow.tiers[0].bytes as f64),
            us(&g.grow),
            added,
            us(&g.add),
            way(g.better).to_owned(),
            percent(g.latency_reduction),
            format!("{:.2}", g.price_ratio),
            g.price_ratio_needed.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            tiers(&g.divide),
            us(&g.divide),
        ])
    })
}

/// The answer in a sentence or two.
fn verdict(g: &Growth) -> String {
    let (first, second) = (&g.add.tiers[0].device, &g.add.tiers[1].device);
    let size = |p: &Purchase, tier: usize| Unit::Bytes.show(p.tiers[tier].bytes as f64);
    let us = |p: &Purchase| {
        let usd = Unit::Dollars.show(p.cost_usd - g.now.cost_usd);
        format!("{} for {usd}", Unit::Micros.show(p.mean_latency_us))
    };
    let grown = format!("{first} grown to {} ({})", size(&g.grow, 0), us(&g.grow));
    let added = format!("{} of {second} below it ({})", size(&g.add, 1), us(&g.add));
    let mut text = match g.better {
        Way::Neither => {
            return format!("{}: neither more of it nor {second} makes it faster.", tiers(&g.now));
        }
        Way::Add => format!(
            "{}: add {second}. {added} is {} faster than {grown}.",
            tiers(&g.now),
            percent(g.latency_reduction)
        ),
        Way::Grow => format!(
            "{}: grow it. {grown} is {} faster than {added}.",
            tiers(&g.now),
            percent(g.latency_reduction)
        ),
    };
    text += &match g.price_ratio_needed {
        Some(needed) => format!(
            " A byte of {first} costs {:.2} times as much as one of {second}; adding is the \
             better use of this money from {needed:.2} on.",
            g.price_ratio
        ),
        None => format!(" No size of {second} does as much as growing, whatever it costs."),
    };
    if let Some(used) = g.add.endurance_used.filter(|&used| used > 1.0 && g.better == Way::Add) {
        text += &format!(
            " But {} of it uses {} times its rated endurance; plan without --have for what lasts.",
            size(&g.add, 1),
            times(used)
        );
    }
    let best = g.grow.mean_latency_us.min(g.add.mean_latency_us);
    let less = 1.0 - g.divide.mean_latency_us / best;
    if less > 0.001 {
        text += &format!(
            " Best of all is some of both: {} ({}, {} faster).",
            tiers(&g.divide),
            us(&g.divide),
            percent(less)
        );
    }
    text
}
