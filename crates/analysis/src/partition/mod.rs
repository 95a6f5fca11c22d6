//! How is a cache divided among volumes?
//!
//! The traces are read by [`Question::measure`]; what they are is a [`Workload`], of which
//! [`Question::divide`] makes an [`Answer`]. [`Answer::document`] is plain data.

mod answer;
mod devices;
mod document;
mod simulated;
mod volumes;

use forebay_block::{BlockSize, Nanos};
use forebay_plan::partition::{
    Convergence, Goal, PartitionProfile, PartitionProfileBuilder, PartitionProfileOptions, Problem,
    ProblemOptions, Search, Sizes, VolumeModel, Weigh, choose_units,
};
use forebay_plan::{JudgedBy, WritePolicy};

use crate::kept::Kept;
use crate::{AnalysisError, Observer, Traces};
pub use answer::{Answer, Division};
use devices::{Alone, Profiles};
pub use devices::{Devices, QUEUE_DEPTH};
pub use document::{
    Baseline, BaselineRow, Divided, Document, RoundRow, Row, VolumeCurves, VolumeRow,
};
pub use simulated::BLOCKS_MAX;
use simulated::Simulator;
pub use volumes::{Known, KnownVolume};

/// How a division is judged.
#[derive(Clone, Copy, Debug, Default)]
pub enum Evaluate {
    /// From the curves, and the latencies of the devices with nothing waiting.
    #[default]
    Analytic,
    /// By simulating the caches, and planning again with the latencies found.
    Simulate {
        /// When prediction and simulation agree.
        convergence: Convergence,
        /// Without a queue depth: how many times as fast as the traces a simulation runs.
        rate: f64,
    },
}

impl Evaluate {
    /// What it is that judges.
    pub const fn judged_by(self) -> JudgedBy {
        match self {
            Self::Analytic => JudgedBy::Analytic,
            Self::Simulate { .. } => JudgedBy::Simulate,
        }
    }

    /// Whether caches are simulated.
    pub const fn simulates(self) -> bool {
        matches!(self, Self::Simulate { .. })
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The volumes' requests.
    pub traces: Traces,
    /// What is divided: room for data, in bytes.
    pub sizes: Sizes,
    /// What every volume gets, unless it has no use for it.
    pub floor: Sizes,
    /// What sizes are multiples of, in whole blocks; 0 is as fine as is quick.
    pub units: Sizes,
    /// What the division is to be best at.
    pub goal: Goal,
    /// What counts alike.
    pub weigh: Weigh,
    /// The mean latency that a volume is to have at most, by name; comes before the goal.
    pub targets: Vec<(String, Nanos)>,
    /// The write policy.
    pub policy: WritePolicy,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Blocks move into the cache only so often, instead of when they are accessed.
    pub migration_period: Option<Nanos>,
    /// How shares are searched.
    pub search: Search,
    /// Seed of the devices' random numbers.
    pub seed: u64,
    /// How a division is judged.
    pub evaluate: Evaluate,
    /// Requests that each volume keeps in flight, whatever the traces' times.
    pub queue_depth: Option<u32>,
    /// What the caches and the backing stores are made of.
    pub devices: Devices,
}

/// Volumes that were measured: their curves, and what their requests take on each device.
#[derive(Debug)]
pub struct Workload {
    /// Hits by size, by volume.
    pub profile: PartitionProfile,
    /// The volumes that read or write.
    pub known: Known,
    kept: Kept,
    targets: Vec<(usize, f64)>,
    profiles: Profiles,
    models: Vec<VolumeModel>,
}

impl Question {
    /// For the lowest mean latencies of volumes, by formulas, with write-through.
    pub fn new(traces: Traces, sizes: Sizes, devices: Devices) -> Self {
        Self {
            traces,
            sizes,
            floor: Sizes::default(),
            units: Sizes::default(),
            goal: Goal::Latency,
            weigh: Weigh::Volumes,
            targets: Vec::new(),
            policy: WritePolicy::default(),
            block_size: BlockSize::KIB_4,
            migration_period: None,
            search: Search::Exact,
            seed: 1,
            evaluate: Evaluate::default(),
            queue_depth: None,
            devices,
        }
    }

    /// Refuses what cannot be, before traces are read.
    ///
    /// # Errors
    /// If there is not a block to divide, a unit is not a whole number of blocks, or there is no such
    /// cache to simulate.
    pub fn check(&self) -> Result<(), AnalysisError> {
        let impossible = |what| Err(AnalysisError::Impossible(what));
        let block = self.block_size.bytes();
        let Sizes { dram_bytes, flash_bytes } = self.sizes;
        if dram_bytes < block && flash_bytes < block {
            return impossible("the cache is smaller than a block, so there is nothing to divide");
        }
        let Sizes { dram_bytes: dram_unit, flash_bytes: flash_unit } = self.units;
        if !dram_unit.is_multiple_of(block) || !flash_unit.is_multiple_of(block) {
            return impossible("a unit must be a whole number of blocks");
        }
        if self.migration_period == Some(Nanos(0)) {
            return impossible("the migration period must be greater than 0");
        }
        if self.evaluate.simulates() {
            if self.migration_period.is_some() {
                return impossible("a cache with a migration period cannot be simulated");
            }
            if dram_bytes.saturating_add(flash_bytes) > BLOCKS_MAX.saturating_mul(block) {
                return impossible("the cache is too large to simulate");
            }
        }
        Ok(())
    }

    /// Reads the traces, measures the volumes, and times the devices.
    ///
    /// # Errors
    /// If the question cannot be, there is no such device, the traces cannot be read or measured,
    /// less than two volumes read or write, a target is for another one, or the observer stops it.
    pub fn measure(&self, observer: &dyn Observer) -> Result<Workload, AnalysisError> {
        self.check()?;
        let profiles = self.devices.profiles()?;
        let mut builder = PartitionProfileBuilder::new(PartitionProfileOptions {
            block_size: self.block_size,
            migration_period: self.migration_period,
        })?;
        let kept = Kept::read(&self.traces, observer, |request| Ok(builder.add(request)?))?;
        let profile = builder.finish()?;
        let known = Known::new(&kept, &profile)?;
        let targets = known.targets(&self.targets)?;
        let mut alone = Alone::new(self, &profiles, &known);
        kept.each(observer, "computing device latencies", |request| {
            alone.add(request);
            Ok(())
        })
        .map_err(AnalysisError::Judging)?;
        let models = alone.models();
        Ok(Workload { profile, known, kept, targets, profiles, models })
    }

    /// Divides by the curves and the devices' latencies; under simulation again and again, until
    /// both agree.
    ///
    /// # Errors
    /// If there is no division, the search would take too long, a simulation fails, or the
    /// observer stops it.
    pub fn divide<'a>(
        &'a self,
        workload: &'a Workload,
        observer: &dyn Observer,
    ) -> Result<Answer<'a>, AnalysisError> {
        let build = |units: Sizes| {
            let curves = workload.profile.volumes.values().collect();
            let mut problem = Problem::new(self.options(units), curves, workload.models.clone());
            workload.targets.iter().for_each(|&(volume, us)| problem.set_target(volume, us));
            problem
        };
        let anneals = matches!(self.search, Search::Anneal(_));
        let units = choose_units(self.sizes, self.units, self.block_size, anneals, build);
        let mut answer = Answer::new(self, workload, build(units));
        match self.evaluate {
            Evaluate::Analytic => answer.plan(observer)?,
            Evaluate::Simulate { convergence, rate } => {
                let simulator = Simulator {
                    question: self,
                    rate,
                    observer,
                    kept: &workload.kept,
                    known: &workload.known,
                    profiles: &workload.profiles,
                    models: workload.models.clone(),
                };
                answer.iterate(&simulator, convergence)?;
            }
        }
        Ok(answer)
    }

    fn options(&self, units: Sizes) -> ProblemOptions {
        ProblemOptions {
            goal: self.goal,
            weigh: self.weigh,
            block_size: self.block_size,
            sizes: self.sizes,
            units,
            floor: self.floor,
            transit_blocks: match self.evaluate {
                Evaluate::Analytic => 0,
                Evaluate::Simulate { .. } => simulated::TRANSIT_BLOCKS,
            },
        }
    }
}
