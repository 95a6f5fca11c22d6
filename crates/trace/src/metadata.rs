//! Facts about a trace as a whole.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::Moments;

/// What the times of a trace count from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// An unknown moment, such as the start of the capture.
    #[default]
    Unknown,
    /// 1970-01-01 00:00 UTC.
    Unix,
}

/// What is known about a trace as a whole. Volumes are added as they appear while reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Name of the format read.
    pub format: String,
    /// Name of the trace: the file name without extensions.
    pub name: String,
    /// What the trace's own times count from.
    pub clock: Clock,
    /// Time of the first request by that clock, in nanoseconds: request times count from here.
    /// `None` until a request has been read.
    pub epoch_ns: Option<u64>,
    /// The volumes, by number.
    pub volumes: Vec<VolumeInfo>,
    /// Whether the names of volumes come from the trace and mean the same in other files of the
    /// same capture. If not, they have a meaning only within this file.
    pub names_volumes: bool,
    /// For traces opened apart, the index of the trace that each volume belongs to, by volume
    /// number; otherwise empty.
    pub volume_traces: Vec<usize>,
    /// How content was hashed, if the trace has content hashes.
    pub hashes: Option<HashInfo>,
    /// For a sample, what was sampled and how. `None` for merged traces.
    pub sample: Option<SampleInfo>,
    /// For merged traces, the [`SampleInfo`] of each trace that is a sample. Files do not store it.
    pub merged_samples: Vec<SampleInfo>,
    /// Where the trace comes from, one line for each step.
    pub provenance: Vec<String>,
    /// The file names of the traces whose format records no operations: all their requests count
    /// as reads.
    pub without_operations: Vec<String>,
    /// Reasons why the trace may have been misread, each with the options that settle the doubt.
    pub doubts: Vec<String>,
}

impl Metadata {
    /// Whether the volume has a name of its own, not the trace's, that may mean another volume in
    /// another trace.
    pub(crate) fn has_own_name(&self, volume: &VolumeInfo) -> bool {
        !self.names_volumes && !self.name.is_empty() && volume.name != self.name
    }
}

/// What is known about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name of the volume.
    pub name: String,
    /// Size of the volume in bytes, if the trace records it.
    pub bytes: Option<u64>,
}

/// How content was hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashInfo {
    /// Name of the algorithm, such as "md5", "xxh3-128" or "blake3".
    pub algorithm: String,
    /// Bytes of content for each hash.
    pub unit_bytes: u32,
    /// Bytes of each hash.
    pub digest_bytes: u32,
}

/// What a sample was taken of, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleInfo {
    /// The share of regions that is in it.
    pub rate: f64,
    /// A region is `4 KiB << bits`.
    pub bits: u32,
    /// Which regions those are.
    pub seed: u64,
    /// Requests of the whole.
    pub requests: u64,
    /// Sums over the reads and the writes of the whole.
    #[serde(flatten)]
    pub whole: Moments,
}

/// What happened while reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bad lines or records that were skipped, as
    /// [`OpenOptions::skip_bad_lines`](crate::OpenOptions::skip_bad_lines) requests.
    pub bad: u64,
    /// Requests with an earlier time than their predecessor; they were given their predecessor's
    /// time.
    pub out_of_order: u64,
    /// Lines or records that are well formed but not requests, such as other events.
    pub ignored: u64,
    /// The longest time between the end of a trace and the start of the next, if several traces
    /// keep their dates and this time is longer than the traces run in total; otherwise 0.
    pub lull_ns: u64,
}

impl Counters {
    pub(crate) fn plus(self, o: Counters) -> Counters {
        Counters {
            bad: self.bad + o.bad,
            out_of_order: self.out_of_order + o.out_of_order,
            ignored: self.ignored + o.ignored,
            lull_ns: self.lull_ns.max(o.lull_ns),
        }
    }
}

/// Numbers volumes in the order in which their keys appear.
#[derive(Debug, Default)]
pub(crate) struct VolumeTable {
    pub(crate) volumes: Vec<VolumeInfo>,
    ids: HashMap<Vec<u8>, u32>,
    last: Option<(Vec<u8>, u32)>,
}

impl VolumeTable {
    /// A table with one volume, number 0.
    pub(crate) fn single(name: String) -> Self {
        VolumeTable { volumes: vec![VolumeInfo { name, bytes: None }], ..Self::default() }
    }

    /// The number of the volume with this key; `name` creates the name of a new volume.
    #[inline]
    pub(crate) fn id(&mut self, key: &[u8], name: impl FnOnce(&[u8]) -> String) -> u32 {
        match &self.last {
            Some((k, id)) if k == key => *id,
            _ => self.look_up(key, name),
        }
    }

    fn look_up(&mut self, key: &[u8], name: impl FnOnce(&[u8]) -> String) -> u32 {
        let id = match self.ids.get(key) {
            Some(&id) => id,
            None => {
                let id = self.volumes.len() as u32;
                self.volumes.push(VolumeInfo { name: name(key), bytes: None });
                self.ids.insert(key.to_vec(), id);
                id
            }
        };
        self.last = Some((key.to_vec(), id));
        id
    }
}
