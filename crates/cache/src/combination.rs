//! Which policies work together. One function decides this for the cache, the configuration, the
//! adversary and the tests. Every combination that it accepts runs; it rejects the others with the
//! reason.

use forebay_replacement::AdmissionKind;

use crate::config::{CacheConfig, Written};
use crate::place::Relation;
use crate::policy::{Acknowledge, WritePolicy};

/// Policies to be used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combination {
    /// How memory and flash share the blocks.
    pub relation: Relation,
    /// Which writes and reads go where.
    pub policy: WritePolicy,
    /// When a write is answered under write-back.
    pub acknowledge: Acknowledge,
    /// The flash tier, if there is one.
    pub flash: Option<FlashCombination>,
}

/// The properties of the flash tier that must match the other policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashCombination {
    /// Whether it has the slots layout, and not the log layout.
    pub slots: bool,
    /// Which blocks may enter.
    pub admission: AdmissionKind,
    /// Whether the admission policy also applies to dirty blocks.
    pub written: Written,
}

impl Combination {
    /// The combination in a cache's parameters.
    pub fn from_config(config: &CacheConfig) -> Combination {
        let flash = config.flash.as_ref().map(|flash| FlashCombination {
            slots: flash.slots().is_some(),
            admission: flash.admission.kind(),
            written: flash.written,
        });
        let CacheConfig { relation, write_policy: policy, acknowledge, .. } = *config;
        Combination { relation, policy, acknowledge, flash }
    }

    /// Checks whether these policies work together.
    ///
    /// # Errors
    /// The reason if they do not.
    pub fn check(&self) -> Result<(), &'static str> {
        let back = self.policy.write_back;
        let Some(flash) = self.flash else {
            // Without flash, the acknowledgement does not matter.
            return match self.relation {
                Relation::Exclusive => Ok(()),
                _ => Err("needs flash, but there is no [flash] section"),
            };
        };
        let by_flash =
            back && self.policy.allocate_on_read && self.acknowledge == Acknowledge::Flash;
        let around = !back && !self.policy.allocate_on_write;
        let all = flash.admission == AdmissionKind::Always;
        match self.relation {
            Relation::Layered | Relation::Dual if !all => {
                Err("needs admission.policy = \"always\": a line enters flash as a whole")
            }
            Relation::EticaNpe | Relation::Etica if !by_flash => Err(
                "needs write_policy = \"write-back\" with acknowledge = \"flash\": memory must not \
                 hold the only copy of a write, and flash caches writes",
            ),
            Relation::Eci if !(by_flash || around) => Err(
                "needs write_policy = \"write-back\" with acknowledge = \"flash\", or write_policy \
                 = \"read-only\": memory keeps no blocks, so every write goes to flash or bypasses \
                 the cache",
            ),
            Relation::Etica if !flash.slots => {
                Err("needs flash.layout = \"slots\": its queues evict single blocks, but the log \
                 layout frees whole regions in the order in which they were written")
            }
            Relation::Etica if !all || flash.written != Written::Ask => Err(
                "needs admission.policy = \"always\" and admission.written = \"ask\": its queues \
                 choose which blocks enter flash",
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
