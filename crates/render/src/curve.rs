//! Miss-ratio curves from reuse distances.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::curve::{self as analysis, Answer, Key, POINTS};
use forebay_config::Size;
use forebay_locality::{CurvePoint, Interval, ReuseHistogram, Scope, SlicedHistogram};
use forebay_report::{Axis, Lines, Report, Section, Table, Unit};
use serde::Serialize;

use crate::format::{count, percent};
use crate::{Facts, Shown, write_facts, write_table};

/// Miss-ratio curves, and the sizes at which to show them.
pub struct Curves<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// The names of the traces.
    pub files: String,
    /// Maximum number of points of a curve.
    pub points: usize,
    /// Sizes in blocks at which to add points.
    pub at_blocks: Vec<u64>,
}

impl<'a> Curves<'a> {
    /// Creates the view of an answer about these files, with the default number of points.
    pub fn new(answer: &'a Answer, files: impl Into<String>) -> Self {
        Self { answer, files: files.into(), points: POINTS, at_blocks: Vec::new() }
    }
}

impl Shown for Curves<'_> {
    fn document(&self) -> impl Serialize {
        self.answer.document(self.points, &self.at_blocks)
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        let Answer { options, all, volumes, .. } = self.answer;
        let block_bytes = options.block_size.bytes();
        let points = self.points(all);
        let sizes = || points.iter().map(|p| (p.size_blocks * block_bytes) as f64);
        let mut curve = lines("Miss ratio by cache size").line(
            "reads and writes",
            sizes(),
            points.iter().map(|p| p.miss_ratio),
        );
        let bounds: Option<Vec<Interval>> =
            points.iter().map(|p| self.answer.bounds(p.size_blocks)).collect();
        if let Some(bounds) = bounds {
            curve = curve.band(bounds.iter().map(|b| b.low), bounds.iter().map(|b| b.high));
        }
        if all.read.accesses() > 0 {
            curve = curve.line("reads", sizes(), points.iter().map(|p| p.read_miss_ratio));
        }
        if all.write.accesses() > 0 && options.distance.measures_writes() {
            curve = curve.line("writes", sizes(), points.iter().map(|p| p.write_miss_ratio));
        }
        let mut section =
            Section::new("All volumes").facts(self.facts()).figure(curve.figure().caption(
                "The share of block accesses that miss in an LRU cache of each size. Where the \
                 curve is flat, a larger cache gains nothing. If there is a band around the curve, \
                 it contains the exact curve with a confidence of about 95 %.",
            ));
        if options.scope == Scope::Both {
            let mut figure = lines("Miss ratio of each volume with its own cache");
            for (name, histogram) in volumes.iter().filter(|(_, own)| !own.is_unsampled()) {
                let points = self.points(histogram);
                figure = figure.line(
                    name,
                    points.iter().map(|p| (p.size_blocks * block_bytes) as f64),
                    points.iter().map(|p| p.miss_ratio),
                );
            }
            section = section.figure(figure.figure());
        }
        Report::new("Miss-ratio curves").subtitle(&self.files).section(section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&self.facts(), out)?;
        let Answer { all, sliced, volumes, .. } = self.answer;
        write_table(&self.table(all, sliced.as_ref()), out)?;
        for (name, histogram) in volumes {
            if histogram.is_unsampled() {
                writeln!(out, "\nvolume {name}\nthe sample has no blocks of this volume")?;
                continue;
            }
            let table = self.table(histogram, None);
            writeln!(out, "\nvolume {name}\n{}", table.to_text().trim_end())?;
        }
        Ok(())
    }
}

impl Curves<'_> {
    fn facts(&self) -> Facts {
        let Answer { options, key, requests, all, sliced, .. } = self.answer;
        let bytes = options.block_size.bytes();
        let reused = all.max_distance().map_or(0, |max| max + 1);
        let by_sector = *key == Key::Sector;
        let mut facts = vec![
            ("requests", count(*requests)),
            (
                if options.request_level { "accesses" } else { "block accesses" },
                count(all.accesses()),
            ),
            ("share of writes", percent(all.write.accesses() as f64 / all.accesses() as f64)),
            (
                if by_sector { "distinct data" } else { "distinct contents" },
                Size(all.distinct_blocks * bytes).to_string(),
            ),
        ];
        let miss_ratio = shown(CurvePoint::at(all, reused).miss_ratio);
        facts.extend(match reused {
            0 => [("reuses", "no block is reused".to_owned()), ("miss ratio", miss_ratio)],
            blocks => [
                ("all reuses fit in", Size(blocks * bytes).to_string()),
                ("lowest miss ratio", miss_ratio),
            ],
        });
        facts.extend([
            ("reuse distance", options.distance.to_string()),
            ("block size", options.block_size.to_string()),
        ]);
        if all.sampled_rate.0 < 1.0 {
            facts.push(("sampled", percent(all.sampled_rate.0)));
        }
        if let Some(sliced) = sliced {
            facts.push(("measured in", format!("{} slices", sliced.slices.len())));
        }
        facts
    }

    fn points(&self, histogram: &ReuseHistogram) -> Vec<CurvePoint> {
        analysis::points(histogram, self.points, &self.at_blocks)
    }

    /// A curve as a table: at powers of two, at the requested sizes, and at the size at which the
    /// curve ends.
    fn table(&self, histogram: &ReuseHistogram, sliced: Option<&SlicedHistogram>) -> Table {
        let options = &self.answer.options;
        let full = histogram.max_distance().map_or(1, |max| max + 1);
        let reuses = histogram.max_distance().is_some();
        let shift = options.block_size.shift();
        // Start at 1 MiB: below that, only the last few requests of the trace determine a curve.
        let first = (20u32.saturating_sub(shift)).min(full.ilog2());
        let mut sizes: Vec<u64> = (first..64).map(|s| 1 << s).take_while(|&s| s < full).collect();
        sizes.extend(self.at_blocks.iter().copied().chain([full]));
        sizes.sort_unstable();
        sizes.dedup();
        let ratio = |value: f64, of: u64| match of {
            0 => "-".to_string(),
            _ => shown(value),
        };
        let writes = match options.distance.measures_writes() {
            true => histogram.write.accesses(),
            false => 0,
        };
        let bounds = |size: u64| sliced.and_then(|sliced| sliced.bounds(size));
        Table::from_items(sizes.into_iter().map(|size| CurvePoint::at(histogram, size)))
            .column("cache size", |p| {
                let all = if p.size_blocks == full && reuses { " (all reuses)" } else { "" };
                format!("{}{all}", Size(p.size_blocks * options.block_size.bytes()))
            })
            .number("miss ratio", |p| ratio(p.miss_ratio, histogram.accesses()))
            .number_if(sliced.is_some(), "95 % interval", |p| {
                let between = bounds(p.size_blocks);
                between.map_or_else(String::new, |b| format!("{:.4} to {:.4}", b.low, b.high))
            })
            .number("of reads", |p| ratio(p.read_miss_ratio, histogram.read.accesses()))
            .number("of writes", |p| ratio(p.write_miss_ratio, writes))
            .table()
    }
}

/// A miss ratio, with the same digits wherever it is printed.
fn shown(miss_ratio: f64) -> String {
    format!("{miss_ratio:.4}")
}

/// An empty chart of miss ratios by cache size.
pub(crate) fn lines(title: &str) -> Lines {
    Lines::new(title).x(Axis::new("cache size", Unit::Bytes).log()).y(Axis::new(
        "miss ratio",
        Unit::Fraction,
    )
    .from_zero())
}
