//! Frames that any thread may read without the lock that protects the executor.
//!
//! A hit needs the lock only to find its frame. A frame that is *published* under a key is found
//! here instead, and its memory is lent ([`Loan`]) or copied. The executor's owner publishes a
//! frame when its machine says that the frame holds all of the key's newest data. It withdraws the
//! frame before the first effect after the machine has revoked this. A frame that is to be written
//! is always withdrawn ([`Arena::writable`](crate::Arena::writable)).
//!
//! A reader and the owner agree without waiting for each other. The reader counts its loan, then
//! checks that the same publication is still valid. The owner withdraws the frame, then checks
//! whether its memory is lent. All four steps are sequentially consistent. Either the reader sees
//! that the frame is withdrawn, and returns the loan unread, or the owner sees the loan, and leaves
//! the memory unchanged (Dekker's algorithm).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::loan::{Loan, Pieces};

/// Ways per set: a set fills a cache line of the CPU.
const WAYS: usize = 4;
/// Frames per set. (With as many frames as ways, a fifth of them would find their sets full.)
const FRAMES_PER_SET: usize = 3;
/// No key, no frame, and no place.
const NO_KEY: u64 = u64::MAX;
const NO_FRAME: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX;

/// The published frames; see the module. Changed only under the lock, read by all threads.
#[derive(Debug)]
pub struct Published {
    pieces: Arc<Pieces>,
    frame_bytes: u32,
    open: AtomicBool,
    sets: Box<[Set]>,
    /// For the owner only: the frame of each set and way, the set and way of each frame, and the
    /// number of publications so far.
    frames: Box<[AtomicU32]>,
    places: Box<[AtomicU32]>,
    count: AtomicU32,
}

#[derive(Debug)]
#[repr(align(64))]
struct Set([Way; WAYS]);

#[derive(Debug)]
struct Way {
    key: AtomicU64,
    /// The frame's piece in the upper half and the number of the publication in the lower, so that
    /// the same value means the same publication. (To mistake one for another, a reader would have
    /// to sleep through exactly 2^32 publications.)
    at: AtomicU64,
}

impl Published {
    /// Makes room for `frames` frames, none of which is published.
    pub(crate) fn new(pieces: Arc<Pieces>, frames: u32, frame_bytes: u32) -> Published {
        let way = || Way { key: AtomicU64::new(NO_KEY), at: AtomicU64::new(0) };
        let sets = (frames as usize).div_ceil(FRAMES_PER_SET).max(1);
        let numbers = |count, none| (0..count).map(|_| AtomicU32::new(none)).collect();
        Published {
            pieces,
            frame_bytes,
            open: AtomicBool::new(true),
            sets: (0..sets).map(|_| Set([way(), way(), way(), way()])).collect(),
            frames: numbers(sets * WAYS, NO_FRAME),
            places: numbers(frames as usize, NOWHERE),
            count: AtomicU32::new(0),
        }
    }

    /// Bytes of each frame.
    #[inline]
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        let numbers = size_of_val(&*self.frames) + size_of_val(&*self.places);
        (size_of_val(&*self.sets) + numbers) as u64
    }

    /// Sets whether reads find anything at all. Call only under the lock.
    pub fn set_open(&self, open: bool) {
        if self.open.load(Ordering::Relaxed) != open {
            self.open.store(open, Ordering::SeqCst);
        }
    }

    /// Borrows `length` bytes from `offset` of the frame that is published under this key; `None`
    /// if there is none, or if the limit of loans is reached.
    #[inline]
    pub fn lend(&self, key: u64, offset: u32, length: u32) -> Option<Loan> {
        let found = self.find(key, offset, length)?;
        // Count the loan first, then check the publication.
        let loan = self.pieces.try_lend(found.piece, found.start, length as usize)?;
        self.stands(&found).then_some(loan)
    }

    /// Fills `target` with the bytes from `offset` of the frame that is published under this key.
    /// Returns false if there is none, or if the limit of pins is reached.
    #[inline]
    pub fn copy(&self, key: u64, offset: u32, target: &mut [u8]) -> bool {
        let Some(found) = self.find(key, offset, target.len() as u32) else { return false };
        let Some(pin) = self.pieces.pin(found.piece) else { return false };
        let stands = self.stands(&found);
        if stands {
            let from = self.pieces.memory().pointer.wrapping_add(found.start);
            // SAFETY: within the mapping (`find`); nothing writes there, because the publication
            // stands and the piece is pinned. `target` is other memory.
            unsafe { from.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        }
        drop(pin);
        stands
    }

    #[inline]
    fn find(&self, key: u64, offset: u32, length: u32) -> Option<Found<'_>> {
        let within = offset.checked_add(length).is_some_and(|end| end <= self.frame_bytes);
        if !within || key == NO_KEY || !self.open.load(Ordering::Acquire) {
            return None;
        }
        let ways = &self.sets[self.set_of(key)].0;
        let way = ways.iter().find(|way| way.key.load(Ordering::Acquire) == key)?;
        let at = way.at.load(Ordering::Acquire);
        let piece = (at >> 32) as u32;
        let start = piece as usize * self.frame_bytes as usize + offset as usize;
        Some(Found { way, key, at, piece, start })
    }

    /// Whether the same publication is still valid. (A later one under the same key has stored its
    /// `at` before the key.)
    #[inline]
    fn stands(&self, found: &Found<'_>) -> bool {
        found.way.key.load(Ordering::SeqCst) == found.key
            && found.way.at.load(Ordering::SeqCst) == found.at
            && self.open.load(Ordering::SeqCst)
    }

    /// Publishes a frame whose memory is this piece. Replaces another frame under the same key or,
    /// if there is no room, another frame of the set. Call only under the lock.
    pub(crate) fn publish(&self, key: u64, frame: u32, piece: u32) {
        self.withdraw(frame);
        let set = self.set_of(key);
        let ways = &self.sets[set].0;
        let with = |key: u64| ways.iter().position(|way| way.key.load(Ordering::Relaxed) == key);
        let chosen = with(key).or_else(|| with(NO_KEY)).unwrap_or(frame as usize % WAYS);
        let (way, place) = (&ways[chosen], set * WAYS + chosen);
        let former = self.frames[place].load(Ordering::Relaxed);
        if former != NO_FRAME {
            self.withdraw(former);
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        way.at.store(u64::from(piece) << 32 | u64::from(number), Ordering::SeqCst);
        way.key.store(key, Ordering::SeqCst);
        self.frames[place].store(frame, Ordering::Relaxed);
        self.places[frame as usize].store(place as u32, Ordering::Relaxed);
    }

    /// Whether a frame is published. Call only under the lock.
    #[inline]
    pub fn has(&self, frame: u32) -> bool {
        self.places[frame as usize].load(Ordering::Relaxed) != NOWHERE
    }

    /// Withdraws a frame: no reader finds it any more. Call only under the lock.
    #[inline]
    pub fn withdraw(&self, frame: u32) {
        if self.has(frame) {
            self.take_away(frame);
        }
    }

    fn take_away(&self, frame: u32) {
        let place = self.places[frame as usize].swap(NOWHERE, Ordering::Relaxed) as usize;
        self.frames[place].store(NO_FRAME, Ordering::Relaxed);
        self.sets[place / WAYS].0[place % WAYS].key.store(NO_KEY, Ordering::SeqCst);
    }

    /// Withdraws all frames. Call only under the lock.
    pub(crate) fn withdraw_all(&self) {
        (0..self.places.len() as u32).for_each(|frame| self.withdraw(frame));
    }

    fn set_of(&self, key: u64) -> usize {
        let hash = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }

    /// Lends a piece, like a reader that has not made its second check yet.
    #[cfg(test)]
    pub(crate) fn borrow_piece(&self, piece: u32) -> Loan {
        let start = piece as usize * self.frame_bytes as usize;
        self.pieces.try_lend(piece, start, 0).unwrap()
    }
}

/// What a reader has found at its first check.
struct Found<'a> {
    way: &'a Way,
    key: u64,
    at: u64,
    piece: u32,
    /// Its offset in the mapping.
    start: usize,
}

#[cfg(test)]
mod tests {
    use crate::devices::MemorySlice;
    use crate::{Arena, HugePages};

    fn fill(memory: MemorySlice, byte: u8) {
        // SAFETY: memory of the arena, returned by `writable`.
        unsafe { memory.pointer.write_bytes(byte, memory.length) };
    }

    fn arena(frames: u32) -> Arena {
        let mut arena = Arena::lending(frames, 4096, HugePages::Never, 4).unwrap();
        (0..frames).for_each(|frame| fill(arena.writable(frame, 0, 4096), frame as u8));
        arena
    }

    #[test]
    fn what_is_published_is_found_until_it_is_withdrawn_or_written() {
        let mut arena = arena(8);
        let published = arena.published().unwrap();
        assert!(published.lend(70, 0, 512).is_none());
        (0..8).for_each(|frame| arena.publish(70 + u64::from(frame), frame));
        let byte = |key| published.lend(key, 512, 1024).map(|loan| (loan.len(), loan[7]));
        assert_eq!(byte(73), Some((1024, 3)));
        published.withdraw(3);
        assert_eq!((byte(73), byte(74)), (None, Some((1024, 4))));
        fill(arena.writable(4, 0, 512), 9);
        assert!(byte(74).is_none() && !published.has(4) && published.has(5));
        published.set_open(false);
        assert!(byte(75).is_none());
        published.set_open(true);
        assert!(byte(75).is_some() && published.lend(75, 4000, 97).is_none());
        published.withdraw_all();
        assert!((70..78).all(|key| byte(key).is_none()));
    }

    #[test]
    fn a_key_or_a_frame_is_published_once() {
        let mut arena = arena(2);
        let published = arena.published().unwrap();
        let byte = |key| published.lend(key, 0, 4096).map(|loan| loan[0]);
        arena.publish(1, 0);
        arena.publish(1, 1);
        assert_eq!((byte(1), published.has(0)), (Some(1), false));
        arena.publish(2, 1);
        assert_eq!((byte(1), byte(2)), (None, Some(1)));
    }

    #[test]
    fn where_there_is_no_room_the_newest_is_published() {
        let mut arena = arena(64);
        let published = arena.published().unwrap();
        for key in 0..10_000_u64 {
            arena.publish(key, (key % 64) as u32);
            assert_eq!(published.lend(key, 0, 512).map(|loan| loan[0]), Some((key % 64) as u8));
        }
        let found = (0..10_000).filter(|&key| published.lend(key, 0, 512).is_some()).count();
        assert!((48..=64).contains(&found), "{found}");
    }

    #[test]
    fn a_frame_costs_31_bytes() {
        let published = arena(3000).published().unwrap();
        assert_eq!(published.memory_bytes().div_ceil(3000), 31);
    }

    #[test]
    fn a_copy_is_of_what_is_published() {
        let mut arena = arena(3);
        let published = arena.published().unwrap();
        let mut target = [9; 512];
        assert!(!published.copy(8, 0, &mut target) && target == [9; 512]);
        arena.publish(8, 2);
        assert!(published.copy(8, 3584, &mut target) && target == [2; 512]);
        assert!(!published.copy(8, 3585, &mut target), "beyond the frame");
    }

    #[test]
    fn an_earlier_publication_is_told_from_a_later_one_of_the_same_key_and_piece() {
        let mut arena = arena(2);
        let published = arena.published().unwrap();
        arena.publish(8, 1);
        let found = published.find(8, 0, 512).unwrap();
        assert!(published.stands(&found));
        published.withdraw(1);
        assert!(!published.stands(&found));
        arena.publish(8, 1);
        assert!(!published.stands(&found));
        assert!(published.stands(&published.find(8, 0, 512).unwrap()));
    }

    #[test]
    fn those_that_copy_find_room_where_loans_have_taken_theirs() {
        let mut arena = Arena::lending(64, 4096, HugePages::Never, 32).unwrap();
        let published = arena.published().unwrap();
        arena.publish(8, 1);
        let loans: Vec<_> = std::iter::from_fn(|| published.lend(8, 0, 4096)).collect();
        assert_eq!(loans.len(), 28);
        assert!(arena.lend(1, 0, 512).is_none());
        assert!(published.copy(8, 0, &mut [0; 512]));
    }

    #[test]
    fn what_is_lent_without_the_lock_stays_as_it_was_and_counts() {
        let mut arena = arena(2);
        let published = arena.published().unwrap();
        arena.publish(5, 1);
        let loans: Vec<_> = std::iter::from_fn(|| published.lend(5, 0, 4096)).collect();
        assert_eq!(loans.len(), 4, "as many as there are spare pieces");
        assert!(arena.lend(0, 0, 512).is_none());
        for round in 2..40 {
            fill(arena.writable(1, 0, 4096), round);
        }
        assert!(loans.iter().all(|loan| loan.iter().all(|&byte| byte == 1)));
        drop(loans);
        arena.publish(5, 1);
        assert_eq!(published.lend(5, 0, 4096).unwrap()[0], 39);
    }

    /// Readers run while the owner writes: all bytes of a frame are the same, and at least as new
    /// as the last write that had ended when the read began.
    #[test]
    fn readers_see_whole_and_newest_frames_while_the_owner_writes() {
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        const FRAMES: u32 = 4;
        let mut arena = arena(FRAMES);
        let published = arena.published().unwrap();
        // By key: the number that was last written.
        let written: Vec<AtomicU64> = (0..FRAMES).map(|_| AtomicU64::new(0)).collect();
        let (stop, found) = (AtomicBool::new(false), AtomicU64::new(0));
        let numbers = |memory: MemorySlice, n: u64| {
            // SAFETY: a whole frame, aligned.
            let words = unsafe { std::slice::from_raw_parts_mut(memory.pointer.cast(), 512) };
            words.fill(n);
        };
        for key in 0..FRAMES {
            numbers(arena.writable(key, 0, 4096), 0);
        }
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for key in (0..u64::from(FRAMES)).cycle() {
                        let least = written[key as usize].load(Ordering::SeqCst);
                        if let Some(loan) = published.lend(key, 0, 4096) {
                            let word = |n: &[u8]| u64::from_le_bytes(n.try_into().unwrap());
                            let first = word(&loan[..8]);
                            assert!(first >= least, "older than what was written");
                            assert!(loan.chunks(8).all(|n| word(n) == first), "torn");
                            found.fetch_add(1, Ordering::Relaxed);
                        }
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            // Blocks also exchange their frames.
            let mut frame_of: Vec<u32> = (0..FRAMES).collect();
            let mut n = 0;
            while found.load(Ordering::Relaxed) < 50_000 || n < 50_000 {
                n += 1;
                let (key, other) = ((n % 4) as usize, (n / 4 % 4) as usize);
                if n % 64 == 0 && key != other {
                    for key in [key, other] {
                        published.withdraw(frame_of[key]);
                    }
                    frame_of.swap(key, other);
                    for key in [key, other] {
                        numbers(arena.writable(frame_of[key], 0, 4096), n);
                        written[key].store(n, Ordering::SeqCst);
                    }
                }
                numbers(arena.writable(frame_of[key], 0, 4096), n);
                written[key].store(n, Ordering::SeqCst);
                arena.publish(key as u64, frame_of[key]);
                if n % 8 == 0 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
