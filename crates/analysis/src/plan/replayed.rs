//! Replays a purchase of a plan: the cache on real files and devices, with tiers of the plan's
//! sizes.

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
    RunOptions, Survey, SystemClock, VolumeSurvey, Writes, at_stake, local_paths, targets_of,
};
use forebay_trace::open_all;

use super::cache::{judged, label, sized};
use crate::{AnalysisError, Note, Observer, Traces, Unit};

/// The sizes of volumes in created files are multiples of this, in bytes.
const VOLUME_STEP: u64 = 1 << 20;

/// The cache to replay against. The plan replaces its sizes and write policy.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The files and devices of the flash tier and of the volumes, which represent those of the
    /// combination.
    pub config: Config,
    /// Number of requests in flight.
    pub queue_depth: u32,
    /// Whether data on existing files and devices may be destroyed. Missing files are created and
    /// then removed.
    pub overwrite: bool,
}

impl Replay {
    /// Rejects devices that are not those of exactly one combination, and data that must not be
    /// destroyed.
    pub(super) fn check(
        &self,
        catalogue: &Catalogue,
        combinations: &[Combination],
    ) -> Result<(), AnalysisError> {
        let [combination] = combinations else {
            return Err(AnalysisError::SeveralCombinations);
        };
        if combination.tiers.len() > 2 {
            return Err(AnalysisError::TooManyTiers);
        }
        let first = catalogue.device(&combination.tiers[0])?;
        if first.kind != DeviceKind::Dram {
            return Err(AnalysisError::NotMemory(first.name.clone()));
        }
        self.config.check_volumes()?;
        if combination.tiers.len() == 2 && self.config.flash.is_none() {
            return Err(AnalysisError::NoFlash);
        }
        let config = self.config_of(combination);
        match at_stake(&config) {
            Some(name) if !self.overwrite => Err(AnalysisError::WouldDestroy(name)),
            _ => Ok(()),
        }
    }

    /// The configuration, without a flash tier if the combination has none.
    pub(super) fn config_of(&self, combination: &Combination) -> Config {
        let mut config = self.config.clone();
        if combination.tiers.len() == 1 {
            config.flash = None;
        }
        config
    }
}

/// Files that one replay creates; removed when it ends, whether or not it succeeds.
struct Created(Vec<PathBuf>);

impl Created {
    fn by(config: &Config) -> Self {
        let absent = local_paths(config).into_iter().filter(|path| !path.exists());
        Self(absent.map(Path::to_path_buf).collect())
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        for path in &self.0 {
            let is_device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
            if !is_device {
                // Removing a file that was never created fails, which does not matter.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The reason why the volumes of the traces do not fit those of the configuration.
fn misplaced(error: ReplayError) -> BoxError {
    let next = match &error {
        ReplayError::TooManyVolumes { .. } => {
            "add a [[volume]] for each volume in the traces, or select fewer volumes"
        }
        ReplayError::BeyondEnd { .. } => "give that [[volume]] a larger `size`, or a larger device",
        _ => return error.into(),
    };
    format!("{error}; {next}").into()
}

/// Replays the traces against the purchases of a plan.
pub struct Replayer<'a> {
    pub traces: &'a Traces,
    pub observer: &'a dyn Observer,
    pub cost: CostModel,
    /// The configured files and devices.
    pub base: Config,
    pub survey: Survey,
    pub queue_depth: u32,
    pub duration: Nanos,
}

impl<'a> Replayer<'a> {
    /// Sets the sizes of volumes whose files are to be created, so that the traces fit.
    pub fn with_sizes(mut self) -> Result<Self, BoxError> {
        give_sizes(&mut self.base, &self.survey.volumes).map_err(misplaced)?;
        Ok(self)
    }

    /// Evaluates a hierarchy whose tiers have these sizes; `None`, with a note, if no such cache
    /// can be built.
    pub fn judge(
        &self,
        hierarchy: &Hierarchy,
        sizes: &[Units],
    ) -> Result<Option<Judged>, BoxError> {
        let label = label(hierarchy, sizes, &self.cost);
        let config = match sized(&self.base, hierarchy, sizes, &self.cost) {
            Ok(config) => config,
            Err(error) => {
                self.observer.note(Note::NotReplayed { purchase: label, reason: error });
                return Ok(None);
            }
        };
        self.observer.check()?;
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
        // Trims access no block; neither the formulas nor this replay count them.
        volumes.iter_mut().for_each(|volume| volume.able.trim = false);
        let placement =
            Placement::new(&self.survey.volumes, &volumes, limits, allowed).map_err(misplaced)?;
        let stop = self.observer.stop_flag();
        let finished = {
            let requests = Some(self.survey.requests);
            let meter = self.observer.begin(&format!("replaying {label}"), Unit::Count, requests);
            let run = Run {
                clock,
                feed: Feed::start(open_all(&self.traces.files, &self.traces.options)?),
                placement,
                options: RunOptions {
                    pace: Pace::AsFastAsPossible,
                    queue_depth: self.queue_depth,
                    intervals: Intervals::Auto,
                    ..RunOptions::default()
                },
                hooks: Hooks { stop, progress: &|n| meter.inc(n) },
            };
            run.go(&mut [&mut target])
        };
        let (cache, _) = host.cache();
        drop(target);
        // If all files are removed anyway, there is no need to destage dirty blocks.
        let all_go = created.0.len() == local_paths(&config).len();
        let mode =
            if all_go && config.flash.is_some() { StopMode::Keep } else { StopMode::Destage };
        let stopped = host.stop(mode, |_| ());
        drop(created);
        if let Some(error) = finished.error {
            return Err(error.into());
        }
        self.observer.check()?;
        stopped?;
        let mut run = finished.result.run;
        if run.errors > 0 {
            return Err(format!("{} of {} requests failed", run.errors, run.requests).into());
        }
        run.cache = Some(cache);
        Ok(Some(judged(&run, &self.cost, sizes.len(), self.duration)))
    }
}

/// Sets the sizes of volumes whose files are to be created, so that the volumes replayed on them
/// fit.
fn give_sizes(config: &mut Config, traced: &[VolumeSurvey]) -> Result<(), ReplayError> {
    let names: Vec<&str> = config.volume.iter().map(|volume| volume.name.as_str()).collect();
    for (traced, target) in traced.iter().zip(targets_of(traced, &names)?) {
        let Some(volume) = target.map(|number| &mut config.volume[number]) else { continue };
        let local = !volume.backing.contains("://");
        if volume.size.is_none() && local && !Path::new(&volume.backing).exists() {
            volume.size = Some(Size(traced.end_bytes.max(1).next_multiple_of(VOLUME_STEP)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_has_the_size_of_the_volume_that_is_replayed_on_it() {
        let volumes = |names: [&str; 2]| {
            let volume = |name| format!("[[volume]]\nname = '{name}'\nbacking = '/none/{name}'\n");
            Config::from_toml(&names.map(volume).concat()).unwrap()
        };
        let traced = |name: &str, used, megabytes: u64| VolumeSurvey {
            name: name.into(),
            used,
            end_bytes: megabytes << 20,
            modified: false,
        };
        let sizes = |mut config: Config, traced: &[VolumeSurvey]| {
            give_sizes(&mut config, traced).unwrap();
            config.volume.iter().map(|v| v.size.map(|s| s.0 >> 20)).collect::<Vec<_>>()
        };
        let both = [traced("a", true, 3), traced("b", true, 5)];
        assert_eq!(sizes(volumes(["b", "a"]), &both), [Some(5), Some(3)], "by name");
        assert_eq!(sizes(volumes(["x", "y"]), &both), [Some(3), Some(5)], "in order");
        let one = [traced("a", false, 0), traced("b", true, 5)];
        assert_eq!(sizes(volumes(["x", "y"]), &one), [None, Some(5)], "each has its own");
    }
}
