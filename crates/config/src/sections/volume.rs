//! `[[volume]]`.

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// One exported disk and its backing store. A server needs at least one.
    pub struct Volume {
        /// The name that clients ask for: 1 to 4096 bytes, unique.
        name: String = required;
        /// The backing store: a device, a file, or an export of an NBD server (`nbd://HOST/EXPORT`,
        /// `nbd+unix:///EXPORT?socket=PATH`).
        backing: String = required;
        /// Where the store holds Forebay's header.
        layout: BackingLayout = "offset";
        /// Exported size, in whole 512-byte sectors. Unset means all of the store; a file that does not
        /// exist needs a size.
        size: Option<Size> = unset;
        /// Reject writes.
        read_only: bool = false;
        /// Priority, 1 for the highest. The replacement policy `priority-lru` uses it, and accepts as many
        /// classes as its parameter `classes` says.
        priority: u32 = 1;
        /// Whether the section `[bypass]` applies to the volume. Set false if the store is slow even for
        /// sequential access, or is faster when the cache coalesces its writes.
        bypass: bool = true;
        /// Slow the store down to the speed of a modelled device: the NAME of a `[shape.NAME]`, or a device
        /// such as "san".
        shape: Option<String> = unset;
    }
}

choice! {
    /// Where a backing store holds Forebay's header.
    pub enum BackingLayout: "backing layout" {
        /// At the start, with data from 1 MiB on, so that the store cannot be mounted by accident.
        Offset = "offset",
        /// In the last MiB, so the export is 1 MiB smaller. A store that has data needs `--format` at its
        /// first start, and again after you enlarge the store.
        Tail = "tail",
        /// Nowhere: the device stays unchanged. Forebay notices writes by other programs only after a clean
        /// stop or a quiesce.
        None = "none",
    }
}
