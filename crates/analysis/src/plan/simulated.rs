//! Simulates the shortlist of a plan.

use std::sync::Arc;

use forebay_block::{Nanos, Op, Request};
use forebay_config::Config;
use forebay_model::Profile;
use forebay_plan::{
    BoxError, CostModel, Device, Hierarchy, Judged, PlanError, PlanOptions, Purchase, Units, plan,
};
use forebay_replay::VolumeSurvey;
use forebay_simulate::{Defaults, Memory, Options, Pacing, Scenario, Simulation, TracedVolume};
use forebay_trace::{Batch, open_all};

use super::cache::{judged, label, sized};
use super::{Basis, Evaluate, Question, Workload};
use crate::{AnalysisError, Note, Observer, Traces, Unit};

/// Number of requests between two checks of the stop flag.
const CHECK_PERIOD: u64 = 1 << 16;

/// Simulates the purchases of a plan, reading the traces again each time.
pub struct Simulator<'a> {
    pub traces: &'a Traces,
    pub observer: &'a dyn Observer,
    pub cost: CostModel,
    /// The cache. The plan replaces its sizes, write policy and devices.
    pub cache: &'a Config,
    /// The volumes, by number.
    pub volumes: Vec<TracedVolume>,
    pub requests: u64,
    pub duration: Nanos,
}

impl Simulator<'_> {
    /// Evaluates a hierarchy whose tiers have these sizes; `None`, with a note, if the simulator
    /// has no such cache.
    pub fn judge(
        &self,
        hierarchy: &Hierarchy,
        sizes: &[Units],
    ) -> Result<Option<Judged>, BoxError> {
        let label = label(hierarchy, sizes, &self.cost);
        if hierarchy.tiers.len() > 2 {
            self.observer.note(Note::NotSimulated { purchase: label, reason: None });
            return Ok(None);
        }
        let scenario = match self.scenario(hierarchy, sizes) {
            Ok(scenario) => scenario,
            Err(error) => {
                let reason = Some(error);
                self.observer.note(Note::NotSimulated { purchase: label, reason });
                return Ok(None);
            }
        };
        let how = Options { pacing: Pacing::Quiesced, ..Options::default() };
        let mut simulation = Simulation::new(&scenario, &how)?;
        simulation.stop_when(Arc::clone(self.observer.stop_flag()));
        let label = format!("simulating {label}");
        let meter = self.observer.begin(&label, Unit::Count, Some(self.requests));
        let mut reader = open_all(&self.traces.files, &self.traces.options)?;
        let (mut batch, mut done) = (Batch::default(), 0);
        while reader.read_batch(&mut batch)? > 0 {
            for request in batch.requests() {
                if done % CHECK_PERIOD == 0 {
                    self.observer.check()?;
                }
                done += 1;
                // Trims access no block; neither the formulas nor this simulation count them.
                if request.op != Op::Trim {
                    simulation.add(&within(&request, &self.volumes))?;
                }
            }
            meter.set(done);
        }
        let run = simulation.finish()?.run;
        drop(meter);
        Ok(Some(judged(&run, &self.cost, sizes.len(), self.duration)))
    }

    /// The cache with these tiers, on devices as in the catalogue.
    fn scenario(&self, hierarchy: &Hierarchy, sizes: &[Units]) -> Result<Scenario, BoxError> {
        let config = sized(self.cache, hierarchy, sizes, &self.cost)?;
        let mut scenario = Scenario::new(&config, &self.volumes, &Defaults::default())?;
        let tier1 = &hierarchy.tiers[0];
        scenario.memory =
            Memory { read: nanos(tier1.read_latency_us), write: nanos(tier1.write_latency_us) };
        if let Some(tier2) = hierarchy.tiers.get(1) {
            scenario.flash = profile(tier2, &self.cost);
        }
        let backing = profile(&hierarchy.backing, &self.cost);
        scenario.volumes.iter_mut().for_each(|v| v.backing = backing.clone());
        Ok(scenario)
    }
}

impl Question {
    /// Bytes that the configured cache writes to flash, as a fraction of those that the formulas
    /// count. Determined by one simulation of the fastest two tiers that the largest budget buys,
    /// regardless of wear. 1 if no cache is configured or no limit needs the value.
    pub(super) fn flash_writes(
        &self,
        basis: &Basis,
        largest_usd: f64,
        workload: &Workload,
        observer: &dyn Observer,
    ) -> Result<f64, AnalysisError> {
        let Evaluate::Simulate { cache: Some(cache), .. } = &self.evaluate else { return Ok(1.0) };
        if basis.options.wear_limit().is_none() {
            return Ok(1.0);
        }
        let free = PlanOptions { wear_max: None, ..basis.options.clone() };
        let Basis { profile, catalogue, combinations, .. } = basis;
        let plan = plan(&**profile, catalogue, combinations, largest_usd, &free)?;
        let has_flash = |purchase: &Purchase| match purchase.tiers.as_slice() {
            [_, second] => purchase.flash_bytes_written_per_day > Some(0.0) && second.bytes > 0,
            _ => false,
        };
        let Some(choice) = plan.choices.iter().find(|choice| has_flash(&choice.purchase)) else {
            return Ok(1.0);
        };
        let cache = simulated_cache(Some(cache))?;
        let simulator = self.simulator(&cache, workload, observer);
        let (hierarchy, sizes) = choice.purchase.bought(&basis.catalogue, &free)?;
        let judged = simulator.judge(&hierarchy, &sizes).map_err(|source| {
            AnalysisError::from(PlanError::Evaluation { what: hierarchy.label(), source })
        })?;
        let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * free.cost.unit_blocks()).collect();
        let by_formulas = hierarchy.evaluate(&*basis.profile, &blocks).blocks_written[1];
        let bytes = by_formulas as f64 * free.cost.block_size.bytes() as f64;
        let days = basis.options.duration.as_secs_f64() / 86_400.0;
        let written = judged.and_then(|judged| judged.bytes_written_per_day);
        Ok(written.map_or(1.0, |written| written[1] * days / bytes))
    }

    pub(super) fn simulator<'a>(
        &'a self,
        cache: &'a Config,
        workload: &Workload,
        observer: &'a dyn Observer,
    ) -> Simulator<'a> {
        Simulator {
            traces: &self.traces,
            observer,
            cost: self.options.cost,
            cache,
            volumes: self.volumes(workload),
            requests: workload.described.requests,
            duration: workload.profile.duration(),
        }
    }

    /// The volumes for a simulation, in whole blocks.
    fn volumes(&self, workload: &Workload) -> Vec<TracedVolume> {
        let block = self.options.cost.block_size.bytes();
        let number = |at: usize| forebay_block::Volume(at as u32);
        let volume = |(at, volume): (usize, &VolumeSurvey)| TracedVolume {
            name: workload.described.volume_name(number(at)),
            bytes: volume.end_bytes.next_multiple_of(block),
        };
        workload.survey.volumes.iter().enumerate().map(volume).collect()
    }
}

/// The cache to simulate.
pub fn simulated_cache(configured: Option<&Config>) -> Result<Config, AnalysisError> {
    let usual = Config::from_toml("[flash]\npath = 'simulated'\n")?;
    let Some(mut config) = configured.cloned() else { return Ok(usual) };
    config.flash = config.flash.or(usual.flash);
    Ok(config)
}

/// A device as in the formulas: it serves one block after another, each in the time that the
/// catalogue gives, whether the blocks are adjacent or not.
fn profile(device: &Device, cost: &CostModel) -> Profile {
    let block = cost.block_size.bytes() as f64;
    let rate = |us: f64| if us > 0.0 { (block / us * 1e6).round().max(1.0) as u64 } else { 0 };
    Profile {
        read_bytes_per_s: rate(device.read_latency_us),
        write_bytes_per_s: rate(device.write_latency_us),
        parallelism: 1,
        ..Profile::INSTANT
    }
}

fn nanos(us: f64) -> Nanos {
    Nanos((us * 1e3).round() as u64)
}

/// Cuts a request to its volume. It only changes requests of a file that has grown since the first
/// reading.
fn within(request: &Request, volumes: &[TracedVolume]) -> Request {
    let size = volumes.get(request.volume.0 as usize).map_or(0, |v| v.bytes);
    let offset = request.offset.min(size);
    Request { offset, length: request.length.min(size - offset), ..*request }
}
