//! Checks, for tests and the adversary, of what must hold for all blocks between calls.

use forebay_block::{PerVolume, Volume};

use super::Shard;
use super::entry::EntryId;
use super::transfer::TransferKind;
use crate::slab::Key;
use crate::volumes::Volumes;

/// Blocks of a volume, counted one by one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct BlockCounts {
    dirty: u64,
    /// Blocks with a dirty record.
    owed: u64,
}

/// Checks that each block is in a state that may last, and that the counts over all blocks are
/// right.
///
/// # Panics
/// If a block or a count is wrong.
pub(crate) fn check_blocks(shards: &[Shard], volumes: &Volumes) {
    let mut counts = PerVolume::filled(BlockCounts::default(), volumes.len());
    shards.iter().for_each(|shard| check_shard(shard, &mut counts));
    let right = |(volume, counted): (Volume, &BlockCounts)| {
        let v = &volumes[volume];
        let known = BlockCounts { dirty: v.stats.dirty_blocks, owed: v.owed };
        assert_eq!(known, *counted, "dirty blocks of {volume:?}");
        counted.dirty
    };
    assert_eq!(volumes.dirty_blocks, counts.iter().map(right).sum::<u64>(), "dirty blocks");
}

/// Checks the blocks of a shard, and adds them to the counts.
fn check_shard(shard: &Shard, counts: &mut PerVolume<BlockCounts>) {
    let tiers = &shard.tiers;
    let blocks = &tiers.blocks;
    assert_eq!(tiers.marked, None, "a mark outlives the step that it was made for");
    let (mut lost, mut flushing) = (0, PerVolume::filled(0, counts.len()));
    for id in (0..blocks.capacity()).map(EntryId::new).filter(|&id| !blocks[id].is_vacant()) {
        let e = &blocks[id];
        let transfer = e.transfer().map(|t| tiers.transfers[t].kind);
        let destages = matches!(transfer, Some(TransferKind::Destage { .. }));
        if let Some(fault) = e.fault(destages) {
            panic!("block {}: {fault}: {e:?}, {transfer:?}", e.key());
        }
        let volume = e.key().volume();
        lost += u32::from(!e.lost_on_flash().is_empty());
        flushing[volume] += u32::from(e.is_flushing());
        counts[volume].dirty += u64::from(e.is_dirty());
        counts[volume].owed += u64::from(e.dirty_record().is_some());
    }
    assert_eq!(blocks.lost(), lost, "blocks with lost data");
    tiers.flushes.check(&flushing);
}
