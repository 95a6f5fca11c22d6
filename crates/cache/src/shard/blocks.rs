//! The blocks of a shard: which are cached, in which frame, and which parts of them are dirty.
//!
//! The invariants of a single block are at [`Entry`]. The counts and lists over all blocks are
//! here: a frame is in the dirty list of its volume exactly while its entry says so
//! ([`Entry::is_listed`]), and a record is in the list of its region. `transitions.rs` lists all
//! ways in which a block's granules change; the counts of dirty and lost data change together with
//! them.

pub(crate) mod entry;
mod regions;
mod transitions;

use core::ops;

use forebay_block::Volume;
use forebay_effect::{Effect, Place};
use forebay_flash::{BlockKey, Granules, Position, RegionIndex};

use self::entry::{Entry, EntryId, RecordNode};
use self::regions::RegionLists;
use super::ShardContext;
use super::frames::{Frame, Frames};
use super::granularity::Granularity;
use super::index::Index;
use crate::allocation::Held;
use crate::config::CacheConfig;

/// A record on flash, as described by its block's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashRecord {
    pub position: Position,
    pub checksum: u32,
    /// The granules in the record, and those of them that the backing store may lack.
    pub valid: Granules,
    pub dirty: Granules,
}

/// The regions of a block's record (or of its mapping) before and after it moved or was replaced.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct RegionMove {
    pub from: RegionIndex,
    pub to: RegionIndex,
}

/// The blocks of a shard; see the module documentation.
#[derive(Debug)]
pub(crate) struct Blocks {
    index: Index,
    frames: Frames,
    granularity: Granularity,
    regions: RegionLists,
    /// Number of blocks whose record says that their newest data is lost.
    lost: u32,
}

impl ops::Index<EntryId> for Blocks {
    type Output = Entry;
    #[inline]
    fn index(&self, id: EntryId) -> &Entry {
        &self.index[id]
    }
}

impl ops::IndexMut<EntryId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: EntryId) -> &mut Entry {
        &mut self.index[id]
    }
}

impl Blocks {
    /// Makes room for `entries` blocks, with `frames` for those in DRAM.
    pub fn new(config: &CacheConfig, entries: u32, frames: Frames) -> Blocks {
        Blocks {
            index: Index::new(
                entries,
                config.stripe_shift - config.block_size.shift(),
                config.flash.is_some(),
            ),
            frames,
            granularity: Granularity::new(config.block_size),
            regions: RegionLists::new(config.flash.as_ref().map_or(0, |f| f.geometry.regions)),
            lost: 0,
        }
    }

    pub fn add_volume(&mut self) {
        self.frames.add_volume();
    }

    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.frames.memory_bytes() + self.regions.memory_bytes()
    }

    /// Sizes of blocks and of their parts.
    #[inline]
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    // ---- entries ----

    /// Number of known blocks.
    pub fn len(&self) -> u32 {
        self.index.len()
    }

    /// Whether the backing store may still lose its data of the block.
    pub fn owes_sync(&self, context: &ShardContext<'_>, key: BlockKey) -> bool {
        context.volumes.owes_sync_at(key.volume(), self.granularity().start_of(key))
    }

    /// Whether a write may bypass a log that has no room: flash holds nothing of the block, and its
    /// backing store works.
    pub fn may_bypass_log(&self, context: &ShardContext<'_>, key: BlockKey) -> bool {
        let free = |id| self[id].transfer().is_none() && !self[id].is_bound();
        !context.volumes.conditions.is_failing(key) && self.find(key).is_none_or(free)
    }

    /// Whether no more blocks fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.index.is_full()
    }

    /// Upper bound of the numbers of entries, including vacant ones.
    pub fn capacity(&self) -> u32 {
        self.index.capacity()
    }

    /// The entry of a block.
    #[inline]
    pub fn find(&self, key: BlockKey) -> Option<EntryId> {
        self.index.find(key)
    }

    /// The entry of a block that has one.
    #[inline]
    pub fn entry_of(&self, key: BlockKey) -> EntryId {
        self.index.find(key).expect("a busy block has an entry")
    }

    /// The entry of a block, if its newest record is at `position`.
    pub fn find_at(&self, key: BlockKey, position: Position) -> Option<EntryId> {
        self.index.find(key).filter(|&id| self.index[id].position() == Some(position))
    }

    /// Adds an unknown block; `None` if no more fit.
    #[inline]
    pub fn insert(&mut self, key: BlockKey) -> Option<EntryId> {
        self.index.insert(key)
    }

    /// The entry of a block; adds one if needed.
    pub fn find_or_insert(&mut self, key: BlockKey) -> Option<EntryId> {
        self.index.find(key).or_else(|| self.index.insert(key))
    }

    /// Forgets a block that has no frame, no record and no transfer.
    pub fn remove(&mut self, id: EntryId) {
        self.index.remove(id);
    }

    /// Whether no block of the stripe of `key` is known for certain.
    pub fn is_stripe_empty(&self, key: BlockKey) -> bool {
        self.index.is_stripe_empty(key)
    }

    /// The data held of a block.
    pub fn held(&self, key: BlockKey) -> Held {
        match self.index.find(key) {
            None => Held::Nothing,
            // A lost block cannot be read, even if its newest version was all zeroes.
            Some(id) if self.index.is_zeroed(id) && self.index[id].lost().is_empty() => {
                Held::Zeroes
            }
            Some(_) => Held::Data,
        }
    }

    /// Notes whether the newer version of the block is all zeroes.
    #[inline]
    pub fn set_zeroed(&mut self, id: EntryId, zeroed: bool) {
        self.index.set_zeroed(id, zeroed);
    }

    /// Prefetches the data that [`find`](Self::find) will access first.
    pub fn prefetch(&self, key: BlockKey) {
        self.index.prefetch(key);
    }

    /// Prefetches the data that [`find`](Self::find) will access next. Returns that block or, in
    /// rare cases, another one; `None` if there is certainly none.
    pub fn prefetch_entry(&self, key: BlockKey) -> Option<EntryId> {
        self.index.prefetch_entry(key)
    }

    /// Prefetches the data that are needed to forget `id` and then the next entry of its list.
    pub fn prefetch_chain(&self, id: EntryId) {
        self.index.prefetch_chain(id);
    }

    // ---- reads without calls ----

    /// Publishes the frame of a block, if it holds the whole block and no transfer of it is in
    /// flight.
    pub fn publish(&mut self, key: BlockKey) -> Option<Frame> {
        let id = self.index.find(key)?;
        let e = &self.index[id];
        let settled =
            e.valid() == self.granularity.all() && !e.is_leaving() && e.transfer().is_none();
        if settled { self.index.publish(id) } else { None }
    }

    /// The next frame that is no longer published.
    #[inline]
    pub fn poll_withdrawn(&mut self) -> Option<Frame> {
        self.index.poll_withdrawn()
    }

    // ---- frames ----

    /// Number of frames without a block.
    #[inline]
    pub fn frames_free(&self) -> usize {
        self.frames.free_count()
    }

    /// Takes a free frame for a block.
    #[inline]
    pub fn take_frame(&mut self, id: EntryId) -> Option<Frame> {
        self.frames.take(id)
    }

    /// The number of a frame within this shard.
    #[inline]
    pub fn local(&self, frame: Frame) -> u32 {
        self.frames.local(frame)
    }

    /// The block that has a frame, by the frame's number within this shard.
    #[inline]
    pub fn owner(&self, local: u32) -> EntryId {
        self.frames.owner(local)
    }

    /// Prefetches the data needed when the block of a frame leaves, `steps` ahead of that: 2 the
    /// frame, 1 the entry, 0 its place in the index.
    pub fn prefetch_leaving(&self, local: u32, steps: u32) {
        if steps >= 2 {
            return self.frames.prefetch(local);
        }
        let id = self.frames.owner(local);
        match steps {
            _ if id == EntryId::NONE => {}
            0 => self.index.prefetch(self.index[id].key()),
            _ => self.index.prefetch_id(id),
        }
    }

    /// Makes [`find`](Self::find) check this block first next time.
    pub fn expect(&self, id: EntryId) {
        self.index.expect(id);
    }

    /// Copies the granules that the block's frame lacks from the frame `from`.
    pub fn merge(
        &self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        from: Frame,
        granules: Granules,
    ) {
        context.stats.merges += 1;
        let e = &self.index[id];
        let (frame, missing) = (e.frame().expect("a frame to merge into"), granules & !e.valid());
        for (offset, length) in self.granularity.runs(missing) {
            let (from, to) = (Place::Frame { frame: from, offset }, Place::Frame { frame, offset });
            context.effects.push(Effect::Copy { from, to, length });
        }
    }

    /// Zeroes the part of a block's frame past the volume's end, so that payloads are well defined.
    pub fn zero_beyond(&self, context: &mut ShardContext<'_>, id: EntryId, frame: Frame) {
        let size = self.granularity().block_size();
        let bytes = self.granularity().bytes_within(context, self[id].key());
        if bytes < size {
            let to = Place::Frame { frame, offset: bytes };
            context.effects.push(Effect::Zero { to, length: size - bytes });
        }
    }

    // ---- what is dirty ----

    /// Number of blocks with dirty data in DRAM.
    pub fn dirty_in_memory(&self) -> u64 {
        self.frames.owners().filter(|&id| !self.index[id].dirty().is_empty()).count() as u64
    }

    /// Marks the volume's blocks that are dirty now, for a flush.
    pub fn mark_dirty(&mut self, volume: Volume) {
        self.frames.mark_dirty(volume);
    }

    /// Removes all marks of the volume.
    pub fn unmark_dirty(&mut self, volume: Volume) {
        self.frames.unmark_dirty(volume);
    }

    /// The volume's marked block that has been dirty longest.
    pub fn oldest_marked(&self, volume: Volume) -> Option<EntryId> {
        self.frames.oldest_marked(volume)
    }

    // ---- records ----

    /// Number of blocks whose record says that their newest data is lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The state of a block's record on flash.
    pub fn record(&self, id: EntryId) -> &RecordNode {
        self.index.record(id)
    }

    // ---- regions ----

    /// Number of records, or mappings, in a region.
    pub fn region_entries(&self, region: RegionIndex) -> u32 {
        self.regions.count(region)
    }

    /// The first block with a record in the region.
    pub fn first_of(&self, region: RegionIndex) -> Option<EntryId> {
        self.regions.first(region)
    }

    /// The blocks with records in the region.
    pub fn blocks_of(&self, region: RegionIndex) -> impl Iterator<Item = EntryId> {
        self.regions.blocks_of(&self.index, region)
    }

    /// Whether any record in the region is dirty, even if only because data is lost: a destage must
    /// know of such records, too, and of the records that replace them.
    pub fn region_is_dirty(&self, region: RegionIndex) -> bool {
        self.regions.dirty(region) > 0
    }

    /// Whether a dirty record in the region belongs to a block for which `which` is true.
    pub fn region_has_dirty(&self, region: RegionIndex, which: impl Fn(&Entry) -> bool) -> bool {
        self.region_is_dirty(region) && self.blocks_of(region).any(|id| which(&self.index[id]))
    }

    /// Begins to walk through the blocks with records in the region. There is one walk at a time.
    pub fn begin_walk(&mut self, region: RegionIndex) {
        self.regions.begin_walk(region);
    }

    /// Ends the walk.
    pub fn end_walk(&mut self) {
        self.regions.end_walk();
    }

    /// Whether the walk is at its end.
    pub fn has_walked(&self) -> bool {
        self.regions.has_walked()
    }

    /// The next block of the walk, unless the walk has ended. Skips blocks whose record has moved
    /// elsewhere.
    pub fn walk(&mut self) -> Option<EntryId> {
        self.regions.walk(&self.index)
    }
}
