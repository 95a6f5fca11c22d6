//! Finds out what holds a device or file that we cannot open, as far as `/proc` and `/sys` show.
//! For error messages.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What uses a file or device that cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A process.
    Process {
        /// Its process ID.
        id: u32,
        /// The name of its program.
        name: String,
    },
    /// This process.
    Itself,
    /// A lasting use, such as a mounted file system or a device on top, in words.
    Lasting(String),
    /// Another process or the kernel; it may have released the file meanwhile.
    Unknown,
    /// The holder of something that shares the bytes.
    Through {
        /// The holder.
        holder: Box<Holder>,
        /// What shares the bytes, in words.
        shared: String,
    },
}

impl Holder {
    /// Whether the holder seems to be a process that has ended, so that the kernel will release the
    /// file soon.
    pub fn has_ended(&self) -> bool {
        match self {
            Holder::Process { id, .. } => !Path::new("/proc").join(id.to_string()).exists(),
            Holder::Unknown => true,
            Holder::Itself | Holder::Lasting(_) => false,
            Holder::Through { holder, .. } => holder.has_ended(),
        }
    }

    /// Wraps this holder, which holds the file through `shared`.
    pub(super) fn through(self, shared: String) -> Holder {
        Holder::Through { holder: Box::new(self), shared }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { id, name } => write!(f, "process {id} ({name})"),
            Holder::Itself => f.write_str("this process itself"),
            Holder::Lasting(what) => f.write_str(what),
            Holder::Unknown => f.write_str("another process or the kernel"),
            Holder::Through { holder, shared } => write!(f, "{holder}, through {shared}"),
        }
    }
}

/// The holder of the block device at `path`, which the kernel reports as busy.
pub(super) fn of_device(path: &Path) -> Holder {
    let Ok(metadata) = fs::metadata(path) else { return Holder::Unknown };
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let mut found: Vec<String> = mounts_of(major, minor);
    let system = format!("/sys/dev/block/{major}:{minor}");
    for entry in fs::read_dir(format!("{system}/holders")).into_iter().flatten().flatten() {
        found.push(format!("the device {}", entry.file_name().to_string_lossy()));
    }
    for entry in fs::read_dir(&system).into_iter().flatten().flatten() {
        // Partitions are directories with a `dev` file of their own.
        if let Ok(dev) = fs::read_to_string(entry.path().join("dev"))
            && let Some((major, minor)) = parse_numbers(dev.trim())
        {
            found.extend(mounts_of(major, minor));
        }
    }
    if found.is_empty() { Holder::Unknown } else { Holder::Lasting(found.join(", ")) }
}

/// How often the list of locks is searched for a holder.
const LOOKS_MAX: usize = 5;

/// The holder of the lock on the open file.
pub(super) fn of_lock(file: &File) -> Holder {
    let Ok(metadata) = file.metadata() else { return Holder::Unknown };
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    // Inode numbers repeat across file systems, so the device must match, too. The exception: if
    // `stat` reports a separate device for each subvolume, the lists of mounts and locks do not
    // contain that device.
    let device = (!mounts_of(major, minor).is_empty()).then_some((major, minor));
    let look = || {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        locks.lines().find_map(|line| lock_holder(line, device, metadata.ino()))
    };
    // The kernel returns the list in pieces: if other processes lock and unlock meanwhile, a line
    // may be missing.
    match (0..LOOKS_MAX).find_map(|_| look()) {
        Some(id) if id == std::process::id() => Holder::Itself,
        Some(id) => {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            Holder::Process { id, name: name.trim().to_owned() }
        }
        None => Holder::Unknown,
    }
}

/// The mount points of a device, from `/proc/self/mountinfo`: its third field is the device, its
/// fifth the mount point.
fn mounts_of(major: u32, minor: u32) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let point = fields.nth(1)?;
        (parse_numbers(device)? == (major, minor))
            .then(|| format!("the file system mounted on {point}"))
    };
    mounts.lines().filter_map(point).collect()
}

fn parse_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The process in a line of `/proc/locks` such as `1: FLOCK ADVISORY WRITE 4242 fd:00:1316 0 EOF`,
/// if it locks `inode`, of that device if one is given.
fn lock_holder(line: &str, device: Option<(u32, u32)>, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = fields.iter().position(|&field| field == "FLOCK")?;
    let (process, file) = (fields.get(at + 3)?, fields.get(at + 4)?);
    let (place, number) = file.rsplit_once(':')?;
    let (major, minor) = place.split_once(':')?;
    let hexadecimal = |digits| u32::from_str_radix(digits, 16).ok();
    let found = (hexadecimal(major)?, hexadecimal(minor)?);
    let is_it = number.parse() == Ok(inode) && device.is_none_or(|device| device == found);
    is_it.then(|| process.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_locks_names_the_process_of_the_inode() {
        let line = "1: FLOCK  ADVISORY  WRITE 4242 fd:0a:1316 0 EOF";
        assert_eq!(lock_holder(line, None, 1316), Some(4242));
        assert_eq!(lock_holder(line, None, 131), None);
        let other = "2: POSIX  ADVISORY  WRITE 1 fd:0a:1316 0 EOF";
        assert_eq!(lock_holder(other, None, 1316), None);
        assert_eq!(lock_holder("", None, 1), None);
    }

    #[test]
    fn a_file_of_another_file_system_with_the_same_number_is_another_file() {
        let line = "1: FLOCK  ADVISORY  WRITE 4242 fd:0a:1316 0 EOF";
        assert_eq!(lock_holder(line, Some((0xfd, 10)), 1316), Some(4242));
        assert_eq!(lock_holder(line, Some((0xfd, 11)), 1316), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_found_in_the_list_of_locks() {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: the descriptor is open.
        assert_eq!(
            unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&file), libc::LOCK_EX) },
            0
        );
        assert_eq!(of_lock(&file), Holder::Itself);
    }

    #[test]
    fn only_processes_that_are_gone_have_ended() {
        let process = |id| Holder::Process { id, name: "x".into() };
        assert!(!process(std::process::id()).has_ended());
        assert!(!Holder::Lasting("the file system mounted on /mnt".into()).has_ended());
        // Above the largest process ID on Linux.
        let gone = process(4_194_305);
        assert!(gone.has_ended() && gone.through("its backing file x".into()).has_ended());
    }

    #[test]
    fn a_device_with_a_mounted_file_system_names_the_mount_point() {
        let device = fs::metadata("/proc/self").unwrap().dev();
        let mounts = mounts_of(libc::major(device), libc::minor(device));
        assert!(mounts.iter().any(|mount| mount.ends_with("mounted on /proc")), "{mounts:?}");
    }
}
