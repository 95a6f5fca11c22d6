//! `[[volume]]`.

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// One exported disk and its backing store. A server needs at least one volume.
    pub struct Volume {
        /// The export name that clients ask for: 1 to 4096 bytes, unique.
        name: String = required;
        /// The backing store: a device, a file, or an export of an NBD server (`nbd://HOST/EXPORT`,
        /// `nbd+unix:///EXPORT?socket=PATH`).
        backing: String = required;
        /// Where the store holds Forebay's header.
        layout: BackingLayout = "offset";
        /// Exported size, in whole 512-byte sectors. Unset means the whole store; a file that does not exist
        /// needs a size.
        size: Option<Size> = unset;
        /// Whether the volume rejects writes.
        read_only: bool = false;
        /// Priority class of the volume for the replacement policy `priority-lru`; 1 is the highest. The
        /// policy's parameter `classes` sets the number of classes.
        priority: u32 = 1;
        /// Whether the section `[bypass]` applies to the volume. Set it to `false` if the store is slow even
        /// for sequential access, or if the store is faster when the cache coalesces writes.
        bypass: bool = true;
        /// Slows the store down to the speed of a modelled device. The value is the NAME of a
        /// `[shape.NAME]`, or a device such as "san".
        shape: Option<String> = unset;
    }
}

choice! {
    /// Where a backing store holds Forebay's header.
    pub enum BackingLayout: "backing layout" {
        /// At the start. The data begins at 1 MiB, so the store cannot be mounted by accident.
        Offset = "offset",
        /// In the last MiB, so the export is 1 MiB smaller than the store. If the store already holds data,
        /// use `--format` the first time that you serve it, and again after you enlarge it.
        Tail = "tail",
        /// Nowhere: the store contains only the volume's data. Forebay notices writes by other programs only
        /// after a clean stop or a quiesce.
        None = "none",
    }
}
