//! The contribution of each region to a sample, and the changes its removal would make.

use std::collections::HashMap;

use forebay_block::{Nanos, Op, Request, Volume};

use super::PAGE_BYTES;
use super::moments::{Moments, OpMoments};

/// A region of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RegionKey {
    /// The volume.
    pub volume: Volume,
    /// Number of the region: byte offset / region size.
    pub region: u64,
}

impl RegionKey {
    fn before(self) -> Option<RegionKey> {
        Some(RegionKey { region: self.region.checked_sub(1)?, ..self })
    }

    fn after(self) -> RegionKey {
        RegionKey { region: self.region + 1, ..self }
    }
}

/// Accesses of a region in one role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Role {
    count: u64,
    gap_ns: u64,
}

impl Role {
    fn add(&mut self, other: Role) {
        self.count += other.count;
        self.gap_ns += other.gap_ns;
    }
}

/// A region's accesses by reads, or by writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Accesses {
    /// Requests that touch no other region.
    solo: Role,
    /// Requests that touch several regions, of which this is the first.
    left: Role,
    /// Requests of which this is neither the first nor the last region.
    mid: Role,
    /// Requests that touch several regions, of which this is the last.
    right: Role,
    /// Bytes of the region that these requests do not cover.
    slack: u64,
    /// Bytes by which these requests miss page boundaries in this region.
    misaligned_bytes: u64,
}

impl Accesses {
    /// What the removal of the region changes: solo requests vanish, requests with this region in
    /// the middle split in two, and the others become shorter.
    fn removal(&self, region_bytes: u64) -> OpMoments {
        let [solo, left, mid, right] = [self.solo, self.left, self.mid, self.right];
        let accesses = solo.count + left.count + mid.count + right.count;
        OpMoments {
            requests: mid.count as i64 - solo.count as i64,
            bytes: -((accesses * region_bytes - self.slack) as i64),
            gap_ns: mid.gap_ns as i64 - solo.gap_ns as i64,
            misaligned_bytes: -(self.misaligned_bytes as i64),
        }
    }

    /// The region before was removed: requests that continued from it now begin here.
    fn lose_before(&mut self) {
        self.left.add(std::mem::take(&mut self.mid));
        self.solo.add(std::mem::take(&mut self.right));
    }

    /// The region after was removed: requests that continued into it now end here.
    fn lose_after(&mut self) {
        self.right.add(std::mem::take(&mut self.mid));
        self.solo.add(std::mem::take(&mut self.left));
    }
}

/// All regions of a sample (Algorithm 2). Each takes 160 bytes and its key.
///
/// The roles of a region alone show whether its requests continue in a neighbour, because the
/// regions of a request are adjacent. A removal can therefore update the table exactly.
#[derive(Clone, Debug)]
pub struct RegionTable {
    region_bytes: u64,
    regions: HashMap<RegionKey, [Accesses; 2]>,
    moments: Moments,
}

impl RegionTable {
    /// Creates an empty table.
    ///
    /// # Panics
    /// If `region_bytes` is not a multiple of [`PAGE_BYTES`].
    pub fn new(region_bytes: u64) -> RegionTable {
        assert!(region_bytes.is_multiple_of(PAGE_BYTES), "regions are whole pages");
        RegionTable { region_bytes, regions: HashMap::new(), moments: Moments::default() }
    }

    /// Counts a request of the sample. Trims, flushes and requests of 0 bytes are not counted.
    pub fn add(&mut self, request: &Request, gap: Nanos) {
        let op = match request.op {
            Op::Read => 0,
            Op::Write | Op::WriteZeroes => 1,
            Op::Trim | Op::Flush => return,
        };
        if request.length == 0 {
            return;
        }
        self.moments.add(request, gap);
        let (size, end) = (self.region_bytes, request.offset + request.length);
        let (first, last) = (request.offset / size, end.saturating_sub(1) / size);
        for region in first..=last {
            let key = RegionKey { volume: request.volume, region };
            let a = &mut self.regions.entry(key).or_default()[op];
            let role = match (region == first, region == last) {
                (true, true) => &mut a.solo,
                (true, false) => &mut a.left,
                (false, false) => &mut a.mid,
                (false, true) => &mut a.right,
            };
            role.add(Role { count: 1, gap_ns: gap.0 });
            if region == first {
                a.slack += request.offset % size;
                a.misaligned_bytes += request.offset % PAGE_BYTES;
            }
            if region == last {
                a.slack += end.wrapping_neg() % size;
                a.misaligned_bytes += end.wrapping_neg() % PAGE_BYTES;
            }
        }
    }

    /// The sums over the sample in its current state.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Number of regions left.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether no region is left.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// All regions, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = RegionKey> + '_ {
        self.regions.keys().copied()
    }

    /// What the removal of a region would change (Algorithm 3); `None` if the region is not in the
    /// table.
    pub fn removal(&self, key: RegionKey) -> Option<Moments> {
        let [read, write] = self.regions.get(&key)?;
        Some(Moments {
            read: read.removal(self.region_bytes),
            write: write.removal(self.region_bytes),
        })
    }

    /// Removes a region (Algorithm 4). Returns the neighbours for which [`RegionTable::removal`]
    /// has changed.
    pub fn remove(&mut self, key: RegionKey) -> [Option<RegionKey>; 2] {
        let Some(removal) = self.removal(key) else { return [None, None] };
        self.regions.remove(&key);
        self.moments = self.moments.plus(&removal);
        let before = key.before().filter(|k| match self.regions.get_mut(k) {
            Some(accesses) => {
                accesses.iter_mut().for_each(Accesses::lose_after);
                true
            }
            None => false,
        });
        let after = Some(key.after()).filter(|k| match self.regions.get_mut(k) {
            Some(accesses) => {
                accesses.iter_mut().for_each(Accesses::lose_before);
                true
            }
            None => false,
        });
        [before, after]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::runs;
    use forebay_block::Flags;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Vec<(Request, u64)>> {
        let request = (0..3u8, 0..2u32, 0..200u64, 1..120u64, 0..1000u64);
        proptest::collection::vec(request, 1..40).prop_map(|all| {
            let each = |(op, volume, sector, sectors, gap)| {
                let request = Request {
                    time: Nanos(0),
                    volume: Volume(volume),
                    op: [Op::Read, Op::Write, Op::WriteZeroes][op as usize],
                    flags: Flags::NONE,
                    offset: sector * 512,
                    length: sectors * 512,
                };
                (request, gap)
            };
            all.into_iter().map(each).collect()
        })
    }

    proptest! {
        /// After any removals, the table equals that of the filtered trace.
        #[test]
        fn the_table_equals_a_recount(
            requests in requests(),
            removals in proptest::collection::vec((0..2u32, 0..20u64), 0..20),
            bits in 0..4u32,
        ) {
            let size = PAGE_BYTES << bits;
            let mut table = RegionTable::new(size);
            requests.iter().for_each(|(r, gap)| table.add(r, Nanos(*gap)));
            let mut removed = std::collections::HashSet::new();
            for (volume, region) in removals {
                let key = RegionKey { volume: Volume(volume), region };
                table.remove(key);
                removed.insert(key);
            }
            let mut recount = RegionTable::new(size);
            for (request, gap) in &requests {
                runs(request, size, |key| !removed.contains(&key), |offset, length| {
                    recount.add(&Request { offset, length, ..*request }, Nanos(*gap));
                });
            }
            prop_assert_eq!(table.moments, recount.moments);
            let left = |mut t: RegionTable| {
                t.regions.retain(|_, a| *a != <[Accesses; 2]>::default());
                t.regions
            };
            prop_assert_eq!(left(table), left(recount));
        }
    }

    #[test]
    fn a_middle_region_splits_its_request_and_the_parts_carry_its_gap() {
        let request = Request {
            time: Nanos(0),
            volume: Volume(0),
            op: Op::Read,
            flags: Flags::NONE,
            offset: 512,
            length: 3 * 4096 - 1024,
        };
        let mut table = RegionTable::new(4096);
        table.add(&request, Nanos(7));
        let middle = RegionKey { volume: Volume(0), region: 1 };
        let neighbours = table.remove(middle);
        assert_eq!(neighbours.map(|k| k.map(|k| k.region)), [Some(0), Some(2)]);
        let read =
            OpMoments { requests: 2, bytes: 2 * 4096 - 1024, gap_ns: 14, misaligned_bytes: 1024 };
        assert_eq!(table.moments().read, read);
        assert_eq!(table.remove(middle), [None, None]);
    }
}
