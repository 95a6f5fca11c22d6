//! Which smaller trace has the features and hit ratios of the whole? (BlkSample; Bhandari 2024,
//! chapter 5.)

mod answer;
mod document;
mod measure;
mod reduction;

use std::path::{Path, PathBuf};

use forebay_block::Nanos;
use forebay_trace::{
    Batch, Metadata, PAGE_BYTES, ParquetTraceWriter, SampleInfo, SampleSpec, Sampler, TraceError,
    TraceReader,
};

use crate::{AnalysisError, Described, Observer, Traces};
pub use answer::{Answer, Candidate, Checkpoint, Compared, Reduced, Row, Sampled, mean};
pub use document::{Document, SampleDocument, Value};
use measure::Measure;
pub use measure::{HitRatioError, Measured};

/// Bits of the samples that are taken for comparison.
const COMPARED_BITS: [u32; 4] = [0, 1, 2, 4];
/// Region size of the thesis, 64 KiB, in bits.
pub const PLAIN_BITS: u32 = 4;
/// Default region sizes, in bits, among which the best sample is chosen; `docs/sampling.md` shows
/// the gain.
pub const SEARCHED_BITS: [u32; 5] = [4, 5, 6, 7, 8];
/// Default number of samples for each region size from which the best is chosen.
pub const SEARCHED_SEEDS: u32 = 8;
/// By default, the best sample is reduced to no less than this fraction of its rate.
pub const SEARCHED_TARGET: f64 = 0.7;
/// By default, a reduction must keep the error of the hit ratios within this.
pub const HIT_RATIO_AIM: f64 = 0.02;
/// Largest number of samples that are taken at a time, each into its own file.
pub const SAMPLES_MAX: u64 = 1000;

/// Which samples of a trace to take.
#[derive(Clone, Debug)]
pub struct Question {
    /// The traces to sample.
    pub traces: Traces,
    /// The fraction of regions to keep.
    pub rate: f64,
    /// Region sizes to try: 4 KiB shifted left by each of these.
    pub bits: Vec<u32>,
    /// Number of candidates for each region size, with consecutive seeds from `seed`.
    pub best_of: u32,
    /// Number of samples to write, without a region in common; only without candidates.
    pub samples: u32,
    /// The first seed; another seed gives another sample.
    pub seed: u64,
    /// Candidates whose hit ratios are off by at most this are preferred to all others.
    pub hit_ratio_aim: Option<f64>,
    /// How to remove further regions as long as that reduces the error of the features.
    pub reduce: Option<Reduce>,
    /// Whether to take samples with other region sizes as well, for comparison.
    pub compare: bool,
    /// Largest number of blocks on which the hit ratios of the whole trace are measured, to bound
    /// memory.
    pub max_blocks: Option<u64>,
    /// The file of the sample, in Forebay's format. Several samples go to `NAME-1.parquet` and so
    /// on.
    pub output: PathBuf,
}

/// How far to reduce a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reduce {
    /// The lowest allowed rate.
    pub target_rate: f64,
    /// Largest allowed error of the hit ratios; an error that was larger before must not grow.
    /// `None`: hit ratios count like any feature.
    pub hit_ratio_error_max: Option<f64>,
}

impl Question {
    /// A question about the closest of 40 samples, reduced as far as its hit ratios stay close.
    pub fn new(traces: Traces, rate: f64, output: PathBuf) -> Self {
        let hit_ratio_aim = Some(HIT_RATIO_AIM);
        Self {
            traces,
            rate,
            bits: SEARCHED_BITS.to_vec(),
            best_of: SEARCHED_SEEDS,
            samples: 1,
            seed: 0,
            hit_ratio_aim,
            reduce: Some(Reduce {
                target_rate: SEARCHED_TARGET * rate,
                hit_ratio_error_max: hit_ratio_aim,
            }),
            compare: false,
            max_blocks: None,
            output,
        }
    }

    /// Rejects an impossible question before traces are read.
    ///
    /// # Errors
    /// If no such sample can be taken, or too many are requested at a time.
    pub fn check(&self) -> Result<(), AnalysisError> {
        let impossible = |what| Err(AnalysisError::Impossible(what));
        if self.reduce.is_some_and(|reduce| reduce.target_rate >= self.rate) {
            return impossible("the target rate must be less than the sampling rate");
        }
        if self.samples > 1 && (self.best_of > 1 || self.bits.len() > 1) {
            return impossible(
                "cannot write several samples and also keep only the best of several; choose one \
                 of the two",
            );
        }
        for &bits in &self.bits {
            // This also checks that the rate allows that number of samples.
            let (rate, seed, number) = (self.rate, self.seed, self.samples.saturating_sub(1));
            Sampler::new(SampleSpec { rate, bits, seed, number })?;
        }
        match self.specs().len() as u64 {
            0 => impossible("no sample is requested"),
            1..=SAMPLES_MAX => Ok(()),
            _ => impossible("these options request too many samples"),
        }
    }

    /// The files to write.
    pub fn outputs(&self) -> Vec<PathBuf> {
        if self.samples == 1 {
            return vec![self.output.clone()];
        }
        let stem = self.output.file_stem().unwrap_or_default().to_string_lossy();
        let name = |n| self.output.with_file_name(format!("{stem}-{n}.parquet"));
        (1..=self.samples).map(name).collect()
    }

    /// The samples to take: all that are requested, or the candidates.
    fn specs(&self) -> Vec<SampleSpec> {
        let spec = SampleSpec { rate: self.rate, bits: 0, seed: self.seed, number: 0 };
        let of_bits = |&bits: &u32| {
            (0..self.best_of).flat_map(move |n| {
                let seed = self.seed.wrapping_add(n.into());
                (0..self.samples).map(move |number| SampleSpec { bits, seed, number, ..spec })
            })
        };
        self.bits.iter().flat_map(of_bits).collect()
    }

    /// Reads the traces, once, takes the samples and writes them.
    ///
    /// # Errors
    /// If [`check`](Self::check) fails, the traces cannot be read, the traces or a sample contain
    /// nothing, a file cannot be written, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        self.check()?;
        let (outputs, specs) = (self.outputs(), self.specs());
        let choice = specs.len() > outputs.len();
        let scratch = (choice || self.reduce.is_some()).then(|| scratch(&self.output));
        let scratch = scratch.transpose()?;
        let directory = scratch.as_ref().map(tempfile::TempDir::path);
        let answer = self.ask_in(directory, (outputs, specs, choice), observer);
        answer.map_err(|error| match directory {
            Some(directory) => without_scratch(error, directory, &self.output),
            None => error,
        })
    }

    /// Takes the samples. `directory` is for temporary files: candidates and samples not yet
    /// reduced.
    fn ask_in(
        &self,
        directory: Option<&Path>,
        (outputs, specs, choice): (Vec<PathBuf>, Vec<SampleSpec>, bool),
        observer: &dyn Observer,
    ) -> Result<Answer, AnalysisError> {
        // Samples go to temporary files first if they are read again for a reduction or if one is
        // chosen.
        let first: Vec<PathBuf> = match directory {
            Some(directory) => {
                (0..specs.len()).map(|i| directory.join(format!("{i}.parquet"))).collect()
            }
            None => outputs.clone(),
        };
        let mut taken = take(self, observer, &specs, &first)?;
        let mut first: Vec<(SampleSpec, PathBuf)> = specs.into_iter().zip(first).collect();
        let mut candidates = Vec::new();
        if choice {
            candidates = self.candidates(&first, &taken);
            let best = answer::best(&candidates, &taken.samples, self.hit_ratio_aim);
            taken.samples = vec![taken.samples.swap_remove(best)];
            first = vec![first.swap_remove(best)];
            if taken.samples[0].is_without_accesses() {
                return Err(AnalysisError::NoRegion { several: true });
            }
            if self.reduce.is_none() {
                let path = self.output.clone();
                std::fs::rename(&first[0].1, &path).map_err(|source| AnalysisError::File {
                    what: "write",
                    path,
                    source,
                })?;
            }
        }
        let spec = first[0].0;
        let mut samples = Vec::new();
        for ((output, (spec, first)), measured) in outputs.iter().zip(&first).zip(taken.samples) {
            let unreduced = Sampled::new(output, self.rate, &taken.full, measured);
            samples.push(match self.reduce {
                None => unreduced,
                Some(Reduce { target_rate, hit_ratio_error_max }) => {
                    let job = reduction::Job {
                        sample: first,
                        output,
                        region_bytes: PAGE_BYTES << spec.bits,
                        rate: self.rate,
                        target: target_rate,
                        hit_ratio_error_max,
                    };
                    reduction::reduce(&job, &taken.full, unreduced, observer)?
                }
            });
        }
        let compared = taken.compared.into_iter();
        let compared = compared.map(|(bits, m)| Compared::new(bits, self.rate, &taken.full, m));
        let (name, compared) = (self.traces.names(), compared.collect());
        Ok(Answer { name, spec, full: taken.full, samples, compared, candidates })
    }

    fn candidates(&self, first: &[(SampleSpec, PathBuf)], taken: &Taken) -> Vec<Candidate> {
        let each = first.iter().zip(&taken.samples);
        each.map(|((spec, _), m)| Candidate::new(*spec, self.rate, &taken.full, m)).collect()
    }
}

/// Creates a directory next to the output that is removed when the work ends.
fn scratch(output: &Path) -> Result<tempfile::TempDir, AnalysisError> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(".forebay-sample-").tempdir_in(parent);
    made.map_err(|source| {
        let (what, path) = ("make a directory in", parent.to_path_buf());
        AnalysisError::File { what, path, source }
    })
}

/// Replaces the name of a file in the scratch directory, which users never see, with the output's.
fn without_scratch(error: AnalysisError, scratch: &Path, output: &Path) -> AnalysisError {
    let named = |path: PathBuf| if path.starts_with(scratch) { output.to_owned() } else { path };
    match error {
        AnalysisError::Trace(TraceError::Io { path, doing, source }) => {
            AnalysisError::Trace(TraceError::Io { path: named(path), doing, source })
        }
        AnalysisError::Trace(TraceError::Parquet { path, what }) => {
            AnalysisError::Trace(TraceError::Parquet { path: named(path), what })
        }
        error => error,
    }
}

/// The results of the first pass over the trace.
struct Taken {
    full: Measured,
    samples: Vec<Measured>,
    /// Measurements of other region sizes, by bits.
    compared: Vec<(u32, Measured)>,
}

/// The first pass over the trace: everything to which each request is added.
struct Pass {
    full: Measure,
    samples: Vec<(Sampler, Measure, ParquetTraceWriter)>,
    /// Samplers of other region sizes, by bits.
    compared: Vec<(u32, Sampler, Measure)>,
    /// The time of the last request.
    last: Option<Nanos>,
    /// The part of a batch that is in a sample.
    part: Batch,
}

impl Pass {
    fn new(
        question: &Question,
        specs: &[SampleSpec],
        paths: &[PathBuf],
    ) -> Result<Self, AnalysisError> {
        let full = Measure::new(question.max_blocks)?;
        let mut samples = Vec::new();
        for (spec, path) in specs.iter().zip(paths) {
            let writer = ParquetTraceWriter::create(path)?;
            samples.push((Sampler::new(*spec)?, Measure::new(None)?, writer));
        }
        let mut compared = Vec::new();
        for bits in COMPARED_BITS.into_iter().filter(|_| question.compare) {
            let spec = SampleSpec { rate: question.rate, bits, seed: question.seed, number: 0 };
            compared.push((bits, Sampler::new(spec)?, Measure::new(None)?));
        }
        Ok(Self { full, samples, compared, last: None, part: Batch::default() })
    }

    fn add(&mut self, batch: &Batch) -> Result<(), AnalysisError> {
        let Self { full, samples, compared, last, part } = self;
        let mut gaps = Vec::with_capacity(batch.len());
        for &time in &batch.time_ns {
            gaps.push(Nanos(time - last.map_or(time, |last| last.0)));
            *last = Some(Nanos(time));
        }
        for (i, gap) in gaps.iter().enumerate() {
            full.add(&batch.request(i), *gap)?;
        }
        let sample = |sampler: &Sampler, measure: &mut Measure, part: &mut Batch| {
            part.clear();
            for (i, gap) in gaps.iter().enumerate() {
                sampler.sample(&batch.record(i), *gap, part);
            }
            measure.add_sample(part)
        };
        for (sampler, measure, writer) in samples {
            sample(sampler, measure, part)?;
            writer.push_batch(part)?;
        }
        for (_, sampler, measure) in compared {
            sample(sampler, measure, part)?;
        }
        Ok(())
    }

    /// Finishes the files.
    fn finish(
        self,
        question: &Question,
        specs: &[SampleSpec],
        traces: &Described,
    ) -> Result<Taken, AnalysisError> {
        let full = self.full.finish()?;
        if full.requests == 0 {
            return Err(AnalysisError::NothingToSample);
        }
        if full.is_without_accesses() {
            return Err(AnalysisError::NoAccesses);
        }
        // The same hash would select the same regions again.
        let same = |of: &&SampleInfo| {
            specs.iter().any(|spec| (spec.bits, spec.seed) == (of.bits, of.seed))
        };
        let Metadata { sample, merged_samples, .. } = &traces.metadata;
        if let Some(of) = sample.iter().chain(merged_samples).find(same) {
            return Err(AnalysisError::SampleOfSample { seed: of.seed });
        }
        let mut finished = Vec::new();
        for (_, measure, writer) in self.samples {
            let of_sample = measure.finish()?;
            if of_sample.is_without_accesses() && question.outputs().len() == specs.len() {
                return Err(AnalysisError::NoRegion { several: false });
            }
            finished.push((of_sample, writer));
        }
        let mut samples = Vec::new();
        for ((of_sample, writer), spec) in finished.into_iter().zip(specs) {
            let mut metadata = provenance(question, *spec, traces);
            metadata.sample = Some(SampleInfo {
                rate: spec.rate,
                bits: spec.bits,
                seed: spec.seed,
                requests: full.requests,
                whole: full.moments,
            });
            writer.finish(&metadata)?;
            samples.push(of_sample);
        }
        let compared = self.compared.into_iter().map(|(bits, _, m)| Ok((bits, m.finish()?)));
        let compared = compared.collect::<Result<_, AnalysisError>>()?;
        Ok(Taken { full, samples, compared })
    }
}

/// Reads the trace once, measures it, and writes the samples.
fn take(
    question: &Question,
    observer: &dyn Observer,
    specs: &[SampleSpec],
    paths: &[PathBuf],
) -> Result<Taken, AnalysisError> {
    let mut pass = Pass::new(question, specs, paths)?;
    let traces = question.traces.read_batches(observer, |batch, _| pass.add(batch))?;
    pass.finish(question, specs, &traces)
}

/// The metadata of a sample: that of its trace, plus its provenance.
fn provenance(question: &Question, spec: SampleSpec, traces: &Described) -> Metadata {
    let mut metadata = traces.metadata.clone();
    metadata.provenance.push(format!(
        "forebay {}: sampled from {} ({} requests) at rate {}, regions of {} bytes, seed {}",
        env!("CARGO_PKG_VERSION"),
        question.traces.names(),
        traces.requests,
        question.rate,
        PAGE_BYTES << spec.bits,
        spec.seed,
    ));
    metadata
}

/// Reads a sample from beginning to end, batch by batch.
fn each_part(
    sample: &Path,
    observer: &dyn Observer,
    mut work: impl FnMut(&Batch) -> Result<(), AnalysisError>,
) -> Result<Metadata, AnalysisError> {
    let mut reader = forebay_trace::open(sample, &forebay_trace::OpenOptions::default())?;
    let mut batch = Batch::default();
    while reader.read_batch(&mut batch)? > 0 {
        observer.check()?;
        work(&batch)?;
    }
    Ok(reader.metadata().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_temporary_file_names_the_output() {
        let [scratch, output] = ["/x/.forebay-sample-1", "/x/s.parquet"].map(Path::new);
        let full = |path: PathBuf| {
            let source = std::io::ErrorKind::StorageFull.into();
            let error = TraceError::Io { path, doing: "write", source };
            without_scratch(error.into(), scratch, output).to_string()
        };
        assert!(full(scratch.join("0.parquet")).starts_with("/x/s.parquet: cannot write"));
        assert!(full("/y/t.csv".into()).starts_with("/y/t.csv: cannot write"));
    }
}
