//! LRU, but a block enters at a position in proportion to what its volume would gain from a larger
//! cache: the derivative of the volume's hit-ratio curve, times its share of all accesses. The
//! position comes with the [`Hint`](crate::Hint); [`Positions`](crate::Positions) computes it from
//! these parameters, and `gains.rs` measures the derivative. `sub_queues.rs` is the queue. Hazan et
//! al. suggest it as future work (section 6 of the paper).
//!
//! Performs badly if volumes change their behaviour within an interval; with a single volume it is
//! LRU.

use super::sub_queues::{INTERVAL, MIN_POSITION, Positioned, SUB_QUEUES};
use crate::parameters::Parameter;
use crate::policy::{About, Documented, Tier};

/// Shorter than the interval of hit ratios, because a volume whose gain changes keeps the wrong
/// position until the interval ends.
const GAIN_INTERVAL: Parameter = Parameter {
    default: 60_000,
    meaning: "how often the gain of each volume is measured",
    ..INTERVAL
};

/// Marks the policy whose positions follow from the gain of the volume.
#[derive(Debug)]
pub struct ByDerivative;

/// See the module.
pub type DerivativeLru = Positioned<ByDerivative>;

impl Documented for DerivativeLru {
    const ABOUT: About = About {
        source: "Forebay; future work in Hazan et al., Caching according to use and QoS requirements",
        weakness: "follows a change in a volume's use one interval late; with one volume it is LRU",
        // (Only where all accesses are seen can the value of a block be measured.)
        tiers: &[Tier::Dram],
        parameters: &[SUB_QUEUES, MIN_POSITION, GAIN_INTERVAL],
    };
}
