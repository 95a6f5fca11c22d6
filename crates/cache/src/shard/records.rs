//! Where blocks' records lie: lists by region, and counts of what is dirty.

use forebay_flash::Position;
use forebay_flash::sabotage::Bug;

use super::{Shard, ShardContext};
use crate::index::{EntryId, NONE};

impl Shard {
    /// The block's record moves to a position (or there is none any more).
    pub(super) fn set_record(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        to: Option<(Position, u32, u16, u16)>,
    ) {
        let was_dirty = self.blocks[id].is_dirty();
        if let Some(old) = self.blocks[id].position() {
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
        self.blocks.set_record(id, to);
        if let Some((position, ..)) = to {
            let log = context.log.as_deref().expect("a record needs a log");
            let region = log.region_of(position);
            self.list(id, region);
            self.count_record(context, id, region, true);
            let e = &self.blocks[id];
            if e.lost_on_flash() != 0 {
                self.name_unreadable(e.key());
            }
        }
        self.blocks.count_dirty(id, was_dirty, context.front);
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
        let e = &self.blocks[id];
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
        (self.blocks[id].prev, self.blocks[id].next) = (NONE, head);
        if head != NONE {
            self.blocks[head].prev = id;
        }
    }

    /// Takes the entry out of a region's list.
    pub(super) fn unlist(&mut self, id: EntryId, region: u32) {
        let (prev, next) = (self.blocks[id].prev, self.blocks[id].next);
        match prev {
            NONE => self.regions[region as usize] = next,
            p => self.blocks[p].next = next,
        }
        if next != NONE {
            self.blocks[next].prev = prev;
        }
    }
}
