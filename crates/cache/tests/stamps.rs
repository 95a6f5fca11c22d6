//! Stamps of stores whose headers take long to be written.

use crate::driver::{
    BLOCK, Driver, is_flash_sync, is_flash_write, is_write, with_flash, with_slots,
};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, Notice, Order, StampReport, VolumeConfig, WritePolicy,
};
use forebay_effect::{Effect, IoError, RequestId};
use forebay_flash::{SEAL_BYTES, Sealed, StampNumber};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Lets time pass until then, timeout by timeout; what devices do ends at once.
fn wait(d: &mut Driver, until: u64) {
    while let Some(at) = d.cache.poll_timeout().filter(|at| at.0 <= until) {
        d.next = d.next.max(at.0);
        d.cache.handle_timeout(Nanos(d.next));
        d.poll();
        d.settle();
    }
    d.next = until;
}

/// The volumes of which stamps are ordered.
fn ordered(d: &mut Driver) -> Vec<Volume> {
    let notices = std::iter::from_fn(|| d.cache.poll_notice());
    let stamps = notices.filter_map(|notice| match notice {
        Notice::Stamp { stamps, .. } => Some(stamps),
        _ => None,
    });
    stamps.flatten().map(|(volume, _)| volume).collect()
}

/// A cleaning waits for the stamp of the store of volume 0. Volume 1, whose store keeps none, is there to be
/// compared with.
fn waiting_for_a_stamp() -> Driver {
    waiting_for_a_stamp_in(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash))
}

fn waiting_for_a_stamp_in(config: CacheConfig) -> Driver {
    let mut cache = Cache::new(config);
    cache.attach(VolumeConfig::new(64 * BLOCK));
    cache.attach(VolumeConfig::new(64 * BLOCK));
    cache.keep_stamps(Volume(0));
    let mut d = Driver::start(cache);
    d.write(0);
    d.settle();
    // Volume 1 fills flash until the region with the record of volume 0 is cleaned.
    let stamped = (0..600).any(|n| {
        d.next += MS;
        let (id, now) = (RequestId(d.next), Nanos(d.next));
        let write = Request::new(now, Volume(1), Op::Write, n % 60 * BLOCK, BLOCK);
        d.cache.handle_request(id, write);
        d.poll();
        d.settle();
        ordered(&mut d) == [Volume(0)]
    });
    assert!(stamped, "the store of volume 0 needs no stamp");
    d
}

/// Reports the stamp of volume 0, and ends all that devices do but writes to its store.
fn report(d: &mut Driver, result: Result<StampNumber, IoError>) {
    d.cache.handle_stamped(Nanos(d.next), &[StampReport { volume: Volume(0), result }]);
    d.poll();
    while d.count(|effect| !is_write(effect)) > 0 {
        d.complete_first(|effect| !is_write(effect), Ok(()));
    }
}

#[test]
fn a_store_whose_header_takes_long_to_be_written_is_not_late_when_its_writes_begin() {
    let mut d = waiting_for_a_stamp();
    // The cleaning waits up to one second for the header, because a request waits.
    let later = d.next + 9 * SECOND / 10;
    wait(&mut d, later);
    assert_eq!(d.cache.stats().cleanings_parted, 0);
    report(&mut d, Ok(StampNumber(1)));
    assert_eq!(d.count(is_write), 1, "it waited for the stamp");
    // A store is late when a round of writes takes 250 ms, or 50 ms while a request waits.
    for (ms, parted) in [(1, 0), (250, 1)] {
        d.next += ms * MS;
        d.cache.handle_timeout(Nanos(d.next));
        d.poll();
        assert_eq!(d.cache.stats().cleanings_parted, parted, "{ms} ms later");
    }
}

#[test]
fn a_store_is_written_after_its_stamp_even_if_that_has_no_number_and_not_without_one() {
    // An older copy of a store keeps the number of its stamp, and may have none.
    for (result, writes) in [(Ok(StampNumber::NONE), 1), (Err(IoError::Device), 0)] {
        let mut d = waiting_for_a_stamp();
        report(&mut d, result);
        assert_eq!(d.count(is_write), writes, "{result:?}");
        assert_eq!(d.cache.stats().destage_retries, u64::from(result.is_err()), "{result:?}");
    }
}

#[test]
fn a_seal_counts_as_a_stamp_of_the_stores_whose_headers_were_written_for_it() {
    for (stamp, owed) in [(Some(StampNumber(2)), vec![]), (None, vec![Volume(0)])] {
        // In the log layout, no destage ends before its stamps are written.
        let mut d = waiting_for_a_stamp_in(with_slots());
        report(&mut d, Ok(StampNumber(1)));
        d.settle();
        d.order(Order::Destage);
        d.settle();
        assert!(d.cache.dirty_blocks() == 0 && d.cache.owes_stamps());
        let volume = Sealed { volume: Volume(0), seal: [1; SEAL_BYTES], distrust: false, stamp };
        d.order(Order::Seal(vec![volume]));
        d.settle();
        ordered(&mut d);
        d.order(Order::Stamp);
        assert_eq!(ordered(&mut d), owed, "{stamp:?}");
    }
}

/// Three volumes on flash that can fail; the header of the store of volume 0 can hang.
struct Dead {
    d: Driver,
    hangs: bool,
    /// Stamps of volume 0 that hang.
    hung: u64,
    dead: bool,
    number: StampNumber,
}

impl Dead {
    /// Ends all that devices do; flash that is dead fails. Writes all headers but those that hang.
    fn settle(&mut self) {
        loop {
            for volume in ordered(&mut self.d) {
                if volume == Volume(0) && self.hangs {
                    self.hung += 1;
                } else {
                    self.report(volume);
                }
            }
            if self.d.pending.is_empty() {
                break;
            }
            let of_flash = |effect: &Effect| is_flash_write(effect) || is_flash_sync(effect);
            let fails = self.dead && of_flash(&self.d.pending[0].0);
            let result = if fails { Err(IoError::Device) } else { Ok(()) };
            self.d.complete_first(|_| true, result);
        }
    }

    fn report(&mut self, volume: Volume) {
        self.number = StampNumber(self.number.0 + 1);
        let report = StampReport { volume, result: Ok(self.number) };
        self.d.cache.handle_stamped(Nanos(self.d.next), &[report]);
        self.d.poll();
    }

    fn write(&mut self, volume: u32) -> u64 {
        self.request(volume, Op::Write, BLOCK)
    }

    fn request(&mut self, volume: u32, op: Op, length: u64) -> u64 {
        self.d.next += MS;
        let (id, now) = (RequestId(self.d.next), Nanos(self.d.next));
        self.d.cache.handle_request(id, Request::new(now, Volume(volume), op, 0, length));
        self.d.poll();
        self.settle();
        self.d.next
    }

    fn wait(&mut self, until: u64) {
        while let Some(at) = self.d.cache.poll_timeout().filter(|at| at.0 <= until) {
            self.d.next = self.d.next.max(at.0);
            self.d.cache.handle_timeout(Nanos(self.d.next));
            self.d.poll();
            self.settle();
        }
        self.d.next = until;
    }

    fn pass_through(&self) -> [bool; 3] {
        [0, 1, 2].map(|volume| self.d.cache.passes_through(Volume(volume)))
    }
}

/// Goal: after flash has failed, a header that hangs keeps only its own volume from continuing without flash. Method:
/// the header of volume 0 hangs before flash fails, or only when it must say that records on flash are void.
#[test]
fn volumes_continue_without_flash_although_the_header_of_another_hangs() {
    for hangs_before in [false, true] {
        let mut cache = Cache::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
        for volume in [0, 1, 2].map(Volume) {
            cache.attach(VolumeConfig::new(64 * BLOCK));
            cache.keep_stamps(volume);
        }
        let (d, number) = (Driver::start(cache), StampNumber::NONE);
        let mut it = Dead { d, hangs: false, hung: 0, dead: false, number };
        (0..3).for_each(|volume| _ = it.write(volume));
        it.d.order(Order::Destage);
        it.settle();
        assert_eq!(it.d.cache.dirty_blocks(), 0);
        it.hangs = hangs_before;
        it.write(1);
        it.request(1, Op::Flush, 0);
        it.d.order(Order::Stamp);
        it.settle();
        assert_eq!(it.hung, u64::from(hangs_before));
        (it.hangs, it.dead) = (true, true);
        it.d.order(Order::Destage);
        it.settle();
        let waits = it.write(2);
        let later = it.d.next + 9 * SECOND;
        it.wait(later);
        assert!(it.pass_through()[2], "{hangs_before}");
        assert_eq!(it.d.reply_to(waits), Some(Ok(())), "{hangs_before}");
        assert!(!it.pass_through()[0], "{hangs_before}: its header says nothing");
        // The header is written after all, and another attempt succeeds.
        it.hangs = false;
        it.report(Volume(0));
        let later = it.d.next + 60 * SECOND;
        it.wait(later);
        assert!(it.pass_through()[0], "{hangs_before}");
    }
}
