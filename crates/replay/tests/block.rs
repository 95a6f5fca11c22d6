//! Goal: a run on a file or device sends and measures the requests of the workload, and the data
//! that it wrote is there. Method: real files, io_uring and threads, with and without the page
//! cache.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::support::run;
use forebay_block::{Nanos, Op};
use forebay_device::Backend;
use forebay_device::file::DirectIo;
use forebay_replay::{
    BlockOptions, BlockTarget, Done, Io, Limits, ReplayError, SystemClock, Target, TargetVolume,
};

const MIX: &str = "zipf:blocks=1024,requests=5000,write=0.4,trim=0.05,fua=0.1,flush_every=50";
/// A workload in sectors instead of blocks: most requests cover pages in part.
const MISALIGNED: &str = "uniform:block=512B,blocks=8192,size=1536B,requests=5000,write=0.5";

fn open(
    directory: &std::path::Path,
    backend: Backend,
    direct: DirectIo,
) -> (BlockTarget, SystemClock) {
    let clock = SystemClock::start();
    let options = BlockOptions {
        paths: vec![directory.join("disk.img")],
        create_bytes: Some(4 << 20),
        direct,
        backend,
        depth: 32,
        ..Default::default()
    };
    (BlockTarget::open(&options, clock).unwrap(), clock)
}

#[test]
fn every_way_to_a_file_completes_each_request_once_and_keeps_what_was_written() {
    for backend in [Backend::Auto, Backend::Threads] {
        for direct in [DirectIo::Prefer, DirectIo::Never] {
            for spec in [MIX, MISALIGNED] {
                let directory = tempfile::tempdir().unwrap();
                let (mut target, clock) = open(directory.path(), backend, direct);
                let (finished, verified) = run(spec, &mut [&mut target], clock, 32);
                let (result, verified) = (finished.result, verified.unwrap());
                assert!(finished.error.is_none());
                assert!(result.run.requests >= 5000);
                assert_eq!(result.run.errors, 0);
                assert!(result.queue.max <= 32 && result.queue.mean <= 32.0);
                assert!(verified.is_right(), "{backend:?} {direct:?}: {verified:?}");
                assert!(verified.checked_bytes > 1 << 20);
                assert!(verified.reads_checked_bytes > 1 << 16 || spec == MISALIGNED);
            }
        }
    }
}

#[test]
fn data_that_changed_behind_our_back_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (mut target, clock) = open(directory.path(), Backend::Threads, DirectIo::Never);
    let spec = "sequential:blocks=256,requests=256,write=1";
    let (finished, verified) = run(spec, &mut [&mut target], clock, 8);
    assert_eq!(verified.unwrap().checked_bytes, 1 << 20);
    // Overwrite one block with the data of another block, and change one byte elsewhere.
    let path = directory.path().join("disk.img");
    let mut file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut block = [0; 4096];
    file.read_exact(&mut block).unwrap();
    file.seek(SeekFrom::Start(40_960)).unwrap();
    file.write_all(&block).unwrap();
    file.seek(SeekFrom::Start(81_920)).unwrap();
    file.write_all(&[!block[0]]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let hooks = forebay_replay::Hooks { stop: &stop, progress: &|_| {} };
    let verified = finished.written.unwrap().verify(&mut target, &clock, hooks).result;
    assert_eq!(verified.wrong_bytes, 4096 + 512);
    assert_eq!(verified.differences[0].offset, 40_960);
    assert!(!verified.is_right());
}

/// A target that reports success for every 50th write without performing it.
struct Forgetful {
    inner: BlockTarget,
    writes: u32,
}

impl Target for Forgetful {
    fn volumes(&self) -> &[TargetVolume] {
        self.inner.volumes()
    }
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn submit(&mut self, io: Io, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.writes += u32::from(io.op == Op::Write);
        if io.op == Op::Write && self.writes.is_multiple_of(50) {
            done.push(Done { io, result: Ok(()) });
            return Ok(());
        }
        self.inner.submit(io, done)
    }
    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.inner.flush(done)
    }
    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.inner.wait(until, done)
    }
}

#[test]
fn lost_writes_are_found_by_the_runs_own_reads_and_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let (inner, clock) = open(directory.path(), Backend::Threads, DirectIo::Never);
    let mut target = Forgetful { inner, writes: 0 };
    let spec = "uniform:blocks=128,requests=20000,write=0.3";
    let (_, verified) = run(spec, &mut [&mut target], clock, 4);
    let verified = verified.unwrap();
    assert!(verified.reads_wrong_bytes > 0, "{verified:?}");
    assert!(verified.wrong_bytes > 0, "{verified:?}");
    let what = &verified.differences[0].found;
    assert!(what.contains("read during the run") && what.contains("instead of"), "{what}");
}

#[test]
fn a_request_longer_than_one_transfer_is_one_request() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SystemClock::start();
    let options = BlockOptions {
        paths: vec![directory.path().join("disk.img")],
        create_bytes: Some(256 << 20),
        depth: 2,
        ..Default::default()
    };
    let mut target = BlockTarget::open(&options, clock).unwrap();
    let whole = 150 << 20;
    assert!(target.limits().transfer_bytes_max < whole);
    let spec = format!("sequential:blocks=1,block={whole}B,size={whole}B,requests=2,write=1");
    let (finished, verified) = run(&spec, &mut [&mut target], clock, 2);
    assert_eq!((finished.result.run.requests, finished.result.run.write_bytes), (2, 2 * whole));
    assert_eq!(verified.unwrap().checked_bytes, whole);
}

#[test]
fn a_file_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, clock) = open(directory.path(), Backend::Auto, DirectIo::Never);
    let paths = vec![directory.path().join("disk.img")];
    let options = BlockOptions { paths, ..Default::default() };
    assert!(matches!(BlockTarget::open(&options, clock), Err(ReplayError::Open(_))));
}
