//! Bounds on the error of an estimate from parts of a sample.

use serde::{Deserialize, Serialize};

/// An interval that holds the true value with a confidence of about 95 %.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Interval {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The 97.5th percentile of Student's t distribution with 1, 2, 3 ... degrees of freedom.
const STUDENT_T: [f64; 31] = [
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042, 2.040,
];

impl Interval {
    /// Returns the interval around `middle`, its width taken from the spread of `parts`:
    /// independent estimates of the same value, each from one part of the sample. The error of the
    /// mean of n parts is their standard deviation divided by √n (batch means). Returns `None` with
    /// fewer than two parts.
    pub fn around(middle: f64, parts: &[f64]) -> Option<Self> {
        let n = parts.len() as f64;
        let t = match parts.len() {
            0 | 1 => return None,
            n => STUDENT_T[(n - 2).min(STUDENT_T.len() - 1)],
        };
        let mean = parts.iter().sum::<f64>() / n;
        let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let off = t * (variance / n).sqrt();
        Some(Self { low: middle - off, high: middle + off })
    }

    /// Clamps both ends to `low..=high`, the range of possible values.
    pub fn within(self, low: f64, high: f64) -> Self {
        Self { low: self.low.clamp(low, high), high: self.high.clamp(low, high) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_t_standard_errors_wide_on_either_side() {
        // Mean 3, standard deviation sqrt(2.5), five parts: 2.776 x sqrt(2.5 / 5).
        let interval = Interval::around(10.0, &[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((interval.high - 10.0 - 1.9629).abs() < 1e-3, "{interval:?}");
        assert!((10.0 - interval.low - 1.9629).abs() < 1e-3, "{interval:?}");
        assert_eq!(interval.within(9.0, 11.0), Interval { low: 9.0, high: 11.0 });
        assert_eq!(Interval::around(1.0, &[1.0]), None);
        // From 32 degrees of freedom on, the value for 31 is used: slightly too wide.
        assert!(Interval::around(0.0, &[1.0; 100]).is_some_and(|i| i.low == 0.0));
    }
}
