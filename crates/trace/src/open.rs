//! Opening traces of any format.

use std::path::Path;

use crate::{
    Merged, OpenOptions, Result, TraceError, TraceReader, formats, gaps::FollowGaps,
    long_zeroing::LongZeroingAsTrim, reader::Selected, source::Source,
};

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
        let what = "standard input (-) can be read only once, but is given several times";
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
            let format = formats::by_name(name)?;
            formats::check_named(format, &source)?;
            (format, params)
        }
        None => (formats::detect(&source)?, formats::Params::default()),
    };
    let reader = (format.open)(source, options, params)?;
    if options.keep_long_zeroing {
        return Ok(reader);
    }
    Ok(Box::new(LongZeroingAsTrim(reader)))
}
