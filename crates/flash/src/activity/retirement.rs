//! Which extents begin to leave the table, and when.
//!
//! The cache is *asked* to make the extent's store durable. While it has not answered, the store may hang, and the
//! volume is not asked again, even if the extent stays because it was marked again meanwhile: each answer costs a
//! sync of the store.
//!
//! If marks wait and all that is asked waits for stores, extents of every volume that was not asked begin to leave,
//! too: at most an eighth of those of each volume. But only if that could give a place to a mark that waits.
//! Otherwise the extents of a volume that uses few places would leave, and be marked again, as long as the store of
//! another volume hangs: what they leave belongs to the places that are kept back.

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

    /// Whether extents are leaving, or the cache has not answered yet.
    fn is_asking(&self) -> bool {
        self.leaving > 0 || self.unanswered > 0
    }

    /// Whether the cache is asked for extents, all that are leaving wait for a sync of their stores, and there are
    /// extents of several volumes.
    fn awaits_stores(&self) -> bool {
        let ends = [self.index.first(), self.index.last()].map(|e| e.map(|e| e.0.volume()));
        let unsynced = self.flushing.is_empty() && self.settling.is_empty();
        let removing = || self.moving.iter().any(|&n| self.is_removing(n));
        self.is_asking() && ends[0] != ends[1] && unsynced && !removing()
    }

    /// Whether the cache is asked for none of these extents.
    fn is_unasked(&self, extents: &[(BlockKey, u32)]) -> bool {
        extents.iter().all(|e| {
            let Extent { state, unanswered, .. } = &self.extents[e.1 as usize];
            !state.is_leaving() && !unanswered
        })
    }

    /// The extents of each volume of which the cache is asked for none.
    fn others(&self) -> impl Iterator<Item = &[(BlockKey, u32)]> {
        let volumes = self.index.chunk_by(|a, b| a.0.volume() == b.0.volume());
        volumes.filter(|extents| self.is_unasked(extents))
    }

    /// Whether an extent of the index can begin to leave.
    fn may_leave(&self, e: (BlockKey, u32)) -> bool {
        self.extents[e.1 as usize].state == ExtentState::Active && self.is_idle(e)
    }

    /// Whether a mark that waits would get a place if all extents of others left that can.
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

    /// Chooses an eighth of the places, of all volumes.
    fn choose_from_all(&mut self) {
        let mut chosen = core::mem::take(&mut self.candidates);
        chosen.clear();
        self.choose_from(&self.index, self.places() / 8, &mut chosen);
        self.candidates = chosen;
    }

    /// Chooses an eighth of the extents of each volume of which the cache is not asked for any.
    fn choose_from_others(&mut self) {
        let mut chosen = core::mem::take(&mut self.candidates);
        chosen.clear();
        for extents in self.others() {
            self.choose_from(extents, extents.len() / 8, &mut chosen);
        }
        self.candidates = chosen;
    }

    /// Chooses at most `count` of these extents of the index, those marked least recently; but one if one can leave.
    fn choose_from(&self, extents: &[(BlockKey, u32)], count: usize, chosen: &mut Vec<(u64, u32)>) {
        let from = chosen.len();
        let can = extents.iter().filter(|&&e| self.may_leave(e));
        chosen.extend(can.map(|e| (self.extents[e.1 as usize].used, e.1)));
        chosen[from..].sort_unstable();
        chosen.truncate(from + count.max(1));
    }

    /// Asks the cache for the chosen extents.
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

    /// The cache has made the store of an extent durable, as it was asked to.
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
            // It stays. The volume may be asked again.
            self.changed |= self.is_short();
        }
    }

    /// The cache has answered for extent `n`, or will not.
    pub(super) fn note_answer(&mut self, n: usize) {
        self.unanswered -= u32::from(core::mem::take(&mut self.extents[n].unanswered));
    }
}
