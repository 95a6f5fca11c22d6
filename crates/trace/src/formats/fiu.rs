//! FIU's I/O deduplication traces (Koller, Rangaswami, "I/O Deduplication", FAST 2010): text,
//! `time ns, pid, process, lba, size, R|W, major, minor, hashes`, with addresses and sizes in units
//! of 512 B. The MD5 hashes of the content are in hexadecimal, one for each sector (the "homes"
//! traces) or one for each 4 KiB (the others); the number of hashes shows which.

use super::{
    format::{Format, open_text, read_or_write},
    scan::{Scan, number},
    text::{Line, LineParser, Out, Volumes},
};
use crate::HashInfo;
use forebay_block::SECTOR_BYTES;

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "fiu",
    summary: "FIU deduplication traces: blkparse-like text with MD5 hashes",
    detect: |head| {
        head.score_lines(90, |line| {
            let w: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
            (8..=9).contains(&w.len())
                && [0, 1, 3, 4, 6, 7].iter().all(|i| number(w[*i]).is_some())
                && matches!(w[5], b"R" | b"W")
        })
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Fiu { unit_bytes: None })
    },
};

const DIGEST_BYTES: u64 = 16;

struct Fiu {
    /// Bytes of content for each hash, once known.
    unit_bytes: Option<u64>,
}

impl LineParser for Fiu {
    const NAME: &'static str = "fiu";
    const VOLUMES: Volumes = Volumes::Numbered;
    const EXPECTED: &'static str = "time (ns) pid process lba (512 B) sectors R|W major minor hashes (MD5, as many as \
         sectors or 4 KiB units)";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        let mut s = Scan::new(line);
        let time_ns = number(s.word())?;
        number(s.word())?;
        s.word();
        let offset = number(s.word())?.saturating_mul(SECTOR_BYTES);
        let length = number(s.word())?.saturating_mul(SECTOR_BYTES);
        let op = read_or_write(s.word())?;
        s.trim();
        let start = s.rest;
        number(s.word())?;
        number(s.word())?;
        let device = &start[..start.len() - s.rest.len()];
        let name = |d: &[u8]| String::from_utf8_lossy(d).replace(' ', ":");
        let volume = out.volumes.id(device, name);
        out.push(time_ns, volume, op, offset, length)?;
        let hashes = s.word();
        if !s.at_end() {
            return None;
        }
        self.check_unit(length, hashes.len() as u64)?;
        if !hashes.is_empty() {
            let sink = out.batch.hash_sink();
            for pair in hashes.chunks_exact(2) {
                let digit = |b: u8| (b as char).to_digit(16);
                sink.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
            }
            out.batch.seal_hashes();
        }
        Some(Line::Request)
    }

    fn hashes(&self) -> Option<HashInfo> {
        Some(HashInfo {
            algorithm: "md5".to_owned(),
            unit_bytes: self.unit_bytes? as u32,
            digest_bytes: DIGEST_BYTES as u32,
        })
    }
}

impl Fiu {
    /// Returns `Some` if `digits` hexadecimal digits of hashes fit a request of `length` bytes.
    /// Learns the hashed unit from the first request that is not ambiguous.
    fn check_unit(&mut self, length: u64, digits: u64) -> Option<()> {
        if digits == 0 {
            return Some(());
        }
        let hashes = digits / (2 * DIGEST_BYTES);
        let fits =
            |unit: u64| digits.is_multiple_of(2 * DIGEST_BYTES) && hashes == length.div_ceil(unit);
        match self.unit_bytes {
            Some(unit) => fits(unit).then_some(()),
            None if fits(SECTOR_BYTES) => {
                // A single sector has one hash with either unit.
                self.unit_bytes = (length > SECTOR_BYTES).then_some(SECTOR_BYTES);
                Some(())
            }
            None if fits(4096) => {
                self.unit_bytes = Some(4096);
                Some(())
            }
            None => None,
        }
    }
}
