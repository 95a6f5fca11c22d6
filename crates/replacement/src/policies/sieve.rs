//! SIEVE (Y. Zhang et al., *SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for
//! web caches*, NSDI 2024): new blocks enter at the head of a queue, not visited; a hit marks a
//! block as visited and moves nothing. The hand goes from the tail to the head, clears the marks of
//! the blocks that it passes, and evicts the first block without a mark. It stays there.
//!
//! The search terminates: the hand clears the mark of every node that it passes, so it finds one
//! without a mark after one round at most. It passes at most `hand_steps_max` nodes in one call,
//! then evicts the node that it has reached. Marks that it cleared are not set again when a block
//! is restored.
//!
//! Performs badly on scans and loops, which are common in block workloads, as its authors say: a
//! new block can be the first that the hand reaches.

use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

/// See the module.
#[derive(Debug)]
pub struct Sieve {
    links: Links,
    queue: List,
    /// Where the next eviction begins; `None` for the tail.
    hand: Option<u32>,
    visited: Box<[bool]>,
    hand_steps_max: u32,
    steps: u64,
}

impl Sieve {
    fn take(&mut self, node: u32) {
        if self.hand == Some(node) {
            self.hand = self.links.ahead(node);
        }
        self.links.remove(&mut self.queue, node);
    }
}

impl Documented for Sieve {
    const ABOUT: About = About {
        source: "Zhang et al., NSDI 2024",
        weakness: "performs badly on block workloads with scans and loops",
        tiers: Tier::ALL,
        parameters: &[Parameter::HAND_STEPS_MAX],
    };
}

impl Policy for Sieve {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        Sieve {
            links: Links::new(nodes),
            queue: List::EMPTY,
            hand: None,
            visited: vec![false; nodes as usize].into(),
            hand_steps_max: parameters.value(&Parameter::HAND_STEPS_MAX),
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.links.is_linked(node), "node {node} is not resident");
        self.visited[node as usize] = true;
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        self.visited[node as usize] = false;
        self.links.push_front(&mut self.queue, node);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        let mut node = self.hand.or(self.queue.back())?;
        for _ in 0..self.hand_steps_max {
            if !core::mem::take(&mut self.visited[node as usize]) {
                break;
            }
            node = self.links.ahead(node).or(self.queue.back())?;
            self.steps += 1;
        }
        self.hand = Some(node);
        self.take(node);
        Some(node)
    }

    /// Puts the node behind the hand, where it was. If the hand has passed the head since, or the
    /// block was at the head itself, puts it at the head.
    fn restore(&mut self, node: u32) {
        match self.hand {
            Some(hand) => self.links.insert_behind(&mut self.queue, hand, node),
            None => self.links.push_front(&mut self.queue, node),
        }
        self.hand = Some(node);
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.take(node);
        }
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let first = self.hand.or(self.queue.back())?;
        let Some(after) = after else { return Some(first) };
        // Ends after one round.
        let next = self.links.ahead(after).or(self.queue.back())?;
        (next != first).then_some(next)
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn metadata_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.links.memory_bytes() + size_of_val(&*self.visited) as u64
    }

    fn steps_max(parameters: &Parameters) -> u64 {
        parameters.value(&Parameter::HAND_STEPS_MAX).into()
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
