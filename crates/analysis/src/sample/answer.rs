//! The answer to which samples were taken.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_trace::{FeatureError, SampleSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PLAIN_BITS;
use super::measure::{HitRatioError, Measured};
use crate::Columns;

/// The samples, and how close they are to the trace.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The trace's name.
    pub name: String,
    /// How the (first) sample was taken.
    pub spec: SampleSpec,
    /// The measurements of the whole trace.
    pub full: Measured,
    /// One sample, or as many as were requested.
    pub samples: Vec<Sampled>,
    /// Samples with regions of other sizes, if requested.
    pub compared: Vec<Compared>,
    /// The samples from which the best was chosen, if there were several.
    pub candidates: Vec<Candidate>,
}

/// A sample that was taken as a candidate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Region size: 4 KiB shifted left by this number of bits.
    pub bits: u32,
    /// Seed of the sample.
    pub seed: u64,
    /// Requests of the sample divided by those of the trace.
    pub request_ratio: f64,
    /// Mean error of the seven features that are means.
    pub mean_error: f64,
    /// Error of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// Mean of ten errors: those of the seven features and the three of `hit_ratio_error`.
    pub total_error: f64,
}

/// A row of `--parquet`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Row<'a> {
    /// The file of the sample.
    pub sample: &'a str,
    /// Name of the feature.
    pub feature: &'a str,
    /// Value of the feature in the trace.
    pub full: f64,
    /// Value of the feature in the sample.
    pub value: f64,
    /// Relative error of the sample's value.
    pub error: f64,
}

impl Candidate {
    pub(super) fn new(spec: SampleSpec, rate: f64, full: &Measured, m: &Measured) -> Self {
        Candidate {
            bits: spec.bits,
            seed: spec.seed,
            request_ratio: m.requests as f64 / full.requests as f64,
            mean_error: m.mean_error(full),
            hit_ratio_error: m.hit_ratio_error(full, rate),
            total_error: m.total_error(full, rate),
        }
    }
}

/// Index of the candidate with the lowest total error. If there are candidates whose hit ratios are
/// off by at most `hit_ratio_error_max`, only these count. `measured` contains the measurements of
/// each candidate, at the same index.
pub(super) fn best(
    candidates: &[Candidate],
    measured: &[Measured],
    hit_ratio_error_max: Option<f64>,
) -> usize {
    let rank = |at: usize| {
        let candidate = &candidates[at];
        // The error of a sample without accesses is 100 % everywhere, which the error of others may
        // exceed.
        let is_empty = measured[at].is_without_accesses();
        let none = HitRatioError::default();
        let is_off =
            hit_ratio_error_max.is_some_and(|most| !candidate.hit_ratio_error.within(most, none));
        (is_empty, is_off)
    };
    let error = |at: usize| candidates[at].total_error;
    let worse = |a: usize, b: usize| rank(a).cmp(&rank(b)).then(error(a).total_cmp(&error(b)));
    (0..candidates.len()).min_by(|&a, &b| worse(a, b)).unwrap_or(0)
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The file.
    pub output: String,
    /// The sampling rate, times the share of the sampled regions that a reduction kept.
    pub rate: f64,
    /// Share of the requests of the trace.
    pub request_ratio: f64,
    /// Mean features, with their errors.
    pub features: Vec<FeatureError>,
    /// Quantiles, with their errors.
    pub quantiles: Vec<FeatureError>,
    /// Mean error of the features, as a fraction.
    pub mean_error: f64,
    /// Errors of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// The measurements of the sample.
    pub measured: Measured,
    /// The effect of removing regions, if requested.
    pub reduction: Option<Reduced>,
}

/// The effect of a reduction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reduced {
    /// Regions before the reduction.
    pub regions: usize,
    /// Number of regions that were removed.
    pub removed: usize,
    /// `mean_error` before the reduction.
    pub mean_error_before: f64,
    /// `hit_ratio_error` before the reduction.
    pub hit_ratio_error_before: HitRatioError,
    /// Errors by number of removed regions. With `--target-rate`, the sample is the one with the lowest
    /// `total_error`. Otherwise, it is the one with the lowest `mean_error` among those whose hit ratios are
    /// off by at most 0.02, or by no more than before the reduction.
    pub curve: Vec<Checkpoint>,
}

/// The state of a reduction after a number of removals.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Number of removed regions.
    pub removed: usize,
    /// `--rate` times the share of the sampled regions that remain.
    pub rate: f64,
    /// Mean error of the seven features that are means.
    pub mean_error: f64,
    /// Error of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// Mean of ten errors: those of the seven features and the three of `hit_ratio_error`.
    pub total_error: f64,
}

impl Checkpoint {
    pub(super) fn new(removed: usize, rate: f64, full: &Measured, m: &Measured) -> Self {
        let hit_ratio_error = m.hit_ratio_error(full, rate);
        let total_error = m.total_error(full, rate);
        Checkpoint { removed, rate, mean_error: m.mean_error(full), hit_ratio_error, total_error }
    }
}

/// A sample with regions of another size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Region size: 4 KiB shifted left by this number of bits.
    pub bits: u32,
    /// Requests of the sample divided by those of the trace.
    pub request_ratio: f64,
    /// Mean error of the seven features that are means.
    pub mean_error: f64,
    /// Error of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// Error of each mean, by feature name.
    pub features: BTreeMap<String, f64>,
}

impl Compared {
    pub(super) fn new(bits: u32, rate: f64, full: &Measured, m: Measured) -> Self {
        Compared {
            bits,
            request_ratio: m.requests as f64 / full.requests as f64,
            mean_error: m.mean_error(full),
            hit_ratio_error: m.hit_ratio_error(full, rate),
            features: m.features(full).into_iter().map(|f| (f.name, f.error)).collect(),
        }
    }
}

impl Sampled {
    pub(super) fn new(output: &Path, rate: f64, full: &Measured, m: Measured) -> Self {
        Sampled {
            output: output.display().to_string(),
            rate,
            request_ratio: m.requests as f64 / full.requests as f64,
            features: m.features(full),
            quantiles: full.quantiles.compare(&m.quantiles).collect(),
            mean_error: m.mean_error(full),
            hit_ratio_error: m.hit_ratio_error(full, rate),
            measured: m,
            reduction: None,
        }
    }

    /// Makes this sample the result of a reduction of `before`.
    pub(super) fn reduced(
        mut self,
        before: Sampled,
        regions: usize,
        removed: usize,
        curve: Vec<Checkpoint>,
    ) -> Self {
        self.reduction = Some(Reduced {
            regions,
            removed,
            mean_error_before: before.mean_error,
            hit_ratio_error_before: before.hit_ratio_error,
            curve,
        });
        self
    }
}

/// The mean error of some features, as a fraction.
pub fn mean(features: &[FeatureError]) -> f64 {
    features.iter().map(|f| f.error).sum::<f64>() / features.len().max(1) as f64
}

impl Answer {
    /// The candidate with the region size of the thesis, if there is one.
    pub fn plain(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.bits == PLAIN_BITS)
    }

    /// A row for every feature of every sample.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.samples.iter().flat_map(|s| {
            s.features.iter().chain(&s.quantiles).map(|f| Row {
                sample: &s.output,
                feature: &f.name,
                full: f.full,
                value: f.sample,
                error: f.error,
            })
        }))
    }
}
