//! Reads a trace once and computes all of its figures.

use super::{
    by_op::ByOp,
    contents::ContentCounter,
    distribution::Distribution,
    footprint::Footprint,
    info::{Features, SampleUse, TraceInfo, VolumeUse},
};
use crate::{Batch, BlockContents, Clock, HashInfo, Moments, Result, TraceReader};
use forebay_block::{BlockSize, Flags, Op, Request, RequestColumns};
use std::ops::Range;

/// Number of requests whose memory is prefetched at a time.
const LOOK_AHEAD: usize = 32;

/// Computes the figures of a trace.
///
/// ```
/// use forebay_block::BlockSize;
/// use forebay_trace::{Collector, Spec, Synth};
/// let trace = Synth::new(&Spec::parse("sequential:blocks=1k,requests=500,write=1")?)?;
/// let info = Collector::read(trace, BlockSize::KIB_4)?;
/// assert_eq!((info.writes, info.footprint_blocks.all), (500, 500));
/// assert_eq!(info.features.get("seq_count"), Some(499.0));
/// # Ok::<(), forebay_trace::TraceError>(())
/// ```
pub struct Collector {
    block_size: BlockSize,
    info: TraceInfo,
    volumes: Vec<VolumeState>,
    contents: Option<ContentCounter>,
    /// Moments of the requests that have gaps; only samples have such requests.
    sampled: Moments,
    reads: OpState,
    writes: OpState,
    all: OpState,
    first_ns: Option<u64>,
    last_ns: u64,
    min_offset: u64,
    max_end: u64,
}

#[derive(Default)]
struct VolumeState {
    usage: VolumeUse,
    footprint: Footprint,
    /// For reads, writes and both: where the last request ended, and the number of blocks in the
    /// current run.
    runs: [Option<(u64, u64)>; 3],
}

/// Figures of the reads, of the writes, or of both. For both, the figures that do not depend on
/// earlier requests are added up at the end.
#[derive(Default)]
struct OpState {
    requests: u64,
    blocks: u64,
    bytes: u64,
    sequential: u64,
    misaligned: u64,
    misaligned_bytes: u64,
    last_ns: Option<u64>,
    size: Distribution,
    jump: Distribution,
    scan: Distribution,
    gap_ns: Distribution,
}

impl Collector {
    /// Creates a collector that counts in blocks of this size.
    pub fn new(block_size: BlockSize) -> Self {
        Collector {
            block_size,
            info: TraceInfo { block_size: block_size.bytes(), ..TraceInfo::default() },
            volumes: Vec::new(),
            contents: None,
            sampled: Moments::default(),
            reads: OpState::default(),
            writes: OpState::default(),
            all: OpState::default(),
            first_ns: None,
            last_ns: 0,
            min_offset: u64::MAX,
            max_end: 0,
        }
    }

    /// Reads a whole trace and returns its figures.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn read(mut trace: impl TraceReader, block_size: BlockSize) -> Result<TraceInfo> {
        let mut collector = Collector::new(block_size);
        let mut batch = Batch::default();
        while trace.read_batch(&mut batch)? > 0 {
            collector.add(&batch, trace.metadata().hashes.as_ref());
        }
        Ok(collector.finish(&trace))
    }

    /// Counts the requests of `batch`. `hashes` describes their content hashes.
    pub fn add(&mut self, batch: &Batch, hashes: Option<&HashInfo>) {
        let requests = batch.columns();
        let group = |from: usize| from..(from + LOOK_AHEAD).min(batch.len());
        self.look_ahead(&requests, group(0));
        for from in (0..batch.len()).step_by(LOOK_AHEAD) {
            self.look_ahead(&requests, group((from + LOOK_AHEAD).min(batch.len())));
            group(from).for_each(|i| self.add_request(&requests.request(i)));
        }
        if batch.has_gaps() {
            for i in 0..batch.len() {
                batch.gap(i).into_iter().for_each(|g| self.sampled.add(&batch.request(i), g));
            }
        }
        let contents = hashes.and_then(|info| BlockContents::new(info, self.block_size));
        let Some(contents) = contents else { return };
        let counter = self.contents.get_or_insert_default();
        for i in 0..batch.len() {
            counter.add(&batch.record(i), &contents, self.block_size.bytes());
        }
    }

    /// Prefetches the memory in which the next requests will be counted, while the current ones are
    /// counted. In a large trace, nearly every request would otherwise miss the processor's caches.
    #[inline]
    fn look_ahead(&self, requests: &RequestColumns<'_>, next: Range<usize>) {
        let volumes = &requests.volume[next.clone()];
        for (&volume, &offset) in volumes.iter().zip(&requests.offset[next]) {
            if let Some(volume) = self.volumes.get(volume as usize) {
                volume.footprint.look_ahead(self.block_size.index_of(offset).0);
            }
        }
    }

    #[inline(always)]
    fn add_request(&mut self, r: &Request) {
        self.info.requests += 1;
        self.info.fua += u64::from(r.flags.contains(Flags::FUA));
        self.first_ns.get_or_insert(r.time.0);
        self.last_ns = r.time.0;
        let number = r.volume.0 as usize;
        if number >= self.volumes.len() {
            self.volumes.resize_with(number + 1, VolumeState::default);
        }
        let volume = &mut self.volumes[number];
        volume.usage.requests += 1;
        let write = match r.op {
            Op::Read => false,
            Op::Write => true,
            Op::WriteZeroes => {
                self.info.write_zeroes += 1;
                true
            }
            Op::Trim => {
                self.info.trims += 1;
                return;
            }
            Op::Flush => {
                self.info.flushes += 1;
                return;
            }
        };
        let (first, blocks) = r.blocks(self.block_size);
        for block in first.0..first.0 + blocks {
            volume.footprint.touch(block, write);
        }
        let end = r.offset + r.length;
        self.min_offset = self.min_offset.min(r.offset);
        self.max_end = self.max_end.max(end);
        volume.usage.end_bytes = volume.usage.end_bytes.max(end);
        *(if write { &mut volume.usage.bytes.write } else { &mut volume.usage.bytes.read }) +=
            r.length;

        let op = if write { &mut self.writes } else { &mut self.reads };
        op.count(r, blocks, self.block_size);
        op.follow(r, blocks, &mut volume.runs[usize::from(write)]);
        let sequential = self.all.follow(r, blocks, &mut volume.runs[2]);
        // A read or write is sequential if it continues the previous request, whatever the
        // operation of that request.
        op.sequential += u64::from(sequential);
        self.all.sequential += u64::from(sequential);
    }

    /// Returns the figures. `trace` provides the names of volumes and the counters of reading.
    pub fn finish(mut self, trace: &impl TraceReader) -> TraceInfo {
        let metadata = trace.metadata();
        for volume in &self.volumes {
            for (op, run) in
                [&mut self.reads, &mut self.writes, &mut self.all].into_iter().zip(volume.runs)
            {
                op.end_run(run);
            }
        }
        self.all.merge(&self.reads);
        self.all.merge(&self.writes);
        let mut popularity = ByOp::<Distribution>::default();
        let mut info = self.info;
        for (number, volume) in self.volumes.into_iter().enumerate() {
            let mut usage = volume.usage;
            for e in volume.footprint.entries() {
                let (reads, writes) = (u64::from(e.reads), u64::from(e.writes));
                usage.footprint_blocks.all += 1;
                usage.footprint_blocks.read += u64::from(reads > 0);
                usage.footprint_blocks.write += u64::from(writes > 0);
                popularity.all.add((reads + writes) as i64);
                if reads > 0 {
                    popularity.read.add(reads as i64);
                }
                if writes > 0 {
                    popularity.write.add(writes as i64);
                }
            }
            info.footprint_blocks.read += usage.footprint_blocks.read;
            info.footprint_blocks.write += usage.footprint_blocks.write;
            info.footprint_blocks.all += usage.footprint_blocks.all;
            if usage.requests > 0 {
                let name = metadata.volumes.get(number).map(|v| v.name.clone());
                usage.volume = name.unwrap_or_else(|| number.to_string());
                usage.bytes.all = usage.bytes.read + usage.bytes.write;
                info.per_volume.push(usage);
            }
        }
        info.sample = metadata.sample.as_ref().map(|s| SampleUse::new(s, &self.sampled));
        info.contents = self.contents.map(ContentCounter::finish);
        info.format = metadata.format.clone();
        info.volumes = info.per_volume.len() as u64;
        info.reads = self.reads.requests;
        info.writes = self.writes.requests;
        info.read_bytes = self.reads.bytes;
        info.write_bytes = self.writes.bytes;
        info.duration_s = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0)) as f64 / 1e9;
        let dated = metadata.clock == Clock::Unix && info.requests > 0;
        info.epoch_unix_s = metadata.epoch_ns.filter(|_| dated).map(|ns| ns as f64 / 1e9);
        let by_op = |f: fn(&OpState) -> u64| ByOp {
            read: f(&self.reads),
            write: f(&self.writes),
            all: f(&self.all),
        };
        info.block_accesses = by_op(|o| o.blocks);
        info.misaligned = by_op(|o| o.misaligned);
        let counters = trace.counters();
        (info.bad_lines, info.out_of_order) = (counters.bad, counters.out_of_order);
        let mut table = Table::default();
        table.singles(&self.all, &self.reads, &self.writes, &info);
        table.single("range", self.max_end.saturating_sub(self.min_offset) as f64);
        let is_known = self.max_end > 0;
        table.single("min_offset", if is_known { self.min_offset as f64 } else { UNDEFINED });
        table.distributions("", &self.all, &popularity.all);
        table.distributions("read_", &self.reads, &popularity.read);
        table.distributions("write_", &self.writes, &popularity.write);
        info.features = Features(table.0);
        info
    }
}

impl OpState {
    /// Counts the figures of a request that do not depend on earlier requests.
    #[inline(always)]
    fn count(&mut self, r: &Request, blocks: u64, size: BlockSize) {
        let end = r.offset + r.length;
        let missing = size.within(r.offset) + size.within(size.bytes() - size.within(end));
        self.requests += 1;
        self.blocks += blocks;
        self.bytes += r.length;
        self.misaligned += u64::from(missing > 0);
        self.misaligned_bytes += missing;
        self.size.add(r.length as i64);
    }

    /// Counts the figures of a request that depend on earlier requests. Returns whether the request
    /// begins where the run ended.
    #[inline(always)]
    fn follow(&mut self, r: &Request, blocks: u64, run: &mut Option<(u64, u64)>) -> bool {
        let end = r.offset + r.length;
        if let Some(last) = self.last_ns {
            let gap_ns = r.time.0.saturating_sub(last);
            self.gap_ns.add(i64::try_from(gap_ns).unwrap_or(i64::MAX));
        }
        self.last_ns = Some(r.time.0);
        let jump = run.map(|(last_end, _)| r.offset as i64 - last_end as i64);
        jump.into_iter().for_each(|j| self.jump.add(j));
        if let (Some(0), Some((_, so_far))) = (jump, *run) {
            *run = Some((end, so_far + blocks));
            return true;
        }
        self.end_run(*run);
        *run = Some((end, blocks));
        false
    }

    /// Adds the figures that do not depend on earlier requests.
    fn merge(&mut self, other: &OpState) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.misaligned += other.misaligned;
        self.misaligned_bytes += other.misaligned_bytes;
        self.size.merge(&other.size);
    }

    fn end_run(&mut self, run: Option<(u64, u64)>) {
        if let Some((_, blocks)) = run {
            self.scan.add(blocks as i64);
        }
    }
}

/// The value of a figure without data, such as the mean size of no requests.
const UNDEFINED: f64 = f64::NAN;

/// The features, in the order of output.
#[derive(Default)]
struct Table(Vec<(String, f64)>);

impl Table {
    fn single(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    fn singles(&mut self, all: &OpState, reads: &OpState, writes: &OpState, info: &TraceInfo) {
        let wss = info.footprint_blocks;
        let size = info.block_size;
        let figures: [(&str, [u64; 3]); 6] = [
            ("block_req_count", [all.requests, reads.requests, writes.requests]),
            ("cache_req_count", [all.blocks, reads.blocks, writes.blocks]),
            ("io_req_byte", [all.bytes, reads.bytes, writes.bytes]),
            ("seq_count", [all.sequential, reads.sequential, writes.sequential]),
            (
                "misalignment_byte",
                [all.misaligned_bytes, reads.misaligned_bytes, writes.misaligned_bytes],
            ),
            ("wss", [wss.all * size, wss.read * size, wss.write * size]),
        ];
        for (name, [all, read, write]) in figures {
            self.single(name, all as f64);
            self.single(format!("read_{name}"), read as f64);
            self.single(format!("write_{name}"), write as f64);
            let short = name.trim_end_matches("_count").trim_end_matches("_byte");
            let split = if all == 0 { UNDEFINED } else { write as f64 / all as f64 };
            self.single(format!("write_{short}_split"), split);
        }
    }

    fn distributions(&mut self, op: &str, state: &OpState, popularity: &Distribution) {
        let accesses = state.blocks.max(1) as f64;
        for (name, distribution, divisor) in [
            ("page_popularity", popularity, accesses),
            ("size", &state.size, 1.0),
            ("jd", &state.jump, 1.0),
            ("scan", &state.scan, 1.0),
            ("iat", &state.gap_ns, 1e3),
        ] {
            let percents = [0, 1].into_iter().chain((5..=95).step_by(5)).chain([99, 100]);
            let defined = |value: f64| {
                if distribution.is_empty() { UNDEFINED } else { value / divisor }
            };
            for p in percents {
                let value = distribution.quantile(f64::from(p) / 100.0);
                self.single(format!("{op}{name}_p{p}"), defined(value));
            }
            self.single(format!("{op}{name}_avg"), defined(distribution.mean()));
        }
    }
}
