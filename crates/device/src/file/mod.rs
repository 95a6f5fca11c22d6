//! Files and block devices: opening, locking, sizes, alignment, and blocking operations on them.
//!
//! A [`Target`] is opened for good: exclusively locked (`flock`, and `O_EXCL` for block devices,
//! which the kernel refuses while a file system or another driver holds them; a loop device with the file
//! behind it, see `locks.rs`), with `O_DIRECT` where the file system can, and with the sizes and alignments
//! that the kernel reports. A *window* of it is what the machines see: a layout's header lies outside.
//!
//! Zeroing is `fallocate` with `PUNCH_HOLE` or `ZERO_RANGE`, on files and block devices alike:
//! both promise that the range reads as zeroes afterwards, or fail. A discard promises nothing
//! and is not used.

mod geometry;
mod holder;
mod locks;

pub use geometry::is_hole;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::devices::{Capabilities, DeviceError, MemorySlice, Verb};
use crate::holes::{FileHoles, Holes};

/// Bytes that any medium writes as one, or as several whole ones.
const SECTOR_SAFE: u32 = 4096;

/// Whether reads and writes pass the page cache by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    /// If the file system can (`O_DIRECT`); otherwise buffered, with a [`Notice`].
    #[default]
    Prefer,
    /// Never: through the page cache. Syncs still make data durable.
    Never,
    /// Refuse to open without it.
    Require,
}

/// How to open a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The file or block device.
    pub path: PathBuf,
    /// The size of a file that does not exist yet, which is then created. A file that exists is
    /// left as long as it is.
    pub create: Option<u64>,
    /// Whether to reserve a created file's space, so that writes cannot fail for lack of it.
    pub allocate: bool,
    /// Open for reading only, and share the lock with other readers.
    pub read_only: bool,
    /// The page cache's part.
    pub direct: DirectIo,
}

impl OpenOptions {
    /// To read and write an existing target.
    pub fn existing(path: impl Into<PathBuf>) -> OpenOptions {
        OpenOptions {
            path: path.into(),
            create: None,
            allocate: false,
            read_only: false,
            direct: DirectIo::Prefer,
        }
    }
}

/// Something the user should hear of that is no error.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The file goes through the page cache.
    Buffered {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file behind a loop device could not be locked.
    Unlocked {
        /// The device.
        path: PathBuf,
        /// Which file, and why.
        reason: String,
    },
    /// A thread pool does what io_uring would do better.
    Threads {
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Buffered { path, reason } => write!(
                f,
                "{}: no O_DIRECT ({reason}); the host's page cache is in between, data are cached twice",
                path.display()
            ),
            Notice::Unlocked { path, reason } => write!(
                f,
                "{}: the file behind this loop device cannot be locked ({reason}); see to it that nobody \
                 else uses that file",
                path.display()
            ),
            Notice::Threads { reason } => {
                write!(
                    f,
                    "io_uring is not available ({reason}); using a pool of threads, which is slower"
                )
            }
        }
    }
}

/// A target could not be opened. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("{} is in use by {holder}; stop that first, or give another device", path.display())]
    InUse {
        /// What.
        path: PathBuf,
        /// Who, as far as that can be told.
        holder: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    Kind {
        /// What.
        path: PathBuf,
    },
    /// There is no room for anything.
    #[error("{} is too small: {size} bytes, of which {usable} can be used", path.display())]
    TooSmall {
        /// What.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
        /// Whole blocks within the window, bytes.
        usable: u64,
    },
    /// The window does not fit.
    #[error(
        "{}: bytes {offset}+{length} are not within its {size} bytes, or not aligned to {block}",
        path.display()
    )]
    Window {
        /// The file or device that it does not fit.
        path: PathBuf,
        /// Where the window starts.
        offset: u64,
        /// Its length.
        length: u64,
        /// The size of the target.
        size: u64,
        /// Its logical block.
        block: u32,
    },
    /// `O_DIRECT` was required.
    #[error("{}: O_DIRECT is required and not possible ({reason})", path.display())]
    NoDirectIo {
        /// What.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// An open file or block device, or a window of it.
#[derive(Debug)]
pub struct Target {
    file: File,
    /// What is locked with it.
    behind: Vec<File>,
    path: PathBuf,
    offset: u64,
    size: u64,
    created: bool,
    /// The file that was created, and of which nobody has said yet that it is to stay.
    made: Option<locks::Made>,
    logical_block: u32,
    memory_alignment: u32,
    direct: bool,
    block_device: bool,
}

impl Target {
    /// Opens and locks a target.
    ///
    /// # Errors
    /// If it does not exist (and is not to be created), is in use, is too small for a single
    /// block or cannot be had as asked. A file created in vain is removed again, unless somebody else
    /// has taken it meanwhile.
    pub fn open(options: &OpenOptions) -> Result<(Target, Vec<Notice>), OpenError> {
        let path = &options.path;
        let made = create(options)?;
        let opened = open_and_lock(options);
        if let (Err(_), Some(made)) = (&opened, made) {
            locks::remove_unless_in_use(path, made);
        }
        let (mut target, notices) = opened?;
        // (Another file may have taken its place meanwhile: that is not new.)
        target.made =
            made.filter(|made| locks::Made::read(&target.file).is_some_and(|now| now.is(made)));
        target.created = target.made.is_some();
        if target.size == 0 {
            let size = geometry::size(&target.file, target.block_device)
                .map_err(|source| failed("measure", path, source))?;
            return Err(OpenError::TooSmall { path: path.clone(), size, usable: 0 });
        }
        Ok((target, notices))
    }

    /// Narrows the target to `length` bytes from `offset` on: offset 0 of the machines is there.
    ///
    /// # Errors
    /// If the window does not lie within the target, or is not aligned to its logical block.
    pub fn window(mut self, offset: u64, length: u64) -> Result<Target, OpenError> {
        let block = u64::from(self.logical_block);
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if !fits || !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(OpenError::Window {
                path: self.path.clone(),
                offset,
                length,
                size: self.size,
                block: self.logical_block,
            });
        }
        self.offset += offset;
        self.size = length;
        Ok(self)
    }

    /// Usable bytes: whole logical blocks of the target, or the window's length.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether opening it has created it. Then it is removed when the target is dropped, unless somebody says
    /// [`keep`](Target::keep) before, or somebody else has written to it or put another in its place.
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// From now on a file that was created stays when the target is dropped.
    pub fn keep(&mut self) {
        self.made = None;
    }

    /// As it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Where the file is known to have holes; nothing is known of a block device.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn holes(&self) -> io::Result<Option<Arc<dyn Holes>>> {
        if self.block_device {
            return Ok(None);
        }
        // The lock does not outlive the target: it is given up when that goes.
        Ok(Some(Arc::new(FileHoles::new(self.file.try_clone()?, self.offset))))
    }

    /// Bytes of the smallest write that writes nothing else again, so that a power cut cannot tear what was written
    /// before: the medium's own unit where that is known and no page cache is in between, else 4 KiB.
    pub fn sector(&self) -> u32 {
        let physical = || geometry::physical_block(&self.file, self.block_device);
        match self.direct.then(physical).flatten() {
            Some(physical) => physical.max(self.logical_block),
            None => self.logical_block.max(SECTOR_SAFE),
        }
    }

    /// What the executor has to know.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            size: self.size,
            logical_block: self.logical_block,
            memory_alignment: self.memory_alignment,
            zeroes: true,
            punches: true,
        }
    }

    /// The file descriptor, and where the window starts on it.
    pub(crate) fn raw(&self) -> (RawFd, u64) {
        (self.file.as_raw_fd(), self.offset)
    }

    /// Carries an operation out, blocking. Returns the bytes done.
    ///
    /// # Safety
    /// The memory must be valid for the call, and not be used by others meanwhile (a write's
    /// memory may be read).
    pub(crate) unsafe fn perform(
        &self,
        verb: Verb,
        offset: u64,
        length: u64,
        memory: &[MemorySlice],
    ) -> Result<u64, DeviceError> {
        let (fd, base) = self.raw();
        let at = (base + offset) as libc::off64_t;
        let pieces = memory.as_ptr().cast::<libc::iovec>();
        let count = memory.len() as libc::c_int;
        // SAFETY: `MemorySlice` is laid out as an iovec, and the caller vouches for the memory.
        let result = unsafe {
            match verb {
                Verb::Read => libc::preadv64(fd, pieces, count, at) as i64,
                Verb::Write => libc::pwritev64(fd, pieces, count, at) as i64,
                Verb::Sync => libc::fdatasync(fd).into(),
                Verb::WriteZeroes { punch } => {
                    libc::fallocate64(fd, zeroing_mode(punch), at, length as libc::off64_t).into()
                }
            }
        };
        if result < 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(if matches!(verb, Verb::Read | Verb::Write) { result as u64 } else { length })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(made) = self.made {
            // (While no other server can have it.)
            locks::remove_untouched(&self.file, &self.path, made);
        }
        // A ring that is being torn down may keep the file open for a while, and so does a process that is being
        // started, which has copies of all open files for a moment; the locks go now.
        self.behind.iter().chain([&self.file]).for_each(locks::unlock);
    }
}

/// The mode with which `fallocate` makes a range read as zeroes.
pub(crate) fn zeroing_mode(punch: bool) -> libc::c_int {
    let how = if punch { libc::FALLOC_FL_PUNCH_HOLE } else { libc::FALLOC_FL_ZERO_RANGE };
    how | libc::FALLOC_FL_KEEP_SIZE
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { action, path: path.to_owned(), source }
}

/// Creates the file if that is asked for and it is not there. Returns what it has made.
fn create(options: &OpenOptions) -> Result<Option<locks::Made>, OpenError> {
    let path = &options.path;
    let Some(size) = options.create else { return Ok(None) };
    // What it will hold is for this user only, whatever the umask.
    let mut new = File::options();
    new.read(true).write(true).create_new(true).mode(0o600);
    let file = match new.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(failed("create", path, error)),
    };
    let sized = file.set_len(size).and_then(|()| {
        if !options.allocate {
            return Ok(());
        }
        // SAFETY: a system call on our own file descriptor, without pointers.
        match unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, size as libc::off64_t) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // A file system that cannot reserve space will have to do without.
                error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
                error => Err(error),
            },
        }
    });
    sized.and_then(|()| file.sync_all()).map_err(|error| {
        if let Some(made) = locks::Made::read(&file) {
            locks::remove_untouched(&file, path, made);
        }
        failed("make room for", path, error)
    })?;
    Ok(locks::Made::read(&file))
}

fn open_and_lock(options: &OpenOptions) -> Result<(Target, Vec<Notice>), OpenError> {
    let path = &options.path;
    let kind = std::fs::metadata(path).map_err(|error| failed("open", path, error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::Kind { path: path.clone() });
    }
    let block_device = kind.is_block_device();
    let (file, why_buffered) = open_direct(options, block_device)?;
    let (behind, unlocked) = locks::lock(&file, options)?;
    if !locks::is_still_at(&file, path) {
        return Err(OpenError::InUse { path: path.clone(), holder: holder::UNKNOWN.to_owned() });
    }
    if let Some(holder) = locks::loop_device(path).filter(|_| !options.read_only) {
        return Err(OpenError::InUse { path: path.clone(), holder });
    }
    let direct = why_buffered.is_none();
    let measure = |error| failed("measure", path, error);
    let size = geometry::size(&file, block_device).map_err(measure)?;
    let (logical_block, memory_alignment) =
        if direct { geometry::alignment(&file, block_device).map_err(measure)? } else { (1, 1) };
    let buffered = why_buffered.map(|reason| Notice::Buffered { path: path.clone(), reason });
    let notices = buffered.into_iter().chain(unlocked).collect();
    let target = Target {
        file,
        behind,
        path: path.clone(),
        offset: 0,
        created: false,
        made: None,
        size: size - size % u64::from(logical_block),
        logical_block,
        memory_alignment,
        direct,
        block_device,
    };
    Ok((target, notices))
}

/// Opens with `O_DIRECT` if possible; otherwise says why it is not.
fn open_direct(
    options: &OpenOptions,
    block_device: bool,
) -> Result<(File, Option<String>), OpenError> {
    let path = &options.path;
    let exclusive = if block_device && !options.read_only { libc::O_EXCL } else { 0 };
    let open = |flags: libc::c_int| {
        File::options()
            .read(true)
            .write(!options.read_only)
            .custom_flags(flags | exclusive)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    OpenError::InUse { path: path.clone(), holder: holder::of_device(path) }
                }
                _ => failed("open", path, error),
            })
    };
    if options.direct == DirectIo::Never {
        return Ok((open(0)?, Some("it was asked for".into())));
    }
    match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, None)),
        Err(OpenError::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            let reason = "the file system does not support it".to_owned();
            if options.direct == DirectIo::Require {
                return Err(OpenError::NoDirectIo { path: path.clone(), reason });
            }
            Ok((open(0)?, Some(reason)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
