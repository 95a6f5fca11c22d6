//! Notices to the user that are not errors.

use std::fmt;
use std::path::PathBuf;

use forebay_config::distinct_sizes;
use forebay_device::file::Notice;
use forebay_flash::Older;

/// A notice about an engine for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EngineNotice {
    /// About a device.
    Device(Notice),
    /// A setting of the configuration differs from what the flash tier was formatted with, and has
    /// no effect until it is formatted again.
    Formatted {
        /// The tier.
        path: PathBuf,
        /// The key in the section `[flash]`.
        key: &'static str,
        /// Bytes that the tier was formatted with.
        formatted: u64,
        /// Bytes with which it would be formatted now.
        configured: u64,
    },
    /// A backing store was used without Forebay, or released for such use.
    Changed {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// Its header says so: it was released, or served without its flash tier. Otherwise others
        /// wrote to it.
        released: bool,
    },
    /// A backing store, or the flash tier, is an older copy of itself.
    Older {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// Which of the two.
        which: Older,
    },
    /// A volume has become smaller, or larger where its former size was no multiple of the block
    /// size.
    Resized {
        /// Name of the volume.
        volume: String,
        /// Its former size in bytes.
        former: u64,
    },
    /// A backing store was an older copy of itself, and the missing data were written to it from
    /// flash.
    Completed {
        /// Name of the volume.
        volume: String,
        /// Its backing store.
        path: PathBuf,
        /// Blocks that were written.
        blocks: u64,
    },
    /// More memory is configured than is available.
    Memory {
        /// Bytes for blocks.
        wanted: u64,
        /// Bytes that are available now.
        available: u64,
    },
}

impl From<Notice> for EngineNotice {
    fn from(notice: Notice) -> Self {
        EngineNotice::Device(notice)
    }
}

impl fmt::Display for EngineNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineNotice::Device(notice) => notice.fmt(f),
            EngineNotice::Formatted { path, key, formatted, configured } => write!(
                f,
                "{}: the flash tier keeps the {key} it was formatted with ({}); the configured \
                 {key} ({}) takes effect when you format the tier again",
                path.display(),
                distinct_sizes(*formatted, *configured)[0],
                distinct_sizes(*formatted, *configured)[1]
            ),
            EngineNotice::Changed { volume, path, released } => write!(
                f,
                "volume {volume}: {} {}; the volume's data on the flash tier was dropped",
                path.display(),
                match released {
                    true =>
                        "was released, or was served without its flash tier after the tier had \
                         failed",
                    false => "has been used without Forebay since the last stop or quiesce",
                }
            ),
            EngineNotice::Older { volume, path, which: Older::Store } => write!(
                f,
                "volume {volume}: {} is an older copy of the store; the copy is complete and is \
                 served as it is; the volume's data on the flash tier was dropped",
                path.display()
            ),
            EngineNotice::Older { volume, path, which: Older::Flash } => write!(
                f,
                "volume {volume}: the flash tier is an older copy; {} is complete, so the volume's \
                 data on the flash tier was dropped",
                path.display()
            ),
            EngineNotice::Resized { volume, former } => write!(
                f,
                "volume {volume} was {former} bytes long and now has a different size; its clean \
                 cached data was dropped, because data of the store beyond the smaller size may \
                 have changed"
            ),
            EngineNotice::Completed { volume, path, blocks } => write!(
                f,
                "volume {volume}: {} was older than the flash tier, which still held all the data \
                 that the store lacked; wrote {blocks} block{} to the store again",
                path.display(),
                if *blocks == 1 { " was" } else { "s were" }
            ),
            EngineNotice::Memory { wanted, available } => write!(
                f,
                "cache.dram is {}, but only {} of memory is available: the system may run out of \
                 memory as the cache fills",
                distinct_sizes(*wanted, *available)[0],
                distinct_sizes(*wanted, *available)[1]
            ),
        }
    }
}
