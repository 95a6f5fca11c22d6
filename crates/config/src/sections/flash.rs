//! `[flash]`.

use std::path::PathBuf;

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// The flash tier: one log on one device. Without this section the cache is memory only.
    pub struct Flash {
        /// A device, or a file that is created.
        path: PathBuf = required;
        /// How much of it to use. Unset means all of it; a file that is to be created needs it. A cache
        /// has 2^31 - 1 blocks at most (8 TiB in blocks of 4KiB); more are refused. Of a device, 2^32 pages
        /// are used at most: 16 TiB in pages of 4KiB.
        size: Option<Size> = unset;
        /// How blocks are laid out.
        layout: FlashLayout = "log";
        /// Unit of writing, to which headers and data are aligned: a power of two from 4KiB to
        /// 64KiB, best the device's page.
        page_size: Size = "4KiB";
        /// How much is filled, sealed and reclaimed as one: a power of two. Unset means 16MiB,
        /// and less on a device that would have fewer than 128 regions, down to 512KiB. In the layout
        /// slots it divides the journal; unset means a sixteenth of that.
        region_size: Option<Size> = unset;
        /// Regions kept free, so that a log full of dirty blocks can still be reclaimed. The
        /// layout slots always keeps one.
        regions_reserved: u32 = 2;
        /// Which records of a region are kept when it is reclaimed, in the layout log: they are written again at
        /// its head, in half a region at most, while there is room. Unset means `"frequency"`. The layout slots,
        /// which replaces block by block, in the order of use, does not take it.
        replacement: Option<FlashReplacement> = unset;
        /// The reading of a block from flash at which it moves to memory, 1 to 255, in the layout log. Until
        /// then it is read from flash each time, and takes nobody's place in memory. Unset means 1. The
        /// layout slots does not take it.
        promote_after: Option<u32> = unset;
        /// Under the relations `layered` and `dual`: the bytes that lie together and enter flash together, a power of
        /// two from a block to 1MiB. Unset means 1MiB. Blocks are fetched for that as far as frames of memory are
        /// free. The other relations do not take it.
        line_size: Option<Size> = unset;
        /// The most data that is written as one batch with one header.
        batch_size: Size = "1MiB";
        /// Most batches being written at once, 1 to 255.
        batches_in_flight: u32 = 4;
        /// How much of the backing store one entry of the activity log covers: extents that
        /// take writes around the log are marked durably first.
        activity_extent: Size = "8MiB";
        /// Most extents marked at once, 1 to 7000, with a larger `page_size` up to 32768. More of them cost writes that are scattered
        /// over the backing store fewer updates of the log, and a crash more of the cache: clean
        /// blocks in marked extents are not trusted after it.
        activity_extents: u32 = 1024;
        /// A `[shape.NAME]` or a device by name, such as "san", to slow it down to.
        shape: Option<String> = unset;
    }
}

choice! {
    /// Which records of the log are kept when their region is reclaimed.
    pub enum FlashReplacement: "replacement on flash" {
        /// None: first in, first out.
        Fifo = "fifo",
        /// Those that were read from flash since they were written, once for each such time.
        SecondChance = "second-chance",
        /// Those that were read from flash twice or more, those that were read most first; half of the readings
        /// count the next time.
        Frequency = "frequency",
    }
}

choice! {
    /// How blocks are laid out on flash.
    pub enum FlashLayout: "flash layout" {
        /// A log of self-describing batches, written sequentially.
        Log = "log",
        /// Fixed places of a block each and a journal of the mapping: exact replacement, as the
        /// planner's formulas assume, at the price of scattered writes. With one shard only.
        Slots = "slots",
    }
}
