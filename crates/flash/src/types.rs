//! What goes into the log and what comes out of it.

use crate::key::{BlockKey, Position};
use crate::stamp::{Older, StoreStamp};
use core::fmt;
use forebay_effect::{Frame, IoError, Outcome};

/// How records are placed on flash. Stored in the superblock, and told by the geometry; the calls
/// are the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Layout {
    /// A log of self-describing batches in regions.
    #[default]
    Log,
    /// Payloads in fixed places, *cells* of a block each; the log holds headers only, a
    /// journal of the mapping.
    Slots,
}

impl Layout {
    /// As the superblock has it.
    pub const fn number(self) -> u16 {
        match self {
            Layout::Log => 0,
            Layout::Slots => 1,
        }
    }
    /// As the configuration has it, from the superblock's number; `?` if it is unknown.
    pub const fn name(number: u16) -> &'static str {
        match number {
            0 => "log",
            1 => "slots",
            _ => "?",
        }
    }
}

/// What recovery does when it finds that something known to have been durable is gone, and not only
/// [by name](Damage::is_by_name).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDamage {
    /// Write nothing and end with [`Event::Failed`]; the device stays as it was found.
    #[default]
    Refuse,
    /// Go on with what is left; [`RecoveryReport::damage`] says what is missing. Right where
    /// every record is clean, or when the operator has decided.
    Report,
}

/// Limits and choices of this run; none is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// DRAM frames of the cache: the number of appends that can wait at once. Queues are
    /// allocated for it.
    pub frames: u32,
    /// Reclaim starts when no more than this many regions are free or about to be.
    pub reserve_regions: u32,
    /// Largest number of regions being reclaimed at once.
    pub reclaims_max: u32,
    /// What recovery does about damage.
    pub on_damage: OnDamage,
    /// Bytes of the flash device; recovery refuses a log that would reach beyond.
    pub device_bytes: u64,
    /// Pages that recovery reads at once where it looks through payloads, at most.
    pub recovery_chunk_pages: u32,
}

impl Options {
    /// Usual [`recovery_chunk_pages`](Options::recovery_chunk_pages).
    pub const RECOVERY_CHUNK_PAGES: u32 = 256;
}

impl Default for Options {
    fn default() -> Self {
        Options {
            frames: 1024,
            reserve_regions: 2,
            reclaims_max: 1,
            on_damage: OnDamage::Refuse,
            device_bytes: u64::MAX,
            recovery_chunk_pages: Options::RECOVERY_CHUNK_PAGES,
        }
    }
}

/// A volume bound to the flash tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The volume's index in [`BlockKey`].
    pub index: u16,
    /// UUID of the backing store.
    pub uuid: [u8; 16],
    /// The backing store's generation when it was last attached.
    pub generation: u64,
    /// Clean records of batches up to this one do not count: the backing store was changed
    /// behind the log's back, or was given away.
    pub distrusted: u64,
    /// Records of batches up to this one do not count, dirty or not: the log failed, and the backing store
    /// has gone on without it.
    pub voided: u64,
    /// What the backing store looked like when the log was last sealed, in the caller's words;
    /// all zeroes while it may be written.
    pub seal: Seal,
    /// The number of the newest stamp known to be durable on the backing store; 0 for none.
    pub stamp: u64,
    /// A copy of the store with a stamp of this number, or a later one, lacks nothing but what went there
    /// by way of the log; 0 if that is not known of any.
    pub logged: u64,
}

impl Binding {
    /// A volume whose records all count, and that is not sealed.
    pub const fn new(index: u16, uuid: [u8; 16], generation: u64) -> Binding {
        let (distrusted, voided, seal) = (0, 0, [0; SEAL_BYTES]);
        Binding { index, uuid, generation, distrusted, voided, seal, stamp: 0, logged: 0 }
    }
}

/// Bytes of a [`Seal`].
pub const SEAL_BYTES: usize = 32;

/// A caller's note of a backing store's contents.
pub type Seal = [u8; SEAL_BYTES];

/// What [`Log::seal`] notes of a volume.
///
/// [`Log::seal`]: crate::Log::seal
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The volume's index in [`BlockKey`].
    pub index: u16,
    /// What its backing store looks like; all zeroes for nothing.
    pub seal: Seal,
    /// Whether all its records so far cease to count.
    pub distrust: bool,
    /// The number of the newest stamp that is durable on its backing store; 0 for none.
    pub stamp: u64,
}

/// How to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// Write an empty log; whatever was there is gone once `Ready` comes.
    Format {
        /// Random UUID of the new log.
        uuid: [u8; 16],
        /// Volumes bound from the start.
        bindings: Vec<Binding>,
    },
    /// Find what the device holds and go on behind it.
    Recover {
        /// Volumes whose backing stores were changed behind the log's back: their clean records
        /// are given as tombstones, and never count again.
        changed: Vec<u16>,
        /// Whether seals stay as they are, because the caller is about to replace them.
        sealed: bool,
        /// The stamps of those stores that keep one.
        stores: Vec<StoreStamp>,
    },
    /// Read everything, verify every payload, write nothing. Ends with `Ready`, whose report
    /// lists the damage, or `Failed`; the log accepts no appends afterwards.
    Check,
}

impl Start {
    /// [`Start::Recover`] with stores that only this log has changed.
    pub const RECOVER: Start =
        Start::Recover { changed: Vec::new(), sealed: false, stores: Vec::new() };
}

/// A record to append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append {
    /// The caller's name for it, given back in the event.
    pub ticket: u64,
    /// Which block.
    pub key: BlockKey,
    /// Valid granules; they are what is written. Without any the frame is not looked at; if none is
    /// dirty either it is a *tombstone*: every older record of the block is void, and the position
    /// comes back as [`Position::NONE`].
    pub valid: u16,
    /// Dirty granules. They must be *all* dirty granules of the block: a newer record replaces an
    /// older one as a whole. Those that are not valid are *lost*: they can be read neither here nor
    /// from the backing store, which is said for good (the log layout only). A granule appended as
    /// clean says that the backing store durably holds the same, or that the block's extent is active.
    pub dirty: u16,
    /// Where the block lies in DRAM; pinned until the event.
    pub frame: Frame,
    /// Whether someone waits for it: the batch is closed as soon as no other is being written.
    pub urgent: bool,
}

/// A record found by recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which block.
    pub key: BlockKey,
    /// Where its payload starts.
    pub position: Position,
    /// Valid granules, in the payload one behind the other.
    pub valid: u16,
    /// Dirty granules (0 when the record was declared clean since); those that are not valid are lost.
    pub dirty: u16,
    /// CRC-32C of the payload, continued from `Log::payload_seed`.
    pub checksum: u32,
    /// Sequence of its batch.
    pub sequence: u64,
    /// The store is an older copy that is being completed: what older records of the block have dirty
    /// counts for this one, too.
    pub adds: bool,
}

/// A record's place in the mapping, to be written down again; see [`Log::remap`].
///
/// [`Log::remap`]: crate::Log::remap
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The caller's name for it, given back in the event.
    pub ticket: u64,
    /// Which block.
    pub key: BlockKey,
    /// Where its payload lies, and stays.
    pub position: Position,
    /// Valid granules.
    pub valid: u16,
    /// Granules dirty now.
    pub dirty: u16,
    /// CRC-32C of the payload, as its `Appended` gave it.
    pub checksum: u32,
}

/// Names an extent that the log wants to retire; see [`Event::Retire`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtentId(pub u64);

/// What the log has to say. Events come in the order in which they became true.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The record is on flash (durable after the next sync). In log order.
    Appended {
        /// As given.
        ticket: u64,
        /// Where its payload starts; [`Position::NONE`] for a tombstone.
        position: Position,
        /// CRC-32C of its payload, continued from `Log::payload_seed`.
        checksum: u32,
    },
    /// The record is not on flash; the log has latched as failed. Its frame is free again.
    AppendFailed {
        /// As given.
        ticket: u64,
        /// Why.
        error: IoError,
    },
    /// The record was not written, because [`Log::take_back`] was called, or because [`Log::reinsert`] found no
    /// room to spare; its frame is free again.
    ///
    /// [`Log::take_back`]: crate::Log::take_back
    /// [`Log::reinsert`]: crate::Log::reinsert
    AppendRefused {
        /// As given.
        ticket: u64,
    },
    /// A mapping given to `remap` stands in the journal again (durable after the next sync).
    Moved {
        /// As given.
        ticket: u64,
        /// As given.
        key: BlockKey,
        /// As given.
        position: Position,
        /// The region where it stood.
        from: u32,
        /// The region where it stands; `region_of` says so, too, from now on.
        region: u32,
        /// How it ended.
        result: Outcome,
    },
    /// A record given to `unmap` is durably forgotten. The owner of an index forgets it only now, because
    /// until now recovery would have brought it back; and its cell is free from now on.
    Unmapped {
        /// Which block.
        key: BlockKey,
        /// Where its payload lay.
        position: Position,
    },
    /// Everything appended before the call is durable, or will never be.
    Synced {
        /// As given.
        ticket: u64,
        /// How it ended.
        result: Outcome,
    },
    /// The extent is durably marked: the block may be written directly now. Call
    /// `direct_done` when that write has ended, however it ended.
    Active {
        /// As given.
        ticket: u64,
        /// How it ended; no `direct_done` after an error.
        result: Outcome,
    },
    /// Records appended before the call are durably declared clean.
    CleanMarked {
        /// As given.
        ticket: u64,
        /// How it ended.
        result: Outcome,
    },
    /// The table of bound volumes, or what `seal` changed in it, is durable.
    Bound {
        /// As given.
        ticket: u64,
        /// How it ended.
        result: Outcome,
    },
    /// The records of the volumes given to `void` do not count any more, durably.
    Voided {
        /// As given.
        ticket: u64,
        /// How it ended.
        result: Outcome,
    },
    /// Something may go to the volume's store past the log now: that is durably noted.
    Passing {
        /// The volume's index in [`BlockKey`].
        volume: u16,
        /// How it ended.
        result: Outcome,
    },
    /// Release everything you hold in the region, then call `region_released`.
    Reclaim {
        /// Region number, as `Log::region_of` gives it.
        region: u32,
    },
    /// A region given to `region_released` is free for good: the advanced tail is durable. The holder of
    /// the index forgets the region's (clean) records only now, because until now recovery would have
    /// brought them back; then it calls `region_forgotten`, and the region is used again.
    RegionFreed {
        /// Region number.
        region: u32,
    },
    /// The table of active extents is full. Make the backing store of this extent's volume
    /// durable (one sync of it; no direct write to the extent is in flight now), then call
    /// `extent_released`. Until then the extent stays marked.
    Retire {
        /// Give this back to `extent_released`.
        extent: ExtentId,
        /// First block of the extent.
        first: BlockKey,
    },
    /// Recovery found this record; a later record or tombstone of the same block replaces it.
    Recovered(Record),
    /// Recovery found that every earlier record of this block is void.
    RecoveredTombstone {
        /// Which block.
        key: BlockKey,
    },
    /// The log takes appends (after `Start::Check`: it has been read to the end).
    Ready(Box<RecoveryReport>),
    /// The log could not be started; nothing more will come.
    Failed(LogError),
    /// The end of `stop`.
    Stopped {
        /// Whether the clean mark is durable.
        result: Outcome,
    },
}

/// What is missing or wrong although it was known to be durable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Batches whose header is gone: ranges of sequences, first and last. Which blocks they
    /// held is not known; older records of those blocks may have been given as current.
    pub batches: Vec<(u64, u64)>,
    /// Records whose payload fails its checksum (reading them fails, too).
    pub payloads: Vec<(BlockKey, Position)>,
    /// Headers of this log that were written for another place: what they overwrote and where
    /// they are missing is not known. Page numbers.
    pub misplaced: Vec<u32>,
    /// Regions (their sequences) whose directory says other than the headers of their batches. Only a
    /// check reads both.
    pub directories: Vec<u64>,
    /// Parts that a redundant copy made good (a superblock copy, a region header): where, as a
    /// page number. Nothing is lost.
    pub repaired: Vec<u32>,
}

impl Damage {
    /// Whether nothing is lost.
    pub fn is_harmless(&self) -> bool {
        self.payloads.is_empty() && self.is_by_name()
    }

    /// Whether it is known which records are lost: those whose payload fails. They are given all the same,
    /// and reads of them fail. What was behind a lost header, nobody knows.
    pub fn is_by_name(&self) -> bool {
        self.batches.is_empty() && self.misplaced.is_empty() && self.directories.is_empty()
    }

    /// Number of batches whose header is gone.
    pub fn batches_lost(&self) -> u64 {
        self.batches.iter().map(|(first, last)| last - first + 1).sum()
    }
}

/// Full regions, all durable, by what was in the place of their directory. But for the first kind they
/// were read batch by batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryCounts {
    /// Their directory: nothing else was read of them.
    pub believed: u64,
    /// None, or none yet.
    pub missing: u64,
    /// One that is torn, damaged, or cannot be read.
    pub torn: u64,
    /// The directory of an earlier life of the region, or of another epoch.
    pub stale: u64,
    /// Their directory, with batches that were dropped since.
    pub dropped: u64,
}

/// How far a recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovering {
    /// Regions looked through.
    pub regions_done: u64,
    /// Regions to look through; 0 until that is known.
    pub regions: u64,
    /// Records found.
    pub records: u64,
}

/// What a start found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// UUID of the log.
    pub uuid: [u8; 16],
    /// Whether the last run stopped cleanly.
    pub clean: bool,
    /// The epoch of this run.
    pub epoch: u64,
    /// Volumes bound, as they were found: with their seals.
    pub bindings: Vec<Binding>,
    /// Regions that hold records.
    pub regions_used: u32,
    /// Batches accepted.
    pub batches: u64,
    /// Records given as [`Event::Recovered`].
    pub records: u64,
    /// Records that say that newest data is lost.
    pub lost: u64,
    /// Tombstones given, distrusted records included.
    pub tombstones: u64,
    /// Volumes whose store, or for which the log, was an older copy of itself; the store was whole, and
    /// no clean record of the volume counts.
    pub outdated: Vec<(u16, Older)>,
    /// Volumes whose store is an older copy of itself that lacks nothing but records which are dirty here.
    pub completing: Vec<u16>,
    /// Clean records not trusted because their extent was open for direct writes, or because the
    /// backing store was changed behind the log's back.
    pub distrusted: u64,
    /// Dirty records in such extents, given as recovered: they were appended after the volume
    /// had gone back to write-back, whose direct writes are guarded by tombstones.
    pub dirty_in_active: u64,
    /// Whole batches found behind the end of the log and dropped for good: nothing in them was
    /// known to be durable.
    pub batches_dropped: u64,
    /// Payloads verified.
    pub payloads_verified: u64,
    /// How full regions, known to be durable, were found out about.
    pub directories: DirectoryCounts,
    /// What is missing or wrong.
    pub damage: Damage,
}

/// Why a log could not be started.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogError {
    /// No copy of the superblock carries the magic number.
    NotALog,
    /// The superblock was there, but no copy verifies.
    SuperblockDamaged,
    /// The newest superblock is lost: batches know of a later one.
    SuperblockStale {
        /// Generation of the newest copy that verifies.
        found: u64,
        /// Generation that a batch knows to have been durable.
        known: u64,
    },
    /// Written by a newer version.
    NewerFormat {
        /// Version found.
        found: u16,
        /// Newest version understood.
        supported: u16,
    },
    /// The stored geometry does not fit this run.
    Geometry {
        /// Which number.
        what: &'static str,
        /// As stored.
        stored: u64,
        /// As expected.
        expected: u64,
    },
    /// A dirty record lies behind the end of its volume.
    BeyondVolume {
        /// The volume.
        volume: u16,
        /// The record's first byte.
        offset: u64,
        /// The volume's bytes.
        size: u64,
    },
    /// A backing store was changed behind the log's back, and there is newer data for it.
    Changed {
        /// The volume.
        volume: u16,
        /// Its dirty blocks.
        blocks: u64,
    },
    /// The log or a backing store is an older copy of itself, and something would be lost by that.
    Older {
        /// The volume.
        volume: u16,
        /// Which.
        which: Older,
    },
    /// The index of this run has no room for all dirty records.
    NoPlace {
        /// Blocks that find no place.
        blocks: u64,
    },
    /// The stored layout is not known to this version.
    Layout(u16),
    /// The stored layout is another than this run's.
    OtherLayout {
        /// As stored.
        stored: u16,
        /// As expected.
        expected: u16,
    },
    /// Durable records are lost and the options say to refuse; nothing was written.
    Damaged(Box<RecoveryReport>),
    /// The device failed.
    Io(IoError),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::NotALog => write!(
                f,
                "this is no forebay flash tier (no superblock found); nothing was written"
            ),
            LogError::SuperblockDamaged => write!(
                f,
                "both copies of the flash tier's superblock are damaged; nothing was written"
            ),
            LogError::SuperblockStale { found, known } => write!(
                f,
                "the newest superblock of the flash tier is lost (found generation {found}, \
                 generation {known} was durable); nothing was written"
            ),
            LogError::NewerFormat { found, supported } => write!(
                f,
                "the flash tier has format {found}, this version understands up to {supported}; \
                 nothing was written: use a newer forebay"
            ),
            LogError::Geometry { what, stored, expected } => write!(
                f,
                "the flash tier was formatted with {what} = {stored}, this run has {expected}; \
                 nothing was written"
            ),
            LogError::BeyondVolume { volume, offset, size } => write!(
                f,
                "the flash tier holds newer data for byte {offset} of volume {volume}, which has \
                 {size} bytes; nothing was written"
            ),
            LogError::Changed { volume, blocks } => write!(
                f,
                "the backing store of volume {volume} was changed by others, and {blocks} blocks on \
                 the flash tier are newer than what was there before; nothing was written"
            ),
            LogError::Older { volume, which } => write!(
                f,
                "{which} of volume {volume} is an older copy of itself than what it was last used \
                 with; nothing was written"
            ),
            LogError::NoPlace { blocks } => write!(
                f,
                "the flash tier holds {blocks} dirty blocks more than this run has room for in its \
                 index; nothing was written; start with the memory and the shards of the run before \
                 and destage first"
            ),
            LogError::Layout(n) => {
                write!(f, "the flash tier has an unknown layout ({n}); nothing was written")
            }
            LogError::OtherLayout { stored, expected } => write!(
                f,
                "the flash tier was formatted with layout \"{}\", this run has \"{}\"; nothing was \
                 written: set `layout` in [flash] as it was, or bring what is dirty to the backing \
                 stores (`forebay flash recover`) and format it again",
                Layout::name(*stored),
                Layout::name(*expected)
            ),
            LogError::Damaged(report) => write!(
                f,
                "the flash tier is damaged: {} durable batches lost, {} records unreadable, {} \
                 misdirected; nothing was written. What they held is not known, so it is not served: start \
                 with --format to give up what it caches (if it holds dirty data, that says so, and takes \
                 --discard-dirty-data, too)",
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
    /// Payload bytes of records that had stood on flash before: carried on, or inserted again, when their region was
    /// reclaimed.
    pub carried_bytes: u64,
    /// Pages of payload written, padding included.
    pub payload_pages: u64,
    /// Header pages written, of batches and regions, and pages of directories.
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
    /// Slots layout: mappings written down again because their region was reclaimed.
    pub mappings_moved: u64,
    /// Slots layout: records forgotten so that their cells could be used again.
    pub unmapped: u64,
    /// Slots layout: cells in all.
    pub cells_total: u32,
    /// Slots layout: cells free now.
    pub cells_free: u32,
    /// Regions in all.
    pub regions_total: u32,
    /// Regions free now.
    pub regions_free: u32,
    /// Bytes of a page.
    pub page_size: u32,
}

impl LogStats {
    /// Bytes written to flash per byte of payload that came there for the first time; 1 while nothing has.
    pub fn write_amplification(&self) -> f64 {
        if self.payload_bytes == self.carried_bytes {
            return 1.0;
        }
        self.bytes_written() as f64 / (self.payload_bytes - self.carried_bytes) as f64
    }

    /// Bytes written to flash, all of them.
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
