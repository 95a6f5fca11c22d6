//! `forebay trace`: look into traces, convert them, make synthetic ones.

mod convert;
pub mod info;
mod synth;

use forebay_analysis::{Meter, Unit};
use forebay_trace::{Batch, TraceError, TraceReader};
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::format::count;
use crate::output::write_stdout;

pub(super) const EXAMPLE: &str = "Example:
  $ forebay trace synth zipf:blocks=10000,requests=100000 -o zipf.parquet
  $ forebay trace info zipf.parquet
  $ forebay trace convert zipf.parquet -o zipf.csv";

/// What to do with traces.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// What is in a trace: requests, bytes, footprint, features
    Info(info::Args),
    /// Write a trace in Forebay's own format, or back to CSV, oracleGeneral, fio iolog
    Convert(convert::Args),
    /// Make a synthetic workload
    Synth(synth::Args),
}

/// Runs one of them.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    match command {
        Command::Info(args) => info::run(args, ctx),
        Command::Convert(args) => convert::run(args, ctx),
        Command::Synth(args) => synth::run(args, ctx),
    }
}

/// Reads a trace to its end and hands every batch to `work`, with progress in `unit`; the number
/// of requests.
fn each_batch<R: TraceReader>(
    reader: &mut R,
    ctx: &Context,
    (label, unit): (&str, Unit),
    mut work: impl FnMut(&Batch, &R) -> Result<(), TraceError>,
) -> Result<u64, CliError> {
    let progress = ctx.progress(label, unit, reader.progress().bytes_total);
    let (mut batch, mut requests) = (Batch::default(), 0);
    loop {
        ctx.check()?;
        if reader.read_batch(&mut batch)? == 0 {
            break;
        }
        work(&batch, reader)?;
        requests += batch.len() as u64;
        progress.set(reader.progress().bytes_read);
    }
    progress.finish();
    let counters = reader.counters();
    if counters.bad > 0 {
        ctx.note(format_args!("skipped {} bad lines or records", count(counters.bad)));
    }
    if counters.out_of_order > 0 {
        let moved = count(counters.out_of_order);
        ctx.note(format_args!("{moved} requests came out of order; they count as simultaneous"));
    }
    Ok(requests)
}

/// What was written, as commands that write a trace report it.
#[derive(Serialize)]
struct WroteTrace {
    output: String,
    requests: u64,
    bytes_written: u64,
    volumes: u64,
    /// What `--format` has to say to read it, where the format itself does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_as: Option<String>,
}

impl WroteTrace {
    fn print(&self, json: bool) -> Result<(), CliError> {
        if json {
            let mut bytes = serde_json::to_vec_pretty(self)?;
            bytes.push(b'\n');
            return write_stdout(&bytes);
        }
        let size = forebay_config::Size(self.bytes_written);
        let requests = count(self.requests);
        write_stdout(format!("{}: {requests} requests, {size}\n", self.output).as_bytes())
    }
}

/// This program, for a trace's provenance.
const PROGRAM: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));
