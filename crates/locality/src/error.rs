//! What can go wrong while measuring locality.

use core::fmt;

/// A failure of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LocalityError {
    /// More distinct blocks are alive than 32-bit access times can order.
    TooManyBlocks {
        /// The number of distinct blocks at which measuring stopped.
        distinct_blocks: u64,
    },
    /// A batch whose keys and operations differ in number.
    UnequalBatch {
        /// Number of keys.
        keys: usize,
        /// Number of operations.
        ops: usize,
    },
    /// A sampling rate outside (0, 1].
    BadRate,
    /// Sampling together with counting by request or with migration, which need every block.
    SampledRequests,
    /// More accesses of one record than positions can tell apart.
    TooManyAccesses {
        /// The number of accesses at which recording stopped.
        accesses: u64,
    },
    /// More workloads share a cache than can be told apart.
    TooManyWorkloads,
    /// A migration period of no time at all.
    NoMigrationPeriod,
    /// Contents together with a distance of a policy that forgets blocks on some accesses.
    NoContentDistance,
    /// A bound on sampled blocks below the smallest that gives a usable curve.
    TooFewSampledBlocks {
        /// The bound asked for.
        blocks: u64,
        /// The smallest bound accepted.
        least: u64,
    },
}

impl fmt::Display for LocalityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyBlocks { distinct_blocks } => write!(
                f,
                "the workload touches more than {distinct_blocks} distinct blocks, too many to \
                 measure at once: use a larger block size, a sampling rate below 1, or measure \
                 each volume on its own"
            ),
            Self::UnequalBatch { keys, ops } => {
                write!(f, "a batch holds {keys} keys and {ops} operations: pass as many of each")
            }
            Self::BadRate => {
                write!(f, "a sampling rate must be at least 2^-33 (1.2e-10) and at most 1")
            }
            Self::SampledRequests => write!(
                f,
                "hits of whole requests, and hits under periodic migration, cannot be measured on \
                 a sample of the blocks: measure all of them"
            ),
            Self::TooManyAccesses { accesses } => write!(
                f,
                "more than {accesses} block accesses cannot be recorded at once: take a part of \
                 the trace, or larger blocks"
            ),
            Self::TooManyWorkloads => {
                write!(f, "more than 65,536 workloads in one cache cannot be told apart")
            }
            Self::NoMigrationPeriod => write!(f, "a migration period must be longer than 0"),
            Self::NoContentDistance => write!(
                f,
                "distances of contents are those of caches that keep every access: use trd or urd"
            ),
            Self::TooFewSampledBlocks { blocks, least } => {
                write!(f, "a sample of {blocks} blocks is too small: allow at least {least}")
            }
        }
    }
}

impl std::error::Error for LocalityError {}
