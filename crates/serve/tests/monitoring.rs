//! The metrics that a server exports are those that its documentation lists, and include those that
//! the example alerts and the dashboard use. (`tests/integration/monitoring.sh` evaluates all of
//! them with Prometheus.)

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use forebay_config::Config;
use forebay_engine::{EngineOptions, StopMode};
use forebay_serve::{Server, control};

/// Type and labels of a metric.
type Described = (String, BTreeSet<String>);

/// The metrics that a server with two volumes and flash exports, by name.
fn exported() -> BTreeMap<String, Described> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (nbd, socket) = (path("nbd.sock"), path("control.sock"));
    let config = format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\nlayout = 'log'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n\
         [[volume]]\nname = 'b'\nbacking = '{}'\nsize = '4MiB'\n\
         [serve]\nnbd = 'unix:{nbd}'\ncontrol = 'unix:{socket}'\n",
        path("flash.img"),
        path("a.img"),
        path("b.img"),
    );
    let config = Config::from_toml(&config).unwrap();
    let go_on = &mut |_: &forebay_engine::Recovering| ControlFlow::Continue(());
    let explain = |error: &forebay_engine::EngineError| error.to_string();
    let server = Server::start(&config, EngineOptions::default(), None, explain, go_on).unwrap();
    let reply = control::ask(&config.serve.control, None, "GET", "/metrics").unwrap();
    assert_eq!(reply.code, 200);
    server.stop(StopMode::Destage, |_| std::ops::ControlFlow::Continue(())).1.unwrap();

    let mut found = BTreeMap::new();
    let mut name = "";
    for line in reply.body.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let kind;
            (name, kind) = typed.split_once(' ').unwrap();
            let before = found.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            assert_eq!(before, None, "{name} is there twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(name), "`{line}` under {name}");
            let (_, labels): &mut Described = found.get_mut(name).unwrap();
            let list = line.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
            let keys = list.split(',').filter_map(|pair| pair.split_once('=')).map(|pair| pair.0);
            labels.extend(keys.filter(|&key| key != "le").map(str::to_owned));
        }
    }
    found
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The parts of a text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The metrics that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !word(c)).filter(|word| word.starts_with("forebay_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_documented_metrics_are_those_that_a_server_exports() {
    let page = document("monitoring.md");
    let rows = page.lines().filter(|line| line.starts_with("| `forebay_"));
    let documented: BTreeMap<String, Described> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, name, kind, labels, ..] = cells[..] else { panic!("{row}") };
            let labels = quoted(labels).map(str::to_owned).collect();
            (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
        })
        .collect();
    let exported = exported();
    for (name, described) in &exported {
        assert_eq!(documented.get(name), Some(described), "{name} in docs/monitoring.md");
    }
    for name in documented.keys() {
        assert!(exported.contains_key(name), "{name} is documented, and not exported");
    }
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
    let exported = exported();
    let is_there = |name: &str| {
        let part = |end: &str| name.strip_suffix(end).and_then(|whole| exported.get(whole));
        let whole = part("_bucket").or(part("_sum")).or(part("_count"));
        exported.contains_key(name) || whole.is_some_and(|(kind, _)| kind == "histogram")
    };
    let mut asked = BTreeSet::new();
    for file in ["alerts.yml", "grafana-dashboard.json", "monitoring.md"] {
        let names = named(&document(file));
        assert!(names.len() > 10, "{file} names {names:?}");
        for name in &names {
            assert!(is_there(name), "{file} asks for {name}, which no server exports");
        }
        if file == "grafana-dashboard.json" {
            asked = names;
        }
    }
    // Only these metrics may be missing from the dashboard.
    let not_shown =
        ["forebay_build_info", "forebay_connections_accepted_total", "forebay_recording"];
    let also = ["forebay_backing_syncs_total"];
    for name in exported.keys() {
        let shown = asked.iter().any(|asked| asked.starts_with(name.as_str()));
        let excused = not_shown.iter().chain(&also).any(|excused| excused == name);
        assert!(shown || excused, "{name} is not on the dashboard");
    }
}

#[test]
fn every_alert_says_what_to_do_and_where_to_read_on() {
    let (alerts, page) = (document("alerts.yml"), document("monitoring.md"));
    let sections: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut names = BTreeSet::new();
    for rule in alerts.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        for key in ["summary: ", "description: ", "labels: {severity: "] {
            assert!(rule.contains(key), "{name} has no {key}");
        }
        let runbook = format!("runbook: docs/monitoring.md#{}\n", name.to_lowercase());
        assert!(rule.contains(&runbook), "{name} does not lead to its section");
        names.insert(name);
    }
    assert_eq!(names, sections, "an alert for each section and a section for each alert");
}

#[test]
fn the_dashboard_is_one_that_grafana_imports() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&document("grafana-dashboard.json")).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    assert!(dashboard["id"].is_null(), "an import makes a new one");
    assert_eq!(text(&dashboard["__inputs"][0]["name"]), "DS_PROMETHEUS");
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = text(&panel["title"]);
        assert!(!title.is_empty());
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "the id of {title} is another's, too");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for cell in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert(cell), "{title} lies on another panel");
        }
        if panel["type"] != "row" {
            assert_eq!(text(&panel["datasource"]["uid"]), "${DS_PROMETHEUS}", "{title}");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{title} shows nothing");
            assert!(targets.iter().all(|target| !text(&target["expr"]).is_empty()), "{title}");
        }
    }
}
