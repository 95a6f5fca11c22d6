//! Destage: a job's records on their way to the backing store.
//!
//! A record goes from its frame if that holds the same version, else by way of a bounce frame. The
//! records of consecutive blocks that are dirty as a whole make a *stretch*: they are read side by
//! side, and when the last is there the stretch is one write. A record that turns out to be
//! overtaken or unreadable leaves a gap; what is left and right of it goes as writes of its own.

use forebay_effect::{Effect, Place, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

use super::clean::Job;
use super::transfer::Kind;
use super::transfers::backing;
use super::volume_bit;
use super::{Shard, ShardContext};
use crate::frames::Frame;
use crate::index::{EntryId, WANTS_APPEND};
use crate::slab::NONE;

/// Longest stretch, in blocks and in bytes.
const STRETCH_BLOCKS_MAX: usize = 32;
const STRETCH_BYTES_MAX: usize = 1 << 20;

/// Records of consecutive blocks whose bytes are being collected. Their transfers are linked by
/// block, through [`Transfer::next`](super::transfer::Transfer).
#[derive(Debug)]
pub(crate) struct Stretch {
    first: u32,
    /// Reads of flash under way.
    reading: u32,
}

/// How a record that was chosen stands.
enum Standing {
    /// It is no longer the newest, or no longer dirty.
    NotOwed,
    /// Something else is under way on its block.
    Busy,
    /// Ready; `appending`: beside the append of a newer version.
    Ready { id: EntryId, appending: bool },
}

impl Shard {
    /// Starts to write the next records; false if that must wait for other transfers to end.
    pub(super) fn destage_next(&mut self, context: &mut ShardContext<'_>, job: &mut Job) -> bool {
        let Some(&(key, position)) = self.scratch.get(job.cursor) else { return false };
        let (id, appending) = match self.standing(job, key, position) {
            Standing::Ready { id, appending } => (id, appending),
            Standing::NotOwed => {
                job.cursor += 1;
                return true;
            }
            Standing::Busy => {
                job.again = true;
                job.cursor += 1;
                return true;
            }
        };
        let taken = if self.tiers.blocks[id].owed() == self.tiers.blocks.granules().all() {
            self.destage_stretch(context, job)
        } else {
            self.destage_parts(context, id, appending)
        };
        if taken == 0 {
            return false;
        }
        job.cursor += taken;
        job.in_flight += 1;
        job.volumes |= volume_bit(key);
        true
    }

    /// A block whose newer version is being appended is not waited for: that append may itself
    /// wait for the region to become free. Its record is destaged *beside* the append. Nothing
    /// can overtake: the newer version is destaged by a later job, and until then nobody reads
    /// these granules from the backing store, because the newer record holds them all.
    fn standing(&self, job: &Job, key: BlockKey, position: Position) -> Standing {
        match self.tiers.blocks.find(key) {
            Some(id) if self.is_owed(job, id, position) => match self.tiers.blocks[id].transfer() {
                None => Standing::Ready { id, appending: false },
                Some(t) if matches!(self.tiers.transfers[t].kind, Kind::Append { .. }) => {
                    Standing::Ready { id, appending: true }
                }
                Some(_) => Standing::Busy,
            },
            _ => Standing::NotOwed,
        }
    }

    /// The frame that holds the version of the block's record.
    fn frame_of_record(&self, id: EntryId, appending: bool) -> Option<Frame> {
        let e = &self.tiers.blocks[id];
        let same = !appending && e.dirty == 0 && e.owed() & !e.valid == 0;
        e.frame().filter(|_| same)
    }

    /// Starts to write one record's dirty granules, run by run; 0 without a bounce frame.
    fn destage_parts(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        appending: bool,
    ) -> usize {
        match self.frame_of_record(id, appending) {
            Some(frame) => {
                let t = self.start_record(context, id, appending, Some(frame));
                self.tiers.transfers.destage_step(&self.tiers.blocks, context, t, frame);
            }
            None if self.tiers.transfers.bounces_free() == 0 => return 0,
            None => {
                let t = self.start_record(context, id, appending, None);
                self.read_record(context, id, t);
            }
        }
        1
    }

    /// Starts to write the record at the cursor and those that follow on it; the number of them,
    /// 0 if that must wait for bounce frames.
    fn destage_stretch(&mut self, context: &mut ShardContext<'_>, job: &Job) -> usize {
        let mut members = core::mem::take(&mut self.stretch_scratch);
        members.clear();
        let most = STRETCH_BLOCKS_MAX
            .min((STRETCH_BYTES_MAX >> self.tiers.blocks.granules().block_shift()).max(1));
        let first = self.scratch[job.cursor].0;
        let mut reads = 0;
        for (n, &(key, position)) in self.scratch[job.cursor..].iter().take(most).enumerate() {
            let follows =
                key.volume() == first.volume() && key.block().0 == first.block().0 + n as u64;
            let Standing::Ready { id, appending } = self.standing(job, key, position) else {
                break;
            };
            if !follows || self.tiers.blocks[id].owed() != self.tiers.blocks.granules().all() {
                break;
            }
            let frame = self.frame_of_record(id, appending);
            if frame.is_none() && reads == self.tiers.transfers.bounces_free() {
                if job.in_flight > 0 {
                    // More will be free; a stretch is not cut short for that.
                    members.clear();
                }
                break;
            }
            reads += usize::from(frame.is_none());
            members.push((id, appending, frame));
        }
        if !members.is_empty() {
            self.start_stretch(context, &members, reads as u32);
        }
        let taken = members.len();
        context.stats.destaged_together += if taken > 1 { taken as u64 } else { 0 };
        self.stretch_scratch = members;
        taken
    }

    fn start_stretch(
        &mut self,
        context: &mut ShardContext<'_>,
        members: &[(EntryId, bool, Option<Frame>)],
        reading: u32,
    ) {
        let stretch = self.stretches.insert(Stretch { first: NONE, reading });
        let mut last = NONE;
        for &(id, appending, frame) in members {
            let t = self.start_record(context, id, appending, frame);
            self.tiers.transfers[t].stretch = stretch;
            match last {
                NONE => self.stretches[stretch].first = t,
                last => self.tiers.transfers[last].next = t,
            }
            last = t;
            if frame.is_none() {
                self.read_record(context, id, t);
            }
        }
        if reading == 0 {
            self.write_stretch(context, stretch);
        }
    }

    /// A transfer of the block's record, from a frame or by way of a bounce frame.
    fn start_record(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        appending: bool,
        frame: Option<Frame>,
    ) -> u32 {
        let e = &self.tiers.blocks[id];
        context.stats.destaged_under_newer += u64::from(frame.is_none() && e.dirty != 0);
        let (key, rest) = (e.key(), e.owed());
        let position = e.position().expect("a record to destage");
        let range = self.tiers.blocks.granules().range_within(context, key);
        let kind = match frame {
            Some(from) => Kind::DestageRecord { rest, from, position },
            None => Kind::DestageRead { position },
        };
        if appending {
            self.tiers.transfers.start(kind, key, range)
        } else {
            self.tiers.transfers.start_on(&mut self.tiers.blocks, id, kind, range)
        }
    }

    fn read_record(&mut self, context: &mut ShardContext<'_>, id: EntryId, t: u32) {
        let bounce = self.tiers.transfers.take_bounce().expect("a bounce frame was counted on");
        self.tiers.transfers[t].bounce = Some(bounce);
        self.tiers.transfers.read_record(&self.tiers.blocks, context, (id, t), bounce);
    }

    /// The record is in its bounce frame: on to the backing store.
    pub(super) fn record_read(&mut self, context: &mut ShardContext<'_>, t: u32) {
        let key: BlockKey = self.tiers.transfers[t].key;
        let id = self.tiers.blocks.entry_of(key);
        let from: Frame = self.tiers.transfers[t].bounce.expect("a bounce frame was read into");
        let e = &self.tiers.blocks[id];
        let position = e.position().expect("the record was just verified");
        self.tiers.transfers[t].kind = Kind::DestageRecord { rest: e.owed(), from, position };
        match self.tiers.transfers[t].stretch {
            NONE => {
                self.tiers.transfers.destage_step(&self.tiers.blocks, context, t, from);
            }
            stretch => self.stretch_read(context, stretch),
        }
    }

    /// The record cannot be used: another has taken its place (`overtaken`: nothing is owed for
    /// this one any more), or it cannot be read.
    pub(super) fn record_unread(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        overtaken: bool,
    ) {
        let key = self.tiers.transfers[t].key;
        let Kind::DestageRead { position } = self.tiers.transfers[t].kind else {
            unreachable!("a record is read")
        };
        let entry = self.tiers.blocks.find(key);
        let here = entry.filter(|&id| self.tiers.blocks[id].position() == Some(position));
        let overtaken = overtaken || here.is_none();
        if let (false, Some(id)) = (overtaken, here)
            && self.tiers.blocks[id].transfer() == Some(t)
        {
            let e = &self.tiers.blocks[id];
            let (newer, there) = (e.owed() & e.dirty != 0, e.owed() & !e.valid == 0);
            if newer && self.tiers.flash.logs(key) {
                // What is newer has to be on flash before it is on the backing store: the next start may find
                // the record whole, and then it would count as clean. A newer one takes its place.
                self.tiers.blocks[id].set(WANTS_APPEND);
            } else if let (true, Some(frame)) = (there, e.frame()) {
                return self.destage_from_frame(context, t, frame);
            }
        }
        if !overtaken {
            self.tiers.flash.note_unreadable(&mut self.tiers.blocks, key);
        }
        if let Some(job) = &mut self.job {
            job.unreadable |= !overtaken;
        }
        match self.tiers.transfers[t].stretch {
            NONE => {
                self.write_ended();
                self.end_record(context, t, overtaken);
            }
            stretch => {
                self.leave_stretch(stretch, t);
                context.stats.destage_gaps += 1;
                self.end_record(context, t, overtaken);
                self.stretch_read(context, stretch);
            }
        }
    }

    /// Writes from memory what flash does not give: the same, or, if nothing can be logged, what is newer.
    fn destage_from_frame(&mut self, context: &mut ShardContext<'_>, t: u32, frame: Frame) {
        let key = self.tiers.transfers[t].key;
        let id = self.tiers.blocks.entry_of(key);
        let e = &self.tiers.blocks[id];
        let position = e.position().expect("the record is here");
        self.tiers.transfers[t].kind =
            Kind::DestageRecord { rest: e.owed(), from: frame, position };
        context.stats.destaged_past_loss += 1;
        let stretch = core::mem::replace(&mut self.tiers.transfers[t].stretch, NONE);
        if stretch != NONE {
            self.leave_stretch(stretch, t);
            self.tiers.transfers[t].next = NONE;
            context.stats.destage_gaps += 1;
            if let Some(job) = &mut self.job {
                job.in_flight += 1;
            }
        }
        self.tiers.transfers.destage_step(&self.tiers.blocks, context, t, frame);
        if stretch != NONE {
            self.stretch_read(context, stretch);
        }
    }

    /// One of the stretch's reads has ended.
    fn stretch_read(&mut self, context: &mut ShardContext<'_>, stretch: u32) {
        self.stretches[stretch].reading -= 1;
        if self.stretches[stretch].reading == 0 {
            self.write_stretch(context, stretch);
        }
    }

    /// Takes a transfer out of its stretch.
    fn leave_stretch(&mut self, stretch: u32, t: u32) {
        let next = self.tiers.transfers[t].next;
        if self.stretches[stretch].first == t {
            self.stretches[stretch].first = next;
            return;
        }
        let mut before = self.stretches[stretch].first;
        while self.tiers.transfers[before].next != t {
            before = self.tiers.transfers[before].next;
        }
        self.tiers.transfers[before].next = next;
    }

    /// Everything is there: one write for each part without a gap.
    fn write_stretch(&mut self, context: &mut ShardContext<'_>, stretch: u32) {
        let mut first = self.stretches.remove(stretch).first;
        // The stretch itself was counted as one.
        let mut writes = 0;
        while first != NONE {
            first = self.write_part(context, first);
            writes += 1;
        }
        match (writes, &mut self.job) {
            (0, _) => self.write_ended(),
            (more, Some(job)) => job.in_flight += more - 1,
            _ => {}
        }
    }

    /// Writes what follows on `first` without a gap; the transfer after that, or [`NONE`].
    fn write_part(&mut self, context: &mut ShardContext<'_>, first: u32) -> u32 {
        let mut segments = core::mem::take(&mut self.segments_scratch);
        segments.clear();
        let mut last = first;
        loop {
            let t = &mut self.tiers.transfers[last];
            let Kind::DestageRecord { rest, from, .. } = &mut t.kind else {
                unreachable!("a stretch of records that are there")
            };
            *rest = 0;
            let place = Place::Slot { slot: *from, offset: 0 };
            segments.push(Segment { place, length: (t.end - t.start) as u32 });
            let (end, next) = (t.end, t.next);
            let careless = context.front.sabotage.is(Bug::GapWrittenOver);
            if next == NONE || (self.tiers.transfers[next].start != end && !careless) {
                break;
            }
            last = next;
        }
        let after = core::mem::replace(&mut self.tiers.transfers[last].next, NONE);
        let t = &self.tiers.transfers[first];
        let (token, device) = (self.tiers.transfers.token(first), backing(t.key.volume()));
        let (offset, length) = (t.start, segments.iter().map(|s| s.length).sum::<u32>());
        let stats = &mut context.front.volumes[usize::from(t.key.volume())].stats;
        stats.backing_write_bytes += u64::from(length);
        let effect = Effect::Write { token, device, offset, length };
        context.effects.push_slice(effect, &segments);
        self.segments_scratch = segments;
        after
    }

    /// A write to the backing store has ended: of a part of a record, or of one or more as a
    /// whole.
    pub(super) fn record_destage_step(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        from: Frame,
        result: forebay_effect::Outcome,
    ) {
        if result.is_ok() && self.tiers.transfers.destage_step(&self.tiers.blocks, context, t, from)
        {
            return;
        }
        if let (Some(job), Err(error)) = (&mut self.job, result) {
            job.failed_volumes |= volume_bit(self.tiers.transfers[t].key);
            job.error = Some(error);
        }
        self.write_ended();
        let mut t = t;
        while t != NONE {
            let next = self.tiers.transfers[t].next;
            self.end_record(context, t, result.is_ok());
            t = next;
        }
    }

    fn write_ended(&mut self) {
        if let Some(job) = &mut self.job {
            job.in_flight -= 1;
        }
    }

    /// The record is on the backing store, or is not needed there, or stays dirty.
    fn end_record(&mut self, context: &mut ShardContext<'_>, t: u32, written: bool) {
        let (key, kind) = (self.tiers.transfers[t].key, self.tiers.transfers[t].kind);
        if let (true, Kind::DestageRecord { position, .. }) = (written, kind) {
            context.stats.destaged += 1;
            if let Some(id) = self.tiers.blocks.find(key) {
                // Unless a newer record has taken its place: then nothing is owed for this one.
                if self.tiers.blocks[id].position() == Some(position) {
                    self.tiers.blocks[id].set(crate::index::DESTAGED);
                    if context.front.sabotage.is(Bug::DirtyForgottenBeforeSync) {
                        let was = self.tiers.blocks[id].is_dirty();
                        let log = context.log.as_deref().expect("a record needs a log");
                        let region = log.region_of(position);
                        self.tiers.flash.count_record(
                            &self.tiers.blocks,
                            context,
                            id,
                            region,
                            false,
                        );
                        self.tiers.blocks[id].flash_dirty = 0;
                        self.tiers.blocks.count_dirty(id, was, context.front);
                    }
                }
            }
        }
        self.finish(context, t, |_, _, _| {});
    }
}
