//! The blocks in DRAM, as their replacement policy accounts for them. The policy names a block by
//! the number of its frame within the shard.
//!
//! In this accounting a block is gone as soon as the policy names it as a victim. Its frame stays
//! until the data is where it must be
//! ([`Entry::is_leaving`](crate::shard::entry::Entry::is_leaving)). The policy is notified once of
//! each access of a client: the insertion of the block stands for a miss, an access for a hit. The
//! policy does not know blocks that are in memory only in transit.

use core::mem;

use forebay_block::{Nanos, Volume};
use forebay_flash::BlockKey;
use forebay_replacement::{Admission, Hint, Offer, Policy, Positions, Replacement};

use super::Piece;
use crate::config::CacheConfig;
use crate::shard::tiers::ShardSizes;

/// The accounting of the blocks in DRAM; see the module documentation.
#[derive(Debug)]
pub(crate) struct Dram {
    replacement: Replacement,
    /// A bit for each frame: its block keeps it only until the block has been read or is on flash.
    in_transit: Box<[u64]>,
    /// A bit for each frame: its block was dirty and not admitted to flash when it began to leave.
    refused: Box<[u64]>,
    /// A bit for each frame: its block is in transit because queues have chosen it for flash.
    promoted: Box<[u64]>,
    /// Number of blocks to hold.
    capacity: u32,
    /// Number of accesses of which the policy was notified.
    told: u64,
    /// The most steps that the policy has taken in one eviction.
    eviction_steps_most: u64,
    /// Which blocks may enter flash, if not all.
    admission: Option<Admission>,
    /// The positions at which new blocks enter, for policies that derive them from hit ratios and
    /// priorities.
    positions: Option<Positions>,
    block_shift: u32,
}

impl Dram {
    pub fn new(config: &CacheConfig, sizes: ShardSizes) -> Dram {
        let ShardSizes { frames, dram_blocks: capacity, flash_entries, .. } = sizes;
        let admission = config.flash.as_ref().map(|f| f.admission);
        Dram {
            admission: admission.and_then(|a| Admission::new(frames, flash_entries, &a)),
            replacement: Replacement::new(frames, capacity, &config.replacement),
            in_transit: vec![0; frames.div_ceil(64) as usize].into_boxed_slice(),
            refused: vec![0; frames.div_ceil(64) as usize].into_boxed_slice(),
            promoted: vec![0; frames.div_ceil(64) as usize].into_boxed_slice(),
            capacity,
            told: 0,
            eviction_steps_most: 0,
            positions: Positions::new(&config.replacement, capacity),
            block_shift: config.block_size.shift(),
        }
    }

    pub fn add_volume(&mut self, priority: u8) {
        if let Some(positions) = &mut self.positions {
            positions.add_volume(priority);
        }
    }

    /// Number of blocks to hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    pub fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.replacement.set_capacity(blocks);
    }

    /// Number of blocks that count.
    pub fn len(&self) -> u32 {
        self.replacement.len()
    }

    /// Whether one more block may count.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.replacement.len() < self.capacity
    }

    pub fn is_empty(&self) -> bool {
        self.replacement.is_empty()
    }

    /// Number of accesses of which the policy was notified.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// The most steps that the policy has taken in one eviction.
    pub fn eviction_steps_most(&self) -> u64 {
        self.eviction_steps_most
    }

    pub fn memory_bytes(&self) -> u64 {
        let positions = self.positions.as_ref().map_or(0, Positions::memory_bytes);
        let admission = self.admission.as_ref().map_or(0, Admission::metadata_bytes);
        let bits = [&self.in_transit, &self.refused, &self.promoted];
        let own = bits.iter().map(|bits| size_of_val(&***bits) as u64).sum::<u64>();
        self.replacement.metadata_bytes() + admission + positions + own
    }

    // ---- intervals of hit ratios ----

    /// Begins the first interval.
    pub fn start_intervals(&mut self, now: Nanos) {
        if let Some(positions) = &mut self.positions {
            positions.start(now);
        }
    }

    /// Ends the interval of hit ratios if it is over.
    pub fn end_interval(&mut self, now: Nanos) {
        if let Some(positions) = &mut self.positions {
            positions.advance(now);
        }
    }

    /// When the interval of hit ratios ends.
    pub fn interval_ends(&self) -> Nanos {
        self.positions.as_ref().map_or(Nanos(u64::MAX), Positions::ends)
    }

    // ---- accesses ----

    /// Notes an access that hits its block, and notifies the policy of it.
    #[inline]
    pub fn hit(&mut self, frame: u32, key: BlockKey) {
        self.count(key, true);
        self.replacement.on_access(frame);
        if let Some(admission) = &mut self.admission {
            admission.on_access(frame, key.0);
        }
    }

    /// Counts an access, hit or miss.
    #[inline]
    fn count(&mut self, key: BlockKey, hit: bool) {
        self.told += 1;
        if let Some(positions) = &mut self.positions {
            let offset = key.block().0 << self.block_shift;
            positions.access(key.volume(), offset, hit);
        }
    }

    /// A piece hits its block. The policy is notified, unless the same access has inserted the
    /// block or was already notified (`again`: even then).
    #[inline]
    pub fn used(&mut self, frame: u32, key: BlockKey, piece: &mut Piece, again: bool) {
        if !mem::replace(&mut piece.told, true) || again {
            self.hit(frame, key);
        }
    }

    /// Enters a block for a piece. `known`: flash holds it.
    #[inline]
    pub fn enter_for(&mut self, frame: u32, key: BlockKey, piece: &mut Piece, known: bool) {
        self.enter(frame, key, Positions::hint);
        // A block that left before it could be used enters again for the same access, which is not
        // counted twice.
        let told = mem::replace(&mut piece.told, true);
        if !told {
            self.count(key, false);
        }
        if let Some(admission) = &mut self.admission {
            admission.enter(frame, key.0, known, !told);
        }
    }

    // ---- admission to flash ----

    /// Whether there is an admission policy that does not admit all blocks.
    #[inline]
    pub fn has_admission(&self) -> bool {
        self.admission.is_some()
    }

    /// Whether the block, which flash does not hold, is admitted from its frame.
    pub fn admits(&mut self, frame: u32, key: BlockKey, offer: Offer) -> bool {
        self.admission.as_mut().is_none_or(|a| a.admits(Some(frame), key.0, offer))
    }

    /// Whether a written block, which flash does not hold and which may have a frame, is admitted.
    pub fn admits_write(&mut self, frame: Option<u32>, key: BlockKey, offer: Offer) -> bool {
        self.admission.as_mut().is_none_or(|a| a.admits_write(frame, key.0, offer))
    }

    /// Notes that the dirty block was not admitted: it is written to the backing store when it
    /// leaves.
    pub fn refuse(&mut self, frame: u32) {
        self.refused[(frame / 64) as usize] |= 1 << (frame % 64);
    }

    /// Whether the block was refused admission; clears the mark.
    #[inline]
    pub fn take_refusal(&mut self, frame: u32) -> bool {
        let (word, bit) = (&mut self.refused[(frame / 64) as usize], 1 << (frame % 64));
        let refused = *word & bit != 0;
        *word &= !bit;
        refused
    }

    /// Notes that flash drops the block, which is not in memory.
    pub fn lose(&mut self, key: BlockKey) {
        if let Some(admission) = &mut self.admission {
            admission.lose(key.0);
        }
    }

    /// Notes that the block leaves its frame, and that flash does not hold it.
    #[inline]
    pub fn forget(&mut self, frame: u32, key: BlockKey) {
        if let Some(admission) = &mut self.admission {
            admission.leave(frame, key.0);
        }
    }

    /// Enters a block, at the position of the hint if there are positions.
    #[inline]
    fn enter(&mut self, frame: u32, key: BlockKey, hint: impl Fn(&Positions, Volume, u64) -> Hint) {
        let (volume, offset) = (key.volume(), key.block().0 << self.block_shift);
        let hint = match &self.positions {
            None => Hint { volume, ..Hint::default() },
            Some(positions) => hint(positions, volume, offset),
        };
        self.replacement.insert(frame, key.0, hint);
    }

    // ---- blocks in transit ----

    /// Notes that a client's access reads the block from flash, and that the block does not enter
    /// memory.
    pub fn read_through(&mut self, key: BlockKey) {
        if let Some(admission) = &mut self.admission {
            admission.on_read_through(key.0);
        }
    }

    /// Notes that the frame is used in transit to a client or to flash, for a piece or in advance.
    /// `known`: flash holds the block.
    pub fn enter_in_transit(
        &mut self,
        frame: u32,
        key: BlockKey,
        piece: Option<&mut Piece>,
        known: bool,
    ) {
        self.set_in_transit(frame, true);
        if let Some(admission) = &mut self.admission {
            let access = piece.is_some_and(|piece| !mem::replace(&mut piece.told, true));
            admission.enter(frame, key.0, known, access);
        }
    }

    /// Notes that a client writes a block directly to the store. Flash does not hold the block, and
    /// it does not stay in memory.
    pub fn write_around(&mut self, frame: Option<u32>, key: BlockKey) {
        match (&mut self.admission, frame) {
            (Some(admission), Some(frame)) => admission.on_access(frame, key.0),
            (Some(admission), None) => admission.on_write_around(key.0),
            (None, _) => {}
        }
    }

    /// Notes whether the frame is used in transit to a client or to flash.
    pub fn set_in_transit(&mut self, frame: u32, in_transit: bool) {
        let (word, bit) = ((frame / 64) as usize, 1 << (frame % 64));
        self.in_transit[word] = self.in_transit[word] & !bit | if in_transit { bit } else { 0 };
        self.promoted[word] &= !bit;
    }

    /// Notes that the block in transit has been chosen for flash.
    pub fn set_promoted(&mut self, frame: u32) {
        self.promoted[(frame / 64) as usize] |= 1 << (frame % 64);
    }

    /// Whether the block is in transit because it has been chosen for flash.
    #[inline]
    pub fn is_promoted(&self, frame: u32) -> bool {
        self.promoted[(frame / 64) as usize] >> (frame % 64) & 1 != 0
    }

    /// Whether the frame is used in transit to a client or to flash.
    #[inline]
    pub fn is_in_transit(&self, frame: u32) -> bool {
        self.in_transit[(frame / 64) as usize] >> (frame % 64) & 1 != 0
    }

    // ---- victims ----

    /// Chooses the victim, to make room for `incoming` if that is a new block, and removes it from
    /// the accounting. `endless`: a policy's hand ignores its limit of steps and continues as long
    /// as it passes blocks.
    #[inline]
    pub fn evict(&mut self, incoming: Option<BlockKey>, endless: bool) -> u32 {
        let (before, incoming) = (self.replacement.steps(), incoming.map(|key| key.0));
        let mut victim = self.replacement.evict(incoming).expect("memory holds blocks");
        let mut stopped = before;
        for _ in 0..if endless { self.replacement.len() } else { 0 } {
            if mem::replace(&mut stopped, self.replacement.steps()) == self.replacement.steps() {
                break;
            }
            let next = self.replacement.evict(incoming).expect("another");
            self.replacement.restore(victim);
            victim = next;
        }
        let steps = self.replacement.steps() - before;
        self.eviction_steps_most = self.eviction_steps_most.max(steps);
        victim
    }

    /// The likely next victim, or the one after another victim.
    pub fn next_victim(&self, after: Option<u32>) -> Option<u32> {
        self.replacement.likely_victim(after)
    }

    /// Prefetches the data that the policy will access for a frame; `near` if that is imminent.
    pub fn prefetch(&self, frame: u32, near: bool) {
        self.replacement.prefetch(frame, near);
    }

    /// Prefetches the data that the policy will access for a block that is not in memory.
    pub fn prefetch_absent(&self, key: BlockKey, near: bool) {
        self.replacement.prefetch_absent(key.0, near);
    }

    /// Gives a victim that has not left, and is used again, its old place back.
    pub fn restore(&mut self, frame: u32) {
        self.replacement.restore(frame);
    }

    /// Counts a victim that cannot leave as newly entered, at the end that is evicted last, so that
    /// another block is evicted next. In its old place it would obstruct all others.
    pub fn readmit(&mut self, frame: u32, key: BlockKey) {
        match self.is_in_transit(frame) {
            // The policy does not know blocks in transit.
            true => self.set_in_transit(frame, false),
            false => self.replacement.remove(frame),
        }
        self.enter(frame, key, Positions::hint_to_stay);
    }

    /// Removes a block that is no longer in DRAM, and was not a victim.
    pub fn remove(&mut self, frame: u32) {
        self.replacement.remove(frame);
    }
}
