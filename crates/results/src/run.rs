//! The fields that every run reports.

use std::borrow::Cow;
use std::ops::{Add, Sub};

use forebay_cache::{CacheStats, VolumeStats};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use crate::LatencyByOp;

/// The results of a run of a workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Completed requests of all kinds, including failed ones.
    pub requests: u64,
    /// Completed read requests, including failed ones.
    pub reads: u64,
    /// Completed write requests, including failed ones.
    pub writes: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Bytes sent by writes.
    pub write_bytes: u64,
    /// Seconds from the first request to the last completion, on the clock of the run.
    pub duration_s: f64,
    /// Time from a request's arrival to its reply; in a replay, from when the request is sent to its reply.
    /// Percentiles are accurate to 0.1 %. Null in a simulation with `--untimed`.
    #[schemars(with = "Option<LatencyByOp>")]
    pub latency_us: LatencyByOp,
    /// Counters of the cache; absent if the target is not Forebay's own cache.
    #[serde(flatten)]
    pub cache: Option<CacheResult>,
}

/// The activity of a cache during a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheResult {
    /// Block accesses that hit, by tier.
    pub hits: Hits,
    /// Block accesses that missed.
    pub misses: ReadWrite,
    /// Share of block accesses that hit, including delayed hits.
    pub hit_ratio: f64,
    /// Bytes written to the flash tier, including headers and padding.
    pub tier2_bytes_written: u64,
    /// Traffic of the backing stores.
    pub backing: Backing,
    /// Largest number of dirty blocks at any time.
    pub dirty_blocks_max: u64,
}

/// Block accesses that hit, by tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Hits {
    /// Hits in memory.
    pub tier1: ReadWrite,
    /// Hits on flash.
    pub tier2: ReadWrite,
    /// Hits on blocks that another access was already reading from the backing store: one read served both
    /// accesses. These delayed hits count in `hit_ratio`, but in no tier.
    #[serde(default)]
    pub delayed: ReadWrite,
}

/// Counts of reads and of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReadWrite {
    /// Count for reads.
    pub read: u64,
    /// Count for writes, trims and write-zeroes requests.
    pub write: u64,
}

/// Traffic of the backing stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Backing {
    /// Bytes read, including those of failed reads.
    pub read_bytes: u64,
    /// Bytes written, including those of failed writes.
    pub write_bytes: u64,
}

/// Serializes the events of a cache that a simulation reports; for `serialize_with`.
///
/// # Errors
/// Returns the errors of the serializer.
pub fn simulated_events<S: Serializer>(stats: &CacheStats, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(stats.simulated())
}

/// Serializes the events of a cache that a server reports; for `serialize_with`.
///
/// # Errors
/// Returns the errors of the serializer.
pub fn served_events<S: Serializer>(stats: &CacheStats, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(stats.served())
}

/// The fields of [`simulated_events`] and [`served_events`], for `schemars(with)`. A field that
/// only one of them reports is optional, and its description says so.
pub struct Events;

impl JsonSchema for Events {
    fn schema_name() -> Cow<'static, str> {
        "Events".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let none = CacheStats::default();
        let simulated: Vec<&str> = none.simulated().map(|(name, _)| name).collect();
        let served: Vec<&str> = none.served().map(|(name, _)| name).collect();
        let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
        for (name, lines) in CacheStats::ABOUT {
            let only = match (simulated.contains(name), served.contains(name)) {
                (true, true) => "",
                (true, false) => " (Simulations only.)",
                (false, true) => " (Servers only.)",
                (false, false) => continue,
            };
            if only.is_empty() {
                required.push(*name);
            }
            let about = format!("{}{only}", lines.concat().trim());
            let counter = json!({ "description": about, "type": "integer", "minimum": 0 });
            properties.insert((*name).to_owned(), counter);
        }
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}

impl CacheResult {
    /// Builds the result from the counters of a volume, or from their sum over volumes.
    pub fn new(stats: &VolumeStats, tier2_bytes_written: u64) -> CacheResult {
        let (read, write) = (&stats.read_hits, &stats.write_hits);
        let hits = Hits {
            tier1: ReadWrite { read: read.tier1, write: write.tier1 },
            tier2: ReadWrite { read: read.tier2, write: write.tier2 },
            delayed: ReadWrite { read: read.delayed, write: write.delayed },
        };
        let misses = ReadWrite { read: read.miss, write: write.miss };
        CacheResult {
            hits,
            misses,
            hit_ratio: CacheResult::ratio_of(&hits, &misses),
            tier2_bytes_written,
            backing: Backing {
                read_bytes: stats.backing_read_bytes,
                write_bytes: stats.backing_write_bytes,
            },
            dirty_blocks_max: stats.dirty_blocks_max,
        }
    }

    /// The share of accesses that hit, including delayed hits; 0 if there are no accesses.
    pub fn ratio_of(hits: &Hits, misses: &ReadWrite) -> f64 {
        let hit = hits.tier1.sum() + hits.tier2.sum() + hits.delayed.sum();
        match hit + misses.sum() {
            0 => 0.0,
            all => hit as f64 / all as f64,
        }
    }
}

impl ReadWrite {
    /// The sum of both counts.
    pub const fn sum(self) -> u64 {
        self.read + self.write
    }
}

impl Add for ReadWrite {
    type Output = ReadWrite;

    fn add(self, other: ReadWrite) -> ReadWrite {
        ReadWrite { read: self.read + other.read, write: self.write + other.write }
    }
}

impl Sub for ReadWrite {
    type Output = ReadWrite;

    fn sub(self, other: ReadWrite) -> ReadWrite {
        ReadWrite { read: self.read - other.read, write: self.write - other.write }
    }
}

impl Hits {
    /// Combines two counts of hits field by field.
    pub fn zip(self, other: Hits, combine: fn(ReadWrite, ReadWrite) -> ReadWrite) -> Hits {
        Hits {
            tier1: combine(self.tier1, other.tier1),
            tier2: combine(self.tier2, other.tier2),
            delayed: combine(self.delayed, other.delayed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_ours_has_no_cache_fields_and_ours_has_them_at_the_top() {
        let mut run = RunResult { requests: 3, ..RunResult::default() };
        let document = serde_json::to_value(&run).unwrap();
        assert!(document.get("hits").is_none() && document.get("cache").is_none());
        assert_eq!(serde_json::from_value::<RunResult>(document).unwrap(), run);

        let hits = Hits { tier1: ReadWrite { read: 2, write: 1 }, ..Hits::default() };
        let misses = ReadWrite { read: 1, write: 0 };
        let hit_ratio = CacheResult::ratio_of(&hits, &misses);
        run.cache = Some(CacheResult { hits, misses, hit_ratio, ..CacheResult::default() });
        let document = serde_json::to_value(&run).unwrap();
        assert_eq!(document["hits"]["tier1"]["read"], 2);
        assert_eq!(document["hit_ratio"], 0.75);
        assert_eq!(document["backing"]["read_bytes"], 0);
        assert_eq!(document["latency_us"]["all"]["p9999"], 0.0);
        assert_eq!(serde_json::from_value::<RunResult>(document).unwrap(), run);
    }

    #[test]
    fn the_hit_ratio_of_nothing_is_zero() {
        assert_eq!(CacheResult::ratio_of(&Hits::default(), &ReadWrite::default()), 0.0);
    }
}
