//! Carrying on: what is still owed of a region that is to be used again, and cannot be destaged.
//!
//! A dirty record that cannot be read was the only copy of its block's newest data. That this is lost
//! must outlive its region: else the backing store's older version would come to light. So it is
//! written down at the head of the log, in an entry without a payload, and that moves on in the same
//! way whenever the log comes round, until somebody writes the block.

use forebay_effect::Slot;
use forebay_flash::{Append, BlockKey, Position};

use super::transfer::Kind;
use super::{Shard, Surroundings};
use crate::index::{EntryId, UNREADABLE};

/// At most 1/4 of the blocks that flash can hold may be lost ones.
const LOST_SHARE: u32 = 4;

/// How carrying a region's records on stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CarryState {
    /// Waiting for the log, or for transfers.
    Busy,
    /// The region holds nothing dirty any more.
    Done,
    /// The log has failed.
    Failed,
}

impl Shard {
    /// Blocks that would be lost, and are not yet, if what is left of the region were carried on; `None`
    /// if that must not be: what is lost keeps its entry in the index, and others need some.
    pub fn would_lose(&self, region: u32) -> Option<u64> {
        let fresh = |e: &crate::index::Entry| e.flash_dirty != 0 && e.lost_on_flash() == 0;
        let more = self.region_entries_of(region).filter(|&id| fresh(&self.index[id])).count();
        let most = self.flash_entries / LOST_SHARE;
        (self.lost + more as u32 <= most).then_some(more as u64)
    }

    /// Begins to carry on what cleaning has left of a region.
    pub fn carry_begin(&mut self, region: u32) {
        let mut left = core::mem::take(&mut self.scratch);
        left.clear();
        for id in self.region_entries_of(region) {
            let e = &self.index[id];
            if let (true, Some(position)) = (e.flash_dirty != 0, e.position()) {
                let hopeless = e.owed() == 0 || e.has(UNREADABLE);
                assert!(hopeless, "data that can be read is given up for lost");
                left.push((e.key(), position));
            }
        }
        self.scratch = left;
    }

    /// Pushes that on.
    pub fn carry_step(&mut self, around: &mut Surroundings<'_>) -> CarryState {
        if self.log_failed {
            return CarryState::Failed;
        }
        let mut left = core::mem::take(&mut self.scratch);
        left.retain(|&(key, position)| {
            let id = self.index.find(key).filter(|&id| self.index[id].position() == Some(position));
            if let Some(id) = id.filter(|&id| self.may_carry(around, id)) {
                self.carry(around, id, position);
            }
            id.is_some()
        });
        let state = if left.is_empty() { CarryState::Done } else { CarryState::Busy };
        self.scratch = left;
        state
    }

    /// Whether the block's record can be carried on now. While a newer record of the block waits for a
    /// batch, it can: what is carried comes first in the log. Once the newer record is in a batch, it
    /// must not: the entry would come later and void it. Nor need it, since the newer record replaces
    /// the old one when the batch is written.
    fn may_carry(&self, around: &Surroundings<'_>, id: EntryId) -> bool {
        let e = &self.index[id];
        let free = match e.transfer() {
            None => true,
            Some(t) => {
                let log = around.log.as_deref().expect("a record needs a log");
                matches!(self.transfers[t].kind, Kind::Append { .. }) && log.is_waiting(e.key())
            }
        };
        free && self.may_be_loose() && !self.is_carried(e.key())
    }

    fn is_carried(&self, key: BlockKey) -> bool {
        self.carries.contains(&key)
    }

    fn carry(&mut self, around: &mut Surroundings<'_>, id: EntryId, position: Position) {
        let e = &self.index[id];
        let (key, dirty) = (e.key(), e.flash_dirty);
        let kind = Kind::Carry { position, dirty };
        let t = match e.transfer() {
            None => self.start_on(id, kind, (0, 0)),
            Some(_) => self.start(kind, key, (0, 0)),
        };
        self.carries.push(key);
        let (ticket, slot) = (self.ticket(t), Slot(u32::MAX));
        let log = around.log.as_deref_mut().expect("a record needs a log");
        log.carry(Append { ticket, key, valid: 0, dirty, slot, urgent: true });
    }

    /// The log says so now, at another position, unless something newer has taken the record's place: the
    /// regions of both.
    pub(super) fn carried(
        &mut self,
        around: &mut Surroundings<'_>,
        t: u32,
        (from, to): (Position, Position),
        dirty: u16,
    ) -> Option<(u32, u32)> {
        let key = self.transfers[t].key;
        self.carries.retain(|&carried| carried != key);
        let id = self.index.find(key).filter(|&id| self.index[id].position() == Some(from));
        let log = around.log.as_deref().expect("a record needs a log");
        let moved = id.map(|_| (log.region_of(from), log.region_of(to)));
        if let Some(id) = id {
            around.stats.carried_lost += 1;
            self.set_record(around, id, Some((to, 0, 0, dirty)));
        }
        self.finish(around, t, |_, _, _| {});
        self.close_runs(around);
        moved
    }
}
