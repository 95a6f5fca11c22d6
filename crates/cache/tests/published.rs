//! Goal: a block is published only while the frame that is named holds all of its newest data, and the policy and the
//! counters hear of reads that were no calls.
//!
//! Method: one access at a time. (The adversary reads published blocks between any two effects.)

use crate::driver::*;
use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_cache::{Cache, CacheConfig, Order, StopTarget, WritePolicy};

const VOLUME: Volume = Volume(0);

fn memory() -> Driver {
    Driver::new(CacheConfig { write_policy: WritePolicy::WRITE_BACK, ..CacheConfig::dram_only(4) })
}

#[test]
fn a_block_is_published_as_a_whole_and_under_its_key() {
    let mut d = memory();
    assert!(d.cache.publish(VOLUME, 3 * BLOCK).is_none(), "it is not there");
    d.request(Op::Write, Flags::NONE, 3 * BLOCK, 512);
    assert!(d.cache.publish(VOLUME, 3 * BLOCK).is_none(), "only a part is");
    d.write(3);
    let (key, frame) = d.cache.publish(VOLUME, 3 * BLOCK + 1024).unwrap();
    assert_eq!(Cache::key_of(VOLUME, 3), Some(key));
    assert_eq!(d.cache.publish(VOLUME, 3 * BLOCK), Some((key, frame)), "it stays so");
    assert_eq!(d.cache.poll_withdrawn(), None);
    d.read(3);
    assert_eq!(d.cache.poll_withdrawn(), None, "a hit changes nothing");
    d.write(3);
    assert_eq!(d.cache.poll_withdrawn(), Some(frame));
    assert_eq!(d.cache.poll_withdrawn(), None);
}

#[test]
fn a_block_that_reaches_beyond_its_volume_is_not_published() {
    let mut d = Driver::with_volumes(CacheConfig::dram_only(4), 5 * BLOCK + 512);
    d.read(4);
    d.request(Op::Read, Flags::NONE, 5 * BLOCK, 512);
    d.settle();
    assert!(d.cache.publish(VOLUME, 4 * BLOCK).is_some());
    assert!(d.cache.publish(VOLUME, 5 * BLOCK).is_none());
    assert!(d.cache.publish(Volume(7), 0).is_none(), "there is no such volume");
    assert!(
        Cache::key_of(Volume(1 << 16), 0).is_none() && Cache::key_of(VOLUME, 1 << 50).is_none()
    );
}

#[test]
fn a_block_that_is_being_fetched_or_leaves_is_not_published() {
    let mut d = memory();
    d.read(1);
    assert!(d.cache.publish(VOLUME, BLOCK).is_none());
    d.settle();
    let (_, frame) = d.cache.publish(VOLUME, BLOCK).unwrap();
    // Others push it out.
    for block in 2..20 {
        d.read(block);
        d.settle();
    }
    assert_eq!(d.cache.poll_withdrawn(), Some(frame));
    assert!(d.cache.publish(VOLUME, BLOCK).is_none());
}

#[test]
fn a_trim_withdraws_and_a_stopped_cache_publishes_nothing() {
    let mut d = memory();
    d.write(1);
    d.write(2);
    let (_, frame) = d.cache.publish(VOLUME, BLOCK).unwrap();
    d.request(Op::Trim, Flags::NONE, BLOCK, BLOCK);
    assert_eq!(d.cache.poll_withdrawn(), Some(frame));
    d.order(Order::Stop(StopTarget::Flash));
    assert!(d.cache.publish(VOLUME, 2 * BLOCK).is_none());
}

/// Reads that are reported late leave the same blocks in memory as calls would have, and the same counts.
#[test]
fn what_was_read_without_calls_counts_as_calls_do() {
    let run = |report: bool| {
        let mut d = memory();
        for block in [0, 1, 2, 3] {
            d.read(block);
            d.settle();
        }
        // The oldest two are read again, so that the next two to leave are the others.
        for block in [1, 0] {
            match report {
                true => d.cache.note_hit(Nanos(d.next), VOLUME, block * BLOCK, BLOCK),
                false => _ = d.read(block),
            }
        }
        for block in [10, 11] {
            d.read(block);
            d.settle();
        }
        let here: Vec<bool> =
            [0, 1, 2, 3].map(|block| d.cache.publish(VOLUME, block * BLOCK).is_some()).into();
        (here, d.cache.accesses_told(), *d.cache.volume_stats(VOLUME).unwrap())
    };
    let (here, told, stats) = run(true);
    assert_eq!(here, [true, true, false, false]);
    assert_eq!((told, stats.reads, stats.read_hits.tier1), (8, 8, 2));
    let (as_calls, told_as_calls, stats_of_calls) = run(false);
    assert_eq!((here, told, stats), (as_calls, told_as_calls, stats_of_calls));
}

#[test]
fn a_read_of_a_block_that_has_left_since_is_counted_as_the_hit_that_it_was() {
    let mut d = memory();
    let told = d.cache.accesses_told();
    d.cache.note_hit(Nanos(9), VOLUME, 30 * BLOCK, 1024);
    d.cache.note_hit(Nanos(9), Volume(9), 0, 512);
    let stats = d.cache.volume_stats(VOLUME).unwrap();
    assert_eq!((stats.reads, stats.read_bytes, stats.read_hits.tier1), (1, 1024, 1));
    assert_eq!(d.cache.accesses_told(), told);
}
