//! The sizes of blocks and of their parts, and which parts a range of bytes touches.

use core::ops::Range;

use forebay_block::BlockSize;
use forebay_effect::{Place, Segment};
use forebay_flash::{BlockKey, Granules};

use super::ShardContext;
use super::frames::Frame;
use crate::byte_range::ByteRange;

/// The granules of a block that a range of its bytes concerns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcernedGranules {
    /// Granules of which at least one byte is in the range.
    pub touched: Granules,
    /// Granules of which all bytes are in the range.
    pub covered: Granules,
}

/// The sizes of blocks and of their granules. A block has at most 16 granules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granularity {
    block_shift: u32,
    granule_shift: u32,
    all: Granules,
}

impl Granularity {
    pub fn new(block_size: BlockSize) -> Granularity {
        let count = (block_size.bytes() / 512).min(16);
        Granularity {
            block_shift: block_size.shift(),
            granule_shift: block_size.shift() - count.trailing_zeros(),
            all: Granules::range(0, count as u32),
        }
    }

    /// All granules of a block.
    #[inline]
    pub fn all(self) -> Granules {
        self.all
    }

    /// Bytes of a block.
    #[inline]
    pub fn block_size(self) -> u32 {
        1 << self.block_shift
    }

    /// log2 of the bytes of a block.
    #[inline]
    pub fn block_shift(self) -> u32 {
        self.block_shift
    }

    /// log2 of the bytes of a granule.
    #[inline]
    pub fn granule_shift(self) -> u32 {
        self.granule_shift
    }

    /// The granules that `length` bytes at `start` of a block touch and cover.
    #[inline]
    pub fn concerned(self, start: u32, length: u32) -> ConcernedGranules {
        let g = self.granule_shift;
        let bits = |from: u32, to: u32| Granules::range(from, to.saturating_sub(from));
        let end = start + length;
        let touched = bits(start >> g, ((end - 1) >> g) + 1);
        let covered = bits((start + (1 << g) - 1) >> g, end >> g);
        ConcernedGranules { touched, covered }
    }

    /// The granules of a block that are wholly within a byte range of the volume.
    pub fn covered(self, key: BlockKey, range: ByteRange) -> Granules {
        let block = self.start_of(key);
        let end_of_block = block + u64::from(self.block_size());
        let from = range.start.clamp(block, end_of_block);
        let to = range.end.clamp(block, end_of_block);
        if from == to {
            Granules::EMPTY
        } else {
            self.concerned((from - block) as u32, (to - from) as u32).covered
        }
    }

    /// The runs of consecutive granules, as byte ranges of the block.
    pub fn runs(self, granules: Granules) -> impl Iterator<Item = (u32, u32)> {
        granules.runs().map(move |run| self.bytes_of(run))
    }

    /// The offset and the length of consecutive granules, in bytes.
    #[inline]
    pub fn bytes_of(self, run: Range<u32>) -> (u32, u32) {
        (run.start << self.granule_shift, (run.end - run.start) << self.granule_shift)
    }

    /// Total bytes of these granules.
    pub fn bytes(self, granules: Granules) -> u32 {
        granules.count() << self.granule_shift
    }

    /// The start of a block on its volume, in bytes.
    #[inline]
    pub fn start_of(self, key: BlockKey) -> u64 {
        key.block().0 << self.block_shift
    }

    /// Bytes of a block that lie within its volume.
    #[inline]
    pub fn bytes_within(self, context: &ShardContext<'_>, key: BlockKey) -> u32 {
        let size = context.volumes[key.volume()].size;
        size.saturating_sub(self.start_of(key)).min(u64::from(self.block_size())) as u32
    }

    /// Bytes of a block that lie within its volume, as a range of the volume.
    #[inline]
    pub fn range_within(self, context: &ShardContext<'_>, key: BlockKey) -> ByteRange {
        ByteRange::with_length(self.start_of(key), self.bytes_within(context, key))
    }

    /// The granules of a block that are at least partly within its volume.
    pub fn within(self, context: &ShardContext<'_>, key: BlockKey) -> Granules {
        let count = self.bytes_within(context, key).div_ceil(1 << self.granule_shift);
        Granules::range(0, count)
    }

    /// The offset in the block of the first of these granules that is wholly past the end of the
    /// volume.
    pub fn beyond(
        self,
        context: &ShardContext<'_>,
        key: BlockKey,
        granules: Granules,
    ) -> Option<u64> {
        let outside = granules & !self.within(context, key);
        outside.first().map(|first| u64::from(first) << self.granule_shift)
    }

    /// The segments of a record's payload in `frame`: its granules one after another, then the
    /// filling of the last page if the payload is `padded` to whole pages of these bytes.
    pub fn payload(
        self,
        frame: Frame,
        valid: Granules,
        padded: Option<u32>,
    ) -> impl Iterator<Item = Segment> {
        let bytes = self.bytes(valid);
        let pad = padded.map_or(0, |page| bytes.next_multiple_of(page) - bytes);
        let segment =
            move |(offset, length)| Segment { place: Place::Frame { frame, offset }, length };
        self.runs(valid)
            .map(segment)
            .chain((pad > 0).then_some(Segment { place: Place::Void, length: pad }))
    }
}
