//! Volumes of late stores in this shard: a job continues without waiting for their writes. When
//! these writes have ended and the store is synced, their records are clean. Until then no job
//! writes to such a volume: an older version must not reach a store after a newer one.

use forebay_block::Volume;
use forebay_effect::IoError;
use forebay_flash::{BlockKey, Position};

use crate::shard::transfer::TransferKind;
use crate::shard::{Shard, ShardContext};
use crate::volume_set::VolumeSet;

/// See the module.
#[derive(Debug)]
pub(super) struct ApartWrites {
    /// Volumes that are apart.
    volumes: VolumeSet,
    /// Their writes in flight.
    pub in_flight: u32,
    /// Volumes that are apart of which a write has failed.
    failed: VolumeSet,
    /// The error of the last one.
    error: IoError,
    /// Chosen records of these volumes that have been looked at. Not all of them were begun.
    keys: Vec<BlockKey>,
    /// Progress of settling.
    at: usize,
}

impl ApartWrites {
    /// With memory for the keys of two regions of `region_pages` pages.
    pub fn new(region_pages: u32) -> ApartWrites {
        let keys = Vec::with_capacity(2 * region_pages as usize);
        let (volumes, failed) = (VolumeSet::EMPTY, VolumeSet::EMPTY);
        ApartWrites { volumes, in_flight: 0, failed, error: IoError::Device, keys, at: 0 }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<BlockKey>()) as u64
    }

    /// Whether the block's volume is apart.
    #[inline]
    pub fn has(&self, key: BlockKey) -> bool {
        self.volumes.has(key)
    }

    /// The volumes that are apart.
    pub fn volumes(&self) -> VolumeSet {
        self.volumes
    }

    /// A write to the block's volume has failed.
    pub fn note_failed(&mut self, key: BlockKey, error: IoError) {
        self.failed |= VolumeSet::only(key.volume());
        self.error = error;
    }
}

/// The volumes whose part of the job is not done; `None` if the job waits for flash too.
pub(crate) fn awaited(shard: &Shard) -> Option<VolumeSet> {
    if shard.destager.writes.reading > 0 {
        return None;
    }
    let left = shard.destager.parts.iter().filter(|part| part.at < part.end);
    let left: VolumeSet = left.map(|part| part.volume).collect();
    let busy = shard
        .destager
        .busy
        .iter()
        .map(|&at| VolumeSet::only(shard.destager.chosen[at as usize].0.volume()));
    let in_flight = shard.destager.writes.in_flight.iter();
    let written: VolumeSet = in_flight.filter(|&(_, &n)| n > 0).map(|(volume, _)| volume).collect();
    Some(busy.fold(left | written & !shard.destager.apart.volumes, |all, volume| all | volume))
}

/// Whether frames are left for another late volume.
pub(crate) fn has_frames(shard: &Shard) -> bool {
    let (all, left) = (shard.tiers.transfers.bounces() as u32, shard.destager.frames(&shard.tiers));
    left == all || left >= 2
}

/// Writes to the volume that the job has begun.
pub(crate) fn begun(shard: &Shard, volume: Volume) -> u32 {
    shard.destager.writes.begun[volume]
}

/// Whether writes of the volume are in flight.
pub(crate) fn is_writing(shard: &Shard, volume: Volume) -> bool {
    shard.destager.writes.in_flight[volume] > 0
}

/// The error of a failed write to one of these volumes, if any.
pub(crate) fn failed(shard: &Shard, volumes: VolumeSet) -> (VolumeSet, IoError) {
    (shard.destager.apart.failed & volumes, shard.destager.apart.error)
}

/// The job continues without these volumes: no more of their records are begun, and writes in
/// flight end apart.
pub(crate) fn part(shard: &mut Shard, volumes: VolumeSet) {
    let Shard { destager, tiers, .. } = shard;
    let Some(job) = &mut destager.job else { return };
    assert!((destager.apart.volumes & volumes).is_empty(), "a volume that is apart is not cleaned");
    // Writes that have failed so far count when the volumes settle.
    destager.apart.failed |= job.failed_volumes & volumes;
    destager.apart.error = job.error.unwrap_or(destager.apart.error);
    job.failed_volumes |= volumes;
    job.volumes &= !volumes;
    let of = |key: BlockKey| volumes.has(key);
    let looked_at = |at: usize, key: BlockKey| {
        let part = destager.parts.iter().find(|part| part.volume == key.volume());
        part.is_none_or(|part| at < part.at)
    };
    let chosen = destager.chosen.iter().enumerate().map(|(at, (key, _))| (at, *key));
    let mine = chosen.filter(|&(at, key)| of(key) && looked_at(at, key)).map(|(_, key)| key);
    destager.apart.keys.extend(mine);
    destager.parts.retain(|part| !volumes.contains(part.volume));
    destager.busy.retain(|&at| !of(destager.chosen[at as usize].0));
    job.retry = job.retry.min(destager.busy.len());
    destager.apart.volumes |= volumes;
    // A record whose newer version is being appended must not be marked as destaged when its write ends: from the end
    // of the job its cell may hold that newer version.
    for t in tiers.transfers.keys() {
        let Some(transfer) = tiers.transfers.get(t).filter(|transfer| of(transfer.key)) else {
            continue;
        };
        let TransferKind::DestageRecord { rest, from, .. } = transfer.kind else { continue };
        let id = tiers.blocks.find(transfer.key);
        if id.is_none_or(|id| tiers.blocks[id].transfer() != Some(t)) {
            tiers.transfers[t].kind =
                TransferKind::DestageRecord { rest, from, position: Position::NONE };
        }
    }
    let in_flight = destager.writes.in_flight.iter();
    let moved = in_flight.filter(|(volume, _)| volumes.contains(*volume)).map(|(_, n)| n);
    destager.apart.in_flight += moved.sum::<u32>();
}

/// All writes of these volumes have ended, and the records destaged to the `synced` ones are clean.
/// Stops at the budget of the call; returns whether everything was done. Call it with the same
/// volumes until then.
pub(crate) fn mark_clean(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    volumes: VolumeSet,
    synced: VolumeSet,
) -> bool {
    let Shard { destager, tiers, .. } = shard;
    if (destager.apart.volumes & volumes).is_empty() {
        return true;
    }
    while let Some(&key) = destager.apart.keys.get(destager.apart.at) {
        if !context.budget.take() {
            return false;
        }
        if !volumes.has(key) {
            destager.apart.at += 1;
            continue;
        }
        destager.apart.keys.swap_remove(destager.apart.at);
        if let Some(id) = tiers.blocks.find(key) {
            tiers.flash.end_destage(&mut tiers.blocks, context, id, synced.has(key));
        }
    }
    destager.apart.at = 0;
    destager.apart.volumes &= !volumes;
    destager.apart.failed &= !volumes;
    tiers.flash.leave_all(&tiers.blocks, &tiers.transfers, context);
    tiers.evict_from_flash(context);
    true
}
