//! Records what a run has written where, so that it can be verified.
//!
//! For each 512-byte sector the ledger keeps the number of the last write that covered it. Requests
//! that are in flight at the same time may take effect in either order, so where they overlap,
//! every version from the oldest of them on is right. Sectors with unknown contents (written in
//! part, trimmed, or covered by a failed write) are not checked; the ledger never raises a false
//! alarm.

use std::collections::BTreeMap;

use forebay_block::Op;

use crate::content::{SECTOR_BYTES, VERSION_ZERO};

/// Sectors per chunk: 1 MiB.
const CHUNK_SECTORS: u64 = 2048;

/// The state of a sector that was never written.
const UNTOUCHED: u32 = u32::MAX;
/// The state of a sector that was modified, with unknown contents.
const UNKNOWN: u32 = u32::MAX - 1;
/// The largest version; larger values are special states.
pub(crate) const VERSION_MAX: u32 = u32::MAX - 2;

/// The state of all sectors that were modified.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    chunks: BTreeMap<(u32, u64), Box<[u32]>>,
    /// The oldest possible version of sectors that several requests wrote at the same time.
    contested: BTreeMap<(u32, u64), u32>,
    /// Modifications in flight.
    open: Vec<Change>,
    /// The version of the last write that began.
    last_write: u32,
    disturbances: u64,
}

/// A modification of sectors `first..end`, either of whole sectors or of a part of a single sector,
/// whose state is then [`UNKNOWN`].
#[derive(Clone, Copy, Debug)]
struct Change {
    tag: u64,
    volume: u32,
    first: u64,
    end: u64,
    /// The state of the sectors afterwards: a version or [`UNKNOWN`].
    state: u32,
}

/// A range of sectors to read and check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub volume: u32,
    pub first: u64,
    pub sectors: u64,
}

impl Ledger {
    /// Begins a modification of `range` (offset and length in bytes); only a write uses `version`.
    pub fn begin(&mut self, tag: u64, op: Op, version: u32, volume: u32, range: (u64, u64)) {
        let (offset, length) = range;
        let end = offset + length;
        let state = match op {
            Op::Write if version <= VERSION_MAX => version,
            Op::WriteZeroes => VERSION_ZERO,
            _ => UNKNOWN,
        };
        if op == Op::Write {
            // When versions start again, they no longer tell which write was first.
            self.disturbances += u64::from(version < self.last_write);
            self.last_write = version;
        }
        let (first, last) = (offset.div_ceil(SECTOR_BYTES), end / SECTOR_BYTES);
        // Sectors that are covered in part hold old and new data, even if another request writes
        // the whole sector while this one is in flight.
        for edge in [offset, end] {
            if !edge.is_multiple_of(SECTOR_BYTES) {
                let sector = edge / SECTOR_BYTES;
                self.change(Change { tag, volume, first: sector, end: sector + 1, state: UNKNOWN });
            }
        }
        if first < last {
            self.change(Change { tag, volume, first, end: last, state });
        }
    }

    fn change(&mut self, change: Change) {
        let Change { volume, first, end, state, .. } = change;
        if !(VERSION_ZERO + 1..=VERSION_MAX).contains(&state) {
            self.disturbances += 1;
        }
        for sector in first..end {
            self.set(volume, sector, state);
        }
        if !self.contested.is_empty() {
            let keys: Vec<_> =
                self.contested.range((volume, first)..(volume, end)).map(|(&k, _)| k).collect();
            for key in keys {
                if !self.open.iter().any(|c| c.covers(key.0, key.1)) {
                    self.contested.remove(&key);
                }
            }
        }
        for i in 0..self.open.len() {
            self.contest(self.open[i], change);
        }
        self.open.push(change);
    }

    /// Ends the modifications with this `tag`.
    pub fn end(&mut self, tag: u64, succeeded: bool) {
        let mut i = 0;
        while i < self.open.len() {
            if self.open[i].tag != tag {
                i += 1;
                continue;
            }
            let change = self.open.swap_remove(i);
            if !succeeded {
                self.disturbances += 1;
                for sector in change.first..change.end {
                    // A later write determines the contents, unless it was in flight together with
                    // this one.
                    let key = (change.volume, sector);
                    let is_last = self.get(key.0, sector) == change.state;
                    if is_last || self.contested.contains_key(&key) {
                        self.set(key.0, sector, UNKNOWN);
                    }
                }
            }
        }
    }

    /// Updates the sectors that two modifications in flight have in common.
    fn contest(&mut self, older: Change, newer: Change) {
        let (first, end) = (older.first.max(newer.first), older.end.min(newer.end));
        if older.volume != newer.volume || first >= end {
            return;
        }
        let versions = |state| (VERSION_ZERO + 1..=VERSION_MAX).contains(&state);
        for sector in first..end {
            if versions(older.state) && versions(newer.state) && older.state <= newer.state {
                let oldest = self.contested.entry((newer.volume, sector)).or_insert(older.state);
                *oldest = older.state.min(*oldest);
            } else {
                self.set(newer.volume, sector, UNKNOWN);
            }
        }
    }

    /// The ranges to read, in order; each is within one chunk of 1 MiB.
    pub fn stretches(&self) -> Vec<Stretch> {
        let known = |states: &[u32]| {
            let first = states.iter().position(|&state| state < UNKNOWN)? as u64;
            let last = states.iter().rposition(|&state| state < UNKNOWN)? as u64;
            Some((first, last - first + 1))
        };
        let chunks = self.chunks.iter();
        let stretches = chunks.filter_map(|(&(volume, chunk), states)| {
            let (first, sectors) = known(states)?;
            Some(Stretch { volume, first: chunk * CHUNK_SECTORS + first, sectors })
        });
        stretches.collect()
    }

    /// The oldest and the newest version that a sector may have; `None` if its contents are
    /// unknown or it was never written.
    pub fn expected(&self, volume: u32, sector: u64) -> Option<(u32, u32)> {
        let state = self.get(volume, sector);
        let oldest = self.contested.get(&(volume, sector)).copied().unwrap_or(state);
        (state < UNKNOWN).then_some((oldest.min(state), state))
    }

    /// Number of events so far after which the contents of a sector are unknown or are not the data
    /// of a write.
    pub fn disturbances(&self) -> u64 {
        self.disturbances
    }

    /// The version of the last write that began.
    pub fn last_write(&self) -> u32 {
        self.last_write
    }

    /// Whether a modification of a sector is in flight.
    pub fn is_open(&self, volume: u32, sector: u64) -> bool {
        self.open.iter().any(|change| change.covers(volume, sector))
    }

    /// Number of sectors that were modified and cannot be checked.
    pub fn unknown_sectors(&self) -> u64 {
        let states = self.chunks.values().flat_map(|chunk| chunk.iter());
        states.filter(|&&state| state == UNKNOWN).count() as u64
    }

    fn get(&self, volume: u32, sector: u64) -> u32 {
        let chunk = self.chunks.get(&(volume, sector / CHUNK_SECTORS));
        chunk.map_or(UNTOUCHED, |chunk| chunk[(sector % CHUNK_SECTORS) as usize])
    }

    fn set(&mut self, volume: u32, sector: u64, state: u32) {
        let empty = || vec![UNTOUCHED; CHUNK_SECTORS as usize].into_boxed_slice();
        let chunk = self.chunks.entry((volume, sector / CHUNK_SECTORS)).or_insert_with(empty);
        chunk[(sector % CHUNK_SECTORS) as usize] = state;
    }
}

impl Change {
    fn covers(&self, volume: u32, sector: u64) -> bool {
        self.volume == volume && (self.first..self.end).contains(&sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ledger: &mut Ledger, tag: u64, version: u32, offset: u64, length: u64) {
        ledger.begin(tag, Op::Write, version, 0, (offset, length));
    }

    #[test]
    fn the_last_of_several_writes_counts() {
        let mut ledger = Ledger::default();
        for version in 1..=3 {
            write(&mut ledger, 0, version, 0, 1024);
            ledger.end(0, true);
        }
        assert_eq!(ledger.expected(0, 1), Some((3, 3)));
        assert_eq!(ledger.expected(0, 2), None);
        assert_eq!(ledger.stretches(), [Stretch { volume: 0, first: 0, sectors: 2 }]);
    }

    #[test]
    fn writes_at_the_same_time_may_win_in_either_order_until_a_later_one_settles_it() {
        let mut ledger = Ledger::default();
        write(&mut ledger, 0, 1, 0, 1024);
        write(&mut ledger, 1, 2, 512, 1024);
        assert_eq!(ledger.expected(0, 0), Some((1, 1)));
        assert_eq!(ledger.expected(0, 1), Some((1, 2)));
        assert_eq!(ledger.expected(0, 2), Some((2, 2)));
        ledger.end(0, true);
        ledger.end(1, true);
        assert_eq!(ledger.expected(0, 1), Some((1, 2)), "they have ended, but in which order?");
        write(&mut ledger, 0, 3, 0, 1536);
        assert_eq!(ledger.expected(0, 1), Some((3, 3)));
    }

    #[test]
    fn what_nobody_can_know_is_not_checked() {
        let mut ledger = Ledger::default();
        write(&mut ledger, 0, 1, 100, 1000);
        assert_eq!((ledger.expected(0, 0), ledger.expected(0, 2)), (None, None));
        assert_eq!(ledger.expected(0, 1), Some((1, 1)));
        ledger.end(0, false);
        assert_eq!(ledger.expected(0, 1), None, "a write that failed may have been done in part");
        ledger.begin(1, Op::Trim, 0, 0, (4096, 4096));
        ledger.begin(2, Op::WriteZeroes, 0, 0, (8192, 512));
        assert_eq!((ledger.expected(0, 8), ledger.expected(0, 16)), (None, Some((0, 0))));
        write(&mut ledger, 3, 2, 8192, 512);
        assert_eq!(ledger.expected(0, 16), None, "zeroed and written at the same time");
        assert_eq!(ledger.unknown_sectors(), 3 + 8 + 1);
    }

    #[test]
    fn a_write_that_failed_does_not_spoil_what_was_written_after_it() {
        let mut ledger = Ledger::default();
        write(&mut ledger, 0, 1, 0, 512);
        ledger.end(0, true);
        write(&mut ledger, 0, 2, 0, 512);
        ledger.end(0, true);
        write(&mut ledger, 1, 3, 512, 512);
        ledger.end(1, false);
        assert_eq!(ledger.expected(0, 0), Some((2, 2)));
    }

    #[test]
    fn a_write_in_part_that_is_still_in_flight_makes_a_whole_write_uncertain() {
        let mut ledger = Ledger::default();
        write(&mut ledger, 0, 1, 256, 100);
        write(&mut ledger, 1, 2, 0, 512);
        assert_eq!(ledger.expected(0, 0), None, "either may take effect last");
        assert!(ledger.is_open(0, 0));
        ledger.end(1, true);
        assert!(ledger.is_open(0, 0), "the write in part is still in flight");
        ledger.end(0, true);
        assert_eq!((ledger.expected(0, 0), ledger.is_open(0, 0)), (None, false));
        write(&mut ledger, 0, 3, 0, 512);
        assert_eq!(ledger.expected(0, 0), Some((3, 3)), "a later write settles it");
        ledger.end(0, true);

        // Both edges of the misaligned write are uncertain, and neither of the aligned one.
        write(&mut ledger, 0, 4, 1000, 2000);
        write(&mut ledger, 1, 5, 0, 4096);
        let certain: Vec<bool> =
            (0..8).map(|sector| ledger.expected(0, sector).is_some()).collect();
        assert_eq!(certain, [true, false, true, true, true, false, true, true]);
    }

    #[test]
    fn writes_at_the_same_time_of_which_one_starts_the_numbers_again_are_not_checked() {
        let mut ledger = Ledger::default();
        write(&mut ledger, 0, VERSION_MAX, 0, 512);
        write(&mut ledger, 1, 1, 0, 512);
        assert_eq!(ledger.expected(0, 0), None);
        ledger.end(0, true);
        write(&mut ledger, 0, 2, 0, 512);
        assert_eq!(ledger.expected(0, 0), Some((1, 2)));
    }
}
