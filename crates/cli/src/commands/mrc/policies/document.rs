//! The curves of policies as a document, as text, rows and pictures.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_config::Size;
use forebay_report::{Axis, Lines, Report, Section, Unit};
use serde::{Deserialize, Serialize};

use crate::format::{count, percent, table};

/// The answer.
#[derive(Serialize, Deserialize)]
pub struct Document {
    pub block_size: u64,
    pub requests: u64,
    pub accesses: u64,
    pub reads: u64,
    pub writes: u64,
    /// Estimated, if of a sample.
    pub distinct_blocks: u64,
    pub sampled_rate: f64,
    /// In the order asked for, all with the same sizes.
    pub policies: Vec<PolicyCurve>,
}

#[derive(Serialize, Deserialize)]
pub struct PolicyCurve {
    pub policy: String,
    pub points: Vec<Point>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub struct Point {
    pub size_blocks: u64,
    pub size_bytes: u64,
    pub miss_ratio: f64,
    pub read_miss_ratio: f64,
    pub write_miss_ratio: f64,
}

impl Document {
    /// For people: a row for each size, a column for each policy.
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.facts() {
            writeln!(out, "{name:<20} {value}")?;
        }
        let header: Vec<&str> = std::iter::once("miss ratio")
            .chain(self.policies.iter().map(|curve| curve.policy.as_str()))
            .collect();
        let sizes = self.policies.first().map_or(&[][..], |curve| &curve.points);
        let rows: Vec<Vec<String>> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| {
                let all = if size.size_blocks == self.distinct_blocks { " (all)" } else { "" };
                let ratios = self.policies.iter().filter_map(|curve| curve.points.get(at));
                std::iter::once(Size(size.size_bytes).to_string() + all)
                    .chain(ratios.map(|point| format!("{:.4}", point.miss_ratio)))
                    .collect()
            })
            .collect();
        writeln!(out, "\n{}", table(&header, &rows).trim_end())
    }

    /// A row for each policy and size.
    pub fn rows(&self) -> Columns {
        let all: Vec<(&str, Point)> = self
            .policies
            .iter()
            .flat_map(|curve| curve.points.iter().map(|&point| (curve.policy.as_str(), point)))
            .collect();
        Columns::default()
            .texts("policy", all.iter().map(|row| row.0))
            .integers("size_blocks", all.iter().map(|row| row.1.size_blocks))
            .integers("size_bytes", all.iter().map(|row| row.1.size_bytes))
            .reals("miss_ratio", all.iter().map(|row| row.1.miss_ratio))
            .reals("read_miss_ratio", all.iter().map(|row| row.1.read_miss_ratio))
            .reals("write_miss_ratio", all.iter().map(|row| row.1.write_miss_ratio))
    }

    /// The page.
    pub fn report(&self, files: String) -> Report {
        Report::new("Miss ratios of replacement policies")
            .subtitle(files)
            .section(self.section("Policies"))
    }

    /// What the page shows.
    pub fn section(&self, title: impl Into<String>) -> Section {
        let all = self.figure("Miss ratio by cache size", |point| point.miss_ratio).figure();
        let mut section = Section::new(title).facts(self.facts()).figure(all.caption(
            "The share of block accesses that a cache of the size misses under each policy. No policy \
             gets below `opt`, which knows the future.",
        ));
        // With one kind of accesses only, the pictures are the same.
        if self.reads > 0 && self.writes > 0 {
            let reads = self.figure("Miss ratio of reads", |point| point.read_miss_ratio);
            section = section.figure(reads.figure());
        }
        section
    }

    fn figure(&self, title: &str, ratio: fn(&Point) -> f64) -> Lines {
        let lines = Lines::new(title).x(Axis::new("cache size", Unit::Bytes).log()).y(Axis::new(
            "miss ratio",
            Unit::Fraction,
        )
        .from_zero());
        self.policies.iter().fold(lines, |lines, curve| {
            let sizes = curve.points.iter().map(|point| point.size_bytes as f64);
            lines.line(&curve.policy, sizes, curve.points.iter().map(ratio))
        })
    }

    fn facts(&self) -> Vec<(String, String)> {
        let about = if self.sampled_rate < 1.0 { "about " } else { "" };
        let distinct = Size(self.distinct_blocks.saturating_mul(self.block_size));
        let mut facts = vec![
            ("requests", count(self.requests)),
            ("block accesses", count(self.accesses)),
            ("of these writes", percent(self.writes as f64 / self.accesses.max(1) as f64)),
            ("distinct data", format!("{about}{distinct}")),
            ("block size", Size(self.block_size).to_string()),
        ];
        if self.sampled_rate < 1.0 {
            let rate = percent(self.sampled_rate);
            facts.push(("run with", format!("{rate} of the blocks, in caches as much smaller")));
        }
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
