//! A volume that grows between two runs.

mod common;

use common::{BLOCK, Shape, config, perform};
use forebay_adversary::world::{Started, World};
use forebay_block::{Op, Volume};
use forebay_cache::{CacheConfig, LogReplacement, Open, VolumeConfig};
use forebay_device::choices::Seeded;
use forebay_device::memory::DeviceOptions;
use forebay_effect::Device;
use forebay_flash::Binding;

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
    let bindings = vec![Binding::new(Volume(0), [1; 16], 1)];
    assert_eq!(world.start_whole(Open::Format { uuid: [9; 16], bindings }, c), Started::Ready);

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

    // The process is killed, and the volume made larger.
    world.volumes[0] = VolumeConfig::new(BLOCKS * BLOCK);
    world.reboot(config);
    assert_eq!(world.start_whole(Open::RECOVER, c), Started::Ready);
    let found = perform(&mut world, c, Op::Read, 0, (end, last + BLOCK - end), 0);
    assert!(found.iter().all(|&byte| byte == 0), "the store has zeroes there");
}
