//! Results of the flash tier.

use forebay_flash::LogStats;
use schemars::JsonSchema;
use serde::Serialize;

/// Results of the flash tier at the end of a run, or so far in a server.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct FlashResult {
    /// Number of regions of the log; in the slots layout, of the journal.
    pub regions: u32,
    /// Share of these regions in use. In the slots layout, this does not say how many blocks flash holds.
    pub utilisation: f64,
    /// Bytes written per byte of block data that entered flash for the first time.
    pub write_amplification: f64,
    /// Bytes of block data written, excluding headers and padding.
    pub payload_bytes: u64,
    /// Records written. In the slots layout, this includes journal entries about records that were already on
    /// flash.
    pub records: u64,
    /// Batches of records written.
    pub batches: u64,
    /// Syncs of flash.
    pub syncs: u64,
    /// Regions reclaimed.
    pub regions_reclaimed: u64,
    /// The part of `payload_bytes` that was already on flash: records that the log wrote again when it
    /// reclaimed their region.
    pub carried_bytes: u64,
    /// Bytes of headers and directories written.
    pub header_bytes: u64,
    /// Bytes of superblocks written.
    pub superblock_bytes: u64,
    /// Bytes left unwritten at the ends of regions.
    pub skipped_bytes: u64,
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
            carried_bytes: log.carried_bytes,
            header_bytes: log.header_pages * u64::from(log.page_size),
            skipped_bytes: log.pages_skipped * u64::from(log.page_size),
            superblock_bytes: log.superblock_pages * u64::from(log.page_size),
        }
    }
}
