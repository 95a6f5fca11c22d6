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

/// The writes to late stores; see the module documentation.
#[derive(Debug)]
pub(crate) struct ApartWrites {
    /// Volumes that are apart. `LateWrites` of the cleaner has the same ones, and the state of
    /// each; it checks that all shards agree with it.
    volumes: VolumeSet,
    /// Volumes among them to which a write has failed.
    failed: VolumeSet,
    /// The error of the last failed write.
    error: IoError,
    /// Chosen records of these volumes that have been looked at. Not all of them were begun.
    keys: Vec<BlockKey>,
    /// Progress of settling.
    at: usize,
}

impl ApartWrites {
    /// Has memory for the keys of two regions of `region_pages` pages.
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

    /// The volumes among these to which a write has failed, and the error of the last failed write.
    pub fn failed(&self, volumes: VolumeSet) -> (VolumeSet, IoError) {
        (self.failed & volumes, self.error)
    }

    /// Notes that a write to the block's volume has failed.
    pub(super) fn note_failed(&mut self, key: BlockKey, error: IoError) {
        self.failed |= VolumeSet::only(key.volume());
        self.error = error;
    }

    /// The job continues without these volumes. It has looked at the records of the blocks `keys`.
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
        // A record whose newer version is being appended must not be marked as destaged when its
        // write ends: from the end of the job its cell may hold that newer version.
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

    /// Called when all writes of these volumes have ended: marks the records destaged to the
    /// `synced` ones clean. Stops at the budget of the call; returns whether everything was done.
    /// Call it with the same volumes until then.
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

#[cfg(test)]
mod tests {
    use forebay_block::Volume;
    use forebay_effect::Outcome;
    use forebay_flash::Granules;

    use super::super::tests::{choose, holding, is_owed, repeat};
    use super::*;
    use crate::byte_range::ByteRange;
    use crate::cache::Cache;
    use crate::shard::Shard;
    use crate::shard::frames::Frame;
    use crate::world::shard_context;

    const EMPTY: VolumeSet = VolumeSet::EMPTY;

    /// The records of three volumes, in one region.
    fn keys() -> [[BlockKey; 3]; 3] {
        [0, 1, 2].map(|volume| [4, 1, 6].map(|block| BlockKey::new(Volume(volume), block)))
    }

    /// A cache that has chosen these records and looked at all of them.
    fn looked_at(keys: &[BlockKey]) -> Cache {
        let mut cache = holding(keys);
        choose(&mut cache, EMPTY);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        // Volumes that are left out are looked at, and nothing is written to them.
        destager.begin(VolumeSet::ALL, true, EMPTY);
        cache.world.budget.refill(100);
        let _ = destager.step(tiers, &mut shard_context!(cache.world));
        cache
    }

    fn part(cache: &mut Cache, volumes: VolumeSet) {
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.part(tiers, volumes);
    }

    fn mark_clean(cache: &mut Cache, volumes: VolumeSet, synced: VolumeSet) -> u32 {
        repeat(cache, |destager, tiers, context| {
            destager.writes.apart.mark_clean(tiers, context, volumes, synced)
        })
    }

    /// Goal: what a late store has taken is clean once that store is synced: not when the cleaning
    /// ends, nor when another late store is synced. Method: calls with the smallest budget.
    #[test]
    fn records_apart_are_clean_when_their_own_store_is_synced() {
        let [cleaned, late, later] = keys();
        let mut cache = looked_at(keys().as_flattened());
        let [_, one, other] = [0, 1, 2].map(|volume| VolumeSet::only(Volume(volume)));
        part(&mut cache, one);
        part(&mut cache, other);
        for &key in keys().as_flattened() {
            let blocks = &mut cache.world.shards[0].tiers.blocks;
            let id = blocks.find(key).expect("it has a record");
            blocks[id].note_destaged();
        }
        let owed =
            |cache: &Cache| [cleaned, late, later].map(|keys| keys.map(|key| is_owed(cache, key)));
        repeat(&mut cache, |destager, tiers, context| destager.end(tiers, context, EMPTY));
        assert_eq!(owed(&cache), [[false; 3], [true; 3], [true; 3]], "the cleaning has ended");
        mark_clean(&mut cache, other, other);
        assert_eq!(owed(&cache), [[false; 3], [true; 3], [false; 3]]);
        assert_eq!(cache.world.shards[0].destager.writes.apart.volumes(), one);
        assert_eq!(mark_clean(&mut cache, other, other), 1, "another shard is not done");
        mark_clean(&mut cache, one, one);
        assert_eq!(owed(&cache), [[false; 3]; 3]);
        assert_eq!(cache.world.shards[0].destager.writes.apart.volumes(), EMPTY);
    }

    #[test]
    fn records_apart_stay_dirty_if_their_store_was_not_synced() {
        let key = BlockKey::new(Volume(1), 3);
        let (mut cache, volume) = (looked_at(&[key]), VolumeSet::only(Volume(1)));
        part(&mut cache, volume);
        let blocks = &mut cache.world.shards[0].tiers.blocks;
        let id = blocks.find(key).expect("it has a record");
        blocks[id].note_destaged();
        mark_clean(&mut cache, volume, EMPTY);
        assert!(is_owed(&cache, key));
        assert!(!cache.world.shards[0].tiers.blocks[id].is_destaged(), "it is destaged again");
    }

    /// A record that no job has looked at belongs to the next cleaning.
    #[test]
    fn only_what_was_looked_at_parts() {
        let [_, keys, _] = keys();
        let mut cache = holding(&keys);
        choose(&mut cache, EMPTY);
        cache.world.shards[0].destager.begin(VolumeSet::ALL, true, EMPTY);
        cache.world.budget.refill(2);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let _ = destager.step(tiers, &mut shard_context!(cache.world));
        part(&mut cache, VolumeSet::only(Volume(1)));
        let parted = &cache.world.shards[0].destager.writes.apart.keys;
        assert_eq!(*parted, [1, 4].map(|block| BlockKey::new(Volume(1), block)));
    }

    /// Begins and ends a write of one record.
    fn write(cache: &mut Cache, key: BlockKey, result: Outcome) {
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let (from, position) = (Frame::NONE, Position::NONE);
        let kind = TransferKind::DestageRecord { rest: Granules::EMPTY, from, position };
        let t = tiers.transfers.start(&mut cache.world.volumes, kind, key, ByteRange::EMPTY);
        destager.writes.write_begins(key);
        assert!(destager.writes.is_writing(key.volume()));
        destager.written(tiers, t, result);
        assert!(!destager.writes.is_writing(key.volume()));
        tiers.transfers.remove(t);
    }

    #[test]
    fn a_failed_write_counts_when_its_volume_settles_whenever_it_failed() {
        let [before, after] = [1, 2].map(|volume| BlockKey::new(Volume(volume), 3));
        let both: VolumeSet = [Volume(1), Volume(2)].into_iter().collect();
        let mut cache = holding(&[before, after]);
        choose(&mut cache, EMPTY);
        cache.world.shards[0].destager.begin(EMPTY, true, EMPTY);
        let failed = |cache: &Cache| cache.world.shards[0].destager.writes.apart.failed(both);
        write(&mut cache, before, Err(IoError::Device));
        assert_eq!(failed(&cache).0, EMPTY);
        part(&mut cache, both);
        assert_eq!(failed(&cache), (VolumeSet::only(Volume(1)), IoError::Device));
        write(&mut cache, after, Ok(()));
        assert_eq!(failed(&cache).0, VolumeSet::only(Volume(1)));
        write(&mut cache, after, Err(IoError::NoSpace));
        assert_eq!(failed(&cache), (both, IoError::NoSpace));
        mark_clean(&mut cache, both, EMPTY);
        assert_eq!(failed(&cache).0, EMPTY, "it counts once");
    }
}
