//! `forebay sample`: a smaller trace with the features and hit ratios of the whole (BlkSample).

mod answer;
pub mod document;
mod measure;
mod reduction;
mod show;

use std::path::{Path, PathBuf};

use forebay_analysis::Described;
use forebay_block::Nanos;
use forebay_trace::{
    BITS_MAX, Batch, Metadata, PAGE_BYTES, ParquetTraceWriter, SampleInfo, SampleSpec, Sampler,
    TraceReader,
};

use crate::args::{TraceArgs, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::{check_files, directory_of, write_stdout};
use crate::reading::read_trace_batches;
use crate::rows::write_parquet;
use answer::{Answer, Candidate, Compared, Sampled};
use measure::{Measure, Measured};

/// Bits of the samples that `--compare` takes.
const COMPARED_BITS: [u32; 4] = [0, 1, 2, 4];
/// The region of the thesis, 64 KiB.
const PLAIN_BITS: u32 = 4;
/// Unless told otherwise so many samples are taken to choose one of; `docs/sampling.md` has what that
/// gains.
const SEARCHED_BITS: [u32; 5] = [4, 5, 6, 7, 8];
/// Of each size of regions.
const SEARCHED_SEEDS: u32 = 8;
/// The best of them is reduced to this share of its rate at most.
const SEARCHED_TARGET: f64 = 0.7;
/// And no further than that its hit ratios stay so close.
const HIT_RATIO_AIM: f64 = 0.02;
/// Samples that are taken at a time at most, each into a file.
const SAMPLES_MAX: u64 = 1000;

/// Arguments of `forebay sample`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:blocks=100k,requests=100k' -o zipf.parquet
  $ forebay sample zipf.parquet --rate 0.1 -o tenth.parquet
  $ forebay sample zipf.parquet --rate 0.1 --bits 4,6 --best-of 4 -o b.parquet
  $ forebay sample zipf.parquet --rate 0.1 --target-rate 0.09 -o ninth.parquet")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The share of regions to keep
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: f64,
    /// A region is 4 KiB shifted by BITS; 0 is plain spatial sampling, 4 that of the thesis. Of
    /// several the best is taken [default: 4,5,6,7,8, eight of each, and the best reduced]
    #[arg(long, value_name = "BITS,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=i64::from(BITS_MAX)))]
    pub bits: Vec<u32>,
    /// Take N samples for each BITS, of seeds from SEED on, and keep the one whose features and hit
    /// ratios are closest [default: 1 with --bits, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub best_of: Option<u32>,
    /// Remove further regions, down to this rate, while that brings the features closer [default:
    /// 0.7 of --rate without --bits, as far as hit ratios stay within 0.02; else none]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub target_rate: Option<f64>,
    /// Take N samples without a region in common: NAME-1.parquet, NAME-2.parquet ...
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Another seed is another sample
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Take samples of regions of other sizes beside it, and show how far off each is
    #[arg(long)]
    pub compare: bool,
    /// Measure the hit ratios of the whole trace on N blocks at most (256 or more), in bounded
    /// memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..))]
    pub max_blocks: Option<u64>,
    /// The sample, in Forebay's format
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write the features of the trace and of each sample to FILE as Parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub parquet: Option<PathBuf>,
    /// Write the pictures to FILE as a self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl Args {
    /// Whether nobody says how the sample is to be taken, so that the closest of many is.
    fn searches(&self) -> bool {
        self.bits.is_empty() && self.samples == 1
    }

    /// Sizes of regions to try.
    fn bits(&self) -> &[u32] {
        match self.bits.as_slice() {
            [] if self.searches() => &SEARCHED_BITS,
            [] => &[PLAIN_BITS],
            bits => bits,
        }
    }

    fn best_of(&self) -> u32 {
        self.best_of.unwrap_or(if self.searches() { SEARCHED_SEEDS } else { 1 })
    }

    /// Down to which rate the sample is reduced, and how far off its hit ratios may then be.
    fn reduces(&self) -> Option<(f64, Option<f64>)> {
        match self.target_rate {
            Some(target) => Some((target, None)),
            None if self.searches() => Some((SEARCHED_TARGET * self.rate, Some(HIT_RATIO_AIM))),
            None => None,
        }
    }
}

/// Takes the samples.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    check(&args)?;
    let outputs = outputs(&args);
    let specs = specs(&args);
    let choice = specs.len() > outputs.len();
    let scratch = (choice || args.reduces().is_some()).then(|| scratch(&args.output));
    let scratch = scratch.transpose()?;
    // Where the samples go first: reduced ones are read again, and of several one is taken.
    let first: Vec<PathBuf> = match &scratch {
        Some(directory) => {
            (0..specs.len()).map(|i| directory.path().join(format!("{i}.parquet"))).collect()
        }
        None => outputs.clone(),
    };
    let mut taken = take(&args, ctx, &specs, &first)?;
    let mut first: Vec<(SampleSpec, PathBuf)> = specs.into_iter().zip(first).collect();
    let candidates = if choice {
        let candidates = candidates(&args, &first, &taken);
        let close = args.searches().then_some(HIT_RATIO_AIM);
        let best = answer::best(&candidates, close);
        taken.samples = vec![taken.samples.swap_remove(best)];
        first = vec![first.swap_remove(best)];
        if taken.samples[0].requests == 0 {
            let what = "no region of the trace is in any of the samples";
            return Err(CliError::failed(what).kept("no file was made").next("raise --rate"));
        }
        if args.reduces().is_none() {
            std::fs::rename(&first[0].1, &args.output)
                .map_err(|e| CliError::file("cannot write", &args.output, e))?;
        }
        candidates
    } else {
        Vec::new()
    };
    let spec = first[0].0;
    let mut samples = Vec::new();
    for ((output, (spec, first)), measured) in outputs.iter().zip(&first).zip(taken.samples) {
        let unreduced = Sampled::new(output, args.rate, &taken.full, measured);
        samples.push(match args.reduces() {
            None => unreduced,
            Some((target, hit_ratio_error_max)) => {
                let job = reduction::Job {
                    sample: first,
                    output,
                    region_bytes: PAGE_BYTES << spec.bits,
                    rate: args.rate,
                    target,
                    hit_ratio_error_max,
                };
                reduction::reduce(&job, &taken.full, unreduced, ctx)?
            }
        });
    }
    let compared = taken.compared.into_iter();
    let compared = compared.map(|(bits, m)| Compared::new(bits, args.rate, &taken.full, m));
    let compared = compared.collect();
    let answer = Answer::new(&args, spec, taken.full, samples, compared, candidates);
    if let Some(path) = &args.parquet {
        write_parquet(path, &answer.rows())?;
    }
    if let Some(path) = &args.html {
        answer.document().report().write_html(path)?;
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&answer.document())? + "\n",
        false => answer.text(),
    };
    write_stdout(text.as_bytes())
}

fn check(args: &Args) -> Result<(), CliError> {
    let usage = |what: String| Err(CliError::usage(what).kept("nothing was written"));
    if args.output.extension().is_none_or(|e| !e.eq_ignore_ascii_case("parquet")) {
        return usage(format!("-o {}: samples are written as .parquet", args.output.display()));
    }
    if let Some(target) = args.target_rate.filter(|target| *target >= args.rate) {
        return usage(format!("--target-rate {target} is not below --rate {}", args.rate));
    }
    if args.samples > 1 && (args.best_of() > 1 || args.bits.len() > 1) {
        return usage("--samples takes several; --best-of and several --bits keep one".to_owned());
    }
    for &bits in args.bits() {
        // Also says whether there are that many.
        let (rate, seed, number) = (args.rate, args.seed, args.samples - 1);
        let last = SampleSpec { rate, bits, seed, number };
        Sampler::new(last).map_err(|e| CliError::usage(e.to_string()))?;
    }
    let specs = args.bits().len() as u64 * u64::from(args.best_of()) * u64::from(args.samples);
    if specs > SAMPLES_MAX {
        let what = format!("{specs} samples would be taken at a time; {SAMPLES_MAX} at most are");
        return usage(what);
    }
    let samples = outputs(args);
    check_files(samples.iter().chain(&args.parquet).chain(&args.html), &args.traces.traces)
}

fn outputs(args: &Args) -> Vec<PathBuf> {
    if args.samples == 1 {
        return vec![args.output.clone()];
    }
    let stem = args.output.file_stem().unwrap_or_default().to_string_lossy();
    (1..=args.samples).map(|n| args.output.with_file_name(format!("{stem}-{n}.parquet"))).collect()
}

/// A directory beside the output, which goes when the work ends.
fn scratch(output: &Path) -> Result<tempfile::TempDir, CliError> {
    let parent = directory_of(output);
    let made = tempfile::Builder::new().prefix(".forebay-sample-").tempdir_in(parent);
    made.map_err(|e| CliError::file("cannot make a directory in", parent, e))
}

/// The samples to take: all that are asked for, or those to choose one of.
fn specs(args: &Args) -> Vec<SampleSpec> {
    let spec = SampleSpec { rate: args.rate, bits: 0, seed: args.seed, number: 0 };
    let of_bits = |&bits: &u32| {
        (0..args.best_of()).flat_map(move |n| {
            let seed = args.seed.wrapping_add(n.into());
            (0..args.samples).map(move |number| SampleSpec { bits, seed, number, ..spec })
        })
    };
    args.bits().iter().flat_map(of_bits).collect()
}

fn candidates(args: &Args, first: &[(SampleSpec, PathBuf)], taken: &Taken) -> Vec<Candidate> {
    let each = first.iter().zip(&taken.samples);
    each.map(|((spec, _), m)| Candidate::new(*spec, args.rate, &taken.full, m)).collect()
}

/// What the first pass over the trace gives.
struct Taken {
    full: Measured,
    samples: Vec<Measured>,
    /// With the bits of their regions.
    compared: Vec<(u32, Measured)>,
}

/// Reads the trace once, measures it, and writes the samples.
fn take(
    args: &Args,
    ctx: &Context,
    specs: &[SampleSpec],
    paths: &[PathBuf],
) -> Result<Taken, CliError> {
    let mut full = Measure::new(args.max_blocks)?;
    let mut samples = Vec::new();
    for (spec, path) in specs.iter().zip(paths) {
        let writer = ParquetTraceWriter::create(path)?;
        samples.push((Sampler::new(*spec)?, Measure::new(None)?, writer));
    }
    let mut compared = Vec::new();
    for bits in COMPARED_BITS.into_iter().filter(|_| args.compare) {
        let spec = SampleSpec { rate: args.rate, bits, seed: args.seed, number: 0 };
        compared.push((bits, Sampler::new(spec)?, Measure::new(None)?));
    }
    let (mut last, mut part) = (None, Batch::default());
    let traces = read_trace_batches(&args.traces, ctx, |batch| {
        let mut gaps = Vec::with_capacity(batch.len());
        for &time in &batch.time_ns {
            gaps.push(Nanos(time - last.unwrap_or(time)));
            last = Some(time);
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
        for (sampler, measure, writer) in &mut samples {
            sample(sampler, measure, &mut part)?;
            writer.push_batch(&part)?;
        }
        for (_, sampler, measure) in &mut compared {
            sample(sampler, measure, &mut part)?;
        }
        Ok(())
    })?;
    let full = full.finish()?;
    if full.requests == 0 {
        return Err(CliError::failed("there is not one request to sample").kept("no file was made"));
    }
    if let Some(of) = traces.metadata.sample {
        // The same hash decides again about regions that have passed it.
        if specs.iter().any(|spec| (spec.bits, spec.seed) == (of.bits, of.seed)) {
            let what = format!("the trace is itself a sample, with the seed {}", of.seed);
            let error = CliError::failed(what).kept("no file was made");
            return Err(error.next("choose another --seed"));
        }
    }
    let mut finished = Vec::new();
    for (_, measure, writer) in samples {
        let of_sample = measure.finish()?;
        if of_sample.requests == 0 && outputs(args).len() == specs.len() {
            let what = "no region of the trace is in the sample";
            return Err(CliError::failed(what).kept("no file was made").next("raise --rate"));
        }
        finished.push((of_sample, writer));
    }
    let mut measured = Vec::new();
    for ((of_sample, writer), spec) in finished.into_iter().zip(specs) {
        let mut metadata = provenance(args, *spec, &traces);
        metadata.sample = Some(SampleInfo {
            rate: spec.rate,
            bits: spec.bits,
            seed: spec.seed,
            requests: full.requests,
            whole: full.moments,
        });
        writer.finish(&metadata)?;
        measured.push(of_sample);
    }
    let compared = compared.into_iter().map(|(bits, _, m)| Ok((bits, m.finish()?)));
    Ok(Taken { full, samples: measured, compared: compared.collect::<Result<_, CliError>>()? })
}

/// What is known of a sample is what is known of its trace, and where it comes from.
fn provenance(args: &Args, spec: SampleSpec, traces: &Described) -> Metadata {
    let mut metadata = traces.metadata.clone();
    let names: Vec<_> = args.traces.traces.iter().map(|t| t.display().to_string()).collect();
    metadata.provenance.push(format!(
        "forebay {}: sampled from {} ({} requests) at rate {}, regions of {} bytes, seed {}",
        env!("CARGO_PKG_VERSION"),
        names.join(", "),
        traces.requests,
        args.rate,
        PAGE_BYTES << spec.bits,
        spec.seed,
    ));
    metadata
}

/// Reads a sample from beginning to end.
fn each_part(
    sample: &Path,
    ctx: &Context,
    mut work: impl FnMut(&Batch) -> Result<(), CliError>,
) -> Result<Metadata, CliError> {
    let mut reader = forebay_trace::open(sample, &forebay_trace::OpenOptions::default())?;
    let mut batch = Batch::default();
    while reader.read_batch(&mut batch)? > 0 {
        ctx.check()?;
        work(&batch)?;
    }
    Ok(reader.metadata().clone())
}
