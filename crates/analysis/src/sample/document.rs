//! Samples as a JSON document.

use std::collections::BTreeMap;

use forebay_locality::{MissRatioCurve, ReuseHistogram};
use forebay_trace::{FeatureError, PAGE_BYTES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Candidate, Compared, Reduced, Sampled, mean};
use super::measure::HitRatioError;

/// Number of points of a curve.
const POINTS: usize = 200;

/// The JSON document: the first sample, and all of them if there are several.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Document {
    /// The files of the trace.
    pub trace: String,
    /// Requests in the trace.
    pub trace_requests: u64,
    /// Miss-ratio curve of the trace: pairs of cache size in bytes and miss ratio.
    pub trace_miss_ratios: Vec<(u64, f64)>,
    /// Region size of the sample (the best one if there were several candidates): 4 KiB shifted left by this
    /// number of bits.
    pub bits: u32,
    /// Seed of the sample (the best one if there were several candidates).
    pub seed: u64,
    /// The sample; with `--samples N`, the first.
    #[serde(flatten)]
    pub first: SampleDocument,
    /// With `--samples`, each sample; omitted otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleDocument>,
    /// With `--compare`, samples with regions of 4, 8, 16 and 64 KiB; omitted otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparison: Vec<Compared>,
    /// The samples that Forebay took. It chose the one with the lowest `total_error`; without `--bits`, it
    /// first excluded samples whose hit ratios are off by more than 0.02, unless all are. Omitted if Forebay
    /// took only one sample, and with `--samples`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// If there were several candidates, the sample taken with the thesis's method, with regions of 64
    /// KiB; omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Candidate>,
}

/// The results for a sample.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SampleDocument {
    /// The file of the sample.
    pub output: String,
    /// Rate of the sample, by which caches are scaled down: `--rate` times the share of the sampled regions
    /// that the reduction kept.
    pub rate: f64,
    /// Requests of the sample.
    pub requests: u64,
    /// `requests` divided by the requests of the trace.
    pub request_ratio: f64,
    /// Means and percentiles of the trace and of the sample, by name (`read_size`, `read_size_p50`).
    pub features: BTreeMap<String, Value>,
    /// Mean error of the seven features that are means.
    pub mean_error: f64,
    /// Mean error of all percentiles.
    pub quantile_error: f64,
    /// Error of the hit ratios.
    pub hit_ratio_error: HitRatioError,
    /// Miss-ratio curve of the sample, in the form of `trace_miss_ratios`; its cache sizes are smaller by
    /// the factor `rate`.
    pub miss_ratios: Vec<(u64, f64)>,
    /// What removing regions achieved; omitted with `--bits` or `--samples`, unless `--target-rate` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduced>,
}

/// A feature.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Value {
    /// Value in the trace.
    pub full: f64,
    /// Value in the sample.
    pub sample: f64,
    /// Relative error of the sample's value.
    pub error: f64,
}

impl Answer {
    /// The answer as a JSON document.
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
