//! Checks the data of reads during a run against what the run has written.
//!
//! A read may return a version that the sector could have when the read was sent, a version that
//! was sent before the read ended, or parts of several of these: a device writes a sector as a
//! whole, but the page cache does not. Sectors with a modification in flight when the read was sent
//! are not checked. Neither is a read during which any sector became unknown or was zeroed, or
//! during which versions started again.

use crate::content::{Content, SECTOR_BYTES};
use crate::ledger::Ledger;
use crate::verify::{Difference, SHOWN_MAX, describe};

/// What is known about a read when it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    volume: u32,
    first: u64,
    /// For each whole sector, the oldest and the newest version that it may have, if known.
    before: Vec<Option<(u32, u32)>>,
    /// The version of the last write that was sent before the read.
    last_write: u32,
    disturbances: u64,
}

/// The result of checking the data of reads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReadCheck {
    pub checked_bytes: u64,
    pub wrong_bytes: u64,
    pub differences: Vec<Difference>,
}

impl Watch {
    /// Records what a read of `length` bytes at `offset` may return; reuses the memory of `self`.
    pub fn begin(&mut self, ledger: &Ledger, volume: u32, offset: u64, length: u64) {
        (self.volume, self.first) = (volume, offset.div_ceil(SECTOR_BYTES));
        self.last_write = ledger.last_write();
        self.disturbances = ledger.disturbances();
        self.before.clear();
        let end = (offset + length) / SECTOR_BYTES;
        self.before.extend((self.first..end).map(|sector| {
            let certain = !ledger.is_open(volume, sector);
            ledger.expected(volume, sector).filter(|_| certain)
        }));
    }

    /// Checks `bytes`, which the read or a piece of it returned from `offset` on.
    pub fn end(
        &self,
        ledger: &Ledger,
        content: &Content,
        offset: u64,
        bytes: &[u8],
        found: &mut ReadCheck,
    ) {
        if ledger.disturbances() != self.disturbances {
            return;
        }
        let skip = (offset.next_multiple_of(SECTOR_BYTES) - offset) as usize;
        let from = offset.div_ceil(SECTOR_BYTES);
        let sectors = bytes.get(skip..).unwrap_or_default().chunks_exact(SECTOR_BYTES as usize);
        for (sector, bytes) in (from..).zip(sectors) {
            let known = sector.checked_sub(self.first).and_then(|at| self.before.get(at as usize));
            let Some(&Some((oldest, newest_before))) = known else { continue };
            let Some((_, newest)) = ledger.expected(self.volume, sector) else { continue };
            let possible = |version| {
                (oldest..=newest_before).contains(&version)
                    || (self.last_write < version && version <= newest)
            };
            let version = content.version(self.volume, sector, bytes);
            found.checked_bytes += SECTOR_BYTES;
            let right = match version {
                Some(version) => possible(version),
                None => content.is_torn(self.volume, sector, possible, bytes),
            };
            if right {
                continue;
            }
            found.wrong_bytes += SECTOR_BYTES;
            if found.differences.len() < SHOWN_MAX {
                found.differences.push(Difference {
                    volume: self.volume,
                    offset: sector * SECTOR_BYTES,
                    found: format!("read during the run: {}", describe(version, oldest)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::VERSION_MAX;
    use forebay_block::Op;

    const CONTENT: u64 = 3;

    /// A sector as a write left it.
    fn sector(sector: u64, version: u32) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        Content::new(CONTENT).fill(0, sector * 512, version, &mut bytes);
        bytes
    }

    fn check(watch: &Watch, ledger: &Ledger, offset: u64, bytes: &[u8]) -> (u64, u64) {
        let mut found = ReadCheck::default();
        watch.end(ledger, &Content::new(CONTENT), offset, bytes, &mut found);
        (found.checked_bytes, found.wrong_bytes)
    }

    fn written(version: u32) -> Ledger {
        let mut ledger = Ledger::default();
        for version in 1..=version {
            ledger.begin(0, Op::Write, version, 0, (0, 2048));
            ledger.end(0, true);
        }
        ledger
    }

    #[test]
    fn an_old_version_and_foreign_data_are_found_and_the_right_one_is_right() {
        let ledger = written(2);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 512, 512);
        assert_eq!(check(&watch, &ledger, 512, &sector(1, 2)), (512, 0));
        assert_eq!(check(&watch, &ledger, 512, &sector(1, 1)), (512, 512));
        assert_eq!(check(&watch, &ledger, 512, &sector(2, 2)), (512, 512));
        assert_eq!(check(&watch, &ledger, 512, &[0; 512]), (512, 512));
    }

    #[test]
    fn a_read_may_bring_what_is_written_while_it_is_on_its_way() {
        let mut ledger = written(1);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        ledger.begin(1, Op::Write, 2, 0, (0, 512));
        assert_eq!(check(&watch, &ledger, 0, &sector(0, 1)), (512, 0));
        assert_eq!(check(&watch, &ledger, 0, &sector(0, 2)), (512, 0));
        // A read that is sent while a write is in flight may return old or new data.
        let mut later = Watch::default();
        later.begin(&ledger, 0, 0, 1024);
        assert_eq!(check(&later, &ledger, 0, &sector(0, 1)), (0, 0));
        assert_eq!(check(&later, &ledger, 512, &sector(1, 1)), (512, 0));
    }

    #[test]
    fn a_sector_that_is_written_while_it_is_read_may_be_half_of_each_version() {
        let mut ledger = written(1);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        let torn = [&sector(0, 2)[..256], &sector(0, 1)[256..]].concat();
        assert_eq!(check(&watch, &ledger, 0, &torn), (512, 512));
        ledger.begin(1, Op::Write, 2, 0, (0, 512));
        assert_eq!(check(&watch, &ledger, 0, &torn), (512, 0));
        // A version that was not sent yet, and the data of another sector, are still wrong.
        assert_eq!(check(&watch, &ledger, 0, &sector(0, 3)), (512, 512));
        assert_eq!(check(&watch, &ledger, 0, &sector(1, 1)), (512, 512));
    }

    #[test]
    fn a_zeroed_sector_that_is_written_while_it_is_read_may_be_half_zero() {
        let mut ledger = written(1);
        ledger.begin(0, Op::WriteZeroes, 0, 0, (0, 512));
        ledger.end(0, true);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        let torn = [&sector(0, 2)[..256], &[0; 256]].concat();
        assert_eq!(check(&watch, &ledger, 0, &torn), (512, 512), "there is no write 2 yet");
        ledger.begin(1, Op::Write, 2, 0, (0, 512));
        for right in [&torn, &sector(0, 2), &vec![0; 512]] {
            assert_eq!(check(&watch, &ledger, 0, right), (512, 0));
        }
        // The sector was zeroed before the read was sent, so it no longer has the data of write 1.
        let stale = [&sector(0, 1)[..256], &[0; 256]].concat();
        for wrong in [&sector(0, 1), &stale] {
            assert_eq!(check(&watch, &ledger, 0, wrong), (512, 512));
        }
    }

    #[test]
    fn foreign_data_is_told_at_once_however_many_writes_there_were() {
        let mut ledger = written(1);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        ledger.begin(1, Op::Write, VERSION_MAX, 0, (0, 512));
        assert_eq!(check(&watch, &ledger, 0, &[7; 512]), (512, 512));
    }

    #[test]
    fn a_read_during_which_the_numbers_of_writes_start_again_is_left_out() {
        let mut ledger = Ledger::default();
        ledger.begin(0, Op::Write, VERSION_MAX, 0, (0, 512));
        ledger.end(0, true);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        ledger.begin(1, Op::Write, 1, 0, (0, 512));
        assert_eq!(check(&watch, &ledger, 0, &sector(0, VERSION_MAX)), (0, 0));
    }

    #[test]
    fn a_read_that_met_a_trim_is_left_out_even_if_it_was_written_again_since() {
        let mut ledger = written(1);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 512);
        ledger.begin(1, Op::Trim, 0, 0, (0, 512));
        ledger.end(1, true);
        ledger.begin(2, Op::Write, 2, 0, (0, 512));
        assert_eq!(check(&watch, &ledger, 0, &[0; 512]), (0, 0));
    }

    #[test]
    fn a_sector_that_is_being_written_in_part_is_not_checked() {
        let mut ledger = written(1);
        ledger.begin(1, Op::Write, 2, 0, (256, 100));
        ledger.begin(2, Op::Write, 3, 0, (0, 512));
        ledger.end(2, true);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 0, 1024);
        let mut mixed = sector(0, 3);
        Content::new(CONTENT).fill(0, 256, 2, &mut mixed[256..356]);
        assert_eq!(check(&watch, &ledger, 0, &mixed), (0, 0));
        assert_eq!(check(&watch, &ledger, 512, &sector(1, 1)), (512, 0));
    }

    #[test]
    fn pieces_and_misaligned_reads_are_checked_in_their_whole_sectors() {
        let ledger = written(1);
        let mut watch = Watch::default();
        watch.begin(&ledger, 0, 100, 1500);
        let mut bytes = vec![0; 1500];
        Content::new(CONTENT).fill(0, 100, 1, &mut bytes);
        assert_eq!(check(&watch, &ledger, 100, &bytes), (1024, 0));
        assert_eq!(check(&watch, &ledger, 1124, &bytes[1024..]), (0, 0));
        assert_eq!(check(&watch, &ledger, 612, &bytes[512..]), (512, 0));
    }
}
