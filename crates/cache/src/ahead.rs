//! What requests to come will look at is loaded into the processor's cache before they are handed in. Hints: nothing
//! is decided here.

use forebay_block::Volume;
use forebay_flash::BlockKey;

use crate::cache::Cache;

/// Where a block is likely to be found, if it is there ([`Cache::prefetch_entry`]).
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    shard: u32,
    entry: Option<u32>,
    key: BlockKey,
}

impl Cache {
    /// Starts loading into the processor's cache what a request for this byte of a volume will
    /// look at first. Best called for a dozen requests before they are handed in, and
    /// [`Cache::prefetch_entry`] half-way.
    #[inline]
    pub fn prefetch(&self, volume: Volume, offset: u64) {
        let (shard, key) = self.world.place_of(volume, offset);
        self.world.shards[shard].prefetch(key);
    }

    /// Starts loading what the place that [`Cache::prefetch`] has loaded leads to. Says where that is.
    #[inline]
    pub fn prefetch_entry(&self, volume: Volume, offset: u64) -> Sought {
        let (shard, key) = self.world.place_of(volume, offset);
        let entry = self.world.shards[shard].prefetch_entry(key);
        Sought { shard: shard as u32, entry, key }
    }

    /// Starts loading what the replacement policy will look at, or with `near` what that leads to. Best
    /// after [`Cache::prefetch_entry`], twice.
    #[inline]
    pub fn prefetch_policy(&self, sought: Sought, near: bool) {
        self.world.shards[sought.shard as usize].prefetch_policy(sought.key, sought.entry, near);
    }

    /// The next request is for the block that was sought: it is looked for there first.
    #[inline]
    pub fn expect(&self, sought: Sought) {
        self.world.shards[sought.shard as usize].expect(sought.entry);
    }
}
