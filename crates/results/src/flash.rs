//! The flash tier.

use forebay_flash::LogStats;
use serde::Serialize;

/// The flash tier: at the end of a run, or of a server now.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct FlashResult {
    /// Regions.
    pub regions: u32,
    /// Share of them in use.
    pub utilisation: f64,
    /// Bytes written for each byte of payload.
    pub write_amplification: f64,
    /// Bytes of blocks written, without headers and padding.
    pub payload_bytes: u64,
    /// Records written; in the layout slots also what its journal says of records that were there.
    pub records: u64,
    /// Batches they were written in.
    pub batches: u64,
    /// Syncs.
    pub syncs: u64,
    /// Regions reclaimed.
    pub regions_reclaimed: u64,
}

impl From<&LogStats> for FlashResult {
    fn from(log: &LogStats) -> Self {
        FlashResult {
            regions: log.regions_total,
            utilisation: log.utilisation(),
            write_amplification: log.write_amplification(),
            payload_bytes: log.payload_bytes,
            records: log.entries,
            batches: log.batches,
            syncs: log.syncs,
            regions_reclaimed: log.regions_reclaimed,
        }
    }
}
