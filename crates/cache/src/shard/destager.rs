//! The destager of a shard, its part of the cleaner: it writes a region's dirty records to the
//! backing store.
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

pub(crate) mod apart;
pub(super) mod carry;
pub(crate) mod owed;
mod sorting;
mod stretch;

use forebay_block::{PerVolume, Volume};
use forebay_effect::{IoError, Outcome, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

use self::sorting::Sorting;
use super::ShardContext;
use super::blocks::Blocks;
use super::entry::{DESTAGED, EntryId, UNREADABLE};
use super::flash_tier::IfEvicted;
use super::tiers::Tiers;
use super::transfer::TransferKind;
use super::transfers::Transfers;
use crate::cache::VOLUMES_MAX;
use crate::config::CacheConfig;
use crate::slab::{Slab, StretchIndex, TransferIndex};
use crate::volume_set::VolumeSet;
use apart::ApartWrites;
pub(crate) use carry::CarryState;
use carry::Carrying;
pub(super) use stretch::Unread;
use stretch::{Member, Stretch};

/// Why records of a region are appended again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// They are still needed: the region can be released only without them.
    CarryOn,
    /// They are clean, and worth keeping.
    Reinsert,
}

/// The target of a cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Region(u32),
    /// Slots layout: blocks being evicted from flash, and the next ones to be evicted.
    Coldest,
}

/// A cleaning in this shard.
#[derive(Debug)]
pub(crate) struct Job {
    /// The next busy record to look at; busy records have their turn when nothing is in flight.
    pub(super) retry: usize,
    /// Number of records that are marked clean already, once all are written and synced.
    settled: usize,
    /// A dirty record could not be read from flash. It stays dirty; the others continue.
    pub(super) unreadable: bool,
    /// The error of the last write that failed.
    pub(super) error: Option<IoError>,
    /// Volumes to which a write failed: no more writes to them are tried.
    pub(super) failed_volumes: VolumeSet,
    /// Volumes written to.
    pub volumes: VolumeSet,
    /// There are several volumes: each may take at most three quarters of the places and frames.
    several: bool,
    /// Volumes whose stores are known to be late: each may take at most half.
    late: VolumeSet,
}

impl Job {
    /// A volume's share of all places, or of all frames.
    fn part_of(&self, volume: Volume, all: u32) -> u32 {
        match () {
            () if self.late.contains(volume) => all / 2,
            () if self.several => all - all / 4,
            () => all,
        }
    }

    fn written(&self) -> JobState {
        let Job { volumes, error, unreadable, failed_volumes: failed, .. } = *self;
        JobState::Written { volumes, error, unreadable, failed }
    }
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobState {
    /// Waiting for transfers.
    Busy,
    /// All writable records are written: sync the volumes. The others stay dirty. `failed`: the
    /// volumes with failed or skipped writes.
    Written { volumes: VolumeSet, error: Option<IoError>, unreadable: bool, failed: VolumeSet },
}

impl JobState {
    /// There was nothing to do.
    const NOTHING: JobState = JobState::Written {
        volumes: VolumeSet::EMPTY,
        error: None,
        unreadable: false,
        failed: VolumeSet::EMPTY,
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Destager {
    /// The job retries entries that wait for a bounce frame.
    job: Option<Job>,
    /// The records of the job, or of carrying on, in address order once all are chosen.
    chosen: Vec<(BlockKey, Position)>,
    /// Volumes of which no records are chosen.
    skipped: VolumeSet,
    sorting: Sorting<(BlockKey, Position)>,
    /// The chosen records of each volume that have not been looked at.
    parts: Vec<ChosenRecords>,
    /// Volumes whose next record waits for bounce frames.
    starved: VolumeSet,
    /// The chosen records that were busy with other transfers and must be retried.
    busy: Vec<u32>,
    /// Writes in flight at a time.
    depth: u32,
    writes: Writes,
    /// Volumes for whose writes the job does not wait.
    apart: ApartWrites,
    stretches: Slab<StretchIndex, Stretch>,
    carrying: Carrying,
    members_scratch: Vec<Member>,
    segments_scratch: Vec<Segment>,
}

/// The chosen records of one volume: those before `at` have been looked at.
#[derive(Clone, Copy, Debug)]
struct ChosenRecords {
    volume: Volume,
    at: usize,
    end: usize,
}

/// Writes in flight, including those that still wait for their bytes.
#[derive(Debug)]
struct Writes {
    all: u32,
    /// The writes of each volume in flight, their bounce frames, and the writes that the job has begun.
    in_flight: PerVolume<u32>,
    frames: PerVolume<u32>,
    begun: PerVolume<u32>,
    /// Writes in flight that still read records from flash.
    reading: u32,
}

impl Destager {
    /// For a shard with `bounces` bounce frames.
    pub fn new(config: &CacheConfig, bounces: usize) -> Destager {
        let region_pages = config.flash.as_ref().map_or(0, |f| f.geometry.region_pages);
        let depth = config.destage_depth.min(bounces as u32);
        Destager {
            job: None,
            chosen: Vec::with_capacity(region_pages as usize),
            skipped: VolumeSet::EMPTY,
            sorting: Sorting::new(region_pages as usize),
            parts: Vec::with_capacity(VOLUMES_MAX),
            starved: VolumeSet::EMPTY,
            busy: Vec::with_capacity(region_pages as usize),
            depth,
            writes: Writes {
                all: 0,
                in_flight: PerVolume::filled(0, VOLUMES_MAX),
                frames: PerVolume::filled(0, VOLUMES_MAX),
                begun: PerVolume::filled(0, VOLUMES_MAX),
                reading: 0,
            },
            apart: ApartWrites::new(region_pages),
            stretches: Slab::new(depth),
            carrying: Carrying::new(region_pages),
            members_scratch: Vec::with_capacity(64),
            segments_scratch: Vec::with_capacity(64),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let chosen = self.chosen.capacity() * size_of::<(BlockKey, Position)>();
        let carrying = self.carrying.memory_bytes() + 4 * self.busy.capacity() as u64;
        let carrying = carrying + self.apart.memory_bytes();
        self.stretches.memory_bytes() + chosen as u64 + self.sorting.memory_bytes() + carrying
    }

    /// The job in progress.
    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    // ---- a job ----

    /// Begins to choose the records to clean; they are written once they are durable in the log. If
    /// not `dirty`, nothing is dirty anywhere. Nothing is chosen of the volumes to be `skipped`.
    pub fn choose(&mut self, tiers: &mut Tiers, target: Target, dirty: bool, skipped: VolumeSet) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.chosen.clear();
        self.skipped = skipped;
        self.sorting.begin();
        tiers.blocks.end_walk();
        match target {
            Target::Region(_) if !dirty => {}
            Target::Region(region) => tiers.blocks.begin_walk(region),
            Target::Coldest => self.collect_coldest(tiers),
        }
        tiers.flash.hold_cells();
    }

    /// Continues choosing within the budget of the call; returns whether all are chosen.
    pub fn choose_step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> bool {
        while !tiers.blocks.has_walked() {
            if !context.budget.take() {
                return false;
            }
            self.collect(tiers);
        }
        self.sorting.step(&mut self.chosen, context.budget)
    }

    /// Begins to write the chosen records, except those of the volumes to be skipped. `several`:
    /// there are several volumes. `late`: volumes whose stores are known to be late.
    pub fn begin(&mut self, skipped: VolumeSet, several: bool, late: VolumeSet) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.busy.clear();
        self.parts.clear();
        self.writes.begun.fill(0);
        for (at, (key, _)) in self.chosen.iter().enumerate() {
            let volume = key.volume();
            match self.parts.last_mut() {
                Some(part) if part.volume == volume => part.end = at + 1,
                // The records are sorted by address, so a volume has one part.
                _ => self.parts.push(ChosenRecords { volume, at, end: at + 1 }),
            }
        }
        self.job = Some(Job {
            retry: usize::MAX,
            settled: 0,
            unreadable: false,
            error: None,
            failed_volumes: skipped,
            volumes: VolumeSet::EMPTY,
            several,
            late,
        });
    }

    /// Advances the job.
    pub fn step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> JobState {
        let Some(mut job) = self.job.take() else {
            return JobState::NOTHING;
        };
        let mut all_tried = job.retry == 0;
        self.starved = VolumeSet::EMPTY;
        let drained = loop {
            while self.in_flight() < self.depth() && self.next(tiers, context, &mut job) {}
            if self.in_flight() > 0 || self.has_left() || self.at(tiers, &job).is_some() {
                break false;
            }
            job.retry = 0;
            self.busy.retain(|&at| {
                let (key, position) = self.chosen[at as usize];
                tiers.blocks.find(key).is_some_and(|id| is_owed(tiers, &job, id, position))
            });
            // Those that are still busy call again when they no longer are. Some may have done so while others
            // were in flight.
            if self.busy.is_empty() || all_tried {
                break true;
            }
            all_tried = true;
        };
        let state = match drained && self.busy.is_empty() {
            true => job.written(),
            false => JobState::Busy,
        };
        self.job = Some(job);
        state
    }

    /// The volumes of what was chosen.
    pub fn chosen_volumes(&self) -> VolumeSet {
        self.chosen
            .iter()
            .fold(VolumeSet::EMPTY, |all, (key, _)| all | VolumeSet::only(key.volume()))
    }

    /// No more of the chosen records are begun.
    pub fn cut(&mut self) {
        self.parts.clear();
        self.busy.clear();
    }

    /// The destaged records are clean, except those of the `failed` volumes, whose sync failed: these must be destaged
    /// again. Stops at the budget of the call; returns whether everything was done.
    pub fn end(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        failed: VolumeSet,
    ) -> bool {
        let Some(job) = &mut self.job else { return true };
        // Only what was chosen can have been destaged.
        while let Some(&(key, _)) = self.chosen.get(job.settled) {
            if !context.budget.take() {
                return false;
            }
            if let Some(&(ahead, _)) = self.chosen.get(job.settled + 8) {
                tiers.blocks.prefetch(ahead);
            }
            job.settled += 1;
            if self.apart.has(key) {
                continue;
            }
            if let Some(id) = tiers.blocks.find(key) {
                tiers.flash.end_destage(&mut tiers.blocks, context, id, !failed.has(key));
            }
        }
        self.job = None;
        tiers.flash.release_cells(context);
        tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
        true
    }

    /// The chosen records will not be cleaned.
    pub fn abandon(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) {
        self.chosen.clear();
        tiers.blocks.end_walk();
        tiers.flash.release_cells(context);
    }

    /// Writes in flight that the job waits for.
    fn in_flight(&self) -> u32 {
        self.writes.all - self.apart.in_flight
    }

    /// The most writes in flight that the job may have.
    fn depth(&self) -> u32 {
        self.depth.saturating_sub(self.apart.in_flight).max(1)
    }

    /// Whether another write to the volume may begin. Of several none takes all places or frames: else the first that
    /// is slow would leave nothing to the others.
    fn may_begin(&self, tiers: &Tiers, job: &Job, volume: Volume) -> bool {
        let depth = job.part_of(volume, self.depth()).max(1);
        let frames = job.part_of(volume, self.frames(tiers)).max(1);
        self.writes.in_flight[volume] < depth && self.writes.frames[volume] < frames
    }

    /// Bounce frames that the next write to the volume may take.
    fn frames_for(&self, tiers: &Tiers, job: &Job, volume: Volume) -> usize {
        let own = self.writes.frames[volume] as usize;
        let most = job.part_of(volume, self.frames(tiers)).max(1) as usize;
        tiers.transfers.bounces_free().min(most.saturating_sub(own))
    }

    /// Bounce frames, but for those of writes that the job does not wait for.
    fn frames(&self, tiers: &Tiers) -> u32 {
        let apart =
            self.apart.volumes().iter().map(|volume| self.writes.frames[volume]).sum::<u32>();
        (tiers.transfers.bounces() as u32).saturating_sub(apart)
    }

    /// Whether not all of what was chosen has been looked at.
    fn has_left(&self) -> bool {
        self.parts.iter().any(|part| part.at < part.end)
    }

    /// Collects the dirty records of the blocks that are evicted next from flash: at most as many as a cleaning looks
    /// ahead.
    fn collect_coldest(&mut self, tiers: &mut Tiers) {
        self.chosen.clear();
        let blocks = &tiers.blocks;
        let ids = tiers.flash.take_coldest();
        let dirty = ids.filter(|&id| blocks[id].owed() != 0);
        self.chosen.extend(dirty.filter_map(|id| Some((blocks[id].key(), blocks[id].position()?))));
    }

    /// Collects the next record of the region, if it is dirty and still has to be written.
    fn collect(&mut self, tiers: &mut Tiers) {
        let Some(id) = tiers.blocks.walk() else { return };
        if self.skipped.has(tiers.blocks[id].key()) {
            return;
        }
        if tiers.blocks[id].has(UNREADABLE) {
            tiers.blocks[id].clear(UNREADABLE);
            tiers.flash.update_residence(&tiers.blocks, id, IfEvicted::Leaves);
        }
        let e = &tiers.blocks[id];
        if e.owed() != 0 && !e.has(DESTAGED) {
            let position = e.position().expect("an entry of a region has a record");
            self.chosen.push((e.key(), position));
        }
    }

    // ---- writes end ----

    /// A write to the backing store, of one record or several, has ended, successfully or not.
    pub fn written(&mut self, tiers: &Tiers, t: TransferIndex, result: Outcome) {
        let key = tiers.transfers[t].key;
        if let Err(error) = result {
            if self.apart.has(key) {
                self.apart.note_failed(key, error);
            } else if let Some(job) = &mut self.job {
                job.failed_volumes |= VolumeSet::only(key.volume());
                job.error = Some(error);
            }
        }
        self.write_ended(key);
    }

    /// A write begins.
    fn write_begins(&mut self, key: BlockKey) {
        self.writes.all += 1;
        self.writes.in_flight[key.volume()] += 1;
        self.apart.in_flight += u32::from(self.apart.has(key));
    }

    /// A record is read into a bounce frame.
    fn frame_taken(&mut self, key: BlockKey) {
        self.writes.frames[key.volume()] += 1;
        self.writes.reading += 1;
    }

    /// A record's transfer ends; its bounce frame, if any, is free.
    pub fn record_ends(&mut self, tiers: &Tiers, t: TransferIndex) {
        let transfer = &tiers.transfers[t];
        self.writes.frames[transfer.key.volume()] -= u32::from(transfer.bounce.is_some());
    }

    fn write_ended(&mut self, key: BlockKey) {
        self.writes.all -= 1;
        self.writes.in_flight[key.volume()] -= 1;
        self.apart.in_flight -= u32::from(self.apart.has(key));
    }
}

/// Whether the chosen record is still the newest, dirty and writable.
fn is_owed(tiers: &Tiers, job: &Job, id: EntryId, position: Position) -> bool {
    let e = &tiers.blocks[id];
    let tried = e.has(DESTAGED | UNREADABLE) || job.failed_volumes.has(e.key());
    e.owed() != 0 && !tried && e.position() == Some(position)
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
    // Unless a newer record has taken its place: then nothing is owed for this one.
    let Some(id) = blocks.find_at(key, position) else { return };
    blocks[id].set(DESTAGED);
    if context.mode.sabotage.is(Bug::DirtyForgottenBeforeSync) {
        blocks.settled(context, id);
    }
}
