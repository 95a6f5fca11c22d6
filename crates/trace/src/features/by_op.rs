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
    /// Both. (Not always the sum: a block may be read and written.)
    pub all: T,
}
