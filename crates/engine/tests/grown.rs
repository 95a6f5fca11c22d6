//! A store with the layout `tail` whose end moves between two runs: its header is found where the end
//! was, or the start is refused and says what to do; nothing is ever served as a new store that is none.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{
    Engine, EngineError, EngineOptions, StopMode, Submission, inspect_backing, release_backing,
};

use crate::common;

const MIB: u64 = 1 << 20;

struct Case {
    directory: tempfile::TempDir,
    flash: bool,
    size: Option<&'static str>,
}

impl Case {
    fn new(flash: bool, size: Option<&'static str>) -> Case {
        Case { directory: tempfile::tempdir().unwrap(), flash, size }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("a.img")
    }

    fn open(&self, options: EngineOptions) -> Result<Engine, EngineError> {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let flash = match self.flash {
            true => {
                format!("[flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\n", path("flash.img"))
            }
            false => String::new(),
        };
        let size = self.size.map(|size| format!("size = '{size}'\n")).unwrap_or_default();
        let text = format!(
            "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n{flash}\
             [[volume]]\nname = 'a'\nlayout = 'tail'\nbacking = '{}'\n{size}",
            path("a.img")
        );
        Engine::open(&Config::from_toml(&text).unwrap(), options)
    }

    fn resize(&self, bytes: u64) {
        File::options().write(true).open(self.store()).unwrap().set_len(bytes).unwrap();
    }

    /// A first run, on a file of `bytes`, that writes to the first block.
    fn run(&self, bytes: u64, dirty: bool) {
        if !self.store().exists() {
            File::create(self.store()).unwrap().set_len(bytes).unwrap();
        }
        let engine = self.open(EngineOptions::default()).unwrap();
        assert_eq!(perform(&engine, Op::Write, 7), 7);
        if dirty { engine.kill() } else { engine.stop(StopMode::Destage, |_| {}).unwrap() }
    }

    /// Must be refused, and change no byte of the store.
    fn refused(&self, options: EngineOptions) -> EngineError {
        let before = std::fs::read(self.store()).unwrap();
        let error = self.open(options).unwrap_err();
        assert!(std::fs::read(self.store()).unwrap() == before, "{error}: but it was written to");
        error
    }
}

fn perform(engine: &Engine, op: Op, byte: u8) -> u8 {
    let request = Submission::new(1, Volume(0), op, 0, 4096, None);
    common::perform(engine, request.with_flags(Flags::FUA), byte)
}

fn format() -> EngineOptions {
    EngineOptions { format: true, ..EngineOptions::default() }
}

fn headers(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks(4096).filter(|block| block.starts_with(b"FOREBACK")).count()
}

#[test]
fn a_store_that_grew_is_refused_and_goes_on_when_it_is_as_long_as_it_was() {
    // By less than the header's place, by half of it (where a copy seems to be the other one), by more.
    for by in [4096, MIB / 2, MIB, 5 * MIB] {
        for (flash, dirty) in [(false, false), (true, false), (true, true)] {
            let case = Case::new(flash, None);
            case.run(8 * MIB, dirty);
            case.resize(8 * MIB + by);
            let error = case.refused(EngineOptions::default());
            let text = error.to_string();
            let EngineError::Grown { at, was, is, dirty: said, .. } = error else {
                panic!("{by}: {text}")
            };
            assert_eq!((at, was, is, said), (7 * MIB, 8 * MIB, 8 * MIB + by, dirty), "{text}");
            let outside = inspect_backing(&case.store()).unwrap_err().to_string();
            assert!(outside.contains("at byte 7340032"), "{outside}");
            assert!(release_backing(&case.store(), None).is_err());
            case.resize(8 * MIB);
            let engine = case.open(EngineOptions::default()).unwrap();
            assert_eq!(perform(&engine, Op::Read, 0), 7);
            engine.kill();
        }
    }
}

#[test]
fn a_clean_store_that_grew_goes_on_with_its_new_size_when_the_user_says_so() {
    for by in [4096, MIB / 2, 5 * MIB] {
        for flash in [false, true] {
            let case = Case::new(flash, None);
            case.run(8 * MIB, false);
            case.resize(8 * MIB + by);
            let engine = case.open(format()).unwrap();
            assert_eq!(engine.volumes()[0].size_bytes, 7 * MIB + by);
            assert_eq!(perform(&engine, Op::Read, 0), 7);
            engine.stop(StopMode::Destage, |_| {}).unwrap();
            // The former header would be found again if the store shrank.
            let header = inspect_backing(&case.store()).unwrap();
            assert_eq!((header.dirty, header.data_bytes), (false, 7 * MIB + by));
            assert!((1..=2).contains(&headers(&case.store())));
            let engine = case.open(EngineOptions::default()).unwrap();
            assert_eq!(perform(&engine, Op::Read, 0), 7);
            engine.stop(StopMode::Destage, |_| {}).unwrap();
        }
    }
}

#[test]
fn a_store_that_grew_with_newer_data_elsewhere_is_not_formatted_unless_they_are_given_up() {
    let case = Case::new(true, None);
    case.run(8 * MIB, true);
    case.resize(12 * MIB);
    let error = case.refused(format());
    assert!(matches!(error, EngineError::Grown { dirty: true, .. }), "{error}");
    assert!(error.to_string().contains("a flash tier may hold newer data"), "{error}");
    let options = EngineOptions { discard_dirty_data: true, ..format() };
    let engine = case.open(options).unwrap();
    assert_eq!(perform(&engine, Op::Read, 9), 0, "what was on flash is given up");
}

#[test]
fn a_store_of_a_configured_size_finds_its_former_header_too() {
    let case = Case::new(false, Some("4MiB"));
    case.run(8 * MIB, false);
    case.resize(9 * MIB);
    let error = case.refused(EngineOptions::default());
    assert!(matches!(error, EngineError::Grown { at, .. } if at == 7 * MIB), "{error}");
}

#[test]
fn a_store_with_data_and_without_a_header_is_taken_only_when_the_user_says_so() {
    // A disk that Forebay has never had, and one that was cut short.
    for cut in [false, true] {
        let case = Case::new(false, None);
        if cut {
            case.run(8 * MIB, false);
            case.resize(6 * MIB);
        } else {
            let file = File::create(case.store()).unwrap();
            file.set_len(6 * MIB).unwrap();
            file.write_all_at(&[7; 4096], 0).unwrap();
        }
        let error = case.refused(EngineOptions::default());
        assert!(matches!(error, EngineError::NoTail { .. }), "{error}");
        let engine = case.open(format()).unwrap();
        assert_eq!(perform(&engine, Op::Read, 0), 7);
        engine.stop(StopMode::Destage, |_| {}).unwrap();
        case.open(EngineOptions::default()).unwrap().kill();
    }
}

#[test]
fn a_store_without_data_needs_no_word_and_one_within_another_is_none() {
    let case = Case::new(false, None);
    let file = File::create(case.store()).unwrap();
    // Zeroes that were written are none the less zeroes.
    file.set_len(6 * MIB).unwrap();
    file.write_all_at(&vec![0; MIB as usize], 2 * MIB).unwrap();
    case.open(EngineOptions::default()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();

    // A disk that holds a copy of a store, header and all, is not that store.
    let outer = Case::new(false, None);
    let copy = std::fs::read(case.store()).unwrap();
    let file = File::create(outer.store()).unwrap();
    file.set_len(12 * MIB).unwrap();
    file.write_all_at(&copy, 3 * MIB).unwrap();
    let error = outer.refused(EngineOptions::default());
    assert!(matches!(error, EngineError::NoTail { .. }), "{error}");
    outer.open(format()).unwrap().stop(StopMode::Destage, |_| {}).unwrap();
    let after = std::fs::read(outer.store()).unwrap();
    assert!(after[3 * MIB as usize..9 * MIB as usize] == copy, "the copy is data, and stays");
}
