//! The contents of writes: data that identifies itself.
//!
//! The data of every 512-byte sector is derived from the run's seed, the sector's volume, its
//! number and the number of the write that wrote it (its *version*). A reader can therefore check
//! that it has the right sector, that the sector is complete, and which write it came from. The
//! data does not compress, and no two sectors are equal.

/// Size of a sector, the unit that is checked, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// The version of sectors that are all zero.
pub const VERSION_ZERO: u32 = 0;

/// Generates and checks the data of writes.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    seed: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Content {
    /// Creates a generator and checker for the data that belongs to `seed`.
    pub fn new(seed: u64) -> Content {
        Content { seed: mix(seed.wrapping_add(GOLDEN)) }
    }

    /// Fills `bytes`, which begin at byte `offset` of `volume`, with the data of write `version`
    /// (above 0).
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
    /// [`fill`](Content::fill) does not produce such data for this sector.
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

    /// Whether every 8-byte word of a whole sector is from a version that is `possible`. Words that
    /// are zero are from `VERSION_ZERO`.
    pub fn is_torn(
        &self,
        volume: u32,
        sector: u64,
        possible: impl Fn(u32) -> bool,
        bytes: &[u8],
    ) -> bool {
        let key = self.key(volume, sector);
        bytes.chunks_exact(8).zip(0u64..).all(|(bytes, i)| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            // The version can be computed from a word, so there is no need to try all versions.
            let version = u32::try_from(first_word(word, i).wrapping_sub(key)).ok();
            version.is_some_and(|version| version != VERSION_ZERO && possible(version))
                || (word == 0 && possible(VERSION_ZERO))
        })
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
            word.copy_from_slice(&later_word(base, i).to_le_bytes());
        }
        bytes[..8].copy_from_slice(&first.to_le_bytes());
    }

    fn key(&self, volume: u32, sector: u64) -> u64 {
        mix(self.seed ^ mix(sector.wrapping_mul(GOLDEN) ^ (u64::from(volume) << 48)))
    }
}

/// Word `i` of a sector, except the first; `base` is [`mix`] of the first word.
#[inline]
fn later_word(base: u64, i: u64) -> u64 {
    let value = base.wrapping_add(GOLDEN.wrapping_mul(i));
    value ^ (value >> 31)
}

/// The first word of the sector whose word `i` is `word`.
fn first_word(word: u64, i: u64) -> u64 {
    match i {
        0 => word,
        _ => unmix(unshift(word, 31).wrapping_sub(GOLDEN.wrapping_mul(i))),
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The inverse of [`mix`]: its steps in reverse, with the inverses of its factors modulo 2^64.
fn unmix(z: u64) -> u64 {
    let z = unshift(z, 31).wrapping_mul(0x3196_42B2_D24D_8EC3);
    let z = unshift(z, 27).wrapping_mul(0x96DE_1B17_3F11_9089);
    unshift(z, 30)
}

/// The inverse of `z ^ (z >> by)`, for shifts of at least a third of the bits.
fn unshift(z: u64, by: u32) -> u64 {
    z ^ (z >> by) ^ (z >> (2 * by))
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

    #[test]
    fn every_word_of_a_torn_sector_is_of_a_possible_version() {
        let content = Content::new(7);
        let sector = |version| content.sector(3, 16, version);
        let torn =
            |possible: &dyn Fn(u32) -> bool, bytes: &[u8]| content.is_torn(3, 16, possible, bytes);
        for at in (0..=512).step_by(8) {
            let bytes = [&sector(5)[..at], &sector(u32::MAX)[at..]].concat();
            assert!(torn(&|version| [5, u32::MAX].contains(&version), &bytes), "{at}");
            assert_eq!(torn(&|version| version == 5, &bytes), at == 512, "{at}");
            let zeroed = [&sector(5)[..at], &[0; 512][at..]].concat();
            assert!(torn(&|version| [VERSION_ZERO, 5].contains(&version), &zeroed), "{at}");
            assert_eq!(torn(&|version| version == 5, &zeroed), at == 512, "{at}");
            let mut other = bytes;
            other[at.min(511)] ^= 1;
            assert!(!torn(&|_| true, &other), "{at}");
            assert!(!content.is_torn(3, 17, |_| true, &zeroed) || at == 0, "{at}");
        }
        // No write has the data that `fill` produces for version 0.
        assert!(!torn(&|_| true, &sector(VERSION_ZERO)));
    }

    #[test]
    fn mixing_can_be_undone() {
        for z in [0, 1, GOLDEN, 1 << 63, u64::MAX, 0x0123_4567_89AB_CDEF] {
            assert_eq!((unmix(mix(z)), mix(unmix(z))), (z, z));
        }
    }
}
