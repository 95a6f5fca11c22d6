//! Goal: an access counts where it finds its block, also while a transfer of the block is in flight; so the counters
//! agree with what the devices are asked for.
//!
//! Method: each transfer is held back while the same block, or another part of it, is read.

use crate::driver::*;
use forebay_block::{Flags, Op, Volume};
use forebay_cache::{
    Acknowledge, CacheConfig, FlashLayout, Hits, LogReplacement, Order, WritePolicy,
};
use forebay_effect::Effect;

const PART: u64 = 512;

fn memory(write_policy: WritePolicy) -> Driver {
    Driver::new(CacheConfig { write_policy, ..CacheConfig::dram_only(4) })
}

fn hits(d: &Driver) -> Hits {
    d.cache.volume_stats(Volume(0)).expect("a volume").read_hits
}

/// How a read of one part of block 0, which begins now and waits, counts; and how many reads of the store and of
/// flash begin until it is answered.
fn waits(d: &mut Driver, part: u64) -> ([u64; 4], [usize; 2]) {
    let before = hits(d);
    let id = d.request(Op::Read, Flags::NONE, part * PART, PART);
    assert_eq!(d.reply_to(id), None, "it waits for the transfer");
    let mut reads = [0, 0];
    while d.reply_to(id).is_none() {
        let effect = &d.pending.first().expect("a transfer").0;
        reads[0] += usize::from(is_read(effect));
        reads[1] += usize::from(is_flash_read(effect));
        d.complete_first(|_| true, Ok(()));
    }
    let now = hits(d);
    let counted = [
        now.tier1 - before.tier1,
        now.tier2 - before.tier2,
        now.delayed - before.delayed,
        now.miss - before.miss,
    ];
    (counted, reads)
}

const TIER1: [u64; 4] = [1, 0, 0, 0];
const TIER2: [u64; 4] = [0, 1, 0, 0];
const DELAYED: [u64; 4] = [0, 0, 1, 0];
const MISS: [u64; 4] = [0, 0, 0, 1];

/// Completes device effects until one of these is in flight, and no others.
fn hold(d: &mut Driver, held: impl Fn(&Effect) -> bool) {
    while d.count(|e| !held(e)) > 0 {
        d.complete_first(|e| !held(e), Ok(()));
    }
    assert!(d.count(held) > 0, "nothing is in flight");
}

#[test]
fn the_rest_of_a_block_is_read_while_a_part_goes_to_flash() {
    let mut d = Driver::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
    d.request(Op::Write, Flags::NONE, 0, PART);
    assert_eq!(d.count(is_flash_write), 1);
    assert_eq!(waits(&mut d, 4), (MISS, [1, 0]));
}

#[test]
fn the_rest_of_a_block_is_read_while_a_part_is_destaged() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    d.request(Op::Write, Flags::NONE, 0, PART);
    (10..13).for_each(|block| read(&mut d, block));
    d.read(13);
    hold(&mut d, is_write);
    assert_eq!(waits(&mut d, 4), (MISS, [1, 0]));
}

#[test]
fn a_block_is_read_while_a_write_that_dropped_it_goes_to_the_store() {
    let mut d = memory(WritePolicy::READ_ONLY);
    read(&mut d, 0);
    d.write(0);
    assert_eq!(waits(&mut d, 4), (MISS, [1, 0]));
}

#[test]
fn a_block_is_read_while_it_is_trimmed_on_the_store() {
    for op in [Op::Trim, Op::WriteZeroes] {
        let mut d = memory(WritePolicy::WRITE_THROUGH);
        read(&mut d, 0);
        d.request(op, Flags::NONE, 0, BLOCK);
        assert_eq!(waits(&mut d, 4), (MISS, [1, 0]), "{op:?}");
    }
}

#[test]
fn what_is_written_through_is_read_while_it_goes_to_the_store() {
    let mut d = memory(WritePolicy::WRITE_THROUGH);
    d.write(0);
    assert_eq!(waits(&mut d, 4), (TIER1, [0, 0]));
    // Another part of a block of which one part is written.
    let mut d = memory(WritePolicy::WRITE_THROUGH);
    d.request(Op::Write, Flags::NONE, 0, PART);
    assert_eq!(waits(&mut d, 4), (MISS, [1, 0]));
    // Only a part of what is read is written, and memory has the rest.
    let mut d = memory(WritePolicy::WRITE_THROUGH);
    d.request(Op::Write, Flags::NONE, 4 * PART, PART);
    d.settle();
    d.request(Op::Write, Flags::NONE, 3 * PART, PART);
    let before = hits(&d);
    let id = d.request(Op::Read, Flags::NONE, 3 * PART, 2 * PART);
    assert_eq!(d.reply_to(id), None);
    assert_eq!(hits(&d).tier1 - before.tier1, 1);
    d.settle();
    assert_eq!(d.cache.volume_stats(Volume(0)).expect("a volume").backing_read_bytes, 0);
}

#[test]
fn a_block_is_read_while_another_read_fetches_it() {
    let mut d = memory(WritePolicy::WRITE_BACK);
    d.read(0);
    assert_eq!(waits(&mut d, 4), (DELAYED, [1, 0]));
}

/// Blocks 0 to 3 are dirty on flash and not in memory.
fn on_flash() -> Driver {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    let mut d = Driver::with_so_many_volumes(config, 64 * BLOCK, 1);
    [0, 1, 2, 3, 20, 30, 40, 50].into_iter().for_each(|block| write(&mut d, block));
    d
}

#[test]
fn a_block_is_read_while_its_record_is_destaged() {
    let mut d = on_flash();
    d.order(Order::Destage);
    hold(&mut d, is_flash_read);
    // The read of the record for the destage, and the one for the client.
    assert_eq!(waits(&mut d, 4), (TIER2, [0, 5]));
    let mut d = on_flash();
    d.order(Order::Destage);
    hold(&mut d, is_write);
    assert_eq!(waits(&mut d, 4), (TIER2, [0, 1]));
}

/// Block 1 is on flash and is kept there when its region is reclaimed: its record is being read for that.
fn kept_on_flash() -> Driver {
    let mut config = with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Dram);
    let flash = config.flash.as_mut().expect("there is flash");
    flash.layout = FlashLayout::Log { replacement: LogReplacement::Frequency };
    flash.promote_after = u8::MAX;
    let mut d = Driver::new(CacheConfig { bounce_frames: 8, spare_frames: 8, ..config });
    (0..12).chain([0, 0]).for_each(|block| read(&mut d, block));
    for block in 20..64 {
        d.read(block);
        while d.count(|e| !is_flash_read(e)) > 0 {
            d.complete_first(|e| !is_flash_read(e), Ok(()));
        }
        if d.count(is_flash_read) > 0 {
            return d;
        }
    }
    panic!("no record is read to be kept");
}

#[test]
fn a_block_is_read_while_flash_keeps_its_record() {
    let mut d = kept_on_flash();
    assert_eq!(waits(&mut d, 4), (TIER2, [0, 2]));
    let mut d = kept_on_flash();
    d.complete_first(is_flash_read, Ok(()));
    assert_eq!(d.count(is_flash_write), 1);
    assert_eq!(waits(&mut d, 4), (TIER2, [0, 1]));
    assert_eq!(stats(&d).reinserted, 1);
}

#[test]
fn a_write_finds_what_memory_or_flash_has_whatever_is_in_flight() {
    let writes = |d: &Driver| d.cache.volume_stats(Volume(0)).expect("a volume").write_hits;
    // Block 0 is only on flash, and its record goes to the store.
    let mut d = on_flash();
    d.order(Order::Destage);
    hold(&mut d, is_write);
    let before = writes(&d);
    let id = d.write(0);
    assert_eq!(d.reply_to(id), None);
    assert_eq!([writes(&d).tier1 - before.tier1, writes(&d).tier2 - before.tier2], [0, 1]);
    d.settle();
    // Neither has it after a write that is on its way to the store has dropped it.
    let mut d = memory(WritePolicy::WRITE_THROUGH);
    read(&mut d, 0);
    d.request(Op::WriteZeroes, Flags::NONE, 0, BLOCK);
    let before = writes(&d);
    d.write(0);
    assert_eq!([writes(&d).tier1 - before.tier1, writes(&d).miss - before.miss], [0, 1]);
    d.settle();
}
