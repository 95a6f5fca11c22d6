//! Which of the records that recovery finds count, for each volume.

use crate::format::superblock::Superblock;
use crate::recovery::HowToRecover;
use crate::sequence::BatchSequence;
use crate::types::RecoveryReport;
use forebay_block::Volume;

/// See the module.
#[derive(Default)]
pub(crate) struct Trust {
    /// Volumes whose store is an older copy that may be completed, and the newest batch that each
    /// has.
    incomplete: Vec<(Volume, BatchSequence)>,
    /// By volume: clean records of batches up to and including this one do not count.
    distrusted: Vec<BatchSequence>,
    /// By volume: no records of batches up to and including this one count.
    voided: Vec<BatchSequence>,
}

impl Trust {
    /// Takes over what a superblock says, and what the start knows of the stores. Adds volumes whose
    /// stores or sizes have changed to those that the caller has named.
    pub fn learn(&mut self, s: &Superblock, how: &mut HowToRecover, report: &mut RecoveryReport) {
        for binding in &s.bindings {
            let volume = binding.volume.index();
            if self.distrusted.len() <= volume {
                self.distrusted.resize(volume + 1, BatchSequence::NONE);
                self.voided.resize(volume + 1, BatchSequence::NONE);
            }
            let store = how.stores.iter().find(|store| store.volume == binding.volume);
            let released = store.is_some_and(|store| store.is_released(s));
            let size = how.sizes.get(volume);
            let resized =
                size.is_some_and(|&size| binding.is_outdated_by(size, u64::from(s.block_size)));
            if resized {
                report.resized.push((binding.volume, binding.size));
            }
            if (released || resized) && !how.changed.contains(&binding.volume) {
                how.changed.push(binding.volume);
            }
            self.voided[volume] = if released { BatchSequence::MAX } else { binding.voided };
            let changed = how.changed.contains(&binding.volume);
            self.distrusted[volume] = if changed { BatchSequence::MAX } else { binding.distrusted };
        }
        // (If the caller accepts older stores, none is completed.)
        let stores = how.stores.iter().filter(|_| !how.drop_clean);
        let incomplete = stores.filter(|store| store.lacks_records_only(s));
        self.incomplete = incomplete.map(|store| (store.volume, store.stamp.complete)).collect();
    }

    /// Whether only the dirty granules of a record count.
    pub fn distrusts(&self, volume: Volume, sequence: BatchSequence) -> bool {
        self.distrusted.get(volume.index()).is_some_and(|&until| sequence <= until)
    }

    /// The newest batch that the volume's store has, if the store may be completed: it lacks the dirty
    /// records of later batches.
    pub fn lacks(&self, volume: Volume) -> Option<BatchSequence> {
        self.incomplete.iter().find(|i| i.0 == volume).map(|i| i.1)
    }

    /// Whether the dirty granules of a record do not count either.
    pub fn voids(&self, volume: Volume, sequence: BatchSequence) -> bool {
        self.voided.get(volume.index()).is_some_and(|&until| sequence <= until)
    }

    /// The newest batch of which no record of this bound volume counts.
    pub fn voided(&self, volume: Volume) -> BatchSequence {
        self.voided[volume.index()]
    }
}
