//! Why stamps could not be written, for operators: to the machine, all failures are the same.

use std::collections::BTreeMap;

use forebay_block::Volume;

/// The stores whose last stamps could not be written.
#[derive(Debug, Default)]
pub(crate) struct UnstampedStores {
    /// Why, by volume.
    failures: BTreeMap<Volume, String>,
    /// The last failures that operators have not been told, even if a stamp was written afterwards.
    untold: BTreeMap<Volume, String>,
}

impl UnstampedStores {
    /// Notes why the stamp of a store could not be written.
    pub fn note_failed(&mut self, volume: Volume, why: String) {
        self.untold.insert(volume, why.clone());
        self.failures.insert(volume, why);
    }

    /// Notes that a stamp of a store was written.
    pub fn note_written(&mut self, volume: Volume) {
        self.failures.remove(&volume);
    }

    /// Why the last stamp of a store could not be written, if it could not.
    pub fn failure(&self, volume: Volume) -> Option<&str> {
        self.failures.get(&volume).map(String::as_str)
    }

    /// Hands over failures that operators have not been told. What `tell` does not take is kept.
    pub fn take_untold(&mut self, mut tell: impl FnMut(Volume, &str) -> bool) {
        self.untold.retain(|&volume, why| !tell(volume, why));
    }
}
