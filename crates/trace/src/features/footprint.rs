//! Which blocks were touched, and how often.

/// How often one block was read and written.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    block: u64,
    /// If `reads` and `writes` are both 0, the slot is free.
    pub(super) reads: u32,
    pub(super) writes: u32,
}

impl Entry {
    fn is_free(&self) -> bool {
        self.reads == 0 && self.writes == 0
    }
}

/// The touched blocks of a volume, in a hash table with open addressing and linear probing.
#[derive(Default)]
pub(super) struct Footprint {
    slots: Vec<Entry>,
    used: usize,
}

impl Footprint {
    /// Counts one access.
    #[inline]
    pub(super) fn touch(&mut self, block: u64, write: bool) {
        if self.used * 8 >= self.slots.len() * 7 {
            self.grow();
        }
        let at = self.find(block);
        let slot = &mut self.slots[at];
        if slot.is_free() {
            slot.block = block;
            self.used += 1;
        }
        let count = if write { &mut slot.writes } else { &mut slot.reads };
        *count = count.saturating_add(1);
    }

    /// Prefetches the memory in which a block is counted.
    #[inline]
    pub(super) fn look_ahead(&self, block: u64) {
        let Some(mask) = self.slots.len().checked_sub(1) else { return };
        prefetch(&self.slots[hash(block) as usize & mask]);
    }

    /// The touched blocks, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|e| !e.is_free())
    }

    /// Index of the slot that holds the block or will hold it.
    #[inline]
    fn find(&self, block: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash(block) as usize & mask;
        // Comparing the block first ends most searches with one comparison. Free slots have block
        // 0, but a search may end at any free slot.
        while self.slots[at].block != block && !self.slots[at].is_free() {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![Entry::default(); size]);
        for entry in old.into_iter().filter(|e| !e.is_free()) {
            let at = self.find(entry.block);
            self.slots[at] = entry;
        }
    }
}

/// Spreads neighbouring blocks over the slots. The upper half of the product has well-mixed bits.
#[inline]
fn hash(block: u64) -> u64 {
    let product = u128::from(block ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (product >> 64) as u64 ^ product as u64
}

/// Prefetches an entry. This is only a hint and does not affect results.
#[inline(always)]
fn prefetch(entry: &Entry) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE, and a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn counts_are_those_of_a_plain_map() {
        let (mut footprint, mut plain) = (Footprint::default(), HashMap::new());
        let mut state = 1u64;
        for n in 0..100_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = if n % 2 == 0 { n / 3 } else { (state >> 40) * (state >> 50) };
            let write = state >> 63 == 1;
            footprint.touch(block, write);
            let counts: &mut (u32, u32) = plain.entry(block).or_default();
            *(if write { &mut counts.1 } else { &mut counts.0 }) += 1;
        }
        assert_eq!(footprint.entries().count(), plain.len());
        for e in footprint.entries() {
            assert_eq!(plain[&e.block], (e.reads, e.writes));
        }
    }
}
