//! Headers and data of one store: a failed sync of either may be the only report of what the other has lost.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_block::{Flags, Op, Volume};
use forebay_config::{Acknowledge, WritePolicy};
use forebay_device::Verb;
use forebay_effect::{Device, IoError};
use forebay_engine::watch::{Operation, Part};
use forebay_engine::{Fault, Reported, StopMode, Submission};

use crate::common::submit_one;
use crate::engine::{config_with, open};
use crate::fail::open_to_fail;

fn is_sync_of_header(operation: &Operation) -> bool {
    operation.part == Part::Header && operation.verb == Verb::Sync
}

fn write(volume: u32) -> Submission {
    let (volume, flags) = (Volume(volume), Flags::NONE);
    Submission { tag: 1, volume, op: Op::Write, flags, offset: 0, length: 4096, buffer: None }
}

#[test]
fn a_flush_after_a_failed_sync_of_the_header_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), false, "write-through");
    let (engine, fail) = open_to_fail(&config, |operation| {
        is_sync_of_header(operation) && operation.device == Device::Backing(Volume(0))
    });
    let mut session = engine.session().unwrap();
    for volume in [0, 1] {
        assert_eq!(submit_one(&mut session, write(volume), 1).result, Ok(()));
    }
    fail.now.store(true, Ordering::Relaxed);
    // The sync of the header may have received the error of the write.
    engine.set_policy(WritePolicy::WriteBack, Some(Acknowledge::Dram)).unwrap_err();
    fail.now.store(false, Ordering::Relaxed);
    let flushed = |volume| Submission::flush(2, Volume(volume));
    let result = submit_one(&mut session, flushed(0), 0).result;
    assert_eq!(result, Err(IoError::Device), "the write may be lost");
    assert_eq!(submit_one(&mut session, flushed(1), 0).result, Ok(()), "another store");
    drop(session);
    engine.kill();
}

#[test]
fn operators_learn_of_headers_that_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config_with(directory.path(), true, "write-through");
    config.flush.stamp_every = "10ms".parse().unwrap();
    let (engine, fail) = open_to_fail(&config, is_sync_of_header);
    fail.now.store(true, Ordering::Relaxed);
    let mut session = engine.session().unwrap();
    assert_eq!(submit_one(&mut session, write(1), 1).result, Ok(()));
    let (mut reported, until) = (Reported::default(), Instant::now() + Duration::from_secs(20));
    let fault = loop {
        let faults = engine.faults(&mut reported);
        if let Some(fault) = faults.into_iter().find(|f| matches!(f, Fault::Unstamped { .. })) {
            break fault.to_string();
        }
        assert!(Instant::now() < until, "nobody says so");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(fault.contains("cannot write the header of"), "{fault}");
    assert!(fault.contains("the backing store of volume "), "{fault}");
    drop(session);
    fail.now.store(false, Ordering::Relaxed);
    let _ = engine.stop(StopMode::Keep, |_| {});
}

/// Goal: a destage, and a stop that destages, do not hide that the header of a store cannot be written. They name the
/// store, and the data stays on flash.
#[test]
fn a_destage_and_a_stop_that_cannot_write_a_header_say_so_and_keep_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let is_write_of_header = |operation: &Operation| {
        operation.part == Part::Header
            && operation.verb == Verb::Write
            && operation.device == Device::Backing(Volume(1))
    };
    let (engine, fail) = open_to_fail(&config, is_write_of_header);
    let mut session = engine.session().unwrap();
    assert_eq!(submit_one(&mut session, write(1), 1).result, Ok(()));
    fail.now.store(true, Ordering::Relaxed);
    let says_so = |error: String| {
        assert!(error.contains("volume b: cannot write the header of"), "{error}");
        assert!(error.contains("1 dirty block"), "{error}");
    };
    says_so(engine.destage(|_| {}).unwrap_err().to_string());
    fail.now.store(false, Ordering::Relaxed);
    engine.destage(|_| {}).unwrap();
    assert_eq!(submit_one(&mut session, write(1), 1).result, Ok(()));
    fail.now.store(true, Ordering::Relaxed);
    drop(session);
    says_so(engine.stop(StopMode::Destage, |_| {}).unwrap_err().to_string());
    fail.now.store(false, Ordering::Relaxed);
    let engine = open(&config);
    assert_eq!(engine.status().total.dirty_blocks, 1);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}
