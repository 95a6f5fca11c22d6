//! A soak: plays all trials in turn for hours. It can be ended at any time and resumed, and keeps
//! the failures that it finds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forebay_adversary::campaign::{cpu_seconds, sweep_until};
use forebay_adversary::trials::Trial;
use serde::{Deserialize, Serialize};

use super::single::shrunk;

/// The arguments of a soak.
pub struct Soak<'a> {
    pub jobs: usize,
    pub kinds: Option<&'a str>,
    pub hours: f64,
    pub first: u64,
    pub directory: &'a Path,
}

/// Progress of a soak, stored as `soak.json` in its directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// Version of the program, which must not change.
    version: String,
    first_seed: u64,
    seconds: f64,
    cpu_seconds: f64,
    trials: BTreeMap<String, Line>,
    coverage: BTreeMap<String, u64>,
    /// The failures: trial, number, and description.
    found: Vec<(String, u64, String)>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Line {
    /// The next number.
    next: u64,
    runs: u64,
    cuts: u64,
    replies: u64,
    cpu_seconds: f64,
}

/// Processor time of a slice; the rate of earlier runs determines how many runs it has.
const SLICE_SECONDS: f64 = 10.0;
/// Number of failures after which a soak ends.
const FOUND_MAX: usize = 8;

/// Identifies the program. Only runs of the same program can be added up, because a number then
/// means the same run.
fn version() -> String {
    let sum = |bytes: Vec<u8>| crc32c::crc32c(&bytes);
    let program = std::env::current_exe().ok().and_then(|path| fs::read(path).ok()).map(sum);
    format!("{} {:08x}", env!("CARGO_PKG_VERSION"), program.unwrap_or(0))
}

pub fn soak(asked: &Soak<'_>) -> Result<(), String> {
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed))
        .map_err(|e| format!("cannot install a handler for Ctrl-C: {e}"))?;
    let trials = asked.kinds.map_or_else(|| Ok(Trial::all()), Trial::named)?;
    let io = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(asked.directory).map_err(|e| io(asked.directory, e))?;
    let file = asked.directory.join("soak.json");
    let mut progress = load(&file, asked.first)?;
    let limit = asked.hours * 3600.0;
    println!("state in {}", asked.directory.display());
    while progress.seconds < limit && !stop.load(Ordering::Relaxed) {
        for trial in &trials {
            if progress.seconds >= limit || stop.load(Ordering::Relaxed) {
                break;
            }
            slice(asked.jobs, trial, &mut progress, stop, asked.directory)?;
            save(&file, &progress)?;
            if progress.found.len() >= FOUND_MAX {
                print(&progress);
                return Err(format!("{} violations; the soak stops here", progress.found.len()));
            }
        }
        say_rates(&progress, limit);
    }
    print(&progress);
    if progress.seconds < limit {
        let (hours, file) = (progress.seconds / 3600.0, file.display());
        println!("ended after {hours:.2} h; the same command resumes from {file}");
    }
    match progress.found.len() {
        0 => Ok(()),
        n => Err(format!("{n} violations")),
    }
}

fn load(file: &Path, first: u64) -> Result<Progress, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let version = version();
            return Ok(Progress { version, first_seed: first, ..Progress::default() });
        }
        Err(e) => return Err(format!("{}: {e}", file.display())),
    };
    let progress: Progress =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    if progress.version != version() {
        return Err(format!(
            "{} is from another build ({}, this is {}): its runs cannot be resumed; choose another \
             directory with --state",
            file.display(),
            progress.version,
            version()
        ));
    }
    let (hours, runs) = (progress.seconds / 3600.0, total(&progress).runs);
    println!("resuming after {hours:.2} h and {runs} runs");
    Ok(progress)
}

/// Writes a new file and then renames it, so that a complete file always exists.
fn save(file: &Path, progress: &Progress) -> Result<(), String> {
    let text = serde_json::to_string_pretty(progress).map_err(|e| e.to_string())?;
    let new = file.with_extension("json.new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|e| format!("{}: {e}", file.display()))
}

/// Plays a trial for some seconds.
fn slice(
    jobs: usize,
    trial: &Trial,
    progress: &mut Progress,
    stop: &AtomicBool,
    directory: &Path,
) -> Result<(), String> {
    let name = trial.name();
    let first = progress.first_seed;
    let line =
        progress.trials.entry(name.clone()).or_insert(Line { next: first, ..Line::default() });
    let rate = if line.runs == 0 { 0.0 } else { line.runs as f64 / line.cpu_seconds.max(0.001) };
    let count = ((rate * SLICE_SECONDS) as u64).max(trial.slice());
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let (tally, next) = sweep_until(jobs, line.next..line.next + count, stop, |n, tally| {
        trial.play(n, tally);
    });
    let spent = cpu_seconds() - cpu;
    line.next = next;
    line.runs += tally.runs;
    line.cuts += tally.cuts;
    line.replies += tally.replies;
    line.cpu_seconds += spent;
    progress.seconds += start.elapsed().as_secs_f64();
    progress.cpu_seconds += spent;
    for (counter, n) in tally.coverage.iter() {
        *progress.coverage.entry(counter.into()).or_default() += n;
    }
    for (n, how) in &tally.failures {
        println!("FOUND by {name} seed {n}: {how}");
        progress.found.push((name.clone(), *n, how.clone()));
        if let Some(path) = keep(trial, *n, directory)? {
            println!("  shrunk: forebay-adversary replay {}", path.display());
        }
    }
    Ok(())
}

/// Shrinks a failing run and writes it to a file.
fn keep(trial: &Trial, seed: u64, directory: &Path) -> Result<Option<PathBuf>, String> {
    let Trial::Random(kind) = trial else { return Ok(None) };
    let tape = shrunk(kind, seed)?;
    let path = directory.join(format!("{}-{seed}.tape", kind.full_name()));
    fs::write(&path, tape.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(path))
}

fn total(progress: &Progress) -> Line {
    progress.trials.values().fold(Line::default(), |sum, line| Line {
        next: 0,
        runs: sum.runs + line.runs,
        cuts: sum.cuts + line.cuts,
        replies: sum.replies + line.replies,
        cpu_seconds: sum.cpu_seconds + line.cpu_seconds,
    })
}

fn say_rates(progress: &Progress, limit: f64) {
    let all = total(progress);
    let seconds = progress.seconds.max(0.001);
    println!(
        "{:.2} of {:.2} h: {} runs ({:.0}/s), {} cuts ({:.0}/s), {} replies, {} violations",
        seconds / 3600.0,
        limit / 3600.0,
        all.runs,
        all.runs as f64 / seconds,
        all.cuts,
        all.cuts as f64 / seconds,
        all.replies,
        progress.found.len()
    );
}

fn print(progress: &Progress) {
    println!("{:<24} {:>10} {:>11} {:>11} {:>9}", "trial", "runs", "cuts", "replies", "CPU s");
    for (name, line) in progress.trials.iter().chain([(&"all".to_string(), &total(progress))]) {
        let Line { runs, cuts, replies, cpu_seconds, .. } = line;
        println!("{name:<24} {runs:>10} {cuts:>11} {replies:>11} {cpu_seconds:>9.0}");
    }
    println!("situations that occurred:");
    for (counter, n) in &progress.coverage {
        println!("  {n:>12} {counter}");
    }
    println!(
        "{:.2} h, {:.2} h of CPU, {} violations",
        progress.seconds / 3600.0,
        progress.cpu_seconds / 3600.0,
        progress.found.len()
    );
    for (name, seed, how) in &progress.found {
        println!("  {name} seed {seed}: {how}");
    }
}
