//! The protocol between a cache and its replacement policy.

use forebay_block::Volume;

use crate::parameters::{Parameter, Parameters};

/// What is known of a policy without running it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Where it was published.
    pub source: &'static str,
    /// Where it does badly, as what follows "it".
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
    /// Cells of a flash tier in the `slots` layout. (In the `log` layout the order in which
    /// regions are reclaimed is what recovery stands on.)
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

    /// `percent`, or 100 where it is more.
    pub const fn new(percent: u8) -> Percent {
        Percent(if percent > 100 { 100 } else { percent })
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What the cache knows of a block that comes in. Policies that have no use for it ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Where in the queue the block begins: the part of the cache that gives way before it. 100 is
    /// the protected end. [`position`](crate::position()) computes it.
    pub position: Percent,
    /// The block's volume.
    pub volume: Volume,
    /// The block's chunk: whatever statistics are kept by.
    pub chunk: u64,
}

impl Default for Hint {
    /// The protected end, volume and chunk 0.
    fn default() -> Self {
        Hint { position: Percent::ALL, volume: Volume(0), chunk: 0 }
    }
}

/// A policy that says where it comes from and what can be set.
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
/// the caller evicts until [`len`](Policy::len) is below it, then inserts. While blocks are on
/// their way out, more than `capacity` nodes may be resident (restored ones as well as the ones
/// that were to replace them).
///
/// No call takes more than [`steps_max`](Policy::steps_max) steps beyond a constant number.
pub trait Policy: Sized {
    /// A policy over nodes below `nodes`, with room for `capacity` blocks.
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self;

    /// A client's access found the block in `node`, which is resident. Called once for each access.
    fn on_access(&mut self, node: u32);

    /// The block `key` becomes resident in `node`, which is not. The access that brought it in is
    /// told of by this call alone.
    fn insert(&mut self, node: u32, key: u64, hint: Hint);

    /// Chooses who gives way, to the block `incoming` if that is known. `None` only if nothing is
    /// resident.
    ///
    /// Ghosts are cut to size when the next block comes in, so that a `restore` before that leaves
    /// them as they were. A policy that learns from the `incoming` key does so once for calls in
    /// a row with the same key.
    fn evict(&mut self, incoming: Option<u64>) -> Option<u32>;

    /// The block in `node`, which was evicted, could not leave, or is wanted again before it left. It
    /// gets the place and the count that it had, and leaves no ghost. This is not an access; where
    /// there was one, `on_access` follows.
    ///
    /// The next `evict` names the node again. A caller who wants another one evicts first and restores
    /// afterwards; of several it restores the last one first.
    fn restore(&mut self, node: u32);

    /// The block in `node` is invalidated: it is resident no longer and leaves no ghost. For a node that
    /// was evicted the ghost is forgotten. Not for a node that is free already.
    fn remove(&mut self, node: u32);

    /// There is room for `capacity` blocks from now on. The caller evicts those that are too many. A
    /// capacity larger than any before takes memory, and time in proportion to it.
    fn set_capacity(&mut self, capacity: u32);

    /// A node that gives way early: the first one, or the one after `after`, a resident node that
    /// this method named. This is a guess, at a constant cost.
    fn likely_victim(&self, after: Option<u32>) -> Option<u32>;

    /// Starts loading into the processor's cache what an access to a node, resident or not, will look
    /// at; `near` when that is imminent, and what the first call asked for should be there.
    #[inline]
    fn prefetch(&self, node: u32, near: bool) {
        let _ = (node, near);
    }

    /// Starts loading what the policy will look at for the key of a block that is not resident, and may come in.
    #[inline]
    fn prefetch_absent(&self, key: u64, near: bool) {
        let _ = (key, near);
    }

    /// Resident nodes from the one that is likely to give way first, each at most once. A hint for
    /// prefetching and for ordering destages, never a promise; it may end early.
    fn likely_victims(&self) -> LikelyVictims<'_, Self> {
        LikelyVictims { policy: self, last: None, left: self.len() }
    }

    /// Resident nodes.
    fn len(&self) -> u32;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory the policy takes, all of it. Only `set_capacity` changes it.
    fn metadata_bytes(&self) -> u64;

    /// The most steps that one call takes: nodes that a hand passes, that move between
    /// sub-queues, ghosts that are cut off.
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
