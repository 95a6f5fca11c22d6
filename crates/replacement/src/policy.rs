//! The protocol between a cache and its replacement policy.

use forebay_block::Volume;

use crate::parameters::{Parameter, Parameters};

/// Facts about a policy that are known without running it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Where it was published.
    pub source: &'static str,
    /// Its weakness, phrased to follow "it".
    pub weakness: &'static str,
    /// The tiers it can order.
    pub tiers: &'static [Tier],
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// A tier that a policy can order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tier {
    /// Frames of DRAM.
    Dram,
    /// Cells of a flash tier in the `slots` layout. (In the `log` layout, recovery relies on the
    /// order in which regions are reclaimed.)
    Slots,
}

impl Tier {
    /// All tiers.
    pub const ALL: &'static [Tier] = &[Tier::Dram, Tier::Slots];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Dram => "dram",
            Tier::Slots => "slots",
        }
    }
}

/// A percentage, from 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Percent(u8);

impl Percent {
    /// 100 %.
    pub const ALL: Percent = Percent(100);

    /// `percent`, or 100 if it is larger.
    pub const fn new(percent: u8) -> Percent {
        Percent(if percent > 100 { 100 } else { percent })
    }

    /// The percentage as a number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What the cache knows about a block that comes in. Policies may ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Where the block enters the queue: the percentage of the cache that is evicted before it. 100
    /// is the protected end. [`position`](crate::position()) computes it.
    pub position: Percent,
    /// The block's volume.
    pub volume: Volume,
    /// The block's chunk: the unit for which statistics are kept.
    pub chunk: u64,
}

impl Default for Hint {
    /// The protected end, volume and chunk 0.
    fn default() -> Self {
        Hint { position: Percent::ALL, volume: Volume(0), chunk: 0 }
    }
}

/// A policy that documents its source and its parameters.
pub trait Documented {
    /// Its source, tiers and parameters.
    const ABOUT: About;
}

/// A replacement policy.
///
/// A node is *free*, *resident*, or has been *evicted*. [`insert`](Policy::insert) makes it
/// resident, [`evict`](Policy::evict) chooses a resident node and makes it evicted. The caller may
/// [`restore`](Policy::restore) an evicted node until it gives the node to another block with
/// `insert`. [`remove`](Policy::remove) makes it free.
///
/// There are `nodes` nodes and room for `capacity` blocks. The policy does not enforce `capacity`:
/// the caller evicts until [`len`](Policy::len) is below it, then inserts. While evicted blocks are
/// still in flight, more than `capacity` nodes may be resident (restored ones and the ones that
/// were to replace them).
///
/// No call takes more than [`steps_max`](Policy::steps_max) steps beyond a constant number.
pub trait Policy: Sized {
    /// Creates a policy for nodes numbered below `nodes`, with room for `capacity` blocks.
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self;

    /// Records a client's access that found the block in `node`, which is resident. Called once for
    /// each access.
    fn on_access(&mut self, node: u32);

    /// Makes the block `key` resident in `node`, which is not resident. This call also counts the
    /// access that brought the block in; `on_access` is not called for it.
    fn insert(&mut self, node: u32, key: u64, hint: Hint);

    /// Chooses the node to evict, in favour of the block `incoming` if that is known. Returns
    /// `None` only if no node is resident.
    ///
    /// Ghost lists are trimmed when the next block comes in, so a `restore` before that leaves them
    /// unchanged. A policy that learns from the `incoming` key does so once for consecutive calls
    /// with the same key.
    fn evict(&mut self, incoming: Option<u64>) -> Option<u32>;

    /// Takes back the eviction of the block in `node`, because the block could not leave or is
    /// needed again before it left. It regains its place and its count, and its ghost is removed.
    /// This is not an access; if there was one, the caller calls `on_access` afterwards.
    ///
    /// The next `evict` chooses the same node again, except that S3-FIFO and W-TinyLFU may choose
    /// one from another queue, and random replacement any node. To get a different one, the caller
    /// evicts first and restores afterwards; it restores several nodes in reverse order of their
    /// eviction.
    fn restore(&mut self, node: u32);

    /// Invalidates the block in `node`: the node becomes free and leaves no ghost. If the node was
    /// evicted, its ghost is removed. Must not be called for a node that is free already.
    fn remove(&mut self, node: u32);

    /// Sets the capacity to `capacity` blocks. The caller evicts the blocks in excess. A capacity
    /// larger than any before allocates memory, and takes time in proportion to it.
    fn set_capacity(&mut self, capacity: u32);

    /// Guesses, at a constant cost, which node is evicted next, or which one follows `after`, a
    /// resident node that this method returned before.
    fn likely_victim(&self, after: Option<u32>) -> Option<u32>;

    /// Starts loading into the processor's cache the data that an access to a node, resident or
    /// not, will read. `near`: the access is imminent, and the data that a first call, without
    /// `near`, requested should have arrived.
    #[inline]
    fn prefetch(&self, node: u32, near: bool) {
        let _ = (node, near);
    }

    /// Starts loading the data that the policy will read for the key of a block that is not
    /// resident and may come in.
    #[inline]
    fn prefetch_absent(&self, key: u64, near: bool) {
        let _ = (key, near);
    }

    /// Resident nodes in their likely order of eviction, each at most once. A hint for prefetching
    /// and for ordering destages, never a guarantee; it may end early.
    fn likely_victims(&self) -> LikelyVictims<'_, Self> {
        LikelyVictims { policy: self, last: None, left: self.len() }
    }

    /// Number of resident nodes.
    fn len(&self) -> u32;

    /// Whether no node is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All memory that the policy uses, in bytes. Only `set_capacity` changes it.
    fn metadata_bytes(&self) -> u64;

    /// The maximum number of steps in one call. A step is a node that a hand passes, a node that
    /// moves between sub-queues, or a ghost that is trimmed.
    fn steps_max(_parameters: &Parameters) -> u64 {
        0
    }

    /// The steps that all calls have taken since construction.
    fn steps(&self) -> u64 {
        0
    }
}

/// See [`Policy::likely_victims`].
#[derive(Debug)]
pub struct LikelyVictims<'a, P> {
    policy: &'a P,
    last: Option<u32>,
    left: u32,
}

impl<P: Policy> Iterator for LikelyVictims<'_, P> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let Some(node) = self.policy.likely_victim(self.last) else {
            self.left = 0;
            return None;
        };
        self.last = Some(node);
        Some(node)
    }
}
