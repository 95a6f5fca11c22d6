//! Trace replay and load generation.
