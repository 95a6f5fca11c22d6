//! 2Q, the full version (T. Johnson and D. Shasha, *2Q: a low overhead high performance buffer
//! management replacement algorithm*, VLDB 1994): new blocks enter A1in, a FIFO queue. A1out
//! remembers the blocks that left it, keys only. A block that comes back while it is remembered
//! enters Am, an LRU list. A hit in A1in moves nothing: several uses in quick succession count as
//! one.
//!
//! Kin is 25 % and Kout 50 % of the capacity, as section 3 of the paper proposes and libCacheSim
//! does. The victim comes from A1in while that holds more than Kin, otherwise from Am. (Blocks
//! evicted from Am leave no ghost.)
//!
//! Performs badly on blocks whose uses all come before they leave A1in, and on second uses after
//! A1out has forgotten the first.

use super::s3_fifo::percent_of;
use crate::ghosts::{Ghosts, TRIM_MAX};
use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const IN: Parameter = Parameter {
    name: "in_percent",
    unit: "percent of the capacity",
    default: 25,
    min: 1,
    max: 99,
    meaning: "Kin, size of the queue for new blocks",
};
const OUT: Parameter = Parameter {
    name: "out_percent",
    unit: "percent of the capacity",
    default: 50,
    min: 0,
    max: 200,
    meaning: "Kout, number of blocks whose keys are kept after they leave the queue",
};

/// See the module.
#[derive(Debug)]
pub struct TwoQ {
    links: Links,
    /// A1in and Am.
    incoming: List,
    main: List,
    /// Whether the node is in `main`, or was when it was evicted.
    in_main: Box<[bool]>,
    keys: Box<[u64]>,
    /// A1out.
    ghosts: Ghosts<1>,
    capacity: u32,
    in_percent: u32,
    out_percent: u32,
    steps: u64,
}

impl TwoQ {
    fn main_first(&self) -> bool {
        let in_max = percent_of(self.capacity, self.in_percent);
        self.incoming.len() <= in_max && !self.main.is_empty()
    }
}

impl Documented for TwoQ {
    const ABOUT: About = About {
        source: "Johnson and Shasha, VLDB 1994",
        weakness: "performs badly on blocks that are used often, but in short bursts",
        tiers: Tier::ALL,
        parameters: &[IN, OUT],
    };
}

impl Policy for TwoQ {
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
        let out_percent = parameters.value(&OUT);
        TwoQ {
            links: Links::new(nodes),
            incoming: List::EMPTY,
            main: List::EMPTY,
            in_main: vec![false; nodes as usize].into(),
            keys: vec![0; nodes as usize].into(),
            ghosts: Ghosts::new(percent_of(capacity, out_percent)),
            capacity,
            in_percent: parameters.value(&IN),
            out_percent,
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.links.is_linked(node), "node {node} is not resident");
        if self.in_main[node as usize] {
            self.links.move_to_front(&mut self.main, node);
        }
    }

    fn insert(&mut self, node: u32, key: u64, _hint: Hint) {
        let is_ghost = self.ghosts.remove(key).is_some();
        self.in_main[node as usize] = is_ghost;
        self.keys[node as usize] = key;
        let list = if is_ghost { &mut self.main } else { &mut self.incoming };
        self.links.push_front(list, node);
        let ghosts_max = percent_of(self.capacity, self.out_percent);
        self.steps += u64::from(self.ghosts.trim(0, ghosts_max));
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        if self.main_first() {
            return self.links.pop_back(&mut self.main);
        }
        let node = self.links.pop_back(&mut self.incoming)?;
        self.ghosts.push(0, self.keys[node as usize]);
        Some(node)
    }

    fn restore(&mut self, node: u32) {
        if self.in_main[node as usize] {
            self.links.push_back(&mut self.main, node);
        } else {
            self.ghosts.remove(self.keys[node as usize]);
            self.links.push_back(&mut self.incoming, node);
        }
    }

    fn remove(&mut self, node: u32) {
        if !self.links.is_linked(node) {
            self.ghosts.remove(self.keys[node as usize]);
        } else if self.in_main[node as usize] {
            self.links.remove(&mut self.main, node);
        } else {
            self.links.remove(&mut self.incoming, node);
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.ghosts.reserve(percent_of(capacity, self.out_percent));
    }

    fn prefetch(&self, node: u32, near: bool) {
        self.links.prefetch(node, near);
    }

    fn prefetch_absent(&self, key: u64, near: bool) {
        if near { self.ghosts.prefetch_entry(key) } else { self.ghosts.prefetch(key) }
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let main_first = self.main_first();
        let (first, then) =
            if main_first { (&self.main, &self.incoming) } else { (&self.incoming, &self.main) };
        let Some(after) = after else { return first.back().or(then.back()) };
        let in_first = self.in_main[after as usize] == main_first;
        self.links.ahead(after).or_else(|| then.back().filter(|_| in_first))
    }

    fn len(&self) -> u32 {
        self.incoming.len() + self.main.len()
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&*self.in_main) + size_of_val(&*self.keys);
        own as u64 + self.links.memory_bytes() + self.ghosts.memory_bytes()
    }

    fn steps_max(_parameters: &Parameters) -> u64 {
        TRIM_MAX.into()
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
