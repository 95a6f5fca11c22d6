//! Measures how long a hit takes while regions are sealed, reclaimed and destaged, compared with an engine that does
//! nothing else: `cargo run --release -p forebay-engine --example hits_under_load [slots|log] [rounds] [directory]
//! [apart]`.
//!
//! One session reads blocks that are in memory, one at a time. In every second phase, another session writes blocks
//! at random over four times the size of flash, 16 at a time and 8,000 a second, so that flash, which is full,
//! constantly has to make room. With `apart`, it writes to another engine in the same process: the reads then compete
//! with the writes only for processors, not for the cache. Prints percentiles of the reads in both kinds of phases,
//! which alternate, and their ratio.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, Session, Submission};

const BLOCK: u64 = 4096;
/// Blocks that are read: the first of the volume.
const HOT: u64 = 1000;
/// Blocks of the volume.
const BLOCKS: u64 = 512 << 10;
const WRITES_A_SECOND: u64 = 8000;
const PHASE: Duration = Duration::from_secs(4);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let layout = arguments.first().map_or("slots", String::as_str);
    let rounds = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let base = arguments.get(2).map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(base)?;
    let engine = open(directory.path(), "read", layout)?;
    let other = match arguments.get(3).is_some_and(|word| word == "apart") {
        true => Some(open(directory.path(), "written", layout)?),
        false => None,
    };
    let written = other.as_ref().unwrap_or(&engine);
    let mut reader = engine.session()?;
    let mut random = Random(1);
    let (end, busy) = (AtomicBool::new(false), AtomicBool::new(true));
    let (mut idle, mut loaded) = (Vec::new(), Vec::new());
    std::thread::scope(|threads| {
        let mut writer = written.session()?;
        threads.spawn({
            let (end, busy) = (&end, &busy);
            move || write(&mut writer, end, busy)
        });
        // Until flash is full.
        let full = || written.counters().volumes[0].writes > 160_000;
        while !full() {
            read(&mut reader, &mut random, Duration::from_millis(100));
        }
        for _ in 0..rounds {
            busy.store(false, Ordering::Relaxed);
            // (Lets the writes in flight end.)
            read(&mut reader, &mut random, Duration::from_secs(1));
            idle.extend(read(&mut reader, &mut random, PHASE));
            busy.store(true, Ordering::Relaxed);
            read(&mut reader, &mut random, Duration::from_millis(500));
            loaded.extend(read(&mut reader, &mut random, PHASE));
        }
        end.store(true, Ordering::Relaxed);
        Ok::<_, Box<dyn Error>>(())
    })?;
    let (log, cache) = (written.counters().log.unwrap_or_default(), written.counters().cache);
    println!("{layout}: {} regions reclaimed, {} destaged", log.regions_reclaimed, cache.destaged);
    println!("{:>12} {:>10} {:>10} {:>8}", "hits, us", "idle", "loaded", "ratio");
    idle.sort_unstable();
    loaded.sort_unstable();
    for share in [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0] {
        let at = |of: &[u32]| f64::from(of[((of.len() - 1) as f64 * share) as usize]) / 1000.0;
        let (one, other) = (at(&idle), at(&loaded));
        println!("{:>11}% {one:>10.1} {other:>10.1} {:>8.2}", share * 100.0, other / one);
    }
    drop(reader);
    engine.kill();
    other.into_iter().for_each(Engine::kill);
    Ok(())
}

/// An engine with its own files.
fn open(directory: &Path, name: &str, layout: &str) -> Result<Engine, Box<dyn Error>> {
    let path = |kind: &str| directory.join(format!("{name}-{kind}.img")).display().to_string();
    let config = Config::from_toml(&format!(
        "[cache]\ndram = '64MiB'\nwrite_policy = 'write-back'\n\
         [flash]\npath = '{}'\nsize = '512MiB'\nlayout = '{layout}'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '{}'\n",
        path("flash"),
        path("disk"),
        BLOCKS * BLOCK,
    ))?;
    Ok(Engine::open(&config, EngineOptions::default())?)
}

/// Reads hot blocks, about one every 150 us. Returns how long each read took, in ns.
fn read(session: &mut Session, random: &mut Random, time: Duration) -> Vec<u32> {
    let (begin, mut times, mut done) = (Instant::now(), Vec::new(), Vec::new());
    let mut buffer = Some(session.buffer(BLOCK as usize));
    while begin.elapsed() < time {
        let offset = random.below(HOT) * BLOCK;
        let room = buffer.take().expect("the last read came back with its buffer");
        let read = Submission::read(0, Volume(0), offset, BLOCK, room);
        let from = Instant::now();
        session.submit(&mut vec![read], &mut done);
        while done.is_empty() {
            session.wait(None, &mut done);
        }
        times.push(from.elapsed().as_nanos() as u32);
        buffer = done.pop().and_then(|done| done.request.buffer);
        // (Leaves the processor to other threads.)
        std::thread::sleep(Duration::from_micros(100));
    }
    times
}

/// Writes at random, beyond the blocks that are read.
fn write(session: &mut Session, end: &AtomicBool, busy: &AtomicBool) {
    let (mut random, mut done, mut free) = (Random(2), Vec::new(), Vec::new());
    free.extend((0..16).map(|_| session.buffer(BLOCK as usize)));
    let (mut from, mut count) = (Instant::now(), 0);
    while !end.load(Ordering::Relaxed) {
        if !busy.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            (from, count) = (Instant::now(), 0);
        }
        let due = (from.elapsed().as_micros() as u64 * WRITES_A_SECOND) / 1_000_000;
        let mut requests = Vec::new();
        while count < due
            && let Some(buffer) = free.pop()
        {
            count += 1;
            let offset = (HOT + random.below(BLOCKS - HOT)) * BLOCK;
            requests.push(Submission::write(0, Volume(0), offset, BLOCK, buffer));
        }
        if requests.is_empty() {
            let soon = Instant::now() + Duration::from_micros(500);
            if session.wait(Some(soon), &mut done) == 0 {
                std::thread::sleep(Duration::from_micros(500));
            }
        } else {
            session.submit(&mut requests, &mut done);
        }
        free.extend(done.drain(..).filter_map(|done| done.request.buffer));
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}
