//! Goal: the output of `forebay policies` is true. Method: compare the binary's output with
//! configurations that use each policy, and with the documentation page.

use std::path::Path;
use std::process::{Command, Output};

use forebay_replacement::Kind;
use serde_json::Value;

fn forebay(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).current_dir(directory).args(args).output().unwrap()
}

fn document(args: &[&str]) -> Value {
    let output = forebay(Path::new("."), &[&["policies", "--json"], args].concat());
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_policy_is_listed_and_a_configuration_with_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:blocks=64,requests=100";
    let made = forebay(dir.path(), &["trace", "synth", spec, "-o", "t.parquet"]);
    assert_eq!(made.status.code(), Some(0));
    let document = document(&[]);
    let policies = document["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>());
    for policy in policies {
        let name = policy["name"].as_str().unwrap();
        let config = format!("[cache]\ndram = '1MiB'\n[replacement]\npolicy = '{name}'\n");
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        let run = forebay(dir.path(), &["-q", "simulate", "t.parquet", "--config", "c.toml"]);
        let says = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(0), "{name}: {says}");
    }
}

#[test]
fn names_choose_policies_and_a_wrong_one_is_refused_with_the_nearest() {
    let two = document(&["2q", "lru"]);
    let names: Vec<_> = two["policies"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["2q", "lru"]);
    let output = forebay(Path::new("."), &["policies", "s3fifo"]);
    assert_eq!(output.status.code(), Some(2));
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(says.contains("did you mean `s3-fifo`?"), "{says}");
}

#[test]
fn the_page_shows_what_the_command_prints() {
    let output = forebay(Path::new("."), &["policies"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 96), "{text}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&text), "docs/policies.md has to show this:\n{text}");
    let output = forebay(Path::new("."), &["policies", "--admission"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains(&text), "docs/policies.md has to show this:\n{text}");
}

/// Runs a simulation with these lines in `[admission]`; returns the document or the error message.
fn simulated(dir: &Path, admission: &str, more: &[&str]) -> Result<Value, String> {
    let config = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-through'\n\
         [flash]\npath = '/x'\nsize = '32MiB'\nlayout = 'log'\n[admission]\n{admission}\n"
    );
    std::fs::write(dir.join("c.toml"), config).unwrap();
    let words = ["-q", "simulate", "t.parquet", "--config", "c.toml", "--json"];
    let run = forebay(dir, &[&words, more].concat());
    match run.status.success() {
        true => Ok(serde_json::from_slice(&run.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&run.stderr).into_owned()),
    }
}

#[test]
fn every_admission_policy_runs_and_what_cannot_be_meant_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:blocks=4k,requests=20k,theta=0.9";
    let made = forebay(dir.path(), &["trace", "synth", spec, "-o", "t.parquet"]);
    assert_eq!(made.status.code(), Some(0));
    let listed = document(&["--admission"]);
    let mut written = std::collections::BTreeMap::new();
    for policy in listed["admission"].as_array().unwrap() {
        let name = policy["name"].as_str().unwrap();
        let run = simulated(dir.path(), &format!("policy = '{name}'"), &[]).unwrap();
        let asked = ["admitted", "not_admitted"].map(|key| run["events"][key].as_u64().unwrap());
        assert_eq!(asked[0] + asked[1] > 0, name != "always", "{name}: {asked:?}");
        written.insert(name.to_owned(), run["flash"]["records"].as_u64().unwrap());
        for key in ["hits", "top", "probability", "writes_per_day", "history"] {
            let takes = policy["keys"].as_array().unwrap().iter().any(|k| k == key);
            let lines = format!("policy = '{name}'\n{key} = 1");
            let run = simulated(dir.path(), &lines, &["--queue-depth", "1"]);
            assert_eq!(run.is_ok(), takes, "{name} with {key}: {run:?}");
            if let Err(says) = run {
                assert!(says.contains(&format!("admission.{key}: has no effect")), "{says}");
            }
        }
    }
    // Flash that is slower than the backing store gets fewer writes; faster flash does not.
    let records = |lines: &str, flash: &str, store: &str| {
        let devices = ["--queue-depth", "16", "--flash-device", flash, "--backing-device", store];
        simulated(dir.path(), lines, &devices).unwrap()["flash"]["records"].as_u64().unwrap()
    };
    let (slow, fast) = (("hdd-7200", "nvme"), ("nvme", "hdd-7200"));
    let adaptive = [slow, fast].map(|(flash, store)| records("policy = 'adaptive'", flash, store));
    let always = records("policy = 'always'", slow.0, slow.1);
    assert!(adaptive[0] < always / 2 && adaptive[1] > always / 2, "{adaptive:?} {always}");
    let second = records("policy = 'adaptive'\nhits = 2", slow.0, slow.1);
    assert!(adaptive[0] < second, "up to 16 accesses spare more than up to 2: {second}");
    for sparing in ["nhit", "smq", "popularity", "random"] {
        assert!(written[sparing] < written["always"], "{written:?}");
    }
    let refused = |lines: &str, more: &[&str], with: &str| {
        let says = simulated(dir.path(), lines, more).unwrap_err();
        assert!(says.contains(with), "{lines}: {says}");
    };
    refused("policy = 'write-budget'", &["--untimed"], "depends on time");
    refused("policy = 'adaptive'", &["--untimed"], "depends on time");
    refused("policy = 'nhit'\nhits = 0", &[], "must be from 1 to 255");
    refused("policy = 'random'\nprobability = 1.5", &[], "must be from 0 to 1");
    refused("policy = 'nhitt'", &[], "`nhit`");
    let config = "[cache]\ndram = '1MiB'\n[admission]\npolicy = 'smq'\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let run = forebay(dir.path(), &["-q", "simulate", "t.parquet", "--config", "c.toml"]);
    let says = String::from_utf8_lossy(&run.stderr);
    assert!(
        says.contains("chooses which blocks enter flash, but there is no [flash] section"),
        "{says}"
    );
}
