//! Once its tables have grown, the executor allocates nothing: neither for hits, nor for device
//! operations, nor for bounced ones.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_device::{
    AlignedBuffer, Arena, Capabilities, Completion, Devices, Executor, HugePages, Io, Machine,
    MemorySlice, Requests,
};
use forebay_effect::{
    Device, Effect, EffectQueue, Frame, MetaBuffer, Outcome, Owner, Place, RequestId, Segment,
    Token,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Devices that complete every operation at once, without transferring data.
#[derive(Default)]
struct Instantly(Vec<Completion>);

impl Devices for Instantly {
    fn capabilities(&self, _: Device) -> Option<Capabilities> {
        Some(Capabilities {
            size: 1 << 30,
            logical_block: 4096,
            memory_alignment: 512,
            zeroes: true,
            punches: true,
        })
    }
    unsafe fn submit(&mut self, io: Io<'_>) {
        self.0.push(Completion { tag: io.tag, result: Ok(io.length) });
    }
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.0);
    }
    fn abandon(&mut self) {
        self.0.clear();
    }
}

struct Script {
    queue: EffectQueue,
    meta: Vec<u8>,
    completions: u64,
}

impl Machine for Script {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.queue.pop(segments)
    }
    fn handle_completion(&mut self, _: Token, outcome: Outcome) {
        assert_eq!(outcome, Ok(()));
        self.completions += 1;
    }
    fn handle_checksum(&mut self, _: Token, _: u32) {}
    fn meta_mut(&mut self, _: MetaBuffer) -> &mut [u8] {
        &mut self.meta
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

#[test]
fn the_steady_state_allocates_nothing() {
    let arena = Arena::new(8, 4096, HugePages::Never).unwrap();
    let mut executor = Executor::new(Instantly::default(), arena);
    let mut script = Script { queue: EffectQueue::default(), meta: vec![0; 4096], completions: 0 };
    let mut requests = OneRequest(AlignedBuffer::new(65536));
    let device = Device::Flash;
    let request = RequestId(0);
    let at_slot =
        |frame, length| Segment { place: Place::Frame { frame: Frame(frame), offset: 0 }, length };
    let at_request = |offset, length| Segment { place: Place::Request { request, offset }, length };
    let at_meta = Segment { place: Place::Meta { buffer: MetaBuffer(0), offset: 0 }, length: 4096 };
    let mut round = |count: u32| {
        for index in 0..count {
            let token = Token { owner: Owner::Log, index };
            let offset = u64::from(index) * 65536;
            let queue = &mut script.queue;
            let to = at_request(0, 0).place;
            queue.push(Effect::Copy { from: at_slot(1, 0).place, to, length: 4096 });
            queue.push(Effect::Reply { request, result: Ok(()) });
            let read = Effect::Read { token, device, offset, length: 8192 };
            queue.push_with(read, [at_slot(1, 4096), at_request(4096, 4096)]);
            // A direct write with metadata, and one that is not aligned.
            let write = Effect::Write { token, device, offset, length: 8192 };
            queue.push_with(write, [at_meta, at_slot(2, 4096)]);
            let odd = Effect::Write { token, device, offset: offset + 512, length: 8192 };
            queue.push_with(odd, [at_slot(3, 4096), at_request(512, 4096)]);
            queue.push(Effect::WriteZeroes { token, device, offset, length: 5000, punch: true });
            queue.push(Effect::Sync { token, device });
        }
        while executor.run(&mut script, &mut requests).more || executor.in_flight() > 0 {}
        script.completions
    };
    round(40);
    let before = ALLOCATIONS.with(Cell::get);
    let completions = round(40);
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(completions, 2 * 40 * 5);
}
