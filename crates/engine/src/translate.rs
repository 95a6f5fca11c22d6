//! From the words of the configuration file to the parameters of the machine.

use forebay_block::BlockSize;
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, Partial, ReplacementKind, WritePolicy,
};
use forebay_config as words;
use forebay_config::Config;
use forebay_flash::Geometry;

use crate::error::EngineError;

/// Slots for copies under way, for each shard.
const BOUNCE_SLOTS_PER_SHARD: u32 = 64;
/// Pieces of requests that can wait at once.
const WAITERS_MAX: u32 = 64 << 10;

/// The parameters of the machine for `config`, with a flash tier of `flash_bytes` if there is
/// one.
///
/// # Errors
/// If the file asks for something that this version does not have, or the flash tier is too
/// small.
pub fn cache_config(config: &Config, flash_bytes: Option<u64>) -> Result<CacheConfig, EngineError> {
    let block_size = BlockSize::new(config.cache.block_size.bytes())
        .map_err(|e| EngineError::Unsupported(e.to_string()))?;
    let dram_blocks = u32::try_from(config.cache.dram_blocks())
        .map_err(|_| EngineError::Unsupported("cache.dram is too large".to_owned()))?;
    // One lock protects all shards, so more than one would only cost time unless asked for.
    let shards = config.workers.shards.clamp(1, 64) as u8;
    let flash = match (&config.flash, flash_bytes) {
        (Some(flash), Some(bytes)) => Some(flash_config(flash, bytes, block_size)?),
        _ => None,
    };
    Ok(CacheConfig {
        block_size,
        dram_blocks,
        spare_slots: (dram_blocks / 8).clamp(u32::from(shards) * 2, 1024),
        bounce_slots: BOUNCE_SLOTS_PER_SHARD * u32::from(shards),
        write_policy: write_policy(config.cache.write_policy)?,
        acknowledge: match config.acknowledge() {
            Some(words::Acknowledge::Flash) => Acknowledge::Flash,
            Some(words::Acknowledge::Dram) | None => Acknowledge::Dram,
        },
        partial: match config.cache.partial {
            words::Partial::Mask => Partial::Granule,
            words::Partial::Fill => Partial::Fill,
        },
        replacement: replacement(config.replacement.policy)?,
        flash,
        shards,
        requests_max: config.workers.requests_max,
        waiters_max: WAITERS_MAX,
        destage_depth: config.flush.parallel,
    })
}

/// How a flash device of `bytes` bytes is divided.
///
/// # Errors
/// If it is too small, or the numbers do not go together.
pub fn geometry(
    flash: &words::Flash,
    bytes: u64,
    block_size: BlockSize,
) -> Result<Geometry, EngineError> {
    let failed = |error| EngineError::Geometry { path: flash.path.clone(), error };
    let page = flash.page_size.bytes() as u32;
    let block = block_size.bytes() as u32;
    let mut g = Geometry::for_device(bytes, block).map_err(failed)?;
    if page != g.page_size || flash.region_size.is_some() {
        g.region_pages = match flash.region_size {
            Some(region) => (region.bytes() / u64::from(page)) as u32,
            None => (g.region_pages / (page / g.page_size)).max(4 + 2 * block.div_ceil(page)),
        };
        g.page_size = page;
        let first = u64::from(g.first_region_page());
        let room = (bytes / u64::from(page)).saturating_sub(first);
        g.regions = u32::try_from(room / u64::from(g.region_pages)).unwrap_or(u32::MAX);
    }
    let pages = (flash.batch_size.bytes() / u64::from(page)) as u32;
    g.batch_pages_max = (1 + pages.max(block.div_ceil(page))).min(g.region_pages - 1);
    g.inflight_batches_max = flash.batches_in_flight;
    g.extent_bytes = flash.activity_extent.bytes();
    g.active_extents_max = flash.activity_extents;
    g.validate().map_err(failed)?;
    Ok(g)
}

fn flash_config(
    flash: &words::Flash,
    bytes: u64,
    block_size: BlockSize,
) -> Result<FlashConfig, EngineError> {
    let geometry = geometry(flash, bytes, block_size)?;
    let pages = u64::from(geometry.regions) * u64::from(geometry.region_pages - 1);
    let entries = (pages / u64::from(geometry.block_pages())).min(u64::from(u32::MAX >> 1)) as u32;
    Ok(FlashConfig {
        geometry,
        entries_max: entries,
        regions_reserved: flash.regions_reserved.min(geometry.regions.saturating_sub(3)).max(1),
    })
}

fn write_policy(policy: words::WritePolicy) -> Result<WritePolicy, EngineError> {
    Ok(match policy {
        words::WritePolicy::WriteThrough => WritePolicy::WRITE_THROUGH,
        words::WritePolicy::ReadOnly | words::WritePolicy::WriteAround => WritePolicy::READ_ONLY,
        words::WritePolicy::WriteOnly => WritePolicy::WRITE_ONLY,
        words::WritePolicy::WriteBack => WritePolicy::WRITE_BACK,
        other => return Err(not_here("write policy", &other)),
    })
}

fn replacement(policy: words::ReplacementPolicy) -> Result<ReplacementKind, EngineError> {
    match policy {
        words::ReplacementPolicy::Lru => Ok(ReplacementKind::Lru),
        other => Err(not_here("replacement policy", &other)),
    }
}

fn not_here(kind: &str, value: &impl std::fmt::Display) -> EngineError {
    EngineError::Unsupported(format!("this version has no {kind} \"{value}\""))
}
