//! Miss-ratio curves of replacement policies.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::curve::policies::{Answer, Point};
use forebay_config::Size;
use forebay_report::{Lines, Report, Section, Table};
use serde::Serialize;

use crate::curve::lines;
use crate::format::{count, of_accesses, percent};
use crate::{Facts, Shown, write_facts, write_table};

/// A curve for each policy.
pub struct PolicyCurves<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// The names of the traces.
    pub files: String,
}

impl Shown for PolicyCurves<'_> {
    fn document(&self) -> impl Serialize {
        self.answer
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        Report::new("Miss ratios of replacement policies")
            .subtitle(&self.files)
            .section(section(self.answer, "Policies"))
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&facts(self.answer), out)?;
        write_table(&table(self.answer), out)
    }
}

/// A table with a row for each size and a column for each policy.
fn table(answer: &Answer) -> Table {
    let sizes = answer.policies.first().map_or(&[][..], |curve| &curve.points);
    let table = Table::from_items(sizes.iter().enumerate()).column("miss ratio", |(_, size)| {
        let all = if size.size_blocks == answer.distinct_blocks { " (all)" } else { "" };
        format!("{}{all}", Size(size.size_bytes))
    });
    let table = answer.policies.iter().fold(table, |table, curve| {
        table.number(&curve.policy, |&(at, _)| {
            curve.points.get(at).map_or_else(String::new, |p| format!("{:.4}", p.miss_ratio))
        })
    });
    table.table()
}

/// The section of the page.
pub fn section(answer: &Answer, title: impl Into<String>) -> Section {
    let all = figure(answer, "Miss ratio by cache size", |point| point.miss_ratio).figure();
    let mut section = Section::new(title).facts(facts(answer)).figure(all.caption(
        "The share of block accesses that miss with each policy, by cache size. No policy is \
         better than `opt`, which knows the future.",
    ));
    // If there are only reads or only writes, all charts are the same.
    if answer.reads > 0 && answer.writes > 0 {
        let reads = figure(answer, "Miss ratio of reads", |point| point.read_miss_ratio);
        section = section.figure(reads.figure());
    }
    section
}

fn figure(answer: &Answer, title: &str, ratio: fn(&Point) -> f64) -> Lines {
    answer.policies.iter().fold(lines(title), |lines, curve| {
        let sizes = curve.points.iter().map(|point| point.size_bytes as f64);
        lines.line(&curve.policy, sizes, curve.points.iter().map(ratio))
    })
}

fn facts(answer: &Answer) -> Facts {
    let about = if answer.sampled_rate < 1.0 { "about " } else { "" };
    let distinct = Size(answer.distinct_blocks.saturating_mul(answer.block_size));
    let mut facts = vec![
        ("requests", count(answer.requests)),
        ("block accesses", count(answer.accesses)),
        ("share of writes", of_accesses(answer.writes, answer.accesses)),
        ("distinct data", format!("{about}{distinct}")),
        ("block size", Size(answer.block_size).to_string()),
    ];
    if answer.sampled_rate < 1.0 {
        let rate = percent(answer.sampled_rate);
        facts.push((
            "run with",
            format!("{rate} of the blocks, in caches scaled down by the same factor"),
        ));
    }
    facts
}
