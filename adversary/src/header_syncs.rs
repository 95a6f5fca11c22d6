//! Syncs of the headers of backing stores, which can fail instead of the syncs of the data.

use std::io;
use std::sync::Arc;

use forebay_block::Volume;
use forebay_device::memory::MemoryDevices;
use forebay_device::{JointSyncs, StoreSyncs};
use forebay_effect::Device;

/// Syncs of the headers during one life.
#[derive(Debug, Default)]
pub struct HeaderSyncs {
    /// Indexed by volume.
    syncs: Vec<Arc<StoreSyncs>>,
}

impl HeaderSyncs {
    /// Creates the syncs of the headers of the first `count` volumes, and joins them with the
    /// devices' syncs.
    pub fn join(count: usize, devices: &mut JointSyncs<MemoryDevices>) -> HeaderSyncs {
        let syncs: Vec<Arc<StoreSyncs>> = (0..count).map(|_| Arc::default()).collect();
        for (volume, syncs) in (0..).map(Volume).zip(&syncs) {
            devices.join(Device::Backing(volume), syncs.clone());
        }
        HeaderSyncs { syncs }
    }

    /// Makes the sync of a header fail, but no other sync of the store. The failure may lose
    /// unsynced data.
    pub fn fail(&self, volume: Volume, devices: &mut JointSyncs<MemoryDevices>) {
        let fail = || {
            devices.fail_sync(Device::Backing(volume));
            Err(io::Error::other("the sync of a header failed"))
        };
        // The result is known: the sync fails.
        let _ = self.syncs[volume.index()].write_header(|| Ok(()), fail);
    }
}
