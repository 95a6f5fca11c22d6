//! Files that appear under their name when they are complete.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Result, TraceError};

/// The path that means standard output.
pub(super) const STDOUT: &str = "-";

/// A file that is written under a temporary name in the same directory. It gets its name when it is
/// complete, and is removed if it never is. If the name belongs to something other than a regular
/// file (such as a pipe or `/dev/stdout`), that is written directly. A symbolic link stays, and its
/// target is replaced.
///
/// The temporary name is an unused one, so that no file is lost. Only a recording is written as
/// `NAME.partial`, where it can be found after a crash. Its file is locked while it is written.
pub(crate) struct PartialFile {
    path: PathBuf,
    partial: Option<PathBuf>,
    kept: bool,
    file: BufWriter<File>,
}

impl PartialFile {
    /// Creates a file with the permissions that the umask allows.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Self::create_as(path, 0o666, create_nameless)
    }

    /// Like [`create`](Self::create), for a file that only this user may read.
    pub(crate) fn create_private(path: &Path) -> Result<Self> {
        Self::create_as(path, 0o600, create_nameless)
    }

    /// Creates a file that is called `NAME.partial` until it is complete, and that only this user
    /// may read. If `NAME.partial` already exists, it is kept, and this fails.
    pub(crate) fn create_recording(path: &Path) -> Result<Self> {
        Self::create_as(path, 0o600, |path, options| {
            let mut name = path.as_os_str().to_owned();
            name.push(".partial");
            let partial = PathBuf::from(name);
            let file = options.open(&partial).map_err(|source| failed(&partial, source))?;
            // (Others lock the file only to test whether they can. Failure is ignored, because a
            // file system may not support locks.)
            let _ = file.lock();
            Ok((partial, file))
        })
    }

    /// Like [`create`](Self::create), but `-` is standard output, to which nothing else may write
    /// until the file is finished.
    pub(crate) fn create_or_stdout(path: &Path) -> Result<Self> {
        if path.as_os_str() != STDOUT {
            return Self::create(path);
        }
        let path = path.to_owned();
        let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let stdout = match stdout {
            Ok(stdout) => BufWriter::with_capacity(1 << 18, stdout),
            Err(source) => return Err(TraceError::Io { path, doing: "write", source }),
        };
        Ok(PartialFile { path, partial: None, kept: false, file: stdout })
    }

    fn create_as(
        path: &Path,
        mode: u32,
        create: impl FnOnce(&Path, &OpenOptions) -> Result<(PathBuf, File)>,
    ) -> Result<Self> {
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let special = path.metadata().is_ok_and(|m| !m.is_file());
        let (partial, file) = match special {
            true => {
                let file = File::options().write(true).open(path);
                (None, file.map_err(|source| failed(path, source))?)
            }
            false => {
                let mut options = File::options();
                options.read(true).write(true).create_new(true).mode(mode);
                let (partial, file) = create(path, &options)?;
                (Some(partial), file)
            }
        };
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(PartialFile { path: path.to_owned(), partial, kept: false, file })
    }

    /// Path of the finished file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file can be read and rewritten before it is finished.
    pub(crate) fn is_regular(&self) -> bool {
        self.partial.is_some()
    }

    /// The temporary path, if the file has one.
    pub(crate) fn partial_path(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// Keeps the temporary file when `self` is dropped.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Returns the file itself, after flushing everything written so far to it.
    pub(crate) fn flushed(&mut self) -> io::Result<&mut File> {
        self.file.flush()?;
        Ok(self.file.get_mut())
    }

    /// Makes the file durable and gives it its name. Returns its length in bytes, or 0 if it was
    /// written directly.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let path = self.path.clone();
        let io = |doing| {
            let path = path.clone();
            move |source| TraceError::Io { path, doing, source }
        };
        self.file.flush().map_err(io("write"))?;
        let file = self.file.get_ref();
        let Some(partial) = &self.partial else { return Ok(0) };
        file.sync_all().map_err(io("sync"))?;
        let bytes = file.metadata().map_err(io("inspect"))?.len();
        std::fs::rename(partial, &self.path).map_err(io("rename to"))?;
        self.partial = None;
        sync_directory(&self.path);
        Ok(bytes)
    }

    /// Converts an error from writing to the file.
    pub(crate) fn error(&self, source: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), doing: "write", source }
    }
}

/// Creates a file in the directory of `path`, under an unused name.
fn create_nameless(path: &Path, options: &OpenOptions) -> Result<(PathBuf, File)> {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let other = path.with_file_name(format!(".forebay-{}-{number}", std::process::id()));
        match options.open(&other) {
            Ok(file) => return Ok((other, file)),
            // Left by a process that was killed, or used by one on another host.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // The message contains the name that the user gave.
            Err(source) => return Err(failed(path, source)),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> TraceError {
    TraceError::Io { path: path.to_owned(), doing: "create", source }
}

/// Makes a rename durable where the file system allows that.
fn sync_directory(path: &Path) {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Ok(directory) = File::open(directory) {
        let _ = directory.sync_all();
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.as_ref().filter(|_| !self.kept) {
            let _ = std::fs::remove_file(partial);
        }
    }
}
