//! HR LRU (Hazan et al.): LRU, but the hit ratio of a block's chunk determines the position at
//! which the block enters. The position comes with the [`Hint`](crate::Hint);
//! [`Positions`](crate::Positions) computes it from these parameters. `sub_queues.rs` is the queue.
//! The paper models the read cache only.
//!
//! Performs badly if blocks of one chunk are used differently.

use super::sub_queues::{CHUNK, INTERVAL, MIN_POSITION, Positioned, SUB_QUEUES};
use crate::parameters::Parameter;
use crate::policy::{About, Documented, Tier};

const MIN_HR: Parameter = Parameter {
    name: "min_hit_ratio_percent",
    unit: "percent",
    default: 10,
    min: 0,
    max: 100,
    meaning: "MinHR: added to the hit ratio of every chunk, so that blocks of a new chunk have a chance to stay",
};

/// Marks the policy whose positions follow from the hit ratio of the chunk.
#[derive(Debug)]
pub struct ByHitRatio;

/// See the module.
pub type HrLru = Positioned<ByHitRatio>;

impl Documented for HrLru {
    const ABOUT: About = About {
        source: "Hazan et al., Caching according to use and QoS requirements",
        weakness: "performs badly if some blocks of a chunk are used much more often than others",
        // (Only where all accesses are seen can the value of a block be measured.)
        tiers: &[Tier::Dram],
        parameters: &[SUB_QUEUES, MIN_POSITION, MIN_HR, CHUNK, INTERVAL],
    };
}
