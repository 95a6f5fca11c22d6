//! The two copies of the superblock: how a start reads them, and which one it takes.

use crate::format::FormatError;
use crate::format::superblock::Superblock;
use crate::io::{SUPERBLOCK_BUFFER, SUPERBLOCK_OTHER};
use crate::recovery::Restored;
use crate::types::{Damage, LogError};
use forebay_effect::{IoError, Outcome};

/// Which part of a superblock copy is being read: all of it or, after an error, only the pages in
/// use. The other pages are never written, so an error there would persist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyRead {
    Whole,
    /// The first page, which says how many are in use.
    First,
    Used,
}

/// See the module.
pub(crate) struct SuperblockCopies {
    found: [Option<Result<Superblock, FormatError>>; 2],
    reads: [CopyRead; 2],
    /// The error of a copy that could not be read.
    unreadable: Option<IoError>,
    newest: u32,
}

impl SuperblockCopies {
    pub fn new() -> SuperblockCopies {
        let reads = [CopyRead::Whole; 2];
        SuperblockCopies { found: [None, None], reads, unreadable: None, newest: 0 }
    }

    /// The number of the chosen copy.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Starts to read both copies.
    pub fn read(log: &mut Restored) {
        let pages = log.io.geometry.superblock_pages;
        log.io.read(SUPERBLOCK_BUFFER, 0, pages);
        log.io.read(SUPERBLOCK_OTHER, pages, pages);
    }

    /// Called when a read of a copy has ended. Returns whether another one is needed.
    pub fn reads_again(&mut self, log: &mut Restored, buffer: usize, result: Outcome) -> bool {
        let reads = &mut self.reads[buffer];
        let (next, pages) = match (*reads, result) {
            (CopyRead::Whole, Err(_)) => (CopyRead::First, 1),
            (CopyRead::First, Ok(())) => {
                let used = Superblock::stated_bytes(&log.io.buffers[buffer]) as u32;
                let used = used.div_ceil(log.io.geometry.page_size);
                (CopyRead::Used, used.clamp(1, log.io.geometry.superblock_pages))
            }
            _ => return false,
        };
        *reads = next;
        log.io.read(buffer, buffer as u32 * log.io.geometry.superblock_pages, pages);
        true
    }

    /// A copy cannot be read.
    pub fn note_unreadable(&mut self, error: IoError) {
        self.unreadable = Some(error);
    }

    /// A copy is in its buffer.
    pub fn take_in(&mut self, log: &Restored, buffer: usize) {
        self.found[buffer] = Some(Superblock::decode(&log.io.buffers[buffer]));
    }

    /// The newest copy that verifies. An unreadable copy is lost like a damaged one: if it was the
    /// newer one, headers or stamps that name its generation refuse the start (`refuse_stale`,
    /// `judge`).
    pub fn choose(&mut self, log: &Restored, damage: &mut Damage) -> Result<Superblock, LogError> {
        let copies = [0, 1].map(|n: usize| self.found[n].take().expect("both copies were read"));
        for copy in &copies {
            if let &Err(FormatError::Version(found)) = copy {
                let supported = crate::format::VERSION;
                return Err(LogError::NewerFormat { found, supported });
            }
        }
        for (n, copy) in copies.iter().enumerate() {
            if copy.is_err() {
                damage.repaired.push(n as u32 * log.io.geometry.superblock_pages);
            }
        }
        match copies {
            // (If they belong to different logs, a format was interrupted: it writes the first copy first.)
            [Ok(a), Ok(b)] if b.uuid == a.uuid && b.generation > a.generation => {
                self.newest = 1;
                Ok(b)
            }
            [Ok(a), _] => Ok(a),
            [Err(_), Ok(b)] => {
                self.newest = 1;
                Ok(b)
            }
            [Err(one), Err(other)] => Err(match (self.unreadable, one, other) {
                // The unreadable copy may be intact.
                (Some(error), ..) => LogError::Io(error),
                (None, FormatError::Missing, FormatError::Missing) => LogError::NotALog,
                (None, ..) => LogError::SuperblockDamaged,
            }),
        }
    }
}
