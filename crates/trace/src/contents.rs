//! Identifies the contents of blocks by the hashes in a trace.

use forebay_block::{BlockSize, Op};
use twox_hash::XxHash3_128;

use crate::{HashInfo, Record};

/// Identifies the contents of the blocks that requests touch: each content has a number, and equal
/// contents in one trace have equal numbers.
///
/// The number is the hash itself if the hash is 16 bytes long and covers a whole block. Otherwise,
/// it is the XXH3-128 hash of the block's hashes.
#[derive(Clone, Debug)]
pub struct BlockContents {
    info: HashInfo,
    block_size: BlockSize,
    zeroes: u128,
}

impl BlockContents {
    /// Creates an instance for a trace with these hashes. Returns `None` if the block size is not a
    /// multiple of the hashed unit, or if the unit or the digest has 0 bytes.
    pub fn new(info: &HashInfo, block_size: BlockSize) -> Option<BlockContents> {
        let unit = u64::from(info.unit_bytes);
        if unit == 0 || info.digest_bytes == 0 || !block_size.bytes().is_multiple_of(unit) {
            return None;
        }
        let mut contents = BlockContents { info: info.clone(), block_size, zeroes: 0 };
        if let Some(digest) = hash_of_zeroes(info) {
            contents.zeroes = contents.number(&digest.repeat(contents.units()));
        }
        Some(contents)
    }

    /// Size of the blocks whose contents this identifies.
    pub(crate) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Number of hashes per block.
    fn units(&self) -> usize {
        (self.block_size.bytes() / u64::from(self.info.unit_bytes)) as usize
    }

    /// Replaces `contents` with the contents of the blocks that a request touches, one entry per
    /// block, in order. The entry is `None` if the request covers only part of the block, or if no
    /// hashes in the trace cover exactly this block. Write-zeroes leave zeroes; trims and flushes
    /// have no entries.
    pub fn fill(&self, record: &Record<'_>, contents: &mut Vec<Option<u128>>) {
        contents.clear();
        let request = &record.request;
        if matches!(request.op, Op::Trim | Op::Flush) {
            return;
        }
        let (size, unit) = (self.block_size.bytes(), u64::from(self.info.unit_bytes));
        let (first, count) = request.blocks(self.block_size);
        let (offset, end) = (request.offset, request.offset + request.length);
        let digest = self.info.digest_bytes as usize;
        contents.extend((first.0..first.0 + count).map(|block| {
            let (start, stop) = (block * size, block * size + size);
            if start < offset || stop > end {
                return None;
            }
            if request.op == Op::WriteZeroes {
                return Some(self.zeroes);
            }
            // Hashing starts at the first byte of the request, whatever its alignment.
            if !(start - offset).is_multiple_of(unit) {
                return None;
            }
            let from = ((start - offset) / unit) as usize * digest;
            let hashes = record.hashes.get(from..from + self.units() * digest)?;
            Some(self.number(hashes))
        }));
    }

    fn number(&self, hashes: &[u8]) -> u128 {
        match hashes.try_into() {
            Ok(whole) if self.units() == 1 => u128::from_be_bytes(whole),
            _ => XxHash3_128::oneshot(hashes),
        }
    }
}

/// The hash of a unit of zeroes; `None` if it is not known for this algorithm and unit.
fn hash_of_zeroes(info: &HashInfo) -> Option<Vec<u8>> {
    let md5: u128 = match (&info.algorithm[..], info.unit_bytes) {
        ("xxh3-128", unit) => XxHash3_128::oneshot(&vec![0; unit as usize]),
        ("md5", 512) => 0xbf61_9eac_0cdf_3f68_d496_ea93_4413_7e8b,
        ("md5", 4096) => 0x620f_0b67_a91f_7f74_151b_c5be_745b_7110,
        _ => return None,
    };
    Some(md5.to_be_bytes().to_vec()).filter(|digest| digest.len() == info.digest_bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Nanos, Request, Volume};

    fn info(algorithm: &str, unit_bytes: u32) -> HashInfo {
        HashInfo { algorithm: algorithm.to_owned(), unit_bytes, digest_bytes: 16 }
    }

    fn contents(info: &HashInfo, op: Op, range: (u64, u64), hashes: &[u8]) -> Vec<Option<u128>> {
        let (offset, length) = range;
        let (time, volume, flags) = (Nanos(0), Volume(0), Flags::NONE);
        let request = Request { time, volume, op, flags, offset, length };
        let mut contents = Vec::new();
        let record = Record { hashes, ..request.into() };
        BlockContents::new(info, BlockSize::KIB_4).unwrap().fill(&record, &mut contents);
        contents
    }

    #[test]
    fn a_block_has_the_hash_of_its_unit() {
        let hashes = [5u128.to_be_bytes(), 6u128.to_be_bytes()].concat();
        let info = info("xxh3-128", 4096);
        assert_eq!(contents(&info, Op::Read, (8192, 8192), &hashes), [Some(5), Some(6)]);
        assert_eq!(contents(&info, Op::Read, (8192, 8192), &hashes[..16]), [Some(5), None]);
        assert_eq!(contents(&info, Op::Flush, (0, 0), &[]), []);
    }

    #[test]
    fn blocks_that_are_touched_in_part_are_unknown_and_the_whole_ones_between_are_not() {
        let hashes: Vec<u8> = (0..17u128).flat_map(|n| n.to_be_bytes()).collect();
        let info = info("md5", 512);
        let found = contents(&info, Op::Write, (3584, 17 * 512), &hashes);
        let whole = |from: usize| Some(XxHash3_128::oneshot(&hashes[from * 16..(from + 8) * 16]));
        assert_eq!(found, [None, whole(1), whole(9)]);
        // Units that are not aligned with blocks.
        assert_eq!(contents(&info, Op::Write, (4000, 8192), &hashes), [None, None, None]);
    }

    #[test]
    fn what_write_zeroes_leave_equals_zeroes_that_are_read() {
        let zeroes = XxHash3_128::oneshot(&[0; 4096]).to_be_bytes();
        for (info, hashes) in [
            (info("xxh3-128", 4096), zeroes.to_vec()),
            (
                info("md5", 512),
                0xbf61_9eac_0cdf_3f68_d496_ea93_4413_7e8b_u128.to_be_bytes().repeat(8),
            ),
        ] {
            let written = contents(&info, Op::WriteZeroes, (0, 4096), &[]);
            assert_eq!(written, contents(&info, Op::Read, (4096, 4096), &hashes));
        }
    }

    #[test]
    fn a_hash_of_more_than_a_block_says_nothing_of_blocks() {
        assert!(BlockContents::new(&info("md5", 8192), BlockSize::KIB_4).is_none());
        assert!(BlockContents::new(&info("md5", 4096), BlockSize::KIB_4).is_some());
    }
}
