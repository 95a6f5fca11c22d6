//! Least recently used (R. L. Mattson et al., *Evaluation techniques for storage hierarchies*, IBM
//! Systems Journal 1970): a list ordered by last use.
//!
//! Performs badly on scans and on loops larger than the cache, where every block is evicted just
//! before it is used again. LRU is the reference for every formula in `plan`.

use crate::links::{Links, List};
use crate::parameters::Parameters;
use crate::policy::{About, Documented, Hint, Policy, Tier};

/// See the module.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    list: List,
}

impl Documented for Lru {
    const ABOUT: About = About {
        source: "Mattson et al., IBM Systems Journal 1970",
        weakness: "performs badly on scans and on loops larger than the cache",
        tiers: Tier::ALL,
        parameters: &[],
    };
}

impl Policy for Lru {
    fn new(nodes: u32, _capacity: u32, _parameters: &Parameters) -> Self {
        Lru { links: Links::new(nodes), list: List::EMPTY }
    }

    fn on_access(&mut self, node: u32) {
        self.links.move_to_front(&mut self.list, node);
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        self.links.push_front(&mut self.list, node);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        self.links.pop_back(&mut self.list)
    }

    fn restore(&mut self, node: u32) {
        self.links.push_back(&mut self.list, node);
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.links.remove(&mut self.list, node);
        }
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    fn prefetch(&self, node: u32, near: bool) {
        self.links.prefetch(node, near);
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        after.map_or(self.list.back(), |node| self.links.ahead(node))
    }

    fn len(&self) -> u32 {
        self.list.len()
    }

    fn metadata_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.links.memory_bytes()
    }
}
