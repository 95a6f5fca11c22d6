//! The figures that describe a trace.

use super::by_op::ByOp;
use super::contents::ContentUse;
use crate::{FeatureError, Moments, SampleInfo, mean_error};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use std::collections::BTreeMap;

/// What is in a trace.
///
/// Reads and writes are what the cache serves; write-zeroes count as writes. Trims and flushes
/// count as requests only.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct TraceInfo {
    /// Name of the trace's format.
    pub format: String,
    /// All requests.
    pub requests: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests, including write-zeroes.
    pub writes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Write-zeroes requests; they are also in `writes`.
    pub write_zeroes: u64,
    /// Requests with FUA (force unit access).
    pub fua: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Seconds from the first request to the last.
    pub duration_s: f64,
    /// Start of the trace in seconds since 1970; null if unknown.
    pub epoch_unix_s: Option<f64>,
    /// Number of volumes that have requests.
    pub volumes: u64,
    /// Block size, in bytes, to which all figures in blocks refer.
    pub block_size: u64,
    /// Block accesses, after splitting requests into blocks.
    pub block_accesses: ByOp<u64>,
    /// Distinct blocks.
    pub footprint_blocks: ByOp<u64>,
    /// Reads and writes that do not start and end on block boundaries.
    pub misaligned: ByOp<u64>,
    /// Statistics of contents, if the trace has hashes of whole blocks or of parts that make up blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentUse>,
    /// For a sample, how closely it matches the whole trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleUse>,
    /// Bad lines or records that were skipped.
    pub bad_lines: u64,
    /// Requests with an earlier timestamp than the request before them.
    pub out_of_order: u64,
    /// Each volume.
    pub per_volume: Vec<VolumeUse>,
    /// Figures that describe the workload. A figure is null if it is undefined, such as the time between
    /// requests in a trace with only one request.
    #[schemars(with = "BTreeMap<String, Option<f64>>")]
    pub features: Features,
}

/// A sample, by the features that samples are compared by ([`crate::FEATURES`]).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SampleUse {
    /// Rate of the sample, by which caches are scaled down: the sampling rate, times the share of the sampled
    /// regions that a reduction kept.
    pub rate: f64,
    /// The region size is `4 KiB << bits`.
    pub bits: u32,
    /// Requests in the whole trace.
    pub of_requests: u64,
    /// Each feature of the whole trace and of the part of the sample that was read.
    pub features: Vec<FeatureError>,
    /// Mean of the features' errors, as a fraction.
    pub mean_error: f64,
}

impl SampleUse {
    pub(super) fn new(info: &SampleInfo, sample: &Moments) -> SampleUse {
        SampleUse {
            rate: info.rate,
            bits: info.bits,
            of_requests: info.requests,
            features: info.whole.compare(sample),
            mean_error: mean_error(&info.whole.features(), &sample.features()),
        }
    }
}

/// What is in a trace for one volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct VolumeUse {
    /// Name of the volume.
    pub volume: String,
    /// All requests.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: ByOp<u64>,
    /// Distinct blocks.
    pub footprint_blocks: ByOp<u64>,
    /// Offset at which the highest addressed range ends; the volume is at least this large.
    pub end_bytes: u64,
}

/// The table of features. Their names have the form `[read_|write_]FEATURE[_STATISTIC]`.
///
/// Single figures: `block_req_count` requests; `cache_req_count` accesses to blocks; `io_req_byte`
/// bytes; `seq_count` requests that begin where the previous request to the volume ended;
/// `misalignment_byte` bytes by which requests miss block boundaries; `wss` bytes of distinct
/// blocks; `write_..._split` the share of writes in the whole; `range` and `min_offset` in bytes.
///
/// Distributions, with `_p0`, `_p1`, `_p5`, `_p10` and so on by fives to `_p95`, `_p99`, `_p100`
/// and `_avg`: `size` in bytes; `jd` the jump distance, in bytes from the end of the previous
/// request to the volume (of the same operation) to the beginning of the next; `scan` the number of
/// blocks in a run of requests without a jump; `iat` the inter-arrival time in µs;
/// `page_popularity` a block's share of all accesses (of the operation).
///
/// A figure without data, such as the mean size of no requests, is NaN here and null in output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features(pub Vec<(String, f64)>);

impl Features {
    /// The feature of this name, if there is one and it is defined.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, v)| n == name && !v.is_nan()).map(|(_, v)| *v)
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // NaN is written as null.
        let features = BTreeMap::<String, Option<f64>>::deserialize(d)?;
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        Ok(Features(features.into_iter().map(|(name, value)| (name, number(value))).collect()))
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
