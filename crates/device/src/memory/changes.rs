//! Tracks which parts of a device's image have changed since a given time, so that a cut copies
//! only those parts.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes are tracked for parts of this many bytes.
const PART: usize = 4096;

/// When each part of one image last changed.
#[derive(Debug)]
pub(super) struct Changes {
    /// Unique among the images of a process.
    identity: u64,
    /// Number of changes so far.
    count: u64,
    /// By part: the number of its last change.
    last: Vec<u64>,
    /// Bytes of the image.
    length: usize,
}

/// A state of one image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    identity: u64,
    count: u64,
}

impl Moment {
    /// Whether both moments are of the same image.
    pub fn is_of(self, other: Moment) -> bool {
        self.identity == other.identity
    }
}

impl Changes {
    /// Changes of a new image, which has none yet.
    pub fn new(length: usize) -> Changes {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        Changes { identity, count: 0, last: vec![0; length.div_ceil(PART)], length }
    }

    /// The current moment of the image.
    pub fn now(&self) -> Moment {
        Moment { identity: self.identity, count: self.count }
    }

    /// Records that `length` bytes from `from` on are about to change, or just have.
    pub fn note(&mut self, from: u64, length: u64) {
        self.count += 1;
        let parts = from as usize / PART..((from + length) as usize).div_ceil(PART);
        self.last[parts].fill(self.count);
    }

    /// Ranges of the image, in order, outside of which nothing changed since a moment; the whole
    /// image if the moment is of another image.
    pub fn since(&self, moment: Moment) -> impl Iterator<Item = Range<usize>> {
        let (known, length) = (moment.identity == self.identity, self.length);
        (self.last.iter().enumerate())
            .filter(move |&(_, &last)| !known || last > moment.count)
            .map(move |(part, _)| part * PART..((part + 1) * PART).min(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_changed_since_a_moment_are_told() {
        let mut changes = Changes::new(3 * PART + 512);
        let new = changes.now();
        changes.note(PART as u64 - 1, 2);
        let later = changes.now();
        changes.note(3 * PART as u64, 512);
        let since = |moment| changes.since(moment).collect::<Vec<_>>();
        let last = 3 * PART..3 * PART + 512;
        assert_eq!(since(new), [0..PART, PART..2 * PART, last.clone()]);
        assert_eq!(since(later), vec![last]);
        assert_eq!(since(changes.now()), []);
        // (Nothing is known about another image.)
        assert_eq!(since(Changes::new(4 * PART).now()).len(), 4);
    }
}
