//! Layout slots: the mappings of a region that is reclaimed, on their way to the head of the log.

use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Mapping, Position};

use super::FlashTier;
use crate::shard::ShardContext;
use crate::shard::blocks::Blocks;
use crate::shard::regions::Regions;

/// See the module.
#[derive(Debug)]
pub(super) struct Moves {
    region: u32,
    in_flight: u32,
    failed: bool,
}

/// How they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveState {
    Busy,
    /// Some were handed to the log just now.
    More,
    Done,
    /// The log takes no more.
    Failed,
}

impl FlashTier {
    /// Begins to move a region's mappings.
    pub fn move_begin(&mut self, blocks: &Blocks, context: &mut ShardContext<'_>, region: u32) {
        self.moves = Some(Moves { region, in_flight: 0, failed: false });
        self.move_some(blocks, context);
    }

    /// Hands to the log what it takes; the rest must wait for a newer record.
    fn move_some(&mut self, blocks: &Blocks, context: &mut ShardContext<'_>) {
        let Some(moves) = &mut self.moves else { return };
        let log = context.log.as_deref_mut().expect("a region needs a log");
        let mut next = self.regions.first(moves.region);
        if context.front.sabotage.is(Bug::MappingLeftBehind) {
            next = next.and_then(|id| Regions::next(blocks, id));
        }
        while let Some(id) = next {
            let e = &blocks[id];
            next = Regions::next(blocks, id);
            if !self.replacement.as_ref().is_some_and(|s| s.is_unmapping(id)) {
                let mapping = Mapping {
                    ticket: u64::from(self.shard),
                    key: e.key(),
                    position: e.position().expect("an entry of a region has a record"),
                    valid: e.flash_valid,
                    dirty: e.flash_dirty,
                    checksum: blocks.record(id).checksum,
                };
                moves.in_flight += u32::from(log.remap(mapping));
            }
        }
    }

    /// Pushes the moves on.
    pub fn move_step(&mut self, blocks: &Blocks, context: &mut ShardContext<'_>) -> MoveState {
        let Some(moves) = &self.moves else { return MoveState::Done };
        if moves.in_flight > 0 {
            return MoveState::Busy;
        }
        if moves.failed {
            self.moves = None;
            return MoveState::Failed;
        }
        let left = self.blocks_of(blocks, moves.region).any(|id| !self.is_unmapping(id));
        let careless = context.front.sabotage.is(Bug::MappingLeftBehind);
        if careless || !left {
            self.moves = None;
            return MoveState::Done;
        }
        // A newer record was being written when the others moved.
        self.move_some(blocks, context);
        let moves = self.moves.as_ref().expect("put back");
        if moves.in_flight > 0 { MoveState::More } else { MoveState::Busy }
    }

    /// A mapping stands in another region.
    pub fn moved(
        &mut self,
        blocks: &mut Blocks,
        key: BlockKey,
        position: Position,
        (from, to): (u32, u32),
        good: bool,
    ) {
        if let Some(moves) = &mut self.moves {
            moves.in_flight -= 1;
            moves.failed |= !good;
        }
        if let (true, Some(id)) = (good, blocks.find_at(key, position)) {
            self.regions.unlist(blocks, id, from);
            self.regions.list(blocks, id, to);
            if blocks[id].flash_dirty != 0 {
                self.regions.count_dirty(from, false);
                self.regions.count_dirty(to, true);
            }
        }
    }
}
