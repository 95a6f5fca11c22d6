//! What every writer of traces does.

use std::collections::HashSet;

use forebay_block::Volume;

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

/// The names of volumes in a format that does not take every name. Names that become alike are numbered, so that
/// two volumes stay two. A volume keeps the name that it was given first, whichever volumes appear later.
#[derive(Debug, Default)]
pub(super) struct PlainNames {
    /// By volume number.
    names: Vec<String>,
    taken: HashSet<String>,
}

impl PlainNames {
    /// Names those of the trace's volumes that have no name yet, as `plain` makes their own ones fit the format.
    pub(super) fn add(&mut self, volumes: &[VolumeInfo], plain: impl Fn(&VolumeInfo) -> String) {
        let new = volumes.get(self.names.len()..).unwrap_or_default();
        // What needs no change keeps its name, whichever of the new ones comes first.
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
