//! Reading binary records of a fixed size.

use std::io::Read;

use forebay_block::{Request, SECTOR_BYTES};

use super::text::{Out, impossible};
use crate::{
    Batch, Clock, Counters, OpenOptions, Position, Progress, Result, TraceError,
    metadata::VolumeTable,
    reader::{About, Raw},
    source::Source,
};

/// Number of records to read at a time.
const BUFFER_RECORDS: usize = 2048;

/// Parses the records of one format. Must not panic, whatever the input.
pub(crate) trait RecordParser {
    /// The format's name.
    const NAME: &'static str;
    /// What times count from.
    const CLOCK: Clock = Clock::Unknown;
    /// What a record should be, for messages.
    const EXPECTED: &'static str;
    /// Whether the parser numbers volumes; if not, the trace has one volume.
    const NUMBERED_VOLUMES: bool = false;
    /// Bytes before the first record.
    const HEADER_BYTES: usize = 0;

    /// Parses the header.
    ///
    /// # Errors
    /// A description of the expected header, if this header is invalid.
    fn header(&mut self, _header: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Whether records have operations; if not, all requests are reads.
    fn records_operations(&self) -> bool {
        true
    }

    /// Bytes in a record.
    fn record_bytes(&self) -> usize;

    /// Number of bytes after this record that belong to it and are skipped.
    fn following_bytes(&self, _record: &[u8]) -> usize {
        0
    }

    /// Parses a record of exactly [`RecordParser::record_bytes`] bytes that is a request without
    /// optional values and without following bytes. Returns `None` for any other record.
    /// [`RecordParser::record`] then parses it, as it also does if the request is impossible.
    #[inline]
    fn request(&mut self, _record: &[u8], _volumes: &mut VolumeTable) -> Option<Request> {
        None
    }

    /// Parses one record of exactly [`RecordParser::record_bytes`] bytes and pushes at most one
    /// request. Returns whether it pushed a request, or `None` if the record is bad.
    #[inline]
    fn record(&mut self, record: &[u8], out: &mut Out<'_>) -> Option<bool> {
        let request = self.request(record, out.volumes)?;
        out.push_request(request)?;
        Some(true)
    }
}

/// Reads the records of a file as requests.
pub(crate) struct Records<P> {
    source: Source,
    parser: P,
    volumes: VolumeTable,
    /// Bytes read from the file. Those from `taken` to `filled` have yet to be parsed.
    buffer: Vec<u8>,
    taken: usize,
    filled: usize,
    ended: bool,
    record_bytes: usize,
    record: u64,
    /// Byte offset of the next record.
    offset: u64,
    /// The time of the first request.
    first_ns: Option<u64>,
    /// Bytes to skip before the next record.
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
            found: "a different header".to_owned(),
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
            filled: 0,
            ended: false,
            record: 0,
            offset: P::HEADER_BYTES as u64,
            first_ns: None,
            following: 0,
            skip_bad: options.skip_bad_lines,
            counters: Counters::default(),
        })
    }

    fn refill(&mut self) -> Result<()> {
        // The buffer keeps its length, so it is zeroed only once. Less than a record is left in it.
        self.buffer.resize(self.record_bytes * BUFFER_RECORDS, 0);
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        while self.filled < self.buffer.len() && !self.ended {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.source.error(e)),
                Ok(0) => self.ended = true,
                Ok(n) => self.filled += n,
            }
        }
        Ok(())
    }

    /// Appends the next records, at most `max`, up to the first that is not a plain and possible
    /// request ([`RecordParser::request`]).
    fn take_requests(&mut self, batch: &mut Batch, max: usize) {
        let record_bytes = self.parser.record_bytes();
        let first_ns = &mut self.first_ns;
        let requests = self.buffer[self.taken..self.filled]
            .chunks_exact(record_bytes)
            .take(max)
            .map_while(|record| self.parser.request(record, &mut self.volumes))
            .take_while(|request| {
                let is_possible = impossible(request, *first_ns).is_none();
                *first_ns = first_ns.or(is_possible.then_some(request.time.0));
                is_possible
            });
        let taken = batch.extend(requests);
        self.taken += taken * record_bytes;
        self.offset += (taken * record_bytes) as u64;
        self.record += taken as u64;
    }

    fn end(&mut self) -> Result<()> {
        let trailing = (self.filled - self.taken) as u64;
        if trailing == 0 && self.following == 0 {
            return Ok(());
        }
        self.following = 0;
        self.taken = self.filled;
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
            let passed = self.following.min(self.filled - self.taken);
            self.following -= passed;
            self.taken += passed;
            if self.filled - self.taken < self.record_bytes {
                if self.ended {
                    return self.end();
                }
                self.refill()?;
                continue;
            }
            self.take_requests(batch, target - batch.len());
            let left = &self.buffer[self.taken..self.filled];
            let Some(record) = left.get(..self.record_bytes).filter(|_| batch.len() < target)
            else {
                continue;
            };
            let before = batch.len();
            let mut out = Out::new(batch, &mut self.volumes, self.first_ns);
            let parsed = self.parser.record(record, &mut out);
            let impossible = out.impossible;
            match parsed {
                Some(true) => {
                    self.first_ns = self.first_ns.or(batch.time_ns.get(before).copied());
                }
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
                        expected: impossible.unwrap_or(P::EXPECTED).to_owned(),
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
            file_name: self.source.file_name(),
            clock: P::CLOCK,
            volumes: &self.volumes.volumes,
            names_volumes: false,
            hashes: None,
            records_operations: self.parser.records_operations(),
            doubts: &self.source.doubts,
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }
}

/// Notes a doubt if a trace of objects and sizes, which is read as addresses in sectors by default,
/// seems to count in blocks: all its requests have the same size, but they start at arbitrary
/// sectors of blocks of this size.
pub(crate) fn doubt_unit(
    source: &mut Source,
    told: impl Fn(u64) -> String,
    records: impl Iterator<Item = (u64, u64)>,
) {
    let records: Vec<(u64, u64)> = records.collect();
    let Some(&(_, size)) = records.first().filter(|_| records.len() >= DOUBTED_RECORDS_MIN) else {
        return;
    };
    let sectors = size / SECTOR_BYTES;
    if !size.is_power_of_two() || sectors < 2 || records.iter().any(|(_, other)| *other != size) {
        return;
    }
    let mut within: Vec<u64> = records.iter().map(|(object, _)| object % sectors).collect();
    within.sort_unstable();
    let most = within.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0);
    if 2 * most < within.len() + 2 {
        source.doubts.push(format!(
            "{}: all requests are {size} B long but start at arbitrary sectors, so the trace's \
             addresses seem to be in blocks, not in sectors. Use --format {} to read addresses as \
             blocks, or --format {} to keep reading them as sectors",
            source.path.display(),
            told(size),
            told(SECTOR_BYTES)
        ));
    }
}

/// With fewer records than this, any pattern may be chance.
const DOUBTED_RECORDS_MIN: usize = 8;

/// Reads the little-endian 64-bit number at byte `at`. The record must be long enough.
#[inline]
pub(crate) fn le64(record: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(b)
}

/// Like [`le64`], for 32 bits.
#[inline]
pub(crate) fn le32(record: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&record[at..at + 4]);
    u32::from_le_bytes(b)
}

/// Like [`le64`], for 16 bits.
#[inline]
pub(crate) fn le16(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{lcs::Lcs, oracle_general::OracleGeneral, vscsi::Binary};
    use proptest::prelude::*;

    /// A format without [`RecordParser::request`]: every record is parsed individually.
    struct OneByOne<P>(P);

    impl<P: RecordParser> RecordParser for OneByOne<P> {
        const NAME: &'static str = P::NAME;
        const CLOCK: Clock = P::CLOCK;
        const EXPECTED: &'static str = P::EXPECTED;
        const NUMBERED_VOLUMES: bool = P::NUMBERED_VOLUMES;
        const HEADER_BYTES: usize = P::HEADER_BYTES;

        fn header(&mut self, header: &[u8]) -> Result<(), String> {
            self.0.header(header)
        }

        fn record_bytes(&self) -> usize {
            self.0.record_bytes()
        }

        fn record(&mut self, record: &[u8], out: &mut Out<'_>) -> Option<bool> {
            self.0.record(record, out)
        }
    }

    /// Everything that reading returns: batches, the error that ended it, counters and volumes.
    fn read<P: RecordParser + Send>(
        parser: P,
        bytes: &[u8],
        skip_bad_lines: bool,
    ) -> (Vec<Batch>, Option<String>, Counters, Vec<crate::VolumeInfo>) {
        let source = Source::from_bytes(bytes.to_vec()).unwrap();
        let options = OpenOptions { skip_bad_lines, ..OpenOptions::default() };
        let mut records = match Records::new(source, &options, parser) {
            Ok(records) => records,
            Err(e) => return (Vec::new(), Some(e.to_string()), Counters::default(), Vec::new()),
        };
        let mut batches = Vec::new();
        loop {
            let mut batch = Batch::default();
            let done = records.fill(&mut batch, 300);
            let ended = batch.is_empty();
            batches.push(batch);
            if done.is_err() || ended {
                let error = done.err().map(|e| e.to_string());
                return (batches, error, records.counters, records.volumes.volumes);
            }
        }
    }

    /// Records that are mostly copies of a good one, so that good and bad records alternate.
    fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
        let n = good.len();
        let damage = prop::collection::vec((0usize..900, 0..n, any::<u8>()), 0..6);
        (0usize..900, 0..n, damage).prop_map(move |(records, trailing, damage)| {
            let mut bytes = good.repeat(records);
            for (number, at, byte) in damage {
                if let Some(place) = bytes.get_mut(number * n + at) {
                    *place = byte;
                }
            }
            bytes.extend(&good[..trailing]);
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn runs_of_records_read_as_the_records_do_one_by_one(
            oracle in damaged(vec![1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
            lcs in damaged(vec![1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 2, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            vscsi in damaged([&[1u8, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0x28, 0, 5, 1][..], &[7, 0, 0, 0, 0, 0, 0, 0], &[9, 0, 0, 0, 0, 0, 0, 0]].concat()),
            skip_bad: bool,
        ) {
            let oracle_general = || OracleGeneral { unit: 512 };
            prop_assert_eq!(
                read(oracle_general(), &oracle, skip_bad),
                read(OneByOne(oracle_general()), &oracle, skip_bad)
            );
            let mut header = vec![0; Lcs::HEADER_BYTES];
            header[..8].copy_from_slice(&crate::formats::lcs::MAGIC);
            header[8] = 2;
            let lcs = [header, lcs].concat();
            let parser = || Lcs { unit: 512, version: 1 };
            prop_assert_eq!(
                read(parser(), &lcs, skip_bad),
                read(OneByOne(parser()), &lcs, skip_bad)
            );
            prop_assert_eq!(
                read(Binary::<1>, &vscsi, skip_bad),
                read(OneByOne(Binary::<1>), &vscsi, skip_bad)
            );
        }
    }
}
