//! Reads back the data that a run has written and checks it.

use std::sync::atomic::Ordering;

use forebay_block::{Flags, Nanos, Op};
use forebay_engine::BufferPool;
use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Clock;
use crate::content::{Content, SECTOR_BYTES, VERSION_ZERO};
use crate::error::ReplayError;
use crate::ledger::{Ledger, Stretch};
use crate::run::Hooks;
use crate::target::{Done, Io, Target};
use crate::watch::ReadCheck;

/// Maximum number of reads in flight.
const DEPTH: usize = 16;
/// Maximum number of differences listed from the reads of a run. Together with those that a check
/// finds afterwards, at most twice this number are listed.
pub(crate) const SHOWN_MAX: usize = 10;

/// What was found when everything written was read back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct VerifyResult {
    /// Bytes read back and checked.
    pub checked_bytes: u64,
    /// Bytes of sectors that were written but cannot be checked, because a request wrote only part of the
    /// sector, trimmed it, or failed to write it.
    pub unknown_bytes: u64,
    /// Bytes that differ from the written data.
    pub wrong_bytes: u64,
    /// Bytes that were checked when reads during the run returned them.
    pub reads_checked_bytes: u64,
    /// Bytes returned by reads during the run that differ from the expected data.
    pub reads_wrong_bytes: u64,
    /// Reads that failed during the check.
    pub failed_reads: u64,
    /// Whether the check read all written data.
    pub complete: bool,
    /// The first differences found.
    pub differences: Vec<Difference>,
}

impl VerifyResult {
    /// Whether all written data could be read and was correct.
    pub fn is_right(&self) -> bool {
        self.complete && !self.is_wrong()
    }

    /// Whether any data that could be read differs from the written data.
    pub fn is_wrong(&self) -> bool {
        self.wrong_bytes + self.reads_wrong_bytes > 0
    }
}

/// A sector that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Difference {
    /// The target's volume.
    pub volume: u32,
    /// Byte offset of the sector.
    pub offset: u64,
    /// What the sector contained instead.
    pub found: String,
}

/// The outcome of a check.
#[derive(Debug)]
pub struct Verified {
    /// The findings; not complete if the check was stopped or failed.
    pub result: VerifyResult,
    /// The error that ended the check early, if the target became unusable.
    pub error: Option<ReplayError>,
}

/// The record of what a run has written.
#[derive(Debug)]
pub struct Written {
    pub(crate) ledger: Ledger,
    pub(crate) content: Content,
    pub(crate) reads: ReadCheck,
}

impl Written {
    /// Number of bytes that [`verify`](Written::verify) will read.
    pub fn bytes(&self) -> u64 {
        self.ledger.stretches().iter().map(|s| s.sectors * SECTOR_BYTES).sum()
    }

    /// Reads back and checks all written data, unless the target becomes unusable. Reports progress
    /// in bytes through `hooks.progress`.
    pub fn verify<T: Target + ?Sized>(
        &self,
        target: &mut T,
        clock: &impl Clock,
        hooks: Hooks<'_>,
    ) -> Verified {
        let most = target.limits().transfer_bytes_max / SECTOR_BYTES;
        let stretches: Vec<Stretch> =
            self.ledger.stretches().into_iter().flat_map(|s| cut(s, most)).collect();
        let unknown_bytes = self.ledger.unknown_sectors() * SECTOR_BYTES;
        let mut result = VerifyResult {
            unknown_bytes,
            reads_checked_bytes: self.reads.checked_bytes,
            reads_wrong_bytes: self.reads.wrong_bytes,
            differences: self.reads.differences.clone(),
            ..VerifyResult::default()
        };
        let mut pool = BufferPool::new(DEPTH << 21);
        let (mut next, mut pending, mut done) = (0, 0, Vec::new());
        let depth = DEPTH.min(target.limits().depth_max as usize);
        let mut error = None;
        while error.is_none() && (next < stretches.len() || pending > 0) {
            if hooks.stop.load(Ordering::Relaxed) {
                next = stretches.len();
            }
            while next < stretches.len() && pending < depth && error.is_none() {
                let io = read(next, stretches[next], target, &mut pool);
                error = target.submit(io, &mut done).err();
                (next, pending) = (next + 1, pending + 1);
            }
            if done.is_empty() && error.is_none() {
                error = target.wait(Nanos(clock.now().0 + 50_000_000), &mut done).err();
            }
            for Done { io, result: outcome } in done.drain(..) {
                pending -= 1;
                let stretch = stretches[io.tag as usize];
                let Some(buffer) = io.buffer else { continue };
                match outcome {
                    Err(_) => result.failed_reads += 1,
                    Ok(()) => {
                        let from = (stretch.first * SECTOR_BYTES - io.offset) as usize;
                        self.check(stretch, &buffer[from..], &mut result);
                    }
                }
                (hooks.progress)(stretch.sectors * SECTOR_BYTES);
                pool.give(buffer);
            }
        }
        let stopped = hooks.stop.load(Ordering::Relaxed);
        result.complete = !stopped && error.is_none() && result.failed_reads == 0;
        Verified { result, error }
    }

    fn check(&self, stretch: Stretch, bytes: &[u8], result: &mut VerifyResult) {
        let sectors = bytes.chunks_exact(SECTOR_BYTES as usize);
        for (sector, bytes) in (stretch.first..stretch.first + stretch.sectors).zip(sectors) {
            let Some((oldest, newest)) = self.ledger.expected(stretch.volume, sector) else {
                continue;
            };
            result.checked_bytes += SECTOR_BYTES;
            let found = self.content.version(stretch.volume, sector, bytes);
            if found.is_some_and(|version| (oldest..=newest).contains(&version)) {
                continue;
            }
            result.wrong_bytes += SECTOR_BYTES;
            if result.differences.len() < 2 * SHOWN_MAX {
                let offset = sector * SECTOR_BYTES;
                let found = describe(found, newest);
                result.differences.push(Difference { volume: stretch.volume, offset, found });
            }
        }
    }
}

/// Splits a stretch into pieces that end at multiples of `most` sectors, so that widening a piece
/// to the blocks of the target does not make it too long.
fn cut(stretch: Stretch, most: u64) -> impl Iterator<Item = Stretch> {
    let most = most.max(1);
    let (mut first, end) = (stretch.first, stretch.first + stretch.sectors);
    std::iter::from_fn(move || {
        let next = ((first / most + 1) * most).min(end);
        let piece = Stretch { first, sectors: next - first, ..stretch };
        (first < end).then(|| {
            first = next;
            piece
        })
    })
}

pub(crate) fn describe(found: Option<u32>, expected: u32) -> String {
    match found {
        Some(VERSION_ZERO) => format!("zeroes instead of write {expected}"),
        Some(version) if version < expected => {
            format!("write {version} instead of the later write {expected}")
        }
        Some(version) => format!("write {version} instead of write {expected}"),
        None => format!("other data instead of write {expected}"),
    }
}

fn read<T: Target + ?Sized>(tag: usize, stretch: Stretch, target: &T, pool: &mut BufferPool) -> Io {
    let alignment = target.limits().alignment_bytes;
    let size = target.volumes()[stretch.volume as usize].size_bytes;
    let begin = (stretch.first * SECTOR_BYTES) & !(alignment - 1);
    let end = ((stretch.first + stretch.sectors) * SECTOR_BYTES).next_multiple_of(alignment);
    let length = end.min(size) - begin;
    Io {
        tag: tag as u64,
        volume: stretch.volume,
        op: Op::Read,
        flags: Flags::NONE,
        offset: begin,
        length,
        buffer: Some(pool.take(length as usize)),
    }
}
