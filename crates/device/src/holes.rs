//! Where a store is known to read as zeroes, without reading it.
//!
//! Asking blocks, and may take long: it is done by threads that have nothing else to do, past
//! [`Devices`](crate::Devices). The answer covers every write that had completed before the question.

use std::fmt::Debug;
use std::fs::File;
use std::io;

use forebay_block::{Content, ContentRun};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Knows where a store has holes.
pub trait Holes: Debug + Send + Sync {
    /// Puts into `found` what the store says of `length` bytes from `offset` on, in order, from the first
    /// byte on. It may say less than it is asked for; what it does not say may be data. Offsets are those
    /// of the machines.
    fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>);
}

/// Runs that one answer has at most.
const RUNS_MAX: usize = 4096;

/// The holes of a regular file, as its file system knows them.
#[derive(Debug)]
pub(crate) struct FileHoles {
    file: File,
    /// Where the window starts on it.
    base: u64,
}

impl FileHoles {
    /// The holes of a window of `file`, which begins at `base`. The position of the file is used.
    pub fn new(file: File, base: u64) -> FileHoles {
        FileHoles { file, base }
    }

    /// Where data, or a hole, is next; `None` if there is none before the end, an error if the file
    /// system cannot say.
    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Err(Errno::NXIO) => Ok(None),
            found => Ok(Some(found?)),
        }
    }
}

impl Holes for FileHoles {
    fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>) {
        let (mut at, end) = (self.base + offset, self.base + offset + length);
        while at < end && found.len() < RUNS_MAX {
            let Ok(data) = self.seek(SeekFrom::Data(at)) else { return };
            let data = data.map_or(end, |data| data.clamp(at, end));
            if data > at {
                found.push(ContentRun { content: Content::Hole, length: data - at });
            }
            if data == end {
                return;
            }
            let Ok(Some(hole)) = self.seek(SeekFrom::Hole(data)) else { return };
            if hole <= data {
                // It has been punched since, or the file has become shorter.
                return;
            }
            at = hole.min(end);
            found.push(ContentRun { content: Content::Data, length: at - data });
        }
    }
}
