//! The interface of all trace writers.

use std::collections::HashSet;

use forebay_block::Volume;

use crate::{Batch, Metadata, ParquetTraceWriter, Result, VolumeInfo, Written};

/// Writes a trace batch by batch to a file, which appears when it is complete.
pub trait TraceWriter {
    /// Appends requests. `metadata` holds what is known about the trace so far, at least its
    /// volumes.
    ///
    /// # Errors
    /// If writing fails or the format cannot express a request.
    fn write_batch(&mut self, batch: &Batch, metadata: &Metadata) -> Result<()>;

    /// The value of [`OpenOptions::format`] with which a reader reads the file as intended, if the
    /// file itself does not show it.
    ///
    /// [`OpenOptions::format`]: crate::OpenOptions::format
    fn read_as(&self) -> Option<String> {
        None
    }

    /// Counts of the requests so far that are not in the file, because the format cannot express
    /// them.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If writing fails. The incomplete file is then removed.
    fn finish(self: Box<Self>, metadata: &Metadata) -> Result<Written>;
}

/// Counts of requests that a format cannot express.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Trims, and zeroings of more than 4 GiB.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Other requests of 0 bytes.
    pub empty: u64,
}

impl TraceWriter for ParquetTraceWriter {
    fn write_batch(&mut self, batch: &Batch, _: &Metadata) -> Result<()> {
        self.push_batch(batch)
    }

    fn finish(self: Box<Self>, metadata: &Metadata) -> Result<Written> {
        (*self).finish(metadata)
    }
}

/// Names of volumes in a format that does not allow every name. Names that become equal are
/// numbered, so that the volumes stay distinct. A volume keeps the first name that it was given,
/// whichever volumes appear later.
#[derive(Debug, Default)]
pub(super) struct PlainNames {
    /// By volume number.
    names: Vec<String>,
    taken: HashSet<String>,
}

impl PlainNames {
    /// Names the volumes of the trace that have no name yet. `plain` makes their original names fit
    /// the format.
    pub(super) fn add(&mut self, volumes: &[VolumeInfo], plain: impl Fn(&VolumeInfo) -> String) {
        let new = volumes.get(self.names.len()..).unwrap_or_default();
        // A name that needs no change is kept, whichever of the new volumes comes first.
        let own = new.iter().filter(|v| plain(v) == v.name).map(|v| &v.name);
        let mut own: HashSet<String> =
            own.filter(|name| !self.taken.contains(*name)).cloned().collect();
        self.taken.extend(own.iter().cloned());
        for volume in new {
            let mut name = plain(volume);
            if name != volume.name || !own.remove(&name) {
                let numbered = (2..).map(|n| format!("{name}_{n}"));
                let mut candidates = std::iter::once(name.clone()).chain(numbered);
                let free = candidates.find(|name| self.taken.insert(name.clone()));
                name = free.expect("there are endless candidates");
            }
            self.names.push(name);
        }
    }

    /// The name of a volume by its number, if the trace names it.
    pub(super) fn get(&self, volume: Volume) -> Option<&str> {
        self.names.get(volume.0 as usize).map(String::as_str)
    }
}
