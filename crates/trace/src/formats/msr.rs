//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Narayanan, Donnelly, Rowstron, "Write off-loading", FAST 2008. Timestamps and response times
//! are in units of 100 ns, timestamps as Windows file times (since 1601); offsets and sizes are
//! in bytes. The published files have no header line.

use super::{
    format::{Format, open_text, read_or_write},
    scan::Scan,
    text::{Line, LineParser, Out, Volumes},
};
use crate::Clock;
use forebay_block::Nanos;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "msr",
    summary: "MSR Cambridge CSV",
    detect: |head| {
        head.score_lines(90, |line| {
            let fields: Vec<&[u8]> = line.split(|b| *b == b',').collect();
            fields.len() == 7
                && (is_header(line)
                    || (fields[0].len() >= 15
                        && fields[3].len() > 1
                        && read_or_write(fields[3]).is_some()))
        })
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Msr)
    },
};

/// From 1601-01-01 to 1970-01-01 in units of 100 ns.
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;

struct Msr;

fn is_header(line: &[u8]) -> bool {
    line.get(..9).is_some_and(|l| l.eq_ignore_ascii_case(b"timestamp"))
}

impl LineParser for Msr {
    const NAME: &'static str = "msr";
    const CLOCK: Clock = Clock::Unix;
    const VOLUMES: Volumes = Volumes::Named;
    const EXPECTED: &'static str =
        "timestamp (100 ns),hostname,disk,Read|Write,offset,size,response time (100 ns)";

    #[inline]
    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let Some(ticks) = s.number() else {
            return is_header(line).then_some(Line::Other);
        };
        s.byte(b',')?;
        let host = s.rest;
        s.field(b',');
        s.number()?;
        let volume = &host[..host.len() - s.rest.len()];
        s.byte(b',')?;
        let op = read_or_write(s.field(b','))?;
        let offset = s.number()?;
        s.byte(b',')?;
        let length = s.number()?;
        s.byte(b',')?;
        let response = s.number()?;
        if !s.at_end() {
            return None;
        }
        let time_ns = ticks.checked_sub(UNIX_EPOCH)?.saturating_mul(100);
        let volume = out.volumes.id(volume, |k| String::from_utf8_lossy(k).replace(',', "_"));
        out.push(time_ns, volume, op, offset, length)?;
        out.batch.set_latency_of_last(Nanos(response.saturating_mul(100)));
        Some(Line::Request)
    }
}
