//! A driver without bytes: it holds device effects back and completes those that a test names.

#![allow(dead_code, reason = "no test uses all of it")]

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, CacheStats, FlashConfig, FlashLayout, LogReplacement, Open,
    Order, SlotsConfig, VolumeConfig, WritePolicy,
};
use forebay_effect::{Device, Effect, IoError, Outcome, Place, RequestId, Segment, Token};
use forebay_flash::{Geometry, TierId};

pub const BLOCK: u64 = 4096;
pub const BACKING: Device = Device::Backing(Volume(0));

/// In the first polls of a driver, the whole state before and after turns without work is compared: that takes long.
const DESCRIBED: u32 = 100;

/// Holds the cache, what it asked of devices, and the replies it gave.
pub struct Driver {
    pub cache: Cache,
    pub pending: Vec<(Effect, Vec<Segment>)>,
    pub replies: Vec<(u64, Outcome)>,
    pub copies: u64,
    pub zeroed: Vec<(Place, u32)>,
    pub next: u64,
    polls: u32,
}

impl Driver {
    pub fn new(config: CacheConfig) -> Driver {
        Driver::with_volumes(config, 64 * BLOCK)
    }

    /// With two volumes of this size.
    pub fn with_volumes(config: CacheConfig, size_bytes: u64) -> Driver {
        Driver::with_so_many_volumes(config, size_bytes, 2)
    }

    /// With so many volumes of this size.
    pub fn with_so_many_volumes(config: CacheConfig, size_bytes: u64, volumes: u32) -> Driver {
        let mut cache = Cache::new(config);
        for _ in 0..volumes {
            cache.attach(VolumeConfig::new(size_bytes));
        }
        Driver::start(cache)
    }

    /// Starts this cache.
    pub fn start(mut cache: Cache) -> Driver {
        let has_flash = cache.config().flash.is_some();
        let open = Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() };
        cache.start(Nanos(0), open);
        let (pending, replies, zeroed) = (Vec::new(), Vec::new(), Vec::new());
        let mut driver = Driver { cache, pending, replies, copies: 0, zeroed, next: 0, polls: 0 };
        driver.poll();
        if has_flash {
            driver.settle();
        }
        driver.settle();
        assert!(driver.cache.is_ready());
        driver
    }

    pub fn poll(&mut self) {
        let mut segments = Vec::new();
        while let Some(effect) = self.cache.poll_effect(&mut segments) {
            match effect {
                Effect::Reply { request, result } => self.replies.push((request.0, result)),
                Effect::Checksum { token, .. } => self.cache.handle_checksum(token, 0),
                Effect::Copy { .. } => self.copies += 1,
                Effect::Zero { to, length } => self.zeroed.push((to, length)),
                e if e.is_device() => self.pending.push((e, segments.clone())),
                _ => {}
            }
        }
        self.cache.check_requests();
        self.polls += 1;
        let before = (self.polls <= DESCRIBED).then(|| self.cache.describe());
        self.cache.check_turns();
        if let Some(before) = before {
            assert_eq!(before, self.cache.describe(), "a turn without work changes something");
        }
        self.cache.check_blocks();
    }

    pub fn request(&mut self, op: Op, flags: Flags, offset: u64, length: u64) -> u64 {
        self.next += 1;
        let (time, volume) = (Nanos(self.next), Volume(0));
        let request = Request { time, volume, op, flags, offset, length };
        self.cache.handle_request(RequestId(self.next), request);
        self.poll();
        self.next
    }

    /// Gives an order.
    pub fn order(&mut self, order: Order) {
        self.cache.handle_order(Nanos(self.next), order);
        self.poll();
    }

    pub fn read(&mut self, block: u64) -> u64 {
        self.request(Op::Read, Flags::NONE, block * BLOCK, BLOCK)
    }

    pub fn write(&mut self, block: u64) -> u64 {
        self.request(Op::Write, Flags::NONE, block * BLOCK, BLOCK)
    }

    /// Device effects under way on `device` of the kind that `is` accepts.
    pub fn count(&self, is: impl Fn(&Effect) -> bool) -> usize {
        self.pending.iter().filter(|(e, _)| is(e)).count()
    }

    pub fn complete_first(&mut self, is: impl Fn(&Effect) -> bool, result: Outcome) {
        let at = self.pending.iter().position(|(e, _)| is(e)).expect("such an effect is pending");
        let token: Token = self.pending.remove(at).0.token().expect("a device effect has a token");
        self.cache.handle_completion(Nanos(self.next), token, result);
        self.poll();
    }

    /// Completes everything, well, until nothing is left.
    pub fn settle(&mut self) {
        while !self.pending.is_empty() {
            self.complete_first(|_| true, Ok(()));
        }
    }

    pub fn reply_to(&self, id: u64) -> Option<Outcome> {
        self.replies.iter().find(|r| r.0 == id).map(|r| r.1)
    }
}

pub fn is_read(e: &Effect) -> bool {
    matches!(e, Effect::Read { device, .. } if *device == BACKING)
}
pub fn is_write(e: &Effect) -> bool {
    matches!(e, Effect::Write { device, .. } if *device == BACKING)
}
pub fn is_sync(e: &Effect) -> bool {
    matches!(e, Effect::Sync { device, .. } if *device == BACKING)
}
pub fn is_flash_write(e: &Effect) -> bool {
    matches!(e, Effect::Write { device: Device::Flash, .. })
}
pub fn is_flash_sync(e: &Effect) -> bool {
    matches!(e, Effect::Sync { device: Device::Flash, .. })
}

pub fn is_flash_read(e: &Effect) -> bool {
    matches!(e, Effect::Read { device: Device::Flash, .. })
}

pub fn flash_offset(e: &Effect) -> u64 {
    match *e {
        Effect::Read { device: Device::Flash, offset, .. } => offset,
        ref e => panic!("{e:?} is something else"),
    }
}

/// What a read or write of the backing store moves: which way, the first block, how many.
pub fn operation(e: &Effect) -> (char, u64, u64) {
    match *e {
        Effect::Read { device: BACKING, offset, length, .. } => {
            ('r', offset / BLOCK, u64::from(length) / BLOCK)
        }
        Effect::Write { device: BACKING, offset, length, .. } => {
            ('w', offset / BLOCK, u64::from(length) / BLOCK)
        }
        ref e => panic!("{e:?} is something else"),
    }
}

pub fn with_flash(write_policy: WritePolicy, acknowledge: Acknowledge) -> CacheConfig {
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
    CacheConfig {
        write_policy,
        acknowledge,
        flash: Some(FlashConfig {
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
        }),
        ..CacheConfig::dram_only(4)
    }
}

/// Write-back over flash in the slots layout.
pub fn with_slots() -> CacheConfig {
    let mut config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    let flash = config.flash.as_mut().expect("there is flash");
    (flash.geometry.slots, flash.geometry.directory_pages) = (32, 0);
    flash.geometry.regions = 24;
    flash.entries_max = 32;
    flash.layout = FlashLayout::Slots(SlotsConfig {
        blocks: 28,
        cells: Default::default(),
        promote_dirty_after: 1,
        give_up_copies: true,
    });
    config
}

/// The cache's counters.
pub fn stats(d: &Driver) -> CacheStats {
    *d.cache.stats()
}

/// The answer to a request for bytes of a volume, once nothing is left to do. Effects that `fails` names
/// fail.
pub fn done_of(
    d: &mut Driver,
    volume: Volume,
    op: Op,
    offset: u64,
    length: u64,
    fails: impl Fn(&Effect) -> bool,
) -> Option<Outcome> {
    d.next += 1;
    let id = d.next;
    let request = Request { time: Nanos(id), volume, op, flags: Flags::NONE, offset, length };
    d.cache.handle_request(RequestId(id), request);
    d.poll();
    while let Some((effect, _)) = d.pending.first() {
        let result = if fails(effect) { Err(IoError::Device) } else { Ok(()) };
        d.complete_first(|_| true, result);
    }
    d.reply_to(id)
}

/// A request for one block, which succeeds.
pub fn done(d: &mut Driver, op: Op, flags: Flags, block: u64) {
    let id = d.request(op, flags, block * BLOCK, BLOCK);
    d.settle();
    assert_eq!(d.reply_to(id), Some(Ok(())));
}

pub fn read(d: &mut Driver, block: u64) {
    done(d, Op::Read, Flags::NONE, block);
}

pub fn write(d: &mut Driver, block: u64) {
    done(d, Op::Write, Flags::NONE, block);
}

/// All that was handed to the log is written, with a batch that is not full.
pub fn flush(d: &mut Driver) {
    d.request(Op::Flush, Flags::NONE, 0, 0);
    d.settle();
}

/// Records that flash was given.
pub fn records(d: &Driver) -> u64 {
    d.cache.log_stats().expect("a log").entries
}
