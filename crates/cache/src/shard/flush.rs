//! Flushes of volumes, a shard's part of them: what is dirty in DRAM when one begins has to leave it, to
//! the log or, without one, to the backing store.

use super::ShardContext;
use super::blocks::Blocks;
use super::tiers::{Tiers, leave};
use super::transfer::Kind;
use crate::entry::{EntryId, FLUSHING, WANTS_APPEND};

/// How a shard's part of a flush stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushState {
    /// None is under way, or it was reported as done.
    Idle,
    /// There is more to start at once.
    More,
    /// Transfers must end first.
    Waiting,
    /// All is handed on, or some could not be.
    Done { failed: bool },
}

/// A shard's part in the flush of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Flush {
    active: bool,
    /// Blocks to wait for.
    waiting: u32,
    failed: bool,
}

/// The flush under way of each volume.
#[derive(Debug, Default)]
pub(crate) struct Flushes(Vec<Flush>);

impl Flushes {
    pub fn add_volume(&mut self) {
        self.0.push(Flush::default());
    }

    /// A flush of the volume begins; what it covers is marked.
    pub fn begin(&mut self, volume: usize) {
        self.0[volume] = Flush { active: true, waiting: 0, failed: false };
    }

    pub fn is_active(&self, volume: usize) -> bool {
        self.0[volume].active
    }

    /// It waits for one block more.
    pub fn wait_for_one(&mut self, volume: usize) {
        self.0[volume].waiting += 1;
    }

    /// A block cannot be handed on.
    pub fn fail(&mut self, volume: usize) {
        self.0[volume].failed = true;
    }

    /// A block that the flush waits for, if this is one, has been handed on, or could not be.
    pub fn covered(&mut self, blocks: &mut Blocks, id: EntryId, ok: bool) {
        if blocks[id].has(FLUSHING) {
            blocks[id].clear(FLUSHING);
            let flush = &mut self.0[usize::from(blocks[id].key().volume())];
            flush.waiting -= 1;
            flush.failed |= !ok;
        }
    }

    /// How it stands, once nothing more can be started: it is over when nothing is waited for.
    pub fn end(&mut self, volume: usize) -> FlushState {
        let flush = &mut self.0[volume];
        if flush.waiting > 0 {
            return FlushState::Waiting;
        }
        flush.active = false;
        FlushState::Done { failed: flush.failed }
    }
}

/// A flush of the volume begins: what is dirty in DRAM until now must leave it.
pub(crate) fn begin(tiers: &mut Tiers, volume: usize) {
    tiers.blocks.mark_dirty(volume);
    tiers.flushes.begin(volume);
}

/// Pushes a flush on by at most `budget` blocks. This shard's part is done when all it
/// covers has been handed to the log, or, without one, is on the backing store.
pub(crate) fn step(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    volume: usize,
    budget: u32,
) -> FlushState {
    if !tiers.flushes.is_active(volume) {
        return FlushState::Idle;
    }
    for _ in 0..budget {
        let Some(id) = tiers.blocks.oldest_marked(volume) else { break };
        if let Some(t) = tiers.blocks[id].transfer() {
            // Destaged already, or appended when the transfer under way ends.
            let destaging = matches!(tiers.transfers[t].kind, Kind::Destage { .. });
            tiers.blocks.unlist_dirty(id);
            tiers.blocks[id].set(if destaging { FLUSHING } else { WANTS_APPEND | FLUSHING });
            tiers.flushes.wait_for_one(volume);
        } else if tiers.flash.logs(tiers.blocks[id].key()) {
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
