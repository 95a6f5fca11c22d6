//! Notices to the user that are not errors.

use std::fmt;
use std::path::PathBuf;

use forebay_config::distinct_sizes;
use forebay_device::file::Notice;
use forebay_flash::{Older, TierId};

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
        /// Its size in bytes.
        size: u64,
    },
    /// A new flash tier was created for stores that were last served with another one. Nothing is
    /// dirty on that one.
    NewTier {
        /// The new tier.
        path: PathBuf,
        /// The other tier.
        former: TierId,
        /// Names of the volumes.
        volumes: Vec<String>,
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
            EngineNotice::Resized { volume, former, size } => write!(
                f,
                "the size of volume {volume} has changed from {} to {}; its clean cached data was \
                 dropped, because data on the store beyond the smaller size may have changed",
                distinct_sizes(*former, *size)[0],
                distinct_sizes(*former, *size)[1]
            ),
            EngineNotice::NewTier { path, former, volumes } => write!(
                f,
                "{}: created a new, empty flash tier. {} last served with the flash tier {}, whose \
                 blocks are now out of date; no data was lost, because none of them was dirty",
                path.display(),
                match &volumes[..] {
                    [one] => format!("Volume {one} was"),
                    all => format!("Volumes {} were", all.join(", ")),
                },
                former
            ),
            EngineNotice::Completed { volume, path, blocks } => write!(
                f,
                "volume {volume}: {} was older than the flash tier, which still held all the data \
                 that the store lacked; wrote {blocks} block{} to the store again",
                path.display(),
                if *blocks == 1 { "" } else { "s" }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_about_a_new_tier_names_the_former_one() {
        let former =
            TierId::new(*b"\0\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        let notice = |names: &[&str]| {
            let volumes = names.iter().map(|&name| name.to_owned()).collect();
            EngineNotice::NewTier { path: "/dev/x".into(), former, volumes }.to_string()
        };
        let one = "/dev/x: created a new, empty flash tier. Volume a was last served with the \
                   flash tier 00112233-4455-6677-8899-aabbccddeeff, whose blocks are now out of \
                   date; no data was lost, because none of them was dirty";
        assert_eq!(notice(&["a"]), one);
        assert!(notice(&["a", "b"]).contains("Volumes a, b were last served"));
    }

    #[test]
    fn sizes_and_blocks_are_given_in_words() {
        let resized =
            EngineNotice::Resized { volume: "a".to_owned(), former: 1 << 20, size: 2 << 20 };
        let says = "the size of volume a has changed from 1 MiB to 2 MiB; its clean cached data";
        assert!(resized.to_string().starts_with(says), "{resized}");
        for (blocks, says) in
            [(1, "wrote 1 block to the store"), (2, "wrote 2 blocks to the store")]
        {
            let (volume, path) = ("a".to_owned(), "/dev/x".into());
            let notice = EngineNotice::Completed { volume, path, blocks }.to_string();
            assert!(notice.contains(says), "{notice}");
        }
    }
}
