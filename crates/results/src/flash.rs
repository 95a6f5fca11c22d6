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
    /// Records written.
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
            records: log.entries,
            batches: log.batches,
            syncs: log.syncs,
            regions_reclaimed: log.regions_reclaimed,
        }
    }
}
