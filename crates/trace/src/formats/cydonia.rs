//! Bhandari's block traces (the Cydonia study): `time us,lba (512 B),r|w,bytes`, no header.

use super::{
    format::{Format, open_text, read_or_write},
    scan::{Scan, number},
    text::{Line, LineParser, Out},
};
use forebay_block::SECTOR_BYTES;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "cydonia",
    summary: "Cydonia CSV: time (us),lba (512 B),r|w,bytes",
    detect: |head| {
        head.score_lines(80, |line| {
            let f: Vec<&[u8]> = line.split(|b| *b == b',').collect();
            f.len() == 4
                && [f[0], f[1], f[3]].iter().all(|f| number(f).is_some())
                && read_or_write(f[2]).is_some()
        })
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Cydonia)
    },
};

struct Cydonia;

impl LineParser for Cydonia {
    const NAME: &'static str = "cydonia";
    const EXPECTED: &'static str = "time (us),lba (512 B),r|w,size (bytes)";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let time_ns = number(s.field(b','))?.saturating_mul(1_000);
        let offset = number(s.field(b','))?.saturating_mul(SECTOR_BYTES);
        let op = read_or_write(s.field(b','))?;
        let length = number(s.rest)?;
        out.push(time_ns, 0, op, offset, length)?;
        Some(Line::Request)
    }
}
