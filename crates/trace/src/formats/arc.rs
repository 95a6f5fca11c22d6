//! The traces of ARC's authors (Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead Replacement
//! Cache", FAST 2003), `.lis`: `start count ignored request`, in blocks of 512 B.
//!
//! They record neither times nor operations: every request is a read at time 0.

use super::{
    format::{Format, open_text},
    scan::{Scan, number},
    text::{Line, LineParser, Out},
};
use forebay_block::{Op, SECTOR_BYTES};

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "arc",
    summary: "ARC authors' .lis: start count ignored request (unit=512)",
    detect: |head| {
        head.score_lines(50, |line| {
            let words = || line.split(|b| *b == b' ').filter(|w| !w.is_empty());
            words().count() == 4 && words().all(|w| number(w).is_some())
        })
    },
    open: |source, options, mut params| {
        let unit = params.take_bytes("unit", SECTOR_BYTES)?;
        params.finish("unit")?;
        open_text(source, options, Arc { unit })
    },
};

struct Arc {
    unit: u64,
}

impl LineParser for Arc {
    const NAME: &'static str = "arc";
    const EXPECTED: &'static str = "start count ignored request-number (four numbers)";

    fn records_operations(&self) -> bool {
        false
    }

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let start = number(s.word())?;
        let count = number(s.word())?;
        number(s.word())?;
        number(s.word())?;
        if !s.at_end() {
            return None;
        }
        let (offset, length) = (start.saturating_mul(self.unit), count.saturating_mul(self.unit));
        out.push(0, 0, Op::Read, offset, length)?;
        Some(Line::Request)
    }
}
