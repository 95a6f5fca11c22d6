//! Stamps of stores whose headers take long to be written.

use crate::driver::{BLOCK, Driver, is_write, with_flash};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{Acknowledge, Cache, Notice, VolumeConfig, WritePolicy};
use forebay_effect::RequestId;

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

#[test]
fn a_store_whose_header_takes_long_to_be_written_is_not_late_when_its_writes_begin() {
    // The store of volume 0 keeps stamps. Volume 1 is there to be compared with.
    let mut cache = Cache::new(with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash));
    cache.attach(VolumeConfig::new(64 * BLOCK));
    cache.attach(VolumeConfig::new(64 * BLOCK));
    cache.keep_stamps(Volume(0));
    let mut d = Driver::start(cache);
    d.write(0);
    d.settle();
    // Volume 1 fills flash, again and again, until the oldest region is that of volume 0.
    let stamped_at = (0..600).find(|n| {
        d.next += MS;
        let (id, now) = (RequestId(d.next), Nanos(d.next));
        let write = Request::new(now, Volume(1), Op::Write, n % 60 * BLOCK, BLOCK);
        d.cache.handle_request(id, write);
        d.poll();
        d.settle();
        ordered(&mut d) == [Volume(0)]
    });
    assert!(stamped_at.is_some(), "the store of volume 0 needs no stamp");
    // The header takes ten seconds, during which no call has to be made.
    let later = d.next + 10 * SECOND;
    wait(&mut d, later);
    d.cache.handle_stamped(Nanos(d.next), &[(Volume(0), 1)]);
    d.poll();
    while d.count(|effect| !is_write(effect)) > 0 {
        d.complete_first(|effect| !is_write(effect), Ok(()));
    }
    assert_eq!(d.count(is_write), 1, "it waited for the stamp");
    // A store is late when a round of writes takes 250 ms, or 50 ms while a request waits.
    for (ms, parted) in [(1, 0), (250, 1)] {
        d.next += ms * MS;
        d.cache.handle_timeout(Nanos(d.next));
        d.poll();
        assert_eq!(d.cache.stats().cleanings_parted, parted, "{ms} ms later");
    }
}
