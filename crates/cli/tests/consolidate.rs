//! `forebay consolidate` as users run it, on traces whose demands are known.

use std::path::Path;
use std::process::Command;

use crate::common::{self, forebay};
use serde_json::Value;
use tempfile::TempDir;

fn json(args: &[&str]) -> Value {
    common::json("consolidate", args)
}

fn text(args: &[&str]) -> String {
    let output = forebay(&[&["consolidate"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A host, its disk, and the block that it reads in each of its turns.
type Reader<'a> = (&'a str, u32, fn(u64) -> u64);

/// Writes a trace of 2,000 turns.
fn write(dir: &TempDir, name: &str, rows: &[Reader]) -> String {
    let mut csv = String::new();
    for n in 0..2000 {
        for (at, (host, disk, block)) in rows.iter().enumerate() {
            let time = 128_166_372_003_061_629 + 1000 * n + at as u64;
            csv += &format!("{time},{host},{disk},Read,{},4096,100\n", block(n) * 4096);
        }
    }
    let path = dir.path().join(name);
    std::fs::write(&path, csv).unwrap();
    path.to_str().unwrap().to_string()
}

/// Loops over 100 blocks, 20 times in all.
fn looping(n: u64) -> u64 {
    n % 100
}

fn scan(n: u64) -> u64 {
    n
}

fn both(dir: &TempDir) -> String {
    write(dir, "both.csv", &[("db", 0, looping), ("backup", 1, scan)])
}

#[test]
fn a_scan_wastes_what_a_loop_needs_as_the_formula_says() {
    let dir = TempDir::new().unwrap();
    let answer = json(&[&both(&dir), "--size", "1MiB"]);
    let workloads = answer["workloads"].as_array().unwrap();
    let of = |n: usize, field: &str| workloads[n][field].clone();
    assert_eq!((of(0, "name"), of(1, "name")), ("db_0".into(), "backup_1".into()));
    assert_eq!((of(0, "erss_blocks"), of(1, "erss_blocks")), (100.into(), 0.into()));
    // 1,900 of 4,000 accesses are reuses and 2,000 are a flood (the scan).
    assert_eq!((of(0, "reuse_rate"), of(0, "flood_rate")), (0.475.into(), 0.0.into()));
    assert_eq!((of(1, "reuse_rate"), of(1, "flood_rate")), (0.0.into(), 0.5.into()));
    // 100 * 0.5 / (0.5 + 0.475), rounded up.
    assert_eq!((&answer["wastage_blocks"], &answer["needed_blocks"]), (&52.into(), &152.into()));
    assert_eq!((&answer["isolated"], &answer["size_blocks"]), (&true.into(), &256.into()));
    let pairs = answer["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 1);
    assert_eq!((&pairs[0]["from"], &pairs[0]["on"]), (&"backup_1".into(), &"db_0".into()));
    // In fact, a block of the loop is reused after 99 other blocks of the loop and 100 of the scan.
    assert_eq!(answer["simulated_isolation_blocks"], 200);
    assert_eq!(answer["simulated_blocks"], 200);
    assert!((answer["error"].as_f64().unwrap() - (152.0 / 200.0 - 1.0)).abs() < 1e-12);
    assert_eq!(of(0, "miss_ratio_shared"), 0.05);
}

#[test]
fn between_prediction_and_truth_the_answer_has_both() {
    let dir = TempDir::new().unwrap();
    let trace = both(&dir);
    let answer = json(&[&trace, "--size", "720KiB"]);
    assert_eq!((&answer["isolated"], &answer["simulated_isolated"]), (&true.into(), &false.into()));
    let shared = &answer["workloads"][0];
    assert_eq!(
        (&shared["miss_ratio_alone"], &shared["miss_ratio_shared"]),
        (&0.05.into(), &1.0.into())
    );
    let small = json(&[&trace, "--size", "600KiB"]);
    assert_eq!(
        (&small["isolated"], &small["workloads"][0]["fits_alone"]),
        (&false.into(), &true.into())
    );
    let said = text(&[&trace, "--size", "720KiB"]);
    assert!(said.contains("they do not fit: 800 KiB needed, 80 KiB missing"), "{said}");
    assert!(said.contains("they fit: 608 KiB needed, 112 KiB to spare"), "{said}");
    assert!(said.contains("24.0 % below the measured size"), "{said}");
    let said = text(&[&trace, "--size", "200KiB"]);
    assert!(said.contains("too large alone      db_0"), "{said}");
}

#[test]
fn files_are_workloads_even_if_their_volumes_have_one_name() {
    let dir = TempDir::new().unwrap();
    let a = write(&dir, "a.csv", &[("vm", 0, looping)]);
    let b = write(&dir, "b.csv", &[("vm", 0, scan), ("vm", 1, looping)]);
    let args = [a.as_str(), b.as_str(), "--size", "1MiB"];
    let answer = json(&args);
    let name = |answer: &Value, n: usize| answer["workloads"][n]["name"].clone();
    assert_eq!(answer["workloads"].as_array().unwrap().len(), 2);
    assert_eq!((name(&answer, 0), name(&answer, 1)), ("a".into(), "b".into()));
    assert_eq!(answer["workloads"][1]["accesses"], 4000);
    // By volume, these belong to one host.
    let volumes = json(&[&args[..], &["--by", "volume"]].concat());
    assert_eq!((name(&volumes, 0), name(&volumes, 1)), ("vm_0".into(), "vm_1".into()));
    assert_eq!(volumes["workloads"][0]["accesses"], 4000);
    assert_eq!(json(&[&args[..], &["--per-volume"]].concat()), volumes);
}

#[test]
fn traces_of_different_hours_are_told_apart_from_traces_of_one() {
    let dir = TempDir::new().unwrap();
    let early = write(&dir, "early.csv", &[("db", 0, looping)]);
    let text_of = std::fs::read_to_string(&early).unwrap();
    let late = dir.path().join("late.csv");
    std::fs::write(&late, text_of.replace("1281663720", "1281669720")).unwrap();
    let args = [early.as_str(), late.to_str().unwrap(), "--size", "1MiB"];
    let said = text(&args);
    assert!(said.contains("early never runs at the same time as another workload"), "{said}");
    let together = [&args[..], &["--start-together"]].concat();
    assert!(!text(&together).contains("never runs"));
    let needed = |answer: Value| answer["simulated_isolation_blocks"].as_u64().unwrap();
    assert_eq!((needed(json(&args)), needed(json(&together))), (100, 200));
}

#[test]
fn volumes_can_be_grouped() {
    let dir = TempDir::new().unwrap();
    let rows: [Reader; 3] = [("vm", 0, looping), ("vm", 1, scan), ("vm", 2, looping)];
    let trace = write(&dir, "x.csv", &rows);
    let answer = json(&[&trace, "--size", "4MiB", "--group", "web=vm_0,vm_2"]);
    let workloads = answer["workloads"].as_array().unwrap();
    assert_eq!((&workloads[0]["name"], &workloads[1]["name"]), (&"web".into(), &"vm_1".into()));
    assert_eq!((&workloads[0]["erss_blocks"], workloads.len()), (&200.into(), 2));
    let output = forebay(&["consolidate", &trace, "--size", "4MiB", "--group", "web=vm_9"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("vm_9") && stderr.contains("vm_0, vm_1, vm_2"), "{stderr}");
    for groups in [["web=vm_0,vm_2", "db=vm_2"], ["web=vm_0,2", "db=vm_2"]] {
        let [web, db] = groups;
        let twice = ["--size", "4MiB", "--group", web, "--group", db];
        let says = common::refusal("consolidate", &[&[&trace[..]], &twice[..]].concat());
        assert!(says.contains("`vm_2`") && says.contains("in both `web` and `db`"), "{says}");
    }
}

#[test]
fn volumes_that_are_called_by_numbers_are_grouped_by_their_names() {
    let dir = TempDir::new().unwrap();
    // Volume `1` appears first, so it has number 0.
    let rows: [Reader; 3] = [("1", 0, looping), ("0", 1, scan), ("2", 2, looping)];
    let mut csv = String::from("time_us,volume,op,offset,length\n");
    for n in 0..2000u64 {
        for (name, _, block) in rows {
            csv += &format!("{n},{name},r,{},4096\n", block(n) * 4096);
        }
    }
    let trace = dir.path().join("numbers.csv").to_str().unwrap().to_string();
    std::fs::write(&trace, csv).unwrap();
    let answer = json(&[&trace, "--size", "4MiB", "--group", "a=1", "--group", "b=0"]);
    let workloads = answer["workloads"].as_array().unwrap();
    let accesses: Vec<_> = workloads.iter().map(|w| (&w["name"], &w["accesses"])).collect();
    let each = serde_json::json!(2000);
    assert_eq!(accesses, [(&"a".into(), &each), (&"b".into(), &each), (&"2".into(), &each)]);
    let says = common::refusal("consolidate", &[&trace, "--size", "4MiB", "--group", "a=3"]);
    assert!(says.contains("`3`") && says.contains("1, 0, 2"), "{says}");
}

#[test]
fn one_workload_is_told_its_phases() {
    let dir = TempDir::new().unwrap();
    // A loop over 10 blocks, then one over 130.
    fn two(n: u64) -> u64 {
        if n < 1000 { n % 10 } else { 1000 + n % 130 }
    }
    let trace = write(&dir, "x.csv", &[("vm", 0, two)]);
    let answer = json(&[&trace, "--size", "1MiB"]);
    assert_eq!((&answer["wastage_blocks"], &answer["isolated"]), (&0.into(), &true.into()));
    assert_eq!(answer["simulated_blocks"], answer["workloads"][0]["erss_blocks"]);
    let phases = answer["workloads"][0]["phases"].as_array().unwrap();
    assert_eq!((&phases[0]["state"], &phases[0]["parent"]), (&"whole".into(), &Value::Null));
    let needs: Vec<u64> = phases.iter().map(|p| p["erss_blocks"].as_u64().unwrap()).collect();
    assert!(needs.contains(&10) && needs.contains(&130), "{needs:?}");
    // The phase that needs 130 blocks accounts for all that the whole workload needs.
    let marginal = json(&[&trace, "--size", "1MiB", "--marginal"]);
    let workload = &marginal["workloads"][0];
    let sizes = (&workload["demand_blocks"], &workload["erss_blocks"], &marginal["demand_blocks"]);
    assert_eq!(sizes, (&0.into(), &130.into(), &0.into()));
    assert_eq!((&marginal["error"], &marginal["isolation_error"]), (&Value::Null, &Value::Null));
    // An empty demand fits in any cache; the ERSS of the whole workload does not fit in half of it.
    let half = json(&[&trace, "--size", "256KiB", "--marginal"]);
    assert_eq!(half["workloads"][0]["fits_alone"], true);
    assert_eq!(json(&[&trace, "--size", "256KiB"])["workloads"][0]["fits_alone"], false);
    assert_eq!(workload["miss_ratio_erss"], answer["workloads"][0]["miss_ratio_erss"]);
    let said = text(&[&trace, "--size", "1MiB"]);
    assert!(
        said.contains("the only workload") && said.contains("it fits: 520 KiB needed"),
        "{said}"
    );
}

#[test]
fn a_workload_that_no_cache_helps_is_named() {
    let dir = TempDir::new().unwrap();
    // In every 1,000 reads, two are of a block that was read 600 reads before.
    fn once(n: u64) -> u64 {
        if n % 1000 < 998 { n } else { n - 600 }
    }
    let rows: [Reader; 3] = [("db", 0, looping), ("vm", 1, once), ("backup", 2, scan)];
    let args = [&write(&dir, "x.csv", &rows)[..], "--size", "1MiB"];
    let answer = json(&args);
    assert!(answer["workloads"][1]["erss_blocks"].as_u64().unwrap() > 500, "{answer}");
    let said = text(&args);
    let little = "No cache size helps vm_1 much: its hit ratio stays below 0.3 %.";
    assert!(said.contains(little), "{said}");
    assert_eq!(
        said.matches("No cache size helps").count(),
        1,
        "a scan needs no cache anyway: {said}"
    );
    let html = dir.path().join("x.html").to_str().unwrap().to_string();
    text(&[&args[..], &["--html", &html]].concat());
    assert!(std::fs::read_to_string(html).unwrap().contains(little));
}

#[test]
fn blocks_that_move_now_and_then_and_other_options_reach_the_measurement() {
    let dir = TempDir::new().unwrap();
    let trace = both(&dir);
    // The trace lasts 0.2 s; the cache is empty until the first migration.
    let never = json(&[&trace, "--size", "1MiB", "--migration-period", "1s"]);
    assert_eq!(never["workloads"][0]["miss_ratio_alone"], 1.0);
    let often = json(&[&trace, "--size", "1MiB", "--migration-period", "1ms"]);
    assert_eq!(often["migration_period_s"], 0.001);
    assert!(often["workloads"][0]["miss_ratio_alone"].as_f64().unwrap() < 0.2);
    let larger = json(&[&trace, "--size", "1MiB", "--block-size", "16KiB"]);
    assert_eq!((&larger["accesses"], &larger["size_blocks"]), (&4000.into(), &64.into()));
    assert_eq!(json(&[&trace, "--size", "1MiB", "--window", "100"])["workloads"][0]["window"], 128);
    let half = json(&[&trace, "--size", "1MiB", "--miss-hit-ratio", "0"]);
    assert_eq!(half["workloads"][0]["erss_blocks"], 100);
    assert_eq!(json(&[&trace, "--size", "1MiB", "--limit", "10"])["requests"], 10);
}

#[test]
fn the_page_shows_what_its_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/consolidation.md")).unwrap();
    let (before, after) = page.split_once("```text\n").unwrap();
    let (shown, _) = after.split_once("```").unwrap();
    let commands: Vec<&str> = before.lines().filter_map(|l| l.strip_prefix("    ")).collect();
    let dir = TempDir::new().unwrap();
    std::os::unix::fs::symlink(root.join("docs"), dir.path().join("docs")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap().display().to_string();
    let output = Command::new("bash")
        .args(["-e", "-c", &commands.join("\n")])
        .current_dir(dir.path())
        .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(commands.len() > 2 && printed.contains(shown), "the page is not true: {printed}");
}

#[test]
fn rows_and_pictures_are_written_beside_the_answer() {
    let dir = TempDir::new().unwrap();
    let file = |name| dir.path().join(name).to_str().unwrap().to_string();
    let (rows, page) = (file("x.parquet"), file("x.html"));
    json(&[&both(&dir), "--size", "1MiB", "--parquet", &rows, "--html", &page]);
    assert!(std::fs::read(rows).unwrap().starts_with(b"PAR1"));
    let page = std::fs::read_to_string(page).unwrap();
    for title in [
        "Cache size that each workload needs",
        "Cache space wasted, by pair of workloads",
        "Phases of db_0",
    ] {
        assert!(page.contains(title), "{title}");
    }
}

#[test]
fn wastage_of_real_disks_grows_with_their_number_by_as_much_each_time() {
    // The eight busiest disks of DiskSim's validation trace; the publication reports linear growth.
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, Into::into);
    let trace = root.join("disksim/ascii.trace.zst");
    if !trace.exists() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: no {}", trace.display());
        }
        return;
    }
    let disks = ["20", "17", "18", "16", "10", "11", "0", "14"];
    let wasted = |count: usize| {
        let volumes = disks[..count].join(",");
        let answer = json(&[trace.to_str().unwrap(), "--size", "1GiB", "--volumes", &volumes]);
        assert_eq!(answer["workloads"].as_array().unwrap().len(), count);
        let blocks = |field: &str| answer[field].as_f64().unwrap();
        blocks("simulated_isolation_blocks") - blocks("erss_blocks")
    };
    let (one, four, eight) = (wasted(1), wasted(4), wasted(8));
    assert_eq!(one, 0.0);
    assert!(four > 1000.0 && (1.5..3.0).contains(&(eight / four)), "{four} {eight}");
}

#[test]
fn what_cannot_be_done_is_refused_before_reading() {
    for args in [
        &[][..],
        &["--size", "1KiB"],
        &["--size", "1MiB", "--by", "host"],
        &["--size", "1MiB", "--group", "web"],
        &["--size", "1MiB", "--group", "a=b", "--by", "file"],
        &["--size", "1MiB", "--group", "a=b", "--per-volume"],
        &["--size", "1MiB", "--group", "a=b,c", "--group", "d=c,e"],
        &["--size", "1MiB", "--group", "a=b,c,b"],
        &["--size", "1MiB", "--group", "a=b", "--group", "a=c"],
        &["--size", "1MiB", "--migration-period", "0s"],
        &["--size", "1MiB", "--duration-min", "2"],
        &["--size", "1MiB", "--miss-hit-ratio", "-1"],
        &["--size", "1MiB", "--window", "0"],
    ] {
        let output = forebay(&[&["consolidate", "/nonexistent"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_trace_without_accesses_is_a_failure() {
    let dir = TempDir::new().unwrap();
    let output = forebay(&["consolidate", &both(&dir), "--size", "1MiB", "--limit", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no reads or writes"));
}
