//! Stamps of stores whose headers take long to be written.

use crate::driver::{BLOCK, Driver, is_write, with_flash, with_slots};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, Notice, Order, StampReport, VolumeConfig, WritePolicy,
};
use forebay_effect::{IoError, RequestId};
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
