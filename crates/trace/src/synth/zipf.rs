//! Zipf's distribution over any number of items.

use super::random::Random;

/// Draws ranks from 1 to n, rank k with probability proportional to 1 / k^theta.
///
/// Rejection-inversion (Hörmann, Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", ACM TOMACS 6(3), 1996): constant memory, no tables, fewer
/// than 1.1 trials on average, exact up to rounding for any theta >= 0, also 1.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    theta: f64,
    /// H(1.5) - 1 and H(n + 0.5), between which the inversion draws.
    h_low: f64,
    h_high: f64,
    /// Below this distance from the rank no rejection test is needed.
    shortcut: f64,
    n: f64,
}

impl Zipf {
    /// `n` at least 1, `theta` finite and not negative.
    pub(super) fn new(n: u64, theta: f64) -> Self {
        let n = n.max(1) as f64;
        let mut z = Zipf { theta, h_low: 0.0, h_high: 0.0, shortcut: 0.0, n };
        z.h_low = z.integral(1.5) - 1.0;
        z.h_high = z.integral(n + 0.5);
        z.shortcut = 2.0 - z.inverse(z.integral(2.5) - z.density(2.0));
        z
    }

    /// Draws a rank, from 1 to n.
    #[inline]
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_high + random.unit() * (self.h_low - self.h_high);
            let x = self.inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }

    /// k^-theta.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// H(x), an integral of the density: (x^(1 - theta) - 1) / (1 - theta), or ln x at 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        expm1_over((1.0 - self.theta) * log) * log
    }

    /// The inverse of H.
    fn inverse(&self, h: f64) -> f64 {
        let t = (h * (1.0 - self.theta)).max(-1.0);
        libm::exp(log1p_over(t) * h)
    }
}

/// (e^x - 1) / x, also near 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, also near 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-squared test over the ranks, with rare ranks grouped.
    #[test]
    fn ranks_have_zipfs_frequencies() {
        for (n, theta) in [(1, 1.0), (2, 0.5), (100, 0.0), (100, 0.99), (1000, 1.0), (50, 2.5)] {
            let zipf = Zipf::new(n, theta);
            let mut random = Random::new(7, n);
            let draws = 200_000;
            let mut counts = vec![0u32; n as usize];
            for _ in 0..draws {
                counts[zipf.rank(&mut random) as usize - 1] += 1;
            }
            let weight = |k: usize| ((k + 1) as f64).powf(-theta);
            let sum: f64 = (0..counts.len()).map(weight).sum();
            let (mut chi, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
            for (k, count) in counts.iter().enumerate() {
                let expected = weight(k) / sum * f64::from(draws);
                rest = (rest.0 + f64::from(*count), rest.1 + expected);
                if rest.1 >= 20.0 {
                    chi += (rest.0 - rest.1).powi(2) / rest.1;
                    cells += 1;
                    rest = (0.0, 0.0);
                }
            }
            let degrees = f64::from((cells - 1).max(1));
            let limit = degrees + 5.0 * (2.0 * degrees).sqrt() + 5.0;
            assert!(chi < limit, "n {n} theta {theta}: {chi} over {limit}");
        }
    }

    #[test]
    fn enormous_populations_work() {
        let zipf = Zipf::new(1 << 50, 1.0);
        let mut random = Random::new(1, 0);
        let ranks: Vec<u64> = (0..1000).map(|_| zipf.rank(&mut random)).collect();
        assert!(ranks.iter().all(|r| (1..=1 << 50).contains(r)));
        assert!(ranks.iter().any(|r| *r > 1 << 30) && ranks.contains(&1));
    }
}
