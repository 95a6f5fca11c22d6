//! Flushes of volumes, a shard's part of them: what is dirty in DRAM when one begins has to leave it, to
//! the log or, without one, to the backing store.

use super::ShardContext;
use super::blocks::Blocks;
use super::tiers::Tiers;
use super::transfer::Kind;
use crate::index::{EntryId, FLUSHING, WANTS_APPEND};

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
    /// What became dirty up to this number is covered.
    until: u64,
    /// Blocks to wait for.
    waiting: u32,
    failed: bool,
}

/// The flush under way of each volume.
#[derive(Debug, Default)]
pub(super) struct Flushes(Vec<Flush>);

impl Flushes {
    pub fn add_volume(&mut self) {
        self.0.push(Flush::default());
    }

    /// A flush of the volume begins: it covers what became dirty until now.
    pub fn begin(&mut self, volume: usize, dirtyings: u64) {
        self.0[volume] = Flush { active: true, until: dirtyings, waiting: 0, failed: false };
    }

    pub fn is_active(&self, volume: usize) -> bool {
        self.0[volume].active
    }

    /// Whether it covers what became dirty at a number.
    pub fn covers(&self, volume: usize, since: u64) -> bool {
        since <= self.0[volume].until
    }

    /// It waits for one block more.
    pub fn wait_for_one(&mut self, volume: usize) {
        self.0[volume].waiting += 1;
    }

    /// A block cannot be handed on, nor can others.
    pub fn give_up(&mut self, volume: usize) {
        let flush = &mut self.0[volume];
        (flush.failed, flush.until) = (true, 0);
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

/// Pushes a flush on by at most `budget` blocks. This shard's part is done when all it
/// covers has been handed to the log, or, without one, is on the backing store.
pub(super) fn step(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    volume: usize,
    budget: u32,
) -> FlushState {
    if !tiers.flushes.is_active(volume) {
        return FlushState::Idle;
    }
    for _ in 0..budget {
        let Some((id, since)) = tiers.blocks.oldest_dirty(volume) else { break };
        if !tiers.flushes.covers(volume, since) {
            break;
        }
        if let Some(t) = tiers.blocks[id].transfer() {
            // Destaged already, or appended when the transfer under way ends.
            let destaging = matches!(tiers.transfers[t].kind, Kind::Destage { .. });
            tiers.blocks.unlist_dirty(id);
            tiers.blocks[id].set(if destaging { FLUSHING } else { WANTS_APPEND | FLUSHING });
            tiers.flushes.wait_for_one(volume);
        } else if tiers.flash.logs(tiers.blocks[id].key()) {
            if tiers.append(context, id, true).is_none() {
                tiers.flushes.give_up(volume);
            }
        } else {
            tiers.blocks[id].set(FLUSHING);
            tiers.flushes.wait_for_one(volume);
            tiers.blocks.unlist_dirty(id);
            tiers.destage(context, id);
        }
    }
    tiers.transfers.close_runs(context);
    let left = tiers.blocks.oldest_dirty(volume).map_or(u64::MAX, |(_, since)| since);
    if tiers.flushes.covers(volume, left) {
        return FlushState::More;
    }
    tiers.flushes.end(volume)
}
