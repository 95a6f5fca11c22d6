//! Finds out where a store reads as zeroes, without reading it.
//!
//! A query blocks and may take long, so it does not go through [`Devices`](crate::Devices): threads
//! that have nothing else to do call [`Holes::find`]. The answer covers every write that completed
//! before the query.

use std::fmt::Debug;
use std::fs::File;
use std::io;

use forebay_block::{Content, ContentRun};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Knows where a store has holes.
pub trait Holes: Debug + Send + Sync {
    /// Appends to `found` the contents of `length` bytes from `offset` on, as runs in order without
    /// gaps. They may cover less than requested, and the rest counts as data; they may also extend
    /// past the range. Offsets are those that the machines use.
    fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>);
}

/// Maximum number of runs in one answer.
const RUNS_MAX: usize = 4096;

/// The holes of a regular file, as its file system knows them.
#[derive(Debug)]
pub(crate) struct FileHoles {
    file: File,
    /// The start of the window on it.
    base: u64,
}

impl FileHoles {
    /// Finds the holes in the window of `file` that begins at `base`. Queries move the file's
    /// position.
    pub fn new(file: File, base: u64) -> FileHoles {
        FileHoles { file, base }
    }

    /// Offset of the next data or the next hole; `None` if there is none before the end, an error
    /// if the file system does not support this.
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
                // The data has been punched since, or the file has been truncated.
                return;
            }
            at = hole.min(end);
            found.push(ContentRun { content: Content::Data, length: at - data });
        }
    }
}
