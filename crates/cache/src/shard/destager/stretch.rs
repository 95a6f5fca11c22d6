//! The records that a job has chosen, in transit to the backing store.
//!
//! A record is written from its frame if the frame holds the same version, else through a bounce
//! frame. The records of consecutive blocks that are wholly dirty form a *stretch*: they are read
//! in parallel, and when the last is read the stretch is written with one operation. A record that
//! proves to be superseded or unreadable leaves a gap; the parts on both sides of it become
//! separate writes.

use forebay_effect::{Effect, Place, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Granules, Position};

use super::state::Job;
use super::writes::Writes;
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::entry::EntryId;
use crate::shard::frames::Frame;
use crate::shard::tiers::Tiers;
use crate::shard::transfer::TransferKind;
use crate::shard::transfers::{Transfers, backing};
use crate::slab::{StretchIndex, TransferIndex};

/// Longest stretch, in blocks and in bytes.
const STRETCH_BLOCKS_MAX: usize = 32;
const STRETCH_BYTES_MAX: usize = 1 << 20;

/// Records of consecutive blocks whose bytes are being collected. Their transfers are linked by
/// block, through [`Transfer::next`](crate::shard::transfer::Transfer).
#[derive(Debug)]
pub(super) struct Stretch {
    first: TransferIndex,
    /// The key of one of its blocks.
    key: BlockKey,
    /// Reads from flash in progress.
    reading: u32,
}

/// A member of a stretch: its block, whether the block is being appended, and the frame that holds
/// the record's version.
pub(super) type Member = (EntryId, bool, Option<Frame>);

/// The remaining work for an unusable record: its transfer ends, and its stretch waits for one read
/// less.
#[must_use]
pub(crate) struct Unread {
    pub overtaken: bool,
    /// The stretch, or [`StretchIndex::NONE`].
    pub stretch: StretchIndex,
}

/// The state of a chosen record.
enum RecordState {
    /// The record is no longer the newest, or no longer dirty.
    NotOwed,
    /// Another transfer of its block is in progress.
    Busy,
    /// Ready; `appending`: during the append of a newer version.
    Ready { id: EntryId, appending: bool },
}

impl Writes {
    /// Starts to write the next records. Returns false if other transfers must end first.
    pub(super) fn next(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        job: &mut Job,
        chosen: &[(BlockKey, Position)],
    ) -> bool {
        let Some((at, part)) = self.at(tiers, job) else { return false };
        let (key, position) = chosen[at];
        let state = state_of(tiers, job, key, position);
        let RecordState::Ready { id, appending } = state else {
            // The budget is not charged for another look at a busy block: a call that has used up
            // its budget is repeated at once, and the block would still be busy.
            let first_time = part.is_some();
            if first_time && !context.budget.take() {
                return false;
            }
            if first_time && matches!(state, RecordState::Busy) {
                self.busy.push(at as u32);
            }
            self.advance(job, part, 1);
            return true;
        };
        let taken = if tiers.blocks[id].owed() == tiers.blocks.granularity().all() {
            self.destage_stretch(tiers, context, job, &chosen[at..])
        } else {
            self.destage_parts(tiers, context, job, (id, appending))
        };
        if taken == 0 {
            // Records of other volumes may need no bounce frames.
            job.starved.insert(key.volume());
            return part.is_some();
        }
        self.advance(job, part, taken);
        self.note_begun(job, key.volume());
        true
    }

    /// Starts to write the first of these records and those of the blocks that follow it. Returns
    /// their number; 0 if there are too few bounce frames.
    fn destage_stretch(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        job: &Job,
        chosen: &[(BlockKey, Position)],
    ) -> usize {
        let mut members = core::mem::take(&mut self.members_scratch);
        members.clear();
        let most = STRETCH_BLOCKS_MAX
            .min((STRETCH_BYTES_MAX >> tiers.blocks.granularity().block_shift()).max(1));
        let first = chosen[0].0;
        let frames = self.frames_for(tiers, job, first.volume());
        let mut reads = 0;
        for (n, &(key, position)) in chosen.iter().take(most).enumerate() {
            let follows =
                key.volume() == first.volume() && key.block().0 == first.block().0 + n as u64;
            let RecordState::Ready { id, appending } = state_of(tiers, job, key, position) else {
                break;
            };
            if !follows || tiers.blocks[id].owed() != tiers.blocks.granularity().all() {
                break;
            }
            let frame = frame_of_record(tiers, id, appending);
            if frame.is_none() && reads == frames {
                if self.in_flight() > 0 {
                    // More will be free; a stretch is not cut short for that.
                    members.clear();
                }
                break;
            }
            reads += usize::from(frame.is_none());
            members.push((id, appending, frame));
        }
        if !members.is_empty() {
            self.start_stretch(tiers, context, &members, reads as u32);
        }
        let taken = members.len();
        context.stats.destaged_together += if taken > 1 { taken as u64 } else { 0 };
        self.members_scratch = members;
        taken
    }

    fn start_stretch(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        members: &[Member],
        reading: u32,
    ) {
        let key = tiers.blocks[members[0].0].key();
        let stretch = self.stretches.insert(Stretch { first: TransferIndex::NONE, key, reading });
        self.write_begins(key);
        (0..reading).for_each(|_| self.frame_taken(key));
        let mut last = TransferIndex::NONE;
        let Tiers { blocks, transfers, .. } = &mut *tiers;
        for &member in members {
            let (id, _, frame) = member;
            let t = start_record(transfers, blocks, context, member);
            transfers[t].stretch = stretch;
            match last {
                TransferIndex::NONE => self.stretches[stretch].first = t,
                last => transfers[last].next = t,
            }
            last = t;
            if frame.is_none() {
                read_record(transfers, blocks, context, id, t);
            }
        }
        if reading == 0 {
            self.write_stretch(tiers, context, stretch);
        }
    }

    /// Called when the record is in its bounce frame; it continues to the backing store.
    pub fn record_read(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
    ) {
        self.read_ended();
        let key: BlockKey = tiers.transfers[t].key;
        let id = tiers.blocks.entry_of(key);
        let from: Frame = tiers.transfers[t].bounce.expect("a bounce frame was read into");
        let e = &tiers.blocks[id];
        let position = e.position().expect("the record was just verified");
        tiers.transfers[t].kind = TransferKind::DestageRecord { rest: e.owed(), from, position };
        match tiers.transfers[t].stretch {
            StretchIndex::NONE => {
                tiers.transfers.destage_step(&tiers.blocks, context, t, from);
            }
            stretch => self.stretch_read(tiers, context, stretch),
        }
    }

    /// The record cannot be used: another has replaced it (`overtaken`: this one need not be
    /// destaged any more), or it cannot be read. Returns the remaining work, unless it is written
    /// from memory.
    #[must_use]
    pub(super) fn record_unread(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        job: &mut Job,
        t: TransferIndex,
        overtaken: bool,
    ) -> Option<Unread> {
        self.read_ended();
        let key = tiers.transfers[t].key;
        let TransferKind::DestageRead { position } = tiers.transfers[t].kind else {
            unreachable!("a record is read")
        };
        let here = tiers.blocks.find_at(key, position);
        let overtaken = overtaken || here.is_none();
        if let (false, Some(id)) = (overtaken, here)
            && tiers.blocks[id].transfer() == Some(t)
        {
            let e = &tiers.blocks[id];
            let (newer, there) =
                (!(e.owed() & e.dirty()).is_empty(), (e.owed() & !e.valid()).is_empty());
            if newer && context.flash.logs(key) {
                // Newer data must be on flash before it is on the backing store: the next start may
                // be able to read the record, which would then count as clean. So a newer record
                // replaces it first.
                tiers.blocks[id].want_append();
            } else if let (true, Some(frame)) = (there, e.frame()) {
                self.destage_from_frame(tiers, context, t, frame);
                return None;
            }
        }
        if !overtaken {
            tiers.flash.note_unreadable(&mut tiers.blocks, key, position);
        }
        job.unreadable |= !overtaken;
        let stretch = tiers.transfers[t].stretch;
        match stretch {
            StretchIndex::NONE => self.write_ended(key),
            stretch => {
                self.leave_stretch(tiers, stretch, t);
                context.stats.destage_gaps += 1;
            }
        }
        Some(Unread { overtaken, stretch })
    }

    /// Writes from memory what flash cannot provide: the same data or, if nothing can be logged,
    /// newer data.
    fn destage_from_frame(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        frame: Frame,
    ) {
        let key = tiers.transfers[t].key;
        let id = tiers.blocks.entry_of(key);
        let e = &tiers.blocks[id];
        let position = e.position().expect("the entry has a record");
        tiers.transfers[t].kind =
            TransferKind::DestageRecord { rest: e.owed(), from: frame, position };
        context.stats.destaged_after_loss += 1;
        let stretch = core::mem::replace(&mut tiers.transfers[t].stretch, StretchIndex::NONE);
        if stretch != StretchIndex::NONE {
            self.leave_stretch(tiers, stretch, t);
            tiers.transfers[t].next = TransferIndex::NONE;
            context.stats.destage_gaps += 1;
            self.write_begins(key);
        }
        tiers.transfers.destage_step(&tiers.blocks, context, t, frame);
        if stretch != StretchIndex::NONE {
            self.stretch_read(tiers, context, stretch);
        }
    }

    /// Called when one of the stretch's reads has ended.
    pub fn stretch_read(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        stretch: StretchIndex,
    ) {
        self.stretches[stretch].reading -= 1;
        if self.stretches[stretch].reading == 0 {
            self.write_stretch(tiers, context, stretch);
        }
    }

    /// Removes a transfer from its stretch.
    fn leave_stretch(&mut self, tiers: &mut Tiers, stretch: StretchIndex, t: TransferIndex) {
        let next = tiers.transfers[t].next;
        if self.stretches[stretch].first == t {
            self.stretches[stretch].first = next;
            return;
        }
        let mut before = self.stretches[stretch].first;
        while tiers.transfers[before].next != t {
            before = tiers.transfers[before].next;
        }
        tiers.transfers[before].next = next;
    }

    /// All data is in frames: issues one write for each part without a gap.
    fn write_stretch(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        stretch: StretchIndex,
    ) {
        let Stretch { mut first, key, .. } = self.stretches.remove(stretch);
        while first != TransferIndex::NONE {
            first = self.write_part(tiers, context, first);
            self.write_begins(key);
        }
        // The stretch itself was counted as one.
        self.write_ended(key);
    }

    /// Writes `first` and the records that follow it without a gap. Returns the transfer after
    /// these, or [`TransferIndex::NONE`].
    fn write_part(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        first: TransferIndex,
    ) -> TransferIndex {
        let mut segments = core::mem::take(&mut self.segments_scratch);
        segments.clear();
        let mut last = first;
        loop {
            let t = &mut tiers.transfers[last];
            let TransferKind::DestageRecord { rest, from, .. } = &mut t.kind else {
                unreachable!("a stretch consists of record destages")
            };
            *rest = Granules::EMPTY;
            let place = Place::Frame { frame: *from, offset: 0 };
            segments.push(Segment { place, length: (t.end - t.start) as u32 });
            let (end, next) = (t.end, t.next);
            let careless = context.mode.sabotage.is(Bug::GapWrittenOver);
            if next == TransferIndex::NONE || (tiers.transfers[next].start != end && !careless) {
                break;
            }
            last = next;
        }
        let after = core::mem::replace(&mut tiers.transfers[last].next, TransferIndex::NONE);
        let t = &tiers.transfers[first];
        let (token, device) = (tiers.transfers.token(first), backing(t.key.volume()));
        let (offset, length) = (t.start, segments.iter().map(|s| s.length).sum::<u32>());
        let stats = &mut context.volumes[t.key.volume()].stats;
        stats.backing_write_bytes += u64::from(length);
        let effect = Effect::Write { token, device, offset, length };
        context.effects.push_slice(effect, &segments);
        self.segments_scratch = segments;
        after
    }

    /// Starts to write one record's dirty granules, run by run. Returns 1, or 0 if it lacks a
    /// bounce frame.
    fn destage_parts(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        job: &Job,
        (id, appending): (EntryId, bool),
    ) -> usize {
        let key = tiers.blocks[id].key();
        let frames = self.frames_for(tiers, job, key.volume());
        let frame = frame_of_record(tiers, id, appending);
        let Tiers { blocks, transfers, .. } = tiers;
        match frame {
            Some(frame) => {
                let t = start_record(transfers, blocks, context, (id, appending, Some(frame)));
                self.write_begins(key);
                transfers.destage_step(blocks, context, t, frame);
            }
            None if frames == 0 => return 0,
            None => {
                let t = start_record(transfers, blocks, context, (id, appending, None));
                self.write_begins(key);
                self.frame_taken(key);
                read_record(transfers, blocks, context, id, t);
            }
        }
        1
    }
}

/// Whether the chosen record is still the newest, dirty and writable.
pub(super) fn is_owed(tiers: &Tiers, job: &Job, id: EntryId, position: Position) -> bool {
    let e = &tiers.blocks[id];
    let tried = e.is_tried() || job.leaves_out(e.key());
    !e.owed().is_empty() && !tried && e.position() == Some(position)
}

/// The state of a chosen record. A job does not wait for a block whose newer version is being
/// appended: that append may itself wait for the region to become free. The block's record is
/// destaged *during* the append. Nothing can overtake it: a later job destages the newer version,
/// and until then these granules are not read from the backing store, because the newer record
/// holds them all.
fn state_of(tiers: &Tiers, job: &Job, key: BlockKey, position: Position) -> RecordState {
    match tiers.blocks.find(key) {
        Some(id) if is_owed(tiers, job, id, position) => match tiers.blocks[id].transfer() {
            None => RecordState::Ready { id, appending: false },
            Some(t) if matches!(tiers.transfers[t].kind, TransferKind::Append { .. }) => {
                RecordState::Ready { id, appending: true }
            }
            Some(_) => RecordState::Busy,
        },
        _ => RecordState::NotOwed,
    }
}

/// The frame that holds the version of the block's record.
fn frame_of_record(tiers: &Tiers, id: EntryId, appending: bool) -> Option<Frame> {
    let e = &tiers.blocks[id];
    let same = !appending && e.dirty().is_empty() && (e.owed() & !e.valid()).is_empty();
    e.frame().filter(|_| same)
}

/// Starts a transfer of the block's record, from a frame or through a bounce frame.
fn start_record(
    transfers: &mut Transfers,
    blocks: &mut Blocks,
    context: &mut ShardContext<'_>,
    (id, appending, frame): Member,
) -> TransferIndex {
    let e = &blocks[id];
    context.stats.destaged_under_newer += u64::from(frame.is_none() && !e.dirty().is_empty());
    let (key, rest) = (e.key(), e.owed());
    let position = e.position().expect("a record to destage");
    let range = blocks.granularity().range_within(context, key);
    let kind = match frame {
        Some(from) => TransferKind::DestageRecord { rest, from, position },
        None => TransferKind::DestageRead { position },
    };
    if appending {
        transfers.start(context.volumes, kind, key, range)
    } else {
        transfers.start_on(blocks, context.volumes, id, kind, range)
    }
}

/// Reads the record into a bounce frame.
fn read_record(
    transfers: &mut Transfers,
    blocks: &Blocks,
    context: &mut ShardContext<'_>,
    id: EntryId,
    t: TransferIndex,
) {
    let bounce = transfers.take_bounce().expect("a bounce frame is available");
    transfers[t].bounce = Some(bounce);
    transfers.read_record(blocks, context, (id, t), bounce);
}
