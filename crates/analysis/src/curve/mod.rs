//! How many blocks does a cache of each size miss?
//!
//! [`Question`] measures reuse distances, which give the whole curve of an LRU cache at once;
//! [`policies`] runs other replacement policies at some sizes.

pub mod policies;
mod sliced;

use std::thread;

use forebay_block::Op;
use forebay_locality::{
    ContentLocality, CurvePoint, Interval, LocalityOptions, MissRatioCurve, ReuseHistogram, Scope,
    SlicedHistogram, WorkloadHistograms, WorkloadLocality,
};
use forebay_trace::BlockContents;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::note::{tell_not_sampled, tell_without_data};
use crate::{AnalysisError, Columns, Described, Note, Observer, Traces};
use sliced::Sliced;

/// Default number of points of a curve.
pub const POINTS: usize = 200;
/// A sample of fewer blocks is too small for a slice; for a whole sample it is worth a note.
pub const SAMPLED_BLOCKS_MIN: u64 = 256;

/// How a cache identifies its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// By address, as in an ordinary cache.
    #[default]
    Sector,
    /// By content, as in a content-addressed cache, which stores identical blocks only once.
    Content,
}

/// The miss ratio of an LRU cache of every size.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload.
    pub traces: Traces,
    /// Which reuse distance to measure, for which blocks and volumes, and how to sample.
    pub options: LocalityOptions,
    /// How the cache identifies its blocks; content is measured for all blocks, without sampling.
    pub key: Key,
    /// Number of slices into which the blocks or the sample are divided. Threads measure the
    /// slices, and the spread of the slices gives bounds of the curve.
    pub slices: Option<usize>,
}

/// Reuse distances, and thereby the miss ratio at every size.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How the distances were measured.
    pub options: LocalityOptions,
    /// How the cache identifies its blocks.
    pub key: Key,
    /// Number of requests read.
    pub requests: u64,
    /// Reuse distances of all volumes together.
    pub all: ReuseHistogram,
    /// The slices from which `all` was merged, if there were any.
    pub sliced: Option<SlicedHistogram>,
    /// Reuse distances of each volume alone, with its name, if requested.
    pub volumes: Vec<(String, ReuseHistogram)>,
}

/// The result of the measurement.
enum Measured {
    Whole(WorkloadHistograms),
    Sliced(SlicedHistogram),
}

impl Question {
    /// A question about all blocks of 4 KiB together.
    pub fn new(traces: Traces) -> Self {
        let (options, key, slices) = (LocalityOptions::default(), Key::default(), None);
        Self { traces, options, key, slices }
    }

    /// Reads the traces, once.
    ///
    /// # Errors
    /// If the traces cannot be read, or not measured in this way, there is nothing to measure or
    /// nothing in the sample, contents are asked for but not known, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        let (described, measured) = match (self.key, self.slices) {
            (Key::Content, _) => self.contents(observer)?,
            (Key::Sector, None) => self.sectors(observer)?,
            (Key::Sector, Some(slices)) => self.slices(slices, observer)?,
        };
        measured.check_sample(&described, observer)?;
        Answer::new(self.options, self.key, measured, described)
    }

    fn sectors(&self, observer: &dyn Observer) -> Result<(Described, Measured), AnalysisError> {
        let mut workload = WorkloadLocality::new(self.options)?;
        let mut without_data = 0;
        let traces =
            self.traces.read_batches(observer, |batch, _| -> Result<(), AnalysisError> {
                let ops = batch.op.iter();
                without_data += ops.filter(|op| matches!(op, Op::Trim | Op::Flush)).count() as u64;
                Ok(workload.add_columns(&batch.columns())?)
            })?;
        tell_without_data(without_data, observer);
        Ok((traces, Measured::Whole(workload.finish()?)))
    }

    fn slices(
        &self,
        slices: usize,
        observer: &dyn Observer,
    ) -> Result<(Described, Measured), AnalysisError> {
        thread::scope(|scope| {
            let mut sliced = Sliced::new(scope, &self.options, slices)?;
            let mut without_data = 0;
            let traces = self.traces.read(observer, |request| {
                without_data += u64::from(matches!(request.op, Op::Trim | Op::Flush));
                sliced.add(request)
            })?;
            tell_without_data(without_data, observer);
            Ok((traces, Measured::Sliced(sliced.finish()?)))
        })
    }

    fn contents(&self, observer: &dyn Observer) -> Result<(Described, Measured), AnalysisError> {
        let LocalityOptions { block_size, distance, scope, .. } = self.options;
        let mut workload = ContentLocality::new(block_size, distance, scope)?;
        let (mut of_blocks, mut without_data, mut unknown) = (Vec::new(), 0, 0);
        let traces = self.traces.read_batches(observer, |batch, metadata| {
            let Some(info) = &metadata.hashes else {
                return Err(AnalysisError::NoHashes);
            };
            let contents = BlockContents::new(info, block_size);
            let unit_bytes = u64::from(info.unit_bytes);
            let contents = contents.ok_or(AnalysisError::HashUnits { unit_bytes })?;
            for i in 0..batch.len() {
                let record = batch.record(i);
                without_data += u64::from(matches!(record.request.op, Op::Trim | Op::Flush));
                contents.fill(&record, &mut of_blocks);
                unknown += of_blocks.iter().filter(|content| content.is_none()).count() as u64;
                workload.add(&record.request, &of_blocks)?;
            }
            Ok(())
        })?;
        tell_without_data(without_data, observer);
        if unknown > 0 {
            observer.note(Note::WithoutHash(unknown));
        }
        Ok((traces, Measured::Whole(workload.finish()?)))
    }
}

impl Measured {
    /// Rejects a sample without blocks, which says nothing, and notes samples with few blocks, also
    /// of single volumes.
    fn check_sample(
        &self,
        described: &Described,
        observer: &dyn Observer,
    ) -> Result<(), AnalysisError> {
        let (all, volumes) = match self {
            Self::Whole(histograms) => (histograms.all.as_ref(), Some(&histograms.volumes)),
            Self::Sliced(sliced) => (Some(&sliced.merged), None),
        };
        if let Some(all) = all {
            if all.is_unsampled() {
                return Err(AnalysisError::EmptySample);
            }
            if is_scarce(all) {
                observer.note(Note::FewSampled(all.sampled_blocks()));
            }
            for (op, counts) in [(Op::Read, &all.read), (Op::Write, &all.write)] {
                tell_not_sampled(op, counts.accesses(), counts.is_unsampled, observer);
            }
        }
        let names = |is: &dyn Fn(&ReuseHistogram) -> bool| -> Vec<String> {
            let found = volumes.into_iter().flatten().filter(|(_, own)| is(own));
            found.map(|(volume, _)| described.volume_name(*volume)).collect()
        };
        let unsampled = names(&ReuseHistogram::is_unsampled);
        if !unsampled.is_empty() {
            observer.note(Note::NotSampled(unsampled));
        }
        let few = names(&|own| is_scarce(own) && !own.is_unsampled());
        if !few.is_empty() {
            observer.note(Note::FewSampledOf(few));
        }
        for op in [Op::Read, Op::Write] {
            let counts = |own: &ReuseHistogram| {
                let known = Some(own).filter(|own| !own.is_unsampled());
                known.and_then(|own| own.counts(op)).filter(|counts| counts.is_unsampled).cloned()
            };
            let volumes_without = names(&|own| counts(own).is_some());
            if !volumes_without.is_empty() {
                let accesses = volumes.into_iter().flatten().filter_map(|(_, own)| counts(own));
                let accesses = accesses.map(|counts| counts.accesses()).sum();
                observer.note(Note::OpNotSampled { op, accesses, volumes: volumes_without });
            }
        }
        Ok(())
    }
}

/// Whether a sample has too few blocks for a reliable curve.
fn is_scarce(histogram: &ReuseHistogram) -> bool {
    let is_sample = histogram.sampled_rate.0 < 1.0 && histogram.accesses() > 0;
    is_sample && histogram.sampled_blocks() < SAMPLED_BLOCKS_MIN
}

impl Answer {
    /// An answer from slices that were measured elsewhere, in any number of processes, and merged.
    ///
    /// # Errors
    /// If the slices have no accesses, or no block in their sample.
    pub fn of_slices(
        options: LocalityOptions,
        requests: u64,
        merged: SlicedHistogram,
        observer: &dyn Observer,
    ) -> Result<Self, AnalysisError> {
        let measured = Measured::Sliced(merged);
        let described = Described { requests, ..Described::default() };
        measured.check_sample(&described, observer)?;
        Self::new(options, Key::Sector, measured, described)
    }

    fn new(
        options: LocalityOptions,
        key: Key,
        measured: Measured,
        described: Described,
    ) -> Result<Self, AnalysisError> {
        let (histograms, sliced) = match measured {
            Measured::Whole(histograms) => (histograms, None),
            Measured::Sliced(sliced) => (WorkloadHistograms::default(), Some(sliced)),
        };
        let merged = || sliced.as_ref().map(|sliced| sliced.merged.clone());
        let all = histograms.all.or_else(merged).unwrap_or_default();
        if all.accesses() == 0 {
            return Err(AnalysisError::NoAccesses);
        }
        let volumes = histograms.volumes.into_iter();
        let volumes = volumes.map(|(v, h)| (described.volume_name(v), h)).collect();
        Ok(Self { options, key, requests: described.requests, all, sliced, volumes })
    }

    /// The JSON document: curves of at most `points_max` points, plus points at the sizes
    /// `at_blocks`.
    pub fn document(&self, points_max: usize, at_blocks: &[u64]) -> Document {
        let curve = |histogram: &ReuseHistogram, sliced: Option<&SlicedHistogram>| {
            Curve::new(histogram, sliced, points(histogram, points_max, at_blocks))
        };
        let volume =
            |(name, h): &(String, _)| VolumeCurve { volume: name.clone(), curve: curve(h, None) };
        let volumes = self.volumes.iter().map(volume);
        Document {
            distance: self.options.distance.name(),
            key: self.key,
            block_size: self.options.block_size.bytes(),
            requests: self.requests,
            curve: curve(&self.all, self.sliced.as_ref()),
            volumes: (self.options.scope == Scope::Both).then(|| volumes.collect()),
        }
    }

    /// Bounds of the miss ratio of all volumes at a size; `None` unless it was measured in slices.
    pub fn bounds(&self, size_blocks: u64) -> Option<Interval> {
        self.sliced.as_ref()?.bounds(size_blocks)
    }

    /// A row for every step of every curve.
    pub fn rows(&self) -> Columns {
        let row = |(volume, h, size): (_, &ReuseHistogram, u64)| -> Row<'_> {
            let counts = Counts {
                volume,
                size_bytes: size * self.options.block_size.bytes(),
                read_hits: h.hits(Op::Read, size),
                write_hits: h.hits(Op::Write, size),
                reads: h.read.accesses(),
                writes: h.write.accesses(),
            };
            (counts, Point::new(CurvePoint::at(h, size), self.bounds(size)))
        };
        let volumes = self.volumes.iter().map(|(name, h)| (name.as_str(), h));
        let all = std::iter::once(("", &self.all)).chain(volumes);
        Columns::from_rows(
            all.flat_map(|(name, h)| h.breakpoints().map(move |size| row((name, h, size)))),
        )
    }
}

/// At most `points_max` points of a curve, plus those at the sizes `at_blocks`.
pub fn points(histogram: &ReuseHistogram, points_max: usize, at_blocks: &[u64]) -> Vec<CurvePoint> {
    let mut points = MissRatioCurve::new(histogram, points_max).points;
    points.extend(at_blocks.iter().map(|&size| CurvePoint::at(histogram, size)));
    points.sort_unstable_by_key(|p| p.size_blocks);
    points.dedup_by_key(|p| p.size_blocks);
    points
}

/// The JSON document.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct Document {
    /// Which reuse distance was measured.
    pub distance: &'static str,
    /// How the cache looks up blocks.
    pub key: Key,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Requests in the traces.
    pub requests: u64,
    /// All volumes together.
    #[serde(flatten)]
    pub curve: Curve,
    /// With `--per-volume`, the curve of each volume alone; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeCurve>>,
}

/// The curve of a volume.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct VolumeCurve {
    /// Name of the volume.
    pub volume: String,
    /// The volume's curve, with a separate cache for the volume.
    #[serde(flatten)]
    pub curve: Curve,
}

/// A miss-ratio curve.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct Curve {
    /// Block accesses; requests with `--request-level`.
    pub accesses: u64,
    /// Accesses that are reads.
    pub reads: u64,
    /// Accesses that are writes.
    pub writes: u64,
    /// Number of distinct blocks; an estimate if blocks were sampled. Null if the sample contains
    /// no blocks of the volume.
    pub distinct_blocks: Option<u64>,
    /// The largest reuse distance in blocks; a cache that is one block larger gets all possible
    /// hits. Null if no block is reused, or if the sample contains no blocks of the volume.
    pub max_distance: Option<u64>,
    /// Share of blocks sampled.
    pub sampled_rate: f64,
    /// Points of the curve by ascending size. Null if the sample contains no blocks of the volume.
    pub points: Option<Vec<Point>>,
}

/// A point of a curve. Ratios are of block accesses.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, JsonSchema)]
pub struct Point {
    /// Cache size in blocks.
    pub size_blocks: u64,
    /// Misses divided by accesses; 0 if there are no accesses.
    pub miss_ratio: f64,
    /// With `--slices`, the 95 % confidence interval of `miss_ratio`; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_ratio_bounds: Option<Interval>,
    /// Read misses divided by reads; 0 if there are no reads.
    pub read_miss_ratio: f64,
    /// Write misses divided by writes; 0 if there are no writes.
    pub write_miss_ratio: f64,
}

/// A row of `--parquet`.
pub type Row<'a> = (Counts<'a>, Point);

/// The columns of a row that come before the point.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Counts<'a> {
    /// Name of the volume; empty for all volumes together.
    pub volume: &'a str,
    /// Cache size in bytes.
    pub size_bytes: u64,
    /// Reads that hit.
    pub read_hits: u64,
    /// Writes that hit.
    pub write_hits: u64,
    /// All reads.
    pub reads: u64,
    /// All writes.
    pub writes: u64,
}

impl Point {
    fn new(point: CurvePoint, miss_ratio_bounds: Option<Interval>) -> Self {
        let CurvePoint { size_blocks, miss_ratio, read_miss_ratio, write_miss_ratio } = point;
        Self { size_blocks, miss_ratio, miss_ratio_bounds, read_miss_ratio, write_miss_ratio }
    }
}

impl Curve {
    fn new(
        histogram: &ReuseHistogram,
        sliced: Option<&SlicedHistogram>,
        points: Vec<CurvePoint>,
    ) -> Self {
        let bounds = |size| sliced.and_then(|sliced| sliced.bounds(size));
        let point = |p: CurvePoint| Point::new(p, bounds(p.size_blocks));
        let is_known = !histogram.is_unsampled();
        Self {
            accesses: histogram.accesses(),
            reads: histogram.read.accesses(),
            writes: histogram.write.accesses(),
            distinct_blocks: is_known.then_some(histogram.distinct_blocks),
            max_distance: histogram.max_distance(),
            sampled_rate: histogram.sampled_rate.0,
            points: is_known.then(|| points.into_iter().map(point).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_locality::Sampling;
    use std::fmt::Write;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Noting(Arc<AtomicBool>, Mutex<Vec<Note>>);

    impl Observer for Noting {
        fn stop_flag(&self) -> &Arc<AtomicBool> {
            &self.0
        }

        fn note(&self, note: Note) {
            self.1.lock().unwrap().push(note);
        }
    }

    #[test]
    fn a_volume_without_a_sampled_block_has_no_curve_and_notes_say_what_is_missing() {
        let mut text = "time_ns,volume,op,offset,length\n".to_owned();
        let mut read = |volume: &str, blocks: u64| {
            for block in 0..blocks {
                writeln!(text, "0,{volume},read,{},4096", block * 4096).unwrap();
            }
        };
        read("large", 60_000);
        read("few", 5_000);
        read("tiny", 3);
        // The only write to this volume is not in the sample.
        text += "0,large,write,0,4096\n";
        let trace = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        std::fs::write(trace.path(), text).unwrap();
        let mut question = Question::new(trace.path().into());
        question.options.scope = Scope::Both;
        question.options.sampling = Sampling::Rate(0.01);
        let observer = Noting::default();
        let answer = question.ask(&observer).unwrap();
        let document = answer.document(10, &[]);
        let volumes = document.volumes.unwrap();
        let curve = |name: &str| &volumes.iter().find(|v| v.volume == name).unwrap().curve;
        for name in ["large", "few"] {
            let points = curve(name).points.as_ref().unwrap();
            assert!(points.iter().all(|point| point.read_miss_ratio > 0.9), "{name}: {points:?}");
        }
        assert_eq!(curve("large").points.as_ref().unwrap()[0].write_miss_ratio, 1.0);
        let tiny = curve("tiny");
        assert_eq!((tiny.accesses, tiny.distinct_blocks, tiny.max_distance), (3, None, None));
        assert!(tiny.points.is_none());
        let (mut none, mut few, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for note in observer.1.into_inner().unwrap() {
            match note {
                Note::NotSampled(volumes) => none = volumes,
                Note::FewSampledOf(volumes) => few = volumes,
                Note::OpNotSampled { op: Op::Write, accesses: 1, volumes } => writes.push(volumes),
                other => panic!("{other:?}"),
            }
        }
        let large = ["large".to_owned()];
        assert_eq!((none, few), (vec!["tiny".to_owned()], vec!["few".to_owned()]));
        assert_eq!(writes, [vec![], large.to_vec()]);
    }
}
