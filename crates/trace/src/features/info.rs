//! The answer: what is in a trace.

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
    /// Requests that read.
    pub reads: u64,
    /// Requests that write, write-zeroes among them.
    pub writes: u64,
    /// Requests that trim.
    pub trims: u64,
    /// Requests that flush.
    pub flushes: u64,
    /// Writes that write zeroes.
    pub write_zeroes: u64,
    /// Requests with forced unit access.
    pub fua: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// From the first request to the last.
    pub duration_s: f64,
    /// When the trace began, in seconds since 1970, if it tells.
    pub epoch_unix_s: Option<f64>,
    /// Volumes that have requests.
    pub volumes: u64,
    /// Size of the blocks of all figures in blocks.
    pub block_size: u64,
    /// Accesses to blocks, after splitting requests.
    pub block_accesses: ByOp<u64>,
    /// Distinct blocks.
    pub footprint_blocks: ByOp<u64>,
    /// Reads and writes that do not begin and end on the bounds of blocks.
    pub misaligned: ByOp<u64>,
    /// Contents, if the trace has hashes of whole blocks or of parts that blocks are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentUse>,
    /// How close a sample is to the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleUse>,
    /// Bad lines or records passed over.
    pub bad_lines: u64,
    /// Requests that came with a time before their predecessor's.
    pub out_of_order: u64,
    /// Each volume.
    pub per_volume: Vec<VolumeUse>,
    /// Figures that describe the workload; null where there is none, such as a time between requests of a trace
    /// with one.
    #[schemars(with = "BTreeMap<String, Option<f64>>")]
    pub features: Features,
}

/// A sample, by the features that samples are compared by ([`crate::FEATURES`]).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SampleUse {
    /// The share of regions that is in it.
    pub rate: f64,
    /// A region is `4 KiB << bits`.
    pub bits: u32,
    /// Requests of the whole.
    pub of_requests: u64,
    /// Each feature of the whole and of what was read of the sample.
    pub features: Vec<FeatureError>,
    /// The mean of their errors, a fraction.
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
    /// Its name.
    pub volume: String,
    /// All requests.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: ByOp<u64>,
    /// Distinct blocks.
    pub footprint_blocks: ByOp<u64>,
    /// The byte after the last that is addressed: its size is at least that.
    pub end_bytes: u64,
}

/// The table of features, each with a name: `[read_|write_]FEATURE[_STATISTIC]`.
///
/// Single figures: `block_req_count` requests, `cache_req_count` accesses to blocks,
/// `io_req_byte` bytes, `seq_count` requests that begin where the volume's last ended,
/// `misalignment_byte` bytes by which requests miss the bounds of blocks, `wss` bytes of distinct
/// blocks; `write_..._split` is the writes' part of the whole; `range` and `min_offset` in bytes.
///
/// Distributions, with `_p0`, `_p1`, `_p5`, `_p10` and so on by fives to `_p95`, `_p99`, `_p100`
/// and `_avg`: `size` bytes; `jd` jump distance, bytes from the end of the volume's last request
/// (of the same operation) to the beginning of the next; `scan` blocks of a run of requests
/// without a jump; `iat` inter-arrival time in µs; `page_popularity` a block's share of all
/// accesses (of the operation).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features(pub Vec<(String, f64)>);

impl Features {
    /// The feature of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // As written, what is not a number is null.
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
