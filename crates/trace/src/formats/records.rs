//! Reading binary records of a fixed size.

use std::io::Read;

use super::text::Out;
use crate::{
    Batch, Clock, Counters, OpenOptions, Position, Progress, Result, TraceError,
    metadata::VolumeTable,
    reader::{About, Raw},
    source::Source,
};

/// Parses the records of one format. Must not panic on anything.
pub(crate) trait RecordParser {
    /// The format's name.
    const NAME: &'static str;
    /// What times count from.
    const CLOCK: Clock = Clock::Unknown;
    /// What a record should be, for messages.
    const EXPECTED: &'static str;
    /// Whether the parser numbers volumes; else there is one.
    const NUMBERED_VOLUMES: bool = false;
    /// Bytes before the first record.
    const HEADER_BYTES: usize = 0;

    /// Takes the header.
    ///
    /// # Errors
    /// What was expected of it.
    fn header(&mut self, _header: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Bytes in a record.
    fn record_bytes(&self) -> usize;

    /// Bytes after this record that belong to it and do not matter.
    fn following_bytes(&self, _record: &[u8]) -> usize {
        0
    }

    /// Parses one record, of exactly that many bytes, and pushes at most one request: whether it
    /// did, or `None` if the record is bad.
    fn record(&mut self, record: &[u8], out: &mut Out<'_>) -> Option<bool>;
}

/// The records of a file as requests.
pub(crate) struct Records<P> {
    source: Source,
    parser: P,
    volumes: VolumeTable,
    buffer: Vec<u8>,
    taken: usize,
    ended: bool,
    record_bytes: usize,
    record: u64,
    /// Byte offset of the next record.
    offset: u64,
    /// Bytes to pass over before it.
    following: usize,
    skip_bad: bool,
    counters: Counters,
}

impl<P: RecordParser> Records<P> {
    pub(crate) fn new(mut source: Source, options: &OpenOptions, mut parser: P) -> Result<Self> {
        let mut header = vec![0; P::HEADER_BYTES];
        source.read_exact(&mut header).map_err(|e| source.error(e))?;
        parser.header(&header).map_err(|expected| TraceError::BadRecord {
            path: source.path.clone(),
            at: Position::Record { number: 0, offset: 0 },
            expected,
            found: "another header".to_owned(),
        })?;
        Ok(Records {
            volumes: if P::NUMBERED_VOLUMES {
                VolumeTable::default()
            } else {
                VolumeTable::single(source.stem())
            },
            record_bytes: parser.record_bytes(),
            source,
            parser,
            buffer: Vec::new(),
            taken: 0,
            ended: false,
            record: 0,
            offset: P::HEADER_BYTES as u64,
            following: 0,
            skip_bad: options.skip_bad_lines,
            counters: Counters::default(),
        })
    }

    fn refill(&mut self) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let old = self.buffer.len();
        self.buffer.resize(old + self.record_bytes * 8192, 0);
        let mut len = old;
        while len < self.buffer.len() && !self.ended {
            match self.source.read(&mut self.buffer[len..]) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.buffer.truncate(len);
                    return Err(self.source.error(e));
                }
                Ok(0) => self.ended = true,
                Ok(n) => len += n,
            }
        }
        self.buffer.truncate(len);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let trailing = (self.buffer.len() - self.taken) as u64;
        if trailing == 0 && self.following == 0 {
            return Ok(());
        }
        self.following = 0;
        self.taken = self.buffer.len();
        if self.skip_bad {
            self.counters.bad += 1;
            return Ok(());
        }
        Err(TraceError::Truncated {
            path: self.source.path.clone(),
            records: self.record,
            trailing,
            record_bytes: self.record_bytes as u64,
        })
    }
}

impl<P: RecordParser + Send> Raw for Records<P> {
    fn fill(&mut self, batch: &mut Batch, max: usize) -> Result<()> {
        let target = batch.len() + max;
        while batch.len() < target {
            let passed = self.following.min(self.buffer.len() - self.taken);
            self.following -= passed;
            self.taken += passed;
            let Some(record) = self.buffer.get(self.taken..self.taken + self.record_bytes) else {
                if self.ended {
                    return self.end();
                }
                self.refill()?;
                continue;
            };
            let before = batch.len();
            let mut out = Out { batch, volumes: &mut self.volumes };
            match self.parser.record(record, &mut out) {
                Some(true) => {}
                Some(false) => self.counters.ignored += 1,
                None if self.skip_bad => {
                    batch.truncate(before);
                    self.counters.bad += 1;
                }
                None => {
                    batch.truncate(before);
                    return Err(TraceError::BadRecord {
                        path: self.source.path.clone(),
                        at: Position::Record { number: self.record, offset: self.offset },
                        expected: P::EXPECTED.to_owned(),
                        found: format!("{:02x?}", record),
                    });
                }
            }
            self.following = self.parser.following_bytes(record);
            self.taken += self.record_bytes;
            self.offset += (self.record_bytes + self.following) as u64;
            self.record += 1;
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        About {
            format: P::NAME,
            name: self.source.stem(),
            clock: P::CLOCK,
            volumes: &self.volumes.volumes,
            names_volumes: false,
            hashes: None,
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

/// Little-endian number at `at`; the record is known to be long enough.
#[inline]
pub(crate) fn le64(record: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(b)
}

/// As [`le64`], of 32 bits.
#[inline]
pub(crate) fn le32(record: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&record[at..at + 4]);
    u32::from_le_bytes(b)
}

/// As [`le64`], of 16 bits.
#[inline]
pub(crate) fn le16(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}
