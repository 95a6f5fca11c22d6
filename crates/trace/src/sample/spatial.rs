//! The first step: a share of the regions, chosen by hash.

use forebay_block::{Nanos, Op, Request};
use twox_hash::XxHash3_64;

use super::{PAGE_BYTES, RegionKey, runs};
use crate::{Batch, Record, Result, TraceError, long_zeroing::is_long_zeroing};

/// Maximum of [`SampleSpec::bits`]: regions of 64 MiB.
pub const BITS_MAX: u32 = 14;

/// A trim of more regions than this is kept whole.
const TRIM_REGIONS_MAX: u64 = 1 << 16;

/// Which part of a trace to sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleSpec {
    /// The fraction of regions to keep, above 0 and at most 1.
    pub rate: f64,
    /// A region is `4 KiB << bits`. 0 is plain spatial sampling, which cuts large requests into
    /// many small ones; 4 is a good choice.
    pub bits: u32,
    /// Samples of different seeds are independent of each other.
    pub seed: u64,
    /// Samples of one seed and rate with different numbers have no region in common; there are
    /// 1 / rate of them.
    pub number: u32,
}

/// Takes a sample, request by request, in constant memory.
///
/// ```
/// use forebay_block::Nanos;
/// use forebay_trace::{Batch, SampleSpec, Sampler, Spec, Synth, TraceReader};
/// let spec = SampleSpec { rate: 0.1, bits: 4, seed: 0, number: 0 };
/// let sampler = Sampler::new(spec)?;
/// let mut trace = Synth::new(&Spec::parse("zipf:blocks=100k,requests=10k")?)?;
/// let (mut batch, mut sample) = (Batch::default(), Batch::default());
/// while trace.read_batch(&mut batch)? > 0 {
///     for (i, request) in batch.requests().enumerate() {
///         sampler.sample(&batch.record(i), Nanos(0), &mut sample);
///     }
/// }
/// assert!((200..3000).contains(&sample.len()));
/// # Ok::<(), forebay_trace::TraceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    region_bytes: u64,
    seed: u64,
    /// Hashes from this one ...
    first: u64,
    /// ... to this one are kept.
    last: u64,
}

impl Sampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// If the rate is not above 0 and at most 1, the regions are too large, or there is no sample
    /// of that number.
    pub fn new(spec: SampleSpec) -> Result<Sampler> {
        let invalid = |what: String| Err(TraceError::Options(format!("invalid sample: {what}")));
        if !(spec.rate > 0.0 && spec.rate <= 1.0) {
            return invalid(format!("the rate must be above 0 and at most 1, not {}", spec.rate));
        }
        if spec.bits > BITS_MAX {
            return invalid(format!("bits must be at most {BITS_MAX}, not {}", spec.bits));
        }
        let end = spec.rate * f64::from(spec.number + 1);
        // 0.1 is not an exact binary fraction, but ten samples at this rate must be possible.
        if end > 1.0 + 1e-9 {
            let most = (1.0 / spec.rate + 1e-9).floor();
            return invalid(format!("at rate {} there are at most {most} samples", spec.rate));
        }
        // Saturates at the largest hash.
        let hash = |share: f64| (share * (u64::MAX as f64)) as u64;
        let first = hash(spec.rate * f64::from(spec.number));
        let last = hash(end.min(1.0));
        let last = if end > 1.0 - 1e-9 { u64::MAX } else { last.max(first + 1) - 1 };
        Ok(Sampler { region_bytes: PAGE_BYTES << spec.bits, seed: spec.seed, first, last })
    }

    /// Appends the parts of a request that are in the sample to `sample`. `gap` is the time since
    /// the previous request. Flushes have no region: each is kept or dropped by the hash of its
    /// time.
    pub fn sample(&self, record: &Record<'_>, gap: Nanos, sample: &mut Batch) {
        let request = record.request;
        if request.op == Op::Flush {
            if self.keeps(&request.time.0.to_le_bytes()) {
                sample.push_record(Record { gap: Some(gap), ..*record });
            }
            return;
        }
        let is_long = request.length / self.region_bytes > TRIM_REGIONS_MAX;
        if (request.op == Op::Trim && is_long) || is_long_zeroing(request.op, request.length) {
            // The sample has nothing in the other regions that this request trims.
            sample.push_record(Record { gap: Some(gap), ..*record });
            return;
        }
        let keep = |key| self.keeps_region(key);
        runs(&request, self.region_bytes, keep, |offset, length| {
            push_part(record, gap, offset, length, sample);
        });
    }

    /// Whether the whole request is in the sample, which then keeps its content hashes.
    pub fn keeps_whole(&self, request: &Request) -> bool {
        let mut parts = 0;
        let mut whole = false;
        runs(
            request,
            self.region_bytes,
            |key| self.keeps_region(key),
            |_, length| {
                parts += 1;
                whole = length == request.length;
            },
        );
        whole && parts == 1
    }

    fn keeps_region(&self, key: RegionKey) -> bool {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&key.volume.0.to_le_bytes());
        bytes[4..].copy_from_slice(&key.region.to_le_bytes());
        self.keeps(&bytes)
    }

    fn keeps(&self, bytes: &[u8]) -> bool {
        (self.first..=self.last).contains(&XxHash3_64::oneshot_with_seed(self.seed, bytes))
    }
}

/// Appends a part of a request. Content hashes belong to the whole request, so only the whole keeps
/// them.
pub(super) fn push_part(
    record: &Record<'_>,
    gap: Nanos,
    offset: u64,
    length: u64,
    sample: &mut Batch,
) {
    let whole = length == record.request.length;
    sample.push_record(Record {
        request: Request { offset, length, ..record.request },
        gap: Some(gap),
        hashes: if whole { record.hashes } else { &[] },
        ..*record
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Volume};

    fn request(offset: u64, length: u64) -> Record<'static> {
        let (time, volume) = (Nanos(5), Volume(3));
        Request { time, volume, op: Op::Write, flags: Flags::FUA, offset, length }.into()
    }

    fn sample(spec: SampleSpec, records: &[Record<'_>]) -> Batch {
        let (sampler, mut sample) = (Sampler::new(spec).unwrap(), Batch::default());
        records.iter().for_each(|r| sampler.sample(r, Nanos(9), &mut sample));
        sample
    }

    const ALL: SampleSpec = SampleSpec { rate: 1.0, bits: 4, seed: 1, number: 0 };

    #[test]
    fn the_sample_of_everything_is_the_trace() {
        let records: Vec<_> = (0..100).map(|i| request(i * 7 * 512, 512 + i * 4096)).collect();
        let sample = sample(ALL, &records);
        assert_eq!(sample.len(), 100);
        for (i, record) in records.iter().enumerate() {
            assert_eq!(sample.record(i), Record { gap: Some(Nanos(9)), ..*record });
        }
    }

    #[test]
    fn disjoint_samples_together_are_the_trace_and_share_nothing() {
        let records: Vec<_> = (0..200).map(|i| request(i * 13 * 4096, 300 * 4096)).collect();
        let parts = |number| SampleSpec { rate: 0.1, bits: 2, number, ..ALL };
        let mut seen = std::collections::BTreeMap::new();
        let mut bytes = 0;
        for number in 0..10 {
            for r in sample(parts(number), &records).requests() {
                bytes += r.length;
                for region in r.offset / 16384..(r.offset + r.length).div_ceil(16384) {
                    let owner = *seen.entry(region).or_insert(number);
                    assert_eq!(owner, number, "region {region} is in two samples");
                }
            }
        }
        assert_eq!(bytes, 200 * 300 * 4096);
        assert!(Sampler::new(parts(10)).is_err());
    }

    #[test]
    fn runs_of_kept_regions_are_one_request_and_parts_keep_no_hashes() {
        let record = Record { hashes: &[1; 8], ..request(512, 40 * 4096) };
        let mut parts = Vec::new();
        let kept = [true, true, false, true, false, false, true];
        let keep = |key: RegionKey| kept[key.region as usize % kept.len()];
        runs(&record.request, 16384, keep, |offset, length| parts.push((offset, length)));
        let region = 16384;
        let expected = [
            (512, 2 * region - 512),
            (3 * region, region),
            (6 * region, 3 * region),
            (10 * region, 512),
        ];
        assert_eq!(parts, expected);
        let mut batch = Batch::default();
        push_part(&record, Nanos(1), 512, 100, &mut batch);
        assert_eq!((batch.hashes(0), batch.flags[0]), (&[][..], Flags::FUA));
    }

    #[test]
    fn flushes_are_kept_by_their_rate() {
        let flush = |time| {
            Record::from(Request {
                time: Nanos(time),
                op: Op::Flush,
                offset: 0,
                length: 0,
                ..request(0, 0).request
            })
        };
        let records: Vec<_> = (0..10_000).map(flush).collect();
        let kept = sample(SampleSpec { rate: 0.25, ..ALL }, &records).len();
        assert!((2300..2700).contains(&kept), "{kept}");
    }

    #[test]
    fn impossible_samples_are_refused() {
        for (rate, bits) in [(0.0, 4), (1.5, 4), (f64::NAN, 4), (0.1, 40)] {
            assert!(Sampler::new(SampleSpec { rate, bits, ..ALL }).is_err(), "{rate} {bits}");
        }
    }
}
