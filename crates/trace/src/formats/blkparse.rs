//! The output of blkparse for a blktrace capture, in its default form,
//! `major,minor cpu sequence time pid event rwbs sector + sectors [process]`, and as CSV,
//! `major,minor,sequence,time,pid,rwbs,sector,sectors`. Sectors are of 512 B, times are in seconds
//! with a fraction.
//!
//! Each request has several events, of which this reader takes one: by default Q, when the request
//! was queued (parameter `event`). A write with a flush (rwbs "FW") is read as the write alone.

use super::{
    format::{Format, open_text},
    scan::{Scan, decimal, number},
    text::{Line, LineParser, Out, Volumes},
};
use forebay_block::{Flags, Op, SECTOR_BYTES};

/// Registration.
pub(crate) const TEXT: Format = Format {
    name: "blkparse",
    summary: "blkparse's default text (event=Q)",
    detect: |head| {
        let is_event = |line| {
            let mut s = Scan::new(line);
            device_number(s.word()).is_some()
                && [s.word(), s.word()].iter().all(|w| number(w).is_some())
                && decimal(s.word(), 1).is_some()
        };
        let mut events = head.lines().take_while(|l| !is_summary(l)).take(10).peekable();
        if events.peek().is_some() && events.all(is_event) { 90 } else { 0 }
    },
    open: |source, options, mut params| {
        let event = params.take("event").unwrap_or_else(|| "Q".to_owned());
        let [byte] = event.as_bytes() else {
            return Err(params.bad("event", &event, "a single letter such as Q, D or C"));
        };
        let byte = *byte;
        params.finish("event")?;
        open_text(source, options, Text { event: byte, in_summary: false })
    },
};

/// Registration.
pub(crate) const CSV: Format = Format {
    name: "blkparse-csv",
    summary: "blktrace as CSV: major,minor,sequence,time (s),pid,rwbs,sector,sectors",
    detect: |head| {
        head.score_lines(80, |line| {
            let f: Vec<&[u8]> = line.split(|b| *b == b',').collect();
            f.len() == 8
                && [0, 1, 2, 4, 6, 7].iter().all(|i| number(f[*i]).is_some())
                && decimal(f[3], 1).is_some()
        })
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Csv)
    },
};

/// What the rwbs letters say about a request.
#[derive(Clone, Copy)]
struct Kind {
    op: Op,
    flags: Flags,
    /// Whether a flush precedes the request.
    flush: bool,
}

/// Parses rwbs letters. Returns `None` if they are invalid, and `Some(None)` for a request that a
/// cache does not see.
///
/// The letters are those of the kernel's `blk_fill_rwbs`: F first for a preceding flush, the
/// operation, then F for FUA, A for read-ahead, S for synchronous, M for metadata.
fn rwbs(letters: &[u8]) -> Option<Option<Kind>> {
    let (flush, rest) = match letters {
        [b'F', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let flags = if rest.iter().skip(1).any(|b| *b == b'F') { Flags::FUA } else { Flags::NONE };
    let kind = |op| Some(Some(Kind { op, flags, flush }));
    match rest.first() {
        Some(b'R') => kind(Op::Read),
        Some(b'W') => kind(Op::Write),
        Some(b'D') => kind(Op::Trim),
        Some(b'N' | b'F' | b'S' | b'M' | b'A') | None if flush => kind(Op::Flush),
        Some(b'N' | b'S' | b'M' | b'A' | b'B') => Some(None),
        _ => None,
    }
}

/// Returns `Some` if `word` is a device number such as "259,2".
fn device_number(word: &[u8]) -> Option<()> {
    let mut s = Scan::new(word);
    number(s.field(b','))?;
    number(s.rest).map(|_| ())
}

fn volume_name(device: &[u8]) -> String {
    String::from_utf8_lossy(device).replace(',', ":")
}

/// Pushes one request. A request of 0 bytes with a flush becomes the flush.
fn push(
    out: &mut Out<'_>,
    time_ns: u64,
    device: &[u8],
    kind: Kind,
    (sector, sectors): (u64, u64),
) -> Option<()> {
    let offset = sector.saturating_mul(SECTOR_BYTES);
    let length = sectors.saturating_mul(SECTOR_BYTES);
    let volume = out.volumes.id(device, volume_name);
    if kind.op == Op::Flush || (kind.flush && length == 0) {
        return out.push(time_ns, volume, Op::Flush, 0, 0);
    }
    out.push(time_ns, volume, kind.op, offset, length)?;
    out.batch.set_flags_of_last(kind.flags);
    Some(())
}

struct Text {
    event: u8,
    /// Whether the summary at the end of blkparse's output has begun. Its lines have many forms.
    in_summary: bool,
}

fn is_summary(line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b"CPU", b"Total", b"Throughput", b"Events", b"Skips", b"Input"];
    let line = line.trim_ascii_start();
    BEGINNINGS.iter().any(|b| line.starts_with(b))
}

impl LineParser for Text {
    const NAME: &'static str = "blkparse";
    const VOLUMES: Volumes = Volumes::Numbered;
    const EXPECTED: &'static str =
        "major,minor cpu sequence time (s) pid event rwbs sector + sectors [process]";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let device = s.word();
        if device_number(device).is_none() {
            self.in_summary |= is_summary(line);
            // No line of the summary begins with a digit.
            let first = line.trim_ascii_start().first();
            let plain = first.is_none_or(|b| !b.is_ascii_digit());
            return (self.in_summary && plain).then_some(Line::Other);
        }
        number(s.word())?;
        number(s.word())?;
        let time_ns = decimal(s.word(), 1_000_000_000)?;
        number(s.word())?;
        if s.word() != [self.event] {
            return Some(Line::Other);
        }
        let Some(kind) = rwbs(s.word())? else { return Some(Line::Other) };
        let first = s.word();
        let range = if kind.flush && number(first).is_none() {
            (0, 0)
        } else {
            let sector = number(first)?;
            (s.word() == b"+").then_some(())?;
            (sector, number(s.word())?)
        };
        push(out, time_ns, device, kind, range)?;
        Some(Line::Request)
    }
}

struct Csv;

impl LineParser for Csv {
    const NAME: &'static str = "blkparse-csv";
    const VOLUMES: Volumes = Volumes::Numbered;
    const EXPECTED: &'static str = "major,minor,sequence,time (s),pid,rwbs,sector,sectors";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        s.number()?;
        s.byte(b',')?;
        s.number()?;
        let device = &line[..line.len() - s.rest.len()];
        s.byte(b',')?;
        number(s.field(b','))?;
        let time_ns = decimal(s.field(b','), 1_000_000_000)?;
        number(s.field(b','))?;
        let Some(kind) = rwbs(s.field(b','))? else { return Some(Line::Other) };
        let sector = number(s.field(b','))?;
        let sectors = number(s.rest)?;
        push(out, time_ns, device, kind, (sector, sectors))?;
        Some(Line::Request)
    }
}
