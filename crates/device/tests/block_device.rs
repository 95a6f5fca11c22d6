//! Block devices, by the example of a loop device. Needs the right to make one; where that is
//! missing, the tests say so and pass.

#![allow(clippy::print_stderr)] // says what it skips

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forebay_device::file::{OpenError, OpenOptions, Target};
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

#[test]
fn a_block_device_tells_its_size_and_block_and_is_had_by_one() {
    let Some(looped) = Loop::new() else { return };
    let target = open(&looped.device).unwrap();
    assert!(target.is_block_device());
    assert_eq!(target.size(), SIZE);
    assert!(target.capabilities().logical_block >= 512);
    let error = open(&looped.device).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(target);
    assert!(open(&looped.device).is_ok());
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
        devices.add(Device::Flash, open(&looped.device).unwrap());
        let mut perform = |verb, offset: u64, length: u64, memory: &[MemorySlice]| {
            let io = Io { tag: IoTag(1), device: Device::Flash, verb, offset, length, memory };
            // SAFETY: the caller's buffer outlives the call, which waits.
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
