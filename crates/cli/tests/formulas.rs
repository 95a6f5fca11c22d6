//! Compares the planner's formulas with the cache itself, in the flash layout that they assume.
//!
//! Goal: the cache in `layout = "slots"` behaves as `docs/planning-reference.md` says of two tiers,
//! with write-through and with write-back. Method: the planner measures requests and the simulator
//! runs them. The test compares the counts, and the time for which the devices are busy with them
//! at the catalogue's latencies. It corrects for known differences: blocks in flight from memory or
//! from flash that are requested again, which the tiers hold but do not account for; and, with
//! write-back, the space on flash that dirty records of blocks in memory take.

use std::path::PathBuf;

use forebay_block::Request;
use forebay_config::Config;
use forebay_plan::{
    Catalogue, Combination, Evaluation, Hierarchy, HitCounts, Profile, ProfileBuilder,
    ProfileOptions, WritePolicy,
};
use forebay_simulate::{
    Defaults, Options, Pacing, Scenario, Simulation, SimulationResult, TracedVolume,
};
use forebay_trace::{Batch, OpenOptions, Spec, Synth, TraceReader, open_all};

/// Sizes of memory and flash in MiB.
const SIZES: [(u64, u64); 3] = [(8, 64), (16, 128), (64, 128)];
/// Maximum relative difference of counts and times.
const MOST: f64 = 0.02;
/// Maximum relative difference of the hits in flash, which are the smaller part.
const MOST_IN_FLASH: f64 = 0.025;
/// If the dirty copies change the hits in flash by more than this fraction, their average number is
/// not accurate enough.
const STEEP: f64 = 0.1;
const BLOCK: u64 = 4096;
/// Interval between counts of the dirty copies, in requests.
const COPIES_PERIOD: usize = 100;

fn requests(reader: &mut dyn TraceReader) -> Vec<Request> {
    let (mut all, mut batch) = (Vec::new(), Batch::default());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        all.extend(batch.requests());
    }
    all
}

fn synthetic(spec: &str) -> Vec<Request> {
    requests(&mut Synth::new(&Spec::parse(spec).unwrap()).unwrap())
}

fn profile(requests: &[Request]) -> Profile {
    let options = ProfileOptions { write_back: true, ..ProfileOptions::default() };
    let mut builder = ProfileBuilder::new(options).unwrap();
    requests.iter().for_each(|r| builder.add(r).unwrap());
    builder.finish().unwrap()
}

/// Runs the simulator. Also returns the number of dirty records on flash of blocks in memory,
/// averaged over the promotions, because the space on flash matters at promotions.
fn simulated(
    requests: &[Request],
    (memory, flash): (u64, u64),
    policy: WritePolicy,
) -> (SimulationResult, u64) {
    let policy = match policy {
        WritePolicy::WriteThrough => "write_policy = 'write-through'",
        // Like the formulas: memory acknowledges writes.
        WritePolicy::WriteBack => "write_policy = 'write-back'\nacknowledge = 'dram'",
    };
    let text = format!(
        "[cache]\ndram = '{memory}MiB'\n{policy}\n\
         [flash]\npath = '/flash'\nsize = '{flash}MiB'\nlayout = 'slots'\n"
    );
    let config = Config::from_toml(&text).unwrap();
    let end = requests.iter().map(|r| r.offset + r.length).max().unwrap();
    let traced = [TracedVolume { name: "a".into(), bytes: end.next_multiple_of(BLOCK) }];
    let scenario = Scenario::new(&config, &traced, &Defaults::default()).unwrap();
    let options = Options { pacing: Pacing::Untimed, ..Options::default() };
    let mut simulation = Simulation::new(&scenario, &options).unwrap();
    let (mut copies, mut promotions) = (0, 0);
    for some in requests.chunks(COPIES_PERIOD) {
        simulation.add_all(some.iter().copied()).unwrap();
        let cache = simulation.cache();
        let now = cache.stats().promotions;
        copies += (now - promotions) * cache.dirty_copies();
        promotions = now;
    }
    (simulation.finish().unwrap(), copies / promotions)
}

/// The values to compare. Counts are in blocks.
#[derive(Debug)]
struct Counts {
    hits: [u64; 2],
    read_hits: [u64; 2],
    reads: u64,
    writes: u64,
    demotions: u64,
    write_backs: u64,
}

impl Counts {
    fn by_formulas(profile: &Profile, e: &Evaluation, memory_blocks: u64) -> Self {
        let hits = [0, 1].map(|tier| e.read_hits[tier] + e.write_hits[tier]);
        Self {
            hits,
            read_hits: [e.read_hits[0], e.read_hits[1]],
            reads: profile.reads(),
            writes: profile.writes(),
            // Blocks that fill the initially empty memory evict nothing.
            demotions: e.blocks_written[1] - memory_blocks,
            write_backs: e.write_backs,
        }
    }

    fn by_simulation(result: &SimulationResult, policy: WritePolicy) -> Self {
        let cache = result.run.cache.as_ref().unwrap();
        let (first, second, events) = (cache.hits.tier1, cache.hits.tier2, &result.events);
        let back = events.destaged + result.dirty_blocks;
        Self {
            hits: [
                first.sum() - events.rescued,
                second.sum() + events.rescued - events.flash_rescued,
            ],
            read_hits: [first.read, second.read],
            reads: first.read + second.read + cache.misses.read,
            writes: first.write + second.write + cache.misses.write,
            // All blocks that left memory, even if flash already had their record.
            demotions: events.left_on_flash,
            write_backs: if policy == WritePolicy::WriteBack { back } else { 0 },
        }
    }

    /// Hits in both tiers.
    fn all_hits(&self) -> u64 {
        self.hits.iter().sum()
    }

    /// Time in microseconds for which the devices are busy; a demotion is one read and one write.
    fn device_us(&self, h: &Hierarchy) -> f64 {
        let [one, two] = [&h.tiers[0], &h.tiers[1]];
        let stored = match h.policy {
            WritePolicy::WriteThrough => self.writes,
            WritePolicy::WriteBack => self.write_backs,
        };
        let read_misses = self.reads - self.read_hits[0] - self.read_hits[1];
        let filled = self.writes + self.read_hits[1] + read_misses;
        (self.read_hits[0] + self.demotions) as f64 * one.read_latency_us
            + filled as f64 * one.write_latency_us
            + (self.read_hits[1] + self.write_backs) as f64 * two.read_latency_us
            + self.demotions as f64 * two.write_latency_us
            + read_misses as f64 * h.backing.read_latency_us
            + stored as f64 * h.backing.write_latency_us
    }
}

fn within(off: f64, found: f64, [least, most]: [f64; 2], what: &str) {
    let fine = least * (1.0 - off) <= found && found <= most * (1.0 + off);
    assert!(fine, "{found} is not from {least} to {most}: {what}");
}

fn compare(name: &str, requests: &[Request]) {
    let profile = profile(requests);
    let catalogue = Catalogue::default();
    for policy in [WritePolicy::WriteThrough, WritePolicy::WriteBack] {
        let hierarchy = |backing: &str| {
            let tiers = vec!["FastDRAM".into(), "SlowSSD".into()];
            let combination = Combination { tiers, backing: backing.into() };
            Hierarchy::new(&catalogue, &combination, policy).unwrap()
        };
        let disk = hierarchy("SlowHDD");
        for size in SIZES {
            let (result, copies) = simulated(requests, size, policy);
            let blocks = result.capacity_blocks;
            let [memory, flash] = [blocks.tier1, blocks.tier2].map(u64::from);
            let formulas = |flash| {
                let evaluation = disk.evaluate(&profile, &[memory, flash]);
                Counts::by_formulas(&profile, &evaluation, memory)
            };
            let expected = formulas(flash);
            let found = Counts::by_simulation(&result, policy);
            let what = format!("{name}, {policy:?}, {size:?}: {found:?} against {expected:?}");
            for of in [|c: &Counts| c.hits[0] as f64, |c: &Counts| c.demotions as f64] {
                within(MOST, of(&found), [of(&expected); 2], &what);
            }
            // With write-back, a dirty block that is promoted again leaves its record on flash,
            // because memory does not survive a power cut. Flash then has space for that many fewer
            // blocks. The number varies; where a small change in the size of flash accounts for
            // half of its hits, the average number is not accurate enough.
            assert!(
                copies <= memory && (policy == WritePolicy::WriteBack) == (copies > 0),
                "{what}"
            );
            let less = formulas(flash - copies);
            let steep = expected.hits[1] as f64 > less.hits[1] as f64 * (1.0 + STEEP);
            let most = if steep { &expected } else { &less };
            let what = format!("{what}, with {copies} blocks less {less:?}");
            within(
                MOST_IN_FLASH,
                found.hits[1] as f64,
                [less.hits[1] as f64, most.hits[1] as f64],
                &what,
            );
            within(
                MOST,
                found.all_hits() as f64,
                [&less, most].map(|c| c.all_hits() as f64),
                &what,
            );
            let backs = [&found, most, &less].map(|c| c.write_backs as f64);
            within(MOST, backs[0], [backs[1], backs[2]], &what);
            for h in [&disk, &hierarchy("FastHDD")] {
                let us = [&found, most, &less].map(|c| c.device_us(h));
                within(MOST, us[0], [us[1], us[2]], &what);
                // The planner's mean also includes the time to fill memory.
                let fill =
                    memory as f64 * (h.tiers[0].read_latency_us + h.tiers[1].write_latency_us);
                let all = h.mean_latency_us(&profile, &[memory, flash])
                    * (profile.reads() + profile.writes()) as f64;
                let expected = expected.device_us(h);
                assert!((all - fill - expected).abs() <= 1e-9 * all, "{what}: {all}");
            }
        }
    }
}

#[test]
fn the_cache_in_slots_does_what_the_formulas_say_of_a_skewed_workload() {
    let requests = synthetic("zipf:blocks=60k,theta=1,requests=400k,write=0.25,seed=1,size=4KiB");
    compare("zipf", &requests);
}

#[test]
fn the_cache_in_slots_does_what_the_formulas_say_of_a_workload_with_a_hot_zone() {
    let zones = "zoned:zones=0.1@0.8/0.9@0.2,blocks=60k,requests=400k,write=0.5,seed=2,size=4KiB";
    compare("zoned", &synthetic(zones));
}

#[test]
fn the_cache_in_slots_does_what_the_formulas_say_of_a_real_workload() {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    let file = root.join("cloudphysics/cloudPhysicsIO.vscsi");
    if !file.is_file() {
        println!("skipped: {} is missing", file.display());
        return;
    }
    let mut reader = open_all(&[file], &OpenOptions::default()).unwrap();
    compare("cloudPhysicsIO", &requests(&mut *reader));
}
