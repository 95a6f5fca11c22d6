//! The answer to how a cache is divided.

use forebay_plan::BoxError;
use forebay_plan::partition::{
    Convergence, Costs, Goal, Iterated, Measured, Outcome, Problem, Sizes, Solution, Weigh,
    iterate, solve,
};

use super::simulated::Simulator;
use super::{Question, Workload};
use crate::{AnalysisError, Meter, Observer, Unit};

/// One way to divide the cache, or to share it undivided.
#[derive(Clone, Debug)]
pub struct Division {
    /// `found`, `equal` or `shared`.
    pub name: &'static str,
    /// The share of each volume; `None` if the cache is shared.
    pub sizes: Option<Vec<Sizes>>,
    /// The predicted outcome of each volume, from the curves; `None` if it cannot be predicted.
    pub predicted: Option<Vec<Outcome>>,
    /// The simulated outcome of each volume; `None` if it was not simulated.
    pub simulated: Option<Vec<Outcome>>,
}

impl Division {
    /// The predicted and the simulated objective; `None` where it is undefined or unknown.
    pub fn objectives(&self, problem: &Problem<'_>) -> [Option<f64>; 2] {
        let sizes = match (&self.sizes, problem.options().goal) {
            (Some(sizes), _) => sizes.clone(),
            // A volume's part of a shared cache has no size by which to divide.
            (None, Goal::Ppc) => return [None; 2],
            (None, _) => vec![Sizes::default(); problem.volumes()],
        };
        [&self.predicted, &self.simulated]
            .map(|o| o.as_ref().map(|outcomes| problem.objective(outcomes, &sizes)))
    }
}

/// The division found, and the divisions to compare it with.
pub struct Answer<'a> {
    /// The question.
    pub question: &'a Question,
    /// The volumes.
    pub workload: &'a Workload,
    /// The model that predicts latencies and hits, including what it learned from simulations.
    pub problem: Problem<'a>,
    /// The shares found, in units.
    pub solution: Solution,
    /// The rounds of planning and simulating; `None` without simulation.
    pub iterated: Option<Iterated>,
    /// The division found, equal shares, and one shared cache.
    pub divisions: Vec<Division>,
    /// Why one shared cache could not be simulated, if that failed.
    pub shared_not_simulated: Option<BoxError>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        question: &'a Question,
        workload: &'a Workload,
        problem: Problem<'a>,
    ) -> Self {
        let nothing =
            Solution { shares: vec![], cost: Default::default(), bound: None, evaluations: 0 };
        Self {
            question,
            workload,
            problem,
            solution: nothing,
            iterated: None,
            divisions: Vec::new(),
            shared_not_simulated: None,
        }
    }

    /// Divides the cache according to the curves and the latencies of the devices.
    pub(super) fn plan(&mut self, observer: &dyn Observer) -> Result<(), AnalysisError> {
        let mut waiting = Waiting { observer, shown: None };
        let mut watch = |done, total| waiting.see(done, total);
        self.solution = solve(&self.problem, self.question.search, &mut watch)?;
        self.compare(self.sizes());
        Ok(())
    }

    /// Divides and simulates in turns until prediction and simulation agree.
    pub(super) fn iterate(
        &mut self,
        simulator: &Simulator<'_>,
        convergence: Convergence,
    ) -> Result<(), AnalysisError> {
        let outcomes = |measured: &[Measured]| -> Vec<Outcome> {
            measured.iter().map(|m| m.outcome).collect()
        };
        // Equal shares are simulated for comparison anyway, and learning from them improves the
        // first plan.
        let equal = self.equal(self.workload.known.volumes.len());
        let first = simulator.apart("simulating equal shares", &equal);
        let first = first.map_err(AnalysisError::Judging)?;
        let mut round = 0;
        let mut measure = |sizes: &[Sizes]| {
            round += 1;
            simulator.apart(&format!("simulating plan {round}"), sizes)
        };
        let Question { search, .. } = *self.question;
        let known = Some((&equal[..], &first[..]));
        let mut waiting = Waiting { observer: simulator.observer, shown: None };
        let mut watch = |done, total| waiting.see(done, total);
        let problem = &mut self.problem;
        let iterated = iterate(problem, search, convergence, known, &mut watch, &mut measure)?;
        let chosen = &iterated.rounds[iterated.chosen];
        self.solution = chosen.solution.clone();
        self.compare(chosen.sizes.clone());
        self.divisions[0].simulated = Some(chosen.measured.clone());
        self.divisions[1].simulated = Some(outcomes(&first));
        self.iterated = Some(iterated);
        if self.question.queue_depth.is_some() {
            // A cache that is fed the volumes' requests in trace order makes fast volumes wait for
            // slow ones.
            return Ok(());
        }
        match simulator.shared("simulating one shared cache") {
            Ok(measured) => self.divisions[2].simulated = Some(outcomes(&measured)),
            Err(error) if simulator.observer.check().is_err() => {
                return Err(AnalysisError::Judging(error));
            }
            Err(error) => self.shared_not_simulated = Some(error),
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<Sizes> {
        let shares = self.solution.shares.iter().enumerate();
        shares.map(|(volume, &share)| self.problem.sizes(volume, share)).collect()
    }

    /// Equal sizes for all volumes, in whole blocks.
    fn equal(&self, volumes: usize) -> Vec<Sizes> {
        let part = |bytes: u64| {
            let block = self.question.block_size.bytes();
            bytes / volumes as u64 / block * block
        };
        let all = self.problem.options().sizes;
        let each = Sizes { dram_bytes: part(all.dram_bytes), flash_bytes: part(all.flash_bytes) };
        vec![each; volumes]
    }

    /// Sets the division found and the divisions to compare it with.
    fn compare(&mut self, found: Vec<Sizes>) {
        let problem = &self.problem;
        let predict = |sizes: &[Sizes]| -> Vec<Outcome> {
            sizes.iter().enumerate().map(|(v, &s)| problem.predict(v, s)).collect()
        };
        let equal = self.equal(found.len());
        let division = |name, sizes: Vec<Sizes>| Division {
            name,
            predicted: Some(predict(&sizes)),
            sizes: Some(sizes),
            simulated: None,
        };
        let shared = Division {
            name: "shared",
            sizes: None,
            predicted: (0..found.len()).map(|v| problem.predict_shared(v)).collect(),
            simulated: None,
        };
        self.divisions = vec![division("found", found), division("equal", equal), shared];
    }

    /// Sizes, prediction and simulation of the division found, by volume.
    pub fn found(&self) -> (&[Sizes], &[Outcome], Option<&[Outcome]>) {
        let division = &self.divisions[0];
        (
            division.sizes.as_deref().unwrap_or_default(),
            division.predicted.as_deref().unwrap_or_default(),
            division.simulated.as_deref(),
        )
    }

    /// The part of the cache that no volume got, because none would have gained from it.
    pub fn left(&self) -> Sizes {
        let all = self.problem.options().sizes;
        self.found().0.iter().fold(all, |left, s| Sizes {
            dram_bytes: left.dram_bytes - s.dram_bytes,
            flash_bytes: left.flash_bytes - s.flash_bytes,
        })
    }

    /// The latency of a volume: simulated if it was simulated, otherwise predicted.
    pub fn latency_us(&self, volume: usize) -> f64 {
        let (_, predicted, simulated) = self.found();
        simulated.unwrap_or(predicted)[volume].latency_us
    }

    /// Whether a volume meets its target; `None` without a target.
    pub fn target_met(&self, volume: usize) -> Option<bool> {
        self.problem.target_us(volume)?;
        Some(self.problem.missed(volume, self.latency_us(volume)) == 0.0)
    }

    /// The bound on the objective, in the unit of the objective. `None` if it is not known, or if
    /// finer units might miss targets by less: the bound then does not apply to divisions that miss
    /// them as these shares do.
    pub fn bound(&self) -> Option<f64> {
        let bound = self.solution.bound?;
        if bound.missed < self.solution.cost.missed {
            return None;
        }
        let value = bound.value;
        Some(match self.problem.options().goal {
            // The search prefers hits in memory to hits on flash, by less than this tolerance.
            Goal::Hits if value >= self.solution.cost.value - 1e-9 => {
                self.divisions[0].objectives(&self.problem)[0]?
            }
            Goal::Hits => match self.problem.options().weigh {
                Weigh::Requests => 1.0 - value,
                Weigh::Volumes => self.workload.known.volumes.len() as f64 - value,
            },
            _ if self.problem.is_maximised() => -value,
            _ => value,
        })
    }
}

/// Shows the progress of a search and lets the observer stop it.
struct Waiting<'a> {
    observer: &'a dyn Observer,
    /// The number of steps of the current phase of the search, which identifies it, and its meter.
    shown: Option<(u64, Box<dyn Meter>)>,
}

impl Waiting<'_> {
    fn see(&mut self, done: u64, total: u64) -> Result<(), BoxError> {
        self.observer.check()?;
        if done >= total {
            self.shown = None;
            return Ok(());
        }
        if self.shown.as_ref().is_none_or(|(of, _)| *of != total) {
            self.shown = None;
            let meter = self.observer.begin("searching", Unit::Count, Some(total));
            self.shown = Some((total, meter));
        }
        if let Some((_, meter)) = &self.shown {
            meter.set(done);
        }
        Ok(())
    }
}
