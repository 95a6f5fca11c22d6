//! Devices that Forebay uses in another role: a flash tier where a store should be, or a store where
//! the flash tier should be. Names are mixed up easily, and either would overwrite what may be the
//! only copy of acknowledged data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_config::Volume;
use forebay_flash::LogError;
use forebay_flash::format::superblock::Superblock;

use crate::backing_header::{COPY_BYTES, COPY_OFFSETS};
use crate::error::EngineError;
use crate::flash_device::OpenFlashDevice;
use crate::header_area::HeaderArea;
use crate::options::EngineOptions;
use crate::recognise::{DeviceStart, Found};
use crate::store::{Store, find_header, io_error};
use crate::store_plan::area_offsets;

/// Refuses devices in the wrong role, unless they are given up: `options` must permit to format
/// them, and to discard dirty data if they may hold some. Headers of stores that are given up will
/// be invalidated with [`OpenFlashDevice::void_headers`]. It only reads.
///
/// # Errors
/// If a device has another role, or cannot be read.
pub(crate) fn check_roles(
    stores: &[Store],
    flash: Option<&mut OpenFlashDevice>,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    let bound = flash.as_ref().and_then(|tier| tier.found.superblock());
    for store in stores {
        check_store(store, bound, options)?;
    }
    flash.map_or(Ok(()), |tier| check_tier(tier, options))
}

/// What an error of opening the store says if it is a flash tier.
pub(crate) fn explained(error: EngineError, volume: &Volume) -> EngineError {
    match &error {
        EngineError::Header { error, .. } if !error.is_of_whole_copy() => {}
        EngineError::NoTail { .. } => {}
        _ => return error,
    }
    let path = Path::new(&volume.backing);
    // (Only the message depends on it.)
    match DeviceStart::read(path) {
        Ok(start) if is_tier(&start.recognise()) => {
            EngineError::TierAsStore { volume: volume.name.clone(), path: path.to_owned() }
        }
        _ => error,
    }
}

/// Refuses a store that is a flash tier. A store that has a header, or that is bound to the tier in
/// use, is one: whatever its data look like, clients wrote it.
fn check_store(
    store: &Store,
    bound: Option<&Superblock>,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    let is_bound =
        bound.is_some_and(|tier| tier.bindings.iter().any(|b| b.uuid == store.head.id()));
    if store.head.on_store().is_some() || is_bound || store.read_only {
        return Ok(());
    }
    let start = match &store.export {
        Some(export) => DeviceStart::read_export(export, &store.path),
        None => DeviceStart::read(&store.path),
    };
    // How many of its blocks are dirty is not known.
    if is_tier(&start?.recognise()) && !options.give_up().dirty {
        let (volume, path) = (store.name.clone(), store.path.clone());
        return Err(EngineError::TierAsStore { volume, path });
    }
    Ok(())
}

/// Whether a device holds a flash tier, intact or not.
fn is_tier(found: &Found) -> bool {
    match found {
        Found::Tier(_) => true,
        Found::Unusable(error) => !matches!(error, LogError::Io(_)),
        Found::Blank | Found::Foreign => false,
    }
}

/// Refuses a flash device that is a store. One that begins as a tier is a tier, intact or not.
fn check_tier(tier: &mut OpenFlashDevice, options: &EngineOptions) -> Result<(), EngineError> {
    if is_tier(&tier.found) {
        return Ok(());
    }
    let path = tier.path.clone();
    let file = File::open(&path).map_err(|source| io_error("open", &path, source))?;
    let area = HeaderArea::of_file(file);
    let size = tier.target.as_ref().map_or(tier.bytes, |target| target.size());
    for at in area_offsets(size) {
        let bytes = area.read(at).map_err(|source| io_error("read", &path, source))?;
        let (layout, dirty) = match find_header(&bytes) {
            Ok(Some(header)) => (Some(header.layout.to_string()), header.dirty),
            // It may say anything.
            Err(error) if error.is_of_whole_copy() => (None, true),
            _ => continue,
        };
        let give_up = options.give_up();
        if !give_up.headers || dirty && !give_up.dirty {
            return Err(EngineError::StoreAsTier { path, layout, dirty });
        }
        tier.void.push(at);
    }
    Ok(())
}

impl OpenFlashDevice {
    /// Overwrites the given-up headers of the store that the device was: what is left of it must
    /// not be taken for a store.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn void_headers(&mut self) -> Result<(), EngineError> {
        let failed = |source| io_error("invalidate the header of", &self.path, source);
        if self.void.is_empty() {
            return Ok(());
        }
        let file = File::options().write(true).open(&self.path).map_err(failed)?;
        for at in std::mem::take(&mut self.void) {
            for copy in COPY_OFFSETS {
                file.write_all_at(&[0; COPY_BYTES], at + copy).map_err(failed)?;
            }
        }
        file.sync_data().map_err(failed)
    }
}
