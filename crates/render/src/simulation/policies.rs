//! One cache, simulated with several replacement policies.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::simulation::{Answer, Comparison};
use forebay_config::Size;
use forebay_report::{Axis, Lines, Percentiles, Report, Section, Table, Unit};
use forebay_results::{CacheResult, ReadWrite};
use serde::Serialize;

use crate::format::{count, percent};
use crate::{Facts, Shown, write_facts, write_table};

/// Simulations that differ only in the replacement policy.
pub struct Compared<'a> {
    /// The answers.
    pub comparison: &'a Comparison,
}

impl Shown for Compared<'_> {
    fn document(&self) -> impl Serialize {
        self.comparison.document()
    }

    fn rows(&self) -> Columns {
        self.comparison.rows()
    }

    fn page(&self) -> Report {
        report(self.comparison)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&facts(self.comparison), out)?;
        write_table(&table(&self.comparison.answers), out)
    }
}

fn facts(comparison: &Comparison) -> Facts {
    vec![
        ("requests", count(comparison.trace.requests)),
        ("pacing", comparison.pacing.to_owned()),
        ("cache", comparison.config.clone()),
    ]
}

/// A table with a row for each policy.
fn table(answers: &[(&str, Answer)]) -> Table {
    let is_timed = answers.iter().all(|(_, answer)| answer.is_timed());
    let has_flash = answers.iter().any(|(_, answer)| answer.result.flash.is_some());
    let share = |cache: &CacheResult, n: ReadWrite| {
        let hits = cache.hits.tier1 + cache.hits.tier2 + cache.hits.delayed;
        percent(n.sum() as f64 / (hits + cache.misses).sum().max(1) as f64)
    };
    let size = |bytes: u64| Size(bytes).to_string();
    let rows = answers.iter().map(|(policy, answer)| {
        (policy, &answer.result, answer.result.run.cache.unwrap_or_default())
    });
    Table::from_items(rows)
        .column("policy", |(policy, ..)| (**policy).to_owned())
        .number("hit ratio", |(.., cache)| percent(cache.hit_ratio))
        .number_if(has_flash, "in memory", |(.., cache)| share(cache, cache.hits.tier1))
        .number_if(has_flash, "on flash", |(.., cache)| share(cache, cache.hits.tier2))
        .number_if(has_flash, "written to flash", |(.., cache)| size(cache.tier2_bytes_written))
        .number("read from backing", |(.., cache)| size(cache.backing.read_bytes))
        .number("written to backing", |(.., cache)| size(cache.backing.write_bytes))
        .number_if(is_timed, "mean latency", |(_, r, _)| {
            Unit::Micros.show(r.run.latency_us.all.mean)
        })
        .number_if(is_timed, "p99", |(_, r, _)| Unit::Micros.show(r.run.latency_us.all.p99))
        .number_if(is_timed, "requests/s", |(_, r, _)| count(r.throughput.requests_per_s as u64))
        .table()
}

fn report(comparison: &Comparison) -> Report {
    let answers = &comparison.answers;
    let mut section =
        Section::new("Policies").facts(facts(comparison)).table(table(answers)).figure(
            hits_over_time(answers)
                .figure()
                .caption("The share of block accesses that hit in the cache with each policy."),
        );
    if answers.iter().all(|(_, answer)| answer.is_timed()) {
        for (title, pick) in [("Latency of reads", true), ("Latency of writes", false)] {
            let latency = |answer: &Answer| {
                let latency = &answer.result.run.latency_us;
                if pick { latency.read } else { latency.write }
            };
            if answers.iter().any(|(_, answer)| latency(answer).max > 0.0) {
                let figure = answers.iter().fold(Percentiles::new(title), |figure, (name, a)| {
                    figure.series(*name, latency(a).quantiles())
                });
                section = section.figure(figure.figure());
            }
        }
    }
    Report::new("Replacement policies simulated")
        .subtitle(comparison.trace.name.clone())
        .section(section)
}

fn hits_over_time(answers: &[(&str, Answer)]) -> Lines {
    let lines = Lines::new("Hit ratio over time").x(Axis::new("time", Unit::Seconds)).y(Axis::new(
        "share of block accesses",
        Unit::Fraction,
    )
    .from_zero());
    answers.iter().fold(lines, |lines, (policy, answer)| {
        let rows = || answer.result.rows.iter();
        let hits = |hits: &forebay_results::Hits| {
            (hits.tier1.sum() + hits.tier2.sum() + hits.delayed.sum()) as f64
        };
        lines.line(
            *policy,
            rows().map(|row| (row.start_s + row.end_s) / 2.0),
            rows().map(|row| hits(&row.hits) / (hits(&row.hits) + row.misses.sum() as f64)),
        )
    })
}
