//! Where the bytes of a Parquet file come from.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bytes::{Buf, Bytes};
use parquet::{
    errors::{ParquetError, Result as ParquetResult},
    file::reader::{ChunkReader, Length},
};

use crate::{Result, TraceError};

/// The bytes of a Parquet file.
pub(super) enum Chunks {
    File(File),
    Memory(Bytes),
    /// An unfinished file, and the end of the file that its last checkpoint saved.
    Checkpointed {
        file: File,
        bytes: u64,
        end: Bytes,
    },
}

impl Chunks {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let error = |source| TraceError::Io { path: path.to_owned(), doing: "open", source };
        File::open(path).map(Chunks::File).map_err(error)
    }

    /// Opens an unfinished file, up to its last checkpoint. Returns `None` if it has none.
    pub(super) fn open_checkpointed(path: &Path) -> Option<Self> {
        let end = Bytes::from(std::fs::read(index_path(path)).ok()?);
        let file = File::open(path).ok()?;
        let bytes = file.metadata().ok()?.len();
        Some(Chunks::Checkpointed { file, bytes, end })
    }
}

/// Path of the file that holds the end of an unfinished file.
pub(super) fn index_path(partial: &Path) -> PathBuf {
    let mut name = partial.as_os_str().to_owned();
    name.push(".index");
    PathBuf::from(name)
}

fn read_from(file: &File, start: u64) -> ParquetResult<Box<dyn Read>> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(start))?;
    Ok(Box::new(BufReader::new(file)))
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        match self {
            Chunks::File(file) => file.metadata().map_or(0, |m| m.len()),
            Chunks::Memory(bytes) => bytes.len() as u64,
            Chunks::Checkpointed { bytes, end, .. } => bytes + end.len() as u64,
        }
    }
}

impl ChunkReader for Chunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Box<dyn Read>> {
        let (bytes, start) = match self {
            Chunks::File(file) => return read_from(file, start),
            Chunks::Checkpointed { file, bytes, .. } if start < *bytes => {
                return read_from(file, start);
            }
            Chunks::Checkpointed { bytes, end, .. } => (end, start - bytes),
            Chunks::Memory(bytes) => (bytes, start),
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Box::new(bytes.slice(start..).reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len());
        if end.is_none() {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond the end")));
        }
        if let Chunks::Memory(bytes) = self {
            return Ok(bytes.slice(start as usize..start as usize + length));
        }
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(Bytes::from(bytes))
    }
}
