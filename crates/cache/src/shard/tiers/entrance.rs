//! How blocks enter memory only in transit to a client or to flash.

use forebay_effect::{Place, Segment};
use forebay_flash::BlockKey;

use crate::byte_range::ByteRange;
use crate::shard::blocks::Blocks;
use crate::shard::dram::Dram;
use crate::shard::entry::EntryId;
use crate::shard::flash_tier::{FlashTier, IfEvicted};
use crate::shard::frames::Frame;
use crate::shard::transfer::{TransferKind, Way};
use crate::shard::transfers::Transfers;
use crate::shard::{Piece, ShardContext};

/// The parts through which a block enters memory in transit, always together: its entry and frame, how memory and
/// flash count it, and the read that brings it.
pub(super) struct Entrance<'a> {
    pub blocks: &'a mut Blocks,
    pub dram: &'a mut Dram,
    pub flash: &'a mut FlashTier,
    pub transfers: &'a mut Transfers,
}

impl Entrance<'_> {
    /// The block has a frame until its operation has ended.
    pub fn enter_in_transit(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        frame: Frame,
        piece: Option<&mut Piece>,
    ) {
        self.blocks.passes(id, frame);
        let known = self.blocks[id].position().is_some();
        self.dram.enter_in_transit(self.blocks.local(frame), self.blocks[id].key(), piece, known);
        self.flash.update_residence(self.blocks, id, IfEvicted::Leaves);
        self.blocks.zero_beyond(context, id, frame);
    }

    /// Begins to read these bytes, a block without an entry, into a free frame: it is to enter flash. Returns the
    /// frame, and whether the block has a read of its own, not one with the block before it; `None` if the index is
    /// full.
    pub fn fetch(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        range: ByteRange,
    ) -> Option<(Frame, bool)> {
        let id = self.blocks.insert(key)?;
        let frame = self.blocks.take_frame(id).expect("a free frame is available");
        self.enter_in_transit(context, id, frame, None);
        let place = Place::Frame { frame, offset: 0 };
        let segment = Some(Segment { place, length: range.length() });
        let kind = TransferKind::FetchLine;
        let alike = |other: &mut TransferKind| *other == kind;
        let before = self.transfers.open_run(Way::In);
        let run = self.transfers.run(context, key, range, kind, segment, alike);
        self.blocks[id].set_transfer(Some(run));
        Some((frame, before != Some(run)))
    }
}
