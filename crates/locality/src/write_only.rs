//! The stack of an LRU cache in which only writes allocate, for every size at once.
//!
//! A read makes its block the most recently used one in the caches that hold it, and changes nothing in
//! the smaller ones that do not. So blocks lie at different places in the recency lists of caches of
//! different sizes, and no one recency list is the stack. Yet there is a stack: a cache holds all that a
//! smaller one holds, and a block was used last at the same time in all caches that hold it. (By induction:
//! caches evict their least recently used block; a larger one either evicts the same, or one that the
//! smaller does not hold.) The *position* of a block is the size of the largest cache without it:
//!
//! - A read leaves all positions as they are.
//! - A write puts its block on top. From there on down, a carried block (first: the one that was on top) is
//!   exchanged with the next one below it that is older, and so on until the written block's old position,
//!   where the carried block stays; or the bottom, if the block is new. This is the update of a priority
//!   stack (Mattson et al., *Evaluation techniques for storage hierarchies*, 1970), recency being the
//!   priority.
//!
//! Moving half of the stack for each write would take quadratic time. But only blocks that are older than
//! everything above them are ever exchanged. Call these *in line*, and the others, which a read has made
//! newer than something above them, *fixed*: they keep their positions until all above is newer. Blocks in
//! line are ordered by time, and fill the positions that no fixed block has; so a block's position follows
//! from how many in line are newer ([`Times`]) and from where the fixed ones are ([`Positions`]), and a
//! write moves one block in time instead of many in space.
//!
//! What is left is to see when a fixed block comes in line. Its *slack* is the number of blocks in line that
//! are above it and older: it is in line when that is 0. An access takes at most one off, and only if the
//! block it touches was older than the fixed one. Such accesses are counted by the time of the block they
//! touch; a tree over time knows which fixed block may have none left, and that one is looked at.
//!
//! Together O(log n) a step, and less than 48 bytes per block; exact, as tests against caches of every size
//! say.

use crate::LocalityError;
use crate::positions::Positions;
use crate::stack::Reuse;
use crate::table::{FIRST_TIME, NOT_HELD, Table};
use crate::times::{Seat, Times};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct WriteOnlyStack {
    times: Times,
    /// Positions of fixed blocks.
    fixed: Positions,
    /// The fixed blocks that are looked at, kept for its memory.
    due: Vec<(u32, u32)>,
}

impl WriteOnlyStack {
    /// An empty stack that never numbers more than `times_max` accesses without renumbering.
    pub(crate) fn new(times_max: u32) -> Self {
        let (times, fixed) = (Times::new(times_max), Positions::default());
        Self { times, fixed, due: Vec::new() }
    }

    /// One access to the block last used at `time`, or [`NOT_HELD`]: its position, and when it was used
    /// last from now on.
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
                // Nothing is above the first: it stays in line.
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

    /// Looks at the fixed blocks that may have no slack left, from the top down: one that comes in line
    /// adds to the slack of those below it only.
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

    /// The position of a held block.
    pub(crate) fn position(&self, time: u32) -> u32 {
        match self.times.seat(time) {
            Seat::InLine => self.fixed.nth_free(self.times.newer(time)),
            Seat::Fixed { position, .. } => position,
        }
    }

    /// Number of blocks held in a cache without bound.
    pub(crate) fn held(&self) -> u32 {
        self.times.held()
    }

    /// How many accesses may follow before the times must be renumbered.
    pub(crate) fn remaining(&self) -> u32 {
        self.times.remaining()
    }

    /// Renumbers all times without gaps, in the table as well.
    pub(crate) fn renumber(&mut self, table: &mut Table) -> Result<(), LocalityError> {
        if self.times.is_crowded() {
            return Err(LocalityError::TooManyBlocks { distinct_blocks: self.held().into() });
        }
        self.times.renumber();
        table.retime(|time| self.times.renumbered(time));
        self.times.start_over();
        Ok(())
    }

    /// Forgets every block whose key `keep` refuses: those below it move up.
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
        // The times of those in line so far, latest first.
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
