//! Goal: no input makes a parser panic or break its guarantees, with the compiler that builds the
//! project. Method: run every corpus file through its target, unchanged and mutated: with bytes
//! changed, removed or repeated, or truncated. `cargo fuzz` searches further.

use std::fs;
use std::path::Path;

use forebay_engine::tape::replay;
use forebay_fuzz::TARGETS;
use forebay_fuzz::seeds::tape_config;

/// Number of mutations of each file.
const BENT: u64 = 1000;
/// Number of mutations of each large file, which takes its target longer.
const BENT_OF_LARGE: u64 = 100;
const LARGE_BYTES: usize = 16 << 10;

/// A small deterministic generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

fn bend(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bent = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bent.len());
        match random.below(5) {
            0 => bent.truncate(at),
            1 if !bent.is_empty() => bent[at] ^= 1 << random.below(8),
            2 if !bent.is_empty() => bent[at] = [0, 255, b'0', b'9', b'\n'][random.below(5)],
            3 => {
                let end = (at + random.below(16)).min(bent.len());
                bent.drain(at..end);
            }
            _ => {
                let end = (at + random.below(64)).min(bent.len());
                let again = bent[at..end].to_vec();
                bent.splice(at..at, again);
            }
        }
    }
    bent
}

#[test]
fn every_target_has_a_corpus_that_it_accepts_and_no_corpus_is_left_over() {
    for target in TARGETS {
        let files = fs::read_dir(target.corpus()).expect(target.name);
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        for (name, bytes) in (target.seeds)() {
            assert!((target.run)(&bytes), "{} refuses {name}", target.name);
            assert!(names.iter().any(|n| n == name.as_str()), "run `make corpora`: {name}");
        }
    }
    let corpora = fs::read_dir(TARGETS[0].corpus().parent().unwrap()).unwrap();
    for corpus in corpora {
        let name = corpus.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| name == target.name), "{name:?} is of no target");
    }
}

#[test]
fn every_target_has_a_binary_and_a_manifest_entry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let path = format!("fuzz_targets/{}.rs", target.name);
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{path}");
        let text = fs::read_to_string(root.join(&path)).expect(target.name);
        assert!(text.contains(&format!("targets::{}(", target.name)), "{path}");
    }
    assert_eq!(fs::read_dir(root.join("fuzz_targets")).unwrap().count(), TARGETS.len());
}

/// A tape as it is left when the recording server is killed.
#[test]
fn a_tape_that_is_cut_anywhere_is_an_error_or_a_shorter_run() {
    for (name, bytes) in forebay_fuzz::seeds::tape() {
        let config = || tape_config(bytes[0] == 1);
        let whole = replay(&bytes[1..], config()).expect(&name).records;
        let mut shorter = 0;
        for end in 1..bytes.len() {
            let played = replay(&bytes[1..end], config());
            shorter += u32::from(played.is_ok_and(|played| played.records < whole));
        }
        assert!(shorter > 0, "no cut is behind a record");
    }
}

/// A target that reads a tape of another version sees nothing but the version.
#[test]
fn the_tapes_of_the_corpus_are_of_this_version() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tape");
    for (name, flash) in [("run", false), ("flash", true)] {
        let bytes = fs::read(corpus.join(name)).unwrap();
        assert!(replay(&bytes[1..], tape_config(flash)).expect(name).records > 0);
    }
}

/// The state machine asserts that only operations in flight end.
#[test]
fn a_tape_on_which_a_sync_ends_twice_is_an_error_that_names_the_record() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tape");
    let bytes = fs::read(corpus.join("sync-ended-twice")).unwrap();
    let error = replay(&bytes[1..], tape_config(false)).unwrap_err();
    let fault = "the completion of an operation that is not in flight";
    assert_eq!(error.to_string(), format!("record 11 of the tape is damaged: {fault}"));
}

#[test]
fn files_of_the_corpora_do_no_harm_as_they_are_and_bent() {
    for target in TARGETS {
        for file in fs::read_dir(target.corpus()).expect(target.name) {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            (target.run)(&bytes);
            let mut random = Random(1);
            let count = if bytes.len() > LARGE_BYTES { BENT_OF_LARGE } else { BENT };
            for n in 0..count {
                let bent = bend(&bytes, &mut random);
                let run = std::panic::AssertUnwindSafe(|| (target.run)(&bent));
                if let Err(panic) = std::panic::catch_unwind(run) {
                    let kept = std::env::temp_dir().join(format!("forebay-fuzz-{}", target.name));
                    let _ = fs::write(&kept, &bent);
                    eprintln!("{} bent, number {n}; kept in {}", path.display(), kept.display());
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}
