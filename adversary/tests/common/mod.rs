//! A small cache for tests that drive a `World` themselves.

use forebay_adversary::world::World;
use forebay_block::{BlockSize, Flags, Op};
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, FlashLayout, LogReplacement, SlotsConfig, WritePolicy,
};
use forebay_device::choices::Choices;
use forebay_flash::Geometry;

pub const BLOCK: u64 = 4096;

/// Batches of up to `batch` records; in slots of this number, or in a log.
pub struct Shape {
    pub slots: u32,
    pub region_pages: u32,
    pub regions: u32,
    pub batch: u32,
    pub replacement: LogReplacement,
}

pub fn config(shape: &Shape) -> CacheConfig {
    let &Shape { slots, region_pages, regions, batch, replacement } = shape;
    let geometry = Geometry {
        block_size: 4096,
        page_size: 4096,
        region_pages,
        slots,
        directory_pages: 0,
        regions,
        superblock_pages: 1,
        extent_bytes: 1 << 16,
        batch_pages_max: 1 + batch,
        batch_entries_max: batch,
        inflight_batches_max: if batch == 1 { 1 } else { 4 },
        active_extents_max: 2,
    };
    let layout = match slots {
        0 => FlashLayout::Log { replacement },
        _ => FlashLayout::Slots(SlotsConfig {
            blocks: slots - 4,
            cells: Default::default(),
            promote_dirty_after: 1,
            give_up_copies: false,
        }),
    };
    CacheConfig {
        block_size: BlockSize::new(4096).unwrap(),
        write_policy: WritePolicy::WRITE_BACK,
        acknowledge: Acknowledge::Flash,
        spare_frames: if batch == 1 { 2 } else { 4 },
        bounce_frames: if batch == 1 { 2 } else { 4 },
        flash: Some(FlashConfig {
            geometry,
            layout,
            entries_max: if slots > 0 { slots } else { regions * region_pages },
            regions_reserved: 1,
            recovery_chunk_pages: 64,
            admission: Default::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: Default::default(),
            written: Default::default(),
        }),
        ..CacheConfig::dram_only(if batch == 1 { 1 } else { 2 })
    }
}

/// Performs one request, which writes this byte, and returns what was read.
pub fn perform(
    world: &mut World,
    c: &mut dyn Choices,
    op: Op,
    volume: u32,
    range: (u64, u64),
    byte: u8,
) -> Vec<u8> {
    let id = world.submit(volume, op, Flags::NONE, range.0, range.1, |bytes| bytes.fill(byte));
    loop {
        for (request, result, data) in world.replies() {
            if request == id {
                result.unwrap();
                return data.to_vec();
            }
        }
        assert!(world.complete_one(c), "a request hangs: {}", world.cache.describe());
    }
}
