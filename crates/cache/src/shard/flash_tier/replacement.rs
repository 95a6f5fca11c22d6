//! Replacement on flash in the slots layout: which blocks count, and which is evicted next.
//!
//! The tiers are exclusive: a block counts as being in memory or on flash, so both together are one
//! replacement list with the sum of their sizes. Flash also holds other records as long as there is
//! room:
//!
//! - [`Residence::FlashOnly`]: not in memory. Ordered by the replacement policy; a block enters
//!   when it leaves memory, even if its record is still to be written.
//! - [`Residence::CleanCopy`]: the clean record of a block that is in memory. It saves a write when
//!   the block returns to flash, and is evicted first.
//! - [`Residence::DirtyCopy`]: the dirty record of a block in memory. It is evicted last, because
//!   that costs a write to the backing store while the block is in use. But while many of the
//!   evicted blocks return (`returns.rs`), it is evicted before blocks that only flash holds.
//! - [`Residence::Pinned`]: its dirty record cannot be read, or its backing store fails, so it can
//!   neither be destaged nor forgotten. It counts and is not evicted until the block is written
//!   again or its store recovers.
//! - [`Residence::Leaving`]: the accounting has evicted it, and it waits to be destaged or
//!   forgotten on flash. Its cell is one of those that the accounting does not include.
//!
//! The policy is notified once of each access that finds a block on flash: when the block is back
//! from memory, or at once if it stays on flash. To distinguish a block that returns from a new
//! one, the policy keeps blocks that are in memory in its order, although they do not count. If it
//! names a victim that is in memory, the victim is dropped from the order and the policy names
//! another. LRU, FIFO and random treat both alike, and forget a block that moves to memory.

use super::returns::Returns;
use crate::shard::entry::EntryId;
use crate::slab::Key;
use forebay_flash::BlockKey;
use forebay_replacement::{
    Hint, Kind as ReplacementKind, Links, List, Parameters, Policy, Replacement,
};

/// Flag of an entry: its record is being forgotten on flash.
const UNMAPPING: u8 = 1;
/// The entry is in the policy's order.
const ORDERED: u8 = 2;
/// The policy has named the entry as a victim.
const NAMED: u8 = 4;
/// The bits from this one on count reads from flash; this is the value of one read.
const READING: u8 = 8;

/// A cleaning looks at the blocks that will leave flash next. Their number is the size of flash in
/// blocks divided by this, within these limits.
const AHEAD: u32 = 32;
const AHEAD_MIN: u32 = 256;
const AHEAD_MAX: u32 = 4096;

/// How a block counts for flash; see the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Residence {
    /// Flash does not hold the block, or its record does not count.
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
    /// Number of blocks to hold.
    blocks: u32,
    policy: Replacement,
    /// Whether the policy keeps blocks that are in memory.
    remembers: bool,
    /// Number of blocks that are [`FlashOnly`](Residence::FlashOnly).
    flash_only: u32,
    /// By entry, with its flags.
    residences: Vec<(Residence, u8)>,
    /// The lists below: the newest entry is in front, the oldest is evicted first.
    links: Links,
    copies: List,
    dirty_copies: List,
    pinned: List,
    leaving: List,
    returns: Option<Returns>,
    /// Whether dirty copies are evicted first while many of the evicted blocks return.
    pub gives_up: bool,
    /// Whether a leaving block is dirty.
    pub destage_wanted: bool,
    /// The most steps that the policy has taken in one eviction.
    eviction_steps_most: u64,
}

impl FlashReplacement {
    /// For `blocks` blocks on flash, with an index of `entries` entries. `returns` counts returning
    /// blocks, if anything depends on them.
    pub fn new(
        blocks: u32,
        entries: u32,
        returns: Option<Returns>,
        parameters: &Parameters,
    ) -> FlashReplacement {
        assert!(blocks > 0, "each shard needs at least one block of flash");
        FlashReplacement {
            blocks,
            policy: Replacement::new(entries, blocks, parameters),
            remembers: !matches!(
                parameters.kind(),
                ReplacementKind::Lru | ReplacementKind::Fifo | ReplacementKind::Random
            ),
            flash_only: 0,
            residences: vec![(Residence::Uncounted, 0); entries as usize],
            links: Links::new(entries),
            copies: List::EMPTY,
            dirty_copies: List::EMPTY,
            pinned: List::EMPTY,
            leaving: List::EMPTY,
            returns,
            gives_up: false,
            destage_wanted: false,
            eviction_steps_most: 0,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.residences.len() * 2) as u64
            + self.links.memory_bytes()
            + self.policy.metadata_bytes()
            + self.returns.as_ref().map_or(0, Returns::memory_bytes)
    }

    pub fn residence(&self, id: EntryId) -> Residence {
        self.residences[id.number() as usize].0
    }

    /// Whether the record is being forgotten on flash.
    pub fn is_unmapping(&self, id: EntryId) -> bool {
        self.has(id, UNMAPPING)
    }

    pub fn set_unmapping(&mut self, id: EntryId, unmapping: bool) {
        self.set(id, UNMAPPING, unmapping);
    }

    /// Number of blocks held in excess of the size.
    pub fn excess(&self) -> u32 {
        let held =
            self.flash_only + self.copies.len() + self.dirty_copies.len() + self.pinned.len();
        held.saturating_sub(self.blocks)
    }

    /// The most steps that the policy has taken in one eviction.
    pub fn eviction_steps_most(&self) -> u64 {
        self.eviction_steps_most
    }

    /// Number of blocks that still fit; blocks being evicted count as held.
    pub fn room(&self) -> u32 {
        let held = self.flash_only
            + self.copies.len()
            + self.dirty_copies.len()
            + self.pinned.len()
            + self.leaving.len();
        self.blocks.saturating_sub(held)
    }

    /// Evicts this block instead of another; returns whether it counted and could be evicted.
    pub fn send_off(&mut self, id: EntryId) -> bool {
        match self.residence(id) {
            Residence::FlashOnly => {
                self.flash_only -= 1;
                self.forget(id);
            }
            from @ (Residence::CleanCopy | Residence::DirtyCopy) => self.unlink(id, from),
            Residence::Uncounted | Residence::Pinned | Residence::Leaving => return false,
        }
        self.residences[id.number() as usize].0 = Residence::Leaving;
        self.link(id, Residence::Leaving);
        true
    }

    /// Number of dirty records of blocks in memory.
    pub fn dirty_copies(&self) -> u32 {
        self.dirty_copies.len()
    }

    /// Whether no block can be evicted any more.
    pub fn is_exhausted(&self) -> bool {
        self.pinned.len() >= self.blocks
    }

    /// Counts the entry of block `key` as `to` from now on, at the protected end.
    pub fn put(&mut self, id: EntryId, key: BlockKey, to: Residence) {
        let from = core::mem::replace(&mut self.residences[id.number() as usize].0, to);
        if from == to {
            return;
        }
        match from {
            Residence::Uncounted => {}
            Residence::FlashOnly => {
                self.flash_only -= 1;
                if !self.remembers {
                    self.forget(id);
                }
            }
            _ => self.unlink(id, from),
        }
        match to {
            Residence::Uncounted => {}
            Residence::FlashOnly => {
                self.flash_only += 1;
                self.enter(id, key, from);
            }
            _ => self.link(id, to),
        }
        self.residences[id.number() as usize].1 &= READING - 1;
        self.set(id, NAMED, false);
    }

    /// Enters a block into the policy's order: it enters flash for the first time, returns from
    /// memory, or stays although it was evicted. Or its store accepts it again, which is not an
    /// access.
    fn enter(&mut self, id: EntryId, key: BlockKey, from: Residence) {
        if self.has(id, NAMED) {
            self.policy.restore(id.number());
        } else if !self.has(id, ORDERED) {
            self.policy.insert(id.number(), key.0, Hint::default());
            return self.set(id, ORDERED, true);
        }
        self.set(id, ORDERED, true);
        if from != Residence::Pinned {
            self.policy.on_access(id.number());
        }
    }

    /// Notes that a client's access reads the record of a block from flash.
    pub fn on_reading(&mut self, id: EntryId) {
        let flags = &mut self.residences[id.number() as usize].1;
        *flags = flags.checked_add(READING).unwrap_or(*flags);
        self.on_access(id);
    }

    /// How often the record was read since the block entered flash, or returned to it from memory:
    /// at most [`SLOTS_READINGS_MAX`](crate::FlashConfig::SLOTS_READINGS_MAX).
    pub fn readings(&self, id: EntryId) -> u8 {
        self.residences[id.number() as usize].1 / READING
    }

    /// Notes that a client's access used the record of a block that stays on flash only.
    pub fn on_access(&mut self, id: EntryId) {
        if self.residence(id) == Residence::FlashOnly {
            self.policy.on_access(id.number());
        }
    }

    /// Number of blocks in the policy's order.
    #[cfg(test)]
    pub fn ordered(&self) -> u32 {
        self.policy.len()
    }

    /// Makes the policy forget the block, which is neither in memory nor on flash.
    pub fn forget(&mut self, id: EntryId) {
        if self.has(id, ORDERED) {
            self.policy.remove(id.number());
            self.set(id, ORDERED, false);
        }
    }

    fn has(&self, id: EntryId, flag: u8) -> bool {
        self.residences[id.number() as usize].1 & flag != 0
    }

    fn set(&mut self, id: EntryId, flag: u8, on: bool) {
        let flags = &mut self.residences[id.number() as usize].1;
        *flags = if on { *flags | flag } else { *flags & !flag };
    }

    /// Whether this is the next clean copy to be evicted.
    pub fn is_next_copy(&self, id: EntryId) -> bool {
        self.copies.back() == Some(id.number())
    }

    /// Notes that a block enters memory that neither tier held.
    pub fn note_miss(&mut self, key: BlockKey) {
        if let Some(returns) = self.counted_returns() {
            returns.came(key);
        }
    }

    /// Notes that a block that only flash holds is evicted.
    pub fn note_victim(&mut self, key: BlockKey) {
        if let Some(returns) = self.counted_returns() {
            returns.left(key);
        }
    }

    /// The returns, if they can decide anything: there are dirty copies, or many blocks returned
    /// recently.
    fn counted_returns(&mut self) -> Option<&mut Returns> {
        let none_dirty = self.dirty_copies.is_empty();
        self.returns.as_mut().filter(|returns| !none_dirty || returns.were_many())
    }

    /// Whether dirty copies cost hits, if that is counted.
    pub fn copies_cost_hits(&self) -> bool {
        self.returns.as_ref().is_some_and(Returns::were_many)
    }

    /// Whether dirty copies are evicted before blocks that only flash holds.
    pub fn gives_copies_up(&self) -> bool {
        self.gives_up && self.returns.as_ref().is_some_and(Returns::are_many)
    }

    /// Chooses a block and evicts it; also returns its former residence. Each block in memory is
    /// dropped from the policy's order at most once for each time that it entered.
    /// A dirty copy is evicted early only if it is `idle`: one that is being written is about to
    /// have a newer record.
    #[must_use]
    pub fn evict(&mut self, idle: impl Fn(EntryId) -> bool) -> Option<(EntryId, Residence)> {
        let early = self.dirty_copies.back().map(EntryId::new);
        let early = early.filter(|&id| self.gives_copies_up() && idle(id));
        let (victim, from) = match (self.copies.back().map(EntryId::new), early) {
            (Some(copy), _) => (copy, Residence::CleanCopy),
            (None, Some(copy)) => (copy, Residence::DirtyCopy),
            (None, None) => match self.evict_flash_only() {
                Some(victim) => (victim, Residence::FlashOnly),
                None => (self.dirty_copies.back().map(EntryId::new)?, Residence::DirtyCopy),
            },
        };
        if from != Residence::FlashOnly {
            self.unlink(victim, from);
        }
        self.residences[victim.number() as usize].0 = Residence::Leaving;
        self.link(victim, Residence::Leaving);
        Some((victim, from))
    }

    /// The policy's victim among the blocks that are only on flash.
    fn evict_flash_only(&mut self) -> Option<EntryId> {
        while self.flash_only > 0 {
            let before = self.policy.steps();
            let victim = self.policy.evict(None).expect("some blocks are only on flash");
            let victim = EntryId::new(victim);
            self.eviction_steps_most = self.eviction_steps_most.max(self.policy.steps() - before);
            self.set(victim, ORDERED, false);
            if self.residence(victim) == Residence::FlashOnly {
                self.set(victim, NAMED, true);
                self.flash_only -= 1;
                return Some(victim);
            }
        }
        None
    }

    /// The leaving blocks, in the order of their eviction.
    pub fn leaving(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.links.from_back(&self.leaving).map(EntryId::new)
    }

    /// The next blocks to be evicted, as far as a cleaning looks ahead. The further it looks, the
    /// fewer seeks a disk needs to write the dirty ones in address order, and the fewer blocks wait
    /// for that when they are evicted.
    pub fn coldest(&self) -> impl Iterator<Item = EntryId> + '_ {
        let ahead = (self.blocks / AHEAD).clamp(AHEAD_MIN, AHEAD_MAX) as usize;
        let alone = |&id: &EntryId| self.residence(id) == Residence::FlashOnly;
        self.policy.likely_victims().map(EntryId::new).filter(alone).take(ahead)
    }

    fn link(&mut self, id: EntryId, residence: Residence) {
        let (links, list) = self.list(residence);
        links.push_front(list, id.number());
    }

    fn unlink(&mut self, id: EntryId, residence: Residence) {
        let (links, list) = self.list(residence);
        links.remove(list, id.number());
    }

    fn list(&mut self, residence: Residence) -> (&mut Links, &mut List) {
        let list = match residence {
            Residence::CleanCopy => &mut self.copies,
            Residence::DirtyCopy => &mut self.dirty_copies,
            Residence::Pinned => &mut self.pinned,
            Residence::Leaving => &mut self.leaving,
            Residence::Uncounted | Residence::FlashOnly => {
                unreachable!("blocks of this residence are in no list")
            }
        };
        (&mut self.links, list)
    }
}

impl core::fmt::Display for FlashReplacement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let FlashReplacement {
            blocks,
            flash_only,
            copies,
            dirty_copies,
            pinned,
            leaving,
            destage_wanted,
            ..
        } = self;
        write!(
            f,
            "room for {blocks} blocks, {} there, {} copies, {} dirty copies, {} pinned, {} \
             leaving, destage wanted: {destage_wanted}, gives up copies: {}",
            flash_only,
            copies.len(),
            dirty_copies.len(),
            pinned.len(),
            leaving.len(),
            self.gives_copies_up()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;

    #[test]
    fn clean_copies_give_way_first_then_the_coldest_then_dirty_copies() {
        let mut flash = FlashReplacement::new(
            2,
            8,
            Some(Returns::new(64)),
            &Parameters::new(ReplacementKind::Lru),
        );
        flash.gives_up = true;
        let put = |flash: &mut FlashReplacement, n: u32, to| {
            flash.put(EntryId::new(n), BlockKey::new(Volume(0), n.into()), to);
        };
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
        let order: Vec<_> = core::iter::from_fn(|| Some(flash.evict(|_| true)?.0)).collect();
        assert_eq!(order, [4, 1, 2, 3, 0].map(EntryId::new));
        assert_eq!(flash.leaving().collect::<Vec<_>>(), order);
        put(&mut flash, 2, Residence::Uncounted);
        assert_eq!(flash.leaving().collect::<Vec<_>>(), [4, 1, 3, 0].map(EntryId::new));
        assert_eq!((flash.residence(EntryId::new(2)), flash.excess()), (Residence::Uncounted, 0));
    }

    #[test]
    fn dirty_copies_give_way_before_what_flash_alone_has_while_that_returns() {
        let mut flash = FlashReplacement::new(
            2,
            8,
            Some(Returns::new(64)),
            &Parameters::new(ReplacementKind::Lru),
        );
        flash.gives_up = true;
        let key = |id: u32| BlockKey::new(Volume(0), id.into());
        for (id, residence) in [
            (0, Residence::DirtyCopy),
            (1, Residence::FlashOnly),
            (2, Residence::FlashOnly),
            (3, Residence::CleanCopy),
        ] {
            flash.put(EntryId::new(id), key(id), residence);
        }
        for block in 10..1000 {
            flash.note_victim(key(block));
            flash.note_miss(key(block));
        }
        let order: Vec<_> = core::iter::from_fn(|| flash.evict(|_| true)).collect();
        let expected = [
            (3, Residence::CleanCopy),
            (0, Residence::DirtyCopy),
            (1, Residence::FlashOnly),
            (2, Residence::FlashOnly),
        ];
        assert_eq!(order, expected.map(|(n, residence)| (EntryId::new(n), residence)));
    }

    #[test]
    fn a_cleaning_looks_at_those_that_leave_next_within_bounds() {
        for (blocks, ahead) in [(1000, 256), (20_000, 625), (200_000, 4096)] {
            let mut flash =
                FlashReplacement::new(blocks, blocks, None, &Parameters::new(ReplacementKind::Lru));
            for id in 0..blocks {
                flash.put(
                    EntryId::new(id),
                    BlockKey::new(Volume(0), id.into()),
                    Residence::FlashOnly,
                );
            }
            let looked_at: Vec<_> = flash.coldest().collect();
            let next: Vec<_> = (0..ahead).map(|_| flash.evict(|_| true).unwrap().0).collect();
            assert_eq!(looked_at, next, "{blocks}");
        }
    }
}
