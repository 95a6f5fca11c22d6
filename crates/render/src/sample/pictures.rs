//! Samples as charts.

use forebay_analysis::sample::{Document, Reduced, SampleDocument};
use forebay_config::Size;
use forebay_report::{Axis, Bars, Figure, Lines, Section, Table, Unit};
use forebay_trace::{FEATURES, PAGE_BYTES};

use crate::format::{figure, percent};

/// The sections of a page; `title` is the heading of the first.
pub fn sections(document: &Document, title: &str) -> Vec<Section> {
    let samples = document.samples().iter().map(|sample| {
        let section =
            Section::new(&sample.output).table(table(sample)).figure(curves(document, sample));
        match &sample.reduction {
            Some(reduction) => section.figure(removals(reduction)),
            None => section,
        }
    });
    std::iter::once(Section::new(title).figure(errors(document))).chain(samples).collect()
}

/// The error of each feature, for all samples side by side.
fn errors(document: &Document) -> Figure {
    let bars = Bars::new("Error of each feature", FEATURES)
        .axis(Axis::new("error", Unit::Fraction).from_zero());
    let or_none = |error: Option<f64>| error.unwrap_or(f64::NAN);
    let bars = document.samples().iter().fold(bars, |bars, s| {
        let error = |name: &&str| or_none(s.features.get(*name).map(|f| f.error));
        bars.series(s.output.clone(), FEATURES.iter().map(error))
    });
    let bars = document.comparison.iter().fold(bars, |bars, c| {
        let name = format!("regions of {}", Size(PAGE_BYTES << c.bits));
        bars.series(name, FEATURES.iter().map(|&name| or_none(c.features.get(name).copied())))
    });
    bars.figure().caption(
        "Relative difference between the mean of each feature over the sample's requests and its \
         mean over the trace's requests. Sampling with regions of 4 KiB is plain spatial sampling.",
    )
}

fn curves(document: &Document, sample: &SampleDocument) -> Figure {
    let lines = Lines::new("Miss ratio by cache size")
        .x(Axis::new("cache size", Unit::Bytes).log())
        .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
    let line = |lines: Lines, name: &str, points: &[(u64, f64)], rate: f64| {
        let (x, y) = (points.iter().map(|p| p.0 as f64 / rate), points.iter().map(|p| p.1));
        lines.line(name, x, y)
    };
    let lines = line(lines, "trace", &document.trace_miss_ratios, 1.0);
    let lines = line(lines, "sample", &sample.miss_ratios, sample.rate);
    lines.figure().caption("The sample's cache sizes are divided by the sampling rate.")
}

/// A table of the means, followed by the quantiles of each feature.
fn table(sample: &SampleDocument) -> Table {
    let is_quantile =
        |name: &str, of: &str| name.strip_prefix(of).is_some_and(|rest| rest.starts_with("_p"));
    let means = FEATURES.iter().filter_map(|&name| sample.features.get_key_value(name));
    let quantiles = FEATURES
        .iter()
        .flat_map(|of| sample.features.iter().filter(move |(name, _)| is_quantile(name, of)));
    Table::from_items(means.chain(quantiles))
        .column("feature", |(name, _)| (*name).clone())
        .number("trace", |(_, f)| figure(f.full))
        .number("sample", |(_, f)| figure(f.sample))
        .number("error", |(_, f)| percent(f.error))
        .table()
}

fn removals(reduction: &Reduced) -> Figure {
    let removed = || reduction.curve.iter().map(|c| c.removed as f64);
    let lines = Lines::new("Error by regions removed")
        .x(Axis::new("regions removed", Unit::Plain))
        .y(Axis::new("error", Unit::Fraction).from_zero())
        .line("features", removed(), reduction.curve.iter().map(|c| c.mean_error))
        .line("hit ratios", removed(), reduction.curve.iter().map(|c| c.hit_ratio_error.all))
        .line("together", removed(), reduction.curve.iter().map(|c| c.total_error))
        .mark(reduction.removed as f64, "taken");
    lines.figure().caption(
        "The regions whose removal improves the features most are removed first; hit ratios are \
         not considered.",
    )
}
