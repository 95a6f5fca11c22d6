//! Figures by operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure for reads, for writes, and for both together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByOp<T> {
    /// Reads.
    pub read: T,
    /// Writes, including write-zeroes.
    pub write: T,
    /// Reads and writes together. (Not always their sum: a block may be both read and written.)
    pub all: T,
}
