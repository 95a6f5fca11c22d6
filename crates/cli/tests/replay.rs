//! `forebay replay` and `forebay load` as users run them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

fn forebay(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).current_dir(dir).args(args).output().unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let output = forebay(dir, &[args, &["--json", "--quiet"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(dir: &Path, args: &[&str], status: i32, says: &[&str]) {
    let output = forebay(dir, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for text in says {
        assert!(stderr.contains(text), "{args:?} does not say `{text}`: {stderr}");
    }
}

/// Writes a trace of 1,000 requests to 4 MiB, a third of them writes.
fn trace(dir: &Path) {
    let spec = "zipf:blocks=1024,requests=1000,write=0.33,rate=100000";
    assert!(forebay(dir, &["trace", "synth", spec, "-o", "t.parquet"]).status.success());
}

/// Writes two traces of one second each, 17 years apart by their dates (in 100 ns since 1601).
fn dated(dir: &Path) -> [&'static str; 2] {
    for (name, start) in
        [("old.csv", 128_166_372_000_000_000_u64), ("new.csv", 133_500_000_000_000_000)]
    {
        let line = |n: u64| format!("{},host,0,Read,{},4096,10\n", start + n * 100_000, n * 4096);
        std::fs::write(dir.join(name), (0..100).map(line).collect::<String>()).unwrap();
    }
    ["old.csv", "new.csv"]
}

#[test]
fn traces_of_distant_dates_are_noted_with_the_option_that_starts_them_together() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let traces = dated(dir);
    std::fs::write(dir.join("c.toml"), "[cache]\ndram = '16MiB'\n").unwrap();
    let simulate = [&["simulate"], &traces[..], &["--config", "c.toml"]].concat();
    let target = ["--target", "d.img", "--create", "1MiB", "--write"];
    let replay = [&["replay"], &traces[..], &target, &["--as-fast-as-possible"]].concat();
    for args in [simulate, replay] {
        let says = |more: &[&str]| {
            let output = forebay(dir, &[&args[..], more].concat());
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let apart = says(&[]);
        assert_eq!(apart.matches("gap of 17 years without requests").count(), 1, "{apart}");
        assert!(apart.contains("use --start-together"), "{apart}");
        let together = says(&["--start-together"]);
        assert!(!together.contains("years"), "{together}");
    }
    let compared =
        forebay(dir, &["simulate", "old.csv", "new.csv", "--config", "c.toml", "--policy", "lru"]);
    assert!(String::from_utf8_lossy(&compared.stderr).contains("17 years"), "{compared:?}");
}

const FAST: [&str; 4] = ["t.parquet", "--as-fast-as-possible", "--queue-depth", "8"];

#[test]
fn a_replay_reports_every_field_that_is_promised() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path());
    let to_file = ["--target", "disk.img", "--create", "4MiB", "--write", "--verify"];
    let mut args = [&["replay"], &FAST[..], &to_file].concat();
    args.extend(["--parquet", "run.parquet", "--intervals", "i.parquet", "--html", "run.html"]);
    let answer = json(dir.path(), &args);
    assert_eq!(answer["requests"], 1000);
    assert_eq!(answer["errors"], 0);
    assert_eq!(answer["complete"], true);
    let (reads, writes) = (answer["reads"].as_u64().unwrap(), answer["writes"].as_u64().unwrap());
    assert_eq!(reads + writes, 1000);
    for kind in ["read", "write", "all"] {
        let latency = &answer["latency_us"][kind];
        let at = |name: &str| latency[name].as_f64().unwrap();
        assert!(at("mean") > 0.0 && at("p50") > 0.0);
        let rising = ["p50", "p90", "p99", "p999", "p9999", "max"];
        assert!(rising.windows(2).all(|w| at(w[0]) <= at(w[1])), "{latency}");
    }
    for field in ["bytes_per_s", "requests_per_s"] {
        assert!(answer["throughput"][field].as_f64().unwrap() > 0.0);
    }
    assert!(answer["cpu_s"].as_f64().unwrap() > 0.0);
    assert!(answer["rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(answer["component_latency_us"], serde_json::json!({}), "the target is not ours");
    assert!(answer["queue"]["max"].as_u64().unwrap() <= 8);
    for due in ["response_us", "lateness_us"] {
        assert!(answer[due].is_null(), "nothing is due in a closed loop: {}", answer[due]);
        let timed = ["replay", "t.parquet", "--rate", "1000", "--target", "disk.img", "--write"];
        assert!(json(dir.path(), &timed)[due]["max"].is_f64(), "{due}");
    }
    assert_eq!(answer["verify"]["wrong_bytes"], 0);
    assert!(answer["verify"]["checked_bytes"].as_u64().unwrap() > 0);
    assert_eq!(answer["trace"]["xxh3"].as_str().unwrap().len(), 16);
    assert!(answer["machine"]["cores"].as_u64().unwrap() > 0);
    let html = std::fs::read_to_string(dir.path().join("run.html")).unwrap();
    assert!(html.contains("Latency by percentile") && html.contains("Requests completed"));
    assert_says_the_same(&answer, &dir.path().join("run.parquet"));
    assert_eq!(
        rows(&dir.path().join("i.parquet")).len(),
        answer["intervals"].as_array().unwrap().len()
    );
}

/// The rows of a Parquet file.
fn rows(path: &Path) -> Vec<Row> {
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    file.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

/// Checks that every column equals the field of its name in the document, or is null if there is no
/// such field.
fn assert_says_the_same(answer: &Value, path: &Path) {
    fn field<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
        let mut fields = document.as_object()?.iter();
        fields.find_map(|(own, value)| match name.strip_prefix(own.as_str())? {
            "" => Some(value),
            inner => field(value, inner.strip_prefix('_')?),
        })
    }
    let rows = rows(path);
    assert_eq!(rows.len(), 1);
    for (name, value) in rows[0].get_column_iter() {
        let expected = field(answer, name).cloned().unwrap_or_default();
        let same = match value {
            Field::Null => expected.is_null(),
            Field::Bool(value) => expected == *value,
            Field::Long(value) => expected == *value,
            // serde_json reads some numbers inexactly.
            Field::Double(value) => {
                expected.as_f64().is_some_and(|e| (e / value - 1.0).abs() < 1e-12 || e == *value)
            }
            Field::Str(value) => expected == *value,
            other => panic!("{name} is {other}"),
        };
        assert!(same, "{name} is {value}, not {expected}");
    }
}

#[test]
fn our_own_cache_reports_what_a_simulation_reports() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path());
    let config = "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
                  [flash]\npath = 'flash.img'\nsize = '256MiB'\nlayout = 'log'\n\
                  [[volume]]\nname = 'v'\nbacking = 'disk.img'\nsize = '8MiB'\n";
    std::fs::write(dir.path().join("f.toml"), config).unwrap();
    let mut args = [&["replay"], &FAST[..], &["--config", "f.toml", "--verify"]].concat();
    args.extend(["--parquet", "run.parquet"]);
    let answer = json(dir.path(), &args);
    assert_says_the_same(&answer, &dir.path().join("run.parquet"));
    assert_eq!((&answer["requests"], &answer["verify"]["wrong_bytes"]), (&1000.into(), &0.into()));
    for tier in ["tier1", "tier2"] {
        for op in ["read", "write"] {
            assert!(answer["hits"][tier][op].is_u64());
        }
    }
    assert!(answer["hits"]["tier1"]["read"].as_u64().unwrap() > 0);
    assert!(answer["tier2_bytes_written"].as_u64().unwrap() > 0);
    assert!(answer["backing"]["read_bytes"].as_u64().unwrap() > 0);
    assert!(answer["dirty_blocks_max"].as_u64().unwrap() > 0);
    // The text shows percentages, as the text of a simulation does.
    let again = [&args[..], &["--write"]].concat();
    let output = forebay(dir.path(), &again);
    let warm = "blocks from an earlier run, and accesses to these blocks count as hits";
    let says =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).contains(warm);
    assert!(says(&output), "{output:?}");
    let cold = [&again[..], &["--format-devices"]].concat();
    assert!(!says(&forebay(dir.path(), &cold)));
    let text = String::from_utf8(output.stdout).unwrap();
    let of = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(of("target").ends_with(" v, in this process"), "{text}");
    assert!(of("hits in memory").contains(" % ("), "{text}");
    // A workload has the same identity in a simulation.
    let simulated = json(dir.path(), &["simulate", "t.parquet", "--config", "f.toml"]);
    assert_eq!(simulated["trace"], answer["trace"], "the same name, too");
}

#[test]
fn operations_of_a_shaped_device_take_as_long_as_it_says_by_volume_and_kind() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path());
    let config = "[cache]\ndram = '1MiB'\nwrite_policy = 'write-through'\n\
                  [flash]\npath = 'flash.img'\nsize = '64MiB'\nlayout = 'log'\nshape = 'fast'\n\
                  [[volume]]\nname = 'v'\nbacking = 'v.img'\nsize = '8MiB'\nshape = 'slow'\n\
                  [[volume]]\nname = 'w'\nbacking = 'w.img'\nsize = '8MiB'\n\
                  [shape.slow]\nread_latency = '2ms'\nwrite_latency = '3ms'\nparallelism = 64\n\
                  [shape.fast]\nread_latency = '300us'\nwrite_latency = '500us'\n\
                  parallelism = 64\n";
    std::fs::write(dir.path().join("f.toml"), config).unwrap();
    let args = [&["replay"], &FAST[..], &["--config", "f.toml", "--html", "r.html"]].concat();
    let components = &json(dir.path(), &args)["component_latency_us"];
    // A completion is delayed until its time, and never delivered earlier.
    for (of, kind, us) in [
        (components, "backing_read", 2000.0),
        (components, "backing_write", 3000.0),
        (components, "tier2_write", 500.0),
        (&components["volumes"]["v"], "backing_read", 2000.0),
    ] {
        let latency = &of[kind];
        assert!(latency["count"].as_u64().unwrap() > 2, "{kind}: {latency}");
        // Percentiles are accurate to 1%.
        assert!(latency["p50"].as_f64().unwrap() >= us * 0.99, "{kind}: {latency}");
        assert!(latency["max"].as_f64() >= latency["p9999"].as_f64(), "{kind}: {latency}");
    }
    assert_eq!(components["volumes"]["w"]["backing_read"]["count"], 0);
    let html = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert!(html.contains("Latency of each device") && html.contains("flash writes"));
}

#[test]
fn nothing_is_written_or_created_without_leave() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path());
    let disk = dir.path().join("disk.img");
    let to =
        |more: &[&'static str]| [&["replay"], &FAST[..], &["--target", "disk.img"], more].concat();
    refused(dir.path(), &to(&["--create", "4MiB"]), 1, &["disk.img", "--write", "--reads-only"]);
    refused(dir.path(), &to(&["--create", "1MiB", "--write"]), 1, &["4.0 MiB", "1 MiB", "--wrap"]);
    assert!(!disk.exists());
    refused(dir.path(), &to(&["--write"]), 1, &["disk.img", "--create"]);
    let precious = vec![7; 4 << 20];
    std::fs::write(&disk, &precious).unwrap();
    refused(dir.path(), &to(&[]), 1, &["would destroy", "nothing was written"]);
    let answer = json(dir.path(), &to(&["--reads-only"]));
    assert_eq!(answer["writes"], 0);
    assert!(answer["adjusted"]["writes_left_out"].as_u64().unwrap() > 100);
    assert_eq!(std::fs::read(&disk).unwrap(), precious);
}

/// The configuration may belong to a production server. Method: a file in place of a store, and
/// each command that would write to it; then the options that allow such runs.
#[test]
fn what_a_configuration_names_and_is_there_is_overwritten_only_with_leave() {
    let dir = tempfile::tempdir().unwrap();
    trace(dir.path());
    let config = "[cache]\ndram = '1MiB'\n[[volume]]\nname = 'v'\nbacking = 'disk.img'\n\
                  layout = 'none'\nsize = '8MiB'\n";
    std::fs::write(dir.path().join("f.toml"), config).unwrap();
    let disk = dir.path().join("disk.img");
    let precious = vec![7; 8 << 20];
    std::fs::write(&disk, &precious).unwrap();
    let replay = [&["replay"], &FAST[..], &["--config", "f.toml"]].concat();
    let spec = "uniform:blocks=1024,requests=100,write=1";
    let load = ["load", spec, "--config", "f.toml"];
    for command in [&replay[..], &load] {
        let says = ["destroy the data on disk.img", "nothing was written", "--write"];
        refused(dir.path(), command, 1, &says);
        assert!(std::fs::read(&disk).unwrap() == precious, "{command:?}");
        json(dir.path(), &[command, &["--reads-only"]].concat());
        assert!(std::fs::read(&disk).unwrap() == precious, "{command:?} only reads");
    }
    json(dir.path(), &["load", "uniform:blocks=1024,requests=100,write=0", "--config", "f.toml"]);
    json(dir.path(), &[&load[..], &["--write"]].concat());
    assert!(std::fs::read(&disk).unwrap() != precious);
    std::fs::remove_file(&disk).unwrap();
    json(dir.path(), &replay);
    refused(dir.path(), &replay, 1, &["disk.img", "--write"]);
    json(dir.path(), &[&replay[..], &["--write"]].concat());
}

#[test]
fn bad_usage_is_told_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for (args, says) in [
        (&["replay", "t.parquet"][..], "--target"),
        (&["replay", "t.parquet", "--target", "x", "--config", "y"], "cannot be used"),
        (
            &["replay", "t.parquet", "--target", "x", "--target", "nbd://h/x"],
            "all paths or all NBD",
        ),
        (&["replay", "t.parquet", "--target", "http://h/x"], "not an NBD address"),
        (&["replay", "t.parquet", "--target", "x", "--rate", "0"], "above 0"),
        (&["replay", "-", "--target", "x"], "standard input"),
        (&["load", "zipf:nonsense=1", "--target", "x"], "nonsense"),
        (&["load", "zipf", "--target", "x", "--rate", "5", "--jobs", "2"], "cannot be used"),
    ] {
        refused(dir.path(), args, 2, &[says]);
    }
}

/// Goal: a run that does not start leaves no file. Method: several targets, the second of which
/// cannot be opened.
#[test]
fn a_run_that_cannot_open_a_target_removes_the_files_that_it_has_created() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    std::fs::create_dir(at.join("directory")).unwrap();
    std::fs::write(at.join("kept.img"), [0; 4096]).unwrap();
    std::os::unix::fs::symlink("kept.img", at.join("link.img")).unwrap();
    let load = |more: &[&str], status, says: &[&str]| {
        refused(at, &[&["load", "zipf:blocks=1k", "--requests", "9"], more].concat(), status, says);
        let mut left: Vec<_> =
            at.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["directory", "kept.img", "link.img"], "{more:?}");
    };
    let create = ["--create", "4MiB", "--wrap"];
    let new = ["--target", "new.img"];
    let cannot = &["neither a regular file nor a block device"];
    load(&[&new[..], &["--target", "directory"], &create].concat(), 1, cannot);
    let twice = &["new.img is given as a target twice", "--concatenate"];
    load(&[new, new, ["--create", "4MiB"]].concat(), 2, twice);
    let same = &["new.img and ./new.img are the same file"];
    load(&[&new[..], &["--target", "./new.img"], &create].concat(), 2, same);
    let same = &["kept.img and link.img are the same file"];
    load(&["--target", "kept.img", "--target", "link.img", "--wrap"], 2, same);
    // The advice differs from the options that were given.
    for (size, says) in [("100", "next: use a larger --create SIZE"), ("9EiB", "cannot")] {
        let args = [&new[..], &["--wrap", "--create", size]].concat();
        load(&args, 1, &[says]);
        let output = forebay(at, &[&["load", "zipf:blocks=1k"], &args[..]].concat());
        assert!(!String::from_utf8_lossy(&output.stderr).contains("to create a file"), "{size}");
    }
    load(&new, 1, &["use --create SIZE to create a file"]);
}

#[test]
fn an_option_without_effect_on_the_target_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (file, export) = (["--target", "x.img"], ["--target", "nbd://127.0.0.1:1/x"]);
    for (target, options, says) in [
        (file, &["--format-devices"][..], "cannot be used with"),
        (file, &["--discard-dirty-data"], "cannot be used with"),
        (file, &["--keep-dirty"], "cannot be used with"),
        (file, &["--quiesce"], "cannot be used with"),
        (export, &["--format-devices"], "cannot be used with"),
        (file, &["--connections", "7"], "only to a --target that is an NBD export"),
        (export, &["--create", "4MiB"], "only to a --target that is a file or a block device"),
        (export, &["--buffered"], "only to a --target that is a file or a block device"),
        (["--config", "c.toml"], &["--connections", "7"], "cannot be used with"),
    ] {
        let load = ["load", "zipf:blocks=1k", "--requests", "9"];
        refused(dir.path(), &[&load[..], &target, options].concat(), 2, &[says]);
    }
}

#[test]
fn a_load_lasts_as_long_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let to_file = ["--target", "disk.img", "--create", "4MiB", "--write"];
    let load = |more: &[&'static str]| {
        json(dir.path(), &[&["load", "uniform:blocks=1024,write=0.5"], &to_file[..], more].concat())
    };
    let counted = load(&["--requests", "3k", "--queue-depth", "4"]);
    assert_eq!(counted["requests"], 3000);
    assert_eq!(counted["ended_by"], "end");
    let timed = load(&["--duration", "200ms", "--rate", "1000"]);
    assert_eq!(timed["ended_by"], "time");
    // Requests are sent on time or late, but not early.
    assert!(timed["requests"].as_u64().unwrap() <= 201);
}

#[test]
fn a_replay_that_is_interrupted_reports_what_was_done_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .current_dir(dir.path())
        .args(["load", "uniform:blocks=1024", "--target", "disk.img", "--create", "4MiB"])
        .args(["--duration", "1h", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Progress is printed every few seconds, so the load is running when a line appears.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let running = lines.by_ref().map_while(Result::ok).any(|line| line.contains("sending: "));
    assert!(running);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["complete"], &answer["ended_by"]), (&false.into(), &"signal".into()));
    assert!(answer["requests"].as_u64().unwrap() > 0);
    assert!(said.iter().any(|line| line.contains("stopped by a signal")), "{said:?}");
}

/// Starts an NBD server with an export of 1 MiB that ends the session at the first read.
fn server_that_fails_at_the_first_read(socket: &Path) -> std::thread::JoinHandle<()> {
    const OPTION_MAGIC: u64 = 0x0003_E889_0455_65A9;
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        fn take<const N: usize>(client: &mut impl Read) -> [u8; N] {
            let mut bytes = [0; N];
            client.read_exact(&mut bytes).unwrap();
            bytes
        }
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        take::<4>(&mut client);
        loop {
            let header: [u8; 16] = take(&mut client);
            let option = u32::from_be_bytes(header[8..12].try_into().unwrap());
            let length = u32::from_be_bytes(header[12..].try_into().unwrap());
            client.read_exact(&mut vec![0; length as usize]).unwrap();
            let mut reply = |kind: u32, data: &[u8]| {
                let header = [
                    &OPTION_MAGIC.to_be_bytes()[..],
                    &option.to_be_bytes(),
                    &kind.to_be_bytes(),
                    &(data.len() as u32).to_be_bytes(),
                    data,
                ];
                client.write_all(&header.concat()).unwrap();
            };
            match option {
                // NBD_OPT_INFO and NBD_OPT_GO: size and flags (HAS_FLAGS, SEND_FLUSH).
                6 | 7 => {
                    let info = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0, 0b101]].concat();
                    reply(3, &info);
                    reply(1, &[]);
                    if option == 7 {
                        break;
                    }
                }
                _ => reply(1 << 31 | 1, &[]),
            }
        }
        loop {
            let header: [u8; 28] = take(&mut client);
            let length = u32::from_be_bytes(header[24..].try_into().unwrap());
            match header[7] {
                0 => return,
                1 => client.read_exact(&mut vec![0; length as usize]).unwrap(),
                _ => {}
            }
            let reply = [&0x6744_6698u32.to_be_bytes()[..], &[0; 4], &header[8..16]].concat();
            client.write_all(&reply).unwrap();
        }
    })
}

#[test]
fn the_report_of_a_run_is_kept_if_the_target_fails_while_it_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spec = "zipf:blocks=256,requests=100,write=1,rate=100000";
    assert!(forebay(dir, &["trace", "synth", spec, "-o", "w.parquet"]).status.success());
    let server = server_that_fails_at_the_first_read(&dir.join("s"));
    let uri = format!("nbd+unix:///?socket={}", dir.join("s").display());
    let args = ["replay", "w.parquet", "--target", &uri, "--write", "--verify", "--json"];
    let output = forebay(dir, &args);
    server.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!((&answer["requests"], &answer["errors"]), (&100.into(), &0.into()));
    assert_eq!(answer["verify"]["complete"], false);
    assert_eq!(answer["verify"]["wrong_bytes"], 0);
    assert!(said.contains("the check of the written data is incomplete"), "{said}");
    assert!(said.contains("kept: the report") && !said.contains("signal"), "{said}");
}

#[test]
fn a_run_that_only_reads_leaves_the_dirty_data_of_an_earlier_one_on_flash() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    trace(dir);
    let config = "[cache]\ndram = '4MiB'\nwrite_policy = 'write-back'\n\
                  [flash]\npath = 'flash.img'\nsize = '256MiB'\n\
                  [[volume]]\nname = 'v'\nbacking = 'disk.img'\nsize = '8MiB'\n";
    std::fs::write(dir.join("f.toml"), config).unwrap();
    let with_config = [&["replay"], &FAST[..], &["--config", "f.toml"]].concat();
    json(dir, &[&with_config[..], &["--keep-dirty"]].concat());
    let dirty = || json(dir, &["flash", "info", "flash.img"])["dirty_blocks"].clone();
    let before = dirty();
    assert!(before.as_u64() > Some(0), "{before}");
    let answer = json(dir, &[&with_config[..], &["--reads-only"]].concat());
    assert!(answer["adjusted"]["writes_left_out"].as_u64() > Some(0), "{answer}");
    assert_eq!(dirty(), before, "flush.on_stop is `destage`");
    json(dir, &[&with_config[..], &["--write"]].concat());
    assert_eq!(dirty(), 0);
}
