//! The parameters of the cache.

use std::path::PathBuf;

use forebay_block::{BlockSize, BlockSizeError};
use forebay_cache::{
    Acknowledge, Bypass, CacheConfig, Combination, ConfigError, FlashConfig, FlashLayout,
    LogReplacement, Partial, Relation, ReplacementParameters, SlotsConfig, WritePolicy, Written,
};
use forebay_config as words;
use forebay_config::Config;
use forebay_flash::{Geometry, GeometryError, Options, POSITIONS_MAX};
use forebay_replacement::ParameterError;

/// Smallest page size, in bytes.
const SECTOR: u64 = 512;
/// Default size of a line, in bytes.
const LINE: u64 = 1 << 20;
/// Number of bounce frames for each shard.
const BOUNCE_FRAMES_PER_SHARD: u32 = 128;
/// Maximum number of blocks of a cache: all its shards together may have no more than the index of
/// one shard can hold.
const BLOCKS_MAX: u64 = CacheConfig::ENTRIES_MAX as u64;
/// The settings that determine the size of the flash tier.
const FLASH: &str = "the flash tier (flash.size, or the size of its device)";
/// Maximum number of pieces of requests that can wait at the same time.
const WAITERS_MAX: u32 = 64 << 10;

/// Why no machine can be built from a configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Blocks cannot have this size.
    #[error(transparent)]
    BlockSize(#[from] BlockSizeError),
    /// DRAM has more blocks than can be numbered.
    #[error("cache.dram is too large")]
    DramTooLarge,
    /// A tier has more blocks than the index has room for.
    #[error(
        "{what} is too large: a cache holds at most {BLOCKS_MAX} blocks; reduce it, or increase \
         cache.block_size"
    )]
    TooManyBlocks {
        /// The settings that determine the size of the tier.
        what: &'static str,
    },
    /// A shard has more blocks in memory than it can transfer at the same time.
    #[error(
        "cache.dram is too large: a shard holds at most {per_shard} blocks in memory, which is less \
         than {limit} with {block} blocks{one}; increase cache.block_size, or {layout}`shards` \
         in [workers] to {shards} or more",
        limit = words::Size((u64::from(*per_shard) * block_size.bytes()).next_multiple_of(1 << 30)),
        block = words::Size(block_size.bytes()),
        // More shards are no way out in slots.
        one = if *slots { "; the flash layout \"slots\" supports one shard" } else { "" },
        layout = if *slots { "set flash.layout = \"log\" and " } else { "set " }
    )]
    Transfers {
        /// Maximum number of blocks in memory of one shard.
        per_shard: u32,
        /// The size of a block.
        block_size: BlockSize,
        /// Number of shards that would be enough.
        shards: u64,
        /// Whether flash has the slots layout.
        slots: bool,
    },
    /// The slots layout has one shard.
    #[error(
        "the flash layout \"slots\" supports only one shard: set `shards = 1` in [workers], or \
         flash.layout = \"log\""
    )]
    SlotsShards,
    /// The policies cannot be combined.
    #[error("cache.relation = \"{relation}\": {why}")]
    Combination {
        /// The relation of the tiers.
        relation: Relation,
        /// The reason.
        why: &'static str,
    },
    /// The machine refuses its parameters for another reason.
    #[error("invalid cache configuration: {0}")]
    Machine(ConfigError),
    /// Keys of a section are out of range.
    #[error("{}", named(section, wrong))]
    Keys {
        /// The section.
        section: &'static str,
        /// Each key, with what is wrong.
        wrong: Vec<(&'static str, String)>,
    },
    /// A parameter of a replacement policy is invalid.
    #[error("{0}")]
    Parameter(ParameterError),
    /// This version does not support the write policy.
    #[error("this version does not support the write policy \"{0}\"")]
    WritePolicy(words::WritePolicy),
    /// The system has too little memory for the bookkeeping.
    #[error(
        "the metadata of this cache takes {} MiB of memory, but the system has only {} MiB \
         available: reduce cache.dram or flash.size, or increase cache.block_size",
        needed >> 20, available >> 20
    )]
    Memory {
        /// Bytes of bookkeeping.
        needed: u64,
        /// Bytes that the system has available.
        available: u64,
    },
    /// The blocks in memory need more than all memory of this computer.
    #[error(
        "cache.dram is {dram}, but this machine (or its control group) has only {} of memory: \
         reduce cache.dram; nothing was written",
        words::Size(*total)
    )]
    DramOverMemory {
        /// The size in the configuration.
        dram: words::Size,
        /// Bytes of memory.
        total: u64,
    },
    /// The flash tier cannot be divided as configured.
    #[error("the flash tier {} cannot be used: {error}; nothing was written", path.display())]
    Geometry {
        /// The flash tier.
        path: PathBuf,
        /// The reason.
        error: GeometryError,
    },
}

/// The parameters of the machine for `config`, with a flash tier of `flash_bytes` if there is
/// one.
///
/// # Errors
/// If the file asks for something that this version does not support, or the flash tier is too
/// small.
pub fn cache_config(config: &Config, flash_bytes: Option<u64>) -> Result<CacheConfig, SetupError> {
    let block_size = BlockSize::new(config.cache.block_size.bytes())?;
    let dram_blocks =
        u32::try_from(config.cache.dram_blocks()).map_err(|_| SetupError::DramTooLarge)?;
    // One lock protects all shards, so more shards would only cost time. There is more than one
    // only if the configuration says so.
    let shards = config.workers.shards.clamp(1, 64) as u8;
    let flash = match (&config.flash, flash_bytes) {
        (Some(flash), Some(bytes)) => {
            Some(flash_config((flash, &config.admission, &config.etica), bytes, block_size)?)
        }
        _ => None,
    };
    let spare_frames = (dram_blocks / 8).clamp(u32::from(shards) * 2, 1024);
    let cache = CacheConfig {
        block_size,
        dram_blocks,
        spare_frames,
        bounce_frames: BOUNCE_FRAMES_PER_SHARD * u32::from(shards),
        write_policy: write_policy(config.cache.write_policy)?,
        acknowledge: config.acknowledge().map_or(Acknowledge::Dram, acknowledged),
        partial: match config.cache.partial {
            words::Partial::Mask => Partial::Granule,
            words::Partial::Fill => Partial::Fill,
        },
        relation: relation(config.cache.relation),
        bypass: bypass(&config.bypass, block_size),
        replacement: replacement(&config.replacement)?,
        flash,
        shards,
        stripe_shift: CacheConfig::STRIPE_SHIFT,
        requests_max: config.workers.requests_max,
        waiters_max: WAITERS_MAX,
        step_blocks: CacheConfig::STEP_BLOCKS,
        request_blocks_max: CacheConfig::REQUEST_BLOCKS_MAX,
        call_steps: CacheConfig::CALL_STEPS,
        destage_depth: config.flush.parallel,
        transfers_spare: CacheConfig::TRANSFERS_SPARE,
        give_up_after: config.flush.give_up_after.nanos(),
    };
    // As long as the flash tier is not open, check the machine without it. Without a flash tier,
    // only the exclusive relation is possible.
    let known = flash_bytes.is_some() || config.flash.is_none();
    let relation = if known { cache.relation } else { Relation::Exclusive };
    let checked = check_machine(&CacheConfig { relation, ..cache.clone() });
    // The layout is known even as long as the tier is not open.
    let in_slots = config.flash.as_ref().is_some_and(|f| f.layout() == words::FlashLayout::Slots);
    checked.map_err(|error| match error {
        SetupError::Transfers { per_shard, block_size, shards, .. } => {
            SetupError::Transfers { per_shard, block_size, shards, slots: in_slots }
        }
        error => error,
    })?;
    Ok(cache)
}

/// Checks the parameters of a machine, whose flash geometry may be that of an existing tier.
///
/// # Errors
/// If there are too many blocks, or the parameters cannot be combined.
pub fn check_machine(cache: &CacheConfig) -> Result<(), SetupError> {
    // Each shard has one additional entry.
    let memory =
        u64::from(cache.dram_blocks) + u64::from(cache.spare_frames) + u64::from(cache.shards);
    check_blocks(memory, "cache.dram")?;
    let on_flash = cache.flash.as_ref().map_or(0, |flash| u64::from(flash.entries_max));
    check_blocks(memory + on_flash, FLASH)?;
    cache.check().map_err(|error| refusal(error, cache, memory))
}

fn bypass(bypass: &words::Bypass, block_size: BlockSize) -> Bypass {
    Bypass {
        reads: bypass.reads.map_or(0, |least| least.bytes()),
        writes: bypass.writes.map_or(0, |least| least.bytes()),
        dirty_blocks: bypass.dirty.map_or(0, |most| most.bytes() / block_size.bytes()),
    }
}

/// Why a cache cannot be built, in the terms of the configuration file. The cache has `memory`
/// blocks in memory.
fn refusal(error: ConfigError, cache: &CacheConfig, memory: u64) -> SetupError {
    match error {
        ConfigError::Combination { relation, why } => SetupError::Combination { relation, why },
        // Each shard would need an index of all cells, and its own list for replacement.
        ConfigError::SlotsShards => SetupError::SlotsShards,
        ConfigError::Transfers { .. } => {
            let per_shard =
                CacheConfig::TRANSFERS_MAX - BOUNCE_FRAMES_PER_SHARD - cache.transfers_spare;
            SetupError::Transfers {
                per_shard,
                block_size: cache.block_size,
                shards: memory.div_ceil(per_shard.into()),
                slots: cache.flash.as_ref().is_some_and(|flash| flash.slots().is_some()),
            }
        }
        other => SetupError::Machine(other),
    }
}

/// Says what is wrong with the keys of a section.
fn named(section: &str, wrong: &[(&str, String)]) -> String {
    let wrong = wrong.iter().map(|(key, why)| format!("{section}.{key} {why}"));
    wrong.collect::<Vec<_>>().join("; ")
}

/// Refuses more blocks than an index has room for.
fn check_blocks(blocks: u64, what: &'static str) -> Result<(), SetupError> {
    match blocks > BLOCKS_MAX {
        true => Err(SetupError::TooManyBlocks { what }),
        false => Ok(()),
    }
}

/// The geometry of a flash device of `bytes` bytes.
///
/// # Errors
/// If the device is too small, or the parameters cannot be combined.
pub fn geometry(
    flash: &words::Flash,
    bytes: u64,
    block_size: BlockSize,
) -> Result<Geometry, SetupError> {
    let failed = |error| SetupError::Geometry { path: flash.path.clone(), error };
    let page =
        flash.page_size.map_or_else(|| page_bytes(flash.layout(), bytes), |p| p.bytes() as u32);
    let block = block_size.bytes() as u32;
    let mut g = Geometry::for_device(bytes, block).map_err(failed)?;
    if page != g.page_size || flash.region_size.is_some() {
        let region = flash.region_size.map_or(g.region_pages * g.page_size, |r| r.bytes() as u32);
        g = g.with_pages(bytes, page, region);
    }
    let pages = (flash.batch_size.bytes() / u64::from(page)) as u32;
    g.batch_pages_max = 1 + pages.max(block.div_ceil(page)).min(1 << 15);
    g = g.with_directories();
    match flash.layout() {
        words::FlashLayout::Log => {
            g.batch_pages_max = g.batch_pages_max.min(g.usable_pages() - 1);
        }
        words::FlashLayout::Slots => {
            let region_pages = flash.region_size.map(|_| g.region_pages);
            g = g.in_slots(bytes, region_pages).map_err(failed)?;
        }
    }
    g.inflight_batches_max = flash.batches_in_flight.unwrap_or(match flash.layout() {
        words::FlashLayout::Log => 4,
        words::FlashLayout::Slots => 16,
    });
    g.extent_bytes = flash.activity_extent.bytes();
    g.active_extents_max = flash.activity_extents;
    g.validate().map_err(failed)?;
    Ok(g)
}

/// Page size of a new tier, in bytes. In the slots layout, only the journal is written in pages, so
/// pages are as small as a disk's sectors, unless the device has too many sectors to address.
fn page_bytes(layout: words::FlashLayout, bytes: u64) -> u32 {
    let small = layout == words::FlashLayout::Slots && bytes / SECTOR <= POSITIONS_MAX;
    if small { SECTOR as u32 } else { 4096 }
}

fn flash_config(
    (flash, admission, etica): (&words::Flash, &words::Admission, &words::Etica),
    bytes: u64,
    block_size: BlockSize,
) -> Result<FlashConfig, SetupError> {
    let written = match admission.written {
        words::Written::Ask => Written::Ask,
        words::Written::Enter => Written::Enter,
        words::Written::Avoid => Written::Avoid,
    };
    let keys = |section| move |wrong| SetupError::Keys { section, wrong };
    let admission = admission.parameters().map_err(keys("admission"))?;
    let queues = etica.parameters().map_err(keys("etica"))?;
    let geometry = geometry(flash, bytes, block_size)?;
    let mut flash = FlashConfig {
        geometry,
        layout: layout(flash)?,
        entries_max: 0,
        regions_reserved: flash.regions_reserved,
        recovery_chunk_pages: Options::RECOVERY_CHUNK_PAGES,
        promote_after: flash.promote_after as u8,
        line_blocks: (flash.line_size.map_or(LINE, |line| line.bytes()) / block_size.bytes())
            as u32,
        queues,
        admission,
        written,
    };
    count_blocks(&mut flash)?;
    Ok(flash)
}

/// The layout, with its own parameters; [`count_blocks`] sets the number of blocks.
fn layout(flash: &words::Flash) -> Result<FlashLayout, SetupError> {
    match flash.layout() {
        words::FlashLayout::Log => Ok(FlashLayout::Log {
            replacement: match flash.replacement {
                Some(words::FlashReplacement::SecondChance) => LogReplacement::SecondChance,
                Some(words::FlashReplacement::Fifo) => LogReplacement::Fifo,
                Some(words::FlashReplacement::Popularity) => LogReplacement::Popularity,
                _ => LogReplacement::Frequency,
            },
        }),
        words::FlashLayout::Slots => Ok(FlashLayout::Slots(SlotsConfig {
            blocks: 0,
            cells: flash.cells().map_err(|(_, error)| SetupError::Parameter(error))?,
            promote_dirty_after: flash.promote_dirty_after.unwrap_or(2) as u8,
            give_up_copies: flash.give_up_copies,
        })),
    }
}

/// Sets the number of blocks that flash holds, and limits its reserved regions, according to the
/// geometry.
///
/// # Errors
/// If there are more blocks than an index can hold.
pub fn count_blocks(flash: &mut FlashConfig) -> Result<(), SetupError> {
    let geometry = &flash.geometry;
    let pages = u64::from(geometry.regions) * u64::from(geometry.region_pages - 1);
    let entries = pages / u64::from(geometry.block_pages());
    check_blocks(entries, FLASH)?;
    flash.entries_max = entries as u32;
    let reserved_max = geometry.regions.saturating_sub(3);
    flash.regions_reserved = flash.regions_reserved.min(reserved_max).max(1);
    let cells = geometry.slots;
    if let Some(slots) = flash.slots_mut() {
        slots.blocks = cells - spare_cells(cells);
        flash.entries_max = cells;
    }
    Ok(())
}

/// Number of cells that replacement leaves free, for records in flight to and from flash.
fn spare_cells(cells: u32) -> u32 {
    (cells / 128).clamp(128.min(cells / 4), 8192)
}

fn acknowledged(acknowledge: words::Acknowledge) -> Acknowledge {
    match acknowledge {
        words::Acknowledge::Flash => Acknowledge::Flash,
        words::Acknowledge::Dram => Acknowledge::Dram,
    }
}

fn relation(relation: words::Relation) -> Relation {
    match relation {
        words::Relation::Exclusive => Relation::Exclusive,
        words::Relation::Inclusive => Relation::Inclusive,
        words::Relation::Layered => Relation::Layered,
        words::Relation::Dual => Relation::Dual,
        words::Relation::EticaNpe => Relation::EticaNpe,
        words::Relation::Eci => Relation::Eci,
        words::Relation::Etica => Relation::Etica,
    }
}

/// Refuses policies that cannot be combined.
///
/// # Errors
/// If the policies cannot be combined, with the reason.
pub fn check_combination(combination: &Combination) -> Result<(), SetupError> {
    let relation = combination.relation;
    combination.check().map_err(|why| SetupError::Combination { relation, why })
}

/// Translates a write policy and an acknowledgement of the configuration into those of the machine.
///
/// # Errors
/// If this version does not support the policy.
pub fn policy(
    policy: words::WritePolicy,
    acknowledge: words::Acknowledge,
) -> Result<(WritePolicy, Acknowledge), SetupError> {
    Ok((write_policy(policy)?, acknowledged(acknowledge)))
}

/// Translates a machine's write policy and acknowledgement into those of the configuration. If two
/// names stand for one policy, returns the first.
pub fn policy_words(
    policy: WritePolicy,
    acknowledge: Acknowledge,
) -> (words::WritePolicy, words::Acknowledge) {
    let word = WRITE_POLICIES.iter().find(|(_, machine)| *machine == policy);
    let acknowledge = match acknowledge {
        Acknowledge::Flash => words::Acknowledge::Flash,
        Acknowledge::Dram => words::Acknowledge::Dram,
    };
    (word.expect("every policy has a name").0, acknowledge)
}

/// The write policies of this version.
const WRITE_POLICIES: [(words::WritePolicy, WritePolicy); 5] = [
    (words::WritePolicy::WriteThrough, WritePolicy::WRITE_THROUGH),
    (words::WritePolicy::ReadOnly, WritePolicy::READ_ONLY),
    (words::WritePolicy::WriteAround, WritePolicy::READ_ONLY),
    (words::WritePolicy::WriteOnly, WritePolicy::WRITE_ONLY),
    (words::WritePolicy::WriteBack, WritePolicy::WRITE_BACK),
];

fn write_policy(policy: words::WritePolicy) -> Result<WritePolicy, SetupError> {
    let known = WRITE_POLICIES.iter().find(|(word, _)| *word == policy);
    known.map(|(_, machine)| *machine).ok_or(SetupError::WritePolicy(policy))
}

fn replacement(section: &words::Replacement) -> Result<ReplacementParameters, SetupError> {
    section.parameters().map_err(|(_, error)| SetupError::Parameter(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_toml(text).unwrap()
    }

    const TWO_TIERS: &str = "[cache]\ndram = '16MiB'\nwrite_policy = 'write-back'\n\
                             [flash]\npath = '/dev/x'\nsize = '256MiB'";

    #[test]
    fn the_flash_tier_is_divided_and_its_blocks_can_all_be_found() {
        let machine = cache_config(&config(TWO_TIERS), Some(256 << 20)).unwrap();
        assert_eq!(machine.dram_blocks, 4096);
        assert_eq!(machine.acknowledge, Acknowledge::Flash);
        let flash = machine.flash.unwrap();
        assert!(flash.geometry.validate().is_ok());
        assert!(flash.entries_max as u64 * 4096 > 240 << 20);
    }

    #[test]
    fn in_the_layout_slots_there_is_one_list_and_room_for_blocks_on_their_way() {
        let text = format!("{TWO_TIERS}\nlayout = 'slots'");
        let flash = cache_config(&config(&text), Some(256 << 20)).unwrap().flash.unwrap();
        assert_eq!(flash.entries_max, flash.geometry.slots);
        assert!(flash.blocks() < flash.entries_max && flash.blocks() > 60_000, "{flash:?}");
        let text = format!("{text}\n[workers]\nshards = 2");
        let error = cache_config(&config(&text), Some(256 << 20)).unwrap_err();
        assert!(error.to_string().contains("shards = 1"), "{error}");
    }

    #[test]
    fn pages_are_sectors_in_slots_and_cells_begin_at_whole_pages_of_4_kib() {
        let geometry = |text: &str, bytes: u64| {
            let text = format!("{TWO_TIERS}\n{text}");
            cache_config(&config(&text), Some(bytes)).unwrap().flash.unwrap().geometry
        };
        for bytes in [4 << 20, (16 << 20) + 3 * 4096, 100 << 20, 1 << 30, 1 << 40] {
            let g = geometry("", bytes);
            assert_eq!((g.page_size, g.batch_entries_max, g.has_slots()), (512, 17, true));
            assert_eq!(g.first_cell_page() * 512 % 4096, 0, "{g:?}");
            assert_eq!(g.superblock_pages * g.page_size, 64 << 10);
            assert!(g.device_bytes() <= bytes, "{g:?}");
        }
        assert_eq!(geometry("", 2 << 40).page_size, 4096, "more pages than can be addressed");
        assert_eq!(geometry("layout = 'log'", 1 << 30).page_size, 4096);
        assert_eq!(geometry("page_size = '8KiB'", 1 << 30).page_size, 8192);
    }

    #[test]
    fn tiers_of_more_blocks_than_can_be_found_are_refused_by_name() {
        let large = |text: &str, tib: u64| cache_config(&config(text), Some(tib << 40));
        large(TWO_TIERS, 7).unwrap();
        for layout in ["log", "slots"] {
            let text = format!("{TWO_TIERS}\nlayout = '{layout}'");
            for tib in [9, 15, 100] {
                let error = large(&text, tib).unwrap_err().to_string();
                assert!(error.contains("flash.size") && error.contains("too large"), "{error}");
            }
        }
        let error = large("[cache]\ndram = '10TiB'", 0).unwrap_err().to_string();
        assert!(error.contains("cache.dram"), "{error}");
    }

    #[test]
    fn memory_of_more_blocks_than_a_shard_can_have_under_way_wants_more_shards() {
        let of = |gib: u32, shards: u32| {
            let text = format!("[cache]\ndram = '{gib}GiB'\n[workers]\nshards = {shards}");
            cache_config(&config(&text), None)
        };
        of(63, 1).unwrap();
        let error = of(64, 1).unwrap_err().to_string();
        assert!(error.contains("cache.dram") && error.contains("to 2 or more"), "{error}");
        of(64, 2).unwrap();
        of(126, 2).unwrap();
        // The slots layout supports one shard, so the message must suggest the other layout.
        let text = "[cache]\ndram = '100GiB'\n[flash]\npath = '/dev/x'\nsize = '1TiB'";
        let error = cache_config(&config(text), Some(1 << 40)).unwrap_err().to_string();
        for part in ["flash.layout = \"log\" and `shards`", "less than 64 GiB", "cache.block_size"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        // The server checks this before it opens the tier.
        assert_eq!(cache_config(&config(text), None).unwrap_err().to_string(), error);
        let text = format!("{text}\nlayout = 'log'\n[workers]\nshards = 2");
        cache_config(&config(&text), Some(1 << 40)).unwrap();
    }

    #[test]
    fn without_its_size_there_is_no_flash_tier() {
        assert!(cache_config(&config(TWO_TIERS), None).unwrap().flash.is_none());
    }

    #[test]
    fn a_flash_tier_without_room_for_a_log_is_refused_by_its_path() {
        let error = cache_config(&config(TWO_TIERS), Some(64 << 10)).unwrap_err();
        assert!(error.to_string().contains("/dev/x"), "{error}");
    }

    #[test]
    fn a_page_and_a_region_as_configured_fill_the_device() {
        let mut config = config(TWO_TIERS);
        let flash = config.flash.as_mut().unwrap();
        flash.page_size = Some(words::Size(16 << 10));
        flash.layout = Some(words::FlashLayout::Log);
        flash.region_size = Some(words::Size(1 << 20));
        let flash = cache_config(&config, Some(64 << 20)).unwrap().flash.unwrap();
        let g = flash.geometry;
        assert_eq!((g.page_size, g.region_pages), (16 << 10, 64));
        let used = g.pages() * u64::from(g.page_size);
        assert!(used <= 64 << 20 && used + (2 << 20) > 64 << 20, "{g:?}");
    }
}
