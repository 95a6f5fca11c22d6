//! Takes over the records that recovery finds on flash, in log order, so that a later record
//! replaces an earlier one.
//!
//! The index has room for all records that counted when the log ended, but not for all that counted
//! at any time. A record that a direct write made stale was forgotten at once; its tombstone
//! entered the log later, behind records that had taken its place in the index. So records without
//! room are set aside (*spilled*) until the end of the log is known. Some may remain then only if
//! this run has fewer entries than the previous one, or distributes them over other shards. Clean
//! ones are disowned; dirty ones prevent the start.

use std::collections::BTreeMap;

use forebay_flash::{BlockKey, Granules};

use super::ShardContext;
use super::blocks::{Blocks, FlashRecord};
use super::tiers::Tiers;

/// The recovery of a shard; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ShardRecovery {
    /// Records for which the index has had no room so far.
    spilled: BTreeMap<BlockKey, FlashRecord>,
}

impl ShardRecovery {
    /// Takes over a record that recovery has found.
    pub fn record(
        &mut self,
        Tiers { blocks, flash, .. }: &mut Tiers,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        record: FlashRecord,
    ) {
        match blocks.find_or_insert(key) {
            Some(id) => {
                self.spilled.remove(&key);
                flash.set_record(blocks, context, id, Some(record));
            }
            None => {
                context.stats.recovered_spilled += 1;
                self.spilled.insert(key, record);
            }
        }
    }

    /// The dirty granules in the newest record of a block so far, if there is one.
    pub fn dirty(&self, blocks: &Blocks, key: BlockKey) -> Granules {
        let dirty = |id| blocks[id].flash_dirty();
        self.spilled
            .get(&key)
            .map_or_else(|| blocks.find(key).map_or(Granules::EMPTY, dirty), |s| s.dirty)
    }

    /// Takes over a tombstone that recovery has found.
    pub fn tombstone(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>, key: BlockKey) {
        self.spilled.remove(&key);
        let Some(id) = tiers.blocks.find(key) else { return };
        if tiers.blocks[id].position().is_some() {
            tiers.flash.set_record(&mut tiers.blocks, context, id, None);
        }
        tiers.forget_if_empty(context, id);
    }

    /// Recovery has returned everything: gives the free entries to spilled records. Adds to `left`
    /// the blocks of clean records that get none; returns the number of dirty records that get
    /// none.
    pub fn place_spilled(
        &mut self,
        Tiers { blocks, flash, .. }: &mut Tiers,
        context: &mut ShardContext<'_>,
        left: &mut Vec<BlockKey>,
    ) -> u64 {
        let mut spilled = core::mem::take(&mut self.spilled);
        // Dirty records come first, because each must have an entry.
        let mut homeless = 0;
        for dirty in [true, false] {
            spilled.retain(|&key, s| {
                if s.dirty.is_empty() == dirty {
                    return true;
                }
                match blocks.find_or_insert(key) {
                    Some(id) => flash.set_record(blocks, context, id, Some(*s)),
                    None if dirty => homeless += 1,
                    None => left.push(key),
                }
                false
            });
        }
        homeless
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;
    use forebay_flash::{BatchSequence, BlockKey, Granules, Position};

    use crate::cache::Cache;
    use crate::config::{CacheConfig, FlashConfig, FlashLayout, LogReplacement, VolumeConfig};
    use crate::shard::FlashRecord;
    use crate::startup::Startup;
    use crate::world::shard_context;
    use forebay_flash::{Geometry, Record};

    /// A cache over flash whose index holds four blocks.
    fn small() -> Cache {
        let geometry = Geometry::for_device(64 << 20, 4096).expect("a device of that size");
        let flash = FlashConfig::plain(
            geometry,
            FlashLayout::Log { replacement: LogReplacement::Frequency },
            1,
        );
        let config = CacheConfig {
            dram_blocks: 1,
            spare_frames: 1,
            flash: Some(flash),
            ..CacheConfig::dram_only(1)
        };
        let mut cache = Cache::new(config);
        cache.attach(VolumeConfig::new(1 << 20));
        cache
    }

    /// Recovery returns a clean record of a block, at a page of the log.
    fn find(cache: &mut Cache, block: u64, page: u32) {
        let first = cache.world.log.as_ref().expect("a log").geometry().first_region_page();
        let (key, position) = (BlockKey::new(Volume(0), block), Position(first + page));
        let shard = &mut cache.world.shards[0];
        let record =
            FlashRecord { position, checksum: 0, valid: Granules(1), dirty: Granules::EMPTY };
        shard.recovery.record(&mut shard.tiers, &mut shard_context!(cache.world), key, record);
    }

    /// Ends recovery; returns the page of the block's record.
    fn place(cache: &mut Cache, block: u64) -> Option<u32> {
        let mut left = Vec::new();
        let shard = &mut cache.world.shards[0];
        let context = &mut shard_context!(cache.world);
        let homeless = shard.recovery.place_spilled(&mut shard.tiers, context, &mut left);
        assert_eq!((homeless, left), (0, Vec::new()));
        let first = cache.world.log.as_ref().expect("a log").geometry().first_region_page();
        let shard = &cache.world.shards[0];
        let id = shard.tiers.blocks.find(BlockKey::new(Volume(0), block))?;
        shard.tiers.blocks[id].position().map(|position| position.0 - first)
    }

    fn forget(cache: &mut Cache, block: u64) {
        let shard = &mut cache.world.shards[0];
        let context = &mut shard_context!(cache.world);
        shard.recovery.tombstone(&mut shard.tiers, context, BlockKey::new(Volume(0), block));
    }

    #[test]
    fn what_an_older_store_lacks_has_to_be_in_the_newest_record_of_the_block() {
        let find = |start: &mut Startup, cache: &mut Cache, page: u32, [valid, dirty]: [u16; 2]| {
            let (valid, dirty) = (Granules(valid), Granules(dirty));
            let first = cache.world.log.as_ref().expect("a log").geometry().first_region_page();
            let (key, position) = (BlockKey::new(Volume(0), 3), Position(first + page));
            let (checksum, sequence, adds) = (0, BatchSequence(page.into()), true);
            start.recovered(
                &mut cache.world,
                &Record { key, position, valid, dirty, checksum, sequence, adds },
            );
        };
        let owed = |cache: &Cache| {
            let shard = &cache.world.shards[0];
            shard.recovery.dirty(&shard.tiers.blocks, BlockKey::new(Volume(0), 3))
        };
        // The valid and dirty granules of the newest record; then those that are owed afterwards,
        // if this record has all that the older store lacks.
        for (newest, all) in [
            ([3, 0], Some(1)),
            ([3, 2], Some(3)),
            ([1, 1], Some(1)),
            ([2, 2], None),
            ([2, 0], None),
        ] {
            let (mut start, mut cache) = (Startup::default(), small());
            find(&mut start, &mut cache, 1, [1, 1]);
            find(&mut start, &mut cache, 2, newest);
            assert_eq!(start.incomplete().is_empty().then(|| owed(&cache).0), all, "{newest:?}");
        }
        for (dirty, voids) in [(0, false), (1, true)] {
            let (mut start, mut cache) = (Startup::default(), small());
            find(&mut start, &mut cache, 1, [1, dirty]);
            start.recovered_tombstone(&mut cache.world, BlockKey::new(Volume(0), 3));
            assert_eq!(!start.incomplete().is_empty(), voids);
        }
    }

    #[test]
    fn a_record_that_was_put_aside_takes_a_place_that_comes_free() {
        let mut cache = small();
        (0..5).for_each(|block| find(&mut cache, block, 1 + block as u32));
        assert_eq!(cache.world.stats.recovered_spilled, 1);
        forget(&mut cache, 0);
        assert_eq!(place(&mut cache, 4), Some(5));
    }

    #[test]
    fn a_record_that_was_put_aside_does_not_outlive_a_newer_one() {
        let mut cache = small();
        (0..5).for_each(|block| find(&mut cache, block, 1 + block as u32));
        forget(&mut cache, 0);
        find(&mut cache, 4, 9);
        assert_eq!(place(&mut cache, 4), Some(9));
    }

    #[test]
    fn a_record_that_was_put_aside_does_not_outlive_its_tombstone() {
        let mut cache = small();
        (0..5).for_each(|block| find(&mut cache, block, 1 + block as u32));
        forget(&mut cache, 4);
        forget(&mut cache, 0);
        assert_eq!(place(&mut cache, 4), None);
    }
}
