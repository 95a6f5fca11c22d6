//! Which shape of cache wins? Every combination of two tiers, with a range of budgets, for each
//! trace alone (Bhandari 2024, figures 3.4 to 3.6).

mod document;
mod resume;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use forebay_plan::{
    Catalogue, Combination, CostModel, CydoniaOptions, Hierarchy, HitCounts, Profile,
    ProfileBuilder, ProfileOptions, StudyPoint, WritePolicy, full_usd,
};
use serde::{Deserialize, Serialize};

use crate::{AnalysisError, Note, Observer, Traces, Unit};
pub use document::{Case, Document, OfCombination, OfPolicy, OfTrace, Row, Winners};

/// The policies to study, in the order of the answer.
const POLICIES: [WritePolicy; 2] = [WritePolicy::WriteThrough, WritePolicy::WriteBack];

/// Which shape of cache wins.
#[derive(Clone, Debug)]
pub struct Question {
    /// The traces; each is studied alone.
    pub traces: Traces,
    /// The devices.
    pub catalogue: Catalogue,
    /// The allowed combinations; only those of two tiers are studied.
    pub combinations: Vec<Combination>,
    /// Number of budgets, evenly spaced up to the cost of DRAM for all data.
    pub budgets: u64,
    /// How sizes translate to dollars.
    pub cost: CostModel,
    /// How Cydonia searches, for comparison with the exhaustive search.
    pub cydonia: CydoniaOptions,
    /// The share of the blocks to sample; `None`: all blocks.
    pub sample_rate: Option<f64>,
    /// A file that keeps the results of finished traces: results in it are reused, and new results
    /// are appended.
    pub resume: Option<PathBuf>,
}

/// The study of several traces.
#[derive(Debug)]
pub struct Answer {
    /// Combinations of two tiers.
    pub combinations: Vec<Combination>,
    /// The budgets, as fractions of the cost of DRAM for all data.
    pub scaled_budgets: Vec<f64>,
    /// Largest number of evaluations that Cydonia could use.
    pub evaluations_max: u64,
    /// The traces, in the order of the files.
    traces: Vec<Studied>,
}

/// A trace that was studied.
#[derive(Serialize, Deserialize, Debug)]
struct Studied {
    /// The question that the results answer: they can be reused only for an equal question.
    asked: Asked,
    trace: String,
    requests: u64,
    accesses: u64,
    footprint_bytes: u64,
    /// Cost of DRAM for all data of the trace.
    full_cost_usd: f64,
    /// Seconds that the exhaustive searches and Cydonia's took, for both policies.
    search_s: f64,
    /// The points by policy, combination and budget; `None` if the budget buys nothing.
    points: Vec<Vec<Vec<Option<StudyPoint>>>>,
}

/// Everything that determines the results of a trace.
#[derive(Serialize, Deserialize, PartialEq, Eq, Clone, Debug)]
struct Asked {
    /// Forebay's version.
    version: String,
    path: String,
    bytes: u64,
    /// When the file was last changed, in nanoseconds since 1970.
    modified_ns: u128,
    /// All options of reading traces.
    reading: String,
    budgets: u64,
    evaluations: u64,
    block_size: u64,
    sample: Option<String>,
    metadata: Vec<u64>,
    /// The memory whose price is the basis of the budgets.
    reference: String,
    /// The devices of each combination, with their prices and latencies.
    hierarchies: Vec<String>,
}

impl Question {
    /// Studies one trace after another; results in the file [`resume`](Self::resume) are reused.
    ///
    /// # Errors
    /// If no combination has two tiers, a trace cannot be read, the file to resume from is not that
    /// of a study or cannot be written, or the observer stops the work. The file then contains the
    /// traces that are finished.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        let two = self.combinations.iter().filter(|c| c.tiers.len() == 2);
        let combinations: Vec<Combination> = two.cloned().collect();
        if combinations.is_empty() {
            return Err(AnalysisError::NotTwoTiers);
        }
        let count = self.budgets;
        let mut answer = Answer {
            combinations,
            scaled_budgets: (1..=count).map(|n| n as f64 / count as f64).collect(),
            evaluations_max: self.cydonia.evaluations_max,
            traces: Vec::new(),
        };
        let mut kept = self.resume.as_deref().map_or(Ok(Vec::new()), resume::kept)?;
        for path in &self.traces.files {
            let asked = self.asked(path, &answer)?;
            let there = kept.iter().position(|studied| studied.asked == asked);
            if let Some(at) = there {
                observer.note(Note::Resumed(path.clone()));
                answer.traces.push(kept.swap_remove(at));
                continue;
            }
            let studied = self.study(path, asked, &answer, observer)?;
            if let Some(file) = &self.resume {
                resume::append(file, &studied)?;
            }
            answer.traces.push(studied);
        }
        Ok(answer)
    }

    fn hierarchies(
        &self,
        answer: &Answer,
        policy: WritePolicy,
    ) -> Result<Vec<Hierarchy>, AnalysisError> {
        let new = |c| Hierarchy::new(&self.catalogue, c, policy);
        Ok(answer.combinations.iter().map(new).collect::<Result<_, _>>()?)
    }

    fn asked(&self, path: &Path, answer: &Answer) -> Result<Asked, AnalysisError> {
        let failed = |source| AnalysisError::File { what: "read", path: path.into(), source };
        let file = std::fs::metadata(path).map_err(failed)?;
        let modified = file.modified().map_err(failed)?;
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let hierarchies = self.hierarchies(answer, WritePolicy::WriteThrough)?;
        Ok(Asked {
            version: env!("CARGO_PKG_VERSION").into(),
            path: path.display().to_string(),
            bytes: file.len(),
            modified_ns: modified.as_nanos(),
            reading: format!("{:?}", self.traces.options),
            budgets: self.budgets,
            evaluations: self.cydonia.evaluations_max,
            block_size: self.cost.block_size.bytes(),
            sample: self.sample_rate.map(|rate| rate.to_string()),
            metadata: (0..2).map(|tier| self.cost.metadata.bytes_per_block(tier)).collect(),
            reference: format!("{:?}", self.catalogue.reference_device()),
            hierarchies: hierarchies.iter().map(|h| format!("{h:?}")).collect(),
        })
    }

    fn study(
        &self,
        path: &Path,
        asked: Asked,
        answer: &Answer,
        observer: &dyn Observer,
    ) -> Result<Studied, AnalysisError> {
        let mut builder = ProfileBuilder::new(ProfileOptions {
            block_size: self.cost.block_size,
            sample_rate: self.sample_rate.unwrap_or(1.0),
            write_back: true,
        })?;
        let one = Traces { files: vec![path.to_path_buf()], options: self.traces.options.clone() };
        let trace = one
            .read(observer, |request| -> Result<(), AnalysisError> { Ok(builder.add(request)?) })?;
        let profile = builder.finish()?;
        let started = Instant::now();
        let points = self.search(path, &profile, answer, observer)?;
        Ok(Studied {
            asked,
            trace: path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            requests: trace.requests,
            accesses: profile.reads() + profile.writes(),
            footprint_bytes: profile.footprint_blocks() * self.cost.block_size.bytes(),
            full_cost_usd: full_usd(&profile, &self.catalogue, &self.cost),
            search_s: started.elapsed().as_secs_f64(),
            points,
        })
    }

    fn search(
        &self,
        path: &Path,
        profile: &Profile,
        answer: &Answer,
        observer: &dyn Observer,
    ) -> Result<Vec<Vec<Vec<Option<StudyPoint>>>>, AnalysisError> {
        // Slightly more, so that rounding does not cost a budget its last unit.
        let full_usd = full_usd(profile, &self.catalogue, &self.cost) * (1.0 + 1e-9);
        let budgets = &answer.scaled_budgets;
        let searches = POLICIES.len() * answer.combinations.len() * budgets.len();
        let name = format!("searching {}", path.display());
        let meter = observer.begin(&name, Unit::Count, Some(searches as u64));
        let mut points = Vec::new();
        for policy in POLICIES {
            let mut by_combination = Vec::new();
            for hierarchy in self.hierarchies(answer, policy)? {
                let mut by_budget = Vec::new();
                for share in budgets {
                    observer.check()?;
                    let (usd, how) = (share * full_usd, self.cydonia);
                    by_budget.push(StudyPoint::search(profile, &hierarchy, &self.cost, usd, how)?);
                    meter.inc(1);
                }
                by_combination.push(by_budget);
            }
            points.push(by_combination);
        }
        Ok(points)
    }
}

impl Answer {
    /// All points of one policy and combination.
    fn points(&self, policy: usize, combination: usize) -> impl Iterator<Item = &StudyPoint> {
        self.traces.iter().flat_map(move |t| t.points[policy][combination].iter().flatten())
    }

    /// The total time of the searches.
    fn search_time(&self) -> Duration {
        Duration::from_secs_f64(self.traces.iter().map(|t| t.search_s).sum())
    }
}
