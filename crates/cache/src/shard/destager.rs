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

use super::regions::Regions;
use super::tiers::Tiers;
use super::transfer::Kind;
use super::{ShardContext, volume_bit};
use crate::config::CacheConfig;
use crate::entry::{DESTAGED, EntryId, UNREADABLE};
use crate::slab::Slab;
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
    /// Next of `scratch` to look at.
    pub(super) cursor: usize,
    /// Writes under way, those that still wait for their bytes included.
    pub(super) in_flight: u32,
    /// Blocks that were busy: the pass is repeated.
    pub(super) again: bool,
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
    /// The records that the job, or carrying, is about, by address.
    chosen: Vec<(BlockKey, Position)>,
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
        Destager {
            job: None,
            chosen: Vec::with_capacity(region_pages as usize),
            depth: config.destage_depth.min(bounces as u32),
            stretches: Slab::new(config.destage_depth),
            carrying: Carrying::new(region_pages),
            members_scratch: Vec::with_capacity(64),
            segments_scratch: Vec::with_capacity(64),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let chosen = self.chosen.capacity() * size_of::<(BlockKey, Position)>();
        self.stretches.memory_bytes() + chosen as u64 + self.carrying.memory_bytes()
    }

    /// The job under way.
    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    // ---- a job ----

    /// Chooses what is cleaned; it is written once it is durable in the log. Not `dirty`: nothing
    /// is, anywhere. Nothing is chosen of the volumes to be `skipped` (bits).
    pub fn choose(&mut self, tiers: &mut Tiers, target: Target, dirty: bool, skipped: u64) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.chosen.clear();
        match target {
            Target::Region(_) if !dirty => {}
            Target::Region(region) => self.collect(tiers, region, skipped),
            Target::Coldest => self.collect_coldest(tiers),
        }
    }

    /// Begins to write what was chosen, but for the volumes (bits) to be skipped.
    pub fn begin(&mut self, skipped: u64) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.job = Some(Job {
            cursor: 0,
            in_flight: 0,
            again: false,
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

    /// Collects the dirty records of those who give way on flash, by address.
    fn collect_coldest(&mut self, tiers: &mut Tiers) {
        self.chosen.clear();
        let blocks = &tiers.blocks;
        let ids = tiers.flash.take_coldest();
        let dirty = ids.filter(|&id| blocks[id].owed() != 0);
        self.chosen.extend(dirty.filter_map(|id| Some((blocks[id].key(), blocks[id].position()?))));
        self.chosen.sort_unstable();
    }

    /// Collects the region's dirty records that still have to be written, by address.
    fn collect(&mut self, tiers: &mut Tiers, region: u32, skipped: u64) {
        let mut next = tiers.flash.first_of(region);
        while let Some(id) = next {
            next = Regions::next(&tiers.blocks, id);
            if skipped & volume_bit(tiers.blocks[id].key()) != 0 {
                continue;
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
        self.chosen.sort_unstable();
    }

    /// Pushes the job on.
    pub fn step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> JobState {
        let Some(mut job) = self.job.take() else {
            return JobState::Written { volumes: 0, error: None, unreadable: false, failed: 0 };
        };
        while job.in_flight < self.depth && self.next(tiers, context, &mut job) {}
        let drained = job.in_flight == 0 && job.cursor >= self.chosen.len();
        let state = if drained && job.again {
            // Blocks were busy with something else; their ends call again.
            (job.cursor, job.again) = (0, false);
            let rest = self.chosen.iter().any(|&(key, position)| {
                tiers.blocks.find(key).is_some_and(|id| is_owed(tiers, &job, id, position))
            });
            if rest { JobState::Busy } else { job.written() }
        } else if drained {
            job.written()
        } else {
            JobState::Busy
        };
        self.job = Some(job);
        state
    }

    /// Nothing more of what was chosen is begun.
    pub fn cut(&mut self) {
        if let Some(job) = &mut self.job {
            (job.cursor, job.again) = (self.chosen.len(), false);
        }
    }

    /// The volumes are synced (or not): what was destaged is clean (or to be done again).
    /// `failed`: the volumes (bits) whose sync did not end well.
    pub fn end(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>, failed: u64) {
        if self.job.take().is_some() {
            self.settle(tiers, context, failed);
        }
    }

    /// What was chosen will not be cleaned.
    pub fn abandon(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) {
        self.chosen.clear();
        tiers.flash.release_cells(context);
    }

    /// Only what was chosen can have been destaged.
    fn settle(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>, failed: u64) {
        for n in 0..self.chosen.len() {
            if let Some(&(ahead, _)) = self.chosen.get(n + 8) {
                tiers.blocks.prefetch(ahead);
            }
            let key = self.chosen[n].0;
            if let Some(id) = tiers.blocks.find(key) {
                settle_destaged(tiers, context, id, failed & volume_bit(key) == 0);
            }
        }
        tiers.flash.release_cells(context);
        tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
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
