//! A volume that grows between two runs.

use forebay_adversary::world::{Started, World};
use forebay_block::{BlockSize, Flags, Op, Volume};
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, FlashLayout, LogReplacement, Open, VolumeConfig,
    WritePolicy,
};
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::DeviceOptions;
use forebay_effect::Device;
use forebay_flash::{Binding, Geometry};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

fn config() -> CacheConfig {
    let geometry = Geometry {
        block_size: 4096,
        page_size: 4096,
        region_pages: 12,
        slots: 0,
        directory_pages: 0,
        regions: 6,
        superblock_pages: 1,
        extent_bytes: 1 << 16,
        batch_pages_max: 2,
        batch_entries_max: 1,
        inflight_batches_max: 1,
        active_extents_max: 2,
    };
    CacheConfig {
        block_size: BlockSize::new(4096).unwrap(),
        write_policy: WritePolicy::WRITE_BACK,
        acknowledge: Acknowledge::Flash,
        spare_frames: 2,
        bounce_frames: 1,
        flash: Some(FlashConfig {
            geometry,
            layout: FlashLayout::Log { replacement: LogReplacement::Fifo },
            entries_max: 48,
            regions_reserved: 1,
            recovery_chunk_pages: 64,
            admission: Default::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: Default::default(),
            written: Default::default(),
        }),
        ..CacheConfig::dram_only(1)
    }
}

fn perform(
    world: &mut World,
    c: &mut dyn Choices,
    op: Op,
    (offset, length): (u64, u64),
    byte: u8,
) -> Vec<u8> {
    let id = world.submit(0, op, Flags::NONE, offset, length, |bytes| bytes.fill(byte));
    loop {
        for (request, result, data) in world.replies() {
            if request == id {
                result.unwrap();
                return data.to_vec();
            }
        }
        assert!(world.complete_one(c), "a request hangs: {}", world.cache.describe());
    }
}

#[test]
fn behind_its_former_end_a_volume_has_nothing_of_other_blocks() {
    let c = &mut Seeded::new(1);
    let config = config();
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
    perform(&mut world, c, Op::Write, (0, 512), 7);
    perform(&mut world, c, Op::Read, (512, 512), 0);
    // The last block is written in part, the rest of what is in the volume is fetched, and it leaves
    // memory for flash.
    perform(&mut world, c, Op::Write, (last, 512), 5);
    perform(&mut world, c, Op::Read, (last + 512, 512), 0);
    for block in 2..5 {
        perform(&mut world, c, Op::Read, (block * BLOCK, BLOCK), 0);
    }
    while world.complete_one(c) {}

    // The process is killed, and the volume made larger.
    world.volumes[0] = VolumeConfig::new(BLOCKS * BLOCK);
    world.reboot(config);
    assert_eq!(world.start_whole(Open::RECOVER, c), Started::Ready);
    let found = perform(&mut world, c, Op::Read, (end, last + BLOCK - end), 0);
    assert!(found.iter().all(|&byte| byte == 0), "the store has zeroes there");
}
