//! The flash device: opened, and recognised before anything is written to it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use forebay_config::Flash;
use forebay_device::file::{DirectIo, Notice, OpenOptions, Target};
use forebay_flash::format::FormatError;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{Geometry, LogError};

use crate::check::check_flash;
use crate::error::EngineError;
use crate::patience;
use crate::store::io_error;

/// Bytes at the start of the device that are looked at: two copies of a superblock under every
/// page size there is.
const LOOKED_AT_BYTES: usize = 4 << 20;

/// What a flash device holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing: it starts with zeroes.
    Blank,
    /// A flash tier.
    Tier(Box<Superblock>),
    /// A flash tier that cannot be used.
    Unusable(LogError),
    /// Something else.
    Foreign,
}

/// An open flash device.
#[derive(Debug)]
pub(crate) struct FlashTier {
    pub path: PathBuf,
    /// Bytes that may be used.
    pub bytes: u64,
    pub found: Found,
    pub target: Option<Target>,
    pub notices: Vec<Notice>,
    /// Where what it holds ends; 0 if that is nothing. Only the start of the device was looked at.
    used_bytes: usize,
    options: OpenOptions,
}

impl FlashTier {
    /// Opens the device. Writes nothing, but creates a file that is not there.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn open(flash: &Flash, direct: DirectIo) -> Result<FlashTier, EngineError> {
        let options = OpenOptions {
            path: flash.path.clone(),
            create: flash.size.map(|size| size.bytes()),
            allocate: true,
            read_only: false,
            direct,
        };
        let (target, notices) = patience::open(&options)?;
        let bytes = flash.size.map_or(target.size(), |size| size.bytes().min(target.size()));
        // Whole logical blocks are usable, of the size in the configuration as of the file's.
        let block = u64::from(target.capabilities().logical_block);
        let whole = |bytes: u64| bytes - bytes % block;
        if let Some(size) = flash.size.filter(|size| whole(size.bytes()) > target.size()) {
            return Err(EngineError::FlashTooSmall {
                path: flash.path.clone(),
                size: target.size(),
                needed: size.bytes(),
            });
        }
        let start = read_start(&flash.path)?;
        let found = recognise(&start);
        let used_bytes = start.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let path = flash.path.clone();
        Ok(FlashTier { path, bytes, found, target: Some(target), notices, used_bytes, options })
    }

    /// Whether this may be what a power cut left of the very first write of a tier of this
    /// geometry. What it is for certain, the headers of the stores say.
    pub fn may_be_torn_format(&self, geometry: &Geometry) -> bool {
        let copy_bytes = geometry.superblock_pages * geometry.page_size;
        let torn =
            matches!(self.found, Found::Foreign | Found::Unusable(LogError::SuperblockDamaged));
        torn && self.used_bytes <= copy_bytes as usize
    }

    /// Reads the whole tier and counts its dirty blocks.
    ///
    /// # Errors
    /// If it cannot be read, or somebody took it meanwhile.
    pub fn dirty_blocks(&mut self) -> Result<u64, EngineError> {
        // The check opens the device itself; ours is exclusive.
        self.target = None;
        let report = check_flash(&self.path)?;
        self.target = Some(patience::open(&self.options)?.0);
        Ok(report.dirty_blocks)
    }
}

/// How a flash tier places blocks, as the configuration has it.
pub fn layout_name(superblock: &Superblock) -> &'static str {
    forebay_flash::Layout::name(superblock.layout)
}

/// What the flash device at `path` holds; looks only.
///
/// # Errors
/// If it cannot be read.
pub fn inspect_flash(path: &Path) -> Result<Found, EngineError> {
    Ok(recognise(&read_start(path)?))
}

fn read_start(path: &Path) -> Result<Vec<u8>, EngineError> {
    let file = File::open(path).map_err(|e| io_error("open", path, e))?;
    let mut start = vec![0; LOOKED_AT_BYTES];
    let mut done = 0;
    while done < start.len() {
        match file.read_at(&mut start[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) => return Err(io_error("read", path, e)),
        }
    }
    start.truncate(done);
    Ok(start)
}

/// The newest superblock at the start of a device.
fn recognise(start: &[u8]) -> Found {
    if start.iter().all(|&b| b == 0) {
        return Found::Blank;
    }
    let mut newest: Option<Superblock> = None;
    let mut failure = None;
    // The second copy lies behind the first, whose length follows from the page size.
    for at in [0, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20] {
        let Some(bytes) = start.get(at..) else { continue };
        match Superblock::decode(bytes) {
            Ok(found) => {
                if newest.as_ref().is_none_or(|n| n.generation < found.generation) {
                    newest = Some(found);
                }
            }
            Err(FormatError::Missing) => {}
            Err(FormatError::Version(found)) => {
                failure = Some(LogError::NewerFormat {
                    found,
                    supported: forebay_flash::format::VERSION,
                });
            }
            Err(_) if failure.is_none() => failure = Some(LogError::SuperblockDamaged),
            Err(_) => {}
        }
    }
    match (newest, failure) {
        (Some(superblock), None | Some(LogError::SuperblockDamaged)) => {
            Found::Tier(Box::new(superblock))
        }
        (_, Some(error)) => Found::Unusable(error),
        (None, None) => Found::Foreign,
    }
}

/// The geometry that a superblock stands for, with the limits of `run`, and its block size: the
/// cache that runs is made for it.
pub(crate) fn stored_geometry(superblock: &Superblock, run: Geometry) -> Geometry {
    Geometry {
        page_size: superblock.page_size,
        region_pages: superblock.region_pages,
        regions: superblock.regions,
        slots: superblock.slots,
        superblock_pages: superblock.superblock_pages,
        extent_bytes: superblock.extent_bytes,
        ..run
    }
    .with_directories()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::EpochStart;

    /// A copy of a superblock, as large as its place is by default.
    fn copy(generation: u64, epoch: u64) -> Vec<u8> {
        let page_size = 4096;
        let epochs = vec![EpochStart { first_batch: 1, epoch }];
        let superblock =
            Superblock { generation, epoch, epochs, page_size, ..Superblock::default() };
        let mut bytes = vec![0; 64 << 10];
        superblock.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_newest_superblock_says_in_which_epoch_the_tier_is() {
        // A power cut came between the two copies of the first update of an epoch.
        for (first, second) in [((8, 2), (9, 3)), ((9, 3), (8, 2))] {
            let start = [copy(first.0, first.1), copy(second.0, second.1)].concat();
            let Found::Tier(found) = recognise(&start) else { panic!("no tier") };
            assert_eq!((found.generation, found.epoch), (9, 3));
        }
        let torn = [copy(8, 2), vec![0xA5; 64 << 10]].concat();
        let Found::Tier(found) = recognise(&torn) else { panic!("no tier") };
        assert_eq!(found.epoch, 2);
    }
}
