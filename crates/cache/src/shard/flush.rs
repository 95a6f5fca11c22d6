//! A shard's part of the flush of a volume: all blocks that are dirty in DRAM when it begins must
//! leave DRAM for the log or, without a log, for the backing store.

use super::ShardContext;
use super::blocks::Blocks;
use super::entry::{EntryId, FLUSHING, WANTS_APPEND};
use super::tiers::{Tiers, leave};
use super::transfer::Kind;
use forebay_block::{PerVolume, Volume};

/// The state of a shard's part of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushState {
    /// None is in progress, or it was reported as done.
    Idle,
    /// More can be started at once.
    More,
    /// Transfers must end first.
    Waiting,
    /// All blocks are handed on, or some could not be.
    Done { failed: bool },
}

/// A shard's part of the flush of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Flush {
    active: bool,
    /// Number of blocks to wait for.
    waiting: u32,
    failed: bool,
}

/// The current flush of each volume.
#[derive(Debug, Default)]
pub(crate) struct Flushes(PerVolume<Flush>);

impl Flushes {
    pub fn add_volume(&mut self) {
        self.0.push(Flush::default());
    }

    /// A flush of the volume begins; its blocks are marked.
    pub fn begin(&mut self, volume: Volume) {
        self.0[volume] = Flush { active: true, waiting: 0, failed: false };
    }

    pub fn is_active(&self, volume: Volume) -> bool {
        self.0[volume].active
    }

    /// It waits for one more block.
    pub fn wait_for_one(&mut self, volume: Volume) {
        self.0[volume].waiting += 1;
    }

    /// A block cannot be handed on.
    pub fn fail(&mut self, volume: Volume) {
        self.0[volume].failed = true;
    }

    /// A block that the flush may wait for has been handed on, or could not be.
    pub fn covered(&mut self, blocks: &mut Blocks, id: EntryId, ok: bool) {
        if blocks[id].has(FLUSHING) {
            blocks[id].clear(FLUSHING);
            let flush = &mut self.0[blocks[id].key().volume()];
            flush.waiting -= 1;
            flush.failed |= !ok;
        }
    }

    /// Its state once nothing more can be started: it ends when no block is left to wait for.
    pub fn end(&mut self, volume: Volume) -> FlushState {
        let flush = &mut self.0[volume];
        if flush.waiting > 0 {
            return FlushState::Waiting;
        }
        flush.active = false;
        FlushState::Done { failed: flush.failed }
    }
}

/// A flush of the volume begins: what is dirty in DRAM until now must leave it.
pub(crate) fn begin(tiers: &mut Tiers, volume: Volume) {
    tiers.blocks.mark_dirty(volume);
    tiers.flushes.begin(volume);
}

/// Advances a flush by at most `budget` blocks. This shard's part is done when all its blocks have
/// been given to the log or, without a log, are on the backing store.
pub(crate) fn step(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    volume: Volume,
    budget: u32,
) -> FlushState {
    if !tiers.flushes.is_active(volume) {
        return FlushState::Idle;
    }
    for _ in 0..budget {
        let Some(id) = tiers.blocks.oldest_marked(volume) else { break };
        if let Some(t) = tiers.blocks[id].transfer() {
            // It is destaged already, or is appended when the current transfer ends.
            let destaging = matches!(tiers.transfers[t].kind, Kind::Destage { .. });
            tiers.blocks.unlist_dirty(id);
            tiers.blocks[id].set(if destaging { FLUSHING } else { WANTS_APPEND | FLUSHING });
            tiers.flushes.wait_for_one(volume);
        } else if context.flash.logs(tiers.blocks[id].key()) {
            if tiers.append(context, id, true).is_none() {
                // Nor can others.
                tiers.flushes.fail(volume);
                tiers.blocks.unmark_dirty(volume);
            }
        } else {
            tiers.blocks[id].set(FLUSHING);
            tiers.flushes.wait_for_one(volume);
            tiers.blocks.unlist_dirty(id);
            leave::destage(tiers, context, id);
        }
    }
    tiers.transfers.close_runs(context);
    if tiers.blocks.oldest_marked(volume).is_some() {
        return FlushState::More;
    }
    tiers.flushes.end(volume)
}
