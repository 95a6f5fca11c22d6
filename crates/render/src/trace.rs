//! Shows what a trace contains.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_config::{Size, TimeSpan};
use forebay_report::{Axis, Figure, Lines, Report, Section, Table, Unit};
use forebay_trace::{ByOp, TraceInfo};
use serde::{Deserialize, Serialize};

use crate::format::{count, percent};
use crate::{Facts, Shown, write_table};

/// The contents of a trace.
pub struct Info<'a> {
    /// The answer.
    pub info: &'a TraceInfo,
    /// The names of the traces.
    pub files: String,
}

impl Shown for Info<'_> {
    fn document(&self) -> impl Serialize {
        self.info
    }

    fn rows(&self) -> Columns {
        #[derive(Serialize, Deserialize)]
        struct Row<'a> {
            feature: &'a str,
            value: Option<f64>,
        }
        let features = self.info.features.0.iter();
        let value = |value: f64| (!value.is_nan()).then_some(value);
        Columns::from_rows(features.map(|(feature, v)| Row { feature, value: value(*v) }))
    }

    fn page(&self) -> Report {
        let section = section("All volumes", self.info);
        Report::new("Trace contents").subtitle(&self.files).section(section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in facts(self.info) {
            writeln!(out, "{name:<16} {value}")?;
        }
        print(self.info, out)
    }
}

/// The percentiles of each feature.
const PERCENTS: [u32; 11] = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100];

fn facts(info: &TraceInfo) -> Facts {
    let blocks = |n: u64| Size(n * info.block_size).to_string();
    let both = |b: ByOp<u64>, show: &dyn Fn(u64) -> String| {
        format!("{} ({} read, {} written)", show(b.all), show(b.read), show(b.write))
    };
    let bytes = ByOp {
        read: info.read_bytes,
        write: info.write_bytes,
        all: info.read_bytes + info.write_bytes,
    };
    let share = |n: u64| percent(n as f64 / info.requests.max(1) as f64);
    let nanos = forebay_block::Nanos((info.duration_s * 1e3).round() as u64 * 1_000_000);
    let duration = match info.duration_s > 0.0 || info.requests < 2 {
        true => TimeSpan(nanos).to_string(),
        false => "unknown: the trace has no timestamps".to_owned(),
    };
    let sequential = info.features.get("seq_count").unwrap_or(0.0) as u64;
    let mut facts = vec![
        ("format", info.format.clone()),
        ("requests", count(info.requests)),
        ("reads", format!("{} ({})", count(info.reads), share(info.reads))),
        ("writes", format!("{} ({})", count(info.writes), share(info.writes))),
        ("duration", duration),
        ("moved", both(bytes, &|n| Size(n).to_string())),
        ("footprint", format!("{}, in whole blocks", both(info.footprint_blocks, &blocks))),
        ("block size", Size(info.block_size).to_string()),
        ("block accesses", count(info.block_accesses.all)),
        ("misaligned", format!("{} ({})", count(info.misaligned.all), share(info.misaligned.all))),
        ("sequential", format!("{} ({})", count(sequential), share(sequential))),
        ("volumes", count(info.volumes)),
    ];
    for (name, n) in [("trims", info.trims), ("flushes", info.flushes), ("FUA", info.fua)] {
        if n > 0 {
            facts.push((name, count(n)));
        }
    }
    if let Some(sample) = &info.sample {
        let (rate, of) = (percent(sample.rate), count(sample.of_requests));
        facts.push(("sample", format!("{rate} of the regions of a trace with {of} requests")));
        facts.push(("feature error", format!("{} on average", percent(sample.mean_error))));
    }
    if let Some(contents) = &info.contents {
        let shared = contents.blocks_at_end - contents.contents_at_end;
        let share = |n: u64, of: u64| percent(n as f64 / of.max(1) as f64);
        facts.push(("contents", both(contents.distinct, &blocks)));
        facts.push(("written again", share(contents.rewritten, contents.accesses.write)));
        facts.push((
            "duplicates",
            format!(
                "{} ({} of the blocks whose content is known at the end)",
                blocks(shared),
                share(shared, contents.blocks_at_end)
            ),
        ));
    }
    facts
}

fn print(info: &TraceInfo, out: &mut dyn Write) -> std::io::Result<()> {
    let rows = DISTRIBUTIONS.iter().flat_map(|d| OPS.iter().map(move |op| (d, op)));
    let table = Table::from_items(rows).column("", |(d, (_, op))| format!("{} ({op})", d.title));
    let percents = [("p1", 1), ("p25", 25), ("median", 50), ("p75", 75), ("p99", 99), ("max", 100)];
    let table = percents.into_iter().fold(table, |table, (heading, p)| {
        table.number(heading, |(d, (prefix, _))| {
            let name = format!("{prefix}{}_p{p}", d.name);
            info.features.get(&name).map_or_else(|| "-".into(), |value| d.unit.show(value))
        })
    });
    write_table(&table.table(), out)?;
    if info.volumes > 1 {
        let size = |bytes: u64| Size(bytes).to_string();
        let table = Table::from_items(&info.per_volume)
            .column("volume", |v| v.volume.clone())
            .number("requests", |v| count(v.requests))
            .number("read", |v| size(v.bytes.read))
            .number("written", |v| size(v.bytes.write))
            .number("footprint", |v| size(v.footprint_blocks.all * info.block_size));
        write_table(&table.table(), out)?;
    }
    Ok(())
}

const OPS: [(&str, &str); 2] = [("read_", "reads"), ("write_", "writes")];

/// How to show a distribution.
struct Shape {
    name: &'static str,
    title: &'static str,
    unit: Unit,
}

const DISTRIBUTIONS: [Shape; 4] = [
    Shape { name: "size", title: "request size", unit: Unit::Bytes },
    Shape { name: "iat", title: "inter-arrival", unit: Unit::Micros },
    Shape { name: "scan", title: "blocks per scan", unit: Unit::Plain },
    Shape { name: "jd", title: "jump distance", unit: Unit::Bytes },
];

/// The contents of a trace, as a section of a page.
pub fn section(title: impl Into<String>, info: &TraceInfo) -> Section {
    let shapes = DISTRIBUTIONS.iter().filter(|d| d.name != "jd");
    shapes.fold(Section::new(title).facts(facts(info)), |section, shape| {
        section.figure(figure(shape, info))
    })
}

/// The distribution as a cumulative curve through its percentiles.
fn figure(shape: &Shape, info: &TraceInfo) -> Figure {
    let mut lines = Lines::new(format!("Distribution of {}", shape.title))
        .x(Axis::new(shape.title, shape.unit).log())
        .y(Axis::new("cumulative share of requests", Unit::Fraction).from_zero());
    for (prefix, op) in OPS {
        let value = |p: u32| {
            let value = info.features.get(&format!("{prefix}{}_p{p}", shape.name))?;
            Some((value, f64::from(p) / 100.0))
        };
        let points: Vec<(f64, f64)> =
            PERCENTS.into_iter().filter_map(value).filter(|(x, _)| *x > 0.0).collect();
        if !points.is_empty() {
            lines = lines.line(op, points.iter().map(|p| p.0), points.iter().map(|p| p.1));
        }
    }
    lines.figure()
}
