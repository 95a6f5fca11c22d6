//! Samples of a trace that keep the shape of its requests (BlkSample).
//!
//! Three steps. [`Sampler`] keeps the requests to a share of all **regions**, runs of 4 KiB
//! pages of a size that is a power of two; which ones, a hash decides, so that every access to a
//! region is in the sample or none is. [`reduce`] then removes further regions, those first that
//! bring the sample's mean features closest to the full trace's, by [`RegionTable`], which knows
//! what each removal changes without looking at the trace again. [`Filter`] writes what is left.
//!
//! A request of a sample is a run of kept regions of a request of the trace: a request may become
//! several. Each carries the **gap** between the request it comes of and the one before that in
//! the full trace, since gaps between the requests of a sample are longer by the rate.
//!
//! Source: Bhandari 2024, chapter 5 (Algorithms 2 to 4), with these corrections: the missing
//! bytes at a request's end are `-end mod size`; the neighbours of a removed region change
//! independently of each other; a region's bytes go by its own size, misalignment by the page.

mod filter;
mod moments;
mod nearest;
mod reduce;
mod regions;
mod spatial;

pub use filter::{Filter, RegionSet};
pub use moments::{FEATURES, FeatureError, Moments, OpMoments, Quantiles, mean_error};
pub use reduce::{Reduction, Step, reduce};
pub use regions::{RegionKey, RegionTable};
pub use spatial::{BITS_MAX, SampleSpec, Sampler};

use forebay_block::Request;

/// Bytes of a page: regions are whole pages, and misalignment is against them.
pub const PAGE_BYTES: u64 = 4096;

/// Calls `each` with the byte range of every run of regions of a request for which `keep` holds.
fn runs(
    request: &Request,
    region_bytes: u64,
    mut keep: impl FnMut(RegionKey) -> bool,
    mut each: impl FnMut(u64, u64),
) {
    let end = request.offset + request.length;
    let mut begun = None;
    let mut start = request.offset;
    while start < end {
        let region = start / region_bytes;
        let next = end.min((region + 1).saturating_mul(region_bytes));
        if keep(RegionKey { volume: request.volume, region }) {
            begun.get_or_insert(start);
        } else if let Some(first) = begun.take() {
            each(first, start - first);
        }
        start = next;
    }
    if let Some(first) = begun {
        each(first, end - first);
    }
}
