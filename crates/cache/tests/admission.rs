//! Goal: what the admission policy keeps from flash does not go there, and what has to go there does, whatever the
//! policy says.
//!
//! Method: memory of four blocks before a log; a policy that admits a block at its second access, or at none.

use crate::driver::*;
use forebay_block::{Flags, Op, Volume};
use forebay_cache::{
    Acknowledge, AdmissionKind, AdmissionParameters, CacheConfig, Relation, WritePolicy, Written,
};
use forebay_effect::IoError;

const THROUGH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_THROUGH, Acknowledge::Dram);
const BACK_DRAM: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_BACK, Acknowledge::Dram);
const BACK_FLASH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_BACK, Acknowledge::Flash);

fn nhit(hits: u32) -> AdmissionParameters {
    let mut parameters = AdmissionParameters::new(AdmissionKind::Nhit);
    parameters.set("hits", hits).unwrap();
    parameters
}

fn with(policy: (WritePolicy, Acknowledge), admission: AdmissionParameters) -> Driver {
    let mut config = with_flash(policy.0, policy.1);
    config.flash.as_mut().expect("there is flash").admission = admission;
    let config = CacheConfig { bounce_frames: 8, spare_frames: 8, ..config };
    Driver::with_so_many_volumes(config, 64 * BLOCK, 1)
}

fn with_written(
    policy: (WritePolicy, Acknowledge),
    admission: AdmissionParameters,
    written: Written,
) -> Driver {
    let mut config = with_flash(policy.0, policy.1);
    let flash = config.flash.as_mut().expect("there is flash");
    (flash.admission, flash.written) = (admission, written);
    let config = CacheConfig { bounce_frames: 8, spare_frames: 8, ..config };
    Driver::with_so_many_volumes(config, 64 * BLOCK, 1)
}

/// Which device the first effect under way is for.
fn goes_to_store(d: &Driver) -> bool {
    d.count(is_write) == 1 && d.count(is_flash_write) == 0
}

#[test]
fn a_block_that_was_read_once_leaves_and_one_that_was_read_again_enters() {
    for policy in [THROUGH, BACK_DRAM, BACK_FLASH] {
        let mut d = with(policy, nhit(2));
        (0..12).for_each(|block| read(&mut d, block));
        // Eight have left for the four that are there.
        assert_eq!((stats(&d).admitted, stats(&d).not_admitted), (0, 8), "{policy:?}");
        assert_eq!(records(&d), 0);
        // They are remembered: the second access counts, and they enter when they leave again.
        (0..4).for_each(|block| read(&mut d, block));
        (20..24).for_each(|block| read(&mut d, block));
        assert_eq!(stats(&d).admitted, 4, "{policy:?}");
        flush(&mut d);
        assert_eq!((stats(&d).demotions, records(&d)), (4, 4));
    }
}

#[test]
fn a_block_that_came_from_flash_goes_back_whatever_it_was_used_for() {
    let mut d = with(BACK_FLASH, nhit(3));
    for _ in 0..3 {
        read(&mut d, 7);
    }
    (0..4).for_each(|block| read(&mut d, block));
    flush(&mut d);
    assert_eq!(stats(&d).admitted, 1);
    // It is read from flash, overwritten there, and needs no admission any more.
    read(&mut d, 7);
    assert_eq!(stats(&d).promotions, 1);
    write(&mut d, 7);
    assert_eq!((stats(&d).admitted, stats(&d).not_admitted), (1, 1));
    assert_eq!(d.cache.dirty_blocks(), 1);
}

#[test]
fn a_write_that_is_not_admitted_goes_to_the_store_and_stays_in_memory() {
    let mut d = with(BACK_FLASH, nhit(2));
    let id = d.write(3);
    assert!(goes_to_store(&d), "{:?}", d.pending);
    assert_eq!(d.reply_to(id), None, "it is answered when the store has it");
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
    assert_eq!((stats(&d).not_admitted, records(&d), d.cache.dirty_blocks()), (1, 0, 0));
    let before = d.cache.volume_stats(forebay_block::Volume(0)).unwrap().read_hits.tier1;
    let id = d.read(3);
    assert_eq!(d.reply_to(id), Some(Ok(())), "memory has it");
    let stats_now = d.cache.volume_stats(forebay_block::Volume(0)).unwrap();
    assert_eq!(stats_now.read_hits.tier1, before + 1);
    // The next write is the third access.
    d.write(3);
    assert_eq!((d.count(is_write), d.count(is_flash_write)), (0, 1));
    d.settle();
    assert_eq!((stats(&d).admitted, d.cache.dirty_blocks()), (1, 1));
}

#[test]
fn a_write_that_the_store_refuses_is_an_error_and_the_store_is_asked_anew() {
    let mut d = with(BACK_FLASH, nhit(2));
    let id = d.write(3);
    d.complete_first(is_write, Err(IoError::Device));
    d.settle();
    assert_eq!(d.reply_to(id), Some(Err(IoError::Device)));
    d.read(3);
    assert_eq!(d.count(is_read), 1, "nobody knows what the store has");
    d.settle();
}

#[test]
fn what_has_to_go_to_flash_goes_there() {
    // A newer version of what flash holds, under a policy that admits nothing.
    let mut none = AdmissionParameters::new(AdmissionKind::Random);
    none.set("probability", 0).unwrap();
    let mut d = with(BACK_FLASH, nhit(2));
    write(&mut d, 5);
    write(&mut d, 5);
    assert_eq!((stats(&d).admitted, d.cache.dirty_blocks()), (1, 1));
    let asked = (stats(&d).admitted, stats(&d).not_admitted);
    write(&mut d, 5);
    assert_eq!((stats(&d).admitted, stats(&d).not_admitted), asked, "nobody is asked");
    // What is dirty in memory, for a flush.
    let mut d = with(BACK_DRAM, none);
    (0..4).for_each(|block| write(&mut d, block));
    let dirty = (d.cache.dirty_blocks(), d.cache.dirty_in_memory());
    flush(&mut d);
    let after = (d.cache.dirty_blocks(), d.cache.dirty_in_memory());
    assert_eq!((dirty, after), ((4, 4), (4, 0)));
    assert_eq!((stats(&d).admitted, stats(&d).not_admitted), (0, 0));
    // A write with FUA, too.
    let mut d = with(BACK_DRAM, none);
    d.request(Op::Write, Flags::FUA, 0, BLOCK);
    assert_eq!((d.count(is_write), d.count(is_flash_write)), (0, 1));
    d.settle();
    assert_eq!(d.cache.dirty_blocks(), 1);
    // A zeroing of a cached block is a version like another.
    let mut d = with(BACK_FLASH, none);
    read(&mut d, 1);
    done(&mut d, Op::WriteZeroes, Flags::NONE, 1);
    assert_eq!((d.cache.dirty_blocks(), stats(&d).not_admitted), (1, 0));
}

#[test]
fn under_write_through_a_block_is_marked_once_before_it_enters() {
    let mut d = with(THROUGH, nhit(2));
    for block in [1, 1, 2, 2, 3, 3, 4, 4] {
        write(&mut d, block);
    }
    // The store may yet lose what it was written: its extent is marked, then it enters.
    (10..14).for_each(|block| read(&mut d, block));
    assert_eq!((stats(&d).admitted, stats(&d).demotions), (4, 4));
    d.read(1);
    assert_eq!(d.count(is_flash_read), 1, "it is on flash");
    d.settle();
}

#[test]
fn of_each_write_it_is_asked_once() {
    let mut d = with(BACK_FLASH, nhit(200));
    for n in 0..100 {
        write(&mut d, n % 4);
    }
    assert_eq!((stats(&d).admitted, stats(&d).not_admitted), (0, 100));
    // More than there are frames: some wait for one, and are evaluated again.
    let before = stats(&d).waits_room;
    let ids: Vec<u64> = (10..40).map(|block| d.write(block)).collect();
    assert!(stats(&d).waits_room > before);
    d.settle();
    assert!(ids.iter().all(|&id| d.reply_to(id) == Some(Ok(()))));
    let asked_of_writes = stats(&d).admitted + stats(&d).not_admitted - 100;
    // Of the blocks that left memory meanwhile it was asked, too.
    assert_eq!(asked_of_writes, 30 + stats(&d).evictions);
}

#[test]
fn what_was_admitted_once_enters_again_when_a_write_has_voided_its_record() {
    let mut d = with(THROUGH, nhit(3));
    for block in [5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8] {
        read(&mut d, block);
    }
    (20..24).for_each(|block| read(&mut d, block));
    assert_eq!((stats(&d).admitted, records(&d)), (4, 4));
    // One is in memory when it is written, the other on flash only.
    read(&mut d, 7);
    assert_eq!(stats(&d).promotions, 1);
    write(&mut d, 7);
    write(&mut d, 8);
    assert_eq!(stats(&d).poisoned, 2);
    (30..34).for_each(|block| read(&mut d, block));
    assert_eq!(stats(&d).admitted, 6, "{:?}", stats(&d));
}

#[test]
fn flash_takes_writes_while_the_store_fails() {
    let mut d = with(BACK_FLASH, nhit(2));
    d.write(3);
    d.complete_first(is_write, Err(IoError::Device));
    let id = d.write(4);
    assert_eq!((d.count(is_write), d.count(is_flash_write)), (0, 1));
    d.settle();
    assert_eq!((d.reply_to(id), d.cache.dirty_blocks()), (Some(Ok(())), 1));
    assert_eq!((stats(&d).not_admitted, stats(&d).written_around), (1, 1));
}

/// Memory of four blocks that acknowledges writes, and a policy that admits at the second access.
fn dirty_and_refused() -> Driver {
    let mut d = with(BACK_DRAM, nhit(2));
    (0..4).for_each(|block| write(&mut d, 10 * block));
    d
}

#[test]
fn a_dirty_block_that_is_not_admitted_leaves_for_the_store() {
    let mut d = dirty_and_refused();
    d.write(50);
    assert_eq!((d.count(is_write), d.count(is_flash_write)), (1, 0));
    d.settle();
    assert_eq!((stats(&d).destaged_around, stats(&d).not_admitted), (1, 1), "it is asked once");
    assert_eq!((d.cache.dirty_blocks(), records(&d)), (4, 0));
    // One that was written twice enters.
    write(&mut d, 10);
    [60, 61, 62, 63].into_iter().for_each(|block| write(&mut d, block));
    flush(&mut d);
    assert!(stats(&d).admitted >= 1, "{:?}", stats(&d));
}

#[test]
fn flash_takes_what_the_store_does_not_and_a_flush_does_not_fail() {
    let mut d = dirty_and_refused();
    d.write(50);
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.complete_first(is_write, Err(IoError::Device));
    d.settle();
    assert_eq!(d.reply_to(flush), Some(Ok(())), "flash has it");
    assert_eq!((records(&d), stats(&d).destaged_around), (5, 1));
}

#[test]
fn a_flush_waits_for_what_is_on_its_way_to_the_store_and_syncs_it() {
    let mut d = dirty_and_refused();
    d.write(50);
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    while d.count(|e| !is_write(e) && !is_sync(e)) > 0 {
        d.complete_first(|e| !is_write(e) && !is_sync(e), Ok(()));
    }
    assert_eq!((d.reply_to(flush), d.count(is_sync)), (None, 0));
    d.complete_first(is_write, Ok(()));
    while d.count(|e| !is_sync(e)) > 0 {
        d.complete_first(|e| !is_sync(e), Ok(()));
    }
    assert_eq!((d.reply_to(flush), d.count(is_sync)), (None, 1));
    d.settle();
    assert_eq!(d.reply_to(flush), Some(Ok(())));
}

#[test]
fn a_block_that_is_wanted_while_it_goes_to_the_store_is_asked_again_when_it_leaves_again() {
    let mut d = dirty_and_refused();
    d.write(50);
    let id = d.read(0);
    assert_eq!(d.reply_to(id), Some(Ok(())), "memory still has it");
    d.settle();
    assert_eq!(stats(&d).rescued, 1);
    let asked = stats(&d).admitted + stats(&d).not_admitted;
    [60, 61, 62, 63].into_iter().for_each(|block| read(&mut d, block));
    assert!(stats(&d).admitted + stats(&d).not_admitted > asked);
    assert_eq!(stats(&d).admitted, 1, "its second access was the read");
}

#[test]
fn what_is_written_may_be_let_in_or_kept_out_whatever_the_policy_says() {
    // Let in: the policy would refuse the first access, and nobody asks it.
    for policy in [BACK_FLASH, BACK_DRAM] {
        let mut d = with_written(policy, nhit(2), Written::Enter);
        (0..8).for_each(|block| write(&mut d, block));
        flush(&mut d);
        let s = stats(&d);
        assert_eq!((s.admitted, s.not_admitted, records(&d)), (0, 0, 8), "{policy:?}");
    }
    // Kept out, though the policy would let in everything; what was read enters.
    for policy in [BACK_FLASH, BACK_DRAM] {
        let mut d = with_written(policy, AdmissionParameters::default(), Written::Avoid);
        (0..8).for_each(|block| write(&mut d, block));
        flush(&mut d);
        (20..24).for_each(|block| read(&mut d, block));
        let s = stats(&d);
        let around = s.written_around + s.destaged_around;
        // The flush puts on flash what memory has acknowledged and still holds.
        let flushed = if policy == BACK_DRAM { 4 } else { 0 };
        assert_eq!((around, d.cache.dirty_blocks()), (8 - flushed, flushed), "{policy:?}");
        assert!(s.admitted == 0 && s.not_admitted >= around, "{policy:?}");
        [30, 31, 32, 33].into_iter().for_each(|block| read(&mut d, block));
        assert!(stats(&d).demotions >= 4, "{policy:?}: what was read enters");
    }
    // A newer version of what flash has goes there.
    let mut d = with_written(BACK_FLASH, AdmissionParameters::default(), Written::Avoid);
    (0..8).for_each(|block| read(&mut d, block));
    flush(&mut d);
    assert_eq!(records(&d), 4);
    write(&mut d, 0);
    assert_eq!((stats(&d).written_around, d.cache.dirty_blocks()), (0, 1));
}

/// Flash takes what is read and, as far as possible, nothing that is written.
fn read_cache(policy: (WritePolicy, Acknowledge), relation: Relation) -> Driver {
    let mut config = with_flash(policy.0, policy.1);
    config.flash.as_mut().expect("there is flash").written = Written::Avoid;
    let config = CacheConfig { relation, bounce_frames: 8, spare_frames: 8, ..config };
    Driver::with_so_many_volumes(config, 64 * BLOCK, 1)
}

fn syncs(d: &Driver) -> u64 {
    d.cache.volume_stats(Volume(0)).expect("a volume").backing_syncs
}

#[test]
fn what_is_read_enters_though_clients_write_near_it_and_never_flush() {
    for (policy, relation) in [
        (BACK_FLASH, Relation::Exclusive),
        (BACK_DRAM, Relation::Exclusive),
        (BACK_FLASH, Relation::Inclusive),
        (BACK_FLASH, Relation::Eci),
    ] {
        let mut d = read_cache(policy, relation);
        let before = syncs(&d);
        // Each round writes one block and reads sixteen that were not read yet.
        for round in 0..3 {
            write(&mut d, 0);
            (1..17).for_each(|n| read(&mut d, 16 * round + n));
        }
        let of_48 = records(&d);
        assert!((28..48).contains(&of_48), "{policy:?} {relation:?}: {of_48}");
        assert!((1..=3).contains(&(syncs(&d) - before)), "{policy:?} {relation:?}");
        assert_eq!(d.cache.dirty_in_memory(), d.cache.dirty_blocks(), "nothing on flash is dirty");
    }
}

#[test]
fn stores_are_not_synced_for_flash_before_enough_blocks_were_kept_out() {
    let mut d = read_cache(BACK_FLASH, Relation::Exclusive);
    let before = syncs(&d);
    // Each block that leaves is kept out, whatever was synced.
    for n in 0..48 {
        write(&mut d, 63);
        read(&mut d, n);
    }
    let kept_out = stats(&d).evictions;
    assert!(kept_out >= 40, "{kept_out}");
    assert!((syncs(&d) - before).abs_diff(kept_out / 4) <= 1, "{} of {kept_out}", syncs(&d));
    // Nor while a sync is under way, nor where one has failed.
    write(&mut d, 63);
    for n in 0..12 {
        d.read(n);
        while d.count(|e| !is_sync(e)) > 0 {
            d.complete_first(|e| !is_sync(e), Ok(()));
        }
    }
    assert_eq!(d.count(is_sync), 1);
    d.complete_first(is_sync, Err(IoError::Device));
    (12..30).for_each(|n| _ = d.read(n));
    assert_eq!(d.count(is_sync), 0);
    d.settle();
}
