//! Trims of more than is cached, and of more than is handed out at once, among other requests.

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, FlashConfig, FlashLayout, LogReplacement, Notice, Open, Order,
    VolumeConfig, WritePolicy,
};
use forebay_effect::{Effect, RequestId, Segment, Token};
use forebay_flash::{Geometry, TierId};

const BLOCK: u64 = 4096;

/// A cache whose device effects are kept until a test completes them.
struct Driver {
    cache: Cache,
    pending: Vec<Token>,
    /// Every effect, in words.
    effects: Vec<String>,
    replies: Vec<u64>,
}

impl Driver {
    fn new(config: CacheConfig, blocks: u64) -> Driver {
        Driver::with_bytes(config, blocks * BLOCK)
    }

    fn with_bytes(config: CacheConfig, size_bytes: u64) -> Driver {
        let mut cache = Cache::new(config);
        cache.attach(VolumeConfig::new(size_bytes));
        cache.start(Nanos(0), Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() });
        let mut driver =
            Driver { cache, pending: Vec::new(), effects: Vec::new(), replies: Vec::new() };
        driver.poll();
        driver.settle();
        driver
    }

    fn poll(&mut self) {
        let mut segments: Vec<Segment> = Vec::new();
        while let Some(effect) = self.cache.poll_effect(&mut segments) {
            self.effects.push(format!("{effect:?} {segments:?}"));
            match effect {
                Effect::Reply { request, result } => {
                    assert_eq!(result, Ok(()));
                    self.replies.push(request.0);
                }
                Effect::Checksum { token, .. } => self.cache.handle_checksum(token, 0),
                device => self.pending.extend(device.token()),
            }
        }
    }

    fn request(&mut self, id: u64, op: Op, first: u64, count: u64) {
        self.request_bytes(id, op, first * BLOCK, count * BLOCK);
    }

    fn request_bytes(&mut self, id: u64, op: Op, offset: u64, length: u64) {
        let request = Request::new(Nanos(0), Volume(0), op, offset, length);
        self.cache.handle_request(RequestId(id), request);
        self.poll();
    }

    fn complete(&mut self, at: usize) {
        let token = self.pending.remove(at);
        self.cache.handle_completion(Nanos(0), token, Ok(()));
        self.poll();
    }

    fn settle(&mut self) {
        while !self.pending.is_empty() {
            self.complete(0);
        }
    }

    fn zeroed(&self) -> u64 {
        self.cache.volume_stats(Volume(0)).expect("a volume").backing_zero_bytes / BLOCK
    }
}

fn config(write_policy: WritePolicy) -> CacheConfig {
    CacheConfig { write_policy, waiters_max: 64, ..CacheConfig::dram_only(32) }
}

#[test]
fn a_trim_of_everything_leaves_the_devices_and_the_places_to_others() {
    const BLOCKS: u64 = 1 << 22;
    for policy in [WritePolicy::WRITE_BACK, WritePolicy::WRITE_THROUGH] {
        let mut d = Driver::new(config(policy), BLOCKS);
        d.request(1, Op::Trim, 0, BLOCKS);
        let most = (CacheConfig::REQUEST_BLOCKS_MAX / CacheConfig::STEP_BLOCKS) as usize;
        assert_eq!(d.pending.len(), most, "{policy:?}");
        // Who comes later is not behind all of it.
        d.request(2, Op::Read, BLOCKS - 1, 1);
        assert_eq!(d.pending.len(), most + 1);
        d.complete(most);
        assert_eq!(d.replies, [2], "{policy:?}");
        while !d.replies.contains(&1) {
            // The cached block divides a range.
            assert!(d.pending.len() <= most + 2);
            d.complete(0);
        }
        // All but the block that the read brought in, where zeroes are a new version.
        let cached = u64::from(policy.write_back);
        assert_eq!(d.zeroed(), BLOCKS - cached, "{policy:?}");
        d.settle();
        assert!(d.cache.is_idle());
    }
}

#[test]
fn trims_that_overlap_cost_what_they_cost_one_by_one() {
    const BLOCKS: u64 = 1 << 14;
    const TRIMS: u64 = 40;
    for policy in [WritePolicy::WRITE_BACK, WritePolicy::WRITE_THROUGH] {
        let zeroings = |overlap: bool| {
            let mut d = Driver::new(config(policy), BLOCKS);
            for n in 0..TRIMS {
                // All of it, or all but a few blocks at either end.
                d.request(
                    n,
                    if n % 2 == 0 { Op::Trim } else { Op::WriteZeroes },
                    n,
                    BLOCKS - 2 * n,
                );
                if !overlap {
                    d.settle();
                }
            }
            // One that meets none of those under way, behind them, and short ones, which wait for nobody.
            d.request(100, Op::Trim, 0, 1);
            d.settle();
            assert_eq!(d.replies.len() as u64, TRIMS + 1);
            assert!(d.cache.is_idle());
            assert_eq!(d.cache.stats().waits_zeroing, if overlap { TRIMS - 1 } else { 0 });
            d.effects.iter().filter(|effect| effect.starts_with("WriteZeroes")).count()
        };
        let (together, apart) = (zeroings(true), zeroings(false));
        assert!(together <= apart + 2, "{policy:?}: {together} zeroings instead of {apart}");
    }
}

#[test]
fn trims_that_do_not_overlap_are_under_way_together() {
    let mut d = Driver::new(config(WritePolicy::WRITE_THROUGH), 1 << 14);
    d.request(1, Op::Trim, 0, 1024);
    let of_one = d.pending.len();
    d.request(2, Op::Trim, 1024, 1024);
    assert_eq!(d.pending.len(), 2 * of_one);
    // Waits for the first; who comes behind it waits, too.
    d.request(3, Op::Trim, 1000, 1024);
    d.request(4, Op::Trim, 4096, 1024);
    assert_eq!(d.pending.len(), 2 * of_one);
    d.settle();
    assert_eq!(d.replies.len(), 4);
}

#[test]
fn nothing_of_a_block_is_owed_behind_the_end_of_its_volume() {
    let geometry = Geometry {
        block_size: 4096,
        page_size: 4096,
        region_pages: 12,
        slots: 0,
        directory_pages: 0,
        regions: 4,
        superblock_pages: 1,
        extent_bytes: 1 << 16,
        batch_pages_max: 5,
        batch_entries_max: 4,
        inflight_batches_max: 1,
        active_extents_max: 2,
    };
    let flash = FlashConfig {
        geometry,
        layout: FlashLayout::Log { replacement: LogReplacement::Frequency },
        entries_max: 48,
        regions_reserved: 1,
        recovery_chunk_pages: 64,
        admission: forebay_cache::AdmissionParameters::default(),
        promote_after: 1,
        line_blocks: 1,
        queues: Default::default(),
        written: Default::default(),
    };
    let config =
        CacheConfig { dram_blocks: 2, flash: Some(flash), ..config(WritePolicy::WRITE_THROUGH) };
    let mut d = Driver::with_bytes(config, 8 * BLOCK + 512);
    // The last block comes in whole; all that there is of it is zeroed behind the cache.
    d.request_bytes(1, Op::Read, 8 * BLOCK, 512);
    d.settle();
    d.request_bytes(2, Op::Trim, 8 * BLOCK, 512);
    d.settle();
    // Under write-back it leaves memory while zeroes nearby are not durable yet.
    let back = Order::SetPolicy(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    d.cache.handle_order(Nanos(3), back);
    d.poll();
    d.settle();
    d.request(3, Op::Trim, 7, 1);
    d.settle();
    for block in 0..6 {
        d.request(4 + block, Op::Read, block, 1);
        d.settle();
    }
    d.cache.handle_order(Nanos(10), Order::Destage);
    d.poll();
    d.settle();
    let notices: Vec<_> = std::iter::from_fn(|| d.cache.poll_notice()).collect();
    assert!(notices.contains(&Notice::Destaged(Ok(()))), "{notices:?}");
    assert!(d.cache.is_idle());
}

#[test]
fn while_a_trim_waits_for_its_blocks_a_turn_does_nothing() {
    let mut d = Driver::new(config(WritePolicy::WRITE_THROUGH), 1 << 20);
    d.request(1, Op::Trim, 0, 1 << 19);
    let (handed_out, effects) = (d.cache.stats().range_zeroes, d.effects.len());
    for _ in 0..100 {
        d.cache.handle_timeout(Nanos(0));
        d.poll();
    }
    assert_eq!((d.cache.stats().range_zeroes, d.effects.len()), (handed_out, effects));
    assert_eq!(d.cache.stats().pauses, 1);
    d.settle();
    assert_eq!(d.replies, [1]);
}

#[test]
fn requests_without_a_place_go_on_in_turn_when_there_is_one() {
    // One place, held by the read of block 0 until its fetch ends.
    let mut c = config(WritePolicy::WRITE_BACK);
    c.waiters_max = 1;
    let mut d = Driver::new(c, 64);
    for id in 1..=10 {
        d.request(id, Op::Read, id - 1, 1);
    }
    assert_eq!((d.pending.len(), d.cache.stats().waits_place), (1, 9));
    for answered in 1..=10 {
        d.complete(0);
        assert_eq!(d.replies, (1..=answered).collect::<Vec<_>>());
        // Only the one for which there was a place has been tried.
        assert!(d.cache.stats().waits_place <= 9 + answered, "{:?}", d.cache.stats());
    }
}

/// Random requests, trims among them, and completions; the effects.
fn walk(policy: WritePolicy, stripe_shift: u32, seed: u64) -> (Vec<String>, String) {
    let steps = CacheConfig { step_blocks: 24, request_blocks_max: 60, ..config(policy) };
    walk_with(CacheConfig { stripe_shift, ..steps }, seed)
}

/// Random requests and completions on a cache of any configuration; the effects.
fn walk_with(config: CacheConfig, seed: u64) -> (Vec<String>, String) {
    const BLOCKS: u64 = 200;
    let mut d = Driver::new(config, BLOCKS);
    let mut x = seed;
    let mut draw = |n: u64| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % n
    };
    for id in 0..400 {
        let first = draw(BLOCKS);
        match draw(8) {
            0..=2 => d.request(id, Op::Read, first, 1),
            3..=4 => d.request(id, Op::Write, first, 1),
            5 => d.request(id, Op::Trim, first, 1 + draw(BLOCKS - first)),
            6 => d.request(id, Op::WriteZeroes, first, 1 + draw((BLOCKS - first).min(30))),
            _ => d.request(id, Op::Flush, 0, 0),
        }
        for _ in 0..draw(3) {
            if !d.pending.is_empty() {
                d.complete(draw(d.pending.len() as u64) as usize);
            }
        }
    }
    d.settle();
    assert_eq!(d.replies.len(), 400);
    (d.effects, format!("{:?}", d.cache.volume_stats(Volume(0))))
}

#[test]
fn extents_taken_as_one_are_zeroed_as_if_block_by_block() {
    for policy in [WritePolicy::WRITE_BACK, WritePolicy::WRITE_THROUGH, WritePolicy::READ_ONLY] {
        for seed in 0..12 {
            // In extents of a block nothing is taken as one.
            let one_by_one = walk(policy, 12, seed);
            for stripe_shift in [14, 16, 20] {
                let taken = walk(policy, stripe_shift, seed);
                assert!(taken == one_by_one, "{policy:?}, seed {seed}, shift {stripe_shift}");
            }
        }
    }
}

#[test]
fn a_request_has_no_more_under_way_than_it_may_however_often_places_come_and_go() {
    // The cache asserts it at the end of every step.
    for seed in 0..200 {
        let few = CacheConfig {
            step_blocks: 4,
            request_blocks_max: 6,
            waiters_max: 4,
            ..config(WritePolicy::WRITE_BACK)
        };
        walk_with(few, seed);
    }
}
