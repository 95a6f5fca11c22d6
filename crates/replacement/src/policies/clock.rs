//! CLOCK (F. J. Corbató, *A paging experiment with the Multics system*, MIT 1968): FIFO with a
//! second chance. Each block has a counter of `bits` bits, 0 when it comes in; a hit adds one. The
//! hand looks at the oldest block: if its count is not 0, the count is reduced by one and the block
//! moves to the young end; otherwise the block is evicted. libCacheSim's `clock` (one bit) and
//! `fifo-reinsertion` are the same.
//!
//! The search terminates: each step reduces a count of at most 2^bits - 1, so the hand passes each
//! node at most that many times. It also passes at most `hand_steps_max` nodes in one call, then
//! evicts the node that it has reached. Counts that it reduced are not restored with a block.
//!
//! Performs badly on loops, as LRU does.

use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const BITS: Parameter = Parameter {
    name: "bits",
    unit: "bits",
    default: 1,
    min: 1,
    max: 8,
    meaning: "size of the use counter; with 1, the policy is the CLOCK of the paper",
};

/// See the module.
#[derive(Debug)]
pub struct Clock {
    links: Links,
    queue: List,
    counts: Box<[u8]>,
    count_max: u8,
    hand_steps_max: u32,
    steps: u64,
}

impl Documented for Clock {
    const ABOUT: About = About {
        source: "Corbató, A paging experiment with the Multics system, 1968",
        weakness: "performs badly on loops larger than the cache",
        tiers: Tier::ALL,
        parameters: &[BITS, Parameter::HAND_STEPS_MAX],
    };
}

impl Policy for Clock {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        Clock {
            links: Links::new(nodes),
            queue: List::EMPTY,
            counts: vec![0; nodes as usize].into(),
            count_max: ((1_u32 << parameters.value(&BITS)) - 1) as u8,
            hand_steps_max: parameters.value(&Parameter::HAND_STEPS_MAX),
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.links.is_linked(node), "node {node} is not resident");
        let count = &mut self.counts[node as usize];
        *count += u8::from(*count < self.count_max);
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        self.counts[node as usize] = 0;
        self.links.push_front(&mut self.queue, node);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        for _ in 0..self.hand_steps_max {
            let node = self.queue.back()?;
            let count = &mut self.counts[node as usize];
            if *count == 0 {
                break;
            }
            *count -= 1;
            self.links.move_to_front(&mut self.queue, node);
            self.steps += 1;
        }
        self.links.pop_back(&mut self.queue)
    }

    fn restore(&mut self, node: u32) {
        self.links.push_back(&mut self.queue, node);
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.links.remove(&mut self.queue, node);
        }
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        after.map_or(self.queue.back(), |node| self.links.ahead(node))
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn metadata_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.links.memory_bytes() + size_of_val(&*self.counts) as u64
    }

    fn steps_max(parameters: &Parameters) -> u64 {
        parameters.value(&Parameter::HAND_STEPS_MAX).into()
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
