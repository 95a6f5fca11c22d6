//! Coverage of a campaign: each race and each rare branch has a counter. A campaign in which one
//! occurred too rarely proves little, and fails.

use std::collections::BTreeMap;

use forebay_cache::{Cache, CacheStats};
use forebay_flash::{LogError, LogStats};

use crate::world::Found;

/// How often each situation must occur in the tests of a change: about a third of how often it
/// occurred when this list was written.
pub const FLOORS: &[(&str, u64)] = &[
    ("admitted", 5000),
    ("blocks fetched for a line", 1000),
    ("bypassed: reads", 500),
    ("bypassed: writes", 500),
    ("clean contents dropped past dirty data", 18),
    ("cleanings that left out late stores", 160),
    ("clean stops", 15_000),
    ("contents: asked", 4_000_000),
    ("contents: data that hides zeroes of the store", 200_000),
    ("contents: data that left the cache before the store was asked", 4000),
    ("contents: zeroes in the cache", 4000),
    ("contents: zeroes of the store", 3_000_000),
    ("corrupt flash reads", 2000),
    ("cuts in recovery", 20_000),
    ("damage that a cut hides", 2000),
    ("damage, then a cut", 2000),
    ("demotions", 400_000),
    ("destage retries", 3000),
    ("destaged", 130_000),
    ("destaged from memory, lost on flash", 1),
    ("destaged under a newer version", 4000),
    ("destaged with neighbours", 20_000),
    ("destages repeated", 500),
    ("destages that a stop ended", 2000),
    ("destages that followed a record", 2000),
    ("destages that held requests", 20),
    ("destages that went well", 8000),
    ("drawn: 3 shards or more", 800),
    ("drawn: 3 volumes or more", 1300),
    ("drawn: 6 volumes", 300),
    ("drawn: 8 shards", 200),
    ("drawn: a superblock of 2 pages", 400),
    ("drawn: a superblock of 3 pages", 500),
    ("drawn: a superblock with pages to spare", 500),
    ("drawn: batches over 16 entries", 200),
    ("drawn: blocks below 4 KiB", 900),
    ("drawn: blocks of 16 KiB", 200),
    ("drawn: blocks of 32 KiB", 400),
    ("drawn: blocks of 64 KiB", 300),
    ("drawn: blocks of 8 KiB", 500),
    ("drawn: cells below 4 KiB", 300),
    ("drawn: cells of 16 KiB", 100),
    ("drawn: cells of 32 KiB", 100),
    ("drawn: cells of 64 KiB", 100),
    ("drawn: cells of 8 KiB", 200),
    ("drawn: directories", 1800),
    ("drawn: extents over 64 blocks", 200),
    ("drawn: few index entries", 700),
    ("drawn: few requests at a time", 1400),
    ("drawn: few transfers", 1800),
    ("drawn: flash of 4 KiB logical blocks", 800),
    ("drawn: intervals of hit ratios", 180),
    ("drawn: one waiting place per shard", 700),
    ("drawn: over 64 blocks in a volume", 400),
    ("drawn: over 64 blocks in memory", 190),
    ("drawn: payloads read in chunks", 1600),
    ("drawn: regions over 16", 300),
    ("drawn: relation dual", 300),
    ("drawn: relation eci", 100),
    ("drawn: relation etica-npe", 60),
    ("drawn: relation etica", 300),
    ("drawn: relation inclusive", 400),
    ("drawn: relation layered", 400),
    ("drawn: stores of 4 KiB logical blocks", 1000),
    ("drawn: volumes of several priorities", 170),
    ("dropped with their region", 200_000),
    ("entered flash when read", 2000),
    ("evictions", 100_000),
    ("failed flash: volumes that bypassed it", 1500),
    ("failed flash: waits for the bypass", 1100),
    ("failed flash: pieces that bypassed it", 1500),
    ("flash formatted again", 800),
    ("flash overwritten", 200),
    ("flash read overtaken by reclaim", 2000),
    ("flash that is gone: all volumes bypassed it", 120),
    ("flash wiped", 200),
    ("flash without a region", 200),
    ("flash without a superblock", 200),
    ("flash without its superblocks", 200),
    ("flash without some pages", 200),
    ("full flash: all volumes bypassed it", 300),
    ("gaps among neighbours destaged", 3000),
    ("injected: busy", 1600),
    ("injected: byte rot", 600),
    ("injected: failed sync", 200),
    ("injected: latent error", 4000),
    ("injected: lost write", 500),
    ("injected: misdirected read", 600),
    ("injected: misdirected write", 400),
    ("injected: no space", 900),
    ("injected: short transfer", 1100),
    ("injected: slow operation", 1500),
    ("injected: transient error", 3000),
    ("kills", 8000),
    ("left on flash", 500_000),
    ("lines cut short: no frame", 500),
    ("log batches", 700_000),
    ("log directories", 50_000),
    ("log regions reclaimed", 160_000),
    ("log regions sealed with pages left", 170_000),
    ("log superblock updates", 300_000),
    ("log tombstones", 200_000),
    ("losses carried forward", 800),
    ("management: operations with a fault", 7000),
    ("management: starts with the wrong policy", 200),
    ("merges", 10_000),
    ("not admitted", 5000),
    ("not admitted: destaged", 200),
    ("not admitted: written around", 1000),
    ("older flash dropped", 140),
    ("older flash refused", 200),
    ("older store accepted", 400),
    ("older store accepted: clean contents dropped", 200),
    ("older store accepted: cut short", 300),
    ("older store completed from the log", 70),
    ("older store dropped", 200),
    ("older store refused", 800),
    ("policy changes cancelled", 1500),
    ("promotions", 100_000),
    ("queues: blocks chosen but skipped", 2000),
    ("queues: blocks that entered flash", 10_000),
    ("queues: blocks that left flash", 10_000),
    ("queues: rounds", 10_000),
    ("ranges zeroed", 70_000),
    ("read through", 60_000),
    ("read-modify-writes", 3500),
    ("records inserted again", 400),
    ("records inserted again: no room", 1000),
    ("records poisoned", 20_000),
    ("records voided alone", 300),
    ("recovery: a part repaired", 4000),
    ("recovery: after a clean stop", 10_000),
    ("recovery: after an unclean stop", 120_000),
    ("recovery: an empty log", 20_000),
    ("recovery: batches dropped", 10_000),
    ("recovery: directories missing", 12_000),
    ("recovery: directories of earlier lives", 2000),
    ("recovery: directories torn", 40),
    ("recovery: directories with dropped batches", 200),
    ("recovery: dirty in active extents", 700),
    ("recovery: epoch above 2", 80_000),
    ("recovery: every region in use", 20_000),
    ("recovery: payloads unreadable", 20),
    ("recovery: payloads verified", 60_000),
    ("recovery: records disowned", 180),
    ("recovery: records distrusted", 20_000),
    ("recovery: records found", 90_000),
    ("recovery: records in several regions", 60_000),
    ("recovery: records that waited for a place", 200),
    ("recovery: regions known by directory", 40_000),
    ("recovery: tombstones found", 30_000),
    ("refused: a changed store and dirty data", 30),
    ("refused: durable batches lost", 600),
    ("refused: not a log", 700),
    ("refused: superblock damaged", 3),
    ("refused: superblock stale", 15),
    ("refused: the device failed", 300),
    ("requests failed", 8000),
    ("requests paused", 40_000),
    ("rescued while leaving", 60_000),
    ("seals", 4000),
    ("seals cut short", 200),
    ("slots: evicted from flash", 200_000),
    ("slots: mappings moved", 300_000),
    ("slots: hit after eviction", 8000),
    ("slots: records unmapped", 200_000),
    ("slots: regions dropped", 1),
    ("stamps", 8000),
    ("starts refused", 3000),
    ("starts with changed stores", 500),
    ("starts with fewer entries", 2000),
    ("starts with other shards", 200),
    ("starts without a place refused", 100),
    ("stores taken over live", 600),
    ("stores used by others between runs", 400),
    ("stores: a cleaning left a store that hung", 20),
    ("stores: a cleaning left syncs that hung", 25),
    ("stores: a cleaning left writes that hung", 20),
    ("stores: appends refused", 170),
    ("stores: hangs", 100),
    ("stores: jams", 70),
    ("stores: one hangs while another does", 10),
    ("stores: outages", 1200),
    ("stores: probes", 19),
    ("stores: records carried forward", 400),
    ("stores: recovered", 150),
    ("stores: requests served during an outage of another", 5000),
    ("stores: suspensions", 160),
    ("stores: syncs begin to fail", 900),
    ("stores: waits for a share", 30_000),
    ("stores: waits for others while one hangs", 100),
    ("superblock copies made unreadable", 6000),
    ("transfer errors", 15_000),
    ("waits for a block", 1_200_000),
    ("waits for a place", 60_000),
    ("waits for a range", 7000),
    ("waits for a trim that overlaps", 300),
    ("waits for room", 300_000),
    ("write met a fetch", 5000),
    ("write met an outgoing transfer", 20_000),
    ("written in transit", 500),
];

/// Counters by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds to a counter.
    pub fn add(&mut self, name: &'static str, n: u64) {
        *self.0.entry(name).or_default() += n;
    }

    /// The value of a counter; 0 if nothing was added.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds all counters of another.
    pub fn merge(&mut self, other: &Coverage) {
        for (name, n) in &other.0 {
            self.add(name, *n);
        }
    }

    /// All counters, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, n)| (*name, *n))
    }

    /// The counters in `wanted` that are too low: name, value, and wanted value.
    pub fn missing(&self, wanted: &[(&'static str, u64)]) -> Vec<(&'static str, u64, u64)> {
        (wanted.iter())
            .map(|&(name, least)| (name, self.get(name), least))
            .filter(|(_, met, least)| met < least)
            .collect()
    }

    /// Adds the counters of a cache at the end of its life.
    pub fn add_life(&mut self, cache: &Cache) {
        self.add_cache(cache.stats());
        if let Some(log) = cache.log_stats() {
            self.add_log(log);
        }
    }

    fn add_cache(&mut self, s: &CacheStats) {
        for (name, n) in [
            ("demotions", s.demotions),
            ("left on flash", s.left_on_flash),
            ("copies given up", s.copies_given_up),
            ("promotions", s.promotions),
            ("read through", s.read_through),
            ("admitted", s.admitted),
            ("not admitted", s.not_admitted),
            ("not admitted: written around", s.written_around),
            ("not admitted: destaged", s.destaged_around),
            ("entered flash when read", s.entered_when_read),
            ("blocks fetched for a line", s.line_blocks),
            ("lines cut short: no frame", s.lines_short),
            ("written in transit", s.written_in_transit),
            ("queues: rounds", s.queue_rounds),
            ("queues: blocks that left flash", s.queue_evictions),
            ("queues: blocks that entered flash", s.queue_promotions),
            ("queues: blocks chosen but skipped", s.queue_skips),
            ("bypassed: reads", s.bypassed_reads),
            ("bypassed: writes", s.bypassed_writes),
            ("records inserted again", s.reinserted),
            ("records inserted again: no room", s.reinsertions_refused),
            ("evictions", s.evictions),
            ("dropped with their region", s.reclaim_dropped),
            ("destaged", s.destaged),
            ("waits for a block", s.waits_block),
            ("waits for room", s.waits_room),
            ("writes around the log noted", s.log_bypasses),
            ("write met an outgoing transfer", s.write_met_outgoing),
            ("write met a fetch", s.write_met_fetch),
            ("rescued while leaving", s.rescued),
            ("flash read overtaken by reclaim", s.flash_read_overtaken),
            ("merges", s.merges),
            ("read-modify-writes", s.read_modify_writes),
            ("ranges zeroed", s.range_zeroes),
            ("requests paused", s.pauses),
            ("waits for a place", s.waits_place),
            ("waits for a range", s.waits_range),
            ("waits for a trim that overlaps", s.waits_zeroing),
            ("records poisoned", s.poisoned),
            ("records voided alone", s.voided_alone),
            ("destaged under a newer version", s.destaged_under_newer),
            ("destaged with neighbours", s.destaged_together),
            ("gaps among neighbours destaged", s.destage_gaps),
            ("destaged from memory, lost on flash", s.destaged_after_loss),
            ("transfer errors", s.transfer_errors),
            ("corrupt flash reads", s.flash_corrupt),
            ("losses carried forward", s.carried_lost),
            ("stores: records carried forward", s.carried),
            ("stores: waits for a share", s.waits_share),
            ("stores: suspensions", s.suspensions),
            ("stores: appends refused", s.appends_refused),
            ("stores: jams", s.jams),
            ("stores: probes", s.probes),
            ("stores: recovered", s.stores_recovered),
            ("destage retries", s.destage_retries),
            ("stamps", s.stamps),
            ("failed flash: volumes that bypassed it", s.passed_through),
            ("failed flash: waits for the bypass", s.waits_void),
            ("failed flash: pieces that bypassed it", s.bypassed_log),
            ("recovery: records that waited for a place", s.recovered_spilled),
            ("recovery: records disowned", s.recovered_disowned),
            ("destages that followed a record", s.destages_followed),
            ("destages that held requests", s.destages_held),
            ("destages repeated", s.destages_repeated),
            ("cleanings that left out late stores", s.cleanings_parted),
            ("slots: evicted from flash", s.flash_evictions),
            ("slots: hit after eviction", s.flash_rescued),
            ("slots: regions dropped", s.regions_dropped),
        ] {
            self.add(name, n);
        }
    }

    fn add_log(&mut self, s: &LogStats) {
        for (name, n) in [
            ("log batches", s.batches),
            ("log tombstones", s.tombstones),
            ("log regions reclaimed", s.regions_reclaimed),
            ("log directories", s.directories),
            ("log superblock updates", s.superblock_updates),
            ("log regions sealed with pages left", s.pages_skipped),
            ("slots: mappings moved", s.mappings_moved),
            ("slots: records unmapped", s.unmapped),
        ] {
            self.add(name, n);
        }
    }

    /// Adds the result of a start: the branches of recovery that it took.
    pub fn add_start(&mut self, found: &Found) {
        match found {
            Found::Nothing => {}
            Found::Log(r) => {
                for (name, n) in [
                    ("recovery: after a clean stop", u64::from(r.clean)),
                    ("recovery: after an unclean stop", u64::from(!r.clean)),
                    ("recovery: an empty log", u64::from(r.batches == 0)),
                    ("recovery: records in several regions", u64::from(r.regions_used > 1)),
                    ("recovery: every region in use", u64::from(r.regions_used > 3)),
                    ("recovery: records found", u64::from(r.records > 0)),
                    ("recovery: tombstones found", u64::from(r.tombstones > r.distrusted)),
                    ("recovery: records distrusted", u64::from(r.distrusted > 0)),
                    ("recovery: dirty in active extents", u64::from(r.dirty_in_active > 0)),
                    ("recovery: batches dropped", u64::from(r.batches_dropped > 0)),
                    ("recovery: payloads unreadable", r.damage.payloads.len() as u64),
                    ("recovery: payloads verified", u64::from(r.payloads_verified > 0)),
                    ("recovery: epoch above 2", u64::from(r.epoch > 2)),
                    ("recovery: a part repaired", u64::from(!r.damage.repaired.is_empty())),
                    ("recovery: regions known by directory", r.directories.believed),
                    ("recovery: directories missing", r.directories.missing),
                    ("recovery: directories torn", r.directories.torn),
                    ("recovery: directories of earlier lives", r.directories.stale),
                    ("recovery: directories with dropped batches", r.directories.dropped),
                ] {
                    self.add(name, n);
                }
            }
            Found::Refused(e) => {
                let name = match e {
                    LogError::NotALog => "refused: not a log",
                    LogError::SuperblockDamaged => "refused: superblock damaged",
                    LogError::SuperblockStale { .. } => "refused: superblock stale",
                    LogError::Damaged(r) if !r.damage.batches.is_empty() => {
                        "refused: durable batches lost"
                    }
                    LogError::Damaged(r) if !r.damage.misplaced.is_empty() => {
                        "refused: misplaced headers"
                    }
                    LogError::Damaged(_) => "refused: directories contradicted",
                    LogError::Io(_) => "refused: the device failed",
                    LogError::Changed { .. } => "refused: a store that others changed",
                    LogError::Older { .. } => "refused: an older copy",
                    _ => "refused: other",
                };
                self.add(name, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_too_rarely_is_named() {
        let mut c = Coverage::default();
        c.add("a", 3);
        c.add("b", 1);
        assert_eq!(c.missing(&[("a", 3), ("b", 2), ("c", 1)]), [("b", 1, 2), ("c", 0, 1)]);
    }
}
