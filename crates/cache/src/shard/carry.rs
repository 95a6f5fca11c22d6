//! Carrying on: what is still owed of a region that is to be used again, and cannot be destaged.
//!
//! Records of volumes whose backing store takes nothing are read and written anew at the head of the
//! log, so that the volumes of other stores find room.
//!
//! A dirty record that cannot be read was the only copy of its block's newest data. That this is lost
//! must outlive its region: else the backing store's older version would come to light. So it is
//! written down at the head of the log, in an entry without a payload, and that moves on in the same
//! way whenever the log comes round, until somebody writes the block.

use forebay_effect::IoError;
use forebay_flash::{Append, Geometry, Position};

use super::blocks::FlashRecord;
use super::transfer::Kind;
use super::volume_bit;
use super::{Shard, ShardContext};
use crate::frames::Frame;
use crate::index::{Entry, EntryId, UNREADABLE};

/// At most 1/4 of the blocks that flash can hold may be lost ones.
const LOST_SHARE: u32 = 4;

/// Records of a batch of what is carried on, where there are as many frames: batches are not so small that
/// their headers fill what is kept free.
const CARRY_BATCH: usize = 16;

/// How carrying a region's records on stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CarryState {
    /// Waiting for the log, or for transfers.
    Busy,
    /// The region holds nothing dirty any more.
    Done,
    /// A record could not be read.
    Unreadable,
    /// The log has failed.
    Failed,
}

/// What carrying a region on comes to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owed {
    /// Blocks that would be lost, and are not yet.
    pub lost: u64,
    /// Pages of the log, at most.
    pub pages: u64,
}

impl Shard {
    /// What it comes to if all that is dirty in the region is carried on; `None` if that must not be:
    /// because a record is to be destaged, being of a volume that is none of `carried` (bits), or
    /// because too much is lost (that keeps its entry in the index, and others need some).
    pub fn carry_needs(&self, region: u32, carried: u64, geometry: &Geometry) -> Option<Owed> {
        let mut owed = Owed::default();
        let mut records: u64 = 0;
        let block = geometry.block_pages();
        for e in
            self.tiers.flash.blocks_of(&self.tiers.blocks, region).map(|id| &self.tiers.blocks[id])
        {
            if e.flash_dirty == 0 {
                continue;
            }
            if is_lost(e) {
                // Each may come to stand in a batch of its own.
                owed.pages += 1;
                owed.lost += u64::from(e.owed() != 0 && e.lost_on_flash() == 0);
            } else if carried & volume_bit(e.key()) != 0 {
                owed.pages += u64::from(block);
                records += 1;
            } else {
                return None;
            }
        }
        // With the headers of batches, and what may be left at the end of a region.
        owed.pages += records.div_ceil(self.carry_batch(geometry) as u64) + 2;
        let most = self.tiers.flash.entries() / LOST_SHARE;
        (owed.lost == 0 || self.tiers.blocks.lost() + owed.lost as u32 <= most).then_some(owed)
    }

    /// Records that are carried on together at least, unless fewer are left.
    pub fn carry_batch(&self, geometry: &Geometry) -> usize {
        let most =
            geometry.batch_entries_max.min((geometry.batch_pages_max - 1) / geometry.block_pages());
        (most.max(1) as usize).min(CARRY_BATCH).min(self.tiers.transfers.bounces())
    }

    /// Whether a dirty record of the region could not be read.
    pub fn region_is_unreadable(&self, region: u32) -> bool {
        let dirty = |e: &Entry| e.flash_dirty != 0 && is_lost(e);
        self.tiers.flash.region_has_dirty(&self.tiers.blocks, region, dirty)
    }

    /// Begins to carry on what cleaning has left of a region, of volumes whose store fails (bits) or
    /// because it cannot be read.
    pub fn carry_begin(&mut self, region: u32, failing: u64) {
        let mut left = core::mem::take(&mut self.scratch);
        left.clear();
        for id in self.tiers.flash.blocks_of(&self.tiers.blocks, region) {
            let e = &self.tiers.blocks[id];
            if let (true, Some(position)) = (e.flash_dirty != 0, e.position()) {
                let hopeless = e.owed() == 0 || e.has(UNREADABLE);
                let fails = failing & volume_bit(e.key()) != 0;
                assert!(hopeless || fails, "data that can be read is given up for lost");
                left.push((e.key(), position));
            }
        }
        self.scratch = left;
        self.carry_unread = false;
    }

    /// Pushes that on.
    pub fn carry_step(&mut self, context: &mut ShardContext<'_>) -> CarryState {
        if self.tiers.flash.log_failed() {
            return CarryState::Failed;
        }
        let mut left = core::mem::take(&mut self.scratch);
        left.retain(|&(key, position)| {
            let id = self.tiers.blocks.find_at(key, position);
            let may = |s: &Self, id: &EntryId| !s.carry_unread && s.may_carry(context, *id);
            if let Some(id) = id.filter(|id| may(self, id)) {
                self.carry(context, id, position);
            }
            id.is_some()
        });
        let state = match (left.is_empty(), self.carry_unread) {
            (true, _) => CarryState::Done,
            (_, true) if self.carries.is_empty() => CarryState::Unreadable,
            _ => CarryState::Busy,
        };
        let log = context.log.as_deref_mut().expect("a record needs a log");
        let together = self.carry_batch(log.geometry()).min(left.len());
        let enough = self.carries.len() >= together.max(1) || self.carry_unread;
        // (If there are fewer, others hold frames, or blocks, that they will give back; but what is lost
        // needs places that it takes itself.)
        let cramped = !self.carries.is_empty() && !self.tiers.transfers.may_be_loose();
        if self.carry_reads == 0 && (enough || cramped) {
            log.close_carried();
        }
        self.scratch = left;
        state
    }

    /// Whether the block's record can be carried on now, by a transfer of its `own`. While a newer record of the block waits for a
    /// batch, it can: what is carried comes first in the log. Once the newer record is in a batch, it
    /// must not: the entry would come later and void it. Nor need it, since the newer record replaces
    /// the old one when the batch is written.
    fn comes_before(&self, context: &ShardContext<'_>, id: EntryId, own: Option<u32>) -> bool {
        let e = &self.tiers.blocks[id];
        e.transfer() == own
            || e.transfer().is_none_or(|t| {
                let log = context.log.as_deref().expect("a record needs a log");
                matches!(self.tiers.transfers[t].kind, Kind::Append { .. })
                    && log.is_waiting(e.key())
            })
    }

    fn may_carry(&self, context: &ShardContext<'_>, id: EntryId) -> bool {
        let e = &self.tiers.blocks[id];
        let place = if is_lost(e) {
            self.tiers.transfers.may_be_loose()
        } else {
            self.tiers.transfers.bounces_free() > 0
        };
        place && !self.carries.contains(&e.key()) && self.comes_before(context, id, None)
    }

    fn carry(&mut self, context: &mut ShardContext<'_>, id: EntryId, position: Position) {
        let e = &self.tiers.blocks[id];
        let (key, dirty) = (e.key(), e.flash_dirty);
        let lost = is_lost(e);
        let kind = match lost {
            true => Kind::Carry { position, valid: 0, dirty },
            false => Kind::CarryRead { position },
        };
        let t = match e.transfer() {
            None => self.tiers.transfers.start_on(&mut self.tiers.blocks, id, kind, (0, 0)),
            Some(_) => self.tiers.transfers.start(kind, key, (0, 0)),
        };
        self.carries.push(key);
        if lost {
            return self.hand_on(context, t, Frame(u32::MAX));
        }
        let bounce = self.tiers.transfers.take_bounce().expect("a bounce frame was counted on");
        self.tiers.transfers[t].bounce = Some(bounce);
        self.carry_reads += 1;
        self.tiers.transfers.read_record(&self.tiers.blocks, context, (id, t), bounce);
    }

    /// Gives the log what is carried on.
    fn hand_on(&mut self, context: &mut ShardContext<'_>, t: u32, frame: Frame) {
        let Kind::Carry { valid, dirty, .. } = self.tiers.transfers[t].kind else {
            unreachable!("a record is carried on")
        };
        let (ticket, key) = (self.tiers.transfers.ticket(t), self.tiers.transfers[t].key);
        let log = context.log.as_deref_mut().expect("a record needs a log");
        log.carry(Append { ticket, key, valid, dirty, slot: frame, urgent: true });
    }

    /// A record to be carried on was read: `Ok(true)` good, `Ok(false)` something newer has taken its
    /// place.
    pub(super) fn carry_read(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        position: Position,
        end: Result<bool, IoError>,
    ) {
        self.carry_reads -= 1;
        let key = self.tiers.transfers[t].key;
        // (While it was read, a newer record may have come into a batch.)
        let id = self.tiers.blocks.find(key).filter(|&id| self.comes_before(context, id, Some(t)));
        if let (Ok(true), Some(id)) = (end, id) {
            let e = &self.tiers.blocks[id];
            let (valid, dirty) = (e.flash_valid, e.flash_dirty);
            self.tiers.transfers[t].kind = Kind::Carry { position, valid, dirty };
            let frame = self.tiers.transfers[t].bounce.expect("a record was read");
            return self.hand_on(context, t, frame);
        }
        if end.is_err() {
            self.carry_unread = true;
            self.tiers.flash.note_unreadable(&mut self.tiers.blocks, key);
        }
        self.carries.retain(|&carried| carried != key);
        self.finish(context, t, |_, _, _| {});
    }

    /// The log has it now, at another position, unless something newer has taken the record's place: the
    /// regions of both.
    pub(super) fn carried(
        &mut self,
        context: &mut ShardContext<'_>,
        t: u32,
        from: Position,
        to: FlashRecord,
    ) -> Option<(u32, u32)> {
        let key = self.tiers.transfers[t].key;
        self.carries.retain(|&carried| carried != key);
        let id = self.tiers.blocks.find_at(key, from);
        let log = context.log.as_deref().expect("a record needs a log");
        let moved = id.map(|_| (log.region_of(from), log.region_of(to.position)));
        if let Some(id) = id {
            context.stats.carried_lost += u64::from(to.valid == 0);
            context.stats.carried += u64::from(to.valid != 0);
            self.tiers.flash.set_record(&mut self.tiers.blocks, context, id, Some(to));
        }
        self.finish(context, t, |_, _, _| {});
        self.tiers.transfers.close_runs(context);
        moved
    }
}

/// Whether what is carried on of the record is that it is lost.
fn is_lost(e: &Entry) -> bool {
    e.owed() == 0 || e.has(UNREADABLE)
}
