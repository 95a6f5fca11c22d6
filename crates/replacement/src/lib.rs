//! Replacement policies choose the block to evict when another comes in; [admission
//! policies](Admission) decide which blocks may enter flash. [`Queues`] choose, once in an
//! interval, the blocks that leave flash and those that enter it.
//!
//! A policy orders **nodes**, which are places numbered from 0: the frames of a DRAM tier, or the
//! cells of a flash tier in the `slots` layout. It knows nothing of masks, dirty data or devices,
//! does no I/O, reads no clock, allocates nothing after construction, and gives the same answers to
//! the same calls on every machine. [`Policy`] is the protocol; a [`Replacement`] is an instance of
//! the policy that its [`Kind`] names. The caller keeps the index from keys to nodes:
//!
//! ```
//! use std::collections::HashMap;
//! use forebay_replacement::{Hint, Kind, Parameters, Policy, Replacement};
//!
//! let capacity = 2;
//! let mut policy = Replacement::new(capacity, capacity, &Parameters::new(Kind::Sieve));
//! let mut index: HashMap<u64, u32> = HashMap::new();
//! let mut keys = [0; 2];
//! let mut free = vec![1, 0];
//! let mut hits = 0;
//! for key in [1, 2, 1, 3, 1] {
//!     if let Some(&node) = index.get(&key) {
//!         policy.on_access(node);
//!         hits += 1;
//!         continue;
//!     }
//!     while policy.len() >= capacity {
//!         let victim = policy.evict(Some(key)).expect("not empty");
//!         index.remove(&keys[victim as usize]);
//!         free.push(victim);
//!     }
//!     let node = free.pop().expect("room was made");
//!     policy.insert(node, key, Hint::default());
//!     keys[node as usize] = key;
//!     index.insert(key, node);
//! }
//! assert_eq!(hits, 2);
//! ```
//!
//! **To add a policy**: write `policies/NAME.rs` with a type that implements [`Policy`] and
//! [`Documented`], and add a `mod` and a line to the registry in `policies/mod.rs`. The line
//! provides the name in configurations, the entry in [`Kind::ALL`], construction and dispatch, and
//! through `ALL` the property tests and the bench. Then write its oracle from the paper, in
//! `tests/oracle/`.
//!
//! A policy allocates its memory when it is constructed, and more only when its capacity grows;
//! [`Policy::metadata_bytes`] reports all of it.

mod admission;
mod alone;
mod chunks;
mod gains;
mod ghosts;
mod hash;
mod links;
mod parameters;
mod policies;
mod policy;
mod popularity;
mod position;
mod positions;
mod queues;
mod sketch;

pub use admission::{Admission, AdmissionKind, AdmissionParameters, Offer};
pub use alone::{Access, Alone, Hints, Hits};
pub use chunks::ChunkHitRatios;
pub use links::{Links, List};
pub use parameters::{Parameter, ParameterError, Parameters};
pub use policies::{
    Arc, Clock, DerivativeLru, Fifo, HrLru, Kind, Lfu, Lru, PriorityLru, Random, Replacement,
    S3Fifo, Sieve, TwoQ, UnknownKind, WTinyLfu,
};
pub use policy::{About, Documented, Hint, LikelyVictims, Percent, Policy, Tier};
pub use popularity::Popularity;
pub use position::{PositionRule, Standing, position};
pub use positions::Positions;
pub use queues::{QueueParameters, Queues};
