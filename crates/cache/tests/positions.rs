//! Goal: under HR LRU a block begins where the hit ratio of its chunk says, which is that of memory, of the
//! interval before.
//!
//! Method: a cache of ten blocks, and how many misses it takes until a block that came in is gone.
//! `crates/simulate/tests/positions.rs` compares whole workloads with an oracle.

use crate::driver::*;
use forebay_block::Volume;
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, Order, ReplacementKind, ReplacementParameters, WritePolicy,
};
use forebay_effect::IoError;

const BLOCKS: u32 = 10;
/// An interval, in the nanoseconds of the driver.
const INTERVAL: u64 = 1_000_000;

fn hr_lru() -> ReplacementParameters {
    let parameters = ReplacementParameters::new(ReplacementKind::HrLru);
    parameters.with("interval_ms", 1).unwrap().with("chunk_kib", 0).unwrap()
}

fn memory() -> Driver {
    let config = CacheConfig { replacement: hr_lru(), ..CacheConfig::dram_only(BLOCKS) };
    Driver::with_volumes(config, 1000 * BLOCK)
}

fn read(d: &mut Driver, block: u64) {
    d.read(block);
    d.settle();
}

/// Whether a read finds the block in memory.
fn is_in_memory(d: &mut Driver, block: u64) -> bool {
    let hits = |d: &Driver| {
        // The block that was leaving has been evicted.
        let tier1 = d.cache.volume_stats(Volume(0)).unwrap().read_hits.tier1;
        tier1 - d.cache.stats().rescued
    };
    let before = hits(d);
    read(d, block);
    hits(d) > before
}

/// Whether a block is still there after it and four others came in.
fn outlives_four_others(d: &mut Driver, first: u64) -> bool {
    (first..=first + 4).for_each(|block| read(d, block));
    is_in_memory(d, first)
}

#[test]
fn a_block_begins_near_the_end_until_an_interval_with_hits_is_over() {
    let mut d = memory();
    (0..10).for_each(|block| read(&mut d, block));
    (0..30).for_each(|_| read(&mut d, 9));
    // This interval has hits, but is not over.
    assert!(!outlives_four_others(&mut d, 50));
    d.next += INTERVAL;
    (20..30).for_each(|block| read(&mut d, block));
    assert!(outlives_four_others(&mut d, 55));
    d.next += INTERVAL;
    (100..200).for_each(|block| read(&mut d, block));
    d.next += INTERVAL;
    d.next += INTERVAL;
    assert!(!outlives_four_others(&mut d, 60));
}

#[test]
fn hit_ratios_outlive_a_change_of_size() {
    let mut d = memory();
    (0..10).for_each(|block| read(&mut d, block));
    (0..30).for_each(|_| read(&mut d, 9));
    d.next += INTERVAL;
    for blocks in [4, BLOCKS] {
        d.order(Order::SetDramBlocks(blocks));
        d.settle();
    }
    (20..30).for_each(|block| read(&mut d, block));
    assert!(outlives_four_others(&mut d, 50));
}

#[test]
fn a_hit_on_flash_is_none() {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    let mut config = CacheConfig { replacement: hr_lru(), dram_blocks: BLOCKS, ..config };
    let flash = config.flash.as_mut().unwrap();
    (flash.geometry.regions, flash.entries_max) = (16, 16 * 12);
    let mut d = Driver::new(config);
    // A loop over more blocks than memory has, so that the second round hits on flash.
    for _ in 0..2 {
        (0..20).for_each(|block| read(&mut d, block));
    }
    let hits = d.cache.volume_stats(Volume(0)).unwrap().read_hits;
    assert!(hits.tier2 > 5 && hits.tier1 < hits.tier2, "{hits:?}");
    d.next += INTERVAL;
    assert!(!outlives_four_others(&mut d, 50));
}

#[test]
fn the_table_of_hit_ratios_is_part_of_the_memory_that_is_reported() {
    let bytes = |replacement| {
        Cache::new(CacheConfig { replacement, ..CacheConfig::dram_only(1 << 16) }).memory_bytes()
    };
    let more = bytes(hr_lru()) - bytes(ReplacementParameters::new(ReplacementKind::Lru));
    assert!(more >= 2048 * 24, "{more}");
}

#[test]
fn a_dirty_block_that_could_not_leave_is_not_the_next_to_be_asked() {
    // Every block begins where it is the next to give way.
    let replacement = hr_lru().with("min_position_percent", 0).unwrap();
    let replacement = replacement.with("min_hit_ratio_percent", 0).unwrap();
    let mut d = Driver::new(CacheConfig { replacement, ..CacheConfig::dram_only(4) });
    (1..=3).for_each(|block| read(&mut d, block));
    d.write(9);
    d.read(5);
    d.complete_first(is_write, Err(IoError::Device));
    d.settle();
    let before = d.cache.stats().evictions;
    // Two leave, since one was to leave that has stayed; both are clean.
    d.read(6);
    assert_eq!((d.count(is_write), d.cache.stats().evictions - before), (0, 2));
}
