//! Goal: every policy is the one of its paper. Method: the hits of each, request for request, are those of a
//! naive version in `oracle/`, on random small cases with invalidations and changes of size, on
//! mixed workloads at twenty sizes, and on a real trace. On the whole of that trace, the misses are those that
//! libCacheSim counts.
//!
//! `random` has no oracle: `properties.rs` tests its distribution.

mod common;
mod oracle;

use std::path::PathBuf;

use common::{Cache, mixed, twenty_sizes};
use forebay_replacement::{Kind, Parameters};
use oracle::Oracle;
use proptest::prelude::*;

/// The naive version of a policy with these parameters.
fn oracle(parameters: &Parameters, capacity: usize) -> Option<Box<dyn Oracle>> {
    let value = |name: &str| parameters.get(name).expect("declared") as usize;
    Some(match parameters.kind() {
        Kind::Lru => Box::new(oracle::Lru { list: Vec::new(), capacity }),
        Kind::Fifo => Box::new(oracle::Fifo { list: Vec::new(), capacity }),
        Kind::Clock => Box::new(oracle::Clock {
            ring: Vec::new(),
            capacity,
            count_max: (1 << value("bits")) - 1,
            steps_max: value("hand_steps_max"),
        }),
        Kind::Sieve => Box::new(oracle::Sieve {
            queue: Vec::new(),
            hand: None,
            capacity,
            steps_max: value("hand_steps_max"),
        }),
        Kind::S3Fifo => Box::new(oracle::S3Fifo {
            capacity,
            small_percent: value("small_percent"),
            ghost_percent: value("ghost_percent"),
            uses_to_move: value("uses_to_move") as u32,
            steps_max: value("hand_steps_max"),
            ..Default::default()
        }),
        Kind::TwoQ => Box::new(oracle::TwoQ {
            capacity,
            in_percent: value("in_percent"),
            out_percent: value("out_percent"),
            ..Default::default()
        }),
        Kind::Arc => Box::new(oracle::Arc { c: capacity, ..Default::default() }),
        Kind::Lfu => Box::new(oracle::Lfu {
            blocks: Vec::new(),
            capacity,
            ageing: value("ageing_capacities"),
            accesses: 0,
        }),
        Kind::WTinyLfu => Box::new(oracle::WTinyLfu {
            capacity,
            window_percent: value("window_percent"),
            protected_percent: value("protected_percent"),
            sample: value("sample_capacities"),
            ..Default::default()
        }),
        Kind::HrLru | Kind::PriorityLru | Kind::DerivativeLru => {
            Box::new(oracle::Positioned { list: Vec::new(), capacity, k: value("sub_queues") })
        }
        _ => return None,
    })
}

/// Policies that an eviction which is taken back leaves exactly as they were.
fn takes_back(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Lru | Fifo | TwoQ | Arc | Lfu | HrLru | PriorityLru | DerivativeLru)
}

/// The parameters of small cases: those with a small range, and sizes that matter to a few blocks.
fn small_parameters(kind: Kind, choices: &[u32]) -> Parameters {
    let mut parameters = Parameters::new(kind);
    for (parameter, &choice) in kind.about().parameters.iter().zip(choices) {
        let value = match parameter.name {
            "hand_steps_max" => [1, 2, 5, u32::MAX][choice as usize % 4],
            "ageing_capacities" => choice % 4,
            "sample_capacities" => 1 + choice % 10,
            "sub_queues" => 1 + choice % 12,
            "bits" => 1 + choice % 3,
            _ => parameter.min + choice % (parameter.max - parameter.min).saturating_add(1),
        };
        parameters.set(parameter.name, value).expect("within the range");
    }
    parameters
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(u64, u8),
    Remove(u64),
    Resize(u32),
}

const CAPACITY_MAX: u32 = 14;

fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![0..6_u64, 0..30_u64];
    prop_oneof![
        30 => (key(), 0..=100_u8).prop_map(|(key, position)| Step::Access(key, position)),
        2 => key().prop_map(Step::Remove),
        1 => (1..=CAPACITY_MAX).prop_map(Step::Resize),
    ]
}

/// Runs the steps through the policy and its oracle, and compares each answer and what is resident.
fn compare(
    parameters: &Parameters,
    capacity: u32,
    steps: &[Step],
    stubborn: usize,
) -> Result<(), TestCaseError> {
    let mut cache = Cache::new(parameters, CAPACITY_MAX + 4, capacity);
    cache.stubborn = stubborn;
    let mut oracle = oracle(parameters, capacity as usize).expect("has an oracle");
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Step::Access(key, position) => {
                let hits = (cache.access(key, position), oracle.access(key, position));
                prop_assert_eq!(hits.0, hits.1, "step {} {:?} {:?}", number, step, parameters);
            }
            Step::Remove(key) => {
                cache.remove(key);
                oracle.remove(key);
            }
            Step::Resize(capacity) => {
                cache.resize(capacity);
                oracle.resize(capacity as usize);
            }
        }
        let mut resident = oracle.resident();
        resident.sort_unstable();
        prop_assert_eq!(cache.resident(), resident, "step {} {:?} {:?}", number, step, parameters);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_cases_are_those_of_the_papers(
        steps in prop::collection::vec(step(), 1..250),
        capacity in 1..=CAPACITY_MAX,
        choices in prop::array::uniform6(any::<u32>()),
    ) {
        for &kind in Kind::ALL {
            if kind != Kind::Random {
                compare(&small_parameters(kind, &choices), capacity, &steps, 0)?;
            }
        }
    }

    /// Blocks that cannot leave are put back as if they had not been evicted: the oracles, which
    /// know nothing of it, still agree.
    #[test]
    fn an_eviction_that_is_taken_back_did_not_happen(
        steps in prop::collection::vec(step(), 1..250),
        capacity in 1..=CAPACITY_MAX,
        choices in prop::array::uniform6(any::<u32>()),
        stubborn in 1..4_usize,
    ) {
        for &kind in Kind::ALL.iter().filter(|&&kind| takes_back(kind)) {
            compare(&small_parameters(kind, &choices), capacity, &steps, stubborn)?;
        }
    }
}

/// The hits of the policy and of its oracle.
fn hits(parameters: &Parameters, size: u32, keys: &[u64]) -> (u64, u64) {
    let mut cache = Cache::new(parameters, size, size);
    let mut oracle = oracle(parameters, size as usize).expect("has an oracle");
    let (mut own, mut naive) = (0, 0);
    for (number, &key) in keys.iter().enumerate() {
        let position = (key % 101) as u8;
        let hits = (cache.access(key, position), oracle.access(key, position));
        // A sketch that is shared by many keys counts some too high.
        if parameters.kind() != Kind::WTinyLfu {
            assert_eq!(hits.0, hits.1, "{} at {size}, request {number}", parameters.kind());
        }
        own += u64::from(hits.0);
        naive += u64::from(hits.1);
    }
    (own, naive)
}

fn at_twenty_sizes(keys: &[u64], largest: f64) {
    for &kind in Kind::ALL.iter().filter(|&&kind| kind != Kind::Random) {
        for size in twenty_sizes(3.0, largest) {
            let (own, naive) = hits(&Parameters::new(kind), size, keys);
            // (Only the sketch may differ.)
            let off = own.abs_diff(naive) as f64 / keys.len() as f64;
            assert!(off < 0.015, "{kind} at {size}: {own} hits, the oracle has {naive}");
        }
    }
}

#[test]
fn mixed_workloads_are_those_of_the_papers_at_twenty_sizes() {
    at_twenty_sizes(&mixed(30_000, 1), 3000.0);
}

/// The blocks of a public trace, where it is present (`FOREBAY_TRACES`, or `../shared/traces` beside
/// the repository).
#[allow(clippy::print_stderr)]
fn real_trace() -> Option<Vec<u64>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    let Ok(bytes) = std::fs::read(root.join("cloudphysics/cloudPhysicsIO.vscsi")) else {
        eprintln!("skipped: cloudphysics/cloudPhysicsIO.vscsi is not in {}", root.display());
        return None;
    };
    // VMware's format: records of 32 bytes, little-endian.
    let blocks = bytes.chunks_exact(32).flat_map(|r| {
        let length = u64::from(u32::from_le_bytes(r[4..8].try_into().unwrap()));
        let start = u64::from_le_bytes(r[16..24].try_into().unwrap()) * 512;
        start / 4096..(start + length).div_ceil(4096)
    });
    Some(blocks.collect())
}

#[test]
fn a_real_trace_has_the_hits_of_the_papers_at_twenty_sizes() {
    let Some(blocks) = real_trace() else { return };
    assert_eq!(blocks.len(), 1_141_869);
    // Oracles search from end to end: a part of the trace, and sizes to match.
    at_twenty_sizes(&blocks[..50_000], 4000.0);
}

/// The counts of libCacheSim (revision aa0fc40 of October 2024): `cachesim blocks.txt txt NAME SIZE --ignore-obj-size 1` over
/// the same blocks, one a line; its `lfu` does not age and its hands have no bound.
#[test]
fn a_real_trace_has_the_misses_that_libcachesim_counts() {
    let Some(blocks) = real_trace() else { return };
    for (kind, at_1000, at_20_000, at_60_000) in [
        (Kind::Lru, 1_029_095, 1_005_820, 896_455),
        (Kind::Fifo, 1_030_765, 1_005_438, 867_529),
        (Kind::Clock, 1_029_089, 1_006_477, 898_852),
        (Kind::Sieve, 1_040_074, 960_234, 834_564),
        (Kind::S3Fifo, 1_028_401, 963_594, 804_009),
        (Kind::Arc, 1_029_279, 963_176, 874_407),
        (Kind::Lfu, 1_078_711, 965_924, 834_564),
        (Kind::TwoQ, 1_027_545, 981_694, 819_398),
    ] {
        let mut parameters = Parameters::new(kind);
        // (Those that have them.)
        let _ = parameters.set("hand_steps_max", u32::MAX);
        let _ = parameters.set("ageing_capacities", 0);
        for (size, misses) in [(1000, at_1000), (20_000, at_20_000), (60_000, at_60_000)] {
            let mut cache = Cache::new(&parameters, size, size);
            let counted = blocks.iter().filter(|&&block| !cache.access(block, 100)).count();
            assert_eq!(counted, misses, "{kind} at {size}");
        }
    }
}
