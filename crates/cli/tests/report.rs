//! `forebay report` draws from a document what the command that wrote it draws on its own page.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

fn forebay(dir: &Path, args: &[&str]) {
    let output = Command::new(FOREBAY).current_dir(dir).arg("-q").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The figures of a page, as they are drawn. The last of 16 digits may change on the way through a document.
fn figures(page: &str) -> Vec<Value> {
    let figures = page.split("<script type=\"application/json\" data-figure=\"").skip(1);
    let json =
        |f: &str| f.split_once('>').unwrap().1.split_once("</script>").unwrap().0.to_string();
    figures.map(|f| rounded(serde_json::from_str(&json(f)).unwrap())).collect()
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Array(all) => all.into_iter().map(rounded).collect(),
        Value::Object(all) => all.into_iter().map(|(name, v)| (name, rounded(v))).collect(),
        Value::Number(n) if n.is_f64() => format!("{:.12e}", n.as_f64().unwrap()).into(),
        other => other,
    }
}

/// The text between two words, wherever it begins.
fn all_between<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    page.split(from).skip(1).map(|rest| rest.split_once(to).unwrap().0).collect()
}

/// Runs a command that writes a page and a document, and a report of that; both pages.
fn both(dir: &Path, command: &[&str]) -> (String, String) {
    let outputs = ["--json", "-o", "answer.json", "--html", "own.html"];
    forebay(dir, &[command, &outputs[..]].concat());
    forebay(dir, &["report", "answer.json", "-o", "report.html"]);
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    (read("own.html"), read("report.html"))
}

fn traces(dir: &Path) {
    let synth = |spec: &str, file: &str| forebay(dir, &["trace", "synth", spec, "-o", file]);
    synth("zipf:blocks=8k,requests=27200,rate=400,write=0.2", "web.parquet");
    synth("sequential:blocks=1M,requests=13600,rate=200", "backup.parquet");
}

#[test]
fn a_consolidation_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    traces(dir.path());
    for more in [&[][..], &["--marginal", "--migration-period", "10s"], &["--size", "1MiB"]] {
        let command = ["consolidate", "web.parquet", "backup.parquet"];
        let size: &[&str] = if more.contains(&"--size") { &[] } else { &["--size", "96MiB"] };
        let (own, report) = both(dir.path(), &[&command[..], size, more].concat());
        assert_eq!(figures(&own).len(), 5);
        assert_eq!(figures(&own), figures(&report));
        for (from, to) in [("<tbody>", "</tbody>"), ("<dl", "</dl>")] {
            assert_eq!(all_between(&own, from, to), all_between(&report, from, to));
            assert_eq!(all_between(&own, from, to).len(), 1);
        }
    }
}

#[test]
fn what_is_in_a_trace_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    traces(dir.path());
    forebay(
        dir.path(),
        &["sample", "web.parquet", "--rate", "0.3", "--bits", "0", "-o", "s.parquet"],
    );
    for trace in ["web.parquet", "s.parquet"] {
        let (own, report) = both(dir.path(), &["trace", "info", trace]);
        assert_eq!(figures(&own).len(), 3);
        assert_eq!(figures(&own), figures(&report));
        assert_eq!(all_between(&own, "<dl", "</dl>"), all_between(&report, "<dl", "</dl>"));
    }
}

#[test]
fn a_partition_has_the_figures_of_shares_and_of_what_they_do() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:volume=db,requests=20k,blocks=8k + sequential:volume=scan,requests=20k";
    forebay(dir.path(), &["trace", "synth", spec, "-o", "vms.parquet"]);
    for goal in ["latency", "hits", "ppc", "iops"] {
        let command = ["partition", "vms.parquet", "--flash", "32MiB"];
        let (own, report) = both(dir.path(), &[&command[..], &["--goal", goal]].concat());
        let (own, report) = (figures(&own), figures(&report));
        // Curves by size are not in the document.
        assert_eq!((report.len(), &own[..2]), (2, &report[..]), "{goal}");
    }
}

#[test]
fn a_document_that_lacks_something_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let document = "{\"simulated_isolation_blocks\": 1, \"workloads\": []}";
    std::fs::write(dir.path().join("part.json"), document).unwrap();
    let output = Command::new(FOREBAY)
        .current_dir(dir.path())
        .args(["report", "part.json", "-o", "x.html"])
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{says}");
    assert!(says.contains("part is no whole document of consolidate"), "{says}");
    assert!(!dir.path().join("x.html").exists());
}
