//! Writes traces in our own format, and in the formats of other tools.

mod csv;
mod file;
mod iolog;
mod oracle_general;
mod writer;

use std::path::Path;

use crate::{ParquetTraceWriter, Result, TraceError, formats::Params};

pub(crate) use file::PartialFile;
pub use writer::{LeftOut, TraceWriter};

/// The formats that can be written: name, summary, file extensions.
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

/// Begins a trace at `path`, in the named format (with parameters after a colon, as for reading)
/// or, without a name, in the format that the file extension selects. In a text format, the path
/// `-` is standard output, to which nothing else may write until the trace is finished.
///
/// # Errors
/// If there is no such format or the file cannot be created.
pub fn create(path: &Path, format: Option<&str>) -> Result<Box<dyn TraceWriter>> {
    let is_stdout = path.as_os_str() == file::STDOUT;
    let known = || WRITTEN.map(|(name, ..)| name).join(", ");
    let extensions = || WRITTEN.map(|(.., all)| format!(".{}", all.join(" or ."))).join(", ");
    let text = match format {
        Some(text) => text,
        None if is_stdout => {
            let what =
                "standard output has no extension that selects a format, such as csv or iolog";
            return Err(TraceError::Options(what.to_owned()));
        }
        None => by_extension(path).ok_or_else(|| {
            TraceError::Options(format!(
                "{}: this file name extension does not select an output format; use one of {}",
                path.display(),
                extensions()
            ))
        })?,
    };
    let (name, mut params) = Params::split(text)?;
    let found = WRITTEN.iter().find(|(n, ..)| n.eq_ignore_ascii_case(name)).map(|(name, ..)| *name);
    if let (true, Some(binary @ ("parquet" | "oracleGeneral"))) = (is_stdout, found) {
        return Err(TraceError::Options(format!(
            "{binary} can be written only to a file; standard output accepts only csv and iolog"
        )));
    }
    Ok(match found {
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
