//! What a plan buys, replayed: the cache on real files and devices, with tiers of the plan's sizes.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use forebay_block::Nanos;
use forebay_config::{Config, Size};
use forebay_device::Backend;
use forebay_engine::{EngineOptions, StopMode};
use forebay_plan::{
    BoxError, Catalogue, Combination, CostModel, DeviceKind, Hierarchy, Judged, Units,
};
use forebay_replay::{
    EngineHost, Feed, Hooks, Intervals, Pace, Placement, PlacementOptions, ReplayError, Run,
    RunOptions, Survey, SystemClock, Writes,
};
use forebay_trace::open_all;

use super::tiers::{judged, label, sized};
use super::{Args, Evaluate};
use crate::args::{TraceArgs, load_config};
use crate::context::Context;
use crate::error::CliError;
use crate::format::count;
use crate::progress::Unit;
use crate::reading::options;

/// The volumes of created files end at a multiple of this.
const VOLUME_STEP: u64 = 1 << 20;

/// The configuration that a replay is of, checked before a trace is read.
///
/// # Errors
/// If the command line does not say which devices a replay is on, or may not be.
pub fn configuration(
    args: &Args,
    catalogue: &Catalogue,
    combinations: &[Combination],
) -> Result<Config, CliError> {
    debug_assert_eq!(args.evaluate, Evaluate::Replay);
    let Some(file) = &args.config else {
        let what = "--evaluate replay needs --config FILE, which names the files or devices of \
                    the flash tier and of the volumes";
        return Err(
            CliError::usage(what).next("`[flash]` and `[[volume]]` of docs/configuration.md")
        );
    };
    let [combination] = combinations else {
        let what = "a replay is on the devices of --config, so it can judge one combination only";
        return Err(CliError::usage(what).next("name what they are: --tiers and one --backing"));
    };
    if combination.tiers.len() > 2 {
        return Err(CliError::usage("the cache that is replayed against has two tiers at most"));
    }
    let first = catalogue.device(&combination.tiers[0]).map_err(CliError::usage)?;
    if first.kind != DeviceKind::Dram {
        let name = &first.name;
        let what = format_args!("tier 1 of a replay is this machine's memory, which {name} is not");
        return Err(CliError::usage(what).next("--evaluate simulate takes any device for tier 1"));
    }
    let mut config = load_config(file)?;
    config.check_volumes().map_err(CliError::usage)?;
    if combination.tiers.len() == 2 && config.flash.is_none() {
        let what = format_args!("{} has no [flash] for the second tier", file.display());
        return Err(CliError::usage(what));
    }
    if combination.tiers.len() == 1 {
        config.flash = None;
    }
    let there: Vec<&Path> = paths(&config).into_iter().filter(|path| path.exists()).collect();
    let other = config.volume.iter().find(|v| v.backing.contains("://"));
    let at_stake = there
        .first()
        .map(|path| path.display().to_string())
        .or_else(|| other.map(|v| v.backing.clone()));
    match at_stake {
        Some(name) if !args.write => {
            let what = format_args!("{name} is there already, and a replay destroys what is on it");
            Err(CliError::usage(what)
                .kept("nothing was opened")
                .next("--write allows that; files that are not there are created and removed"))
        }
        _ => Ok(config),
    }
}

/// The files and devices that a configuration names; exports of servers are neither.
fn paths(config: &Config) -> Vec<&Path> {
    let backing = config.volume.iter().map(|v| v.backing.as_str());
    let local = backing.filter(|name| !name.contains("://")).map(Path::new);
    config.flash.iter().map(|flash| flash.path.as_path()).chain(local).collect()
}

/// Files that one replay creates; gone when it ends, however it ends.
struct Created(Vec<PathBuf>);

impl Created {
    fn by(config: &Config) -> Self {
        let absent = paths(config).into_iter().filter(|path| !path.exists());
        Self(absent.map(Path::to_path_buf).collect())
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        for path in &self.0 {
            let is_device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
            if !is_device {
                // What was never created cannot be removed.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Why the volumes of the traces do not go onto those of the configuration, in options of `plan`.
fn misplaced(error: ReplayError) -> BoxError {
    match error {
        ReplayError::TooManyVolumes { volumes, targets } => format!(
            "the traces have {volumes} volumes and --config {targets}; nothing was written. Add a \
             [[volume]] for each, or choose with --volumes"
        )
        .into(),
        ReplayError::BeyondEnd { volume, end, target, size } => format!(
            "volume {volume} is accessed up to byte {end}, and [[volume]] {target} has {size} \
             bytes; nothing was written. Give it a larger `size`, or a larger device"
        )
        .into(),
        error => error.into(),
    }
}

/// Replays the traces against what a plan buys.
pub struct Replayer<'a> {
    pub traces: &'a TraceArgs,
    pub ctx: &'a Context,
    pub cost: CostModel,
    /// The devices.
    pub base: Config,
    pub survey: Survey,
    pub queue_depth: u32,
    pub duration: Nanos,
}

impl<'a> Replayer<'a> {
    /// Gives volumes whose files are to be created the size that the traces need.
    pub fn with_sizes(mut self) -> Self {
        let ends = self.survey.volumes.iter().map(|v| v.end_bytes);
        for (volume, end) in self.base.volume.iter_mut().zip(ends) {
            let local = !volume.backing.contains("://");
            if volume.size.is_none() && local && !Path::new(&volume.backing).exists() {
                volume.size = Some(Size(end.max(1).next_multiple_of(VOLUME_STEP)));
            }
        }
        self
    }

    /// What a hierarchy whose tiers have these sizes does; `None`, with a note, where there is no
    /// such cache.
    pub fn judge(
        &self,
        hierarchy: &Hierarchy,
        sizes: &[Units],
    ) -> Result<Option<Judged>, BoxError> {
        let label = label(hierarchy, sizes, &self.cost);
        let config = match sized(&self.base, hierarchy, sizes, &self.cost) {
            Ok(config) => config,
            Err(error) => {
                self.ctx.note(format_args!("{label} cannot be replayed: {error}"));
                return Ok(None);
            }
        };
        self.ctx.go_on()?;
        let created = Created::by(&config);
        let clock = SystemClock::start();
        let how = EngineOptions {
            format: true,
            backend: Backend::from_environment()?,
            ..EngineOptions::default()
        };
        let host = EngineHost::open(&config, how)?;
        let mut target = host.target(clock)?;
        let allowed = PlacementOptions { writes: Writes::Allowed, ..PlacementOptions::default() };
        let limits = forebay_replay::Target::limits(&target);
        let mut volumes = host.volumes().to_vec();
        // Trims access no block: for the formulas they are not there, nor are they here.
        volumes.iter_mut().for_each(|volume| volume.able.trim = false);
        let placement =
            Placement::new(&self.survey.volumes, &volumes, limits, allowed).map_err(misplaced)?;
        let stop = self.ctx.interrupt_flag();
        let finished = {
            let requests = Some(self.survey.requests);
            let progress = self.ctx.progress(&format!("replaying {label}"), Unit::Count, requests);
            let run = Run {
                clock,
                feed: Feed::start(open_all(&self.traces.traces, &options(self.traces))?),
                placement,
                options: RunOptions {
                    pace: Pace::AsFastAsPossible,
                    queue_depth: self.queue_depth,
                    intervals: Intervals::Auto,
                    ..RunOptions::default()
                },
                hooks: Hooks { stop: &stop, progress: &|n| progress.inc(n) },
            };
            run.go(&mut [&mut target])
        };
        let (cache, _) = host.cache();
        drop(target);
        // What is dirty in files that go is worth nothing.
        let all_go = created.0.len() == paths(&config).len();
        let mode =
            if all_go && config.flash.is_some() { StopMode::Keep } else { StopMode::Destage };
        let stopped = host.stop(mode, |_| ());
        drop(created);
        if let Some(error) = finished.error {
            return Err(error.into());
        }
        self.ctx.go_on()?;
        stopped?;
        let mut run = finished.result.run;
        if run.errors > 0 {
            return Err(format!(
                "{} of {} requests failed",
                count(run.errors),
                count(run.requests)
            )
            .into());
        }
        run.cache = Some(cache);
        Ok(Some(judged(&run, &self.cost, sizes.len(), self.duration)))
    }
}
