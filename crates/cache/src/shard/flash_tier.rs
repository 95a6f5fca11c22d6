//! A shard's part of flash: what happens to the records of its blocks, and what depends on their
//! layout. The records themselves are part of [`Blocks`].

mod evict;
mod held_cells;
mod log_layout;
mod moves;
mod replacement;
mod returns;
mod slots_layout;
mod unreadable;

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Granules, Log, Position, RegionIndex};
use forebay_replacement::{Offer, Queues};

use self::log_layout::LogLayout;
use self::replacement::FlashReplacement;
pub(super) use self::slots_layout::IfEvicted;
use self::slots_layout::SlotsLayout;
use self::unreadable::UnreadableEntries;
use super::blocks::{Blocks, FlashRecord};
use super::entry::EntryId;
use super::{LogAccess, ShardContext};
use crate::config::{CacheConfig, FlashLayout};
use crate::shard::tiers::ShardSizes;
pub(crate) use moves::MoveState;

/// A shard's part of flash; see the module documentation.
#[derive(Debug)]
pub(crate) struct FlashTier {
    /// Number of index entries for blocks on flash.
    entries: u32,
    /// Bytes of the device.
    size: u64,
    /// The number of reads from flash that moves a block into DRAM.
    promote_after: u8,
    /// The first blocks whose dirty record could not be read.
    unreadable: UnreadableEntries,
    layout: TierLayout,
}

/// The state that depends on how flash stores records. A shard has one of them, for the whole run.
#[derive(Debug)]
enum TierLayout {
    /// There is no flash.
    Absent,
    Log(LogLayout),
    Slots(SlotsLayout),
}

/// Progress of forgetting a freed region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Forgotten {
    All,
    /// Some records were forgotten just now; more follow.
    Some,
    /// No record was forgotten: the call has used its budget.
    Nothing,
}

impl FlashTier {
    pub fn new(shard: u8, config: &CacheConfig, sizes: ShardSizes) -> FlashTier {
        let flash = config.flash.as_ref();
        let layout = match flash.map(|flash| (flash, &flash.layout)) {
            None => TierLayout::Absent,
            Some((_, &FlashLayout::Log { replacement })) => {
                assert!(!config.relation.has_queues(), "queues evict single blocks");
                TierLayout::Log(LogLayout::new(replacement, sizes))
            }
            Some((flash, FlashLayout::Slots(slots))) => {
                TierLayout::Slots(SlotsLayout::new(shard, config, flash, slots, sizes))
            }
        };
        FlashTier {
            entries: sizes.flash_entries,
            size: flash.map_or(0, |f| f.geometry.device_bytes()),
            promote_after: flash.map_or(1, |f| f.promote_after),
            unreadable: UnreadableEntries::new(),
            layout,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        match &self.layout {
            TierLayout::Absent => 0,
            TierLayout::Log(log) => log.memory_bytes(),
            TierLayout::Slots(slots) => slots.memory_bytes(),
        }
    }

    /// Number of index entries for blocks on flash.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The state of replacement on flash; empty in other layouts.
    pub fn describe(&self, blocks: &Blocks) -> String {
        self.slots().map_or_else(String::new, |slots| slots.describe(blocks))
    }

    #[inline]
    fn slots(&self) -> Option<&SlotsLayout> {
        match &self.layout {
            TierLayout::Slots(slots) => Some(slots),
            TierLayout::Absent | TierLayout::Log(_) => None,
        }
    }

    #[inline]
    fn slots_mut(&mut self) -> Option<&mut SlotsLayout> {
        match &mut self.layout {
            TierLayout::Slots(slots) => Some(slots),
            TierLayout::Absent | TierLayout::Log(_) => None,
        }
    }

    /// The slots layout, with the log that its steps need. (Where there is flash, there is a log.)
    #[inline]
    fn slots_with<'l>(
        &mut self,
        log: &'l mut LogAccess<'_>,
    ) -> Option<(&mut SlotsLayout, &'l mut Log)> {
        self.slots_mut().zip(log.get_mut())
    }

    /// Replacement on flash, in the slots layout.
    #[inline]
    fn replacement(&self) -> Option<&FlashReplacement> {
        self.slots().map(SlotsLayout::replacement)
    }

    // ---- records ----

    /// Notes that the log has written a record from the block's frame.
    pub fn logged(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        record: FlashRecord,
    ) {
        self.outdate_record(blocks, context, id, Some(record), record.dirty);
    }

    /// Replaces the block's newest record by one with other contents, or by none. The older one
    /// leaves a hole in its region.
    pub fn set_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
    ) {
        self.outdate_record(blocks, context, id, to, Granules::EMPTY);
    }

    fn outdate_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
        taken: Granules,
    ) {
        context.stats.records_outdated += u64::from(blocks[id].position().is_some());
        self.put_record(blocks, context, id, to, taken);
        if let TierLayout::Log(log) = &mut self.layout {
            log.record_replaced(id, to.is_some());
        }
    }

    /// Replaces the block's record by one elsewhere, or by none; the log took the granules `taken`
    /// from the frame.
    fn put_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<FlashRecord>,
        taken: Granules,
    ) {
        let old = blocks[id].position();
        blocks.record_replaced(context, id, to, taken);
        if !blocks[id].lost_on_flash().is_empty() {
            self.unreadable.note(blocks, blocks[id].key());
        }
        let careless = context.mode.sabotage.is(Bug::ChosenCellsUsedAgain);
        if let Some((slots, log)) = self.slots_with(&mut context.log) {
            slots.record_replaced(blocks, log, id, (old, to.is_some()), careless);
        }
    }

    /// Notes that the backing store durably has the data of the block's record.
    pub fn settled(&mut self, blocks: &mut Blocks, context: &mut ShardContext<'_>, id: EntryId) {
        blocks.settled(context, id);
        self.update_residence(blocks, id, IfEvicted::Leaves);
    }

    /// Ends the destage of the block's record. `synced`: its store durably has what was written.
    pub fn end_destage(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        synced: bool,
    ) {
        if blocks[id].is_destaged() {
            blocks[id].end_destage();
            if synced {
                self.settled(blocks, context, id);
            }
        }
    }

    /// Notes that the block's record is at the head of the log, unchanged.
    pub fn reinserted(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: FlashRecord,
    ) {
        self.put_record(blocks, context, id, Some(to), Granules::EMPTY);
        if let TierLayout::Log(log) = &mut self.layout {
            log.reinserted(id);
        }
    }

    /// Notes that all records of the block are void.
    pub fn forget_record(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) {
        blocks[id].trust();
        if blocks[id].position().is_some() {
            assert!(blocks[id].flash_dirty().is_empty(), "a dirty record would be voided");
            self.set_record(blocks, context, id, None);
        }
    }

    /// The region is free: nothing may refer to it any more. Forgets its records within the budget
    /// of the call; returns whether that made room in the index.
    pub fn forget_region(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        region: RegionIndex,
    ) -> (Forgotten, bool) {
        let (mut any, mut room) = (false, false);
        while let Some(id) = blocks.first_of(region) {
            if !context.budget.take() {
                return (if any { Forgotten::Some } else { Forgotten::Nothing }, room);
            }
            any = true;
            assert!(blocks[id].flash_dirty().is_empty(), "a freed region holds dirty records");
            blocks.prefetch_chain(blocks.record(id).next);
            self.put_record(blocks, context, id, None, Granules::EMPTY);
            if let TierLayout::Log(log) = &mut self.layout {
                log.record_replaced(id, false);
            }
            context.stats.reclaim_dropped += u64::from(blocks[id].frame().is_none());
            room |= self.forget_if_empty(blocks, context, id);
        }
        (Forgotten::All, room)
    }

    /// Forgets an empty entry; returns whether it was empty.
    #[inline]
    pub fn forget_if_empty(
        &mut self,
        blocks: &mut Blocks,
        context: &ShardContext<'_>,
        id: EntryId,
    ) -> bool {
        let e = &blocks[id];
        let holds = e.frame().is_some() || e.position().is_some() || e.transfer().is_some();
        let forget = !holds && (!e.is_doubtful() || context.flash.is_without(e.key()));
        if forget {
            if let Some(slots) = self.slots_mut() {
                slots.forget(blocks, id);
            }
            blocks.remove(id);
        }
        forget
    }

    // ---- records that cannot be read ----

    /// Blocks whose newest data cannot be read from flash: some of those that cleaning has found,
    /// excluding those written again since.
    pub fn unreadable(&self, blocks: &Blocks) -> impl Iterator<Item = BlockKey> {
        self.unreadable.iter(blocks)
    }

    /// The record of the block at `position` could not be read. Returns whether its store still
    /// needs it: a newer record may have replaced it meanwhile, or the store may have it by now.
    pub fn note_unreadable(
        &mut self,
        blocks: &mut Blocks,
        key: BlockKey,
        position: Position,
    ) -> bool {
        let owed = |&id: &EntryId| !blocks[id].owed().is_empty();
        let Some(id) = blocks.find_at(key, position).filter(owed) else { return false };
        blocks[id].note_unreadable();
        self.update_residence(blocks, id, IfEvicted::Leaves);
        self.unreadable.note(blocks, key);
        true
    }

    // ---- admission ----

    /// The inputs of an admission policy, except the block.
    pub fn offer(&self, context: &ShardContext<'_>) -> Offer {
        let written = context.log.get().map_or(0, |log| log.stats().bytes_written());
        let (second, flash, stores) = context.loads.map_or((0, 0, 0), |loads| loads.last());
        Offer { now: context.now.0, written, size: self.size, second, flash, stores }
    }

    /// The queues that decide which blocks enter and leave flash, if there are any.
    #[inline]
    pub fn queues(&mut self) -> Option<&mut Queues> {
        self.slots_mut().and_then(SlotsLayout::queues)
    }

    // ---- reads from flash ----

    /// Notes that a client's access reads the block's record from flash.
    #[inline]
    pub fn note_use(&mut self, id: EntryId) {
        match &mut self.layout {
            TierLayout::Absent => {}
            TierLayout::Log(log) => log.note_use(id),
            TierLayout::Slots(slots) => slots.note_use(id),
        }
    }

    /// Whether the next read from flash moves the block into DRAM. An evicted block always moves.
    #[inline]
    pub fn promotes(&self, blocks: &Blocks, id: EntryId) -> bool {
        let least = self.slots().map_or(1, |slots| slots.promotes_after(blocks, id));
        let after = self.promote_after.max(least);
        after == 1
            || self.readings(id).saturating_add(1) >= after
            || self.is_held_after_eviction(blocks, id)
    }

    /// How often the block's record was read, as far as the layout counts.
    #[inline]
    fn readings(&self, id: EntryId) -> u8 {
        match &self.layout {
            TierLayout::Absent => 0,
            TierLayout::Log(log) => log.uses(id),
            TierLayout::Slots(slots) => slots.replacement().readings(id),
        }
    }

    /// The reads or the popularity of the block's record, if that makes it worth reinserting.
    pub fn worth(&self, id: EntryId) -> Option<u8> {
        match &self.layout {
            TierLayout::Log(log) => log.worth(id),
            TierLayout::Absent | TierLayout::Slots(_) => None,
        }
    }

    /// Whether the records with the highest worth are taken first.
    pub fn takes_hottest(&self) -> bool {
        matches!(&self.layout, TierLayout::Log(log) if log.takes_hottest())
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;
    use forebay_effect::IoError;

    use super::*;
    use crate::byte_range::ByteRange;
    use crate::shard::Shard;
    use crate::shard::destager::tests::holding;
    use crate::shard::transfer::TransferKind;
    use crate::world::shard_context;

    /// Goal: a block is not written directly while a start may find a record of it that its entry
    /// does not name. Method: the log refuses the block's append, and its records are void later.
    #[test]
    fn a_block_that_the_log_may_have_is_bound_until_its_records_are_void() {
        let key = BlockKey::new(Volume(0), 3);
        let mut cache = holding(&[]);
        cache.world.flash.close();
        let context = &mut shard_context!(cache.world);
        let shard = &mut cache.world.shards[0];
        let Shard { tiers, .. } = shard;
        let id = tiers.blocks.insert(key).expect("the index has room");
        let (valid, dirty) = (Granules(1), Granules::EMPTY);
        let kind = TransferKind::Append { valid, dirty };
        let range = ByteRange::EMPTY;
        let t = tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, range);
        shard.append_failed(context, t, IoError::Device);
        let Shard { tiers, .. } = shard;
        let kept = tiers.blocks.find(key);
        assert_eq!(kept, Some(id), "the entry says that there may be a record");
        assert!(tiers.blocks[id].is_bound() && !tiers.blocks[id].is_dirty());
        tiers.flash.forget_record(&mut tiers.blocks, context, id);
        assert!(!tiers.blocks[id].is_bound());
        assert!(tiers.flash.forget_if_empty(&mut tiers.blocks, context, id));
    }
}
