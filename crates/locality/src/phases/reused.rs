//! Counts the blocks that each phase accesses more than once, for all phases of a workload in one
//! pass.
//!
//! Distances do not say which block an access is to, but they suffice to rebuild the stack: an
//! access at distance *d* is to the block at depth *d*. So for each block in the stack it is known
//! which phases contain both of its last two accesses.

use core::ops::Range;

use super::AccessRecord;
use crate::Reuse;
use crate::cpu::Cpu;
use crate::table::FIRST_TIME;
use crate::timeline::{TIMES_MAX, Timeline};

/// Returns the number of blocks that each span accesses more than once.
///
/// The first span must contain all others. Spans must be in order of their start, an outer span
/// before those nested in it, and spans that are not nested must not overlap.
pub(crate) fn reused_blocks(record: &AccessRecord, spans: &[Range<u64>]) -> Vec<u64> {
    let Some(whole) = spans.first() else { return Vec::new() };
    let reuses = record.recency(whole.clone());
    match Cpu::detect() {
        Cpu::Baseline => count(reuses, spans),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Cpu::detect` found these features.
        Cpu::Avx2 => unsafe { count_avx2(reuses, spans) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx2(reuses: impl Iterator<Item = Reuse>, spans: &[Range<u64>]) -> Vec<u64> {
    count(reuses, spans)
}

#[inline(always)]
fn count(reuses: impl Iterator<Item = Reuse>, spans: &[Range<u64>]) -> Vec<u64> {
    let mut walk = Walk {
        reused: vec![0; spans.len()],
        open: Vec::new(),
        next: 0,
        timeline: Timeline::new(TIMES_MAX),
        shared: Vec::new(),
    };
    // The position at which a span next begins or ends.
    let mut event = spans[0].start;
    for (at, reuse) in (spans[0].start..).zip(reuses) {
        if at == event {
            event = walk.enter(spans, at);
        }
        walk.access(reuse);
    }
    walk.reused
}

/// A span that has begun and has not ended.
struct Open {
    number: usize,
    /// The time at which it began, on the timeline.
    since: u32,
}

struct Walk {
    reused: Vec<u64>,
    /// The open spans, outermost first.
    open: Vec<Open>,
    /// The number of the span that begins next.
    next: usize,
    /// The last access of each block, within the outermost span.
    timeline: Timeline,
    /// For the access at each time: how many open spans, counted from the outermost, contain both
    /// this access and the previous one to the same block.
    shared: Vec<u8>,
}

impl Walk {
    /// Closes the spans that end at `at`, and opens those that begin there. Returns the position at
    /// which a span next begins or ends.
    #[cold]
    fn enter(&mut self, spans: &[Range<u64>], at: u64) -> u64 {
        self.open.retain(|open| spans[open.number].end > at);
        while self.next < spans.len() && spans[self.next].start <= at {
            if spans[self.next].end > at {
                self.open.push(Open { number: self.next, since: self.timeline.now() });
            }
            self.next += 1;
        }
        assert!(self.open.len() <= usize::from(u8::MAX), "more than 255 spans are nested");
        let ends = self.open.iter().map(|open| spans[open.number].end);
        let begins = spans.get(self.next).map(|span| span.start);
        ends.chain(begins).min().unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn access(&mut self, reuse: Reuse) {
        if self.timeline.remaining() == 0 {
            self.renumber();
        }
        let kept = self.timeline.kept();
        let shared = match reuse.distance() {
            Some(depth) if depth < kept => {
                let before = self.timeline.select(kept - 1 - depth);
                self.timeline.take(before);
                let shared = self.open.iter().take_while(|open| open.since <= before).count();
                // The outermost `known` spans have counted the block already.
                let known = usize::from(self.shared[before as usize]);
                for open in self.open.iter().take(shared).skip(known) {
                    self.reused[open.number] += 1;
                }
                shared
            }
            _ => 0,
        };
        let time = self.timeline.record() as usize;
        if time >= self.shared.len() {
            self.shared.resize(time + 1, 0);
        }
        self.shared[time] = shared as u8;
    }

    #[cold]
    fn renumber(&mut self) {
        let mut shared = vec![0; FIRST_TIME as usize];
        let times = (0..self.timeline.kept()).map(|rank| self.timeline.select(rank));
        shared.extend(times.map(|time| self.shared[time as usize]));
        for open in &mut self.open {
            open.since = FIRST_TIME + self.timeline.rank(open.since);
        }
        self.shared = shared;
        self.timeline.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::record;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn naive(keys: &[u64], span: &Range<u64>) -> u64 {
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        let keys = &keys[span.start as usize..span.end as usize];
        keys.iter().for_each(|&key| *times.entry(key).or_default() += 1);
        times.values().filter(|&&n| n > 1).count() as u64
    }

    /// Adds a span and, recursively, random parts of it with gaps between them.
    fn nest(span: Range<u64>, seed: &mut u64, depth: u32, spans: &mut Vec<Range<u64>>) {
        spans.push(span.clone());
        let mut random = |below: u64| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*seed >> 33) % below
        };
        if depth == 0 || span.end - span.start < 4 {
            return;
        }
        let (mut at, mut parts) = (span.start, Vec::new());
        while at < span.end {
            let length = 1 + random(span.end - span.start);
            parts.push(at..(at + length).min(span.end));
            at += length + random(20);
        }
        parts.into_iter().for_each(|part| nest(part, seed, depth - 1, spans));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn nested_spans_equal_a_naive_recount(
            keys in proptest::collection::vec(prop_oneof![0..6u64, 0..80u64, 0..2000u64], 1..900),
            seed in any::<u64>(), from in 0..300u64,
        ) {
            let accesses = keys.len() as u64;
            let mut spans = Vec::new();
            nest(from.min(accesses - 1)..accesses, &mut seed.clone(), 4, &mut spans);
            let expected: Vec<u64> = spans.iter().map(|span| naive(&keys, span)).collect();
            prop_assert_eq!(reused_blocks(&record(&keys), &spans), expected);
        }
    }

    #[test]
    fn times_that_are_used_up_change_nothing() {
        // The shortest timeline has 16,384 times.
        let keys: Vec<u64> = (0..120_000u64).map(|n| n * n % 5003).collect();
        let record = record(&keys);
        let mut spans = Vec::new();
        nest(100..120_000, &mut 7, 5, &mut spans);
        assert!(spans.len() > 15, "{}", spans.len());
        let expected: Vec<u64> = spans.iter().map(|span| naive(&keys, span)).collect();
        assert_eq!(reused_blocks(&record, &spans), expected);
    }
}
