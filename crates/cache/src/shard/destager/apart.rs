//! Volumes of late stores in this shard: a job continues without waiting for their writes. When
//! these writes have ended and the store is synced, their records are clean. Until then no job
//! writes to such a volume: an older version must not reach a store after a newer one.

use forebay_effect::IoError;
use forebay_flash::{BlockKey, Position};

use super::state::Job;
use crate::shard::ShardContext;
use crate::shard::tiers::Tiers;
use crate::shard::transfer::TransferKind;
use crate::volume_set::VolumeSet;

/// See the module.
#[derive(Debug)]
pub(crate) struct ApartWrites {
    /// Volumes that are apart. `LateWrites` of the cleaner has them too, and what becomes of each; it
    /// checks that all shards agree with it.
    volumes: VolumeSet,
    /// Volumes that are apart of which a write has failed.
    failed: VolumeSet,
    /// The error of the last one.
    error: IoError,
    /// Chosen records of these volumes that have been looked at. Not all of them were begun.
    keys: Vec<BlockKey>,
    /// Progress of settling.
    at: usize,
}

impl ApartWrites {
    /// With memory for the keys of two regions of `region_pages` pages.
    pub(super) fn new(region_pages: u32) -> ApartWrites {
        let keys = Vec::with_capacity(2 * region_pages as usize);
        let (volumes, failed) = (VolumeSet::EMPTY, VolumeSet::EMPTY);
        ApartWrites { volumes, failed, error: IoError::Device, keys, at: 0 }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<BlockKey>()) as u64
    }

    /// Whether the block's volume is apart.
    #[inline]
    pub(super) fn has(&self, key: BlockKey) -> bool {
        self.volumes.has(key)
    }

    /// The volumes that are apart.
    pub fn volumes(&self) -> VolumeSet {
        self.volumes
    }

    /// Which of these volumes a write has failed to, and the error of the last one.
    pub fn failed(&self, volumes: VolumeSet) -> (VolumeSet, IoError) {
        (self.failed & volumes, self.error)
    }

    /// A write to the block's volume has failed.
    pub(super) fn note_failed(&mut self, key: BlockKey, error: IoError) {
        self.failed |= VolumeSet::only(key.volume());
        self.error = error;
    }

    /// The job continues without these volumes, of which it has looked at the records `keys`.
    pub(super) fn add(
        &mut self,
        tiers: &mut Tiers,
        job: &mut Job,
        volumes: VolumeSet,
        keys: impl Iterator<Item = BlockKey>,
    ) {
        assert!((self.volumes & volumes).is_empty(), "a volume that is apart is not cleaned");
        // Writes that have failed so far count when the volumes settle.
        let (failed, error) = job.part(volumes);
        self.failed |= failed;
        self.error = error.unwrap_or(self.error);
        self.keys.extend(keys);
        self.volumes |= volumes;
        // A record whose newer version is being appended must not be marked as destaged when its write ends: from the
        // end of the job its cell may hold that newer version.
        for t in tiers.transfers.keys() {
            let transfer = tiers.transfers.get(t).filter(|transfer| volumes.has(transfer.key));
            let Some(transfer) = transfer else { continue };
            let TransferKind::DestageRecord { rest, from, .. } = transfer.kind else { continue };
            let id = tiers.blocks.find(transfer.key);
            if id.is_none_or(|id| tiers.blocks[id].transfer() != Some(t)) {
                tiers.transfers[t].kind =
                    TransferKind::DestageRecord { rest, from, position: Position::NONE };
            }
        }
    }

    /// All writes of these volumes have ended, and the records destaged to the `synced` ones are
    /// clean. Stops at the budget of the call; returns whether everything was done. Call it with the
    /// same volumes until then.
    pub fn mark_clean(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        volumes: VolumeSet,
        synced: VolumeSet,
    ) -> bool {
        if (self.volumes & volumes).is_empty() {
            return true;
        }
        while let Some(&key) = self.keys.get(self.at) {
            if !context.budget.take() {
                return false;
            }
            if !volumes.has(key) {
                self.at += 1;
                continue;
            }
            self.keys.swap_remove(self.at);
            if let Some(id) = tiers.blocks.find(key) {
                tiers.flash.end_destage(&mut tiers.blocks, context, id, synced.has(key));
            }
        }
        self.at = 0;
        self.volumes &= !volumes;
        self.failed &= !volumes;
        tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
        tiers.evict_from_flash(context);
        true
    }
}
