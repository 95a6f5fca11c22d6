//! Which layout and page size a flash tier has: as it was formatted, whatever the default is now; a new one as the
//! configuration says, or the default.

use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_block::{Flags, Op};
use forebay_config::Config;
use forebay_engine::{
    Engine, EngineError, EngineOptions, Found, StopMode, Submission, inspect_flash, layout_name,
};

use crate::common;

fn config(directory: &Path, flash: &str) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\n{flash}\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '8MiB'\n",
        path("flash.img"),
        path("a.img"),
    );
    Config::from_toml(&text).unwrap()
}

fn open(directory: &Path, flash: &str, format: bool) -> Result<Engine, EngineError> {
    Engine::open(&config(directory, flash), EngineOptions { format, ..Default::default() })
}

/// Layout and page size of what is on the device.
fn found(directory: &Path) -> (&'static str, u32) {
    match inspect_flash(&directory.join("flash.img")).unwrap() {
        Found::Tier(superblock) => (layout_name(&superblock), superblock.page_size),
        other => panic!("no tier: {other:?}"),
    }
}

/// Writes or reads block `block`: the byte it holds.
fn perform(engine: &Engine, op: Op, block: u64, byte: u8) -> u8 {
    let flags = if op == Op::Write { Flags::FUA } else { Flags::NONE };
    let request = Submission::new(1, engine.volumes()[0].volume, op, block * 4096, 4096, None);
    common::perform(engine, request.with_flags(flags), byte)
}

#[test]
fn a_tier_keeps_its_layout_and_pages_under_a_configuration_that_names_none() {
    for (flash, layout) in [
        ("layout = 'log'", "log"),
        ("layout = 'log'\npage_size = '16KiB'", "log"),
        ("layout = 'slots'\npage_size = '4KiB'", "slots"),
        ("layout = 'slots'\npage_size = '8KiB'", "slots"),
        ("", "slots"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let d = directory.path();
        let engine = open(d, flash, false).unwrap();
        let formatted = found(d);
        assert_eq!(formatted.0, layout, "{flash}");
        for block in 0..1000 {
            perform(&engine, Op::Write, block, block as u8 | 1);
        }
        engine.kill();
        // What was acknowledged is on flash, dirty, and found there.
        let engine = open(d, "", false).unwrap();
        assert_eq!(found(d), formatted, "{flash}");
        for block in 0..1000 {
            assert_eq!(perform(&engine, Op::Read, block, 0), block as u8 | 1, "{flash}: {block}");
        }
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        let other = if layout == "log" { "layout = 'slots'" } else { "layout = 'log'" };
        let error = open(d, other, false).unwrap_err().to_string();
        assert!(error.contains("layout"), "{error}");
        // A new tier has the default again.
        open(d, "", true).unwrap().kill();
        assert_eq!(found(d).0, "slots", "{flash}");
    }
}

#[test]
fn a_new_tier_is_found_whatever_pages_the_former_ones_had() {
    let directory = tempfile::tempdir().unwrap();
    let d = directory.path();
    let bytes = |page: &str| page.trim_end_matches("KiB").parse::<u32>().unwrap() << 10;
    let pages = [
        "4KiB", "64KiB", "8KiB", "32KiB", "16KiB", "4KiB", "16KiB", "64KiB", "32KiB", "8KiB",
        "4KiB",
    ];
    for (n, page) in pages.into_iter().enumerate() {
        let flash = format!("layout = 'log'\npage_size = '{page}'");
        let engine = open(d, &flash, true).unwrap();
        // Superblocks of the earlier tiers were updated more often.
        if n < 5 {
            engine.stop(StopMode::Destage, |_| {}).unwrap();
            open(d, "", false).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
        } else {
            engine.kill();
        }
        assert_eq!(found(d), ("log", bytes(page)), "tier {n}");
        // A tier is found by either copy of its superblock.
        let path = d.join("flash.img");
        let device = std::fs::File::options().read(true).write(true).open(path).unwrap();
        for copy in [0, u64::from((16 * bytes(page)).max(64 << 10))] {
            let mut former = vec![0; 4096];
            device.read_exact_at(&mut former, copy).unwrap();
            device.write_all_at(&[0xA5; 4096], copy).unwrap();
            assert_eq!(found(d), ("log", bytes(page)), "tier {n} without its copy at {copy}");
            device.write_all_at(&former, copy).unwrap();
        }
    }
}

#[test]
fn pages_are_no_smaller_than_what_the_device_writes_as_one() {
    // Through the page cache, whatever lies behind it.
    let directory = tempfile::tempdir().unwrap();
    let d = directory.path();
    let direct = forebay_device::file::DirectIo::Never;
    let options = EngineOptions { direct, ..EngineOptions::default() };
    Engine::open(&config(d, ""), options).unwrap().kill();
    assert_eq!(found(d), ("slots", 4096));
}

#[test]
fn keys_that_do_not_fit_the_layout_of_the_tier_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let d = directory.path();
    drop(open(d, "layout = 'log'", false).unwrap());
    for keys in ["replacement = 'lru'", "give_up_copies = true"] {
        match open(d, keys, false) {
            Err(EngineError::AdoptedLayout { problems, .. }) => {
                let key = format!("flash.{}", keys.split(' ').next().unwrap());
                assert_eq!(problems[0].key, key, "{problems:?}");
            }
            other => panic!("{keys}: {:?}", other.err()),
        }
        // In a new tier they fit.
        drop(open(tempfile::tempdir().unwrap().path(), keys, false).unwrap());
    }
    drop(open(d, "", false).unwrap());
}
