//! Samples as text.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::sample::{Answer, Candidate, Sampled, mean};
use forebay_config::Size;
use forebay_report::{Report, Table};
use forebay_trace::{FeatureError, PAGE_BYTES};
use serde::Serialize;

use super::pictures::sections;
use crate::Shown;
use crate::format::{count, counted, figure, percent};

/// Acceptable mean error over the features of a sample (Bhandari 2024, chapter 5, reports such
/// errors at a rate of 0.1).
const MEAN_ERROR_AIM: f64 = 0.1;

/// Samples of a trace.
pub struct Samples<'a> {
    /// The answer.
    pub answer: &'a Answer,
}

impl Shown for Samples<'_> {
    fn document(&self) -> impl Serialize {
        self.answer.document()
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        let document = self.answer.document();
        let report = Report::new("Sample").subtitle(document.trace.clone());
        sections(&document, "Errors").into_iter().fold(report, Report::section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        out.write_all(text(self.answer).as_bytes())
    }
}

/// The text about one sample; the trace has `trace_requests` requests.
fn of_sample(sample: &Sampled, trace_requests: u64) -> String {
    let mut text = format!(
        "{}: {}, {} of the trace's {}\n",
        sample.output,
        counted(sample.measured.requests, "request"),
        percent(sample.request_ratio),
        count(trace_requests),
    );
    if let Some(r) = &sample.reduction {
        text += &format!(
            "removed {} of {} regions, so the rate is now {}: the mean error was {} and is now {}\n",
            count(r.removed as u64),
            count(r.regions as u64),
            percent(sample.rate),
            percent(r.mean_error_before),
            percent(sample.mean_error),
        );
    }
    let features = Table::from_items(&sample.features)
        .column("feature", |f| f.name.clone())
        .column("unit", |f| unit(&f.name).to_owned())
        .number("trace", |f| figure(f.full))
        .number("sample", |f| figure(f.sample))
        .number("error", |f| percent(f.error));
    text += &format!("\n{}\n", features.to_text());
    let h = sample.hit_ratio_error;
    text += &format!(
        "mean error of the features {}{}, of their quantiles {}\nmean hit-ratio error over the \
         cache sizes: {} for reads, {} for writes, {} for both\n",
        percent(sample.mean_error),
        without_rare(&sample.features),
        percent(mean(&sample.quantiles)),
        percent(h.read),
        percent(h.write),
        percent(h.all),
    );
    text
}

/// The unit of a feature.
fn unit(feature: &str) -> &'static str {
    match feature.split_once('_') {
        Some((_, "size" | "misalignment")) => "bytes",
        Some((_, "iat_us")) => "µs",
        _ => "",
    }
}

/// The mean error without mean misalignments below one byte, in parentheses; empty if these have no
/// error. A few requests cause such a misalignment, so almost every sample is far off.
fn without_rare(features: &[FeatureError]) -> String {
    let is_rare = |f: &&FeatureError| f.name.ends_with("_misalignment") && f.full < 1.0;
    if !features.iter().filter(is_rare).any(|f| f.error > 0.0) {
        return String::new();
    }
    let others: Vec<FeatureError> = features.iter().filter(|f| !is_rare(f)).cloned().collect();
    format!(" ({} without misalignments below one byte)", percent(mean(&others)))
}

fn text(answer: &Answer) -> String {
    let requests = answer.full.requests;
    let mut text: String = answer.samples.iter().map(|taken| of_sample(taken, requests)).collect();
    let alone = answer.samples.len() == 1 && answer.candidates.is_empty();
    if alone && answer.samples[0].mean_error > MEAN_ERROR_AIM {
        text += &format!(
            "the mean error is above {}; without --bits and --samples, Forebay takes 40 samples and keeps \
             the closest one\n",
            percent(MEAN_ERROR_AIM)
        );
    }
    if let Some(plain) = answer.plain() {
        text += &format!(
            "the plain method (one sample with regions of {}): mean error of the features {}, \
             hit-ratio error {}\n",
            Size(PAGE_BYTES << plain.bits),
            percent(plain.mean_error),
            percent(plain.hit_ratio_error.all)
        );
    }
    if !answer.candidates.is_empty() {
        let taken = |c: &Candidate| (c.bits, c.seed) == (answer.spec.bits, answer.spec.seed);
        let table = Table::from_items(&answer.candidates)
            .column("regions of", |c| Size(PAGE_BYTES << c.bits).to_string())
            .number("seed", |c| c.seed.to_string())
            .number("mean error", |c| percent(c.mean_error))
            .number("hit-ratio error", |c| percent(c.hit_ratio_error.all))
            .number("", |c| if taken(c) { "taken" } else { "" }.to_owned());
        text += &format!("\nCandidates:\n{}", table.to_text());
    }
    if !answer.compared.is_empty() {
        let table = Table::from_items(&answer.compared)
            .column("regions of", |c| Size(PAGE_BYTES << c.bits).to_string())
            .number("requests", |c| percent(c.request_ratio))
            .number("mean error", |c| percent(c.mean_error))
            .number("hit-ratio error", |c| percent(c.hit_ratio_error.all));
        text += &format!("\nSamples of the same rate:\n{}", table.to_text());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misalignment_that_few_requests_cause_is_left_out_of_a_second_mean() {
        let features = |misalignment: f64| {
            let sizes = FeatureError::new("read_size", 100.0, 98.0);
            [sizes, FeatureError::new("read_misalignment", misalignment, 0.0)]
        };
        assert_eq!(without_rare(&features(0.07)), " (2.0 % without misalignments below one byte)");
        for no_exception in [0.0, 512.0] {
            assert_eq!(without_rare(&features(no_exception)), "");
        }
        let units = ["read_size", "write_misalignment", "read_iat_us", "write_ratio"].map(unit);
        assert_eq!(units, ["bytes", "bytes", "µs", ""]);
    }
}
