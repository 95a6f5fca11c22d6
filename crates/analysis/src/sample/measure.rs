//! The measures by which a trace and its samples are compared: mean features, quantiles, hit
//! ratios.

use forebay_block::{Nanos, Op, Request};
use forebay_locality::{LocalityOptions, ReuseHistogram, Sampling, WorkloadLocality};
use forebay_trace::{Batch, FEATURES, FeatureError, Moments, Quantiles, mean_error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AnalysisError;

/// Number of cache sizes at which hit ratios are compared, evenly spaced up to the end of the
/// curve.
const SIZES: u64 = 100;

/// Measures a trace, request by request.
pub(super) struct Measure {
    moments: Moments,
    quantiles: Quantiles,
    locality: WorkloadLocality,
    requests: u64,
}

/// The measurements of a trace or a sample.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Sums.
    pub moments: Moments,
    /// Distributions.
    pub quantiles: Quantiles,
    /// Reuse distances (TRD) of 4 KiB blocks.
    pub reuse: ReuseHistogram,
    /// Number of requests.
    pub requests: u64,
}

impl Measure {
    /// Starts a measurement. With `max_blocks`, hit ratios are estimated from at most that number
    /// of blocks.
    pub fn new(max_blocks: Option<u64>) -> Result<Measure, AnalysisError> {
        let sampling = max_blocks.map_or(Sampling::All, Sampling::MaxBlocks);
        let options = LocalityOptions { sampling, ..LocalityOptions::default() };
        Ok(Measure {
            moments: Moments::default(),
            quantiles: Quantiles::default(),
            locality: WorkloadLocality::new(options)?,
            requests: 0,
        })
    }

    /// Adds a request, which came `gap` after the one before.
    pub fn add(&mut self, request: &Request, gap: Nanos) -> Result<(), AnalysisError> {
        self.moments.add(request, gap);
        self.quantiles.add(request, gap);
        self.requests += 1;
        Ok(self.locality.add(request)?)
    }

    /// Adds the requests of a sample.
    pub fn add_sample(&mut self, batch: &Batch) -> Result<(), AnalysisError> {
        (0..batch.len())
            .try_for_each(|i| self.add(&batch.request(i), batch.gap(i).unwrap_or(Nanos(0))))
    }

    /// Returns the measurements.
    pub fn finish(self) -> Result<Measured, AnalysisError> {
        let Measure { moments, quantiles, locality, requests } = self;
        let reuse = locality.finish()?.all.unwrap_or_default();
        Ok(Measured { moments, quantiles, reuse, requests })
    }
}

/// Difference of hit ratios: the mean over cache sizes of the absolute difference, as a fraction.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HitRatioError {
    /// Error for reads.
    pub read: f64,
    /// Error for writes.
    pub write: f64,
    /// Error for reads and writes together.
    pub all: f64,
}

impl HitRatioError {
    /// Whether each error is at most `most`, or no larger than it was `before`.
    pub fn within(&self, most: f64, before: HitRatioError) -> bool {
        let pairs = [(self.read, before.read), (self.write, before.write), (self.all, before.all)];
        pairs.into_iter().all(|(now, before)| now <= most.max(before))
    }
}

impl Measured {
    /// Whether there were no reads or writes; trims and flushes may have been counted.
    pub fn is_without_accesses(&self) -> bool {
        self.moments.read.requests + self.moments.write.requests == 0
    }

    /// The mean features, with their errors relative to the full trace.
    pub fn features(&self, full: &Measured) -> Vec<FeatureError> {
        full.moments.compare(&self.moments)
    }

    /// The mean of the features' errors, as a fraction.
    pub fn mean_error(&self, full: &Measured) -> f64 {
        mean_error(&full.moments.features(), &self.moments.features())
    }

    /// Compares hit ratios with those of the full trace, with cache sizes scaled by the sample's
    /// rate.
    pub fn hit_ratio_error(&self, full: &Measured, rate: f64) -> HitRatioError {
        let end = full.reuse.max_distance().map_or(1, |d| d + 1);
        let mut sum = [0.0; 3];
        for i in 1..=SIZES {
            let size = end as f64 * i as f64 / SIZES as f64;
            let of_full = hit_ratios(&full.reuse, size as u64);
            let of_sample = hit_ratios(&self.reuse, (size * rate).round() as u64);
            for (sum, (f, s)) in sum.iter_mut().zip(of_full.into_iter().zip(of_sample)) {
                *sum += (f - s).abs();
            }
        }
        let [read, write, all] = sum.map(|s| s / SIZES as f64);
        HitRatioError { read, write, all }
    }

    /// The value that a reduction minimises: the mean error over features and hit ratios.
    pub fn total_error(&self, full: &Measured, rate: f64) -> f64 {
        let features = self.mean_error(full) * FEATURES.len() as f64;
        let h = self.hit_ratio_error(full, rate);
        (features + h.read + h.write + h.all) / (FEATURES.len() + 3) as f64
    }
}

/// Hit ratios of reads, of writes, and of both together.
fn hit_ratios(reuse: &ReuseHistogram, size: u64) -> [f64; 3] {
    let hits = [Op::Read, Op::Write].map(|op| if size == 0 { 0 } else { reuse.hits(op, size) });
    let accesses = [reuse.read.accesses(), reuse.write.accesses()];
    let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    [
        ratio(hits[0], accesses[0]),
        ratio(hits[1], accesses[1]),
        ratio(hits[0] + hits[1], accesses[0] + accesses[1]),
    ]
}
