//! The number of accesses that `adaptive` requires, which follows the latency of flash.
//!
//! Flash also serves writes. Once reads from flash take as long as reads from the backing stores, a
//! hit on flash gains nothing, and the number doubles each second. When they take at most half as
//! long, or nothing was read from flash, it halves.

use super::Offer;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    /// The last second that was evaluated.
    second: u64,
    most: u8,
}

impl Pace {
    /// A pace that requires at most `most` accesses.
    pub fn new(most: u8) -> Pace {
        Pace { second: 0, most }
    }

    /// The number of accesses that a block needs from now on; `hits` is the number so far.
    pub fn next(&mut self, hits: u8, offer: Offer) -> u8 {
        if offer.second == self.second {
            return hits;
        }
        self.second = offer.second;
        match (offer.flash, offer.stores) {
            (0, 0) => hits,
            (0, _) => (hits / 2).max(1),
            // Without reads from the backing stores there is nothing to compare with.
            (_, 0) => hits,
            (flash, stores) if flash >= stores => hits.saturating_mul(2).min(self.most),
            (flash, stores) if flash <= stores / 2 => (hits / 2).max(1),
            _ => hits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_follows_what_flash_takes() {
        let (mut pace, mut hits, mut second) = (Pace::new(10), 1, 0);
        let mut after = |flash, stores| {
            second += 1;
            let offer = Offer { second, flash, stores, ..Offer::default() };
            hits = pace.next(hits, offer);
            assert_eq!(pace.next(hits, offer), hits, "once a second");
            hits
        };
        assert_eq!([(); 5].map(|()| after(20, 20)), [2, 4, 8, 10, 10]);
        assert_eq!([after(19, 20), after(11, 20), after(10, 20)], [10, 10, 5]);
        assert_eq!([after(0, 0), after(20, 0), after(0, 20)], [5, 5, 2]);
        assert_eq!([after(1, 20), after(1, 20), after(20, 1)], [1, 1, 2]);
    }
}
