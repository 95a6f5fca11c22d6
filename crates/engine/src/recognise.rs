//! Recognises the contents at the start of a flash device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_flash::LogError;
use forebay_flash::format::FormatError;
use forebay_flash::format::superblock::{SECOND_COPIES_AT, Superblock};

use crate::error::EngineError;
use crate::store::io_error;

/// Bytes at the start of the device that are read: two copies of a superblock for every possible
/// page size.
const LOOKED_AT_BYTES: usize = 4 << 20;

/// The contents of a flash device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing: it starts with zeroes.
    Blank,
    /// A flash tier.
    Tier(Box<Superblock>),
    /// A flash tier that cannot be used.
    Unusable(LogError),
    /// Other data.
    Foreign,
}

/// The configuration's name for the layout of a flash tier.
pub fn layout_name(superblock: &Superblock) -> &'static str {
    forebay_flash::Layout::name(superblock.layout)
}

/// Recognises the contents of the flash device at `path`; only reads.
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
///
/// A format makes the first copy durable before it writes anything else. So an intact first copy
/// identifies the tier and the place of its second copy. Any other data that look like a superblock
/// belong to a former tier or to a client.
pub(crate) fn recognise(start: &[u8]) -> Found {
    if start.iter().all(|&b| b == 0) {
        return Found::Blank;
    }
    let at = |at: u64| Superblock::decode(start.get(at as usize..).unwrap_or_default());
    let newer = |found| {
        let supported = forebay_flash::format::VERSION;
        Found::Unusable(LogError::NewerFormat { found, supported })
    };
    let mut damaged = match at(0) {
        Ok(first) => {
            return match at(first.second_copy_at()) {
                Err(FormatError::Version(found)) => newer(found),
                Ok(second) if second.uuid == first.uuid && second.generation > first.generation => {
                    Found::Tier(Box::new(second))
                }
                _ => Found::Tier(Box::new(first)),
            };
        }
        Err(FormatError::Version(found)) => return newer(found),
        Err(FormatError::Missing) => false,
        Err(_) => true,
    };
    // Without the first copy, its page size is not known. A format erases the second copies of former tiers; where one of
    // an earlier release did not, nothing says which of two is the later tier.
    let mut tiers = Vec::new();
    for place in SECOND_COPIES_AT {
        match at(place) {
            Ok(copy) if copy.second_copy_at() == place => tiers.push(copy),
            Ok(_) | Err(FormatError::Missing) => {}
            Err(FormatError::Version(found)) => return newer(found),
            Err(_) => damaged = true,
        }
    }
    match (tiers.pop(), tiers.is_empty()) {
        (Some(tier), true) => Found::Tier(Box::new(tier)),
        (None, _) if !damaged => Found::Foreign,
        _ => Found::Unusable(LogError::SuperblockDamaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::EpochStart;

    /// The start of a device with these copies of superblocks: where, in pages of how many bytes, of which tier,
    /// generation and epoch.
    fn start(copies: &[(usize, u32, u8, u64, u64)]) -> Vec<u8> {
        let mut start = vec![0; LOOKED_AT_BYTES];
        for &(at, page_size, uuid, generation, epoch) in copies {
            let epochs = vec![EpochStart { first_batch: 1, epoch }];
            let tier = Superblock { generation, epoch, epochs, page_size, ..Superblock::default() };
            let tier = Superblock { superblock_pages: 16, uuid: [uuid; 16], ..tier };
            tier.encode(&mut start[at..]);
        }
        start
    }

    /// The tier that is found: uuid, generation and epoch.
    fn found(start: &[u8]) -> (u8, u64, u64) {
        let Found::Tier(tier) = recognise(start) else { panic!("no tier") };
        (tier.uuid[0], tier.generation, tier.epoch)
    }

    const SECOND: usize = 64 << 10;
    const OF_16_KIB: usize = 256 << 10;

    #[test]
    fn the_newest_superblock_says_in_which_epoch_the_tier_is() {
        // A power cut came between the two copies of the first update of an epoch.
        for (first, second) in [((8, 2), (9, 3)), ((9, 3), (8, 2))] {
            let copies = [(0, 4096, 1, first.0, first.1), (SECOND, 4096, 1, second.0, second.1)];
            assert_eq!(found(&start(&copies)), (1, 9, 3));
        }
        let mut torn = start(&[(0, 4096, 1, 8, 2)]);
        torn[SECOND..][..SECOND].fill(0xA5);
        assert_eq!(found(&torn), (1, 8, 2));
    }

    #[test]
    fn the_first_copy_says_which_tier_it_is() {
        // Formatted over a tier with larger pages by a release that left its second copy there, or over one with the same
        // pages until the power went.
        let former = (OF_16_KIB, 16384, 7, 900, 5);
        let both = start(&[(0, 4096, 1, 8, 2), (SECOND, 4096, 1, 9, 3), former]);
        assert_eq!(found(&both), (1, 9, 3));
        assert_eq!(found(&start(&[(0, 4096, 1, 1, 1), (SECOND, 4096, 7, 900, 5)])), (1, 1, 1));
        // A client's data lies where a second copy could.
        let data = (128 << 10, 4096, 7, 900, 5);
        assert_eq!(found(&start(&[(SECOND, 4096, 1, 9, 3), data])), (1, 9, 3));
        // Without the first copy nobody knows which of two it is.
        let two = start(&[(SECOND, 4096, 1, 9, 3), former]);
        assert_eq!(recognise(&two), Found::Unusable(LogError::SuperblockDamaged));
        assert_eq!(found(&start(&[former])), (7, 900, 5));
    }
}
