//! The target of a replay or a load, as given on the command line.

use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use forebay_analysis::{Meter, Observer};
use forebay_config::{BackingLayout, Config, Size, TimeSpan};
use forebay_device::Backend;
use forebay_device::file::{DirectIo, OpenError, is_device_name};
use forebay_engine::{EngineOptions, StopMode};
use forebay_nbd::NbdUri;
use forebay_render::format::count;
use forebay_render::run::Echo;
use forebay_replay::{
    Abilities, BlockOptions, BlockTarget, EngineHost, Feed, Finished, Hooks, Intervals, Limits,
    NbdOptions, NbdTarget, Placement, PlacementOptions, ReplayError, Run, RunOptions, Survey,
    SystemClock, Target, TargetInfo, TargetVolume, Writes, at_stake,
};
use forebay_serve::usual_stop;

use crate::advice::engine::{Flags, explain_for, explain_notice};
use crate::args::{files_of, load_config};
use crate::context::Context;
use crate::error::CliError;

/// What requests are sent to, and what may be done to it.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Target")]
#[command(group = clap::ArgGroup::new("where").required(true).args(["config", "target"]))]
pub struct TargetArgs {
    /// Use Forebay's own cache, configured by this file and run in this process
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file, a block device or an NBD export (nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH);
    /// repeat the option for each volume of the workload
    #[arg(long, value_name = "URI_OR_PATH")]
    pub target: Vec<String>,
    /// Allow writes to an existing target; these writes destroy its data
    #[arg(long, conflicts_with = "reads_only")]
    pub write: bool,
    /// Send one request at a time, and wait for all background work before sending the next one.
    /// The cache then makes the same decisions as in `simulate --quiesce`
    #[arg(long, conflicts_with_all = ["target", "rate", "queue_depth"])]
    #[arg(help_heading = "Pace")]
    pub quiesce: bool,
    /// Send only reads; skip writes, trims and write-zeroes requests. With --config, dirty data
    /// from earlier runs stays on flash at the end
    #[arg(long)]
    pub reads_only: bool,
    /// If a --target file does not exist, create it with this size
    #[arg(long, value_name = "SIZE", conflicts_with = "config")]
    pub create: Option<Size>,
    /// Use the host's page cache instead of bypassing it
    #[arg(long, conflicts_with = "config")]
    pub buffered: bool,
    /// Number of NBD connections to each export, if the export supports several
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// Wrap requests beyond the end of the target around to its start, instead of refusing to run
    #[arg(long)]
    pub wrap: bool,
    /// Place the workload's volumes one after another on the target's first volume
    #[arg(long)]
    pub concatenate: bool,
    /// After the run, read back and check the written data
    #[arg(long, conflicts_with = "reads_only")]
    pub verify: bool,
    /// Seed for the written data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub data_seed: u64,
    /// Overwrite the devices with an empty flash tier and new headers, unless they hold dirty data
    #[arg(long, conflicts_with = "target")]
    pub format_devices: bool,
    /// Discard any dirty data that would otherwise prevent this run
    #[arg(long, conflicts_with = "target")]
    pub discard_dirty_data: bool,
    /// Leave dirty data on flash after the run, regardless of flush.on_stop
    #[arg(long, conflicts_with = "target")]
    pub keep_dirty: bool,
}

impl TargetArgs {
    /// Checks what clap cannot check.
    pub fn check(&self) -> Result<(), CliError> {
        let (uris, paths): (Vec<_>, Vec<_>) = self.target.iter().partition(|t| is_uri(t));
        if let (Some(uri), Some(path)) = (uris.first(), paths.first()) {
            let (uri, path) = ((*uri).clone(), (*path).clone());
            return Err(CliError::usage(ReplayError::Mixed(path, uri)));
        }
        for uri in &uris {
            parse(uri)?;
        }
        let without_effect = match uris.is_empty() {
            true => &[(self.connections > 1, "--connections", "an NBD export")][..],
            false => &[
                (self.create.is_some(), "--create", "a file or a block device"),
                (self.buffered, "--buffered", "a file or a block device"),
            ],
        };
        match without_effect.iter().find(|(given, ..)| *given && !self.target.is_empty()) {
            Some((_, option, of)) => {
                let what = format_args!("{option} applies only to a --target that is {of}");
                Err(CliError::usage(what).kept("nothing was opened"))
            }
            None => Ok(()),
        }
    }

    /// The files that a run uses: the configuration and the files that it names, or the targets.
    pub fn files(&self) -> Result<Vec<PathBuf>, CliError> {
        let named = self.config.as_ref().map(|file| load_config(file)).transpose()?;
        let named = named.as_ref().map(files_of).unwrap_or_default();
        let targets = self.target.iter().filter(|target| !is_uri(target)).map(PathBuf::from);
        Ok(self.config.iter().cloned().chain(named).chain(targets).collect())
    }

    /// The options that concern the target, for the report.
    pub fn echo(&self) -> Echo {
        Echo {
            quiesce: self.quiesce,
            reads_only: self.reads_only,
            wrap: self.wrap,
            concatenate: self.concatenate,
            data_seed: self.data_seed,
            ..Echo::default()
        }
    }

    /// How requests are placed on the target, and whether they may write to it.
    pub fn placing(&self) -> PlacementOptions {
        let writes = match (self.reads_only, self.write) {
            (true, _) => Writes::LeftOut,
            (_, true) => Writes::Allowed,
            _ => Writes::Refused,
        };
        PlacementOptions { writes, wrap: self.wrap, concatenate: self.concatenate }
    }

    /// The options of a run at the default pace; `row` is the time per row of its results.
    pub fn run_options(&self, duration: Option<TimeSpan>, row: Option<TimeSpan>) -> RunOptions {
        RunOptions {
            duration: duration.map(TimeSpan::nanos),
            seed: self.data_seed,
            track: self.verify,
            intervals: row.map_or(Intervals::Auto, |time| Intervals::Every(time.nanos())),
            ..RunOptions::default()
        }
    }
}

/// Everything that is open during a run.
pub struct Opened {
    /// The clock that all targets share.
    pub clock: SystemClock,
    /// The description of the target, for the report.
    pub info: TargetInfo,
    /// The text of the configuration file.
    pub config: Option<String>,
    /// How requests are placed on the target, and whether they may write to it.
    pub placing: PlacementOptions,
    /// What happens to dirty data at the end of the run.
    pub on_stop: StopMode,
    targets: Vec<Box<dyn Target + Send>>,
    // Declared last, so that it is dropped after the sessions have ended.
    host: Option<EngineHost>,
}

impl Opened {
    /// Opens the target. `queues` holds the depth of each queue and the number of queues.
    pub fn open(
        args: &TargetArgs,
        survey: &Survey,
        queues: (u32, u32),
        ctx: &Context,
    ) -> Result<Opened, CliError> {
        let placing = args.placing();
        let clock = SystemClock::start();
        if let Some(file) = &args.config {
            return Opened::engine(args, file, survey, placing, (clock, queues.1), ctx);
        }
        if args.target.iter().any(|target| is_uri(target)) {
            return Opened::nbd(args, placing, (clock, queues), ctx);
        }
        let modifies = modifies(survey);
        if modifies && placing.writes == Writes::Refused {
            // Refuse before a file is created.
            let target = args.target[0].clone();
            return Err(ReplayError::WritesNotAllowed { target }.into());
        }
        // Check that the workload fits before a file is created for it.
        let paths = args.target.iter().map(PathBuf::from);
        if let Some(volumes) = paths.map(|path| expected_file(&path, args.create)).collect() {
            expect_to_fit(survey, volumes, placing)?;
        }
        let target = BlockTarget::open(
            &BlockOptions {
                paths: args.target.iter().map(PathBuf::from).collect(),
                create_bytes: args.create.map(Size::bytes),
                read_only: !(modifies && placing.writes == Writes::Allowed),
                direct: if args.buffered { DirectIo::Never } else { DirectIo::Prefer },
                backend: Backend::from_environment()?,
                depth: queues.0.saturating_mul(queues.1),
            },
            clock,
        )
        .map_err(|error| missing(error, args))?;
        for notice in target.notices() {
            ctx.note(notice);
        }
        let info = target.info();
        let targets: Vec<Box<dyn Target + Send>> = vec![Box::new(target)];
        let on_stop = StopMode::Destage;
        Ok(Opened { clock, info, config: None, placing, on_stop, targets, host: None })
    }

    fn nbd(
        args: &TargetArgs,
        placing: PlacementOptions,
        (clock, (depth, jobs)): (SystemClock, (u32, u32)),
        ctx: &Context,
    ) -> Result<Opened, CliError> {
        let uris = args.target.iter().map(|t| parse(t)).collect::<Result<_, _>>()?;
        let options = NbdOptions { uris, connections: args.connections, depth };
        let mut targets: Vec<Box<dyn Target + Send>> = Vec::new();
        let first = NbdTarget::open(&options, clock)?;
        for export in first.held_back() {
            ctx.note(format_args!(
                "{export}: using one connection, because the server does not guarantee that a \
                 flush covers other connections"
            ));
        }
        let info = first.info();
        targets.push(Box::new(first));
        for _ in 1..jobs {
            targets.push(Box::new(NbdTarget::open(&options, clock)?));
        }
        let on_stop = StopMode::Destage;
        Ok(Opened { clock, info, config: None, placing, on_stop, targets, host: None })
    }

    fn engine(
        args: &TargetArgs,
        file: &Path,
        survey: &Survey,
        placing: PlacementOptions,
        (clock, jobs): (SystemClock, u32),
        ctx: &Context,
    ) -> Result<Opened, CliError> {
        let config = load_config(file)?;
        config.check_volumes().map_err(|error| CliError::usage(error.in_file(file)))?;
        let text =
            std::fs::read_to_string(file).map_err(|e| CliError::file("cannot read", file, e))?;
        let placing = match (placing.writes, at_stake(&config)) {
            (Writes::Refused, Some(target)) if modifies(survey) => {
                return Err(ReplayError::WritesNotAllowed { target }.into());
            }
            // The run creates these files itself, so writes destroy no data.
            (Writes::Refused, None) => PlacementOptions { writes: Writes::Allowed, ..placing },
            _ => placing,
        };
        // Opening the engine writes headers, so a workload that does not fit must be refused first.
        if let Some(volumes) = expected_volumes(&config) {
            expect_to_fit(survey, volumes, placing)?;
        }
        let options = EngineOptions {
            format: args.format_devices,
            discard_dirty_data: args.discard_dirty_data,
            backend: Backend::from_environment()?,
            one_at_a_time: args.quiesce,
            ..EngineOptions::default()
        };
        let host = EngineHost::open(&config, options).map_err(|error| match error {
            ReplayError::Engine(error) => CliError::failed(explain_for(&error, &Flags::REPLAY)),
            error => error.into(),
        })?;
        for notice in host.engine().notices() {
            ctx.note(explain_notice(notice, &Flags::REPLAY));
        }
        if let Some(found) = host.engine().recovery().filter(|found| found.records > 0) {
            ctx.note(format_args!(
                "the flash tier holds {} blocks from an earlier run, and accesses to these blocks count as \
                 hits; to begin with an empty cache, add --format-devices",
                count(found.records)
            ));
        }
        let mut targets: Vec<Box<dyn Target + Send>> = Vec::new();
        for _ in 0..jobs {
            targets.push(Box::new(host.target(clock)?));
        }
        let info = host.info();
        // A read-only run leaves the dirty data of earlier runs on flash.
        let keeps = args.keep_dirty || args.reads_only;
        let on_stop = if keeps { StopMode::Keep } else { usual_stop(&config) };
        let (config, host) = (Some(text), Some(host));
        Ok(Opened { clock, info, config, placing, on_stop, targets, host })
    }

    /// How the requests of the workload are placed on the target.
    pub fn placement(&self, survey: &Survey) -> Result<Placement, ReplayError> {
        let limits = self.targets[0].limits();
        Placement::new(&survey.volumes, &self.info.volumes, limits, self.placing)
    }

    /// Number of submitters, each of which has a queue of requests.
    pub fn submitters(&self) -> u32 {
        self.targets.len() as u32
    }

    /// Sends the requests of `feed`, and reports their number to `progress`.
    pub fn run(
        &mut self,
        feed: Feed,
        placement: Placement,
        options: RunOptions,
        progress: &dyn Meter,
        ctx: &Context,
    ) -> Finished {
        let hooks = Hooks { stop: ctx.stop_flag(), progress: &|n| progress.inc(n) };
        let targets = self.targets.iter_mut();
        let mut handles: Vec<_> =
            targets.map(|target| &mut **target as &mut (dyn Target + Send)).collect();
        Run { clock: self.clock, feed, placement, options, hooks }.go(&mut handles)
    }

    /// A handle for reading data back.
    pub fn first(&mut self) -> &mut (dyn Target + Send) {
        &mut *self.targets[0]
    }

    /// The host of Forebay's own cache, if that is the target.
    pub fn host(&self) -> Option<&EngineHost> {
        self.host.as_ref()
    }

    /// Ends all sessions and returns the host of the cache.
    pub fn into_host(self) -> Option<EngineHost> {
        let Opened { targets, host, .. } = self;
        drop(targets);
        host
    }
}

fn is_uri(target: &str) -> bool {
    target.contains("://")
}

fn parse(target: &str) -> Result<NbdUri, CliError> {
    target
        .parse()
        .map_err(|source| CliError::usage(ReplayError::Uri { address: target.to_owned(), source }))
}

/// Adds advice to an error: a missing target may be a file that needs --create, or a larger size.
fn missing(error: ReplayError, args: &TargetArgs) -> CliError {
    let absent = |target: &Path| !target.exists() && !is_device_name(target);
    if !args.target.iter().map(Path::new).any(absent) {
        return error.into();
    }
    let next = match (&error, args.create) {
        (_, None) => Some("use --create SIZE to create a file of that size"),
        (ReplayError::Open(OpenError::TooSmall { .. }), _) => Some("use a larger --create SIZE"),
        _ => None,
    };
    let error = CliError::from(error);
    match next {
        Some(next) => error.next(next),
        None => error,
    }
}

/// Whether the workload writes, trims or zeroes.
fn modifies(survey: &Survey) -> bool {
    survey.volumes.iter().any(|v| v.modified)
}

/// Refuses a workload that will not fit, before anything is opened.
fn expect_to_fit(
    survey: &Survey,
    volumes: Vec<TargetVolume>,
    placing: PlacementOptions,
) -> Result<(), ReplayError> {
    let (transfer_bytes_max, zero_bytes_max, depth_max) = (1, 1, 1);
    let limits = Limits { alignment_bytes: 1, transfer_bytes_max, zero_bytes_max, depth_max };
    Placement::new(&survey.volumes, &volumes, limits, placing).map(|_| ())
}

/// The file's properties after opening; `None` if its size is not yet known.
fn expected_file(path: &Path, create: Option<Size>) -> Option<TargetVolume> {
    let size_bytes = if path.exists() { end_of(path)? } else { create?.bytes() };
    let name = path.display().to_string();
    Some(TargetVolume { name, size_bytes, read_only: false, able: Abilities::ALL })
}

/// The volumes' properties after the engine has opened them; `None` if a size is not yet known.
fn expected_volumes(config: &Config) -> Option<Vec<TargetVolume>> {
    const HEADER_BYTES: u64 = 1 << 20;
    let volume = |v: &forebay_config::Volume| {
        let header = if v.layout == BackingLayout::None { 0 } else { HEADER_BYTES };
        let size_bytes = match v.size {
            Some(size) => size.bytes(),
            None => end_of(Path::new(&v.backing))?.saturating_sub(header),
        };
        let (name, read_only) = (v.name.clone(), v.read_only);
        Some(TargetVolume { name, size_bytes, read_only, able: Abilities::ALL })
    };
    config.volume.iter().map(volume).collect()
}

/// The size in bytes of a file or block device. For a device, the metadata do not contain the size,
/// so this seeks to the end.
fn end_of(path: &Path) -> Option<u64> {
    let mut file = std::fs::File::open(path).ok()?;
    file.seek(SeekFrom::End(0)).ok()
}
