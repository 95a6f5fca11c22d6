//! How long reads from flash and from the backing stores take, second by second: the input of
//! admission by load.
//!
//! Single reads are not timed. The mean latency in a second is the sum, over that second, of the
//! reads in flight, divided by the reads that ended, by Little's law.

use forebay_block::Nanos;

const SECOND: u64 = 1_000_000_000;

/// Reads of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    in_flight: u32,
    /// The time up to which `sum` is counted.
    until: u64,
    /// The sum over all reads of the nanoseconds in flight.
    sum: u64,
    ended: u32,
    /// The mean of the last second, in nanoseconds; 0 if nothing was read.
    mean: u64,
}

impl Load {
    fn count_to(&mut self, now: u64) {
        let waited = now.saturating_sub(self.until).saturating_mul(self.in_flight.into());
        self.sum = self.sum.saturating_add(waited);
        self.until = self.until.max(now);
    }

    fn end_second(&mut self, now: u64) {
        self.count_to(now);
        // If no read ended in this second, the reads in flight count for as long as they have
        // taken.
        self.mean = self.sum / u64::from(self.ended.max(1));
        (self.sum, self.ended) = (0, 0);
    }
}

/// The source of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Flash,
    Store,
}

/// The durations of reads; see the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loads {
    flash: Load,
    stores: Load,
    begun: u64,
    seconds: u64,
}

impl Loads {
    fn advance_time(&mut self, now: u64) {
        if now.saturating_sub(self.begun) >= SECOND {
            self.flash.end_second(now);
            self.stores.end_second(now);
            self.begun = now;
            self.seconds += 1;
        }
    }

    fn load_mut(&mut self, source: Source, now: Nanos) -> &mut Load {
        self.advance_time(now.0);
        let load = match source {
            Source::Flash => &mut self.flash,
            Source::Store => &mut self.stores,
        };
        load.count_to(now.0);
        load
    }

    /// Notes that a read begins.
    pub fn begin(&mut self, source: Source, now: Nanos) {
        self.load_mut(source, now).in_flight += 1;
    }

    /// Notes that a read ends, successfully or not.
    pub fn end(&mut self, source: Source, now: Nanos) {
        let load = self.load_mut(source, now);
        load.in_flight = load.in_flight.saturating_sub(1);
        load.ended += 1;
    }

    /// The number of ended seconds, and the means of the last one for flash and for the stores, in
    /// nanoseconds; 0 if nothing was read.
    pub fn last(&self) -> (u64, u64, u64) {
        (self.seconds, self.flash.mean, self.stores.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_mean_of_a_second_is_that_of_its_reads() {
        let mut loads = Loads::default();
        // On flash, two reads of 4 ms at a time; on the stores, one of 10 ms at a time.
        for n in 0..200 {
            loads.begin(Source::Flash, Nanos(n * 5 * MS));
            loads.begin(Source::Flash, Nanos(n * 5 * MS));
            if n % 2 == 0 {
                loads.begin(Source::Store, Nanos(n * 5 * MS));
            }
            loads.end(Source::Flash, Nanos(n * 5 * MS + 4 * MS));
            loads.end(Source::Flash, Nanos(n * 5 * MS + 4 * MS));
            if n % 2 == 1 {
                loads.end(Source::Store, Nanos((n + 1) * 5 * MS - 1));
            }
        }
        assert_eq!(loads.last().0, 0, "the second is not over");
        loads.begin(Source::Flash, Nanos(1001 * MS));
        let (seconds, flash, stores) = loads.last();
        assert_eq!((seconds, flash), (1, 4 * MS));
        assert!((9 * MS..=10 * MS).contains(&stores), "{stores}");
    }

    #[test]
    fn a_read_that_hangs_is_slow_and_a_second_without_reads_has_no_mean() {
        let mut loads = Loads::default();
        loads.begin(Source::Flash, Nanos(0));
        loads.begin(Source::Store, Nanos(2 * SECOND));
        assert_eq!(loads.last(), (1, 2 * SECOND, 0));
        loads.end(Source::Flash, Nanos(2 * SECOND));
        loads.end(Source::Store, Nanos(2 * SECOND + MS));
        loads.begin(Source::Store, Nanos(4 * SECOND));
        assert_eq!(loads.last(), (2, 0, MS));
    }
}
