//! Confidence bounds of a latency that was estimated from a sample.

use forebay_locality::Interval;

use crate::counts::HitCounts;
use crate::hierarchy::Hierarchy;

impl Hierarchy {
    /// Bounds of the mean latency with tiers of `blocks` blocks, in microseconds; `None` if the
    /// counts are exact.
    ///
    /// Each part of the sample is evaluated on its own; the spread of the results gives the
    /// uncertainty of their mean (batch means). The bounds cover the choice of the sampled blocks,
    /// not how well the model matches real devices.
    pub fn mean_latency_us_bounds<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        blocks: &[u64],
    ) -> Option<Interval> {
        let parts: Vec<f64> =
            counts.parts().into_iter().map(|part| self.mean_latency_us(part, blocks)).collect();
        let middle = self.mean_latency_us(counts, blocks);
        Some(Interval::around(middle, &parts)?.within(0.0, f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::hierarchy;
    use crate::{ProfileBuilder, ProfileOptions, WritePolicy};
    use forebay_block::{Flags, Nanos, Op, Request, Volume};

    /// Random accesses, skewed to low blocks, a quarter of them writes.
    fn profile(seed: u64, sample_rate: f64) -> crate::Profile {
        let options = ProfileOptions { sample_rate, write_back: true, ..ProfileOptions::default() };
        let mut builder = ProfileBuilder::new(options).unwrap();
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..60_000 {
            let block = (next().powi(2) * 10_000.0) as u64 + (seed << 32);
            let op = if next() < 0.25 { Op::Write } else { Op::Read };
            let request = Request {
                time: Nanos(0),
                volume: Volume(0),
                op,
                flags: Flags::NONE,
                offset: block * 4096,
                length: 4096,
            };
            builder.add(&request).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn bounds_hold_the_exact_latency_nearly_always_and_are_not_idle() {
        let h = hierarchy(["FastDRAM", "SlowSSD"], "SlowHDD", WritePolicy::WriteBack);
        let sizes = [800, 3000];
        let mut held = 0;
        for seed in 0..40 {
            let (exact, sampled) = (profile(seed, 1.0), profile(seed, 0.2));
            assert_eq!(h.mean_latency_us_bounds(&exact, &sizes), None);
            let truth = h.mean_latency_us(&exact, &sizes);
            let bounds = h.mean_latency_us_bounds(&sampled, &sizes).unwrap();
            held += u32::from(bounds.low <= truth && truth <= bounds.high);
            assert!(bounds.high - bounds.low < 0.5 * truth, "{bounds:?} for {truth}");
        }
        assert!(held >= 34, "{held} of 40");
    }
}
