//! Recognises the contents of a flash device, by its start and by samples of the rest.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_device::nbd::Export;
use forebay_effect::IoError;
use forebay_flash::LogError;
use forebay_flash::format::FormatError;
use forebay_flash::format::superblock::{SECOND_COPIES_AT, Superblock};

use rustix::fs::SeekFrom;

use crate::error::EngineError;
use crate::header_area::remote_error;
use crate::inspection::file_size;
use crate::store::io_error;

/// Bytes at the start of the device that are read: two copies of a superblock for every possible
/// page size.
const LOOKED_AT_BYTES: usize = 4 << 20;

/// After an error, the start is read in parts of this size: a page of the page cache.
const PART_BYTES: usize = 4096;
/// The start is given up when more parts than this cannot be read. (Each may take a failing disk
/// many seconds.)
const UNREADABLE_PARTS_MAX: usize = 8;

/// Behind a start of zeroes, this many evenly spaced places are read, and the beginnings of this
/// many parts of a file that were ever written.
const SAMPLES: u64 = 128;
/// The end of the device, which is read as a whole: partition tables and headers have copies there.
const END_BYTES: u64 = 1 << 20;

/// The contents of a flash device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing: it starts with zeroes, and no sample of the rest holds anything else.
    Blank,
    /// A flash tier.
    Tier(Box<Superblock>),
    /// A flash tier that cannot be used.
    Unusable(LogError),
    /// Other data.
    Foreign,
}

impl Found {
    /// The newest superblock of a usable tier.
    pub(crate) fn superblock(&self) -> Option<&Superblock> {
        match self {
            Found::Tier(superblock) => Some(superblock),
            Found::Blank | Found::Unusable(_) | Found::Foreign => None,
        }
    }
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
    Ok(DeviceStart::read(path)?.recognise())
}

/// The bytes at the start of a device.
pub(crate) struct DeviceStart {
    bytes: Vec<u8>,
    /// The parts that cannot be read; zeroes stand in for them.
    unreadable: Vec<Range<u64>>,
    /// The start is zeroes, and the rest holds other data.
    data_beyond: bool,
}

impl DeviceStart {
    /// Reads the start of the device at `path`.
    ///
    /// # Errors
    /// If it cannot be opened, or too many parts cannot be read.
    pub fn read(path: &Path) -> Result<DeviceStart, EngineError> {
        let file = File::open(path).map_err(|e| io_error("open", path, e))?;
        let start = DeviceStart::read_with(|bytes, at| file.read_at(bytes, at));
        let mut start = start.map_err(|e| io_error("read", path, e))?;
        if start.is_zeroes() {
            start.data_beyond = has_data_beyond(&file).map_err(|e| io_error("read", path, e))?;
        }
        Ok(start)
    }

    /// Reads the start of an export, which `path` names.
    ///
    /// # Errors
    /// If too many parts cannot be read.
    pub fn read_export(export: &Export, path: &Path) -> Result<DeviceStart, EngineError> {
        let start = DeviceStart::read_with(|bytes, at| {
            let length = export.size().saturating_sub(at).min(bytes.len() as u64);
            let length = length - length % u64::from(export.logical_block());
            let read = export.read_at(&mut bytes[..length as usize], at);
            read.map(|()| length as usize).map_err(|error| remote_error(export, error))
        });
        start.map_err(|error| io_error("read", path, error))
    }

    fn is_zeroes(&self) -> bool {
        is_zeroes(&self.bytes)
    }

    fn read_with(
        mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<DeviceStart> {
        let (mut bytes, mut unreadable) = (vec![0; LOOKED_AT_BYTES], Vec::new());
        let (mut done, mut step) = (0, LOOKED_AT_BYTES);
        while done < bytes.len() {
            let end = (done / step + 1) * step;
            match read_at(&mut bytes[done..end], done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if step > PART_BYTES => step = PART_BYTES,
                Err(e) if unreadable.len() == UNREADABLE_PARTS_MAX => return Err(e),
                Err(_) => {
                    bytes[done..end].fill(0);
                    unreadable.push(done as u64..end as u64);
                    done = end;
                }
            }
        }
        bytes.truncate(done);
        Ok(DeviceStart { bytes, unreadable, data_beyond: false })
    }

    /// The end of its contents; 0 if there are none.
    pub fn used_bytes(&self) -> usize {
        self.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
    }

    /// The first sector; zeroes stand in for what is not there.
    pub fn first_sector(&self) -> [u8; 512] {
        let mut sector = [0; 512];
        let length = self.bytes.len().min(512);
        sector[..length].copy_from_slice(&self.bytes[..length]);
        sector
    }

    fn is_readable(&self, bytes: Range<u64>) -> bool {
        self.unreadable.iter().all(|part| part.end <= bytes.start || bytes.end <= part.start)
    }

    /// The superblock at this place. One of which a page in use cannot be read is damaged, as in
    /// recovery.
    fn superblock_at(&self, at: u64) -> Result<Superblock, FormatError> {
        Superblock::decode(self.bytes.get(at as usize..).unwrap_or_default())
    }

    /// Recognises the contents. Without an intact superblock, nothing is concluded from bytes that
    /// cannot be read: the result is the error of the device.
    pub fn recognise(&self) -> Found {
        match self.find() {
            found @ Found::Tier(_) => found,
            found if self.unreadable.is_empty() => found,
            newer @ Found::Unusable(LogError::NewerFormat { .. }) => newer,
            _ => Found::Unusable(LogError::Io(IoError::Device)),
        }
    }

    /// The newest superblock at the start of a device.
    ///
    /// A format makes the first copy durable before it writes anything else. So an intact first copy
    /// identifies the tier and the place of its second copy. Any other data that look like a
    /// superblock belong to a former tier or to a client.
    fn find(&self) -> Found {
        if self.is_zeroes() {
            return if self.data_beyond { Found::Foreign } else { Found::Blank };
        }
        let newer = |found| {
            let supported = forebay_flash::format::VERSION;
            Found::Unusable(LogError::NewerFormat { found, supported })
        };
        let mut damaged = match self.superblock_at(0) {
            Ok(first) => {
                return match self.superblock_at(first.second_copy_at()) {
                    Err(FormatError::Version(found)) => newer(found),
                    Ok(second)
                        if second.uuid == first.uuid && second.generation > first.generation =>
                    {
                        Found::Tier(Box::new(second))
                    }
                    _ => Found::Tier(Box::new(first)),
                };
            }
            Err(FormatError::Version(found)) => return newer(found),
            Err(FormatError::Missing) => false,
            Err(_) => true,
        };
        // Without the first copy, its page size is not known. A format erases the second copies of
        // former tiers; where one of an earlier release did not, nothing says which of two is the
        // later tier.
        let (mut tiers, mut unreadable) = (Vec::new(), false);
        for place in SECOND_COPIES_AT {
            match self.superblock_at(place) {
                Ok(copy) if copy.second_copy_at() == place => tiers.push(copy),
                Err(FormatError::Version(found)) => return newer(found),
                // (A second copy is as long as the first.)
                _ if !self.is_readable(place..2 * place) => unreadable = true,
                Ok(_) | Err(FormatError::Missing) => {}
                Err(_) => damaged = true,
            }
        }
        match (tiers.pop(), tiers.is_empty() && !unreadable) {
            (Some(tier), true) => Found::Tier(Box::new(tier)),
            (None, _) if !damaged => Found::Foreign,
            _ => Found::Unusable(LogError::SuperblockDamaged),
        }
    }
}

fn is_zeroes(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Whether samples of a device behind its start hold anything but zeroes: somebody's data need not
/// begin at its first byte. A sample that cannot be read tells nothing.
fn has_data_beyond(file: &File) -> io::Result<bool> {
    let size = file_size(file)?;
    let first = LOOKED_AT_BYTES as u64;
    let Some(length) = size.checked_sub(first).filter(|&length| length > 0) else {
        return Ok(false);
    };
    let mut sample = vec![0; PART_BYTES];
    let mut has_data = |at: u64| {
        let read = file.read_at(&mut sample, at);
        read.is_ok_and(|read| !is_zeroes(&sample[..read]))
    };
    let page = PART_BYTES as u64;
    let spread = (0..SAMPLES).map(|n| (first + length / SAMPLES * n) / page * page);
    let end = (size.saturating_sub(END_BYTES).max(first)..size).step_by(PART_BYTES);
    if spread.chain(end).any(&mut has_data) {
        return Ok(true);
    }
    let mut at = first;
    for _ in 0..SAMPLES {
        // Where the system cannot say it, the samples above must do.
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
        if has_data(data) {
            return Ok(true);
        }
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(data)) else { break };
        at = hole;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::{BatchSequence, EpochStart, Geometry, SuperblockGeneration, TierId};

    /// The start of a device with these copies of superblocks: where, in pages of how many bytes, of which tier,
    /// generation and epoch.
    fn start(copies: &[(usize, u32, u8, u64, u64)]) -> Vec<u8> {
        let mut start = vec![0; LOOKED_AT_BYTES];
        let geometry = Geometry::for_device(1 << 30, 4096).expect("a usual device");
        for &(at, page_size, uuid, generation, epoch) in copies {
            let uuid = TierId::new([uuid; 16]);
            let new = Superblock::of_new_log(uuid, Vec::new(), &geometry);
            let generation = SuperblockGeneration(generation);
            let epochs = vec![EpochStart { first_batch: BatchSequence::FIRST, epoch }];
            let tier =
                Superblock { generation, epoch, epochs, page_size, superblock_pages: 16, ..new };
            tier.encode(&mut start[at..]);
        }
        start
    }

    /// What is found where each read that touches one of these bytes fails.
    fn recognise(start: &[u8], unreadable: &[usize]) -> Found {
        read(start, unreadable).expect("few parts are unreadable").recognise()
    }

    fn read(start: &[u8], unreadable: &[usize]) -> io::Result<DeviceStart> {
        DeviceStart::read_with(|bytes, at| {
            let from = at as usize;
            let end = (from + bytes.len()).min(start.len());
            if unreadable.iter().any(|byte| (from..end).contains(byte)) {
                return Err(io::Error::other("a sector cannot be read"));
            }
            // (A read may be short.)
            let n = (end - from).min(1 << 20);
            bytes[..n].copy_from_slice(&start[from..from + n]);
            Ok(n)
        })
    }

    /// The tier that is found: uuid, generation and epoch.
    fn found(start: &[u8]) -> (u8, u64, u64) {
        let Found::Tier(tier) = recognise(start, &[]) else { panic!("no tier") };
        (tier.uuid.bytes()[0], tier.generation.0, tier.epoch)
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
        assert_eq!(recognise(&two, &[]), Found::Unusable(LogError::SuperblockDamaged));
        assert_eq!(found(&start(&[former])), (7, 900, 5));
    }

    #[test]
    fn a_superblock_copy_that_cannot_be_read_counts_as_damaged() {
        let tier = |start: &[u8], unreadable: &[usize]| match recognise(start, unreadable) {
            Found::Tier(tier) => (tier.generation.0, tier.epoch),
            other => panic!("{other:?}"),
        };
        let both = start(&[(0, 4096, 1, 8, 2), (SECOND, 4096, 1, 9, 3)]);
        for (unreadable, expected) in [
            (&[0][..], (9, 3)),
            (&[SECOND], (8, 2)),
            // (Pages of a copy that are not in use do not matter.)
            (&[SECOND - 1, SECOND + 5000], (9, 3)),
            (&[0, SECOND + 5000], (9, 3)),
            (&[LOOKED_AT_BYTES - 1, 2 * SECOND], (9, 3)),
        ] {
            assert_eq!(tier(&both, unreadable), expected, "{unreadable:?}");
        }
    }

    #[test]
    fn nothing_is_concluded_from_what_cannot_be_read() {
        let failed = Found::Unusable(LogError::Io(IoError::Device));
        let both = start(&[(0, 4096, 1, 8, 2), (SECOND, 4096, 1, 9, 3)]);
        assert_eq!(recognise(&both, &[0, SECOND]), failed, "both copies");
        let mut torn = both.clone();
        torn[SECOND..][..SECOND].fill(0xA5);
        assert_eq!(recognise(&torn, &[100]), failed, "one copy, and the other is damaged");
        // The former tier's copy is intact, and that of the present tier may be.
        let former =
            start(&[(0, 4096, 1, 8, 2), (SECOND, 4096, 1, 9, 3), (OF_16_KIB, 16384, 7, 900, 5)]);
        assert_eq!(recognise(&former, &[0, SECOND]), failed);
        assert_eq!(recognise(&start(&[]), &[LOOKED_AT_BYTES - 1]), failed, "it may not be blank");
        assert_eq!(recognise(&[0; 8192], &[4096]), failed, "nor a short one");
        assert_eq!(recognise(&[0; 8192], &[]), Found::Blank);
        let parts: Vec<usize> = (0..=UNREADABLE_PARTS_MAX).map(|n| n * PART_BYTES).collect();
        assert!(read(&both, &parts).is_err(), "a device that is gone");
    }
}
