//! One simulation as charts.

use forebay_analysis::simulation::Answer;
use forebay_report::{Axis, Lines, Percentiles, Report, Section, Unit};
use forebay_simulate::Row;

use super::text::{devices, facts, requests, volumes};
use crate::latency_table::OTHER;
use crate::run;

/// A name, and the value of a row that is drawn under this name.
type Series = (&'static str, fn(&Row) -> f64);

/// The hit ratio, as results report it, and the part that memory serves.
const HITS: [Series; 2] = [
    ("all hits", |r| hits(r) / accesses(r)),
    ("memory", |r| r.hits.tier1.sum() as f64 / accesses(r)),
];

fn hits(r: &Row) -> f64 {
    (r.hits.tier1.sum() + r.hits.tier2.sum() + r.hits.delayed.sum()) as f64
}

fn accesses(r: &Row) -> f64 {
    hits(r) + r.misses.sum() as f64
}

pub(super) fn report(answer: &Answer) -> Report {
    let result = &answer.result;
    let mut summary = Section::new("Summary").facts(facts(answer));
    if result.volumes.len() > 1 {
        summary = summary.table(volumes(answer));
    }
    let mut report = Report::new("Simulation").subtitle(answer.trace.name.clone()).section(summary);
    if answer.is_timed() {
        let latency = Section::new("Latency")
            .figure(percentiles(answer).figure())
            .table(requests(answer))
            .table(devices(answer));
        let of_devices = run::devices(&result.component_latency_us);
        let latency = of_devices.into_iter().fold(latency, Section::figure);
        report = report.section(latency.figure(latency_over_time(&result.rows).figure()));
    }
    report.section(over_time(answer))
}

fn percentiles(answer: &Answer) -> Percentiles {
    let l = &answer.result.run.latency_us;
    [("reads", &l.read), ("writes", &l.write), (OTHER, &l.other)]
        .into_iter()
        .filter(|(_, l)| l.max > 0.0)
        .fold(Percentiles::new("Latency"), |figure, (name, l)| figure.series(name, l.quantiles()))
}

fn chart(title: &str, y: Axis, rows: &[Row], lines: &[Series]) -> Lines {
    let figure = Lines::new(title).x(Axis::new("time", Unit::Seconds)).y(y);
    // The value of a row is drawn at the middle of its time.
    let middle = |r: &Row| (r.start_s + r.end_s) / 2.0;
    lines.iter().fold(figure, |figure, (name, value)| {
        figure.line(*name, rows.iter().map(middle), rows.iter().map(value))
    })
}

fn latency_over_time(rows: &[Row]) -> Lines {
    let y = Axis::new("latency", Unit::Micros).log();
    let latency: [Series; 3] = [
        ("mean", |r| r.latency_us.map_or(f64::NAN, |l| l.mean)),
        ("p99", |r| r.latency_us.map_or(f64::NAN, |l| l.p99)),
        ("max", |r| r.latency_us.map_or(f64::NAN, |l| l.max)),
    ];
    chart("Latency over time", y, rows, &latency)
}

fn over_time(answer: &Answer) -> Section {
    let rows = &answer.result.rows;
    fn per_second(bytes: u64, r: &Row) -> f64 {
        bytes as f64 / (r.end_s - r.start_s)
    }
    let y = Axis::new("share of block accesses", Unit::Fraction).from_zero();
    // Without flash and delayed hits, both lines would be identical.
    let elsewhere = |r: &Row| r.hits.tier2.sum() + r.hits.delayed.sum() > 0;
    let both = answer.result.flash.is_some() || rows.iter().any(elsewhere);
    let hits = if both { &HITS[..] } else { &HITS[1..] };
    let mut section =
        Section::new("Over time").figure(chart("Hit ratio over time", y, rows, hits).figure());
    let y = Axis::new("traffic", Unit::BytesPerSecond).from_zero();
    let traffic: [Series; 3] = [
        ("read from backing", |r| per_second(r.backing_read_bytes, r)),
        ("written to backing", |r| per_second(r.backing_write_bytes, r)),
        ("written to flash", |r| per_second(r.tier2_bytes_written, r)),
    ];
    let traffic = if answer.result.flash.is_some() { &traffic[..] } else { &traffic[..2] };
    section = section.figure(chart("Traffic over time", y, rows, traffic).figure());
    if rows.iter().any(|r| r.dirty_blocks > 0) {
        let y = Axis::new("blocks", Unit::Plain).from_zero();
        let dirty: [Series; 1] = [("dirty", |r| r.dirty_blocks as f64)];
        section = section.figure(chart("Dirty blocks over time", y, rows, &dirty).figure());
    }
    if answer.result.flash.is_some() {
        let y = Axis::new("regions in use", Unit::Fraction).from_zero();
        let used: [Series; 1] = [("log or journal", |r| r.flash_utilisation)];
        section =
            section.figure(chart("Flash log or journal in use over time", y, rows, &used).figure());
    }
    section
}

#[cfg(test)]
mod tests {
    use forebay_results::{CacheResult, Hits, ReadWrite};

    use super::*;

    #[test]
    fn the_curve_of_hits_is_the_hit_ratio_that_is_reported() {
        let n = |read| ReadWrite { read, write: 1 };
        let hits = Hits { tier1: n(499), tier2: n(99), delayed: n(299) };
        let row = Row { hits, misses: n(99), ..Row::default() };
        let [(_, all), (_, memory)] = HITS;
        assert_eq!((all(&row), memory(&row)), (0.9, 0.5));
        assert_eq!(all(&row), CacheResult::ratio_of(&row.hits, &row.misses));
    }
}
