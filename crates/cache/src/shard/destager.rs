//! The destager of a shard, the cleaner's part in it: bringing a region's dirty records to the backing
//! store.
//!
//! What is cleaned is chosen first, then made durable in the log, then written. A record appended
//! in between is not part of it: a version must not reach the backing store while a power cut
//! could bring back an older record that is called clean.
//!
//! The records chosen are destaged in address order (`stretch.rs`); blocks busy with something else
//! are tried again when that ends. The backing stores are then synced, and only after that the
//! records count as clean: a dirty record may not be forgotten, and its region not be reused,
//! before its data is durable elsewhere. What cannot be destaged is carried on (`carry.rs`).

pub(super) mod carry;
mod stretch;

use forebay_effect::{IoError, Outcome, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

use super::tiers::Tiers;
use super::transfer::Kind;
use super::{ShardContext, volume_bit};
use crate::config::CacheConfig;
use crate::entry::{DESTAGED, EntryId, UNREADABLE};
use crate::slab::Slab;
use crate::sorting::Sorting;
use carry::Carrying;
pub(crate) use carry::{CarryState, Owed};
pub(super) use stretch::Unread;
use stretch::{Member, Stretch};

/// What is cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Region(u32),
    /// Layout slots: who gives way on flash, and who would next.
    Coldest,
}

/// A cleaning, in this shard.
#[derive(Debug)]
pub(crate) struct Job {
    /// Next of those chosen to look at; and of the busy ones, which have their turn when nothing is in flight.
    pub(super) cursor: usize,
    pub(super) retry: usize,
    /// Those that count as clean already, once all are written and synced.
    settled: usize,
    /// Writes under way, those that still wait for their bytes included.
    pub(super) in_flight: u32,
    /// A dirty record could not be read from flash. It stays dirty; the others go on.
    pub(super) unreadable: bool,
    /// How the last write that failed did, and to which volumes there were such (bits, as
    /// below): what else is to go there is not tried.
    pub(super) error: Option<IoError>,
    pub(super) failed_volumes: u64,
    /// Volumes written to, a bit each for the first 64; all of them if more.
    pub volumes: u64,
}

impl Job {
    fn written(&self) -> JobState {
        let Job { volumes, error, unreadable, failed_volumes: failed, .. } = *self;
        JobState::Written { volumes, error, unreadable, failed }
    }
}

/// How a job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobState {
    /// Waiting for transfers.
    Busy,
    /// What could be written is: sync the volumes (bits). What could not stays dirty.
    /// `failed`: the volumes (bits) of which that is so because writes failed, or were not tried.
    Written { volumes: u64, error: Option<IoError>, unreadable: bool, failed: u64 },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Destager {
    /// Entries that wait for a bounce frame to be destaged are simply retried by the job.
    job: Option<Job>,
    /// The records that the job, or carrying, is about, by address once all are chosen.
    chosen: Vec<(BlockKey, Position)>,
    /// What is not chosen: volumes (bits).
    skipped: u64,
    sorting: Sorting<(BlockKey, Position)>,
    /// Which of those chosen were busy with something else, and are to be tried again.
    busy: Vec<u32>,
    /// Writes under way at a time.
    depth: u32,
    stretches: Slab<Stretch>,
    carrying: Carrying,
    members_scratch: Vec<Member>,
    segments_scratch: Vec<Segment>,
}

impl Destager {
    /// For a shard with so many bounce frames.
    pub fn new(config: &CacheConfig, bounces: usize) -> Destager {
        let region_pages = config.flash.as_ref().map_or(0, |f| f.geometry.region_pages);
        let depth = config.destage_depth.min(bounces as u32);
        Destager {
            job: None,
            chosen: Vec::with_capacity(region_pages as usize),
            skipped: 0,
            sorting: Sorting::new(region_pages as usize),
            busy: Vec::with_capacity(region_pages as usize),
            depth,
            stretches: Slab::new(depth),
            carrying: Carrying::new(region_pages),
            members_scratch: Vec::with_capacity(64),
            segments_scratch: Vec::with_capacity(64),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let chosen = self.chosen.capacity() * size_of::<(BlockKey, Position)>();
        let carrying = self.carrying.memory_bytes() + 4 * self.busy.capacity() as u64;
        self.stretches.memory_bytes() + chosen as u64 + self.sorting.memory_bytes() + carrying
    }

    /// The job under way.
    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    // ---- a job ----

    /// Begins to choose what is cleaned; it is written once it is durable in the log. Not `dirty`: nothing
    /// is, anywhere. Nothing is chosen of the volumes to be `skipped` (bits).
    pub fn choose(&mut self, tiers: &mut Tiers, target: Target, dirty: bool, skipped: u64) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.chosen.clear();
        self.skipped = skipped;
        self.sorting.begin();
        tiers.flash.end_walk();
        match target {
            Target::Region(_) if !dirty => {}
            Target::Region(region) => tiers.flash.begin_walk(region),
            Target::Coldest => self.collect_coldest(tiers),
        }
    }

    /// Goes on choosing, as far as the budget of the call goes; whether all is chosen.
    pub fn choose_step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> bool {
        while !tiers.flash.has_walked() {
            if !context.budget.take() {
                return false;
            }
            self.collect(tiers);
        }
        self.sorting.step(&mut self.chosen, context.budget)
    }

    /// Begins to write what was chosen, but for the volumes (bits) to be skipped.
    pub fn begin(&mut self, skipped: u64) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.busy.clear();
        self.job = Some(Job {
            cursor: 0,
            retry: usize::MAX,
            settled: 0,
            in_flight: 0,
            unreadable: false,
            error: None,
            failed_volumes: skipped,
            volumes: 0,
        });
    }

    /// The volumes (bits) of what was chosen.
    pub fn chosen_volumes(&self) -> u64 {
        self.chosen.iter().fold(0, |all, (key, _)| all | volume_bit(*key))
    }

    /// Collects the dirty records of those who give way on flash: no more than a cleaning looks ahead.
    fn collect_coldest(&mut self, tiers: &mut Tiers) {
        self.chosen.clear();
        let blocks = &tiers.blocks;
        let ids = tiers.flash.take_coldest();
        let dirty = ids.filter(|&id| blocks[id].owed() != 0);
        self.chosen.extend(dirty.filter_map(|id| Some((blocks[id].key(), blocks[id].position()?))));
    }

    /// Collects the next record of the region, if it is dirty and still has to be written.
    fn collect(&mut self, tiers: &mut Tiers) {
        let Some(id) = tiers.flash.walk(&tiers.blocks) else { return };
        if self.skipped & volume_bit(tiers.blocks[id].key()) != 0 {
            return;
        }
        if tiers.blocks[id].has(UNREADABLE) {
            tiers.blocks[id].clear(UNREADABLE);
            tiers.flash.update_residence(&tiers.blocks, id, false);
        }
        let e = &tiers.blocks[id];
        if e.owed() != 0 && !e.has(DESTAGED) {
            let position = e.position().expect("an entry of a region has a record");
            self.chosen.push((e.key(), position));
        }
    }

    /// Pushes the job on.
    pub fn step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> JobState {
        let Some(mut job) = self.job.take() else {
            return JobState::Written { volumes: 0, error: None, unreadable: false, failed: 0 };
        };
        let mut all_tried = job.retry == 0;
        let drained = loop {
            while job.in_flight < self.depth && self.next(tiers, context, &mut job) {}
            if job.in_flight > 0 || self.at(&job).is_some() {
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

    /// Nothing more of what was chosen is begun.
    pub fn cut(&mut self) {
        if let Some(job) = &mut self.job {
            job.cursor = self.chosen.len();
            self.busy.clear();
        }
    }

    /// The volumes are synced (or not): what was destaged is clean (or to be done again).
    /// `failed`: the volumes (bits) whose sync did not end well. Goes as far as the budget of the call; whether
    /// that was all of it.
    pub fn end(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>, failed: u64) -> bool {
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
            if let Some(id) = tiers.blocks.find(key) {
                settle_destaged(tiers, context, id, failed & volume_bit(key) == 0);
            }
        }
        self.job = None;
        tiers.flash.release_cells(context);
        tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
        true
    }

    /// What was chosen will not be cleaned.
    pub fn abandon(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) {
        self.chosen.clear();
        tiers.flash.end_walk();
        tiers.flash.release_cells(context);
    }

    // ---- writes end ----

    /// A write to the backing store, of a record or of several, has ended, well or not.
    pub fn written(&mut self, tiers: &Tiers, t: u32, result: Outcome) {
        if let (Some(job), Err(error)) = (&mut self.job, result) {
            job.failed_volumes |= volume_bit(tiers.transfers[t].key);
            job.error = Some(error);
        }
        self.write_ended();
    }

    fn write_ended(&mut self) {
        if let Some(job) = &mut self.job {
            job.in_flight -= 1;
        }
    }
}

/// Whether the record that was chosen is still the newest, and dirty, and can be written.
fn is_owed(tiers: &Tiers, job: &Job, id: EntryId, position: Position) -> bool {
    let e = &tiers.blocks[id];
    let tried = e.has(DESTAGED | UNREADABLE) || job.failed_volumes & volume_bit(e.key()) != 0;
    e.owed() != 0 && !tried && e.position() == Some(position)
}

fn settle_destaged(tiers: &mut Tiers, context: &mut ShardContext<'_>, id: EntryId, synced: bool) {
    if tiers.blocks[id].has(DESTAGED) {
        tiers.blocks[id].clear(DESTAGED);
        if synced {
            let was = tiers.blocks[id].is_dirty();
            // (What is lost stays owed.)
            let left = tiers.blocks[id].lost_on_flash();
            if left == 0 && tiers.blocks[id].flash_dirty != 0 {
                let log = context.log.as_deref().expect("a record needs a log");
                let position = tiers.blocks[id].position().expect("a record was destaged");
                let region = log.region_of(position);
                tiers.flash.count_record(&tiers.blocks, context, id, region, false);
            }
            tiers.blocks[id].flash_dirty = left;
            tiers.blocks.count_dirty(id, was, context.front);
            tiers.flash.update_residence(&tiers.blocks, id, false);
        }
    }
}

/// A record is on the backing store: it counts as clean when that is synced.
pub(super) fn note_destaged(tiers: &mut Tiers, context: &mut ShardContext<'_>, t: u32) {
    let (key, kind) = (tiers.transfers[t].key, tiers.transfers[t].kind);
    let Kind::DestageRecord { position, .. } = kind else { return };
    context.stats.destaged += 1;
    // Unless a newer record has taken its place: then nothing is owed for this one.
    let Some(id) = tiers.blocks.find_at(key, position) else { return };
    tiers.blocks[id].set(DESTAGED);
    if context.front.sabotage.is(Bug::DirtyForgottenBeforeSync) {
        let was = tiers.blocks[id].is_dirty();
        let log = context.log.as_deref().expect("a record needs a log");
        let region = log.region_of(position);
        tiers.flash.count_record(&tiers.blocks, context, id, region, false);
        tiers.blocks[id].flash_dirty = 0;
        tiers.blocks.count_dirty(id, was, context.front);
    }
}
