//! Tests of frames that are lent.

use super::*;

#[test]
fn no_effect_writes_to_what_is_lent() {
    for memory_alignment in [1, 4096] {
        let mut options = DeviceOptions::sized(64 << 10);
        (options.logical_block, options.memory_alignment) = (4096, memory_alignment);
        let mut world = World::new(options);
        world.executor.arena = Arena::lending(8, 4096, HugePages::Never, 8).unwrap();
        world.requests.open(RequestId(1), 4096).fill(0x11);
        world.fill_slot(2, 0x22);
        let mut loans = Vec::new();
        // A copy, a zeroing, and device reads: of a part of the frame, directly or bounced, and of
        // the whole frame.
        for step in 0..4 {
            let before = world.frame_bytes(2).to_vec();
            loans.push((world.executor.lend(Frame(2), 0, 4096).unwrap(), before));
            let (queue, target) = (&mut world.script.queue, frame(2, 512 * step, 0).place);
            match step {
                0 => {
                    let from = request(1, 0, 0).place;
                    queue.push(Effect::Copy { from, to: target, length: 512 });
                }
                1 => queue.push(Effect::Zero { to: target, length: 512 }),
                2 => {
                    world.script.read(FLASH, 0, &[frame(2, 1024, 1024), void(3072)]);
                }
                _ => {
                    world.script.read(FLASH, 8192, &[frame(2, 0, 4096)]);
                }
            }
            world.settle(&mut Seeded::new(3));
        }
        for (step, (loan, before)) in loans.iter().enumerate() {
            assert!(loan[..] == before[..], "step {step}, alignment {memory_alignment}");
        }
        let image = &world.executor.devices().contents(FLASH)[8192..12288];
        assert_eq!(world.frame_bytes(2), image);
    }
}

/// Requests during which a reader without the lock briefly borrows a frame at the worst moment, as
/// a reader does before its second check.
struct Meddler<'a> {
    requests: &'a mut OwnedRequests,
    published: Arc<Published>,
    borrowed: Vec<Loan>,
}

// SAFETY: as for the inner requests.
unsafe impl Requests for Meddler<'_> {
    fn data(&mut self, request: RequestId) -> MemorySlice {
        self.borrowed.push(self.published.borrow_piece(2));
        self.requests.data(request)
    }
    fn reply(&mut self, request: RequestId, result: Outcome) {
        self.requests.reply(request, result);
    }
}

#[test]
fn a_frame_stays_where_a_device_is_told_to_write_it() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.executor.arena = Arena::lending(8, 4096, HugePages::Never, 8).unwrap();
    world.requests.open(RequestId(1), 4096);
    world.script.read(FLASH, 0, &[frame(2, 0, 1024), request(1, 0, 1024), frame(2, 2048, 2048)]);
    let published = world.executor.published().unwrap();
    let requests = &mut world.requests;
    let mut meddler = Meddler { requests, published, borrowed: Vec::new() };
    world.executor.run(&mut world.script, &mut meddler);
    assert!(!meddler.borrowed.is_empty());
    world.settle(&mut Seeded::new(3));
    let image = &world.executor.devices().contents(FLASH)[..4096];
    assert!(world.frame_bytes(2)[..1024] == image[..1024]);
    assert!(world.frame_bytes(2)[2048..] == image[2048..]);
}

#[test]
fn a_read_may_be_answered_with_lent_memory() {
    let mut world = World::new(DeviceOptions::sized(64 << 10));
    world.executor.arena = Arena::lending(8, 4096, HugePages::Never, 8).unwrap();
    world.requests.open(RequestId(1), 8192);
    world.fill_slot(2, 0x22);
    world.fill_slot(5, 0x55);
    let queue = &mut world.script.queue;
    for (n, from) in [(0, frame(5, 0, 0).place), (1, frame(2, 0, 0).place)] {
        let to = request(1, n * 4096, 0).place;
        queue.push(Effect::Copy { from, to, length: 4096 });
        // The requests hold the loans, and check that this does not change them.
        queue.push(Effect::Zero { to: from, length: 4096 });
    }
    queue.push(Effect::Reply { request: RequestId(1), result: Ok(()) });
    world.run();
    let data = world.requests.take_data(RequestId(1)).unwrap();
    assert!(data[..4096].iter().all(|&b| b == 0x55) && data[4096..].iter().all(|&b| b == 0x22));
    assert_eq!((world.frame_bytes(2)[0], world.frame_bytes(5)[0]), (0, 0));
    world.requests.clear();
}
