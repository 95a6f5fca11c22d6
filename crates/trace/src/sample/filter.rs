//! The third step: writing what the removals leave of a sample.

use std::collections::HashMap;

use forebay_block::{Nanos, Op};

use super::regions::RegionKey;
use super::runs;
use super::spatial::push_part;
use crate::{Batch, Record};

/// Regions removed from a sample, in order, so that any number of the first removals can be
/// applied.
#[derive(Clone, Debug, Default)]
pub struct RegionSet(HashMap<RegionKey, usize>);

impl FromIterator<RegionKey> for RegionSet {
    fn from_iter<T: IntoIterator<Item = RegionKey>>(keys: T) -> RegionSet {
        RegionSet(keys.into_iter().enumerate().map(|(i, key)| (key, i)).collect())
    }
}

/// Applies the first removals to a sample.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// The removals.
    pub removed: &'a RegionSet,
    /// How many of the removals to apply.
    pub first: usize,
    /// Bytes of a region.
    pub region_bytes: u64,
}

impl Filter<'_> {
    /// Appends to `left` the parts of a request that remain in the sample. Flushes and trims remain
    /// whole.
    pub fn filter(&self, record: &Record<'_>, left: &mut Batch) {
        let gap = record.gap.unwrap_or(Nanos(0));
        if matches!(record.request.op, Op::Flush | Op::Trim) {
            left.push_record(*record);
            return;
        }
        let keep = |key| self.removed.0.get(&key).is_none_or(|&order| order >= self.first);
        runs(&record.request, self.region_bytes, keep, |offset, length| {
            push_part(record, gap, offset, length, left);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Request, Volume};

    #[test]
    fn only_the_first_removals_count() {
        let key = |region| RegionKey { volume: Volume(0), region };
        let removed: RegionSet = [key(1), key(0)].into_iter().collect();
        let request = Request {
            time: Nanos(0),
            volume: Volume(0),
            op: Op::Read,
            flags: Flags::NONE,
            offset: 0,
            length: 3 * 4096,
        };
        let record = Record { gap: Some(Nanos(3)), ..request.into() };
        let left = |first| {
            let mut left = Batch::default();
            let filter = Filter { removed: &removed, first, region_bytes: 4096 };
            filter.filter(&record, &mut left);
            left.requests().map(|r| (r.offset, r.length)).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(0, 3 * 4096)]);
        assert_eq!(left(1), [(0, 4096), (8192, 4096)]);
        assert_eq!(left(2), [(8192, 4096)]);
    }
}
