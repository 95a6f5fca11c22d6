//! Where a new block enters the queue of HR LRU and Priority LRU (Hazan et al.).
//!
//! A position is the percentage of the queue that is evicted before the block; 100 is the protected
//! end. [`PositionRule`] has the two rules of the paper and a third one that the paper suggests as
//! future work (Derivative LRU). Other functions can use [`position`], which clamps their results.

use crate::parameters::Parameters;
use crate::policies::Kind;
use crate::policy::Percent;

/// What is known about the volume and the chunk of a block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// The hit ratio of its chunk, or of its whole volume, in percent.
    pub hit_ratio_percent: f64,
    /// The priority of its volume; 1 is the highest.
    pub priority: u32,
    /// What one more block of cache would add to the hit ratio of its volume: the derivative of its
    /// hit-ratio curve at the size that it has now, times its share of all accesses.
    pub derivative: f64,
    /// The largest such derivative of all volumes.
    pub derivative_max: f64,
}

/// The rule that computes the position of a block from its [`Standing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PositionRule {
    /// HR LRU: `max(MinPosition, min(HR + MinHR, 100))`.
    HitRatio {
        /// MinPosition, in percent.
        min_position: u32,
        /// MinHR, in percent.
        min_hit_ratio: u32,
    },
    /// Priority LRU: `max(MinPosition, min(weight (classes - priority) + HR (1 - (priority - 1) / 5), 100))`.
    /// With three classes this is the formula of the paper. The coefficient of HR does not fall
    /// below 0, which it reaches at priority 6.
    Priority {
        /// MinPosition, in percent.
        min_position: u32,
        /// priorityWeight, in percent.
        weight: u32,
        /// Number of priority classes.
        classes: u32,
    },
    /// Derivative LRU: in proportion to the gain from one more block,
    /// `max(MinPosition, 100 derivative / derivative_max)`; the protected end for all blocks while no
    /// volume is known to gain anything.
    Derivative {
        /// MinPosition, in percent.
        min_position: u32,
    },
}

impl PositionRule {
    /// The rule that a policy's parameters describe; `None` for policies without positions.
    pub fn from_parameters(parameters: &Parameters) -> Option<PositionRule> {
        let value = |name| parameters.get(name).expect("the policy declares it");
        match parameters.kind() {
            Kind::HrLru => Some(PositionRule::HitRatio {
                min_position: value("min_position_percent"),
                min_hit_ratio: value("min_hit_ratio_percent"),
            }),
            Kind::PriorityLru => Some(PositionRule::Priority {
                min_position: value("min_position_percent"),
                weight: value("priority_weight_percent"),
                classes: value("classes"),
            }),
            Kind::DerivativeLru => {
                Some(PositionRule::Derivative { min_position: value("min_position_percent") })
            }
            _ => None,
        }
    }

    /// The position of a block with this standing.
    pub fn position(&self, standing: &Standing) -> Percent {
        match *self {
            PositionRule::HitRatio { min_position, min_hit_ratio } => {
                position(min_position, standing.hit_ratio_percent + f64::from(min_hit_ratio))
            }
            PositionRule::Priority { min_position, weight, classes } => {
                let priority = standing.priority.clamp(1, classes.max(1));
                let coefficient = (1.0 - f64::from(priority - 1) / 5.0).max(0.0);
                let above = f64::from(weight) * f64::from(classes.max(1) - priority);
                position(min_position, above + standing.hit_ratio_percent * coefficient)
            }
            PositionRule::Derivative { .. } if standing.derivative_max <= 0.0 => Percent::ALL,
            PositionRule::Derivative { min_position } => {
                position(min_position, 100.0 * standing.derivative / standing.derivative_max)
            }
        }
    }
}

/// `max(min_position, min(percent, 100))`, rounded to the nearest percent. NaN counts as 0.
pub fn position(min_position: u32, percent: f64) -> Percent {
    let percent = percent.clamp(0.0, 100.0).max(f64::from(min_position.min(100)));
    Percent::new(percent.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(hit_ratio_percent: f64, priority: u32) -> Standing {
        Standing { hit_ratio_percent, priority, derivative: 0.0, derivative_max: 0.0 }
    }

    #[test]
    fn hr_lru_adds_min_hr_and_keeps_within_min_position_and_100() {
        let rule = PositionRule::from_parameters(&Parameters::new(Kind::HrLru)).unwrap();
        let at = |hit_ratio| rule.position(&standing(hit_ratio, 1)).get();
        assert_eq!([0.0, 10.0, 11.0, 50.4, 90.0, 95.0].map(at), [20, 20, 21, 60, 100, 100]);
        assert_eq!(at(f64::NAN), 20);
    }

    #[test]
    fn priority_lru_is_the_formula_of_the_paper_for_three_classes() {
        let rule = PositionRule::from_parameters(&Parameters::new(Kind::PriorityLru)).unwrap();
        let at = |hit_ratio, priority| rule.position(&standing(hit_ratio, priority)).get();
        // 15 (3 - prio) + HR (1 - (prio - 1) / 5).
        assert_eq!([at(50.0, 1), at(50.0, 2), at(50.0, 3)], [80, 55, 30]);
        assert_eq!([at(0.0, 1), at(0.0, 2), at(0.0, 3)], [30, 20, 20]);
        assert_eq!(at(90.0, 1), 100);
        // A class that does not exist counts as the nearest one.
        assert_eq!([at(50.0, 0), at(50.0, 9)], [80, 30]);
    }

    #[test]
    fn every_rule_rises_with_what_it_is_of() {
        let many = PositionRule::Priority { min_position: 5, weight: 7, classes: 12 };
        for class in 1..12 {
            let [high, low] = [class, class + 1].map(|c| many.position(&standing(40.0, c)));
            assert!(high >= low, "{class}");
        }
        let rule = PositionRule::from_parameters(&Parameters::new(Kind::DerivativeLru)).unwrap();
        let at = |derivative| {
            rule.position(&Standing { derivative, derivative_max: 0.5, ..standing(0.0, 1) }).get()
        };
        assert_eq!([0.0, 0.1, 0.25, 0.5].map(at), [20, 20, 50, 100]);
        assert_eq!(rule.position(&standing(0.0, 1)).get(), 100, "nobody would gain");
    }
}
