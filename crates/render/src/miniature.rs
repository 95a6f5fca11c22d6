//! Miss-ratio curves of a configured cache, from simulations of scaled-down caches.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::miniature::{Answer, Point, Ratios};
use forebay_config::Size;
use forebay_report::{Axis, HeatMap, Lines, Report, Section, Table, Unit};
use schemars::JsonSchema;
use serde::Serialize;

use crate::format::{count, percent};
use crate::{Facts, Shown, write_facts, write_table};

/// A curve, or a surface over memory and flash. This type is also the JSON document.
#[derive(Serialize, JsonSchema)]
pub struct Miniature<'a> {
    /// The configuration file.
    pub config: String,
    /// The answer.
    #[serde(flatten)]
    pub answer: &'a Answer,
    /// The names of the traces.
    #[serde(skip)]
    pub files: String,
}

impl Shown for Miniature<'_> {
    fn document(&self) -> impl Serialize {
        self
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        report(self)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&facts(self), out)?;
        print(self.answer, out)
    }
}

fn print(answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    let flash = flash_sizes(answer);
    if flash.len() > 1 {
        writeln!(out, "\nmiss ratio, by memory and flash")?;
        let table = Table::from_items(memory_sizes(answer))
            .column("memory", |&bytes| Size(bytes).to_string());
        let table = flash.iter().enumerate().fold(table, |table, (at, &bytes)| {
            table.number(name(bytes), |&memory| {
                let point = of_memory(answer, memory).nth(at);
                point.map_or_else(String::new, |p| cell(p, |r| r.miss_ratio))
            })
        });
        return writeln!(out, "{}", table.to_text().trim_end());
    }
    let has_flash = matches!(flash.first(), Some(Some(_)));
    let table = Table::from_items(&answer.points)
        .column("memory", |p| Size(p.size.size_bytes).to_string())
        .number("miss ratio", |p| cell(p, |r| r.miss_ratio))
        .number("of reads", |p| cell(p, |r| r.read_miss_ratio))
        .number("of writes", |p| cell(p, |r| r.write_miss_ratio))
        .number_if(has_flash, "hits in memory", |p| cell(p, |r| r.tier1_hit_ratio))
        .number_if(has_flash, "hits on flash", |p| cell(p, |r| r.tier2_hit_ratio));
    write_table(&table.table(), out)
}

fn report(shown: &Miniature<'_>) -> Report {
    let answer = shown.answer;
    let flash = flash_sizes(answer);
    let mut lines = Lines::new("Miss ratio by memory")
        .x(Axis::new("memory", Unit::Bytes).log())
        .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
    for &bytes in &flash {
        let points = || answer.points.iter().filter(move |p| p.size.flash_bytes == bytes);
        lines = lines.line(
            bytes.map_or("memory only".to_owned(), |bytes| format!("{} of flash", Size(bytes))),
            points().map(|p| p.size.size_bytes as f64),
            points().map(|p| p.ratios.map_or(f64::NAN, |r| r.miss_ratio)),
        );
    }
    let mut section = Section::new("The cache").facts(facts(shown)).figure(lines.figure().caption(
        "The share of block accesses that miss in the configured cache. The figures come from a \
         scaled-down copy of the cache and a sample of the blocks.",
    ));
    if flash.len() > 1 {
        let mut map = HeatMap::new("Miss ratio by memory and flash", Unit::Fraction)
            .columns("flash", flash.iter().map(|&bytes| name(bytes)))
            .rows("memory", memory_sizes(answer).into_iter().map(|bytes| Size(bytes).to_string()));
        for bytes in memory_sizes(answer) {
            let cells = of_memory(answer, bytes);
            map = map.row(cells.map(|p| p.ratios.map_or(f64::NAN, |r| r.miss_ratio)));
        }
        section = section.figure(map.figure());
    }
    Report::new("Miss ratios in miniature").subtitle(&shown.files).section(section)
}

fn cell(point: &Point, pick: fn(&Ratios) -> f64) -> String {
    point.ratios.as_ref().map_or("-".to_owned(), |ratios| format!("{:.4}", pick(ratios)))
}

fn name(flash_bytes: Option<u64>) -> String {
    flash_bytes.map_or("none".to_owned(), |bytes| Size(bytes).to_string())
}

/// The distinct flash sizes, in the requested order.
fn flash_sizes(answer: &Answer) -> Vec<Option<u64>> {
    let mut sizes: Vec<Option<u64>> = Vec::new();
    for point in &answer.points {
        if !sizes.contains(&point.size.flash_bytes) {
            sizes.push(point.size.flash_bytes);
        }
    }
    sizes
}

fn memory_sizes(answer: &Answer) -> Vec<u64> {
    let mut sizes: Vec<u64> = answer.points.iter().map(|p| p.size.size_bytes).collect();
    sizes.dedup();
    sizes
}

fn of_memory(answer: &Answer, bytes: u64) -> impl Iterator<Item = &Point> {
    answer.points.iter().filter(move |p| p.size.size_bytes == bytes)
}

fn facts(shown: &Miniature<'_>) -> Facts {
    let answer = shown.answer;
    let about = if answer.sampled_rate < 1.0 { "about " } else { "" };
    let mut facts = vec![
        ("requests", count(answer.requests)),
        ("block accesses", count(answer.accesses)),
        ("share of writes", percent(answer.writes as f64 / answer.accesses as f64)),
        ("distinct data", format!("{about}{}", Size(answer.distinct_blocks * answer.block_size))),
        ("cache", shown.config.clone()),
    ];
    // If there are several sizes, the tables and charts list them.
    if let [Some(bytes)] = flash_sizes(answer)[..] {
        facts.push(("flash", Size(bytes).to_string()));
    }
    facts.extend([
        ("write policy", answer.write_policy.to_owned()),
        ("replacement", answer.replacement.to_owned()),
        ("block size", Size(answer.block_size).to_string()),
        ("simulated with", format!("{} of the blocks", percent(answer.sampled_rate))),
    ]);
    facts
}
