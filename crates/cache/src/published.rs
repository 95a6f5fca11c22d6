//! Hits without calls: the reads that the driver may answer without asking the cache.
//!
//! The driver asks whether a block may be *published*. If so, it may answer reads of the block from
//! the block's frame until the cache names that frame as withdrawn. The driver must ask for
//! withdrawn frames after each call, before it performs the next effect. Every change of a block's
//! state withdraws it, even a change that makes no difference to readers; the next read of the
//! block that is a call may publish it again. The driver reports the reads later, in any order.

use forebay_block::{Nanos, Op, Volume};
use forebay_effect::Frame;
use forebay_flash::BlockKey;

use crate::cache::VOLUMES_MAX;
use crate::world::World;

/// The key under which a block would be published; `None` if there is no such block in any volume.
#[inline]
pub(crate) fn key_of(volume: Volume, block: u64) -> Option<BlockKey> {
    let exists = volume.index() < VOLUMES_MAX && block < BlockKey::BLOCKS_MAX;
    exists.then(|| BlockKey::new(volume, block))
}

/// Publishes the block of this byte, if all of it is in memory and in the volume, and nothing is in
/// flight.
pub(crate) fn publish(world: &mut World, volume: Volume, offset: u64) -> Option<(BlockKey, Frame)> {
    let size = world.config.block_size;
    let v = world.volumes.get(volume)?;
    let end = (offset - size.within(offset)).checked_add(size.bytes())?;
    if !world.lifecycle.is_ready() || end > v.size {
        return None;
    }
    let (n, key) = world.place_of(volume, offset);
    let frame = world.shards[n].tiers.blocks.publish(key)?;
    Some((key, frame))
}

/// Notes that the driver has answered a read of one published block at this time.
pub(crate) fn note_hit(
    world: &mut World,
    now: Nanos,
    (volume, offset, length): (Volume, u64, u64),
) {
    world.advance_time(now);
    if world.read_hit(volume, offset, length).is_some() {
        return;
    }
    // The block has left since, or is leaving: the replacement policy no longer knows it.
    let Some(v) = world.volumes.get_mut(volume) else { return };
    v.stats.reads += 1;
    v.stats.read_bytes += length;
    v.stats.read_hits.tier1 += 1;
    v.is_streaming(Op::Read, (offset, length), world.config.bypass);
    world.shards[0].count_request();
}
