//! `forebay sample`: writes a smaller trace with the features and hit ratios of the whole trace
//! (BlkSample).

use std::path::PathBuf;

use forebay_analysis::sample::{
    HIT_RATIO_AIM, PLAIN_BITS, Question, Reduce, SAMPLES_MAX, SEARCHED_BITS, SEARCHED_SEEDS,
    SEARCHED_TARGET,
};
use forebay_render::sample::Samples;
use forebay_trace::{BITS_MAX, SampleSpec, Sampler};

use crate::args::{TraceArgs, rate};
use crate::check_files::check_files;
use crate::context::Context;
use crate::error::CliError;
use crate::output::{DocumentArgs, OutputArgs, Outputs};

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
    /// The fraction of regions to keep, such as 0.05 or 5%
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: f64,
    /// Region size: 4 KiB shifted left by BITS; 0 is plain spatial sampling, 4 is the value in the
    /// BlkSample thesis. If you list several values, Forebay keeps the best sample [default:
    /// 4,5,6,7,8, or 4 with --samples]
    #[arg(long, value_name = "BITS,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=i64::from(BITS_MAX)))]
    pub bits: Vec<u32>,
    /// Take N samples for each value of BITS, with seeds from SEED upwards. Keep the sample whose
    /// features and hit ratios are closest to the trace's [default: 8, or 1 with --bits or
    /// --samples]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub best_of: Option<u32>,
    /// After sampling, remove more regions, down to this rate, as long as the features get closer
    /// to the trace's [default: 0.7 times --rate, if the hit ratios stay within 0.02 of the
    /// trace's; with --bits or --samples, remove none]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub target_rate: Option<f64>,
    /// Take N samples that share no regions, and write them to NAME-1.parquet, NAME-2.parquet ...
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Seed for the choice of regions
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Also take samples with other region sizes, and show the error of each
    #[arg(long)]
    pub compare: bool,
    /// Measure the hit ratios of the whole trace on at most N blocks (256 or more), to limit the
    /// memory used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..))]
    pub max_blocks: Option<u64>,
    /// The sample to write, in Forebay's format
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write the features of the trace and of each sample to FILE as Parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub parquet: Option<PathBuf>,
    /// Write charts to FILE as a self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl Args {
    /// Whether to search for the closest of many samples: neither --bits nor --samples is given.
    fn searches(&self) -> bool {
        self.bits.is_empty() && self.samples == 1
    }

    /// The region sizes to try, as shifts of 4 KiB.
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

    /// The rate down to which regions are removed, and the largest hit-ratio error that this may
    /// cause.
    fn reduce(&self) -> Option<Reduce> {
        match self.target_rate {
            Some(target_rate) => Some(Reduce { target_rate, hit_ratio_error_max: None }),
            None if self.searches() => Some(Reduce {
                target_rate: SEARCHED_TARGET * self.rate,
                hit_ratio_error_max: Some(HIT_RATIO_AIM),
            }),
            None => None,
        }
    }

    fn question(&self) -> Question {
        Question {
            traces: self.traces.source(),
            rate: self.rate,
            bits: self.bits().to_vec(),
            best_of: self.best_of(),
            samples: self.samples,
            seed: self.seed,
            hit_ratio_aim: self.searches().then_some(HIT_RATIO_AIM),
            reduce: self.reduce(),
            compare: self.compare,
            max_blocks: self.max_blocks,
            output: self.output.clone(),
        }
    }
}

/// Takes the samples.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let question = args.question();
    check(&args, &question)?;
    let answer = question.ask(ctx)?;
    // --output names the sample, so the report goes to standard output.
    let output = OutputArgs {
        document: DocumentArgs { json: args.json, output: None },
        parquet: args.parquet,
        html: args.html,
    };
    let mut outputs = Outputs::default();
    question.outputs().iter().for_each(|sample| outputs.add(sample.display(), Ok(())));
    output.give_to(&mut outputs, &Samples { answer: &answer });
    outputs.end()
}

fn check(args: &Args, question: &Question) -> Result<(), CliError> {
    let usage = |what: String| Err(CliError::usage(what).kept("nothing was written"));
    if args.output.extension().is_none_or(|e| !e.eq_ignore_ascii_case("parquet")) {
        return usage(format!(
            "-o {}: the file name of a sample must end in .parquet",
            args.output.display()
        ));
    }
    if let Some(target) = args.target_rate.filter(|target| *target >= args.rate) {
        return usage(format!("--target-rate {target} must be less than --rate {}", args.rate));
    }
    if args.samples > 1 && (args.best_of() > 1 || args.bits.len() > 1) {
        let what = "--samples writes several samples, but --best-of and several --bits keep only \
                    the best one; use one or the other";
        return usage(what.to_owned());
    }
    for &bits in args.bits() {
        // This also fails if there are fewer disjoint samples at this rate.
        let (rate, seed, number) = (args.rate, args.seed, args.samples - 1);
        let last = SampleSpec { rate, bits, seed, number };
        Sampler::new(last).map_err(|e| CliError::usage(e.to_string()))?;
    }
    let specs = args.bits().len() as u64 * u64::from(args.best_of()) * u64::from(args.samples);
    if specs > SAMPLES_MAX {
        let what = format!("these options take {specs} samples; the maximum is {SAMPLES_MAX}");
        return usage(what);
    }
    let samples = question.outputs();
    check_files(samples.iter().chain(&args.parquet).chain(&args.html), &args.traces.traces)
}
