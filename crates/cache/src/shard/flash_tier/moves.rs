//! A whole region, record by record: the moves of its mappings to the head of the log (slots layout), and the
//! entries that are forgotten when the region is freed.

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Mapping, Position};

use super::FlashTier;
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::entry::EntryId;
use crate::slab::Key;
use crate::ticket::Ticket;

/// See the module.
#[derive(Debug)]
pub(super) struct Moves {
    region: u32,
    /// The region's list is being walked.
    walks: bool,
    /// Upper bound on the records still to be walked.
    left: u32,
    in_flight: u32,
    failed: bool,
    /// Records that could not move, because a newer record was being written.
    later: Vec<(BlockKey, Position)>,
}

/// The mapping that the log must write again for a block.
fn mapping(shard: u8, blocks: &Blocks, id: EntryId) -> Mapping {
    let e = &blocks[id];
    Mapping {
        ticket: Ticket::Mapping { shard }.encode(),
        key: e.key(),
        position: e.position().expect("an entry of a region has a record"),
        valid: e.flash_valid(),
        dirty: e.flash_dirty(),
        checksum: blocks.record(id).checksum,
    }
}

/// The state of the moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveState {
    Busy,
    /// Some were given to the log just now; more follow.
    More,
    /// The last were given to the log.
    Given,
    Done,
    /// The log takes no more.
    Failed,
}

/// Progress of forgetting a freed region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgotten {
    All,
    /// Some records were forgotten just now; more follow.
    Some,
    /// None was: the call has used its budget.
    Nothing,
}

impl FlashTier {
    /// The region is free: nothing may refer to it any more. Forgets its records within the budget
    /// of the call; returns whether that made room in the index.
    pub fn forget_region(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        region: u32,
    ) -> (Forgotten, bool) {
        let (mut any, mut room) = (false, false);
        while let Some(id) = blocks.first_of(region) {
            if !context.budget.take() {
                return (if any { Forgotten::Some } else { Forgotten::Nothing }, room);
            }
            any = true;
            assert!(blocks[id].flash_dirty() == 0, "a freed region holds dirty records");
            blocks.prefetch_chain(blocks.record(id).next);
            self.put_record(blocks, context, id, None, 0);
            self.popularity.iter_mut().for_each(|popularity| popularity.remove(id.number()));
            context.stats.reclaim_dropped += u64::from(blocks[id].frame().is_none());
            room |= self.forget_if_empty(blocks, context, id);
        }
        (Forgotten::All, room)
    }

    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, blocks: &mut Blocks, context: &ShardContext<'_>, region: u32) {
        let left = blocks.region_entries(region);
        self.moves = Some(Moves {
            region,
            walks: true,
            left,
            in_flight: 0,
            failed: false,
            later: core::mem::take(&mut self.moves_scratch),
        });
        blocks.begin_walk(region);
        if context.mode.sabotage.is(Bug::MappingLeftBehind) {
            blocks.walk();
        }
    }

    /// Advances the moves.
    pub fn move_step(&mut self, blocks: &mut Blocks, context: &mut ShardContext<'_>) -> MoveState {
        let Some(moves) = &mut self.moves else { return MoveState::Done };
        if moves.walks {
            return match self.move_some(blocks, context) {
                true => MoveState::Given,
                false => MoveState::More,
            };
        }
        if moves.in_flight > 0 {
            return MoveState::Busy;
        }
        if moves.failed {
            self.moves = None;
            return MoveState::Failed;
        }
        let careless = context.mode.sabotage.is(Bug::MappingLeftBehind);
        let log = context.log.get_mut().expect("a region needs a log");
        // A newer record was being written when the others moved.
        for n in (0..moves.later.len()).rev() {
            let (key, position) = moves.later[n];
            let id = blocks.find_at(key, position).filter(|_| !careless);
            let flash = self.replacement.as_ref();
            let id = id.filter(|&id| !flash.is_some_and(|flash| flash.is_unmapping(id)));
            let moved = id.map(|id| log.remap(mapping(self.shard, blocks, id)));
            moves.in_flight += u32::from(moved == Some(true));
            if moved != Some(false) {
                moves.later.swap_remove(n);
            }
        }
        if moves.in_flight > 0 {
            return MoveState::Given;
        }
        if !moves.later.is_empty() {
            return MoveState::Busy;
        }
        let region = moves.region;
        self.moves_scratch = self.moves.take().map_or_else(Vec::new, |moves| moves.later);
        let stays = |id: EntryId| !careless && !self.is_unmapping(id);
        debug_assert!(!blocks.blocks_of(region).any(stays), "a mapping is left behind");
        MoveState::Done
    }

    /// Gives mappings to the log within the budget of the call; the rest must wait for a newer
    /// record. Returns whether the list has ended.
    fn move_some(&mut self, blocks: &mut Blocks, context: &mut ShardContext<'_>) -> bool {
        let Some(moves) = &mut self.moves else { return true };
        let log = context.log.get_mut().expect("a region needs a log");
        while !blocks.has_walked() {
            if !context.budget.take() {
                log.expect_moves(moves.left);
                return false;
            }
            let Some(id) = blocks.walk() else { break };
            moves.left = moves.left.saturating_sub(1);
            if !self.replacement.as_ref().is_some_and(|s| s.is_unmapping(id)) {
                let mapping = mapping(self.shard, blocks, id);
                match log.remap(mapping) {
                    true => moves.in_flight += 1,
                    false => moves.later.push((mapping.key, mapping.position)),
                }
            }
        }
        moves.walks = false;
        true
    }

    /// A mapping is in another region.
    pub fn moved(
        &mut self,
        blocks: &mut Blocks,
        key: BlockKey,
        position: Position,
        regions: (u32, u32),
        good: bool,
    ) {
        if let Some(moves) = &mut self.moves {
            moves.in_flight -= 1;
            moves.failed |= !good;
        }
        if good {
            blocks.mapping_moved(key, position, regions);
        }
    }
}
