//! How to divide a cache among volumes.
//!
//! [`Question::measure`] reads the traces and returns a [`Workload`], from which
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

/// How to evaluate a division.
#[derive(Clone, Copy, Debug, Default)]
pub enum Evaluate {
    /// From the curves, and the latencies of the devices without queueing.
    #[default]
    Analytic,
    /// By simulating the caches, and planning again with the simulated latencies.
    Simulate {
        /// When prediction and simulation count as agreeing.
        convergence: Convergence,
        /// Without a queue depth: the speed of the simulation, as a multiple of the speed of the
        /// traces.
        rate: f64,
    },
}

impl Evaluate {
    /// The method that evaluates.
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

/// How to divide a cache among volumes.
#[derive(Clone, Debug)]
pub struct Question {
    /// The volumes' requests.
    pub traces: Traces,
    /// The cache to divide: room for data, in bytes.
    pub sizes: Sizes,
    /// Minimum share of every volume, in bytes; a volume to which less is useful gets less.
    pub floor: Sizes,
    /// Unit of sizes, in bytes: whole blocks; 0: as fine as can be searched quickly.
    pub units: Sizes,
    /// The goal of the division.
    pub goal: Goal,
    /// The unit that gets equal weight.
    pub weigh: Weigh,
    /// Maximum mean latencies of volumes, by name; they take precedence over the goal.
    pub targets: Vec<(String, Nanos)>,
    /// The write policy.
    pub policy: WritePolicy,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Interval at which blocks move into the cache; `None`: they move when they are accessed.
    pub migration_period: Option<Nanos>,
    /// How to search for shares.
    pub search: Search,
    /// Seed of the devices' random numbers.
    pub seed: u64,
    /// How to evaluate a division.
    pub evaluate: Evaluate,
    /// Number of requests that each volume keeps in flight, regardless of the times in the traces.
    pub queue_depth: Option<u32>,
    /// The devices of the cache and of the backing stores.
    pub devices: Devices,
}

/// Measured volumes: their curves, and the latencies of their requests on each device.
#[derive(Debug)]
pub struct Workload {
    /// Hits by cache size, for each volume.
    pub profile: PartitionProfile,
    /// The volumes that read or write.
    pub known: Known,
    kept: Kept,
    targets: Vec<(usize, f64)>,
    profiles: Profiles,
    models: Vec<VolumeModel>,
}

impl Question {
    /// A question about the lowest mean latencies of volumes, by formulas, with write-through.
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

    /// Rejects an impossible question before traces are read.
    ///
    /// # Errors
    /// If the cache is smaller than a block, a unit is not a whole number of blocks, the migration
    /// period is 0, or no such cache can be simulated.
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
    /// If [`check`](Self::check) fails, a device does not exist, the traces cannot be read or
    /// measured, fewer than two volumes read or write, a target is for another volume, or the
    /// observer stops the work.
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

    /// Divides the cache according to the curves and the latencies of the devices; with simulation,
    /// in turns with simulating until both agree.
    ///
    /// # Errors
    /// If no division is possible, the search would take too long, a simulation fails, or the
    /// observer stops the work.
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
