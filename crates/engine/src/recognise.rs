//! What is at the start of a flash device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_flash::format::FormatError;
use forebay_flash::format::batch::entries_max;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{Geometry, LogError};

use crate::error::EngineError;
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

pub(crate) fn read_start(path: &Path) -> Result<Vec<u8>, EngineError> {
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
pub(crate) fn recognise(start: &[u8]) -> Found {
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
    let mut stored = Geometry {
        page_size: superblock.page_size,
        region_pages: superblock.region_pages,
        regions: superblock.regions,
        slots: superblock.slots,
        superblock_pages: superblock.superblock_pages,
        extent_bytes: superblock.extent_bytes,
        batch_entries_max: run.batch_entries_max.min(entries_max(superblock.page_size)),
        ..run
    }
    .with_directories();
    // (A batch lies in one region of the log.)
    let most = if stored.slots == 0 { stored.usable_pages().saturating_sub(1) } else { u32::MAX };
    stored.batch_pages_max = stored.batch_pages_max.max(1 + stored.block_pages()).min(most);
    stored
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
