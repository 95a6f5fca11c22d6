//! Stores that no engine has open: what their headers say, whether their contents are as they were left, and
//! their release.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use forebay_config::BackingLayout;
use forebay_device::file::{DirectIo, OpenOptions};
use forebay_device::nbd::Export;
use forebay_flash::HeaderChange;

use crate::backing_header::{AREA_BYTES, BackingHeader, HeaderError};
use crate::error::EngineError;
use crate::fingerprint::VolumeContents;
use crate::former_header::search;
use crate::header_area::HeaderArea;
use crate::patience;
use crate::store::{find_header, io_error};
use crate::store_plan::area_offsets;

/// The whole headers of a store, each at the place that its own layout names, and what else its places hold.
struct Headers {
    found: Vec<(u64, BackingHeader)>,
    errors: Vec<(u64, HeaderError)>,
}

impl Headers {
    /// Looks where the layout says that a header is; in both places if it is not known.
    fn look(
        area: &HeaderArea,
        size: u64,
        layout: Option<BackingLayout>,
    ) -> std::io::Result<Headers> {
        let [start, end] = area_offsets(size);
        let places = [(start, BackingLayout::Offset), (end, BackingLayout::Tail)];
        let mut headers = Headers { found: Vec::new(), errors: Vec::new() };
        for (at, of) in
            places.into_iter().filter(|&(_, of)| layout.is_none_or(|layout| layout == of))
        {
            match find_header(&area.read(at)?) {
                Ok(Some(header)) if header.layout == of => headers.found.push((at, header)),
                // A header of another layout belongs to a store within the volume.
                Ok(_) => {}
                Err(error) => headers.errors.push((at, error)),
            }
        }
        Ok(headers)
    }

    /// The header, if there is one.
    ///
    /// # Errors
    /// If there are two: a volume may hold a whole store of the other layout, and nothing says which is which.
    fn only(&self, path: &Path) -> Result<Option<(u64, BackingHeader)>, EngineError> {
        match *self.found.as_slice() {
            [] => Ok(None),
            [header] => Ok(Some(header)),
            _ => Err(EngineError::TwoHeaders { path: path.to_owned() }),
        }
    }
}

/// The header of a store that is inspected from outside, and the layout it belongs to.
///
/// # Errors
/// If the store cannot be read, or holds no header, or one at each end.
pub fn inspect_backing(path: &Path) -> Result<BackingHeader, EngineError> {
    let (area, size) = look_into(path)?;
    let headers = Headers::look(&area, size, None).map_err(|e| io_error("read", path, e))?;
    if let Some((_, header)) = headers.only(path)? {
        return Ok(header);
    }
    let first_error = headers.errors.first().map(|&(_, error)| error);
    let error = former_end(&area, size, path)?.or(first_error).unwrap_or(HeaderError::Missing);
    Err(EngineError::NoStore { path: path.to_owned(), error })
}

/// The error for an inspected store whose header is at its former end.
fn former_end(
    area: &HeaderArea,
    size: u64,
    path: &Path,
) -> Result<Option<HeaderError>, EngineError> {
    let searched = search(area, size, size, area_offsets(size)[1]);
    let searched = searched.map_err(|e| io_error("read", path, e))?;
    Ok(searched.found.map(|(at, _)| HeaderError::Inside(at)))
}

/// A store opened for inspection, and its size in bytes.
fn look_into(path: &Path) -> Result<(HeaderArea, u64), EngineError> {
    if let Some(address) = path.to_str().filter(|path| path.contains("://")) {
        let export = Export::open(address, true)?;
        let size = export.size();
        return Ok((HeaderArea::of_export(Arc::new(export)), size));
    }
    let file = File::open(path).map_err(|source| io_error("open", path, source))?;
    let size = file_size(&file).map_err(|source| io_error("measure", path, source))?;
    Ok((HeaderArea::of_file(file), size))
}

/// Releases a store: no data on a flash tier counts for it any more. Returns the header that says
/// so. If the layout of the store is known, no other header is looked at.
///
/// # Errors
/// If it is in use, has no header, or one at each end, or a flash tier holds newer data; nothing was written.
pub fn release_backing(
    path: &Path,
    layout: Option<BackingLayout>,
) -> Result<BackingHeader, EngineError> {
    let address = path.to_str().filter(|path| path.contains("://"));
    let mut lock = None;
    let (area, size) = match address {
        Some(address) => {
            let export = Arc::new(Export::open(address, false)?);
            let size = export.size();
            (HeaderArea::of_export(export), size)
        }
        None => {
            let options = OpenOptions { direct: DirectIo::Never, ..OpenOptions::existing(path) };
            let (target, _) = patience::open(&options)?;
            let size = target.size();
            lock = Some(target);
            let file = File::options().read(true).write(true).open(path);
            (HeaderArea::of_file(file.map_err(|source| io_error("open", path, source))?), size)
        }
    };
    let headers = Headers::look(&area, size, layout).map_err(|e| io_error("read", path, e))?;
    // A damaged header at the start may be the store's; what is behind it is then data.
    if let Some(&(at, error)) = headers.errors.first()
        && error.is_of_whole_copy()
        && headers.found.first().is_none_or(|&(found, _)| at < found)
    {
        return Err(EngineError::NoStore { path: path.to_owned(), error });
    }
    let Some((at, header)) = headers.only(path)? else {
        let path = path.to_owned();
        return Err(match former_end(&area, size, &path)? {
            Some(error) => EngineError::NoStore { path, error },
            None => EngineError::NoHeaderToRelease { path },
        });
    };
    if header.dirty {
        return Err(EngineError::DirtyRelease { path: path.to_owned() });
    }
    let header = header.after(&HeaderChange::Release);
    let written = area.write(&header.encode(), at + header.offset_in_area());
    written.map_err(|source| io_error("write the header of", path, source))?;
    drop(lock);
    Ok(header)
}

/// Whether the contents of a store are as Forebay left them; `None` if its header does not record
/// that.
///
/// # Errors
/// If the store cannot be read.
pub fn is_as_left(path: &Path, header: &BackingHeader) -> Result<Option<bool>, EngineError> {
    let Some(left) = header.fingerprint else { return Ok(None) };
    let (area, _) = look_into(path)?;
    let start = if header.layout == BackingLayout::Offset { AREA_BYTES } else { 0 };
    let now = VolumeContents::read(&area, start, header.data_bytes);
    Ok(Some(now.map_err(|source| io_error("read", path, source))?.are_as(left)))
}

/// The size of a file or block device.
pub(crate) fn file_size(file: &File) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}
