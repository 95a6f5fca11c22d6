//! Scenarios: parameters of a run, drawn from its seed.

use forebay_block::BlockSize;
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, Partial, ReplacementKind, VolumeConfig, WritePolicy,
};
use forebay_device::choices::Choices;
use forebay_flash::Geometry;

/// What varies from run to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cache's parameters.
    pub config: CacheConfig,
    /// Its volumes.
    pub volumes: Vec<VolumeConfig>,
    /// Bytes of the flash device, if there is one.
    pub flash_bytes: Option<u64>,
    /// What a power cut leaves whole, in bytes.
    pub tear_bytes: u32,
    /// Requests in flight at most.
    pub depth: usize,
    /// Whether acknowledged writes survive a kill of the process.
    pub kill_is_lossless: bool,
    /// Policies among which the run switches, live and from start to start; none if it does not.
    pub policies: Vec<(WritePolicy, Acknowledge)>,
}

/// Narrows what is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Flash or none; drawn if not given.
    pub flash: Option<bool>,
    /// Write-back or not; drawn if not given.
    pub write_back: Option<bool>,
    /// Only 4 KiB blocks.
    pub small_blocks: bool,
    /// Policies change.
    pub switches: bool,
    /// Flash in the layout slots.
    pub slots: bool,
}

/// Draws a scenario: tiny geometry, so that everything happens within a few operations.
pub fn draw(c: &mut dyn Choices, limits: Limits) -> Scenario {
    let block = if limits.small_blocks {
        4096
    } else {
        [4096, 4096, 4096, 8192, 4096, 4096, 8192, 16384, 4096, 4096, 4096, 65536]
            [c.choose(12) as usize]
    };
    let flash = limits.flash.unwrap_or_else(|| c.choose(4) != 0);
    let policies = [
        WritePolicy::WRITE_BACK,
        WritePolicy::WRITE_BACK,
        WritePolicy::WRITE_BACK,
        WritePolicy::WRITE_THROUGH,
        WritePolicy::READ_ONLY,
        WritePolicy::WRITE_ONLY,
    ];
    let write_policy = match limits.write_back {
        None => policies[c.choose(6) as usize],
        Some(true) => policies[[0, 0, 0, 5][c.choose(4) as usize]],
        Some(false) => policies[[3, 4][c.choose(2) as usize]],
    };
    let acknowledge =
        if flash && c.choose(2) == 0 { Acknowledge::Flash } else { Acknowledge::Dram };
    let shards = if c.choose(3) == 0 && !limits.slots { 2 } else { 1 };
    let n = u32::from(shards);
    let (geometry, spare) = geometry(c, block, n, limits.slots);
    let (step_blocks, request_blocks_max) = steps(c);
    let config = CacheConfig {
        block_size: BlockSize::new(block.into()).expect("a power of two"),
        dram_blocks: n * (1 + c.choose(6) as u32),
        spare_slots: n * (1 + c.choose(3) as u32),
        bounce_slots: n * (1 + c.choose(4) as u32),
        write_policy,
        acknowledge,
        partial: if c.choose(4) == 0 { Partial::Fill } else { Partial::Granule },
        replacement: ReplacementKind::Lru,
        flash: flash.then(|| FlashConfig {
            geometry,
            entries_max: match geometry.slots {
                0 => geometry.regions * geometry.region_pages,
                cells => cells,
            },
            blocks: geometry.slots - spare,
            regions_reserved: 1,
        }),
        shards,
        extent_shift: match c.choose(3) {
            0 => CacheConfig::EXTENT_SHIFT,
            // Requests cross shards, and a volume has extents with and without cached blocks.
            blocks => block.trailing_zeros() + blocks as u32,
        },
        requests_max: 16,
        waiters_max: n * [64, 64, 64, 5, 2][c.choose(5) as usize],
        step_blocks,
        request_blocks_max,
        destage_depth: 1 + c.choose(4) as u32,
        give_up_after: forebay_block::Nanos([0, 1][c.choose(2) as usize]),
    };
    let count = 1 + c.choose(2);
    let volumes = (0..count)
        .map(|_| {
            let blocks = 4 + c.choose(20);
            // Now and then a volume that ends within a block.
            let odd = if c.choose(3) == 0 { 512 * (1 + c.choose(7)) } else { 0 };
            VolumeConfig { size_bytes: blocks * u64::from(block) - odd, read_only: false }
        })
        .collect();
    let lossless = |policy: WritePolicy, acknowledge| {
        !policy.write_back || (flash && acknowledge == Acknowledge::Flash)
    };
    let mut policies = Vec::new();
    if limits.switches {
        let careful = c.choose(2) == 0;
        let acknowledges: &[_] =
            if careful { &[Acknowledge::Flash] } else { &[Acknowledge::Flash, Acknowledge::Dram] };
        for &acknowledge in acknowledges {
            policies.extend(policies_of_all().map(|policy| (policy, acknowledge)));
        }
    }
    let kill_is_lossless = lossless(write_policy, acknowledge)
        && policies.iter().all(|&(policy, acknowledge)| lossless(policy, acknowledge));
    Scenario {
        config,
        volumes,
        flash_bytes: flash.then(|| geometry.device_bytes()),
        tear_bytes: if c.choose(4) == 0 { 4096 } else { 512 },
        depth: 1 + c.choose(8) as usize,
        kill_is_lossless,
        policies,
    }
}

fn policies_of_all() -> impl Iterator<Item = WritePolicy> {
    [
        WritePolicy::WRITE_BACK,
        WritePolicy::WRITE_THROUGH,
        WritePolicy::READ_ONLY,
        WritePolicy::WRITE_ONLY,
    ]
    .into_iter()
}

/// How much of a request is handed out at once and at a time: all of it, or so little that it
/// stops on its way again and again, and others come between.
fn steps(c: &mut dyn Choices) -> (u32, u32) {
    match c.choose(3) {
        0 => (CacheConfig::STEP_BLOCKS, CacheConfig::REQUEST_BLOCKS_MAX),
        _ => {
            let step = 1 + c.choose(4) as u32;
            (step, step + c.choose(6) as u32)
        }
    }
}

/// With the number of cells beyond the accounting, in the layout slots.
fn geometry(c: &mut dyn Choices, block: u32, shards: u32, slots: bool) -> (Geometry, u32) {
    let block_pages = (block / 4096).max(1);
    let batch_entries_max = 1 + c.choose(4) as u32;
    let batch_pages_max = 1 + block_pages * batch_entries_max;
    let geometry = Geometry {
        block_size: block,
        page_size: 4096,
        region_pages: (1 + batch_pages_max).max(2 + 4 * block_pages + c.choose(8) as u32),
        regions: 4 + c.choose(3) as u32,
        slots: 0,
        superblock_pages: 1,
        extent_bytes: u64::from(block) << c.choose(3),
        batch_pages_max,
        batch_entries_max,
        inflight_batches_max: 1 + c.choose(3) as u32,
        // A large table gives extents up before it is full.
        active_extents_max: [1, 2, 3, 16][c.choose(4) as usize],
    };
    let (geometry, spare) = if slots { in_slots(c, geometry, shards) } else { (geometry, 0) };
    geometry.validate().expect("drawn geometries are valid");
    (geometry, spare)
}

/// Few cells, now and then fewer than memory has blocks, and a journal that wraps soon.
fn in_slots(c: &mut dyn Choices, geometry: Geometry, shards: u32) -> (Geometry, u32) {
    let spare = 1 + c.choose(4) as u32;
    let slots = shards * (1 + c.choose(10) as u32) + spare;
    let entries = geometry.batch_entries_max * (geometry.regions - 2);
    let region_pages = 1 + (2 * slots).div_ceil(entries).max(2) + c.choose(3) as u32;
    (Geometry { slots, region_pages, ..geometry }, spare)
}
