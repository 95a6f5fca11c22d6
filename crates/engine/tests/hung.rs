//! Quiesces and stores that do not answer, fail for a part, or lose their flash: nobody waits without limit, nobody
//! else loses what is cached, and nobody reads what is out of date.
//!
//! Method: a header hangs because its watch does not return; an operation on data hangs because the shape of its store
//! takes an hour for it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_block::Volume;
use forebay_config::{Acknowledge, Config, WritePolicy};
use forebay_device::DeviceError;
use forebay_effect::Device;
use forebay_engine::watch::{Operation, Part, Watch};
use forebay_engine::{
    DestageFailure, Engine, EngineError, EngineOptions, OrderNews, Resumed, StopMode, Submission,
    inspect_backing,
};
use tempfile::TempDir;

use crate::engine::{config_with, open, read, write};

/// Longer than what any limit of the engine allows.
const LONG: Duration = Duration::from_secs(100);

/// Lets header writes of volume `b` wait.
#[derive(Debug, Default)]
struct Hang {
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl Hang {
    fn set(&self, hangs: bool) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }
}

impl Watch for Hang {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        if (operation.device, operation.part) == (Device::Backing(Volume(1)), Part::Header) {
            let hangs = self.hangs.lock().unwrap();
            drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
        }
        Ok(0)
    }

    fn end(&self, _: u64, _: bool) {}
}

/// Calls `work` in a thread, and returns its result if it ends. (A scope would wait for a thread that hangs.)
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (ends, ended) = channel();
    std::thread::spawn(move || drop(ends.send(work())));
    ended.recv_timeout(LONG).ok()
}

/// Waits until this is so.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_held(error: &EngineError, name: &str) -> bool {
    matches!(error, EngineError::VolumesHeld(held) if held.len() == 1 && held[0].volume == name)
}

#[test]
fn an_invalidation_does_not_wait_for_the_hung_store_of_a_volume_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config_with(directory.path(), true, "write-back");
    config.flush.stamp_every = "1s".parse().unwrap();
    let hang = Arc::new(Hang::default());
    let options = EngineOptions { watch: Some(hang.clone()), ..EngineOptions::default() };
    let engine = Arc::new(Engine::open(&config, options).unwrap());
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(None, |_| {}).unwrap();
    hang.set(true);
    assert!(is_held(&engine.resume().unwrap_err(), "b"));
    write(&mut session, 0, 0, 9);
    // The log has gone on, so stamps are due meanwhile.
    engine.destage(|_| {}).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let of = engine.clone();
    let invalidated = ends(move || of.invalidate(&[Volume(0)]));
    assert!(matches!(invalidated, Some(Ok(()))), "{invalidated:?}");
    assert_eq!(read(&mut session, 0, 0), 9);
    hang.set(false);
    wait_until(|| engine.resume().is_ok());
    write(&mut session, 1, 0, 6);
    drop(session);
}

#[test]
fn an_extension_that_fails_for_one_store_keeps_what_is_cached_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-back"));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(None, |_| {}).unwrap();
    // (So that the next write gives the file another time.)
    std::thread::sleep(Duration::from_millis(50));
    let b = File::options().write(true).open(directory.path().join("b.img")).unwrap();
    b.set_len(0).unwrap();
    engine.quiesce(None, |_| {}).unwrap_err();
    engine.resume().unwrap();
    let changed: Vec<OrderNews> = engine.take_news();
    let names: Vec<&String> = changed.iter().flat_map(OrderNews::volumes).collect();
    assert_eq!(names, ["b"], "{changed:?}");
    assert_eq!(read(&mut session, 0, 0), 7);
    drop(session);
}

/// Another program writes at some moment of an extension: before the comparison, between it and the new note, or later.
#[test]
fn an_extension_does_not_cover_up_what_others_write_during_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config_with(directory.path(), true, "write-back"));
    let mut session = engine.session().unwrap();
    let b = File::options().write(true).open(directory.path().join("b.img")).unwrap();
    for n in 1..=150_u8 {
        write(&mut session, 1, 0, 0);
        engine.quiesce(None, |_| {}).unwrap();
        std::thread::scope(|scope| {
            let extension = scope.spawn(|| engine.quiesce(None, |_| {}));
            std::thread::sleep(Duration::from_micros(u64::from(n) * 20));
            b.write_all_at(&[n; 4096], 0).unwrap();
            extension.join().unwrap().unwrap();
        });
        engine.resume().unwrap();
        assert_eq!(read(&mut session, 1, 0), n);
    }
    drop(session);
}

/// Fails flash from some time on, and header writes of the two volumes for some time.
#[derive(Debug, Default)]
struct FailFlash {
    flash: AtomicBool,
    header_a: AtomicBool,
    header: AtomicBool,
}

impl Watch for FailFlash {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        let fails = match (operation.device, operation.part) {
            (Device::Flash, _) => &self.flash,
            (Device::Backing(Volume(0)), Part::Header) => &self.header_a,
            (Device::Backing(Volume(1)), Part::Header) => &self.header,
            _ => return Ok(0),
        };
        if fails.load(Ordering::Relaxed) { Err(DeviceError::Gone) } else { Ok(0) }
    }

    fn end(&self, _: u64, _: bool) {}
}

#[test]
fn a_volume_that_is_held_while_flash_fails_reads_what_others_wrote_meanwhile() {
    for changes in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), true, "write-back");
        let fail = Arc::new(FailFlash::default());
        let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
        let engine = Engine::open(&config, options).unwrap();
        let mut session = engine.session().unwrap();
        write(&mut session, 0, 0, 7);
        write(&mut session, 1, 0, 8);
        engine.destage(|_| {}).unwrap();
        for _ in 0..2 {
            // From the second read on, sessions need no lock for the block.
            assert_eq!(read(&mut session, 1, 0), 8);
        }
        engine.quiesce(None, |_| {}).unwrap();
        fail.flash.store(true, Ordering::Relaxed);
        fail.header.store(true, Ordering::Relaxed);
        let held = engine.resume().unwrap_err();
        assert!(is_held(&held, "b"), "{held}");
        write(&mut session, 0, 0, 9);
        if changes {
            // The header says that the store is complete, and its clients wait.
            let b = File::options().write(true).open(directory.path().join("b.img")).unwrap();
            b.write_all_at(&[5; 4096], 0).unwrap();
        }
        let mut reader = engine.session().unwrap();
        let mut done = Vec::new();
        let buffer = reader.buffer(4096);
        let request = Submission::read(1, Volume(1), 0, 4096, buffer);
        reader.submit(&mut vec![request], &mut done);
        assert!(done.is_empty(), "a read of a volume that is held was answered");
        fail.header.store(false, Ordering::Relaxed);
        // (Until flash is given up for `b`, nothing of it can be dropped.)
        wait_until(|| engine.resume().is_ok());
        while done.is_empty() {
            reader.wait(None, &mut done);
        }
        let is_newest = |byte: u8| byte == if changes { 5 } else { 8 };
        assert!(done[0].request.buffer.as_ref().unwrap().iter().all(|&byte| is_newest(byte)));
        assert!(is_newest(read(&mut session, 1, 0)));
        assert_eq!(read(&mut session, 0, 0), 9);
        if changes {
            // (An unchanged volume continues sooner, while writes of what flash has can still fail.)
            write(&mut session, 1, 0, 6);
            assert_eq!(read(&mut session, 1, 0), 6);
        }
        drop(session);
    }
}

#[test]
fn a_changed_store_of_which_nothing_can_be_dropped_holds_only_its_own_volume() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let fail = Arc::new(FailFlash::default());
    let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
    let engine = Engine::open(&config, options).unwrap();
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(None, |_| {}).unwrap();
    fail.flash.store(true, Ordering::Relaxed);
    let b = File::options().write(true).open(directory.path().join("b.img")).unwrap();
    b.write_all_at(&[5; 4096], 0).unwrap();
    let held = engine.resume().unwrap_err();
    assert!(is_held(&held, "b"), "{held}");
    // (Writes of what flash has can still fail.)
    assert_eq!(read(&mut session, 0, 0), 7);
    wait_until(|| engine.resume().is_ok());
    assert_eq!((read(&mut session, 0, 0), read(&mut session, 1, 0)), (7, 5));
    let changed: Vec<OrderNews> = engine.take_news();
    let names: Vec<&String> = changed.iter().flat_map(OrderNews::volumes).collect();
    assert_eq!(names, ["b"], "{changed:?}");
    drop(session);
}

#[test]
fn a_held_volume_whose_store_is_as_noted_waits_for_no_changed_one() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let fail = Arc::new(FailFlash::default());
    let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
    let engine = Engine::open(&config, options).unwrap();
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(None, |_| {}).unwrap();
    for fails in [&fail.flash, &fail.header_a, &fail.header] {
        fails.store(true, Ordering::Relaxed);
    }
    let held = engine.resume().unwrap_err();
    assert!(matches!(&held, EngineError::VolumesHeld(held) if held.len() == 2), "{held}");
    let b = File::options().write(true).open(directory.path().join("b.img")).unwrap();
    b.write_all_at(&[5; 4096], 0).unwrap();
    // While the header of `b` cannot be written, flash is not given up for it, and nothing of it can be dropped.
    fail.header_a.store(false, Ordering::Relaxed);
    let held = engine.resume().unwrap_err();
    assert!(is_held(&held, "b"), "{held}");
    assert_eq!(read(&mut session, 0, 0), 7);
    fail.header.store(false, Ordering::Relaxed);
    wait_until(|| engine.resume().is_ok());
    assert_eq!(read(&mut session, 1, 0), 5);
    drop(session);
}

#[test]
fn an_extension_that_fails_does_not_end_the_earlier_quiesce() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let fail = Arc::new(FailFlash::default());
    let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
    let engine = Engine::open(&config, options).unwrap();
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(Some(Duration::from_secs(900)), |_| {}).unwrap();
    fail.header.store(true, Ordering::Relaxed);
    for limit in [1, 3600] {
        let error = engine.quiesce(Some(Duration::from_secs(limit)), |_| {}).unwrap_err();
        assert!(matches!(error, EngineError::NotExtended(_)), "{error}");
        let left = engine.status().quiesced.and_then(|quiesced| quiesced.left_s);
        assert!(left.is_some_and(|left| (800.0..=900.0).contains(&left)), "{left:?}");
    }
    for name in ["a.img", "b.img"] {
        let header = inspect_backing(&directory.path().join(name)).unwrap();
        assert!(!header.dirty, "a copy of {name} says that it lacks data");
    }
    fail.header.store(false, Ordering::Relaxed);
    assert_eq!(engine.resume().unwrap(), Resumed::Ended);
    assert_eq!(engine.resume().unwrap(), Resumed::Nothing);
    assert_eq!((read(&mut session, 0, 0), read(&mut session, 1, 0)), (7, 8));
    assert!(engine.take_news().is_empty(), "a store counts as changed");
    drop(session);
}

/// Once there are `others`, lets them write to their store when the next operation of flash begins. From then on, keeps
/// the files as a kill would leave them before each operation of flash.
#[derive(Debug, Default)]
struct Kills {
    others: Mutex<Option<File>>,
    files: PathBuf,
    kept: Mutex<Vec<TempDir>>,
}

impl Watch for Kills {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        if operation.device != Device::Flash {
            return Ok(0);
        }
        let mut kept = self.kept.lock().unwrap();
        if let Some(others) = self.others.lock().unwrap().take() {
            others.write_all_at(&[5; 4096], 0).unwrap();
        } else if kept.is_empty() {
            return Ok(0);
        }
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.img", "b.img", "flash.img"] {
            let (from, to) = (self.files.join(name), directory.path().join(name));
            std::fs::copy(&from, &to).unwrap();
            // The flash tier has noted the times.
            let modified = from.metadata().unwrap().modified().unwrap();
            File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
        }
        kept.push(directory);
        Ok(0)
    }

    fn end(&self, _: u64, _: bool) {}
}

/// Goal: if a kill cuts an extension short, the next start trusts nothing that is out of date. Method: another program
/// has changed volume `a`. While the extension drops what is cached of that, the program changes `b`, after its
/// comparison and before its new note.
#[test]
fn an_extension_that_a_kill_cuts_short_covers_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = config_with(directory.path(), true, "write-back");
    let kills = Arc::new(Kills { files: directory.path().to_owned(), ..Kills::default() });
    let options = EngineOptions { watch: Some(kills.clone()), ..EngineOptions::default() };
    let engine = Engine::open(&config, options).unwrap();
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 7);
    write(&mut session, 1, 0, 8);
    engine.quiesce(None, |_| {}).unwrap();
    let others = |name| File::options().write(true).open(directory.path().join(name)).unwrap();
    // (The header comes first in `a.img`.)
    others("a.img").write_all_at(&[5; 4096], 1 << 20).unwrap();
    *kills.others.lock().unwrap() = Some(others("b.img"));
    engine.quiesce(None, |_| {}).unwrap();
    let changed: Vec<OrderNews> = engine.take_news();
    let names: Vec<&String> = changed.iter().flat_map(OrderNews::volumes).collect();
    assert_eq!(names, ["a", "b"], "{changed:?}");
    drop(session);
    engine.kill();
    let kept = std::mem::take(&mut *kills.kept.lock().unwrap());
    assert!(kept.len() > 2, "{} kills", kept.len());
    for (operation, kept) in kept.iter().enumerate() {
        let engine = open(&config_with(kept.path(), true, "write-back"));
        let mut session = engine.session().unwrap();
        let are = (read(&mut session, 0, 0), read(&mut session, 1, 0));
        assert_eq!(are, (5, 5), "after a kill at operation {operation}");
        drop(session);
    }
}

/// An engine whose volume `b` takes an hour for an operation on its store.
fn stuck(directory: &Path) -> Arc<Engine> {
    Arc::new(open(&stuck_config(directory)))
}

fn stuck_config(directory: &Path) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
         [shape.hung]\nread_latency = '1h'\nwrite_latency = '1h'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n\
         [[volume]]\nname = 'b'\nbacking = '{}'\nsize = '4MiB'\nshape = 'hung'\n",
        path("flash.img"),
        path("a.img"),
        path("b.img")
    );
    Config::from_toml(&text).unwrap()
}

/// A request to the hung store: a read that it does not answer, or a write that cannot be destaged.
fn submit_stuck(engine: &Engine, writes: bool) -> forebay_engine::Session {
    let mut session = engine.session().unwrap();
    if writes {
        write(&mut session, 1, 0, 8);
    } else {
        let buffer = session.buffer(4096);
        let read = Submission::read(1, Volume(1), 0, 4096, buffer);
        session.submit(&mut vec![read], &mut Vec::new());
    }
    session
}

#[test]
fn a_resume_ends_a_quiesce_that_waits_for_a_hung_store() {
    for writes in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let engine = stuck(directory.path());
        let stuck = submit_stuck(&engine, writes);
        let mut session = engine.session().unwrap();
        for _ in 0..2 {
            let of = engine.clone();
            let (began, begun) = channel();
            let quiesce =
                std::thread::spawn(move || of.quiesce(None, |_| began.send(()).unwrap_or(())));
            match writes {
                // It destages, and clients continue.
                true => begun.recv().unwrap(),
                false => wait_until(|| engine.status().quiesced.is_some()),
            }
            let of = engine.clone();
            let resumed = ends(move || of.resume());
            assert!(matches!(resumed, Some(Ok(Resumed::Ended))), "{resumed:?}");
            assert!(quiesce.join().unwrap().is_err());
            assert!(engine.status().quiesced.is_none());
            write(&mut session, 0, 0, 9);
            assert_eq!(read(&mut session, 0, 0), 9);
        }
        // (A session waits for the answers that only the end of the engine gives it.)
        drop(engine);
        drop((session, stuck));
    }
}

#[test]
fn a_quiesce_that_holds_clients_back_gives_up_on_a_request_that_does_not_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = stuck(directory.path());
    let stuck = submit_stuck(&engine, false);
    let mut session = engine.session().unwrap();
    let of = engine.clone();
    let quiesced = ends(move || of.quiesce(None, |_| {}));
    let error = quiesced.expect("it waits for ever").unwrap_err();
    assert!(error.to_string().contains("volume b"), "{error}");
    assert!(engine.status().quiesced.is_none());
    write(&mut session, 0, 0, 9);
    // Without a quiesce, clients wait for an invalidation just as long.
    let of = engine.clone();
    let invalidated = ends(move || of.invalidate(&[Volume(0)])).expect("it waits for ever");
    assert!(invalidated.unwrap_err().to_string().contains("volume b"));
    write(&mut session, 0, 0, 7);
    drop(engine);
    drop((session, stuck));
}

/// An engine that writes through, and whose header of `b` can hang.
fn hanging(directory: &Path) -> (Arc<Engine>, Arc<Hang>) {
    let config = config_with(directory, true, "write-through");
    let hang = Arc::new(Hang::default());
    let options = EngineOptions { watch: Some(hang.clone()), ..EngineOptions::default() };
    (Arc::new(Engine::open(&config, options).unwrap()), hang)
}

fn names_b(error: &EngineError) -> bool {
    match error {
        EngineError::NoAnswer { volumes, .. }
        | EngineError::Destage { why: DestageFailure::Silent(volumes), .. } => volumes[..] == ["b"],
        _ => false,
    }
}

#[test]
fn a_change_of_policy_gives_up_on_a_header_that_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, hang) = hanging(directory.path());
    hang.set(true);
    let of = engine.clone();
    let changed = ends(move || of.set_policy(WritePolicy::WriteBack, None));
    let error = changed.expect("it waits for ever").unwrap_err();
    assert!(names_b(&error), "{error}");
    assert!(engine.has_policy(WritePolicy::WriteThrough, Acknowledge::Flash));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 9);
    // Another order has its turn.
    engine.destage(|_| {}).unwrap();
    hang.set(false);
    wait_until(|| engine.set_policy(WritePolicy::WriteBack, None).is_ok());
    drop(session);
}

#[test]
fn a_stop_gets_through_while_a_change_of_policy_waits_for_a_header() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, hang) = hanging(directory.path());
    hang.set(true);
    let of = engine.clone();
    let change = std::thread::spawn(move || of.set_policy(WritePolicy::WriteBack, None));
    // (So that the change most likely has its turn first; if not, it is refused, which is right as well.)
    std::thread::sleep(Duration::from_millis(300));
    let of = engine.clone();
    let stopped = ends(move || of.prepare_stop());
    hang.set(false);
    assert!(stopped.is_some(), "it waits for ever");
    assert!(matches!(change.join().unwrap(), Err(EngineError::Stopping)));
}

#[test]
fn a_change_of_policy_gives_up_on_a_destage_that_does_not_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = stuck(directory.path());
    let stuck = submit_stuck(&engine, true);
    let mut session = engine.session().unwrap();
    let of = engine.clone();
    let changed = ends(move || of.set_policy(WritePolicy::WriteThrough, None));
    let error = changed.expect("it waits for ever").unwrap_err();
    assert!(names_b(&error), "{error}");
    assert!(!engine.has_policy(WritePolicy::WriteThrough, Acknowledge::Flash));
    write(&mut session, 0, 0, 9);
    assert_eq!(read(&mut session, 0, 0), 9);
    drop(engine);
    drop((session, stuck));
}

#[test]
fn a_destage_gives_up_on_a_store_that_does_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let engine = stuck(directory.path());
    let stuck = submit_stuck(&engine, true);
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 9);
    let of = engine.clone();
    let destaged = ends(move || of.destage(|_| {}));
    let error = destaged.expect("it waits for ever").unwrap_err();
    assert!(names_b(&error), "{error}");
    let said = error.to_string();
    assert!(said.contains("the backing store of volume b did not answer"), "{said}");
    let dirty = |n: usize| engine.status().volumes[n].workload.dirty_blocks;
    assert_eq!((dirty(0), dirty(1) > 0), (0, true), "the other volume is destaged");
    drop((session, stuck));
    drop(engine);
}

#[test]
fn a_stop_gets_through_while_a_change_of_policy_destages_to_a_hung_store() {
    let directory = tempfile::tempdir().unwrap();
    let engine = stuck(directory.path());
    let stuck = submit_stuck(&engine, true);
    let of = engine.clone();
    let change = std::thread::spawn(move || of.set_policy(WritePolicy::WriteThrough, None));
    wait_until(|| engine.status().volumes[1].workload.backing.traffic.write_bytes > 0);
    let of = engine.clone();
    assert!(ends(move || of.prepare_stop()).is_some(), "it waits for ever");
    assert!(matches!(change.join().unwrap(), Err(EngineError::Stopping)));
    drop(engine);
    drop(stuck);
}

#[test]
fn the_change_of_policy_of_a_start_lets_others_write_although_a_store_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = stuck_config(directory.path());
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    write(&mut session, 1, 0, 8);
    session.submit(&mut vec![Submission::flush(1, Volume(1))], &mut Vec::new());
    drop(session);
    engine.kill();
    config.cache.write_policy = WritePolicy::WriteThrough;
    let engine = Arc::new(open(&config));
    let of = engine.clone();
    let written = ends(move || {
        let mut session = of.session().unwrap();
        write(&mut session, 0, 0, 9);
        read(&mut session, 0, 0)
    });
    assert_eq!(written, Some(9), "it waits for ever");
    let why = engine.status().write_policy_failure.expect("the policy is not in force");
    assert!(why.contains("does not answer"), "{why}");
    drop(engine);
}

#[test]
fn a_stop_leaves_no_note_on_a_store_whose_header_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, hang) = hanging(directory.path());
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 9);
    drop(session);
    hang.set(true);
    let engine = Arc::into_inner(engine).unwrap();
    let stopped = ends(move || engine.stop(StopMode::Destage, |_| {}));
    hang.set(false);
    let error = stopped.expect("it waits for ever").unwrap_err();
    assert!(error.to_string().contains("volume b"), "{error}");
}
