//! Writes fio's I/O logs, for replay with `fio --read_iolog`.
//!
//! fio has no write-zeroes: they become writes. FUA is lost. Requests of 0 bytes are left out,
//! because fio crashes on them. Times are truncated to microseconds.

use std::{collections::HashSet, io::Write, path::Path};

use super::file::PartialFile;
use super::writer::{LeftOut, PlainNames, TraceWriter};
use crate::{Batch, Metadata, Result, Written, formats::iolog};
use forebay_block::{Op, Request};

pub(super) struct Writer {
    file: PartialFile,
    timed: bool,
    target: Option<String>,
    names: PlainNames,
    /// The files opened so far, in order.
    opened: Vec<String>,
    known: HashSet<String>,
    requests: u64,
    left_out: LeftOut,
    last_us: u64,
    lines: String,
}

impl Writer {
    /// Begins a log of version 3 if it is `timed`, otherwise of version 2. A `target` replaces the
    /// names of the volumes.
    pub(super) fn create(path: &Path, timed: bool, target: Option<String>) -> Result<Self> {
        let mut file = PartialFile::create_or_stdout(path)?;
        let version = if timed { iolog::VERSION_3 } else { iolog::VERSION_2 };
        file.write_all(&[version, b"\n"].concat()).map_err(|e| file.error(e))?;
        Ok(Writer {
            file,
            timed,
            target,
            names: PlainNames::default(),
            opened: Vec::new(),
            known: HashSet::new(),
            requests: 0,
            left_out: LeftOut::default(),
            last_us: 0,
            lines: String::new(),
        })
    }

    fn line(&mut self, us: u64, text: &str) {
        if self.timed {
            self.lines += &us.to_string();
            self.lines.push(' ');
        }
        self.lines += text;
        self.lines.push('\n');
    }

    fn request(&mut self, r: &Request, name: &str) {
        let us = r.time.0 / 1_000;
        if self.known.insert(name.to_owned()) {
            self.opened.push(name.to_owned());
            self.line(us, &format!("{name} add"));
            self.line(us, &format!("{name} open"));
        }
        if !self.timed && us > self.last_us {
            self.line(us, &format!("{name} wait {} 0", us - self.last_us));
        }
        self.last_us = us;
        let action = match r.op {
            Op::Read => "read",
            Op::Write | Op::WriteZeroes => "write",
            Op::Trim => "trim",
            Op::Flush => "sync",
        };
        self.line(us, &format!("{name} {action} {} {}", r.offset, r.length));
    }
}

impl TraceWriter for Writer {
    fn write_batch(&mut self, batch: &Batch, metadata: &Metadata) -> Result<()> {
        self.names.add(&metadata.volumes, |volume| plain(&volume.name));
        self.lines.clear();
        let (names, target) = (std::mem::take(&mut self.names), self.target.take());
        for r in batch.requests() {
            if r.length == 0 && r.op != Op::Flush {
                self.left_out.empty += 1;
                continue;
            }
            self.requests += 1;
            match target.as_deref().or_else(|| names.get(r.volume)) {
                Some(name) => self.request(&r, name),
                None => self.request(&r, &r.volume.0.to_string()),
            }
        }
        (self.names, self.target) = (names, target);
        self.file.write_all(self.lines.as_bytes()).map_err(|e| self.file.error(e))
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn finish(mut self: Box<Self>, _: &Metadata) -> Result<Written> {
        self.lines.clear();
        for name in std::mem::take(&mut self.opened) {
            self.line(self.last_us, &format!("{name} close"));
        }
        self.file.write_all(self.lines.as_bytes()).map_err(|e| self.file.error(e))?;
        let Writer { file, requests, .. } = *self;
        Ok(Written { requests, bytes: file.finish()? })
    }
}

/// Turns a name into a single word that does not look like a comment.
fn plain(name: &str) -> String {
    match name {
        "" => "_".to_owned(),
        name => name.replace(|c: char| c.is_whitespace() || c.is_control() || c == '#', "_"),
    }
}
