//! Sets of volumes.

use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, Not};

use forebay_flash::BlockKey;

use crate::cache::VOLUMES_MAX;

/// A set of volumes: one bit for each, by number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct VolumeSet(u64);

const _: () = assert!(VOLUMES_MAX <= u64::BITS as usize, "a bit for each volume");

impl VolumeSet {
    pub const EMPTY: VolumeSet = VolumeSet(0);
    /// All volumes that a cache may have.
    pub const ALL: VolumeSet = VolumeSet(u64::MAX);

    /// The set of one volume; empty if the number is too large.
    #[inline]
    pub fn only(volume: usize) -> VolumeSet {
        VolumeSet(if volume < VOLUMES_MAX { 1 << volume } else { 0 })
    }

    /// The volume of a block.
    #[inline]
    pub fn volume_of(key: BlockKey) -> VolumeSet {
        VolumeSet::only(usize::from(key.volume()))
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has the volume.
    #[inline]
    pub fn contains(self, volume: usize) -> bool {
        !(self & VolumeSet::only(volume)).is_empty()
    }

    /// Whether it has the volume of a block.
    #[inline]
    pub fn has(self, key: BlockKey) -> bool {
        self.contains(usize::from(key.volume()))
    }

    #[inline]
    pub fn insert(&mut self, volume: usize) {
        *self |= VolumeSet::only(volume);
    }

    /// Inserts the volume if the condition is true.
    #[inline]
    pub fn insert_if(&mut self, volume: usize, so: bool) {
        if so {
            self.insert(volume);
        }
    }

    #[inline]
    pub fn remove(&mut self, volume: usize) {
        *self &= !VolumeSet::only(volume);
    }

    /// Number of volumes.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The volume with the lowest number.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then_some(self.0.trailing_zeros() as usize)
    }

    /// The numbers of the volumes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> + use<> {
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

impl FromIterator<usize> for VolumeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(volumes: I) -> VolumeSet {
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

    #[test]
    fn a_set_has_what_was_inserted_up_to_the_last_volume() {
        let mut set: VolumeSet = [0, 5, VOLUMES_MAX - 1].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert!(
            set.contains(63) && !set.contains(4) && !set.contains(64) && !set.contains(1 << 30)
        );
        assert!(set.has(BlockKey::new(5, 7)) && !set.has(BlockKey::new(6, 7)));
        set.remove(5);
        set.insert_if(6, false);
        set.insert_if(7, true);
        assert_eq!((set.len(), set.first()), (3, Some(0)));
        assert_eq!(set & !VolumeSet::only(0), [7, 63].into_iter().collect());
        assert!(VolumeSet::EMPTY.first().is_none() && (set & !set).is_empty());
    }
}
