//! A flash tier that was formatted with another geometry than the cache is built for.

use crate::driver::{BLOCK, is_sync, with_flash};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, Notice, Open, Order, StopTarget, StoresLeft, VolumeConfig,
    WritePolicy,
};
use forebay_effect::{Device, Effect, IoError, Place, RequestId, Segment, Token};
use forebay_flash::{Geometry, LogError, TierId};

/// A cache whose devices complete everything at once; of the data it keeps what the log writes of
/// its own.
pub struct Run {
    pub cache: Cache,
    pub flash: Vec<u8>,
    now: Nanos,
    /// Writes to flash.
    writes: u64,
    /// Syncs of the backing store that will fail.
    pub sync_failures: u32,
    /// The operations on the backing store that have begun while it hangs.
    pub hung: Option<Vec<Token>>,
    /// Requests answered.
    pub replies: u64,
}

impl Run {
    pub fn start(geometry: Geometry, flash: Vec<u8>, open: Open) -> Run {
        Run::start_under(WritePolicy::WRITE_BACK, geometry, flash, open, None)
    }

    pub fn start_under(
        policy: WritePolicy,
        geometry: Geometry,
        flash: Vec<u8>,
        open: Open,
        hung: Option<Vec<Token>>,
    ) -> Run {
        let mut config = with_flash(policy, Acknowledge::Flash);
        config.flash.as_mut().expect("a tier with flash").geometry = geometry;
        let mut cache = Cache::new(CacheConfig { shards: 1, ..config });
        cache.attach(VolumeConfig::new(64 * BLOCK));
        cache.start(Nanos(0), open);
        let mut run =
            Run { cache, flash, now: Nanos(0), writes: 0, sync_failures: 0, hung, replies: 0 };
        run.settle();
        run
    }

    pub fn write(&mut self, block: u64) {
        self.request(Op::Write, block * BLOCK, BLOCK);
    }

    pub fn request(&mut self, op: Op, offset: u64, length: u64) {
        let request = Request::new(self.now, Volume(0), op, offset, length);
        self.cache.handle_request(RequestId(offset / BLOCK), request);
        self.settle();
    }

    /// Gives an order.
    pub fn order(&mut self, order: Order) {
        self.cache.handle_order(self.now, order);
        self.settle();
    }

    /// Settles, and lets time pass until nothing waits for it.
    pub fn wait(&mut self) {
        self.settle();
        while let Some(at) = self.cache.poll_timeout() {
            self.now = at;
            self.cache.handle_timeout(at);
            self.settle();
        }
    }

    /// Lets time pass until then.
    pub fn pass(&mut self, until: Nanos) {
        while let Some(at) = self.cache.poll_timeout().filter(|&at| at <= until) {
            self.now = at.max(self.now);
            self.cache.handle_timeout(self.now);
            self.settle();
        }
        self.now = until;
    }

    /// The store answers.
    pub fn answer(&mut self) {
        for token in self.hung.take().into_iter().flatten() {
            self.cache.handle_completion(self.now, token, Ok(()));
        }
        self.settle();
    }

    pub fn settle(&mut self) {
        let mut segments = Vec::new();
        while let Some(effect) = self.cache.poll_effect(&mut segments) {
            match effect {
                Effect::Checksum { token, seed } => {
                    let length = segments.iter().map(|segment| segment.length).sum();
                    self.cache.handle_checksum(token, crc32c_of_zeroes(seed, length));
                }
                Effect::Read { device: Device::Flash, offset, .. } => {
                    self.transfer(&segments, offset, true);
                }
                Effect::Write { device: Device::Flash, offset, .. } => {
                    self.transfer(&segments, offset, false);
                    self.writes += 1;
                }
                Effect::Reply { .. } => self.replies += 1,
                _ => {}
            }
            if let (Some(hung), Some(token)) = (&mut self.hung, effect.token())
                && is_on_store(&effect)
            {
                hung.push(token);
                continue;
            }
            if let Some(token) = effect.token().filter(|_| effect.is_device()) {
                let fails = is_sync(&effect) && self.sync_failures > 0;
                self.sync_failures -= u32::from(fails);
                let result = if fails { Err(IoError::Device) } else { Ok(()) };
                self.cache.handle_completion(self.now, token, result);
            }
        }
    }

    fn transfer(&mut self, segments: &[Segment], offset: u64, is_read: bool) {
        let mut at = offset as usize;
        for segment in segments {
            let n = segment.length as usize;
            if let Place::Meta { buffer, offset } = segment.place {
                let meta = &mut self.cache.meta_mut(buffer)[offset as usize..][..n];
                let flash = &mut self.flash[at..at + n];
                match is_read {
                    true => meta.copy_from_slice(flash),
                    false => flash.copy_from_slice(meta),
                }
            }
            at += n;
        }
    }

    pub fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.cache.poll_notice()).collect()
    }
}

fn is_on_store(effect: &Effect) -> bool {
    match *effect {
        Effect::Read { device, .. }
        | Effect::Write { device, .. }
        | Effect::Sync { device, .. } => device != Device::Flash,
        _ => false,
    }
}

/// The CRC-32C of what clients write, all of it zeroes here, appended to `seed`.
fn crc32c_of_zeroes(seed: u32, length: u32) -> u32 {
    !(0..8 * length).fold(!seed, |crc, _| crc >> 1 ^ 0x82F6_3B78 & (crc & 1).wrapping_neg())
}

/// A tier of twelve regions after a clean stop: the first five hold dirty records.
fn formatted() -> (Geometry, Vec<u8>) {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let geometry = Geometry { regions: 12, ..config.flash.expect("a tier with flash").geometry };
    let flash = vec![0; geometry.device_bytes() as usize];
    let open = Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() };
    let mut run = Run::start(geometry, flash, open);
    for block in 0..24 {
        run.write(block);
    }
    run.order(Order::Stop(StopTarget::Flash));
    assert_eq!(run.notices().pop(), Some(Notice::Stopped(Ok(StoresLeft::Behind))));
    let log = run.cache.log_stats().expect("a log");
    assert_eq!((log.regions_total, log.regions_free), (12, 7), "{log:?}");
    (geometry, run.flash)
}

#[test]
fn a_tier_with_another_geometry_than_the_cache_is_refused_by_name_and_left_as_it_was() {
    let (geometry, flash) = formatted();
    let same = Run::start(geometry, flash.clone(), Open::RECOVER).notices();
    assert!(matches!(same[..], [Notice::Ready(Some(_))]), "{same:?}");
    for (run, what, stored, expected) in [
        (Geometry { regions: 4, ..geometry }, "regions", 12, 4),
        (Geometry { regions: 13, ..geometry }, "regions", 12, 13),
        (Geometry { region_pages: 24, ..geometry }, "region pages", 12, 24),
        (Geometry { extent_bytes: 1 << 17, ..geometry }, "extent bytes", 1 << 16, 1 << 17),
    ] {
        let mut run = Run::start(run, flash.clone(), Open::RECOVER);
        let refused = Notice::Failed(LogError::Geometry { what, stored, expected });
        assert_eq!(run.notices(), [refused]);
        assert_eq!(run.writes, 0);
    }
}
