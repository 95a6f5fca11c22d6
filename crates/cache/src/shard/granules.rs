//! Granules: the parts of a block that masks speak of.

use forebay_flash::BlockKey;

use super::{Shard, ShardContext};

impl Shard {
    /// Granules touched by `length` bytes at `start` of a block, and those covered whole.
    pub(super) fn masks(&self, start: u32, length: u32) -> (u16, u16) {
        let g = self.granule_shift;
        let bits = |from: u32, to: u32| -> u16 {
            if from >= to { 0 } else { (((1_u32 << (to - from)) - 1) << from) as u16 }
        };
        let end = start + length;
        let touched = bits(start >> g, ((end - 1) >> g) + 1);
        let covered = bits((start + (1 << g) - 1) >> g, end >> g);
        (touched, covered)
    }

    /// The runs of consecutive granules in `mask`, as byte ranges of the block.
    pub(super) fn granule_runs(&self, mask: u16) -> impl Iterator<Item = (u32, u32)> + use<> {
        let shift = self.granule_shift;
        let mut rest = u32::from(mask);
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let from = rest.trailing_zeros();
            let count = (rest >> from).trailing_ones();
            rest &= !(((1_u32 << count) - 1) << from);
            Some((from << shift, count << shift))
        })
    }

    /// Bytes of a block that lie within its volume.
    pub(super) fn block_bytes(&self, context: &ShardContext<'_>, key: BlockKey) -> u32 {
        let size = context.front.volumes[usize::from(key.volume())].size;
        let start = key.block().0 << self.block_shift;
        size.saturating_sub(start).min(u64::from(self.block_size)) as u32
    }

    /// Where in a block the first of these granules is that lies wholly behind the end of the volume.
    pub fn beyond(&self, context: &ShardContext<'_>, key: BlockKey, granules: u16) -> Option<u64> {
        let outside = granules & !self.within(context, key);
        (outside != 0).then(|| u64::from(outside.trailing_zeros()) << self.granule_shift)
    }
}
