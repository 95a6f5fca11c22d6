//! The ranges that a workload will access, determined before the first request is sent.

use forebay_block::{Nanos, Op, Request};
use forebay_results::{TraceHasher, TraceIdentity};

/// Counts and extents of a workload.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that modify a volume.
    pub modifying: u64,
    /// Time of the last request.
    pub duration: Nanos,
    /// Time of the first request.
    first: Option<Nanos>,
    /// The volumes, by number.
    pub volumes: Vec<VolumeSurvey>,
    hasher: TraceHasher,
}

/// How a workload uses one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeSurvey {
    /// Its name.
    pub name: String,
    /// Whether there are requests for it. If only some volumes of a trace were chosen, the others
    /// still have numbers.
    pub used: bool,
    /// The byte just past the last one accessed.
    pub end_bytes: u64,
    /// Whether it is written, trimmed or zeroed.
    pub modified: bool,
}

impl Survey {
    /// Time from the first request to the last.
    pub fn span(&self) -> Nanos {
        Nanos(self.duration.0 - self.first.unwrap_or(self.duration).0)
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.duration = self.duration.max(request.time);
        self.first.get_or_insert(request.time);
        self.hasher.add(request);
        let volume = request.volume.0 as usize;
        if self.volumes.len() <= volume {
            self.volumes.resize_with(volume + 1, VolumeSurvey::default);
        }
        let volume = &mut self.volumes[volume];
        volume.used = true;
        if request.op.modifies() {
            self.modifying += 1;
            volume.modified = true;
        }
        if request.op != Op::Flush {
            volume.end_bytes = volume.end_bytes.max(request.offset.saturating_add(request.length));
        }
    }

    /// Gives the volumes their names, by number.
    pub fn name_volumes<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for (number, name) in names.into_iter().enumerate() {
            if let Some(volume) = self.volumes.get_mut(number) {
                name.clone_into(&mut volume.name);
            }
        }
    }

    /// Identifies the requests, by `name` and hash.
    pub fn identity(&self, name: impl Into<String>) -> TraceIdentity {
        self.hasher.identity(name)
    }
}
