//! Goal: under each relation of the tiers a block is where the relation's table says, and flash is written as
//! often as the papers' worked examples count.
//!
//! Method: memory of three or four blocks before a log, one access at a time; the examples of ETICA (Fig. 5) and
//! traces made by hand for Hazan's Layered and Dual.

use crate::driver::*;
use forebay_block::{Flags, Op, Volume};
use forebay_cache::{
    Acknowledge, AdmissionKind, AdmissionParameters, CacheConfig, FlashLayout, Order,
    QueueParameters, Relation, SlotsConfig, StopTarget, WritePolicy,
};
use forebay_effect::IoError;

const THROUGH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_THROUGH, Acknowledge::Dram);
const READ_ONLY: (WritePolicy, Acknowledge) = (WritePolicy::READ_ONLY, Acknowledge::Dram);
const BACK_FLASH: (WritePolicy, Acknowledge) = (WritePolicy::WRITE_BACK, Acknowledge::Flash);

/// Memory of `dram` blocks and lines of four.
fn with(relation: Relation, policy: (WritePolicy, Acknowledge), dram: u32) -> Driver {
    let mut config = with_flash(policy.0, policy.1);
    config.flash.as_mut().expect("there is flash").line_blocks = 4;
    let config =
        CacheConfig { relation, dram_blocks: dram, spare_frames: 16, bounce_frames: 16, ..config };
    Driver::with_so_many_volumes(config, 64 * BLOCK, 1)
}

/// Reads that memory and flash answered.
fn hits(d: &Driver) -> (u64, u64) {
    let hits = d.cache.volume_stats(Volume(0)).expect("a volume").read_hits;
    (hits.tier1, hits.tier2)
}

/// ETICA, Fig. 5: R1 R2 R3 W1 W4 R1 R4.
fn figure_5(relation: Relation) -> (u64, u64) {
    let mut d = with(relation, BACK_FLASH, 3);
    (1..=3).for_each(|block| read(&mut d, block));
    write(&mut d, 1);
    write(&mut d, 4);
    read(&mut d, 1);
    read(&mut d, 4);
    flush(&mut d);
    (records(&d), hits(&d).0 + hits(&d).1)
}

#[test]
fn one_level_writes_flash_five_times_and_etica_twice_for_the_same_hits() {
    assert_eq!(figure_5(Relation::Eci), (5, 2));
    assert_eq!(figure_5(Relation::EticaNpe), (2, 2));
}

#[test]
fn under_etica_a_write_ends_on_flash_alone_and_a_read_brings_it_back_to_memory() {
    let mut d = with(Relation::EticaNpe, BACK_FLASH, 3);
    read(&mut d, 1);
    let id = d.write(1);
    assert_eq!(d.reply_to(id), None, "flash does not have it");
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
    assert_eq!((stats(&d).written_in_transit, d.cache.dirty_in_memory()), (1, 0));
    assert_eq!(d.cache.resident_blocks(), 0, "memory has lost its copy");
    read(&mut d, 1);
    assert_eq!((hits(&d), stats(&d).promotions), ((0, 1), 1));
    read(&mut d, 1);
    assert_eq!((hits(&d), d.cache.resident_blocks()), ((1, 1), 1));
}

#[test]
fn under_etica_what_was_read_never_enters_flash() {
    let mut d = with(Relation::EticaNpe, BACK_FLASH, 3);
    (0..30).for_each(|block| read(&mut d, block));
    flush(&mut d);
    assert_eq!((records(&d), stats(&d).demotions), (0, 0));
    assert_eq!(stats(&d).evictions, 27);
}

#[test]
fn under_eci_memory_keeps_nothing() {
    for policy in [BACK_FLASH, READ_ONLY] {
        let mut d = with(Relation::Eci, policy, 3);
        (0..8).for_each(|block| read(&mut d, block));
        assert_eq!(d.cache.resident_blocks(), 0, "{policy:?}");
        flush(&mut d);
        (0..8).for_each(|block| read(&mut d, block));
        assert_eq!((hits(&d), d.cache.resident_blocks()), ((0, 8), 0), "{policy:?}");
        assert_eq!(records(&d), 8, "{policy:?}");
        // A read-only cache drops what is written, the other one keeps it on flash.
        write(&mut d, 3);
        read(&mut d, 3);
        let back = u64::from(policy.0.write_back);
        assert_eq!(hits(&d).1, 8 + back, "{policy:?}");
    }
}

#[test]
fn under_inclusive_what_was_read_is_on_flash_while_it_is_in_memory() {
    for policy in [THROUGH, READ_ONLY, BACK_FLASH] {
        let mut d = with(Relation::Inclusive, policy, 4);
        (0..4).for_each(|block| read(&mut d, block));
        flush(&mut d);
        assert_eq!((records(&d), stats(&d).entered_when_read), (4, 4), "{policy:?}");
        assert_eq!(d.cache.resident_blocks(), 4);
        // When they leave memory nothing is written.
        (10..14).for_each(|block| read(&mut d, block));
        flush(&mut d);
        assert_eq!((records(&d), stats(&d).demotions), (8, 0), "{policy:?}");
        read(&mut d, 2);
        assert_eq!(hits(&d), (0, 1), "{policy:?}");
    }
}

#[test]
fn dual_fetches_the_line_of_a_miss_for_flash_and_the_block_for_memory() {
    let mut d = with(Relation::Dual, THROUGH, 4);
    // Method: one miss in each of two lines of four; the others of the line are hits, on flash.
    for block in [5, 8] {
        read(&mut d, block);
    }
    flush(&mut d);
    assert_eq!((stats(&d).line_blocks, records(&d)), (6, 8));
    assert_eq!((d.cache.resident_blocks(), hits(&d)), (2, (0, 0)));
    for block in [4, 6, 7, 9, 10, 11] {
        read(&mut d, block);
    }
    assert_eq!(hits(&d), (0, 6));
    assert_eq!((stats(&d).line_blocks, stats(&d).lines_short), (6, 0));
}

#[test]
fn dual_reads_the_block_of_a_miss_before_its_line() {
    let mut d = with(Relation::Dual, THROUGH, 4);
    d.read(5);
    let reads: Vec<_> = d.pending.iter().map(|(e, _)| operation(e)).collect();
    assert_eq!(reads, [('r', 5, 1), ('r', 4, 1), ('r', 6, 2)]);
    // The line ends where the volume does.
    d.settle();
    d.read(63);
    let reads: Vec<_> = d.pending.iter().map(|(e, _)| operation(e)).collect();
    assert!(reads.contains(&('r', 60, 3)), "{reads:?}");
}

#[test]
fn a_read_of_a_block_that_comes_with_its_line_brings_it_to_memory() {
    let mut d = with(Relation::Dual, THROUGH, 4);
    d.read(5);
    let id = d.read(6);
    assert_eq!(d.count(is_read), 3, "nothing is read twice");
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
    assert_eq!(d.cache.resident_blocks(), 2);
    read(&mut d, 6);
    assert_eq!(hits(&d).0, 1);
}

#[test]
fn a_line_that_cannot_be_read_fails_nobody() {
    let mut d = with(Relation::Dual, THROUGH, 4);
    d.read(5);
    let id = d.read(7);
    // The block itself, then block 4, then 6 and 7, for which a client waits.
    d.complete_first(is_read, Ok(()));
    d.complete_first(is_read, Ok(()));
    d.complete_first(is_read, Err(IoError::Device));
    assert_eq!(d.reply_to(id), None);
    let reads: Vec<_> = d.pending.iter().filter(|(e, _)| is_read(e)).collect();
    assert_eq!(reads.iter().map(|(e, _)| operation(e)).collect::<Vec<_>>(), [('r', 7, 1)]);
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
}

#[test]
fn layered_fetches_the_line_of_a_block_that_leaves_memory() {
    let mut d = with(Relation::Layered, THROUGH, 2);
    // Method: two blocks fill memory; the third makes the first leave, with the rest of its line.
    read(&mut d, 5);
    read(&mut d, 20);
    assert_eq!(stats(&d).line_blocks, 0);
    read(&mut d, 40);
    flush(&mut d);
    assert_eq!((stats(&d).line_blocks, records(&d)), (3, 4));
    for block in [4, 5, 6, 7] {
        read(&mut d, block);
    }
    assert_eq!(hits(&d), (0, 4));
}

#[test]
fn layered_fetches_the_line_of_a_block_that_waited_for_its_mark_without_a_further_request() {
    let mut d = with(Relation::Layered, THROUGH, 2);
    write(&mut d, 5);
    read(&mut d, 20);
    // Block 5 leaves; its store owes a sync, so that the log has to mark its extent first. That ends last.
    d.read(40);
    d.complete_first(is_read, Ok(()));
    assert_eq!(stats(&d).line_blocks, 0);
    d.settle();
    assert_eq!(stats(&d).line_blocks, 3);
}

#[test]
fn lines_leave_frames_to_others() {
    let mut config = with_flash(THROUGH.0, THROUGH.1);
    config.flash.as_mut().expect("there is flash").line_blocks = 16;
    let config =
        CacheConfig { relation: Relation::Dual, dram_blocks: 2, spare_frames: 8, ..config };
    let mut d = Driver::with_so_many_volumes(config, 64 * BLOCK, 1);
    d.read(3);
    // Nine frames are free then, of which four stay so.
    assert_eq!((stats(&d).line_blocks, stats(&d).lines_short), (5, 1));
    d.settle();
}

#[test]
fn what_only_passes_memory_is_counted_for_admission() {
    let mut nhit = AdmissionParameters::new(AdmissionKind::Nhit);
    nhit.set("hits", 2).unwrap();
    // Reads under eci; writes under both.
    for (relation, op) in
        [(Relation::Eci, Op::Read), (Relation::Eci, Op::Write), (Relation::EticaNpe, Op::Write)]
    {
        let mut config = with_flash(BACK_FLASH.0, BACK_FLASH.1);
        config.flash.as_mut().expect("there is flash").admission = nhit;
        let config = CacheConfig { relation, spare_frames: 16, bounce_frames: 16, ..config };
        let mut d = Driver::with_so_many_volumes(config, 64 * BLOCK, 1);
        (0..6).for_each(|block| done(&mut d, op, Flags::NONE, block));
        flush(&mut d);
        assert_eq!(records(&d), 0, "{relation} {op:?}: once");
        (0..6).for_each(|block| done(&mut d, op, Flags::NONE, block));
        flush(&mut d);
        assert_eq!(records(&d), 6, "{relation} {op:?}: twice");
        assert_eq!(d.cache.resident_blocks(), 0, "{relation} {op:?}");
    }
}

#[test]
fn a_stop_waits_for_lines_and_is_clean() {
    let mut d = with(Relation::Dual, THROUGH, 4);
    let id = d.read(5);
    d.complete_first(is_read, Ok(()));
    assert_eq!(d.reply_to(id), Some(Ok(())), "the line is in flight");
    d.order(Order::Stop(StopTarget::Stores));
    d.settle();
    assert_eq!((stats(&d).transfer_errors, stats(&d).line_blocks), (0, 3));
    let last = std::iter::from_fn(|| d.cache.poll_notice()).last();
    assert!(matches!(last, Some(forebay_cache::Notice::Stopped(Ok(_)))), "{last:?}");
}

/// ETICA with its queues: flash of eight cells, of which six count, and a round after so many requests.
fn with_queues(interval: u32, dram: u32) -> Driver {
    with_queues_and_frames(interval, dram, 16)
}

fn with_queues_and_frames(interval: u32, dram: u32, spare_frames: u32) -> Driver {
    let mut config = with_flash(BACK_FLASH.0, BACK_FLASH.1);
    let flash = config.flash.as_mut().expect("there is flash");
    (flash.geometry.slots, flash.geometry.directory_pages) = (8, 0);
    flash.entries_max = 8;
    flash.layout = FlashLayout::Slots(SlotsConfig {
        blocks: 6,
        cells: Default::default(),
        promote_dirty_after: 1,
        give_up_copies: true,
    });
    flash.queues = QueueParameters { interval, share: 50, history: 100, half_life: 0 };
    let relation = Relation::Etica;
    let config =
        CacheConfig { relation, dram_blocks: dram, spare_frames, bounce_frames: 16, ..config };
    Driver::with_so_many_volumes(config, 64 * BLOCK, 1)
}

#[test]
fn under_etica_figure_5_writes_flash_twice_for_two_hits_once_both_blocks_are_there() {
    // Method: before the figure's requests a round brings blocks 1 and 4 to flash. (The third one of six that it
    // chooses is just being read, and passed over.)
    let mut d = with_queues(8, 3);
    for block in [1, 4, 1, 4, 20, 21] {
        write(&mut d, block);
    }
    // The round begins, and waits for a sync of the store; then it goes on with the next access.
    (30..33).for_each(|block| read(&mut d, block));
    flush(&mut d);
    assert_eq!((stats(&d).queue_promotions, records(&d)), (2, 2));
    let before = hits(&d);
    (2..=3).for_each(|block| read(&mut d, block));
    write(&mut d, 1);
    write(&mut d, 4);
    read(&mut d, 1);
    read(&mut d, 4);
    flush(&mut d);
    let hits = hits(&d).0 + hits(&d).1 - before.0 - before.1;
    assert_eq!((records(&d) - 2, hits), (2, 2));
}

#[test]
fn under_etica_flash_stays_as_it_is_between_two_rounds() {
    let mut d = with_queues(1000, 3);
    for block in (0..40).chain(0..40) {
        done(&mut d, if block % 2 == 0 { Op::Read } else { Op::Write }, Flags::NONE, block);
    }
    flush(&mut d);
    assert_eq!((records(&d), stats(&d).queue_rounds), (0, 0));
    // Writes went to the store, and took what memory had of their blocks with them.
    assert_eq!((stats(&d).written_around, stats(&d).written_in_transit), (40, 0));
    let before = hits(&d);
    read(&mut d, 2);
    write(&mut d, 2);
    read(&mut d, 2);
    assert_eq!(hits(&d), before);
}

#[test]
fn under_etica_the_least_popular_leave_flash_and_the_most_popular_take_the_room() {
    let mut d = with_queues(16, 1);
    // Eight candidates, of which four are used three times: those enter.
    let round = |d: &mut Driver, popular: [u64; 4], others: [u64; 4]| {
        for block in popular.into_iter().chain(popular).chain(popular).chain(others) {
            read(d, block);
        }
        d.settle();
    };
    round(&mut d, [1, 2, 3, 4], [10, 11, 12, 13]);
    assert_eq!(records(&d), 4);
    let stored = |d: &mut Driver| {
        let before = hits(d).1;
        // Memory has one block: the next one, every other time.
        (1..=4).for_each(|block| read(d, block));
        hits(d).1 - before
    };
    assert_eq!(stored(&mut d), 4);
    (0..11).for_each(|n| read(&mut d, 40 + n % 2));
    assert_eq!(stats(&d).queue_rounds, 1);
    // The next request ends the interval: two of the four leave, and two candidates enter.
    read(&mut d, 50);
    read(&mut d, 51);
    assert_eq!((stats(&d).queue_evictions, stats(&d).queue_rounds), (2, 2));
    // The journal has a note for each block that left.
    assert_eq!((stats(&d).queue_promotions, records(&d)), (8, 8 + 2));
}

#[test]
fn under_etica_only_free_room_is_filled() {
    let mut d = with_queues(100, 1);
    for n in 0..1000 {
        read(&mut d, n * n % 37);
        d.settle();
        let held = stats(&d).queue_promotions - stats(&d).queue_evictions;
        assert!(held <= 6, "{held} blocks where six count, after {n} requests");
    }
    // The last round takes its steps with the next accesses.
    (60..62).for_each(|block| read(&mut d, block));
    assert_eq!(stats(&d).queue_rounds, 10);
    assert!(stats(&d).queue_promotions > 10);
}

#[test]
fn under_etica_a_block_that_memory_has_enters_flash_from_there() {
    let mut d = with_queues(4, 8);
    (0..4).for_each(|block| read(&mut d, block));
    assert_eq!(d.count(is_read), 0);
    flush(&mut d);
    assert_eq!((records(&d), stats(&d).queue_promotions), (2, 2));
    assert_eq!(d.cache.resident_blocks(), 4, "and stays there");
}

#[test]
fn under_etica_a_trim_makes_no_block_popular() {
    let mut d = with_queues(16, 1);
    // Four blocks are read; each read follows a trim of one of four others.
    for n in 0..32 {
        done(&mut d, Op::Trim, Flags::NONE, 40 + n % 4);
        read(&mut d, n % 4);
        d.settle();
    }
    assert!(stats(&d).queue_rounds > 0 && stats(&d).queue_promotions > 0);
    let before = hits(&d).1;
    done(&mut d, Op::Read, Flags::NONE, 41);
    done(&mut d, Op::Read, Flags::NONE, 43);
    assert_eq!(hits(&d).1, before, "flash has none that was trimmed only");
}

#[test]
fn under_etica_popular_blocks_enter_flash_though_their_store_takes_no_writes() {
    for sync_fails in [false, true] {
        let mut d = with_queues(16, 1);
        flush(&mut d);
        // A full store: it can still be read, and what is read from it is durable there.
        let id = d.write(60);
        d.complete_first(is_write, Err(IoError::NoSpace));
        assert_eq!(d.reply_to(id), Some(Err(IoError::NoSpace)));
        let id = d.request(Op::Flush, Flags::NONE, 0, 0);
        d.complete_first(is_sync, if sync_fails { Err(IoError::NoSpace) } else { Ok(()) });
        d.settle();
        assert_eq!(d.reply_to(id).expect("an answer").is_err(), sync_fails);
        assert!(d.cache.backing_failure(Volume(0)).is_some());
        for block in (0..4).cycle().take(64) {
            read(&mut d, block);
            d.settle();
        }
        // After the failed sync, the end of the write to this stripe never becomes durable.
        assert_eq!(stats(&d).queue_promotions > 0, !sync_fails);
    }
}

#[test]
fn under_etica_what_enters_flash_leaves_frames_to_others() {
    let mut d = with_queues_and_frames(12, 1, 8);
    // The twelfth request ends the interval; the round chooses six blocks of twelve.
    (0..11).for_each(|block| read(&mut d, 2 * block));
    d.read(2 * 11);
    d.read(2 * 12);
    // Of nine frames clients fill two; of the seven others four stay free.
    assert_eq!(d.count(is_read), 2 + 3);
    d.settle();
}
