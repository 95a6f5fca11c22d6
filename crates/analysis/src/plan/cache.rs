//! The cache that a plan describes, as a configuration for the simulator and for a replay.

use forebay_block::Nanos;
use forebay_config::{Acknowledge, Admission, Config, Relation, Size, WritePolicy as Written};
use forebay_plan::{BoxError, CostModel, Device, Hierarchy, Judged, Units, WritePolicy};
use forebay_report::Unit;
use forebay_results::RunResult;

/// Returns `base` with tiers of these sizes. The first tier is memory, whatever its device; the
/// second is the flash tier.
pub fn sized(
    base: &Config,
    hierarchy: &Hierarchy,
    sizes: &[Units],
    cost: &CostModel,
) -> Result<Config, BoxError> {
    let bytes = |at: usize| Size(sizes[at].0 * cost.unit_bytes);
    let mut config = base.clone();
    config.cache.block_size = Size(cost.block_size.bytes());
    config.cache.dram = bytes(0);
    config.cache.write_policy = match hierarchy.policy {
        WritePolicy::WriteThrough => Written::WriteThrough,
        WritePolicy::WriteBack => Written::WriteBack,
    };
    if sizes.len() < 2 {
        // Settings that relate two tiers do not apply to a single tier.
        (config.cache.relation, config.admission) = (Relation::Exclusive, Admission::default());
    }
    let by_flash =
        matches!(config.cache.relation, Relation::EticaNpe | Relation::Etica | Relation::Eci);
    let is_open = config.cache.acknowledge.is_none() && !by_flash;
    if hierarchy.policy == WritePolicy::WriteBack && is_open {
        // As in the formulas, the first tier acknowledges a write.
        config.cache.acknowledge = Some(Acknowledge::Dram);
    }
    match (&mut config.flash, sizes.len()) {
        (flash, 0 | 1) => *flash = None,
        (Some(flash), _) => flash.size = Some(bytes(1)),
        (None, _) => {
            return Err("the configuration has no [flash] section for the second tier".into());
        }
    }
    // Check the result here, so that a cache that cannot be built is not taken for one that fails.
    let config = config.checked()?;
    let flash_bytes = config.flash.as_ref().and_then(|flash| flash.size).map(Size::bytes);
    forebay_setup::cache_config(&config, flash_bytes)?;
    Ok(config)
}

/// The evaluation of these tiers from a run of their cache.
pub fn judged(run: &RunResult, cost: &CostModel, tiers: usize, duration: Nanos) -> Judged {
    let cache = run.cache.unwrap_or_default();
    let (tier1, tier2) = (cache.hits.tier1, cache.hits.tier2);
    let accesses = tier1.sum() + tier2.sum() + cache.misses.sum();
    let share = |hits: u64| hits as f64 / accesses.max(1) as f64;
    let days = duration.as_secs_f64() / 86_400.0;
    let total_us = run.latency_us.all.mean * run.requests as f64;
    // Every write goes to tier 1, and so does every read that does not find its block there.
    let filled = accesses - tier1.read;
    let mut written =
        vec![(filled * cost.block_size.bytes()) as f64, cache.tier2_bytes_written as f64];
    written.truncate(tiers);
    let mut hit_ratio = vec![share(tier1.sum()), share(tier2.sum())];
    hit_ratio.truncate(tiers);
    Judged {
        mean_latency_us: total_us / accesses.max(1) as f64,
        p99_latency_us: run.latency_us.all.p99,
        p999_latency_us: run.latency_us.all.p999,
        hit_ratio,
        bytes_written_per_day: (days > 0.0)
            .then(|| written.into_iter().map(|bytes| bytes / days).collect()),
    }
}

/// A label for messages: `16 MiB FastDRAM + 64 MiB SlowSSD + SlowHDD`.
pub fn label(hierarchy: &Hierarchy, sizes: &[Units], cost: &CostModel) -> String {
    let tier = |(device, units): (&Device, &Units)| {
        format!("{} {}", Unit::Bytes.show((units.0 * cost.unit_bytes) as f64), device.name)
    };
    let tiers: Vec<String> = hierarchy.tiers.iter().zip(sizes).map(tier).collect();
    format!("{} + {}", tiers.join(" + "), hierarchy.backing.name)
}
