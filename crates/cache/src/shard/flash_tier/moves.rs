//! Slots layout: the moves of a region's mappings to the head of the log, before the region is
//! freed.

use forebay_flash::{BlockKey, Log, Mapping, Position, RegionIndex};

use super::replacement::FlashReplacement;
use crate::budget::CallBudget;
use crate::shard::blocks::Blocks;
use crate::shard::entry::EntryId;
use crate::ticket::Ticket;

/// The moves of one region at a time; see the module documentation.
#[derive(Debug)]
pub(super) struct Moves {
    /// The shard, to which the log reports the end of each move.
    shard: u8,
    /// The region whose mappings move, if any.
    region: Option<RegionIndex>,
    /// Whether the region's list is being walked.
    walks: bool,
    /// Upper bound on the records still to be walked.
    left: u32,
    in_flight: u32,
    failed: bool,
    /// Records that could not move, because a newer record was being written.
    later: Vec<(BlockKey, Position)>,
}

/// The state of the moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum MoveState {
    Busy,
    /// Some mappings were given to the log just now; more follow.
    More,
    /// The last mappings were given to the log.
    Given,
    Done,
    /// The log accepts no more.
    Failed,
}

impl Moves {
    /// No moves. The log will report the end of each move to this shard.
    pub fn new(shard: u8) -> Moves {
        Moves {
            shard,
            region: None,
            walks: false,
            left: 0,
            in_flight: 0,
            failed: false,
            later: Vec::new(),
        }
    }

    /// Begins to move a region's mappings. A `careless` move leaves one behind
    /// ([`Bug::MappingLeftBehind`](forebay_flash::sabotage::Bug::MappingLeftBehind)).
    pub fn begin(&mut self, blocks: &mut Blocks, region: RegionIndex, careless: bool) {
        self.region = Some(region);
        self.walks = true;
        self.left = blocks.region_entries(region);
        (self.in_flight, self.failed) = (0, false);
        self.later.clear();
        blocks.begin_walk(region);
        if careless {
            blocks.walk();
        }
    }

    /// Advances the moves.
    pub fn step(
        &mut self,
        blocks: &mut Blocks,
        replacement: &FlashReplacement,
        log: &mut Log,
        budget: &mut CallBudget,
        careless: bool,
    ) -> MoveState {
        let Some(region) = self.region else { return MoveState::Done };
        if self.walks {
            return match self.give_some(blocks, replacement, log, budget) {
                true => MoveState::Given,
                false => MoveState::More,
            };
        }
        if self.in_flight > 0 {
            return MoveState::Busy;
        }
        if self.failed {
            self.region = None;
            return MoveState::Failed;
        }
        // Retries the mappings that could not move because a newer record was being written.
        for n in (0..self.later.len()).rev() {
            let (key, position) = self.later[n];
            let id = blocks.find_at(key, position).filter(|_| !careless);
            let id = id.filter(|&id| !replacement.is_unmapping(id));
            let moved = id.map(|id| log.remap(self.mapping(blocks, id)));
            self.in_flight += u32::from(moved == Some(true));
            if moved != Some(false) {
                self.later.swap_remove(n);
            }
        }
        if self.in_flight > 0 {
            return MoveState::Given;
        }
        if !self.later.is_empty() {
            return MoveState::Busy;
        }
        self.region = None;
        let stays = |id: EntryId| !careless && !replacement.is_unmapping(id);
        debug_assert!(!blocks.blocks_of(region).any(stays), "a mapping is left behind");
        MoveState::Done
    }

    /// Gives mappings to the log within the budget of the call, and notes those that must wait for
    /// a newer record. Returns whether the list has ended.
    fn give_some(
        &mut self,
        blocks: &mut Blocks,
        replacement: &FlashReplacement,
        log: &mut Log,
        budget: &mut CallBudget,
    ) -> bool {
        while !blocks.has_walked() {
            if !budget.take() {
                log.expect_moves(self.left);
                return false;
            }
            let Some(id) = blocks.walk() else { break };
            self.left = self.left.saturating_sub(1);
            if !replacement.is_unmapping(id) {
                let mapping = self.mapping(blocks, id);
                match log.remap(mapping) {
                    true => self.in_flight += 1,
                    false => self.later.push((mapping.key, mapping.position)),
                }
            }
        }
        self.walks = false;
        true
    }

    /// The mapping of a block's record, which the log must write again.
    fn mapping(&self, blocks: &Blocks, id: EntryId) -> Mapping {
        let e = &blocks[id];
        Mapping {
            ticket: Ticket::Mapping { shard: self.shard }.encode(),
            key: e.key(),
            position: e.position().expect("an entry of a region has a record"),
            valid: e.flash_valid(),
            dirty: e.flash_dirty(),
            checksum: blocks.record(id).checksum,
        }
    }

    /// Called when a move has ended. `good`: the mapping is in another region.
    pub fn ended(&mut self, good: bool) {
        if self.region.is_some() {
            self.in_flight -= 1;
            self.failed |= !good;
        }
    }
}
