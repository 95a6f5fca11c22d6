//! How one tier is cut into units such that its size and the floors of volumes are exact to the
//! byte.
//!
//! The part of a volume's floor beyond whole units is the volume's *offset*: its share is the
//! offset plus whole units. The part of the size beyond all offsets and whole units is the *rest*:
//! one volume can have it as well.

use forebay_block::BlockSize;

/// The division of one tier into units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Cut {
    /// Number of units.
    pub units: u64,
    /// The rest, in bytes; 0 if no volume would hold another block with it.
    pub rest: u64,
    /// The offset of each volume, in bytes.
    pub offsets: Vec<u64>,
    /// The minimum number of units of each volume.
    pub floors: Vec<u64>,
}

impl Cut {
    /// Cuts a tier of `size` bytes of which each volume gets at least its floor, in bytes.
    pub fn new(size: u64, unit: u64, block_size: BlockSize, floors: &[u64]) -> Self {
        if floors.iter().copied().fold(0, u64::saturating_add) > size {
            // Rounded up to units, the floors exceed the number of units too, so the search fails.
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

    /// The number of units that hold `bytes` of a volume, together with its offset.
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
        // With the offset of the second volume the rest would make a whole block.
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
