//! Devices whose names are mixed up: a flash tier as a store, a store as the flash tier, or somebody
//! else's data. Each is refused and keeps every byte until the user gives up what it holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{
    Engine, EngineError, EngineOptions, Found, StopMode, Submission, check_flash, inspect_backing,
    inspect_flash,
};

use crate::common;

/// A configuration with these files as flash tier, if any, and as store of this layout.
fn config(directory: &Path, flash: Option<&str>, store: &str, layout: &str) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let flash = flash.map(|name| format!("[flash]\npath = '{}'\n", path(name)));
    Config::from_toml(&format!(
        "[cache]\ndram = '4MiB'\nwrite_policy = 'write-back'\n{}[[volume]]\nname = 'a'\nbacking = \
         '{}'\nsize = '4MiB'\nlayout = '{layout}'\n",
        flash.unwrap_or_default(),
        path(store),
    ))
    .unwrap()
}

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let each = directory.read_dir().unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
    });
    each.collect()
}

fn perform(engine: &Engine, op: Op, byte: u8) -> u8 {
    let request = Submission::new(1, Volume(0), op, 0, 4096, None);
    common::perform(engine, request.with_flags(Flags::FUA), byte)
}

const FORMAT: fn() -> EngineOptions = || EngineOptions { format: true, ..EngineOptions::default() };
const DISCARD: fn() -> EngineOptions = || EngineOptions { discard_dirty_data: true, ..FORMAT() };

fn open(config: &Config, options: EngineOptions) -> Result<Engine, EngineError> {
    Engine::open(config, options)
}

/// Opens, is refused, and nothing has changed.
fn refused(directory: &Path, config: &Config, options: EngineOptions) -> EngineError {
    let before = contents(directory);
    let error = open(config, options).unwrap_err();
    let after = contents(directory);
    for (name, bytes) in &before {
        assert!(after.get(name) == Some(bytes), "{error}: but {name} was written");
    }
    error
}

/// A flash tier `flash.img` with a dirty block of the store `store.img`, and files for other tiers
/// and stores.
fn dirty_pair(layout: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["flash.img", "store.img", "other-flash.img"] {
        File::create(directory.path().join(name)).unwrap().set_len(16 << 20).unwrap();
    }
    let config = config(directory.path(), Some("flash.img"), "store.img", layout);
    let engine = open(&config, EngineOptions::default()).unwrap();
    perform(&engine, Op::Write, 7);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
    directory
}

/// The pair is served as it was left.
fn is_whole(directory: &Path, layout: &str) {
    let config = config(directory, Some("flash.img"), "store.img", layout);
    let engine = open(&config, EngineOptions::default()).unwrap();
    assert_eq!(perform(&engine, Op::Read, 0), 7);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
}

#[test]
fn a_flash_tier_is_no_store_of_any_layout() {
    for layout in ["none", "offset", "tail"] {
        for flash in [None, Some("other-flash.img")] {
            let pair = dirty_pair("offset");
            let mixed_up = config(pair.path(), flash, "flash.img", layout);
            for options in [EngineOptions::default(), FORMAT()] {
                let error = refused(pair.path(), &mixed_up, options);
                let named = matches!(&error, EngineError::TierAsStore { path, .. }
                    if path.ends_with("flash.img"));
                assert!(named, "{layout}: {error}");
            }
            is_whole(pair.path(), "offset");
            let engine = open(&mixed_up, DISCARD()).unwrap();
            perform(&engine, Op::Write, 8);
            engine.stop(StopMode::Destage, |_| {}).unwrap();
            if layout != "none" {
                // Its header says what it is from now on.
                open(&mixed_up, EngineOptions::default()).unwrap().kill();
            }
        }
    }
}

#[test]
fn a_store_without_a_header_that_is_bound_to_the_tier_may_hold_any_data() {
    let pair = dirty_pair("offset");
    let own = config(pair.path(), Some("other-flash.img"), "own.img", "none");
    open(&own, EngineOptions::default()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
    // A client keeps a flash tier of its own on its volume.
    let engine = open(&own, EngineOptions::default()).unwrap();
    let tier = std::fs::read(pair.path().join("flash.img")).unwrap();
    let mut session = engine.session().unwrap();
    for (n, block) in tier.chunks(4096).take(64).enumerate() {
        let mut buffer = session.buffer(block.len());
        buffer[..block.len()].copy_from_slice(block);
        let at = (n * block.len()) as u64;
        let request = Submission::new(1, Volume(0), Op::Write, at, 4096, Some(buffer));
        let (mut requests, mut done) = (vec![request], Vec::new());
        session.submit(&mut requests, &mut done);
        while done.is_empty() {
            session.wait(None, &mut done);
        }
        assert_eq!(done[0].result, Ok(()));
    }
    drop(session);
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    let own_start = inspect_flash(&pair.path().join("own.img")).unwrap();
    assert!(matches!(own_start, Found::Tier(_)), "{own_start:?}");
    open(&own, EngineOptions::default()).unwrap().kill();
}

#[test]
fn a_store_is_no_flash_tier() {
    for layout in ["offset", "tail"] {
        let pair = dirty_pair(layout);
        let mixed_up = config(pair.path(), Some("store.img"), "new.img", layout);
        for options in [EngineOptions::default(), FORMAT()] {
            let error = refused(pair.path(), &mixed_up, options);
            let EngineError::StoreAsTier { path, layout: Some(found), dirty: true } = &error else {
                panic!("{layout}: {error}")
            };
            assert!(path.ends_with("store.img") && found == layout, "{error}");
        }
        let swapped = config(pair.path(), Some("store.img"), "flash.img", layout);
        for options in [EngineOptions::default(), FORMAT()] {
            refused(pair.path(), &swapped, options);
        }
        is_whole(pair.path(), layout);

        open(&mixed_up, DISCARD()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
        let former = inspect_backing(&pair.path().join("store.img"));
        assert!(former.is_err(), "the tier could be taken for the store that it was: {former:?}");
        open(&mixed_up, EngineOptions::default()).unwrap().kill();
    }
}

#[test]
fn a_complete_store_is_a_flash_tier_once_it_is_formatted() {
    for layout in ["offset", "tail"] {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("store.img")).unwrap().set_len(16 << 20).unwrap();
        let own = config(directory.path(), None, "store.img", layout);
        open(&own, EngineOptions::default()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
        let mixed_up = config(directory.path(), Some("store.img"), "new.img", layout);
        let error = refused(directory.path(), &mixed_up, EngineOptions::default());
        assert!(matches!(error, EngineError::StoreAsTier { dirty: false, .. }), "{error}");
        open(&mixed_up, FORMAT()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
        assert_eq!(check_flash(&directory.path().join("store.img")).unwrap().dirty_blocks, 0);
    }
}

#[test]
fn data_behind_a_blank_start_are_somebodys() {
    let places = [4 << 20, 9 << 20, (16 << 20) - 4096, (16 << 20) - 512];
    for place in places {
        let directory = tempfile::tempdir().unwrap();
        let flash = File::create(directory.path().join("flash.img")).unwrap();
        flash.set_len(16 << 20).unwrap();
        flash.write_all_at(&[1; 512], place).unwrap();
        let config = config(directory.path(), Some("flash.img"), "store.img", "offset");
        let error = refused(directory.path(), &config, EngineOptions::default());
        assert!(matches!(error, EngineError::NotFlash { .. }), "{place}: {error}");
        open(&config, FORMAT()).unwrap().kill();
    }
    // Zeroes that were written are no data.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flash.img"), vec![0; 16 << 20]).unwrap();
    let config = config(directory.path(), Some("flash.img"), "store.img", "offset");
    open(&config, EngineOptions::default()).unwrap().kill();
}
