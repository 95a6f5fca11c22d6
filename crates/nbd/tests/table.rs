//! Checks that the conformance table and the tests agree.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names of test functions in a source file.
fn tests_in(source: &str) -> BTreeSet<String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let named = lines.windows(2).filter(|pair| pair[0] == "#[test]");
    named
        .filter_map(|pair| pair[1].strip_prefix("fn ")?.split('(').next().map(str::to_owned))
        .collect()
}

/// Code spans of the page that look like names of tests.
fn tests_named(page: &str) -> BTreeSet<String> {
    let spans = page.split('`').skip(1).step_by(2);
    let is_name = |s: &&str| {
        s.matches('_').count() >= 2 && s.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    };
    let upper = |s: &&str| s.chars().any(|c| c.is_ascii_uppercase());
    spans.filter(is_name).filter(|s| !upper(s)).map(str::to_owned).collect()
}

#[test]
fn every_test_named_in_the_table_exists_and_every_conformance_test_is_named() {
    let named = tests_named(&read("../../docs/nbd.md"));
    let conduct: BTreeSet<_> = ["handshake", "transmission", "bad_clients"]
        .iter()
        .flat_map(|file| tests_in(&read(&format!("tests/{file}.rs"))))
        .collect();
    let others = [
        "tests/conversations.rs",
        "tests/fuzz.rs",
        "tests/allocations.rs",
        "src/error_code.rs",
        "src/export.rs",
        "src/request.rs",
        "src/server/options.rs",
        "src/server/reply.rs",
        "../device/src/devices.rs",
        "../engine/src/allocation.rs",
        "../engine/src/core/tests.rs",
        "../engine/src/session_queues.rs",
        "../engine/tests/engine.rs",
        "../serve/src/nbd/budget.rs",
        "../serve/src/nbd/memory.rs",
        "../serve/tests/clients.rs",
    ];
    let mut all: BTreeSet<_> = others.iter().flat_map(|file| tests_in(&read(file))).collect();
    all.extend(conduct.iter().cloned());
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "docs/nbd.md names tests that do not exist: {missing:?}");
    let unnamed: Vec<_> = conduct.difference(&named).collect();
    assert!(unnamed.is_empty(), "docs/nbd.md does not name these tests: {unnamed:?}");
    assert!(named.len() > 80);
}
