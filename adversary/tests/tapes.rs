//! Runs that once failed, each kept as a tape and named after the bug that has since been mended.
//! Without the bug, a tape passes. With the bug put back in, it fails. A tape that passes with its bug shows
//! nothing any more and must be recorded again:
//!
//! ```text
//! cargo run -p forebay-adversary -- seed KIND+BUG SEED --shrink FILE
//! ```

use std::path::PathBuf;

use forebay_adversary::kind::Kind;
use forebay_adversary::tape::{Playback, Tape};
use forebay_flash::sabotage::Sabotage;

fn tapes() -> Vec<(String, Tape)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tapes");
    let mut tapes: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of tapes")
        .map(|file| {
            let path = file.expect("a tape").path();
            let text = std::fs::read_to_string(&path).expect("a text");
            (path.display().to_string(), Tape::decode(&text).expect("a tape"))
        })
        .collect();
    tapes.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(tapes.len() >= 2, "the tapes are gone");
    tapes
}

#[test]
fn what_once_failed_passes() {
    for (path, tape) in tapes() {
        let (name, _) = tape.kind.split_once('+').expect("a kind and the bug that it had");
        let kind = Kind::find(name).expect("a kind of run");
        let ended = kind.play(&mut Playback::new(&tape.choices));
        assert!(ended.is_ok(), "{path}: {}", ended.unwrap_err());
    }
}

#[test]
fn with_its_bug_put_back_in_every_tape_fails_as_it_did() {
    if !Sabotage::POSSIBLE {
        println!("skipped: a release build cannot have bugs");
        return;
    }
    // (The fields of the states that follow may change.)
    let is_of_sort = |c: &char| !c.is_ascii_digit() && *c != '{';
    let sort = |how: &str| how.chars().take_while(is_of_sort).collect::<String>();
    for (path, tape) in tapes() {
        let kind = Kind::find(&tape.kind).expect("a kind and a bug");
        let ended = kind.play(&mut Playback::new(&tape.choices));
        let how = ended.expect_err(&format!("{path} passes with its bug: record it again"));
        assert!(how.starts_with(&sort(&tape.failure)), "{path}: {how}");
    }
}
