//! Readers and writers of block traces, features, synthetic workloads.
