//! For each region of the log, the list of the blocks that have their newest record there, linked
//! through the index entries, and the number of dirty records.

use core::{iter, mem};

use forebay_flash::RegionIndex;

use super::entry::{EntryId, RecordNode};
use crate::shard::index::Index;

/// The lists of all regions; see the module documentation.
#[derive(Debug)]
pub(super) struct RegionLists {
    /// First of each list.
    heads: Vec<EntryId>,
    /// Number of members of each list, and of dirty ones among them.
    counts: Vec<u32>,
    dirty: Vec<u32>,
    /// Where the walk through a list continues.
    walk: EntryId,
}

impl RegionLists {
    pub fn new(regions: u32) -> RegionLists {
        let none = vec![0; regions as usize];
        let heads = vec![EntryId::NONE; regions as usize];
        RegionLists { heads, counts: none.clone(), dirty: none, walk: EntryId::NONE }
    }

    pub fn memory_bytes(&self) -> u64 {
        let counts = size_of_val(&*self.counts) + size_of_val(&*self.dirty);
        (size_of_val(&*self.heads) + counts) as u64
    }

    /// Puts a block into a region's list.
    pub fn list(&mut self, index: &mut Index, id: EntryId, region: RegionIndex) {
        self.counts[region.index()] += 1;
        let head = mem::replace(&mut self.heads[region.index()], id);
        let record = index.record_mut(id);
        (record.prev, record.next) = (EntryId::NONE, head);
        if head != EntryId::NONE {
            index.record_mut(head).prev = id;
        }
    }

    /// Takes a block out of a region's list.
    pub fn unlist(&mut self, index: &mut Index, id: EntryId, region: RegionIndex) {
        let RecordNode { prev, next, .. } = *index.record(id);
        self.counts[region.index()] -= 1;
        if self.walk == id {
            self.walk = next;
        }
        match prev {
            EntryId::NONE => self.heads[region.index()] = next,
            p => index.record_mut(p).next = next,
        }
        if next != EntryId::NONE {
            index.record_mut(next).prev = prev;
        }
    }

    /// The first of a region's list.
    pub fn first(&self, region: RegionIndex) -> Option<EntryId> {
        some(self.heads[region.index()])
    }

    /// The next block in its list.
    fn next(index: &Index, id: EntryId) -> Option<EntryId> {
        some(index.record(id).next)
    }

    /// Number of members of a region's list.
    pub fn count(&self, region: RegionIndex) -> u32 {
        self.counts[region.index()]
    }

    /// Begins to walk through a region's list, over its present members. There is one walk at a
    /// time.
    pub fn begin_walk(&mut self, region: RegionIndex) {
        self.walk = self.heads[region.index()];
    }

    /// Ends the walk.
    pub fn end_walk(&mut self) {
        self.walk = EntryId::NONE;
    }

    /// Whether the walk has ended.
    pub fn has_walked(&self) -> bool {
        self.walk == EntryId::NONE
    }

    /// The next member, unless the walk has ended. Members that have left the list meanwhile are
    /// skipped.
    pub fn walk(&mut self, index: &Index) -> Option<EntryId> {
        let id = some(self.walk)?;
        self.walk = index.record(id).next;
        Some(id)
    }

    /// The blocks of a region.
    pub fn blocks_of(&self, index: &Index, region: RegionIndex) -> impl Iterator<Item = EntryId> {
        iter::successors(self.first(region), |&id| Self::next(index, id))
    }

    /// Number of dirty records in a region.
    pub fn dirty(&self, region: RegionIndex) -> u32 {
        self.dirty[region.index()]
    }

    /// Counts a dirty record of the region that is added or removed.
    pub fn count_dirty(&mut self, region: RegionIndex, comes: bool) {
        let count = &mut self.dirty[region.index()];
        *count = if comes { *count + 1 } else { *count - 1 };
    }
}

fn some(id: EntryId) -> Option<EntryId> {
    (id != EntryId::NONE).then_some(id)
}
