//! Goal: each replacement policy orders the cells of the slots layout as its definition says: it
//! learns which blocks leave memory, which return to it, and which are evicted; and a block is
//! promoted to memory at the read that the configuration sets.
//!
//! Method: compare the hits of both tiers with a naive cache of two levels, an LRU list in front of
//! a flash tier of cells, on requests of one block each. Both use the same policy code, which has
//! its own oracles in `forebay_replacement`.

use std::collections::{HashMap, VecDeque};

use crate::common::{scenario_with, zipf};
use forebay_block::{Op, Request};
use forebay_replacement::{Hint, Kind, Parameters, Policy, Replacement, Tier};
use forebay_simulate::{Options, Pacing, simulate};

/// A cache of two exclusive levels. Blocks and the policy's nodes are identified by block number.
struct Naive {
    memory: VecDeque<u32>,
    memory_blocks: usize,
    policy: Replacement,
    flash_blocks: usize,
    /// Blocks that are only on flash, and how often each was accessed there.
    flash: HashMap<u32, u8>,
    /// The number of the read that promotes a block to memory.
    promote_after: u8,
    /// Blocks that the policy keeps in its order: those in `flash`, and some that are in memory.
    ordered: HashMap<u32, ()>,
    remembers: bool,
    hits: u64,
    /// Hits after which the block stayed on flash.
    stayed: u64,
}

impl Naive {
    fn new(
        (memory_blocks, flash_blocks): (usize, usize),
        parameters: &Parameters,
        promote_after: u8,
    ) -> Naive {
        let plain = [Kind::Lru, Kind::Fifo, Kind::Random];
        Naive {
            memory: VecDeque::new(),
            memory_blocks,
            policy: Replacement::new(1 << 16, flash_blocks as u32, parameters),
            flash_blocks,
            flash: HashMap::new(),
            promote_after,
            ordered: HashMap::new(),
            remembers: !plain.contains(&parameters.kind()),
            hits: 0,
            stayed: 0,
        }
    }

    fn access(&mut self, block: u32, write: bool) {
        if let Some(at) = self.memory.iter().position(|&b| b == block) {
            self.hits += 1;
            self.memory.remove(at);
            return self.memory.push_front(block);
        }
        if let Some(readings) = self.flash.get_mut(&block) {
            self.hits += 1;
            *readings += 1;
            if !write && *readings < self.promote_after {
                self.stayed += 1;
                return self.policy.on_access(block);
            }
            self.flash.remove(&block);
            if !self.remembers {
                self.policy.remove(block);
                self.ordered.remove(&block);
            }
        }
        if self.memory.len() == self.memory_blocks {
            let victim = self.memory.pop_back().expect("memory is full");
            self.enter_flash(victim);
        }
        self.memory.push_front(block);
    }

    fn enter_flash(&mut self, block: u32) {
        match self.ordered.insert(block, ()) {
            Some(()) => self.policy.on_access(block),
            None => self.policy.insert(block, block.into(), Hint::default()),
        }
        self.flash.insert(block, 0);
        while self.flash.len() > self.flash_blocks {
            let victim = self.policy.evict(None).expect("flash is not empty");
            self.ordered.remove(&victim);
            self.flash.remove(&victim);
        }
    }
}

fn compare(requests: &[Request], memory: u32, size: &str, (kind, promote_after): (Kind, u8)) {
    let line = format!("layout = 'slots'\npromote_after = {promote_after}");
    let mut scenario = scenario_with(memory, Some(size), "write-through", &line);
    // (Enough spare frames: while a write waits for a frame, the policy forgets its block.)
    scenario.cache.spare_frames = 2048;
    let parameters = Parameters::new(kind);
    let flash = scenario.cache.flash.as_mut().expect("there is flash");
    flash.slots_mut().expect("the slots layout").cells = parameters;
    let sizes = (memory as usize, flash.blocks() as usize);
    let mut naive = Naive::new(sizes, &parameters, flash.promote_after);
    requests.iter().for_each(|r| naive.access((r.offset / 4096) as u32, r.op == Op::Write));
    let options = Options { pacing: Pacing::Untimed, ..Options::default() };
    let result = simulate(&scenario, requests.iter().copied(), &options).unwrap();
    let hits = result.run.cache.unwrap().hits;
    let found = hits.tier1.sum() + hits.tier2.sum() - result.events.flash_rescued;
    let stayed = result.events.read_through;
    let what = format!("{kind}, {promote_after}, {memory} + {size}: {found}, {stayed}");
    if promote_after == 1 {
        assert_eq!((found, stayed), (naive.hits, naive.stayed), "{what}");
    }
    // (A block that is requested again before its batch is written is not read from flash.)
    assert!(found.abs_diff(naive.hits) <= naive.hits / 200, "{what} against {}", naive.hits);
    let most = 2 * result.events.rescued;
    assert!(stayed.abs_diff(naive.stayed) <= most, "{what} against {}", naive.stayed);
}

#[test]
fn each_policy_orders_the_cells_as_a_naive_cache_does() {
    for writes in [u64::MAX, 4] {
        let requests = zipf(60_000, 30_000, writes, 23);
        for &kind in Kind::ALL.iter().filter(|kind| kind.orders(Tier::Slots)) {
            // (One more block in the order changes all random choices.)
            for &promote_after in if kind == Kind::Random { &[1][..] } else { &[1, 2, 5] } {
                compare(&requests, 64, "4MiB", (kind, promote_after));
                compare(&requests, 1000, "16MiB", (kind, promote_after));
            }
        }
    }
}
