//! Planted bugs: the sooner the adversary finds them, the more thorough it is.

use std::ops::Range;

use forebay_device::choices::Seeded;
use forebay_flash::sabotage::{Bug, Sabotage};

use crate::kind::Kind;

/// The result of a hunt for a bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The bug.
    pub bug: Bug,
    /// The kind of run.
    pub kind: &'static str,
    /// Power cuts before the bug was found, or all power cuts of the hunt.
    pub cuts: u64,
    /// The seed that finds the bug, and the failure; `None` if the bug was not found.
    pub found: Option<(u64, String)>,
}

/// The kind of run in which to look for a bug.
pub fn kind_for(bug: Bug) -> &'static str {
    match bug {
        Bug::TransitFrameReusedEarly => "etica",
        Bug::TombstoneForgotten | Bug::ActivityMarkSkipped | Bug::LineOverWrites => "through",
        Bug::VoidSkipped | Bug::EpochsForgotten => "back-full",
        Bug::BackingSyncSkipped => "dram",
        Bug::ChecksumIgnoredOnRead => "back-media",
        Bug::SyncFailureIgnored => "dram-errors",
        Bug::GapWrittenOver => "back-slots-unreadable",
        Bug::CellReusedEarly
        | Bug::TailUnverified
        | Bug::UnmapForgotten
        | Bug::MappingLeftBehind
        | Bug::ChosenCellsUsedAgain
        | Bug::CleansAfterStop => "back-slots",
        Bug::ApartOvertaken | Bug::ApartUnsynced => "back-slots-late",
        _ => "back",
    }
}

/// The seed at which the search for a bug begins. For bugs that few seeds find, it is slightly
/// below the seed that last found the bug. After a change of the code, other seeds find the bug,
/// and the search takes longer.
pub fn first_seed(bug: Bug) -> u64 {
    match bug {
        Bug::RegionReusedEarly => 635,
        Bug::EpochsForgotten => 240,
        Bug::ApartOvertaken => 65,
        Bug::DirtyForgottenBeforeSync => 75,
        Bug::ChosenCellsUsedAgain => 255,
        Bug::ReinsertedOverNewer => 120,
        Bug::TransitAnsweredEarly => 240,
        Bug::LineOverWrites => 635,
        Bug::CleansAfterStop => 145,
        _ => 0,
    }
}

/// Looks for a bug with these seeds, one after the other.
///
/// # Errors
/// If there is no such kind of run.
pub fn hunt(bug: Bug, kind: &'static str, seeds: Range<u64>) -> Result<Hunt, String> {
    let mut run = Kind::find(kind)?;
    run.plan.sabotage = Sabotage::with(bug);
    let mut hunt = Hunt { bug, kind, cuts: 0, found: None };
    for seed in seeds {
        match run.play(&mut Seeded::new(seed)) {
            Ok(seen) => hunt.cuts += seen.cuts + seen.cuts_in_recovery,
            Err(how) => {
                hunt.found = Some((seed, how));
                break;
            }
        }
    }
    Ok(hunt)
}
