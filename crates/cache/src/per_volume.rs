//! Lists with an element for each volume.

use core::ops::{Index, IndexMut};

use forebay_block::Volume;

/// An element for each volume. Only a [`Volume`] indexes it.
///
/// # Panics
/// Indexing with a volume that has no element panics. Requests are checked when they arrive, and recovery refuses
/// records of volumes that are not attached, so that no such volume gets this far. Counted as another volume's, its
/// writes would be hidden in the state of that volume.
#[derive(Clone, Debug)]
pub(crate) struct PerVolume<T>(Vec<T>);

impl<T> PerVolume<T> {
    /// No volume is attached.
    pub const EMPTY: PerVolume<T> = PerVolume(Vec::new());

    /// Adds the element of the next volume, and returns that.
    pub fn push(&mut self, element: T) -> Volume {
        self.0.push(element);
        Volume(self.0.len() as u32 - 1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The volumes, by ascending number.
    pub fn volumes(&self) -> impl Iterator<Item = Volume> + use<T> {
        (0..self.0.len() as u32).map(Volume)
    }

    /// Each element with its volume.
    pub fn iter(&self) -> impl Iterator<Item = (Volume, &T)> {
        self.volumes().zip(&self.0)
    }

    /// Each element with its volume.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Volume, &mut T)> {
        self.volumes().zip(&mut self.0)
    }

    /// The element of a volume, if that is attached.
    #[inline]
    pub fn get(&self, volume: Volume) -> Option<&T> {
        self.0.get(volume.index())
    }

    /// The element of a volume, if that is attached.
    #[inline]
    pub fn get_mut(&mut self, volume: Volume) -> Option<&mut T> {
        self.0.get_mut(volume.index())
    }
}

impl<T: Clone> PerVolume<T> {
    /// Every one of `count` volumes gets this element.
    pub fn filled(element: T, count: usize) -> PerVolume<T> {
        PerVolume(vec![element; count])
    }

    /// Sets the number of volumes; further ones get this element.
    pub fn resize(&mut self, count: usize, element: T) {
        self.0.resize(count, element);
    }

    /// Sets every element.
    pub fn fill(&mut self, element: T) {
        self.0.fill(element);
    }
}

impl<T> Default for PerVolume<T> {
    fn default() -> PerVolume<T> {
        PerVolume::EMPTY
    }
}

impl<T> Index<Volume> for PerVolume<T> {
    type Output = T;
    #[inline]
    fn index(&self, volume: Volume) -> &T {
        &self.0[volume.index()]
    }
}

impl<T> IndexMut<Volume> for PerVolume<T> {
    #[inline]
    fn index_mut(&mut self, volume: Volume) -> &mut T {
        &mut self.0[volume.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_an_element_of_its_own() {
        let mut list = PerVolume::EMPTY;
        let volumes: Vec<_> = (0..64).map(|n| list.push(n)).collect();
        assert!(volumes.iter().all(|&volume| list[volume] == volume.0));
        assert!(list.iter().map(|(volume, _)| volume).eq(volumes));
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_volume_without_an_element_does_not_count_as_another() {
        let _ = PerVolume::filled(0, 64)[Volume(64)];
    }
}
