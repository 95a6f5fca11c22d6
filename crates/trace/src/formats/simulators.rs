//! The ASCII traces of disk and SSD simulators: five numbers on a line.
//!
//! DiskSim: `time ms (with a fraction), device, block, size in blocks, flags (bit 0: read)`.
//! MQSim and SSDsim: `time ns, device, block, size in blocks, type (0 write, 1 read)`.
//! Blocks are of 512 B. Only the fraction distinguishes the two.

use super::{
    format::{Format, Head, open_text},
    scan::{Scan, decimal, number},
    text::{Line, LineParser, Out, Volumes},
};
use forebay_block::{Op, SECTOR_BYTES};

/// Registration.
pub(crate) const DISKSIM: Format = Format {
    name: "disksim",
    summary: "DiskSim ASCII: time (ms) device block size flags",
    detect: |head| {
        let fraction = head.lines().take(10).any(|l| words(l).next().is_some_and(has_dot));
        score(head, |w| fraction && number(w[4]).is_some())
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Simulator::<DISKSIM_KIND>)
    },
};

/// Registration.
pub(crate) const MQSIM: Format = Format {
    name: "mqsim",
    summary: "MQSim and SSDsim ASCII: time (ns) device block size type",
    detect: |head| score(head, |w| !has_dot(w[0]) && matches!(w[4], b"0" | b"1")),
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Simulator::<MQSIM_KIND>)
    },
};

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| matches!(b, b' ' | b'\t')).filter(|w| !w.is_empty())
}

fn has_dot(word: &[u8]) -> bool {
    word.contains(&b'.')
}

fn score(head: &Head<'_>, is_ours: impl Fn(&[&[u8]]) -> bool) -> u8 {
    head.score_lines(50, |line| {
        let w: Vec<&[u8]> = words(line).collect();
        w.len() == 5
            && decimal(w[0], 1).is_some()
            && w[1..4].iter().all(|w| number(w).is_some())
            && is_ours(&w)
    })
}

const DISKSIM_KIND: u8 = 0;
const MQSIM_KIND: u8 = 1;

struct Simulator<const KIND: u8>;

impl<const KIND: u8> LineParser for Simulator<KIND> {
    const NAME: &'static str = if KIND == DISKSIM_KIND { "disksim" } else { "mqsim" };
    const VOLUMES: Volumes = Volumes::Numbered;
    const EXPECTED: &'static str = if KIND == DISKSIM_KIND {
        "time (ms) device block size flags (five numbers)"
    } else {
        "time (ns) device block size type (five numbers, the type 0 or 1)"
    };

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let time_ns =
            if KIND == DISKSIM_KIND { decimal(s.word(), 1_000_000)? } else { number(s.word())? };
        let device = s.word();
        number(device)?;
        let offset = number(s.word())?.saturating_mul(SECTOR_BYTES);
        let length = number(s.word())?.saturating_mul(SECTOR_BYTES);
        let flags = number(s.word())?;
        if !s.at_end() || (KIND == MQSIM_KIND && flags > 1) {
            return None;
        }
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        let volume = out.volumes.id(device, |d| String::from_utf8_lossy(d).into_owned());
        out.push(time_ns, volume, op, offset, length)?;
        Some(Line::Request)
    }
}
