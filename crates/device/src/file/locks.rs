//! Locks: on an opened file or device, and on the file behind a loop device.
//!
//! The kernel lets only one holder open a block device (`O_EXCL`), and `flock` lets only one
//! process lock a file. But two loop devices of one file are two devices, and neither shows that
//! another process uses the file itself. So the file behind a loop device is locked, too: a *range*
//! of it, with a lock that belongs to the open file (`F_OFD_SETLK`), since loop devices may serve
//! different parts of a file. The locked range is shifted by [`FAR`] bytes, past the end of any
//! file, because other programs lock the file's own bytes. So `qemu-img` can still copy a quiesced
//! store.
//!
//! | opened | `flock` on it | range on it | file behind it: `flock` | range |
//! | --- | --- | --- | --- | --- |
//! | a file | exclusive | all | | |
//! | a loop device, or a partition of one | exclusive | all | shared | the part that it serves |
//!
//! If the target is opened read-only, all of these locks are shared. The shared `flock` conflicts
//! with the exclusive one of a process that uses the file itself, and shows to others who holds the
//! file.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::holder::{self, Holder};
use super::{Notice, OpenError, OpenOptions, failed};

/// Offset added to locked ranges: larger than any file.
const FAR: u64 = 1 << 62;
/// Bytes of a sector, the unit of the kernel's partition offsets.
const SECTOR: u64 = 512;
/// Maximum depth to which nested loop devices are followed.
const DEPTH_MAX: usize = 8;
/// `ioctl` number of `linux/loop.h`.
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;

/// `struct loop_info64` of `linux/loop.h`; unused fields are in `rest`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rest: [u64; 27],
}

/// A range of bytes in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    start: u64,
    /// `None` means to the end, however long the file is.
    length: Option<u64>,
}

impl Range {
    const ALL: Range = Range { start: 0, length: None };

    fn end(self) -> u64 {
        self.length.map_or(u64::MAX, |length| self.start.saturating_add(length))
    }

    fn overlaps(self, other: Range) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Converts a range within `whole` to a range of the file that contains `whole`.
    fn within(self, whole: Range) -> Range {
        let room = whole.length.map(|length| length.saturating_sub(self.start));
        let length = match (self.length, room) {
            (Some(length), Some(room)) => Some(length.min(room)),
            (length, room) => length.or(room),
        };
        Range { start: whole.start.saturating_add(self.start), length }
    }
}

/// A loop device, or a partition of one.
#[derive(Debug)]
struct Looped {
    /// The kernel's name of the whole device, such as `loop0`.
    name: String,
    /// The file that it serves, by the path that the kernel reports.
    file: PathBuf,
    /// The part of the file that it serves.
    range: Range,
}

/// Locks an opened file or device, and the files behind it. Returns those files, which must be kept
/// open, and a notice of what could not be locked.
pub(super) fn lock(
    file: &File,
    options: &OpenOptions,
) -> Result<(Vec<File>, Option<Notice>), OpenError> {
    let (path, shared) = (&options.path, options.read_only);
    let in_use = |holder| OpenError::InUse { path: path.clone(), holder };
    // Lock the range first: a process that cannot lock it can then find the holder by its `flock`.
    let had = lock_range(file, Range::ALL, shared).and_then(|had| Ok(had && flock(file, shared)?));
    if !had.map_err(|error| failed("lock", path, error))? {
        return Err(in_use(holder::of_lock(file)));
    }
    let (mut behind, mut range, mut device) = (Vec::new(), Range::ALL, path.clone());
    while let Some(looped) = looped(&device).filter(|_| behind.len() < DEPTH_MAX) {
        range = range.within(looped.range);
        let locked = lock_behind(behind.last().unwrap_or(file), &looped, range, shared);
        if let Ok(Err(holder)) = locked {
            let file = format!("its backing file {}", looped.file.display());
            return Err(in_use(holder.through(file)));
        }
        if !shared && let Some(holder) = sibling_holder(&looped, range) {
            return Err(in_use(holder));
        }
        match locked {
            Ok(next) => behind.extend(next),
            Err(error) => {
                let reason = format!("{}: {error}", looped.file.display());
                return Ok((behind, Some(Notice::Unlocked { path: path.clone(), reason })));
            }
        }
        device = looped.file;
    }
    Ok((behind, None))
}

/// Opens and locks the file behind an open loop device. Returns the file, or the holder of its
/// lock.
fn lock_behind(
    device: &File,
    looped: &Looped,
    range: Range,
    shared: bool,
) -> io::Result<Result<File, Holder>> {
    let file = open_behind(device, looped, shared)?;
    let had = lock_range(&file, range, shared)? && flock(&file, true)?;
    Ok(if had { Ok(file) } else { Err(holder::of_lock(&file)) })
}

/// Whether the path still leads to the file; its last owner may have removed it before releasing
/// the lock.
pub(super) fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::metadata(path).map(identity);
    there.is_ok_and(|there| file.metadata().map(identity).is_ok_and(|opened| opened == there))
}

/// The identity and the state of a file that this process created, at its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Made {
    device: u64,
    inode: u64,
    size: u64,
    /// When it was last modified: seconds and nanoseconds.
    modified: (i64, i64),
}

impl Made {
    /// The present state of the file, if the system returns it.
    pub fn read(file: &File) -> Option<Made> {
        let m = file.metadata().ok()?;
        let modified = (m.mtime(), m.mtime_nsec());
        Some(Made { device: m.dev(), inode: m.ino(), size: m.size(), modified })
    }

    /// Whether it is the same file.
    pub fn is(&self, other: &Made) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Removes a file that this process has created, unless another process uses it.
pub(super) fn remove_unless_in_use(path: &Path, made: Made) {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return };
    let ours = flock(&file, false).is_ok_and(|had| had)
        && lock_range(&file, Range::ALL, false).is_ok_and(|had| had);
    if ours {
        remove_untouched(&file, path, made);
    }
    unlock(&file);
}

/// Removes the file, if the path still leads to it and nothing has been written to it.
pub(super) fn remove_untouched(file: &File, path: &Path, made: Made) {
    let named = fs::symlink_metadata(path).is_ok_and(|m| m.is_file());
    if named && Made::read(file) == Some(made) && is_still_at(file, path) {
        // A failure is not worth reporting: the caller reports why the file is not needed, and an
        // empty file does no harm.
        let _ = fs::remove_file(path);
    }
}

/// Releases the lock, even if something keeps the file open for longer.
pub(super) fn unlock(file: &File) {
    // If these fail, closing the file releases the locks.
    let _ = file.unlock();
    let _ = set_range(file, Range::ALL, libc::F_UNLCK);
}

/// Tries to lock the file. Returns whether the lock was obtained.
fn flock(file: &File, shared: bool) -> io::Result<bool> {
    match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Tries to lock the range. Returns whether the lock was obtained.
fn lock_range(file: &File, range: Range, shared: bool) -> io::Result<bool> {
    set_range(file, range, if shared { libc::F_RDLCK } else { libc::F_WRLCK })
}

fn set_range(file: &File, range: Range, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: all-zero bytes are a valid `flock`.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // No file is as long as `FAR`; clamping to it keeps the shifted range within `off64_t`.
    let room = FAR - 1;
    lock.l_start = (FAR + range.start.min(room)) as libc::off64_t;
    // A length of 0 means to the end.
    let length = range.length.map_or(0, |length| length.clamp(1, room));
    lock.l_len = if range.end() >= room { 0 } else { length as libc::off64_t };
    // SAFETY: the structure outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// The file that the device at `path` serves, if it is a loop device or a partition of one.
fn looped(path: &Path) -> Option<Looped> {
    let metadata = fs::metadata(path).ok().filter(|m| m.file_type().is_block_device())?;
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if !device.join("partition").exists() {
        return of_loop(&device);
    }
    let sectors = |name: &str| number(&device.join(name)).map(|n| n.saturating_mul(SECTOR));
    let part = Range { start: sectors("start")?, length: Some(sectors("size")?) };
    let whole = of_loop(device.parent()?)?;
    Some(Looped { range: part.within(whole.range), ..whole })
}

/// The file that a loop device serves, from its directory under `/sys`.
fn of_loop(directory: &Path) -> Option<Looped> {
    let file = fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    let file = PathBuf::from(file.strip_suffix('\n').unwrap_or(&file));
    let start = number(&directory.join("loop/offset"))?;
    let length = number(&directory.join("loop/sizelimit")).filter(|&length| length > 0);
    let name = directory.file_name()?.to_string_lossy().into_owned();
    Some(Looped { name, file, range: Range { start, length } })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Opens the file behind an open loop device.
fn open_behind(device: &File, looped: &Looped, shared: bool) -> io::Result<File> {
    let file = File::options().read(true).write(!shared).open(&looped.file)?;
    // The path may refer to another file by now, or in this mount namespace.
    let mut info = LoopInfo { device: 0, inode: 0, rest: [0; 27] };
    // SAFETY: the request fills in the structure, which is as long as the kernel's.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let metadata = file.metadata()?;
    if (metadata.dev(), metadata.ino()) != (info.device, info.inode) {
        return Err(io::Error::other("the path now refers to another file"));
    }
    Ok(file)
}

/// The holder of another loop device that serves an overlapping part of the same file, if there is
/// one: for example, a file system.
fn sibling_holder(looped: &Looped, range: Range) -> Option<Holder> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let Some(other) = of_loop(&entry.path()).filter(|other| other.name != looped.name) else {
            continue;
        };
        if !same_file(&other.file, &looped.file) || !other.range.overlaps(range) {
            continue;
        }
        let device = Path::new("/dev").join(&other.name);
        let exclusive = libc::O_EXCL | libc::O_NONBLOCK;
        let error = File::options().read(true).custom_flags(exclusive).open(&device).err();
        if error.is_some_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            let shared = format!("the loop device {} of the same file", other.name);
            return Some(holder::of_device(&device).through(shared));
        }
    }
    None
}

/// The loop device that serves the file at `path`, if one does.
pub(super) fn loop_device(path: &Path) -> Option<Holder> {
    let entries = fs::read_dir("/sys/block").ok()?.flatten();
    let mut loops = entries.filter_map(|entry| of_loop(&entry.path()));
    let found = loops.find(|looped| same_file(&looped.file, path))?;
    Some(Holder::Lasting(format!("the loop device {}", found.name)))
}

fn same_file(a: &Path, b: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    a == b || inode(a).is_some_and(|of_a| Some(of_a) == inode(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, length: u64) -> Range {
        Range { start, length: Some(length) }
    }

    #[test]
    fn ranges_overlap_where_they_share_a_byte() {
        assert!(range(0, 10).overlaps(range(9, 1)));
        assert!(!range(0, 10).overlaps(range(10, 1)));
        assert!(Range::ALL.overlaps(range(1 << 40, 1)));
        assert!(!Range { start: 100, length: None }.overlaps(range(0, 100)));
    }

    #[test]
    fn a_part_lies_within_the_whole() {
        let whole = Range { start: 4096, length: Some(8192) };
        assert_eq!(range(1024, 1024).within(whole), range(5120, 1024));
        assert_eq!(range(1024, 1 << 40).within(whole), range(5120, 7168));
        assert_eq!(Range::ALL.within(whole), whole);
        assert_eq!(range(7, 9).within(Range::ALL), range(7, 9));
    }

    #[test]
    fn ranges_of_a_file_that_do_not_meet_are_locked_by_several() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (a, b, c) = (open(), open(), open());
        assert!(lock_range(&a, range(0, 4096), false).unwrap());
        assert!(!lock_range(&b, range(4095, 10), false).unwrap());
        assert!(!lock_range(&b, range(0, 1), true).unwrap());
        assert!(lock_range(&b, Range { start: 4096, length: None }, true).unwrap());
        assert!(lock_range(&c, range(1 << 50, 4096), true).unwrap(), "readers share");
        assert!(!lock_range(&c, Range::ALL, false).unwrap());
        drop(a);
        drop(b);
        assert!(lock_range(&c, Range::ALL, false).unwrap());
        // These locks do not conflict with those of other programs, which lock the file's own bytes.
        // SAFETY: all-zero bytes are a valid `flock`.
        let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_len = 1 << 40;
        // SAFETY: the structure outlives the call.
        let had = unsafe { libc::fcntl(open().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        assert_eq!(had, 0);
    }

    #[test]
    fn the_structure_of_the_ioctl_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<LoopInfo>(), 232);
    }
}
