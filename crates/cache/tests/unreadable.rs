//! Dirty records that flash does not give back: how many are called lost, and from when on flash is
//! rather believed to be away for a while.

use std::ops::Range;

use crate::driver::{BLOCK, Driver, flash_offset, is_flash_read, with_flash};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{Acknowledge, CacheConfig, CacheStats, WritePolicy};
use forebay_effect::{Device, Effect, IoError, Outcome, RequestId};

const SECOND: u64 = 1_000_000_000;

/// A flash tier of 8 regions of 24 records each, of which some cannot be read.
struct Tier {
    d: Driver,
    /// Bytes of flash that cannot be read.
    bad: Vec<Range<u64>>,
    /// Whether what is written is to become unreadable.
    spoils: bool,
}

impl Tier {
    fn new(blocks: u32) -> Tier {
        let mut config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
        let flash = config.flash.as_mut().expect("a tier with flash");
        flash.geometry.region_pages = 48;
        flash.geometry.regions = 8;
        flash.entries_max = blocks;
        let config = CacheConfig { give_up_after: Nanos(60 * SECOND), ..config };
        Tier { d: Driver::with_volumes(config, 1024 * BLOCK), bad: Vec::new(), spoils: false }
    }

    fn write(&mut self, block: u64) -> Option<Outcome> {
        self.d.next += 1;
        let (id, now) = (RequestId(self.d.next), Nanos(self.d.next));
        let write = Request::new(now, Volume(0), Op::Write, block * BLOCK, BLOCK);
        self.d.cache.handle_request(id, write);
        self.d.poll();
        self.settle();
        // Attempts that fail have pauses between them.
        let until = self.d.next + 20 * SECOND;
        while self.d.reply_to(id.0).is_none()
            && let Some(at) = self.d.cache.poll_timeout().filter(|at| at.0 <= until)
        {
            self.d.next = self.d.next.max(at.0);
            self.d.cache.handle_timeout(Nanos(self.d.next));
            self.d.poll();
            self.settle();
        }
        self.d.reply_to(id.0)
    }

    fn settle(&mut self) {
        while let Some((effect, _)) = self.d.pending.first() {
            if let Effect::Write { device: Device::Flash, offset, length, .. } = *effect {
                let written = offset..offset + u64::from(length);
                self.bad.retain(|bad| bad.end <= written.start || written.end <= bad.start);
                self.bad.extend(self.spoils.then_some(written));
            }
            let is_bad = |at: u64| self.bad.iter().any(|bad| bad.contains(&at));
            let fails = is_flash_read(effect) && is_bad(flash_offset(effect));
            self.d.complete_first(|_| true, if fails { Err(IoError::Device) } else { Ok(()) });
        }
    }

    /// Whether writes go on, and the counters, when the log has gone round over `count` records that cannot
    /// be read; flash can hold `blocks` blocks.
    fn go_round(count: u64, blocks: u32) -> (bool, CacheStats) {
        let mut tier = Tier::new(blocks);
        tier.spoils = true;
        for block in 0..count {
            assert_eq!(tier.write(block), Some(Ok(())));
        }
        tier.spoils = false;
        assert_eq!(tier.bad.len() as u64, count, "a batch for each");
        let goes_on = (0..600).all(|n| tier.write(100 + n % 90) == Some(Ok(())));
        assert_eq!(goes_on, !tier.d.cache.has_given_up());
        (goes_on, *tier.d.cache.stats())
    }
}

#[test]
fn sixteen_records_of_a_region_are_called_lost_and_seventeen_are_not() {
    let (goes_on, stats) = Tier::go_round(16, 192);
    assert!(goes_on, "{stats:?}");
    assert!(stats.carried_lost >= 2 * 16, "the log has gone round at least twice: {stats:?}");
    let (goes_on, stats) = Tier::go_round(17, 192);
    assert!(!goes_on, "{stats:?}");
    assert_eq!(stats.carried_lost, 0);
}

#[test]
fn a_quarter_of_what_flash_can_hold_is_called_lost_and_no_more() {
    let (goes_on, stats) = Tier::go_round(10, 40);
    assert!(goes_on, "{stats:?}");
    let (goes_on, stats) = Tier::go_round(11, 40);
    assert!(!goes_on, "{stats:?}");
    assert_eq!(stats.carried_lost, 0);
}
