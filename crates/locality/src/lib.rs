//! Reuse distances and miss-ratio curves.
