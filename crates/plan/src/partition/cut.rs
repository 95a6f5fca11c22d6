//! How one tier is cut into units, so that its size and the floors of volumes hold to the byte.
//!
//! What a volume's floor has beyond whole units is the volume's *offset*: its share is the offset and
//! whole units. What the size has beyond all offsets and whole units is the *rest*: one volume can
//! have it besides.

use forebay_block::BlockSize;

/// One tier.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Cut {
    /// Units that there are.
    pub units: u64,
    /// What they leave over, in bytes; 0 where no volume would hold a block more with it.
    pub rest: u64,
    /// In bytes, by volume.
    pub offsets: Vec<u64>,
    /// Units that a volume has at least, by volume.
    pub floors: Vec<u64>,
}

impl Cut {
    /// A tier of `size` bytes, of which each volume gets its floor, in bytes, at least.
    pub fn new(size: u64, unit: u64, block_size: BlockSize, floors: &[u64]) -> Self {
        if floors.iter().copied().fold(0, u64::saturating_add) > size {
            // Rounded up, the floors are more than there are units, too: a search finds that out.
            return Self {
                units: size / unit,
                rest: 0,
                offsets: vec![0; floors.len()],
                floors: floors.iter().map(|floor| floor.div_ceil(unit)).collect(),
            };
        }
        let offsets: Vec<u64> = floors.iter().map(|floor| floor % unit).collect();
        let left = size - offsets.iter().sum::<u64>();
        let (rest, block) = (left % unit, block_size.bytes());
        let gains = offsets.iter().any(|offset| offset % block + rest >= block);
        Self {
            units: left / unit,
            rest: if gains { rest } else { 0 },
            offsets,
            floors: floors.iter().map(|floor| floor / unit).collect(),
        }
    }

    /// Units that hold `bytes` of a volume, with its offset.
    pub fn holding(&self, volume: usize, bytes: u64, unit: u64) -> u64 {
        bytes.saturating_sub(self.offsets[volume]).div_ceil(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(size: u64, unit: u64, floors: &[u64]) -> Cut {
        Cut::new(size, unit, BlockSize::KIB_4, floors)
    }

    #[test]
    fn a_rest_that_is_no_block_to_anybody_is_none() {
        assert_eq!((cut(20_480, 8192, &[0, 0]).units, cut(20_480, 8192, &[0, 0]).rest), (2, 4096));
        assert_eq!(cut(20_000, 8192, &[0, 0]).rest, 0);
        // With the offset of the second volume it makes a block.
        assert_eq!(cut(20_000, 8192, &[0, 3616]).rest, 0);
        assert_eq!(cut(20_000, 8192, &[3000, 0]).rest, 0);
        assert_eq!(cut(20_480, 8192, &[100, 0]).rest, 3996);
    }

    proptest! {
        #[test]
        fn nothing_of_a_tier_is_lost_and_floors_are_had(
            size in 0..1_000_000u64, blocks in 1..20u64,
            floors in prop::collection::vec(0..300_000u64, 1..5),
        ) {
            let unit = blocks * 4096;
            let cut = cut(size, unit, &floors);
            let taken: u64 = cut.floors.iter().sum();
            prop_assert_eq!(taken <= cut.units, floors.iter().sum::<u64>() <= size);
            if taken <= cut.units {
                let left = size - cut.offsets.iter().sum::<u64>() - cut.units * unit;
                prop_assert!(left < unit && (cut.rest == left || cut.rest == 0));
                for (v, &floor) in floors.iter().enumerate() {
                    prop_assert_eq!(cut.offsets[v] + cut.floors[v] * unit, floor);
                    prop_assert!(cut.rest > 0 || cut.offsets[v] % 4096 + left < 4096);
                }
            }
        }
    }
}
