//! Writing traces: our own format, and back to others' for their tools.

mod csv;
mod file;
mod iolog;
mod oracle_general;

use std::collections::HashSet;
use std::path::Path;

use crate::{
    Batch, Metadata, ParquetTraceWriter, Result, TraceError, VolumeInfo, Written, formats::Params,
};

pub(crate) use file::PartialFile;

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

    /// Completes the file.
    ///
    /// # Errors
    /// If writing fails; then nothing is left behind.
    fn finish(self: Box<Self>, metadata: &Metadata) -> Result<Written>;
}

/// The formats that can be written: name, what it is, extensions.
const WRITTEN: [(&str, &str, &[&str]); 4] = [
    ("parquet", "Forebay's own", &["parquet"]),
    ("csv", "columns time_ns,volume,op,flags,offset,length,latency_ns,result,hashes", &["csv"]),
    (
        "oracleGeneral",
        "libCacheSim's; oracleGeneral:block=4096 splits requests into blocks",
        &["oracleGeneral", "bin"],
    ),
    (
        "iolog",
        "fio's; version=2 or 3 (3 if not given), file=PATH replaces volume names",
        &["iolog", "log"],
    ),
];

/// Names and summaries of the formats that can be written.
pub fn writable_formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    WRITTEN.iter().map(|(name, summary, _)| (*name, *summary))
}

/// Begins a trace at `path`, in the format named (with parameters after a colon, as for reading)
/// or else the one that the path's extension tells.
///
/// # Errors
/// If there is no such format or the file cannot be created.
pub fn create(path: &Path, format: Option<&str>) -> Result<Box<dyn TraceWriter>> {
    let known = || WRITTEN.map(|(name, ..)| name).join(", ");
    let text = match format {
        Some(text) => text,
        None => by_extension(path).ok_or_else(|| {
            TraceError::Options(format!(
                "{}: the extension tells no format that can be written ({}); name one",
                path.display(),
                known()
            ))
        })?,
    };
    let (name, mut params) = Params::split(text)?;
    let found = WRITTEN.iter().find(|(n, ..)| n.eq_ignore_ascii_case(name));
    Ok(match found.map(|(name, ..)| *name) {
        Some("parquet") => {
            params.finish("")?;
            Box::new(ParquetTraceWriter::create(path)?)
        }
        Some("csv") => {
            params.finish("")?;
            Box::new(csv::Writer::create(path)?)
        }
        Some("oracleGeneral") => {
            let block = params.take_bytes("block", 0)?;
            params.finish("block")?;
            Box::new(oracle_general::Writer::create(path, Some(block).filter(|b| *b > 0))?)
        }
        Some("iolog") => {
            let version = params.take_bytes("version", 3)?;
            if !(2..=3).contains(&version) {
                return Err(params.bad("version", &version.to_string(), "2 or 3"));
            }
            let target = params.take("file");
            params.finish("version, file")?;
            Box::new(iolog::Writer::create(path, version == 3, target)?)
        }
        _ => return Err(TraceError::NoSuchFormat { name: name.to_owned(), known: known() }),
    })
}

fn by_extension(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?;
    let found =
        WRITTEN.iter().find(|(_, _, e)| e.iter().any(|e| e.eq_ignore_ascii_case(extension)));
    found.map(|(name, ..)| *name)
}

/// The names of volumes as `plain` makes them fit the format; those that are then alike are numbered,
/// so that two volumes stay two.
fn plain_names(volumes: &[VolumeInfo], plain: impl Fn(&str) -> String) -> Vec<String> {
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
        candidates.find(|name| taken.insert(name.clone())).expect("numbers do not end")
    });
    names.collect()
}

impl TraceWriter for ParquetTraceWriter {
    fn write_batch(&mut self, batch: &Batch, _: &Metadata) -> Result<()> {
        self.push_batch(batch)
    }

    fn finish(self: Box<Self>, metadata: &Metadata) -> Result<Written> {
        (*self).finish(metadata)
    }
}
