//! Measures speed and peak memory of exact reuse distances.
//!
//!     cargo bench -p forebay-locality [-- --requests N --objects N --alpha A --write-ratio W]
//!
//! The default is 20 million single-block requests to 4 million objects, distributed by Zipf with
//! exponent 1.0. About 2.2 million objects are accessed; their keys are scattered over 64 bits.
//! Generating the trace is not timed. Memory is the peak of allocated bytes, including growth and
//! histograms, per distinct block.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use forebay_block::Op;
use forebay_locality::{CurvePoint, Distance, ReuseDistances, ReuseHistogram, Sampling};

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
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Zipf-distributed ranks from 1 to `n`, by rejection-inversion (Hörmann and Derflinger, 1996).
struct Zipf {
    n: f64,
    alpha: f64,
    h_first: f64,
    h_last: f64,
    accept: f64,
    state: u64,
}

impl Zipf {
    fn new(n: u64, alpha: f64, seed: u64) -> Self {
        let mut z =
            Self { n: n as f64, alpha, h_first: 0.0, h_last: 0.0, accept: 0.0, state: seed };
        z.h_first = z.integral(1.5) - 1.0;
        z.h_last = z.integral(n as f64 + 0.5);
        z.accept = 2.0 - z.inverse(z.integral(2.5) - 2f64.powf(-alpha));
        z
    }
    fn integral(&self, x: f64) -> f64 {
        let e = 1.0 - self.alpha;
        if e.abs() < 1e-9 { x.ln() } else { (x.powf(e) - 1.0) / e }
    }
    fn inverse(&self, h: f64) -> f64 {
        let e = 1.0 - self.alpha;
        if e.abs() < 1e-9 { h.exp() } else { (1.0 + h * e).powf(1.0 / e) }
    }
    /// SplitMix64.
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn next(&mut self) -> u64 {
        loop {
            let uniform = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let u = self.h_last + uniform * (self.h_first - self.h_last);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.accept || u >= self.integral(k + 0.5) - k.powf(-self.alpha) {
                return k as u64;
            }
        }
    }
}

struct Arguments {
    requests: u64,
    objects: u64,
    alpha: f64,
    write_ratio: f64,
    repeats: u32,
}

fn arguments() -> Arguments {
    let mut a = Arguments {
        requests: 20_000_000,
        objects: 4_000_000,
        alpha: 1.0,
        write_ratio: 0.3,
        repeats: 3,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|w| w.parse().ok()).unwrap_or(f64::NAN);
        match word.as_str() {
            "--requests" => a.requests = number() as u64,
            "--objects" => a.objects = number() as u64,
            "--alpha" => a.alpha = number(),
            "--write-ratio" => a.write_ratio = number(),
            "--repeats" => a.repeats = number() as u32,
            _ => {}
        }
    }
    a
}

/// Returns the seconds of processor time that this thread has used, so that other work on the
/// machine matters less; the time since `start` if the system does not report it.
fn seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

#[allow(clippy::print_stdout)]
fn main() {
    let (a, start) = (arguments(), Instant::now());
    let mut zipf = Zipf::new(a.objects, a.alpha, 42);
    let mut keys = Vec::with_capacity(a.requests as usize);
    let mut ops = Vec::with_capacity(a.requests as usize);
    let write_below = (a.write_ratio * u64::MAX as f64) as u64;
    for _ in 0..a.requests {
        // Multiplication by an odd number turns ranks into scattered addresses.
        keys.push(zipf.next().wrapping_mul(0xd6e8_feb8_6659_fd93) >> 8);
        ops.push(if zipf.next_u64() < write_below { Op::Write } else { Op::Read });
    }

    let distances = [
        (Distance::Trd, Sampling::All),
        (Distance::Urd, Sampling::All),
        (Distance::PodReadOnly, Sampling::All),
        (Distance::PodWriteOnly, Sampling::All),
        (Distance::LruReadOnly, Sampling::All),
        (Distance::LruWriteOnly, Sampling::All),
        (Distance::Trd, Sampling::Rate(0.1)),
        (Distance::Trd, Sampling::Rate(0.01)),
        (Distance::Trd, Sampling::MaxBlocks(8192)),
    ];
    println!("{} requests, zipf {}, {} objects", a.requests, a.alpha, a.objects);
    let mut exact: Option<ReuseHistogram> = None;
    for (distance, sampling) in distances {
        let mut rates = Vec::new();
        let (mut peak, mut histogram) = (0, None);
        for _ in 0..a.repeats {
            let before = LIVE.load(Relaxed);
            PEAK.store(before, Relaxed);
            let before_seconds = seconds(start);
            let mut reuse = ReuseDistances::sampled(distance, sampling).unwrap();
            for (keys, ops) in keys.chunks(1024).zip(ops.chunks(1024)) {
                reuse.access_batch(keys, ops).unwrap();
            }
            rates.push(a.requests as f64 / (seconds(start) - before_seconds) / 1e6);
            histogram = Some(reuse.into_histogram());
            peak = PEAK.load(Relaxed) - before;
        }
        rates.sort_by(f64::total_cmp);
        let histogram = histogram.unwrap();
        let blocks = histogram.distinct_blocks;
        let miss_ratio = |h: &ReuseHistogram, size| CurvePoint::at(h, size).miss_ratio;
        let exact = exact.get_or_insert_with(|| histogram.clone());
        let sizes = (1..=100).map(|i| exact.distinct_blocks * i / 100);
        let errors =
            sizes.map(|size| (miss_ratio(&histogram, size) - miss_ratio(exact, size)).abs());
        let error = match sampling {
            Sampling::All => String::new(),
            _ => format!("  mean error {:.4}", errors.sum::<f64>() / 100.0),
        };
        println!(
            "{:9} {:16} {:6.2} M/s (of {:.1?})  {:8} blocks  peak {:5.1} B/block  \
             miss ratio at 10 % {:.4}{error}",
            distance.name(),
            format!("{sampling:?}"),
            rates[rates.len() / 2],
            rates,
            blocks,
            peak as f64 / blocks as f64,
            miss_ratio(&histogram, blocks / 10),
        );
    }
}
