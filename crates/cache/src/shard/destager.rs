//! The destager of a shard, its part of the cleaner: it writes a region's dirty records to the backing store.
//!
//! The records to clean are first chosen, then made durable in the log, then written. A record
//! appended in between is not included: a version must not reach the backing store while a power
//! cut could bring back an older record that is marked clean.
//!
//! The chosen records are destaged in address order (`stretch.rs`). Blocks that are busy with other
//! transfers are retried when those end. Then the backing stores are synced, and only after that do
//! the records count as clean: a dirty record must not be forgotten, and its region must not be
//! reused, before its data are durable elsewhere. Records that cannot be destaged are carried on
//! (`carry.rs`).
//!
//! A destager does one thing at a time, which is its state; `state.rs` has a table of what leads
//! from one state to the next. `writes.rs` decides which write begins next.

mod apart;
pub(super) mod carry;
pub(crate) mod owed;
mod sorting;
mod state;
mod stretch;
mod writes;

use core::fmt;

use forebay_effect::Outcome;
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position, RegionIndex};

use self::sorting::Sorting;
use super::ShardContext;
use super::blocks::Blocks;
use super::flash_tier::IfEvicted;
use super::tiers::Tiers;
use super::transfer::TransferKind;
use super::transfers::Transfers;
use crate::config::CacheConfig;
use crate::slab::TransferIndex;
use crate::volume_set::VolumeSet;
pub(crate) use carry::CarryState;
use carry::Carrying;
pub(crate) use state::JobState;
use state::{Choosing, DestagerState, Job};
pub(super) use stretch::Unread;
use writes::Writes;

/// The target of a cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Region(RegionIndex),
    /// Slots layout: blocks being evicted from flash, and the next ones to be evicted.
    Coldest,
}

/// The destager of a shard; see the module documentation.
#[derive(Debug)]
pub(crate) struct Destager {
    state: DestagerState,
    /// The records that were chosen to be cleaned, in address order once all are chosen; or those
    /// that are left to be carried on.
    chosen: Vec<(BlockKey, Position)>,
    sorting: Sorting<(BlockKey, Position)>,
    pub writes: Writes,
    carrying: Carrying,
}

impl Destager {
    /// A destager for a shard with `bounces` bounce frames.
    pub fn new(config: &CacheConfig, bounces: usize) -> Destager {
        let region_pages = config.flash.as_ref().map_or(0, |f| f.geometry.region_pages);
        Destager {
            state: DestagerState::Idle,
            chosen: Vec::with_capacity(region_pages as usize),
            sorting: Sorting::new(region_pages as usize),
            writes: Writes::new(region_pages, config.destage_depth.min(bounces as u32)),
            carrying: Carrying::new(region_pages),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let chosen = self.chosen.capacity() * size_of::<(BlockKey, Position)>();
        let carrying = self.carrying.memory_bytes();
        self.writes.memory_bytes() + chosen as u64 + self.sorting.memory_bytes() + carrying
    }

    /// What the destager is doing, for a report.
    pub fn describe(&self) -> impl fmt::Debug + '_ {
        &self.state
    }

    // ---- choosing ----

    /// Begins to choose the records to clean; they are written once they are durable in the log.
    /// `dirty`: whether any block of the cache is dirty. Chooses nothing of the `skipped` volumes.
    pub fn choose(&mut self, tiers: &mut Tiers, target: Target, dirty: bool, skipped: VolumeSet) {
        let mut choosing = Choosing { skipped, volumes: VolumeSet::EMPTY };
        self.chosen.clear();
        self.sorting.begin();
        tiers.blocks.end_walk();
        match target {
            Target::Region(_) if !dirty => {}
            Target::Region(region) => tiers.blocks.begin_walk(region),
            Target::Coldest => choosing.collect_coldest(tiers, &mut self.chosen),
        }
        self.state.enter(DestagerState::Choosing(choosing));
        tiers.flash.hold_cells();
    }

    /// Continues choosing within the budget of the call; returns whether all are chosen.
    pub fn choose_step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> bool {
        let Some(choosing) = self.state.choosing() else { return true };
        while !tiers.blocks.has_walked() {
            if !context.budget.take() {
                return false;
            }
            choosing.collect(tiers, &mut self.chosen);
        }
        let volumes = choosing.volumes;
        let sorted = self.sorting.step(&mut self.chosen, context.budget);
        if sorted {
            self.state.enter(DestagerState::Chosen { volumes });
        }
        sorted
    }

    /// The volumes of the chosen records.
    pub fn chosen_volumes(&self) -> VolumeSet {
        self.state.chosen_volumes()
    }

    /// Gives up the chosen records: they will not be cleaned.
    pub fn abandon(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) {
        self.state.enter(DestagerState::Idle);
        self.chosen.clear();
        tiers.blocks.end_walk();
        tiers.flash.release_cells(context);
    }

    // ---- writing ----

    /// Begins to write the chosen records, except those of the volumes to be skipped. `several`:
    /// there are several volumes. `late`: volumes whose stores are known to be late.
    pub fn begin(&mut self, skipped: VolumeSet, several: bool, late: VolumeSet) {
        self.state.enter(DestagerState::Writing(Job::new(skipped, several, late)));
        self.writes.begin(&self.chosen);
    }

    /// Advances the job.
    pub fn step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> JobState {
        self.writes.step(tiers, context, self.state.job(), &self.chosen)
    }

    /// Begins no more of the chosen records.
    pub fn cut(&mut self) {
        // (Only a job begins any.)
        _ = self.state.job();
        self.writes.cut();
    }

    /// Marks the destaged records clean, or to be destaged again if the sync of their volume has
    /// `failed`. Stops at the budget of the call; returns whether everything was done.
    pub fn end(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        failed: VolumeSet,
    ) -> bool {
        let Some(at) = self.state.settling() else { return true };
        // Only what was chosen can have been destaged.
        while let Some(&(key, _)) = self.chosen.get(*at) {
            if !context.budget.take() {
                return false;
            }
            if let Some(&(ahead, _)) = self.chosen.get(*at + 8) {
                tiers.blocks.prefetch(ahead);
            }
            *at += 1;
            if self.writes.apart.has(key) {
                continue;
            }
            if let Some(id) = tiers.blocks.find(key) {
                tiers.flash.end_destage(&mut tiers.blocks, context, id, !failed.has(key));
            }
        }
        self.state.enter(DestagerState::Idle);
        tiers.flash.release_cells(context);
        tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
        true
    }

    // ---- late stores ----

    /// The volumes whose part of the job is not done; `None` if the job waits for flash too.
    pub fn awaited(&self) -> Option<VolumeSet> {
        self.writes.awaited(&self.chosen)
    }

    /// The job continues without these volumes: no more of their records are begun, and writes in
    /// flight end apart.
    pub fn part(&mut self, tiers: &mut Tiers, volumes: VolumeSet) {
        self.writes.part(tiers, self.state.job(), &self.chosen, volumes);
    }

    // ---- writes end ----

    /// The record cannot be used: another has replaced it (`overtaken`: this one need not be
    /// destaged any more), or it cannot be read. Returns the remaining work, unless it is written
    /// from memory.
    #[must_use]
    pub fn record_unread(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        overtaken: bool,
    ) -> Option<Unread> {
        self.writes.record_unread(tiers, context, self.state.job(), t, overtaken)
    }

    /// A write to the backing store, of one record or several, has ended, successfully or not.
    pub fn written(&mut self, tiers: &Tiers, t: TransferIndex, result: Outcome) {
        let key = tiers.transfers[t].key;
        if let Err(error) = result {
            match self.writes.apart.has(key) {
                true => self.writes.apart.note_failed(key, error),
                false => self.state.job().note_failed(key.volume(), error),
            }
        }
        self.writes.write_ended(key);
    }
}

impl Choosing {
    /// Collects the dirty records of the blocks that are evicted next from flash: at most as many
    /// as a cleaning looks ahead.
    fn collect_coldest(&mut self, tiers: &mut Tiers, chosen: &mut Vec<(BlockKey, Position)>) {
        let blocks = &tiers.blocks;
        let ids = tiers.flash.take_coldest();
        let dirty = ids.filter(|&id| !blocks[id].owed().is_empty());
        chosen.extend(dirty.filter_map(|id| Some((blocks[id].key(), blocks[id].position()?))));
        self.volumes = chosen.iter().map(|(key, _)| key.volume()).collect();
    }

    /// Collects the next record of the region, if it is dirty and still has to be written.
    fn collect(&mut self, tiers: &mut Tiers, chosen: &mut Vec<(BlockKey, Position)>) {
        let Some(id) = tiers.blocks.walk() else { return };
        if self.skipped.has(tiers.blocks[id].key()) {
            return;
        }
        if tiers.blocks[id].is_unreadable() {
            tiers.blocks[id].retry_unreadable();
            tiers.flash.update_residence(&tiers.blocks, id, IfEvicted::Leaves);
        }
        let e = &tiers.blocks[id];
        if !e.owed().is_empty() && !e.is_destaged() {
            let position = e.position().expect("an entry of a region has a record");
            chosen.push((e.key(), position));
            self.volumes.insert(e.key().volume());
        }
    }
}

/// A record is on the backing store: it counts as clean when the store is synced.
pub(super) fn note_destaged(
    transfers: &Transfers,
    blocks: &mut Blocks,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
) {
    let (key, kind) = (transfers[t].key, transfers[t].kind);
    let TransferKind::DestageRecord { position, .. } = kind else { return };
    context.stats.destaged += 1;
    // A newer record may have replaced it: then nothing is owed for this one.
    let Some(id) = blocks.find_at(key, position) else { return };
    if context.mode.sabotage.is(Bug::DirtyForgottenBeforeSync) {
        return blocks.settled(context, id);
    }
    blocks[id].note_destaged();
}

#[cfg(test)]
pub(super) mod tests {
    use forebay_block::Volume;
    use forebay_effect::IoError;
    use forebay_flash::{Geometry, Granules};

    use super::*;
    use crate::cache::Cache;
    use crate::config::{FlashConfig, FlashLayout, LogReplacement, VolumeConfig};
    use crate::shard::{FlashRecord, Shard};
    use crate::world::shard_context;

    const EMPTY: VolumeSet = VolumeSet::EMPTY;

    /// A cache with three volumes over a log, whose region 0 holds a dirty record of each of these
    /// blocks.
    pub(in crate::shard) fn holding(keys: &[BlockKey]) -> Cache {
        let geometry = Geometry::for_device(64 << 20, 4096).expect("a device of that size");
        let flash = FlashConfig::plain(
            geometry,
            FlashLayout::Log { replacement: LogReplacement::Frequency },
            8.max(keys.len() as u32),
        );
        let mut cache = Cache::new(CacheConfig { flash: Some(flash), ..CacheConfig::dram_only(4) });
        (0..3).for_each(|_| _ = cache.attach(VolumeConfig::new(1 << 20)));
        for (n, &key) in keys.iter().enumerate() {
            let position = Position(geometry.first_region_page() + 1 + n as u32);
            let shard = &mut cache.world.shards[0];
            let record =
                FlashRecord { position, checksum: 0, valid: Granules(1), dirty: Granules(1) };
            shard.recovery.record(&mut shard.tiers, &mut shard_context!(cache.world), key, record);
        }
        cache
    }

    /// Calls a method of the destager until it is done, with a budget of one step a call; returns
    /// the number of calls.
    pub(super) fn repeat(
        cache: &mut Cache,
        mut step: impl FnMut(&mut Destager, &mut Tiers, &mut ShardContext<'_>) -> bool,
    ) -> u32 {
        for calls in 1.. {
            cache.world.budget.refill(1);
            let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
            if step(destager, tiers, &mut shard_context!(cache.world)) {
                return calls;
            }
            assert!(calls < 100, "it does not end");
        }
        unreachable!()
    }

    pub(super) fn choose(cache: &mut Cache, skipped: VolumeSet) -> VolumeSet {
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.choose(tiers, Target::Region(RegionIndex(0)), true, skipped);
        repeat(cache, Destager::choose_step);
        assert_eq!(repeat(cache, Destager::choose_step), 1, "all are chosen");
        cache.world.shards[0].destager.chosen_volumes()
    }

    pub(super) fn is_owed(cache: &Cache, key: BlockKey) -> bool {
        let blocks = &cache.world.shards[0].tiers.blocks;
        !blocks[blocks.find(key).expect("it has a record")].owed().is_empty()
    }

    /// Goal: each destaged record is marked clean once its store is synced, and no other. Method:
    /// calls with the smallest budget, so that each part of the work is interrupted everywhere.
    #[test]
    fn a_cleaning_settles_what_was_destaged_to_synced_stores() {
        let keys = [0, 1].map(|volume| [7, 2, 5].map(|block| BlockKey::new(Volume(volume), block)));
        let [synced, unsynced] = keys;
        let mut cache = holding(keys.as_flattened());
        let untried = synced[1];
        assert_eq!(choose(&mut cache, EMPTY), [Volume(0), Volume(1)].into_iter().collect());
        let both = [Volume(0), Volume(1)].into_iter().collect();
        cache.world.shards[0].destager.begin(both, true, EMPTY);
        // The skipped volumes stand for volumes whose writes have ended.
        cache.world.budget.refill(100);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let written = destager.step(tiers, &mut shard_context!(cache.world));
        assert!(matches!(written, JobState::Written { error: None, .. }), "{written:?}");
        for &key in keys.as_flattened().iter().filter(|&&key| key != untried) {
            let blocks = &mut cache.world.shards[0].tiers.blocks;
            let id = blocks.find(key).expect("it has a record");
            blocks[id].note_destaged();
        }
        let failed = VolumeSet::only(Volume(1));
        let calls =
            repeat(&mut cache, |destager, tiers, context| destager.end(tiers, context, failed));
        assert_eq!(calls, 6, "one for each record");
        for key in synced {
            assert_eq!(is_owed(&cache, key), key == untried, "{key}");
        }
        assert!(unsynced.iter().all(|&key| is_owed(&cache, key)));
        let again =
            repeat(&mut cache, |destager, tiers, context| destager.end(tiers, context, EMPTY));
        assert_eq!(again, 1, "another shard is not done");
        assert_eq!(choose(&mut cache, failed), VolumeSet::only(Volume(0)), "what is still dirty");
    }

    #[test]
    fn nothing_is_chosen_of_skipped_volumes_or_if_nothing_is_dirty() {
        let [one, other] = [0, 1].map(|volume| BlockKey::new(Volume(volume), 3));
        let mut cache = holding(&[one, other]);
        for (skipped, chosen) in
            [(EMPTY, [one, other].as_slice()), (VolumeSet::only(Volume(0)), &[other])]
        {
            let volumes: VolumeSet = chosen.iter().map(|key| key.volume()).collect();
            assert_eq!(choose(&mut cache, skipped), volumes);
            let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
            assert!(destager.chosen.iter().map(|(key, _)| key).eq(chosen));
            destager.abandon(tiers, &mut shard_context!(cache.world));
            assert!(destager.chosen.is_empty());
        }
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.choose(tiers, Target::Region(RegionIndex(0)), false, EMPTY);
        repeat(&mut cache, Destager::choose_step);
        assert_eq!(cache.world.shards[0].destager.chosen_volumes(), EMPTY);
    }

    #[test]
    fn a_cleaning_tries_again_what_could_not_be_read_except_of_skipped_volumes() {
        let keys = [0, 1].map(|volume| BlockKey::new(Volume(volume), 3));
        let mut cache = holding(&keys);
        let blocks = &mut cache.world.shards[0].tiers.blocks;
        keys.map(|key| blocks.entry_of(key)).iter().for_each(|&id| blocks[id].note_unreadable());
        let skipped = VolumeSet::only(Volume(0));
        assert_eq!(choose(&mut cache, skipped), VolumeSet::only(Volume(1)));
        let blocks = &cache.world.shards[0].tiers.blocks;
        assert_eq!(keys.map(|key| blocks[blocks.entry_of(key)].is_unreadable()), [true, false]);
    }

    #[test]
    fn carrying_on_and_inserting_again_end_before_another_cleaning_begins() {
        let key = BlockKey::new(Volume(0), 3);
        let mut cache = holding(&[key]);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.carry_begin(tiers, RegionIndex(0), VolumeSet::only(Volume(0)));
        assert!(destager.carry_no_more(), "it did not know");
        assert!(!destager.carry_no_more());
        assert_eq!(
            destager.carry_step(tiers, &mut shard_context!(cache.world)),
            CarryState::Unreadable,
            "what another shard cannot read keeps the region"
        );
        destager.append_end();
        destager.reinsert_choose(tiers, RegionIndex(0), 100);
        let mut pages = None;
        repeat(&mut cache, |destager, tiers, context| {
            pages = destager.reinsert_choose_step(tiers, context);
            pages.is_some()
        });
        assert_eq!(pages, Some(0), "a dirty record is not inserted again");
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let step = destager.reinsert_step(tiers, &mut shard_context!(cache.world));
        assert_eq!(step, CarryState::Done);
        destager.append_end();
        assert_eq!(choose(&mut cache, EMPTY), VolumeSet::only(Volume(0)));
    }

    /// Goal: a failed read makes a record unreadable only if that record is still the block's, and
    /// owed. Method: it is replaced, or marked clean, while it is read to be carried on.
    #[test]
    fn a_record_that_is_gone_when_its_read_fails_makes_no_other_unreadable() {
        let key = BlockKey::new(Volume(0), 3);
        for (replaced, synced) in [(false, false), (true, false), (false, true)] {
            let mut cache = holding(&[key]);
            let context = &mut shard_context!(cache.world);
            let Shard { destager, tiers, recovery, .. } = &mut cache.world.shards[0];
            let id = tiers.blocks.entry_of(key);
            let position = tiers.blocks[id].position().expect("it has a record");
            destager.carry_begin(tiers, RegionIndex(0), VolumeSet::only(Volume(0)));
            assert_eq!(destager.carry_step(tiers, context), CarryState::Busy);
            let t = tiers.blocks[id].transfer().expect("its record is being read");
            if replaced {
                let position = Position(position.0 + 100);
                let (valid, dirty) = (Granules(1), Granules(1));
                let record = FlashRecord { position, checksum: 0, valid, dirty };
                recovery.record(tiers, context, key, record);
            }
            if synced {
                tiers.blocks[id].note_destaged();
                tiers.flash.end_destage(&mut tiers.blocks, context, id, true);
            }
            let failed = Err(IoError::Device);
            assert!(destager.carry_read(tiers, context, t, position, failed), "its read has ended");
            let kept = !replaced && !synced;
            assert_eq!(tiers.blocks[id].is_unreadable(), kept);
            assert_eq!(tiers.flash.unreadable(&tiers.blocks).count(), usize::from(kept));
            assert_eq!(destager.carry_no_more(), !kept, "the region keeps what is unreadable");
        }
    }

    /// A late store may have taken the record, and have been synced, although flash cannot be read.
    #[test]
    fn a_record_that_its_store_has_is_not_reported_as_unreadable() {
        let key = BlockKey::new(Volume(0), 3);
        for synced in [false, true] {
            let mut cache = holding(&[key]);
            let context = &mut shard_context!(cache.world);
            let Shard { tiers, .. } = &mut cache.world.shards[0];
            let id = tiers.blocks.entry_of(key);
            let position = tiers.blocks[id].position().expect("it has a record");
            tiers.blocks[id].note_destaged();
            assert!(tiers.flash.note_unreadable(&mut tiers.blocks, key, position));
            tiers.flash.end_destage(&mut tiers.blocks, context, id, synced);
            assert_eq!(tiers.blocks[id].is_unreadable(), !synced);
            assert_eq!(tiers.flash.unreadable(&tiers.blocks).count(), usize::from(!synced));
        }
    }

    #[test]
    #[should_panic(expected = "a destager goes from CarryingOn")]
    fn a_cleaning_does_not_begin_while_records_are_carried_on() {
        let mut cache = holding(&[]);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        destager.carry_begin(tiers, RegionIndex(0), EMPTY);
        choose(&mut cache, EMPTY);
    }
}
