//! `forebay serve`: the cache, live.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_config::{Config, OnStop};
use forebay_engine::{EngineOptions, StopMode};
use forebay_serve::{RecordOptions, Server, StopSignals, Stopped, usual_stop};

use crate::context::Context;
use crate::error::CliError;
use crate::output::write_stdout;

/// How often a stop says how far it is.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Arguments of `forebay serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ echo 'volume = [{name = \"vm1\", backing = \"a.img\", size = \"64MiB\"}]' > f.toml
  $ echo 'serve = {nbd = \"unix:nbd.sock\", control = \"unix:ctl.sock\"}' >> f.toml
  $ timeout --preserve-status -s INT 1 forebay serve --config f.toml")]
pub struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write an empty flash tier and new headers over whatever is there, unless that holds dirty
    /// data
    #[arg(long)]
    pub format: bool,
    /// Give up dirty data that stands in the way
    #[arg(long)]
    pub discard_dirty_data: bool,
    /// At the end leave dirty data on flash, whatever flush.on_stop says
    #[arg(long)]
    pub keep_dirty: bool,
    /// At the end bring dirty data to the backing stores, whatever flush.on_stop says
    #[arg(long, conflicts_with = "keep_dirty")]
    pub destage: bool,
    /// Record what clients do as a trace
    #[arg(long, value_name = "X.parquet")]
    pub record: Option<PathBuf>,
    /// Record a hash (XXH3-128) of each 4 KiB of data, too
    #[arg(long, requires = "record")]
    pub hash: bool,
    /// Record every call into the cache and a hash of its answers
    #[arg(long, value_name = "FILE")]
    pub tape: Option<PathBuf>,
}

/// Serves until a signal comes.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let mut config = Config::load(&args.config).map_err(CliError::usage)?;
    config.check_volumes().map_err(CliError::usage)?;
    if args.keep_dirty || args.destage {
        config.flush.on_stop = if args.keep_dirty { OnStop::Keep } else { OnStop::Destage };
    }
    let signals = StopSignals::install()?;
    end_on_faults();
    let record = args.record.map(|path| RecordOptions { path, hash: args.hash });
    let options = EngineOptions {
        format: args.format,
        discard_dirty_data: args.discard_dirty_data,
        backend: forebay_device::Backend::from_environment()?,
        tape: args.tape,
        ..EngineOptions::default()
    };
    let server = Server::start(&config, options, record.as_ref())?;
    for notice in server.engine().notices() {
        ctx.note(notice);
    }
    let mut line = serde_json::to_vec(&server.ready())?;
    line.push(b'\n');
    write_stdout(&line)?;
    while signals.count() == 0 && server.stop_requested().is_none() {
        signals.wait();
    }
    let mode = server.stop_requested().unwrap_or_else(|| usual_stop(&config));
    ctx.note(match mode {
        StopMode::Destage => {
            "finishing what is in flight, then writing back what is dirty; with a flash tier a second \
             signal leaves the rest there"
        }
        StopMode::Keep => "finishing what is in flight; dirty data stays on flash",
    });
    let stopped = stop(server, mode, &signals, ctx)?;
    if stopped.dirty_blocks > 0 {
        ctx.note(format_args!("{} dirty blocks stay on flash", stopped.dirty_blocks));
    }
    if record.is_some() {
        ctx.note(format_args!("{} requests recorded", stopped.recorded.requests));
    }
    Ok(())
}

/// Stops, saying how far it is; another signal leaves dirty data on flash.
fn stop(
    server: Server,
    mode: StopMode,
    signals: &StopSignals,
    ctx: &Context,
) -> Result<Stopped, CliError> {
    let before = signals.count();
    let mut said = Instant::now();
    let stopped = server.stop(mode, |dirty| {
        if said.elapsed() >= PROGRESS_PERIOD {
            said = Instant::now();
            ctx.note(format_args!("{dirty} dirty blocks left"));
        }
        if signals.count() > before { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(stopped?)
}

/// A fault of the program ends the server at once, like a power cut: the next start recovers
/// what was acknowledged as durable. To serve on from an unknown state could only make it worse.
fn end_on_faults() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |fault| {
        report(fault);
        std::process::abort();
    }));
}
