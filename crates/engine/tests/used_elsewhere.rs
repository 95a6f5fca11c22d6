//! Stores that were used without Forebay between two runs: what they hold now is served, or the
//! start is refused by name; and stores that were left alone are taken for what they are.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_device::{DeviceError, Verb};
use forebay_effect::Device;
use forebay_engine::watch::{Operation, Part, Watch};
use forebay_engine::{
    Engine, EngineError, EngineNotice, EngineOptions, Reported, StopMode, Submission,
    inspect_backing, is_as_left, release_backing,
};
use forebay_flash::Older;

use crate::common;

const BLOCK: u64 = 4096;
/// A volume large enough that most of it is not looked at.
const BLOCKS: u64 = 16384;
const LAYOUTS: [&str; 3] = ["offset", "tail", "none"];

/// A cache of one volume, in a directory of its own.
struct Bench {
    directory: tempfile::TempDir,
    layout: &'static str,
    policy: &'static str,
}

impl Bench {
    fn new(layout: &'static str, policy: &'static str) -> Bench {
        Bench { directory: tempfile::tempdir().unwrap(), layout, policy }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> Config {
        self.config_of(&self.path("store"), Some(&self.path("flash")))
    }

    fn config_of(&self, store: &Path, flash: Option<&Path>) -> Config {
        let flash =
            flash.map(|path| format!("[flash]\npath = {path:?}\nsize = '16MiB'\nlayout = 'log'\n"));
        let text = format!(
            "[cache]\ndram = '1MiB'\nwrite_policy = '{}'\n{}[[volume]]\nname = 'a'\nbacking = \
             {store:?}\nsize = '{}'\nlayout = '{}'\n",
            self.policy,
            flash.unwrap_or_default(),
            BLOCKS * BLOCK,
            self.layout,
        );
        Config::from_toml(&text).unwrap()
    }

    /// Opens with a store whose next sync fails, once that is asked for.
    fn open_to_fail_once(&self) -> (Engine, Arc<FailOnce>) {
        let fail = Arc::new(FailOnce::default());
        let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
        (Engine::open(&self.config(), options).unwrap(), fail)
    }

    fn try_open(&self) -> Result<Engine, EngineError> {
        Engine::open(&self.config(), EngineOptions::default())
    }

    fn open(&self) -> Engine {
        self.try_open().unwrap()
    }

    /// Opens, and says whether the store was found to have been used without Forebay.
    fn reopen(&self) -> (Engine, bool) {
        let engine = self.open();
        let changed = engine.notices().iter().any(|n| matches!(n, EngineNotice::Changed { .. }));
        (engine, changed)
    }

    /// The first byte of a block of the store.
    fn stored(&self, block: u64) -> u8 {
        let start = if self.layout == "offset" { 1 << 20 } else { 0 };
        let mut byte = [0];
        let file = File::open(self.path("store")).unwrap();
        file.read_exact_at(&mut byte, start + block * BLOCK).unwrap();
        byte[0]
    }

    /// Writes to the store, past the cache; then the file is as old as it was, if `secretly`.
    fn tamper(&self, block: u64, byte: u8, secretly: bool) {
        let file = File::options().read(true).write(true).open(self.path("store")).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        let start = if self.layout == "offset" { 1 << 20 } else { 0 };
        file.write_all_at(&[byte; BLOCK as usize], start + block * BLOCK).unwrap();
        if secretly {
            file.set_modified(modified).unwrap();
        }
    }
}

/// Fails one sync of the data of a store after it was switched on, and switches itself off.
#[derive(Debug, Default)]
struct FailOnce(AtomicBool);

impl Watch for FailOnce {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        let is_sync = matches!(operation.device, Device::Backing(_))
            && (operation.part, operation.verb) == (Part::Data, Verb::Sync);
        let fails = is_sync && self.0.swap(false, Ordering::Relaxed);
        if fails { Err(DeviceError::Gone) } else { Ok(0) }
    }

    fn end(&self, _: u64, _: bool) {}
}

fn perform(engine: &Engine, op: Op, block: u64, byte: u8) -> u8 {
    let flags = if op == Op::Write { Flags::FUA } else { Flags::NONE };
    let request = Submission::new(1, Volume(0), op, block * BLOCK, BLOCK, None);
    common::perform(engine, request.with_flags(flags), byte)
}

fn write(engine: &Engine, block: u64, byte: u8) {
    perform(engine, Op::Write, block, byte);
}

fn read(engine: &Engine, block: u64) -> u8 {
    perform(engine, Op::Read, block, 0xEE)
}

/// Fills more than memory takes, so that the flash tier holds most of it.
fn fill(engine: &Engine, byte: u8) {
    for block in 0..600 {
        write(engine, block, byte);
    }
}

#[test]
fn a_mount_in_a_partition_is_noticed() {
    for layout in LAYOUTS {
        let bench = Bench::new(layout, "write-back");
        bench.open().stop(StopMode::Destage, |_| {}).unwrap();
        // One partition, at 64 blocks behind 1 MiB: its superblock is not where one looks otherwise.
        let first = 256 + 64;
        let mut record = [0; BLOCK as usize];
        record[446 + 4] = 0x83;
        record[446 + 8..446 + 12].copy_from_slice(&(first as u32 * 8).to_le_bytes());
        record[510..512].copy_from_slice(&[0x55, 0xAA]);
        let file = File::options().write(true).open(bench.path("store")).unwrap();
        let start = if layout == "offset" { 1 << 20 } else { 0 };
        file.write_all_at(&record, start).unwrap();
        let engine = bench.open();
        (first..first + 600).for_each(|block| write(&engine, block, 1));
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        bench.tamper(first, 2, true);
        let (engine, changed) = bench.reopen();
        assert!(changed, "{layout}");
        assert_eq!([first, first + 599].map(|block| read(&engine, block)), [2, 1], "{layout}");
    }
}

#[test]
fn what_others_wrote_to_a_store_is_served_after_a_stop() {
    for layout in LAYOUTS {
        for policy in ["write-back", "write-through"] {
            for stop in [StopMode::Destage, StopMode::Release] {
                let bench = Bench::new(layout, policy);
                let engine = bench.open();
                fill(&engine, 1);
                engine.stop(stop, |_| {}).unwrap();
                let (engine, changed) = bench.reopen();
                // (Without a header the tier knows it already.)
                let released = stop == StopMode::Release && layout != "none";
                assert_eq!(changed, released, "{layout} {policy} {stop:?}");
                assert_eq!(read(&engine, 3), 1);
                engine.stop(stop, |_| {}).unwrap();

                // Where one looks; where the time of the file tells; where nothing tells.
                bench.tamper(0, 2, true);
                bench.tamper(500, 3, stop == StopMode::Release);
                let (engine, changed) = bench.reopen();
                assert!(changed || stop == StopMode::Release, "{layout} {policy}");
                let found = [0, 3, 500].map(|block| read(&engine, block));
                assert_eq!(found, [2, 1, 3], "{layout} {policy} {stop:?}");
                write(&engine, 500, 4);
                engine.kill();
                let (engine, changed) = bench.reopen();
                assert!(!changed, "that was known before");
                assert_eq!([0, 3, 500].map(|block| read(&engine, block)), [2, 1, 4]);
            }
        }
    }
}

#[test]
fn a_store_that_was_written_again_after_a_failed_sync_can_be_used_by_others_after_a_stop() {
    // The fingerprint covers the first of these blocks, and not the other.
    for (layout, block) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 500)]) {
        let bench = Bench::new(layout, "write-back");
        let (engine, fail) = bench.open_to_fail_once();
        write(&engine, 0, 1);
        engine.destage(|_| {}).unwrap();
        fail.0.store(true, Ordering::Relaxed);
        fill(&engine, 2);
        engine.destage(|_| {}).unwrap();
        assert!(!fail.0.load(Ordering::Relaxed), "no sync has failed");
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        if layout != "none" {
            assert!(!inspect_backing(&bench.path("store")).unwrap().dirty, "{layout}");
        }

        bench.tamper(block, 3, true);
        let (engine, changed) = bench.reopen();
        assert_eq!(changed, block == 0, "{layout}");
        if changed {
            assert_eq!(read(&engine, block), 3, "{layout}");
        }
        engine.destage(|_| {}).unwrap();
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        assert_eq!(bench.stored(block), 3, "{layout}: others' data was overwritten");
    }
}

#[test]
fn a_store_can_be_used_by_others_after_a_stop_that_had_nothing_to_keep() {
    for (layout, block) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 500)]) {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 2);
        engine.destage(|_| {}).unwrap();
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        if layout != "none" {
            assert!(!inspect_backing(&bench.path("store")).unwrap().dirty, "{layout}");
        }
        bench.tamper(block, 3, true);
        let (engine, changed) = bench.reopen();
        assert_eq!(changed, block == 0, "{layout}");
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        assert_eq!(bench.stored(block), 3, "{layout}: others' data was overwritten");
    }
}

#[test]
fn without_a_header_a_store_is_the_file_it_was_and_not_a_copy_of_it() {
    for stop in [StopMode::Keep, StopMode::Destage] {
        let bench = Bench::new("none", "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        engine.stop(stop, |_| {}).unwrap();
        // A copy under the name of the store, equal to the last byte.
        let (store, first) = (bench.path("store"), bench.path("first"));
        std::fs::rename(&store, &first).unwrap();
        std::fs::copy(&first, &store).unwrap();
        let (held, flash) =
            (std::fs::read(&store).unwrap(), std::fs::read(bench.path("flash")).unwrap());
        let refused = bench.try_open().unwrap_err();
        assert!(matches!(refused, EngineError::Bound { .. }), "{refused}");
        assert!(std::fs::read(&store).unwrap() == held, "the copy was written to");
        assert!(std::fs::read(bench.path("flash")).unwrap() == flash, "flash was written to");
        // The file itself is welcome, under any name.
        std::fs::remove_file(&store).unwrap();
        std::fs::rename(&first, &store).unwrap();
        let (engine, changed) = bench.reopen();
        assert!(!changed);
        assert_eq!([0, 5, 599].map(|block| read(&engine, block)), [1, 1, 1]);
    }
}

#[test]
fn dirty_data_for_a_store_that_others_wrote_are_refused_and_kept() {
    for layout in LAYOUTS {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        let (engine, changed) = bench.reopen();
        assert!(!changed, "{layout}");
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        std::fs::copy(bench.path("store"), bench.path("copy")).unwrap();
        let modified = std::fs::metadata(bench.path("store")).unwrap().modified().unwrap();
        bench.tamper(700, 7, false);
        bench.tamper(0, 8, false);
        for _ in 0..2 {
            let refused = bench.try_open().unwrap_err();
            assert!(matches!(refused, EngineError::Changed { blocks: 1.., .. }), "{refused}");
        }
        if layout != "none" {
            // (A refused start writes the header.) Put back as it was, it is welcome.
            let copy = std::fs::read(bench.path("copy")).unwrap();
            let file = File::options().write(true).open(bench.path("store")).unwrap();
            file.write_all_at(&copy, 0).unwrap();
            file.set_modified(modified).unwrap();
            let (engine, changed) = bench.reopen();
            assert!(!changed && read(&engine, 0) == 1, "{layout}");
            engine.stop(StopMode::Keep, |_| {}).unwrap();
            bench.tamper(700, 7, false);
            bench.tamper(0, 8, false);
        }
        let options = EngineOptions { drop_clean: true, ..EngineOptions::default() };
        let engine = Engine::open(&bench.config(), options).unwrap();
        assert_eq!([0, 5, 700].map(|block| read(&engine, block)), [1, 1, 7], "{layout}");
        engine.kill();
        let (engine, _) = bench.reopen();
        assert_eq!([0, 5, 700].map(|block| read(&engine, block)), [1, 1, 7], "{layout}");
    }
}

#[test]
fn a_start_that_drops_clean_data_says_how_much_is_dirty_and_can_be_abandoned() {
    let bench = Bench::new("offset", "write-back");
    let engine = bench.open();
    fill(&engine, 1);
    engine.stop(StopMode::Keep, |_| {}).unwrap();
    let options = || EngineOptions { drop_clean: true, ..EngineOptions::default() };
    // (The store is slow, so that the destage lasts until its progress is reported.)
    let slow = "[cache]\ndram = '1MiB'\n[shape.slow]\nwrite_latency = '1s'\n[[volume]]\nname = 'a'\nbacking = \
                '/x'\nsize = '64MiB'\nshape = 'slow'\n";
    let slow = Config::from_toml(slow).unwrap();
    let mut config = bench.config();
    config.shape = slow.shape;
    config.volume[0].shape = slow.volume[0].shape.clone();
    let mut told = 0;
    let started = Engine::open_watched(&config, options(), &mut |progress| {
        told = told.max(progress.destaging);
        if told > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(started, Err(EngineError::StartCut { formatted: false })), "{started:?}");
    assert!(told > 0);
    let engine = Engine::open(&bench.config(), options()).unwrap();
    assert!((0..600).all(|block| read(&engine, block) == 1));
}

#[test]
fn a_quiesce_without_end_can_have_any_limit() {
    let bench = Bench::new("offset", "write-back");
    let engine = bench.open();
    write(&engine, 0, 1);
    engine.quiesce(Some(Duration::MAX), |_| {}).unwrap();
    assert_eq!(engine.status().quiesced.unwrap().left_s, None);
    engine.resume().unwrap();
    assert_eq!(read(&engine, 0), 1);
}

#[test]
fn a_store_that_was_released_is_served_as_others_left_it() {
    for layout in ["offset", "tail"] {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        let in_use = release_backing(&bench.path("store"), None).unwrap_err();
        assert!(in_use.to_string().contains("in use"), "{in_use}");
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        let dirty = release_backing(&bench.path("store"), None).unwrap_err();
        assert!(matches!(dirty, EngineError::DirtyRelease { .. }), "{dirty}");
        bench.open().stop(StopMode::Destage, |_| {}).unwrap();
        let header = inspect_backing(&bench.path("store")).unwrap();
        assert_eq!(is_as_left(&bench.path("store"), &header).unwrap(), Some(true));
        release_backing(&bench.path("store"), None).unwrap();
        bench.tamper(500, 3, true);
        let (engine, changed) = bench.reopen();
        assert!(changed);
        let said: String = engine.notices().iter().map(ToString::to_string).collect();
        assert!(said.contains("was released") && !said.contains("was used without"), "{said}");
        assert_eq!([3, 500].map(|block| read(&engine, block)), [1, 3], "{layout}");
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        let (engine, changed) = bench.reopen();
        assert!(!changed, "a release is for once");
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        bench.tamper(0, 4, true);
        let header = inspect_backing(&bench.path("store")).unwrap();
        assert_eq!(is_as_left(&bench.path("store"), &header).unwrap(), Some(false));
    }
    let bench = Bench::new("none", "write-back");
    bench.open().stop(StopMode::Destage, |_| {}).unwrap();
    let none = release_backing(&bench.path("store"), None).unwrap_err();
    assert!(matches!(none, EngineError::NoHeaderToRelease { .. }), "{none}");
}

#[test]
fn a_copy_made_under_quiesce_is_served_alone_and_one_made_later_is_not() {
    for layout in ["offset", "tail"] {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        engine.quiesce(None, |_| {}).unwrap();
        assert!(!inspect_backing(&bench.path("store")).unwrap().dirty);
        std::fs::copy(bench.path("store"), bench.path("quiet")).unwrap();
        engine.resume().unwrap();
        assert!(inspect_backing(&bench.path("store")).unwrap().dirty);
        fill(&engine, 2);
        std::fs::copy(bench.path("store"), bench.path("busy")).unwrap();
        engine.stop(StopMode::Destage, |_| {}).unwrap();

        let alone = |store, flash: Option<&str>| {
            let flash = flash.map(|name| bench.path(name));
            let config = bench.config_of(&bench.path(store), flash.as_deref());
            Engine::open(&config, EngineOptions::default())
        };
        for flash in [None, Some("new flash")] {
            let engine = alone("quiet", flash).unwrap();
            assert!((0..600).all(|block| read(&engine, block) == 1), "{layout}");
            engine.stop(StopMode::Destage, |_| {}).unwrap();
            let refused = alone("busy", flash.map(|_| "another")).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains("has newer data on a flash tier"), "{refused}");
        }

        // The copy with the tier that has gone on since: the tier's clean contents are dropped.
        std::fs::rename(bench.path("quiet"), bench.path("older")).unwrap();
        let again = Bench::new(layout, "write-back");
        let engine = again.open();
        fill(&engine, 1);
        engine.quiesce(None, |_| {}).unwrap();
        std::fs::copy(again.path("store"), again.path("quiet")).unwrap();
        engine.resume().unwrap();
        fill(&engine, 2);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        std::fs::rename(again.path("quiet"), again.path("store")).unwrap();
        let engine = again.open();
        let older = |n: &EngineNotice| matches!(n, EngineNotice::Older { which: Older::Store, .. });
        assert!(engine.notices().iter().any(older), "{:?}", engine.notices());
        assert!((0..600).all(|block| read(&engine, block) == 1), "{layout}");
    }
}

#[test]
fn a_store_written_while_quiesced_is_noticed_and_can_be_taken_over_live() {
    for layout in LAYOUTS {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        engine.quiesce(None, |_| {}).unwrap();
        bench.tamper(0, 5, true);
        engine.kill();
        let (engine, changed) = bench.reopen();
        assert!(changed && read(&engine, 0) == 5 && read(&engine, 1) == 1, "{layout}");

        fill(&engine, 2);
        engine.quiesce(None, |_| {}).unwrap();
        bench.tamper(400, 6, true);
        bench.tamper(0, 6, true);
        engine.invalidate(&[Volume(0)]).unwrap();
        engine.resume().unwrap();
        assert_eq!([0, 1, 400].map(|block| read(&engine, block)), [6, 2, 6], "{layout}");
        engine.kill();
        let (engine, changed) = bench.reopen();
        assert!(!changed, "{layout}");
        assert_eq!([0, 1, 400].map(|block| read(&engine, block)), [6, 2, 6], "{layout}");

        // And without a quiesce: what is dirty goes first.
        write(&engine, 9, 9);
        bench.tamper(300, 7, true);
        engine.invalidate(&[Volume(0)]).unwrap();
        assert_eq!([1, 9, 300].map(|block| read(&engine, block)), [2, 9, 7], "{layout}");
        assert_eq!(engine.counters().volumes[0].dirty_blocks, 0);
    }
}

/// A store may be changed under a quiesce although nobody drops the cached data.
#[test]
fn what_others_wrote_during_a_quiesce_is_served_after_it() {
    for layout in LAYOUTS {
        for flash in [true, false] {
            let bench = Bench::new(layout, "write-back");
            let flash = flash.then(|| bench.path("flash"));
            let config = bench.config_of(&bench.path("store"), flash.as_deref());
            let engine = Engine::open(&config, EngineOptions::default()).unwrap();
            let mut reported = Reported::default();
            let mut news = || engine.faults(&mut reported);
            fill(&engine, 1);
            write(&engine, 3, 2);
            engine.quiesce(None, |_| {}).unwrap();
            engine.resume().unwrap();
            assert_eq!((news(), read(&engine, 3)), (Vec::new(), 2), "{layout}: nobody wrote");

            // The time of the file tells; its contents tell; both tell the second of two quiesces; and only the time
            // tells it, because block 400 is not part of the fingerprint.
            for (block, secretly, twice) in
                [(3, false, false), (0, true, false), (3, false, true), (400, false, true)]
            {
                engine.quiesce(None, |_| {}).unwrap();
                bench.tamper(block, 9, secretly);
                if twice {
                    engine.quiesce(None, |_| {}).unwrap();
                }
                engine.resume().unwrap();
                assert_eq!(read(&engine, block), 9, "{layout} {flash:?} {block}");
                let news = news();
                assert!(news.len() == 1 && news[0].to_string().contains("volumes: a;"), "{news:?}");
                write(&engine, 3, 2);
            }
            engine.kill();
        }
    }
}

#[test]
fn what_others_write_after_an_abandoned_start_is_noticed() {
    for layout in LAYOUTS {
        let bench = Bench::new(layout, "write-back");
        let engine = bench.open();
        fill(&engine, 1);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        for _ in 0..2 {
            let abandon = &mut |_: &_| ControlFlow::Break(());
            let started = Engine::open_watched(&bench.config(), EngineOptions::default(), abandon);
            assert!(
                matches!(
                    started,
                    Ok(_)
                        | Err(EngineError::StartEnded | EngineError::StartCut { formatted: false })
                ),
                "{started:?}"
            );
            started.into_iter().for_each(|engine| engine.stop(StopMode::Keep, |_| {}).unwrap());
        }
        let (engine, changed) = bench.reopen();
        assert!(!changed, "layout {layout}");
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        let abandon = &mut |_: &_| ControlFlow::Break(());
        let started = Engine::open_watched(&bench.config(), EngineOptions::default(), abandon);
        drop(started.map(|engine| engine.stop(StopMode::Keep, |_| {}).unwrap()));
        bench.tamper(500, 9, false);
        let (engine, changed) = bench.reopen();
        assert!(changed, "layout {layout}");
        assert_eq!(read(&engine, 500), 9, "layout {layout}");
        engine.kill();
    }
}

#[test]
fn what_others_write_to_one_store_after_a_start_was_refused_for_another_is_noticed() {
    for layout in LAYOUTS {
        let (one, other) = (Bench::new(layout, "write-back"), Bench::new(layout, "write-back"));
        let mut config = one.config();
        let mut second = other.config().volume.remove(0);
        second.name = "b".to_owned();
        config.volume.push(second);
        let open = || Engine::open(&config, EngineOptions::default());
        let of_other = |engine: &Engine, op, byte| {
            let request = Submission::new(1, Volume(1), op, 500 * BLOCK, BLOCK, None);
            common::perform(engine, request.with_flags(Flags::NONE), byte)
        };
        let engine = open().unwrap();
        of_other(&engine, Op::Write, 1);
        fill(&engine, 1);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        let engine = open().unwrap();
        write(&engine, 0, 2);
        engine.stop(StopMode::Keep, |_| {}).unwrap();
        // Others change the first store, for which flash has newer data, and put it back.
        let file = File::options().write(true).open(one.path("store")).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        let start = if layout == "offset" { 1 << 20 } else { 0 };
        one.tamper(0, 8, false);
        // (No sample of the contents shows the second change.)
        one.tamper(601, 8, false);
        for block in [0, 0, 601, 601] {
            if block == 601 {
                file.write_all_at(&[1; BLOCK as usize], start).unwrap();
            }
            let refused = open().unwrap_err();
            assert!(matches!(refused, EngineError::Changed { .. }), "{layout} {block}: {refused}");
        }
        file.write_all_at(&[1; BLOCK as usize], start).unwrap();
        file.set_modified(modified).unwrap();
        other.tamper(500, 9, false);
        let engine = open().unwrap();
        let changed = engine.notices().iter().filter_map(|notice| match notice {
            EngineNotice::Changed { volume, .. } => Some(volume.as_str()),
            _ => None,
        });
        assert_eq!(changed.collect::<Vec<_>>(), ["b"], "layout {layout}");
        assert_eq!(of_other(&engine, Op::Read, 0xEE), 9, "layout {layout}");
        assert_eq!(read(&engine, 0), 2, "layout {layout}");
        engine.kill();
    }
}
