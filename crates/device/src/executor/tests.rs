use std::collections::VecDeque;

use forebay_block::Volume;
use forebay_effect::{
    Device, Effect, EffectQueue, Frame, IoError, MetaBuffer, Owner, Place, RequestId, Token,
};

use super::*;
use crate::buffer::HugePages;
use crate::choices::{Choices, Seeded};
use crate::devices::{DeviceError, Io};
use crate::memory::{DeviceOptions, Fault, FaultRates, MemoryDevices};
use crate::requests::{OwnedRequests, Requests};

mod loans;

const FLASH: Device = Device::Flash;
const BACKING: Device = Device::Backing(Volume(0));

/// A machine that emits the effects a test gives it and records the outcomes it receives.
#[derive(Default)]
struct Script {
    queue: EffectQueue,
    meta: Vec<Vec<u8>>,
    told: VecDeque<(u32, Outcome)>,
    checksums: Vec<(u32, u32)>,
    next: u32,
    pause: bool,
}

impl Script {
    fn token(&mut self) -> Token {
        self.next += 1;
        Token { owner: Owner::Log, index: self.next - 1 }
    }

    fn read(&mut self, device: Device, offset: u64, segments: &[Segment]) -> u32 {
        let token = self.token();
        let length = segments.iter().map(|segment| segment.length).sum();
        let effect = Effect::Read { token, device, offset, length };
        self.queue.push_with(effect, segments.iter().copied());
        token.index
    }

    fn write(&mut self, device: Device, offset: u64, segments: &[Segment]) -> u32 {
        let token = self.token();
        let length = segments.iter().map(|segment| segment.length).sum();
        let effect = Effect::Write { token, device, offset, length };
        self.queue.push_with(effect, segments.iter().copied());
        token.index
    }

    fn zero(&mut self, device: Device, offset: u64, length: u64) -> u32 {
        let token = self.token();
        self.queue.push(Effect::WriteZeroes { token, device, offset, length, punch: false });
        token.index
    }

    fn sync(&mut self, device: Device) -> u32 {
        let token = self.token();
        self.queue.push(Effect::Sync { token, device });
        token.index
    }
}

impl Machine for Script {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.queue.pop(segments)
    }
    fn should_pause(&mut self) -> bool {
        self.pause
    }
    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        self.told.push_back((token.index, outcome));
    }
    fn handle_checksum(&mut self, token: Token, value: u32) {
        self.checksums.push((token.index, value));
    }
    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        &mut self.meta[buffer.0 as usize]
    }
}

fn frame(frame: u32, offset: u32, length: u32) -> Segment {
    Segment { place: Place::Frame { frame: Frame(frame), offset }, length }
}

fn meta(buffer: u32, offset: u32, length: u32) -> Segment {
    Segment { place: Place::Meta { buffer: MetaBuffer(buffer), offset }, length }
}

fn request(id: u64, offset: u32, length: u32) -> Segment {
    Segment { place: Place::Request { request: RequestId(id), offset }, length }
}

fn void(length: u32) -> Segment {
    Segment { place: Place::Void, length }
}

/// A machine, its executor over two devices, and its requests.
struct World {
    executor: Executor<MemoryDevices>,
    script: Script,
    requests: OwnedRequests,
}

impl World {
    fn new(options: DeviceOptions) -> World {
        let mut devices = MemoryDevices::new(11);
        let pattern = |i: usize| (i * 7 + i / 512) as u8;
        let image: Vec<u8> = (0..options.size as usize).map(pattern).collect();
        devices.add_image(FLASH, options, image.clone());
        devices.add_image(BACKING, options, image);
        let arena = Arena::new(8, 4096, HugePages::Never).unwrap();
        let script = Script { meta: vec![vec![0; 8192]; 4], ..Script::default() };
        let requests = OwnedRequests::default();
        World { executor: Executor::new(devices, arena), script, requests }
    }

    fn run(&mut self) -> Progress {
        self.executor.run(&mut self.script, &mut self.requests)
    }

    /// Runs until nothing is in flight; operations complete in any order.
    fn settle(&mut self, choices: &mut dyn Choices) {
        self.run();
        while self.executor.devices_mut().complete_any(choices) {
            self.run();
        }
        assert_eq!(self.executor.in_flight(), 0);
    }

    fn outcomes(&mut self) -> Vec<(u32, Outcome)> {
        self.settle(&mut Seeded::new(5));
        let mut told: Vec<_> = self.script.told.drain(..).collect();
        told.sort_unstable();
        told
    }

    /// The outcomes, in the order in which the machine received them.
    fn outcomes_in(&mut self, choices: &mut dyn Choices) -> Vec<(u32, Outcome)> {
        self.settle(choices);
        self.script.told.drain(..).collect()
    }

    fn frame_bytes(&self, number: u32) -> &[u8] {
        let slice = self.executor.arena.slice(number, 0, 4096);
        unsafe { std::slice::from_raw_parts(slice.pointer, slice.length) }
    }

    fn fill_slot(&mut self, number: u32, byte: u8) {
        let slice = self.executor.arena.slice(number, 0, 4096);
        unsafe { slice.pointer.write_bytes(byte, slice.length) };
    }
}

#[test]
fn immediate_effects_are_performed_in_order() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.requests.open(RequestId(1), 4096).fill(0x11);
    world.script.meta[0].fill(0x33);
    let (source, target) = (request(1, 0, 0).place, frame(3, 0, 0).place);
    let queue = &mut world.script.queue;
    queue.push(Effect::Copy { from: source, to: target, length: 4096 });
    queue.push(Effect::Copy { from: meta(0, 8, 0).place, to: frame(3, 100, 0).place, length: 4 });
    queue.push(Effect::Zero { to: frame(3, 200, 0).place, length: 8 });
    queue.push(Effect::Copy { from: Place::Void, to: frame(3, 300, 0).place, length: 2 });
    let token = Token { owner: Owner::Log, index: 9 };
    queue.push_with(Effect::Checksum { token, seed: 77 }, [frame(3, 0, 4096), void(100_000)]);
    queue.push(Effect::Reply { request: RequestId(1), result: Ok(()) });
    let progress = world.run();
    assert_eq!((progress.effects, progress.replies), (6, 1));
    let mut expected = vec![0x11; 4096];
    expected[100..104].fill(0x33);
    expected[200..208].fill(0);
    expected[300..302].fill(0);
    assert_eq!(world.frame_bytes(3), expected);
    expected.resize(104_096, 0);
    assert_eq!(world.script.checksums, [(9, crc32c::crc32c_append(77, &expected))]);
    assert_eq!(world.requests.take_replies(), [(RequestId(1), Ok(()))]);
}

#[test]
fn a_write_gathers_slots_requests_metadata_and_void_and_a_read_scatters_them_back() {
    for (logical_block, memory_alignment) in [(512, 1), (512, 512), (4096, 4096)] {
        let mut options = DeviceOptions::sized(64 << 10);
        (options.logical_block, options.memory_alignment) = (logical_block, memory_alignment);
        let mut world = World::new(options);
        world.requests.open(RequestId(1), 5000).fill(0x11);
        world.fill_slot(2, 0x22);
        world.script.meta[0].fill(0x33);
        let parts = [meta(0, 0, 512), frame(2, 512, 1024), void(2048), request(1, 3, 512)];
        world.script.write(FLASH, 8192, &parts);
        // Metadata is taken when the write is polled.
        world.run();
        world.script.meta[0].fill(0);
        assert_eq!(world.outcomes(), [(0, Ok(()))]);
        let mut expected = vec![0x33; 512];
        expected.resize(1536, 0x22);
        expected.resize(3584, 0);
        expected.resize(4096, 0x11);
        let written = &world.executor.devices().contents(FLASH)[8192..12288];
        assert_eq!(written, expected, "block {logical_block}");

        let parts = [meta(1, 512, 512), void(1024), frame(4, 0, 2048), request(1, 100, 512)];
        world.script.read(FLASH, 8192, &parts);
        assert_eq!(world.outcomes(), [(1, Ok(()))]);
        assert_eq!(world.script.meta[1][512..1024], expected[..512]);
        assert_eq!(world.frame_bytes(4)[..2048], expected[1536..3584]);
        let data = Requests::data(&mut world.requests, RequestId(1));
        let data = unsafe { std::slice::from_raw_parts(data.pointer, data.length) };
        assert_eq!(data[100..612], expected[3584..]);
    }
}

#[test]
fn unaligned_writes_and_zeroings_leave_their_neighbours_alone() {
    for zeroes in [true, false] {
        let mut options = DeviceOptions::sized(64 << 10);
        (options.logical_block, options.memory_alignment) = (4096, 512);
        options.zeroes = zeroes;
        let mut world = World::new(options);
        let mut expected = world.executor.devices().contents(FLASH).to_vec();
        let mut choices = Seeded::new(3);
        for round in 0..400u32 {
            let length = 512 * (1 + choices.choose(16));
            let offset = 512 * choices.choose((options.size - length) / 512 + 1);
            let range = offset as usize..(offset + length) as usize;
            if choices.choose(2) == 0 {
                world.script.zero(FLASH, offset, length);
                expected[range].fill(0);
            } else {
                world.script.meta[1].fill(round as u8);
                world.script.write(FLASH, offset, &[meta(1, 0, length as u32)]);
                expected[range].fill(round as u8);
            }
            let outcome = world.outcomes()[0].1;
            assert_eq!(outcome, Ok(()));
            assert!(world.executor.devices().contents(FLASH) == expected, "round {round}");
        }
        assert!(world.executor.stats().read_modify_writes > 100);
        assert_eq!(world.executor.stats().zeroes_by_writing > 0, !zeroes);
    }
}

#[test]
fn concurrent_small_writes_within_one_large_logical_block_all_land() {
    let mut options = DeviceOptions::sized(16 << 10);
    options.logical_block = 4096;
    for seed in 0..50 {
        let mut world = World::new(options);
        let mut expected = world.executor.devices().contents(FLASH).to_vec();
        for sector in 0..16u32 {
            let (number, offset) = (sector % 8, 512 * sector);
            world.fill_slot(number, number as u8 + 1);
            world.script.write(FLASH, u64::from(offset), &[frame(number, 0, 512)]);
            expected[offset as usize..][..512].fill(number as u8 + 1);
        }
        world.script.write(FLASH, 8192, &[frame(0, 0, 4096)]);
        expected[8192..12288].fill(1);
        world.settle(&mut Seeded::new(seed));
        assert!(world.executor.devices().contents(FLASH) == expected, "seed {seed}");
        assert!(world.executor.stats().waited > 0);
        assert_eq!(world.executor.devices().hazards().overlapping_writes, 0);
    }
}

#[test]
fn short_transfers_busy_devices_and_passing_errors_are_masked() {
    for memory_alignment in [1, 512] {
        let mut options = DeviceOptions::sized(256 << 10);
        options.memory_alignment = memory_alignment;
        let mut world = World::new(options);
        let rates = FaultRates::NONE.with(Fault::Short, 3).with(Fault::Again, 3);
        world.executor.devices_mut().set_rates(FLASH, rates.with(Fault::Slow, 5));
        world.executor.set_limits(RetryLimits { again_max: 100, error_max: 20 });
        for i in 0..64u8 {
            world.script.meta[0].fill(i);
            world.script.write(FLASH, u64::from(i) * 4096, &[meta(0, 0, 4096)]);
            world.run();
        }
        assert!(world.outcomes().iter().all(|(_, outcome)| outcome.is_ok()));
        for i in 0..64u8 {
            world.script.read(FLASH, u64::from(i) * 4096, &[frame(1, 0, 2048), meta(1, 0, 2048)]);
            world.settle(&mut Seeded::new(1));
            assert!(world.frame_bytes(1)[..2048].iter().all(|&byte| byte == i));
            assert!(world.script.meta[1][..2048].iter().all(|&byte| byte == i));
        }
        let stats = world.executor.stats();
        assert!(stats.short > 10 && stats.again > 10, "{stats:?}");
        assert_eq!((stats.reads, stats.writes, stats.errors), (64, 64, 0));
    }
}

/// A device of 4096-byte blocks that carries out every operation at once. Every other transfer ends
/// 1,536 bytes early, in the middle of a block, as a kernel may end it.
struct Early {
    bytes: Vec<u8>,
    done: Vec<Completion>,
    transfers: u64,
}

impl Devices for Early {
    fn capabilities(&self, _: Device) -> Option<Capabilities> {
        let size = self.bytes.len() as u64;
        let (zeroes, punches) = (false, false);
        Some(Capabilities { size, logical_block: 4096, memory_alignment: 512, zeroes, punches })
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        assert!(io.offset.is_multiple_of(4096) && io.length.is_multiple_of(4096), "{io:?}");
        self.transfers += 1;
        let early = if self.transfers % 2 == 1 { 1536 } else { 0 };
        let (mut at, mut left) = (io.offset as usize, io.length as usize - early);
        for piece in io.memory {
            assert!(piece.pointer.addr().is_multiple_of(512), "{piece:?}");
            let length = piece.length.min(left);
            let device = &mut self.bytes[at..at + length];
            // SAFETY: the memory is valid until the completion is reaped (`Devices::submit`).
            match io.verb {
                Verb::Read => unsafe {
                    piece.pointer.copy_from_nonoverlapping(device.as_ptr(), length);
                },
                Verb::Write => unsafe {
                    device.as_mut_ptr().copy_from_nonoverlapping(piece.pointer, length);
                },
                verb => panic!("{verb:?} transfers nothing"),
            }
            (at, left) = (at + length, left - length);
        }
        self.done.push(Completion { tag: io.tag, result: Ok(io.length - early as u64) });
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn abandon(&mut self) {
        self.done.clear();
    }
}

#[test]
fn a_transfer_that_ends_within_a_block_goes_on_from_its_start() {
    let device = Early { bytes: vec![0xEE; 64 << 10], done: Vec::new(), transfers: 0 };
    let arena = Arena::new(8, 4096, HugePages::Never).unwrap();
    let mut executor = Executor::new(device, arena);
    let (mut script, mut requests) = (Script::default(), OwnedRequests::default());
    let content: Vec<u8> = (0..16384_u32).map(|i| (i * 7 + i / 512) as u8).collect();
    requests.open(RequestId(1), 16384).copy_from_slice(&content);
    requests.open(RequestId(2), 16384);
    script.write(FLASH, 8192, &[request(1, 0, 16384)]);
    executor.run(&mut script, &mut requests);
    script.read(FLASH, 8192, &[request(2, 0, 16384)]);
    while executor.in_flight() > 0 || script.told.len() < 2 {
        executor.run(&mut script, &mut requests);
    }
    assert!(script.told.iter().all(|(_, outcome)| outcome.is_ok()), "{:?}", script.told);
    assert_eq!((executor.stats().short, executor.devices().transfers), (2, 4));
    assert!(executor.devices().bytes[8192..24576] == content);
    script.queue.push(Effect::Reply { request: RequestId(2), result: Ok(()) });
    executor.run(&mut script, &mut requests);
    assert!(requests.take_data(RequestId(2)).unwrap()[..] == content);
}

#[test]
fn a_passing_error_is_retried_and_a_lasting_one_is_reported() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.executor.devices_mut().fail_at(0, Fault::TransientError);
    world.executor.devices_mut().fail_at(1, Fault::TransientError);
    let fine = world.script.write(FLASH, 0, &[frame(0, 0, 4096)]);
    assert_eq!(world.outcomes(), [(fine, Ok(()))]);
    assert_eq!(world.executor.stats().retries, 2);

    world.executor.devices_mut().spoil(FLASH, 4096);
    let bad = world.script.read(FLASH, 4096, &[frame(0, 0, 4096)]);
    assert_eq!(world.outcomes(), [(bad, Err(IoError::Device))]);
    assert_eq!(world.executor.stats().errors, 1);
}

#[test]
fn every_operation_has_all_of_its_retries() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.executor.set_limits(RetryLimits { again_max: 2, error_max: 2 });
    for fault in [Fault::TransientError, Fault::Again] {
        for _ in 0..4 {
            let devices = world.executor.devices_mut();
            let next = devices.operations();
            devices.fail_at(next, fault);
            devices.fail_at(next + 1, fault);
            let write = world.script.write(FLASH, 0, &[frame(0, 0, 4096)]);
            assert_eq!(world.outcomes(), [(write, Ok(()))], "{fault:?}");
        }
    }
}

/// Completes its first operation at once, and reports that completion again when the second
/// operation is submitted, which never completes.
#[derive(Default)]
struct Repeating {
    submitted: Vec<Completion>,
    done: Vec<Completion>,
}

impl Devices for Repeating {
    fn capabilities(&self, _: Device) -> Option<Capabilities> {
        let (logical_block, memory_alignment) = (512, 512);
        let (zeroes, punches) = (false, false);
        Some(Capabilities { size: 4096, logical_block, memory_alignment, zeroes, punches })
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        self.submitted.push(Completion { tag: io.tag, result: Ok(io.length) });
        self.done.push(self.submitted[0]);
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn abandon(&mut self) {
        self.done.clear();
    }
}

#[test]
fn an_end_that_is_told_twice_ends_no_other_operation() {
    let arena = Arena::new(2, 4096, HugePages::Never).unwrap();
    let mut executor = Executor::new(Repeating::default(), arena);
    let (mut script, mut requests) = (Script::default(), OwnedRequests::default());
    script.write(FLASH, 0, &[frame(0, 0, 4096)]);
    executor.run(&mut script, &mut requests);
    assert_eq!((script.told.len(), executor.stats().strays), (1, 0));
    script.write(FLASH, 0, &[frame(1, 0, 4096)]);
    executor.run(&mut script, &mut requests);
    assert_eq!((script.told.len(), executor.stats().strays), (1, 1), "it is under way");
    let devices = executor.devices_mut();
    devices.done.push(devices.submitted[1]);
    executor.run(&mut script, &mut requests);
    assert_eq!((script.told.len(), executor.in_flight()), (2, 0));
}

#[test]
fn ends_are_told_in_the_order_of_the_beginnings_if_that_was_asked_for() {
    let mut in_any_order = false;
    for seed in 0..20 {
        let mut world = World::new(DeviceOptions::sized(64 << 10));
        let begin = |script: &mut Script| -> Vec<u32> {
            (0..8).map(|n| script.read(FLASH, n * 4096, &[frame(n as u32, 0, 4096)])).collect()
        };
        let tokens = |told: Vec<(u32, Outcome)>| told.iter().map(|t| t.0).collect::<Vec<u32>>();
        let mut choices = Seeded::new(seed);
        let begun = begin(&mut world.script);
        in_any_order |= tokens(world.outcomes_in(&mut choices)) != begun;
        world.executor.end_in_order();
        let mut begun = begin(&mut world.script);
        begun.push(world.script.zero(FLASH, 512, 0));
        begun.push(world.script.sync(BACKING));
        assert_eq!(tokens(world.outcomes_in(&mut choices)), begun);
    }
    assert!(in_any_order, "the devices never ended anything out of order");
}

#[test]
fn what_device_effects_take_is_counted_once_each_by_device_and_kind() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    assert!(world.executor.latencies().is_none());
    world.executor.measure();
    // An effect with two steps, one with a retry and one that fails each count as one operation.
    world.script.write(FLASH, 100, &[frame(0, 0, 512)]);
    world.script.zero(BACKING, 0, 4096);
    world.executor.devices_mut().spoil(BACKING, 8192);
    world.script.read(BACKING, 8192, &[frame(1, 0, 512)]);
    world.script.sync(FLASH);
    assert_eq!(world.outcomes().len(), 4);
    let counted = world.executor.latencies().unwrap().summary([(Volume(0), "v")]);
    let counts = [
        counted.tier2_read,
        counted.tier2_write,
        counted.tier2_sync,
        counted.backing_read,
        counted.backing_write,
        counted.backing_sync,
    ];
    assert_eq!(counts.map(|c| c.count), [0, 1, 1, 1, 1, 0]);
}

#[test]
fn a_failed_sync_is_not_retried() {
    for fault in [Fault::SyncFailure, Fault::Again] {
        let mut world = World::new(DeviceOptions::sized(64 << 10));
        world.executor.devices_mut().fail_at(0, fault);
        let sync = world.script.sync(FLASH);
        assert_eq!(world.outcomes(), [(sync, Err(IoError::Device))], "{fault:?}");
        assert_eq!(world.executor.devices().operations(), 1, "{fault:?}");
    }
}

#[test]
fn effects_that_make_no_sense_are_refused_and_empty_ones_succeed() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    let beyond = world.script.write(FLASH, 61_440, &[frame(0, 0, 4096), frame(1, 0, 512)]);
    let nowhere = world.script.zero(Device::Backing(Volume(9)), 0, 512);
    let overflow = world.script.zero(FLASH, u64::MAX, 512);
    let empty = world.script.zero(FLASH, 512, 0);
    assert_eq!(
        world.outcomes(),
        [
            (beyond, Err(IoError::Invalid)),
            (nowhere, Err(IoError::Invalid)),
            (overflow, Err(IoError::Invalid)),
            (empty, Ok(()))
        ]
    );
    assert_eq!(world.executor.devices().operations(), 0);
}

#[test]
#[should_panic(expected = "do not add up")]
fn segments_that_do_not_add_up_are_a_programmers_error() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    let token = world.script.token();
    let effect = Effect::Write { token, device: FLASH, offset: 0, length: 512 };
    world.script.queue.push_with(effect, [frame(0, 0, 1024)]);
    world.run();
}

#[test]
fn staging_memory_is_allocated_once() {
    let mut options = DeviceOptions::sized(64 << 10);
    options.logical_block = 4096;
    let mut world = World::new(options);
    let mut after_first = 0;
    for round in 0..20 {
        world.script.write(FLASH, 512, &[frame(0, 0, 4096), meta(0, 0, 512)]);
        world.script.write(BACKING, 4096, &[meta(0, 0, 4096)]);
        world.script.read(BACKING, 16384, &[meta(1, 0, 4096), frame(1, 0, 4096)]);
        world.settle(&mut Seeded::new(1));
        if round == 0 {
            after_first = world.executor.stats().staging_buffers;
        }
    }
    assert_eq!(world.executor.stats().staging_buffers, after_first);
}

#[test]
fn after_a_reset_old_completions_reach_nobody() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.script.write(FLASH, 0, &[frame(0, 0, 4096)]);
    world.run();
    world.executor.reset();
    assert_eq!(world.executor.in_flight(), 0);
    world.script = Script { meta: vec![vec![0; 8192]; 4], ..Script::default() };
    world.run();
    assert!(world.script.told.is_empty());
    let read = world.script.read(FLASH, 0, &[frame(0, 0, 4096)]);
    assert_eq!(world.outcomes(), [(read, Ok(()))]);
}

#[test]
fn a_device_that_refuses_to_zero_is_asked_once() {
    let mut options = DeviceOptions::sized(64 << 10);
    options.zeroes = false;
    let mut world = World::new(options);
    assert!(world.executor.zeroes_cheaply(FLASH, false));
    for _ in 0..3 {
        world.script.zero(FLASH, 4096, 8192);
        assert_eq!(world.outcomes()[0].1, Ok(()));
    }
    assert!(!world.executor.zeroes_cheaply(FLASH, false));
    assert!(world.executor.zeroes_cheaply(FLASH, true));
    assert!(world.executor.zeroes_cheaply(BACKING, false));
    // One zeroing was refused and then written; two were written at once.
    assert_eq!(world.executor.devices().operations(), 2 + 1 + 1);
    assert!(world.executor.devices().contents(FLASH)[4096..12288].iter().all(|&byte| byte == 0));
}

/// Devices whose zeroing a sandbox forbids.
struct Sandboxed {
    inner: MemoryDevices,
    refused: Vec<Completion>,
}

impl Devices for Sandboxed {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.inner.capabilities(device)
    }
    unsafe fn submit(&mut self, io: Io<'_>) {
        if matches!(io.verb, Verb::WriteZeroes { .. }) {
            let result = Err(DeviceError::from_errno(libc::EPERM));
            return self.refused.push(Completion { tag: io.tag, result });
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.submit(io) };
        self.inner.complete_all();
    }
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        self.inner.reap(done);
    }
    fn abandon(&mut self) {
        self.inner.abandon();
    }
}

#[test]
fn zeroes_are_written_where_a_sandbox_forbids_to_zero() {
    let World { executor, mut script, mut requests } = World::new(DeviceOptions::sized(64 << 10));
    let devices = Sandboxed { inner: executor.into_devices(), refused: Vec::new() };
    let arena = Arena::new(1, 4096, HugePages::Never).unwrap();
    let mut executor = Executor::new(devices, arena);
    let token = script.zero(FLASH, 4096, 8192);
    while executor.run(&mut script, &mut requests).more || executor.in_flight() > 0 {}
    assert_eq!(script.told, [(token, Ok(()))]);
    assert_eq!(executor.devices().inner.contents(FLASH)[4096..12288], [0; 8192]);
}

#[test]
fn a_read_modify_write_that_fails_frees_its_block_for_others() {
    let mut options = DeviceOptions::sized(64 << 10);
    options.logical_block = 4096;
    let mut world = World::new(options);
    world.executor.set_limits(RetryLimits { again_max: 0, error_max: 0 });
    // The read of the edge block fails; the write after it waits for it, and then succeeds.
    world.executor.devices_mut().fail_at(0, Fault::TransientError);
    let first = world.script.write(FLASH, 512, &[frame(0, 0, 512)]);
    let second = world.script.write(FLASH, 1024, &[frame(1, 0, 512)]);
    assert_eq!(world.outcomes(), [(first, Err(IoError::Device)), (second, Ok(()))]);
    assert_eq!(world.executor.stats().waited, 1);
    let other = world.script.write(FLASH, 0, &[frame(2, 0, 4096)]);
    assert_eq!(world.outcomes(), [(other, Ok(()))]);
}

#[test]
fn a_run_that_should_pause_hands_in_one_completion_and_leaves_the_rest_to_the_next() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    for number in 0..3 {
        world.script.read(FLASH, 4096 * u64::from(number), &[frame(number, 0, 4096)]);
    }
    world.run();
    while world.executor.devices_mut().complete_any(&mut Seeded::new(5)) {}
    // Two more effects that fail before they begin: there is no such store.
    (0..2).for_each(|_| {
        world.script.sync(Device::Backing(Volume(1)));
    });
    world.script.pause = true;
    for told in 1..=5 {
        assert!(world.run().more);
        assert_eq!(world.script.told.len(), told);
    }
    assert!(!world.run().more && world.executor.in_flight() == 0);
}
