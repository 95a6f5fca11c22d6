//! Sizes and alignments, as the kernel reports them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, SeekFrom, StatxFlags, ioctl_blkpbszget, ioctl_blksszget, statx};
use rustix::io::Errno;

/// `ioctl` number of `linux/fs.h`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

/// Alignment for all devices, if the kernel does not report one.
const SAFE_ALIGNMENT: u32 = 4096;

/// Bytes of a file or block device.
pub(super) fn size(file: &File, block_device: bool) -> io::Result<u64> {
    if !block_device {
        return Ok(file.metadata()?.len());
    }
    let mut bytes = 0u64;
    // SAFETY: the request writes 8 bytes to the address.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes) };
    if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Whether the file system reports these bytes of a file as a hole, which reads as zeroes. File
/// systems need not report every hole. Moves the file's position.
///
/// # Errors
/// If the file cannot be inspected.
pub fn is_hole(file: &File, at: u64, length: u64) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    Ok(match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data >= at + length,
        Err(Errno::NXIO) => true,
        // The file system cannot report holes.
        Err(_) => false,
    })
}

/// Alignment of offsets and lengths, and of memory, for `O_DIRECT`.
pub(super) fn alignment(file: &File, block_device: bool) -> io::Result<(u32, u32)> {
    let reported = reported_alignment(file);
    if !block_device {
        return Ok(reported.unwrap_or((SAFE_ALIGNMENT, SAFE_ALIGNMENT)));
    }
    let block = Some(ioctl_blksszget(file)?).filter(|block| block.is_power_of_two());
    let block = block.unwrap_or(SAFE_ALIGNMENT).max(512);
    let memory = reported.map_or(block, |(_, memory)| memory);
    Ok((block, memory))
}

/// The unit in bytes in which the medium writes, as the kernel reports it for a block device, or
/// for the device of a file's file system. `None` if it is unknown.
pub(super) fn physical_block(file: &File, block_device: bool) -> Option<u32> {
    if block_device {
        return ioctl_blkpbszget(file).ok().filter(|block| block.is_power_of_two());
    }
    let device = file.metadata().ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let node = format!("/sys/dev/block/{major}:{minor}");
    // (A partition uses its disk's queue.)
    let read = |queue: &str| std::fs::read_to_string(format!("{node}/{queue}/physical_block_size"));
    let text = read("queue").or_else(|_| read("../queue")).ok()?;
    text.trim().parse().ok().filter(|block: &u32| block.is_power_of_two())
}

/// The alignment from `statx` (`STATX_DIOALIGN`, Linux 6.1).
fn reported_alignment(file: &File) -> Option<(u32, u32)> {
    let told = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let (offset, memory) = (told.stx_dio_offset_align, told.stx_dio_mem_align);
    let is_told = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    (is_told && offset.is_power_of_two() && memory.is_power_of_two())
        .then(|| (offset.max(512), memory))
}
