//! A volume that grows between two runs.

mod common;

use common::{BLOCK, Shape, config, perform};
use forebay_adversary::world::{Started, World};
use forebay_block::{Op, Volume};
use forebay_cache::{CacheConfig, LogReplacement, Open, Order, StopTarget, VolumeConfig};
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::{CutStyle, DeviceOptions};
use forebay_effect::Device;
use forebay_flash::{Binding, StoreId, TierId};

const BLOCKS: u64 = 64;

#[test]
fn behind_its_former_end_a_volume_has_nothing_of_other_blocks() {
    let c = &mut Seeded::new(1);
    let replacement = LogReplacement::Fifo;
    let shape = Shape { slots: 0, region_pages: 12, regions: 6, batch: 1, replacement };
    let config = CacheConfig { bounce_frames: 1, ..config(&shape) };
    let flash = Some(DeviceOptions::sized(config.flash.as_ref().unwrap().geometry.device_bytes()));
    let (end, last) = ((BLOCKS - 1) * BLOCK + 1024, (BLOCKS - 1) * BLOCK);
    let volumes = vec![VolumeConfig::new(end)];
    let store = |_| DeviceOptions::sized(BLOCKS * BLOCK);
    let mut world = World::new(config.clone(), volumes, flash, store, 1);
    let bindings = vec![Binding::new(Volume(0), StoreId::new([1; 16]), 1)];
    assert_eq!(
        world.start_whole(Open::Format { uuid: TierId::new([9; 16]), bindings }, c),
        Started::Ready
    );

    // The data of another block pass through the bounce frame.
    let mut image = vec![0; (BLOCKS * BLOCK) as usize];
    image[..BLOCK as usize].fill(7);
    world.executor.devices_mut().replace(Device::Backing(Volume(0)), image);
    perform(&mut world, c, Op::Write, 0, (0, 512), 7);
    perform(&mut world, c, Op::Read, 0, (512, 512), 0);
    // The last block is written in part, the rest of what is in the volume is fetched, and it leaves
    // memory for flash.
    perform(&mut world, c, Op::Write, 0, (last, 512), 5);
    perform(&mut world, c, Op::Read, 0, (last + 512, 512), 0);
    for block in 2..5 {
        perform(&mut world, c, Op::Read, 0, (block * BLOCK, BLOCK), 0);
    }
    while world.complete_one(c) {}

    // Its record has zeroes behind the end.
    let flash = world.executor.devices().contents(Device::Flash);
    let records = || flash.chunks(BLOCK as usize).filter(|page| page[..512] == [5; 512]);
    assert!(records().count() > 0, "the last block is on flash");
    assert!(records().all(|page| page[1024..].iter().all(|&byte| byte == 0)));

    // The process is killed, and the volume made larger. The last block is dirty.
    world.volumes[0] = VolumeConfig::new(BLOCKS * BLOCK);
    world.reboot(config.clone());
    let refused = world.start_whole(Open::RECOVER, c);
    assert!(matches!(&refused, Started::Refused(why) if why.contains("larger now")), "{refused:?}");
}

/// The store has 9 everywhere.
fn grow_and_cut_the_power(slots: u32, seed: u64) {
    let c = &mut Seeded::new(seed);
    let replacement = LogReplacement::Fifo;
    let shape = Shape { slots, region_pages: 12, regions: 6, batch: 1, replacement };
    let config = config(&shape);
    let flash = Some(DeviceOptions::sized(config.flash.as_ref().unwrap().geometry.device_bytes()));
    let (end, last) = ((BLOCKS - 1) * BLOCK + 1024, (BLOCKS - 1) * BLOCK);
    let store = |_| DeviceOptions::sized(BLOCKS * BLOCK);
    let mut world = World::new(config.clone(), vec![VolumeConfig::new(end)], flash, store, seed);
    let bindings = vec![Binding::new(Volume(0), StoreId::new([1; 16]), 1)];
    assert_eq!(
        world.start_whole(Open::Format { uuid: TierId::new([9; 16]), bindings }, c),
        Started::Ready
    );
    world
        .executor
        .devices_mut()
        .replace(Device::Backing(Volume(0)), vec![9; (BLOCKS * BLOCK) as usize]);
    for block in [BLOCKS - 2, BLOCKS - 1, 0, 1, 2] {
        perform(&mut world, c, Op::Write, 0, (block * BLOCK, 512), 5);
        perform(&mut world, c, Op::Read, 0, (block * BLOCK + 512, 512), 0);
    }
    world.order(Order::Stop(StopTarget::Stores));
    while world.stopped().is_none() {
        assert!(world.complete_one(c), "a stop hangs: {}", world.cache.describe());
    }

    // Cuts before the start has ended, and after one that has.
    world.volumes[0] = VolumeConfig::new(BLOCKS * BLOCK);
    world.reboot(config.clone());
    world.start(Open::RECOVER);
    world.run();
    for _ in 0..c.choose(40) {
        world.complete_one(c);
    }
    for _ in 0..2 {
        world.power_cut(CutStyle::Any, c);
        world.reboot(config.clone());
        assert_eq!(world.start_whole(Open::RECOVER, c), Started::Ready, "seed {seed}");
    }
    let behind = perform(&mut world, c, Op::Read, 0, (end, last + BLOCK - end), 0);
    assert!(behind.iter().all(|&byte| byte == 9), "seed {seed}, {slots} slots: {behind:?}");
    assert_eq!(perform(&mut world, c, Op::Read, 0, (last, 512), 0), [5; 512], "seed {seed}");
}

#[test]
fn behind_its_former_end_a_volume_has_what_its_store_has() {
    for slots in [0, 16] {
        for seed in 0..100 {
            grow_and_cut_the_power(slots, seed);
        }
    }
}
