//! A store that was put back as it was earlier in the run: completed from flash if that has all it lacks,
//! also if that is cut short; refused if not.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{
    Engine, EngineError, EngineNotice, EngineOptions, StopMode, Submission, inspect_backing,
};
use forebay_flash::Older;

use crate::common;

const BLOCK: u64 = 4096;
/// Blocks of a volume; the first of them are written.
const BLOCKS: u64 = 2048;
const WRITTEN: u64 = 64;
/// Where the data are on a store of the layout `offset`.
const DATA_AT: u64 = 1 << 20;

/// A cache of one volume, in a directory of its own.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self, shape: &str) -> Config {
        let (flash, store) = (self.path("flash"), self.path("store"));
        let text = format!(
            "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n[flush]\nstamp_every = '10ms'\n\
             [shape.slow]\nwrite_latency = '300ms'\n[flash]\npath = {flash:?}\nsize = '16MiB'\nlayout = 'log'\n\
             [[volume]]\nname = 'a'\nbacking = {store:?}\nsize = '{}'\nlayout = 'offset'\n{shape}",
            BLOCKS * BLOCK,
        );
        Config::from_toml(&text).unwrap()
    }

    fn open(&self) -> Result<Engine, EngineError> {
        Engine::open(&self.config(""), EngineOptions::default())
    }

    /// A run that ends by a kill, after which the store is as it was in the middle of it: the first granule
    /// of the written blocks was written three times, the others twice, `between` was done meanwhile.
    fn put_back(&self, between: impl FnOnce(&Engine)) {
        self.put_back_after(between, |_| {});
    }

    /// Like [`Bench::put_back`], with `last` done at the end and never destaged.
    fn put_back_after(&self, between: impl FnOnce(&Engine), last: impl FnOnce(&Engine)) {
        let engine = self.open().unwrap();
        write(&engine, BLOCK, 1);
        engine.destage(|_| {}).unwrap();
        stamped(&engine);
        std::fs::copy(self.path("store"), self.path("older")).unwrap();
        write(&engine, BLOCK, 2);
        engine.destage(|_| {}).unwrap();
        between(&engine);
        write(&engine, 512, 3);
        engine.destage(|_| {}).unwrap();
        stamped(&engine);
        last(&engine);
        engine.kill();
        std::fs::rename(self.path("store"), self.path("newer")).unwrap();
        std::fs::rename(self.path("older"), self.path("store")).unwrap();
    }

    /// The store has everything, without the flash tier.
    fn check_store(&self) {
        self.check_store_holds(3, 2);
    }

    /// The store has these values in the first granule of each written block and in the others.
    fn check_store_holds(&self, first: u8, others: u8) {
        let file = File::open(self.path("store")).unwrap();
        let mut block = [0; BLOCK as usize];
        for number in 0..WRITTEN {
            file.read_exact_at(&mut block, DATA_AT + number * BLOCK).unwrap();
            let right = block[..512].iter().all(|&b| b == first)
                && block[512..].iter().all(|&b| b == others);
            assert!(
                right,
                "block {number} begins with {}, and ends with {}",
                block[0], block[4095]
            );
        }
    }
}

/// Waits until all that has changed is in a stamp.
fn stamped(engine: &Engine) {
    let mut last = u64::MAX;
    while std::mem::replace(&mut last, engine.counters().cache.stamps) != last {
        sleep(Duration::from_millis(200));
    }
}

fn perform(engine: &Engine, op: Op, flags: Flags, offset: u64, length: u64, byte: u8) {
    let request = Submission::new(1, Volume(0), op, offset, length, None);
    common::perform(engine, request.with_flags(flags), byte);
}

/// Writes the first bytes of each block.
fn write(engine: &Engine, bytes: u64, value: u8) {
    for block in 0..WRITTEN {
        perform(engine, Op::Write, Flags::FUA, block * BLOCK, bytes, value);
    }
}

/// How many blocks a start says it has written to the older store.
fn completed(engine: &Engine) -> Option<u64> {
    engine.notices().iter().find_map(|notice| match notice {
        EngineNotice::Completed { volume, blocks, .. } if volume == "a" => Some(*blocks),
        _ => None,
    })
}

#[test]
fn an_older_store_is_completed_from_flash() {
    let bench = Bench::new();
    bench.put_back(|_| {});
    let engine = bench.open().unwrap();
    assert_eq!(completed(&engine), Some(WRITTEN));
    engine.kill();
    bench.check_store();
    let engine = bench.open().unwrap();
    assert_eq!(completed(&engine), None, "it is the newest now");
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    bench.check_store();
}

#[test]
fn a_completion_that_is_cut_short_is_done_again() {
    let bench = Bench::new();
    bench.put_back(|_| {});
    let says = || inspect_backing(&bench.path("store")).map(|h| (h.stamp_number, h.stamp.complete));
    let copy = says().unwrap();
    for _ in 0..3 {
        let mut told = 0;
        let slow = bench.config("shape = 'slow'\n");
        let started = Engine::open_watched(&slow, EngineOptions::default(), &mut |progress| {
            told = progress.completing;
            if told > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(started, Err(EngineError::StartCut { formatted: false })), "{started:?}");
        assert_eq!(told, WRITTEN);
        assert_eq!(says().unwrap(), copy, "stamps of the completion make it look newer");
    }
    // The tier has begun epochs without the newer copy.
    std::fs::rename(bench.path("store"), bench.path("older")).unwrap();
    std::fs::rename(bench.path("newer"), bench.path("store")).unwrap();
    assert!(matches!(bench.open(), Err(EngineError::Epoch { .. })));
    // The older one may be moved to a device that works.
    std::fs::copy(bench.path("older"), bench.path("store")).unwrap();
    let engine = bench.open().unwrap();
    assert_eq!(completed(&engine), Some(WRITTEN));
    engine.kill();
    bench.check_store();
}

#[test]
fn an_older_store_that_lacks_a_trim_is_refused_and_the_newer_one_is_welcome() {
    let bench = Bench::new();
    let uncached = (BLOCKS / 2 * BLOCK, BLOCK);
    bench.put_back(|engine| {
        perform(engine, Op::Trim, Flags::NONE, uncached.0, uncached.1, 0);
    });
    for _ in 0..2 {
        match bench.open() {
            Err(EngineError::OlderStore { volume, .. }) => assert_eq!(volume, "a"),
            other => panic!("{other:?}"),
        }
    }
    std::fs::rename(bench.path("newer"), bench.path("store")).unwrap();
    let engine = bench.open().unwrap();
    let older = |n: &EngineNotice| matches!(n, EngineNotice::Older { which: Older::Store, .. });
    assert!(completed(&engine).is_none() && !engine.notices().iter().any(older));
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    bench.check_store();
}

/// Starts that accept an older store are ended while they destage to it: the store stays older, however
/// often. What was destaged before the last run's end is not on it, and clean data on flash must not make up
/// for some of that.
#[test]
fn an_accepted_older_store_stays_older_until_clean_data_is_dropped() {
    let bench = Bench::new();
    let trim = |engine: &Engine| {
        perform(engine, Op::Trim, Flags::NONE, BLOCKS / 2 * BLOCK, BLOCK, 0);
    };
    bench.put_back_after(trim, |engine| write(engine, 512, 4));
    let refused = || matches!(bench.open(), Err(EngineError::OlderStore { .. }));
    assert!(refused());
    let says = || inspect_backing(&bench.path("store")).map(|h| (h.stamp_number, h.stamp.complete));
    let copy = says().unwrap();
    for _ in 0..3 {
        let mut told = 0;
        let slow = bench.config("shape = 'slow'\n");
        let started = Engine::open_watched(&slow, drops_clean(), &mut |progress| {
            told += u32::from(progress.destaging > 0);
            if told > 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(started, Err(EngineError::StartCut { formatted: false })), "{started:?}");
        assert_eq!(says().unwrap(), copy, "the stamps of the start make it look newer");
        assert!(refused());
    }
    Engine::open(&bench.config(""), drops_clean()).unwrap().kill();
    bench.check_store_holds(4, 1);
    let engine = bench.open().unwrap();
    assert_eq!(completed(&engine), None, "it is the newest now");
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    bench.check_store_holds(4, 1);
}

fn drops_clean() -> EngineOptions {
    EngineOptions { drop_clean: true, ..EngineOptions::default() }
}

#[test]
fn an_older_store_from_behind_a_trim_is_completed() {
    let bench = Bench::new();
    let engine = bench.open().unwrap();
    perform(&engine, Op::Trim, Flags::FUA, BLOCKS / 2 * BLOCK, BLOCK, 0);
    stamped(&engine);
    engine.kill();
    bench.put_back(|_| {});
    assert_eq!(completed(&bench.open().unwrap()), Some(WRITTEN));
    bench.check_store();
}
