//! The shortlist of a plan, simulated.

use std::sync::Arc;

use forebay_block::{Nanos, Op, Request};
use forebay_config::Config;
use forebay_model::Profile;
use forebay_plan::{BoxError, CostModel, Device, Hierarchy, Judged, Units};
use forebay_simulate::{Defaults, Memory, Options, Pacing, Scenario, Simulation, TracedVolume};
use forebay_trace::{Batch, open_all};

use super::cache::{judged, label, sized};
use crate::{Note, Observer, Traces, Unit};

/// How often a simulation looks whether it is to stop, in requests.
const CHECK_PERIOD: u64 = 1 << 16;

/// Simulates what a plan buys, reading the traces again each time.
pub struct Simulator<'a> {
    pub traces: &'a Traces,
    pub observer: &'a dyn Observer,
    pub cost: CostModel,
    /// What the cache is, but for the sizes, the write policy and the devices.
    pub cache: &'a Config,
    /// By volume number.
    pub volumes: Vec<TracedVolume>,
    pub requests: u64,
    pub duration: Nanos,
}

impl Simulator<'_> {
    /// What a hierarchy whose tiers have these sizes does; `None`, with a note, where the
    /// simulator has no such cache.
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
                // Trims access no block: for the formulas they are not there, nor are they here.
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

    /// The cache of these tiers on devices as the catalogue has them.
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

/// As in the formulas: one block after another, each as long as the catalogue says, whether they
/// lie side by side or not.
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

/// A trace that is read a second time is the same, but for a file that grew meanwhile.
fn within(request: &Request, volumes: &[TracedVolume]) -> Request {
    let size = volumes.get(request.volume.0 as usize).map_or(0, |v| v.bytes);
    let offset = request.offset.min(size);
    Request { offset, length: request.length.min(size - offset), ..*request }
}
