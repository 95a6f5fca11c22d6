//! `forebay mrc`: miss-ratio curves.

mod miniature;
pub mod policies;
mod slice_files;
mod sliced;

use std::io::Write;
use std::path::PathBuf;
use std::thread;

use clap::ValueEnum;
use forebay_analysis::{Columns, Described};
use forebay_block::{BlockSize, Op};
use forebay_config::{Size, TimeSpan};
use forebay_locality::{
    ContentLocality, CurvePoint, Interval, LocalityOptions, MissRatioCurve, ReuseHistogram,
    Sampling, Scope, SlicedHistogram, WorkloadHistograms, WorkloadLocality,
};
use forebay_report::{Axis, Lines, Report, Section, Unit};
use forebay_trace::BlockContents;
use serde::{Deserialize, Serialize};

use crate::args::{TraceArgs, block_size, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::format::{count, percent, table};
use crate::output::OutputArgs;
use crate::reading::{read_described, read_trace_batches, read_traces};
use crate::rows::write_parquet;
use sliced::Sliced;

/// Points of a curve unless the user says otherwise.
const POINTS: usize = 200;
/// A sample of fewer blocks is too small for a slice, and by itself worth a note.
const SAMPLED_BLOCKS_MIN: u64 = 256;

/// Which reuse distance the curve is made of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// Traditional reuse distance: all accesses, as an LRU cache of reads and writes sees them
    Trd,
    /// Useful reuse distance: only reads can hit, after reads and after writes
    Urd,
    /// Policy-optimised distance, read-only cache: writes invalidate
    PodRo,
    /// Policy-optimised distance, write-back of writes only: only writes allocate
    PodWbwo,
    /// Policy-optimised distance, write-back (the same as urd)
    PodWb,
    /// Policy-optimised distance, write-through with allocation on writes (the same as urd)
    PodWt,
    /// What an LRU cache of reads needs that writes invalidate, exactly
    LruRo,
    /// What an LRU cache of writes needs that reads hit, exactly
    LruWbwo,
}

impl From<Distance> for forebay_locality::Distance {
    fn from(distance: Distance) -> Self {
        match distance {
            Distance::Trd => Self::Trd,
            Distance::Urd => Self::Urd,
            Distance::PodRo => Self::PodReadOnly,
            Distance::PodWbwo => Self::PodWriteOnly,
            Distance::PodWb => Self::PodWriteBack,
            Distance::PodWt => Self::PodWriteThrough,
            Distance::LruRo => Self::LruReadOnly,
            Distance::LruWbwo => Self::LruWriteOnly,
        }
    }
}

/// What a cache finds its blocks by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// Where they lie: an ordinary cache
    Sector,
    /// What is in them: a content-addressed cache, which holds equal blocks once
    Content,
}

/// Arguments of `forebay mrc`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay mrc zipf.parquet
  $ forebay mrc zipf.parquet --policy lru,arc,s3-fifo,opt --html policies.html")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Which reuse distance to use
    #[arg(long, value_enum, default_value = "trd")]
    pub distance: Distance,
    /// What the cache finds blocks by; `content` needs a trace with content hashes
    #[arg(long, value_enum, default_value = "sector")]
    pub key: Key,
    /// Look at this fraction of the blocks only (SHARDS)
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "max_blocks")]
    pub sample: Option<f64>,
    /// Look at N blocks at most (256 or more), lowering the rate as needed (fixed-size SHARDS)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..))]
    pub max_blocks: Option<u64>,
    /// Say how far the curve may be off, by measuring the blocks, or the sample, in N slices. It uses
    /// all processors; on two it takes longer than the exact curve
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "16",
          value_parser = clap::value_parser!(u64).range(2..=256))]
    pub slices: Option<u64>,
    /// With --slices: measure slice K only, from 1 on, and print what it has counted, for --merge. A
    /// machine then holds one slice at a time
    #[arg(long, value_name = "K", requires = "slices",
          value_parser = clap::value_parser!(u64).range(1..),
          conflicts_with_all = ["sample", "max_blocks", "points", "at", "parquet", "html"])]
    pub slice: Option<u64>,
    /// TRACE... are the slices of one trace, as --slice has printed them: merge them to its curve
    #[arg(long, conflicts_with_all = [
        "distance", "key", "sample", "max_blocks", "slices", "request_level", "migration_period",
        "per_volume", "policies", "config", "block_size", "format", "volumes", "limit",
        "skip_bad_lines", "follow_gaps",
    ])]
    pub merge: bool,
    /// Count requests, not blocks: one hits only if all its blocks do
    #[arg(long)]
    pub request_level: bool,
    /// Blocks move into the cache only every T, instead of when they are accessed
    #[arg(long, value_name = "T")]
    pub migration_period: Option<TimeSpan>,
    /// One more curve for each volume by itself
    #[arg(long)]
    pub per_volume: bool,
    /// One curve for each of these replacement policies, by running them, and `opt`, the best that any
    /// could do (Belady); `forebay policies` lists them. With --sample, in miniature
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = policies::contender, conflicts_with_all = [
        "distance", "key", "max_blocks", "slices", "request_level", "migration_period", "per_volume",
    ])]
    pub policies: Vec<policies::Contender>,
    /// The curve of the cache that this file configures, whatever its policies, by simulating it in
    /// miniature; sizes of memory are those of --at, or powers of two
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "distance", "key", "max_blocks", "slices", "request_level", "migration_period",
        "per_volume", "block_size", "points", "policies",
    ])]
    pub config: Option<PathBuf>,
    /// With --config: sizes of the flash tier, each with each of memory
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', requires = "config")]
    pub flash: Vec<Size>,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Points of a curve at most, otherwise 200, or with --policy 21; without it, a curve of fewer
    /// steps has a point for each
    #[arg(long, value_name = "N")]
    pub points: Option<usize>,
    /// More points, at these cache sizes (rounded down to blocks)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub at: Vec<Size>,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    /// What to measure.
    fn options(&self) -> Result<LocalityOptions, CliError> {
        let by_request = self.request_level || self.migration_period.is_some();
        if by_request && (self.sample.is_some() || self.max_blocks.is_some()) {
            let what = "--request-level and --migration-period need all blocks, not a sample";
            return Err(CliError::usage(what).next("leave --sample and --max-blocks out"));
        }
        let sampled = self.sample.is_some() || self.max_blocks.is_some() || self.slices.is_some();
        if self.key == Key::Content && (by_request || sampled) {
            let what = "--key content measures all blocks, one by one";
            let next = "leave --sample, --max-blocks, --slices, --request-level and \
                        --migration-period out";
            return Err(CliError::usage(what).next(next));
        }
        let keeps_all = matches!(
            self.distance,
            Distance::Trd | Distance::Urd | Distance::PodWb | Distance::PodWt
        );
        if self.key == Key::Content && !keeps_all {
            let what = "--key content is for caches that keep every access";
            return Err(CliError::usage(what).next("use --distance trd or urd"));
        }
        if self.slices.is_some() && (by_request || self.per_volume) {
            let what = "--slices measures blocks, of all volumes together";
            let next = "leave --request-level, --migration-period and --per-volume out";
            return Err(CliError::usage(what).next(next));
        }
        if let (Some(blocks), Some(slices)) = (self.max_blocks, self.slices)
            && blocks / slices.max(1) < SAMPLED_BLOCKS_MIN
        {
            let what = format_args!(
                "--max-blocks {blocks} is less than {SAMPLED_BLOCKS_MIN} for each of {slices} slices"
            );
            let least = SAMPLED_BLOCKS_MIN * slices;
            return Err(CliError::usage(what).next(format_args!("give {least} or more")));
        }
        if self.migration_period.is_some_and(|period| period.nanos().0 == 0) {
            return Err(CliError::usage("--migration-period must be longer than 0"));
        }
        Ok(LocalityOptions {
            block_size: self.block_size,
            distance: self.distance.into(),
            sampling: match (self.sample, self.max_blocks) {
                (Some(rate), _) => Sampling::Rate(rate),
                (None, Some(blocks)) => Sampling::MaxBlocks(blocks),
                (None, None) => Sampling::All,
            },
            scope: if self.per_volume { Scope::Both } else { Scope::Together },
            request_level: self.request_level,
            migration_period: self.migration_period.map(TimeSpan::nanos),
        })
    }
}

/// Computes and prints the curves.
pub fn run(mut args: Args, ctx: &Context) -> Result<(), CliError> {
    args.output.check(args.traces.traces.iter().chain(&args.config))?;
    if let Some(config) = &args.config {
        return miniature::run(&args, config, ctx);
    }
    if !args.policies.is_empty() {
        return policies::run(&args, ctx);
    }
    let locality = args.options()?;
    if let (Some(slice), Some(slices)) = (args.slice, args.slices) {
        return slice_files::measure(&args, &locality, (slice as usize, slices as usize), ctx);
    }
    let (traces, measured) = match (args.key, args.slices) {
        _ if args.merge => {
            let (traces, sliced) = slice_files::merge(&mut args)?;
            (traces, Measured::Sliced(sliced))
        }
        (Key::Content, _) => contents(&args, locality, ctx)?,
        (Key::Sector, None) => sectors(&args, locality, ctx)?,
        (Key::Sector, Some(slices)) => slices_of_sectors(&args, locality, slices as usize, ctx)?,
    };
    measured.check_sample(ctx)?;
    let answer = Answer::new(&args, measured, traces)?;
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &answer.rows(args.block_size))?;
    }
    if let Some(path) = &args.output.html {
        answer.report(&args).write_html(path)?;
    }
    args.output.emit(&answer.document(&args), |out| answer.print(&args, out))
}

fn sectors(
    args: &Args,
    options: LocalityOptions,
    ctx: &Context,
) -> Result<(Described, Measured), CliError> {
    let mut workload = WorkloadLocality::new(options)?;
    let mut without_data = 0;
    let traces = read_trace_batches(&args.traces, ctx, |batch| {
        let ops = batch.op.iter();
        without_data += ops.filter(|op| matches!(op, Op::Trim | Op::Flush)).count() as u64;
        Ok(workload.add_columns(&batch.columns())?)
    })?;
    tell_without_data(without_data, ctx);
    Ok((traces, Measured::Whole(workload.finish()?)))
}

fn slices_of_sectors(
    args: &Args,
    options: LocalityOptions,
    slices: usize,
    ctx: &Context,
) -> Result<(Described, Measured), CliError> {
    thread::scope(|scope| {
        let mut sliced = Sliced::new(scope, &options, slices)?;
        let mut without_data = 0;
        let traces = read_traces(&args.traces, ctx, |request| {
            without_data += u64::from(matches!(request.op, Op::Trim | Op::Flush));
            sliced.add(request)
        })?;
        tell_without_data(without_data, ctx);
        Ok((traces, Measured::Sliced(sliced.finish()?)))
    })
}

fn contents(
    args: &Args,
    locality: LocalityOptions,
    ctx: &Context,
) -> Result<(Described, Measured), CliError> {
    let LocalityOptions { block_size, distance, scope, .. } = locality;
    let mut workload = ContentLocality::new(block_size, distance, scope)?;
    let (mut of_blocks, mut without_data, mut unknown) = (Vec::new(), 0, 0);
    let traces = read_described(&args.traces, ctx, |batch, metadata| {
        let Some(info) = &metadata.hashes else {
            let error = CliError::failed("the trace has no content hashes");
            return Err(error.next("record one with `forebay serve --record X.parquet --hash`"));
        };
        let contents = BlockContents::new(info, block_size).ok_or_else(|| {
            CliError::failed(format!("its hashes are of {} bytes each", info.unit_bytes))
                .next("choose a --block-size that is a multiple of that")
        })?;
        for i in 0..batch.len() {
            let record = batch.record(i);
            without_data += u64::from(matches!(record.request.op, Op::Trim | Op::Flush));
            contents.of(&record, &mut of_blocks);
            unknown += of_blocks.iter().filter(|content| content.is_none()).count() as u64;
            workload.add(&record.request, &of_blocks)?;
        }
        Ok(())
    })?;
    tell_without_data(without_data, ctx);
    if unknown > 0 {
        let n = count(unknown);
        ctx.note(format_args!("{n} block accesses have no hash; nothing equals what they access"));
    }
    Ok((traces, Measured::Whole(workload.finish()?)))
}

fn no_accesses(args: &Args) -> CliError {
    let what = "there is not one read or write to measure";
    let error = CliError::failed(what).kept("nothing was written");
    let narrow = args.traces.limit.is_some() || !args.traces.volumes.is_empty();
    if narrow { error.next("widen --limit or --volumes") } else { error }
}

fn tell_without_data(requests: u64, ctx: &Context) {
    if requests > 0 {
        let n = count(requests);
        ctx.note(format_args!("{n} trims and flushes are no accesses and were left out"));
    }
}

/// What came of it.
enum Measured {
    Whole(WorkloadHistograms),
    Sliced(SlicedHistogram),
}

impl Measured {
    /// Refuses a sample without a block, of which nothing can be said, and says if there are few.
    fn check_sample(&self, ctx: &Context) -> Result<(), CliError> {
        let Some(all) = (match self {
            Self::Whole(histograms) => histograms.all.as_ref(),
            Self::Sliced(sliced) => Some(&sliced.merged),
        }) else {
            return Ok(());
        };
        let blocks = (all.distinct_blocks as f64 * all.sampled_rate.0).round() as u64;
        if all.sampled_rate.0 < 1.0 && all.accesses() > 0 {
            if blocks == 0 {
                let error = CliError::failed("no block of the trace is in the sample");
                return Err(error.next("raise --sample"));
            }
            if blocks < SAMPLED_BLOCKS_MIN {
                let n = count(blocks);
                ctx.note(format_args!("the sample has {n} blocks only: it may be far off"));
            }
        }
        Ok(())
    }
}

/// The histograms under the names that the user knows.
struct Answer {
    requests: u64,
    all: ReuseHistogram,
    /// Where `all` comes from, if from slices.
    sliced: Option<SlicedHistogram>,
    volumes: Vec<(String, ReuseHistogram)>,
}

impl Answer {
    fn new(args: &Args, measured: Measured, traces: Described) -> Result<Self, CliError> {
        let (histograms, sliced) = match measured {
            Measured::Whole(histograms) => (histograms, None),
            Measured::Sliced(sliced) => (WorkloadHistograms::default(), Some(sliced)),
        };
        let merged = || sliced.as_ref().map(|sliced| sliced.merged.clone());
        let all = histograms.all.or_else(merged).unwrap_or_default();
        if all.accesses() == 0 {
            return Err(no_accesses(args));
        }
        let volumes = histograms.volumes.into_iter();
        let volumes = volumes.map(|(v, h)| (traces.volume_name(v), h)).collect();
        Ok(Self { requests: traces.requests, all, sliced, volumes })
    }

    fn document(&self, args: &Args) -> Document {
        let volume = |(name, h): &(String, _)| VolumeCurve {
            volume: name.clone(),
            curve: Curve::new(h, None, args),
        };
        Document {
            distance: forebay_locality::Distance::from(args.distance).name(),
            key: args.key,
            block_size: args.block_size.bytes(),
            requests: self.requests,
            curve: Curve::new(&self.all, self.sliced.as_ref(), args),
            volumes: args.per_volume.then(|| self.volumes.iter().map(volume).collect()),
        }
    }

    /// Where the miss ratio of all volumes is at a size, if it comes from slices.
    fn bounds(&self, size_blocks: u64) -> Option<Interval> {
        self.sliced.as_ref()?.bounds(size_blocks)
    }

    /// Every step of every curve.
    fn rows(&self, block_size: BlockSize) -> Columns {
        let all = std::iter::once(("", &self.all));
        let volumes = self.volumes.iter().map(|(name, h)| (name.as_str(), h));
        let rows: Vec<(&str, &ReuseHistogram, u64)> = all
            .chain(volumes)
            .flat_map(|(name, h)| h.breakpoints().map(move |size| (name, h, size)))
            .collect();
        let points: Vec<CurvePoint> = rows.iter().map(|&(_, h, c)| CurvePoint::at(h, c)).collect();
        let bounds: Vec<Option<Interval>> = rows.iter().map(|row| self.bounds(row.2)).collect();
        Columns::default()
            .texts("volume", rows.iter().map(|row| row.0))
            .integers("size_blocks", rows.iter().map(|row| row.2))
            .integers("size_bytes", rows.iter().map(|row| row.2 * block_size.bytes()))
            .integers("read_hits", rows.iter().map(|&(_, h, c)| h.hits(Op::Read, c)))
            .integers("write_hits", rows.iter().map(|&(_, h, c)| h.hits(Op::Write, c)))
            .integers("reads", rows.iter().map(|row| row.1.read.accesses()))
            .integers("writes", rows.iter().map(|row| row.1.write.accesses()))
            .reals("miss_ratio", points.iter().map(|p| p.miss_ratio))
            .optional_reals("miss_ratio_low", bounds.iter().map(|b| b.map(|b| b.low)))
            .optional_reals("miss_ratio_high", bounds.iter().map(|b| b.map(|b| b.high)))
            .reals("read_miss_ratio", points.iter().map(|p| p.read_miss_ratio))
            .reals("write_miss_ratio", points.iter().map(|p| p.write_miss_ratio))
    }

    fn report(&self, args: &Args) -> Report {
        let lines = |title: &str| {
            Lines::new(title).x(Axis::new("cache size", Unit::Bytes).log()).y(Axis::new(
                "miss ratio",
                Unit::Fraction,
            )
            .from_zero())
        };
        let points = points(&self.all, args);
        let sizes = || points.iter().map(|p| (p.size_blocks * args.block_size.bytes()) as f64);
        let mut curve = lines("Miss ratio by cache size").line(
            "reads and writes",
            sizes(),
            points.iter().map(|p| p.miss_ratio),
        );
        let bounds: Option<Vec<Interval>> =
            points.iter().map(|p| self.bounds(p.size_blocks)).collect();
        if let Some(bounds) = bounds {
            curve = curve.band(bounds.iter().map(|b| b.low), bounds.iter().map(|b| b.high));
        }
        if self.all.read.accesses() > 0 {
            curve = curve.line("reads", sizes(), points.iter().map(|p| p.read_miss_ratio));
        }
        if self.all.write.accesses() > 0 && self.measures_writes(args) {
            curve = curve.line("writes", sizes(), points.iter().map(|p| p.write_miss_ratio));
        }
        let mut section =
            Section::new("All volumes").facts(self.facts(args)).figure(curve.figure().caption(
                "The share of block accesses that an LRU cache of the size misses. The curve is \
                 flat where more cache gains nothing. A band, if there is one, holds the exact \
                 curve with a confidence of about 95 %.",
            ));
        if args.per_volume {
            let mut figure = lines("Miss ratio of each volume with a cache of its own");
            for (name, histogram) in &self.volumes {
                let points = self::points(histogram, args);
                let bytes = args.block_size.bytes();
                figure = figure.line(
                    name,
                    points.iter().map(|p| (p.size_blocks * bytes) as f64),
                    points.iter().map(|p| p.miss_ratio),
                );
            }
            section = section.figure(figure.figure());
        }
        let files: Vec<String> =
            args.traces.traces.iter().map(|path| path.display().to_string()).collect();
        Report::new("Miss-ratio curves").subtitle(files.join(", ")).section(section)
    }

    fn measures_writes(&self, args: &Args) -> bool {
        forebay_locality::Distance::from(args.distance).measures_writes()
    }

    fn facts(&self, args: &Args) -> Vec<(String, String)> {
        let bytes = args.block_size.bytes();
        let all = &self.all;
        let reused = all.max_distance().map_or(0, |max| max + 1);
        let mut facts = vec![
            ("requests", count(self.requests)),
            (if args.request_level { "accesses" } else { "block accesses" }, count(all.accesses())),
            ("of these writes", percent(all.write.accesses() as f64 / all.accesses() as f64)),
            (
                if args.key == Key::Sector { "distinct data" } else { "distinct contents" },
                Size(all.distinct_blocks * bytes).to_string(),
            ),
            ("every reuse fits in", Size(reused * bytes).to_string()),
            ("miss ratio then", percent(CurvePoint::at(all, reused).miss_ratio)),
            ("reuse distance", forebay_locality::Distance::from(args.distance).to_string()),
            ("block size", args.block_size.to_string()),
        ];
        if all.sampled_rate.0 < 1.0 {
            facts.push(("sampled", percent(all.sampled_rate.0)));
        }
        if let Some(sliced) = &self.sliced {
            facts.push(("measured in", format!("{} slices", sliced.slices.len())));
        }
        facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn print(&self, args: &Args, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.facts(args) {
            writeln!(out, "{name:<20} {value}")?;
        }
        writeln!(out, "\n{}", text_curve(&self.all, self.sliced.as_ref(), args).trim_end())?;
        for (name, histogram) in &self.volumes {
            writeln!(out, "\nvolume {name}\n{}", text_curve(histogram, None, args).trim_end())?;
        }
        Ok(())
    }
}

/// A curve as a table: powers of two, the sizes asked for, and the size at which it ends.
fn text_curve(histogram: &ReuseHistogram, sliced: Option<&SlicedHistogram>, args: &Args) -> String {
    let full = histogram.max_distance().map_or(1, |max| max + 1);
    let shift = args.block_size.shift();
    // Not below 1 MiB, where a curve is about the trace's last few requests.
    let first = (20u32.saturating_sub(shift)).min(full.ilog2());
    let mut sizes: Vec<u64> = (first..64).map(|s| 1 << s).take_while(|&s| s < full).collect();
    sizes.extend(asked(args).chain([full]));
    sizes.sort_unstable();
    sizes.dedup();
    let rows: Vec<Vec<String>> = sizes
        .into_iter()
        .map(|size| {
            let p = CurvePoint::at(histogram, size);
            let ratio = |value: f64, of: u64| match of {
                0 => "-".to_string(),
                _ => format!("{value:.4}"),
            };
            let writes = match forebay_locality::Distance::from(args.distance).measures_writes() {
                true => histogram.write.accesses(),
                false => 0,
            };
            let mut cells = vec![
                Size(size * args.block_size.bytes()).to_string()
                    + if size == full { " (all reuses)" } else { "" },
                ratio(p.miss_ratio, histogram.accesses()),
            ];
            if let Some(bounds) = sliced.and_then(|sliced| sliced.bounds(size)) {
                cells.push(format!("{:.4} to {:.4}", bounds.low, bounds.high));
            }
            cells.push(ratio(p.read_miss_ratio, histogram.read.accesses()));
            cells.push(ratio(p.write_miss_ratio, writes));
            cells
        })
        .collect();
    match sliced {
        None => table(&["cache size", "miss ratio", "of reads", "of writes"], &rows),
        Some(_) => {
            table(&["cache size", "miss ratio", "with 95 %", "of reads", "of writes"], &rows)
        }
    }
}

/// The sizes that the user asked for, in blocks.
fn asked(args: &Args) -> impl Iterator<Item = u64> + '_ {
    args.at.iter().map(|size| size.bytes() >> args.block_size.shift())
}

fn points(histogram: &ReuseHistogram, args: &Args) -> Vec<CurvePoint> {
    let mut points = MissRatioCurve::new(histogram, args.points.unwrap_or(POINTS)).points;
    points.extend(asked(args).map(|size| CurvePoint::at(histogram, size)));
    points.sort_unstable_by_key(|p| p.size_blocks);
    points.dedup_by_key(|p| p.size_blocks);
    points
}

#[derive(Serialize)]
struct Document {
    distance: &'static str,
    key: Key,
    block_size: u64,
    requests: u64,
    #[serde(flatten)]
    curve: Curve,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<Vec<VolumeCurve>>,
}

#[derive(Serialize)]
struct VolumeCurve {
    volume: String,
    #[serde(flatten)]
    curve: Curve,
}

#[derive(Serialize)]
struct Curve {
    accesses: u64,
    reads: u64,
    writes: u64,
    distinct_blocks: u64,
    /// In blocks; null without reuse.
    max_distance: Option<u64>,
    sampled_rate: f64,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    size_blocks: u64,
    miss_ratio: f64,
    /// At a confidence of 95 %, if measured in slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_ratio_bounds: Option<Interval>,
    read_miss_ratio: f64,
    write_miss_ratio: f64,
}

impl Curve {
    fn new(histogram: &ReuseHistogram, sliced: Option<&SlicedHistogram>, args: &Args) -> Self {
        let bounds = |size| sliced.and_then(|sliced| sliced.bounds(size));
        let point = |p: CurvePoint| Point {
            size_blocks: p.size_blocks,
            miss_ratio: p.miss_ratio,
            miss_ratio_bounds: bounds(p.size_blocks),
            read_miss_ratio: p.read_miss_ratio,
            write_miss_ratio: p.write_miss_ratio,
        };
        Self {
            accesses: histogram.accesses(),
            reads: histogram.read.accesses(),
            writes: histogram.write.accesses(),
            distinct_blocks: histogram.distinct_blocks,
            max_distance: histogram.max_distance(),
            sampled_rate: histogram.sampled_rate.0,
            points: points(histogram, args).into_iter().map(point).collect(),
        }
    }
}
