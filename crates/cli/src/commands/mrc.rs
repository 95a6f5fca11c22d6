//! `forebay mrc`: miss-ratio curves.

mod args;
mod miniature;
pub mod policies;
mod slice_files;

use std::io::Write;

use forebay_analysis::curve::{self as analysis, Answer, Question};
use forebay_config::Size;
use forebay_locality::{CurvePoint, Interval, ReuseHistogram, SlicedHistogram};
use forebay_report::{Axis, Lines, Report, Section, Table, Unit};

use crate::context::Context;
use crate::error::CliError;
use crate::format::{count, percent};
use crate::rows::write_parquet;
pub use args::Args;
use args::Key;

/// Computes and prints the curves.
pub fn run(mut args: Args, ctx: &Context) -> Result<(), CliError> {
    args.output.check(args.traces.traces.iter().chain(&args.config))?;
    if let Some(config) = &args.config {
        return miniature::run(&args, config, ctx);
    }
    if !args.policies.is_empty() {
        return policies::run(&args, ctx);
    }
    let options = args.options()?;
    if let (Some(slice), Some(slices)) = (args.slice, args.slices) {
        return slice_files::measure(&args, &options, (slice as usize, slices as usize), ctx);
    }
    let answer = if args.merge {
        slice_files::merge(&mut args, options, ctx)
    } else {
        let key = match args.key {
            Key::Sector => analysis::Key::Sector,
            Key::Content => analysis::Key::Content,
        };
        let (traces, slices) = (args.traces.source(), args.slices.map(|slices| slices as usize));
        Question { traces, options, key, slices }.ask(ctx).map_err(|error| args.refused(error))
    }?;
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &answer.rows())?;
    }
    let shown = Shown { args: &args, answer: &answer };
    if let Some(path) = &args.output.html {
        shown.report().write_html(path)?;
    }
    args.output.emit(&answer.document(args.points(), &args.at()), |out| shown.print(out))
}

/// An answer, and how it was asked for.
struct Shown<'a> {
    args: &'a Args,
    answer: &'a Answer,
}

impl Shown<'_> {
    fn report(&self) -> Report {
        let Self { args, answer } = *self;
        let distance = answer.options.distance;
        let lines = |title: &str| {
            Lines::new(title).x(Axis::new("cache size", Unit::Bytes).log()).y(Axis::new(
                "miss ratio",
                Unit::Fraction,
            )
            .from_zero())
        };
        let points = points(&answer.all, args);
        let sizes = || points.iter().map(|p| (p.size_blocks * args.block_size.bytes()) as f64);
        let mut curve = lines("Miss ratio by cache size").line(
            "reads and writes",
            sizes(),
            points.iter().map(|p| p.miss_ratio),
        );
        let bounds: Option<Vec<Interval>> =
            points.iter().map(|p| answer.bounds(p.size_blocks)).collect();
        if let Some(bounds) = bounds {
            curve = curve.band(bounds.iter().map(|b| b.low), bounds.iter().map(|b| b.high));
        }
        if answer.all.read.accesses() > 0 {
            curve = curve.line("reads", sizes(), points.iter().map(|p| p.read_miss_ratio));
        }
        if answer.all.write.accesses() > 0 && distance.measures_writes() {
            curve = curve.line("writes", sizes(), points.iter().map(|p| p.write_miss_ratio));
        }
        let mut section =
            Section::new("All volumes").facts(self.facts()).figure(curve.figure().caption(
                "The share of block accesses that an LRU cache of the size misses. The curve is \
                 flat where more cache gains nothing. A band, if there is one, holds the exact \
                 curve with a confidence of about 95 %.",
            ));
        if args.per_volume {
            let mut figure = lines("Miss ratio of each volume with a cache of its own");
            for (name, histogram) in &answer.volumes {
                let points = self::points(histogram, args);
                let bytes = args.block_size.bytes();
                figure = figure.line(
                    name,
                    points.iter().map(|p| (p.size_blocks * bytes) as f64),
                    points.iter().map(|p| p.miss_ratio),
                );
            }
            section = section.figure(figure.figure());
        }
        Report::new("Miss-ratio curves").subtitle(args.traces.names()).section(section)
    }

    fn facts(&self) -> Vec<(String, String)> {
        let Self { args, answer } = *self;
        let bytes = args.block_size.bytes();
        let all = &answer.all;
        let reused = all.max_distance().map_or(0, |max| max + 1);
        let mut facts = vec![
            ("requests", count(answer.requests)),
            (if args.request_level { "accesses" } else { "block accesses" }, count(all.accesses())),
            ("of these writes", percent(all.write.accesses() as f64 / all.accesses() as f64)),
            (
                if args.key == Key::Sector { "distinct data" } else { "distinct contents" },
                Size(all.distinct_blocks * bytes).to_string(),
            ),
            ("every reuse fits in", Size(reused * bytes).to_string()),
            ("miss ratio then", percent(CurvePoint::at(all, reused).miss_ratio)),
            ("reuse distance", forebay_locality::Distance::from(args.distance).to_string()),
            ("block size", args.block_size.to_string()),
        ];
        if all.sampled_rate.0 < 1.0 {
            facts.push(("sampled", percent(all.sampled_rate.0)));
        }
        if let Some(sliced) = &answer.sliced {
            facts.push(("measured in", format!("{} slices", sliced.slices.len())));
        }
        facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.facts() {
            writeln!(out, "{name:<20} {value}")?;
        }
        let Self { args, answer } = *self;
        let all = text_curve(&answer.all, answer.sliced.as_ref(), args);
        writeln!(out, "\n{}", all.trim_end())?;
        for (name, histogram) in &answer.volumes {
            writeln!(out, "\nvolume {name}\n{}", text_curve(histogram, None, args).trim_end())?;
        }
        Ok(())
    }
}

/// A curve as a table: powers of two, the sizes asked for, and the size at which it ends.
fn text_curve(histogram: &ReuseHistogram, sliced: Option<&SlicedHistogram>, args: &Args) -> String {
    let full = histogram.max_distance().map_or(1, |max| max + 1);
    let shift = args.block_size.shift();
    // Not below 1 MiB, where a curve is about the trace's last few requests.
    let first = (20u32.saturating_sub(shift)).min(full.ilog2());
    let mut sizes: Vec<u64> = (first..64).map(|s| 1 << s).take_while(|&s| s < full).collect();
    sizes.extend(args.at().into_iter().chain([full]));
    sizes.sort_unstable();
    sizes.dedup();
    let ratio = |value: f64, of: u64| match of {
        0 => "-".to_string(),
        _ => format!("{value:.4}"),
    };
    let writes = match forebay_locality::Distance::from(args.distance).measures_writes() {
        true => histogram.write.accesses(),
        false => 0,
    };
    let bounds = |size: u64| sliced.and_then(|sliced| sliced.bounds(size));
    Table::of(sizes.into_iter().map(|size| CurvePoint::at(histogram, size)))
        .column("cache size", |p| {
            let all = if p.size_blocks == full { " (all reuses)" } else { "" };
            format!("{}{all}", Size(p.size_blocks * args.block_size.bytes()))
        })
        .number("miss ratio", |p| ratio(p.miss_ratio, histogram.accesses()))
        .number_if(sliced.is_some(), "with 95 %", |p| {
            let between = bounds(p.size_blocks);
            between.map_or_else(String::new, |b| format!("{:.4} to {:.4}", b.low, b.high))
        })
        .number("of reads", |p| ratio(p.read_miss_ratio, histogram.read.accesses()))
        .number("of writes", |p| ratio(p.write_miss_ratio, writes))
        .to_text()
}

fn points(histogram: &ReuseHistogram, args: &Args) -> Vec<CurvePoint> {
    analysis::points(histogram, args.points(), &args.at())
}
