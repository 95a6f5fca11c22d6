//! Files and block devices: opening, locking, sizes, alignment, and blocking operations on them.
//!
//! A [`Target`] stays open and exclusively locked: with `flock` and, for block devices, with
//! `O_EXCL`, which the kernel refuses while a file system or another driver holds the device. A
//! loop device is locked together with the file behind it (`locks.rs`). A target uses `O_DIRECT`
//! where the file system supports it, and the sizes and alignments that the kernel reports. The
//! machines see a *window* of the target; a layout's header is outside it.
//!
//! Zeroing is `fallocate` with `PUNCH_HOLE` or `ZERO_RANGE`, on files and block devices: both
//! either make the range read as zeroes or fail. A discard does not guarantee zeroes and is not
//! used.

mod geometry;
mod holder;
mod locks;

pub use geometry::is_hole;
pub use holder::Holder;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::devices::{Capabilities, DeviceError, MemorySlice, Verb};
use crate::holes::{FileHoles, Holes};

/// A size in bytes that any medium writes as one or more whole units.
const SECTOR_SAFE: u32 = 4096;

/// Whether reads and writes bypass the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    /// Use `O_DIRECT` if the file system supports it; otherwise buffered I/O, with a [`Notice`].
    #[default]
    Prefer,
    /// Use the page cache. Syncs still make data durable.
    Never,
    /// Use `O_DIRECT`, and fail to open without it.
    Require,
}

/// How to open a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The file or block device.
    pub path: PathBuf,
    /// The size in bytes of the file to create if it does not exist; `None` to create none. An
    /// existing file keeps its size.
    pub create: Option<u64>,
    /// Whether to reserve a created file's space, so that writes cannot fail for lack of it.
    pub allocate: bool,
    /// Open for reading only, and share the lock with other readers.
    pub read_only: bool,
    /// Use of the page cache.
    pub direct: DirectIo,
}

impl OpenOptions {
    /// Options to read and write an existing target.
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

/// A notice to the user that is not an error.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Reads and writes of the file go through the page cache.
    Buffered {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file behind a loop device could not be locked.
    Unlocked {
        /// The device.
        path: PathBuf,
        /// The file, and the reason.
        reason: String,
    },
    /// A thread pool is used, which is slower than io_uring.
    Threads {
        /// The reason.
        reason: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Buffered { path, reason } => write!(
                f,
                "{}: opened without O_DIRECT ({reason}), so the kernel's page cache holds a second \
                 copy of the data",
                path.display()
            ),
            Notice::Unlocked { path, reason } => write!(
                f,
                "{}: the file behind this loop device cannot be locked ({reason}); make sure that \
                 nothing else uses that file",
                path.display()
            ),
            Notice::Threads { reason } => {
                write!(
                    f,
                    "io_uring is not available ({reason}); using a thread pool, which is slower"
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
        /// The failed action.
        action: &'static str,
        /// Its file or device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory of the file to create does not exist.
    #[error(
        "cannot create {0}: the directory {1} does not exist; create it (`mkdir -p {1}`)",
        path.display(), directory.display()
    )]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// The device does not exist. No file is created in its place.
    #[error(
        "there is no device {}; check its name, and that it is connected. Forebay does not create \
         files in /dev, because files there exist only in memory", path.display()
    )]
    NoDevice {
        /// Its name.
        path: PathBuf,
    },
    /// Another process uses it.
    #[error("{} is in use by {holder}; free it first, or name another device", path.display())]
    InUse {
        /// The file or device.
        path: PathBuf,
        /// The holder, as far as known.
        holder: Holder,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    Kind {
        /// The file or device.
        path: PathBuf,
    },
    /// It is too small for any block.
    #[error("{}", too_small(path, *size, *usable))]
    TooSmall {
        /// The file or device.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes of whole blocks within the window.
        usable: u64,
    },
    /// The window is outside the target or misaligned.
    #[error(
        "{}: bytes {offset}+{length} are outside the device's {size} bytes, or not aligned to \
         {block} bytes",
        path.display()
    )]
    Window {
        /// The file or device.
        path: PathBuf,
        /// Where the window starts.
        offset: u64,
        /// Its length.
        length: u64,
        /// The size of the target.
        size: u64,
        /// Its logical block size.
        block: u32,
    },
    /// `O_DIRECT` was required.
    #[error("{}: O_DIRECT is required, but not available ({reason})", path.display())]
    NoDirectIo {
        /// The file or device.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

fn too_small(path: &Path, size: u64, usable: u64) -> String {
    match size {
        0 => format!("{} is empty: a file or device needs at least one block", path.display()),
        _ => {
            format!("{} is too small: only {usable} of its {size} bytes are usable", path.display())
        }
    }
}

/// An open file or block device, or a window of it.
#[derive(Debug)]
pub struct Target {
    file: File,
    /// The files that are locked together with it.
    behind: Vec<File>,
    path: PathBuf,
    offset: u64,
    size: u64,
    created: bool,
    /// The created file, until [`keep`](Target::keep) is called.
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
    /// If it does not exist (and is not to be created), is in use, is too small for a single block
    /// or cannot be opened as requested. If opening fails after the file was created, the file is
    /// removed, unless another process uses it by then.
    pub fn open(options: &OpenOptions) -> Result<(Target, Vec<Notice>), OpenError> {
        let path = &options.path;
        if is_device_name(path) && std::fs::symlink_metadata(path).is_err() {
            return Err(OpenError::NoDevice { path: path.clone() });
        }
        let made = create(options)?;
        let opened = open_and_lock(options);
        if let (Err(_), Some(made)) = (&opened, made) {
            locks::remove_unless_in_use(path, made);
        }
        let (mut target, notices) = opened?;
        // (Another file may have replaced the created one meanwhile; that file is not new.)
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

    /// Narrows the target to `length` bytes from `offset` on, which becomes offset 0 for the
    /// machines.
    ///
    /// # Errors
    /// If the window is not within the target, or not aligned to its logical block.
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

    /// Whether opening created the file. A created file is removed when the target is dropped,
    /// unless [`keep`](Target::keep) was called, or another process has written to the file or
    /// replaced it.
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// Keeps a created file when the target is dropped.
    pub fn keep(&mut self) {
        self.made = None;
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Finds the holes of the file; `None` for a block device.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn holes(&self) -> io::Result<Option<Arc<dyn Holes>>> {
        if self.block_device {
            return Ok(None);
        }
        // The duplicate does not prolong the lock: dropping the target releases it explicitly.
        Ok(Some(Arc::new(FileHoles::new(self.file.try_clone()?, self.offset))))
    }

    /// Size in bytes of the smallest write that rewrites nothing else, so that a power cut cannot
    /// tear older data: the medium's own unit if it is known and the page cache is bypassed,
    /// otherwise 4 KiB.
    pub fn sector(&self) -> u32 {
        let physical = || geometry::physical_block(&self.file, self.block_device);
        match self.direct.then(physical).flatten() {
            Some(physical) => physical.max(self.logical_block),
            None => self.logical_block.max(SECTOR_SAFE),
        }
    }

    /// The capabilities for the executor.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            size: self.size,
            logical_block: self.logical_block,
            memory_alignment: self.memory_alignment,
            zeroes: true,
            punches: true,
        }
    }

    /// The file descriptor, and the start of the window on it.
    pub(crate) fn raw(&self) -> (RawFd, u64) {
        (self.file.as_raw_fd(), self.offset)
    }

    /// Executes an operation, blocking. Returns the bytes done.
    ///
    /// # Safety
    /// The memory must be valid for the call, and not be used by others meanwhile (a write's memory
    /// may be read).
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
        // SAFETY: `MemorySlice` is laid out as an iovec, and the caller guarantees that the memory
        // is valid.
        let result = unsafe {
            match verb {
                Verb::Read => libc::preadv64(fd, pieces, count, at) as i64,
                Verb::Write => libc::pwritev64(fd, pieces, count, at) as i64,
                Verb::Sync => sync_data(fd).into(),
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

/// Calls `fdatasync`, and repeats it if a signal interrupts it: an interrupted sync does not report
/// lost data.
///
/// # Safety
/// As `fdatasync`.
unsafe fn sync_data(fd: RawFd) -> libc::c_int {
    loop {
        // SAFETY: as the caller guarantees.
        let result = unsafe { libc::fdatasync(fd) };
        if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return result;
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(made) = self.made {
            // Remove the file before releasing the locks: no other server can be using it.
            locks::remove_untouched(&self.file, &self.path, made);
        }
        // The file may stay open for a while: in a ring that is being torn down, or in a process
        // that is being started, which briefly has copies of all open files. Release the locks now.
        self.behind.iter().chain([&self.file]).for_each(locks::unlock);
    }
}

/// The mode with which `fallocate` makes a range read as zeroes.
pub(crate) fn zeroing_mode(punch: bool) -> libc::c_int {
    let how = if punch { libc::FALLOC_FL_PUNCH_HOLE } else { libc::FALLOC_FL_ZERO_RANGE };
    how | libc::FALLOC_FL_KEEP_SIZE
}

/// Whether the path is in the system's device directory, so that a missing file is a missing
/// device.
pub fn is_device_name(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.starts_with("/dev") && !folder.starts_with("/dev/shm")
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { action, path: path.to_owned(), source }
}

/// Why a file could not be created.
fn not_created(path: &Path, source: io::Error) -> OpenError {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.filter(|parent| source.kind() == io::ErrorKind::NotFound && !parent.exists()) {
        Some(directory) => {
            OpenError::NoDirectory { path: path.to_owned(), directory: directory.to_owned() }
        }
        None => failed("create", path, source),
    }
}

/// Makes the name of a new file durable: a sync of the file itself does not guarantee this.
///
/// # Errors
/// If its directory cannot be opened or synced.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new(".")))?.sync_all() {
        // (The file system cannot sync directories.)
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// Creates the file if that is requested and it does not exist. Returns the created file.
fn create(options: &OpenOptions) -> Result<Option<locks::Made>, OpenError> {
    let path = &options.path;
    let Some(size) = options.create else { return Ok(None) };
    // Only this user may access the contents, whatever the umask.
    let mut new = File::options();
    new.read(true).write(true).create_new(true).mode(0o600);
    let file = match new.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(not_created(path, error)),
    };
    let sized = file.set_len(size).and_then(|()| {
        if !options.allocate {
            return Ok(());
        }
        // SAFETY: a system call on our own file descriptor, without pointers.
        match unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, size as libc::off64_t) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // The file system cannot reserve space: continue without.
                error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
                error => Err(error),
            },
        }
    });
    let durable = sized.and_then(|()| file.sync_all()).and_then(|()| sync_name(path));
    durable.map_err(|error| {
        if let Some(made) = locks::Made::read(&file) {
            locks::remove_untouched(&file, path, made);
        }
        let needed = format!("{error}; the file needs {} MiB", size.div_ceil(1 << 20));
        failed("allocate space for", path, io::Error::new(error.kind(), needed))
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
        return Err(OpenError::InUse { path: path.clone(), holder: Holder::Unknown });
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

/// Opens with `O_DIRECT` if possible; otherwise also returns the reason why not.
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
        return Ok((open(0)?, Some("as requested".into())));
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
