//! `[cache]`.

use crate::Size;
use crate::schema::{choice, section};

section! {
    /// Block size, memory, write policy, and how the tiers share the blocks.
    pub struct Cache {
        /// Size of a cached block: a power of two from 4KiB to 64KiB.
        block_size: Size = "4KiB";
        /// Memory for cached data: the first tier. Metadata takes additional memory. For each block in
        /// memory, it takes 56 bytes without flash, 69 bytes with flash in the log layout, and 94 bytes with
        /// flash in the slots layout. Add about 6 bytes if `dram` is less than 256MiB, up to 37 bytes with a
        /// replacement policy other than `lru`, and 31 bytes in a server. For each block on flash, metadata
        /// takes 49 bytes in the log layout and 66 bytes in the slots layout. A shard holds at most
        /// 16,776,063 blocks in memory: just under 64GiB with 4KiB blocks. The slots layout supports only one
        /// shard.
        dram: Size = "256MiB";
        /// Where writes go, and when.
        write_policy: WritePolicy = "write-through";
        /// When a write is acknowledged under `write-back` or `write-only`, the policies that keep dirty
        /// data. Unset means `"flash"` with a `[flash]` section and `"dram"` without one.
        acknowledge: Option<Acknowledge> = unset;
        /// How a write that covers only part of a block is handled.
        partial: Partial = "mask";
        /// How memory and flash share the blocks. All values except `exclusive` require a `[flash]` section.
        relation: Relation = "exclusive";
    }
}

impl Cache {
    /// The number of blocks that fit in `dram`.
    pub fn dram_blocks(&self) -> u64 {
        self.dram.bytes() / self.block_size.bytes()
    }
}

choice! {
    /// Where writes go, and when.
    pub enum WritePolicy: "write policy" {
        /// Writes go to the cache and to the backing store before they are acknowledged.
        WriteThrough = "write-through",
        /// Reads are cached; a write goes to the backing store and drops the cached block.
        ReadOnly = "read-only",
        /// Writes are cached and reach the backing store later. Reads of blocks that are not in the cache
        /// bypass it.
        WriteOnly = "write-only",
        /// The name that other caches use for `read-only`: writes go around the cache.
        WriteAround = "write-around",
        /// Writes are cached and reach the backing store later, in any order.
        WriteBack = "write-back",
    }
}

impl WritePolicy {
    /// Whether the cache may hold data that the backing store lacks.
    pub const fn keeps_dirty_data(self) -> bool {
        matches!(self, WritePolicy::WriteOnly | WritePolicy::WriteBack)
    }

    /// For a policy that keeps no dirty data: the reason why `acknowledge` has no effect, to follow
    /// the name of the key.
    pub fn refuses_acknowledge(self) -> Option<String> {
        (!self.keeps_dirty_data()).then(|| {
            format!(
                "has no effect with write_policy = \"{self}\", which acknowledges a write once \
                 the backing store has completed it"
            )
        })
    }
}

choice! {
    /// When a write is acknowledged.
    pub enum Acknowledge: "acknowledgement" {
        /// Once the write is on flash, where it survives if the server crashes or is killed.
        Flash = "flash",
        /// Once the write is in memory. The export then behaves like a disk with a volatile write cache: only
        /// FLUSH and FUA make data durable.
        Dram = "dram",
    }
}

choice! {
    /// How a write that covers only part of a block is handled.
    pub enum Partial: "partial-block mode" {
        /// Forebay tracks which granules of the block are valid and which are dirty, without reading the rest of
        /// the block. A granule is a sixteenth of the block, but at least 512 bytes.
        Mask = "mask",
        /// Forebay first reads the rest of the block from the backing store, as caches in the literature do.
        Fill = "fill",
    }
}

choice! {
    /// How memory and flash share the blocks.
    pub enum Relation: "tier relation" {
        /// A block that misses is read into memory. Blocks that leave memory enter flash, and return to memory when they are
        /// read. While such a block is in memory, flash keeps its copy.
        Exclusive = "exclusive",
        /// A block that is read from the backing store enters memory and flash at the same time.
        Inclusive = "inclusive",
        /// A block that misses is read into memory. A block that leaves memory enters flash, and the rest of its line (see
        /// `flash.line_size`) is fetched into flash. Requires the admission policy `always`.
        Layered = "layered",
        /// On a miss, the block enters memory, and its whole line (see `flash.line_size`) enters flash.
        /// Requires the admission policy `always`.
        Dual = "dual",
        /// Memory caches reads and flash caches writes. A block enters flash only when it is written.
        /// Requires write-back with `acknowledge = "flash"`.
        EticaNpe = "etica-npe",
        /// Like `etica-npe`, but blocks enter and leave flash only at the end of a round (see `[etica]`): the
        /// least popular blocks leave, and the most popular blocks that are not on flash enter. A write to a
        /// block that is not on flash goes to the backing store. Requires the slots layout and the admission
        /// policy `always`.
        Etica = "etica",
        /// Flash caches both reads and writes; memory keeps no blocks. Requires write-back with
        /// `acknowledge = "flash"`, or read-only.
        Eci = "eci",
    }
}
