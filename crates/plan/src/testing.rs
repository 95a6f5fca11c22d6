//! Hand-made workloads, for tests.

use proptest::prelude::*;

use crate::{Catalogue, Combination, Hierarchy, HitCounts, WritePolicy};

/// Hits that jump at a few cache sizes.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    pub reads: u64,
    pub writes: u64,
    /// (blocks, read hits, write hits), ascending.
    pub at: Vec<(u64, u64, u64)>,
    pub footprint: u64,
}

impl Steps {
    fn upto(&self, blocks: u64) -> (u64, u64) {
        let last = self.at.iter().take_while(|s| s.0 <= blocks).last();
        last.map_or((0, 0), |s| (s.1, s.2))
    }
}

impl HitCounts for Steps {
    fn reads(&self) -> u64 {
        self.reads
    }
    fn writes(&self) -> u64 {
        self.writes
    }
    fn read_hits(&self, blocks: u64) -> u64 {
        self.upto(blocks).0
    }
    fn write_hits(&self, blocks: u64) -> u64 {
        self.upto(blocks).1
    }
    fn footprint_blocks(&self) -> u64 {
        self.footprint
    }
}

/// A hierarchy of the default catalogue's devices.
pub(crate) fn hierarchy<const N: usize>(
    tiers: [&str; N],
    backing: &str,
    policy: WritePolicy,
) -> Hierarchy {
    let combination =
        Combination { tiers: tiers.map(String::from).to_vec(), backing: backing.into() };
    Hierarchy::new(&Catalogue::default(), &combination, policy).unwrap()
}

/// Random hits over up to `units` allocation units of 256 blocks, in a few steps.
pub(crate) fn steps(units: u64) -> impl Strategy<Value = Steps> {
    let jump = (1..=units * 256, 0u64..400, 0u64..200);
    (prop::collection::vec(jump, 1..12), 1u64..600, 0u64..300).prop_map(
        move |(mut jumps, cold_reads, cold_writes)| {
            jumps.sort_unstable();
            jumps.dedup_by_key(|j| j.0);
            let (mut reads, mut writes) = (0, 0);
            let mut at = Vec::new();
            for (blocks, r, w) in jumps {
                reads += r;
                writes += w;
                at.push((blocks, reads, writes));
            }
            Steps {
                reads: reads + cold_reads,
                writes: writes + cold_writes,
                at,
                footprint: units * 256,
            }
        },
    )
}

/// Any of the default catalogue's 17 combinations, under either policy.
pub(crate) fn any_hierarchy() -> impl Strategy<Value = Hierarchy> {
    let policy = prop_oneof![Just(WritePolicy::WriteThrough), Just(WritePolicy::WriteBack)];
    (0..17usize, policy).prop_map(|(index, policy)| {
        let catalogue = Catalogue::default();
        Hierarchy::new(&catalogue, &catalogue.combinations()[index], policy).unwrap()
    })
}
