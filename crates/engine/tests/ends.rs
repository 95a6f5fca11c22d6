//! Stops and quiesces that meet others: what is cut short loses nothing, and nobody waits for what a
//! stop can end.

use std::ops::ControlFlow;
use std::path::Path;

use forebay_config::{Acknowledge, Config, WritePolicy};
use forebay_engine::{EngineError, StopMode, inspect_backing};

use crate::engine::{BLOCKS, config_with, open, read, write};

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
fn a_stop_ends_a_quiesce_that_still_destages() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&slow(directory.path()));
    let mut session = engine.session().unwrap();
    // (Not neighbours: each is a write of its own.)
    for block in 0..500 {
        write(&mut session, 0, block * 2 % BLOCKS, 7);
    }
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
    let refused = back().unwrap_err().to_string();
    assert!(refused.contains("quiesce --resume"), "{refused}");
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
