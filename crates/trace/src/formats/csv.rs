//! CSV with named columns: Forebay's own, and any CSV file with a header line.
//!
//! Columns are found by their names in the header (see [`KNOWN`]) or by the parameters of the
//! format: `csv:time=ts@us,op=kind,offset=lba@512,length=bytes@1,volume=disk,header=no,sep=tab`. A
//! parameter gives the name of the column in the header or its number, counted from 1. The unit
//! follows after @: ns, us, ms, s or 100ns for times, a number of bytes for offsets and lengths. A
//! file needs no column of lengths if `length=4096b` gives the length of all requests, and no
//! column of operations if `op=read` gives the operation of all requests.

use super::{
    format::{Format, open_text, read_or_write},
    params::Params,
    records::doubt_unit,
    scan::{decimal, hex, number},
    text::{Line, LineParser, Out, Volumes, is_blank},
};
use crate::{HashInfo, Result, TraceError, source::Source};
use forebay_block::{Flags, Nanos, Op};

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "csv",
    summary: "CSV with named columns (time=NAME@us,op=NAME,offset=NAME@512,length=NAME,...)",
    detect: |head| {
        let Some(line) = head.lines().find(|l| is_content(l)) else { return 0 };
        let names = split(line, separator(line));
        let has = |field| names.iter().any(|n| known(n).is_some_and(|(f, _)| f == field));
        if has(Field::Offset) && has(Field::Length) { 50 } else { 0 }
    },
    open: |mut source, options, params| {
        let parser = Csv::new(&mut source, params)?;
        open_text(source, options, parser)
    },
};

/// The kind of value in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Time,
    Volume,
    Op,
    Flags,
    Offset,
    Length,
    Latency,
    Result,
    Hashes,
}

/// Column names that are recognised without parameters, in lower case, with the kind and the unit
/// of their values. The unit is in nanoseconds or bytes; 0 means that the name does not imply a
/// unit, so the user must give it.
const KNOWN: &[(&str, Field, u64)] = &[
    ("time_ns", Field::Time, 1),
    ("timestamp_ns", Field::Time, 1),
    ("time_us", Field::Time, 1_000),
    ("timestamp_us", Field::Time, 1_000),
    ("time_ms", Field::Time, 1_000_000),
    ("timestamp_ms", Field::Time, 1_000_000),
    ("time_s", Field::Time, 1_000_000_000),
    ("timestamp_s", Field::Time, 1_000_000_000),
    ("time", Field::Time, 0),
    ("timestamp", Field::Time, 0),
    ("ts", Field::Time, 0),
    ("op", Field::Op, 1),
    ("operation", Field::Op, 1),
    ("type", Field::Op, 1),
    ("opcode", Field::Op, 1),
    ("rw", Field::Op, 1),
    ("iotype", Field::Op, 1),
    ("offset", Field::Offset, 1),
    ("offset_bytes", Field::Offset, 1),
    ("lba", Field::Offset, 512),
    ("lbn", Field::Offset, 512),
    ("sector", Field::Offset, 512),
    ("obj_id", Field::Offset, 512),
    ("length", Field::Length, 1),
    ("obj_size", Field::Length, 1),
    ("length_bytes", Field::Length, 1),
    ("size", Field::Length, 1),
    ("bytes", Field::Length, 1),
    ("sectors", Field::Length, 512),
    ("volume", Field::Volume, 1),
    ("device", Field::Volume, 1),
    ("disk", Field::Volume, 1),
    ("lun", Field::Volume, 1),
    ("flags", Field::Flags, 1),
    ("latency_ns", Field::Latency, 1),
    ("latency_us", Field::Latency, 1_000),
    ("latency_ms", Field::Latency, 1_000_000),
    ("result", Field::Result, 1),
    ("hashes", Field::Hashes, 1),
];

fn known(name: &[u8]) -> Option<(Field, u64)> {
    let name = unquoted(name);
    let found = KNOWN.iter().find(|(n, ..)| name.eq_ignore_ascii_case(n.as_bytes()));
    found.map(|(_, field, unit)| (*field, *unit)).or_else(|| known_time(name))
}

/// Recognises a time column whose name ends with a unit: `Time (s)`, `timestamp[us]`, `time ms`.
fn known_time(name: &[u8]) -> Option<(Field, u64)> {
    let lower = name.to_ascii_lowercase();
    let behind = ["timestamp", "time"].iter().find_map(|t| lower.strip_prefix(t.as_bytes()))?;
    let unit = match behind.trim_ascii() {
        [b'(', unit @ .., b')'] | [b'[', unit @ .., b']'] => unit.trim_ascii(),
        // (`times` is not a time in seconds.)
        _ => behind.strip_prefix(b" ").or_else(|| behind.strip_prefix(b"_"))?,
    };
    parse_unit(Field::Time, std::str::from_utf8(unit).ok()?).map(|unit| (Field::Time, unit))
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
struct Column {
    at: usize,
    field: Field,
    unit: u64,
}

struct Csv {
    columns: Vec<Column>,
    separator: u8,
    /// Whether the next line is the header.
    header: bool,
    /// Whether the user says that there are no times.
    without_times: bool,
    op: Option<Op>,
    /// Whether all requests are assumed to be reads, because neither a column nor the user gives
    /// operations.
    op_assumed: bool,
    length: Option<u64>,
    expected: String,
    hashes: Option<HashInfo>,
}

impl Csv {
    fn new(source: &mut Source, mut params: Params) -> Result<Self> {
        let header = params.take("header").is_none_or(|h| h != "no");
        let line = source.head.split(|b| *b == b'\n').find(|l| is_content(l));
        let line = line.unwrap_or_default().to_vec();
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let separator = match params.take("sep").as_deref() {
            None => separator(line),
            Some("tab") => b'\t',
            Some("space") => b' ',
            Some("semicolon") => b';',
            Some("comma") => b',',
            Some(other) => return Err(params.bad("sep", other, "comma, tab, semicolon or space")),
        };
        let names = split(line, separator);
        let mut csv = Csv {
            columns: Vec::new(),
            separator,
            header,
            without_times: false,
            op: None,
            op_assumed: false,
            length: None,
            expected: String::new(),
            hashes: hash_info(&source.head),
        };
        csv.use_params(&names, &mut params)?;
        if header {
            csv.use_header(&names);
            csv.take_for_libcachesim(&names, source);
        }
        params.finish(
            "time, op, offset, length, volume, flags, latency, result, hashes, header, sep",
        )?;
        csv.check(source)?;
        csv.doubt_times(source);
        csv.columns.sort_by_key(|c| c.at);
        csv.expected = csv.describe();
        Ok(csv)
    }

    /// Adds the columns that the user names.
    fn use_params(&mut self, names: &[&[u8]], params: &mut Params) -> Result<()> {
        const FIELDS: [(&str, Field); 9] = [
            ("time", Field::Time),
            ("op", Field::Op),
            ("offset", Field::Offset),
            ("length", Field::Length),
            ("volume", Field::Volume),
            ("flags", Field::Flags),
            ("latency", Field::Latency),
            ("result", Field::Result),
            ("hashes", Field::Hashes),
        ];
        for (key, field) in FIELDS {
            let Some(text) = params.take(key) else { continue };
            let (name, unit) = match text.rsplit_once('@') {
                Some((name, unit)) => (name, Some(unit)),
                None => (text.as_str(), None),
            };
            let by_name = names.iter().position(|n| unquoted(n) == name.as_bytes());
            let at = match by_name.filter(|_| self.header) {
                Some(at) => Some(at),
                None => name.parse().ok().and_then(|n: usize| n.checked_sub(1)),
            };
            if at.is_none() && field == Field::Op && unit.is_none() {
                self.op = read_or_write(name.as_bytes());
            }
            if at.is_none() && field == Field::Length && unit.is_none() {
                self.length = name.strip_suffix('b').and_then(|n| n.parse().ok());
            }
            if at.is_none() && field == Field::Time && text == "none" {
                self.without_times = true;
            }
            let constant = (field == Field::Op && self.op.is_some())
                || (field == Field::Length && self.length.is_some())
                || (field == Field::Time && self.without_times);
            if constant {
                continue;
            }
            let Some(at) = at else {
                return Err(params.bad(key, &text, "the name or number of a column"));
            };
            let default = names.get(at).and_then(|n| known(n)).filter(|(f, _)| *f == field);
            let unit = match unit {
                Some(unit) => parse_unit(field, unit)
                    .ok_or_else(|| params.bad(key, &text, "COLUMN@ns|us|ms|s or COLUMN@BYTES"))?,
                None if field == Field::Time || field == Field::Latency => {
                    default.map_or(0, |(_, unit)| unit)
                }
                None => default.map_or(1, |(_, unit)| unit),
            };
            self.columns.push(Column { at, field, unit });
        }
        Ok(())
    }

    /// Adds columns by their names in the header, except for values that the user has specified.
    fn use_header(&mut self, names: &[&[u8]]) {
        for (at, name) in names.iter().enumerate() {
            let Some((field, unit)) = known(name) else { continue };
            let taken = self.columns.iter().any(|c| c.field == field || c.at == at)
                || (field == Field::Op && self.op.is_some())
                || (field == Field::Length && self.length.is_some())
                || (field == Field::Time && self.without_times);
            if !taken {
                self.columns.push(Column { at, field, unit });
            }
        }
    }

    /// Applies the defaults for libCacheSim's `time,obj_id,obj_size,op`: times are in seconds,
    /// objects are addresses in sectors unless the user says otherwise, and all requests are reads
    /// if there is no column of operations.
    fn take_for_libcachesim(&mut self, names: &[&[u8]], source: &mut Source) {
        let column =
            |name: &[u8]| names.iter().position(|n| unquoted(n).eq_ignore_ascii_case(name));
        let Some(at) = column(b"obj_id") else { return };
        for column in self.columns.iter_mut().filter(|c| c.field == Field::Time && c.unit == 0) {
            column.unit = 1_000_000_000;
        }
        if self.op.is_none() && !self.columns.iter().any(|c| c.field == Field::Op) {
            (self.op, self.op_assumed) = (Some(Op::Read), true);
        }
        let sectors = |c: &Column| c.at == at && c.field == Field::Offset && c.unit == 512;
        let Some(size) = column(b"obj_size").filter(|_| self.columns.iter().any(sectors)) else {
            return;
        };
        let head = std::mem::take(&mut source.head);
        let lines = head.split(|b| *b == b'\n').skip(1).filter_map(|line| {
            let fields = split(line, self.separator);
            Some((number(unquoted(fields.get(at)?))?, number(unquoted(fields.get(size)?))?))
        });
        let told = |unit| format!("csv:offset=obj_id@{unit}");
        doubt_unit(source, told, lines);
        source.head = head;
    }

    fn check(&self, source: &Source) -> Result<()> {
        let wrong = |what: String| {
            let example = "csv:time=COLUMN@us,op=COLUMN,offset=COLUMN@512,length=COLUMN";
            let path = source.path.display();
            TraceError::Options(format!("{path}: {what}; specify it with --format {example}"))
        };
        let has = |field| self.columns.iter().any(|c| c.field == field);
        if !has(Field::Offset) {
            return Err(wrong("no column is recognised as the offset".to_owned()));
        }
        if !has(Field::Length) && self.length.is_none() {
            return Err(wrong("no column is recognised as the length".to_owned()));
        }
        if !has(Field::Op) && self.op.is_none() {
            return Err(wrong(
                "no column is recognised as the operation (op=read means that all requests are \
                 reads)"
                    .to_owned(),
            ));
        }
        match self.columns.iter().find(|c| c.unit == 0) {
            Some(c) => Err(wrong(format!("the time unit of column {} is unknown", c.at + 1))),
            None => Ok(()),
        }
    }

    /// Notes a doubt if there is no time column. Some traces have no times, but more often the
    /// column has a name that is not recognised.
    fn doubt_times(&self, source: &mut Source) {
        if self.without_times || self.columns.iter().any(|c| c.field == Field::Time) {
            return;
        }
        source.doubts.push(format!(
            "{}: no column is recognised as the time, so all requests have time 0. Use --format \
             csv:time=COLUMN@us to name the column and its unit, or --format csv:time=none if there \
             is none",
            source.path.display()
        ));
    }

    fn describe(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|c| {
                let unit = match (c.field, c.unit) {
                    (Field::Time | Field::Latency, u) => format!(" in units of {u} ns"),
                    (Field::Offset | Field::Length, u) if u > 1 => format!(" in units of {u} B"),
                    _ => String::new(),
                };
                format!("{:?}{unit} in column {}", c.field, c.at + 1).to_lowercase()
            })
            .collect();
        columns.join(", ")
    }
}

impl LineParser for Csv {
    const NAME: &'static str = "csv";
    const VOLUMES: Volumes = Volumes::Named;
    const EXPECTED: &'static str = "";

    fn volumes(&self) -> Volumes {
        let told = self.columns.iter().any(|column| column.field == Field::Volume);
        if told { Volumes::Named } else { Volumes::One }
    }

    fn records_operations(&self) -> bool {
        !self.op_assumed
    }

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        if self.header {
            self.header = false;
            return Some(Line::Other);
        }
        let (mut time_ns, mut offset, mut flags) = (0, None, Flags::NONE);
        let (mut op, mut length, mut volume) = (self.op, self.length, None);
        let (mut latency, mut result, mut hashes) = (None, None, &b""[..]);
        let mut fields = line.split(|b| *b == self.separator);
        let mut next = 0;
        for column in &self.columns {
            let text = unquoted(fields.nth(column.at - next)?);
            next = column.at + 1;
            match column.field {
                Field::Time => time_ns = scaled(text, column.unit)?,
                Field::Volume => volume = Some(text),
                Field::Op => op = Some(operation(text)?),
                Field::Flags => flags = Flags(u8::try_from(number(text)?).ok()?),
                Field::Offset => offset = Some(number(text)?.saturating_mul(column.unit)),
                Field::Length => length = Some(number(text)?.saturating_mul(column.unit)),
                Field::Latency if text.is_empty() => {}
                Field::Latency => {
                    let ns = scaled(text, column.unit).filter(|&ns| ns < u64::MAX)?;
                    latency = Some(Nanos(ns));
                }
                Field::Result if text.is_empty() => {}
                Field::Result => result = Some(u8::try_from(number(text)?).ok()?),
                Field::Hashes => hashes = text,
            }
        }
        let volume = volume.map_or(0, |volume| {
            out.volumes.id(volume, |v| match v {
                b"" => "0".to_owned(),
                v => String::from_utf8_lossy(v).into_owned(),
            })
        });
        out.push(time_ns, volume, op?, offset?, length?)?;
        out.batch.set_flags_of_last(flags);
        if let Some(latency) = latency {
            out.batch.set_latency_of_last(latency);
        }
        if result.is_some() {
            out.batch.set_result_of_last(result);
        }
        if !hashes.is_empty() {
            let sink = out.batch.hash_sink();
            for pair in hashes.chunks(2) {
                sink.push(hex(pair).filter(|_| pair.len() == 2)? as u8);
            }
            out.batch.seal_hashes();
        }
        Some(Line::Request)
    }

    fn expected(&self) -> String {
        self.expected.clone()
    }

    fn hashes(&self) -> Option<HashInfo> {
        self.hashes.clone()
    }
}

/// A time, possibly with a fraction, in units of `unit` nanoseconds; `u64::MAX` if it is larger.
fn scaled(text: &[u8], unit: u64) -> Option<u64> {
    if unit == 100 {
        return Some(number(text)?.saturating_mul(100));
    }
    decimal(text, unit)
}

fn operation(text: &[u8]) -> Option<Op> {
    if let Some(op) = read_or_write(text) {
        return Some(op);
    }
    let lower = text.to_ascii_lowercase();
    Some(match &lower[..] {
        b"0" => Op::Read,
        b"1" => Op::Write,
        b"2" | b"t" | b"trim" | b"d" | b"discard" | b"unmap" => Op::Trim,
        b"3" | b"f" | b"flush" | b"sync" => Op::Flush,
        // Operations of key-value caches, as libCacheSim names them.
        b"get" | b"gets" => Op::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" => Op::Write,
        b"delete" => Op::Trim,
        b"4" | b"z" | b"write-zeroes" | b"write_zeroes" => Op::WriteZeroes,
        _ => return None,
    })
}

fn parse_unit(field: Field, text: &str) -> Option<u64> {
    match (field, text) {
        (Field::Time | Field::Latency, "ns") => Some(1),
        (Field::Time | Field::Latency, "100ns") => Some(100),
        (Field::Time | Field::Latency, "us") => Some(1_000),
        (Field::Time | Field::Latency, "ms") => Some(1_000_000),
        (Field::Time | Field::Latency, "s") => Some(1_000_000_000),
        (Field::Offset | Field::Length, n) => n.parse().ok().filter(|n| *n > 0),
        _ => None,
    }
}

/// Guesses the separator: a comma, or a tab or semicolon if the line has no comma.
fn separator(line: &[u8]) -> u8 {
    let has = |b| line.contains(&b);
    [b',', b'\t', b';'].into_iter().find(|b| has(*b)).unwrap_or(b',')
}

/// Whether a line is neither empty nor a comment.
fn is_content(line: &[u8]) -> bool {
    !is_blank(line) && line[0] != b'#'
}

fn split(line: &[u8], separator: u8) -> Vec<&[u8]> {
    line.split(|b| *b == separator).collect()
}

fn unquoted(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => inner,
        _ => field,
    }
}

/// Reads the comment in which our own writer describes the hashes: `# hashes md5 512 16`.
fn hash_info(head: &[u8]) -> Option<HashInfo> {
    let line = head.split(|b| *b == b'\n').take_while(|l| !is_content(l));
    let text = line.filter_map(|l| l.strip_prefix(b"# hashes ")).next()?;
    let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
    Some(HashInfo {
        algorithm: words.next()?.to_owned(),
        unit_bytes: words.next()?.parse().ok()?,
        digest_bytes: words.next()?.parse().ok()?,
    })
}
