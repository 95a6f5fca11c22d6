//! First in, first out: a queue in order of arrival.
//!
//! Performs badly if a few blocks are used often: they leave as soon as all others. A hit costs
//! nothing.

use crate::links::{Links, List};
use crate::parameters::Parameters;
use crate::policy::{About, Documented, Hint, Policy, Tier};

/// See the module.
#[derive(Debug)]
pub struct Fifo {
    links: Links,
    queue: List,
}

impl Documented for Fifo {
    const ABOUT: About = About {
        source: "folklore; compared in Belady, IBM Systems Journal 1966",
        weakness: "performs badly if a few blocks are used often",
        tiers: Tier::ALL,
        parameters: &[],
    };
}

impl Policy for Fifo {
    fn new(nodes: u32, _capacity: u32, _parameters: &Parameters) -> Self {
        Fifo { links: Links::new(nodes), queue: List::EMPTY }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.links.is_linked(node), "node {node} is not resident");
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        self.links.push_front(&mut self.queue, node);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
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
        size_of::<Self>() as u64 + self.links.memory_bytes()
    }
}
