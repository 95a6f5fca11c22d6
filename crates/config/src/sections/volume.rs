//! `[[volume]]`.

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// One exported disk and the store behind it. A server needs at least one.
    pub struct Volume {
        /// The name clients ask for: 1 to 4096 bytes, unique.
        name: String = required;
        /// The store behind it: a device, a file, or an export of an NBD server
        /// (`nbd://HOST/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`).
        backing: String = required;
        /// Where the store keeps what belongs to Forebay.
        layout: BackingLayout = "offset";
        /// Exported size. Unset means all that the store has; a file that is to be created
        /// needs it. Whole 512-byte sectors.
        size: Option<Size> = unset;
        /// Refuse writes.
        read_only: bool = false;
        /// Importance, 1 for the highest. The replacement policy `priority-lru` goes by it, and takes as
        /// many classes as its parameter `classes` says.
        priority: u32 = 1;
        /// Whether the section `[bypass]` holds for the volume. A store that is as fast as flash at what is
        /// sequential, or gains from having its writes gathered, is better off with false.
        bypass: bool = true;
        /// A `[shape.NAME]` or a device by name, such as "san", to slow the store down to.
        shape: Option<String> = unset;
    }
}

choice! {
    /// Where a backing store keeps what belongs to Forebay.
    pub enum BackingLayout: "backing layout" {
        /// A header first and data from 1 MiB on: it cannot be mounted by accident.
        Offset = "offset",
        /// Header in the last MiB; the export is that much smaller. A store with data takes `--format` once, and again when it was made longer.
        Tail = "tail",
        /// Nothing: the device as it is. Writes by others are noticed after a clean stop or a quiesce only.
        None = "none",
    }
}
