//! fio's I/O logs, versions 2 and 3, as `write_iolog` writes and `read_iolog` replays them.
//!
//! The first line names the version. The other lines are `[time us] file action [offset length]`:
//! version 3 has the time, version 2 has `wait` actions instead, whose offset is a time in
//! microseconds. Each file is a volume.

use super::{
    format::{Format, open_text},
    scan::{Scan, number},
    text::{Line, LineParser, Out, Volumes},
};
use forebay_block::Op;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "iolog",
    summary: "fio iolog, versions 2 and 3",
    detect: |head| match head.lines().next() {
        Some(VERSION_2 | VERSION_3) => 100,
        _ => 0,
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Iolog { version: 0, time_us: 0 })
    },
};

/// First line of a log of version 2.
pub(crate) const VERSION_2: &[u8] = b"fio version 2 iolog";
/// First line of a log of version 3.
pub(crate) const VERSION_3: &[u8] = b"fio version 3 iolog";

struct Iolog {
    version: u8,
    time_us: u64,
}

impl LineParser for Iolog {
    const NAME: &'static str = "iolog";
    const VOLUMES: Volumes = Volumes::Named;
    const EXPECTED: &'static str =
        "\"fio version 2|3 iolog\", then lines of [time (us)] file action [offset length]";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        match line {
            VERSION_2 => self.version = 2,
            VERSION_3 => self.version = 3,
            _ => return self.action(line, out),
        }
        Some(Line::Other)
    }
}

impl Iolog {
    fn action(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        match self.version {
            3 => self.time_us = number(s.word())?,
            2 => {}
            _ => return None,
        }
        let file = s.word();
        let op = match s.word() {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" => Op::Flush,
            b"wait" => {
                self.time_us = self.time_us.saturating_add(number(s.word())?);
                return Some(Line::Other);
            }
            b"add" | b"open" | b"close" | b"sync_file_range" => return Some(Line::Other),
            _ => return None,
        };
        let range = (number(s.word()), number(s.word()));
        let (offset, length) = match range {
            _ if op == Op::Flush => (0, 0),
            (Some(offset), Some(length)) => (offset, length),
            _ => return None,
        };
        let volume = out.volumes.id(file, |f| String::from_utf8_lossy(f).into_owned());
        out.push(self.time_us.saturating_mul(1_000), volume, op, offset, length)?;
        Some(Line::Request)
    }
}
