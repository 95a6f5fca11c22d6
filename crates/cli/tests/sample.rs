//! `forebay sample` as users run it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn forebay(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).current_dir(dir).args(args).output().unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let output = forebay(dir, &[&["--quiet"], args, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Large and small requests over a skewed set of blocks.
fn trace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:blocks=200k,requests=60k,theta=0.8,write=0.3,size=32KiB";
    let made = forebay(dir.path(), &["-q", "trace", "synth", spec, "-o", "all.parquet"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

#[test]
fn larger_regions_keep_the_features_and_hit_ratios_hold() {
    let dir = trace();
    let args =
        ["sample", "all.parquet", "--rate", "0.1", "--bits", "4", "--compare", "-o", "s.parquet"];
    let answer = json(dir.path(), &args);
    let by_bits = answer["comparison"].as_array().unwrap();
    let error = |i: usize| by_bits[i]["mean_error"].as_f64().unwrap();
    assert_eq!(by_bits[0]["bits"], 0);
    assert!(error(3) < error(0) / 2.0, "{answer:#}");
    assert!(answer["hit_ratio_error"]["all"].as_f64().unwrap() < 0.05, "{answer:#}");
    // Plain spatial sampling cuts 32 KiB into single blocks.
    assert!(by_bits[0]["request_ratio"].as_f64().unwrap() > 0.5, "{answer:#}");
    // The report of its errors says what to try.
    let plain = ["-q", "sample", "all.parquet", "--rate", "0.1", "--bits", "0", "-o", "p.parquet"];
    let said = String::from_utf8(forebay(dir.path(), &plain).stdout).unwrap();
    assert!(said.contains("Forebay takes 40 samples"), "{said}");
    let info = json(dir.path(), &["trace", "info", "s.parquet"]);
    assert_eq!(info["requests"], answer["requests"]);
    // The file records how close it is to the trace.
    assert_eq!(info["sample"]["of_requests"], 60_000);
    assert_eq!(info["sample"]["mean_error"], answer["mean_error"]);
    let write_size = &answer["features"]["write_size"];
    assert_eq!(
        info["write_bytes"].as_f64().unwrap() / info["writes"].as_f64().unwrap(),
        write_size["sample"].as_f64().unwrap()
    );
}

#[test]
fn a_reduction_is_no_worse_and_what_it_reports_is_in_the_file() {
    let dir = trace();
    let args = ["sample", "all.parquet", "--rate", "0.2", "--bits", "3"];
    let reduced = [&args[..], &["--target-rate", "0.1", "-o", "r.parquet"]].concat();
    let answer = json(dir.path(), &reduced);
    let reduction = &answer["reduction"];
    assert!(reduction["removed"].as_u64().unwrap() > 0, "{answer:#}");
    let total = |c: &Value| c["total_error"].as_f64().unwrap();
    let curve = reduction["curve"].as_array().unwrap();
    let taken = curve.iter().find(|c| c["removed"] == reduction["removed"]).unwrap();
    assert!(curve.iter().all(|c| total(c) >= total(taken)));
    assert!(answer["rate"].as_f64().unwrap() >= 0.1);
    let info = json(dir.path(), &["trace", "info", "r.parquet"]);
    assert_eq!(info["requests"], answer["requests"]);
    let gone = dir.path().read_dir().unwrap().count();
    assert_eq!(gone, 2, "something is left behind");
}

#[test]
fn a_sample_of_a_sample_takes_another_seed_and_one_of_nothing_is_refused() {
    let dir = trace();
    json(dir.path(), &["sample", "all.parquet", "--rate", "0.2", "-o", "s.parquet"]);
    let again = ["sample", "s.parquet", "--rate", "0.5", "-o", "t.parquet"];
    let refused = forebay(dir.path(), &again);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("another --seed"), "{message}");
    assert!(!dir.path().join("t.parquet").exists());
    let answer = json(dir.path(), &[&again[..], &["--seed", "9"]].concat());
    let kept = answer["request_ratio"].as_f64().unwrap();
    assert!((0.4..0.7).contains(&kept), "{kept}");
    let nothing = ["sample", "all.parquet", "--rate", "1e-9", "-o", "n.parquet"];
    let refused = forebay(dir.path(), &nothing);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("no region"), "{message}");
    let many = ["--samples", "4294967295"];
    let refused = forebay(dir.path(), &[&nothing[..], &many].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(!dir.path().join("n.parquet").exists());
}

#[test]
fn of_several_samples_the_closest_is_kept() {
    let dir = trace();
    let args = ["sample", "all.parquet", "--rate", "0.1", "--bits", "0,4", "--best-of", "3"];
    let answer = json(dir.path(), &[&args[..], &["--seed", "7", "-o", "b.parquet"]].concat());
    let candidates = answer["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 6);
    let total = |c: &Value| c["total_error"].as_f64().unwrap();
    let lowest = candidates.iter().min_by(|a, b| total(a).total_cmp(&total(b))).unwrap();
    assert_eq!((&lowest["bits"], &lowest["seed"]), (&answer["bits"], &answer["seed"]));
    assert_eq!(lowest["mean_error"], answer["mean_error"]);
    assert_eq!(answer["bits"], 4);
    // A sample with these bits and this seed is identical when taken alone.
    let seed = answer["seed"].to_string();
    let bits = answer["bits"].to_string();
    let args = ["sample", "all.parquet", "--rate", "0.1", "--seed", &seed, "--bits", &bits];
    let alone = json(dir.path(), &[&args[..], &["-o", "alone.parquet"]].concat());
    assert_eq!(alone["requests"], answer["requests"]);
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("b.parquet") == bytes("alone.parquet"));
    // The sample can be reduced.
    let args = ["sample", "all.parquet", "--rate", "0.2", "--best-of", "2", "--target-rate", "0.1"];
    let reduced = json(dir.path(), &[&args[..], &["--bits", "4", "-o", "r.parquet"]].concat());
    let info = json(dir.path(), &["trace", "info", "r.parquet"]);
    assert_eq!(info["requests"], reduced["requests"]);
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 4, "nothing but the trace and three samples");
}

#[test]
fn a_sample_comes_at_the_rate_of_its_trace_if_gaps_are_followed() {
    let dir = trace();
    json(dir.path(), &["sample", "all.parquet", "--rate", "0.1", "-o", "s.parquet"]);
    let rate = |args: &[&str]| {
        let info = json(dir.path(), &[&["trace", "info"], args].concat());
        info["requests"].as_f64().unwrap() / info["duration_s"].as_f64().unwrap()
    };
    let whole = rate(&["all.parquet"]);
    assert!((rate(&["s.parquet", "--follow-gaps"]) / whole - 1.0).abs() < 0.05);
    assert!(rate(&["s.parquet"]) < whole / 3.0);
    std::fs::write(dir.path().join("c.toml"), "[cache]\ndram = \"4MiB\"\n").unwrap();
    let simulate = ["simulate", "s.parquet", "--config", "c.toml", "--follow-gaps"];
    let simulated = json(dir.path(), &simulate);
    assert!(simulated["requests"].as_u64().unwrap() > 1000);
    let output = forebay(dir.path(), &["trace", "info", "all.parquet", "--follow-gaps"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && message.contains("only samples record them"),
        "{message}"
    );
}

#[test]
fn samples_are_disjoint_and_the_same_again() {
    let dir = trace();
    let args = ["sample", "all.parquet", "--rate", "0.3", "--samples", "3", "-o", "d.parquet"];
    let first = json(dir.path(), &args);
    assert_eq!(first["samples"].as_array().unwrap().len(), 3);
    let footprint = |file: &str| {
        let info = json(dir.path(), &["trace", "info", file]);
        info["footprint_blocks"]["all"].as_u64().unwrap()
    };
    let three = ["d-1.parquet", "d-2.parquet", "d-3.parquet"];
    let merged = [&["trace", "info"], &three[..]].concat();
    let together = json(dir.path(), &merged)["footprint_blocks"]["all"].as_u64().unwrap();
    assert_eq!(three.iter().map(|f| footprint(f)).sum::<u64>(), together);
    assert!(together < footprint("all.parquet"));
    let bytes = |f: &str| std::fs::read(dir.path().join(f)).unwrap();
    let before = three.map(bytes);
    json(dir.path(), &args);
    assert!(before == three.map(bytes), "the same seed gave another sample");
    // Sampling the samples again with the same seed would keep all regions that the first sampling
    // kept, also for several samples.
    for files in [&three[..2], &["all.parquet", "d-2.parquet"]] {
        let options = ["--rate", "0.5", "--bits", "4", "--best-of", "1", "-o", "half.parquet"];
        let again = [&["sample"], files, &options[..]].concat();
        let refused = forebay(dir.path(), &again);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && message.contains("another --seed"), "{message}");
        assert!(!dir.path().join("half.parquet").exists());
        json(dir.path(), &[&again[..], &["--seed", "1"]].concat());
        std::fs::remove_file(dir.path().join("half.parquet")).unwrap();
        let union = [&["trace", "convert"], files, &["-o", "union.parquet"]].concat();
        let converted = forebay(dir.path(), &union);
        let message = String::from_utf8_lossy(&converted.stderr);
        assert!(message.contains("does not record the sampling rate and seed"), "{message}");
    }
    let one = forebay(dir.path(), &["trace", "convert", three[0], "-o", "one.parquet"]);
    assert!(one.status.success() && !String::from_utf8_lossy(&one.stderr).contains("samples"));
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let dir = trace();
    for (args, words) in [
        (&["--rate", "0.4", "--samples", "3", "-o", "x.parquet"][..], "at most 2 samples"),
        (&["--rate", "0.1", "--target-rate", "0.1", "-o", "x.parquet"], "must be less"),
        (&["--rate", "0.1", "-o", "x.csv"], ".parquet"),
        (&["--rate", "0.1", "-o", "all.parquet"], "both read and written"),
        (&["--rate", "1.5", "-o", "x.parquet"], "rate"),
    ] {
        let output = forebay(dir.path(), &[&["sample", "all.parquet"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 1);
}

#[test]
fn without_options_the_closest_of_many_is_taken_reduced_and_set_beside_the_plain_method() {
    let dir = trace();
    let answer = json(dir.path(), &["sample", "all.parquet", "--rate", "0.1", "-o", "s.parquet"]);
    assert_eq!(answer["candidates"].as_array().unwrap().len(), 40);
    let number = |value: &Value, at: &str| value.pointer(at).unwrap().as_f64().unwrap();
    let plain = json(
        dir.path(),
        &["sample", "all.parquet", "--rate", "0.1", "--bits", "4", "-o", "p.parquet"],
    );
    assert_eq!(number(&answer, "/plain/mean_error"), number(&plain, "/mean_error"));
    assert!(plain.get("plain").is_none() && plain.get("reduction").is_none());
    assert!(number(&answer, "/mean_error") < number(&plain, "/mean_error"));
    // The sample is not reduced beyond what the hit ratios allow, unless they were further off
    // before.
    let before = number(&answer, "/reduction/hit_ratio_error_before/all");
    assert!(number(&answer, "/hit_ratio_error/all") <= before.max(0.02));
    assert!(number(&answer, "/mean_error") <= number(&answer, "/reduction/mean_error_before"));
    assert!(number(&answer, "/rate") >= 0.069 && number(&answer, "/rate") <= 0.1);
}

#[test]
fn a_trace_without_reads_and_writes_has_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("t.csv"), "time_us,op,offset,length\n0,t,0,4096\n1,f,0,0\n")
        .unwrap();
    for more in [&[][..], &["--bits", "4"], &["--samples", "2"]] {
        let args = [&["sample", "t.csv", "--rate", "0.5", "-o", "s.parquet"], more].concat();
        let output = forebay(dir.path(), &args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no reads or writes"), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no file was written");
}
