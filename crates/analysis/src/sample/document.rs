//! Samples for programs: the JSON document.

use std::collections::BTreeMap;

use forebay_locality::{MissRatioCurve, ReuseHistogram};
use forebay_trace::{FeatureError, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Candidate, Compared, Reduced, Sampled, mean};
use super::measure::HitRatioError;

/// Points of a curve.
const POINTS: usize = 200;

/// The JSON document: the first sample, and all of them if there are several.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Document {
    /// The files' names.
    pub trace: String,
    /// Requests of the whole trace.
    pub trace_requests: u64,
    /// Cache sizes in bytes, with the miss ratio.
    pub trace_miss_ratios: Vec<(u64, f64)>,
    /// A region is 4 KiB shifted by this.
    pub bits: u32,
    /// Of the (first) sample.
    pub seed: u64,
    /// The (first) sample.
    #[serde(flatten)]
    pub first: SampleDocument,
    /// All, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleDocument>,
    /// Samples of regions of other sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparison: Vec<Compared>,
    /// What the sample was chosen of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// What the plain method of the thesis gives: one sample of regions of 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Candidate>,
}

/// What is said of a sample.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SampleDocument {
    /// The file.
    pub output: String,
    /// Of the regions, those that are in it.
    pub rate: f64,
    /// Requests in it.
    pub requests: u64,
    /// Of the requests of the trace.
    pub request_ratio: f64,
    /// Means and quantiles, by name.
    pub features: BTreeMap<String, Value>,
    /// Of the means, a fraction.
    pub mean_error: f64,
    /// Of the quantiles, a fraction.
    pub quantile_error: f64,
    /// Of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// As of the trace, of caches that are smaller by the rate.
    pub miss_ratios: Vec<(u64, f64)>,
    /// What removing regions did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduced>,
}

/// A feature.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Of the trace.
    pub full: f64,
    /// Of the sample.
    pub sample: f64,
    /// A fraction.
    pub error: f64,
}

impl Answer {
    /// For programs.
    ///
    /// # Panics
    /// If there is no sample.
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
}

fn miss_ratios(reuse: &ReuseHistogram) -> Vec<(u64, f64)> {
    let points = MissRatioCurve::new(reuse, POINTS).points;
    points.iter().map(|p| (p.size_blocks * PAGE_BYTES, p.miss_ratio)).collect()
}

impl Document {
    /// All samples.
    pub fn samples(&self) -> &[SampleDocument] {
        match self.samples.as_slice() {
            [] => std::slice::from_ref(&self.first),
            several => several,
        }
    }
}
