//! `[cache]`.

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// The cache itself: how large its first tier is and what it promises about writes.
    pub struct Cache {
        /// Size of a cached block: a power of two from 4KiB to 64KiB.
        block_size: Size = "4KiB";
        /// Memory for cached data, the first tier. Bookkeeping comes on top: 56 bytes for each block in memory (69 with
        /// flash in the log layout, 94 in the slots layout; some 6 more below 256MiB; under other replacement policies than
        /// `lru` up to 37 more), and for each block on flash 49 bytes (in the slots layout 66). A server takes another 31
        /// bytes for each block in memory. A shard has 16,776,063 blocks in memory at most: just less than 64GiB in blocks
        /// of 4KiB, and the slots layout takes one shard.
        dram: Size = "256MiB";
        /// What is written where, and when.
        write_policy: WritePolicy = "write-through";
        /// When a write is acknowledged, under the policies that keep dirty data. Unset means
        /// `"flash"` where there is a `[flash]` section and `"dram"` where there is none.
        acknowledge: Option<Acknowledge> = unset;
        /// What happens to a write that covers a part of a block.
        partial: Partial = "mask";
        /// How memory and flash share the blocks. All but `exclusive` need a `[flash]` section.
        relation: Relation = "exclusive";
    }
}

impl Cache {
    /// Number of block-sized slots that `dram` has room for.
    pub fn dram_blocks(&self) -> u64 {
        self.dram.bytes() / self.block_size.bytes()
    }
}

choice! {
    /// What is written where, and when.
    pub enum WritePolicy: "write policy" {
        /// Writes go to the cache and to the backing store before they are acknowledged.
        WriteThrough = "write-through",
        /// Reads are cached; a write goes to the backing store and drops the block.
        ReadOnly = "read-only",
        /// Writes are cached and reach the backing store later; reads of other blocks pass by.
        WriteOnly = "write-only",
        /// Read-only, by the name that other caches give it: writes go around.
        WriteAround = "write-around",
        /// Writes are kept in the cache and reach the backing store later, in any order.
        WriteBack = "write-back",
    }
}

impl WritePolicy {
    /// Whether the cache holds data that the backing store lacks.
    pub const fn keeps_dirty_data(self) -> bool {
        matches!(self, WritePolicy::WriteOnly | WritePolicy::WriteBack)
    }
}

choice! {
    /// When a write is acknowledged.
    pub enum Acknowledge: "acknowledgement" {
        /// Once it is in the flash log: it survives the end of the process.
        Flash = "flash",
        /// Once it is in memory: the export is a disk with a volatile write cache, and only
        /// FLUSH and FUA make data durable.
        Dram = "dram",
    }
}

choice! {
    /// What happens to a write that covers a part of a block.
    pub enum Partial: "handling of partial blocks" {
        /// Remember which sixteenths of the block are valid and dirty; nothing is read.
        Mask = "mask",
        /// Read the rest of the block from the backing store first, as the literature does.
        Fill = "fill",
    }
}

choice! {
    /// How memory and flash share the blocks.
    pub enum Relation: "relation of the tiers" {
        /// A miss fills memory; what leaves memory enters flash, and comes back when it is read. A copy that is on
        /// flash stays there meanwhile.
        Exclusive = "exclusive",
        /// What is read from the backing store enters memory and flash at once.
        Inclusive = "inclusive",
        /// A miss fills memory; what leaves memory enters flash, and the rest of its line is fetched there. With the
        /// admission policy `always`.
        Layered = "layered",
        /// A miss fills memory with the block and flash with its line, which is fetched ahead. With the admission
        /// policy `always`.
        Dual = "dual",
        /// Memory caches what is read, flash what is written; nothing leaves one for the other. With
        /// write-back that flash acknowledges.
        EticaNpe = "etica-npe",
        /// As `etica-npe`, but flash changes at the end of an interval only: the least popular blocks leave it, and the most
        /// popular ones that it does not have enter, as `[etica]` says. A write of a block that flash does not have
        /// goes to the backing store. In the slots layout, with the admission policy `always`.
        Etica = "etica",
        /// Flash alone caches, reads and writes; memory is used on the way. With write-back that flash
        /// acknowledges, or read-only.
        Eci = "eci",
    }
}
