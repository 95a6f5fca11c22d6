//! `forebay trace convert`.

use std::path::PathBuf;

use forebay_analysis::{AnalysisError, Unit};
use forebay_render::format::counted;
use forebay_trace::{LeftOut, TraceError, TraceReader, create};

use super::written::{PROGRAM, WroteTrace, each_batch};
use crate::args::TraceArgs;
use crate::check_files::check_files;
use crate::context::Context;
use crate::error::CliError;

/// Arguments of `forebay trace convert`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Formats: parquet, csv, oracleGeneral and iolog. oracleGeneral:block=4096 \
splits requests into blocks; iolog has parameters such as iolog:version=2 and iolog:file=/dev/sdb. \
See docs/trace-formats.md.

Example:
  $ forebay trace synth 'zipf:requests=10k' -o zipf.parquet
  $ forebay trace convert zipf.parquet -o zipf.csv
  $ forebay trace convert zipf.csv -o zipf.log --to iolog
  $ forebay trace convert zipf.parquet -o - --to csv | head -n 3")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The file to write; its extension selects the format, unless --to is given. `-` is standard
    /// output, for --to csv and --to iolog
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The format to write, with optional parameters after a colon
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Print a JSON document that describes the written trace
    #[arg(long)]
    pub json: bool,
}

impl Args {
    fn is_stdout(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    /// Refuses outputs that cannot be written, before traces are read.
    fn check(&self) -> Result<(), CliError> {
        if self.is_stdout() && self.json {
            let what = "-o - and --json would both write to standard output";
            return Err(CliError::usage(what).kept("nothing was read"));
        }
        check_files(Some(&self.output).filter(|_| !self.is_stdout()), &self.traces.traces)
    }
}

/// Converts the trace.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.check()?;
    let mut reader = args.traces.recorded().open(ctx).map_err(|error| match error {
        AnalysisError::Trace(TraceError::OtherFormat { .. }) => {
            CliError::from(error).next("omit --format; --to selects the format to write")
        }
        error => error.into(),
    })?;
    let writer = create(&args.output, args.to.as_deref());
    let mut writer = writer.map_err(|error| match error {
        TraceError::Options(_) if args.to.is_none() => {
            CliError::from(error).next("specify the format with --to, such as --to csv")
        }
        error => error.into(),
    })?;
    each_batch(&mut reader, ctx, ("converting", Unit::Bytes), |batch, reader| {
        writer.write_batch(batch, reader.metadata())
    })?;
    let mut metadata = reader.metadata().clone();
    let from = format!("{PROGRAM}: converted from {} ({})", args.traces.names(), metadata.format);
    metadata.provenance.push(from);
    let (read_as, left_out) = (writer.read_as(), writer.left_out());
    let written = writer.finish(&metadata)?;
    if let Some(left_out) = shown(left_out) {
        ctx.note(format_args!("omitted {left_out}, which this format cannot record"));
    }
    if !metadata.merged_samples.is_empty() {
        ctx.note(
            "the merged trace does not record the sampling rate and seed of the samples that it \
             contains",
        );
    }
    if let Some(format) = &read_as {
        ctx.note(format_args!(
            "{}: this format does not record the unit of addresses; read the file with --format \
             {format}",
            args.output.display()
        ));
    }
    if args.is_stdout() {
        ctx.note(format_args!("wrote {}", counted(written.requests, "request")));
        return Ok(());
    }
    let wrote = WroteTrace {
        output: args.output.display().to_string(),
        requests: written.requests,
        bytes_written: written.bytes,
        volumes: metadata.volumes.len() as u64,
        read_as,
    };
    wrote.print(args.json)
}

/// Lists how many requests of each kind the file leaves out; `None` if it leaves out none.
fn shown(left_out: LeftOut) -> Option<String> {
    let LeftOut { trims, flushes, empty } = left_out;
    let kinds = [
        (trims, counted(trims, "trim")),
        (flushes, counted(flushes, "flush request")),
        (empty, format!("{} without data", counted(empty, "request"))),
    ];
    let kinds: Vec<String> = kinds.into_iter().filter(|(n, _)| *n > 0).map(|(_, t)| t).collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}
