//! The blocks of a shard: which are cached, in which frame, and which parts of them are dirty.
//!
//! The invariants of a single block are at [`Entry`]. The counts and lists over all blocks are
//! here: a frame is in the dirty list of its volume exactly while its entry says so
//! ([`IN_DIRTY_LIST`]), and the volumes' gauges of dirty blocks change together with the masks.

use core::ops;

use forebay_block::Volume;
use forebay_effect::{Effect, Place};
use forebay_flash::{BlockKey, Position};

use super::ShardContext;
use super::entry::{DESTAGED, Entry, EntryId, IN_DIRTY_LIST, LEAVING, RecordNode, UNREADABLE};
use super::frames::{Frame, Frames};
use super::granules::Granules;
use super::index::Index;
use crate::allocation::Held;
use crate::config::CacheConfig;
use crate::volumes::Volumes;

/// A record on flash, as described by its block's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashRecord {
    pub position: Position,
    pub checksum: u32,
    /// The granules in it, and those of them that the backing store may lack.
    pub valid: u16,
    pub dirty: u16,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Blocks {
    index: Index,
    frames: Frames,
    granules: Granules,
    /// Blocks whose record says that their newest data is lost.
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
    /// Room for `entries` blocks; those in DRAM have `frames`.
    pub fn new(config: &CacheConfig, entries: u32, frames: Frames) -> Blocks {
        Blocks {
            index: Index::new(
                entries,
                config.stripe_shift - config.block_size.shift(),
                config.flash.is_some(),
            ),
            frames,
            granules: Granules::new(config.block_size),
            lost: 0,
        }
    }

    pub fn add_volume(&mut self) {
        self.frames.add_volume();
    }

    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.frames.memory_bytes()
    }

    /// Sizes of blocks and of their parts.
    #[inline]
    pub fn granules(&self) -> Granules {
        self.granules
    }

    // ---- entries ----

    /// Number of known blocks.
    pub fn len(&self) -> u32 {
        self.index.len()
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
            Some(id) if self.index.is_zeroed(id) && self.index[id].lost() == 0 => Held::Zeroes,
            Some(_) => Held::Data,
        }
    }

    /// There is a newer version of the block: sets whether it is all zeroes.
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
        let settled = e.valid == self.granules.all() && !e.has(LEAVING) && e.transfer().is_none();
        if settled { self.index.publish(id) } else { None }
    }

    /// A frame that is no longer published.
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

    /// The frame is free.
    #[inline]
    pub fn free_frame(&mut self, frame: Frame) {
        self.frames.release(frame);
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

    /// The block that [`find`](Self::find) checks first next time.
    pub fn expect(&self, id: EntryId) {
        self.index.expect(id);
    }

    /// The state of a block's record on flash.
    pub fn record(&self, id: EntryId) -> &RecordNode {
        self.index.record(id)
    }

    pub fn record_mut(&mut self, id: EntryId) -> &mut RecordNode {
        self.index.record_mut(id)
    }

    /// Copies into the frame the granules of `mask` that it lacks.
    pub fn merge(&self, context: &mut ShardContext<'_>, id: EntryId, from: Frame, mask: u16) {
        context.stats.merges += 1;
        let e = &self.index[id];
        let (frame, missing) = (e.frame().expect("a frame to merge into"), mask & !e.valid);
        for (offset, length) in self.granules.runs(missing) {
            let (from, to) = (Place::Frame { frame: from, offset }, Place::Frame { frame, offset });
            context.effects.push(Effect::Copy { from, to, length });
        }
    }

    // ---- what is dirty ----

    /// Blocks with dirty data in DRAM.
    pub fn dirty_in_memory(&self) -> u64 {
        self.frames.owners().filter(|&id| self.index[id].dirty != 0).count() as u64
    }

    /// Updates the volume's gauge of dirty blocks after a change to the entry.
    #[inline]
    pub fn count_dirty(&self, id: EntryId, was: bool, volumes: &mut Volumes) {
        let e = &self.index[id];
        let stats = &mut volumes[e.key().volume()].stats;
        match (was, e.is_dirty()) {
            (false, true) => {
                stats.dirty_blocks += 1;
                stats.dirty_blocks_max = stats.dirty_blocks_max.max(stats.dirty_blocks);
                volumes.dirty_blocks += 1;
            }
            (true, false) => {
                stats.dirty_blocks -= 1;
                volumes.dirty_blocks -= 1;
            }
            _ => {}
        }
    }

    /// Adds the block to its volume's dirty list as the newest, unless it is in a list.
    #[inline]
    pub fn list_dirty(&mut self, id: EntryId) {
        let e = &mut self.index[id];
        if !e.has(IN_DIRTY_LIST) {
            e.set(IN_DIRTY_LIST);
            let frame = e.frame().expect("dirty granules are in a frame");
            self.frames.push_dirty(frame, e.key().volume());
        }
    }

    /// Removes the block from its volume's dirty list, if it is there.
    #[inline]
    pub fn unlist_dirty(&mut self, id: EntryId) {
        let e = &mut self.index[id];
        if e.has(IN_DIRTY_LIST) {
            e.clear(IN_DIRTY_LIST);
            let frame = e.frame().expect("dirty granules are in a frame");
            self.frames.remove_dirty(frame, e.key().volume());
        }
    }

    /// The transfer that was to make the block clean has failed: returns it to the dirty list if it
    /// is dirty.
    #[inline]
    pub fn relist_dirty(&mut self, id: EntryId) {
        if self.index[id].dirty != 0 {
            self.list_dirty(id);
        }
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

    /// Blocks whose record says that their newest data is lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Sets the block's newest record.
    pub fn set_record(&mut self, id: EntryId, to: Option<FlashRecord>) {
        let e = &mut self.index[id];
        self.lost -= u32::from(e.lost_on_flash() != 0);
        e.clear(DESTAGED | UNREADABLE);
        match to {
            None => {
                e.set_position(None);
                (e.flash_valid, e.flash_dirty) = (0, 0);
            }
            Some(FlashRecord { position, checksum, valid, dirty }) => {
                e.set_position(Some(position));
                (e.flash_valid, e.flash_dirty) = (valid, dirty);
                self.index.record_mut(id).checksum = checksum;
                self.lost += u32::from(dirty & !valid != 0);
            }
        }
    }
}
