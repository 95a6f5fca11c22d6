//! Files as streams of decompressed bytes whose beginning can be examined before reading.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
};

use crate::{OpenOptions, Result, TraceError};

/// Number of bytes at the beginning of a file that formats see during detection.
const HEAD_BYTES: usize = 64 << 10;

/// The mark that some programs, above all spreadsheets, write before UTF-8 text. It is not part of
/// any line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a file that begins with these bytes looks like text.
pub(crate) fn is_text(head: &[u8]) -> bool {
    !head.iter().take(4096).any(|b| *b < 9 || (14..32).contains(b))
}

/// How far reading has progressed, in bytes of the files as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Total number of bytes, if known.
    pub bytes_total: Option<u64>,
}

impl Progress {
    pub(crate) fn plus(self, o: Progress) -> Progress {
        Progress {
            bytes_read: self.bytes_read + o.bytes_read,
            bytes_total: self.bytes_total.zip(o.bytes_total).map(|(a, b)| a + b),
        }
    }
}

/// A file that is read and decompressed.
pub(crate) struct Source {
    /// The file, for messages.
    pub(crate) path: PathBuf,
    /// Its first decompressed bytes, up to [`HEAD_BYTES`].
    pub(crate) head: Vec<u8>,
    /// Whether the file is compressed as a whole.
    pub(crate) compressed: bool,
    /// What the format doubts about how the file is read, one entry per doubt.
    pub(crate) doubts: Vec<String>,
    /// The bytes themselves, if they do not come from a file.
    pub(crate) memory: Option<bytes::Bytes>,
    head_taken: usize,
    rest: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Source {
    /// Opens `path`, or standard input if it is "-".
    pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Source> {
        let io = |doing| move |source| TraceError::Io { path: path.to_owned(), doing, source };
        let awaited = |file| Box::new(Awaited { file, stop: options.stop.clone() });
        if path == Path::new("-") {
            let file = io::stdin().as_fd().try_clone_to_owned().map_err(io("open"))?;
            return Source::new(path, awaited(file.into()), None).map_err(io("read"));
        }
        let mut opened = File::options();
        opened.read(true);
        if is_read_once(path) {
            // Opening a pipe then does not wait for its writer; reading does.
            opened.custom_flags(OFlags::NONBLOCK.bits() as i32);
        }
        let file = opened.open(path).map_err(|error| io("open")(explained(path, error)))?;
        let meta = file.metadata().map_err(io("inspect"))?;
        if meta.is_dir() {
            return Err(io("read")(io::Error::other("it is a directory")));
        }
        let total = meta.is_file().then_some(meta.len());
        Source::new(path, awaited(file), total).map_err(io("read"))
    }

    /// Creates a source of bytes in memory, for tests and fuzzing.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Source> {
        let (path, total) = (Path::new("memory"), bytes.len() as u64);
        let plain = bytes::Bytes::from(bytes);
        let memory = io::Cursor::new(plain.clone());
        let source = Source::new(path, Box::new(memory), Some(total));
        let mut source = source.map_err(|source| TraceError::Io {
            path: path.to_owned(),
            doing: "read",
            source,
        })?;
        source.memory = Some(plain);
        Ok(source)
    }

    fn new(path: &Path, raw: Box<dyn Read + Send>, total: Option<u64>) -> io::Result<Source> {
        let read = Arc::new(AtomicU64::new(0));
        let mut raw = Counted { inner: raw, read: Arc::clone(&read) };
        let magic = read_up_to(&mut raw, 6)?;
        let whole = BufReader::with_capacity(1 << 18, io::Cursor::new(magic.clone()).chain(raw));
        let (mut rest, compressed): (Box<dyn Read + Send>, bool) = match &magic[..] {
            [0x1f, 0x8b, ..] => (Box::new(flate2::bufread::MultiGzDecoder::new(whole)), true),
            // A frame of data, or a frame that decoders skip, which may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                (Box::new(zstd::stream::read::Decoder::with_buffer(whole)?), true)
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                (Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(whole)), true)
            }
            // Callers read in large pieces anyway: a buffer would only add a copy.
            _ => (Box::new(whole.into_inner()), false),
        };
        let mut head = read_up_to(&mut rest, HEAD_BYTES)?;
        if head.starts_with(BYTE_ORDER_MARK) && is_text(&head) {
            head.drain(..BYTE_ORDER_MARK.len());
            head.extend(read_up_to(&mut rest, HEAD_BYTES - head.len())?);
        }
        let (path, memory) = (path.to_owned(), None);
        let doubts = Vec::new();
        Ok(Source { path, head, compressed, doubts, memory, head_taken: 0, rest, read, total })
    }

    /// Whether the head is the whole file.
    pub(crate) fn head_is_all(&self) -> bool {
        self.head.len() < HEAD_BYTES
    }

    /// The file's name without directories and extensions: a name for its volume.
    pub(crate) fn stem(&self) -> String {
        stem(&self.path)
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { bytes_read: self.read.load(Ordering::Relaxed), bytes_total: self.total }
    }

    pub(crate) fn error(&self, source: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), doing: "read", source }
    }
}

/// Whether a trace can be read only once: "-" for standard input, a pipe (also `/dev/fd/N` of one),
/// a terminal or another device that is not a disk.
pub fn is_read_once(path: &Path) -> bool {
    let again = |meta: std::fs::Metadata| {
        let kind = meta.file_type();
        kind.is_file() || kind.is_dir() || kind.is_block_device()
    };
    path == Path::new("-") || std::fs::metadata(path).is_ok_and(|meta| !again(meta))
}

/// A file that may have no data yet.
struct Awaited {
    file: File,
    stop: Option<Arc<AtomicBool>>,
}

impl Awaited {
    /// Waits for data or the end of the file. Fails soon after the stop flag is set.
    fn wait(&self) -> io::Result<()> {
        const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        loop {
            if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(io::Error::other("stopped before the end of the trace"));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&PERIOD)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Awaited {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Explains why a file does not exist: its name describes a synthetic workload, or the file is not
/// finished. Returns other errors unchanged.
fn explained(path: &Path, error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && is_workload(path) {
        let text = format!(
            "there is no such file; to use a synthetic workload, write it to a file first: \
             `forebay trace synth '{}' -o synth.parquet`",
            path.display()
        );
        return io::Error::new(io::ErrorKind::NotFound, text);
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if error.kind() != io::ErrorKind::NotFound || !partial.exists() {
        return error;
    }
    if std::fs::metadata(&partial).is_ok_and(|partial| partial.len() == 0) {
        let text = format!(
            "{} exists, but is empty: it is still being written, or was cut off before anything \
             was saved. If it was cut off, nothing can be recovered",
            partial.display()
        );
        return io::Error::new(io::ErrorKind::NotFound, text);
    }
    let text = format!(
        "{0} exists: it is still being written, or was cut off. `forebay trace convert {0} -o {1}` \
         recovers its requests",
        partial.display(),
        path.display()
    );
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Whether a path looks like a synthetic workload: `PATTERN:KEY=VALUE`.
fn is_workload(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.split_once(':').is_some_and(|(pattern, keys)| {
        keys.contains('=') && pattern.chars().all(|c| c.is_ascii_alphabetic())
    })
}

/// File extensions that are not part of a trace's name.
const EXTENSIONS: [&str; 20] = [
    "partial",
    "gz",
    "zst",
    "xz",
    "parquet",
    "csv",
    "txt",
    "tsv",
    "bin",
    "vscsi",
    "oracleGeneral",
    "lcs",
    "lis",
    "trace",
    "blkparse",
    "blktrace",
    "spc",
    "iolog",
    "log",
    "ascii",
];

/// A file's name without directories and the extensions of formats and compressions.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut name: &str = &name;
    while let Some((rest, ext)) = name.rsplit_once('.') {
        if rest.is_empty() || !EXTENSIONS.contains(&ext) {
            break;
        }
        name = rest;
    }
    name.to_owned()
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = &self.head[self.head_taken..];
        if left.is_empty() {
            return self.rest.read(buf);
        }
        let n = left.len().min(buf.len());
        buf[..n].copy_from_slice(&left[..n]);
        self.head_taken += n;
        Ok(n)
    }
}

struct Counted {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Reads `n` bytes, or fewer if the file ends earlier.
fn read_up_to(from: &mut impl Read, n: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.by_ref().take(n as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn all(bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        Source::from_bytes(bytes).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn compression_is_recognised_by_content_and_undone() {
        let plain: Vec<u8> = (0..200_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        assert_eq!(all(plain.clone()), plain);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gz.write_all(&plain).unwrap();
        // Two members in a row, as `cat a.gz b.gz` makes.
        let gz = gz.finish().unwrap();
        assert_eq!(all([gz.clone(), gz].concat()), [plain.clone(), plain.clone()].concat());
        assert_eq!(all(zstd::encode_all(&plain[..], 1).unwrap()), plain);
        let skippable = [&0x184d_2a5f_u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        let zstd = zstd::encode_all(&plain[..], 1).unwrap();
        assert_eq!(all([skippable, zstd].concat()), plain);
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&plain).unwrap();
        assert_eq!(all(xz.finish().unwrap()), plain);
    }

    #[test]
    fn a_file_that_ends_early_is_an_error() {
        let plain: Vec<u8> = (0..100_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let mut z = zstd::encode_all(&plain[..], 1).unwrap();
        z.truncate(z.len() / 2);
        let mut out = Vec::new();
        assert!(Source::from_bytes(z).unwrap().read_to_end(&mut out).is_err());
    }

    #[test]
    fn a_workload_in_place_of_a_file_is_explained() {
        let refused = |path: &str| {
            Source::open(Path::new(path), &OpenOptions::default()).err().unwrap().to_string()
        };
        let why = refused("zipf:blocks=1000");
        assert!(why.contains("`forebay trace synth 'zipf:blocks=1000' -o synth.parquet`"), "{why}");
        for path in ["/nowhere/a:b=c", "nowhere:8", "nowhere.csv"] {
            let why = refused(path);
            assert!(!why.contains("synth"), "{why}");
        }
    }

    #[test]
    fn an_unfinished_file_is_named_and_an_empty_one_is_not_said_to_be_of_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let partial = directory.path().join("x.parquet.partial");
        let refused = || Source::open(&path, &OpenOptions::default()).err().unwrap().to_string();
        std::fs::write(&partial, b"PAR1").unwrap();
        assert!(refused().contains("recovers its requests"), "{}", refused());
        std::fs::write(&partial, b"").unwrap();
        let why = refused();
        assert!(why.contains("nothing can be recovered") && !why.contains("convert"), "{why}");
        // The message for the partial file itself does not ask for a format, either.
        let source = Source::open(&partial, &OpenOptions::default()).unwrap();
        let why = crate::formats::detect(&source).err().unwrap().to_string();
        assert!(why.contains("nothing can be recovered") && !why.contains("--format"), "{why}");
    }

    #[test]
    fn stems_drop_extensions_but_not_numbers() {
        for (path, name) in [
            ("/a/web_0.csv.gz", "web_0"),
            ("x.vscsi", "x"),
            (".hidden", ".hidden"),
            ("run.12.csv.zst", "run.12"),
            ("-", "-"),
        ] {
            assert_eq!(stem(Path::new(path)), name);
        }
    }
}
