//! The log's key of a block, and its position on flash.

use core::fmt;
use forebay_block::{BlockIndex, Volume};

/// A block of a bound volume, packed: the volume's index in the flash tier's table of bound
/// volumes (16 bits) and the block's number within it (48 bits).
///
/// The order is volume first, then block.
///
/// ```
/// use forebay_block::Volume;
/// use forebay_flash::BlockKey;
/// let key = BlockKey::new(Volume(3), 77);
/// assert_eq!((key.volume(), key.block().0), (Volume(3), 77));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// One more than the largest block number.
    pub const BLOCKS_MAX: u64 = 1 << 48;

    /// Block number `block` of a volume.
    ///
    /// # Panics
    /// If `block` needs more than 48 bits (volumes are checked for size when they are bound), or
    /// the volume's number more than 16.
    pub const fn new(volume: Volume, block: u64) -> Self {
        assert!(volume.0 <= u16::MAX as u32, "a volume's number needs more than 16 bits");
        assert!(block < Self::BLOCKS_MAX, "a block number needs more than 48 bits");
        Self((volume.0 as u64) << 48 | block)
    }
    /// The volume.
    pub const fn volume(self) -> Volume {
        Volume((self.0 >> 48) as u32)
    }
    /// The block's number within the volume.
    pub const fn block(self) -> BlockIndex {
        BlockIndex(self.0 & (Self::BLOCKS_MAX - 1))
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} block {}", self.volume(), self.block().0)
    }
}

/// The place on the flash device where a record's payload starts, as a page number from the start
/// of the device. `Log::byte_offset` converts it to bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub u32);

impl Position {
    /// Not on flash.
    pub const NONE: Position = Position(u32::MAX);

    /// Whether this is a place on flash.
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// The number of a region on the flash device, from 0 on. A
/// [`RegionSequence`](crate::RegionSequence) numbers the uses of regions instead. It prints as the
/// bare number, also in debug output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct RegionIndex(pub u32);

impl RegionIndex {
    /// This number as an index into a list of all regions.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The regions of a device with this number of regions, by ascending number.
    pub fn all(regions: u32) -> impl Iterator<Item = RegionIndex> {
        (0..regions).map(RegionIndex)
    }
}

impl fmt::Debug for RegionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RegionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_it_was_made_of() {
        let last = u16::MAX.into();
        for (volume, block) in [(0, 0), (1, 1), (last, BlockKey::BLOCKS_MAX - 1), (7, 1 << 40)] {
            let key = BlockKey::new(Volume(volume), block);
            assert_eq!((key.volume(), key.block().0), (Volume(volume), block));
        }
    }

    #[test]
    #[should_panic(expected = "48 bits")]
    fn a_block_number_that_would_run_into_the_volume_is_refused() {
        let _ = BlockKey::new(Volume(0), 1 << 48);
    }

    #[test]
    fn a_region_prints_as_a_bare_number() {
        let regions: Vec<_> = RegionIndex::all(3).collect();
        assert_eq!(format!("{} {regions:?}", regions[2]), "2 [0, 1, 2]");
    }
}
