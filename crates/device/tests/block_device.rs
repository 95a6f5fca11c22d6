//! Tests of block devices, with loop devices. They need permission to create one; without it, the
//! tests print a message and pass.

#![allow(clippy::print_stderr)] // says what it skips

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use forebay_device::file::{Notice, OpenError, OpenOptions, Target};
use forebay_device::{
    AlignedBuffer, Backend, Completion, Devices, Doorbell, Io, IoTag, MemorySlice, RealDevices,
    Verb, uring,
};
use forebay_effect::Device;

const SIZE: u64 = 4 << 20;

struct Loop {
    device: PathBuf,
    image: PathBuf,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new() -> Option<Loop> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::write(&image, vec![0xAA; SIZE as usize]).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        match made {
            Ok(made) if made.status.success() => {
                let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
                Some(Loop { device, image, _directory: directory })
            }
            _ => {
                eprintln!("skipped: no right to make a loop device here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} is left", self.device.display());
    }
}

fn open(path: &Path) -> Result<Target, OpenError> {
    Target::open(&OpenOptions::existing(path)).map(|(target, _)| target)
}

/// Opens a device, and retries for a while: a process that another test starts briefly has copies
/// of all open files, and a block device that was opened exclusively is free only when the last
/// copy is closed.
fn open_soon(options: &OpenOptions) -> Result<Target, OpenError> {
    let mut tries = 100;
    loop {
        tries -= 1;
        match Target::open(options) {
            Err(OpenError::InUse { .. }) if tries > 0 => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.map(|(target, _)| target),
        }
    }
}

#[test]
fn a_block_device_tells_its_size_and_block_and_is_had_by_one() {
    let Some(looped) = Loop::new() else { return };
    let target = open_soon(&OpenOptions::existing(&looped.device)).unwrap();
    assert!(target.is_block_device());
    assert_eq!(target.size(), SIZE);
    assert!(target.capabilities().logical_block >= 512);
    let error = open(&looped.device).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(target);
    open_soon(&OpenOptions::existing(&looped.device)).unwrap();
}

#[test]
fn a_file_that_serves_a_loop_device_is_in_use_by_it() {
    let Some(looped) = Loop::new() else { return };
    let error = open(&looped.image).unwrap_err().to_string();
    assert!(error.contains("in use by the loop device loop"), "{error}");
}

#[test]
fn zeroing_and_punching_a_block_device_leaves_zeroes_and_nothing_else() {
    let Some(looped) = Loop::new() else { return };
    for backend in [Backend::Threads, Backend::Auto] {
        let bell = Arc::new(Doorbell::new().unwrap());
        let ring = uring::Options::default();
        let (mut devices, _) = RealDevices::new(backend, ring, bell.clone()).unwrap();
        let target = open_soon(&OpenOptions::existing(&looped.device)).unwrap();
        devices.add(Device::Flash, target);
        let mut perform = |verb, offset: u64, length: u64, memory: &[MemorySlice]| {
            let io = Io { tag: IoTag(1), device: Device::Flash, verb, offset, length, memory };
            // SAFETY: the caller's buffer outlives this function, which waits for the operation.
            unsafe { devices.submit(io) };
            devices.flush();
            let mut done = Vec::new();
            while done.is_empty() {
                bell.wait(None);
                devices.reap(&mut done);
            }
            assert_eq!(done, [Completion { tag: IoTag(1), result: Ok(length) }]);
        };
        let mut buffer = AlignedBuffer::new(64 << 10);
        buffer.fill(0xAA);
        let memory = [MemorySlice { pointer: buffer.pointer(), length: buffer.len() }];
        perform(Verb::Write, 0, 64 << 10, &memory);
        perform(Verb::WriteZeroes { punch: false }, 4096, 8192, &[]);
        perform(Verb::WriteZeroes { punch: true }, 32768, 4096, &[]);
        perform(Verb::Sync, 0, 0, &[]);
        perform(Verb::Read, 0, 64 << 10, &memory);
        let zeroed = |at: usize| (4096..12288).contains(&at) || (32768..36864).contains(&at);
        let expected: Vec<u8> = (0..64 << 10).map(|at| if zeroed(at) { 0 } else { 0xAA }).collect();
        assert!(buffer[..] == expected);
        drop(devices);
    }
}

/// A second loop device, of a part of the same file.
struct Second(PathBuf);

impl Second {
    fn new(image: &Path, arguments: &[&str]) -> Second {
        let mut made = Command::new("losetup");
        let made = made.args(["--find", "--show"]).args(arguments).arg(image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Second(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} is left", self.0.display());
    }
}

#[test]
fn a_file_behind_two_loop_devices_is_had_by_one() {
    let Some(looped) = Loop::new() else { return };
    let other = Second::new(&looped.image, &[]);
    let (first, notices) = Target::open(&OpenOptions::existing(&looped.device)).unwrap();
    assert_eq!(notices, [], "the file behind it is locked");
    let error = open(&other.0).unwrap_err().to_string();
    let image = looped.image.canonicalize().unwrap();
    let words =
        ["in use by this process itself", "through its backing file", image.to_str().unwrap()];
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    let readers = OpenOptions { read_only: true, ..OpenOptions::existing(&other.0) };
    assert!(matches!(Target::open(&readers), Err(OpenError::InUse { .. })));
    drop(first);
    let reader = open_soon(&readers).unwrap();
    let second = OpenOptions { read_only: true, ..OpenOptions::existing(&looped.device) };
    assert!(Target::open(&second).is_ok(), "readers share");
    assert!(matches!(open(&looped.device), Err(OpenError::InUse { .. })));
    drop(reader);
    open_soon(&OpenOptions::existing(&other.0)).unwrap();
}

#[test]
fn loop_devices_of_different_parts_of_a_file_are_had_by_several() {
    let Some(looped) = Loop::new() else { return };
    let part =
        |offset: &str| Second::new(&looped.image, &["--offset", offset, "--sizelimit", "1048576"]);
    let (a, b, c) = (part("0"), part("1048576"), part("524288"));
    let first = open(&a.0).unwrap();
    let second = open(&b.0).unwrap();
    for device in [&c.0, &looped.device] {
        assert!(matches!(open(device), Err(OpenError::InUse { .. })), "{}", device.display());
    }
    drop((first, second));
    let third = open_soon(&OpenOptions::existing(&c.0)).unwrap();
    assert!(open(&a.0).is_err() && open(&b.0).is_err());
    drop(third);
}

#[test]
fn a_loop_device_of_a_file_that_somebody_has_is_in_use() {
    let Some(looped) = Loop::new() else { return };
    // As if a server had opened the file before the loop device existed.
    let other = std::fs::File::options().read(true).write(true).open(&looped.image).unwrap();
    other.lock().unwrap();
    let error = open(&looped.device).unwrap_err().to_string();
    assert!(error.contains("in use by this process itself, through its backing file"), "{error}");
    drop(other);
    let first = open_soon(&OpenOptions::existing(&looped.device)).unwrap();
    let other = std::fs::File::open(&looped.image).unwrap();
    assert!(other.try_lock().is_err(), "and the other way round");
    drop(first);
    assert!(other.try_lock().is_ok());
}

#[test]
fn a_loop_device_whose_file_is_gone_is_had_with_a_notice() {
    let Some(looped) = Loop::new() else { return };
    let elsewhere = looped.image.with_extension("elsewhere");
    std::fs::rename(&looped.image, &elsewhere).unwrap();
    std::fs::write(&looped.image, b"another").unwrap();
    std::fs::remove_file(&elsewhere).unwrap();
    let (target, notices) = Target::open(&OpenOptions::existing(&looped.device)).unwrap();
    assert!(matches!(notices[..], [Notice::Unlocked { .. }]), "{notices:?}");
    assert!(notices[0].to_string().contains("cannot be locked"), "{}", notices[0]);
    drop(target);
}
