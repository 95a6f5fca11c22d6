//! The cleaner's part in a shard: bringing a region's dirty records to the backing store.
//!
//! What is cleaned is chosen first, then made durable in the log, then written. A record appended
//! in between is not part of it: a version must not reach the backing store while a power cut
//! could bring back an older record that is called clean.
//!
//! The records chosen are destaged in address order (`destage`); blocks busy with something else
//! are tried again when that ends. The backing stores are then synced, and only after that the
//! records count as clean: a dirty record may not be forgotten, and its region not be reused,
//! before its data is durable elsewhere.

use forebay_effect::IoError;
use forebay_flash::Position;

use super::regions::Regions;
use super::{Shard, ShardContext, volume_bit};
use crate::index::{DESTAGED, EntryId, UNREADABLE};

/// What is cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Region(u32),
    /// Layout slots: who gives way on flash, and who would next.
    Coldest,
}

/// Blocks among those that would give way next that are looked at for dirty ones.
const COLDEST_MAX: usize = 256;

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

impl Shard {
    /// Chooses what is cleaned; it is written once it is durable in the log. Not `dirty`: nothing
    /// is, anywhere. Nothing is chosen of the volumes to be `skipped` (bits).
    pub fn clean_choose(&mut self, target: Target, dirty: bool, skipped: u64) {
        assert!(self.job.is_none(), "one cleaning job at a time");
        self.scratch.clear();
        self.tiers.flash.hold_cells();
        match target {
            Target::Region(_) if !dirty => {}
            Target::Region(region) => self.collect(region, skipped),
            Target::Coldest => self.collect_coldest(),
        }
    }

    /// Begins to write what was chosen, but for the volumes (bits) to be skipped.
    pub fn clean_begin(&mut self, skipped: u64) {
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
        self.scratch.iter().fold(0, |all, (key, _)| all | volume_bit(*key))
    }

    /// Collects the dirty records of those who give way on flash, by address.
    fn collect_coldest(&mut self) {
        self.scratch.clear();
        let blocks = &self.tiers.blocks;
        let ids = self.tiers.flash.take_coldest(COLDEST_MAX);
        let dirty = ids.filter(|&id| blocks[id].owed() != 0);
        self.scratch
            .extend(dirty.filter_map(|id| Some((blocks[id].key(), blocks[id].position()?))));
        self.scratch.sort_unstable();
    }

    /// Collects the region's dirty records that still have to be written, by address.
    fn collect(&mut self, region: u32, skipped: u64) {
        let mut next = self.tiers.flash.first_of(region);
        while let Some(id) = next {
            next = Regions::next(&self.tiers.blocks, id);
            if skipped & volume_bit(self.tiers.blocks[id].key()) != 0 {
                continue;
            }
            if self.tiers.blocks[id].has(UNREADABLE) {
                self.tiers.blocks[id].clear(UNREADABLE);
                self.tiers.flash.update_residence(&self.tiers.blocks, id, false);
            }
            let e = &self.tiers.blocks[id];
            if e.owed() != 0 && !e.has(DESTAGED) {
                let position = e.position().expect("an entry of a region has a record");
                self.scratch.push((e.key(), position));
            }
        }
        self.scratch.sort_unstable();
    }

    /// Pushes the job on.
    pub fn clean_step(&mut self, context: &mut ShardContext<'_>) -> JobState {
        let Some(mut job) = self.job.take() else {
            return JobState::Written { volumes: 0, error: None, unreadable: false, failed: 0 };
        };
        while job.in_flight < self.destage_depth && self.destage_next(context, &mut job) {}
        let drained = job.in_flight == 0 && job.cursor >= self.scratch.len();
        let state = if drained && job.again {
            // Blocks were busy with something else; their ends call again.
            (job.cursor, job.again) = (0, false);
            let rest = self.scratch.iter().any(|&(key, position)| {
                self.tiers.blocks.find(key).is_some_and(|id| self.is_owed(&job, id, position))
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

    /// Whether the record that was chosen is still the newest, and dirty, and can be written.
    pub(super) fn is_owed(&self, job: &Job, id: EntryId, position: Position) -> bool {
        let e = &self.tiers.blocks[id];
        let tried = e.has(DESTAGED | UNREADABLE) || job.failed_volumes & volume_bit(e.key()) != 0;
        e.owed() != 0 && !tried && e.position() == Some(position)
    }

    /// The volumes are synced (or not): what was destaged is clean (or to be done again).
    /// `failed`: the volumes (bits) whose sync did not end well.
    pub fn clean_end(&mut self, context: &mut ShardContext<'_>, failed: u64) {
        if self.job.take().is_some() {
            self.clean_settle(context, failed);
        }
    }

    /// What was chosen will not be cleaned.
    pub fn clean_abandon(&mut self, context: &mut ShardContext<'_>) {
        self.scratch.clear();
        self.tiers.flash.release_cells(context);
    }

    /// Only what was chosen can have been destaged.
    fn clean_settle(&mut self, context: &mut ShardContext<'_>, failed: u64) {
        for n in 0..self.scratch.len() {
            if let Some(&(ahead, _)) = self.scratch.get(n + 8) {
                self.tiers.blocks.prefetch(ahead);
            }
            let key = self.scratch[n].0;
            if let Some(id) = self.tiers.blocks.find(key) {
                self.settle_destaged(context, id, failed & volume_bit(key) == 0);
            }
        }
        self.tiers.flash.release_cells(context);
        self.tiers.flash.leave_all(&self.tiers.blocks, &self.tiers.transfers, context);
    }

    fn settle_destaged(&mut self, context: &mut ShardContext<'_>, id: EntryId, synced: bool) {
        if self.tiers.blocks[id].has(DESTAGED) {
            self.tiers.blocks[id].clear(DESTAGED);
            if synced {
                let was = self.tiers.blocks[id].is_dirty();
                // (What is lost stays owed.)
                let left = self.tiers.blocks[id].lost_on_flash();
                if left == 0 && self.tiers.blocks[id].flash_dirty != 0 {
                    let log = context.log.as_deref().expect("a record needs a log");
                    let position = self.tiers.blocks[id].position().expect("a record was destaged");
                    let region = log.region_of(position);
                    self.tiers.flash.count_record(&self.tiers.blocks, context, id, region, false);
                }
                self.tiers.blocks[id].flash_dirty = left;
                self.tiers.blocks.count_dirty(id, was, context.front);
                self.tiers.flash.update_residence(&self.tiers.blocks, id, false);
            }
        }
    }
}
