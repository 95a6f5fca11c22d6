//! `forebay plan --study`: every combination of two tiers under a range of budgets, for each trace
//! by itself.

pub mod show;

use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use forebay_plan::{
    Catalogue, Combination, CostModel, Hierarchy, HitCounts, Profile, ProfileBuilder,
    ProfileOptions, StudyPoint, WritePolicy, full_usd,
};
use serde::{Deserialize, Serialize};

use super::{Args, Policy};
use crate::args::TraceArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::progress::Unit;
use crate::reading::read_traces;

const POLICIES: [Policy; 2] = [Policy::WriteThrough, Policy::WriteBack];

/// A trace that was studied.
#[derive(Serialize, Deserialize)]
struct Studied {
    /// What results it belongs to: they can be gone on with only if nothing else was asked.
    asked: Asked,
    trace: String,
    requests: u64,
    accesses: u64,
    footprint_bytes: u64,
    /// What DRAM for all data would cost.
    full_cost_usd: f64,
    /// How long the exhaustive searches and Cydonia's took, of both policies.
    search_s: f64,
    /// By policy, combination and budget; none where a budget buys nothing.
    points: Vec<Vec<Vec<Option<StudyPoint>>>>,
}

/// What decides about the results of a trace.
#[derive(Serialize, Deserialize, PartialEq, Eq, Clone)]
struct Asked {
    /// Of Forebay.
    version: String,
    path: String,
    bytes: u64,
    /// When the file was changed last, in nanoseconds since 1970.
    modified_ns: u128,
    /// Every option of reading traces.
    reading: String,
    budgets: u64,
    evaluations: u64,
    block_size: u64,
    sample: Option<String>,
    metadata: Vec<u64>,
    /// The memory that budgets are shares of the price of.
    reference: String,
    /// The devices of each combination, with their prices and latencies.
    hierarchies: Vec<String>,
}

/// The study of several traces.
pub struct Study<'a> {
    args: &'a Args,
    combinations: Vec<Combination>,
    traces: Vec<Studied>,
}

impl<'a> Study<'a> {
    /// Studies trace after trace; those that the file of `--resume` has are taken from there.
    pub fn new(
        args: &'a Args,
        catalogue: &Catalogue,
        combinations: Vec<Combination>,
        ctx: &Context,
    ) -> Result<Self, CliError> {
        let combinations: Vec<Combination> =
            combinations.into_iter().filter(|c| c.tiers.len() == 2).collect();
        if combinations.is_empty() {
            let what = "a study is of combinations of two tiers, and there are none";
            return Err(CliError::usage(what).next("name two devices with --tiers"));
        }
        let mut study = Self { args, combinations, traces: Vec::new() };
        let mut kept = args.resume.as_deref().map_or(Ok(Vec::new()), kept)?;
        for path in &args.traces.traces {
            let asked = study.asked(path, catalogue)?;
            let there = kept.iter().position(|studied| studied.asked == asked);
            if let Some(at) = there {
                ctx.note(format_args!("{}: taken from --resume", path.display()));
                study.traces.push(kept.swap_remove(at));
                continue;
            }
            let studied = study.study(path, asked, catalogue, ctx)?;
            if let Some(file) = &args.resume {
                append(file, &studied)?;
            }
            study.traces.push(studied);
        }
        Ok(study)
    }

    fn cost(&self) -> CostModel {
        CostModel {
            metadata: self.args.metadata,
            ..CostModel::with_block_size(self.args.block_size)
        }
    }

    /// Shares of what DRAM for all data would cost, evenly spaced up to all of it.
    fn scaled(&self) -> Vec<f64> {
        let count = self.args.study.unwrap_or_default();
        (1..=count).map(|n| n as f64 / count as f64).collect()
    }

    fn hierarchies(
        &self,
        catalogue: &Catalogue,
        policy: WritePolicy,
    ) -> Result<Vec<Hierarchy>, CliError> {
        let new = |c| Hierarchy::new(catalogue, c, policy);
        Ok(self.combinations.iter().map(new).collect::<Result<_, _>>()?)
    }

    fn asked(&self, path: &Path, catalogue: &Catalogue) -> Result<Asked, CliError> {
        let args = self.args;
        let failed = |error| CliError::file("cannot read", path, error);
        let file = std::fs::metadata(path).map_err(failed)?;
        let modified = file.modified().map_err(failed)?;
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let reading = TraceArgs { traces: Vec::new(), ..args.traces.clone() };
        let hierarchies = self.hierarchies(catalogue, WritePolicy::WriteThrough)?;
        Ok(Asked {
            version: env!("CARGO_PKG_VERSION").into(),
            path: path.display().to_string(),
            bytes: file.len(),
            modified_ns: modified.as_nanos(),
            reading: format!("{reading:?}"),
            budgets: args.study.unwrap_or_default(),
            evaluations: args.cydonia().evaluations_max,
            block_size: args.block_size.bytes(),
            sample: args.sample.map(|rate| rate.to_string()),
            metadata: (0..2).map(|tier| args.metadata.of(tier)).collect(),
            reference: format!("{:?}", catalogue.reference_device()),
            hierarchies: hierarchies.iter().map(|h| format!("{h:?}")).collect(),
        })
    }

    fn study(
        &self,
        path: &Path,
        asked: Asked,
        catalogue: &Catalogue,
        ctx: &Context,
    ) -> Result<Studied, CliError> {
        let mut builder = ProfileBuilder::new(ProfileOptions {
            block_size: self.args.block_size,
            sample_rate: self.args.sample.unwrap_or(1.0),
            write_back: true,
        })?;
        let one = TraceArgs { traces: vec![path.to_path_buf()], ..self.args.traces.clone() };
        let trace = read_traces(&one, ctx, |request| Ok(builder.add(request)?))?;
        let profile = builder.finish()?;
        let started = Instant::now();
        let points = self.search(path, &profile, catalogue, ctx)?;
        Ok(Studied {
            asked,
            trace: path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            requests: trace.requests,
            accesses: profile.reads() + profile.writes(),
            footprint_bytes: profile.footprint_blocks() * self.args.block_size.bytes(),
            full_cost_usd: full_usd(&profile, catalogue, &self.cost()),
            search_s: started.elapsed().as_secs_f64(),
            points,
        })
    }

    fn search(
        &self,
        path: &Path,
        profile: &Profile,
        catalogue: &Catalogue,
        ctx: &Context,
    ) -> Result<Vec<Vec<Vec<Option<StudyPoint>>>>, CliError> {
        let (cost, scaled) = (self.cost(), self.scaled());
        let how = self.args.cydonia();
        // A hair more, so that rounding does not cost a budget its last unit.
        let full_usd = full_usd(profile, catalogue, &cost) * (1.0 + 1e-9);
        let searches = POLICIES.len() * self.combinations.len() * scaled.len();
        let name = format!("searching {}", path.display());
        let progress = ctx.progress(&name, Unit::Count, Some(searches as u64));
        let mut points = Vec::new();
        for policy in POLICIES {
            let policy = match policy {
                Policy::WriteThrough => WritePolicy::WriteThrough,
                Policy::WriteBack => WritePolicy::WriteBack,
            };
            let mut by_combination = Vec::new();
            for hierarchy in self.hierarchies(catalogue, policy)? {
                let mut by_budget = Vec::new();
                for share in &scaled {
                    ctx.check()?;
                    let usd = share * full_usd;
                    by_budget.push(StudyPoint::search(profile, &hierarchy, &cost, usd, how)?);
                    progress.inc(1);
                }
                by_combination.push(by_budget);
            }
            points.push(by_combination);
        }
        progress.finish();
        Ok(points)
    }

    /// All points of one policy and combination.
    fn points(&self, policy: usize, combination: usize) -> impl Iterator<Item = &StudyPoint> {
        self.traces.iter().flat_map(move |t| t.points[policy][combination].iter().flatten())
    }

    /// How long the searches took.
    fn search_time(&self) -> Duration {
        Duration::from_secs_f64(self.traces.iter().map(|t| t.search_s).sum())
    }
}

/// The traces that a file of `--resume` has; none if it is not there.
fn kept(file: &Path) -> Result<Vec<Studied>, CliError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CliError::file("cannot read", file, error)),
    };
    let mut kept = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(studied) => kept.push(studied),
            // A run that was ended while it wrote leaves half a line.
            Err(_) if number + 1 == text.lines().count() && !text.ends_with('\n') => {}
            Err(error) => {
                let what = format_args!("{}, line {}: {error}", file.display(), number + 1);
                return Err(CliError::usage(what)
                    .kept("the file is as it was")
                    .next("--resume names a file that --resume has written"));
            }
        }
    }
    Ok(kept)
}

/// Adds a trace to the file of `--resume`.
fn append(file: &Path, studied: &Studied) -> Result<(), CliError> {
    use std::io::{Read, Seek, SeekFrom, Write};
    let failed = |error| CliError::file("cannot write", file, error);
    let mut line = serde_json::to_vec(studied)?;
    line.push(b'\n');
    let mut options = std::fs::OpenOptions::new();
    let mut out =
        options.read(true).write(true).create(true).truncate(false).open(file).map_err(failed)?;
    // Half a line of a run that was ended is written over.
    let mut text = Vec::new();
    out.read_to_end(&mut text).map_err(failed)?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    out.set_len(whole as u64).map_err(failed)?;
    out.seek(SeekFrom::Start(whole as u64)).map_err(failed)?;
    out.write_all(&line).and_then(|()| out.sync_data()).map_err(failed)
}
