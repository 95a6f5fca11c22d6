//! Goal: `forebay trace` prints the documented fields, writes what it reports, and refuses bad
//! input without leaving files behind. Method: run the binary on traces that it generates.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common;

fn forebay(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).current_dir(dir).output().unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let output = forebay(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fails(dir: &Path, args: &[&str], status: i32) -> String {
    let output = forebay(dir, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?}");
    message
}

#[test]
fn a_workload_is_made_looked_into_and_converted_without_changing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spec = "zipf:blocks=1k,requests=2k,write=0.25,size=8KiB,rate=1k,volume=vm1,seed=3";
    let made = json(dir, &["trace", "synth", spec, "-o", "a.parquet", "--json"]);
    assert_eq!(made["requests"], 2000);
    assert_eq!(made["bytes_written"], dir.join("a.parquet").metadata().unwrap().len());

    let info = json(dir, &["trace", "info", "a.parquet", "--json"]);
    assert_eq!(info["requests"], 2000);
    assert_eq!(info["reads"].as_u64().unwrap() + info["writes"].as_u64().unwrap(), 2000);
    let bytes = info["read_bytes"].as_u64().unwrap() + info["write_bytes"].as_u64().unwrap();
    assert_eq!(bytes, 2000 * 8192);
    assert_eq!((&info["duration_s"], &info["volumes"]), (&1.999.into(), &1.into()));
    assert_eq!(info["misaligned"], serde_json::json!({"read": 0, "write": 0, "all": 0}));
    assert!(info["footprint_blocks"]["all"].as_u64().unwrap() <= 1000);
    assert_eq!(info["per_volume"][0]["volume"], "vm1");
    assert_eq!(info["features"]["size_p50"], 8192.0);

    for (name, to) in [("b.csv", None), ("c.log", Some("iolog:version=2")), ("d.parquet", None)] {
        let mut args = vec!["trace", "convert", "a.parquet", "-o", name, "--json"];
        args.extend(to.iter().flat_map(|to| ["--to", to]));
        let converted = json(dir, &args);
        assert_eq!(converted["requests"], 2000);
        let again = json(dir, &["trace", "info", name, "--json"]);
        for field in ["requests", "reads", "writes", "footprint_blocks", "duration_s", "per_volume"]
        {
            assert_eq!(again[field], info[field], "{name} {field}");
        }
    }
    let converted = json(
        dir,
        &["trace", "convert", "b.csv", "-o", "e.bin", "--to", "oracleGeneral:block=4096", "--json"],
    );
    assert_eq!(converted["requests"], info["block_accesses"]["all"]);
}

#[test]
fn text_formats_can_be_written_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    json(dir, &["trace", "synth", "zipf:requests=2k,volume=vm1", "-o", "a.parquet", "--json"]);
    for (format, name) in [("csv", "a.csv"), ("iolog", "a.log")] {
        json(dir, &["trace", "convert", "a.parquet", "-o", name, "--json"]);
        let args = ["trace", "convert", "a.parquet", "-o", "-", "--to", format];
        let output = forebay(dir, &args);
        assert!(output.status.success());
        let file = std::fs::read(dir.join(name)).unwrap();
        assert!(output.stdout == file, "{format}: {} bytes", output.stdout.len());
        assert!(String::from_utf8_lossy(&output.stderr).contains("2 k requests"));
    }
    let refused = |more: &[&str], says: &str| {
        let message =
            fails(dir, &[&["trace", "convert", "a.parquet", "-o", "-"], more].concat(), 2);
        assert!(message.contains(says), "{more:?}: {message}");
    };
    refused(&[], "csv or iolog");
    refused(&["--to", "parquet"], "only to a file");
    refused(&["--to", "oracleGeneral"], "only to a file");
    refused(&["--to", "csv", "--json"], "--json");
}

#[test]
fn a_reader_of_a_trace_that_goes_away_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    json(dir.path(), &["trace", "synth", "zipf:requests=50k", "-o", "a.parquet", "--json"]);
    let mut writing = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .current_dir(dir.path())
        .args(["trace", "convert", "a.parquet", "-o", "-", "--to", "csv"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(writing.stdout.take());
    let output = writing.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_number_of_requests_for_several_components_is_noted_to_count_once() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:volume=a,requests=100 + zipf:volume=b,requests=100";
    let args = ["trace", "synth", spec, "-o", "x.parquet", "--json"];
    let output = forebay(dir.path(), &args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("`requests` is repeated within a phase; it applies to the whole phase"),
        "{stderr}"
    );
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["requests"], 100);
}

#[test]
fn several_traces_are_merged_and_can_be_narrowed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["x", "y"] {
        let spec = format!("sequential:requests=100,volume={name}");
        json(dir, &["trace", "synth", &spec, "-o", &format!("{name}.parquet"), "--json"]);
    }
    let both = json(dir, &["trace", "info", "x.parquet", "y.parquet", "--json"]);
    assert_eq!((&both["requests"], &both["volumes"]), (&200.into(), &2.into()));
    let one = json(dir, &["trace", "info", "x.parquet", "y.parquet", "--volumes", "y", "--json"]);
    assert_eq!((&one["requests"], &one["per_volume"][0]["volume"]), (&100.into(), &"y".into()));
    let few = json(dir, &["trace", "info", "x.parquet", "--limit", "7", "--json"]);
    assert_eq!(few["requests"], 7);
}

/// Method: volumes `db` (number 0) and `0` (number 1), in a file that lists its volumes first and
/// in one that does not.
#[test]
fn a_number_that_is_also_a_name_chooses_the_volume_of_this_name_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text =
        "time_ns,volume,op,offset,length\n0,db,read,0,4096\n1,0,write,0,8192\n2,db,read,0,4096\n";
    std::fs::write(dir.join("x.csv"), text).unwrap();
    json(dir, &["trace", "convert", "x.csv", "-o", "x.parquet", "--json"]);
    std::fs::write(dir.join("f.toml"), "[cache]\ndram = '1MiB'\n").unwrap();
    let note = "`0` selects the volume with this name, not volume number 0, which is called db";
    for name in ["x.csv", "x.parquet"] {
        for (volumes, (reads, writes)) in [("0", (0, 1)), ("db", (2, 0)), ("0,db", (2, 1))] {
            let args = ["trace", "info", name, "--volumes", volumes, "--json"];
            let info = json(dir, &args);
            assert_eq!(
                (&info["reads"], &info["writes"]),
                (&reads.into(), &writes.into()),
                "{args:?}"
            );
            let stderr = String::from_utf8(forebay(dir, &args).stderr).unwrap();
            assert_eq!(stderr.contains(note), volumes.contains('0'), "{args:?}: {stderr}");
        }
        let args = ["simulate", name, "--config", "f.toml", "--volumes", "0", "--json"];
        let output = forebay(dir, &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.matches(note).count(), 1, "{stderr}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["requests"], 1);
    }
}

#[test]
fn rows_and_pictures_are_written_where_asked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    json(dir, &["trace", "synth", "uniform:requests=100", "-o", "x.parquet", "--json"]);
    let args = ["trace", "info", "x.parquet", "--parquet", "rows.parquet", "--html", "page.html"];
    let text = String::from_utf8(forebay(dir, &args).stdout).unwrap();
    assert!(text.contains("footprint") && text.contains("request size (reads)"), "{text}");
    assert!(std::fs::read(dir.join("rows.parquet")).unwrap().starts_with(b"PAR1"));
    assert!(std::fs::read_to_string(dir.join("page.html")).unwrap().contains("request size"));
}

#[test]
fn bad_input_is_refused_with_the_place_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("bad.csv"), "10,8,w,4096\n20,8,w,4096\n30,8,q,4096\n").unwrap();
    let message = fails(dir, &["trace", "convert", "bad.csv", "-o", "x.parquet"], 1);
    assert!(message.contains("not a known trace format"), "{message}");
    let forced = ["trace", "convert", "bad.csv", "--format", "cydonia", "-o", "x.parquet"];
    let message = fails(dir, &forced, 1);
    assert!(message.contains("bad.csv:3: expected time (us)"), "{message}");
    assert_eq!(dir.read_dir().unwrap().count(), 1, "{message}");
    let skipping = [&forced[..], &["--skip-bad-lines", "--json"]].concat();
    assert_eq!(json(dir, &skipping)["requests"], 2);

    fails(dir, &["trace", "info", "missing"], 1);
    fails(dir, &["trace", "info", "bad.csv", "--format", "nothing"], 2);
    fails(dir, &["trace", "synth", "zipf:blocks=0", "-o", "y.parquet"], 2);
    fails(dir, &["trace", "synth", "zipf", "-o", "y.unknown"], 2);
    let message = fails(dir, &["trace", "convert", "x.parquet", "-o", "x.parquet"], 2);
    assert!(message.contains("both read and written"), "{message}");
    assert!(!dir.join("y.parquet").exists() && !dir.join("y.parquet.partial").exists());
}

/// Method: a recorder dies after a checkpoint; run the command from the error message as printed.
#[test]
fn the_advised_command_rescues_an_interrupted_recording() {
    use forebay_block::{Flags, Nanos, Op, Request, Volume};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut writer =
        forebay_trace::ParquetTraceWriter::create_recording(&dir.join("rec.parquet")).unwrap();
    for n in 0..5000 {
        let (volume, op, flags, offset) = (Volume(0), Op::Write, Flags::NONE, n * 4096);
        let request = Request { time: Nanos(n), volume, op, flags, offset, length: 4096 };
        writer.push(request.into()).unwrap();
    }
    writer.checkpoint(&forebay_trace::Metadata::default()).unwrap();
    // The recording is still in progress.
    let rescue = ["trace", "convert", "rec.parquet.partial", "-o", "rec.parquet"];
    let message = fails(dir, &rescue, 1);
    assert!(message.contains("recording in progress"), "{message}");
    drop(writer);
    let message = fails(dir, &["trace", "info", "rec.parquet"], 1);
    let advised = message.split('`').find_map(|part| part.strip_prefix("forebay ")).unwrap();
    let advised: Vec<&str> = advised.split_whitespace().collect();
    assert_eq!(advised, rescue);
    let output = forebay(dir, &advised);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["rec.parquet", "rec.parquet.partial"] {
        assert_eq!(json(dir, &["trace", "info", name, "--json"])["requests"], 5000, "{name}");
    }
    // A new trace with the recording's name does not affect the leftover file.
    let synth = ["trace", "synth", "zipf:requests=10", "-o", "rec.parquet", "--json"];
    assert_eq!(json(dir, &synth)["requests"], 10);
    let left = json(dir, &["trace", "info", "rec.parquet.partial", "--json"]);
    assert_eq!(left["requests"], 5000);
}

#[test]
fn signals_that_are_ignored_do_not_end_a_command() {
    use std::io::Write;
    let mut command = Command::new("sh")
        .args(["-c", "trap '' HUP INT; exec \"$0\" mrc - --json", env!("CARGO_BIN_EXE_forebay")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = command.stdin.take().unwrap();
    stdin.write_all(b"time_s,op,offset,length\n0,read,0,4096\n").unwrap();
    let pid = command.id().to_string();
    for signal in ["-HUP", "-INT", "-HUP"] {
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
    drop(stdin);
    let output = command.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("stopping"), "{said}");
}

#[test]
fn a_csv_that_tells_no_volume_is_one_named_after_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = "time_us,op,offset,length\n0,read,0,4096\n1,write,4096,4096\n";
    for name in ["one.csv", "two.csv"] {
        std::fs::write(dir.join(name), lines).unwrap();
    }
    let info = json(dir, &["trace", "info", "one.csv", "two.csv", "--json"]);
    let names: Vec<&Value> =
        info["per_volume"].as_array().unwrap().iter().map(|v| &v["volume"]).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(info["footprint_blocks"]["all"], 4);
}

#[test]
fn what_a_link_leads_to_is_written_and_the_link_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("target.csv"), "old").unwrap();
    std::fs::write(dir.join("target.json"), "old").unwrap();
    for kind in ["csv", "json"] {
        let (link, target) = (dir.join(format!("link.{kind}")), format!("target.{kind}"));
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    json(dir, &["trace", "synth", "sequential:blocks=10,requests=20", "-o", "link.csv", "--json"]);
    let written = forebay(dir, &["mrc", "link.csv", "--json", "-o", "link.json"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    for kind in ["csv", "json"] {
        assert!(dir.join(format!("link.{kind}")).is_symlink(), "{kind}");
        let target = std::fs::read_to_string(dir.join(format!("target.{kind}"))).unwrap();
        assert!(target.len() > 100, "{kind}: {target}");
    }
}

#[test]
fn trims_are_no_accesses_in_oracle_general() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = "time_us,op,offset,length\n0,read,0,4096\n1,trim,0,1073741824\n2,read,0,4096\n";
    std::fs::write(dir.join("a.csv"), lines).unwrap();
    let args = ["trace", "convert", "a.csv", "-o", "a.bin", "--to", "oracleGeneral:block=4096"];
    assert_eq!(json(dir, &[&args[..], &["--json"]].concat())["requests"], 2);
    let info = json(dir, &["trace", "info", "a.bin", "--json"]);
    assert_eq!((&info["requests"], &info["footprint_blocks"]["all"]), (&2.into(), &1.into()));
}

#[test]
fn requests_that_count_as_reads_for_lack_of_operations_are_noted_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines: String = (0..64).map(|n| format!("{} 8 0 {n}\n", n % 8 * 8)).collect();
    std::fs::write(dir.join("a.lis"), lines).unwrap();
    let config =
        "[cache]\ndram = '1MiB'\n[[volume]]\nname = 'a'\nbacking = 'a.img'\nsize = '1MiB'\n";
    std::fs::write(dir.join("a.toml"), config).unwrap();
    let note = "a does not distinguish reads from writes, so all requests count as reads";
    for args in [
        &["trace", "info", "a.lis"][..],
        &["trace", "convert", "a.lis", "-o", "a.parquet"],
        &["mrc", "a.lis"],
        &["mrc", "a.lis", "--policy", "lru,arc"],
        &["simulate", "a.lis", "--config", "a.toml"],
        &["plan", "a.lis", "--tiers", "FastDRAM", "--backing", "FastHDD", "--budget", "10"],
    ] {
        let said = String::from_utf8(forebay(dir, args).stderr).unwrap();
        assert_eq!(said.matches(note).count(), 1, "{args:?}: {said}");
        let quiet = forebay(dir, &[args, &["-q"]].concat());
        assert_eq!(String::from_utf8(quiet.stderr).unwrap().matches(note).count(), 0, "{args:?}");
    }
    let said = String::from_utf8(forebay(dir, &["trace", "info", "a.parquet"]).stderr).unwrap();
    assert!(!said.contains("operations"), "{said}");
}

#[test]
fn a_format_that_the_file_contradicts_is_refused_with_the_option_that_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    json(dir, &["trace", "synth", "zipf:requests=10", "-o", "a.parquet", "--json"]);
    let args = ["trace", "convert", "a.parquet", "-o", "b.parquet", "--format", "csv"];
    let message = fails(dir, &args, 2);
    assert!(message.contains("a.parquet has the format parquet, not csv"), "{message}");
    assert!(message.contains("--to selects the format to write"), "{message}");
    let message = fails(dir, &["mrc", "a.parquet", "--format", "csv"], 2);
    assert!(message.contains("omit --format") && !message.contains("--to"), "{message}");
}

#[test]
fn long_zeroings_and_impossible_requests_end_soon() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let write = |name: &str, lines: &str| {
        std::fs::write(dir.join(name), format!("time_ns,volume,op,offset,length\n{lines}"))
            .unwrap();
    };
    write("zero.csv", "0,a,z,0,1099511627776\n1,a,z,0,9223372036854775807\n2,a,r,0,4096\n");
    let info = json(dir, &["trace", "info", "zero.csv", "--json"]);
    assert_eq!((&info["trims"], &info["write_zeroes"]), (&2.into(), &0.into()));
    assert_eq!(json(dir, &["mrc", "zero.csv", "--json"])["accesses"], 1);
    json(dir, &["sample", "zero.csv", "--rate", "1", "--bits", "0", "-o", "s.parquet", "--json"]);
    json(dir, &["consolidate", "zero.csv", "--size", "1MiB", "--json"]);
    let said = fails(dir, &["mrc", "zero.csv", "--points", "1"], 2);
    assert!(said.contains("2 or more"), "{said}");
    // Long write-zeroes requests are kept by commands that do not process each block.
    json(dir, &["trace", "convert", "zero.csv", "-o", "kept.csv", "--json"]);
    let kept = std::fs::read_to_string(dir.join("kept.csv")).unwrap();
    assert!(kept.contains("write-zeroes,0,0,1099511627776"), "{kept}");
    write("large.csv", "0,a,r,0,4294967297\n");
    let said = fails(dir, &["trace", "info", "large.csv"], 1);
    assert!(said.contains("expected a read or write of at most 4 GiB"), "{said}");
}

#[test]
fn a_conversion_says_what_it_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines = "time_us,op,offset,length\n0,t,0,4096\n1,f,0,0\n2,r,0,0\n3,r,0,512\n4,t,0,512\n";
    std::fs::write(dir.join("a.csv"), lines).unwrap();
    let output = forebay(dir, &["trace", "convert", "a.csv", "-o", "a.bin"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("omitted 2 trims, 1 flush request, 1 request without data"), "{said}");
    let output = forebay(dir, &["trace", "convert", "a.csv", "-o", "b.csv"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("omitted"));
}

/// Goal: every command reads a pipe only once. Method: a named pipe that is written once, so that a
/// second pass would wait forever; the answers must equal those from the file.
#[test]
fn a_trace_from_a_pipe_is_read_once_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, pipe, config) = (at("t.csv"), at("pipe"), at("cache.toml"));
    let spec = "zipf:blocks=1k,requests=5k,write=0.3";
    assert!(common::forebay(&["trace", "synth", spec, "-o", &file]).status.success());
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(&config, "[cache]\ndram = '1MiB'\n").unwrap();
    for line in [
        "trace info TRACE",
        "mrc TRACE",
        "plan TRACE --budget 50% --backing SlowHDD",
        "consolidate TRACE --size 1MiB",
        "simulate TRACE --config CONFIG --untimed",
        "simulate TRACE --config CONFIG --untimed --policy lru,arc",
    ] {
        let run = |trace: &str| {
            let line = line.replace("TRACE", trace).replace("CONFIG", &config);
            let words = line.split_whitespace().chain(["--json", "--quiet"]);
            let mut answer = json(dir.path(), &words.collect::<Vec<&str>>());
            for key in ["cpu_s", "wall_s", "trace", "name", "policies", "workloads", "volumes"] {
                answer.as_object_mut().unwrap().remove(key);
            }
            answer
        };
        let writer = Command::new("cp").args(["--", &file, &pipe]).spawn();
        let answer = run(&pipe);
        assert!(writer.unwrap().wait().unwrap().success());
        assert_eq!(answer, run(&file), "{line}");
    }
    // Nothing writes to the pipe, so these commands must not open it.
    for (line, says) in [
        ("replay TRACE --target x", "a trace from standard input or a pipe can be read only once"),
        (
            "mrc TRACE --config CONFIG",
            "a trace from standard input or a pipe can be read only once",
        ),
        ("mrc TRACE TRACE", "can be read only once, but was given more than once"),
    ] {
        let line = line.replace("TRACE", &pipe).replace("CONFIG", &config);
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = common::refusal(words[0], &words[1..]);
        assert!(said.contains(says), "{line}: {said}");
    }
    let parquet = at("t.parquet");
    assert!(common::forebay(&["trace", "synth", spec, "-o", &parquet]).status.success());
    let writer = Command::new("cp").args(["--", &parquet, &pipe]).stderr(Stdio::null()).spawn();
    let said = common::forebay(&["mrc", &pipe]).stderr;
    let _ = writer.unwrap().wait();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("cannot come from standard input or a pipe"), "{said}");
}

/// Waits until a command catches SIGTERM, and all its threads wait.
fn wait_until_asleep(pid: u32) {
    const SIGTERM: u32 = 15;
    let proc = std::path::PathBuf::from(format!("/proc/{pid}"));
    let catches = || {
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (SIGTERM - 1) & 1 == 1
    };
    let sleeps = || {
        let tasks = std::fs::read_dir(proc.join("task")).unwrap();
        tasks.flatten().all(|task| {
            // The state follows the name, which is in parentheses.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        })
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !(catches() && sleeps()) {
        assert!(std::time::Instant::now() < until, "the command does not wait");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn the_first_signal_ends_a_command_that_waits_for_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let run = |line: &[&str], stdin: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(line).current_dir(&dir).stdin(stdin).stderr(Stdio::piped()).spawn().unwrap()
    };
    for (line, writes) in [
        (&["mrc", "pipe"][..], false),
        (&["mrc", "pipe"], true),
        (&["simulate", "pipe", "--config", "c.toml"], true),
        (&["trace", "convert", "pipe", "-o", "x.csv"], true),
        (&["mrc", "-"], false),
    ] {
        std::fs::write(dir.path().join("c.toml"), "[cache]\ndram = '1MiB'\n").unwrap();
        let mut command = run(line, Stdio::piped());
        // Stays open: the end of the input would end the command, too.
        let stdin = command.stdin.take();
        // This returns once the command opens the pipe; the command then waits for data.
        let writer = writes.then(|| std::fs::File::options().write(true).open(&pipe).unwrap());
        if let Some(mut writer) = writer.as_ref() {
            use std::io::Write;
            let lines: String =
                (0..10_000).map(|n| format!("{n},read,{},4096\n", n * 4096)).collect();
            writer.write_all(format!("time_s,op,offset,length\n{lines}").as_bytes()).unwrap();
        }
        wait_until_asleep(command.id());
        let pid = command.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let output = command.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("stopped"), "{line:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{line:?}: {said}");
        drop((writer, stdin));
    }
    let left: Vec<_> = dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "pipe" || name == "c.toml"), "{left:?}");
}

#[test]
fn volumes_whose_names_have_a_comma_or_begin_with_a_dash_can_be_selected() {
    let dir = tempfile::tempdir().unwrap();
    let log = "fio version 2 iolog\na,b add\na,b open\n-c add\n-c open\n\
               a,b read 0 4096\n-c read 4096 4096\n-c write 0 4096\n";
    std::fs::write(dir.path().join("t.log"), log).unwrap();
    let requests = |volumes| json(dir.path(), &["trace", "info", "t.log", "--json", volumes]);
    assert_eq!(requests("--volumes=a\\,b")["requests"], 1);
    assert_eq!(requests("--volumes=-c")["requests"], 2);
    assert_eq!(requests("--volumes=-c,a\\,b")["requests"], 3);
}
