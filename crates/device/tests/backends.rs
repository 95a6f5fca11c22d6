//! The real backends against a model: whatever the sequence of effects, io_uring and threads,
//! direct and buffered, leave the same bytes on the device and in memory.

#![allow(clippy::print_stderr)] // says what it skips

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_device::file::{DirectIo, OpenOptions, Target};
use forebay_device::{
    Arena, Backend, Devices, Doorbell, Executor, HugePages, Machine, OwnedRequests, RealDevices,
    Requests, Sender, uring,
};
use forebay_effect::{
    Device, Effect, EffectQueue, IoError, MetaBuffer, Outcome, Owner, Place, RequestId, Segment,
    Token,
};
use proptest::prelude::*;

const SIZE: u64 = 256 << 10;

#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, length: u32, byte: u8 },
    Read { offset: u64, length: u32 },
    Zero { offset: u64, length: u64, punch: bool },
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // In units of 512 B, so that ranges meet 4 KiB blocks at every alignment.
    let range = (0..SIZE / 512, 1..40u64).prop_map(|(start, length)| {
        let length = length.min(SIZE / 512 - start);
        (start * 512, length * 512)
    });
    let step = prop_oneof![
        4 => (range.clone(), any::<u8>())
            .prop_map(|((offset, length), byte)| Step::Write { offset, length: length as u32, byte }),
        4 => range.clone()
            .prop_map(|(offset, length)| Step::Read { offset, length: length as u32 }),
        2 => (range, any::<bool>())
            .prop_map(|((offset, length), punch)| Step::Zero { offset, length, punch }),
        1 => Just(Step::Sync),
    ];
    proptest::collection::vec(step, 1..40)
}

/// A machine that emits the effects it is given and keeps the outcomes.
#[derive(Default)]
struct Script {
    queue: EffectQueue,
    told: Vec<(u32, Outcome)>,
}

impl Machine for Script {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.queue.pop(segments)
    }
    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        self.told.push((token.index, outcome));
    }
    fn handle_checksum(&mut self, _: Token, _: u32) {}
    fn meta_mut(&mut self, _: MetaBuffer) -> &mut [u8] {
        &mut []
    }
}

struct World {
    executor: Executor<RealDevices>,
    bell: Arc<Doorbell>,
    script: Script,
    requests: OwnedRequests,
    /// Sends submitted operations to the kernel, if the devices do not.
    sender: Option<Arc<dyn Sender>>,
    _directory: tempfile::TempDir,
    target_path: std::path::PathBuf,
}

impl World {
    fn new(backend: Backend, direct: DirectIo, register_memory: bool) -> World {
        let directory = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::existing(directory.path().join("image"));
        options.create = Some(SIZE + 8192);
        options.direct = direct;
        let (target, _) = Target::open(&options).unwrap();
        let bell = Arc::new(Doorbell::new().unwrap());
        let ring = uring::Options { entries: 8, register_memory };
        let (mut devices, notice) = RealDevices::new(backend, ring, bell.clone()).unwrap();
        assert!(notice.is_none() || backend == Backend::Auto);
        devices.add(Device::Flash, target.window(4096, SIZE).unwrap());
        let arena = Arena::new(4, 4096, HugePages::Never).unwrap();
        World {
            executor: Executor::new(devices, arena),
            bell,
            script: Script::default(),
            requests: OwnedRequests::default(),
            sender: None,
            target_path: options.path,
            _directory: directory,
        }
    }

    /// Makes a sender send submitted operations to the kernel. Returns false if the backend has
    /// none.
    fn send_apart(&mut self) -> bool {
        self.sender = self.executor.devices_mut().send_apart();
        self.sender.is_some()
    }

    /// Runs until nothing is in flight.
    fn settle(&mut self) {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            loop {
                let more = self.executor.run(&mut self.script, &mut self.requests).more;
                if let Some(sender) = &self.sender {
                    sender.send();
                }
                if !more {
                    break;
                }
            }
            if self.executor.in_flight() == 0 {
                break;
            }
            assert!(Instant::now() < give_up, "an operation never completes");
            self.bell.wait(Some(give_up));
        }
    }

    fn token(index: usize) -> Token {
        Token { owner: Owner::Front, index: index as u32 }
    }

    fn request(id: usize, offset: u32, length: u32) -> Segment {
        Segment { place: Place::Request { request: RequestId(id as u64), offset }, length }
    }

    /// Performs one step; returns what was read.
    fn step(&mut self, id: usize, step: &Step) -> Vec<u8> {
        let (token, device) = (World::token(id), Device::Flash);
        let request = RequestId(id as u64);
        let mut result = Vec::new();
        match *step {
            Step::Write { offset, length, byte } => {
                self.requests.open(request, length as usize).fill(byte);
                // In two pieces, with zeroes between them.
                let third = length / 3 / 512 * 512;
                let pieces = [
                    World::request(id, 0, third),
                    Segment { place: Place::Void, length: third },
                    World::request(id, 2 * third, length - 2 * third),
                ];
                let effect = Effect::Write { token, device, offset, length };
                self.script.queue.push_with(effect, pieces);
            }
            Step::Read { offset, length } => {
                self.requests.open(request, length as usize);
                let effect = Effect::Read { token, device, offset, length };
                self.script.queue.push_with(effect, [World::request(id, 0, length)]);
            }
            Step::Zero { offset, length, punch } => {
                let effect = Effect::WriteZeroes { token, device, offset, length, punch };
                self.script.queue.push(effect);
            }
            Step::Sync => self.script.queue.push(Effect::Sync { token, device }),
        }
        self.settle();
        assert_eq!(self.script.told.pop(), Some((id as u32, Ok(()))), "{step:?}");
        if matches!(step, Step::Read { .. } | Step::Write { .. }) {
            self.requests.reply(request, Ok(()));
            let data = self.requests.take_data(request).unwrap();
            if matches!(step, Step::Read { .. }) {
                result = data.to_vec();
            }
        }
        result
    }
}

/// Applies a step to the bytes of a device; returns what the step reads.
fn apply(step: &Step, image: &mut [u8]) -> Vec<u8> {
    let range = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
    match *step {
        Step::Write { offset, length, byte } => {
            image[range(offset, length.into())].fill(byte);
            let third = u64::from(length / 3 / 512 * 512);
            image[range(offset + third, third)].fill(0);
            Vec::new()
        }
        Step::Read { offset, length } => image[range(offset, length.into())].to_vec(),
        Step::Zero { offset, length, .. } => {
            image[range(offset, length)].fill(0);
            Vec::new()
        }
        Step::Sync => Vec::new(),
    }
}

fn check(backend: Backend, direct: DirectIo, register: bool, steps: &[Step]) {
    let mut world = World::new(backend, direct, register);
    let mut image = vec![0; SIZE as usize];
    for (id, step) in steps.iter().enumerate() {
        let read = world.step(id, step);
        assert!(read == apply(step, &mut image), "{step:?} read something else");
    }
    let path = world.target_path.clone();
    let size = world.executor.devices().capabilities(Device::Flash).unwrap().size;
    assert_eq!(size, SIZE);
    world.executor.devices_mut().abandon();
    let file = std::fs::read(path).unwrap();
    assert!(file[4096..][..SIZE as usize] == image, "the file holds something else");
    assert!(file[..4096].iter().all(|&byte| byte == 0), "bytes before the window changed");
    assert!(file[4096 + SIZE as usize..].iter().all(|&byte| byte == 0));
}

fn uring_is_allowed() -> bool {
    let bell = Arc::new(Doorbell::new().unwrap());
    let allowed = RealDevices::new(Backend::Uring, uring::Options::default(), bell).is_ok();
    if !allowed {
        eprintln!("io_uring is not available here: only threads are tested");
    }
    allowed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_backend_does_what_the_model_does(steps in steps()) {
        for direct in [DirectIo::Prefer, DirectIo::Never] {
            check(Backend::Threads, direct, false, &steps);
            if uring_is_allowed() {
                check(Backend::Uring, direct, false, &steps);
            }
        }
        if uring_is_allowed() {
            check(Backend::Uring, DirectIo::Prefer, true, &steps);
        }
    }
}

#[test]
fn more_operations_in_flight_than_the_ring_has_entries_all_complete() {
    let ring = std::iter::repeat_n(Backend::Auto, 40);
    for backend in ring.chain([Backend::Threads]) {
        let mut world = World::new(backend, DirectIo::Prefer, false);
        for id in 0..500usize {
            world.requests.open(RequestId(id as u64), 512).fill(id as u8);
            let offset = id as u64 * 512;
            let effect = Effect::Write {
                token: World::token(id),
                device: Device::Flash,
                offset,
                length: 512,
            };
            world.script.queue.push_with(effect, [World::request(id, 0, 512)]);
        }
        world.settle();
        let mut told = std::mem::take(&mut world.script.told);
        told.sort_unstable();
        assert_eq!(told, (0..500).map(|id| (id, Ok(()))).collect::<Vec<_>>());
        let file = std::fs::read(&world.target_path).unwrap();
        for id in 0..500usize {
            assert!(file[4096 + id * 512..][..512].iter().all(|&byte| byte == id as u8), "{id}");
        }
    }
}

/// Submits a write that fills each of `count` blocks with one byte value.
fn write_blocks(world: &mut World, round: usize, count: usize) {
    for id in 0..count {
        let request = round * count + id;
        world.requests.open(RequestId(request as u64), 512).fill((round + id) as u8);
        let (token, offset) = (World::token(id), id as u64 * 512);
        let effect = Effect::Write { token, device: Device::Flash, offset, length: 512 };
        world.script.queue.push_with(effect, [World::request(request, 0, 512)]);
    }
}

#[test]
fn operations_sent_by_other_threads_complete_exactly_once() {
    let mut world = World::new(Backend::Auto, DirectIo::Prefer, false);
    if !world.send_apart() {
        eprintln!("skipped: io_uring is not allowed here");
        return;
    }
    let done = AtomicBool::new(false);
    let sender = world.sender.clone().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sender.send();
                    std::thread::yield_now();
                }
            });
        }
        for round in 0..40 {
            // Many more than the ring has entries: some are sent to make room for others.
            write_blocks(&mut world, round, 400);
            world.settle();
            let mut told = std::mem::take(&mut world.script.told);
            told.sort_unstable();
            assert_eq!(told, (0..400).map(|id| (id, Ok(()))).collect::<Vec<_>>());
            let file = std::fs::read(&world.target_path).unwrap();
            for id in 0..400 {
                let byte = (round + id) as u8;
                assert!(file[4096 + id * 512..][..512].iter().all(|&b| b == byte), "{round} {id}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn devices_end_though_nobody_has_sent_what_was_submitted_and_a_sender_outlives_them() {
    let mut world = World::new(Backend::Auto, DirectIo::Prefer, false);
    if !world.send_apart() {
        eprintln!("skipped: io_uring is not allowed here");
        return;
    }
    for count in [5, 100] {
        write_blocks(&mut world, 0, count);
        world.executor.run(&mut world.script, &mut world.requests);
        assert!(world.executor.in_flight() > 0, "there is something to end");
        world.executor.devices_mut().abandon();
        // (The old executor would wait for completions that never come.)
        let sender = world.sender.take().unwrap();
        world = World::new(Backend::Auto, DirectIo::Prefer, false);
        assert!(world.send_apart());
        sender.send();
    }
    write_blocks(&mut world, 1, 100);
    world.settle();
    assert_eq!(world.script.told.len(), 100);
}

/// A completion for which the ring has no room does not ring the bell.
#[test]
fn one_operation_more_than_the_ring_has_room_for_is_not_lost() {
    for backend in [Backend::Threads, Backend::Auto] {
        let mut world = World::new(backend, DirectIo::Prefer, false);
        for _ in 0..400 {
            // Eight entries make a ring with room for 32.
            for id in 0..33usize {
                world.requests.open(RequestId(id as u64), 4096).fill(id as u8);
                let (token, offset) = (World::token(id), id as u64 * 4096);
                let effect = Effect::Write { token, device: Device::Flash, offset, length: 4096 };
                world.script.queue.push_with(effect, [World::request(id, 0, 4096)]);
            }
            world.settle();
            let told = std::mem::take(&mut world.script.told);
            assert!(told.len() == 33 && told.iter().all(|(_, outcome)| outcome.is_ok()));
            world.requests.clear();
        }
    }
}

#[test]
fn a_file_that_is_cut_short_behind_our_back_is_an_error_and_no_endless_loop() {
    for backend in [Backend::Threads, Backend::Auto] {
        let mut world = World::new(backend, DirectIo::Prefer, false);
        let file = std::fs::File::options().write(true).open(&world.target_path).unwrap();
        file.set_len(8192).unwrap();
        world.requests.open(RequestId(0), 4096);
        world.requests.open(RequestId(1), 8192);
        for (id, (offset, length)) in [(0, 4096), (0, 8192)].into_iter().enumerate() {
            let (token, device) = (World::token(id), Device::Flash);
            let effect = Effect::Read { token, device, offset, length };
            world.script.queue.push_with(effect, [World::request(id, 0, length)]);
        }
        world.settle();
        let mut told = std::mem::take(&mut world.script.told);
        told.sort_unstable();
        assert_eq!(told, [(0, Ok(())), (1, Err(IoError::Device))]);
    }
}
