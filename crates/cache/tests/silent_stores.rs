//! A store that does not answer: other volumes are written as if it were not there, and nothing counts as clean
//! that it has not taken.
//!
//! Method: two volumes on flash or more, in virtual time. From some moment on, the stores of all but the last take no
//! writes, or end no syncs; later they answer all that they owe.

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{Acknowledge, CacheConfig, FlashLayout, Order, SlotsConfig, WritePolicy};
use forebay_effect::{Device, Effect, RequestId};

use crate::driver::{BLOCK, Driver, with_flash};

const SECOND: u64 = 1_000_000_000;
const SILENT: Volume = Volume(0);

/// What a silent store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    Nothing,
    Writes,
    Syncs,
}

struct World {
    d: Driver,
    /// The volume whose store works.
    healthy: Volume,
    /// What the stores of all other volumes do not answer.
    silence: Silence,
    requests: u64,
}

fn log() -> CacheConfig {
    with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash)
}

fn slots() -> CacheConfig {
    let mut config = log();
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

impl World {
    fn new(config: CacheConfig, volumes: u32) -> World {
        let d = Driver::with_so_many_volumes(config, 64 * BLOCK, volumes);
        World { d, healthy: Volume(volumes - 1), silence: Silence::Nothing, requests: 0 }
    }

    fn others(&self) -> impl Iterator<Item = Volume> + use<> {
        (0..self.healthy.0).map(Volume)
    }

    fn now(&self) -> Nanos {
        Nanos(self.d.next)
    }

    /// Ends all that devices do, except for what the silent store does not answer.
    fn settle(&mut self) {
        let (silence, healthy) = (self.silence, self.healthy);
        let answers = |effect: &Effect| match *effect {
            Effect::Write { device: Device::Backing(volume), .. } => {
                volume == healthy || silence != Silence::Writes
            }
            Effect::Sync { device: Device::Backing(volume), .. } => {
                volume == healthy || silence != Silence::Syncs
            }
            _ => true,
        };
        while let Some(at) = self.d.pending.iter().position(|(effect, _)| answers(effect)) {
            let token = self.d.pending.remove(at).0.token().expect("a device effect");
            self.d.cache.handle_completion(self.now(), token, Ok(()));
            self.d.poll();
        }
    }

    fn write(&mut self, volume: Volume, block: u64) -> u64 {
        self.requests += 1;
        let request = Request::new(self.now(), volume, Op::Write, block * BLOCK, BLOCK);
        self.d.cache.handle_request(RequestId(self.requests), request);
        self.d.poll();
        self.settle();
        self.requests
    }

    /// Lets time pass, timeout by timeout.
    fn wait(&mut self, nanos: u64) {
        let until = self.d.next + nanos;
        while let Some(at) = self.d.cache.poll_timeout().filter(|at| at.0 <= until) {
            self.d.next = self.d.next.max(at.0);
            self.d.cache.handle_timeout(self.now());
            self.d.poll();
            self.settle();
        }
        self.d.next = until;
    }

    fn destage(&mut self) {
        self.d.order(Order::Destage);
        self.settle();
    }

    /// Writes many blocks of the healthy volume; returns for how long these writes have waited in all.
    fn write_healthy(&mut self, count: u64) -> Result<u64, String> {
        let mut waited = 0;
        for n in 0..count {
            let id = self.write(self.healthy, n % 60);
            while self.d.reply_to(id).is_none() {
                waited += SECOND / 10;
                self.wait(SECOND / 10);
                if waited > 30 * SECOND {
                    return Err(format!("write {n} waits: {}", self.d.cache.describe()));
                }
            }
            assert_eq!(self.d.reply_to(id), Some(Ok(())), "write {n}");
        }
        Ok(waited)
    }

    fn dirty(&self, volume: Volume) -> u64 {
        self.d.cache.volume_stats(volume).expect("it is attached").dirty_blocks
    }

    /// The store answers all that it owes, and takes all that is dirty.
    fn recover(&mut self) {
        self.silence = Silence::Nothing;
        self.settle();
        self.wait(30 * SECOND);
        self.destage();
        assert!((0..=self.healthy.0).all(|volume| self.dirty(Volume(volume)) == 0));
    }
}

/// Each layout, after no store was written, or all, or all by a destage of everything.
fn cases() -> Vec<(String, World)> {
    let mut cases = Vec::new();
    for (name, config) in [("log", log as fn() -> CacheConfig), ("slots", slots)] {
        for (before, writes) in [("nothing", 0), ("cleanings", 200), ("destage", 4)] {
            for volumes in [2, 3, 5] {
                let mut world = World::new(config(), volumes);
                for n in 0..writes {
                    world.write(Volume(n as u32 % volumes), n / u64::from(volumes) % 60);
                    world.wait(SECOND);
                }
                if before == "destage" {
                    world.destage();
                }
                cases.push((format!("{name}, {before}, {volumes} volumes"), world));
            }
        }
    }
    cases
}

/// Goal: blocks in memory that are being written to a store that hangs leave the other frames to other volumes. Method:
/// more of them than spare frames, while the records in the log are destaged; then more blocks of the other volume
/// than memory holds.
#[test]
fn blocks_in_memory_that_a_store_does_not_take_leave_frames_for_other_volumes() {
    for dram_blocks in [8, 16] {
        let config = CacheConfig {
            flash: log().flash,
            acknowledge: Acknowledge::Flash,
            ..CacheConfig::dram_only(dram_blocks)
        };
        let mut world = World::new(config, 2);
        world.silence = Silence::Writes;
        (0..5).for_each(|block| _ = world.write(SILENT, block));
        while world.d.cache.stats().cleanings_parted == 0 {
            let id = world.write(world.healthy, 0);
            while world.d.reply_to(id).is_none() {
                world.wait(SECOND / 10);
            }
        }
        assert_eq!(world.write_healthy(200).map(|waited| waited > 5 * SECOND), Ok(false));
        assert!(world.dirty(SILENT) > 0);
        world.recover();
    }
}

/// Does not return if other volumes are delayed by a store that does not answer this.
fn check_delays(silence: Silence) {
    let mut bad = Vec::new();
    for (case, mut world) in cases() {
        for time in ["once", "again"] {
            world.silence = silence;
            for block in 0..12 {
                world.others().for_each(|volume| _ = world.write(volume, block));
                world.write(world.healthy, block);
            }
            match world.write_healthy(600) {
                Ok(waited) if waited > 5 * SECOND => bad.push(format!("{case}, {time}: {waited}")),
                Ok(_) => {
                    assert!(world.dirty(SILENT) > 0, "{case}: what it has not taken is not clean");
                    world.recover();
                }
                Err(_) => {
                    bad.push(format!("{case}, {time}: no end"));
                    break;
                }
            }
        }
    }
    assert_eq!(bad, Vec::<String>::new());
}

#[test]
fn a_store_that_takes_no_writes_delays_no_other_volume_for_long() {
    check_delays(Silence::Writes);
}

#[test]
fn a_store_that_ends_no_sync_delays_no_other_volume_for_long() {
    check_delays(Silence::Syncs);
}
