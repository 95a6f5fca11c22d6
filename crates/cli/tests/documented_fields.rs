//! The documentation names every field that `--json` prints.
//!
//! Goal: the reader of a JSON document finds an explanation of each field. Method: commands run
//! with the options that print the most, and each field name in their documents must occur in the
//! command's page.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::common::{forebay, json};

/// Names of the fields of `value`, down to `depth` levels.
fn names(value: &Value, depth: usize, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if depth > 0 => {
            for (name, value) in fields {
                found.insert(name.clone());
                names(value, depth - 1, found);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| names(value, depth, found)),
        _ => {}
    }
}

/// Whether the page contains the name as a word.
fn explains(page: &str, name: &str) -> bool {
    page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name)
}

/// The field names of `document` that the page does not contain.
fn missing(page: &str, document: &Value, depth: usize) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = std::fs::read_to_string(path).unwrap();
    let mut found = BTreeSet::new();
    names(document, depth, &mut found);
    found.into_iter().filter(|name| !explains(&page, name)).collect()
}

#[test]
fn every_field_of_an_answer_is_on_the_page_of_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (one, two, config) = (at("one.parquet"), at("two.parquet"), at("cache.toml"));
    let specs = [
        "zipf:blocks=2k,requests=8k,write=0.3,volume=a + sequential:volume=b",
        "uniform:blocks=1k",
    ];
    for (spec, path) in specs.iter().zip([&one, &two]) {
        assert!(forebay(&["-q", "trace", "synth", spec, "-o", path]).status.success());
    }
    let flash = format!("[cache]\ndram = '1MiB'\n[flash]\npath = '{}'\nsize = '32MiB'\n", at("f"));
    std::fs::write(&config, flash).unwrap();
    const ALL: usize = usize::MAX;
    let plan = ["--budget", "20%,50%", "--backing", "SlowHDD"];
    let cases: [(&str, &str, usize, Vec<&str>); 11] = [
        ("miss-ratio-curves.md", "mrc", ALL, vec![&one, "--per-volume"]),
        ("miss-ratio-curves.md", "mrc", ALL, vec![&one, "--slices", "4"]),
        ("miss-ratio-curves.md", "mrc", ALL, vec![&one, "--policy", "lru,opt"]),
        ("miss-ratio-curves.md", "mrc", ALL, vec![&one, "--config", &config, "--at", "512KiB"]),
        (
            "planning-reference.md",
            "plan",
            ALL,
            [&[&*one, "--sweep", "3", "--pareto"][..], &plan].concat(),
        ),
        ("planning-reference.md", "plan", ALL, [&[&*one, "--have", "1MiB"][..], &plan].concat()),
        ("planning-reference.md", "plan", ALL, vec![&one, &two, "--study=3"]),
        (
            "partitioning.md",
            "partition",
            ALL,
            vec![&one, "--flash", "4MiB", "--evaluate", "simulate"],
        ),
        ("consolidation.md", "consolidate", ALL, vec![&one, &two, "--size", "8MiB"]),
        // Only the top level: counters below it explain themselves, and devices and machines are
        // documented elsewhere.
        ("simulation.md", "simulate", 1, vec![&one, "--config", &config]),
        ("simulation.md", "simulate", 1, vec![&one, "--config", &config, "--policy", "lru,arc"]),
    ];
    for (page, command, depth, args) in cases {
        let missing = missing(page, &json(command, &args), depth);
        assert!(missing.is_empty(), "docs/{page} does not say what {missing:?} of {args:?} are");
    }
}

#[test]
fn a_field_that_no_page_has_is_found() {
    let document = serde_json::json!({"volumes": [{"no_such_field": 1}]});
    assert_eq!(missing("partitioning.md", &document, 2), ["no_such_field"]);
    assert!(missing("partitioning.md", &document, 1).is_empty());
}
