//! Which policies go together: one function, by which the cache, the configuration, the adversary and the tests
//! go. What it lets through runs; what it refuses, it refuses with the reason.

use forebay_replacement::AdmissionKind;

use crate::config::{CacheConfig, Written};
use crate::place::Relation;
use crate::policy::{Acknowledge, WritePolicy};

/// Policies that are to work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combination {
    /// How memory and flash share the blocks.
    pub relation: Relation,
    /// What is written where.
    pub policy: WritePolicy,
    /// When a write is answered under write-back.
    pub acknowledge: Acknowledge,
    /// The flash tier, if there is one.
    pub flash: Option<FlashCombination>,
}

/// What of the flash tier has to go together with the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashCombination {
    /// The slots layout, not the log layout.
    pub slots: bool,
    /// Which blocks may enter.
    pub admission: AdmissionKind,
    /// Whether that holds for what is dirty.
    pub written: Written,
}

impl Combination {
    /// What a cache is built from.
    pub fn from_config(config: &CacheConfig) -> Combination {
        let flash = config.flash.as_ref().map(|flash| FlashCombination {
            slots: flash.geometry.slots != 0,
            admission: flash.admission.kind(),
            written: flash.written,
        });
        let CacheConfig { relation, write_policy: policy, acknowledge, .. } = *config;
        Combination { relation, policy, acknowledge, flash }
    }

    /// Whether these policies go together.
    ///
    /// # Errors
    /// With the reason if they do not.
    pub fn check(&self) -> Result<(), &'static str> {
        let back = self.policy.write_back;
        let Some(flash) = self.flash else {
            // (Without flash it does not matter what is said of acknowledgement.)
            return match self.relation {
                Relation::Exclusive => Ok(()),
                _ => Err("is about memory and flash: there is no [flash] section"),
            };
        };
        let by_flash =
            back && self.policy.allocate_on_read && self.acknowledge == Acknowledge::Flash;
        let around = !back && !self.policy.allocate_on_write;
        let all = flash.admission == AdmissionKind::Always;
        match self.relation {
            Relation::Layered | Relation::Dual if !all => {
                Err("a line enters flash as a whole: it needs admission.policy = \"always\"")
            }
            Relation::EticaNpe | Relation::Etica if !by_flash => Err(
                "memory may not have the only copy of a write, and flash caches writes: it needs \
                 write_policy = \"write-back\" with acknowledge = \"flash\"",
            ),
            Relation::Eci if !(by_flash || around) => Err(
                "memory keeps nothing, so that a write ends on flash or goes around the cache: it needs \
                 write_policy = \"write-back\" with acknowledge = \"flash\", or \"read-only\"",
            ),
            Relation::Etica if !flash.slots => Err(
                "its queues evict single blocks, and the log layout frees its regions whole, in the order in \
                 which they were written: it needs flash.layout = \"slots\"",
            ),
            Relation::Etica if !all || flash.written != Written::Ask => Err(
                "its queues choose what enters flash: it needs admission.policy = \"always\" and \
                 admission.written = \"ask\"",
            ),
            Relation::Exclusive
            | Relation::Inclusive
            | Relation::Layered
            | Relation::Dual
            | Relation::EticaNpe
            | Relation::Etica
            | Relation::Eci => Ok(()),
        }
    }
}
