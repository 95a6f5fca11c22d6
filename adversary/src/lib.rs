//! Deterministic fault simulation and its oracles.
