//! The tests that every change must pass.

use forebay_adversary::campaign::{Tally, sweep};
use forebay_adversary::coverage::{Coverage, FLOORS};
use forebay_adversary::exhaustive::{CASES, CASES_USUAL, play};
use forebay_adversary::kind::{Kind, injected};
use forebay_adversary::run::Plan;
use forebay_adversary::{manage, model};
use forebay_device::memory::Fault;

use super::single::shrunk;
use super::table::{Row, head, measure};

/// Number of seeds for each kind of random run.
const SEEDS: [(&str, u64); 67] = [
    ("dram", 220),
    ("back", 840),
    ("through", 700),
    ("dram-switch", 120),
    ("switch", 420),
    ("switch-errors", 150),
    ("dram-errors", 120),
    ("back-errors", 350),
    ("through-errors", 280),
    ("dram-unreadable", 120),
    ("back-unreadable", 350),
    ("through-unreadable", 180),
    ("back-media", 1_000),
    ("through-media", 500),
    ("through-lost", 350),
    ("back-slots", 560),
    ("through-slots", 280),
    ("switch-slots", 560),
    ("back-slots-errors", 180),
    ("through-slots-errors", 120),
    ("back-slots-unreadable", 800),
    ("back-slots-media", 700),
    ("through-slots-media", 180),
    ("through-slots-lost", 180),
    ("back-others", 220),
    ("back-full", 220),
    ("through-full", 120),
    ("back-slots-full", 150),
    ("through-slots-full", 100),
    ("back-full-older", 100),
    ("back-slots-full-older", 220),
    ("back-gone", 150),
    ("through-gone", 150),
    ("through-slots-gone", 100),
    ("back-outages", 420),
    ("back-slots-outages", 220),
    ("switch-outages", 220),
    ("through-syncs", 150),
    ("through-slots-syncs", 100),
    ("back-syncs-others", 220),
    ("back-slots-syncs-others", 150),
    ("back-late", 120),
    ("back-slots-late", 150),
    ("back-slots-late-errors", 100),
    ("back-hung", 120),
    ("back-slots-hung", 150),
    ("back-hung-two", 150),
    ("back-slots-hung-two", 150),
    ("through-others", 150),
    ("switch-others", 150),
    ("back-slots-others", 150),
    ("through-slots-others", 100),
    ("back-older", 220),
    ("through-older", 150),
    ("back-slots-older", 150),
    ("through-slots-older", 100),
    ("switch-older", 150),
    ("back-older-errors", 150),
    ("back-older-accepted", 150),
    ("back-slots-older-accepted", 100),
    ("etica", 420),
    ("etica-errors", 150),
    ("etica-media", 220),
    ("etica-others", 120),
    ("back-superblock", 220),
    ("through-superblock", 120),
    ("back-slots-superblock", 150),
];
/// Faults with which a flash device silently corrupts data.
const LIES: [Fault; 5] = [
    Fault::LostWrite,
    Fault::MisdirectedWrite,
    Fault::MisdirectedRead,
    Fault::ByteRot,
    Fault::LatentError,
];
/// Number of runs against an array of bytes.
const AGAINST_ARRAY: u64 = 200;
/// Number of seeds that are run twice.
const TWICE: u64 = 6;

pub fn ci(jobs: usize) -> Result<(), String> {
    println!("{}", head());
    let (mut rows, mut digests) = (Vec::new(), Vec::new());
    for (name, seeds) in SEEDS {
        let kind = Kind::find(name)?;
        let of = |seeds| sweep(jobs, seeds, |seed, tally| kind.tally(seed, tally));
        rows.push(measure(&format!("random: {name}"), &format!("0..{seeds}"), || {
            let (mut first, second) = (of(0..TWICE), of(TWICE..2 * TWICE));
            digests.push([first.digest, second.digest]);
            first.merge(&second);
            first.merge(&of(2 * TWICE..seeds));
            first
        }));
        explain(&kind, &rows[rows.len() - 1].tally)?;
    }
    rows.push(usual_cases(jobs, Plan::CUTS));
    rows.push(other_cases(jobs, Plan::CUTS));
    rows.push(managed(jobs));
    rows.push(against_array(jobs, 0, AGAINST_ARRAY));
    finish(&rows)?;
    let all = together(&rows);
    same_again(jobs, &digests)?;
    enough(&all)
}

/// Checks that equal seeds cause equal effects, regardless of the number of threads. For each kind,
/// `digests` contains the digest of the first seeds and that of the same number of other seeds.
fn same_again(jobs: usize, digests: &[[u64; 2]]) -> Result<(), String> {
    let again = sweep(jobs, 0..SEEDS.len() as u64, |n, tally| {
        let (name, _) = SEEDS[n as usize];
        let [once, others] = digests[n as usize];
        let kind = Kind::find(name).expect("it was found before");
        let twice = sweep(1, 0..TWICE, |seed, tally| kind.tally(seed, tally)).digest;
        if once != twice {
            let how = format!("{name}: seeds 0..{TWICE} gave {once:016x}, then {twice:016x}");
            tally.failures.push((n, how));
        } else if once == others {
            tally.failures.push((n, format!("{name}: the digest does not depend on the seed")));
        }
    });
    if let Some((_, how)) = again.failures.into_iter().next() {
        return Err(how);
    }
    println!("determinism: {TWICE} seeds of each kind, run twice, had the same effects");
    Ok(())
}

/// Checks that every situation to be tested occurred often enough.
fn enough(all: &Tally) -> Result<(), String> {
    let missing = all.coverage.missing(FLOORS);
    for (name, met, least) in &missing {
        println!("too rare: {name} occurred {met} times, expected at least {least}");
    }
    match missing.len() {
        0 => Ok(()),
        n => Err(format!("{n} situations occurred too rarely for the result to mean much")),
    }
}

/// Tests the fast path against an array of bytes.
fn against_array(jobs: usize, first: u64, seeds: u64) -> Row {
    let name = format!("{} requests against an array", seeds * model::REQUESTS);
    let row = measure(&name, &format!("{first}..{}", first + seeds), || {
        sweep(jobs, first..first + seeds, model::tally)
    });
    for (seed, how) in &row.tally.failures {
        println!("  seed {seed}: {how}");
    }
    row
}

/// Tests the operator's operations, with a failure or a cut at every device operation.
fn managed(jobs: usize) -> Row {
    let row =
        measure("management: every device operation", &format!("all {}", manage::CASES), || {
            sweep(jobs, 0..manage::CASES, |case, tally| manage::play(case, Plan::CUTS, tally))
        });
    for (case, how) in &row.tally.failures {
        println!("  case {case}: {how}");
    }
    row
}

pub fn manage(jobs: usize) -> Result<(), String> {
    println!("{}", head());
    finish(&[managed(jobs)])
}

/// `ci` plays every 101st case of other relations, write policies and admissions. The number is
/// prime, so that each kind of cache gets different pairs.
const OTHERS: u64 = 101;

fn usual_cases(jobs: usize, plan: Plan) -> Row {
    cases("exhaustive: pairs of operations", jobs, CASES_USUAL, |n| n, plan)
}

fn other_cases(jobs: usize, plan: Plan) -> Row {
    let count = (CASES - CASES_USUAL) / OTHERS;
    cases("exhaustive: pairs, all combinations", jobs, count, |n| CASES_USUAL + n * OTHERS, plan)
}

fn all_cases(jobs: usize, plan: Plan) -> Row {
    cases("exhaustive: pairs, all combinations", jobs, CASES, |n| n, plan)
}

fn cases(
    name: &str,
    jobs: usize,
    count: u64,
    number: impl Fn(u64) -> u64 + Sync,
    plan: Plan,
) -> Row {
    let row = measure(name, &format!("all {count}"), || {
        sweep(jobs, 0..count, |n, tally| play(number(n), plan, tally))
    });
    for (case, how) in &row.tally.failures {
        println!("  case {case}: {how}");
    }
    row
}

pub fn exhaustive(jobs: usize, case: Option<u64>, bug: Option<&str>) -> Result<(), String> {
    let mut plan = match bug {
        Some(bug) => Kind::find(&format!("back+{bug}"))?.plan,
        None => Plan::CUTS,
    };
    let Some(case) = case.filter(|&n| n < CASES) else {
        println!("{}", head());
        return finish(&[all_cases(jobs, plan)]);
    };
    let mut tally = Tally::default();
    plan.trace = Some(|line| println!("{line}"));
    play(case, plan, &mut tally);
    match tally.failures.pop() {
        Some((_, how)) => Err(how),
        None => Ok(()),
    }
}

/// Shrinks the first failure, if any, and writes it to a file.
fn explain(kind: &Kind, tally: &Tally) -> Result<(), String> {
    for (seed, failure) in &tally.failures {
        println!("  {} seed {seed}: {failure}", kind.name);
    }
    let Some((seed, _)) = tally.failures.first() else { return Ok(()) };
    let tape = shrunk(kind, *seed)?;
    let path = std::env::temp_dir().join(format!("forebay-{}-{seed}.tape", kind.full_name()));
    std::fs::write(&path, tape.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
    println!(
        "  shrunk to {} choices: forebay-adversary replay {}",
        tape.choices.len(),
        path.display()
    );
    Ok(())
}

fn together(rows: &[Row]) -> Tally {
    let mut all = Tally::default();
    rows.iter().for_each(|r| all.merge(&r.tally));
    all
}

fn finish(rows: &[Row]) -> Result<(), String> {
    let all = together(rows);
    println!("situations that occurred:");
    for (name, n) in all.coverage.iter() {
        println!("  {n:>12} {name}");
    }
    let lies: u64 = LIES.iter().map(|&fault| all.coverage.get(injected(fault))).sum();
    if lies > 0 {
        let media = rows.iter().filter(|r| r.test.ends_with("-media"));
        let media = media.fold(Coverage::default(), |mut sum, r| {
            sum.merge(&r.tally.coverage);
            sum
        });
        println!(
            "the flash medium returned bad data {lies} times: {} requests and {} starts failed, \
             and all other cases were masked; wrong data was served {} times",
            media.get("requests failed"),
            media.get("starts refused"),
            rows.iter()
                .filter(|r| r.test.ends_with("-media"))
                .map(|r| r.tally.failures.len())
                .sum::<usize>(),
        );
    }
    let cpu: f64 = rows.iter().map(|r| r.cpu_seconds).sum();
    println!("{} runs, {} cuts, {cpu:.0} s of CPU, digest {:016x}", all.runs, all.cuts, all.digest);
    match all.failures.len() {
        0 => Ok(()),
        n => Err(format!("{n} violations")),
    }
}
