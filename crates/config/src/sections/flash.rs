//! `[flash]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_replacement::{Kind, ParameterError, Parameters, Tier};

use crate::Size;
use crate::schema::{Choice, Value, choice, choose, section};

section! {
    /// The flash tier, on one device. Without this section, the cache uses only memory.
    pub struct Flash {
        /// The device or file. If it is a file that does not exist, Forebay creates it.
        path: PathBuf = required;
        /// How much of the device or file to use. Unset means all of it; a file that does not exist needs a
        /// size. A cache can hold at most 2^31 - 1 blocks (8 TiB with 4KiB blocks); a larger size is
        /// rejected. At most 2^32 pages of a device are used: 16 TiB with 4KiB pages, 2 TiB with 512-byte
        /// pages.
        size: Option<Size> = unset;
        /// How blocks are laid out. Unset means the layout with which the device was formatted, and `"slots"`
        /// for a new device.
        layout: Option<FlashLayout> = unset;
        /// Size of a page, the unit in which flash is written and to which headers and data are aligned: a
        /// power of two from 512 bytes to 64KiB. Unset means 4KiB in the log layout, and for a flash tier of
        /// 2 TiB or more. For a smaller tier in the slots layout, unset means 512 bytes if the device can
        /// write 512 bytes without rewriting adjacent data, and 4KiB otherwise. The simulator assumes that
        /// the device can.
        page_size: Option<Size> = unset;
        /// Size of a region, which is filled, sealed and reclaimed as a unit: a power of two. Unset means
        /// 16MiB; if the device would then have fewer than 128 regions, they are smaller, down to 512KiB. In
        /// the slots layout, regions divide the journal, and unset means a sixteenth of the journal.
        region_size: Option<Size> = unset;
        /// Number of regions that stay free, so that regions can be reclaimed even if the log is full of
        /// dirty blocks. The slots layout always keeps one region free.
        regions_reserved: u32 = 2;
        /// In the log layout: which records of a region the log keeps when it reclaims the region.
        /// The log rewrites these records at its head: at most half a region, and only while the
        /// log has free space. Unset means `"frequency"`. In the slots layout: the replacement
        /// policy of the cells. The policy counts a block as used when it leaves memory and when it
        /// is read from flash. Unset means `"lru"`.
        replacement: Option<FlashReplacement> = unset;
        /// In the slots layout: parameters of the replacement policy, by name; parameters that are not listed
        /// keep their defaults.
        replacement_parameters: BTreeMap<String, u32> = {};
        /// Number of reads from flash after which a block moves to memory: 1 to 255 in the log
        /// layout, 1 to 31 in the slots layout. Until then, the block is read from flash each time
        /// and occupies no frame in memory.
        promote_after: u32 = 1;
        /// In the slots layout, under write-back and the relation `exclusive`: like `promote_after` (1 to
        /// 31), but for blocks whose record on flash is dirty. When such a block moves to memory, the record
        /// stays on flash and occupies a cell that another block could use. While more than a quarter of the
        /// blocks that leave flash are soon needed again, and for a while afterwards, this value therefore
        /// replaces a smaller `promote_after`. The key has no effect if memory is configured to hold more
        /// than a quarter as many blocks as flash, because delaying promotion would then cost more than it
        /// gains. Unset means 2. The log layout does not support the key.
        promote_dirty_after: Option<u32> = unset;
        /// In the slots layout, under write-back: while more than a quarter of the blocks that leave flash
        /// are soon needed again, destage dirty records early if their blocks are also in memory. The two
        /// tiers together then hold more distinct blocks. This adds hits if the workload loops over data that
        /// barely fits, but also adds writes to the backing store. The log layout does not support the key.
        give_up_copies: bool = false;
        /// Under the relations `layered` and `dual`: the size of a line, a power of two from a block to 1MiB.
        /// The blocks of a line enter flash together; the cache fetches them as long as memory has free
        /// frames. Unset means 1MiB. The other relations do not support the key.
        line_size: Option<Size> = unset;
        /// Maximum size of the data in one batch, a group of records that share one header. A header has room
        /// for 128 blocks, or for 17 with 512-byte pages.
        batch_size: Size = "1MiB";
        /// Maximum number of batches being written at once, 1 to 255. Unset means 4 in the log layout, and
        /// 16 in the slots layout, whose batches are smaller.
        batches_in_flight: Option<u32> = unset;
        /// Size of an extent of a backing store, the unit of the activity log. Before a write bypasses flash
        /// and goes to the store, Forebay durably marks the write's extent in this log.
        activity_extent: Size = "8MiB";
        /// Maximum number of extents that are marked at the same time: 1 to 7000 with pages of up
        /// to 4KiB, and up to 32768 with larger pages. With more extents, scattered writes to the
        /// backing store need fewer updates of the activity log, but the cache loses more in a
        /// crash: afterwards, it does not trust clean blocks in marked extents. One sixteenth of
        /// the extents are reserved for volumes with few marked extents, so that their writes do
        /// not wait if a hung backing store holds all the others (with fewer than 16 extents, none
        /// are reserved).
        activity_extents: u32 = 1024;
        /// Slows the flash tier down to the speed of a modelled device. The value is the NAME of a
        /// `[shape.NAME]`, or a device such as "san".
        shape: Option<String> = unset;
    }
}

/// Replacement on flash: in the log layout, which records are kept when their region is reclaimed;
/// in the slots layout, which block is evicted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlashReplacement {
    /// First in, first out, in both layouts.
    Fifo,
    /// The log keeps records that were read from flash.
    SecondChance,
    /// The log keeps records that were read from flash twice or more.
    Frequency,
    /// The log keeps records that are popular among those on flash.
    Popularity,
    /// Slots layout: a policy of `forebay_replacement`.
    Policy(Kind),
}

/// Names for the log layout; the slots layout supports the first one too.
const LOG_CHOICES: [Choice; 4] = [
    Choice {
        name: "fifo",
        doc: &[
            "First in, first out: the log layout keeps no records; the slots layout reuses",
            "cells in order.",
        ],
    },
    Choice {
        name: "second-chance",
        doc: &["Log layout: keeps records that were read from flash since they were last written."],
    },
    Choice {
        name: "frequency",
        doc: &[
            "Log layout: keeps records that were read from flash at least twice, those with the most reads first;",
            "the count of a kept record is then halved.",
        ],
    },
    Choice {
        name: "popularity",
        doc: &[
            "Log layout: keeps the records with the highest popularity, ETICA's measure of reads in quick succession;",
            "the popularity of a kept record is then halved.",
        ],
    },
];

/// Whether the slots layout supports the policy under a name that is not in [`LOG_CHOICES`].
const fn is_further(kind: Kind) -> bool {
    !matches!(kind, Kind::Fifo) && kind.orders(Tier::Slots)
}

const FURTHER: usize = {
    let (mut n, mut all) = (0, 0);
    while all < Kind::ALL.len() {
        n += is_further(Kind::ALL[all]) as usize;
        all += 1;
    }
    n
};

const CHOICES: [(Choice, FlashReplacement); 4 + FURTHER] = {
    let mut choices = [(LOG_CHOICES[0], FlashReplacement::Fifo); 4 + FURTHER];
    choices[1] = (LOG_CHOICES[1], FlashReplacement::SecondChance);
    choices[2] = (LOG_CHOICES[2], FlashReplacement::Frequency);
    choices[3] = (LOG_CHOICES[3], FlashReplacement::Popularity);
    let (mut n, mut all) = (4, 0);
    while all < Kind::ALL.len() {
        let kind = Kind::ALL[all];
        if is_further(kind) {
            let doc = &["Slots layout: as in `[replacement]`."];
            let choice = Choice { name: kind.name(), doc };
            choices[n] = (choice, FlashReplacement::Policy(kind));
            n += 1;
        }
        all += 1;
    }
    choices
};

const CHOICE_TABLE: [Choice; 4 + FURTHER] = {
    let mut table = [LOG_CHOICES[0]; 4 + FURTHER];
    let mut n = 0;
    while n < table.len() {
        table[n] = CHOICES[n].0;
        n += 1;
    }
    table
};

impl Value for FlashReplacement {
    const WORD: &'static str = "flash replacement policy";
    const CHOICES: &'static [Choice] = &CHOICE_TABLE;
}

impl core::str::FromStr for FlashReplacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choose(Self::WORD, &CHOICE_TABLE, text).map(|index| CHOICES[index].1)
    }
}

impl core::fmt::Display for FlashReplacement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let found = CHOICES.iter().find(|(_, replacement)| replacement == self);
        f.write_str(found.map_or("", |(choice, _)| choice.name))
    }
}

crate::schema::read_from_text!(FlashReplacement);

impl FlashReplacement {
    /// The policy of the cells in the slots layout; `None` if the value applies only to the log.
    pub const fn cells(self) -> Option<Kind> {
        match self {
            FlashReplacement::Fifo => Some(Kind::Fifo),
            FlashReplacement::SecondChance
            | FlashReplacement::Frequency
            | FlashReplacement::Popularity => None,
            FlashReplacement::Policy(kind) => Some(kind),
        }
    }

    /// Whether the log layout supports the value.
    pub const fn is_of_log(self) -> bool {
        !matches!(self, FlashReplacement::Policy(_))
    }
}

impl Flash {
    /// The layout for formatting a new tier.
    pub fn layout(&self) -> FlashLayout {
        self.layout.unwrap_or(FlashLayout::Slots)
    }

    /// The policy of the cells in the slots layout, with its parameters.
    ///
    /// # Errors
    /// Returns the name of a parameter that the policy does not have or that is out of range, and
    /// the error.
    pub fn cells(&self) -> Result<Parameters, (&str, ParameterError)> {
        let kind = self.replacement.and_then(FlashReplacement::cells).unwrap_or(Kind::Lru);
        Parameters::from_names(kind, &self.replacement_parameters)
    }
}

choice! {
    /// How blocks are laid out on flash.
    pub enum FlashLayout: "flash layout" {
        /// A log of self-describing batches, written sequentially.
        Log = "log",
        /// Each block on flash occupies a fixed place, a cell; a journal maps blocks to cells. Replacement is
        /// exact, as the planner's formulas assume, but writes are scattered. Supports only one shard.
        Slots = "slots",
    }
}
