//! Opening traces of any format.

use std::path::Path;

use crate::{
    Merged, Result, TraceError, TraceReader, formats, gaps::FollowGaps, reader::Selected,
    source::Source,
};

/// How to read traces. The default detects the format and reads everything.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format's name, if it is not to be detected, and parameters after a colon, as in
    /// "csv:time=ts@us,op=type,offset=lba@512,length=bytes" or "oracleGeneral:unit=4096".
    pub format: Option<String>,
    /// Count bad lines and records and pass over them, instead of stopping at the first.
    pub skip_bad_lines: bool,
    /// Only these volumes, by name or number; all if empty.
    pub volumes: Vec<String>,
    /// At most so many requests.
    pub limit: Option<u64>,
    /// How the times of several traces relate.
    pub align: Align,
    /// Whether several traces have nothing to do with one another, so that volumes of the same
    /// name are several ([`Merged::apart`]).
    pub apart: bool,
    /// Of samples: requests come by their gaps, at the rate of the trace that they were taken of,
    /// and not at their times. Traces without gaps are refused.
    pub follow_gaps: bool,
}

/// How the times of several traces relate to one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Align {
    /// By the clock if all of them tell the date, else all start together.
    #[default]
    Auto,
    /// All start together.
    Start,
}

/// Opens a trace, plain or compressed with gzip, zstd or xz; "-" is standard input.
///
/// # Errors
/// If the file cannot be read, is of no known format, or the options make no sense.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn TraceReader>> {
    open_all(&[path.as_ref()], options)
}

/// Opens several traces as one, merged by time. See [`Merged`] for volumes and clocks.
///
/// # Errors
/// As [`open`]; also if there are none.
pub fn open_all<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
) -> Result<Box<dyn TraceReader>> {
    if paths.iter().filter(|path| path.as_ref().as_os_str() == "-").count() > 1 {
        let what = "standard input (-) can be read once only, and is given several times";
        return Err(TraceError::Options(what.to_owned()));
    }
    let mut readers = Vec::new();
    for path in paths {
        let reader = open_whole(Source::open(path.as_ref())?, options)?;
        readers.push(if options.follow_gaps { Box::new(FollowGaps::new(reader)) } else { reader });
    }
    let reader: Box<dyn TraceReader> = match readers.pop() {
        None => return Err(TraceError::Options("no trace was given".to_owned())),
        Some(only) if readers.is_empty() => only,
        Some(last) => {
            readers.push(last);
            let merge = if options.apart { Merged::apart } else { Merged::new };
            Box::new(merge(readers, options.align)?)
        }
    };
    if options.volumes.is_empty() && options.limit.is_none() {
        return Ok(reader);
    }
    Ok(Box::new(Selected::new(reader, options.volumes.clone(), options.limit)))
}

/// Opens a trace that lies in memory, plain or compressed: for tests, fuzzing and what comes from
/// elsewhere than a file. Whatever the bytes are, nothing panics.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn TraceReader>> {
    let reader = open_whole(Source::from_bytes(bytes)?, options)?;
    Ok(Box::new(Selected::new(reader, options.volumes.clone(), options.limit)))
}

/// Opens one trace without selecting from it.
pub(crate) fn open_whole(source: Source, options: &OpenOptions) -> Result<Box<dyn TraceReader>> {
    let (format, params) = match &options.format {
        Some(text) => {
            let (name, params) = formats::Params::split(text)?;
            (formats::by_name(name)?, params)
        }
        None => (formats::detect(&source)?, formats::Params::default()),
    };
    (format.open)(source, options, params)
}
