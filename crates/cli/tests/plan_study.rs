//! `forebay plan --study` as users run it.

use std::path::Path;

use crate::common::{self, forebay};
use serde_json::Value;

/// The JSON document, and the text on standard error.
fn planned(args: &[&str]) -> (Value, String) {
    let output = forebay(&[&["plan", "--json"], args].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

fn refusal(args: &[&str]) -> String {
    common::refusal("plan", args)
}

fn traces(dir: &Path) -> [String; 2] {
    let specs = [
        "zipf:blocks=8k,requests=30k,write=0.3,theta=0.9,seed=3",
        "zoned:zones=0.1@0.8/0.9@0.2,blocks=12k,requests=30k,write=0.1,seed=4",
    ];
    [0, 1].map(|at| {
        let path = dir.join(format!("trace-{at}.parquet")).to_str().unwrap().to_owned();
        assert!(forebay(&["trace", "synth", specs[at], "-q", "-o", &path]).status.success());
        path
    })
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

#[test]
fn a_study_finds_for_each_trace_what_plans_of_it_find() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = traces(dir.path());
    let (study, _) = planned(&[&one, &two, "--study=4"]);
    assert_eq!(study["traces"].as_array().unwrap().len(), 2);
    assert_eq!(study["scaled_budgets"], serde_json::json!([0.25, 0.5, 0.75, 1.0]));
    for (policy, of) in ["write-through", "write-back"].iter().zip(0..) {
        let summary = &study["policies"][of];
        assert_eq!(summary["policy"], *policy);
        assert_eq!(summary["combinations"].as_array().unwrap().len(), 17);
        assert_eq!(number(summary, "points"), 2 * 17 * 4);
        let classes = ["single", "pyramidal", "non_pyramidal"];
        assert_eq!(classes.iter().map(|c| number(summary, c)).sum::<u64>(), 2 * 17 * 4);
        // Plan with the same budgets, one trace per command.
        let (mut single, mut reduction) = (0, 0.0_f64);
        for trace in [&one, &two] {
            let (plan, _) = {
                let budgets = ["--budget", "25%,50%,75%,100%", "--wear-max", "none"];
                planned(&[&[&trace[..], "--policy", policy], &budgets[..]].concat())
            };
            for choice in plan["plans"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|p| p["choices"].as_array().unwrap())
            {
                single += u64::from(choice["class"] == "single");
                reduction = reduction.max(choice["latency_reduction"].as_f64().unwrap());
            }
        }
        assert_eq!(number(summary, "single"), single);
        assert!((summary["reduction_max"].as_f64().unwrap() - reduction).abs() < 1e-6);
        assert!(summary["cydonia_excess"].as_f64().unwrap() >= 0.0);
    }
}

#[test]
fn a_study_goes_on_where_it_was_ended() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = traces(dir.path());
    let file = dir.path().join("study.jsonl");
    let resume = ["--study=3", "--resume", file.to_str().unwrap()];
    let (first, _) = planned(&[&[&one[..]], &resume[..]].concat());
    // A run that was interrupted while it wrote.
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{}", &whole[..100])).unwrap();
    let (both, said) = planned(&[&[&one[..], &two], &resume[..]].concat());
    assert!(said.contains("trace-0.parquet: using the result in the --resume file"), "{said}");
    assert!(!said.contains("trace-1.parquet: using"), "{said}");
    // Numbers that were stored as text may differ in the last digit.
    let close = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-12;
    for policy in [0, 1] {
        let [a, b] = [&both, &first].map(|study| &study["traces"][0]["policies"][policy]);
        assert!(close(&a["cydonia_excess"], &b["cydonia_excess"]), "{a} {b}");
        assert_eq!([&a["single"], &a["pyramidal"]], [&b["single"], &b["pyramidal"]]);
    }
    let (again, said) = planned(&[&[&one[..], &two], &resume[..]].concat());
    assert_eq!(said.matches("using the result").count(), 2, "{said}");
    assert_eq!(again["policies"][1]["single"], both["policies"][1]["single"]);
    // Results for other budgets are not reused.
    let other = ["--study=2", "--resume", file.to_str().unwrap()];
    let (_, said) = planned(&[&[&one[..]], &other[..]].concat());
    assert!(!said.contains("using the result"), "{said}");
    std::fs::write(&file, "not ours\n").unwrap();
    let message = refusal(&[&[&one[..]], &resume[..]].concat());
    assert!(message.contains("line 1") && message.contains("--resume"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not ours\n");
    // A file without a newline is not a Forebay file either.
    std::fs::write(&file, "not ours").unwrap();
    let message = refusal(&[&[&one[..]], &resume[..]].concat());
    assert!(message.contains("line 1") && message.contains("--resume"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not ours");
}

#[test]
fn what_is_read_otherwise_is_not_taken_from_results_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.arc");
    let write = |first: u64| {
        let line = |n: u64| format!("{} 8 0 {n}\n", first + n % 40 * 64);
        std::fs::write(&trace, (0..400).map(line).collect::<String>()).unwrap();
    };
    write(10_000);
    let file = dir.path().join("study.jsonl");
    let resume = ["--study=2", "--resume", file.to_str().unwrap()];
    let study = |reading: &[&str]| {
        let (answer, said) = planned(&[&[trace.to_str().unwrap()], reading, &resume[..]].concat());
        (number(&answer["traces"][0], "footprint_bytes"), said.contains("using the result"))
    };
    let (arc, large) = (["--format", "arc"], ["--format", "arc:unit=4096"]);
    let (footprint, _) = study(&arc);
    assert_eq!(study(&arc), (footprint, true));
    assert_eq!(study(&large), (8 * footprint, false));
    for reading in [&["--skip-bad-lines"][..], &["--limit", "300"], &["--volumes", "0"]] {
        assert!(!study(&[&arc[..], reading].concat()).1, "{reading:?}");
    }
    // Another trace file of the same length.
    let before = std::fs::metadata(&trace).unwrap();
    write(20_000);
    let after = std::fs::metadata(&trace).unwrap();
    assert_eq!(before.len(), after.len());
    assert_ne!(before.modified().unwrap(), after.modified().unwrap());
    assert!(!study(&arc).1);
}

#[test]
fn a_study_has_text_rows_and_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = traces(dir.path());
    let (html, rows) = (dir.path().join("s.html"), dir.path().join("s.parquet"));
    let files = ["--html", html.to_str().unwrap(), "--parquet", rows.to_str().unwrap()];
    let output = forebay(&[&["plan", &one, &two, "--study=3"], &files[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["With write-back:", "Cydonia's latency is", "trace-1", "exhaustive searches"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    for part in
        ["Latency reduction compared", "Cydonia above exhaustive search", "SlowDRAM / FastHDD"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(std::fs::metadata(rows).unwrap().len() > 0);
}

#[test]
fn what_a_study_does_not_take_is_refused() {
    for more in [&["--budget", "1"][..], &["--have", "1MiB"], &["--policy", "write-back"]] {
        let message = refusal(&[&["no-such-trace.csv", "--study"], more].concat());
        assert!(message.contains("cannot be used with"), "{message}");
    }
    let one = ["--tiers", "FastDRAM", "--backing", "SlowHDD"];
    let message = refusal(&[&["no-such-trace.csv", "--study"], &one[..]].concat());
    assert!(message.contains("two tiers"), "{message}");
    let missing = forebay(&["plan", "no-such-trace.csv", "--study"]);
    assert_eq!(missing.status.code(), Some(1));
}
