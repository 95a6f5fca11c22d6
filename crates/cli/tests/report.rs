//! `forebay report` draws the same charts from a document as the command that wrote it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

fn forebay(dir: &Path, args: &[&str]) {
    let output = Command::new(FOREBAY).current_dir(dir).arg("-q").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The figures of a page. The last of 16 digits may change when a number passes through a document.
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

/// All texts between `from` and `to`.
fn all_between<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    page.split(from).skip(1).map(|rest| rest.split_once(to).unwrap().0).collect()
}

/// Checks that tables and paragraphs are the same, except for the subtitle.
fn assert_same_text(own: &str, report: &str) {
    for (from, to, skipped) in [("<tbody>", "</tbody>", 0), ("<p>", "</p>", 1)] {
        let [own, report] = [own, report].map(|page| all_between(page, from, to));
        assert!(own.len() > skipped, "nothing to compare");
        assert_eq!(own[skipped..], report[skipped..]);
    }
}

/// Runs a command that writes a page and a document, and creates a report from the document;
/// returns both pages.
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
fn a_partition_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:volume=db,requests=20k,blocks=8k + sequential:volume=scan,requests=20k";
    forebay(dir.path(), &["trace", "synth", spec, "-o", "vms.parquet"]);
    let flash = ["--flash", "32MiB"];
    let memory = ["--flash", "0", "--dram", "32MiB"];
    for (sizes, goal) in [
        (&flash[..], "latency"),
        (&flash, "hits"),
        (&flash, "ppc"),
        (&flash, "iops"),
        (&memory, "latency"),
    ] {
        let command = ["partition", "vms.parquet", "--goal", goal];
        let (own, report) = both(dir.path(), &[&command[..], sizes].concat());
        let (own, report) = (figures(&own), figures(&report));
        assert_eq!((report.len(), own), (4, report), "{sizes:?} {goal}");
    }
}

#[test]
fn growing_or_adding_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    traces(dir.path());
    let command =
        ["plan", "web.parquet", "--have", "1MiB", "--budget", "20%,50%", "--backing", "SlowHDD"];
    let (own, report) = both(dir.path(), &command);
    assert!(figures(&own).len() > 1);
    assert_eq!(figures(&own), figures(&report));
    assert_eq!(all_between(&own, "<tbody>", "</tbody>").len(), 2);
    assert_same_text(&own, &report);
}

#[test]
fn a_study_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    traces(dir.path());
    let (own, report) = both(
        dir.path(),
        &["plan", "web.parquet", "backup.parquet", "--study=5", "--backing", "SlowHDD"],
    );
    assert!(figures(&own).len() > 4);
    assert_eq!(figures(&own), figures(&report));
    assert!(all_between(&own, "<tbody>", "</tbody>").len() > 1);
    assert_same_text(&own, &report);
}

#[test]
fn a_sample_is_drawn_as_on_its_own_page() {
    let dir = tempfile::tempdir().unwrap();
    traces(dir.path());
    for (more, drawn) in [
        (&["--bits", "2", "--compare"][..], 2),
        (&["--bits", "2", "--target-rate", "0.25"], 3),
        (&["--bits", "2", "--samples", "2"], 3),
    ] {
        let sample = ["sample", "web.parquet", "--rate", "0.3", "-o", "s.parquet"];
        let outputs = ["--json", "--html", "own.html"];
        // The document goes to standard output, because -o names the sample.
        let output = Command::new(FOREBAY)
            .current_dir(dir.path())
            .args([&["-q"], &sample[..], more, &outputs].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(dir.path().join("answer.json"), &output.stdout).unwrap();
        forebay(dir.path(), &["report", "answer.json", "-o", "report.html"]);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let (own, report) = (read("own.html"), read("report.html"));
        assert_eq!(figures(&own).len(), drawn, "{more:?}");
        assert_eq!(figures(&own), figures(&report));
        let tables = all_between(&own, "<tbody>", "</tbody>");
        assert!(!tables.is_empty());
        assert_eq!(tables, all_between(&report, "<tbody>", "</tbody>"));
    }
}

/// A document of the Python package (python/tests/test_representatives.py checks its fields).
#[test]
fn groups_of_traces_are_drawn_with_their_points_and_the_elbow() {
    let dir = tempfile::tempdir().unwrap();
    let document = serde_json::json!({
        "clusters": [
            {"trace": "a.csv", "members": ["a.csv", "b.csv"]},
            {"trace": "c.csv", "members": ["c.csv"]},
        ],
        "elbow": [{"clusters": 1, "within": 1.0}, {"clusters": 2, "within": 0.1},
                  {"clusters": 3, "within": 0.0}],
        "points": [
            {"trace": "a.csv", "cluster": 0, "d1": 1.0, "d2": 2.0},
            {"trace": "b.csv", "cluster": 0, "d1": 1.5, "d2": 2.5},
            {"trace": "c.csv", "cluster": 1, "d1": -3.0, "d2": 0.5},
        ],
        "dimensions": 2,
        "features": 30,
    });
    std::fs::write(dir.path().join("groups.json"), document.to_string()).unwrap();
    forebay(dir.path(), &["report", "groups.json", "-o", "report.html"]);
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    let [traces, elbow] = &figures(&page)[..] else { panic!("not two figures") };
    let numbers = |values: [f64; 2]| rounded(serde_json::json!(values));
    assert_eq!(traces["data"].as_array().unwrap().len(), 3, "two groups, and who stands for them");
    assert_eq!(traces["data"][0]["x"], numbers([1.0, 1.5]));
    assert_eq!(traces["data"][2]["y"], numbers([2.0, 0.5]));
    assert_eq!(elbow["data"][0]["y"].as_array().unwrap().len(), 3);
    assert!(all_between(&page, "<tbody>", "</tbody>")[0].contains("a.csv, b.csv"), "{page}");
}

#[test]
fn a_document_that_lacks_something_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (document, command) in [
        (r#"{"simulated_isolation_blocks": 1, "workloads": []}"#, "consolidate"),
        (r#"{"unallocated": {}, "volumes": [{"volume": "a"}]}"#, "partition"),
        (r#"{"growth": []}"#, "plan --have"),
        (r#"{"scaled_budgets": []}"#, "plan --study"),
        (r#"{"trace_requests": 1, "features": {}}"#, "sample"),
        (r#"{"clusters": [], "elbow": []}"#, "representatives"),
    ] {
        std::fs::write(dir.path().join("part.json"), document).unwrap();
        let output = Command::new(FOREBAY)
            .current_dir(dir.path())
            .args(["report", "part.json", "-o", "x.html"])
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{says}");
        let refusal = format!("part is not a complete document from {command} (");
        assert!(says.contains(&refusal), "{says}");
        assert!(!dir.path().join("x.html").exists());
    }
}
