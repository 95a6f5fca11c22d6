//! Goal: the popularity of blocks is that of ETICA. Method: compare every value with a naive
//! version that applies the definition with epochs to the last accesses of all blocks; and compare
//! with the exact sums over a plain stack, which are close.

use std::collections::HashMap;

use crate::common::{Numbers, mixed};
use forebay_replacement::Popularity;

/// A version that keeps no counts, and computes each distance from all blocks when it is needed.
#[derive(Default)]
struct Naive {
    /// The epoch of each block's last access, and its sum.
    blocks: HashMap<u32, (u64, u32)>,
    accesses: u64,
    size: f64,
}

impl Naive {
    fn epoch(&self) -> u64 {
        self.accesses / ((self.size / 16.0) as u64).max(1)
    }
    fn access(&mut self, block: u32) {
        let now = self.epoch();
        let before = self.blocks.remove(&block);
        let sum = before.map_or(0, |(last, sum)| {
            let seen = |epoch: u64| (now - epoch).min(64);
            let others = || self.blocks.values().map(|b| seen(b.0));
            let later = others().filter(|&ago| ago < seen(last)).count() as u64;
            let same = others().filter(|&ago| ago == seen(last)).count() as u64;
            let distance = (later + same / 2) as f64;
            // In sixteenths of the size, rounded down.
            let parts = (16.0 * distance / self.size).floor();
            (sum + (16.0 * (-parts / 16.0).exp()).round() as u32).min(255)
        });
        self.blocks.insert(block, (now, sum));
        self.accesses += 1;
    }
}

#[test]
fn popularity_is_that_of_the_definition() {
    for (size, blocks, seed) in [(1, 3, 1), (7, 20, 2), (40, 100, 3), (300, 1500, 4), (500, 400, 5)]
    {
        let mut numbers = Numbers(seed);
        let mut popularity = Popularity::new(blocks, size);
        let mut naive = Naive { size: f64::from(size), ..Naive::default() };
        for step in 0..20_000_u64 {
            // Some blocks are used more than others, and the set of these changes.
            let near = (numbers.unit().powi(3) * f64::from(blocks)) as u64;
            let block = ((near + step / 4000 * 7) % u64::from(blocks)) as u32;
            match numbers.next() % 20 {
                0 => {
                    popularity.remove(block);
                    naive.blocks.remove(&block);
                }
                1 => {
                    popularity.insert(block);
                    naive.blocks.remove(&block);
                    naive.access(block);
                }
                2 if naive.blocks.contains_key(&block) => {
                    popularity.age(block);
                    naive.blocks.get_mut(&block).expect("there").1 /= 2;
                }
                _ if naive.blocks.contains_key(&block) => {
                    popularity.access(block);
                    naive.access(block);
                }
                _ => {
                    popularity.insert(block);
                    naive.access(block);
                }
            }
            if let Some(&(_, sum)) = naive.blocks.get(&block) {
                assert_eq!(u32::from(popularity.sum(block)), sum, "size {size}, step {step}");
            }
        }
    }
}

#[test]
fn it_is_near_the_exact_sum_over_a_stack() {
    let keys: Vec<u32> = {
        let mut names = HashMap::new();
        let number = |key| {
            let next = names.len() as u32;
            *names.entry(key).or_insert(next)
        };
        mixed(20_000, 6).into_iter().map(number).collect()
    };
    let blocks = keys.iter().max().unwrap() + 1;
    let size = 1000;
    let mut popularity = Popularity::new(blocks, size);
    let (mut stack, mut exact) = (Vec::new(), vec![0.0; blocks as usize]);
    for &key in &keys {
        match stack.iter().rev().position(|&k| k == key) {
            Some(distance) => {
                stack.remove(stack.len() - 1 - distance);
                exact[key as usize] += (-(distance as f64) / f64::from(size)).exp();
                popularity.access(key);
            }
            None => popularity.insert(key),
        }
        stack.push(key);
    }
    let mut compared = 0;
    for (node, &exact) in exact.iter().enumerate().filter(|(_, exact)| (0.5..14.0).contains(*exact))
    {
        let sum = f64::from(popularity.sum(node as u32)) / f64::from(Popularity::ONE);
        assert!((sum - exact).abs() < 0.1 + 0.1 * exact, "{node}: {sum}, exact {exact}");
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}
