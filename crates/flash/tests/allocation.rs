//! After the start, appending allocates no memory.

mod common;

use common::{Rig, key};
use forebay_effect::Frame;
use forebay_flash::{Append, Event, Geometry, Granules, Options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn appending_allocates_nothing_after_the_start() {
    let mut geometry = Geometry::for_device(16 << 20, 4096).unwrap();
    geometry.batch_entries_max = 16;
    let options = Options { frames: 64, ..Options::default() };
    let mut rig = Rig::formatted(geometry, options);
    let mut segments = Vec::new();
    let mut log = rig.log;
    let mut tokens = std::collections::VecDeque::with_capacity(64);
    let mut before = 0;
    for n in 0..20_000u64 {
        if n == 5_000 {
            // By now every queue has grown to its final size.
            before = ALLOCATIONS.with(Cell::get);
        }
        let (valid, frame) = (geometry.all_granules(), Frame((n % 64) as u32));
        log.append(Append {
            ticket: n,
            key: key(n),
            valid,
            dirty: Granules::EMPTY,
            frame,
            urgent: n % 7 == 0,
        });
        if n % 50 == 0 {
            log.sync(n);
        }
        if n % 90 == 0 {
            log.poison(key(n));
        }
        loop {
            while let Some(effect) = log.poll_effect(&mut segments) {
                let token = effect.token().unwrap();
                match effect.is_device() {
                    true => tokens.push_back(token.index),
                    false => log.handle_checksum(token.index, 0),
                }
            }
            let Some(index) = tokens.pop_front() else { break };
            log.handle_completion(index, Ok(()));
        }
        while let Some(event) = log.poll_event() {
            match event {
                Event::Reclaim { region } => log.region_released(region),
                Event::RegionFreed { region } => log.region_forgotten(region),
                _ => {}
            }
        }
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert!(log.stats().regions_reclaimed > 10);
    rig.frames.clear();
}
