//! `forebay trace info`.

use forebay_analysis::Unit;
use forebay_block::BlockSize;
use forebay_render::trace::Info;
use forebay_trace::Collector;

use super::written::each_batch;
use crate::args::{TraceArgs, block_size};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// Arguments of `forebay trace info`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:requests=100k,write=0.3' -o zipf.parquet
  $ forebay trace info zipf.parquet
  $ forebay trace info zipf.parquet --json -o zipf.json")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Block size for the footprint and features
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Reads the trace and prints its properties.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.output.check(&args.traces.traces)?;
    let mut reader = args.traces.source().open(ctx)?;
    let mut collector = Collector::new(args.block_size);
    each_batch(&mut reader, ctx, ("reading", Unit::Bytes), |batch, reader| {
        collector.add(batch, reader.metadata().hashes.as_ref());
        Ok(())
    })?;
    let info = collector.finish(&reader);
    args.output.give(&Info { info: &info, files: args.traces.names() })
}
