//! Device catalogue, cost model and tier sizing.
