//! Backing stores that fail: what their volumes feel, and what the others do not.

use std::ops::Range;

use crate::driver::{BLOCK, Driver, flash_offset, is_flash_read, is_sync, is_write, with_flash};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, FlashLayout, LogReplacement, Order, WritePolicy,
};
use forebay_effect::{Device, Effect, IoError, Owner, RequestId};
use forebay_flash::Geometry;

const SECOND: u64 = 1_000_000_000;

/// Two volumes on flash; what is written to the stores of those in `dead` (bits) fails, and what those in `silent` are
/// asked for has no end.
struct Stores {
    d: Driver,
    dead: u64,
    silent: u64,
    next: u64,
    /// When both shards carry on records that were written here on flash, that of the first one cannot be read, once.
    misread: Option<Vec<Range<u64>>>,
    /// The records carried on until then.
    carried_before: Option<u64>,
}

impl Stores {
    fn new(acknowledge: Acknowledge) -> Stores {
        Stores::with(with_flash(WritePolicy::WRITE_BACK, acknowledge))
    }

    fn with(config: CacheConfig) -> Stores {
        let give_up_after = Nanos(60 * SECOND);
        Stores {
            d: Driver::new(CacheConfig { give_up_after, ..config }),
            dead: 1,
            silent: 0,
            next: 5000,
            misread: None,
            carried_before: None,
        }
    }

    fn request(&mut self, volume: u32, op: Op, block: u64) -> u64 {
        self.next += 1;
        let (id, now) = (RequestId(self.next), Nanos(self.d.next));
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (block * BLOCK, BLOCK) };
        self.d.cache.handle_request(id, Request::new(now, Volume(volume), op, offset, length));
        self.d.poll();
        self.settle();
        self.next
    }

    fn write(&mut self, volume: u32, block: u64) -> u64 {
        self.request(volume, Op::Write, block)
    }

    /// Ends all that devices do.
    fn settle(&mut self) {
        let dead = self.dead;
        let fails = |effect: &Effect| match effect {
            Effect::Write { device: Device::Backing(Volume(v)), .. } => dead >> v & 1 == 1,
            _ => false,
        };
        let silent = self.silent;
        let answers = |effect: &Effect| match device_of(effect) {
            Some(Device::Backing(Volume(v))) => silent >> v & 1 == 0,
            _ => true,
        };
        for turn in 0.. {
            if self.misreads_one() {
                self.misread = None;
                self.carried_before = Some(self.d.cache.stats().carried);
                continue;
            }
            let Some(next) = self.d.pending.iter().find(|(effect, _)| answers(effect)) else {
                break;
            };
            assert!(turn < 100_000, "no end: {}", self.d.cache.describe());
            let bad = fails(&next.0);
            self.d.complete_first(answers, if bad { Err(IoError::NoSpace) } else { Ok(()) });
        }
        if let Some(before) = self.carried_before.take() {
            let carried = self.d.cache.stats().carried;
            assert!(carried > before, "the other shard's record waits in an open batch");
        }
    }

    /// Fails the read of the first shard, see `misread`.
    fn misreads_one(&mut self) -> bool {
        // (Destages read these records as long as the store is not known to fail.)
        let Some(places) =
            self.misread.as_ref().filter(|_| self.d.cache.is_known_to_fail(Volume(0)))
        else {
            return false;
        };
        let of = |effect: &Effect, shard: u8| match effect {
            Effect::Read { token, .. } => {
                is_flash_read(effect)
                    && token.owner == Owner::Shard(shard)
                    && places.iter().any(|place| place.contains(&flash_offset(effect)))
            }
            _ => false,
        };
        let both = [0, 1].map(|n| self.d.pending.iter().any(|(effect, _)| of(effect, n)));
        if both == [true; 2] {
            self.d.complete_first(|effect| of(effect, 0), Err(IoError::Device));
        }
        both == [true; 2]
    }

    /// Lets time pass, timeout by timeout.
    fn wait(&mut self, seconds: u64) {
        let until = self.d.next + seconds * SECOND;
        while let Some(at) = self.d.cache.poll_timeout().filter(|at| at.0 <= until) {
            self.d.next = self.d.next.max(at.0);
            self.d.cache.handle_timeout(Nanos(self.d.next));
            self.d.poll();
            self.settle();
        }
        self.d.next = until;
    }

    fn dirty(&self, volume: u32) -> u64 {
        self.d.cache.volume_stats(Volume(volume)).unwrap().dirty_blocks
    }
}

fn device_of(effect: &Effect) -> Option<Device> {
    match *effect {
        Effect::Read { device, .. }
        | Effect::Write { device, .. }
        | Effect::WriteZeroes { device, .. }
        | Effect::Sync { device, .. } => Some(device),
        _ => None,
    }
}

#[test]
fn a_store_that_does_not_answer_holds_up_nobody_elses_writes_and_is_destaged_to_when_it_does() {
    let mut s = Stores::new(Acknowledge::Flash);
    s.dead = 0;
    // So that it is known how long both stores take.
    for n in 0..200 {
        s.write((n % 2) as u32, n / 2 % 60);
        s.wait(1);
    }
    for block in 0..8 {
        s.write(0, block);
    }
    s.silent = 1;
    let mut waited = 0;
    for n in 0..600 {
        let id = s.write(1, n % 60);
        if s.d.reply_to(id).is_none() {
            waited += 1;
            s.wait(1);
        }
        assert_eq!(s.d.reply_to(id), Some(Ok(())), "write {n}");
    }
    assert!(waited <= 1, "{waited} writes waited");
    let stats = *s.d.cache.stats();
    assert_eq!(
        stats.cleanings_parted, 1,
        "nothing more is written to a store that does not answer"
    );
    assert!(s.dirty(0) > 0 && s.d.pending.iter().any(|(effect, _)| is_write(effect)));
    // It answers again: what is dirty goes there.
    s.silent = 0;
    s.settle();
    s.wait(30);
    assert_eq!(s.dirty(0), 0);
    s.d.order(Order::Destage);
    s.settle();
    assert_eq!((s.dirty(0), s.dirty(1)), (0, 0));
}

#[test]
fn a_store_that_takes_nothing_holds_up_nobody_elses_writes() {
    for acknowledge in [Acknowledge::Flash, Acknowledge::Dram] {
        let mut s = Stores::new(acknowledge);
        let first: Vec<u64> = (0..4).map(|block| s.write(0, block)).collect();
        s.request(0, Op::Flush, 0);
        assert!(first.iter().all(|&id| s.d.reply_to(id) == Some(Ok(()))));
        let mut slow = 0;
        for n in 0..600 {
            let id = s.write(1, n % 60);
            if s.d.reply_to(id).is_none() {
                // The first attempts have pauses.
                slow += 1;
                s.wait(2);
            }
            assert_eq!(s.d.reply_to(id), Some(Ok(())), "write {n}");
        }
        assert!(slow <= 3, "{slow} writes waited");
        let stats = *s.d.cache.stats();
        assert!(stats.carried > 8, "the log went round, and took what is dirty with it: {stats:?}");
        if acknowledge == Acknowledge::Flash {
            // Each of the writes has a batch of its own; the four records are carried on together.
            let batches = s.d.cache.log_stats().expect("a log").batches;
            assert!(batches <= 604 + stats.carried / 2, "{batches} batches: {stats:?}");
        }
        assert_eq!(s.dirty(0), 4, "all of it");
        assert!(!s.d.cache.has_given_up());
        assert_eq!(s.d.cache.suspended(Volume(0)), None, "nobody has waited for it");
    }
}

#[test]
fn the_log_takes_writes_although_one_shard_cannot_read_what_it_carries_while_another_reads() {
    let mut config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    // One record does not fill a batch.
    config.flash.as_mut().unwrap().geometry.batch_entries_max = 8;
    let mut s = Stores::with(CacheConfig { shards: 2, stripe_shift: 16, ..config });
    // The store of volume 0 takes nothing: what is dirty is carried on, by both shards.
    let mut places = Vec::new();
    for block in [0, 16] {
        s.next += 1;
        let write = Request::new(Nanos(s.d.next), Volume(0), Op::Write, block * BLOCK, BLOCK);
        s.d.cache.handle_request(RequestId(s.next), write);
        s.d.poll();
        places.extend(s.d.pending.iter().filter_map(|(effect, _)| match *effect {
            Effect::Write { device: Device::Flash, offset, length, .. } => {
                Some(offset..offset + u64::from(length))
            }
            _ => None,
        }));
        s.settle();
    }
    s.misread = Some(places);
    let mut slow = 0;
    for n in 0..600 {
        let id = s.write(1, n % 60);
        if s.d.reply_to(id).is_none() {
            slow += 1;
            s.wait(10);
        }
        assert_eq!(s.d.reply_to(id), Some(Ok(())), "write {n}: {}", s.d.cache.describe());
    }
    assert_eq!(s.misread, None, "both shards carry at a time");
    assert!(slow <= 5, "{slow} writes waited");
    assert!(s.d.cache.stats().carried > 8);
}

#[test]
fn who_has_its_share_dirty_waits_then_is_told_then_goes_on() {
    let mut s = Stores::new(Acknowledge::Flash);
    let mut held = None;
    for block in 0..64 {
        let id = s.write(0, block);
        s.wait(1);
        if s.d.reply_to(id).is_none() {
            held = Some(id);
            break;
        }
    }
    let held = held.expect("a volume may not have all of flash");
    assert!(s.d.cache.stats().waits_share > 0);
    // The other volume does not notice.
    let other = s.write(1, 0);
    s.wait(2);
    assert_eq!(s.d.reply_to(other), Some(Ok(())));
    s.wait(50);
    assert_eq!(s.d.reply_to(held), None, "a store may come back");
    s.wait(20);
    assert_eq!(s.d.reply_to(held), Some(Err(IoError::NoSpace)));
    assert_eq!(s.d.cache.suspended(Volume(0)), Some(IoError::NoSpace));
    let told = s.write(0, 63);
    assert_eq!(s.d.reply_to(told), Some(Err(IoError::NoSpace)), "at once");
    let read = s.request(0, Op::Read, 0);
    assert_eq!(s.d.reply_to(read), Some(Ok(())));
    let other = s.write(1, 1);
    assert_eq!(s.d.reply_to(other), Some(Ok(())));
    // Room was made on the store: nobody has to restart anything.
    s.dead = 0;
    s.d.order(Order::RetryStores);
    s.settle();
    s.wait(6);
    assert_eq!(s.d.cache.suspended(Volume(0)), None);
    let good = s.write(0, 63);
    s.wait(6);
    assert_eq!(s.d.reply_to(good), Some(Ok(())));
    s.d.order(Order::Destage);
    s.settle();
    assert_eq!((s.dirty(0), s.dirty(1)), (0, 0));
}

#[test]
fn a_failure_of_long_ago_that_a_destage_forgave_does_not_shorten_how_long_writes_wait() {
    let mut s = Stores::new(Acknowledge::Flash);
    let errors = |s: &Stores| s.d.cache.volume_stats(Volume(0)).unwrap().backing_errors;
    let mut block = 0;
    while errors(&s) == 0 {
        s.write(0, block);
        block += 1;
    }
    assert!(!s.d.cache.is_known_to_fail(Volume(0)), "one failure");
    // A destage begins before the store is tried again, and succeeds.
    s.dead = 0;
    s.d.order(Order::Destage);
    s.settle();
    s.wait(600);
    assert_eq!(s.dirty(0), 0);
    // Ten minutes later the store begins to fail.
    s.dead = 1;
    let held = (0..64).find_map(|block| {
        let id = s.write(0, block);
        s.wait(1);
        s.d.reply_to(id).is_none().then_some(id)
    });
    let held = held.expect("a volume may not have all of flash");
    s.wait(30);
    assert!(s.d.cache.is_known_to_fail(Volume(0)));
    assert_eq!((s.d.reply_to(held), s.d.cache.suspended(Volume(0))), (None, None));
    s.wait(60);
    assert_eq!(s.d.reply_to(held), Some(Err(IoError::NoSpace)));
}

#[test]
fn a_retry_lets_writes_wait_again_rather_than_fail() {
    let mut s = Stores::new(Acknowledge::Flash);
    for block in 0..64 {
        s.write(0, block);
    }
    s.wait(70);
    assert!(s.d.cache.suspended(Volume(0)).is_some());
    // Nothing was mended.
    s.d.order(Order::RetryStores);
    assert_eq!(s.d.cache.suspended(Volume(0)), None);
    let waits = s.write(0, 63);
    s.wait(50);
    assert_eq!(s.d.reply_to(waits), None, "it has as long as the first");
    s.wait(20);
    assert_eq!(s.d.reply_to(waits), Some(Err(IoError::NoSpace)));
    assert!(s.d.cache.suspended(Volume(0)).is_some());
    // Something was; the write comes before the store has been tried.
    s.dead = 0;
    s.d.cache.handle_order(Nanos(s.d.next), Order::RetryStores);
    let good = s.write(0, 63);
    s.wait(6);
    assert_eq!(s.d.reply_to(good), Some(Ok(())));
}

#[test]
fn a_store_that_comes_back_is_found_without_being_asked_for() {
    let mut s = Stores::new(Acknowledge::Flash);
    for block in 0..64 {
        s.write(0, block);
    }
    s.wait(70);
    assert!(s.d.cache.suspended(Volume(0)).is_some());
    s.dead = 0;
    s.wait(11);
    assert_eq!(s.d.cache.suspended(Volume(0)), None);
    let good = s.write(0, 63);
    s.wait(1);
    assert_eq!(s.d.reply_to(good), Some(Ok(())));
}

#[test]
fn a_volume_that_is_alone_in_what_it_fills_resumes_without_a_restart() {
    // The other volume has nothing dirty, but all records are of the one that fails and of the index
    // there is little: nothing can be carried on.
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let flash = forebay_cache::FlashConfig { entries_max: 4, ..config.flash.clone().unwrap() };
    let give_up_after = Nanos(60 * SECOND);
    let d = Driver::new(CacheConfig { flash: Some(flash), give_up_after, ..config });
    let mut s = Stores { d, dead: 1, silent: 0, next: 5000, misread: None, carried_before: None };
    let writes: Vec<u64> = (0..64).map(|block| s.write(0, block)).collect();
    s.wait(70);
    assert!(writes.iter().all(|&id| s.d.reply_to(id).is_some()), "nobody waits any more");
    s.dead = 0;
    s.wait(11);
    let good = s.write(0, 1);
    s.wait(1);
    assert_eq!(s.d.reply_to(good), Some(Ok(())));
    assert!(s.d.pending.iter().all(|(effect, _)| !is_write(effect)));
}

#[test]
fn requests_larger_than_flash_go_on_beside_a_store_that_takes_nothing() {
    let bytes = 16 << 20;
    let geometry = Geometry::for_device(bytes, 4096).expect("a device of that size");
    let config = CacheConfig {
        dram_blocks: 256,
        spare_frames: 32,
        give_up_after: Nanos(60 * SECOND),
        flash: Some(FlashConfig {
            geometry,
            layout: FlashLayout::Log { replacement: LogReplacement::Frequency },
            entries_max: 4096,
            regions_reserved: 1,
            recovery_chunk_pages: 64,
            admission: forebay_cache::AdmissionParameters::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: Default::default(),
            written: Default::default(),
        }),
        write_policy: WritePolicy::WRITE_BACK,
        acknowledge: Acknowledge::Flash,
        ..CacheConfig::dram_only(256)
    };
    let d = Driver::with_volumes(config, 64 << 20);
    let mut s = Stores { d, dead: 1, silent: 0, next: 5000, misread: None, carried_before: None };
    let long = |s: &mut Stores, volume: u32, blocks: u64| {
        s.next += 1;
        let (id, now) = (RequestId(s.next), Nanos(s.d.next));
        let write = Request::new(now, Volume(volume), Op::Write, 0, blocks * BLOCK);
        s.d.cache.handle_request(id, write);
        s.d.poll();
        s.settle();
        s.wait(3);
        assert_eq!(s.d.reply_to(s.next), Some(Ok(())), "{}", s.d.cache.describe());
    };
    long(&mut s, 0, 512);
    for _ in 0..8 {
        long(&mut s, 1, 8192);
    }
    assert_eq!(s.dirty(0), 512);
}

#[test]
fn a_volume_has_at_most_three_quarters_of_the_requests_that_are_served() {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let mut d = Driver::new(CacheConfig { requests_max: 16, ..config });
    let mut taken = |volume: u32| {
        let mut taken = 0;
        // Reads of a device that does not answer.
        while d.cache.has_room_for(Volume(volume)) {
            d.next += 1;
            let (id, now) = (RequestId(d.next), Nanos(d.next));
            let offset = u64::from(volume) << 16;
            let read = Request::new(now, Volume(volume), Op::Read, offset, BLOCK);
            d.cache.handle_request(id, read);
            d.poll();
            taken += 1;
        }
        taken
    };
    assert_eq!([taken(0), taken(1), taken(0)], [12, 4, 0]);
}

/// Three volumes. The store of the first takes nothing for so long that the volume is suspended; then that of the
/// second takes nothing either, and its client flushes more dirty blocks of memory than the volume may have on flash.
/// The third writes and flushes one block until that has to wait; the number of the flush is returned.
fn jammed() -> (Stores, u64) {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    let dram_blocks = 16;
    let config = CacheConfig { give_up_after: Nanos(60 * SECOND), dram_blocks, ..config };
    let d = Driver::with_so_many_volumes(config, 1 << 20, 3);
    let mut s =
        Stores { d, dead: 0b01, silent: 0, next: 5000, misread: None, carried_before: None };
    for volume in [0, 1] {
        s.dead |= 1 << volume;
        (0..8 + 4 * u64::from(volume)).for_each(|block| _ = s.write(volume, block));
        s.request(volume, Op::Flush, 0);
        if volume == 0 {
            s.write(0, 8);
            s.wait(200);
            assert!(s.d.cache.suspended(Volume(0)).is_some(), "it is waited for");
        }
    }
    for _ in 0..64 {
        let write = s.write(2, 0);
        // It may wait until the record before is destaged.
        s.wait(1);
        assert_eq!(s.d.reply_to(write), Some(Ok(())));
        let flush = s.request(2, Op::Flush, 0);
        match s.d.reply_to(flush) {
            None => return (s, flush),
            Some(result) => assert_eq!(result, Ok(())),
        }
    }
    panic!("there is room for all: {}", s.d.cache.describe());
}

#[test]
fn a_jam_that_passes_fails_nobody_though_stores_have_failed_for_long() {
    let (mut s, waits) = jammed();
    s.wait(30);
    assert_eq!(s.d.reply_to(waits), None, "it may pass");
    s.dead = 0b01;
    s.wait(20);
    assert_eq!(s.d.reply_to(waits), Some(Ok(())));
}

#[test]
fn who_waits_in_a_jam_is_told_when_the_jam_has_lasted_for_long_enough() {
    let (mut s, waits) = jammed();
    s.wait(50);
    assert_eq!(s.d.reply_to(waits), None);
    assert!(!s.d.cache.is_jammed());
    s.wait(20);
    assert_eq!(s.d.reply_to(waits), Some(Err(IoError::Device)));
    assert!(s.d.cache.is_jammed(), "an operator is to be told");
    // Whoever comes later, at once.
    s.write(2, 0);
    let late = s.request(2, Op::Flush, 0);
    assert_eq!(s.d.reply_to(late), Some(Err(IoError::Device)));
    s.dead = 0;
    s.wait(11);
    assert!(!s.d.cache.is_jammed());
    s.write(2, 0);
    let good = s.request(2, Op::Flush, 0);
    s.wait(1);
    assert_eq!(s.d.reply_to(good), Some(Ok(())));
}

#[test]
fn a_sync_of_one_store_that_fails_leaves_the_marks_of_others_what_they_are() {
    let mut config = with_flash(WritePolicy::WRITE_THROUGH, Acknowledge::Dram);
    let geometry = &mut config.flash.as_mut().expect("there is flash").geometry;
    (geometry.active_extents_max, geometry.extent_bytes) = (2, 4 * BLOCK);
    let mut d = Driver::new(config);
    let mut id = 5000;
    let mut other = |d: &mut Driver, op: Op, block: u64| {
        id += 1;
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (block * BLOCK, BLOCK) };
        let request = Request::new(Nanos(id), Volume(1), op, offset, length);
        d.cache.handle_request(RequestId(id), request);
        d.poll();
        d.settle();
        assert_eq!(d.reply_to(id), Some(Ok(())), "{op:?} of block {block}");
    };
    // Blocks of the second volume are read into memory, and leave it for flash.
    for n in 0..2000 {
        other(&mut d, Op::Read, (n * n / 3 + n) % 32);
    }
    d.write(0);
    d.settle();
    let flush = d.request(Op::Flush, Flags::NONE, 0, 0);
    d.complete_first(is_sync, Err(IoError::Device));
    d.settle();
    assert!(d.reply_to(flush).is_some_and(|result| result.is_err()));
    // Its next writes go past their records, in more extents than can be marked at a time: marks are given
    // back after a sync of that store.
    for block in 0..32 {
        other(&mut d, Op::Write, block);
        assert!(!d.cache.has_given_up(), "block {block}");
    }
}
