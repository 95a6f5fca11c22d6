//! Distributions of latencies.

use forebay_block::Nanos;

/// How long an operation takes, excluding waiting, seeking and transfer.
#[derive(Clone, PartialEq, Debug)]
pub enum Latency {
    /// Always the same.
    Fixed(Nanos),
    /// Lognormal: most latencies are near the mean, with a long tail above it.
    Lognormal {
        /// The mean (not the median).
        mean: Nanos,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// As measured: points of (percent of operations, time within which they end), both rising.
    /// Linear in between; the time of the first point below it, and that of the last above it.
    Percentiles(Vec<(f64, Nanos)>),
}

/// The error for an invalid latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LatencyError {
    /// The lognormal's sigma is negative, not a number, or above 5.
    Sigma,
    /// There are no percentiles, or they are not between 0 and 100, or they do not rise.
    Percentiles,
}

impl std::fmt::Display for LatencyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LatencyError::Sigma => "sigma of a lognormal latency must be from 0 to 5",
            LatencyError::Percentiles => {
                "percentiles must be from 0 to 100 and increase, and their times must increase too"
            }
        })
    }
}

impl std::error::Error for LatencyError {}

impl Latency {
    /// No time at all.
    pub const NONE: Latency = Latency::Fixed(Nanos(0));

    /// Checks that the latency is valid.
    ///
    /// # Errors
    /// If the latency is invalid.
    pub fn check(&self) -> Result<(), LatencyError> {
        match self {
            Latency::Fixed(_) => Ok(()),
            Latency::Lognormal { sigma, .. } => {
                (0.0..=5.0).contains(sigma).then_some(()).ok_or(LatencyError::Sigma)
            }
            Latency::Percentiles(points) => {
                let inside = points.iter().all(|(percent, _)| (0.0..=100.0).contains(percent));
                let rising =
                    points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
                let fine = !points.is_empty() && inside && rising;
                fine.then_some(()).ok_or(LatencyError::Percentiles)
            }
        }
    }

    /// The latency that a share `u` (0 <= u < 1) of operations does not exceed.
    pub fn quantile(&self, u: f64) -> Nanos {
        match self {
            Latency::Fixed(time) => *time,
            Latency::Lognormal { mean, sigma } => {
                let factor = exp(sigma * normal_quantile(u) - sigma * sigma / 2.0);
                Nanos((mean.0 as f64 * factor) as u64)
            }
            Latency::Percentiles(points) => {
                let percent = u * 100.0;
                let above = points.partition_point(|(p, _)| *p < percent);
                let Some(&(high, slow)) = points.get(above) else {
                    return points.last().map_or(Nanos(0), |&(_, time)| time);
                };
                let Some(&(low, fast)) = above.checked_sub(1).map(|below| &points[below]) else {
                    return slow;
                };
                let share = (percent - low) / (high - low);
                Nanos(fast.0 + (share * (slow.0 - fast.0) as f64) as u64)
            }
        }
    }

    /// The exact mean of the distribution as defined.
    pub fn mean(&self) -> Nanos {
        match self {
            Latency::Fixed(time) | Latency::Lognormal { mean: time, .. } => *time,
            Latency::Percentiles(points) => {
                let (Some(first), Some(last)) = (points.first(), points.last()) else {
                    return Nanos(0);
                };
                let between = points.windows(2).map(|two| {
                    (two[1].0 - two[0].0) * (two[0].1.0 as f64 + two[1].1.0 as f64) / 2.0
                });
                let ends = first.0 * first.1.0 as f64 + (100.0 - last.0) * last.1.0 as f64;
                Nanos(((between.sum::<f64>() + ends) / 100.0) as u64)
            }
        }
    }
}

/// The standard normal distribution function at 0, 0.25, 0.5 and so on.
const NORMAL: [f64; 19] = [
    0.5,
    0.598_706_325_7,
    0.691_462_461_3,
    0.773_372_647_6,
    0.841_344_746_1,
    0.894_350_226_3,
    0.933_192_798_7,
    0.959_940_843_1,
    0.977_249_868_1,
    0.987_775_527_3,
    0.993_790_334_7,
    0.997_020_236_8,
    0.998_650_102_0,
    0.999_422_974_9,
    0.999_767_370_9,
    0.999_911_582_7,
    0.999_968_328_8,
    0.999_989_311_5,
    0.999_996_602_3,
];

/// The standard normal quantile of `u`, interpolated (to 0.03), within 4.5 standard deviations.
fn normal_quantile(u: f64) -> f64 {
    let (upper, sign) = if u < 0.5 { (1.0 - u, -1.0) } else { (u, 1.0) };
    let above = NORMAL.partition_point(|&p| p <= upper);
    let Some(&high) = NORMAL.get(above) else { return sign * 4.5 };
    let low = NORMAL[above - 1];
    let share = (upper - low) / (high - low);
    sign * 0.25 * (above as f64 - 1.0 + share)
}

/// e to the power of `x`, from basic arithmetic only, because library functions differ between
/// platforms in the last bit.
fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let doublings = (x * std::f64::consts::LOG2_E).round();
    let rest = x - doublings * std::f64::consts::LN_2;
    let series = (1..=14).rev().fold(1.0, |sum, n| 1.0 + rest / f64::from(n) * sum);
    series * f64::from_bits(((doublings as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of_quantiles(latency: &Latency) -> f64 {
        let n = 100_000;
        let each = |i: u32| latency.quantile((f64::from(i) + 0.5) / f64::from(n)).0 as f64;
        (0..n).map(each).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn the_exponential_is_the_libraries_to_twelve_digits() {
        for tenths in -500..500 {
            let x = f64::from(tenths) / 10.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        let close = |u: f64, z: f64| (normal_quantile(u) - z).abs() < 0.03;
        assert!(close(0.5, 0.0) && close(0.9, 1.2816) && close(0.99, 2.3263));
        assert!(close(0.1, -1.2816) && close(0.999, 3.0902) && close(0.841_344_746, 1.0));
        assert_eq!(normal_quantile(0.999_999_999), 4.5);
    }

    #[test]
    fn a_lognormal_has_the_mean_and_the_quantiles_it_promises() {
        for sigma in [0.0, 0.2, 0.5, 1.0] {
            let latency = Latency::Lognormal { mean: Nanos(1_000_000), sigma };
            let mean = mean_of_quantiles(&latency);
            assert!((mean / 1e6 - 1.0).abs() < 0.01, "sigma {sigma}: {mean}");
            let median = latency.quantile(0.5).0 as f64;
            assert!((median / (1e6 * (-sigma * sigma / 2.0).exp()) - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn percentiles_are_met_and_interpolated() {
        let points = vec![(50.0, Nanos(1000)), (99.0, Nanos(50_000)), (100.0, Nanos(90_000))];
        let latency = Latency::Percentiles(points);
        assert_eq!(latency.check(), Ok(()));
        assert_eq!(latency.quantile(0.0), Nanos(1000));
        assert_eq!(latency.quantile(0.5), Nanos(1000));
        assert_eq!(latency.quantile(0.745), Nanos(25_500));
        assert_eq!(latency.quantile(0.99), Nanos(50_000));
        let mean = mean_of_quantiles(&latency);
        assert!((mean / latency.mean().0 as f64 - 1.0).abs() < 0.001);
    }

    #[test]
    fn latencies_that_make_no_sense_are_refused() {
        let lognormal = |sigma| Latency::Lognormal { mean: Nanos(1), sigma }.check();
        assert_eq!(lognormal(-0.1), Err(LatencyError::Sigma));
        assert_eq!(lognormal(f64::NAN), Err(LatencyError::Sigma));
        let percentiles = |points: &[(f64, u64)]| {
            let points = points.iter().map(|&(p, t)| (p, Nanos(t))).collect();
            Latency::Percentiles(points).check()
        };
        assert_eq!(percentiles(&[]), Err(LatencyError::Percentiles));
        assert_eq!(percentiles(&[(50.0, 2), (40.0, 3)]), Err(LatencyError::Percentiles));
        assert_eq!(percentiles(&[(50.0, 2), (60.0, 1)]), Err(LatencyError::Percentiles));
        assert_eq!(percentiles(&[(101.0, 2)]), Err(LatencyError::Percentiles));
        assert_eq!(percentiles(&[(0.0, 1), (100.0, 1)]), Ok(()));
    }
}
