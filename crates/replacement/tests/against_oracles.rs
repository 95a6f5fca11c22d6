//! Goal: every policy behaves as its paper defines it. Method: request for request, it has the same
//! hits as a naive version in `oracle/`: on random small cases with invalidations and changes of
//! size, and at twenty sizes on a mixed workload and on real traces, reads and writes. On the whole
//! of one of these traces, the misses are those that libCacheSim counts.
//!
//! `random` has no oracle: `properties.rs` tests its distribution.

use std::path::PathBuf;

use crate::common::{Cache, mixed, twenty_sizes};
use crate::oracle::{self, Oracle};
use forebay_replacement::{Kind, Parameters};
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
        Kind::WTinyLfu => Box::new(oracle::WTinyLfu::new(
            capacity,
            value("window_percent"),
            value("protected_percent"),
            value("sample_capacities"),
        )),
        Kind::HrLru | Kind::PriorityLru | Kind::DerivativeLru => {
            Box::new(oracle::Positioned { list: Vec::new(), capacity, k: value("sub_queues") })
        }
        _ => return None,
    })
}

/// Whether an eviction that is taken back leaves the policy exactly as it was.
fn takes_back(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Lru | Fifo | TwoQ | Arc | Lfu | HrLru | PriorityLru | DerivativeLru)
}

/// The parameters for small cases: values from small ranges, and sizes that matter with few blocks.
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

/// Runs the steps through the policy and its oracle, and compares each answer and the resident
/// blocks.
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
    /// have no such blocks, still agree.
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

/// Compares every policy but random with its oracle, request for request, at twenty sizes up to
/// `largest`.
fn at_twenty_sizes(what: &str, keys: &[u64], largest: f64) {
    let mut hits_most = 0;
    for &kind in Kind::ALL.iter().filter(|&&kind| kind != Kind::Random) {
        let parameters = Parameters::new(kind);
        for size in twenty_sizes(3.0, largest) {
            let mut cache = Cache::new(&parameters, size, size);
            let mut oracle = oracle(&parameters, size as usize).expect("has an oracle");
            let mut hits = 0;
            for (number, &key) in keys.iter().enumerate() {
                let position = (key % 101) as u8;
                let hit = cache.access(key, position);
                let expected = oracle.access(key, position);
                assert_eq!(hit, expected, "{what}: {kind} at {size}, request {number}");
                hits += u32::from(hit);
            }
            hits_most = hits_most.max(hits);
        }
    }
    // (A trace without hits would prove nothing.)
    assert!(hits_most as usize > keys.len() / 20, "{what}: {hits_most} of {} hit", keys.len());
}

#[test]
fn mixed_workloads_are_those_of_the_papers_at_twenty_sizes() {
    at_twenty_sizes("mixed", &mixed(20_000, 1), 2000.0);
}

/// Includes sizes for which tables and sketches must grow.
#[test]
fn a_cache_that_changes_its_size_is_that_of_the_papers() {
    let keys = mixed(21_000, 2);
    for &kind in Kind::ALL.iter().filter(|&&kind| kind != Kind::Random) {
        let sizes: &[u32] = match kind {
            // (Each insertion forgets at most 64 excess ghosts, but an oracle forgets all.)
            Kind::S3Fifo | Kind::TwoQ | Kind::Arc => &[300, 1500, 2500, 2800],
            _ => &[300, 1500, 40, 2500, 700, 3000, 1],
        };
        let parameters = Parameters::new(kind);
        let mut cache = Cache::new(&parameters, 3000, 100);
        let mut oracle = oracle(&parameters, 100).expect("has an oracle");
        for (keys, &size) in keys.chunks(3000).zip(sizes) {
            cache.resize(size);
            oracle.resize(size as usize);
            for (number, &key) in keys.iter().enumerate() {
                let hits = (cache.access(key, 100), oracle.access(key, 100));
                assert_eq!(hits.0, hits.1, "{kind} at {size}, request {number}");
            }
        }
    }
}

/// Reads a public trace, if it is present (in `FOREBAY_TRACES`; by default in `../shared/traces`,
/// relative to the repository).
#[allow(clippy::print_stderr)]
fn real_trace(name: &str) -> Option<Vec<u8>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    let Ok(bytes) = std::fs::read(root.join(name)) else {
        eprintln!("skipped: {name} is not in {}", root.display());
        return None;
    };
    Some(match name.ends_with(".zst") {
        true => zstd::decode_all(&bytes[..]).expect("a zstd stream"),
        false => bytes,
    })
}

/// The blocks of a text trace, taken from the fields of each line.
fn blocks_of_lines(
    bytes: &[u8],
    range: impl Fn(&[u64]) -> std::ops::Range<u64>,
) -> impl Iterator<Item = u64> {
    let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    lines.flat_map(move |line| {
        let line = std::str::from_utf8(line).expect("text");
        // (Fractions of a millisecond are cut off.)
        let field = |f: &str| f.split('.').next().and_then(|f| f.parse().ok()).expect("a number");
        range(&line.split_ascii_whitespace().map(field).collect::<Vec<u64>>())
    })
}

/// The blocks of the CloudPhysics trace.
fn cloudphysics() -> Option<Vec<u64>> {
    let bytes = real_trace("cloudphysics/cloudPhysicsIO.vscsi")?;
    // VMware's format: records of 32 bytes, little-endian.
    let blocks = bytes.chunks_exact(32).flat_map(|r| {
        let length = u64::from(u32::from_le_bytes(r[4..8].try_into().unwrap()));
        let start = u64::from_le_bytes(r[16..24].try_into().unwrap()) * 512;
        start / 4096..(start + length).div_ceil(4096)
    });
    Some(blocks.collect())
}

// Oracles search their lists from end to end, so these tests use parts of the traces, and sizes to
// match.

#[test]
fn cloudphysics_has_the_hits_of_the_papers_at_twenty_sizes() {
    let Some(blocks) = cloudphysics() else { return };
    assert_eq!(blocks.len(), 1_141_869);
    at_twenty_sizes("CloudPhysics", &blocks[..30_000], 3000.0);
}

/// Traces of the authors of ARC. Fields: first block and number of blocks, of 512 bytes each.
#[test]
fn oltp_has_the_hits_of_the_papers_at_twenty_sizes() {
    let Some(bytes) = real_trace("arc/OLTP.lis.zst") else { return };
    let blocks = blocks_of_lines(&bytes, |f| f[0]..f[0] + f[1]);
    at_twenty_sizes("OLTP", &blocks.skip(200_000).take(20_000).collect::<Vec<_>>(), 2000.0);
}

#[test]
fn p3_has_the_hits_of_the_papers_at_twenty_sizes() {
    let Some(bytes) = real_trace("arc/P3.lis.zst") else { return };
    let blocks = blocks_of_lines(&bytes, |f| f[0] / 8..(f[0] + f[1]).div_ceil(8));
    at_twenty_sizes("P3", &blocks.skip(100_000).take(20_000).collect::<Vec<_>>(), 2000.0);
}

/// A trace of several devices. Fields: time, device, first block of 512 bytes, blocks, and whether
/// it is a read.
#[test]
fn disksim_has_the_hits_of_the_papers_at_twenty_sizes() {
    let Some(bytes) = real_trace("disksim/ascii.trace.zst") else { return };
    let blocks = blocks_of_lines(&bytes, |f| {
        let device = f[1] << 40;
        device + f[2] / 8..device + (f[2] + f[3]).div_ceil(8)
    });
    at_twenty_sizes("DiskSim", &blocks.take(20_000).collect::<Vec<_>>(), 2000.0);
}

/// The expected counts are those of libCacheSim (revision aa0fc40 of October 2024):
/// `cachesim blocks.txt txt NAME SIZE --ignore-obj-size 1` over the same blocks, one per line. Its
/// `lfu` does not age, and its hands have no bound.
#[test]
fn a_real_trace_has_the_misses_that_libcachesim_counts() {
    let Some(blocks) = cloudphysics() else { return };
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
        // (Not all policies have these parameters.)
        let _ = parameters.set("hand_steps_max", u32::MAX);
        let _ = parameters.set("ageing_capacities", 0);
        for (size, misses) in [(1000, at_1000), (20_000, at_20_000), (60_000, at_60_000)] {
            let mut cache = Cache::new(&parameters, size, size);
            let counted = blocks.iter().filter(|&&block| !cache.access(block, 100)).count();
            assert_eq!(counted, misses, "{kind} at {size}");
        }
    }
}
