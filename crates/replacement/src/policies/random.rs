//! Random replacement: evicts any resident block, each with the same probability. The random
//! numbers derive from the seed (SplitMix64).
//!
//! The baseline that a policy has to beat. It performs better than LRU on loops that are larger
//! than the cache.

use crate::hash::mix;
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const SEED: Parameter = Parameter {
    name: "seed",
    unit: "number",
    default: 1,
    min: 0,
    max: u32::MAX,
    meaning: "seed for the random choice of blocks",
};

const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Random {
    /// The resident nodes, in any order.
    resident: Vec<u32>,
    /// The index of each node in `resident`, or [`NONE`].
    places: Box<[u32]>,
    /// The state of the generator: the seed in the upper half, plus the number of draws.
    drawn: u64,
}

impl Random {
    /// The index in `resident` that the next random number selects.
    fn draw(&self) -> Option<usize> {
        let count = self.resident.len() as u64;
        // The high half of a product: uniform to within 2^-32.
        (count > 0).then(|| ((u128::from(mix(self.drawn)) * u128::from(count)) >> 64) as usize)
    }
}

impl Documented for Random {
    const ABOUT: About = About {
        source: "folklore; compared in Belady, IBM Systems Journal 1966",
        weakness: "performs badly if recent use predicts future use",
        tiers: Tier::ALL,
        parameters: &[SEED],
    };
}

impl Policy for Random {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        Random {
            resident: Vec::with_capacity(nodes as usize),
            places: vec![NONE; nodes as usize].into(),
            drawn: u64::from(parameters.value(&SEED)) << 32,
        }
    }

    fn on_access(&mut self, node: u32) {
        debug_assert!(self.places[node as usize] != NONE, "node {node} is not resident");
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        debug_assert!(self.places[node as usize] == NONE, "node {node} is resident already");
        self.places[node as usize] = self.resident.len() as u32;
        self.resident.push(node);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        let node = self.resident[self.draw()?];
        self.drawn += 1;
        self.remove(node);
        Some(node)
    }

    /// All blocks are equal, so any place will do.
    fn restore(&mut self, node: u32) {
        self.insert(node, 0, Hint::default());
    }

    fn remove(&mut self, node: u32) {
        let place = core::mem::replace(&mut self.places[node as usize], NONE);
        if place != NONE {
            self.resident.swap_remove(place as usize);
            if let Some(&moved) = self.resident.get(place as usize) {
                self.places[moved as usize] = place;
            }
        }
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    /// The next victim is known; those after it are not.
    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        match after {
            None => self.draw().map(|place| self.resident[place]),
            Some(_) => None,
        }
    }

    fn len(&self) -> u32 {
        self.resident.len() as u32
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + self.resident.capacity() * size_of::<u32>();
        (own + size_of_val(&*self.places)) as u64
    }
}
