//! The measures by which a sample is compared: means of features, and their quantiles.

use forebay_block::{Nanos, Op, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PAGE_BYTES;
use crate::{Distribution, long_zeroing::is_long_zeroing};

/// The mean features, in the order of [`Moments::features`]: sizes and misalignment in bytes,
/// inter-arrival times in µs, writes as a share of requests.
pub const FEATURES: [&str; 7] = [
    "read_size",
    "write_size",
    "read_iat_us",
    "write_iat_us",
    "read_misalignment",
    "write_misalignment",
    "write_ratio",
];

/// Sums over the reads and over the writes of a trace; trims and flushes are neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moments {
    /// Sums over reads.
    pub read: OpMoments,
    /// Sums over writes and write-zeroes.
    pub write: OpMoments,
}

/// Sums over requests. Signed, so that differences have the same form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OpMoments {
    /// Requests.
    pub requests: i64,
    /// Their bytes.
    pub bytes: i64,
    /// Their gaps, in nanoseconds: the time since the request before, of either operation.
    pub gap_ns: i64,
    /// Bytes by which they miss the bounds of pages.
    pub misaligned_bytes: i64,
}

impl OpMoments {
    /// The sum of both.
    pub fn plus(self, o: OpMoments) -> OpMoments {
        OpMoments {
            requests: self.requests.saturating_add(o.requests),
            bytes: self.bytes.saturating_add(o.bytes),
            gap_ns: self.gap_ns.saturating_add(o.gap_ns),
            misaligned_bytes: self.misaligned_bytes.saturating_add(o.misaligned_bytes),
        }
    }

    fn mean(&self, sum: i64) -> f64 {
        if self.requests == 0 { 0.0 } else { sum as f64 / self.requests as f64 }
    }
}

impl Moments {
    /// Counts a request. A zeroing of more than 4 GiB counts as a trim.
    pub fn add(&mut self, request: &Request, gap: Nanos) {
        if is_long_zeroing(request.op, request.length) {
            return;
        }
        let Some(op) = self.op_mut(request.op) else { return };
        let end = request.offset + request.length;
        let (front, back) = (request.offset % PAGE_BYTES, end.wrapping_neg() % PAGE_BYTES);
        *op = op.plus(OpMoments {
            requests: 1,
            bytes: request.length as i64,
            gap_ns: i64::try_from(gap.0).unwrap_or(i64::MAX),
            misaligned_bytes: (front + back) as i64,
        });
    }

    fn op_mut(&mut self, op: Op) -> Option<&mut OpMoments> {
        match op {
            Op::Read => Some(&mut self.read),
            Op::Write | Op::WriteZeroes => Some(&mut self.write),
            Op::Trim | Op::Flush => None,
        }
    }

    /// The sum of both.
    pub fn plus(&self, o: &Moments) -> Moments {
        Moments { read: self.read.plus(o.read), write: self.write.plus(o.write) }
    }

    /// The features, in the order of [`FEATURES`]; 0 if there are no requests of the operation.
    pub fn features(&self) -> [f64; FEATURES.len()] {
        let (r, w) = (&self.read, &self.write);
        let all = r.requests + w.requests;
        [
            r.mean(r.bytes),
            w.mean(w.bytes),
            r.mean(r.gap_ns) / 1e3,
            w.mean(w.gap_ns) / 1e3,
            r.mean(r.misaligned_bytes),
            w.mean(w.misaligned_bytes),
            if all == 0 { 0.0 } else { w.requests as f64 / all as f64 },
        ]
    }
}

/// A feature of the full trace and of a sample.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureError {
    /// Name of the feature.
    pub name: String,
    /// Value in the full trace.
    pub full: f64,
    /// Value in the sample.
    pub sample: f64,
    /// Relative error of the sample's value.
    pub error: f64,
}

impl FeatureError {
    /// The error between two values.
    pub fn new(name: impl Into<String>, full: f64, sample: f64) -> FeatureError {
        FeatureError { name: name.into(), full, sample, error: relative_error(full, sample) }
    }
}

impl Moments {
    /// Compares the features of the full trace (`self`) with those of a sample.
    pub fn compare(&self, sample: &Moments) -> Vec<FeatureError> {
        let each = FEATURES.iter().zip(self.features().into_iter().zip(sample.features()));
        each.map(|(name, (full, sample))| FeatureError::new(*name, full, sample)).collect()
    }
}

/// The error as a fraction of `full`. If `full` is 0 and `sample` is not, the error is 1.
fn relative_error(full: f64, sample: f64) -> f64 {
    match (full == 0.0, sample == 0.0) {
        (true, true) => 0.0,
        (true, false) => 1.0,
        _ => ((sample - full) / full).abs(),
    }
}

/// The mean of the errors of a sample over all [`FEATURES`], as a fraction.
pub fn mean_error(full: &[f64; FEATURES.len()], sample: &[f64; FEATURES.len()]) -> f64 {
    let errors = full.iter().zip(sample).map(|(f, s)| relative_error(*f, *s));
    errors.sum::<f64>() / FEATURES.len() as f64
}

/// Distributions of sizes (bytes) and gaps (ns). Their quantiles, in bytes and µs, are features,
/// too: low gaps show bursts, low sizes show small writes.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    read: [Distribution; 2],
    write: [Distribution; 2],
}

/// Percentiles that are features.
const PERCENTS: [u32; 5] = [1, 5, 50, 90, 99];

impl Quantiles {
    /// Counts a request.
    pub fn add(&mut self, request: &Request, gap: Nanos) {
        let [size, iat] = match request.op {
            Op::Read => &mut self.read,
            Op::Write | Op::WriteZeroes => &mut self.write,
            Op::Trim | Op::Flush => return,
        };
        size.add(request.length as i64);
        iat.add(i64::try_from(gap.0).unwrap_or(i64::MAX));
    }

    /// Compares the features of the full trace (`self`) with those of a sample.
    pub fn compare<'a>(&'a self, sample: &'a Quantiles) -> impl Iterator<Item = FeatureError> + 'a {
        let ops = [("read", &self.read, &sample.read), ("write", &self.write, &sample.write)];
        ops.into_iter().flat_map(|(op, full, sample)| {
            [("size", 0, 1.0), ("iat_us", 1, 1e3)].into_iter().flat_map(move |(what, i, unit)| {
                PERCENTS.into_iter().map(move |percent| {
                    let at = |d: &Distribution| d.quantile(f64::from(percent) / 100.0) / unit;
                    let name = format!("{op}_{what}_p{percent}");
                    FeatureError::new(name, at(&full[i]), at(&sample[i]))
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Volume};

    fn request(op: Op, offset: u64, length: u64) -> Request {
        Request { time: Nanos(0), volume: Volume(0), op, flags: Flags::NONE, offset, length }
    }

    #[test]
    fn features_are_means_and_misalignment_counts_both_ends() {
        let mut m = Moments::default();
        m.add(&request(Op::Read, 0, 8192), Nanos::from_micros(10));
        m.add(&request(Op::Read, 512, 1024), Nanos::from_micros(30));
        m.add(&request(Op::WriteZeroes, 4096, 4096), Nanos::from_micros(5));
        m.add(&request(Op::Flush, 0, 0), Nanos::from_micros(1000));
        m.add(&request(Op::Trim, 0, 512), Nanos::from_micros(1000));
        let missing = (512.0 + 2560.0) / 2.0;
        assert_eq!(m.features(), [4608.0, 4096.0, 20.0, 5.0, missing, 0.0, 1.0 / 3.0]);
        assert_eq!(mean_error(&m.features(), &m.features()), 0.0);
    }

    #[test]
    fn errors_are_fractions_of_the_full_trace() {
        assert_eq!(relative_error(4.0, 5.0), 0.25);
        assert_eq!(relative_error(0.0, 0.0), 0.0);
        assert_eq!(relative_error(0.0, 3.0), 1.0);
        assert_eq!(relative_error(3.0, 0.0), 1.0);
    }

    #[test]
    fn quantiles_are_compared_by_name() {
        let (mut full, mut sample) = (Quantiles::default(), Quantiles::default());
        for i in 1..=100 {
            full.add(&request(Op::Read, 0, i * 512), Nanos::from_micros(i));
            sample.add(&request(Op::Read, 0, i * 1024), Nanos::from_micros(i));
        }
        let errors: Vec<_> = full.compare(&sample).collect();
        assert_eq!(errors.len(), 20);
        let of = |name: &str| errors.iter().find(|e| e.name == name).unwrap().error;
        assert_eq!((of("read_iat_us_p50"), of("write_size_p99")), (0.0, 0.0));
        assert!((of("read_size_p50") - 1.0).abs() < 0.02);
    }

    #[test]
    fn gaps_below_a_microsecond_are_kept() {
        let mut full = Quantiles::default();
        (0..100).for_each(|_| full.add(&request(Op::Read, 0, 512), Nanos(250)));
        let iat = full.compare(&full).find(|e| e.name == "read_iat_us_p50").unwrap();
        assert_eq!((iat.full, iat.sample), (0.25, 0.25));
    }

    #[test]
    fn huge_gaps_and_zeroings_stay_within_their_numbers() {
        let mut m = Moments::default();
        (0..3).for_each(|_| m.add(&request(Op::Read, 0, 512), Nanos(u64::MAX)));
        assert_eq!(m.read.gap_ns, i64::MAX);
        m.add(&request(Op::WriteZeroes, 0, 1 << 40), Nanos(1));
        assert_eq!(m.write, OpMoments::default(), "as a trim");
    }
}
