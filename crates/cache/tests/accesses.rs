//! Goal: the replacement policy of memory hears of each access to a block once, whichever way it goes.
//!
//! Method: one access at a time by each way, and how many the machine says it has told of.
//! `crates/simulate/tests/policies.rs` compares the hits of whole workloads with those of the policy alone.

use crate::driver::*;
use forebay_block::{BlockSize, Flags, Op, Volume};
use forebay_cache::{Acknowledge, CacheConfig, WritePolicy};
use forebay_effect::IoError;

/// How many accesses the policy is told of while `what` runs.
fn told(d: &mut Driver, what: impl FnOnce(&mut Driver)) -> u64 {
    let before = d.cache.accesses_told();
    what(d);
    d.cache.accesses_told() - before
}

fn memory(write_policy: WritePolicy) -> Driver {
    Driver::new(CacheConfig { write_policy, ..CacheConfig::dram_only(4) })
}

#[test]
fn a_read_that_misses_and_one_that_hits() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    for _ in 0..2 {
        let count = told(&mut d, |d| {
            d.read(3);
            d.settle();
        });
        assert_eq!(count, 1);
    }
}

#[test]
fn a_miss_on_flash() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram));
    for block in 0..6 {
        d.write(block);
    }
    d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
    let count = told(&mut d, |d| {
        d.read(0);
        d.settle();
    });
    assert_eq!(count, 1);
    assert_eq!(d.cache.volume_stats(Volume(0)).map(|s| s.read_hits.tier2), Some(1));
}

#[test]
fn each_of_those_who_wait_for_the_same_fetch() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    let count = told(&mut d, |d| {
        for _ in 0..3 {
            d.read(3);
        }
        d.settle();
    });
    assert_eq!(count, 3);
}

#[test]
fn each_block_of_a_long_request() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    let count = told(&mut d, |d| {
        d.request(Op::Read, Flags::NONE, BLOCK / 2, 3 * BLOCK);
        d.settle();
    });
    assert_eq!(count, 4);
}

#[test]
fn a_write_of_a_new_block_of_a_part_of_one_and_over_one_there_is() {
    for policy in [WritePolicy::WRITE_BACK, WritePolicy::WRITE_THROUGH] {
        let mut d = memory(policy);
        for (offset, length) in [(0, BLOCK), (0, BLOCK), (BLOCK + 1024, 512), (BLOCK + 1024, 512)] {
            let count = told(&mut d, |d| {
                d.request(Op::Write, Flags::NONE, offset, length);
                d.settle();
            });
            assert_eq!(count, 1, "{policy:?}, {length} bytes at {offset}");
        }
    }
}

#[test]
fn a_write_that_has_to_wait_for_the_one_before_it() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    d.write(1);
    let count = told(&mut d, |d| {
        d.request(Op::Flush, Flags::NONE, 0, 0);
        d.write(1);
        d.settle();
    });
    assert_eq!(count, 1);
}

#[test]
fn a_block_that_is_wanted_again_while_it_leaves() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    for block in 0..4 {
        d.write(block);
    }
    d.settle();
    // Block 0 gives way, and its destage is under way.
    d.read(9);
    assert_eq!(d.count(is_write), 1);
    let count = told(&mut d, |d| {
        d.read(0);
        d.settle();
    });
    assert_eq!((count, d.cache.stats().rescued), (1, 1));
}

#[test]
fn a_fetch_that_fails_and_the_one_after_it() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    let count = told(&mut d, |d| {
        d.read(3);
        d.complete_first(is_read, Err(IoError::Device));
    });
    assert_eq!(count, 1);
    let count = told(&mut d, |d| {
        d.read(3);
        d.settle();
    });
    assert_eq!(count, 1);
}

#[test]
fn what_goes_past_memory_is_told_to_nobody() {
    let mut d = memory(WritePolicy::READ_ONLY);
    let count = told(&mut d, |d| {
        d.write(1);
        d.settle();
    });
    assert_eq!(count, 0, "a write that is not cached");
}

#[test]
fn a_write_that_waits_for_room_counts_once() {
    // Parts of granules of more blocks than there are frames: most wait, and each is evaluated again whenever one
    // that was before it has gone on.
    let block_size = BlockSize::new(1 << 16).expect("a block size");
    let config = CacheConfig { block_size, ..CacheConfig::dram_only(4) };
    let mut d = Driver::with_volumes(config, 64 << 16);
    let ids: Vec<u64> = (0..40).map(|n| d.request(Op::Write, Flags::NONE, n << 16, 512)).collect();
    d.settle();
    assert!(ids.iter().all(|&id| d.reply_to(id) == Some(Ok(()))));
    let stats = stats(&d);
    assert_eq!(stats.read_modify_writes, 40);
    assert!((30..40).contains(&stats.waits_room), "{}", stats.waits_room);
}
