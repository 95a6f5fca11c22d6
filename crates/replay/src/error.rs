//! The errors of a replay.

use std::io;

use forebay_device::UnknownBackend;
use forebay_device::file::OpenError;
use forebay_device::nbd::NbdError;
use forebay_engine::EngineError;
use forebay_nbd::UriError;
use forebay_trace::TraceError;

/// A run could not begin, or not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A device or file cannot be had.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine cannot be opened, or not be stopped.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// `FOREBAY_IO` is set to something unknown.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    /// Threads, doorbells or a ring cannot be had.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// An address cannot be understood.
    #[error("{address}: {source}")]
    Uri {
        /// What was given.
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
    /// Two targets are one file or device.
    #[error("{}; a run needs a different target for each volume", same(first, second))]
    SameTarget {
        /// The target that was given first.
        first: String,
        /// The other one.
        second: String,
    },
    /// No target at all.
    #[error("no target was given")]
    NoTarget,
    /// A request is not on the device.
    #[error(
        "volume {volume} is accessed up to byte {end}, but {target} has only {size} bytes; nothing \
         was written"
    )]
    BeyondEnd {
        /// Name of the volume in the trace.
        volume: String,
        /// The byte just past the last one accessed.
        end: u64,
        /// The target's volume.
        target: String,
        /// Its size.
        size: u64,
    },
    /// More volumes than the target has.
    #[error(
        "the trace has more volumes ({volumes}) than there are targets ({targets}); nothing was written"
    )]
    TooManyVolumes {
        /// In the trace.
        volumes: usize,
        /// Volumes of the target.
        targets: usize,
    },
    /// Writing was not allowed.
    #[error(
        "the workload contains writes, which would destroy the data on {target}; nothing was written"
    )]
    WritesNotAllowed {
        /// What would be written to: a volume, a file or a device.
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
