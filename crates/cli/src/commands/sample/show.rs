//! Samples as text and in pictures.

use forebay_config::Size;
use forebay_locality::{CurvePoint, MissRatioCurve, ReuseHistogram};
use forebay_report::{Axis, Bars, Figure, Lines, Report, Section, Table, Unit};
use forebay_trace::{FEATURES, PAGE_BYTES};

use super::answer::{Answer, Reduced, Sampled, mean};
use crate::format::{count, percent, table};

/// A sample is to be this close on average over the features (Bhandari 2024, chapter 5, reports such errors for a tenth).
const MEAN_ERROR_AIM: f64 = 0.1;

impl Answer {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for sample in &self.samples {
            let requests = count(sample.measured.requests);
            text += &format!(
                "{}: {requests} requests, {} of the trace's {}\n",
                sample.output,
                percent(sample.request_ratio),
                count(self.full.requests),
            );
            if let Some(r) = &sample.reduction {
                text += &format!(
                    "removed {} of {} regions, {} are left: mean error {} before, {} now\n",
                    count(r.removed as u64),
                    count(r.regions as u64),
                    percent(sample.rate),
                    percent(r.mean_error_before),
                    percent(sample.mean_error),
                );
            }
            let rows: Vec<Vec<String>> = (sample.features.iter())
                .map(|f| vec![f.name.clone(), figure(f.full), figure(f.sample), percent(f.error)])
                .collect();
            text += &format!("\n{}\n", table(&["feature", "trace", "sample", "error"], &rows));
            let h = sample.hit_ratio_error;
            text += &format!(
                "mean error of the features {}, of their quantiles {}\nhit ratios are off by {} of \
                 reads, {} of writes, {} of all, on average over cache sizes\n",
                percent(sample.mean_error),
                percent(mean(&sample.quantiles)),
                percent(h.read),
                percent(h.write),
                percent(h.all),
            );
        }
        let alone = self.samples.len() == 1 && self.candidates.is_empty();
        if alone && self.samples[0].mean_error > MEAN_ERROR_AIM {
            text += &format!(
                "a mean error above {}: without --bits, the closest of 40 samples is taken\n",
                percent(MEAN_ERROR_AIM)
            );
        }
        if let Some(plain) = self.plain() {
            text += &format!(
                "the plain method (one sample of regions of {}): mean error of the features {}, hit ratios \
                 off by {}\n",
                Size(PAGE_BYTES << plain.bits),
                percent(plain.mean_error),
                percent(plain.hit_ratio_error.all)
            );
        }
        if !self.candidates.is_empty() {
            let rows = self.candidates.iter().map(|c| {
                let chosen = (c.bits, c.seed) == (self.spec.bits, self.spec.seed);
                vec![
                    Size(PAGE_BYTES << c.bits).to_string(),
                    c.seed.to_string(),
                    percent(c.mean_error),
                    percent(c.hit_ratio_error.all),
                    if chosen { "taken" } else { "" }.to_owned(),
                ]
            });
            let header = ["regions of", "seed", "mean error", "hit ratios off by", ""];
            text += &format!("\nChosen of:\n{}", table(&header, &rows.collect::<Vec<_>>()));
        }
        if !self.compared.is_empty() {
            let rows: Vec<Vec<String>> = (self.compared.iter())
                .map(|c| {
                    vec![
                        Size(PAGE_BYTES << c.bits).to_string(),
                        percent(c.request_ratio),
                        percent(c.mean_error),
                        percent(c.hit_ratio_error.all),
                    ]
                })
                .collect();
            let header = ["regions of", "requests", "mean error", "hit ratios off by"];
            text += &format!("\nSamples of the same rate:\n{}", table(&header, &rows));
        }
        text
    }

    /// In pictures.
    pub fn report(&self) -> Report {
        let section = |sample: &Sampled| {
            let mut section =
                Section::new(&sample.output).table(features(sample)).figure(self.curves(sample));
            if let Some(reduction) = &sample.reduction {
                section = section.figure(removals(reduction));
            }
            section
        };
        let first = Section::new("Errors").figure(self.errors());
        let report = Report::new("Sample").subtitle(self.name.clone()).section(first);
        self.samples.iter().map(section).fold(report, Report::section)
    }

    /// The error of each feature, of all samples side by side.
    fn errors(&self) -> Figure {
        let bars = Bars::new("Error of each feature", FEATURES)
            .axis(Axis::new("error", Unit::Fraction).from_zero());
        let bars = self.samples.iter().fold(bars, |bars, s| {
            bars.series(s.output.clone(), s.features.iter().map(|f| f.error))
        });
        let bars = self.compared.iter().fold(bars, |bars, c| {
            let name = format!("regions of {}", Size(PAGE_BYTES << c.bits));
            bars.series(name, c.features.iter().map(|f| f.error))
        });
        bars.figure().caption(
            "How far the mean over the sample's requests is from the mean over the trace's, as a \
             fraction. Regions of 4 KiB are plain spatial sampling.",
        )
    }

    fn curves(&self, sample: &Sampled) -> Figure {
        let lines = Lines::new("Miss ratio by cache size")
            .x(Axis::new("cache size", Unit::Bytes).log())
            .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
        let points = |reuse: &ReuseHistogram| MissRatioCurve::new(reuse, 200).points;
        let line = |lines: Lines, name: &str, points: Vec<CurvePoint>, rate: f64| {
            let size = |p: &CurvePoint| p.size_blocks as f64 * PAGE_BYTES as f64 / rate;
            let (x, y) =
                points.iter().map(|p| (size(p), p.miss_ratio)).unzip::<_, _, Vec<_>, Vec<_>>();
            lines.line(name, x, y)
        };
        let lines = line(lines, "trace", points(&self.full.reuse), 1.0);
        let lines = line(lines, "sample", points(&sample.measured.reuse), sample.rate);
        lines.figure().caption("The sample's cache sizes are divided by its rate.")
    }
}

fn features(sample: &Sampled) -> Table {
    let table = Table::new().column("feature").number("trace").number("sample").number("error");
    let all = sample.features.iter().chain(&sample.quantiles);
    all.fold(table, |table, f| {
        table.row([f.name.clone(), figure(f.full), figure(f.sample), percent(f.error)])
    })
}

fn removals(reduction: &Reduced) -> Figure {
    let removed = || reduction.curve.iter().map(|c| c.removed as f64);
    let lines = Lines::new("Error by regions removed")
        .x(Axis::new("regions removed", Unit::Plain))
        .y(Axis::new("error", Unit::Fraction).from_zero())
        .line("features", removed(), reduction.curve.iter().map(|c| c.mean_error))
        .line("hit ratios", removed(), reduction.curve.iter().map(|c| c.hit_ratio_error.all))
        .line("together", removed(), reduction.curve.iter().map(|c| c.total_error))
        .mark(reduction.removed as f64, "taken");
    lines.figure().caption("Removals are ordered by what they gain for the features alone.")
}

/// Four significant digits.
fn figure(value: f64) -> String {
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}
