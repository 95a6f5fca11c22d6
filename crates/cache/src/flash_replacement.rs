//! Replacement on flash, in the layout slots: where each block counts, and who gives way.
//!
//! The tiers are exclusive: a block counts for memory or for flash, so that both together are one
//! replacement list of the sum of their sizes. What flash holds beyond that counts as long as
//! there is room:
//!
//! - [`Residence::FlashOnly`]: not in memory. Ordered by the replacement policy; a block enters
//!   when it leaves memory, even if its record is still to be written.
//! - [`Residence::CleanCopy`]: the clean record of a block that is in memory. It saves a write when
//!   the block comes back, and is the first to give way.
//! - [`Residence::DirtyCopy`]: the dirty record of a block in memory. It gives way last, since that
//!   costs a write to the backing store while the block is in use.
//! - [`Residence::Pinned`]: its dirty record cannot be read, or its backing store fails, so that it
//!   can neither be destaged nor forgotten. It counts, and does not give way, until it is written
//!   again or its store recovers.
//! - [`Residence::Leaving`]: it has given way, by the accounting, and waits to be destaged or
//!   forgotten on flash. Its cell is one of those beyond the accounting.

use crate::entry::EntryId;
use forebay_flash::BlockKey;
use forebay_replacement::{Hint, Kind, Links, List, Parameters, Policy, Replacement};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residence {
    /// Flash holds nothing of the block, or what it holds does not count.
    Uncounted,
    FlashOnly,
    CleanCopy,
    DirtyCopy,
    Pinned,
    Leaving,
}

/// The accounting of one shard. Entries are named by their number in the index.
#[derive(Debug)]
pub(crate) struct FlashReplacement {
    /// Blocks to hold.
    blocks: u32,
    policy: Replacement,
    residences: Vec<(Residence, bool)>,
    /// The lists below: who came last is in front, who came first gives way first.
    links: Links,
    copies: List,
    dirty_copies: List,
    pinned: List,
    leaving: List,
    /// A block that leaves is dirty.
    pub destage_wanted: bool,
}

impl FlashReplacement {
    pub fn new(blocks: u32, entries: u32) -> FlashReplacement {
        assert!(blocks > 0, "each shard needs at least one block of flash");
        FlashReplacement {
            blocks,
            policy: Replacement::new(entries, blocks, &Parameters::new(Kind::Lru)),
            residences: vec![(Residence::Uncounted, false); entries as usize],
            links: Links::new(entries),
            copies: List::EMPTY,
            dirty_copies: List::EMPTY,
            pinned: List::EMPTY,
            leaving: List::EMPTY,
            destage_wanted: false,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.residences.len() * 2) as u64
            + self.links.memory_bytes()
            + self.policy.metadata_bytes()
    }

    pub fn residence(&self, id: EntryId) -> Residence {
        self.residences[id as usize].0
    }

    /// Whether the record is being forgotten on flash.
    pub fn is_unmapping(&self, id: EntryId) -> bool {
        self.residences[id as usize].1
    }

    pub fn set_unmapping(&mut self, id: EntryId, unmapping: bool) {
        self.residences[id as usize].1 = unmapping;
    }

    /// Blocks over the size.
    pub fn excess(&self) -> u32 {
        let held =
            self.policy.len() + self.copies.len() + self.dirty_copies.len() + self.pinned.len();
        held.saturating_sub(self.blocks)
    }

    /// Dirty records of blocks in memory.
    pub fn dirty_copies(&self) -> u32 {
        self.dirty_copies.len()
    }

    /// Nobody can give way any more.
    pub fn is_exhausted(&self) -> bool {
        self.pinned.len() >= self.blocks
    }

    /// The entry of block `key` counts as `to` from now on, at the protected end.
    pub fn put(&mut self, id: EntryId, key: BlockKey, to: Residence) {
        let from = core::mem::replace(&mut self.residences[id as usize].0, to);
        if from == to {
            return;
        }
        match from {
            Residence::Uncounted => {}
            Residence::FlashOnly => self.policy.remove(id),
            _ => self.unlink(id, from),
        }
        match to {
            Residence::Uncounted => {}
            Residence::FlashOnly => self.policy.insert(id, key.0, Hint::default()),
            _ => self.link(id, to),
        }
    }

    /// Whether of the clean copies this one would give way next.
    pub fn is_next_copy(&self, id: EntryId) -> bool {
        self.copies.back() == Some(id)
    }

    /// Chooses who gives way, and lets it leave.
    pub fn evict(&mut self) -> Option<EntryId> {
        let (victim, from) = match self.copies.back() {
            Some(copy) => (copy, Residence::CleanCopy),
            None => match self.policy.evict(None) {
                Some(victim) => (victim, Residence::FlashOnly),
                None => (self.dirty_copies.back()?, Residence::DirtyCopy),
            },
        };
        if from != Residence::FlashOnly {
            self.unlink(victim, from);
        }
        self.residences[victim as usize].0 = Residence::Leaving;
        self.link(victim, Residence::Leaving);
        Some(victim)
    }

    /// Those who leave, in that order.
    pub fn leaving(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.links.from_back(&self.leaving)
    }

    /// Those who would give way next.
    pub fn coldest(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.policy.likely_victims()
    }

    fn link(&mut self, id: EntryId, residence: Residence) {
        let (links, list) = self.list(residence);
        links.push_front(list, id);
    }

    fn unlink(&mut self, id: EntryId, residence: Residence) {
        let (links, list) = self.list(residence);
        links.remove(list, id);
    }

    fn list(&mut self, residence: Residence) -> (&mut Links, &mut List) {
        let list = match residence {
            Residence::CleanCopy => &mut self.copies,
            Residence::DirtyCopy => &mut self.dirty_copies,
            Residence::Pinned => &mut self.pinned,
            Residence::Leaving => &mut self.leaving,
            Residence::Uncounted | Residence::FlashOnly => unreachable!("no list"),
        };
        (&mut self.links, list)
    }
}

impl core::fmt::Display for FlashReplacement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let FlashReplacement {
            blocks,
            policy,
            copies,
            dirty_copies,
            pinned,
            leaving,
            destage_wanted,
            ..
        } = self;
        write!(
            f,
            "room for {blocks} blocks, {} there, {} copies, {} dirty copies, {} pinned, {} leave, \
             destage wanted: {destage_wanted}",
            policy.len(),
            copies.len(),
            dirty_copies.len(),
            pinned.len(),
            leaving.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_copies_give_way_first_then_the_coldest_then_dirty_copies() {
        let mut flash = FlashReplacement::new(2, 8);
        let put =
            |flash: &mut FlashReplacement, id, to| flash.put(id, BlockKey::new(0, id.into()), to);
        for (id, residence) in [
            (0, Residence::DirtyCopy),
            (1, Residence::FlashOnly),
            (2, Residence::FlashOnly),
            (3, Residence::CleanCopy),
            (4, Residence::CleanCopy),
        ] {
            put(&mut flash, id, residence);
        }
        assert_eq!(flash.excess(), 3);
        put(&mut flash, 3, Residence::FlashOnly);
        let order: Vec<_> = core::iter::from_fn(|| flash.evict()).collect();
        assert_eq!(order, [4, 1, 2, 3, 0]);
        assert_eq!(flash.leaving().collect::<Vec<_>>(), order);
        put(&mut flash, 2, Residence::Uncounted);
        assert_eq!(flash.leaving().collect::<Vec<_>>(), [4, 1, 3, 0]);
        assert_eq!((flash.residence(2), flash.excess()), (Residence::Uncounted, 0));
    }
}
