//! Priority LRU (Hazan et al.): LRU, but where a block enters follows from the priority of its volume and
//! the hit ratio of its chunk. The position comes with the [`Hint`](crate::Hint);
//! [`Positions`](crate::Positions) gives it, from these parameters. `sub_queues.rs` is the queue.
//!
//! Does badly for volumes of low priority, by intention: the hit ratio of all together may fall.

use super::sub_queues::{CHUNK, INTERVAL, MIN_POSITION, Positioned, SUB_QUEUES};
use crate::parameters::Parameter;
use crate::policy::{About, Documented, Tier};

const WEIGHT: Parameter = Parameter {
    name: "priority_weight_percent",
    unit: "percent of the queue",
    default: 15,
    min: 0,
    max: 100,
    meaning: "priorityWeight: how much farther from eviction blocks of a class enter than those of the class below",
};
const CLASSES: Parameter = Parameter {
    name: "classes",
    unit: "classes",
    default: 3,
    min: 1,
    max: 255,
    meaning: "number of priority classes; class 1 is the highest",
};

/// The position follows from the priority of the volume, too.
#[derive(Debug)]
pub struct ByPriority;

/// See the module.
pub type PriorityLru = Positioned<ByPriority>;

impl Documented for PriorityLru {
    const ABOUT: About = About {
        source: "Hazan et al., Caching according to use and QoS requirements",
        weakness: "favours volumes of high priority at the expense of those of low priority",
        // (What a block is worth is known where all accesses are seen.)
        tiers: &[Tier::Dram],
        parameters: &[SUB_QUEUES, MIN_POSITION, WEIGHT, CLASSES, CHUNK, INTERVAL],
    };
}
