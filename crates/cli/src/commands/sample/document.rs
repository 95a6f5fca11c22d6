//! The answer for programs, and its pictures.

use std::collections::BTreeMap;

use forebay_config::Size;
use forebay_locality::{MissRatioCurve, ReuseHistogram};
use forebay_report::{Axis, Bars, Figure, Lines, Report, Section, Table, Unit};
use forebay_trace::{FEATURES, FeatureError, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Candidate, Compared, Reduced, Sampled, mean};
use super::measure::HitRatioError;
use super::show::figure;
use crate::format::percent;

/// Points of a curve.
const POINTS: usize = 200;

/// The JSON document: the first sample, and all of them if there are several.
#[derive(Serialize, Deserialize)]
pub struct Document {
    trace: String,
    trace_requests: u64,
    /// Cache sizes in bytes, with the miss ratio.
    trace_miss_ratios: Vec<(u64, f64)>,
    bits: u32,
    seed: u64,
    #[serde(flatten)]
    first: SampleDocument,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    samples: Vec<SampleDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    comparison: Vec<Compared>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<Candidate>,
    /// What the plain method of the thesis gives: one sample of regions of 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plain: Option<Candidate>,
}

#[derive(Clone, Serialize, Deserialize)]
struct SampleDocument {
    output: String,
    rate: f64,
    requests: u64,
    request_ratio: f64,
    features: BTreeMap<String, Value>,
    mean_error: f64,
    quantile_error: f64,
    hit_ratio_error: HitRatioError,
    /// As of the trace, of caches that are smaller by the rate.
    miss_ratios: Vec<(u64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reduction: Option<Reduced>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Value {
    full: f64,
    sample: f64,
    error: f64,
}

impl Answer {
    /// For `--json`.
    pub fn document(&self) -> Document {
        let samples: Vec<SampleDocument> = self.samples.iter().map(SampleDocument::new).collect();
        Document {
            trace: self.name.clone(),
            trace_requests: self.full.requests,
            trace_miss_ratios: miss_ratios(&self.full.reuse),
            bits: self.spec.bits,
            seed: self.spec.seed,
            first: samples[0].clone(),
            samples: if samples.len() > 1 { samples } else { Vec::new() },
            comparison: self.compared.clone(),
            candidates: self.candidates.clone(),
            plain: self.plain().cloned(),
        }
    }
}

impl SampleDocument {
    fn new(sampled: &Sampled) -> Self {
        let all = sampled.features.iter().chain(&sampled.quantiles);
        let value = |e: &FeatureError| Value { full: e.full, sample: e.sample, error: e.error };
        Self {
            output: sampled.output.clone(),
            rate: sampled.rate,
            requests: sampled.measured.requests,
            request_ratio: sampled.request_ratio,
            features: all.map(|e| (e.name.clone(), value(e))).collect(),
            mean_error: sampled.mean_error,
            quantile_error: mean(&sampled.quantiles),
            hit_ratio_error: sampled.hit_ratio_error,
            miss_ratios: miss_ratios(&sampled.measured.reuse),
            reduction: sampled.reduction.clone(),
        }
    }

    /// Means first, then the quantiles of each.
    fn table(&self) -> Table {
        let is_quantile =
            |name: &str, of: &str| name.strip_prefix(of).is_some_and(|rest| rest.starts_with("_p"));
        let means = FEATURES.iter().filter_map(|&name| self.features.get_key_value(name));
        let quantiles = FEATURES
            .iter()
            .flat_map(|of| self.features.iter().filter(move |(name, _)| is_quantile(name, of)));
        let table = Table::new().column("feature").number("trace").number("sample").number("error");
        means.chain(quantiles).fold(table, |table, (name, f)| {
            table.row([name.clone(), figure(f.full), figure(f.sample), percent(f.error)])
        })
    }
}

fn miss_ratios(reuse: &ReuseHistogram) -> Vec<(u64, f64)> {
    let points = MissRatioCurve::new(reuse, POINTS).points;
    points.iter().map(|p| (p.size_blocks * PAGE_BYTES, p.miss_ratio)).collect()
}

impl Document {
    /// In pictures.
    pub fn report(&self) -> Report {
        let report = Report::new("Sample").subtitle(self.trace.clone());
        self.sections("Errors").into_iter().fold(report, Report::section)
    }

    /// The sections of a page, the first under this title.
    pub fn sections(&self, title: &str) -> Vec<Section> {
        let samples = self.samples().iter().map(|sample| {
            let section =
                Section::new(&sample.output).table(sample.table()).figure(self.curves(sample));
            match &sample.reduction {
                Some(reduction) => section.figure(removals(reduction)),
                None => section,
            }
        });
        std::iter::once(Section::new(title).figure(self.errors())).chain(samples).collect()
    }

    fn samples(&self) -> &[SampleDocument] {
        match self.samples.as_slice() {
            [] => std::slice::from_ref(&self.first),
            several => several,
        }
    }

    /// The error of each feature, of all samples side by side.
    fn errors(&self) -> Figure {
        let bars = Bars::new("Error of each feature", FEATURES)
            .axis(Axis::new("error", Unit::Fraction).from_zero());
        let or_none = |error: Option<f64>| error.unwrap_or(f64::NAN);
        let bars = self.samples().iter().fold(bars, |bars, s| {
            let error = |name: &&str| or_none(s.features.get(*name).map(|f| f.error));
            bars.series(s.output.clone(), FEATURES.iter().map(error))
        });
        let bars = self.comparison.iter().fold(bars, |bars, c| {
            let name = format!("regions of {}", Size(PAGE_BYTES << c.bits));
            bars.series(name, FEATURES.iter().map(|&name| or_none(c.features.get(name).copied())))
        });
        bars.figure().caption(
            "How far the mean over the sample's requests is from the mean over the trace's, as a \
             fraction. Regions of 4 KiB are plain spatial sampling.",
        )
    }

    fn curves(&self, sample: &SampleDocument) -> Figure {
        let lines = Lines::new("Miss ratio by cache size")
            .x(Axis::new("cache size", Unit::Bytes).log())
            .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
        let line = |lines: Lines, name: &str, points: &[(u64, f64)], rate: f64| {
            let (x, y) = (points.iter().map(|p| p.0 as f64 / rate), points.iter().map(|p| p.1));
            lines.line(name, x, y)
        };
        let lines = line(lines, "trace", &self.trace_miss_ratios, 1.0);
        let lines = line(lines, "sample", &sample.miss_ratios, sample.rate);
        lines.figure().caption("The sample's cache sizes are divided by its rate.")
    }
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
    lines.figure().caption("Removals are ordered by what they gain for the features alone.")
}
