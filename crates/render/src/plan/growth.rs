//! `forebay plan --have`: compares a larger tier 1 with an additional tier 2.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::plan::Basis;
use forebay_analysis::plan::growth::{Answer, Curve, Document, Point};
use forebay_plan::{Growth, Purchase, Way};
use forebay_report::{Axis, Figure, Lines, Report, Section, Table, Unit};
use serde::Serialize;

use super::text::{facts, known, tier_names, tiers, times, two_digits};
use crate::format::percent;
use crate::{Part, Shown, write_facts, write_parts};

/// What budgets buy in addition to the existing tier 1.
pub struct Growths<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// The names of the traces.
    pub files: String,
}

impl Shown for Growths<'_> {
    fn document(&self) -> impl Serialize {
        &self.answer.document
    }

    fn rows(&self) -> Columns {
        self.answer.document.rows()
    }

    fn page(&self) -> Report {
        let overview = Section::new("The workload").facts(workload(&self.answer.basis));
        let report = Report::new("Grow tier 1 or add tier 2?").subtitle(&self.files);
        sections(&self.answer.document).into_iter().fold(report.section(overview), Report::section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let parts =
            tables(&self.answer.document).into_iter().flat_map(|(heading, table, verdicts)| {
                let table = [Part::Line(format!("\n{heading}")), Part::Table(table)];
                table.into_iter().chain(verdicts.into_iter().map(Part::Line))
            });
        write_facts(&workload(&self.answer.basis), out)?;
        write_parts(&parts.collect::<Vec<_>>(), out)
    }
}

/// Facts about the workload; without the search, because this plan has none.
fn workload(basis: &Basis) -> Vec<(String, String)> {
    facts(basis).into_iter().filter(|(name, _)| name != "search").collect()
}

/// For each budget and backing store: a heading, the table, and a sentence for each tier 1.
fn tables(document: &Document) -> Vec<(String, Table, Vec<String>)> {
    let mut budgets: Vec<f64> = document.growth.iter().map(|g| g.budget_usd).collect();
    budgets.dedup();
    let mut tables = Vec::new();
    for usd in budgets {
        for backing in document.backings() {
            let of = |g: &&Growth| g.budget_usd == usd && g.now.backing == backing;
            let found: Vec<&Growth> = document.growth.iter().filter(of).collect();
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
                let heading = format!("{} more, in front of {backing}:", Unit::Dollars.show(usd));
                tables.push((heading, table(&found), verdicts));
            }
        }
    }
    tables
}

/// The sections of a page, except for the workload.
pub fn sections(document: &Document) -> Vec<Section> {
    let tables = tables(document).into_iter().map(|(heading, table, verdicts)| {
        let section = Section::new(heading.trim_end_matches(':')).table(table);
        verdicts.into_iter().fold(section, Section::text)
    });
    let pictures = document.backings().into_iter().map(|backing| {
        let section = Section::new(format!("In front of {backing}, by money spent"));
        let curves = document.curves.iter().filter(|c| c.backing == backing);
        curves.fold(section, |section, curve| section.figure(figure(curve)))
    });
    tables.chain(pictures).collect()
}

fn figure(curve: &Curve) -> Figure {
    let x = || curve.points.iter().map(|p| p.budget_usd);
    let y = |of: fn(&Point) -> f64| curve.points.iter().map(of);
    let [first, second] = &curve.tiers;
    Lines::new(format!("{first} + {second} in front of {}", curve.backing))
        .x(Axis::new("money spent in addition to the existing cache", Unit::Dollars).log())
        .y(Axis::new("mean latency", Unit::Micros).log())
        .line(format!("more {first}"), x(), y(|p| p.grow_latency_us))
        .line(format!("{second} as tier 2"), x(), y(|p| p.add_latency_us))
        .line("best split", x(), y(|p| p.divide_latency_us))
        .figure()
}

fn by_latency(a: &Growth, b: &Growth) -> std::cmp::Ordering {
    a.divide.mean_latency_us.total_cmp(&b.divide.mean_latency_us)
}

fn table(found: &[&Growth]) -> Table {
    let us = |p: &Purchase| Unit::Micros.show(p.mean_latency_us);
    let added = |g: &Growth| {
        let second = g.add.tiers.get(1..).unwrap_or_default();
        match second.first().map_or(0, |t| t.bytes) {
            0 => "nothing".to_owned(),
            _ => tier_names(second.iter().map(|t| (t.device.as_str(), t.bytes))),
        }
    };
    Table::from_items(found)
        .column("have", |g| tiers(&g.now))
        .number("now", |g| us(&g.now))
        .column("grow to", |g| Unit::Bytes.show(g.grow.tiers[0].bytes as f64))
        .number("latency", |g| us(&g.grow))
        .column("or add", |g| added(g))
        .number("latency", |g| us(&g.add))
        .column("better", |g| g.better.name().to_owned())
        .number("by", |g| percent(g.latency_reduction))
        .number("price ratio", |g| two_digits(g.price_ratio))
        .number("needed", |g| known(g.price_ratio_needed, two_digits))
        .column("best split", |g| tiers(&g.divide))
        .number("latency", |g| us(&g.divide))
        .table()
}

/// The conclusion in one or two sentences.
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
            return format!(
                "{}: neither more of this tier nor {second} makes the cache faster.",
                tiers(&g.now)
            );
        }
        Way::Add => format!(
            "{}: add {second}. {added} is {} faster than {grown}.",
            tiers(&g.now),
            percent(g.latency_reduction)
        ),
        Way::Grow => format!(
            "{}: grow this tier. {grown} is {} faster than {added}.",
            tiers(&g.now),
            percent(g.latency_reduction)
        ),
    };
    text += &match g.price_ratio_needed {
        Some(needed) => format!(
            " A byte of {first} costs {:.2} times as much as a byte of {second}; adding {second} \
             is the better use of the money if this ratio is {needed:.2} or more.",
            g.price_ratio
        ),
        None => format!(
            " Even if {second} were free, no amount of it would gain as much as more {first}."
        ),
    };
    if let Some(used) = g.add.endurance_used.filter(|&used| used > 1.0 && g.better == Way::Add) {
        text += &format!(
            " But {} of that flash would use {} times its rated endurance; to find tiers that \
             last, plan both tiers (without --have).",
            size(&g.add, 1),
            times(used)
        );
    }
    let best = g.grow.mean_latency_us.min(g.add.mean_latency_us);
    let less = 1.0 - g.divide.mean_latency_us / best;
    if less > 0.001 {
        text += &format!(
            " Doing both is best: {} ({}, {} faster).",
            tiers(&g.divide),
            us(&g.divide),
            percent(less)
        );
    }
    text
}
