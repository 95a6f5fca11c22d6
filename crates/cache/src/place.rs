//! Where blocks go: one function without state, [`place`], and its table.
//!
//! The shard calls it at each [`Moment`], for example when a read misses or a clean block leaves
//! memory, and acts on the answer. `docs/policies.md` has the table for users.

use core::fmt;

use crate::policy::{Acknowledge, WritePolicy};

/// How the two tiers share the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Relation {
    /// A block enters memory, and enters flash when it leaves memory. A copy on flash stays while
    /// the block is in memory again: dropping it would cost a write later, and gain nothing.
    #[default]
    Exclusive,
    /// A block that is read enters memory, and flash at once.
    Inclusive,
    /// Hazan's Layered: a block that leaves memory enters flash together with the rest of its line.
    Layered,
    /// Hazan's Dual: a read miss brings its block into memory, and the whole line into flash.
    Dual,
    /// ETICA without promotion and eviction queues: memory holds blocks that were read, flash those
    /// that were written.
    EticaNpe,
    /// Memory holds blocks that were read, flash those that [queues](forebay_replacement::Queues)
    /// chose (ETICA).
    Etica,
    /// The one level of ECI-Cache: only flash caches, and blocks are in memory only in transit.
    Eci,
}

/// The event for which a place is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// A read that misses both tiers.
    ReadMiss,
    /// A read that hits flash.
    ReadFlash,
    /// A write that ends in the cache, or hits its block there.
    Write,
    /// A write of a block that flash does not have.
    WriteMiss,
    /// The queues have chosen a block for flash.
    Promote,
    /// A block without dirty data leaves memory.
    CleanLeaves,
}

/// The block's place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InMemory {
    /// It is resident there.
    Keep,
    /// It has a frame until its operation has ended.
    Transit,
    /// It does not enter memory.
    Bypass,
}

/// When the block enters flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnFlash {
    Now,
    WhenItLeaves,
    Never,
}

/// The places of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPlaces {
    pub memory: InMemory,
    pub flash: OnFlash,
    /// Whether the rest of its line is fetched for flash.
    pub line: bool,
}

/// The places of a block at this moment.
pub(crate) fn place(
    moment: Moment,
    relation: Relation,
    policy: WritePolicy,
    acknowledge: Acknowledge,
) -> BlockPlaces {
    use InMemory::{Bypass, Keep, Transit};
    use OnFlash::{Never, Now, WhenItLeaves};
    let at = |memory, flash, line| BlockPlaces { memory, flash, line };
    match (moment, relation) {
        (Moment::ReadMiss, _) if !policy.allocate_on_read => at(Bypass, Never, false),
        (Moment::ReadMiss, Relation::Exclusive | Relation::Layered) => {
            at(Keep, WhenItLeaves, false)
        }
        (Moment::ReadMiss, Relation::Inclusive) => at(Keep, Now, false),
        (Moment::ReadMiss, Relation::Dual) => at(Keep, Now, true),
        (Moment::ReadMiss, Relation::EticaNpe | Relation::Etica) => at(Keep, Never, false),
        (Moment::ReadMiss, Relation::Eci) => at(Transit, Now, false),
        // Flash has the block, and keeps it.
        (Moment::ReadFlash, Relation::Eci) => at(Transit, WhenItLeaves, false),
        (Moment::ReadFlash, _) => at(Keep, WhenItLeaves, false),
        (Moment::Write | Moment::WriteMiss, _) if !policy.allocate_on_write => {
            at(Bypass, Never, false)
        }
        (Moment::WriteMiss, Relation::Etica) => at(Bypass, Never, false),
        (
            Moment::Write | Moment::WriteMiss,
            Relation::EticaNpe | Relation::Etica | Relation::Eci,
        ) => at(Transit, Now, false),
        (Moment::Write | Moment::WriteMiss, _) if policy.write_back => match acknowledge {
            Acknowledge::Flash => at(Keep, Now, false),
            Acknowledge::Dram => at(Keep, WhenItLeaves, false),
        },
        (Moment::Write | Moment::WriteMiss, _) => at(Keep, WhenItLeaves, false),
        (Moment::Promote, _) => at(Transit, Now, false),
        (Moment::CleanLeaves, Relation::EticaNpe | Relation::Etica) => at(Bypass, Never, false),
        (Moment::CleanLeaves, Relation::Layered) => at(Bypass, Now, true),
        (Moment::CleanLeaves, _) => at(Bypass, Now, false),
    }
}

/// The places of a block in a request that bypasses the cache: the block enters no tier. A write
/// goes to the backing store; if the cache has to hold it after all, it is written like any other.
pub(crate) fn place_bypassed(moment: Moment) -> BlockPlaces {
    let memory = match moment {
        Moment::ReadFlash => InMemory::Transit,
        _ => InMemory::Bypass,
    };
    BlockPlaces { memory, flash: OnFlash::Never, line: false }
}

impl Relation {
    /// All values.
    pub const ALL: [Relation; 7] = [
        Relation::Exclusive,
        Relation::Inclusive,
        Relation::Layered,
        Relation::Dual,
        Relation::EticaNpe,
        Relation::Etica,
        Relation::Eci,
    ];

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Relation::Exclusive => "exclusive",
            Relation::Inclusive => "inclusive",
            Relation::Layered => "layered",
            Relation::Dual => "dual",
            Relation::EticaNpe => "etica-npe",
            Relation::Etica => "etica",
            Relation::Eci => "eci",
        }
    }

    /// Whether flash is filled by lines.
    pub const fn has_lines(self) -> bool {
        matches!(self, Relation::Layered | Relation::Dual)
    }

    /// Whether queues choose what flash holds.
    pub const fn has_queues(self) -> bool {
        matches!(self, Relation::Etica)
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use forebay_replacement::AdmissionKind;

    use super::*;
    use crate::combination::{Combination, FlashCombination};
    use crate::config::Written;

    const POLICIES: [WritePolicy; 4] = [
        WritePolicy::WRITE_BACK,
        WritePolicy::WRITE_THROUGH,
        WritePolicy::READ_ONLY,
        WritePolicy::WRITE_ONLY,
    ];

    /// Every legal combination with flash in the slots layout.
    fn legal() -> impl Iterator<Item = (Relation, WritePolicy, Acknowledge)> {
        let ways = POLICIES.into_iter().flat_map(|policy| {
            [Acknowledge::Flash, Acknowledge::Dram].map(|acknowledge| (policy, acknowledge))
        });
        let (admission, written) = (AdmissionKind::Always, Written::Ask);
        let flash = Some(FlashCombination { slots: true, admission, written });
        ways.flat_map(|(policy, acknowledge)| Relation::ALL.map(|r| (r, policy, acknowledge)))
            .filter(move |&(relation, policy, acknowledge)| {
                Combination { relation, policy, acknowledge, flash }.check().is_ok()
            })
    }

    /// A row of the table in the documents: write-back that flash acknowledges.
    fn row(relation: Relation) -> String {
        let at = |moment| place(moment, relation, WritePolicy::WRITE_BACK, Acknowledge::Flash);
        let memory = |at: BlockPlaces| match at.memory {
            InMemory::Keep => "stays",
            InMemory::Transit => "passes",
            InMemory::Bypass => "leaves",
        };
        let flash = |at: BlockPlaces| match (at.flash, at.line) {
            (OnFlash::Now, true) => "enters, with its line",
            (OnFlash::Now, false) => "enters",
            (OnFlash::WhenItLeaves, _) => "enters when it leaves memory",
            (OnFlash::Never, _) => "does not enter",
        };
        let (miss, found) = (at(Moment::ReadMiss), at(Moment::ReadFlash));
        let (new, write) = (at(Moment::WriteMiss), at(Moment::Write));
        let leaves = at(Moment::CleanLeaves);
        format!(
            "| `{relation}` | {} | {} | {} | {} | {} | {} | {} |",
            memory(miss),
            flash(miss),
            memory(found),
            memory(new),
            flash(new),
            flash(write),
            flash(leaves),
        )
    }

    #[test]
    fn the_documents_have_the_table() {
        let page = include_str!("../../../docs/policies.md");
        for relation in Relation::ALL {
            assert!(page.contains(&row(relation)), "docs/policies.md lacks:\n{}", row(relation));
        }
    }

    #[test]
    fn a_write_in_transit_is_on_flash_before_it_is_answered() {
        for (relation, policy, acknowledge) in legal() {
            let write = place(Moment::Write, relation, policy, acknowledge);
            if write.memory == InMemory::Transit && policy.write_back {
                assert_eq!(write.flash, OnFlash::Now, "{relation:?} {policy:?}");
                assert_eq!(acknowledge, Acknowledge::Flash, "{relation:?} {policy:?}");
            }
        }
    }

    #[test]
    fn a_block_that_is_read_in_transit_enters_flash() {
        for (relation, policy, acknowledge) in legal() {
            let miss = place(Moment::ReadMiss, relation, policy, acknowledge);
            assert!(miss.memory != InMemory::Transit || miss.flash == OnFlash::Now);
        }
    }

    #[test]
    fn each_write_policy_has_relations_and_each_relation_a_write_policy() {
        for relation in Relation::ALL {
            assert!(legal().any(|(r, ..)| r == relation), "{relation:?}");
        }
        for policy in POLICIES {
            assert!(legal().filter(|&(_, p, _)| p == policy).count() >= 4, "{policy:?}");
        }
    }
}
