//! Counters. They only grow, except the documented gauges.
//!
//! A counter is declared only here: the sums over volumes include it, and a counter of
//! [`CacheStats`] is in each document that the list at the end of this file names.

use core::iter::Sum;
use core::ops::AddAssign;

/// Counters that are added up field by field.
macro_rules! sums {
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $counter:ident: $kind:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $counter: $kind,)*
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$counter += other.$counter;)*
            }
        }
    )*};
}

sums! {
    /// Block accesses of one volume, by where they were found.
    pub struct Hits {
        /// Found in DRAM.
        pub tier1: u64,
        /// Found on flash.
        pub tier2: u64,
        /// Found in a fetch from the backing store that another access had started: waited for, and
        /// not fetched again.
        pub delayed: u64,
        /// Not found, or found and dropped: under policies that allocate on reads only, a write
        /// drops the block that it finds.
        pub miss: u64,
    }

    /// The counters of one volume.
    pub struct VolumeStats {
        /// Read requests of clients.
        pub reads: u64,
        /// Write requests.
        pub writes: u64,
        /// Trim and write-zeroes requests.
        pub zeroes: u64,
        /// Flush requests.
        pub flushes: u64,
        /// Requests to bring data into the cache. No other counter of requests or block accesses
        /// includes them.
        pub prefetches: u64,
        /// Requests answered with an error.
        pub errors: u64,
        /// Bytes read by clients.
        pub read_bytes: u64,
        /// Bytes written by clients.
        pub write_bytes: u64,
        /// Block accesses by reads.
        pub read_hits: Hits,
        /// Block accesses by writes, trims and zeroings.
        pub write_hits: Hits,
        /// Bytes read from the backing store.
        pub backing_read_bytes: u64,
        /// Bytes written to the backing store.
        pub backing_write_bytes: u64,
        /// Bytes zeroed on the backing store.
        pub backing_zero_bytes: u64,
        /// Syncs of the backing store.
        pub backing_syncs: u64,
        /// Gauge: blocks newer than the backing store.
        pub dirty_blocks: u64,
        /// Largest value of that gauge. The sum over volumes is a bound: they need not have had
        /// theirs at the same time.
        pub dirty_blocks_max: u64,
        /// Failed operations on the backing store.
        pub backing_errors: u64,
    }
}

impl VolumeStats {
    /// Requests of all kinds, except prefetches.
    pub const fn requests(&self) -> u64 {
        self.reads + self.writes + self.zeroes + self.flushes
    }
}

impl<'a> Sum<&'a VolumeStats> for VolumeStats {
    fn sum<I: Iterator<Item = &'a VolumeStats>>(volumes: I) -> VolumeStats {
        volumes.fold(VolumeStats::default(), |mut sum, volume| {
            sum += *volume;
            sum
        })
    }
}

/// Counters whose documentation is also available at run time, in [`ABOUT`](CacheStats::ABOUT).
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[doc = $doc:literal])+ pub $counter:ident: u64,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $counter: u64,)*
        }

        impl $name {
            /// Each counter's name, and the lines of its documentation.
            pub const ABOUT: &'static [(&'static str, &'static [&'static str])] =
                &[$((stringify!($counter), &[$($doc),+]),)*];
        }
    };
}

counters! {
    /// What the cache as a whole has done; also the coverage counters of the adversary: each race
    /// and each rare branch has one.
    pub struct CacheStats {
        /// Clean blocks handed to the log because they left memory.
        pub demotions: u64,
        /// Blocks that left memory while flash had a valid record of them, which was already there
        /// or was written because they were leaving.
        pub left_on_flash: u64,
        /// Blocks moved from flash to memory.
        pub promotions: u64,
        /// Blocks that were read from flash but not promoted, because they had not been read often
        /// enough.
        pub read_through: u64,
        /// Blocks that the [admission policy](docs/policies.md#what-enters-flash) let into flash
        /// when they left memory or were written.
        pub admitted: u64,
        /// Blocks that the admission policy did not let into flash.
        pub not_admitted: u64,
        /// Writes that went to the backing store because their block was not admitted.
        pub written_around: u64,
        /// Clean blocks that entered flash when they were read, not when they left memory
        /// ([relations of the tiers](docs/policies.md#how-memory-and-flash-share-the-blocks)).
        pub entered_when_read: u64,
        /// Blocks that were fetched with the other blocks of their line.
        pub line_blocks: u64,
        /// Lines that were fetched only in part because no frame was free.
        pub lines_short: u64,
        /// Writes whose blocks left memory as soon as they were on flash.
        pub written_in_transit: u64,
        /// Slots layout, relation `etica`: rounds of [its queues](docs/policies.md#eticas-queues).
        pub queue_rounds: u64,
        /// Slots layout, relation `etica`: blocks that the queues removed from flash.
        pub queue_evictions: u64,
        /// Slots layout, relation `etica`: blocks that the queues admitted to flash.
        pub queue_promotions: u64,
        /// Slots layout, relation `etica`: blocks that the queues chose but could not admit to
        /// flash, because the blocks were in use or no frame was free.
        pub queue_skips: u64,
        /// Reads of blocks that [bypassed the cache](docs/policies.md#what-bypasses-the-cache):
        /// parts of sequential streams.
        pub bypassed_reads: u64,
        /// Writes of blocks that bypassed the cache: parts of sequential streams, and writes to
        /// volumes with too much dirty data.
        pub bypassed_writes: u64,
        /// Dirty blocks that left memory for the backing store because the admission policy did not
        /// admit them to flash.
        pub destaged_around: u64,
        /// Blocks that left the cache.
        pub evictions: u64,
        /// Clean blocks that the log dropped with their region.
        pub reclaim_dropped: u64,
        /// Records that were replaced by a newer record of their block, or became invalid, before
        /// their region was reclaimed. Until then, they are holes in the log.
        pub records_outdated: u64,
        /// Log layout: records that were inserted again when their region was reclaimed.
        pub reinserted: u64,
        /// Log layout: records that were worth inserting again, but for which there was no space.
        pub reinsertions_refused: u64,
        /// Blocks destaged from flash to the backing store.
        pub destaged: u64,
        /// Pieces of requests that waited for a transfer of their block.
        pub waits_block: u64,
        /// Pieces of requests that waited for a frame or an index entry.
        pub waits_room: u64,
        /// Times that the cache had the log note that data bypass it.
        pub log_bypasses: u64,
        /// Times that a request waited for its own blocks before it continued, because too many of
        /// them were in progress.
        pub pauses: u64,
        /// Times that a request found no place for its next block in a shard.
        pub waits_place: u64,
        /// Writes that found their frame pinned by an outgoing transfer.
        pub write_met_outgoing: u64,
        /// Writes that arrived during a fetch of their block.
        pub write_met_fetch: u64,
        /// Blocks hit again while they were leaving memory.
        pub rescued: u64,
        /// Slots layout: blocks evicted from flash. Their data can stay there for a while.
        pub flash_evictions: u64,
        /// Slots layout: accesses to blocks that had been evicted from flash but whose data was
        /// still there.
        pub flash_rescued: u64,
        /// Slots layout: dirty records that were evicted from flash because their blocks were also
        /// in memory, in place of blocks that were only on flash.
        pub copies_given_up: u64,
        /// Slots layout: regions that were destaged and dropped, because there was no room to move
        /// their mappings.
        pub regions_dropped: u64,
        /// Reads from flash that found a wrong checksum.
        pub flash_corrupt: u64,
        /// Reads from flash that were overtaken by the reclaim of their region.
        pub flash_read_overtaken: u64,
        /// Merges of a block's parts from flash or the backing store into a partly valid frame.
        pub merges: u64,
        /// Writes and zeroings that covered only part of a granule, so that the rest had to be
        /// fetched first.
        pub read_modify_writes: u64,
        /// Zeroings that went to the backing store as ranges.
        pub range_zeroes: u64,
        /// Accesses that waited for such a range.
        pub waits_range: u64,
        /// Trims and zeroings that waited for another one of the same blocks to end.
        pub waits_zeroing: u64,
        /// Records on flash that became invalid because a write bypassed flash.
        pub poisoned: u64,
        /// Records voided alone before a write that bypassed flash, because their extents could not
        /// be marked.
        pub voided_alone: u64,
        /// Cache operations that failed: fetches, appends, destages and syncs.
        pub transfer_errors: u64,
        /// Destages of an older flash version while DRAM held a newer one.
        pub destaged_under_newer: u64,
        /// Blocks destaged from flash in one write with their neighbours.
        pub destaged_together: u64,
        /// Such writes that had to be split, because a record was overtaken or could not be read.
        pub destage_gaps: u64,
        /// Blocks destaged from memory because their older record on flash could not be read.
        pub destaged_after_loss: u64,
        /// Entries written to note that a block's newest data is lost, before the region of its
        /// record was reused.
        pub carried_lost: u64,
        /// Number of times that blocks were destaged for all volumes except those with [slow
        /// stores](docs/fault-model.md#a-backing-store-that-is-slow).
        pub cleanings_parted: u64,
        /// Dirty records of volumes with a failing backing store that were moved to the head of the
        /// log before their region was reused.
        pub carried: u64,
        /// Requests that waited because the dirty blocks of their volume filled its share of flash.
        pub waits_share: u64,
        /// Number of times that a volume was suspended: its writes began to fail immediately
        /// because its backing store had failed for too long.
        pub suspensions: u64,
        /// Number of times that failing stores left no room on flash for any volume.
        pub jams: u64,
        /// Appends to the log that were refused because their volume was suspended.
        pub appends_refused: u64,
        /// Number of times that a failing backing store was tried again.
        pub probes: u64,
        /// Number of times that a failing store accepted an operation again.
        pub stores_recovered: u64,
        /// Volumes that continue without the flash tier because it failed.
        pub passed_through: u64,
        /// Times that a request or a piece waited until its volume continued without the failed
        /// flash tier.
        pub waits_void: u64,
        /// Pieces that were written directly to the store because the log had failed or had no
        /// room, and held nothing of the block.
        pub bypassed_log: u64,
        /// Stamps requested for headers of backing stores.
        pub stamps: u64,
        /// Destage rounds that had to be repeated.
        pub destage_retries: u64,
        /// At the start: records that waited for a place in the index until all were known.
        pub recovered_spilled: u64,
        /// At the start: clean records that were disowned because the index has no room for them.
        pub recovered_disowned: u64,
        /// Blocks dropped because their backing store was given away.
        pub dropped: u64,
        /// Regions that were added to a destage because a dirty record had moved there.
        pub destages_followed: u64,
        /// Destages that made requests wait, to catch up with them.
        pub destages_held: u64,
        /// Destages repeated because records were marked dirty at their end.
        pub destages_repeated: u64,
        /// Destages of everything that failed because a store did not answer.
        pub destages_silent: u64,
    }
}

/// Counters by name, in the order of a document.
macro_rules! documents {
    ($($(#[$doc:meta])* pub fn $document:ident { $($counter:ident,)* })*) => {
        impl CacheStats {$(
            $(#[$doc])*
            pub fn $document(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }
        )*}
    };
}

documents! {
    /// What a server reports.
    pub fn served {
        demotions, promotions, read_through, admitted, not_admitted, written_around,
        destaged_around, entered_when_read, line_blocks, lines_short, written_in_transit,
        queue_rounds, queue_evictions, queue_promotions, queue_skips, bypassed_reads, bypassed_writes, evictions, reclaim_dropped, reinserted,
        reinsertions_refused, records_outdated, destaged, flash_corrupt, transfer_errors,
        destage_retries, poisoned, merges, read_modify_writes,
        waits_share, suspensions, appends_refused, probes, stores_recovered, jams, carried, cleanings_parted,
    }

    /// What a simulation reports.
    pub fn simulated {
        demotions, left_on_flash, promotions, read_through, admitted, not_admitted,
        written_around, destaged_around, entered_when_read, line_blocks, lines_short,
        written_in_transit, queue_rounds, queue_evictions, queue_promotions, queue_skips,
        bypassed_reads, bypassed_writes, evictions, reclaim_dropped,
        reinserted, reinsertions_refused, records_outdated, destaged, rescued, flash_evictions,
        copies_given_up, flash_rescued, waits_block, waits_room, merges, read_modify_writes, transfer_errors,
        waits_share, suspensions, appends_refused, probes, stores_recovered, jams, carried, cleanings_parted,
    }
}
