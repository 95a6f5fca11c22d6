//! `forebay partition` as users run it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{self, forebay};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json("partition", args)
}

fn refusal(args: &[&str]) -> String {
    common::refusal("partition", args)
}

/// Three volumes in one file that covers 50 minutes: `loop` reads 4 MiB repeatedly in order,
/// `random` accesses 16 MiB at random (a third are writes), and `once` reads nothing twice.
fn trace(dir: &tempfile::TempDir) -> String {
    let mut csv = String::new();
    let mut seed = 5u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    for n in 0..30_000u64 {
        let time = 128_166_372_003_061_629 + n * 1_000_000;
        let (host, op, block, blocks) = match n % 3 {
            0 => ("loop", "Read", n / 3 % 256 * 4, 4),
            1 => ("random", if random(3) == 0 { "Write" } else { "Read" }, random(4096), 1),
            _ => ("once", "Read", n / 3 * 8, 8),
        };
        csv += &format!("{time},{host},0,{op},{},{},100\n", block << 12, blocks << 12);
    }
    let path = dir.path().join("trace.csv");
    std::fs::write(&path, csv).unwrap();
    path.to_str().unwrap().to_string()
}

fn volume<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let volumes = answer["volumes"].as_array().unwrap();
    let found = volumes.iter().find(|v| v["volume"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("{answer}"))
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field}: {value}"))
}

fn sum(answer: &Value, field: &str) -> f64 {
    answer["volumes"].as_array().unwrap().iter().map(|v| number(v, field)).sum()
}

#[test]
fn every_goal_divides_what_there_is_and_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    for (goal, field) in [
        ("latency", "predicted_latency_us"),
        ("iops", "predicted_iops"),
        ("hits", "hit_ratio"),
        ("ppc", "hit_ratio"),
    ] {
        let answer = json(
            &[&trace, "--flash", "8MiB", "--goal", goal, "--weigh", "volumes"]
                [..if goal == "iops" { 5 } else { 7 }],
        );
        assert_eq!(answer["volumes"].as_array().unwrap().len(), 3, "{goal}");
        let (flash, left) = (sum(&answer, "flash_bytes"), &answer["unallocated"]);
        assert_eq!(flash + number(left, "flash_bytes"), f64::from(8 << 20), "{goal}");
        assert_eq!(volume(&answer, "once")["flash_bytes"], 0, "{goal}: it has no hits to gain");
        if goal != "ppc" {
            let objective = number(&answer, "objective");
            assert!((sum(&answer, field) / objective - 1.0).abs() < 1e-9, "{goal}: {answer}");
            let better = |other: f64| {
                if goal == "latency" { objective <= other } else { objective >= other }
            };
            for baseline in answer["baselines"].as_array().unwrap() {
                let other = number(baseline, "objective");
                assert!(baseline["name"] == "shared" || better(other * (1.0 - 1e-9)), "{goal}");
            }
            // The bound holds for every division, even in finer units.
            let bound = number(&answer, "objective_bound");
            assert!(if goal == "latency" { bound <= objective } else { bound >= objective });
        }
        for v in answer["volumes"].as_array().unwrap() {
            assert!((0.0..=1.0).contains(&number(v, "hit_ratio")));
            assert!(v["simulated_latency_us"].is_null());
        }
    }
}

#[test]
fn a_loop_gets_all_of_itself_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    // With 4 MiB, the loop always hits; with slightly less, it never does.
    let enough = json(&[&trace, "--flash", "8MiB", "--goal", "hits"]);
    assert_eq!(volume(&enough, "loop")["flash_bytes"], 4 << 20);
    assert!(number(volume(&enough, "loop"), "hit_ratio") > 0.9);
    let little = json(&[&trace, "--flash", "3MiB", "--goal", "hits"]);
    assert_eq!(volume(&little, "loop")["flash_bytes"], 0);
    assert_eq!(volume(&little, "random")["flash_bytes"], 3 << 20);
}

#[test]
fn a_cache_that_is_no_whole_number_of_units_is_divided_to_the_last_block() {
    let dir = tempfile::tempdir().unwrap();
    // A loop over 101 blocks, repeated four times, and a scan.
    let mut csv = String::from("time_us,volume,op,offset,length\n");
    for n in 0..404u64 {
        csv += &format!("{n},loop,r,{},4096\n{n},scan,r,{},4096\n", n % 101 * 4096, n * 4096);
    }
    let trace = dir.path().join("loop.csv").to_str().unwrap().to_string();
    std::fs::write(&trace, csv).unwrap();
    let args = [&trace[..], "--flash", "413696", "--unit", "64KiB", "--goal", "hits"];
    for search in ["exact", "anneal"] {
        let args = [&args[..], &["--search", search]].concat();
        let answer = json(&args);
        assert_eq!(number(&answer, "objective"), 303.0 / 808.0, "{answer}");
        assert_eq!(volume(&answer, "loop")["flash_bytes"], 413_696);
        assert!(answer["objective_bound"].as_f64().is_none_or(|bound| bound >= 303.0 / 808.0));
        let output = forebay(&[&["partition"], &args[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !said.contains("Unused"), "{said}");
    }
    // With one block less, no volume benefits from the cache.
    let output = forebay(&["partition", &trace, "--flash", "400KiB", "--goal", "hits"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("more cache would not improve the goal: 400 KiB of flash"), "{said}");
    // Half of the cache for each volume, which is not a whole number of blocks either.
    let answer = json(&[&args[..], &["--floor", "206848"]].concat());
    assert_eq!(volume(&answer, "loop")["flash_bytes"], 413_696, "a scan has no use for a floor");
    let more = refusal(&[&args[..], &["--floor", "413697"]].concat());
    assert!(more.contains("--floor"), "{more}");
}

#[test]
fn there_is_no_bound_where_finer_units_might_meet_a_target() {
    let dir = tempfile::tempdir().unwrap();
    // A loop over 100 blocks that benefits only if all of them fit, and five times as many random
    // reads, in a cache of 97 blocks. Seven units would hold the loop.
    let mut csv = String::from("time_us,volume,op,offset,length\n");
    for n in 0..400u64 {
        csv += &format!("{n},loop,r,{},4096\n", n % 100 * 4096);
        for m in 0..5 {
            let block = ((n * 5 + m).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 113;
            csv += &format!("{n},other,r,{},4096\n", block * 4096);
        }
    }
    let trace = dir.path().join("target.csv").to_str().unwrap().to_string();
    std::fs::write(&trace, csv).unwrap();
    let args = [&trace[..], "--flash", "388KiB", "--unit", "64KiB", "--goal", "hits"];
    let with = |target| json(&[&args[..], &["--target", target]].concat());
    let (missed, met) = (with("loop=200us"), with("loop=1s"));
    assert_eq!((&missed["targets_met"], &met["targets_met"]), (&false.into(), &true.into()));
    assert!(missed["objective_bound"].is_null(), "{missed}");
    assert!(number(&met, "objective_bound") >= number(&met, "objective"), "{met}");
}

#[test]
fn performance_per_cost_is_shown_per_gib() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    for (weigh, name) in [
        ("requests", "hits as a share of all requests, per GiB"),
        ("volumes", "sum of hit ratios per GiB"),
    ] {
        let args = [&trace[..], "--flash", "6MiB", "--goal", "ppc", "--weigh", weigh];
        let output = forebay(&[&["partition"], &args[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        let table = said.split_once("latency\n").expect("a table of volumes").1;
        assert!(table.contains(name), "{said}");
    }
}

#[test]
fn annealing_is_seeded_and_not_better_than_exact_search() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let with = |more: &[&str]| {
        let args = [&trace[..], "--flash", "6MiB", "--dram", "1MiB", "--goal", "latency"];
        json(&[&args[..], &["--unit", "256KiB", "--dram-unit", "128KiB"], more].concat())
    };
    let exact = with(&[]);
    let anneal = with(&["--search", "anneal", "--seed", "7"]);
    assert_eq!(anneal, with(&["--search", "anneal", "--seed", "7"]));
    assert_eq!((&exact["search"], &anneal["search"]), (&"exact".into(), &"anneal".into()));
    let (best, found) = (number(&exact, "objective"), number(&anneal, "objective"));
    assert!(best <= found * (1.0 + 1e-9) && found <= best * 1.05, "{best} {found}");
    assert_eq!(exact["units"]["flash_bytes"], 256 << 10);
    for v in exact["volumes"].as_array().unwrap() {
        assert_eq!(v["flash_bytes"].as_u64().unwrap() % (256 << 10), 0);
        assert_eq!(v["dram_bytes"].as_u64().unwrap() % (128 << 10), 0);
    }
    assert!(sum(&exact, "dram_bytes") > 0.0);
}

#[test]
fn targets_are_met_where_they_can_be_and_told_where_not() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let args = [&trace[..], "--flash", "5MiB", "--goal", "hits"];
    let free = json(&args);
    let names: Vec<&str> =
        free["volumes"].as_array().unwrap().iter().map(|v| v["volume"].as_str().unwrap()).collect();
    let name = names.iter().find(|n| n.starts_with("random")).unwrap();
    let before = number(volume(&free, "random"), "predicted_latency_us");
    // It gets as much of the loop's 4 MiB as it needs to be 10% faster.
    let target = format!("{name}={}us", (before * 0.9) as u64);
    let kept = json(&[&args[..], &["--target", &target]].concat());
    let random = volume(&kept, "random");
    assert_eq!((&kept["targets_met"], &random["target_met"]), (&true.into(), &true.into()));
    assert!(number(random, "predicted_latency_us") <= number(random, "target_us"));
    assert!(number(random, "flash_bytes") > number(volume(&free, "random"), "flash_bytes"));
    let target = format!("{name}=1us");
    let output = forebay(&[&["partition"], &args[..], &["--target", &target]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("NOT MET"), "{text}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("target is not met for") && said.contains(name), "{said}");
}

#[test]
fn prediction_and_simulation_come_to_agree() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    for more in [&["--goal", "latency"][..], &["--goal", "iops", "--dram", "1MiB"]] {
        let args = [&trace[..], "--flash", "6MiB", "--evaluate", "simulate"];
        let answer = json(&[&args[..], more].concat());
        assert_eq!(answer["converged"], true, "{answer}");
        let rounds = answer["rounds"].as_array().unwrap();
        assert!(number(rounds.last().unwrap(), "deviation") <= 0.05);
        let (predicted, simulated) =
            (number(&answer, "objective"), number(&answer, "simulated_objective"));
        assert!((predicted / simulated - 1.0).abs() <= 0.05, "{predicted} {simulated}");
        for v in answer["volumes"].as_array().unwrap() {
            let apart = number(v, "hit_ratio") - number(v, "simulated_hit_ratio");
            assert!(apart.abs() < 0.05, "{v}");
            assert!(number(v, "simulated_latency_us") > 0.0);
        }
        let closed = more.contains(&"iops");
        let shared = &answer["baselines"][1];
        assert_eq!(shared["name"], "shared");
        assert_eq!(shared["simulated_objective"].is_null(), closed);
        assert!(answer["baselines"][0]["simulated_objective"].is_number());
        assert_eq!(answer, json(&[&args[..], more].concat()), "the same call, the same answer");
    }
}

#[test]
fn traces_that_name_a_volume_alike_are_told_to_share_it() {
    let dir = tempfile::tempdir().unwrap();
    let synth = |name: &str, volume: &str| {
        let path = dir.path().join(name).to_str().unwrap().to_owned();
        let spec = format!("uniform:volume={volume},blocks=1Ki,requests=2k");
        assert!(forebay(&["trace", "synth", &spec, "-o", &path]).status.success());
        path
    };
    let [a, b, c] = [("a.parquet", "one"), ("b.parquet", "one"), ("c.parquet", "two")]
        .map(|(name, volume)| synth(name, volume));
    let said = |traces: &[&str]| {
        let output = forebay(&[&["partition"], traces, &["--flash", "1MiB"]].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let alike = said(&[&a, &b, &c]);
    assert!(alike.contains("3 traces have 2 volumes") && alike.contains("count as one"), "{alike}");
    assert!(!said(&[&a, &c]).contains("count as one"));
}

/// Latencies of minutes come from a queue; readers should not mistake them for device latencies.
#[test]
fn volumes_that_overload_their_devices_are_named_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fast.parquet");
    let path = path.to_str().unwrap();
    let spec = "zipf:volume=db,blocks=64Ki,weight=3,requests=40k + uniform:volume=web,blocks=8Ki";
    assert!(forebay(&["trace", "synth", spec, "-o", path]).status.success());
    let said = |more: &[&str]| {
        let args = ["partition", path, "--flash", "24MiB", "--evaluate", "simulate"];
        let output = forebay(&[&args[..], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let fast = said(&[]);
    for part in ["overloaded", "requests of db", "--rate 0.02,", "--queue-depth 8"] {
        assert!(fast.contains(part), "{part}: {fast}");
    }
    let less = said(&["--rate", "0.1"]);
    assert!(less.contains("overloaded") && less.contains("--rate 0.02,"), "{less}");
    for line in fast.lines().filter(|line| line.contains("did better than")) {
        let (one, other) = line.rsplit_once(": ").unwrap().1.split_once(" compared with ").unwrap();
        assert_ne!(one, other, "they are the same");
    }
    let slow = said(&["--rate", "0.02"]);
    assert!(!slow.contains("overloaded"), "{slow}");
    assert!(!said(&["--queue-depth", "8"]).contains("overloaded"));
}

/// The metadata of that much flash would need more memory than most machines have.
#[test]
fn more_flash_than_volumes_have_blocks_is_simulated_like_flash_for_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let simulated = |flash: &str| {
        let answer = json(&[&trace, "--flash", flash, "--evaluate", "simulate"]);
        let volumes = answer["volumes"].as_array().unwrap().clone();
        let fields = ["simulated_hit_ratio", "simulated_latency_us"];
        volumes.iter().map(|v| fields.map(|field| number(v, field))).collect::<Vec<_>>()
    };
    let (much, enough) = (simulated("3TiB"), simulated("1GiB"));
    assert_eq!((much.len(), enough.len()), (3, 3));
    for (much, enough) in much.iter().zip(enough) {
        assert_eq!(much[0], enough[0]);
        assert!((much[1] / enough[1] - 1.0).abs() < 0.01, "{much:?} {enough:?}");
    }
}

#[test]
fn several_traces_and_standard_input_are_divided_for_and_pictures_and_rows_written() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let (html, parquet) = (dir.path().join("x.html"), dir.path().join("x.parquet"));
    let args = ["--flash", "6MiB", "--dram", "1MiB", "--goal", "latency"];
    let files = ["--html", html.to_str().unwrap(), "--parquet", parquet.to_str().unwrap()];
    let output = forebay(&[&["partition", &trace], &args[..], &files].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["loop", "equal shares", "one shared cache", "bound for finer units", "Assumptions"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    for part in ["Share of each volume", "Request miss ratio by size", "share found"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("//cdn."));
    assert!(std::fs::metadata(parquet).unwrap().len() > 0);
    let from = |stdin: std::process::Stdio, path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output =
            command.args(["partition", path, "--json", "-q"]).args(args).stdin(stdin).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let file = std::fs::File::open(&trace).unwrap();
    let piped = from(file.into(), "-");
    assert_eq!(piped, from(std::process::Stdio::null(), &trace));
}

#[test]
fn what_cannot_be_done_is_refused_before_the_trace_is_read() {
    let cases: [(&[&str], &str); 19] = [
        (&[], "--flash"),
        (&["--flash", "many"], "many"),
        (&["--flash", "0"], "nothing to divide"),
        (&["--flash", "1MiB", "--goal", "speed"], "possible values"),
        (&["--flash", "1MiB", "--unit", "5000"], "--unit"),
        (&["--flash", "1MiB", "--unit", "2MiB"], "more than --flash"),
        (&["--flash", "1MiB", "--floor", "2MiB"], "--floor 2 MiB is more than"),
        (&["--flash", "1MiB", "--target", "vm1"], "VOLUME=TIME"),
        (&["--flash", "1MiB", "--flash-device", "nvm"], "the closest name is `nvme`"),
        (&["--flash", "1MiB", "--goal", "iops", "--weigh", "requests"], "--iops"),
        (&["--flash", "1MiB", "--rate", "2"], "--evaluate simulate"),
        (&["--flash", "1MiB", "--tolerance", "0"], "tolerance"),
        (&["--flash", "1MiB", "--tolerance", "0.1"], "--tolerance needs --evaluate simulate"),
        (&["--flash", "1MiB", "--rounds", "3"], "--rounds needs --evaluate simulate"),
        (&["--flash", "1MiB", "--steps", "9"], "--steps needs --search anneal"),
        (&["--flash", "1MiB", "--iops", "sum"], "--iops needs --goal iops"),
        (&["--flash", "100TiB", "--evaluate", "simulate"], "--flash 100 TiB is too large"),
        (&["--flash", "1MiB", "--dram", "5TiB", "--evaluate", "simulate"], "--dram 5 TiB is too"),
        (
            &["--flash", "1MiB", "--migration-period", "1min", "--evaluate", "simulate"],
            "--evaluate analytic",
        ),
    ];
    for (args, part) in cases {
        let said = refusal(&[&["no-such-trace.csv"], args].concat());
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn what_the_volumes_do_not_allow_is_refused_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let all = json(&[&trace, "--flash", "1MiB", "--goal", "hits"]);
    let name = volume(&all, "loop")["volume"].as_str().unwrap().to_string();
    let cases: [(&[&str], &str); 7] = [
        (&["--volumes", &name], "only one volume"),
        (&["--volumes", &name, &trace], "volumes with the same name count as one"),
        (&["--volumes", "nobody"], "nobody"),
        (&["--target", "lop=1ms"], &name),
        (&["--floor", "600KiB"], "more than the cache size to be divided"),
        (
            &["--dram", "1MiB", "--unit", "4KiB", "--dram-unit", "4KiB", "--flash", "64MiB"],
            "anneal",
        ),
        (&["--dram", "1GiB", "--unit", "4KiB", "--dram-unit", "4KiB", "--flash", "1GiB"], "anneal"),
    ];
    for (args, part) in cases {
        let flash: &[&str] = if args.contains(&"--flash") { &[] } else { &["--flash", "1MiB"] };
        let said = refusal(&[&[&trace[..], "--goal", "hits"], flash, args].concat());
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn a_long_search_shows_how_far_it_is_and_ends_by_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["partition", &trace, "--flash", "8MiB", "--search", "anneal"])
        .args(["--steps", "100000000000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let shown = lines.find(|line| line.as_ref().unwrap().contains("searching: "));
    assert!(shown.unwrap().unwrap().contains(" of 100 T"), "a search of so many steps");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(said.last().unwrap().contains("stopped by a signal"), "{said:?}");
}

/// Goal: the page's example can be pasted and prints what the page shows. Method: in the indented
/// blocks of the page, blocks that begin with `forebay` are commands, and the others are their
/// output.
#[test]
fn the_example_of_the_page_prints_what_the_page_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/partitioning.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("## An example").nth(1).unwrap();
    // The section that follows describes traces that are not in the repository.
    let example = example.split("\n**Real traces**").next().unwrap();
    let (mut commands, mut shown, mut in_command) = (String::new(), Vec::new(), false);
    for line in example.lines() {
        let Some(line) = line.strip_prefix("    ") else {
            in_command = false;
            continue;
        };
        in_command |= line.starts_with("forebay ");
        match in_command {
            true => commands += &format!("{line}\n"),
            false => shown.push(line),
        }
    }
    assert!(commands.lines().count() > 3 && shown.len() > 8, "{example}");
    let dir = tempfile::tempdir().unwrap();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-e", "-c", &commands])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in shown {
        assert!(printed.lines().any(|p| p == line), "not printed: {line}\n{printed}");
    }
    // The values that the page's text mentions for the last command.
    assert!(printed.contains("5 MiB") && printed.contains("6 ms, met"), "{printed}");
    assert!(printed.contains("16.1 ms"), "{printed}");
}

#[test]
fn under_migration_curves_are_those_of_what_moved() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let args = [&trace[..], "--flash", "8MiB", "--goal", "hits"];
    let (now, later) = (json(&args), json(&[&args[..], &["--migration-period", "5min"]].concat()));
    assert!(number(&later, "objective") < number(&now, "objective"));
    assert!(later["baselines"][1]["objective"].is_null(), "a shared cache is not measured then");
    assert!(later["baselines"][0]["objective"].is_number());
}

#[test]
fn real_traces_of_several_volumes_are_divided_better_than_equally() {
    let traces = std::env::var("FOREBAY_TRACES").map_or_else(
        |_| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces")),
        PathBuf::from,
    );
    let trace = traces.join("disksim/ascii.trace.zst");
    if !trace.exists() {
        println!("skipped: {} is not there", trace.display());
        return;
    }
    let answer = json(&[trace.to_str().unwrap(), "--flash", "64MiB", "--goal", "hits"]);
    assert_eq!(answer["volumes"].as_array().unwrap().len(), 14);
    let equal = number(&answer["baselines"][0], "objective");
    assert!(number(&answer, "objective") > equal * 1.01, "{equal}");
}
