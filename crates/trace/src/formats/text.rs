//! Reading lines: buffers, line numbers, bad lines, comments.

use std::io::Read;

use crate::{
    Batch, Clock, Counters, HashInfo, OpenOptions, Position, Progress, Result, TraceError,
    metadata::VolumeTable,
    reader::{About, Raw},
    source::Source,
};
use forebay_block::{Flags, Nanos, Op, Request, Volume};

/// Maximum length of a line. The content hashes of a 16 MiB request fit.
const LINE_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 256 << 10;
/// A batch with this many bytes of content hashes is full, so that memory stays bounded.
const BATCH_HASH_BYTES: usize = 16 << 20;
/// Maximum of offset + length: it fits an `i64`, and no device is larger.
pub(crate) const END_MAX: u64 = i64::MAX as u64;
/// Maximum time since the first request of a trace. It fits an `i64`, too, so that adding latencies
/// to it does not overflow.
pub(crate) const TIME_NS_MAX: u64 = i64::MAX as u64;
/// Maximum length of a read or write. No device accepts more, so a larger length in a file is
/// damage.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 1 << 32;

/// Returns what a request should have been if it is impossible, or `None` if it is possible. Code
/// that uses traces can then rely on the absence of overflows and endless loops. `first_ns` is the
/// time of the trace's first request, if there was one.
#[inline]
pub(crate) fn impossible(request: &Request, first_ns: Option<u64>) -> Option<&'static str> {
    let Request { time, op, offset, length, .. } = *request;
    if offset.checked_add(length).is_none_or(|end| end > END_MAX) {
        return Some("a request that ends below an offset of 2^63 bytes");
    }
    if matches!(op, Op::Read | Op::Write) && length > TRANSFER_BYTES_MAX {
        return Some("a read or write of at most 4 GiB");
    }
    if time.0.saturating_sub(first_ns.unwrap_or(time.0)) > TIME_NS_MAX {
        return Some("a time less than 2^63 ns (292 years) after the first request");
    }
    (time.0 == u64::MAX).then_some("a time of less than 2^64 ns")
}

/// How the requests of a format identify their volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Volumes {
    /// They do not: there is one volume, named after the file.
    One,
    /// By numbers that have a meaning only within the file.
    Numbered,
    /// By names that mean the same in every file of a capture.
    Named,
}

/// The kind of a well-formed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// A request, pushed to the batch.
    Request,
    /// Well formed, but not a request.
    Other,
}

/// Parses the lines of one format. The result depends only on the parser's state and the line. Must
/// not panic, whatever the line.
pub(crate) trait LineParser {
    /// The format's name.
    const NAME: &'static str;
    /// What times count from.
    const CLOCK: Clock = Clock::Unknown;
    /// How requests identify their volume.
    const VOLUMES: Volumes = Volumes::One;
    /// Like [`LineParser::VOLUMES`], for a format in which this differs from file to file.
    fn volumes(&self) -> Volumes {
        Self::VOLUMES
    }
    /// What a line should look like, for messages.
    const EXPECTED: &'static str;

    /// Parses one line (without its line end) and pushes at most one request. Returns `None` if the
    /// line is bad; the caller then removes what was pushed.
    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line>;

    /// What the line that was just rejected should have looked like; by default
    /// [`LineParser::EXPECTED`].
    fn expected(&self) -> String {
        Self::EXPECTED.to_owned()
    }

    /// Whether lines have operations; if not, all requests are reads.
    fn records_operations(&self) -> bool {
        true
    }

    /// How content was hashed, if the lines seen so far had hashes.
    fn hashes(&self) -> Option<HashInfo> {
        None
    }
}

/// Receives what parsers find.
pub(crate) struct Out<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) volumes: &'a mut VolumeTable,
    /// Time of the trace's first request.
    first_ns: Option<u64>,
    /// What the last request should have been, if it was rejected.
    pub(crate) impossible: Option<&'static str>,
}

impl<'a> Out<'a> {
    pub(crate) fn new(
        batch: &'a mut Batch,
        volumes: &'a mut VolumeTable,
        first_ns: Option<u64>,
    ) -> Self {
        Out { batch, volumes, first_ns, impossible: None }
    }

    /// Pushes a request, unless it is impossible.
    #[inline]
    pub(crate) fn push(
        &mut self,
        time_ns: u64,
        volume: u32,
        op: Op,
        offset: u64,
        length: u64,
    ) -> Option<()> {
        let (time, volume, flags) = (Nanos(time_ns), Volume(volume), Flags::NONE);
        self.push_request(Request { time, volume, op, flags, offset, length })
    }

    /// Like [`Out::push`], for a request that is already assembled.
    #[inline]
    pub(crate) fn push_request(&mut self, request: Request) -> Option<()> {
        self.impossible = impossible(&request, self.first_ns);
        self.impossible.is_none().then(|| self.batch.push(request))
    }
}

/// Reads the lines of a file as requests.
pub(crate) struct Lines<P> {
    source: Source,
    parser: P,
    volumes: VolumeTable,
    buffer: Vec<u8>,
    taken: usize,
    ended: bool,
    line: u64,
    /// The time of the first request.
    first_ns: Option<u64>,
    skip_bad: bool,
    counters: Counters,
}

impl<P: LineParser> Lines<P> {
    pub(crate) fn new(source: Source, options: &OpenOptions, parser: P) -> Self {
        let volumes = match parser.volumes() {
            Volumes::One => VolumeTable::single(source.stem()),
            Volumes::Numbered | Volumes::Named => VolumeTable::default(),
        };
        Lines {
            source,
            parser,
            volumes,
            buffer: Vec::new(),
            taken: 0,
            ended: false,
            line: 0,
            first_ns: None,
            skip_bad: options.skip_bad_lines,
            counters: Counters::default(),
        }
    }

    /// Removes the parsed lines from the buffer and reads more into it.
    fn refill(&mut self) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let old = self.buffer.len();
        if old > LINE_BYTES_MAX {
            return Err(TraceError::BadRecord {
                path: self.source.path.clone(),
                at: Position::Line(self.line + 1),
                expected: format!("a line of at most {LINE_BYTES_MAX} bytes"),
                found: "a longer one: this is not a text trace".to_owned(),
            });
        }
        self.buffer.resize(old + READ_BYTES, 0);
        let n = loop {
            match self.source.read(&mut self.buffer[old..]) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(old + *n.as_ref().unwrap_or(&0));
        self.ended = n.map_err(|e| self.source.error(e))? == 0;
        Ok(())
    }

    fn bad(&self, line: &[u8], impossible: Option<&str>) -> TraceError {
        TraceError::BadRecord {
            path: self.source.path.clone(),
            at: Position::Line(self.line),
            expected: impossible.map_or_else(|| self.parser.expected(), str::to_owned),
            found: format!("\"{}\"", shown(line)),
        }
    }

    /// Parses the line `self.buffer[start..end]`.
    #[inline]
    fn parse(&mut self, start: usize, end: usize, batch: &mut Batch) -> Result<()> {
        self.line += 1;
        let mut line = &self.buffer[start..end];
        if let [head @ .., b'\r'] = line {
            line = head;
        }
        if line.first().is_none_or(|b| *b == b'#') || is_blank(line) {
            self.counters.ignored += u64::from(line.first() == Some(&b'#'));
            return Ok(());
        }
        let before = batch.len();
        let mut out = Out::new(batch, &mut self.volumes, self.first_ns);
        let parsed = self.parser.line(line, &mut out);
        let impossible = out.impossible;
        match parsed {
            Some(Line::Request) => {
                self.first_ns = self.first_ns.or(batch.time_ns.get(before).copied());
                Ok(())
            }
            Some(Line::Other) => {
                self.counters.ignored += 1;
                Ok(())
            }
            None => {
                batch.truncate(before);
                if self.skip_bad {
                    self.counters.bad += 1;
                    return Ok(());
                }
                Err(self.bad(&self.buffer[start..end], impossible))
            }
        }
    }
}

impl<P: LineParser + Send> Raw for Lines<P> {
    fn fill(&mut self, batch: &mut Batch, max: usize) -> Result<()> {
        let target = batch.len() + max;
        while batch.len() < target && batch.hash_bytes_len() < BATCH_HASH_BYTES {
            match memchr::memchr(b'\n', &self.buffer[self.taken..]) {
                Some(n) => {
                    let start = self.taken;
                    self.taken += n + 1;
                    self.parse(start, start + n, batch)?;
                }
                None if self.ended => {
                    let start = self.taken;
                    self.taken = self.buffer.len();
                    if start < self.taken {
                        self.parse(start, self.taken, batch)?;
                    }
                    return Ok(());
                }
                None => self.refill()?,
            }
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
            names_volumes: self.parser.volumes() == Volumes::Named,
            hashes: self.parser.hashes(),
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

/// Whether a line contains nothing but white space.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// The beginning of a line, for messages.
pub(crate) fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let cut = &line[..line.len().min(60)];
    let mut text: String =
        String::from_utf8_lossy(cut).chars().flat_map(char::escape_debug).collect();
    if cut.len() < line.len() {
        text.push_str("...");
    }
    text
}
