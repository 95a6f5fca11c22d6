//! The sans-IO flash log: format, regions, reclaim, recovery.
