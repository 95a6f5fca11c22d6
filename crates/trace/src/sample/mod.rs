//! Samples of a trace that keep the shape of its requests (BlkSample).
//!
//! There are three steps. [`Sampler`] keeps the requests to a share of all **regions**: runs of
//! 4 KiB pages whose size is a power of two. A hash selects the regions, so that either every
//! access to a region is in the sample or none. [`reduce`] then removes further regions, at each
//! step the one whose removal brings the sample's mean features closest to those of the full trace.
//! It uses [`RegionTable`], which knows what each removal changes without reading the trace again.
//! [`Filter`] writes what is left.
//!
//! A request of a sample is a run of kept regions of a request of the full trace, so one request
//! may become several. Each carries the **gap** between its original request and the predecessor of
//! that request in the full trace, because gaps between the requests of a sample are longer by the
//! factor 1 / rate.
//!
//! Source: Bhandari 2024, chapter 5 (Algorithms 2 to 4), with these corrections: the missing bytes
//! at the end of a request are `-end mod size`; the neighbours of a removed region change
//! independently of each other; the bytes of a region are counted by the region size, misalignment
//! by the page size.

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

/// Bytes of a page. Regions consist of whole pages, and misalignment is measured against pages.
pub const PAGE_BYTES: u64 = 4096;

/// Calls `each` with the offset and the length of every run of regions of a request for which
/// `keep` returns true.
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
