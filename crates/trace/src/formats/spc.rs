//! The Storage Performance Council's trace format (UMass repository: Financial, WebSearch):
//! `ASU,LBA,size,opcode,timestamp[,...]`, with the LBA in units of 512 B, the size in bytes and
//! the time in seconds with a fraction. An application storage unit (ASU) is a volume.

use super::{
    format::{Format, open_text, read_or_write},
    scan::{Scan, decimal, number},
    text::{Line, LineParser, Out, Volumes},
};
use forebay_block::SECTOR_BYTES;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "spc",
    summary: "SPC (UMass): ASU,LBA (512 B),size (bytes),opcode,time (s)",
    detect: |head| {
        head.score_lines(80, |line| {
            let f: Vec<&[u8]> = line.split(|b| *b == b',').map(<[u8]>::trim_ascii).collect();
            f.len() >= 5
                && f[..3].iter().all(|f| number(f).is_some())
                && matches!(f[3], b"r" | b"R" | b"w" | b"W")
                && decimal(f[4], 1).is_some()
        })
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Spc)
    },
};

struct Spc;

impl LineParser for Spc {
    const NAME: &'static str = "spc";
    const VOLUMES: Volumes = Volumes::Numbered;
    const EXPECTED: &'static str = "ASU,LBA (512 B),size (bytes),r|w,time (s)";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let asu = s.field(b',').trim_ascii();
        number(asu)?;
        let offset = number(s.field(b','))?.saturating_mul(SECTOR_BYTES);
        let length = number(s.field(b','))?;
        let op = read_or_write(s.field(b',').trim_ascii())?;
        let time_ns = decimal(s.field(b','), 1_000_000_000)?;
        let volume = out.volumes.id(asu, |a| format!("asu{}", String::from_utf8_lossy(a)));
        out.push(time_ns, volume, op, offset, length)?;
        Some(Line::Request)
    }
}
