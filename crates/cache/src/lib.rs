//! The sans-IO cache: Front and Shards.
