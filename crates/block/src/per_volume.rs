//! Lists with an element for each volume.

use core::ops::{Index, IndexMut};

use crate::Volume;

/// An element for each volume. Only a [`Volume`] indexes it.
///
/// # Panics
/// Indexing with a volume that has no element panics. Falling back to the element of another
/// volume would hide this volume's data in the state of that one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerVolume<T>(Vec<T>);

impl<T> PerVolume<T> {
    /// A list without volumes.
    pub const EMPTY: PerVolume<T> = PerVolume(Vec::new());

    /// Adds an element for the next volume, and returns that volume.
    pub fn push(&mut self, element: T) -> Volume {
        self.0.push(element);
        Volume(self.0.len() as u32 - 1)
    }

    /// Number of volumes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no volume.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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

    /// The element of `volume`, if the volume is attached.
    #[inline]
    pub fn get(&self, volume: Volume) -> Option<&T> {
        self.0.get(volume.index())
    }

    /// The element of `volume`, if the volume is attached.
    #[inline]
    pub fn get_mut(&mut self, volume: Volume) -> Option<&mut T> {
        self.0.get_mut(volume.index())
    }
}

impl<T: Clone> PerVolume<T> {
    /// A list of `count` volumes with `element` for each.
    pub fn filled(element: T, count: usize) -> PerVolume<T> {
        PerVolume(vec![element; count])
    }

    /// Sets the number of volumes; volumes that this adds get `element`.
    pub fn resize(&mut self, count: usize, element: T) {
        self.0.resize(count, element);
    }

    /// Sets every element to `element`.
    pub fn fill(&mut self, element: T) {
        self.0.fill(element);
    }
}

/// Elements are in the order of volume numbers.
impl<T> FromIterator<T> for PerVolume<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> PerVolume<T> {
        PerVolume(elements.into_iter().collect())
    }
}

/// Elements are in the order of volume numbers.
impl<T> IntoIterator for PerVolume<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
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
