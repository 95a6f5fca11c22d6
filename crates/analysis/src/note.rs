//! Notes about an answer that its reader should know, as data; the caller words them.

use std::path::PathBuf;

use forebay_block::{Nanos, Op};
use forebay_plan::BoxError;
use forebay_simulate::SimulateError;
use forebay_trace::{ShadowedNumber, TraceReader};

use crate::Observer;

/// A note about something doubtful, omitted or assumed.
#[derive(Debug)]
pub enum Note {
    /// A doubt about a trace, in the words of its reader.
    Doubt(String),
    /// Traces, by name, whose format does not record operations: all their requests count as reads.
    WithoutOperations(Vec<String>),
    /// Lines or records that could not be read were skipped.
    BadLines(u64),
    /// Requests were out of order and count as simultaneous.
    OutOfOrder(u64),
    /// The merged traces keep their dates, and this longest time between the end of one and the
    /// start of the next exceeds the total running time of all.
    Lull(Nanos),
    /// A volume was selected by a name that is also the number of another volume.
    ShadowedNumber(ShadowedNumber),
    /// A purchase was evaluated by formulas because the simulator has no such cache.
    NotSimulated {
        /// The purchase: sizes and devices.
        purchase: String,
        /// The reason; `None` if the purchase has more than two tiers.
        reason: Option<BoxError>,
    },
    /// A purchase was not replayed because no such cache can be built.
    NotReplayed {
        /// The purchase: sizes and devices.
        purchase: String,
        /// The reason.
        reason: BoxError,
    },
    /// The results of a trace were taken from the file of an earlier study.
    Resumed(PathBuf),
    /// Number of trims and flushes that were ignored because they are not accesses.
    WithoutData(u64),
    /// Number of block accesses without a content hash; their content counts as equal to no other.
    WithoutHash(u64),
    /// The sample has only this many blocks, so the result may be inaccurate.
    FewSampled(u64),
    /// Volumes, by name, with so few blocks in the sample that their curves may be inaccurate.
    FewSampledOf(Vec<String>),
    /// Volumes, by name, without a block in the sample.
    NotSampled(Vec<String>),
    /// No access of this kind is in the sample, so all of them count as misses.
    OpNotSampled {
        /// Reads or writes.
        op: Op,
        /// Number of these accesses.
        accesses: u64,
        /// The volumes, by name; empty for the whole workload.
        volumes: Vec<String>,
    },
    /// Sizes of memory were left out because the sample contains fewer than
    /// [`BLOCKS_MIN`](crate::miniature::BLOCKS_MIN) of their blocks.
    TooSmall {
        /// The sizes in bytes.
        sizes: Vec<u64>,
        /// The share of the blocks in the sample.
        rate: f64,
    },
    /// All requests of a simulation have the same time, so they arrive simultaneously.
    WithoutTimes,
    /// No miniature of the flash tier can be built.
    FlashTooSmall {
        /// Size of the flash tier.
        flash_bytes: u64,
        /// The reason.
        reason: SimulateError,
    },
}

impl Note {
    /// The notes that follow from what a reader of traces has counted.
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

/// Notes the number of requests that access no data, if there are any.
pub(crate) fn tell_without_data(requests: u64, observer: &dyn Observer) {
    if requests > 0 {
        observer.note(Note::WithoutData(requests));
    }
}

/// Notes that the sample contains no access of this kind, if the workload has any.
pub(crate) fn tell_not_sampled(op: Op, accesses: u64, is_unsampled: bool, observer: &dyn Observer) {
    if is_unsampled && accesses > 0 {
        observer.note(Note::OpNotSampled { op, accesses, volumes: Vec::new() });
    }
}

/// Notes the sizes of memory, in bytes, that have too few blocks in the sample, if there are any.
pub(crate) fn tell_too_small(sizes: Vec<u64>, rate: f64, observer: &dyn Observer) {
    if !sizes.is_empty() {
        observer.note(Note::TooSmall { sizes, rate });
    }
}
