//! A sync of a real backend reaches the kernel, and the file that it is meant for.
//!
//! Method: the file descriptor of one of two open targets is replaced by a pipe. The kernel refuses
//! to sync a pipe: a sync that reaches it fails, and one that is dropped, or sent to the other
//! file, does not. `tests/integration/syncs.sh` checks the same, and the order, on files that
//! record their syncs.

#![allow(clippy::print_stderr)] // says what it skips

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_device::file::{DirectIo, OpenOptions, Target};
use forebay_device::{
    Backend, Completion, DeviceError, Devices, Doorbell, Io, IoTag, RealDevices, Verb, uring,
};
use forebay_effect::Device;

fn target(path: &Path) -> Target {
    let direct = DirectIo::Never;
    let options = OpenOptions { create: Some(1 << 20), direct, ..OpenOptions::existing(path) };
    Target::open(&options).unwrap().0
}

/// The descriptor under which this process has the file at `path` open.
fn descriptor(path: &Path) -> RawFd {
    let path = path.canonicalize().unwrap();
    let mut open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let found = open.find(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path));
    found.unwrap().file_name().to_str().unwrap().parse().unwrap()
}

/// Syncs a device and waits for the completion.
fn sync(devices: &mut RealDevices, bell: &Doorbell, device: Device) -> Result<u64, DeviceError> {
    let (verb, offset, length) = (Verb::Sync, 0, 0);
    // SAFETY: a sync has no memory.
    unsafe { devices.submit(Io { tag: IoTag(7), device, verb, offset, length, memory: &[] }) };
    devices.flush();
    let (mut done, give_up) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while done.is_empty() {
        assert!(Instant::now() < give_up, "a sync never ends");
        bell.wait(Some(give_up));
        devices.reap(&mut done);
    }
    let [Completion { tag: IoTag(7), result }] = done[..] else { panic!("{done:?}") };
    result
}

fn syncs_reach_their_file(backend: Backend) {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.img", "b.img", "flash.img"].map(|name| directory.path().join(name));
    let names = [Device::Backing(Volume(0)), Device::Backing(Volume(1)), Device::Flash];
    for broken in 0..names.len() {
        let bell = Arc::new(Doorbell::new().unwrap());
        let made = RealDevices::new(backend, uring::Options::default(), bell.clone());
        let Ok((mut devices, _)) = made else {
            return eprintln!("skipped: no {backend:?} here");
        };
        for (index, (path, name)) in paths.iter().zip(names).enumerate() {
            let target = target(path);
            if index == broken {
                let (pipe, _other_end) = std::io::pipe().unwrap();
                // SAFETY: both are open descriptors of this process; the target owns its replaced
                // descriptor.
                let put = unsafe { libc::dup2(pipe.as_raw_fd(), descriptor(path)) };
                assert!(put >= 0, "{}", std::io::Error::last_os_error());
            }
            devices.add(name, target);
        }
        for (index, name) in names.into_iter().enumerate() {
            let expected = if index == broken { Err(DeviceError::Invalid) } else { Ok(0) };
            assert_eq!(sync(&mut devices, &bell, name), expected, "{name:?}, {broken} broken");
        }
    }
}

#[test]
fn a_sync_through_io_uring_reaches_its_file() {
    syncs_reach_their_file(Backend::Uring);
}

#[test]
fn a_sync_through_threads_reaches_its_file() {
    syncs_reach_their_file(Backend::Threads);
}
