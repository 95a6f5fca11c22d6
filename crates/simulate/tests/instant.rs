//! Goal: an untimed run takes shortcuts (hits through `Cache::handle_hit`, fetches that end in the
//! call that requests them, effects that are left out), and counts exactly what the long paths
//! count.
//!
//! Method: do each run once untimed and once quiesced, where every operation is an effect that ends
//! separately and, request by request, in the same order. Then compare every counter of the cache,
//! its volumes and its log, except four that depend on the order within a request of several
//! blocks. The cases are policies × write policies × layouts × random traces, and a real trace.

use std::path::Path;

use crate::common::{Random, request, scenario_with};
use forebay_block::{Flags, Op, Request, Volume};
use forebay_cache::{
    AdmissionKind, AdmissionParameters, Combination, Relation, ReplacementParameters,
};
use forebay_config::ReplacementPolicy;
use forebay_replacement::{Kind, Tier};
use forebay_simulate::{AssumeFlush, Options, Pacing, Scenario, Simulation};
use forebay_trace::{Batch, OpenOptions, open};

const WRITE_POLICIES: [&str; 4] = ["write-through", "write-back", "read-only", "write-only"];

/// The flash tier: its size, and an additional line of configuration.
const LAYOUTS: [(Option<&str>, &str); 5] = [
    (
        Some("4MiB"),
        "region_size = '256KiB'\nbatch_size = '64KiB'\nreplacement = 'second-chance'\npromote_after = 2",
    ),
    (Some("4MiB"), "region_size = '256KiB'\nbatch_size = '64KiB'\nreplacement = 'fifo'"),
    (None, ""),
    (Some("4MiB"), "region_size = '256KiB'\nbatch_size = '64KiB'"),
    (Some("4MiB"), "region_size = '256KiB'\nbatch_size = '64KiB'\nlayout = 'slots'"),
];

/// Admission policies that do not depend on time.
const ADMISSION: [AdmissionKind; 5] = [
    AdmissionKind::Always,
    AdmissionKind::Nhit,
    AdmissionKind::Smq,
    AdmissionKind::Popularity,
    AdmissionKind::Random,
];

/// All counters of the cache, as text.
fn counted(scenario: &Scenario, requests: &[Request], pacing: Pacing) -> String {
    let assume_flush = AssumeFlush::EveryWrites(97);
    let options = Options { pacing, assume_flush, ..Options::default() };
    let mut simulation = Simulation::new(scenario, &options).unwrap();
    simulation.add_all(requests.iter().copied()).unwrap();
    simulation.run_until_idle().unwrap();
    let cache = simulation.cache();
    let (mut stats, mut log) = (*cache.stats(), cache.log_stats().copied());
    if requests.iter().any(|r| r.length > 4096) {
        // Which blocks of one request are in flight together depends on which device finishes
        // first, and in quiesced runs devices take time.
        stats.flash_read_overtaken = 0;
        (stats.destaged_under_newer, stats.destage_gaps) = (0, 0);
        log.iter_mut().for_each(|log| log.syncs = 0);
    }
    let counts = (
        (cache.volume_stats(Volume(0)), stats, log),
        (cache.accesses_told(), cache.dirty_blocks(), cache.dirty_in_memory()),
        (cache.dirty_copies(), cache.is_idle()),
    );
    format!("{counts:#?}")
}

/// Mostly requests of single blocks and some longer ones, with a few parts of blocks, trims,
/// zeroings, FUA writes and flushes.
fn random_trace(seed: u64, count: usize, blocks: u64) -> Vec<Request> {
    let mut random = Random(seed);
    let ln = (blocks as f64).ln();
    let one = |_| {
        let rank = ((random.unit() * ln).exp() as u64).min(blocks - 1);
        let block = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % blocks;
        let op = if random.next().is_multiple_of(3) { Op::Write } else { Op::Read };
        let mut r = request(op, block, 1);
        match random.next() % 64 {
            0..6 => r.length = 4096 * (1 + random.next() % 24),
            6..10 => (r.offset, r.length) = (r.offset + 512 * (random.next() % 8), 512),
            10 => r.op = Op::Trim,
            11 => (r.op, r.length) = (Op::WriteZeroes, 3 * 4096),
            12 => (r.op, r.flags) = (Op::Write, Flags::FUA),
            13 => r.op = Op::Flush,
            _ => {}
        }
        r
    };
    (0..count).map(one).collect()
}

fn policies() -> impl Iterator<Item = Kind> {
    let configured = |kind: &Kind| kind.name().parse::<ReplacementPolicy>().is_ok();
    Kind::ALL.iter().copied().filter(configured)
}

fn compare(requests: &[Request], dram_blocks: u32, what: &str) {
    for (flash, line) in LAYOUTS {
        for write_policy in WRITE_POLICIES {
            for (n, kind) in policies().enumerate() {
                let mut scenario = scenario_with(dram_blocks, flash, write_policy, line);
                scenario.cache.replacement = ReplacementParameters::new(kind);
                let admission = ADMISSION[n % ADMISSION.len()];
                if let Some(flash) = &mut scenario.cache.flash {
                    flash.admission = AdmissionParameters::new(admission);
                    let cells: Vec<_> = policies().filter(|k| k.orders(Tier::Slots)).collect();
                    let cells = ReplacementParameters::new(cells[(n + 3) % cells.len()]);
                    if let Some(slots) = flash.slots_mut() {
                        slots.cells = cells;
                    }
                }
                let [long, short] = [Pacing::Quiesced, Pacing::Untimed]
                    .map(|pacing| counted(&scenario, requests, pacing));
                if long != short {
                    let lines = long.lines().zip(short.lines()).filter(|(a, b)| a != b);
                    let lines: Vec<_> = lines.collect();
                    panic!("{kind}, {admission}, {write_policy}, {line:?}, {what}: {lines:#?}");
                }
            }
        }
    }
}

#[test]
fn short_ways_count_what_the_long_ones_do_on_random_traces() {
    for seed in 0..4 {
        let dram_blocks = [64, 100, 300, 300][seed as usize];
        compare(&random_trace(seed, 3000, 4000), dram_blocks, &format!("seed {seed}"));
    }
}

#[test]
fn and_where_blocks_are_read_one_by_one() {
    let mut requests = random_trace(9, 12_000, 3000);
    requests.retain(|r| r.op == Op::Read && r.length == 4096);
    compare(&requests, 200, "reads");
}

#[test]
fn and_under_each_relation_of_the_tiers() {
    let requests = random_trace(17, 3000, 2000);
    for (flash, line) in LAYOUTS.into_iter().filter(|(flash, _)| flash.is_some()) {
        for write_policy in WRITE_POLICIES {
            // (How much of a line is fetched depends on the number of free frames, and so on the
            // operations in flight.)
            for relation in Relation::ALL.into_iter().filter(|r| !r.has_lines()) {
                let mut scenario = scenario_with(300, flash, write_policy, line);
                let cache = &mut scenario.cache;
                cache.relation = relation;
                if Combination::from_config(cache).check().is_err() {
                    continue;
                }
                cache.flash.as_mut().expect("there is flash").queues.interval = 50;
                let [long, short] = [Pacing::Quiesced, Pacing::Untimed]
                    .map(|pacing| counted(&scenario, &requests, pacing));
                let lines: Vec<_> =
                    long.lines().zip(short.lines()).filter(|(a, b)| a != b).collect();
                assert!(long == short, "{relation}, {write_policy}, {line:?}: {lines:#?}");
            }
        }
    }
}

#[test]
fn and_on_a_real_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traces/sqlite-shop.parquet");
    let mut reader = open(&path, &OpenOptions::default()).unwrap();
    let (mut requests, mut batch) = (Vec::new(), Batch::default());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        requests.extend(batch.requests());
    }
    requests.truncate(8_000);
    compare(&requests, 200, "sqlite");
}
