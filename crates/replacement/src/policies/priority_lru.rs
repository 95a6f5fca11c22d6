//! Priority LRU (Hazan et al.): LRU, but where a block enters follows from the priority of its volume and
//! the hit ratio of its chunk. The position comes with the [`Hint`];
//! [`PositionRule::Priority`](crate::PositionRule) computes it from these parameters. `sub_queues.rs` is the queue.
//!
//! Does badly for volumes of low priority, by intention: the hit ratio of all together may fall.

use super::sub_queues::{MIN_POSITION, SUB_QUEUES, SubQueues};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const WEIGHT: Parameter = Parameter {
    name: "priority_weight_percent",
    unit: "percent of the queue",
    default: 15,
    min: 0,
    max: 100,
    meaning: "priorityWeight: how much higher each class begins than the one below it",
};
const CLASSES: Parameter = Parameter {
    name: "classes",
    unit: "classes",
    default: 3,
    min: 1,
    max: 255,
    meaning: "classes of priority; class 1 is the highest",
};

/// See the module.
#[derive(Debug)]
pub struct PriorityLru(SubQueues);

impl Documented for PriorityLru {
    const ABOUT: About = About {
        source: "Hazan et al., Caching according to use and QoS requirements",
        weakness: "lets volumes of low priority pay for those of high priority",
        tiers: Tier::ALL,
        parameters: &[SUB_QUEUES, MIN_POSITION, WEIGHT, CLASSES],
    };
}

impl Policy for PriorityLru {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        PriorityLru(SubQueues::new(nodes, parameters.value(&SUB_QUEUES)))
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
