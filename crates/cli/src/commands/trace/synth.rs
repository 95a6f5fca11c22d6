//! `forebay trace synth`.

use std::path::PathBuf;

use forebay_analysis::Unit;
use forebay_trace::{Spec, Synth, TraceReader, create};

use super::written::{PROGRAM, WroteTrace, each_batch};
use crate::check_files::check_files;
use crate::context::Context;
use crate::error::CliError;
use crate::notes;

/// Arguments of `forebay trace synth`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
SPEC is a TOML file, or a line of the form PATTERN:KEY=VALUE,... where PATTERN is zipf, zoned, \
uniform or sequential. `+` mixes several patterns; ` then ` starts another phase. Keys such as \
`requests` and `rate` apply to all patterns of a phase together; `weight` sets the share of each. \
The same seed gives the same trace. docs/trace-formats.md lists all keys.

Example:
  $ forebay trace synth 'zipf:blocks=64Ki,requests=100k,write=0.3' -o z.parquet
  $ forebay trace synth 'zoned:zones=0.1@0.8/0.9@0.2 + sequential' -o mix.csv")]
pub struct Args {
    /// The workload, or the path of a TOML file that describes it
    #[arg(value_name = "SPEC")]
    pub spec: String,
    /// The trace file to write; its extension selects the format
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print a JSON document that describes the written trace
    #[arg(long)]
    pub json: bool,
}

/// Generates the trace.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    // SPEC may be an inline description instead of a file name; then no such file exists.
    check_files([&args.output], [&PathBuf::from(&args.spec)])?;
    let spec = Spec::parse(&args.spec)?;
    notes::repeated_keys(&spec).for_each(|note| ctx.note(note));
    let mut synth = Synth::new(&spec)?;
    let mut writer = create(&args.output, None)?;
    each_batch(&mut synth, ctx, ("generating", Unit::Count), |batch, synth| {
        writer.write_batch(batch, synth.metadata())
    })?;
    let mut metadata = synth.metadata().clone();
    metadata.provenance.push(format!("{PROGRAM}: synthesised from {}", args.spec));
    let written = writer.finish(&metadata)?;
    let wrote = WroteTrace {
        output: args.output.display().to_string(),
        requests: written.requests,
        bytes_written: written.bytes,
        volumes: metadata.volumes.len() as u64,
        read_as: None,
    };
    wrote.print(args.json)
}
