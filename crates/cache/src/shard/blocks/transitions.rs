//! The transitions of a block: all ways in which its granules change, and the flag that it is
//! leaving memory. Each changes the sets of granules together with the counts and lists over all
//! blocks that depend on them.
//!
//! | transition | when | `valid` | `dirty` | `flash_valid` | `flash_dirty` |
//! | --- | --- | --- | --- | --- | --- |
//! | [`arrived`] | the frame has received data that the log or the store has too | adds the granules, except lost ones | | | |
//! | [`dirtied`] | the frame has received data of a write that ends in the cache | adds the granules | adds the granules | | |
//! | [`outdated`] | a direct write makes the frame's data old or unknown | removes the granules | | | |
//! | [`left`] | the block leaves its frame | becomes empty | is empty | | |
//! | [`stored`] | the store has taken the frame's dirty granules | | becomes empty | | |
//! | [`record_replaced`] | the log has a newer record, or a copy of the record elsewhere; or the record is void | | removes the granules that the log took from the frame | as in the record, or empty | as in the record, or empty |
//! | [`record_unusable`] | the record, which the store does not need, cannot be read | | | becomes empty | |
//! | [`settled`] | the store is synced, and has all granules of the record | | | | keeps only lost granules |
//!
//! | transition | when | the block is leaving |
//! | --- | --- | --- |
//! | [`leaves`] | the policy has named it as a victim, or it goes when its append has ended | becomes true |
//! | [`passes`] | it gets a frame for one operation only, which the policy does not know | becomes true |
//! | [`stays`] | it is used again, or cannot leave | becomes false |
//! | [`left`] | the block leaves its frame | becomes false |
//!
//! Callers outside the parts of [`Tiers`](crate::shard::tiers::Tiers) use the methods that add what
//! follows for the other parts: `Tiers::release_frame` for [`left`], `Tiers::rescue` and
//! `Tiers::readmit` for [`stays`], `Tiers::outdate` for [`outdated`], and for the records
//! `FlashTier::set_record`, `FlashTier::logged` and `FlashTier::settled`.
//!
//! [`arrived`]: Blocks::arrived
//! [`dirtied`]: Blocks::dirtied
//! [`outdated`]: Blocks::outdated
//! [`left`]: Blocks::left
//! [`stored`]: Blocks::stored
//! [`record_replaced`]: Blocks::record_replaced
//! [`record_unusable`]: Blocks::record_unusable
//! [`settled`]: Blocks::settled
//! [`leaves`]: Blocks::leaves
//! [`passes`]: Blocks::passes
//! [`stays`]: Blocks::stays

use forebay_block::Volume;
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Granules, Position, RegionIndex};

use super::entry::{Entry, EntryId};
use super::{Blocks, FlashRecord, RegionMove};
use crate::shard::ShardContext;
use crate::shard::frames::Frame;

impl Blocks {
    // ---- the frame ----

    /// The frame has received these granules, and the log or the backing store has the same
    /// version. Lost granules are left out: the store has only an older version of them.
    #[inline]
    pub fn arrived(&mut self, id: EntryId, granules: Granules) {
        let e = &mut self.index[id];
        e.valid |= granules & !e.lost();
    }

    /// A write or zeroing that ends in the cache has changed these granules of the frame. The block
    /// enters its volume's dirty list as the newest, unless it is in the list.
    #[inline]
    pub fn dirtied(&mut self, context: &mut ShardContext<'_>, id: EntryId, granules: Granules) {
        self.store(context, id, |e| {
            e.valid |= granules;
            e.dirty |= granules;
        });
        self.list_dirty(id);
    }

    /// A direct write has made the frame's data of these granules old, or it is unknown which
    /// version the backing store has.
    pub fn outdated(&mut self, id: EntryId, granules: Granules) {
        let e = &mut self.index[id];
        assert!((e.dirty & granules).is_empty(), "direct write over dirty granules");
        e.valid &= !granules;
        assert!(e.dirty.is_empty() || e.holds_record(), "a dirty frame loses granules");
    }

    /// The block leaves memory: it is in no list of the policy any more, and releases its frame
    /// when nothing is in flight.
    #[inline]
    pub fn leaves(&mut self, id: EntryId) {
        self.index[id].leave();
    }

    /// The block gets a frame in which it only passes through memory.
    pub fn passes(&mut self, id: EntryId, frame: Frame) {
        self.index[id].set_frame(Some(frame));
        self.leaves(id);
    }

    /// The block, which was leaving, stays in memory.
    pub fn stays(&mut self, id: EntryId) {
        self.index[id].stay();
    }

    /// The block leaves its frame. Returns the frame, which is now free.
    #[inline]
    pub fn left(&mut self, id: EntryId) -> Frame {
        let e = &mut self.index[id];
        let frame = e.frame().expect("a frame to release");
        assert!(e.dirty.is_empty() && !e.is_listed(), "a dirty frame released");
        e.stay();
        e.set_frame(None);
        e.valid = Granules::EMPTY;
        self.frames.release(frame);
        frame
    }

    /// The backing store has taken the frame's dirty granules.
    pub fn stored(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        self.unlist_dirty(id);
        self.store(context, id, |e| e.dirty = Granules::EMPTY);
    }

    // ---- the record ----

    /// The block's newest record is `to`; the log took the granules `taken` of it from the frame.
    pub fn record_replaced(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
        taken: Granules,
    ) {
        if let Some(old) = self.index[id].position() {
            self.regions.unlist(&mut self.index, id, region_of(context, old));
        }
        self.store(context, id, |e| {
            e.forget_tries();
            e.dirty &= !taken;
            e.set_position(to.map(|record| record.position));
            (e.flash_valid, e.flash_dirty) = to
                .map_or((Granules::EMPTY, Granules::EMPTY), |record| (record.valid, record.dirty));
        });
        if let Some(FlashRecord { position, checksum, .. }) = to {
            self.index.record_mut(id).checksum = checksum;
            self.regions.list(&mut self.index, id, region_of(context, position));
        }
    }

    /// The mapping of the block's record is in another region.
    pub fn mapping_moved(
        &mut self,
        key: BlockKey,
        position: Position,
        RegionMove { from, to }: RegionMove,
    ) {
        let Some(id) = self.find_at(key, position) else { return };
        self.regions.unlist(&mut self.index, id, from);
        self.regions.list(&mut self.index, id, to);
        if !self.index[id].flash_dirty.is_empty() {
            self.regions.count_dirty(from, false);
            self.regions.count_dirty(to, true);
        }
    }

    /// The block's record cannot be read, but the backing store has all its granules. The record
    /// remains until its region is free or, in the slots layout, until it is forgotten on flash.
    pub fn record_unusable(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        self.store(context, id, |e| e.flash_valid = Granules::EMPTY);
    }

    /// The backing store durably has all that the block's record holds. Lost granules stay dirty.
    pub fn settled(&mut self, context: &mut ShardContext<'_>, id: EntryId) {
        self.store(context, id, |e| {
            e.forget_tries();
            e.flash_dirty = e.lost_on_flash();
        });
    }

    // ---- what follows from the granules ----

    /// Changes an entry, and the counts of dirty and lost data that depend on it. All changes of
    /// `dirty` and of the record's granules go through this function.
    #[inline]
    fn store(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        change: impl FnOnce(&mut Entry),
    ) {
        let e = &mut self.index[id];
        let before = e.clone();
        change(e);
        assert!(
            e.dirty.is_empty()
                || e.holds_record()
                || context.mode.sabotage.is(Bug::PartialHidesOlder),
            "a dirty frame lacks granules that the record holds"
        );
        self.lost -= u32::from(!before.lost_on_flash().is_empty());
        self.lost += u32::from(!e.lost_on_flash().is_empty());
        let volume = e.key().volume();
        let stats = &mut context.volumes[volume].stats;
        match (before.is_dirty(), e.is_dirty()) {
            (false, true) => {
                stats.dirty_blocks += 1;
                stats.dirty_blocks_max = stats.dirty_blocks_max.max(stats.dirty_blocks);
                context.volumes.dirty_blocks += 1;
            }
            (true, false) => {
                stats.dirty_blocks -= 1;
                context.volumes.dirty_blocks -= 1;
            }
            _ => {}
        }
        let (from, to) = (before.dirty_record(), e.dirty_record());
        if from != to {
            self.count_dirty_record(context, volume, from, to);
        }
    }

    /// Counts a volume's dirty record at `to` instead of `from`.
    fn count_dirty_record(
        &mut self,
        context: &mut ShardContext<'_>,
        volume: Volume,
        from: Option<Position>,
        to: Option<Position>,
    ) {
        if let Some(position) = from {
            self.regions.count_dirty(region_of(context, position), false);
        }
        if let Some(position) = to {
            self.regions.count_dirty(region_of(context, position), true);
        }
        context.volumes.note_owed(volume, from.is_some(), to.is_some());
    }

    /// Adds the block to its volume's dirty list as the newest, unless it is in a list.
    #[inline]
    fn list_dirty(&mut self, id: EntryId) {
        let e = &mut self.index[id];
        if !e.is_listed() {
            e.list();
            let frame = e.frame().expect("dirty granules are in a frame");
            self.frames.push_dirty(frame, e.key().volume());
        }
    }

    /// Removes the block from its volume's dirty list, if it is there: the log or the backing store
    /// takes it.
    #[inline]
    pub fn unlist_dirty(&mut self, id: EntryId) {
        let e = &mut self.index[id];
        if e.is_listed() {
            e.unlist();
            let frame = e.frame().expect("dirty granules are in a frame");
            self.frames.remove_dirty(frame, e.key().volume());
        }
    }

    /// Returns the block to the dirty list if it is dirty, because the transfer that was to make it
    /// clean has failed.
    #[inline]
    pub fn relist_dirty(&mut self, id: EntryId) {
        if !self.index[id].dirty.is_empty() {
            self.list_dirty(id);
        }
    }
}

fn region_of(context: &ShardContext<'_>, position: Position) -> RegionIndex {
    context.log.of(position).region_of(position)
}
