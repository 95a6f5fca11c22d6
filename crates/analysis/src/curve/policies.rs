//! Curves of replacement policies: each policy runs over the block accesses at each size, and so
//! does Belady's optimum, the lower bound for all policies.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Nanos, Op, Request, Volume};
use forebay_locality::{BlockKeys, Clairvoyant, ClairvoyantHits, ReuseHistogram};
use forebay_replacement::{Access, Alone, Hint, Hints, Kind, Parameters, Positions};
use forebay_trace::{Batch, SampleSpec, Sampler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::miniature::{BLOCKS_MIN, CHECK_PERIOD, SEED, scaled_misses};
use crate::note::{tell_not_sampled, tell_too_small, tell_without_data};
use crate::{AnalysisError, Columns, Meter, Observer, Traces, Unit, parallel};

/// Default number of sizes. Each size is the square root of two times the one before.
pub const POINTS: usize = 21;
/// The smallest size, as a fraction of all blocks.
const SMALLEST: f64 = 1.0 / 1024.0;

/// A policy, or the optimum, that can have a curve.
///
/// ```
/// use forebay_analysis::curve::policies::Contender;
/// assert_eq!("opt".parse(), Ok(Contender::Optimum));
/// assert_eq!("arc".parse::<Contender>().unwrap().to_string(), "arc");
/// assert!("lruu".parse::<Contender>().unwrap_err().ends_with("or opt"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// A policy, with its default parameters.
    Policy(Kind),
    /// The optimum: the fewest misses possible, with knowledge of the future.
    Optimum,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(kind) => f.write_str(kind.name()),
            Self::Optimum => f.write_str("opt"),
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    /// Reads the name of a policy, or `opt`.
    fn from_str(name: &str) -> Result<Self, String> {
        if name == "opt" {
            return Ok(Self::Optimum);
        }
        let kind: Kind = name.parse().map_err(|error| format!("{error}, or opt"))?;
        Ok(Self::Policy(kind))
    }
}

/// The miss ratios of replacement policies at several cache sizes.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload.
    pub traces: Traces,
    /// The policies, all different.
    pub policies: Vec<Contender>,
    /// The share of blocks to sample; less than 1 means a miniature simulation.
    pub sample_rate: f64,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Number of sizes of a curve, evenly spaced on a logarithmic scale up to all blocks.
    pub points: usize,
    /// Additional sizes, in blocks.
    pub at_blocks: Vec<u64>,
}

/// The answer, and its JSON document.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Answer {
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Requests in the traces.
    pub requests: u64,
    /// Block accesses.
    pub accesses: u64,
    /// Accesses that are reads.
    pub reads: u64,
    /// Accesses that are writes.
    pub writes: u64,
    /// Number of distinct blocks; an estimate if blocks were sampled.
    pub distinct_blocks: u64,
    /// Share of blocks sampled.
    pub sampled_rate: f64,
    /// The curve of each policy, in the order of `--policy`, all with the same sizes.
    pub policies: Vec<PolicyCurve>,
}

/// The curve of a policy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct PolicyCurve {
    /// Name of the policy.
    pub policy: String,
    /// Points of the curve by ascending size.
    pub points: Vec<Point>,
}

/// A point of a curve. Ratios are of block accesses.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, JsonSchema)]
pub struct Point {
    /// Cache size in blocks.
    pub size_blocks: u64,
    /// Cache size in bytes.
    pub size_bytes: u64,
    /// Misses divided by accesses; 0 if there are no accesses.
    pub miss_ratio: f64,
    /// Read misses divided by reads; 0 if there are no reads.
    pub read_miss_ratio: f64,
    /// Write misses divided by writes; 0 if there are no writes.
    pub write_miss_ratio: f64,
}

/// A row of `--parquet`.
pub type Row<'a> = (PointOf<'a>, Point);

/// The columns of a row that come before the point.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct PointOf<'a> {
    /// Name of the policy.
    pub policy: &'a str,
}

impl Question {
    /// A question about these policies, with blocks of 4 KiB and without sampling.
    pub fn new(traces: Traces, policies: Vec<Contender>) -> Self {
        Self {
            traces,
            policies,
            sample_rate: 1.0,
            block_size: BlockSize::KIB_4,
            points: POINTS,
            at_blocks: Vec::new(),
        }
    }

    /// Reads the traces, once, and runs the policies over the accesses, on all processors.
    ///
    /// # Errors
    /// If the traces cannot be read or measured, nothing is read or written, the sample is empty or
    /// too small for any size, a policy fails, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        let workload = Workload::read(self, observer)?;
        let sizes = workload.sizes(self, observer)?;
        let jobs: Vec<(Contender, u64)> = self
            .policies
            .iter()
            .flat_map(|&contender| sizes.iter().map(move |&size| (contender, size)))
            .collect();
        let total = (jobs.len() * workload.accesses.len()) as u64;
        let meter = observer.begin("running policies", Unit::Count, Some(total));
        let points = parallel::map(&jobs, |&(contender, size)| {
            let hits = workload.hits(contender, size, &*meter, observer)?;
            Ok::<_, AnalysisError>(workload.point(size, hits))
        })?;
        drop(meter);
        let policies = self.policies.iter().zip(points.chunks(sizes.len()));
        Ok(Answer {
            block_size: self.block_size.bytes(),
            requests: workload.requests,
            accesses: workload.reads + workload.writes,
            reads: workload.reads,
            writes: workload.writes,
            distinct_blocks: workload.distinct_blocks(),
            sampled_rate: workload.rate,
            policies: policies
                .map(|(contender, points)| PolicyCurve {
                    policy: contender.to_string(),
                    points: points.to_vec(),
                })
                .collect(),
        })
    }
}

impl Answer {
    /// A row for each policy and size.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.policies.iter().flat_map(|curve| {
            let of = |&point: &Point| -> Row<'_> { (PointOf { policy: &curve.policy }, point) };
            curve.points.iter().map(of)
        }))
    }
}

/// The block accesses, or those of a sample of the blocks.
struct Workload {
    block_size: BlockSize,
    /// The share of all blocks that are included.
    rate: f64,
    requests: u64,
    /// Reads and writes of the whole trace, in block accesses, sampled or not.
    reads: u64,
    writes: u64,
    accesses: Vec<Access>,
    /// Sampled accesses that are writes.
    sampled_writes: u64,
    /// Number of volumes: one more than the largest number of one.
    volumes: u32,
    /// The key of each block.
    keys: Vec<u64>,
    /// The addresses of the blocks, by key.
    addresses: BlockKeys,
    /// The index and time of the first access in each second, counted from the trace's first
    /// request.
    seconds: Vec<(usize, Nanos)>,
    /// The time of the trace's first request.
    start: Option<Nanos>,
    /// The sampled accesses, prepared for the optimum if it is asked for.
    clairvoyant: Option<Clairvoyant>,
}

impl Workload {
    fn read(question: &Question, observer: &dyn Observer) -> Result<Self, AnalysisError> {
        let rate = question.sample_rate;
        // Regions are at least 4 KiB; a smaller block is sampled together with its neighbours.
        let bits = question.block_size.shift().saturating_sub(12);
        let spec = SampleSpec { rate, bits, seed: SEED, number: 0 };
        let sampler = (rate < 1.0).then(|| Sampler::new(spec)).transpose()?;
        let mut workload = Self {
            block_size: question.block_size,
            rate,
            requests: 0,
            reads: 0,
            writes: 0,
            accesses: Vec::new(),
            sampled_writes: 0,
            volumes: 0,
            keys: Vec::new(),
            addresses: BlockKeys::new(),
            seconds: Vec::new(),
            start: None,
            clairvoyant: question.policies.contains(&Contender::Optimum).then(Clairvoyant::new),
        };
        let mut numbers = HashMap::new();
        let (mut sample, mut without_data) = (Batch::default(), 0);
        let traces = question.traces.read_batches(observer, |batch, _| {
            for request in batch.requests() {
                workload.start.get_or_insert(request.time);
                workload.volumes = workload.volumes.max(request.volume.0.saturating_add(1));
                let blocks = blocks(question.block_size, &request).map_or(0, |(a, b)| b - a + 1);
                match request.op {
                    Op::Read => workload.reads += blocks,
                    Op::Write | Op::WriteZeroes => workload.writes += blocks,
                    Op::Trim | Op::Flush => without_data += 1,
                }
            }
            match &sampler {
                None => batch.requests().try_for_each(|r| workload.add(&r, &mut numbers)),
                Some(sampler) => {
                    sample.clear();
                    for i in (0..batch.len()).filter(|&i| batch.op[i] != Op::Trim) {
                        sampler.sample(&batch.record(i), Nanos(0), &mut sample);
                    }
                    sample.requests().try_for_each(|r| workload.add(&r, &mut numbers))
                }
            }
        })?;
        tell_without_data(without_data, observer);
        workload.requests = traces.requests;
        if workload.reads + workload.writes == 0 {
            return Err(AnalysisError::NoAccesses);
        }
        if workload.accesses.is_empty() {
            return Err(AnalysisError::EmptySample);
        }
        tell_not_sampled(Op::Read, workload.reads, workload.sampled_reads() == 0, observer);
        tell_not_sampled(Op::Write, workload.writes, workload.sampled_writes == 0, observer);
        Ok(workload)
    }

    fn add(
        &mut self,
        request: &Request,
        numbers: &mut HashMap<u64, u32>,
    ) -> Result<(), AnalysisError> {
        let Some((first, last)) = blocks(self.block_size, request) else { return Ok(()) };
        let op = if request.op == Op::Read { Op::Read } else { Op::Write };
        let second = |time: Nanos| time.0 / 1_000_000_000;
        let time = request.time.saturating_sub(self.start.unwrap_or_default());
        if self.seconds.last().is_none_or(|last| second(last.1) < second(time)) {
            self.seconds.push((self.accesses.len(), time));
        }
        for block in first..=last {
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(block) };
            let key = self.addresses.key(addr)?;
            let next = self.keys.len() as u32;
            let number = *numbers.entry(key).or_insert(next);
            if number == next {
                if next == Access::BLOCKS_MAX {
                    return Err(AnalysisError::TooManyBlocks);
                }
                self.keys.push(key);
            }
            self.sampled_writes += u64::from(op == Op::Write);
            self.accesses.push(Access::new(number, op == Op::Write));
            if let Some(clairvoyant) = &mut self.clairvoyant {
                clairvoyant.access_batch(&[key], &[op])?;
            }
        }
        Ok(())
    }

    fn sampled_reads(&self) -> u64 {
        self.accesses.len() as u64 - self.sampled_writes
    }

    /// Number of distinct blocks of the whole trace; estimated from a sample.
    fn distinct_blocks(&self) -> u64 {
        (self.keys.len() as f64 / self.rate).round() as u64
    }

    /// Sizes in blocks: evenly spaced on a logarithmic scale up to all blocks, plus those that the
    /// user asks for.
    fn sizes(
        &self,
        question: &Question,
        observer: &dyn Observer,
    ) -> Result<Vec<u64>, AnalysisError> {
        let all = self.distinct_blocks();
        let least = if self.rate < 1.0 { (BLOCKS_MIN as f64 / self.rate).ceil() as u64 } else { 0 };
        let smallest = (all as f64 * SMALLEST).max(least as f64).clamp(1.0, all as f64);
        let steps = question.points.clamp(2, self.keys.len().max(2)) - 1;
        let growth = (all as f64 / smallest).ln() / steps as f64;
        let size = |step| (smallest * (growth * step as f64).exp()).round() as u64;
        let even = (0..steps).map(|step| ReuseHistogram::exact_blocks(size(step)));
        let mut sizes: Vec<u64> = even.filter(|&size| size >= least.max(1)).chain([all]).collect();
        let asked = question.at_blocks.iter().copied();
        let (large, mut small): (Vec<u64>, Vec<u64>) = asked.partition(|&size| size >= least);
        sizes.extend(large);
        sizes.retain(|&size| size >= least);
        sizes.sort_unstable();
        sizes.dedup();
        small.iter_mut().for_each(|size| *size = size.saturating_mul(question.block_size.bytes()));
        tell_too_small(small, self.rate, observer);
        if sizes.is_empty() {
            return Err(AnalysisError::SampleTooSmall { blocks: self.keys.len() as u64 });
        }
        Ok(sizes)
    }

    /// The hits of a cache of `size` blocks for these accesses.
    fn hits(
        &self,
        contender: Contender,
        size: u64,
        meter: &dyn Meter,
        observer: &dyn Observer,
    ) -> Result<ClairvoyantHits, AnalysisError> {
        observer.check()?;
        // A cache larger than all blocks has the same hits.
        let capacity = ((size as f64 * self.rate).round() as u64).min(self.keys.len() as u64);
        match (contender, &self.clairvoyant) {
            (_, _) if capacity == 0 => Ok(ClairvoyantHits::default()),
            (Contender::Policy(kind), _) => {
                let positions = self.positions(kind, size, capacity);
                self.run(kind, capacity as u32, positions, meter, observer)
            }
            (Contender::Optimum, clairvoyant) => {
                let hits = clairvoyant.as_ref().map(|accesses| accesses.hits(capacity));
                meter.inc(self.accesses.len() as u64);
                Ok(hits.unwrap_or_default())
            }
        }
    }

    /// The positions at which a policy inserts new blocks, in a cache of `size` blocks of which
    /// `capacity` are in the sample. All volumes have the highest priority.
    fn positions(&self, kind: Kind, size: u64, capacity: u64) -> Option<Positions> {
        // Derivatives are measured by the blocks for which the cache has room: those of the sample.
        // Hit ratios are measured for chunks of the volumes, which a sample does not change.
        let blocks = if kind == Kind::DerivativeLru { capacity } else { size };
        let blocks = blocks.min(u32::MAX.into()) as u32;
        let mut positions = Positions::new(&Parameters::new(kind), blocks)?;
        (0..self.volumes).for_each(|_| positions.add_volume(1));
        positions.start(Nanos(0));
        Some(positions)
    }

    fn place(&self, block: usize) -> (Volume, u64) {
        let address = self.addresses.addr(self.keys[block]).expect("the block has this key");
        (address.volume, self.block_size.offset_of(address.block))
    }

    /// Runs a policy: a cache that admits each block that it misses, read or written.
    fn run(
        &self,
        kind: Kind,
        capacity: u32,
        mut positions: Option<Positions>,
        meter: &dyn Meter,
        observer: &dyn Observer,
    ) -> Result<ClairvoyantHits, AnalysisError> {
        let mut seconds = self.seconds.iter().peekable();
        let mut cache = Alone::new(capacity, self.keys.len(), &Parameters::new(kind));
        let mut hits = ClairvoyantHits::default();
        for (chunk, accesses) in self.accesses.chunks(CHECK_PERIOD).enumerate() {
            observer.check()?;
            let first = chunk * CHECK_PERIOD;
            let mut position = positions.as_mut().map(|positions| {
                |at, access: Access, hit| {
                    if let Some((_, now)) = seconds.next_if(|second| second.0 == first + at) {
                        positions.advance(*now);
                    }
                    let (volume, offset) = self.place(access.block() as usize);
                    positions.access(volume, offset, hit);
                    if hit { Hint::default() } else { positions.hint(volume, offset) }
                }
            });
            let hints = position.as_mut().map(|hints| hints as &mut Hints<'_>);
            let new = cache.access_all(accesses, &self.keys, hints);
            let new = new.ok_or(AnalysisError::NoVictim(kind))?;
            hits.reads += new.reads;
            hits.writes += new.writes;
            meter.inc(accesses.len() as u64);
        }
        Ok(hits)
    }

    /// The miss ratios of a cache of `size` blocks with these hits.
    fn point(&self, size: u64, hits: ClairvoyantHits) -> Point {
        let scaled = |sampled: u64, hits: u64, accesses: u64| {
            scaled_misses(sampled - hits, sampled > 0, accesses, self.rate)
        };
        let reads = scaled(self.sampled_reads(), hits.reads, self.reads);
        let writes = scaled(self.sampled_writes, hits.writes, self.writes);
        let ratio = |misses: f64, accesses: u64| match accesses {
            0 => 0.0,
            _ => (misses / accesses as f64).min(1.0),
        };
        Point {
            size_blocks: size,
            size_bytes: size.saturating_mul(self.block_size.bytes()),
            miss_ratio: ratio(reads + writes, self.reads + self.writes),
            read_miss_ratio: ratio(reads, self.reads),
            write_miss_ratio: ratio(writes, self.writes),
        }
    }
}

/// The first and the last block of a request; `None` if it accesses no block.
fn blocks(size: BlockSize, request: &Request) -> Option<(u64, u64)> {
    let accesses = matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes);
    let last = request.offset.saturating_add(request.length.checked_sub(1).filter(|_| accesses)?);
    Some((size.index_of(request.offset).0, size.index_of(last).0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Unobserved, miniature};
    use forebay_config::Config;
    use std::fmt::Write;

    const HEAD: &str = "time_ns,volume,op,offset,length\n";

    fn trace(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// Two hours of three volumes: one with few blocks, one that loops over more blocks than a
    /// small cache holds, and one that never reuses a block.
    fn three_volumes() -> String {
        let (mut text, mut state) = (HEAD.to_owned(), 7u64);
        for n in 0..60_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (volume, block) = match n % 3 {
                0 => ("small", (state >> 40) % 300),
                1 => ("circle", n / 3 % 1_000),
                _ => ("flood", n),
            };
            let op = if (state >> 33).is_multiple_of(4) { "write" } else { "read" };
            writeln!(text, "{},{volume},{op},{},4096", n * 120_000_000, block * 4096).unwrap();
        }
        text
    }

    #[test]
    fn policies_that_know_volumes_miss_as_the_cache_does_with_them_also_in_a_sample() {
        let file = trace(&three_volumes());
        let misses = |kind: Kind, rate: f64| {
            let contenders = vec![Contender::Policy(kind)];
            let question = Question {
                sample_rate: rate,
                points: 2,
                at_blocks: vec![1000],
                ..Question::new(file.path().into(), contenders)
            };
            let answer = question.ask(&Unobserved::default()).unwrap();
            let points = &answer.policies[0].points;
            let point = *points.iter().find(|point| point.size_blocks == 1000).unwrap();
            let text = format!("[replacement]\npolicy = '{kind}'\n[cache]\ndram = '4000KiB'\n");
            let config = Config::from_toml(&text).unwrap();
            let question = miniature::Question {
                sample_rate: Some(rate),
                memory_bytes: vec![4000 << 10],
                ..miniature::Question::new(file.path().into(), config)
            };
            let cache = question.ask(&Unobserved::default()).unwrap().points[0].ratios.unwrap();
            for (own, of_cache) in [
                (point.miss_ratio, cache.miss_ratio),
                (point.read_miss_ratio, cache.read_miss_ratio),
                (point.write_miss_ratio, cache.write_miss_ratio),
            ] {
                let off = (own - of_cache).abs();
                assert!(off < 1e-9, "{kind}, {rate}: {own}, of the cache {of_cache}");
            }
            point.miss_ratio
        };
        for rate in [1.0, 0.3] {
            let [lru, derivative, _] =
                [Kind::Lru, Kind::DerivativeLru, Kind::PriorityLru].map(|kind| misses(kind, rate));
            assert!((lru - derivative).abs() > 0.01, "{rate}: {lru}, {derivative}");
        }
    }

    #[test]
    fn accesses_of_which_none_is_in_the_sample_all_miss() {
        // Many blocks are read repeatedly, and the few writes go to blocks that are not in the
        // sample.
        let sampler = Sampler::new(SampleSpec { rate: 0.1, bits: 0, seed: SEED, number: 0 });
        let (sampler, mut sample) = (sampler.unwrap(), Batch::default());
        let mut is_sampled = |block: u64| {
            let (time, volume, flags) = (Nanos(0), Volume(0), Default::default());
            let (offset, length) = (block * 4096, 4096);
            let request = Request { time, volume, op: Op::Write, flags, offset, length };
            let mut batch = Batch::default();
            batch.push(request);
            sample.clear();
            sampler.sample(&batch.record(0), Nanos(0), &mut sample);
            !sample.is_empty()
        };
        let written: Vec<u64> = (0..).filter(|&block| !is_sampled(block)).take(5).collect();
        let mut text = HEAD.to_owned();
        for n in 0..20_000 {
            writeln!(text, "{n},a,read,{},4096", (10_000 + n % 2000) * 4096).unwrap();
        }
        for n in 0..40 {
            writeln!(text, "{},a,write,{},4096", 20_000 + n, written[n % 5] * 4096).unwrap();
        }
        let file = trace(&text);
        let question = Question {
            sample_rate: 0.1,
            points: 2,
            ..Question::new(file.path().into(), vec![Contender::Policy(Kind::Lru)])
        };
        let answer = question.ask(&Unobserved::default()).unwrap();
        let last = *answer.policies[0].points.last().unwrap();
        assert!(last.read_miss_ratio < 0.2 && last.write_miss_ratio == 1.0, "{last:?}");
        let config = Config::from_toml("[cache]\ndram = '32MiB'\n").unwrap();
        let question = miniature::Question {
            sample_rate: Some(0.1),
            memory_bytes: vec![32 << 20],
            ..miniature::Question::new(file.path().into(), config)
        };
        let answer = question.ask(&Unobserved::default()).unwrap();
        let ratios = answer.points[0].ratios.unwrap();
        assert!(ratios.read_miss_ratio < 0.2 && ratios.write_miss_ratio == 1.0, "{ratios:?}");
    }
}
