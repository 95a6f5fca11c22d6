//! The inputs of the log, and the results of a start.

use crate::binding::Binding;
use crate::granules::Granules;
use crate::identity::TierId;
use crate::key::{BlockKey, Position};
use crate::layout::Layout;
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};
use crate::stamp::{Older, StoreStamp};
use core::fmt;
use forebay_block::Volume;
use forebay_effect::{Frame, IoError};

/// What recovery does when durable data are missing and the missing records are not all [known by
/// name](Damage::is_by_name).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDamage {
    /// Write nothing and end with [`StartEvent::Failed`](crate::StartEvent::Failed); the device is
    /// unchanged.
    #[default]
    Refuse,
    /// Continue with the rest; [`RecoveryReport::damage`] says what is missing. Only tests and the
    /// fuzz target use it: older records could take the place of the lost ones. ([`Start::Check`]
    /// reads on after damage in any case.)
    Report,
}

/// Limits and settings of this run. None of them is stored on flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Number of DRAM frames of the cache, and so of appends that can wait at once. The queues are
    /// allocated for this number.
    pub frames: u32,
    /// Log layout: reclaiming starts when fewer regions than this are free or about to be, not
    /// counting those [kept for carried records](crate::Geometry::regions_kept). (The slots layout
    /// always uses 2.)
    pub reserve_regions: u32,
    /// Largest number of regions being reclaimed at once. The cache cleans one region at a time and
    /// uses the default of 1; only tests of the log use more.
    pub reclaims_max: u32,
    /// What recovery does about damage. The cache uses the default.
    pub on_damage: OnDamage,
    /// Largest number of pages that recovery reads at once when it verifies payloads.
    pub recovery_chunk_pages: u32,
}

impl Options {
    /// Default [`recovery_chunk_pages`](Options::recovery_chunk_pages).
    pub const RECOVERY_CHUNK_PAGES: u32 = 256;
}

impl Default for Options {
    fn default() -> Self {
        Options {
            frames: 1024,
            reserve_regions: 2,
            reclaims_max: 1,
            on_damage: OnDamage::Refuse,
            recovery_chunk_pages: Options::RECOVERY_CHUNK_PAGES,
        }
    }
}

/// How to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// Write an empty log. The old contents are lost once `Ready` is emitted.
    Format {
        /// Random UUID of the new log.
        uuid: TierId,
        /// Volumes bound from the start.
        bindings: Vec<Binding>,
    },
    /// Recover the log on the device and continue after it. It must have been formatted with this
    /// run's geometry ([`Geometry::as_stored`]); otherwise it is refused ([`LogError::Geometry`]).
    ///
    /// [`Geometry::as_stored`]: crate::Geometry::as_stored
    Recover {
        /// Volumes whose backing stores were changed without the log. Recovery returns their clean
        /// records as tombstones and ignores them permanently.
        changed: Vec<Volume>,
        /// Whether the caller drops all clean records and then replaces the seals before it serves
        /// any request. Until then the seals stay as they are, and a store that is an older copy of
        /// itself is accepted. It remains an older copy.
        drop_clean: bool,
        /// The stamps of the backing stores that keep one.
        stores: Vec<StoreStamp>,
        /// Size of each volume in bytes, indexed by volume number. If a volume's former size is
        /// [outdated by this](Binding::is_outdated_by), its clean records are permanently ignored.
        sizes: Vec<u64>,
    },
    /// Read everything, verify every payload, write nothing. Ends with `Ready`, whose report
    /// lists the damage, or `Failed`; the log accepts no appends afterwards.
    Check,
}

impl Start {
    /// [`Start::Recover`] with stores that only this log has changed.
    pub const RECOVER: Start = Start::Recover {
        changed: Vec::new(),
        drop_clean: false,
        stores: Vec::new(),
        sizes: Vec::new(),
    };
}

/// A record to append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append {
    /// Chosen by the caller and repeated in the event.
    pub ticket: u64,
    /// The block.
    pub key: BlockKey,
    /// Valid granules; only these are written. If there are none, the frame is not read. If no
    /// granule is dirty either, the record is a *tombstone*: it voids every older record of the
    /// block, and its position is [`Position::NONE`].
    pub valid: Granules,
    /// Dirty granules. They must be *all* dirty granules of the block: a newer record replaces an
    /// older one as a whole. Those that are not valid are permanently *lost*: they can be read
    /// neither here nor from the backing store (log layout only). A granule appended as clean means
    /// that the backing store durably holds the same data, or that the block's extent is active.
    pub dirty: Granules,
    /// The block's frame in DRAM; pinned until the event.
    pub frame: Frame,
    /// Whether a caller waits for the record. If so, its batch is closed as soon as no other batch
    /// is being written.
    pub urgent: bool,
}

/// A record found by recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The block.
    pub key: BlockKey,
    /// Where its payload starts.
    pub position: Position,
    /// Valid granules; they follow one another in the payload.
    pub valid: Granules,
    /// Dirty granules (none if the record has been declared clean since). Those that are not valid
    /// are lost.
    pub dirty: Granules,
    /// CRC-32C of the payload, continued from `Log::payload_seed`.
    pub checksum: u32,
    /// Sequence of its batch.
    pub sequence: BatchSequence,
    /// Whether the backing store is an older copy that is being completed. If so, the dirty
    /// granules of older records of the block also count for this one.
    pub adds: bool,
}

/// A record's mapping, to be written again; see [`Log::remap`].
///
/// [`Log::remap`]: crate::Log::remap
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Chosen by the caller and repeated in the event.
    pub ticket: u64,
    /// The block.
    pub key: BlockKey,
    /// The place of its payload, which does not change.
    pub position: Position,
    /// Valid granules.
    pub valid: Granules,
    /// Granules dirty now.
    pub dirty: Granules,
    /// CRC-32C of the payload, as in its `Appended` event.
    pub checksum: u32,
}

/// Names an extent that the log wants to retire; see [`Event::Retire`](crate::Event::Retire).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtentId(pub u64);

/// Durable data that are missing or wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Batches whose header is gone: ranges of sequences, first and last. The blocks in them are
    /// unknown; older records of those blocks may have been returned as current.
    pub batches: Vec<(BatchSequence, BatchSequence)>,
    /// Records whose payload fails its checksum (reading them fails too).
    pub payloads: Vec<(BlockKey, Position)>,
    /// Page numbers of headers of this log that were written for another place. It is unknown what
    /// they overwrote and where they are missing.
    pub misplaced: Vec<u32>,
    /// Regions (their sequences) whose directory differs from the headers of their batches. Only a
    /// check reads both.
    pub directories: Vec<RegionSequence>,
    /// Places, as page numbers, that were repaired from a redundant copy (a superblock copy, a
    /// region header). Nothing is lost.
    pub repaired: Vec<u32>,
}

impl Damage {
    /// Whether nothing is lost.
    pub fn is_harmless(&self) -> bool {
        self.payloads.is_empty() && self.is_by_name()
    }

    /// Whether every lost record is known: only payloads fail. Recovery still returns such a
    /// record, but reading it fails. What a lost header described is unknown.
    pub fn is_by_name(&self) -> bool {
        self.batches.is_empty() && self.misplaced.is_empty() && self.directories.is_empty()
    }

    /// Number of batches whose header is gone.
    pub fn batches_lost(&self) -> u64 {
        self.batches.iter().map(|&(first, last)| last - first + 1).sum()
    }
}

/// Numbers of full, durable regions, by the state of their directory. Recovery read all but the
/// first kind batch by batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryCounts {
    /// Regions whose directory was accepted: nothing else of them was read.
    pub believed: u64,
    /// Regions that have no directory, or none yet.
    pub missing: u64,
    /// Regions whose directory is torn, damaged or unreadable.
    pub torn: u64,
    /// Regions whose directory is from an earlier use of the region, or from another epoch.
    pub stale: u64,
    /// Regions whose directory lists batches that have been dropped since.
    pub dropped: u64,
}

/// The progress of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    /// Regions read.
    pub regions_done: u64,
    /// Regions to read; 0 until that is known.
    pub regions: u64,
    /// Records found.
    pub records: u64,
}

/// The results of a start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// UUID of the log, if its superblock could be used.
    pub uuid: Option<TierId>,
    /// Whether the last run stopped cleanly.
    pub clean: bool,
    /// The epoch of this run.
    pub epoch: u64,
    /// Bound volumes as found, with their seals.
    pub bindings: Vec<Binding>,
    /// Regions that hold records.
    pub regions_used: u32,
    /// Batches accepted.
    pub batches: u64,
    /// Sequence of the newest accepted batch.
    pub newest_batch: BatchSequence,
    /// Records returned as [`StartEvent::Recovered`](crate::StartEvent::Recovered).
    pub records: u64,
    /// Records with lost granules (dirty, but not valid).
    pub lost: u64,
    /// Tombstones returned, including distrusted records.
    pub tombstones: u64,
    /// Volumes whose store or log was an older copy of itself; the store was complete, and no clean
    /// record of the volume counts.
    pub outdated: Vec<(Volume, Older)>,
    /// Volumes whose store is an older copy of itself that lacks only records that are dirty here.
    pub completing: Vec<Volume>,
    /// Volumes whose new size [outdates](Binding::is_outdated_by) the former one, with their former
    /// size in bytes. No clean record of such a volume counts.
    pub resized: Vec<(Volume, u64)>,
    /// Clean records that are not trusted because their extent was open for direct writes, or
    /// because the backing store was changed without the log.
    pub distrusted: u64,
    /// Dirty records in such extents, returned as recovered: they were appended after the volume
    /// had returned to write-back, whose direct writes are guarded by tombstones.
    pub dirty_in_active: u64,
    /// Intact batches found after the end of the log and permanently dropped: nothing in them was
    /// known to be durable.
    pub batches_dropped: u64,
    /// Payloads verified.
    pub payloads_verified: u64,
    /// How full, durable regions were read.
    pub directories: DirectoryCounts,
    /// Missing or wrong data.
    pub damage: Damage,
}

/// Why a log could not be started.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogError {
    /// No copy of the superblock carries the magic number.
    NotALog,
    /// There are superblock copies, but none is intact.
    SuperblockDamaged,
    /// The newest superblock is lost: batches refer to a later generation than any copy has.
    SuperblockStale {
        /// Generation of the newest intact copy.
        found: SuperblockGeneration,
        /// Generation that a batch knows to have been durable.
        known: SuperblockGeneration,
    },
    /// A newer version of Forebay wrote the log.
    NewerFormat {
        /// Version found.
        found: u16,
        /// Newest version that this program reads.
        supported: u16,
    },
    /// The stored geometry is not that of this run; see [`Geometry::as_stored`].
    ///
    /// [`Geometry::as_stored`]: crate::Geometry::as_stored
    Geometry {
        /// Name of the number that differs.
        what: &'static str,
        /// As stored.
        stored: u64,
        /// As expected.
        expected: u64,
    },
    /// A dirty record is past the end of its volume.
    BeyondVolume {
        /// The volume.
        volume: Volume,
        /// The record's first byte.
        offset: u64,
        /// The volume's bytes.
        size: u64,
    },
    /// A volume was enlarged, and its former last block, which extended past the former end, is
    /// dirty.
    Enlarged {
        /// The volume.
        volume: Volume,
        /// Its former size in bytes.
        former: u64,
    },
    /// A backing store was changed without the log, and the log holds dirty data for it.
    Changed {
        /// The volume.
        volume: Volume,
        /// Its dirty blocks.
        blocks: u64,
    },
    /// The log or a backing store is an older copy of itself, and using it would lose data.
    Older {
        /// The volume.
        volume: Volume,
        /// Which of the two is the older copy.
        which: Older,
    },
    /// The index of this run has no room for all dirty records.
    NoPlace {
        /// Number of dirty records that do not fit.
        blocks: u64,
    },
    /// The stored layout is not known to this version.
    Layout(u16),
    /// The stored layout differs from this run's.
    OtherLayout {
        /// As stored.
        stored: u16,
        /// As expected.
        expected: u16,
    },
    /// Durable records are lost and the options refuse that; nothing was written.
    Damaged(Box<RecoveryReport>),
    /// The device failed.
    Io(IoError),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::NotALog => write!(
                f,
                "this is not a Forebay flash tier (no superblock found); nothing was written"
            ),
            LogError::SuperblockDamaged => write!(
                f,
                "both copies of the flash tier's superblock are damaged; nothing was written"
            ),
            LogError::SuperblockStale { found, known } => write!(
                f,
                "the newest superblock of the flash tier is lost (generation {known} was durable, \
                 but only generation {found} was found); nothing was written"
            ),
            LogError::NewerFormat { found, supported } => write!(
                f,
                "the flash tier has format {found}, but this version reads formats up to \
                 {supported}; nothing was written"
            ),
            LogError::Geometry { what, stored, expected } => write!(
                f,
                "the flash tier was formatted with {what} = {stored}, but this run uses \
                 {expected}; nothing was written"
            ),
            LogError::BeyondVolume { volume, offset, size } => write!(
                f,
                "the flash tier holds newer data at byte {offset} of volume {volume}, which has \
                 {size} bytes; nothing was written"
            ),
            LogError::Enlarged { volume, former } => write!(
                f,
                "volume {volume} had {former} bytes and is larger now, and the flash tier holds \
                 newer data for the block at the old end; nothing was written"
            ),
            LogError::Changed { volume, blocks } => write!(
                f,
                "the backing store of volume {volume} was changed without Forebay, and the flash \
                 tier holds {blocks} dirty blocks for it; nothing was written"
            ),
            LogError::Older { volume, which } => write!(
                f,
                "volume {volume}: {which} is an older copy of the one that was last used; nothing \
                 was written"
            ),
            LogError::NoPlace { blocks } => write!(
                f,
                "the flash tier holds {blocks} more dirty blocks than fit in this run's index; \
                 nothing was written"
            ),
            LogError::Layout(n) => {
                write!(f, "the flash tier has an unknown layout ({n}); nothing was written")
            }
            LogError::OtherLayout { stored, expected } => write!(
                f,
                "the flash tier was formatted with layout \"{}\", but this run uses \"{}\"; \
                 nothing was written",
                Layout::name(*stored),
                Layout::name(*expected)
            ),
            LogError::Damaged(report) => write!(
                f,
                "the flash tier is damaged: {} durable batches lost, {} records unreadable, {} \
                 misdirected; nothing was written. It cannot be used, because it is unknown which \
                 data was lost",
                report.damage.batches_lost(),
                report.damage.payloads.len(),
                report.damage.misplaced.len()
            ),
            LogError::Io(error) => write!(f, "the flash device failed: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

/// Counters since the start of this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Records and tombstones whose batch completed.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Batches completed.
    pub batches: u64,
    /// Payload bytes appended, without padding.
    pub payload_bytes: u64,
    /// Payload bytes that were already on flash: records carried or reinserted when their region
    /// was reclaimed.
    pub carried_bytes: u64,
    /// Pages of payload written, padding included.
    pub payload_pages: u64,
    /// Pages written for batch headers, region headers and directories.
    pub header_pages: u64,
    /// Directories written.
    pub directories: u64,
    /// Pages left unwritten at the end of sealed regions.
    pub pages_skipped: u64,
    /// Superblock updates made durable.
    pub superblock_updates: u64,
    /// Superblock pages written (each update is written to both copies).
    pub superblock_pages: u64,
    /// Syncs of the flash device.
    pub syncs: u64,
    /// Regions reclaimed and free for use again.
    pub regions_reclaimed: u64,
    /// Slots layout: mappings written again because their region was reclaimed.
    pub mappings_moved: u64,
    /// Slots layout: records forgotten so that their cells could be reused.
    pub unmapped: u64,
    /// Slots layout: total cells.
    pub cells_total: u32,
    /// Slots layout: cells free now.
    pub cells_free: u32,
    /// Total regions.
    pub regions_total: u32,
    /// Regions free now.
    pub regions_free: u32,
    /// Bytes of a page.
    pub page_size: u32,
}

impl LogStats {
    /// Bytes written to flash for each byte of payload that entered flash for the first time; 1
    /// while there is no such payload.
    pub fn write_amplification(&self) -> f64 {
        if self.payload_bytes == self.carried_bytes {
            return 1.0;
        }
        self.bytes_written() as f64 / (self.payload_bytes - self.carried_bytes) as f64
    }

    /// Total bytes written to flash.
    pub fn bytes_written(&self) -> u64 {
        (self.payload_pages + self.header_pages + self.superblock_pages) * u64::from(self.page_size)
    }

    /// Fraction of the regions in use.
    pub fn utilisation(&self) -> f64 {
        if self.regions_total == 0 {
            return 0.0;
        }
        f64::from(self.regions_total - self.regions_free) / f64::from(self.regions_total)
    }
}
