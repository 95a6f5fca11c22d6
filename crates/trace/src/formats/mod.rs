//! The trace formats: one file and one line of [`FORMATS`] each.
//!
//! A text format is a [`text::LineParser`], a binary one a [`records::RecordParser`]; what reads
//! lines and records, counts, reports and skips is shared. Detection asks every format how sure
//! it is that the file's first bytes are its own.

mod arc;
mod blkparse;
mod blktrace;
mod clouds;
mod csv;
mod cydonia;
mod fiu;
pub(crate) mod iolog;
mod lcs;
mod msr;
mod oracle_general;
mod params;
mod records;
pub(crate) mod scan;
mod simulators;
mod spc;
mod text;
mod vscsi;

pub(crate) use params::Params;
pub(crate) use text::is_possible;

use crate::{
    OpenOptions, Result, TraceError, TraceReader, parquet, reader::Rebased, source::Source,
};

/// A trace format that can be read.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Format {
    /// Its name, as given to `--format`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// How sure it is, from 0 to 100, that a file is its own.
    pub(crate) detect: fn(&Head<'_>) -> u8,
    pub(crate) open: fn(Source, &OpenOptions, Params) -> Result<Box<dyn TraceReader>>,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Every format, in the order in which they are listed to users.
pub const FORMATS: &[Format] = &[
    parquet::FORMAT,
    csv::FORMAT,
    msr::FORMAT,
    vscsi::V1,
    vscsi::V2,
    vscsi::CSV,
    oracle_general::FORMAT,
    lcs::FORMAT,
    blktrace::FORMAT,
    blkparse::TEXT,
    blkparse::CSV,
    fiu::FORMAT,
    cydonia::FORMAT,
    simulators::DISKSIM,
    simulators::MQSIM,
    arc::FORMAT,
    spc::FORMAT,
    clouds::ALIBABA,
    clouds::TENCENT,
    clouds::SYSTOR,
    iolog::FORMAT,
];

/// The formats' names, for messages.
pub(crate) fn names() -> String {
    FORMATS.iter().map(|f| f.name).collect::<Vec<_>>().join(", ")
}

/// The format named.
pub(crate) fn by_name(name: &str) -> Result<&'static Format> {
    FORMATS
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| TraceError::NoSuchFormat { name: name.to_owned(), known: names() })
}

/// The format of a file, by its beginning.
pub(crate) fn detect(source: &Source) -> Result<&'static Format> {
    let unknown = |hint: &str| TraceError::UnknownFormat {
        path: source.path.clone(),
        hint: hint.to_owned(),
        known: names(),
    };
    if source.head.is_empty() {
        return Err(unknown(": it is empty"));
    }
    let head = Head::new(&source.head, source.head_is_all());
    let best = FORMATS.iter().map(|f| ((f.detect)(&head), f)).max_by_key(|(score, _)| *score);
    match best {
        Some((score, format)) if score > 0 => Ok(format),
        _ if head.text => Err(unknown(&format!(
            ": its first line is \"{}\"",
            text::shown(head.lines().next().unwrap_or_default())
        ))),
        _ => Err(unknown(": it is binary and no known kind")),
    }
}

/// The beginning of a file, for formats to recognise.
pub(crate) struct Head<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether `bytes` is the whole file.
    pub(crate) all: bool,
    /// Whether it looks like text.
    pub(crate) text: bool,
}

impl<'a> Head<'a> {
    pub(crate) fn new(bytes: &'a [u8], all: bool) -> Self {
        let text = !bytes.iter().take(4096).any(|b| *b < 9 || (14..32).contains(b));
        Head { bytes, all, text }
    }

    /// Its whole lines (also a last one without a line end, if it is the whole file).
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let end = if self.all {
            self.bytes.len()
        } else {
            memchr::memrchr(b'\n', self.bytes).unwrap_or(self.bytes.len())
        };
        let bytes = if self.text { &self.bytes[..end] } else { &[] };
        bytes.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l))
    }

    /// The score of a text format whose lines look as `is_ours` says: all of the first lines
    /// must, apart from empty ones and comments.
    pub(crate) fn score_lines(&self, score: u8, is_ours: impl Fn(&[u8]) -> bool) -> u8 {
        let mut lines =
            self.lines().filter(|l| !l.trim_ascii().is_empty() && l[0] != b'#').take(10).peekable();
        if lines.peek().is_some() && lines.all(is_ours) { score } else { 0 }
    }
}

pub(crate) fn open_text<P: text::LineParser + Send + 'static>(
    source: Source,
    options: &OpenOptions,
    parser: P,
) -> Result<Box<dyn TraceReader>> {
    Ok(Box::new(Rebased::new(text::Lines::new(source, options, parser))))
}

pub(crate) fn open_records<P: records::RecordParser + Send + 'static>(
    source: Source,
    options: &OpenOptions,
    parser: P,
) -> Result<Box<dyn TraceReader>> {
    Ok(Box::new(Rebased::new(records::Records::new(source, options, parser)?)))
}

/// "r", "read", "w" or "write" in any case.
pub(crate) fn read_or_write(name: &[u8]) -> Option<forebay_block::Op> {
    let is = |letter: u8, word: &[u8]| {
        matches!(name, [b] if b.eq_ignore_ascii_case(&letter)) || name.eq_ignore_ascii_case(word)
    };
    if is(b'r', b"read") {
        return Some(forebay_block::Op::Read);
    }
    is(b'w', b"write").then_some(forebay_block::Op::Write)
}
