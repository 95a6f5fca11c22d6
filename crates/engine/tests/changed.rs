//! A configuration that changes between two runs: what no longer fits is refused before anything
//! is written, and the former configuration finds everything.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use forebay_block::{Flags, Op, Volume};
use forebay_config::{BackingLayout, Config, Flash, FlashLayout, Size};
use forebay_engine::{
    Engine, EngineError, EngineNotice, EngineOptions, HeaderError, StopMode, Submission,
    TierMismatch, inspect_backing, release_backing,
};
use forebay_flash::HeaderFields;

use crate::common;

/// What differs from one run to the next.
#[derive(Clone, Copy)]
struct Setup {
    block: &'static str,
    layout: &'static str,
    size: &'static str,
    flash: Option<&'static str>,
    tier: &'static str,
}

const FIRST: Setup =
    Setup { block: "4KiB", layout: "offset", size: "4MiB", flash: Some("16MiB"), tier: "log" };

fn config(directory: &Path, setup: Setup) -> Config {
    let path = |name: &str| directory.join(name).display().to_string();
    let flash = setup.flash.map(|size| {
        format!(
            "[flash]\npath = '{}'\nsize = '{size}'\nlayout = '{}'\n",
            path("flash.img"),
            setup.tier
        )
    });
    let text = format!(
        "[cache]\nblock_size = '{}'\ndram = '4MiB'\nwrite_policy = 'write-back'\n{}\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '{}'\nlayout = '{}'\n",
        setup.block,
        flash.unwrap_or_default(),
        path("a.img"),
        setup.size,
        setup.layout,
    );
    Config::from_toml(&text).unwrap()
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let each = directory.read_dir().unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
    });
    each.collect()
}

fn perform(engine: &Engine, op: Op, offset: u64, byte: u8) -> u8 {
    let request = Submission::new(1, Volume(0), op, offset, 4096, None);
    common::perform(engine, request.with_flags(Flags::FUA), byte)
}

/// The last block of the volume.
const LAST: u64 = (4 << 20) - 4096;

/// A run that leaves data on flash only, or cleanly on the backing store.
fn first_run(directory: &Path, dirty: bool) {
    let engine = Engine::open(&config(directory, FIRST), EngineOptions::default()).unwrap();
    perform(&engine, Op::Write, LAST, 7);
    if dirty {
        engine.kill();
    } else {
        engine.stop(StopMode::Destage, |_| {}).unwrap();
    }
}

/// Opens under a changed configuration, which must be refused and change no byte; then under the
/// former one, which finds the data.
fn refused(directory: &Path, setup: Setup, options: EngineOptions) -> EngineError {
    let mut before = files(directory);
    let error = Engine::open(&config(directory, setup), options).unwrap_err();
    let mut after = files(directory);
    if matches!(error, EngineError::Shrunk { .. } | EngineError::Enlarged { .. }) {
        // What is dirty is known only once the tier has been read, and before that the header of
        // the store says that it is about to be.
        for files in [&mut before, &mut after] {
            files.get_mut("a.img").unwrap().drain(..1 << 20);
        }
    }
    assert!(before == after, "{error}: but something was written");
    let former = Engine::open(&config(directory, FIRST), EngineOptions::default()).unwrap();
    assert_eq!(perform(&former, Op::Read, LAST, 0), 7, "after {error}");
    former.kill();
    error
}

#[test]
fn another_block_size_is_refused_dirty_or_clean() {
    for dirty in [true, false] {
        for block in ["8KiB", "16KiB", "64KiB"] {
            let directory = tempfile::tempdir().unwrap();
            first_run(directory.path(), dirty);
            let setup = Setup { block, ..FIRST };
            let error = refused(directory.path(), setup, EngineOptions::default());
            assert!(matches!(error, EngineError::BlockSize { found: 4096, .. }), "{error}");
        }
    }
    // And smaller ones.
    let directory = tempfile::tempdir().unwrap();
    let large = Setup { block: "16KiB", ..FIRST };
    let options = EngineOptions::default;
    Engine::open(&config(directory.path(), large), options()).unwrap().kill();
    let error = Engine::open(&config(directory.path(), FIRST), options()).unwrap_err();
    assert!(matches!(error, EngineError::BlockSize { found: 16384, wanted: 4096, .. }), "{error}");
}

#[test]
fn a_store_of_another_layout_is_refused_until_given_up() {
    for layout in ["none", "tail"] {
        for flash in [None, FIRST.flash] {
            for dirty in [true, false] {
                let directory = tempfile::tempdir().unwrap();
                first_run(directory.path(), dirty);
                let setup = Setup { layout, flash, ..FIRST };
                let error = refused(directory.path(), setup, EngineOptions::default());
                let expected = |e: &EngineError| matches!(e, EngineError::OtherLayout { .. });
                assert!(expected(&error), "{error}");
            }
        }
    }
    // Newer data elsewhere are given up in so many words only.
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    let setup = Setup { layout: "none", flash: None, ..FIRST };
    let format = || EngineOptions { format: true, ..EngineOptions::default() };
    let error = refused(directory.path(), setup, format());
    assert!(matches!(error, EngineError::OtherLayout { dirty: true, .. }), "{error}");
    let discard = EngineOptions { discard_dirty_data: true, ..format() };
    let engine = Engine::open(&config(directory.path(), setup), discard).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    // The header is void: it is not in the way of the next start.
    let engine = Engine::open(&config(directory.path(), setup), EngineOptions::default()).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

#[test]
fn a_volume_is_not_made_smaller_than_what_is_dirty() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    let setup = Setup { size: "2MiB", ..FIRST };
    // The second ends within the last block.
    let within = Setup { size: "4191232", ..FIRST };
    for (setup, wanted) in [(setup, (LAST, 2 << 20)), (within, (LAST + 1024, LAST + 1024))] {
        let error = refused(directory.path(), setup, EngineOptions::default());
        let expected = |e: &EngineError| match e {
            EngineError::Shrunk { volume, offset, size, .. } => {
                volume == "a" && (*offset, *size) == wanted
            }
            _ => false,
        };
        assert!(expected(&error), "{error}");
    }
    // Once nothing is dirty, it may.
    let former = Engine::open(&config(directory.path(), FIRST), EngineOptions::default()).unwrap();
    former.stop(StopMode::Destage, |_| {}).unwrap();
    let engine = Engine::open(&config(directory.path(), setup), EngineOptions::default()).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

#[test]
fn a_volume_made_larger_reads_what_its_store_has_behind_the_former_end() {
    for layout in ["log", "slots"] {
        let directory = tempfile::tempdir().unwrap();
        let large = Setup { tier: layout, size: "4MiB", ..FIRST };
        let small = Setup { size: "4191232", ..large };
        let open = |setup| Engine::open(&config(directory.path(), setup), EngineOptions::default());
        let first = open(large).unwrap();
        perform(&first, Op::Write, LAST, 7);
        first.stop(StopMode::Destage, |_| {}).unwrap();
        std::fs::remove_file(directory.path().join("flash.img")).unwrap();
        let format = EngineOptions { format: true, ..EngineOptions::default() };
        let second = Engine::open(&config(directory.path(), small), format).unwrap();
        let start = |op| Submission::new(1, Volume(0), op, LAST, 512, None).with_flags(Flags::FUA);
        common::perform(&second, start(Op::Write), 5);
        second.kill();
        // The block at the former end is dirty.
        let error = open(large).unwrap_err();
        let expected = |e: &EngineError| match e {
            EngineError::Enlarged { volume, former, .. } => volume == "a" && *former == LAST + 1024,
            _ => false,
        };
        assert!(expected(&error), "{error}");
        let second = open(small).unwrap();
        assert_eq!(common::perform(&second, start(Op::Read), 0), 5);
        second.stop(StopMode::Destage, |_| {}).unwrap();
        // The start has noted it, durably, even if nothing else happens.
        let third = open(large).unwrap();
        let dropped = |n: &EngineNotice| matches!(n, EngineNotice::Resized { .. });
        assert!(third.notices().iter().any(dropped), "{:?}", third.notices());
        third.kill();
        let third = open(large).unwrap();
        assert!(!third.notices().iter().any(dropped), "{:?}", third.notices());
        let behind = Submission::new(1, Volume(0), Op::Read, LAST + 1024, 512, None);
        assert_eq!(common::perform(&third, behind, 0), 7, "layout {layout}");
        assert_eq!(common::perform(&third, start(Op::Read), 0), 5, "layout {layout}");
        third.stop(StopMode::Destage, |_| {}).unwrap();
    }
}

/// A mistyped path creates a tier, which makes the former one useless.
#[test]
fn a_new_flash_tier_names_the_one_that_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let new_tiers = |config: &Config| {
        let engine = Engine::open(config, EngineOptions::default()).unwrap();
        let of_tier = |notice: &EngineNotice| match notice {
            EngineNotice::NewTier { path, former, volumes } => {
                Some((path.clone(), *former, volumes.clone()))
            }
            _ => None,
        };
        let told: Vec<_> = engine.notices().iter().filter_map(of_tier).collect();
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        told
    };
    let first = config(directory.path(), FIRST);
    assert!(new_tiers(&first).is_empty(), "nothing was served before");
    assert!(new_tiers(&first).is_empty(), "the tier is not new");
    let former = inspect_backing(&directory.path().join("a.img")).unwrap().flash_uuid.unwrap();
    let mut mistyped = first.clone();
    let path = directory.path().join("flsh.img");
    mistyped.flash.as_mut().unwrap().path.clone_from(&path);
    assert_eq!(new_tiers(&mistyped), [(path, former, vec!["a".to_owned()])]);
    assert!(new_tiers(&mistyped).is_empty(), "it is said once");
    let error = Engine::open(&first, EngineOptions::default()).unwrap_err();
    let replaced = |e: &EngineError| match e {
        EngineError::Bound { mismatch, .. } => {
            matches!(mismatch, TierMismatch::UsedWithAnother { volume } if volume == "a")
        }
        _ => false,
    };
    assert!(replaced(&error), "{error}");
    // With --format, the user has already decided: there is no notice.
    let format = EngineOptions { format: true, ..EngineOptions::default() };
    let engine = Engine::open(&first, format).unwrap();
    assert!(engine.notices().is_empty(), "{:?}", engine.notices());
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

#[test]
fn a_flash_tier_that_keeps_its_size_says_so() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    for (flash, told) in [("16MiB", false), ("12MiB", true)] {
        let setup = Setup { flash: Some(flash), ..FIRST };
        let config = config(directory.path(), setup);
        assert_eq!(kept(&config), if told { vec!["size"] } else { vec![] }, "{flash}");
    }
}

#[test]
fn a_flash_tier_that_keeps_its_size_finds_all_its_dirty_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup { size: "16MiB", ..FIRST };
    let engine = Engine::open(&config(directory.path(), setup), EngineOptions::default()).unwrap();
    for block in 0..3000 {
        perform(&engine, Op::Write, block * 4096, 9);
    }
    let dirty = engine.counters().volumes[0].dirty_blocks;
    assert!(dirty > 1600, "{dirty}");
    engine.kill();
    let setup = Setup { flash: Some("2MiB"), ..setup };
    let engine = Engine::open(&config(directory.path(), setup), EngineOptions::default()).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
}

/// The keys that have no effect until the tier is formatted again, as the notices of a start name
/// them.
fn kept(config: &Config) -> Vec<&'static str> {
    let engine = Engine::open(config, EngineOptions::default()).unwrap();
    let keys = engine.notices().iter().filter_map(|notice| match notice {
        EngineNotice::Formatted { key, formatted, configured, .. } => {
            assert_ne!(formatted, configured);
            Some(*key)
        }
        _ => None,
    });
    let keys = keys.collect();
    engine.kill();
    keys
}

#[test]
fn a_setting_that_only_a_format_applies_is_named_if_it_differs() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    let unchanged = config(directory.path(), FIRST);
    assert_eq!(kept(&unchanged), Vec::<&str>::new());
    let set = |key, set: &dyn Fn(&mut Flash)| {
        let mut changed = unchanged.clone();
        set(changed.flash.as_mut().unwrap());
        let keys = kept(&changed);
        assert!(keys.contains(&key), "{key}: {keys:?}");
    };
    set("page_size", &|flash| flash.page_size = Some(Size(8192)));
    set("region_size", &|flash| flash.region_size = Some(Size(1 << 20)));
    set("activity_extent", &|flash| flash.activity_extent = Size(1 << 24));
}

#[test]
fn a_tier_that_is_not_where_it_was_is_named_and_none_is_made() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    let [flash, moved] = ["flash.img", "moved.img"].map(|name| directory.path().join(name));
    std::fs::rename(&flash, &moved).unwrap();
    let before = files(directory.path());
    let config = config(directory.path(), FIRST);
    let error = Engine::open(&config, EngineOptions::default()).unwrap_err();
    match &error {
        EngineError::Missing { missing, .. } => assert_eq!(missing, std::slice::from_ref(&flash)),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("flash.img"), "{error}");
    assert!(files(directory.path()) == before, "{error}: but something was written or made");
    std::fs::rename(&moved, &flash).unwrap();
    let former = Engine::open(&config, EngineOptions::default()).unwrap();
    assert_eq!(perform(&former, Op::Read, LAST, 0), 7);
    former.kill();
}

#[test]
fn a_last_block_that_the_volume_cuts_short_is_destaged_to_its_end_and_no_further() {
    for flash in [None, FIRST.flash] {
        // Blocks of 64 KiB have granules of 4 KiB; the last one here is half within the volume.
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup { block: "64KiB", layout: "none", size: "4102KiB", flash, ..FIRST };
        let store = directory.path().join("a.img");
        std::fs::write(&store, vec![1; 4102 << 10]).unwrap();
        let engine = Engine::open(&config(directory.path(), setup), EngineOptions::default());
        let engine = engine.unwrap();
        perform(&engine, Op::Write, 4098 << 10, 7);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        let bytes = std::fs::read(&store).unwrap();
        assert_eq!(bytes.len(), 4102 << 10, "the store has grown");
        let (old, new) = bytes.split_at(4098 << 10);
        assert!(old.iter().all(|&b| b == 1) && new.iter().all(|&b| b == 7));
    }
}

#[test]
fn a_missing_store_is_named_only_if_it_may_explain_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Engine::open(&config(directory.path(), FIRST), EngineOptions::default());
    first_run(directory.path(), false);
    let [store, flash] = ["a.img", "flash.img"].map(|name| directory.path().join(name));
    std::fs::remove_file(&store).unwrap();
    match open().unwrap_err() {
        EngineError::Missing { missing, .. } => assert_eq!(missing, [store]),
        other => panic!("{other}"),
    }
    // No store explains this.
    std::fs::write(flash, vec![1; 16 << 20]).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, EngineError::NotFlash { .. }), "{error}");
}

#[test]
fn a_tier_whose_device_has_become_smaller_is_refused_and_kept() {
    for layout in [FlashLayout::Slots, FlashLayout::Log] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path(), FIRST);
        config.flash.as_mut().unwrap().layout = Some(layout);
        let engine = Engine::open(&config, EngineOptions::default()).unwrap();
        perform(&engine, Op::Write, 0, 7);
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        // With a size in the configuration, the size of the device would be compared with that.
        config.flash.as_mut().unwrap().size = None;
        let path = directory.path().join("flash.img");
        let size = std::fs::metadata(&path).unwrap().len();
        let whole = std::fs::read(&path).unwrap();
        for less in [size / 2, size - (1 << 20)] {
            File::options().write(true).open(&path).unwrap().set_len(less).unwrap();
            let before = files(directory.path());
            let error = Engine::open(&config, EngineOptions::default()).unwrap_err();
            assert!(matches!(error, EngineError::FlashCut { .. }), "{layout} {less}: {error}");
            assert!(files(directory.path()) == before, "something was written");
        }
        std::fs::write(&path, whole).unwrap();
        let engine = Engine::open(&config, EngineOptions::default()).unwrap();
        assert_eq!(perform(&engine, Op::Read, 0, 0), 7);
    }
}

/// A format without a word about dirty data.
fn format_only(directory: &Path) -> Result<Engine, EngineError> {
    let options = EngineOptions { format: true, ..EngineOptions::default() };
    Engine::open(&config(directory, FIRST), options)
}

#[test]
fn a_format_does_not_discard_what_a_damaged_or_older_tier_does_not_show() {
    type Harm = fn(&Path, &Path);
    // Each makes less of the tier than there was, given an earlier copy of it.
    let harms: [(&str, Harm); 2] = [
        ("an older copy", |flash, earlier| {
            std::fs::copy(earlier, flash).unwrap();
        }),
        ("lost headers", |flash, _| {
            let mut bytes = std::fs::read(flash).unwrap();
            let headers = bytes.chunks_mut(4096).filter(|page| page.starts_with(b"FBATCH\r\n"));
            assert!(headers.map(|page| page.fill(0)).count() > 0);
            std::fs::write(flash, bytes).unwrap();
        }),
    ];
    for (harm, harm_it) in harms {
        for clean in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (flash, earlier) =
                (directory.path().join("flash.img"), directory.path().join("old"));
            let open = || Engine::open(&config(directory.path(), FIRST), EngineOptions::default());
            first_run(directory.path(), false);
            std::fs::copy(&flash, &earlier).unwrap();
            let engine = open().unwrap();
            for block in 0..16 {
                perform(&engine, Op::Write, block * 4096, 9);
            }
            let mode = if clean { StopMode::Destage } else { StopMode::Keep };
            engine.stop(mode, |_| {}).unwrap();
            harm_it(&flash, &earlier);
            match (clean, format_only(directory.path())) {
                // The stores say that they are complete.
                (true, Ok(engine)) => engine.kill(),
                (false, Err(EngineError::Uncounted { .. })) => {}
                (_, other) => panic!("{harm}, clean: {clean}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_volume_that_becomes_read_only_still_says_that_its_newest_data_is_on_flash() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), true);
    let mut config = config(directory.path(), FIRST);
    config.volume[0].read_only = true;
    let dirty = || inspect_backing(&directory.path().join("a.img")).unwrap().dirty;
    let engine = Engine::open(&config, EngineOptions::default()).unwrap();
    assert!(dirty());
    engine.stop(StopMode::Keep, |_| {}).unwrap();
    assert!(dirty());
    let engine = Engine::open(&config, EngineOptions::default()).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    assert!(!dirty());
}

/// Puts a byte into both copies of the header, whose checksums stay right.
fn bend_header(directory: &Path, place: usize, byte: u8) {
    let path = directory.join("a.img");
    let mut bytes = std::fs::read(&path).unwrap();
    for at in [0, 512 << 10] {
        let header = &mut bytes[at..at + 512];
        header[place] = byte;
        header[12..16].fill(0);
        let sum = crc32c::crc32c(header);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn an_intact_header_with_an_unknown_flag_is_given_up_only_with_what_may_be_dirty() {
    // As the header of the store, and as a header where the configured layout has none.
    for layout in ["offset", "tail"] {
        let directory = tempfile::tempdir().unwrap();
        first_run(directory.path(), false);
        bend_header(directory.path(), 11, 8);
        let store = directory.path().join("a.img");
        let open = |format, discard_dirty_data| {
            let options = EngineOptions { format, discard_dirty_data, ..EngineOptions::default() };
            Engine::open(&config(directory.path(), Setup { layout, ..FIRST }), options)
        };
        let before = std::fs::read(&store).unwrap();
        for format in [false, true] {
            let error = open(format, false).unwrap_err();
            let impossible = matches!(
                error,
                EngineError::Header { error: HeaderError::Impossible("set of flags"), .. }
            );
            assert!(impossible, "{layout}: {error}");
        }
        let error = release_backing(&store, None).unwrap_err();
        assert!(matches!(error, EngineError::NoStore { .. }), "{layout}: {error}");
        assert!(std::fs::read(&store).unwrap() == before, "{layout}: something was written");
        open(true, true).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
        assert!(!inspect_backing(&store).unwrap().dirty, "{layout}");
    }
}

#[test]
fn a_header_of_a_newer_version_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), false);
    bend_header(directory.path(), 8, 99);
    let error = format_only(directory.path()).unwrap_err();
    let newer =
        |e: &EngineError| matches!(e, EngineError::Header { error: HeaderError::Newer(99), .. });
    assert!(newer(&error), "{error}");
}

/// Set in a process that cannot start threads: the directory of the devices.
const WITHOUT_THREADS: &str = "FOREBAY_TEST_WITHOUT_THREADS";

/// Calls itself in a process of its own, where threads want stacks that no machine has.
#[test]
fn a_start_that_gets_no_thread_leaves_headers_and_times() {
    if let Some(directory) = std::env::var_os(WITHOUT_THREADS) {
        let started = Engine::open(&config(Path::new(&directory), FIRST), EngineOptions::default());
        let failed = matches!(started, Err(EngineError::System("start a thread", _)));
        assert!(failed, "{started:?}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    first_run(directory.path(), false);
    let store = directory.path().join("a.img");
    let found = || {
        let header = *inspect_backing(&store).unwrap().state;
        let modified = store.metadata().unwrap().modified().unwrap();
        (header.update, HeaderFields { update: 0, ..header }, modified)
    };
    let before = found();
    let starved = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "changed::a_start_that_gets_no_thread_leaves_headers_and_times"])
        .env(WITHOUT_THREADS, directory.path())
        .env("RUST_MIN_STACK", (1_u64 << 50).to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&starved.stdout);
    assert!(starved.status.success() && said.contains("1 passed"), "{said}");
    let (update, header, modified) = found();
    assert_eq!(update, before.0 + 2, "the start was announced, and taken back");
    assert_eq!((header, modified), (before.1, before.2));
}

#[test]
fn a_volume_made_smaller_and_larger_again_has_what_its_store_has() {
    for layout in ["log", "slots"] {
        let directory = tempfile::tempdir().unwrap();
        let large = Setup { tier: layout, ..FIRST };
        let open = |setup| Engine::open(&config(directory.path(), setup), EngineOptions::default());
        let engine = open(large).unwrap();
        perform(&engine, Op::Write, LAST, 7);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        // The record is clean, and a kill leaves no seal.
        open(large).unwrap().kill();
        open(Setup { size: "2MiB", ..large }).unwrap().kill();
        let store = File::options().write(true).open(directory.path().join("a.img")).unwrap();
        store.write_all_at(&[8; 4096], (1 << 20) + LAST).unwrap();
        let engine = open(large).unwrap();
        assert_eq!(perform(&engine, Op::Read, LAST, 0), 8, "layout {layout}");
        engine.kill();
    }
}

#[test]
fn only_the_first_write_of_the_tier_that_the_stores_await_counts_as_torn() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // A store that awaits its tier.
    let engine = Engine::open(&config(directory.path(), FIRST), EngineOptions::default()).unwrap();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    let mut store = std::fs::read(path("a.img")).unwrap();
    for at in [0, 512 << 10] {
        let header = &mut store[at..at + 512];
        assert_eq!(header[64], 1, "the first epoch");
        header[11] = 2;
        header[12..16].fill(0);
        let sum = crc32c::crc32c(header);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    let mut named = std::fs::read(path("flash.img")).unwrap()[..512].to_vec();
    named[200] ^= 1;
    let mut other = named.clone();
    other[24] ^= 1;
    type Pieces<'a> = &'a [(usize, &'a [u8])];
    let cases: [(&str, Pieces<'_>, bool, bool); 7] = [
        ("its first page, torn", &[(0, &named)], false, true),
        ("all but its first sector", &[(512, &[7; 512])], false, true),
        ("another tier", &[(0, &other)], false, false),
        ("another tier, and a format", &[(0, &other)], true, false),
        ("garbage where a format writes first", &[(0, b"?")], false, true),
        ("data behind what a format writes first", &[(512, &[7]), (4096, b"mine")], false, false),
        ("a format over other data", &[(0, &named), (1 << 20, b"old")], true, true),
    ];
    for (what, pieces, format, accepted) in cases {
        std::fs::write(path("a.img"), &store).unwrap();
        let mut flash = vec![0; 16 << 20];
        for &(at, bytes) in pieces {
            flash[at..at + bytes.len()].copy_from_slice(bytes);
        }
        std::fs::write(path("flash.img"), flash).unwrap();
        let options = EngineOptions { format, ..EngineOptions::default() };
        let started = Engine::open(&config(directory.path(), FIRST), options);
        assert_eq!(started.is_ok(), accepted, "{what}: {started:?}");
        started.into_iter().for_each(Engine::kill);
    }
}

#[test]
fn a_store_within_the_volume_of_another_is_not_released_in_its_place() {
    for (outer, inner) in [("tail", "offset"), ("offset", "tail")] {
        let [directory, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let run = |directory: &Path, layout, size| {
            let setup = Setup { layout, size, flash: None, ..FIRST };
            let engine = Engine::open(&config(directory, setup), EngineOptions::default());
            engine.unwrap().stop(StopMode::Destage, |_| {}).unwrap();
            directory.join("a.img")
        };
        // The inner store fills the outer volume.
        let (store, within) =
            (run(directory.path(), outer, "5MiB"), run(other.path(), inner, "4MiB"));
        let data_at = if outer == "offset" { 1 << 20 } else { 0 };
        let file = File::options().write(true).open(&store).unwrap();
        file.write_all_at(&std::fs::read(within).unwrap(), data_at).unwrap();
        let before = std::fs::read(&store).unwrap();
        for error in
            [inspect_backing(&store).unwrap_err(), release_backing(&store, None).unwrap_err()]
        {
            assert!(matches!(error, EngineError::TwoHeaders { .. }), "{error}");
        }
        assert!(std::fs::read(&store).unwrap() == before, "{outer}: refused, but written to");
        let layout = if outer == "tail" { BackingLayout::Tail } else { BackingLayout::Offset };
        let header = release_backing(&store, Some(layout)).unwrap();
        assert!(header.released && header.layout == layout);
        let (data, after) = (data_at as usize, std::fs::read(&store).unwrap());
        assert!(after[data..data + (5 << 20)] == before[data..data + (5 << 20)], "{outer}");
    }
}
