//! The state of one cached block, in 28 bytes.

mod flags;

use forebay_flash::{BlockKey, Granules, Position};

use crate::shard::frames::Frame;
use crate::slab::{Key, TransferIndex};

/// "No frame", "no position" in the compact fields.
const NONE: u32 = u32::MAX;

crate::slab::keys! {
    /// The number of an entry in the index.
    EntryId
}

impl EntryId {
    /// The first entry.
    pub const FIRST: EntryId = EntryId(0);
}

/// Keys from here on belong to no block, because volume numbers are small. The lower half of a
/// vacant entry's key is the number of the next vacant entry.
const NO_KEY: u64 = 0xffff_ffff_0000_0000;

const TRANSFER_BITS: u32 = 24;
const TRANSFER_NONE: u32 = (1 << TRANSFER_BITS) - 1;
/// Most transfers of a shard: an entry has 24 bits for the number of its transfer.
pub(crate) const TRANSFERS_MAX: u32 = TRANSFER_NONE;

/// Flag in the number of a frame: reads are answered from the frame without a call.
pub(crate) const PUBLISHED: u32 = 1 << 31;

/// The state of one cached block.
///
/// Only `transitions.rs` changes the four sets of granules. `valid` and `dirty` describe the
/// DRAM frame, `flash_valid` and `flash_dirty` the newest record in the log. *Dirty* in DRAM means
/// newer than the log (or, without flash, newer than the backing store). Dirty on flash means newer
/// than the durable data on the backing store. Dirty and not valid on flash means that the newest
/// data is *lost*. Invariant: a frame with dirty granules holds every granule that the record
/// holds, so a newer record always replaces an older one as a whole.
#[derive(Clone, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Entry {
    key: u64,
    /// Frame, and perhaps [`PUBLISHED`]; or [`NONE`].
    frame: u32,
    /// First page of the newest record's payload, or [`NONE`].
    position: u32,
    pub(super) valid: Granules,
    pub(super) dirty: Granules,
    pub(super) flash_valid: Granules,
    pub(super) flash_dirty: Granules,
    /// Current transfer (24 bits) and flags (8 bits, see `flags.rs`).
    state: u32,
}

const _: () = assert!(size_of::<Entry>() == 28, "an index has millions of entries");

impl Entry {
    const VACANT: Entry = Entry {
        key: NO_KEY,
        frame: NONE,
        position: NONE,
        valid: Granules::EMPTY,
        dirty: Granules::EMPTY,
        flash_valid: Granules::EMPTY,
        flash_dirty: Granules::EMPTY,
        state: TRANSFER_NONE,
    };

    /// A vacant entry, before the next one in the list of vacant entries.
    pub fn vacant(next: EntryId) -> Entry {
        Entry { key: NO_KEY | u64::from(next.number()), ..Entry::VACANT }
    }

    /// The next entry in the list of vacant entries.
    pub fn next_vacant(&self) -> EntryId {
        EntryId::new(self.key as u32)
    }

    /// The entry of a block with no data yet.
    pub fn new(key: BlockKey) -> Entry {
        Entry { key: key.0, ..Entry::VACANT }
    }

    #[inline]
    pub fn is_of(&self, key: BlockKey) -> bool {
        self.key == key.0 && key.0 < NO_KEY
    }

    pub fn key(&self) -> BlockKey {
        BlockKey(self.key)
    }

    pub fn is_vacant(&self) -> bool {
        self.key >= NO_KEY
    }

    pub fn frame(&self) -> Option<Frame> {
        (self.frame != NONE).then_some(Frame(self.frame & !PUBLISHED))
    }

    pub fn set_frame(&mut self, frame: Option<Frame>) {
        self.frame = frame.map_or(NONE, |s| s.0);
    }

    /// Whether the driver answers reads from the frame without a call.
    #[inline]
    pub fn is_published(&self) -> bool {
        self.frame & PUBLISHED != 0 && self.frame != NONE
    }

    /// Notes whether the driver answers reads from the frame without a call.
    pub fn set_published(&mut self, published: bool) {
        if let Some(Frame(frame)) = self.frame() {
            self.frame = frame | if published { PUBLISHED } else { 0 };
        }
    }

    pub fn position(&self) -> Option<Position> {
        (self.position != NONE).then_some(Position(self.position))
    }

    pub(super) fn set_position(&mut self, position: Option<Position>) {
        self.position = position.map_or(NONE, |p| p.0);
    }

    /// The transfer that holds this block. There is at most one; every other access waits.
    pub fn transfer(&self) -> Option<TransferIndex> {
        let t = self.state & TRANSFER_NONE;
        (t != TRANSFER_NONE).then_some(TransferIndex::new(t))
    }

    /// Notes the transfer that holds this block, or that none does any more.
    ///
    /// # Panics
    /// If another holds it.
    pub fn set_transfer(&mut self, transfer: Option<TransferIndex>) {
        assert!(transfer.is_none() || self.transfer().is_none(), "two transfers hold one block");
        let t = transfer.map_or(TRANSFER_NONE, Key::number);
        self.state = (self.state & !TRANSFER_NONE) | t;
    }

    #[inline]
    fn flags(&self) -> u8 {
        (self.state >> TRANSFER_BITS) as u8
    }

    #[inline]
    fn set_flags(&mut self, flags: u8) {
        self.state = self.state & TRANSFER_NONE | u32::from(flags) << TRANSFER_BITS;
    }

    /// Granules that the frame holds.
    #[inline]
    pub fn valid(&self) -> Granules {
        self.valid
    }

    /// Granules of the frame that are newer than the log or, without flash, than the backing store.
    #[inline]
    pub fn dirty(&self) -> Granules {
        self.dirty
    }

    /// Granules that the newest record holds.
    #[inline]
    pub fn flash_valid(&self) -> Granules {
        self.flash_valid
    }

    /// Granules whose newest data on flash, present or lost, the backing store may lack.
    #[inline]
    pub fn flash_dirty(&self) -> Granules {
        self.flash_dirty
    }

    /// Granules of the record that the backing store may lack.
    pub fn owed(&self) -> Granules {
        self.flash_dirty & self.flash_valid
    }

    /// Granules that the record should hold for the backing store but has lost.
    pub fn lost_on_flash(&self) -> Granules {
        self.flash_dirty & !self.flash_valid
    }

    /// Granules whose newest data is lost: the record has lost them, and memory does not hold newer
    /// data.
    pub fn lost(&self) -> Granules {
        self.lost_on_flash() & !self.valid
    }

    /// Whether the frame holds every granule that the record holds.
    pub(super) fn holds_record(&self) -> bool {
        (self.flash_valid & !self.valid).is_empty()
    }

    /// The record, if it is dirty.
    #[inline]
    pub fn dirty_record(&self) -> Option<Position> {
        self.position().filter(|_| !self.flash_dirty.is_empty())
    }

    /// Whether the block is dirty, or a start could find a record of it.
    pub fn is_bound(&self) -> bool {
        self.position != NONE || !self.dirty.is_empty() || self.is_doubtful()
    }

    /// Whether the block is in memory, clean, without a record and without a transfer, and stays so
    /// for now.
    pub fn rests(&self) -> bool {
        let pending = self.is_leaving() || self.is_append_due() || self.is_doubtful();
        let idle = self.transfer().is_none() && self.position().is_none() && !pending;
        idle && self.frame().is_some() && !self.valid.is_empty() && self.dirty.is_empty()
    }

    /// Whether the block holds data that the backing store may lack.
    pub fn is_dirty(&self) -> bool {
        !(self.dirty | self.flash_dirty).is_empty()
    }
}

/// The rarely used state of a block's newest record, kept only where there is flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordNode {
    /// CRC-32C of its payload.
    pub checksum: u32,
    /// Neighbours in the list of its region.
    pub next: EntryId,
    pub prev: EntryId,
}

impl RecordNode {
    pub const NONE: RecordNode =
        RecordNode { checksum: 0, next: EntryId::NONE, prev: EntryId::NONE };
}
