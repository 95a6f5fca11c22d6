use forebay_block::Volume;

use super::*;
use crate::buffer::AlignedBuffer;
use crate::choices::Exhaustive;
use crate::devices::{DeviceError, Devices, Io, IoTag};

const DEVICE: Device = Device::Backing(Volume(3));
const SIZE: u64 = 32 << 10;

/// Devices with one device, and memory that outlives every operation.
struct Bench {
    devices: MemoryDevices,
    memory: Vec<AlignedBuffer>,
    next: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(DeviceOptions::sized(SIZE))
    }

    fn with(options: DeviceOptions) -> Bench {
        let mut devices = MemoryDevices::new(42);
        devices.add(DEVICE, options);
        Bench { devices, memory: Vec::new(), next: 0 }
    }

    fn submit(&mut self, verb: Verb, offset: u64, length: u64, byte: u8) -> usize {
        let mut buffer = AlignedBuffer::new(length as usize);
        buffer.fill(byte);
        let slice = MemorySlice { pointer: buffer.pointer(), length: buffer.len() };
        self.memory.push(buffer);
        let slices = [slice];
        let has_memory = matches!(verb, Verb::Read | Verb::Write);
        let memory = if has_memory { &slices[..] } else { &[] };
        let tag = IoTag(self.next);
        self.next += 1;
        let io = Io { tag, device: DEVICE, verb, offset, length, memory };
        // SAFETY: the memory lives as long as the bench.
        unsafe { self.devices.submit(io) };
        self.memory.len() - 1
    }

    fn result(&mut self) -> Result<u64, DeviceError> {
        self.devices.complete_all();
        let mut done = Vec::new();
        self.devices.reap(&mut done);
        done.last().expect("something completed").result
    }

    fn write(&mut self, offset: u64, length: u64, byte: u8) -> Result<u64, DeviceError> {
        self.submit(Verb::Write, offset, length, byte);
        self.result()
    }

    fn sync(&mut self) -> Result<u64, DeviceError> {
        self.submit(Verb::Sync, 0, 0, 0);
        self.result()
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, DeviceError> {
        let at = self.submit(Verb::Read, offset, length, 0);
        self.result().map(|_| self.memory[at].to_vec())
    }
}

/// The distinct contents of `range` after power cuts of every seed.
fn contents_after_cuts(bench: &Bench, range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let mut seen: Vec<Vec<u8>> = (0..400)
        .map(|seed| {
            let after = bench.devices.survivors(CutStyle::Any, &mut Seeded::new(seed));
            after.durable(DEVICE)[range.clone()].to_vec()
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn what_was_synced_survives_every_cut_and_what_was_not_need_not() {
    let mut bench = Bench::new();
    bench.write(0, 1024, 1).unwrap();
    bench.sync().unwrap();
    bench.write(1024, 512, 2).unwrap();
    assert_eq!(bench.read(0, 1536).unwrap(), [[1u8; 512], [1; 512], [2; 512]].concat());
    let seen = contents_after_cuts(&bench, 0..1536);
    assert!(seen.iter().all(|image| image[..1024] == [1; 1024]));
    assert!(seen.iter().any(|image| image[1024..] == [0; 512]));
    assert!(seen.iter().any(|image| image[1024..] == [2; 512]));
}

#[test]
fn a_sync_does_not_cover_writes_that_complete_after_it_was_submitted() {
    let mut bench = Bench::new();
    bench.submit(Verb::Write, 0, 512, 7);
    bench.submit(Verb::Sync, 0, 0, 0);
    bench.devices.complete_all();
    assert_eq!(bench.devices.unsynced(), 1);
    assert_eq!(bench.devices.durable(DEVICE)[0], 0);
    bench.sync().unwrap();
    assert_eq!(bench.devices.unsynced(), 0);
    assert_eq!(bench.devices.durable(DEVICE)[0], 7);
}

#[test]
fn unsynced_writes_survive_in_any_order_torn_and_with_garbage() {
    let mut bench = Bench::new();
    bench.write(0, 1024, 1).unwrap();
    bench.write(0, 1024, 2).unwrap();
    let seen = contents_after_cuts(&bench, 0..1024);
    let has = |a: u8, b: u8| {
        seen.iter().any(|image| image[..512] == [a; 512] && image[512..] == [b; 512])
    };
    for (a, b) in [(0, 0), (1, 1), (2, 2), (1, 2), (2, 1), (0, 2), (1, 0)] {
        assert!(has(a, b), "{a} then {b} never survived");
    }
    let garbage = |image: &Vec<u8>| image[..512].iter().any(|&byte| byte > 2);
    assert!(seen.iter().any(garbage));
}

#[test]
fn writes_are_torn_only_at_the_devices_atomic_unit() {
    let mut options = DeviceOptions::sized(SIZE);
    options.tear_bytes = 4096;
    let mut bench = Bench::with(options);
    bench.write(2048, 8192, 9).unwrap();
    for image in contents_after_cuts(&bench, 0..12288) {
        assert_eq!(image[..2048], [0; 2048]);
        assert_eq!(image[10240..], [0; 2048]);
        for unit in [2048..4096, 4096..8192, 8192..10240] {
            let unit = &image[unit];
            let whole = unit.iter().all(|&b| b == unit[0]) && matches!(unit[0], 0 | 9);
            let garbled = unit.iter().any(|&b| b != 0 && b != 9);
            assert!(whole || garbled);
        }
    }
}

#[test]
fn operations_in_flight_may_survive_a_cut_and_never_complete() {
    let mut bench = Bench::new();
    bench.submit(Verb::Write, 0, 512, 5);
    bench.submit(Verb::WriteZeroes { punch: true }, 512, 512, 0);
    let seen = contents_after_cuts(&bench, 0..512);
    assert!(seen.contains(&vec![0; 512]) && seen.contains(&vec![5; 512]));
    bench.devices.power_cut(CutStyle::Any, &mut Seeded::new(1));
    assert_eq!(bench.devices.pending(), 0);
    let mut done = Vec::new();
    bench.devices.reap(&mut done);
    assert!(done.is_empty());
}

#[test]
fn an_exhaustive_walk_sees_every_subset_of_writes_once() {
    let mut bench = Bench::new();
    for sector in 0..5 {
        bench.write(sector * 512, 512, 1).unwrap();
    }
    assert_eq!(bench.devices.unsynced(), 5);
    let mut walk = Exhaustive::default();
    let mut seen = Vec::new();
    loop {
        let after = bench.devices.survivors(CutStyle::Subsets, &mut walk);
        seen.push((0..5).map(|sector| after.durable(DEVICE)[sector * 512]).collect::<Vec<_>>());
        if !walk.advance() {
            break;
        }
    }
    assert_eq!(seen.len(), 32);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 32);
}

#[test]
fn without_a_volatile_cache_completion_means_durable() {
    let mut options = DeviceOptions::sized(SIZE);
    options.volatile_cache = false;
    let mut bench = Bench::with(options);
    bench.write(512, 512, 3).unwrap();
    assert_eq!(contents_after_cuts(&bench, 512..1024), [vec![3; 512]]);
}

#[test]
fn lost_and_misdirected_writes_report_success() {
    let mut bench = Bench::new();
    bench.devices.fail_at(0, Fault::LostWrite);
    assert_eq!(bench.write(0, 512, 1), Ok(512));
    assert!(bench.devices.contents(DEVICE).iter().all(|&byte| byte == 0));
    bench.devices.fail_at(1, Fault::MisdirectedWrite);
    assert_eq!(bench.write(0, 512, 1), Ok(512));
    assert_eq!(bench.devices.contents(DEVICE)[..512], [0; 512]);
    assert_eq!(bench.devices.contents(DEVICE).iter().filter(|&&byte| byte == 1).count(), 512);
    assert_eq!(bench.devices.faults().get(Fault::LostWrite), 1);
    assert_eq!(bench.devices.faults().get(Fault::MisdirectedWrite), 1);
}

#[test]
fn misdirected_reads_and_rot_report_success() {
    let mut bench = Bench::new();
    bench.write(0, 512, 1).unwrap();
    bench.devices.fail_at(1, Fault::MisdirectedRead);
    assert_eq!(bench.read(0, 512).unwrap(), [0; 512]);
    bench.devices.fail_at(2, Fault::ByteRot);
    let rotten = bench.read(0, 512).unwrap();
    assert_eq!(rotten.iter().filter(|&&byte| byte != 1).count(), 1);
    assert_eq!(bench.read(0, 512).unwrap(), rotten);
}

#[test]
fn a_latent_error_lasts_until_the_sector_is_written() {
    let mut bench = Bench::new();
    bench.devices.fail_at(0, Fault::LatentError);
    assert_eq!(bench.read(512, 512), Err(DeviceError::Io));
    assert_eq!(bench.read(0, 1024), Err(DeviceError::Io));
    bench.devices.power_cut(CutStyle::Any, &mut Seeded::new(1));
    assert_eq!(bench.read(512, 512), Err(DeviceError::Io));
    bench.write(512, 512, 8).unwrap();
    assert_eq!(bench.read(512, 512).unwrap(), [8; 512]);
}

#[test]
fn a_write_that_fails_leaves_old_or_new_per_sector() {
    let (mut old, mut new, mut mixed) = (0, 0, 0);
    for seed in 0..200 {
        let mut bench = Bench::new();
        bench.devices.reseed(seed);
        bench.devices.fail_at(0, Fault::TransientError);
        assert_eq!(bench.write(0, 1024, 4), Err(DeviceError::Io));
        let contents = bench.read(0, 1024).unwrap();
        match (contents[0], contents[512]) {
            (0, 0) => old += 1,
            (4, 4) => new += 1,
            _ => mixed += 1,
        }
        assert!(contents.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0])));
    }
    assert!(old > 0 && new > 0 && mixed > 0);
}

#[test]
fn after_a_failed_sync_the_next_one_succeeds_and_proves_nothing() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..100 {
        let mut bench = Bench::new();
        bench.devices.reseed(seed);
        bench.write(0, 512, 6).unwrap();
        bench.devices.fail_at(1, Fault::SyncFailure);
        assert_eq!(bench.sync(), Err(DeviceError::Io));
        assert_eq!(bench.read(0, 512).unwrap(), [6; 512]);
        assert!(bench.sync().is_ok());
        bench.devices.power_cut(CutStyle::Any, &mut Seeded::new(seed));
        match bench.read(0, 512).unwrap()[0] {
            0 => lost += 1,
            _ => kept += 1,
        }
    }
    assert!(lost > 0 && kept > 0);
}

#[test]
fn a_failing_sync_that_reverts_shows_the_old_data_but_never_hides_later_writes() {
    let mut reverted = 0;
    for seed in 0..100 {
        let mut bench = Bench::new();
        bench.devices.reseed(seed);
        let rates = FaultRates::NONE.with_reverting_syncs();
        bench.devices.set_rates(DEVICE, rates);
        bench.write(0, 1024, 6).unwrap();
        bench.devices.fail_at(1, Fault::SyncFailure);
        bench.submit(Verb::Sync, 0, 0, 0);
        bench.submit(Verb::Write, 512, 512, 7);
        bench.devices.complete(1);
        bench.devices.complete(0);
        let contents = bench.read(0, 1024).unwrap();
        assert_eq!(contents[512..], [7; 512]);
        reverted += u32::from(contents[0] == 0);
    }
    assert!(reverted > 0);
}

#[test]
fn a_full_device_and_a_busy_one_say_so_and_short_transfers_are_short() {
    let mut bench = Bench::new();
    bench.devices.fail_at(0, Fault::NoSpace);
    assert_eq!(bench.write(0, 512, 1), Err(DeviceError::NoSpace));
    bench.devices.fail_at(1, Fault::Again);
    assert_eq!(bench.sync(), Err(DeviceError::Again));
    bench.devices.fail_at(2, Fault::Short);
    let done = bench.write(4096, 4096, 2).unwrap();
    assert!(done < 4096 && done.is_multiple_of(512));
    let landed = bench.devices.contents(DEVICE)[4096..8192].iter().filter(|&&b| b == 2).count();
    assert_eq!(landed as u64, done);
}

#[test]
fn a_device_that_vanishes_fails_everything_and_comes_back_as_told() {
    let mut bench = Bench::new();
    bench.write(0, 512, 1).unwrap();
    bench.sync().unwrap();
    let earlier = bench.devices.durable(DEVICE).to_vec();
    bench.write(0, 512, 2).unwrap();
    bench.sync().unwrap();
    bench.submit(Verb::Write, 512, 512, 3);
    bench.devices.vanish(DEVICE, &mut Seeded::new(4));
    assert_eq!(bench.result(), Err(DeviceError::Gone));
    assert_eq!(bench.read(0, 512), Err(DeviceError::Gone));
    bench.devices.restore(DEVICE, Return::Same);
    assert_eq!(bench.read(0, 512).unwrap(), [2; 512]);
    bench.devices.restore(DEVICE, Return::Older(earlier));
    assert_eq!(bench.read(0, 512).unwrap(), [1; 512]);
    bench.devices.restore(DEVICE, Return::Other(vec![9; SIZE as usize]));
    assert_eq!(bench.read(0, 512).unwrap(), [9; 512]);
    for fault in [Fault::Vanished, Fault::ReturnedOlder, Fault::ReturnedOther] {
        assert_eq!(bench.devices.faults().get(fault), 1);
    }
}

#[test]
fn slow_operations_are_overtaken() {
    let mut bench = Bench::new();
    bench.devices.fail_at(0, Fault::Slow);
    bench.submit(Verb::Write, 0, 512, 1);
    bench.submit(Verb::Write, 512, 512, 1);
    for _ in 0..20 {
        assert!(bench.devices.complete_any(&mut Seeded::new(1)));
        if bench.devices.pending() == 1 {
            break;
        }
    }
    assert_eq!(bench.devices.pending_io(0).map(|io| io.number), Some(0));
    assert!(bench.devices.complete_any(&mut Seeded::new(1)));
    assert!(!bench.devices.complete_any(&mut Seeded::new(1)));
}

#[test]
fn changing_a_writes_memory_in_flight_is_noticed() {
    let mut bench = Bench::new();
    let at = bench.submit(Verb::Write, 0, 512, 1);
    bench.memory[at][100] = 2;
    bench.devices.complete_all();
    assert_eq!(bench.devices.hazards().sources_changed, 1);
}

#[test]
fn of_overlapping_writes_in_flight_either_may_win() {
    let mut winners = [0; 2];
    for seed in 0..100 {
        let mut bench = Bench::new();
        bench.devices.reseed(seed);
        bench.submit(Verb::Write, 0, 512, 1);
        bench.submit(Verb::Write, 0, 512, 2);
        bench.devices.complete_all();
        winners[usize::from(bench.devices.contents(DEVICE)[0]) - 1] += 1;
        assert_eq!(bench.devices.hazards().overlapping_writes, 1);
    }
    assert!(winners[0] > 0 && winners[1] > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut bench = Bench::new();
        bench.devices.reseed(seed);
        let mut rates = FaultRates::NONE;
        for fault in Fault::OF_OPERATIONS {
            rates = rates.with(fault, 7);
        }
        bench.devices.set_rates(DEVICE, rates);
        let mut choices = Seeded::new(seed + 1);
        for i in 0..300u64 {
            let offset = 512 * choices.choose(60);
            match choices.choose(4) {
                0 => drop(bench.submit(Verb::Read, offset, 1024, 0)),
                1 => drop(bench.submit(Verb::Sync, 0, 0, 0)),
                _ => drop(bench.submit(Verb::Write, offset, 1024, i as u8)),
            }
            if choices.choose(2) == 0 {
                bench.devices.complete_any(&mut choices);
            }
        }
        bench.devices.power_cut(CutStyle::Any, &mut choices);
        (bench.devices.durable(DEVICE).to_vec(), *bench.devices.faults())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    assert!(Fault::OF_OPERATIONS.iter().all(|&fault| run(1).1.get(fault) > 0));
}
