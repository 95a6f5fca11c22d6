//! A shard's part of the flush of a volume: all blocks that are dirty in DRAM when it begins must
//! leave DRAM for the log or, without a log, for the backing store.

use super::blocks::Blocks;
use super::entry::EntryId;
use forebay_block::{PerVolume, Volume};

/// The state of a shard's part of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum FlushState {
    /// No flush is in progress, or its end has been reported.
    Idle,
    /// More transfers can be started at once.
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

    /// Begins a flush of the volume: everything that is dirty in DRAM now must leave it.
    pub fn begin(&mut self, blocks: &mut Blocks, volume: Volume) {
        blocks.mark_dirty(volume);
        self.0[volume] = Flush { active: true, waiting: 0, failed: false };
    }

    pub fn is_active(&self, volume: Volume) -> bool {
        self.0[volume].active
    }

    /// Lets the volume's flush wait for one more block.
    pub fn wait_for_one(&mut self, volume: Volume) {
        self.0[volume].waiting += 1;
    }

    /// Fails the volume's flush, because a block cannot be handed on.
    pub fn fail(&mut self, volume: Volume) {
        self.0[volume].failed = true;
    }

    /// Notes that a block for which the flush may wait has been handed on, or could not be.
    pub fn covered(&mut self, blocks: &mut Blocks, id: EntryId, ok: bool) {
        if blocks[id].is_flushing() {
            blocks[id].end_flush();
            let flush = &mut self.0[blocks[id].key().volume()];
            flush.waiting -= 1;
            flush.failed |= !ok;
        }
    }

    /// Checks, between calls, that the flush of each volume waits for as many blocks as are marked
    /// so.
    ///
    /// # Panics
    /// If a number is wrong.
    pub fn check(&self, waiting: &PerVolume<u32>) {
        for (volume, flush) in self.0.iter() {
            assert_eq!(
                flush.waiting, waiting[volume],
                "blocks that the flush of {volume:?} waits for"
            );
        }
    }

    /// The state of the volume's flush once nothing more can be started: it ends when no block is
    /// left to wait for.
    pub fn end(&mut self, volume: Volume) -> FlushState {
        let flush = &mut self.0[volume];
        if flush.waiting > 0 {
            return FlushState::Waiting;
        }
        flush.active = false;
        FlushState::Done { failed: flush.failed }
    }
}
