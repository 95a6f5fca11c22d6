//! The stack of an LRU cache in which only writes allocate, for every size at once.
//!
//! A read makes its block the most recently used one in the caches that hold it, and changes
//! nothing in the smaller ones that do not. So blocks have different places in the recency lists of
//! caches of different sizes, and no single recency list is the stack. Yet there is a stack: a
//! cache holds all blocks that a smaller one holds, and a block was last used at the same time in
//! all caches that hold it. (By induction: caches evict their least recently used block; a larger
//! one evicts either the same block, or one that the smaller does not hold.) The *position* of a
//! block is the size of the largest cache that does not hold it:
//!
//! - A read changes no position.
//! - A write puts its block on top. Below it, a carried block (at first the one that was on top)
//!   changes places with the next block down that is older, which is carried in turn, and so on.
//!   The block carried last gets the old position of the written block, or the bottom if the
//!   written block is new. This is the update of a priority stack (Mattson et al., *Evaluation
//!   techniques for storage hierarchies*, 1970), with recency as the priority.
//!
//! Moving half of the stack on each write would take quadratic time. But only blocks that are older
//! than everything above them are ever exchanged. Call these *in line*, and the others, which a
//! read has made newer than some block above them, *fixed*: they keep their positions until all
//! blocks above are newer. Blocks in line are ordered by time and fill the positions that no fixed
//! block has. So the position of a block follows from the number of newer blocks in line
//! ([`Times`]) and from the positions of the fixed blocks ([`Positions`]), and a write moves one
//! block in time instead of many in space.
//!
//! It remains to detect when a fixed block comes in line. Its *slack* is the number of blocks in
//! line that are above it and older: it comes in line when its slack is 0. An access reduces the
//! slack by at most one, and only if the accessed block was older than the fixed one. Such accesses
//! are counted by the time of the block accessed; a tree over time finds the fixed blocks whose
//! slack may be used up, and only those are checked.
//!
//! An access takes O(log n) time, and a block less than 48 bytes. Distances are exact; tests
//! compare them with caches of every size.

use crate::LocalityError;
use crate::positions::Positions;
use crate::stack::Reuse;
use crate::table::{FIRST_TIME, NOT_HELD, Table};
use crate::times::{Seat, Times};

/// The stack described in the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct WriteOnlyStack {
    times: Times,
    /// The positions of the fixed blocks.
    fixed: Positions,
    /// The fixed blocks being checked; kept to reuse its allocation.
    due: Vec<(u32, u32)>,
}

impl WriteOnlyStack {
    /// Creates an empty stack that is renumbered after at most `times_max` accesses.
    pub(crate) fn new(times_max: u32) -> Self {
        let (times, fixed) = (Times::new(times_max), Positions::default());
        Self { times, fixed, due: Vec::new() }
    }

    /// Processes one access to the block last used at `time`, or [`NOT_HELD`]. Returns its
    /// position, and its new time of last use.
    pub(crate) fn access(&mut self, time: u32, writes: bool) -> (Reuse, u32) {
        if time == NOT_HELD {
            if !writes {
                return (Reuse::COLD, NOT_HELD);
            }
            self.times.count_older_than_all();
            let now = self.times.record(Seat::InLine);
            self.check_due();
            return (Reuse::COLD, now);
        }
        let seat = self.times.remove(time);
        let now = match seat {
            Seat::InLine => {
                let rank = self.times.newer(time);
                let position = self.fixed.nth_free(rank);
                self.times.count_older_than(time);
                // No block in line is above the first one: it stays in line.
                let now = if writes || rank == 0 {
                    self.times.record(Seat::InLine)
                } else {
                    self.fixed.insert(position);
                    self.times.record(Seat::Fixed { position, slack: rank })
                };
                (position, now)
            }
            Seat::Fixed { position, .. } if writes => {
                self.fixed.remove(position);
                self.times.count_older_than_all();
                (position, self.times.record(Seat::InLine))
            }
            Seat::Fixed { position, .. } => {
                let slack = position - self.fixed.rank(position);
                (position, self.times.record(Seat::Fixed { position, slack }))
            }
        };
        self.check_due();
        (Reuse::at(now.0), now.1)
    }

    /// Checks the fixed blocks whose slack may be used up, from the top down: a block that comes in
    /// line adds only to the slack of blocks below it.
    fn check_due(&mut self) {
        if !self.times.any_due() {
            return;
        }
        let mut due = core::mem::take(&mut self.due);
        self.times.for_each_due(|time, position| due.push((position, time)));
        due.sort_unstable();
        for (position, time) in due.drain(..) {
            let slack = position - self.fixed.rank(position) - self.times.newer(time);
            if slack == 0 {
                self.fixed.remove(position);
                self.times.fall_in(time);
            } else {
                self.times.set_slack(time, slack);
            }
        }
        self.due = due;
        debug_assert!(!self.times.any_due());
    }

    /// Returns the position of the block last used at `time`, which is held.
    pub(crate) fn position(&self, time: u32) -> u32 {
        match self.times.seat(time) {
            Seat::InLine => self.fixed.nth_free(self.times.newer(time)),
            Seat::Fixed { position, .. } => position,
        }
    }

    /// Number of blocks held by a cache of unlimited size.
    pub(crate) fn held(&self) -> u32 {
        self.times.held()
    }

    /// Number of accesses possible before the times must be renumbered.
    pub(crate) fn remaining(&self) -> u32 {
        self.times.remaining()
    }

    /// Renumbers all times without gaps, in `table` too.
    pub(crate) fn renumber(&mut self, table: &mut Table) -> Result<(), LocalityError> {
        if self.times.is_crowded() {
            return Err(LocalityError::TooManyBlocks { distinct_blocks: self.held().into() });
        }
        self.times.renumber();
        table.retime(|time| self.times.renumbered(time));
        self.times.start_over();
        Ok(())
    }

    /// Forgets every block whose key `keep` rejects; blocks below it move up.
    pub(crate) fn retain(&mut self, table: &mut Table, mut keep: impl FnMut(u64) -> bool) {
        let mut left = Vec::new();
        table.retain(|key, time| {
            let keeps = keep(key);
            if keeps && time >= FIRST_TIME {
                left.push((self.position(time), time));
            }
            keeps
        });
        left.sort_unstable();
        self.times.clear();
        self.fixed = Positions::default();
        // The times of the blocks in line so far, latest first.
        let mut line: Vec<u32> = Vec::new();
        for (position, (_, time)) in (0..).zip(left) {
            let newer = line.partition_point(|&t| t > time);
            let slack = (line.len() - newer) as u32;
            if slack == 0 {
                line.push(time);
                self.times.put(time, Seat::InLine);
            } else {
                self.fixed.insert(position);
                self.times.put(time, Seat::Fixed { position, slack });
            }
        }
    }
}
