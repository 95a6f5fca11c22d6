//! Who holds a device or a file that we cannot have: for messages, as far as `/proc` and `/sys`
//! tell.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who holds the block device at `path`, which the kernel calls busy.
pub(super) fn of_device(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else { return unknown() };
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
    if found.is_empty() { unknown() } else { found.join(", ") }
}

/// How often the list of locks is looked at for a holder.
const LOOKS_MAX: usize = 5;

/// Who has locked the open file.
pub(super) fn of_lock(file: &File) -> String {
    let inode = file.metadata().map(|metadata| metadata.ino().to_string()).unwrap_or_default();
    let look = || {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        locks.lines().find_map(|line| lock_holder(line, &inode))
    };
    // The kernel gives the list in pieces: where others lock and unlock meanwhile, a line may be
    // left out.
    match (0..LOOKS_MAX).find_map(|_| look()) {
        Some(process) if process == std::process::id() => "this very process".to_owned(),
        Some(process) => {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            format!("process {process} ({})", name.trim())
        }
        None => unknown(),
    }
}

/// A holder that is not known; also one that let go while it was looked for.
pub(super) const UNKNOWN: &str = "another process or the kernel";

fn unknown() -> String {
    UNKNOWN.to_owned()
}

/// Where a device is mounted, from `/proc/self/mountinfo`: its third field is the device, its
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

/// The process of a line of `/proc/locks` such as
/// `1: FLOCK  ADVISORY  WRITE 4242 fd:00:1316 0 EOF`, if it locks `inode`.
fn lock_holder(line: &str, inode: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = fields.iter().position(|&field| field == "FLOCK")?;
    let (process, file) = (fields.get(at + 3)?, fields.get(at + 4)?);
    (file.rsplit(':').next()? == inode).then(|| process.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_locks_names_the_process_of_the_inode() {
        let line = "1: FLOCK  ADVISORY  WRITE 4242 fd:00:1316 0 EOF";
        assert_eq!(lock_holder(line, "1316"), Some(4242));
        assert_eq!(lock_holder(line, "131"), None);
        assert_eq!(lock_holder("2: POSIX  ADVISORY  WRITE 1 fd:00:1316 0 EOF", "1316"), None);
        assert_eq!(lock_holder("", "1"), None);
    }

    #[test]
    fn a_device_with_a_mounted_file_system_names_the_mount_point() {
        let device = fs::metadata("/proc/self").unwrap().dev();
        let mounts = mounts_of(libc::major(device), libc::minor(device));
        assert!(mounts.iter().any(|mount| mount.ends_with("mounted on /proc")), "{mounts:?}");
    }
}
