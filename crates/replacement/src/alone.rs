//! A cache that consists of a replacement policy only, without tiers, devices or time. Every missed
//! block, read or written, is inserted. Hit-ratio curves come from running the same accesses at
//! many sizes.

use crate::{Hint, Parameters, Policy, Replacement};

/// No node.
const NONE: u32 = u32::MAX;

/// An access to a block. Block numbers start at 0 and have 31 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u32);

impl Access {
    /// Maximum number of blocks.
    pub const BLOCKS_MAX: u32 = 1 << 31;

    /// An access to this block.
    pub fn new(block: u32, is_write: bool) -> Self {
        debug_assert!(block < Self::BLOCKS_MAX);
        Self(block << 1 | u32::from(is_write))
    }

    /// The number of the block.
    pub fn block(self) -> u32 {
        self.0 >> 1
    }

    /// Whether it writes.
    pub fn is_write(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Number of accesses that hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// Hits of reads.
    pub reads: u64,
    /// Hits of writes.
    pub writes: u64,
}

/// Called for each access, with its index in the slice, the access, and whether it hits. Returns
/// the hint with which a missed block is inserted.
pub type Hints<'a> = dyn FnMut(usize, Access, bool) -> Hint + 'a;

/// A cache that consists of its policy only.
///
/// ```
/// use forebay_replacement::{Access, Alone, Hits, Kind, Parameters};
///
/// let mut cache = Alone::new(2, 3, &Parameters::new(Kind::Lru));
/// let accesses = [0, 1, 0, 2, 0, 1].map(|block| Access::new(block, false));
/// let hits = cache.access_all(&accesses, &[100, 101, 102], None);
/// assert_eq!(hits, Some(Hits { reads: 2, writes: 0 }));
/// ```
#[derive(Debug)]
pub struct Alone {
    policy: Replacement,
    capacity: u32,
    /// The node of each block; `NONE` if it is not resident.
    node_of: Vec<u32>,
    /// The block in each node.
    block_in: Vec<u32>,
}

impl Alone {
    /// An empty cache of `capacity` blocks, at least 1, for accesses to blocks numbered below
    /// `blocks`.
    pub fn new(capacity: u32, blocks: usize, parameters: &Parameters) -> Self {
        Self {
            policy: Replacement::new(capacity, capacity, parameters),
            capacity,
            node_of: vec![NONE; blocks],
            block_in: vec![0; capacity as usize],
        }
    }

    /// Runs the accesses in order; `keys` has the key of each block. Returns the number of hits, or
    /// `None` if the policy finds nothing to evict in a full cache.
    pub fn access_all(
        &mut self,
        accesses: &[Access],
        keys: &[u64],
        mut hints: Option<&mut Hints<'_>>,
    ) -> Option<Hits> {
        let mut hits = Hits::default();
        for (at, &access) in accesses.iter().enumerate() {
            let block = access.block() as usize;
            let node = self.node_of[block];
            let hit = node != NONE;
            let hint = hints.as_mut().map_or_else(Hint::default, |hints| hints(at, access, hit));
            if hit {
                self.policy.on_access(node);
                hits.writes += u64::from(access.is_write());
                hits.reads += u64::from(!access.is_write());
            } else {
                self.take_in(block, keys[block], hint)?;
            }
        }
        Some(hits)
    }

    fn take_in(&mut self, block: usize, key: u64, hint: Hint) -> Option<()> {
        let mut node = self.policy.len();
        if node == self.capacity {
            node = self.policy.evict(Some(key))?;
            self.node_of[self.block_in[node as usize] as usize] = NONE;
        }
        self.policy.insert(node, key, hint);
        self.node_of[block] = node;
        self.block_in[node as usize] = block as u32;
        Some(())
    }
}
