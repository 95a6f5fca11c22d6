//! Goal: for each policy, `forebay simulate --policy` gives the same result as a simulation with
//! that policy configured. Method: compare both, on a recorded trace, with one and two tiers, timed
//! and untimed.

use std::process::{Command, Stdio};

use crate::common::{self, forebay, refusal};
use serde_json::Value;

const SQLITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
const ONE_TIER: &str = "[cache]\ndram = '4MiB'\n";
const TWO_TIERS: &str = "[cache]\ndram = '2MiB'\nwrite_policy = 'write-back'\n\
                         [flash]\npath = '/dev/f'\nsize = '32MiB'\nlayout = 'slots'\n";

fn json(args: &[&str]) -> Value {
    common::json("simulate", args)
}

fn config(dir: &tempfile::TempDir, text: &str) -> String {
    let path = dir.path().join("c.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Removes the duration of the simulation itself, and the policy name, which only comparisons have.
fn comparable(mut run: Value) -> Value {
    for field in ["cpu_s", "wall_s", "policy"] {
        run.as_object_mut().unwrap().remove(field);
    }
    run
}

#[test]
fn each_policy_has_the_document_of_a_simulation_with_it_configured() {
    let dir = tempfile::tempdir().unwrap();
    for (tiers, pace) in [
        (ONE_TIER, &["--untimed"][..]),
        (ONE_TIER, &["--queue-depth", "4", "--assume-flush", "100"]),
        (TWO_TIERS, &["--queue-depth", "4"]),
    ] {
        let common = [&[SQLITE, "--limit", "9000"], pace].concat();
        let compared = config(&dir, tiers);
        let names = ["arc", "lru", "s3-fifo"];
        let policies = ["--config", &compared, "--policy", &names.join(",")];
        let answer = json(&[&common[..], &policies].concat());
        let runs = answer["policies"].as_array().unwrap();
        assert_eq!(runs.len(), names.len());
        for (run, name) in runs.iter().zip(names) {
            assert_eq!(run["policy"], name);
            let text = format!("{tiers}[replacement]\npolicy = '{name}'\n");
            let alone = json(&[&common[..], &["--config", &config(&dir, &text)]].concat());
            assert_eq!(comparable(run.clone()), comparable(alone.clone()), "{name} {pace:?}");
            assert_eq!(answer["trace"], alone["trace"]);
        }
        assert_ne!(runs[0]["hits"], runs[1]["hits"], "the policies do not differ");
    }
}

#[test]
fn the_configured_policy_keeps_its_parameters_and_the_others_have_their_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let common = [SQLITE, "--untimed", "--config"];
    let text = "[replacement]\npolicy = 's3-fifo'\nparameters = { small_percent = 60 }\n";
    let path = config(&dir, &(ONE_TIER.to_owned() + text));
    let alone = json(&[&common[..], &[&path]].concat());
    let both = json(&[&common[..], &[&path, "--policy", "s3-fifo,2q"]].concat());
    assert_eq!(both["policies"][0]["hits"], alone["hits"]);
    let path = config(&dir, ONE_TIER);
    let defaults = json(&[&common[..], &[&path, "--policy", "s3-fifo,2q"]].concat());
    assert_ne!(defaults["policies"][0]["hits"], alone["hits"], "the parameter does nothing");
    assert_eq!(both["policies"][1]["hits"], defaults["policies"][1]["hits"]);
}

#[test]
fn one_policy_is_a_list_of_one_also_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(&dir, ONE_TIER);
    let common = ["--untimed", "--config", &path, "--policy", "sieve"];
    let file = json(&[&[SQLITE][..], &common].concat());
    assert_eq!(file["policies"].as_array().unwrap().len(), 1);
    let csv = dir.path().join("t.csv").to_str().unwrap().to_owned();
    let out = forebay(&["-q", "trace", "convert", SQLITE, "-o", &csv]);
    assert!(out.status.success(), "{out:?}");
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["-q", "simulate", "-", "--json"])
        .args(common)
        .stdin(Stdio::from(std::fs::File::open(&csv).unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdin: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stdin["policies"][0]["hits"], file["policies"][0]["hits"]);
}

#[test]
fn a_table_rows_a_page_and_a_report_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(&dir, TWO_TIERS);
    let file = |name| dir.path().join(name).to_str().unwrap().to_owned();
    let (rows, page, json, report) =
        (file("x.parquet"), file("x.html"), file("x.json"), file("r.html"));
    let common = ["simulate", SQLITE, "--limit", "9000", "--config", &path];
    let args = [&common[..], &["--policy", "lru,arc", "--queue-depth", "2"]].concat();
    let files = ["--html", &page, "--parquet", &rows, "--json", "-o", &json];
    let output = forebay(&[&args[..], &files].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&rows).unwrap().starts_with(b"PAR1"));
    let page = std::fs::read_to_string(page).unwrap();
    for words in ["Hit ratio over time", "Latency of reads", "\"lru\"", "\"arc\""] {
        assert!(page.contains(words), "{words}");
    }
    assert!(forebay(&["report", &format!("two tiers={json}"), "-o", &report]).status.success());
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("two tiers, lru") && report.contains("two tiers, arc"));
    let text = String::from_utf8(forebay(&[&["-q"], &args[..]].concat()).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("policy") && line.contains("on flash")));
    assert!(lines.iter().any(|line| line.starts_with("arc ")), "{text}");
    let untimed = [&common[..], &["--policy", "lru", "--untimed", "-q"]].concat();
    let text = String::from_utf8(forebay(&untimed).stdout).unwrap();
    assert!(text.contains("hit ratio") && !text.contains("latency"), "{text}");
}

#[test]
fn wrong_names_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(&dir, ONE_TIER);
    for (names, words) in [
        ("s3fifo", "did you mean `s3-fifo`?"),
        ("lru,opt", "forebay mrc --policy opt"),
        ("lru,arc,lru", "lru twice"),
    ] {
        let message = refusal("simulate", &[SQLITE, "--config", &path, "--policy", names]);
        assert!(message.contains(words), "{names}: {message}");
    }
}
