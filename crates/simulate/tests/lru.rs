//! Compares hit counts with exact LRU, whose hits for each cache size follow from reuse distances.
//!
//! Method: requests of one block each, one at a time and without latencies, so that blocks are used
//! in the order of the trace.

use crate::common::{scenario, scenario_with, zipf};
use forebay_block::{BlockSize, Op, Request};
use forebay_locality::{LocalityOptions, ReuseHistogram, WorkloadLocality};
use forebay_results::ReadWrite;
use forebay_simulate::{Options, Pacing, Scenario, SimulationResult, simulate};

fn distances(requests: &[Request]) -> ReuseHistogram {
    let options = LocalityOptions { block_size: BlockSize::KIB_4, ..LocalityOptions::default() };
    let mut workload = WorkloadLocality::new(options).unwrap();
    requests.iter().for_each(|r| workload.add(r).unwrap());
    workload.finish().unwrap().all.unwrap()
}

fn untimed(scenario: &Scenario, requests: &[Request]) -> SimulationResult {
    let options = Options { pacing: Pacing::Untimed, ..Options::default() };
    simulate(scenario, requests.iter().copied(), &options).unwrap()
}

fn lru_hits(distances: &ReuseHistogram, blocks: u64) -> ReadWrite {
    let hits = |op| distances.hits(op, blocks);
    ReadWrite { read: hits(Op::Read), write: hits(Op::Write) }
}

#[test]
fn memory_alone_hits_exactly_as_lru_of_its_size() {
    let requests = zipf(120_000, 60_000, 4, 7);
    let distances = distances(&requests);
    for policy in ["write-through", "write-back"] {
        for blocks in [64, 1000, 5000] {
            let result = untimed(&scenario(blocks, None, policy), &requests);
            let hits = result.run.cache.unwrap().hits;
            assert_eq!(hits.tier1, lru_hits(&distances, blocks.into()), "{policy}, {blocks}");
            assert_eq!(hits.tier2, ReadWrite::default());
        }
    }
}

#[test]
fn with_flash_behind_it_memory_hits_as_lru_and_what_was_rescued_on_its_way_out() {
    let requests = zipf(120_000, 60_000, 4, 11);
    let distances = distances(&requests);
    for policy in ["write-through", "write-back"] {
        for blocks in [1000, 5000] {
            let result = untimed(&scenario(blocks, Some("64MiB"), policy), &requests);
            let hits = result.run.cache.unwrap().hits;
            let expected = lru_hits(&distances, blocks.into()).sum() + result.events.rescued;
            assert_eq!(hits.tier1.sum(), expected, "{policy}, {blocks}");
        }
    }
}

/// The log is not an LRU of the blocks that fit into it: it drops regions in the order in which
/// they were written, no matter how often their blocks were used since; a promoted block keeps its
/// record until then; an overwritten record leaves a hole; some regions are kept free. Write-back
/// loses more hits, because every write takes space in the log immediately.
#[test]
fn both_tiers_together_come_near_lru_of_their_sum_but_do_not_reach_it() {
    let requests = zipf(120_000, 60_000, 4, 13);
    let distances = distances(&requests);
    for (policy, least) in [("write-through", 0.90), ("write-back", 0.80)] {
        for (blocks, size) in [(1000u32, "16MiB"), (1000, "64MiB"), (5000, "64MiB")] {
            let scenario = scenario(blocks, Some(size), policy);
            let geometry = scenario.cache.flash.as_ref().unwrap().geometry;
            let flash_blocks = geometry.regions * (geometry.region_pages - 1);
            let result = untimed(&scenario, &requests);
            let hits = result.run.cache.unwrap().hits;
            let both = (hits.tier1.sum() + hits.tier2.sum()) as f64;
            let bound = lru_hits(&distances, u64::from(blocks + flash_blocks)).sum() as f64;
            let share = both / bound;
            assert!((least..=1.0).contains(&share), "{policy}, {blocks} + {size}: {share}");
        }
    }
}

/// The planner's formulas assume this. The test treats both tiers as one LRU list: hits on blocks
/// that had left that list but were still on flash are counted separately and subtracted.
#[test]
fn in_slots_both_tiers_together_hit_exactly_as_lru_of_their_sum() {
    for (writes, policies) in
        [(u64::MAX, &["write-through", "write-back"][..]), (4, &["write-through"])]
    {
        let requests = zipf(120_000, 60_000, writes, 19);
        let distances = distances(&requests);
        for policy in policies {
            for (blocks, size) in
                [(64u32, "4MiB"), (1000, "16MiB"), (1000, "64MiB"), (5000, "64MiB")]
            {
                let scenario = scenario_with(blocks, Some(size), policy, "layout = 'slots'");
                let flash = u64::from(scenario.cache.flash.as_ref().unwrap().blocks());
                let result = untimed(&scenario, &requests);
                let hits = result.run.cache.unwrap().hits;
                let both = lru_hits(&distances, u64::from(blocks) + flash).sum();
                let what = format!("{policy}, {blocks} + {size}, {:?}", result.events);
                let first = lru_hits(&distances, blocks.into()).sum() + result.events.rescued;
                assert_eq!(hits.tier1.sum(), first, "{what}");
                let found = hits.tier1.sum() + hits.tier2.sum();
                assert_eq!(found - result.events.flash_rescued, both, "{what}");
            }
        }
    }
}

#[test]
fn requests_of_many_blocks_use_them_in_nearly_the_order_of_the_trace() {
    // The cache uses a request's hits before it has fetched the misses, so the order within a
    // request differs.
    let mut requests = zipf(30_000, 60_000, 4, 17);
    for (i, request) in requests.iter_mut().enumerate() {
        request.length = 4096 * (1 + i as u64 % 16);
    }
    let distances = distances(&requests);
    for blocks in [1000, 5000] {
        let result = untimed(&scenario(blocks, None, "write-through"), &requests);
        let hits = result.run.cache.unwrap().hits.tier1.sum() as f64;
        let exact = lru_hits(&distances, blocks.into()).sum() as f64;
        assert!((hits / exact - 1.0).abs() < 0.01, "{hits} against {exact}");
    }
}

/// Goal: where many of the blocks that left flash return, the first read of a dirty record is
/// served from flash, and the block takes a second place in memory only later, which gains hits.
/// Where few return, nothing changes, so that the formulas hold.
///
/// Method: a loop just longer than a list that also holds copies, together with blocks that are
/// read all the time; and a skewed workload.
#[test]
fn in_slots_dirty_records_wait_for_a_second_reading_only_where_copies_cost_hits() {
    let length = 4096;
    let request = |n: u64, op: Op, block: u64| Request {
        time: forebay_block::Nanos(n),
        volume: forebay_block::Volume(0),
        op,
        flags: forebay_block::Flags::NONE,
        offset: block * length,
        length,
    };
    for acknowledge in ["flash", "dram"] {
        let run = |requests: &[Request], keys: &str| {
            let keys = format!("layout = 'slots'\n{keys}");
            let policy = format!("write-back'\nacknowledge = '{acknowledge}");
            let result = untimed(&scenario_with(500, Some("16MiB"), &policy, &keys), requests);
            let hits = result.run.cache.unwrap().hits;
            assert_eq!(result.events.copies_given_up, 0, "nobody asked for that");
            (hits.tier1.sum(), hits.tier1.sum() + hits.tier2.sum(), result.events.read_through)
        };
        let first = "promote_dirty_after = 1";
        // Two thousand blocks, some of which are sometimes written, and a loop through other
        // blocks.
        let looped: Vec<_> = (0..200_000_u64)
            .map(|n| {
                let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let op = if hash / 2000 % 8 == 0 { Op::Write } else { Op::Read };
                match n % 2 {
                    0 => request(n, op, hash % 2000),
                    _ => request(n, Op::Read, 2000 + n / 2 % 2300),
                }
            })
            .collect();
        let ((_, at_once, none), (_, later, through)) = (run(&looped, first), run(&looped, ""));
        assert_eq!(none, 0, "each reading brings its block to memory");
        assert!(through > 0, "{acknowledge}: no dirty record is read from flash");
        assert!(later > at_once, "{acknowledge}: {later} hits, {at_once} without");
        let skewed = zipf(120_000, 60_000, 4, 23);
        assert_eq!(run(&skewed, first), run(&skewed, ""));
    }
}

/// Goal: dirty blocks that are both in memory and on flash cost no hits where the lost hits would
/// be many, and cause no writes to the backing store where they would be few.
///
/// Method: a loop a little longer than flash but shorter than both tiers together, half of it
/// writes, which has no hits in a list that copies make too short; and a workload without such an
/// edge.
#[test]
fn in_slots_dirty_copies_give_way_where_hits_depend_on_it_and_nowhere_else() {
    let length = 4096;
    let request = |n: u64, block: u64| Request {
        time: forebay_block::Nanos(n),
        volume: forebay_block::Volume(0),
        op: if block.is_multiple_of(2) { Op::Write } else { Op::Read },
        flags: forebay_block::Flags::NONE,
        offset: block * length,
        length,
    };
    let looped: Vec<_> = (0..40 * 4400).map(|n| request(n, n % 4400)).collect();
    for acknowledge in ["flash", "dram"] {
        let policy = format!("write-back'\nacknowledge = '{acknowledge}");
        let run = |requests: &[Request]| {
            let keys = "layout = 'slots'\ngive_up_copies = true";
            let scenario = scenario_with(1000, Some("16MiB"), &policy, keys);
            let flash = scenario.cache.flash.as_ref().unwrap().blocks();
            assert!(flash < 4400 && flash + 1000 > 4400, "{flash}");
            untimed(&scenario, requests)
        };
        let hits = |result: &SimulationResult| {
            let hits = result.run.cache.unwrap().hits;
            hits.tier1.sum() + hits.tier2.sum()
        };
        let result = run(&looped);
        let share = hits(&result) as f64 / (39.0 * 4400.0);
        assert!(share > 0.85 && share <= 1.0, "{acknowledge}: {share}, {:?}", result.events);
        // (With `acknowledge = "dram"`, a rewritten block has no copy on flash until it leaves
        // memory.)
        let given_up = result.events.copies_given_up;
        assert!(given_up > 0 || acknowledge == "dram", "{acknowledge}, {:?}", result.events);
        let result = run(&zipf(120_000, 60_000, 4, 23));
        assert_eq!(result.events.copies_given_up, 0, "{acknowledge}, {:?}", result.events);
    }
}
