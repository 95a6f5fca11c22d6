//! Where a volume has data, for clients that ask before they read (`base:allocation` of NBD).
//!
//! A client does not read a range that is reported as zeroes: it takes the zeroes for the contents.
//! So a false "zeroes" loses data, and a false "data" costs a read. The cache answers for each
//! block that it holds in any tier: zeroes if the block's newest version was zeroed as a whole in
//! this run, else data. The backing store answers for all other blocks.
//!
//! # Why the cache is asked first
//!
//! Cache and store cannot be asked at the same instant: a store answers in its own time, while
//! requests continue. [`Holdings`] are the cache's answer at one instant. Only they can be
//! [resolved](Holdings::resolve) with the store's answers, which come later. This order is right
//! and the opposite order is wrong:
//!
//! - *Data move down.* A dirty block can be destaged and evicted at any time. If the store were
//!   asked first (still a hole) and then the cache (no longer there), the block would be missed in
//!   both places. If the cache is asked first, the block is either there or has left. In the second
//!   case its write to the store had completed before, and the store shows it.
//! - *Zeroes move down the same way.* A trim of a block that the cache does not hold goes to the
//!   store alone. Until the store has executed it, the store reports data.
//! - *Changes between the two answers* are made by requests that were in flight together with the
//!   question, so either answer is right. A block that was not held and is written meanwhile may be
//!   reported as the hole that it was. A block that was not held and becomes zeroes on the store
//!   has been trimmed or zeroed meanwhile. Nothing else makes the store's bytes zero.
//!
//! A write that was acknowledged before the question is in the cache at the instant of the cache's
//! answer, or was on the store before that instant. So a range that is reported as zeroes was
//! zeroes at some time between question and answer, as for any read.
//!
//! The machine keeps no state about a question. One answer looks at a bounded number of blocks
//! ([`LOOKUPS_MAX`]); a stripe of which nothing is cached counts as one.

use forebay_block::{Content, ContentRun, SECTOR_BYTES, Volume};

use crate::world::World;

/// The cache's answer for one block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Held {
    /// Data, or bytes that may be data.
    Data,
    /// Zeroes.
    Zeroes,
    /// Nothing: the backing store has the newest version.
    Nothing,
}

/// The cache's answer for consecutive bytes of a volume, at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    start: u64,
    /// Each run with its end; equal neighbours are joined.
    runs: Vec<(Held, u64)>,
}

/// Largest number of blocks, or of stripes of which nothing is cached, that one answer looks at.
pub const LOOKUPS_MAX: u32 = 512;

impl Holdings {
    /// Looks up `length` bytes from `offset` on, or as many of them as one call may look at.
    pub(crate) fn look_up(world: &World, volume: Volume, offset: u64, length: u64) -> Holdings {
        let mut holdings = Holdings { start: offset, runs: Vec::new() };
        let end = offset.saturating_add(length);
        if !world.lifecycle.is_ready() {
            // Until the cache is ready, neither the index nor the store can be relied on.
            holdings.push(Held::Data, end);
            return holdings;
        }
        let (block, stripe) = (world.config.block_size.shift(), world.config.stripe_shift);
        let mut at = offset;
        for _ in 0..LOOKUPS_MAX {
            if at >= end {
                break;
            }
            let (shard, key) = world.place_of(volume, at);
            let blocks = &world.shards[shard].tiers.blocks;
            let (held, shift) = match blocks.is_stripe_empty(key) {
                true => (Held::Nothing, stripe),
                false => (blocks.held(key), block),
            };
            at = (((at >> shift) + 1) << shift).min(end);
            holdings.push(held, at);
        }
        holdings
    }

    fn push(&mut self, held: Held, end: u64) {
        match self.runs.last_mut() {
            Some((last, until)) if *last == held => *until = end,
            _ => self.runs.push((held, end)),
        }
    }

    /// The first byte of the answer.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The end of the answer.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(self.start, |run| run.1)
    }

    /// The runs: the state of each, and its end.
    pub fn runs(&self) -> impl Iterator<Item = (Held, u64)> + '_ {
        self.runs.iter().copied()
    }

    /// Appends the answer for a client to `told`, until it is complete or `told` has more than
    /// `runs_max` runs; surplus runs are removed. Runs begin and end at sectors; equal neighbours
    /// are joined. Returns the end of the range that `told` covers.
    ///
    /// `store` is called for bytes that the cache does not hold, with offset and length. It appends
    /// what it knows about them, from the first byte on, to the list that it is given. Bytes that
    /// it leaves out count as data.
    pub fn resolve(
        &self,
        runs_max: usize,
        store: &mut dyn FnMut(u64, u64, &mut Vec<ContentRun>),
        told: &mut Vec<ContentRun>,
    ) -> u64 {
        let mut at = self.start;
        let mut found = Vec::new();
        for &(held, end) in &self.runs {
            match held {
                Held::Data => tell(told, Content::Data, end - at),
                Held::Zeroes => tell(told, Content::Zeroes, end - at),
                Held::Nothing => {
                    found.clear();
                    store(at, end - at, &mut found);
                    tell_store(told, at, end, &found);
                }
            }
            at = end;
            if told.len() > runs_max {
                break;
            }
        }
        for surplus in told.drain(runs_max.min(told.len())..) {
            at -= surplus.length;
        }
        at
    }
}

/// Appends the store's answer for the bytes from `at` to `end`. A sector that is zeroed only in
/// part counts as unknown.
fn tell_store(told: &mut Vec<ContentRun>, mut at: u64, end: u64, found: &[ContentRun]) {
    let mut start = at;
    for run in found {
        let until = start.saturating_add(run.length).min(end);
        let (first, last) = (start.next_multiple_of(SECTOR_BYTES), until - until % SECTOR_BYTES);
        if run.content.is_zero() && first < last {
            tell(told, Content::Data, first - at);
            tell(told, run.content, last - first);
            at = last;
        }
        start = until;
    }
    tell(told, Content::Data, end - at);
}

fn tell(told: &mut Vec<ContentRun>, content: Content, length: u64) {
    match told.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.content == content => last.length += length,
        _ => told.push(ContentRun { content, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Content::{Data, Hole, Zeroes};

    fn run(content: Content, length: u64) -> ContentRun {
        ContentRun { content, length }
    }

    fn resolved(runs: &[(Held, u64)], max: usize, store: &[ContentRun]) -> (Vec<ContentRun>, u64) {
        let (mut told, start) = (Vec::new(), 4096);
        let holdings = Holdings { start, runs: runs.to_vec() };
        let mut ask = |_, _, found: &mut Vec<ContentRun>| found.extend_from_slice(store);
        let end = holdings.resolve(max, &mut ask, &mut told);
        assert_eq!(end, start + told.iter().map(|run| run.length).sum::<u64>());
        (told, end)
    }

    #[test]
    fn what_is_held_hides_the_store() {
        let runs = [(Held::Data, 8192), (Held::Nothing, 12288), (Held::Zeroes, 16384)];
        let (told, _) = resolved(&runs, 9, &[run(Hole, 1 << 20)]);
        assert_eq!(told, [run(Data, 4096), run(Hole, 4096), run(Zeroes, 4096)]);
    }

    #[test]
    fn what_the_store_does_not_tell_is_data() {
        let runs = [(Held::Nothing, 12288)];
        assert_eq!(resolved(&runs, 9, &[]).0, [run(Data, 8192)]);
        assert_eq!(resolved(&runs, 9, &[run(Hole, 512)]).0, [run(Hole, 512), run(Data, 7680)]);
    }

    #[test]
    fn a_sector_that_is_zeroes_in_part_only_is_data() {
        let store =
            [run(Hole, 700), run(Data, 100), run(Zeroes, 300), run(Hole, 948), run(Data, 1)];
        let told = resolved(&[(Held::Nothing, 8192)], 9, &store).0;
        // Sectors: hole | torn by data | torn: zeroes and hole | hole | data, and the rest without
        // an answer.
        let right = [run(Hole, 512), run(Data, 1024), run(Hole, 512), run(Data, 2048)];
        assert_eq!(told, right);
    }

    #[test]
    fn no_more_is_told_than_was_asked_for() {
        let runs = [(Held::Data, 8192), (Held::Zeroes, 12288), (Held::Data, 16384)];
        assert_eq!(resolved(&runs, 2, &[]), (vec![run(Data, 4096), run(Zeroes, 4096)], 12288));
        assert_eq!(resolved(&runs, 1, &[]), (vec![run(Data, 4096)], 8192));
        // Bytes that the store says nothing about count as data, and join the cached block after
        // them.
        let runs = [(Held::Nothing, 8192), (Held::Data, 16384)];
        assert_eq!(resolved(&runs, 1, &[]), (vec![run(Data, 12288)], 16384));
    }
}
