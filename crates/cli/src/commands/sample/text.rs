//! Samples as text.

use forebay_analysis::sample::{Answer, mean};
use forebay_config::Size;
use forebay_trace::PAGE_BYTES;

use crate::format::{count, percent, table};

/// A sample is to be this close on average over the features (Bhandari 2024, chapter 5, reports such errors for a tenth).
const MEAN_ERROR_AIM: f64 = 0.1;

/// For a terminal.
pub fn text(answer: &Answer) -> String {
    let mut text = String::new();
    for sample in &answer.samples {
        let requests = count(sample.measured.requests);
        text += &format!(
            "{}: {requests} requests, {} of the trace's {}\n",
            sample.output,
            percent(sample.request_ratio),
            count(answer.full.requests),
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
    let alone = answer.samples.len() == 1 && answer.candidates.is_empty();
    if alone && answer.samples[0].mean_error > MEAN_ERROR_AIM {
        text += &format!(
            "a mean error above {}: without --bits, the closest of 40 samples is taken\n",
            percent(MEAN_ERROR_AIM)
        );
    }
    if let Some(plain) = answer.plain() {
        text += &format!(
            "the plain method (one sample of regions of {}): mean error of the features {}, hit ratios \
             off by {}\n",
            Size(PAGE_BYTES << plain.bits),
            percent(plain.mean_error),
            percent(plain.hit_ratio_error.all)
        );
    }
    if !answer.candidates.is_empty() {
        let rows = answer.candidates.iter().map(|c| {
            let chosen = (c.bits, c.seed) == (answer.spec.bits, answer.spec.seed);
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
    if !answer.compared.is_empty() {
        let rows: Vec<Vec<String>> = (answer.compared.iter())
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

/// Four significant digits.
pub fn figure(value: f64) -> String {
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}
