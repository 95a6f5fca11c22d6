//! `forebay serve`: runs the cache and serves its volumes.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_config::{Config, ConfigError, OnStop};
use forebay_engine::{EngineError, EngineOptions, Reported, StopMode};
use forebay_serve::{RecordOptions, Recorded, ServeError, Server, StopSignals, Stopped};
use forebay_trace::{SampleSpec, Sampler};

use crate::advice::engine::{Flags, explain, explain_fault, explain_notice};
use crate::args::{files_of, rate};
use crate::check_files::{check_names, files_of_recording};
use crate::context::Context;
use crate::error::CliError;
use crate::messages;
use crate::notify::Notify;
use crate::write_files::try_write_stdout;
use forebay_render::format::percent;

/// Interval between messages about the progress of a start or a stop.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// How often a stop that waits for a backing store checks for a second signal.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);
/// How often to check the server for faults.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Maximum time to report a panic before the process aborts.
const REPORT_TIME: Duration = Duration::from_secs(1);

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
    /// Overwrite the devices with an empty flash tier and new headers, unless they hold dirty data
    #[arg(long)]
    pub format: bool,
    /// Discard any dirty data that would otherwise prevent the server from starting
    #[arg(long)]
    pub discard_dirty_data: bool,
    /// Drop all clean blocks from the flash tier; use this after another program has changed a
    /// backing store. Dirty blocks are destaged first, and overwrite what that program wrote
    #[arg(long, conflicts_with = "format")]
    pub drop_clean: bool,
    /// Leave dirty data on flash when the server stops, regardless of flush.on_stop
    #[arg(long)]
    pub keep_dirty: bool,
    /// Destage dirty data to the backing stores when the server stops, regardless of flush.on_stop
    #[arg(long, conflicts_with = "keep_dirty")]
    pub destage: bool,
    /// Record client requests as a trace in this file
    #[arg(long, value_name = "X.parquet")]
    pub record: Option<PathBuf>,
    /// Also record a hash (XXH3-128) of each 4 KiB of data
    #[arg(long, requires = "record")]
    pub hash: bool,
    /// Record only requests to a sample of the regions. RATE is the fraction of regions to record,
    /// such as 0.05 or 5%; the region size is 4 KiB shifted left by BITS (4 if you omit BITS)
    #[arg(long, value_name = "RATE[:BITS]", value_parser = sample, requires = "record")]
    pub sample: Option<SampleSpec>,
    /// Record every call into the cache and a hash of the cache's answers in FILE
    #[arg(long, value_name = "FILE")]
    pub tape: Option<PathBuf>,
}

/// Serves until a signal or an operator stops the server.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let on_stop = match (args.keep_dirty, args.destage) {
        (true, _) => Some(OnStop::Keep),
        (_, true) => Some(OnStop::Destage),
        _ => None,
    };
    let source = Source { file: args.config, on_stop };
    let config = source.load().map_err(CliError::usage)?;
    let (record, tape) =
        outputs(args.record.as_deref(), args.tape.as_deref(), &source, &config, ctx)?;
    let signals = StopSignals::install()?;
    messages::in_background();
    end_on_faults();
    let record = record.map(|path| RecordOptions { path, hash: args.hash, sample: args.sample });
    let options = EngineOptions {
        format: args.format,
        discard_dirty_data: args.discard_dirty_data,
        drop_clean: args.drop_clean,
        backend: forebay_device::Backend::from_environment()?,
        tape,
        ..EngineOptions::default()
    };
    let mut notify = Notify::new(ctx);
    let server = start(&config, options, record.as_ref(), &signals, &mut notify, ctx)?;
    let Some(server) = server else { return Ok(()) };
    for notice in server.engine().notices() {
        ctx.note(explain_notice(notice, &Flags::SERVE));
    }
    for notice in server.notices() {
        ctx.note(notice);
    }
    let mut line = serde_json::to_vec(&server.ready())?;
    line.push(b'\n');
    // The reader may have closed the pipe (`| head -n 1`). Clients do not depend on this line.
    if let Err(error) = try_write_stdout(&line) {
        ctx.note(format_args!(
            "serving, but the addresses could not be written to standard output: {error}"
        ));
    }
    notify.ready(format_args!("serving {}", server.ready().exports.join(", ")));
    let (mut of_engine, mut of_server) = (Reported::default(), Default::default());
    let mut reloads = Reloads::default();
    while !is_told_to_stop(&signals, ctx) && server.stop_requested().is_none() {
        signals.wait(LOOK_PERIOD);
        reloads.look(&signals, &source, &server, ctx);
        for fault in server.engine().faults(&mut of_engine) {
            ctx.note(explain_fault(&fault));
        }
        for fault in server.faults(&mut of_server) {
            ctx.note(fault);
        }
        // (A signal must not wait for slow stores.)
        let goes_on = || signals.count() == 0 && server.stop_requested().is_none();
        match server.engine().end_overdue_quiesce_while(goes_on) {
            Ok(false) => {}
            Ok(true) => ctx.note(
                "the quiesce reached its time limit and has ended; client requests have \
                 resumed",
            ),
            Err(error) if of_engine.allows_overdue() => ctx.note(explain(&error)),
            Err(_) => {}
        }
    }
    let mode = server.begin_stop();
    ctx.note(stopping(mode, config.flash.is_some()));
    notify.stopping();
    let (stopped, left) = stop(server, mode, &signals, &mut notify, ctx);
    stopped.news.iter().for_each(|news| ctx.note(news));
    if stopped.cut_off > 0 {
        let clients = if stopped.cut_off == 1 { "client" } else { "clients" };
        ctx.note(format_args!(
            "disconnected {} {clients} that had not read all replies",
            stopped.cut_off
        ));
    }
    if let Ok(dirty @ 1..) = left {
        ctx.note(format_args!("{dirty} dirty blocks stay on flash"));
    }
    if let Some(failure) = &stopped.recording_failure {
        // The failure affects neither clients nor stores, so the stop is still clean.
        ctx.note(failure);
    } else if let Some(options) = &record {
        ctx.note(recorded(options, stopped.recorded));
    }
    left?;
    Ok(())
}

/// Describes what the server does from now on.
fn stopping(mode: StopMode, has_flash: bool) -> &'static str {
    match (mode, has_flash) {
        (StopMode::Keep, true) => "finishing requests in flight; dirty data stays on flash",
        (StopMode::Destage, true) => {
            "finishing requests in flight, then destaging dirty data; a second signal leaves the \
             remaining dirty data on flash"
        }
        (StopMode::Release, true) => {
            "finishing requests in flight, then destaging dirty data; after that, other programs \
             may use the stores"
        }
        (_, false) => "finishing requests in flight, then destaging dirty data",
    }
}

/// The configuration file, and the options that override it.
struct Source {
    file: PathBuf,
    /// The `flush.on_stop` given on the command line.
    on_stop: Option<OnStop>,
}

impl Source {
    fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(&self.file)?;
        config.check_volumes()?;
        config.flush.on_stop = self.on_stop.unwrap_or(config.flush.on_stop);
        Ok(config)
    }
}

/// Reloads the configuration on a signal, one reload at a time.
#[derive(Default)]
struct Reloads {
    /// Number of signals that have been handled.
    heeded: u32,
    /// The rest of the last reload, which runs on another thread.
    under_way: Option<JoinHandle<Vec<String>>>,
}

impl Reloads {
    fn look(&mut self, signals: &StopSignals, source: &Source, server: &Server, ctx: &Context) {
        let say = |line: String| ctx.note(format_args!("{}: {line}", source.file.display()));
        if let Some(under_way) = self.under_way.take_if(|under_way| under_way.is_finished()) {
            // A thread that panicked has already reported it.
            under_way.join().unwrap_or_default().into_iter().for_each(say);
        }
        let count = signals.reloads();
        if count == self.heeded || self.under_way.is_some() {
            return;
        }
        self.heeded = count;
        match source.load() {
            Ok(config) => {
                let reload = server.reload(&config);
                reload.lines.into_iter().for_each(say);
                self.under_way = reload.rest;
            }
            Err(error) => {
                ctx.note(format_args!(
                    "the configuration is invalid: {error}; nothing was changed"
                ));
            }
        }
    }
}

/// Parses the value of `--sample`.
fn sample(text: &str) -> Result<SampleSpec, String> {
    let (share, bits) = text.split_once(':').unwrap_or((text, "4"));
    let bits = bits.parse().map_err(|_| format!("`{bits}` is not a number of bits"))?;
    let spec = SampleSpec { rate: rate(share)?, bits, seed: 0, number: 0 };
    Sampler::new(spec).map(|_| spec).map_err(|e| e.to_string())
}

/// Summarises a finished recording.
fn recorded(options: &RecordOptions, Recorded { requests, kept, late }: Recorded) -> String {
    let recorded = match options.sample {
        None => format!("{requests} requests recorded"),
        Some(sample) => format!(
            "{requests} requests arrived; {} contains the {kept} requests and parts of requests \
             that access the sampled regions ({} of all {} regions)",
            options.path.display(),
            percent(sample.rate),
            forebay_config::Size(4096 << sample.bits)
        ),
    };
    match late {
        0 => recorded,
        _ => format!("{recorded}; {late} of them have a timestamp later than their arrival"),
    }
}

/// Chooses the files for the recording and the tape. Each must be a file that the server does not
/// otherwise use.
fn outputs(
    record: Option<&Path>,
    tape: Option<&Path>,
    source: &Source,
    config: &Config,
    ctx: &Context,
) -> Result<(Option<PathBuf>, Option<PathBuf>), CliError> {
    let written = |record: Option<&Path>, tape: Option<&Path>| -> Vec<PathBuf> {
        let record = record.into_iter().flat_map(files_of_recording);
        record.chain(tape.map(Path::to_owned)).collect()
    };
    check_names(&written(record, tape), [])?;
    let (of_record, of_tape) = (record.map(unused), tape.map(unused));
    let read = files_of(config);
    check_names(
        &written(of_record.as_deref(), of_tape.as_deref()),
        read.iter().chain([&source.file]),
    )?;
    for (named, free) in [(record, &of_record), (tape, &of_tape)] {
        if let (Some(named), Some(free)) = (named, free)
            && named != free
        {
            ctx.note(format_args!("{}; recording to {} instead", there(named), free.display()));
        }
    }
    Ok((of_record, of_tape))
}

/// Returns the path or, if it is taken, the path with the next free number. A server that restarts
/// with the same command must not overwrite an earlier recording, whether finished or not.
fn unused(path: &Path) -> PathBuf {
    let taken = |path: &Path| {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        // Anything that is not a regular file, such as a pipe, is written to.
        path.is_file() || Path::new(&partial).exists()
    };
    if !taken(path) {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy()));
    let extension = extension.unwrap_or_default();
    let named = |n: u64| path.with_file_name(format!("{stem}-{n}{extension}"));
    (2..).map(named).find(|path| !taken(path)).unwrap_or_else(|| path.to_owned())
}

/// Describes the file that occupies the path of a recording.
fn there(path: &Path) -> String {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let is_empty = std::fs::metadata(partial).is_ok_and(|partial| partial.len() == 0);
    match path.is_file() {
        true => format!("{} already exists", path.display()),
        false if is_empty => {
            format!(
                "{}.partial is left over from an interrupted recording and is empty",
                path.display()
            )
        }
        false => format!(
            "{0}.partial is left over from an interrupted recording (`forebay trace convert \
             {0}.partial -o {0}` recovers its requests)",
            path.display()
        ),
    }
}

/// Opens the cache and reports the progress of recovery; returns `None` if a signal or an operator
/// ended the start.
fn start(
    config: &Config,
    options: EngineOptions,
    record: Option<&RecordOptions>,
    signals: &StopSignals,
    notify: &mut Notify<'_>,
    ctx: &Context,
) -> Result<Option<Server>, CliError> {
    let mut said = Instant::now();
    let started = Server::start(config, options, record, explain, &mut |recovering| {
        notify.progress(recovering);
        if said.elapsed() >= PROGRESS_PERIOD {
            said = Instant::now();
            ctx.note(recovering);
        }
        match is_told_to_stop(signals, ctx) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match started {
        Ok(server) => Ok(Some(server)),
        Err(ServeError::Engine(
            error @ (EngineError::StartEnded | EngineError::StartCut { .. }),
        )) => {
            ctx.note(error);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a signal has requested a stop. A signal that arrived before [`StopSignals`] were
/// installed went to the handler that all commands share, which prints a message about it.
fn is_told_to_stop(signals: &StopSignals, ctx: &Context) -> bool {
    signals.count() > 0 || ctx.interrupted()
}

/// Stops the server and reports progress; another signal leaves dirty data on flash.
fn stop(
    server: Server,
    mode: StopMode,
    signals: &StopSignals,
    notify: &mut Notify<'_>,
    ctx: &Context,
) -> (Stopped, Result<u64, ServeError>) {
    // The first signal may repeat an operator's request to stop, as `systemctl stop` does.
    let before = signals.count().max(1);
    let hung = server.engine().hung_stores();
    // While the stop waits for a hung backing store, it does not check for signals.
    let (stopping, stopped) = channel::<()>();
    let watch = move || {
        while stopped.recv_timeout(SIGNAL_PERIOD) == Err(RecvTimeoutError::Timeout) {
            if signals.count() > before {
                hung.give_up();
            }
        }
    };
    std::thread::scope(|scope| {
        // If this thread cannot be started, only SIGKILL ends a hung stop.
        let _ = std::thread::Builder::new().name("forebay-stop".into()).spawn_scoped(scope, watch);
        let stopped = stop_watched(server, mode, signals, before, notify, ctx);
        drop(stopping);
        stopped
    })
}

/// Stops the server; while it destages, ends the stop early if there are more than `before`
/// signals.
fn stop_watched(
    server: Server,
    mode: StopMode,
    signals: &StopSignals,
    before: u32,
    notify: &mut Notify<'_>,
    ctx: &Context,
) -> (Stopped, Result<u64, ServeError>) {
    let mut said = Instant::now();
    server.stop(mode, |dirty| {
        notify.progress(format_args!("stopping: {dirty} dirty blocks left"));
        if said.elapsed() >= PROGRESS_PERIOD {
            said = Instant::now();
            ctx.note(format_args!("{dirty} dirty blocks left"));
        }
        if signals.count() > before { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Makes a panic abort the server at once. The effect is that of a power cut: the next start
/// recovers everything that was acknowledged as durable. Serving from an unknown state could only
/// cause more damage.
fn end_on_faults() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |fault| {
        // Writing the report may block, because standard error may be a pipe that nobody reads.
        let _ = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(REPORT_TIME);
            std::process::abort();
        });
        report(fault);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_earlier_runs_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        assert_eq!(unused(&path), path);
        // An interrupted recording has no final name yet.
        std::fs::write(directory.path().join("x.parquet.partial"), b"").unwrap();
        let second = directory.path().join("x-2.parquet");
        assert_eq!(unused(&path), second);
        std::fs::write(&second, b"").unwrap();
        assert_eq!(unused(&path), directory.path().join("x-3.parquet"));
    }

    #[test]
    fn a_recording_that_was_cut_off_is_named_with_the_command_that_rescues_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let (partial, name) = (directory.path().join("x.parquet.partial"), path.display());
        std::fs::write(&partial, b"").unwrap();
        let nothing =
            format!("{name}.partial is left over from an interrupted recording and is empty");
        assert_eq!(there(&path), nothing);
        std::fs::write(&partial, b"something").unwrap();
        let said = there(&path);
        assert!(
            said.contains(&format!("{name}.partial is left over from an interrupted recording"))
        );
        assert!(said.contains(&format!("`forebay trace convert {name}.partial -o {name}`")));
        std::fs::write(&path, b"").unwrap();
        assert_eq!(there(&path), format!("{name} already exists"));
    }

    #[test]
    fn of_a_sample_it_is_said_what_was_kept() {
        let recorded_of = |sample: Option<&str>| {
            let sample = sample.map(|text| super::sample(text).unwrap());
            let options = RecordOptions { path: "x.parquet".into(), hash: false, sample };
            recorded(&options, Recorded { requests: 1000, kept: 90, late: 0 })
        };
        assert_eq!(recorded_of(None), "1000 requests recorded");
        let said = recorded_of(Some("0.1:4"));
        for part in ["1000 requests arrived", "90 requests", "x.parquet", "10.0 %", "64 KiB"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
