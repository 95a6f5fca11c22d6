//! Runs of a workload side by side: throughput, latencies, hits, and traffic to the devices.

use forebay_report::{Axis, Bars, Figure, Percentiles, Section, Table, Unit};
use serde_json::Value;

use super::document::{Document, number};
use crate::format::{count, percent};

/// Percentiles, by their names in the documents.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999), ("max", 1.0)];

/// Caption for charts that compare latencies.
const MEASURED_FROM: &str = "Each curve's label says where its latencies start. In a simulation or \
                             a server, a request arrives when it is due. In a replay, it may be \
                             sent late: latencies from sending exclude this delay, so do not \
                             compare them with latencies from arrival.";

/// One section for all runs; empty if there are none.
pub fn sections(runs: &[Document]) -> Vec<Section> {
    if runs.is_empty() {
        return Vec::new();
    }
    let mut section = Section::new("Runs").table(table(runs));
    if runs.iter().any(|run| requests_per_s(run) > 0.0) {
        section = section.figure(throughput(runs));
    }
    let all = latencies("Latency of all requests", runs, Measured::best);
    let of_kind = |kind: &'static str, title| {
        latencies(title, runs, move |run| Measured {
            pointer: format!("/latency_us/{kind}"),
            ..Measured::latency(run)
        })
    };
    let reads = of_kind("read", "Latency of reads");
    let writes = of_kind("write", "Latency of writes");
    section = [all, reads, writes].into_iter().flatten().fold(section, Section::figure);
    section = runs.iter().filter_map(components).fold(section, Section::figure);
    vec![section]
}

/// A distribution of latencies in the document of a run, and the moment from which they are
/// measured.
struct Measured {
    pointer: String,
    from: &'static str,
}

impl Measured {
    /// The response times of the run, if it has them: a client that does not slow down with the
    /// target would see these. In a simulation, each request arrives when it is due, so its
    /// latencies are response times.
    fn best(run: &Document) -> Measured {
        match run.value.get("response_us").is_some_and(Value::is_object) {
            true => Measured { pointer: "/response_us".to_owned(), from: "due time" },
            false => Measured::latency(run),
        }
    }

    /// The latencies that the run itself reports.
    fn latency(run: &Document) -> Measured {
        // Only commands that send requests write this field, even if it is null.
        let sends = run.value.get("response_us").is_some();
        let from = if sends { "sending" } else { "arrival" };
        Measured { pointer: "/latency_us/all".to_owned(), from }
    }
}

/// Compares one kind of latency across all runs; `None` if no run has it.
fn latencies(
    title: &str,
    runs: &[Document],
    measured: impl Fn(&Document) -> Measured,
) -> Option<Figure> {
    let mut figure = Percentiles::new(title);
    let mut any = false;
    for run in runs {
        let Measured { pointer, from } = measured(run);
        let points = distribution(run.value.pointer(&pointer));
        any |= points.iter().any(|p| p.1 > 0.0);
        figure = figure.series(format!("{}, from {from}", run.label), points);
    }
    any.then(|| figure.figure().caption(MEASURED_FROM))
}

fn table(runs: &[Document]) -> Table {
    let hits = |run: &Document, tier: &str| {
        run.number(&format!("/hits/{tier}/read")) + run.number(&format!("/hits/{tier}/write"))
    };
    let share = |run: &Document, tier: &str| {
        let misses = run.number("/misses/read") + run.number("/misses/write");
        // In documents without delayed hits, the misses include them.
        let delayed = Some(hits(run, "delayed")).filter(|n| !n.is_nan()).unwrap_or(0.0);
        let all = hits(run, "tier1") + hits(run, "tier2") + delayed + misses;
        or_dash(hits(run, tier) / all, percent)
    };
    let us = |run: &Document, field| {
        let pointer = format!("{}/{field}", Measured::best(run).pointer);
        or_dash(run.number(&pointer), |us| Unit::Micros.show(us))
    };
    let bytes = |run: &Document, pointer| or_dash(run.number(pointer), |b| Unit::Bytes.show(b));
    Table::from_items(runs)
        .column("run", |run| run.label.clone())
        .number("requests", |run| count(run.number("/requests") as u64))
        .number("requests/s", |run| or_dash(requests_per_s(run), |n| count(n as u64)))
        .number("memory hits", |run| share(run, "tier1"))
        .number("flash hits", |run| share(run, "tier2"))
        .number("mean", |run| us(run, "mean"))
        .number("p99", |run| us(run, "p99"))
        .column("from", |run| Measured::best(run).from.to_owned())
        .number("from backing", |run| bytes(run, "/backing/read_bytes"))
        .number("to backing", |run| bytes(run, "/backing/write_bytes"))
        .number("to flash", |run| bytes(run, "/tier2_bytes_written"))
        .table()
        .caption(
            "The mean and p99 are latencies, measured from when a request arrives, is due, or is sent (column \
             \"from\"); the last three columns are the bytes read from the backing store, written to it, and \
             written to flash",
        )
}

/// Formats a number, or returns `-` if the document has none.
fn or_dash(value: f64, show: impl Fn(f64) -> String) -> String {
    if value.is_nan() { "-".to_string() } else { show(value) }
}

/// The measured rate of a replay; for a simulation, requests divided by virtual time.
fn requests_per_s(run: &Document) -> f64 {
    if run.value.get("pacing").and_then(Value::as_str) == Some("untimed") {
        return f64::NAN;
    }
    let measured = run.number("/throughput/requests_per_s");
    if measured.is_nan() { run.number("/requests") / run.number("/duration_s") } else { measured }
}

fn throughput(runs: &[Document]) -> Figure {
    Bars::new("Throughput", runs.iter().map(|r| r.label.clone()))
        .axis(Axis::new("requests per second", Unit::Plain).from_zero())
        .series("requests per second", runs.iter().map(requests_per_s))
        .horizontal()
        .figure()
}

/// The latencies of the tiers and of the backing store in one run; `None` if the document has none.
fn components(run: &Document) -> Option<Figure> {
    let mut found = Vec::new();
    collect(run.value.get("component_latency_us")?, "", &mut found);
    if found.is_empty() {
        return None;
    }
    let mut figure = Percentiles::new(format!("Latency of each device: {}", run.label));
    for (name, points) in found {
        figure = figure.series(name, points);
    }
    Some(figure.figure().caption("Time that operations take on each device."))
}

/// Collects every distribution within a value, named by the path to it.
fn collect(value: &Value, name: &str, found: &mut Vec<(String, Vec<(f64, f64)>)>) {
    let Some(fields) = value.as_object() else { return };
    if fields.contains_key("p50") {
        let points = distribution(Some(value));
        if points.iter().any(|p| p.1 > 0.0) {
            found.push((name.to_string(), points));
        }
        return;
    }
    for (field, below) in fields {
        let path = if name.is_empty() { field.clone() } else { format!("{name}, {field}") };
        collect(below, &path.replace('_', " "), found);
    }
}

/// The percentiles of a distribution, as (fraction, microseconds).
fn distribution(value: Option<&Value>) -> Vec<(f64, f64)> {
    let Some(value) = value else { return Vec::new() };
    let points = QUANTILES.iter().map(|&(name, q)| (q, number(value, &format!("/{name}"))));
    points.filter(|p| !p.1.is_nan()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_without_measured_throughput_has_that_of_its_clock() {
        let run = |value| Document { label: "a".into(), value };
        assert_eq!(requests_per_s(&run(json!({"requests": 10, "duration_s": 2.0}))), 5.0);
        let measured = json!({"requests": 10, "duration_s": 2.0,
            "throughput": {"requests_per_s": 7.0}});
        assert_eq!(requests_per_s(&run(measured)), 7.0);
        let untimed = json!({"requests": 10, "duration_s": 2.0, "pacing": "untimed",
            "throughput": null, "latency_us": null});
        assert!(requests_per_s(&run(untimed)).is_nan(), "there was no time");
    }

    #[test]
    fn a_replay_is_compared_with_a_simulation_by_its_response_times() {
        let run = |label: &str, value| Document { label: label.into(), value };
        let latency = |us: f64| {
            json!({"all": {"p50": us, "p99": us, "mean": us},
            "read": {"p50": us, "p99": us}})
        };
        let response = json!({"p50": 900.0, "p99": 900.0, "mean": 900.0});
        let runs = [
            run("simulated", json!({"requests": 1, "latency_us": latency(800.0)})),
            run(
                "replayed",
                json!({"requests": 1, "latency_us": latency(20.0), "response_us": response}),
            ),
            run("closed", json!({"requests": 1, "latency_us": latency(20.0), "response_us": null})),
        ];
        let measured = runs.each_ref().map(|run| {
            let Measured { pointer, from } = Measured::best(run);
            (run.number(&format!("{pointer}/p99")), from)
        });
        assert_eq!(measured, [(800.0, "arrival"), (900.0, "due time"), (20.0, "sending")]);
        let page = sections(&runs)
            .into_iter()
            .fold(forebay_report::Report::new("Runs"), |page, section| page.section(section));
        let html = page.to_html();
        for curve in
            ["replayed, from due time", "replayed, from sending", "simulated, from arrival"]
        {
            assert!(html.contains(curve), "{curve}");
        }
        assert!(!html.contains("in every run"));
    }

    #[test]
    fn the_latencies_of_components_are_found_at_any_depth() {
        let summary = json!({"mean": 1.0, "p50": 1.0, "p99": 2.0, "max": 3.0});
        let value = json!({"flash": {"read": summary, "write": {"p50": 0.0, "max": 0.0}},
            "request": summary});
        let mut found = Vec::new();
        collect(&value, "", &mut found);
        let names: Vec<&str> = found.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(names, ["flash, read", "request"], "what never happened is left out");
        assert_eq!(found[0].1, [(0.5, 1.0), (0.99, 2.0), (1.0, 3.0)]);
    }
}
