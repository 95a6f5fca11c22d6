//! Tests with millions of blocks, where the tree over time has all its levels and times are
//! renumbered at full size: every distance equals that of the textbook algorithm, and samples are
//! as accurate as documented.

use std::collections::HashMap;

use forebay_block::Op;
use forebay_locality::{CurvePoint, Distance, Reuse, ReuseDistances, ReuseStack, Sampling};

/// Bennett and Kruskal, 1975: a tree of partial sums over all accesses of the trace.
struct Textbook {
    sums: Vec<u32>,
    last: HashMap<u64, usize>,
    time: usize,
}

impl Textbook {
    fn add(&mut self, mut at: usize, delta: i32) {
        at += 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add_signed(delta);
            at += at & at.wrapping_neg();
        }
    }
    fn before(&self, mut at: usize) -> u32 {
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
    fn access(&mut self, key: u64) -> Option<u32> {
        let last = self.last.insert(key, self.time);
        let distance = last.map(|last| {
            let distance = self.before(self.time) - self.before(last + 1);
            self.add(last, -1);
            distance
        });
        self.add(self.time, 1);
        self.time += 1;
        distance
    }
}

#[test]
fn distances_over_millions_of_blocks_equal_those_of_the_textbook() {
    const ACCESSES: usize = 4_000_000;
    let mut textbook = Textbook { sums: vec![0; ACCESSES + 1], last: HashMap::default(), time: 0 };
    let mut stack = ReuseStack::new(Distance::Trd);
    let mut reuses: Vec<Reuse> = Vec::new();
    let (mut seed, mut cold, mut largest) = (1u64, 0, 0);
    for start in (0..ACCESSES).step_by(1000) {
        let keys: [u64; 1000] = std::array::from_fn(|i| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match (seed >> 60, start + i) {
                (0..4, n) => n as u64 / 2,
                (4..8, _) => ((seed >> 20) % 3_000_000) << 12,
                (_, _) => (seed >> 20) % 20_000,
            }
        });
        reuses.clear();
        stack.access_batch(&keys, &[Op::Read; 1000], &mut reuses).unwrap();
        for (i, (&key, reuse)) in keys.iter().zip(&reuses).enumerate() {
            let expected = textbook.access(key);
            assert_eq!(reuse.distance(), expected, "access {}", start + i);
            cold += u64::from(expected.is_none());
            largest = largest.max(expected.unwrap_or(0));
        }
    }
    assert_eq!(stack.blocks_known(), cold);
    assert!(cold > 1_000_000 && largest > 1_000_000, "{cold} blocks, distances to {largest}");
}

/// Goal: the curve of a million blocks has a mean error of at most 0.01 when sampled at 1 %, and of
/// at most 0.02 with 8,192 sampled blocks. Method: workloads without hot blocks (uniform, where
/// errors are largest), with a preference, skewed, and of requests of 64 blocks.
#[test]
fn curves_of_samples_of_a_million_blocks_are_close() {
    const ACCESSES: u64 = 3_000_000;
    type Workload = (&'static str, fn(f64, u64) -> u64);
    let workloads: [Workload; 4] = [
        ("uniform", |u, _| (u * 1.1e6) as u64),
        ("square", |u, _| (u * u * 1.3e6) as u64),
        ("skewed", |u, _| (u.powi(3) * 2e6) as u64 * 7_919 % 2_000_003),
        ("runs", |u, n| (u * 17e3) as u64 * 64 + n % 64),
    ];
    for (name, block) in workloads {
        let (mut seed, mut uniform) = (5u64, 0.0);
        let keys: Vec<u64> = (0..ACCESSES)
            .map(|n| {
                if name != "runs" || n % 64 == 0 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    uniform = (seed >> 11) as f64 / (1u64 << 53) as f64;
                }
                block(uniform, n)
            })
            .collect();
        let ops = vec![Op::Read; keys.len()];
        let measure = |sampling| {
            let mut distances = ReuseDistances::sampled(Distance::Trd, sampling).unwrap();
            distances.access_batch(&keys, &ops).unwrap();
            distances.into_histogram()
        };
        let exact = measure(Sampling::All);
        assert!(exact.distinct_blocks > 900_000, "{name}: {}", exact.distinct_blocks);
        for (sampling, most) in [(Sampling::Rate(0.01), 0.01), (Sampling::MaxBlocks(8192), 0.02)] {
            let sampled = measure(sampling);
            let sizes = (1..=100).map(|i| exact.distinct_blocks * i / 100);
            let error = |size| {
                let [a, b] = [&exact, &sampled].map(|h| CurvePoint::at(h, size).miss_ratio);
                (a - b).abs()
            };
            let mean = sizes.map(error).sum::<f64>() / 100.0;
            assert!(mean <= most, "{name}, {sampling:?}: mean error {mean}");
        }
    }
}
