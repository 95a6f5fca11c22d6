//! Files that appear when they are complete.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{Result, TraceError};

/// The path that means standard output.
pub(super) const STDOUT: &str = "-";

/// A file being written as `NAME.partial`: it gets its name when it is complete and is removed
/// if it never is. Something at `NAME` that is no regular file (a pipe, `/dev/stdout`) is written
/// directly; a link stays, and what it leads to is written.
pub(crate) struct PartialFile {
    path: PathBuf,
    partial: Option<PathBuf>,
    kept: bool,
    file: BufWriter<File>,
}

impl PartialFile {
    /// A file that gets the permissions which the umask leaves.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Self::create_with(path, 0o666)
    }

    /// As [`create`](Self::create), but `-` is standard output, which nothing else may write to meanwhile.
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

    /// A file that gets at most the permissions `mode`. One that is there already keeps its own.
    pub(crate) fn create_with(path: &Path, mode: u32) -> Result<Self> {
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let special = path.metadata().is_ok_and(|m| !m.is_file());
        let partial = (!special).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".partial");
            PathBuf::from(name)
        });
        let target = partial.as_deref().unwrap_or(path);
        let mut options = File::options();
        options.read(!special).write(true).create(!special).truncate(!special).mode(mode);
        let file = options.open(target).map_err(|source| TraceError::Io {
            path: target.to_owned(),
            doing: "create",
            source,
        })?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(PartialFile { path: path.to_owned(), partial, kept: false, file })
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be read and written again before it is finished.
    pub(crate) fn is_regular(&self) -> bool {
        self.partial.is_some()
    }

    /// What it is called until it is finished, if that is another name.
    pub(crate) fn partial_path(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// Leaves what is there when dropped.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// The file itself, with everything written so far.
    pub(crate) fn flushed(&mut self) -> io::Result<&mut File> {
        self.file.flush()?;
        Ok(self.file.get_mut())
    }

    /// Makes it durable and gives it its name; its length in bytes.
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

    /// An error from writing to it.
    pub(crate) fn error(&self, source: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), doing: "write", source }
    }
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
