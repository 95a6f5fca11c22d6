//! Reclaims a region that the log wants to reuse, after its dirty records are destaged. Its
//! mappings move, or its remaining records are carried on; records worth keeping are inserted
//! again; then the region is freed.

use forebay_effect::Outcome;
use forebay_flash::{BatchSequence, Geometry, Layout, Log, LogStats, MoveRoom, RegionIndex};

use super::{Cleaner, Ending, ReclaimPhase, ReclaimProgress, Retries, Surroundings, Work};
use crate::shard::owed::{self, Owed, Settling};
use crate::shard::{CarryState, MoveState, Shard};
use crate::stamp::Stamps;
use crate::volume_set::VolumeSet;
use crate::world::{Turn, World, shard_context};

/// Most unreadable records of a region that are given up as lost to make room.
const LOST_MAX: u64 = 16;

/// Most bytes that are inserted again for each hundred bytes that enter flash for the first time.
const REINSERTED_PERCENT: u64 = 40;

/// Most pages of a region that may be inserted again: at most half, so that each reclaimed region
/// makes room, and few enough that rewriting does not wear out flash.
fn may_reinsert(log: &LogStats, geometry: &Geometry) -> u32 {
    let first = log.payload_bytes - log.carried_bytes;
    let left = (first / 100 * REINSERTED_PERCENT).saturating_sub(log.carried_bytes);
    let pages = left / u64::from(geometry.page_size);
    u64::from((geometry.usable_pages() - 1) / 2).min(pages) as u32
}

/// What becomes of a region to reclaim after its dirty records were written, as far as they could be.
///
/// | the region | outcome |
/// | --- | --- |
/// | holds no dirty record, and no write failed | `Clean` |
/// | holds none, but a write or sync failed | `Failed` |
/// | holds some that can be carried on, and that helps | `CarriedOn` |
/// | likewise, but the log has room for them only when the regions released before are free | `Crowded` |
/// | likewise, but carrying on makes no room, and no request needs any | `Parked` |
/// | holds others, and a write or sync failed | `Failed` |
/// | holds some of late stores, and all else went well | `Postponed` |
/// | holds some of stores that are known to fail | `Failed` |
/// | holds others: unreadable ones | `Unreadable` |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reclaimed {
    /// Records worth keeping are inserted again, then the region is freed.
    Clean,
    /// The remaining records move to the head of the log, with those of these volumes; then the region is freed.
    CarriedOn(VolumeSet),
    /// The region is not freed for now.
    Stays(Ending),
}

/// The volumes whose records a cleaning has left dirty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// They were not tried.
    pub skipped: VolumeSet,
    /// Their writes or syncs have failed.
    pub failed: VolumeSet,
    /// All failed ones are known to fail.
    pub known: bool,
}

impl Cleaner {
    /// Whether the next reclaim has to begin: a request waits for room, or the region that was put aside because it was
    /// dirty is clean.
    pub(super) fn needs_region(&self, world: &World) -> bool {
        let dirty = |region| world.shards.iter().any(|s| s.tiers.blocks.region_is_dirty(region));
        world.somebody_waits() || self.queue.parked().is_some_and(|region| !dirty(region))
    }

    /// The cleaning takes the next step of emptying its region.
    pub(super) fn step_reclaim(
        &mut self,
        s: &mut Surroundings<'_>,
        region: RegionIndex,
        phase: ReclaimPhase,
    ) -> Turn {
        match phase {
            ReclaimPhase::Moving { failed } => Turn::from(self.step_moves(s, region, failed)),
            ReclaimPhase::Carrying => self.step_carry(s, region),
            ReclaimPhase::Picking { shard, pages } => self.step_picking(s, region, (shard, pages)),
            ReclaimPhase::Reinserting => self.step_reinsertions(s, region),
            ReclaimPhase::Releasing => self.step_releasing(s, region),
        }
    }

    /// Carries on the remaining records of the region to reclaim.
    fn step_carry(&mut self, s: &mut Surroundings<'_>, region: RegionIndex) -> Turn {
        let (mut busy, mut unreadable) = (false, false);
        for n in 0..s.world.shards.len() {
            let shard = &mut s.world.shards[n];
            match shard.destager.carry_step(&mut shard.tiers, &mut shard_context!(s.world)) {
                CarryState::Done => {}
                CarryState::Busy => busy = true,
                CarryState::Unreadable => unreadable = true,
                CarryState::Failed => {
                    end_appending(&mut s.world.shards);
                    self.end_untold(Ending::Dropped, s.world.now);
                    return Turn::Something;
                }
            }
        }
        if busy {
            // The records that other shards read now still go to the log, which forms their batch only when these
            // shards close it.
            let mut told = false;
            for shard in s.world.shards.iter_mut().filter(|_| unreadable) {
                told |= shard.destager.carry_no_more();
            }
            return Turn::from(told);
        }
        end_appending(&mut s.world.shards);
        if unreadable {
            // (The region was counted as reclaimed when carrying began.)
            let _ = self.end(Ending::Unreadable, s.world.now);
            return self.consider_giving_up(s.world).or(true);
        }
        self.note_carried(s.world);
        self.begin_release(s, region).or(true)
    }

    /// The remaining records of the region have been carried on.
    fn note_carried(&mut self, world: &World) {
        let Some(log) = &world.log else { return };
        let again = world.stats.carried + world.stats.carried_lost + world.stats.reinserted;
        self.progress.note_carried(log.stats().entries - again);
    }

    /// All dirty records of the region are taken care of. Records that are worth it are inserted
    /// again, at most half a region.
    pub(super) fn begin_reinserting(
        &mut self,
        s: &mut Surroundings<'_>,
        region: RegionIndex,
    ) -> Turn {
        let log = s.world.log.as_ref().expect("only a log has regions");
        // A piece that waits for an index entry waits for the region's records to be forgotten.
        let short = s.world.shards.iter().any(Shard::waits_for_an_entry);
        if log.layout() != Layout::Log || !s.world.lifecycle.stays_in_service() || short {
            return self.begin_release(s, region);
        }
        let pages = may_reinsert(log.stats(), log.geometry());
        self.pick(s.world, region, (0, pages));
        self.step_picking(s, region, (0, pages)).or(true)
    }

    /// Shard `n` begins to choose the records worth keeping, in its share of `pages` pages.
    fn pick(&mut self, world: &mut World, region: RegionIndex, (n, pages): (usize, u32)) {
        self.cleaning().enter(ReclaimPhase::Picking { shard: n, pages });
        let share = pages / (world.shards.len() - n) as u32;
        let shard = &mut world.shards[n];
        shard.destager.reinsert_choose(&mut shard.tiers, region, share);
    }

    /// Continues choosing; when every shard has chosen, begins to insert the records again.
    fn step_picking(
        &mut self,
        s: &mut Surroundings<'_>,
        region: RegionIndex,
        (n, pages): (usize, u32),
    ) -> Turn {
        let shard = &mut s.world.shards[n];
        let taken =
            shard.destager.reinsert_choose_step(&mut shard.tiers, &mut shard_context!(s.world));
        let Some(taken) = taken else { return Turn::Nothing };
        if n + 1 < s.world.shards.len() {
            self.pick(s.world, region, (n + 1, pages - taken));
            return Turn::Something;
        }
        self.cleaning().enter(ReclaimPhase::Reinserting);
        self.step_reinsertions(s, region).or(true)
    }

    /// Continues inserting the chosen records again.
    fn step_reinsertions(&mut self, s: &mut Surroundings<'_>, region: RegionIndex) -> Turn {
        let mut done = true;
        for n in 0..s.world.shards.len() {
            let shard = &mut s.world.shards[n];
            match shard.destager.reinsert_step(&mut shard.tiers, &mut shard_context!(s.world)) {
                CarryState::Failed => {
                    end_appending(&mut s.world.shards);
                    self.end_untold(Ending::Dropped, s.world.now);
                    return Turn::Something;
                }
                state => done &= state == CarryState::Done,
            }
        }
        if !done {
            return Turn::Nothing;
        }
        end_appending(&mut s.world.shards);
        self.begin_release(s, region).or(true)
    }

    /// All dirty records of the region are taken care of. It is freed, in the slots layout when the stores' stamps cover
    /// it too.
    fn begin_release(&mut self, s: &mut Surroundings<'_>, region: RegionIndex) -> Turn {
        self.cleaning().enter(ReclaimPhase::Releasing);
        self.step_releasing(s, region)
    }

    /// The region is given back; in the slots layout when the stamps of the stores say that they have all of its data.
    pub(super) fn step_releasing(&mut self, s: &mut Surroundings<'_>, region: RegionIndex) -> Turn {
        let wanted = unstamped_owed(s.world, s.stamps);
        if wanted.is_empty() || self.apart.part_releasing(s, wanted) {
            self.apart.end_asking();
            self.release_region(s, region);
            return Turn::Something;
        }
        Turn::from(s.stamps.order(s.world, wanted, BatchSequence::NONE, false))
    }

    /// Nothing of the region is needed any more.
    pub(super) fn release_region(&mut self, s: &mut Surroundings<'_>, region: RegionIndex) {
        self.end_untold(Ending::Done, s.world.now);
        if let Some(log) = &mut s.world.log {
            log.region_released(region);
        }
        s.stores.review_failing(s.world, self);
    }

    /// Decides what becomes of a region to reclaim. `owes`: it still holds dirty records.
    pub(super) fn judge(
        &self,
        s: &Surroundings<'_>,
        region: RegionIndex,
        owes: bool,
        Left { skipped, failed, known }: Left,
        written: Outcome,
    ) -> Reclaimed {
        if !owes {
            return match written {
                Ok(()) => Reclaimed::Clean,
                Err(error) => Reclaimed::Stays(Ending::Failed(error)),
            };
        }
        let carries = self.progress.may_carry(s.world, VolumeSet::EMPTY);
        let carried = if carries { skipped | failed } else { VolumeSet::EMPTY };
        let helps = written.is_ok() || known && !carried.is_empty();
        let room = match helps {
            true => room_to_carry(&self.retries, s.world, region, carried, Settling::Nothing),
            false => MoveRoom::Never,
        };
        if room != MoveRoom::Never {
            let needed = carried.is_empty() || s.world.somebody_waits();
            return match needed || !self.progress.carries_in_vain() {
                true if room == MoveRoom::Now => Reclaimed::CarriedOn(carried),
                // Regions that were carried on just before. They are free after a sync of the log, far sooner than a
                // late store ends its writes.
                true => Reclaimed::Stays(Ending::Crowded),
                false => Reclaimed::Stays(Ending::Parked),
            };
        }
        let untried = !skipped.is_empty() && !holds_unreadable(s.world, region);
        let late = skipped & !s.world.volumes.conditions.failing();
        Reclaimed::Stays(match written {
            Err(error) => Ending::Failed(error),
            Ok(()) if untried && !late.is_empty() => Ending::Postponed,
            Ok(()) if untried => Ending::Failed(self.retries.error()),
            Ok(()) => Ending::Unreadable,
        })
    }

    /// Begins to carry on the dirty records that the region still holds, of these volumes.
    pub(super) fn begin_carrying(
        &mut self,
        s: &mut Surroundings<'_>,
        region: RegionIndex,
        carried: VolumeSet,
    ) -> Turn {
        self.cleaning().enter(ReclaimPhase::Carrying);
        self.progress.note_reclaimed();
        for shard in &mut s.world.shards {
            shard.destager.carry_begin(&shard.tiers, region, carried);
        }
        Turn::Something
    }

    /// The room for the region to reclaim next, if it begins only with room.
    pub(super) fn room_to_reclaim(&self, world: &World) -> MoveRoom {
        match self.queue.moves_next() {
            Some(region) => room_for_moves(world, region),
            None if self.queue.is_crowded()
                && world.log.as_ref().is_some_and(Log::frees_regions) =>
            {
                MoveRoom::Later
            }
            None => MoveRoom::Never,
        }
    }

    /// Continues to move the mappings of the region. `failed`: the log has not taken one of them.
    fn step_moves(
        &mut self,
        s: &mut Surroundings<'_>,
        region: RegionIndex,
        mut failed: bool,
    ) -> bool {
        let (mut done, mut given) = (true, false);
        for shard in &mut s.world.shards {
            match shard.tiers.flash.move_step(&mut shard.tiers.blocks, &mut shard_context!(s.world))
            {
                MoveState::Busy | MoveState::More => done = false,
                MoveState::Given => (done, given) = (false, true),
                MoveState::Done => {}
                MoveState::Failed => failed = true,
            }
        }
        if failed {
            self.cleaning().note_move_failed();
        }
        let log = s.world.log.as_mut().expect("only a log has regions");
        if given {
            log.close_notes();
        }
        if !done {
            return given;
        }
        if failed {
            // The log takes no more: it has failed, or it is being stopped.
            self.end_untold(Ending::Dropped, s.world.now);
        } else {
            self.end_untold(Ending::Done, s.world.now);
            log.region_released(region);
            self.progress.note_reclaimed();
            s.stores.review_failing(s.world, self);
            if self.is_wanted_clean(region) {
                // What was wanted clean has moved meanwhile.
                self.push_all_dirty(s.world);
            }
        }
        true
    }
}

/// Begins to move the mappings of the region to reclaim, if regions are reclaimed that way;
/// else the region is cleaned, and its records are dropped.
pub(super) fn begin_moving(s: &mut Surroundings<'_>, region: RegionIndex) -> bool {
    let world = &mut *s.world;
    let log = world.log.as_ref().expect("only a log has regions");
    if log.layout() != Layout::Slots {
        return false;
    }
    if room_for_moves(world, region) != MoveRoom::Now {
        world.stats.regions_dropped += 1;
        return false;
    }
    for shard in &mut world.shards {
        shard.tiers.flash.move_begin(&mut shard.tiers.blocks, &shard_context!(world), region);
    }
    true
}

/// The room to carry on the remaining records; `Never` if they must not be. Unreadable records are given up as lost
/// only if room is needed, several attempts have failed, and they are few: many rather indicate
/// a device that may come back.
pub(super) fn room_to_carry(
    retries: &Retries,
    world: &World,
    region: RegionIndex,
    carried: VolumeSet,
    settling: Settling,
) -> MoveRoom {
    let Some(log) = &world.log else { return MoveRoom::Never };
    let mut sum = Owed::default();
    for shard in &world.shards {
        match owed::needs(shard, region, carried, settling, log.geometry()) {
            Some(owed) => {
                sum.lost += owed.lost;
                sum.pages += owed.pages;
            }
            None => return MoveRoom::Never,
        }
    }
    let hopeless = retries.reads_in_vain_next() && world.somebody_waits_in_vain();
    let few = sum.lost == 0 || hopeless && sum.lost <= LOST_MAX;
    if few { log.room_to_carry(sum.pages) } else { MoveRoom::Never }
}

/// Whether a cleaning can empty its region although some volumes have not durably taken their records: those that
/// it waits for, and all that have not.
pub(super) fn may_settle(
    progress: &ReclaimProgress,
    retries: &Retries,
    settling: Settling,
) -> impl FnOnce(&World, RegionIndex, VolumeSet, VolumeSet) -> bool {
    move |world, region, awaited, untaken| {
        progress.may_carry(world, awaited)
            && room_to_carry(retries, world, region, untaken, settling) == MoveRoom::Now
    }
}

/// The volumes whose stamps must cover received records before a region is given back. In the log layout, only covered
/// records are clean. A failing store's stamp must not delay the other volumes.
pub(super) fn unstamped_owed(world: &World, stamps: &Stamps) -> VolumeSet {
    match world.log.as_ref().map(Log::layout) {
        Some(Layout::Slots) => stamps.uncovered(!world.volumes.conditions.failing()),
        _ => VolumeSet::EMPTY,
    }
}

/// The volumes whose stores have all dirty records up to this batch, if this work is done as far as possible.
pub(super) fn completed(world: &World, work: Work) -> (VolumeSet, BatchSequence) {
    let (Work::Reclaim(region), Some(log)) = (work, &world.log) else {
        return (VolumeSet::EMPTY, BatchSequence::NONE);
    };
    let mut lacking = VolumeSet::EMPTY;
    for blocks in world.shards.iter().map(|shard| &shard.tiers.blocks) {
        let entries = blocks.blocks_of(region).map(|id| &blocks[id]);
        let left = entries.filter(|e| !e.flash_dirty().is_empty() && !e.is_destaged());
        lacking |= left.map(|e| e.key().volume()).collect();
    }
    (!lacking, log.newest_batch(region))
}

/// The cleaning appends no more records of its region again.
fn end_appending(shards: &mut [Shard]) {
    shards.iter_mut().for_each(|shard| shard.destager.append_end());
}

fn holds_unreadable(world: &World, region: RegionIndex) -> bool {
    world.shards.iter().any(|shard| owed::is_unreadable(shard, region))
}

/// Room in the log for the mappings of a region.
fn room_for_moves(world: &World, region: RegionIndex) -> MoveRoom {
    let entries = world.shards.iter().map(|shard| shard.tiers.blocks.region_entries(region));
    let count = entries.map(u64::from).sum();
    world.log.as_ref().map_or(MoveRoom::Never, |log| log.room_for_moves(count))
}
