//! The index: which blocks are cached, where, and in which state.
//!
//! Each cached block has one [`Entry`] of 28 bytes in a slab that never grows and, if there is
//! flash, a [`RecordNode`] of 12. An open-addressed table of 32-bit buckets, each an entry number
//! and a hash tag together, finds it, at a load of at most 0.53. So a cached block costs 36 bytes,
//! or 48 with flash. Entries are named by number; lists of entries are intrusive.
//! Nothing here allocates after construction, except the list of frames that are no longer
//! published.

use core::cell::Cell;

use forebay_flash::BlockKey;

use super::entry::{Entry, EntryId, PUBLISHED, RecordNode};
use super::frames::Frame;
use crate::slab::Key;

/// The table and the slab.
#[derive(Debug)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// By entry; empty without flash.
    records: Box<[RecordNode]>,
    buckets: Vec<u32>,
    free: EntryId,
    len: u32,
    tag_shift: u32,
    /// The entry found last: one step looks a block up several times.
    last: Cell<EntryId>,
    /// Blocks in the index by stripe. Stripes with the same place are counted together: 0 means
    /// that no block of a stripe is in the index; a higher count means nothing for a single
    /// stripe.
    stripes: Box<[u32]>,
    /// log2 of the blocks of a stripe.
    stripe_shift: u32,
    /// A bit for each entry: the newest version of the block is known to be all zeroes.
    zeroed: Box<[u64]>,
    /// Frames that are no longer published: at most as many as the driver has published since it
    /// last asked.
    withdrawn: Vec<Frame>,
}

/// Most blocks of an index.
pub(crate) const ENTRIES_MAX: u32 = (1 << 31) - 1;

/// Entries for each count of a stripe, and the smallest number of counts.
const ENTRIES_PER_COUNT: u32 = 16;
const COUNTS_MIN: u32 = 1024;

const EMPTY: u32 = u32::MAX;

/// A bucket holds the lowest bits of its home's number, which give its distance from home up to
/// this many buckets. So a removal can shift buckets back without reading their entries, which
/// would miss the processor's cache.
const NEAR: usize = 1 << NEAR_BITS;
const NEAR_BITS: u32 = 4;

/// Starts loading what `at` points to into the processor's cache.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on timing, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[inline]
fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Index {
    /// An index for at most `capacity` blocks, with `1 << stripe_shift` blocks in a stripe, which
    /// may have records on flash.
    pub fn new(capacity: u32, stripe_shift: u32, records: bool) -> Self {
        assert!((1..=ENTRIES_MAX).contains(&capacity), "index capacity out of range");
        let next = |id| if id + 1 < capacity { EntryId::new(id + 1) } else { EntryId::NONE };
        let entries: Vec<_> = (0..capacity).map(|id| Entry::vacant(next(id))).collect();
        let records = vec![RecordNode::NONE; if records { capacity as usize } else { 0 }];
        let buckets = vec![EMPTY; (u64::from(capacity) * 19 / 10 + 8) as usize];
        // The largest entry number must never fill all bits: that is the empty bucket.
        let tag_shift = 32 - (capacity + 1).leading_zeros();
        let counts = (capacity / ENTRIES_PER_COUNT).max(COUNTS_MIN) as usize;
        let stripes = vec![0; counts].into_boxed_slice();
        Index {
            entries,
            records: records.into(),
            buckets,
            free: EntryId::FIRST,
            len: 0,
            tag_shift,
            last: Cell::new(EntryId::FIRST),
            stripes,
            stripe_shift,
            zeroed: vec![0; capacity.div_ceil(64) as usize].into_boxed_slice(),
            withdrawn: Vec::new(),
        }
    }

    /// Publishes the frame of a block.
    pub fn publish(&mut self, id: EntryId) -> Option<Frame> {
        let entry = &mut self.entries[id.number() as usize];
        let frame = entry.frame().filter(|frame| frame.0 < PUBLISHED)?;
        entry.set_published(true);
        Some(frame)
    }

    /// The next frame that is no longer published.
    #[inline]
    pub fn poll_withdrawn(&mut self) -> Option<Frame> {
        self.withdrawn.pop()
    }

    /// Withdraws the frame of a block whose state changes: it is no longer published.
    #[cold]
    fn withdraw(&mut self, id: EntryId) {
        let entry = &mut self.entries[id.number() as usize];
        self.withdrawn.extend(entry.frame());
        entry.set_published(false);
    }

    /// Whether the newest version of an entry's block is known to be all zeroes. After a start this
    /// is known of no block: flash does not record it.
    pub fn is_zeroed(&self, id: EntryId) -> bool {
        self.zeroed[(id.number() / 64) as usize] >> (id.number() % 64) & 1 != 0
    }

    /// Notes whether the newer version of an entry's block is all zeroes.
    pub fn set_zeroed(&mut self, id: EntryId, zeroed: bool) {
        if self.is_zeroed(id) != zeroed {
            self.zeroed[(id.number() / 64) as usize] ^= 1 << (id.number() % 64);
        }
    }

    /// Whether it is certain that no block of the stripe of `key` is in the index.
    pub fn is_stripe_empty(&self, key: BlockKey) -> bool {
        self.stripes[self.stripe_place(key)] == 0
    }

    fn stripe_place(&self, key: BlockKey) -> usize {
        let hash = mix(key.0 >> self.stripe_shift);
        ((u128::from(hash) * self.stripes.len() as u128) >> 64) as usize
    }

    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// The bits of a bucket above the entry number: the lowest bits of its home, then bits of the
    /// hash.
    fn tag(&self, hash: u64, home: usize) -> u32 {
        let tag = (hash as u32) << NEAR_BITS | (home as u32 & (NEAR - 1) as u32);
        tag.checked_shl(self.tag_shift).unwrap_or(0)
    }

    fn id_mask(&self) -> u32 {
        if self.tag_shift >= 32 { u32::MAX } else { (1 << self.tag_shift) - 1 }
    }

    /// Number of blocks in the index.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no more blocks fit.
    pub fn is_full(&self) -> bool {
        self.free == EntryId::NONE
    }

    /// Most blocks the index can hold.
    pub fn capacity(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        let tables = (self.buckets.len() + self.stripes.len() + 2 * self.zeroed.len()) * 4;
        let withdrawn = self.withdrawn.capacity() * size_of::<Frame>();
        let entries =
            self.entries.len() * size_of::<Entry>() + size_of_val(&*self.records) + withdrawn;
        (entries + tables) as u64
    }

    /// The state of an entry's record.
    pub fn record(&self, id: EntryId) -> &RecordNode {
        &self.records[id.number() as usize]
    }

    pub fn record_mut(&mut self, id: EntryId) -> &mut RecordNode {
        &mut self.records[id.number() as usize]
    }

    /// The entry of `key`.
    #[inline]
    pub fn find(&self, key: BlockKey) -> Option<EntryId> {
        let last = self.last.get();
        if self.entries[last.number() as usize].is_of(key) { Some(last) } else { self.look_up(key) }
    }

    /// The entry of `key`, which is not the last block found.
    #[inline(never)]
    fn look_up(&self, key: BlockKey) -> Option<EntryId> {
        let found =
            self.candidates(key).find(|&id| self.entries[id.number() as usize].key() == key)?;
        self.last.set(found);
        Some(found)
    }

    /// The entries whose buckets may be that of `key`.
    #[inline]
    fn candidates(&self, key: BlockKey) -> impl Iterator<Item = EntryId> + '_ {
        let hash = mix(key.0);
        let mut i = self.home(hash);
        let (tag, mask) = (self.tag(hash, i), self.id_mask());
        core::iter::from_fn(move || {
            loop {
                let bucket = self.buckets[i];
                if bucket == EMPTY {
                    return None;
                }
                i = if i + 1 == self.buckets.len() { 0 } else { i + 1 };
                if bucket & !mask == tag {
                    return Some(EntryId::new(bucket & mask));
                }
            }
        })
    }

    /// Starts loading the bucket of `key` into the processor's cache.
    pub fn prefetch(&self, key: BlockKey) {
        prefetch(&raw const self.buckets[self.home(mix(key.0))]);
    }

    /// Prefetches the entry of `key`, whose bucket should be loaded by now. Returns that entry or,
    /// in rare cases, another one; `None` if there is certainly none.
    pub fn prefetch_entry(&self, key: BlockKey) -> Option<EntryId> {
        let id = self.candidates(key).next()?;
        self.prefetch_id(id);
        Some(id)
    }

    /// Makes [`Index::find`] check this entry first next time.
    pub fn expect(&self, id: EntryId) {
        self.last.set(id);
    }

    /// Prefetches the data that are needed to forget `id` and then the next entry of its list.
    /// Called for each entry of a list before the one ahead of it is processed.
    pub fn prefetch_chain(&self, id: EntryId) {
        if id != EntryId::NONE {
            self.prefetch(self.entries[id.number() as usize].key());
            let next = self.record(id).next;
            if next != EntryId::NONE {
                self.prefetch_id(next);
                prefetch(self.record(next));
            }
        }
    }

    /// Starts loading an entry.
    #[inline]
    pub fn prefetch_id(&self, id: EntryId) {
        let entry = &raw const self.entries[id.number() as usize];
        prefetch(entry);
        // The entry may end on the next cache line.
        prefetch(entry.cast::<u8>().wrapping_add(size_of::<Entry>() - 1));
    }

    /// Adds `key`, which must not be present; `None` when the index is full.
    pub fn insert(&mut self, key: BlockKey) -> Option<EntryId> {
        debug_assert!(self.find(key).is_none(), "block inserted twice");
        let id = self.free;
        if id == EntryId::NONE {
            return None;
        }
        let entry = &mut self.entries[id.number() as usize];
        self.free = entry.next_vacant();
        *entry = Entry::new(key);
        self.len += 1;
        self.set_zeroed(id, false);
        let hash = mix(key.0);
        let mut i = self.home(hash);
        let bucket = self.tag(hash, i) | id.number();
        while self.buckets[i] != EMPTY {
            i = if i + 1 == self.buckets.len() { 0 } else { i + 1 };
        }
        self.buckets[i] = bucket;
        self.last.set(id);
        let stripe = self.stripe_place(key);
        self.stripes[stripe] += 1;
        Some(id)
    }

    /// Removes an entry. It must hold no frame, no record and no transfer.
    pub fn remove(&mut self, id: EntryId) {
        let e = &self.entries[id.number() as usize];
        assert!(
            e.frame().is_none() && e.position().is_none() && e.transfer().is_none(),
            "entry removed while it holds a frame, a record or a transfer"
        );
        let (mask, buckets) = (self.id_mask(), self.buckets.len());
        let mut hole = self.home(mix(e.key().0));
        while self.buckets[hole] & mask != id.number() || self.buckets[hole] == EMPTY {
            hole = (hole + 1) % buckets;
        }
        // Shift back whatever may move into the hole, so that no tombstones are needed.
        let first = hole;
        // No home is before the run of buckets that this one is in.
        let before = self.buckets[..first].iter().rev().take(NEAR).take_while(|&&b| b != EMPTY);
        let before = before.count();
        // The run of buckets may continue at the end of the table.
        let before = if before == first { NEAR } else { before };
        let mut i = hole;
        loop {
            i = if i + 1 == buckets { 0 } else { i + 1 };
            let bucket = self.buckets[i];
            if bucket == EMPTY {
                break;
            }
            let from_home = if i > first && i - first + before < NEAR && self.tag_shift <= 28 {
                i.wrapping_sub((bucket >> self.tag_shift) as usize) & (NEAR - 1)
            } else {
                let home = self.home(mix(self.entries[(bucket & mask) as usize].key().0));
                (i + buckets - home) % buckets
            };
            if from_home >= (i + buckets - hole) % buckets {
                self.buckets[hole] = bucket;
                hole = i;
            }
        }
        self.buckets[hole] = EMPTY;
        let stripe = self.stripe_place(self.entries[id.number() as usize].key());
        self.stripes[stripe] -= 1;
        self.entries[id.number() as usize] = Entry::vacant(self.free);
        self.free = id;
        self.len -= 1;
    }
}

impl core::ops::Index<EntryId> for Index {
    type Output = Entry;
    fn index(&self, id: EntryId) -> &Entry {
        &self.entries[id.number() as usize]
    }
}

impl core::ops::IndexMut<EntryId> for Index {
    #[inline]
    fn index_mut(&mut self, id: EntryId) -> &mut Entry {
        if self.entries[id.number() as usize].is_published() {
            self.withdraw(id);
        }
        &mut self.entries[id.number() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;

    fn key(n: u64) -> BlockKey {
        BlockKey::new(Volume(1), n)
    }

    #[test]
    fn an_entry_costs_at_most_48_bytes_with_its_share_of_the_table_and_36_without_flash() {
        for (records, most) in [(false, 36.0), (true, 48.0)] {
            let index = Index::new(1 << 16, 8, records);
            let bytes = index.memory_bytes() as f64 / f64::from(index.capacity());
            assert!((most - 1.0..=most).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn finds_exactly_what_was_inserted_through_any_mix_of_removals() {
        // A small pseudo-random walk against a sorted map as the oracle.
        let mut index = Index::new(97, 4, true);
        let mut oracle = std::collections::BTreeMap::new();
        let mut x = 1_u64;
        for _ in 0..200_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let n = x >> 33 & 0xff;
            match oracle.get(&n) {
                Some(&id) => {
                    assert_eq!(index.find(key(n)), Some(id));
                    index.remove(id);
                    oracle.remove(&n);
                }
                None => match index.insert(key(n)) {
                    Some(id) => assert!(oracle.insert(n, id).is_none()),
                    None => assert_eq!(oracle.len(), 97),
                },
            }
            assert_eq!(index.len() as usize, oracle.len());
        }
        for n in 0..256 {
            assert_eq!(index.find(key(n)), oracle.get(&n).copied());
        }
    }

    #[test]
    fn a_stripe_counts_as_empty_only_without_its_last_block() {
        let mut index = Index::new(97, 4, true);
        let ids: Vec<_> = (16..32).map(|n| index.insert(key(n)).expect("room")).collect();
        for id in ids {
            assert!((16..32).all(|n| !index.is_stripe_empty(key(n))));
            index.remove(id);
        }
        assert!((0..256).all(|n| index.is_stripe_empty(key(n))));
    }
}
