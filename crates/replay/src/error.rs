//! The errors of a replay.

use std::io;

use forebay_config::distinct_sizes;
use forebay_device::UnknownBackend;
use forebay_device::file::OpenError;
use forebay_device::nbd::NbdError;
use forebay_engine::EngineError;
use forebay_nbd::UriError;
use forebay_trace::TraceError;

/// Why a run could not begin or could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A device or file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine cannot be opened or stopped.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// `FOREBAY_IO` is set to something unknown.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    /// A system resource such as a doorbell, a ring or memory could not be obtained, or a system
    /// call failed.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// An address cannot be parsed.
    #[error("{address}: {source}")]
    Uri {
        /// The address.
        address: String,
        /// What is wrong with it.
        source: UriError,
    },
    /// An NBD server cannot be reached, or the session with it failed.
    #[error(transparent)]
    Nbd(#[from] NbdError),
    /// Some targets are paths, others NBD addresses.
    #[error(
        "the targets of one run must be either all paths or all NBD addresses, not both {0} and {1}"
    )]
    Mixed(String, String),
    /// Two targets are the same file or device.
    #[error("{}; a run needs a different target for each volume", same(first, second))]
    SameTarget {
        /// The target that was given first.
        first: String,
        /// The other one.
        second: String,
    },
    /// No target was given.
    #[error("no target was given")]
    NoTarget,
    /// A request reaches beyond the end of the target.
    #[error(
        "accesses to volume {volume} extend to offset {} of {target}, which {}; nothing was \
         written",
        distinct_sizes(*end, *size)[0],
        match size {
            0 => "is empty".to_owned(),
            _ => format!("is only {} long", distinct_sizes(*end, *size)[1]),
        }
    )]
    BeyondEnd {
        /// Name of the volume in the trace.
        volume: String,
        /// The byte just past the last one accessed.
        end: u64,
        /// The target's volume.
        target: String,
        /// Size of the target's volume in bytes.
        size: u64,
    },
    /// The trace has more volumes than there are targets.
    #[error(
        "the trace has more volumes ({volumes}) than there are targets ({targets}); nothing was written"
    )]
    TooManyVolumes {
        /// Volumes of the trace.
        volumes: usize,
        /// Volumes of the target.
        targets: usize,
    },
    /// Writing was not allowed.
    #[error(
        "the workload contains writes, which would destroy the data on {target}; nothing was written"
    )]
    WritesNotAllowed {
        /// The volume, file or device that would be written to.
        target: String,
    },
    /// The target cannot be written to.
    #[error("the workload contains writes, but {target} is read-only; nothing was written")]
    ReadOnly {
        /// The first volume that would be written to.
        target: String,
    },
    /// A thread of the run panicked.
    #[error("a thread of the run panicked; its results are lost")]
    Panicked,
}

fn same(first: &str, second: &str) -> String {
    match first == second {
        true => format!("{first} is given as a target twice"),
        false => format!("{first} and {second} are the same file or device"),
    }
}
