use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use forebay_block::Flags;
use forebay_cache::{CacheConfig, StopTarget, WritePolicy};
use forebay_device::{AlignedBuffer, Arena, Capabilities, Completion, HugePages, Io};
use forebay_effect::Device;

/// A device that ends everything at once and rings no bell.
#[derive(Default)]
struct Silent {
    /// Whether it can zero ranges.
    zeroes: bool,
    ended: Vec<Completion>,
    /// How often somebody has asked what has ended.
    asked: Arc<AtomicU32>,
    /// Whether nothing ends.
    stuck: Arc<AtomicBool>,
}

impl Devices for Silent {
    fn capabilities(&self, _: Device) -> Option<Capabilities> {
        let (logical_block, memory_alignment) = (512, 512);
        let (zeroes, punches) = (self.zeroes, false);
        Some(Capabilities { size: SIZE, logical_block, memory_alignment, zeroes, punches })
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        self.ended.push(Completion { tag: io.tag, result: Ok(io.length) });
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.stuck.load(Ordering::Relaxed) {
            done.append(&mut self.ended);
        }
    }

    fn abandon(&mut self) {
        self.ended.clear();
    }
}

pub const SIZE: u64 = 4 << 20;

/// One that has started, over such a device.
pub fn started() -> Core {
    started_over(Silent::default(), CacheConfig::dram_only(4))
}

/// One with memory to lend, whose devices may be stuck.
pub fn lending(config: CacheConfig) -> (Core, Arc<AtomicBool>) {
    let device = Silent::default();
    let stuck = device.stuck.clone();
    (started_over(device, config), stuck)
}

fn started_over(device: Silent, config: CacheConfig) -> Core {
    let arena = Arena::lending(config.frames(), 4096, HugePages::Never, 4).unwrap();
    let executor = Executor::new(AnyDevices::new(device), arena);
    let mut core = Core::new(executor, Cache::new(config), None);
    core.attach(VolumeConfig::new(SIZE));
    core.start(Nanos(0), Open::RECOVER);
    core
}

/// A write of the block with this number.
pub fn write(tag: u64) -> Submission {
    let buffer = Some(AlignedBuffer::new(4096));
    let (volume, op, flags, offset) = (Volume(0), Op::Write, Flags::NONE, 4096 * tag);
    Submission { tag, volume, op, flags, offset, length: 4096, buffer }
}

#[test]
fn all_that_was_held_back_goes_on_when_the_hold_ends() {
    let mut core = started();
    let clock = Clock::start();
    let session = core.table.open_session();
    core.change_holds(Nanos(1), ClientHolds::begin_quiesce);
    core.submit(Nanos(1), session, &mut (0..3).map(write).collect());
    assert_eq!(core.table.session(session).in_flight, 3);
    core.end_quiesce(Nanos(2), BTreeMap::new());
    while core.reaper_must_wake(clock) {
        core.pass_timeout(Nanos(2));
    }
    let mailbox = core.table.session(session);
    assert_eq!((mailbox.in_flight, mailbox.done.len()), (0, 3), "some wait for another request");
}

#[test]
fn a_session_that_has_only_hits_does_not_work_for_others() {
    let device = Silent::default();
    let asked = device.asked.clone();
    let mut core = started_over(device, CacheConfig::dram_only(4));
    let session = core.table.open_session();
    core.submit(Nanos(1), session, &mut vec![write(0), write(1)]);
    let read = |block| Submission { op: Op::Read, ..write(block) };
    let before = asked.load(Ordering::Relaxed);
    core.submit(Nanos(2), session, &mut vec![read(0), read(1)]);
    assert_eq!(core.table.session(session).done.len(), 4);
    assert_eq!(asked.load(Ordering::Relaxed), before);
    core.submit(Nanos(3), session, &mut vec![read(0), read(9)]);
    assert_eq!(core.table.session(session).done.len(), 6);
    assert!(asked.load(Ordering::Relaxed) > before);
}

#[test]
fn work_that_a_run_leaves_wakes_the_reaper() {
    let mut core = started();
    let clock = Clock::start();
    let session = core.table.open_session();
    // It goes through four blocks of memory, and each of them has to leave first.
    let length = 1 << 20;
    let buffer = Some(AlignedBuffer::new(length as usize));
    let (volume, op, flags) = (Volume(0), Op::Write, Flags::NONE);
    let write = Submission { tag: 1, volume, op, flags, offset: 0, length, buffer };
    core.submit(Nanos(1), session, &mut vec![write]);
    assert_eq!(core.table.session(session).in_flight, 1, "one run is not enough for it");
    while core.reaper_must_wake(clock) {
        core.pass_timeout(Nanos(2));
    }
    let mailbox = core.table.session(session);
    assert_eq!((mailbox.in_flight, mailbox.done.len()), (0, 1), "nobody goes on with it");
    assert_eq!(mailbox.done[0].result, Ok(()));
}

#[test]
fn the_engine_comes_only_nearer_to_its_end() {
    let mut core = started();
    core.order(Nanos(1), Order::PrepareStop);
    assert_eq!(core.life(), Life::StopAnnounced);
    core.order(Nanos(2), Order::Stop(StopTarget::Stores));
    core.order(Nanos(3), Order::PrepareStop);
    assert_eq!(core.life(), Life::Stopping);
    core.end();
    core.order(Nanos(4), Order::Stop(StopTarget::Stores));
    core.order(Nanos(5), Order::PrepareStop);
    assert_eq!(core.life(), Life::Ended);
}

#[test]
fn what_a_client_left_behind_before_the_machine_never_takes_effect() {
    let mut core = started();
    let gone = core.table.open_session();
    core.change_holds(Nanos(1), ClientHolds::begin_quiesce);
    core.submit(Nanos(1), gone, &mut (0..3).map(write).collect());
    core.abandon_session(gone);
    let mailbox = core.table.session(gone);
    assert_eq!(mailbox.in_flight, 0, "it keeps its place until the quiesce ends");
    assert!(
        mailbox.done.len() == 3 && mailbox.done.iter().all(|d| d.result == Err(IoError::Shutdown))
    );
    core.end_quiesce(Nanos(2), BTreeMap::new());
    assert_eq!(
        core.cache.volume_stats(Volume(0)).unwrap().writes,
        0,
        "an old write may replace a newer one"
    );
}

#[test]
fn what_overlaps_a_write_that_a_client_left_in_the_machine_comes_after_it() {
    let (mut core, stuck) = lending(CacheConfig::dram_only(4));
    let clock = Clock::start();
    let (gone, other) = (core.table.open_session(), core.table.open_session());
    let read = |block| Submission { op: Op::Read, ..write(block) };
    core.submit(Nanos(1), other, &mut vec![write(1), write(2)]);
    stuck.store(true, Ordering::Relaxed);
    let durable = Submission { flags: Flags::FUA, ..write(1) };
    core.submit(Nanos(1), gone, &mut vec![durable, read(7)]);
    core.abandon_session(gone);
    assert_eq!(core.table.session(gone).in_flight, 2, "the machine has them");
    assert!(!core.may_publish(), "a read without the lock waits for nobody");

    let done = |core: &mut Core| {
        std::mem::take(&mut core.table.session(other).done)
            .iter()
            .map(|d| d.request.tag)
            .collect::<Vec<_>>()
    };
    assert_eq!(done(&mut core), [1, 2]);
    core.submit(Nanos(2), other, &mut vec![read(2)]);
    assert_eq!(done(&mut core), [2], "it has nothing to do with the lost client");
    core.submit(Nanos(2), other, &mut vec![write(1), read(1)]);
    assert_eq!((done(&mut core), core.waiting.len()), (vec![], 2));
    stuck.store(false, Ordering::Relaxed);
    core.pass_timeout(Nanos(3));
    while core.reaper_must_wake(clock) {
        core.pass_timeout(Nanos(3));
    }
    assert_eq!((done(&mut core), core.table.session(gone).in_flight), (vec![1, 1], 0));
    assert!(core.may_publish());
}

#[test]
fn a_fast_zeroing_fails_where_the_store_can_only_be_written_to() {
    for zeroes in [false, true] {
        let mut core =
            started_over(Silent { zeroes, ..Silent::default() }, CacheConfig::dram_only(4));
        let session = core.table.open_session();
        let zero = Submission { op: Op::WriteZeroes, buffer: None, ..write(1) };
        let fast = Submission {
            flags: Flags::FAST_ZERO,
            ..Submission { tag: 2, buffer: None, op: zero.op, ..write(2) }
        };
        core.submit(Nanos(1), session, &mut vec![zero, fast]);
        let done = std::mem::take(&mut core.table.session(session).done);
        let mut results: Vec<_> = done.iter().map(|d| (d.request.tag, d.result)).collect();
        results.sort_by_key(|(tag, _)| *tag);
        let second = if zeroes { Ok(()) } else { Err(IoError::Unsupported) };
        assert_eq!(results, [(1, Ok(())), (2, second)]);
        assert_eq!(core.zeroes_cheaply(Volume(0), true), zeroes);
    }
}

#[test]
fn without_flash_a_stop_may_give_up_stores_only_while_nothing_is_dirty() {
    let (mut core, stuck) = lending(CacheConfig::dram_only(4));
    let session = core.table.open_session();
    assert!(core.may_give_up_stores());
    stuck.store(true, Ordering::Relaxed);
    core.submit(Nanos(1), session, &mut vec![Submission { op: Op::Read, ..write(1) }]);
    assert_eq!(core.table.session(session).in_flight, 1);
    assert!(core.may_give_up_stores(), "a request that waits for a store that hangs keeps nobody");
    let back = Order::SetPolicy(WritePolicy::WRITE_BACK, Acknowledge::Dram);
    core.order(Nanos(2), back);
    stuck.store(false, Ordering::Relaxed);
    core.pass_timeout(Nanos(3));
    core.submit(Nanos(4), session, &mut vec![write(2)]);
    assert_eq!(core.cache().dirty_blocks(), 1);
    assert!(!core.may_give_up_stores(), "only memory has it");
}
