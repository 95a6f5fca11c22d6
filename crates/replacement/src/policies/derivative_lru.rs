//! LRU, but a block enters at a position in proportion to what its volume would gain from a larger cache: the
//! derivative of its hit-ratio curve, times its share of all accesses. The position comes with the
//! [`Hint`](crate::Hint); [`Positions`](crate::Positions) gives it, from these parameters, and `gains.rs` measures the
//! derivative. `sub_queues.rs` is the queue. Hazan et al. name it as future work (section 6 of the paper).
//!
//! Does badly where volumes change what they do within an interval; a single volume has LRU.

use super::sub_queues::{INTERVAL, MIN_POSITION, Positioned, SUB_QUEUES};
use crate::parameters::Parameter;
use crate::policy::{About, Documented, Tier};

/// Sooner than hit ratios: a volume whose gain changes would keep the wrong place for as long.
const GAIN_INTERVAL: Parameter = Parameter {
    default: 60_000,
    meaning: "how often the gain of each volume is measured",
    ..INTERVAL
};

/// The position follows from what the volume would gain.
#[derive(Debug)]
pub struct ByDerivative;

/// See the module.
pub type DerivativeLru = Positioned<ByDerivative>;

impl Documented for DerivativeLru {
    const ABOUT: About = About {
        source: "Forebay; future work in Hazan et al., Caching according to use and QoS requirements",
        weakness: "follows a change in a volume's use one interval late; with one volume it is LRU",
        // (What a block is worth is known where all accesses are seen.)
        tiers: &[Tier::Dram],
        parameters: &[SUB_QUEUES, MIN_POSITION, GAIN_INTERVAL],
    };
}
