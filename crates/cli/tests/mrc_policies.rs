//! Goal: `forebay mrc --policy` computes the curve of each policy. Method: compare LRU with the
//! curve from reuse distances, and every policy with the simulated cache and with the optimum, on a
//! recorded and a synthetic trace.

use crate::common::{self, forebay, refusal};
use forebay_replacement::Kind;
use serde_json::Value;

const SQLITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");

fn json(args: &[&str]) -> Value {
    common::json("mrc", args)
}

/// The names of all policies that can run.
fn policies() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name()).collect()
}

fn points<'a>(document: &'a Value, policy: &str) -> &'a Vec<Value> {
    let curves = document["policies"].as_array().unwrap();
    let curve = curves.iter().find(|curve| curve["policy"] == policy);
    curve.unwrap_or_else(|| panic!("{policy}: {document}"))["points"].as_array().unwrap()
}

fn synthetic(dir: &tempfile::TempDir, blocks: &str) -> String {
    let path = dir.path().join("zipf.parquet").to_str().unwrap().to_owned();
    // The trace lasts over five hours, for policies that adapt to the hit ratio of the last hour.
    let spec = format!("zipf:blocks={blocks},requests=40k,write=0.3,theta=0.8,rate=2");
    assert!(forebay(&["-q", "trace", "synth", &spec, "-o", &path]).status.success());
    path
}

#[test]
fn lru_has_exactly_the_curve_of_reuse_distances() {
    let at = "16KiB,100KiB,1MiB,5MiB,20MiB,50MiB,1GiB";
    for block_size in ["4KiB", "16KiB", "512B"] {
        let common = [SQLITE, "--at", at, "--block-size", block_size];
        let answer = json(&[&common[..], &["--policy", "lru", "--points", "6"]].concat());
        let sizes: Vec<String> = points(&answer, "lru")
            .iter()
            .map(|point| point["size_bytes"].as_u64().unwrap().to_string())
            .collect();
        let exact = json(&[SQLITE, "--at", &sizes.join(","), "--block-size", block_size]);
        for key in ["block_size", "requests", "accesses", "reads", "writes", "distinct_blocks"] {
            assert_eq!(answer[key], exact[key], "{key}");
        }
        assert!(sizes.len() >= 12, "{sizes:?}");
        for point in points(&answer, "lru") {
            let size = &point["size_blocks"];
            let mut curve = exact["points"].as_array().unwrap().iter();
            let expected = curve.find(|p| p["size_blocks"] == *size).unwrap();
            for key in ["miss_ratio", "read_miss_ratio", "write_miss_ratio"] {
                assert_eq!(point[key], expected[key], "{key} of {size} blocks of {block_size}");
            }
        }
    }
}

#[test]
fn no_policy_misses_less_than_the_optimum_and_all_hold_all_blocks_in_the_end() {
    let names = policies().join(",") + ",opt";
    let answer = json(&[SQLITE, "--policy", &names]);
    let optimum = points(&answer, "opt");
    assert_eq!(optimum.len(), 21);
    let ratio = |point: &Value, key: &str| point[key].as_f64().unwrap();
    let cold = ratio(&answer, "distinct_blocks") / ratio(&answer, "accesses");
    for policy in policies() {
        let found = points(&answer, policy);
        assert_eq!(found.len(), optimum.len());
        for (point, best) in found.iter().zip(optimum) {
            assert_eq!(point["size_blocks"], best["size_blocks"]);
            assert!(ratio(point, "miss_ratio") >= ratio(best, "miss_ratio"), "{policy} {point}");
        }
        let last = &found[found.len() - 1];
        assert_eq!(last["size_blocks"], answer["distinct_blocks"]);
        assert!((ratio(last, "miss_ratio") - cold).abs() < 1e-12, "{policy}");
    }
    assert!(optimum.is_sorted_by(|a, b| ratio(a, "miss_ratio") >= ratio(b, "miss_ratio")));
    assert!(ratio(&optimum[10], "miss_ratio") < ratio(&points(&answer, "lru")[10], "miss_ratio"));
}

#[test]
fn every_policy_hits_as_the_cache_does_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let trace = synthetic(&dir, "4k");
    let answer = json(&[&trace, "--policy", &policies().join(","), "--at", "2MiB"]);
    for policy in policies() {
        let config = dir.path().join("cache.toml");
        let text = format!("[cache]\ndram = '2MiB'\n[replacement]\npolicy = '{policy}'\n");
        std::fs::write(&config, text).unwrap();
        let args = [&trace, "--untimed", "--config", config.to_str().unwrap()];
        let run = common::json("simulate", &args);
        let point = points(&answer, policy).iter().find(|point| point["size_bytes"] == 2 << 20);
        for kind in ["read", "write"] {
            let accesses = answer[format!("{kind}s")].as_f64().unwrap();
            let misses = point.unwrap()[format!("{kind}_miss_ratio")].as_f64().unwrap() * accesses;
            let expected = run["misses"][kind].as_f64().unwrap();
            assert!((misses - expected).abs() < 0.01, "{policy} {kind}: {misses}, {expected}");
        }
    }
}

#[test]
fn a_sample_comes_close_and_leaves_out_what_it_cannot_tell() {
    let dir = tempfile::tempdir().unwrap();
    let trace = synthetic(&dir, "20k");
    let names = "lru,arc,s3-fifo,opt";
    let common = [&trace, "--policy", names, "--at", "8MiB,16MiB,32MiB"];
    let (whole, sampled) = (json(&common), json(&[&common[..], &["--sample", "0.3"]].concat()));
    assert_eq!((&whole["sampled_rate"], &sampled["sampled_rate"]), (&1.0.into(), &0.3.into()));
    for key in ["accesses", "reads", "writes", "requests"] {
        assert_eq!(whole[key], sampled[key], "{key}");
    }
    let ratio = |document, policy, bytes: u64| {
        let mut points = points(document, policy).iter();
        points.find(|p| p["size_bytes"] == bytes).unwrap()["miss_ratio"].as_f64().unwrap()
    };
    for policy in names.split(',') {
        for mib in [8, 16, 32] {
            let (a, b) = (ratio(&whole, policy, mib << 20), ratio(&sampled, policy, mib << 20));
            assert!((a - b).abs() < 0.03, "{policy}, {mib} MiB: {a} and {b} of a sample");
        }
    }
    let args = ["mrc", &trace, "--policy", "lru", "--sample", "0.3", "--at", "64KiB,8MiB"];
    let output = forebay(&args);
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && note.contains("omitted 64 KiB"), "{note}");
}

#[test]
fn rows_a_page_and_a_report_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name| dir.path().join(name).to_str().unwrap().to_owned();
    let (rows, page, json, report) =
        (file("x.parquet"), file("x.html"), file("x.json"), file("r.html"));
    let args = ["mrc", SQLITE, "--policy", "sieve,opt", "--points", "5", "--html", &page];
    let output = forebay(&[&args[..], &["--json", "-o", &json, "--parquet", &rows]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&rows).unwrap().starts_with(b"PAR1"));
    assert!(forebay(&["report", &json, "-o", &report]).status.success());
    for page in [page, report] {
        let page = std::fs::read_to_string(page).unwrap();
        for word in ["\"sieve\"", "\"opt\"", "Miss ratio of reads"] {
            assert!(page.contains(word), "{word}");
        }
    }
    let text = forebay(&["-q", "mrc", SQLITE, "--policy", "2q,opt", "--points", "3"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("miss ratio") && text.contains("100.8 MiB (all)"), "{text}");
}

#[test]
fn wrong_names_and_what_does_not_go_together_are_refused() {
    for (args, words) in [
        (&["--policy", "s3fifo"][..], "did you mean `s3-fifo`?"),
        (&["--policy", "belady"], "random, or opt"),
        (&["--policy", "arc,lru,arc"], "arc twice"),
        (&["--policy", "lru", "--distance", "urd"], "cannot be used with"),
        (&["--policy", "lru", "--max-blocks", "1000"], "cannot be used with"),
        (&["--policy", "lru", "--per-volume"], "cannot be used with"),
        (&["--policy", "lru", "--config", "c.toml"], "cannot be used with"),
    ] {
        let message = refusal("mrc", &[&[SQLITE][..], args].concat());
        assert!(message.contains(words), "{args:?}: {message}");
    }
}
