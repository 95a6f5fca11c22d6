//! The contract of the state machine, claim by claim, without bytes.

use std::collections::HashSet;

use crate::driver::*;
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, CacheConfig, DestageError, FlashConfig, Notice, Order, StopTarget, StoresLeft,
    WritePolicy,
};
use forebay_effect::{Effect, IoError, Place, RequestId, Token};

#[test]
fn two_reads_of_a_missing_block_share_one_fetch() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    let (a, b) = (d.read(3), d.read(3));
    assert_eq!(d.count(is_read), 1);
    assert_eq!((d.reply_to(a), d.reply_to(b)), (None, None));
    d.settle();
    assert_eq!((d.reply_to(a), d.reply_to(b)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_hit_is_one_copy_and_one_reply_and_asks_nothing_of_a_device() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    d.read(3);
    d.settle();
    let copies = d.copies;
    let hit = d.read(3);
    assert_eq!(d.reply_to(hit), Some(Ok(())));
    assert_eq!(d.copies, copies + 1);
    assert!(d.pending.is_empty());
}

#[test]
fn consecutive_missing_blocks_are_fetched_with_one_read() {
    let mut d = Driver::new(CacheConfig::dram_only(8));
    d.request(Op::Read, Flags::NONE, 0, 4 * BLOCK);
    assert_eq!(d.pending.len(), 1);
    let (effect, segments) = &d.pending[0];
    assert!(
        matches!(effect, Effect::Read { offset: 0, length, .. } if u64::from(*length) == 4 * BLOCK)
    );
    assert_eq!(segments.len(), 4, "one frame a block");
}

#[test]
fn a_fetch_that_makes_dirty_blocks_leave_is_still_one_read_and_they_are_one_write() {
    let mut d = Driver::new(CacheConfig::dram_only(32));
    d.request(Op::Write, Flags::NONE, 0, 32 * BLOCK);
    assert!(d.pending.is_empty());
    d.request(Op::Read, Flags::NONE, 40 * BLOCK, 4 * BLOCK);
    let effects: Vec<_> = d.pending.iter().map(|(e, _)| operation(e)).collect();
    assert_eq!(effects, [('r', 40, 4), ('w', 0, 4)]);
}

/// Fills flash with dirty blocks 0 to 3, none of them in DRAM, and asks for them to be destaged.
fn destage_four() -> Driver {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram));
    for block in [0, 1, 2, 3, 20, 30, 40, 50] {
        d.write(block);
        d.settle();
    }
    d.order(Order::Destage);
    // DRAM to flash first; then the records are read.
    while d.count(is_flash_read) == 0 {
        d.complete_first(|e| !is_flash_read(e), Ok(()));
    }
    d
}

/// Makes the calls that the cache asks for at once; there is an end to them though nothing completes.
fn call_while_half_way(d: &mut Driver) {
    for _ in 0..1000 {
        if !d.cache.is_half_way() {
            return;
        }
        let now = d.cache.poll_timeout().expect("what is left half-way is due");
        d.cache.handle_timeout(now);
        d.poll();
    }
    panic!("calls follow on calls for ever, and nothing is done in them");
}

#[test]
fn destages_that_wait_for_busy_blocks_ask_for_no_call_before_that_is_over() {
    let mut config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    // There are enough regions and extents that none is reclaimed.
    let geometry = &mut config.flash.as_mut().expect("a flash tier").geometry;
    (geometry.regions, geometry.active_extents_max) = (12, 20);
    // Two destages go on at a time, and a call has one step for both.
    let config =
        CacheConfig { shards: 2, stripe_shift: 16, dram_blocks: 8, call_steps: 1, ..config };
    let mut d = Driver::new(config);
    let complete = |d: &mut Driver, held: &[Option<Token>]| {
        let may = |e: &Effect| !is_flash_read(e) || !held.contains(&e.token());
        call_while_half_way(d);
        while d.count(may) > 0 {
            d.complete_first(may, Ok(()));
            call_while_half_way(d);
        }
    };
    let blocks = || (0..64).step_by(3);
    for block in blocks() {
        let write = d.write(block);
        complete(&mut d, &[]);
        assert_eq!(d.reply_to(write), Some(Ok(())));
    }
    d.request(Op::Flush, Flags::NONE, 0, 0);
    complete(&mut d, &[]);
    let reads: Vec<_> = blocks().take(10).map(|block| d.read(block)).collect();
    call_while_half_way(&mut d);
    let reading = d.pending.iter().map(|(e, _)| e).filter(|e| is_flash_read(e));
    let held: Vec<_> = reading.map(Effect::token).collect();
    let owners: HashSet<_> = held.iter().flatten().map(|token| token.owner).collect();
    assert!(owners.len() == 2, "both shards read from flash");
    d.order(Order::Destage);
    complete(&mut d, &held);
    assert!(d.cache.dirty_blocks() > 0, "the blocks that are read are not destaged yet");
    assert!(reads.iter().all(|&read| d.reply_to(read).is_none()));
    complete(&mut d, &[]);
    assert!(reads.iter().all(|&read| d.reply_to(read) == Some(Ok(()))));
    assert_eq!(d.cache.dirty_blocks(), 0);
}

#[test]
fn a_destage_depth_beyond_what_can_be_in_flight_takes_no_memory() {
    let memory = |destage_depth| {
        let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
        Driver::new(CacheConfig { destage_depth, ..config }).cache.memory_bytes()
    };
    assert_eq!(memory(u32::MAX), memory(CacheConfig::dram_only(4).bounce_frames));
}

fn backing_writes(d: &Driver) -> Vec<(char, u64, u64)> {
    let mut writes: Vec<_> =
        d.pending.iter().map(|(e, _)| e).filter(|e| is_write(e)).map(operation).collect();
    writes.sort_unstable();
    writes
}

#[test]
fn records_of_consecutive_blocks_are_destaged_with_one_write() {
    let mut d = destage_four();
    assert_eq!(d.count(is_flash_read), 4);
    while d.count(is_flash_read) > 0 {
        let there = backing_writes(&d);
        assert!(there.iter().all(|w| w.1 >= 20), "not before the last is there: {there:?}");
        d.complete_first(is_flash_read, Ok(()));
    }
    let of_four = ('w', 0, 4);
    assert!(backing_writes(&d).contains(&of_four), "{:?}", backing_writes(&d));
    d.settle();
    assert_eq!(d.cache.dirty_blocks(), 0);
}

#[test]
fn a_record_that_cannot_be_read_parts_the_write_and_stays_dirty() {
    let mut d = destage_four();
    // The reads were asked for in the order of the blocks.
    let reads = d.pending.iter().map(|(e, _)| e).filter(|e| is_flash_read(e));
    let unreadable = reads.map(flash_offset).nth(1).expect("a read for each");
    for result in [Ok(()), Err(IoError::Device), Ok(()), Ok(())] {
        d.complete_first(is_flash_read, result);
    }
    let writes = backing_writes(&d);
    assert!(writes.starts_with(&[('w', 0, 1), ('w', 2, 2)]), "{writes:?}");
    assert_eq!(d.cache.stats().destage_gaps, 1);
    // All others are destaged, and who asked hears which could not be.
    while !d.pending.is_empty() {
        let again = |e: &Effect| is_flash_read(e) && flash_offset(e) == unreadable;
        let result = if d.count(again) > 0 { Err(IoError::Device) } else { Ok(()) };
        d.complete_first(|e| result.is_ok() || again(e), result);
    }
    assert_eq!(d.cache.dirty_blocks(), 1);
    assert_eq!(d.cache.unreadable().collect::<Vec<_>>(), [(Volume(0), 1)]);
    let end = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert_eq!(end, Some(forebay_cache::Notice::Destaged(Err(DestageError::Unreadable))));
    // The block can be written again, and is then as any other.
    let write = d.write(1);
    d.order(Order::Destage);
    d.settle();
    assert_eq!(d.reply_to(write), Some(Ok(())));
    assert_eq!((d.cache.dirty_blocks(), d.cache.unreadable().count()), (0, 0));
    let end = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert_eq!(end, Some(forebay_cache::Notice::Destaged(Ok(()))));
}

#[test]
fn a_record_that_is_not_durable_when_a_destage_chooses_is_no_part_of_it() {
    // Block 5 has a clean record. Its next version goes to flash while the records chosen for the
    // destage are being made durable: if it reached the store now, a power cut could lose its own
    // record, bring the clean one back, and reads would go back in time until that is dropped.
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram));
    let fua = |d: &mut Driver, block| {
        let id = d.request(Op::Write, Flags::FUA, block * BLOCK, BLOCK);
        d.complete_first(is_flash_write, Ok(()));
        id
    };
    d.write(5);
    d.order(Order::Destage);
    d.settle();
    assert_eq!(d.cache.dirty_blocks(), 0);

    d.write(20);
    d.order(Order::Destage);
    d.complete_first(is_flash_write, Ok(()));
    // Written when the destage chooses, and not durable: its records wait for a sync.
    fua(&mut d, 30);
    d.complete_first(is_flash_sync, Ok(()));
    assert_eq!((d.count(is_flash_sync), d.count(is_write)), (1, 0));
    let newer = fua(&mut d, 5);
    d.complete_first(is_flash_sync, Ok(()));
    assert_eq!(d.reply_to(newer), None);
    // All that can happen without another sync of the flash.
    let mut written = Vec::new();
    let of_flash = |e: &Effect| is_flash_write(e) || is_flash_sync(e);
    while d.count(|e| !of_flash(e)) > 0 {
        written.append(&mut backing_writes(&d));
        d.complete_first(|e| !of_flash(e), Ok(()));
    }
    written.dedup();
    assert_eq!(d.reply_to(newer), None, "its record is not durable");
    assert!(written.contains(&('w', 20, 1)) && written.contains(&('w', 30, 1)), "{written:?}");
    assert!(!written.contains(&('w', 5, 1)), "{written:?}");
    d.settle();
    assert_eq!((d.reply_to(newer), d.cache.dirty_blocks()), (Some(Ok(())), 1));
}

#[test]
fn a_failed_fetch_is_told_to_its_reader_and_the_next_read_tries_again() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    let a = d.read(3);
    d.complete_first(is_read, Err(IoError::Device));
    assert_eq!(d.reply_to(a), Some(Err(IoError::Device)));
    let b = d.read(3);
    d.settle();
    assert_eq!(d.reply_to(b), Some(Ok(())));
}

#[test]
fn a_frame_under_an_outgoing_transfer_is_not_written() {
    // Method: a dirty block is being destaged by a flush; a write to it must not copy anything
    // into the frame before the destage has ended.
    let mut d = Driver::new(CacheConfig::dram_only(4));
    d.write(1);
    d.request(Op::Flush, Flags::NONE, 0, 0);
    assert_eq!(d.count(is_write), 1);
    let copies = d.copies;
    let again = d.write(1);
    assert_eq!((d.copies, d.reply_to(again)), (copies, None));
    d.complete_first(is_write, Ok(()));
    assert_eq!((d.copies, d.reply_to(again)), (copies + 1, Some(Ok(()))));
    assert_eq!(d.cache.dirty_blocks(), 1, "the newer version is still to be destaged");
}

#[test]
fn a_flush_waits_for_dirty_blocks_and_then_for_a_sync_issued_after_them() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    d.write(1);
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    assert_eq!((d.count(is_write), d.count(is_sync)), (1, 0));
    d.complete_first(is_write, Ok(()));
    assert_eq!((d.count(is_sync), d.reply_to(flush)), (1, None));
    d.complete_first(is_sync, Ok(()));
    assert_eq!(d.reply_to(flush), Some(Ok(())));
}

#[test]
fn a_failed_sync_is_never_believed_to_be_mended_by_a_later_one() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    d.write(1);
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.complete_first(is_write, Ok(()));
    d.complete_first(is_sync, Err(IoError::Device));
    assert_eq!(d.reply_to(flush), Some(Err(IoError::Device)));
    let later = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
    assert_eq!(d.reply_to(later), Some(Err(IoError::Device)));
}

#[test]
fn a_flush_whose_write_failed_does_not_make_the_next_one_fail() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    d.write(1);
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.complete_first(is_write, Err(IoError::Device));
    d.settle();
    assert_eq!(d.reply_to(flush), Some(Err(IoError::Device)));
    let later = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
    assert_eq!((d.reply_to(later), d.cache.dirty_blocks()), (Some(Ok(())), 0));
}

#[test]
fn a_flush_takes_more_blocks_than_one_turn_does_to_the_last() {
    // A turn starts 64 of them. Of the blocks that are left none may stay in memory.
    for blocks in 60..70 {
        let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
        let config = CacheConfig { dram_blocks: 80, ..config };
        let mut d = Driver::with_volumes(config, 128 * BLOCK);
        for block in 0..blocks {
            d.write(block);
        }
        assert_eq!(d.cache.dirty_in_memory(), blocks);
        let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
        d.settle();
        assert_eq!((d.reply_to(flush), d.cache.dirty_in_memory()), (Some(Ok(())), 0), "{blocks}");
    }
}

#[test]
fn acknowledging_from_flash_waits_for_the_log_and_from_dram_does_not() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram));
    let w = d.write(1);
    assert_eq!((d.reply_to(w), d.count(is_flash_write)), (Some(Ok(())), 0));
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
    let w = d.write(1);
    assert_eq!((d.reply_to(w), d.count(is_flash_write)), (None, 1));
    d.complete_first(is_flash_write, Ok(()));
    assert_eq!((d.reply_to(w), d.count(is_flash_sync)), (Some(Ok(())), 0));
}

#[test]
fn fua_is_answered_after_a_sync_of_the_flash_and_does_not_drag_others_along() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram));
    d.write(7);
    let fua = d.request(Op::Write, Flags::FUA, BLOCK, BLOCK);
    d.complete_first(is_flash_write, Ok(()));
    assert_eq!(d.reply_to(fua), None);
    d.complete_first(is_flash_sync, Ok(()));
    assert_eq!(d.reply_to(fua), Some(Ok(())));
    assert_eq!(d.count(is_write), 0, "block 7 stays where it is");
}

#[test]
fn a_direct_write_over_a_record_waits_for_the_durable_mark() {
    // Method: under write-through a clean block is demoted to flash; a write to it then may not
    // reach the backing store before the superblock that marks its extent is durable.
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Flash));
    for block in 0..12 {
        d.read(block);
        d.settle();
    }
    assert!(d.cache.stats().demotions > 0);
    d.write(0);
    assert_eq!((d.count(is_write), d.count(is_flash_write)), (0, 1));
    d.complete_first(is_flash_write, Ok(()));
    assert_eq!(d.count(is_write), 0);
    d.complete_first(is_flash_sync, Ok(()));
    assert_eq!(d.count(is_write), 1);
    assert_eq!(d.cache.stats().poisoned, 1);
}

#[test]
fn a_durable_mark_is_good_for_one_step() {
    // Method: a block leaves memory while its backing store owes a sync; while its extent is being
    // marked for that it is read, and stays. When the extent has left the table of two, the block is
    // written and evicted: its extent must be marked again before its record is appended.
    let config = with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
    let mut d = Driver::new(CacheConfig { stripe_shift: 16, ..config });
    let read = |d: &mut Driver, block| {
        d.read(block);
        d.settle();
    };
    d.write(0);
    d.settle();
    [40, 41, 42].into_iter().for_each(|block| read(&mut d, block));
    let demotions = d.cache.stats().demotions;
    d.read(43);
    assert_eq!((d.cache.stats().demotions, d.count(is_flash_write)), (demotions, 1));
    d.read(0);
    assert_eq!(d.cache.stats().rescued, 1);
    d.settle();
    for (extent, others) in [(1, [48, 49, 50]), (2, [52, 53, 54])] {
        d.write(16 * extent);
        d.settle();
        for block in others {
            read(&mut d, 0);
            read(&mut d, block);
        }
    }
    read(&mut d, 0);
    d.write(0);
    d.settle();
    // Another extent has to give its place up for that, and its store is synced first.
    let mut syncs = 0;
    for block in 56..60 {
        d.read(block);
        while let Some((effect, _)) = d.pending.first() {
            syncs += u32::from(is_sync(effect));
            d.complete_first(|_| true, Ok(()));
        }
    }
    assert_eq!(syncs, 1);
}

#[test]
fn a_trim_of_blocks_that_are_not_cached_is_one_range() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
    let trim = d.request(Op::Trim, Flags::NONE, 0, 32 * BLOCK);
    assert_eq!(d.pending.len(), 1);
    assert!(matches!(d.pending[0].0, Effect::WriteZeroes { length, .. } if length == 32 * BLOCK));
    // Whoever wants one of its blocks waits for it.
    let read = d.read(5);
    assert_eq!(d.count(is_read), 0);
    d.settle();
    assert_eq!((d.reply_to(trim), d.reply_to(read)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_zeroing_leaves_holes_only_where_its_client_allows_them() {
    // Over a block in memory, which is zeroed on its own, and blocks without an entry.
    let requests = [
        (Op::Trim, Flags::NONE, true),
        (Op::WriteZeroes, Flags::NONE, true),
        (Op::WriteZeroes, Flags::NO_HOLE, false),
    ];
    for (op, flags, allowed) in requests {
        let mut d = Driver::new(with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Flash));
        d.read(1);
        d.settle();
        d.request(op, flags, 0, 32 * BLOCK);
        let mut zeroings = 0;
        while !d.pending.is_empty() {
            zeroings += d.count(|e| matches!(e, Effect::WriteZeroes { .. }));
            let as_told = |e: &Effect| match *e {
                Effect::WriteZeroes { punch, .. } => punch == allowed,
                _ => true,
            };
            assert_eq!(d.count(as_told), d.pending.len(), "{op:?} {flags:?}");
            d.complete_first(|_| true, Ok(()));
        }
        assert!(zeroings > 1, "{op:?} {flags:?}");
    }
}

#[test]
fn behind_the_end_of_a_volume_a_frame_holds_zeroes() {
    // What the frame held before must not be in the record: the volume may have grown when it is
    // read.
    let mut d = Driver::with_volumes(CacheConfig::dram_only(4), 3 * BLOCK + 512);
    d.request(Op::Read, Flags::NONE, 3 * BLOCK, 512);
    let Some(&(Place::Frame { offset: 512, .. }, length)) = d.zeroed.first() else {
        panic!("{:?}", d.zeroed)
    };
    assert_eq!((d.zeroed.len(), u64::from(length), d.count(is_read)), (1, BLOCK - 512, 1));
    d.settle();
    d.read(2);
    assert_eq!(d.zeroed.len(), 1, "a block that lies within the volume as a whole");
}

#[test]
fn records_of_a_zeroed_range_are_dirty_wherever_in_it_until_it_is_durable() {
    // The range goes past the log, over three extents: a power cut may yet undo it.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    let mut d = Driver::new(CacheConfig { stripe_shift: 16, ..config });
    d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
    let zeroing = d.request(Op::WriteZeroes, Flags::NONE, 0, 40 * BLOCK);
    d.settle();
    assert_eq!((d.reply_to(zeroing), d.cache.dirty_blocks()), (Some(Ok(())), 0));
    // A block of each extent, one behind the range, and what has them leave for flash.
    for block in [5, 30, 38, 50, 52, 53, 54, 55, 56, 57] {
        d.read(block);
        d.settle();
    }
    assert_eq!(d.cache.dirty_blocks(), 3);
}

#[test]
fn a_bad_request_is_answered_with_an_error_and_touches_nothing() {
    let mut d = Driver::new(CacheConfig::dram_only(4));
    for (offset, length) in [(64 * BLOCK, BLOCK), (u64::MAX, 512), (1, 512), (0, 511)] {
        let bad = d.request(Op::Write, Flags::NONE, offset, length);
        assert_eq!(d.reply_to(bad), Some(Err(IoError::Invalid)), "{offset}+{length}");
    }
    assert!(d.pending.is_empty());
}

#[test]
fn a_stop_keeps_dirty_data_on_flash_or_brings_it_home_as_told() {
    for target in [StopTarget::Flash, StopTarget::Stores] {
        let destage = target == StopTarget::Stores;
        let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
        d.write(1);
        d.settle();
        d.order(Order::Stop(target));
        let writes = d.count(is_write);
        let mut written = writes > 0;
        while !d.pending.is_empty() {
            written |= d.count(is_write) > 0;
            d.complete_first(|_| true, Ok(()));
        }
        assert_eq!(written, destage);
        assert_eq!(d.cache.dirty_blocks(), u64::from(!destage));
        let stopped = std::iter::from_fn(|| d.cache.poll_notice()).last();
        let left = if destage { StoresLeft::Whole } else { StoresLeft::Behind };
        assert_eq!(stopped, Some(Notice::Stopped(Ok(left))));
    }
}

#[test]
fn the_first_stop_decides_where_dirty_data_goes() {
    let (flash, stores) = (StopTarget::Flash, StopTarget::Stores);
    for (targets, left) in
        [([flash, stores], StoresLeft::Behind), ([stores, flash], StoresLeft::Whole)]
    {
        let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
        d.write(1);
        d.settle();
        for target in targets {
            d.order(Order::Stop(target));
        }
        d.settle();
        let stopped = std::iter::from_fn(|| d.cache.poll_notice()).last();
        assert_eq!(stopped, Some(Notice::Stopped(Ok(left))));
    }
}

#[test]
fn an_announcement_does_not_end_the_destage_of_a_stop_that_has_begun() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
    d.write(1);
    d.settle();
    d.order(Order::Stop(StopTarget::Stores));
    while d.count(is_write) == 0 {
        d.order(Order::PrepareStop);
        d.complete_first(|_| true, Ok(()));
    }
    d.order(Order::PrepareStop);
    d.settle();
    let stopped = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert_eq!(stopped, Some(Notice::Stopped(Ok(StoresLeft::Whole))));
}

/// Writes more than flash holds while the backing store has no space, until nothing moves.
fn write_against_a_full_store(give_up_after: Nanos) -> (Driver, Vec<u64>) {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let mut d = Driver::new(CacheConfig { give_up_after, ..config });
    let writes: Vec<u64> = (0..60).map(|block| d.write(block)).collect();
    go_on_with_a_full_store(&mut d);
    (d, writes)
}

fn go_on_with_a_full_store(d: &mut Driver) {
    // Twenty attempts and their pauses.
    for _ in 0..20 {
        while !d.pending.is_empty() {
            let result = if is_write(&d.pending[0].0) { Err(IoError::NoSpace) } else { Ok(()) };
            d.complete_first(|_| true, result);
        }
        let Some(at) = d.cache.poll_timeout() else { break };
        d.next = d.next.max(at.0);
        d.cache.handle_timeout(at);
        d.poll();
    }
    while !d.pending.is_empty() {
        let result = if is_write(&d.pending[0].0) { Err(IoError::NoSpace) } else { Ok(()) };
        d.complete_first(|_| true, result);
    }
}

#[test]
fn who_waits_for_a_store_that_fails_is_told_after_the_time_for_that() {
    let (mut d, writes) = write_against_a_full_store(Nanos(1_000_000_000));
    assert!(!d.cache.has_given_up(), "flash is as good as it was");
    assert_eq!(d.cache.suspended(Volume(0)), Some(IoError::NoSpace));
    let failed = writes.iter().filter(|&&id| d.reply_to(id) == Some(Err(IoError::NoSpace)));
    assert!(failed.count() > 0);
    assert!(writes.iter().all(|&id| d.reply_to(id).is_some()), "nobody waits any more");
    assert_eq!(d.cache.backing_failure(Volume(0)), Some(IoError::NoSpace));
    // What is there can be read, past the cache if need be.
    let read = d.read(63);
    d.settle();
    assert_eq!(d.reply_to(read), Some(Ok(())));
}

#[test]
fn a_store_that_fails_keeps_neither_others_from_being_destaged_nor_writes_from_flash() {
    // Nobody waits for room: there is no reason to give anything up, however long it takes.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let mut d = Driver::new(CacheConfig { give_up_after: Nanos(1), ..config });
    for block in 0..4 {
        d.write(block);
        let id = RequestId(1000 + block);
        let write = Request::new(Nanos(d.next), Volume(1), Op::Write, block * 2 * BLOCK, BLOCK);
        d.cache.handle_request(id, write);
        d.poll();
        d.settle();
    }
    // Some regions were reused already.
    let dirty = |d: &Driver, v| d.cache.volume_stats(Volume(v)).unwrap().dirty_blocks;
    let before = dirty(&d, 0);
    assert!(before > 0 && dirty(&d, 1) > 0);
    d.order(Order::Destage);
    go_on_with_a_full_store(&mut d);
    let end = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert_eq!(end, Some(forebay_cache::Notice::Destaged(Err(IoError::NoSpace.into()))));
    assert_eq!((dirty(&d, 0), dirty(&d, 1)), (before, 0));
    assert!(!d.cache.has_given_up());
    let write = d.write(9);
    d.settle();
    assert_eq!(d.reply_to(write), Some(Ok(())));
}

#[test]
fn a_store_that_fails_now_and_then_is_not_given_up() {
    // Every region fails at first and is destaged at the next attempt, so that there are many
    // failures, never two in a row.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let mut d = Driver::new(CacheConfig { give_up_after: Nanos(150_000_000), ..config });
    let writes: Vec<u64> = (0..240).map(|n| d.write(n % 60)).collect();
    let (mut fails, mut timeouts) = (true, 0);
    loop {
        while let Some((effect, _)) = d.pending.first() {
            let failure = fails && is_write(effect);
            fails |= is_sync(effect);
            d.complete_first(|_| true, if failure { Err(IoError::NoSpace) } else { Ok(()) });
        }
        let Some(at) = d.cache.poll_timeout() else { break };
        (fails, timeouts) = (false, timeouts + 1);
        d.next = d.next.max(at.0);
        d.cache.handle_timeout(at);
        d.poll();
    }
    assert!(timeouts > 3, "{timeouts}");
    assert!(!d.cache.has_given_up());
    assert!(writes.iter().all(|&id| d.reply_to(id) == Some(Ok(()))));
}

#[test]
fn who_waits_for_a_place_in_the_index_is_told_after_the_time_for_that() {
    // The index is full of dirty blocks long before flash is.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    let flash = FlashConfig { entries_max: 6, ..config.flash.clone().unwrap() };
    let give_up_after = Nanos(1_000_000_000);
    let mut d = Driver::new(CacheConfig { flash: Some(flash), give_up_after, ..config });
    let writes: Vec<u64> = (0..16).map(|block| d.write(block)).collect();
    go_on_with_a_full_store(&mut d);
    assert_eq!(d.cache.suspended(Volume(0)), Some(IoError::NoSpace));
    assert!(d.pending.is_empty());
    let told = writes.iter().filter(|&&id| d.reply_to(id).is_some()).count();
    assert_eq!(told, writes.len(), "nobody waits any more");
}

#[test]
fn before_a_stop_nobody_waits_for_a_store_that_fails() {
    let (mut d, writes) = write_against_a_full_store(Nanos(0));
    assert!(!d.cache.has_given_up() && writes.iter().any(|&id| d.reply_to(id).is_none()));
    d.order(Order::PrepareStop);
    d.settle();
    assert!(writes.iter().all(|&id| d.reply_to(id).is_some()));
    d.order(Order::Stop(StopTarget::Stores));
    go_on_with_a_full_store(&mut d);
    let stopped = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert!(matches!(stopped, Some(forebay_cache::Notice::Stopped(Err(_)))));
    assert!(d.cache.dirty_blocks() > 0, "kept on flash");
}

#[test]
fn effects_name_whole_sectors_within_their_places() {
    // Every segment lies in a frame of the configured number and size.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let frames = config.frames();
    let mut d = Driver::new(config);
    for i in 0..200_u64 {
        let offset = (i * 37 % 60) * BLOCK + (i % 8) * 512;
        let op = if i % 3 == 0 { Op::Read } else { Op::Write };
        d.request(op, Flags::NONE, offset, 512 * (1 + i % 11));
        for (_, segments) in &d.pending {
            for s in segments {
                assert_eq!(s.length % 512, 0);
                if let Place::Frame { frame, offset } = s.place {
                    assert!(frame.0 < frames && u64::from(offset + s.length) <= BLOCK);
                }
            }
        }
        if i % 5 == 0 {
            d.settle();
        }
    }
    d.settle();
    assert_eq!(d.replies.len(), 200);
}
