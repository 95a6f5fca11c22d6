//! Seeded bugs: how hard the adversary looks is how soon it finds them.

use std::ops::Range;

use forebay_device::choices::Seeded;
use forebay_flash::sabotage::{Bug, Sabotage};

use crate::kind::Kind;

/// How a hunt for a bug ended.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The bug.
    pub bug: Bug,
    /// The kind of run.
    pub kind: &'static str,
    /// Power cuts until it was found, or in all.
    pub cuts: u64,
    /// The seed that finds it, and how it shows; `None` if it was not found.
    pub found: Option<(u64, String)>,
}

/// In which kind of run a bug is looked for.
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

/// Where the search for a bug begins: shortly before the seed that found it, for bugs that few seeds find. When the
/// code has changed, other seeds find them, and the search takes longer.
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
