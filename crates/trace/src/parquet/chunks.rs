//! Where the bytes of a Parquet file come from.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::Path,
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
}

impl Chunks {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let error = |source| TraceError::Io { path: path.to_owned(), doing: "open", source };
        File::open(path).map(Chunks::File).map_err(error)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        match self {
            Chunks::File(file) => file.metadata().map_or(0, |m| m.len()),
            Chunks::Memory(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for Chunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Box<dyn Read>> {
        match self {
            Chunks::File(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(Box::new(BufReader::new(file)))
            }
            Chunks::Memory(bytes) => {
                let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
                Ok(Box::new(bytes.slice(start..).reader()))
            }
        }
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
