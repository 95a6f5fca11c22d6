//! Stochastic multi-queue: spots in levels, modelled on the hotspot queue of dm-cache in Linux.
//!
//! A spot is 16 adjacent blocks. The table has one spot for every four blocks of the history, so it
//! covers four times as many blocks as the history.
//!
//! A spot that is used moves up one or more levels. If the level that it enters is full, the oldest
//! spot there moves down to the level that it left. So all levels but the lowest keep their size,
//! spots that are used more often rise above the others, and no counts need to age. A new spot
//! enters the lowest level. When the table is full, the oldest spot of the lowest level that is not
//! empty is forgotten.
//!
//! Blocks of spots in the upper levels enter flash. The number of levels that enter, and the number
//! of levels by which an access moves a spot up, depend on the share of accesses in the last
//! [period](Smq::period) that found their spot in the upper quarter of the levels:
//!
//! | share | levels that enter | levels up |
//! | --- | --- | --- |
//! | a half or more | 32 | 1 |
//! | an eighth or more | 16 | 2 |
//! | less | 8 | 4 |

use crate::hash::mix;
use crate::links::{Links, List};

const NONE: u32 = u32::MAX;
/// log2 of the blocks of a spot.
const SPOT_SHIFT: u32 = 4;
/// Number of blocks of the history for each spot.
const BLOCKS_PER_SPOT: u32 = 4;
/// Number of levels, as in dm-cache.
const LEVELS: usize = 64;
/// The level from which on an access counts as foreseen.
const FORESEEN: usize = LEVELS * 3 / 4;

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    /// The next node in the same bucket.
    chain: u32,
    level: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Smq {
    links: Links,
    levels: [List; LEVELS],
    free: List,
    nodes: Box<[Node]>,
    buckets: Box<[u32]>,
    /// Number of spots in a level from which on a spot that enters displaces another.
    share: u32,
    /// Number of accesses, and of foreseen ones, in this period.
    accesses: u32,
    foreseen: u32,
    /// The lowest level that enters, and the number of levels by which an access moves a spot up.
    from: usize,
    jump: usize,
}

impl Smq {
    /// A table for a history of `history` blocks.
    pub fn new(history: u32) -> Smq {
        let size = history.div_ceil(BLOCKS_PER_SPOT);
        let mut links = Links::new(size);
        let mut free = List::EMPTY;
        (0..size).rev().for_each(|node| links.push_front(&mut free, node));
        Smq {
            links,
            levels: [List::EMPTY; LEVELS],
            free,
            nodes: vec![Node { hash: 0, chain: NONE, level: 0 }; size as usize].into(),
            buckets: vec![NONE; (size as usize).next_power_of_two()].into(),
            share: size.div_ceil(LEVELS as u32),
            accesses: 0,
            foreseen: 0,
            from: LEVELS / 2,
            jump: 1,
        }
    }

    /// Number of accesses after which `from` and `jump` are adjusted.
    fn period(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Records a client's access to a block.
    pub fn access(&mut self, key: u64) {
        let hash = mix(key >> SPOT_SHIFT);
        let level = match self.find(hash) {
            Some(node) => self.rise(node),
            None => self.begin(hash),
        };
        self.accesses += 1;
        self.foreseen += u32::from(level >= FORESEEN);
        if self.accesses >= self.period() {
            let eighths = u64::from(self.foreseen) * 8 / u64::from(self.accesses);
            let enter;
            (enter, self.jump) = match eighths {
                0 => (LEVELS / 8, 4),
                1..=3 => (LEVELS / 4, 2),
                _ => (LEVELS / 2, 1),
            };
            self.from = LEVELS - enter;
            (self.accesses, self.foreseen) = (0, 0);
        }
    }

    /// Whether the level of the block's spot enters flash.
    pub fn admits(&self, key: u64) -> bool {
        let level = self.find(mix(key >> SPOT_SHIFT)).map(|node| self.nodes[node as usize].level);
        level.is_some_and(|level| usize::from(level) >= self.from)
    }

    pub fn metadata_bytes(&self) -> u64 {
        let own = size_of_val(&*self.nodes) + size_of_val(&*self.buckets);
        self.links.memory_bytes() + own as u64
    }

    /// Moves up a known spot that is used; returns the level that it was in.
    fn rise(&mut self, node: u32) -> usize {
        let from = usize::from(self.nodes[node as usize].level);
        let to = (from + self.jump).min(LEVELS - 1);
        self.links.remove(&mut self.levels[from], node);
        if to > from
            && self.levels[to].len() >= self.share
            && let Some(oldest) = self.links.pop_back(&mut self.levels[to])
        {
            self.put(oldest, from);
        }
        self.put(node, to);
        from
    }

    fn put(&mut self, node: u32, level: usize) {
        self.nodes[node as usize].level = level as u8;
        self.links.push_front(&mut self.levels[level], node);
    }

    /// Adds a spot that is new or was forgotten; returns its level.
    fn begin(&mut self, hash: u64) -> usize {
        if self.free.is_empty() {
            self.forget_one();
        }
        let node = self.links.pop_front(&mut self.free).expect("room was made");
        let bucket = self.bucket(hash);
        let chain = core::mem::replace(&mut self.buckets[bucket], node);
        self.nodes[node as usize] = Node { hash, chain, level: 0 };
        self.put(node, 0);
        0
    }

    fn forget_one(&mut self) {
        let lowest = self.levels.iter().position(|level| !level.is_empty());
        let lowest = lowest.expect("all spots are in some level");
        let node = self.links.pop_back(&mut self.levels[lowest]).expect("it is not empty");
        let Node { hash, chain, .. } = self.nodes[node as usize];
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == node {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.nodes[before as usize].chain != node {
                before = self.nodes[before as usize].chain;
            }
            self.nodes[before as usize].chain = chain;
        }
        self.links.push_front(&mut self.free, node);
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash & (self.buckets.len() as u64 - 1)) as usize
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let mut node = self.buckets[self.bucket(hash)];
        while node != NONE && self.nodes[node as usize].hash != hash {
            node = self.nodes[node as usize].chain;
        }
        (node != NONE).then_some(node)
    }
}
