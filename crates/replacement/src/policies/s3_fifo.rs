//! S3-FIFO (J. Yang et al., *FIFO queues are all you need for cache eviction*, SOSP 2023): a small
//! FIFO queue for new blocks, a main one, and the ghosts of blocks evicted from the small one. Each
//! block has a count from 0 to 3, 0 when it comes in; a hit adds one.
//!
//! - A new block enters the small queue, or the main queue if its ghost exists.
//! - At the end of the small queue, a block that was used twice moves to the main queue with a
//!   count of 0; any other block is evicted and leaves a ghost.
//! - At the end of the main queue, the count of a block whose count is not 0 is reduced by one and
//!   the block moves to the front; any other block is evicted and leaves no ghost.
//! - The victim comes from the main queue if that is larger than its share, otherwise from the
//!   small one.
//!
//! The paper's Algorithm 1 also evicts from the main queue while it moves a block there, so that
//! one call can evict several; libCacheSim lets the main queue grow beyond its share until the next
//! eviction, and so does this module. All agree on the shares (10 %, 90 %, as many ghosts as the
//! main queue has blocks), on the limit of 3 and on *two* uses for a block to move.
//!
//! The search terminates: each step takes a block out of the small queue or reduces a count of at
//! most 3. A call takes at most `hand_steps_max` steps, then evicts the block that it has reached.
//! Blocks that it moved stay where they are when the victim is restored.
//!
//! Performs badly if the second use of a block comes after it has left the small queue and its
//! ghost is gone, and on blocks that are used exactly twice.

use crate::ghosts::{Ghosts, TRIM_MAX};
use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const SMALL: Parameter = Parameter {
    name: "small_percent",
    unit: "percent of the capacity",
    default: 10,
    min: 1,
    max: 99,
    meaning: "size of the queue for new blocks",
};
const GHOST: Parameter = Parameter {
    name: "ghost_percent",
    unit: "percent of the capacity",
    default: 90,
    min: 0,
    max: 200,
    meaning: "number of blocks whose keys are kept after they leave the small queue",
};
const USES: Parameter = Parameter {
    name: "uses_to_move",
    unit: "hits",
    default: 2,
    min: 1,
    max: 3,
    meaning: "hits in the small queue after which a block moves to the main queue",
};

const COUNT_MAX: u8 = 3;
/// Next to the count: the block is in the main queue, or was when it was evicted.
const IN_MAIN: u8 = 4;

/// See the module.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    /// The count of each node, and [`IN_MAIN`].
    states: Box<[u8]>,
    keys: Box<[u64]>,
    ghosts: Ghosts<1>,
    capacity: u32,
    small_percent: u32,
    ghost_percent: u32,
    uses_to_move: u8,
    hand_steps_max: u32,
    steps: u64,
}

impl S3Fifo {
    fn main_max(&self) -> u32 {
        self.capacity - percent_of(self.capacity, self.small_percent).max(1).min(self.capacity)
    }

    fn list(&mut self, node: u32) -> &mut List {
        match self.states[node as usize] & IN_MAIN {
            0 => &mut self.small,
            _ => &mut self.main,
        }
    }
}

/// `percent` of `n`, rounded down.
pub(super) fn percent_of(n: u32, percent: u32) -> u32 {
    (u64::from(n) * u64::from(percent) / 100) as u32
}

impl Documented for S3Fifo {
    const ABOUT: About = About {
        source: "Yang et al., SOSP 2023",
        weakness: "performs badly on blocks that are used exactly twice",
        tiers: Tier::ALL,
        parameters: &[SMALL, GHOST, USES, Parameter::HAND_STEPS_MAX],
    };
}

impl Policy for S3Fifo {
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
        let ghost_percent = parameters.value(&GHOST);
        S3Fifo {
            links: Links::new(nodes),
            small: List::EMPTY,
            main: List::EMPTY,
            states: vec![0; nodes as usize].into(),
            keys: vec![0; nodes as usize].into(),
            ghosts: Ghosts::new(percent_of(capacity, ghost_percent)),
            capacity,
            small_percent: parameters.value(&SMALL),
            ghost_percent,
            uses_to_move: parameters.value(&USES) as u8,
            hand_steps_max: parameters.value(&Parameter::HAND_STEPS_MAX),
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.links.is_linked(node), "node {node} is not resident");
        let state = &mut self.states[node as usize];
        *state += u8::from(*state & COUNT_MAX < COUNT_MAX);
    }

    fn insert(&mut self, node: u32, key: u64, _hint: Hint) {
        let is_ghost = self.ghosts.remove(key).is_some();
        self.states[node as usize] = if is_ghost { IN_MAIN } else { 0 };
        self.keys[node as usize] = key;
        let list = if is_ghost { &mut self.main } else { &mut self.small };
        self.links.push_front(list, node);
        let ghosts_max = percent_of(self.capacity, self.ghost_percent);
        self.steps += u64::from(self.ghosts.trim(0, ghosts_max));
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        let mut left = self.hand_steps_max;
        if self.main.len() <= self.main_max() {
            while let Some(node) = self.small.back() {
                let state = self.states[node as usize];
                self.links.remove(&mut self.small, node);
                if state < self.uses_to_move || left == 0 {
                    self.ghosts.push(0, self.keys[node as usize]);
                    return Some(node);
                }
                self.states[node as usize] = IN_MAIN;
                self.links.push_front(&mut self.main, node);
                left -= 1;
                self.steps += 1;
            }
        }
        while let Some(node) = self.main.back() {
            let state = &mut self.states[node as usize];
            if *state == IN_MAIN || left == 0 {
                self.links.remove(&mut self.main, node);
                return Some(node);
            }
            *state -= 1;
            self.links.move_to_front(&mut self.main, node);
            left -= 1;
            self.steps += 1;
        }
        // With a capacity of 0 or 1, the main queue can be empty and yet larger than its share.
        let node = self.links.pop_back(&mut self.small)?;
        self.ghosts.push(0, self.keys[node as usize]);
        Some(node)
    }

    fn restore(&mut self, node: u32) {
        if self.states[node as usize] & IN_MAIN == 0 {
            self.ghosts.remove(self.keys[node as usize]);
            self.links.push_back(&mut self.small, node);
        } else {
            self.links.push_back(&mut self.main, node);
        }
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            let mut list = core::mem::take(self.list(node));
            self.links.remove(&mut list, node);
            *self.list(node) = list;
        } else {
            self.ghosts.remove(self.keys[node as usize]);
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.ghosts.reserve(percent_of(capacity, self.ghost_percent));
    }

    fn prefetch_absent(&self, key: u64, near: bool) {
        if near { self.ghosts.prefetch_entry(key) } else { self.ghosts.prefetch(key) }
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let main_first = self.main.len() > self.main_max() || self.small.is_empty();
        let (first, then) =
            if main_first { (&self.main, &self.small) } else { (&self.small, &self.main) };
        let Some(after) = after else { return first.back().or(then.back()) };
        let in_first = (self.states[after as usize] & IN_MAIN != 0) == main_first;
        self.links.ahead(after).or_else(|| then.back().filter(|_| in_first))
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&*self.states) + size_of_val(&*self.keys);
        own as u64 + self.links.memory_bytes() + self.ghosts.memory_bytes()
    }

    fn steps_max(parameters: &Parameters) -> u64 {
        u64::from(parameters.value(&Parameter::HAND_STEPS_MAX).max(TRIM_MAX))
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
