//! CSV with our own column names, which the CSV reader recognises without parameters.

use std::io::Write;
use std::path::Path;

use super::file::PartialFile;
use super::writer::{PlainNames, TraceWriter};
use crate::{Batch, Metadata, Result, Written};
use forebay_block::Op;

pub(super) struct Writer {
    file: PartialFile,
    names: PlainNames,
    requests: u64,
    line: Vec<u8>,
    begun: bool,
}

impl Writer {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = PartialFile::create_or_stdout(path)?;
        let names = PlainNames::default();
        Ok(Writer { file, names, requests: 0, line: Vec::new(), begun: false })
    }

    fn begin(&mut self, metadata: &Metadata) -> Result<()> {
        self.begun = true;
        let mut header = String::new();
        if let Some(h) = &metadata.hashes {
            header = format!("# hashes {} {} {}\n", h.algorithm, h.unit_bytes, h.digest_bytes);
        }
        header += "time_ns,volume,op,flags,offset,length,latency_ns,result,hashes\n";
        self.file.write_all(header.as_bytes()).map_err(|e| self.file.error(e))
    }
}

impl TraceWriter for Writer {
    fn write_batch(&mut self, batch: &Batch, metadata: &Metadata) -> Result<()> {
        if !self.begun {
            self.begin(metadata)?;
        }
        // The CSV reader assumes that names mean the same in the whole capture.
        self.names.add(&metadata.volumes, |volume| match metadata.has_own_name(volume) {
            true => plain(&format!("{}/{}", metadata.name, volume.name)),
            false => plain(&volume.name),
        });
        self.line.clear();
        for i in 0..batch.len() {
            let r = batch.record(i);
            let q = r.request;
            number(&mut self.line, q.time.0);
            self.line.push(b',');
            match self.names.get(q.volume) {
                Some(name) => self.line.extend_from_slice(name.as_bytes()),
                None => number(&mut self.line, q.volume.0.into()),
            }
            self.line.push(b',');
            self.line.extend_from_slice(op_name(q.op));
            for value in [u64::from(q.flags.0), q.offset, q.length] {
                self.line.push(b',');
                number(&mut self.line, value);
            }
            for value in [r.latency.map(|l| l.0), r.result.map(u64::from)] {
                self.line.push(b',');
                if let Some(value) = value {
                    number(&mut self.line, value);
                }
            }
            self.line.push(b',');
            for byte in r.hashes {
                self.line.extend([byte >> 4, byte & 15].map(|d| b"0123456789abcdef"[d as usize]));
            }
            self.line.push(b'\n');
        }
        self.requests += batch.len() as u64;
        self.file.write_all(&self.line).map_err(|e| self.file.error(e))
    }

    fn finish(mut self: Box<Self>, metadata: &Metadata) -> Result<Written> {
        if !self.begun {
            self.begin(metadata)?;
        }
        let Writer { file, requests, .. } = *self;
        Ok(Written { requests, bytes: file.finish()? })
    }
}

fn op_name(op: Op) -> &'static [u8] {
    match op {
        Op::Read => b"read",
        Op::Write => b"write",
        Op::Trim => b"trim",
        Op::Flush => b"flush",
        Op::WriteZeroes => b"write-zeroes",
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Replaces characters of a name that would need quoting or would not be read back unchanged.
fn plain(name: &str) -> String {
    let name = name.replace([',', '"', '\n', '\r', '#'], "_");
    let around = |c: char| c.is_ascii_whitespace();
    match name.as_str() {
        "" => "0".to_owned(),
        text if text.starts_with(around) || text.ends_with(around) => name.replace(around, "_"),
        _ => name,
    }
}
