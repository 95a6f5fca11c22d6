//! Goal: what is part of a long sequential stream goes past the cache, and what would have too much be dirty goes to the
//! store; but what the cache has is found, and is never out of date.
//!
//! Method: memory of four blocks before a log; streams of blocks, after two of which the next go past.

use crate::driver::*;
use forebay_block::{Flags, Op, Request, Volume};
use forebay_cache::{Acknowledge, Bypass, Cache, CacheConfig, Order, VolumeConfig, WritePolicy};

const THROUGH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_THROUGH, Acknowledge::Dram);
const BACK_DRAM: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_BACK, Acknowledge::Dram);
const BACK_FLASH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_BACK, Acknowledge::Flash);
const ALL: [(WritePolicy, Acknowledge); 3] = [THROUGH, BACK_DRAM, BACK_FLASH];

fn with(policy: (WritePolicy, Acknowledge), bypass: Bypass) -> Driver {
    let config = with_flash(policy.0, policy.1);
    let config = CacheConfig { bypass, bounce_frames: 8, spare_frames: 8, ..config };
    Driver::with_so_many_volumes(config, 1024 * BLOCK, 1)
}

fn streams() -> Bypass {
    Bypass { reads: 2 * BLOCK, writes: 2 * BLOCK, dirty_blocks: 0 }
}

#[test]
fn the_first_reads_of_a_stream_come_in_and_the_others_do_not() {
    for policy in ALL {
        let mut d = with(policy, streams());
        (100..103).for_each(|block| read(&mut d, block));
        assert_eq!((d.cache.resident_blocks(), stats(&d).bypassed_reads), (2, 1), "{policy:?}");
        // What another one reads meanwhile comes in.
        read(&mut d, 900);
        read(&mut d, 103);
        assert_eq!((d.cache.resident_blocks(), stats(&d).bypassed_reads), (3, 2), "{policy:?}");
    }
}

#[test]
fn a_stream_finds_what_is_in_the_cache_and_hits_do_not_end_it() {
    let mut d = with(BACK_FLASH, streams());
    write(&mut d, 103);
    (100..106).for_each(|block| read(&mut d, block));
    let hits = d.cache.volume_stats(Volume(0)).expect("a volume").read_hits;
    assert_eq!((hits.tier1, hits.miss), (1, 5));
    assert_eq!(stats(&d).bypassed_reads, 3, "102, 104 and 105");
}

#[test]
fn a_stream_reads_flash_without_bringing_blocks_to_memory() {
    let mut d = with(BACK_FLASH, streams());
    (100..104).for_each(|block| write(&mut d, 900 - block));
    // Others take their place in memory.
    [200, 300, 400, 500].into_iter().for_each(|block| read(&mut d, block));
    (794..799).for_each(|block| read(&mut d, block));
    let hits = d.cache.volume_stats(Volume(0)).expect("a volume").read_hits;
    assert_eq!((hits.tier2, stats(&d).read_through, stats(&d).promotions), (2, 2, 0));
}

#[test]
fn writes_of_a_stream_go_to_the_store_and_leave_nothing() {
    for policy in ALL {
        let mut d = with(policy, streams());
        (100..102).for_each(|block| write(&mut d, block));
        let id = d.write(102);
        assert_eq!((d.count(is_write), d.count(is_flash_write)), (1, 0), "{policy:?}");
        d.settle();
        assert_eq!(d.reply_to(id), Some(Ok(())));
        assert_eq!((d.cache.resident_blocks(), stats(&d).bypassed_writes), (2, 1), "{policy:?}");
        let dirty = if policy.0.write_back { 2 } else { 0 };
        assert_eq!(d.cache.dirty_blocks(), dirty, "{policy:?}");
    }
}

#[test]
fn a_write_of_a_stream_over_dirty_data_takes_its_place() {
    for policy in [BACK_DRAM, BACK_FLASH] {
        let mut d = with(policy, streams());
        write(&mut d, 102);
        (100..102).for_each(|block| write(&mut d, block));
        d.write(102);
        assert_eq!(d.count(is_write), 0, "{policy:?}");
        d.settle();
        assert_eq!((stats(&d).bypassed_writes, d.cache.dirty_blocks()), (0, 3), "{policy:?}");
    }
}

#[test]
fn a_write_of_a_stream_drops_the_clean_block_that_it_outdates() {
    for policy in [BACK_DRAM, BACK_FLASH] {
        let mut d = with(policy, streams());
        read(&mut d, 102);
        (100..103).for_each(|block| write(&mut d, block));
        assert_eq!(stats(&d).bypassed_writes, 1, "{policy:?}");
        d.read(102);
        assert_eq!(d.count(is_read), 1, "{policy:?}: it is read again");
        d.settle();
    }
}

#[test]
fn a_write_of_a_stream_updates_the_block_that_it_is_written_through() {
    for (in_memory, on_flash) in [(true, false), (false, true), (true, true)] {
        let mut d = with(THROUGH, streams());
        read(&mut d, 102);
        if on_flash {
            // Four leave memory, which fill a batch.
            (2..9).for_each(|n| read(&mut d, 100 * n));
        }
        if in_memory && on_flash {
            read(&mut d, 102);
            assert_eq!(stats(&d).promotions, 1);
        }
        let what = (in_memory, on_flash);
        (100..103).for_each(|block| write(&mut d, block));
        let writes = d.cache.volume_stats(Volume(0)).expect("a volume").write_hits;
        let (tier1, tier2) = (u64::from(in_memory), u64::from(!in_memory));
        assert_eq!((writes.tier1, writes.tier2, writes.miss), (tier1, tier2, 2), "{what:?}");
        assert_eq!(stats(&d).poisoned, u64::from(on_flash), "{what:?}: flash has nothing older");
        let id = d.read(102);
        assert_eq!((d.reply_to(id), d.pending.len()), (Some(Ok(())), 0), "{what:?}: memory has it");
        // What the cache lacks goes past it, and that is counted.
        assert_eq!(stats(&d).bypassed_writes, 0, "{what:?}");
        write(&mut d, 103);
        assert_eq!(stats(&d).bypassed_writes, 1, "{what:?}");
        d.read(103);
        assert_eq!(d.count(is_read), 1, "{what:?}");
        d.settle();
    }
}

#[test]
fn a_flush_syncs_what_went_past() {
    let mut d = with(BACK_FLASH, streams());
    (100..103).for_each(|block| write(&mut d, block));
    let id = d.request(Op::Flush, Flags::NONE, 0, 0);
    assert_eq!(d.count(is_sync), 1);
    assert_eq!(d.reply_to(id), None);
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
}

#[test]
fn writes_go_to_the_store_while_too_much_is_dirty() {
    for policy in [BACK_DRAM, BACK_FLASH] {
        let mut d = with(policy, Bypass { dirty_blocks: 3, ..Bypass::default() });
        (0..6).for_each(|block| write(&mut d, 10 * block));
        assert_eq!((d.cache.dirty_blocks(), stats(&d).bypassed_writes), (3, 3), "{policy:?}");
        d.order(Order::Destage);
        d.settle();
        assert_eq!(d.cache.dirty_blocks(), 0);
        write(&mut d, 70);
        assert_eq!((d.cache.dirty_blocks(), stats(&d).bypassed_writes), (1, 3), "{policy:?}");
    }
}

#[test]
fn a_volume_may_be_left_out() {
    let config = CacheConfig { bypass: streams(), ..CacheConfig::dram_only(8) };
    let mut cache = Cache::new(config);
    let attached = VolumeConfig { bypass: false, ..VolumeConfig::new(1 << 20) };
    let volume = cache.attach(attached);
    cache.start(forebay_block::Nanos(0), forebay_cache::Open::RECOVER);
    for n in 0..6 {
        let id = forebay_effect::RequestId(n + 1);
        let time = forebay_block::Nanos(n);
        cache.handle_request(id, Request::new(time, volume, Op::Read, n * BLOCK, BLOCK));
    }
    assert_eq!(cache.stats().bypassed_reads, 0);
}

#[test]
fn a_bypassed_read_of_a_block_that_flash_has_in_part_leaves_memory_as_it_was() {
    let mut d = with(BACK_FLASH, streams());
    // Half of block 102 is on flash, and not in memory.
    let id = d.request(Op::Write, Flags::NONE, 102 * BLOCK, BLOCK / 2);
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
    [200, 300, 400, 500].into_iter().for_each(|block| read(&mut d, block));
    (100..102).for_each(|block| read(&mut d, block));
    let before = d.cache.resident_blocks();
    let appended = d.cache.log_stats().expect("a log").entries;
    read(&mut d, 102);
    assert_eq!(d.cache.resident_blocks(), before);
    assert_eq!(d.cache.log_stats().expect("a log").entries, appended, "nothing is written for it");
    read(&mut d, 103);
    assert_eq!(stats(&d).bypassed_reads, 1, "103: of 102 the cache had a part");
}
