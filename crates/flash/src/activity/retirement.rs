//! Decides which extents begin to leave the table, and when.
//!
//! The cache is *asked* to make the backing store of an extent's volume durable. Until it has
//! answered, the store may hang, and the cache is not asked for this volume again, even if the
//! extent stays because it was marked again meanwhile: each answer costs a sync of the store.
//!
//! If marks wait, and every extent for which the cache was asked waits for its store, extents of
//! every volume for which the cache was not asked begin to leave, too: at most an eighth of the
//! extents of each volume. But this happens only if it could give a place to a waiting mark.
//! Otherwise, while the store of one volume hangs, the extents of a volume that uses few places
//! would leave and be marked again and again: the places that they free belong to those that are
//! kept back.

use forebay_block::Volume;

use super::{Activity, Extent, ExtentState};
use crate::events::Event;
use crate::io::Io;
use crate::key::BlockKey;
use crate::types::ExtentId;

impl Activity {
    /// Asks the cache to make room in the table, if places are scarce.
    pub(super) fn make_room(&mut self, io: &mut Io) {
        if self.is_short() && !self.is_asking() {
            self.choose_from_all();
            self.retire(io);
        }
        if !self.waiting.is_empty() && self.awaits_stores() && self.others_would_help() {
            self.choose_from_others();
            self.retire(io);
        }
    }

    /// Whether extents are leaving, or the cache owes an answer.
    fn is_asking(&self) -> bool {
        self.leaving > 0 || self.unanswered > 0
    }

    /// Whether the cache has been asked for extents, all leaving extents wait for a sync of their
    /// stores, and several volumes have extents.
    fn awaits_stores(&self) -> bool {
        let ends = [self.index.first(), self.index.last()].map(|e| e.map(|e| e.0.volume()));
        let unsynced = self.flushing.is_empty() && self.settling.is_empty();
        let removing = || self.moving.iter().any(|&n| self.is_removing(n));
        self.is_asking() && ends[0] != ends[1] && unsynced && !removing()
    }

    /// Whether the cache has been asked for none of these extents.
    fn is_unasked(&self, extents: &[(BlockKey, u32)]) -> bool {
        extents.iter().all(|e| {
            let Extent { state, unanswered, .. } = &self.extents[e.1 as usize];
            !state.is_leaving() && !unanswered
        })
    }

    /// The extents of each volume for which the cache has not been asked.
    fn others(&self) -> impl Iterator<Item = &[(BlockKey, u32)]> {
        let volumes = self.index.chunk_by(|a, b| a.0.volume() == b.0.volume());
        volumes.filter(|extents| self.is_unasked(extents))
    }

    /// Whether an extent of the index can begin to leave.
    fn may_leave(&self, e: (BlockKey, u32)) -> bool {
        self.extents[e.1 as usize].state == ExtentState::Active && self.is_idle(e)
    }

    /// Whether a waiting mark would get a place if all extents of other volumes that can leave did
    /// so.
    fn others_would_help(&self) -> bool {
        let leave =
            |extents: &[(BlockKey, u32)]| extents.iter().filter(|&&e| self.may_leave(e)).count();
        let all: usize = self.others().map(leave).sum();
        let helps = |volume: Volume| {
            let extents = self.extents_of(volume);
            let own = if self.is_unasked(extents) { leave(extents) } else { 0 };
            self.could_take(self.free.len() + all, extents.len() - own)
        };
        all > 0 && self.waiting.front(helps).is_some()
    }

    /// Chooses an eighth of the places, from all volumes.
    fn choose_from_all(&mut self) {
        let mut chosen = core::mem::take(&mut self.candidates);
        chosen.clear();
        self.choose_from(&self.index, self.places() / 8, &mut chosen);
        self.candidates = chosen;
    }

    /// Chooses an eighth of the extents of each volume for which the cache has not been asked.
    fn choose_from_others(&mut self) {
        let mut chosen = core::mem::take(&mut self.candidates);
        chosen.clear();
        for extents in self.others() {
            self.choose_from(extents, extents.len() / 8, &mut chosen);
        }
        self.candidates = chosen;
    }

    /// Chooses the `count` extents of this part of the index that were marked least recently and
    /// can leave: at least one, if any can.
    fn choose_from(&self, extents: &[(BlockKey, u32)], count: usize, chosen: &mut Vec<(u64, u32)>) {
        let from = chosen.len();
        let can = extents.iter().filter(|&&e| self.may_leave(e));
        chosen.extend(can.map(|e| (self.extents[e.1 as usize].used, e.1)));
        chosen[from..].sort_unstable();
        chosen.truncate(from + count.max(1));
    }

    /// Asks the cache to make the stores of the chosen extents durable.
    fn retire(&mut self, io: &mut Io) {
        for at in 0..self.candidates.len() {
            let n = self.candidates[at].1;
            let extent = &mut self.extents[n as usize];
            extent.state = ExtentState::Retiring;
            extent.retirement += 1;
            extent.unanswered = true;
            self.leaving += 1;
            self.unanswered += 1;
            let id = ExtentId(extent.retirement << 16 | u64::from(n));
            io.tell(Event::Retire { extent: id, first: extent.first });
        }
    }

    /// The cache has made the store of an extent durable, as requested.
    pub fn released(&mut self, id: ExtentId) {
        let n = (id.0 & 0xffff) as usize;
        let last = |e: &Extent| e.unanswered && e.retirement == id.0 >> 16;
        if !self.extents.get(n).is_some_and(last) {
            return;
        }
        self.note_answer(n);
        if self.extents[n].state == ExtentState::Retiring {
            self.extents[n].state = ExtentState::Flushing(None);
            self.flushing.push_back(n as u32);
        } else {
            // The extent stays. The cache may be asked for the volume again.
            self.changed |= self.is_short();
        }
    }

    /// Notes that the cache has answered for extent `n`, or never will.
    pub(super) fn note_answer(&mut self, n: usize) {
        self.unanswered -= u32::from(core::mem::take(&mut self.extents[n].unanswered));
    }
}
