//! `[flash]`.

use std::path::PathBuf;

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// The flash tier: one log on one device. Without this section the cache is memory only.
    pub struct Flash {
        /// A device, or a file that is created.
        path: PathBuf = required;
        /// How much of it to use. Unset means all of it; a file that is to be created needs it.
        size: Option<Size> = unset;
        /// How blocks are laid out.
        layout: FlashLayout = "log";
        /// How much is filled, sealed and reclaimed as one: a power of two, whole blocks.
        region_size: Size = "16MiB";
        /// The most that is written as one batch with one header.
        batch_size: Size = "256KiB";
        /// How much of the backing store one entry of the activity log covers: extents that
        /// take writes around the log are marked durably first.
        activity_extent: Size = "8MiB";
        /// A `[shape.NAME]` or a device of the catalogue to slow it down to.
        shape: Option<String> = unset;
    }
}

choice! {
    /// How blocks are laid out on flash.
    pub enum FlashLayout: "flash layout" {
        /// A log of self-describing batches, written sequentially.
        Log = "log",
        /// Fixed places and a journal of the mapping: what the planner's formulas assume.
        Slots = "slots" later,
    }
}
