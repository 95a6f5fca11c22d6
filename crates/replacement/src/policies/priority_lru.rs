//! Priority LRU (Hazan et al.): LRU, but the priority of a block's volume and the hit ratio of its
//! chunk determine where the block enters. The position comes with the [`Hint`](crate::Hint);
//! [`Positions`](crate::Positions) computes it from these parameters. `sub_queues.rs` is the queue.
//!
//! Performs badly for volumes of low priority, by design: the hit ratio of all volumes together may
//! fall.

use super::sub_queues::{CHUNK, INTERVAL, MIN_POSITION, Positioned, SUB_QUEUES};
use crate::parameters::Parameter;
use crate::policy::{About, Documented, Tier};

const WEIGHT: Parameter = Parameter {
    name: "priority_weight_percent",
    unit: "percent of the queue",
    default: 15,
    min: 0,
    max: 100,
    meaning: "priorityWeight: how much farther from eviction the blocks of a class enter than those of the class below",
};
const CLASSES: Parameter = Parameter {
    name: "classes",
    unit: "classes",
    default: 3,
    min: 1,
    max: 255,
    meaning: "number of priority classes; class 1 is the highest",
};

/// Marks the policy whose positions follow from the priority of the volume, too.
#[derive(Debug)]
pub struct ByPriority;

/// See the module.
pub type PriorityLru = Positioned<ByPriority>;

impl Documented for PriorityLru {
    const ABOUT: About = About {
        source: "Hazan et al., Caching according to use and QoS requirements",
        weakness: "favours high-priority volumes at the expense of low-priority ones",
        // (Only where all accesses are seen can the value of a block be measured.)
        tiers: &[Tier::Dram],
        parameters: &[SUB_QUEUES, MIN_POSITION, WEIGHT, CLASSES, CHUNK, INTERVAL],
    };
}
