//! Where a store is known to read as zeroes, without reading it.
//!
//! The question blocks and may take long, so threads that have nothing else to do ask it, past
//! [`Devices`](crate::Devices). The answer covers every write that had completed before the
//! question.

use std::fmt::Debug;
use std::fs::File;
use std::io;

use forebay_block::{Content, ContentRun};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Knows where a store has holes.
pub trait Holes: Debug + Send + Sync {
    /// Appends to `found` the store's answer for `length` bytes from `offset` on, in order, from
    /// the first byte on. It may cover less than requested; the rest counts as data. Offsets are
    /// those of the machines.
    fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>);
}

/// Most runs of one answer.
const RUNS_MAX: usize = 4096;

/// The holes of a regular file, as its file system knows them.
#[derive(Debug)]
pub(crate) struct FileHoles {
    file: File,
    /// The start of the window on it.
    base: u64,
}

impl FileHoles {
    /// The holes in a window of `file`, which begins at `base`. It changes the file's position.
    pub fn new(file: File, base: u64) -> FileHoles {
        FileHoles { file, base }
    }

    /// The next data, or the next hole; `None` if there is none before the end, an error if the
    /// file system does not support this.
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
