//! `forebay simulate` as users run it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{self, forebay};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json("simulate", args)
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

const DRAM_ONLY: &str = "[cache]\ndram = '1MiB'\n[[volume]]\nname = 'x'\nbacking = '/x'\n\
                         shape = 'SlowHDD'\n";
const TWO_TIERS: &str = "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
                         [flash]\npath = '/dev/f'\nsize = '16MiB'\nlayout = 'log'\n";

/// 1,000 requests on two disks, 10 ms apart: disk 0 reads a loop of 75 blocks, disk 1 writes.
fn trace(dir: &tempfile::TempDir) -> String {
    let mut csv = String::new();
    for n in 0..1000u64 {
        let time = 128_166_372_003_061_629 + n * 100_000;
        let (disk, op, block) =
            if n % 4 == 3 { (1, "Write", 5000 + n * 7 % 2000) } else { (0, "Read", n % 100) };
        csv += &format!("{time},host,{disk},{op},{},4096,100\n", block * 4096);
    }
    file(dir, "trace.csv", &csv)
}

#[test]
fn the_answer_has_the_fields_that_every_run_has() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", DRAM_ONLY);
    let answer = json(&[&trace(&dir), "--config", &config]);
    assert_eq!((&answer["requests"], &answer["reads"]), (&1000.into(), &750.into()));
    // The loop fits: after the first read of a block, every read hits.
    assert_eq!(answer["hits"]["tier1"]["read"], 675);
    assert_eq!(answer["hits"]["tier2"]["read"], 0);
    assert_eq!(answer["backing"]["read_bytes"], 75 * 4096);
    assert_eq!(answer["backing"]["write_bytes"], 250 * 4096);
    assert_eq!(
        (&answer["dirty_blocks_max"], &answer["tier2_bytes_written"]),
        (&0.into(), &0.into())
    );
    for op in ["read", "write", "all"] {
        for key in ["mean", "p50", "p99", "p999", "p9999", "max"] {
            assert!(answer["latency_us"][op][key].as_f64().unwrap() > 0.0, "{op} {key}");
        }
    }
    let write = answer["latency_us"]["write"]["p50"].as_f64().unwrap();
    assert!((write / 1037.3 - 1.0).abs() < 0.01, "{write}");
    assert_eq!(answer["assumed"]["flush"], "none");
    assert_eq!(answer["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(answer["trace"]["requests"], 1000);
    assert!(answer["flash"].is_null());
}

#[test]
fn volumes_that_are_left_out_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", TWO_TIERS);
    let csv = |volumes: u32| {
        let mut csv = "time_ms,op,offset,length,volume\n".to_owned();
        for n in 0..2000 {
            csv += &format!("{n},read,{},4096,v{}\n", n * 7 % 5000 * 4096, n % volumes);
        }
        file(&dir, &format!("{volumes}.csv"), &csv)
    };
    let (many, one) = (csv(100), csv(1));
    let parquet = dir.path().join("many.parquet").to_str().unwrap().to_owned();
    let converted = forebay(&["trace", "convert", &many, "-o", &parquet]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    let too_many = forebay(&["simulate", &many, "--config", &config]);
    assert!(String::from_utf8_lossy(&too_many.stderr).contains("100 volumes"));
    // One alone in a file of its own is the same volume.
    let selected = forebay(&["trace", "convert", &many, "--volumes", "v70", "-o", &one]);
    assert!(selected.status.success(), "{}", String::from_utf8_lossy(&selected.stderr));
    let alone = json(&[&one, "--config", &config]);
    for trace in [&many, &parquet] {
        let answer = json(&[trace, "--config", &config, "--volumes", "v70"]);
        let volumes = answer["volumes"].as_array().unwrap();
        assert_eq!((volumes.len(), &volumes[0]["volume"]), (1, &"v70".into()));
        for key in ["hits", "latency_us", "backing", "flash"] {
            assert_eq!(answer[key], alone[key], "{trace}: {key}");
        }
        let curve = ["mrc", trace, "--config", &config, "--volumes", "v70", "--json"];
        let curve = forebay(&curve);
        assert!(curve.status.success(), "{}", String::from_utf8_lossy(&curve.stderr));
    }
}

#[test]
fn flushes_are_assumed_on_request_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", TWO_TIERS);
    let trace = trace(&dir);
    let run = |flush| json(&[&trace, "--config", &config, "--assume-flush", flush]);
    let by_count = run("25");
    assert_eq!(by_count["assumed"]["flushes_added"], 10);
    assert_eq!(by_count["assumed"]["flush"], "every 25 writes");
    assert_eq!(by_count["requests"], 1000);
    // 250 writes, 40 ms apart: each flush follows 1 s after the first unflushed write, and the next
    // write starts the time again.
    assert_eq!(run("1s")["assumed"]["flushes_added"], 9);
    assert_eq!(run("none")["assumed"]["flushes_added"], 0);
    let syncs = |answer: &Value| answer["flash"]["syncs"].as_u64().unwrap();
    assert!(syncs(&by_count) >= syncs(&run("none")) + 10);
}

#[test]
fn every_pacing_simulates_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", TWO_TIERS);
    let trace = trace(&dir);
    let open = ["--rate", "2"];
    let pacings: [&[&str]; 5] =
        [&[], &open, &["--queue-depth", "8"], &["--quiesce"], &["--untimed"]];
    for pacing in pacings {
        let answer = json(&[&[trace.as_str(), "--config", &config], pacing].concat());
        assert_eq!(answer["requests"], 1000, "{pacing:?}");
        assert_eq!(answer["flash"]["regions_reclaimed"], 0);
        // Without simulated time, there are no latencies.
        assert_eq!(answer["latency_us"].is_null(), pacing == ["--untimed"]);
        assert_eq!(answer["throughput"].is_null(), pacing == ["--untimed"]);
    }
    let two = forebay(&["simulate", &trace, "--config", &config, "--untimed", "--quiesce"]);
    assert_eq!(two.status.code(), Some(2));
}

#[test]
fn standard_input_is_read_once_and_gives_the_same_answer() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", DRAM_ONLY);
    let trace = trace(&dir);
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["simulate", "-", "--config", &config, "--json", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&std::fs::read(&trace).unwrap()).unwrap();
    let piped: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let named = json(&[&trace, "--config", &config]);
    for key in ["hits", "latency_us", "backing", "duration_s"] {
        assert_eq!(piped[key], named[key], "{key}");
    }
    assert_eq!(piped["trace"]["xxh3"], named["trace"]["xxh3"]);
}

#[test]
fn text_rows_and_pictures_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", TWO_TIERS);
    let out = |name: &str| -> PathBuf { dir.path().join(name) };
    let (html, parquet) = (out("run.html"), out("run.parquet"));
    let text = forebay(&[
        "simulate",
        &trace(&dir),
        "--config",
        &config,
        "--interval",
        "1s",
        "--html",
        html.to_str().unwrap(),
        "--parquet",
        parquet.to_str().unwrap(),
    ]);
    let text = String::from_utf8(text.stdout).unwrap();
    for word in ["hit ratio", "written to flash", "reads", "flash writes", "assumed", "host"] {
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
    }
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Hit ratio over time") && page.contains("Dirty blocks over time"));
    assert_eq!(rows(&parquet), 10);
}

fn rows(path: &Path) -> i64 {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    file.metadata().file_metadata().num_rows()
}

#[test]
fn what_cannot_be_simulated_is_bad_usage_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let refused = |config: &str, more: &[&str]| {
        let config = file(&dir, "bad.toml", config);
        let output = forebay(&[&["simulate", trace.as_str(), "--config", &config], more].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = refused("[flash]\npath = '/dev/f'", &[]);
    assert!(code == Some(2) && text.contains("`size`"), "{text}");
    let (code, text) = refused(DRAM_ONLY, &["--memory", "floppy"]);
    assert!(code == Some(2) && text.contains("FastDRAM"), "{text}");
    let (code, text) = refused("[[volume]]\nname='x'\nbacking='/x'\nsize='1MiB'", &[]);
    assert!(code == Some(1) && text.contains("larger `size`"), "{text}");
    let large = "[flash]\npath = '/dev/f'\nsize = '9TiB'";
    let (code, text) = refused(large, &[]);
    assert!(code == Some(2) && text.contains("flash.size"), "{text}");
    let (code, text) = refused("[cache]\ndarm = '1GiB'", &[]);
    assert!(code == Some(2) && text.contains("`dram`"), "{text}");
}

#[test]
fn accesses_that_wait_for_what_is_being_fetched_are_delayed_hits_and_the_overload_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let config = file(&dir, "c.toml", DRAM_ONLY);
    // Each block is read ten times at once, at 1,000 times the rate that the disk supports.
    let mut csv = "time_ns,op,offset,length\n".to_owned();
    for n in 0..5000_u64 {
        csv += &format!("{},read,{},4096\n", n * 1000, n / 10 % 200 * 4096);
    }
    let trace = file(&dir, "burst.csv", &csv);
    let of = |more: &[&str]| json(&[&[&trace[..], "--config", &config], more].concat());
    let (open, untimed) = (of(&[]), of(&["--untimed"]));
    let count = |answer: &Value, what: &str| answer.pointer(what).unwrap().as_u64().unwrap();
    assert_eq!(count(&open, "/misses/read"), 200, "the disk is asked once for each block");
    assert!(count(&open, "/hits/delayed/read") > 1000, "{}", open["hits"]);
    assert_eq!(count(&untimed, "/hits/delayed/read"), 0);
    assert_eq!(open["hit_ratio"], untimed["hit_ratio"]);
    assert_eq!(open["backing"], untimed["backing"]);
    // 200 reads of 1.7 ms on one disk, requested within 5 ms, take less than a second; 3,200 take
    // longer.
    assert_eq!(open["overloaded"], serde_json::json!([]));
    for n in 0..3000_u64 {
        csv += &format!("{},read,{},4096\n", 5_000_000 + n * 1000, (1000 + n * 7) * 4096);
    }
    let trace = file(&dir, "flood.csv", &csv);
    let flood = json(&[&trace, "--config", &config]);
    let over = &flood["overloaded"][0];
    assert!(over["share"].as_f64().unwrap() > 0.5 && over["device"] == "flood", "{over}");
    let text = forebay(&["simulate", &trace, "--config", &config, "-q"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("overloaded") && text.contains("delayed"), "{text}");
    let closed = json(&[&trace, "--config", &config, "--queue-depth", "8"]);
    assert_eq!(closed["overloaded"], serde_json::json!([]));
}

#[test]
fn a_write_that_drops_a_block_is_no_hit_under_any_policy_that_drops_it() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.parquet").to_str().unwrap().to_owned();
    let spec = "zipf:blocks=2k,requests=20k,write=0.4,seed=5";
    assert!(forebay(&["trace", "synth", spec, "-q", "-o", &trace]).status.success());
    let curve = common::json("mrc", &[&trace, "--distance", "lru-ro", "--at", "1MiB"]);
    let points = curve["points"].as_array().unwrap();
    let of_size = points.iter().find(|p| p["size_blocks"] == 256).unwrap();
    for policy in ["read-only", "write-around"] {
        let text = format!("[cache]\ndram = '1MiB'\nwrite_policy = '{policy}'\n");
        let answer = json(&[&trace, "--config", &file(&dir, "ro.toml", &text), "--untimed"]);
        assert_eq!(answer["hits"]["tier1"]["write"], 0, "{policy}");
        let ratio = 1.0 - of_size["miss_ratio"].as_f64().unwrap();
        assert!((answer["hit_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{policy}");
    }
}

/// The text output of `trace` with write-back and --outage.
fn with_outage(more: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let (trace, config) = (trace(&dir), file(&dir, "c.toml", TWO_TIERS));
    forebay(&[&["simulate", "-q", trace.as_str(), "--config", &config], more].concat())
}

#[test]
fn errors_are_shown_by_volume_and_what_becomes_of_dirty_blocks_after_an_outage() {
    // Disk 0 only reads; disk 1 only writes, and flash absorbs the writes.
    let text = |more: &[&str]| String::from_utf8(with_outage(more).stdout).unwrap();
    let healthy = text(&[]);
    assert!(!healthy.contains("errors") && !healthy.contains("after the outages"), "{healthy}");
    let dead = text(&["--outage", "host_0=dead@0s..100ms", "--outage=host_1=full@0s..5s"]);
    let cells = |of: &str| -> Vec<String> {
        let line =
            dead.lines().rfind(|line| line.starts_with(of)).unwrap_or_else(|| panic!("{dead}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells("volume")[..3], ["volume", "requests", "errors"], "{dead}");
    // Ten requests arrive in 100 ms. Disk 0 gets the first three of every four, and none of them
    // hits.
    assert_eq!(cells("host_0")[1..3], ["750", "8"], "{dead}");
    assert_eq!(cells("host_1")[1..3], ["250", "0"], "{dead}");
    assert_eq!(cells("errors"), ["errors", "8"], "{dead}");
    assert!(
        dead.contains("after the outages") && dead.contains("all dirty blocks were destaged in")
    );
    let for_ever = text(&["--outage", "host_1=dead"]);
    assert!(for_ever.contains("250 blocks could not be destaged"), "{for_ever}");
}

#[test]
fn an_outage_that_makes_no_sense_is_bad_usage_and_says_what_to_write() {
    for (outage, more, says) in [
        ("host_0", "--seed=1", "write VOLUME=dead, VOLUME=full or VOLUME=slow:100"),
        ("host_0=slow:0.5", "--seed=1", "by a factor of 1 to 1000000"),
        ("host_0=dead@5s", "--seed=1", "@FROM..UNTIL"),
        ("host_0=dead@5..6s", "--seed=1", "`5` is not a time"),
        ("host_0=dead@5s..4s", "--seed=1", "the end of an outage must be later than its start"),
        ("host_7=dead", "--seed=1", "no volume `host_7`"),
        ("host_0=dead", "--untimed", "the trace's timestamps or a queue depth"),
        ("host_0=dead", "--quiesce", "the trace's timestamps or a queue depth"),
    ] {
        let output = with_outage(&["--outage", outage, more]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(says), "{outage}: {text}");
        assert_eq!(output.status.code(), Some(2), "{outage}: {text}");
        assert!(output.stdout.is_empty(), "{outage}");
    }
}
