//! `forebay mrc --policy`: curves of replacement policies, as text and pictures.

use std::io::Write;

use forebay_analysis::curve::policies::{Answer, POINTS, Point, Question};
use forebay_config::Size;
use forebay_report::{Axis, Lines, Report, Section, Table, Unit};

use super::args::Args;
use crate::context::Context;
use crate::error::CliError;
use crate::format::{count, percent};
use crate::rows::write_parquet;

/// Computes and prints the curves.
pub fn run(args: &Args, ctx: &Context) -> Result<(), CliError> {
    for (at, contender) in args.policies.iter().enumerate() {
        if args.policies[..at].contains(contender) {
            let error = CliError::usage(format_args!("--policy names {contender} twice"));
            return Err(error.next("name each policy once"));
        }
    }
    let question = Question {
        traces: args.traces.source(),
        policies: args.policies.clone(),
        sample_rate: args.sample.unwrap_or(1.0),
        block_size: args.block_size,
        points: args.points.unwrap_or(POINTS),
        at_blocks: args.at(),
    };
    let answer = question.ask(ctx).map_err(|error| args.refused(error))?;
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &answer.rows())?;
    }
    if let Some(path) = &args.output.html {
        report(&answer, args.traces.names()).write_html(path)?;
    }
    args.output.emit(&answer, |out| print(&answer, out))
}

/// For people: a row for each size, a column for each policy.
pub fn print(answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, value) in facts(answer) {
        writeln!(out, "{name:<20} {value}")?;
    }
    let sizes = answer.policies.first().map_or(&[][..], |curve| &curve.points);
    let table = Table::of(sizes.iter().enumerate()).column("miss ratio", |(_, size)| {
        let all = if size.size_blocks == answer.distinct_blocks { " (all)" } else { "" };
        format!("{}{all}", Size(size.size_bytes))
    });
    let table = answer.policies.iter().fold(table, |table, curve| {
        table.number(&curve.policy, |&(at, _)| {
            curve.points.get(at).map_or_else(String::new, |p| format!("{:.4}", p.miss_ratio))
        })
    });
    writeln!(out, "\n{}", table.to_text().trim_end())
}

/// The page.
pub fn report(answer: &Answer, files: String) -> Report {
    Report::new("Miss ratios of replacement policies")
        .subtitle(files)
        .section(section(answer, "Policies"))
}

/// What the page shows.
pub fn section(answer: &Answer, title: impl Into<String>) -> Section {
    let all = figure(answer, "Miss ratio by cache size", |point| point.miss_ratio).figure();
    let mut section = Section::new(title).facts(facts(answer)).figure(all.caption(
        "The share of block accesses that a cache of the size misses under each policy. No policy \
         gets below `opt`, which knows the future.",
    ));
    // With one kind of accesses only, the pictures are the same.
    if answer.reads > 0 && answer.writes > 0 {
        let reads = figure(answer, "Miss ratio of reads", |point| point.read_miss_ratio);
        section = section.figure(reads.figure());
    }
    section
}

fn figure(answer: &Answer, title: &str, ratio: fn(&Point) -> f64) -> Lines {
    let lines = Lines::new(title).x(Axis::new("cache size", Unit::Bytes).log()).y(Axis::new(
        "miss ratio",
        Unit::Fraction,
    )
    .from_zero());
    answer.policies.iter().fold(lines, |lines, curve| {
        let sizes = curve.points.iter().map(|point| point.size_bytes as f64);
        lines.line(&curve.policy, sizes, curve.points.iter().map(ratio))
    })
}

fn facts(answer: &Answer) -> Vec<(String, String)> {
    let about = if answer.sampled_rate < 1.0 { "about " } else { "" };
    let distinct = Size(answer.distinct_blocks.saturating_mul(answer.block_size));
    let mut facts = vec![
        ("requests", count(answer.requests)),
        ("block accesses", count(answer.accesses)),
        ("of these writes", percent(answer.writes as f64 / answer.accesses.max(1) as f64)),
        ("distinct data", format!("{about}{distinct}")),
        ("block size", Size(answer.block_size).to_string()),
    ];
    if answer.sampled_rate < 1.0 {
        let rate = percent(answer.sampled_rate);
        facts.push(("run with", format!("{rate} of the blocks, in caches as much smaller")));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
