//! Memory is bounded: the peak of allocated bytes, including growth and histograms, stays below 48
//! bytes per distinct block from 2,000 blocks on, and below 40 from 200,000 on. A record of one
//! workload takes at most 2.8 bytes more per access, one of two workloads 5.5.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
use forebay_locality::{
    Distance, PhaseOptions, PhaseTree, ReuseDistances, Sampling, SharedRecorder,
};

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A single test function: all tests share one allocator, and the harness allocates when it starts
/// others.
#[test]
fn memory_is_bounded() {
    the_peak_stays_below_48_bytes_per_block_through_all_growth();
    the_stack_of_a_write_only_cache_stays_below_48_bytes_per_block();
    the_stack_of_a_read_only_cache_stays_below_48_bytes_per_block();
    a_bounded_sample_of_millions_of_blocks_takes_less_than_two_megabytes();
    a_record_of_workloads_takes_some_bytes_an_access();
}

fn a_record_of_workloads_takes_some_bytes_an_access() {
    // Distances cover all orders of magnitude up to 100,000 blocks.
    let (accesses, blocks) = (4_000_000u64, 100_000u64);
    for (workloads, bytes_max) in [(1, 2.8), (2, 5.5)] {
        let start = LIVE.load(Relaxed);
        PEAK.store(start, Relaxed);
        let mut recorder = SharedRecorder::new(workloads, BlockSize::KIB_4, None).unwrap();
        let mut random = 1u64;
        for n in 0..accesses {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let workload = n as usize % workloads;
            let block = (random >> 40) % (blocks >> ((random >> 33) % 17)).max(1);
            recorder.add(workload, &read(workload as u32, block)).unwrap();
        }
        let record = recorder.finish().unwrap();
        for workload in &record.workloads {
            assert!(PhaseTree::new(workload, &PhaseOptions::default()).largest().erss_blocks > 0);
        }
        // Up to 23 bytes per block for the table of each workload and for that of all together.
        let tables = if workloads == 1 { 23.0 } else { 23.0 * 3.0 } * blocks as f64;
        let bytes = ((PEAK.load(Relaxed) - start) as f64 - tables) / accesses as f64;
        assert!(bytes < bytes_max, "{bytes} bytes an access of {workloads} workloads");
    }
}

fn read(volume: u32, block: u64) -> Request {
    let (time, volume, flags) = (Nanos(0), Volume(volume), Flags::NONE);
    Request { time, volume, op: Op::Read, flags, offset: block * 4096, length: 4096 }
}

fn the_peak_stays_below_48_bytes_per_block_through_all_growth() {
    // After each growth, the oldest 8 blocks are accessed again, so that distances are as large as
    // possible.
    let start = LIVE.load(Relaxed);
    let mut distances = ReuseDistances::new(Distance::Trd);
    let mut worst: (f64, u64) = (0.0, 0);
    let mut blocks = 0u64;
    while blocks < 3_000_000 {
        let end = blocks + blocks / 50 + 1000;
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        for from in (blocks..end).step_by(512) {
            let keys: [u64; 512] = std::array::from_fn(|i| (from + i as u64).min(end - 1) << 9);
            distances.access_batch(&keys, &[Op::Read; 512]).unwrap();
        }
        blocks = end;
        let far: [u64; 8] = std::array::from_fn(|i| (i as u64) << 9);
        distances.access_batch(&far, &[Op::Write; 8]).unwrap();
        let bytes = (PEAK.load(Relaxed) - start) as f64 / blocks as f64;
        if blocks > 200_000 {
            worst = if bytes > worst.0 { (bytes, blocks) } else { worst };
        }
        assert!(bytes < 48.0 || blocks < 2000, "{bytes} bytes per block at {blocks} blocks");
    }
    assert!(worst.0 < 40.0, "{} bytes per block at {} blocks", worst.0, worst.1);
    assert!(worst.0 > 12.0, "the allocator was not counted");
    PEAK.store(LIVE.load(Relaxed), Relaxed);
    let before = LIVE.load(Relaxed);
    let histogram = distances.into_histogram();
    assert_eq!(histogram.distinct_blocks, blocks);
    assert!(PEAK.load(Relaxed) <= before + 4096, "making the histogram took memory");
}

fn the_stack_of_a_write_only_cache_stays_below_48_bytes_per_block() {
    let start = LIVE.load(Relaxed);
    let mut distances = ReuseDistances::new(Distance::LruWriteOnly);
    let (mut worst, mut blocks) = (0.0_f64, 0u64);
    while blocks < 3_000_000 {
        let end = blocks + blocks / 50 + 1000;
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        for from in (blocks..end).step_by(512) {
            let keys: [u64; 512] = std::array::from_fn(|i| (from + i as u64).min(end - 1) << 9);
            distances.access_batch(&keys, &[Op::Write; 512]).unwrap();
        }
        blocks = end;
        // Reads of blocks deep in the stack make them fixed.
        let far: [u64; 512] = std::array::from_fn(|i| (i as u64 * blocks / 512) << 9);
        distances.access_batch(&far, &[Op::Read; 512]).unwrap();
        if blocks > 200_000 {
            worst = worst.max((PEAK.load(Relaxed) - start) as f64 / blocks as f64);
        }
    }
    assert!((20.0..48.0).contains(&worst), "{worst} bytes per block");
}

fn the_stack_of_a_read_only_cache_stays_below_48_bytes_per_block() {
    let start = LIVE.load(Relaxed);
    let mut distances = ReuseDistances::new(Distance::LruReadOnly);
    let (mut worst, mut blocks) = (0.0_f64, 0u64);
    while blocks < 3_000_000 {
        let end = blocks + blocks / 50 + 1000;
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        for from in (blocks..end).step_by(512) {
            let keys: [u64; 512] = std::array::from_fn(|i| (from + i as u64).min(end - 1) << 9);
            distances.access_batch(&keys, &[Op::Read; 512]).unwrap();
            // From half of the blocks on, each batch also invalidates its own blocks and as many
            // early ones: it leaves twice as many holes as the next batch fills.
            if blocks > 1_500_000 {
                let early = keys.map(|key| key - (1_500_000 << 9));
                distances.access_batch(&early, &[Op::Write; 512]).unwrap();
                distances.access_batch(&keys, &[Op::Write; 512]).unwrap();
            }
        }
        blocks = end;
        if blocks > 200_000 {
            worst = worst.max((PEAK.load(Relaxed) - start) as f64 / blocks as f64);
        }
    }
    assert!((20.0..48.0).contains(&worst), "{worst} bytes per block");
}

fn a_bounded_sample_of_millions_of_blocks_takes_less_than_two_megabytes() {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut distances = ReuseDistances::sampled(Distance::Trd, Sampling::MaxBlocks(8192)).unwrap();
    for pass in 0..2u64 {
        for from in (0..4_000_000u64).step_by(512) {
            let keys: [u64; 512] = std::array::from_fn(|i| (from + i as u64) << 3);
            let op = if pass == 0 { Op::Write } else { Op::Read };
            distances.access_batch(&keys, &[op; 512]).unwrap();
        }
    }
    let histogram = distances.into_histogram();
    let peak = PEAK.load(Relaxed) - before;
    assert!(peak < 2 << 20, "{peak} bytes at the peak");
    let reused = histogram.max_distance().unwrap() as f64;
    assert!((reused / 4e6 - 1.0).abs() < 0.05, "{reused} blocks");
}
