//! Syncs of stores for the sake of flash. Where a store has unsynced writes, a power cut could undo what it holds,
//! and a clean record on flash would then disagree with it. Such blocks stay out of flash until a sync, and without
//! these syncs only a client's flush would end that.

use forebay_block::Volume;

use crate::shard::ShardContext;
use crate::volume::SyncWaiter;

/// How many blocks are kept out before a sync is worth its time. It takes about as long as a few reads of the store,
/// and each block that was kept out may cost one.
const WORTH_A_SYNC: u32 = 256;
/// So many at least where memory is tiny.
const WORTH_A_SYNC_MIN: u32 = 4;

/// Syncs a store that has unsynced writes, unless it has failed.
pub(super) fn sync_store(context: &mut ShardContext<'_>, volume: Volume) {
    let v = &context.volumes[volume];
    if v.owes_sync() && !v.sync_failed() && v.last_errors.write.is_none() {
        context.volumes.sync(volume, SyncWaiter::Flash, context.effects);
    }
}

/// A clean block has stayed out of flash because its store has unsynced writes. The store is synced when that has
/// happened to as many blocks as memory holds, or enough of them: those that leave later can enter.
pub(super) fn note_kept_out(context: &mut ShardContext<'_>, volume: Volume) {
    let enough = context.config.dram_blocks.clamp(WORTH_A_SYNC_MIN, WORTH_A_SYNC);
    let v = &mut context.volumes[volume];
    v.kept_out = v.kept_out.saturating_add(1);
    if v.kept_out >= enough && !v.is_syncing() {
        sync_store(context, volume);
    }
}
