//! `forebay plan --evaluate replay` and `simulate` under Cydonia, as users run them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{self, forebay};
use serde_json::Value;

/// Memory and flash in front of a disk; the plan chooses the sizes.
const TIERS: [&str; 4] = ["--tiers", "FastDRAM,SlowSSD", "--backing", "SlowHDD"];

fn planned(args: &[&str]) -> Value {
    common::json("plan", &[args, &["--wear-max", "none"]].concat())
}

fn refusal(args: &[&str]) -> String {
    common::refusal("plan", args)
}

/// A skewed workload over 40 MiB, and a configuration with devices in the same directory.
fn workload(dir: &Path, requests: u64, shape: &str) -> [String; 2] {
    let trace = dir.join("w.parquet").to_str().unwrap().to_owned();
    let spec = format!("zipf:blocks=10k,requests={requests},write=0.3,theta=0.8,seed=5");
    assert!(forebay(&["trace", "synth", &spec, "-q", "-o", &trace]).status.success());
    let config = dir.join("cache.toml");
    let (flash, disk) = (dir.join("flash.img"), dir.join("disk.img"));
    let text = format!(
        "[flash]\npath = '{}'\nlayout = 'log'\n[[volume]]\nname = 'disk'\nbacking = '{}'\n{shape}",
        flash.display(),
        disk.display()
    );
    std::fs::write(&config, text).unwrap();
    [trace, config.to_str().unwrap().to_owned()]
}

#[test]
fn each_evaluation_of_cydonia_is_a_replay_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, config] = workload(dir.path(), 20_000, "");
    let common = [&[&trace[..], "--budget", "40%"], &TIERS[..]].concat();
    let cydonia = ["--method", "cydonia", "--evaluations", "3", "--policy", "write-back"];
    let how = ["--evaluate", "replay", "--config", &config];
    let answer = planned(&[&common[..], &cydonia, &how].concat());
    let evaluations = answer["evaluations"].as_u64().unwrap();
    assert!((1..=3).contains(&evaluations), "{answer}");
    // The single tiers for the budget and for the cost are replayed too, and nothing is replayed
    // twice.
    let singles = answer["replays"].as_u64().unwrap() - evaluations;
    assert!((1..=2).contains(&singles), "{answer}");
    let choice = &answer["choices"][0];
    for judged in [choice, &choice["baseline"]] {
        assert_eq!(judged["judged_by"], "replay");
        assert!(judged["mean_latency_us"].as_f64().unwrap() > 0.0);
        assert!(judged["analytic_latency_us"].as_f64().unwrap() > 0.0);
    }
    let names: Vec<_> = dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");

    // At sizes that both methods evaluate, the simulator counts the same hits, except for blocks in
    // flight.
    let simulated = planned(&[&common[..], &cydonia, &["--evaluate", "simulate"]].concat());
    let simulations = simulated["simulations"].as_u64().unwrap();
    let singles = simulations - simulated["evaluations"].as_u64().unwrap();
    assert!((1..=2).contains(&singles), "{simulated}");
    let baseline = &choice["baseline"];
    let usd = (baseline["cost_usd"].as_f64().unwrap() * 1.000_001).to_string();
    let single = [&trace[..], "--tiers", "FastDRAM", "--backing", "SlowHDD", "--budget", &usd];
    let how = ["--policy", "write-back", "--evaluate", "simulate"];
    let single = planned(&[&single[..], &how].concat())["choices"][0].clone();
    assert_eq!(single["tiers"], baseline["tiers"]);
    let hits = |purchase: &Value| purchase["hit_ratio"][0].as_f64().unwrap();
    assert!((hits(baseline) / hits(&single) - 1.0).abs() < 0.01, "{baseline} {single}");
}

#[test]
fn after_an_exhaustive_search_the_finalist_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, config] = workload(dir.path(), 20_000, "");
    let how = ["--budget", "40%", "--evaluate", "replay", "--config", &config];
    let answer = planned(&[&[&trace[..]], &TIERS[..], &how].concat());
    assert!(answer["evaluations"].as_u64().unwrap() > 3);
    assert!((1..=2).contains(&answer["replays"].as_u64().unwrap()));
    assert_eq!(answer["choices"][0]["judged_by"], "replay");
}

/// Goal: trims, which the formulas do not count as accesses, are not counted by simulations and
/// replays either.
#[test]
fn trims_count_neither_as_accesses_nor_in_latencies() {
    let dir = tempfile::tempdir().unwrap();
    let [_, config] = workload(dir.path(), 10, "");
    let write = |name: &str, trims: bool| {
        let mut csv = String::from("time_ns,volume,op,offset,length\n");
        for n in 0..4_000u64 {
            let (block, op) = (n * n % 2_503, if n % 4 == 0 { "write" } else { "read" });
            csv += &format!("{},disk,{op},{},4096\n", n * 1_000_000, block * 4096);
            if trims && n % 1_000 == 0 {
                csv += &format!("{},disk,trim,0,{}\n", n * 1_000_000, 64 << 20);
            }
        }
        let path = dir.path().join(name);
        std::fs::write(&path, csv + "4000000000,disk,read,67104768,4096\n").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let traces = [write("without.csv", false), write("with.csv", true)];
    for how in [&["simulate"][..], &["replay", "--config", &config]] {
        let [plain, trimmed] = traces.each_ref().map(|trace| {
            let asked = [&[&trace[..], "--budget", "40%"], &TIERS[..], &["--evaluate"], how];
            planned(&asked.concat())["choices"][0]["baseline"].clone()
        });
        let hits = |judged: &Value| judged["hit_ratio"][0].as_f64().unwrap();
        assert!(hits(&plain) > 0.1, "{plain}");
        assert!((hits(&trimmed) / hits(&plain) - 1.0).abs() < 0.01, "{trimmed} {plain}");
        if how.len() == 1 {
            assert_eq!(trimmed, plain);
        }
    }
}

#[test]
fn what_is_there_is_replayed_over_only_if_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, config] = workload(dir.path(), 2_000, "");
    let disk = dir.path().join("disk.img");
    std::fs::write(&disk, vec![7; 48 << 20]).unwrap();
    let how = ["--budget", "40%", "--evaluate", "replay", "--config", &config];
    let given = [&[&trace[..]], &TIERS[..], &how].concat();
    let message = refusal(&given);
    assert!(message.contains("disk.img already exists") && message.contains("--write"));
    assert!(std::fs::read(&disk).unwrap().iter().all(|&byte| byte == 7));
    let answer = planned(&[&given[..], &["--write"]].concat());
    assert_eq!(answer["choices"][0]["judged_by"], "replay");
    assert!(disk.exists() && !dir.path().join("flash.img").exists());
}

#[test]
fn a_replay_that_cannot_be_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let [_, config] = workload(dir.path(), 10, "");
    let replay = ["/nonexistent", "--budget", "1", "--evaluate", "replay"];
    let message = refusal(&[&replay[..], &TIERS].concat());
    assert!(message.contains("needs --config"), "{message}");
    let message = refusal(&[&replay[..], &["--config", &config]].concat());
    assert!(message.contains("one combination") && message.contains("--tiers"), "{message}");
    let ssds = ["--tiers", "FastSSD,SlowSSD", "--backing", "SlowHDD"];
    let message = refusal(&[&replay[..], &ssds, &["--config", &config]].concat());
    assert!(message.contains("this machine's memory"), "{message}");
    std::fs::write(&config, "[[volume]]\nname = 'd'\nbacking = '/nowhere/d'\n").unwrap();
    let message = refusal(&[&replay[..], &TIERS, &["--config", &config]].concat());
    assert!(message.contains("no [flash]"), "{message}");
}

#[test]
fn more_volumes_than_the_configuration_has_are_told_in_options_of_plan() {
    let dir = tempfile::tempdir().unwrap();
    let [one, config] = workload(dir.path(), 1_000, "");
    let two = dir.path().join("two.parquet").to_str().unwrap().to_string();
    let spec = "zipf:volume=a,blocks=4k,requests=1k + zipf:volume=b,blocks=4k,requests=1k";
    assert!(forebay(&["trace", "synth", spec, "-o", &two]).status.success());
    let plan = ["plan", &two, "--budget", "50%", "--evaluate", "replay", "--finalists", "1"];
    let output = forebay(&[&plan[..], &TIERS, &["--config", &config]].concat());
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{one}: {says}");
    assert!(says.contains("[[volume]] for each") && !says.contains("--concatenate"), "{says}");
}

#[test]
fn a_signal_ends_a_replay_and_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, config] = workload(dir.path(), 200_000, "shape = 'SlowHDD'\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["plan", &trace, "--budget", "20%", "--method", "cydonia", "--evaluate", "replay"])
        .args(["--config", &config])
        .args(TIERS)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let disk = dir.path().join("disk.img");
    while !disk.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended on its own");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("stopped by a signal"), "{stderr}");
    assert!(!disk.exists() && !dir.path().join("flash.img").exists());
}
