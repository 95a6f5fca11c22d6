//! The end of reads and writes of records in transit to the backing store.

use forebay_effect::Outcome;

use crate::shard::destager::{Unread, note_destaged};
use crate::shard::frames::Frame;
use crate::shard::tiers::Tiers;
use crate::shard::{Shard, ShardContext};
use crate::slab::{StretchIndex, TransferIndex};

/// Called when the read of a record to be destaged has ended without usable data.
pub(super) fn record_unread(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    overtaken: bool,
) {
    let unread = shard.destager.record_unread(&mut shard.tiers, context, t, overtaken);
    let Some(Unread { overtaken, stretch }) = unread else { return };
    end_record(shard, context, t, overtaken);
    if stretch != StretchIndex::NONE {
        shard.destager.writes.stretch_read(&mut shard.tiers, context, stretch);
    }
}

/// Called when a write to the backing store has ended: of a part of a record, or of one or more
/// whole records.
pub(super) fn record_written(
    shard: &mut Shard,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    from: Frame,
    result: Outcome,
) {
    let Tiers { blocks, transfers, .. } = &mut shard.tiers;
    if result.is_ok() && transfers.destage_step(blocks, context, t, from) {
        return;
    }
    shard.destager.written(&shard.tiers, t, result);
    let mut t = t;
    while t != TransferIndex::NONE {
        let next = shard.tiers.transfers[t].next;
        end_record(shard, context, t, result.is_ok());
        t = next;
    }
}

/// Ends the transfer of a record that is on the backing store, or is not needed there, or stays
/// dirty.
fn end_record(shard: &mut Shard, context: &mut ShardContext<'_>, t: TransferIndex, written: bool) {
    if written {
        let tiers = &mut shard.tiers;
        note_destaged(&tiers.transfers, &mut tiers.blocks, context, t);
    }
    shard.destager.writes.record_ends(&shard.tiers, t);
    shard.finish(context, t, |_, _, _| {});
}
