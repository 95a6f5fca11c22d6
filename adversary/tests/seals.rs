//! Seals, taken as an engine takes them: no request is in flight, and everything has been destaged.
//! Work in the background need not have ended.

mod common;

use common::{BLOCK, Shape, config, perform};
use forebay_adversary::world::{Started, World};
use forebay_block::{Op, Volume};
use forebay_cache::{CacheConfig, LogReplacement, Open, Order, VolumeConfig};
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::{CutStyle, DeviceOptions};
use forebay_effect::Device;
use forebay_flash::{Binding, SEAL_BYTES, Sealed, StoreId, TierId};

const VOLUME_BYTES: u64 = 64 * BLOCK;

fn start(config: CacheConfig, volumes: u32, seed: u64, c: &mut dyn Choices) -> World {
    let bytes = config.flash.as_ref().unwrap().geometry.device_bytes();
    let flash = Some(DeviceOptions::sized(bytes));
    let sizes = vec![VolumeConfig::new(VOLUME_BYTES); volumes as usize];
    let mut world = World::new(config, sizes, flash, DeviceOptions::sized, seed);
    let bindings =
        (0..volumes).map(|v| Binding::new(Volume(v), StoreId::new([v as u8 + 1; 16]), 1));
    let (uuid, bindings) = (TierId::new([9; 16]), bindings.collect());
    assert_eq!(world.start_whole(Open::Format { uuid, bindings }, c), Started::Ready);
    world
}

/// The byte that a block of volume 0 consists of.
fn read(world: &mut World, c: &mut dyn Choices, block: u64) -> u8 {
    let data = perform(world, c, Op::Read, 0, (block * BLOCK, BLOCK), 0);
    assert!(data.iter().all(|&byte| byte == data[0]), "a block of two versions");
    data[0]
}

fn destage(world: &mut World, c: &mut dyn Choices) {
    world.order(Order::Destage);
    let result = loop {
        match world.destaged() {
            Some(result) => break result,
            None => assert!(world.complete_one(c), "a destage hangs: {}", world.cache.describe()),
        }
    };
    assert_eq!(result, Ok(()));
}

/// Seals volume 0. Nothing has been written since a destage.
fn seal(world: &mut World, c: &mut dyn Choices, byte: u8, distrust: bool) {
    let seal = [byte; SEAL_BYTES];
    world.order(Order::Seal(vec![Sealed { volume: Volume(0), seal, distrust, stamp: None }]));
    let result = loop {
        match world.sealed() {
            Some(result) => break result,
            None => assert!(world.complete_one(c), "a seal hangs: {}", world.cache.describe()),
        }
    };
    assert_eq!(result, Ok(()), "seal {byte}");
}

/// Writes and reads, many of which leave a frame with more of the block than its record has.
fn seal_after_partial_writes(shape: &Shape, seeds: u64) -> u64 {
    let mut repeated = 0;
    for seed in 0..seeds {
        let c = &mut Seeded::new(seed);
        let mut world = start(config(shape), 1, seed, c);
        world.late = Some(Volume(0));
        while world.complete_one(c) {}
        for _ in 0..60 {
            for _ in 0..1 + c.choose(8) {
                let at = c.choose(32) * BLOCK;
                let (op, range) = match c.choose(16) {
                    0..8 => (Op::Write, (at + 512 * c.choose(8), 512)),
                    8 => (Op::Trim, (32 * BLOCK + at, BLOCK)),
                    _ => (Op::Read, (at, BLOCK)),
                };
                perform(&mut world, c, op, 0, range, 3);
            }
            if c.choose(3) == 0 {
                destage(&mut world, c);
                let distrust = c.choose(2) == 1;
                seal(&mut world, c, 1, distrust);
                assert_eq!(world.cache.dirty_blocks(), 0, "seed {seed}: dirty after a seal");
                seal(&mut world, c, 0, false);
            }
        }
        repeated += world.cache.stats().destages_repeated;
    }
    repeated
}

#[test]
fn nothing_is_dirty_after_a_destage_even_if_a_record_was_being_appended() {
    let replacement = LogReplacement::Fifo;
    let slots = Shape { slots: 16, region_pages: 10, regions: 5, batch: 16, replacement };
    assert!(seal_after_partial_writes(&slots, 800) > 0, "no append was marked dirty without need");
    // (There, hardly any is.)
    let log = Shape { slots: 0, region_pages: 20, ..slots };
    seal_after_partial_writes(&log, 400);
}

/// Others write to the store of volume 0, whose cached data are dropped; then the power goes, now
/// and then.
fn distrust_while_regions_are_reclaimed(shape: &Shape, seeds: u64) {
    for seed in 0..seeds {
        let c = &mut Seeded::new(seed);
        let call_steps = [1, 2, CacheConfig::CALL_STEPS][c.choose(3) as usize];
        let mut world = start(CacheConfig { call_steps, ..config(shape) }, 2, seed, c);
        let store = Device::Backing(Volume(0));
        let mut written = 0;
        let hot = 2 + c.choose(9);
        for round in 0..150 {
            match c.choose(3) {
                0 => {
                    let at = c.choose(20) * BLOCK;
                    perform(&mut world, c, Op::Read, 1, (at, BLOCK), 0);
                }
                _ => {
                    let block = c.choose(hot);
                    assert_eq!(read(&mut world, c, block), written, "seed {seed}, round {round}");
                }
            }
            for _ in 0..c.choose(4) {
                world.complete_one(c);
            }
            if c.choose(8) != 0 {
                continue;
            }
            destage(&mut world, c);
            for _ in 0..c.choose(8) {
                let block = c.choose(hot);
                assert_eq!(read(&mut world, c, block), written, "seed {seed}, round {round}");
            }
            written += 1;
            let image = vec![written; VOLUME_BYTES as usize];
            world.executor.devices_mut().replace(store, image);
            seal(&mut world, c, 0, true);
            if c.choose(3) != 0 {
                world.power_cut(CutStyle::Any, c);
                assert_eq!(world.start_whole(Open::RECOVER, c), Started::Ready);
                for block in 0..hot {
                    let found = read(&mut world, c, block);
                    assert_eq!(found, written, "seed {seed}, round {round}: after a cut");
                }
            }
        }
    }
}

#[test]
fn what_a_seal_distrusts_does_not_come_back_with_records_that_move() {
    let replacement = LogReplacement::SecondChance;
    let slots = Shape { slots: 16, region_pages: 9, regions: 7, batch: 1, replacement };
    distrust_while_regions_are_reclaimed(&slots, 1200);
    let log = Shape { slots: 0, region_pages: 12, regions: 6, ..slots };
    distrust_while_regions_are_reclaimed(&log, 400);
}
