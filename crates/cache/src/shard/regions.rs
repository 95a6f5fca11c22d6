//! Which blocks have their newest record in which region of the log: a list for each region, linked
//! through what the index has of each record, and how many of those records are dirty.

use core::{iter, mem};

use super::blocks::Blocks;
use crate::entry::{EntryId, NONE, Record};

/// See the module.
#[derive(Debug)]
pub(super) struct Regions {
    /// First of each list.
    heads: Vec<EntryId>,
    dirty: Vec<u32>,
}

impl Regions {
    pub fn new(regions: u32) -> Regions {
        Regions { heads: vec![NONE; regions as usize], dirty: vec![0; regions as usize] }
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.heads) + size_of_val(&*self.dirty)) as u64
    }

    /// Puts a block into a region's list.
    pub fn list(&mut self, blocks: &mut Blocks, id: EntryId, region: u32) {
        let head = mem::replace(&mut self.heads[region as usize], id);
        let record = blocks.record_mut(id);
        (record.prev, record.next) = (NONE, head);
        if head != NONE {
            blocks.record_mut(head).prev = id;
        }
    }

    /// Takes a block out of a region's list.
    pub fn unlist(&mut self, blocks: &mut Blocks, id: EntryId, region: u32) {
        let Record { prev, next, .. } = *blocks.record(id);
        match prev {
            NONE => self.heads[region as usize] = next,
            p => blocks.record_mut(p).next = next,
        }
        if next != NONE {
            blocks.record_mut(next).prev = prev;
        }
    }

    /// The first of a region's list.
    pub fn first(&self, region: u32) -> Option<EntryId> {
        some(self.heads[region as usize])
    }

    /// The one behind it in its list.
    pub fn next(blocks: &Blocks, id: EntryId) -> Option<EntryId> {
        some(blocks.record(id).next)
    }

    /// The blocks of a region.
    pub fn blocks_of(&self, blocks: &Blocks, region: u32) -> impl Iterator<Item = EntryId> {
        iter::successors(self.first(region), |&id| Self::next(blocks, id))
    }

    /// Dirty records in a region.
    pub fn dirty(&self, region: u32) -> u32 {
        self.dirty[region as usize]
    }

    /// A dirty record of the region comes or goes.
    pub fn count_dirty(&mut self, region: u32, comes: bool) {
        let count = &mut self.dirty[region as usize];
        *count = if comes { *count + 1 } else { *count - 1 };
    }
}

fn some(id: EntryId) -> Option<EntryId> {
    (id != NONE).then_some(id)
}
