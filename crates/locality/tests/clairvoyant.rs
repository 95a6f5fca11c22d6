//! Goal: the hits of `Clairvoyant` are the most that any cache can have. Method: small cases are
//! compared with the best of all choices of the evicted block; larger ones with a naive version of
//! Belady's MIN, which searches the future at each miss, and with LRU, which must not have more
//! hits.

use std::collections::BTreeSet;
use std::path::PathBuf;

use forebay_block::Op::{self, Read, Write};
use forebay_locality::{Clairvoyant, ClairvoyantHits, Distance, ReuseDistances};
use proptest::prelude::*;

fn clairvoyant(keys: &[u64], ops: &[Op]) -> Clairvoyant {
    let mut clairvoyant = Clairvoyant::new();
    // Two batches, to test reuses across their border.
    let half = keys.len() / 2;
    clairvoyant.access_batch(&keys[..half], &ops[..half]).unwrap();
    clairvoyant.access_batch(&keys[half..], &ops[half..]).unwrap();
    clairvoyant
}

/// Returns the most hits of any sequence of evictions, if every missed block is admitted.
fn best(keys: &[u64], size: usize, cache: &BTreeSet<u64>) -> u64 {
    let Some((&key, rest)) = keys.split_first() else { return 0 };
    if cache.contains(&key) {
        return 1 + best(rest, size, cache);
    }
    let with = |victim: Option<u64>| {
        let mut cache = cache.clone();
        victim.map(|victim| cache.remove(&victim));
        cache.insert(key);
        best(rest, size, &cache)
    };
    if cache.len() < size {
        return with(None);
    }
    cache.iter().map(|&victim| with(Some(victim))).max().expect("a size of one at least")
}

/// Belady's MIN: searches for the next use of each block from here to the end.
fn naive(keys: &[u64], ops: &[Op], size: usize) -> ClairvoyantHits {
    let (mut cache, mut hits) = (Vec::new(), ClairvoyantHits::default());
    for (now, &key) in keys.iter().enumerate() {
        if cache.contains(&key) {
            *(if ops[now] == Read { &mut hits.reads } else { &mut hits.writes }) += 1;
            continue;
        }
        if cache.len() == size {
            let next = |k: u64| keys[now..].iter().position(|&key| key == k).unwrap_or(usize::MAX);
            let victim = (0..size).max_by_key(|&i| next(cache[i])).expect("a size of one at least");
            cache.swap_remove(victim);
        }
        cache.push(key);
    }
    hits
}

fn ops(writes: &[bool]) -> Vec<Op> {
    writes.iter().map(|&write| if write { Write } else { Read }).collect()
}

proptest! {
    #[test]
    fn no_choice_of_who_gives_way_has_more_hits(
        keys in prop::collection::vec(0..5_u64, 0..13),
        size in 1..4_usize,
    ) {
        let own = clairvoyant(&keys, &vec![Read; keys.len()]).hits(size as u64);
        prop_assert_eq!(own.all(), best(&keys, size, &BTreeSet::new()));
    }

    #[test]
    fn reads_and_writes_are_those_of_min_and_no_fewer_than_those_of_lru(
        accesses in prop::collection::vec((0..40_u64, any::<bool>()), 1..400),
    ) {
        let (keys, writes): (Vec<u64>, Vec<bool>) = accesses.into_iter().unzip();
        let ops = ops(&writes);
        let clairvoyant = clairvoyant(&keys, &ops);
        let mut lru = ReuseDistances::new(Distance::Trd);
        lru.access_batch(&keys, &ops).unwrap();
        let lru = lru.into_histogram();
        let mut before = 0;
        for size in 1..=42 {
            let hits = clairvoyant.hits(size);
            prop_assert_eq!(hits, naive(&keys, &ops, size as usize), "size {}", size);
            prop_assert!(hits.all() >= lru.hits(Read, size) + lru.hits(Write, size));
            prop_assert!(hits.all() >= before);
            before = hits.all();
        }
        prop_assert_eq!(before, clairvoyant.accesses() - clairvoyant.distinct_blocks());
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn on_a_real_trace_the_optimum_is_above_lru_at_twenty_sizes() {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    let Ok(bytes) = std::fs::read(root.join("cloudphysics/cloudPhysicsIO.vscsi")) else {
        eprintln!("skipped: cloudphysics/cloudPhysicsIO.vscsi is not in {}", root.display());
        return;
    };
    // VMware's format: records of 32 bytes, little-endian.
    let (mut keys, mut ops) = (Vec::new(), Vec::new());
    for r in bytes.chunks_exact(32) {
        let length = u64::from(u32::from_le_bytes(r[4..8].try_into().unwrap()));
        let start = u64::from_le_bytes(r[16..24].try_into().unwrap()) * 512;
        for block in start / 4096..(start + length).div_ceil(4096) {
            keys.push(block);
            ops.push(if r[12] == 0x28 { Read } else { Write });
        }
    }
    let clairvoyant = clairvoyant(&keys, &ops);
    assert_eq!((clairvoyant.accesses(), clairvoyant.distinct_blocks()), (1_141_869, 269_210));
    let mut lru = ReuseDistances::new(Distance::Trd);
    lru.access_batch(&keys, &ops).unwrap();
    let lru = lru.into_histogram();
    let mut before = 0;
    for step in 0..20 {
        let size = (1000.0 * 1.33_f64.powi(step)) as u64;
        let hits = clairvoyant.hits(size);
        assert!(hits.all() >= before);
        assert!(hits.all() > lru.hits(Read, size) + lru.hits(Write, size), "at {size}");
        before = hits.all();
    }
    assert_eq!(clairvoyant.hits(269_210).all(), 1_141_869 - 269_210);

    // Expected values: libCacheSim (revision aa0fc40), with the first sector of each request as the
    // object.
    let sectors: Vec<u64> =
        bytes.chunks_exact(32).map(|r| u64::from_le_bytes(r[16..24].try_into().unwrap())).collect();
    let mut clairvoyant = Clairvoyant::new();
    clairvoyant.access_batch(&sectors, &vec![Read; sectors.len()]).unwrap();
    for (size, miss_ratio) in [(1000, 0.7642), (20_000, 0.4553), (60_000, 0.4301)] {
        let own = 1.0 - clairvoyant.hits(size).all() as f64 / sectors.len() as f64;
        assert!((own - miss_ratio).abs() < 0.00005, "{own} {miss_ratio} at {size}");
    }
}
