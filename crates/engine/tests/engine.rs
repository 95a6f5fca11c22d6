//! An engine on real files: what it keeps, what it refuses, and that its tape replays.
//!
//! Method: small files in a temporary directory, one session as the client, contents that name
//! the block and its version.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::submit_one;
use crate::fail::open_to_fail;
use forebay_block::{Flags, Op, Volume};
use forebay_config::{BackingLayout, Config};
use forebay_device::Verb;
use forebay_device::file::DirectIo;
use forebay_effect::Device;
use forebay_engine::tape::{TapeError, replay};
use forebay_engine::watch::{Operation, Part};
use forebay_engine::{
    Engine, EngineError, EngineOptions, Session, StopMode, Submission, cache_config, check_flash,
    inspect_backing,
};

const BLOCK: u64 = 4096;
pub(crate) const BLOCKS: u64 = 1024;

fn config(directory: &Path, flash: bool) -> Config {
    config_with(directory, flash, "write-back")
}

pub(crate) fn config_with(directory: &Path, flash: bool, policy: &str) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let flash = match flash {
        true => {
            format!("[flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\n", path("flash.img"))
        }
        false => String::new(),
    };
    let text = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = '{policy}'\n{flash}\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n\
         [[volume]]\nname = 'b'\nbacking = '{}'\nsize = '4MiB'\nlayout = 'tail'\n",
        path("a.img"),
        path("b.img")
    );
    Config::from_toml(&text).unwrap()
}

pub(crate) fn open(config: &Config) -> Engine {
    Engine::open(config, EngineOptions::default()).unwrap()
}

fn request(op: Op, volume: u32, block: u64, blocks: u64) -> Submission {
    let (offset, length) = (block * BLOCK, blocks * BLOCK);
    let (volume, flags) = (Volume(volume), Flags::NONE);
    Submission { tag: block, volume, op, flags, offset, length, buffer: None }
}

pub(crate) fn write(session: &mut Session, volume: u32, block: u64, byte: u8) {
    let done = submit_one(session, request(Op::Write, volume, block, 1), byte);
    assert_eq!(done.result, Ok(()));
    session.give_back(done.request.buffer.unwrap());
}

pub(crate) fn read(session: &mut Session, volume: u32, block: u64) -> u8 {
    let done = submit_one(session, request(Op::Read, volume, block, 1), 0xEE);
    assert_eq!(done.result, Ok(()));
    let buffer = done.request.buffer.unwrap();
    let bytes = &buffer[..BLOCK as usize];
    assert!(bytes.iter().all(|&b| b == bytes[0]), "block {block} is a mixture");
    bytes[0]
}

fn flush(session: &mut Session, volume: u32) {
    let flush = Submission { length: 0, ..request(Op::Flush, volume, 0, 0) };
    assert_eq!(submit_one(session, flush, 0).result, Ok(()));
}

/// Many requests at a time, from a fixed sequence; returns what each block holds now.
fn churn(session: &mut Session, rounds: u64) -> BTreeMap<(u32, u64), u8> {
    let (mut contents, mut state) = (BTreeMap::new(), 88_172_645_463_325_252u64);
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut taken = Vec::new();
        for _ in 0..16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (volume, block) = ((state >> 60) as u32 & 1, (state >> 20) % BLOCKS);
            if taken.contains(&(volume, block)) {
                continue;
            }
            taken.push((volume, block));
            let byte = (round % 251) as u8;
            let op = if state & 7 < 3 { Op::Read } else { Op::Write };
            let mut buffer = session.buffer(BLOCK as usize);
            buffer.fill(byte);
            if op == Op::Write {
                contents.insert((volume, block), byte);
            }
            let request = request(op, volume, block, 1);
            requests.push(Submission { buffer: Some(buffer), ..request });
        }
        session.submit(&mut requests, &mut done);
        while session.in_flight() > 0 {
            session.wait(None, &mut done);
        }
        for d in done.drain(..) {
            assert_eq!(d.result, Ok(()));
            session.give_back(d.request.buffer.unwrap());
        }
        if round % 50 == 49 {
            flush(session, (round / 50 % 2) as u32);
        }
    }
    contents
}

#[test]
fn a_killed_engine_keeps_what_it_acknowledged_on_flash() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    let contents = churn(&mut session, 200);
    drop(session);
    engine.kill();

    let engine = open(&config);
    let mut session = engine.session().unwrap();
    for (&(volume, block), &byte) in &contents {
        assert_eq!(read(&mut session, volume, block), byte, "volume {volume} block {block}");
    }
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

#[test]
fn a_stop_that_destages_leaves_stores_that_are_the_whole_truth() {
    let directory = tempfile::tempdir().unwrap();
    for flash in [false, true] {
        let config = config(directory.path(), flash);
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        let contents = churn(&mut session, 100);
        drop(session);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        for (name, volume, first) in [("a.img", 0, 1 << 20), ("b.img", 1, 0)] {
            let path = directory.path().join(name);
            assert!(!inspect_backing(&path).unwrap().dirty);
            let bytes = std::fs::read(&path).unwrap();
            for (&(_, block), &byte) in contents.iter().filter(|c| c.0.0 == volume) {
                let at = (first + block * BLOCK) as usize;
                assert_eq!(bytes[at], byte, "{name} block {block}");
            }
        }
    }
}

#[test]
fn a_stop_that_keeps_dirty_data_says_so_and_goes_on_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    for block in 0..10 {
        write(&mut session, 0, block, 7);
    }
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
    assert!(inspect_backing(&directory.path().join("a.img")).unwrap().dirty);
    let flash = check_flash(&directory.path().join("flash.img")).unwrap();
    assert_eq!(flash.dirty_blocks, 10);
    assert!(flash.recovery.clean);

    let engine = open(&config);
    assert!(engine.recovery().is_some_and(|r| r.clean && r.records >= 10));
    let mut session = engine.session().unwrap();
    assert_eq!(read(&mut session, 0, 9), 7);
    drop(session);
}

#[test]
fn dirty_data_is_not_formatted_away_unless_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 3, 7);
    drop(session);
    engine.kill();
    let format = || EngineOptions { format: true, ..EngineOptions::default() };
    let refused = Engine::open(&config, format()).unwrap_err();
    assert!(matches!(refused, EngineError::DirtyFlash { blocks: 1, .. }), "{refused}");
    let options = EngineOptions { discard_dirty_data: true, ..format() };
    let engine = Engine::open(&config, options).unwrap();
    assert_eq!(read(&mut engine.session().unwrap(), 0, 3), 0);
}

#[test]
fn volumes_keep_their_numbers_when_the_configuration_is_reordered() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), true);
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    write(&mut session, engine.volumes()[0].volume.0, 3, 7);
    write(&mut session, engine.volumes()[1].volume.0, 3, 8);
    drop(session);
    engine.kill();
    config.volume.reverse();
    let engine = open(&config);
    let names: Vec<_> = engine.volumes().iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let mut session = engine.session().unwrap();
    assert_eq!(read(&mut session, engine.volumes()[0].volume.0, 3), 8);
    assert_eq!(read(&mut session, engine.volumes()[1].volume.0, 3), 7);
    drop(session);
}

#[test]
fn a_tier_is_not_used_without_one_of_its_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    write(&mut session, 1, 3, 7);
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    // What it has of the other would be older than that, once that is used elsewhere.
    let mut fewer = config(directory.path(), true);
    fewer.volume.truncate(1);
    let error = Engine::open(&fewer, EngineOptions::default()).unwrap_err();
    assert!(matches!(error, EngineError::Bound { .. }), "{error}");
    open(&config(directory.path(), true)).kill();
}

#[test]
fn dirty_data_of_other_stores_is_not_formatted_away() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    write(&mut session, 1, 3, 7);
    drop(session);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
    // Stores of another directory, and the tier of this.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = config(elsewhere.path(), true);
    other.flash = config(directory.path(), true).flash;
    let options = || EngineOptions { format: true, ..EngineOptions::default() };
    let error = Engine::open(&other, options()).unwrap_err();
    let EngineError::Missing { error, .. } = error else { panic!("{error}") };
    assert!(matches!(*error, EngineError::Foreign { .. }), "{error}");
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    assert_eq!(read(&mut session, 1, 3), 7);
    drop(session);
}

#[test]
fn data_end_before_a_header_at_the_end_of_a_store_of_any_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    File::create(&path).unwrap().set_len((5 << 20) + 1536).unwrap();
    let text = format!(
        "[cache]\ndram = '1MiB'\n[[volume]]\nname = 'a'\nbacking = '{}'\nlayout = 'tail'\n",
        path.display()
    );
    let config = Config::from_toml(&text).unwrap();
    // Without O_DIRECT any length will do.
    let options = || EngineOptions { direct: DirectIo::Never, ..EngineOptions::default() };
    let engine = Engine::open(&config, options()).unwrap();
    assert_eq!(engine.volumes()[0].size_bytes, 4 << 20, "whole blocks, and 1 MiB is the header's");
    let mut session = engine.session().unwrap();
    write(&mut session, 0, BLOCKS - 1, 9);
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    let engine = Engine::open(&config, options()).unwrap();
    let mut session = engine.session().unwrap();
    assert_eq!(read(&mut session, 0, BLOCKS - 1), 9);
    drop(session);
}

#[test]
fn requests_are_held_back_while_quiesced() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 1, 7);
    engine.quiesce(None, |_| {}).unwrap();
    assert_eq!(engine.status().total.dirty_blocks, 0);
    let buffer = session.buffer(BLOCK as usize);
    let mut requests = vec![Submission { buffer: Some(buffer), ..request(Op::Read, 0, 1, 1) }];
    let mut done = Vec::new();
    assert_eq!(session.submit(&mut requests, &mut done), 1);
    engine.resume().unwrap();
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    assert_eq!(done[0].result, Ok(()));
    drop(session);
}

#[test]
fn when_an_engine_is_quiesced_nothing_is_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[cache]\ndram = '1MiB'\n[shape.slow]\nread_latency = '200ms'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\nshape = 'slow'\n",
        directory.path().join("a.img").display()
    );
    let engine = open(&Config::from_toml(&text).unwrap());
    let mut session = engine.session().unwrap();
    let buffer = session.buffer(BLOCK as usize);
    let mut requests = vec![Submission { buffer: Some(buffer), ..request(Op::Read, 0, 1, 1) }];
    let mut done = Vec::new();
    assert_eq!(session.submit(&mut requests, &mut done), 1);
    engine.quiesce(None, |_| {}).unwrap();
    assert_eq!((session.reap(&mut done), done.len()), (0, 1), "the read still waits for its store");
    engine.resume().unwrap();
    drop(session);
}

#[test]
fn a_quiesce_ends_by_itself_when_its_time_is_over_and_the_status_shows_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    assert!(engine.status().quiesced.is_none());
    engine.quiesce(None, |_| {}).unwrap();
    assert!(engine.status().quiesced.unwrap().left_s.is_none());
    assert!(!engine.end_overdue_quiesce().unwrap(), "it has no limit");
    engine.resume().unwrap();
    engine.quiesce(Some(Duration::from_secs(1000)), |_| {}).unwrap();
    assert!(!engine.end_overdue_quiesce().unwrap(), "its time is not over");
    assert!(engine.status().quiesced.unwrap().left_s.unwrap() > 900.0);
    engine.resume().unwrap();
    engine.quiesce(Some(Duration::from_millis(1)), |_| {}).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!inspect_backing(&directory.path().join("a.img")).unwrap().dirty);
    assert!(engine.end_overdue_quiesce().unwrap());
    assert!(engine.status().quiesced.is_none());
    assert!(inspect_backing(&directory.path().join("a.img")).unwrap().dirty);
    write(&mut session, 0, 1, 7);
    assert!(!engine.end_overdue_quiesce().unwrap());
    drop(session);
}

#[test]
fn the_tape_of_a_run_replays_to_the_same_effects() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    for run in 0..2 {
        // The first run formats, the second recovers.
        let tape = directory.path().join("tape");
        let options = EngineOptions {
            tape: Some(tape.clone()),
            direct: DirectIo::Never,
            ..EngineOptions::default()
        };
        let engine = Engine::open(&config, options).unwrap();
        let mut session = engine.session().unwrap();
        churn(&mut session, 150);
        drop(session);
        engine.destage(|_| {}).unwrap();
        engine.stop(StopMode::Keep, |_| {}).unwrap();

        let machine = cache_config(&config, Some(16 << 20)).unwrap();
        let replayed = replay(File::open(&tape).unwrap(), machine.clone()).unwrap();
        assert!(replayed.effects > 1000 && replayed.marks > 2, "run {run}: {replayed:?}");

        // A tape that was tampered with does not pass.
        let mut bytes = std::fs::read(&tape).unwrap();
        let at = bytes.len() - 3;
        bytes[at] ^= 1;
        let changed = replay(&bytes[..], machine.clone()).unwrap_err();
        assert!(matches!(changed, TapeError::Diverged { .. }), "{changed}");
        let other = forebay_cache::CacheConfig { dram_blocks: 7, ..machine };
        let refused = replay(&bytes[..], other).unwrap_err();
        assert!(matches!(refused, TapeError::Parameters { .. }), "{refused}");
    }
}

#[test]
fn the_tape_replays_whatever_was_asked_and_whatever_failed() {
    for (flash, policy) in [
        (true, "write-back"),
        (true, "write-through"),
        (false, "write-back"),
        (false, "write-around"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let config = config_with(directory.path(), flash, policy);
        let tape = directory.path().join("tape");
        let options = EngineOptions {
            tape: Some(tape.clone()),
            direct: DirectIo::Never,
            ..EngineOptions::default()
        };
        let engine = Engine::open(&config, options).unwrap();
        let mut session = engine.session().unwrap();
        // A disk that has become too short fails reads behind its end, until they are written.
        let disk = File::options().write(true).open(directory.path().join("b.img")).unwrap();
        disk.set_len(1 << 20).unwrap();
        let (mut state, mut requests, mut done) = (7_777_777_777u64, Vec::new(), Vec::new());
        let mut results = BTreeMap::new();
        for round in 0..120 {
            for _ in 0..24 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let (volume, block) = ((state >> 60) as u32 & 1, (state >> 20) % BLOCKS);
                let op = match (state >> 40) % 20 {
                    0 => Op::Flush,
                    1 => Op::Trim,
                    2 => Op::WriteZeroes,
                    n if n < 11 => Op::Read,
                    _ => Op::Write,
                };
                let mut request = request(op, volume, block, 1);
                match (state >> 50) % 8 {
                    _ if op == Op::Flush => (request.offset, request.length) = (0, 0),
                    // A part of a block, several blocks, beyond the end, durable at once.
                    0 => (request.offset, request.length) = (request.offset + 512, 1024),
                    1 => request.length *= 5,
                    2 if round % 10 == 0 => request.offset += BLOCKS * BLOCK,
                    3 if op == Op::Write => request.flags = Flags::FUA,
                    _ => {}
                }
                if matches!(op, Op::Read | Op::Write) {
                    request.buffer = Some(session.buffer(request.length as usize));
                }
                requests.push(request);
            }
            session.submit(&mut requests, &mut done);
            while session.in_flight() > 0 {
                session.wait(None, &mut done);
            }
            for d in done.drain(..) {
                *results.entry((d.request.op as u8, d.result.is_ok())).or_insert(0) += 1;
                d.request.buffer.into_iter().for_each(|buffer| session.give_back(buffer));
            }
        }
        for op in [Op::Read, Op::Write, Op::Trim, Op::Flush, Op::WriteZeroes] {
            assert!(results.contains_key(&(op as u8, true)), "{op:?}: {results:?}");
        }
        assert!(results.contains_key(&(Op::Read as u8, false)), "{results:?}");
        assert!(engine.status().total.backing.errors > 0);
        drop(session);
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        let machine = cache_config(&config, flash.then_some(16 << 20)).unwrap();
        let replayed = replay(File::open(&tape).unwrap(), machine).unwrap();
        assert!(replayed.effects > 1000 && replayed.marks > 2, "{policy}: {replayed:?}");
    }
}

#[test]
fn many_sessions_at_once_each_get_their_own_answers() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), false));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let engine = &engine;
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                for round in 0..300u64 {
                    let block = thread * 256 + round % 256;
                    let byte = (thread * 50 + round % 50) as u8;
                    write(&mut session, 0, block, byte);
                    assert_eq!(read(&mut session, 0, block), byte);
                }
            });
        }
    });
    let status = engine.status();
    assert_eq!((status.total.reads, status.total.writes), (1200, 1200));
    assert_eq!(status.in_flight, 0);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

/// One block or sixteen of one value each are written again and again by one thread, while others
/// read them and look at the answers only when much has been written since.
#[test]
fn lent_answers_are_of_one_time_whatever_is_written_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), false));
    let mut session = engine.session().unwrap();
    (0..64).for_each(|block| write(&mut session, 0, block, 1));
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for blocks in [1, 16] {
            let (engine, over) = (&engine, &over);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                session.borrow();
                let (mut held, mut lent, mut latest) = (Vec::new(), 0, [0; 64]);
                for round in 0..4000u64 {
                    let block = round * blocks % 64;
                    let done = submit_one(&mut session, request(Op::Read, 0, block, blocks), 0);
                    lent += usize::from(!done.lent.is_empty());
                    held.push(done);
                    if held.len() == 32 {
                        for done in held.drain(..) {
                            let buffer = done.request.buffer.unwrap();
                            let data = match done.lent.is_empty() {
                                true => buffer[..done.request.length as usize].to_vec(),
                                false => done.lent.iter().flat_map(|l| l.to_vec()).collect(),
                            };
                            assert_eq!(data.len() as u64, blocks * BLOCK);
                            for (n, data) in data.chunks(BLOCK as usize).enumerate() {
                                assert!(data.iter().all(|&b| b == data[0]), "torn");
                                let latest = &mut latest[done.request.tag as usize + n];
                                assert!(data[0] >= *latest, "older than what was read before");
                                *latest = data[0];
                            }
                        }
                    }
                }
                assert!(lent > 1000, "{lent} were lent");
                over.store(true, order);
            });
        }
        for value in 1..=200 {
            if !over.load(order) {
                (0..64).for_each(|block| write(&mut session, 0, block, value));
            }
        }
    });
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

#[test]
fn after_a_stop_that_destaged_nothing_on_flash_is_dirty() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    let contents = churn(&mut session, 100);
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    let flash = check_flash(&directory.path().join("flash.img")).unwrap();
    assert_eq!(flash.dirty_blocks, 0);
    assert!(flash.blocks > 0 && flash.recovery.clean);
    // What it caches is still good, and a kill now brings nothing old back.
    open(&config).kill();
    let engine = open(&config);
    let mut session = engine.session().unwrap();
    for (&(volume, block), &byte) in &contents {
        assert_eq!(read(&mut session, volume, block), byte, "volume {volume} block {block}");
    }
    assert_eq!(engine.status().total.dirty_blocks, 0);
    drop(session);
}

#[test]
fn destages_asked_for_at_the_same_time_all_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&config(directory.path(), true));
    let mut session = engine.session().unwrap();
    churn(&mut session, 20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| engine.destage(|_| {}).unwrap());
        }
    });
    assert_eq!(engine.status().total.dirty_blocks, 0);
    drop(session);
}

#[test]
fn a_flash_tier_of_a_size_that_is_no_whole_block_is_made_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), true);
    let odd = (16 << 20) + 4505;
    config.flash.as_mut().unwrap().size = Some(forebay_config::Size(odd));
    for byte in [1, 2] {
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        write(&mut session, 0, 0, byte);
        drop(session);
        engine.stop(StopMode::Keep, |_| {}).unwrap();
    }
    assert_eq!(directory.path().join("flash.img").metadata().unwrap().len(), odd);
    // Smaller by a block is too small.
    File::options()
        .write(true)
        .open(directory.path().join("flash.img"))
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let error = Engine::open(&config, EngineOptions::default()).err().unwrap();
    assert!(matches!(error, EngineError::FlashTooSmall { .. }), "{error}");
}

#[test]
fn a_tier_is_refused_once_its_stores_were_used_with_another() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let flash = directory.path().join("flash.img");
    let run = |byte| {
        let engine = open(&config);
        let mut session = engine.session().unwrap();
        write(&mut session, 0, 0, byte);
        drop(session);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
    };
    // Either tier owes nothing, and the first one has a record of what block 0 was.
    run(1);
    std::fs::rename(&flash, directory.path().join("first.img")).unwrap();
    run(2);
    std::fs::rename(directory.path().join("first.img"), &flash).unwrap();
    let Err(error) = Engine::open(&config, EngineOptions::default()) else {
        panic!("an old tier was opened")
    };
    assert!(matches!(error, EngineError::Bound { .. }), "{error}");
}

#[test]
fn a_store_that_could_not_be_synced_at_the_stop_is_not_called_clean() {
    // Everything is written, nothing is dirty in memory any more, and the store may have lost it.
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), false);
    let sync = |o: &Operation| o.part == Part::Data && o.verb == Verb::Sync;
    let (engine, fail) = open_to_fail(&config, sync);
    let mut session = engine.session().unwrap();
    write(&mut session, 1, 0, 1);
    drop(session);
    fail.now.store(true, Ordering::Relaxed);
    let error = engine.stop(StopMode::Destage, |_| {}).unwrap_err();
    assert!(error.to_string().contains("0 dirty blocks"), "{error}");
    assert!(inspect_backing(&directory.path().join("b.img")).unwrap().dirty);
}

#[test]
fn a_destage_that_waits_only_for_time_ends() {
    // The log has failed: it refuses at once what a destage asks of it, and no device ends anything.
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), true);
    let (engine, fail) = open_to_fail(&config, |operation| operation.device == Device::Flash);
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 1);
    fail.now.store(true, Ordering::Relaxed);
    let refused = submit_one(&mut session, request(Op::Write, 0, 1, 1), 2);
    assert!(refused.result.is_err(), "writes are acknowledged from flash");
    drop(session);
    engine.wait_until_idle();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let result = engine.destage(|_| {});
        engine.kill();
        tell.send(result).unwrap();
    });
    let result = told.recv_timeout(Duration::from_secs(20)).expect("the destage ends");
    assert!(matches!(result, Err(EngineError::Destage { .. })), "{result:?}");
}

#[test]
fn a_quiesce_that_flash_does_not_survive_lets_clients_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), true);
    // With a header, the store could do without flash at once.
    config.volume[0].layout = BackingLayout::None;
    let (engine, fail) = open_to_fail(&config, |operation| operation.device == Device::Flash);
    let mut session = engine.session().unwrap();
    write(&mut session, 0, 0, 1);
    engine.destage(|_| {}).unwrap();
    fail.now.store(true, Ordering::Relaxed);
    let error = engine.quiesce(None, |_| {}).unwrap_err();
    assert!(matches!(error, EngineError::Order { what: "the quiesce", .. }), "{error}");
    // Flash holds nothing of this block.
    write(&mut session, 0, 5, 2);
    engine.resume().unwrap();
    drop(session);
    engine.kill();
}
