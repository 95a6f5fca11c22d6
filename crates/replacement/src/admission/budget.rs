//! A write budget: a random share of blocks enters, which a control loop adjusts.
//!
//! At the end of each [interval](INTERVAL) the share is multiplied by the interval's target and
//! divided by the bytes written in the last interval. The share at most [doubles](GROWTH), and
//! starts [small](LEAST). The target is the interval's part of the daily budget, corrected so that
//! the
//! balance is settled within an [hour](CATCH_UP_TIME). The balance is the surplus or deficit of
//! writes so far, at most a day's budget; a restart resets it. All writes to flash count, so writes
//! that need no admission leave less for blocks that do.

use super::{Offer, threshold};
use crate::hash::mix;

const SECOND: u64 = 1_000_000_000;
/// Nanoseconds between adjustments of the share.
const INTERVAL: u64 = 10 * SECOND;
/// Nanoseconds within which the balance is settled.
const CATCH_UP_TIME: u64 = 3600 * SECOND;
const DAY: u64 = 24 * 3600 * SECOND;
/// A share of 1, in millionths.
const WHOLE: u64 = 1_000_000;
/// The first share, and the one from which a share of 0 grows again.
const LEAST: u64 = WHOLE / 1000;
/// Maximum factor by which a share grows in an interval.
const GROWTH: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    /// Drive writes per day that are allowed, in thousandths.
    writes_per_day: u64,
    /// The first offer: its time, and the bytes written until then.
    first: Option<Offer>,
    /// The offer that began the interval: its time, and the bytes written until then.
    begun: Offer,
    /// Share of blocks that enter, in millionths.
    share: u64,
    drawn: u64,
}

impl Budget {
    pub fn new(writes_per_day: u64) -> Budget {
        Budget { writes_per_day, first: None, begun: Offer::default(), share: LEAST, drawn: 0 }
    }

    /// Whether the offered block enters.
    pub fn admits(&mut self, offer: Offer) -> bool {
        let first = *self.first.get_or_insert(offer);
        if first == offer {
            self.begun = offer;
        }
        if offer.now.saturating_sub(self.begun.now) >= INTERVAL {
            self.share = self.next_share(first, offer);
            self.begun = offer;
        }
        self.drawn += 1;
        mix(self.drawn) >> 32 < threshold(self.share)
    }

    fn next_share(&self, first: Offer, offer: Offer) -> u64 {
        let per_day = i128::from(offer.size) * i128::from(self.writes_per_day) / 1000;
        let budget = |time: u64| per_day * i128::from(time) / i128::from(DAY);
        let written = i128::from(offer.written) - i128::from(first.written);
        let saved = budget(offer.now - first.now) - written;
        let balance = saved.clamp(-per_day, per_day);
        let target = budget(INTERVAL) + balance * i128::from(INTERVAL) / i128::from(CATCH_UP_TIME);
        let time = i128::from(offer.now - self.begun.now);
        let since = i128::from(offer.written) - i128::from(self.begun.written);
        let in_interval = (since * i128::from(INTERVAL) / time).max(1);
        let share = i128::from(self.share.max(LEAST));
        let next = share * target.max(0) / in_interval;
        next.min(share * i128::from(GROWTH)).min(i128::from(WHOLE)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes written per day, as a share of the budget, when `per_second` blocks of 4 KiB are
    /// offered, each admitted block costs `cost` bytes, and `forced` bytes per second are written
    /// regardless.
    fn share_of_budget(per_second: u64, cost: u64, forced: u64, hours: u64) -> f64 {
        let (size, mut written, mut budget) = (100 << 30, 0, Budget::new(3000));
        for n in 0..hours * 3600 * per_second {
            let now = n * SECOND / per_second;
            let all = written + forced * (now / 1000) / 1_000_000;
            let offer = Offer { now, written: all, size, ..Offer::default() };
            written += cost * u64::from(budget.admits(offer));
        }
        let all = written + forced * hours * 3600;
        all as f64 / (size as f64 * 3.0 * hours as f64 / 24.0)
    }

    #[test]
    fn what_is_written_keeps_to_the_budget_whatever_is_offered() {
        // The budget is 3.6 MiB/s: 910 blocks of 4 KiB a second.
        for (per_second, cost, forced) in
            [(1000, 4096, 0), (5000, 4096, 0), (2000, 9000, 0), (5000, 4096, 2 << 20)]
        {
            let share = share_of_budget(per_second, cost, forced, 6);
            assert!((0.97..1.03).contains(&share), "{per_second} {cost} {forced}: {share}");
        }
        // Fewer writes are offered than the budget allows: all blocks enter.
        let share = share_of_budget(100, 4096, 0, 6);
        assert!((0.10..0.12).contains(&share), "{share}");
        // The forced writes alone exceed the budget: nothing enters.
        let share = share_of_budget(1000, 4096, 4 << 20, 6);
        assert!((1.10..1.18).contains(&share), "{share}");
    }

    #[test]
    fn a_quiet_night_is_made_good_within_hours_and_not_at_once() {
        let (size, mut written, mut budget) = (100u64 << 30, 0, Budget::new(1000));
        let in_day = 8 * 3600;
        let mut of_first_minute = 0;
        for second in (0..10).chain(in_day..2 * in_day) {
            for n in 0..5000 {
                let now = second * SECOND + n * SECOND / 5000;
                written += 4096
                    * u64::from(budget.admits(Offer { now, written, size, ..Offer::default() }));
            }
            of_first_minute = if second == in_day + 60 { written } else { of_first_minute };
        }
        let may = (size / 3 * 2) as f64;
        assert!((0.95..1.03).contains(&(written as f64 / may)), "{written} of {may}");
        assert!(of_first_minute < size / 20, "{of_first_minute} in a minute");
    }
}
