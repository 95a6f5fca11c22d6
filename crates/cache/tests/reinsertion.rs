//! Goal: records that flash itself was asked for often are kept when their region is reclaimed, within bounds;
//! and blocks move from flash to memory when they have been read there often enough.
//!
//! Method: a log of four small regions, memory of four blocks, and reads one after the other, so that it is
//! known which record stands in which region.

use crate::driver::*;
use forebay_block::{Flags, Op, Volume};
use forebay_cache::{
    Acknowledge, CacheConfig, CacheStats, FlashLayout, LogReplacement, WritePolicy,
};

fn with(replacement: LogReplacement, promote_after: u8, write_policy: WritePolicy) -> Driver {
    Driver::new(config(replacement, promote_after, write_policy))
}

fn config(
    replacement: LogReplacement,
    promote_after: u8,
    write_policy: WritePolicy,
) -> CacheConfig {
    let mut config = with_flash(write_policy, Acknowledge::Dram);
    let flash = config.flash.as_mut().expect("there is flash");
    (flash.layout, flash.promote_after) = (FlashLayout::Log { replacement }, promote_after);
    CacheConfig { bounce_frames: 8, spare_frames: 8, ..config }
}

fn through(replacement: LogReplacement, promote_after: u8) -> Driver {
    with(replacement, promote_after, WritePolicy::WRITE_THROUGH)
}

fn stats(d: &Driver) -> CacheStats {
    *d.cache.stats()
}

fn read(d: &mut Driver, block: u64) {
    let id = d.read(block);
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
}

/// Whether a read of the block is a hit on flash.
fn is_on_flash(d: &mut Driver, block: u64) -> bool {
    let hits = |d: &Driver| d.cache.volume_stats(Volume(0)).expect("a volume").read_hits.tier2;
    let before = hits(d);
    read(d, block);
    hits(d) > before
}

fn reclaimed(d: &Driver) -> u64 {
    d.cache.log_stats().expect("a log").regions_reclaimed
}

/// Reads blocks that were never read until the next region has been reclaimed.
fn fill(d: &mut Driver, from: &mut u64) {
    let before = reclaimed(d);
    while reclaimed(d) == before {
        read(d, *from);
        *from += 1;
        assert!(*from < 64, "no region is reclaimed");
    }
}

/// The blocks of the first region, in memory no more.
fn first_region(d: &mut Driver) -> u64 {
    (0..12).for_each(|block| read(d, block));
    12
}

#[test]
fn which_records_are_inserted_again_follows_from_how_often_they_were_read_from_flash() {
    use LogReplacement::{Fifo, Frequency, Popularity, SecondChance};
    for (replacement, kept) in [
        (Fifo, [false, false, false]),
        (SecondChance, [false, true, true]),
        (Frequency, [false, false, true]),
        // Twelve blocks are on flash or in flight; each reading is near the one before.
        (Popularity, [false, true, true]),
    ] {
        let mut d = through(replacement, u8::MAX);
        let mut next = first_region(&mut d);
        for (block, readings) in [(1, 1), (2, 2)] {
            (0..readings).for_each(|_| assert!(is_on_flash(&mut d, block)));
        }
        fill(&mut d, &mut next);
        let there = kept.iter().filter(|&&kept| kept).count() as u64;
        assert_eq!(stats(&d).reinserted, there, "{replacement:?}");
        // The first region held eight records, and each was outdated by nothing.
        assert_eq!(stats(&d).reclaim_dropped + there, 8, "{replacement:?}");
        assert_eq!(stats(&d).records_outdated, 0, "{replacement:?}");
        for (block, kept) in kept.into_iter().enumerate() {
            assert_eq!(is_on_flash(&mut d, block as u64), kept, "{replacement:?}, block {block}");
        }
    }
}

#[test]
fn half_a_region_is_inserted_again_at_most_and_what_was_read_most_comes_first() {
    let mut d = through(LogReplacement::Frequency, u8::MAX);
    let mut next = first_region(&mut d);
    for block in 0..8 {
        let readings = 2 + block % 4;
        (0..readings).for_each(|_| assert!(is_on_flash(&mut d, block), "block {block}"));
    }
    fill(&mut d, &mut next);
    // Of eleven pages five: a header and four records.
    assert_eq!(stats(&d).reinserted, 4);
    let there: Vec<u64> = (0..8).filter(|&block| is_on_flash(&mut d, block)).collect();
    assert_eq!(there, [2, 3, 6, 7]);
}

#[test]
fn more_records_than_a_batch_takes_are_inserted_again_in_several_batches() {
    let config = config(LogReplacement::Frequency, u8::MAX, WritePolicy::WRITE_THROUGH);
    let mut d = Driver::new(CacheConfig { bounce_frames: 4, ..config });
    let mut next = first_region(&mut d);
    for block in 0..8 {
        let readings = 2 + block % 4;
        (0..readings).for_each(|_| assert!(is_on_flash(&mut d, block), "block {block}"));
    }
    fill(&mut d, &mut next);
    // A batch takes the records of half the bounce frames. Of eleven pages five: two headers and three records.
    assert_eq!(stats(&d).reinserted, 3);
    let there: Vec<u64> = (0..8).filter(|&block| is_on_flash(&mut d, block)).collect();
    assert_eq!(there, [2, 3, 7]);
}

#[test]
fn what_is_not_read_again_is_inserted_again_only_so_often() {
    // Read five times: it counts as five, two, one.
    let mut d = through(LogReplacement::Frequency, u8::MAX);
    let mut next = first_region(&mut d);
    (0..5).for_each(|_| assert!(is_on_flash(&mut d, 3)));
    let mut all = 0;
    while next < 60 {
        read(&mut d, next);
        next += 1;
        all = stats(&d).reinserted;
    }
    assert!(reclaimed(&d) >= 3, "{}", reclaimed(&d));
    assert!((1..=2).contains(&all), "{all}");
    assert_eq!(d.cache.log_stats().expect("a log").carried_bytes, all * BLOCK);
}

#[test]
fn a_newer_version_begins_with_no_readings() {
    for replacement in [LogReplacement::Frequency, LogReplacement::Popularity] {
        let mut d = with(replacement, u8::MAX, WritePolicy::WRITE_BACK);
        let mut next = first_region(&mut d);
        (0..4).for_each(|_| assert!(is_on_flash(&mut d, 3)));
        let write = d.write(3);
        d.settle();
        assert_eq!(d.reply_to(write), Some(Ok(())));
        for _ in 0..3 {
            fill(&mut d, &mut next);
        }
        assert_eq!(stats(&d).reinserted, 0, "{replacement:?}");
    }
}

#[test]
fn a_reading_makes_a_block_the_less_popular_the_more_was_used_since_the_last_one() {
    // Of two blocks, each read twice, one is read again at once, the other after half of those on flash.
    let mut d = through(LogReplacement::Popularity, u8::MAX);
    let mut next = first_region(&mut d);
    let (near, far) = (2, 5);
    assert!(is_on_flash(&mut d, far));
    (0..2).for_each(|_| assert!(is_on_flash(&mut d, near)));
    for block in [0, 1, 3, 4, 6, 7] {
        assert!(is_on_flash(&mut d, block), "block {block}");
    }
    assert!(is_on_flash(&mut d, far));
    fill(&mut d, &mut next);
    // Of eleven pages five: a header and four records, the most popular first.
    assert_eq!(stats(&d).reinserted, 4);
    assert!(is_on_flash(&mut d, near) && is_on_flash(&mut d, far), "read twice");
}

#[test]
fn what_is_not_read_again_becomes_less_popular_each_time_that_it_is_inserted_again() {
    let mut d = through(LogReplacement::Popularity, u8::MAX);
    let mut next = first_region(&mut d);
    (0..3).for_each(|_| assert!(is_on_flash(&mut d, 3)));
    while next < 60 {
        read(&mut d, next);
        next += 1;
    }
    // Close to three, then half of that, then too little.
    assert!(reclaimed(&d) >= 3, "{}", reclaimed(&d));
    assert!((1..=2).contains(&stats(&d).reinserted), "{}", stats(&d).reinserted);
}

#[test]
fn a_block_in_memory_is_not_inserted_again() {
    let mut d = through(LogReplacement::Frequency, 2);
    let mut next = first_region(&mut d);
    (0..2).for_each(|_| assert!(is_on_flash(&mut d, 3)));
    let before = reclaimed(&d);
    while reclaimed(&d) == before {
        read(&mut d, next);
        next += 1;
        // It stays in memory.
        read(&mut d, 3);
    }
    assert_eq!(stats(&d).reinserted, 0);
}

#[test]
fn a_block_moves_to_memory_at_the_reading_that_it_is_to() {
    let mut d = through(LogReplacement::Fifo, 3);
    first_region(&mut d);
    for reading in 1..=3 {
        assert!(is_on_flash(&mut d, 0), "reading {reading}");
        assert_eq!(stats(&d).promotions, u64::from(reading == 3));
        // Those in memory are still there, until one gives way.
        assert_eq!(stats(&d).read_through, reading.min(2));
    }
    assert!(!is_on_flash(&mut d, 0), "it is in memory");
    let tier1 = d.cache.volume_stats(Volume(0)).expect("a volume").read_hits.tier1;
    assert_eq!(tier1, 1);
    assert!(!is_on_flash(&mut d, 11), "it was in memory all the time");
}

#[test]
fn who_waits_for_a_block_that_only_passes_is_served_and_who_writes_it_keeps_it() {
    for write_policy in [WritePolicy::WRITE_THROUGH, WritePolicy::WRITE_BACK] {
        let mut d = with(LogReplacement::Fifo, u8::MAX, write_policy);
        first_region(&mut d);
        let told = d.cache.accesses_told();
        let ids = [d.read(0), d.read(0), d.write(0), d.read(0)];
        assert_eq!(d.count(is_flash_read), 1);
        d.settle();
        for id in ids {
            assert_eq!(d.reply_to(id), Some(Ok(())), "{write_policy:?}");
        }
        assert_eq!(stats(&d).read_through, 1);
        assert!(d.cache.accesses_told() - told <= 2, "the write, and the read behind it");
        assert!(!is_on_flash(&mut d, 0), "what was written is in memory");
    }
}

#[test]
fn a_part_that_flash_has_not_brings_the_block_into_memory() {
    let mut d = with(LogReplacement::Fifo, u8::MAX, WritePolicy::WRITE_BACK);
    // Half a block goes to flash.
    d.request(Op::Write, Flags::NONE, 0, BLOCK / 2);
    (1..12).for_each(|block| read(&mut d, block));
    d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
    assert!(is_on_flash(&mut d, 0));
    assert_eq!((stats(&d).read_through, stats(&d).promotions), (0, 1));
}
