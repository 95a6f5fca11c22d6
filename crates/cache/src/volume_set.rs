//! Sets of volumes.

use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, Not};

use forebay_block::Volume;
use forebay_flash::BlockKey;

use crate::cache::VOLUMES_MAX;

/// A set of volumes: one bit for each, by number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct VolumeSet(u64);

const _: () = assert!(VOLUMES_MAX <= u64::BITS as usize, "a bit for each volume");

impl VolumeSet {
    pub const EMPTY: VolumeSet = VolumeSet(0);
    /// All volumes that a cache may have.
    #[cfg(test)]
    pub const ALL: VolumeSet = VolumeSet(u64::MAX);

    /// The set of one volume; empty if the number is too large.
    #[inline]
    pub fn only(volume: Volume) -> VolumeSet {
        VolumeSet(if volume.index() < VOLUMES_MAX { 1 << volume.0 } else { 0 })
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has the volume.
    #[inline]
    pub fn contains(self, volume: Volume) -> bool {
        !(self & VolumeSet::only(volume)).is_empty()
    }

    /// Whether it has the volume of a block.
    #[inline]
    pub fn has(self, key: BlockKey) -> bool {
        self.contains(key.volume())
    }

    #[inline]
    pub fn insert(&mut self, volume: Volume) {
        *self |= VolumeSet::only(volume);
    }

    /// Inserts the volume if the condition is true.
    #[inline]
    pub fn insert_if(&mut self, volume: Volume, so: bool) {
        if so {
            self.insert(volume);
        }
    }

    #[inline]
    pub fn remove(&mut self, volume: Volume) {
        *self &= !VolumeSet::only(volume);
    }

    /// Number of volumes.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The volume with the lowest number.
    pub fn first(self) -> Option<Volume> {
        (self.0 != 0).then_some(Volume(self.0.trailing_zeros()))
    }

    /// The volumes, by ascending number.
    pub fn iter(self) -> impl Iterator<Item = Volume> + use<> {
        let mut left = self;
        core::iter::from_fn(move || {
            let next = left.first()?;
            left.remove(next);
            Some(next)
        })
    }

    /// The set as bits.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl FromIterator<Volume> for VolumeSet {
    fn from_iter<I: IntoIterator<Item = Volume>>(volumes: I) -> VolumeSet {
        volumes.into_iter().fold(VolumeSet::EMPTY, |all, volume| all | VolumeSet::only(volume))
    }
}

impl BitOr for VolumeSet {
    type Output = VolumeSet;
    #[inline]
    fn bitor(self, other: VolumeSet) -> VolumeSet {
        VolumeSet(self.0 | other.0)
    }
}

impl BitAnd for VolumeSet {
    type Output = VolumeSet;
    #[inline]
    fn bitand(self, other: VolumeSet) -> VolumeSet {
        VolumeSet(self.0 & other.0)
    }
}

impl BitXor for VolumeSet {
    type Output = VolumeSet;
    #[inline]
    fn bitxor(self, other: VolumeSet) -> VolumeSet {
        VolumeSet(self.0 ^ other.0)
    }
}

impl Not for VolumeSet {
    type Output = VolumeSet;
    #[inline]
    fn not(self) -> VolumeSet {
        VolumeSet(!self.0)
    }
}

impl BitOrAssign for VolumeSet {
    #[inline]
    fn bitor_assign(&mut self, other: VolumeSet) {
        self.0 |= other.0;
    }
}

impl BitAndAssign for VolumeSet {
    #[inline]
    fn bitand_assign(&mut self, other: VolumeSet) {
        self.0 &= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(volumes: [u32; N]) -> VolumeSet {
        volumes.map(Volume).into_iter().collect()
    }

    #[test]
    fn a_set_has_what_was_inserted_up_to_the_last_volume() {
        let mut set = of([0, 5, VOLUMES_MAX as u32 - 1]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63].map(Volume));
        assert!(set.contains(Volume(63)));
        assert!(![4, 64, 1 << 30].into_iter().any(|volume| set.contains(Volume(volume))));
        assert!(set.has(BlockKey::new(Volume(5), 7)) && !set.has(BlockKey::new(Volume(6), 7)));
        set.remove(Volume(5));
        set.insert_if(Volume(6), false);
        set.insert_if(Volume(7), true);
        assert_eq!((set.len(), set.first()), (3, Some(Volume(0))));
        assert_eq!(set & !of([0]), of([7, 63]));
        assert!(VolumeSet::EMPTY.first().is_none() && (set & !set).is_empty());
    }
}
