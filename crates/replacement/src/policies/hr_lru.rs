//! HR LRU (Hazan et al.): LRU, but a block enters at the position that the hit ratio of its chunk gives
//! it. The position comes with the [`Hint`]; [`PositionRule::HitRatio`](crate::PositionRule) computes it from
//! these parameters. `sub_queues.rs` is the queue. The paper models the read cache only.
//!
//! Does badly where blocks of one chunk are used differently.

use super::sub_queues::{MIN_POSITION, SUB_QUEUES, SubQueues};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const MIN_HR: Parameter = Parameter {
    name: "min_hit_ratio_percent",
    unit: "percent",
    default: 10,
    min: 0,
    max: 100,
    meaning: "MinHR: added to the hit ratio of a chunk, so that a new one has a chance",
};

/// See the module.
#[derive(Debug)]
pub struct HrLru(SubQueues);

impl Documented for HrLru {
    const ABOUT: About = About {
        source: "Hazan et al., Caching according to use and QoS requirements",
        weakness: "does badly where blocks of one chunk are used differently",
        tiers: Tier::ALL,
        parameters: &[SUB_QUEUES, MIN_POSITION, MIN_HR],
    };
}

impl Policy for HrLru {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        HrLru(SubQueues::new(nodes, parameters.value(&SUB_QUEUES)))
    }

    fn on_access(&mut self, node: u32) {
        self.0.touch(node);
    }

    fn insert(&mut self, node: u32, _key: u64, hint: Hint) {
        self.0.insert(node, hint.position);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        self.0.evict()
    }

    fn restore(&mut self, node: u32) {
        self.0.restore(node);
    }

    fn remove(&mut self, node: u32) {
        self.0.remove(node);
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        self.0.likely_victim(after)
    }

    fn len(&self) -> u32 {
        self.0.len()
    }

    fn metadata_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.0.memory_bytes()
    }

    fn steps_max(parameters: &Parameters) -> u64 {
        parameters.value(&SUB_QUEUES).into()
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }
}
