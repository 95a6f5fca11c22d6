//! Compares the formulas with a simulated cache.
//!
//! Goal: what the planner computes from reuse distances equals what two exclusive tiers do. Method:
//! a naive simulation of two lists of blocks, with random accesses. It counts every read and write
//! of every device and uses neither reuse distances nor the formulas. It starts full (of blocks
//! that nobody accesses), because the formulas describe a cache that has filled up, and writes back
//! its dirty blocks at the end.

use std::collections::VecDeque;

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_plan::{
    Catalogue, Combination, Hierarchy, ProfileBuilder, ProfileOptions, WritePolicy,
};
use proptest::prelude::*;

/// The first number of the blocks that nobody accesses.
const STRANGERS: u64 = 1 << 32;

#[derive(Clone, Copy)]
struct Held {
    block: u64,
    dirty: bool,
}

/// Reads and writes of tier 1, tier 2 and the backing store.
#[derive(Default)]
struct Operations {
    reads: [u64; 3],
    writes: [u64; 3],
}

struct TwoTiers {
    /// Most recently used blocks first.
    tiers: [VecDeque<Held>; 2],
    done: Operations,
    policy: WritePolicy,
}

const STORE: usize = 2;

impl TwoTiers {
    fn full(sizes: [u64; 2], policy: WritePolicy) -> Self {
        let mut stranger = STRANGERS..;
        let tiers = sizes.map(|size| {
            let blocks = stranger.by_ref().take(size as usize);
            blocks.map(|block| Held { block, dirty: false }).collect()
        });
        Self { tiers, done: Operations::default(), policy }
    }

    fn take(&mut self, tier: usize, block: u64) -> Option<Held> {
        let at = self.tiers[tier].iter().position(|held| held.block == block)?;
        self.tiers[tier].remove(at)
    }

    fn access(&mut self, write: bool, block: u64) {
        let through = self.policy == WritePolicy::WriteThrough;
        if write && through {
            self.done.writes[STORE] += 1;
        }
        if let Some(held) = self.take(0, block) {
            let count = if write { &mut self.done.writes } else { &mut self.done.reads };
            count[0] += 1;
            let dirty = held.dirty || (write && !through);
            self.tiers[0].push_front(Held { block, dirty });
            return;
        }
        let below = self.take(1, block);
        if !write {
            self.done.reads[if below.is_some() { 1 } else { STORE }] += 1;
        }
        let dirty = below.is_some_and(|held| held.dirty) || (write && !through);
        self.done.writes[0] += 1;
        self.tiers[0].push_front(Held { block, dirty });
        self.demote(below.is_some());
    }

    /// Makes room in tier 1; tier 2 has room if the accessed block came from there.
    fn demote(&mut self, room_below: bool) {
        let two = !self.tiers[1].is_empty() || room_below;
        let oldest = self.tiers[0].pop_back().expect("tier 1 has at least one block");
        if !two {
            return self.evict(0, oldest);
        }
        self.done.reads[0] += 1;
        self.done.writes[1] += 1;
        self.tiers[1].push_front(oldest);
        if !room_below {
            let evicted = self.tiers[1].pop_back().expect("tier 2 has just got one");
            self.evict(1, evicted);
        }
    }

    fn evict(&mut self, tier: usize, held: Held) {
        if held.dirty {
            self.done.reads[tier] += 1;
            self.done.writes[STORE] += 1;
        }
    }

    /// Writes back the dirty blocks, as if they had aged out.
    fn drain(&mut self) {
        let last = usize::from(!self.tiers[1].is_empty());
        for held in std::mem::take(&mut self.tiers).into_iter().flatten() {
            self.evict(last, held);
        }
    }

    fn microseconds(&self, hierarchy: &Hierarchy) -> f64 {
        let devices = [&hierarchy.tiers[0], &hierarchy.tiers[1], &hierarchy.backing];
        let time = |(at, d): (usize, &&forebay_plan::Device)| {
            self.done.reads[at] as f64 * d.read_latency_us
                + self.done.writes[at] as f64 * d.write_latency_us
        };
        devices.iter().enumerate().map(time).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn formulas_give_the_time_that_the_devices_of_a_real_cache_take(
        accesses in prop::collection::vec((any::<bool>(), 0u64..20), 1..300),
        tier1 in 1u64..8,
        tier2 in 0u64..12,
        combination in 0usize..17,
        write_back in any::<bool>(),
    ) {
        let policy = if write_back { WritePolicy::WriteBack } else { WritePolicy::WriteThrough };
        let catalogue = Catalogue::default();
        let combination: &Combination = &catalogue.combinations()[combination];
        let hierarchy = Hierarchy::new(&catalogue, combination, policy).unwrap();

        let mut cache = TwoTiers::full([tier1, tier2], policy);
        let options = ProfileOptions { write_back, ..ProfileOptions::default() };
        let mut profile = ProfileBuilder::new(options).unwrap();
        for &(write, block) in &accesses {
            cache.access(write, block);
            let op = if write { Op::Write } else { Op::Read };
            let request = Request {
                time: Nanos(0), volume: Volume(0), op, flags: Flags::NONE,
                offset: block * 4096, length: 4096,
            };
            profile.add(&request).unwrap();
        }
        let written_to_tiers = [cache.done.writes[0], cache.done.writes[1]];
        cache.drain();

        let evaluation = hierarchy.evaluate(&profile.finish().unwrap(), &[tier1, tier2]);
        let simulated_us = cache.microseconds(&hierarchy) / accesses.len() as f64;
        prop_assert!((evaluation.mean_latency_us - simulated_us).abs() <= 1e-9 * simulated_us,
            "formulas {} us, devices {} us", evaluation.mean_latency_us, simulated_us);
        prop_assert_eq!(evaluation.blocks_written, written_to_tiers);
    }
}
