//! The errors of an engine.
//!
//! Each says what happened, and what was or was not changed on the devices. What to do about it depends on the
//! program that embeds the engine, which knows its own flags and commands: the program adds that.

use std::io;
use std::path::PathBuf;

use forebay_config::{Problem, Size, distinct_sizes};
use forebay_device::file::OpenError;
use forebay_device::nbd::NbdError;
use forebay_device::{ArenaError, UnknownBackend};
use forebay_effect::IoError;
use forebay_flash::{GeometryError, LogError};
use forebay_setup::SetupError;

use crate::backing_header::{EpochError, HeaderError};

mod reasons;

pub use reasons::{
    DestageFailure, DirtyLeft, FailingStore, HeldVolume, TierMismatch, UncountedReason,
    UnsealedReason,
};

/// An engine could not be opened, or could not carry out an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No machine can be built from the configuration.
    #[error(transparent)]
    Setup(SetupError),
    /// No volume is configured, or too many are.
    #[error("a cache can have 1 to {most} volumes, not {configured}")]
    Volumes {
        /// Number of configured volumes.
        configured: usize,
        /// The most that a cache can have.
        most: usize,
    },
    /// The flash device cannot write pages as small as configured.
    #[error(
        "flash.page_size is too small: {} can be written only in units of {least} bytes; nothing \
         was written. Set page_size to at least {least}, or omit it", path.display()
    )]
    PageSize {
        /// The flash tier.
        path: PathBuf,
        /// Bytes of the smallest page that the device can write.
        least: u32,
    },
    /// Writes were to be acknowledged on flash, but there is no flash tier.
    #[error(
        "acknowledge = \"flash\" is not possible, because this cache has no flash tier; the write \
         policy is unchanged. Use acknowledge = \"dram\""
    )]
    NoFlashToAcknowledge,
    /// The new write policy would keep dirty data while a quiesce keeps the stores complete.
    #[error(
        "cannot switch to a write policy that keeps dirty data while a quiesce holds back clients; \
         the write policy is unchanged"
    )]
    Quiesced,
    /// The caller stopped the start.
    #[error("startup was interrupted before the cache was ready; the data on flash is unchanged")]
    StartEnded,
    /// The caller stopped the start after the flash tier had begun to change.
    #[error(
        "startup was interrupted before the cache was ready; {}",
        if *formatted { "the flash tier was formatted" } else { "no acknowledged data was lost" }
    )]
    StartCut {
        /// Whether the start has formatted the flash tier.
        formatted: bool,
    },
    /// A device or file cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file does not exist, and no size is configured for it.
    #[error(
        "{what}: {} does not exist; nothing was created. To create it, set a `size` for {what}",
        path.display()
    )]
    Absent {
        /// A volume, or the flash tier.
        what: String,
        /// Its file.
        path: PathBuf,
    },
    /// An export of an NBD server cannot be used.
    #[error("{0}; nothing was written")]
    Nbd(#[from] NbdError),
    /// A header is needed, but the store is read-only.
    #[error(
        "volume {volume}: {} is read-only and has no Forebay header; nothing was written. Use \
         layout = \"none\"", path.display()
    )]
    NoHeader {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// Dirty data cannot be destaged to a read-only store.
    #[error(
        "volume {volume}: {} is read-only, but a flash tier holds newer data for it; nothing was \
         written. Make the store writable, so that this data can be destaged", path.display()
    )]
    DirtyReadOnly {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// A writable export offers no flush, so a header on it could not be made durable.
    #[error(
        "volume {volume}: the NBD server for {} does not support flush, so Forebay cannot keep a \
         durable header on it; enable flush on that server, or set layout = \"none\"", path.display()
    )]
    HeaderWithoutFlush {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// A device or file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// Its file or device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The backing store does not match the configuration.
    #[error("volume {volume}: {} cannot be used: {error}; nothing was written", path.display())]
    Header {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The error.
        error: HeaderError,
    },
    /// The inspected store has no readable header.
    #[error(
        "{} is not a backing store that Forebay can read: {error}; nothing was written",
        path.display()
    )]
    NoStore {
        /// The inspected file or device.
        path: PathBuf,
        /// The error.
        error: HeaderError,
    },
    /// The header has another layout than the configuration.
    #[error(
        "volume {volume}: {} was set up with layout = \"{found}\", but the configuration says \
         \"{wanted}\"; nothing was written. Set layout = \"{found}\"", path.display()
    )]
    Layout {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The header's layout.
        found: String,
        /// As configured.
        wanted: String,
    },
    /// The flash tier holds blocks of another size.
    #[error(
        "{}: the flash tier was formatted with blocks of {}, but block_size in the configuration is \
         {}; nothing was written", path.display(), Size((*found).into()), Size((*wanted).into())
    )]
    BlockSize {
        /// The flash tier.
        path: PathBuf,
        /// Bytes of its blocks.
        found: u32,
        /// Bytes of a block as configured.
        wanted: u32,
    },
    /// The store has a header, but the configured layout has none.
    #[error(
        "volume {volume}: {} was set up with layout = \"{found}\"{}, but the configuration says \
         \"{wanted}\"; nothing was written",
        path.display(),
        if *dirty { " and has newer data on a flash tier" } else { "" }
    )]
    OtherLayout {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The header's layout.
        found: String,
        /// As configured.
        wanted: String,
        /// Whether a flash tier holds newer data.
        dirty: bool,
    },
    /// The store is a flash tier.
    #[error(
        "volume {volume}: {} is a Forebay flash tier, not a backing store; nothing was written",
        path.display()
    )]
    TierAsStore {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// The flash device is a backing store.
    #[error(
        "{} is a Forebay backing store{}, not a flash tier{}; nothing was written",
        path.display(),
        layout.as_ref().map(|layout| format!(" (layout = \"{layout}\")")).unwrap_or_default(),
        if *dirty { ", and a flash tier may hold newer data for it" } else { "" }
    )]
    StoreAsTier {
        /// The flash device.
        path: PathBuf,
        /// The layout of the store, if this version understands its header.
        layout: Option<String>,
        /// Whether a flash tier may hold newer data.
        dirty: bool,
    },
    /// The store was enlarged, so its header is no longer at its end.
    #[error(
        "volume {volume}: {} was {was} bytes long when Forebay last used it and is now {is} bytes \
         long; its header (layout = \"tail\") is at byte {at}, at the old end{}; nothing was \
         written",
        path.display(),
        if *dirty { ", and says that a flash tier may hold newer data" } else { "" }
    )]
    Grown {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// Where the header is.
        at: u64,
        /// Its former size in bytes.
        was: u64,
        /// Its present size in bytes.
        is: u64,
        /// Whether a flash tier may hold newer data.
        dirty: bool,
    },
    /// The end of the store has no header, and it is unknown whether there is one elsewhere.
    #[error(
        "volume {volume}: {} holds data and has no header at its end, where layout = \"tail\" \
         keeps it; nothing was written. Either Forebay has never used this store, or the store's \
         size has changed since", path.display()
    )]
    NoTail {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// Others have written to a store for which there is newer data.
    #[error(
        "volume {volume}: {} has been used without Forebay since the last stop or quiesce, and the \
         flash tier {} holds {blocks} dirty blocks for it; no data was changed",
        path.display(), flash.display()
    )]
    Changed {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The flash tier.
        flash: PathBuf,
        /// Dirty blocks of the volume.
        blocks: u64,
    },
    /// Nothing says which of two headers is the store's.
    #[error(
        "{} has an intact Forebay header at its start and another one at its end: one of them \
         belongs to a store nested inside the volume of the other; nothing was written", path.display()
    )]
    TwoHeaders {
        /// The store.
        path: PathBuf,
    },
    /// A store without a header was to be released.
    #[error(
        "{} has no Forebay header in which to record the release; nothing was written",
        path.display()
    )]
    NoHeaderToRelease {
        /// The store.
        path: PathBuf,
    },
    /// A store with newer data elsewhere was to be released.
    #[error(
        "{} has newer data on its flash tier, or Forebay was not stopped cleanly; nothing was \
         written",
        path.display()
    )]
    DirtyRelease {
        /// The store.
        path: PathBuf,
    },
    /// A stop could not record the state of a store.
    #[error(
        "the stop succeeded, but the state of the stores could not be recorded ({0}), so the next \
         start cannot tell whether they were used without Forebay"
    )]
    Unsealed(UnsealedReason),
    /// Keys of the configuration contradict the layout of the flash tier.
    #[error(
        "the flash tier {} was formatted with layout \"{layout}\", but the configuration does not \
         match that layout: {}; nothing was written",
        path.display(), keys(problems)
    )]
    AdoptedLayout {
        /// The tier.
        path: PathBuf,
        /// Its layout.
        layout: String,
        /// The keys, and what is wrong with each.
        problems: Vec<Problem>,
    },
    /// An operator's order could not be carried out.
    #[error("{what} failed: {error}")]
    Order {
        /// The order.
        what: &'static str,
        /// Why.
        error: Box<EngineError>,
    },
    /// The flash tier could not take a note about the stores.
    #[error("the flash tier: {0}")]
    FlashNote(IoError),
    /// An operator has ended a quiesce before it was complete.
    #[error(
        "the quiesce ended before the backing stores were complete; client requests have resumed"
    )]
    QuiesceEnded,
    /// A quiesce could not extend an earlier one, which continues.
    #[error("{0}; an earlier quiesce still holds client requests back")]
    NotExtended(Box<EngineError>),
    /// Backing stores do not answer.
    #[error("{} for {seconds} s", no_answer(volumes))]
    NoAnswer {
        /// Names of the volumes. If there are none, something else did not end, such as a request to flash.
        volumes: Vec<String>,
        /// How long they have not answered.
        seconds: u64,
    },
    /// Clients are held back and could not be resumed.
    #[error("{0}; client requests are still held back")]
    StillQuiesced(Box<EngineError>),
    /// A stop could not resume clients.
    #[error(
        "the stop could not end the quiesce first ({0}), so the client requests held back by the \
         quiesce failed; all acknowledged data was kept"
    )]
    HeldRefused(Box<EngineError>),
    /// What failed for one store failed for others, too.
    #[error("{error}; volumes {} also failed", others.join(", "))]
    SeveralStores {
        /// Why it failed for the first one.
        error: Box<EngineError>,
        /// The names of the other volumes.
        others: Vec<String>,
    },
    /// A quiesce has ended, but not for these volumes.
    #[error(
        "client requests to {} are still held back after a quiesce, because the header of the backing store could \
         not be written, or cached data could not be dropped; requests to other volumes continue", held(.0)
    )]
    VolumesHeld(Vec<HeldVolume>),
    /// A volume has become too small for its dirty data.
    #[error(
        "volume {volume} has {size} bytes, but the flash tier {} holds newer data at byte \
         {offset}; no data was changed", path.display()
    )]
    Shrunk {
        /// Name of the volume.
        volume: String,
        /// Its size in bytes.
        size: u64,
        /// The place of the data in the volume.
        offset: u64,
        /// The flash tier.
        path: PathBuf,
    },
    /// A volume has become larger, and the block at its former end is dirty.
    #[error(
        "volume {volume} has grown from {former} bytes, and the flash tier {} holds newer data \
         for the block at its old end; no data was changed", path.display()
    )]
    Enlarged {
        /// Name of the volume.
        volume: String,
        /// Its former size in bytes.
        former: u64,
        /// The flash tier.
        path: PathBuf,
    },
    /// The backing store is too small.
    #[error(
        "volume {volume}: {} is too small: it has {} and needs {}; nothing was written",
        path.display(), distinct_sizes(*size, *needed)[0], distinct_sizes(*size, *needed)[1]
    )]
    TooSmall {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// Bytes it would need.
        needed: u64,
    },
    /// The device of the flash tier is too small.
    #[error(
        "the flash tier {} is too small: it has {}, but flash.size is {}; nothing was written",
        path.display(), distinct_sizes(*size, *needed)[0], distinct_sizes(*size, *needed)[1]
    )]
    FlashTooSmall {
        /// The device or file.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// Bytes it should have.
        needed: u64,
    },
    /// The device of the flash tier has been truncated.
    #[error(
        "the flash tier {} is truncated: it needs {}, but the device has only {}; nothing was \
         written",
        path.display(), distinct_sizes(*needed, *size)[0], distinct_sizes(*needed, *size)[1]
    )]
    FlashCut {
        /// The device or file.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// Bytes that the tier needs.
        needed: u64,
    },
    /// An error that files which are missing may explain.
    #[error(
        "{error}. These files or devices in the configuration do not exist: {}",
        listed(missing)
    )]
    Missing {
        /// The error.
        error: Box<EngineError>,
        /// The missing files.
        missing: Vec<PathBuf>,
    },
    /// The store's newest data may be on a flash tier that is not configured.
    #[error(
        "volume {volume}: {} has newer data on a flash tier that is not in this configuration; \
         nothing was written", path.display()
    )]
    DirtyElsewhere {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
    },
    /// One store is a copy of another: a flash tier could not distinguish them.
    #[error(
        "volumes {one} and {other}: one backing store is a copy of the other, including its \
         header; nothing was written"
    )]
    Twins {
        /// Name of a volume.
        one: String,
        /// Name of the later volume.
        other: String,
    },
    /// Another change of policy, or a stop, is in progress.
    #[error("another policy change or a stop is in progress; try again when it has finished")]
    Switching,
    /// The write policy depends on flash.
    #[error(
        "flash has failed, and the server will not write to it until the next start, so the write \
         policy cannot be changed until then"
    )]
    FlashFailed,
    /// A stop is near.
    #[error("the cache is stopping")]
    Stopping,
    /// DRAM cannot have this size while the server runs.
    #[error(
        "this cache can use {} to {} of DRAM, not {}. The upper limit is the `cache.dram` that it \
         started with; to raise it, change `cache.dram` and restart",
        Size(*least), Size(*most), Size(*bytes)
    )]
    DramSize {
        /// The requested size.
        bytes: u64,
        /// The smallest possible size.
        least: u64,
        /// The largest possible size.
        most: u64,
    },
    /// The flash tier belongs to other stores.
    #[error(
        "the flash tier {} belongs to other backing stores ({mismatch}); nothing was written",
        path.display()
    )]
    Bound {
        /// The flash tier.
        path: PathBuf,
        /// The mismatch.
        mismatch: TierMismatch,
    },
    /// The flash tier belongs to other stores, and holds dirty data.
    #[error(
        "the flash tier {} belongs to other backing stores ({mismatch}) and holds dirty data for them; \
         nothing was written", path.display()
    )]
    Foreign {
        /// The flash tier.
        path: PathBuf,
        /// The mismatch.
        mismatch: TierMismatch,
    },
    /// Flash tier and store were not last used together.
    #[error("volume {volume}: {error}; nothing was written")]
    Epoch {
        /// Name of the volume.
        volume: String,
        /// Which is older.
        error: EpochError,
    },
    /// The backing store is an older copy of itself.
    #[error(
        "volume {volume}: {} is an older copy (a snapshot or a stale mirror) of the store that the \
         flash tier {} was last used with, and lacks data that was destaged to that store; no data \
         was changed",
        path.display(), flash.display()
    )]
    OlderStore {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The flash tier.
        flash: PathBuf,
    },
    /// The flash tier is an older copy of itself.
    #[error(
        "volume {volume}: the flash tier {} is an older copy (a snapshot or a stale mirror) of the \
         tier that {} was last used with; its data for the volume may be older than the data on \
         the store, and newer data may be missing; no data was changed",
        flash.display(), path.display()
    )]
    OlderFlash {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// The flash tier.
        flash: PathBuf,
    },
    /// A flash tier with dirty data was to be formatted.
    #[error(
        "the flash tier {} holds {blocks} dirty blocks; nothing was written", path.display()
    )]
    DirtyFlash {
        /// The flash tier.
        path: PathBuf,
        /// Number of dirty blocks.
        blocks: u64,
    },
    /// A flash tier was to be formatted, and it may have had dirty data that is not found in it.
    #[error(
        "the flash tier {} may hold dirty data that cannot be counted, because {why}; nothing was \
         written", path.display()
    )]
    Uncounted {
        /// The flash tier.
        path: PathBuf,
        /// Why.
        why: UncountedReason,
    },
    /// The flash device holds other data.
    #[error(
        "{} contains data, but is not a Forebay flash tier; nothing was written", path.display()
    )]
    NotFlash {
        /// The device.
        path: PathBuf,
    },
    /// The inspected device does not hold a flash tier.
    #[error("{} is not a Forebay flash tier: it {holds}; nothing was written", path.display())]
    NoFlashTier {
        /// The inspected device.
        path: PathBuf,
        /// Its contents.
        holds: &'static str,
    },
    /// The flash device cannot be used with this geometry.
    #[error("{}: {error}", path.display())]
    Geometry {
        /// The device.
        path: PathBuf,
        /// Why not.
        error: GeometryError,
    },
    /// The flash tier could not be started.
    #[error("the flash tier {}: {error}", path.display())]
    Flash {
        /// The device.
        path: PathBuf,
        /// Why.
        error: LogError,
    },
    /// Memory for blocks cannot be allocated.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Threads, doorbells or random numbers cannot be obtained.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// `FOREBAY_IO` is set to something unknown.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
    /// Dirty data could not be destaged.
    #[error("{what} failed: {why}{}; {left}", each(stores))]
    Destage {
        /// The destage, or the stop.
        what: &'static str,
        /// Why.
        why: DestageFailure,
        /// The stores that lack dirty data and fail.
        stores: Vec<FailingStore>,
        /// Where the data are, or which are lost.
        left: DirtyLeft,
    },
}

fn each(stores: &[FailingStore]) -> String {
    stores.iter().map(|store| format!("; {store}")).collect()
}

/// Names the volumes of stores, after "the backing store".
fn no_answer(names: &[String]) -> String {
    match names {
        [] => "no device operation completed".to_owned(),
        names => format!("the backing store{} did not answer", of_volumes(names)),
    }
}

fn of_volumes(names: &[String]) -> String {
    match names {
        [name] => format!(" of volume {name}"),
        names => format!("s of volumes {}", names.join(", ")),
    }
}

fn held(volumes: &[HeldVolume]) -> String {
    volumes.iter().map(HeldVolume::to_string).collect::<Vec<_>>().join(", ")
}

fn keys(problems: &[Problem]) -> String {
    let words = problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message));
    words.collect::<Vec<_>>().join("; ")
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
