//! `forebay mrc` as users run it.

use std::path::PathBuf;

use crate::common::{self, forebay};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json("mrc", args)
}

/// Two volumes: a loop over four blocks that is read eight times, and two blocks that are written
/// three times.
fn trace(dir: &tempfile::TempDir) -> String {
    let mut csv = String::new();
    let mut row = |disk: u32, op: &str, block: u64| {
        let time = 128_166_372_003_061_629 + csv.len() as u64;
        csv += &format!("{time},host,{disk},{op},{},4096,100\n", block * 4096);
    };
    for n in 0..32 {
        row(0, "Read", n % 4);
        if n < 6 {
            row(1, "Write", 100 + n % 2);
        }
    }
    let path = dir.path().join("trace.csv");
    std::fs::write(&path, csv).unwrap();
    path.to_str().unwrap().to_string()
}

fn point(curve: &Value, size_blocks: u64) -> &Value {
    let points = curve["points"].as_array().unwrap();
    points.iter().find(|p| p["size_blocks"] == size_blocks).unwrap_or_else(|| panic!("{curve}"))
}

#[test]
fn a_trace_that_reuses_nothing_has_no_size_in_which_all_reuses_fit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("once.parquet");
    let path = path.to_str().unwrap();
    let spec = "sequential:blocks=64,requests=64";
    assert!(forebay(&["trace", "synth", spec, "-o", path]).status.success());
    let text = String::from_utf8(forebay(&["mrc", path]).stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("reuses ")).unwrap_or_default();
    assert!(line.ends_with(" no block is reused"), "{text}");
    assert!(!text.contains("all reuses"), "{text}");
}

#[test]
fn the_answer_has_the_curve_of_each_volume_and_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let answer = json(&[&trace(&dir), "--per-volume"]);
    assert_eq!((&answer["requests"], &answer["accesses"]), (&38.into(), &38.into()));
    assert_eq!((&answer["reads"], &answer["writes"]), (&32.into(), &6.into()));
    assert_eq!((&answer["block_size"], &answer["distinct_blocks"]), (&4096.into(), &6.into()));
    assert_eq!(answer["sampled_rate"], 1.0);
    let all_hit = point(&answer, answer["max_distance"].as_u64().unwrap() + 1);
    assert!((all_hit["miss_ratio"].as_f64().unwrap() - 6.0 / 38.0).abs() < 1e-12);
    let volumes = answer["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2);
    assert_eq!(volumes[0]["max_distance"], 3);
    assert_eq!(point(&volumes[0], 4)["read_miss_ratio"], 4.0 / 32.0);
    assert_eq!(point(&volumes[1], 2)["write_miss_ratio"], 2.0 / 6.0);
    assert_eq!(point(&volumes[1], 1)["write_miss_ratio"], 1.0);
}

#[test]
fn equal_contents_count_once_where_blocks_are_found_by_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hashed.csv");
    let mut csv = "# hashes md5 4096 16\ntime_ns,op,offset,length,hashes\n".to_owned();
    // Three blocks with identical content are read in turn; between the reads, a fourth block with
    // other content is written.
    for n in 0..9u64 {
        csv += &format!("{n},read,{},4096,{:032x}\n", n % 3 * 4096, 7);
        csv += &format!("{n},write,{},4096,{:032x}\n", 1 << 20, 8);
    }
    std::fs::write(&path, csv).unwrap();
    let path = path.to_str().unwrap();
    let sectors = json(&[path, "--key", "sector"]);
    let contents = json(&[path, "--key", "content"]);
    assert_eq!((&sectors["key"], &contents["key"]), (&"sector".into(), &"content".into()));
    assert_eq!((&sectors["distinct_blocks"], &contents["distinct_blocks"]), (&4.into(), &2.into()));
    assert_eq!((&sectors["max_distance"], &contents["max_distance"]), (&3.into(), &1.into()));
    assert_eq!(point(&contents, 2)["read_miss_ratio"], 3.0 / 9.0);
    assert_eq!(point(&contents, 2)["write_miss_ratio"], 1.0 / 9.0);

    let info = forebay(&["-q", "trace", "info", "--json", path]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let contents = &info["contents"];
    assert_eq!((&contents["blocks_at_end"], &contents["contents_at_end"]), (&4.into(), &2.into()));
    assert_eq!(contents["rewritten"], 8);
}

#[test]
fn contents_need_hashes_and_a_cache_that_keeps_every_access() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    for (arguments, status, words) in [
        (&["--key", "content"][..], 1, "no content hashes"),
        (&["--key", "content", "--distance", "pod-ro"], 2, "trd or urd"),
        (&["--key", "content", "--sample", "0.1"], 2, "--sample"),
    ] {
        let output = forebay(&[&["mrc", &trace], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn options_reach_the_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let larger = json(&[&trace, "--block-size", "16KiB"]);
    assert_eq!((&larger["block_size"], &larger["distinct_blocks"]), (&16384.into(), &2.into()));
    assert_eq!(json(&[&trace, "--limit", "10"])["accesses"], 10);
    let useful = json(&[&trace, "--distance", "pod-ro", "--at", "16KiB"]);
    assert_eq!(useful["distance"], "pod-ro");
    assert_eq!(point(&useful, 4)["read_miss_ratio"], 4.0 / 32.0);
    assert_eq!(point(&useful, 4)["write_miss_ratio"], 1.0);
    let sampled = json(&[&trace, "--sample", "0.5"]);
    assert_eq!(sampled["sampled_rate"], 0.5);
    let never = json(&[&trace, "--migration-period", "1h", "--request-level"]);
    assert_eq!(never["max_distance"], Value::Null);
}

#[test]
fn rows_and_pictures_are_written_beside_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name| dir.path().join(name).to_str().unwrap().to_string();
    let (rows, page) = (file("x.parquet"), file("x.html"));
    json(&[&trace(&dir), "--per-volume", "--parquet", &rows, "--html", &page]);
    assert!(std::fs::read(rows).unwrap().starts_with(b"PAR1"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Miss ratio of each volume"));
    assert!(!page.contains("<script src"), "the page loads something");
}

#[test]
fn what_cannot_be_done_is_refused_before_reading() {
    for args in [
        &["--sample", "0.1", "--request-level"][..],
        &["--max-blocks", "1000", "--migration-period", "1s"],
        &["--sample", "0.1", "--max-blocks", "1000"],
        &["--max-blocks", "3"],
        &["--sample", "2"],
        &["--distance", "lru"],
        &["--migration-period", "0s"],
        &["--block-size", "5000"],
    ] {
        let output = forebay(&[&["mrc", "/nonexistent"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_trace_without_accesses_is_a_failure_and_not_an_empty_curve() {
    let dir = tempfile::tempdir().unwrap();
    let output = forebay(&["mrc", &trace(&dir), "--limit", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--limit"));
}

#[test]
fn the_cloudphysics_sample_has_its_known_footprint() {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    for name in ["cloudPhysicsIO.vscsi", "cloudPhysicsIO.csv"] {
        let path = root.join("cloudphysics").join(name);
        if !path.exists() {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("skipped: no {}", path.display());
            }
            continue;
        }
        let answer = json(&[path.to_str().unwrap()]);
        assert_eq!(answer["distinct_blocks"], 269_210, "{name}");
        assert_eq!(answer["accesses"], 1_141_869, "{name}");
    }
}

#[test]
fn curves_have_exactly_the_hits_of_the_cache_under_every_write_policy() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (trace, config) = (at("zipf.parquet"), at("cache.toml"));
    let spec = "zipf:blocks=3k,theta=0.7,requests=20k,seed=1,write=0.4";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace, "--quiet"]).status.success());
    let policies = [
        ("read-only", "lru-ro", false),
        ("write-only", "lru-wbwo", true),
        ("write-through", "trd", true),
        ("write-back", "trd", true),
    ];
    for (policy, distance, hits_writes) in policies {
        for blocks in [64, 500, 2000] {
            let text = format!("[cache]\ndram = {}\nwrite_policy = '{policy}'\n", blocks * 4096);
            std::fs::write(&config, text).unwrap();
            let run = ["simulate", &trace, "--config", &config, "--untimed", "--json", "--quiet"];
            let simulated: Value = serde_json::from_slice(&forebay(&run).stdout).unwrap();
            let size = (blocks * 4096).to_string();
            let curve = json(&[&trace, "--distance", distance, "--at", &size]);
            let hits = |of: &str, ratio: &str| {
                let of = curve[of].as_u64().unwrap() as f64;
                (of * (1.0 - point(&curve, blocks)[ratio].as_f64().unwrap())).round() as u64
            };
            let simulated = &simulated["hits"]["tier1"];
            assert_eq!(simulated["read"], hits("reads", "read_miss_ratio"), "{policy}, {blocks}");
            if hits_writes {
                let writes = hits("writes", "write_miss_ratio");
                assert_eq!(simulated["write"], writes, "{policy}, {blocks}");
            }
        }
    }
}

#[test]
fn slices_say_how_far_the_curve_may_be_off() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("zipf.parquet").to_str().unwrap().to_string();
    let spec = "zipf:blocks=20k,theta=0.7,requests=100k,seed=1,write=0.4";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace, "--quiet"]).status.success());
    let exact = json(&[&trace, "--at", "16MiB"]);
    let sliced = json(&[&trace, "--at", "16MiB", "--slices"]);
    for count in ["accesses", "reads", "writes", "distinct_blocks"] {
        assert_eq!(sliced[count], exact[count], "{count}");
    }
    let ratio = |curve: &Value| point(curve, 4096)["miss_ratio"].as_f64().unwrap();
    let bounds = &point(&sliced, 4096)["miss_ratio_bounds"];
    let [low, high] = ["low", "high"].map(|end| bounds[end].as_f64().unwrap());
    assert!(low <= ratio(&exact) && ratio(&exact) <= high, "{} within {bounds}", ratio(&exact));
    assert!(low < ratio(&sliced) && ratio(&sliced) < high && high - low < 0.05, "{bounds}");
    assert!(point(&exact, 4096)["miss_ratio_bounds"].is_null());
    let both = forebay(&["mrc", &trace, "--slices", "--per-volume"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn slices_of_several_processes_merge_to_the_curve_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let trace = at("zipf.parquet");
    let spec = "zipf:blocks=20k,theta=0.7,requests=100k,seed=1,write=0.4";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace, "--quiet"]).status.success());
    let slice = |slice: &str, distance: &str| {
        let file = at(&format!("{slice}-{distance}.json"));
        let which = ["mrc", &trace, "--slices", "4", "--slice", slice, "--distance", distance];
        assert!(forebay(&[&which[..], &["-o", &file]].concat()).status.success());
        file
    };
    for distance in ["trd", "pod-wbwo"] {
        let files = ["3", "1", "4", "2"].map(|number| slice(number, distance));
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let whole = json(&[&trace, "--slices", "4", "--distance", distance]);
        assert_eq!(json(&[&files[..], &["--merge"]].concat()), whole, "{distance}");
        let message = common::refusal("mrc", &[&files[1..], &["--merge"]].concat());
        assert!(message.contains("only 3 of 4 slices are given"), "{message}");
    }
    let [one, two, other] = [("1", "trd"), ("2", "trd"), ("2", "urd")].map(|(n, d)| slice(n, d));
    for (files, says) in [
        ([&one, &one], "slice 1 is given twice"),
        ([&one, &other], "was measured with different options"),
    ] {
        let message = common::refusal("mrc", &[files[0], files[1], "--merge"]);
        assert!(message.contains(says), "{message}");
    }
    // An equal number of requests, reads and writes, but of another trace: a merged curve would
    // describe no trace.
    let (other_trace, other_slice) = (at("other.parquet"), at("other.json"));
    let spec = spec.replace("write=0.4", "write=0");
    let specs = [spec.clone(), spec.replace("seed=1", "seed=2")];
    for (spec, path, slice, number) in
        [(&specs[0], &trace, &one, "1"), (&specs[1], &other_trace, &other_slice, "2")]
    {
        assert!(forebay(&["trace", "synth", spec, "-o", path, "--quiet"]).status.success());
        let which = ["mrc", path, "--slices", "4", "--slice", number, "-o", slice];
        assert!(forebay(&which).status.success());
    }
    let message = common::refusal("mrc", &[&one, &other_slice, "--merge"]);
    assert!(message.contains("was measured on different requests"), "{message}");
    let text = std::fs::read_to_string(&two).unwrap();
    std::fs::write(&other, text.replace("\"forebay_slice\":2", "\"forebay_slice\":1")).unwrap();
    let older = forebay(&["mrc", &other, "--merge"]);
    let message = String::from_utf8_lossy(&older.stderr);
    assert!(message.contains("measure the slice again with this version"), "{message}");
    let trace_for_slice = forebay(&["mrc", &two, &trace, "--merge"]);
    assert_eq!(trace_for_slice.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&trace_for_slice.stderr).contains("not a slice file"));
    let beyond = common::refusal("mrc", &[&trace, "--slices", "4", "--slice", "5"]);
    assert!(beyond.contains("slice 5 does not exist"), "{beyond}");
}

#[test]
fn a_miniature_of_everything_is_the_simulation_and_one_of_a_part_is_close() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (trace, config) = (at("zipf.parquet"), at("cache.toml"));
    let spec = "zipf:blocks=20k,theta=0.5,requests=60k,seed=1,write=0.3";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace, "--quiet"]).status.success());
    let tiers = |dram: &str, flash: &str| {
        format!(
            "[cache]\ndram = '{dram}'\nwrite_policy = 'write-back'\n\
             [flash]\npath = '/simulated'\nsize = '{flash}'\nlayout = 'slots'\n"
        )
    };
    std::fs::write(&config, tiers("1MiB", "16MiB")).unwrap();
    let surface = |rate: &str| {
        let sizes = ["--at", "4MiB,16MiB", "--flash", "16MiB,32MiB"];
        json(&[&[&trace, "--config", &config, "--sample", rate][..], &sizes].concat())
    };
    let (all, part) = (surface("1"), surface("0.6"));
    let points = |answer: &Value| answer["points"].as_array().unwrap().clone();
    assert_eq!((points(&all).len(), &all["write_policy"]), (4, &"write-back".into()));
    for (all, part) in points(&all).iter().zip(&points(&part)) {
        let sizes = ["size_bytes", "flash_bytes"].map(|key| all[key].as_u64().unwrap());
        std::fs::write(&config, tiers(&sizes[0].to_string(), &sizes[1].to_string())).unwrap();
        let run = ["simulate", &trace, "--config", &config, "--untimed", "--json", "--quiet"];
        let simulated: Value = serde_json::from_slice(&forebay(&run).stdout).unwrap();
        let count = |tier: &Value| tier["read"].as_u64().unwrap() + tier["write"].as_u64().unwrap();
        let hits = ["tier1", "tier2"].map(|tier| count(&simulated["hits"][tier]));
        let misses = count(&simulated["misses"]);
        let accesses = (hits[0] + hits[1] + misses) as f64;
        let ratio = |point: &Value, key: &str| point[key].as_f64().unwrap();
        assert!((ratio(all, "miss_ratio") - misses as f64 / accesses).abs() < 1e-12, "{sizes:?}");
        assert!((ratio(all, "tier2_hit_ratio") - hits[1] as f64 / accesses).abs() < 1e-12);
        assert_eq!(all["backing_write_bytes"], simulated["backing"]["write_bytes"]);
        let off = (ratio(part, "miss_ratio") - ratio(all, "miss_ratio")).abs();
        // The spare cells of the slots layout weigh more in a scaled-down cache.
        assert!(off < 0.05, "{sizes:?}: off by {off}");
    }
}

#[test]
fn what_no_sample_can_tell_is_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let empty = forebay(&["mrc", &trace, "--sample", "0.000000001"]);
    let message = String::from_utf8_lossy(&empty.stderr);
    assert!(message.contains("the sample contains no blocks of the trace"), "{message}");
    assert_eq!((empty.status.code(), empty.stdout.len()), (Some(1), 0));
    let slices = ["--slices", "256", "--max-blocks", "256"];
    let message = common::refusal("mrc", &[&[&trace[..]], &slices[..]].concat());
    assert!(message.contains("65536 or more"), "{message}");
    let message = common::refusal("mrc", &["-", "-", "--format", "csv"]);
    assert!(message.contains("can be read only once"), "{message}");
}

#[test]
fn a_miniature_of_a_sample_is_no_larger_than_one_of_a_trace_and_trims_are_no_accesses() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (trace, sample, config) = (at("all.csv"), at("sample.parquet"), at("cache.toml"));
    let spec = "zipf:blocks=200k,theta=0.5,requests=100k,seed=1";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace, "--quiet"]).status.success());
    let untrimmed = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&config, "[cache]\ndram = '8MiB'\n").unwrap();
    let ratio = |trace: &str, rate: &str| {
        let arguments = [trace, "--config", &config, "--at", "64MiB", "--sample", rate];
        json(&arguments)["points"][0]["miss_ratio"].as_f64().unwrap()
    };
    let made = ["sample", &trace, "--rate", "0.5", "--bits", "0", "-o", &sample, "--quiet"];
    assert!(forebay(&made).status.success());
    let (all, half) = (ratio(&sample, "1"), ratio(&sample, "0.5"));
    assert!(all < 0.9 && (all - half).abs() < 0.03, "{all} of all, {half} of a half");
    let (all, half) = (ratio(&trace, "1"), ratio(&trace, "0.5"));
    let columns = untrimmed.lines().next().unwrap();
    let row = untrimmed.lines().last().unwrap();
    let fields: Vec<&str> = columns.split(',').collect();
    let trim: Vec<&str> = (row.split(',').zip(&fields))
        .map(|(value, field)| match *field {
            "op" => "trim",
            "offset" => "0",
            "length" => "1073741824",
            _ => value,
        })
        .collect();
    std::fs::write(&trace, format!("{untrimmed}{}\n", trim.join(","))).unwrap();
    assert_eq!((ratio(&trace, "1"), ratio(&trace, "0.5")), (all, half));
}

#[test]
fn a_miniature_needs_sizes_that_it_can_have() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let config = dir.path().join("cache.toml").to_str().unwrap().to_string();
    std::fs::write(&config, "[cache]\ndram = '1MiB'\n").unwrap();
    for (arguments, status, words) in [
        (&["--flash", "1GiB"][..], 2, "[flash]"),
        (&["--distance", "urd"], 2, "--distance"),
        (&["--at", "16KiB"], 1, "all memory sizes are too small to simulate"),
    ] {
        let output = forebay(&[&["mrc", &trace, "--config", &config], arguments].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
        assert!(message.contains(words), "{message}");
    }
    // With --sample 1, the sampling rate cannot be raised.
    for (arguments, advice) in [(&["--sample", "1"][..], false), (&["--sample", "0.5"], true)] {
        let sizes = ["mrc", &trace, "--config", &config, "--at", "4KiB,1MiB"];
        let output = forebay(&[&sizes[..], arguments].concat());
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && says.contains("omitted 4 KiB"), "{says}");
        assert_eq!(says.contains("--sample 1"), advice, "{says}");
    }
    // The flash size from the configuration is shown with the memory sizes.
    let tiers = "[cache]\ndram = '1MiB'\n[flash]\npath = 'x'\nsize = '64MiB'\n";
    std::fs::write(&config, tiers).unwrap();
    let output = forebay(&["mrc", &trace, "--config", &config, "--at", "1MiB"]);
    let says = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        says.lines().any(|line| line.starts_with("flash ") && line.ends_with("64 MiB")),
        "{says}"
    );
    let large = "[cache]\ndram = '1MiB'\n[flash]\npath = 'x'\n";
    std::fs::write(&config, large).unwrap();
    let tiers = [&trace, "--config", &config, "--at", "1MiB", "--flash", "10TiB"];
    let says = common::refusal("mrc", &tiers);
    assert!(says.contains("flash") && says.contains("too large"), "{says}");
    let output = forebay(&["mrc", &trace, "--flash", "1GiB"]);
    assert_eq!(output.status.code(), Some(2));
    let piped = common::refusal("mrc", &["-", "--format", "csv", "--config", &config]);
    assert!(piped.contains("only once"), "{piped}");
}

/// A number without a unit is in bytes.
#[test]
fn a_size_that_holds_no_block_is_refused() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
    for more in [&[][..], &["--policy", "lru"]] {
        let said = common::refusal("mrc", &[&[trace, "--at", "8MiB,10"], more].concat());
        assert!(said.contains("--at 10 B is smaller than one block (4 KiB)"), "{said}");
    }
}

/// Both commands read every block.
#[test]
fn a_miniature_of_the_whole_trace_counts_its_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("cache.toml");
    std::fs::write(&config, "[cache]\ndram = '4MiB'\n").unwrap();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
    let whole = common::json("mrc", &[trace, "--points", "2"]);
    let config = config.to_str().unwrap();
    let line = [trace, "--config", config, "--sample", "1", "--at", "8MiB"];
    let miniature = common::json("mrc", &line);
    assert_eq!(miniature["distinct_blocks"], whole["distinct_blocks"]);
}
