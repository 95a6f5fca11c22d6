//! The fingerprint of a backing store, by which a start notices that others have written to it
//! since Forebay left it.
//!
//! It does not cover every byte. It covers the first and the last MiB of a volume, where changes of a
//! partition table and most mounts of a file system write; the first 128 KiB of each partition, for
//! the same reason; 256 blocks of 4 KiB spread over the rest; and, where the store is a file, its size
//! and modification time. Writes that change none of these go unnoticed, such as writes to a block
//! device that bypass its file system.

use std::fs::Metadata;
use std::io::{
    self,
    ErrorKind::{InvalidInput, NotConnected},
};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use forebay_flash::{Fingerprint, SEAL_BYTES, Seal};
use xxhash_rust::xxh3::Xxh3;

use crate::header_area::HeaderArea;
use crate::partitions;

/// Bytes at each end of a volume that are read.
const END_BYTES: u64 = 1 << 20;
/// Bytes at the start of each partition that are read.
const PARTITION_BYTES: u64 = 128 << 10;
/// Number of blocks read in between, and their bytes.
const BLOCKS: u64 = 256;
const BLOCK_BYTES: u64 = 4096;
/// The offsets of the parts of a seal.
const TIMES_AT: usize = 16;
const SIZE_AT: usize = 24;

/// The contents of a volume as they are now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VolumeContents {
    /// Their fingerprint.
    pub fingerprint: Fingerprint,
    /// The fingerprint that earlier versions took, which did not look into partitions.
    former: Fingerprint,
}

impl VolumeContents {
    /// Reads the `size` bytes from `start` on. Unreadable pieces are part of the fingerprint.
    ///
    /// # Errors
    /// If nothing can be read, or the session with an NBD server ends, or that server refuses a read.
    pub fn read(area: &HeaderArea, start: u64, size: u64) -> io::Result<VolumeContents> {
        let mut hash = Xxh3::new();
        hash.update(&size.to_le_bytes());
        let mut reader = Reader { area, start, failure: None, any: false };
        let mut pieces = reader.read_all(&pieces(size))?;
        pieces.iter().for_each(|piece| hash.update(piece));
        let first = if pieces.is_empty() { Vec::new() } else { pieces.swap_remove(0) };
        let former = Fingerprint::of_hash(hash.digest128());
        let read_sector = |at: u64| {
            let mut sector = [0; 512];
            let within = at.checked_add(512).is_some_and(|end| end <= size);
            (within && area.read_exact(start + at, &mut sector).is_ok()).then_some(sector)
        };
        let starts = partitions::starts(&first, read_sector).into_iter().filter_map(|partition| {
            let begin = partition.max(END_BYTES);
            let end = partition.saturating_add(PARTITION_BYTES).min(size);
            (begin < end).then(|| (begin, end - begin))
        });
        let starts: Vec<_> = starts.collect();
        reader.read_all(&starts)?.iter().for_each(|piece| hash.update(piece));
        match (reader.any, reader.failure) {
            (false, Some(error)) => Err(error),
            _ => Ok(VolumeContents { fingerprint: Fingerprint::of_hash(hash.digest128()), former }),
        }
    }

    /// Whether they are as this note of them says.
    pub fn are_as(&self, noted: Fingerprint) -> bool {
        noted == self.fingerprint || noted == self.former
    }
}

/// Reads pieces of a volume.
struct Reader<'a> {
    area: &'a HeaderArea,
    start: u64,
    failure: Option<io::Error>,
    /// A piece could be read.
    any: bool,
}

impl Reader<'_> {
    /// Reads these pieces (first byte, length), several at a time if that is faster.
    fn read_all(&mut self, pieces: &[(u64, u64)]) -> io::Result<Vec<Vec<u8>>> {
        let (area, start, next) = (self.area, self.start, AtomicUsize::new(0));
        let next = || {
            let n = next.fetch_add(1, Ordering::Relaxed);
            Some((n, *pieces.get(n)?))
        };
        let read = || {
            let mut results = Vec::new();
            while let Some((n, (at, length))) = next() {
                let mut piece = vec![0; length as usize];
                let result = area.read_exact(start + at, &mut piece);
                results.push((n, piece, result));
            }
            results
        };
        let mut results = std::thread::scope(|scope| {
            let others = 1..area.reads_at_once().min(pieces.len());
            let threads = others.filter_map(|_| Builder::new().spawn_scoped(scope, read).ok());
            let threads: Vec<_> = threads.collect();
            let mut results = read();
            for thread in threads {
                results.extend(thread.join().expect("reading does not panic"));
            }
            results
        });
        results.sort_by_key(|&(n, ..)| n);
        let pieces = results.into_iter().map(|(_, piece, result)| self.take(piece, result));
        pieces.collect()
    }

    /// Takes the outcome of reading a piece.
    fn take(&mut self, mut piece: Vec<u8>, result: io::Result<()>) -> io::Result<Vec<u8>> {
        match result {
            Ok(()) => self.any = true,
            // No sector is unreadable. If this counted as one, the piece would always look the same.
            Err(error) if matches!(error.kind(), InvalidInput | NotConnected) => return Err(error),
            Err(error) => {
                piece.fill(0xBD);
                self.failure = Some(error);
            }
        }
        Ok(piece)
    }
}

/// How Forebay left a store. The flash tier records this as a seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreNote {
    /// Bytes of the volume.
    pub size: u64,
    /// The fingerprint of these bytes.
    pub fingerprint: Fingerprint,
    /// The [`times`] of the store.
    pub times: u64,
}

impl StoreNote {
    /// Whether the other note is of the same contents.
    pub fn has_contents_of(&self, other: &StoreNote) -> bool {
        (self.fingerprint, self.size) == (other.fingerprint, other.size)
    }

    /// As a seal.
    pub fn seal(&self) -> Seal {
        let mut seal = [0; SEAL_BYTES];
        seal[..TIMES_AT].copy_from_slice(self.fingerprint.bytes());
        seal[TIMES_AT..SIZE_AT].copy_from_slice(&self.times.to_le_bytes());
        seal[SIZE_AT..].copy_from_slice(&self.size.to_le_bytes());
        seal
    }

    /// The contents of a seal; `None` for zeroes.
    pub fn unseal(seal: &Seal) -> Option<StoreNote> {
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&seal[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&seal[..TIMES_AT]);
        let fingerprint = Fingerprint::from_bytes(fingerprint)?;
        Some(StoreNote { size: number(SIZE_AT), fingerprint, times: number(TIMES_AT) })
    }
}

/// A number for the times of a file; 0 if it has no meaningful times.
pub(crate) fn times(metadata: &Metadata) -> u64 {
    if !metadata.is_file() {
        return 0;
    }
    let mut hash = Xxh3::new();
    for number in [metadata.size() as i64, metadata.mtime(), metadata.mtime_nsec()] {
        hash.update(&number.to_le_bytes());
    }
    hash.digest().max(1)
}

/// First byte and length of each piece of a volume that is read, in order.
fn pieces(size: u64) -> Vec<(u64, u64)> {
    if size <= 2 * END_BYTES + BLOCKS * BLOCK_BYTES {
        return (0..size)
            .step_by(END_BYTES as usize)
            .map(|at| (at, END_BYTES.min(size - at)))
            .collect();
    }
    let stride = (size - 2 * END_BYTES) / BLOCKS / 512 * 512;
    let strewn = (0..BLOCKS).map(|n| {
        // Anywhere in its share of the middle, but always at the same place for this size.
        let mix =
            (size ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let within = (mix >> 16) % (stride - BLOCK_BYTES + 1);
        (END_BYTES + n * stride + within / 512 * 512, BLOCK_BYTES)
    });
    let first = std::iter::once((0, END_BYTES));
    first.chain(strewn).chain([(size - END_BYTES, END_BYTES)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn pieces_lie_within_the_volume_in_order_and_cover_small_ones() {
        for size in
            [512, 4096, 1 << 20, (1 << 20) + 512, 3 << 20, (3 << 20) + 512, 1 << 30, 5 << 40]
        {
            let pieces = pieces(size);
            let mut end = 0;
            for &(at, length) in &pieces {
                assert!(
                    at >= end && at % 512 == 0 && length > 0,
                    "{size}: {at}+{length} after {end}"
                );
                end = at + length;
            }
            assert_eq!(end, size);
            let looked_at: u64 = pieces.iter().map(|p| p.1).sum();
            assert_eq!(looked_at, size.min(3 << 20));
        }
    }

    #[test]
    fn a_change_of_either_end_shows_and_one_where_nobody_looks_does_not() {
        let size: u64 = 64 << 20;
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(size + 4096).unwrap();
        file.flush().unwrap();
        let area = HeaderArea::of_file(file.try_clone().unwrap());
        let take = || VolumeContents::read(&area, 4096, size).unwrap().fingerprint;
        let before = take();
        for (at, shows) in [(4096, true), (4096 + size - 1, true), (0, false)] {
            file.write_all_at(&[1], at).unwrap();
            assert_eq!(take() != before, shows, "byte {at}");
            file.write_all_at(&[0], at).unwrap();
            assert_eq!(take(), before);
        }
        let unseen =
            (1 << 20..).find(|at| pieces(size).iter().all(|p| !(p.0..p.0 + p.1).contains(at)));
        file.write_all_at(&[1], 4096 + unseen.unwrap()).unwrap();
        assert_eq!(take(), before);
    }

    #[test]
    fn a_change_at_the_start_of_a_partition_shows() {
        let size: u64 = 64 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        // One partition, of type 0x83, at 1 MiB.
        file.write_all_at(&[0x83], 446 + 4).unwrap();
        file.write_all_at(&2048u32.to_le_bytes(), 446 + 8).unwrap();
        file.write_all_at(&[0x55, 0xAA], 510).unwrap();
        let area = HeaderArea::of_file(file.try_clone().unwrap());
        let read = || VolumeContents::read(&area, 0, size).unwrap();
        let before = read();
        assert!(before.are_as(before.fingerprint) && before.are_as(before.former));
        assert_ne!(before.fingerprint, before.former);
        // The superblock of ext4.
        file.write_all_at(&[1], (1 << 20) + 1024).unwrap();
        assert!(!read().are_as(before.fingerprint), "a mount does not show");
        assert!(read().are_as(before.former), "an earlier version would have seen it");
    }

    #[test]
    fn a_seal_gives_back_what_it_was_given() {
        let left = StoreNote { size: 5, fingerprint: Fingerprint::of_hash(7), times: 9 };
        assert_eq!(StoreNote::unseal(&left.seal()), Some(left));
        assert_eq!(StoreNote::unseal(&[0; SEAL_BYTES]), None);
    }

    #[test]
    fn the_time_of_a_file_counts_and_that_of_a_directory_does_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = times(&file.as_file().metadata().unwrap());
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        file.as_file().set_modified(later).unwrap();
        assert_ne!(times(&file.as_file().metadata().unwrap()), before);
        assert_eq!(times(&std::fs::metadata("/").unwrap()), 0);
    }
}
