//! The CSV traces of cloud providers.
//!
//! - Alibaba (Li et al., IISWC 2020): `device,R|W,offset,length,time us`, in bytes.
//! - Tencent (Zhang et al., "OSCA", ATC 2020): `time s,offset,size,type,volume`, in sectors of
//!   512 B, type 0 read and 1 write.
//! - SYSTOR 2017 (Lee et al., enterprise VDI): `time s,response s,R|W,LUN,offset,size`, in bytes,
//!   with a header line.
//!
//! All times are since 1970. Volumes keep their names across the files of a data set.

use super::{
    format::{Format, Head, open_text, read_or_write},
    scan::{Scan, decimal, number},
    text::{Line, LineParser, Out, Volumes},
};
use crate::Clock;
use forebay_block::{Nanos, Op, SECTOR_BYTES};

/// Registration.
pub(crate) const ALIBABA: Format = Format {
    name: "alibaba",
    summary: "Alibaba CSV: device,R|W,offset,length,time (us)",
    detect: |head| detect::<ALIBABA_KIND>(head, 80),
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Cloud::<ALIBABA_KIND>)
    },
};

/// Registration.
pub(crate) const TENCENT: Format = Format {
    name: "tencent",
    summary: "Tencent CSV: time (s),offset,size (512 B),0|1,volume",
    detect: |head| detect::<TENCENT_KIND>(head, 60),
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Cloud::<TENCENT_KIND>)
    },
};

/// Registration.
pub(crate) const SYSTOR: Format = Format {
    name: "systor17",
    summary: "SYSTOR 2017 CSV: time (s),response (s),R|W,LUN,offset,size",
    detect: |head| detect::<SYSTOR_KIND>(head, 80),
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Cloud::<SYSTOR_KIND>)
    },
};

const ALIBABA_KIND: u8 = 0;
const TENCENT_KIND: u8 = 1;
const SYSTOR_KIND: u8 = 2;

struct Cloud<const KIND: u8>;

fn detect<const KIND: u8>(head: &Head<'_>, score: u8) -> u8 {
    head.score_lines(score, |line| is_header(line) || parse::<KIND>(line).is_some())
}

fn is_header(line: &[u8]) -> bool {
    line.starts_with(b"Timestamp,Response,IOType,LUN") || line.starts_with(b"device_id,opcode,")
}

struct Row<'a> {
    volume: &'a [u8],
    time_ns: u64,
    op: Op,
    offset: u64,
    length: u64,
    latency_ns: Option<u64>,
}

fn parse<const KIND: u8>(line: &[u8]) -> Option<Row<'_>> {
    let mut s = Scan::new(line);
    let letter = |f: &[u8]| if f.len() == 1 { read_or_write(f) } else { None };
    let row = match KIND {
        ALIBABA_KIND => {
            let volume = s.field(b',');
            number(volume)?;
            let op = letter(s.field(b','))?;
            let offset = number(s.field(b','))?;
            let length = number(s.field(b','))?;
            let time_ns = number(s.field(b','))?.saturating_mul(1_000);
            Row { volume, time_ns, op, offset, length, latency_ns: None }
        }
        TENCENT_KIND => {
            let time_ns = number(s.field(b','))?.saturating_mul(1_000_000_000);
            let offset = number(s.field(b','))?.saturating_mul(SECTOR_BYTES);
            let length = number(s.field(b','))?.saturating_mul(SECTOR_BYTES);
            let op = match s.field(b',') {
                b"0" => Op::Read,
                b"1" => Op::Write,
                _ => return None,
            };
            let volume = s.field(b',').trim_ascii();
            number(volume)?;
            Row { volume, time_ns, op, offset, length, latency_ns: None }
        }
        _ => {
            let time_ns = decimal(s.field(b','), 1_000_000_000)?;
            let response = s.field(b',');
            let latency_ns = match response.trim_ascii() {
                b"" => None,
                r => Some(decimal(r, 1_000_000_000)?),
            };
            let op = letter(s.field(b','))?;
            let volume = s.field(b',');
            number(volume)?;
            let offset = number(s.field(b','))?;
            let length = number(s.field(b','))?;
            Row { volume, time_ns, op, offset, length, latency_ns }
        }
    };
    s.at_end().then_some(row)
}

impl<const KIND: u8> LineParser for Cloud<KIND> {
    const NAME: &'static str = match KIND {
        ALIBABA_KIND => "alibaba",
        TENCENT_KIND => "tencent",
        _ => "systor17",
    };
    const CLOCK: Clock = Clock::Unix;
    const VOLUMES: Volumes = Volumes::Named;
    const EXPECTED: &'static str = match KIND {
        ALIBABA_KIND => "device,R|W,offset,length,time (us)",
        TENCENT_KIND => "time (s),offset (512 B),size (512 B),0|1,volume",
        _ => "time (s),response (s),R|W,LUN,offset,size",
    };

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let Some(row) = parse::<KIND>(line) else {
            return is_header(line).then_some(Line::Other);
        };
        let volume = out.volumes.id(row.volume, |v| String::from_utf8_lossy(v).into_owned());
        out.push(row.time_ns, volume, row.op, row.offset, row.length)?;
        if let Some(latency) = row.latency_ns {
            out.batch.set_latency_of_last(Nanos(latency));
        }
        Some(Line::Request)
    }
}
