//! `[[volume]]`.

use crate::schema::{choice, section};
use crate::{Size, TimeSpan};

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
        /// Volumes of one group keep one order of writes among them.
        group: Option<String> = unset, later;
        /// Importance, 1 for the highest. The replacement policy `priority-lru` goes by it, and takes as
        /// many classes as its parameter `classes` says.
        priority: u32 = 1;
        /// Whether the section `[bypass]` holds for the volume. A store that is as fast as flash at what is
        /// sequential, or gains from having its writes gathered, is better off with false.
        bypass: bool = true;
        /// How much of each tier the volume gets.
        partition: Option<Partition> = unset, later;
        /// How far the store may lag behind.
        staleness: Option<Staleness> = unset, later;
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
        /// Nothing: the device as it is. A foreign write cannot be detected.
        None = "none",
    }
}

section! {
    /// How much of each tier a volume gets.
    pub struct Partition {
        /// Memory.
        dram: Size = 0;
        /// Flash.
        flash: Size = 0;
    }
}

section! {
    /// How far a backing store may lag behind; whichever bound is reached first counts.
    pub struct Staleness {
        /// Number of dirty blocks; 0 is write-through.
        blocks: Option<u64> = unset;
        /// Dirty data.
        bytes: Option<Size> = unset;
        /// Age of the oldest dirty data.
        age: Option<TimeSpan> = unset;
    }
}
