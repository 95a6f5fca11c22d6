//! Flushes of volumes, a shard's part of them: what is dirty in DRAM when one begins has to leave it, to
//! the log or, without one, to the backing store.

use super::blocks::Blocks;
use crate::index::{EntryId, FLUSHING};

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
