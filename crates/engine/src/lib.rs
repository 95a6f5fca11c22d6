//! The cache on real devices.
