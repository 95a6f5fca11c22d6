//! Direct writes: wherever power is cut, every record that recovery trusts agrees with the backing
//! store.

use crate::common::{Rig, Rng, answer, key, marked, options, tiny, tombstone};
use forebay_effect::{Frame, IoError};
use forebay_flash::{
    AnswerKind, Append, BatchSequence, BlockKey, Event, ExtentId, Geometry, Granules, MarkAnswer,
    Options, RecordEvent, RegionIndex, Start, StartEvent,
};
use std::collections::BTreeMap;

/// A backing store with a volatile write cache.
#[derive(Default)]
struct Backing {
    current: BTreeMap<u64, u64>,
    durable: BTreeMap<u64, u64>,
    /// Values written since the last sync, per block, oldest first.
    volatile: BTreeMap<u64, Vec<u64>>,
}

impl Backing {
    fn write(&mut self, block: u64, version: u64) {
        self.current.insert(block, version);
        self.volatile.entry(block).or_default().push(version);
    }
    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.volatile.clear();
    }
    fn cut(&mut self, rng: &mut Rng, under_way: &BTreeMap<u64, u64>) {
        for (&block, &version) in under_way {
            self.volatile.entry(block).or_default().push(version);
        }
        for (block, versions) in std::mem::take(&mut self.volatile) {
            let n = rng.below(versions.len() as u64 + 1) as usize;
            if n > 0 {
                self.durable.insert(block, versions[n - 1]);
            }
        }
        self.current.clone_from(&self.durable);
    }
    fn read(&self, block: u64) -> u64 {
        self.current.get(&block).copied().unwrap_or(0)
    }
}

#[derive(Default)]
struct Model {
    backing: Backing,
    /// Blocks with a requested mark: for a direct write, or to append the store's data from this
    /// frame.
    asked: BTreeMap<u64, Option<u32>>,
    /// Blocks with a direct write in flight (version).
    writing: BTreeMap<u64, u64>,
    retiring: Vec<ExtentId>,
    reclaiming: Vec<RegionIndex>,
    free_frames: Vec<u32>,
    version: u64,
    trusted: u64,
    distrusted: u64,
    retired: u64,
    clean: u64,
    taken_back: u64,
}

const BLOCKS: u64 = 32;

impl Model {
    /// Appends the store's data as a clean record.
    fn append(&mut self, rig: &mut Rig, frame: u32, block: u64) {
        rig.fill(frame, key(block), self.backing.read(block));
        rig.log.append(Append {
            ticket: u64::from(frame),
            key: key(block),
            valid: rig.geometry.all_granules(),
            dirty: Granules::EMPTY,
            frame: Frame(frame),
            urgent: frame.is_multiple_of(2),
        });
    }

    fn events(&mut self, rig: &mut Rig) {
        while let Some(event) = rig.log.poll_event() {
            match event {
                Event::Record(RecordEvent::Appended { ticket, .. }) => {
                    self.free_frames.push(ticket as u32)
                }
                Event::Record(RecordEvent::AppendRefused { ticket }) => {
                    self.free_frames.push(ticket as u32);
                    self.taken_back += 1;
                }
                Event::Mark { ticket, answer: MarkAnswer::Active(result) } => {
                    result.unwrap();
                    match self.asked.remove(&ticket).expect("the mark was asked for") {
                        Some(frame) => self.append(rig, frame, ticket),
                        None => {
                            self.version += 1;
                            self.writing.insert(ticket, self.version);
                        }
                    }
                }
                Event::Retire { extent, .. } => self.retiring.push(extent),
                Event::Reclaim { region } => self.reclaiming.push(region),
                Event::RegionFreed { region } => rig.log.region_forgotten(region),
                Event::Answer { kind: AnswerKind::Synced, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn step(&mut self, rig: &mut Rig, rng: &mut Rng) {
        let block = rng.below(BLOCKS);
        let idle = !self.asked.contains_key(&block) && !self.writing.contains_key(&block);
        match rng.below(16) {
            0..=3 if idle => {
                self.asked.insert(block, None);
                rig.log.mark_active(key(block), block);
            }
            4..=6 => {
                if let Some((block, version)) = self.writing.pop_last() {
                    self.backing.write(block, version);
                }
            }
            7..=9 if idle => {
                if let Some(frame) = self.free_frames.pop() {
                    // Data that is not durable on the store enters flash only in a marked extent.
                    if self.backing.volatile.contains_key(&block) {
                        self.asked.insert(block, Some(frame));
                        rig.log.mark_active(key(block), block);
                    } else {
                        self.append(rig, frame, block);
                    }
                }
            }
            10 if rng.one_in(4) => self.backing.sync(),
            10 => rig.log.sync(u64::MAX),
            11 if rng.one_in(4) => {
                if let Some(extent) = self.retiring.pop() {
                    self.backing.sync();
                    rig.log.extent_released(extent);
                    self.retired += 1;
                }
            }
            12 => {
                if !self.reclaiming.is_empty() {
                    rig.log.region_released(self.reclaiming.remove(0));
                }
            }
            13 if rng.one_in(8) => rig.log.take_back(),
            _ => {
                if rig.under_way() > 0 {
                    rig.complete(rng.below(rig.under_way() as u64) as usize);
                }
            }
        }
        rig.poll();
        self.events(rig);
    }

    /// Checks that the records that recovery trusts agree with the backing store.
    fn recovered(&mut self, events: &[Event], rig: &Rig) {
        let mut newest: BTreeMap<BlockKey, Option<u64>> = BTreeMap::new();
        for event in events {
            match event {
                Event::Start(StartEvent::Recovered(r)) => {
                    newest.insert(r.key, Some(rig.version(r)))
                }
                Event::Start(StartEvent::RecoveredTombstone { key }) => newest.insert(*key, None),
                Event::Start(StartEvent::Ready(report)) => {
                    assert!(report.damage.is_harmless());
                    self.distrusted += report.distrusted;
                    self.clean += u64::from(report.clean && report.records > 0);
                    None
                }
                Event::Reclaim { region } => {
                    self.reclaiming.push(*region);
                    None
                }
                other => panic!("{other:?}"),
            };
        }
        for (key, version) in newest {
            if let Some(version) = version {
                assert_eq!(version, self.backing.read(key.block().0), "{key}");
                self.trusted += 1;
            }
        }
    }
}

fn run(seed: u64, geometry: Geometry, options: Options, total: &mut Model) {
    let mut rng = Rng(seed);
    let mut model = Model::default();
    let mut rig = Rig::formatted(geometry, options);
    for _ in 0..20 {
        model.free_frames = (0..options.frames).collect();
        for _ in 0..rng.below(400) {
            model.step(&mut rig, &mut rng);
        }
        if rng.one_in(3) {
            // A clean stop, which a cut may interrupt: direct writes end, and the backing store is
            // durable.
            for (block, version) in std::mem::take(&mut model.writing) {
                model.backing.write(block, version);
            }
            model.backing.sync();
            rig.log.stop();
            rig.poll();
            let patience = if rng.one_in(2) { rng.below(8) } else { u64::MAX };
            for _ in 0..patience {
                while let Some(event) = rig.log.poll_event() {
                    match event {
                        Event::Mark { answer: MarkAnswer::Active(result), .. } => {
                            assert!(result == Err(IoError::Shutdown) || result == Ok(()));
                        }
                        Event::Reclaim { region } => rig.log.region_released(region),
                        Event::RegionFreed { region } => rig.log.region_forgotten(region),
                        _ => {}
                    }
                }
                rig.poll();
                for region in std::mem::take(&mut model.reclaiming) {
                    rig.log.region_released(region);
                    rig.poll();
                }
                if rig.under_way() == 0 {
                    break;
                }
                rig.complete(0);
            }
        }
        let mut flash = rig.cut(&mut rng);
        let writing = std::mem::take(&mut model.writing);
        model.backing.cut(&mut rng, &writing);
        model.asked.clear();
        model.retiring.clear();
        model.reclaiming.clear();
        loop {
            rig = Rig::new(geometry, options, flash);
            rig.log.start(Start::RECOVER);
            rig.poll();
            let patience = if rng.one_in(3) { rng.below(30) } else { u64::MAX };
            let mut events = Vec::new();
            for _ in 0..patience {
                events.extend(std::iter::from_fn(|| rig.log.poll_event()));
                let ready = events.iter().any(|e| matches!(e, Event::Start(StartEvent::Ready(_))));
                if ready || rig.under_way() == 0 {
                    break;
                }
                rig.complete(rng.below(rig.under_way() as u64) as usize);
            }
            events.extend(std::iter::from_fn(|| rig.log.poll_event()));
            let failed = events.iter().find(|e| matches!(e, Event::Start(StartEvent::Failed(_))));
            assert_eq!(failed, None, "a power cut is no damage");
            if events.iter().any(|e| matches!(e, Event::Start(StartEvent::Ready(_)))) {
                model.recovered(&events, &rig);
                break;
            }
            flash = rig.cut(&mut rng);
        }
    }
    total.trusted += model.trusted;
    total.distrusted += model.distrusted;
    total.retired += model.retired;
    total.clean += model.clean;
    total.taken_back += model.taken_back;
}

#[test]
fn a_trusted_record_always_says_what_the_backing_store_says() {
    let runs = std::env::var("FOREBAY_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(80);
    let mut total = Model::default();
    for seed in 0..runs {
        run(seed, tiny(), options(), &mut total);
        let more = Geometry { active_extents_max: 5, extent_bytes: 8192, regions: 6, ..tiny() };
        run(seed + 5000, more, options(), &mut total);
        // A place for every extent: some are given up before the table is full.
        let all = Geometry { active_extents_max: 16, ..more };
        run(seed + 10_000, all, options(), &mut total);
    }
    for (what, count) in [
        ("trusted", total.trusted),
        ("distrusted", total.distrusted),
        ("retired", total.retired),
        ("warm clean starts", total.clean),
        ("taken back", total.taken_back),
    ] {
        assert!(count > runs, "{what}: {count}");
    }
}

#[test]
fn a_stale_record_stays_stale_if_the_newer_one_is_taken_back() {
    let mut rig = Rig::formatted(tiny(), options());
    let append = |rig: &mut Rig, version| {
        rig.fill(0, key(0), version);
        let valid = rig.geometry.all_granules();
        let (ticket, key, frame) = (0, key(0), Frame(0));
        rig.log.append(Append { ticket, key, valid, dirty: Granules::EMPTY, frame, urgent: false });
    };
    append(&mut rig, 1);
    rig.log.close_batch();
    rig.settle();
    rig.log.mark_active(key(0), 1);
    rig.settle();
    // The data of the direct write is read back, and about to enter flash.
    append(&mut rig, 2);
    rig.log.take_back();
    assert_eq!(rig.settle(), [Event::Record(RecordEvent::AppendRefused { ticket: 0 })]);
    rig.log.stop();
    rig.settle();
    let mut next = rig.restart(Start::RECOVER);
    let events = next.settle();
    let last = events.iter().rev().find(|e| !matches!(e, Event::Start(StartEvent::Ready(_))));
    assert_eq!(last, Some(&tombstone(key(0))), "{events:?}");
}

#[test]
fn extents_leave_the_table_although_appends_were_taken_back() {
    let mut rig = Rig::formatted(tiny(), options());
    for (ticket, block) in [(1, 4), (2, 0)] {
        rig.log.mark_active(key(block), ticket);
        rig.settle();
    }
    rig.log.mark_active(key(8), 3);
    let events = rig.settle();
    let [Event::Retire { extent, .. }] = events[..] else { panic!("{events:?}") };
    // Two batches are in flight, so the ninth append waits, and the extent leaves after it.
    for n in 0..9 {
        rig.append(n, key(4 + n), 1, false);
    }
    rig.log.extent_released(extent);
    rig.log.take_back();
    let events = rig.settle();
    assert!(
        events.contains(&Event::Record(RecordEvent::AppendRefused { ticket: 8 })),
        "{events:?}"
    );
    assert!(events.contains(&marked(3)), "{events:?}");
}

#[test]
fn a_mark_is_granted_only_when_durable_and_again_at_once() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.mark_active(key(0), 1);
    rig.log.mark_active(key(3), 2);
    rig.poll();
    assert_eq!(rig.under_way(), 1, "one update of the superblock for both");
    rig.complete(0);
    assert_eq!(rig.log.poll_event(), None);
    rig.complete(0);
    assert_eq!(rig.log.poll_event(), Some(marked(1)));
    assert_eq!(rig.log.poll_event(), Some(marked(2)));
    rig.settle();
    rig.log.mark_active(key(1), 3);
    assert_eq!(rig.log.poll_event(), Some(marked(3)));
    assert_eq!(rig.under_way(), 0);
}

#[test]
fn a_full_table_waits_until_the_extent_marked_least_recently_has_left() {
    let mut rig = Rig::formatted(tiny(), options());
    for (ticket, block) in [(1, 0), (2, 4), (3, 0)] {
        rig.log.mark_active(key(block), ticket);
        rig.settle();
    }
    rig.log.mark_active(key(8), 4);
    let events = rig.settle();
    let [Event::Retire { extent, first }] = events[..] else { panic!("{events:?}") };
    assert_eq!(first, key(4));
    rig.log.extent_released(extent);
    assert_eq!(rig.settle(), [marked(4)]);
    // A late or repeated answer changes nothing.
    rig.log.extent_released(extent);
    assert_eq!(rig.settle(), []);
}

#[test]
fn a_large_table_gives_extents_up_before_it_is_full_and_marks_do_not_wait() {
    let large = Geometry { active_extents_max: 32, ..tiny() };
    let mut rig = Rig::formatted(large, options());
    let mut mark = |n: u64| {
        rig.log.mark_active(key(4 * n), n);
        rig.settle()
    };
    for n in 0..28 {
        assert_eq!(mark(n), [marked(n)]);
    }
    let events = mark(28);
    let Some((granted, events)) = events.split_last() else { panic!("nothing happens") };
    assert_eq!(*granted, marked(28));
    let firsts: Vec<BlockKey> = events
        .iter()
        .map(|e| match e {
            Event::Retire { first, .. } => *first,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(firsts, [0, 4, 8, 12].map(key), "an eighth of the places, as these are short");
    rig.log.mark_active(key(4 * 29), 29);
    let events = rig.settle();
    assert_eq!(events, [marked(29)], "there is a place left");
}

#[test]
fn marks_that_wait_are_granted_extent_by_extent_in_the_order_in_which_they_came() {
    let one = Geometry { active_extents_max: 1, ..tiny() };
    let mut rig = Rig::formatted(one, options());
    rig.log.mark_active(key(0), 0);
    rig.settle();
    // Extents 1, 2, 1 again, 3.
    for (block, ticket) in [(4, 1), (8, 2), (5, 3), (12, 4)] {
        rig.log.mark_active(key(block), ticket);
    }
    let mut granted = Vec::new();
    let mut events = rig.settle();
    while let Some(Event::Retire { extent, .. }) = events.pop() {
        assert_eq!(events, [], "an extent leaves only when the next one waits");
        rig.log.extent_released(extent);
        events = rig.settle();
        while let Some(Event::Mark { ticket, answer: MarkAnswer::Active(Ok(())) }) = events.first()
        {
            granted.push(*ticket);
            events.remove(0);
        }
    }
    assert_eq!(granted, [1, 3, 2, 4]);
}

#[test]
fn an_answer_that_is_older_than_a_grant_does_not_let_the_extent_leave() {
    let one = Geometry { active_extents_max: 1, ..tiny() };
    let mut rig = Rig::formatted(one, options());
    rig.log.mark_active(key(0), 1);
    rig.settle();
    rig.log.mark_active(key(8), 2);
    let events = rig.settle();
    let [Event::Retire { extent: former, .. }] = events[..] else { panic!("{events:?}") };
    // The extent is marked again before the answer, so it stays.
    rig.log.mark_active(key(1), 3);
    assert_eq!(rig.settle(), [marked(3)]);
    rig.log.extent_released(former);
    let events = rig.settle();
    let [Event::Retire { extent: again, .. }] = events[..] else {
        panic!("a write was granted since what that answers was synced: {events:?}")
    };
    assert_ne!(again, former);
    rig.log.extent_released(former);
    assert_eq!(rig.settle(), [], "it says nothing about the later one");
    rig.log.extent_released(again);
    assert_eq!(rig.settle(), [marked(2)]);
}

#[test]
fn an_extent_begins_to_leave_only_when_all_its_grants_are_taken() {
    let one = Geometry { active_extents_max: 1, ..tiny() };
    let mut rig = Rig::formatted(one, options());
    for ticket in [1, 2] {
        rig.log.mark_active(key(ticket), ticket);
    }
    rig.poll();
    while rig.under_way() > 0 {
        rig.complete(0);
    }
    rig.log.mark_active(key(4), 3);
    for ticket in [1, 2] {
        assert_eq!(
            rig.log.upcoming_event(3 - ticket as usize),
            None,
            "no event follows the grants"
        );
        assert_eq!(rig.log.poll_event(), Some(marked(ticket)));
    }
    let events = rig.settle();
    assert!(matches!(events[..], [Event::Retire { .. }]), "{events:?}");
}

#[test]
fn marking_an_extent_again_while_it_leaves_keeps_it() {
    let mut rig = Rig::formatted(tiny(), options());
    for (ticket, block) in [(1, 0), (2, 4)] {
        rig.log.mark_active(key(block), ticket);
        rig.settle();
    }
    rig.log.mark_active(key(8), 3);
    let events = rig.settle();
    let [Event::Retire { extent, first }] = events[..] else { panic!("{events:?}") };
    assert_eq!(first, key(0));
    rig.log.extent_released(extent);
    rig.log.mark_active(key(1), 4);
    let events = rig.settle();
    let [ref granted, Event::Retire { first, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(*granted, marked(4));
    assert_eq!(first, key(4), "another one is to leave");
    assert!(rig.log.has_mark(key(0)));
}

#[test]
fn a_record_that_turns_stale_behind_the_tombstones_of_its_extent_gets_one_too() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(2), 1, true);
    for (ticket, block) in [(1, 0), (2, 4)] {
        rig.log.mark_active(key(block), ticket);
        rig.settle();
    }
    rig.log.mark_active(key(8), 3);
    let events = rig.settle();
    let [Event::Retire { extent, .. }] = events[..] else { panic!("{events:?}") };
    rig.log.extent_released(extent);
    rig.poll();
    assert_eq!(rig.under_way(), 1, "the tombstone of block 0 is being written");
    rig.log.poison(key(2));
    assert_eq!(rig.settle(), [marked(3)]);
    let events = rig.restart(Start::RECOVER).settle();
    assert!(events.contains(&tombstone(key(2))), "{events:?}");
}

#[test]
fn a_stale_record_anywhere_in_a_large_extent_gets_its_tombstone() {
    for block in [0, 63, 64, 100, 127] {
        let geometry = Geometry { extent_bytes: 128 * 4096, ..tiny() };
        let mut rig = Rig::formatted(geometry, options());
        rig.append(0, key(block), 1, true);
        for (ticket, block) in [(1, block), (2, 128)] {
            rig.log.mark_active(key(block), ticket);
            rig.settle();
        }
        rig.log.mark_active(key(256), 3);
        let events = rig.settle();
        let [Event::Retire { extent, .. }] = events[..] else { panic!("{events:?}") };
        rig.log.extent_released(extent);
        assert_eq!(rig.settle(), [marked(3)]);
        let events = rig.restart(Start::RECOVER).settle();
        assert!(events.contains(&tombstone(key(block))), "{events:?}");
    }
}

#[test]
fn poison_outside_of_active_extents_appends_a_tombstone() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(7), 1, true);
    rig.settle();
    rig.log.poison(key(7));
    rig.log.sync(1);
    rig.settle();
    let mut rig = rig.restart(Start::RECOVER);
    let events = rig.settle();
    assert!(matches!(events[0], Event::Start(StartEvent::Recovered(r)) if r.key == key(7)));
    assert_eq!(events[1], tombstone(key(7)));
}

#[test]
fn records_before_the_clean_mark_come_back_clean_and_later_ones_dirty() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, false);
    rig.log.clean_before_now(10);
    rig.append(1, key(1), 1, true);
    let events = rig.settle();
    assert!(events.contains(&answer(10, AnswerKind::CleanMarked, Ok(()))));
    rig.log.sync(11);
    rig.settle();
    let dirty: Vec<Granules> = rig
        .restart(Start::RECOVER)
        .settle()
        .iter()
        .filter_map(|e| match e {
            Event::Start(StartEvent::Recovered(r)) => Some(r.dirty),
            _ => None,
        })
        .collect();
    assert_eq!(dirty, [Granules::EMPTY, rig.geometry.all_granules()]);
}

#[test]
fn a_clean_mark_is_answered_when_the_superblock_that_holds_it_is_durable() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.log.sync(1);
    rig.settle();
    // A superblock without the mark is in flight when the mark is requested.
    rig.log.mark_active(key(8), 2);
    rig.poll();
    assert_eq!(rig.under_way(), 1);
    rig.log.clean_before_now(10);
    let marked = answer(10, AnswerKind::CleanMarked, Ok(()));
    while rig.log.poll_event() != Some(marked.clone()) {
        if rig.under_way() > 0 {
            rig.complete(0);
        }
    }
    // The cut loses everything that was not synced.
    let (geometry, options) = (rig.geometry, rig.options);
    let mut rig = Rig::new(geometry, options, rig.cut_by(0));
    rig.log.start(Start::RECOVER);
    let events = rig.settle();
    let [Event::Start(StartEvent::Recovered(record)), Event::Start(StartEvent::Ready(_))] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((record.key, record.dirty), (key(0), Granules::EMPTY));
}

#[test]
fn a_clean_mark_never_reaches_into_the_next_epoch() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.log.clean_before_now(10);
    rig.poll();
    // The superblock with the mark becomes durable; the batch that the mark covers never does.
    for _ in 0..3 {
        rig.complete(1);
    }
    assert_eq!(rig.log.poll_event(), Some(answer(10, AnswerKind::CleanMarked, Ok(()))));
    let mut rig = rig.restart(Start::RECOVER);
    assert!(matches!(rig.settle()[..], [Event::Start(StartEvent::Ready(_))]));
    rig.append(1, key(1), 1, true);
    rig.log.sync(2);
    rig.settle();
    let events = rig.restart(Start::RECOVER).settle();
    let [Event::Start(StartEvent::Recovered(record)), Event::Start(StartEvent::Ready(_))] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(record.sequence, BatchSequence::FIRST);
    assert_eq!(record.dirty, rig.geometry.all_granules());
}

#[test]
fn a_clean_mark_does_not_reach_what_is_appended_after_it_while_a_batch_is_written() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    assert_eq!(rig.under_way(), 1);
    rig.append(1, key(1), 1, false);
    rig.log.clean_before_now(10);
    rig.append(2, key(2), 1, true);
    rig.log.sync(11);
    rig.settle();
    let events = rig.restart(Start::RECOVER).settle();
    let dirty: Vec<bool> = events
        .iter()
        .filter_map(|e| match e {
            Event::Start(StartEvent::Recovered(r)) => Some(r.dirty != Granules::EMPTY),
            _ => None,
        })
        .collect();
    assert_eq!(dirty, [false, false, true]);
}
