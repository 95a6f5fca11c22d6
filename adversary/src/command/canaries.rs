//! Plants one bug after another in the cache; the adversary must find each of them.

use forebay_adversary::campaign::cpu_seconds;
use forebay_adversary::canary::{Hunt, first_seed, hunt, kind_for};
use forebay_flash::sabotage::{Bug, Sabotage};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn canaries(
    jobs: usize,
    first: Option<u64>,
    seeds_max: u64,
    only: Option<&str>,
) -> Result<(), String> {
    if !Sabotage::POSSIBLE {
        return Err("a release build contains no planted bugs: build without `--release`".into());
    }
    let bugs: Vec<Bug> = (Bug::ALL.into_iter())
        .filter(|bug| only.is_none_or(|only| format!("{bug:?}") == only))
        .collect();
    let cpu = cpu_seconds();
    let next = AtomicUsize::new(0);
    let hunts: Mutex<Vec<Result<Hunt, String>>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(&bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let first = first.unwrap_or(first_seed(bug));
                    let ended = hunt(bug, kind_for(bug), first..first + seeds_max);
                    hunts.lock().expect("no hunt panics").push(ended);
                }
            });
        }
    });
    let mut missed = Vec::new();
    println!("{:<26} {:<14} {:>8} {:>8}  how it shows", "bug", "kind", "cuts", "seed");
    let hunts = hunts.into_inner().expect("no hunt panics");
    let mut hunts = hunts.into_iter().collect::<Result<Vec<Hunt>, String>>()?;
    hunts.sort_by_key(|h| bugs.iter().position(|&b| b == h.bug));
    for h in hunts {
        let bug = format!("{:?}", h.bug);
        match h.found {
            Some((seed, how)) => {
                let how: String = how.chars().take(120).collect();
                println!("{bug:<26} {:<14} {:>8} {seed:>8}  {how}", h.kind, h.cuts);
            }
            None => {
                println!("{bug:<26} {:<14} {:>8} {:>8}  NOT FOUND", h.kind, h.cuts, "");
                missed.push(bug);
            }
        }
    }
    println!("{:.0} s of CPU", cpu_seconds() - cpu);
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}
