//! Backing stores that cannot be synced, under write-through: the extents of the activity table that they
//! hold stay marked, and the volumes of other stores keep their flash tier.

use crate::driver::{BLOCK, Driver, is_flash_sync, is_flash_write, is_write, with_flash};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_cache::{Acknowledge, WritePolicy};
use forebay_effect::{Device, Effect, IoError, Outcome, RequestId};

/// Blocks of an extent of the activity table.
const EXTENT: u64 = 16;

/// Two volumes under write-through, of four extents each; the table has room for two. Syncs of the stores in
/// `failing` (bits) fail, and those of the stores in `hanging` never end.
struct Stores {
    d: Driver,
    failing: u64,
    hanging: u64,
}

impl Stores {
    fn new() -> Stores {
        let config = with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        Stores { d: Driver::new(config), failing: 0, hanging: 0 }
    }

    fn request(&mut self, volume: u32, op: Op, block: u64) {
        let result = self.ask(volume, op, block * BLOCK, BLOCK);
        assert!(!self.d.cache.has_given_up(), "flash is given up: {}", self.d.cache.describe());
        assert_eq!(result, Some(Ok(())), "{op:?} of block {block} of volume {volume}");
    }

    fn flush(&mut self, volume: u32) {
        assert_eq!(self.ask(volume, Op::Flush, 0, 0), Some(Ok(())));
    }

    fn ask(&mut self, volume: u32, op: Op, offset: u64, length: u64) -> Option<Outcome> {
        let Stores { d, failing, hanging } = self;
        let is_of = |stores: u64, effect: &Effect| match effect {
            Effect::Sync { device: Device::Backing(Volume(v)), .. } => stores >> v & 1 == 1,
            _ => false,
        };
        d.next += 1;
        let (id, volume) = (d.next, Volume(volume));
        let request = Request { time: Nanos(id), volume, op, flags: Flags::NONE, offset, length };
        d.cache.handle_request(RequestId(id), request);
        d.poll();
        let ends = |effect: &Effect| !is_of(*hanging, effect);
        while let Some((effect, _)) = d.pending.iter().find(|(effect, _)| ends(effect)) {
            let result = if is_of(*failing, effect) { Err(IoError::Device) } else { Ok(()) };
            d.complete_first(ends, result);
        }
        d.reply_to(id)
    }

    /// Reads blocks of a volume, then others, so that the first are on flash and not in memory.
    fn put_on_flash(&mut self, volume: u32, blocks: &[u64]) {
        let others = [60, 61, 62, 63, 60, 61, 62, 63];
        for &block in blocks.iter().chain(&others) {
            self.request(volume, Op::Read, block);
        }
    }

    /// Reads of the volume that flash has answered.
    fn flash_hits(&self, volume: u32) -> u64 {
        self.d.cache.volume_stats(Volume(volume)).unwrap().read_hits.tier2
    }
}

#[test]
fn a_store_that_cannot_be_synced_takes_flash_from_no_other_volume() {
    let mut s = Stores::new();
    s.put_on_flash(0, &[0, EXTENT, 2 * EXTENT]);
    s.put_on_flash(1, &[1, EXTENT + 1]);
    s.failing = 1;
    // The third extent needs the place of one of the first two, which cannot be given up.
    for n in 0..3 {
        s.request(0, Op::Write, n * EXTENT);
    }
    // The other volume writes over what flash has of it; flash serves it, before and after.
    let before = s.flash_hits(1);
    s.request(1, Op::Read, 1);
    assert_eq!(s.flash_hits(1), before + 1);
    for block in [1, EXTENT + 1] {
        s.request(1, Op::Write, block);
    }
    // What is durable on its store enters flash without a mark.
    s.flush(1);
    s.put_on_flash(1, &[33, 34, 35, 36]);
    let before = s.flash_hits(1);
    s.request(1, Op::Read, 33);
    assert_eq!(s.flash_hits(1), before + 1);
}

#[test]
fn other_volumes_share_the_places_that_are_left() {
    let mut s = Stores::new();
    s.put_on_flash(0, &[0, EXTENT]);
    s.put_on_flash(1, &[1, EXTENT + 1, 2 * EXTENT + 1]);
    s.failing = 1;
    s.request(0, Op::Write, 0);
    assert_eq!(s.ask(0, Op::Flush, 0, 0), Some(Err(IoError::Device)));
    for n in 0..3 {
        s.request(1, Op::Write, n * EXTENT + 1);
    }
    assert_eq!(
        s.d.cache.stats().voided_alone,
        0,
        "each was marked, in the place of the one before"
    );
    s.request(0, Op::Write, EXTENT);
    assert_eq!(s.d.cache.stats().voided_alone, 1, "the volume itself gets no other place");
    // Once more: there is no record any more.
    s.request(0, Op::Write, EXTENT);
    assert_eq!(s.d.cache.stats().voided_alone, 1);
}

#[test]
fn a_record_is_void_before_the_store_is_written_and_a_log_that_fails_meanwhile_fails_the_write() {
    let mut s = Stores::new();
    s.put_on_flash(0, &[0, EXTENT]);
    s.failing = 1;
    s.request(0, Op::Write, 0);
    assert_eq!(s.ask(0, Op::Flush, 0, 0), Some(Err(IoError::Device)));
    let id = s.d.write(EXTENT);
    assert_eq!((s.d.count(is_flash_write), s.d.count(is_write)), (1, 0));
    s.d.complete_first(is_flash_write, Ok(()));
    assert_eq!((s.d.count(is_flash_sync), s.d.count(is_write)), (1, 0), "not durable yet");
    // The record may still be found at a start, so the store must not move on.
    s.d.complete_first(is_flash_sync, Err(IoError::Device));
    s.d.settle();
    assert_eq!(s.d.reply_to(id), Some(Err(IoError::Device)));
    assert_eq!(s.d.count(is_write), 0);
    let id = s.d.write(EXTENT);
    s.d.settle();
    assert_eq!(s.d.reply_to(id), Some(Err(IoError::Device)), "nor later");
}

#[test]
fn a_store_that_hangs_delays_no_write_to_another_store() {
    let mut s = Stores::new();
    s.put_on_flash(0, &[0]);
    s.put_on_flash(1, &[1, EXTENT + 1]);
    for volume in [0, 1] {
        s.request(volume, Op::Write, u64::from(volume));
    }
    // The table is full, and the extent of the store that hangs was marked before the other one.
    s.hanging = 1;
    s.request(1, Op::Write, EXTENT + 1);
    assert_eq!(s.d.cache.stats().voided_alone, 0, "the other extent of the volume has left");
}

#[test]
fn a_volume_that_gets_no_mark_does_not_wait_for_a_store_that_hangs() {
    let mut s = Stores::new();
    s.put_on_flash(0, &[0, EXTENT]);
    s.put_on_flash(1, &[1, EXTENT + 1]);
    for volume in [0, 1] {
        s.request(volume, Op::Write, u64::from(volume));
    }
    s.failing = 2;
    assert_eq!(s.ask(1, Op::Flush, 0, 0), Some(Err(IoError::Device)));
    s.hanging = 1;
    assert_eq!(s.ask(0, Op::Write, EXTENT * BLOCK, BLOCK), None, "it waits for its own store");
    s.request(1, Op::Write, EXTENT + 1);
    assert_eq!(s.d.cache.stats().voided_alone, 1);
}
