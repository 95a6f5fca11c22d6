//! Where blocks' records lie: lists by region, and counts of what is dirty.

use forebay_flash::Position;
use forebay_flash::sabotage::Bug;

use super::{Shard, ShardContext};
use crate::front::Front;
use crate::index::{EntryId, NONE};

impl Shard {
    /// The block's record moves to a position (or there is none any more).
    pub(super) fn set_record(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<(Position, u32, u16, u16)>,
    ) {
        let was_dirty = self.index[id].is_dirty();
        if let Some(old) = self.index[id].position() {
            let log = context.log.as_deref().expect("a record needs a log");
            let region = log.region_of(old);
            self.unlist(id, region);
            self.count_record(context, id, region, false);
            match &mut self.flash_replacement {
                // (Of a record that is being forgotten, the log knows itself.)
                Some(flash) if !flash.is_unmapping(id) => {
                    let careless = context.front.sabotage.is(Bug::ChosenCellsUsedAgain);
                    match self.cleaning && !careless {
                        true => self.held.push(old),
                        false => {
                            let log = context.log.as_deref_mut().expect("a record needs a log");
                            log.release_cell(old);
                        }
                    }
                }
                Some(flash) => flash.set_unmapping(id, false),
                None => {}
            }
        }
        let e = &mut self.index[id];
        self.lost -= u32::from(e.lost_on_flash() != 0);
        e.clear(crate::index::DESTAGED | crate::index::UNREADABLE);
        match to {
            None => {
                e.set_position(None);
                (e.flash_valid, e.flash_dirty, e.prev, e.next) = (0, 0, NONE, NONE);
            }
            Some((position, checksum, valid, dirty)) => {
                e.set_position(Some(position));
                e.checksum = checksum;
                (e.flash_valid, e.flash_dirty) = (valid, dirty);
                let log = context.log.as_deref().expect("a record needs a log");
                let region = log.region_of(position);
                self.list(id, region);
                self.count_record(context, id, region, true);
                if dirty & !valid != 0 {
                    self.lost += 1;
                    let key = self.index[id].key();
                    self.name_unreadable(key);
                }
            }
        }
        self.count_dirty(id, was_dirty, context.front);
        self.update_residence(id, to.is_some());
    }

    /// A record of this region comes or goes: keeps account of it if it is dirty.
    pub(super) fn count_record(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        region: u32,
        comes: bool,
    ) {
        let e = &self.index[id];
        if e.flash_dirty == 0 {
            return;
        }
        let volume = usize::from(e.key().volume());
        let (count, owed) =
            (&mut self.regions_dirty[region as usize], &mut context.front.volumes[volume].owed);
        if comes {
            (*count, *owed) = (*count + 1, *owed + 1);
        } else {
            (*count, *owed) = (*count - 1, *owed - 1);
        }
        let owed = *owed;
        context.front.stores.note_dirty(volume, owed);
    }

    /// Puts the entry into a region's list.
    pub(super) fn list(&mut self, id: EntryId, region: u32) {
        let head = core::mem::replace(&mut self.regions[region as usize], id);
        (self.index[id].prev, self.index[id].next) = (NONE, head);
        if head != NONE {
            self.index[head].prev = id;
        }
    }

    /// Takes the entry out of a region's list.
    pub(super) fn unlist(&mut self, id: EntryId, region: u32) {
        let (prev, next) = (self.index[id].prev, self.index[id].next);
        match prev {
            NONE => self.regions[region as usize] = next,
            p => self.index[p].next = next,
        }
        if next != NONE {
            self.index[next].prev = prev;
        }
    }

    /// Keeps the volume's gauge of dirty blocks after a change to the entry.
    pub(super) fn count_dirty(&self, id: EntryId, was: bool, front: &mut Front) {
        let e = &self.index[id];
        let stats = &mut front.volumes[usize::from(e.key().volume())].stats;
        match (was, e.is_dirty()) {
            (false, true) => {
                stats.dirty_blocks += 1;
                stats.dirty_blocks_max = stats.dirty_blocks_max.max(stats.dirty_blocks);
            }
            (true, false) => stats.dirty_blocks -= 1,
            _ => {}
        }
    }
}
