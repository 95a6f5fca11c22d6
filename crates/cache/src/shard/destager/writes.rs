//! The writes of the chosen records: which may begin next, and which are in flight.
//!
//! The volumes share the places and the bounce frames. Each volume's records are looked at in order
//! of address. A record whose block is busy with another transfer is put aside, and has its turn
//! when no write is in flight.

use forebay_block::{PerVolume, Volume};
use forebay_effect::Segment;
use forebay_flash::{BlockKey, Position};

use super::apart::ApartWrites;
use super::state::{Job, JobState};
use super::stretch::{Member, Stretch, is_owed};
use crate::cache::VOLUMES_MAX;
use crate::shard::ShardContext;
use crate::shard::tiers::Tiers;
use crate::slab::{Slab, StretchIndex, TransferIndex};
use crate::volume_set::VolumeSet;

/// The writes of the chosen records; see the module documentation.
#[derive(Debug)]
pub(crate) struct Writes {
    /// The chosen records of each volume that have not been looked at.
    pub(super) parts: Vec<ChosenRecords>,
    /// The chosen records that were busy with other transfers and must be retried.
    pub(super) busy: Vec<u32>,
    /// Largest number of writes in flight at a time.
    depth: u32,
    /// Number of writes in flight, including those that still wait for their bytes.
    all: u32,
    /// For each volume: writes in flight, their bounce frames, and the writes that the job has
    /// begun.
    in_flight: PerVolume<u32>,
    frames: PerVolume<u32>,
    begun: PerVolume<u32>,
    /// Number of records being read from flash for writes in flight.
    reading: u32,
    /// Volumes for whose writes the job does not wait.
    pub apart: ApartWrites,
    pub(super) stretches: Slab<StretchIndex, Stretch>,
    pub(super) members_scratch: Vec<Member>,
    pub(super) segments_scratch: Vec<Segment>,
}

/// The chosen records of one volume: those before `at` have been looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenRecords {
    volume: Volume,
    pub(super) at: usize,
    end: usize,
}

impl Writes {
    /// For regions of `region_pages` pages, and at most `depth` writes in flight at a time.
    pub(super) fn new(region_pages: u32, depth: u32) -> Writes {
        Writes {
            parts: Vec::with_capacity(VOLUMES_MAX),
            busy: Vec::with_capacity(region_pages as usize),
            depth,
            all: 0,
            in_flight: PerVolume::filled(0, VOLUMES_MAX),
            frames: PerVolume::filled(0, VOLUMES_MAX),
            begun: PerVolume::filled(0, VOLUMES_MAX),
            reading: 0,
            apart: ApartWrites::new(region_pages),
            stretches: Slab::new(depth),
            members_scratch: Vec::with_capacity(64),
            segments_scratch: Vec::with_capacity(64),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let busy = 4 * self.busy.capacity() as u64;
        self.stretches.memory_bytes() + busy + self.apart.memory_bytes()
    }

    // ---- a job ----

    /// Begins the writes of a job for the chosen records, which are sorted by address.
    pub(super) fn begin(&mut self, chosen: &[(BlockKey, Position)]) {
        self.cut();
        self.begun.fill(0);
        for (at, (key, _)) in chosen.iter().enumerate() {
            let volume = key.volume();
            match self.parts.last_mut() {
                Some(part) if part.volume == volume => part.end = at + 1,
                // The records are sorted by address, so a volume has one part.
                _ => self.parts.push(ChosenRecords { volume, at, end: at + 1 }),
            }
        }
    }

    /// Advances the job.
    pub(super) fn step(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        job: &mut Job,
        chosen: &[(BlockKey, Position)],
    ) -> JobState {
        let mut all_tried = job.retry == Some(0);
        job.starved = VolumeSet::EMPTY;
        let drained = loop {
            while self.in_flight() < self.depth() && self.next(tiers, context, job, chosen) {}
            if self.in_flight() > 0 || self.has_left() || self.at(tiers, job).is_some() {
                break false;
            }
            job.retry = Some(0);
            self.busy.retain(|&at| {
                let (key, position) = chosen[at as usize];
                tiers.blocks.find(key).is_some_and(|id| is_owed(tiers, job, id, position))
            });
            // Records that are still busy cause another step when they no longer are. Some may have
            // done so while others were in flight.
            if self.busy.is_empty() || all_tried {
                break true;
            }
            all_tried = true;
        };
        match drained && self.busy.is_empty() {
            true => job.written(),
            false => JobState::Busy,
        }
    }

    /// Begins no more of the chosen records.
    pub(super) fn cut(&mut self) {
        self.parts.clear();
        self.busy.clear();
    }

    /// The next chosen record to look at, and its part: first all, volume by volume; then, whenever
    /// nothing is in flight, those that were busy. During an append, a record in flight cannot be
    /// distinguished from a ready one.
    pub(super) fn at(&self, tiers: &Tiers, job: &Job) -> Option<(usize, Option<usize>)> {
        // The volume with the fewest writes in flight comes first.
        let startable = |&(_, part): &(usize, &ChosenRecords)| {
            part.at < part.end
                && !job.starved.contains(part.volume)
                && self.may_begin(tiers, job, part.volume)
        };
        let parts = self.parts.iter().enumerate().filter(startable);
        let next = parts.min_by_key(|(_, part)| self.in_flight[part.volume]);
        if let Some((n, part)) = next {
            return Some((part.at, Some(n)));
        }
        let retry = job.retry.filter(|_| !self.has_left())?;
        self.busy.get(retry).map(|&at| (at as usize, None))
    }

    /// Moves past `count` records, which are begun, busy, or no longer owed.
    pub(super) fn advance(&mut self, job: &mut Job, part: Option<usize>, count: usize) {
        if let Some(part) = part {
            self.parts[part].at += count;
            return;
        }
        let retry = job.retry.as_mut().expect("busy records have their turn");
        let end = self.busy[*retry] as usize + count;
        while self.busy.get(*retry).is_some_and(|&at| (at as usize) < end) {
            *retry += 1;
        }
    }

    /// Number of writes in flight that the job waits for.
    pub(super) fn in_flight(&self) -> u32 {
        self.all - self.in_flight_apart()
    }

    fn in_flight_apart(&self) -> u32 {
        self.apart.volumes().iter().map(|volume| self.in_flight[volume]).sum()
    }

    /// The most writes in flight that the job may have.
    fn depth(&self) -> u32 {
        self.depth.saturating_sub(self.in_flight_apart()).max(1)
    }

    /// Whether another write to the volume may begin. If there are several volumes, none takes all
    /// places or frames: otherwise the first slow one would leave nothing to the others.
    fn may_begin(&self, tiers: &Tiers, job: &Job, volume: Volume) -> bool {
        let depth = job.part_of(volume, self.depth()).max(1);
        let frames = job.part_of(volume, self.frames(tiers)).max(1);
        self.in_flight[volume] < depth && self.frames[volume] < frames
    }

    /// Bounce frames that the next write to the volume may take.
    pub(super) fn frames_for(&self, tiers: &Tiers, job: &Job, volume: Volume) -> usize {
        let own = self.frames[volume] as usize;
        let most = job.part_of(volume, self.frames(tiers)).max(1) as usize;
        tiers.transfers.bounces_free().min(most.saturating_sub(own))
    }

    /// Number of bounce frames, without those of writes that the job does not wait for.
    pub(super) fn frames(&self, tiers: &Tiers) -> u32 {
        let apart = self.apart.volumes().iter().map(|volume| self.frames[volume]).sum::<u32>();
        (tiers.transfers.bounces() as u32).saturating_sub(apart)
    }

    /// Whether some of the chosen records have not been looked at.
    fn has_left(&self) -> bool {
        self.parts.iter().any(|part| part.at < part.end)
    }

    // ---- late stores ----

    /// The volumes whose part of the job is not done; `None` if the job waits for flash too.
    pub(super) fn awaited(&self, chosen: &[(BlockKey, Position)]) -> Option<VolumeSet> {
        if self.reading > 0 {
            return None;
        }
        let left = self.parts.iter().filter(|part| part.at < part.end).map(|part| part.volume);
        let busy = self.busy.iter().map(|&at| chosen[at as usize].0.volume());
        let in_flight = self.in_flight.iter().filter(|&(_, &n)| n > 0).map(|(volume, _)| volume);
        let written: VolumeSet = in_flight.collect();
        Some(left.chain(busy).collect::<VolumeSet>() | written & !self.apart.volumes())
    }

    /// Whether frames are left for another late volume.
    pub fn has_frames(&self, tiers: &Tiers) -> bool {
        let (all, left) = (tiers.transfers.bounces() as u32, self.frames(tiers));
        left == all || left >= 2
    }

    /// Number of writes to the volume that the job has begun.
    pub fn begun(&self, volume: Volume) -> u32 {
        self.begun[volume]
    }

    /// Writes of the volume that the job has begun, and those in flight.
    pub fn counts(&self, volume: Volume) -> [u32; 2] {
        [self.begun[volume], self.in_flight[volume]]
    }

    /// Whether writes of the volume are in flight.
    pub fn is_writing(&self, volume: Volume) -> bool {
        self.in_flight[volume] > 0
    }

    /// The job continues without these volumes: no more of their records are begun, and writes in
    /// flight end apart.
    pub(super) fn part(
        &mut self,
        tiers: &mut Tiers,
        job: &mut Job,
        chosen: &[(BlockKey, Position)],
        volumes: VolumeSet,
    ) {
        let Writes { parts, apart, .. } = self;
        let looked_at = |at: usize, key: BlockKey| {
            let part = parts.iter().find(|part| part.volume == key.volume());
            part.is_none_or(|part| at < part.at)
        };
        let chosen_keys = chosen.iter().enumerate().map(|(at, (key, _))| (at, *key));
        let mine = chosen_keys.filter(|&(at, key)| volumes.has(key) && looked_at(at, key));
        apart.add(tiers, job, volumes, mine.map(|(_, key)| key));
        self.parts.retain(|part| !volumes.contains(part.volume));
        self.busy.retain(|&at| !volumes.has(chosen[at as usize].0));
        job.retry = job.retry.map(|retry| retry.min(self.busy.len()));
    }

    // ---- writes begin and end ----

    /// Notes that a write begins.
    pub(super) fn write_begins(&mut self, key: BlockKey) {
        self.all += 1;
        self.in_flight[key.volume()] += 1;
    }

    /// Notes that the job has begun a write to the volume, of one record or several.
    pub(super) fn note_begun(&mut self, job: &mut Job, volume: Volume) {
        self.begun[volume] += 1;
        job.note_begun(volume);
    }

    /// Notes that a record is being read into a bounce frame.
    pub(super) fn frame_taken(&mut self, key: BlockKey) {
        self.frames[key.volume()] += 1;
        self.reading += 1;
    }

    /// Notes that a record is no longer being read into its bounce frame: it is there, or cannot be
    /// used.
    pub(super) fn read_ended(&mut self) {
        self.reading -= 1;
    }

    /// Notes that a record's transfer ends; its bounce frame, if any, is free.
    pub fn record_ends(&mut self, tiers: &Tiers, t: TransferIndex) {
        let transfer = &tiers.transfers[t];
        self.frames[transfer.key.volume()] -= u32::from(transfer.bounce.is_some());
    }

    pub(super) fn write_ended(&mut self, key: BlockKey) {
        self.all -= 1;
        self.in_flight[key.volume()] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{choose, holding};
    use super::*;
    use crate::byte_range::ByteRange;
    use crate::cache::Cache;
    use crate::shard::Shard;
    use crate::shard::transfer::TransferKind;
    use crate::world::shard_context;

    /// Another transfer of the block begins.
    fn hold(cache: &mut Cache, key: BlockKey) {
        let Shard { tiers, .. } = &mut cache.world.shards[0];
        let id = tiers.blocks.entry_of(key);
        let (context, kind) = (&mut shard_context!(cache.world), TransferKind::FetchLine);
        tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, ByteRange::EMPTY);
    }

    /// Ends the transfer of the block.
    fn release(cache: &mut Cache, key: BlockKey) {
        let Tiers { blocks, transfers, .. } = &mut cache.world.shards[0].tiers;
        let id = blocks.entry_of(key);
        let t = blocks[id].transfer().expect("it is busy");
        blocks[id].set_transfer(None);
        transfers.remove(t);
    }

    /// Takes a step, and returns whether a write of the block is in flight then.
    fn writes(cache: &mut Cache, key: BlockKey) -> bool {
        cache.world.budget.refill(100);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        assert_eq!(destager.step(tiers, &mut shard_context!(cache.world)), JobState::Busy);
        let kind = |t| tiers.transfers[t].kind;
        let transfer = tiers.blocks[tiers.blocks.entry_of(key)].transfer().map(kind);
        matches!(transfer, Some(TransferKind::DestageRead { .. }))
    }

    /// Goal: no busy record is forgotten. Method: a block is released while another is written,
    /// after its turn. Nothing else will cause a step for it.
    #[test]
    fn a_record_that_was_released_during_another_write_is_tried_when_that_ends() {
        let [one, other] = [2, 5].map(|block| BlockKey::new(Volume(0), block));
        let mut cache = holding(&[one, other]);
        [one, other].into_iter().for_each(|key| hold(&mut cache, key));
        choose(&mut cache, VolumeSet::EMPTY);
        cache.world.shards[0].destager.begin(VolumeSet::EMPTY, false, VolumeSet::EMPTY);
        assert!(!writes(&mut cache, one) && !writes(&mut cache, other));
        release(&mut cache, other);
        assert!(writes(&mut cache, other));
        release(&mut cache, one);
        let Shard { destager, tiers, .. } = &mut cache.world.shards[0];
        let t = tiers.blocks[tiers.blocks.entry_of(other)].transfer().expect("it is written");
        let _ = destager.record_unread(tiers, &mut shard_context!(cache.world), t, true);
        destager.writes.record_ends(tiers, t);
        release(&mut cache, other);
        assert!(writes(&mut cache, one));
    }
}
