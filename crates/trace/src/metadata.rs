//! Facts about a trace as a whole.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::Moments;

/// What the times of a trace count from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// Some moment that the trace does not tell, such as the start of the capture.
    #[default]
    Unknown,
    /// 1970-01-01 00:00 UTC.
    Unix,
}

/// What is known about a trace as a whole. Volumes appear as they are met while reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Name of the format read.
    pub format: String,
    /// The trace's name: its file's, without extensions.
    pub name: String,
    /// What the trace's own times count from.
    pub clock: Clock,
    /// The first request's time by that clock, in nanoseconds: request times count from here.
    /// `None` until a request was read.
    pub epoch_ns: Option<u64>,
    /// The volumes, by number.
    pub volumes: Vec<VolumeInfo>,
    /// Whether the names of volumes come from the trace and are the same in other files of the
    /// same capture; else they were made up from the file's name.
    pub names_volumes: bool,
    /// For traces opened apart, which of them each volume belongs to, by number. Else empty.
    pub volume_traces: Vec<usize>,
    /// The content hashes, if it has any.
    pub hashes: Option<HashInfo>,
    /// For a sample, which part of what it is. Merged traces are no sample.
    pub sample: Option<SampleInfo>,
    /// For merged traces, which parts of what those are that are samples; files do not keep it.
    pub merged_samples: Vec<SampleInfo>,
    /// Where the trace comes from, a line for each step.
    pub provenance: Vec<String>,
    /// The names of the traces whose format records no operations: all their requests count as reads.
    pub without_operations: Vec<String>,
    /// Why it may not be what it was taken for, and how to say what it is; a sentence each.
    pub doubts: Vec<String>,
}

impl Metadata {
    /// Whether the name of this volume of the trace, which is not the trace's, may mean another volume in
    /// another trace.
    pub(crate) fn has_own_name(&self, volume: &VolumeInfo) -> bool {
        !self.names_volumes && !self.name.is_empty() && volume.name != self.name
    }
}

/// What is known about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its size, if the trace tells.
    pub bytes: Option<u64>,
}

/// How content was hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashInfo {
    /// As in "md5", "xxh3-128", "blake3".
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
    /// Bad lines or records passed over, because the reader was told to.
    pub bad: u64,
    /// Requests whose time lay before their predecessor's; they got their predecessor's time.
    pub out_of_order: u64,
    /// Lines or records that are well formed but no requests, such as other events.
    pub ignored: u64,
    /// The longest time between the end of a trace and the start of the next, if several traces keep their
    /// dates and this is longer than all of them run; otherwise 0.
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

/// Numbers volumes in the order in which their keys are met.
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

    /// The number of the volume with this key; `name` makes its name if it is new.
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
