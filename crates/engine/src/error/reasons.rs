//! The reasons that errors of an engine give, as facts that a program can match.

use std::fmt;

use forebay_cache::DestageError;
use forebay_flash::LogError;

use super::EngineError;
use crate::backing_stores::StoreFailure;
use crate::faults::UnreadableBlocks;

/// Why the dirty data of a cache could not be destaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DestageFailure {
    /// A device has failed, the machine refused it, or blocks that clients have overwritten since then were unreadable.
    #[error("{0}")]
    Other(DestageError),
    /// The newest data of these blocks cannot be read from flash.
    #[error("{0}")]
    Unreadable(UnreadableBlocks),
}

/// A backing store that fails, and lacks dirty data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("volume {volume}: {failure}")]
pub struct FailingStore {
    /// Name of the volume.
    pub volume: String,
    /// Why its store fails.
    pub failure: StoreFailure,
}

/// A volume whose clients are still held back after a quiesce.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("volume {volume} ({why})")]
pub struct HeldVolume {
    /// Name of the volume.
    pub volume: String,
    /// Why the header of its store could not be written, or its cached data not be dropped.
    pub why: String,
}

/// Where the dirty blocks are that could not be destaged, or which of them are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyLeft {
    /// Number of dirty blocks on the flash tier, where they stay.
    OnFlash(u64),
    /// Number of dirty blocks on the flash tier and in memory. The engine still runs, so none is lost.
    OnFlashOrInMemory(u64),
    /// Number of dirty blocks in memory. The engine has no flash tier, but still runs, so none is lost.
    InMemory(u64),
    /// The engine has ended, and acknowledged data is lost.
    NewestLost {
        /// Blocks that stay on the flash tier.
        on_flash: u64,
        /// Blocks whose newest data was only in memory.
        lost: u64,
    },
    /// The engine has ended, and only writes that it never acknowledged are lost.
    UnacknowledgedLost {
        /// Blocks that stay on the flash tier.
        on_flash: u64,
        /// Blocks with lost writes.
        lost: u64,
    },
    /// Number of dirty blocks that are lost: the engine has ended, and has no flash tier.
    AllLost(u64),
}

impl fmt::Display for DirtyLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DirtyLeft::OnFlash(dirty) => f.write_str(&stay(dirty, "on the flash tier")),
            DirtyLeft::OnFlashOrInMemory(dirty) => {
                f.write_str(&stay(dirty, "on the flash tier or in memory"))
            }
            DirtyLeft::InMemory(dirty) => f.write_str(&stay(dirty, "in memory")),
            DirtyLeft::NewestLost { on_flash, lost } => write!(
                f,
                "{}; the newest data of {} was only in memory and is lost",
                stay(on_flash, "on the flash tier"),
                blocks(lost, "")
            ),
            DirtyLeft::UnacknowledgedLost { on_flash, lost } => write!(
                f,
                "{}; unacknowledged writes to {} are lost",
                stay(on_flash, "on the flash tier"),
                blocks(lost, "")
            ),
            DirtyLeft::AllLost(dirty) => write!(
                f,
                "the newest data of {} was only in memory and is lost",
                blocks(dirty, "dirty ")
            ),
        }
    }
}

fn stay(dirty: u64, place: &str) -> String {
    let verb = if dirty == 1 { "stays" } else { "stay" };
    format!("{} {verb} {place}", blocks(dirty, "dirty "))
}

fn blocks(n: u64, kind: &str) -> String {
    format!("{n} {kind}block{}", if n == 1 { "" } else { "s" })
}

/// Why a flash tier is not the tier of the configured stores.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TierMismatch {
    /// Another tier has cached a volume since.
    #[error("volume {volume} has since been used with another tier")]
    UsedWithAnother {
        /// Name of the volume.
        volume: String,
    },
    /// The tier does not know a store.
    #[error("volume {volume} does not belong to it")]
    NotBound {
        /// Name of the volume.
        volume: String,
    },
    /// The tier knows more stores, or fewer.
    #[error("it belongs to {bound} volumes, not {configured}")]
    Count {
        /// Volumes of the tier.
        bound: usize,
        /// Configured volumes.
        configured: usize,
    },
}

/// Why the dirty blocks of a flash tier cannot be counted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UncountedReason {
    /// Reading the tier failed.
    #[error("it cannot be read completely: {0}")]
    Unread(LogError),
    /// The tier is damaged.
    #[error("some of its contents are lost")]
    Damaged,
    /// A store has seen a newer state of the tier.
    #[error("it is an older copy of the tier that was last used")]
    OlderCopy,
}

/// Why a stop could not record the state of the stores.
#[derive(Debug, thiserror::Error)]
pub enum UnsealedReason {
    /// The caller did not wait for the end of the stop.
    #[error("the stop was cut short")]
    CutShort,
    /// Operations on the stores did not end in time.
    #[error("operations on them are still in progress")]
    InProgress,
    /// A header or the flash tier could not be written.
    #[error(transparent)]
    Failed(Box<EngineError>),
}
