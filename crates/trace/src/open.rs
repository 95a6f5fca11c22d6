//! Opening traces of any format.

use std::{os::unix::fs::MetadataExt, path::Path};

use crate::{
    Merged, OpenOptions, Result, TraceError, TraceReader, formats,
    gaps::FollowGaps,
    long_zeroing::LongZeroingAsTrim,
    source::{Source, is_read_once},
    wanted::Selected,
};

/// Opens a trace, plain or compressed with gzip, zstd or xz; "-" is standard input. For pipes, see
/// [`is_read_once`].
///
/// # Errors
/// If the file cannot be read or has no known format, or if the options are invalid.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn TraceReader>> {
    open_all(&[path.as_ref()], options)
}

/// Opens several traces as one, merged by time. See [`Merged`] for volumes and clocks.
///
/// # Errors
/// As for [`open`]; also if `paths` is empty.
pub fn open_all<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
) -> Result<Box<dyn TraceReader>> {
    check_repeated(paths)?;
    let mut readers = Vec::new();
    for path in paths {
        let reader = open_whole(Source::open(path.as_ref(), options)?, options)?;
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

/// Rejects a path that is given several times but can be read only once.
fn check_repeated<P: AsRef<Path>>(paths: &[P]) -> Result<()> {
    let mut seen = Vec::new();
    for path in paths.iter().map(AsRef::as_ref).filter(|path| is_read_once(path)) {
        let stdin = path.as_os_str() == "-";
        let place = std::fs::metadata(path).ok().filter(|_| !stdin);
        let place = place.map(|meta| (meta.dev(), meta.ino()));
        if seen.contains(&place) {
            let name = if stdin { "standard input (-)".into() } else { path.to_string_lossy() };
            let what = format!("{name} can be read only once, but was given more than once");
            return Err(TraceError::Options(what));
        }
        seen.push(place);
    }
    Ok(())
}

/// Opens a trace in memory, plain or compressed: for tests, fuzzing and data that is not in a file.
/// Never panics, whatever the bytes.
///
/// # Errors
/// As for [`open`].
pub fn open_bytes(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn TraceReader>> {
    let reader = open_whole(Source::from_bytes(bytes)?, options)?;
    Ok(Box::new(Selected::new(reader, options.volumes.clone(), options.limit)))
}

/// Opens one trace without applying the selection of volumes and the limit.
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
