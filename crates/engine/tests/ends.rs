//! Stops and quiesces that meet others: what is cut short loses nothing, and nobody waits for what a
//! stop can end.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_block::Volume;
use forebay_config::{Acknowledge, Config, WritePolicy};
use forebay_effect::{Device, IoError};
use forebay_engine::watch::{Operation, Part};
use forebay_engine::{
    Engine, EngineError, EngineOptions, Fault, Reported, Resumed, Session, StopMode, Submission,
    inspect_backing, is_as_left,
};

use crate::engine::{BLOCKS, config_with, open, read, write};
use crate::fail::open_to_fail;

/// Writes answered by memory, flash and a store that are slow to write to.
fn slow(directory: &Path) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\nacknowledge = 'dram'\n\
         [shape.slow]\nwrite_latency = '100ms'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\nshape = 'slow'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\nshape = 'slow'\n",
        path("flash.img"),
        path("a.img")
    );
    Config::from_toml(&text).unwrap()
}

/// Blocks that are no neighbours, so that the destage of each is a write of its own.
fn dirty_many(session: &mut Session) {
    for block in 0..500 {
        write(session, 0, block * 2 % BLOCKS, 7);
    }
}

#[test]
fn a_release_that_is_cut_short_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&slow(directory.path()));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    drop(session);
    let stopped = engine.stop_unless(StopMode::Release, |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EngineError::Unsealed(_))), "{stopped:?}");
    let header = inspect_backing(&directory.path().join("a.img"));
    assert!(header.is_err() || !header.unwrap().released, "it is safe to use elsewhere");
}

#[test]
fn a_stop_that_is_cut_short_leaves_nothing_in_memory_only() {
    for mode in [StopMode::Keep, StopMode::Destage] {
        let directory = tempfile::tempdir().unwrap();
        let config = slow(directory.path());
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        for block in 0..200 {
            write(&mut session, 0, block, block as u8);
        }
        drop(session);
        engine.stop_unless(mode, |_| ControlFlow::Break(())).unwrap();
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        for block in 0..200 {
            assert_eq!(read(&mut session, 0, block), block as u8, "{mode:?}: block {block}");
        }
        drop(session);
    }
}

#[test]
fn a_format_that_is_stopped_says_that_the_tier_was_formatted() {
    let directory = tempfile::tempdir().unwrap();
    open(&config_with(directory.path(), true, "write-back"))
        .stop(StopMode::Destage, |_| {})
        .unwrap();
    let mut config = config_with(directory.path(), true, "write-back");
    let slow = slow(directory.path());
    config.shape = slow.shape.clone();
    config.flash.as_mut().unwrap().shape = slow.flash.unwrap().shape;
    let options = EngineOptions { format: true, ..EngineOptions::default() };
    let started = Engine::open_watched(&config, options, &mut |_| ControlFlow::Break(()));
    let error = started.map(|_| ()).unwrap_err();
    assert!(matches!(error, EngineError::StartCut { formatted: true }), "{error}");
    assert!(error.to_string().contains("the flash tier was formatted"), "{error}");
    open(&config_with(directory.path(), true, "write-back")).kill();
}

#[test]
fn a_stop_ends_a_quiesce_that_still_destages() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&slow(directory.path()));
    let mut session = engine.session().unwrap();
    dirty_many(&mut session);
    std::thread::scope(|scope| {
        let (began, begun) = std::sync::mpsc::channel();
        let quiesce = scope.spawn(|| engine.quiesce(None, move |_| began.send(()).unwrap_or(())));
        begun.recv().unwrap();
        engine.prepare_stop();
        let ended = quiesce.join().unwrap();
        assert!(ended.is_err(), "all was destaged first");
    });
    assert!(engine.status().total.dirty_blocks > 0);
    assert!(engine.status().quiesced.is_none());
    let refused = engine.quiesce(None, |_| {});
    assert!(matches!(refused, Err(EngineError::Stopping)), "{refused:?}");
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
}

#[test]
fn copies_made_under_a_quiesce_say_that_they_are_complete_whatever_is_ordered_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-through"));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    let dirty = || inspect_backing(&directory.path().join("a.img")).unwrap().dirty;
    engine.quiesce(None, |_| {}).unwrap();
    let back = || engine.set_policy(WritePolicy::WriteBack, Some(Acknowledge::Flash));
    let refused = back().unwrap_err();
    assert!(matches!(refused, EngineError::Quiesced), "{refused}");
    assert!(!dirty() && engine.has_policy(WritePolicy::WriteThrough, Acknowledge::Dram));
    engine.resume().unwrap();
    assert!(!dirty(), "nothing is written back");
    back().unwrap();
    assert!(dirty());
    engine.quiesce(None, |_| {}).unwrap();
    assert!(!dirty(), "a copy is complete");
    engine.set_policy(WritePolicy::WriteThrough, None).unwrap();
    engine.resume().unwrap();
    drop(session);
}

#[test]
fn an_invalidation_during_a_quiesce_lets_nobody_continue() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-back"));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    engine.quiesce(None, |_| {}).unwrap();
    let (mut waiting, mut done) = (engine.session().unwrap(), Vec::new());
    let buffer = waiting.buffer(4096);
    waiting.submit(&mut vec![Submission::write(1, Volume(0), 0, 4096, buffer)], &mut done);
    engine.invalidate(&[Volume(0)]).unwrap();
    engine.wait_until_idle();
    assert_eq!((waiting.reap(&mut done), done.len()), (1, 0), "the quiesce still holds it back");
    assert!(engine.status().quiesced.is_some());
    engine.resume().unwrap();
    while waiting.wait(None, &mut done) > 0 {}
    assert_eq!((done.len(), done[0].result), (1, Ok(())));
    // Without a quiesce, it holds requests back only while it runs.
    engine.invalidate(&[Volume(0)]).unwrap();
    assert_eq!(read(&mut session, 0, 1), 7);
    drop((session, waiting));
}

#[test]
fn a_stop_refuses_what_a_quiesce_holds_back_if_the_quiesce_cannot_end() {
    for (mode, lasts) in [
        (StopMode::Keep, false),
        (StopMode::Destage, false),
        (StopMode::Release, false),
        (StopMode::Destage, true),
        (StopMode::Release, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), true, "write-back");
        let (engine, fail) = open_to_fail(&config, |operation| operation.part == Part::Header);
        let mut session = engine.session().unwrap();
        write(&mut session, 0, 0, 7);
        engine.quiesce(None, |_| {}).unwrap();
        fail.now.store(true, Ordering::Relaxed);
        assert!(matches!(engine.resume(), Err(EngineError::VolumesHeld(_))));

        let (mut requests, mut done) = (vec![Submission::flush(1, Volume(0))], Vec::new());
        assert_eq!(session.submit(&mut requests, &mut done), 1, "held back");
        engine.prepare_stop();
        assert_eq!(session.wait(None, &mut done), 0);
        assert_eq!(done.remove(0).result, Err(IoError::Shutdown));
        session.submit(&mut vec![Submission::flush(2, Volume(0))], &mut done);
        assert_eq!(done.remove(0).result, Err(IoError::Shutdown));
        assert!(matches!(engine.resume(), Err(EngineError::Stopping)));
        assert!(!engine.end_overdue_quiesce().unwrap());
        drop(session);

        // Others have changed the store meanwhile, and no new note may cover that up.
        let store = File::options().write(true).open(directory.path().join("a.img")).unwrap();
        store.write_all_at(&[9; 4096], 1 << 20).unwrap();
        fail.now.store(lasts, Ordering::Relaxed);
        let error = engine.stop(mode, |_| {}).unwrap_err();
        match error {
            // Others must not use these stores, and that comes first.
            EngineError::Unsealed(_) if lasts => {}
            EngineError::HeldRefused(_) => {}
            error => panic!("{mode:?}: {error}"),
        }
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        assert_eq!(read(&mut session, 0, 0), 9, "{mode:?}");
        drop(session);
    }
}

/// Writes to the header of volume `b`.
fn is_header_of_b(operation: &Operation) -> bool {
    (operation.device, operation.part) == (Device::Backing(Volume(1)), Part::Header)
}

#[test]
fn a_header_that_cannot_be_written_after_a_quiesce_holds_only_its_own_volume() {
    for (flash, policy) in [(true, "write-back"), (true, "write-through"), (false, "write-back")] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), flash, policy);
        let (engine, fail) = open_to_fail(&config, is_header_of_b);
        let mut faults = Reported::default();
        let [mut a, mut b] = [engine.session().unwrap(), engine.session().unwrap()];
        write(&mut a, 0, 0, 7);
        write(&mut b, 1, 0, 8);
        engine.quiesce(Some(Duration::ZERO), |_| {}).unwrap();
        fail.now.store(true, Ordering::Relaxed);
        let (mut done, buffer) = (Vec::new(), b.buffer(4096));
        b.submit(&mut vec![Submission::write(1, Volume(1), 0, 4096, buffer)], &mut done);
        assert!(engine.end_overdue_quiesce().unwrap(), "its time is over");
        write(&mut a, 0, 0, 9);
        assert_eq!(read(&mut a, 0, 0), 9);
        engine.wait_until_idle();
        assert_eq!((b.reap(&mut done), done.len()), (1, 0), "the header says that b is complete");
        let volume = "b".to_owned();
        let is_held = |fault: &Fault| matches!(fault, Fault::Held { volume, .. } if *volume == "b");
        assert!(engine.faults(&mut faults).iter().any(is_held));
        // Neither another attempt nor another quiesce changes that.
        assert!(!engine.end_overdue_quiesce().unwrap());
        let volumes = |result| match result {
            Err(EngineError::VolumesHeld(held)) => held.into_iter().map(|h| h.volume).collect(),
            other => panic!("{other:?}"),
        };
        let named: Vec<String> = volumes(engine.resume().map(drop));
        assert_eq!(
            (&named, &volumes(engine.quiesce(None, |_| {}))),
            (&vec![volume.clone()], &named)
        );
        assert_eq!(b.reap(&mut done), 1);

        fail.now.store(false, Ordering::Relaxed);
        assert!(!engine.end_overdue_quiesce().unwrap(), "the quiesce has ended before");
        while b.wait(None, &mut done) > 0 {}
        assert_eq!((done.len(), done[0].result), (1, Ok(())));
        assert!(engine.faults(&mut faults).contains(&Fault::Released { volume }));
        write(&mut b, 1, 1, 6);
        engine.quiesce(None, |_| {}).unwrap();
        engine.resume().unwrap();
        drop((a, b));
        engine.stop(StopMode::Destage, |_| {}).unwrap();
    }
}

/// While a note stands, a kill leaves nothing that a start takes for something else.
#[test]
fn a_kill_while_a_header_still_notes_the_quiesce_loses_nothing_and_trusts_no_older_block() {
    for changes in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), true, "write-back");
        let (engine, fail) = open_to_fail(&config, is_header_of_b);
        let [mut a, mut b] = [engine.session().unwrap(), engine.session().unwrap()];
        write(&mut a, 0, 0, 7);
        // Many blocks, so that flash has some.
        (0..BLOCKS).for_each(|block| write(&mut b, 1, block, 8));
        engine.quiesce(None, |_| {}).unwrap();
        fail.now.store(true, Ordering::Relaxed);
        assert!(matches!(engine.resume(), Err(EngineError::VolumesHeld(_))));
        write(&mut a, 0, 0, 9);
        let (mut done, mut buffer) = (Vec::new(), b.buffer(4096));
        buffer.fill(5);
        b.submit(&mut vec![Submission::write(1, Volume(1), 0, 4096, buffer)], &mut done);
        engine.wait_until_idle();
        let header = inspect_backing(&directory.path().join("b.img")).unwrap();
        assert!(!header.dirty, "the header could not be written");
        drop(a);
        engine.kill();
        drop(b);
        if changes {
            let store = File::options().write(true).open(directory.path().join("b.img")).unwrap();
            store.write_all_at(&[4; 4096], 0).unwrap();
        }
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        assert_eq!(read(&mut session, 0, 0), 9, "it was acknowledged");
        assert_eq!(read(&mut session, 1, 0), if changes { 4 } else { 8 });
        assert_eq!(read(&mut session, 1, 1), 8);
        drop(session);
    }
}

#[test]
fn a_quiesce_that_one_header_makes_fail_lets_the_other_volumes_continue() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let (engine, fail) = open_to_fail(&config, is_header_of_b);
    let mut session = engine.session().unwrap();
    fail.now.store(true, Ordering::Relaxed);
    let error = engine.quiesce(None, |_| {}).unwrap_err();
    assert!(matches!(error, EngineError::VolumesHeld(_)), "{error}");
    assert!(engine.status().quiesced.is_none());
    write(&mut session, 0, 0, 7);
    fail.now.store(false, Ordering::Relaxed);
    assert_eq!(engine.resume().unwrap(), Resumed::Ended);
    assert_eq!(engine.resume().unwrap(), Resumed::Nothing);
    write(&mut session, 1, 0, 7);
    drop(session);
}

#[test]
fn a_store_that_fails_at_a_stop_leaves_the_others_complete() {
    for fails in [Volume(0), Volume(1)] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), true, "write-back");
        let of_one: fn(&Operation) -> bool = match fails {
            Volume(0) => |o| (o.device, o.part) == (Device::Backing(Volume(0)), Part::Header),
            _ => is_header_of_b,
        };
        let (engine, fail) = open_to_fail(&config, of_one);
        let mut session = engine.session().unwrap();
        write(&mut session, 0, 0, 7);
        write(&mut session, 1, 0, 8);
        engine.destage(|_| {}).unwrap();
        drop(session);
        fail.now.store(true, Ordering::Relaxed);
        let error = engine.stop(StopMode::Destage, |_| {}).unwrap_err();
        assert!(matches!(error, EngineError::Unsealed(_)), "{error}");
        for (volume, name) in [(Volume(0), "a.img"), (Volume(1), "b.img")] {
            let path = directory.path().join(name);
            let header = inspect_backing(&path).unwrap();
            assert_eq!(header.dirty, volume == fails, "{name}");
            let as_left = (volume != fails).then_some(true);
            assert_eq!(is_as_left(&path, &header).unwrap(), as_left, "{name}");
        }
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        assert_eq!([read(&mut session, 0, 0), read(&mut session, 1, 0)], [7, 8]);
        drop(session);
    }
}

#[test]
fn a_resume_does_not_wait_for_an_order_that_holds_nobody_back() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&slow(directory.path()));
    let mut session = engine.session().unwrap();
    dirty_many(&mut session);
    std::thread::scope(|scope| {
        let (began, begun) = std::sync::mpsc::channel();
        let destage = scope.spawn(|| engine.destage(move |_| began.send(()).unwrap_or(())));
        begun.recv().unwrap();
        engine.resume().unwrap();
        assert!(!destage.is_finished());
        engine.prepare_stop();
        assert!(destage.join().unwrap().is_err());
    });
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
}

#[test]
fn a_stop_whose_flush_fails_says_so_though_it_is_cut_short() {
    let directory = tempfile::tempdir().unwrap();
    let config = slow(directory.path());
    let (engine, fail) = open_to_fail(&config, |operation| operation.device == Device::Flash);
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    drop(session);
    fail.now.store(true, Ordering::Relaxed);
    let error = engine.stop_unless(StopMode::Destage, |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, EngineError::Destage { .. }), "{error}");
    assert!(error.to_string().contains("the newest data of 1 block was only in memory"), "{error}");
}

#[test]
fn a_stop_ends_a_change_of_policy_that_still_destages() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&slow(directory.path()));
    let mut session = engine.session().unwrap();
    dirty_many(&mut session);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| engine.set_policy(WritePolicy::WriteThrough, None));
        while engine.status().total.backing.traffic.write_bytes == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        engine.prepare_stop();
        let ended = change.join().unwrap();
        assert!(matches!(ended, Err(EngineError::Stopping)), "{ended:?}");
    });
    assert!(engine.has_policy(WritePolicy::WriteBack, Acknowledge::Dram));
    assert!(engine.status().total.dirty_blocks > 0, "all was destaged first");
    let refused = engine.set_policy(WritePolicy::WriteThrough, None);
    assert!(matches!(refused, Err(EngineError::Stopping)), "{refused:?}");
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
}

#[test]
fn the_note_of_a_quiesce_covers_writes_that_were_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = slow(directory.path());
    config.cache.write_policy = WritePolicy::WriteThrough;
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    // Each waits for the one before it, so the last has not reached the store yet.
    for tag in 0..4 {
        let mut buffer = session.buffer(4096);
        buffer.fill(tag as u8 + 1);
        requests.push(Submission::write(tag, Volume(0), 0, 4096, buffer));
    }
    assert_eq!(session.submit(&mut requests, &mut done), 4);
    engine.quiesce(None, |_| {}).unwrap();
    assert_eq!(session.reap(&mut done), 0);
    let store = directory.path().join("a.img");
    let header = inspect_backing(&store).unwrap();
    assert_eq!(is_as_left(&store, &header).unwrap(), Some(true));
    drop(session);
}

#[test]
fn whoever_hears_of_progress_may_ask_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-back"));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    let mut asked = 0;
    let mut ask = |_| asked += engine.status().volumes.len();
    engine.destage(&mut ask).unwrap();
    engine.quiesce(None, &mut ask).unwrap();
    engine.resume().unwrap();
    assert_eq!(engine.status().total.dirty_blocks, 0);
    drop(session);
}

#[test]
fn sessions_of_an_engine_that_has_ended_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-back"));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    engine.quiesce(None, |_| {}).unwrap();
    let (mut requests, mut done) = (vec![Submission::flush(0, Volume(0))], Vec::new());
    assert_eq!(session.submit(&mut requests, &mut done), 1, "held back");
    let waiting = std::thread::spawn(move || {
        session.wait(None, &mut done);
        (session, done)
    });
    engine.kill();
    let (mut session, mut done) = waiting.join().unwrap();
    assert_eq!(done.remove(0).result, Err(IoError::Shutdown));
    assert_eq!(session.submit(&mut vec![Submission::flush(0, Volume(0))], &mut done), 0);
    assert_eq!(done.remove(0).result, Err(IoError::Shutdown));
}

#[test]
fn an_abandoned_session_leaves_no_write_that_could_replace_a_newer_one() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), false, "write-through"));
    let (mut lost, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let write_of = |session: &mut Session, block: u64, byte: u8| {
        let mut buffer = session.buffer(4096);
        buffer.fill(byte);
        Submission::write(block, Volume(0), 4096 * block, 4096, buffer)
    };
    engine.quiesce(None, |_| {}).unwrap();
    let mut requests = (0..100).map(|block| write_of(&mut lost, block, 1)).collect();
    lost.submit(&mut requests, &mut Vec::new());
    lost.abandon();
    // (It does not wait for the end of the quiesce.)
    drop(lost);
    let mut done = Vec::new();
    let newer = write_of(&mut other, 0, 2);
    other.submit(&mut vec![newer], &mut done);
    engine.resume().unwrap();
    while done.is_empty() {
        other.wait(None, &mut done);
    }
    assert_eq!(done[0].result, Ok(()));
    let read_all: Vec<u8> = (0..100).map(|block| read(&mut other, 0, block)).collect();
    assert_eq!((read_all[0], read_all[1..].iter().max()), (2, Some(&0)), "{read_all:?}");
    drop(other);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}
