//! Goal: `forebay flash check` says what damage means, in output of readable length. Method: a tier
//! with corrupted blocks.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, StopMode, Submission};

const BLOCK: usize = 4096;
const CLEAN: u8 = 0xC1;
const DIRTY: u8 = 0xD1;

/// Writes `count` blocks filled with `byte`, starting at block `first`.
fn write(config: &Config, first: u64, count: u64, byte: u8, stop: StopMode) {
    write_blocks(config, first..first + count, byte, stop);
}

fn write_blocks(config: &Config, blocks: impl Iterator<Item = u64>, byte: u8, stop: StopMode) {
    let engine = Engine::open(config, EngineOptions::default()).unwrap();
    let mut session = engine.session().unwrap();
    for block in blocks {
        let mut buffer = session.buffer(BLOCK);
        buffer.fill(byte);
        let (volume, flags, length) = (Volume(0), Flags::NONE, BLOCK as u64);
        let (offset, buffer) = (block * length, Some(buffer));
        let request =
            Submission { tag: block, volume, op: Op::Write, flags, offset, length, buffer };
        let (mut requests, mut done) = (vec![request], Vec::new());
        session.submit(&mut requests, &mut done);
        while done.is_empty() {
            session.wait(None, &mut done);
        }
        assert_eq!(done[0].result, Ok(()));
    }
    drop(session);
    engine.stop(stop, |_| {}).unwrap();
}

/// Changes a byte of each page that is filled with `byte`; returns the number of pages.
fn spoil(path: &Path, byte: u8) -> u64 {
    let mut bytes = std::fs::read(path).unwrap();
    let pages = bytes.chunks_exact_mut(BLOCK).filter(|page| page.iter().all(|b| *b == byte));
    let count = pages.map(|page| page[100] ^= 1).count();
    std::fs::write(path, bytes).unwrap();
    count as u64
}

fn check(directory: &Path, more: &[&str]) -> (Output, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let output = command
        .current_dir(directory)
        .args(["flash", "check", "flash.img"])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

#[test]
fn a_check_tells_dirty_blocks_that_are_lost_from_clean_ones_in_few_words() {
    for layout in ["log", "slots"] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let config = Config::from_toml(&format!(
            "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
             [flash]\npath = '{}'\nsize = '16MiB'\nlayout = '{layout}'\n\
             [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n",
            path("flash.img"),
            path("a.img")
        ))
        .unwrap();
        write(&config, 0, 20, CLEAN, StopMode::Destage);
        write(&config, 100, 30, DIRTY, StopMode::Keep);
        let (output, stdout, _) = check(directory.path(), &[]);
        assert!(output.status.success(), "{layout}: nothing is wrong yet");
        assert!(stdout.contains("damage        none"), "{layout}: {stdout}");

        let flash = directory.path().join("flash.img");
        assert_eq!((spoil(&flash, CLEAN), spoil(&flash, DIRTY)), (20, 30), "{layout}");
        let (output, stdout, stderr) = check(directory.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{layout}");
        let counts = "50 unreadable blocks, 30 of them dirty and lost, 20 clean";
        assert!(stdout.contains(counts) && stderr.contains(counts), "{layout}: {stdout}{stderr}");
        assert_eq!(stdout.lines().filter(|l| l.starts_with("error ")).count(), 10, "{stdout}");
        assert!(stdout.contains("and 40 more"), "{layout}: {stdout}");
        assert!(stderr.len() < 500, "{layout}: {stderr}");

        let (output, stdout, _) = check(directory.path(), &["--json"]);
        assert_eq!(output.status.code(), Some(1), "{layout}");
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let errors = report["errors"].as_array().unwrap();
        let blocks = |state: &str| {
            let of = errors.iter().filter(|e| e["kind"] == "block" && e["state"] == state);
            let mut blocks: Vec<_> = of.map(|e| e["block"].as_u64().unwrap()).collect();
            blocks.sort_unstable();
            blocks
        };
        assert_eq!(blocks("clean"), (0..20).collect::<Vec<_>>(), "{layout}");
        assert_eq!(blocks("dirty"), (100..130).collect::<Vec<_>>(), "{layout}");
        assert_eq!(errors.len(), 50, "{layout}");
    }
}

/// Commands do not offer outputs for which they have no rows or charts.
#[test]
fn looking_at_a_device_offers_no_rows_and_no_pictures() {
    for (group, commands) in
        [("flash", ["info", "check", "recover"]), ("backing", ["info", "release", "recover"])]
    {
        for command in commands {
            let run = |more: &[&str]| {
                let mut run = Command::new(env!("CARGO_BIN_EXE_forebay"));
                run.args([group, command]).args(more).output().unwrap()
            };
            let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
            assert!(help.contains("--json") && help.contains("--output"), "{help}");
            for option in ["--parquet", "--html"] {
                assert!(!help.contains(option), "{group} {command}: {help}");
                let output = run(&["x.img", option, "y"]);
                assert_eq!(output.status.code(), Some(2), "{group} {command} {option}");
            }
        }
    }
}

/// A command that only inspects does not advise users to overwrite the file.
#[test]
fn a_file_with_other_data_is_told_so_without_a_way_to_destroy_it() {
    let dir = tempfile::tempdir().unwrap();
    let junk = dir.path().join("junk.img");
    std::fs::write(&junk, vec![7; 1 << 20]).unwrap();
    for command in ["info", "check"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = run.args(["flash", command]).arg(&junk).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("junk.img is not a Forebay flash tier: it holds other data"),
            "{said}"
        );
        assert!(!said.contains("--format"), "{said}");
    }
}

#[test]
fn a_flash_tier_that_is_not_there_is_not_said_to_be_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let config = at("sv.toml");
    std::fs::write(&config, "[flash]\npath = 'flash.img'\nsize = '64MiB'\n").unwrap();
    let recover = |device: &str| {
        let output = crate::common::forebay(&["flash", "recover", device, "--config", &config]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = recover(&at("missing.img"));
    assert!(said.contains("cannot open") && said.contains("No such file"), "{said}");
    assert_eq!(status, Some(1));
    let (status, said) = recover(&config);
    assert!(said.contains("is not the flash tier of"), "{said}");
    assert_eq!(status, Some(2));
}

/// In a store with layout = "none", the place of the header holds client data, or nothing yet.
#[test]
fn the_inspection_of_a_store_without_a_header_says_where_to_see_what_is_dirty() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [("data.img", 0xA5), ("blank.img", 0)] {
        let store = directory.path().join(name);
        std::fs::write(&store, vec![content; 4 << 20]).unwrap();
        for command in ["info", "recover"] {
            let output = crate::common::forebay(&["backing", command, store.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("no Forebay header") && !said.contains("damaged"), "{said}");
            for part in ["layout = \"none\"", "`forebay flash info`"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }
}

/// Method: a store so slow that destaging takes half a minute; the signal arrives while it
/// destages.
#[test]
fn a_recovery_that_is_interrupted_leaves_the_rest_on_flash() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let text = |shape: &str| {
        format!(
            "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
             [flash]\npath = '{}'\nsize = '16MiB'\n\
             [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n{shape}",
            path("flash.img"),
            path("a.img")
        )
    };
    let config = Config::from_toml(&text("")).unwrap();
    // The blocks are not adjacent, so each needs its own write.
    write_blocks(&config, (0..300).map(|n| n * 3), DIRTY, StopMode::Keep);
    let slow = text("shape = 'slow'\n[shape.slow]\nwrite_latency = '100ms'\n");
    std::fs::write(directory.path().join("f.toml"), slow).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(directory.path());
    command.args(["flash", "recover", "flash.img", "--config", "f.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let destages = |line: &String| {
        line.contains("destaging blocks: ") && !line.contains("destaging blocks: 0 of")
    };
    assert!(lines.by_ref().map_while(Result::ok).any(|line| destages(&line)));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("are still dirty")), "{said:?}");
    let (output, stdout, _) = check(directory.path(), &["--json"]);
    assert!(output.status.success(), "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(report["dirty_blocks"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn the_release_of_a_store_without_a_header_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let text = format!(
        "[cache]\ndram = '1MiB'\n[flash]\npath = '{}'\nsize = '16MiB'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\nlayout = 'none'\n",
        path("flash.img"),
        path("a.img")
    );
    std::fs::write(directory.path().join("f.toml"), &text).unwrap();
    write(&Config::from_toml(&text).unwrap(), 0, 20, CLEAN, StopMode::Destage);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(directory.path());
    command.args(["backing", "release", "a.img", "--config", "f.toml", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["layout"], &report["released"]), (&"none".into(), &true.into()));
    assert_eq!(report["data_bytes"], 4 << 20);
}

#[test]
fn a_file_that_is_too_short_for_a_header_has_no_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("notes"), "notes to self\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let output = command.current_dir(directory.path()).args(["backing", "info", "notes"]).output();
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("too short") && !stderr.contains("damaged"), "{stderr}");
}
