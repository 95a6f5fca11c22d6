//! What `forebay sample` answers.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_analysis::Columns;
use forebay_trace::{FeatureError, SampleSpec};
use serde::{Deserialize, Serialize};

use super::measure::{HitRatioError, Measured};
use super::{Args, PLAIN_BITS};

/// The answer.
pub struct Answer {
    /// The trace's name.
    pub name: String,
    /// How the (first) sample was taken.
    pub spec: SampleSpec,
    pub full: Measured,
    pub samples: Vec<Sampled>,
    pub compared: Vec<Compared>,
    /// What it was chosen of, if it was.
    pub candidates: Vec<Candidate>,
}

/// A sample that might have been taken.
#[derive(Clone, Serialize, Deserialize)]
pub struct Candidate {
    pub bits: u32,
    pub seed: u64,
    pub request_ratio: f64,
    pub mean_error: f64,
    pub hit_ratio_error: HitRatioError,
    /// The mean over features and hit ratios.
    pub total_error: f64,
}

impl Candidate {
    pub fn new(spec: SampleSpec, rate: f64, full: &Measured, m: &Measured) -> Self {
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

/// The place of the one with the lowest total error; of those whose hit ratios are off by no more than
/// `hit_ratio_error_max`, if there are any.
pub fn best(candidates: &[Candidate], hit_ratio_error_max: Option<f64>) -> usize {
    let rank = |candidate: &Candidate| {
        // One without a request is wrong by the whole in everything, which others may exceed.
        let is_empty = candidate.request_ratio == 0.0;
        let none = HitRatioError::default();
        let is_off =
            hit_ratio_error_max.is_some_and(|most| !candidate.hit_ratio_error.within(most, none));
        (is_empty, is_off)
    };
    let worse = |a: &Candidate, b: &Candidate| {
        rank(a).cmp(&rank(b)).then(a.total_error.total_cmp(&b.total_error))
    };
    (0..candidates.len()).min_by(|&a, &b| worse(&candidates[a], &candidates[b])).unwrap_or(0)
}

/// A sample.
pub struct Sampled {
    pub output: String,
    /// Of the regions, those that are left of a reduction.
    pub rate: f64,
    pub request_ratio: f64,
    pub features: Vec<FeatureError>,
    pub quantiles: Vec<FeatureError>,
    pub mean_error: f64,
    pub hit_ratio_error: HitRatioError,
    pub measured: Measured,
    pub reduction: Option<Reduced>,
}

/// What a reduction did.
#[derive(Clone, Serialize, Deserialize)]
pub struct Reduced {
    /// Regions before.
    pub regions: usize,
    /// Regions removed.
    pub removed: usize,
    /// The mean error of the features before.
    pub mean_error_before: f64,
    /// The error of the hit ratios before.
    pub hit_ratio_error_before: HitRatioError,
    /// The error by the number of removals; the lowest total was taken.
    pub curve: Vec<Checkpoint>,
}

/// A reduction after so many removals.
#[derive(Clone, Serialize, Deserialize)]
pub struct Checkpoint {
    pub removed: usize,
    pub rate: f64,
    pub mean_error: f64,
    pub hit_ratio_error: HitRatioError,
    /// The mean over features and hit ratios.
    pub total_error: f64,
}

impl Checkpoint {
    pub fn new(removed: usize, rate: f64, full: &Measured, m: &Measured) -> Self {
        let hit_ratio_error = m.hit_ratio_error(full, rate);
        let total_error = m.total_error(full, rate);
        Checkpoint { removed, rate, mean_error: m.mean_error(full), hit_ratio_error, total_error }
    }
}

/// A sample of regions of another size.
#[derive(Clone, Serialize, Deserialize)]
pub struct Compared {
    pub bits: u32,
    pub request_ratio: f64,
    pub mean_error: f64,
    pub hit_ratio_error: HitRatioError,
    /// The error of each mean.
    pub features: BTreeMap<String, f64>,
}

impl Compared {
    pub fn new(bits: u32, rate: f64, full: &Measured, m: Measured) -> Self {
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
    pub fn new(output: &Path, rate: f64, full: &Measured, m: Measured) -> Self {
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

    /// The same, as the outcome of a reduction.
    pub fn reduced(
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

/// The mean error of some features, a fraction.
pub fn mean(features: &[FeatureError]) -> f64 {
    features.iter().map(|f| f.error).sum::<f64>() / features.len().max(1) as f64
}

impl Answer {
    pub fn new(
        args: &Args,
        spec: SampleSpec,
        full: Measured,
        samples: Vec<Sampled>,
        compared: Vec<Compared>,
        candidates: Vec<Candidate>,
    ) -> Self {
        let names: Vec<_> = args.traces.traces.iter().map(|t| t.display().to_string()).collect();
        Answer { name: names.join(", "), spec, full, samples, compared, candidates }
    }

    /// Of what was chosen from, the sample that the thesis takes.
    pub fn plain(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.bits == PLAIN_BITS)
    }

    /// Every feature of every sample.
    pub fn rows(&self) -> Columns {
        let rows: Vec<(&str, &FeatureError)> = (self.samples.iter())
            .flat_map(|s| s.features.iter().chain(&s.quantiles).map(|f| (s.output.as_str(), f)))
            .collect();
        Columns::default()
            .texts("sample", rows.iter().map(|r| r.0))
            .texts("feature", rows.iter().map(|r| r.1.name.as_str()))
            .reals("full", rows.iter().map(|r| r.1.full))
            .reals("value", rows.iter().map(|r| r.1.sample))
            .reals("error", rows.iter().map(|r| r.1.error))
    }
}
