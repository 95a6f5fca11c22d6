//! A table that maps the key of a block to the time of its last access.
//!
//! Open addressing with linear probing over 12-byte slots, in 64 segments chosen by the top bits of
//! the hash. Each segment grows by half, separately, when it is four fifths full: only a
//! sixty-fourth of the table is copied at a time, so growth never needs twice the memory. The worst
//! case is 12 / (0.8 / 1.5) = 22.5 bytes per block just after growth, plus the one segment being
//! copied. Entries are never removed one by one, so a slot keeps its place until its segment grows
//! or [`Table::retain`] is called.

use crate::cpu::prefetch;

const SEGMENT_BITS: u32 = 6;
const SEGMENTS: usize = 1 << SEGMENT_BITS;
/// Number of slots of a segment when its first block is added.
const FIRST_SLOTS: usize = 8;

/// The time of a block that is in the table but not held by the measured cache.
pub(crate) const NOT_HELD: u32 = 1;
/// The time in a slot without a block; zero, so that fresh memory is an empty segment.
const EMPTY: u32 = 0;
/// The first time that belongs to an access.
pub(crate) const FIRST_TIME: u32 = 2;

/// Key (low half, high half) and time: 12 bytes without padding.
type Slot = [u32; 3];

/// The place of a block's slot; valid until the segment grows.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Place {
    segment: u32,
    slot: u32,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    slots: Vec<Slot>,
    /// Number of blocks that can be added before the segment grows.
    room: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    segments: Box<[Segment; SEGMENTS]>,
    len: u64,
}

/// Hashes a key to 64 bits: the two halves of a 128-bit product, combined by XOR.
#[inline(always)]
pub(crate) fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { segments: Box::new(core::array::from_fn(|_| Segment::default())), len: 0 }
    }

    /// Number of blocks in the table.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Prefetches the slot at which the search for the block of `hash` starts.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        let slots = &self.segments[segment_of(hash)].slots;
        if let Some(slot) = slots.get(home(hash, slots.len())) {
            prefetch(slot);
        }
    }

    /// Returns the place of the block `key`, which is added as not held if it is new, and whether
    /// places returned before have become invalid.
    #[inline(always)]
    pub(crate) fn place(&mut self, key: u64, hash: u64) -> (Place, bool) {
        let (low, high) = (key as u32, (key >> 32) as u32);
        let number = segment_of(hash);
        let mut moved = false;
        loop {
            let segment = &mut self.segments[number];
            let mut at = home(hash, segment.slots.len());
            // A segment with slots always has an empty one, so the search ends; a segment without
            // slots counts as full.
            while let Some(slot) = segment.slots.get_mut(at) {
                if slot[0] == low && slot[1] == high && slot[2] != EMPTY {
                    return (Place { segment: number as u32, slot: at as u32 }, moved);
                }
                if slot[2] == EMPTY {
                    if segment.room == 0 {
                        break;
                    }
                    segment.room -= 1;
                    self.len += 1;
                    *slot = [low, high, NOT_HELD];
                    return (Place { segment: number as u32, slot: at as u32 }, moved);
                }
                at = if at + 1 == segment.slots.len() { 0 } else { at + 1 };
            }
            segment.grow();
            moved = true;
        }
    }

    /// Returns the time of the block `key`, if it is in the table.
    #[inline]
    pub(crate) fn find(&self, key: u64, hash: u64) -> Option<u32> {
        let slots = &self.segments[segment_of(hash)].slots;
        let mut at = home(hash, slots.len());
        loop {
            let slot = *slots.get(at)?;
            if slot[2] == EMPTY || key_of(slot) == key {
                return (slot[2] != EMPTY).then_some(slot[2]);
            }
            at = if at + 1 == slots.len() { 0 } else { at + 1 };
        }
    }

    #[inline(always)]
    pub(crate) fn time(&self, place: Place) -> u32 {
        self.segments[place.segment as usize % SEGMENTS].slots[place.slot as usize][2]
    }

    #[inline(always)]
    pub(crate) fn set_time(&mut self, place: Place, time: u32) {
        self.segments[place.segment as usize % SEGMENTS].slots[place.slot as usize][2] = time;
    }

    /// Marks the block `key` as not held, if it is in the table.
    pub(crate) fn drop_held(&mut self, key: u64, hash: u64) {
        if self.find(key, hash).is_some() {
            let (place, _) = self.place(key, hash);
            self.set_time(place, NOT_HELD);
        }
    }

    /// Replaces the time of every block that is held.
    pub(crate) fn retime(&mut self, mut new_time: impl FnMut(u32) -> u32) {
        for segment in self.segments.iter_mut() {
            for slot in &mut segment.slots {
                if slot[2] >= FIRST_TIME {
                    slot[2] = new_time(slot[2]);
                }
            }
        }
    }

    /// Visits the keys of all blocks in the table.
    pub(crate) fn for_each_key(&self, mut visit: impl FnMut(u64)) {
        let slots = self.segments.iter().flat_map(|segment| &segment.slots);
        slots.filter(|slot| slot[2] != EMPTY).for_each(|&slot| visit(key_of(slot)));
    }

    /// Removes the blocks for which `keep`, given key and time, returns false. Invalidates all
    /// places.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u64, u32) -> bool) {
        for segment in self.segments.iter_mut() {
            let slots = segment.slots.len();
            let kept: Vec<Slot> = core::mem::take(&mut segment.slots)
                .into_iter()
                .filter(|&slot| slot[2] != EMPTY)
                .filter(|&slot| {
                    let keeps = keep(key_of(slot), slot[2]);
                    self.len -= u64::from(!keeps);
                    keeps
                })
                .collect();
            segment.refill(slots, kept.into_iter());
        }
    }
}

impl Segment {
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let slots = (self.slots.len() + self.slots.len() / 2).max(FIRST_SLOTS);
        let old = core::mem::take(&mut self.slots);
        self.refill(slots, old.into_iter().filter(|slot| slot[2] != EMPTY));
    }

    /// Replaces the slots by `slots` new ones that hold the given entries.
    fn refill(&mut self, slots: usize, entries: impl Iterator<Item = Slot>) {
        self.slots = vec![[0; 3]; slots];
        self.room = (slots * 4 / 5) as u32;
        for entry in entries {
            let mut at = home(hash(key_of(entry)), slots);
            while self.slots[at][2] != EMPTY {
                at = if at + 1 == slots { 0 } else { at + 1 };
            }
            self.slots[at] = entry;
            self.room -= 1;
        }
    }
}

#[inline(always)]
fn key_of(slot: Slot) -> u64 {
    u64::from(slot[1]) << 32 | u64::from(slot[0])
}

#[inline(always)]
fn segment_of(hash: u64) -> usize {
    (hash >> (64 - SEGMENT_BITS)) as usize
}

/// Returns the slot at which the search for `hash` starts in a segment of `slots` slots; 0 if it
/// has none.
#[inline(always)]
fn home(hash: u64, slots: usize) -> usize {
    ((((hash << SEGMENT_BITS) >> 32) * slots as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn colliding_keys_are_told_apart_through_growth() {
        // Keys of one segment whose searches all start in its first few slots.
        let keys: Vec<u64> =
            (0..4_000_000u64).filter(|&k| hash(k) >> 48 == 5 << (48 - 42)).collect();
        assert!(keys.len() > 20, "only {} colliding keys found", keys.len());
        let mut table = Table::new();
        for (i, &key) in keys.iter().enumerate() {
            assert_eq!(table.find(key, hash(key)), None);
            let (place, _) = table.place(key, hash(key));
            assert_eq!(table.time(place), NOT_HELD);
            table.set_time(place, FIRST_TIME + i as u32);
            assert_eq!(table.find(key, hash(key)), Some(FIRST_TIME + i as u32));
            for (j, &earlier) in keys[..=i].iter().enumerate() {
                let (place, moved) = table.place(earlier, hash(earlier));
                assert_eq!(table.time(place), FIRST_TIME + j as u32);
                assert!(!moved);
            }
        }
        assert_eq!(table.len(), keys.len() as u64);
    }

    #[test]
    fn retained_blocks_keep_their_times_and_the_others_are_gone() {
        let mut table = Table::new();
        for key in 0..1000u64 {
            let (place, _) = table.place(key << 30, hash(key << 30));
            table.set_time(place, FIRST_TIME + key as u32);
        }
        table.retain(|key, time| {
            assert_eq!(key >> 30, u64::from(time - FIRST_TIME));
            time % 3 == 0
        });
        let kept: HashMap<u64, u32> =
            (0..1000).map(|k| (k << 30, FIRST_TIME + k as u32)).filter(|e| e.1 % 3 == 0).collect();
        assert_eq!(table.len(), kept.len() as u64);
        for key in (0..1000u64).map(|k| k << 30) {
            let (place, _) = table.place(key, hash(key));
            assert_eq!(table.time(place), kept.get(&key).copied().unwrap_or(NOT_HELD));
        }
        assert_eq!(table.len(), 1000);
    }

    #[test]
    fn places_stay_valid_until_the_table_says_that_it_moved() {
        let mut table = Table::new();
        let mut places: Vec<(u64, Place)> = Vec::new();
        let mut moves = 0;
        for key in 0..20_000u64 {
            let (place, moved) = table.place(key, hash(key));
            if moved {
                moves += 1;
                for (k, p) in &mut places {
                    *p = table.place(*k, hash(*k)).0;
                }
            }
            table.set_time(place, FIRST_TIME + key as u32);
            places.push((key, place));
            if key % 97 == 0 {
                assert!(places.iter().all(|&(k, p)| table.time(p) == FIRST_TIME + k as u32));
            }
        }
        assert!(moves > 64);
    }
}
