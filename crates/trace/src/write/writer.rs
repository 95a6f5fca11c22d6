//! What every writer of traces does.

use std::collections::HashSet;

use crate::{Batch, Metadata, ParquetTraceWriter, Result, VolumeInfo, Written};

/// Takes a trace batch by batch and makes a file of it, which appears when it is complete.
pub trait TraceWriter {
    /// Appends requests. `metadata` is what is known of the trace by now: volumes at least.
    ///
    /// # Errors
    /// If writing fails or the format cannot express a request.
    fn write_batch(&mut self, batch: &Batch, metadata: &Metadata) -> Result<()>;

    /// What a reader has to be told to read the file as it was meant ([`OpenOptions::format`]), where
    /// the file itself does not say it.
    ///
    /// [`OpenOptions::format`]: crate::OpenOptions::format
    fn read_as(&self) -> Option<String> {
        None
    }

    /// The requests so far that are not in the file, because the format has nothing like them.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If writing fails; then nothing is left behind.
    fn finish(self: Box<Self>, metadata: &Metadata) -> Result<Written>;
}

/// Numbers of requests that a format has nothing like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Trims, and zeroings of more than 4 GiB.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Other requests of no bytes.
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

/// The names of volumes as `plain` makes them fit the format; those that are then alike are numbered,
/// so that two volumes stay two.
pub(super) fn plain_names(volumes: &[VolumeInfo], plain: impl Fn(&str) -> String) -> Vec<String> {
    // What needs no change keeps its name, whichever comes first.
    let mut taken: HashSet<String> =
        volumes.iter().map(|v| v.name.clone()).filter(|name| plain(name) == *name).collect();
    let mut kept = HashSet::new();
    let names = volumes.iter().map(|v| {
        let name = plain(&v.name);
        if name == v.name && kept.insert(name.clone()) {
            return name;
        }
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        candidates.find(|name| taken.insert(name.clone())).expect("there are endless candidates")
    });
    names.collect()
}
