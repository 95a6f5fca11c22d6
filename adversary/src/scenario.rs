//! Scenarios: parameters of a run, drawn from its seed.

use forebay_block::BlockSize;
use forebay_cache::{
    Acknowledge, AdmissionKind, AdmissionParameters, Bypass, CacheConfig, Combination,
    FlashCombination, FlashConfig, FlashLayout, LogReplacement, Partial, QueueParameters, Relation,
    ReplacementKind, ReplacementParameters, SlotsConfig, Tier, VolumeConfig, WritePolicy, Written,
};
use forebay_device::choices::Choices;
use forebay_flash::Geometry;

/// The parameters that vary from run to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cache's parameters.
    pub config: CacheConfig,
    /// The volumes of the cache.
    pub volumes: Vec<VolumeConfig>,
    /// Size of the flash device in bytes, if there is one.
    pub flash_bytes: Option<u64>,
    /// Size in bytes of the units that a power cut does not tear.
    pub tear_bytes: u32,
    /// Maximum number of requests in flight.
    pub depth: usize,
    /// Whether acknowledged writes survive a kill of the process.
    pub kill_is_lossless: bool,
    /// Policies between which the run switches, live and at starts; empty if it does not switch.
    pub policies: Vec<(WritePolicy, Acknowledge)>,
    /// For each volume, the blocks that are accessed more often than others.
    pub hot: Vec<Vec<u64>>,
    /// Maximum number of blocks in a request.
    pub request_blocks: u64,
    /// Number of volumes that the superblock names, so that its tables take several pages.
    pub bindings: u16,
    /// Logical block sizes of the flash device and of the backing stores, in bytes.
    pub logical: [u32; 2],
}

impl Scenario {
    /// The names of the counters of what is larger or tighter in this run than in most.
    pub fn features(&self) -> Vec<&'static str> {
        let c = &self.config;
        let block = c.block_size.bytes();
        let largest = self.volumes.iter().map(|v| v.size_bytes.div_ceil(block)).max();
        let mut all = vec![
            ("drawn: 3 shards or more", c.shards >= 3),
            ("drawn: 8 shards", c.shards == 8),
            ("drawn: 3 volumes or more", self.volumes.len() >= 3),
            ("drawn: 6 volumes", self.volumes.len() == 6),
            ("drawn: over 64 blocks in a volume", largest > Some(64)),
            ("drawn: over 64 blocks in memory", c.dram_blocks > 64),
            ("drawn: few requests at a time", c.requests_max < 4),
            ("drawn: one waiting place per shard", c.waiters_max == u32::from(c.shards)),
            ("drawn: few transfers", c.transfers_spare < 4),
            ("drawn: relation inclusive", c.relation == Relation::Inclusive),
            ("drawn: relation layered", c.relation == Relation::Layered),
            ("drawn: relation dual", c.relation == Relation::Dual),
            ("drawn: relation etica-npe", c.relation == Relation::EticaNpe),
            ("drawn: relation etica", c.relation == Relation::Etica),
            ("drawn: relation eci", c.relation == Relation::Eci),
            ("drawn: stores of 4 KiB logical blocks", self.logical[1] == 4096),
            ("drawn: intervals of hit ratios", c.replacement.get("interval_ms") == Some(1)),
            ("drawn: volumes of several priorities", self.volumes.iter().any(|v| v.priority > 1)),
            ("drawn: blocks below 4 KiB", block < 4096),
            ("drawn: blocks of 8 KiB", block == 8192),
            ("drawn: blocks of 16 KiB", block == 16384),
            ("drawn: blocks of 32 KiB", block == 32768),
            ("drawn: blocks of 64 KiB", block == 65536),
        ];
        if let Some(f) = &c.flash {
            let g = &f.geometry;
            let slots = g.has_slots();
            let room = g.regions * g.region_pages;
            all.extend([
                ("drawn: extents over 64 blocks", g.extent_blocks() > 64),
                ("drawn: payloads read in chunks", f.recovery_chunk_pages < g.batch_pages_max - 1),
                ("drawn: a superblock of 2 pages", self.bindings > 0 && g.superblock_pages == 2),
                ("drawn: a superblock of 3 pages", self.bindings > 0 && g.superblock_pages == 3),
                ("drawn: a superblock with pages to spare", (1..60).contains(&self.bindings)),
                ("drawn: few index entries", !slots && f.entries_max < room / 2),
                ("drawn: regions over 16", g.regions > 16),
                ("drawn: directories", g.directory_pages > 0),
                ("drawn: batches over 16 entries", g.batch_entries_max > 16),
                ("drawn: flash of 4 KiB logical blocks", self.logical[0] == 4096),
                ("drawn: cells below 4 KiB", slots && block < 4096),
                ("drawn: pages as small as sectors", g.page_size == 512),
                ("drawn: cells of 8 KiB", slots && block == 8192),
                ("drawn: cells of 16 KiB", slots && block == 16384),
                ("drawn: cells of 32 KiB", slots && block == 32768),
                ("drawn: cells of 64 KiB", slots && block == 65536),
            ]);
        }
        all.into_iter().filter(|f| f.1).map(|f| f.0).collect()
    }
}

/// Restricts what is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Whether there is flash; drawn if not set.
    pub flash: Option<bool>,
    /// Whether the policy has write-back; drawn if not set.
    pub write_back: Option<bool>,
    /// Whether all blocks are 4 KiB.
    pub small_blocks: bool,
    /// Whether the policies change during the run.
    pub switches: bool,
    /// Whether flash has the slots layout.
    pub slots: bool,
    /// The relation of the tiers, with write-back that flash acknowledges; drawn if not set.
    pub relation: Option<Relation>,
    /// Whether stores may fail permanently, so that requests must not wait for them forever.
    pub gives_up: bool,
}

/// Draws a policy for a tier; most of its parameters have their defaults.
fn replacement(c: &mut dyn Choices, tier: Tier) -> ReplacementParameters {
    let all: Vec<_> = ReplacementKind::ALL.iter().filter(|kind| kind.orders(tier)).collect();
    let kind = *all[c.choose(all.len() as u64) as usize];
    let mut parameters = ReplacementParameters::new(kind);
    for parameter in kind.about().parameters {
        let value = match c.choose(4) {
            3 => parameter.max,
            2 => parameter.min,
            _ => parameter.default,
        };
        parameters.set(parameter.name, value).expect("within its range");
    }
    parameters
}

/// Draws an admission policy; half of the time, the one that admits everything.
fn admission(c: &mut dyn Choices) -> AdmissionParameters {
    let all = AdmissionKind::ALL;
    let kind = match c.choose(2) {
        0 => AdmissionKind::Always,
        _ => all[c.choose(all.len() as u64) as usize],
    };
    let mut parameters = AdmissionParameters::new(kind);
    for parameter in kind.parameters() {
        let value = match c.choose(4) {
            3 => parameter.max.min(3),
            2 => parameter.min,
            _ => parameter.default,
        };
        parameters.set(parameter.name, value).expect("within its range");
    }
    parameters
}

/// Draws a scenario. Most are tiny, so that everything happens within a few operations.
/// Occasionally, they have several of what production has several of: words, pages, chunks, shards
/// or volumes.
pub fn draw(c: &mut dyn Choices, limits: Limits) -> Scenario {
    let size = Size::draw(c, limits);
    let flash = limits.flash.unwrap_or_else(|| c.choose(4) != 0);
    let (write_policy, acknowledge) = write_policy(c, limits, flash);
    let (geometry, spare) = geometry(c, &size, limits.slots);
    let mut config = configuration(c, limits, &size, flash.then_some((geometry, spare)));
    (config.write_policy, config.acknowledge) = (write_policy, acknowledge);
    let volumes = volumes(c, &size, &config.replacement);
    let block = u64::from(size.block);
    let hot = volumes.iter().map(|v| hot_blocks(v.size_bytes.div_ceil(block))).collect();
    let policies = policies_of_run(c, limits);
    relation(c, &mut config, &policies, limits.relation);
    if c.choose(3) == 2 {
        config.bypass = bypass(c, block);
    }
    let lossless = |policy: WritePolicy, acknowledge| {
        !policy.write_back || (flash && acknowledge == Acknowledge::Flash)
    };
    let kill_is_lossless = lossless(write_policy, acknowledge)
        && policies.iter().all(|&(policy, acknowledge)| lossless(policy, acknowledge));
    let bindings = bindings(c, &geometry, volumes.len() as u16);
    // A device must be able to write a page.
    let (small, sectors) = (geometry.page_size < 4096, [512, 512, 512, 4096]);
    Scenario {
        config,
        volumes,
        flash_bytes: flash.then(|| geometry.device_bytes()),
        tear_bytes: if c.choose(4) == 0 { 4096 } else { 512 },
        depth: 1 + c.choose(8) as usize,
        kill_is_lossless,
        policies,
        hot,
        request_blocks: if size.wide { 3 + c.choose(60) } else { 3 },
        bindings,
        logical: [small, false].map(|small| {
            let drawn = sectors[c.choose(4) as usize];
            if small { 512 } else { drawn }
        }),
    }
}

/// Draws the policy of the first start; half of the time, write-back.
fn write_policy(c: &mut dyn Choices, limits: Limits, flash: bool) -> (WritePolicy, Acknowledge) {
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
    match limits.relation {
        None => (write_policy, acknowledge),
        Some(_) => (WritePolicy::WRITE_BACK, Acknowledge::Flash),
    }
}

/// Draws the configuration of a cache with the usual relation and policy. `flash` is the geometry
/// of flash, with the number of its spare cells.
fn configuration(
    c: &mut dyn Choices,
    limits: Limits,
    size: &Size,
    flash: Option<(Geometry, u32)>,
) -> CacheConfig {
    let (step_blocks, request_blocks_max) = steps(c);
    let replacement = replacement(c, Tier::Dram);
    let (block, n) = (size.block, u32::from(size.shards));
    let mut config = CacheConfig {
        relation: Relation::Exclusive,
        bypass: Bypass::default(),
        block_size: BlockSize::new(block.into()).expect("a power of two"),
        dram_blocks: match size.wide && c.choose(3) == 2 {
            true => n * (70 + c.choose(40) as u32),
            false => n * (1 + c.choose(6) as u32),
        },
        spare_frames: n * (1 + c.choose(3) as u32),
        bounce_frames: n * (1 + c.choose(4) as u32),
        write_policy: WritePolicy::WRITE_BACK,
        acknowledge: Acknowledge::Dram,
        partial: if c.choose(4) == 0 { Partial::Fill } else { Partial::Granule },
        replacement,
        flash: flash.map(|(geometry, spare)| flash_tier(c, limits, n, geometry, spare)),
        shards: size.shards,
        stripe_shift: match c.choose(3) {
            0 => CacheConfig::STRIPE_SHIFT,
            // Requests cross shards, and a volume has extents with and without cached blocks.
            blocks => block.trailing_zeros() + blocks as u32,
        },
        requests_max: [16, 16, 16, 16, 1, 3][c.choose(6) as usize],
        transfers_spare: [64, 64, 64, 1, 3][c.choose(5) as usize],
        waiters_max: n * [64, 64, 64, 5, 2, 1][c.choose(6) as usize],
        step_blocks,
        request_blocks_max,
        call_steps: CacheConfig::CALL_STEPS,
        destage_depth: 1 + c.choose(4) as u32,
        give_up_after: match limits.gives_up {
            true => forebay_block::Nanos(1),
            false => forebay_block::Nanos([0, 1][c.choose(2) as usize]),
        },
    };
    // Derived from what is already drawn. A region has about ten records.
    let drawn = config.dram_blocks + config.bounce_frames + config.destage_depth;
    config.call_steps = [CacheConfig::CALL_STEPS, 1, 2, 1, 3, 5, 2, 1][drawn as usize % 8];
    config
}

/// The flash tier of a cache with `shards` shards.
fn flash_tier(
    c: &mut dyn Choices,
    limits: Limits,
    shards: u32,
    geometry: Geometry,
    spare: u32,
) -> FlashConfig {
    FlashConfig {
        geometry,
        entries_max: match geometry.slots {
            0 if c.choose(3) == 2 => shards * (1 + c.choose(8) as u32),
            0 => geometry.regions * geometry.region_pages,
            cells => cells,
        },
        regions_reserved: 1,
        recovery_chunk_pages: [64, 64, 64, 1, 2, 3][c.choose(6) as usize],
        // In the slots layout, most values are derived from what is already drawn.
        layout: match limits.slots {
            true => FlashLayout::Slots(SlotsConfig {
                blocks: geometry.slots - spare,
                cells: replacement(c, Tier::Slots),
                promote_dirty_after: 1 + (geometry.slots / 8 % 3) as u8,
                give_up_copies: geometry.slots.is_multiple_of(2),
            }),
            false => FlashLayout::Log { replacement: LogReplacement::ALL[c.choose(4) as usize] },
        },
        promote_after: match limits.slots {
            true => [1, 1, 1, 2, 1, 3, 2, 1][geometry.slots as usize % 8],
            false => 1 + c.choose(3) as u8,
        },
        admission: admission(c),
        line_blocks: 1,
        queues: Default::default(),
        written: match c.choose(2) {
            0 => Written::Ask,
            _ => Written::ALL[c.choose(3) as usize],
        },
    }
}

/// Draws the volumes; they have several priorities if the policy of memory supports them.
fn volumes(c: &mut dyn Choices, size: &Size, memory: &ReplacementParameters) -> Vec<VolumeConfig> {
    let block = u64::from(size.block);
    let one = |_| {
        let blocks = if size.wide { 70 + c.choose(250) } else { 4 + c.choose(20) };
        // Sometimes, a volume ends within a block.
        let odd = match c.choose(3) {
            0 => 512 * (1 + c.choose((block / 512).min(7))),
            _ => 0,
        };
        let bytes = blocks * block - odd;
        // Drawn only if it has an effect.
        let classes = memory.get("classes").unwrap_or(1);
        let priority = if classes > 1 { 1 + c.choose(3) as u8 } else { 1 };
        VolumeConfig { priority, ..VolumeConfig::new(bytes) }
    };
    (0..size.volumes).map(one).collect()
}

/// The policies between which the run switches.
fn policies_of_run(c: &mut dyn Choices, limits: Limits) -> Vec<(WritePolicy, Acknowledge)> {
    if !limits.switches {
        return Vec::new();
    }
    let careful = c.choose(2) == 0;
    let acknowledges: &[_] =
        if careful { &[Acknowledge::Flash] } else { &[Acknowledge::Flash, Acknowledge::Dram] };
    let all = acknowledges.iter();
    all.flat_map(|&how| policies_of_all().map(move |policy| (policy, how))).collect()
}

/// Draws what bypasses the cache: streams of a few blocks.
fn bypass(c: &mut dyn Choices, block: u64) -> Bypass {
    Bypass {
        reads: block * [0, 1, 3][c.choose(3) as usize],
        writes: block * [0, 1, 3][c.choose(3) as usize],
        dirty_blocks: [0, 1, 4][c.choose(3) as usize],
    }
}

/// Draws the number of volumes that the superblock names.
fn bindings(c: &mut dyn Choices, geometry: &Geometry, volumes: u16) -> u16 {
    match geometry.superblock_pages * geometry.page_size / 4096 {
        1 => volumes,
        // Either enough bindings for the tables to reach the last page, or so few that they end
        // before it.
        pages => match c.choose(60) as u16 {
            few @ 45.. => (few - 44).max(volumes),
            more => 42 * (pages as u16 - 1) + more / 3,
        },
    }
}

/// The size of the world.
struct Size {
    /// Whether volumes, regions, memory and extents have many blocks.
    wide: bool,
    block: u32,
    shards: u8,
    volumes: u64,
}

impl Size {
    fn draw(c: &mut dyn Choices, limits: Limits) -> Size {
        let wide = c.choose(10) == 9;
        let sizes = [
            4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 8192, 8192, 16384, 32768, 65536, 512,
            1024, 2048,
        ];
        let block = if limits.small_blocks { 4096 } else { sizes[c.choose(16) as usize] };
        let shards = [1, 1, 1, 1, 1, 2, 2, 3, 5, 8][c.choose(10) as usize];
        let volumes = [1, 1, 1, 2, 2, 2, 3, 4, 6][c.choose(9) as usize];
        Size {
            wide,
            // Limits the amount that a run copies at each cut.
            block: if wide { block.min(8192) } else { block },
            shards: if limits.slots { 1 } else { shards },
            volumes: if wide { volumes.min(2) } else { volumes },
        }
    }
}

/// The hot blocks, which are few so that requests interact: the first ones, and those near the ends
/// of words of a bitmap.
fn hot_blocks(blocks: u64) -> Vec<u64> {
    let all = [0, 1, 2, 3, 62, 63, 64, 65, 127, 128, 191, 192, 255, 256, 300];
    all.into_iter().filter(|&b| b < blocks.min(4) || blocks > 64 && b >= 62 && b < blocks).collect()
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

/// Draws a relation of the tiers that is valid with the write policies, and lines of a few blocks;
/// half of the time, keeps the usual relation.
fn relation(
    c: &mut dyn Choices,
    config: &mut CacheConfig,
    policies: &[(WritePolicy, Acknowledge)],
    given: Option<Relation>,
) {
    let Some(flash) = &mut config.flash else { return };
    if given.is_none() && c.choose(2) == 0 {
        return;
    }
    let slots = flash.geometry.has_slots();
    let first = [(config.write_policy, config.acknowledge)];
    let goes = |&relation: &Relation| {
        let (admission, written) = (AdmissionKind::Always, Written::Ask);
        // Relations that are invalid with the drawn admission get the default admission below.
        let flash = Some(FlashCombination { slots, admission, written });
        let fits = |&(policy, acknowledge)| {
            Combination { relation, policy, acknowledge, flash }.check().is_ok()
        };
        first.iter().chain(policies).all(fits)
    };
    let legal: Vec<_> = Relation::ALL.into_iter().filter(goes).collect();
    config.relation = given.unwrap_or_else(|| legal[c.choose(legal.len() as u64) as usize]);
    if config.relation.has_lines() {
        let extent = config.stripe_shift - config.block_size.shift();
        flash.line_blocks = 1 << c.choose(4).min(extent.into());
        flash.admission = AdmissionParameters::default();
    }
    if config.relation.has_queues() {
        (flash.admission, flash.written) = (AdmissionParameters::default(), Written::Ask);
        flash.queues = QueueParameters {
            interval: 1 + c.choose(8) as u32,
            share: [5, 50, 100][c.choose(3) as usize],
            history: [100, 20, 1000][c.choose(3) as usize],
            half_life: c.choose(3) as u32,
        };
    }
}

/// Draws how much of a request is handled at once: all of it, or so little that the request pauses
/// repeatedly and other requests come between.
fn steps(c: &mut dyn Choices) -> (u32, u32) {
    match c.choose(3) {
        0 => (CacheConfig::STEP_BLOCKS, CacheConfig::REQUEST_BLOCKS_MAX),
        _ => {
            let step = 1 + c.choose(4) as u32;
            (step, step + c.choose(6) as u32)
        }
    }
}

/// Draws a geometry; in the slots layout, also the number of spare cells beyond the accounting.
fn geometry(c: &mut dyn Choices, size: &Size, slots: bool) -> (Geometry, u32) {
    let block_pages = (size.block / 4096).max(1);
    let many = if size.wide { 20 * c.choose(2) as u32 } else { 0 };
    let batch_entries_max = 1 + many + c.choose(4) as u32;
    let batch_pages_max = 1 + block_pages * batch_entries_max;
    let more = c.choose(8);
    let region_pages = 2 + 4 * block_pages + 2 * many + more as u32;
    let directory_pages = [0, 1, 1, 0, 1, 1, 2, 1][more as usize];
    let geometry = Geometry {
        block_size: size.block,
        page_size: 4096,
        region_pages: (1 + batch_pages_max).max(region_pages) + directory_pages,
        regions: match c.choose(12) {
            11 => 17 + c.choose(3) as u32,
            n => 4 + n as u32 % 3,
        },
        slots: 0,
        directory_pages,
        superblock_pages: [1, 1, 1, 1, 1, 2, 3][c.choose(7) as usize],
        extent_bytes: match size.wide {
            true => u64::from(size.block) << [6, 7, 8, 0][c.choose(4) as usize],
            false => u64::from(size.block) << c.choose(3),
        },
        batch_pages_max,
        batch_entries_max,
        inflight_batches_max: 1 + c.choose(3) as u32,
        // With a large table, extents are given up before it is full.
        active_extents_max: [1, 2, 3, 16][c.choose(4) as usize],
    };
    let (geometry, spare) = if slots { in_slots(c, geometry, size) } else { (geometry, 0) };
    geometry.validate().expect("drawn geometries are valid");
    (geometry, spare)
}

/// Converts a geometry to pages of 512 bytes: the journal keeps the number of its pages; superblock
/// and cells keep their sizes in bytes.
fn in_sectors(geometry: Geometry) -> Geometry {
    let blocks = (geometry.batch_pages_max - 1) / geometry.block_pages();
    let mut small = Geometry { page_size: 512, ..geometry };
    small.superblock_pages *= geometry.page_size / small.page_size;
    small.batch_pages_max = 1 + blocks * small.block_pages();
    small
}

/// Converts a geometry to the slots layout, with few cells (sometimes fewer than memory has blocks)
/// and a journal that wraps soon.
fn in_slots(c: &mut dyn Choices, geometry: Geometry, size: &Size) -> (Geometry, u32) {
    let spare = 1 + c.choose(4) as u32;
    // Half of them have pages as small as sectors.
    let small = spare.is_multiple_of(2);
    let geometry = match small {
        true => Geometry { batch_entries_max: geometry.batch_entries_max.min(17), ..geometry },
        false => geometry,
    };
    let many = if size.wide { 30 * c.choose(3) as u32 } else { 0 };
    let slots = u32::from(size.shards) * (1 + many + c.choose(10) as u32) + spare;
    let entries = geometry.batch_entries_max * (geometry.regions - 2);
    let region_pages = 1 + (2 * slots).div_ceil(entries).max(2) + c.choose(3) as u32;
    let geometry = Geometry { slots, region_pages, directory_pages: 0, ..geometry };
    (if small { in_sectors(geometry) } else { geometry }, spare)
}
