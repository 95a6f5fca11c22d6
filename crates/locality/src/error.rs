//! The errors of locality measurements.

/// An error of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalityError {
    /// There are more distinct blocks than 32-bit access times can order.
    #[error(
        "the workload touches more than {distinct_blocks} distinct blocks, too many to measure at \
         once: use a larger block size, use a sampling rate below 1, or measure each volume \
         separately"
    )]
    TooManyBlocks {
        /// The number of distinct blocks at which the measurement stopped.
        distinct_blocks: u64,
    },
    /// A batch whose keys and operations differ in number.
    #[error("a batch holds {keys} keys but {ops} operations: pass one operation for each key")]
    UnequalBatch {
        /// Number of keys.
        keys: usize,
        /// Number of operations.
        ops: usize,
    },
    /// A sampling rate below 2^-33 or above 1.
    #[error("a sampling rate must be at least 2^-33 (1.2e-10) and at most 1")]
    BadRate,
    /// Sampling together with counting by request or with migration, which need every block.
    #[error(
        "hits of whole requests, and hits under periodic migration, cannot be measured on a sample \
         of the blocks: measure all blocks"
    )]
    SampledRequests,
    /// One record has more accesses than 32-bit positions can number.
    #[error(
        "more than {accesses} block accesses cannot be recorded at once: use part of the trace, \
         or larger blocks"
    )]
    TooManyAccesses {
        /// The number of accesses at which recording stopped.
        accesses: u64,
    },
    /// More workloads share a cache than 16-bit numbers can identify.
    #[error("one cache can have at most 65,536 workloads")]
    TooManyWorkloads,
    /// A migration period of 0.
    #[error("the migration period must be greater than 0")]
    NoMigrationPeriod,
    /// Distances of contents were requested for a policy that does not keep every accessed block.
    #[error(
        "distances between contents apply only to caches that admit every accessed block: use trd \
         or urd"
    )]
    NoContentDistance,
    /// A bound on the number of sampled blocks that is too small for a usable curve.
    #[error("a sample of {blocks} blocks is too small: allow at least {least} blocks")]
    TooFewSampledBlocks {
        /// The requested bound.
        blocks: u64,
        /// The smallest bound accepted.
        least: u64,
    },
}
