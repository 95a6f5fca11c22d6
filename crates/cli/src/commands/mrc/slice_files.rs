//! Measures one slice of a workload per process, and merges all slices.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use forebay_analysis::curve::Answer;
use forebay_analysis::{AnalysisError, Note, Observer};
use forebay_block::{BlockSize, Op};
use forebay_locality::{
    Accesses, LocalityOptions, Slice, SliceBatch, SliceCounts, Slicer, merge_slice_counts,
};
use forebay_results::TraceHasher;
use serde::{Deserialize, Serialize};

use super::args::{Args, Distance};
use crate::context::Context;
use crate::error::CliError;

/// The version of [`SliceFile`]. Files of version 1 do not identify the requests that were
/// measured.
const VERSION: u32 = 2;

/// What `--slice` prints and `--merge` reads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SliceFile {
    forebay_slice: u32,
    /// Number of the slice, from 1 to `of`.
    slice: usize,
    of: usize,
    #[serde(flatten)]
    workload: Workload,
    counted: SliceCounts,
}

/// Properties that all slices of one curve share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Workload {
    distance: Distance,
    block_size: u64,
    requests: u64,
    /// Hash of all requests, in order ([`TraceHasher`]). It keeps slices of different traces from
    /// being merged.
    #[serde(default)]
    xxh3: String,
    accesses: Accesses,
}

/// Measures slice `number` (counted from 1) of `slices`, and prints the counts.
pub fn measure(
    args: &Args,
    options: &LocalityOptions,
    (number, slices): (usize, usize),
    ctx: &Context,
) -> Result<(), CliError> {
    if number > slices {
        let what = format_args!("slice {number} does not exist: there are only {slices} slices");
        return Err(CliError::usage(what).next(format_args!("use a number from 1 to {slices}")));
    }
    let slicer = Slicer::new(options.block_size, slices, options.sampling)?;
    let mut slicer = slicer.only(number - 1);
    let mut slice = Slice::new(options.distance, slices, options.sampling)?;
    let mut measure = |_: usize, batch: SliceBatch| slice.measure(&batch);
    let (mut without_data, mut hasher) = (0, TraceHasher::new());
    let traces = args.traces.source().read(ctx, |request| {
        without_data += u64::from(matches!(request.op, Op::Trim | Op::Flush));
        hasher.add(request);
        Ok::<_, CliError>(slicer.add(request, &mut measure)?)
    })?;
    slicer.finish(&mut measure)?;
    if without_data > 0 {
        Observer::note(ctx, Note::WithoutData(without_data));
    }
    let accesses = slicer.accesses();
    if accesses == Accesses::default() {
        return Err(args.refused(AnalysisError::NoAccesses));
    }
    let document = SliceFile {
        forebay_slice: VERSION,
        slice: number,
        of: slices,
        workload: Workload {
            distance: args.distance,
            block_size: args.block_size.bytes(),
            requests: traces.requests,
            xxh3: hasher.identity("").xxh3,
            accesses,
        },
        counted: slice.into_counts(),
    };
    args.output.document.emit(&document, |out| {
        serde_json::to_writer(&mut *out, &document)?;
        writeln!(out)
    })
}

/// Merges the slice files named in the arguments; sets `args.distance` and `args.block_size` to
/// those of the slices.
pub fn merge(args: &mut Args, options: LocalityOptions, ctx: &Context) -> Result<Answer, CliError> {
    let next = "pass each slice of the trace exactly once; `forebay mrc TRACE --slices N --slice \
                K` prints slice K";
    let wrong = |what: String| CliError::usage(what).next(next);
    let mut workload: Option<Workload> = None;
    let mut found: Vec<Option<SliceCounts>> = Vec::new();
    for path in &args.traces.traces {
        let file = read(path)?;
        let name = path.display();
        if let Some(first) = &workload
            && (*first != file.workload || found.len() != file.of)
        {
            let same_requests = Workload { xxh3: first.xxh3.clone(), ..file.workload.clone() };
            return Err(wrong(match same_requests == *first && found.len() == file.of {
                true => format!("{name} was measured on different requests from the other files"),
                false => format!("{name} was measured with different options from the other files"),
            }));
        }
        workload = Some(file.workload);
        found.resize(file.of, None);
        let place = file.slice.checked_sub(1).and_then(|place| found.get_mut(place));
        let Some(place) = place else {
            return Err(wrong(format!(
                "the slice number in {name} is not between 1 and {}",
                file.of
            )));
        };
        if place.replace(file.counted).is_some() {
            return Err(wrong(format!(
                "slice {} is given twice; the second copy is {name}",
                file.slice
            )));
        }
    }
    let slices = found.len();
    let counted: Vec<SliceCounts> = found.into_iter().flatten().collect();
    let Some(workload) = workload.filter(|_| counted.len() == slices) else {
        return Err(wrong(format!("only {} of {slices} slices are given", counted.len())));
    };
    args.distance = workload.distance;
    args.block_size = BlockSize::new(workload.block_size)?;
    let distance = forebay_locality::Distance::from(workload.distance);
    let merged = merge_slice_counts(distance, workload.accesses, counted);
    let options = LocalityOptions { block_size: args.block_size, distance, ..options };
    let answer = Answer::of_slices(options, workload.requests, merged, ctx);
    answer.map_err(|error| args.refused(error))
}

fn read(path: &Path) -> Result<SliceFile, CliError> {
    let file = File::open(path).map_err(|error| CliError::file("cannot open", path, error))?;
    let file: SliceFile = serde_json::from_reader(BufReader::new(file)).map_err(|error| {
        CliError::file("not a slice file:", path, error).next(
            "write a slice file with `forebay mrc TRACE --slices N --slice K`, and pass the files \
             of all slices",
        )
    })?;
    if file.forebay_slice != VERSION || !(2..=256).contains(&file.of) {
        let what = format!("this version cannot read the slice file {}", path.display());
        return Err(CliError::failed(what).next("measure the slice again with this version"));
    }
    Ok(file)
}
