//! Compares curves with caches: the hits in a histogram are those of a cache of that size. The
//! caches here are written for clarity and share no code with the library.

use std::collections::{BTreeMap, HashMap};

use forebay_block::Op::{self, Read, Write};
use forebay_locality::{Distance, ReuseDistances, ReuseHistogram};

/// An LRU cache, with blocks by key and by time of last use.
struct Lru {
    size: usize,
    clock: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(size: usize) -> Self {
        Self { size, clock: 0, used: HashMap::new(), order: BTreeMap::new() }
    }
    fn remove(&mut self, key: u64) -> bool {
        self.used.remove(&key).map(|time| self.order.remove(&time)).is_some()
    }
    /// Accesses a block, and admits it if it is not held. Returns whether it was held.
    fn touch(&mut self, key: u64) -> bool {
        let hit = self.remove(key);
        if self.used.len() == self.size
            && let Some((_, evicted)) = self.order.pop_first()
        {
            self.used.remove(&evicted);
        }
        self.clock += 1;
        self.used.insert(key, self.clock);
        self.order.insert(self.clock, key);
        hit
    }
}

/// Returns a mix of loops, a hot set and random reuse, so that hits occur at every size.
fn accesses(count: u64) -> Vec<(u64, Op)> {
    let mut seed = 5u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    (0..count)
        .map(|n| {
            let key = match next() % 10 {
                0..4 => next() % 200,
                4..7 => 1_000_000 + n % 5000,
                _ => (next() % 30_000) << 20,
            };
            (key, if next() % 3 == 0 { Write } else { Read })
        })
        .collect()
}

fn histogram(distance: Distance, accesses: &[(u64, Op)]) -> ReuseHistogram {
    let (keys, ops): (Vec<u64>, Vec<Op>) = accesses.iter().copied().unzip();
    let mut distances = ReuseDistances::new(distance);
    for (keys, ops) in keys.chunks(1000).zip(ops.chunks(1000)) {
        distances.access_batch(keys, ops).unwrap();
    }
    distances.into_histogram()
}

const SIZES: [usize; 9] = [1, 2, 10, 100, 1000, 4096, 10_000, 25_000, 100_000];

#[test]
fn an_lru_cache_of_every_size_has_exactly_the_hits_of_the_curve() {
    let accesses = accesses(200_000);
    let trd = histogram(Distance::Trd, &accesses);
    let urd = histogram(Distance::Urd, &accesses);
    for size in SIZES {
        let mut cache = Lru::new(size);
        let (mut read_hits, mut write_hits) = (0, 0);
        for &(key, op) in &accesses {
            let hit = u64::from(cache.touch(key));
            if op == Read { read_hits += hit } else { write_hits += hit }
        }
        assert_eq!(trd.hits(Read, size as u64), read_hits, "reads, {size} blocks");
        assert_eq!(trd.hits(Write, size as u64), write_hits, "writes, {size} blocks");
        assert_eq!(urd.hits(Read, size as u64), read_hits, "useful reuse, {size} blocks");
        assert_eq!(urd.hits(Write, size as u64), 0);
    }
}

#[test]
fn a_read_only_cache_has_at_most_the_hits_of_its_curve_and_all_of_them_if_nothing_is_evicted() {
    let accesses = accesses(200_000);
    let pod = histogram(Distance::PodReadOnly, &accesses);
    for size in SIZES {
        let mut cache = Lru::new(size);
        let mut hits = 0;
        for &(key, op) in &accesses {
            match op {
                Read => hits += u64::from(cache.touch(key)),
                _ => drop(cache.remove(key)),
            }
        }
        let promised = pod.hits(Read, size as u64);
        assert!(hits <= promised, "{size} blocks: {hits} hits, {promised} promised");
        assert!(hits as f64 >= 0.95 * promised as f64, "{size} blocks: {hits} of {promised}");
        if size as u64 > pod.max_distance().unwrap() {
            assert_eq!(hits, promised);
        }
    }
}

#[test]
fn a_write_only_cache_that_evicts_nothing_has_all_hits_of_its_curve() {
    let accesses = accesses(200_000);
    let pod = histogram(Distance::PodWriteOnly, &accesses);
    let mut cache = Lru::new(usize::MAX);
    let mut hits = 0;
    for &(key, op) in &accesses {
        if op == Write || cache.used.contains_key(&key) {
            let hit = cache.touch(key);
            hits += u64::from(hit && op == Read);
        }
    }
    assert_eq!(pod.hits(Read, pod.max_distance().unwrap() + 1), hits);
}

#[test]
fn caches_of_reads_only_and_of_writes_only_have_exactly_the_hits_of_their_curves() {
    let accesses = accesses(200_000);
    let read_only = histogram(Distance::LruReadOnly, &accesses);
    let write_only = histogram(Distance::LruWriteOnly, &accesses);
    for size in SIZES {
        let (mut reads, mut writes) = (Lru::new(size), Lru::new(size));
        let (mut read_hits, mut hits_of_written, mut write_hits) = (0, 0, 0);
        for &(key, op) in &accesses {
            if op == Read {
                read_hits += u64::from(reads.touch(key));
                if writes.used.contains_key(&key) {
                    hits_of_written += u64::from(writes.touch(key));
                }
            } else {
                reads.remove(key);
                write_hits += u64::from(writes.touch(key));
            }
        }
        let size = size as u64;
        assert_eq!(read_only.hits(Read, size), read_hits, "read-only, {size} blocks");
        assert_eq!(read_only.hits(Write, size), 0);
        assert_eq!(write_only.hits(Read, size), hits_of_written, "write-only, {size} blocks");
        assert_eq!(write_only.hits(Write, size), write_hits, "write-only, {size} blocks");
    }
}
