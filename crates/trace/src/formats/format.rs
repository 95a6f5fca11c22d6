//! The definition of a trace format, and code that formats share.

use super::params::Params;
use super::records::{RecordParser, Records};
use super::text::{LineParser, Lines};
use crate::{
    OpenOptions, Result, TraceReader,
    reader::Rebased,
    source::{Source, is_text},
};

/// A trace format that can be read.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Format {
    /// Name, as given to `--format`.
    pub name: &'static str,
    /// Short description.
    pub summary: &'static str,
    /// Returns the confidence, from 0 to 100, that a file has this format.
    pub(crate) detect: fn(&Head<'_>) -> u8,
    pub(crate) open: fn(Source, &OpenOptions, Params) -> Result<Box<dyn TraceReader>>,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The beginning of a file, by which formats recognise it.
pub(crate) struct Head<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether `bytes` is the whole file.
    pub(crate) all: bool,
    /// Whether it looks like text.
    pub(crate) text: bool,
}

impl<'a> Head<'a> {
    pub(crate) fn new(bytes: &'a [u8], all: bool) -> Self {
        Head { bytes, all, text: is_text(bytes) }
    }

    /// The complete lines. If `bytes` is the whole file, this includes a last line without a line
    /// end.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let end = if self.all {
            self.bytes.len()
        } else {
            memchr::memrchr(b'\n', self.bytes).unwrap_or(self.bytes.len())
        };
        let bytes = if self.text { &self.bytes[..end] } else { &[] };
        bytes.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l))
    }

    /// Returns `score` if there are lines and `is_ours` accepts each of the first 10, not counting
    /// empty lines and comments; otherwise 0.
    pub(crate) fn score_lines(&self, score: u8, is_ours: impl Fn(&[u8]) -> bool) -> u8 {
        let mut lines =
            self.lines().filter(|l| !l.trim_ascii().is_empty() && l[0] != b'#').take(10).peekable();
        if lines.peek().is_some() && lines.all(is_ours) { score } else { 0 }
    }
}

pub(crate) fn open_text<P: LineParser + Send + 'static>(
    source: Source,
    options: &OpenOptions,
    parser: P,
) -> Result<Box<dyn TraceReader>> {
    Ok(Box::new(Rebased::new(Lines::new(source, options, parser))))
}

pub(crate) fn open_records<P: RecordParser + Send + 'static>(
    source: Source,
    options: &OpenOptions,
    parser: P,
) -> Result<Box<dyn TraceReader>> {
    Ok(Box::new(Rebased::new(Records::new(source, options, parser)?)))
}

/// Parses "r", "read", "w" or "write", in upper or lower case.
pub(crate) fn read_or_write(name: &[u8]) -> Option<forebay_block::Op> {
    let is = |letter: u8, word: &[u8]| {
        matches!(name, [b] if b.eq_ignore_ascii_case(&letter)) || name.eq_ignore_ascii_case(word)
    };
    if is(b'r', b"read") {
        return Some(forebay_block::Op::Read);
    }
    is(b'w', b"write").then_some(forebay_block::Op::Write)
}
