//! A store that was copied, header and all: a flash tier cannot tell the two apart, so that both at once are
//! refused until the user says that a copy is meant.

use std::path::Path;

use forebay_block::{Flags, Op};
use forebay_config::Config;
use forebay_engine::{Engine, EngineError, EngineOptions, StopMode, Submission};

use crate::common;

fn config(directory: &Path, volumes: &[&str]) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let volume = |name: &&str| {
        format!("[[volume]]\nname = '{name}'\nbacking = '{}'\nsize = '4MiB'\n", path(name))
    };
    let volumes: String = volumes.iter().map(volume).collect();
    let text = format!(
        "[cache]\ndram = '4MiB'\nwrite_policy = 'write-back'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\n{volumes}",
        path("flash.img"),
    );
    Config::from_toml(&text).unwrap()
}

fn perform(engine: &Engine, volume: &str, op: Op, byte: u8) -> u8 {
    let volume = engine.volumes().iter().find(|v| v.name == volume).unwrap().volume;
    let request = Submission::new(1, volume, op, 0, 4096, None);
    common::perform(engine, request.with_flags(Flags::FUA), byte)
}

fn open(directory: &Path, volumes: &[&str], format: bool) -> Result<Engine, EngineError> {
    Engine::open(&config(directory, volumes), EngineOptions { format, ..Default::default() })
}

#[test]
fn without_flash_a_copy_beside_its_original_is_refused_until_it_is_meant_too() {
    let directory = tempfile::tempdir().unwrap();
    let (d, path) = (directory.path(), |name: &str| directory.path().join(name));
    let open = |volumes: &[&str], format| {
        let config = Config { flash: None, ..config(d, volumes) };
        Engine::open(&config, EngineOptions { format, ..Default::default() })
    };
    open(&["a"], false).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
    std::fs::copy(path("a"), path("b")).unwrap();
    let error = open(&["a", "b"], false).unwrap_err();
    assert!(matches!(error, EngineError::Twins { .. }), "{error}");
    open(&["a", "b"], true).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
    open(&["a", "b"], false).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
}

/// A read-only export keeps its header, so `--format` could give it no other identity.
#[test]
fn without_flash_a_copy_beside_its_original_is_served_if_neither_is_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let (d, path) = (directory.path(), |name: &str| directory.path().join(name));
    let open = |names: &[&str], read_only: [bool; 2]| {
        let mut config = Config { flash: None, ..config(d, names) };
        let volumes = config.volume.iter_mut().zip(read_only);
        volumes.for_each(|(volume, read_only)| volume.read_only = read_only);
        Engine::open(&config, EngineOptions::default())
    };
    let engine = open(&["a"], [false; 2]).unwrap();
    perform(&engine, "a", Op::Write, 1);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    std::fs::copy(path("a"), path("b")).unwrap();
    for read_only in [[true, false], [false, true]] {
        let error = open(&["a", "b"], read_only).unwrap_err();
        assert!(matches!(error, EngineError::Twins { .. }), "{error}");
    }
    for _ in 0..2 {
        let engine = open(&["a", "b"], [true; 2]).unwrap();
        let read = |volume| perform(&engine, volume, Op::Read, 0);
        assert_eq!([read("a"), read("b")], [1, 1]);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
    }
}

#[test]
fn a_copy_beside_its_original_is_refused_until_it_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    let (d, path) = (directory.path(), |name: &str| directory.path().join(name));
    let engine = open(d, &["a"], false).unwrap();
    perform(&engine, "a", Op::Write, 1);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    std::fs::copy(path("a"), path("b")).unwrap();
    std::fs::remove_file(path("flash.img")).unwrap();
    let error = open(d, &["a", "b"], false).unwrap_err();
    assert!(error.to_string().contains("volumes a and b: one backing store is a copy"), "{error}");

    let engine = open(d, &["a", "b"], true).unwrap();
    assert_eq!([perform(&engine, "a", Op::Read, 0), perform(&engine, "b", Op::Read, 0)], [1, 1]);
    perform(&engine, "a", Op::Write, 2);
    perform(&engine, "b", Op::Write, 3);
    engine.kill();
    // Each has its own from now on, in whatever order.
    let engine = open(d, &["b", "a"], false).unwrap();
    assert_eq!([perform(&engine, "a", Op::Read, 0), perform(&engine, "b", Op::Read, 0)], [2, 3]);
    engine.kill();

    // A copy in the place of another store, with dirty data on flash: nothing is lost.
    std::fs::rename(path("a"), path("former")).unwrap();
    std::fs::copy(path("b"), path("a")).unwrap();
    for format in [false, true] {
        let error = open(d, &["a", "b"], format).unwrap_err();
        assert!(format || matches!(error, EngineError::Twins { .. }), "{error}");
    }
    std::fs::rename(path("former"), path("a")).unwrap();
    let engine = open(d, &["a", "b"], false).unwrap();
    assert_eq!([perform(&engine, "a", Op::Read, 0), perform(&engine, "b", Op::Read, 0)], [2, 3]);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    assert_eq!(std::fs::read(path("b")).unwrap()[1 << 20], 3);
}
