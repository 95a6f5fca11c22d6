//! Removes regions from a sample as long as that makes it more similar to the trace.

use std::path::Path;

use forebay_block::Nanos;
use forebay_trace::{
    Batch, Filter, ParquetTraceWriter, Reduction, RegionSet, RegionTable, reduce as remove,
};

use super::answer::{Checkpoint, Sampled};
use super::each_part;
use super::measure::{Measure, Measured};
use crate::{AnalysisError, Observer, Unit};

/// Number of lengths of the reduction at which hit ratios are measured as well.
const CHECKPOINTS: usize = 16;

/// A sample to reduce.
pub(super) struct Job<'a> {
    /// The sample.
    pub sample: &'a Path,
    /// The file of the reduced sample.
    pub output: &'a Path,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// The sample's rate.
    pub rate: f64,
    /// The lowest allowed rate.
    pub target: f64,
    /// Largest allowed error of the hit ratios; an error that was larger before must not grow.
    /// `None`: hit ratios count like any feature.
    pub hit_ratio_error_max: Option<f64>,
}

/// Removes regions while the features gain, then keeps the number of removals with the lowest error
/// that the limit on hit ratios allows, and writes the remaining sample.
pub(super) fn reduce(
    job: &Job<'_>,
    full: &Measured,
    unreduced: Sampled,
    observer: &dyn Observer,
) -> Result<Sampled, AnalysisError> {
    let mut table = RegionTable::new(job.region_bytes);
    each_part(job.sample, observer, |batch| {
        for i in 0..batch.len() {
            table.add(&batch.request(i), batch.gap(i).unwrap_or(Nanos(0)));
        }
        Ok(())
    })?;
    let regions = table.len();
    let least = (regions as f64 * job.target / job.rate).ceil() as usize;
    let meter = observer.begin("reducing", Unit::Count, Some((regions - least) as u64));
    let reduction = remove(table, &full.moments, least, |done| {
        meter.set(done as u64);
        observer.check().is_ok()
    });
    observer.check()?;
    drop(meter);
    let removed: RegionSet = reduction.steps.iter().map(|s| s.key).collect();
    let mut tried = try_lengths(job, &removed, &lengths(&reduction), observer)?;
    let rate_of = |length: usize| job.rate * (regions - length) as f64 / regions.max(1) as f64;
    let checkpoints: Vec<Checkpoint> = (tried.iter())
        .map(|(length, m)| Checkpoint::new(*length, rate_of(*length), full, m))
        .collect();
    let best = match job.hit_ratio_error_max {
        None => lowest(&checkpoints, |_| true, |c| c.total_error),
        Some(most) => {
            let before = unreduced.hit_ratio_error;
            let holds = |c: &Checkpoint| c.hit_ratio_error.within(most, before);
            lowest(&checkpoints, holds, |c| c.mean_error)
        }
    };
    let (length, measured) = tried.swap_remove(best);
    write(job, &removed, (length, rate_of(length)), observer)?;
    Ok(Sampled::new(job.output, rate_of(length), full, measured).reduced(
        unreduced,
        regions,
        length,
        checkpoints,
    ))
}

/// Index of the checkpoint with the lowest value of `of`, among those for which `holds` is true.
/// The first, without removals, always qualifies.
fn lowest(
    checkpoints: &[Checkpoint],
    holds: impl Fn(&Checkpoint) -> bool,
    of: impl Fn(&Checkpoint) -> f64,
) -> usize {
    let holding = (0..checkpoints.len()).filter(|&at| at == 0 || holds(&checkpoints[at]));
    holding.min_by(|&a, &b| of(&checkpoints[a]).total_cmp(&of(&checkpoints[b]))).unwrap_or(0)
}

/// The numbers of removals to measure: none, all, and some in between.
fn lengths(reduction: &Reduction) -> Vec<usize> {
    let all = reduction.steps.len();
    let mut lengths: Vec<usize> = (0..=CHECKPOINTS).map(|i| all * i / CHECKPOINTS).collect();
    lengths.dedup();
    lengths
}

/// Measures the sample after each of these numbers of removals.
fn try_lengths(
    job: &Job<'_>,
    removed: &RegionSet,
    lengths: &[usize],
    observer: &dyn Observer,
) -> Result<Vec<(usize, Measured)>, AnalysisError> {
    let mut tried = Vec::new();
    for &first in lengths {
        tried.push((first, Measure::new(None)?));
    }
    let mut left = Batch::default();
    each_part(job.sample, observer, |batch| {
        for (first, measure) in &mut tried {
            left.clear();
            let filter = Filter { removed, first: *first, region_bytes: job.region_bytes };
            (0..batch.len()).for_each(|i| filter.filter(&batch.record(i), &mut left));
            measure.add_sample(&left)?;
        }
        Ok(())
    })?;
    tried.into_iter().map(|(first, measure)| Ok((first, measure.finish()?))).collect()
}

fn write(
    job: &Job<'_>,
    removed: &RegionSet,
    (first, rate): (usize, f64),
    observer: &dyn Observer,
) -> Result<(), AnalysisError> {
    let filter = Filter { removed, first, region_bytes: job.region_bytes };
    let (mut left, mut writer) = (Batch::default(), ParquetTraceWriter::create(job.output)?);
    let mut metadata = each_part(job.sample, observer, |batch| {
        left.clear();
        (0..batch.len()).for_each(|i| filter.filter(&batch.record(i), &mut left));
        Ok(writer.push_batch(&left)?)
    })?;
    if let Some(sample) = &mut metadata.sample {
        sample.rate = rate;
    }
    metadata.provenance.push(format!(
        "forebay {}: {first} further regions removed, to approach rate {}",
        env!("CARGO_PKG_VERSION"),
        job.target
    ));
    writer.finish(&metadata)?;
    Ok(())
}
