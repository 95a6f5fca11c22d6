//! Measures the speed of the executor and its devices: `cargo run --release -p forebay-device
//! --example device_speed -- [DIRECTORY]` prints one figure per line. The file for the device
//! measurements goes into the directory (default: the system's temporary directory).

#![allow(clippy::print_stdout)] // a program, not the library

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_device::choices::{Choices, Seeded};
use forebay_device::file::{OpenOptions, Target};
use forebay_device::memory::{CutStyle, DeviceOptions, MemoryDevices};
use forebay_device::{
    AlignedBuffer, Arena, Backend, Devices, Doorbell, Executor, HugePages, Machine, MemorySlice,
    RealDevices, Requests, uring,
};
use forebay_effect::{
    Device, Effect, EffectQueue, Frame, MetaBuffer, Outcome, Owner, Place, RequestId, Segment,
    Token,
};

const BLOCK: u32 = 4096;
const FILE_BYTES: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    hits(64 << 20);
    hits(4 << 30);
    cuts();
    let path = directory.join(format!("forebay-speed-{}", std::process::id()));
    let measured = devices(&path);
    let removed = std::fs::remove_file(&path);
    measured?;
    Ok(removed?)
}

/// Hits in DRAM: one copy and one reply.
fn hits(bytes: u64) {
    let frames = (bytes / u64::from(BLOCK)) as u32;
    let mut arena = Arena::new(frames, BLOCK, HugePages::Transparent).expect("memory");
    arena.scribble(1);
    let mut executor = Executor::new(MemoryDevices::new(0), arena);
    let (mut script, mut requests) = (Script::default(), OneRequest(AlignedBuffer::new(4096)));
    let mut random = Seeded::new(1);
    let n = 2_000_000u32;
    let start = Instant::now();
    for _ in 0..n {
        let frame = Frame(random.choose(frames.into()) as u32);
        let from = Place::Frame { frame, offset: 0 };
        let to = Place::Request { request: RequestId(0), offset: 0 };
        script.queue.push(Effect::Copy { from, to, length: BLOCK });
        script.queue.push(Effect::Reply { request: RequestId(0), result: Ok(()) });
        executor.run(&mut script, &mut requests);
    }
    let rate = f64::from(n) / start.elapsed().as_secs_f64() / 1e6;
    println!("hits of 4 KiB in {} MiB of DRAM: {rate:.2} M/s", bytes >> 20);
}

/// Power cuts of a 128 KiB device with 20 unsynced writes.
fn cuts() {
    let mut devices = MemoryDevices::new(0);
    devices.add(Device::Flash, DeviceOptions::sized(128 << 10));
    let arena = Arena::new(20, BLOCK, HugePages::Never).expect("memory");
    let mut executor = Executor::new(devices, arena);
    let (mut script, mut requests) = (Script::default(), OneRequest(AlignedBuffer::new(4096)));
    for index in 0..20 {
        script.transfer(index, true, u64::from(index) * 4096);
    }
    executor.run(&mut script, &mut requests);
    executor.devices_mut().complete_all();
    let n = 20_000u32;
    let start = Instant::now();
    let mut after = MemoryDevices::new(0);
    for seed in 0..n {
        let mut choices = Seeded::new(seed.into());
        executor.devices().survivors_into(&mut after, CutStyle::Any, &mut choices);
        black_box(&after);
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(n);
    println!("power cut of a 128 KiB device with 20 unsynced writes: {us:.1} us");
}

/// Reads of 4 KiB through the executor, by backend and depth.
fn devices(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut options = OpenOptions::existing(path);
    options.create = Some(FILE_BYTES);
    options.allocate = true;
    let (target, notices) = Target::open(&options)?;
    for notice in notices {
        println!("{notice}");
    }
    drop(target);
    for (name, backend, register_memory) in [
        ("io_uring", Backend::Uring, false),
        ("io_uring, registered memory", Backend::Uring, true),
        ("threads", Backend::Threads, false),
    ] {
        let bell = Arc::new(Doorbell::new()?);
        let ring = uring::Options { register_memory, ..uring::Options::default() };
        let (mut devices, _) = RealDevices::new(backend, ring, bell.clone())?;
        devices.add(Device::Flash, Target::open(&options)?.0);
        let arena = Arena::new(256, BLOCK, HugePages::Transparent)?;
        let mut executor = Executor::new(devices, arena);
        fill(&mut executor, &bell);
        for (writes, depth) in [(false, 1), (false, 32), (true, 1), (true, 32)] {
            let rate = drive(&mut executor, &bell, writes, depth, Duration::from_secs(2));
            let what = if writes { "randwrite" } else { "randread" };
            println!("{name}: {what} 4 KiB, depth {depth}: {:.1} k/s", rate / 1e3);
        }
    }
    Ok(())
}

/// Writes the whole file, so that nothing measured is a hole.
fn fill<D: Devices>(executor: &mut Executor<D>, bell: &Doorbell) {
    let (mut script, mut requests) = (Script::default(), OneRequest(AlignedBuffer::new(4096)));
    for chunk in 0..FILE_BYTES / (256 << 10) {
        let token = Token { owner: Owner::Log, index: 0 };
        let (device, offset, length) = (Device::Flash, chunk * (256 << 10), 256 << 10);
        let place = |frame| Place::Frame { frame: Frame(frame), offset: 0 };
        let segments = (0..64).map(|frame| Segment { place: place(frame), length: BLOCK });
        script.queue.push_with(Effect::Write { token, device, offset, length }, segments);
        while executor.run(&mut script, &mut requests).more {}
        while executor.in_flight() > 8 {
            bell.wait(None);
            while executor.run(&mut script, &mut requests).more {}
        }
    }
    while executor.in_flight() > 0 {
        bell.wait(None);
        while executor.run(&mut script, &mut requests).more {}
    }
}

/// Keeps `depth` operations in flight for `time`. Returns operations per second.
fn drive<D: Devices>(
    executor: &mut Executor<D>,
    bell: &Doorbell,
    writes: bool,
    depth: u32,
    time: Duration,
) -> f64 {
    let (mut script, mut requests) = (Script::default(), OneRequest(AlignedBuffer::new(4096)));
    let mut random = Seeded::new(3);
    let start = Instant::now();
    for index in 0..depth {
        script.transfer(index, writes, random.choose(FILE_BYTES / 4096) * 4096);
    }
    let mut completed = 0u64;
    loop {
        executor.run(&mut script, &mut requests);
        completed += script.done.len() as u64;
        let go_on = start.elapsed() < time;
        while let Some(index) = script.done.pop() {
            if go_on {
                script.transfer(index, writes, random.choose(FILE_BYTES / 4096) * 4096);
            }
        }
        if executor.run(&mut script, &mut requests).more || !script.done.is_empty() {
            continue;
        }
        if executor.in_flight() == 0 {
            return completed as f64 / start.elapsed().as_secs_f64();
        }
        bell.wait(None);
    }
}

#[derive(Default)]
struct Script {
    queue: EffectQueue,
    done: Vec<u32>,
}

impl Script {
    fn transfer(&mut self, index: u32, write: bool, offset: u64) {
        let token = Token { owner: Owner::Log, index };
        let (device, length) = (Device::Flash, BLOCK);
        let effect = if write {
            Effect::Write { token, device, offset, length }
        } else {
            Effect::Read { token, device, offset, length }
        };
        let place = Place::Frame { frame: Frame(index), offset: 0 };
        self.queue.push_with(effect, [Segment { place, length }]);
    }
}

impl Machine for Script {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.queue.pop(segments)
    }
    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        assert_eq!(outcome, Ok(()));
        self.done.push(token.index);
    }
    fn handle_checksum(&mut self, _: Token, _: u32) {}
    fn meta_mut(&mut self, _: MetaBuffer) -> &mut [u8] {
        &mut []
    }
}

struct OneRequest(AlignedBuffer);

// SAFETY: the buffer lives as long as the value and never moves.
unsafe impl Requests for OneRequest {
    fn data(&mut self, _: RequestId) -> MemorySlice {
        MemorySlice { pointer: self.0.pointer(), length: self.0.len() }
    }
    fn reply(&mut self, _: RequestId, _: Outcome) {}
}
