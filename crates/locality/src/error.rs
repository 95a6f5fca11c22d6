//! The errors of locality measurements.

/// A failure of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalityError {
    /// More distinct blocks are alive than 32-bit access times can order.
    #[error(
        "the workload touches more than {distinct_blocks} distinct blocks, too many to measure at \
         once: use a larger block size, use a sampling rate below 1, or measure each volume \
         separately"
    )]
    TooManyBlocks {
        /// The number of distinct blocks at which measuring stopped.
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
    /// A sampling rate outside (0, 1].
    #[error("a sampling rate must be at least 2^-33 (1.2e-10) and at most 1")]
    BadRate,
    /// Sampling together with counting by request or with migration, which need every block.
    #[error(
        "hits of whole requests, and hits under periodic migration, cannot be measured on a sample \
         of the blocks: measure all blocks"
    )]
    SampledRequests,
    /// More accesses of one record than positions can tell apart.
    #[error(
        "more than {accesses} block accesses cannot be recorded at once: use a part of the trace, \
         or larger blocks"
    )]
    TooManyAccesses {
        /// The number of accesses at which recording stopped.
        accesses: u64,
    },
    /// More workloads share a cache than can be told apart.
    #[error("one cache can have at most 65,536 workloads")]
    TooManyWorkloads,
    /// A migration period of no time at all.
    #[error("the migration period must be greater than 0")]
    NoMigrationPeriod,
    /// Contents together with a distance of a policy that forgets blocks on some accesses.
    #[error(
        "distances between contents apply only to caches that admit every accessed block: use trd \
         or urd"
    )]
    NoContentDistance,
    /// A bound on sampled blocks below the smallest that gives a usable curve.
    #[error("a sample of {blocks} blocks is too small: allow at least {least} blocks")]
    TooFewSampledBlocks {
        /// The bound asked for.
        blocks: u64,
        /// The smallest bound accepted.
        least: u64,
    },
}
