//! What the reader of an answer should know, as data; the caller finds the words.

use std::path::PathBuf;

use forebay_block::{Nanos, Op};
use forebay_plan::BoxError;
use forebay_simulate::SimulateError;
use forebay_trace::{ShadowedNumber, TraceReader};

use crate::Observer;

/// Something doubtful, left out or assumed.
#[derive(Debug)]
pub enum Note {
    /// What is doubtful about a trace, as its reader says.
    Doubt(String),
    /// Traces, by name, whose format records no operations: all their requests count as reads.
    WithoutOperations(Vec<String>),
    /// Lines or records that could not be read were skipped.
    BadLines(u64),
    /// Requests came out of order and count as simultaneous.
    OutOfOrder(u64),
    /// The traces keep their dates, and for this long, longer than all of them run, none does.
    Lull(Nanos),
    /// A volume was chosen by a name that is also the number of another.
    ShadowedNumber(ShadowedNumber),
    /// A purchase was judged by formulas, since there is no such cache to simulate.
    NotSimulated {
        /// The purchase: sizes and devices.
        purchase: String,
        /// Why; none where it has more than two tiers.
        reason: Option<BoxError>,
    },
    /// There is no such cache to replay against.
    NotReplayed {
        /// The purchase: sizes and devices.
        purchase: String,
        /// Why.
        reason: BoxError,
    },
    /// The results of a trace were taken from the file of an earlier study.
    Resumed(PathBuf),
    /// Number of trims and flushes that were left out, because they are no accesses.
    WithoutData(u64),
    /// Number of block accesses without a content hash; their content counts as equal to no other.
    WithoutHash(u64),
    /// The sample has so few blocks that it may be far off.
    FewSampled(u64),
    /// Volumes, by name, of which so few blocks are in the sample that their curves may be far off.
    FewSampledOf(Vec<String>),
    /// Volumes, by name, of which no block is in the sample.
    NotSampled(Vec<String>),
    /// No access of this kind is in the sample: all count as misses.
    OpNotSampled {
        /// Reads or writes.
        op: Op,
        /// How many there are.
        accesses: u64,
        /// The volumes, by name; empty if the whole workload is meant.
        volumes: Vec<String>,
    },
    /// Sizes of memory were left out: fewer than [`BLOCKS_MIN`](crate::miniature::BLOCKS_MIN)
    /// blocks of them are in the sample.
    TooSmall {
        /// In bytes.
        sizes: Vec<u64>,
        /// The share of the blocks that is looked at.
        rate: f64,
    },
    /// No request of a simulation has a time, so all arrived at once.
    WithoutTimes,
    /// There is no miniature of a flash tier.
    FlashTooSmall {
        /// Its size.
        flash_bytes: u64,
        /// Why.
        reason: SimulateError,
    },
}

impl Note {
    /// What a reader of traces has met.
    pub fn from_reader(reader: &(impl TraceReader + ?Sized)) -> Vec<Self> {
        let counters = reader.counters();
        let shadowed = reader.shadowed_numbers().into_iter().map(Self::ShadowedNumber);
        let bad = Some(Self::BadLines(counters.bad)).filter(|_| counters.bad > 0);
        let late = Some(Self::OutOfOrder(counters.out_of_order));
        let late = late.filter(|_| counters.out_of_order > 0);
        let lull = Some(Self::Lull(Nanos(counters.lull_ns))).filter(|_| counters.lull_ns > 0);
        bad.into_iter().chain(late).chain(lull).chain(shadowed).collect()
    }
}

/// Tells how many requests access nothing.
pub(crate) fn tell_without_data(requests: u64, observer: &dyn Observer) {
    if requests > 0 {
        observer.note(Note::WithoutData(requests));
    }
}

/// Tells that accesses of this kind of the whole workload are not in the sample, if so.
pub(crate) fn tell_not_sampled(op: Op, accesses: u64, is_unsampled: bool, observer: &dyn Observer) {
    if is_unsampled && accesses > 0 {
        observer.note(Note::OpNotSampled { op, accesses, volumes: Vec::new() });
    }
}

/// Tells which sizes of memory, in bytes, have too few blocks in the sample.
pub(crate) fn tell_too_small(sizes: Vec<u64>, rate: f64, observer: &dyn Observer) {
    if !sizes.is_empty() {
        observer.note(Note::TooSmall { sizes, rate });
    }
}
