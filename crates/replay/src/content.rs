//! The contents of writes: data that identify themselves.
//!
//! Every 512-byte sector is derived from the run's seed, its volume, its number and the number of
//! the write that wrote it (its *version*). So a reader can check that it is the right sector, that
//! it is complete, and which write it is from. It does not compress, and no two sectors are equal.

use std::ops::RangeInclusive;

/// Bytes that are checked together.
pub const SECTOR_BYTES: u64 = 512;

/// The version of sectors that are all zero.
pub const VERSION_ZERO: u32 = 0;

/// A generator and checker of data.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    seed: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Content {
    /// The data that belongs to `seed`.
    pub fn new(seed: u64) -> Content {
        Content { seed: mix(seed.wrapping_add(GOLDEN)) }
    }

    /// Fills `bytes`, which begin at byte `offset` of `volume`, as the write called `version`
    /// (above 0) leaves them.
    pub fn fill(&self, volume: u32, offset: u64, version: u32, bytes: &mut [u8]) {
        let (mut sector, start) = (offset / SECTOR_BYTES, (offset % SECTOR_BYTES) as usize);
        let (head, rest) = match start {
            0 => (&mut [][..], bytes),
            _ => bytes.split_at_mut(bytes.len().min(SECTOR_BYTES as usize - start)),
        };
        if !head.is_empty() {
            let whole = self.sector(volume, sector, version);
            head.copy_from_slice(&whole[start..start + head.len()]);
            sector += 1;
        }
        let mut sectors = rest.chunks_exact_mut(SECTOR_BYTES as usize);
        for bytes in &mut sectors {
            self.fill_sector(volume, sector, version, bytes);
            sector += 1;
        }
        let tail = sectors.into_remainder();
        if !tail.is_empty() {
            let whole = self.sector(volume, sector, version);
            tail.copy_from_slice(&whole[..tail.len()]);
        }
    }

    /// The version of the data in a whole sector: `VERSION_ZERO` if it is all zero, `None` if
    /// it is something else than what [`fill`](Content::fill) makes for this place.
    ///
    /// # Panics
    /// If `bytes` is not one sector.
    pub fn version(&self, volume: u32, sector: u64, bytes: &[u8]) -> Option<u32> {
        assert_eq!(bytes.len() as u64, SECTOR_BYTES);
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[..8]);
        let version = u64::from_le_bytes(first).wrapping_sub(self.key(volume, sector));
        let version = u32::try_from(version).ok();
        if let Some(version) = version.filter(|&version| version != VERSION_ZERO)
            && self.sector(volume, sector, version)[..] == *bytes
        {
            return Some(version);
        }
        bytes.iter().all(|&b| b == 0).then_some(VERSION_ZERO)
    }

    /// Whether a whole sector is mixed, in words of 8 bytes, from some of these versions.
    pub fn is_torn(
        &self,
        volume: u32,
        sector: u64,
        versions: RangeInclusive<u32>,
        bytes: &[u8],
    ) -> bool {
        let mut left: Vec<(usize, &[u8])> = bytes.chunks_exact(8).enumerate().collect();
        for version in versions {
            let whole = self.sector(volume, sector, version);
            left.retain(|&(word, bytes)| whole[word * 8..][..8] != *bytes);
        }
        left.is_empty()
    }

    fn sector(&self, volume: u32, sector: u64, version: u32) -> [u8; SECTOR_BYTES as usize] {
        let mut bytes = [0; SECTOR_BYTES as usize];
        self.fill_sector(volume, sector, version, &mut bytes);
        bytes
    }

    #[inline]
    fn fill_sector(&self, volume: u32, sector: u64, version: u32, bytes: &mut [u8]) {
        let first = self.key(volume, sector).wrapping_add(version.into());
        let base = mix(first);
        for (word, i) in bytes.chunks_exact_mut(8).zip(0u64..) {
            let value = base.wrapping_add(GOLDEN.wrapping_mul(i));
            word.copy_from_slice(&(value ^ (value >> 31)).to_le_bytes());
        }
        bytes[..8].copy_from_slice(&first.to_le_bytes());
    }

    fn key(&self, volume: u32, sector: u64) -> u64 {
        mix(self.seed ^ mix(sector.wrapping_mul(GOLDEN) ^ (u64::from(volume) << 48)))
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_tells_its_version_and_only_in_its_own_place() {
        let content = Content::new(7);
        let mut bytes = vec![0; 4096];
        content.fill(3, 8192, 41, &mut bytes);
        for (sector, data) in (16..).zip(bytes.chunks(512)) {
            assert_eq!(content.version(3, sector, data), Some(41));
            assert_eq!(content.version(3, sector + 1, data), None);
            assert_eq!(content.version(2, sector, data), None);
            assert_eq!(Content::new(8).version(3, sector, data), None);
        }
        let mut torn = bytes.clone();
        torn[511] ^= 1;
        assert_eq!(content.version(3, 16, &torn[..512]), None);
        assert_eq!(content.version(3, 16, &[0; 512]), Some(VERSION_ZERO));
        assert_eq!(content.version(3, 16, &[1; 512]), None);
    }

    #[test]
    fn a_piece_is_filled_as_if_it_were_cut_out_of_the_whole() {
        let content = Content::new(1);
        let mut whole = vec![0; 4096];
        content.fill(0, 0, 9, &mut whole);
        for (offset, length) in [(0, 1), (511, 2), (100, 300), (512, 512), (700, 2000), (4095, 1)] {
            let mut piece = vec![0; length];
            content.fill(0, offset as u64, 9, &mut piece);
            assert_eq!(piece, whole[offset..offset + length], "{offset}+{length}");
        }
    }
}
